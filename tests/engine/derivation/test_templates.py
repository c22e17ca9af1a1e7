"""Templates: operations recorded again are simplified by what is known of their operands, as if recorded anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Primitive, registry
from fxgrad.engine.core.program import Program
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.derivation.simplify import live_equations, simplify
from fxgrad.engine.derivation.simplifying import SimplifyingTape, Template
from fxgrad.engine.ops.arithmetic import div, mul, neg, sub
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.shaping import slice as slice_
from fxgrad.engine.ops.structural import broadcast_to, reduce_sum, reshape, transpose_p
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
            tape = current.get()
            assert tape is not None
            may_apply = rewrites.may_apply(primitive, asked, [*map(tape.atom, inputs)], sample.params)
            for rewrite in rewrites.of(primitive):
                assert may_apply or rewrite(asked, list(inputs), sample.params) is None
            return bind(primitive, *inputs, **sample.params)
        traced(build, [aval_of(value) for value in sample.args()])
    assert asked.asked <= rewrites.makers_of(primitive)
    assert DECLARED


@pytest.mark.parametrize(("build", "applies"), [
    (lambda x: slice_(x, (0, 0), (2, 3), (1, 1)), True), (lambda x: slice_(x, (0, 0), (2, 2), (1, 1)), False),
    (lambda x: bind(registry["slice"], bind(registry["slice"], x, start_indices=(0, 0), limit_indices=(0, 3), strides=(
        1, 1))[0], start_indices=(0, 0), limit_indices=(0, 3), strides=(2, 1))[0], True),
    (lambda x: bind(registry["reshape"], x, shape=(2, 3))[0], True), (lambda x: reshape(x, (6,)), False),
    (lambda x: reshape(reshape(x, (6,)), (3, 2)), True), (lambda x: bind(transpose_p, x, permutation=(1, 0))[0], False),
    (lambda x: bind(transpose_p, bind(transpose_p, x, permutation=(1, 0))[0], permutation=(1, 0))[0], True),
    (lambda x: bind(registry["integer_pow"], x, exponent=1)[0], True),
    (lambda x: bind(registry["integer_pow"], x, exponent=3)[0], False),
    (lambda x: bind(registry["square"], neg(x))[0], True), (lambda x: bind(registry["square"], sin(x))[0], False),
    (lambda x: reduce_sum(slice_(x, (0, 0), (1, 3), (1, 1)), (0,)), True), (lambda x: reduce_sum(x, (0, 1)), False),
    (lambda x: bind(registry["concatenate"], x, dimension=0)[0], True),
    (lambda x: bind(registry["concatenate"], x, x, dimension=0)[0], False),
    (lambda x: broadcast_to(broadcast_to(reduce_sum(x, (0, 1)), (3,)), (2, 3)), True),
], ids=["whole slice", "slice", "slice of nothing", "same shape", "other shape", "reshape twice", "transpose",
        "transpose twice", "power 1", "power 3", "square of negative", "square", "sum of 1", "sum", "join 1", "join 2",
        "broadcast twice"])
def test_declared_rewrites_apply_where_they_did(build: Callable[[Any], Any], applies: bool) -> None:
    """The last operation is left out or made another one, in programs that are simplified as in those recorded."""
    plain, _ = trace_at(lambda x: [build(x)], [MATRIX], mode=WITH_LITERALS)
    simple = simplify(plain)
    assert (plain.equations[-1] not in simple.equations) is applies, simple
    assert wiring(simple) == wiring(traced(lambda x: [build(x)], [MATRIX])[0])
