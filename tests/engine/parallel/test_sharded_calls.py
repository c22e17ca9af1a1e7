"""`shard_map` as it is called: meshes, containers, what is closed over, what is nested, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, lax
from fxgrad.text import equal, parse, program_text

AUTO = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
EXPLICIT = jax.make_mesh((4, 2), ("data", "model"))
ABSTRACT = AbstractMesh((4, 2), ("data", "model"))
X = np.arange(32.0).reshape(8, 4) / 7
W = np.arange(8.0).reshape(4, 2) / 5
SPECS: Any = {"in_specs": (P(), P("data")), "out_specs": P()}


def loss(w: Any, x: Any) -> Any:
    return lax.pmean(fnp.sum(fnp.tanh(x @ w) ** 2), "data")


def alone(w: Any, x: Any) -> Any:
    """The same on one device."""
    return fnp.sum(fnp.tanh(x @ w) ** 2) / 4


SLOPES = fxgrad.grad(alone, (0, 1))(W, X)


def check_slopes(found: Any) -> None:
    for one, other in zip(found, SLOPES, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


# --- meshes -----------------------------------------------------------------------------------------------------


def test_with_numpy_it_needs_no_devices() -> None:
    sharded = fxgrad.shard_map(loss, mesh=ABSTRACT, **SPECS)
    check_slopes(fxgrad.grad(sharded, (0, 1))(W, X))
    with pytest.raises(errors.UnsupportedError, match=r"shard_map: its mesh has no devices \(jax.sharding.Abstract"):
        fxgrad.jit(sharded)(W, X)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_arrays_on_devices(mesh: Any) -> None:
    sharded = fxgrad.shard_map(loss, mesh=mesh, **SPECS)
    with jax.enable_x64(True):
        w, x = jax.device_put(W, NamedSharding(mesh, P())), jax.device_put(X, NamedSharding(mesh, P("data")))
        for slopes in (fxgrad.grad(sharded, (0, 1)), fxgrad.jit(fxgrad.grad(sharded, (0, 1)))):
            found = slopes(w, x)
            check_slopes(found)
            assert found[1].sharding.spec[0] == "data"
            assert len(found[0].sharding.device_set) == 8
        inferred = fxgrad.shard_map(loss, mesh=mesh, out_specs=P())
        np.testing.assert_allclose(inferred(w, x), alone(W, X), rtol=1e-12)
        with pytest.raises(errors.ArgumentError) as caught:
            fxgrad.grad(inferred)(w, x)
        assert str(caught.value).startswith(
            "shard_map: in_specs was left out, and the argument w of loss is traced here, so its sharding is "
            "unknown. Pass in_specs, a PartitionSpec for each argument")
        with jax.set_mesh(mesh):
            around = fxgrad.shard_map(loss, **SPECS)
            check_slopes(fxgrad.jit(fxgrad.grad(around, (0, 1)))(w, x))
            check_slopes(fxgrad.jit(fxgrad.grad(fxgrad.shard_map(loss, mesh=ABSTRACT, **SPECS), (0, 1)))(w, x))


@pytest.mark.slow
def test_some_axes_and_maps_within_maps() -> None:
    some = fxgrad.shard_map(loss, mesh=AUTO, axis_names={"data"}, **SPECS)

    def outer(w: Any, x: Any) -> Any:
        inner = fxgrad.shard_map(lambda w, x: lax.psum(fnp.sum(fnp.tanh(x @ w) ** 2), "model"),
                                 in_specs=(P(None, "model"), P()), out_specs=P(), axis_names={"model"})
        return lax.pmean(inner(w, x), "data")

    nested = fxgrad.shard_map(outer, mesh=AUTO, axis_names={"data"}, **SPECS)
    for f in (some, nested):
        for slopes in (fxgrad.grad(f, (0, 1)), fxgrad.jit(fxgrad.grad(f, (0, 1)))):
            check_slopes(slopes(W, X))


# --- what is passed, closed over, returned ----------------------------------------------------------------------


def test_containers_numbers_and_constants() -> None:
    @fxgrad.shard_map(mesh=ABSTRACT, in_specs=({"w": P(), "x": P("data")},),
                      out_specs={"y": P("data"), "n": P(), "c": P("model"), "none": P()})
    def f(p: Any) -> Any:
        return {"y": p["x"] @ p["w"], "n": 3.0, "c": np.ones(2), "none": None}

    found = f({"w": W, "x": X})
    np.testing.assert_allclose(found["y"], X @ W, rtol=1e-12)
    assert (found["n"], found["none"]) == (3.0, None)
    np.testing.assert_array_equal(found["c"], np.ones(4))


def test_what_is_none_has_none_for_its_spec() -> None:
    f = fxgrad.shard_map(lambda p: (p["x"], p["n"]), mesh=ABSTRACT, in_specs=({"x": P("data"), "n": None},),
                         out_specs=(P("data"), None))
    found, none = f({"x": X, "n": None})
    np.testing.assert_array_equal(found, X)
    assert none is None
    with pytest.raises(errors.ArgumentError, match="out_specs holds None, where a PartitionSpec is needed"):
        f({"x": X, "n": X})


@pytest.mark.slow
@pytest.mark.parametrize("jit", [lambda f: f, fxgrad.jit], ids=["numpy", "devices"])
def test_closures_over_what_is_differentiated(jit: Callable[..., Any]) -> None:
    def total(w: Any) -> Any:
        return fxgrad.shard_map(lambda x: lax.pmean(fnp.sum(fnp.tanh(x @ w) ** 2), "data"), mesh=AUTO,
                                in_specs=P("data"), out_specs=P())(X)
    np.testing.assert_allclose(jit(fxgrad.grad(total))(W), SLOPES[0], rtol=1e-12)
    curve = jit(fxgrad.hessian(total))(W)
    np.testing.assert_allclose(curve, fxgrad.hessian(lambda w: alone(w, X))(W), rtol=1e-12, atol=1e-12)


def test_entries_of_a_vmap_around_speak_with_each_other() -> None:
    def f(x: Any) -> Any:
        return fxgrad.shard_map(lambda x: lax.psum(lax.psum(x, "data"), "i"), mesh=ABSTRACT, in_specs=P("data"),
                                out_specs=P())(x)
    x = np.arange(24.0).reshape(3, 8)
    np.testing.assert_array_equal(fxgrad.vmap(f, axis_name="i")(x), np.tile(x.reshape(12, 2).sum(0), (3, 1)))


@pytest.mark.slow
def test_random_keys_and_loops_whose_length_varies() -> None:
    def noisy(key: Any, x: Any) -> Any:
        own = fxgrad.random.fold_in(key, lax.axis_index("data"))
        y = x + fxgrad.random.uniform(own, x.shape, "float64")
        return lax.while_loop(lambda c: fnp.sum(c) < 50.0, lambda c: c * 1.5 + 1.0, y)

    f = fxgrad.shard_map(noisy, mesh=AUTO, in_specs=(P(), P("data")), out_specs=P("data"))
    key = fxgrad.random.key(3)
    np.testing.assert_allclose(f(key, X), fxgrad.jit(f)(key, X), rtol=1e-12)
    slope = fxgrad.grad(lambda x: fnp.sum(fnp.sin(f(key, x))))
    np.testing.assert_allclose(slope(X), fxgrad.jit(slope)(X), rtol=1e-12)


@pytest.mark.slow
def test_prints_inside(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        fxgrad.debug.print("sum {}", x.sum())
        return x

    sharded = fxgrad.shard_map(f, mesh=AUTO, in_specs=P("data"), out_specs=P("data"))
    expected = [f"sum {piece.sum()}" for piece in X.round().reshape(4, 2, 4)]
    sharded(X.round())
    assert capsys.readouterr().out.splitlines() == expected
    fxgrad.grad(lambda x: fnp.sum(sharded(x)))(X.round())
    assert capsys.readouterr().out.splitlines() == expected
    fxgrad.block_until_ready(fxgrad.jit(sharded)(X.round()))
    jax.effects_barrier()
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(expected * 2)  # by every device


def test_arrays_of_no_elements_and_of_other_dtypes() -> None:
    double = fxgrad.shard_map(lambda x: lax.psum(x * 2, "model"), mesh=ABSTRACT, in_specs=P("data"),
                              out_specs=P("data"))
    for x in (np.zeros((0, 3)), np.arange(4, dtype=np.int8), np.ones(4, bool), fnp.ones(8, "bfloat16"),
              np.arange(4) * 1j):
        found = double(x)
        assert found.dtype == (x * 2).dtype
        np.testing.assert_array_equal(np.asarray(found), np.asarray(x * 4))


# --- programs ---------------------------------------------------------------------------------------------------


def test_programs_show_pieces_and_collectives_and_are_read_back() -> None:
    f = fxgrad.shard_map(loss, mesh=ABSTRACT, **SPECS)
    program = fxgrad.make_program(fxgrad.grad(f))(W, X)
    text = program_text(program, source=False)
    assert text == """\
program grad(shard_map(loss))(w: f64[4,2], x: f64[8,4]):
  d_w: f64[4,2] = shard_map(pieces(w, x: f64[2,4]{data}=x),
      mesh=MeshShape(names=("data", "model"), sizes=(4, 2), devices=None, platform=None),
      in_specs=(((), ()), (("data",), ())), out_specs=(((), ()),)):
    a: f64[2,2]{data} = tanh(x @ pvary(w, axis_name=("data",)))
    b = 1 - a * a
    d_w: f64[4,2] = psum_invariant(x.T @ (0.25:f64 * (a * 2) * b), axis_name=("data",),
        axis_size=(4,))
    return d_w
  return d_w"""
    assert equal(parse(text), program)
    np.testing.assert_allclose(parse(text)(W, X), SLOPES[0], rtol=1e-12)


def test_one_all_reduce_each_way() -> None:
    """Forward that of the loss, backward that of the gradient; XLA makes one of the two where both are asked for."""
    f = fxgrad.shard_map(loss, mesh=AUTO, **SPECS)
    for function, count in ((f, 1), (fxgrad.grad(f), 1), (fxgrad.value_and_grad(f), 1)):
        compiled = fxgrad.jit(function).lower(W, X).compile().as_text()
        assert compiled.count(" all-reduce(") + compiled.count(" all-reduce-start(") == count


# --- refused ----------------------------------------------------------------------------------------------------


def product(w: Any, x: Any) -> Any:
    return x @ w


def called(out_specs: Any, *in_specs: Any, f: Any = product, mesh: Any = ABSTRACT, **options: Any) -> None:
    fxgrad.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)(W, X)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: called(P(), P(), P("data")), errors.ArgumentError,
     ("shard_map: by out_specs output of product is the same for all devices along the mesh axis 'data', and it may "
      "differ. It depends on x, cut along 'data'. Make it equal, for example with fxgrad.lax.psum(..., 'data'), or "
      "name "
      "'data' in its spec")),
    (lambda: called(P(), P(None, None, "data"), P()), errors.ArgumentError,
     ("shard_map: in_specs has P(None, None, 'data') for the argument w, which has 3 entries, and the array has the "
      "type f64[4,2]; at most 2 entries are needed, one for each axis")),
    (lambda: called(P(), P(), P(None, ("data", "model"))), errors.ShapeError,
     ("shard_map: axis 1 of the argument x, of the type f64[8,4], is to be cut along the mesh axis 'data' and 'model' "
      "into 8 equal pieces, and its size 4 is not divisible by 8. Pad the array, or leave that axis whole")),
    (lambda: called(P(), P(), P("data", "data")), errors.ArgumentError,
     ("shard_map: in_specs has P('data', 'data') for the argument x; it names the mesh axis 'data' twice, and an axis "
      "cuts an array once")),
    (lambda: called(P(), P(), P("batch")), errors.ArgumentError,
     "shard_map: in_specs has P('batch',) for the argument x; the mesh (data: 4 x model: 2) has no axis 'batch'"),
    (lambda: called(P(), P(), P("data"), axis_names={"model"}), errors.ArgumentError,
     ("shard_map: in_specs has P('data',) for the argument x; the function is not mapped over the mesh axis 'data'. It "
      "is over 'model' (axis_names)")),
    (lambda: called(P(), P(), P(), axis_names={"batch"}), errors.ArgumentError,
     "shard_map: axis_names has 'batch', which the mesh (data: 4 x model: 2) has not"),
    (lambda: called(P(), P(), P(), mesh=None), errors.ArgumentError,
     ("shard_map: there is no mesh. Pass mesh=fxgrad.make_mesh((n,), ('data',)), or call it within `with "
      "jax.set_mesh(mesh):`")),
    (lambda: called(P(), P(), P(), mesh=(4, 2)), errors.ArgumentError,
     ("shard_map: mesh is a tuple ((4, 2)), where a mesh of devices is needed, such as fxgrad.make_mesh((8,), "
      "('data',)), or jax.sharding.AbstractMesh((8,), ('data',)) to run with NumPy")),
    (lambda: called(P(), P()), errors.ArgumentError,
     ("shard_map: in_specs has 1 entries, and product was called with 2 arguments; one spec for each is needed, or one "
      "for all")),
    (lambda: called(P(), P(), "data"), errors.ArgumentError,
     ("shard_map: in_specs holds 'data', where a PartitionSpec is needed, such as P('data'), or P() for an array "
      "that all devices hold whole")),
    (lambda: called((P(), P()), P(), P()), errors.TreeError,
     ("shard_map: out_specs has the structure PyTreeDef((*, *)), which is not a prefix of PyTreeDef(*). Write one "
      "PartitionSpec for all, or a container of the same structure")),
    (lambda: called(P(), P(), P(P.UNCONSTRAINED)), errors.ArgumentError,
     ("shard_map: in_specs has P(UNCONSTRAINED,) for the argument x; an axis of a piece is cut or whole, not "
      "unconstrained")),
    (lambda: fxgrad.shard_map(product, mesh=ABSTRACT, out_specs=P())(W, x=X), errors.ArgumentError,
     ("shard_map: product was called with the keyword arguments x, for which in_specs has no place. Pass all arguments "
      "by position")),
    (lambda: called(P(), P(), P(), f=lambda w, x: fxgrad.shard_map(product, mesh=ABSTRACT, in_specs=P(),
                                                                   out_specs=P())(w, x)), errors.ArgumentError,
     ("shard_map: the code is mapped over 'data', 'model' already, by a shard_map around it. Map over other axes of "
     "the "
      "mesh (axis_names)")),
    (lambda: called(P("data"), P(), P("data"), f=lambda w, x: lax.cond(
        x[0, 0] > 0, lambda: lax.psum(x, "data"), lambda: x), check_vma=False), errors.UnsupportedError,
     ("psum over 'data' is in a branch of a cond whose predicate varies over 'data': it would wait forever for devices "
      "over the same axis that do not reach it. Speak before the cond, and choose in it, or with fxgrad.numpy.where, "
      "what is used")),
    (lambda: lax.pcast(X, "data", to="varying"), errors.ArgumentError,
     ("pcast: there is no mapped axis named 'data' here; none is in scope. Call it inside a function under "
      "fxgrad.vmap(..., axis_name='data'), or fxgrad.shard_map over a mesh that has it")),
    (lambda: called(P(), P(), P(), f=lambda w, x: lax.pcast(x, "data", to="equal")), errors.ArgumentError,
     "pcast: to='equal', where 'varying' is needed. What varies is made equal by psum, pmax and their like"),
])
def test_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        call()
    text, _, place = str(caught.value).rpartition("\n  at ")
    assert text == message
    assert place.startswith("test_sharded_calls.py:")


def test_devices_that_are_not_there() -> None:
    program = fxgrad.make_program(fxgrad.shard_map(loss, mesh=AUTO, **SPECS))(W, X)
    far = parse(program_text(program, source=False).replace('devices="0-7"', 'devices="0-3,96-99"'))
    np.testing.assert_allclose(far(W, X), alone(W, X), rtol=1e-12)
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.jit(far)(W, X)
    assert str(caught.value).startswith(
        "a program for the mesh data: 4 x model: 2 needs the cpu devices 96, 97, 98, 99, and there are 8 here. Run it "
        "with as many devices as it was traced for (jax.config.update('jax_num_cpu_devices', n) gives n of the CPU), "
        "or with NumPy's arrays, which need none")


# --- without devices ----------------------------------------------------------------------------------------------


def test_programs_of_whole_arrays_and_files_of_numpy_alone() -> None:
    f = fxgrad.shard_map(lambda w, x: lax.scan(lambda c, _: (c + loss(w, x), None), 0.0, None, 2)[0], mesh=ABSTRACT,
                         **SPECS)
    program = fxgrad.make_program(fxgrad.grad(f))(W, X)
    whole = fxgrad.inline(program, devices=True)
    assert "shard_map(pieces" in str(program)
    assert "shard_map(pieces" not in str(whole)
    assert "psum" not in str(whole)
    np.testing.assert_allclose(whole(W, X), 2 * SLOPES[0], rtol=1e-12)
    space: dict[str, Any] = {}
    exec(program.to_python(), space)
    main, = [value for name, value in space.items() if name.startswith("grad_")]
    np.testing.assert_allclose(main(W, X), 2 * SLOPES[0], rtol=1e-12)


def test_keys_that_are_used_twice_on_a_device() -> None:
    def twice(key: Any) -> Any:
        return fxgrad.random.normal(key, (2,)) + fxgrad.random.normal(key, (2,))

    def once(key: Any) -> Any:
        own = fxgrad.random.fold_in(key, lax.axis_index("data"))
        return fxgrad.random.normal(own, (2,))

    key = fxgrad.random.key(0)
    fxgrad.debug.check_key_reuse(fxgrad.shard_map(once, mesh=ABSTRACT, in_specs=P(), out_specs=P("data")))(key)
    with pytest.raises(errors.KeyReuseError, match="a random key is used twice"):
        fxgrad.debug.check_key_reuse(fxgrad.shard_map(twice, mesh=ABSTRACT, in_specs=P(), out_specs=P()))(key)
