"""Values and gradients in one program: forward through the equations, then backward, by what is known of each.

What reverse mode does for an operation on operands of given types is found once, by linearizing and transposing a
program of that one equation, and is kept as two small programs: forward (operands -> outputs and residuals) and
backward (residuals and cotangents of outputs -> cotangents of operands). The joint program is put together of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from fxgrad.core.avals import Aval, Literal
from fxgrad.core.interpreter import Derived, batched_axis, derive
from fxgrad.core.primitive import NO_TANGENT
from fxgrad.core.program import Atom, Equation, Program, Var, holds_programs
from fxgrad.core.simplify import SimplifyingTape, simplify, without_dead_code, without_repetition
from fxgrad.core.sources import sources
from fxgrad.core.symbolic import Zero
from fxgrad.core.tape import aval_of, bind_equation, current, infer, read, trace
from fxgrad.core.tracer import Tracer
from fxgrad.ops.pointwise import add
from fxgrad.ops.space import instantiate
from fxgrad.transforms.linearize import Split, linearize_in_place, pull_back


def grad_program(program: Program, wrt: tuple[bool, ...], with_outputs: bool, known: int = 0) -> Derived:
    """The joint program inputs -> ([outputs,] gradients), with cotangent 1 for output 0 and none for the others.

    For `known`, see `derive`.
    """
    def build(*primals: Any) -> tuple[list[Any], None]:
        # Else cotangents that belong together would come apart. Known values are told by the equations that are there.
        simple = without_repetition(program) if known else simplify(program)
        one = Literal(1, program.out_avals[0])
        cotangents = [one, *(Zero(aval) for aval in program.out_avals[1:])]
        outputs, gradients = joint(simple, primals, cotangents, wrt)
        return [*(outputs if with_outputs else ()), *gradients], None

    return derive(program, ("grad", wrt, with_outputs), build, program.in_avals, known)


def joint(program: Program, primals: Sequence[Any], cotangents: Sequence[Any], wrt: Sequence[bool],
          ) -> tuple[list[Any], list[Any]]:
    """The outputs of `program`, and the cotangents of the inputs that `wrt` marks, recorded on the current tape.

    `cotangents` belong to the outputs and may be `Zero`.
    """
    environment: dict[Var, Any] = dict(zip(program.inputs, primals, strict=True))
    active: set[Atom] = {var for var, marked in zip(program.inputs, wrt, strict=True) if marked}
    steps: list[tuple[Equation, _Pull]] = []
    with sources() as at:
        for equation in program.equations:
            at(equation)
            values = [read(environment, atom) for atom in equation.inputs]
            if active.isdisjoint(equation.inputs) or equation.primitive.jvp is NO_TANGENT:
                outputs = bind_equation(equation, values)
            else:
                outputs, pull = _forward(equation, values, active)
                active.update(var for var, reached in zip(equation.outputs, pull.reached, strict=True) if reached)
                steps.append((equation, pull))
            environment.update(zip(equation.outputs, outputs, strict=True))
        sums: dict[Atom, Any] = {}
        _accumulate(sums, active, program.outputs, cotangents)
        for equation, pull in reversed(steps):
            arriving = [sums.pop(var, None) for var in equation.outputs]
            if any(cotangent is not None for cotangent in arriving):
                at(equation)
                reaching = [Zero(var.aval) if cotangent is None else cotangent for var, cotangent, reached
                            in zip(equation.outputs, arriving, pull.reached, strict=True) if reached]
                _accumulate(sums, active, pull.operands, pull.back(reaching))
    gradients = [instantiate(sums.get(var, Zero(var.aval)))
                 for var, marked in zip(program.inputs, wrt, strict=True) if marked]
    return [read(environment, atom) for atom in program.outputs], gradients


def _accumulate(sums: dict[Atom, Any], active: set[Atom], atoms: Sequence[Atom], cotangents: Sequence[Any]) -> None:
    for atom, cotangent in zip(atoms, cotangents, strict=True):
        if atom in active and type(cotangent) is not Zero:
            sums[atom] = cotangent if atom not in sums else add(sums[atom], cotangent)


class _Pull(NamedTuple):
    """How cotangents go back through an equation: from its `reached` outputs, by `back`, to its `operands`."""

    reached: tuple[bool, ...]
    operands: list[Var]
    back: Callable[[Sequence[Any]], Sequence[Any]]


def _forward(equation: Equation, values: Sequence[Any], active: set[Atom]) -> tuple[list[Any], _Pull]:
    """The outputs of an equation, and the way back to its active operands."""
    given = {atom: value for atom, value in zip(equation.inputs, values, strict=True) if type(atom) is Var}
    wrt = [var for var in given if var in active]  # an operand that stands twice is one
    rules = _rules(equation, given, wrt)
    if rules is None:
        alone = Program([*given], [equation], equation.outputs)
        outputs, residuals, split = linearize_in_place(alone, [*given.values()], [var in active for var in given])
        return outputs, _Pull(split.reached, wrt, lambda reaching: pull_back(split, residuals, reaching))
    results = _record(rules.forward, given.values())
    count = len(equation.outputs)
    return results[:count], _Pull(rules.split.reached, wrt, lambda reaching: rules.back(results[count:], reaching))


def _record(program: _Closed, values: Iterable[Any]) -> list[Any]:
    """Applies the operations of a small program, which was found for values of these types, to others.

    Each is simplified by what is known of the values here.
    """
    tape = current.get()
    assert type(tape) is SimplifyingTape
    inner = program.program
    environment: dict[Any, Any] = dict(zip(inner.inputs, [*program.captured, *values], strict=True))
    for equation in inner.equations:
        operands = [atom if type(atom) is Literal else environment[atom] for atom in equation.inputs]
        outputs = equation.outputs
        results = tape.record(equation.primitive, operands, equation.params, None, [var.aval for var in outputs])
        if len(results) == 1:
            environment[outputs[0]] = results[0]
        else:
            environment.update(zip(outputs, results, strict=True))
    return [atom if type(atom) is Literal else environment[atom] for atom in inner.outputs]


# --- what is known of operations ------------------------------------------------------------------------------------


class _Closed(NamedTuple):
    """A program with the arrays that its rules made."""

    program: Program
    captured: list[Any]


class _Rules:
    """Both directions of one operation on operands of given types."""

    __slots__ = ("_backward", "forward", "split")

    def __init__(self, forward: _Closed, split: Split) -> None:
        self.forward, self.split = forward, split
        self._backward: dict[Any, tuple[_Closed, list[Zero | None]]] = {}

    def back(self, residuals: Sequence[Any], reaching: Sequence[Any]) -> list[Any]:
        """The cotangents of the operands, given those of the outputs that are reached."""
        present = [value for value in reaching if type(value) is not Zero]
        key = tuple([aval_of(value) if type(value) is not Zero else None for value in reaching])
        known = self._backward.get(key)
        if known is None:
            known = self._backward[key] = self._found(residuals, reaching, present)
        closed, zeros = known
        results = iter(_record(closed, [*residuals, *present]))
        return [next(results) if zero is None else zero for zero in zeros]

    def _found(self, residuals: Sequence[Any], reaching: Sequence[Any], present: Sequence[Any],
               ) -> tuple[_Closed, list[Zero | None]]:
        zeros: list[Zero | None] = []

        def build(*values: Any) -> list[Any]:
            arriving = iter(values[len(residuals):])
            results = pull_back(self.split, values[:len(residuals)],
                                [value if type(value) is Zero else next(arriving) for value in reaching])
            zeros.extend(result if type(result) is Zero else None for result in results)
            return [result for result in results if type(result) is not Zero]

        return _closed(build, [*map(aval_of, (*residuals, *present))]), zeros


_known: dict[Any, _Rules | None] = {}
_LIMIT = 4096


def _rules(equation: Equation, given: dict[Var, Any], wrt: Sequence[Var]) -> _Rules | None:
    """What is known of an operation, found if it is new; None if its rules may do what no program can repeat."""
    primitive, params = equation.primitive, equation.params
    if primitive.effectful or primitive.collective or holds_programs(params) or batched_axis.get() is not None:
        return None
    # Operands are known by their places, and those that cotangents go to by their number.
    if len(given) == len(equation.inputs):
        pattern: list[Any] = [var in wrt for var in given]
    else:
        place: dict[Atom, Any] = {var: (number, var in wrt) for number, var in enumerate(given)}
        pattern = [atom if type(atom) is Literal else place[atom] for atom in equation.inputs]
    avals = [value.variable.aval if type(value) is Tracer else aval_of(value) for value in given.values()]
    key = (primitive, *pattern, *avals, *params.items())
    try:
        return _known[key]
    except KeyError:
        if len(_known) >= _LIMIT:
            _known.clear()
        rules = _known[key] = _found(equation, given, wrt, avals)
        return rules


def _found(equation: Equation, given: dict[Var, Any], wrt: Sequence[Var], avals: list[Aval]) -> _Rules | None:
    primitive, params = equation.primitive, equation.params
    variables: dict[Atom, Var] = dict(zip(given, map(Var, avals), strict=True))
    inputs = [atom if type(atom) is Literal else variables[atom] for atom in equation.inputs]
    outputs = [*map(Var, infer(primitive, [atom.aval for atom in inputs], params))]
    program = Program([*variables.values()], [Equation(primitive, inputs, params, outputs)], outputs)
    marks = [var in wrt for var in given]
    splits: list[Split] = []

    def build(*primals: Any) -> list[Any]:
        results, residuals, split = linearize_in_place(program, primals, marks)
        splits.append(split)
        return [*results, *residuals]

    forward = _closed(build, avals)
    if any(type(value) is Tracer for value in forward.captured):
        return None
    return _Rules(forward, splits[0])


def _closed(build: Callable[..., Sequence[Any]], avals: Sequence[Aval]) -> _Closed:
    program, captured = trace(build, avals, staging=True, intern=False, literals=True, tape_class=SimplifyingTape,
                              name="rules of an operation")
    return _Closed(without_dead_code(program), captured)
