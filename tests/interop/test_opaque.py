"""Operations of jax's without a counterpart: one equation, with jax's rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

import fxgrad
from fxgrad.interop import importing
from tests.support.oracle import assert_close, check, draw, primitives

X = draw(3)


def primitive(name: str, function: Any) -> Any:
    """A primitive of jax's that nobody knows, with a value and no derivative."""
    made: Any = Primitive(name)
    made.def_impl(jax.jit(function))
    made.def_abstract_eval(lambda *avals: jax.core.ShapedArray(avals[0].shape, avals[0].dtype))
    mlir.register_lowering(made, mlir.lower_fun(function, multiple_results=False))
    return made


wave_p = primitive("wave", lambda x, y: jnp.sin(x) * y)
ad.defjvp(wave_p, lambda t, x, y: t * jnp.cos(x) * y, lambda t, x, y: turned_p.bind(t, x))
batching.defbroadcasting(wave_p)
turned_p = primitive("turned", lambda t, x: t * jnp.sin(x))
ad.defbilinear(turned_p, lambda c, t, x: turned_p.bind(c, x), lambda c, t, x: c * t.aval.dtype.type(0))
ad.primitive_jvps[turned_p] = lambda primals, tangents: (
    turned_p.bind(*primals), turned_p.bind(jnp.asarray(ad.instantiate_zeros(tangents[0])), primals[1])
    + primals[0] * jnp.cos(primals[1]) * ad.instantiate_zeros(tangents[1]))
batching.defbroadcasting(turned_p)
bare_p = primitive("bare", jnp.sin)


@pytest.fixture
def without_sin() -> Iterator[None]:
    """sin and its derivative as operations that fxgrad does not have."""
    hidden = {name: importing.rules.pop(name) for name in ("sin", "cos", "scan", "dot_general")}
    yield
    importing.rules.update(hidden)


def test_primitive_with_rules() -> None:
    check(lambda x, y: wave_p.bind(x, y) * y, X, X * 2)
    assert primitives(lambda x, y: wave_p.bind(x, y) * y, X, X) == ["jax_call", "mul"]


def test_operations_that_are_defined_by_simpler_ones_keep_their_own_derivatives() -> None:
    defined = getattr(pytest.importorskip("jax.experimental.hijax"), "VJPHiPrimitive", None)
    if defined is None:
        pytest.skip("this version of jax has them by another name")

    class Tripled(defined):  # type: ignore[misc, valid-type]
        """The sine, with three times its derivative."""

        def __init__(self, aval: Any) -> None:
            self.in_avals, self.out_aval, self.params = (aval,), aval, {}
            super().__init__()

        def expand(self, x: Any) -> Any:
            return jnp.sin(x)

        def jvp(self, primals: Any, tangents: Any) -> Any:
            return self(*primals), 3.0 * jnp.cos(primals[0]) * tangents[0]

    def sin(x: Any) -> Any:
        return Tripled(jax.typeof(x))(x)

    ours = fxgrad.jvp(fxgrad.from_jax(sin), (X,), (X * 2,))
    np.testing.assert_allclose(ours, [np.sin(X), 3.0 * np.cos(X) * X * 2], rtol=1e-6)


@pytest.mark.slow
def test_known_operations_by_jaxs_rules(without_sin: None) -> None:
    def function(x: Any, y: Any) -> Any:
        total, steps = jax.lax.scan(lambda c, x: (c * jnp.sin(x), c * x), 1.0, x)
        return jnp.dot(jnp.sin(x), y) * total + steps

    assert primitives(function, X, X * 2) == ["jax_call", "jax_call", "jax_call", "mul", "add"]
    check(function, X, X * 2)


@pytest.mark.slow
def test_integers_and_several_outputs(without_sin: None) -> None:
    def function(n: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, x: ((c[0] + n, c[1] * x), (c[0], c[1])), (jnp.int32(0), 1.0), x)

    check(function, np.int32(2), X)


def test_it_prints_and_says_what_it_is() -> None:
    program = fxgrad.make_program(fxgrad.from_jax(lambda x: wave_p.bind(x, x)))(X)
    assert "jax_call(x, x, call=<wave>)" in str(program).replace(": f64[3]", "")
    equation, = program.equations
    assert fxgrad.cost_analysis(program).flops == 3
    assert equation.params["call"] == fxgrad.make_program(
        fxgrad.from_jax(lambda x: wave_p.bind(x, x) + 1))(X).equations[0].params["call"]


def test_equal_calls_are_one() -> None:
    assert primitives(lambda x: wave_p.bind(x, x) + wave_p.bind(x, x), X) == ["jax_call", "add"]
    imported = fxgrad.from_jax(lambda x: wave_p.bind(x, x))

    def under(x: Any, *precisions: str) -> Any:
        with jax.default_matmul_precision(precisions[0]):
            return imported(x) + (under(x, *precisions[1:]) if precisions[1:] else 0)

    for precisions, count in ((("highest", "highest"), 1), (("highest", "default"), 2)):
        program = fxgrad.make_program(lambda x, precisions=precisions: under(x, *precisions))(X)
        assert [str(equation.primitive) for equation in program.equations].count("jax_call") == count


def test_what_jax_has_not() -> None:
    function = fxgrad.from_jax(bare_p.bind)
    assert_close(function(X), np.sin(X), "value")
    with pytest.raises(fxgrad.errors.UnsupportedError, match=(
            r"bare is computed by jax, which has no rule for what is asked of it \(linearize\): "
            "Differentiation rule for 'bare' not implemented")):
        fxgrad.grad(lambda x: function(x).sum())(X)
    with pytest.raises(fxgrad.errors.UnsupportedError, match=r"\(batch\): Batching rule for 'bare' not implemented"):
        fxgrad.vmap(function)(X)


def test_effects_stay_as_often_as_written() -> None:
    from jax.experimental import io_callback

    seen: list[float] = []
    rule = importing.rules.pop("io_callback")
    try:
        function = fxgrad.from_jax(lambda x: (
            io_callback(lambda x: seen.append(float(x)), None, x, ordered=False), x * 2)[1])
        program = fxgrad.make_program(function)(np.float32(1.0))
    finally:
        importing.rules["io_callback"] = rule
    assert [equation.primitive.name for equation in program.equations] == ["jax_effect", "mul"]
    for expected in ([1.0], [1.0, 1.0]):
        assert float(program(np.float32(1.0))) == 2.0
        jax.effects_barrier()
        assert seen == expected


def any_of_batch(name: str, also: bool) -> Any:
    """A primitive that asks whether any entry of any batch is true: its batch rule has one answer for all entries.

    With `also` its second output is a batch as its input is.
    """
    made: Any = Primitive(name)
    made.multiple_results = True
    made.def_impl(jax.jit(lambda x: [x.any(), ~x][:1 + also]))
    made.def_abstract_eval(lambda aval: [jax.core.ShapedArray((), aval.dtype), aval][:1 + also])
    mlir.register_lowering(made, mlir.lower_fun(lambda x: [x.any(), ~x][:1 + also], multiple_results=True))
    batching.primitive_batchers[made] = lambda values, axes: (made.bind(*values), [None, *axes][:1 + also])
    return made


@pytest.mark.parametrize("also", [False, True])
def test_what_jaxs_batch_rule_has_once_stays_once(also: bool) -> None:
    any_p = any_of_batch(f"any_of_batch_{also}", also)
    ran: list[bool] = []

    def remember(x: Any) -> Any:
        ran.append(True)
        return x

    def function(x: Any) -> Any:
        found, *others = any_p.bind(x > 5)
        factor = jnp.where(others[0], 2.0, 3.0) if also else 2.0
        return factor * jax.lax.cond(
            found, lambda x: jax.pure_callback(remember, x, x, vmap_method="sequential"), lambda x: x, x)

    imported = fxgrad.from_jax(function)
    x = np.float32([1, 2, 3])
    for mapped, given in ((fxgrad.vmap(imported), x), (fxgrad.jit(fxgrad.vmap(imported)), x),
                          (fxgrad.vmap(fxgrad.vmap(imported)), x[None])):
        np.testing.assert_allclose(mapped(given), jax.vmap(function)(x).reshape(given.shape), rtol=1e-6)
    assert not ran  # a branch that no entry takes, taken for none
    program = fxgrad.make_program(fxgrad.vmap(imported))(x)
    assert [aval.shape for equation in program.equations if str(equation.primitive) == "jax_call"
            for aval in (var.aval for var in equation.outputs)] == [(), (3,)][:1 + also]
    np.testing.assert_allclose(fxgrad.vmap(imported)(x + 4), jax.vmap(function)(x + 4), rtol=1e-6)
    assert ran


@pytest.mark.slow
def test_checks_of_equinox_raise_where_a_condition_holds_alone() -> None:
    equinox = pytest.importorskip("equinox")
    checked = fxgrad.from_jax(lambda x: 2 * equinox.error_if(x, x > 5, "too large"))
    x = np.float32([1, 2, 3])
    for call in (fxgrad.vmap(checked), fxgrad.jit(fxgrad.vmap(checked))):
        np.testing.assert_allclose(call(x), 2 * x)
    np.testing.assert_allclose(fxgrad.vmap(fxgrad.grad(checked))(x), [2, 2, 2])
    with pytest.raises(Exception, match="too large"):
        fxgrad.vmap(checked)(x + 3)


@pytest.mark.long
def test_solvers_of_diffrax_are_batched() -> None:
    diffrax = pytest.importorskip("diffrax")

    def solve(y: Any) -> Any:
        return diffrax.diffeqsolve(diffrax.ODETerm(lambda t, y, args: -y), diffrax.Tsit5(), 0.0, 1.0, 0.1, y).ys[0]
    y = np.float32([1, 2, 3])
    imported = fxgrad.from_jax(solve)
    np.testing.assert_allclose(fxgrad.vmap(imported)(y), jax.vmap(solve)(y), rtol=1e-6)
    np.testing.assert_allclose(fxgrad.vmap(fxgrad.grad(imported))(y), jax.vmap(jax.grad(solve))(y), rtol=1e-5)
