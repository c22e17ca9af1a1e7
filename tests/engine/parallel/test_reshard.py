"""`reshard`, `out_sharding=`, `auto_axes` and `explicit_axes`: where values lie, on every path."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, grad, jit, lax, vmap
from fxgrad.sharding import NamedSharding, P
from tests.support.versions import IS_OLDEST_JAX

A = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
KEY = fxgrad.random.key(0)
SAFE = ("explicit", "auto")


@pytest.fixture(scope="module", params=SAFE)
def mesh(request: Any) -> Any:
    kind = AxisType.Explicit if request.param == "explicit" else AxisType.Auto
    return jax.make_mesh((4, 2), ("x", "y"), (kind,) * 2)


def lies(array: Any, mesh: Any, *spec: Any) -> bool:
    return isinstance(array, jax.Array) and bool(array.sharding.is_equivalent_to(
        NamedSharding(mesh, P(*spec)), array.ndim))


def test_reshard_moves_and_constrains(mesh: Any) -> None:
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "y"))
    moved = fxgrad.reshard({"a": A, "b": [A.astype(np.float64), 2.0]},
                           {"a": rows, "b": [columns, NamedSharding(mesh, P())]})
    assert lies(moved["a"], mesh, "x")
    assert lies(moved["b"][0], mesh, None, "y")
    assert moved["b"][0].dtype == np.float64
    assert lies(fxgrad.reshard(moved["a"], columns), mesh, None, "y")
    assert fxgrad.reshard is fxgrad.sharding.reshard
    for given in (A, moved["a"]):
        out = jit(lambda x: fxgrad.reshard(fnp.sin(x), columns))(given)
        assert lies(out, mesh, None, "y")
        np.testing.assert_allclose(out, np.sin(A), rtol=1e-6)
    slope = jit(grad(lambda x: fnp.sum(fnp.sin(fxgrad.reshard(x, columns)))))(moved["a"])
    np.testing.assert_allclose(slope, np.cos(A), rtol=1e-6)
    np.testing.assert_allclose(vmap(lambda x: fxgrad.reshard(x, NamedSharding(mesh, P("x"))) * 2)(A), 2 * A)
    with jax.set_mesh(mesh):
        assert lies(fxgrad.reshard(A, P("y")), mesh, "y")
        assert lies(jit(lambda x: fxgrad.reshard(x * 2, P("y")))(A), mesh, "y")
    program = fxgrad.make_program(lambda x: fxgrad.reshard(x, rows))(A)
    assert [equation.primitive.name for equation in program.equations] == ["sharding_constraint"]
    np.testing.assert_array_equal(program(A), A)


def test_reshard_refuses(mesh: Any) -> None:
    for call, kind, message in (
            (lambda: fxgrad.reshard(A, "x"), errors.ArgumentError, "reshard: the sharding of x is a str"),
            (lambda: fxgrad.reshard(A, P("x")), errors.ArgumentError,
             "reshard: P('x') names axes of a mesh, and none is set"),
            (lambda: fxgrad.reshard(A[:3], NamedSharding(mesh, P("x"))), errors.ShapeError,
             "reshard: P('x') cuts axis 0 of x"),
            (lambda: fxgrad.reshard([A], [P(), P()]), errors.ArgumentError, "reshard: [P(), P()] is not a prefix"),
            (lambda: fxgrad.auto_axes(np.sin)(A), errors.ArgumentError,
             "auto_axes: out_sharding is missing; write auto_axes(f, out_sharding=P('x')), or give it to the call"),
            (lambda: fxgrad.explicit_axes(np.sin)(A), errors.ArgumentError, "explicit_axes: in_sharding is missing"),
            (lambda: fxgrad.auto_axes(3), errors.ArgumentError, "auto_axes takes a function, got a int. Write")):
        with pytest.raises(kind) as caught:
            call()
        assert str(caught.value).startswith(message), caught.value
        assert "at test_reshard.py:" in str(caught.value)


def test_sums_still_to_be_made_are_refused() -> None:
    unreduced = NamedSharding(jax.make_mesh((4, 2), ("x", "y")), P(None, unreduced={"x"}))
    held: dict[str, Callable[..., Any]] = {
        "reshard": lambda x: fxgrad.reshard(x, unreduced),
        "dot": lambda x: fnp.dot(x, x, out_sharding=unreduced),
        "with_sharding_constraint": lambda x: lax.with_sharding_constraint(x, unreduced)}
    for name, function in held.items():
        for call in (function, jit(function)):
            with pytest.raises(errors.UnsupportedError, match=(
                    rf"^{name}: P\(None, unreduced={{'x'}}(, unreduced_kind=sum)?\) says that .* is not summed "
                    r"over a mesh axis yet, which programs of fxgrad do not track; device_put of arrays that are not "
                    r"traced takes it\. Sum inside shard_map, with fxgrad\.lax\.psum\n  at test_reshard")):
                call(A)
    with pytest.raises(errors.UnsupportedError, match=r"unreduced={'x'}"):
        jit(lambda x: x, out_shardings=unreduced)(A)


def test_auto_axes_and_explicit_axes_as_jax(mesh: Any) -> None:
    function = lambda x: {"s": fnp.sin(x) @ x}
    with jax.set_mesh(mesh):
        placed = fxgrad.reshard(A, P("x", "y"))
        for make in (lambda: fxgrad.auto_axes(function, out_sharding=P("y")),
                     lambda: functools.partial(fxgrad.auto_axes(axes="x")(function), out_sharding=P("y"))):
            for call in (make(), jit(make())):
                assert lies(call(placed)["s"], mesh, "y")
                np.testing.assert_allclose(call(placed)["s"], np.sin(A) @ A, rtol=2e-5)
        seen = []

        @fxgrad.explicit_axes(in_sharding=(P("x"), None))
        def looked_at(x: Any, y: Any) -> Any:
            seen.append(x)
            return x + y
        looked_at(A, 2.0)
        assert lies(seen[0], mesh, "x")
        np.testing.assert_allclose(jit(looked_at)(A, 2.0), A + 2)
        slope = jit(grad(lambda x: fnp.sum(fxgrad.auto_axes(function, out_sharding=P("y"))(x)["s"])))(placed)
        np.testing.assert_allclose(slope, grad(lambda x: fnp.sum(function(x)["s"]))(A), rtol=2e-5)
        if mesh.axis_types[0] is AxisType.Explicit:
            theirs = jax.sharding.auto_axes(lambda x: jax.numpy.sin(x) @ x, out_sharding=P("y"))(placed)
            assert lies(theirs, mesh, "y")


# How each function is called that takes out_sharding=; the first axis of the result has 8 entries.
NUMPY: dict[str, Callable[..., Any]] = {
    "arange": lambda f, **o: f(8, **o), "array": lambda f, **o: f(A, **o), "asarray": lambda f, **o: f(A, **o),
    "bincount": lambda f, **o: f(np.arange(8), length=8, **o), "broadcast_to": lambda f, **o: f(A[0], (8, 8), **o),
    "einsum": lambda f, **o: f("ij,jk", A, A, **o), "full": lambda f, **o: f((8, 2), 3.0, **o),
    "full_like": lambda f, **o: f(A, 2.0, **o), "percentile": lambda f, **o: f(A, 50.0, axis=1, **o),
    "ravel": lambda f, **o: f(A, **o), "repeat": lambda f, **o: f(A, 2, axis=1, **o),
    "reshape": lambda f, **o: f(A, (8, 4, 2), **o),
    **dict.fromkeys(("dot", "matmul"), lambda f, **o: f(A, A, **o)), "tensordot": lambda f, **o: f(A, A, 1, **o),
    **dict.fromkeys(("empty", "ones", "zeros"), lambda f, **o: f((8, 2), **o)),
    **dict.fromkeys(("ones_like", "zeros_like"), lambda f, **o: f(A, **o))}
LAX: dict[str, Callable[..., Any]] = {
    "broadcast": lambda f, **o: f(A, (8,), **o), "broadcast_in_dim": lambda f, **o: f(A[0], (8, 8), (1,), **o),
    "broadcasted_iota": lambda f, **o: f("int32", (8, 2), 0, **o),
    "conv_general_dilated": lambda f, **o: f(A[:, None], A[:1, None, :3], (1,), "SAME", **o),
    "dot": lambda f, **o: f(A, A, **o), "dot_general": lambda f, **o: f(A, A, (((1,), (0,)), ((), ())), **o),
    "empty": lambda f, **o: f((8,), "float32", **o),
    "ragged_dot": lambda f, **o: f(A, A[None], np.array([8]), **o),
    "ragged_dot_general": lambda f, **o: f(A, A[None], np.array([8]), lax.RaggedDotDimensionNumbers(
        (((1,), (1,)), ((), ())), [0], [0]), **o),
    "reduce": lambda f, **o: f(A, np.float32(0), lambda a, b: a + b, (1,), **o),
    "reduce_sum": lambda f, **o: f(A, (1,), **o), "reshape": lambda f, **o: f(A, (8, 4, 2), **o)}
RANDOM: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("bits", "cauchy", "exponential", "gumbel", "laplace", "logistic", "maxwell", "normal",
                     "rademacher", "uniform"), lambda f, **o: f(KEY, (8, 2), **o)),
    "ball": lambda f, **o: f(KEY, 2, 2.0, (8,), **o), "bernoulli": lambda f, **o: f(KEY, 0.5, (8,), **o),
    "beta": lambda f, **o: f(KEY, 1.0, 2.0, (8,), **o), "categorical": lambda f, **o: f(KEY, A[0], shape=(8,), **o),
    "dirichlet": lambda f, **o: f(KEY, A[1], (8,), **o), "f": lambda f, **o: f(KEY, 1.0, 2.0, (8,), **o),
    "generalized_normal": lambda f, **o: f(KEY, 2.0, (8,), **o),
    "lognormal": lambda f, **o: f(KEY, 1.0, (8,), **o),
    "multivariate_normal": lambda f, **o: f(KEY, A[0], np.eye(8, dtype="f"), (8,), **o),
    "orthogonal": lambda f, **o: f(KEY, 8, **o), "permutation": lambda f, **o: f(KEY, 8, **o),
    "randint": lambda f, **o: f(KEY, (8,), 0, 5, **o), "triangular": lambda f, **o: f(KEY, 0.0, 1.0, 2.0, (8,), **o),
    "truncated_normal": lambda f, **o: f(KEY, -1.0, 1.0, (8,), **o),
    **dict.fromkeys(("chisquare", "gamma", "geometric", "loggamma", "pareto", "poisson", "rayleigh", "t", "wald"),
                    lambda f, **o: f(KEY, 0.5, (8,), **o))}


def _takes_out_sharding(function: Any) -> bool:
    try:
        return "out_sharding" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


@pytest.mark.slow
def test_every_function_of_jax_that_takes_out_sharding_takes_it() -> None:
    """Un-jitted results lie where is said and are what they are without, and programs hold them there."""
    mesh = jax.make_mesh((4,), ("x",), (AxisType.Auto,))
    rows, wrong, seen = NamedSharding(mesh, P("x")), [], 0
    for library, cases in {"numpy": NUMPY, "lax": LAX, "random": RANDOM}.items():
        theirs, ours = importlib.import_module(f"jax.{library}"), importlib.import_module(f"fxgrad.{library}")
        names = {name for name in dir(theirs) if hasattr(ours, name) and _takes_out_sharding(getattr(theirs, name))}
        assert names == {*cases} or (names > {*cases} and not IS_OLDEST_JAX)
        for name, call in cases.items():
            function = getattr(ours, name)
            plain, placed = call(function), call(function, out_sharding=rows)
            program = fxgrad.make_program(lambda call=call, function=function: call(function, out_sharding=rows))()
            same = np.array_equal(plain, placed) and plain.dtype == placed.dtype
            last = [each.primitive.name for each in program.equations][-1:]
            if not (same and lies(placed, mesh, "x") and last == ["sharding_constraint"]):
                wrong.append((library, name, same, getattr(placed, "sharding", None), last))
            seen += 1
    assert not wrong
    assert seen == 65
    made = fxgrad.nn.initializers.normal()(KEY, (8, 2), out_sharding=rows)
    assert lies(made, mesh, "x")
    with pytest.raises(errors.ShapeError, match=r"^zeros: P\('x'\) cuts axis 0 of the result, whose shape is \(3,\)"):
        fnp.zeros(3, out_sharding=rows)


def test_pictures_of_shardings() -> None:
    placed = fxgrad.device_put(A, NamedSharding(jax.make_mesh((4, 2), ("x", "y")), P("x", "y")))
    texts = []
    for visualize in (fxgrad.debug.visualize_array_sharding, jax.debug.visualize_array_sharding):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            visualize(placed, use_color=False)
        texts.append(text.getvalue())
    assert texts[0] == texts[1]
    assert "CPU 0" in texts[0]
    seen: list[Any] = []
    fxgrad.debug.inspect_array_sharding(placed, callback=seen.append)
    assert seen == [placed.sharding]
    assert fxgrad.debug.visualize_sharding is jax.debug.visualize_sharding
    with pytest.raises(errors.ArgumentError, match=(
            r"^debug\.visualize_array_sharding: got a ndarray, and only arrays of jax's lie on devices\. Write "
            r"fxgrad\.device_put\(x, sharding\), or look at what a jitted function returns\n  at test_reshard")):
        fxgrad.debug.visualize_array_sharding(A)
    with pytest.raises(errors.ArgumentError, match=(
            r"^debug\.inspect_array_sharding: the array \(f32\[8,8\]\) is traced, and its sharding is known only "
            r"after XLA has compiled the program\. Call it with the result of the jitted function\n  at test_reshard")):
        jit(lambda x: fxgrad.debug.inspect_array_sharding(x, callback=print))(A)
