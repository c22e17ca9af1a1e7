"""Kronecker factors against sums over examples and positions by hand."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import curvature
from fxgrad.errors import ArgumentError, ShapeError
from tests.support.layers_in_loops import LOOPS, lookups_in_a_stack

DRAWS = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return DRAWS.normal(size=shape)


def network(params: Any, x: Any, y: Any) -> Any:
    return fnp.sum((fnp.tanh(x @ params["w"] + params["b"]) @ params["v"] - y) ** 2)


PARAMS = {"b": draw(4), "v": draw(4, 2), "w": draw(3, 4)}


def by_hand(x: np.ndarray, y: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return inputs and cotangents of the layers of the network, (examples, positions, entries)."""
    hidden = np.tanh(x @ PARAMS["w"] + PARAMS["b"])
    last = 2.0 * (hidden @ PARAMS["v"] - y)
    first = (last @ PARAMS["v"].T) * (1.0 - hidden ** 2)
    return {"b": (np.ones((*x.shape[:2], 1)), first), "v": (hidden, last), "w": (x, first)}


def test_expand_and_reduce_by_hand() -> None:
    x, y = draw(5, 7, 3), draw(5, 7, 2)
    expanded = curvature.kfac_factors(network)(PARAMS, x, y)
    reduced = curvature.kfac_factors(network, sharing="reduce")(PARAMS, x, y)
    for name, (a, g) in by_hand(x, y).items():
        np.testing.assert_allclose(expanded[name].inputs, np.einsum("nti,ntj->ij", a, a)[None] / 35, rtol=1e-11)
        np.testing.assert_allclose(expanded[name].outputs, np.einsum("nto,ntp->op", g, g)[None] / 5, rtol=1e-11)
        mean, total = a.mean(1), g.sum(1)
        np.testing.assert_allclose(reduced[name].inputs, (mean.T @ mean)[None] / 5, rtol=1e-11)
        np.testing.assert_allclose(reduced[name].outputs, (total.T @ total)[None] / 5, rtol=1e-11)


def exact(loss: Any, w: Any, x: Any, sharing: str = "expand") -> None:
    """Assert that the curvature of one example is the outer product of its gradient, block by block."""
    factors = curvature.kfac_factors(loss, sharing=sharing)(w, x[None])
    gradient = fxgrad.grad(loss)(w, x)
    value = draw(*w.shape)
    if factors.placement.blocks or factors.placement.cuts:
        blocks = factors.inputs.shape[0]
        gradients, values = (np.stack(factors._parted("product", leaf)) for leaf in (gradient, value))
        expected = gradients * np.sum(gradients * values, axis=(1, 2))[:, None, None]
        assert gradients.shape == (blocks, factors.inputs.shape[1], factors.outputs.shape[1])
        np.testing.assert_allclose(factors._parted("product", factors.product(value)), expected, rtol=1e-9, atol=1e-12)
    else:
        np.testing.assert_allclose(factors.product(value), gradient * np.sum(gradient * value), rtol=1e-9, atol=1e-12)


def convolved(w: Any, x: Any, steps: Any = (1, 1), padding: Any = "VALID", **options: Any) -> Any:
    return fnp.sum(fnp.tanh(fxgrad.lax.conv_general_dilated(x[None], w, steps, padding, **options)))


LOSSES = {
    "dense": (lambda w, x: fnp.sum(fnp.tanh(x @ w)), (3, 4), (3,)),
    "dense, transposed": (lambda w, x: fnp.sum(fnp.tanh(x @ w.T)), (4, 3), (3,)),
    "several axes": (lambda w, x: fnp.sum(fnp.tanh(fnp.einsum("ij,jkil->kl", x, w))), (3, 2, 5, 4), (5, 3)),
    "convolution": (convolved, (4, 3, 2, 2), (3, 2, 2)),
    "convolution, features last": (
        lambda w, x: convolved(w, x, dimension_numbers=("NHWC", "HWIO", "NHWC")), (2, 2, 3, 4), (2, 2, 3)),
    "convolution with holes": (lambda w, x: convolved(w, x, rhs_dilation=(2, 2)), (5, 4, 2, 2), (4, 3, 3)),
    "convolution in steps": (lambda w, x: convolved(w, x, (3, 3)), (5, 4, 2, 2), (4, 3, 3)),
    "convolution of an image with holes": (lambda w, x: convolved(
        w, x, padding=((0, 0), (0, 0)), lhs_dilation=(2, 2)), (5, 4, 5, 5), (4, 3, 3)),
    "transposed convolution": (lambda w, x: fnp.sum(fnp.tanh(fxgrad.lax.conv_transpose(
        x[None], w, (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW")))), (5, 4, 1, 1), (4, 1, 1)),
    "convolution in two groups": (lambda w, x: convolved(w, x, feature_group_count=2), (6, 2, 3, 3), (4, 3, 3)),
    "heads": (lambda w, x: fnp.sum(fnp.tanh(fnp.einsum("i,iho->ho", x, w.reshape(3, 2, 4)))), (3, 8), (3,)),
    "heads, transposed": (lambda w, x: fnp.sum(fnp.tanh(fnp.einsum(
        "i,hoi->ho", x, w.reshape(2, 4, 3)))), (8, 1, 3), (3,)),
    "heads as one": (lambda w, x: fnp.sum(fnp.tanh(x @ w.reshape(3, 8))), (3, 2, 4), (3,)),
    "scale of features": (lambda w, x: fnp.sum(fnp.tanh(w[:, None, None] * x)), (3,), (3, 1, 1)),
    "scale of a layer norm": (lambda w, x: fnp.sum(fnp.sin(fxgrad.nn.standardize(x) * w)), (5,), (5,)),
    "convolution in groups": (lambda w, x: convolved(w, x, feature_group_count=3), (6, 1, 2, 2), (3, 2, 2)),
    "experts": (lambda w, x: fnp.sum(fnp.tanh(fnp.einsum("hd,hde->he", x, w))), (3, 4, 2), (3, 4)),
    "scale": (lambda w, x: fnp.sum(fnp.tanh(w * x)), (3, 2), (3, 2)),
    "inputs backward": (lambda w, x: fnp.sum(fnp.tanh(x @ w[::-1])), (3, 4), (3,)),
    "both backward": (lambda w, x: fnp.sum(fnp.tanh(x @ w.T[::-1, ::-1]) * fnp.arange(4.0)), (4, 3), (3,)),
    "several axes backward": (lambda w, x: fnp.sum(fnp.tanh(fnp.einsum("ij,jkil->lk", x, w[:, ::-1, ::-1]))[1:]),
                              (3, 2, 5, 4), (5, 3)),
    "experts backward": (lambda w, x: fnp.sum(fnp.tanh(fnp.einsum("hd,hde->he", x, w[::-1, :, ::-1]))[:, 1:]),
                         (3, 4, 2), (3, 4)),
    "kernel backward": (lambda w, x: convolved(w[:, :, ::-1, ::-1], x), (4, 3, 2, 2), (3, 2, 2)),
    "bias backward": (lambda w, x: fnp.sum(fnp.tanh(x + w[::-1]) * x), (3,), (3,)),
    "outputs in parts": (lambda w, x: fnp.sum(fnp.multiply(*[fnp.tanh(x @ part) for part in fnp.split(w, 2, 1)])),
                         (3, 8), (3,)),
    "inputs in parts": (lambda w, x: fnp.sum(fnp.tanh(x[:3] @ w[:3] + x[3:] @ w[3:])), (6, 4), (6,)),
    "inputs in unequal parts": (lambda w, x: fnp.sum(fnp.tanh(x[:2] @ w[:2] + x[2:3] @ w[2:3] + x[3:] @ w[3:])), (6, 4),
                                (6,)),
    "outputs in unequal parts": (lambda w, x: fnp.sum(fnp.sin(x @ fnp.split(w, [5], 1)[0])) * fnp.sum(
        fnp.tanh(x @ w[:, 5:])), (3, 8), (3,)),
    "kernels in unequal parts": (lambda w, x: convolved(w[:3], x) * convolved(w[3:], x), (4, 3, 2, 2), (3, 2, 2)),
    "inputs that interleave": (lambda w, x: fnp.sum(fnp.tanh(x[::2] @ w[::2] + x[1::2] @ w[1::2])), (6, 4), (6,)),
    "outputs that interleave": (lambda w, x: fnp.sum(fnp.tanh(x @ w[:, 2::3]) * (x @ w[:, ::3]) * fnp.sin(
        x @ w[:, 1::3])), (3, 6), (3,)),
    "layers by number": (lambda w, x: fnp.sum(fnp.tanh(fnp.tanh(fnp.tanh(x @ w[0]) @ w[2]) @ w[1])), (3, 4, 4), (4,)),
    "biases by number": (lambda w, x: fnp.sum(fnp.tanh(fnp.tanh(x + w[:, 1]) + w[:, 0])), (4, 2), (4,)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_one_example_at_one_position_is_exact(name: str) -> None:
    loss, shape, given = LOSSES[name]
    exact(loss, draw(*shape), draw(*given))


def test_factors_are_the_fisher_blocks_of_tiny_networks() -> None:
    """With one position, A ⊗ G is the block where inputs and cotangents do not depend on each other."""
    def loss(params: Any, x: Any, sign: Any) -> Any:
        gates = fnp.split(params["gates"], 2, axis=0)
        return sign * fnp.sum(x[:2] @ gates[0] + x[2:] @ gates[1][:, ::-1])

    params = {"gates": draw(4, 3)}
    x, sign = np.array([[1.0, 2.0, 0.5, -1.0], [0.0, 1.0, 3.0, 2.0]]), np.array([1.0, -1.0])
    factors = curvature.kfac_factors(loss)(params, x, sign)["gates"]
    assert factors.placement == ("dense", (2, 2, 3), (0,), (1,), (2,), 1, (4, 3), None)
    gradients = fxgrad.vmap(fxgrad.grad(loss), (None, 0, 0))(params, x, sign)["gates"]
    for value in draw(3, 4, 3):
        expected = np.concatenate([np.einsum("nij,nkl,kl->ij", part, part, own) / 2 for part, own in zip(
            np.split(gradients, 2, 1), np.split(value, 2), strict=True)])
        np.testing.assert_allclose(factors.product(value), expected, rtol=1e-12)
    with pytest.raises(ShapeError, match=r"the parameter has the shape \(4, 3\), and the value \(2, 2, 3\)"):
        factors.product(draw(2, 2, 3))


def test_parts_of_other_sizes_with_other_numbers_of_positions() -> None:
    """Each part has the factors that it has as a parameter of its own."""
    def split(parts: Any, x: Any) -> Any:
        one, other = parts
        hidden = fnp.tanh(x @ one)
        return fnp.sum(fnp.tanh(fnp.mean(hidden, 0) * 2.0 @ fnp.ones((5, 3)) @ other) ** 2)

    whole, x = draw(3, 7), draw(4, 6, 3)
    parts = [whole[:, :5], whole[:, 5:]]
    value = draw(3, 7)
    for sharing in ("expand", "reduce"):
        found = curvature.kfac_factors(lambda w, x: split((w[:, :5], w[:, 5:]), x), sharing=sharing)(whole, x)
        apart = curvature.kfac_factors(split, sharing=sharing)(parts, x)
        assert found.placement.cuts == (1, (5, 2))
        for number, (own, size) in enumerate(zip(apart, (5, 2), strict=True)):
            np.testing.assert_allclose(found.inputs[number], own.inputs[0], rtol=1e-12)
            np.testing.assert_allclose(found.outputs[number, :size, :size], own.outputs[0], rtol=1e-12)
            np.testing.assert_array_equal(found.outputs[number, size:], 0.0)
        for name, more in (("product", ()), ("solve", (0.1,))):
            np.testing.assert_allclose(getattr(found, name)(value, *more), np.concatenate([
                getattr(own, name)(part, *more) for own, part in zip(apart, np.split(value, [5], 1), strict=True)], 1),
                rtol=1e-9)
    looked_up = draw(2, 5, 3)

    def lookups(w: Any, tokens: Any, token: Any) -> Any:
        return fnp.sum(fnp.tanh(w[0][tokens])) * fnp.sum(w[1][token])
    tokens, token = np.array([[0, 1, 1], [4, 4, 4]]), np.array([2, 0])
    found = curvature.kfac_factors(lookups)(looked_up, tokens, token)
    own = curvature.kfac_factors(lambda w, *ids: lookups(w, *ids))([*looked_up], tokens, token)
    if found is None:
        assert curvature.layers(lookups)(looked_up, tokens, token)["w"].without_factors
    else:
        np.testing.assert_allclose(found.inputs, np.concatenate([each.inputs for each in own]))
        np.testing.assert_allclose(found.outputs, np.concatenate([each.outputs for each in own]))


def test_uses_of_parts_without_factors() -> None:
    def reason(loss: Any) -> str:
        assert curvature.kfac_factors(loss)(draw(6, 4), draw(3, 6)) is None
        listed = curvature.layers(loss)(draw(6, 4), draw(3, 6))
        assert "no factors, since" in str(listed)
        return listed["w"].without_factors
    assert reason(lambda w, x: fnp.sum(fnp.tanh(x[:5:2] @ w[:5:2] + x[1:4:2] @ w[1:4:2] + x[5:] @ w[5:]))) == (
        "its parts have different sizes, and do not follow each other")
    assert reason(lambda w, x: fnp.sum(fnp.tanh(x[:5] @ w[:5] + w[5]))) == "its parts are used in different ways"
    assert reason(lambda w, x: fnp.sum(fnp.tanh(x[:3] @ w[:3]))) == "it is used in parts that are not all of it"
    assert reason(lambda w, x: fnp.sum(fnp.tanh(x[:3] @ w[:3]) * (x[3:] @ w[1::2][::-1]))) == "it is used in two forms"
    assert reason(lambda w, x: fnp.sum(fnp.tanh(x[:3] @ w.T[:, :3].T + x[3:] @ w.T[:, 3:].T))) == (
        "it is used in parts that are not all of it, or in another shape")
    assert reason(lambda w, x: fnp.sum(x) * 1.0) == "it is not used"
    assert reason(lambda w, x: fnp.sum(fnp.sin(w) * x[0])) == "sin is no layer"
    # A while_loop adds up over its steps, and has no blocks.
    assert reason(lambda w, x: fnp.sum(fxgrad.lax.while_loop(
        lambda h: fnp.sum(h) < 9.0, lambda h: h + x[:3] @ w[:3] + fnp.square(x[3:] @ w[3:]) + 1.0, x[:4]))) == (
            "a while_loop uses parts of it")


def test_reduce_is_exact_for_a_mean_over_positions() -> None:
    exact(lambda w, x: fnp.sum(fnp.tanh(fnp.mean(x @ w, axis=0))), draw(3, 4), draw(6, 3), "reduce")


def test_projections_of_attention() -> None:
    def attention(params: Any, x: Any) -> Any:
        q, k, v = (fnp.einsum("td,dhe->the", x, params[name]) for name in "qkv")
        weights = fxgrad.nn.softmax(fnp.einsum("the,she->hts", q, k))
        return fnp.sum(fnp.einsum("the,hed->td", fnp.einsum("hts,she->the", weights, v), params["o"]) ** 2)

    params = {"k": draw(6, 2, 3), "o": draw(2, 3, 6), "q": draw(6, 2, 3), "v": draw(6, 2, 3)}
    x = draw(4, 5, 6)
    factors = curvature.kfac_factors(attention)(params, x)
    for name in "qkv":
        np.testing.assert_allclose(factors[name].inputs, np.einsum("nti,ntj->ij", x, x)[None] / 20, rtol=1e-11)
        assert factors[name].outputs.shape == (1, 6, 6)
    assert factors["o"].placement == ("dense", (2, 3, 6), (), (0, 1), (2,), 1, None, None)
    # The cotangent of a projection is the gradient in an array added to its result.
    moved = fxgrad.vmap(fxgrad.grad(lambda extra, x: attention_with(params, x, extra)), (None, 0))(
        np.zeros((5, 2, 3)), x)
    flat = np.reshape(moved, (4, 5, 6))
    np.testing.assert_allclose(factors["q"].outputs, np.einsum("nti,ntj->ij", flat, flat)[None] / 4, rtol=1e-9)


def attention_with(params: Any, x: Any, extra: Any) -> Any:
    q, k, v = (fnp.einsum("td,dhe->the", x, params[name]) for name in "qkv")
    weights = fxgrad.nn.softmax(fnp.einsum("the,she->hts", q + extra, k))
    return fnp.sum(fnp.einsum("the,hed->td", fnp.einsum("hts,she->the", weights, v), params["o"]) ** 2)


@pytest.mark.parametrize("count", [3, 9])
def test_a_stack_of_layers_has_blocks(count: int) -> None:
    def stacked(layers: Any, x: Any) -> Any:
        return fnp.sum(fxgrad.scan(lambda h, w: (fnp.tanh(h @ w), None), x, layers)[0])

    def separate(layers: Any, x: Any) -> Any:
        for w in layers:
            x = fnp.tanh(x @ w)
        return fnp.sum(x)

    layers, x = draw(count, 4, 4), draw(5, 4)
    found = curvature.kfac_factors(stacked)(layers, x)
    single = curvature.kfac_factors(separate)(list(layers), x)
    assert found.placement == ("dense", (count, 4, 4), (0,), (1,), (2,), 1, None, None)
    value = draw(count, 4, 4)
    for number, one in enumerate(single):
        np.testing.assert_allclose(found.inputs[number], one.inputs[0], rtol=1e-11)
        np.testing.assert_allclose(found.outputs[number], one.outputs[0], rtol=1e-11)
        np.testing.assert_allclose(found.solve(value, 0.1)[number], one.solve(value[number], 0.1), rtol=1e-9)
    part = curvature.kfac_factors(lambda layers, x: separate([layers[0], layers[1]], x))(layers, x)
    assert part is None  # its entries are indexed one by one, and not all of them


def test_a_shared_matrix_sums_its_uses() -> None:
    w, x = draw(4, 4), draw(5, 4)
    found = curvature.kfac_factors(lambda w, x: fnp.sum(fnp.tanh(fnp.tanh(x @ w) @ w)))(w, x)
    hidden = np.tanh(x @ w)
    last = 1.0 - np.tanh(hidden @ w) ** 2
    first = (last @ w.T) * (1.0 - hidden ** 2)
    np.testing.assert_allclose(found.inputs[0], (x.T @ x + hidden.T @ hidden) / 10, rtol=1e-11)
    np.testing.assert_allclose(found.outputs[0], (last.T @ last + first.T @ first) / 5, rtol=1e-11)


def of_rnn(params: Any, xs: Any, tokens: Any) -> Any:
    def step(h: Any, now: Any) -> tuple[Any, Any]:
        h = fnp.tanh(h @ params["w"] + now[0] @ params["u"] + params["table"][now[1]])
        return h, h ** 2
    return fnp.sum(fxgrad.scan(step, np.zeros(4), (xs, tokens))[1])


def test_factors_of_a_recurrent_network_by_hand() -> None:
    params = {"table": draw(5, 4), "u": draw(3, 4), "w": draw(4, 4)}
    xs, tokens = draw(6, 7, 3), DRAWS.integers(0, 5, (6, 7))
    hidden = np.zeros((6, 8, 4))
    for step in range(7):
        hidden[:, step + 1] = np.tanh(
            hidden[:, step] @ params["w"] + xs[:, step] @ params["u"] + params["table"][tokens[:, step]])
    slopes, arriving = np.zeros((6, 7, 4)), np.zeros((6, 4))
    for step in reversed(range(7)):
        slopes[:, step] = (arriving + 2.0 * hidden[:, step + 1]) * (1.0 - hidden[:, step + 1] ** 2)
        arriving = slopes[:, step] @ params["w"].T
    expanded, reduced = (curvature.kfac_factors(of_rnn, sharing=sharing)(params, xs, tokens)
                         for sharing in ("expand", "reduce"))
    hot = np.eye(5)[tokens]
    for name, inputs in (("table", hot), ("u", xs), ("w", hidden[:, :-1])):
        for found, of_step, total in (
                (expanded, inputs, slopes), (reduced, inputs.mean(1, keepdims=True), slopes.sum(1, keepdims=True))):
            a = np.einsum("nti,ntj->ij", of_step, of_step) / (6 * of_step.shape[1])
            np.testing.assert_allclose(found[name].inputs[0], np.diag(a) if name == "table" else a, rtol=1e-11)
            np.testing.assert_allclose(found[name].outputs[0], np.einsum("nto,ntp->op", total, total) / 6, rtol=1e-11)
    assert expanded["table"].placement == ("lookup", (5, 4), (), (0,), (1,), 1, None, None)


def test_one_step_of_a_loop_with_a_cotangent_is_exact() -> None:
    """Inputs are the same in all steps, and one step has a cotangent: A ⊗ G is the Fisher matrix of the example."""
    def loss(w: Any, x: Any) -> Any:
        chosen = fnp.where(np.arange(5) == 2, 1.0, 0.0)
        return fnp.sum(fxgrad.scan(lambda x, on: (x, on * fnp.tanh(x @ w)), x, chosen)[1])
    exact(loss, draw(3, 4), draw(3))


def test_lookups_in_a_stack_have_blocks() -> None:
    tables, x, tokens = draw(3, 9, 4), draw(5, 2, 4), DRAWS.integers(-9, 9, (5, 2))

    def by_hand(tables: Any, x: Any, tokens: Any) -> Any:
        for table in tables:
            x = fnp.tanh(x + table[tokens])
        return fnp.sum(x)

    for sharing in ("expand", "reduce"):
        found = curvature.kfac_factors(lookups_in_a_stack, sharing=sharing)(tables, x, tokens)
        single = curvature.kfac_factors(by_hand, sharing=sharing)(list(tables), x, tokens)
        assert found.placement == ("lookup", (3, 9, 4), (0,), (1,), (2,), 1, None, None)
        value = draw(3, 9, 4)
        for number, one in enumerate(single):
            np.testing.assert_allclose(found.inputs[number], one.inputs[0], rtol=1e-11)
            np.testing.assert_allclose(found.outputs[number], one.outputs[0], rtol=1e-11)
            np.testing.assert_allclose(found.product(value)[number], one.product(value[number]), rtol=1e-9)
            np.testing.assert_allclose(found.solve(value, 0.1)[number], one.solve(value[number], 0.1), rtol=1e-9)


def test_stacks_in_stacks_and_of_experts_have_blocks_of_each() -> None:
    def of_groups(layers: Any, x: Any) -> Any:
        def group(h: Any, ws: Any) -> Any:
            return fxgrad.scan(lambda h, w: (fnp.tanh(h @ w), None), h, ws)[0], None
        return fnp.sum(fxgrad.scan(group, x, layers)[0])

    def of_experts(layers: Any, x: Any) -> Any:
        return fnp.sum(fxgrad.scan(lambda h, w: (fnp.tanh(fnp.einsum("hd,hde->he", h, w)), None), x, layers)[0])

    layers = draw(2, 3, 4, 4)
    groups = curvature.kfac_factors(of_groups)(layers, draw(1, 4))
    assert groups.placement == ("dense", (2, 3, 4, 4), (0, 1), (2,), (3,), 1, None, None)
    exact(of_groups, layers, draw(4))
    exact(of_experts, layers, draw(3, 4))


@pytest.mark.slow
def test_factors_in_loops_are_those_of_unrolled_loops() -> None:
    for name, (loss, params, batch) in LOOPS.items():
        for sharing in ("expand", "reduce"):
            looped, unrolled = (fxgrad.tree.leaves(
                curvature.kfac_factors(functools.partial(loss, unrolled=by_hand), sharing=sharing)(params, *batch),
                is_leaf=lambda leaf: leaf is None or isinstance(leaf, curvature.KroneckerFactors))
                for by_hand in (False, True))
            for one, other in zip(looped, unrolled, strict=True):
                if other is not None:
                    np.testing.assert_allclose(one.inputs, other.inputs, rtol=1e-9, err_msg=name)
                    np.testing.assert_allclose(one.outputs, other.outputs, rtol=1e-9, err_msg=name)


def looked_up(table: Any, tokens: Any) -> Any:
    return fnp.sum(fnp.tanh(table[tokens]) * np.array([1.0, 2.0, 3.0]))


@pytest.mark.slow
def test_layers_in_branches_have_means_over_the_examples_that_run_them() -> None:
    x, tokens = draw(9, 4, 3), DRAWS.integers(0, 5, (9, 4))
    x[:, 0, 0] = [1, -1, 1, 1, -1, -1, 1, -1, 1]
    runs = x[:, 0, 0] > 0
    params = {"b": draw(2), "e": draw(5, 3), "w": draw(3, 2)}

    def layer(params: Any, x: Any, tokens: Any) -> Any:
        return fnp.sum(fnp.tanh((x + params["e"][tokens]) @ params["w"] + params["b"]) ** 2)

    def loss(params: Any, x: Any, tokens: Any) -> Any:
        return fxgrad.cond(x[0, 0] > 0, lambda: layer(params, x, tokens), lambda: fnp.sum(x))

    for options in ({}, {"sharing": "reduce"}, {"joint_biases": True}):
        found = curvature.kfac_factors(loss, **options)(params, x, tokens)
        alone = curvature.kfac_factors(layer, **options)(params, x[runs], tokens[runs])
        for name in params:
            if alone[name] is None:
                assert found[name] is None
                continue
            np.testing.assert_allclose(found[name].inputs, alone[name].inputs, rtol=1e-11, atol=1e-14)
            np.testing.assert_allclose(found[name].outputs, alone[name].outputs * runs.mean(), rtol=1e-11, atol=1e-14)
        compiled = fxgrad.jit(curvature.kfac_factors(loss, **options))(params, x, tokens)
        for one, other in zip(fxgrad.tree.leaves(compiled), fxgrad.tree.leaves(found), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-14)


def test_steps_of_a_loop_that_run_a_branch_are_its_positions() -> None:
    def loss(w: Any, x: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            return fxgrad.cond(row[0] > 0, lambda: h + fnp.tanh(row @ w), lambda: h), None
        return fnp.sum(fxgrad.scan(step, fnp.zeros(4, float), x)[0])

    w, x = draw(3, 4), draw(6, 8, 3)
    found = curvature.kfac_factors(loss)(w, x)
    rows = x[x[:, :, 0] > 0]
    slopes = 1.0 - np.tanh(rows @ w) ** 2
    np.testing.assert_allclose(found.inputs[0], rows.T @ rows / len(rows), rtol=1e-11)
    np.testing.assert_allclose(found.outputs[0], slopes.T @ slopes / 6, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["expand", "reduce"])
def test_factors_in_a_while_loop_are_those_of_its_steps(sharing: str) -> None:
    params = {"b": draw(3), "g": draw(3), "u": draw(3, 2), "w": draw(3, 3)}
    x, counts = draw(5, 3), np.array([1, 4, 0, 2, 3])

    def step(params: Any, h: Any, x: Any) -> Any:
        return fnp.tanh(h @ params["w"] + params["b"] + x) * params["g"]

    def loss(params: Any, x: Any, count: Any) -> Any:
        _, h = fxgrad.while_loop(lambda state: state[0] < count,
                                 lambda state: (state[0] + 1, step(params, state[1], x)), (0, x))
        return fnp.sum((h @ params["u"]) ** 2)

    def unrolled(params: Any, x: Any, count: Any) -> Any:
        h = x
        for number in range(4):
            h = fxgrad.cond(number < count, lambda h=h: step(params, h, x), lambda h=h: h)
        return fnp.sum((h @ params["u"]) ** 2)

    found = curvature.kfac_factors(loss, sharing=sharing)
    expected = curvature.kfac_factors(unrolled, sharing=sharing)(params, x, counts)
    for factors in (found(params, x, counts), fxgrad.jit(found)(params, x, counts)):
        for name in params:
            np.testing.assert_allclose(factors[name].inputs, expected[name].inputs, rtol=1e-10, atol=1e-13)
            np.testing.assert_allclose(factors[name].outputs, expected[name].outputs, rtol=1e-10, atol=1e-13)
    value = draw(3, 3)
    assert found(params, x, counts)["w"].solve(value, 0.1).shape == (3, 3)
    norms = curvature.per_example_norms(loss)(params, x, counts)
    gradients = fxgrad.vmap(fxgrad.grad(loss), (None, 0, 0))(params, x, counts)
    np.testing.assert_allclose(norms ** 2, sum(np.sum(leaf.reshape(5, -1) ** 2, 1) for leaf in gradients.values()))


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["expand", "reduce"])
@pytest.mark.parametrize("by_column", [False, True])
def test_factors_of_lookups_in_a_while_loop_are_those_of_its_steps(sharing: str, by_column: bool) -> None:
    """Also where branches skip some, the table is read outside too, and indices are out of range."""
    params = {"table": draw(3, 6) if by_column else draw(6, 3), "w": draw(3, 3)}
    tokens, counts = np.array([[1, 5, 1, 0], [2, 2, 2, 9], [0, 1, 2, 3]]), np.array([4, 3, 0])

    def read(params: Any, index: Any) -> Any:
        return fnp.take(params["table"], index, axis=1 if by_column else 0, mode="fill", fill_value=0.0).T

    def step(params: Any, h: Any, tokens: Any, number: Any) -> Any:
        h = fnp.tanh(h @ params["w"] + fnp.sum(read(params, tokens[number:number + 1] if isinstance(
            number, int) else fxgrad.lax.dynamic_slice_in_dim(tokens, number, 1)).reshape(-1, 3), 0))
        return fxgrad.cond(h[0] > 0, lambda: h * fnp.sum(read(params, tokens[0])), lambda: h)

    def loss(params: Any, tokens: Any, count: Any) -> Any:
        h = fxgrad.while_loop(lambda state: state[0] < count, lambda state: (
            state[0] + 1, step(params, state[1], tokens, state[0])), (0, np.full(3, 0.1)))[1]
        return fnp.sum(fnp.sin(h + read(params, tokens[1])))

    def unrolled(params: Any, tokens: Any, count: Any) -> Any:
        h = np.full(3, 0.1)
        for number in range(4):
            h = fxgrad.cond(number < count, lambda h=h, number=number: step(params, h, tokens, number), lambda h=h: h)
        return fnp.sum(fnp.sin(h + read(params, tokens[1])))
    found = curvature.kfac_factors(loss, sharing=sharing)
    expected = curvature.kfac_factors(unrolled, sharing=sharing)(params, tokens, counts)
    for factors in (found(params, tokens, counts), fxgrad.jit(found)(params, tokens, counts)):
        assert factors["table"].placement == expected["table"].placement
        for name in params:
            np.testing.assert_allclose(factors[name].inputs, expected[name].inputs, rtol=1e-10, atol=1e-13)
            np.testing.assert_allclose(factors[name].outputs, expected[name].outputs, rtol=1e-10, atol=1e-13)


def test_loops_and_branches_in_a_while_loop() -> None:
    w, x = draw(3, 3), draw(4, 3)

    def loss(w: Any, x: Any) -> Any:
        def turn(state: Any) -> Any:
            h = fxgrad.scan(lambda h, _: (fnp.tanh(h @ w), None), state[1], length=2)[0]
            return state[0] + 1, fxgrad.cond(h[0] > 0, lambda: fnp.sin(h @ w), lambda: h)
        return fnp.sum(fxgrad.while_loop(lambda state: state[0] < 3, turn, (0, x))[1] @ w)

    def unrolled(w: Any, x: Any) -> Any:
        h = x
        for _ in range(3):
            h = fnp.tanh(fnp.tanh(h @ w) @ w)
            h = fxgrad.cond(h[0] > 0, lambda h=h: fnp.sin(h @ w), lambda h=h: h)
        return fnp.sum(h @ w)
    found, expected = (curvature.kfac_factors(each)(w, x) for each in (loss, unrolled))
    np.testing.assert_allclose(found.inputs, expected.inputs, rtol=1e-10)
    np.testing.assert_allclose(found.outputs, expected.outputs, rtol=1e-10)


def test_a_branch_that_no_example_runs_has_zeros() -> None:
    found = curvature.kfac_factors(lambda w, x: fxgrad.cond(
        x[0] > 5.0, lambda: fnp.sum(fnp.tanh(x @ w)), lambda: 0.0))(np.ones((2, 3)), np.ones((4, 2)))
    assert not found.inputs.any()
    assert not found.outputs.any()
    one = curvature.kfac_factors(lambda w, x: fxgrad.cond(
        x[0] > 0.0, lambda: fnp.sum(fnp.tanh(x @ w)), lambda: fnp.sum(fnp.sin(2.0 * x @ w))))(
            np.ones((2, 3)), np.ones((1, 2)))
    np.testing.assert_allclose(one.inputs[0], np.ones((2, 2)))


def test_factors_of_lookups_are_those_of_one_hot_inputs() -> None:
    table, tokens = draw(9, 3), np.array([[1, 2, 1, 8], [0, 2, 2, 2], [8, 8, 1, 0]])
    hot = np.eye(9)[tokens]
    for sharing in ("expand", "reduce"):
        found = curvature.kfac_factors(looked_up, sharing=sharing)(table, tokens)
        dense = curvature.kfac_factors(lambda table, x: fnp.sum(fnp.tanh(x @ table) * np.array([1.0, 2.0, 3.0])),
                                       sharing=sharing)(table, hot)
        assert (found.placement.kind, found.inputs.shape) == ("lookup", (1, 9))
        np.testing.assert_allclose(found.inputs[0], np.diag(dense.inputs[0]), rtol=1e-12)
        np.testing.assert_allclose(found.outputs, dense.outputs, rtol=1e-12)
        value = draw(9, 3)
        if sharing == "expand":
            np.testing.assert_allclose(found.product(value), dense.product(value), rtol=1e-11)
            np.testing.assert_allclose(found.solve(value, 0.1), dense.solve(value, 0.1), rtol=1e-10)
    jitted = fxgrad.jit(curvature.kfac_factors(looked_up))(table, tokens)
    np.testing.assert_allclose(jitted.inputs, curvature.kfac_factors(looked_up)(table, tokens).inputs, rtol=1e-12)


def test_positions_that_read_no_entry_are_not_counted() -> None:
    found = curvature.kfac_factors(lambda table, tokens: fnp.sum(fnp.tanh(table.at[tokens].get(
        mode="fill", fill_value=0.0))))(draw(4, 2), np.array([[1, 9], [1, 3]]))
    np.testing.assert_allclose(found.inputs[0], [0.0, 0.5, 0.0, 0.25], rtol=1e-12)
    twice = curvature.kfac_factors(lambda table, tokens: looked_up(table, tokens) + fnp.sum(table[tokens[0]]))(
        draw(4, 3), np.array([[1, 2], [1, 3]]))
    np.testing.assert_allclose(twice.inputs[0], [0.0, 4 / 6, 1 / 6, 1 / 6], rtol=1e-12)


def test_weights_and_bias_in_one_block_are_those_of_one_more_input() -> None:
    x, y = draw(5, 7, 3), draw(5, 7, 2)
    for sharing in ("expand", "reduce"):
        found = curvature.kfac_factors(network, sharing=sharing, joint_biases=True)(PARAMS, x, y)
        assert found["b"] is None
        assert found["v"].bias is None
        assert found["w"].bias == ("params.b", (4,))
        joined = {"v": PARAMS["v"], "w": np.concatenate([PARAMS["w"], PARAMS["b"][None]])}
        single = curvature.kfac_factors(
            lambda p, x, y: fnp.sum((fnp.tanh(x @ p["w"]) @ p["v"] - y) ** 2), sharing=sharing)(
                joined, np.concatenate([x, np.ones((5, 7, 1))], -1), y)["w"]
        np.testing.assert_allclose(found["w"].inputs, single.inputs, rtol=1e-11)
        np.testing.assert_allclose(found["w"].outputs, single.outputs, rtol=1e-11)
        weights, bias = draw(3, 4), draw(4)
        for name, more in (("product", ()), ("solve", (0.1,))):
            parts = getattr(found["w"], name)((weights, bias), *more)
            whole = getattr(single, name)(np.concatenate([weights, bias[None]]), *more)
            np.testing.assert_allclose(parts[0], whole[:3], rtol=1e-9)
            np.testing.assert_allclose(parts[1], whole[3], rtol=1e-9)


def test_joint_biases_of_convolutions_stacks_and_others() -> None:
    def of_image(p: Any, x: Any) -> Any:
        return fnp.sum(fnp.tanh(fxgrad.lax.conv_general_dilated(x[None], p["w"], (1, 1), "VALID") + p["b"]))

    found = curvature.kfac_factors(of_image, joint_biases=True)(
        {"b": draw(4, 1, 1), "w": draw(4, 3, 2, 2)}, draw(5, 3, 2, 2))
    assert (found["b"], found["w"].inputs.shape) == (None, (1, 13, 13))
    pair = found["w"].product((draw(4, 3, 2, 2), draw(4, 1, 1)))
    assert [each.shape for each in pair] == [(4, 3, 2, 2), (4, 1, 1)]

    def stacked(layers: Any, x: Any) -> Any:
        return fnp.sum(fxgrad.scan(lambda h, p: (fnp.tanh(p["b"] + h @ p["w"]), None), x, layers)[0])

    layers, x = {"b": draw(9, 4), "w": draw(9, 4, 4)}, draw(5, 4)
    of_stack = curvature.kfac_factors(stacked, joint_biases=True)(layers, x)
    separate = curvature.kfac_factors(lambda layers, x: stacked_by_hand(layers, x), joint_biases=True)(
        [{name: leaf[number] for name, leaf in layers.items()} for number in range(9)], x)
    value, bias = draw(9, 4, 4), draw(9, 4)
    weights, biases = of_stack["w"].solve((value, bias), 0.1)
    for number, one in enumerate(separate):
        expected = one["w"].solve((value[number], bias[number]), 0.1)
        np.testing.assert_allclose(weights[number], expected[0], rtol=1e-9)
        np.testing.assert_allclose(biases[number], expected[1], rtol=1e-9)
    # Used twice, subtracted, or of another layer: two blocks.
    for loss in (lambda p, x: fnp.sum(fnp.tanh(x @ p["w"] + p["b"]) + p["b"]),
                 lambda p, x: fnp.sum(fnp.tanh(x @ p["w"] - p["b"])),
                 lambda p, x: fnp.sum(fnp.tanh(fnp.sin(x @ p["w"]) + p["b"]))):
        apart = curvature.kfac_factors(loss, joint_biases=True)({"b": draw(2), "w": draw(3, 2)}, draw(5, 3))
        assert apart["w"].bias is None
        assert apart["b"] is not None


def stacked_by_hand(layers: Any, x: Any) -> Any:
    for p in layers:
        x = fnp.tanh(p["b"] + x @ p["w"])
    return fnp.sum(x)


def test_parameters_without_factors() -> None:
    params = {"table": draw(9, 3), "twice": draw(3, 3), "unused": draw(2), "w": draw(3, 2)}

    def loss(params: Any, token: Any) -> Any:
        x = params["table"][token]
        return fnp.sum(x @ params["w"]) + fnp.sum(params["twice"] @ params["twice"])

    found = curvature.kfac_factors(loss)(params, np.array([1, 2]))
    assert [name for name, factors in found.items() if factors is not None] == ["table", "w"]


def test_solve_equals_the_dense_inverse() -> None:
    w, x = draw(3, 4), draw(20, 3)
    factors = curvature.kfac_factors(lambda w, x: fnp.sum(fnp.tanh(x @ w)))(w, x)
    a, g, damping = factors.inputs[0], factors.outputs[0], 0.3
    ratio = np.sqrt((np.trace(a) / 3) / (np.trace(g) / 4))
    dense = np.kron(a + ratio * np.sqrt(damping) * np.eye(3), g + np.sqrt(damping) / ratio * np.eye(4))
    value = draw(3, 4)
    np.testing.assert_allclose(np.ravel(factors.solve(value, damping)), np.linalg.solve(dense, np.ravel(value)),
                               rtol=1e-9)
    np.testing.assert_allclose(np.ravel(factors.product(value)), np.kron(a, g) @ np.ravel(value), rtol=1e-9)
    still = curvature.kfac_factors(lambda w, x: fnp.sum(0.0 * (x @ w)))(w, x)
    np.testing.assert_allclose(still.solve(value, 1.0), np.linalg.solve(x.T @ x / 20 + np.eye(3), value), rtol=1e-9)


@pytest.mark.slow
def test_under_transformations() -> None:
    x, y = draw(5, 3), draw(5, 2)
    found = curvature.kfac_factors(network)(PARAMS, x, y)
    jitted = fxgrad.jit(curvature.kfac_factors(network))(PARAMS, x, y)
    np.testing.assert_allclose(jitted["w"].outputs, found["w"].outputs, rtol=1e-10)
    assert jitted["w"].placement == found["w"].placement
    stacked = fxgrad.tree.map(lambda leaf: np.stack([leaf, leaf]), PARAMS)
    batched = fxgrad.vmap(curvature.kfac_factors(network), (0, None, None))(stacked, x, y)
    np.testing.assert_allclose(batched["w"].outputs[1], found["w"].outputs, rtol=1e-10)

    def trace(scale: Any) -> Any:
        own = fxgrad.tree.map(lambda leaf: scale * leaf, PARAMS)
        return fnp.trace(curvature.kfac_factors(network)(own, x, y)["w"].outputs[0])

    step = 1e-6
    np.testing.assert_allclose(fxgrad.grad(trace)(1.0), (trace(1.0 + step) - trace(1.0 - step)) / (2 * step), rtol=1e-6)


def test_dtypes_and_kinds_of_arrays() -> None:
    params, x, y = fxgrad.tree.map(np.float32, (PARAMS, draw(5, 3), draw(5, 2)))
    found = curvature.kfac_factors(network)(params, x, y)["w"]
    assert (found.inputs.dtype, found.outputs.dtype) == (np.float32, np.float32)
    assert isinstance(found.inputs, np.ndarray)
    assert isinstance(curvature.kfac_factors(network)(
        fxgrad.tree.map(jnp.asarray, params), jnp.asarray(x), jnp.asarray(y))["w"].inputs, jax.Array)
    empty = curvature.kfac_factors(network)(PARAMS, np.zeros((0, 3)), np.zeros((0, 2)))["w"]
    np.testing.assert_array_equal(empty.inputs, np.zeros((1, 3, 3)))


def test_errors() -> None:
    with pytest.raises(ArgumentError) as error:
        curvature.kfac_factors(network, sharing="both")
    assert str(error.value).split("\n")[0] == "kfac_factors: sharing is 'both', where 'expand' or 'reduce' is needed"
    factors = curvature.kfac_factors(network)(PARAMS, draw(5, 3), draw(5, 2))["w"]
    with pytest.raises(ShapeError) as shapes:
        factors.solve(np.ones((4, 3)), 0.1)
    assert str(shapes.value).split("\n")[0] == (
        "KroneckerFactors.solve: the parameter has the shape (3, 4), and the value (4, 3); they must be the same")
    joint = curvature.kfac_factors(network, joint_biases=True)(PARAMS, draw(5, 3), draw(5, 2))["w"]
    with pytest.raises(ArgumentError) as single:
        joint.solve(np.ones((3, 4)), 0.1)
    assert str(single.value).split("\n")[0] == (
        "KroneckerFactors.solve: weights and params.b are one block, so that a pair (weights, bias) is needed, got "
        "ndarray")
    with pytest.raises(ShapeError) as biases:
        joint.product((np.ones((3, 4)), np.ones(3)))
    assert str(biases.value).split("\n")[0] == (
        "KroneckerFactors.product: params.b has the shape (4,), and the value (3,); they must be the same")
    with pytest.raises(ArgumentError, match="kfac_factors: no batch was given"):
        curvature.kfac_factors(network)(PARAMS)


def test_biases_in_other_shapes() -> None:
    params, x = {"w": draw(5, 4, 2, 2), "b": draw(5)}, draw(3, 4, 4, 4)
    wide = {**params, "b": params["b"].reshape(5, 1, 1)}

    def loss(params: Any, x: Any) -> Any:
        image = fxgrad.lax.conv_general_dilated(x[None], params["w"], (1, 1), "VALID")
        return fnp.sum(fnp.tanh(image + (params["b"][:, None, None] if params["b"].ndim == 1 else params["b"])))
    for joint in (False, True):
        found, expected = (curvature.kfac_factors(loss, joint_biases=joint)(each, x) for each in (params, wide))
        name = "w" if joint else "b"
        np.testing.assert_array_equal(found[name].outputs, expected[name].outputs)
        np.testing.assert_array_equal(found[name].inputs, expected[name].inputs)
        value = (draw(5, 4, 2, 2), draw(5)) if joint else draw(5)
        assert fxgrad.tree.map(np.shape, found[name].solve(value, 0.1)) == fxgrad.tree.map(np.shape, value)
    assert curvature.kfac_factors(lambda w, x: fnp.sum(fnp.tanh(x @ w.reshape(4, 3))))(draw(12), draw(2, 4)) is None


@pytest.mark.parametrize("shape", [(3,), (1, 3), (3, 1), ()], ids=str)
def test_a_bias_of_other_axes_is_a_block_of_its_own(shape: Any) -> None:
    """A result of as many positions as outputs; what is added to each position is no bias of the layer."""
    def loss(params: Any, x: Any) -> Any:
        return fnp.sum(fnp.tanh(x @ params["w"] + params["b"]))
    params, x = {"w": draw(4, 3), "b": draw(*shape)}, draw(2, 3, 4)
    found = curvature.kfac_factors(loss, joint_biases=True)(params, x)
    assert (found["w"].bias is not None) == (found["b"] is None) == (shape in ((3,), (1, 3)))
