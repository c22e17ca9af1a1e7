"""Every primitive of the library, every sample of it, every law of `fxgrad.testing`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fxgrad import errors
from fxgrad.engine.core.avals import array_aval
from fxgrad.engine.core.primitive import MissingRule, Primitive
from fxgrad.engine.rooms import registry
from fxgrad.testing import LAWS, LawError, check_laws
from fxgrad.testing.laws import check_xla_together
from tests.samples import COMPILED, COMPLEX, INTEGER, REAL, Draw, Sample, all_samples

SAMPLES = all_samples()
PAIRS = {"random_wrap"}  # the last axis is of size 2
ONE_DTYPE = {"random_bits", "random_clone", "random_split", "random_unwrap", "random_wrap", "threefry2x32"}
QUICK_SAMPLES = 5
"""So many samples of a primitive are for the quick tier: the first ones differ most in shape."""


def names_by_tier() -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in COMPILED)) for name in sorted(registry)]


def by_name(names: list[Any]) -> Any:
    """Parametrizes a test with the names of primitives; all tests of a name are run one after the other.

    They share the kernels that XLA compiles for NumPy, in the same dtypes.
    """
    return pytest.mark.parametrize("name", names, scope="module")


def is_quick(name: str, index: int, sample: Sample) -> bool:
    return index < QUICK_SAMPLES and not sample.slow and name not in COMPILED


def test_samples() -> None:
    """Every primitive has samples of the shapes and dtypes that go wrong most easily."""
    problems = []
    for name in sorted(registry):
        samples = SAMPLES.get(registry[name])
        if not samples:
            problems.append(f"the primitive {name} has no samples; add some to the module of its room in tests/samples")
        elif lacking := lacks(name, [sample.args() for sample in samples]):
            problems.append(f"{name} has no sample {lacking}")
    assert problems == []


def lacks(name: str, args: list[list[Any]]) -> str:
    shapes = {np.shape(arg) for values in args for arg in values}
    found = {arg.dtype for values in args for arg in values}
    if not any(args):
        return ""  # operations without arguments
    if not any(0 in shape for shape in shapes):
        return "of size 0"
    if not any(np.prod(shape) == 1 for shape in shapes) and name not in PAIRS:
        return "of size 1"
    if not any(len(shape) > 1 and len(set(shape) - {0, 1}) > 1 for shape in shapes):
        return "that is not square"
    return "of another dtype" if len(found) == 1 and name not in ONE_DTYPE else ""


@pytest.mark.parametrize("rest", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["first", "further"])
@by_name(sorted(registry))
def test_laws(name: str, rest: bool) -> None:
    broken = []
    for index, sample in enumerate(SAMPLES.get(registry[name], [])):
        if is_quick(name, index, sample) is not rest:
            laws = [law for law in LAWS if law not in sample.without and law != "xla"]
            try:
                check_laws(registry[name], sample.args(), sample.params, laws=laws, fixed=sample.fixed,
                           tolerance=sample.tolerance)
            except LawError as error:
                broken.append(f"sample {index}, {sample}: {error}")
    assert not broken, "\n".join(broken)


TOGETHER = 8
"""So many primitives are compiled as one program, since most of the time goes there, and to begin with each."""
QUICK_NAMES = [name for name in sorted(registry) if name not in COMPILED]


ON_SEVERAL_DEVICES = "device_put"
"""A program with it has no effects in order, which others have."""


def together(names: list[str]) -> Any:
    """Parametrizes a test with the names of several primitives, which are compiled as one program."""
    of_one_device = [name for name in names if name != ON_SEVERAL_DEVICES]
    groups = [of_one_device[begin:begin + TOGETHER] for begin in range(0, len(of_one_device), TOGETHER)]
    return pytest.mark.parametrize("names", [*groups, [ON_SEVERAL_DEVICES]], ids=" ".join)


@together(QUICK_NAMES)
def test_xla_law(names: list[str]) -> None:
    check_xla_together([(registry[name], sample.args(), sample.params, sample.tolerance)
                        for name in names for sample in first_samples(name)])


@pytest.mark.slow
@together(QUICK_NAMES)
def test_xla_law_of_further_samples(names: list[str]) -> None:
    check_xla_together([(registry[name], sample.args(), sample.params, sample.tolerance) for name in names
                        for sample in SAMPLES.get(registry[name], []) if "xla" not in sample.without
                        and sample not in first_samples(name)])


@pytest.mark.slow
@by_name(sorted(COMPILED))
def test_xla_law_of_what_xla_computes_for_numpy(name: str) -> None:
    check_xla_together([(registry[name], sample.args(), sample.params, sample.tolerance)
                        for sample in SAMPLES.get(registry[name], []) if "xla" not in sample.without])


def first_samples(name: str) -> list[Sample]:
    return [sample for sample in SAMPLES.get(registry[name], [])
            if "xla" not in sample.without and not sample.slow][:QUICK_SAMPLES]


def test_slow_samples_have_their_types() -> None:
    """The quick tier's share of the slow samples: shapes, dtypes, costs."""
    for name in sorted(registry):
        for sample in SAMPLES.get(registry[name], []):
            if sample.slow:
                laws = ("cost",) if name in COMPILED else ("numpy", "cost")
                check_laws(registry[name], sample.args(), sample.params, laws=laws)


def accepted(primitive: Primitive, sample: Sample) -> Iterator[list[Any]]:
    """The arguments of `sample` in every dtype that the abstract rule accepts, where they are of one dtype."""
    random = np.random.default_rng(0)
    if len({np.dtype(spec.dtype) for spec in sample.specs}) != 1:
        return
    for dtype in (*REAL, *COMPLEX, *INTEGER, "bool"):
        args = [Draw(spec.shape, dtype)(random) for spec in sample.specs]
        try:
            primitive.abstract(*map(array_aval, args), **sample.params)
        except errors.FxgradError:
            continue
        yield args


@by_name(names_by_tier())
def test_accepted_dtypes_run(name: str) -> None:
    for sample in SAMPLES.get(registry[name], [])[3:4]:
        for args in accepted(registry[name], sample):
            check_laws(registry[name], args, sample.params, laws=("numpy",))


USERS_CODE = {"custom_vjp_tangent", "io_callback", "pure_callback"}  # what it does with other dtypes is its own affair


@pytest.mark.slow
def test_one_operand_of_another_dtype() -> None:
    """Is refused, as a float for a position is, or computed."""
    for name in sorted(registry.keys() - USERS_CODE):
        for sample in SAMPLES.get(registry[name], [])[3:4]:
            args = sample.args()
            for place, dtype in itertools.product(range(len(args)), ("float64", "int32", "uint8", "bool", "complex64")):
                changed = [*args[:place], args[place].real.astype(dtype)[()], *args[place + 1:]]
                try:
                    registry[name].abstract(*map(array_aval, changed), **sample.params)
                except errors.FxgradError:
                    continue
                check_laws(registry[name], changed, sample.params, laws=("numpy",))


# Not those that XLA computes for NumPy too, which would be compared with themselves, nor eigenvectors, whose signs are
# free.
BY_NUMPY = sorted(name for name in registry if name != "eigh" and not any(
    part in getattr(getattr(registry[name].numpy, "function", registry[name].numpy), "__qualname__", "")
    for part in ("on_cpu", "by_xla")))


@pytest.mark.slow
@together(BY_NUMPY)
def test_accepted_dtypes_compile(names: list[str]) -> None:
    check_xla_together([(registry[name], args, sample.params, 10) for name in names
                        for sample in SAMPLES.get(registry[name], [])[3:4]
                        for args in accepted(registry[name], sample)])


def test_absent_rules_are_named() -> None:
    for primitive in registry.values():
        for rule in ("jvp", "transpose", "batch", "cost"):
            found = getattr(primitive, rule)
            assert not isinstance(found, MissingRule) or str(found), f"{primitive}.{rule}"
