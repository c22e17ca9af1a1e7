"""All of it: a small language model on a mesh of 2 x 2 x 2 devices, with axes for data, heads and the sequence.

Batches and the pieces of all matrices are divided along "data" (fully sharded), heads and hidden units along "model"
(tensor parallel), sequences along "sequence" (ring attention). Run it with `python examples/parallel/transformer.py`.
"""

from __future__ import annotations

from typing import Any

from jax.sharding import PartitionSpec as P
from ring_attention import ring_attention
from setting import floats, show, tokens

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn

AXES = {"data": 2, "model": 2, "sequence": 2}
LAYERS = {"scale": P(), "qkv": P(None, None, "model", None, "data"), "out": P(None, "model", None, "data"),
          "up": P(None, "data", "model"), "down": P(None, "model", "data")}
SPECS = ({"layers": LAYERS, "words": P(None, "data")}, P("data", "sequence"), P("data", "sequence"))
"""How matrices are split, those of all layers stacked along their first axis, and sequences of tokens."""


def types(data: int, model: int, sequence: int, width: int = 8, layers: int = 2, rows: int = 2, length: int = 4,
          words: int = 8, size: int = 4) -> tuple[Any, ...]:
    """Types of the parameters, of sequences of tokens, and of the tokens that follow them."""
    heads = max(width // size, model)
    stacked = {"scale": floats(layers, 2, width), "qkv": floats(layers, 3, heads, size, width),
               "out": floats(layers, heads, size, width), "up": floats(layers, width, 4 * width),
               "down": floats(layers, 4 * width, width)}
    batch = tokens(data * rows, sequence * length)
    return {"layers": stacked, "words": floats(words, width)}, batch, batch


def normalised(x: Any, scale: Any) -> Any:
    """Root mean square normalisation."""
    return x * scale / fnp.sqrt(fnp.mean(x * x, -1, keepdims=True) + 1e-6)


def block(params: Any, x: Any, attend: Any, whole: Any) -> Any:
    """Attention and MLP, of the heads and hidden units whose weights are there; `whole` sums over all."""
    query, key, value = fnp.einsum("khdw,btw->kbhtd", params["qkv"], normalised(x, params["scale"][0]))
    x = x + whole(fnp.einsum("bhtd,hdw->btw", attend(query, key, value), params["out"]))
    return x + whole(nn.gelu(normalised(x, params["scale"][1]) @ params["up"]) @ params["down"])


def next_word(words: Any, x: Any, following: Any) -> Any:
    """The mean of the negative log-likelihood of the tokens that follow."""
    return -fnp.mean(fnp.sum(nn.log_softmax(x @ words.T) * nn.one_hot(following, len(words), dtype=x.dtype), -1))


def causal(query: Any, key: Any, value: Any) -> Any:
    """Attention to the entries before, with all of the sequence at hand."""
    scores = fnp.einsum("bhtd,bhsd->bhts", query, key) / fnp.sqrt(query.shape[-1] * 1.0)
    weights = nn.softmax(fnp.where(fnp.tril(fnp.ones(scores.shape[-2:], bool)), scores, -fnp.inf))
    return fnp.einsum("bhts,bhsd->bhtd", weights, value)


def loss(params: Any, x: Any, following: Any) -> Any:
    """The loss of the language model, written for one device."""
    def step(hidden: Any, layer: Any) -> Any:
        return block(layer, hidden, causal, lambda partial: partial), None
    hidden, _ = lax.scan(step, params["words"][x], params["layers"])
    return next_word(params["words"], hidden, following)


def gathered(layer: Any) -> Any:
    """The matrices of a layer, whole along "data"."""
    return {name: lax.all_gather(each, "data", axis=LAYERS[name].index("data") - 1, tiled=True)
            if "data" in LAYERS[name] else each for name, each in layer.items()}


@fxgrad.checkpoint
def split_block(x: Any, layer: Any) -> Any:
    """A block whose matrices lie in pieces: they are gathered again on the way back."""
    return block(gathered(layer), x, lambda *qkv: ring_attention(*qkv, "sequence"),
                 lambda partial: lax.psum(partial, "model"))


def parallel(mesh: Any) -> Any:
    """The loss and its gradient by the parameters, on a mesh with the axes "data", "model" and "sequence"."""
    def split_loss(params: Any, x: Any, following: Any) -> Any:
        words = lax.all_gather(params["words"], "data", axis=1, tiled=True)
        hidden, _ = lax.scan(lambda hidden, layer: (split_block(hidden, layer), None), words[x], params["layers"])
        return lax.pmean(next_word(words, hidden, following), ("data", "sequence"))
    return fxgrad.value_and_grad(fxgrad.shard_map(split_loss, mesh=mesh, in_specs=SPECS, out_specs=P()))


def main() -> None:
    """Shows that one device and eight agree, and what they say to each other."""
    show(loss, parallel, types(**AXES), AXES, SPECS)


if __name__ == "__main__":
    main()
