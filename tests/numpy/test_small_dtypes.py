"""Floats of 8 bits and less, and integers of less: un-jitted, jitted and in jax, beside exact arithmetic."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax as jax_lax

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import dtypes, errors, lax, onnx
from fxgrad.engine.ops.conversion import converted
from fxgrad.text import from_json, to_json
from tests.comparison.checks import FAST
from tests.support.versions import IS_OLDEST_JAX

FLOATS = ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
          "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"]
INTEGERS = ["int2", "int4", "uint2", "uint4"]
SCALES = "float8_e8m0fnu"
"""Powers of 2 alone, without 0: XLA takes the least of them for 0, and its arithmetic makes NaNs of that."""
DTYPES = {name: np.dtype(getattr(ml_dtypes, name)) for name in FLOATS + INTEGERS}
OPTIONS: dict[str, Any] = {"compiler_options": {
    **FAST, **({"xla_cpu_use_fusion_emitters": True} if IS_OLDEST_JAX else {})}}
"""XLA's older emitters, which other tests take, round twice to float4, and make -0 of what overflows float8_e4m3fn."""
WIDE = [np.dtype(name) for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
                                    "float16", "float32", "float64")] + [np.dtype(ml_dtypes.bfloat16)]


@functools.cache
def numbers(name: str) -> Any:
    """All numbers of a dtype."""
    dtype = DTYPES[name]
    if name in FLOATS:
        return np.arange(2**ml_dtypes.finfo(dtype).bits).astype(np.uint8).view(dtype)
    limits = ml_dtypes.iinfo(dtype)
    return np.arange(int(limits.min), int(limits.max) + 1).astype(np.int8).astype(dtype)


@functools.cache
def grid(name: str) -> Any:
    """The finite numbers of a dtype in their order, as float64; 0 is there once."""
    with np.errstate(all="ignore"):
        wide = numbers(name).astype(np.float32).astype(np.float64)
    return np.unique(wide[np.isfinite(wide)] + 0.0)


def rounded(exact: Any, name: str) -> Any:
    """The nearest number of a dtype of floats to each float64, of two the one with an even mantissa.

    Written from the definition, of powers of 2 the greater one: beyond the greatest number by half a step are
    infinities, NaNs where there is none,
    and the greatest number itself in float4. Zeros count without their sign.
    """
    known = grid(name)
    top, step = known[-1], known[-1] - known[-2]
    above = np.clip(np.searchsorted(known, exact), 1, len(known) - 1)
    low, high = known[above - 1], known[above]
    half = (low + high) / 2
    is_even = {float(value): not bits & 1 for value, bits in zip(
        numbers(name).astype(np.float64), numbers(name).view(np.uint8), strict=True)}
    near = np.where(exact < half, low, np.where(exact > half, high, high if name == SCALES else [
        one if is_even[float(one)] else other for one, other in zip(low, high, strict=True)]))
    near = np.where(np.abs(exact) > top, np.copysign(top, exact), near)
    limit = top + step / 2
    beyond = (np.abs(exact) > limit) | ((np.abs(exact) == limit) & (not is_even[float(top)]))
    if name != "float4_e2m1fn":
        has_infinity = bool(np.isinf(numbers(name).astype(np.float32)).any())
        near = np.where(beyond, np.copysign(np.inf, exact) if has_infinity else np.nan, near)
    return np.where(np.isnan(exact), np.nan, near)


def steps_apart(name: str, one: Any, other: Any) -> int:
    """How many numbers of the dtype lie between two arrays, at the most; NaNs are equal, and next to what overflows.

    Of powers of 2, the least, which XLA takes for 0, is equal to the NaN that becomes of 0.
    """
    known = np.concatenate([grid(name), [np.inf]])
    wide = [np.asarray(each).astype(np.float32).astype(np.float64) for each in (one, other)]
    if name == SCALES:
        wide = [np.where(each < 1e-38, np.nan, each) for each in wide]
    both = np.isnan(wide[0]) & np.isnan(wide[1])
    places = [np.where(np.isnan(each), len(known), np.searchsorted(known, np.abs(each)) + 0) for each in wide]
    same_sign = np.isnan(wide[0]) | np.isnan(wide[1]) | (np.sign(wide[0]) * np.sign(wide[1]) >= 0)
    return int(np.max(np.where(both, 0, np.where(same_sign, np.abs(places[0] - places[1]), 10**6)), initial=0))


# --- conversions ------------------------------------------------------------------------------------------------------


def _samples(dtype: Any) -> Any:
    """Numbers of a wide dtype: those of narrow dtypes, the middles between them, and the neighbours of both."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        powers = [sign * 2**power + more for power in range(64) for more in (-1, 0, 1) for sign in (1, -1)]
        known = [number for number in (*range(-300, 600), *powers) if limits.min <= number <= limits.max]
        return np.array(known, dtype)
    known = np.concatenate([grid(name) for name in FLOATS if name != SCALES])
    known = np.concatenate([known, (known[1:] + known[:-1]) / 2, [1e30, 65520.0, 61440.0, 464.0, 248.0, 0.1, -1 / 3]])
    small = known.astype(np.float32)
    near = [np.nextafter(known, np.inf), np.nextafter(known, -np.inf), np.nextafter(small, np.float32(np.inf)),
            np.nextafter(small, np.float32(-np.inf))]
    with np.errstate(all="ignore"):
        return np.concatenate([known, *(each.astype(np.float64) for each in near), [np.inf, -np.inf, np.nan]]).astype(
            dtype)


@pytest.mark.parametrize("name", FLOATS)
def test_conversions_to_floats_round_once(name: str) -> None:
    for dtype in WIDE:
        given = _samples(dtype)
        if name == SCALES:
            given = given[given.astype(np.float64) > 1e-30]
        got = fnp.astype(given, name)
        assert got.dtype == DTYPES[name]
        exact = given.astype(np.float64)
        expected = rounded(exact, name)
        if name == "float4_e2m1fn":  # of which a NaN is 0
            expected = np.nan_to_num(expected)
        assert np.array_equal(got.astype(np.float64), expected, equal_nan=True), dtype


@pytest.mark.parametrize("name", INTEGERS)
def test_conversions_to_integers(name: str) -> None:
    """Integers keep their lowest bits, and floats become the nearest number toward zero that there is, NaNs 0."""
    limits = ml_dtypes.iinfo(DTYPES[name])
    for dtype in WIDE:
        given = _samples(dtype)
        got = fnp.astype(given, name).astype(np.int64)
        if dtype.kind in "biu":
            mask = (1 << limits.bits) - 1
            bits = np.array([int(number) & mask for number in given])
            expected = np.where((bits > int(limits.max)), bits - mask - 1, bits)
        else:
            with np.errstate(all="ignore"):
                expected = np.trunc(np.clip(np.nan_to_num(given.astype(np.float64)), int(limits.min), int(limits.max)))
        assert np.array_equal(got, expected), dtype


@pytest.mark.parametrize("name", ["int4", *(
    pytest.param(name, marks=pytest.mark.slow) for name in DTYPES if name != "int4")])
def test_conversions_are_those_of_xla(name: str) -> None:
    """From and to every dtype, to the bit but for NaNs, and for what XLA takes for 0: numbers below the normal ones."""
    pairs = []
    for dtype in [*WIDE, *DTYPES.values(), np.dtype(np.complex64)]:
        there = numbers(name)
        with np.errstate(all="ignore"):
            back = _samples(dtype) if dtype in WIDE else there.astype(np.float32).astype(dtype) if (
                dtype.kind == "c") else numbers(dtype.name)
            size = np.abs(back.astype(np.complex64))
            back = back[~(size < 1.2e-38) | (size == 0)]
        for given, wanted in ((there, dtype), (back, DTYPES[name])):
            kept = given[given.astype(np.float32) > 1e-30] if wanted.name == SCALES and dtype.kind != "c" else given
            if not (wanted.name == SCALES and dtype.kind == "c"):
                pairs.append((kept, wanted))
    with jax.enable_x64(True):
        found = fxgrad.jit(lambda arrays: [fnp.astype(array, wanted) for array, (_, wanted) in zip(
            arrays, pairs, strict=True)], **OPTIONS)([given for given, _ in pairs])
    wrong = []
    for (given, wanted), other in zip(pairs, map(np.asarray, found), strict=True):
        with np.errstate(all="ignore"):
            one = converted(given, wanted)
            equal = ~(np.equal(one, one) | np.equal(other, other)) | (one == other)
        if one.dtype != wanted or other.dtype != wanted or not equal.all():
            wrong.append((given.dtype, wanted, given[~equal][:3], one[~equal][:3], other[~equal][:3]))
    assert not wrong


# --- functions --------------------------------------------------------------------------------------------------------

Function = Callable[..., Any]
"""Of the module of functions (ours or jax's), that of lax, and two arrays of one axis."""


def _named(names: str, arity: int) -> Iterator[tuple[str, Function]]:
    for name in names.split():
        yield name, lambda m, _, x, y, name=name: getattr(m, name)(*(x, y)[:arity])


def _rows(names: str) -> Iterator[tuple[str, Function]]:
    for name in names.split():
        yield name, lambda m, _, x, y, name=name: getattr(m, name)(x.reshape(-1, 8)[:, :5], axis=1)


EXACT: dict[str, Function] = {
    **dict(_named("add subtract multiply maximum minimum equal not_equal less less_equal greater greater_equal", 2)),
    **dict(_named("negative positive absolute sign floor ceil rint isfinite isnan isinf signbit trunc logical_not", 1)),
    **dict(_named("bitwise_and bitwise_or bitwise_xor left_shift right_shift gcd nextafter copysign", 2)),
    **dict(_named("invert bitwise_count", 1)), **dict(_rows("max min argmax argmin sort argsort any all")),
    "concatenate": lambda m, _, x, y: m.concatenate([x, y]),
    "stack": lambda m, _, x, y: m.stack([x, y]),
    "where": lambda m, _, x, y: m.where(x < y, x, y),
    "take": lambda m, _, x, y: x[m.asarray([0, 2, 1])],
    "set": lambda m, _, x, y: m.asarray(x).at[1].set(1),
    "scatter_add": lambda m, _, x, y: m.asarray(x).at[m.asarray([1, 0])].add(y[:2]),
    "scatter_max": lambda m, _, x, y: m.asarray(x).at[m.asarray([1, 1, 0])].max(y[:3]),
    "pad": lambda m, _, x, y: m.pad(x, 1), "roll": lambda m, _, x, y: m.roll(x, 1), "flip": lambda m, _, x, y: x[::-1],
    "clip": lambda m, _, x, y: m.clip(x, 0, 1), "bools": lambda m, _, x, y: x * (x < y),
    "integers": lambda m, _, x, y: x * 2 + 1, "iota": lambda m, of, x, y: of.iota(x.dtype, 4),
    "eye": lambda m, _, x, y: m.eye(3, dtype=x.dtype), "arange": lambda m, _, x, y: m.arange(2, dtype=x.dtype),
    "bits": lambda m, of, x, y: of.bitcast_convert_type(x, m.uint4),
    "from bits": lambda m, of, x, y: of.bitcast_convert_type(m.arange(16, dtype=m.uint8), x.dtype),
    "reduce_precision": lambda m, of, x, y: of.reduce_precision(x, 3, 2),
    "top_k": lambda m, of, x, y: of.top_k(x, 3), "clz": lambda m, of, x, y: of.clz(x),
    "population_count": lambda m, of, x, y: of.population_count(x),
    "shift_right_logical": lambda m, of, x, y: of.shift_right_logical(x, y),
    "cummax": lambda m, of, x, y: of.cummax(x), "clamp": lambda m, of, x, y: of.clamp(y[0], x, y[1]),
    "dynamic_slice": lambda m, of, x, y: of.dynamic_slice(x, (1,), (2,)),
    "dynamic_update_slice": lambda m, of, x, y: of.dynamic_update_slice(x, y[:2], (1,)),
    "scan": lambda m, of, x, y: of.scan(lambda carry, each: (carry + each, carry), x[0], y[:2]),
    "cond": lambda m, of, x, y: of.cond(x[0] < y[1], lambda a: a + 1, lambda a: a, x),
    "tril": lambda m, _, x, y: m.tril(x.reshape(-1, 4)), "outer": lambda m, _, x, y: m.outer(x[:9], y[:9]),
    "repeat": lambda m, _, x, y: m.repeat(x, 2), "diff": lambda m, _, x, y: m.diff(x),
    "count_nonzero": lambda m, _, x, y: m.count_nonzero(x), "isclose": lambda m, _, x, y: m.isclose(x, y),
    "mulhi": lambda m, of, x, y: of.mulhi(x, y),
    "dot of integers": lambda m, of, x, y: of.dot_general(
        x.reshape(-1, 8), y.reshape(-1, 8), (((1,), (1,)), ((), ())),
        preferred_element_type=m.int32 if dtypes.is_integer(x.dtype) else m.int8) if dtypes.is_integer(x.dtype) else x,
}
"""Functions of which the results are equal to the bit, un-jitted, jitted and in jax."""

ROUNDED: dict[str, Function] = {
    **dict(_named("true_divide power arctan2 logaddexp hypot", 2)),
    **dict(_named("exp exp2 expm1 log log1p log2 log10 sqrt cbrt sin cos tan tanh sinh cosh arcsin arctan arcsinh "
                  "reciprocal square sinc", 1)),
    **dict(_rows("sum prod mean cumsum cumprod median nansum nanmax")),
    **{name: (lambda m, of, x, y, name=name: getattr(of, name)(x)) for name in (
        "erf", "erfc", "logistic", "lgamma", "digamma", "rsqrt", "erf_inv", "is_finite")},
    "floats": lambda m, _, x, y: x * 1.5,
    "dot": lambda m, of, x, y: of.dot_general(x.reshape(-1, 8)[:2], y.reshape(-1, 8)[:2], (((1,), (1,)), ((), ())),
                                            preferred_element_type=m.float32),
    "matmul": lambda m, _, x, y: x.reshape(-1, 8)[:3] @ y.reshape(8, -1)[:, :2],
    "ldexp": lambda m, _, x, y: m.ldexp(x, m.asarray(2)),
}
"""Functions of which results may be one number of the dtype apart: XLA makes most of them in float16."""

_OF_JAX_ALONE = {
    "exp2", "log2", "log10", "logaddexp", "hypot", "sinc", "mean", "median", "nanmax",  # ours are made in float32
    "sum", "prod", "cumsum", "cumprod", "nansum",  # in float32 too, or in another order
    "true_divide", "bitwise_count", "population_count", "mulhi", "right_shift",  # of integers: jax's are of the byte
    "erfc", "top_k", "dot of integers", "dot", "ldexp", "matmul", "outer",  # XLA refuses some dtypes
    "concatenate", "stack", "sort", "argsort", "argmax", "argmin",  # of int2 these may end the process
    "isclose", "is_finite", "arcsin", "absolute", "sign", "nextafter",  # of float4 and float8_e8m0fnu
}
"""Functions that are not compared with jax's."""
_NAN_IN_JAX = {"max", "min", "cummax", "arcsinh", "logistic"}
"""Functions of which jax makes NaNs of powers of 2 alone, which have no -inf to begin from and no sign."""


def _operands(name: str) -> tuple[Any, Any]:
    """All pairs of numbers of few bits; of more, all numbers beside others."""
    known = numbers(name)
    if name == SCALES:
        known = known[64:192]
    if len(known) < 64:
        return tuple(each.ravel() for each in np.meshgrid(known, known))  # type: ignore[return-value]
    return known, np.random.default_rng(0).permutation(known)


def _leaves(value: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(value)]


def _is_taken(function: Function, arrays: tuple[Any, Any]) -> bool:
    """Whether jax takes these dtypes."""
    try:
        jax.eval_shape(lambda x, y: function(jnp, jax_lax, x, y), *arrays)
    except Exception:  # noqa: BLE001  (it says so in many ways)
        return False
    return True


TOGETHER = 30
"""So many functions are compiled as one program: in larger ones each takes longer."""


def _compiled(functions: dict[str, Function], jit: Any, libraries: tuple[Any, Any], arrays: tuple[Any, Any],
              ) -> dict[str, Any]:
    found: dict[str, Any] = {}
    keys = [*functions]
    for begin in range(0, len(keys), TOGETHER):
        some = keys[begin:begin + TOGETHER]
        found |= jit(lambda x, y, some=some: {key: functions[key](*libraries, x, y) for key in some},
                     **OPTIONS)(*arrays)
    return found


def _differences(name: str, functions: dict[str, Function], *, with_jax: bool) -> list[str]:
    x, y = _operands(name)
    arrays = fnp.asarray(x), fnp.asarray(y)
    computed, wrong = {}, []
    for key, function in functions.items():
        try:
            computed[key] = _leaves(function(fnp, lax, *arrays))
        except (errors.FxgradError, OverflowError):
            if _is_taken(function, (x, y)) and key not in _OF_JAX_ALONE:
                wrong.append(f"{key} is refused")
    jitted = _compiled({key: functions[key] for key in computed}, fxgrad.jit, (fnp, lax), (x, y))
    theirs = {}
    if with_jax:
        alone = _OF_JAX_ALONE | (_NAN_IN_JAX if name == SCALES else set())
        kept = {key: functions[key] for key in computed if key not in alone and _is_taken(functions[key], (x, y))}
        theirs = _compiled(kept, jax.jit, (jnp, jax_lax), (x, y))
    for key, expected in computed.items():
        allowed = 1 if key in ROUNDED else 0
        for what, found in (("jitted", jitted), ("jax", theirs)):
            for one, other in zip(expected, _leaves(found[key]), strict=True) if key in found else ():
                if one.dtype != other.dtype or one.shape != other.shape:
                    wrong.append(f"{key}, {what}: {one.dtype}{one.shape} {other.dtype}{other.shape}")
                elif one.dtype.name in FLOATS:
                    if (apart := steps_apart(one.dtype.name, one, other)) > allowed:
                        wrong.append(f"{key}, {what}: {apart} steps")
                elif not np.allclose(one.astype(np.float64), other.astype(np.float64), rtol=2e-6 * allowed, atol=0,
                                     equal_nan=True):
                    wrong.append(f"{key}, {what}: {one[one != other][:3]} {other[one != other][:3]}")
    return wrong


FEW = ("add multiply maximum less negative bitwise_and right_shift sort argmax concatenate where set pad bits top_k "
       "scan clip cummax").split()


@pytest.mark.parametrize("name", ["float8_e4m3fn", "int4"])
def test_few_functions_alike(name: str) -> None:
    assert not _differences(name, {key: EXACT[key] for key in FEW}, with_jax=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", DTYPES)
def test_functions_alike(name: str) -> None:
    """Un-jitted, jitted and in jax."""
    functions = EXACT | ROUNDED
    if name == SCALES:
        del functions["lgamma"]  # of 1 and 2 it is 0, which such a dtype has not
    if name == "float4_e2m1fn" and not IS_OLDEST_JAX:  # XLA of jax 0.12 finds infinities among them, it has none
        del functions["isinf"], functions["digamma"]
    assert not _differences(name, functions, with_jax=True)


@pytest.mark.parametrize("name", [name for name in FLOATS if name != SCALES])
def test_arithmetic_is_rounded_once(name: str) -> None:
    """Of all pairs of numbers, beside exact arithmetic: float64 holds sums, products and what decides of quotients."""
    known = numbers(name)
    with np.errstate(all="ignore"):
        x, y = (each.ravel() for each in np.meshgrid(known, known))
        for function, exactly in ((fnp.add, np.add), (fnp.subtract, np.subtract), (fnp.multiply, np.multiply),
                                  (fnp.divide, np.divide)):
            got = np.asarray(function(fnp.asarray(x), fnp.asarray(y))).astype(np.float64)
            exact = exactly(x.astype(np.float64), y.astype(np.float64))
            expected = rounded(exact, name)
            if name == "float4_e2m1fn":  # no NaN: XLA makes it -0
                got, expected = got[~np.isnan(exact)], expected[~np.isnan(exact)]
            infinite = np.isinf(x.astype(np.float32)) | np.isinf(y.astype(np.float32))
            same = (got == expected) | (np.isnan(got) & np.isnan(expected))
            assert (same | (infinite[:len(same)] if len(same) == len(infinite) else False)).all(), function.__name__


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap(name: str) -> None:
    known, limits = numbers(name), ml_dtypes.iinfo(DTYPES[name])
    x, y = (each.ravel() for each in np.meshgrid(known, known))
    wide = x.astype(int), y.astype(int)
    span = int(limits.max) - int(limits.min) + 1

    def wrapped(exact: Any) -> Any:
        return (exact - int(limits.min)) % span + int(limits.min)

    for function in (np.add, np.subtract, np.multiply, np.maximum, np.bitwise_xor, np.left_shift, np.floor_divide):
        sound = wide[1] != 0 if function is np.floor_divide else (wide[1] >= 0 if function is np.left_shift else True)
        kept = np.broadcast_to(sound, x.shape)
        got = getattr(fnp, function.__name__)(fnp.asarray(x[kept]), fnp.asarray(y[kept]))
        assert got.dtype == DTYPES[name]
        assert np.array_equal(got.astype(int), wrapped(function(wide[0][kept], wide[1][kept]))), function
    for function in (np.negative, np.abs, np.invert, np.sign, np.square):
        assert np.array_equal(getattr(fnp, function.__name__)(fnp.asarray(x)).astype(int), wrapped(function(wide[0])))
    assert fnp.sum(fnp.asarray(x)).dtype == (np.uint32 if name.startswith("u") else np.int32)
    assert int(fnp.sum(fnp.asarray(x))) == wide[0].sum()
    product = lax.dot_general(known[:, None], known[None], (((1,), (0,)), ((), ())), preferred_element_type=np.int32)
    assert np.array_equal(product, np.outer(known.astype(int), known.astype(int)))


# --- dtypes -----------------------------------------------------------------------------------------------------------


def test_names_and_limits() -> None:
    for name, dtype in DTYPES.items():
        scalar = getattr(fnp, name)
        assert np.zeros(1, scalar).dtype == dtype == scalar
        assert dtypes.canonical(name) == dtypes.canonical(getattr(jnp, name)) == dtype
        assert fnp.issubdtype(scalar, np.floating) == (name in FLOATS)
        assert fnp.isdtype(scalar, "real floating") == (name in FLOATS)
        assert fnp.isdtype(scalar, "integral") == (name in INTEGERS)
        ours, theirs = (fnp.finfo(scalar), jnp.finfo(scalar)) if name in FLOATS else (
            fnp.iinfo(scalar), jnp.iinfo(scalar))
        assert (ours.max, ours.min, ours.bits) == (theirs.max, theirs.min, theirs.bits)
        assert scalar([1, 2 if name not in ("int2",) else 1]).dtype == dtype
        assert isinstance(numbers(name)[0], scalar)


def test_promotion_is_that_of_jax() -> None:
    wrong, count = [], 0
    for name, dtype in DTYPES.items():
        for other in [*WIDE, *DTYPES.values(), np.dtype(np.complex64), int, float, complex]:
            try:
                with jax.enable_x64(True):
                    theirs = jnp.result_type(dtype, other)
            except Exception:  # noqa: BLE001  (the class of the error is no public name)
                theirs = None
            try:
                ours = fnp.result_type(other, dtype)
            except errors.DTypeError:
                ours = None
            count += 1
            if ours != theirs:
                wrong.append((name, other, ours, theirs))
    assert not wrong
    assert count == 13 * 30


def test_what_does_not_promote() -> None:
    x, n = fnp.ones(2, fnp.float8_e4m3fn), fnp.ones(2, fnp.int4)
    advice = ("do not promote: floats of 8 bits and less promote with integers and Python's floats alone, and integers "
              r"of less than 8 bits with Python's integers\. Convert one first, for example x\.astype\('float32'\)")
    for function, pair in ((lambda: x + np.ones(2, np.float32), "float8_e4m3fn and float32"),
                           (lambda: fnp.multiply(x, x.astype("float8_e5m2")), "float8_e4m3fn and float8_e5m2"),
                           (lambda: n + np.ones(2, np.int8), "int4 and int8"),
                           (lambda: n * 2.0, "int4 and a Python float"),
                           (lambda: fxgrad.jit(lambda n: n * 2.0)(n), "int4 and a Python float")):
        with pytest.raises(errors.DTypeError, match=f"{pair} {advice}"):
            function()


# --- derivatives, containers, control flow ----------------------------------------------------------------------------


@pytest.mark.slow
def test_gradients_of_products() -> None:
    """Operands are rounded, and cotangents are not before they are summed; as in jax, to the bit."""
    random = np.random.default_rng(0)
    x, w = random.normal(size=(4, 8)).astype(np.float32), 300 * random.normal(size=(8, 3)).astype(np.float32)

    def loss(m: Any, of: Any, x: Any, w: Any) -> Any:
        product = of.dot_general(x.astype(m.float8_e4m3fn), w.astype(m.float8_e5m2).astype(m.float8_e4m3fn),
                                (((1,), (0,)), ((), ())), preferred_element_type=m.float32)
        return (product ** 2).sum() * 1e-3

    ours = fxgrad.grad(functools.partial(loss, fnp, lax), (0, 1))
    theirs = jax.grad(functools.partial(loss, jnp, jax_lax), (0, 1))(x, w)
    for got in (ours(x, w), fxgrad.jit(ours)(x, w), fxgrad.from_jax(
            jax.grad(functools.partial(loss, jnp, jax_lax), (0, 1)))(x, w)):
        for one, other in zip(got, theirs, strict=True):
            assert one.dtype == np.float32
            assert np.array_equal(one, other, equal_nan=True)


def test_gradients_in_another_dtype() -> None:
    """The recipe of training in 8 bits: forward in e4m3, gradients in e5m2."""
    @fxgrad.custom_vjp
    def cast(x: Any) -> Any:
        return x.astype(fnp.float8_e4m3fn).astype(np.float32)

    cast.defvjp(lambda x: (cast(x), None), lambda _, g: (g.astype(fnp.float8_e5m2).astype(np.float32),))
    x = np.linspace(-3, 3, 7, dtype=np.float32)
    expected = 2 * x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    expected = expected.astype(ml_dtypes.float8_e5m2).astype(np.float32)
    function = fxgrad.grad(lambda x: np.sum(cast(x) ** 2))
    assert np.array_equal(function(x), expected)
    assert np.array_equal(fxgrad.jit(function)(x), expected)


def test_transformations_and_containers() -> None:
    x = numbers("float8_e5m2")[40:60]
    square = {"y": x * x, "n": (numbers("int4") + numbers("int4"))}

    def function(given: Any) -> Any:
        return {"y": given["x"] * given["x"], "n": given["n"] + given["n"]}

    given = {"x": x, "n": numbers("int4")}
    for got in (function(given), fxgrad.jit(function)(given),
                fxgrad.vmap(function)({"x": x[:16], "n": given["n"]})):
        assert np.array_equal(np.asarray(got["y"]), square["y"][:len(got["y"])])
        assert np.array_equal(np.asarray(got["n"]), square["n"])
    value, tangent = fxgrad.jvp(lambda x: x * x, (x,), (np.ones_like(x),))
    assert value.dtype == tangent.dtype == x.dtype
    assert np.array_equal(tangent, x + x)
    assert fxgrad.eval_shape(function, given)["n"].dtype == DTYPES["int4"]
    assert fxgrad.grad(lambda x: np.sum(x.astype(np.float32)))(x).dtype == x.dtype
    assert fxgrad.memory_analysis(lambda x: x * x)(x).peak.nbytes == 2 * x.size


def test_scaled_products() -> None:
    """Also those imported from jax."""
    x, y = (fnp.astype(np.random.default_rng(seed).normal(size=(1, 4, 32)), "float8_e4m3fn") for seed in (0, 1))
    y, scales = np.swapaxes(np.asarray(y), 1, 2), np.full((1, 4, 1), 2.0).astype(ml_dtypes.float8_e8m0fnu)
    wide = np.asarray(x).astype(np.float32) * 2 @ y.astype(np.float32)
    ours = lax.scaled_dot(x, y, lhs_scale=scales)
    assert np.array_equal(ours, wide.astype(ml_dtypes.bfloat16))
    imported = fxgrad.from_jax(lambda x, y, scales: jax_lax.scaled_dot(x, y, lhs_scale=scales))
    assert np.array_equal(imported(np.asarray(x), y, scales), wide.astype(ml_dtypes.bfloat16))


@pytest.mark.slow
def test_random_numbers_are_those_of_jax() -> None:
    ours, theirs = fxgrad.random.key(3), jax.random.key(3)
    with jax.threefry_partitionable(True):
        for name in ("float8_e4m3fn", "float8_e5m2"):
            for draw in ("uniform", "normal"):
                one = getattr(fxgrad.random, draw)(ours, (20,), DTYPES[name])
                assert np.array_equal(one, getattr(jax.random, draw)(theirs, (20,), DTYPES[name])), (name, draw)
        assert np.array_equal(fxgrad.random.randint(ours, (20,), -8, 7, "int4"),
                              jax.random.randint(theirs, (20,), -8, 7, "int4"))


# --- texts and files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
def test_written_and_read(name: str) -> None:
    """As text, JSON, a file and an export: the same program, or the same results."""
    known = numbers(name)

    def function(x: Any) -> Any:
        y = fnp.where(x < known, x, known[1])
        return fnp.concatenate([y, known])[::2], y * 1

    program = fxgrad.make_program(function)(known)
    text = str(fxgrad.parse(str(program)))
    assert str(fxgrad.parse(text)) == text
    assert f"x: {dtypes.short_name(DTYPES[name])}[{len(known)}]" in text
    file = io.BytesIO()
    fxgrad.save(file, function, known)
    file.seek(0)
    expected = [each.tobytes() for each in program(known)]
    for read in (fxgrad.parse(text), from_json(to_json(program)), fxgrad.load(file)):
        assert [np.asarray(each).tobytes() for each in read(known)] == expected
    if name in FLOATS and name != SCALES:
        namespace: dict[str, Any] = {}
        exec(fxgrad.make_program(lambda x: (x * known, x.astype(np.float32)))(known).to_python(), namespace)
        found = namespace["function"](known)
        with np.errstate(all="ignore"):
            assert np.array_equal(found[1], known.astype(np.float32), equal_nan=True)
            assert found[0].dtype == known.dtype


def test_text_of_a_program() -> None:
    program = fxgrad.make_program(lambda x, n: (x.astype(fnp.float8_e4m3fn) * 2.0, n + 3))(
        np.ones(3, np.float32), fnp.ones(2, fnp.int4))
    assert str(fxgrad.parse(str(program))) == """\
program function(x: f32[3], n: int4[2]) -> f8_e4m3fn[3], int4[2]:
  return f8_e4m3fn(x) * 2.0, n + 3"""


def test_models() -> None:
    """Constants and values within an ONNX model."""
    pytest.importorskip("onnxruntime")
    with_onnx = pytest.importorskip("tests.support.with_onnx")
    x = np.linspace(-3, 3, 8, dtype=np.float32)
    for name in ("float8_e4m3fn", "float8_e5m2", "int4", "uint4"):
        weights = numbers(name)[:8]

        def function(x: Any, weights: Any = weights) -> Any:
            narrow = fnp.clip(fnp.round(x), 0, 3).astype(weights.dtype)
            return (fnp.concatenate([narrow, weights])[::-1] * 1).astype(np.float32), x * weights.astype(np.float32)

        with_onnx.compared(fxgrad.make_program(function)(x), (x,))


def test_what_is_refused() -> None:
    n, x = fnp.ones(2, fnp.int4), fnp.ones(2, fnp.float8_e4m3fn)
    for function, error, message in (
            (lambda: fxgrad.jit(lambda n: n.view(np.uint8))(n), errors.DTypeError,
             "view: int4 as uint8: elements of less than 8 bits lie otherwise in NumPy's arrays than in XLA's"),
            (lambda: fnp.spacing(x), errors.DTypeError, "spacing: not defined for float8_e4m3fn; convert first"),
            (lambda: fnp.frexp(x), errors.DTypeError, "frexp: not defined for float8_e4m3fn; convert first"),
            (lambda: fnp.complex64(1) * x, errors.DTypeError, "complex64 and float8_e4m3fn do not promote"),
            (lambda: fnp.full(2, 8, fnp.int4), OverflowError, "the integer 8 is out of bounds for int4"),
            (lambda: fxgrad.make_program(lambda n: -n)(n).to_python(), errors.UnsupportedError,
             r"to_python: neg is of int4, with which NumPy does not compute \(it does with x\.astype\('int8'\)\)"),
            (lambda: fxgrad.make_program(lambda n: n * n)(numbers("uint4")).to_python(), errors.UnsupportedError,
             r"to_python: mul is of uint4, with which NumPy does not compute \(it does with x\.astype\('uint8'\)\)"),
            (lambda: fxgrad.export(lambda n: n + n)(numbers("int2")).serialize(), errors.UnsupportedError,
             "Exported.serialize: jax has no form for arguments and results of int2"),
            (lambda: onnx.to_onnx(lambda x: x)(numbers("float8_e3m4")), errors.UnsupportedError,
             "to_onnx: onnxruntime does not compute with float8_e3m4; of the narrow dtypes it has float8_e4m3fn"),
            (lambda: fxgrad.make_program(lambda x: x * x)(x).to_c(), errors.UnsupportedError,
             "to_c: an argument is of dtype float8_e4m3fn, where a C file has float64")):
        with pytest.raises(error, match=message):
            function()
