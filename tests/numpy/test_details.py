"""Details of functions of NumPy's that other tests pass by: shapes of open meshes, powers of two beyond one step."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, DTypeError, ShapeError
from fxgrad.testing import check_grads


@pytest.mark.parametrize("args", [([0, 2], [1, 3, 4]), ([0, 1],), ([2], [True, False, True], [0, 1])], ids=str)
def test_open_meshes(args: Any) -> None:
    ours, theirs = fnp.ix_(*map(np.array, args)), np.ix_(*args)
    assert [each.shape for each in ours] == [each.shape for each in theirs]
    for found, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(found, wanted)
    traced = fxgrad.make_program(lambda *arrays: fnp.ix_(*arrays))(*(np.array(arg, int) for arg in args[:1]))
    np.testing.assert_array_equal(traced(np.array(args[0]))[0], np.ix_(args[0])[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_powers_of_two_beyond_the_range(dtype: Any) -> None:
    """Exponents that one power of two cannot hold: from the least number to the greatest, and beyond both."""
    info = np.finfo(dtype)
    x = np.array([info.max, info.smallest_subnormal, 1.5, -1.0, info.tiny, 0.0, np.inf], dtype)[:, None]
    exponents = np.array([info.minexp * 2, info.minexp - 5, -3, 0, 4, info.maxexp + 5, info.maxexp * 2], np.int32)
    with np.errstate(all="ignore"):
        wanted = np.ldexp(x, exponents)
    np.testing.assert_array_equal(fnp.ldexp(x, exponents), wanted)


def test_what_is_repeated_is_read_in_order() -> None:
    """Which XLA is told, so that it need not sort."""
    program = fxgrad.make_program(lambda x, counts: fnp.repeat(x, counts, total_repeat_length=6))(
        np.arange(3.0), np.array([1, 2, 3]))
    promises = [equation.params["promises"] for equation in program.equations if equation.primitive.name == "gather"]
    assert any("sorted" in each for each in promises)


def test_triangles_by_small_letters() -> None:
    a = np.array([[2.0, 5.0], [1.0, 3.0]])
    for letter in "lLuU":
        np.testing.assert_allclose(fxgrad.jit(lambda a, one=letter: np.linalg.eigvalsh(a, one))(a),
                                   np.linalg.eigvalsh(a, letter), rtol=1e-12)


def test_integers_of_64_bits_with_and_without_a_sign_compare_exactly() -> None:
    """As in NumPy; in float64, which holds them together, 2**53 + 1 would be 2**53."""
    unsigned, signed = np.array([2**53 + 1, 0, 5, 2**64 - 1], np.uint64), np.array([2**53, -1, 5, -1])
    for kernel in (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal):
        for other in (signed, signed.astype(np.int8), signed.astype(np.int32)):
            for pair in ((unsigned, other), (other, unsigned)):
                wanted = kernel(*pair).tolist()
                assert getattr(fnp, kernel.__name__)(*pair).tolist() == wanted
                assert fxgrad.vmap(kernel)(*pair).tolist() == wanted
                assert fxgrad.make_program(kernel)(*pair)(*pair).tolist() == wanted


def test_second_derivatives_of_hypot_at_the_origin() -> None:
    assert fxgrad.grad(fxgrad.grad(lambda x: np.hypot(x, 0.0)))(0.0) == 0.0
    assert fxgrad.grad(fxgrad.grad(lambda x: np.hypot(x, x)))(0.0) == 0.0
    second = fxgrad.grad(fxgrad.grad(lambda x: np.hypot(x, 3.0)))(4.0)
    np.testing.assert_allclose(second, 9 / 125, 1e-14)


def test_astype_none_is_float64_on_every_path() -> None:
    x = np.array([1, 2], np.int32)
    results = (fnp.asarray(x).astype(None), fnp.astype(x, None), fxgrad.jit(lambda x: x.astype(None))(x),
               fxgrad.vmap(lambda x: x.astype(None))(x))
    assert [result.dtype.name for result in results] == ["float64"] * 4


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_letters_in_front_of_what_is_joined() -> None:
    for joined, wanted in ((fnp.r_, np.r_), (fnp.c_, np.c_)):
        for letter in ("r", "c"):
            for parts in (([1, 2, 3], [4, 5, 6]), (1, 2), (np.ones((2, 2)), np.zeros((2, 2)))):
                assert joined[(letter, *parts)].tolist() == wanted[(letter, *parts)].tolist(), (letter, parts)


def test_what_replaces_a_number_is_not_replaced() -> None:
    x, options = np.array([np.inf, -np.inf, np.nan]), {"nan": np.inf, "posinf": -np.inf, "neginf": np.nan}
    for found in (fnp.nan_to_num(x, **options), fxgrad.vmap(lambda x: fnp.nan_to_num(x, **options))(x)):
        np.testing.assert_array_equal(found, [-np.inf, np.nan, np.inf])


def test_numbers_to_begin_with_that_the_dtype_has_not() -> None:
    for dtype, number, message in (("int32", 1e300, "the float 1e+300 is no number of int32"),
                                   ("uint8", 300, "the integer 300 is out of bounds for uint8"),
                                   ("int64", np.nan, "the float nan is no number of int64")):
        with pytest.raises(OverflowError, match=re.escape(message)):
            fnp.max(np.ones(2, dtype), initial=number)
    assert fnp.max(np.ones(2, int), initial=-np.inf) == 1


def test_variances_with_nans_left_out_keep_the_digits_of_ddof() -> None:
    x = np.array([1.0, 2.0, np.nan, 4.0])
    assert fnp.nanvar(x, ddof=0.1) == np.nanvar(x, ddof=0.1)


def test_integers_are_needed_for_diagonals_turns_and_decimals() -> None:
    for call in (lambda x: fnp.tril(x, 0.5), lambda x: fnp.triu(x, 0.5), lambda x: fnp.rot90(x, 0.5),
                 lambda x: fnp.round(x, 0.5)):
        for path in (call, lambda x, call=call: fxgrad.make_program(call)(x)):
            with pytest.raises(ArgumentError, match=re.escape("an integer is needed, got 0.5")):
                path(np.ones((2, 2)))


def test_condition_numbers_of_singular_matrices() -> None:
    singular, regular = np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([[2.0, 1.0], [0.0, 0.5]])
    for order in (1, -1, np.inf, -np.inf, "fro", "nuc"):
        found = fnp.linalg.cond(np.stack([singular, regular, np.full((2, 2), np.nan)]), order)
        np.testing.assert_allclose(found, [np.inf, np.linalg.cond(regular, order), np.nan], rtol=1e-14)


def test_weighted_percentiles_without_nans() -> None:
    x, weights = np.array([3.0, np.nan, 1.0, 2.0]), np.array([5.0, 7.0, 1.0, 2.0])
    for q in (10.0, 30.0, 50.0):
        options = {"weights": weights, "method": "inverted_cdf"}
        assert fnp.nanpercentile(x, q, **options) == np.nanpercentile(x, q, **options)
        assert fnp.nanquantile(x, q / 100.0, **options) == np.nanpercentile(x, q, **options)


def test_the_nearest_of_two_elements_is_numpys_under_its_names() -> None:
    """NumPy takes the even one of two places that are equally near, jax the lower one."""
    for size in (2, 4, 6, 12):
        x = np.arange(size) + 0.25
        for name, q in (("quantile", 0.5), ("percentile", 50.0), ("nanquantile", [0.5, 1.0]), ("nanpercentile", 50.0)):
            def function(x: Any, name: str = name, q: Any = q) -> Any:
                return getattr(np, name)(x, q, method="nearest")
            expected = function(x)
            np.testing.assert_array_equal(fxgrad.jit(function)(x), expected)
            np.testing.assert_array_equal(fxgrad.vmap(function)(np.stack([x]))[0], expected)
    assert fnp.quantile(np.arange(4.0), 0.5, method="nearest") == 1.0


def test_edges_of_bins_that_do_not_increase_are_refused() -> None:
    x = np.array([0.5, 1.5])
    for call in (lambda: fnp.histogram(x, [2.0, 1.0, 0.0]),
                 lambda: fxgrad.jit(lambda x: np.histogram(x, [0.0, 2.0, 1.0]))(x),
                 lambda: fnp.histogram2d(x, x, [[0.0, 1.0], [2.0, 1.0]]),
                 lambda: fnp.histogram(x, [0.0, np.nan, 1.0])):
        with pytest.raises(ArgumentError, match=r"^histogram: bins must increase, got \[") as caught:
            call()
    assert str(caught.value).split("\n")[0] == "histogram: bins must increase, got [0.0, nan, 1.0]"
    np.testing.assert_array_equal(fnp.histogram(x, [0.0, 1.0, 1.0, 2.0])[0], [1.0, 0.0, 1.0])


def test_conditions_that_are_known_choose_under_jit() -> None:
    x = np.arange(6.0).reshape(2, 3)
    functions: list[Any] = [lambda x: np.extract(np.arange(6).reshape(2, 3) % 2 == 0, x),
                            lambda x: np.extract([[1, 0, 0], [0, 2, 0]], x),
                            lambda x: np.compress([2, 0, 1], x, axis=1),
                            lambda x: np.compress([True, False, True, False, False, False, False], x)]
    for function in functions:
        np.testing.assert_array_equal(fxgrad.jit(function)(x), function(x))
        np.testing.assert_array_equal(fxgrad.vmap(function)(x[None])[0], function(x))


def test_widths_by_axis_and_nothing_to_repeat() -> None:
    x = np.arange(6.0).reshape(2, 3)
    found = fxgrad.jit(lambda x: np.pad(x, {-1: (1, 2)}, "edge"))(x)
    np.testing.assert_array_equal(found, np.pad(x, ((0, 0), (1, 2)), "edge"))
    np.testing.assert_array_equal(fnp.pad(x, {0: 1}), np.pad(x, ((1, 1), (0, 0))))
    for mode in ("mean", "median", "maximum", "edge", "linear_ramp"):
        with pytest.raises(ShapeError, match=rf"^pad: mode '{mode}' along axis 0 of size 0, which has"):
            fnp.pad(np.zeros(0), 1, mode)


def test_slopes_at_the_ends_by_parabolas() -> None:
    x = np.array([[1.0, 2.5, 2.0, 5.0], [0.5, 0.25, 3.0, 1.0], [2.0, 1.5, 1.0, 4.0]])
    places = np.array([0.0, 1.0, 1.5, 4.0])
    functions: list[Any] = [
        lambda xp, x: xp.gradient(x, edge_order=2)[0], lambda xp, x: xp.gradient(x, edge_order=2)[1],
        lambda xp, x: xp.gradient(x, 0.5, axis=1, edge_order=2),
        lambda xp, x: xp.gradient(x, places, axis=1, edge_order=2),
        lambda xp, x: xp.gradient(x, places[:3], axis=0, edge_order=2),
        lambda xp, x: xp.gradient(x[:, 0] * 4, edge_order=2)]
    for function in functions:
        for way in (functools.partial(function, fnp), fxgrad.jit(functools.partial(function, np))):
            np.testing.assert_allclose(way(x), function(np, x), rtol=1e-13)
            np.testing.assert_allclose(way(x.astype("f4")), function(np, x.astype("f4")), rtol=1e-6)
        check_grads(functools.partial(function, fnp), (x,), order=1)
    check_grads(lambda places: fnp.gradient(x, places, axis=1, edge_order=2), (places,), order=2)


def test_medians_of_no_elements_are_nan() -> None:
    functions: list[Any] = [lambda xp, x: xp.median(x), lambda xp, x: xp.nanmedian(x, axis=0),
                            lambda xp, x: xp.median(x, axis=0, keepdims=True)]
    for function in functions:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = function(np, np.zeros((0, 3)))
        for way in (functools.partial(function, fnp), fxgrad.jit(functools.partial(function, fnp)),
                    fxgrad.jit(functools.partial(function, np))):
            found = way(np.zeros((0, 3)))
            assert found.dtype == np.float64
            np.testing.assert_array_equal(found, expected)
    assert np.isnan(fnp.nanquantile(np.zeros((0, 3)), [0.25, 0.5], axis=0)).tolist() == [[True] * 3] * 2
    with pytest.raises(DTypeError, match=r"^median: not defined for complex numbers"):
        fnp.median(np.array([1j]))


def test_antiderivatives_of_a_high_order() -> None:
    """Factorials are beyond the integers of 64 bits."""
    p = np.arange(1.0, 26.0)
    np.testing.assert_allclose(fnp.polyint(p, 20), np.polyint(p, 20), rtol=1e-13)
    np.testing.assert_allclose(fnp.polyder(p, 20), np.polyder(p, 20), rtol=1e-13)


def test_grids_of_arrays_of_other_shapes_flatten_them() -> None:
    x, y = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0])
    for call in (fnp.meshgrid, fxgrad.jit(fnp.meshgrid)):
        for found, expected in zip(call(x, y, 3.0), np.meshgrid(x, y, 3.0), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("kind", "text", "call"), [
    (ShapeError, "vecmat: vectors have at least 1 axis, got an array of shape (). Write x[None]",
     lambda: fnp.vecmat(1.0, np.ones((1, 3)))),
    (ShapeError, "vecmat: matrices have at least 2 axes, got an array of shape (3,). Write x[None, :] or x[:, None]",
     lambda: fnp.vecmat(np.ones(3), np.ones(3))),
    (ShapeError, "matvec: matrices have at least 2 axes, got an array of shape (3,). Write x[None, :] or x[:, None]",
     lambda: fnp.matvec(np.ones(3), np.ones(3))),
    (ArgumentError, "lexsort: no keys. Give at least one array to sort by, lexsort([x])", lambda: fnp.lexsort([])),
    (ArgumentError, "choose: no choices. Give at least one, choose(a, [x, y])",
     lambda: fnp.choose(np.array([0, 1]), [])),
    (ArgumentError, "einsum: no arrays for 'ij'. Write einsum('ij->j', x)", lambda: fnp.einsum("ij")),
    (ArgumentError, ("einsum: one array alone, without subscripts. Write einsum('ij->j', x), or einsum(x, [0, 1], "
     "[1])"), lambda: fnp.einsum(np.ones(3))),
    (ArgumentError, "trim_zeros: trim is made of 'f' and 'b', got 3", lambda: fnp.trim_zeros(np.ones(3), 3)),
])
def test_calls_without_enough_are_refused(kind: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text


def test_bools_beside_other_arrays_stay_bools() -> None:
    x = np.ones((2, 3), np.int32)
    for call in (lambda x: fnp.broadcast_arrays(x, True, [True, False, True]), lambda x: fnp.meshgrid(x[0], True)):
        for found in (call(x), fxgrad.jit(call)(x)):
            assert [each.dtype for each in found] == [np.int32, *[np.bool_] * (len(found) - 1)]


def test_polynomials_of_bools_and_without_roots() -> None:
    found = fnp.polyint(np.array([True, False]))
    assert found.dtype == fnp.polyint(np.array([1, 0], np.int8)).dtype == np.float32
    np.testing.assert_array_equal(found, [0.5, 0.0, 0.0])
    for find in (fnp.poly, fxgrad.jit(fnp.poly)):
        assert find(np.zeros(0)).shape == np.shape(np.poly(np.zeros(0))) == ()
        assert find(np.zeros(0)) == 1.0


def test_arguments_with_too_few_axes_for_a_signature() -> None:
    with pytest.raises(ShapeError) as caught:
        fnp.vectorize(lambda a, b: a @ b, signature="(m,n),(n)->(m)")(np.ones((3, 2)), 1.0)
    assert str(caught.value).splitlines()[0] == (
        "vectorize: argument 1 of shape (); the signature wants 1 axes (n)")


def test_one_choice_has_the_shape_of_the_numbers() -> None:
    np.testing.assert_array_equal(fnp.choose([0, 0, 0], [5.0]), [5.0, 5.0, 5.0])
    x = np.arange(3.0)
    np.testing.assert_array_equal(fxgrad.jit(lambda x: np.choose([[0], [0]], [x]))(x), [x, x])


@pytest.mark.parametrize("obj", [[1], np.array([1]), slice(1, 2)], ids=str)
def test_several_values_at_the_one_place_of_a_list(obj: Any) -> None:
    x = np.arange(6.0).reshape(3, 2)
    for given in ([7.0, 8.0, 9.0], [[7.0], [8.0], [9.0]]):
        np.testing.assert_array_equal(fnp.insert(x, obj, given, axis=1), np.insert(x, obj, given, axis=1))
    np.testing.assert_array_equal(fnp.insert(x[:, 0], obj, [7.0, 8.0]), np.insert(x[:, 0], obj, [7.0, 8.0]))
    place = np.array([1])
    np.testing.assert_array_equal(fxgrad.jit(lambda x, at: fnp.insert(x, at, [7.0, 8.0]))(x[:, 0], place),
                                  np.insert(x[:, 0], place, [7.0, 8.0]))


def test_flat_positions_beyond_32_bits() -> None:
    sizes = (41, 7, 120, 36, 2706, 8)
    at = ([1, 29], [3, 5], [3, 117], [19, 2], [2379, 1284], [2, 2])
    wanted = np.ravel_multi_index(at, sizes)
    np.testing.assert_array_equal(fnp.ravel_multi_index(at, sizes), wanted)
    small = tuple(np.array(each, np.int32) for each in at)
    np.testing.assert_array_equal(fxgrad.jit(lambda at: fnp.ravel_multi_index(at, sizes, "clip"))(small), wanted)
    np.testing.assert_array_equal(fnp.ravel_multi_index(([0], [1]), (2**62, 2)), [1])
    for flat in (7, np.int32(7), np.array([7, 2**31 - 1], np.int32), np.uint8(7)):
        for found, place in zip(fnp.unravel_index(flat, (70000, 70000)), np.unravel_index(flat, (70000, 70000)),
                                strict=True):
            np.testing.assert_array_equal(found, place)
    np.testing.assert_array_equal(fnp.unravel_index(np.array([-1], np.int8), (300,)), [[299]])
    for call in (lambda: fnp.unravel_index(1, (2**40, 2**40)), lambda: fnp.ravel_multi_index((0, 1), (2**40, 2**40))):
        with pytest.raises(ShapeError, match="more elements than int64 counts"):
            call()


@pytest.mark.parametrize("dtypes", [("u8", "u8"), ("u8", "i8"), ("u4", "u4"), ("u1", "u1")], ids=str)
def test_flat_positions_of_unsigned_integers_are_integers(dtypes: Any) -> None:
    at = tuple(np.array([1, 200], dtype) for dtype in dtypes)
    found = fnp.ravel_multi_index(at, (256, 256))
    assert found.dtype.kind in "iu"
    np.testing.assert_array_equal(found, np.ravel_multi_index(at, (256, 256)))


def test_large_complex_numbers_are_finite() -> None:
    z = np.array([1.7e308 - 1.7e308j, complex(np.inf, 0), complex(0, -np.inf), complex(np.nan, np.inf), np.nan, 1j])
    for name in ("isfinite", "isinf", "isnan"):
        for function in (getattr(fnp, name), fxgrad.jit(getattr(fnp, name))):
            np.testing.assert_array_equal(function(z), getattr(np, name)(z))


def test_complex_numbers_with_a_nan_in_either_part_are_one() -> None:
    z = np.array([2 - 1j, np.nan, 1 + 1j, complex(0, np.nan), complex(1, np.nan), 1 + 1j])
    found = fnp.unique(z, return_index=True, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(found[0], [1 + 1j, 2 - 1j, np.nan])
    for ours, wanted in zip(found[1:], ([2, 0, 1], [1, 2, 0, 2, 2, 0], [2, 1, 3]), strict=True):
        np.testing.assert_array_equal(ours, wanted)
    assert fnp.unique(z, equal_nan=False).size == 5


@pytest.mark.parametrize("positions", [np.array([3, 2, 1], "u1"), np.array([-100, 20, 110], "i1"),
                                       np.array([2**64 - 1, 2**64 - 3, 2**64 - 4], "u8")], ids=str)
def test_slopes_at_positions_of_narrow_and_unsigned_integers(positions: Any) -> None:
    f = np.array([1.0, 2.0, 5.0])
    exact = np.array([int(each) - int(positions[0]) for each in positions], float)
    np.testing.assert_allclose(fnp.gradient(f, positions), np.gradient(f, exact), rtol=1e-15)
    for function in (fnp.trapezoid, fxgrad.jit(fnp.trapezoid)):
        np.testing.assert_allclose(function(f, positions), np.trapezoid(f, exact), rtol=1e-15)
    np.testing.assert_allclose(fnp.trapezoid(np.stack([f, f]), np.stack([positions, positions])),
                               np.trapezoid(np.stack([f, f]), exact), rtol=1e-15)


def test_nearness_of_bools() -> None:
    a, b = np.array([True, False, True]), np.array([False, False, True])
    for tolerances in ({}, {"atol": 1}, {"atol": 1, "rtol": 0}, {"rtol": 1}):
        np.testing.assert_array_equal(fnp.isclose(a, b, **tolerances), np.isclose(a, b, **tolerances))


def test_points_in_a_list_are_vectors_of_coordinates() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 20))
    counts, edges = fnp.histogramdd([x, y], bins=(3, 4))
    wanted, parts = np.histogramdd([x, y], bins=(3, 4))
    np.testing.assert_array_equal(counts, wanted)
    np.testing.assert_allclose(edges[1], parts[1], rtol=1e-14)
    np.testing.assert_array_equal(fxgrad.vmap(lambda x: np.histogramdd([x, y], bins=2)[0])(x[None])[0],
                                  np.histogramdd([x, y], bins=2)[0])


def test_statistics_of_too_few_elements_as_padding() -> None:
    for mode, length in (("mean", -2), ("maximum", 0), ("minimum", (1, 0))):
        with pytest.raises(ArgumentError, match="stat_length"):
            fnp.pad(np.arange(4.0), 2, mode, stat_length=length)


def test_zeros_trimmed_from_a_number() -> None:
    assert fnp.trim_zeros(np.asarray(1.0)).shape == fnp.trim_zeros(np.asarray(0.0)).shape == ()


def test_a_path_without_operands() -> None:
    with pytest.raises(ArgumentError, match="no arrays"):
        fnp.einsum_path("")


def test_large_and_small_integers_in_a_list_of_unsigned_ones() -> None:
    for numbers in ([2**64 - 1, 104783749223640], [[2**63 + 1], [True]], [2**63 + 1]):
        np.testing.assert_array_equal(fnp.array(numbers, np.uint64), np.array(numbers, np.uint64))
    for numbers in ([2**64 - 1, -1], [2**64, 1]):
        with pytest.raises(OverflowError, match="out of bounds for uint64"):
            fnp.array(numbers, np.uint64)
    assert fnp.array([], np.uint64).shape == (0,)
    np.testing.assert_array_equal(fnp.array([1.0, 2.0**63], np.uint64), np.array([1, 2**63], np.uint64))


def test_python_integers_beyond_64_bits() -> None:
    for function in (fnp.bitwise_count, fnp.sum, lambda n: fnp.maximum(n, 2)):
        with pytest.raises(OverflowError, match="does not fit int64"):
            function(2**70)
    for function in (lambda n: n + 2**70, lambda n: n == 2**70, lambda n: 2**70 - n):
        with pytest.raises(OverflowError, match=r"does not fit int64, .*\n  at test_details\.py:"):
            fxgrad.jit(function)(3)
