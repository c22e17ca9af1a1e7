"""Tensor parallel: heads of attention and hidden units of an MLP are divided among devices, as Megatron divides them.

What splits the columns of one matrix splits the rows of the next, so that each half of a block needs one sum over the
devices forward and one backward. Beside it the batch is divided, along another axis of the mesh. Run it with
`python examples/parallel/tensor_parallel.py`.
"""

from __future__ import annotations

from typing import Any

from jax.sharding import PartitionSpec as P
from setting import floats, show

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn

AXES = {"data": 2, "model": 4}
SPECS = ({"scale": P(), "qkv": P(None, "model"), "out": P("model"), "up": P(None, "model"), "down": P("model")},
         P("data"), P("data"))
"""Matrices are split by heads or hidden units; between blocks all devices of "model" have the same activations."""


def types(data: int, model: int, width: int = 16, heads: int = 2, rows: int = 2, length: int = 8) -> tuple[Any, ...]:
    """Types of the parameters of a block with `heads` heads a device, of its inputs, and of what it should give."""
    size, heads = width // (heads * model), heads * model
    params = {"scale": floats(2, width), "qkv": floats(3, heads, size, width), "out": floats(heads, size, width),
              "up": floats(width, 4 * width), "down": floats(4 * width, width)}
    return params, floats(data * rows, length, width), floats(data * rows, length, width)


def normalised(x: Any, scale: Any) -> Any:
    """Root mean square normalisation."""
    return x * scale / fnp.sqrt(fnp.mean(x * x, -1, keepdims=True) + 1e-6)


def attention(x: Any, params: Any) -> Any:
    """Attention by the heads whose weights are there."""
    query, key, value = fnp.einsum("khdw,btw->kbhtd", params["qkv"], x)
    weights = nn.softmax(fnp.einsum("bhtd,bhsd->bhts", query, key) / fnp.sqrt(query.shape[-1] * 1.0))
    return fnp.einsum("bhts,bhsd,hdw->btw", weights, value, params["out"])


def mlp(x: Any, params: Any) -> Any:
    """Two layers, by the hidden units whose weights are there."""
    return nn.gelu(x @ params["up"]) @ params["down"]


def block(params: Any, x: Any, whole: Any) -> Any:
    """Attention and MLP; `whole` makes the sum over all heads, or all units, of the sums over those that are there."""
    x = x + whole(attention(normalised(x, params["scale"][0]), params))
    return x + whole(mlp(normalised(x, params["scale"][1]), params))


def loss(params: Any, x: Any, y: Any) -> Any:
    """The mean square error of a block, written for one device."""
    return fnp.mean((block(params, x, lambda partial: partial) - y) ** 2)


def parallel(mesh: Any) -> Any:
    """The loss and its gradient by the parameters, on a mesh with the axes "data" and "model"."""
    def split_loss(params: Any, x: Any, y: Any) -> Any:
        made = block(params, x, lambda partial: lax.psum(partial, "model"))
        return lax.pmean(fnp.mean((made - y) ** 2), "data")
    return fxgrad.value_and_grad(fxgrad.shard_map(split_loss, mesh=mesh, in_specs=SPECS, out_specs=P()))


def main() -> None:
    """Shows that one device and eight agree, and what they say to each other."""
    show(loss, parallel, types(**AXES), AXES, SPECS)


if __name__ == "__main__":
    main()
