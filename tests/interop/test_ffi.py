"""`fxgrad.ffi.ffi_call`: LAPACK's Cholesky factorization as XLA registers it, on every path."""

from __future__ import annotations

from typing import Any

import fxgrad.ffi
import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, grad, jit, vmap

UPLO = np.uint8(ord("L"))
ROOT = np.array([[2.0, 0.0, 0.0], [0.5, 1.0, 0.0], [1.0, -0.5, 3.0]])


@pytest.fixture(autouse=True, scope="module")
def lapack() -> None:
    """XLA loads LAPACK, of which its targets are, where it first compiles a factorization of its own."""
    jax.jit(jax.numpy.linalg.cholesky)(np.eye(2, dtype=np.float32))


def factor(lib: Any, x: Any, **options: Any) -> Any:
    name = {"float32": "lapack_spotrf_ffi", "float64": "lapack_dpotrf_ffi"}[x.dtype.name]
    types = jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(x.shape[:-2], np.int32)
    return lib.ffi.ffi_call(name, types, **options)(x, uplo=UPLO)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ffi_call_as_jax(dtype: Any) -> None:
    x = (ROOT @ ROOT.T).astype(dtype)
    with jax.enable_x64(True):
        expected = jax.jit(lambda x: factor(jax, x))(x)
    ours = lambda x: factor(fxgrad, x)
    for call in (ours, jit(ours), fxgrad.make_program(ours)(x)):
        out, status = call(x)
        assert out.dtype == dtype
        np.testing.assert_allclose(np.triu(out), ROOT.T, rtol=1e-5, atol=1e-6)  # LAPACK counts columns first
        np.testing.assert_array_equal(out, expected[0])
        assert int(status) == 0
    mapped = vmap(lambda x: factor(fxgrad, x, vmap_method="sequential")[0])(np.stack([x, 4 * x]))
    np.testing.assert_allclose(np.triu(mapped[1]), 2 * ROOT.T, rtol=1e-5, atol=1e-6)


def test_ffi_call_with_a_rule() -> None:
    x = (ROOT @ ROOT.T).astype(np.float32)

    @fxgrad.custom_jvp
    def logdet(x: Any) -> Any:
        return 2 * fnp.sum(fnp.log(fnp.diag(factor(fxgrad, x)[0])))
    logdet.defjvp(lambda primals, tangents: (logdet(*primals), fnp.sum(fnp.linalg.inv(primals[0]).T * tangents[0])))
    for call in (grad(logdet), jit(grad(logdet))):
        np.testing.assert_allclose(call(x), np.linalg.inv(x).T, rtol=1e-5, atol=1e-6)


def test_ffi_call_refuses() -> None:
    x = np.eye(3, dtype=np.float32)
    with pytest.raises(errors.UnsupportedError):
        grad(lambda x: fnp.sum(factor(fxgrad, x)[0]))(x)
    with pytest.raises(errors.ArgumentError, match=(
            r"^ffi_call: result_shape_dtypes has a str, where ShapeDtypeStructs are needed: "
            r"fxgrad\.ShapeDtypeStruct\(shape, dtype\)\n  at test_ffi\.py:\d+ ")):
        fxgrad.ffi.ffi_call("name", "float32")
    with pytest.raises(Exception, match="no_such_target"):
        fxgrad.ffi.ffi_call("no_such_target", jax.ShapeDtypeStruct((3, 3), np.float32))(x)
