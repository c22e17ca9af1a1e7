"""Every function of the libraries on every path: called at once, as a traced program, and as one parsed from its text.

The arguments are arrays of all kinds, scalars of Python's and NumPy's, and arrays beside Python's numbers. What is
called at once gives the dtype and the value that the program gives; what was parsed gives the same bits. For scalars
jax, in its mode of 64 bits, says the dtype.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.scipy.stats
import numpy as np
import pytest

import fxgrad
from fxgrad.testing.numbers import mismatch
from tests.comparison.arguments import A, Case
from tests.comparison.cases import CASES
from tests.comparison.checks import TOLERANCE
from tests.comparison.libraries import LIBRARIES, functions
from tests.comparison.runs import groups
from tests.support import distributions

REFUSALS = (fxgrad.errors.ConcretizationError, fxgrad.errors.DTypeError, fxgrad.errors.UnsupportedError,
            fxgrad.errors.ArrayConversionError)
"""What tracing may refuse that a call at once need not: values that are not known, dtypes of NumPy's kernels."""

DTYPES = ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64")
PARSED = ("bool", "uint8", "int64", "float16", "complex64")

MADE_BY_NUMPY = {"cho_factor", "cholesky", "solve"}
"""Functions whose cases make a positive definite matrix with operators, NumPy's at once: of floats only."""

UNSORTED = {"searchsorted", "digitize"}
"""Functions of sorted values: what is drawn is not sorted any more as uint8."""

OF_NUMBERS = {
    "append", "array", "asarray", "block", "broadcast_arrays", "choose", "column_stack", "concatenate", "copy",
    "dstack", "full", "hstack", "meshgrid", "stack", "vstack", "vectorize", "frompyfunc"}
"""Functions that make arrays of Python's numbers, in the default width; traced numbers stay weak, of 64 bits."""


def leaves(result: Any) -> list[Any]:
    """The arrays of a result."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(result)]


def difference(wanted: Sequence[Any], found: Sequence[Any]) -> str:
    """What differs between two lists of arrays, if anything: number, dtype, shape, or value beyond rounding."""
    if len(wanted) != len(found):
        return f"{len(found)} results, and {len(wanted)} at once"
    for one, other in zip(wanted, found, strict=True):
        if one.dtype != other.dtype:
            return f"{other.dtype}, and {one.dtype} at once"
        if problem := mismatch(other, one, TOLERANCE.get(one.dtype.name, 0.0)):
            return problem
    return ""


def problem_of(function: Callable[..., Any], args: Sequence[Any], parsed: bool, makes: bool = False) -> str | None:
    """How the paths differ for one call; None where there is nothing to compare. `makes` is for `OF_NUMBERS`."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            at_once = leaves(function(*[each.copy() if isinstance(each, np.ndarray) else each for each in args]))
        except Exception:  # noqa: BLE001  (what is refused at once is no question)
            return None
        try:
            program = fxgrad.make_program(function)(*args)
        except REFUSALS:
            return None
        except Exception as error:  # noqa: BLE001
            return f"tracing: {type(error).__name__}: {error}"
        if makes and any(aval.weak for aval in program.out_avals):
            return ""
        traced = leaves(program(*args))
        if parsed:
            read = leaves(fxgrad.parse(str(program))(*args))
            if [(each.dtype, each.shape, each.tobytes()) for each in traced] != [
                    (each.dtype, each.shape, each.tobytes()) for each in read]:
                return f"parsed: {read}, and {traced} before"
    return difference(at_once, traced)


def cases(library: str, names: Sequence[str]) -> Iterator[tuple[str, Case, str]]:
    """The cases that can be traced, each with its function's name and a label."""
    for name in names:
        for number, case in enumerate(CASES[library].get(name, [])):
            if not case.static:
                yield name, case, f"{library}.{name}, case {number}"


def assert_same(asked: Iterator[tuple[str, Callable[..., Any], Sequence[Any], bool, bool]], least: int) -> None:
    """No call has paths that differ, and at least so many have something to compare."""
    answers = [(label, problem_of(*rest)) for label, *rest in asked]
    assert not [f"{label}: {problem}" for label, problem in answers if problem]
    assert len([problem for _, problem in answers if problem is not None]) >= least


GROUPS = pytest.mark.parametrize(("library", "names"), [
    pytest.param(library, names, id=f"{library}-{names[0]}") for library, names in groups()])


def of_arrays(library: str, names: Sequence[str], dtypes: Sequence[str]) -> Iterator[Any]:
    """The calls of arrays."""
    for name, case, label in cases(library, names):
        for dtype in dtypes:
            if (name in UNSORTED and dtype == "uint8") or (name in MADE_BY_NUMPY and np.dtype(dtype).kind in "iu"):
                continue
            try:
                args = case.arrays(dtype)
            except (ValueError, TypeError, RuntimeWarning, np.linalg.LinAlgError):  # none in this dtype
                continue
            yield (f"{label}, {dtype}", case.function(LIBRARIES[library][0], name, dtype), args, dtype in PARSED,
                   name in OF_NUMBERS)


@pytest.mark.slow
@GROUPS
def test_arrays(library: str, names: list[str]) -> None:
    assert_same(of_arrays(library, names, DTYPES), len(names))


def test_arrays_of_some_functions() -> None:
    """A sample of the above, in quick tests too."""
    for library in ("numpy", "scipy.special", "nn"):
        assert_same(of_arrays(library, functions(library)[::12], ("int32", "complex64")), 3)


SCALARS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "float": ("float64", float), "int": ("int64", int), "bool": ("bool", bool), "complex": ("complex128", complex),
    "np.float32": ("float32", np.float32), "np.float64": ("float64", np.float64), "np.int64": ("int64", np.int64),
    "np.uint8": ("uint8", np.uint8), "0-d float64": ("float64", np.asarray), "0-d int32": ("int32", np.asarray)}
NUMBERS = ("float", "int")

WEAK_AT_ONCE = {"geomspace", "linspace", "logspace", "pow", "power", "expn"}
"""Functions called with an `np.float64` scalar and nothing wider: it is weak at once, and strong as an argument."""


def drawn(spec: A, kind: str, random: np.random.Generator) -> Any:
    """A scalar in the place of an array."""
    one = copy.copy(spec)
    one.shape, one.make = (), None
    dtype, made = SCALARS[kind]
    value = one(dtype, random)
    return value if spec.dtype else made(value)


def scalars(library: str, names: Sequence[str], kinds: Sequence[str]) -> Iterator[Any]:
    """The calls of scalars alone."""
    for name, case, label in cases(library, names):
        for kind in kinds:
            random = np.random.default_rng(1)
            args = [drawn(spec, kind, random) for spec in case.specs()]
            if args and not (name in WEAK_AT_ONCE and kind == "np.float64"):
                yield (f"{label}, {kind}", case.function(LIBRARIES[library][0], name, SCALARS[kind][0]), args, False,
                       name in OF_NUMBERS)


@pytest.mark.slow
@GROUPS
def test_scalars(library: str, names: list[str]) -> None:
    assert_same(scalars(library, names, [*SCALARS]), 0)


def beside_numbers(library: str, names: Sequence[str], dtypes: Sequence[str]) -> Iterator[Any]:
    """The calls of one array, and Python's numbers in all other places."""
    for name, case, label in cases(library, names):
        for dtype in dtypes:
            for kind in NUMBERS if len(case.specs()) > 1 else ():
                for place in (0, 1):
                    random = np.random.default_rng(3)
                    args = [spec(dtype, random) if at == place or spec.dtype else drawn(spec, kind, random)
                            for at, spec in enumerate(case.specs())]
                    if any(type(arg) in (float, int) for arg in args) and name not in UNSORTED:
                        yield (f"{label}, {dtype} at {place}, {kind}",
                               case.function(LIBRARIES[library][0], name, dtype), args, False, name in OF_NUMBERS)


@pytest.mark.slow
@GROUPS
def test_arrays_beside_numbers(library: str, names: list[str]) -> None:
    assert_same(beside_numbers(library, names, ("float64", "int32", "bool")), 0)


def test_arrays_beside_numbers_in_some_functions() -> None:
    """A sample of the above, in quick tests too: those that were wrong."""
    assert_same(beside_numbers("numpy", ["append", "choose", "concatenate", "cross", "frompyfunc", "kron", "outer",
                                         "power", "put", "vectorize"], ("float64", "bool")), 30)
    assert_same(beside_numbers("scipy.linalg", ["block_diag", "hankel", "toeplitz"], ("int32",)), 6)


def of_distributions(dtypes: Sequence[str]) -> Iterator[Any]:
    """The calls of distributions, with and without `loc` and `scale`, which are integers by default."""
    for name, function in distributions.FUNCTIONS:
        ours, _ = distributions.pair(name, function)
        shapes, every = distributions.SHAPES[name], distributions.parameters(name, function)
        for dtype in dtypes:
            x = np.array([0, 1, 1]).astype(dtype)
            label = f"stats.{name}.{function}, {dtype}"
            yield f"{label}, defaults", ours, [x, *shapes], False, False
            for kind in (float, int, np.float32, np.int32):
                yield f"{label}, {kind.__name__}", ours, [x, *(kind(value or 1) for value in every)], False, False


@pytest.mark.slow
def test_distributions() -> None:
    assert_same(of_distributions(("bool", "int32", "int64", "float16", "float32")), 1500)


def test_normal_distributions_of_integers() -> None:
    assert_same((asked for asked in of_distributions(("int32",)) if asked[0].startswith("stats.norm.")), 40)


# --- dtypes as in jax -----------------------------------------------------------------------------------------------

NARROWER = {
    "numpy.rint": "integers are made the default dtype, which is float32",
    **{f"numpy.{name}": "the dtype of arrays made of numbers is the default" for name in (
        "geomspace", "linspace", "logspace")},
    "numpy.angle": "jax's angle of real numbers is of 64 bits", "nn.one_hot": "the dtype is the default",
    "numpy.pow": "an int32 to the power of a Python float is the default dtype, which is float32",
    "numpy.power": "an int32 to the power of a Python float is the default dtype, which is float32",
    "numpy.linalg.vector_norm": "a count of what is not 0 is an integer in jax, where NumPy has a float",
    "scipy.special.owens_t": "jax's is of 64 bits always", "scipy.special.expn": "the order is int32 here",
    **{f"nn.{name}": "an int32 with Python floats is the default dtype" for name in (
        "celu", "elu", "hard_sigmoid", "hard_silu", "hard_swish", "leaky_relu", "relu6", "selu", "sparse_plus",
        "sparse_sigmoid")}}
"""Functions of which dtypes differ from those of jax's mode of 64 bits, and why."""


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_dtypes_of_scalars_are_those_of_jax(library: str) -> None:
    """jax's Python numbers are of 64 bits in that mode, too; what is made without a dtype is int32 here."""
    ours, theirs = LIBRARIES[library]
    problems, unknown, met = [], [], set()
    for name, case, label in cases(library, functions(library)):
        for kind in ("float", "int", "complex", "np.float32", "np.uint8", "0-d int32"):
            random = np.random.default_rng(1)
            args = [drawn(spec, kind, random) for spec in case.specs()]
            if not args:
                continue
            try:
                with jax.enable_x64(True):
                    wanted = jax.tree.leaves(jax.eval_shape(case.function(theirs, name, SCALARS[kind][0]), *args))
                found = fxgrad.make_program(case.function(ours, name, SCALARS[kind][0]))(*args).out_avals
            except Exception:  # noqa: BLE001  (either refuses scalars)
                continue
            met.add(name)
            kinds = [(str(aval.dtype), str(leaf.dtype)) for aval, leaf in zip(found, wanted, strict=True)]
            if [pair for pair in kinds if len({*pair}) == 2 and pair not in (("int32", "int64"), ("uint32", "uint64"))]:
                problems.append(f"{library}.{name}")
                if problems[-1] not in NARROWER:
                    unknown.append(f"{label}, {kind}: (ours, jax's) {kinds}")
    assert not unknown
    assert met or library in ("numpy.linalg", "lax.linalg", "scipy.linalg", "numpy.fft")
    assert {each for each in NARROWER if each.rsplit(".", 1)[0] == library} <= {*problems}, "no exception is needed"
