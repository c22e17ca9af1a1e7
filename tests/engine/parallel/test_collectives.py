"""Collectives under `vmap(axis_name=...)`: against jax, which is the oracle for values and derivatives."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.engine.parallel.collective import psum
from fxgrad.lax import collectives
from fxgrad.testing import check_grads

pytestmark = pytest.mark.slow  # jax, the oracle, compiles in every test; the laws and the examples are quick

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(3, 6, 3, 2))

# Functions of (the lax of either library, x[6, 3, 2]) over the axis "i" of size 3.
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "psum": lambda lax, x: lax.psum(x * x, "i"),
    "psum of a container": lambda lax, x: lax.psum({"a": x, "b": (x * x,)}, "i")["b"][0] * x,
    "psum of constants": lambda lax, x: x * lax.psum(2.0, "i") + lax.psum(1, "i") + lax.psum(np.arange(2.0), "i"),
    "pmean": lambda lax, x: lax.pmean(x * x, "i") * x,
    "ppermute": lambda lax, x: lax.ppermute(x * x, "i", [(0, 1), (1, 2), (2, 0)]),
    "pshuffle": lambda lax, x: lax.pshuffle(x * x, "i", [2, 0, 1]),
    "pswapaxes": lambda lax, x: lax.pswapaxes(x * x, "i", 1),
    "all_gather": lambda lax, x: lax.all_gather(x * x, "i"),
    "all_gather in the middle": lambda lax, x: lax.all_gather(x * x, "i", axis=2),
    "all_gather at the end": lambda lax, x: lax.all_gather(x * x, "i", axis=-1),
    "all_gather tiled": lambda lax, x: lax.all_gather(x * x, "i", axis=1, tiled=True),
    "psum_scatter": lambda lax, x: lax.psum_scatter(x * x, "i", scatter_dimension=1),
    "psum_scatter tiled": lambda lax, x: lax.psum_scatter(x * x, "i", scatter_dimension=0, tiled=True),
    "all_to_all": lambda lax, x: lax.all_to_all(x * x, "i", 1, 1),
    "all_to_all tiled": lambda lax, x: lax.all_to_all(x * x, "i", 0, 2, tiled=True),
    "all_to_all tiled backwards": lambda lax, x: lax.all_to_all(x * x, "i", 1, 0, tiled=True),
    "axis_index": lambda lax, x: x * lax.axis_index("i") + lax.axis_size("i"),
    "several": lambda lax, x: lax.psum(x, "i") * x + lax.all_gather(x, "i").sum(0) * lax.axis_index("i"),
}


Build = Callable[[Any, Any, Any], Callable[..., Any]]
"""What makes a function of a library, its NumPy and its lax."""


def both(build: Build, *args: Any, rtol: float = 1e-9, compiled: bool = False) -> None:
    """`build(library, numpy, lax)` is the same with fxgrad and jax; built again, the same bits if not compiled."""
    with jax.enable_x64(True):
        wanted = jax.jit(build(jax, jnp, jax.lax))(*args)  # one program to compile, not one for each operation
    hold(build, args, wanted, rtol, compiled)


def hold(build: Build, args: Sequence[Any], wanted: Any, rtol: float = 1e-9, compiled: bool = False) -> None:
    """What fxgrad computes is what is `wanted`; built again, the same bits if not compiled."""
    got = build(fxgrad, fnp, collectives)(*args)
    again = build(fxgrad, fnp, collectives)(*args)
    for one, two, three in zip(*map(jax.tree.leaves, (got, again, wanted)), strict=True):
        np.testing.assert_allclose(one, three, rtol, 1e-12)
        if compiled:  # what the first executable has for constants, the second takes as arguments
            np.testing.assert_allclose(one, two, 4 * np.finfo(np.float64).eps, 0.0)
        else:
            np.testing.assert_array_equal(one, two)
        assert one.dtype == three.dtype


def mapped(library: Any, lax: Any, name: str, axis: int) -> Callable[[Any], Any]:
    return library.vmap(lambda x: CASES[name](lax, x), in_axes=axis, axis_name="i")


def builds(name: str, axis: int) -> dict[str, tuple[Build, Any]]:
    """What is held to jax of a case, each with its argument."""
    x, pairs = np.moveaxis(X, 0, axis), np.stack([X, 2 * X])

    def gradient_of_the_map(library: Any, numpy: Any, lax: Any) -> Callable[[Any], Any]:
        return library.grad(lambda x: numpy.sum(numpy.sin(mapped(library, lax, name, axis)(x))))

    def map_of_gradients(library: Any, numpy: Any, lax: Any) -> Callable[[Any], Any]:
        return library.vmap(library.grad(lambda x: numpy.sum(numpy.sin(CASES[name](lax, x)))), in_axes=axis,
                            axis_name="i")

    def second_order(library: Any, numpy: Any, lax: Any) -> Callable[[Any], Any]:
        inner = library.grad(lambda x: numpy.sum(numpy.sin(CASES[name](lax, x))))
        return library.vmap(lambda x: library.jvp(inner, (x,), (numpy.cos(x),)), in_axes=axis, axis_name="i")

    def outside(library: Any, _: Any, lax: Any) -> Callable[[Any], Any]:
        return library.vmap(mapped(library, lax, name, axis), in_axes=1 if axis else 0, axis_name="j")

    def inside(library: Any, _: Any, lax: Any) -> Callable[[Any], Any]:
        rows = library.vmap(lambda x: CASES[name](lax, x), axis_name="j")
        return library.vmap(rows, in_axes=1, axis_name="i")

    return {
        "values": (lambda library, _, lax: mapped(library, lax, name, axis), x),
        "compiled": (lambda library, _, lax: library.jit(mapped(library, lax, name, axis)), x),
        "jit inside": (lambda library, _, lax: library.vmap(library.jit(lambda x: CASES[name](lax, x)), in_axes=axis,
                                                            axis_name="i"), x),
        "gradient of the map": (gradient_of_the_map, x), "map of gradients": (map_of_gradients, x),
        "second order": (second_order, x),
        "outside": (outside, np.moveaxis(pairs, (0, 1), (1 if axis else 0, 3 if axis else 1))),
        "inside": (inside, pairs),
    }


@functools.cache
def of_jax(name: str, axis: int) -> dict[str, Any]:
    """What jax computes for `builds`, compiled as one program."""
    asked = builds(name, axis)
    with jax.enable_x64(True):
        return jax.jit(lambda xs: {what: build(jax, jnp, jax.lax)(xs[what]) for what, (build, _) in asked.items()})(
            {what: x for what, (_, x) in asked.items()})


@pytest.mark.parametrize("axis", [0, 2])
@pytest.mark.parametrize("name", CASES)
class TestAgainstJax:
    def hold(self, name: str, axis: int, *kinds: str) -> None:
        for kind in kinds:
            build, x = builds(name, axis)[kind]
            hold(build, [x], of_jax(name, axis)[kind], compiled=kind == "compiled")

    def test_values(self, name: str, axis: int) -> None:
        self.hold(name, axis, "values", "compiled")

    def test_jit_inside(self, name: str, axis: int) -> None:
        self.hold(name, axis, "jit inside")

    def test_gradient_of_the_map(self, name: str, axis: int) -> None:
        self.hold(name, axis, "gradient of the map")

    def test_map_of_gradients(self, name: str, axis: int) -> None:
        self.hold(name, axis, "map of gradients")

    def test_second_order(self, name: str, axis: int) -> None:
        self.hold(name, axis, "second order")

    def test_another_axis_inside_and_outside(self, name: str, axis: int) -> None:
        if name in ("axis_index", "psum of constants") and axis:
            pytest.skip("one position is enough where the other axis does not matter")
        self.hold(name, axis, "outside", "inside")


@pytest.mark.parametrize(("split", "concat"), [(1, 0), (1, 2), (0, 1)])
def test_all_to_all_where_jax_has_no_derivative(split: int, concat: int) -> None:
    x = np.moveaxis(X, 1, 2) if split == 0 else X
    x = x if split else RANDOM.normal(size=(3, 3, 4))
    both(lambda library, _, lax: library.vmap(lambda x: lax.all_to_all(x, "i", split, concat), axis_name="i"), x)
    check_grads(fxgrad.vmap(lambda x: collectives.all_to_all(x * x, "i", split, concat), axis_name="i"), (x,), order=2)


def test_ppermute_fills_with_zeros() -> None:
    shift = fxgrad.vmap(lambda x: collectives.ppermute(x * x, "i", [(1, 0), (2, 1)]), axis_name="i")
    np.testing.assert_array_equal(shift(np.array([1.0, 2.0, 3.0])), [4.0, 9.0, 0.0])
    check_grads(shift, (np.array([1.0, 2.0, 3.0]),), order=2)


def test_pbroadcast() -> None:
    mapped = fxgrad.vmap(lambda x: collectives.pbroadcast(x * x, "i", 1), axis_name="i")
    np.testing.assert_array_equal(mapped(np.array([1.0, 2.0, 3.0])), [4.0, 4.0, 4.0])
    np.testing.assert_array_equal(fxgrad.grad(lambda x: np.sum(mapped(x)))(np.array([1.0, 2.0, 3.0])), [0, 12, 0])


@pytest.mark.parametrize("name", ["pmax", "pmin"])
def test_extrema(name: str) -> None:
    both(lambda library, _, lax: library.vmap(lambda x: getattr(lax, name)(x, "i"), axis_name="i"), X)
    mapped = fxgrad.vmap(lambda x: getattr(collectives, name)(x * x, "i") * x, axis_name="i")
    check_grads(mapped, (X[:, 0, 0],), order=2)
    # Entries that attain it together share the derivative, as the elements of an array do.
    ties = np.array([2.0, 1.0, 2.0, 1.0])
    reduce = {"pmax": fnp.max, "pmin": fnp.min}[name]
    mapped = fxgrad.vmap(lambda x: getattr(collectives, name)(x, "i"), axis_name="i", out_axes=None)
    np.testing.assert_array_equal(fxgrad.grad(mapped)(ties), fxgrad.grad(reduce)(ties))


@pytest.mark.parametrize("name", ["psum", "pmean", "pmax"])
def test_dtypes(name: str) -> None:
    for dtype in ("float32", "int32", "complex64", "bool", "uint8"):
        if (name, dtype) == ("pmax", "complex64"):
            continue
        x = np.array([0, 1, 1]).astype(dtype)
        got = fxgrad.vmap(lambda x: getattr(collectives, name)(x, "i"), axis_name="i")(x)
        wanted = jax.vmap(lambda x: getattr(jax.lax, name)(x, "i"), axis_name="i")(x)
        np.testing.assert_allclose(got, wanted, 1e-6)
        assert got.dtype == wanted.dtype


# --- several axes, and the programs inside ------------------------------------------------------------------------


@pytest.mark.parametrize("collective", [
    lambda lax, x: lax.psum(x, ("i", "j")) * x,
    lambda lax, x: lax.pmean(x * x, ("j", "i")) * x,
    lambda lax, x: lax.psum(lax.psum(x, "i") * x, "j") * x,
    lambda lax, x: x * lax.axis_index(("i", "j")) + lax.axis_size(("i", "j")),
    lambda lax, x: x * (10 * lax.axis_index("i") + lax.axis_index("j")),
    lambda lax, x: lax.ppermute(x, "j", [(0, 1), (1, 2), (2, 0)]) * lax.psum(x, "i"),
])
def test_two_axes(collective: Callable[[Any, Any], Any]) -> None:
    x = RANDOM.normal(size=(2, 3, 4))

    def build(library: Any, numpy: Any, lax: Any) -> Callable[[Any], Any]:
        rows = library.vmap(lambda x: collective(lax, x), axis_name="j")
        return library.vmap(rows, axis_name="i")
    both(build, x)
    both(lambda library, numpy, lax: library.grad(lambda x: numpy.sum(build(library, numpy, lax)(x) ** 2)), x)


def test_gathers_over_two_axes() -> None:
    x = RANDOM.normal(size=(2, 3, 12, 5))

    def over(collective: Callable[[Any], Any]) -> Any:
        return fxgrad.vmap(fxgrad.vmap(collective, axis_name="j"), axis_name="i")(x)
    np.testing.assert_array_equal(over(lambda x: collectives.all_gather(x, ("i", "j"), axis=1))[1, 2],
                                  np.moveaxis(x.reshape(6, 12, 5), 0, 1))
    np.testing.assert_array_equal(over(lambda x: collectives.all_gather(x, ("j", "i"), tiled=True))[0, 1],
                                  np.concatenate([x[i, j] for j in range(3) for i in range(2)]))
    pieces = over(lambda x: collectives.psum_scatter(x, ("i", "j"), tiled=True))
    np.testing.assert_allclose(pieces.reshape(12, 5), x.sum((0, 1)), rtol=1e-12)


@pytest.mark.parametrize("names", [("i", "j"), ("j", "i")])
def test_moves_over_two_axes(names: tuple[str, str]) -> None:
    """As over one axis of all entries, of which the first name changes slowest."""
    x = RANDOM.normal(size=(2, 3, 12, 6))
    perm = [(0, 4), (1, 0), (4, 2), (3, 5), (5, 1)]

    def over(name: Any) -> Callable[[Any], Any]:
        return lambda x: (collectives.ppermute(x * x, name, perm), collectives.pshuffle(x, name, [3, 1, 5, 0, 4, 2]),
                          collectives.all_to_all(x * x, name, 0, 1, tiled=True), collectives.all_to_all(x, name, 1, 1),
                          collectives.all_to_all(x, name, 1, 0, tiled=True))

    def on_two(x: Any) -> Any:
        return fxgrad.vmap(fxgrad.vmap(over(names), axis_name="j"), axis_name="i")(x)

    def on_one(x: Any) -> Any:
        turned = x if names == ("i", "j") else fnp.swapaxes(x, 0, 1)
        parts = fxgrad.vmap(over("k"), axis_name="k")(turned.reshape(6, 12, 6))
        apart = [part.reshape(*turned.shape[:2], *part.shape[1:]) for part in parts]
        return tuple(apart if names == ("i", "j") else [fnp.swapaxes(part, 0, 1) for part in apart])

    for one, two in zip(on_two(x), on_one(x), strict=True):
        np.testing.assert_array_equal(one, two)
    slopes = [fxgrad.grad(lambda x, f=f: sum(np.sum(np.sin(part)) for part in f(x)))(x) for f in (on_two, on_one)]
    np.testing.assert_allclose(*slopes, 1e-12)


def test_moves_over_mapped_and_mesh_axes() -> None:
    """One of three axes is that of a vmap: entries move as where all three are mapped."""
    x = RANDOM.normal(size=(2, 2, 2, 3))
    perm = [(0, 5), (5, 3), (3, 0), (1, 6), (7, 2)]
    spec = fxgrad.sharding.PartitionSpec
    mesh = jax.make_mesh((2, 2), ("a", "b"))
    for names in itertools.permutations("vab"):
        def move(piece: Any, names: Any = names) -> Any:
            return collectives.ppermute(piece * piece, names, perm)

        def on_devices(x: Any, move: Any = move) -> Any:
            return fxgrad.shard_map(lambda x: fxgrad.vmap(move, in_axes=2, out_axes=2, axis_name="v")(x), mesh=mesh,
                                    in_specs=spec("a", "b"), out_specs=spec("a", "b"))(x)

        mapped = move
        for name, axis in (("v", 0), ("b", 0), ("a", 0)):
            mapped = fxgrad.vmap(mapped, axis_name=name, in_axes=axis)
        np.testing.assert_array_equal(fxgrad.jit(on_devices)(x), mapped(x), str(names))


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_moves_over_mesh_axes_count_entries_in_the_order_of_the_mesh(names: tuple[str, str]) -> None:
    """So does jax, whatever the order of the names is."""
    perm, spec = [(0, 3), (3, 1), (4, 2)], fxgrad.sharding.PartitionSpec(("a", "b"))

    def move(x: Any) -> Any:
        return collectives.ppermute(x, names, perm), collectives.pshuffle(x, names, [3, 1, 5, 0, 4, 2])

    moved = fxgrad.shard_map(move, mesh=jax.make_mesh((2, 3), ("a", "b")), in_specs=spec, out_specs=spec)
    x = np.arange(1.0, 7.0)
    for values in (moved(x), fxgrad.jit(moved)(x)):
        np.testing.assert_array_equal(values, [[0, 4, 5, 1, 0, 0], x[[3, 1, 5, 0, 4, 2]]])


def in_bodies(library: Any, numpy: Any, lax: Any, name: str) -> Callable[[Any], Any]:
    """Functions that have a collective in a program of their own."""
    control = fxgrad.lax if library is fxgrad else jax.lax

    def scan(x: Any) -> Any:
        return control.scan(lambda c, e: (numpy.sin(c) + lax.psum(c * e, "i"), lax.pmean(c, "i")), x,
                            np.array([0.5, 2.0]))

    def unmapped(x: Any) -> Any:
        return control.fori_loop(0, 3, lambda k, c: c + lax.axis_index("i") * 1.0, 0.0) * x

    def rule_of(function: Any) -> Any:
        wrapped = library.custom_vjp(function)
        wrapped.defvjp(lambda x: (function(x), x), lambda x, ct: (lax.pmean(ct * x, "i") * lax.axis_size("i"),))
        return wrapped

    jvp_rule = library.custom_jvp(lambda x: x * x)
    jvp_rule.defjvp(lambda primals, tangents: (primals[0] ** 2, lax.psum(tangents[0] * primals[0], "i")))
    return {
        "scan": scan, "unmapped": unmapped,
        "cond": lambda x: control.cond(x > 0.5, lambda x: numpy.sin(x), lambda x: x * x, x) + control.cond(
            True, lambda x: lax.psum(x, "i"), lambda x: x, x),
        "cond on a constant": lambda x: x * control.cond(True, lambda: lax.psum(x * 0 + 1, "i"), lambda: 1.0 + 0 * x),
        "checkpoint": library.checkpoint(lambda x: numpy.sin(lax.psum(numpy.sin(x), "i")) * x),
        "jit": library.jit(lambda x: numpy.sin(lax.psum(numpy.sin(x), "i")) * x),
        "jit of a constant": lambda x: x * library.jit(lambda k: k * lax.axis_index("i") + lax.psum(k, "i"))(2.0),
        "custom_vjp": rule_of(lambda x: x * 3.0),
        "custom_jvp": jvp_rule,
    }[name]


@pytest.mark.parametrize("name", ["scan", "unmapped", "cond", "cond on a constant", "checkpoint", "jit",
                                  "jit of a constant", "custom_vjp", "custom_jvp"])
def test_programs_inside(name: str) -> None:
    x = np.array([0.3, 0.6, 0.9])

    def mapped(library: Any, numpy: Any, lax: Any) -> Callable[[Any], Any]:
        return library.vmap(in_bodies(library, numpy, lax, name), axis_name="i")

    def total(library: Any, numpy: Any, lax: Any, function: Any) -> Callable[[Any], Any]:
        return lambda x: sum(numpy.sum(numpy.sin(leaf)) for leaf in jax.tree.leaves(function(x)))

    both(mapped, x)
    both(lambda library, numpy, lax: library.jit(mapped(library, numpy, lax)), x, compiled=True)
    if name == "custom_vjp":  # of which jax does not find the axis any more
        slope = fxgrad.grad(lambda x: np.sum(np.sin(mapped(fxgrad, fnp, collectives)(x))))(x)
        np.testing.assert_allclose(slope, [np.sum(np.cos(3 * x) * x)] * 3, rtol=1e-12)
    else:
        both(lambda library, numpy, lax: library.grad(total(library, numpy, lax, mapped(library, numpy, lax))), x)
    both(lambda library, numpy, lax: library.vmap(library.grad(total(
        library, numpy, lax, in_bodies(library, numpy, lax, name))), axis_name="i"), x)
    both(lambda library, numpy, lax: library.vmap(lambda x: library.vmap(
        in_bodies(library, numpy, lax, name), axis_name="i")(x * np.array([1.0, 2.0])), axis_name="j"), x)


def test_a_while_loop_that_asks_all_entries() -> None:
    def build(library: Any, _: Any, lax: Any) -> Callable[[Any], Any]:
        control = fxgrad.lax if library is fxgrad else jax.lax
        return library.vmap(lambda x: control.while_loop(
            lambda c: lax.psum(c, "i") < 50.0, lambda c: c * 2.0 + lax.axis_index("i"), x), axis_name="i")
    both(build, np.array([0.3, 0.6, 0.9]))


def test_a_rule_is_not_remembered_for_another_size() -> None:
    """The program of the plain function is the same for every size; only its rule asks for the size."""
    @fxgrad.custom_vjp
    def synchronised(x: Any) -> Any:
        return x * 1.0
    synchronised.defvjp(lambda x: (x * 1.0, None), lambda _, ct: (collectives.pmean(ct, "i"),))
    slopes = fxgrad.vmap(fxgrad.grad(lambda x: synchronised(x) * x), axis_name="i")
    for size in (3, 4, 3):
        x = np.arange(size) + 1.0
        np.testing.assert_allclose(slopes(x), x + x.mean(), rtol=1e-12)


def test_a_jitted_constant_is_not_remembered_for_another_size() -> None:
    sizes = fxgrad.jit(lambda k: k * collectives.axis_size("i"))
    for size in (3, 4, 3):
        np.testing.assert_array_equal(fxgrad.vmap(lambda x: x + sizes(2.0), axis_name="i")(np.zeros(size)), 2.0 * size)


def test_a_name_belongs_to_one_map() -> None:
    """The batched programs of one function under two names are not mixed up."""
    x = np.arange(9.0).reshape(3, 3)
    def function(x: Any) -> Any:
        return collectives.psum(x, "i") * x
    rows = fxgrad.vmap(fxgrad.vmap(function, axis_name="j"), axis_name="i")(x)
    columns = fxgrad.vmap(fxgrad.vmap(function, axis_name="i"), axis_name="j")(x)
    np.testing.assert_array_equal(rows, x * x.sum(0, keepdims=True))
    np.testing.assert_array_equal(columns, x * x.sum(1, keepdims=True))


def test_results_without_the_axis() -> None:
    total = fxgrad.vmap(lambda x: collectives.psum(x, "i"), out_axes=None, axis_name="i")
    assert total(np.array([1.0, 2.0])) == 3.0
    positions = fxgrad.vmap(lambda x: collectives.axis_index("i"), in_axes=None, axis_name="i", axis_size=3)
    np.testing.assert_array_equal(positions(1.0), [0, 1, 2])
    assert fxgrad.vmap(lambda x: collectives.psum(x, "i"), axis_name="i")(np.zeros((0, 2))).shape == (0, 2)


def test_pythons_control_flow_under_grad_inside() -> None:
    def f(x: Any) -> Any:
        return fxgrad.grad(lambda y: y * y if y > 2.0 else -y)(3.0) * x + collectives.psum(x, "i")
    np.testing.assert_array_equal(fxgrad.vmap(f, axis_name="i")(np.array([1.0, 2.0])), [9.0, 15.0])


# --- errors -----------------------------------------------------------------------------------------------------


def vmapped(function: Callable[[Any], Any], **options: Any) -> Any:
    return fxgrad.vmap(function, **{"axis_name": "i", **options})(np.ones((3, 2)))


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: collectives.psum(1.0, "i"), errors.ArgumentError,
     ("psum: there is no mapped axis named 'i' here; none is in scope. Call it inside a function under "
      "fxgrad.vmap(..., axis_name='i'), or fxgrad.shard_map over a mesh that has it")),
    (lambda: vmapped(lambda x: collectives.axis_index("k")), errors.ArgumentError,
     ("axis_index: there is no mapped axis named 'k' here; those in scope are 'i'. Call it inside a function under "
      "fxgrad.vmap(..., axis_name='k'), or fxgrad.shard_map over a mesh that has it")),
    (lambda: fxgrad.shard_map(lambda x: collectives.psum(x, "j"), mesh=AbstractMesh((3, 2), ("i", "j")), axis_names="i",
                              in_specs=PartitionSpec("i"), out_specs=PartitionSpec("i"))(np.ones(3)),
     errors.ArgumentError,
     ("psum: the function is not mapped over the mesh axis 'j', but over 'i': 'j' is left to the compiler. Name it in "
      "axis_names of shard_map too")),
    (lambda: vmapped(lambda x: collectives.psum(x, 0)), errors.ArgumentError,
     ("psum: axis_name is 0, where the name of a mapped axis is needed, or a tuple of names. The axes of an array "
      "itself are reduced with fxgrad.numpy.sum(x, axis=0) and its like")),
    (lambda: vmapped(lambda x: collectives.psum(x, ("i", "i"))), errors.ArgumentError,
     "psum: axis_name=('i', 'i') says an axis twice; name each one once"),
    (lambda: vmapped(lambda x: collectives.psum(x, "i", axis_index_groups=[[0], [1]])), errors.ArgumentError,
     ("psum: axis_index_groups=[[0], [1]] over an axis of size 3; each position from 0 to 2 is needed in one of the "
      "groups, and 2 is in none")),
    (lambda: vmapped(lambda x: collectives.pmax(x, "i", axis_index_groups=[[0, 1], [1, 2]])), errors.ArgumentError,
     ("pmax: axis_index_groups=[[0, 1], [1, 2]] over an axis of size 3; each position from 0 to 2 is needed in one of "
      "the groups, and 1 is in more than one")),
    (lambda: vmapped(lambda x: collectives.pmean(x, "i", axis_index_groups=[[0, 1], [2, 3]])), errors.ArgumentError,
     ("psum: axis_index_groups=[[0, 1], [2, 3]] over an axis of size 3; each position from 0 to 2 is needed in one of "
      "the groups, and 3 is none of them")),
    (lambda: vmapped(lambda x: collectives.all_gather(x, "i", axis_index_groups=[[0], [1, 2]])), errors.ArgumentError,
     ("all_gather: axis_index_groups=[[0], [1, 2]] have 1 and 2 entries, where groups of one size are needed, since "
      "what each entry gets has the same shape")),
    (lambda: fxgrad.vmap(lambda x: collectives.all_to_all(x, "i", 0, 0, axis_index_groups=[[0, 2], [1, 3]]),
                         axis_name="i")(np.ones((4, 3))), errors.ShapeError,
     ("all_to_all: split_axis=0 of an array of shape (3,) has size 3, and each of the axis_index_groups of the mapped "
      "axis 'i' has size 2. Equal sizes are needed; with tiled=True, a multiple")),
    (lambda: fxgrad.vmap(lambda x: vmapped(lambda y: collectives.psum(y, ("i", "j"), axis_index_groups=[[0]])),
                         axis_name="j")(np.ones(2)), errors.UnsupportedError,
     ("psum: axis_index_groups over the axes 'i', 'j'; over one axis alone there are groups. Map over one axis of all "
      "the entries instead")),
    (lambda: vmapped(lambda x: collectives.ppermute(x, "i", [(0, 3)])), errors.ArgumentError,
     ("ppermute: perm=((0, 3),) over an axis of size 3; pairs (source, target) are needed, each entry from 0 to 2 "
      "at most once as a source and at most once as a target")),
    (lambda: vmapped(lambda x: collectives.pshuffle(x, "i", [0, 0, 1])), errors.ArgumentError,
     "pshuffle: perm=[0, 0, 1] is not a permutation of 0 to 2, the positions along the axis 'i'"),
    (lambda: vmapped(lambda x: collectives.pbroadcast(x, "i", 3)), errors.ArgumentError,
     "pbroadcast: source=3 along the axis 'i' of size 3; a position from 0 to 2 is needed"),
    (lambda: vmapped(lambda x: collectives.psum_scatter(x, "i")), errors.ShapeError,
     ("psum_scatter: scatter_dimension=0 of an array of shape (2,) has size 2, and the mapped axis 'i' has size 3. "
      "Equal sizes are needed; with tiled=True, a multiple")),
    (lambda: vmapped(lambda x: collectives.psum_scatter(x, "i", tiled=True)), errors.ShapeError,
     ("psum_scatter: axis 0 of an array of shape (2,) is to be cut into 3 equal pieces, one for each entry of the "
      "mapped axis, and 2 is not divisible by 3. Pad the axis")),
    (lambda: vmapped(lambda x: collectives.all_gather(x, "i", to="reduced")), errors.ArgumentError,
     "all_gather: to='reduced', where 'varying' or 'invarying' is needed"),
    (lambda: vmapped(lambda x: collectives.all_gather(x, "i", to="invarying", axis_index_groups=[[0], [1], [2]])),
     errors.ArgumentError,
     ("all_gather: to='invarying' with axis_index_groups, of which each gets something else. Leave out one of the "
      "two")),
    (lambda: vmapped(lambda x: collectives.pmax(x + 0j, "i")), errors.DTypeError,
     "pmax: not defined for complex128; it takes ordered dtypes. Convert first, for example x.astype('float32')"),
    (lambda: vmapped(lambda x: x, axis_name=3), errors.ArgumentError,
     "vmap: axis_name is a int (3), where a string is needed, such as axis_name='i'"),
    (lambda: vmapped(lambda x: x, chunk_size=2), errors.ArgumentError,
     ("vmap: axis_name='i' with chunk_size=2: entries that communicate must be computed at once. Leave "
      "out one of the two")),
    (lambda: psum(np.ones(2), "i", 3), errors.UnsupportedError,
     ("psum over the axis 'i' of size 3 was to be computed outside of the map over that axis. Call it inside a "
      "function under fxgrad.vmap(..., axis_name='i'), or fxgrad.shard_map over a mesh that has it")),
])
def test_messages(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}(\n  at .*)?$"):
        call()
