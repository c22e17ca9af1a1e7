"""Collectives: communication between the entries of an axis that `vmap` maps under a name.

`axis_name` is the name given to `fxgrad.vmap(..., axis_name=...)`, or a tuple of such names, which count as one axis
with the first name changing slowest. Containers of arrays are taken leaf by leaf.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.avals import PYTHON_SCALARS
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.executors.xla import is_jax
from fxgrad.engine.frontend.operands import as_integer
from fxgrad.engine.frontend.strict import require_array, strict_axis_of
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import convert, reshape
from fxgrad.engine.ops.varying import pvary
from fxgrad.engine.parallel import collective
from fxgrad.engine.parallel.collective import axis_index_p, pmax_p, pmin_p
from fxgrad.engine.parallel.gathers import all_gather_p, all_to_all_p, ppermute_p, psum_scatter_p
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import mesh_in_scope
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.lax.named_axes import AxisName, apply_over_axes, axis_groups_of, map_leaves, mark_invariant, named_axes
from fxgrad.numpy.arithmetic import add, divide, multiply


def pcast(x: Any, axis_name: AxisName, *, to: str) -> Any:
    """Return `x` with a type that varies along the mesh axes `axis_name` (`to="varying"`).

    It is for code within `shard_map`, where operations cast automatically: a loop may need it for its initial zeros;
    and a gradient of the result is that of each device's own value. Raises `ArgumentError` for another `to`, and for an
    axis that is not in scope.

    >>> import numpy as np, fxgrad
    >>> from jax.sharding import AbstractMesh, PartitionSpec as P
    >>> def local_slope(w, x):
    ...     return fxgrad.grad(lambda w: (w * x).sum())(pcast(w, "data", to="varying")).reshape(1)
    >>> fxgrad.shard_map(local_slope, mesh=AbstractMesh((2,), ("data",)), in_specs=(P(), P("data")),
    ...                  out_specs=P("data"))(2.0, np.arange(4.0))
    array([1., 5.])
    """
    axes = named_axes("pcast", axis_name)
    if to != "varying":
        raise ArgumentError(at_user_line(
            f"pcast: to={to!r}, where 'varying' is needed. What varies is made equal by psum, pmax and their like"))
    mesh = mesh_in_scope()
    names = [] if mesh is None else [name for name in axes if name in mesh.checked]
    return map_leaves("pcast", lambda leaf: pvary(leaf, names), x)


def psum(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Return the sum of `x` over all entries of a mapped axis, which is equal for all of them.

    With `axis_index_groups`, a list of lists of positions along the axis that contains each of them once, it is the sum
    over the entries of the same group. Bools are counted. For a constant it is the product with the number of entries;
    for a Python number, a Python number. Raises `ArgumentError` for an axis that is not in scope, and for groups that
    do not partition it.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda x: x / psum(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    array([0.25, 0.75])
    """
    axes = named_axes("psum", axis_name)
    groups, count = axis_groups_of("psum", axis_index_groups, axes, alike=False)

    def total(leaf: Any) -> Any:
        if count is not None and type(leaf) in PYTHON_SCALARS:
            return leaf * count
        leaf = require_array("psum", leaf)
        if aval_of(leaf).dtype.kind == "b":
            leaf = convert(leaf, dtypes.int32)
        if count is not None and type(leaf) is not Tracer and not is_jax(leaf):
            return multiply(leaf, count)
        return apply_over_axes(collective.psum_p, [leaf], axes, **groups)
    return tree.map(total, x)


def pmean(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Return the mean of `x` over all entries of a mapped axis, or of a group; for integers a float.

    Raises as `psum` does.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda x: x - pmean(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    array([-1.,  1.])
    """
    count: Any = psum(1, axis_name, axis_index_groups=axis_index_groups)
    return tree.map(lambda total: divide(total, count), psum(x, axis_name, axis_index_groups=axis_index_groups))


def pmax(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Return the greatest of `x` over all entries of a mapped axis; a NaN wins, but not among several CPU devices.

    XLA passes over NaNs there, as in jax. Its derivative, which jax lacks, is the mean of those of the entries that
    attain it, as for `max` of an array. Raises as `psum` does, and `DTypeError` for complex numbers.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda x: pmax(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    array([3., 3.])
    """
    return _extremum("pmax", pmax_p, x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Return the least of `x` over all entries of a mapped axis; otherwise like `pmax`.

    Raises as `pmax` does.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda x: pmin(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    array([1., 1.])
    """
    return _extremum("pmin", pmin_p, x, axis_name, axis_index_groups)


def _extremum(what: str, primitive: Primitive, x: Any, axis_name: AxisName, axis_index_groups: Any) -> Any:
    axes = named_axes(what, axis_name)
    groups, _ = axis_groups_of(what, axis_index_groups, axes, alike=False)
    return map_leaves(what, lambda leaf: apply_over_axes(primitive, [leaf], axes, **groups), x)


def ppermute(x: Any, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> Any:
    """Return the value of the entry that `perm` sends to this one; zeros if `perm` has no pair for it.

    `perm` is a sequence of pairs (source, target) of positions along the mapped axis, each of which may occur once as a
    source and once as a target. Over several axes of a mesh, positions count in the order of the mesh, as in jax,
    whatever the order of the names. Raises `ArgumentError` for other pairs and for an axis that is not in scope.

    >>> import numpy as np, fxgrad
    >>> shift = lambda x: ppermute(x, "i", [(0, 1), (1, 2)])
    >>> fxgrad.vmap(shift, axis_name="i")(np.array([1.0, 2.0, 3.0]))
    array([0., 1., 2.])
    """
    return _permute("ppermute", x, axis_name, perm)


def pshuffle(x: Any, axis_name: AxisName, perm: Sequence[int]) -> Any:
    """Return the value of the entry at `perm[i]`, for the entry at position i.

    Raises `ArgumentError` unless `perm` is a permutation of the positions.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda x: pshuffle(x, "i", [2, 0, 1]), axis_name="i")(np.array([1.0, 2.0, 3.0]))
    array([3., 1., 2.])
    """
    size = math.prod(named_axes("pshuffle", axis_name).values())
    order = [*perm] if isinstance(perm, Iterable) else []
    if len(order) != size or any(place not in order for place in range(size)):
        raise ArgumentError(at_user_line(f"pshuffle: perm={perm!r} is not a permutation of 0 to {size - 1}, the "
                                         f"positions along the axis {axis_name!r}"))
    return _permute("pshuffle", x, axis_name, [(source, target) for target, source in enumerate(order)])


def _permute(what: str, x: Any, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> Any:
    axes, mesh = named_axes(what, axis_name), mesh_in_scope()
    if mesh is not None and axes.keys() <= mesh.names:
        axes = {name: axes[name] for name in mesh.shape.names if name in axes}
    try:
        listed = [(source, target) for source, target in perm]
    except (TypeError, ValueError):
        raise ArgumentError(at_user_line(f"{what}: perm={perm!r}; pairs of positions (source, target) are needed")
                            ) from None
    pairs = tuple(sorted((as_integer(f"{what}: perm", source), as_integer(f"{what}: perm", target)) for source,
                         target in listed))
    return map_leaves(what, lambda leaf: apply_over_axes(ppermute_p, [leaf], axes, perm=pairs), x)


def pbroadcast(x: Any, axis_name: AxisName, source: int) -> Any:
    """Return the value of the entry at position `source`, for all entries of a mapped axis.

    Raises `ArgumentError` for a position that the axis does not have.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda x: pbroadcast(x, "i", 1), axis_name="i")(np.array([1.0, 2.0, 3.0]))
    array([2., 2., 2.])
    """
    count = math.prod(named_axes("pbroadcast", axis_name).values())
    position = as_integer("pbroadcast: source", source)
    if not 0 <= position < count:
        raise ArgumentError(at_user_line(f"pbroadcast: source={position} along the axis {axis_name!r} of size {count}; "
                                         f"a position from 0 to {count - 1} is needed"))

    def chosen(leaf: Any) -> Any:
        entries = all_gather(leaf, axis_name)
        return reshape(slice_in_dim(entries, position, position + 1, 0), aval_of(leaf).shape)
    return map_leaves("pbroadcast", chosen, x)


def all_gather(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False,
               to: str = "varying") -> Any:
    """Return the values of all entries of a mapped axis, equal for all of them.

    They are stacked along a new axis at `axis`, or with `tiled` concatenated along the existing one. Within
    `shard_map`, `to="invarying"` gives the result a type that does not vary along the axes of the mesh; otherwise a
    gradient of it is that of each device alone, and these are summed. Raises `ShapeError` for an axis that the array
    does not have, `ArgumentError` for another `to`, and as `psum` does.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda x: all_gather(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    array([[1., 3.],
           [1., 3.]])
    """
    axes = named_axes("all_gather", axis_name)
    if to not in ("varying", "invarying"):
        raise ArgumentError(at_user_line(f"all_gather: to={to!r}, where 'varying' or 'invarying' is needed"))
    if to == "invarying" and axis_index_groups is not None:
        raise ArgumentError(at_user_line(
            "all_gather: to='invarying' with axis_index_groups, of which each gets something else. Leave out one of "
            "the two"))
    groups, _ = axis_groups_of("all_gather", axis_index_groups, axes)

    def gathered(leaf: Any) -> Any:
        shape = aval_of(leaf).shape
        at = strict_axis_of("all_gather", axis, len(shape), len(shape) + (not tiled))
        leaf = leaf if tiled else reshape(leaf, (*shape[:at], 1, *shape[at:]))
        result = apply_over_axes(all_gather_p, [leaf], axes, axis=at, **groups)
        return mark_invariant(result, axes) if to == "invarying" else result
    return map_leaves("all_gather", gathered, x)


def psum_scatter(x: Any, axis_name: AxisName, *, scatter_dimension: int = 0, axis_index_groups: Any = None,
                 tiled: bool = False) -> Any:
    """Return the sum over all entries of a mapped axis, split along `scatter_dimension` into a piece for each of them.

    That axis of the array has the size of the mapped one and is removed, or with `tiled` is a multiple of it and stays.
    Raises `ShapeError` for other sizes, and as `psum` does.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda x: psum_scatter(x, "i"), axis_name="i")(np.array([[1.0, 3.0], [10.0, 30.0]]))
    array([11., 33.])
    """
    axes = named_axes("psum_scatter", axis_name)
    groups, count = axis_groups_of("psum_scatter", axis_index_groups, axes)

    def scattered(leaf: Any) -> Any:
        shape = aval_of(leaf).shape
        at = strict_axis_of("psum_scatter", scatter_dimension, len(shape))
        if not tiled:
            _check_one_each("psum_scatter", "scatter_dimension", shape, at, axes, count, groups)
        pieces = apply_over_axes(psum_scatter_p, [leaf], axes, axis=at, **groups)
        return pieces if tiled else reshape(pieces, (*shape[:at], *shape[at + 1:]))
    return map_leaves("psum_scatter", scattered, x)


def _check_one_each(what: str, argument: str, shape: Sequence[int], axis: int, axes: dict[str, int],
                    count: int | None, groups: dict[str, Any]) -> None:
    if shape[axis] != count:
        names = ", ".join(map(repr, axes))
        having = f"each of the axis_index_groups of the mapped axis {names}" if groups else f"the mapped axis {names}"
        raise ShapeError(at_user_line(
            f"{what}: {argument}={axis} of an array of shape {tuple(shape)} has size {shape[axis]}, and {having} has "
            f"size {count}. Equal sizes are needed; with tiled=True, a multiple"))


def all_to_all(x: Any, axis_name: AxisName, split_axis: int, concat_axis: int, *, axis_index_groups: Any = None,
               tiled: bool = False) -> Any:
    """Split `x` along `split_axis` into a piece for each entry, and join the received pieces along `concat_axis`.

    The split axis has the size of the mapped one and is removed, and the received pieces are stacked along a new axis;
    with `tiled` it is a multiple of it and stays, and the pieces are concatenated. Raises `ShapeError` for other sizes,
    and as `psum` does.

    >>> import numpy as np, fxgrad
    >>> swap = fxgrad.vmap(lambda row: all_to_all(row, "i", 0, 0), axis_name="i")
    >>> swap(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[1., 3.],
           [2., 4.]])
    """
    return _exchange("all_to_all", x, axis_name, split_axis, concat_axis, axis_index_groups, tiled)


def pswapaxes(x: Any, axis_name: AxisName, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Return `x` with a mapped axis and the axis `axis` of each entry, of the same size, in each other's place.

    Raises as `all_to_all` does.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda row: pswapaxes(row, "i", 0), axis_name="i")(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[1., 3.],
           [2., 4.]])
    """
    return _exchange("pswapaxes", x, axis_name, axis, axis, axis_index_groups, False)


def _exchange(what: str, x: Any, axis_name: AxisName, split_axis: int, concat_axis: int, axis_index_groups: Any,
              tiled: bool) -> Any:
    axes = named_axes(what, axis_name)
    groups, count = axis_groups_of(what, axis_index_groups, axes)

    def exchanged(leaf: Any) -> Any:
        shape = aval_of(leaf).shape
        cut, joined = (strict_axis_of(what, axis, len(shape)) for axis in (split_axis, concat_axis))
        if tiled:
            return apply_over_axes(all_to_all_p, [leaf], axes, split_axis=cut, concat_axis=joined, **groups)
        _check_one_each(what, "split_axis", shape, cut, axes, count, groups)
        # The position of the new axis after the split one is removed.
        joined, cut = (joined + 1, cut) if cut < joined else (joined, cut + 1)
        leaf = reshape(leaf, (*shape[:joined], 1, *shape[joined:]))
        pieces = apply_over_axes(all_to_all_p, [leaf], axes, split_axis=cut, concat_axis=joined, **groups)
        left = aval_of(pieces).shape
        return reshape(pieces, (*left[:cut], *left[cut + 1:]))
    return map_leaves(what, exchanged, x)


def axis_index(axis_name: AxisName) -> Any:
    """Return the position of each entry along a mapped axis, an int32 scalar.

    Raises `ArgumentError` for an axis that is not in scope.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda x: x * axis_index("i"), axis_name="i")(np.array([5.0, 5.0, 5.0]))
    array([ 0.,  5., 10.])
    """
    index: Any = None
    for name, size in named_axes("axis_index", axis_name).items():
        inner = apply_over_axes(axis_index_p, [], {name: size})
        index = inner if index is None else add(multiply(index, size), inner)
    return index


def axis_size(axis_name: AxisName) -> int:
    """Return the number of entries along a mapped axis, a Python integer.

    Raises `ArgumentError` for an axis that is not in scope.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda x: x / axis_size("i"), axis_name="i")(np.array([2.0, 4.0]))
    array([1., 2.])
    """
    return math.prod(named_axes("axis_size", axis_name).values())
