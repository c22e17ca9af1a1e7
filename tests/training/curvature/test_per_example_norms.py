"""Norms of the gradients of examples against those gradients themselves, by `vmap(grad)` and by jax."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import curvature
from fxgrad.errors import ArgumentError, DTypeError
from fxgrad.training.curvature import norms as norms_module
from tests.support.layers_in_loops import LOOPS, recurrent_network
from tests.support.random_programs import build, recipes
from tests.support.tiers import examples

DRAWS = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return DRAWS.normal(size=shape)


def network(params: Any, x: Any, y: Any) -> Any:
    return fnp.mean((fnp.tanh(x @ params["w"] + params["b"]) @ params["v"] - y) ** 2)


def attention(params: Any, tokens: Any) -> Any:
    x = params["embedding"][tokens] + params["position"]
    h = fxgrad.nn.standardize(x) * params["gain"]
    q, k, v = (fnp.einsum("td,dhe->the", h, params[name]) for name in "qkv")
    weights = fxgrad.nn.softmax(fnp.einsum("the,she->hts", q, k))
    x = x + fnp.einsum("the,hed->td", fnp.einsum("hts,she->the", weights, v), params["o"])
    return -fnp.mean(fxgrad.nn.log_softmax(x @ params["embedding"].T)[:, 0])


def convolved(w: Any, x: Any, strides: Any = (2, 1), **options: Any) -> Any:
    return fnp.sum(fxgrad.lax.conv_general_dilated(x[None], w, strides, "SAME", **options) ** 2)


def stack(layers: Any, x: Any) -> Any:
    return fnp.sum(fxgrad.scan(lambda h, layer: (fnp.tanh(h @ layer[0] + layer[1]), None), x, layers)[0])


def deep(params: Any, x: Any, tokens: Any) -> Any:
    """A stack, last layer first, of lookups, dense layers at two positions, twice one matrix, and scales."""
    def layer(h: Any, own: Any) -> Any:
        h = h + own["table"][tokens] + params["offset"]
        h = fxgrad.checkpoint(lambda h: fnp.tanh(h @ own["w"] @ own["w"].T + own["b"]))(h)
        return h * own["gain"], fnp.sum(h)

    stacked = {name: params[name] for name in ("b", "gain", "table", "w")}
    last, sums = fxgrad.scan(layer, x, stacked, reverse=True)
    return fnp.sum(last ** 2) + fnp.sum(fnp.sin(sums))


def nested(layers: Any, x: Any) -> Any:
    def outer(h: Any, group: Any) -> Any:
        return fxgrad.scan(lambda h, w: (fnp.tanh(h @ w), None), h, group)[0], None
    return fnp.sum(fxgrad.scan(outer, x, layers)[0])


def recurrent(w: Any, xs: Any) -> Any:
    return fnp.sum(fxgrad.scan(lambda h, x: (fnp.tanh(h @ w + x), None), np.ones(12), xs)[0])


NETWORK = {"b": draw(40), "v": draw(40, 2), "w": draw(30, 40)}
WIDTH = 24
ATTENTION = {"embedding": draw(100, WIDTH), "gain": draw(WIDTH), "k": draw(WIDTH, 2, 12), "o": draw(2, 12, WIDTH),
             "position": draw(5, WIDTH), "q": draw(WIDTH, 2, 12), "v": draw(WIDTH, 2, 12)}
TOKENS = DRAWS.integers(0, 100, (4, 5))
TOKENS[0] = TOKENS[0, 0]  # repeated entries of a lookup add up


class Case(NamedTuple):
    """A loss with arguments, and for each parameter the kinds of layers, or the reason why there are none."""

    loss: Callable[..., Any]
    params: Any
    batch: tuple[Any, ...]
    expected: list[Any]


DENSE, LOOKUP, CONVOLUTION, BIAS = ("dense",), ("lookup",), ("convolution",), ("bias",)

CASES = {
    "network": Case(network, NETWORK, (draw(5, 30), draw(5, 2)), [BIAS, DENSE, DENSE]),
    "network on sequences": Case(network, NETWORK, (draw(5, 4, 30), draw(5, 4, 2)), [BIAS, DENSE, DENSE]),
    "within jit": Case(fxgrad.jit(network), NETWORK, (draw(5, 30), draw(5, 2)), [BIAS, DENSE, DENSE]),
    "within checkpoint": Case(fxgrad.checkpoint(network), NETWORK, (draw(5, 30), draw(5, 2)), [BIAS, DENSE, DENSE]),
    "attention": Case(attention, ATTENTION, (TOKENS,), [
        ("lookup", "dense"), "it is smaller than the pairs of 5 positions", DENSE, DENSE, BIAS, DENSE, DENSE]),
    "tied embedding of the other order": Case(
        lambda table, tokens: attention({**ATTENTION, "embedding": table.T}, tokens), draw(WIDTH, 100), (TOKENS,),
        [("lookup", "dense")]),
    "lookup": Case(lambda table, tokens: fnp.sum(table[tokens] ** 3), draw(50, 4, 3), (TOKENS[:, :2] % 50,), [LOOKUP]),
    "lookup of one": Case(lambda table, token: fnp.sum(table[token] ** 3), draw(50, 4), (np.array([3, -1]),), [LOOKUP]),
    "lookup along the second axis": Case(
        lambda table, tokens: fnp.sum(table[:, tokens] ** 3), draw(4, 50), (TOKENS[:, :2] % 50,), [LOOKUP]),
    "lookups out of range": Case(
        lambda table, tokens: fnp.sum(fnp.take(table, tokens, axis=0, mode="fill", fill_value=2.0) ** 3)
        + fnp.sum(fnp.take(table, tokens, axis=0, mode="clip") ** 2), draw(50, 4),
        (np.array([[3, 70], [60, -70], [1, 1]]),), [("lookup", "lookup")]),
    "convolution": Case(convolved, draw(40, 30, 3, 3), (draw(2, 30, 4, 4),), [CONVOLUTION]),
    "convolution with holes": Case(
        lambda w, x: convolved(w, x, rhs_dilation=(2, 1)), draw(40, 30, 3, 2), (draw(2, 30, 5, 4),), [CONVOLUTION]),
    "transposed convolution": Case(
        lambda w, x: fnp.sum(fxgrad.lax.conv_general_dilated(
            x[None], w, (1, 1), ((1, 2), (0, 1)), lhs_dilation=(2, 1)) ** 2), draw(40, 30, 3, 2), (draw(2, 30, 2, 3),),
        [CONVOLUTION]),
    "convolution with features last": Case(
        lambda w, x: convolved(w, x, dimension_numbers=("NHWC", "HWIO", "NHWC")), draw(3, 3, 30, 40),
        (draw(2, 4, 4, 30),), [CONVOLUTION]),
    "convolution in groups": Case(
        lambda w, x: convolved(w, x, feature_group_count=2), draw(40, 15, 3, 3), (draw(2, 30, 4, 4),), [CONVOLUTION]),
    "convolution of each feature": Case(
        lambda w, x: convolved(w, x, feature_group_count=30), draw(60, 1, 3, 3), (draw(2, 30, 2, 2),), [CONVOLUTION]),
    "two convolutions of one kernel": Case(
        lambda w, x: convolved(w, x) + convolved(w, 2.0 * x[:, :2]), draw(40, 30, 3, 3), (draw(2, 30, 4, 4),),
        [("convolution", "convolution")]),
    "two numbers of groups": Case(
        lambda w, x: convolved(w, x, feature_group_count=2) + convolved(w, x[:15]), draw(40, 15, 3, 3),
        (draw(2, 30, 4, 4),), ["it is used in two forms"]),
    "experts": Case(lambda w, x: fnp.sum(fnp.einsum("htd,hde->hte", x, w) ** 3), draw(3, 10, 12), (draw(4, 3, 2, 10),),
                    [DENSE]),
    "scan over layers": Case(stack, (draw(3, 4, 4), draw(3, 4)), (draw(5, 4),), [("dense",) * 3, ("bias",) * 3]),
    "a long stack": Case(lambda layers, x: stack((layers, 0.1 * np.ones((300, 4))), x), 0.3 * draw(300, 4, 4),
                         (draw(2, 4),), [("dense",) * 300]),
    "a deep stack": Case(deep, {"b": draw(9, 2, 1), "gain": draw(9, 12), "offset": draw(12), "table": draw(9, 50, 12),
                                "w": 0.3 * draw(9, 12, 40)}, (draw(4, 2, 12), DRAWS.integers(0, 50, (4, 2))), [
        "it is smaller than the pairs of 12 positions", "it is smaller than the pairs of 2 positions",
        "it is smaller than the pairs of 18 positions", ("lookup",) * 9, ("dense",) * 18]),
    "a deep stack without what all layers share": Case(
        lambda params, x, tokens: deep({**params, "offset": 0.1}, x, tokens), {
            "b": draw(9, 2, 1), "gain": draw(9, 12), "table": draw(9, 50, 12), "w": 0.3 * draw(9, 12, 40)},
        (draw(4, 2, 12), DRAWS.integers(0, 50, (4, 2))), [
            "it is smaller than the pairs of 12 positions", "it is smaller than the pairs of 2 positions",
            ("lookup",) * 9, ("dense",) * 18]),
    "a stack in a stack": Case(nested, draw(2, 3, 4, 4), (draw(5, 4),), [("dense",) * 6]),
    "a stack in two loops": Case(lambda layers, x: stack(layers, stack(layers, x) * x), (draw(3, 4, 4), draw(3, 4)),
                                 (draw(5, 4),), [("dense",) * 6, "it is smaller than the pairs of 2 positions"]),
    "a stack with another use": Case(lambda layers, x: stack(layers, x) + fnp.sum(layers[1] ** 2), (
        draw(3, 4, 4), draw(3, 4)), (draw(5, 4),), [("dense",) * 3, "integer_pow is no layer"]),
    "transposed layers": Case(lambda layers, x: fnp.sum(fxgrad.scan(lambda h, w: (fnp.tanh(h @ w), None), x,
                              layers.transpose(0, 2, 1))[0]), draw(3, 4, 4), (draw(5, 4),), [("dense",) * 3]),
    "no layers": Case(lambda layers, x: stack(layers, x), (draw(0, 4, 4), draw(0, 4)), (draw(5, 4),), [(), ()]),
    "recurrence": Case(recurrent, draw(12, 12), (draw(5, 3, 12),), [("dense",) * 3]),
    "one matrix in three layers": Case(
        lambda w, x: fnp.sum(fnp.tanh(fnp.tanh(x @ w) @ w) @ w.T), draw(12, 12), (draw(5, 12),), [("dense",) * 3]),
    "scale and bias": Case(lambda p, x: fnp.sum(fnp.tanh(p["scale"] * x - p["bias"])), {"bias": draw(3, 4),
                           "scale": draw(3, 4)}, (draw(5, 3, 4),), [BIAS, ("scale",)]),
    "scale and bias at several positions": Case(
        lambda p, x: fnp.sum(fnp.tanh(x * p["scale"] + p["bias"])), {"bias": draw(3, 4), "scale": draw(3, 4)},
        (draw(5, 2, 3, 4),), [BIAS, ("it is smaller than the pairs of 2 positions")]),
    "repeated along its own axes": Case(
        lambda p, x: fnp.sum(fnp.tanh(p["scale"] * x + p["bias"])), {"bias": draw(30, 1, 1), "scale": draw(1, 30, 1)},
        (draw(5, 30, 30, 2),), ["it is smaller than the pairs of 60 positions"] * 2),
    "added and subtracted": Case(
        lambda b, x: fnp.sum(fnp.tanh(x + b) * fnp.tanh(x - b) + (b - x) ** 3), draw(30), (draw(5, 30),),
        [("bias",) * 3]),
    "multiplied by a number": Case(lambda w, x: fnp.sum(fnp.sin(2.0 * w) * x), draw(30), (draw(5, 30),),
                                   [("scale",)]),
    "scale and bias at once": Case(lambda w, x: fnp.sum(fnp.sin(2.0 * w) * x + fnp.sin(w + 1.0)), draw(30),
                                   (draw(5, 30),), ["it is used in two forms"]),
    "one scale twice": Case(lambda w, x: fnp.sum(fnp.sin(x[0] * w) * fnp.sin(w * x[1])), draw(30), (draw(5, 2, 30),),
                            ["it is smaller than the pairs of 2 positions"]),
    "dropout": Case(
        lambda p, x, key: network(p, fxgrad.nn.dropout(x, 0.5, key), 1.0), NETWORK,
        (draw(5, 30), fxgrad.random.split(fxgrad.random.key(0), 5)), [BIAS, DENSE, DENSE]),
    "repeated twice": Case(lambda b, x: fnp.sum(fnp.tanh(x + b)), draw(1, 30, 1), (draw(5, 3, 30, 1),), [BIAS]),
    "scalars": Case(lambda p, x: fnp.sin(p[0] * x + p[1]), (np.float64(2.0), np.float64(3.0)), (draw(5),),
                    [("scale",), BIAS]),
    "a product with itself": Case(
        lambda w, x: fnp.sum(x @ w) + fnp.sum(w @ w), draw(12, 12), (draw(5, 12),), ["it meets a parameter"]),
    "two shapes": Case(
        lambda w, x: fnp.sum((x @ w.reshape(4, 36)) ** 2) + fnp.sum(x[0] * (w[0] @ w[1])), draw(12, 12),
        (draw(5, 4),), ["it meets a parameter"]),
    "a part of two axes": Case(lambda w, x: fnp.sum((x @ w[:4, 2:]) ** 2), draw(12, 12), (draw(5, 4),),
                               ["slice is no layer"]),
    "parts": Case(lambda w, x: fnp.sum(fnp.tanh(x[:5] @ w[:5] + x[5:] @ w[5:])), draw(12, 7), (draw(5, 12),),
                  [DENSE * 2]),
    "every second": Case(lambda w, x: fnp.sum(fnp.tanh(x @ w[::2]) * fnp.tanh(x @ w[1::2])), draw(12, 7),
                         (draw(5, 6),), [DENSE * 2]),
    "parts that overlap": Case(lambda w, x: fnp.sum(fnp.tanh(x @ w[:6]) * fnp.tanh(x @ w[5:11])), draw(12, 7),
                               (draw(5, 6),), ["it is used in two forms"]),
    "one part twice": Case(lambda w, x: fnp.sum(fnp.tanh(fnp.tanh(x @ w[:6]) @ w[:6]) @ w[6:]), draw(12, 6),
                           (draw(5, 6),), [DENSE * 3]),
    "split": Case(lambda w, x: fnp.sum(fnp.multiply(*[fnp.tanh(x @ part) for part in fnp.split(w, 2, 1)])),
                  draw(6, 20), (draw(5, 6),), [DENSE * 2]),
    "layers by number": Case(lambda w, x: fnp.sum(fnp.tanh(fnp.tanh(x @ w[0]) @ w[2]) @ w[1]), draw(3, 12, 12),
                             (draw(5, 12),), [DENSE * 3]),
    "backward": Case(lambda w, x: fnp.sum(fnp.sin(fnp.tanh(x @ w) @ w[::-1]) @ w[:, ::-1].T), draw(20, 20),
                     (draw(5, 20),), [DENSE * 3]),
    "a table backward": Case(lambda w, x: fnp.sum(fnp.tanh(w[::-1][x] * w[x])), draw(20, 20),
                             (np.array([3, 19, 10]),), [("lookup",) * 2]),
    "a part backward": Case(lambda w, x: fnp.sum(fnp.tanh(x @ w[:6][::-1]) * fnp.tanh(x @ w[::-1][:6])), draw(12, 12),
                            (draw(5, 6),), ["it is used in two forms"]),
    "reshaped": Case(lambda w, x: fnp.sum((x @ w.reshape(4, 36)) ** 2), draw(12, 12), (draw(5, 4),), [DENSE]),
    "two reshapes": Case(
        lambda w, x: fnp.sum((x @ w.reshape(4, 36)) ** 2) + fnp.sum(fnp.concatenate([x, x]) @ w.reshape(8, 18)),
        draw(12, 12), (draw(5, 4),), ["it is used in two forms"]),
    "a vector": Case(lambda w, x: fnp.tanh(x @ w), draw(12), (draw(5, 12),), [DENSE]),
    "not used": Case(lambda _, x: fnp.sum(x), draw(3, 4), (draw(5, 12),), [()]),
    "short sums": Case(lambda w, x: fnp.sum((x @ w) ** 2), draw(3, 2), (draw(5, 20, 3),),
                       ["it is smaller than the pairs of 20 positions"]),
    "a branch": Case(lambda w, x: fxgrad.cond(x[0] > 0.0, lambda: fnp.sum(x @ w), lambda: 2.0), draw(12, 3),
                     (draw(5, 12),), [DENSE]),
    "branches of several layers": Case(
        lambda p, x, t: fnp.sum(fxgrad.switch(t, [
            lambda: fnp.tanh(x @ p["v"] + p["b"]), lambda: x @ p["w"], lambda: fnp.tanh(x @ p["w"]) @ p["v"],
            lambda: fxgrad.scan(lambda h, _: (fnp.tanh(h @ p["w"]), None), x, length=12)[0]]) @ p["w"] ** 2),
        {"b": draw(12), "v": draw(12, 12), "w": draw(12, 12)}, (draw(9, 12), np.arange(9) % 4),
        [BIAS, ("dense",) * 2, "integer_pow is no layer"]),
    "branches in a stack": Case(
        lambda p, x, t: fnp.sum(fxgrad.scan(lambda h, own: (fxgrad.cond(
            own[1] > t, lambda: fnp.tanh(h @ own[0] @ p["w"]) + p["e"][own[1]], lambda: h), None), x,
            (p["v"], fnp.arange(11)))[0]),
        {"e": draw(60, 12), "v": draw(11, 12, 12), "w": draw(12, 12)}, (draw(9, 12), np.arange(9) % 4),
        [("lookup",), ("dense",) * 11, "it is smaller than the pairs of 11 positions"]),
    "branches in branches": Case(
        lambda p, x: fxgrad.cond(x[0] > 0.0, lambda: fnp.sum(fxgrad.cond(
            x[1] > 0.0, lambda: fnp.tanh(x @ p), lambda: x @ p.T)), lambda: fnp.sum(x)), draw(12, 12), (draw(9, 12),),
        [("dense",) * 2]),
    "complex": Case(lambda w, x: fnp.sum(fnp.abs(x @ w) ** 2), draw(12, 12) + 1j * draw(12, 12),
                    (draw(5, 3, 12) + 1j * draw(5, 3, 12),), [DENSE]),
    "real made complex": Case(lambda w, x: fnp.sum(fnp.abs(x @ w.astype(complex)) ** 2), draw(12, 3),
                              (draw(5, 12) + 1j * draw(5, 12),), ["convert_element_type is no layer"]),
    "made integer": Case(lambda w, x: fnp.sum(x @ w) * fnp.sum(x @ w.astype(int)), draw(12, 3), (draw(5, 12),),
                         ["convert_element_type is no layer"]),
    "empty": Case(lambda w, x: fnp.sum(x @ w), draw(0, 3), (draw(5, 0),), [DENSE]),
    "no examples": Case(network, NETWORK, (draw(0, 30), draw(0, 2)), [BIAS, DENSE, DENSE]),
}


def norms_of_gradients(loss: Any, params: Any, batch: Any) -> Any:
    gradients = fxgrad.vmap(fxgrad.grad(loss), (None, *[0] * len(batch)))(params, *batch)
    return fxgrad.tree.map(lambda leaf: np.sqrt(np.sum(np.abs(np.asarray(leaf)) ** 2, axis=tuple(range(1, leaf.ndim)))),
                           gradients)


@pytest.mark.parametrize("name", CASES)
def test_norms_and_kinds(name: str) -> None:
    loss, params, batch, kinds = CASES[name]
    expected = norms_of_gradients(loss, params, batch)
    found = curvature.per_example_norms(loss, by_parameter=True)(params, *batch)
    for one, other in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10 * np.max(other, initial=0.0))
        assert one.dtype == np.float64
    squares = curvature.per_example_norms(loss, squared=True)(params, *batch)
    np.testing.assert_allclose(squares, sum(leaf ** 2 for leaf in fxgrad.tree.leaves(expected)), rtol=1e-10)
    listed = curvature.layers(loss)(params, *batch).entries
    assert [entry.reason or entry.kinds for entry in listed] == kinds


@pytest.mark.slow
def test_beside_jax() -> None:
    params, (x, y) = CASES["network"].params, CASES["network"].batch
    with jax.enable_x64():
        rows = jax.vmap(jax.grad(lambda p, x, y: jnp.mean((jnp.tanh(x @ p["w"] + p["b"]) @ p["v"] - y) ** 2)),
                        (None, 0, 0))(params, x, y)
        expected = np.sqrt(sum(np.sum(np.asarray(leaf).reshape(5, -1) ** 2, axis=1) for leaf in rows.values()))
    np.testing.assert_allclose(curvature.per_example_norms(network)(params, x, y), expected, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (fxgrad.dtypes.bfloat16, 3e-2)])
@pytest.mark.parametrize("name", ["network on sequences", "convolution", "recurrence"])
def test_narrow_dtypes(name: str, dtype: Any, tolerance: float) -> None:
    loss, params, batch, _ = CASES[name]
    if name == "recurrence":
        loss = lambda w, xs: fnp.sum(fnp.tanh(fnp.tanh(xs @ w) @ w))
    wide = norms_of_gradients(loss, *fxgrad.tree.map(lambda leaf: leaf.astype(dtype).astype(float), (params, batch)))
    found = curvature.per_example_norms(loss, by_parameter=True)(
        *fxgrad.tree.map(lambda leaf: leaf.astype(dtype), (params, *batch)))
    for one, other in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(wide), strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=tolerance)


def test_autocast_and_casts() -> None:
    params, batch = fxgrad.tree.map(np.float32, (NETWORK, CASES["network"].batch))
    cast = fxgrad.autocast(network)
    found = curvature.per_example_norms(cast, by_parameter=True)(params, *batch)
    np.testing.assert_allclose(found["w"], norms_of_gradients(cast, params, batch)["w"], rtol=3e-2)
    assert curvature.layers(cast)(params, *batch)["params.w"].kinds == ("dense",)


@pytest.mark.slow
def test_under_transformations() -> None:
    params, batch = CASES["network"].params, CASES["network"].batch
    norms = curvature.per_example_norms(network)

    def reference(params: Any) -> Any:
        gradients = fxgrad.vmap(fxgrad.grad(network), (None, 0, 0))(params, *batch)
        return fnp.sqrt(sum(fnp.sum(leaf ** 2, axis=tuple(range(1, leaf.ndim))) for leaf in gradients.values()))

    np.testing.assert_allclose(fxgrad.jit(norms)(params, *batch), reference(params), rtol=1e-10)
    slopes = fxgrad.grad(lambda params: fnp.sum(norms(params, *batch)))(params)
    expected = fxgrad.grad(lambda params: fnp.sum(reference(params)))(params)
    for name in params:
        np.testing.assert_allclose(slopes[name], expected[name], rtol=1e-8, atol=1e-10)
    bent = fxgrad.jit(fxgrad.hvp, static_argnums=0)(
        lambda params: fnp.sum(norms(params, *batch)), (params,), (params,))
    np.testing.assert_allclose(bent["v"], fxgrad.hvp(lambda params: fnp.sum(reference(params)), (params,), (params,))[
        "v"], rtol=1e-7, atol=1e-9)
    stacked = fxgrad.tree.map(lambda leaf: np.stack([leaf, 2.0 * leaf]), params)
    np.testing.assert_allclose(fxgrad.vmap(norms, (0, None, None))(stacked, *batch)[1],
                               reference(fxgrad.tree.map(lambda leaf: 2.0 * leaf, params)), rtol=1e-10)
    scaled = fxgrad.grad(lambda s: fnp.sum(curvature.per_example_norms(
        lambda params, x, y: s * network(params, x, y))(params, *batch)))(2.0)
    np.testing.assert_allclose(scaled, np.sum(reference(params)), rtol=1e-10)
    looped = fxgrad.scan(lambda total, x: (total + fnp.sum(norms(params, *x)), None), np.float64(0.0),
                         tuple(leaf[:, None] for leaf in batch))[0]
    np.testing.assert_allclose(looped, np.sum(reference(params)), rtol=1e-10)


def test_arrays_in_arrays_out() -> None:
    params, batch = fxgrad.tree.map(np.float32, (CASES["network"].params, CASES["network"].batch))
    norms = curvature.per_example_norms(network)
    assert isinstance(norms(params, *batch), np.ndarray)
    assert isinstance(norms(fxgrad.tree.map(jnp.asarray, params), *batch), jax.Array)


@pytest.mark.parametrize("name", ["network", "attention"])
def test_no_gradient_of_an_example_is_in_the_program(name: str) -> None:
    loss, params, batch, kinds = CASES[name]
    program = fxgrad.make_program(curvature.per_example_norms(loss))(params, *batch)
    size = len(batch[0])
    forbidden = {(size, *leaf.shape) for leaf, kind in zip(fxgrad.tree.leaves(params), kinds, strict=True)
                 if kind in (DENSE, ("lookup", "dense"))}
    for inner in fxgrad.extend.inner_first(program):
        assert forbidden.isdisjoint(var.aval.shape for equation in inner.equations for var in equation.outputs)


def test_clipped_sum_of_gradients() -> None:
    """The gradient of the losses, each times what clips its norm, is the sum of clipped gradients."""
    params, batch = CASES["network"].params, CASES["network"].batch
    limit = 0.5

    def clipped(params: Any, *batch: Any) -> Any:
        norms = curvature.per_example_norms(network)(params, *batch)
        factors = fxgrad.stop_gradient(fnp.minimum(1.0, limit / norms))
        losses = lambda params: fxgrad.vmap(network, (None, 0, 0))(params, *batch)
        return fxgrad.grad(lambda params: fnp.sum(factors * losses(params)))(params)

    gradients = fxgrad.vmap(fxgrad.grad(network), (None, 0, 0))(params, *batch)
    norms = np.sqrt(sum(np.sum(leaf.reshape(5, -1) ** 2, axis=1) for leaf in gradients.values()))
    assert np.any(norms > limit)
    for name, leaf in clipped(params, *batch).items():
        expected = np.tensordot(np.minimum(1.0, limit / norms), gradients[name], axes=1)
        np.testing.assert_allclose(leaf, expected, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("always_pairs", [False, True])
def test_layers_in_loops(name: str, always_pairs: bool) -> None:
    """Loops stay, and their norms are those of the gradients of the same loss by a loop of Python's."""
    loss, params, batch = LOOPS[name]
    expected = norms_of_gradients(functools.partial(loss, unrolled=True), params, batch)
    reason = (lambda found: found.reason) if always_pairs else norms_module.reason_for_gradient
    norms = curvature.per_example_norms(loss, by_parameter=True)
    with mock.patch.object(norms_module, "reason_for_gradient", reason):
        program = fxgrad.make_program(norms)(params, *batch)
        found = norms(params, *batch)
    for one, other in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    assert sum(equation.primitive.name == "scan" for equation in program.equations) >= 2  # forward and back
    assert all(not entry.reason or "pairs" in entry.reason for entry in curvature.layers(loss)(params, *batch).entries)


def test_size_of_programs_of_loops() -> None:
    """The program of a loop of 1,000 steps is as long as that of 12, and has no gradient of an example."""
    lengths, shapes = [], set()
    for steps in (12, 1000):
        for function in (curvature.per_example_norms, curvature.kfac_factors):
            program = fxgrad.make_program(lambda params, xs, function=function: fxgrad.tree.leaves(
                function(recurrent_network)(params, xs)))({
                    "b": draw(14), "gain": draw(14), "u": draw(30, 14), "w": draw(14, 14)}, draw(3, steps, 30))
            lengths.append(len(program.equations))
            if steps == 12 and function is curvature.kfac_factors:
                shapes |= {var.aval.shape for inner in fxgrad.extend.inner_first(program)
                           for equation in inner.equations for var in equation.outputs}
    assert lengths[1] == lengths[3]
    assert lengths[2] <= lengths[0]
    assert {(3, 30, 14), (3, 14, 14)}.isdisjoint(shapes)


def test_parameters_that_loops_change() -> None:
    """Short loops are unrolled for them; with others, the gradients of examples are computed."""
    def loss(w: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> tuple[Any, None]:
            return (fnp.tanh(x @ carry[1]), carry[1].T), None
        return fnp.sum(fxgrad.scan(step, (np.ones(12), w), xs)[0][0])

    w = draw(12, 12)
    for steps, reason in ((3, ""), (300, "a loop changes it")):
        xs = draw(2, steps, 12)
        assert curvature.layers(loss)(w, xs)["w"].reason == reason
        np.testing.assert_allclose(curvature.per_example_norms(loss)(w, xs), norms_of_gradients(loss, w, (xs,)),
                                   rtol=1e-9)


def test_stacks_of_layers_stay_loops() -> None:
    loss, params, batch = stack, (draw(9, 4, 4), draw(9, 4)), (draw(5, 4),)
    for function in (curvature.per_example_norms(loss), curvature.kfac_factors(loss)):
        program = fxgrad.make_program(function)(params, *batch)
        names = [equation.primitive.name for equation in program.equations]
        assert names.count("scan") == 2  # forward and back
        assert "tanh" not in names
    single = fxgrad.jit(curvature.per_example_norms(loss))(params, *batch)
    np.testing.assert_allclose(single, curvature.per_example_norms(loss)(params, *batch), rtol=1e-9)


def test_terms_that_cancel_leave_no_negative_square() -> None:
    w = np.ones((100, 100), np.float32)
    x = draw(1, 1, 100).astype(np.float32) * np.array([1.0, -1.0], np.float32)[None, :, None] * np.ones(
        (50, 2, 100), np.float32)
    found = curvature.per_example_norms(lambda w, x: fnp.sum(x @ w))(w, x)
    np.testing.assert_allclose(found, 0.0, atol=1e-1)
    assert not np.any(np.isnan(found))


def test_layers_trace_the_loss_once() -> None:
    calls = []

    def loss(w: Any, x: Any) -> Any:
        calls.append(w)
        return fnp.sum(fnp.tanh(x @ w))

    assert curvature.layers(loss)(np.ones((3, 4)), np.ones((10, 3)))["w"].kinds == ("dense",)
    assert len(calls) == 1


def test_layers_print_as_a_table() -> None:
    listed = curvature.layers(network)({"b": np.zeros(40), "v": np.ones((40, 2)), "w": np.ones((30, 40))},
                                       fxgrad.ShapeDtypeStruct((5, 30), np.float64), np.zeros((5, 2)))
    line = f"test_per_example_norms.py:{network.__code__.co_firstlineno + 1}"
    rows = [row.split("│") for row in str(listed).splitlines() if "params." in row]
    assert [[cell.strip() for cell in row[1:-1]] for row in rows] == [
        ["params.b", "f64[40]", "bias", "1", line, "the layer"],
        ["params.v", "f64[40,2]", "dense", "1", line, "the layer"],
        ["params.w", "f64[30,40]", "dense", "1", line, "the layer"]]
    assert repr(listed) == "<layers of network: 3 of 3 parameters>"
    loss, params, batch, _ = CASES["scan over layers"]
    assert " 3 x 1 " in str(curvature.layers(loss)(params, *batch))
    with pytest.raises(KeyError, match="other"):
        listed["other"]
    assert repr(curvature.layers(functools.partial(loss))(params, *batch)).startswith("<layers of partial: ")


def raised(kind: type[Exception], call: Any) -> str:
    with pytest.raises(kind) as error:
        call()
    return str(error.value).split("\n")[0]


def test_errors() -> None:
    params, (x, y) = CASES["network"].params, CASES["network"].batch
    assert raised(ArgumentError, lambda: curvature.per_example_norms(lambda p, x: x @ p["w"])(params, x)) == (
        "per_example_norms: function is to return the scalar loss of one example, and returned an array of shape "
        "(40,). Sum it, and take no axis of examples")
    assert raised(ArgumentError, lambda: curvature.layers(lambda p, x: (x, x))(params, x)) == (
        "layers: function is to return the scalar loss of one example, and returned 2 arrays. Sum it, and take no "
        "axis of examples")
    assert raised(DTypeError, lambda: curvature.per_example_norms(network)({**params, "steps": 3}, x, y)) == (
        "per_example_norms: params.steps is i64[], which has no derivative. Pass it with the batch, or close over it")
    assert raised(ArgumentError, lambda: curvature.per_example_norms(network)(params)) == (
        "per_example_norms: no batch was given, where arrays with the examples along axis 0 are needed. Write "
        "per_example_norms(loss)(params, x, y)")
    shared = (" examples along axis 0, and batch[1] has 2; all arrays of a batch have as many. Close over those that "
              "all ")
    assert raised(ArgumentError, lambda: curvature.per_example_norms(network)(params, x, y[:2])) == (
        f"per_example_norms: batch[0] has 5{shared}examples share")
    assert raised(ArgumentError, lambda: curvature.empirical_fisher_product(network, params, (x, y[:2]), params)) == (
        f"empirical_fisher_product: batch[0] has 5{shared}examples share")
    assert raised(ArgumentError, lambda: curvature.per_example_norms(network)(params, x, 3)) == (
        "per_example_norms: batch[1] is a number, where arrays with the examples along axis 0 are needed. Close over "
        "it in the loss")
    assert raised(ArgumentError, lambda: curvature.per_example_norms(3)) == (
        "per_example_norms takes a function, got a int. Write per_example_norms(f)(x), not per_example_norms(f(x))")


@pytest.mark.parametrize("always_pairs", [False, True])
@examples(40)
@given(steps=recipes())
def test_random_losses(steps: Any, always_pairs: bool) -> None:
    """Whatever a loss does with a matrix, the norms are those of its gradients, by either formula."""
    loss = build(steps, fnp)
    w, x = np.random.default_rng(1).normal(size=(2, 3)), np.random.default_rng(2).normal(size=(4, 2, 3))
    expected = norms_of_gradients(loss, w, (x,))
    reason = (lambda found: found.reason) if always_pairs else norms_module.reason_for_gradient
    with mock.patch.object(norms_module, "reason_for_gradient", reason):
        found = curvature.per_example_norms(loss)(w, x)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-7 * max(np.max(expected), 1.0))
