"""Provenance of the variables of derived programs: noted while a program is walked, resolved to names for printing.

A note states that a value is the primal, the tangent or the cotangent of a variable of the walked program. The name of
that variable is resolved at printing, through the notes of that program. Notes are taken for displayed programs only,
and cost others nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from fxgrad.engine.core.program import Atom, Equation, Program, Provenance, Source, Variable
from fxgrad.engine.core.program_properties import ProgramAttribute
from fxgrad.engine.core.sources import current_source, equation_source, user_source, with_callers
from fxgrad.engine.tracing.interning import RecordedStep
from fxgrad.engine.tracing.tracer import Tracer

if TYPE_CHECKING:
    from fxgrad.engine.tracing.tape import Tape


def note_provenance(values: Sequence[Any], role: str, program: Program, variables: Sequence[Atom]) -> None:
    """Note that traced `values` are the primals, tangents or cotangents of the variables of `program`.

    The first note has priority.
    """
    for value, variable in zip(values, variables, strict=False):
        if type(value) is Tracer and type(variable) is Variable and value.tape.origins is not None:
            value.tape.origins.setdefault(value.variable, []).append(Provenance(role, program, variable))


def enter_origins(origins: Mapping[Variable, Sequence[Provenance]], steps: Sequence[RecordedStep]) -> None:
    """Write the notes into the equations of `steps`, and into variables that no equation of a user's line binds."""
    for step in steps:
        if origins.keys().isdisjoint(step.outputs):
            continue
        found = tuple([tuple(origins.get(var, ())) for var in step.outputs])
        equation = step.equation
        if equation is not None and equation.source is not None:
            equation.source = equation.source._replace(origins=found)
        else:
            for var, known in zip(step.outputs, found, strict=True):
                var.origins = known


class CallNames(NamedTuple):
    """The names of a traced function and its inputs in the user's code; "" where unknown.

    For a library function these names are its own.
    """

    name: str
    input_names: tuple[str, ...]
    is_library: bool = False
    code: CodeType | None = None


CALL_NAMES: ProgramAttribute[CallNames] = ProgramAttribute("called")
"""Call names of programs traced for a displayed one."""

CAPTURED_VALUES: ProgramAttribute[tuple[Any, ...]] = ProgramAttribute("values of captured inputs")
"""Values of the captured inputs of such programs: a variable of the enclosing program, or a number or an array."""


TAGS: ProgramAttribute[dict[Variable, str]] = ProgramAttribute("tags")
"""The names that `fxgrad.tag` gives to variables of programs traced for a displayed one."""


def note_tag(value: Tracer, name: str) -> None:
    """Note that a value in a displayed program is called `name`."""
    tape = value.tape
    if is_shown(tape):
        if tape.tags is None:
            tape.tags = {}
        tape.tags[value.variable] = name


RETURNED: ProgramAttribute[list[tuple[Source, dict[Variable, str]]]] = ProgramAttribute("returned")
"""What transformed functions return in programs traced for a displayed one: the calling line, and paths of values."""


def note_returned(tape: Tape | None, leaves: Callable[[], Iterable[tuple[str, Any]]]) -> None:
    """Note that a transformed function that the user's line calls returns `leaves`, each with its path.

    For values that are named by what they are, such as the gradient of `w`, and assigned to another name there.
    """
    source = with_callers(user_source()) if is_shown(tape) and equation_source.get() is None else None
    if tape is not None and source is not None:
        found = {leaf.variable: path for path, leaf in leaves() if type(leaf) is Tracer and leaf.tape is tape}
        tape.returned = [*(tape.returned or ()), (source, found)]


def enter_tags(program: Program, tags: Mapping[Variable, str]) -> None:
    """Give a program the tags of its recording; of a program recorded before, those of both."""
    TAGS.put(program, {**(TAGS.of(program) or {}), **tags})


def note_partial(tape: Tape, value: Tracer) -> None:
    """Note that `value`, captured by `tape`, is not the value of the user's expression if that continues with it.

    In `error = logits - labels` the labels may be converted on the enclosing tape, and subtracted on this one.
    """
    if is_shown(tape):
        source = current_source()
        if source is not None:
            _disown(recent_equations(value.tape), source)


def note_around(program: Program, tape: Tape | None) -> None:
    """Note that values recorded around a user's function, such as the counter of its loop, are assigned by no line.

    `tape` is the enclosing one.
    """
    source = current_source() if is_shown(tape) else None
    if source is not None:
        _disown(program.equations, source)


def note_library(program: Program, name: str, input_names: Sequence[str]) -> None:
    """Note that `program`, just traced, belongs to a library function: no equation is of the calling line."""
    caller = current_source()
    for equation in program.equations:
        if caller is not None and _is_at(equation, caller):
            equation.source = None
    CALL_NAMES.put(program, CallNames(name, tuple(input_names), is_library=True))


def _is_at(equation: Equation, source: Source) -> bool:
    return equation.source is not None and equation.source[:2] == source[:2]


def _disown(equations: Iterable[Equation], source: Source) -> None:
    """Mark equations recorded at `source` as not being the value of the expression there."""
    for equation in equations:
        if equation.source is not None and _is_at(equation, source):
            equation.source = equation.source.derived()


def note_results(values: Sequence[Any], places: Callable[[], Sequence[str | None]]) -> None:
    """Note the paths of `values`, all results of an operation, in the container that the user's expression builds.

    `places()` returns paths such as `[0].mean`, "" for the whole, and None for a value outside of it.
    """
    first = values[0] if values else None
    if type(first) is Tracer and is_shown(first.tape):
        maker = recent_maker(first)
        if maker is not None and maker.source is not None:
            maker.source = maker.source._replace(results=tuple(places()))


def recent_equations(tape: Tape) -> Iterator[Equation]:
    """Iterate over the last equations of a recording, from the end."""
    return (node.equation for node in tape.nodes[:-65:-1] if node.equation is not None)


def recent_maker(value: Tracer) -> Equation | None:
    """Return the equation that made `value`, if it is among the last ones."""
    return next((equation for equation in recent_equations(value.tape) if value.variable in equation.outputs), None)


def enclosing_display_tape(tape: Tape | None) -> Tape | None:
    """Return the outermost enclosing tape of a displayed program, as `make_program` returns it; None if there is none.

    It may itself lie within tapes of others: a program is displayed inside a function that is being compiled, too.
    """
    found = None
    while tape is not None:
        if tape.shown:
            found = tape
        tape = tape.parent
    return found


def is_shown(tape: Tape | None) -> bool:
    """Return whether recorded equations become part of a displayed program."""
    return enclosing_display_tape(tape) is not None


def note_call_names(tape: Tape, program: Program) -> None:
    """Note the names of a function and its inputs if `program`, recorded on `tape`, is part of a displayed program.

    If another function shares the program, only common names are noted.
    """
    names = tape.parameters or tape.input_names
    if names is None or not is_shown(tape):
        return
    called = CallNames(tape.name, tuple(names()), code=getattr(tape.function, "__code__", None))
    known = CALL_NAMES.of(program)
    if known is not None and known != called:
        both = zip(called.input_names, known.input_names, strict=True)
        called = CallNames(called.name if called.name == known.name else "",
                           tuple(one if one == other else "" for one, other in both),
                           code=called.code if called.code is known.code else None)
    CALL_NAMES.put(program, called)
    captured = tuple([value.variable if type(value) is Tracer else value for value in tape.captured])
    before = CAPTURED_VALUES.of(program)
    if before is None or all(map(_is_same, before, captured)):
        CAPTURED_VALUES.put(program, captured)
    else:  # called again with others
        CAPTURED_VALUES.put(program, ())


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two captured values are one object, or one number."""
    return one is other or (type(one) is type(other) and type(one) in (bool, int, float, complex) and
                            repr(one) == repr(other))
