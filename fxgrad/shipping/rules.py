"""Derivatives of users' custom functions in files: the programs that their rules record, in place of Python code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.errors import FxgradError, ProgramSyntaxError, UnsupportedError
from fxgrad.extend import (
    Aval,
    Equation,
    Primitive,
    Program,
    Zero,
    apply,
    aval_of,
    has_tangent,
    inner_first,
    instantiate_zeros,
    primitives,
)
from fxgrad.extend.tracing import WITH_LITERALS, trace_flat

Flat = Sequence[Any]


class RecordedJvp:
    """The rule of a `custom_jvp` operation: `program` takes primals and tangents, and returns both for the outputs.

    The first `captured` primals have no tangent, nor has what is no float: their tangents are no inputs. A rule may
    apply its own function, and so contain itself: the program is set after the rule is made.
    """

    program: Program

    def __init__(self, name: str, captured: int) -> None:
        self.name, self.captured = name, captured

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[list[Any], list[Any]]:
        """Return the outputs and their tangents."""
        moving = [instantiate_zeros(tangent) for primal, tangent in zip(
            primals[self.captured:], tangents[self.captured:], strict=True) if has_tangent(aval_of(primal))]
        results = apply(self.program, [*primals, *moving])
        half = len(results) // 2
        return results[:half], results[half:]

    def require_fit(self, function: Program) -> None:
        """Raise `ProgramSyntaxError` unless the program has the types of a rule of `function`."""
        moving = [aval for aval in function.in_avals[self.captured:] if has_tangent(aval)]
        _require_types(self.name, self.program, [*function.in_avals, *moving], [*function.out_avals] * 2)

    def __repr__(self) -> str:
        return f"<{self.name}>"


class RecordedVjp:
    """The rule of a `custom_vjp` operation with so many `outputs`.

    `forward_program` takes primals, and returns outputs and residuals. `backward_program` takes residuals and the
    cotangents of those outputs that have one, and returns cotangents of the primals that are `reached`. As above, the
    programs are set later.
    """

    forward_program: Program
    backward_program: Program
    reached: tuple[bool, ...]

    def __init__(self, name: str, captured: int, outputs: int) -> None:
        self.name, self.captured, self.outputs = name, captured, outputs

    def forward(self, primals: Flat, moving: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:  # noqa: ARG002
        """Return outputs, residuals, and None for their structure."""
        results = apply(self.forward_program, primals)
        return results[:self.outputs], results[self.outputs:], None

    def backward(self, structure: Any, residuals: Flat, cotangents: Flat) -> list[Any]:  # noqa: ARG002
        """Return a cotangent for every primal; None where it is zero."""
        arriving = [instantiate_zeros(each) for each in cotangents if has_tangent(
            each.aval if type(each) is Zero else aval_of(each))]
        found = iter(apply(self.backward_program, [*residuals, *arriving]))
        return [next(found) if reached else None for reached in self.reached]

    def require_fit(self, function: Program) -> None:
        """Raise `ProgramSyntaxError` unless the programs have the types of a rule of `function`."""
        if len(self.reached) != len(function.in_avals) or self.outputs != len(function.out_avals):
            raise ProgramSyntaxError(f"the rule of {self.name} has another number of arguments or results")
        residuals = self.forward_program.out_avals[self.outputs:]
        _require_types(self.name, self.forward_program, function.in_avals, [*function.out_avals, *residuals])
        arriving = [aval for aval in function.out_avals if has_tangent(aval)]
        leaving = [aval for aval, reached in zip(function.in_avals, self.reached, strict=True) if reached]
        _require_types(self.name, self.backward_program, [*residuals, *arriving], leaving)

    def __repr__(self) -> str:
        return f"<{self.name}>"


RecordedRule = RecordedJvp | RecordedVjp


def _require_types(name: str, program: Program, takes: Sequence[Aval], returns: Sequence[Aval]) -> None:
    taken = program.in_avals[program.captured:]
    for what, found, needed in ("takes", taken, takes), ("returns", program.out_avals, returns):
        if [aval.strong() for aval in found] != [aval.strong() for aval in needed]:
            raise ProgramSyntaxError(f"the rule of {name} {what} ({', '.join(map(str, found))}), where its function "
                                     f"asks for ({', '.join(map(str, needed))})")


# --- from rules that are Python code ----------------------------------------------------------------------------------


def user_rule(equation: Equation) -> Any:
    """Return the rule of a `custom_jvp` or `custom_vjp` operation that is Python code, or was; None for others."""
    rule = equation.params.get("rule")
    # A rule of the library's own is a tuple, which files hold by name.
    return None if equation.primitive not in _RECORDERS or isinstance(rule, tuple) else rule


def record_rule(equation: Equation) -> RecordedRule:
    """Return the programs of an operation's `user_rule`.

    Raises `UnsupportedError` if the rule cannot be recorded for these types, as one that branches on values.
    """
    rule = equation.params["rule"]
    if isinstance(rule, RecordedRule):
        return rule
    try:
        return _RECORDERS[equation.primitive](rule, equation.params["program"])
    except FxgradError as error:
        raise UnsupportedError(
            f"save: the derivative of {rule.name} is Python code that cannot be recorded without values, and a file "
            f"holds programs alone. Save the gradient, in which the rule has been applied. The reason: {error}"
        ) from error


def _record(function: Callable[..., Sequence[Any]], avals: Sequence[Aval], rule: Any) -> Program:
    traced = trace_flat(lambda *values: list(function(*values)), avals, "save", rule.name, mode=WITH_LITERALS)
    return traced.program.replace(constants=traced.captured)


def _record_jvp(rule: Any, function: Program) -> RecordedJvp:
    avals, captured = function.in_avals, getattr(rule, "captured", 0)
    marks = [place >= captured and has_tangent(aval) for place, aval in enumerate(avals)]

    def both(*values: Any) -> list[Any]:
        moving = iter(values[len(avals):])
        tangents = [next(moving) if mark else Zero(aval) for mark, aval in zip(marks, avals, strict=True)]
        outputs, out_tangents = rule.jvp([*values[:len(avals)]], tangents)
        return [*outputs, *map(instantiate_zeros, out_tangents)]
    recorded = RecordedJvp(rule.name, captured)
    recorded.program = _record(both, [*avals, *(aval for aval, mark in zip(avals, marks, strict=True) if mark)], rule)
    return recorded


def _record_vjp(rule: Any, function: Program) -> RecordedVjp:
    avals, captured = function.in_avals, getattr(rule, "captured", 0)
    moving = tuple(place >= captured and has_tangent(aval) for place, aval in enumerate(avals))
    structures: list[Any] = []

    def forward(*values: Any) -> list[Any]:
        outputs, residuals, structure = rule.forward([*values], moving)
        structures.append(structure)
        return [*outputs, *residuals]
    recorded = RecordedVjp(rule.name, captured, len(function.out_avals))
    recorded.forward_program = _record(forward, avals, rule)
    residuals = recorded.forward_program.out_avals[recorded.outputs:]
    reached: list[bool] = []

    def backward(*values: Any) -> list[Any]:
        arriving = iter(values[len(residuals):])
        cotangents = [next(arriving) if has_tangent(aval) else Zero(aval) for aval in function.out_avals]
        found = rule.backward(structures[-1], values[:len(residuals)], cotangents)
        reached[:] = [each is not None and type(each) is not Zero for each in found]
        return [each for each, reaches in zip(found, reached, strict=True) if reaches]
    recorded.backward_program = _record(backward, [*residuals, *(
        aval.strong() for aval in function.out_avals if has_tangent(aval))], rule)
    recorded.reached = tuple(reached)
    return recorded


_RECORDERS: dict[Primitive, Callable[[Any, Program], RecordedRule]] = {
    primitives["custom_jvp"]: _record_jvp, primitives["custom_vjp"]: _record_vjp}


# --- in files ---------------------------------------------------------------------------------------------------------


_PROGRAMS = {RecordedJvp: ("program",), RecordedVjp: ("forward_program", "backward_program")}


def rule_to_json(rule: RecordedRule, program: Callable[[Program], Any]) -> dict[str, Any]:
    """Return the JSON form of a rule; `program` makes that of a program."""
    form: dict[str, Any] = {"kind": type(rule).__name__, "name": rule.name, "captured": rule.captured}
    if isinstance(rule, RecordedVjp):
        form |= {"outputs": rule.outputs, "reached": [*rule.reached]}
    return {**form, **{name: program(getattr(rule, name)) for name in _PROGRAMS[type(rule)]}}


def rule_from_json(form: Any, where: str) -> RecordedRule:
    """Return the rule of a JSON form, without its programs; raise `ProgramSyntaxError` for any other form."""
    found = form if isinstance(form, dict) else {}

    def field(name: str, kind: type) -> Any:
        value: Any = found.get(name)
        if type(value) is not kind or (type(value) is int and not 0 <= value < 1 << 31):
            raise ProgramSyntaxError(f"{where}.{name}: {value!r} is not what a rule has there")
        return value

    kind, name, captured = field("kind", str), field("name", str), field("captured", int)
    if kind == "RecordedJvp":
        return RecordedJvp(name, captured)
    if kind != "RecordedVjp":
        raise ProgramSyntaxError(f"{where}.kind: there is no kind {kind!r} of rules")
    rule = RecordedVjp(name, captured, field("outputs", int))
    rule.reached = tuple([each is True for each in field("reached", list)])
    return rule


def read_rule_programs(rule: RecordedRule, form: dict[str, Any], program: Callable[[Any], Program]) -> None:
    """Set the programs of a rule from its JSON form; `program` reads one."""
    for name in _PROGRAMS[type(rule)]:
        setattr(rule, name, program(form.get(name)))


def require_fitting_rules(main: Program, rules: Sequence[RecordedRule]) -> None:
    """Raise `ProgramSyntaxError` for a rule, in `main` or in programs of rules, of other types than its function."""
    outer = [main, *(getattr(rule, name) for rule in rules for name in _PROGRAMS[type(rule)])]
    for equation in (each for program in outer for inner in inner_first(program) for each in inner.equations):
        rule = user_rule(equation)
        if rule is None:
            continue
        if (_RECORDERS[equation.primitive] is _record_jvp) is not isinstance(rule, RecordedJvp):
            raise ProgramSyntaxError(f"the rule of {getattr(rule, 'name', rule)} is none of {equation.primitive.name}")
        rule.require_fit(equation.params["program"])
