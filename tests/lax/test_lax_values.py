"""Functions of fxgrad.lax against NumPy and loops, un-jitted: what they compute, in which shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad
from fxgrad import lax

X = np.array([[0.5, -2.0, 3.0], [1.5, 4.0, -0.25]])
Y = np.array([[2.0, 1.0, -3.0], [0.5, 4.0, 8.0]])
V = np.array([3.0, -1.0, 2.0, 5.0, 4.0])
CUBE = np.arange(24.0).reshape(2, 3, 4)


def correlated(image: Any, kernel: Any, low: int, high: int, stride: int) -> Any:
    """A kernel over an image along one axis whose elements are `stride` apart, padded on both sides."""
    apart = np.zeros((len(image) - 1) * stride + 1)
    apart[::stride] = image
    return np.correlate(np.pad(apart, (low, high)), kernel, "valid")


def transposed(image: Any, kernel: Any, stride: int, padding: Any, **options: Any) -> Any:
    return lax.conv_transpose(image[None, :, None], kernel[:, None, None], (stride,), padding, **options)[0, :, 0]


def folded(size: int, stride: int, low: int, high: int, between: int, holes: int) -> Any:
    """Products of 1 + x over windows, less 1, by a loop."""
    apart = np.zeros((len(V) - 1) * holes + 1)
    apart[::holes] = V
    padded = np.pad(apart, (low, high))
    reach = (size - 1) * between + 1
    return np.array([np.prod(1.0 + padded[begin:begin + reach:between]) - 1.0
                     for begin in range(0, len(padded) - reach + 1, stride)])


def sums_and_products(a: Any, b: Any) -> Any:
    return a + b + a * b


VALUES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "all_gather": (fxgrad.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i"), (X,), np.stack([X, X])),
    "psum": (fxgrad.vmap(lambda x: x / lax.psum(x, "i"), axis_name="i"), (X,), X / np.sum(X, 0)),
    "associative_scan": (lambda x: lax.associative_scan(np.add, x, axis=1), (CUBE,), np.cumsum(CUBE, 1)),
    "associative_scan of an even axis": (lambda x: lax.associative_scan(np.add, x, axis=-1), (CUBE,),
                                         np.cumsum(CUBE, 2)),
    "associative_scan, reverse": (lambda x: lax.associative_scan(np.maximum, x, reverse=True), (V,),
                                  np.maximum.accumulate(V[::-1])[::-1]),
    "batch_matmul": (lax.batch_matmul, (CUBE, CUBE.swapaxes(1, 2)), CUBE @ CUBE.swapaxes(1, 2)),
    "batch_matmul of matrices": (lax.batch_matmul, (X, Y.T), X @ Y.T),
    "broadcast": (lambda x: lax.broadcast(x, (2, 1)), (X,), np.broadcast_to(X, (2, 1, 2, 3))),
    "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (3, 2, 3), (1, 2)), (X,), np.broadcast_to(X, (3, 2, 3))),
    "broadcasted_iota": (lambda: lax.broadcasted_iota("int32", (2, 3), 1), (), np.array([[0, 1, 2]] * 2, np.int32)),
    "clamp": (lambda x: lax.clamp(-1.0, x, Y), (X,), np.clip(X, -1.0, Y)),
    "collapse": (lambda x: lax.collapse(x, 1, 3), (CUBE,), CUBE.reshape(2, 12)),
    "complex": (lax.complex, (X, Y), X + 1j * Y),
    "concatenate": (lambda x, y: lax.concatenate([x, y], 1), (X, Y), np.concatenate([X, Y], 1)),
    "conj of a float": (lax.conj, (X,), X.astype(complex)),
    "conj": (lambda x: lax.conj(lax.complex(x, x)), (X,), X - 1j * X),
    "conv_transpose, SAME, wide strides": (lambda x, k: transposed(x, k, 3, "SAME"), (V, V[:2]),
                                           correlated(V, V[:2], 1, 2, 3)),
    "conv_transpose, SAME, narrow strides": (lambda x, k: transposed(x, k, 2, "SAME"), (V, V[:4]),
                                             correlated(V, V[:4], 2, 2, 2)),
    "conv_transpose, VALID": (lambda x, k: transposed(x, k, 2, "VALID"), (V, V[:3]), correlated(V, V[:3], 2, 2, 2)),
    "conv_transpose, pads of the other": (lambda x, k: transposed(x, k, 2, [(1, 0)], use_consistent_padding=True),
                                          (V, V[:3]), correlated(V, V[:3], 1, 2, 2)),
    "conv_transpose, pads": (lambda x, k: transposed(x, k, 2, [(1, 0)]), (V, V[:3]), correlated(V, V[:3], 1, 0, 2)),
    "conv_transpose, turned": (lambda x, k: transposed(x, k, 2, "VALID", transpose_kernel=True), (V, V[:3]),
                               correlated(V, V[2::-1], 2, 2, 2)),
    "cummax": (lambda x: lax.cummax(x, 1, reverse=True), (X,), np.maximum.accumulate(X[:, ::-1], 1)[:, ::-1]),
    "dynamic_index_in_dim": (lambda x: lax.dynamic_index_in_dim(x, 1, 1, keepdims=False), (CUBE,), CUBE[:, 1]),
    "dynamic_index_in_dim, kept": (lambda x: lax.dynamic_index_in_dim(x, -1, 2), (CUBE,), CUBE[:, :, 3:]),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, -3), (1, 2)), (X, np.int32(-1)), X[1:, :2]),
    "dynamic_slice_in_dim": (lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, 1), (X, np.int32(1)), X[:, 1:]),
    "dynamic_update_index_in_dim": (lambda x, i: lax.dynamic_update_index_in_dim(x, 7.0, i, 0), (V, np.int32(-2)),
                                    np.array([3.0, -1.0, 2.0, 7.0, 4.0])),
    "dynamic_update_slice_in_dim": (lambda x, y: lax.dynamic_update_slice_in_dim(x, y[:, :1], 2, 1), (X, Y),
                                    np.concatenate([X[:, :2], Y[:, :1]], 1)),
    "expand_dims": (lambda x: lax.expand_dims(x, (0, -1)), (X,), X[None, :, :, None]),
    "fori_loop": (lambda x: lax.fori_loop(1, 4, lambda i, c: c * i, x), (X,), 6.0 * X),
    "index_in_dim": (lambda x: lax.index_in_dim(x, -1, 1, keepdims=False), (CUBE,), CUBE[:, 2]),
    "integer_pow": (lambda x: lax.integer_pow(x, -3), (X,), X ** -3.0),
    "pad": (lambda x: lax.pad(x, 9.0, [(1, -1, 1)]), (V,), np.array([9.0, 3, 9, -1, 9, 2, 9, 5, 9])),
    "reduce": (lambda x: lax.reduce(x, 0.0, sums_and_products, (1,)), (CUBE[:, :, :2],),
               np.prod(1.0 + CUBE[:, :, :2], 1) - 1.0),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 1), (np.array([1.6, -3.3]),), np.array([1.5, -3.0])),
    "rev": (lambda x: lax.rev(x, (0, 2)), (CUBE,), CUBE[::-1, :, ::-1]),
    "scan": (lambda x: lax.scan(lambda c, e: (c + e, c), 0.0, x, reverse=True), (V,),
             (np.sum(V), np.cumsum(V[::-1])[::-1] - V)),
    "select": (lambda x, y: lax.select(x > y, x, y), (X, Y), np.maximum(X, Y)),
    "select_n": (lambda x, y: lax.select_n(np.array([[0, 1, 2], [2, 1, 0]]), x, y, -x), (X, Y),
                 np.array([[X[0, 0], Y[0, 1], -X[0, 2]], [-X[1, 0], Y[1, 1], X[1, 2]]])),
    "slice": (lambda x: lax.slice(x, (0, 1, 0), (2, 3, 4), (1, 1, 3)), (CUBE,), CUBE[:, 1:3, ::3]),
    "slice_in_dim": (lambda x: lax.slice_in_dim(x, 1, -1, 2, 0), (V,), V[1:-1:2]),
    "slice_in_dim from the end": (lambda x: lax.slice_in_dim(x, -3, None, axis=1), (CUBE,), CUBE),
    "sort_key_val": (lambda x: lax.sort_key_val(x, -x, 0), (V,), (np.sort(V), -np.sort(V))),
    "sort by two keys": (lambda x: lax.sort((np.array([1, 0, 1, 0, 1]), x, -x), num_keys=2), (V,), (
        np.array([0, 0, 1, 1, 1]), np.array([-1.0, 5, 2, 3, 4]), np.array([1.0, -5, -2, -3, -4]))),
    "split": (lambda x: lax.split(x, (1, 2), 1), (X,), (X[:, :1], X[:, 1:])),
    "squeeze": (lambda x: lax.squeeze(x, (0, -1)), (X[None, :, :, None],), X),
    "switch": (lambda x: lax.switch(1, [np.sin, np.cos, np.exp], x), (X,), np.cos(X)),
    "top_k": (lambda x: lax.top_k(x, 2), (X,), (np.array([[3.0, 0.5], [4.0, 1.5]]),
                                                np.array([[2, 0], [1, 0]], np.int32))),
    "transpose": (lambda x: lax.transpose(x, (2, 0, 1)), (CUBE,), CUBE.transpose(2, 0, 1)),
    **{f"reduce_window {options}": (
        lambda x, options=options: lax.reduce_window(
            x, 0.0, sums_and_products, options[:1], options[1:2], [options[2:4]], window_dilation=options[4:5],
            base_dilation=options[5:]), (V,), folded(*options))
       for options in ((1, 2, 0, 0, 1, 1), (2, 1, 0, 1, 1, 1), (2, 2, 1, 0, 2, 1), (3, 1, 1, 1, 1, 2),
                       (2, 3, 0, 2, 2, 2))},
}
"""What it is about: the call, its arguments, and what is to come of it."""


def test_values_of_lax() -> None:
    differing = []
    for about, (function, args, expected) in VALUES.items():
        for way, call in (("by itself", function), ("as a program", fxgrad.make_program(function)(*args))):
            found = call(*args)
            both = fxgrad.tree.leaves(found), fxgrad.tree.leaves(expected)
            if len(both[0]) != len(both[1]) or any(
                    np.shape(one) != np.shape(other) or np.asarray(one).dtype != np.asarray(other).dtype
                    or not np.allclose(one, other, rtol=1e-14, atol=1e-14)
                    for one, other in zip(*both, strict=True)):
                differing.append((about, way, found, expected))
    assert differing == []


def test_branches_capture_once_what_they_share() -> None:
    program = fxgrad.make_program(lambda x, w: lax.cond(x[0, 0] > 0, lambda: w * x, lambda: w - x))(X, Y)
    branching, = (equation for equation in program.equations if str(equation.primitive) == "cond")
    assert [atom.aval.shape for atom in branching.inputs] == [(), (2, 3), (2, 3)]
    for x in (X, -X):
        np.testing.assert_array_equal(program(x, Y), Y * x if x[0, 0] > 0 else Y - x)


def test_compiled_windows_at_known_places_are_moved_into_range() -> None:
    for start in (-9, np.int32(-9), -3, 9):
        begin = 0 if start < 0 else 3
        window = fxgrad.jit(lambda x, start=start: lax.dynamic_slice(x, (start,), (2,)))
        np.testing.assert_array_equal(window(V[:5]), V[2 if start == -3 else begin:][:2])
        updated = fxgrad.jit(lambda x, start=start: lax.dynamic_update_index_in_dim(x, 7.0, start, 0))(V)
        assert np.flatnonzero(updated == 7.0) == [2 if start == -3 else 4 if start == 9 else 0]
