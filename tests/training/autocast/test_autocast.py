"""`autocast`: the casts that were meant and no others, against the same casts written by hand in jax."""

from __future__ import annotations

import io
import re
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from rich.console import Console

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core.program import inner_first
from fxgrad.engine.rooms import registry
from fxgrad.errors import ArgumentError
from fxgrad.training.autocast.classes import boundaries, kinds

BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
RNG = np.random.default_rng(0)
W, X = RNG.normal(size=(4, 4)).astype("f"), RNG.normal(size=(4,)).astype("f")


def casts(program: Any, dtype: Any = BF16) -> int:
    """How many equations cast to a dtype, at any depth."""
    return sum(equation.primitive.name == "convert_element_type" and equation.params["dtype"] == dtype
               for each in inner_first(program) for equation in each.equations)


def mlp(params: Any, x: Any, y: Any) -> Any:
    h = np.tanh(x @ params["w1"] + params["b1"])
    return np.mean((h @ params["w2"] - y) ** 2)


def by_hand(params: Any, x: Any, y: Any) -> Any:
    half = {name: value.astype(jnp.bfloat16) for name, value in params.items()}
    h = jnp.tanh(x.astype(jnp.bfloat16) @ half["w1"] + half["b1"])
    return jnp.mean(((h @ half["w2"]).astype(jnp.float32) - y) ** 2)


def mlp_arguments() -> Any:
    rng = np.random.default_rng(1)
    params = {"w1": rng.normal(size=(5, 8)), "b1": rng.normal(size=8), "w2": rng.normal(size=(8, 3))}
    return ({name: value.astype("f") for name, value in params.items()}, rng.normal(size=(6, 5)).astype("f"),
            rng.normal(size=(6, 3)).astype("f"))


def test_every_primitive_has_a_class() -> None:
    entered = kinds.entered().keys() | boundaries.entered().keys()
    assert {name for name, primitive in registry.items() if primitive not in entered} == set()
    assert {primitive for primitive in registry.values() if primitive.regions is not None} == {*boundaries.entered()}


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_is_what_one_casts_by_hand_in_jax(compiled: bool) -> None:
    arguments = mlp_arguments()
    cast = fxgrad.value_and_grad(fxgrad.autocast(mlp))
    value, grads = (fxgrad.jit(cast) if compiled else cast)(*arguments)
    expected, expected_grads = jax.jit(jax.value_and_grad(by_hand))(*jax.tree.map(jnp.asarray, arguments))
    np.testing.assert_allclose(value, expected, rtol=2e-3)
    for name, grad in grads.items():
        assert grad.dtype == F32
        np.testing.assert_allclose(grad, expected_grads[name], rtol=0.02, atol=0.01)  # a unit of bfloat16 is 0.004
    exact = fxgrad.grad(mlp)(*arguments)
    assert 1e-4 < max(np.abs(grads[name] - exact[name]).max() for name in exact) < 0.05


def test_products_are_jaxs_to_the_bit() -> None:
    x, w = RNG.normal(size=(7, 300)).astype("f"), RNG.normal(size=(300, 5)).astype("f")
    for dtype, policy in ((BF16, fxgrad.autocast_policies.bfloat16), (np.float16, fxgrad.autocast_policies.float16)):
        expected = (jnp.asarray(x).astype(dtype) @ jnp.asarray(w).astype(dtype)).astype(np.float32)
        assert np.array_equal(fxgrad.autocast(np.matmul, policy)(x, w), expected)


def test_each_value_is_cast_once_and_sums_are_full() -> None:
    params, x, y = mlp_arguments()
    program = fxgrad.make_program(fxgrad.autocast(mlp))(params, x, y)
    assert casts(program) == 4  # x, w1, b1 and w2; tanh follows the product
    assert casts(program, F32) == 1  # the difference from y, which is not in half precision
    assert {equation.inputs[0].aval.dtype for each in inner_first(program) for equation in each.equations
            if equation.primitive.name == "reduce_sum"} == {F32}
    twice = fxgrad.make_program(fxgrad.autocast(lambda x, w: (x @ w) @ w))(W, W)
    assert casts(twice) == 2
    gradient = fxgrad.make_program(fxgrad.autocast(fxgrad.grad(mlp)))(params, x, y)
    weights = [equation.inputs[0] for equation in gradient.equations
               if equation.primitive.name == "convert_element_type" and equation.params["dtype"] == BF16]
    assert len(weights) == len(set(weights))
    source = next(equation.source for equation in program.equations if equation.params.get("dtype") == BF16)
    assert source is not None
    assert source.line == mlp.__code__.co_firstlineno + 1


def test_weights_of_a_loop_are_cast_outside_and_carries_stay() -> None:
    def loop(w: Any, x: Any) -> Any:
        return fxgrad.lax.scan(lambda c, _: (np.tanh(c @ w), c @ w), x, None, 3)

    program = fxgrad.make_program(fxgrad.autocast(loop))(W, X)
    assert program.equations[0].primitive.name == "convert_element_type"
    scan, = (equation for equation in program.equations if equation.regions)
    body, = scan.programs
    assert [aval.dtype for aval in body.in_avals] == [BF16, F32]
    assert [aval.dtype for aval in body.out_avals] == [F32, BF16]
    assert [value.dtype for value in fxgrad.autocast(loop)(W, X)] == [F32, F32]


def test_what_is_not_real_stays_what_it_is() -> None:
    def f(x: Any, key: Any) -> Any:
        product = x @ W
        return (product, product > 0, fnp.argmax(product), product * 1j, product.astype(np.int32),
                fxgrad.random.normal(key, (2,), np.float32), {"half": fnp.matmul(x.astype(BF16), W.astype(BF16))})

    key = fxgrad.random.key(0)
    plain, cast = f(X, key), fxgrad.autocast(f)(X, key)
    types = [[leaf.dtype for leaf in fxgrad.tree.leaves(result)] for result in (plain, cast)]
    assert types[0] == types[1]
    assert np.array_equal(plain[5], cast[5])
    assert fxgrad.autocast(np.matmul)(W.astype(float), W.astype(float)).dtype == np.float64
    assert np.array_equal(fxgrad.autocast(np.matmul)(W * 1j, W * 1j), np.matmul(W * 1j, W * 1j))


def test_results_in_another_dtype() -> None:
    program = fxgrad.make_program(fxgrad.autocast(np.matmul, output_dtype=BF16))(W, W)
    assert program.out_avals[0].dtype == BF16
    assert casts(program, F32) == 0
    assert fxgrad.autocast(np.matmul, np.float16, output_dtype=np.float16)(W, W).dtype == np.float16
    for dtype in (BF16, np.float16, np.float32, np.float64):
        results = fxgrad.autocast(lambda w: (w, w @ w, np.sum(w), w.astype(float), 1.5), output_dtype=dtype)(W)
        assert [np.asarray(result).dtype for result in results] == [dtype] * 5


def test_a_policy_is_read_and_changed() -> None:
    policy = fxgrad.autocast_policies.bfloat16
    assert policy.half == ("conv_general_dilated", "dot_general", "strong_dot_general")
    assert "exp" in policy.full
    assert "add" in policy.follow
    summed = policy.with_(half=[registry["reduce_sum"], "exp"], full=["dot_general", np.tanh])
    assert [summed.kind(name) for name in ("reduce_sum", "exp", "dot_general", "tanh")] == [
        "half", "half", "full", "full"]
    assert casts(fxgrad.make_program(fxgrad.autocast(np.matmul, summed))(W, W)) == 0
    assert casts(fxgrad.make_program(fxgrad.autocast(np.exp, summed))(W)) == 1
    assert repr(summed) == "<autocast to bfloat16, dot_general: full, exp: half, reduce_sum: half, tanh: full>"
    assert "conv_general_dilated, dot_general" in str(policy)
    assert policy.with_(dtype=np.float16) == fxgrad.autocast_policies.float16


def test_the_table_has_blocks_under_their_kind() -> None:
    policy = fxgrad.autocast_policies.bfloat16.with_(full=["@head"], half=["@tail", "@neck"])
    written = io.StringIO()
    Console(width=400, file=written).print(policy.table())
    rows = [re.findall(r"[\w ,]*\w", line) for line in written.getvalue().splitlines() if "in blocks" in line]
    assert [[each.strip() for each in row] for row in rows] == [["half, in blocks", "neck, tail"],
                                                               ["full, in blocks", "head"]]


def test_blocks_have_their_own_precision() -> None:
    def f(x: Any) -> Any:
        with fxgrad.named_scope("head"):
            h = x @ x
        return fxgrad.nn.softmax(h @ x)

    policy = fxgrad.autocast_policies.bfloat16
    assert casts(fxgrad.make_program(fxgrad.autocast(f, policy))(W)) == 1
    program = fxgrad.make_program(fxgrad.autocast(f, policy.with_(full=["@head"])))(W)
    products = [equation.inputs[0].aval.dtype for equation in program.equations
                if equation.primitive.name == "dot_general"]
    assert products == [F32, BF16]
    halved = fxgrad.make_program(fxgrad.autocast(f, policy.with_(half=[fxgrad.nn.softmax])))(W)
    assert {equation.outputs[0].aval.dtype for each in inner_first(halved) for equation in each.equations
            if equation.primitive.name == "exp"} == {BF16}


@fxgrad.custom_vjp
def with_vjp(w: Any, x: Any) -> Any:
    return np.tanh(x @ w)


with_vjp.defvjp(lambda w, x: (with_vjp(w, x), (w, x)),
                lambda saved, ct: (3 * fnp.outer(saved[1], ct @ saved[0]), saved[0] @ ct))


@fxgrad.custom_jvp
def with_jvp(w: Any, x: Any) -> Any:
    return np.tanh(x @ w)


@with_jvp.defjvp
def with_jvp_rule(primals: Any, tangents: Any) -> Any:
    w, x = primals
    return with_jvp(w, x), 3 * (tangents[1] @ w + x @ tangents[0])


def in_scan(w: Any, x: Any) -> Any:
    return fxgrad.lax.scan(lambda c, _: (np.tanh(c @ w), c @ w), x, None, 3)[1]


def in_cond(w: Any, x: Any) -> Any:
    return fxgrad.lax.cond(x[0] > 0, lambda w: x @ w, lambda w: np.sin(x @ w), w)


def in_while(w: Any, x: Any) -> Any:
    return fxgrad.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, np.tanh(s[1] @ w)), (0, x))[1]


def in_python(w: Any, x: Any) -> Any:
    h = x @ w
    return h * 2 if h[0] > 0 else np.sin(h) @ w


def in_checkpoint(w: Any, x: Any) -> Any:
    return fxgrad.checkpoint(lambda w, x: np.sin(x @ w) @ w)(w, x)


def in_jit(w: Any, x: Any) -> Any:
    return fxgrad.jit(lambda w, x: np.sin(x @ w) @ w)(w, x)


def with_solve(w: Any, x: Any) -> Any:
    return np.linalg.solve(w + 5 * np.eye(4, dtype="f"), x) @ w


BASES = [in_scan, in_cond, in_while, in_checkpoint, in_jit, with_solve, with_vjp, with_jvp, in_python]


@pytest.mark.parametrize("f", [*(pytest.param(f, marks=pytest.mark.slow) for f in BASES[:-2]), *BASES[-2:]],
                         ids=lambda f: getattr(f, "__name__", "custom"))
def test_it_nests_with_gradients_both_ways(f: Any) -> None:
    def loss(w: Any, x: Any) -> Any:
        return np.sum(f(w, x))

    exact = fxgrad.grad(loss)(W, X)
    bound = 0.02 * np.abs(exact).max()
    inside, outside = fxgrad.autocast(fxgrad.grad(loss)), fxgrad.grad(fxgrad.autocast(loss))
    for gradient in (inside, outside, fxgrad.autocast(outside), fxgrad.grad(fxgrad.checkpoint(fxgrad.autocast(loss)))):
        found = gradient(W, X)
        assert found.dtype == F32
        assert 0 < np.abs(found - exact).max() < bound or f is with_vjp


@pytest.mark.slow
@pytest.mark.parametrize("f", BASES[:-1], ids=lambda f: getattr(f, "__name__", "custom"))
def test_it_nests_with_all_others(f: Any) -> None:
    batch = np.stack([X, 2 * X])
    expected = np.stack([fxgrad.autocast(f)(W, x) for x in batch])
    for nested in (fxgrad.vmap(fxgrad.autocast(f), (None, 0)), fxgrad.autocast(fxgrad.vmap(f, (None, 0))),
                   fxgrad.jit(fxgrad.vmap(fxgrad.autocast(f), (None, 0))),
                   fxgrad.autocast(fxgrad.jit(fxgrad.vmap(f, (None, 0))))):
        np.testing.assert_allclose(nested(W, batch), expected, rtol=0.02, atol=0.02)
    if f is not with_vjp:
        _, tangent = fxgrad.jvp(fxgrad.autocast(f), (W, X), (W, X))
        np.testing.assert_allclose(tangent, fxgrad.jvp(f, (W, X), (W, X))[1], rtol=0.03, atol=0.05)
        _, tangent = fxgrad.autocast(lambda w, x: fxgrad.jvp(f, (w, x), (w, x)))(W, X)
        np.testing.assert_allclose(tangent, fxgrad.jvp(f, (W, X), (W, X))[1], rtol=0.03, atol=0.05)


def test_rules_of_custom_functions_are_kept_and_cast() -> None:
    for f in (with_vjp, with_jvp):
        plain = fxgrad.grad(lambda w, f=f: np.sum(f(w, X)))(W)
        found = fxgrad.grad(fxgrad.autocast(lambda w, f=f: np.sum(f(w, X))))
        np.testing.assert_allclose(found(W), plain, rtol=0.05, atol=0.05)  # three times too large, as the rule has it
        program = fxgrad.make_program(found)(W)
        assert {equation.inputs[0].aval.dtype for equation in program.equations
                if equation.primitive.name == "dot_general"} == {BF16}


def test_a_rule_that_calls_a_compiled_function_keeps_values_and_tangents_apart() -> None:
    @fxgrad.custom_jvp
    def f(w: Any) -> Any:
        return X @ w

    both = fxgrad.jit(lambda w, tangent: (X @ w, 3 * (X @ tangent)))
    f.defjvp(lambda primals, tangents: both(*primals, *tangents))
    for g in (f, fxgrad.jit(f), fxgrad.checkpoint(f)):
        found = fxgrad.grad(lambda w, g=g: np.sum(fxgrad.autocast(g)(w)))(W)
        np.testing.assert_allclose(found, np.tile(3 * X[:, None], (1, 4)), rtol=0.03, atol=0.03)


def test_the_rule_of_a_custom_batch_is_kept() -> None:
    @fxgrad.custom_batching.custom_vmap
    def f(x: Any) -> Any:
        return x @ W

    @f.def_vmap
    def rule(size: int, batched: Any, x: Any) -> Any:
        return 2 * (x @ W), True

    batch = np.stack([X, 2 * X])
    np.testing.assert_allclose(fxgrad.vmap(fxgrad.autocast(f))(batch), 2 * (batch @ W), rtol=0.02, atol=0.02)


@pytest.mark.slow
def test_it_goes_into_shard_map_and_collectives() -> None:
    mesh, spec = fxgrad.make_mesh((2,), ("i",)), fxgrad.P
    rows = RNG.normal(size=(3, 4)).astype("f")

    def f(w: Any, x: Any) -> Any:
        return fxgrad.shard_map(lambda w, x: fxgrad.lax.psum(x @ w, "i"), mesh=mesh,
                                in_specs=(spec("i", None), spec(None, "i")), out_specs=spec())(w, x)

    assert casts(fxgrad.make_program(fxgrad.autocast(f))(W, rows)) == 2
    for found in (fxgrad.autocast(f)(W, rows), fxgrad.jit(fxgrad.autocast(f))(W, rows)):
        np.testing.assert_allclose(found, rows @ W, rtol=0.02, atol=0.02)
    found = fxgrad.grad(lambda w: np.sum(fxgrad.autocast(f)(w, rows)))(W)
    np.testing.assert_allclose(found, np.tile(rows.sum(0)[:, None], (1, 4)), rtol=0.02, atol=0.02)
    mapped = fxgrad.vmap(fxgrad.autocast(lambda x: fxgrad.lax.psum(x @ W, "b")), axis_name="b")(rows)
    np.testing.assert_allclose(mapped, np.tile((rows @ W).sum(0), (3, 1)), rtol=0.02, atol=0.02)


def test_sums_of_half_precision_do_not_stand_still() -> None:
    many = np.full((10_000, 2), 0.001, BF16)
    assert np.allclose(fxgrad.lax.reduce_sum(many, (0,)).astype("f"), 10.0, rtol=0.01)
    gradient = fxgrad.vjp(lambda b: many + b, np.ones(2, BF16))[1](many)[0]
    assert np.allclose(gradient.astype("f"), 10.0, rtol=0.01)  # of a value that was repeated


def test_what_is_no_policy_is_refused() -> None:
    for call, message in (
            (lambda: fxgrad.autocast(lambda w, x: x)(1.0, "a"), ("autocast: x is a str, where an array or a number is "
             "needed. Pass it by closure (functools.partial), or leave it out of the arguments that are transformed")),
            (lambda: fxgrad.autocast(np.sin, np.float32), ("autocast: float32 is no half precision. Take "
             "fxgrad.dtypes.bfloat16 or np.float16")),
            (lambda: fxgrad.autocast(np.sin, "nonsense"), ("autocast: the policy is 'nonsense', where one of "
             "fxgrad.autocast_policies is needed, or a dtype of half precision: "
             "fxgrad.autocast(f, fxgrad.autocast_policies.bfloat16)")),
            (lambda: fxgrad.autocast(np.sin, output_dtype=int), ("autocast: output_dtype is int64, where a real "
             "floating-point dtype is needed, such as np.float32")),
            (lambda: fxgrad.autocast_policies.bfloat16.with_(half="exp"), ("autocast policy: half='exp' is one name, "
             "where several are needed: half=['exp']")),
            (lambda: fxgrad.autocast_policies.bfloat16.with_(half=["exq"]), ("autocast policy: there is no primitive "
             "'exq'. Did you mean eq, exp? A block is written '@exq'")),
            (lambda: fxgrad.autocast_policies.bfloat16.kind("head"), ("autocast policy: head is no primitive of "
             "fxgrad; blocks are in policy.blocks"))):
        with pytest.raises(ArgumentError, match=re.escape(message)):
            call()
