"""Array operations needed by transformations: zeros, broadcasts and their transposes, layout, sums, dtypes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Literal, Shape
from fxgrad.engine.core.sizes import may_be_equal, surely_less
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops.conversion import converted, converted_by_xla
from fxgrad.engine.ops.families import broadcast_shapes, linear_unary, rank_of, reduced_shape, reduction
from fxgrad.engine.ops.snippets import Snippet, snippets
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import DTypeError, ShapeError


def is_negative(size: Any) -> bool:
    """Return whether `size` is negative for all values of its names.

    Kernels in exported files, which have no symbolic sizes, call it: so it does not use `core.sizes`.
    """
    try:
        return bool(size < 0)
    except TypeError:
        return False


# --- broadcast_to ---------------------------------------------------------------------------------------


def _broadcast_abstract(x: Aval, *, shape: Shape) -> list[Aval]:
    if broadcast_shapes("broadcast_to", x.shape, shape) != shape:
        raise ShapeError(f"broadcast_to: an array of shape {x.shape} does not broadcast to {shape}: each of its axes "
                         "must have the size of the new shape's, counted from the last, or 1")
    return [x.update(shape=shape)]


def _broadcast_xla(lax: Any, x: Any, *, shape: Shape) -> Any:
    return lax.broadcast_in_dim(x, shape, tuple(range(len(shape) - x.ndim, len(shape))))


def _broadcast_batch(size: int, values: list[Any], axes: list[int], *, shape: Shape) -> tuple[list[Any], list[int]]:
    return bind(broadcast_to_p, move_batch_first(values[0], axes[0], len(shape)), shape=(size, *shape)), [0]


broadcast_to_p = linear_unary(
    "broadcast_to", abstract=_broadcast_abstract, numpy=lambda x, *, shape: np.broadcast_to(x, shape),
    xla=_broadcast_xla, batch=_broadcast_batch,
    transpose=lambda cotangent, aval, *, shape: unbroadcast(cotangent, aval))


def _spread(x: Any, shape: Shape, dtype: DType) -> Any:
    spread = np.empty(shape, dtype)
    spread[...] = x
    return spread


@snippets.register(broadcast_to_p)
def _broadcast_snippet(avals: Sequence[Aval], params: dict[str, Any]) -> Snippet:
    """Return an expression for a new array, which takes a fraction of the time of NumPy's view if it is small."""
    shape, dtype = params["shape"], avals[0].dtype
    if math.prod(shape) > 2**16:
        return Snippet(f"broadcast_to({{0}}, {shape})", {"broadcast_to": np.broadcast_to}, owned=False)
    return Snippet(f"spread({{0}}, {shape}, {dtype.name})", {"spread": _spread, dtype.name: dtype},
                   row_major=True)


def broadcast_to(x: Any, shape: Shape) -> Any:
    """Return `x` repeated along new and size-1 axes to `shape`; `x` itself if it has that shape."""
    return x if aval_of(x).shape == shape else bind(broadcast_to_p, x, shape=shape)[0]


def unbroadcast(cotangent: Any, aval: Aval) -> Any:
    """Transpose a broadcast: sum `cotangent` over the axes along which `aval` was repeated."""
    shape = aval_of(cotangent).shape
    if shape == aval.shape:
        return cotangent
    new = len(shape) - aval.ndim
    repeated = tuple(axis for axis in range(len(shape))
                     if axis < new or (aval.shape[axis - new] == 1 and shape[axis] != 1))
    dtype, weak = aval_of(cotangent).dtype, aval_of(cotangent).weak
    if dtypes.is_floating(dtype) and dtype.itemsize < 4:  # in its own precision a long sum stagnates
        cotangent = convert(cotangent, np.dtype(np.float32))
    return convert(reshape(reduce_sum(cotangent, repeated), aval.shape), dtype, weak)


def without_broadcast(known: RecordedDefinitions, inputs: list[Any]) -> list[Any] | None:
    """Return operands of an elementwise operation without redundant broadcasts; None if there are none."""
    shape = broadcast_shapes("", *(aval_of(value).shape for value in inputs))
    changed = list(inputs)
    for index, value in enumerate(inputs):
        source = _broadcast_source(known, value)
        if source is not None:
            others = [aval_of(other).shape for place, other in enumerate(changed) if place != index]
            if others and broadcast_shapes("", aval_of(source).shape, *others) == shape:
                changed[index] = source
    return changed if any(new is not old for new, old in zip(changed, inputs, strict=True)) else None


def repeated_scalar(known: RecordedDefinitions, value: Any) -> Any:
    """Return the scalar that every element of `value` is equal to; None if there is no known one."""
    if not aval_of(value).shape:
        return value
    source = known.inputs_if(value, broadcast_to_p)
    return source[0] if source is not None and not aval_of(source[0]).shape else None


def _broadcast_source(known: RecordedDefinitions, value: Any) -> Any:
    """Return the source of a broadcast `value`, or the scalar that it is a reshape of; None if it is neither."""
    source = known.inputs_if(value, broadcast_to_p)
    if source is not None:
        return source[0]
    source = known.inputs_if(value, reshape_p)
    return source[0] if source is not None and not aval_of(source[0]).shape else None


# --- reshape --------------------------------------------------------------------------------------------


def _reshape_abstract(x: Aval, *, shape: Shape) -> list[Aval]:
    if not may_be_equal(Aval(shape, x.dtype).size, x.size) or any(
            surely_less(extent, 0) for extent in shape):
        raise ShapeError(f"reshape: an array of shape {x.shape} has {x.size} elements, and shape {shape} "
                         f"has {Aval(shape, x.dtype).size}; the numbers must be equal (one size may be given as -1)")
    return [x.update(shape=shape)]


def _reshape_batch(size: int, values: list[Any], axes: list[int], *, shape: Shape) -> tuple[list[Any], list[int]]:
    return bind(reshape_p, move_axis(values[0], axes[0], 0), shape=(size, *shape)), [0]


reshape_p = linear_unary(
    "reshape", abstract=_reshape_abstract, numpy=lambda x, *, shape: np.reshape(x, shape),
    xla=lambda lax, x, *, shape: lax.reshape(x, shape), batch=_reshape_batch,
    transpose=lambda cotangent, aval, *, shape: reshape(cotangent, aval.shape))


@snippets.register(reshape_p)
def _reshape_snippet(avals: Sequence[Aval], params: dict[str, Any]) -> Snippet | None:
    shape = params["shape"]
    if avals[0].shape:
        return Snippet(f"{{0}}.reshape({shape})", owned=False)
    # `np.reshape` tries the method of NumPy's scalars first, and takes 1.6 µs; this takes 0.3.
    return Snippet(f"array({{0}}, ndmin={len(shape)})", {"array": np.array}, row_major=True) if (
        shape and all(extent == 1 for extent in shape)) else None


def reshape(x: Any, shape: Shape) -> Any:
    """Return `x` in row-major order with another shape; `x` itself if it has that shape."""
    return x if aval_of(x).shape == shape else bind(reshape_p, x, shape=shape)[0]


@rewrites.register(reshape_p, makers=(reshape_p, broadcast_to_p),
                   when=lambda avals, params: avals[0].shape == params["shape"])
def _reshape_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    inner = known.inputs_if(inputs[0], reshape_p)
    source = inner[0] if inner else inputs[0]
    repeated = known.inputs_if(source, broadcast_to_p) or ([source] if type(source) is Literal else None)
    if repeated and not aval_of(repeated[0]).shape:
        return [broadcast_to(repeated[0], params["shape"])]
    if aval_of(source).shape == params["shape"]:
        return [source]
    return [reshape(source, params["shape"])] if inner else None


@rewrites.register(broadcast_to_p, makers=(broadcast_to_p, reshape_p),
                   when=lambda avals, params: avals[0].shape == params["shape"])
def _broadcast_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Start broadcasts of broadcasts, and of reshapes that only put axes of size 1 in front, from the source."""
    x = inputs[0]
    if aval_of(x).shape == params["shape"]:
        return [x]
    inner = known.inputs_if(x, broadcast_to_p)
    if inner is None:
        inner = known.inputs_if(x, reshape_p)
        if inner is None:
            return None
        shape, before = aval_of(x).shape, aval_of(inner[0]).shape
        if shape != (1,) * (len(shape) - len(before)) + before:
            return None
    return [broadcast_to(inner[0], params["shape"])]


# --- transpose ------------------------------------------------------------------------------------------


def _transpose_abstract(x: Aval, *, permutation: tuple[int, ...]) -> list[Aval]:
    if sorted(permutation) != list(range(x.ndim)):
        raise ShapeError(f"transpose: axes {permutation} are not a permutation of the axes of an array of shape "
                         f"{x.shape}; name each of 0 to {x.ndim - 1} once")
    return [x.update(shape=tuple(x.shape[axis] for axis in permutation))]


def _transpose_batch(size: int, values: list[Any], axes: list[int], *, permutation: tuple[int, ...],
                     ) -> tuple[list[Any], list[int]]:
    at = axes[0]
    shifted = tuple(axis + (axis >= at) for axis in permutation)
    return bind(transpose_p, values[0], permutation=(at, *shifted)), [0]


transpose_p = linear_unary(
    "transpose", abstract=_transpose_abstract, numpy=lambda x, *, permutation: np.transpose(x, permutation),
    xla=lambda lax, x, *, permutation: lax.transpose(x, permutation), batch=_transpose_batch,
    transpose=lambda cotangent, aval, *, permutation: transpose(cotangent, inverse_permutation(permutation)))


@snippets.register(transpose_p)
def _transpose_snippet(avals: Sequence[Aval], params: dict[str, Any]) -> Snippet | None:
    if avals[0].ndim < 2:
        return None
    reverses = params["permutation"] == tuple(reversed(range(avals[0].ndim)))
    return Snippet("{0}.T" if reverses else f"{{0}}.transpose({params['permutation']})", owned=False)


def inverse_permutation(permutation: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes `permutation`."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def transpose(x: Any, permutation: Sequence[int]) -> Any:
    """Return `x` with its axes in the order `permutation`; `x` itself if that changes nothing."""
    permutation = tuple(permutation)
    if permutation == tuple(range(len(permutation))):
        return x
    return bind(transpose_p, x, permutation=permutation)[0]


@rewrites.register(transpose_p, makers=(transpose_p,))
def _transpose_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    inner = known.inputs_if(inputs[0], transpose_p)
    if not inner:
        return None
    first = known.params_of(inputs[0])["permutation"]
    return [transpose(inner[0], [first[axis] for axis in params["permutation"]])]


def move_axis(x: Any, source: int, destination: int) -> Any:
    """Return `x` with one axis moved; both positions are non-negative."""
    permutation = [axis for axis in range(rank_of(x)) if axis != source]
    permutation.insert(destination, source)
    return transpose(x, permutation)


def move_batch_first(x: Any, axis: int, rank: int) -> Any:
    """Return `x` with the batch axis `axis` first and `rank` axes after it, new ones of size 1 directly behind."""
    moved = move_axis(x, axis, 0)
    shape = aval_of(moved).shape
    missing = rank - (len(shape) - 1)
    return moved if not missing else reshape(moved, (shape[0], *(1,) * missing, *shape[1:]))


# --- sums -----------------------------------------------------------------------------------------------


def expand_axes(x: Any, axes: Sequence[int], shape: Shape) -> Any:
    """Return `x` repeated along the reduced `axes` to `shape`, which undoes a reduction's shape."""
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return broadcast_to(reshape(x, kept), shape)


def _sum_jvp(primals: list[Any], tangents: list[Any], *, axes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    return [reduce_sum(primals[0], axes)], [reduce_sum(tangents[0], axes)]


def _sum_numpy(x: Any, axes: tuple[int, ...]) -> Any:
    """Add numbers of half precision in float32: in their own precision a long sum stagnates."""
    if x.dtype.itemsize < 4 and dtypes.is_floating(x.dtype):
        return np.add.reduce(x, axis=axes, dtype=np.float32).astype(x.dtype)
    return np.add.reduce(x, axis=axes, dtype=x.dtype)


reduce_sum_p = reduction(
    "reduce_sum", accepts="numeric", public="sum", numpy=_sum_numpy, jvp=_sum_jvp,
    transpose=lambda cotangents, inputs, *, axes: [expand_axes(cotangents[0], axes, inputs[0].shape)])


@snippets.register(reduce_sum_p)
def _sum_snippet(avals: Sequence[Aval], params: dict[str, Any]) -> Snippet | None:
    """Return the kernel's call without default arguments; sums of narrow numbers keep their own dtype."""
    aval, axes = avals[0], params["axes"]
    if aval.dtype.kind not in "fc" or aval.dtype.itemsize < 4 or not axes:
        return None
    axis = axes[0] if len(axes) == 1 else axes
    return Snippet(f"add_reduce({{0}}, {axis})" if aval.ndim > 1 else "add_reduce({0})", {"add_reduce": np.add.reduce})


def reduce_sum(x: Any, axes: Sequence[int]) -> Any:
    """Return the sum over `axes` (non-negative), in the dtype of `x`; `x` itself if there are none."""
    return bind(reduce_sum_p, x, axes=tuple(sorted(axes)))[0] if axes else x


def has_trivial_axes(avals: Sequence[Aval], params: dict[str, Any]) -> bool:
    """Return whether a reduction over `axes` is over axes of size 1 alone."""
    return all(avals[0].shape[axis] == 1 for axis in params["axes"])


@rewrites.register(reduce_sum_p, when=has_trivial_axes)
def _sum_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Replace a sum over axes of size 1 by a reshape (a NaN stays a NaN; -0.0 + nothing stays -0.0)."""
    aval = aval_of(inputs[0])
    return [reshape(inputs[0], reduced_shape(aval, params["axes"]))] if has_trivial_axes([aval], params) else None


# --- dtypes ---------------------------------------------------------------------------------------------


def _convert_abstract(x: Aval, *, dtype: DType, weak: bool) -> list[Aval]:
    if dtypes.is_key(x.dtype):
        raise DTypeError("astype: random keys (key<fry>) are not converted; take their bits with "
                         "fxgrad.random.key_data(key)")
    if dtype.name not in dtypes.SUPPORTED:
        raise DTypeError(f"astype: fxgrad has no dtype {dtype.name!r}; it supports {', '.join(dtypes.WIDE_NAMES)}")
    return [Aval(x.shape, dtype, weak)]


def _convert_numpy(x: Any, *, dtype: DType, weak: bool) -> Any:
    if x.dtype.kind == "V" and dtypes.is_key(x.dtype):
        raise TypeError("the abstract rule says why")
    return converted(x, dtype)


def _convert_xla(lax: Any, x: Any, *, dtype: DType, weak: bool) -> Any:
    return converted_by_xla(lax, x, dtype)


def _convert_transpose(cotangent: Any, aval: Aval, *, dtype: DType, weak: bool) -> Any:
    return convert(cotangent, aval.dtype, aval.weak)


convert_element_type_p = linear_unary(
    "convert_element_type", abstract=_convert_abstract, numpy=_convert_numpy, xla=_convert_xla,
    transpose=_convert_transpose,
    batch=lambda size, values, axes, **params: (bind(convert_element_type_p, *values, **params), axes))


@snippets.register(convert_element_type_p)
def _convert_snippet(avals: Sequence[Aval], params: dict[str, Any]) -> Snippet | None:
    """Return NumPy's own conversion to wide floats, which rounds once, and nothing if the dtype stays."""
    before, after = avals[0].dtype, params["dtype"]
    if before == after:
        return Snippet("{0}", owned=False, of_numbers="{0}")
    if before.kind not in "biuf" or after.kind != "f" or after.itemsize < 4:
        return None
    return Snippet(f"{{0}}.astype({after.name})", {after.name: after},
                   of_numbers="float({0})" if after.itemsize == 8 else "")



def convert(x: Any, dtype: DType, weak: bool = False) -> Any:
    """Return `x` as `dtype`; complex to real drops the imaginary part; `x` itself if it has that dtype."""
    aval = aval_of(x)
    if aval.dtype == dtype and aval.weak == weak:
        return x
    if type(x) is Literal:
        with np.errstate(all="ignore"):
            number = Literal(_convert_numpy(x.value, dtype=dtype, weak=weak), Aval((), dtype, weak))
            if hasattr(x, "made_of"):
                number.made_of = x.made_of
            return number
    return bind(convert_element_type_p, x, dtype=dtype, weak=weak)[0]


def _is_unchanged(avals: Sequence[Aval], params: dict[str, Any]) -> bool:
    return avals[0] == Aval(avals[0].shape, params["dtype"], params["weak"])


@rewrites.register(convert_element_type_p, when=_is_unchanged)
def _convert_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    return [inputs[0]] if _is_unchanged([aval_of(inputs[0])], params) else None


# --- constants ------------------------------------------------------------------------------------------


def full(shape: Shape, value: float | complex, dtype: DType) -> Any:
    """Return an array of one repeated value, made of a literal, so that programs show the value."""
    return broadcast_to(Literal(value, Aval((), dtype)), shape)


def zeros(aval: Aval) -> Any:
    """Return the zero array of a type."""
    return full(aval.shape, 0, aval.dtype)


def instantiate_zeros(tangent: Any) -> Any:
    """Return a tangent or cotangent as an array, also if it is a symbolic zero; for use in jvp and transpose rules.

    >>> instantiate_zeros(Zero(Aval((2,), np.dtype("float64"))))
    array([0., 0.])
    """
    return zeros(tangent.aval) if type(tangent) is Zero else tangent


def has_weak_cotangent(aval: Aval, outputs: Iterable[Aval]) -> bool:
    """Return whether the cotangent of a primal of type `aval` is made weak, for `outputs` that are differentiated.

    That of a Python number would widen what an optimizer makes of it, and with it the next step of a function in less
    than 64 bits. Functions in 64 bits have nothing to widen.
    """
    return aval.weak and not all(dtypes.is_64bit(output.dtype) for output in outputs)


def cotangent_of(aval: Aval, cotangent: Any, outputs: Iterable[Aval]) -> Any:
    """Return the cotangent of a primal of type `aval` as an array, for `outputs` that are differentiated."""
    found = instantiate_zeros(cotangent)
    return convert(found, aval.dtype, weak=True) if has_weak_cotangent(aval, outputs) else found
