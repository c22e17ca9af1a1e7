"""Derivatives of users' custom functions in files: the programs that their rules record, in place of Python code."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.errors import FxgradError, ProgramSyntaxError, UnsupportedError
from fxgrad.extend import (
    Aval,
    Equation,
    Interpreter,
    Primitive,
    Program,
    Zero,
    apply,
    aval_of,
    bind_equation,
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

    def require_fit_of(self, equation: Equation) -> None:
        """Raise `ProgramSyntaxError` unless the program has the types of a rule of the operation."""
        function = equation.params["program"]
        moving = [aval for aval in function.in_avals[self.captured:] if has_tangent(aval)]
        _require_types(self.name, self.program, [*function.in_avals, *moving], [*function.out_avals] * 2)

    def __repr__(self) -> str:
        return f"<{self.name}>"


class RecordedTangent:
    """The rule of the tangents of a `custom_vjp` operation, `custom_vjp_tangent`, whose transpose is the backward pass.

    `backward_program` takes residuals and the cotangents of those outputs that have one, and returns cotangents of the
    primals that are `reached`. If the rule gives tangents, `tangents_program` takes residuals and the tangents of those
    primals that have one, and returns tangents of the outputs. As above, the programs are set later.
    """

    backward_program: Program
    tangents_program: Program | None = None
    reached: tuple[bool, ...]

    def __init__(self, name: str, captured: int) -> None:
        self.name, self.captured = name, captured

    def backward(self, structure: Any, residuals: Flat, cotangents: Flat) -> list[Any]:  # noqa: ARG002
        """Return a cotangent for every primal; None where it is zero."""
        found = iter(apply(self.backward_program, [*residuals, *_differentiable(cotangents)]))
        return [next(found) if reached else None for reached in self.reached]

    @property
    def gives_tangents(self) -> bool:
        """Whether the rule has a program of tangents."""
        return self.tangents_program is not None

    def tangents(self, structure: Any, residuals: Flat, tangents: Flat) -> list[Any]:  # noqa: ARG002
        """Return the tangents of the outputs."""
        assert self.tangents_program is not None
        return apply(self.tangents_program, [*residuals, *_differentiable(tangents[self.captured:])])

    def require_fit(self, residuals: Sequence[Aval], takes: Sequence[Aval], returns: Sequence[Aval]) -> None:
        """Raise `ProgramSyntaxError` unless the programs have the types of a rule of a function of these types."""
        if len(self.reached) != len(takes):
            raise ProgramSyntaxError(f"the rule of {self.name} has another number of arguments")
        arriving = [aval for aval in returns if has_tangent(aval)]
        leaving = [*itertools.compress(takes, self.reached)]
        _require_types(self.name, self.backward_program, [*residuals, *arriving], leaving)
        if self.tangents_program is not None:
            moving = [aval for aval in takes[self.captured:] if has_tangent(aval)]
            _require_types(self.name, self.tangents_program, [*residuals, *moving], returns)

    def require_fit_of(self, equation: Equation) -> None:
        """Raise `ProgramSyntaxError` unless the programs have the types of a rule of the operation."""
        params = equation.params
        count = len(equation.inputs) - sum(params["moving"])
        self.require_fit([atom.aval for atom in equation.inputs[:count]], params["in_avals"], params["out_avals"])

    def __repr__(self) -> str:
        return f"<{self.name}>"


class RecordedVjp(RecordedTangent):
    """The rule of a `custom_vjp` operation with so many `outputs`.

    `forward_program` takes primals, and returns outputs and residuals.
    """

    forward_program: Program

    def __init__(self, name: str, captured: int, outputs: int) -> None:
        super().__init__(name, captured)
        self.outputs = outputs

    def forward(self, primals: Flat, moving: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:  # noqa: ARG002
        """Return outputs, residuals, and None for their structure."""
        results = apply(self.forward_program, primals)
        return results[:self.outputs], results[self.outputs:], None

    def require_fit_of(self, equation: Equation) -> None:
        """Raise `ProgramSyntaxError` unless the programs have the types of a rule of the operation."""
        function = equation.params["program"]
        if self.outputs != len(function.out_avals):
            raise ProgramSyntaxError(f"the rule of {self.name} has another number of results")
        residuals = self.forward_program.out_avals[self.outputs:]
        _require_types(self.name, self.forward_program, function.in_avals, [*function.out_avals, *residuals])
        self.require_fit(residuals, function.in_avals, function.out_avals)


RecordedRule = RecordedJvp | RecordedTangent


def _differentiable(tangents: Flat) -> list[Any]:
    """Return the tangents, or cotangents, of values that have one; zeros as arrays."""
    return [instantiate_zeros(each) for each in tangents if has_tangent(
        each.aval if type(each) is Zero else aval_of(each))]


def _require_types(name: str, program: Program, takes: Sequence[Aval], returns: Sequence[Aval]) -> None:
    taken = program.in_avals[program.captured:]
    for what, found, needed in ("takes", taken, takes), ("returns", program.out_avals, returns):
        if [aval.strong() for aval in found] != [aval.strong() for aval in needed]:
            raise ProgramSyntaxError(f"the rule of {name} {what} ({', '.join(map(str, found))}), where its function "
                                     f"asks for ({', '.join(map(str, needed))})")


# --- from rules that are Python code ----------------------------------------------------------------------------------


def user_rule(equation: Equation) -> Any:
    """Return the rule of a custom function's operation, or its tangents', that is Python code, or was; or else None."""
    rule = equation.params.get("rule")
    # A rule of the library's own is a tuple, which files hold by name.
    return None if equation.primitive not in _KINDS or isinstance(rule, tuple) else rule


def rule_key(equation: Equation) -> Any:
    """Return a key equal only for operations whose `user_rule` is stored once."""
    if _KINDS[equation.primitive] is not RecordedTangent:
        return equation.params["rule"]
    # One rule has tangents of several kinds: with other residuals, or of other arguments.
    return *equation.params.items(), *(atom.aval for atom in equation.inputs)


def record_rule(equation: Equation) -> RecordedRule:
    """Return the programs of an operation's `user_rule`.

    Raises `UnsupportedError` if the rule cannot be recorded for these types, as one that branches on values.
    """
    rule, kind = equation.params["rule"], _KINDS[equation.primitive]
    if type(rule) is kind:
        return rule
    try:
        return _RECORDERS[kind](rule, equation)
    except FxgradError as error:
        raise UnsupportedError(
            f"save: the derivative of {rule.name} is Python code that cannot be recorded without values, and a file "
            f"holds programs alone. Save the gradient, in which the rule has been applied. The reason: {error}"
        ) from error


def _record(function: Callable[..., Sequence[Any]], avals: Sequence[Aval], rule: Any) -> Program:
    traced = trace_flat(lambda *values: list(function(*values)), avals, "save", rule.name, mode=WITH_LITERALS)
    return traced.program.replace(constants=traced.captured)


def _record_jvp(rule: Any, equation: Equation) -> RecordedJvp:
    function = equation.params["program"]
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


def _record_vjp(rule: Any, equation: Equation) -> RecordedVjp:
    function = equation.params["program"]
    avals, captured = function.in_avals, getattr(rule, "captured", 0)
    moving = tuple(place >= captured and has_tangent(aval) for place, aval in enumerate(avals))
    structures: list[Any] = []

    def forward(*values: Any) -> list[Any]:
        outputs, residuals, structure = rule.forward([*values], moving)
        structures.append(structure)
        return [*outputs, *residuals]
    recorded = RecordedVjp(rule.name, captured, len(function.out_avals))
    recorded.forward_program = _record(forward, avals, rule)
    _record_backward(recorded, rule, structures[-1], recorded.forward_program.out_avals[recorded.outputs:], avals,
                     function.out_avals)
    return recorded


def _record_tangent(rule: Any, equation: Equation) -> RecordedTangent:
    params = equation.params
    count = len(equation.inputs) - sum(params["moving"])
    recorded = RecordedTangent(rule.name, getattr(rule, "captured", 0))
    _record_backward(recorded, rule, params["structure"], [atom.aval for atom in equation.inputs[:count]],
                     params["in_avals"], params["out_avals"])
    return recorded


def _record_backward(recorded: RecordedTangent, rule: Any, structure: Any, residuals: Sequence[Aval],
                     takes: Sequence[Aval], returns: Sequence[Aval]) -> None:
    """Set the programs of `recorded` that take residuals, for a function of these types."""
    count = len(residuals)
    reached: list[bool] = []

    def backward(*values: Any) -> list[Any]:
        arriving = iter(values[count:])
        cotangents = [next(arriving) if has_tangent(aval) else Zero(aval) for aval in returns]
        found = rule.backward(structure, values[:count], cotangents)
        reached[:] = [each is not None and type(each) is not Zero for each in found]
        return [*itertools.compress(found, reached)]

    def tangents(*values: Any) -> list[Any]:
        arriving = iter(values[count:])
        return [*map(instantiate_zeros, rule.tangents(structure, values[:count], [
            next(arriving) if moves else Zero(aval) for aval, moves in zip(takes, moving, strict=True)]))]

    recorded.backward_program = _record(
        backward, [*residuals, *(aval.strong() for aval in returns if has_tangent(aval))], rule)
    recorded.reached = tuple(reached)
    if getattr(rule, "gives_tangents", False):
        moving = [place >= recorded.captured and has_tangent(aval) for place, aval in enumerate(takes)]
        given = [*residuals, *(aval.strong() for aval in itertools.compress(takes, moving))]
        program = _record(tangents, given, rule)
        recorded.tangents_program = _record(lambda *values: _WithoutTangents().run(program, values), given, rule)


class _WithoutTangents(Interpreter):
    """Evaluates functions whose rules give tangents by their own equations.

    The tangents of such a function may apply another one, whose tangents apply another one, and so on for ever: in a
    file the derivatives of tangents are those of the equations.
    """

    def equation(self, equation: Equation, inputs: list[Any]) -> Sequence[Any]:
        """Apply the function of such a rule, or the operation itself."""
        if "program" in equation.params and getattr(user_rule(equation), "gives_tangents", False):
            return self.run(equation.params["program"], inputs)
        return bind_equation(equation, inputs)


_KINDS: dict[Primitive, type[RecordedRule]] = {
    primitives["custom_jvp"]: RecordedJvp, primitives["custom_vjp"]: RecordedVjp,
    primitives["custom_vjp_tangent"]: RecordedTangent}
_RECORDERS: dict[type[RecordedRule], Callable[[Any, Equation], RecordedRule]] = {
    RecordedJvp: _record_jvp, RecordedVjp: _record_vjp, RecordedTangent: _record_tangent}


# --- in files ---------------------------------------------------------------------------------------------------------


_PROGRAMS = {RecordedJvp: ("program",), RecordedVjp: ("forward_program", "backward_program", "tangents_program"),
             RecordedTangent: ("backward_program", "tangents_program")}
_OPTIONAL = {"tangents_program"}


def programs_of(rule: RecordedRule) -> list[tuple[str, Program]]:
    """Return the programs of a rule with the names of their fields."""
    return [(name, found) for name in _PROGRAMS[type(rule)] if (found := getattr(rule, name)) is not None]


def rule_to_json(rule: RecordedRule, program: Callable[[Program], Any]) -> dict[str, Any]:
    """Return the JSON form of a rule; `program` makes that of a program."""
    form: dict[str, Any] = {"kind": type(rule).__name__, "name": rule.name, "captured": rule.captured}
    if isinstance(rule, RecordedVjp):
        form["outputs"] = rule.outputs
    if isinstance(rule, RecordedTangent):
        form["reached"] = [*rule.reached]
    return {**form, **{name: program(each) for name, each in programs_of(rule)}}


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
    if kind not in ("RecordedVjp", "RecordedTangent"):
        raise ProgramSyntaxError(f"{where}.kind: there is no kind {kind!r} of rules")
    rule = RecordedVjp(name, captured, field("outputs", int)) if kind == "RecordedVjp" else RecordedTangent(
        name, captured)
    rule.reached = tuple([each is True for each in field("reached", list)])
    return rule


def read_rule_programs(rule: RecordedRule, form: dict[str, Any], program: Callable[[Any], Program]) -> None:
    """Set the programs of a rule from its JSON form; `program` reads one."""
    for name in _PROGRAMS[type(rule)]:
        if name in form or name not in _OPTIONAL:
            setattr(rule, name, program(form.get(name)))


def require_fitting_rules(main: Program, rules: Sequence[RecordedRule]) -> None:
    """Raise `ProgramSyntaxError` for a rule, in `main` or in programs of rules, of other types than its function."""
    outer = [main, *(found for rule in rules for _, found in programs_of(rule))]
    for equation in (each for program in outer for inner in inner_first(program) for each in inner.equations):
        rule = user_rule(equation)
        if rule is None:
            continue
        if type(rule) is not _KINDS[equation.primitive]:
            raise ProgramSyntaxError(f"the rule of {getattr(rule, 'name', rule)} is none of {equation.primitive.name}")
        rule.require_fit_of(equation)
