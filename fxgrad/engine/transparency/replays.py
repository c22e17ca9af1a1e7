"""Calls that need not run the user's function: the replays of each function, and the law that they obey.

A replay is a claim: where its guards hold, the function would record the same program, and capture what the loads of
the generated function give. The guards cover all that the interpretation read: paths, types, and the values that
decided what was recorded. The settings of the process and the thread are compared at every call. At check level 1 and
above the function runs all the same, and an error is raised if it records anything else.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakSet

import numpy as np

from fxgrad.engine import config, tree
from fxgrad.engine.core import backends
from fxgrad.engine.core.arrays import Array
from fxgrad.engine.core.avals import Aval, array_aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.executors import FREQUENT
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.frontend.flat import TracedCall, finish_trace, parameter_names, plain_outside
from fxgrad.engine.tracing import interning, observers
from fxgrad.engine.tracing.interning import PrefixNode
from fxgrad.engine.tracing.provenance import enclosing_display_tape
from fxgrad.engine.tracing.tape import Tape, current
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transparency.interpret import Interpreter
from fxgrad.engine.transparency.plan import MISS, Plan
from fxgrad.engine.transparency.reading import is_function
from fxgrad.engine.transparency.values import (
    Data,
    Fresh,
    Function,
    Item,
    Known,
    LooksAtContents,
    Path,
    Refusal,
    Traced,
    TracedAround,
)
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line, file_name, function_name
from fxgrad.errors import ArgumentError, UnsupportedError

_declared: WeakSet[Any] = WeakSet()
_has_declared = False  # whether any function was: most processes declare none
"""Functions declared transparent by their users."""
MAX_REPLAYS = 4
"""The number of replays for one function; a fifth takes the place of the oldest."""
MAX_REFUSALS = 3
"""The number of refused interpretations after which a function is not interpreted again."""
MAX_RENEWALS = 16
"""The number of interpretations of a function after which those that test contents of data are made no more."""


@dataclass(slots=True)
class Counts:
    """The numbers of calls that were replayed, of those that were run all the same and compared, and of refusals."""

    replayed: int = 0
    compared: int = 0
    refused: int = 0


counts = Counts()


def transparent(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare that a function computes with arrays alone, so that derivatives and batches need not run it again.

    `grad`, `value_and_grad`, `vjp`, `jvp`, `linearize`, the Jacobians, `hessian` and `vmap` of it, outside of `jit`,
    run the Python code of `function` once for each kind of arguments. Afterwards they test that all it read is
    unchanged: types of arguments and of arrays that it closes over, values of integers and texts, functions,
    attributes. The contents of arrays and of floats are read at every call. Returns `function` itself,
    which is declared wherever it is used; another function with the same code is not.

    The first such call raises `UnsupportedError`, with the line and the reason, if the function cannot be shown to be
    transparent: it stores something, has other effects, or uses what is not interpreted (docs/guides/speed.md).
    `ArgumentError` is raised for anything but a function written in Python.

    >>> import numpy as np, fxgrad
    >>> data = np.arange(3.0)
    >>> @fxgrad.transparent
    ... def loss(w):
    ...     return np.sum((data - w) ** 2)
    >>> loss(np.ones(3))
    np.float64(2.0)
    """
    if not isinstance(function, FunctionType):
        raise ArgumentError(at_user_line(
            f"transparent takes a function written in Python, got a {type(function).__name__}. Declare the function "
            "itself, before other decorators"))
    global _has_declared
    _has_declared = True
    _declared.add(function)
    function.__dict__.pop("_fxgrad_replays", None)  # made under the setting, where refusals are no errors
    return function


def is_declared(function: Any) -> bool:
    """Return whether the user has declared a function, or that of a bound method or a `functools.partial`."""
    while type(function) in (MethodType, partial):
        function = function.__func__ if type(function) is MethodType else function.func
    return type(function) is FunctionType and function in _declared


@dataclass(slots=True)
class Recording:
    """A run: the place in the table of recordings that it reached, the variables of its output, what it captured."""

    reached: PrefixNode
    outputs: tuple[Any, ...]
    captured: list[Any]


@dataclass(slots=True)
class Kind:
    """The kind of a call: the positions of the arguments that are traced, their tree, and the types of their leaves.

    `wraps_objects` tells whether all arguments are rebuilt from their leaves, as `vmap` does.
    """

    positions: tuple[int, ...]
    structure: TreeDef
    avals: tuple[Aval, ...]
    wraps_objects: bool = False


@dataclass(slots=True)
class Replay:
    """What is known of calls of one kind: `load` returns the captured values of a call, or `MISS`."""

    kind: Kind
    load: Callable[[tuple[Any, ...], dict[str, Any]], Any]
    reached: PrefixNode
    outputs: tuple[Any, ...]
    program: Program
    out_tree: TreeDef
    settings: tuple[Any, ...]
    plan: Plan
    codes: list[str]
    """The code of each captured value."""
    leaves: list[str]
    """The code of each leaf of the traced arguments."""
    trees: list[Callable[[Iterator[str]], str]]
    """For each traced argument a function that writes an expression of its container from those of leaves."""


def settings_of_recordings() -> tuple[Any, ...]:
    """Return the settings on which a recording may depend, beside what the function reads."""
    return config.default_float(), backends.executor, interning.epoch


def is_observed() -> bool:
    """Return whether someone is to see the function run: an observer of traces, or a debugger."""
    return bool(observers.observers) or sys.gettrace() is not None


def _is_staged() -> bool:
    """Return whether a function around records everything, maps axes, or is displayed: then nothing is replayed."""
    tape = current.get()
    while tape is not None:
        if tape.staging or tape.scope or tape.mesh is not None or tape.shown or tape.literals:
            return True
        tape = tape.parent
    return enclosing_display_tape(current.get()) is not None


class Replays:
    """The replays of one function; they are left out of its pickles."""

    __slots__ = ("_calls", "_declared", "_refusals", "_renewals", "_replays", "function")

    def __init__(self, function: Any) -> None:
        self.function, self._declared = function, is_declared(function)
        self._replays: list[Replay] = []
        self._calls = self._refusals = self._renewals = 0

    def __reduce__(self) -> Any:
        return _no_replays, ()

    @property
    def is_on(self) -> bool:
        """Whether calls may be replayed: the function is declared, or the setting is on."""
        return (self._declared or config.transparent) and (bool(self._replays) or self._refusals < MAX_REFUSALS)

    def find(self, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Replay, list[Any]] | None:
        """Return the replay of a call, and its captured values; None if the function must run."""
        if not self._replays or is_observed() or _is_staged():
            return None
        settings = settings_of_recordings()
        for replay in self._replays:
            if replay.settings == settings and replay.kind == kind:
                captured = replay.load(args, kwargs)
                if captured is not MISS:
                    return replay, captured
        return None

    def compare(self, found: tuple[Replay, list[Any]], recording: Recording) -> None:
        """Raise `UnsupportedError` if a run of the function recorded anything else than the replay of the call.

        If one array is captured at two places, which the function captures once, nothing is compared.
        """
        replay, captured = found
        if _has_repeated(captured):
            return
        counts.compared += 1
        if not _are_equal(recording, Recording(replay.reached, replay.outputs, captured)):
            raise UnsupportedError(
                f"{function_name(self.function)} was taken to be transparent, and recorded another program, or other "
                "captured values, than its replay:\n" + "\n".join(replay.plan.all_lines))

    def interpret_if_due(self, kind: Kind, traced: TracedCall | None, args: tuple[Any, ...], kwargs: dict[str, Any],
                         tape: Tape) -> None:
        """Interpret the function after a call that was not replayed, if it is due.

        `traced` is None if the function returned anything but traced arrays. Calls with arrays that functions around
        trace, as in the gradient of a step of training, run the function.
        """
        if any(type(each) is Tracer for each in tape.captured):
            return
        self._calls += 1
        is_due = self._declared or self._calls >= config.transparent_after
        if not is_due or self._refusals >= MAX_REFUSALS or is_observed() or _is_staged():
            return
        try:
            if traced is None:
                raise Refusal("it returns something else than traced arrays")
            if traced.computed:
                raise Refusal("Python's control flow needs values of traced arrays")
            if self._renewals >= MAX_RENEWALS and self._replays and self._replays[0].plan.by_content:
                return  # contents differ from call to call: it takes less time to run the function
            self._renewals += 1
            replay = make_replay(self.function, kind, traced, args, kwargs, tape)
        except TracedAround:
            return
        except Refusal as refusal:
            self._refusals += 1
            counts.refused += 1
            if self._declared and not self._replays:
                reason = refusal_text(self.function, refusal)
                raise UnsupportedError(at_user_line(
                    f"{reason}. Change the line, or leave out fxgrad.transparent")) from None
            return
        self._replays = [replay, *self._replays][:MAX_REPLAYS]


def _no_replays() -> None:
    """Return what stands for replays in a copy of a function."""


def replays_of(function: Any) -> Replays | None:
    """Return the replays of a function; None if its calls are not replayed.

    They are kept on the function itself, and die with it.
    """
    if type(function) is not FunctionType:
        return None
    found = function.__dict__.get("_fxgrad_replays")
    if found is None or found.function is not function:  # a wrapper has copied the attribute
        if not (config.transparent or function in _declared):
            return None
        found = function.__dict__["_fxgrad_replays"] = Replays(function)
    return found if found.is_on else None


def refusal_text(function: Any, refusal: Refusal) -> str:
    """Return why a function is not transparent, with the line."""
    where = f" ({file_name(refusal.filename)}:{refusal.line})" if refusal.filename and refusal.line else ""
    return f"{function_name(function)} is not transparent: {refusal.reason}{where}"


class Run:
    """A call of a function that may be replayed: `traced` is its replay, if there is one and the function need not run.

    At check level 1 and above it runs all the same, and `end` compares.
    """

    __slots__ = ("_args", "_found", "_kind", "_kwargs", "_replays", "replay", "traced")

    def __init__(self, replays: Replays, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._replays, self._kind, self._args, self._kwargs = replays, kind, args, kwargs
        self._found = replays.find(kind, args, kwargs)
        self.replay: Replay | None = None
        self.traced: TracedCall | None = None
        if self._found is not None and not config.check_level:
            self.replay, captured = self._found
            self.traced = TracedCall(self.replay.program, captured, self.replay.out_tree)
            counts.replayed += 1

    def end(self, tape: Tape, leaves: Sequence[Any], out_tree: TreeDef) -> None:
        """Compare the recording with the replay, or interpret the function if it is due."""
        # Another output would be captured here, and once more when the trace is finished.
        is_traced = all(type(leaf) is Tracer and leaf.tape is tape for leaf in leaves)
        if self._found is not None:
            outputs = tuple([leaf.variable for leaf in leaves]) if is_traced else ()
            self._replays.compare(self._found, Recording(tape.reached, outputs, tape.captured))
        else:
            traced = finish_trace(tape, leaves, out_tree) if is_traced else None
            self._replays.interpret_if_due(self._kind, traced, self._args, self._kwargs, tape)


def begin_run(function: Any, positions: tuple[int, ...], structure: TreeDef, avals: Sequence[Aval],
              args: tuple[Any, ...], kwargs: dict[str, Any], replays: Replays | None = None,
              wraps_objects: bool = False) -> Run | None:
    """Return the run of a call whose arguments at `positions` are traced; None if the function is not replayed."""
    if not (config.transparent or _has_declared):
        return None
    replays = replays_of(function) if replays is None else replays if replays.is_on else None
    if replays is None:
        return None
    return Run(replays, Kind(positions, structure, tuple(avals), wraps_objects), args, kwargs)


# --- making a replay --------------------------------------------------------------------------------------


def make_replay(function: Any, kind: Kind, traced: TracedCall, args: tuple[Any, ...], kwargs: dict[str, Any],
                tape: Tape) -> Replay:
    """Return the replay of a call that was recorded; raise `Refusal` if the function is not shown to be transparent.

    The function is interpreted with the values that it read, which must give its own recording; and twice with other
    values of all data, of the same types, which must give the same program, and what the loads give for these values.
    Where the contents of data decide, it is interpreted again with guards of them.
    """
    recording = Recording(tape.reached, tuple(traced.program.outputs), [*tape.captured])
    with _without_warnings():
        first = _interpret(recording, traced, partial(_Interpretation, function, kind, args, kwargs, tape))
    plan = first.plan
    load = plan.function(plan.all_lines, [f"return [{', '.join(first.codes)}]"])
    loaded = load(args, kwargs)
    if loaded is MISS or not all(map(_same_value, loaded, recording.captured)):
        raise Refusal("what it reads changes while it is read")
    return Replay(kind, load, tape.reached, recording.outputs, traced.program, traced.out_tree,
                  settings_of_recordings(), plan, first.codes, first.leaves, first.trees)


def _interpret(recording: Recording, traced: TracedCall, interpretation: Callable[..., _Interpretation],
               ) -> _Interpretation:
    """Return the interpretation that gives the recording, with guards of the contents that decide."""
    by_content: frozenset[str] = frozenset()
    while True:
        interpret = partial(interpretation, by_content)
        try:
            first = interpret()
            if first.out_tree != traced.out_tree or not _are_equal(first.recording, recording):
                raise Refusal("the interpretation records something else than the function")
            _check_other_values(first, interpret)
            return first
        except LooksAtContents as found:
            if found.codes <= by_content:
                raise
            by_content |= found.codes


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Ignore warnings in the block: the function has given its own, and those of other data are nobody's."""
    with _warning_filters, np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_warning_filters = threading.RLock()
"""Held while filters are changed, which are those of all threads."""


class _Overrides:
    """Other values of data, by the codes of their paths; those whose value is guarded stay. With `only` of one path."""

    def __init__(self, pinned: frozenset[str], change: Callable[[Any], Any], only: str | None) -> None:
        self._pinned, self._change, self._only = pinned, change, only
        self._changed: dict[str, Any] = {}

    def __call__(self, code: str, value: Any) -> Any:
        if code in self._pinned or (self._only is not None and code != self._only):
            return value
        if code not in self._changed:
            self._changed[code] = self._change(value)
        return self._changed[code]


def direct_call(replay: Replay, program: Program, captured: Sequence[Any], values: int, single: bool,
                leaves: Sequence[Any], loaded: Sequence[Any], rewriting: Callable[[], Any]) -> Callable[..., Any]:
    """Return a generated function for a derivative with respect to all leaves: it tests, loads, and runs `program`.

    The inputs of `program` are the values `captured`, what the function captures (`loaded`), and the `leaves`. Its
    outputs are as many values, and an array for each leaf, which are returned in the containers of the arguments.
    While `rewriting` returns something, it misses.
    """
    plan = replay.plan
    codes = [f"{code}.view(ndarray)" if type(value) is Array else code
             for code, value in zip(replay.codes, loaded, strict=True)]
    captured, loaded = plain_outside(captured), plain_outside(loaded)
    given = ", ".join([*map(plan.constant, captured), *codes, *replay.leaves])
    slots = iter([f"r[{values + place}]" for place in range(len(replay.leaves))])
    trees = [make(slots) for make in replay.trees]
    gradient = trees[0] if single else f"({', '.join(trees)},)"
    is_frequent = all(type(value) in FREQUENT for value in (*captured, *loaded, *leaves))
    default, executor, epoch = replay.settings
    # The program runs outside of the block that takes exceptions for misses.
    return plan.function([_SETTINGS_DIFFER, *plan.argument_lines, *plan.all_lines], [
        "counts.replayed += 1", f"r = execute(program, [{given}])",
        f"return (r[0], {gradient})" if values else f"return {gradient}"],
        execute=numpy_executor.execute if is_frequent else executor.execute, program=program, current=current.get,
        rewriting=rewriting, config=config, observers=observers, gettrace=sys.gettrace, backends=backends,
        interning=interning, default_float=config.default_float, default=default, executor=executor, epoch=epoch,
        counts=counts)


_SETTINGS_DIFFER = (
    "if current() is not None or rewriting() is not None or config.check_level or observers.observers or gettrace() "
    "is not None or backends.executor is not executor or interning.epoch != epoch or default_float() is not default: "
    "return MISS")
"""The test of `settings_of_recordings`, `is_observed` and the like, written out: it is made at every call."""


class _Interpretation:
    """One interpretation of a call, on a tape like that of its recording."""

    def __init__(self, function: Any, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any], tape: Tape,
                 by_content: frozenset[str], overrides: Callable[[str, Any], Any] | None = None) -> None:
        self.plan = plan = Plan(overrides, by_content)
        self.leaves: list[str] = []
        self.trees: list[Callable[[Iterator[str]], str]] = []
        self._names = {f"args[{place}]": name for place, name in enumerate(parameter_names(function, len(args)))}
        self._names |= {f"kwargs[{name!r}]": name for name in kwargs}
        again = Tape(tape.root, tape.staging, None, function)
        again.parent = None
        interpreter = Interpreter(again, plan)
        tracers = iter([Tracer(again, var) for var in again.root.outputs])
        token = current.set(again)
        try:
            keywords = f"kwargs.keys() == {set(kwargs)!r}" if kwargs else "not kwargs"
            plan.guard(f"len(args) == {len(args)} and {keywords}")
            traced: dict[int, Item] = {}
            for position in kind.positions:
                traced[position], make = self._traced_argument(f"args[{position}]", args[position], tracers)
                self.trees.append(make)
            given = [traced.get(position) or self._other_argument(f"args[{position}]", value, kind)
                     for position, value in enumerate(args)]
            options = {name: self._other_argument(f"kwargs[{name!r}]", value, kind) for name, value in kwargs.items()}
            output = interpreter.returned(_call(interpreter, plan, function, given, options))
        except RecursionError:
            raise Refusal("functions call each other too deeply") from None
        finally:
            current.reset(token)
            again.closed = True
        leaves, self.out_tree = tree.flatten(output)
        if not all(type(leaf) is Tracer and leaf.tape is again for leaf in leaves):
            raise Refusal("it returns something else than traced arrays")
        if len(interpreter.recorder.captures) != len(again.captured):
            raise Refusal("it captures values in a way that is not interpreted")
        self.recording = Recording(again.reached, tuple([leaf.variable for leaf in leaves]), [*again.captured])
        self.codes = [code or "" for code in interpreter.recorder.captures]

    def _other_argument(self, code: str, value: Any, kind: Kind) -> Item:
        """Return the item of an argument that is not traced; the function sees its NumPy arrays as `Array`s."""
        plan = self.plan
        if isinstance(value, Tracer):
            raise TracedAround("an argument is traced by another function")
        item = plan.load(code, value, kind.wraps_objects or type(value) in (np.ndarray, list, tuple, dict),
                         self._names.get(code, ""))
        if isinstance(item, Path) and is_function(value):
            plan.guard(f"{item.code} is {plan.constant(value)}")
            return Function(value, None, plan.constant(value))
        return item

    def _traced_argument(self, code: str, value: Any, tracers: Iterator[Tracer],
                         ) -> tuple[Item, Callable[[Iterator[str]], str]]:
        """Return the item of a traced argument, and a function that writes its container from slots for leaves."""
        plan = self.plan
        name = f"x{len(plan.argument_lines)}"
        plan.argument_lines.append(f"{name} = {code}")
        kind = type(value)
        if kind is dict and all(type(key) is str for key in value):
            plan.guard_argument(f"type({name}) is dict and len({name}) == {len(value)}")
            parts = {key: self._traced_argument(f"{name}[{key!r}]", value[key], tracers) for key in sorted(value)}
            makers = {key: make for key, (_, make) in parts.items()}
            return Fresh({key: item for key, (item, _) in parts.items()}), lambda slots: "{" + ", ".join(
                f"{key!r}: {make(slots)}" for key, make in makers.items()) + "}"
        if kind in (list, tuple):
            plan.guard_argument(f"type({name}) is {kind.__name__} and len({name}) == {len(value)}")
            listed = [self._traced_argument(f"{name}[{place}]", each, tracers) for place, each in enumerate(value)]
            left, right = "[]" if kind is list else ("(", ",)" if value else ")")
            return Fresh(kind([item for item, _ in listed])), lambda slots: (
                f"{left}{', '.join([make(slots) for _, make in listed])}{right}")
        if value is None:
            plan.guard_argument(f"{name} is None")
            return Known(None), lambda slots: "None"
        if kind in DIRECT_LEAVES:
            plan.guard_argument(plan.type_test(name, value))
        elif kind is not Tracer and array_aval(value) is None:
            raise Refusal(f"a container of class {kind.__name__} is an argument that is traced")
        else:  # a traced array of a function around, or a rare class: no direct call is made for it
            plan.guard_argument("False")
        self.leaves.append(name)
        return Traced(next(tracers)), next


DIRECT_LEAVES = frozenset({np.ndarray, Array, float, np.float64, np.float32})
"""Classes of leaves that a direct call takes."""


def _call(interpreter: Interpreter, plan: Plan, function: Any, args: Sequence[Item], options: dict[str, Item]) -> Item:
    if type(function) is MethodType and type(function.__func__) is FunctionType:
        receiver = plan.load(f"{plan.constant(function)}.__self__", function.__self__, title="self")
        return interpreter.call_function(function.__func__, plan.constant(function.__func__), [receiver, *args],
                                         options)
    if type(function) is partial:
        return interpreter.call_partial(function, plan.constant(function), args, options)
    if type(function) is not FunctionType:
        raise Refusal(f"it is a {type(function).__name__}, not a function written in Python")
    return interpreter.call_function(function, plan.constant(function), args, options)


def _are_equal(one: Recording, other: Recording) -> bool:
    """Return whether two recordings are of the same program with equal captured values."""
    return (one.reached is other.reached and len(one.outputs) == len(other.outputs)
            and all(left is right for left, right in zip(one.outputs, other.outputs, strict=True))
            and len(one.captured) == len(other.captured) and all(map(_same_value, one.captured, other.captured)))


def _has_repeated(values: Sequence[Any]) -> bool:
    """Return whether one array is among them twice."""
    places = [value.__array_interface__["data"][0] for value in values if isinstance(value, np.ndarray) and value.size]
    return len(places) > len({*places})


def _same_value(one: Any, other: Any) -> bool:
    """Return whether two captured values are equal to the bit; arrays that were copied may be of the base class."""
    if one is other:
        return True
    left, right = np.asarray(one), np.asarray(other)
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def _check_other_values(first: _Interpretation, interpret: Callable[[_Overrides], _Interpretation]) -> None:
    """Raise `Refusal` if the function records something else for other values of data, and say which data decide."""
    values = [item.value for item in first.plan.loaded.values() if isinstance(item, Data)]
    sizes = {value.size for value in values if isinstance(value, np.ndarray) and value.dtype.kind in "fciu"} - {0}
    # With three elements and more one change has all extremes.
    further: list[Callable[[Any], Any]] = [
        partial(with_extremes, first=place) for place in range((1 if min(sizes) > 2 else 3) if sizes else 0)]
    if any(not isinstance(value, np.ndarray) for value in values):
        further += [far_number, whole_number]
    for change in [perturbed, contrasting, *further]:
        refusal = _difference(first, interpret, change, None)
        # What raises an error for such a value does so in the user's calls, too.
        if refusal is None or (change in further and refusal.__cause__ is not None):
            continue
        deciding = [code for code in first.plan.small_data() if _difference(first, interpret, change, code) is not None]
        raise LooksAtContents(refusal.reason, refusal.syntax, frozenset(deciding)) if deciding else refusal


def _difference(first: _Interpretation, interpret: Callable[[_Overrides], _Interpretation],
                change: Callable[[Any], Any], only: str | None) -> Refusal | None:
    """Return why an interpretation with changed data is not the first one but for the data; None if it is."""
    try:
        probe = interpret(_Overrides(first.plan.pinned, change, only))
        recording = first.recording
        if probe.plan.lines != first.plan.lines or probe.codes != first.codes or not _are_equal(
                probe.recording, Recording(recording.reached, recording.outputs, probe.recording.captured)):
            return Refusal("what it records depends on the values of arrays or numbers")
        _check_constants(first, probe)
        _check_loads(probe)
    except Refusal as refusal:
        if only is None and isinstance(refusal, LooksAtContents):
            raise
        return refusal
    return None


def _check_constants(first: _Interpretation, probe: _Interpretation) -> None:
    """Raise `Refusal` if a value was captured as a constant, and was another one with perturbed data."""
    for code, one, other in zip(first.codes, first.recording.captured, probe.recording.captured, strict=True):
        if code in first.plan.namespace and not _same_value(one, other):
            raise Refusal("what it records depends on the values of arrays or numbers")


def _check_loads(probe: _Interpretation) -> None:
    """Raise `Refusal` unless the loads, with perturbed data, give what was captured."""
    plan = probe.plan
    namespace = dict(plan.namespace)
    for place, item in enumerate(plan.loaded.values()):
        if isinstance(item, Data):
            namespace[item.code] = item.value
        elif isinstance(item, Known | Path):
            namespace[f"p{place}"] = item.value
    with np.errstate(all="ignore"):
        for line in plan.lines:
            if line.startswith("d"):  # computed data
                exec(line, namespace)
        for code, value in zip(probe.codes, probe.recording.captured, strict=True):
            if not _same_value(eval(code, namespace), value):
                raise Refusal("a captured value depends on data in a way that is not interpreted")


def perturbed(value: Any) -> Any:
    """Return another value of the same type: an array, or a number; one between 0 and 1 for such a number."""
    if not isinstance(value, np.ndarray):
        if not np.isfinite(value):
            return type(value)(0.625)
        is_share = not isinstance(value, complex | np.complexfloating) and 0 < value < 1
        return type(value)(value + (1 - value) * 0.375 if is_share else value * 1.25 + 0.375)
    kind = value.dtype.kind
    if kind == "b":
        made = ~value
    elif kind in "iu":
        made = np.roll(value.reshape(-1), 1).reshape(value.shape)
        if np.array_equal(made, value):
            made = np.where(value > 0, value - 1, value + 1).astype(value.dtype)
    else:
        with np.errstate(all="ignore"):
            made = (value * value.dtype.type(1.25) + value.dtype.type(0.375)).astype(value.dtype)
    return _copy_like(made, value)


def _copy_like(made: Any, value: Any) -> Any:
    """Return a copy of an array of the class of another one, and writable if that is."""
    made = np.array(made)
    made.flags.writeable = value.flags.writeable
    return made.view(Array) if type(value) is Array else made


def far_number(value: Any) -> Any:
    """Return a number of the same class on the other side of 1; of a negative one, whose floor is odd if it is even."""
    if not _has_sign(value):
        return value
    return type(value)((7.3125 if value < 1 else 0.3125) if value > 0 else -1.5 if np.floor(value) % 2 else -0.5)


def whole_number(value: Any) -> Any:
    """Return a number of the same class without a fraction."""
    return type(value)(2.0 if value > 0 else -2.0) if _has_sign(value) else value


def _has_sign(value: Any) -> bool:
    """Return whether a value is a real number that is finite and not 0."""
    return not isinstance(value, np.ndarray | complex | np.complexfloating) and bool(value) and bool(np.isfinite(value))


def with_extremes(value: Any, first: int) -> Any:
    """Return a value of the same type whose elements are NaN, 0 and infinity by turns, from one of them on.

    Integers have a 0 there. The classes of numbers are guarded, and stay.
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fciu":
        return value
    extremes = (np.nan, 0.0, np.inf) if value.dtype.kind in "fc" else (value.flat[0], 0, value.flat[0])
    made = np.resize(np.roll(np.array(extremes, value.dtype), -first), value.shape)
    return _copy_like(made, value)


def contrasting(value: Any) -> Any:
    """Return a value of the same type that differs where `perturbed` does not: in signs, the order of elements.

    Integers are all equal, and in the range of those that there are: they may be indices. A number is nearer to 0, and
    has its sign: functions of `math` raise errors for others.
    """
    if not isinstance(value, np.ndarray):
        return type(value)(0.625 * value if value and np.isfinite(value) else 0.25)
    if value.dtype.kind in "iu":
        made = np.full_like(value, value.min()) if value.size else value
    elif value.dtype.kind == "b":
        made = np.roll(value.reshape(-1), 1).reshape(value.shape)
    else:
        made = np.negative(np.asarray(perturbed(value)))
    return _copy_like(made, value)
