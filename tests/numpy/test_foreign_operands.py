"""Operands that are no arrays and no numbers: reflected operators of their classes compute, or they are refused."""

from __future__ import annotations

import array
import operator
import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, ArrayConversionError

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

    for given in (fnp.asarray(x), jnp.asarray(x)):
        function(given)
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


TABLES = """
import numpy as np

class Column:
    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __mul__(self, other):
        return Column(self.values * np.asarray(other))

    __matmul__ = __mul__
"""
library: dict[str, Any] = {"__name__": "tables"}
exec(compile(TABLES, "/site-packages/tables.py", "exec"), library)  # code of a library, such as pandas
column, masked = library["Column"](np.ones(2)), np.ma.array([1.0, 2.0], mask=[False, True])


@pytest.mark.parametrize(("function", "done", "instead"), [
    (lambda w: np.sum((column * w).values), "column * w", "Write np.asarray(column) * w"),
    (lambda w: np.sum((column @ (w + 1.0)).values), "column @ (w + 1.0)", "Write np.asarray(column) @ (w + 1.0)"),
    (lambda w: np.sum(masked * w), "masked * w", (
        "Masked arrays compute with numbers alone: take np.ma.getdata(m) and np.ma.getmaskarray(m), and "
        "fxgrad.numpy.where to choose by the mask")),
])
def test_operations_of_libraries_say_what_to_convert(function: Any, done: str, instead: str) -> None:
    for wrap in (fxgrad.grad, fxgrad.jit):
        with pytest.raises(ArrayConversionError) as caught:
            wrap(function)(np.ones(2))
        assert str(caught.value).startswith(
            f"{done} would make numbers of a traced array (f64[2]) and cut it off from the derivative without a word. "
            f"{instead}. (stop_gradient(x) cuts")
    assert fxgrad.grad(lambda w: np.sum(w * column))(np.ones(2)).tolist() == [1.0, 1.0]  # as a second operand


@pytest.mark.parametrize(("value", "kind", "cure"), [
    (column, "Column", "Write np.asarray(x)"), (array.array("d", [1.0]), "array", "Write np.asarray(x)"),
    (masked, "MaskedArray", "Write np.ma.filled(x, 0.0), and np.ma.getmaskarray(x) where the mask is needed")])
def test_what_numpy_makes_arrays_of_is_to_be_converted(value: Any, kind: str, cure: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        fxgrad.grad(lambda x: np.sum(x))(value)
    assert str(caught.value).startswith(f"grad: x is a {kind}, where an array or a number is needed. {cure}\n  at ")
    with pytest.raises(ArgumentError, match=re.escape(cure if type(value) is not np.ma.MaskedArray else
                                                      cure.replace("x", "m"))):
        fxgrad.jit(lambda x: np.sum(x))(value)


def test_masked_operands_are_to_be_converted() -> None:
    with pytest.raises(ArgumentError) as caught:
        fxgrad.grad(lambda w: np.sum(fnp.multiply(w, masked)))(np.ones(2))
    assert str(caught.value).startswith(
        "an operand must be an array or a number, got MaskedArray. Write np.ma.filled(x, 0.0), and "
        "np.ma.getmaskarray(x) where the mask is needed\n  at ")


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

