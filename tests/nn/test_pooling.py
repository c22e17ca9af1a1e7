"""Pooling, transposed convolution and embedding against loops in NumPy, Flax, and PyTorch's definitions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flax.linen
import jax
import ml_dtypes
import numpy as np
import pytest

import fxgrad
from fxgrad import nn
from fxgrad.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from fxgrad.testing import check_grads

RNG = np.random.default_rng(0)
LINE, IMAGE, VOLUME = (RNG.normal(size=shape) for shape in ((2, 7, 3), (2, 6, 7, 2), (1, 4, 5, 4, 2)))


# --- pooling --------------------------------------------------------------------------------------------------------


def pooled(x: Any, window: Any, kind: str, strides: Any, padding: Any, dilation: Any, counted: bool = True) -> Any:
    """One window after the other."""
    rank = len(window)
    moved = np.moveaxis(x, -1, -1 - rank)  # space last
    padded = np.pad(moved, [(0, 0)] * (moved.ndim - rank) + list(padding), constant_values=np.nan)
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    counts = [(n - span) // s + 1 for n, span, s in zip(padded.shape[-rank:], spans, strides, strict=True)]
    result = np.zeros((*padded.shape[:-rank], *counts))
    for place in np.ndindex(*counts):
        piece = padded[(..., *(slice(at * s, at * s + span, d) for at, s, span, d in
                               zip(place, strides, spans, dilation, strict=True)))]
        axes = tuple(range(-rank, 0))
        if kind == "max":
            result[(..., *place)] = np.nanmax(piece, axes)
        else:
            size = np.prod(window) if counted else (~np.isnan(piece)).sum(axes)
            result[(..., *place)] = np.nansum(piece, axes) / size
    return np.moveaxis(result, -1 - rank, -1)


SETTINGS: list[tuple[Any, Any, dict[str, Any]]] = [
    (LINE, (2,), {}), (LINE, (3,), {"strides": 1, "padding": 1}), (LINE[0], [3], {"dilation": 2, "padding": ((2, 1),)}),
    (IMAGE, (2, 2), {}), (IMAGE, (3, 2), {"strides": (1, 2), "padding": ((1, 0), (0, 1))}),
    (IMAGE, (2, 3), {"strides": 1, "dilation": (3, 1), "padding": (2, 1)}), (IMAGE[0], (1, 7), {}),
    (VOLUME, (2, 2, 2), {"strides": 1}), (VOLUME, (1, 3, 2), {"padding": (0, 1, 1)}), (IMAGE[None], (2, 2), {}),
]


def explicit(window: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Strides, pairs of padding and dilation for each axis."""
    rank = len(window)
    strides, padding, dilation = (options.get(name, default) for name, default in (
        ("strides", window), ("padding", 0), ("dilation", 1)))
    strides, padding, dilation = ((each,) * rank if isinstance(each, int) else each for each in (
        strides, padding, dilation))
    return strides, [(each, each) if isinstance(each, int) else each for each in padding], dilation


def test_windows_are_pooled_as_one_after_the_other() -> None:
    for x, window, options in SETTINGS:
        settings = explicit(window, options)
        np.testing.assert_array_equal(nn.max_pool(x, window, **options), pooled(x, window, "max", *settings))
        for counted in (True, False):
            np.testing.assert_allclose(nn.avg_pool(x, window, **options, count_include_pad=counted),
                                       pooled(x, window, "avg", *settings, counted), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_pooling_is_flaxs() -> None:
    for x, window, strides in ((LINE, (3,), (2,)), (IMAGE, (2, 3), (2, 2)), (IMAGE, (3, 2), (1, 3)),
                               (VOLUME, (2, 2, 2), (2, 1, 1))):
        single = x.astype("f")
        for padding in ("SAME", "VALID", ((1, 0),) * len(window)):
            np.testing.assert_array_equal(nn.max_pool(single, window, strides=strides, padding=padding),
                                          flax.linen.max_pool(single, window, strides, padding))
            for counted in (True, False):
                np.testing.assert_allclose(
                    nn.avg_pool(single, window, strides=strides, padding=padding, count_include_pad=counted),
                    flax.linen.avg_pool(single, window, strides, padding, counted), rtol=1e-5, atol=1e-6)


def parts(x: Any, sizes: Any) -> Any:
    """PyTorch's definition of adaptive pooling."""
    rank = len(sizes)
    space = x.shape[-1 - rank:-1]
    result = np.zeros((*x.shape[:-1 - rank], *sizes, x.shape[-1]))
    for place in np.ndindex(*sizes):
        index = [slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(place, space, sizes, strict=True)]
        result[(..., *place, slice(None))] = x[(..., *index, slice(None))].mean(tuple(range(-1 - rank, -1)))
    return result


def test_adaptive_pooling_is_pytorchs() -> None:
    for x, size in itertools.chain(((LINE, (m,)) for m in range(1, 11)), ((IMAGE, size) for size in itertools.product(
            (1, 4, 6), (1, 2, 7))), [(VOLUME, (3, 2, 4))]):
        np.testing.assert_allclose(nn.adaptive_avg_pool(x, size), parts(x, size), rtol=1e-12, atol=1e-14)
    spoilt = LINE.copy()
    spoilt[:, 0] = np.inf  # stays in the parts that it is in
    np.testing.assert_array_equal(np.isfinite(nn.adaptive_avg_pool(spoilt, (3,))[0, :, 0]), [False, True, True])


def test_dtypes_of_pools() -> None:
    whole = (IMAGE * 10).astype("int32")
    found = nn.max_pool(whole, (2, 2), padding=1)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, pooled(whole.astype(float), (2, 2), "max", *explicit((2, 2), {"padding": 1})))
    assert nn.avg_pool(whole, (2, 2)).dtype == np.float32
    for dtype in ("float32", "float16", ml_dtypes.bfloat16):
        many = np.full((1, 64, 64, 1), 100.0).astype(dtype)  # whose sum float16 does not have
        for pool in (lambda x: nn.max_pool(x, (64, 64)), lambda x: nn.avg_pool(x, (64, 64)),
                     lambda x: nn.adaptive_avg_pool(x, (1, 1))):
            assert pool(many).dtype == dtype
            np.testing.assert_array_equal(pool(many), [[[[100.0]]]])
    np.testing.assert_allclose(nn.avg_pool(LINE * 1j, (2,)), nn.avg_pool(LINE, (2,)) * 1j, rtol=1e-12)
    assert nn.max_pool(IMAGE[:0], (2, 2)).shape == (0, 3, 3, 2)


LAYERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "max_pool": (lambda x: nn.max_pool(x, (3, 2), strides=(2, 1), padding=1), (IMAGE,)),
    "avg_pool": (lambda x: nn.avg_pool(x, (3, 2), padding=1, count_include_pad=False), (IMAGE,)),
    "adaptive_avg_pool": (lambda x: nn.adaptive_avg_pool(x, (4, 2)), (IMAGE,)),
    "conv_transpose": (lambda x, kernel, bias: nn.conv_transpose(x, kernel, bias, strides=2),
                       (IMAGE[:, :3, :3], RNG.normal(size=(3, 3, 2, 2)), np.ones(2))),
    "embedding": (lambda table: nn.embedding(table, np.array([[1, 0], [3, 1]])), (RNG.normal(size=(4, 3)),)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_derivatives_batches_and_programs(name: str) -> None:
    layer, args = LAYERS[name]
    check_grads(layer, args, order=1, modes=("fwd", "rev"))
    names = [equation.params.get("name") for equation in fxgrad.make_program(layer)(*args).equations]
    assert names[-1] == name
    np.testing.assert_allclose(fxgrad.jit(layer)(*args), layer(*args), rtol=1e-12, atol=1e-15)
    found = fxgrad.vmap(layer)(*[np.stack([arg, arg + 1.0]) for arg in args])
    np.testing.assert_allclose(found[1], layer(*[arg + 1.0 for arg in args]), rtol=1e-12, atol=1e-15)


def test_sizes_may_have_names() -> None:
    for name, (layer, (x, *others)) in LAYERS.items():
        program = fxgrad.make_program(lambda x, layer=layer, others=others: layer(x, *others))(
            fxgrad.symbolic_spec("n", *x.shape[1:]))
        np.testing.assert_allclose(program(x), layer(x, *others), rtol=1e-12, err_msg=name)
    for pool in (lambda x: nn.max_pool(x, (2, 2)), lambda x: nn.avg_pool(x, (2, 2), padding="SAME")):
        program = fxgrad.make_program(pool)(fxgrad.symbolic_spec("n", "height", "width", 2))
        np.testing.assert_allclose(program(IMAGE), pool(IMAGE), rtol=1e-12)


# --- transposed convolution -----------------------------------------------------------------------------------------


def spread(x: Any, kernel: Any, stride: int, dilation: int, low: int, high: int) -> Any:
    """PyTorch's definition along one axis: each element of `x` adds the kernel, at its place times the stride."""
    length = (x.shape[1] - 1) * stride + (kernel.shape[0] - 1) * dilation + 1
    result = np.zeros((x.shape[0], length, kernel.shape[1]))
    for place, tap in itertools.product(range(x.shape[1]), range(kernel.shape[0])):
        result[:, place * stride + tap * dilation] += x[:, place] @ kernel[tap].T
    return result[:, low:length - high]


def test_transposed_kernels_are_pytorchs() -> None:
    kernel = RNG.normal(size=(3, 4, 3))  # taps, new channels, channels
    for stride, dilation, (low, high) in itertools.product((1, 2, 3), (1, 2), ((0, 0), (1, 1), (2, 1))):
        found = nn.conv_transpose(LINE, kernel, strides=stride, dilation=dilation, padding=((low, high),),
                                  transpose_kernel=True)
        np.testing.assert_allclose(found, spread(LINE, kernel, stride, dilation, low, high), rtol=2e-12, atol=2e-14)
    more = nn.conv_transpose(LINE, kernel, strides=2, padding=((1, 0),), transpose_kernel=True)  # output_padding=1
    assert more.shape[1] == nn.conv_transpose(LINE, kernel, strides=2, padding=1, transpose_kernel=True).shape[1] + 1


@pytest.mark.parametrize("options", [{}, {"strides": 2}, {"strides": 2, "padding": "VALID"},
                                     {"strides": (3, 1), "padding": 1}, {"dilation": 2, "padding": ((1, 0), (2, 1))}])
def test_it_is_the_transpose_of_a_convolution(options: dict[str, Any]) -> None:
    kernel = RNG.normal(size=(3, 3, 2, 4))
    # Of sizes that some stride makes one, the transpose gives the least, and "SAME" of strides 2 an even one.
    upper = np.zeros((1, 7 if options.get("strides") == (3, 1) else 8, 8, 2))
    value, pullback = fxgrad.vjp(lambda image: nn.conv2d(image, kernel, **options), upper)
    x = RNG.normal(size=value.shape)
    found = np.asarray(nn.conv_transpose(x, kernel, transpose_kernel=True, **options))
    expected = np.asarray(pullback(x)[0])
    behind = [(0, whole - size) for size, whole in zip(found.shape, expected.shape, strict=True)]
    assert max(high for _, high in behind) <= 1  # which windows at such strides do not reach
    np.testing.assert_allclose(np.pad(found, behind), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_kernels_as_they_are_are_flaxs() -> None:
    for x, taps in ((LINE, (3,)), (IMAGE, (3, 2)), (VOLUME, (2, 3, 2))):
        for strides, padding in itertools.product((1, 2), ("SAME", "VALID")):
            layer = flax.linen.ConvTranspose(4, taps, (strides,) * len(taps), padding)
            params = layer.init(jax.random.key(0), x.astype("f"))
            weights = params["params"]
            found = nn.conv_transpose(x.astype("f"), np.asarray(weights["kernel"]), np.asarray(weights["bias"]),
                                      strides=strides, padding=padding)
            np.testing.assert_allclose(found, layer.apply(params, x.astype("f")), rtol=1e-4, atol=1e-5)


# --- embedding ------------------------------------------------------------------------------------------------------


def test_embedding() -> None:
    table = RNG.normal(size=(5, 3))
    for indices in (np.array(2), np.array([4, 0, 4]), np.array([[1, 2], [3, 3]], "uint8"), np.zeros((0, 2), int)):
        np.testing.assert_array_equal(nn.embedding(table, indices), table[indices])
        np.testing.assert_array_equal(fxgrad.jit(nn.embedding)(table, indices), table[indices])
    counts = fxgrad.grad(lambda table: np.sum(nn.embedding(table, np.array([1, 1, 4, 0]), padding_idx=4)))(table)
    np.testing.assert_array_equal(counts[:, 0], [1, 2, 0, 0, 0])
    assert nn.embedding(table.astype("f"), [1]).dtype == np.float32
    outside = fxgrad.jit(nn.embedding)(table, np.array([5, -1, 0]))
    np.testing.assert_array_equal(np.isnan(outside[:, 0]), [True, True, False])


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: nn.max_pool(IMAGE, 2), ArgumentError, (
        "max_pool: window is 2, where a tuple of sizes, one for each axis of space, is needed, such as (2, 2) for "
        "images")),
    (lambda: nn.max_pool(IMAGE, (2, 0)), ArgumentError, (
        "max_pool: window is (2, 0); a number from 1 on, or 2 of them, one for each axis of space, are needed")),
    (lambda: nn.avg_pool(IMAGE, (2, 2), strides=(1, 1, 1)), ArgumentError, (
        "avg_pool: strides is (1, 1, 1); a number from 1 on, or 2 of them, one for each axis of space, are needed")),
    (lambda: nn.avg_pool(IMAGE, (2, 2), dilation=1.5), ArgumentError, (
        "avg_pool: dilation is 1.5; a number from 1 on, or 2 of them, one for each axis of space, are needed")),
    (lambda: nn.avg_pool(IMAGE, (2, 2), padding="same size"), ArgumentError, (
        "avg_pool: padding is 'same size'; 'SAME', 'VALID', a number, or 2 numbers or pairs (before, after), one for "
        "each axis of space, are needed")),
    (lambda: nn.conv2d(IMAGE, np.ones((3, 3, 2, 2)), padding=None), ArgumentError, (
        "conv2d: padding is None; 'SAME', 'VALID', a number, or 2 numbers or pairs (before, after), one for each axis "
        "of space, are needed")),
    (lambda: nn.conv2d(IMAGE, np.ones((3, 3, 2, 2)), padding=(True, 1)), ArgumentError, (
        "conv2d: padding is (True, 1); 'SAME', 'VALID', a number, or 2 numbers or pairs (before, after), one for each "
        "axis of space, are needed")),
    (lambda: nn.max_pool(IMAGE, (2, 2), padding=2), ArgumentError, (
        "max_pool: padding (2, 2) of windows that reach over 2; numbers from 0 to below that are needed")),
    (lambda: nn.max_pool(IMAGE, (2, 2), padding=-1), ArgumentError, (
        "max_pool: padding (-1, -1) of windows that reach over 2; numbers from 0 to below that are needed")),
    (lambda: nn.max_pool(IMAGE, (7, 2)), ShapeError, (
        "max_pool: a window that reaches over (7, 2) does not fit in an array of shape (2, 6, 7, 2), whose last axis "
        "has the channels")),
    (lambda: nn.max_pool(LINE[0, 0], (2,)), ShapeError, (
        "max_pool: window (2,) for an array of shape (3,); 1 axes of space and one of channels are needed at its end")),
    (lambda: nn.max_pool(IMAGE * 1j, (2, 2)), DTypeError, (
        "max_pool: not defined for complex numbers (complex128); use x.real, x.imag or abs(x)")),
    (lambda: nn.adaptive_avg_pool(IMAGE, 1), ArgumentError, (
        "adaptive_avg_pool: size is 1, where a tuple of sizes, one for each axis of space, is needed, such as (2, 2) "
        "for images")),
    (lambda: nn.adaptive_avg_pool(IMAGE[:, :0], (1, 1)), ShapeError, (
        "adaptive_avg_pool: an array of shape (2, 0, 7, 2) has no elements along an axis of space, and there is no "
        "mean of none; sizes from 1 on are needed, got (0, 7)")),
    (lambda: nn.conv_transpose(IMAGE, np.ones((3, 3, 3, 4))), ShapeError, (
        "conv_transpose: x has the shape (2, 6, 7, 2) and kernel (3, 3, 3, 4); (batch, ..., channels) and (..., "
        "channels, new channels) with one to three axes of space are needed")),
    (lambda: nn.conv_transpose(IMAGE, np.ones((3, 3, 2, 4)), transpose_kernel=True), ShapeError, (
        "conv_transpose: x has the shape (2, 6, 7, 2) and kernel (3, 3, 2, 4); (batch, ..., channels) and (..., new "
        "channels, channels) with one to three axes of space are needed")),
    (lambda: nn.embedding(np.ones((3, 2)), [0, 3]), IndexingError, (
        "embedding: index 3 is no row of a table of shape (3, 2); numbers from 0 to 2 are needed")),
    (lambda: nn.embedding(np.ones((3, 2)), -1), IndexingError, (
        "embedding: index -1 is no row of a table of shape (3, 2); numbers from 0 to 2 are needed")),
    (lambda: nn.embedding(np.ones((3, 2)), [0.0]), DTypeError, (
        "embedding: indices must be integers, got float64; convert with indices.astype(int)")),
    (lambda: nn.embedding(np.ones((3, 2)), [0], padding_idx=3), IndexingError, (
        "embedding: padding_idx is 3, where a row from 0 to 2 is needed")),
    (lambda: nn.embedding(1.0, [0]), ShapeError, (
        "embedding: the table is a number, where an array of rows is needed")),
])
def test_mistakes(call: Callable[[], Any], kind: type, text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text
