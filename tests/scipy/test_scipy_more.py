"""Convolutions, cosine transforms, reading between elements and clusters, against SciPy and jax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.ndimage
import numpy as np
import pytest
import scipy.cluster.vq
import scipy.fft
import scipy.linalg
import scipy.signal

import fxgrad
import fxgrad.scipy
from fxgrad import errors

RANDOM = np.random.default_rng(0)
A, B = RANDOM.normal(size=(5, 6)), RANDOM.normal(size=(3, 2))
U, V = RANDOM.normal(size=7), RANDOM.normal(size=4)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("name", "one", "other"), [
    ("convolve", U, V), ("convolve", A, B), ("convolve", V, U), ("correlate", U, V), ("correlate", A, B),
    ("convolve2d", A, B), ("correlate2d", A, B), ("fftconvolve", A, B), ("fftconvolve", U, V),
    ("convolve", U + 1j * U ** 2, V * 1j), ("correlate", U + 1j * U ** 2, V * 1j)])
def test_convolutions_as_scipy(name: str, one: Any, other: Any, mode: str) -> None:
    ours, theirs = getattr(fxgrad.scipy.signal, name), getattr(scipy.signal, name)
    if mode == "same" and len(one) < len(other):
        return  # SciPy centres with respect to the first, jax does not
    expected = theirs(one, other, mode=mode)
    np.testing.assert_allclose(ours(one, other, mode=mode), expected, rtol=2e-12, atol=2e-15)
    if name in ("convolve", "correlate"):
        by_transforms = ours(one, other, mode, "fft")
        np.testing.assert_allclose(by_transforms, expected, rtol=2e-12, atol=5e-15)
    np.testing.assert_allclose(fxgrad.vmap(lambda x: ours(x, other, mode=mode))(one[None])[0], expected, atol=1e-15,
                               rtol=5e-12)
    if np.isrealobj(one):
        slope = fxgrad.grad(lambda x: np.sum(ours(x, other, mode=mode) ** 2))(one)
        np.testing.assert_allclose(np.sum(slope * one), 2 * np.sum(expected ** 2), rtol=1e-12)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", ["dct", "idct", "dctn", "idctn", "dst", "idstn"])
def test_cosine_and_sine_transforms_as_scipy(name: str, norm: str | None) -> None:
    ours, theirs = getattr(fxgrad.scipy.fft, name), getattr(scipy.fft, name)
    several = name.endswith("n")
    for options in ({}, {"s": (4, 8)} if several else {"n": 4}, {"axes": (0,)} if several else {"axis": 0, "n": 9}):
        expected = theirs(A, norm=norm, **options)
        np.testing.assert_allclose(ours(A, norm=norm, **options), expected, rtol=5e-12, atol=5e-15)
        rows = fxgrad.vmap(lambda x, o=options: ours(x, norm=norm, **o))(A[None])
        np.testing.assert_allclose(rows[0], expected, atol=1e-15, rtol=5e-12)
    if several:
        swapped = {"s": (9, 2), "axes": (1, 0)}
        expected = theirs(A, norm=norm, **swapped)
        np.testing.assert_allclose(ours(A, norm=norm, **swapped), expected, rtol=5e-12, atol=5e-15)
        for numbers in ({"axes": 1}, {"s": 9, "axes": 0}, {"s": np.array([9, -1])}):
            np.testing.assert_allclose(ours(A, norm=norm, **numbers), theirs(A, norm=norm, **numbers), rtol=5e-12,
                                       atol=5e-15)
    else:
        for n in (0, -1):
            with pytest.raises(errors.ShapeError, match=rf"^{name}: {n} points; at least one is needed\n"):
                ours(A, n=n)
    complex_numbers = A + 1j * A[::-1]
    for options in ({}, {"axes": (0,)} if several else {"axis": 0, "n": 5}):
        np.testing.assert_allclose(ours(complex_numbers, norm=norm, **options),
                                   theirs(complex_numbers, norm=norm, **options), rtol=5e-12, atol=5e-15)
    halves = ours(A.astype(np.float16), norm=norm)
    np.testing.assert_array_equal(halves, ours(A.astype(np.float16).astype(np.float32), norm=norm))
    assert halves.dtype == np.float32
    with pytest.raises(errors.ArgumentError, match="norm='unit'; it is one of 'backward', 'ortho', 'forward'"):
        ours(A, norm="unit")
    assert ours(A.astype(np.float32), norm=norm).dtype == np.float32
    slope = fxgrad.grad(lambda x: np.sum(ours(x, norm=norm) ** 2))(A)
    np.testing.assert_allclose(np.sum(slope * A), 2 * np.sum(theirs(A, norm=norm) ** 2), rtol=1e-12)
    with pytest.raises(errors.ArgumentError, match="type=5; it is one of 1, 2, 3, 4\n"):
        ours(A, type=5)


@pytest.mark.parametrize("type", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["dct", "idct", "dst", "idst"])
def test_types_of_cosine_and_sine_transforms_as_scipy(name: str, type: int) -> None:  # noqa: A002
    ours, theirs = getattr(fxgrad.scipy.fft, name), getattr(scipy.fft, name)
    for n in (1, 2, 3, 4, 7, 8):
        if n == 1 and type == 1 and name.endswith("ct"):
            with pytest.raises(errors.ShapeError, match=f"^{name}: 1 points; type 1 needs at least two\n"):
                ours(np.ones(1), 1)
            continue
        x, cotangent = A.ravel()[:n] if n <= A.size else np.resize(A, n), np.cos(np.arange(n))
        for norm in (None, "ortho", "forward"):
            matrix = theirs(np.eye(n), type, axis=0, norm=norm)
            found, pullback = fxgrad.vjp(lambda x, norm=norm: ours(x, type, norm=norm), x)
            np.testing.assert_allclose(found, theirs(x, type, norm=norm), rtol=5e-12, atol=1e-14)
            np.testing.assert_allclose(pullback(cotangent)[0], cotangent @ matrix, rtol=5e-12, atol=1e-14)
        np.testing.assert_allclose(fxgrad.jit(ours, static_argnums=1)(x, type), theirs(x, type), rtol=5e-12, atol=1e-14)


PLACES = [np.array([-7.3, -1.5, -0.4, 0.0, 0.5, 2.25, 3.9, 4.5, 11.2]), np.linspace(-8.0, 13.3, 9)]
READINGS = [(order, mode) for order in (0, 1) for mode in ("constant", "nearest", "wrap", "mirror", "reflect")]


@pytest.mark.slow
def test_map_coordinates_as_jax() -> None:
    def theirs(p: Any, order: int, mode: str) -> Any:
        return jax.scipy.ndimage.map_coordinates(jnp.asarray(A), [p, PLACES[1]], order, mode, 7.0)

    def ours(p: Any, order: int, mode: str) -> Any:
        return fxgrad.scipy.ndimage.map_coordinates(A, [p, PLACES[1]], order, mode, 7.0)

    with jax.enable_x64(True):
        expected = jax.jit(lambda p: [(theirs(p, *each), jax.grad(lambda p: jnp.sum(theirs(p, *each)))(p))  # noqa: B023
                                      for each in READINGS])(PLACES[0])
    compiled = fxgrad.jit(lambda p: [ours(p, *each) for each in READINGS])(PLACES[0])
    for each, (value, slope), also in zip(READINGS, expected, compiled, strict=True):
        name = str(each)
        np.testing.assert_allclose(ours(PLACES[0], *each), value, rtol=1e-12, atol=1e-15, err_msg=name)
        np.testing.assert_allclose(also, value, rtol=1e-12, atol=1e-15, err_msg=name)
        found = fxgrad.grad(lambda p: np.sum(ours(p, *each)))(PLACES[0])  # noqa: B023
        np.testing.assert_allclose(found, slope, rtol=1e-12, atol=1e-15, err_msg=name)


def test_map_coordinates_between_elements() -> None:
    heights, places = np.array([3.0, -1.0, 4.0, 1.5]), np.array([0.0, 0.25, 1.5, 2.75, 3.0, 4.0])
    found = fxgrad.scipy.ndimage.map_coordinates(heights, [places], 1, "nearest")
    np.testing.assert_allclose(found, np.interp(places, np.arange(4), heights), rtol=1e-15)


def test_no_blocks_make_a_row_without_elements() -> None:
    assert fxgrad.scipy.linalg.block_diag().shape == scipy.linalg.block_diag().shape == (1, 0)


def test_map_coordinates_refuses() -> None:
    with pytest.raises(errors.ShapeError, match="1 coordinates for an array with 2 axes"):
        fxgrad.scipy.ndimage.map_coordinates(A, [U], 1)
    with pytest.raises(errors.UnsupportedError, match="order=3 is not supported"):
        fxgrad.scipy.ndimage.map_coordinates(U, [U], 3)
    with pytest.raises(errors.ArgumentError, match="mode='far'; it must be one of constant"):
        fxgrad.scipy.ndimage.map_coordinates(U, [U], 1, "far")


def test_nearest_rows_as_scipy() -> None:
    for obs, book in ((A, A[:2] + 0.1), (U, V)):
        numbers, distances = fxgrad.scipy.cluster.vq.vq(obs, book)
        expected = scipy.cluster.vq.vq(obs, book)
        np.testing.assert_array_equal(numbers, expected[0])
        np.testing.assert_allclose(distances, expected[1], rtol=2e-12)
    with pytest.raises(errors.ShapeError, match="vq: obs of shape"):
        fxgrad.scipy.cluster.vq.vq(A, B)


def test_trapezoid() -> None:
    assert fxgrad.scipy.integrate.trapezoid is fxgrad.numpy.trapezoid


def test_interpolated_integers_are_rounded_away_from_zero_at_halves() -> None:
    x, at = np.array([[4, 1, 3, 2], [7, 6, 8, 5]]), [np.array([0.0, 0.5, 0.5]), np.array([0.5, 0.5, 1.5])]
    for sign in (1, -1):
        np.testing.assert_array_equal(fxgrad.scipy.ndimage.map_coordinates(sign * x, at, 1),
                                      jax.scipy.ndimage.map_coordinates(sign * x, at, 1))


@pytest.mark.parametrize("name", ["convolve", "correlate", "convolve2d", "correlate2d", "fftconvolve"])
def test_valid_parts_of_arrays_of_which_neither_lies_within_the_other(name: str) -> None:
    with pytest.raises(errors.ShapeError, match="neither lies within the other"):
        getattr(fxgrad.scipy.signal, name)(np.ones((2, 3)), np.ones((3, 2)), "valid")
    assert getattr(fxgrad.scipy.signal, name)(np.ones((2, 2)), np.ones((2, 3)), "valid").shape == (1, 2)


def test_products_without_axes_are_real() -> None:
    for found in (fxgrad.scipy.signal.fftconvolve(np.asarray(3), np.asarray(4)),
                  fxgrad.scipy.signal.fftconvolve(np.full(2, 3.0), np.full(2, 4.0), axes=[])):
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, np.full(found.shape, 12.0))
