"""Shardings of arguments, of results and of values within programs, under every transformation."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, SingleDeviceSharding

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, lax
from fxgrad import text as show
from fxgrad.sharding import AbstractMesh, NamedSharding, P, set_mesh
from fxgrad.text.equality import equal

RANDOM = np.random.default_rng(0)
A, B = RANDOM.normal(size=(2, 8, 8))
MESH = fxgrad.make_mesh((4, 2), ("x", "y"), (AxisType.Auto,) * 2)


def at(*spec: Any, mesh: Any = MESH) -> Any:
    return NamedSharding(mesh, P(*spec))


def lies(array: Any, *spec: Any) -> bool:
    return bool(array.sharding.is_equivalent_to(at(*spec), array.ndim))


# --- of arguments and results -----------------------------------------------------------------------------------------


def test_arguments_and_results_lie_as_is_said() -> None:
    """Of 64 bits too, in containers, with static and donated arguments, and whatever the arguments were."""
    fast = fxgrad.jit(lambda p, k, b: {"h": p["w"] @ b * k, "sum": p["b"].sum()}, static_argnums=1,
                      in_shardings=({"w": at("x"), "b": None}, at(None, "y")),
                      out_shardings={"h": at("x", "y"), "sum": None}, donate_argnums=0)
    for given in (A, fxgrad.device_put(A, at("x")), A):
        out = fast({"w": given, "b": B}, 3, B)
        assert lies(out["h"], "x", "y")
        assert isinstance(out["sum"], jax.Array)  # also of 64 bits, although no argument is one
        np.testing.assert_allclose(out["h"], A @ B * 3, rtol=1e-12)
    for given in ([A, 2 * A], (A, A)):
        assert all(lies(each, "x") for each in fxgrad.jit(lambda t: t, out_shardings=at("x"))(given))
    one = fxgrad.jit(lambda n, a: a * n, static_argnums=0, in_shardings=[at("x")])
    assert lies(one(2, A), "x")
    assert lies(fxgrad.jit(lambda a, b: a * b, in_shardings=at("x"))(A, B), "x")
    compiled = fxgrad.jit(lambda a: a @ a, in_shardings=at("x"), out_shardings=at(None, "y")).lower(A).compile()
    assert lies(compiled(fxgrad.device_put(A, at("x"))), None, "y")
    with set_mesh(MESH):
        assert lies(fxgrad.jit(lambda a: a, in_shardings=P("x"))(A), "x")
    alone = SingleDeviceSharding(jax.devices()[3])
    assert fxgrad.jit(lambda a: a, out_shardings=alone)(A).sharding == alone


def test_within_other_transformations_they_are_constraints() -> None:
    inner = fxgrad.jit(lambda a, b: np.sin(a) @ b, in_shardings=(at("x"), None), out_shardings=at(None, "y"))
    loss: Callable[..., Any] = lambda a, b: inner(a, b).sum()
    expected = fxgrad.grad(lambda a, b: (np.sin(a) @ b).sum())(A, B)
    np.testing.assert_allclose(fxgrad.grad(loss)(A, B), expected, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.grad(loss))(A, B), expected, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.vmap(inner, in_axes=(0, None))(np.stack([A, B]), B),
                               np.sin(np.stack([A, B])) @ B, rtol=1e-12)
    program = fxgrad.make_program(fxgrad.jit(fxgrad.grad(loss)))(A, B)
    assert str(program).count("sharding_constraint") == 4  # one for each, forward and backward


# --- of values within programs --------------------------------------------------------------------------------------


def held(x: Any) -> Any:
    h = lax.with_sharding_constraint(np.tanh(x @ x), at("x", "y"))
    return np.sum(fxgrad.device_put(h, at(None, "y"), src=at("x")) ** 2)


def plain(x: Any) -> Any:
    return np.sum(np.tanh(x @ x) ** 2)


TRANSFORMED: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "value": lambda f: fxgrad.jit(f)(A),
    "grad": lambda f: fxgrad.grad(f)(A),
    "jitted grad": lambda f: fxgrad.jit(fxgrad.grad(f))(A),
    "jvp": lambda f: fxgrad.jvp(f, (A,), (B,))[1],
    "hvp": lambda f: fxgrad.hvp(f, (A,), (B,)),
    "vmap of grad": lambda f: fxgrad.jit(fxgrad.vmap(fxgrad.grad(f)))(np.stack([A, B])),
    "spmd": lambda f: fxgrad.vmap(lambda x: f(x), spmd_axis_name=())(np.stack([A, B])),
    "checkpoint": lambda f: fxgrad.grad(fxgrad.checkpoint(f))(A),
    "scan": lambda f: fxgrad.grad(lambda x: lax.scan(lambda c, _: (c + f(c * x), None), 0.1, length=2)[0])(A),
    "cond": lambda f: fxgrad.jit(fxgrad.grad(lambda x: lax.cond(x[0, 0] > 0, f, lambda x: 2 * f(x), x)))(A),
    "on jax's": lambda f: fxgrad.grad(f)(fxgrad.device_put(A, at("x"))),
}


@pytest.mark.parametrize("how", [pytest.param(each, marks=[] if each in ("jitted grad", "hvp", "jvp") else [
    pytest.mark.slow]) for each in TRANSFORMED])
def test_they_change_no_value(how: str) -> None:
    np.testing.assert_allclose(TRANSFORMED[how](held), TRANSFORMED[how](plain), rtol=2e-12, atol=2e-13)


def test_values_lie_as_is_said_and_cotangents_too() -> None:
    def function(x: Any) -> Any:
        return lax.with_sharding_constraint(x * 2, {"a": at("x"), "b": at(None, ("x", "y"))}["a"])

    assert lies(fxgrad.jit(function)(fxgrad.device_put(A, at("x", "y"))), "x")
    gradient = fxgrad.jit(fxgrad.grad(lambda x: np.sum(function(x) * B)))(A)
    assert isinstance(gradient, np.ndarray)  # no argument was one of jax's
    both = fxgrad.jit(lambda t: lax.with_sharding_constraint(t, {"a": at("x"), "b": at(None, ("x", "y"))}))(
        {"a": fnp.ones((8, 8)), "b": fnp.ones((8, 8))})
    assert lies(both["a"], "x")
    assert lies(both["b"], None, ("x", "y"))
    with set_mesh(MESH):
        assert lies(fxgrad.jit(lambda x: lax.with_sharding_constraint(x, P(P.UNCONSTRAINED, "y")))(
            fxgrad.device_put(A, at("x"))), "x", "y")
    assert isinstance(lax.with_sharding_constraint(A, at("x")), np.ndarray)  # un-jitted, it lies nowhere
    assert lies(lax.with_sharding_constraint(jax.device_put(A.astype("float32")), at("x")), "x")


def test_a_spec_alone_is_on_the_mesh_that_is_set_at_the_call() -> None:
    """What was traced under one mesh serves another, in every cache on the way."""
    other = fxgrad.make_mesh((2, 2), ("y", "x"), (AxisType.Auto,) * 2)

    def make() -> Any:
        return fxgrad.jit(lambda t: lax.with_sharding_constraint(t["a"] * 2, P("x", "y")))

    kept = make()
    for _ in range(2):
        for function in (kept, make(), make()):
            for mesh in (MESH, other):
                with set_mesh(mesh):
                    out = function({"a": fnp.ones((8, 8))})
                    assert out.sharding.is_equivalent_to(at("x", "y", mesh=mesh), 2)
                    fxgrad.grad(lambda x, f=function: f({"a": x}).sum())(fnp.ones((8, 8)))


def test_an_axis_that_vmap_adds() -> None:
    """It is left to XLA, or cut along the names that vmap was given; in the memo of what was batched these differ."""
    def specs(**options: Any) -> list[Any]:
        program = fxgrad.make_program(fxgrad.vmap(fxgrad.grad(
            lambda x: (lax.with_sharding_constraint(np.sin(x), at("y")) ** 2).sum()), **options))(np.ones((8, 2)))
        return [equation.params["spec"] for equation in program.equations if "spec" in equation.params]

    for _ in range(2):
        assert specs() == [(None, ("y",))] * 2
        assert specs(spmd_axis_name="x") == [(("x",), ("y",))] * 2
    stacked = fxgrad.jit(fxgrad.vmap(lambda x: lax.with_sharding_constraint(x * 2, at("y")), spmd_axis_name="x"))
    assert lies(stacked(jax.device_put(np.ones((8, 2), "float32"))), "x", "y")


def test_they_print_and_are_read_back() -> None:
    program = fxgrad.make_program(fxgrad.grad(held))(A)
    for again in (fxgrad.parse(str(program)), show.from_json(show.to_json(program))):
        assert equal(program, again)
        np.testing.assert_allclose(again(A), fxgrad.grad(plain)(A), rtol=1e-12)
    text = str(fxgrad.make_program(lambda x: lax.with_sharding_constraint(x, at("x")))(A))
    assert 'sharding_constraint(x, spec=(("x",), ()), mesh=MeshShape(names=("x", "y"), sizes=(4, 2),' in text
    with set_mesh(MESH):
        assert 'sharding_constraint(x, spec=(("x",), ()))' in str(
            fxgrad.make_program(lambda x: lax.with_sharding_constraint(x, P("x")))(A))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_beside_shard_map(kind: AxisType) -> None:
    """Around it, and within it along the axes that are not mapped there."""
    mesh = MESH.update(axis_types=(kind,) * 2)
    x = fxgrad.device_put(A, at("x", "y", mesh=mesh))
    inside = fxgrad.shard_map(lambda a: lax.with_sharding_constraint(a * 2, at(None, "y", mesh=mesh)), mesh=mesh,
                              in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    out = fxgrad.jit(inside)(x)
    np.testing.assert_array_equal(out, 2 * A)
    assert lies(out, "x", "y")
    total = fxgrad.shard_map(lambda a: lax.psum(np.sum(np.sin(a)), ("x", "y")), mesh=mesh, in_specs=P("x", "y"),
                             out_specs=P())
    around = fxgrad.jit(fxgrad.grad(lambda a: total(lax.with_sharding_constraint(a @ a.T, at("x", mesh=mesh)))))
    np.testing.assert_allclose(around(x), fxgrad.grad(lambda a: np.sum(np.sin(a @ a.T)))(A), rtol=2e-12, atol=2e-13)
    assert around(x).sharding.mesh == mesh


def test_files_of_numpy_and_scalars_pass_them_by() -> None:
    of_scalars = fxgrad.scalarize(fxgrad.make_program(held)(A))
    np.testing.assert_allclose(of_scalars(*A.ravel()), plain(A), rtol=1e-12)
    program = fxgrad.make_program(fxgrad.grad(held))(A)
    space: dict[str, Any] = {}
    exec(program.to_python(), space)
    np.testing.assert_allclose(space["grad_held"](A), fxgrad.grad(plain)(A), rtol=1e-12)
    assert fxgrad.cost_analysis(program).flops == fxgrad.cost_analysis(fxgrad.make_program(fxgrad.grad(plain))(A)).flops


def test_to_jax_and_back() -> None:
    def of_jax(x: Any) -> Any:
        return jax.device_put(jax.lax.with_sharding_constraint(x * 2, at("x", None)), at(None, "y"))

    program = fxgrad.make_program(fxgrad.from_jax(of_jax))(A)
    names = [equation.primitive.name for equation in program.equations]
    assert names[-2:] == ["sharding_constraint", "device_put"], names
    assert program.equations[-2].params["spec"] == (("x",), ())
    np.testing.assert_allclose(fxgrad.grad(lambda x: fxgrad.from_jax(of_jax)(x).sum())(A), np.full((8, 8), 2.0),
                               rtol=1e-12)
    jitted = jax.jit(lambda x, y: (jax.numpy.sin(x) @ y, y), in_shardings=(at("x"), None),
                     out_shardings=(at(None, "y"), None))
    program = fxgrad.make_program(fxgrad.from_jax(lambda x: jitted(x, x)))(A)
    assert [equation.params["spec"] for equation in program.equations if "spec" in equation.params] == [
        (("x",), ()), ((), ("y",))]
    resharded = fxgrad.from_jax(lambda x: jax.sharding.reshard(
        x * 2, at(None, "y", mesh=MESH.update(axis_types=(AxisType.Explicit,) * 2))))
    assert fxgrad.make_program(resharded)(A).equations[-1].params["spec"] == ((), ("y",))
    np.testing.assert_array_equal(resharded(A), 2 * A)
    assert lies(fxgrad.jit(resharded)(fxgrad.device_put(A, at("x"))), None, "y")
    with jax.enable_x64(True):
        assert lies(jax.jit(fxgrad.to_jax(lambda x: lax.with_sharding_constraint(x, at("x"))))(jax.device_put(A)), "x")


def test_meshes_without_devices_and_kinds_of_memory() -> None:
    abstract = AbstractMesh((4, 2), ("x", "y"))
    function = fxgrad.jit(lambda x: lax.with_sharding_constraint(x * 2, at("x", mesh=abstract)))
    assert lies(function(fxgrad.device_put(A.astype("float32"), at(None, "y"))), "x")
    np.testing.assert_allclose(fxgrad.grad(lambda x: lax.with_sharding_constraint(
        x * 2, at("x", mesh=abstract)).sum())(A), np.full((8, 8), 2.0), rtol=1e-12)
    host = NamedSharding(MESH, P("x"), memory_kind="pinned_host")
    moved = fxgrad.jit(lambda x: fxgrad.device_put(x, host))(fxgrad.device_put(A, at("x")))
    assert moved.sharding == host
    away = fxgrad.jit(lambda x: fxgrad.device_put(x, jax.memory.Space.Host))(jax.device_put(A.astype("float32")))
    assert away.sharding.memory_kind == "pinned_host"
    assert fxgrad.jit(lambda x: fxgrad.device_put(x, jax.devices()[1]) * 2)(A).shape == (8, 8)


def test_names_of_jax() -> None:
    theirs = {name for name in dir(jax.sharding) if not name.startswith("_")}
    assert {"Mesh", "NamedSharding", "PartitionSpec", "AxisType", "set_mesh"} <= theirs & set(fxgrad.sharding.__all__)
    assert all(getattr(fxgrad.sharding, name) is getattr(jax.sharding, name)
               for name in theirs & {*fxgrad.sharding.__all__} - {"auto_axes", "explicit_axes", "reshard"})
    assert fxgrad.P is jax.P
    assert fxgrad.make_mesh((4, 2), ("x", "y")) == jax.make_mesh((4, 2), ("x", "y"))


# --- arrays that are closed over --------------------------------------------------------------------------------------


def test_what_is_closed_over_on_several_devices_is_an_argument() -> None:
    """Of the first function that records a program and of those that share it; with options, effects, in stages."""
    wide = fxgrad.device_put(np.arange(2.0**16).reshape(256, 256), at("x", "y"))
    seen: list[Any] = []

    def make(**options: Any) -> Any:
        return fxgrad.jit(lambda t: t["x"] @ wide, **options)

    x = np.ones((4, 256))
    for function in (make(), make(), make(keep_unused=True), make(in_shardings=at("x"), out_shardings=at(None, "y")),
                     fxgrad.jit(lambda t: (fxgrad.debug.callback(lambda s: seen.append(float(s)), t["x"].sum()),
                                           t["x"] @ wide)[1])):
        text = function.lower({"x": x}).as_text()
        assert len(text) < 4000, len(text)
        for _ in range(3):
            np.testing.assert_allclose(function({"x": x}), x @ np.asarray(wide), rtol=1e-12)
    compiled = make().lower({"x": x}).compile()
    np.testing.assert_allclose(compiled({"x": x}), x @ np.asarray(wide), rtol=1e-12)
    jax.effects_barrier()
    assert seen == [1024.0] * 3
    donating = fxgrad.jit(lambda n, t: t * n + wide, static_argnums=0, donate_argnums=1)
    given = fxgrad.device_put(np.asarray(wide), at("x", "y"))
    np.testing.assert_array_equal(donating(2, given), np.asarray(wide) * 3)
    assert given.is_deleted()
    flat = fxgrad.jit(lambda x, flag: x @ wide if flag else x + 1.0, static_argnums=1)
    for flag in (False, True, False, True):
        assert flat(x, flag).shape == (4, 256)


# --- what does not fit ----------------------------------------------------------------------------------------------


def params(w: Any) -> Any:
    return w["w"]


def identity(x: Any) -> Any:
    return x


ODD = np.ones((6, 8))


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: fxgrad.jit(params, in_shardings=({"w": at("x")},))({"w": ODD}), errors.ShapeError,
     ("jit of params: P('x') cuts axis 0 of w.w, whose shape is (6, 8), along the mesh axes 'x' (4) into 4 "
      "pieces, and 6 is not divisible by 4. Pad the axis to 8, or leave it whole with None in its place")),
    (lambda: fxgrad.jit(identity, in_shardings=at(None, ("x", "y")))(np.ones((2, 12))), errors.ShapeError,
     ("jit of identity: P(None, ('x', 'y')) cuts axis 1 of x, whose shape is (2, 12), along the mesh axes 'x' "
      "(4) and 'y' (2) into 8 pieces, and 12 is not divisible by 8. Pad the axis to 16, or leave it whole with "
      "None in its place")),
    (lambda: fxgrad.jit(lambda x: {"a": x[:3]}, out_shardings=at("x"))(A), errors.ShapeError,
     ("jit of function: P('x') cuts axis 0 of output.a, whose shape is (3, 8), along the mesh axes 'x' (4) into"
      " 4 pieces, and 3 is not divisible by 4. Pad the axis to 4, or leave it whole with None in its place")),
    (lambda: fxgrad.jit(identity, in_shardings=at("x", "y"))(np.ones(8)), errors.ShapeError,
     ("jit of identity: P('x', 'y') says how 2 axes lie, and x has 1, its shape is (8,). One entry for each "
      "axis is needed; those left out at the end are not cut")),
    (lambda: fxgrad.jit(identity, in_shardings=(at("x"), None))(A), errors.ArgumentError,
     ("jit: in_shardings of identity are (NamedSharding(mesh, P('x')), None), which is not a prefix of its "
      "positional arguments PyTreeDef((*,)). Write one sharding (or None) for all arguments, or a tuple with an"
      " entry for each that is not static: one sharding, or a container of its structure")),
    (lambda: fxgrad.jit(identity, out_shardings=(at("x"), None))(A), errors.ArgumentError,
     ("jit: out_shardings of identity are (NamedSharding(mesh, P('x')), None), which is not a prefix of its "
      "output PyTreeDef(*). Write one sharding (or None) for the whole output, or a container of its structure")),
    (lambda: fxgrad.jit(identity, in_shardings=at("x"))(x=A), errors.ArgumentError,
     ("jit: identity was called with the keyword argument x, and its in_shardings are those of positional "
      "arguments. Give all dynamic arguments by position")),
    (lambda: fxgrad.jit(params, in_shardings=at("x"))({"w": fxgrad.device_put(A, at(None, "y"))}), errors.ArgumentError,
     ("jit of params: w.w lies as NamedSharding(mesh, P(None, 'y')), and in_shardings say NamedSharding(mesh, P('x')). "
      "Move it first: fxgrad.device_put(w.w, sharding)")),
    (lambda: fxgrad.jit(identity, in_shardings="x"), errors.ArgumentError,
     ("jit: in_shardings of identity has a str ('x'), where a sharding is needed, such as NamedSharding(mesh, "
      "PartitionSpec('x', None)), or a PartitionSpec within jax.set_mesh(mesh)")),
    (lambda: fxgrad.jit(identity, in_shardings=P("x"))(A), errors.ArgumentError,
     ("jit of identity: P('x') names axes of a mesh, and none is set. Write NamedSharding(mesh, P('x')), or "
      "call within jax.set_mesh(mesh)")),
    (lambda: fxgrad.grad(lambda x: fxgrad.jit(identity, in_shardings=at("x"))(x).sum())(ODD), errors.ShapeError,
     ("jit of identity: P('x') cuts axis 0 of x, whose shape is (6, 8), along the mesh axes 'x' (4) into 4 "
      "pieces, and 6 is not divisible by 4. Pad the axis to 8, or leave it whole with None in its place")),
    (lambda: lax.with_sharding_constraint({"h": ODD}, at("x")), errors.ShapeError,
     ("with_sharding_constraint: P('x') cuts axis 0 of x.h, whose shape is (6, 8), along the mesh axes 'x' (4) "
      "into 4 pieces, and 6 is not divisible by 4. Pad the axis to 8, or leave it whole with None in its place")),
    (lambda: lax.with_sharding_constraint(A, at("x", None, "y")), errors.ShapeError,
     ("with_sharding_constraint: P('x', None, 'y') says how 3 axes lie, and the array has 2, its shape is (8, "
      "8). One entry for each axis is needed; those left out at the end are not cut")),
    (lambda: lax.with_sharding_constraint(A, P("x")), errors.ArgumentError,
     ("with_sharding_constraint: P('x') names axes of a mesh, and none is set. Write NamedSharding(mesh, "
      "P('x')), or call within jax.set_mesh(mesh)")),
    (lambda: within(MESH, lambda: lax.with_sharding_constraint(A, P("z"))), errors.ArgumentError,
     "with_sharding_constraint: P('z') names the mesh axis 'z', and those of the mesh are 'x', 'y'"),
    (lambda: within(MESH, lambda: lax.with_sharding_constraint(A, P("x", "x"))), errors.ArgumentError,
     "with_sharding_constraint: P('x', 'x') names the mesh axis 'x' twice; it cuts one axis of an array"),
    (lambda: fxgrad.shard_map(lambda a: lax.with_sharding_constraint(a, at(None, "y")), mesh=MESH, in_specs=P("x"),
                              out_specs=P("x"))(A), errors.ArgumentError,
     ("with_sharding_constraint: NamedSharding(mesh, P(None, 'y')) names 'y', and the function runs on each of the "
      "devices along that axis, with its piece of the arrays (shard_map). Leave the name out here, or leave the axis "
      "out of axis_names there")),
    (lambda: lax.with_sharding_constraint(A, "x"), errors.ArgumentError,
     ("with_sharding_constraint: the sharding of the array is a str ('x'), where a NamedSharding is needed, or "
      "a PartitionSpec within jax.set_mesh(mesh): NamedSharding(mesh, PartitionSpec('x', None))")),
    (lambda: lax.with_sharding_constraint([A, A], [at("x")]), errors.ArgumentError,
     ("with_sharding_constraint: [NamedSharding(mesh, P('x'))] is not a prefix of the container PyTreeDef([*, "
      "*]). Write one sharding for all of it, or a container of its structure")),
    (lambda: fxgrad.device_put(ODD, at("x")), errors.ShapeError,
     ("device_put: P('x') cuts axis 0 of the array, whose shape is (6, 8), along the mesh axes 'x' (4) into 4 "
      "pieces, and 6 is not divisible by 4. Pad the axis to 8, or leave it whole with None in its place")),
    (lambda: fxgrad.device_put([A], (at("x"),)), errors.ArgumentError,
     ("device_put: (NamedSharding(mesh, P('x')),) is not a prefix of the container PyTreeDef([*]). Write one "
      "device or sharding for all of it, or a container of its structure")),
    (lambda: fxgrad.make_mesh((4, 4), ("x", "y")), errors.ArgumentError,
     ("make_mesh((4, 4), ('x', 'y')): the mesh has 16 devices, and there are 8. Take a smaller one; for tests, "
      "jax.config.update('jax_num_cpu_devices', 16) before the first use makes as many of the CPU; "
      "jax.sharding.AbstractMesh((4, 4), ('x', 'y')) needs none, and runs with NumPy")),
    (lambda: fxgrad.make_mesh((4, 2), ("x",)), errors.ArgumentError,
     "make_mesh((4, 2), ('x',)): there are 2 sizes and 1 names; each axis has one of both"),
    (lambda: fxgrad.make_mesh((4, 2), ("x", "x")), errors.ArgumentError,
     "make_mesh((4, 2), ('x', 'x')): an axis name is repeated; the names must be distinct"),
    (lambda: fxgrad.make_mesh((0,), ("x",)), errors.ArgumentError,
     "make_mesh((0,), ('x',)): sizes are whole numbers, at least 1"),
    (lambda: fxgrad.vmap(lambda x: lax.with_sharding_constraint(x, at("x")), spmd_axis_name="x")(A),
     errors.ArgumentError,
     ("vmap: spmd_axis_name has 'x', along which P('x') inside cuts the value already. Name a mesh axis that it does "
      "not use")),
    (lambda: fxgrad.vmap(lambda x: lax.with_sharding_constraint(x, at("x")), spmd_axis_name="z")(A),
     errors.ArgumentError, "vmap: spmd_axis_name has 'z', and the mesh of a sharding inside has the axes 'x', 'y'"),
    (lambda: fxgrad.vmap(lambda x: lax.with_sharding_constraint(x, at("x")), spmd_axis_name="y")(np.ones((3, 8))),
     errors.ShapeError,
     ("vmap: the mapped axis of size 3 is to be cut along the mesh axis 'y' (spmd_axis_name) into 2 equal pieces, and "
      "3 is not divisible by 2. Pad it")),
    (lambda: fxgrad.vmap(identity, spmd_axis_name=3), errors.ArgumentError,
     "vmap: spmd_axis_name is 3, where the name of a mesh axis is needed, or a tuple of names"),
])
def test_messages(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    """In full, with the user's line below; nothing has run by then."""
    with pytest.raises(error) as raised:
        call()
    assert re.fullmatch(re.escape(message) + r"\n  at test_shardings.py:\d+ \(in .*\)", str(raised.value))


def within(mesh: Any, call: Callable[[], Any]) -> Any:
    with set_mesh(mesh):
        return call()


def test_a_message_where_the_plan_was_made_for_other_sizes() -> None:
    """Jax sees it first then, in a call of a kind that was there before."""
    fast = fxgrad.jit(lambda t: t["w"] * 2, in_shardings=at("x"))
    fast({"w": A})
    with pytest.raises(errors.ShapeError, match=r"cuts axis 0 of t.w, whose shape is \(6, 8\)"):
        fast({"w": ODD})
    fast({"w": A})
