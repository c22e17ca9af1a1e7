"""Sequence parallel: each device has a piece of every sequence, and keys and values go round a ring of devices.

Scores are never all there: each device joins the softmax of one piece of keys with that of the pieces before, as Liu,
Zaharia and Abbeel do (2023, "Ring attention with blockwise transformers"). On the way back keys and values go around
again, so that a device never keeps those of others. Run it with `python examples/parallel/ring_attention.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from jax.sharding import PartitionSpec as P
from setting import floats, show

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn

AXES = {"sequence": 8}
SPECS = (P(), P(None, "sequence"), P(None, "sequence"))


def types(sequence: int, width: int = 8, heads: int = 2, rows: int = 2, length: int = 4) -> tuple[Any, ...]:
    """Types of the parameters, and of sequences of which each device has `length` entries."""
    params = {"qkv": floats(3, heads, width // heads, width), "out": floats(width, width)}
    return params, floats(rows, sequence * length, width), floats(rows, sequence * length, width)


def projected(params: Any, x: Any) -> Any:
    """Queries, keys and values, (3, rows, heads, length, size)."""
    return fnp.einsum("khdw,btw->kbhtd", params["qkv"], x)


def joined(params: Any, made: Any) -> Any:
    """What all heads have made, (rows, heads, length, size), put together and through the last matrix."""
    rows, heads, length, size = made.shape
    return fnp.moveaxis(made, 1, 2).reshape(rows, length, heads * size) @ params["out"]


def loss(params: Any, x: Any, y: Any) -> Any:
    """The mean square error of causal attention, written for one device."""
    query, key, value = projected(params, x)
    scores = fnp.einsum("bhtd,bhsd->bhts", query, key) / fnp.sqrt(query.shape[-1] * 1.0)
    place = fnp.arange(x.shape[1])
    weights = nn.softmax(fnp.where(place[:, None] >= place[None, :], scores, -fnp.inf))
    return fnp.mean((joined(params, fnp.einsum("bhts,bhsd->bhtd", weights, value)) - y) ** 2)


@partial(fxgrad.custom_vjp, nondiff_argnums=(3,))
def ring_attention(query: Any, key: Any, value: Any, axis: str) -> Any:
    """Causal attention of sequences that lie in pieces along `axis`: all (rows, heads, length, size), so the result."""
    return forward(query, key, value, axis)[0]


def around(axis: str, visit: Any, state: Any, pair: Any, steps: int) -> Any:
    """`state` and what travels, `pair`, after a visit of each piece: `visit(state, pair, owner)` makes both anew."""
    count, here = lax.axis_size(axis), lax.axis_index(axis)

    def step(carry: Any, number: Any) -> Any:
        state, pair = visit(*carry, (here - number) % count)
        return (state, lax.ppermute(pair, axis, [(i, (i + 1) % count) for i in range(count)])), None
    (state, pair), _ = lax.scan(step, (state, pair), fnp.arange(steps))
    return state, pair


def masked_scores(query: Any, key: Any, axis: str, owner: Any) -> Any:
    """The scores of the piece of keys of device `owner`, (rows, heads, length, length)."""
    place, length = fnp.arange(query.shape[2]), query.shape[2]
    seen = (lax.axis_index(axis) * length + place)[:, None] >= (owner * length + place)[None, :]
    return fnp.where(seen, fnp.einsum("bhtd,bhsd->bhts", query, key) / fnp.sqrt(query.shape[-1] * 1.0), -1e30)


def forward(query: Any, key: Any, value: Any, axis: str) -> Any:
    """The result, and with it what the way back needs: of scores only their sums."""
    def visit(state: Any, pair: Any, owner: Any) -> Any:
        greatest, total, weighted = state
        scores = masked_scores(query, pair[0], axis, owner)
        higher = fnp.maximum(greatest, fnp.max(scores, -1))
        weights, less = fnp.exp(scores - higher[..., None]), fnp.exp(greatest - higher)
        sums = fnp.einsum("bhts,bhsd->bhtd", weights, pair[1])
        return (higher, total * less + fnp.sum(weights, -1), weighted * less[..., None] + sums), pair
    zeros = 0.0 * query
    start = (zeros[..., 0] - 1e30, zeros[..., 0], zeros)
    last = lax.axis_size(axis) - 1
    state, pair = around(axis, visit, start, fnp.stack([key, value]), last)
    (greatest, total, weighted), _ = visit(state, pair, (lax.axis_index(axis) + 1) % (last + 1))
    made = weighted / total[..., None]
    return made, (query, key, value, made, greatest + fnp.log(total))


def backward(axis: str, kept: Any, d_made: Any) -> Any:
    """Keys and values go around once more, and their gradients with them, all the way home."""
    query, key, value, made, logs = kept
    inner = fnp.sum(d_made * made, -1)

    def visit(d_query: Any, pieces: Any, owner: Any) -> Any:
        key, value, d_key, d_value = pieces
        weights = fnp.exp(masked_scores(query, key, axis, owner) - logs[..., None])
        d_scores = weights * (fnp.einsum("bhtd,bhsd->bhts", d_made, value) - inner[..., None])
        d_scores = d_scores / fnp.sqrt(query.shape[-1] * 1.0)
        d_key = d_key + fnp.einsum("bhts,bhtd->bhsd", d_scores, query)
        d_value = d_value + fnp.einsum("bhts,bhtd->bhsd", weights, d_made)
        return d_query + fnp.einsum("bhts,bhsd->bhtd", d_scores, key), fnp.stack([key, value, d_key, d_value])
    zeros = 0.0 * key
    d_query, pieces = around(axis, visit, 0.0 * query, fnp.stack([key, value, zeros, zeros]), lax.axis_size(axis))
    return d_query, pieces[2], pieces[3]


ring_attention.defvjp(forward, backward)


def parallel(mesh: Any) -> Any:
    """The loss and its gradient by the parameters, on a mesh with the axis "sequence"."""
    def piece_loss(params: Any, x: Any, y: Any) -> Any:
        made = ring_attention(*projected(params, x), "sequence")
        return lax.pmean(fnp.mean((joined(params, made) - y) ** 2), "sequence")
    return fxgrad.value_and_grad(fxgrad.shard_map(piece_loss, mesh=mesh, in_specs=SPECS, out_specs=P()))


def main() -> None:
    """Shows that one device and eight agree, and what they say to each other."""
    show(loss, parallel, types(**AXES), AXES, SPECS)


if __name__ == "__main__":
    main()
