"""Between Python functions of containers and programs of flat lists: flatten, trace, name, rebuild."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import FunctionType, MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.arrays import Array
from fxgrad.engine.core.avals import Aval, array_aval, check_dtype, struct_aval, way_to_array, without_literals
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.program_properties import memoize
from fxgrad.engine.derivation.derive import Derived
from fxgrad.engine.derivation.effects import repeated_effect, without_forced_effects
from fxgrad.engine.tracing.provenance import note_returned
from fxgrad.engine.tracing.tape import Tape, current
from fxgrad.engine.tracing.trace import SELECTIVE, Mode, join_unchecked_vma, new_tape
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line, function_name, named_as
from fxgrad.errors import ArgumentError, UnsupportedError


def function_origin(function: Any) -> Any:
    """Return what distinguishes functions for interning: the code object, shared by re-created closures."""
    if type(function) is FunctionType and "__wrapped__" not in function.__dict__:
        return function.__code__
    innermost = inspect.unwrap(function) if hasattr(function, "__wrapped__") else function
    code = getattr(innermost, "__code__", None)
    return getattr(type(innermost).__call__, "__code__", None) if code is None and callable(innermost) else code


class Transformation(NamedTuple):
    """A transformed function: `what(function)`, in the arguments `argnums` if it has any."""

    what: str
    function: Any
    argnums: Any


_CONVERSIONS = frozenset({"from_jax", "to_jax"})
"""Conversions that change the callers of a function, not its results."""


def title_of(function: Any) -> str:
    """Return the title of the program of `function`: `grad(loss, [weights, bias])`, or its name.

    >>> import fxgrad
    >>> def loss(weights, bias, x):
    ...     return weights * x + bias
    >>> title_of(fxgrad.vmap(fxgrad.grad(loss, argnums=(0, 1))))
    'vmap(grad(loss, [weights, bias]))'
    """
    made = getattr(function, "transformed", None)
    # A third-party wrapper copied the attribute along with all others.
    if type(made) is not Transformation or getattr(function, "__wrapped__", None) is not made.function:
        return function_name(function)
    inner = title_of(made.function)
    if made.what in _CONVERSIONS:
        return inner
    if made.argnums is None or (type(made.argnums) is int and made.argnums == 0):
        return f"{made.what}({inner})"
    numbers = made.argnums if isinstance(made.argnums, Sequence) else [made.argnums]
    names = parameter_names(made.function, 1 + max([0, *numbers]))
    shown = ", ".join(names[number] if number >= 0 else str(number) for number in numbers)
    wrt = f"[{shown}]" if isinstance(made.argnums, Sequence) else shown
    return f"{made.what}({inner}, {wrt})"


def require_function(what: str, value: Any, arguments: str = "f)(x") -> None:
    """Raise `ArgumentError` unless `value` is callable; `arguments` are those of a right call of `what`."""
    if not callable(value):
        raise ArgumentError(at_user_line(
            f"{what} takes a function, got a {type(value).__name__}. Write {what}({arguments}), not {what}(f(x))"))


def transformation(what: str, function: Callable[..., Any], argnums: Any = None,
                   ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for the wrapper that `what(function)` returns: copy name, docstring and signature."""
    require_function(what, function)
    if argnums is not None:
        require_positions(what, "argnums", argnums)

    def decorate(wrapper: Callable[..., Any]) -> Callable[..., Any]:
        named_as(function)(wrapper)
        if isinstance(function, Program):
            wrapper.__name__ = wrapper.__qualname__ = function.signature.name if function.signature else "program"
        wrapper.transformed = Transformation(what, function, argnums)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def require_positions(what: str, option: str, given: Any) -> None:
    """Raise `ArgumentError` for an option that takes positions of arguments if it is an argument itself, or the like.

    The numbers in a sequence are looked at when the function is called.
    """
    if type(given) is int or isinstance(given, Sequence | np.integer):
        return
    shape = getattr(given, "shape", None)
    found = repr(given) if shape is None else f"an array of shape {shape}"
    raise ArgumentError(at_user_line(
        f"{what}: {option} is {found}, where an int or a sequence of ints is needed, such as (0, 1). Arguments are "
        f"given to the function that {what} returns: {what}(f)(x)"))


def leaf_aval(value: Any) -> Aval | None:
    """Return the type of an argument leaf: a tracer, an array or a number; None for anything else."""
    return value.variable.aval if type(value) is Tracer else array_aval(value)


def parameter_names(function: Any, count: int) -> list[str]:
    """Return the names of the first `count` positional parameters, for messages and programs."""
    names: list[str] = []
    try:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(parameter.name)
            elif parameter.kind is parameter.VAR_POSITIONAL:
                names.extend(f"{parameter.name}[{index}]" for index in range(count - len(names)))
    except (TypeError, ValueError):  # builtins have no signature, nor have ufuncs before version 2.4 of NumPy
        function = inspect.unwrap(function)
        if isinstance(function, np.ufunc):
            names = ["x"] if function.nin == 1 else [f"x{number + 1}" for number in range(function.nin)]
    names.extend(f"argument {index}" for index in range(len(names), count))
    return names[:count]


def keyword_names(function: Any) -> set[str]:
    """Return the names of the parameters that may be given either by position or by keyword."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set()  # builtins have no signature
    return {parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD}


def check_leaf(value: Any, what: str, where: Callable[[], str]) -> Aval:
    """Return the type of an argument leaf; raise `ArgumentError` naming it if it is no array and no number."""
    aval = leaf_aval(value)
    if aval is None:
        check_dtype(value, f"{what}: {where()}")
        raise ArgumentError(at_user_line(
            f"{what}: {where()} is a {type(value).__name__}, where an array or a number is needed. " + cure_of_leaf(
                value, "Pass it by closure (functools.partial), or leave it out of the arguments that are "
                "transformed", where())))
    return aval


def cure_of_leaf(value: Any, otherwise: str, name: str = "...") -> str:
    """Return what to write where `value`, called `name`, is a leaf and no array.

    A dataclass is registered, what NumPy makes an array of is converted, and for others it is `otherwise`.
    """
    if isinstance(value, type):
        return otherwise
    if dataclasses.is_dataclass(value):
        return ("A dataclass is a container if it is registered: write @fxgrad.tree_util.register_dataclass above "
                f"@dataclass of {type(value).__name__}")
    return way_to_array(value, name) or otherwise


def argument_aval(value: Any, what: str, where: Callable[[], str]) -> Aval:
    """Return the type of an argument leaf, which may also be a mere type such as a `ShapeDtypeStruct`."""
    return struct_aval(value) or leaf_aval(value) or struct_aval(as_struct(value)) or check_leaf(value, what, where)


def as_struct(value: Any) -> Any:
    """Return a `ShapeDtypeStruct` for an object with `shape` and `dtype` that cannot become an array.

    All other values are returned unchanged.
    """
    if isinstance(value, tree.ShapeDtypeStruct | Tracer | np.ndarray | np.generic) or hasattr(value, "__array__"):
        return value
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return value
    return tree.ShapeDtypeStruct(tuple(value.shape), value.dtype)


def nth_name(names: Callable[[], Sequence[str]], index: int) -> Callable[[], str]:
    """Return a function that returns one of `names`; the names are computed for messages only."""
    return lambda: names()[index]


def constant_name(name: str) -> Callable[[], str]:
    """Return a function that returns `name`."""
    return lambda: name


def note_result(result: Any) -> None:
    """Note what a transformed function returns to the user's line, if that is recorded in a displayed program."""
    note_returned(current.get(), lambda: [(tree.path_name(path, "result").removeprefix("result"), leaf)
                                          for path, leaf in tree.leaves_with_path(result)])


class TracedCall(NamedTuple):
    """A traced call: the program, the values of its captured inputs, and the tree of the output.

    `forced` holds the outputs of the first `computed` equations, which Python's control flow needed.
    """

    program: Program
    captured: list[Any]
    out_tree: TreeDef
    computed: int = 0
    forced: Sequence[Any] = ()

    def inputs(self, *leaves: Any) -> list[Any]:
        """Return the values of all inputs of the program, for a call with these `leaves`."""
        return [*plain_outside(self.captured), *leaves]

    def rebuild(self, outputs: Sequence[Any]) -> Any:
        """Return `outputs` in the container that the function returned."""
        result = tree.unflatten(self.out_tree, without_literals(outputs))
        note_result(result)
        return result

    def of_derived(self, derived: Derived, out_tree: TreeDef) -> TracedCall:
        """Return the trace of a function, given the program of it that was derived from this one."""
        program, captured = derived.program, [*derived.captured, *self.captured]
        if program.captured != len(captured):
            program = memoize(program, "with all captured inputs", lambda: program.replace(captured=len(captured)))
        return TracedCall(program, captured, out_tree)

    def wrt(self, inputs: bool | Sequence[bool] = True) -> tuple[bool, ...]:
        """Return a mask of the program's inputs to differentiate: no captured ones, and those that `inputs` marks."""
        explicit = len(self.program.inputs) - self.program.captured
        chosen = [inputs] * explicit if isinstance(inputs, bool) else inputs
        return (*[False] * self.program.captured, *chosen)


LEAF = tree.structure(0)


def plain_outside(values: Sequence[Any]) -> Sequence[Any]:
    """Return what a function closed over or made, as inputs of its program: outside of others, NumPy's own arrays.

    An `Array` among the inputs makes results `Array`s, and only an argument is to decide that.
    """
    if current.get() is not None:
        return values
    return [value.view(np.ndarray) if type(value) is Array else value for value in values]


def trace_flat(call: Callable[..., Any], in_avals: Sequence[Aval], what: str, function: Any, *,
               mode: Mode = SELECTIVE, values: Sequence[Any] | None = None,
               names: Callable[[], Sequence[str]] | None = None, **options: Any) -> TracedCall:
    """Trace `call`, which takes flat tracers and returns any container of arrays.

    `function` is the user's own, `what` the public name of the transformation, both for messages; `options` are those
    of `core.tape.new_tape`.
    """
    tape = new_tape(join_unchecked_vma(in_avals), mode=mode, values=values, name=function, input_names=names,
                    origin=function_origin(function), **options)
    return finish_trace(tape, *record_flat(tape, call, what, function))


def record_flat(tape: Tape, call: Callable[..., Any], what: str, function: Any) -> tuple[list[Any], TreeDef]:
    """Run `call`, as in `trace_flat`, on `tape`; return the leaves and the tree of the output."""
    output = tape.run(call, tree.flatten)
    if type(output) is Tracer:
        return [output], LEAF
    leaves, out_tree = output
    has_float0 = False
    for index, leaf in enumerate(leaves):
        if leaf_aval(leaf) is None:
            if getattr(leaf, "dtype", None) != dtypes.float0:
                _refuse_output(what, function_name(function), out_tree, index, leaf)
            leaves[index], has_float0 = NoValues(np.zeros(leaf.shape, bool)), True
    return tree.flatten(tree.unflatten(out_tree, leaves)) if has_float0 else (leaves, out_tree)


@tree.register_pytree_node_class
class NoValues:
    """An output of dtype float0 in the tree of a trace: a leaf of bools there, of dtype float0 where it is rebuilt.

    Programs have no float0. Bools have the same derivatives, none, and get the axes that `vmap` and `scan` add.
    """

    def __init__(self, bools: Any) -> None:
        self.bools = bools

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self.bools,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any]) -> Any:
        bools = children[0]
        if isinstance(bools, tree.ShapeDtypeStruct):
            return tree.ShapeDtypeStruct(bools.shape, dtypes.float0)
        # Names of leaves, and other marks, have no shape.
        return np.zeros(bools.shape, dtypes.float0) if hasattr(bools, "shape") else cls(bools)


def finish_trace(tape: Tape, leaves: Sequence[Any], out_tree: TreeDef) -> TracedCall:
    """Return the trace of a call that was recorded and has returned `leaves`."""
    program = tape.finish(leaves)
    computed, forced = tape.forced()
    if computed:
        program, computed = without_forced_effects(program, computed)
    return TracedCall(program, tape.captured, out_tree, computed, forced)


def refuse_repeated_effects(traced: TracedCall, what: str) -> None:
    """Raise `UnsupportedError` if forcing ran an operation with effects that `what` would run again for its result."""
    repeated = repeated_effect(traced.program, traced.computed)
    if repeated is not None:
        raise UnsupportedError(at_user_line(
            f"Python's control flow asks for a value inside of {what}, which runs {repeated.primitive}; {what} would "
            f"run it a second time. Call it outside of {what}, or use fxgrad.lax.cond"))


def _refuse_output(what: str, name: str, structure: TreeDef, index: int, leaf: Any) -> None:
    names = tree.leaf_names(tree.unflatten(structure, range(structure.num_leaves)), "output")
    if isinstance(leaf, np.ndarray | np.generic):
        check_dtype(leaf, f"{what}: {names[index]} of {name}")
    raise ArgumentError(at_user_line(
        f"{what}: {name} returned a {type(leaf).__name__} at {names[index]}, where an array or a number is needed. "
        + cure_of_leaf(leaf, "Return it with has_aux=True, or not at all" if what in _WITH_AUX else "Leave it out")))


_WITH_AUX = frozenset({"grad", "value_and_grad", "vjp", "jvp", "linearize", "jacfwd", "jacrev", "jacobian",
                       "value_and_jacobian", "hessian"})
"""Transformations of functions that may return auxiliary output."""


def insert_static(args: Sequence[Any], static: Container[int], dynamic: Iterable[Any]) -> list[Any]:
    """Return `args` with the values of `dynamic`, in order, in all positions but the `static` ones."""
    remaining = iter(dynamic)
    return [arg if position in static else next(remaining) for position, arg in enumerate(args)]


def argument_leaf_names(function: Any, args: Sequence[Any], positions: Sequence[int] | None = None,
                        kwargs: Mapping[str, Any] = MappingProxyType({})) -> Callable[[], list[str]]:
    """Return a function that returns the leaf names of the positional `args`, such as `params.W[0]`.

    Those of `kwargs` follow, sorted by the keywords.
    """
    def names() -> list[str]:
        roots = parameter_names(function, len(args))
        chosen = range(len(args)) if positions is None else positions
        named = [*((roots[position], args[position]) for position in chosen), *sorted(kwargs.items())]
        return [name for root, value in named for name in tree.leaf_names(value, root)]
    return names


def broadcast_prefix(prefix: Any, value: Any) -> list[Any] | None:
    """Return the entry of `prefix` for each leaf of `value`; None if `prefix` is no prefix of its container."""
    try:
        spread = tree.map(lambda one, part: [one] * len(tree.leaves(part)), prefix, value, is_leaf=tree.is_none)
    except (ValueError, TypeError):
        return None
    leaves: list[Any] = tree.leaves(spread, is_leaf=tree.is_none)
    return leaves
