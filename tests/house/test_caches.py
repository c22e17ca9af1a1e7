"""Every cache, tested with everything varied that its key might omit; docs/appendix/caches.md lists them."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine import caches
from fxgrad.engine.api import executables, plans
from fxgrad.engine.caches import Cache, CacheInfo, cache_info
from fxgrad.engine.core import program_properties
from fxgrad.engine.core.cache_keys import cache_key
from fxgrad.engine.core.primitive import NOT_LINEAR, Cost, Primitive
from fxgrad.engine.derivation import derive, guards
from fxgrad.engine.tracing import interning, trace
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.transparency import replays

X = np.array([0.5, 2.0])
EQUAL = [1, 1.0, True, np.float64(1), np.float32(1), np.int64(1), np.bool_(True), 1 + 0j, 0.0, -0.0, 0, False,
         complex(0.0, -0.0), float("nan"), (1,), (1.0,), (True,), (0.0,), (-0.0,), ((1,), 0), ((1.0,), False),
         "1", None]
"""Values, many of which are equal although no two are identical."""


class Alike:
    """An object that is equal to all others of its class."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(self) -> int:
        return 7

    def __call__(self, x: Any) -> Any:
        return x * self.value


def test_cache_keys() -> None:
    keys = [cache_key(value) for value in EQUAL]
    for place, key in enumerate(keys):
        assert [key == other for other in keys] == [index == place for index in range(len(keys))], EQUAL[place]
    assert [cache_key(value) for value in EQUAL] == keys
    assert cache_key(Alike(1.0)) != cache_key(Alike(1.0))
    one = Alike(1.0)
    assert cache_key(one) == cache_key(one)
    assert cache_key([1]) != cache_key([1])
    assert cache_key(slice(1, 2)) == cache_key(slice(1, 2)) != cache_key(slice(1.0, 2))


# --- each dimension of a key, on each path ----------------------------------------------------------------------------

PATHS: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "grad": lambda f: fxgrad.grad(lambda x: np.sum(f(x))),
    "vjp": lambda f: lambda x: fxgrad.vjp(f, x)[1](np.ones_like(x))[0],
    "jvp": lambda f: lambda x: fxgrad.jvp(f, (x,), (np.ones_like(x),))[1],
    "linearize": lambda f: lambda x: fxgrad.linearize(f, x)[1](np.ones_like(x)),
    "vmap": lambda f: lambda x: fxgrad.vmap(fxgrad.grad(f))(x),
    "new jit": lambda f: lambda x: fxgrad.jit(lambda x: fxgrad.grad(lambda x: np.sum(f(x)))(x))(x),
}
CALLS = 3


def in_turn(values: list[Any]) -> list[Any]:
    """Return the values three times over, for first calls, generated code, and the fast path afterwards."""
    return [value for value in values for _ in range(CALLS)] + values


@pytest.mark.parametrize("path", PATHS)
def test_closures_and_globals(path: str) -> None:
    k: Any = None
    derivative = PATHS[path](lambda x: x * k)
    for k in in_turn([2.0, 3, 0.0, -0.0, 1.0, np.float32(5.0), np.float64(7.0), np.array([2.0, 3.0])[1]]):
        expected = np.full(2, float(k))
        got = np.asarray(derivative(X))
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


@pytest.mark.parametrize("path", PATHS)
def test_captured_arrays_are_told_apart_to_the_bit(path: str) -> None:
    k = np.ones(2)
    derivative = PATHS[path](lambda x: np.copysign(x * 1.0, 1.0) * k[0] if path == "vmap" else x * k)
    for value in in_turn([2.0, 0.0, -0.0, np.nan, 1.0]):
        k[:] = value
        got = np.asarray(derivative(X))
        np.testing.assert_array_equal(got, np.full(2, value))
        assert np.isnan(value) or (np.signbit(got) == np.signbit(value)).all()


@pytest.mark.parametrize("kind", [np.ndarray, np.memmap, np.recarray])
def test_arrays_of_other_kinds_that_change_while_they_are_traced(kind: Any, tmp_path: Any) -> None:
    if kind is np.memmap:
        a: Any = np.memmap(tmp_path / "m.bin", dtype="f8", mode="w+", shape=(2,))
    else:
        a = np.ones(2).view(kind)

    def function(x: Any) -> Any:
        y = np.sum(x * a)
        a[...] = 10.0
        return y + np.sum(x * a)

    for _ in range(CALLS):
        a[...] = 1.0
        np.testing.assert_array_equal(fxgrad.grad(function)(np.ones(2)), [11.0, 11.0])


def test_a_captured_zero_that_changes_its_sign_within_a_recording() -> None:
    a = np.array([0.0])

    def function(x: Any) -> Any:
        y = np.sum(x * a)
        a[...] = -0.0
        return y + np.sum(np.arctan2(a * x, -x))

    for _ in range(CALLS):
        a[...] = 0.0
        assert fxgrad.value_and_grad(function)(np.ones(1))[0] == -np.pi


@pytest.mark.usefixtures("fresh_tables")
def test_captured_nans_do_not_grow_the_program() -> None:
    a = np.array([np.nan, 1.0])
    program = fxgrad.make_program(fxgrad.grad(lambda x: np.sum(x * a) + np.sum(x * a * a)))(X)
    assert program.captured == 1


def test_types_and_weakness_of_arguments() -> None:
    slope = fxgrad.grad(lambda x: x * np.float32(2.0))
    square = fxgrad.jit(lambda x: x * np.ones(2, np.float32))
    for value in in_turn([np.float32(3.0), np.float64(3.0), np.float16(3.0)]):
        assert slope(value) == 2.0
        assert slope(value).dtype == value.dtype
    for value, dtype in in_turn([(3.0, np.float32), (np.ones(2), np.float64), (np.ones(2, np.float32), np.float32)]):
        assert square(value).dtype == dtype  # a Python float is weak


def test_default_dtype_on_every_path() -> None:
    functions = [fxgrad.grad(lambda x: x * fnp.ones(())), fxgrad.jit(lambda x: fnp.zeros(2) + x.astype("float16")),
                 fxgrad.vmap(lambda x: np.mean((x > 1.0).astype("int32")))]
    args = [np.float16(1.0), np.float16(1.0), np.ones((3, 2))]
    for dtype in in_turn(["float32", "float64", "float32"]):
        with fxgrad.default_dtype(dtype):
            assert functions[1](args[1]).dtype == dtype
            assert functions[2](args[2]).dtype == dtype
            assert fxgrad.make_program(functions[0])(args[0]).out_avals[0].dtype == np.float16


@pytest.mark.parametrize("wide", [False, True])
def test_x64_flag_of_jax(wide: bool) -> None:
    compiled = fxgrad.jit(lambda x: np.sin(x) * 2.0)
    for flag in in_turn([wide, not wide]):
        with jax.enable_x64(flag):
            for x in (X, X.astype(np.float32)):
                assert compiled(x).dtype == x.dtype
                assert fxgrad.grad(lambda x: np.sum(np.sin(x)))(x).dtype == x.dtype


def test_mapped_axes() -> None:
    def function(x: Any) -> Any:
        return fxgrad.lax.psum(x, "i") + fxgrad.lax.axis_index("i") * 0.0

    for size in in_turn([2, 3]):
        np.testing.assert_array_equal(fxgrad.vmap(function, axis_name="i")(np.ones(size)), np.full(size, size))
        two = fxgrad.vmap(fxgrad.vmap(function, axis_name="i"), axis_name="j")(np.ones((4, size)))
        np.testing.assert_array_equal(two, np.full((4, size), size))
        other = fxgrad.vmap(fxgrad.vmap(function, axis_name="j"), axis_name="i")(np.ones((size, 4)))
        np.testing.assert_array_equal(other, np.full((size, 4), size))


def test_threads() -> None:
    failures: list[Any] = []

    def work(dtype: str, k: float) -> None:
        with fxgrad.default_dtype(dtype):
            for _ in range(20):
                value = fxgrad.grad(lambda x: np.sum(x * k + fnp.zeros(2)))(X)
                if not np.array_equal(value, [k, k]) or fxgrad.jit(lambda: fnp.zeros(2))().dtype != dtype:
                    failures.append((dtype, k))

    threads = [threading.Thread(target=work, args=(dtype, k)) for dtype in ("float32", "float64") for k in (2.0, 3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# --- parameters and static arguments ----------------------------------------------------------------------------------


def reporting() -> tuple[Primitive, list[Any]]:
    """Return a primitive whose value tells which parameter it was given."""
    def number(value: Any) -> float:
        return float(next(place for place, each in enumerate(EQUAL) if each is value))

    tagged_p = Primitive(
        name="tagged", abstract=lambda x, *, tag: [x], numpy=lambda x, *, tag: [x * 0.0 + number(tag)],
        xla=lambda lax, x, *, tag: [x * 0.0 + number(tag)],
        jvp=lambda primals, tangents, *, tag: (bind(tagged_p, *primals, tag=tag), [tangents[0] * number(tag)]),
        transpose=NOT_LINEAR, batch=lambda size, values, axes, *, tag: (bind(tagged_p, *values, tag=tag), axes),
        cost=lambda x, *, tag: Cost(1, 1))
    return tagged_p, [*range(len(EQUAL))]


def test_parameters_of_user_primitives() -> None:
    tagged_p, places = reporting()
    for place in in_turn(places):
        value = EQUAL[place]

        def function(x: Any, value: Any = value) -> Any:
            return bind(tagged_p, x, tag=value)[0]

        assert fxgrad.value_and_grad(function)(np.float64(1.0)) == (place, place)
        assert fxgrad.make_program(lambda x, f=function: f(x) - f(x))(1.0)(1.0) == 0.0
        np.testing.assert_array_equal(fxgrad.vmap(function)(X), [place, place])
    jitted = fxgrad.jit(lambda x: [bind(tagged_p, x, tag=value)[0] for value in EQUAL])
    assert [float(value) for value in jitted(np.float64(1.0))] == places


def test_static_arguments_of_jit_are_told_apart_as_by_jax() -> None:
    for maker in (jax.jit, fxgrad.jit):
        def once(maker: Any = maker) -> Any:
            return maker(lambda tag, x: x * {int: 2.0, bool: 3.0, float: 4.0}[type(tag)], static_argnums=0)

        own, shared = once(), [once(), once()]
        for f in (own, *shared):
            got = [float(f(kind, np.float32(1.0))) for kind in in_turn([1, True, 1.0])]
            assert got == [2.0] * 3 + [3.0] * 3 + [4.0] * 3 + [2.0, 3.0, 4.0]


def test_numbers_given_to_library_functions() -> None:
    for slope in in_turn([0.0, -0.0, 1, 1.0, True, 0.5]):
        got = fxgrad.make_program(lambda x, slope=slope: fxgrad.nn.leaky_relu(x, slope))(X)(-X)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(fxgrad.nn.leaky_relu(-X, slope)))
        np.testing.assert_array_equal(got, -X * slope)


def test_comparisons_and_bounds_are_replayed_with_the_number_at_hand() -> None:
    z = np.array([1 + 0.5j, 1 - 1j, 2 + 0j])
    for number in in_turn([1.0, 0.0, 0.5, 2, 1j, 2j, 1 + 0.25j]):
        for compare in (np.greater, np.less, np.equal, np.not_equal, np.maximum, np.multiply, np.add):
            got = fxgrad.vmap(lambda each, compare=compare, number=number: compare(each, number))(z)
            np.testing.assert_array_equal(got, compare(z, number))
    for number in in_turn([0.0, 1.0, 0.7, -0.0, 2]):
        for compare in (np.greater, np.maximum, np.arctan2, np.power, np.fmod, np.copysign, np.floor_divide, np.hypot):
            got = fxgrad.vmap(lambda each, compare=compare, number=number: compare(each, number))(X)
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(got, compare(X, number), rtol=1e-12)


def test_whole_numbers_that_are_floats_are_refused_on_every_call() -> None:
    matrix = np.arange(9.0).reshape(3, 3)
    fxgrad.grad(lambda x: np.trace(x, 0))(matrix)
    for _ in range(CALLS):
        with pytest.raises(TypeError):
            fxgrad.grad(lambda x: np.trace(x, offset=0.0))(matrix)
        np.testing.assert_array_equal(fxgrad.grad(lambda x: np.trace(x, offset=0))(matrix), np.eye(3))


class Tagged:
    """A container with metadata: jax takes those for equal whose metadata are equal."""

    def __init__(self, value: Any, tag: Any) -> None:
        self.value, self.tag = value, tag


fxgrad.tree_util.register_pytree_node(Tagged, lambda node: ((node.value,), node.tag),
                                      lambda tag, children: Tagged(children[0], tag))
TAGS = [1, 1.0, True, np.float32(1), 0.0, -0.0, False, (1,), (1.0,), (0.0,), (-0.0,), frozenset({1}), "1", None]
WEIGHTS = {repr(tag): 1.0 + place for place, tag in enumerate(TAGS)}


def weighted(node: Tagged) -> Any:
    return fnp.sum(node.value) * WEIGHTS[repr(node.tag)]


@fxgrad.custom_jvp
def by_jvp(node: Tagged) -> Any:
    return fnp.sum(node.value)


@by_jvp.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return by_jvp(*primals), weighted(Tagged(tangents[0].value, primals[0].tag))


@fxgrad.custom_vjp
def by_vjp(node: Tagged) -> Any:
    return fnp.sum(node.value)


by_vjp.defvjp(lambda node: (by_vjp(node), node), lambda node, cotangent: (
    Tagged(fnp.full_like(node.value, cotangent * WEIGHTS[repr(node.tag)]), node.tag),))
imported = fxgrad.from_jax(weighted)


def test_metadata_of_containers() -> None:
    scalar = jax.ShapeDtypeStruct((), X.dtype)
    for tag in in_turn(TAGS):
        node, weight = Tagged(X, tag), WEIGHTS[repr(tag)]
        assert fxgrad.grad(by_jvp)(node).value.tolist() == [weight] * 2
        assert fxgrad.grad(by_vjp)(node).value.tolist() == [weight] * 2
        assert imported(node) == X.sum() * weight
        assert fxgrad.jit(lambda node: weighted(node))(node) == X.sum() * weight
        assert repr(fxgrad.jit(lambda x, tag=tag: Tagged(x + 1.0, tag))(X).tag) == repr(tag)
        assert fxgrad.vmap(lambda x, tag=tag: fxgrad.pure_callback(
            weighted, scalar, Tagged(x, tag), vmap_method="sequential"))(X).tolist() == (X * weight).tolist()
    for key in in_turn([1, 1.0, True]):
        assert repr([*fxgrad.jit(lambda x, key=key: {key: x + 1.0})(X)]) == repr([key])


def test_static_arguments_of_imported_functions() -> None:
    divided = fxgrad.from_jax(lambda x, by: x / np.float64(by), static_argnums=1)
    for zero in in_turn([0.0, -0.0, (0.0,), (-0.0,)]):
        with np.errstate(divide="ignore"):
            assert np.signbit(divided(1.0, zero)) == np.signbit(zero)


def test_functions_that_are_equal_and_not_the_same() -> None:
    for k in in_turn([2.0, 3.0]):
        assert fxgrad.grad(Alike(k))(1.0) == k
        assert fxgrad.jit(Alike(k))(np.float32(1.0)) == k
        assert fxgrad.grad(fxgrad.checkpoint(Alike(k)))(1.0) == k
        assert fxgrad.grad(lambda x, k=k: fnp.vectorize(Alike(k))(x))(1.0) == k


# --- four kinds ------------------------------------------------------------------------------------------------------

KINDS: dict[str, list[Any]] = {
    "table": [caches.Cache, caches.cached, caches.BoundedDict],
    "attribute of a program": [program_properties.ProgramAttribute, program_properties.program_property,
                               program_properties.memoize],
    "derived under guards": [derive.derive, guards.memoize_guarded],
    "lookup of recordings": [interning.PrefixNode, trace.TraceRootCache, plans.DispatchPlans, executables.Executables,
                             replays.Replays],
}
"""For each kind of cache in docs/appendix/caches.md, the code that one is written with."""
OTHER_MEMORY = re.compile(r"functools\.cache\b|lru_cache|OrderedDict|\.memo\b|\.attributes\b")
"""Code of a cache that is of none of these kinds."""
WRITES_KINDS: dict[str, set[str]] = {
    "engine/caches.py": {"lru_cache"},
    "engine/core/program.py": {".memo", ".attributes"},
    "engine/core/program_properties.py": {".memo", ".attributes"},
    "engine/derivation/guards.py": {".memo"},
    "engine/executors/numpy.py": {".attributes"},  # looked up in every call, where a Python call would be noticeable
}
"""The files that define the kinds, with the code that they need for it."""


def test_the_page_opens_with_the_kinds() -> None:
    page = (Path(__file__).parents[2] / "docs/appendix/caches.md").read_text(encoding="utf-8")
    opening = page[:page.index("\n## ")]
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+?) \|", opening, re.MULTILINE)
    assert {name: re.findall(r"`(\w+)`", row) for name, row in rows} == {
        name: [each.__name__ for each in written] for name, written in KINDS.items()}


def test_no_cache_is_of_another_kind() -> None:
    package = Path(fxgrad.__file__).parent
    found: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        memory = set(OTHER_MEMORY.findall(path.read_text(encoding="utf-8")))
        if memory:
            found[path.relative_to(package).as_posix()] = memory
    assert found == WRITES_KINDS


# --- bounds, and the end -------------------------------------------------------------------------------------------


def test_tables_are_bounded(monkeypatch: pytest.MonkeyPatch, fresh_tables: None) -> None:
    monkeypatch.setattr(fxgrad.config, "interning_limit", 50)
    for k in range(60):
        assert fxgrad.grad(lambda x, k=k: x ** (k + 2))(1.0) == k + 2
        assert interning.num_recorded_operations() <= 50


def test_every_cache_has_a_bound_and_a_place_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs/appendix/caches.md").read_text(encoding="utf-8")
    found = cache_info()
    numbers = "neighbourhoods of operations in texts that were checked"  # and no objects, so that more of them may stay
    assert all(0 < cache.size <= (65536 if cache.name == numbers else 4096) and cache.entries <= cache.size
               for cache in found), found
    missing = {cache.name for cache in found if cache.name not in page}
    assert not missing, f"docs/appendix/caches.md lists every cache, and not these: {missing}"


def test_dictionaries_with_a_bound_keep_it_however_values_are_entered() -> None:
    squares = caches.BoundedDict(2)
    for n in (1, 2, 2):
        squares[n] = n * n
    assert squares == {1: 1, 2: 4}
    squares[3] = 9
    assert squares == {3: 9}
    sent = pickle.loads(pickle.dumps(squares))
    assert (sent, sent.size) == ({}, 2)


def test_a_cache_begins_anew_where_it_is_full() -> None:
    squares = Cache("squares", 2)
    assert [squares.add(n, n * n) for n in (1, 2)] == [1, 4]
    assert (squares.add(3, 9), dict(squares)) == (9, {3: 9})
    assert squares.add(3, 10) == 9  # the first entry stays
    assert CacheInfo("squares", 1, 2) in cache_info()
    fxgrad.clear_caches()
    assert not squares


def test_clear_caches_empties_everything() -> None:
    fxgrad.grad(lambda x: np.sum(fxgrad.nn.softmax(np.sin(x)) * x))(X)
    fxgrad.make_program(fxgrad.nn.softmax)(X)
    assert interning.num_recorded_operations() > 0
    before = {cache.name: cache.entries for cache in cache_info()}
    assert before["rules of operations"] > 0
    assert before["programs of library functions"] > 0
    fxgrad.clear_caches()
    assert interning.num_recorded_operations() == 0
    assert not any(cache.entries for cache in cache_info())
    assert fxgrad.grad(lambda x: np.sum(np.sin(x)))(X).shape == (2,)
