"""Python's and NumPy's numbers beside arrays of every dtype: traced code computes what NumPy computes."""

from __future__ import annotations

import enum
import operator
import re
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import grad, jit, make_program, vmap

NUMBERS: list[Any] = [0, 1, 2, -1, 300, 0.5, -0.0, True, 1j, np.float64(0.5), np.float32(2), np.int64(2), np.True_]
DTYPES = ["bool", "int8", "uint8", "int32", "uint32", "int64", "float32", "float64"]
OPERATIONS: list[Callable[[Any, Any], Any]] = [
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.add, operator.mul,
    operator.sub, operator.and_, operator.or_, operator.xor, operator.truediv, np.maximum, np.minimum, np.copysign]


def outcome(function: Callable[..., Any], value: Any) -> Any:
    """What a function returns, or the exception where it has none."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(function(value))
    except Exception as error:  # noqa: BLE001  (whatever it is, both have to refuse)
        return error


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_beside_traced_arrays(operation: Callable[[Any, Any], Any], dtype: str) -> None:
    """Values are NumPy's, of each number after the others, so that none is taken for another that came before."""
    array = np.array([0, 1, 1]).astype(dtype)
    for number in NUMBERS:
        for function in (lambda x, number=number: operation(x, number), lambda x, number=number: operation(number, x)):
            eager, traced = outcome(function, array), outcome(vmap(function), array)
            if isinstance(eager, Exception) or isinstance(traced, Exception):
                assert isinstance(eager, Exception) == isinstance(traced, Exception), (number, eager, traced)
                continue
            assert eager.dtype.kind == traced.dtype.kind, number
            rtol = max({"float16": 1e-3, "float32": 1e-6, "complex64": 1e-6}.get(each.dtype.name, 1e-14)
                       for each in (eager, traced))
            np.testing.assert_allclose(traced, eager, rtol=rtol)


def test_a_bool_gives_way_to_a_number() -> None:
    x = np.array([0.3, -0.2])
    value, gradient = fxgrad.value_and_grad(lambda x: np.sum(np.where((x > 0) > 0.5, 3 * x, x)))(x)
    np.testing.assert_allclose((value, *gradient), (0.7, 3.0, 1.0), rtol=1e-12)
    assert jit(lambda b: np.maximum(b, 2))(np.array([True, False])).tolist() == [2, 2]


def test_widths_of_what_numbers_make() -> None:
    def kinds(*operands: Any) -> list[str]:
        program = make_program(lambda x, y: (x * y, x / y))(*operands)
        return [str(aval) for aval in program.out_avals]

    one = {dtype: np.ones(1, dtype) for dtype in ("bool", "int8", "int32", "int64", "uint64", "float16", "float32")}
    assert kinds(2.0, 3) == ["f64*[]", "f64*[]"]
    assert kinds(2, 3) == ["i64*[]", "f64*[]"]
    assert kinds(2, 3j) == ["c128*[]", "c128*[]"]
    assert kinds(one["bool"], 2.0) == ["f64*[1]", "f64*[1]"]
    assert kinds(one["bool"], 2) == ["i64*[1]", "f64*[1]"]
    assert kinds(one["int8"], 2.0) == ["f32[1]", "f32[1]"]
    assert kinds(one["int32"], 2) == ["i32[1]", "f32[1]"]
    assert kinds(one["int32"], 2j) == ["c64[1]", "c64[1]"]
    assert kinds(one["int64"], 2.0) == kinds(one["uint64"], 2.0) == ["f64[1]", "f64[1]"]
    assert kinds(one["int64"], 2) == ["i64[1]", "f64[1]"]
    assert kinds(one["float16"], 2.0) == ["f16[1]", "f16[1]"]
    assert kinds(one["float32"], 2j) == ["c64[1]", "c64[1]"]
    with fxgrad.default_dtype("float64"):
        assert kinds(one["int32"], 2.0) == ["f64[1]", "f64[1]"]
        assert kinds(one["float32"], 2.0) == ["f32[1]", "f32[1]"]


def test_means_and_quotients_of_integers() -> None:
    wide = np.array([16777217, 16777217])
    for transformed in (jit(np.mean), lambda x: vmap(np.mean)(x[None])[0]):
        assert float(transformed(wide)) == 16777217.0
    assert float(jit(lambda x: x[0] / 1)(wide)) == 16777217.0
    assert jit(np.mean)(wide.astype("int32")).dtype == np.float32


def test_a_weak_scalar_of_jax_decides_over_a_python_number() -> None:
    """As in jax, which has them in 32 bits."""
    weak = jax.numpy.asarray(2.0)
    assert weak.weak_type
    assert jit(lambda x: x * 0.5)(weak).dtype == np.float32
    assert jit(lambda x, y: x * y)(weak, 3).dtype == np.float32


def test_programs_of_narrow_arrays_have_nothing_wide() -> None:
    """Whatever numbers a function and the library meet: accelerators are slow at 64 bits. Scalars do no harm."""
    x, n = np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(2, 3), np.arange(3, dtype=np.int32)
    functions: list[Callable[..., Any]] = [
        lambda x, n: 2 * np.sin(x) ** 2 / 3.0 + n * 0.5, lambda x, n: np.mean(x, axis=0) + np.var(x) + np.std(x),
        lambda x, n: fxgrad.nn.softmax(x) + fxgrad.nn.gelu(x) + fxgrad.nn.silu(x) + fxgrad.nn.relu(x - 0.5),
        lambda x, n: np.linalg.norm(x) + np.linalg.norm(x, axis=0), lambda x, n: x[:, n] + x[0, 1],
        lambda x, n: fxgrad.nn.logsumexp(x) + fxgrad.scipy.special.gammaln(x + 1), lambda x, n: x.at[0].set(1.0),
        lambda x, n: np.where(x > 0.5, x, 0.0), lambda x, n: np.clip(x, 0.0, 1), lambda x, n: np.cumsum(x) * n[0],
        lambda x, n: fxgrad.random.normal(fxgrad.random.key(0), (3,)) * 0.1 + x,
        lambda x, n: np.sort(x)[::-1] + np.argsort(n), lambda x, n: fnp.interp(x, fnp.arange(3.0), fnp.arange(3.0)),
        lambda x, n: fxgrad.lax.scan(lambda c, row: (c + np.sum(row), c * 2.0), np.float32(0), x)[1],
        lambda x, n: fnp.percentile(x, 30.0) + fnp.median(x), lambda x, n: np.linalg.det(x @ x.T + 0.1 * fnp.eye(2)),
    ]
    for index, function in enumerate(functions):
        total = grad(lambda x, n, function=function: fnp.sum(function(x, n)))
        for program in (make_program(function)(x, n), make_program(total)(x, n)):
            assert not re.search(r"64\*?\[\d|f64\[|c128", str(program)), (index, str(program))


def test_the_default_dtype_reaches_threads() -> None:
    def in_a_thread() -> Any:
        found = []
        thread = threading.Thread(target=lambda: found.append(fnp.zeros(1).dtype))
        thread.start()
        thread.join()
        return found[0]

    try:
        fxgrad.set_default_dtype("float64")
        assert fnp.zeros(1).dtype == np.float64
        assert in_a_thread() == np.float64
        with fxgrad.default_dtype("float16"):
            assert fnp.zeros(1).dtype == np.float16
            assert in_a_thread() == np.float64  # the block is this thread's
    finally:
        fxgrad.set_default_dtype("float32")
    assert in_a_thread() == np.float32


def test_numbers_are_numpys() -> None:
    """Of numbers alone, whatever NumPy makes on the way."""
    for name in ("sinc", "trunc", "nansum"):
        assert isinstance(getattr(fnp, name)(1.5), np.generic), name
    assert isinstance(fnp.remainder(1.5, 2.0), np.generic)


def test_numbers_of_derived_classes() -> None:
    """They are what the numbers are: members of an IntEnum, and of classes derived from Python's numbers."""
    members = enum.IntEnum("members", {"NONE": 0, "THREE": 3, "FOUR": 4})
    derived = [type("Derived", (kind,), {}) for kind in (int, float, complex)]
    functions: list[Callable[[Any, Any], Any]] = [
        lambda x, number: x * number, lambda x, number: number - x, lambda x, number: x ** number,
        lambda x, number: fnp.asarray(number) + x, np.multiply, lambda x, number: np.where(x > 1, x, number)]
    x, wrong = np.arange(1, 4, dtype=np.float32), []
    for number in (*members, derived[0](7), derived[0](8), derived[1](0.1), derived[1](2.5), derived[2](0.5j)):
        plain = number.__class__.__mro__[-2](number) if number.__class__ in derived else int(number)
        for index, function in enumerate(functions):
            for transform in (vmap, jit, vmap):
                found, wanted = (transform(lambda x, number=each, function=function: function(x, number))(x)
                                 for each in (number, plain))
                if found.dtype != wanted.dtype or found.tolist() != wanted.tolist():
                    wrong.append(f"function {index}, {number!r}: {found}, {wanted} is expected")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("first", [np.float32(0.7), np.ones(2, np.float32)], ids=["scalar", "array"])
def test_numbers_of_a_list_keep_their_digits_in_a_dtype_that_is_asked_for(first: Any) -> None:
    number = 0.1 if np.ndim(first) == 0 else [0.1, 0.2]

    def lists(module: Any, x: Any) -> Any:
        return (module.asarray([x, number], dtype="float64"), module.array([[x, number], [number, x]], dtype="float64"),
                module.asarray((x, number, x), dtype="complex128"))
    with jax.enable_x64(True):
        expected = jax.jit(lambda x: lists(jnp, x))(first)
    for found in (lists(fnp, first), fxgrad.jit(lambda x: lists(fnp, x))(first)):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
