"""fxgrad.lax has jax.lax's names and signatures, and refuses what jax.lax refuses."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad import lax
from fxgrad.engine.ops.products import PRECISIONS
from fxgrad.errors import ArgumentError, DTypeError, FxgradError, IndexingError, ShapeError, UnsupportedError

F32, F64, I32 = np.ones((2, 3), np.float32), np.ones((2, 3)), np.ones((2, 3), np.int32)


def jax_names() -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name for name in dir(jax.lax) if not name.startswith("_") and not name.endswith("_p")}


def test_every_name_is_here_or_in_the_table() -> None:
    missing = jax_names() - set(lax.__all__) - set(lax.ABSENT)
    # Collectives belong to one module of their own.
    assert not missing, f"names of jax.lax that are neither in fxgrad.lax nor in its table ABSENT: {sorted(missing)}"
    assert not set(lax.ABSENT) & set(lax.__all__)
    assert all(lax.ABSENT.values())


def test_names_that_are_absent_say_why() -> None:
    for module in (lax, fxgrad.sharding, fxgrad.scipy.linalg):
        assert module.ABSENT
        for name, why in module.ABSENT.items():
            with pytest.raises(AttributeError) as raised:
                getattr(module, name)
            said, place = str(raised.value).split("\n")
            assert said == f"module {module.__name__!r} has no attribute {name!r}: {why}"
            assert place.startswith("  at test_lax_names.py:")
        assert not hasattr(module, "no_such_name")


def test_names_are_sorted_and_there() -> None:
    assert list(lax.__all__) == sorted(set(lax.__all__))
    assert all(hasattr(lax, name) for name in lax.__all__)


def test_names_are_documented() -> None:
    own = [(name, value) for name, value in ((name, getattr(lax, name)) for name in lax.__all__)
           if inspect.isfunction(value) or (inspect.isclass(value) and value.__module__.startswith("fxgrad.lax"))]
    assert [name for name, value in own if ">>> " not in (inspect.getdoc(value) or "")] == []
    assert [name for name, value in own if value.__name__ != name] == []


SHORTER = {"scan": "_split_transpose is private", "switch": "operand= is deprecated", "cond": "operand= is deprecated"}


# Parameters that jax has got since 0.10.
NEWER = {"erfc": {"accuracy"}, "reduce_max": {"out_sharding"}, "reduce_min": {"out_sharding"}, "top_k": {"is_stable"}}


def test_parameters_are_those_of_jax() -> None:
    different = []
    for name in lax.__all__:
        if inspect.isfunction(getattr(lax, name)) and name not in SHORTER and hasattr(jax.lax, name):
            ours, theirs = (list(inspect.signature(getattr(module, name)).parameters) for module in (lax, jax.lax))
            expected = [parameter for parameter in theirs if parameter not in NEWER.get(name, ()) or parameter in ours]
            if "args" not in theirs and ours != expected:
                different.append((name, ours, expected))
    assert different == []


REFUSALS: list[tuple[Callable[[], Any], type[FxgradError], str]] = [
    (lambda: lax.add(F32, F64), DTypeError,
     ("add: dtypes float32 and float64, where equal ones are needed: the functions of fxgrad.lax do not promote. "
     "Convert one with x.astype(...), or call the function of fxgrad.numpy, which promotes")),
    (lambda: lax.add(F32, 1), DTypeError, "add: dtypes float32 and int64 (weak), where equal ones are needed"),
    (lambda: lax.add(I32, 1.5), DTypeError, "add: dtypes int32 and float64 (weak), where equal ones are needed"),
    (lambda: lax.add(I32.astype("int8"), 300), DTypeError,
     "add: 300 does not fit into int8; convert the other operand with x.astype(...)"),
    (lambda: lax.add(F32, F32[0]), ShapeError,
     ("add: shapes (2, 3) and (3,); the functions of fxgrad.lax need scalars, or arrays of one rank whose sizes are "
     "equal or 1. Insert axes with lax.expand_dims, or call the function of fxgrad.numpy, which broadcasts")),
    (lambda: lax.add([1.0], F32), ArgumentError,
     "add: an operand is a list, where an array or a number is needed. Write fxgrad.numpy.asarray(values)"),
    (lambda: lax.sin(1), DTypeError, ("sin: not defined for int64; it takes inexact dtypes. Convert first, for example "
                                     "x.astype('float32')")),
    (lambda: lax.sin(F32, accuracy=1), UnsupportedError, "sin: accuracy= is not supported; leave it out"),
    (lambda: lax.select(F32 > 0, F32, F32[:1]), ShapeError,
     ("select: (2, 3) to choose by and cases of shapes (1, 3), (2, 3); cases of one shape are needed, and a scalar or "
     "an array of that shape to choose by. fxgrad.numpy.where broadcasts")),
    (lambda: lax.select(F32, F32, F32), DTypeError,
     "select: bools or integers choose, got float32; compare first, for example which > 0"),
    (lambda: lax.select_n(True, F32, F32[0]), ShapeError,
     "select_n: () to choose by and cases of shapes (2, 3), (3,); cases of one shape are needed, and a scalar or "),
    (lambda: lax.all_gather(F32, "i", to="all"), ArgumentError, "all_gather: there is no mapped axis named 'i' here"),
    (lambda: fxgrad.vmap(lambda x: lax.all_gather(x, "i", to="all"), axis_name="i")(F32), ArgumentError,
     "all_gather: to='all', where 'varying' or 'invarying' is needed"),
    (lambda: lax.clamp(F32, F32[0, 0], 1.0), ShapeError,
     "clamp: a bound of shape (2, 3) for an array of shape (); a scalar or an equal shape is needed"),
    (lambda: lax.full((2,), F32), ShapeError, "full: fill_value has shape (2, 3); a scalar is needed"),
    (lambda: lax.squeeze(F32, (0,)), ShapeError,
     "squeeze: axes (0,) of an array of shape (2, 3); each must have size 1"),
    (lambda: lax.expand_dims(F32, (0, -4)), ShapeError,
     "expand_dims: dimensions (0, -4) name an axis twice; name each once"),
    (lambda: lax.transpose(F32, (0,)), ShapeError,
     "transpose: permutation (0,) for an array of shape (2, 3); name each axis once"),
    (lambda: lax.collapse(F32, 1, 1), ShapeError,
     "collapse: axes from 1 to 1 of an array of shape (2, 3); at least one axis is needed"),
    (lambda: lax.index_in_dim(F32, 2), IndexingError,
     "index_in_dim: index 2 along an axis of size 2 of an array of shape (2, 3); one from -2 to 1 is needed"),
    (lambda: lax.concatenate([], 0), ArgumentError, "concatenate: no arrays; at least one is needed"),
    (lambda: lax.split(F32, (1, 1), 2), ShapeError,
     "split: axis 2 of an array with 2 axes; an axis from -2 to 1 is needed"),
    (lambda: lax.dynamic_slice(F32, (0,), (1, 1)), ShapeError,
     "dynamic_slice: 1 start indices for an array of shape (2, 3); one is needed for each axis"),
    (lambda: lax.dynamic_slice(F32, (1.0, 0.0), (1, 1)), DTypeError,
     ("dynamic_slice (start indices): not defined for float64; it takes integer dtypes. Convert first, for example "
      "x.astype('int32')")),
    (lambda: lax.real(F32), DTypeError,
     "real: not defined for float32; it takes complex dtypes. Convert first, for example x.astype('complex64')"),
    (lambda: lax.gather(F32, I32[:, :1], lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 3), mode="wrap"),
     ArgumentError, "gather: mode 'wrap'; it is 'clip', 'fill' ('drop'), 'promise_in_bounds', or a GatherScatterMode"),
    (lambda: lax.reduce(F32, (0.0, 0.0), lax.add, (0,)), ArgumentError, "reduce: operands "),
    (lambda: lax.reduce(F32, F32, lax.add, (0,)), ShapeError,
     ("reduce: operands of shapes (2, 3) and initial values of shapes (2, 3); operands of one shape and scalars are "
     "needed")),
    (lambda: lax.reduce(F32, 0.0, lax.lt, (0,)), ArgumentError, ("reduce: the computation of [f32[]] and [f32[]] "
                                                               "returned [bool[]]; the types of its arguments are "
                                                               "needed")),
    (lambda: lax.sort([]), ArgumentError, "sort: no arrays; at least one is needed"),
    (lambda: lax.dot(F32, F32), ShapeError,
     ("dot: shapes (2, 3) and (2, 3); vectors or matrices are needed, the last axis of the first as long as the first "
     "one of the second. Give dimension_numbers, or call fxgrad.numpy.dot")),
    (lambda: lax.batch_matmul(F32, F32[0]), ShapeError,
     "batch_matmul: shapes (2, 3) and (3,); arrays of one rank, at least 2, are needed"),
    (lambda: lax.scaled_dot(F32, F32.T, lhs_scale=F32[:, :2]), ShapeError,
     "scaled_dot: a scale of shape (2, 2) for an operand of shape (2, 3); each size must be a multiple of the scale's"),
    (lambda: lax.scaled_dot(F32[0], F32[0]), ShapeError,
     "scaled_dot: shapes (3,) and (3,); at least two axes are needed, or dimension_numbers"),
    (lambda: lax.fft(F32, 0, (3,)), ArgumentError, "fft: fft_type=0; an FftType or its name is needed"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSALS, ids=[message[:40] for _, _, message in REFUSALS])
def test_refusals(call: Callable[[], Any], error: type[FxgradError], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call()


@pytest.mark.parametrize("call", [
    lambda m: m.sin(I32), lambda m: m.abs(I32 > 0), lambda m: m.reduce_sum(I32 > 0, (0,)), lambda m: m.rev(F32, (2,)),
    lambda m: m.slice(F32, (0, 0), (2, 4)), lambda m: m.slice_in_dim(F32, 0, 5), lambda m: m.cumsum(I32 > 0),
    lambda m: m.dynamic_slice(F32, (0, 0), (3, 1)), lambda m: m.argmax(F32 + 1j, 0, "int32"),
    lambda m: m.concatenate([F32, F32[:, :2]], 0), lambda m: m.tile(F32, (2,)), lambda m: m.iota("bool", 3),
    lambda m: m.bitcast_convert_type(F32 > 0, "uint8"), lambda m: m.sort((F32, F32[0])), lambda m: m.split(F32, (1,)),
    lambda m: m.pad(F32, np.float32(0), [(0, 0, 0)]), lambda m: m.reduce_and(F32, (0,)), lambda m: m.floor(I32),
    lambda m: m.dynamic_update_slice(F32, F32, (0, 0, 0))])
def test_what_kernels_would_take_is_refused(call: Any) -> None:
    """On NumPy arrays too, whose kernels may slice, reduce or wrap without a word."""
    with pytest.raises((TypeError, ValueError)):
        call(jax.lax)
    with pytest.raises(FxgradError):
        call(lax)


@pytest.mark.parametrize("name", ["add", "mul", "max", "atan2", "eq"])
def test_what_jax_refuses_for_shapes_or_dtypes_is_refused(name: str) -> None:
    for x, y in ((F32, F64), (F32, F32[0]), (F32, F32[:, :2]), (F32, np.ones((3, 1, 3), np.float32))):
        with pytest.raises(TypeError), jax.enable_x64(True):
            getattr(jax.lax, name)(x, y)
        with pytest.raises((DTypeError, ShapeError)):
            getattr(lax, name)(x, y)


def test_numbers_take_the_dtype_of_arrays_of_their_kind() -> None:
    assert lax.add(F32, 1.5).dtype == lax.add(1.5, F32).dtype == np.float32
    assert lax.add(F32, np.float64(1.5)).dtype == np.float32
    assert lax.add(I32.astype("int8"), 3).dtype == np.int8
    assert lax.add(F64, 1.5).dtype == np.float64
    assert lax.mul(F32 + 1j, 2j).dtype == np.complex64


def test_numbers_stay_weak_when_traced() -> None:
    program = fxgrad.make_program(lambda x, y: lax.add(x, y))(F32, 1.0)
    assert str(program.out_avals) == "[f32[2,3]]"
    assert fxgrad.jit(lambda x: lax.mul(lax.sin(x), F64))(2.0).dtype == np.float64


def test_arguments_of_jaxs_own_types_are_taken() -> None:
    numbers = jax.lax.GatherDimensionNumbers((1,), (0,), (0,))
    got = lax.gather(F32, I32[:, :1], numbers, (1, 3), mode=jax.lax.GatherScatterMode.CLIP)
    assert got.shape == (2, 3)
    assert lax.fft(F32, jax.lax.FftType.RFFT, (3,)).shape == (2, 2)
    assert float(lax.round(2.5, jax.lax.RoundingMethod.TO_NEAREST_EVEN)) == 2.0
    assert lax.dot(F32, F32.T, precision=jax.lax.Precision.HIGHEST).shape == (2, 2)


def test_precisions_by_name_are_jaxs() -> None:
    for name in (*PRECISIONS, None):
        assert lax.Precision(name).name == jax.lax.Precision(name).name
    for name in ("HIGH", "tf32", 3):
        for precision in (lax.Precision, jax.lax.Precision):
            with pytest.raises(ValueError, match=f"^{name!r} is not a valid Precision$"):
                precision(name)


def test_reductions_by_any_associative_function() -> None:
    """Composition of affine maps, which does not commute: the order of the elements is kept."""
    scale, shift = (np.random.default_rng(0).standard_normal((7, 3)) for _ in range(2))

    def composed(first: Any, then: Any) -> Any:
        return first[0] * then[0], first[1] * then[0] + then[1]

    got = lax.reduce((scale, shift), (1.0, 0.0), composed, (0,))
    expected = np.ones(3), np.zeros(3)
    for row in range(7):
        expected = composed(expected, (scale[row], shift[row]))
    np.testing.assert_allclose(got, expected, 1e-12)


@pytest.mark.parametrize(("computation", "primitive"), [
    (lax.add, "reduce_sum"), (lax.mul, "reduce_prod"), (lax.max, "reduce_max"), (lax.min, "reduce_min")])
def test_known_reductions_are_one_operation(computation: Any, primitive: str) -> None:
    program = fxgrad.make_program(lambda x: lax.reduce(x, 1.0, computation, (0, 1)))(F32)
    assert primitive in [equation.primitive.name for equation in program.equations]
    assert len(program.equations) == 2


def test_reductions_of_no_elements_are_the_initial_value() -> None:
    assert lax.reduce(np.ones((0, 2)), 5.0, lambda x, y: x + 2 * y, (0,)).tolist() == [5.0, 5.0]


def test_gradient_of_a_reduction() -> None:
    x = np.random.default_rng(0).uniform(0.5, 2, 5)

    def both(a: Any, b: Any) -> Any:
        return a + b + a * b

    def loss(values: Any) -> Any:
        return lax.reduce(values, 0.0, both, (0,))

    # It is the product of all 1 + x, minus 1.
    np.testing.assert_allclose(loss(x), np.prod(1 + x) - 1, 1e-12)
    np.testing.assert_allclose(fxgrad.grad(loss)(x), np.prod(1 + x) / (1 + x), 1e-12)


def test_barriers_keep_what_is_the_same_apart() -> None:
    text = fxgrad.jit(lambda x: lax.optimization_barrier((x, lax.sin(x)))).lower(F32).as_text()
    assert "optimization_barrier" in text
    first = fxgrad.grad(lambda x, y: lax.optimization_barrier((x, y))[0], argnums=(0, 1))
    assert first(1.0, 2.0) == (1.0, 0.0)
    value, gradient = fxgrad.value_and_grad(lambda x: lax.optimization_barrier(x) ** 2)(3.0)
    assert (float(value), float(gradient)) == (9.0, 6.0)


def test_scatter_applies_once_for_each_window() -> None:
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    indices = np.array([[1], [1], [3], [9]])

    def scaled(x: Any) -> Any:
        return lax.scatter_apply(x, indices, lambda v: v * v, numbers, update_shape=(4,))

    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert scaled(x).tolist() == [1.0, 16.0, 3.0, 16.0]
    assert fxgrad.grad(lambda x: scaled(x).sum())(x).tolist() == [1.0, 32.0, 1.0, 8.0]
