"""No digit of Python's numbers is lost: in any place that takes one they are what an array of that number is."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np
import pytest

import fxgrad
from fxgrad import dtypes, jit, vmap
from tests.comparison.arguments import A, Case, Dtype
from tests.comparison.cases import CASES
from tests.comparison.libraries import LIBRARIES, functions
from tests.support import distributions

pytestmark = pytest.mark.slow

NUMBERS = (0.1, 1 / 3, 1e300, -0.0, 2**53 + 1)
DTYPES = {name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in (
    "float64", "float32", "bfloat16", "int64", "int32")}
ULPS = {"bfloat16": 16}
"""By dtype, how many units in the last place the results may differ; 4 in all others.

What is computed in a wider dtype within, as in bfloat16, keeps digits of a number that an array of its dtype has not.
"""

NO_NUMBERS = {"axis", "dtype", "out", "where", "size", "num", "precision"}
"""Parameters with defaults of None or a number that take no floats."""

LOOPS = {"polygamma", "expn", "random_gamma_grad", "igamma_grad_a"}
"""Functions that loop as often as such numbers say."""


UNLIKE_ARRAYS = {
    "pow": "whole exponents are exact as numbers, and rounded in an array of floats", "power": "as pow",
    "put": "as a position, such a number is beyond the 32 bits of traced positions",
    "setdiff1d": "the number alone decides over the dtype"}
"""Functions for which some of the numbers beside some dtypes are another thing than in an array, and why."""

UNLIKE_NUMPY = {
    ("histogram2d", -0.0): "counts are integers", ("histogramdd", -0.0): "counts are integers",
    ("interp", 1e300): "in a period of that size no place has a digit left", ("polydiv", -0.0): "no polynomial divides",
    **{(name, 1e300): "a NaN where nothing is left to divide by" for name in ("std", "var", "nanstd", "nanvar")}}
"""Calls whose results differ from NumPy's by more than rounding, and why."""


@pytest.fixture(autouse=True)
def _types_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of programs that other tests write and read again: here their types are checked."""
    monkeypatch.setattr(fxgrad.config, "check_level", 1)


class Place(NamedTuple):
    """Where a number stands: at a position among the arguments, within a list there, or under a name."""

    at: int | str
    within: int | None = None


class Call(NamedTuple):
    """A call of one function with arrays of one dtype, in which a number takes the place of an argument."""

    label: str
    function: Callable[..., Any]
    args: list[Any]
    options: dict[str, Any]
    place: Place
    dtype: Any

    def given(self, number: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments and options with the number among them."""
        args, options, (at, within) = list(self.args), dict(self.options), self.place
        if isinstance(at, str):
            options[at] = number
        elif within is None:
            args[at] = number
        else:
            args[at] = [number if place == within else each for place, each in enumerate(args[at])]
        return args, options


def leaves(result: Any) -> list[Any]:
    """The arrays of a result."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(result)]


def difference(found: Sequence[Any], wanted: Sequence[Any], ulps: int | None = None) -> str:
    """What differs between two lists of arrays beyond the last places: number, dtype, shape or value."""
    if len(found) != len(wanted):
        return f"{len(found)} results, {len(wanted)} are expected"
    for one, other in zip(found, wanted, strict=True):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one.dtype}{one.shape}, {other.dtype}{other.shape} is expected"
        inexact = dtypes.is_inexact(one.dtype)
        left, right = (each.astype(complex) if inexact else each for each in (one, other))
        allowed = (ulps or ULPS.get(one.dtype.name, 4)) * float(ml_dtypes.finfo(one.dtype).eps) if inexact else 0
        same = (left == right) | ((left != left) & (right != right))  # noqa: PLR0124  (true of NaNs alone)
        if inexact:
            with np.errstate(all="ignore"):
                same |= np.isfinite(left) & np.isfinite(right) & (np.abs(left - right) <= allowed * np.abs(right))
        if not np.all(same):
            return f"{one.ravel()[:4]}, {other.ravel()[:4]} is expected"
    return ""


def calls(library: str, names: Sequence[str], of_dtypes: Sequence[str]) -> Iterator[Call]:
    """Every place for a number in the cases of these functions, beside an array at least."""
    module = LIBRARIES[library][0]
    for name in names:
        if name in LOOPS:
            continue
        function = getattr(module, name)
        for number, case in enumerate(CASES[library].get(name, [])):
            for dtype in of_dtypes:
                filled = arguments(case, dtype)
                if filled is None:
                    continue
                args, options = filled
                called = function if case.call is None else lambda *args, call=case.call, **options: call(
                    module, *args, **options)
                for place in places(function if case.call is None else None, args, options, DTYPES[dtype]):
                    yield Call(f"{library}.{name}, case {number}, {dtype}, {place}", called, args, options, place,
                               DTYPES[dtype])


def arguments(case: Case, dtype: str) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments and options of a case; None if there are none in this dtype."""
    drawn = {"bfloat16": "float32", "int64": "int32"}.get(dtype, dtype)
    if drawn not in case.dtypes:
        return None
    try:
        arrays = iter(case.arrays(drawn))
    except (ValueError, TypeError, RuntimeWarning, np.linalg.LinAlgError):
        return None

    def filled(arg: Any) -> Any:
        if isinstance(arg, list):
            return [filled(each) for each in arg]
        if isinstance(arg, A):
            array = next(arrays)
            return array.astype(DTYPES[dtype]) if arg.dtype is None else array
        return DTYPES[dtype] if isinstance(arg, Dtype) else arg

    return [filled(arg) for arg in case.args], {name: filled(value) for name, value in case.options.items()}


def places(function: Callable[..., Any] | None, args: list[Any], options: dict[str, Any], dtype: Any) -> list[Place]:
    """Where numbers can stand while an array of the dtype remains: arrays, floats, and options that are not given."""
    def is_array(value: Any) -> bool:
        return isinstance(value, np.ndarray) and value.dtype == dtype

    def takes(value: Any) -> bool:
        return is_array(value) or type(value) is float

    found = [Place(at) for at, arg in enumerate(args) if takes(arg)]
    found += [Place(at, within) for at, arg in enumerate(args) if isinstance(arg, list)
              for within, each in enumerate(arg) if takes(each)]
    found += [Place(name) for name, value in options.items() if takes(value)]
    if function is not None:
        parameters = list(inspect.signature(function).parameters.values())
        found += [Place(each.name) for each in parameters[len(args):] if each.name not in {*options, *NO_NUMBERS}
                  and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
                  and (each.default is None or type(each.default) in (int, float))]
    everything = [(Place(at, within), each) for at, arg in enumerate(args) for within, each in (
        enumerate(arg) if isinstance(arg, list) else [(None, arg)])]
    everything += [(Place(name), value) for name, value in options.items()]
    return [place for place in found if any(is_array(value) for other, value in everything if other != place)]


def as_arrays(number: Any, dtype: Any) -> list[Any]:
    """The number as an array in the dtype that it has beside one of `dtype`, or in its own, which has all digits."""
    floating = type(number) is float
    beside = dtypes.inexact_dtype(dtype) if floating else dtype
    return [np.asarray(number).astype(kind) for kind in (beside, np.dtype("float64" if floating else "int64"))]


def fits(number: Any, call: Call) -> bool:
    """Whether arithmetic takes the number beside such an array; integers of options count how often, or how many."""
    if type(number) is int and isinstance(call.place.at, str):
        return False
    return dtypes.is_inexact(call.dtype) or abs(number) <= np.iinfo(call.dtype).max


class Compared(NamedTuple):
    """A call that was compared: as a program and with what it was called, to be compiled with others."""

    label: str
    program: Any
    arrays: list[Any]
    wanted: list[Any]


def compare(asked: Iterator[Call], numbers: Sequence[Any]) -> list[Compared]:
    """No call of a number differs from that of an array un-jitted, or from itself traced and batched."""
    problems, compared = [], []
    for call in asked:
        for number in numbers:
            if not fits(number, call):
                continue
            label = f"{call.label}, {number!r}"
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                wanted = outcomes(call, number)
                if not wanted:
                    continue  # no place for numbers
                args, options = call.given(number)
                try:
                    found = leaves(call.function(*args, **options))
                except Exception as error:  # noqa: BLE001  (whatever it is, an array was taken)
                    if not refuses_rightly(call, error):
                        problems.append(f"{label}: {type(error).__name__} {error}")
                    continue
                wrong = [difference(found, each) for each in wanted]
                if all(wrong):
                    problems.append(f"{label}: un-jitted {wrong[0]}")
                    continue
                traced, problem = along_paths(call, args, options, found)
            if problem:
                problems.append(f"{label}: {problem}")
            compared += [Compared(label, *traced, found)] if traced else []
    assert not problems, "\n".join(problems)
    return compared


def outcomes(call: Call, number: Any) -> list[list[Any]]:
    """The results with the number as an array, in the dtypes that it may have."""
    found = []
    for array in as_arrays(number, call.dtype):
        args, options = call.given(array)
        try:
            found.append(leaves(call.function(*args, **options)))
        except Exception:  # noqa: BLE001  (what is no place for numbers is refused in many ways)
            continue
    return found


def refuses_rightly(call: Call, error: Exception) -> bool:
    """Functions of lax take no integers beside floats; integer options and orders of norms are no arrays."""
    return (isinstance(error, fxgrad.errors.DTypeError) and "functions of fxgrad.lax do not" in str(error)) or (
        isinstance(error, fxgrad.errors.ArgumentError) and ("ord=" in str(error) or "integer is needed" in str(error)))


def along_paths(call: Call, args: list[Any], options: dict[str, Any], found: list[Any]) -> tuple[Any, str]:
    """The call as a program of its arrays, and what differs where it is traced, or traced and batched."""
    flat, tree = jax.tree.flatten((args, options), is_leaf=lambda value: value is None)
    at = [place for place, leaf in enumerate(flat) if isinstance(leaf, np.ndarray)]
    arrays = [flat[place] for place in at]

    def of_arrays(*values: Any) -> list[Any]:
        given = list(flat)
        for place, value in zip(at, values, strict=True):
            given[place] = value
        args, options = jax.tree.unflatten(tree, given)
        return jax.tree.leaves(call.function(*args, **options))

    try:
        program = fxgrad.make_program(of_arrays)(*arrays)
    except fxgrad.errors.FxgradError:
        return None, ""  # what depends on values
    if program.signature is not None and program.signature.path:
        return None, ""  # right for these values alone
    if problem := difference(leaves(program(*arrays)), found, 16):
        return None, f"traced {problem}"
    batched = leaves(vmap(program)(*(np.stack([each, each]) for each in arrays)))
    problem = difference([each[1] for each in batched], found, 16)
    return (program, arrays), f"batched {problem}" if problem else ""


def test_numbers_in_every_place_of_functions_of_arrays() -> None:
    assert len(compare(calls("numpy", functions("numpy"), ("float64",)), (0.1, 1e300))) > 300


@pytest.mark.parametrize("library", [library for library in LIBRARIES if library != "numpy"])
def test_numbers_in_every_place_of_other_functions(library: str) -> None:
    compare(calls(library, functions(library), ("float64",)), (0.1,))


@pytest.mark.slow
def test_all_numbers_beside_all_dtypes() -> None:
    names = [name for name in functions("numpy") if name not in UNLIKE_ARRAYS]
    assert len(compare(calls("numpy", names, [*DTYPES]), NUMBERS)) > 4000


@pytest.mark.slow
def test_numbers_in_compiled_programs() -> None:
    compared = compare(calls("numpy", functions("numpy"), ("float64",)), (0.1, 1 / 3))
    compiled = jit(lambda groups: [each.program(*group) for each, group in zip(compared, groups, strict=True)])(
        [each.arrays for each in compared])
    problems = [(each.label, problem) for each, found in zip(compared, compiled, strict=True)
                if (problem := difference(leaves(found), each.wanted, 256))]
    assert not problems, "\n".join(map(str, problems))


def test_results_beside_float64_are_those_of_numpy() -> None:
    """In float64 no default dtype decides; what NumPy has not, or has in another shape, is not compared."""
    problems, count = [], 0
    for name in functions("numpy"):
        theirs = getattr(np, name, None)
        for call in calls("numpy", [name], ("float64",)) if theirs else ():
            for number in [each for each in NUMBERS if fits(each, call) and (name, each) not in UNLIKE_NUMPY]:
                args, options = call.given(number)
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    try:
                        wanted, found = leaves(theirs(*args, **options)), leaves(call.function(*args, **options))
                    except Exception:  # noqa: BLE001  (one has not what the other has)
                        continue
                if all(each.dtype.kind in "fc" for each in wanted) and [each.shape for each in wanted] == [
                        each.shape for each in found]:
                    count += 1
                    problem = difference(found, wanted, 256)
                    problems += [f"{call.label}, {number!r}: {problem}"] if problem else []
    assert not problems, "\n".join(problems)
    assert count > 300


def of_distributions(of_dtypes: Sequence[str]) -> Iterator[Call]:
    for name, function in distributions.FUNCTIONS:
        every = distributions.parameters(name, function)
        for dtype in of_dtypes:
            args = [distributions.points(name, function).astype(DTYPES[dtype]), *every]
            for place in range(1, len(args)):
                yield Call(f"stats.{name}.{function}, {dtype}, {place}", distributions.pair(name, function)[0],
                           args, {}, Place(place), DTYPES[dtype])


def test_parameters_of_distributions() -> None:
    compare(of_distributions(("float64",)), (1 / 3,))


@pytest.mark.slow
def test_parameters_of_distributions_in_all_dtypes() -> None:
    compare(of_distributions([*DTYPES]), (0.1, 1 / 3))
