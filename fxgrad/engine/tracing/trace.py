"""Recording calls: the tape on which a function is called, and the program that it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fxgrad.engine import config
from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.tracing import interning
from fxgrad.engine.tracing.provenance import enclosing_display_tape
from fxgrad.engine.tracing.tape import NO_AXES, InputNames, Tape, current, innermost_for
from fxgrad.engine.tracing.varying import MeshAxes


class Mode(NamedTuple):
    """How a tape treats operations and numbers.

    - `staging` tapes record every operation; others record those that depend on their inputs, and compute the rest at
      once.

    - `interned` tapes share equal recordings.

    - `literals` makes numbers in the code literals of the program; otherwise they are captured inputs, so that the same
      code with other numbers gives the same program.

    - `shown` programs are displayed: they have the names and lines of this recording, nested programs included.
    """

    staging: bool
    interned: bool
    literals: bool
    shown: bool = False


SELECTIVE = Mode(staging=False, interned=True, literals=False)
"""Un-jitted derivatives: Python computes at once what does not depend on the inputs."""
SHARED = Mode(staging=True, interned=True, literals=False)
"""`jit` and its like: one program for all calls that record the same operations."""
WITH_LITERALS = Mode(staging=True, interned=False, literals=True)
"""Programs derived from programs, and nested programs of displayed ones: numbers are literals."""
DISPLAY = Mode(staging=True, interned=False, literals=True, shown=True)
"""Programs for display, as `make_program` returns them."""
UNSHARED = Mode(staging=True, interned=False, literals=False)
"""An unshared program, with all closed-over values as inputs."""
TANGENTS = Mode(staging=False, interned=False, literals=True)
"""The linear half of a derivative: operations on tangents; the others go to the enclosing tape."""
UNSHARED_SELECTIVE = Mode(staging=False, interned=False, literals=False)
"""Selective and unshared: for inspecting one recording."""


def inner_mode(literals: bool) -> Mode:
    """Return the mode for a program inside the current one: its treatment of literals, else shared."""
    return WITH_LITERALS if literals else SHARED


def trace_at(function: Callable[..., Sequence[Any]], in_avals: Sequence[Aval], **options: Any,
             ) -> tuple[Program, list[Any]]:
    """Call `record`; return the program and the values of its captured inputs."""
    program, tape = record(function, in_avals, **options)
    return program, tape.captured


def record(function: Callable[..., Sequence[Any]], in_avals: Sequence[Aval], **options: Any) -> tuple[Program, Tape]:
    """Call `function` with tracers; return the program, and the tape, which holds the captured values.

    `function` takes as many positional tracers as there are `in_avals` and returns a flat sequence; `options` are
    those of `new_tape`.
    """
    tape = new_tape(in_avals, **options)
    return tape.finish(tape.run(function)), tape


def new_tape(in_avals: Sequence[Aval], *, mode: Mode, values: Sequence[Any] | None = None, name: Any = "function",
             input_names: InputNames | None = None, origin: Any = None, tape_class: type[Tape] = Tape,
             axes: Mapping[str, int] = NO_AXES, parameters: InputNames | None = None,
             mesh: MeshAxes | None = None) -> Tape:
    """Return a tape of this mode, for a function of inputs of these types.

    `name` is the function's name in messages, or the user's function; `input_names` are those of its inputs in
    messages, `parameters` those in the program, if they differ. `origin` (a code object) separates functions whose
    programs would otherwise be shared. `axes` are the mapped axes whose collectives the function may use, sizes by
    name; `mesh` marks those that are axes of a mesh.
    """
    avals = tuple(in_avals)
    staging, interned, literals, shown = mode
    outer = current.get()
    around_mesh: MeshAxes | None = None
    around: Tape | None = None
    scope, known_is_computed = NO_AXES, True
    if outer is not None:
        around_mesh, around, scope = outer.mesh, enclosing_display_tape(outer), outer.scope
        known_is_computed = innermost_for(()) is None
    if interned:
        settings: tuple[Any, ...] = (staging, literals, known_is_computed, config.default_float())
        if mesh is not None or around_mesh is not None:
            settings += (mesh or around_mesh,)
        if around is None:
            root = interning.root(origin, avals, {**scope, **axes} if axes else scope, settings)
        else:
            root = _root_within(around, name, avals, (*settings, *scope.items(), *axes.items()))
    else:
        root = interning.fresh_root(avals)
    tape = tape_class(root, staging, values, name, input_names, interned, literals, axes, mesh)
    if shown:
        tape.shown = tape.notes_callers = True
    elif around is not None:
        tape.notes_callers = True
        if not interned:
            tape.origins = {}
    if parameters is not None:
        tape.parameters = parameters
    return tape


def _root_within(around: Tape, function: Any, avals: Sequence[Aval], settings: tuple[Any, ...]) -> interning.Root:
    """Return the root for recording `function` in a displayed program: the same if it was recorded there before.

    Other programs and other closures have the names and the lines of other code.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return interning.fresh_root(tuple(avals))
    known = [*map(_content, function.__closure__ or ()), *(function.__defaults__ or ())]
    key = (id(code), *map(id, known), *settings, *avals)
    if around.roots is None:
        around.roots = {}
    found = around.roots.get(key)
    if found is None:  # with the objects keyed by id, to keep them alive
        found = around.roots[key] = interning.fresh_root(tuple(avals)), code, known
    return found[0]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a cell without a value so far
        return None


class TraceRoot:
    """The cached root of recordings of one function that are made outside of all others, without values."""

    __slots__ = ("_default", "_epoch", "_root")

    def __init__(self) -> None:
        self._epoch = -1
        self._default: Any = None
        self._root: interning.Root

    def tape(self, in_avals: Sequence[Aval], name: str, origin: Any, axes: Mapping[str, int],
             mesh: MeshAxes | None = None) -> Tape:
        """Return a `new_tape` for the same arguments in every call; no tape is current."""
        if self._epoch != interning.epoch or self._default is not config.default_float():
            tape = new_tape(in_avals, mode=SHARED, name=name, origin=origin, axes=axes, mesh=mesh)
            self._epoch, self._default, self._root = interning.epoch, config.default_float(), tape.root
            return tape
        return Tape(self._root, True, None, name, None, True, False, axes, mesh)


class TraceRootCache:
    """The roots of recordings of one function's calls, by the types of its inputs, for faster lookup.

    It serves calls with known values and no enclosing transformation, recorded in the mode `SELECTIVE`, or `SHARED` if
    they are `staging`.
    """

    __slots__ = ("_function", "_roots", "_staging")

    def __init__(self, function: Any, *, staging: bool = False) -> None:
        self._function, self._staging = function, staging
        self._roots = BoundedDict(64)

    def tape(self, key: Any, values: Sequence[Any], input_names: InputNames) -> Tape | None:
        """Return a tape for a call like the one entered under `key`; None if there was none."""
        entry: tuple[interning.Root, int, Any] | None = self._roots.get(key)
        if entry is None or entry[1] != interning.epoch or entry[2] is not config.default_float() or (
                current.get() is not None):
            return None
        return Tape(entry[0], self._staging, values, self._function, input_names)

    def add(self, key: Any, tape: Tape) -> None:
        """Enter the tape of a call."""
        if tape.parent is None:
            self._roots[key] = tape.root, interning.epoch, config.default_float()


def takes_literals() -> bool:
    """Return whether numbers in user code become literals of the current program instead of captured inputs."""
    tape = current.get()
    return tape is not None and tape.literals


@contextmanager
def bind_axes(axes: Mapping[str, int], mesh: MeshAxes) -> Iterator[None]:
    """Bind mapped axes, sizes by name, for collectives of programs derived within the block."""
    tape = Tape(interning.fresh_root(()), staging=False, interned=False, axes=axes, mesh=mesh)
    token = current.set(tape)
    try:
        yield
    finally:
        current.reset(token)
        tape.closed = True


def mesh_in_scope() -> MeshAxes | None:
    """Return the mesh axes that the code being traced is mapped over, or None."""
    tape = current.get()
    return None if tape is None else tape.mesh


def join_unchecked_vma(avals: Sequence[Aval]) -> Sequence[Aval]:
    """Return the input types of a function traced here, varying over all unchecked mesh axes."""
    mesh = mesh_in_scope()
    return avals if mesh is None or not mesh.unchecked else [aval.varying(mesh.unchecked) for aval in avals]


def is_tracing() -> bool:
    """Return whether any function is being traced in this thread or task."""
    return current.get() is not None
