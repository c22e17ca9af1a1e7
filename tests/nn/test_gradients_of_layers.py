"""Every layer and loss in float64: its derivatives are those of differences, to the digits of float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import nn
from fxgrad.testing import check_grads

pytestmark = pytest.mark.slow

R = np.random.default_rng(0)
X, Y, Z = (R.normal(size=(2, 5, 3)) for _ in range(3))
POSITIVE = np.abs(X) + 0.1
IMAGES = R.normal(size=(2, 6, 6, 3))
QUERY, KEY, VALUE = (R.normal(size=(2, 4, 2, 8)) for _ in range(3))
LABELS = np.array([[0, 2, 1, 1, 0], [2, 2, 0, 1, 1]])
SIGNS = np.where(R.uniform(size=(2, 5)) > 0.5, 1.0, -1.0)
KERNEL = R.normal(size=(3, 3, 3, 4))
CELL = R.normal(size=(3, 8)), R.normal(size=(2, 8)), R.normal(size=8)
GATES = R.normal(size=(3, 6)), R.normal(size=(2, 6)), R.normal(size=6), R.normal(size=6)
STATE = R.normal(size=(4, 2)), R.normal(size=(4, 2))

ELEMENTWISE = """celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid mish
    relu relu6 selu sigmoid silu
    soft_sign softplus sparse_plus sparse_sigmoid squareplus swish tanh standardize softmax log_softmax
    logsumexp logmeanexp layer_norm rms_norm""".split()
OF_TARGETS = """mse_loss l1_loss huber_loss smooth_l1_loss poisson_nll_loss binary_cross_entropy_with_logits
    kl_div""".split()

Case = tuple[Callable[..., Any], tuple[Any, ...]]
CASES: dict[str, Case] = {
    **{name: (getattr(nn, name), (X,)) for name in ELEMENTWISE},
    **{name: (lambda x, name=name: getattr(nn, name)(x, 1.0 / (1.0 + np.exp(-Y))), (X,)) for name in OF_TARGETS},
    "glu": (nn.glu, (R.normal(size=(2, 6)),)),
    "log1mexp": (nn.log1mexp, (POSITIVE,)),
    "group_norm": (lambda x: nn.group_norm(x, 3), (IMAGES,)),
    "batch_norm": (lambda x, scale, bias: nn.batch_norm(x, scale, bias)[0], (X, POSITIVE[0, 0], Y[0, 0])),
    "dropout": (lambda x: nn.dropout(x, 0.3, fxgrad.random.key(0)), (X,)),
    "embedding": (lambda table: nn.embedding(table, LABELS), (R.normal(size=(3, 4)),)),
    "conv2d": (lambda x, kernel: nn.conv2d(x, kernel, strides=2, padding=1), (IMAGES, KERNEL)),
    "conv_transpose": (lambda x, kernel: nn.conv_transpose(x, kernel, strides=2), (IMAGES[:, :3, :3], KERNEL)),
    "max_pool": (lambda x: nn.max_pool(x, (2, 2)), (IMAGES,)),
    "avg_pool": (lambda x: nn.avg_pool(x, (3, 3), strides=1, padding=1), (IMAGES,)),
    "adaptive_avg_pool": (lambda x: nn.adaptive_avg_pool(x, (4, 5)), (IMAGES,)),
    "gru_cell": (nn.gru_cell, (STATE[0], R.normal(size=(4, 3)), *GATES)),
    "lstm_cell": (lambda h, c, *rest: nn.lstm_cell((h, c), *rest), (*STATE, R.normal(size=(4, 3)), *CELL)),
    "dot_product_attention": (nn.dot_product_attention, (QUERY, KEY, VALUE)),
    "binary_cross_entropy": (lambda x: nn.binary_cross_entropy(nn.sigmoid(x), 0.3 + 0.0 * Y), (X,)),
    "cross_entropy": (lambda x: nn.cross_entropy(x, LABELS, label_smoothing=0.1), (X,)),
    "nll_loss": (lambda x: nn.nll_loss(x, LABELS), (X,)),
    "gaussian_nll_loss": (lambda x, variances: nn.gaussian_nll_loss(x, Y, variances), (X, POSITIVE)),
    "hinge_loss": (lambda x: nn.hinge_loss(x, SIGNS), (X[..., 0],)),
    "hinge_embedding_loss": (lambda x: nn.hinge_embedding_loss(x, SIGNS), (POSITIVE[..., 0],)),
    "cosine_embedding_loss": (lambda x, y: nn.cosine_embedding_loss(x, y, SIGNS), (X, Y)),
    "triplet_margin_loss": (nn.triplet_margin_loss, (X, Y, Z))}
FURTHER: dict[str, Case] = {
    "attention, causal": (lambda *given: nn.dot_product_attention(*given, is_causal=True), (QUERY, KEY, VALUE)),
    "attention, window and bias": (lambda *given: nn.dot_product_attention(*given[:3], given[3], local_window_size=1),
                                   (QUERY, KEY, VALUE, R.normal(size=(2, 2, 4, 4)))),
    "attention, chunked": (lambda *given: nn.dot_product_attention(*given, implementation="chunked"),
                           (QUERY, KEY, VALUE)),
    "gelu, exact": (lambda x: nn.gelu(x, approximate=False), (X,))}
NOT_DIFFERENTIATED = {"initializers", "one_hot"}


def test_every_layer_has_a_case() -> None:
    assert {*nn.__all__} - NOT_DIFFERENTIATED == {*CASES}


@pytest.mark.parametrize("name", [*CASES, *FURTHER])
def test_row_p11_derivatives_have_float64s_digits(name: str) -> None:
    function, arguments = {**CASES, **FURTHER}[name]
    check_grads(function, arguments, order=2)


def attention(query: Any, key: Any, value: Any, mask: Any) -> Any:
    """Vaswani et al., 2017, equation 1, by NumPy alone."""
    products = np.where(mask, np.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(query.shape[-1]), -np.inf)
    weights = np.exp(products - products.max(axis=-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(axis=-1, keepdims=True), value)


@pytest.mark.parametrize("implementation", ["xla", "chunked"])
@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
def test_row_p11_attention_keeps_the_digits_of_float64(is_causal: bool, implementation: str) -> None:
    mask = np.tril(np.ones((4, 4), bool)) if is_causal else np.ones((4, 4), bool)
    expected = attention(QUERY, KEY, VALUE, mask)
    for run in (lambda f: f), fxgrad.jit:
        result = run(lambda *given: nn.dot_product_attention(
            *given, is_causal=is_causal, implementation=implementation))(QUERY, KEY, VALUE)
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-15)
    _, sums = nn.dot_product_attention(QUERY, KEY, VALUE, return_residual=True)
    products = np.einsum("bqhd,bkhd->bqhk", QUERY, KEY) / np.sqrt(8.0)
    np.testing.assert_allclose(sums, np.log(np.exp(products).sum(axis=-1)), rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention_of_narrow_operands_computes_in_float32(dtype: str) -> None:
    given = [each.astype(fxgrad.numpy.dtype(dtype)) for each in (QUERY, KEY, VALUE)]
    result = nn.dot_product_attention(*given)
    assert result.dtype == given[0].dtype
    expected = attention(*(each.astype(np.float64) for each in given), np.ones((4, 4), bool))
    digits = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    np.testing.assert_allclose(np.asarray(result, np.float64), expected, rtol=digits, atol=digits)
