"""Functions compiled for a few lengths."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import bucketed, symbolic_spec
from fxgrad.errors import FxgradError

SIZES = (4, 16, 64)


def loss(params: Any, x: Any, y: Any, mask: Any) -> Any:
    """The mean of what has no value where entries are zeros."""
    errors = np.log(x @ params["w"]) - y
    return np.sum(np.where(mask, errors ** 2, 0.0)) / np.sum(mask)


def plain(params: Any, x: Any, y: Any) -> Any:
    return np.mean((np.log(x @ params["w"]) - y) ** 2)


def drawn(count: int, seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng((seed, count))
    return random.uniform(0.5, 2.0, (count, 3)), random.normal(size=count)


PARAMS = {"w": np.array([0.5, 1.0, 1.5])}


def close(found: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.shape(one) == np.shape(other)
        assert one.dtype == other.dtype
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), tolerance, tolerance)


def test_values_and_gradients_are_those_without_padding() -> None:
    function = bucketed(loss, (None, 0, 0), (8,))
    for count in (3, 8):
        x, y = drawn(count)
        close(function(PARAMS, x, y), plain(PARAMS, x, y))
        gradient = fxgrad.grad(function, argnums=(0, 1, 2))(PARAMS, x, y)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
        close(gradient, fxgrad.grad(plain, argnums=(0, 1, 2))(PARAMS, x, y))


@pytest.mark.slow
def test_a_thousand_lengths_are_compiled_for_three() -> None:
    compiled = []

    def note(event: str, *_: Any, **words: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(words.get("fun_name", ""))

    function = bucketed(fxgrad.value_and_grad(loss), (None, 0, 0), SIZES)
    lengths = np.random.default_rng(0).integers(1, 65, 1000)
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        for seed, count in enumerate(lengths):
            x, y = drawn(int(count), seed)
            found = function(PARAMS, x, y)
            if seed % 50 == 0:
                close(found, fxgrad.value_and_grad(plain)(PARAMS, x, y))
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert len(compiled) == len(SIZES)
    stats = function.stats
    assert (stats.calls, stats.compiles) == (1000, 3)
    assert stats.entries == lengths.sum()
    assert stats.sizes == {size: ((lengths > before) & (lengths <= size)).sum()
                           for before, size in zip((0, *SIZES), SIZES, strict=False)}
    assert stats.padding == sum(size * calls for size, calls in stats.sizes.items()) - stats.entries


@pytest.mark.slow
def test_results_are_cut_where_they_have_the_axis() -> None:
    def several(x: Any, mask: Any, length: Any) -> Any:
        return {"rows": x * 2.0, "columns": x.T, "total": np.sum(np.where(mask[:, None], x, 0.0), axis=0),
                "square": x @ x.T, "length": length, "first": x[0]}

    function = bucketed(several, 0, (4, 8), length="length")
    for count in (3, 4, 5):
        x = np.random.default_rng(count).normal(size=(count, 4))
        close(function(x), {"rows": x * 2.0, "columns": x.T, "total": x.sum(0), "square": x @ x.T,
                            "length": np.int32(count), "first": x[0]})
    assert function.stats.sizes == {4: 2, 8: 1}


@pytest.mark.slow
def test_axes_and_keywords() -> None:
    function = bucketed(lambda x, scale, mask: x * scale, {"x": 1}, (4,))
    close(function(np.ones((2, 3)), 2.0), 2 * np.ones((2, 3)))
    function = bucketed(lambda a, b: a + b, 0, (4,), mask=None)
    close(function(np.ones(3), np.ones(3)), 2 * np.ones(3))
    close(function(np.zeros(0), np.zeros(0)), np.zeros(0))


@pytest.mark.slow
def test_kinds_of_arrays() -> None:
    function = bucketed(lambda x, mask: (x * 2, np.cumsum(np.where(mask, x, 0))), 0, (4,))
    single = jnp.ones(3, "float32")
    assert all(isinstance(leaf, jax.Array) and leaf.shape == (3,) and leaf.dtype == "float32"
               for leaf in function(single))
    assert all(type(leaf) is np.ndarray and leaf.dtype == "float64" for leaf in function(np.ones(3)))
    words = function(np.arange(3))[0]
    assert words.dtype == np.int64
    words[0] = 5  # its memory is its own
    keys = fxgrad.random.split(fxgrad.random.key(0), 3)
    draw = bucketed(lambda keys: fxgrad.vmap(lambda key: fxgrad.random.uniform(key, (2,)))(keys), 0, (4,), mask=None)
    close(draw(keys), fxgrad.vmap(lambda key: fxgrad.random.uniform(key, (2,)))(keys), 1e-6)


@pytest.mark.slow
def test_inside_of_other_transformations() -> None:
    function = bucketed(loss, (None, 0, 0), (4, 8))
    x, y = drawn(3)
    close(fxgrad.jit(function)(PARAMS, x, y), plain(PARAMS, x, y))
    xs, ys = np.stack([x, x + 1.0]), np.stack([y, y])
    close(fxgrad.vmap(function, in_axes=(None, 0, 0))(PARAMS, xs, ys), np.array([
        plain(PARAMS, x, y), plain(PARAMS, x + 1.0, y)]))
    close(fxgrad.hessian(lambda w: function({"w": w}, x, y))(PARAMS["w"]),
          fxgrad.hessian(lambda w: plain({"w": w}, x, y))(PARAMS["w"]), 1e-9)
    step = bucketed(lambda params, x, y, mask: fxgrad.value_and_grad(loss)(params, x, y, mask), (None, 0, 0), (4, 8))
    close(step(PARAMS, x, y), fxgrad.value_and_grad(plain)(PARAMS, x, y))
    close(fxgrad.make_program(function)(PARAMS, symbolic_spec(3, 3), symbolic_spec(3))(PARAMS, x, y),
          plain(PARAMS, x, y))


@pytest.mark.parametrize(("call", "message"), [
    (lambda: bucketed(lambda x, mask: x, 0, (4, 8))(np.ones(9)),
     ("bucketed: x of function has 9 entries along axis 0, and the largest of the sizes is 8. Add a larger one, or "
     "call it on pieces")),
    (lambda: bucketed(lambda x, mask: x, 0, ()),
     "bucketed: sizes=(), where positive integers are needed, such as (16, 64, 256)"),
    (lambda: bucketed(lambda x, mask: x, 0, (0, 2.5)),
     "bucketed: sizes=(0, 2.5), where positive integers are needed, such as (16, 64, 256)"),
    (lambda: bucketed(plain, 0, (4,)),
     ("bucketed: plain has no parameter 'mask', which tells its entries from the padding. Write def "
      "plain(..., mask), and exclude the padding from sums; or bucketed(..., mask=None), if entries are independent")),
    (lambda: bucketed(lambda x, mask: np.concatenate([x, x]), 0, (4,))(np.ones(3)),
     ("bucketed: a result of function has the shape (8,) for 4 entries and (10,) for 5, so its padding cannot be "
      "identified. Return results with the axis unchanged, or without it")),
    (lambda: bucketed(lambda x, y, mask: x, 0, (4,))(np.ones(3), np.ones(2)),
     ("bucketed: the mapped axes of the arguments of function have different sizes: x has 3 (axis 0), y has 2 (axis "
      "0). Equal sizes are needed; in_axes=None leaves an argument unmapped")),
    (lambda: fxgrad.make_program(bucketed(lambda x, mask: x, 0, (4,)))(symbolic_spec("n")),
     ("n > 4: that cannot be told, since n stands for any size from 1 on: the program is traced once for all of them. "
      "Trace it for one size where code chooses by it (fxgrad.symbolic_spec(4, 3), or an array), or let values choose: "
      "fxgrad.numpy.where, fxgrad.lax.cond; sizes that are equal get the same name in fxgrad.symbolic_spec")),
])
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises(FxgradError) as caught:
        call()
    assert str(caught.value).split("\n  at ")[0] == message


@pytest.mark.slow
def test_zeros_would_make_nans_of_gradients() -> None:
    """What the copies are for: the mask takes the value out, and not the infinite slope."""
    x, y = drawn(3)
    padded = np.concatenate([x, np.zeros((1, 3))]), np.concatenate([y, [0.0]])
    mask = np.array([True, True, True, False])
    assert np.isnan(fxgrad.grad(loss)(PARAMS, *padded, mask)["w"]).all()
    close(fnp.isfinite(fxgrad.grad(bucketed(loss, (None, 0, 0), (4,)))(PARAMS, x, y)["w"]).all(), np.bool_(True))
