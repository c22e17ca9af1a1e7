"""jax's functions imported: their operations become fxgrad's own, with all parameters.

That each imported function equals jax's in value, derivatives and batches, is tested where fxgrad's own functions are
compared with jax's: in `tests/comparison/test_comparison.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad import dtypes
from fxgrad.engine.executors.xla import emit
from fxgrad.interop import import_jaxpr
from tests.comparison.checks import Item, compare, compiled_problems, derivative_items, refusal
from tests.support.origins import bridge, jaxpr_of, origins


def assert_none(problems: list[Any]) -> None:
    assert not problems, "\n" + "\n".join(map(str, problems))


# --- all functions with generated arguments -----------------------------------------------------------------------


# --- operations that no case above needs, with their parameters ---------------------------------------------------

MATRIX = np.arange(12.0, dtype=np.float32).reshape(3, 4) % 5 - 1.5
VECTOR = np.array([0.3, -1.2, 2.0], np.float32)
POSITIVE = np.array([0.3, 1.2, 2.0], np.float32)
KEY = jax.random.key_data(jax.random.key(7))
NUMBERS = jax.lax.GatherDimensionNumbers((1,), (0,), (0,))
UPDATES = jax.lax.ScatterDimensionNumbers((1,), (0,), (0,))
PLACES = np.array([[2], [0], [7]], np.int32)
WINDOW = ((2, 2), (1, 2), "SAME")


def _pooled(combine: Any, init: float) -> Any:
    return lambda x: jax.lax.reduce_window(x, init, combine, *WINDOW)


def _gradient(function: Any) -> Any:
    return jax.grad(lambda *args: jnp.sum(jnp.sin(function(*args))))


def _random(draw: Any) -> Any:
    return lambda words: draw(jax.random.wrap_key_data(words))


OTHERS = {
    "add_any": (jax.grad(lambda x: jnp.sum(x * jnp.sin(x))), VECTOR),
    "approximate extrema, a middle axis": (lambda x: jax.lax.approx_min_k(x, 2, reduction_dimension=0), MATRIX),
    "broadcast, axes apart": (lambda x: jax.lax.broadcast_in_dim(x, (2, 3, 4), (1,)), VECTOR),
    "clip mode": (lambda x, i: jax.lax.gather(x, i, NUMBERS, (1, 4), mode="clip"), MATRIX, PLACES),
    "complex parts": (lambda x: jnp.abs(jax.lax.complex(x, 2 * x)) + jnp.angle(jax.lax.complex(x, x)), VECTOR),
    "convolution": (lambda x, k: jax.lax.conv_general_dilated(
        x, k, (2,), [(1, 2)], (2,), (3,), ("NHC", "HIO", "NCH"), feature_group_count=2),
        np.ones((2, 8, 4), np.float32), np.arange(24, dtype=np.float32).reshape(2, 2, 6)),
    "convolution, groups of the batch": (lambda x, k: jax.lax.conv_general_dilated(
        x, k, (1,), "VALID", batch_group_count=2), np.ones((4, 2, 5), np.float32), np.ones((6, 2, 3), np.float32)),
    "derivative of a convolution": (lambda x, k: _gradient(lambda k: jax.lax.conv(x, k, (2,), "SAME"))(k),
                                    np.ones((2, 3, 8), np.float32), np.ones((4, 3, 3), np.float32)),
    "derivative of a determinant": (jax.grad(lambda x: jnp.linalg.slogdet(x @ x.T + jnp.eye(3))[1]), MATRIX),
    "derivative of a gather": (_gradient(lambda x: x[jnp.array([0, 2, 0])]), MATRIX),
    "derivative of a product": (_gradient(lambda x: jnp.prod(x, 0)), MATRIX),
    "derivative of cumprod": (_gradient(lambda x: jnp.cumprod(x, 1)), MATRIX),
    "derivative of maxima of windows": (_gradient(_pooled(jax.lax.max, -np.inf)), MATRIX),
    "derivative of a scatter": (lambda x, u: jax.grad(
        lambda u: jnp.sum(x.at[jnp.array([1, 0])].mul(u, unique_indices=True)))(u), MATRIX, MATRIX[:2]),
    "derivative of sorting": (_gradient(lambda x: jnp.sort(x, 0)), MATRIX),
    "derivative of sums of windows": (_gradient(_pooled(jax.lax.add, 0.0)), MATRIX),
    "device of no name": (lambda x: jax.device_put(x) * 2, VECTOR),
    "dynamic slice": (lambda x, i: jax.lax.dynamic_slice(x, (i, jnp.int32(1)), (2, 2)), MATRIX, np.int32(2)),
    "dynamic update": (lambda x, i: jax.lax.dynamic_update_slice(x, 2 * x[:1, :2], (i, 0)), MATRIX, np.int32(-1)),
    "fill mode": (lambda x, i: jax.lax.gather(x, i, NUMBERS, (1, 4), mode="fill", fill_value=3.0), MATRIX, PLACES),
    "function of pairs in windows": (lambda x: jax.lax.reduce_window(
        (x, -x), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), *WINDOW), MATRIX),
    "function of pairs over axes": (lambda x: jax.lax.reduce(
        (x, -x), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)), MATRIX),
    "index of several dtypes": (lambda x, i: jax.lax.dynamic_slice_in_dim(x, i, 1), MATRIX, np.uint8(1)),
    "inverse Fourier transform": (lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x)), MATRIX),
    "keys, batched": (_random(lambda key: jax.vmap(lambda key: jax.random.normal(key, (2,)))(
        jax.random.split(key, 3))), KEY),
    "keys, chosen": (_random(lambda key: jax.random.key_data(jnp.where(
        jnp.array([True, False]), jax.random.split(key), key))), KEY),
    "keys, folded": (_random(lambda key: jax.random.uniform(jax.random.fold_in(key, 3))), KEY),
    "keys of 64 bits": (_random(lambda key: jax.random.bits(key, (3,), "uint16")), KEY),
    "Kronecker product": (lambda x, y: jnp.kron(x, y), MATRIX, MATRIX),
    "lgamma and its like": (lambda x: jax.scipy.special.gammaincc(x, 2 * x) + jax.scipy.special.betainc(x, x, 0.4)
                            + jax.scipy.special.zeta(x + 1.5, x) + jax.scipy.special.polygamma(1, x), POSITIVE),
    "maxima of windows": (_pooled(jax.lax.max, -np.inf), MATRIX),
    "minima of windows": (_pooled(jax.lax.min, np.inf), MATRIX),
    "narrow sums": (lambda x: jnp.dot(x, x.T, preferred_element_type="float32"), MATRIX.astype(dtypes.bfloat16)),
    "pad": (lambda x: jax.lax.pad(x, 0.5, ((1, -1, 2), (0, 3, 0))), MATRIX),
    "power with a whole exponent": (lambda x, n: x ** n, VECTOR, np.array([2, 3, 0], np.int32)),
    "polar decomposition": (lambda x: jax.lax.linalg.qdwh(x)[1], MATRIX.T),
    "products over groups": (lambda x, w: jax.lax.ragged_dot(x, w, jnp.array([1, 2])), MATRIX,
                             np.ones((2, 4, 2), np.float32)),
    "random gamma": (_random(lambda key: jax.random.gamma(key, POSITIVE)), KEY),
    "remainder and rounding": (lambda x: jnp.fmod(x, 0.7) + jnp.round(x) + jax.lax.round(x), VECTOR),
    "scatter with promises": (lambda x: x.at[jnp.array([0, 2])].max(
        0.1, indices_are_sorted=True, unique_indices=True), MATRIX),
    "scatter of a function": (lambda x, i: jax.lax.scatter_apply(x, i, jnp.sin, UPDATES, update_shape=(3, 4)), MATRIX,
                              PLACES),
    "select by an integer": (lambda i, x: jax.lax.select_n(i, x, 2 * x, 3 * x), np.array([2, 0, 1], np.int32), VECTOR),
    "squares of matrices": (lambda x: jax.lax.linalg.symmetric_product(x, x @ x.T, alpha=2.0, beta=0.5), MATRIX),
    "stopped derivative": (_gradient(lambda x: x * jax.lax.stop_gradient(x)), VECTOR),
    "subtracting scatter": (lambda x, i, u: jax.lax.scatter_sub(x, i, u, UPDATES, mode="clip"), MATRIX, PLACES, MATRIX),
    "triangular system, from the right": (lambda a, b: jax.lax.linalg.triangular_solve(
        a, b, left_side=False, lower=True, transpose_a=True, unit_diagonal=True), np.tri(4, dtype=np.float32), MATRIX),
}
"""What it is about: jax's function, and its arguments."""


def items(about: str) -> list[Item]:
    """The function and its derivatives in all arguments that have any."""
    function, *args = OTHERS[about]
    imported = bridge(function, x64=False)
    places = [place for place, arg in enumerate(args) if dtypes.is_inexact(arg.dtype)]
    moved = derivative_items(about, function, imported, args, places) if places else []
    return [Item(about, "values", function, imported, args, 1.0, False), *moved]


@pytest.mark.slow
@pytest.mark.parametrize("about", OTHERS)
def test_other_operations(about: str) -> None:
    value = items(about)[0]
    assert refusal(value) is None
    assert not origins(jaxpr_of(value)).opaque
    assert_none(compare([value]))


@pytest.mark.long
def test_derivatives_of_other_operations() -> None:
    every = [item for about in OTHERS for item in items(about)]
    assert_none(compare(every))
    assert_none(compiled_problems(every))


# --- operations that other versions of jax make -------------------------------------------------------------------

TURNED = VECTOR + 1j * VECTOR[::-1]
MADE_ELSEWHERE = {
    "log2": ({}, [POSITIVE], np.log2(POSITIVE)),
    "one_minus_square": ({}, [VECTOR], 1 - VECTOR ** 2),
    "one_minus_square, complex": ({}, [TURNED], 1 - TURNED ** 2),
    "polynomial": ({"unroll": 4}, [VECTOR, np.float32(2.0), np.float32(-1.0), np.float32(3.0)],
                   2 - VECTOR + 3 * VECTOR ** 2),
}
"""The primitive's name: its parameters, its operands, and the values that it has."""


def test_operations_that_other_versions_of_jax_make() -> None:
    for about, (params, args, expected) in MADE_ELSEWHERE.items():
        made = jax.extend.core.Primitive(about.partition(",")[0])
        made.def_abstract_eval(lambda x, *_, **params: jax.core.ShapedArray(x.shape, x.dtype))
        imported = bridge(lambda *args, made=made, params=params: made.bind(*args, **params), x64=False)
        result = imported(*args)
        assert result.dtype == expected.dtype, about
        np.testing.assert_allclose(result, expected, rtol=1e-6, err_msg=about)


# --- what stays jax's ---------------------------------------------------------------------------------------------

STAY = {
    "accuracy": (lambda x: jax.lax.exp(x, accuracy=jax.lax.Tolerance(atol=1e-3)), "exp"),
    "bits of the device": (lambda x: jax.lax.rng_bit_generator(jnp.arange(4, dtype="uint32"), (3,))[1],
                           "rng_bit_generator"),
    "complex order": (lambda x: jax.lax.clamp(x + 1j, x - 1j, x + 2j), "clamp"),
    "implementation": (lambda x: jax.lax.linalg.eig(x, implementation=jax.lax.linalg.EigImplementation.LAPACK)[0],
                       "eig"),
    "device": (lambda x: jax.device_put(x, jax.devices()[0]), "device_put"),
    "parts of extrema": (lambda x: jax.lax.approx_max_k(x, 2, aggregate_to_topk=False), "approx_top_k"),
    "versions for platforms": (lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos),
                               "platform_index"),
}
"""Settings that fxgrad has not: jax's function, and the primitive that keeps them."""


@pytest.mark.parametrize("about", STAY)
def test_settings_that_fxgrad_has_not_keep_the_equation_jaxs(about: str) -> None:
    function, name = STAY[about]
    x = np.eye(3, dtype=np.float32)
    assert [*origins(jax.make_jaxpr(function)(x)).opaque] == [name]
    assert_none(compare([Item(about, "values", function, bridge(function, x64=False), [x], 1.0, False)]))


def test_bits_in_another_order_stay_jaxs() -> None:
    draw = _random(lambda key: jax.random.bits(key, (3,)))
    with jax.threefry_partitionable(False):
        jaxpr = jax.make_jaxpr(draw)(KEY)
        assert [*origins(jaxpr).opaque] == ["random_bits"]
        program, expected = import_jaxpr(jaxpr), draw(KEY)
    assert (program(np.asarray(KEY)) == expected).all()
    assert (fxgrad.jit(program)(KEY) == expected).all()
    assert not (draw(KEY) == expected).all()


# --- parameters are carried over ----------------------------------------------------------------------------------


def walked(jaxpr: Any) -> Iterator[Any]:
    """The equations of a jaxpr, and those of the jaxprs inside."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for each in value if isinstance(value, tuple | list) else [value]:
                if hasattr(each, "eqns"):
                    yield from walked(each)


CARRIED = {
    "conv_general_dilated": lambda x: jax.lax.conv_general_dilated(
        x[None, None], x[None, None], (2, 1), ((2, 1), (2, 3)), (1, 2), (2, 1), precision="high",
        preferred_element_type="float64"),
    "dot_general": lambda x: jax.lax.dot_general(x, x, (((1,), (0,)), ((), ())), ("high", "highest"), "float64"),
    "eig": lambda x: jax.lax.linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0],
    "gather": lambda x: x.at[jnp.array([0, 2])].get(mode="fill", fill_value=2.0, indices_are_sorted=True,
                                                   unique_indices=True),
    "reduce_precision": lambda x: jax.lax.reduce_precision(x, 5, 3),
    "reduce_window_max": lambda x: jax.lax.reduce_window(x, -np.inf, jax.lax.max, (2, 1), (1, 2), ((0, 1), (1, 0)),
                                                         (2, 1), (1, 2)),
    "round": lambda x: jax.lax.round(x, jax.lax.RoundingMethod.TO_NEAREST_EVEN),
    "schur": lambda x: jax.lax.linalg.schur(x, compute_schur_vectors=False),
    "scatter-add": lambda x: x.at[jnp.array([0, 2])].add(1, mode="clip", indices_are_sorted=True, unique_indices=True),
    "svd": lambda x: jax.lax.linalg.svd(x, full_matrices=False, compute_uv=False),
    "triangular_solve": lambda x: jax.lax.linalg.triangular_solve(
        x, x, left_side=False, lower=True, transpose_a=True, conjugate_a=True, unit_diagonal=True),
}


@pytest.mark.parametrize("name", CARRIED)
def test_parameters_are_carried_over(name: str) -> None:
    """What jax is handed again has the parameters that it had."""
    x = np.eye(3, dtype=np.float32)

    def params(jaxpr: Any) -> dict[str, Any]:
        equation, = (each for each in walked(jaxpr) if each.primitive.name == name)
        return {key: value for key, value in equation.params.items() if not key.startswith("update_")}

    with jax.enable_x64(True):
        jaxpr = jax.make_jaxpr(CARRIED[name])(x)
        program = import_jaxpr(jaxpr)
        again = jax.make_jaxpr(lambda *inputs: emit(program, inputs))(*program.constants, x)
    assert params(jaxpr) == params(again)


# --- programs do not grow -----------------------------------------------------------------------------------------


def equations(jaxpr: Any) -> int:
    """How many there are, in the place of calls those of the functions that are called."""
    return sum(equation.primitive.name not in ("jit", "custom_jvp_call") for equation in walked(jaxpr))


def attention(x: Any, w: Any) -> Any:
    projected = jnp.einsum("bti,ihd->bthd", x, w)
    mixed = jax.nn.dot_product_attention(projected, projected, projected, is_causal=True)
    normal = (mixed - mixed.mean(-1, keepdims=True)) * jax.lax.rsqrt(mixed.var(-1, keepdims=True) + 1e-5)
    return jnp.sum(jax.nn.gelu(normal) + jax.nn.log_softmax(normal))


def network(x: Any, w: Any, b: Any) -> Any:
    hidden = jax.nn.relu(x @ w + b)
    return -jnp.mean(jax.nn.log_softmax(hidden)[jnp.arange(len(x)), jnp.argmax(x, -1)])


MODELS = {
    "attention": (attention, np.ones((2, 4, 8), np.float32), np.ones((8, 2, 4), np.float32)),
    "derivative of a network": (jax.grad(network, argnums=1), np.ones((3, 4), np.float32),
                                np.ones((4, 5), np.float32), np.ones(5, np.float32)),
    "network": (network, np.ones((3, 4), np.float32), np.ones((4, 5), np.float32), np.ones(5, np.float32)),
    "pairwise distances": (lambda x: jnp.sqrt(((x[:, None] - x) ** 2).sum(-1)), MATRIX),
    "statistics": (lambda x: (x - jnp.median(x)) / jnp.std(x, ddof=1) + jnp.quantile(x, 0.3), MATRIX),
}


@pytest.mark.parametrize("about", MODELS)
def test_programs_do_not_grow(about: str) -> None:
    """Imported and handed to jax again, a program has no more equations than jax's own."""
    function, *args = MODELS[about]
    jaxpr = jax.make_jaxpr(function)(*args)
    program = import_jaxpr(jaxpr)
    again = jax.make_jaxpr(lambda *inputs: emit(program, inputs))(*program.constants, *args)
    assert equations(again) <= equations(jaxpr)
