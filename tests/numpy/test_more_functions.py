"""Sets, histograms, polynomials, sliding products, edits, parts of numbers and mapped functions, against jax."""

from __future__ import annotations

import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, ConcretizationError, DTypeError, IndexingError, ShapeError, UnsupportedError
from tests.support.with_numpy import (
    Call,
    assert_equal,
    check_all,
    check_gradient,
    check_gradients,
    draw,
    each,
    in_groups,
)

pytestmark = pytest.mark.slow

I = draw((7,), "int32")  # noqa: E741
F, G, M = draw((7,)), draw((4,)), draw((4, 5))
NANS = np.array([2.0, np.nan, 1.0, np.nan, 2.0, -0.0], np.float32)

CALLS: list[tuple[Any, ...]] = [
    ("unique", I, {"size": 9, "return_counts": True, "return_index": True, "return_inverse": True}),
    ("unique", NANS, {"size": 3, "return_counts": True}), ("unique", NANS, {"size": 6, "equal_nan": False}),
    ("unique", draw((4, 2), "int32", 0, 1), {"size": 5, "axis": 0, "fill_value": -1}),
    ("union1d", I, I[:3] + 1, {"size": 8, "fill_value": 0}), ("setdiff1d", I, I[:3], {"size": 5}),
    ("setxor1d", I, I[:3] + 1, {"size": 8}), ("isin", I, I[:2], {}),
    ("isin", draw((90,), "int32", 0, 99), draw((80,), "int32", 0, 99, "o"), {"invert": True}),
    ("intersect1d", I, I[:3], {"size": 4, "return_indices": True, "fill_value": 9}),
    ("histogram", F, 4, {}),
    ("histogram", F, np.array([-2, 0, 1, 3], np.float32), {"weights": np.arange(7.0).astype("f")}),
    ("histogram", I, 3, (0, 2), {"density": True}), ("histogram2d", F, F[::-1].copy(), (2, 3), {}),
    ("bincount", I, {"length": 4}),
    ("bincount", abs(I), F, {"length": 9}), ("digitize", F, np.array([-1, 0, 2], np.float32), {}),
    ("digitize", F, np.array([2, 0, -1], np.float32), {"right": True}),
    ("convolve", F, G, "same", {}), ("convolve", G, F, {}), ("correlate", F, G, "full", {}),
    ("correlate", G, F, "same", {}), ("convolve", I, I[:2], "valid", {}), ("gradient", M, {}),
    ("gradient", M, 2.0, np.array([0, 1, 2.5, 4, 4.5], np.float32), {}), ("trapezoid", M, {"axis": 0, "dx": 0.5}),
    ("trapezoid", M, np.array([0, 1, 2.5, 4, 4.5], np.float32), {}), ("unwrap", 4 * M, {"axis": 0}),
    ("unwrap", 4 * I, {"period": 5}), ("unwrap", 4 * I, {"period": 6}), ("ediff1d", M, 1.0, 2.0, {}),
    ("polyval", G, M, {}), ("polyadd", F, G, {}), ("polysub", G, F, {}), ("polymul", F, G, {}), ("polydiv", F, G, {}),
    ("polydiv", G, F, {}), ("polyder", F, 2, {}), ("polyint", F, 2, {}), ("poly", G, {}), ("vander", G, 3, {}),
    ("vander", I, {"increasing": True}), ("polyfit", F, F**2, 2, {}),
    ("choose", abs(I[:4]) % 2, [G, M[:, 0]], {"mode": "clip"}),
    ("compress", np.array([True, False, True]), M, 1, {"size": 2}),
    ("extract", M > 0, M, {"size": 20}), ("insert", F, 2, 7.0, {}), ("insert", M, slice(0, 4, 3), 5.0, {"axis": 1}),
    ("insert", M, 1, np.ones(4, np.float32), {"axis": 1}), ("delete", F, slice(1, 6, 2), {}),
    ("delete", M, 1, {"axis": 1}), ("put", M, np.array([0, 30]), G, {"inplace": False}),
    ("place", M, M > 0, G, {"inplace": False}), ("fill_diagonal", M, 7, {"inplace": False}),
    ("put_along_axis", M, np.array([[1], [0], [2], [4]]), 9.0, {"axis": 1, "inplace": False}),
    ("resize", M, (3, 9), {}),
    ("rollaxis", draw((2, 3, 4)), 2, {}), ("gcd", 6 * I, I + 4, {}), ("lcm", 6 * I, I + 4, {}), ("frexp", F * 9, {}),
    ("ldexp", F, I, {}), ("modf", F, {}), ("spacing", F, {}), ("i0", F, {}), ("packbits", abs(I), {}),
    ("unpackbits", draw((3,), "uint8", 0, 255), {"count": 20, "bitorder": "little"}),
    ("ravel_multi_index", [I, I], (3, 4), "wrap", {}), ("unravel_index", 3 * I, (2, 3), {}),
    ("sort_complex", F, {}), ("nancumsum", NANS, {}), ("nancumprod", NANS, {}), ("nanmedian", NANS, {}),
    ("nanquantile", NANS, 0.4, {"method": "higher"}), ("quantile", M, 0.4, {"axis": 0, "method": "nearest"}),
    ("cov", M, {"rowvar": False}), ("cov", F, F[::-1].copy(), {"aweights": abs(F)}), ("corrcoef", M, {}),
    ("interp", F, np.sort(G), G, {"period": 2.0}), ("nonzero", M > 0, {"size": 30, "fill_value": -1}),
    ("argwhere", I, {"size": 3}), ("searchsorted", np.sort(draw((90,))), F, {"side": "right"}),
]


OF_LISTS = ("ravel_multi_index", "choose")  # lists of arrays are no arguments of `check`


@in_groups([Call(name, args, options) for name, *args, options in CALLS if name not in OF_LISTS])
def test_against_jax(calls: list[Call]) -> None:
    check_all(*calls)


@pytest.mark.parametrize("call", [call for call in CALLS if call[0] in OF_LISTS], ids=lambda call: call[0])
def test_lists_against_jax(call: tuple[Any, ...]) -> None:
    name, *args, options = call
    assert_equal(getattr(fnp, name)(*args, **options), getattr(jnp, name)(*args, **options), name)


X, Y = draw((6,), "float64", low=0.2), draw((4,), "float64", seed="y")
A = draw((4, 5), "float64")

DIFFERENTIABLE: list[tuple[Any, ...]] = [
    ("unique", X, {"size": 8}), ("union1d", X, Y, {"size": 12}), ("setdiff1d", X, Y, {"size": 6}),
    ("convolve", X, Y, {}), ("convolve", Y, X, "same", {}), ("correlate", X, Y, "full", {}), ("gradient", A, {}),
    ("gradient", Y, np.array([0.0, 1.0, 2.5, 4.0]), {}), ("trapezoid", A, np.array([0, 1, 2.5, 4, 4.5]), {}),
    ("unwrap", 4 * Y, {}), ("polyval", Y, A, {}), ("polydiv", X, Y, {}), ("polyint", X, 2, {}), ("polyder", X, 2, {}),
    ("poly", Y, {}), ("vander", Y, {}), ("polyfit", X, X**2 + 1, 1, {}), ("insert", X, 2, Y, {}),
    ("resize", A, (3, 9), {}), ("i0", X, {}), ("ldexp", X, np.arange(6), {}),
    ("nanquantile", X, 0.4, {}), ("quantile", A, np.array([0.2, 0.7]), {"axis": 0}), ("cov", A, {}),
    ("corrcoef", A, {}),
    ("compress", np.array([True, False, True]), A, 1, {"size": 2}),
    ("interp", X, np.sort(Y), Y, {"left": "extrapolate"}),
    ("histogram", X, 3, {"weights": X}), ("place", A, A > 0, Y, {"inplace": False}), ("kaiser", 5, np.array(2.0), {}),
]


@in_groups([Call(name, args, options) for name, *args, options in DIFFERENTIABLE])
def test_gradients(calls: list[Call]) -> None:
    check_gradients(*calls)


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hanning"])
@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_windows(name: str, size: int) -> None:
    assert_equal(getattr(fnp, name)(size), getattr(jnp, name)(size), name)


@each("options", [
    {"mode": "linear_ramp", "end_values": ((1.0, -1.0), (2.0, 0.0))}, {"mode": "maximum"}, {"mode": "mean"},
    {"mode": "median", "stat_length": 2}, {"mode": "minimum", "stat_length": ((1, 2), (2, 1))},
    {"mode": "reflect", "reflect_type": "odd"}, {"mode": "symmetric", "reflect_type": "odd"}, {"mode": "empty"},
])
def test_padding(options: dict[str, Any]) -> None:
    for array in (M, draw((3, 3), "int32")):
        wanted = np.pad(array, ((2, 1), (4, 0)), **options)
        inner = (slice(2, -1), slice(4, None)) if options["mode"] == "empty" else ()
        assert_equal(fnp.pad(array, ((2, 1), (4, 0)), **options)[inner], wanted[inner], str(options))
    if options["mode"] != "empty":
        check_gradient("pad", A, ((2, 1), (3, 0)), **options)


def test_padding_by_a_function() -> None:
    def framed(vector: Any, width: tuple[int, int], axis: int, options: dict[str, Any]) -> Any:
        return fnp.at(vector)[:width[0]].set(options["value"] + axis)

    got = fnp.pad(np.array([[1, 2], [3, 4]]), ((1, 0), (1, 0)), framed, value=10)
    assert got[1:, 1:].tolist() == [[1, 2], [3, 4]]
    assert got[:, 0].tolist() == [11, 11, 11]
    assert got[0, 1:].tolist() == [10, 10]


# --- what depends on values ---------------------------------------------------------------------------------------


def test_histograms_of_points() -> None:
    for options in ({"bins": 2, "density": True}, {"bins": [1, 2, 3, 1, 2], "weights": G}):
        got, wanted = fnp.histogramdd(M, **options), jax.jit(lambda m, o=options: jnp.histogramdd(m, **o))(M)
        for ours, theirs in zip([got[0], *got[1]], [wanted[0], *wanted[1]], strict=True):
            assert_equal(ours, theirs)


def test_shapes_may_depend_on_known_values() -> None:
    x = np.array([3.0, 1.0, 3.0])
    np.testing.assert_array_equal(fxgrad.grad(lambda x: fnp.sum(fnp.unique(x) ** 2))(x), [6.0, 2.0, 0.0])
    np.testing.assert_array_equal(fxgrad.grad(lambda x: np.sum(np.extract(x > 2, x) * x[1]))(x), [1.0, 6.0, 1.0])
    for function, name in ((np.unique, "unique"), (lambda x: np.setdiff1d(x, x[:1]), "setdiff1d"),
                           (np.trim_zeros, "trim_zeros"), (np.roots, "roots")):
        with pytest.raises(ConcretizationError, match=rf"^np\.{name}, whose result has a size that depends on the"):
            fxgrad.jit(function)(x)


def test_roots_and_companions() -> None:
    found = fnp.roots([0.0, 1.0, -6.0, 11.0, -6.0, 0.0])
    np.testing.assert_allclose(np.sort(found.real), [0, 1, 2, 3], atol=1e-12, rtol=1e-14)
    derivative = fxgrad.grad(lambda c: fnp.max(fnp.real(fnp.roots(c, strip_zeros=False))))(np.array([1.0, -3.0, 2.0]))
    np.testing.assert_allclose(derivative, [-4.0, -2.0, -1.0], rtol=1e-12)  # -x^k / p'(x) at x = 2


def test_gcd_under_transformations() -> None:
    x, y = np.array([[12, -18, 0], [7, 2**30, 5]]), np.array([8, 27, 0])
    np.testing.assert_array_equal(fxgrad.jit(fnp.gcd)(x, y), np.gcd(x, y))
    np.testing.assert_array_equal(fxgrad.vmap(fnp.lcm, in_axes=(0, None))(x, y), np.lcm(x, y))


# --- mapped functions ---------------------------------------------------------------------------------------------


def test_vectorize() -> None:
    branch = fnp.vectorize(lambda x, y: fnp.where(x > y, x, y * y))
    assert_equal(branch(M, G[:, None]), np.where(G[:, None] < M, M, G[:, None] ** 2))
    scaled = fnp.vectorize(lambda k, v, scale: (scale * k @ v, k[0]), excluded={2}, signature="(m,n),(n)->(m),(n)")
    k, v = draw((3, 1, 2, 5), "float64"), draw((4, 5), "float64")
    products, rows = scaled(k, v, 2.0)
    np.testing.assert_allclose(products, 2 * (k @ v[..., None])[..., 0], rtol=1e-12)
    assert rows.shape == (3, 4, 5)
    slopes = fxgrad.grad(lambda x: fnp.sum(fnp.vectorize(fnp.sin)(x)))(X)
    np.testing.assert_allclose(slopes, np.cos(X), rtol=1e-12)
    with pytest.raises(ShapeError, match=r"^vectorize: axis n has size 5 in one argument, and 4 in argument 1"):
        scaled(k, v[:, :4], 1.0)
    with pytest.raises(ArgumentError, match=r"^vectorize: 'n->n' is no signature; one reads '\(m,n\),\(n\)->\(m\)'"):
        fnp.vectorize(fnp.sin, signature="n->n")


def test_vectorize_with_dtypes_of_results() -> None:
    for otypes in ([np.float32, int], "fl"):
        function = fxgrad.jit(fnp.vectorize(lambda x: (x * 2, x), otypes=otypes))
        for found, expected in zip(function(X), np.vectorize(lambda x: (x * 2, x), otypes=otypes)(X), strict=True):
            assert_equal(found, expected)
    with pytest.raises(ArgumentError, match=(
            r"^vectorize: otypes has 2 dtypes, and sin returns 1 arrays; one for each is needed\n")):
        fnp.vectorize(fnp.sin, otypes="ff")(X)


def test_along_and_over_axes() -> None:
    for function in (np.cumsum, np.sum, lambda x: np.outer(x, x)):
        expected = np.apply_along_axis(function, 1, A[..., None] * X)
        np.testing.assert_allclose(fnp.apply_along_axis(function, 1, A[..., None] * X), expected, rtol=1e-12)
    np.testing.assert_allclose(fnp.apply_over_axes(np.sum, A, [0, -1]), np.apply_over_axes(np.sum, A, [0, -1]),
                               rtol=1e-12)
    np.testing.assert_allclose(fxgrad.grad(lambda x: np.sum(np.apply_along_axis(np.prod, 0, x)))(A[:2]),
                               A[:2][::-1], rtol=1e-12)


def test_piecewise() -> None:
    expected = np.where(X < 1, 0.0, np.where(X < 2, X**2, -X))
    got = fnp.piecewise(X, [X < 1, (X >= 1) & (X < 2)], [0.0, lambda v: v**2, lambda v: -v])
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_joining_by_indices() -> None:
    for build in (lambda m: m.r_[1:3, 5.0], lambda m: m.r_[0:1:3j, 2], lambda m: m.r_["0,2", G, G],
                  lambda m: m.c_[G, G], lambda m: m.mgrid[0:2, 0:2.5], lambda m: m.mgrid[0:2:5j],
                  lambda m: m.r_["1,2,0", G, G]):
        assert_equal(build(fnp), build(jnp))
    np.testing.assert_allclose(fxgrad.grad(lambda x: fnp.sum(fnp.r_[x, 1.0, x] ** 2))(X), 4 * X, rtol=1e-12)


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "error", "text"), [
    (lambda: fnp.put(F, [0], 1.0), UnsupportedError,
     "put: arrays here are not changed; write result = put(..., inplace=False)"),
    (lambda: fnp.delete(F, 7), IndexingError,
     "delete: index 7 is out of range for axis 0 of size 7; in range are -7 to 6"),
    (lambda: fnp.choose([2], [F[:1], F[:1]]), IndexingError,
     "choose: numbers from 2 to 2 of 2 choices; in range are 0 to 1"),
    (lambda: fnp.bincount(F), DTypeError, "bincount: integers are needed, got float32; convert with x.astype(int)"),
    (lambda: fnp.histogram(F, "auto"), ArgumentError,
     "histogram: bins='auto'; a number of bins, or their edges, is needed"),
    (lambda: fnp.convolve(F, M), ShapeError,
     "convolve: arrays of shapes (7,) and (4, 5); vectors with elements are needed"),
    (lambda: fnp.gradient(F, edge_order=3), UnsupportedError, "gradient: edge_order=3 is not supported; 1 and 2 are"),
    (lambda: fnp.gradient(np.ones(2), edge_order=2), ShapeError,
     "gradient: axis 0 of size 2; at least 3 elements are needed"),
    (lambda: fnp.gcd(F, F), DTypeError, "gcd: integers are needed, got float32; convert with x.astype(int)"),
    (lambda: fnp.unique(F, size=-1), ArgumentError, "unique: size=-1; a number from 0 on is needed"),
    (lambda: fnp.nonzero(1.0), ShapeError, "nonzero: a scalar has no positions; use x.reshape(1)"),
    (lambda: fnp.block([[F], F]), ArgumentError, "block: lists that are empty, or not nested equally deep"),
    (lambda: fnp.quantile(F, 0.5, weights=F), UnsupportedError,
     "quantile: weights= with method='linear' is not supported; only 'inverted_cdf' is"),
])
def test_messages(function: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        function()
    assert str(caught.value).partition("\n")[0] == text


def test_edges_of_decreasing_bins() -> None:
    x, bins = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0]), np.array([2.0, 1.0, 0.0])
    for right in (False, True):
        for edges in (bins, bins[::-1].copy()):
            expected = np.digitize(x, edges, right)
            np.testing.assert_array_equal(fnp.digitize(x, edges, right), expected)
            np.testing.assert_array_equal(fxgrad.jit(fnp.digitize, static_argnums=2)(x, edges, right), expected)


def test_frompyfunc_calls_its_function_each_time() -> None:
    k = 2.0
    scaled = fnp.frompyfunc(lambda x: x * k, 1, 1)
    slope = fxgrad.grad(lambda x: scaled(x) * 1.0)
    for k in (2.0, 2.0, 5.0, 3.0):
        assert slope(np.float64(1.0)) == k
        np.testing.assert_array_equal(fxgrad.vmap(scaled)(np.ones(2)), [k, k])


def test_counts_of_histograms_of_several_axes_are_numpys_floats() -> None:
    points = draw((9, 2), "float64")
    for function in (lambda p: np.histogramdd(p, bins=2)[0], lambda p: np.histogram2d(p[:, 0], p[:, 1], bins=3)[0],
                     lambda p: np.histogramdd(p, bins=2, density=True)[0]):
        assert_equal(fxgrad.jit(function)(points), function(points))


def test_functions_of_elements_say_what_numpys_do() -> None:
    for name in ("add", "multiply", "logical_and", "maximum", "sin", "ldexp"):
        ours, numpys = getattr(fnp, name), getattr(np, name)
        assert (ours.nin, ours.nout, ours.identity) == (numpys.nin, numpys.nout, numpys.identity), name
    made = fnp.frompyfunc(lambda x, y: (x, y), 2, 2, identity=0)
    assert (made.nin, made.nargs, made.nout, made.identity) == (2, 2, 2, 0)


def test_ranges_are_read_as_lists_of_integers() -> None:
    for values in (range(3), range(0), [range(2), range(2)], range(5, 1, -2)):
        read = fnp.array(values)
        np.testing.assert_array_equal(read, np.array(values))
        assert read.dtype == jnp.array(values).dtype
    assert fnp.asarray(range(3), dtype="float64").dtype == np.float64
    assert fxgrad.jit(lambda x: x + fnp.array(range(2)))(np.ones(2)).tolist() == [1.0, 2.0]


def test_files_of_bfloat16_are_read_as_such() -> None:
    for values in (fnp.array([0.5, 3.0], "bfloat16"), fnp.arange(3, dtype="int16")):
        file = io.BytesIO()
        fnp.save(file, values)
        file.seek(0)
        read = fnp.load(file)
        assert read.dtype == values.dtype
        np.testing.assert_array_equal(read, values)


def test_numbers_between_known_bounds_are_rounded_once() -> None:
    for start, stop, num, endpoint in ((0, 25, 6, True), (-3, 4, 11, True), (1.5, -2, 7, False), (2, 2, 3, True)):
        exact = np.linspace(start, stop, num, endpoint)
        for dtype in ("float32", "float16", "float64"):
            np.testing.assert_array_equal(fnp.linspace(start, stop, num, endpoint, dtype=dtype), exact.astype(dtype))
        np.testing.assert_array_equal(fnp.linspace(start, stop, num, endpoint, dtype=int),
                                      np.linspace(start, stop, num, endpoint, dtype=int))
    assert fnp.linspace(1e308, -1e308, 3, dtype="float64").tolist() == [1e308, 0.0, -1e308]
    counted = np.array([1, 2, 3, 10, 11, 15, 19, 25], np.int32)  # 15 is on an edge
    np.testing.assert_array_equal(fnp.histogram(counted, 5, range=(0, 25))[0], np.histogram(counted, 5, (0, 25))[0])


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_delete_takes_one_traced_integer(axis: int | None) -> None:
    places = np.arange(-3, 3)

    def left(place: Any) -> Any:
        return fnp.delete(M, place, axis=axis)
    found = fxgrad.jit(fxgrad.vmap(left))(places)
    for one, place in zip(found, places, strict=True):
        np.testing.assert_array_equal(one, np.delete(M, place, axis=axis))
