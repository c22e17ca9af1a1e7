"""Templates: operations recorded again are simplified by what is known of their operands, as if recorded anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Program
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.derivation.simplify import live_equations
from fxgrad.engine.derivation.simplifying import SimplifyingTape, Template
from fxgrad.engine.ops.arithmetic import div, mul, neg, sub
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.structural import broadcast_to, reduce_sum
from fxgrad.engine.ops.trigonometric import sin
from fxgrad.engine.tracing.tape import aval_of, bind, current
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from tests.samples import all_samples

MATRIX, SCALAR = Aval((2, 3), np.dtype("float32")), Aval((), np.dtype("float32"))


def traced(function: Callable[..., Any], avals: list[Aval]) -> tuple[Program, list[Any]]:
    return trace_at(function, avals, mode=WITH_LITERALS, tape_class=SimplifyingTape)


def instantiated(template: Template, *operands: Any) -> list[Any]:
    """The outputs of a template on the current tape."""
    tape = current.get()
    assert isinstance(tape, SimplifyingTape)
    return [tape.value_of(output) for output in tape.instantiate(template, [*map(tape.atom, operands)])]


def wiring(program: Program) -> list[Any]:
    """The operations that a program needs, with its variables numbered."""
    number: dict[Any, Any] = {var: at for at, var in enumerate(program.inputs)}
    told: list[Any] = []
    for equation in live_equations(program):
        told.append((equation.primitive, [number.get(atom, atom) for atom in equation.inputs], equation.params,
                     [var.aval for var in equation.outputs]))
        for var in equation.outputs:
            number[var] = len(number)
    return [*told, [number.get(atom, atom) for atom in program.outputs]]


@pytest.mark.parametrize("function", [
    lambda x, y: [mul(x, y)],
    lambda x, y: [add(x, y), sub(x, y)],
    lambda x, y: [div(x, y), div(y, x)],
    lambda x, y: [sub(Literal(1, SCALAR), mul(x, y)), mul(y, x)],
    lambda x, y: [mul(sin(x), Literal(2, SCALAR)), x, sin(y)],
    lambda x, y: [broadcast_to(reduce_sum(mul(x, neg(y)), (0, 1)), (2, 3))],
], ids=["mul", "add and sub", "div", "literal on the left", "literal on the right", "sum"])
@pytest.mark.parametrize("prepare", [
    lambda x, y, s: (x, y),
    lambda x, y, s: (y, y),
    lambda x, y, s: (neg(x), y),
    lambda x, y, s: (neg(x), neg(y)),
    lambda x, y, s: (sin(x), neg(sin(y))),
    lambda x, y, s: (broadcast_to(s, (2, 3)), y),
    lambda x, y, s: (broadcast_to(s, (2, 3)), broadcast_to(Literal(3, SCALAR), (2, 3))),
], ids=["inputs", "one twice", "a negative", "negatives", "made before", "a scalar repeated", "scalars repeated"])
def test_as_if_recorded_anew(function: Callable[..., Any], prepare: Callable[..., Any]) -> None:
    template = Template(*traced(function, [MATRIX, MATRIX]))

    def again(*inputs: Any) -> list[Any]:
        operands = prepare(*inputs)
        first, second = instantiated(template, *operands), instantiated(template, *operands)
        assert all(value is other for value, other in zip(first, second, strict=True))  # it is recorded once
        return first

    avals = [MATRIX, MATRIX, SCALAR]
    actual, _ = traced(again, avals)
    expected, _ = traced(lambda *inputs: function(*prepare(*inputs)), avals)
    assert wiring(actual) == wiring(expected)


@pytest.mark.parametrize("numbers", [(1, 2), (-1, 0)])
def test_literals_among_the_operands(numbers: tuple[int, int]) -> None:
    function = lambda x, y, z: [mul(add(x, y), z), mul(mul(z, x), y)]
    template = Template(*traced(function, [SCALAR, SCALAR, MATRIX]))
    literals = [Literal(number, SCALAR) for number in numbers]

    actual, _ = traced(lambda matrix: instantiated(template, *literals, matrix), [MATRIX])
    expected, _ = traced(lambda matrix: function(*literals, matrix), [MATRIX])
    assert wiring(actual) == wiring(expected)


@pytest.mark.parametrize(("operation", "count"), [(mul, 1), (add, 1), (sub, 2)])
def test_operands_that_may_be_exchanged(operation: Callable[..., Any], count: int) -> None:
    template = Template(*traced(lambda x, y: [operation(x, y)], [MATRIX, MATRIX]))
    program, _ = traced(lambda x, y: [*instantiated(template, x, y), operation(y, x), *instantiated(template, y, x)],
                        [MATRIX, MATRIX])
    assert len(program.equations) == count


def test_captured_arrays_come_along() -> None:
    table = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    template = Template(*traced(lambda x: [mul(x, table)], [MATRIX]))
    program, captured = traced(lambda x: instantiated(template, x), [MATRIX])
    assert len(program.equations) == 1
    np.testing.assert_array_equal(captured[0], table)


class _Asked(RecordedDefinitions):
    """Knows of no value how it was made, and keeps what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[Primitive] = set()

    def inputs_if(self, value: Any, primitive: Primitive) -> list[Any] | None:
        self.asked.add(primitive)
        return None


DECLARED = [primitive for primitive in all_samples() if rewrites.of(primitive) and rewrites.are_declared(primitive)]


@pytest.mark.parametrize("primitive", DECLARED, ids=str)
def test_rewrites_look_for_what_they_declare_and_else_do_nothing(primitive: Primitive) -> None:
    asked = _Asked()
    for sample in all_samples()[primitive]:
        def build(*inputs: Any, sample: Any = sample) -> list[Any]:
            for rewrite in rewrites.of(primitive):
                assert rewrite(asked, list(inputs), sample.params) is None
            return bind(primitive, *inputs, **sample.params)
        traced(build, [aval_of(value) for value in sample.args()])
    assert asked.asked <= rewrites.makers
    assert DECLARED
