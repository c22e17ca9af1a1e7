"""Device-varying and invariant values on a mesh, and the operations that convert between them.

Each device of a mesh runs a program on its own pieces. The types in it contain the mesh axes along which a value may
vary (`Aval.vma`), and three operations change that. `pvary` makes a value varying. `psum_invariant` sums a varying
value, and its result is equal everywhere: each is the transpose of the other. `take_equal` asserts that a value is
equal where the types do not show it.

| operation | its value | its transpose |
|---|---|---|
| `pvary` | that of its operand | `psum_invariant` |
| `psum_invariant` | the sum over the axes | `pvary` |
| `take_equal` | that of its operand | `pvary` of the n-th part, for n devices |

The types and the pair of operations are those of jax's `shard_map` (jax's documentation, "shard_map", section on
varying manual axes). A program runs without devices as a batch over each axis in turn: varying values have the batch
axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval, Literal, vma_of_jax
from fxgrad.engine.core.primitive import Cost, Primitive
from fxgrad.engine.derivation.guards import batched_axis
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.ops.arithmetic import div, mul
from fxgrad.engine.ops.families import check_kind, linear_unary
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import reduce_sum, reshape
from fxgrad.engine.tracing.tape import aval_of, axes_in_scope, bind
from fxgrad.engine.tracing.varying import install_pvary
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import UnsupportedError

Names = tuple[str, ...]
Sizes = tuple[int, ...]


def _rest(axes: Names, sizes: Sizes, done: str) -> dict[str, Any]:
    """Return the parameters of the operation over the other axes."""
    kept = [(axis, size) for axis, size in zip(axes, sizes, strict=True) if axis != done]
    return {"axis_name": tuple(axis for axis, _ in kept), "axis_size": tuple(size for _, size in kept)}


# --- from equal to varying ---------------------------------------------------------------------------------------


def _pvary_abstract(aval: Aval, *, axis_name: Names) -> list[Aval]:
    return [aval.varying(axis_name)]


def _pvary_xla(lax: Any, x: Any, *, axis_name: Names) -> Any:
    """Call jax's, since `jax.shard_map` may track varying axes."""
    missing = tuple(name for name in axis_name if name not in vma_of_jax(getattr(x, "aval", None)))
    return lax.pcast(x, missing, to="varying") if missing else x


def _pvary_transpose(cotangent: Any, aval: Aval, *, axis_name: Names) -> Any:
    # A program that was recorded for an invariant operand may be applied to one that varies.
    missing = tuple(name for name in axis_name if name not in aval.vma)
    return psum_invariant(cotangent, missing) if missing else cotangent


def _pvary_batch(size: int, values: list[Any], axes: list[int | None], *, axis_name: Names,
                 ) -> tuple[list[Any], list[int | None]]:
    rest = tuple(name for name in axis_name if name != batched_axis.get())
    return (bind(pvary_p, values[0], axis_name=rest) if rest else [values[0]]), [axes[0]]


pvary_p = linear_unary(
    "pvary", abstract=_pvary_abstract, numpy=lambda x, **_: x, xla=_pvary_xla, transpose=_pvary_transpose,
    batch=_pvary_batch, cost=lambda aval, **_: Cost(0, 0), collective=True, sets_vma=True)
"""The operand, as a value that may vary along `axis_name`."""


install_pvary(pvary_p)


def pvary(x: Any, names: Sequence[str]) -> Any:
    """Return `x` as a value that varies over the mesh axes `names` too; `x` itself if it does."""
    missing = tuple(sorted(set(names) - aval_of(x).vma))
    return bind(pvary_p, x, axis_name=missing)[0] if missing else x


@rewrites.register(pvary_p, makers=[pvary_p])
def _pvary_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Drop `pvary` of numbers, which are equal everywhere, and merge two steps into one."""
    if type(inputs[0]) is Literal:
        return [inputs[0]]
    inner = known.inputs_if(inputs[0], pvary_p)
    if inner is None:
        return None
    return [pvary(inner[0], (*known.params_of(inputs[0])["axis_name"], *params["axis_name"]))]


# --- from varying to equal ---------------------------------------------------------------------------------------


def _sizes(names: Names) -> Sizes:
    scope = axes_in_scope()
    return tuple(scope[name] for name in names)


def _sum_abstract(aval: Aval, *, axis_name: Names, axis_size: Sizes) -> list[Aval]:
    check_kind("psum", "numeric", aval)
    return [aval.invariant(axis_name)]


def _sum_batch(size: int, values: list[Any], axes: list[int | None], *, axis_name: Names, axis_size: Sizes,
               ) -> tuple[list[Any], list[int | None]]:
    value, axis, name = values[0], axes[0], batched_axis.get()
    rest = {"axis_name": axis_name, "axis_size": axis_size}
    if name in axis_name:
        assert name is not None
        value = mul(value, scalar_like(size, value)) if axis is None else reduce_sum(value, (axis,))
        axis, rest = None, _rest(axis_name, axis_size, name)
    return (bind(psum_invariant_p, value, **rest) if rest["axis_name"] else [value]), [axis]


def _sum_numpy(x: Any, *, axis_name: Names, axis_size: Sizes) -> Any:
    if math.prod(axis_size) != 1:
        shown = ", ".join(f"{axis!r} of size {size}" for axis, size in zip(axis_name, axis_size, strict=True))
        raise UnsupportedError(at_user_line(
            f"psum over the mesh axis {shown} was to be computed outside of the function that is mapped over it. "
            "Call it inside a function under fxgrad.shard_map"))
    return x


psum_invariant_p = linear_unary(
    "psum_invariant", abstract=_sum_abstract, numpy=_sum_numpy,
    xla=lambda lax, x, *, axis_name, axis_size: x if math.prod(axis_size) == 1 else lax.psum(x, axis_name),
    transpose=lambda cotangent, aval, *, axis_name, axis_size: pvary(cotangent, axis_name), batch=_sum_batch,
    flops=1, collective=True,
    sets_vma=True)
"""The sum over all devices along `axis_name`, with sizes `axis_size`; it is equal for all of them."""


def psum_invariant(x: Any, names: Sequence[str]) -> Any:
    """Return the sum of `x` over the mesh axes `names`, which are in scope."""
    names = tuple(names)
    return bind(psum_invariant_p, pvary(x, names), axis_name=names, axis_size=_sizes(names))[0]


def sum_to_vma(x: Any, aval: Aval) -> Any:
    """Sum a cotangent of a value of type `aval` over the mesh axes along which it varies, and the value does not."""
    more = aval_of(x).vma - aval.vma
    return psum_invariant(x, sorted(more)) if more else x


# --- assumed equal ---------------------------------------------------------------------------------------------


def _equal_abstract(aval: Aval, *, axis_name: Names, axis_size: Sizes) -> list[Aval]:
    return [aval.invariant(axis_name)]


def _equal_transpose(cotangent: Any, aval: Aval, *, axis_name: Names, axis_size: Sizes) -> Any:
    return pvary(div(cotangent, scalar_like(math.prod(axis_size), cotangent)), axis_name)


def _equal_batch(size: int, values: list[Any], axes: list[int | None], *, axis_name: Names, axis_size: Sizes,
                 ) -> tuple[list[Any], list[int | None]]:
    value, axis, name = values[0], axes[0], batched_axis.get()
    rest = {"axis_name": axis_name, "axis_size": axis_size}
    if name in axis_name:
        assert name is not None
        if axis is not None:
            shape = aval_of(value).shape
            value = reshape(slice_in_dim(value, 0, 1, axis), (*shape[:axis], *shape[axis + 1:]))
        axis, rest = None, _rest(axis_name, axis_size, name)
    return (bind(take_equal_p, value, **rest) if rest["axis_name"] else [value]), [axis]


def _equal_xla(lax: Any, x: Any, *, axis_name: Names, axis_size: Sizes) -> Any:
    """Broadcast the first device's value by a sum, if an enclosing `jax.shard_map` tracks varying axes."""
    names = tuple(name for name in axis_name if name in vma_of_jax(getattr(x, "aval", None)))
    if not names:
        return x
    first = lax.select(lax.broadcast(lax.axis_index(names) == 0, x.shape), x, lax.full_like(x, 0))
    return lax.psum(first, names).astype(x.dtype)


take_equal_p: Primitive = linear_unary(
    "take_equal", abstract=_equal_abstract, numpy=lambda x, **_: np.copy(x)[()], xla=_equal_xla,
    transpose=_equal_transpose, batch=_equal_batch, cost=lambda aval, **_: Cost(0, 0), collective=True,
    sets_vma=True)
"""The operand, which is equal on all devices along `axis_name`, though its type does not show it."""


def take_equal(x: Any, names: Sequence[str]) -> Any:
    """Return `x` as a value that is equal along the mesh axes `names`, which are in scope; `x` itself if its type is.

    The result is unspecified if the devices differ.
    """
    varying = tuple(sorted(aval_of(x).vma.intersection(names)))
    return bind(take_equal_p, x, axis_name=varying, axis_size=_sizes(varying))[0] if varying else x
