"""Options and operands that jax's functions take, beside what NumPy's take: values as jax's, un-jitted and traced."""

from __future__ import annotations

import array
import enum
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, grad, jit, vmap
from tests.support.versions import IS_OLDEST_JAX

A = np.arange(12, dtype=np.float32).reshape(3, 4)
PLACES, NEGATIVE = np.array([0, 2, 1], np.int32), np.array([0, -1, 2, 5], np.int32)
C = np.array([0.5 + 1j, 2 - 0.3j, -1.5 + 3.1j, -2 - 3j, 0.1j], np.complex64)
OURS = SimpleNamespace(m=fxgrad, np=fnp, lax=fxgrad.lax, random=fxgrad.random)
THEIRS = SimpleNamespace(m=jax, np=jnp, lax=jax.lax, random=jax.random)


class Two(enum.IntEnum):
    TWO = 2


class Holder:
    """What says by `__jax_array__` which array it stands for."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __jax_array__(self) -> Any:
        return self.held


def at(e: Any, x: Any, index: Any, method: str, *values: Any, mode: str | None) -> Any:
    return getattr(e.np.asarray(x).at[index], method)(*values, mode=mode, wrap_negative_indices=False)


NEGATIVES: dict[str, Callable[[Any], Any]] = {
    f"negative indices: {mode} {method} {dtype} {wide}": lambda e, mode=mode, method=method, dtype=dtype, wide=wide:
        jax.tree.map(np.asarray, [
            f(A, NEGATIVE.astype(dtype)) for f in [e.m.jit(lambda x, i: at(
                e, x, (slice(None), i) if wide else i, method, *([2.5] if method != "get" else []), mode=mode))]])
       for mode in ("fill", "clip") for method, dtype, wide in (
           ("get", "int8", False), ("get", "int32", True), ("set", "int32", False), ("add", "int8", True),
           ("multiply", "int32", False), ("min", "int32", True))}
CASES: dict[str, Callable[[Any], Any]] = {
    "negative index": lambda e: at(e, A, -1, "set", 9.0, mode="drop"),
    "negative pair": lambda e: at(e, A, (-1, 2), "get", mode="fill"),
    "negative array and un-jitted": lambda e: at(e, A, NEGATIVE, "add", 9.0, mode="drop"),
    "average over two axes": lambda e: e.np.average(A.reshape(3, 2, 2), axis=(1, 2), weights=A[1].reshape(2, 2)),
    "average over turned axes": lambda e: e.np.average(A.reshape(3, 2, 2), axis=(2, 0), weights=A[:, :2].T + 1),
    "average, returned": lambda e: e.np.average(A, axis=(1, 0), weights=A.T + 1, returned=True, keepdims=True),
    "logaddexp": lambda e: e.np.logaddexp(C, C[::-1]),
    "logaddexp2": lambda e: e.np.logaddexp2(C, C[::-1]),
    "logaddexp of zero": lambda e: e.np.logaddexp(np.complex64([-np.inf, 1]), np.complex64([2j, -np.inf])),
    "buffers": lambda e: [e.np.asarray(memoryview(A)), e.np.asarray(bytearray(b"abc")),
                          e.np.array(array.array("f", [1, 2]))],
    "eye": lambda e: [e.m.jit(lambda k: e.np.eye(3, 4, k=k))(k) for k in (1, np.int32(-1))],
    "eye of each": lambda e: e.m.vmap(lambda k: e.np.eye(3, 4, k=k, dtype=np.int32))(PLACES),
    "tri": lambda e: e.m.vmap(lambda k: e.np.tri(3, 4, k=k))(PLACES - 1),
    "unravel_index": lambda e: e.m.jit(lambda i, s: e.np.unravel_index(i, (s, 4)))(np.int32([0, 5, -1, 99]), 3),
    "unravel_index of a shape": lambda e: e.m.jit(lambda s: e.np.unravel_index(PLACES * 4, s))(np.int32([3, 4])),
    "fft of no axes": lambda e: [e.lax.fft(C, kind, ()) for kind in ("FFT", "IFFT", "IRFFT")],
    "choose": lambda e: [e.np.choose(e.np.asarray([0, 1, 0]), [A[0, :3], -A[1, :3]], mode="wrap")],
    "keys": lambda e: [f(a, b) for f in (
        e.np.isclose, e.np.allclose, e.np.array_equal, e.np.array_equiv, e.np.equal, e.np.not_equal,
        e.m.jit(e.np.equal))
        for a, b in [(e.random.key(1), e.random.key(1)), (e.random.key(1), e.random.key(2)),
                     (e.random.split(e.random.key(1)), e.random.key(1))]],
    "members of an IntEnum": lambda e: e.m.jit(lambda x: (
        x * Two.TWO, x + Two.TWO, e.np.add(x, Two.TWO), x ** Two.TWO, Two.TWO - x, x[Two.TWO], x < Two.TWO,
        e.np.full(3, Two.TWO), e.np.arange(Two.TWO)))(A[0]),
    "operands that hold an array": lambda e: [
        operation(e.np.asarray(A[0]), Holder(e.np.asarray(A[1]))) for operation in (
            lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x @ y, lambda x, y: x == y, lambda x, y: x < y,
            lambda x, y: x ** y, lambda x, y: x % y)],
    "operands that hold a traced array": lambda e: e.m.jit(lambda x: (
        x + Holder(x), x * Holder(A[1]), x @ Holder(x), x == Holder(x), x < Holder(x)))(A[0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("cases", [CASES, NEGATIVES], ids=["all", "negatives"])
def test_options_as_jax(cases: dict[str, Callable[[Any], Any]]) -> None:
    wrong = {}
    for name, case in cases.items():
        expected = jax.tree.leaves(case(THEIRS))
        try:
            found = jax.tree.leaves(case(OURS))
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-6, atol=1e-6)
        except Exception as error:  # noqa: BLE001  (all that differ are listed)
            wrong[name] = f"{type(error).__name__}: {error}"
    assert not wrong, "\n\n".join(f"{name}: {error}" for name, error in wrong.items())


def test_what_is_known_under_a_transformation_may_be_asked_for() -> None:
    x = A[0, :3]
    for numbers in (np.array([0, 1, 0]), [0, 1, 0], fnp.asarray([0, 1, 0]), 1):
        expected = np.choose(np.asarray(numbers), [x, -x])
        for choose in (fnp.choose, np.choose):
            def chosen(x: Any, numbers: Any = numbers, choose: Any = choose) -> Any:
                return choose(numbers, [x, -x])
            np.testing.assert_array_equal(jit(chosen)(x), expected)
            np.testing.assert_array_equal(vmap(chosen)(x[None])[0], expected)
    assert float(grad(lambda x: x * 2 if (x > 0).item() else x)(1.0)) == 2.0
    assert float(grad(lambda x: x * (fnp.floor(x).astype(int) + 1).item())(2.5)) == 3.0
    with pytest.raises(errors.ConcretizationError, match=r"^x\.item\(\) needs the value of a traced array"):
        jit(lambda x: x if (x > 0).item() else -x)(1.0)
    with pytest.raises(errors.ArrayConversionError, match=r"^x\.item\(\) would make numbers of a traced array"):
        grad(lambda x: x * x.item())(1.0)


def test_triangles_with_a_traced_diagonal() -> None:
    """jax takes none."""
    for k in (-2, 0, 1, 4):
        for function in (np.tril, np.triu):
            ours = getattr(fnp, function.__name__)
            np.testing.assert_array_equal(jit(ours)(A, k), function(A, k))
            np.testing.assert_array_equal(vmap(ours, (None, 0))(A, np.array([k, 0]))[0], function(A, k))
            np.testing.assert_array_equal(grad(lambda x, k=k, ours=ours: np.sum(ours(x, k) * A))(A), function(A, k))


def test_derivatives_of_complex_logaddexp() -> None:
    x, y = C.astype(complex), C[::-1].astype(complex)
    for ours, base in ((fnp.logaddexp, np.e), (fnp.logaddexp2, 2.0)):
        weight = base ** x / (base ** x + base ** y)
        slope = fxgrad.jvp(lambda x, ours=ours, y=y: ours(x, y), (x,), (np.ones_like(x),))[1]
        np.testing.assert_allclose(slope, weight, rtol=1e-12)
        np.testing.assert_allclose(base ** np.asarray(ours(x, y)), base ** x + base ** y, rtol=1e-12)


def test_indices_that_do_not_count_from_the_end_are_refused_where_known() -> None:
    for call in (lambda: fnp.asarray(A).at[-1].get(wrap_negative_indices=False),
                 lambda: fnp.asarray(A).at[NEGATIVE].set(1.0, wrap_negative_indices=False),
                 lambda: jit(lambda x: x.at[0, -1].apply(np.sin, wrap_negative_indices=False))(A)):
        with pytest.raises(errors.IndexingError) as caught:
            call()
        assert str(caught.value).startswith(
            "x[...]: index -1 is out of range: with wrap_negative_indices=False none counts from the end. Choose "
            "another mode than 'raise' for such indices")
    for call in (lambda: fxgrad.lax.dynamic_slice(A, (0, -1), (2, 2), allow_negative_indices=False),
                 lambda: fxgrad.lax.dynamic_update_slice(A, A[:1], (0, -1), allow_negative_indices=(True, False))):
        with pytest.raises(errors.IndexingError) as caught:
            call()
        assert ("index -1 is out of range for axis 1 of size 4 with allow_negative_indices=False; in range are 0 to "
                "3") in str(caught.value)


def test_take_along_axis_without_negative_indices() -> None:
    indices = NEGATIVE[None]
    for mode in ("fill", "clip"):
        for wrapped in (True, False, *([None] if IS_OLDEST_JAX else [])):
            def taken(x: Any, i: Any, e: Any, mode: str = mode, wrapped: bool | None = wrapped) -> Any:
                return e.np.take_along_axis(x, i, 1, mode, wrap_negative_indices=wrapped)
            expected = taken(A, indices, THEIRS)
            np.testing.assert_array_equal(taken(A, indices, OURS), expected)
            np.testing.assert_array_equal(jit(functools.partial(taken, e=OURS))(A, indices), expected)
    with pytest.raises(errors.IndexingError) as caught:
        fnp.take_along_axis(A, indices, 1, wrap_negative_indices=False)
    assert str(caught.value).startswith(
        "take_along_axis: index -1 is out of range: with wrap_negative_indices=False none counts from the end. Choose "
        "another mode than 'raise' for such indices")


def test_ravel_multi_index_in_a_dtype() -> None:
    for dtype in (np.int16, np.int64, "uint8"):
        for found in (fnp.ravel_multi_index((PLACES, PLACES), (3, 4), dtype=dtype), jit(
                lambda i, dtype=dtype: fnp.ravel_multi_index((i, i), (3, 4), "clip", dtype=dtype))(PLACES)):
            assert found.dtype == dtype
            assert found.tolist() == np.ravel_multi_index((PLACES, PLACES), (3, 4)).tolist()


def test_static_arguments_of_checkpoint_by_name() -> None:
    def function(x: Any, power: int, *, scale: str = "one") -> Any:
        return np.sum(np.sin(x) ** power) * {"one": 1.0, "two": 2.0}[scale]
    expected = 4 * np.sin(A) * np.cos(A)
    for names in (("power", "scale"), ["scale", "power"]):
        wrapped = fxgrad.checkpoint(function, static_argnames=names)
        for call in (lambda x, f=wrapped: f(x, 2, scale="two"), lambda x, f=wrapped: f(x, scale="two", power=2)):
            np.testing.assert_allclose(grad(call)(A), expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(jit(grad(call))(A), expected, rtol=1e-5, atol=1e-6)
    by_name = fxgrad.checkpoint(lambda x, scale: x * len(scale), static_argnames="scale")
    assert grad(by_name)(2.0, "two") == 3.0



def test_jacobians_in_integers() -> None:
    def function(p: Any, n: Any) -> Any:
        return p["x"][:2] * p["k"].sum() * n
    arguments: Any = {"x": A[0], "k": PLACES}, 3
    (found, by_n), expected = (m.jacrev(function, argnums=(0, 1), allow_int=True)(*arguments) for m in (fxgrad, jax))
    np.testing.assert_array_equal(found["x"], expected[0]["x"])
    assert (found["k"].shape, by_n.shape) == (expected[0]["k"].shape, expected[1].shape) == ((2, 3), (2,))
    assert found["k"].dtype == by_n.dtype == fxgrad.float0
    for mode in ("forward", "reverse"):
        np.testing.assert_array_equal(fxgrad.jacobian(function, mode=mode, allow_int=True)(*arguments)["x"],
                                      expected[0]["x"])
    np.testing.assert_array_equal(jit(lambda *given: fxgrad.jacrev(function, allow_int=True)(*given)["x"])(*arguments),
                                  expected[0]["x"])
    with pytest.raises(errors.DTypeError, match="pass allow_int=True"):
        fxgrad.jacrev(function, argnums=1)(*arguments)


def test_algorithms_of_products() -> None:
    """On a CPU some of them, by XLA; as jax's names, as ours and as text, with derivatives and imported."""
    names = "F32_F32_F32", "BF16_BF16_F32", "BF16_BF16_F32_X3", "F64_F64_F64"
    for name in names:
        algorithm, theirs = fxgrad.lax.DotAlgorithmPreset[name], jax.lax.DotAlgorithmPreset[name]

        def ours(x: Any, precision: Any = algorithm) -> Any:
            return fxgrad.lax.dot(x, x.T, precision=precision)

        def jaxs(x: Any, precision: Any = theirs) -> Any:
            return jax.lax.dot(x, x.T, precision=precision)
        expected = jax.jit(jaxs)(A / 7)
        for function in (ours, lambda x, f=ours, p=theirs: f(x, p), lambda x, f=ours, p=name: f(x, p),
                         fxgrad.from_jax(jaxs), lambda x, p=algorithm: fnp.matmul(x, x.T, precision=p)):
            found = jit(function)(A / 7)
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == expected.dtype
        np.testing.assert_allclose(ours(A / 7), expected, rtol=2e-5)
        assert "precision" in str(fxgrad.make_program(ours)(A).equations[-1].params)
    assert {each.name for each in fxgrad.lax.DotAlgorithmPreset} == {each.name for each in jax.lax.DotAlgorithmPreset}
    np.testing.assert_allclose(jit(grad(lambda x: np.sum(fxgrad.lax.dot(x, x.T, precision="F32_F32_F32"))))(A),
                               grad(lambda x: np.sum(x @ x.T))(A), rtol=1e-6)
    with pytest.raises(errors.ArgumentError, match="a Precision or a DotAlgorithmPreset is needed"):
        fxgrad.lax.dot(A, A.T, precision=jax.lax.DotAlgorithm(np.float32, np.float32, np.float32))
    with pytest.raises(errors.ArgumentError, match="precision='best': a Precision or a DotAlgorithmPreset is needed"):
        fnp.matmul(A, A.T, precision="best")
    np.testing.assert_allclose(jit(lambda x: fnp.einsum("ij,kj", x, x, precision="HIGHEST"))(A), A @ A.T, rtol=1e-6)


def test_options_of_memory_and_of_casts() -> None:
    x = np.arange(6.0).reshape(2, 3)
    places = np.array([0, 4, 5, 2])
    for found, expected in zip(fxgrad.jit(lambda i: np.unravel_index(i, (2, 3), order="F"))(places),
                               np.unravel_index(places, (2, 3), order="F"), strict=True):
        np.testing.assert_array_equal(found, expected)
    for function in (lambda x: np.zeros_like(x, order="C"), lambda x: np.full_like(x, 2, order="F"),
                     lambda x: x.astype(np.float32, "C", casting="same_kind", subok=False, copy=False)):
        expected, found = function(x), fxgrad.jit(function)(x)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
    with pytest.raises(errors.DTypeError, match=(
            r"^astype: float64 does not convert to int32 by casting='same_kind'\. Leave the option out to convert all "
            r"the same\n")):
        fxgrad.jit(lambda x: x.astype(np.int32, casting="same_kind"))(x)


def test_casting_of_python_numbers_by_equivalent_types() -> None:
    """NumPy's resolution of their types ends the process."""
    for x, y in ((3.0, 4.0), (np.ones(2, np.float32), 4.0), (np.ones(2, np.float32), 4)):
        with pytest.raises(errors.DTypeError, match="casting='equiv'"):
            fnp.add(x, y, dtype="float32", casting="equiv")
    assert fnp.add(3.0, 4.0, dtype="float64", casting="equiv") == 7.0
    np.testing.assert_array_equal(fnp.exp(np.zeros(2, np.float32), dtype="float32", casting="equiv"), [1, 1])


def test_comparisons_of_two_integers_with_a_dtype() -> None:
    assert fnp.equal(1, 1, dtype=bool)
    assert not fnp.less(2, 1, dtype=bool)
