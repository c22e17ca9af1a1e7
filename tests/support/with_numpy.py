"""Holding functions of fxgrad.numpy to those of jax.numpy: values, shapes, dtypes, weakness, derivatives."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp

DTYPES = {name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in
          ("bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32", "complex64")}
TOLERANCE = {"bfloat16": 4e-2, "float16": 5e-3, "float32": 2e-5, "complex64": 2e-5, "float64": 1e-12,
             "complex128": 1e-12}


def draw(shape: Sequence[int], dtype: str = "float32", low: float = -3, high: float = 3, seed: str = "") -> Any:
    """Return an array of random numbers, the same in every run; integers from `low` to `high`, unsigned ones from 0."""
    random = np.random.default_rng(zlib.crc32(f"{tuple(shape)}{dtype}{low}{high}{seed}".encode()))
    kind = np.dtype(DTYPES.get(dtype, dtype)).kind
    if kind in "biu":
        values: Any = random.integers(0 if kind in "bu" else int(low), 2 if kind == "b" else int(high) + 1, shape)
    else:
        values = random.uniform(low, high, shape)
        values = values + 1j * random.uniform(low, high, shape) if kind == "c" else values
    return np.asarray(values).astype(DTYPES.get(dtype, dtype))


def assert_equal(got: Any, expected: Any, what: str = "") -> None:
    """Shapes and dtypes are equal, values are close."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype), what
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected, what)
    else:
        tolerance = TOLERANCE[expected.dtype.name]
        np.testing.assert_allclose(got.astype(complex), expected.astype(complex), tolerance, tolerance, err_msg=what)


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, list | tuple) else [result]


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def with_arrays(function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]) -> Callable[..., Any]:
    """Return the function of the arrays among the arguments, with all others fixed."""
    def call(*arrays: Any) -> list[Any]:
        given = iter(arrays)
        return leaves(function(*(next(given) if is_array(arg) else arg for arg in args), **options))
    return call


class Call(NamedTuple):
    """A call of one function of either library."""

    name: str
    args: Sequence[Any]
    options: dict[str, Any]


def call(name: str, *args: Any, **options: Any) -> Call:
    """Return `name(*args, **options)`, for `check_all`."""
    return Call(name, args, options)


_waiting: ContextVar[tuple[list[Call], list[Call]] | None] = ContextVar("waiting", default=None)
"""Calls whose values, and whose gradients, a test compares all together at its end."""


@contextmanager
def together() -> Iterator[None]:
    """`check` and `check_gradient` in this block, or in a test that it decorates, compare all calls at the end.

    Then they are compiled as one program.
    """
    values, gradients = waiting = ([], [])  # type: tuple[list[Call], list[Call]]
    token = _waiting.set(waiting)
    try:
        yield
    finally:
        _waiting.reset(token)
    if values:
        check_all(*values)
    if gradients:
        check_gradients(*gradients)


def each(names: str, cases: Sequence[Any], size: int = 12) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, of one test for `size` cases, which are checked together."""
    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def of_several(cases: Sequence[Any]) -> None:
            with together():
                for case in cases:
                    test(*(case if "," in names else (case,)))

        of_several.__name__, of_several.__doc__ = test.__name__, test.__doc__
        groups = [cases[begin:begin + size] for begin in range(0, len(cases), size)]
        return pytest.mark.parametrize("cases", groups, ids=[f"{group[0]}..."[:30] for group in groups])(of_several)
    return decorate


def _taken(name: str, args: Sequence[Any], options: dict[str, Any]) -> Call:
    """Return the call with copies of its arrays, which a test may write to before they are compared."""
    return Call(name, [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args], options)


def check(name: str, *args: Any, **options: Any) -> None:
    """`check_all` of one call."""
    waiting = _waiting.get()
    if waiting is None:
        check_all(Call(name, args, options))
    else:
        waiting[0].append(_taken(name, args, options))


def check_all(*calls: Call) -> None:
    """Functions of `fxgrad.numpy`, computed at once, and traced and run, against those of `jax.numpy`.

    Both executors compute the same programs alike: that is a law of every primitive, and not tested again here.
    """
    theirs = [with_arrays(getattr(jnp, name), args, options) for name, args, options in calls]
    given = [[arg for arg in args if is_array(arg)] for _, args, _ in calls]
    answers = jax.jit(lambda groups: [function(*arrays) for function, arrays in zip(theirs, groups, strict=True)])(
        given)  # compiled as one program, since compiling takes most of the time
    _all_pass(functools.partial(_check_against, *each) for each in zip(calls, given, answers, strict=True))


def _all_pass(checks: Iterable[Callable[[], None]]) -> None:
    """Raise one error with the messages of all failed checks."""
    failures = []
    for each in checks:
        try:
            each()
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n\n".join(failures)


def _check_against(each: Call, arrays: Sequence[Any], expected: Sequence[Any]) -> None:
    name, args, options = each
    function = getattr(fnp, name)
    what = f"{name}({', '.join(str(getattr(arg, 'dtype', arg)) for arg in args)}, {options})"
    direct = leaves(function(*args, **options))
    for got, wanted in zip(direct, expected, strict=True):
        if all(map(is_array, args)):
            assert_equal(got, wanted, what)
    program = fxgrad.make_program(with_arrays(function, args, options))(*arrays)
    for got, wanted in zip(program(*arrays), expected, strict=True):
        assert_equal(got, wanted, f"traced {what}")
    if all(map(is_array, args)):
        for output, wanted in zip(program.outputs, expected, strict=True):
            assert output.aval.weak == wanted.weak_type or wanted.dtype == bool, f"weakness of {what}"


def check_gradient(name: str, *args: Any, **options: Any) -> None:
    """`check_gradients` of one call."""
    waiting = _waiting.get()
    if waiting is None:
        check_gradients(Call(name, args, options))
    else:
        waiting[1].append(_taken(name, args, options))


def check_gradients(*calls: Call) -> None:
    """Compare the gradients of weighted sums of the results, in every float64 array, with jax's."""
    places = [_places(each) for each in calls]
    moved = [[each.args[place] for place in chosen] for each, chosen in zip(calls, places, strict=True)]

    def gradient(each: Call, chosen: Sequence[int], *values: Any) -> Any:
        def loss(*values: Any) -> Any:
            replaced = dict(zip(chosen, values, strict=True))
            return _weighted_sum(jnp, each, *(replaced.get(place, arg) for place, arg in enumerate(each.args)))
        return jax.grad(loss, argnums=tuple(range(len(chosen))))(*values)

    with jax.enable_x64(True):  # one program to compile, not one for each operation
        answers = jax.jit(lambda groups: [gradient(*each, *values) for each, values in zip(
            zip(calls, places, strict=True), groups, strict=True)])(moved)
    _all_pass(functools.partial(_check_gradient_against, *each) for each in zip(calls, places, answers, strict=True))


def _places(each: Call) -> tuple[int, ...]:
    return tuple(place for place, arg in enumerate(each.args)
                 if is_array(arg) and arg.dtype in (np.float64, np.complex128))


def _weighted_sum(module: Any, each: Call, *given: Any) -> Any:
    results = leaves(getattr(module, each.name)(*given, **each.options))
    return sum(module.sum(module.real(result) * draw(result.shape, "float64", seed="w")) for result in results)


def _check_gradient_against(each: Call, places: tuple[int, ...], expected: Sequence[Any]) -> None:
    ours = fxgrad.grad(lambda *given: _weighted_sum(fnp, each, *given), argnums=places)(*each.args)
    for got, wanted in zip(ours, expected, strict=True):
        assert_equal(got, np.asarray(wanted), f"gradient of {each.name}")


def in_groups(calls: Sequence[Call], size: int = 16) -> Any:
    """Parametrizes a test with several `calls` at a time, to compile so many as one program."""
    groups = [calls[begin:begin + size] for begin in range(0, len(calls), size)]
    return pytest.mark.parametrize("calls", groups, ids=[f"{group[0].name}-{group[-1].name}" for group in groups])
