"""Functions of users applied to parts of arrays: vectorize, piecewise, apply_along_axis and their relatives."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.arrays import wrap_array
from fxgrad.engine.frontend.flat import trace_flat
from fxgrad.engine.frontend.operands import (
    WEAK_SCALARS,
    as_array_operand,
    as_dtype,
    axis_of,
    common_shape,
    constant_array,
    shape_of,
)
from fxgrad.engine.frontend.ufuncs import Elementwise
from fxgrad.engine.ops.structural import broadcast_to, reshape
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.transforms.batch import batched_program
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.alike import full_like
from fxgrad.numpy.creation import asarray, astype
from fxgrad.numpy.grids import indices
from fxgrad.numpy.logic import where
from fxgrad.numpy.shaping import expand_dims, moveaxis

Function = Callable[..., Any]


def _map_function(what: str, function: Function, user: Function, size: int, axes: Sequence[int | None]) -> Function:
    """Return the function mapped over the first axis of those arguments whose axis is not None."""
    def call(*args: Any) -> Any:
        given = [arg for arg, axis in zip(args, axes, strict=True) if axis is not None]
        entries = [aval_of(arg) for arg in given]

        def one(*tracers: Any) -> Any:
            rest = iter(tracers)
            return function(*(arg if axis is None else next(rest) for arg, axis in zip(args, axes, strict=True)))

        traced = trace_flat(one, [aval.without_axis(0) for aval in entries], what, user)
        derived = batched_program(traced.program, size, (*[None] * traced.program.captured, *[0] * len(given)))
        outputs = apply_program(derived.program, [*derived.captured, *traced.captured, *given])
        return tree.unflatten(traced.out_tree, outputs)
    return call


def _over(what: str, function: Function, user: Function, loop: tuple[int, ...], args: Sequence[Any],
          cores: Sequence[int]) -> Any:
    """Apply the function at every index of the axes `loop`, to which the axes before the core axes broadcast."""
    used: list[Any] = []
    shapes = []
    for arg, core in zip(args, cores, strict=True):
        shape = shape_of(arg)
        outer = shape[:len(shape) - core]
        shapes.append((1,) * (len(loop) - len(outer)) + outer)
        # Axes that are not there, or of size 1 among larger ones, are not mapped.
        mapped = tuple(size for size, wanted in zip(shapes[-1], loop, strict=True) if size == wanted != 1)
        used.append(reshape(arg, mapped + shape[len(shape) - core:]))
    for at in reversed(range(len(loop))):
        if loop[at] == 1:
            continue
        function = _map_function(what, function, user, loop[at],
                                 [0 if shape[at] == loop[at] else None for shape in shapes])
    results = function(*used)
    return tree.map(lambda leaf: reshape(leaf, loop + shape_of(leaf)[len([size for size in loop if size != 1]):]),
                    results)


_NAME = r"\w+(?:,\w+)*,?|"
_SIGNATURE = re.compile(rf"^\((?:{_NAME})\)(?:,\((?:{_NAME})\))*->\((?:{_NAME})\)(?:,\((?:{_NAME})\))*$")


def _parse_signature(signature: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the names of the core axes of each argument and result."""
    text = signature.replace(" ", "")
    if not _SIGNATURE.match(text):
        raise ArgumentError(at_user_line(f"vectorize: {signature!r} is no signature; one reads '(m,n),(n)->(m)'"))
    sides = [[tuple(name for name in part.split(",") if name) for part in re.findall(r"\(([^)]*)\)", side)]
             for side in text.split("->")]
    return sides[0], sides[1]


def vectorize(pyfunc: Function, *, otypes: str | Sequence[Any] | None = None,
              excluded: Collection[int | str] = frozenset(), signature: str | None = None) -> Function:
    """Return a function that applies `pyfunc`, a function of numbers, to every element of its broadcast arguments.

    With a `signature` such as `"(n),(n)->()"`, `pyfunc` takes arrays with that many axes; axes of equal names have
    equal sizes. `excluded` are the positions and names of arguments passed on unchanged; other keyword arguments are
    mapped too. `otypes` are the dtypes of the results. The function is traced once, not called for each element.
    Raises `ArgumentError`, `ShapeError`.

    >>> product = vectorize(lambda a, b: np.sum(a * b), signature="(n),(n)->()")
    >>> product(np.ones((2, 3)), np.array([1.0, 2.0, 3.0]))
    array([6., 6.])
    """
    parsed = None if signature is None else _parse_signature(signature)

    @functools.wraps(pyfunc)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        named = {key: value for key, value in kwargs.items() if key not in excluded}
        fixed = {key: value for key, value in kwargs.items() if key in excluded}
        if parsed is not None and named:
            raise ArgumentError(at_user_line("vectorize: with a signature, arguments are given by position, not by the "
                                             f"names {', '.join(named)}"))
        open_places = [place for place in range(len(args)) if place not in excluded]
        values = [value if type(value) in WEAK_SCALARS else asarray(value)
                  for value in ([args[place] for place in open_places] + [*named.values()])]

        def call(*entries: Any) -> Any:
            given = list(args)
            for place, entry in zip(open_places, entries, strict=False):
                given[place] = entry
            return pyfunc(*given, **fixed, **dict(zip(named, entries[len(open_places):], strict=True)))

        cores = [()] * len(values) if parsed is None else parsed[0]
        if len(cores) != len(values):
            raise ArgumentError(at_user_line(f"vectorize: signature {signature!r} has {len(cores)} arguments, got "
                                             f"{len(values)}"))
        sizes = _core_sizes(cores, values)
        loop = common_shape("vectorize", *(shape_of(value)[:len(shape_of(value)) - len(core)]
                                           for value, core in zip(values, cores, strict=True)))
        checked = call if parsed is None else _check_function(call, parsed[1], sizes, signature)
        results = _over("vectorize", checked, pyfunc, loop, values, [len(core) for core in cores])
        if otypes is None:
            return results
        leaves, structure = tree.flatten(results)
        if len(leaves) != len(otypes):
            raise ArgumentError(at_user_line(f"vectorize: otypes has {len(otypes)} dtypes, and {function_name(pyfunc)} "
                                             f"returns {len(leaves)} arrays; one for each is needed"))
        return tree.unflatten(structure, [*map(astype, leaves, otypes)])
    return mapped


def fromfunction(function: Function, shape: Any, *, dtype: Any = None, **kwargs: Any) -> Any:
    """Return the results of a function of the position along each axis, for all elements of an array of a shape.

    The function gets numbers, as in jax: it is mapped over the positions, and traced once. Axes of its results follow
    those of `shape`. `kwargs` are passed on unchanged. Raises `ArgumentError` for a shape that is no sequence of
    integers.

    >>> fromfunction(lambda row, column: row + 10 * column, (2, 2), dtype=int)
    array([[ 0, 10],
           [ 1, 11]])
    """
    places = map(wrap_array, indices(shape, dtypes.default_float() if dtype is None else dtype, sparse=True))
    return vectorize(functools.partial(function, **kwargs))(*places)


def _core_sizes(cores: Sequence[tuple[str, ...]], values: Sequence[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for number, (core, value) in enumerate(zip(cores, values, strict=True)):
        shape = shape_of(value)
        if len(shape) < len(core):
            raise ShapeError(at_user_line(f"vectorize: argument {number} of shape {shape}; the signature wants "
                                          f"{len(core)} axes ({', '.join(core)})"))
        for name, size in zip(core, shape[len(shape) - len(core):], strict=True):
            if sizes.setdefault(name, size) != size:
                raise ShapeError(at_user_line(f"vectorize: axis {name} has size {sizes[name]} in one argument, "
                                              f"and {size} in argument {number}"))
    return sizes


def _check_function(function: Function, cores: Sequence[tuple[str, ...]], sizes: dict[str, int],
                    signature: Any) -> Function:
    def call(*args: Any) -> Any:
        results = function(*args)
        parts = results if isinstance(results, tuple) else (results,)
        if len(parts) != len(cores):
            raise ArgumentError(at_user_line(f"vectorize: signature {signature!r} has {len(cores)} results, the "
                                             f"function returned {len(parts)}"))
        known = dict(sizes)
        for part, core in zip(parts, cores, strict=True):
            shape = shape_of(as_array_operand(part))
            if len(shape) != len(core) or any(known.setdefault(name, size) != size
                                              for name, size in zip(core, shape, strict=True)):
                raise ShapeError(at_user_line(f"vectorize: the function returned an array of shape {shape} for "
                                              f"({','.join(core)}) with {known}"))
        return results
    return call


def frompyfunc(func: Function, /, nin: int, nout: int, *, identity: Any = None) -> Elementwise:
    """Return a function of numbers as an elementwise function with NumPy's broadcasting, like `vectorize`.

    >>> frompyfunc(lambda x, y: x * y, 2, 1)([1.0, 2.0], 3.0)
    array([3., 6.], dtype=float32)
    """
    return Elementwise(vectorize(func), getattr(func, "__name__", "function"), nin, func.__doc__ or "", __name__, True,
                       nout, identity)


def apply_along_axis(func1d: Function, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the results of a function of vectors, applied along `axis`; their axes replace it.

    Other arguments are passed on. The function is traced once.

    >>> apply_along_axis(np.sum, 0, [[1.0, 2.0], [3.0, 4.0]])
    array([4., 6.])
    """
    arr = as_array_operand(arr)
    at = axis_of("apply_along_axis", axis, len(shape_of(arr)))
    moved = moveaxis(arr, at, -1)
    loop = shape_of(moved)[:-1]
    result = _over("apply_along_axis", lambda x: asarray(func1d(x, *args, **kwargs)), func1d, loop, [moved], [1])
    rank = len(shape_of(result)) - len(loop)
    return moveaxis(result, tuple(range(len(loop), len(loop) + rank)), tuple(range(at, at + rank)))


def apply_over_axes(func: Function, a: Any, axes: int | Sequence[int]) -> Any:
    """Return the result of `func(a, axis)` over several axes, one after the other; each is kept, of size 1.

    >>> apply_over_axes(np.sum, [[1.0, 2.0], [3.0, 4.0]], [0, 1])
    array([[10.]])
    """
    result = as_array_operand(a)
    rank = len(shape_of(result))
    for axis in (axes if isinstance(axes, Sequence) else [axes]):
        at = axis_of("apply_over_axes", axis, rank)
        reduced = func(result, at)
        result = reduced if len(shape_of(reduced)) == rank else expand_dims(reduced, at)
        if len(shape_of(result)) != rank:
            raise ShapeError(at_user_line("apply_over_axes: the function must take away the axis, or leave it with "
                                          f"size 1; it returned shape {shape_of(reduced)}"))
    return result


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """Return for each element the value of the function (or the number) of the last condition true there.

    An additional last function is for all other elements, which are otherwise 0. All functions are computed everywhere,
    in the dtype of `x`; other arguments are passed on to them. Raises `ArgumentError` for other numbers of functions.

    >>> piecewise(np.array([-1.0, 2.0]), [np.array([True, False])], [0.0, lambda v: v * v])
    array([0., 4.])
    """
    x = as_array_operand(x)
    if not isinstance(condlist, list | tuple) or not len(condlist) or (
            not isinstance(condlist[0], list | tuple) and not shape_of(condlist[0]) and shape_of(x)):
        condlist = [condlist]
    conditions = [broadcast_to(as_dtype(asarray(condition), np.bool_), shape_of(x)) for condition in condlist]
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise ArgumentError(at_user_line(f"piecewise: {len(functions)} functions for {len(conditions)} conditions; as "
                                         "many, or one more, are needed"))
    dtype = aval_of(x).dtype

    def value(function: Any) -> Any:
        result = function(x, *args, **kw) if callable(function) else full_like(x, function)
        return as_dtype(asarray(result), dtype)

    result = value(functions.pop()) if len(functions) > len(conditions) else constant_array(shape_of(x), 0, dtype)
    for condition, function in zip(conditions, functions, strict=True):
        result = where(condition, value(function), result)
    return result
