"""Layers against formulas in NumPy and jax, their derivatives, and the mask of dropout under every transformation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import nn
from fxgrad.errors import ArgumentError, DTypeError, ShapeError
from fxgrad.testing import check_grads

KEY = fxgrad.random.key(3)
X = np.linspace(-1.0, 2.0, 12).reshape(3, 4)


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


# --- dropout --------------------------------------------------------------------------------------------------------


def test_row_m11_the_mask_of_the_backward_pass_is_that_of_the_forward_pass() -> None:
    x = np.ones((50, 8))

    def loss(x):
        return np.sum(nn.dropout(x, 0.25, KEY) * 3.0)

    kept = nn.dropout(x, 0.25, KEY)
    assert set(np.unique(kept)) == {0.0, 1 / 0.75}
    assert 0.65 < np.mean(kept > 0) < 0.85
    for gradient in (fxgrad.grad(loss), fxgrad.grad(fxgrad.checkpoint(loss))):
        np.testing.assert_array_equal(gradient(x), 3.0 * kept)


@pytest.mark.slow
def test_row_m11_the_mask_is_one_under_every_transformation() -> None:
    x = np.linspace(1.0, 2.0, 64).reshape(8, 8)

    def loss(x, key=KEY):
        return fnp.sum(fnp.tanh(nn.dropout(x, 0.4, key)) ** 2)

    expected = fxgrad.grad(loss)(x)
    np.testing.assert_array_equal(expected == 0.0, nn.dropout(x, 0.4, KEY) == 0.0)
    for gradient in (fxgrad.grad(fxgrad.checkpoint(loss)), fxgrad.jit(fxgrad.grad(loss)),
                     fxgrad.grad(loss, memory_budget=10**6), fxgrad.grad(fxgrad.jit(fxgrad.checkpoint(loss))),
                     lambda x: fxgrad.jacfwd(loss)(x)):
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-12)

    keys = fxgrad.random.split(KEY, 3)
    alone = np.stack([np.asarray(fxgrad.grad(loss)(x, key)) for key in keys])
    np.testing.assert_allclose(fxgrad.vmap(fxgrad.grad(loss), in_axes=(None, 0))(x, keys), alone, rtol=1e-12)

    def in_a_loop(x):
        return fxgrad.scan(lambda total, key: (total + loss(x, key), None), 0.0, keys)[0]
    for function in (in_a_loop, fxgrad.jit(in_a_loop)):
        np.testing.assert_allclose(fxgrad.grad(function)(x), alone.sum(0), rtol=1e-12)


def test_rates_keys_and_dtypes() -> None:
    np.testing.assert_array_equal(nn.dropout(X, 0.5), X)
    np.testing.assert_array_equal(nn.dropout(X, 0, KEY), X)
    np.testing.assert_array_equal(nn.dropout(X, 1.0, KEY), 0 * X)
    np.testing.assert_array_equal(nn.dropout(X, np.float32(0.5), KEY), nn.dropout(X, 0.5, KEY))
    assert nn.dropout(X.astype(np.float16), 0.5, KEY).dtype == np.float16
    np.testing.assert_array_equal(nn.dropout(X, 0.5, fxgrad.random.PRNGKey(3)), nn.dropout(X, 0.5, KEY))
    for rate in (np.array(0.5), jax.numpy.float32(0.5), fnp.float32(0.5)):
        np.testing.assert_array_equal(nn.dropout(X, rate, KEY), nn.dropout(X, 0.5, KEY))


def test_a_traced_rate_has_the_mask_of_a_known_one() -> None:
    rates = np.array([0.0, 0.3, 0.5, 1.0])
    expected = [nn.dropout(X, rate, KEY) for rate in rates]
    np.testing.assert_allclose(fxgrad.vmap(lambda rate: nn.dropout(X, rate, KEY))(rates), expected, rtol=1e-15)
    half = fxgrad.jit(lambda rate: nn.dropout(X.astype(np.float16), rate, KEY))(0.5)
    np.testing.assert_array_equal(half, nn.dropout(X.astype(np.float16), 0.5, KEY))
    assert half.dtype == np.float16
    slope = fxgrad.grad(lambda rate: fnp.sum(nn.dropout(X, rate, KEY)))(0.5)
    np.testing.assert_allclose(slope, np.sum(nn.dropout(X, 0.5, KEY)) / 0.5, rtol=1e-12)
    at_one = fxgrad.jit(lambda rate: fxgrad.grad(lambda x: fnp.sum(nn.dropout(x, rate, KEY)))(X))(1.0)
    np.testing.assert_array_equal(at_one, 0 * X)


# --- normalisations -------------------------------------------------------------------------------------------------


def normal(x: Any, axes: Any) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def test_row_p11_normalisations() -> None:
    x, scale, bias = drawn(3, 5, 6), drawn(6, seed=1), drawn(6, seed=2)
    np.testing.assert_allclose(nn.layer_norm(x, scale, bias), normal(x, -1) * scale + bias, rtol=1e-12)
    np.testing.assert_allclose(nn.layer_norm(x, bias=bias, axis=(1, 2)), normal(x, (1, 2)) + bias, rtol=1e-12)
    np.testing.assert_allclose(nn.rms_norm(x, scale), x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6) * scale,
                               rtol=1e-12)
    parts = np.concatenate([normal(x[..., at:at + 2], (1, 2)) for at in (0, 2, 4)], -1)
    np.testing.assert_allclose(nn.group_norm(x, 3, scale, bias), parts * scale + bias, rtol=1e-12)
    first = np.moveaxis(nn.group_norm(np.moveaxis(x, -1, 1), 3, scale, bias, axis=1), 1, -1)
    np.testing.assert_allclose(first, parts * scale + bias, rtol=1e-12)
    result, mean, variance = nn.batch_norm(x, scale, bias)
    np.testing.assert_allclose(result, normal(x, (0, 1)) * scale + bias, rtol=1e-12)
    np.testing.assert_allclose([mean, variance], [x.mean((0, 1)), x.var((0, 1))], rtol=1e-12)
    again, *_ = nn.batch_norm(x[:1], scale, bias, mean=mean, variance=variance)
    np.testing.assert_allclose(again, result[:1], rtol=1e-12)


def test_half_precision_is_normalised_in_float32() -> None:
    x = (drawn(4, 64) + 100.0).astype(np.float16)
    found = nn.layer_norm(x)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, normal(x.astype(np.float64), -1), atol=2e-3)


LAYERS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "layer_norm": (nn.layer_norm, (drawn(2, 4), drawn(4, seed=1), drawn(4, seed=2))),
    "rms_norm": (nn.rms_norm, (drawn(2, 4), drawn(4, seed=1))),
    "group_norm": (lambda x, scale, bias: nn.group_norm(x, 2, scale, bias),
                   (drawn(2, 3, 4), drawn(4, seed=1), drawn(4, seed=2))),
    "batch_norm": (lambda x, scale: nn.batch_norm(x, scale)[0], (drawn(3, 4), drawn(4, seed=1))),
    "conv2d": (lambda x, kernel, bias: nn.conv2d(x, kernel, bias, strides=2),
               (drawn(1, 4, 4, 2), drawn(3, 3, 2, 2, seed=1), drawn(2, seed=2))),
    "gru_cell": (nn.gru_cell, (drawn(3), drawn(2, seed=1), drawn(2, 9, seed=2), drawn(3, 9, seed=3), drawn(9, seed=4),
                               drawn(9, seed=5))),
    "lstm_cell": (lambda h, c, *rest: nn.lstm_cell((h, c), *rest)[0],
                  (drawn(3), drawn(3, seed=6), drawn(2, seed=1), drawn(2, 12, seed=2), drawn(3, 12, seed=3),
                   drawn(12, seed=4))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_row_p11_gradients_and_programs(name: str) -> None:
    layer, args = LAYERS[name]
    check_grads(layer, args, order=1, modes=("fwd", "rev"))
    names = [equation.params.get("name") for equation in fxgrad.make_program(layer)(*args).equations]
    assert names[-1] == name
    np.testing.assert_allclose(fxgrad.jit(layer)(*args), layer(*args), rtol=1e-12)
    batch = [np.stack([arg, arg + 1.0]) for arg in args]
    found = fxgrad.vmap(layer)(*batch)
    np.testing.assert_allclose(found[1], layer(*[arg + 1.0 for arg in args]), rtol=1e-12)


def test_programs_say_what_the_arrays_of_a_layer_are() -> None:
    text = str(fxgrad.make_program(lambda x, b: nn.layer_norm(x, bias=b))(X, X[0]))
    assert "layer_norm(x, b)" in text
    assert "where layer_norm(x: f64[3,4], bias: f64[4])" in text


# --- convolution, recurrent cells -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"strides": 2, "padding": "VALID"}, {"dilation": (2, 1), "groups": 2},
                                     {"padding": ((1, 0), (2, 1))}])
def test_row_p11_conv2d_is_jaxs(options: dict[str, Any]) -> None:
    groups = options.get("groups", 1)
    x, kernel = drawn(2, 7, 6, 4).astype("f"), drawn(3, 2, 4 // groups, 6, seed=1).astype("f")
    pair = {name: (value,) * 2 if isinstance(value, int) else value for name, value in options.items()}
    expected = jax.lax.conv_general_dilated(
        x, kernel, pair.get("strides", (1, 1)), pair.get("padding", "SAME"), rhs_dilation=pair.get("dilation"),
        feature_group_count=groups, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    np.testing.assert_allclose(nn.conv2d(x, kernel, **options), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_row_p11_recurrent_cells_are_pytorchs() -> None:
    """Its formulas, in jax; and in a scan, its gradient too."""
    weights = [drawn(5, 12, seed=1), drawn(4, 12, seed=2), drawn(12, seed=3), drawn(12, seed=4)]
    quarters = [drawn(5, 16, seed=1), drawn(4, 16, seed=2), drawn(16, seed=3), drawn(16, seed=4)]
    inputs = drawn(6, 3, 5, seed=7)

    def gru(h, x, w, u, b, c):
        (r, z, n), (r2, z2, n2) = (jnp.split(v, 3, -1) for v in (x @ w + b, h @ u + c))
        r, z = jax.nn.sigmoid(r + r2), jax.nn.sigmoid(z + z2)
        return (1 - z) * jnp.tanh(n + r * n2) + z * h

    def lstm(state, x, w, u, b, d):
        h, c = state
        i, f, g, o = jnp.split(x @ w + b + h @ u + d, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    for ours, theirs, start, arrays in ((nn.gru_cell, gru, np.zeros((3, 4)), weights),
                                        (nn.lstm_cell, lstm, (np.zeros((3, 4)), np.ones((3, 4))), quarters)):
        def last(module, cell, *arrays, start=start):
            state = module.lax.scan(lambda state, x: (cell(state, x, *arrays), None), start, inputs)[0]
            return module.numpy.sum(state[0])
        found = fxgrad.value_and_grad(lambda *arrays: last(fxgrad, ours, *arrays), (0, 1, 2, 3))(*arrays)  # noqa: B023
        with jax.enable_x64(True):
            expected = jax.value_and_grad(lambda *arrays: last(jax, theirs, *arrays), (0, 1, 2, 3))(*arrays)  # noqa: B023
        for one, other in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: nn.dropout(X, 1.5, KEY), ArgumentError, "dropout: rate is 1.5, where a number from 0 to 1 is needed"),
    (lambda: nn.dropout(X, np.array([0.5]), KEY), ArgumentError,
     "dropout: rate is array([0.5]), where a number from 0 to 1 is needed"),
    (lambda: nn.dropout(X, 0.5, 0), ArgumentError,
     ("dropout: key is a random key, got int. Make one with fxgrad.random.key(0), and new ones from it with "
      "fxgrad.random.split(key)")),
    (lambda: nn.dropout(X, 0.5, fxgrad.random.split(KEY)), ShapeError,
     ("dropout: one key is needed, got an array of keys of shape (2,). Map over them: "
      "fxgrad.vmap(fxgrad.nn.dropout, (0, None, 0))(x, rate, keys)")),
    *((lambda sizes=sizes: nn.layer_norm(X, sizes), ArgumentError,  # type: ignore[misc]
       (f"layer_norm: scale is {sizes}, the shape of the last axes of x, which is PyTorch's normalized_shape. Write "
        f"axis={axis}, and give scales as floats")) for sizes, axis in ((4, -1), ((4,), -1), ([3, 4], (-2, -1)))),
    (lambda: nn.conv2d(np.ones((1, 3, 8, 8)), np.ones((5, 3, 2, 2))), ShapeError,
     ("conv2d: x has the shape (1, 3, 8, 8) and kernel (5, 3, 2, 2), with groups=1; (batch, height, width, channels) "
      "and (height, width, channels / groups, new channels), a multiple of the groups, are needed. Write "
      "x.transpose(0, 2, 3, 1) and kernel.transpose(2, 3, 1, 0) for those of PyTorch")),
    (lambda: nn.conv2d(np.ones((8, 8, 3)), np.ones((2, 2, 3, 5))), ShapeError,
     ("conv2d: x has the shape (8, 8, 3) and kernel (2, 2, 3, 5), with groups=1; (batch, height, width, channels) and "
      "(height, width, channels / groups, new channels), a multiple of the groups, are needed. Write x[None] for one "
      "image")),
    (lambda: nn.group_norm(X, 3), ShapeError, (
        "group_norm: 3 groups of axis 1 of an array of shape (3, 4); an axis of channels behind the first, whose size "
        "is a multiple of the groups, is needed")),
    (lambda: nn.batch_norm(X, X), ShapeError,
     "batch_norm: scale has the shape (3, 4), where (4,), one number for each channel, is needed"),
    (lambda: nn.batch_norm(X, mean=X[0]), ArgumentError,
     "batch_norm: mean= and variance= are given together, or neither is"),
    (lambda: nn.group_norm(X, 2.0), ArgumentError, "group_norm: an integer is needed, got 2.0"),
    (lambda: nn.layer_norm(X[0], X), ShapeError,
     "layer_norm: scale has the shape (3, 4), which does not broadcast to that of x, (4,)"),
    (lambda: nn.rms_norm(X, X[0, :3]), ShapeError, (
        "rms_norm: shapes (3, 4) and (3,) do not broadcast; counted from the last, sizes must be equal or 1. Insert an "
        "axis with x[:, None] or x.reshape(...), or transpose one of them")),
    *((lambda layer=layer, options=options: layer(X + 1j, *options), DTypeError,  # type: ignore[misc]
       f"{layer.__name__}: not defined for complex numbers (complex128); use x.real, x.imag or abs(x)")
      for layer, options in ((nn.layer_norm, ()), (nn.rms_norm, ()), (nn.group_norm, (2,)), (nn.batch_norm, ()))),
    (lambda: nn.gru_cell(1.0, X, np.ones((4, 12)), np.ones((4, 12))), ShapeError,
     "gru_cell: the state is a number, where an array of them is needed, shape (..., size)"),
    (lambda: nn.lstm_cell((X, X), 1.0, np.ones((4, 16)), np.ones((4, 16))), ShapeError,
     "lstm_cell: the input is a number, where an array of them is needed, shape (..., size)"),
    (lambda: nn.gru_cell(X, X, np.ones((4, 12)), np.ones((4, 12)), np.ones((2, 3, 12))), ShapeError,
     "gru_cell: input_bias has the shape (2, 3, 12), where (3 * 4,) is needed for a state of 4 numbers"),
    (lambda: nn.gru_cell(X, X, np.ones((4, 8)), np.ones((4, 12))), ShapeError, (
        "gru_cell: input_weights has the shape (4, 8), where (4, 3 * 4) is needed for an input of 4 and a state of 4 "
        "numbers")),
    (lambda: nn.lstm_cell(X, X, np.ones((4, 16)), np.ones((4, 16))), ArgumentError,
     "lstm_cell: the state is a ndarray, where a pair (h, c) is needed"),
])
def test_mistakes(call: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text


def test_row_p11_attention_is_one_line() -> None:
    query = drawn(1, 5, 2, 3)

    def layer(query, mask):
        return nn.dot_product_attention(query, query, query, mask=mask, is_causal=True, local_window_size=2)
    program = fxgrad.make_program(layer)(query, np.ones((1, 1, 5, 5), bool))
    assert [equation.params.get("name") for equation in program.equations] == ["dot_product_attention"]
    assert not program.constants
    text = fxgrad.text.program_text(program, source=False).split("\n\n")
    assert "return dot_product_attention(query, query, query, mask)" in text[0]
    np.testing.assert_allclose(program(query, np.ones((1, 1, 5, 5), bool)), layer(query, None), rtol=1e-12)
