"""Callbacks and effects: how often and in which order they run, compared with jax where it says the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback as jax_io_callback

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.engine.api.callbacks import io_callback, pure_callback
from fxgrad.engine.core.program_properties import has_effects

Seen = list[tuple[Any, ...]]
X = np.float32(1.5)
RANDOM = np.random.default_rng(0)
ENTRIES = np.array([1.0, 2.0, 3.0], np.float32)


class Both:
    """The names of one library by which the functions below are written for fxgrad and for jax."""

    def __init__(self, library: Any, numpy: Any, seen: Seen) -> None:
        self.library, self.numpy, self.lax, self.seen = library, numpy, library.lax, seen

    def look(self, tag: str, *args: Any, ordered: bool = False) -> None:
        self.library.debug.callback(Look(self.seen, tag), *args, ordered=ordered)


class Look:
    """Notes what it is called with; equal for equal tags, as a named function would be."""

    def __init__(self, seen: Seen, tag: str) -> None:
        self.seen, self.tag = seen, tag

    def __call__(self, *args: Any) -> None:
        self.seen.append((self.tag, *(np.asarray(arg).tolist() for arg in args)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Look) and (other.seen is self.seen, other.tag) == (True, self.tag)

    def __hash__(self) -> int:
        return hash((id(self.seen), self.tag))


def plain(m: Both, x: Any) -> Any:
    m.look("a", x)
    y = x * x
    m.look("b", y, x)
    m.look("a", x)
    return y


def without_arguments(m: Both, x: Any) -> Any:
    m.look("before")
    m.look("x", x)
    m.look("after")
    return x * 2


def scan(m: Both, x: Any) -> Any:
    def body(carry: Any, entry: Any) -> tuple[Any, Any]:
        m.look("step", carry, entry, ordered=True)
        return carry * entry, carry
    return m.lax.scan(body, x, np.array([2.0, 3.0], np.float32))[0]


def scan_of_a_constant(m: Both, x: Any) -> Any:
    def body(carry: Any, entry: Any) -> tuple[Any, Any]:
        m.look("step", 1.0, ordered=True)
        return carry * entry, carry
    return m.lax.scan(body, x, np.array([2.0, 3.0], np.float32))[0]


def fori(m: Both, x: Any) -> Any:
    def body(number: Any, carry: Any) -> Any:
        m.look("step", number, carry, ordered=True)
        return carry * 2
    return m.lax.fori_loop(0, 3, body, x)


def while_(m: Both, x: Any) -> Any:
    def body(carry: Any) -> Any:
        m.look("step", carry, ordered=True)
        return carry * 2
    return m.lax.while_loop(lambda carry: carry < 20.0, body, x)


def cond(m: Both, x: Any) -> Any:
    def chosen(tag: str) -> Callable[[Any], Any]:
        def branch(x: Any) -> Any:
            m.look(tag, x)
            return m.numpy.sin(x)
        return branch
    return m.lax.cond(x.sum() > 1, chosen("true"), chosen("false"), x)


def jitted(m: Both, x: Any) -> Any:
    return m.library.jit(lambda x: plain(m, x))(x) + 1


def checkpointed(m: Both, x: Any) -> Any:
    def body(x: Any) -> Any:
        m.look("inside", x)
        return m.numpy.sin(m.numpy.sin(x))
    return m.library.checkpoint(body)(x)


FUNCTIONS = {"plain": plain, "without arguments": without_arguments, "scan": scan, "fori": fori, "while": while_,
             "scan of a constant": scan_of_a_constant, "cond": cond, "jit": jitted, "checkpoint": checkpointed}
TRANSFORMATIONS: dict[str, Callable[[Any, Callable[[Any], Any]], Callable[[], Any]]] = {
    "none": lambda library, f: lambda: f(X),
    "jit": lambda library, f: lambda: library.jit(f)(X),
    "grad": lambda library, f: lambda: library.grad(f)(X),
    "jit of grad": lambda library, f: lambda: library.jit(library.grad(f))(X),
    "grad of jit": lambda library, f: lambda: library.grad(library.jit(f))(X),
    "grad of grad": lambda library, f: lambda: library.grad(library.grad(f))(X),
    "jvp": lambda library, f: lambda: library.jvp(f, (X,), (X,)),
    "vjp": lambda library, f: lambda: [pull(X) for pull in [library.vjp(f, X)[1]] * 2],
    "jacrev": lambda library, f: lambda: library.jacrev(f)(X),
    "vmap": lambda library, f: lambda: library.vmap(f)(ENTRIES),
    "vmap of grad": lambda library, f: lambda: library.vmap(library.grad(f))(ENTRIES),
    "grad of vmap": lambda library, f: lambda: library.grad(lambda x: library.vmap(f)(x * ENTRIES).sum())(X),
}
REVERSE = {"grad", "jit of grad", "grad of jit", "grad of grad", "vjp", "jacrev", "vmap of grad", "grad of vmap"}


def run(call: Callable[[], Any], seen: Seen) -> Seen:
    """What a call leaves in `seen`."""
    seen.clear()
    jax.block_until_ready(call())
    jax.effects_barrier()
    return list(seen)


QUICK = {"jit", "grad", "vmap"}


@pytest.mark.parametrize("transformation", [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in TRANSFORMATIONS])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_how_often_and_when(name: str, transformation: str) -> None:
    function, transform = FUNCTIONS[name], TRANSFORMATIONS[transformation]
    seen: Seen = []
    ours, theirs = Both(fxgrad, fnp, seen), Both(jax, jnp, seen)
    call = transform(fxgrad, lambda x: function(ours, x))
    got = run(call, seen)
    assert run(call, seen) == got  # the second time runs generated code
    if name == "scan of a constant":
        assert got == [("step", 1.0)] * 2  # jax hoists it out of the loop under reverse mode
    elif name == "cond" and "vmap" in transformation:
        assert {tag for tag, *_ in got} == {"true", "false"}  # both branches, each once for each entry
        assert len(got) == 2 * len(ENTRIES)
    elif name == "while" and "vmap" in transformation:
        assert len(got) % len(ENTRIES) == 0  # lanes that have stopped repeat what a live one has
        assert len({repr(call) for call in got if call[1] < 20.0}) == len({repr(call) for call in got})
    elif name == "while" and transformation in REVERSE:
        assert got == [("step", 1.5), ("step", 3.0), ("step", 6.0), ("step", 12.0)]  # which jax does not have
    elif name == "checkpoint" and transformation in REVERSE:
        values = ENTRIES if transformation == "vmap of grad" else \
            ENTRIES * X if transformation == "grad of vmap" else [X]
        assert got == [("inside", float(value)) for value in values]  # once, and in jax twice
    else:
        wanted = run(transform(jax, lambda x: function(theirs, x)), seen)
        # jax runs what is not ordered in an order of its own under vmap and jit.
        assert (sorted(got), len(got)) == (sorted(wanted), len(wanted))
        if name == "plain" and "vmap" not in transformation and "jit" not in transformation:
            assert got == [("a", 1.5), ("b", 2.25, 1.5), ("a", 1.5)]


def test_vmap_calls_entry_by_entry() -> None:
    seen: Seen = []
    m = Both(fxgrad, fnp, seen)
    wanted = [("a", 1.0), ("a", 2.0), ("a", 3.0), ("b", 1.0, 1.0), ("b", 4.0, 2.0), ("b", 9.0, 3.0),
              ("a", 1.0), ("a", 2.0), ("a", 3.0)]
    assert run(lambda: fxgrad.vmap(lambda x: plain(m, x))(ENTRIES), seen) == wanted
    nested = fxgrad.vmap(lambda y: fxgrad.vmap(lambda x: m.look("both", x, y))(ENTRIES))
    assert run(lambda: nested(np.array([5.0, 6.0])), seen) == [
        ("both", x, y) for y in (5.0, 6.0) for x in (1.0, 2.0, 3.0)]
    assert run(lambda: fxgrad.vmap(lambda x: m.look("once", 1.0))(ENTRIES), seen) == [("once", 1.0)]


# --- Python's control flow ----------------------------------------------------------------------------------------


def branching(m: Both, x: Any) -> Any:
    m.look("before", x)
    y = m.library.jit(lambda x: plain(m, x))(x) if isinstance(m, WithJit) else x * x
    result = m.numpy.sin(y) if y > 1.0 else y
    m.look("after", y)
    return result


class WithJit(Both):
    """The same, with a jitted function on the way to the branch."""


@pytest.mark.parametrize("kind", [Both, WithJit])
@pytest.mark.parametrize("transformation", ["grad", "grad of grad", "jvp", "vjp", "jacrev"])
def test_forcing_runs_no_effect_twice(transformation: str, kind: type[Both]) -> None:
    seen: Seen = []
    m = kind(fxgrad, fnp, seen)
    call = TRANSFORMATIONS[transformation](fxgrad, lambda x: branching(m, x))
    between = [("a", 1.5), ("b", 2.25, 1.5), ("a", 1.5)] if kind is WithJit else []
    for _ in range(2):
        got = run(call, seen)
        assert (got[0], got[-1]) == (("before", 1.5), ("after", 2.25))
        assert sorted(got[1:-1]) == sorted(between)  # XLA has an order of its own for what is not ordered
    assert float(fxgrad.grad(lambda x: branching(m, x))(X)) == pytest.approx(3.0 * np.cos(2.25))


def test_forcing_and_input_output() -> None:
    calls: list[float] = []

    def f(x: Any) -> Any:
        scale = io_callback(note(calls), fxgrad.ShapeDtypeStruct((), np.float32), fxgrad.stop_gradient(x))
        return x * scale if scale > 0 else x
    assert float(fxgrad.grad(f)(X)) == 3.0
    assert float(fxgrad.value_and_grad(f)(X)[0]) == 4.5
    assert calls == [1.5, 1.5]
    fxgrad.jvp(f, (X,), (X,))
    assert calls == [1.5] * 3


def note(calls: list[float]) -> Callable[[Any], Any]:
    """A function that notes its argument and doubles it."""
    def noted(x: Any) -> Any:
        assert isinstance(x, np.ndarray | np.generic)
        calls.append(np.asarray(x).tolist())
        return x * 2
    return noted


# --- results ----------------------------------------------------------------------------------------------------


STRUCT = fxgrad.ShapeDtypeStruct


def test_input_output_runs_once_each_time() -> None:
    for ordered in (False, True):
        calls: list[float] = []
        noted = note(calls)

        def f(x: Any, noted: Any = noted, ordered: bool = ordered) -> Any:
            first = io_callback(noted, STRUCT(x.shape, x.dtype), x, ordered=ordered)
            io_callback(noted, STRUCT(x.shape, x.dtype), x, ordered=ordered)  # equal, and not used
            return first + 1
        for library_call in (f, fxgrad.jit(f)):
            calls.clear()
            assert float(library_call(X)) == 4.0
            jax.effects_barrier()
            assert calls == [1.5, 1.5]
        calls.clear()
        np.testing.assert_array_equal(fxgrad.vmap(f)(ENTRIES), 2 * ENTRIES + 1)
        assert calls == [1.0, 2.0, 3.0] * 2


def test_input_output_in_a_scan_under_grad() -> None:
    """Its result is needed by the backward pass too, which must not call it again."""
    calls: list[float] = []

    def f(x: Any) -> Any:
        def body(carry: Any, entry: Any) -> tuple[Any, Any]:
            scale = io_callback(note(calls), STRUCT((), np.float64), entry)
            return fnp.sin(carry * scale), None
        return fxgrad.lax.scan(body, x, np.array([1.0, 2.0]))[0]
    wanted = jax.grad(lambda x: jnp.sin(jnp.sin(x * 2) * 4))(1.5)
    for transformed in (fxgrad.grad(f), fxgrad.jit(fxgrad.grad(f)), fxgrad.grad(fxgrad.checkpoint(f)),
                        fxgrad.grad(fxgrad.jit(f))):
        calls.clear()
        np.testing.assert_allclose(transformed(1.5), wanted, 1e-5)
        jax.effects_barrier()
        assert sorted(calls) == [1.0, 2.0]


def test_pure_callbacks_against_jax() -> None:
    x, y = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.float32(2.0)

    def build(library: Any, callback: Any, method: str) -> Callable[..., Any]:
        def f(x: Any, y: Any) -> Any:
            shapes = {"sum": STRUCT(x.shape, x.dtype), "shape": (STRUCT(x.shape, np.int32),)}
            return callback(lambda x, y: {"sum": np.asarray(x) + y, "shape": (np.zeros(np.shape(x), np.int32),)},
                            shapes, x, y=y, vmap_method=method)
        return f
    for method in ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all"):
        ours, theirs = build(fxgrad, pure_callback, method), build(jax, jax.pure_callback, method)
        for library, f in ((fxgrad, ours), (jax, theirs)):
            assert float(f(x[0, 0], y)["sum"]) == 2.0, library
        for wrap in (lambda library, f: library.vmap(f, in_axes=(0, None)),
                     lambda library, f: library.jit(library.vmap(f, in_axes=(0, None)))):
            if method == "expand_dims":
                continue  # below: the shapes that the function sees are what it is about
            got, wanted = wrap(fxgrad, ours)(x[0], y), wrap(jax, theirs)(x[0], y)
            jax.tree.map(np.testing.assert_array_equal, got, jax.tree.map(np.asarray, wanted))


@pytest.mark.parametrize(("method", "wanted"), [
    ("sequential", [((3,), ())] * 2), ("expand_dims", [((2, 3), (1,))]), ("broadcast_all", [((2, 3), (2,))])])
def test_shapes_under_vmap(method: str, wanted: list[Any]) -> None:
    shapes: list[Any] = []

    def look(x: Any, y: Any) -> Any:
        shapes.append((x.shape, y.shape))
        return x * y.reshape(*y.shape, *[1] * (x.ndim - y.ndim))

    def f(x: Any, y: Any) -> Any:
        return pure_callback(look, STRUCT(x.shape, x.dtype), x, y, vmap_method=method)
    x = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(fxgrad.vmap(f, in_axes=(1, None))(x, 2.5), 2.5 * x.T)
    assert shapes == wanted
    np.testing.assert_array_equal(fxgrad.vmap(fxgrad.vmap(f, (1, None)), (0, None))(np.stack([x, x]), 2.5),
                                  2.5 * np.stack([x.T, x.T]))


def test_a_pure_callback_may_be_left_out_and_merged() -> None:
    calls: list[float] = []
    noted = note(calls)

    def f(x: Any) -> Any:
        one = [pure_callback(noted, STRUCT((), x.dtype), fxgrad.stop_gradient(x)) for _ in range(3)]
        return (one[0] + one[1]) * x
    assert float(fxgrad.grad(f)(X)) == 6.0
    assert calls == [1.5]


def test_a_pure_callback_with_a_derivative_of_its_own() -> None:
    @fxgrad.custom_jvp
    def sine(x: Any) -> Any:
        return pure_callback(np.sin, STRUCT(x.shape, x.dtype), x, vmap_method="expand_dims")
    sine.defjvp(lambda primals, tangents: (sine(*primals), fnp.cos(primals[0]) * tangents[0]))
    np.testing.assert_allclose(fxgrad.grad(sine)(0.5), np.cos(0.5), 1e-12)
    np.testing.assert_allclose(fxgrad.vmap(fxgrad.grad(sine))(ENTRIES), np.cos(ENTRIES), 1e-6)


@pytest.mark.parametrize("callback", [pure_callback, io_callback])
@pytest.mark.parametrize("shape", [(), (0, 3), pytest.param((1 << 19,), marks=pytest.mark.slow), (3, 5)])
def test_wide_and_large_arrays_keep_their_dtype(callback: Any, shape: tuple[int, ...]) -> None:
    """Also where jax calls from another thread, which it does for large arrays."""
    x = RANDOM.normal(size=shape)
    key = fxgrad.random.key(3)
    seen: list[Any] = []

    def f(x: Any, key: Any) -> Any:
        fxgrad.debug.callback(lambda *values: seen.append(values), x * 3, x.astype("int64"), x * 1j, key)
        return callback(lambda x, key: (x * 2, x.astype(np.int64), x * 1j, x.astype(np.float32), key),
                        (STRUCT(shape, np.float64), STRUCT(shape, np.int64), STRUCT(shape, np.complex128),
                         STRUCT(shape, np.float32), key), x + 1e-12, key)
    y = x + 1e-12
    for call in (fxgrad.jit(f), f):
        doubled, whole, turned, narrow, same = call(x, key)
        jax.effects_barrier()
        pairs = [(doubled, y * 2), (whole, y.astype(np.int64)), (turned, y * 1j), (narrow, y.astype(np.float32)),
                 *zip(seen[-1][:3], (x * 3, x.astype(np.int64), x * 1j), strict=True)]
        for got, wanted in pairs:
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got, wanted)
        assert seen[-1][3].dtype == key.dtype
        np.testing.assert_array_equal(fxgrad.random.key_data(same), fxgrad.random.key_data(key))


def test_io_callback_agrees_with_jax() -> None:
    def build(library: Any, callback: Any) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            return callback(lambda x: np.asarray(x) * 2, STRUCT(x.shape, x.dtype), x) + x
        return library.jit(library.vmap(f))
    np.testing.assert_array_equal(build(fxgrad, io_callback)(ENTRIES), build(jax, jax_io_callback)(ENTRIES))


def test_the_function_owns_its_arrays() -> None:
    x = np.ones(3)
    kept: list[Any] = []
    fxgrad.debug.callback(kept.append, x)
    fxgrad.vmap(lambda x: fxgrad.debug.callback(kept.append, x))(x)
    x[:] = 7.0
    kept[0][:] *= 2
    np.testing.assert_array_equal(kept[0], [2.0] * 3)
    assert [float(one) for one in kept[1:]] == [1.0] * 3


# --- printing -----------------------------------------------------------------------------------------------------


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        fxgrad.debug.print("{} {x[k]:.2f} {0} {what!r}".replace("{} ", "{1} "), x * 2, 3, x={"k": x}, what="text")
        return x * x
    for call in (f, fxgrad.grad(f), fxgrad.jit(f), fxgrad.make_program(f)(X)):
        call(X)
        jax.effects_barrier()
        assert capsys.readouterr().out == "3 1.50 3.0 'text'\n"
    fxgrad.vmap(f)(ENTRIES[:2])
    assert capsys.readouterr().out == "3 1.00 2.0 'text'\n3 2.00 4.0 'text'\n"


def test_programs_with_prints_are_found_again() -> None:
    first, second = (fxgrad.make_program(lambda x: (fxgrad.debug.print("{}", x), x * x)[1])(X) for _ in range(2))
    assert len(first.equations) == 2
    assert has_effects(first)
    assert not has_effects(fxgrad.make_program(lambda x: x * x)(X))
    assert "debug_callback(x, callback=<print>, ordered=False)" in str(first)
    assert str(first) == str(second)


def test_simplifying_keeps_effects() -> None:
    program = fxgrad.make_program(lambda x: [fxgrad.debug.callback(print, x) for _ in range(3)] and x)(X)
    assert len(fxgrad.simplify(program).equations) == 3


# --- errors -----------------------------------------------------------------------------------------------------


def doubled_by(callback: Any, **options: Any) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        return callback(twice, STRUCT((), np.float32), x, **options)
    return f


def twice(x: Any) -> Any:
    return x * 2


def looped(x: Any) -> Any:
    return fxgrad.lax.while_loop(
        lambda c: c < 20.0, lambda c: c * io_callback(twice, STRUCT((), np.float32), fxgrad.stop_gradient(c)), x)


def forced_in(wrap: Any) -> Callable[[Any], Any]:
    def inner(x: Any) -> Any:
        y = io_callback(twice, STRUCT((), np.float32), fxgrad.stop_gradient(x))
        return x * y if y > 0 else x
    return lambda x: wrap(inner)(x)


def forced_around_jit(x: Any) -> Any:
    y = fxgrad.jit(lambda x: x * io_callback(twice, STRUCT((), np.float32), fxgrad.stop_gradient(x)))(x)
    return y * y if y > 0 else y


def chosen(x: Any) -> Any:
    return fxgrad.lax.cond(x > 2, lambda x: io_callback(twice, STRUCT((), np.float32), x), lambda x: x, x)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: fxgrad.grad(doubled_by(pure_callback))(X), errors.UnsupportedError,
     ("pure_callback: twice is a Python function, whose derivative is not known. Give it one with "
      "fxgrad.custom_jvp, or cut it off with fxgrad.stop_gradient around its arguments")),
    (lambda: fxgrad.jvp(doubled_by(io_callback), (X,), (X,)), errors.UnsupportedError,
     ("io_callback: twice is a Python function, whose derivative is not known. Give it one with fxgrad.custom_jvp, "
      "or cut it off with fxgrad.stop_gradient around its arguments")),
    (lambda: fxgrad.vmap(doubled_by(pure_callback))(ENTRIES), errors.UnsupportedError,
     ("pure_callback: twice is under vmap, and vmap_method=None does not define that. Write "
      "vmap_method='sequential' to call it for each entry, or 'expand_dims' or 'broadcast_all' to call it once with "
      "one more axis in front")),
    (lambda: doubled_by(pure_callback, vmap_method="auto")(X), errors.ArgumentError,
     ("pure_callback: vmap_method='auto'; one of 'sequential', 'sequential_unrolled', 'expand_dims', "
      "'broadcast_all', or None is needed")),
    (lambda: doubled_by(io_callback, sharding=1)(X), errors.UnsupportedError,
     "io_callback: sharding= is not supported; leave it out"),
    (lambda: pure_callback(3.0, STRUCT((), np.float32), X), errors.ArgumentError,
     ("pure_callback: the callback is a float, where a function is needed. Pass the function itself, not what it "
      "returns")),
    (lambda: pure_callback(twice, "f32", X), errors.ArgumentError,
     ("pure_callback: result_shape_dtypes is a str, where an array or a number is needed. Pass it by closure "
      "(functools.partial), or leave it out of the arguments that are transformed")),
    (lambda: pure_callback(twice, STRUCT((), np.float32), "x"), errors.ArgumentError,
     ("pure_callback: args[0] is a str, where an array or a number is needed. Pass it by closure "
      "(functools.partial), or leave it out of the arguments that are transformed")),
    (lambda: fxgrad.debug.callback(print, {1}), errors.ArgumentError,
     "debug.callback: args[0] is a set, which is not hashable. Pass it as text, str(...), or by closure"),
    (lambda: pure_callback(twice, STRUCT((2,), np.float32), X), errors.ShapeError,
     "pure_callback: twice returned an array of shape () at output, where result_shape_dtypes has (2,)"),
    (lambda: pure_callback(twice, {"a": STRUCT((), np.int32)}, X), errors.ArgumentError,
     ("pure_callback: twice returned a container of the structure PyTreeDef(*), where result_shape_dtypes has "
      "PyTreeDef({'a': *})")),
    (lambda: pure_callback(twice, STRUCT((), np.int32), X), errors.DTypeError,
     ("pure_callback: twice returned float32 at output, where result_shape_dtypes has int32. Convert with "
      "result.astype('int32')")),
    (lambda: fxgrad.grad(looped)(X), errors.UnsupportedError,
     ("the derivative of a loop, whose backward pass goes through the steps again, would run the io_callback at "
      "line NUMBER a second time for its result. Call it outside, and pass the result in")),
    (lambda: fxgrad.grad(forced_in(fxgrad.checkpoint))(X), errors.UnsupportedError,
     ("Python's control flow asks for a value inside of checkpoint, which runs io_callback; checkpoint would run it "
      "a second time. Call it outside of checkpoint, or use fxgrad.lax.cond")),
    (lambda: fxgrad.grad(forced_around_jit)(X), errors.UnsupportedError,
     ("Python's control flow asks for a value, which runs the jit_call at line NUMBER; the derivative would run the "
      "io_callback at line NUMBER a second time for its result. Call it outside, and pass the result in")),
    (lambda: fxgrad.vmap(chosen)(ENTRIES), errors.UnsupportedError,
     ("cond: the entries of vmap differ in what they run, and io_callback cannot be called for some of them alone. "
      "Call it outside, and choose between results with fxgrad.numpy.where")),
    (lambda: fxgrad.debug.print("{} {}", X), errors.ArgumentError,
     "debug.print: the format string has the field {1}, and there is no such argument; given are {0}"),
    (lambda: fxgrad.debug.print("{x}", y=X), errors.ArgumentError,
     "debug.print: the format string has the field {x}, and there is no such argument; given are {y}"),
    (lambda: fxgrad.debug.print("x", X, y=X), errors.ArgumentError,
     ("debug.print: the format string has no field for {0}, {y}, which would not be printed; write such a field, or "
      "leave the argument out")),
    (lambda: fxgrad.debug.print(X), errors.ArgumentError,
     "debug.print: the first argument is a float32, where a format string is needed. Write debug.print('{}', x)"),
])
def test_messages(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    pattern = re.escape(message).replace("NUMBER", r"\d+")
    with pytest.raises(error, match=f"^{pattern}(\n  at .*)?$"):
        call()


class Recorder:
    """A callback that is equal to all others."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, x: Any) -> Any:
        self.seen.append(x)
        return x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recorder)

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize("wrap", [lambda f: f, fxgrad.jit, fxgrad.grad, fxgrad.vmap])
def test_equal_callbacks_are_called_each_by_itself(wrap: Any) -> None:
    recorders = [Recorder() for _ in range(3)]
    x = np.ones(2, np.float32) if wrap is fxgrad.vmap else np.float32(1)
    for _ in range(2):
        for recorder in recorders:
            def function(x: Any, recorder: Recorder = recorder) -> Any:
                fxgrad.debug.callback(recorder, x)
                given = fxgrad.pure_callback(recorder, fxgrad.ShapeDtypeStruct((), np.float32),
                                             fxgrad.stop_gradient(x) * 2, vmap_method="sequential")
                return x * fxgrad.stop_gradient(given) if wrap is not fxgrad.grad else x
            jax.block_until_ready(wrap(function)(x))
            jax.effects_barrier()
    assert [len(recorder.seen) > 0 for recorder in recorders] == [True] * 3
    assert len({len(recorder.seen) for recorder in recorders}) == 1


@pytest.mark.parametrize(("ordered", "effect"), [(False, "Debug"), (True, "OrderedDebug")])
def test_jax_is_told_what_is_ordered(ordered: bool, effect: str) -> None:
    """On one CPU the order is kept either way: what shows it is the effect that jax knows of."""
    def watched(x: Any) -> Any:
        fxgrad.debug.callback(str, x, ordered=ordered)
        return x

    assert re.search(rf"\beffect={effect}\b", str(jax.make_jaxpr(fxgrad.interop.to_jax(watched))(1.0)))
