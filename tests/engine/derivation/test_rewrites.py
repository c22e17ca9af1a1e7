"""The algebra beside the records: programs with and without it give the same bits, peculiar numbers included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.engine.core.avals import Aval, Literal, array_aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.derivation.simplify import simplify
from fxgrad.engine.ops import arithmetic, exponential, parts
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, stop_gradient, sub
from fxgrad.engine.ops.comparison import and_, eq, lt, ne, not_, or_
from fxgrad.engine.ops.cumulative import cumlogsumexp, cummax, cumprod, cumsum
from fxgrad.engine.ops.exponential import exp, integer_pow, square
from fxgrad.engine.ops.ordering import sort
from fxgrad.engine.ops.parts import ceil, conj, floor, imag, real
from fxgrad.engine.ops.reductions import reduce_and, reduce_max, reduce_min, reduce_prod, reduce_xor
from fxgrad.engine.ops.select import select_n
from fxgrad.engine.ops.structural import broadcast_to
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.trace import UNSHARED, trace_at

NUMBERS = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.1, -3.3, 5e-324, 1e308, 1.5])
X, Y = (each.ravel() for each in np.meshgrid(NUMBERS, NUMBERS))
COMPLEX = np.empty(X.shape, np.complex128)
COMPLEX.real, COMPLEX.imag = X, Y


def literal(value: float) -> Literal:
    return Literal(value, Aval((), np.dtype(np.float64)))


def programs(function: Callable[..., Any], *args: Any) -> tuple[Program, Program]:
    program, _ = trace_at(lambda *inputs: [function(*inputs)], [array_aval(arg) for arg in args], mode=UNSHARED)
    return program, simplify(program)


def bits(value: Any) -> Any:
    """What must not change: the bit pattern, but for that of NaNs, which executors choose."""
    array = np.array(value)
    parts = array[..., None].view(np.float64) if array.dtype.kind in "fc" else array
    return np.where(np.isnan(parts), np.nan, parts).tobytes() if array.dtype.kind in "fc" else array.tobytes()


def check(function: Callable[..., Any], args: tuple[Any, ...], expected: int) -> None:
    plain, simple = programs(function, *args)
    with np.errstate(all="ignore"):
        assert bits(apply_program(simple, args)[0]) == bits(apply_program(plain, args)[0])
    assert len(simple.equations) == expected, simple


BINARY = {"add": (add, (1, 1, 2)), "sub": (sub, (2, 1, 1)), "mul": (mul, (2, 2, 1)), "div": (div, (2, 2, 1))}


@pytest.mark.parametrize("name", BINARY)
def test_signs(name: str) -> None:
    """With a negated left, right, and both operands."""
    operation, (left, right, both) = BINARY[name]
    check(lambda x, y: operation(neg(x), y), (X, Y), left)
    check(lambda x, y: operation(x, neg(y)), (X, Y), right)
    check(lambda x, y: operation(neg(x), neg(y)), (X, Y), both)


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("operation", [add, sub, mul, div, arithmetic.max, arithmetic.min, exponential.pow])
def test_literals(operation: Callable[..., Any], number: float) -> None:
    """Whatever is rewritten: the bits stay."""
    for function in (lambda x: operation(x, literal(number)), lambda x: operation(literal(number), x)):
        plain, simple = programs(function, X)
        with np.errstate(all="ignore"):
            assert bits(apply_program(simple, [X])[0]) == bits(apply_program(plain, [X])[0])


@pytest.mark.parametrize(("operation", "number", "expected"), [
    (mul, 1.0, 0), (mul, -1.0, 1), (div, 1.0, 0), (sub, 0.0, 0),
    (add, 0.0, 1), (add, -0.0, 1), (sub, -0.0, 1), (mul, 0.0, 1), (mul, -0.0, 1), (div, -0.0, 1)])
def test_neutral_elements(operation: Callable[..., Any], number: float, expected: int) -> None:
    check(lambda x: operation(x, literal(number)), (X,), expected)


def test_a_scalar_does_not_stand_for_an_array() -> None:
    """The neutral element of another shape still broadcasts."""
    ones = np.ones((3, 1))
    check(lambda x: mul(x, literal(1.0)), (np.asarray(2.0),), 0)
    check(mul, (np.arange(3.0), ones), 1)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "neg neg": (lambda x: neg(neg(x)), (X,), 0),
    "literals fold": (lambda x: mul(x, add(literal(0.1), literal(0.2))), (X,), 1),
    "abs neg": (lambda x: parts.abs(neg(x)), (X,), 1),
    "abs abs": (lambda x: parts.abs(parts.abs(x)), (X,), 1),
    "square neg": (lambda x: square(neg(x)), (X,), 1),
    "square neg complex": (lambda x: square(neg(x)), (COMPLEX,), 1),
    "power 1": (lambda x: integer_pow(integer_pow(x, 2), 1), (X,), 1),
    "floor floor": (lambda x: floor(ceil(parts.round(x))), (X,), 1),
    "max self": (lambda x: arithmetic.max(x, x), (X,), 0),
    "min self": (lambda x: arithmetic.min(x, x), (X,), 0),
    "max other": (arithmetic.max, (X, Y), 1),
    "and self": (lambda x: and_(lt(x, literal(0.5)), lt(x, literal(0.5))), (X,), 1),
    "or self": (lambda x: or_(x, x), (np.arange(4),), 0),
    "and integer": (lambda x: and_(x, Literal(1, Aval((), np.dtype(np.int64)))), (np.arange(4),), 1),
    "and of a NaN and equals": (lambda x, y: and_(ne(x, x), eq(x, y)), (X, Y), 1),
    "and of equals and a NaN": (lambda x, y: and_(eq(y, x), ne(x, x)), (X, Y), 1),
    "and of unequal and equals": (lambda x, y: and_(ne(x, y), eq(x, y)), (X, Y), 3),
    "and of a NaN and others": (lambda x, y: and_(ne(x, x), eq(y, y)), (X, Y), 3),
    "and true": (lambda x: and_(x, Literal(True, Aval((), np.dtype(bool)))), (X > 0,), 0),
    "or false": (lambda x: or_(x, Literal(False, Aval((), np.dtype(bool)))), (X > 0,), 0),
    "or true": (lambda x: or_(x, Literal(True, Aval((), np.dtype(bool)))), (X > 0,), 1),
    "not not": (lambda x: not_(not_(x)), (np.arange(4),), 0),
    "not eq": (lambda x, y: not_(eq(x, y)), (X, Y), 1),
    "not ne": (lambda x, y: not_(ne(x, y)), (X, Y), 1),
    "not lt": (lambda x, y: not_(lt(x, y)), (X, Y), 2),
    "select equal": (lambda x, y: select_n(lt(x, y), x, x), (X, Y), 0),
    "select wider": (lambda x, y: select_n(lt(x, y), y, y), (X[:, None], Y), 1),
    "select known": (lambda x, y: select_n(Literal(True, Aval((), np.dtype(bool))), x, y), (X, Y), 0),
    "select nothing": (lambda x, y: select_n(and_(ne(x, x), eq(x, y)), y, x), (X, Y), 0),
    "select repeated": (lambda x, y: select_n(
        broadcast_to(Literal(True, Aval((), np.dtype(bool))), X.shape), x, y), (X, Y), 0),
    "select open": (lambda x, y: select_n(lt(x, y), x, y), (X, Y), 2),
    "real complex": (lambda x, y: real(parts.complex(x, y)), (X, Y), 0),
    "imag complex": (lambda x, y: imag(parts.complex(x, y)), (X, Y), 0),
    "real broadcast": (lambda x, y: real(parts.complex(x, y)), (X[:2], Y[:4, None]), 2),
    "real conj": (lambda x: real(conj(x)), (COMPLEX,), 1),
    "imag conj": (lambda x: imag(conj(x)), (COMPLEX,), 2),
    "conj conj": (lambda x: conj(conj(x)), (COMPLEX,), 0),
    "stop stop": (lambda x: stop_gradient(stop_gradient(x)), (X,), 1),
    "max over one": (lambda x: reduce_max(x, (1,)), (X[:, None],), 1),
    "min over one": (lambda x: reduce_min(x, (1,)), (X[:, None],), 1),
    "product over one": (lambda x: reduce_prod(x, (1,)), (X[:, None],), 1),
    "and over one": (lambda x: reduce_and(x, (1,)), (np.arange(4)[:, None],), 1),
    "xor over one": (lambda x: reduce_xor(x, (1,)), (np.arange(4)[:, None],), 1),
    "cumsum of one": (lambda x: cumsum(x, 1), (X[:, None],), 0),
    "cumprod of one": (lambda x: cumprod(x, 1), (X[:, None],), 0),
    "cummax of one": (lambda x: cummax(x, 1), (X[:, None],), 0),
    "cumlogsumexp of one": (lambda x: cumlogsumexp(x, 1), (X[:, None],), 0),
    "sort of one": (lambda x: sort([x], 1)[0], (X[:, None],), 0),
    "equal equations": (lambda x: add(exp(x), exp(x)), (X,), 2),
    "products commute": (lambda x, y: sub(mul(x, y), mul(y, x)), (X, Y), 2),
    "extrema do not": (lambda x, y: sub(arithmetic.max(x, y), arithmetic.max(y, x)), (X, Y), 3),
}


@pytest.mark.parametrize("name", CASES)
def test_rewrite(name: str) -> None:
    check(*CASES[name])


FUNCTIONS: list[tuple[Callable[..., Any], list[Any]]] = [
    (lambda a, b: (-a) // b, [np.array([4, 6], np.uint8), np.array([3, 5], np.uint8)]),
    (lambda a: np.abs(-a), [np.array([4, 6], np.uint8)]),
    (lambda n: (-n) // -n, [np.array([1, -5, -(2**31)], np.int32)]),
    (lambda z: z * (1.0 + 0j), [np.array([complex(np.inf, 1), complex(-0.0, -2.0)])]),
    (lambda z: np.log(-z * (1 - 1j)).imag, [np.array([1 + 1j])]),
]


@pytest.mark.parametrize("case", range(len(FUNCTIONS)))
def test_derived_programs_give_numpys_bits(case: int) -> None:
    """Batches and derivatives are simplified while they are recorded."""
    function, args = FUNCTIONS[case]
    with np.errstate(all="ignore"):
        expected = function(*args)
        assert bits(fxgrad.vmap(function)(*args)) == bits(expected)
        assert bits(fxgrad.jvp(function, tuple(args), tuple(map(np.zeros_like, args)))[0]) == bits(expected)
