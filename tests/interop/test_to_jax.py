"""`to_jax`: jax runs, batches and differentiates functions of fxgrad's, by fxgrad's rules and to every order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.executors.xla import as_jax, emit
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from fxgrad.engine.transforms.forward import has_tangent, push_forward
from fxgrad.interop.emission import alike
from fxgrad.interop.nested import equation_count
from tests.samples import all_samples
from tests.support.oracle import assert_close, draw

pytestmark = pytest.mark.slow

X = draw(3)
ROWS = draw(2, 3)
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def wide() -> Any:
    """64-bit numbers, as jax keeps them only if it is told to."""
    with jax.enable_x64(True):
        yield


@fxgrad.custom_jvp
def wrong_slope(x: Any) -> Any:
    return fnp.sin(x)


wrong_slope.defjvp(lambda primals, tangents: (wrong_slope(primals[0]), 3 * primals[0] * tangents[0]))


@jax.custom_jvp
def wrong_slope_of_jax(x: Any) -> Any:
    return jnp.sin(x)


wrong_slope_of_jax.defjvp(lambda primals, tangents: (wrong_slope_of_jax(primals[0]), 3 * primals[0] * tangents[0]))


@fxgrad.custom_vjp
def clipped(x: Any) -> Any:
    return x


clipped.defvjp(lambda x: (x, None), lambda _, c: (fnp.clip(c, -1.0, 1.0),))


@fxgrad.custom_vjp
def wrong_pull(x: Any) -> Any:
    return fnp.sin(x)


wrong_pull.defvjp(lambda x: (wrong_pull(x), x), lambda x, c: (c * x * 3,))


def kinked(sums: Any) -> Function:
    return lambda x: sums.sum(sums.maximum(sums.sin(x) * x, 0.3) ** 2 + sums.exp(-sums.abs(x)))


def looped(control: Any, sums: Any) -> Function:
    return lambda x: sums.sum(control.scan(lambda c, y: (c * sums.sin(y) + y, c * c), x[0], x)[1])


def powers(x: Any) -> Any:
    """A loop of unknown length, through which jax has no reverse mode."""
    return fnp.sum(fxgrad.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, fnp.sin(c[1]) * x), (0, x))[1])


def powers_of_jax(x: Any) -> Any:
    return jnp.sum(jnp.sin(jnp.sin(jnp.sin(x) * x) * x) * x)


FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "smooth": (lambda x: fnp.sum(fnp.sin(x) * x), lambda x: jnp.sum(jnp.sin(x) * x)),
    "kinks": (kinked(fnp), kinked(jnp)),
    "scan": (looped(fxgrad.lax, fnp), looped(lax, jnp)),
    "while": (powers, powers_of_jax),
    "custom_jvp": (lambda x: fnp.sum(wrong_slope(x) ** 2), lambda x: jnp.sum(wrong_slope_of_jax(x) ** 2)),
    "cut off": (lambda x: fnp.sum(fxgrad.stop_gradient(x) * x), lambda x: jnp.sum(lax.stop_gradient(x) * x)),
    "jitted": (lambda x: fxgrad.jit(kinked(fnp))(x), kinked(jnp)),
    "imported": (fxgrad.from_jax(kinked(jnp)), kinked(jnp)),
}
TRANSFORMED: dict[str, Function] = {
    "value": lambda f, x, rows: f(x),
    "grad": lambda f, x, rows: jax.grad(f)(x),
    "jit": lambda f, x, rows: jax.jit(jax.value_and_grad(f))(x),
    "jvp": lambda f, x, rows: jax.jvp(f, (x,), (x * 2,)),
    "linearize": lambda f, x, rows: jax.linearize(f, X)[1](x * 2),
    "hessian": lambda f, x, rows: jax.hessian(f)(x),
    "reverse over reverse": lambda f, x, rows: jax.jacrev(jax.jacrev(f))(x),
    "reverse over forward": lambda f, x, rows: jax.jacrev(jax.jacfwd(f))(x),
    "vmap": lambda f, x, rows: jax.vmap(f)(rows),
    "vmap of grad": lambda f, x, rows: jax.vmap(jax.grad(f))(rows),
    "grad of vmap": lambda f, x, rows: jax.grad(lambda rows: jax.vmap(f)(rows).sum())(rows),
    "jit of vmap of hessian": lambda f, x, rows: jax.jit(jax.vmap(jax.hessian(f)))(rows),
    "checkpoint": lambda f, x, rows: jax.grad(jax.checkpoint(f))(x),
    "in a scan": lambda f, x, rows: jax.grad(lambda z: lax.scan(lambda c, y: (c + f(y * z), None), 0.0, z)[0])(x),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] * (name in ("imported", "jitted", "kinks", "scan", "while")))
    for name in FUNCTIONS])
def test_transformed_by_jax(name: str) -> None:
    ours, theirs = FUNCTIONS[name]
    exported = fxgrad.to_jax(ours)
    points = jnp.asarray(X), jnp.asarray(ROWS)
    wanted = jax.jit(lambda: {each: transformed(theirs, *points) for each, transformed in TRANSFORMED.items()})()
    found = jax.jit(lambda: {each: transformed(exported, *points) for each, transformed in TRANSFORMED.items()})()
    for each in TRANSFORMED:
        assert_close(found[each], wanted[each], each)
    assert_close(jax.grad(exported)(X), wanted["grad"], "grad without jit")


def test_third_order() -> None:
    assert_close(jax.jit(jax.jacrev(jax.hessian(fxgrad.to_jax(kinked(fnp)))))(X),
                 jax.jit(jax.jacrev(jax.hessian(kinked(jnp))))(X), "third")


def test_custom_vjp() -> None:
    exported = fxgrad.to_jax(wrong_pull)
    assert_close(jax.jit(jax.vmap(jax.grad(lambda x: exported(x).sum())))(ROWS), 3 * ROWS, "grad")
    assert_close(jax.grad(lambda x: jax.grad(lambda x: (exported(x) ** 2).sum())(x).sum())(X),
                 6 * (3 * X * X + np.sin(X)), "second")


def test_backward_pass_that_is_not_linear() -> None:
    """There is no forward mode to derive from it, and none is asked for."""
    slope = jax.grad(lambda x: fxgrad.to_jax(lambda x: fnp.sum(clipped(x) ** 2))(x))
    assert_close(jax.jit(slope)(X), np.clip(2 * X, -1, 1), "grad")
    assert_close(jax.vmap(slope)(jnp.asarray(ROWS)), np.clip(2 * ROWS, -1, 1), "vmap")
    assert_close(jax.jit(jax.jacrev(slope))(X), np.diag(np.where(np.abs(2 * X) < 1, 2.0, 0.0)), "second")


def test_shard_map() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    exported = fxgrad.to_jax(lambda x: fnp.abs(x) * fnp.sin(x))
    sharded = jax.shard_map(exported, mesh=mesh, in_specs=spec, out_specs=spec)
    wanted = np.sign(X) * np.sin(X) + np.abs(X) * np.cos(X)
    assert_close(jax.jit(jax.grad(lambda x: sharded(x).sum()))(X), wanted, "grad")


def test_arguments() -> None:
    """Containers, keyword arguments, integers, and leaves that are no arrays."""
    def f(params: Any, n: Any, mode: str, *, scale: float) -> Any:
        assert mode == "plain"
        return {"y": fnp.maximum(params["x"] * n, 0.1) * scale, "n": n + 1}

    exported = fxgrad.to_jax(f)
    result = jax.jit(lambda x: exported({"x": x}, 3, "plain", scale=2.0))(X)
    assert_close(result["y"], np.maximum(X * 3, 0.1) * 2, "value")
    assert int(result["n"]) == 4
    gradients = jax.grad(lambda params, n: exported(params, n, "plain", scale=2.0)["y"].sum(), (0, 1), allow_int=True)(
        {"x": X}, 3)
    assert_close(gradients[0]["x"], np.where(X * 3 > 0.1, 6.0, 0.0), "grad")
    assert gradients[1].dtype == jax.dtypes.float0


def test_closed_over_tracers_of_jax() -> None:
    def outer(x: Any, y: Any) -> Any:
        return fxgrad.to_jax(lambda x: fnp.sum(fnp.maximum(x * y, 0.1)))(x)

    wanted = np.where(X * X * 2 > 0.1, 2 * X, 0.0), np.where(X * X * 2 > 0.1, X, 0.0)
    assert_close(jax.grad(outer, (0, 1))(X, X * 2), wanted, "grad")
    assert_close(jax.jit(jax.grad(outer, (0, 1)))(X, X * 2), wanted, "jit")


def test_random_keys() -> None:
    def noisy(key: Any, x: Any) -> Any:
        return fnp.sum(fxgrad.random.normal(key, (3,), np.float64) * fnp.abs(x))

    wanted = jax.random.normal(jax.random.key(0), (3,)) * np.sign(X)
    assert_close(jax.grad(fxgrad.to_jax(noisy), argnums=1)(jax.random.key(0), X), wanted, "grad")
    assert_close(fxgrad.to_jax(lambda x: noisy(fxgrad.random.key(0), x))(X), (wanted * X).sum(), "captured key")


@pytest.mark.parametrize("function", [lambda x: fnp.sum(fnp.abs(x)), lambda x: fnp.sum(fnp.abs(x * draw(3)))])
def test_wide_numbers_where_jax_would_narrow_them(function: Function) -> None:
    with jax.enable_x64(False):
        exported = fxgrad.to_jax(function)
        assert exported(X).dtype == np.float64
        assert_close(exported(X), function(X), "value")
        assert jax.grad(lambda x: exported(x).astype(np.float32))(X.astype(np.float32)).dtype == np.float32


def test_effects(capsys: pytest.CaptureFixture[str]) -> None:
    def watched(x: Any) -> Any:
        fxgrad.debug.print("x is {}", x)
        return fnp.abs(x) * x

    assert float(jax.jit(jax.grad(fxgrad.to_jax(watched)))(2.0)) == 4.0
    jax.effects_barrier()
    assert capsys.readouterr().out == "x is 2.0\n"


def test_there_and_back() -> None:
    exported = fxgrad.to_jax(kinked(fnp))
    imported = fxgrad.from_jax(lambda x: exported(x) * 2)
    assert_close(fxgrad.hessian(imported)(X), 2 * jax.hessian(kinked(jnp))(X), "hessian")
    assert_close(fxgrad.grad(fxgrad.to_jax(kinked(fnp)))(X), jax.grad(kinked(jnp))(X), "traced by fxgrad itself")


def test_errors() -> None:
    with pytest.raises(errors.ArgumentError, match=r"to_jax takes a function, got a ndarray"):
        fxgrad.to_jax(X)
    with pytest.raises(errors.ArgumentError, match="to_jax: function returned a str at output"):
        fxgrad.to_jax(lambda x: "no")(X)
    with pytest.raises(errors.ConcretizationError, match=r"bool\(\) needs the value"):
        fxgrad.to_jax(lambda x: x if x > 0 else -x)(1.0)
    foreign = X.astype(X.dtype.newbyteorder())
    with pytest.raises(errors.DTypeError) as caught:
        fxgrad.to_jax(lambda x: x)({"x": foreign})
    assert str(caught.value).splitlines()[0] == (
        "to_jax: an argument of function is an array of float64 in foreign byte order; convert it first: "
        "x.astype(x.dtype.newbyteorder('='))")


# --- what jax sees ----------------------------------------------------------------------------------------------


def network(params: Any, x: Any) -> Any:
    for weight, bias in params:
        x = jax.nn.relu(x @ weight + bias)
    return -jnp.mean(jax.nn.log_softmax(x)[:, 0])


def normalized(x: Any) -> Any:
    x = (x - jnp.mean(x, -1, keepdims=True)) / jnp.sqrt(jnp.var(x, -1, keepdims=True) + 1e-5)
    return jnp.sum(jax.nn.gelu(x) * jax.nn.softmax(x))


def recurrent(weight: Any, xs: Any) -> Any:
    return jnp.sum(lax.scan(lambda h, x: (jnp.tanh(weight @ h + x), jnp.where(h > 0, h, 0.0)), xs[0], xs)[1])


PARAMS = [(draw(3, 4), draw(4)), (draw(4, 2), draw(2))]


@pytest.mark.parametrize(("function", "args"), [
    (lambda x: jnp.sum(jnp.sin(x) * x), (X,)), (network, (PARAMS, draw(5, 3))), (normalized, (draw(4, 3),)),
    (recurrent, (draw(3, 3), draw(5, 3))), (jax.grad(lambda x: normalized(x)), (draw(4, 3),)),
    (jax.grad(network), (PARAMS, draw(5, 3))),
], ids=["smooth", "network", "normalized", "recurrent", "gradient", "network's gradient"])
def test_there_and_back_is_not_larger(function: Function, args: tuple[Any, ...]) -> None:
    back = fxgrad.to_jax(fxgrad.from_jax(function))
    own, ours = (equation_count(jax.make_jaxpr(each)(*args)) for each in (function, back))
    assert ours <= own
    assert_close(jax.jit(back)(*args), jax.jit(function)(*args), "value")


def alike_samples() -> list[Any]:
    """Samples of the operations: one for all dtypes and parameters, and in the quick tier a scalar."""
    found = []
    for primitive, samples in all_samples().items():
        met = set()
        for place, sample in enumerate(samples if alike.of(primitive) else []):
            kind = str([arg.dtype for arg in sample.args()]), str([*sample.params])
            is_quick = place == 0 and not sample.slow
            # Where there is a derivative:
            if "difference" in sample.without.get("jvp", "difference") and (is_quick or kind not in met):
                met.add(kind)
                found.append(pytest.param(primitive, sample, id=f"{primitive}-{sample}",
                                          marks=[] if is_quick else [pytest.mark.long]))
    return found


def test_plain_programs_have_no_wrapper() -> None:
    assert [str(equation.primitive) for equation in jax.make_jaxpr(fxgrad.to_jax(lambda x: fnp.sin(x) * x))(X).eqns] \
        == ["sin", "mul"]
    wrapped, = jax.make_jaxpr(fxgrad.to_jax(lambda x: fnp.abs(fnp.sin(x))))(X).eqns
    assert str(wrapped.primitive) == "custom_jvp_call"
    assert [str(equation.primitive) for equation in wrapped.params["call_jaxpr"].eqns] == ["sin", "abs"]


@pytest.mark.parametrize(("primitive", "sample"), alike_samples())
def test_jax_differentiates_them_alike(primitive: Any, sample: Any) -> None:
    """What is handed to jax without a rule of ours: the tangent is the same, and is there for the same outputs."""
    args = sample.args()
    avals = [aval_of(arg) for arg in args]
    program, captured = trace_at(lambda *values: bind(primitive, *values, **sample.params), avals, mode=UNSHARED)
    assert not captured
    moving = [has_tangent(aval) and index not in sample.fixed for index, aval in enumerate(avals)]
    tangents = [np.cos(np.asarray(arg, arg.dtype)).astype(arg.dtype) if moves else Zero(aval)
                for arg, aval, moves in zip(args, avals, moving, strict=True)]
    values, ours = push_forward(program, args, tangents)
    given = [jnp.asarray(as_jax(arg)) for arg in args]

    def emitted(*present: Any) -> list[Any]:
        each = iter(present)
        return emit(program, [next(each) if moves else value for value, moves in zip(given, moving, strict=True)])

    present = [value for value, moves in zip(given, moving, strict=True) if moves]
    along = [jnp.asarray(tangent) for tangent in tangents if type(tangent) is not Zero]
    _, theirs = jax.jvp(emitted, present, along) if present else (None, [])
    for value, one, other in zip(values, ours, theirs, strict=bool(present)):
        if has_tangent(aval_of(value)):
            tolerance = 1e-9 if np.asarray(value).dtype in (np.float64, np.complex128) else 2e-2
            assert_close(as_jax(instantiate_zeros(one)), other, "tangent", tolerance)


def test_gradients_of_batches_of_branches() -> None:
    """jax batches the derivative of a branch, and transposes it then."""
    def branch(x: Any) -> Any:
        return fxgrad.lax.cond(x[0] > 0, fnp.sin, lambda z: z * 2, x)

    rows = np.array([[0.3, -0.4], [-1.0, 0.2]])
    with jax.enable_x64(True):
        found = jax.grad(lambda rows: jax.vmap(fxgrad.to_jax(branch))(rows).sum())(rows)
    np.testing.assert_allclose(found, [np.cos(rows[0]), [2.0, 2.0]])
