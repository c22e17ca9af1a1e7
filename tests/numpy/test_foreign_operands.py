"""Operands that are no arrays and no numbers: reflected operators of their classes compute, or they are refused."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError

FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "pow": operator.pow,
    "floordiv": operator.floordiv, "mod": operator.mod, "matmul": operator.matmul, "divmod": divmod}
INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "lshift": operator.lshift, "rshift": operator.rshift}
OPERATORS = FLOATS | INTEGERS


class Kernel:
    """Something that combines with arrays by operators of its own."""


for _name in OPERATORS:
    setattr(Kernel, f"__r{_name}__", lambda self, other, name=_name: (name, np.shape(other)))
    setattr(Kernel, f"__{_name}__", lambda self, other, name=_name: (f"{name} first", np.shape(other)))


class Nothing:
    """Something without operators."""


@pytest.mark.parametrize("name", OPERATORS)
def test_reflected_operators_of_other_classes_compute(name: str) -> None:
    """Of traced arrays, of ours and of jax's, on either side and in place, each time that it is recorded."""
    x, combine = np.ones(2, int if name in INTEGERS else float), OPERATORS[name]
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.extend((combine(x, Kernel()), combine(Kernel(), x)))
        changed = x * 1
        if name != "divmod":
            changed = getattr(operator, f"i{name}")(changed, Kernel())
            seen.append(changed)
        return x * 1

    for array in (fnp.asarray(x), jnp.asarray(x)):
        function(array)
    for _ in range(3):
        fxgrad.vmap(function)(x[None])
    fxgrad.jit(function)(x)
    each = [(name, (2,)), (f"{name} first", (2,))]
    assert seen == (each if name == "divmod" else [*each, each[0]]) * 6


@pytest.mark.parametrize("other", [Nothing(), "text", None, Kernel])
@pytest.mark.parametrize("name", FLOATS)
def test_others_are_refused_with_the_line(name: str, other: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^an operand must be an array or a number, got \w+\n  at .*\.py:\d+"):
        fxgrad.vmap(lambda x: FLOATS[name](x, other))(np.ones((1, 2)))


def test_functions_refuse_what_operators_leave_to_others() -> None:
    with pytest.raises(ArgumentError, match=r"^an operand must be an array or a number, got Kernel\n"):
        fxgrad.vmap(lambda x: fnp.multiply(x, Kernel()))(np.ones(2))


@pytest.mark.parametrize("repeat", [lambda n: [0.0] * n, lambda n: n * [0.0], lambda n: (1, 2) * (n + 1),
                                    lambda n: [[0] * 2] * n, lambda n: [1] * (n > 2)])
@pytest.mark.parametrize("wrap", [fxgrad.jit, lambda f: lambda n: fxgrad.vmap(f)(np.array([n, n]))],
                         ids=["jit", "vmap"])
def test_lists_repeated_by_traced_integers_are_refused(repeat, wrap) -> None:
    """In Python the number of items is the integer; as a product they would be an array of one item."""
    kind = type(repeat(3)).__name__
    with pytest.raises(ArgumentError, match=rf"^a {kind} times an integer is the {kind} repeated in Python, and this "
                       rf"integer is traced \((i64|bool)\*?\[\]\)\. Make it a static argument, so that the length is "
                       rf"known; for the product with each element, write fxgrad\.numpy\.array\({kind}\) \* n\n  at "):
        wrap(repeat)(3)


def test_lists_times_traced_floats_and_arrays_are_products() -> None:
    np.testing.assert_array_equal(fxgrad.jit(lambda x: x * [1.0, 2.0])(2.5), [2.5, 5.0])
    np.testing.assert_array_equal(fxgrad.jit(lambda v: [1, 2] * v)(np.array([3, 4])), [3, 8])
    np.testing.assert_array_equal(fxgrad.jit(lambda n: np.array([1, 2]) * n)(3), [3, 6])

