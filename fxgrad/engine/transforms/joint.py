"""Joint programs: values and gradients in one, forward through the equations and then backward.

A `VjpRule` is the reverse-mode derivative of one operation on operands of given types. It is derived once, by
linearizing and transposing a program of that one equation, and consists of two templates: forward (operands -> outputs
and residuals) and backward (residuals and cotangents of outputs -> cotangents of operands). Joint programs consist of
these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

from fxgrad.engine.caches import BoundedDict, Cache, cached
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.cache_keys import param_key
from fxgrad.engine.core.primitive import NO_TANGENT, infer_types
from fxgrad.engine.core.program import COTANGENT, PRIMAL, Atom, Equation, Program, Provenance, Variable
from fxgrad.engine.core.program_properties import (
    ProgramAttribute,
    calls_user_code,
    has_effects,
    memoize,
    program_property,
    used_axes,
)
from fxgrad.engine.core.sources import at_source
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.core.walk import BackwardStep, pull_back_steps
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.derivation.guards import batched_axis, spmd_names
from fxgrad.engine.derivation.simplify import merge_equal_equations, remove_dead_code, simplify
from fxgrad.engine.derivation.simplifying import SimplifyingTape, Template
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.structural import cotangent_of
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transforms.linearize import Linearized, linearize_in_place, pull_back


def grad_program(program: Program, wrt: tuple[bool, ...], with_outputs: bool, computed: int = 0) -> Derived:
    """Return the joint program inputs -> ([outputs,] gradients), with cotangent 1 for output 0, 0 for the others.

    For `computed`, see `derive`.
    """
    def build(*primals: Any) -> tuple[list[Any], None]:
        # Uses of equal values must add to one cotangent. But computed values are matched to the equations that computed
        # them, so these equations stay.
        simple = merge_equal_equations(program) if computed else simplify_once(program)
        one = Literal(1, program.out_avals[0])
        cotangents = [one, *(Zero(aval) for aval in program.out_avals[1:])]
        outputs, gradients = record_joint(simple, primals, cotangents, wrt)
        return [*(outputs if with_outputs else ()), *gradients], None

    return derive(program, ("grad", wrt, with_outputs), build, program.in_avals, computed)


def simplify_once(program: Program) -> Program:
    """Return `simplify(program)`, kept on the program: what runs it directly leaves it to its gradient program."""
    simple = _SIMPLE.of(program)
    if simple is None:
        found = simplify(program)
        # A program that refers to itself would stay in memory until Python's cyclic collector runs.
        simple = _SIMPLE.put(program, _ITSELF if found is program else found)
    return program if simple is _ITSELF else simple


_ITSELF = Program([], [], [])
_SIMPLE: ProgramAttribute[Program] = ProgramAttribute("simple")


def record_joint(program: Program, primals: Sequence[Any], cotangents: Sequence[Any], wrt: Sequence[bool],
                 ) -> tuple[list[Any], list[Any]]:
    """Record `program` and its backward pass on the current tape; return outputs, and cotangents where `wrt` marks.

    `cotangents` belong to the outputs and may be `Zero`.
    """
    tape = current.get()
    assert type(tape) is SimplifyingTape
    # Values are variables and literals of the tape instead of tracers: that is faster.
    environment: dict[Atom, Any] = dict(zip(program.inputs, map(tape.atom, primals), strict=True))
    active: set[Atom] = {var for var, marked in zip(program.inputs, wrt, strict=True) if marked}
    sums: dict[Atom, Any] = {}
    noting = tape.origins is not None
    if noting:
        _note_provenance(tape, environment, PRIMAL, program, program.inputs)
    with at_source("forward" if noting else None) as at:
        steps = _record_forward(tape, program, environment, active, at)
    with at_source("backward" if noting else None) as at:
        def backward_steps() -> Iterator[BackwardStep]:
            for equation, outputs, rule, residuals, operands in reversed(steps):
                if noting:
                    _note_provenance(tape, sums, COTANGENT, program, equation.outputs)
                at(equation)
                yield outputs, operands, partial(rule.pullback, tape, residuals)

        def add_atoms(one: Atom, other: Atom) -> Any:
            return tape.instantiate(_addition(one.aval, other.aval), [one, other])[0]

        pull_back_steps(sums, program.outputs, [
            tape.atom(cotangent) if atom in active and type(cotangent) is not Zero else None
            for atom, cotangent in zip(program.outputs, cotangents, strict=True)], backward_steps(), add_atoms)
    if noting:
        _note_provenance(tape, sums, COTANGENT, program, program.inputs)
    differentiated = [aval for aval, cotangent in zip(program.out_avals, cotangents, strict=True)
                      if type(cotangent) is not Zero]
    gradients = [cotangent_of(var.aval, tape.value_of(sums.get(var, Zero(var.aval))), differentiated)
                 for var, marked in zip(program.inputs, wrt, strict=True) if marked]
    return [tape.value_of(environment.get(atom, atom)) for atom in program.outputs], gradients


def _record_forward(tape: SimplifyingTape, program: Program, environment: dict[Atom, Any], active: set[Atom],
                    at: Callable[[Equation], None]) -> list[_Step]:
    """Record the equations of `program` and their residuals; return the steps of the backward pass."""
    steps: list[_Step] = []
    unrepeatable = batched_axis.get() is not None or bool(spmd_names.get())
    noting = tape.origins is not None
    for equation in program.equations:
        at(equation)
        inputs, variables = equation.inputs, equation.outputs
        values = [*map(environment.get, inputs, inputs)]  # literals map to themselves
        if active.isdisjoint(inputs) or equation.primitive.jvp is NO_TANGENT:
            outputs = tape.outputs_of(equation.primitive, values, equation.params)
        else:
            given = dict(zip(inputs, values))  # noqa: B905  (an operand that stands twice is one)
            if Literal in map(type, inputs):
                given = {atom: value for atom, value in given.items() if type(atom) is Variable}
            marks = [*map(active.__contains__, given)]
            # Programs that take notes show where the equations inside of a library function come from.
            known = None if unrepeatable or (noting and equation.primitive.regions is not None) else vjp_rule_of(
                equation, [*given], [value.aval for value in given.values()], marks)  # type: ignore[list-item]
            rule: VjpRule | _UncachedPullback
            if known is None:
                alone = Program([*given], [equation], equation.outputs)  # type: ignore[list-item]
                values = [tape.value_of(atom) for atom in given.values()]
                made, residuals, half = linearize_in_place(alone, values, marks)
                outputs, rule = [*map(tape.atom, made)], _UncachedPullback(half)
            else:
                outputs, rule = tape.instantiate(known.forward, [*given.values()]), known
                residuals = outputs[len(variables):]
            nonzero = rule.nonzero_outputs
            moving = variables if False not in nonzero else [*compress(variables, nonzero)]
            active.update(moving)
            steps.append((equation, moving, rule, residuals, [*compress(given, marks)]))
        if len(variables) == 1:
            environment[variables[0]] = outputs[0]
        else:
            environment.update(zip(variables, outputs))  # noqa: B905  (residuals may follow)
        if noting:
            _note_provenance(tape, environment, PRIMAL, program, variables)
    return steps


def _note_provenance(tape: SimplifyingTape, values: Mapping[Atom, Any], role: str, program: Program,
                     variables: list[Variable]) -> None:
    """Note the provenance of variables of a tape that takes notes; skip those of `variables` that have no value."""
    assert tape.origins is not None
    for variable in variables:
        value = values.get(variable)
        if type(value) is Variable:
            tape.origins.setdefault(value, []).append(Provenance(role, program, variable))


class _UncachedPullback:
    """The pullback of an operation whose rules may do what no program can repeat, such as run user code."""

    __slots__ = ("_half", "nonzero_outputs")

    def __init__(self, half: Linearized) -> None:
        self._half, self.nonzero_outputs = half, half.nonzero_outputs

    def pullback(self, tape: SimplifyingTape, residuals: Sequence[Any], *out_cotangents: Any) -> list[Any]:
        """Return the cotangents of the operands, given those of `nonzero_outputs`; None stands for zero."""
        return [None if type(cotangent) is Zero else tape.atom(cotangent) for cotangent in pull_back(
            self._half, residuals, [*map(tape.value_of, out_cotangents)])]


# --- rules of operations --------------------------------------------------------------------------------------------


class VjpRule:
    """The forward template and the pullback of one operation on operands of given types.

    `forward` computes outputs and residuals. Cotangents of outputs that `nonzero_outputs` does not mark are dropped.
    """

    __slots__ = ("_backward", "_half", "_residuals", "all_nonzero", "forward", "nonzero_outputs", "of_one")

    of_one: BackwardTemplate | None
    """The backward template for a cotangent of the type of the only output; None before its first use."""

    def __init__(self, forward: Template, half: Linearized, residuals: Sequence[Aval]) -> None:
        self.forward, self._half, self.nonzero_outputs = forward, half, half.nonzero_outputs
        self._residuals, self.all_nonzero = residuals, False not in half.nonzero_outputs
        self._backward = BoundedDict(64)  # by the types of the cotangents
        self.of_one = None

    def pullback(self, tape: SimplifyingTape, residuals: Sequence[Any], *out_cotangents: Any) -> Sequence[Any]:
        """Return the cotangents of the operands, given those of `nonzero_outputs`; None stands for zero."""
        present: Sequence[Any] = out_cotangents
        if len(present) == 1:
            template, nonzero = self.backward((present[0].aval,))
        else:
            template, nonzero = self.backward(tuple([
                None if cotangent is None else cotangent.aval for cotangent in out_cotangents]))
            present = [cotangent for cotangent in out_cotangents if cotangent is not None]
        results = tape.instantiate(template, [*residuals, *present])
        if len(results) == len(nonzero):
            return results
        remaining = iter(results)
        return [next(remaining) if marked else None for marked in nonzero]

    def backward_of_one(self, aval: Aval) -> BackwardTemplate:
        """Return the backward template for a cotangent of type `aval`, that of the only output, and keep it at hand."""
        self.of_one = self.backward((aval,))
        return self.of_one

    def backward(self, avals: tuple[Aval | None, ...]) -> BackwardTemplate:
        """Return the backward template for cotangents of the types `avals`, where None stands for zero."""
        found: BackwardTemplate | None = self._backward.get(avals)
        if found is None:
            nonzero: list[bool] = []
            count = len(self._residuals)

            def build(*values: Any) -> list[Any]:
                present = iter(values[count:])
                results = pull_back(self._half, values[:count],
                                    [None if aval is None else next(present) for aval in avals])
                nonzero.extend(type(result) is not Zero for result in results)
                return [*compress(results, nonzero)]

            template = _template(build, [*self._residuals, *(aval for aval in avals if aval is not None)])
            found = self._backward[avals] = BackwardTemplate(template, nonzero)
        return found


class BackwardTemplate(NamedTuple):
    """(residuals, cotangents of outputs that are not zero) -> cotangents of the operands that `nonzero` marks."""

    template: Template
    nonzero: list[bool]


_Step = tuple[Equation, list[Variable], VjpRule | _UncachedPullback, list[Any], list[Atom]]
"""An equation, its outputs with tangents, its rule, its residuals, and the operands that receive cotangents."""

_LIMIT = 4096
_rules = Cache("rules of operations", _LIMIT)
_UNKNOWN = object()


def vjp_rule_of(equation: Equation, given: Sequence[Variable], avals: list[Aval], marks: Sequence[bool],
                ) -> VjpRule | None:
    """Return the rule of an operation, derived if it is new; None if its rules may do what no program can repeat.

    `given` are the variables among its operands, each once; of these, of types `avals`, `marks` are differentiated.
    """
    primitive, params = equation.primitive, equation.params
    # The key lists operands by index, and the differentiated ones by their number.
    if len(given) == len(equation.inputs):
        pattern: Sequence[Any] = marks
    else:
        place: dict[Atom, Any] = {var: (number, marks[number]) for number, var in enumerate(given)}
        pattern = [atom if type(atom) is Literal else place[atom] for atom in equation.inputs]
    key = (primitive, *pattern, *avals, *param_key(primitive, params)) if params else (primitive, *pattern, *avals)
    if primitive.regions is not None:
        program = _inlined_program(equation)
        if program is None:
            return None
        return memoize(program, ("rule of a call", *key), lambda: _find_rule(equation, given, marks, avals))
    rule: Any = _rules.get(key, _UNKNOWN)
    if rule is _UNKNOWN:
        rule = _rules.add(key, _find_rule(equation, given, marks, avals)) if may_have_rule(equation) else None
    return rule  # type: ignore[no-any-return]


def may_have_rule(equation: Equation) -> bool:
    """Return whether the rules of an operation repeat: no effects, no user code, no program but a library function."""
    primitive = equation.primitive
    if primitive.regions is None:
        return not (primitive.effectful or primitive.collective)
    return _inlined_program(equation) is not None


def _inlined_program(equation: Equation) -> Program | None:
    """Return the program of a library function that an operation stands for; None for other operations."""
    regions = equation.regions
    is_one = len(regions) == 1 and regions[0].role == "inline" and _repeats(regions[0].program)
    return regions[0].program if is_one else None


@program_property
def _repeats(program: Program) -> bool:
    """Return whether a rule may stand for the program of a library function: it has no lines and scopes of a user's."""
    return not (has_effects(program) or calls_user_code(program) or used_axes(program)) and all(
        equation.source is None for equation in program.equations)


def _find_rule(equation: Equation, given: Sequence[Variable], marks: Sequence[bool], avals: list[Aval],
               ) -> VjpRule | None:
    primitive, params = equation.primitive, equation.params
    variables: dict[Atom, Variable] = dict(zip(given, map(Variable, avals), strict=True))
    inputs = [atom if type(atom) is Literal else variables[atom] for atom in equation.inputs]
    outputs = [*map(Variable, infer_types(primitive, [atom.aval for atom in inputs], params))]
    program = Program([*variables.values()], [Equation(primitive, inputs, params, outputs)], outputs)
    halves: list[Linearized] = []

    def build(*primals: Any) -> list[Any]:
        results, residuals, half = linearize_in_place(program, primals, marks)
        halves.append(half)
        return [*results, *residuals]

    forward = _template(build, avals)
    if any(type(value) is Tracer for value in forward.captured):
        return None
    return VjpRule(forward, halves[0], forward.program.out_avals[len(outputs):])


def _template(build: Callable[..., Sequence[Any]], avals: Sequence[Aval]) -> Template:
    program, captured = trace_at(build, avals, mode=WITH_LITERALS, tape_class=SimplifyingTape,
                                 name="rules of an operation")
    return Template(remove_dead_code(program), captured)


@cached("sums of cotangents", _LIMIT)
def _addition(aval: Aval, other: Aval) -> Template:
    """Return the template that adds cotangents of these types."""
    return _template(lambda first, second: [add(first, second)], [aval, other])
