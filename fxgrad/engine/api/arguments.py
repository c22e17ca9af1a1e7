"""Arguments of transformations: `argnums`, differentiable leaves, auxiliary output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import jax
import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.arrays import Array, as_numpy, origin_of
from fxgrad.engine.core.avals import PYTHON_SCALARS, Aval, array_aval
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.executors.platforms import default_device
from fxgrad.engine.frontend.flat import (
    argument_leaf_names,
    check_leaf,
    cure_of_leaf,
    leaf_aval,
    nth_name,
    require_positions,
    transformation,
)
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.tracing.trace import is_tracing
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, DTypeError, TreeError

Argnums = int | Sequence[int]


ONE_LEAF = tree.structure((0,))
_INTEGERS = int, np.integer
_LEAVES = frozenset({np.ndarray, float, np.float64, np.float32, Tracer})
"""Types that are pytree leaves, never containers."""


class Selected:
    """The arguments that `argnums` selects: their leaves, and how to rebuild a call with new leaves."""

    __slots__ = ("_args", "_function", "leaves", "positions", "single", "structure")

    def __init__(self, leaves: list[Any], structure: TreeDef, positions: tuple[int, ...], single: bool,
                 function: Any, args: tuple[Any, ...]) -> None:
        self.leaves, self.structure = leaves, structure
        self.positions, self.single = positions, single
        self._function, self._args = function, args

    def names(self) -> list[str]:
        """Return the names of the leaves, for messages."""
        return argument_leaf_names(self._function, self._args, self.positions)()

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """Return the leaves in the structure that `argnums` selects: one argument, or a tuple of them."""
        if self.single and self.structure is ONE_LEAF:
            return leaves[0]
        arguments = tree.unflatten(self.structure, leaves)
        return arguments[0] if self.single else arguments


def select_arguments(what: str, function: Any, argnums: Argnums, args: tuple[Any, ...]) -> Selected:
    """Return the leaves of the arguments at `argnums`; raise `ArgumentError` if there are no such arguments."""
    if type(argnums) is int and 0 <= argnums < len(args):  # by far the most frequent case
        arg = args[argnums]
        if type(arg) in _LEAVES:
            return Selected([arg], ONE_LEAF, (argnums,), True, function, args)
        leaves, structure = tree.flatten((arg,))
        return Selected(leaves, structure, (argnums,), True, function, args)
    require_positions(what, "argnums", argnums)
    single = isinstance(argnums, _INTEGERS)
    numbers = (argnums,) if single else tuple(argnums)  # type: ignore[arg-type]
    positions = tuple([_positive_position(what, function, number, len(args)) for number in numbers])
    if not positions or len(set(positions)) != len(positions):
        raise ArgumentError(at_user_line(
            f"{what}: argnums={argnums!r}, where one or more distinct positions are needed"))
    leaves, structure = tree.flatten(tuple([args[position] for position in positions]))
    return Selected(leaves, structure, positions, single, function, args)


def _positive_position(what: str, function: Any, number: Any, count: int) -> int:
    if not isinstance(number, _INTEGERS) or isinstance(number, bool):
        raise ArgumentError(at_user_line(
            f"{what}: argnums holds {number!r}, where positions of arguments (ints) are needed, such as (0, 1)"))
    if not -count <= number < count:
        raise ArgumentError(at_user_line(
            f"{what}: argnums={int(number)}, and {function_name(function)} was called with {count} positional "
            f"argument{'s' * (count != 1)}. Arguments given by keyword are not differentiated: pass them by position"))
    return int(number) % count


def check_chunk_size(what: str, chunk_size: Any) -> None:
    """Raise `ArgumentError` unless `chunk_size` is None or a positive integer."""
    if chunk_size is not None and (not isinstance(chunk_size, _INTEGERS) or isinstance(chunk_size, bool)
                                   or chunk_size < 1):
        raise ArgumentError(at_user_line(f"{what}: chunk_size={chunk_size!r}; it must be an int, at least 1, or None"))


def static_positions(static_argnums: int | Sequence[int], count: int) -> set[int]:
    """Return the non-negative positions of static arguments; raise `ArgumentError` for a position out of range."""
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    for number in numbers:
        if not -count <= number < count:
            raise ArgumentError(at_user_line(
                f"static_argnums={number}, and the function was called with {count} positional "
                f"argument{'s' * (count != 1)}"))
    return {number % count for number in numbers}


def bind_selected(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], selected: Selected,
                  ) -> Callable[..., Any]:
    """Return `function` as a function of the flat leaves of the selected arguments; all other arguments are fixed."""
    # The most frequent case, worth a microsecond less on every call.
    if selected.structure is ONE_LEAF and selected.positions == (0,):
        if len(args) == 1 and not kwargs:
            return function
        others, kwargs = _as_arrays(args[1:], kwargs)
        return lambda leaf: function(leaf, *others, **kwargs)
    count = len(selected.positions)
    if selected.positions == tuple(range(count)):
        others, kwargs = _as_arrays(args[count:], kwargs)
        return lambda *leaves: function(*tree.unflatten(selected.structure, leaves), *others, **kwargs)

    def call(*leaves: Any) -> Any:
        arguments = [arg if position in selected.positions else as_array_tree(arg) for position, arg in enumerate(args)]
        for position, value in zip(selected.positions, tree.unflatten(selected.structure, leaves), strict=True):
            arguments[position] = value
        return function(*arguments, **{name: as_array_tree(value) for name, value in kwargs.items()})
    return call


def _as_arrays(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as arrays; the most frequent case makes no further call."""
    others = [arg.view(Array) if type(arg) is np.ndarray else as_array_tree(arg) for arg in args]
    return others, {name: as_array_tree(value) for name, value in kwargs.items()} if kwargs else kwargs


_CONTAINERS = frozenset({dict, list, tuple})


def as_array_tree(value: Any) -> Any:
    """Return `as_known(value)`, applied to each array in Python containers."""
    return tree.map(as_known, value) if type(value) in _CONTAINERS else as_known(value)


def as_known(value: Any) -> Any:
    """Return an argument that is neither differentiated nor mapped as an `Array`: NumPy's, or jax's on the default CPU.

    That of jax's shares its memory, is read-only, and is jax's array again where it meets a traced one (`origin_of`).
    Weakly typed ones, keys, deleted arrays and those of other devices are unchanged, as is everything else.
    """
    if type(value) is np.ndarray:
        return value.view(Array)
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer) or not _is_known(value):
        return value
    array = np.asarray(value).view(Array)
    array.origin = value
    return array


def _is_known(value: Any) -> bool:
    devices, default = value.sharding.device_set, default_device()
    return (default.platform == "cpu" and len(devices) == 1 and default in devices
            and isinstance(value.dtype, np.dtype) and not value.weak_type and not value.is_deleted())


def like_given(results: Any, given: Iterable[Any]) -> Any:
    """Return a container of results, in which `Array`s are NumPy's own arrays and scalars unless one is `given`.

    Operations on NumPy's arrays make `Array`s; a transformation returns what it takes.
    """
    if any(isinstance(each, Array) for each in given):
        return results
    return tree.map(lambda each: np.asarray(each)[()] if type(each) is Array else each, results)


def leaf_avals(what: str, selected: Selected) -> list[Aval]:
    """Return the types of the selected leaves; raise `ArgumentError` for a leaf that is no array and no number."""
    avals: list[Aval] = []
    for leaf in selected.leaves:
        aval = array_aval(leaf) if type(leaf) is np.ndarray else leaf_aval(leaf)
        avals.append(aval or check_leaf(leaf, what, nth_name(selected.names, len(avals))))
    return avals


def check_differentiable(what: str, selected: Selected, avals: Sequence[Aval], *, holomorphic: bool = False,
                         allow_int: bool | None = None) -> None:
    """Raise `DTypeError` for leaves of a dtype that cannot be differentiated under these options.

    `allow_int` is None where the transformation has no such option.
    """
    for index, aval in enumerate(avals):
        kind = aval.dtype.kind
        if kind == "f" and not holomorphic:
            continue
        if holomorphic and kind != "c":
            raise DTypeError(at_user_line(
                f"{what} with holomorphic=True needs complex arguments, and {selected.names()[index]} is {aval}. "
                f"Convert it, x.astype('complex64'), or leave out holomorphic=True"))
        if dtypes.is_key(aval.dtype) and not allow_int:
            raise DTypeError(at_user_line(
                f"{what} needs floating-point arguments, and {selected.names()[index]} is {aval}: random keys have no "
                "derivatives. Leave it out of argnums"))
        if kind in "biu" and not allow_int and not dtypes.is_inexact(aval.dtype):
            leave_out = ("or leave it out of argnums" if allow_int is None else
                         "leave it out of argnums, or pass allow_int=True for a gradient of dtype float0")
            raise DTypeError(at_user_line(
                f"{what} needs floating-point arguments, and {selected.names()[index]} is {aval}. "
                f"Convert it, float(x) or x.astype('float32'), {leave_out}"))


def split_aux(what: str, function: Any, output: Any) -> tuple[Any, Any]:
    """Split the output of a function with has_aux=True; raise `ArgumentError` unless it is a pair."""
    if not isinstance(output, tuple) or len(output) != 2:
        raise ArgumentError(at_user_line(
            f"{what} with has_aux=True needs {function_name(function)} to return a pair (output, aux), "
            f"and it returned a {type(output).__name__}. Write return output, aux"))
    return output[0], output[1]


class Aux:
    """Auxiliary output of a traced function: its arrays become program outputs, all else is kept here.

    What is computed of known arrays alone is NumPy's, or jax's if all arrays `given` to the function are.
    """

    __slots__ = ("_leaves", "_structure", "out_tree")

    out_tree: TreeDef
    """The tree of the main output."""

    def apart(self, what: str, function: Any, call: Callable[..., Any], given: Any) -> Callable[..., Any]:
        """Wrap `call`, a call of `function`: append the traced leaves of the auxiliary output to the main output."""
        def with_auxiliary(*leaves: Any) -> Any:
            output, aux = split_aux(what, function, call(*leaves))
            self.out_tree = tree.structure(output)
            extra, self._structure = tree.flatten(aux)
            _refuse_hidden_tracers(what, function, aux, extra)
            plain = _as_jax if any(type(leaf) is Array for leaf in extra) and _are_jax(given) else as_numpy
            self._leaves = [_TRACED if type(leaf) is Tracer else plain(origin_of(leaf)) for leaf in extra]
            return output, [leaf for leaf in extra if type(leaf) is Tracer]
        return with_auxiliary

    def restore(self, values: Sequence[Any]) -> Any:
        """Return the auxiliary output with `values` in place of its traced leaves."""
        remaining = iter(values)
        return tree.unflatten(self._structure, [next(remaining) if leaf is _TRACED else leaf for leaf in self._leaves])


def _are_jax(given: Any) -> bool:
    """Return whether a container has arrays, and all of them are jax's."""
    arrays = [origin_of(leaf) for leaf in tree.leaves(given) if isinstance(leaf, np.ndarray | jax.Array)]
    return bool(arrays) and all(isinstance(array, jax.Array) for array in arrays)


def _as_jax(leaf: Any) -> Any:
    """Return an `Array` as jax's, or as NumPy's if jax does not have its dtype; anything else as it is."""
    if type(leaf) is Array and jax.dtypes.canonicalize_dtype(leaf.dtype) == leaf.dtype:
        return jax.numpy.asarray(leaf)
    return as_numpy(leaf)


_TRACED = object()
_PARTS = 200
"""The most parts of an object that are looked at for a tracer, the nearest first."""


def _refuse_hidden_tracers(what: str, function: Any, aux: Any, leaves: Sequence[Any]) -> None:
    """Raise `ArgumentError` for a leaf of the auxiliary output that is an object with a value traced here in it.

    It would leak: only leaves that are traced themselves are replaced by their values.
    """
    tape = current.get()
    for index, leaf in enumerate(leaves):
        path = None if leaf_aval(leaf) is not None else _path_to_tracer(leaf, tape)
        if path is not None:
            name = tree.leaf_names(aux, "aux")[index]
            raise ArgumentError(at_user_line(
                f"{what}: {function_name(function)} returned a {type(leaf).__name__} at {name}, whose value "
                f"{name}{path} is traced and not known when the function has returned. " + cure_of_leaf(
                    leaf, f"Return the value itself in aux, or make {type(leaf).__name__} a container: "
                    "fxgrad.tree_util.register_pytree_node")))


def _path_to_tracer(value: Any, tape: Any) -> str | None:
    """Return where a tracer of `tape` is in the attributes and items of `value`; None if none is found."""
    seen: set[int] = set()
    pending = [("", value)]
    for path, part in pending:  # which grows
        if type(part) is Tracer and part.tape is tape:
            return path
        if id(part) in seen or isinstance(part, type | ModuleType | FunctionType | str) or leaf_aval(part) is not None:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            pending += [(f"{path}[{key!r}]", item) for key, item in islice(part.items(), _PARTS)]
        elif isinstance(part, list | tuple):
            pending += [(f"{path}[{index}]", item) for index, item in enumerate(part[:_PARTS])]
        slots = [name for owner in type(part).__mro__ for name, member in vars(owner).items()
                 if type(member) is MemberDescriptorType]
        attributes = {name: getattr(part, name, None) for name in slots} | getattr(part, "__dict__", {})
        pending += [(f"{path}.{name}", item) for name, item in attributes.items()]
        del pending[_PARTS:]
    return None


def match_trees(what: str, expected_name: str, expected: TreeDef, given_name: str, given: Any) -> list[Any]:
    """Return the leaves of `given`; raise `TreeError` unless its structure is `expected`."""
    leaves, structure = tree.flatten(given)
    if structure != expected and structure != _rebuilt(expected):
        raise TreeError(at_user_line(
            f"{what}: {given_name} must be a container like {expected_name}; {expected_name} has the structure "
            f"{expected}, and {given_name} has {structure}"))
    return leaves


def _rebuilt(structure: TreeDef) -> TreeDef:
    """Return the structure of what users receive: outputs of dtype float0 are leaves there."""
    return tree.structure(tree.unflatten(structure, [np.zeros(())] * structure.num_leaves))


def tangent_leaf(what: str, value: Any, aval: Aval, where: Callable[[], str], kind: str = "tangent",
                 whole: bool = False) -> Any:
    """Convert a tangent or cotangent from the user to a value of its primal's type, or to a `Zero`.

    A Python number takes on the dtype, except that a complex number does not fit a real primal. An array must have the
    dtype and the shape; if the primal is a Python number, any dtype of the same kind fits. For an integer primal only
    float0 or a zero-like value is valid, and it becomes a `Zero`, unless `whole` is set: then integers have tangents
    too.
    """
    if aval.dtype.kind == "b" or not (whole or dtypes.is_inexact(aval.dtype)):
        shape = getattr(value, "shape", aval.shape)
        if shape != aval.shape:
            raise ArgumentError(at_user_line(
                f"{what}: the {kind} of {where()} has the shape {shape}, and the primal is {aval.strong()}, which has "
                f"no {kind} but zero. Write np.zeros({aval.shape}, fxgrad.dtypes.float0)"))
        return Zero(aval)
    loses_a_part = isinstance(value, complex | np.complexfloating) and not dtypes.is_complex(aval.dtype)
    if type(value) in PYTHON_SCALARS and not aval.shape and not loses_a_part:
        number = np.asarray(value, aval.dtype)
        return number[()] if aval.weak or not is_tracing() else number  # a tape would take NumPy's scalar as weak
    given = check_leaf(value, what, where)
    gives_way = (given.weak and not loses_a_part) or (
        aval.weak and dtypes.is_inexact(given.dtype)
        and dtypes.is_complex(given.dtype) == dtypes.is_complex(aval.dtype))
    if given.shape != aval.shape or (given.dtype != aval.dtype and not gives_way):
        raise ArgumentError(at_user_line(
            f"{what}: the {kind} of {where()} is {given.strong()}, and the primal is {aval.strong()}; "
            "shape and dtype must be equal. Write t.astype(x.dtype), or np.broadcast_to(t, x.shape)"))
    is_weak_number = given.weak and not aval.weak and not given.shape and is_tracing()
    return convert(value, aval.dtype) if given.dtype != aval.dtype or is_weak_number else value


def gradient_leaf(value: Any, aval: Aval) -> Any:
    """Return a gradient as the user receives it: float0 zeros for integer arguments."""
    return value if dtypes.is_inexact(aval.dtype) else np.zeros(aval.shape, dtypes.float0)


__all__ = ["Argnums", "Aux", "Selected", "bind_selected", "check_differentiable", "gradient_leaf", "leaf_avals",
           "match_trees", "require_positions", "select_arguments", "static_positions", "tangent_leaf", "transformation",
           "split_aux"]
