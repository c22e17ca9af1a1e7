"""What the laws do not see of the rules: how much is recorded, symbolic zeros, refusals where nothing checks."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special

import fxgrad
import fxgrad.numpy as fnp
import fxgrad.scipy.linalg
import fxgrad.scipy.special
from fxgrad import config, errors, lax
from fxgrad.engine.ops.exponential import cbrt_p, sqrt_p
from fxgrad.engine.ops.reductions import attains_p
from fxgrad.engine.ops.singular import singular_points
from fxgrad.engine.tracing.tape import bind

X = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("function", [
    lambda x: fnp.concatenate([x, x]), lambda x: fnp.stack([x, x]), lambda x: fnp.sort(x), lambda x: fnp.cumsum(x)])
def test_what_is_batched_along_one_axis_is_not_moved(function: Any) -> None:
    program = fxgrad.make_program(fxgrad.vmap(function, in_axes=1))(X)
    assert "transpose" not in {equation.primitive.name for equation in program.equations[:-1]}


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_results_that_are_the_same_for_all_are_repeated_along_any_axis(axis: int) -> None:
    found = fxgrad.vmap(lambda x: X, out_axes=axis)(np.ones(4))
    np.testing.assert_array_equal(found, np.stack([X] * 4, axis))


def test_cotangents_of_outputs_that_nobody_uses_pass_a_barrier() -> None:
    back = fxgrad.linear_transpose(lambda x: lax.optimization_barrier((x, 2 * x))[0], X)
    np.testing.assert_array_equal(back(X + 1)[0], X + 1)


@pytest.mark.parametrize("k", [-1, 4])
def test_more_elements_than_there_are_are_refused_unchecked_too(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check_level", 0)
    with pytest.raises(errors.FxgradError, match=f"k={k}"):
        lax.top_k(X, k)


def test_functions_by_kernels_of_xla() -> None:
    x = np.array([0.2, 0.7, 2.5])
    for name in ("dawsn", "erfcx"):
        found = getattr(fxgrad.scipy.special, name)(x)
        np.testing.assert_allclose(found, getattr(scipy.special, name)(x), rtol=1e-10, err_msg=name)


def test_complex_sylvester_equations_compiled() -> None:
    a, b = np.array([[2.0, 1j], [1 - 1j, 3.0]]), np.array([[1.0, 0.5j], [0.3, 1 + 1j]])
    c = np.array([[1 + 2j, 0.0], [1.0, -1j]])
    found = fxgrad.jit(fxgrad.scipy.linalg.solve_sylvester)(a, b, c)
    np.testing.assert_allclose(a @ found + found @ b, c, atol=1e-14)


@pytest.mark.parametrize("order", [12, 30, 60])
def test_polygamma_of_high_orders(order: int) -> None:
    """The higher the order, the later the expansion may begin; near 8 to 10 one sees where."""
    at = np.array([0.3, 2.5, 6.0, 8.0, 9.0, 9.9, 10.1, 14.0, 40.0])
    expected = scipy.special.polygamma(order, at)
    np.testing.assert_allclose(lax.polygamma(np.full_like(at, order), at), expected, rtol=5e-12)
    alone = [lax.polygamma(np.float64(order), each) for each in at]  # without others, for which the sum goes on
    np.testing.assert_allclose(alone, expected, rtol=5e-12)


def test_a_kernel_alone_is_batched_along_any_axis() -> None:
    """Of a convolution in groups too, where the kernels of a batch become further features of each group."""
    for groups in (1, 2):
        image = np.arange(24.0 * groups).reshape(1, 3 * groups, 8) % 5
        kernels = np.arange(72.0 * groups).reshape(groups * 4, 3, 2, 3) % 7 - 3
        found = fxgrad.vmap(lambda kernel, image=image, groups=groups: lax.conv_general_dilated(
            image, kernel, (1,), "VALID", feature_group_count=groups), in_axes=2)(kernels)
        for place, result in enumerate(found):
            kernel = kernels[:, :, place]
            expected = [[sum(image[0, feature // 4 * 3:feature // 4 * 3 + 3, at + offset] @ kernel[feature, :, offset]
                             for offset in range(3)) for at in range(6)] for feature in range(groups * 4)]
            np.testing.assert_array_equal(result[0], expected)


def test_products_with_rows_in_groups() -> None:
    left, right, sizes = np.arange(10.0).reshape(5, 2), np.arange(12.0).reshape(3, 2, 2) - 4, np.array([2, 0, 2])
    expected = np.stack([left[0] @ right[0], left[1] @ right[0], left[2] @ right[2], left[3] @ right[2], np.zeros(2)])
    np.testing.assert_array_equal(lax.ragged_dot(left, right, sizes), expected)
    slopes = fxgrad.grad(lambda left: fnp.sum(lax.ragged_dot(left, right, sizes)))(left)
    np.testing.assert_array_equal(slopes, right.sum(2)[[0, 0, 2, 2, 0]] * np.array([[1], [1], [1], [1], [0]]))


def test_bits_are_left_out_of_floats_of_a_byte() -> None:
    x = np.array([1.125, 1.25, -3.5, np.inf], np.float32).astype(fnp.float8_e4m3)
    found = lax.reduce_precision(x, 4, 1)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found.astype(np.float32), [1.0, 1.0, -4.0, np.inf])


def test_windows_have_a_size_for_each_axis() -> None:
    numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    for sizes in ((1,), (1, -1), (1, 3, 1)):
        with pytest.raises(errors.FxgradError, match="there must be one window size for each axis"):
            lax.gather(X, np.array([[0], [1]]), numbers, sizes)


def test_solutions_of_matrices_that_may_be_singular() -> None:
    """Within `safe` the derivatives are those of ordinary solves, and 0 for a singular matrix that is not chosen."""
    a, b = np.stack([[[2.0, 0.0], [1.0, 4.0]], np.zeros((2, 2))]), np.array([1.0, 3.0])

    def total(b: Any) -> Any:
        solved = lax.linalg.triangular_solve(a, fnp.stack([b, b])[..., None], left_side=True, lower=True)
        return fnp.sum(fnp.where(np.array([True, False])[:, None, None], solved, 0.0))
    with np.errstate(all="ignore"):
        slope = fxgrad.grad(fxgrad.nan_safe(total))(b)
    np.testing.assert_allclose(slope, np.linalg.inv(a[0]).sum(0), rtol=1e-15)


def test_infinite_slopes_of_roots_are_among_the_singular_points() -> None:
    for primitive in (sqrt_p, cbrt_p):
        assert fxgrad.grad(fxgrad.nan_safe(lambda x, primitive=primitive: bind(primitive, x)[0]))(0.0) == np.inf
        point, = singular_points.of(primitive)
        assert (point.operands, point.first) == ((0.0,), np.inf)


@pytest.mark.parametrize("extremum", [fnp.maximum, fnp.minimum])
def test_shares_of_extrema_compare_the_operands_alone(extremum: Any) -> None:
    """XLA may compute operands again, rounded differently from a stored extremum, so that neither equals it."""
    program = fxgrad.make_program(fxgrad.grad(lambda x: fnp.sum(extremum(x, 0.1 * x) ** 2)))(X)
    extrema = {each.outputs[0] for each in program.equations if each.primitive.name in ("max", "min")}
    compared = [each for each in program.equations if each.primitive.name in ("eq", "lt", "gt")]
    assert (len(extrema), len(compared)) == (1, 3)
    assert not any(operand in extrema for each in compared for operand in each.inputs)


def test_shares_of_extrema_at_ties_and_nans() -> None:
    x, y = np.array([1.0, 2.0, 3.0, np.nan, 1.0, 0.0]), np.array([2.0, 2.0, 1.0, 1.0, np.nan, -0.0])
    for extremum, share in ((fnp.maximum, [0, 0.5, 1, 0, 0, 0.5]), (fnp.minimum, [1, 0.5, 0, 0, 0, 0.5])):
        of_x, of_y = fxgrad.grad(lambda x, y: fnp.sum(extremum(x, y)), argnums=(0, 1))(x, y)  # noqa: B023
        np.testing.assert_array_equal(of_x, share)
        np.testing.assert_array_equal(of_y, [*share[2::-1], *share[3:]])


@pytest.mark.parametrize(("extremum", "beyond"), [(np.max, np.inf), (np.min, -np.inf)])
def test_a_row_without_its_extremum_is_compared_again_compiled(extremum: Any, beyond: float) -> None:
    """The extrema are those that XLA rounded otherwise than the elements beside the comparison."""
    x = np.array([[[1.0, 3.0, 2.0], [3.0, 0.0, 1.0]], [[np.nan, 1.0, 2.0], [0.0, 1.0, 2.0]],
                  [[4.0, 4.0, 5.0], [4.0, 5.0, 4.0]]])
    compiled = jax.jit(fxgrad.to_jax(lambda x, out: bind(attains_p, x, out, greatest=extremum is np.max)[0]))
    for axes in ((2,), (0,), (1, 2), (0, 2), ()):
        out = extremum(x, axes, keepdims=True)
        np.testing.assert_array_equal(compiled(x, out), x == out)
        if axes:
            np.testing.assert_array_equal(compiled(x, np.nextafter(out, beyond)), x == out)


OPTIMIZED = """
import numpy as np, fxgrad, fxgrad.numpy as fnp

def network(act):
    def loss(x, b):
        h = x
        for _ in range(2):
            z = act(h)
            h = z / (1.0 + fnp.sum(z * z, axis=-1, keepdims=True)) + b
        return fnp.sum(fnp.abs(h))
    return fxgrad.grad(loss)

acts = {
    "max": lambda h: h * 2.0 - fnp.max(h * 3.0, axis=-1, keepdims=True), "min": lambda h: h * fnp.min(h * 3.0, axis=0),
    "several axes": lambda h: h - fnp.max(h * 3.0), "ptp": lambda h: h + fnp.ptp(h * 3.0, axis=-1, keepdims=True),
    "cummax": lambda h: fxgrad.lax.cummax(h * 3.0, axis=0), "cummin": lambda h: fxgrad.lax.cummin(h * 3.0, axis=1)}
for name, act in acts.items():
    compiled = fxgrad.jit(network(act))
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x, b = rng.normal(size=(3, 4)).astype("float32"), 0.3 * rng.normal(size=4).astype("float32")
        np.testing.assert_allclose(compiled(x, b), network(act)(x, b), 1e-3, 1e-4, err_msg=f"{name} {seed}")
"""


@pytest.mark.slow
def test_gradients_of_extrema_compiled_with_all_optimizations() -> None:
    """XLA computes the operands twice there; the other tests compile with few optimizations (see conftest.py)."""
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""}
    assert subprocess.run([sys.executable, "-c", OPTIMIZED], env=environment, check=False).returncode == 0
