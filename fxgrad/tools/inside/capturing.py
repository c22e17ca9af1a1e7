"""`capture`, `replace`, `split`, `names`: inner values of a function by the names that its code gives them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fxgrad import custom_jvp, dtypes, jit, tree
from fxgrad import numpy as fnp
from fxgrad.errors import ArgumentError, ConcretizationError, DTypeError
from fxgrad.extend import (
    Atom,
    Aval,
    Program,
    Variable,
    at_user_line,
    aval_of,
    convert,
    hide_frames,
    leaf_aval,
    trace_program,
    transformation,
)
from fxgrad.extend.tracing import jit_options, static_positions
from fxgrad.tools.inside.opening import Action, Opened, Turn
from fxgrad.tools.inside.paths import Chosen, Values, choose, choose_to_change, values_of

Replacement = Any
"""An array or a number, or a function of the value that returns another one."""


class Traced(NamedTuple):
    """A call of a function: its program with the values inside, and the leaves of its arguments."""

    what: str
    program: Program
    values: Values
    leaves: list[Any]

    def chosen(self, paths: Sequence[str]) -> dict[str, Chosen]:
        """Return the values that paths stand for, by the keys of results."""
        return {each.key: each for path in paths for each in choose(self.what, path, self.values, self.program)}

    def run(self, opened: Opened, outputs: Sequence[Atom] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the result of the opened program, in the container of the function, and the values taken.

        Raises `ArgumentError` if Python's control flow would go another way with the replaced values.
        """
        signature = self.program.signature
        assert signature is not None
        path = signature.path
        if outputs is not None:
            return opened.run(self.leaves, outputs, everything=False)
        asked = [] if path is None else [*path.conditions.outputs]
        results, taken = opened.run(self.leaves, [*self.program.outputs, *asked])
        count = len(self.program.outputs)
        for found, known, place in zip(results[count:], () if path is None else path.values,
                                       () if path is None else path.places, strict=True):
            if not _is_equal(found, known):
                raise ArgumentError(at_user_line(
                    f"{self.what}: with the values put in, Python's control flow in {signature.name} goes another way "
                    f"at {place}. Write fxgrad.lax.cond there, or put in a value for which it goes the same way"))
        return tree.unflatten(signature.out_tree, results[:count]), taken


def _is_equal(found: Any, known: Any) -> bool:
    """Return whether a value is known, as those that are differentiated un-jitted are, and equal to another one."""
    try:
        return bool(fnp.shape(found) == np.shape(known) and fnp.all(found == known))
    except ConcretizationError:
        return False


def trace(what: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
          static: Sequence[int] = (), static_names: Sequence[str] = ()) -> Traced:
    """Trace a call as `make_program` does; arguments that are no arrays are passed as they are."""
    fixed = {*static, *(place for place, arg in enumerate(args) if not _is_traced(arg))}
    kept = {name: value for name, value in kwargs.items() if name in static_names or not _is_traced(value)}
    given = {name: value for name, value in kwargs.items() if name not in kept}
    called: Callable[..., Any] = functools.update_wrapper(functools.partial(fun, **kept), fun) if kept else fun
    program = trace_program(what, called, args, given, fixed, as_recorded=True)
    leaves = tree.leaves((tuple(arg for place, arg in enumerate(args) if place not in fixed), given))
    return Traced(what, program, values_of(program, _code_of(fun)), leaves)


def _is_traced(argument: Any) -> bool:
    return all(leaf_aval(leaf) is not None for leaf in tree.leaves(argument))


def _code_of(fun: Any) -> CodeType | None:
    """Return the code of the function that a transformed one was made from."""
    inner = inspect.unwrap(fun)
    inner = getattr(inner, "func", inner)
    code = getattr(inner, "__code__", None)
    if code is None:  # an object that can be called
        code = getattr(vars(type(inner)).get("__call__"), "__code__", None)
    return code if isinstance(code, CodeType) else None


def for_arguments(what: str, fun: Callable[..., Any], run: Callable[[Traced], Any],
                  changes: Mapping[str, Any] | None = MappingProxyType({})) -> Callable[..., Any]:
    """Return the function of the arguments of `fun` that traces it and returns what `run` makes of the trace.

    If `fun` is jitted, that is jitted with the same options but for `changes`; not if these are None.
    """
    jitted = jit_options(fun) if changes is not None else None
    if jitted is None:
        @transformation(what, fun)
        @hide_frames
        def transformed(*args: Any, **kwargs: Any) -> Any:
            return run(trace(what, fun, args, kwargs))
        return transformed
    inner, options = jitted
    numbers, names = options["static_argnums"], options["static_argnames"]
    known = [names] if isinstance(names, str) else [*(names or ())]

    @transformation(what, inner)
    @hide_frames
    def to_jit(*args: Any, **kwargs: Any) -> Any:
        static = () if numbers is None else static_positions(numbers, len(args))
        return run(trace(what, inner, args, kwargs, [*static], known))
    result: Callable[..., Any] = jit(to_jit, **{**options, "out_shardings": None, **(changes or {})})
    return result


def names(fun: Callable[..., Any]) -> Callable[..., Values]:
    """Return the function of the arguments of `fun` that lists the values inside that have names.

    It is a tuple of records with `path`, `aval` (the type of one value), `shape` (of all turns of the loops around, as
    it is captured) and `line`, and prints as a table. A path has the scopes (`fxgrad.named_scope`), functions, calls
    and loops around a value, then the name that its line assigns it to, an entry of a container as `pair[0]`. Equal
    paths are numbered: `h#0`, `h#1`. In programs of derivatives `d_h` is the cotangent of `h`, and `t_h` its tangent.

    >>> import numpy as np, fxgrad
    >>> def block(w, x):
    ...     h = np.tanh(x @ w)
    ...     return x + h
    >>> def model(ws, x):
    ...     for number, w in enumerate(ws):
    ...         with fxgrad.named_scope(f"block{number}"):
    ...             x = block(w, x)
    ...     loss = np.sum(x ** 2)
    ...     return loss
    >>> for value in fxgrad.names(model)([np.eye(2)] * 2, np.ones(2)):
    ...     print(value.path, value.aval)
    ws[0] f64[2,2]
    ws[1] f64[2,2]
    x f64[2]
    block0.block.h f64[2]
    block0.x f64[2]
    block1.block.h f64[2]
    block1.x f64[2]
    loss f64[]
    """
    @transformation("names", fun)
    @hide_frames
    def listed(*args: Any, **kwargs: Any) -> Values:
        jitted = jit_options(fun)
        traced = trace("names", fun if jitted is None else jitted[0], args, kwargs)
        return Values(value for value in traced.values if value.is_named)
    return listed


def capture(fun: Callable[..., Any], *paths: str) -> Callable[..., Any]:
    """Return the function that computes `(fun(...), values)`, where `values` has inner values of `fun` by their paths.

    A path is the name that a line of the code assigns a value to, after any of the words of scopes, functions, calls
    and loops around it, in their order: `"h"`, `"block3.h"`, `"encoder.attention.weights"`. `fxgrad.names(fun)(...)`
    lists all. Values in a `scan` are stacked along a new first axis, and `"scan[2].h"` is that of one turn. In a branch
    that is not taken a value is NaN. In a function on the devices of a mesh, values that differ have the devices first.
    A path that ends in a scope or a call is its result. `*` stands for any part of a word, `h#2` for the third value of
    that path, `h#*` for all. A path with these gives each value under its own full path.

    `fun` may be a transformed function: `capture(grad(f), "d_h")` has the gradient with respect to `h`, and
    `capture(vmap(f), "h")` its batch; a function of `capture` may itself be differentiated, batched and jitted. `fun`
    without `capture` is unchanged. A jitted function stays jitted.

    Raises `ArgumentError` for a path that stands for no value or for several, with the nearest ones, and
    `UnsupportedError` for values in loops whose number of turns depends on values.

    >>> import numpy as np, fxgrad
    >>> def model(w, x):
    ...     h = np.tanh(w * x)
    ...     return np.sum(h ** 2)
    >>> loss, values = fxgrad.capture(model, "h")(2.0, np.zeros(2))
    >>> float(loss), values["h"]
    (0.0, array([0., 0.]))
    """
    if not paths:
        raise ArgumentError(at_user_line('capture: no path is given. Write fxgrad.capture(f, "h"); fxgrad.names(f)'
                                         "(*args) lists the values that have names"))
    for path in paths:
        if leaf_aval(path) is not None:
            raise ArgumentError(at_user_line(
                f"capture: {leaf_aval(path)} is given, where a path is needed, such as \"encoder.h\". What capture "
                'returns takes the arguments: fxgrad.capture(f, "h")(x)'))

    def run(traced: Traced) -> tuple[Any, dict[str, Any]]:
        return traced.run(Opened("capture", traced.program, traced.chosen(paths)))
    return for_arguments("capture", fun, run)


def replace(fun: Callable[..., Any], replacements: Mapping[str, Replacement]) -> Callable[..., Any]:
    """Return `fun` computed with other inner values: `replacements` has a value or a function for each path.

    Paths are those of `capture`. A function takes the value and returns another one of its shape and dtype, or one of
    Python's numbers; an array has the shape of the value, or, for a value in a `scan`, that of all turns stacked; a
    number stands for an array of it. `"scan[2].h"` is replaced in that turn alone. Whatever is computed from the value
    takes the new one; derivatives flow into what replacements close over.

    Raises `ArgumentError` as `capture` does, for a replacement of another shape or dtype, and if Python's control flow
    would go another way with it.

    >>> import numpy as np, fxgrad
    >>> def model(x):
    ...     h = np.sin(x)
    ...     return h * 2.0
    >>> fxgrad.replace(model, {"h": lambda h: -h})(np.array([0.0, 1.0]))
    array([-0.        , -1.68294197])
    >>> fxgrad.replace(model, {"h": 1.0})(np.zeros(2))
    array([2., 2.])
    """
    if not isinstance(replacements, Mapping) or not replacements:
        raise ArgumentError(at_user_line(
            f'replace: a dict of paths and values or functions is needed, such as {{"h": 0.0}}; got {replacements!r}'))

    def run(traced: Traced) -> Any:
        return traced.run(_with_replacements("replace", traced, replacements))[0]
    return for_arguments("replace", fun, run)


def split(fun: Callable[..., Any], at: str | Sequence[str]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return `fun` cut at an inner value, as two functions: `head(*args)` is the value, `tail(value, *args)` the rest.

    `fun(*args)` is `tail(head(*args), *args)`. Neither computes what only the other needs; what both need both compute.
    With several paths the value is a tuple of theirs. Paths and errors are those of `capture`; the value of a `scan` is
    that of all turns.

    >>> import numpy as np, fxgrad
    >>> def model(w, x):
    ...     features = np.tanh(w["first"] * x)
    ...     return np.sum(features * w["last"])
    >>> head, tail = fxgrad.split(model, "features")
    >>> w = {"first": 2.0, "last": np.array([1.0, 3.0])}
    >>> features = head(w, np.zeros(2))
    >>> features, float(tail(features + 1.0, w, np.zeros(2)))
    (array([0., 0.]), 4.0)
    """
    paths = [at] if isinstance(at, str) or not isinstance(at, Sequence) else [*at]

    def keys_of(traced: Traced) -> list[str]:
        for path in paths:
            found = choose("split", path, traced.values, traced.program)
            if len(found) != 1:
                raise ArgumentError(at_user_line(
                    f"split: {path!r} stands for {len(found)} values. Give the path of each: "
                    f"{[each.value.path for each in found]}"))
        return [*traced.chosen(paths)]

    def run_head(traced: Traced) -> Any:
        keys = keys_of(traced)
        _, taken = traced.run(Opened("split", traced.program, traced.chosen(paths)), ())
        return taken[keys[0]] if isinstance(at, str) else tuple(taken[key] for key in keys)

    head = for_arguments("split", fun, run_head)

    @transformation("split", fun)
    @hide_frames
    def tail(value: Any, *args: Any, **kwargs: Any) -> Any:
        given = (value,) if isinstance(at, str) else tuple(value)
        if len(given) != len(paths):
            raise ArgumentError(at_user_line(f"split: the value is that of {len(paths)} paths, got {len(given)}"))

        def run(traced: Traced) -> Any:
            opened = _with_replacements("split", traced, dict(zip(keys_of(traced), given, strict=True)))
            signature = traced.program.signature
            assert signature is not None
            if signature.path is not None:
                return traced.run(opened)[0]
            results, _ = traced.run(opened, traced.program.outputs)
            return tree.unflatten(signature.out_tree, results)
        return for_arguments("split", fun, run)(*args, **kwargs)
    return head, tail


# --- replacements ---------------------------------------------------------------------------------------------------


def _with_replacements(what: str, traced: Traced, replacements: Mapping[str, Replacement]) -> Opened:
    """Return the program of a call with values replaced."""
    actions: dict[str, tuple[Chosen, Action]] = {}
    fed: dict[str, Any] = {}
    known: dict[Variable, Any] = {}
    paths: dict[tuple[Any, ...], str] = {}
    for path, replacement in replacements.items():
        for each in choose_to_change(what, path, traced.values, traced.program):
            value = each.value
            others = {paths.setdefault((*place, each.turns), path) for place in each.changed_places} - {path}
            for other in others:
                raise ArgumentError(at_user_line(f"{what}: {other!r} and {path!r} are the same value. Leave one out"))
            if callable(replacement):
                actions[each.key] = each, _in_turns(each, _by_function(what, each, replacement))
            elif not value.chain and not each.ends:
                known[value.var] = _fitting(what, each, replacement, value.aval, "the value put in")
            else:
                actions[each.key] = each, _in_turns(each, _by_value(what, each, replacement, fed))
    return Opened(what, traced.program, {}, actions, fed, known)


def _in_turns(chosen: Chosen, action: Action) -> Action:
    """Return an action for the turns alone that a path names."""
    named = [(loop.depth, wanted if wanted >= 0 else (loop.times or 0) + wanted)
             for loop, wanted in zip(chosen.value.loops, chosen.turns, strict=True) if wanted is not None]
    if not named:
        return action

    def run(value: Any, turn: Turn) -> Any:
        here: Any = True
        for depth, wanted in named:
            here = fnp.logical_and(here, turn.numbers[depth] == wanted)
        return fnp.where(here, action(value, turn), value)
    return run


def _by_function(what: str, chosen: Chosen, function: Callable[[Any], Any]) -> Action:
    def run(value: Any, _: Turn) -> Any:
        new, aval = function(value), aval_of(value)
        # A number stands for an array of it; an array of another shape is a mistake, as of a reduction.
        return _fitting(what, chosen, new, aval, "the function returned",
                        shapes=((), aval.shape) if type(new) in (bool, int, float, complex) else (aval.shape,))
    return run


def _by_value(what: str, chosen: Chosen, given: Any, fed: dict[str, Any]) -> Action:
    value = chosen.value
    shape = np.shape(given)
    if shape and shape != value.aval.shape and value.loops and not any(turn is not None for turn in chosen.turns) and (
            shape == value.shape):
        fed[chosen.key] = given
    def run(value: Any, turn: Turn) -> Any:
        return _fitting(what, chosen, turn.entries.get(chosen.key, given), aval_of(value), "the value put in")
    return run


def _fitting(what: str, chosen: Chosen, new: Any, aval: Aval, given: str,
             shapes: Sequence[tuple[Any, ...]] | None = None) -> Any:
    """Return a replacement in the type of the value; raise `ArgumentError` if it is of another dtype or shape.

    `shapes` are those it may have, by default that of the value, or none, for a number.
    """
    found = leaf_aval(new)
    if found is not None and found.shape in (shapes or ((), aval.shape)) and (found.dtype == aval.dtype or (
            found.weak and dtypes.promote((found.dtype, True), (aval.dtype, aval.weak))[0] == aval.dtype)):
        new = new if found.dtype == aval.dtype and found.weak == aval.weak else convert(new, aval.dtype, aval.weak)
        return new if found.shape == aval.shape else fnp.broadcast_to(new, aval.shape)
    stacked = f", or {chosen.value.shape} for all turns" if chosen.value.loops else ""
    raise ArgumentError(at_user_line(
        f"{what}: {chosen.key!r} is {aval}{stacked}, and {given} is {found if found is not None else repr(new)}. "
        "Make it of that shape and dtype"))


# --- derivatives with respect to inner values -----------------------------------------------------------------------


@custom_jvp
def _moved(value: Any, shift: Any) -> Any:  # noqa: ARG001  (the rule below has it)
    """Return `value`, whose derivative in `shift` is that of `value + shift`: exact at a shift of zero."""
    return value


@_moved.defjvp
def _moved_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    return _moved(*primals), tangents[0] + tangents[1]


def with_respect_to(what: str, fun: Callable[..., Any], wrt: Any, derive: Callable[[Callable[[Any], Any], Any], Any],
                    compiled: bool = True) -> Callable[..., Any]:
    """Return the function of the arguments of `fun` that returns `derive(function, zeros)`.

    `wrt` is a path or a container of paths; a path with wildcards stands for a dict. `zeros` are shifts of the values
    at these paths, and `function` computes `fun` for such shifts: it does not add them, but its derivatives are those
    with respect to the values.
    """
    return for_arguments(what, fun, lambda traced: derive(*_by_shifts(what, traced, wrt)),
                         MappingProxyType({}) if compiled else None)


def _by_shifts(what: str, traced: Traced, wrt: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return the function of shifts, and shifts of zero."""
    paths, structure = tree.flatten(wrt)
    found = [choose_to_change(what, path, traced.values, traced.program) for path in paths]
    single = [len(each) == 1 and each[0].key == path for path, each in zip(paths, found, strict=True)]
    shapes = [_zero(what, each[0]) if alone else {one.key: _zero(what, one) for one in each}
              for each, alone in zip(found, single, strict=True)]
    zeros = tree.unflatten(structure, shapes)
    order = tree.leaves(tree.unflatten(structure, [
        each[0].key if alone else {one.key: one.key for one in each}
        for each, alone in zip(found, single, strict=True)]))
    chosen = {one.key: one for each in found for one in each}

    def run(shifts: Any) -> Any:
        actions: dict[str, tuple[Chosen, Action]] = {}
        fed: dict[str, Any] = {}
        by_key: dict[str, Any] = {}
        for key, shift in zip(order, tree.leaves(shifts), strict=True):  # one path may be asked for twice
            by_key[key] = by_key[key] + shift if key in by_key else shift
        for key, shift in by_key.items():
            one = chosen[key]
            if one.value.loops:
                fed[key] = _among_turns(one, shift)
                actions[key] = one, functools.partial(_shift_turn, key)
            else:
                actions[key] = one, functools.partial(_shift, shift)
        return traced.run(Opened(what, traced.program, {}, actions, fed))[0]
    return run, zeros


def _shift(by: Any, value: Any, _: Turn) -> Any:
    return _moved(value, by)


def _shift_turn(key: str, value: Any, turn: Turn) -> Any:
    return _moved(value, turn.entries[key])


def _zero(what: str, chosen: Chosen) -> Any:
    value = chosen.value
    if not dtypes.is_inexact(value.aval.dtype):
        raise DTypeError(at_user_line(
            f"{what}: {chosen.key!r} is {value.aval}, and derivatives are taken with respect to floating-point values"))
    unknown = [loop for each in (value, *chosen.others) for loop in each.loops if loop.times is None]
    if unknown:
        raise ArgumentError(at_user_line(
            f"{what}: {chosen.key!r} is in a loop whose number of turns depends on values, so that derivatives with "
            "respect to it have no shape. Write fxgrad.lax.scan(..., until=)"))
    times = [loop.times for loop, turn in zip(value.loops, chosen.turns, strict=True) if turn is None]
    return np.zeros([*(each or 0 for each in times), *value.aval.shape], value.aval.dtype)


def _among_turns(chosen: Chosen, shift: Any) -> Any:
    """Return shifts for all turns: zero, but for those that the path names."""
    if all(turn is None for turn in chosen.turns):
        return shift
    place = tuple(slice(None) if turn is None else turn for turn in chosen.turns)
    return fnp.zeros(chosen.value.shape, chosen.value.aval.dtype).at[place].set(shift)
