"""How results are compared: fxgrad's on NumPy arrays with jax's, compiled together."""

from __future__ import annotations

import functools
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import fxgrad
from fxgrad.engine.core.avals import to_numpy
from fxgrad.testing.numbers import mismatch
from tests.comparison.arguments import Case
from tests.comparison.libraries import LIBRARIES

ASPECTS = ("values", "jvp", "vjp", "vmap", "jit")
TOLERANCE = {"float32": 5e-6, "complex64": 5e-6, "float64": 1e-12, "complex128": 1e-12, "bfloat16": 2e-2,
             "float16": 2e-3}
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# `tests/conftest.py` has XLA emit by its older emitters, which know less: complex numbers are not clamped.
ABLE = {"xla_cpu_use_fusion_emitters": True} if "fusion_emitters=false" in os.environ.get("XLA_FLAGS", "") else {}


class Batch(NamedTuple):
    """A batch of two entries: of which function of jax's, and the axes of its arguments, 0 or None."""

    function: Callable[..., Any]
    axes: Sequence[int | None]


class Item(NamedTuple):
    """One thing to compute with both libraries: what it is called, jax's function, fxgrad's, and their arguments.

    Where it is a `batch`, jax's results are those of its entries.
    """

    label: str
    aspect: str
    theirs: Callable[..., Any]
    ours: Callable[..., Any]
    args: Sequence[Any]
    tolerance: float
    x64: bool
    batch: Batch | None = None


class Problem(NamedTuple):
    """What differs: of which function, in which aspect, and how."""

    label: str
    aspect: str
    message: str

    def __str__(self) -> str:
        return f"{self.label} [{self.aspect}]: {self.message}"


def leaves(result: Any) -> list[Any]:
    """The arrays of a result."""
    return jax.tree.leaves(result)


def varied(array: Any) -> Any:
    """Two entries of a batch."""
    if array.dtype.kind in "fc":
        return np.stack([array, array * array.dtype.type(0.875)])
    return np.stack([array, array])


Bridge = Callable[[Callable[..., Any], bool], Callable[..., Any]]
"""What makes of jax's function (in its mode of 64 bits, or not) the one of ours that is compared with it."""


def both_functions(library: str, name: str, case: Case, dtype: str, bridge: Bridge | None) -> tuple[Any, Any]:
    """jax's function and ours: that of the same name, or what `bridge` makes of jax's."""
    ours, theirs = LIBRARIES[library]
    function = case.function(theirs, name, dtype)
    return function, bridge(function, dtype == "float64") if bridge else case.function(ours, name, dtype)


def value_items(library: str, name: str, case: Case, dtypes: Sequence[str], bridge: Bridge | None = None,
                ) -> list[Item]:
    """The call itself, in each dtype."""
    return [Item(f"{library}.{name} in {dtype}", "values", *both_functions(library, name, case, dtype, bridge),
                 case.arrays(dtype), case.tolerance, dtype == "float64")
            for dtype in dtypes if dtype in case.dtypes]


def derived_items(library: str, name: str, case: Case, bridge: Bridge | None = None) -> list[Item]:
    """Derivatives in float64, and batches."""
    dtype = "float64" if "float64" in case.dtypes else case.dtypes[0]
    f, g = both_functions(library, name, case, dtype, bridge)
    args = case.arrays(dtype)
    label, x64 = f"{library}.{name} in {dtype}", dtype == "float64"
    places = [place for place, arg in enumerate(args) if arg.dtype.kind in "fc" and place not in case.fixed]
    items = []
    if places and "derivatives" not in case.without:
        items += derivative_items(label, f, g, args, places, case.tolerance, x64)
    if args and "vmap" not in case.without:
        of_all, of_first = [0] * len(args), [0, *[None] * (len(args) - 1)]
        for axes in [of_all, of_first][:len(args)]:
            batch = [arg if axis is None else varied(arg) for axis, arg in zip(axes, args, strict=True)]
            items.append(Item(label, "vmap", jax.vmap(f, axes), fxgrad.vmap(g, axes), batch, case.tolerance, x64,
                              Batch(f, axes)))
    return items


def derivative_items(label: str, theirs: Callable[..., Any], ours: Callable[..., Any], args: Sequence[Any],
                     places: Sequence[int], tolerance: float = 1.0, x64: bool = False) -> list[Item]:
    """Derivatives of two functions in the arguments at `places`, along random directions."""
    moved = [args[place] for place in places]
    random = np.random.default_rng(1)
    tangents = [random.standard_normal(arg.shape).astype(arg.dtype) for arg in moved]
    f, g = _of(theirs, args, places), _of(ours, args, places)
    return [Item(label, "jvp", _jvp(jax, f), _jvp(fxgrad, g), [*moved, *tangents], 10 * tolerance, x64),
            Item(label, "vjp", _vjp(jax, f), _vjp(fxgrad, g), moved, 10 * tolerance, x64)]


def _of(function: Callable[..., Any], args: Sequence[Any], places: Sequence[int]) -> Callable[..., Any]:
    """The inexact results, as a function of the arguments at `places`."""
    def inner(*moved: Any) -> Any:
        given = list(args)
        for place, value in zip(places, moved, strict=True):
            given[place] = value
        return [leaf for leaf in leaves(function(*given)) if np.dtype(leaf.dtype).kind in "fcV"
                and np.dtype(leaf.dtype).name != "float0"]
    return inner


def _jvp(library: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def both(*values: Any) -> Any:
        half = len(values) // 2
        return library.jvp(function, tuple(values[:half]), tuple(values[half:]))[1]
    return both


def _vjp(library: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def pulled(*values: Any) -> Any:
        outputs, pull = library.vjp(function, *values)
        random = np.random.default_rng(2)
        return pull([random.standard_normal(output.shape).astype(output.dtype) for output in outputs])
    return pulled


TOGETHER = 12
"""So many items are compiled as one program.

For each kernel that XLA emits it goes through all loops and functions of the program, so that one program of 50 items
with loops takes a third more time than five of 10.
"""


def expected(items: Sequence[Item], x64: bool) -> list[Any]:
    """The results of jax for each item, a dozen compiled as one program; the error in the place of what it refuses."""
    with warnings.catch_warnings(), jax.enable_x64(x64):
        warnings.simplefilter("ignore")
        return [result for begin in range(0, len(items), TOGETHER)
                for result in _computed(items[begin:begin + TOGETHER])]


def refusal(item: Item) -> Exception | None:
    """What jax says to the call, without computing it; None if it takes it."""
    try:
        with jax.enable_x64(item.x64):
            jax.eval_shape(item.theirs, *item.args)
    except Exception as error:  # noqa: BLE001  (jax refuses in many ways)
        return error
    return None


class Call(NamedTuple):
    """A call that is compiled, and the places of the items that have its results."""

    function: Callable[..., Any]
    args: Sequence[Any]
    places: list[int]


def _calls(items: Sequence[Item]) -> list[Call]:
    """What to compile: batches of a function are turns of one loop, so that the function is compiled once for all."""
    calls = [Call(item.theirs, item.args, [place]) for place, item in enumerate(items) if item.batch is None]
    loops: dict[Callable[..., Any], list[int]] = {}
    for place, item in enumerate(items):
        if item.batch is not None:
            loops.setdefault(item.batch.function, []).append(place)
    for function, places in loops.items():
        entries = [entry for place in places for entry in _entries(items[place])]
        columns = [np.stack(each) for each in zip(*entries, strict=True)]
        calls.append(Call(functools.partial(_in_turns, function), columns, places))
    return calls


def _in_turns(function: Callable[..., Any], *columns: Any) -> Any:
    return jax.lax.map(lambda entry: leaves(function(*entry)), columns)


def _entries(item: Item) -> list[list[Any]]:
    """The arguments of each entry of a batch."""
    assert item.batch is not None
    given = [*zip(item.batch.axes, item.args, strict=True)]
    return [[arg if axis is None else arg[number] for axis, arg in given] for number in range(2)]


def _computed(items: Sequence[Item]) -> list[Any]:
    """Some of what jax traces it cannot compile: then one half is tried, and the other."""
    refusals: dict[int, Exception] = {}
    calls = _calls(items)
    arrays = {id(arg): arg for call in calls for arg in call.args}  # once each: equal work on them is done once

    def everything(arrays: dict[int, Any]) -> list[Any]:
        results: list[Any] = [[] for _ in calls]
        for place, call in enumerate(calls):
            try:
                results[place] = leaves(call.function(*[arrays[id(arg)] for arg in call.args]))
            except Exception as error:  # noqa: BLE001  (jax refuses in many ways)
                refusals[place] = error.with_traceback(None)  # which would keep the trace alive
        return results

    try:
        options: Any = {**FAST, **(ABLE if len(items) == 1 else {})}
        computed = jax.jit(everything, compiler_options=options)(arrays)
    except Exception as error:  # noqa: BLE001  (jax refuses in many ways)
        if len(items) == 1:
            return [error]
        half = len(items) // 2
        return _computed(items[:half]) + _computed(items[half:])
    results: dict[int, Any] = {}
    for number, (call, result) in enumerate(zip(calls, computed, strict=True)):
        found = [*map(to_numpy, result)]
        for turn, place in enumerate(call.places):
            results[place] = refusals.get(number, found if items[place].batch is None else [
                each[2 * turn:2 * turn + 2] for each in found])
    return [results[place] for place in range(len(items))]


def problem_with(item: Item, wanted: Sequence[Any], found: Sequence[Any], x64: bool) -> Problem | None:
    """What differs between two lists of arrays."""
    if len(found) != len(wanted):
        return Problem(item.label, item.aspect, f"{len(found)} results where jax has {len(wanted)}")
    arrays = [each if hasattr(each, "dtype") else np.asarray(each) for each in found]
    for place, (got, want) in enumerate(zip(arrays, wanted, strict=True)):
        allowed = {want.dtype} | (narrowed(want.dtype) if x64 else set())
        # Weak numbers are of 64 bits here; arrays of them are known differences.
        if got.dtype not in allowed and (isinstance(got, np.ndarray) or not getattr(got, "weak_type", False)):
            return Problem(item.label, item.aspect, f"result {place} is {got.dtype}{list(got.shape)} where jax has "
                                                    f"{want.dtype}{list(want.shape)}")
        if want.dtype.kind == "V" and want.dtype.names is None:
            continue  # float0
        narrow = min((TOLERANCE.get(np.dtype(arg.dtype).name, 0.0) for arg in item.args), default=0.0)
        tolerance = item.tolerance * max(TOLERANCE.get(want.dtype.name, 0.0), narrow if want.dtype.kind in "fc" else 0)
        wrong = mismatch(got, want, tolerance)
        if wrong:
            return Problem(item.label, item.aspect, f"result {place}: {wrong}")
    return None


def narrowed(dtype: Any) -> set[Any]:
    """In its mode of 64 bits jax makes int64 where no argument decides, and here that is int32."""
    return {np.dtype({"int64": "int32", "uint64": "uint32"}.get(np.dtype(dtype).name, dtype))}


Answers = dict[tuple[str, str, int], Any]
"""jax's results, by label, aspect, and which of those of the same: computing them takes most of the time of a test."""


def compare(items: Sequence[Item], answers: Answers | None = None) -> list[Problem]:
    """All items that jax accepts, computed with fxgrad too; jax's mode of 64 bits makes its default float float64.

    What is in `answers` is not computed again, and what is computed is entered there.
    """
    answers = {} if answers is None else answers
    with fxgrad.default_dtype("float64"):
        problems = _compare([item for item in items if item.x64], True, answers)
    return problems + _compare([item for item in items if not item.x64], False, answers)


def _compare(items: Sequence[Item], x64: bool, answers: Answers) -> list[Problem]:
    problems = []
    met: Counter[tuple[str, str]] = Counter()
    keys = []
    for item in items:
        keys.append((item.label, item.aspect, met[item.label, item.aspect]))
        met[item.label, item.aspect] += 1
    new = [(key, item) for key, item in zip(keys, items, strict=True) if key not in answers]
    answers.update(zip([key for key, _ in new], expected([item for _, item in new], x64), strict=True))
    for item, wanted in zip(items, map(answers.__getitem__, keys), strict=True):
        if isinstance(wanted, Exception):
            continue
        try:
            found = _found(item)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is reported)
            first = str(error).splitlines()
            problems.append(Problem(item.label, item.aspect, f"{type(error).__name__}: {first[0] if first else ''}"))
            continue
        problem = problem_with(item, wanted, found, x64)
        problems += [] if problem is None else [problem]
    return problems


def _found(item: Item) -> list[Any]:
    """Our results for the item."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            results = leaves(item.ours(*item.args))
        except jax.errors.JaxRuntimeError as error:
            if not ABLE or "UNIMPLEMENTED" not in str(error):
                raise
            results = leaves(jax.jit(fxgrad.to_jax(item.ours), compiler_options=ABLE)(*item.args))
    return [to_numpy(leaf) if isinstance(leaf, jax.Array) else leaf for leaf in results]


def compiled_problems(items: Sequence[Item]) -> list[Problem]:
    """What `fxgrad.jit` computes, a dozen items in one program, against the same at once on NumPy arrays."""
    usable, results = [], []
    for item in items:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                results.append(leaves(item.ours(*item.args)))
            fxgrad.eval_shape(item.ours, *item.args)
            usable.append(item)
        except Exception:  # noqa: BLE001  (another test says so)
            del results[len(usable):]

    compiled: list[Any] = []
    for begin in range(0, len(usable), TOGETHER):
        some = usable[begin:begin + TOGETHER]
        compiled += fxgrad.jit(lambda groups, some=some: [
            leaves(item.ours(*group)) for item, group in zip(some, groups, strict=True)])([item.args for item in some])
    problems = []
    for item, wanted, found in zip(usable, results, compiled, strict=True):
        problem = problem_with(item._replace(aspect="jit"), [*map(np.asarray, wanted)], [*map(to_numpy, found)], False)
        problems += [] if problem is None else [problem]
    return problems


def static_problems(library: str, name: str, case: Case) -> list[Problem]:
    """Results that are no arrays, compared by `==`, or arrays of shapes that depend on values."""
    ours, theirs = LIBRARIES[library]
    dtype = case.dtypes[0]
    args = case.arrays(dtype)
    got, wanted = (case.function(module, name, dtype)(*args) for module in (ours, theirs))
    if any(isinstance(leaf, jax.Array) for leaf in leaves(wanted)):
        item = Item(f"{library}.{name} in {dtype}", "values", repr, repr, args, case.tolerance, False)
        problem = problem_with(item, [*map(np.asarray, leaves(wanted))], leaves(got), False)
        return [] if problem is None else [problem]
    return [] if got == wanted else [Problem(f"{library}.{name} in {dtype}", "values", f"got {got!r} where jax has "
                                                                                       f"{wanted!r}")]
