"""The optimisers beside optax's over a hundred steps, and as functions that are traced."""

from __future__ import annotations

import math
from typing import Any

import jax
import ml_dtypes
import numpy as np
import optax
import pytest

import fxgrad
from fxgrad import optim
from fxgrad.errors import ArgumentError
from fxgrad.testing import check_grads

RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(3, 2)), "b": [np.zeros(2)]}
X, Y = RNG.normal(size=(10, 3)), RNG.normal(size=(10, 2))


def loss(params):
    return np.mean((np.tanh(X @ params["w"]) + params["b"][0] - Y) ** 2)


PAIRS: dict[str, tuple[optim.Optimizer, Any]] = {
    "sgd": (optim.sgd(0.1), optax.sgd(0.1)),
    "momentum": (optim.sgd(0.1, 0.9), optax.sgd(0.1, 0.9)),
    "nesterov": (optim.sgd(0.1, 0.9, nesterov=True), optax.sgd(0.1, 0.9, nesterov=True)),
    "decay": (optim.sgd(0.1, 0.9, weight_decay=0.01),
              optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.1, 0.9))),
    "adam": (optim.adam(0.05), optax.adam(0.05)),
    "adam, decay": (optim.adam(0.05, weight_decay=0.1), optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.05))),
    "adamw": (optim.adamw(0.05, 0.8, 0.99, 1e-6, weight_decay=0.1),
              optax.adamw(0.05, 0.8, 0.99, 1e-6, weight_decay=0.1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_a_hundred_steps_are_those_of_optax(name: str) -> None:
    own, other = PAIRS[name]
    params, state = PARAMS, own.init(PARAMS)
    with jax.enable_x64(True):
        theirs, their_state = PARAMS, other.init(PARAMS)
        for _ in range(100):
            params, state = own.update(fxgrad.grad(loss)(params), state, params)
            updates, their_state = other.update(fxgrad.grad(loss)(theirs), their_state, theirs)
            theirs = optax.apply_updates(theirs, updates)
    for one, two in zip(fxgrad.tree.leaves(params), fxgrad.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-15)
    assert loss(params) < loss(PARAMS)


def of_pytorch(name: str, w: Any, gradient: Any, steps: int) -> Any:
    """Parameters after some steps by the algorithms that PyTorch's documentation lists, written out."""
    m, v, buffer = 0.0, 0.0, None
    for count in range(1, steps + 1):
        g = gradient(w)
        if name == "sgd":
            g = g + 0.01 * w
            buffer = g if buffer is None else 0.9 * buffer + g
            w = w - 0.1 * (g + 0.9 * buffer)  # Nesterov's form
            continue
        if name == "adam":
            g = g + 0.1 * w
        else:
            w = w - 0.05 * 0.1 * w
        m, v = 0.8 * m + (1 - 0.8) * g, 0.99 * v + (1 - 0.99) * g ** 2
        w = w - 0.05 / (1 - 0.8 ** count) * m / (np.sqrt(v) / np.sqrt(1 - 0.99 ** count) + 1e-8)
    return w


@pytest.mark.parametrize(("name", "own"), [
    ("sgd", optim.sgd(0.1, 0.9, nesterov=True, weight_decay=0.01)),
    ("adam", optim.adam(0.05, 0.8, 0.99, weight_decay=0.1)),
    ("adamw", optim.adamw(0.05, 0.8, 0.99, weight_decay=0.1)),
])
def test_row_w18_a_hundred_steps_are_pytorchs(name: str, own: optim.Optimizer) -> None:
    slope = fxgrad.grad(lambda w: np.mean((np.tanh(X @ w) - Y[:, 0]) ** 2))
    params, state = PARAMS["w"][:, 0], own.init(PARAMS["w"][:, 0])
    for _ in range(100):
        params, state = own.update(slope(params), state, params)
    np.testing.assert_allclose(params, of_pytorch(name, PARAMS["w"][:, 0], slope, 100), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", PAIRS)
def test_steps_are_traced_and_scanned(name: str) -> None:
    own, _ = PAIRS[name]

    def step(carry, _):
        params, state = carry
        return own.update(fxgrad.grad(loss)(params), state, params), loss(params)

    state = own.init(PARAMS)
    if name.startswith("adam"):
        state = state._replace(count=np.int64(0))
    (last, _), losses = fxgrad.scan(step, (PARAMS, state), None, length=5)
    params, state = PARAMS, own.init(PARAMS)
    for _ in range(5):
        params, state = own.update(fxgrad.grad(loss)(params), state, params)
    np.testing.assert_allclose(last["w"], params["w"], rtol=1e-12)
    assert losses[-1] < losses[0]


def decaying(count):
    return 0.05 / (1 + count)


OF_DTYPES: dict[str, tuple[optim.Optimizer, Any]] = {
    "sgd": (optim.sgd(0.1, 0.9), optax.sgd(0.1, 0.9)), "adam": (optim.adam(0.05), optax.adam(0.05)),
    "sgd, scheduled": (optim.sgd(decaying, 0.9), optax.sgd(decaying, 0.9)),
    "adamw, scheduled": (optim.adamw(decaying), optax.adamw(decaying, weight_decay=1e-2)),
    "rmsprop": (optim.rmsprop(0.05, 0.9), optax.rmsprop(0.05, 0.9, eps_in_sqrt=False)),
    "lion": (optim.lion(0.05, weight_decay=0.1), optax.lion(0.05, weight_decay=0.1)),
}


@pytest.mark.parametrize("dtype", ["float32", "complex64", *(
    pytest.param(name, marks=pytest.mark.slow) for name in ("bfloat16", "float64", "complex128"))])
def test_parameters_keep_their_dtype_and_steps_are_optaxs(dtype: str) -> None:
    wrong = []
    with jax.enable_x64(True):
        turn = 0.8 - 0.6j if dtype.startswith("complex") else 1.0
        start = np.asarray(jax.numpy.asarray([0.5, -1.5, 2.0 * turn], dtype))
        gradients = [np.asarray(jax.numpy.asarray([turn, -0.5 * turn, 0.25 * k - 0.6], dtype)) for k in range(5)]
        for name, (own, other) in OF_DTYPES.items():
            wide = "float32" if dtype == "bfloat16" else dtype  # half precision is rounded once in each step
            theirs, their_state = jax.numpy.asarray(start), other.init(jax.numpy.asarray(start, wide))
            for gradient in gradients:
                before = theirs.astype(wide)
                updates, their_state = other.update(jax.numpy.asarray(gradient, wide), their_state, before)
                theirs = optax.apply_updates(before, updates).astype(dtype)
            for way, update in {"plain": own.update, "jitted": fxgrad.jit(own.update)}.items():
                for restored in (False, True):
                    params, state = start, own.init(start)
                    for gradient in gradients:
                        if restored:
                            state = fxgrad.tree.map(np.asarray, state)
                        params, state = update(gradient, state, params)
                    near = np.allclose(np.asarray(params, np.complex128), np.asarray(theirs, np.complex128), rtol={
                        "bfloat16": 8e-3, "float32": 2e-5, "complex64": 2e-5}.get(dtype, 1e-7))
                    if params.dtype != start.dtype or not near:
                        wrong.append((name, way, restored, params, theirs))
    assert not wrong


def test_the_first_state_of_infinities_is_0() -> None:
    for params in (np.array([-np.inf, np.nan, -1.0], np.float32), jax.numpy.asarray([-jax.numpy.inf, -1.0]), -np.inf,
                   np.array([complex(-np.inf, 1.0)])):
        for optimizer in (optim.sgd(0.1, 0.9), optim.adam(0.1), optim.rmsprop(0.1), optim.lion(0.1)):
            for averages in fxgrad.tree.leaves(optimizer.init(params)):
                assert np.all(np.equal(averages, 0))
                assert not np.any(np.signbit(np.real(averages)))
        assert type(optim.sgd(0.1, 0.9).init(params)) is type(params)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_steps_in_a_loop_and_mapped_are_those_outside(dtype: str) -> None:
    start = np.asarray(jax.numpy.asarray([0.5, -1.5, 2.0], "float32")).astype(jax.numpy.dtype(dtype))
    gradient = start * start.dtype.type(0.5)
    wrong = []
    for name, (own, _) in OF_DTYPES.items():
        params, state = start, own.init(start)
        counted = fxgrad.tree.map(np.asarray, state)
        for _ in range(5):
            params, state = own.update(gradient, state, params)
        (last, _), _ = fxgrad.scan(lambda carry, _, own=own: (own.update(gradient, carry[1], carry[0]), None),
                                   (start, counted), None, length=5)
        rows = fxgrad.tree.map(lambda leaf: np.stack([leaf, leaf]), (start, counted))
        for _ in range(5):
            rows = fxgrad.vmap(lambda p, s, own=own: own.update(gradient, s, p))(*rows)
        for way, found in (("scan", last), ("vmap", rows[0][1])):
            near = np.allclose(np.asarray(found, np.float64), np.asarray(params, np.float64),
                               rtol={"float32": 2e-6, "bfloat16": 2e-2, "float64": 1e-12}[dtype])
            if found.dtype != start.dtype or not near:
                wrong.append((name, way, found, params))
    assert not wrong


def test_half_precision_is_updated_in_float32_and_rounded_once() -> None:
    """Squares of float16 are 0 below 3e-4, infinite from 256 on, epsilon is 0, and 0.999 is 1 in bfloat16."""
    wrong = []
    for dtype in ("float16", ml_dtypes.bfloat16):
        params = np.array([0.5, -1.5, 2.0, 1.0]).astype(dtype)
        gradient = np.array([0.0, 1e-4, 1e3, -0.5]).astype(dtype)
        for name, (own, _) in OF_DTYPES.items():
            for way, update in {"plain": own.update, "jitted": fxgrad.jit(own.update)}.items():
                state, wide, wide_state = own.init(params), params.astype("f4"), own.init(params.astype("f4"))
                now = params
                for _ in range(4):
                    now, state = update(gradient, state, now)
                    wide, wide_state = own.update(gradient.astype("f4"), wide_state, wide.astype(dtype).astype("f4"))
                averages = [each for each in fxgrad.tree.leaves(state) if np.ndim(each)]
                near = np.allclose(now.astype("f4"), wide, rtol=float(ml_dtypes.finfo(dtype).eps))
                if now.dtype != dtype or not near or any(each.dtype != np.float32 for each in averages):
                    wrong.append((dtype, name, way, now, wide))
    assert not wrong


@pytest.mark.parametrize("name", OF_DTYPES)
def test_parameters_keep_their_dtype_if_gradients_are_wider(name: str) -> None:
    own, start = OF_DTYPES[name][0], np.array([0.5, -1.5], np.float32)
    params, state = own.update(np.array([1.0, 2.0]), own.init(start), start)
    same, _ = own.update(np.array([1.0, 2.0], np.float32), own.init(start), start)
    assert params.dtype == np.float32
    np.testing.assert_array_equal(params, same)
    assert not any(leaf.dtype == np.float64 for leaf in fxgrad.tree.leaves(state) if isinstance(leaf, np.ndarray))


@pytest.mark.parametrize("name", OF_DTYPES)
def test_integers_without_a_gradient_stay_as_they_are(name: str) -> None:
    own, params = OF_DTYPES[name][0], {"w": np.array([0.5, -1.5]), "places": np.array([1, 0])}

    def step(params: Any, state: Any) -> Any:
        gradients = fxgrad.grad(lambda p: np.sum(p["w"][p["places"]] ** 2), allow_int=True)(params)
        return own.update(gradients, state, params)

    alone, _ = own.update(2 * params["w"], own.init(params["w"]), params["w"])
    for way in (step, fxgrad.jit(step)):
        moved, state = way(params, own.init(params))
        np.testing.assert_array_equal(moved["places"], [1, 0])
        np.testing.assert_allclose(moved["w"], alone, rtol=1e-12)
        again, _ = way(moved, state)
        assert again["places"].dtype == params["places"].dtype


def test_a_traced_rate_is_taken() -> None:
    params, gradient = np.ones(3, np.float32), np.ones(3, np.float32)
    for make in (optim.sgd, optim.adam, optim.adamw, optim.rmsprop, optim.lion):
        def after(rate: Any, make: Any = make) -> Any:
            optimizer = make(rate)
            return optimizer.update(gradient, optimizer.init(params), params)[0]
        for way in (fxgrad.jit(after), lambda rate, after=after: fxgrad.vmap(after)(np.array([rate, 1.0]))[0]):
            assert way(0.25).dtype == np.float32
            np.testing.assert_allclose(way(0.25), after(0.25), rtol=1e-6)


def test_gradients_are_clipped_as_optax_does() -> None:
    gradients = {"a": np.float32([3.0, 4.0]), "b": np.float32([12.0])}
    for limit in (6.5, 20.0):
        expected, _ = optax.clip_by_global_norm(limit).update(gradients, optax.EmptyState())
        for clip in (optim.clip_by_global_norm, fxgrad.jit(optim.clip_by_global_norm)):
            for name, value in clip(gradients, limit).items():
                assert value.dtype == np.float32
                np.testing.assert_allclose(value, expected[name], rtol=1e-6)
        # Optax has the norm of each array as the root of its mean square, times the root of its size.
        for own, other in ((optim.clip, optax.clip(limit)), (optim.clip_by_norm, None)):
            for name, value in fxgrad.jit(own)(gradients, limit).items():
                by = other or optax.clip_by_block_rms(limit / math.sqrt(value.size))
                np.testing.assert_allclose(value, by.update(gradients[name], optax.EmptyState())[0], rtol=1e-6)
                np.testing.assert_allclose(own(gradients, limit)[name], value, rtol=1e-6)


@pytest.mark.parametrize("clip", [optim.clip_by_global_norm, optim.clip_by_norm, optim.clip])
def test_clipping_at_the_ends_of_dtypes(clip: Any) -> None:
    root = 1.0 if clip is optim.clip else 0.5
    for dtype, size in (("float32", 1e30), ("float16", 6e4), (ml_dtypes.bfloat16, 1e30), ("float64", 1e200)):
        for way in (clip, fxgrad.jit(clip)):
            huge, = way([np.full(4, -size).astype(dtype)], 1.0)  # whose squares overflow
            assert huge.dtype == dtype
            np.testing.assert_allclose(np.asarray(huge, "f8"), np.full(4, -root), rtol=1e-12)
            for small in (np.zeros(3), np.full(3, 1e-6), np.zeros(0)):
                np.testing.assert_array_equal(way([small.astype(dtype)], 1.0)[0], small.astype(dtype))
    assert clip([], 1.0) == []
    zeros = fxgrad.jacfwd(lambda g: clip([g], 0.25)[0])(np.zeros(2))
    np.testing.assert_array_equal(zeros, np.eye(2))
    many, = clip([np.ones(70_000, "float16")], 1.0)  # more than float16 counts to
    np.testing.assert_allclose(many, np.full(70_000, 1.0 if clip is optim.clip else 70_000 ** -0.5), rtol=1e-3)
    assert np.isnan(clip([np.array([np.nan, 3.0])], 1.0)[0][0])
    np.testing.assert_allclose(fxgrad.grad(lambda g: np.sum(clip([g], 1.0)[0]))(np.zeros(2)), [1.0, 1.0], rtol=1e-12)
    np.testing.assert_allclose(fxgrad.vmap(lambda limit: clip([np.array([9.0])], limit)[0])(np.array([1.0, 2.0])),
                               [[1.0], [2.0]], rtol=1e-12)
    check_grads(lambda g: clip([g], 1.5)[0], (np.array([3.0, -4.0, 0.25]),))


def test_clipping_by_norms_is_exact_over_the_whole_range_of_dtypes() -> None:
    """Whether squares are added as they are or scaled first; norms below 1e-30 count as 0 where they are scaled."""
    wrong = []
    for dtype, exponents in (("float32", range(-27, 37)), ("float64", range(-140, 301, 5))):
        for exponent in exponents:
            gradients = [np.array([3.0, -4e-3]) * 10.0 ** exponent, np.array([[12.0]]) * 10.0 ** exponent]
            given = [each.astype(dtype) for each in gradients]
            exact = np.concatenate([each.astype(np.longdouble).ravel() for each in given])
            norm = np.sqrt(np.sum(exact ** 2))
            for limit in (float(norm) / 3, float(norm) * 3):
                found = np.concatenate([each.ravel() for each in optim.clip_by_global_norm(given, limit)])
                expected = exact * min(1, np.longdouble(limit) / norm)
                if found.dtype != dtype or not np.allclose(found / expected, 1, rtol=8 * np.finfo(dtype).eps, atol=0):
                    wrong.append((dtype, exponent, limit, found))
    assert not wrong, wrong[:5]


def test_a_nan_makes_all_gradients_nan_and_norms_of_complex_ones_are_of_magnitudes() -> None:
    both = optim.clip_by_global_norm({"a": np.array([np.nan]), "b": np.ones(2)}, 1.0)
    assert np.all(np.isnan(both["b"]))
    for clip in (optim.clip_by_global_norm, optim.clip_by_norm):
        np.testing.assert_allclose(clip(np.array([3 + 4j]), 1.0), [0.6 + 0.8j], rtol=1e-12)


@pytest.mark.parametrize("clip", [optim.clip_by_global_norm, optim.clip_by_norm, optim.clip])
def test_clipping_keeps_numbers_weak_integers_without_gradients_and_all_below_an_infinite_limit(clip: Any) -> None:
    given = {"w": np.array([3.0, -4.0], np.float32), "b": 12.0}
    for way in (clip, fxgrad.jit(clip)):
        clipped = way(given, 1.0)
        assert fxgrad.make_program(lambda b: b)(clipped["b"]).inputs[0].aval.weak
        assert clipped["w"].dtype == np.float32
        again = way(given, math.inf)
        np.testing.assert_array_equal(again["w"], given["w"])
        assert again["b"] == 12.0
    gradients = fxgrad.grad(lambda p: np.sum(p["w"][p["n"]]), allow_int=True)({"w": np.ones(2), "n": np.array([1, 1])})
    clipped = clip(gradients, 1.0)
    np.testing.assert_allclose(clipped["w"], [0.0, 1.0], rtol=1e-12)
    assert clipped["n"].dtype == gradients["n"].dtype


@pytest.mark.parametrize("name", OF_DTYPES)
def test_weak_numbers_among_parameters_stay_weak(name: str) -> None:
    own, params = OF_DTYPES[name][0], {"w": np.ones(2, np.float32), "b": 1.5}
    for update in (own.update, fxgrad.jit(own.update)):
        for gradient in (0.5, np.float32(0.5), np.asarray(0.5)):
            moved, state = update({"w": np.ones(2, np.float32), "b": gradient}, own.init(params), params)
            program = fxgrad.make_program(lambda *leaves: leaves)(*fxgrad.tree.leaves((moved, state)))
            types = {(str(variable.aval.dtype), variable.aval.weak) for variable in program.inputs}
            assert types - {("int64", True)} == {("float32", False), ("float64", True)}


def test_schedules_are_optaxs() -> None:
    pairs = [(optim.linear_schedule(0.3, 0.1, 7), optax.linear_schedule(0.3, 0.1, 7)),
             (optim.exponential_decay(0.3, 7, 0.5), optax.exponential_decay(0.3, 7, 0.5)),
             (optim.cosine_decay(0.3, 7, last=0.03), optax.cosine_decay_schedule(0.3, 7, 0.1)),
             (optim.cosine_decay(0.3, 9, warmup=3), optax.warmup_cosine_decay_schedule(0.0, 0.3, 3, 9))]
    for own, other in pairs:
        expected = [float(other(count)) for count in range(12)]
        for way in (own, fxgrad.jit(own), lambda count, own=own: fxgrad.vmap(own)(np.array([count]))[0]):
            np.testing.assert_allclose([float(way(count)) for count in range(12)], expected, rtol=1e-5, atol=1e-7)


def test_a_step_is_differentiated() -> None:
    def after(start):
        params, _ = optim.sgd(0.1, 0.9).update(fxgrad.grad(lambda w: w ** 2)(start), 0.0, start)
        return params ** 2  # (0.8 start)²

    assert fxgrad.grad(after)(3.0) == pytest.approx(2 * 0.64 * 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["momentum", "adam", "adamw", "rmsprop"])
def test_steps_with_gradients_that_are_0_are_differentiated(name: str) -> None:
    """The root of an average of squares has an infinite slope at 0, times a gradient that is 0."""
    def after(rate: Any, start: Any) -> Any:
        own = {"momentum": optim.sgd(rate, 0.9), "adam": optim.adam(rate), "adamw": optim.adamw(rate),
               "rmsprop": optim.rmsprop(rate)}[name]
        params, state = start, own.init(start)
        for _ in range(3):
            slope = fxgrad.grad(lambda w: np.sum(np.array([1.0, 0.0, 2.0]) * w ** 2))(params)
            params, state = own.update(slope, state, params)
        return np.sum(params ** 2)

    check_grads(after, (0.1, np.array([1.0, 2.0, -1.0])))
    for way in (lambda f: f, fxgrad.jit):
        slopes = way(fxgrad.grad(after, argnums=(0, 1)))(0.1, np.array([1.0, 2.0, -1.0]))
        assert np.isfinite(slopes[0])
        assert np.all(np.isfinite(slopes[1]))


PAIR = {"w": np.ones(2, np.float32), "b": np.float32(1.0)}
MAKERS = "optimizer.init(params) makes the first state, optimizer.update the next ones"


@pytest.mark.parametrize(("call", "text"), [
    (lambda: optim.adam(0.1).update(PAIR, None, PAIR),
     ("adam: the state has the structure PyTreeDef(None), and that of these parameters PyTreeDef(CustomNode(namedtuple"
      f"[Moments], [*, {{'b': *, 'w': *}}, {{'b': *, 'w': *}}])); {MAKERS}")),
    (lambda: optim.sgd(0.1, 0.9).update(PAIR, {"w": np.ones(2, np.float32)}, PAIR),
     ("sgd: the state has the structure PyTreeDef({'w': *}), and that of these parameters PyTreeDef({'b': *, 'w': *}); "
      + MAKERS)),
    (lambda: optim.sgd(decaying, 0.9).update(PAIR, None, PAIR),
     ("sgd: the state has the structure PyTreeDef(None), and that of these parameters PyTreeDef((*, {'b': *, 'w': *}))"
      f"; {MAKERS}")),
    (lambda: optim.lion(0.1).update(PAIR, optim.lion(0.1).init({**PAIR, "w": np.ones(3, np.float32)}), PAIR),
     f"lion: an array of the state has the shape (3,), and that of these parameters (2,); {MAKERS}"),
    (lambda: optim.adam(0.1).update(PAIR, optim.adam(0.1).init({**PAIR, "w": np.ones(1, np.float32)}), PAIR),
     f"adam: an array of the state has the shape (1,), and that of these parameters (2,); {MAKERS}"),
    (lambda: optim.rmsprop(0.1).update(PAIR, optim.lion(0.1).init(PAIR)._replace(second=PAIR), PAIR),
     ("rmsprop: the state has the structure PyTreeDef(CustomNode(namedtuple[Moments], [*, {'b': *, 'w': *}, {'b': *, "
      "'w': *}])), and that of these parameters PyTreeDef(CustomNode(namedtuple[Moments], [*, None, {'b': *, 'w': *}]))"
      f"; {MAKERS}")),
    (lambda: optim.sgd(0.1).update(PAIR, PAIR, PAIR),
     ("sgd: the state has the structure PyTreeDef({'b': *, 'w': *}), and that of these parameters PyTreeDef(None); "
      + MAKERS)),
    (lambda: optim.adam({"weights of a layer": np.ones((8, 8), np.float32)}, 0.1),
     "adam: rate is a dict, where a number from 0 on is needed"),
    (lambda: optim.rmsprop(0.1).update(PAIR, optim.rmsprop(0.1).init({**PAIR, "b": np.ones(4, np.float32)}), PAIR),
     ("rmsprop: an update makes float32[4] of a parameter that is float32[]. The state or a setting has an array of "
      "that shape or dtype: give the state that optimizer.init makes of these parameters, and numbers as settings")),
    (lambda: optim.adam(0.1).update(PAIR, optim.adam(0.1).init({**PAIR, "w": np.ones(2)}), PAIR),
     ("adam: an update makes float64[2] of a parameter that is float32[2]. The state or a setting has an array of "
      "that shape or dtype: give the state that optimizer.init makes of these parameters, and numbers as settings")),
    (lambda: optim.sgd(np.array([0.1, 0.2])).update(PAIR, None, PAIR),
     ("sgd: an update makes float32[2] of a parameter that is float32[]. The state or a setting has an array of "
      "that shape or dtype: give the state that optimizer.init makes of these parameters, and numbers as settings")),
    (lambda: optim.adamw(0.1, weight_decay={"w": 0.1, "b": 0.0}),
     "adamw: weight_decay is {'w': 0.1, 'b': 0.0}, where a number from 0 on is needed"),
    (lambda: optim.sgd(None), "sgd: rate is None, where a number from 0 on is needed"),
    (lambda: optim.lion(beta1="0.9"), "lion: beta1 is '0.9', where a number from 0 to below 1 is needed"),
    (lambda: optim.sgd(-0.1), "sgd: rate is -0.1, where a number from 0 on is needed"),
    (lambda: optim.clip([1.0], -1.0), "clip: limit is -1.0, where a number from 0 on is needed"),
    (lambda: optim.clip_by_norm([1.0], -1.0), "clip_by_norm: limit is -1.0, where a number from 0 on is needed"),
    (lambda: optim.clip_by_norm([np.array([3, 4])], 1.0),
     "clip_by_norm: a gradient has the dtype int64, where floats are needed"),
    (lambda: optim.clip_by_global_norm([1.0], -1.0),
     "clip_by_global_norm: limit is -1.0, where a number from 0 on is needed"),
    (lambda: optim.adam(beta1=1.0), "adam: beta1 is 1.0, where a number from 0 to below 1 is needed"),
    (lambda: optim.rmsprop(decay=1.0), "rmsprop: decay is 1.0, where a number from 0 to below 1 is needed"),
    (lambda: optim.lion(np.float32(-1.0)), "lion: rate is -1.0, where a number from 0 on is needed"),
    (lambda: optim.linear_schedule(1.0, 0.0, 0), "linear_schedule: steps is 0, where a number over 0 is needed"),
    (lambda: optim.exponential_decay(1.0, 0, 0.5), "exponential_decay: steps is 0, where a number over 0 is needed"),
    (lambda: optim.cosine_decay(1.0, 4, warmup=4),
     "cosine_decay: steps is 4, where a number over 4, the warmup, is needed"),
    (lambda: optim.sgd(0.1).update(np.ones((3, 2)), None, np.ones(2)),
     "sgd: a gradient has the shape (3, 2), its parameter (2,); they must be the same. fxgrad.grad gives them so"),
    (lambda: optim.sgd(0.1).update([np.ones(2) * 1j], None, [np.ones(2, np.float32)]),
     ("sgd: a gradient is complex128, its parameter float32; they must both be complex or real. fxgrad.grad gives them "
      "so")),
    (lambda: optim.sgd(0.1).update(1.0, None, 2),
     ("sgd: a parameter has the dtype int64, and an update makes floats of it; give it as floats, or leave it out. "
      "With gradients of grad(..., allow_int=True) it stays as it is")),
    (lambda: optim.sgd(0.1, nesterov=True), "sgd: nesterov=True needs a momentum, such as momentum=0.9"),
    (lambda: optim.sgd(0.1).update([1.0], None, {"w": 1.0}),
     ("sgd: the gradients have the structure PyTreeDef([*]), the parameters PyTreeDef({'w': *}); they must be the "
      "same. fxgrad.grad gives them so")),
])
def test_mistakes(call: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text
