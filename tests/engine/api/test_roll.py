"""`roll`, and the rolling that `jit` does by itself: results, composition, what is left alone, messages."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from support.repeated_models import models

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, random, tree_util

X = np.linspace(-1.0, 1.0, 4, dtype="float32")
W = np.random.default_rng(0).normal(size=(24, 4, 4)).astype("float32") / 2


def block(x: Any, w: Any) -> Any:
    """A block large enough for `jit`: 14 equations."""
    hidden = fnp.tanh(x @ w) * 0.5 + fnp.cos(x) * 0.25
    gate = fnp.sin(hidden) / (1.5 + hidden * hidden)
    return x * 0.5 + gate - fnp.exp(-gate * gate) * 0.125


def network(x: Any, w: Any) -> Any:
    for index in range(len(w)):
        x = block(x, w[index])
    return fnp.sum(x)


def network_of_parts(x: Any, *w: Any) -> Any:
    for each in w:
        x = block(x, each)
    return fnp.sum(x)


@pytest.fixture
def off() -> Iterator[Callable[[Any], Any]]:
    """Calls a function with the setting `roll_repeats` off."""
    def call(function: Callable[[], Any]) -> Any:
        fxgrad.config.update("roll_repeats", False)
        try:
            return function()
        finally:
            fxgrad.config.update("roll_repeats", True)
    yield call
    assert fxgrad.config.read("roll_repeats") is True


def text_of(function: Any, *args: Any) -> str:
    return str(function.lower(*args).as_text())


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    for one, other in zip(tree_util.tree_leaves(found), tree_util.tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=tolerance, atol=tolerance)


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_wrong_choices_are_refused() -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.roll(network, by="loop")
    assert str(caught.value).startswith("roll: by='loop', where 'scan', 'call' or None is needed\n  at test_roll.py:")
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.roll(network, at_least=1)
    assert str(caught.value).startswith(
        "roll: at_least=1, where at least 2 copies make a repeated block\n  at test_roll.py:")
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.roll(network)("words", W)
    assert str(caught.value).startswith("roll: x is a str, where an array or a number is needed. Pass it by closure")


def test_the_result_has_the_container_and_the_arrays_of_the_function() -> None:
    def function(x: Any, *, w: Any) -> Any:
        states = []
        for index in range(5):
            x = fnp.tanh(x @ w[index])
            states.append(x)
        return {"last": x, "states": states, "all": fnp.stack(states)}

    found = fxgrad.roll(function)(X, w=W)
    assert {*found} == {"last", "states", "all"}
    assert_close(found, function(X, w=W))
    assert type(found["last"]) is type(fxgrad.checked(function)(X, w=W)["last"])
    program = fxgrad.make_program(fxgrad.roll(function))(X, w=W)
    assert [str(each.primitive) for each in program.equations].count("scan") == 1
    assert "stack" not in [str(each.primitive) for each in program.equations]


def test_fewer_copies_than_asked_for_stay() -> None:
    program = fxgrad.make_program(fxgrad.roll(network, at_least=25))(X, W)
    assert not any(str(each.primitive) == "scan" for each in program.equations)
    assert any(str(each.primitive) == "scan" for each in fxgrad.make_program(
        fxgrad.roll(network, at_least=24))(X, W).equations)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bfloat16", "int32"])
def test_dtypes_stay(dtype: str) -> None:
    def function(x: Any, w: Any) -> Any:
        for index in range(4):
            x = x * w[index] + x
        return x

    x, w = fnp.ones(3, dtype), fnp.full((4, 3), 2, dtype)
    for by in ("scan", "call"):
        found = fxgrad.roll(function, by=by)(x, w)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(found), np.full(3, 81, x.dtype))


@pytest.mark.parametrize("by", ["scan", "call"])
def test_numbers_without_a_dtype_stay_weak(by: str) -> None:
    def function(x: Any) -> Any:
        for step in range(6):
            x = x * 0.5 + step
        return x

    assert fxgrad.roll(function, by=by)(1.0) == function(1.0)
    assert fxgrad.eval_shape(fxgrad.roll(function, by=by), 1.0) == fxgrad.eval_shape(function, 1.0)
    assert_close(fxgrad.jit(fxgrad.roll(function, by=by))(np.float32(1.0)), function(1.0))


def test_empty_arrays_roll() -> None:
    empty = np.ones((0, 4), "float32")
    assert fxgrad.roll(network)(empty, W) == 0.0
    assert fxgrad.grad(fxgrad.roll(network), argnums=1)(empty, W).shape == W.shape


def test_blocks_that_read_older_copies_are_called() -> None:
    def dense(x: Any) -> Any:
        seen = [x, x + 1.0]
        for _ in range(6):
            seen.append(fnp.tanh(seen[-1]) * seen[-2])
        return seen[-1]

    program = fxgrad.make_program(fxgrad.roll(dense, by="scan"))(X)
    assert {str(each.primitive) for each in program.equations if each.programs} == {"jit_call"}
    assert_close(fxgrad.roll(dense, by="scan")(X), dense(X))


def test_numbers_equal_at_one_call_may_differ_at_the_next() -> None:
    def function(rates: list[float]) -> Callable[[Any], Any]:
        def train(x: Any) -> Any:
            for rate in rates:
                x = x - fnp.tanh(x) * rate
            return x
        return train

    for rates in ([0.5] * 6, [0.5, 0.25, 0.5, 0.125, 0.5, 1.0], [0.25] * 6):
        for by in ("scan", "call"):
            assert_close(fxgrad.roll(function(rates), by=by)(X), function(rates)(X))


def test_nested_repeats_are_rolled_in_each_other() -> None:
    def function(x: Any, w: Any) -> Any:
        for index in range(4):
            inner = x
            for _ in range(5):
                inner = fnp.sin(inner) * x
            x = inner @ w[index]
        return x

    program = fxgrad.make_program(fxgrad.roll(function, by="scan"))(X, W[:4])
    outer = next(each for each in program.equations if str(each.primitive) == "scan")
    assert outer.params["length"] == 4
    assert [each.params["length"] for each in outer.programs[0].equations if each.programs] == [5]
    assert_close(fxgrad.roll(function, by="scan")(X, W[:4]), function(X, W[:4]))


def test_scopes_of_single_copies_are_left_out_and_common_ones_kept() -> None:
    def function(x: Any, w: Any) -> Any:
        for index in range(4):
            with fxgrad.named_scope("encoder"), fxgrad.named_scope(f"layer {index}"), fxgrad.named_scope("product"):
                x = fnp.tanh(x @ w[index])
        return x

    program = fxgrad.make_program(fxgrad.roll(function))(X, W[:4])
    body, = program.equations[0].programs
    assert [each.scope for each in body.equations] == ["encoder/product", "encoder/product"]
    assert {each.source.place for each in body.equations} == {
        f"test_roll.py:{function.__code__.co_firstlineno + 3}"}


# --- by jit ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_jit_compiles_one_loop_for_stacked_parameters_and_calls_for_separate_ones(off: Any) -> None:
    looped, called = fxgrad.jit(network), fxgrad.jit(network_of_parts)
    assert "stablehlo.while" in text_of(looped, X, W)
    assert text_of(called, X, *W).count('inlineable = "false"') == len(W)
    plain = off(lambda: text_of(fxgrad.jit(network), X, W))
    assert "stablehlo.while" not in plain
    assert len(text_of(looped, X, W)) < len(plain) / 3
    wanted = off(lambda: fxgrad.jit(network)(X, W))
    assert_close((looped(X, W), called(X, *W)), (wanted, wanted))


@pytest.mark.slow
def test_jitted_gradients_are_those_of_unrolled_code(off: Any) -> None:
    for function, args in ((network, (X, W)), (network_of_parts, (X, *W))):
        gradient = fxgrad.grad(function, argnums=(0, 1))
        wanted = off(lambda gradient=gradient, args=args: fxgrad.jit(gradient)(*args))
        assert_close(fxgrad.jit(gradient)(*args), wanted)
        assert "inlineable" in text_of(fxgrad.jit(gradient), *args) or "stablehlo.while" in text_of(
            fxgrad.jit(gradient), *args)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*models(32)])
def test_jit_of_every_model_gives_what_unrolled_code_gives(name: str, off: Any) -> None:
    model = models(32)[name]
    function, args = functools.partial(model.function, fnp), model.arguments(32)
    both = fxgrad.value_and_grad(function)
    assert_close(fxgrad.jit(both)(*args), both(*args), 2e-3)
    rolled = len(text_of(fxgrad.jit(both), *args))
    assert rolled < 0.6 * len(off(lambda: text_of(fxgrad.jit(both), *args)))


def test_small_programs_and_unjitted_code_are_untouched() -> None:
    short = fxgrad.jit(lambda x, w: network(x, w[:6]))
    assert "stablehlo.while" not in text_of(short, X, W)
    chain = fxgrad.jit(lambda x: functools.reduce(lambda x, _: fnp.sin(x), range(400), x))
    assert "stablehlo.while" not in text_of(chain, X)  # one kernel computes all of them
    program = fxgrad.make_program(network)(X, W)
    assert not any(each.programs for each in program.equations)


def test_loops_inside_are_rolled_too() -> None:
    def steps(x: Any, w: Any) -> Any:
        return fxgrad.lax.fori_loop(0, 3, lambda _, x: x * 0.5 + network(x, w) * 0.01, x)

    text = text_of(fxgrad.jit(steps), X, W)
    assert text.count("stablehlo.while") == 2
    assert_close(fxgrad.jit(steps)(X, W), steps(X, W))


@pytest.mark.slow
def test_shared_executables_of_functions_made_again_are_rolled() -> None:
    def made(scale: float) -> Callable[..., Any]:
        return lambda x, w: network(x * scale, w)

    for scale in (1.0, 0.5, 0.25):
        assert_close(fxgrad.jit(made(scale))(X, W), made(scale)(X, W))
    gc.collect()


def test_donated_arguments_are_donated() -> None:
    function = fxgrad.jit(lambda x, w: x + network(x, w), donate_argnums=0)
    x = jax.numpy.asarray(X)
    wanted = X + network(X, W)
    assert_close(function(x, W), wanted)
    assert x.is_deleted()


def test_prints_keep_their_order(capfd: Any) -> None:
    def function(x: Any, w: Any) -> Any:
        for index in range(len(w)):
            x = block(x, w[index])
            fxgrad.debug.print("{}", index, ordered=True)
        return fnp.sum(x)

    jitted = fxgrad.jit(function)
    assert "stablehlo.while" not in text_of(jitted, X, W)
    assert_close(jitted(X, W), network(X, W))
    jax.effects_barrier()
    assert [*map(int, capfd.readouterr().out.split())] == [*range(24)]


def test_checks_name_the_line_and_pass_in_rolled_code() -> None:
    def function(x: Any, w: Any) -> Any:
        for index in range(len(w)):
            x = block(x, w[index])
            fxgrad.check(fnp.all(x < 10.0), "too large in layer {}", index)
        return fnp.sum(x)

    jitted = fxgrad.jit(function)
    assert_close(jitted(X, W), network(X, W))
    w = W.copy()
    w[17] = np.nan
    with pytest.raises(errors.CheckError, match="too large in layer 17"):
        jitted(X, w)


@pytest.mark.slow
def test_random_keys_split_and_folded_by_copy() -> None:
    def folded(x: Any, key: Any) -> Any:
        for index in range(24):
            x = block(x, fnp.eye(4, dtype="float32")) + random.normal(random.fold_in(key, index), (4,))
        return x

    def split(x: Any, key: Any) -> Any:
        for each in random.split(key, 24):
            x = block(x, fnp.eye(4, dtype="float32")) + random.normal(each, (4,))
        return x

    def chained(x: Any, key: Any) -> Any:
        for _ in range(24):
            key, each = random.split(key)
            x = block(x, fnp.eye(4, dtype="float32")) + random.normal(each, (4,))
        return x

    for function in (folded, split, chained):
        key = random.key(3)
        assert_close(fxgrad.jit(function)(X, key), function(X, key), 1e-4)
        assert_close(fxgrad.roll(function, by="scan")(X, key), function(X, key), 1e-4)
        assert "stablehlo.while" in text_of(fxgrad.jit(function), X, key)


@pytest.mark.slow
def test_custom_rules_and_checkpoints_in_the_block() -> None:
    @fxgrad.custom_vjp
    def scaled(x: Any) -> Any:
        return x * 0.5

    scaled.defvjp(lambda x: (x * 0.5, x), lambda x, ct: (ct * 0.25 + x,))

    def with_rule(x: Any, w: Any) -> Any:
        for index in range(len(w)):
            x = block(scaled(x), w[index])
        return fnp.sum(x)

    def with_checkpoint(x: Any, w: Any) -> Any:
        for index in range(len(w)):
            x = fxgrad.checkpoint(block)(x, w[index])
        return fnp.sum(x)

    for function in (with_rule, with_checkpoint):
        for gradient in (function, fxgrad.grad(function, argnums=(0, 1))):
            assert_close(fxgrad.jit(gradient)(X, W), gradient(X, W))
            assert_close(fxgrad.roll(gradient)(X, W), gradient(X, W))
        assert_close(fxgrad.grad(fxgrad.roll(function), argnums=1)(X, W), fxgrad.grad(function, argnums=1)(X, W))


@pytest.mark.slow
def test_arrays_on_several_devices_are_not_rolled_by_jit_and_right_by_hand() -> None:
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:4])
    xs = jax.device_put(np.tile(X, (8, 1)), NamedSharding(mesh, PartitionSpec("d")))
    jitted = fxgrad.jit(network)
    found = jitted(xs, W)
    assert_close(found, network(np.asarray(xs), W), 1e-4)
    for by in ("scan", "call"):
        assert_close(fxgrad.jit(fxgrad.roll(network, by=by))(xs, W), found, 1e-4)
    placed = fxgrad.jit(network, in_shardings=(NamedSharding(mesh, PartitionSpec("d")), None))
    assert "stablehlo.while" not in text_of(placed, xs, W)
    assert_close(placed(np.asarray(xs), W), found, 1e-4)


def test_nested_jitted_functions_stay_apart_for_xla() -> None:
    inner = fxgrad.jit(lambda x, w: block(block(x, w), w))

    def function(x: Any, *w: Any) -> Any:
        for each in w:
            x = inner(x, each)
            x = x * (1.0 + fnp.size(x))
        return fnp.sum(x)

    text = text_of(fxgrad.jit(function), X, *W[:10])
    assert text.count('inlineable = "false"') == 10
    assert_close(fxgrad.jit(function)(X, *W[:10]), function(X, *W[:10]), 1e-3)
    compiled = fxgrad.jit(function).lower(X, *W[:10]).compile().as_text()
    assert compiled.count(" call(") >= 10


def test_exported_code_and_code_for_jax_have_plain_calls() -> None:
    """They may be compiled by other backends, which are not known to compile calls."""
    inner = fxgrad.jit(lambda x, w: block(block(x, w), w))

    def function(x: Any, *w: Any) -> Any:
        for each in w:
            x = inner(x, each)
        return fnp.sum(x)

    exported = fxgrad.export(function, platforms=("cpu", "cuda"))(X, *W[:10])
    assert "inlineable" not in exported.stablehlo
    assert "inlineable" not in text_of(jax.jit(fxgrad.to_jax(function)), X, *W[:10])
    assert "inlineable" in text_of(fxgrad.jit(function), X, *W[:10])


def test_errors_name_the_line_inside_a_block() -> None:
    def function(x: Any, w: Any) -> Any:
        for index in range(5):
            x = fnp.tanh(x @ w[index])
        return fnp.reshape(x, (3, 3))

    with pytest.raises(errors.ShapeError) as caught:
        fxgrad.roll(function)(X, W)
    assert f"at test_roll.py:{function.__code__.co_firstlineno + 3}" in str(caught.value)


def test_numbers_that_differ_by_copy_are_one_constant_of_compiled_code() -> None:
    """XLA takes long to join hundreds of numbers; the loop back takes the array of the loop forward."""
    def function(x: Any) -> Any:
        for index in range(40):
            x = fnp.tanh(x * (1.0 + index / 7)) + fnp.sin(x) * (0.5 - index / 9) + fnp.cos(x) * fnp.exp(-x * x)
            x = x / (1.0 + x * x)
        return fnp.sum(x * x)

    gradient = fxgrad.value_and_grad(function)
    text = text_of(fxgrad.jit(gradient), X)
    assert text.count("stablehlo.while") == 2
    assert "stablehlo.concatenate" not in text
    assert_close(fxgrad.jit(gradient)(X), gradient(X), 1e-3)
