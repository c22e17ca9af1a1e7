"""NumPy's functions on every path: plain, un-jitted three times, batched, and compiled, they give the same values.

The cases are those of the comparison with jax; what is asked of them here is NumPy's own answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import fxgrad
from tests.comparison.arguments import Case
from tests.comparison.cases import CASES
from tests.comparison.libraries import functions

MODULES = {"numpy": "", "numpy.linalg": "linalg", "numpy.fft": "fft"}
QUICK_DTYPES = ("bool", "uint8", "int32", "float32", "complex64")
"""One of each kind, for the quick tier and to be compiled."""
OTHER_DTYPES = ("int8", "int64", "float16", "float64")
DTYPES = (*QUICK_DTYPES, *OTHER_DTYPES)
RELATIVE = {"e": 4e-3, "f": 2e-4, "F": 2e-4, "d": 1e-9, "D": 1e-9}

DIFFERENT: dict[str, tuple[str, str]] = {
    "around": ("bool", "NumPy makes float16 of bools"), "round": ("bool", "NumPy makes float16 of bools"),
    "conj": ("bool", "NumPy makes int8 of bools"), "conjugate": ("bool", "NumPy makes int8 of bools"),
    "reciprocal": ("bool", "NumPy makes int8 of bools"), "spacing": (
        "bool int8 uint8 int32 float16", "integers are converted to another float; NumPy's halves lose the sign"),
    "convolve": ("bool", "NumPy adds bools as truth values"), "correlate": ("bool", "NumPy adds bools as truth values"),
    "trapezoid": ("bool uint8", "NumPy adds neighbours in the dtype of the data, which cannot hold the sums"),
    "unwrap": ("uint8", "NumPy subtracts neighbours in the dtype of the data, which cannot hold the differences"),
    "i0": ("uint8", "float32 overflows where NumPy's float64 does not"),
    "quantile": ("bool int8 uint8 int32 int64", "places are drawn as integers, for which NumPy chooses integers"),
    "power": ("float16", "float16 to the power of int32 is float16, which overflows"),
    "pow": ("float16", "float16 to the power of int32 is float16, which overflows"),
    "interp": ("bool int8 uint8 int32 int64", "drawn places coincide, where any value is right"),
    "searchsorted": ("uint8", "what was sorted before it wrapped is not sorted"),
    "polyder": ("bool", "bools are no coefficients"),
    "polymul": ("bool int8 uint8 int32 int64", "leading zeros are kept, since their number depends on values; floats"),
    "polydiv": (" ".join(DTYPES), "leading zeros are kept, since their number depends on values"),
    "eigvals": (" ".join(DTYPES), "complex, since whether all are real depends on values"),
    "empty_like": (" ".join(DTYPES), "what is in memory is nobody's to say"),
}
"""Functions whose traced values are meant to differ from NumPy's, in which dtypes and why."""
if np.lib.NumpyVersion(np.__version__) < "2.3.0":
    DIFFERENT["cond"] = "complex64", "NumPy makes a complex number of it before version 2.3"


def numpy_function(library: str, name: str) -> Callable[..., Any] | None:
    """NumPy's function of the name, if it is one that hands itself on to traced arrays."""
    module = reduce(getattr, filter(None, [MODULES[library]]), np)
    found = getattr(module, name, None)
    dispatches = isinstance(found, np.ufunc) or hasattr(found, "_implementation")
    return found if dispatches else None


def calls(library: str, name: str, dtypes: Sequence[str]) -> list[tuple[str, Case]]:
    """The cases of a function that NumPy can be asked, in each dtype."""
    return [(dtype, case) for case in CASES[library].get(name, []) if not case.static and case.call is None
            for dtype in dtypes if dtype not in DIFFERENT.get(name, ("", ""))[0].split()]


class Problems(list[str]):
    """What differs, by the label of the call."""

    def compare(self, label: str, path: str, traced: Any, plain: Any) -> None:
        """Enters a difference in structure, dtype, shape or value."""
        if type(traced) in (tuple, list) or type(plain) in (tuple, list):
            if type(traced) is not type(plain) and not hasattr(plain, "_fields"):
                self.append(f"{label} {path}: a {type(traced).__name__}, and {type(plain).__name__} in NumPy")
            ours, theirs = jax.tree.leaves(tuple(traced)), jax.tree.leaves(tuple(plain))
        else:
            ours, theirs = [traced], [plain]
        if len(ours) != len(theirs):
            self.append(f"{label} {path}: {len(ours)} results, and {len(theirs)} in NumPy")
            return
        for ours_one, theirs_one in zip(ours, theirs, strict=True):
            self._compare_arrays(f"{label} {path}", np.asarray(ours_one), np.asarray(theirs_one))

    def _compare_arrays(self, what: str, traced: Any, plain: Any) -> None:
        if traced.shape != plain.shape:
            self.append(f"{what}: shape {traced.shape}, and {plain.shape} in NumPy")
            return
        if traced.dtype.kind != plain.dtype.kind:
            self.append(f"{what}: {traced.dtype}, and {plain.dtype} in NumPy")
            return
        if plain.dtype.kind in "biu":
            if not np.array_equal(traced, plain):
                self.append(f"{what}: {traced!r}, and {plain!r} in NumPy")
            return
        coarser = max(RELATIVE[traced.dtype.char], RELATIVE[plain.dtype.char])
        scale = float(np.max(np.abs(plain), initial=0, where=np.isfinite(plain))) if plain.size else 0.0
        if not np.allclose(traced, plain, rtol=coarser, atol=coarser * min(scale, 1e30), equal_nan=True):
            self.append(f"{what}: {traced!r}, and {plain!r} in NumPy")


def paths(function: Callable[..., Any], args: list[Any]) -> list[tuple[str, Callable[[], Any]]]:
    """The ways to compute a function of arrays."""
    batched = fxgrad.vmap(function)
    twice = [np.stack([arg, arg]) for arg in args]

    def entry() -> Any:
        return jax.tree.map(lambda leaf: leaf[1], batched(*twice))

    found: list[tuple[str, Callable[[], Any]]] = [(f"vmap, call {call}", entry) for call in (1, 2, 3)]
    if args and all(arg.dtype.kind in "fc" for arg in args):
        found += [(f"vjp, call {call}", lambda: fxgrad.vjp(function, *args)[0]) for call in (1, 2, 3)]
    return found


REFUSALS = (fxgrad.errors.UnsupportedError, fxgrad.errors.ConcretizationError, fxgrad.errors.DTypeError,
            fxgrad.errors.ArrayConversionError)


class Question(NamedTuple):
    """A call of one of NumPy's functions, and what NumPy answers."""

    label: str
    dtype: str
    function: Callable[..., Any]
    arrays: list[Any]
    plain: Any


def questions(library: str, name: str, dtypes: Sequence[str]) -> Iterator[Question]:
    """What NumPy is asked, and answers, of one function."""
    theirs = numpy_function(library, name)
    assert theirs is not None
    for dtype, case in calls(library, name, dtypes):
        arrays = case.arrays(dtype)
        if not arrays:
            continue
        function = Case.function(Case(*case.args, call=lambda _, *args, **options: theirs(*args, **options),
                                      seen=case.seen, **case.options), None, name, dtype)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                plain = function(*[array.copy() for array in arrays])
            except Exception:  # noqa: BLE001  (what NumPy refuses is no question)
                continue
        yield Question(f"{library}.{name} in {dtype} of {case.args}{case.options or ''}", dtype, function, arrays,
                       plain)


def problems_of(library: str, name: str, dtypes: Sequence[str]) -> Problems:
    """All differences of one function."""
    problems = Problems()
    for label, _, function, arrays, plain in questions(library, name, dtypes):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for path, run in paths(function, arrays):
                try:
                    traced = run()
                except REFUSALS:
                    break
                except Exception as error:  # noqa: BLE001
                    problems.append(f"{label} {path}: {type(error).__name__}: {error}"[:300])
                    break
                problems.compare(label, path, traced, plain)
    return problems


NAMES = [(library, name) for library in MODULES for name in functions(library)
         if numpy_function(library, name) is not None]


@pytest.mark.parametrize("dtypes", [pytest.param(QUICK_DTYPES, id="quick"),
                                    pytest.param(OTHER_DTYPES, id="other", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("library", "name"), NAMES, ids=[f"{library}.{name}" for library, name in NAMES])
def test_values_and_kinds_are_those_of_numpy(library: str, name: str, dtypes: tuple[str, ...]) -> None:
    assert not problems_of(library, name, dtypes)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, len(NAMES), 30))
def test_compiled_values_and_kinds_are_those_of_numpy(start: int) -> None:
    """Many functions in one compiled program, since it is compiling that takes time."""
    asked = [question for library, name in NAMES[start:start + 30] if name not in DIFFERENT
             for question in questions(library, name, QUICK_DTYPES) if _is_accepted(question)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = fxgrad.jit(lambda every: [question.function(*arrays) for question, arrays in zip(
            asked, every, strict=True)])([question.arrays for question in asked])
    problems = Problems()
    for question, answer in zip(asked, answers, strict=True):
        problems.compare(question.label, "jit", answer, question.plain)
    assert not [problem for problem in problems if not any(each in problem for each in COMPILED)], problems


COMPILED = ("numpy.divide in bool", "numpy.true_divide in bool")
"""What XLA computes otherwise: it takes 0 / 0 of bools that were converted for 0."""


def _is_accepted(question: Question) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fxgrad.eval_shape(question.function, *question.arrays)
    except REFUSALS:
        return False
    return True


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_sums_and_products_of_integers_are_as_wide_as_numpys(dtype: str) -> None:
    """Of the greatest values that there are, so that a narrower sum would overflow; methods of arrays too."""
    greatest = True if dtype == "bool" else np.iinfo(dtype).max
    x = np.full((2, 3), greatest, dtype)
    functions: list[Callable[..., Any]] = [
        np.sum, np.cumsum, np.nansum, np.nancumsum, np.prod, np.cumprod, np.trace, np.add.reduce, np.add.accumulate,
        np.multiply.reduce, lambda x: x.sum(0), lambda x: x.prod(axis=1), lambda x: x.cumsum(1), lambda x: x.trace(),
        lambda x: np.sum(x, 0), lambda x: np.sum(x, axis=0, dtype=None), lambda x: np.sum(x, None, np.int32),
        lambda x: np.cumulative_sum(x, axis=0, include_initial=True), lambda x: np.sum(x, keepdims=True)]
    for function in functions:
        with np.errstate(over="ignore"):
            plain = np.asarray(function(x))
        for path, run in paths(function, [x]):
            traced = np.asarray(run())
            assert (traced.dtype, traced.tolist()) == (plain.dtype, plain.tolist()), path
    with np.errstate(over="ignore"):
        for ours, theirs in zip(fxgrad.jit(lambda x: [function(x) for function in functions])(x),
                                [function(x) for function in functions], strict=True):
            assert (np.asarray(ours).dtype, np.asarray(ours).tolist()) == (np.asarray(theirs).dtype, theirs.tolist())


def test_every_exception_is_needed() -> None:
    assert DIFFERENT.keys() <= {name for _, name in NAMES}
