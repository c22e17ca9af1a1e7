"""`ragged_dot_general`, `platform_dependent` and `composite`: what jax's do, under every transformation."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax as jlax

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, grad, jit, lax, vmap
from fxgrad.testing import check_grads

RANDOM = np.random.default_rng(0)
X = np.array([0.3, 1.2, -2.0])


def numbers(dot: Any, ragged: int, group: int | None) -> tuple[Any, Any]:
    given = dot, [ragged], [] if group is None else [group]
    return lax.RaggedDotDimensionNumbers(*given), jlax.RaggedDotDimensionNumbers(*given)


# Shapes of lhs, rhs and group sizes, axes as in dot_general, the ragged axis and that of groups.
RAGGED: dict[str, tuple[Any, Any, Any, Any, int, int | None]] = {
    "rows": ((5, 3), (2, 3, 4), [2, 3], (((1,), (1,)), ((), ())), 0, 0),
    "rows left over": ((5, 3), (2, 3, 4), [1, 2], (((1,), (1,)), ((), ())), 0, 0),
    "rows, groups last": ((5, 3), (3, 4, 2), [5, 0], (((1,), (0,)), ((), ())), 0, 2),
    "rows of batches": ((2, 5, 3), (2, 2, 3, 4), [[2, 3], [4, 1]], (((2,), (2,)), ((0,), (0,))), 1, 1),
    "rows of batches, sizes of all": ((2, 5, 3), (2, 2, 3, 4), [1, 4], (((2,), (2,)), ((0,), (0,))), 1, 1),
    "a batch axis that is last": ((5, 3, 2), (2, 3, 4, 2), [[2, 3], [4, 1]], (((1,), (1,)), ((2,), (3,))), 0, 0),
    "two batch axes": ((3, 5, 2, 4), (2, 4, 3, 2, 2), np.arange(12).reshape(2, 3, 2) % 3,
                       (((3,), (1,)), ((2, 0), (0, 2))), 1, 3),
    "a free axis before": ((2, 5, 3), (2, 3, 4), [[2, 3], [4, 1]], (((2,), (1,)), ((), ())), 1, 0),
    "contracted": ((3, 5), (5, 4), [2, 3], (((1,), (0,)), ((), ())), 1, None),
    "contracted, of batches": ((2, 3, 5), (2, 5, 4), [[2, 3], [4, 1]], (((2,), (1,)), ((0,), (0,))), 2, None),
    "contracted after another": ((3, 2, 5), (5, 2), [[2, 1, 1], [3, 1, 1]], (((1, 2), (1, 0)), ((), ())), 2, None),
    "batch": ((4, 3, 5), (4, 5, 2), [1, 3], (((2,), (1,)), ((0,), (0,))), 0, None),
    "no rows": ((0, 3), (2, 3, 4), [0, 0], (((1,), (1,)), ((), ())), 0, 0),
    "nothing contracted": ((5, 0), (2, 0, 4), [2, 3], (((1,), (1,)), ((), ())), 0, 0),
    "no groups": ((3, 2), (0, 2, 4), np.zeros(0, int), (((1,), (1,)), ((), ())), 0, 0),
}


def by_hand(lhs: Any, rhs: Any, sizes: Any, dot: Any, ragged: int, group: int | None) -> Any:
    """The sum over groups of products of slices, for sizes that are the same for all entries."""
    product = lambda a, b: np.asarray(jlax.dot_general(a, b, dot))
    ends = np.cumsum(sizes)
    parts = []
    for number, (begin, end) in enumerate(zip(ends - sizes, ends, strict=True)):
        keep = np.zeros_like(lhs)
        place = [slice(None)] * lhs.ndim
        place[ragged] = slice(begin, end)
        keep[tuple(place)] = lhs[tuple(place)]
        parts.append(product(keep, rhs if group is None else np.take(rhs, number, group)))
    return np.stack(parts) if group is None else sum(parts)


@pytest.mark.parametrize("case", RAGGED)
def test_ragged_dot_general_as_jax(case: str) -> None:
    left, right, sizes, dot, ragged, group = RAGGED[case]
    lhs, rhs = (RANDOM.normal(size=shape).astype(np.float32) for shape in (left, right))
    sizes = np.asarray(sizes, np.int32)
    ours, theirs = numbers(dot, ragged, group)
    function = lambda x, y: lax.ragged_dot_general(x, y, sizes, ours)
    reference = lambda x, y: jlax.ragged_dot_general(x, y, sizes, theirs)
    expected = jax.jit(reference)(lhs, rhs)
    for call in (function, jit(function), fxgrad.make_program(function)(lhs, rhs), fxgrad.from_jax(reference)):
        result = call(lhs, rhs)
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    if sizes.ndim == 1 and ragged not in dot[1][0]:
        shifted = tuple(axis - (group is not None and axis > group) for axis in dot[0][1])
        batch = tuple(axis - (group is not None and axis > group) for axis in dot[1][1])
        if len(sizes):
            alone = (dot[0][0], shifted), (dot[1][0], batch)
            np.testing.assert_allclose(expected, by_hand(lhs, rhs, sizes, alone, ragged, group), rtol=5e-5, atol=5e-6)
    check_grads(function, (lhs, rhs), 1)  # jax has derivatives of some of these alone
    slope = grad(lambda x, y: fnp.sum(fnp.sin(function(x, y))), (0, 1))
    for got, want in zip(jit(slope)(lhs, rhs), slope(lhs, rhs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    mapped = vmap(function, (0, None))(np.stack([lhs, 2 * lhs]), rhs)
    np.testing.assert_allclose(mapped[1], 2 * expected, rtol=1e-5, atol=1e-5)


def test_ragged_dot_general_in_other_dtypes() -> None:
    dot, ragged, group = (((1,), (1,)), ((), ())), 0, 0
    ours, theirs = numbers(dot, ragged, group)
    sizes = np.array([2, 3], np.int32)
    for dtype in (np.float16, fnp.bfloat16, np.int8, np.complex64):
        lhs, rhs = (np.asarray(RANDOM.integers(-3, 3, size=shape)).astype(dtype) for shape in ((5, 3), (2, 3, 4)))
        for preferred in (None, np.complex64 if dtype is np.complex64 else np.float32):
            got = lax.ragged_dot_general(lhs, rhs, sizes, ours, preferred_element_type=preferred)
            want = jlax.ragged_dot_general(lhs, rhs, sizes, theirs, preferred_element_type=preferred)
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


def test_ragged_dot_general_refuses() -> None:
    dot = (((1,), (1,)), ((), ()))
    lhs, rhs, sizes = np.ones((5, 3)), np.ones((2, 3, 4)), np.array([2, 3])

    def call(ragged: Any, group: Any, dot: Any = dot, sizes: Any = sizes, **options: Any) -> Any:
        return lax.ragged_dot_general(lhs, rhs, sizes, lax.RaggedDotDimensionNumbers(dot, ragged, group), **options)
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: call([0, 1], [0]), errors.ShapeError,
         ("ragged_dot_general: lhs_ragged_dimensions=[0, 1] and rhs_group_dimensions=[0]; one axis, and one or none "
          "are needed")),
        (lambda: call([2], [0]), errors.ShapeError,
         "ragged_dot_general: lhs_ragged_dimensions has 2, and lhs has the shape (5, 3)"),
        (lambda: call([1], [0]), errors.ShapeError,
         ("ragged_dot_general: rhs_group_dimensions has one axis where the ragged axis of lhs is neither contracted "
          "nor a batch axis, and none otherwise")),
        (lambda: call([0], [1]), errors.ShapeError,
         ("ragged_dot_general: rhs_group_dimensions has 1; an axis of rhs, whose shape is (2, 3, 4), is needed that is "
         "neither contracted nor a batch axis")),
        (lambda: call([0], [2]), errors.ShapeError,
         "ragged_dot_general: axis 2 of rhs has 4 entries, and there are 2 groups"),
        (lambda: call([0], [0], sizes=np.ones((3, 2), int)), errors.ShapeError,
         "ragged_dot_general: group_sizes has the shape (3, 2); (groups,) or () and the groups are needed"),
        (lambda: call([0], [0], sizes=np.ones(2)), errors.DTypeError, ""),
        (lambda: call([0], [0], group_offset=np.array([0])), errors.UnsupportedError,
         "ragged_dot_general: group_offset= is not supported; leave it out"),
    ]
    for refused, kind, message in cases:
        with pytest.raises(kind, match=f"^{re.escape(message)}"):
            refused()


# --- code by platform -------------------------------------------------------------------------------------------------


def test_platform_dependent_as_jax() -> None:
    """The code for the CPU, on every path; derivatives and batches are those of that code."""
    def function(lib: Any, x: Any) -> Any:
        return lib.platform_dependent(x, cpu=lambda x: {"y": x * x}, default=lambda x: {"y": x * x + 0 * x})["y"]
    ours = lambda x: function(lax, x)
    expected = function(jlax, X.astype("f"))
    for call in (ours, jit(ours), fxgrad.make_program(ours)(X), vmap(ours), jit(vmap(ours))):
        np.testing.assert_allclose(call(X), expected, rtol=1e-6)
    for call in (grad(lambda x: ours(x).sum()), jit(grad(lambda x: ours(x).sum()))):
        np.testing.assert_allclose(call(X), 2 * X, rtol=1e-12)
    assert str(fxgrad.make_program(ours)(X)).splitlines()[1].split("#")[0].strip() == "return x * x"
    assert lax.platform_dependent(X[:0], default=lambda x: x + 1).shape == (0,)
    assert lax.platform_dependent(default=lambda: 3) == 3
    assert float(lax.platform_dependent(2.0, tpu=lambda x: x + 1, default=lambda x: x - 1)) == 1.0
    assert lax.platform_dependent(jax.device_put(np.float32(2)), cpu=lambda x: x + 1, tpu=lambda x: x) == 3


def test_platform_dependent_refuses() -> None:
    with pytest.raises(errors.UnsupportedError, match=(
            r"^platform_dependent: there is no function for the platform 'cpu'; given are cuda, tpu\. Write default=f "
            r"for all others\n  at test_lax_other_names\.py:\d+ ")):
        lax.platform_dependent(X, cuda=lambda x: x, tpu=lambda x: x)
    with pytest.raises(NotImplementedError):
        jlax.platform_dependent(X, cuda=lambda x: x, tpu=lambda x: x)
    with pytest.raises(errors.ArgumentError, match=r"^platform_dependent: there is no function; write cpu=f"):
        lax.platform_dependent(X)
    with pytest.raises(errors.ShapeError, match=r"^platform_dependent: .*cpu.*default"):
        lax.platform_dependent(X, cpu=lambda x: x[0], default=lambda x: x)
    with pytest.raises(errors.TreeError, match=r"^platform_dependent: "):
        lax.platform_dependent(X, cpu=lambda x: [x], default=lambda x: x)
    with pytest.raises(errors.ArgumentError, match=r"^platform_dependent: cpu is a int"):
        lax.platform_dependent(X, cpu=3)


# --- code by name -----------------------------------------------------------------------------------------------------


def decomposed(lib: Any, numpy: Any) -> Any:
    def tangent(x: Any, p: Any, *, scale: int, kind: str) -> Any:
        assert kind == "plain"
        return scale * numpy.sin(x) / numpy.cos(x) + p["a"]
    return lib.composite(tangent, "my.tangent", version=1)


def test_composite_as_jax() -> None:
    ours, theirs = decomposed(lax, fnp), decomposed(jlax, jax.numpy)
    p = {"a": np.float32(2)}
    x = X.astype(np.float32)
    call = lambda x, p: ours(x, p, scale=2, kind="plain")
    expected = theirs(x, p, scale=2, kind="plain")
    for each in (call, jit(call), fxgrad.make_program(call)(x, p), vmap(call, (0, None))):
        np.testing.assert_allclose(each(x, p), expected, rtol=1e-6)
    for derived in (grad(lambda x: call(x, p).sum()), jit(grad(lambda x: call(x, p).sum()))):
        np.testing.assert_allclose(derived(x), 2 / np.cos(x) ** 2, rtol=1e-5)  # jax's has no derivative
    program = fxgrad.make_program(call)(x, p)
    assert [equation.params["name"] for equation in program.equations] == ["my.tangent"]
    assert 'where function "my.tangent"(x: f32[3], p.a: f32) -> f32[3]:' in str(program)
    assert fxgrad.parse(str(program)).equations[0].params["name"] == "my.tangent"
    assert call(x[:0], p).shape == (0,)


def test_composite_refuses() -> None:
    for make, message in (
            (lambda: lax.composite(lambda x: x, 3), "composite: name=3; a text is needed, such as 'my.square'"),
            (lambda: lax.composite(lambda x: x, "a", -1), "composite: version=-1; a whole number from 0 on is needed"),
            (lambda: lax.composite(lambda x: x, "a")("b"),
             "a: array 0 of the arguments is a str, where an array or a number is needed")):
        with pytest.raises(errors.ArgumentError, match=f"^{re.escape(message)}"):
            make()
