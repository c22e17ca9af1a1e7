"""Values and gradients in one program: forward through the equations, then backward, by what is known of each.

What reverse mode does for an operation on operands of given types is found once, by linearizing and transposing a
program of that one equation, and is kept as two small programs: forward (operands -> outputs and residuals) and
backward (residuals and cotangents of outputs -> cotangents of operands). The joint program is put together of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any

from fxgrad.engine.caches import Cache, cached
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import NO_TANGENT, infer
from fxgrad.engine.core.program import COTANGENT, PRIMAL, Atom, Equation, Origin, Program, Var
from fxgrad.engine.core.sources import sources
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.core.told import param_key
from fxgrad.engine.derivation.consultation import batched_axis, spmd_names
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.derivation.simplify import simplify, without_dead_code, without_repetition
from fxgrad.engine.derivation.simplifying import SimplifyingTape, Template
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.space import instantiate
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.tracing.trace import WRITTEN, trace
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transforms.linearize import TangentHalf, linearize_in_place, pull_back


def grad_program(program: Program, wrt: tuple[bool, ...], with_outputs: bool, computed: int = 0) -> Derived:
    """The joint program inputs -> ([outputs,] gradients), with cotangent 1 for output 0 and none for the others.

    For `computed`, see `derive`.
    """
    def build(*primals: Any) -> tuple[list[Any], None]:
        # Else cotangents that belong together would come apart. Known values are told by the equations that are there.
        simple = without_repetition(program) if computed else simplify(program)
        one = Literal(1, program.out_avals[0])
        cotangents = [one, *(Zero(aval) for aval in program.out_avals[1:])]
        outputs, gradients = joint(simple, primals, cotangents, wrt)
        return [*(outputs if with_outputs else ()), *gradients], None

    return derive(program, ("grad", wrt, with_outputs), build, program.in_avals, computed)


def joint(program: Program, primals: Sequence[Any], cotangents: Sequence[Any], wrt: Sequence[bool],
          ) -> tuple[list[Any], list[Any]]:
    """The outputs of `program`, and the cotangents of the inputs that `wrt` marks, recorded on the current tape.

    `cotangents` belong to the outputs and may be `Zero`.
    """
    tape = current.get()
    assert type(tape) is SimplifyingTape
    # On the way there are no tracers, but the variables and literals that they stand for.
    environment: dict[Atom, Any] = dict(zip(program.inputs, map(tape.atom, primals), strict=True))
    active: set[Atom] = {var for var, marked in zip(program.inputs, wrt, strict=True) if marked}
    sums: dict[Atom, Any] = {}
    noting = tape.origins is not None
    if noting:
        _note(tape, environment, PRIMAL, program, program.inputs)
    with sources("forward" if noting else None) as at:
        steps = _forward(tape, program, environment, active, at)
    with sources("backward" if noting else None) as at:
        reaching = [(atom, cotangent) for atom, cotangent in zip(program.outputs, cotangents, strict=True)
                    if atom in active]
        _accumulate(tape, sums, [atom for atom, _ in reaching], _bare(tape, [value for _, value in reaching]))
        for equation, way, residuals, operands in reversed(steps):
            if noting:
                _note(tape, sums, COTANGENT, program, equation.outputs)
            arriving = _arriving(sums, equation.outputs, way.reached)
            if arriving is not None:
                at(equation)
                _accumulate(tape, sums, operands, way.back(tape, residuals, arriving))
    if noting:
        _note(tape, sums, COTANGENT, program, program.inputs)
    gradients = [instantiate(tape.value_of(sums.get(var, Zero(var.aval))))
                 for var, marked in zip(program.inputs, wrt, strict=True) if marked]
    return [tape.value_of(environment.get(atom, atom)) for atom in program.outputs], gradients


def _forward(tape: SimplifyingTape, program: Program, environment: dict[Atom, Any], active: set[Atom],
             at: Callable[[Equation], None]) -> list[_Step]:
    """Records the equations of `program` and what their ways back need; those that cotangents go back through."""
    steps: list[_Step] = []
    unrepeatable = batched_axis.get() is not None or bool(spmd_names.get())
    noting = tape.origins is not None
    way: Rules | _Once
    for equation in program.equations:
        at(equation)
        inputs, variables = equation.inputs, equation.outputs
        values = [*map(environment.get, inputs, inputs)]  # literals stand for themselves
        if active.isdisjoint(inputs) or equation.primitive.jvp is NO_TANGENT:
            outputs = tape.outputs_of(equation.primitive, values, equation.params)
        else:
            given = dict(zip(inputs, values))  # noqa: B905  (an operand that stands twice is one)
            if Literal in map(type, inputs):
                given = {atom: value for atom, value in given.items() if type(atom) is Var}
            marks = [*map(active.__contains__, given)]
            rules = None if unrepeatable else rules_of(equation, given, marks)
            if rules is None:
                outputs, residuals, way = _once(tape, equation, given, marks)
            else:
                outputs, way = tape.instantiate(rules.forward, [*given.values()]), rules
                residuals = outputs[len(variables):]
            active.update(variables if False not in way.reached else compress(variables, way.reached))
            steps.append((equation, way, residuals, [*compress(given, marks)]))
        if len(variables) == 1:
            environment[variables[0]] = outputs[0]
        else:
            environment.update(zip(variables, outputs))  # noqa: B905  (residuals may follow)
        if noting:
            _note(tape, environment, PRIMAL, program, variables)
    return steps


def _note(tape: SimplifyingTape, values: Mapping[Atom, Any], role: str, program: Program, variables: list[Var]) -> None:
    """As `note`, of variables of a tape that takes notes; those of `variables` that have no value are passed over."""
    assert tape.origins is not None
    for variable in variables:
        value = values.get(variable)
        if type(value) is Var:
            tape.origins.setdefault(value, []).append(Origin(role, program, variable))


def _arriving(sums: dict[Atom, Any], variables: list[Var], reached: Sequence[bool]) -> list[Any] | None:
    """The cotangents of those outputs of an equation that are reached, taken from `sums`; None if there are none."""
    if len(variables) == 1:
        cotangent = sums.pop(variables[0], None)
        return None if cotangent is None else [cotangent]
    cotangents = [sums.pop(var, None) for var in variables]
    if cotangents.count(None) == len(cotangents):
        return None
    return [Zero(var.aval) if cotangent is None else cotangent
            for var, cotangent, marked in zip(variables, cotangents, reached, strict=True) if marked]


def _accumulate(tape: SimplifyingTape, sums: dict[Atom, Any], atoms: Sequence[Atom], cotangents: Sequence[Any]) -> None:
    for atom, cotangent in zip(atoms, cotangents, strict=True):
        if type(cotangent) is not Zero:
            before = sums.get(atom)
            if before is None:
                sums[atom] = cotangent
            else:
                sums[atom], = tape.instantiate(_sum(before.aval, cotangent.aval), [before, cotangent])


def _bare(tape: SimplifyingTape, values: Sequence[Any]) -> list[Any]:
    """The variables that tracers stand for, in their place; literals and symbolic zeros stay."""
    return [value if type(value) is Zero else tape.atom(value) for value in values]


class _Once:
    """The way back through an operation whose rules may do what no program can repeat."""

    __slots__ = ("half", "reached")

    def __init__(self, half: TangentHalf) -> None:
        self.half, self.reached = half, half.reached

    def back(self, tape: SimplifyingTape, residuals: Sequence[Any], reaching: Sequence[Any]) -> list[Any]:
        """The cotangents of the operands, given those of the outputs that are reached."""
        return _bare(tape, pull_back(self.half, residuals, [tape.value_of(cotangent) for cotangent in reaching]))


def _once(tape: SimplifyingTape, equation: Equation, given: dict[Atom, Any], marks: list[bool],
          ) -> tuple[list[Any], list[Any], _Once]:
    """The outputs of an equation, its residuals, and the way back."""
    alone = Program([*given], [equation], equation.outputs)  # type: ignore[list-item]
    outputs, residuals, half = linearize_in_place(alone, [tape.value_of(atom) for atom in given.values()], marks)
    return _bare(tape, outputs), residuals, _Once(half)


# --- what is known of operations ------------------------------------------------------------------------------------


class Rules:
    """Both directions of one operation on operands of given types."""

    __slots__ = ("_backward", "_half", "_residuals", "forward", "reached")

    def __init__(self, forward: Template, half: TangentHalf, residuals: Sequence[Aval]) -> None:
        self.forward, self._half, self.reached = forward, half, half.reached
        self._residuals = residuals
        self._backward: dict[Any, tuple[Template, list[Zero | None]]] = {}

    def back(self, tape: SimplifyingTape, residuals: Sequence[Any], reaching: Sequence[Any]) -> Sequence[Any]:
        """The cotangents of the operands, given those of the outputs that are reached."""
        template, zeros = self.way_back(reaching)
        results = tape.instantiate(template, [*residuals, *[value for value in reaching if type(value) is not Zero]])
        if len(results) == len(zeros):
            return results
        remaining = iter(results)
        return [next(remaining) if zero is None else zero for zero in zeros]

    def way_back(self, reaching: Sequence[Any]) -> tuple[Template, list[Zero | None]]:
        """What leads from residuals and the present cotangents, of the types of `reaching`, to those of the operands.

        And for each operand the zero that its cotangent is, if it is one.
        """
        key = reaching[0].aval if len(reaching) == 1 else tuple(
            [None if type(value) is Zero else value.aval for value in reaching])
        way = self._backward.get(key)
        if way is None:
            way = self._backward[key] = self._find_way(reaching)
        return way

    def _find_way(self, reaching: Sequence[Any]) -> tuple[Template, list[Zero | None]]:
        zeros: list[Zero | None] = []
        present = [value for value in reaching if type(value) is not Zero]
        count = len(self._residuals)

        def build(*values: Any) -> list[Any]:
            arriving = iter(values[count:])
            results = pull_back(self._half, values[:count],
                                [value if type(value) is Zero else next(arriving) for value in reaching])
            zeros.extend(result if type(result) is Zero else None for result in results)
            return [result for result in results if type(result) is not Zero]

        return _template(build, [*self._residuals, *(value.aval for value in present)]), zeros


_Step = tuple[Equation, Rules | _Once, list[Any], list[Atom]]
"""An equation that cotangents go back through: its way back, the residuals, and the operands that it leads to."""

_LIMIT = 4096
_rules = Cache("rules of operations", _LIMIT)
_UNKNOWN = object()


def rules_of(equation: Equation, given: dict[Atom, Any], marks: Sequence[bool]) -> Rules | None:
    """What is known of an operation, found if it is new; None if its rules may do what no program can repeat."""
    primitive, params = equation.primitive, equation.params
    # Operands are known by their places, and those that cotangents go to by their number.
    if len(given) == len(equation.inputs):
        pattern: Sequence[Any] = marks
    else:
        place: dict[Atom, Any] = {var: (number, marks[number]) for number, var in enumerate(given)}
        pattern = [atom if type(atom) is Literal else place[atom] for atom in equation.inputs]
    avals = [value.aval for value in given.values()]
    key = (primitive, *pattern, *avals, *param_key(primitive, params)) if params else (primitive, *pattern, *avals)
    rules: Any = _rules.get(key, _UNKNOWN)
    if rules is _UNKNOWN:
        if primitive.effectful or primitive.collective or primitive.regions is not None:
            return None
        rules = _rules.add(key, _find_rules(equation, given, marks, avals))
    return rules  # type: ignore[no-any-return]


def _find_rules(equation: Equation, given: dict[Atom, Any], marks: Sequence[bool], avals: list[Aval]) -> Rules | None:
    primitive, params = equation.primitive, equation.params
    variables: dict[Atom, Var] = dict(zip(given, map(Var, avals), strict=True))
    inputs = [atom if type(atom) is Literal else variables[atom] for atom in equation.inputs]
    outputs = [*map(Var, infer(primitive, [atom.aval for atom in inputs], params))]
    program = Program([*variables.values()], [Equation(primitive, inputs, params, outputs)], outputs)
    halves: list[TangentHalf] = []

    def build(*primals: Any) -> list[Any]:
        results, residuals, half = linearize_in_place(program, primals, marks)
        halves.append(half)
        return [*results, *residuals]

    forward = _template(build, avals)
    if any(type(value) is Tracer for value in forward.captured):
        return None
    return Rules(forward, halves[0], forward.program.out_avals[len(outputs):])


def _template(build: Callable[..., Sequence[Any]], avals: Sequence[Aval]) -> Template:
    program, captured = trace(build, avals, mode=WRITTEN, tape_class=SimplifyingTape,
                              name="rules of an operation")
    return Template(without_dead_code(program), captured)


@cached("sums of cotangents", _LIMIT)
def _sum(aval: Aval, other: Aval) -> Template:
    """The addition of cotangents of these types."""
    return _template(lambda first, second: [add(first, second)], [aval, other])
