"""Automatic checks: a program with a check beside every operation that may go wrong.

In two forms. The complete one names the operation, and is run once something is wrong. The quick one only has to find
out whether anything may be: it tests for NaNs where no later operation would hand them on.
"""

from __future__ import annotations

import math
import sys
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.interval_rules import exact_result
from fxgrad.engine.analyses.interval_values import Interval, any_value, fits, of_constant
from fxgrad.engine.analyses.intervals import (
    Intervals,
    Pairs,
    at_the_start,
    floored_divisor,
    intervals_of,
    operands_of,
    outputs_of,
    refined,
    region_inputs,
    region_pairs,
)
from fxgrad.engine.analyses.refinements import Fact, Less
from fxgrad.engine.core.analysis import Analysis, Collection
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.cache_keys import StructuralKey
from fxgrad.engine.core.interpreter import interpret
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.core.program import Atom, Equation, Program, Source, Variable
from fxgrad.engine.core.program_properties import definitions, memoize
from fxgrad.engine.core.regions import Region, replace_programs
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.executors.speculative import exposes_nans
from fxgrad.engine.executors.xla import is_jax
from fxgrad.engine.higher_order.call import jit_call_p, named_call_p
from fxgrad.engine.higher_order.checks import check_error, check_p, first_false, require_fields
from fxgrad.engine.ops import (
    arithmetic,
    cumulative,
    dynamic,
    exponential,
    indexing,
    joining,
    pointwise,
    select,
    shaping,
    structural,
    trigonometric,
)
from fxgrad.engine.ops.arithmetic import sub
from fxgrad.engine.ops.comparison import and_, eq, ge, le, lt, ne, or_
from fxgrad.engine.ops.parts import abs  # noqa: A004
from fxgrad.engine.ops.pointwise import acts_on_each
from fxgrad.engine.ops.reductions import reduce_max, reduce_or
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.tracer import Tracer

KINDS = {"nan": "NaN made", "div": "division by 0", "sqrt": "root or logarithm of a negative number",
         "index": "index out of range", "overflow": "integer overflow"}
"""The kinds of automatic checks, and how messages begin."""


@dataclass(frozen=True)
class Finding(StructuralKey):
    """The report of an automatic check: its kind, the operation, the user's line, and for indices the sizes of axes.

    `form` is the sentence for the operands of an operation that users do not know by its name.
    """

    kind: str
    operation: str
    line: str
    sizes: tuple[int, ...] = ()
    form: str = "{operation}({operands})"

    def require_operands(self, count: int) -> None:
        """Raise `ProgramError` unless the fields are a kind, texts and sizes."""
        texts = self.kind, self.operation, self.line, self.form
        require_fields(self, all(type(text) is str for text in texts) and self.kind in KINDS
                       and type(self.sizes) is tuple and all(type(size) is int for size in self.sizes)
                       and (count > 0 or self.kind != "index"))

    def fail(self, condition: Any, values: Sequence[Any]) -> None:
        """Raise the error, with the operands at the first place where the condition is false."""
        place = first_false(condition)
        shape = np.shape(condition)
        if self.kind == "index":
            axis = place[-1] if place else 0
            text = f"{np.asarray(values[0])[place]} in an axis of size {self.sizes[axis]}"
            place = place[:-1]
        elif all(np.shape(value) in ((), shape) for value in values):
            text = ", ".join(str(np.asarray(value)[place] if np.ndim(value) else value) for value in values)
            text = self.form.format(operation=self.operation, operands=text)
        else:
            types = ", ".join(f"{np.asarray(value).dtype.name}{list(np.shape(value))}" for value in values)
            text = f"{self.operation} of {types}"
        at = f" at {list(place)}" if place else ""
        raise check_error(f"{KINDS[self.kind]}: {text}{at}", self.line)


declare_parameter_class(Finding)

# --- what may go wrong ----------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """A kind of check of a primitive: `condition(equation, inputs, outputs)`, None where it does not apply.

    A check that stands `before` the operation does not take its outputs.
    """

    kind: str
    condition: Callable[[Equation, list[Any], Sequence[Any]], Any]
    before: bool = True
    holds: Callable[[Equation, Sequence[Interval]], bool] = lambda equation, intervals: False
    """Whether it cannot fail for operands in these intervals."""
    form: str = Finding.form
    passed: Callable[[Equation, Sequence[Interval]], dict[Fact, Interval]] = lambda equation, intervals: {}
    """The intervals of operands and results that have passed it."""


check_rules: Collection[Rule] = Collection("check rules", "The automatic checks of an operation, but for NaNs.")


def _is_real(atom: Any) -> bool:
    return bool(dtypes.kind_of(aval_of(atom).dtype) in "f")


def _nonzero_divisor(_: Equation, inputs: list[Any], __: Sequence[Any]) -> Any:
    return ne(inputs[1], np.zeros((), aval_of(inputs[1]).dtype)[()])


def _is_nonzero(place: int) -> Callable[[Equation, Sequence[Interval]], dict[Fact, Interval]]:
    return lambda equation, given: {equation.inputs[place]: given[place]._replace(zero=False)}


check_rules.add(Rule("div", _nonzero_divisor, holds=lambda _, given: 0 not in given[1], passed=_is_nonzero(1)),
                arithmetic.div_p, arithmetic.rem_p)
check_rules.add(Rule("div", lambda _, inputs, __: ne(inputs[0], np.zeros((), aval_of(inputs[0]).dtype)[()]),
                     holds=lambda _, given: 0 not in given[0], form="the divisor is {operands}",
                     passed=_is_nonzero(0)),
                arithmetic.nonzero_divisor_p)


def _above(least: float, strict: bool = False) -> Callable[..., Any]:
    def condition(_: Equation, inputs: list[Any], __: Sequence[Any]) -> Any:
        x = inputs[0]
        if not _is_real(x):
            return None
        bound = aval_of(x).dtype.type(least)
        return or_(ne(x, x), ge(x, bound))  # a NaN is passed on, not made
    return condition


def _surely_above(least: float) -> dict[str, Any]:
    """Return when numbers are not below `least`, and what is known of those that are not.

    A comparison with 0 says nothing of the numbers that XLA takes for 0, and neither does the operation.
    """
    def holds(equation: Equation, given: Sequence[Interval]) -> bool:
        aval = equation.inputs[0].aval
        return dtypes.is_floating(aval.dtype) and given[0].low >= least - float(dtypes.finfo(aval.dtype).tiny)

    def passed(equation: Equation, given: Sequence[Interval]) -> dict[Fact, Interval]:
        return {equation.inputs[0]: given[0]._replace(low=max(given[0].low, least), high=max(given[0].high, least))}
    return {"holds": holds, "passed": passed}


check_rules.add(Rule("sqrt", _above(0.0), **_surely_above(0.0)),
                exponential.sqrt_p, exponential.rsqrt_p, exponential.log_p)
check_rules.add(Rule("sqrt", _above(-1.0), **_surely_above(-1.0)), exponential.log1p_p)


def _in_range(indices: Any, sizes: Sequence[int], extents: Sequence[int], wraps: bool) -> Any:
    """Return whether starts of windows of `extents` lie in axes of `sizes`; with `wraps` negative ones count back."""
    aval = aval_of(indices)
    info, columns = np.iinfo(aval.dtype), []
    for place, (size, extent) in enumerate(zip(sizes, extents, strict=True)):
        column = indices if len(sizes) == 1 else shaping.slice_in_dim(indices, place, place + 1, aval.ndim - 1)
        # Scalars, not arrays: those are part of the program, and not inputs.
        first, last = (aval.dtype.type(min(max(bound, info.min), info.max))
                       for bound in (-size if wraps else 0, size - extent))
        columns.append(and_(ge(column, first), le(column, last)))
    return columns[0] if len(columns) == 1 else joining.concatenate(columns, aval.ndim - 1)


def _gathered(equation: Equation, inputs: list[Any], _: Sequence[Any]) -> Any:
    params, shape = equation.params, equation.inputs[0].aval.shape
    axes = params["start_index_map"]
    if not axes:
        return None
    return _in_range(inputs[1], [shape[axis] for axis in axes], [params["slice_sizes"][axis] for axis in axes],
                     params["mode"] == "checked")


def _extents(equation: Equation) -> dict[int, int]:
    """Return the sizes of the windows of a scatter along axes of the operand that have any."""
    params, shape, updates = equation.params, equation.inputs[0].aval.shape, equation.inputs[2].aval.shape
    whole = [axis for axis in range(len(shape))
             if axis not in params["inserted_window_dims"] and axis not in params["operand_batching_dims"]]
    return dict(zip(whole, (updates[axis] for axis in params["update_window_dims"]), strict=True))


def _scattered(equation: Equation, inputs: list[Any], _: Sequence[Any]) -> Any:
    params, shape = equation.params, equation.inputs[0].aval.shape
    axes = params["scatter_dims_to_operand_dims"]
    if not axes:
        return None
    extents = _extents(equation)
    return _in_range(inputs[1], [shape[axis] for axis in axes], [extents.get(axis, 1) for axis in axes],
                     params["mode"] == "checked")


def _indexed_axes(params: dict[str, Any]) -> tuple[int, ...]:
    """Return the axes that the indices of a gather or scatter are for."""
    axes: tuple[int, ...] = params["start_index_map" if "start_index_map" in params else "scatter_dims_to_operand_dims"]
    return axes


def _range_of(equation: Equation) -> tuple[float, float]:
    """Return the range in which all indices of a gather or scatter are within their axes."""
    params, shape = equation.params, equation.inputs[0].aval.shape
    axes = _indexed_axes(params)
    extents = dict(enumerate(params["slice_sizes"])) if "slice_sizes" in params else _extents(equation)
    least = [-shape[axis] if params["mode"] == "checked" else 0 for axis in axes]
    return max(least, default=-math.inf), min((shape[axis] - extents.get(axis, 1) for axis in axes), default=math.inf)


def _surely_gathered(equation: Equation, given: Sequence[Interval]) -> bool:
    least, most = _range_of(equation)
    return given[1].low >= least and given[1].high <= most


def _has_gathered(equation: Equation, given: Sequence[Interval]) -> dict[Fact, Interval]:
    params, indices = equation.params, given[1]
    if len(_indexed_axes(params)) != 1:
        return {}  # one interval for the indices of several axes
    least, most = _range_of(equation)
    low = max(indices.low, least)
    return {equation.inputs[1]: indices._replace(low=low, high=max(min(indices.high, most), low))}


def _surely_sliced(number: int) -> Callable[[Equation, Sequence[Interval]], bool]:
    """Return the test of starts that follow `number` operands: each window lies in its axis."""
    def holds(equation: Equation, given: Sequence[Interval]) -> bool:
        extents = equation.params["slice_sizes"] if number == 1 else equation.inputs[1].aval.shape
        return all(start.low >= 0 and start.high <= size - extent for start, size, extent in zip(
            given[number:], equation.inputs[0].aval.shape, extents, strict=True))
    return holds


SCATTERS = (indexing.scatter_p, indexing.scatter_add_p, indexing.scatter_sub_p, indexing.scatter_mul_p)
check_rules.add(Rule("index", _gathered, holds=_surely_gathered, passed=_has_gathered), indexing.gather_p)
check_rules.add(Rule("index", _scattered, holds=_surely_gathered, passed=_has_gathered), *SCATTERS)


def _sliced(equation: Equation, starts: list[Any], extents: Sequence[int]) -> Any:
    if not starts:
        return None
    row = joining.stack([*starts], 0)
    return _in_range(row, equation.inputs[0].aval.shape, extents, False)


check_rules.add(Rule("index", lambda equation, inputs, _: _sliced(
    equation, inputs[1:], equation.params["slice_sizes"]), holds=_surely_sliced(1)), dynamic.dynamic_slice_p)
check_rules.add(Rule("index", lambda equation, inputs, _: _sliced(
    equation, inputs[2:], equation.inputs[1].aval.shape), holds=_surely_sliced(2)), dynamic.dynamic_update_slice_p)


def _fits(equation: Equation, inputs: list[Any], outputs: Sequence[Any]) -> Any:
    """Return whether an integer result is that of the same operation in float64, which wraps nowhere."""
    aval = equation.outputs[0].aval
    if dtypes.kind_of(aval.dtype) not in "iu" or any(
            dtypes.kind_of(aval_of(value).dtype) not in "iu" for value in inputs):
        return None
    wide, = bind(equation.primitive, *(convert(value, dtypes.float64) for value in inputs), **equation.params)
    half = np.float64(2.0 ** (8 * aval.dtype.itemsize - 1))
    return lt(abs(sub(wide, convert(outputs[0], dtypes.float64))), half)


def _surely_fits(equation: Equation, given: Sequence[Interval]) -> bool:
    exact, aval = exact_result(equation, given), equation.outputs[0].aval
    if exact is None or dtypes.kind_of(aval.dtype) not in "iu" or math.isnan(exact.low + exact.high):
        return False
    return fits(exact, aval)


def _has_fitted(equation: Equation, given: Sequence[Interval]) -> dict[Fact, Interval]:
    exact, aval = exact_result(equation, given), equation.outputs[0].aval
    every = any_value(aval)
    if exact is None or dtypes.kind_of(aval.dtype) not in "iu" or math.isnan(exact.low + exact.high):
        return {}
    low = min(max(exact.low, every.low), every.high)
    return {equation.outputs[0]: Interval(low, max(min(exact.high, every.high), low), False)}


check_rules.add(Rule("overflow", _fits, before=False, holds=_surely_fits, passed=_has_fitted),
                pointwise.add_p, arithmetic.sub_p, arithmetic.mul_p,
                arithmetic.neg_p, structural.reduce_sum_p, cumulative.cumsum_p)


def _converted(equation: Equation, inputs: list[Any], _: Sequence[Any]) -> Any:
    before, after = aval_of(inputs[0]).dtype, equation.outputs[0].aval.dtype
    if dtypes.kind_of(after) not in "iu" or dtypes.kind_of(before) not in "iuf":
        return None
    info = np.iinfo(after)
    wide = convert(inputs[0], dtypes.float64)
    if dtypes.kind_of(before) in "iu" and np.can_cast(before, after, "safe"):
        return None
    return and_(ge(wide, np.float64(info.min)), lt(wide, np.float64(info.max) + 1.0 if info.bits < 53 else
                                                  np.float64(2.0) ** (info.bits - (info.min < 0))))


def _surely_converted(equation: Equation, given: Sequence[Interval]) -> bool:
    aval = equation.outputs[0].aval
    return dtypes.kind_of(aval.dtype) in "iu" and given[0].is_finite and not given[0].nan and fits(given[0], aval)


check_rules.add(Rule("overflow", _converted, holds=_surely_converted), structural.convert_element_type_p)

# --- NaNs -----------------------------------------------------------------------------------------------------------

makes_no_nan: Analysis[bool] = Analysis(
    "makes no NaN", "Whether an operation makes no NaN of its own: it moves, chooses or negates elements.",
    missing="conservative", default=False)
makes_no_nan.enter(True, arithmetic.neg_p, arithmetic.max_p, arithmetic.min_p, arithmetic.stop_gradient_p,
               arithmetic.name_p, structural.reshape_p, structural.transpose_p, structural.broadcast_to_p,
               structural.convert_element_type_p, select.select_n_p, shaping.slice_p, shaping.rev_p,
               joining.concatenate_p, joining.stack_p, joining.split_p, joining.unstack_p, dynamic.dynamic_slice_p,
               dynamic.dynamic_update_slice_p, indexing.gather_p, indexing.scatter_p, exponential.exp_p,
               trigonometric.tanh_p, trigonometric.atan_p, exponential.logistic_p)
KEEPING = (exponential.exp_p, exponential.log_p, exponential.log1p_p, exponential.expm1_p, exponential.sqrt_p,
           exponential.square_p, exponential.logistic_p, trigonometric.sin_p, trigonometric.cos_p,
           trigonometric.tanh_p, arithmetic.max_p, arithmetic.min_p, joining.concatenate_p, joining.stack_p)
"""Operations that hand every NaN of an operand on to a result."""


def _is_kept(equation: Equation) -> bool:
    """Return whether a NaN in any operand makes one in every output."""
    return (exposes_nans.of(equation.primitive) is not None or equation.primitive in KEEPING) and not any(
        0 in var.aval.shape or not dtypes.is_inexact(var.aval.dtype) for var in equation.outputs)


def _made(equation: Equation, program: Program, known: Intervals, given: Sequence[Interval]) -> list[Atom]:
    """Return the results in which the operation may make a NaN of numbers; those `known` are of operands in `given`."""
    found: list[Atom] = [var for var in equation.outputs if known[var].nan]
    if makes_no_nan.of(equation.primitive) or not found:
        return []
    before = operands_of(equation.inputs, known)
    if equation.primitive is exponential.sqrt_p and -float(dtypes.finfo(equation.inputs[0].aval.dtype).tiny) <= (
            before[0].low):
        return []  # a comparison with 0 lets through what XLA takes for 0, and so does its root
    if before == given and not any(each.nan for each in given):
        return found
    given = [each.without_nan() for each in before]
    numbers: dict[Fact, Interval] = {
        atom: known[atom].without_nan() for atom in equation.inputs if isinstance(atom, Variable)}
    both = cast(Intervals, ChainMap(numbers, cast(Any, known)))
    return [var for var, interval in zip(equation.outputs, outputs_of(equation, given, program, both), strict=True)
            if interval.nan]


def _without_nans(equation: Equation, given: Sequence[Interval], known: Intervals) -> dict[Fact, Interval]:
    """Return the intervals of operands and results of an operation that has made no NaN of numbers.

    A sine has one of an infinity, and so has a product with 0.
    """
    found: dict[Fact, Interval] = {}
    finite: list[int] = []
    if equation.primitive in (trigonometric.sin_p, trigonometric.cos_p):
        finite = [0]
    elif equation.primitive is arithmetic.mul_p:
        finite = [1 - place for place, each in enumerate(given) if each.low == each.high == 0 and not each.nan]
    for place in finite:
        atom = equation.inputs[place]
        most = float(dtypes.finfo(atom.aval.dtype).max)
        low = min(max(given[place].low, -most), most)
        found[atom] = given[place]._replace(low=low, high=max(min(given[place].high, most), low))
    found.update((var, known[var]._replace(nan=any(each.nan for each in given))) for var in equation.outputs)
    return found


def _first_nans(program: Program, bounds: Sequence[Interval], less: Pairs) -> set[Atom]:
    """Return the results in which a NaN may be made of numbers, as long as no operation before has made one."""
    known = at_the_start(program, bounds, less)
    made: set[Atom] = set()
    for equation in program.equations:
        given = operands_of(equation.inputs, known)
        known.update(zip(equation.outputs, outputs_of(equation, given, program, known), strict=True))
        found = _made(equation, program, known, given)
        made.update(found)
        if found and not equation.regions:
            known.update(_with_sources(_without_nans(equation, given, known), program, known))
    return made


def _tested_for_nans(program: Program, carries: Sequence[tuple[int, int]], bounds: Sequence[Interval],
                     less: Pairs) -> tuple[set[Atom], set[Atom]]:
    """Return the values in which NaNs may be made, and those to test so that none of them is lost, beside outputs.

    `carries` pairs outputs with the inputs that they become in the next turn: such an output counts as seen only if a
    NaN in it would stay until the loop ends.
    """
    kept = {*range(len(program.outputs))}
    made = _first_nans(program, bounds, less)
    while True:
        seen = {program.outputs[place] for place in kept}
        tested: set[Atom] = set()
        for equation in reversed(program.equations):
            for var in equation.outputs:
                if var in made and var not in seen:
                    tested.add(var)
                    seen.add(var)
            if _is_kept(equation) and seen.issuperset(equation.outputs):
                seen.update(equation.inputs)
        lost = {output for output, given in carries if output in kept and program.inputs[given] not in seen}
        if not lost:
            return made, tested
        kept -= lost


# --- programs with checks -------------------------------------------------------------------------------------------


def add_checks(program: Program, kinds: frozenset[str], quick: bool, constants: Sequence[Any] = ()) -> Program:
    """Return `program` with automatic checks of these `kinds`, in its nested programs too.

    The `quick` form is for `gather_checks`; it tests the outputs for NaNs as well. Otherwise calls of jitted functions
    are ordinary ones. `constants` are the values of the first inputs, which the function closes over.
    """
    bounds = (*map(_coarse_interval, constants, program.in_avals),
              *(any_value(aval) for aval in program.in_avals[len(constants):]))
    return memoize(program, ("automatic checks", kinds, quick, bounds), lambda: _Checks(kinds, quick).of(
        program, None, (), bounds, is_main=True))


def _coarse_interval(value: Any, aval: Aval) -> Interval:
    """Return an interval around a number or a small array, one of few, since there is a program for each.

    Small integers are kept, other numbers lie between powers of two, or of sixteen; of arrays of floats it is known
    whether they are finite, of one sign, nowhere 0, and never NaN.
    """
    kind = dtypes.kind_of(aval.dtype)
    if isinstance(value, Tracer) or is_jax(value) or not 0 < aval.size <= _FEW or kind not in "biuf":
        return any_value(aval)
    low, high, nan, _ = of_constant(value, aval)
    if kind == "f" and aval.size > 1:
        most, least = float(dtypes.finfo(aval.dtype).max), float(dtypes.finfo(aval.dtype).tiny)
        if max(-low, high) > most:
            return any_value(aval)
        has_zero = bool((np.abs(np.asarray(value, np.float64)) < least).any())
        return Interval(0.0 if low >= 0 else -most, 0.0 if high <= 0 else most, nan, zero=has_zero)
    base = 16.0 if kind == "f" else 2.0
    ends = _power_around(low, base, -1), _power_around(high, base, 1)
    return Interval(*ends, nan) if kind in "bf" or fits(Interval(*ends, nan), aval) else any_value(aval)


_FEW = 64
"""The size of arrays that are looked at."""


def _power_around(number: float, base: float, sign: int) -> float:
    """Return the number of a coarse grid that is nearest to `number` from below (`sign` -1) or above (1)."""
    if math.isinf(number) or (math.fabs(number) <= 16 and number == int(number)):
        return number
    exponent = math.floor(math.log(math.fabs(number), base))
    near = sorted(math.copysign(min(base ** (exponent + step), sys.float_info.max), number) for step in (-1, 0, 1, 2))
    return next(each for each in near if each >= number) if sign > 0 else next(
        each for each in reversed(near) if each <= number)


class _Checks:
    """The walk that adds checks of some kinds."""

    def __init__(self, kinds: frozenset[str], quick: bool) -> None:
        self._kinds, self._quick = kinds, quick

    def of(self, program: Program, around: Source | None, carries: Sequence[tuple[int, int]],
           bounds: Sequence[Interval], less: Pairs = frozenset(), *, is_main: bool = False) -> Program:
        """Return the program with checks; library functions are at the line of their call, `around`.

        `bounds` are the intervals of its inputs, some of them `less` than others: checks that cannot fail are left out.
        """
        looks = "nan" in self._kinds and self._quick
        made, tested = _tested_for_nans(program, carries, bounds, less) if looks else (set(), set())
        of_numbers = intervals_of(program, [each.without_nan() for each in bounds]) if is_main and looks else {}

        def build(*values: Any) -> tuple[list[Any], None]:
            # With what earlier checks say of values.
            seen = at_the_start(program, bounds, less)

            def step(equation: Equation, inputs: list[Any]) -> Sequence[Any]:
                return self._step(equation, inputs, around, made, tested, program, seen)

            outputs = interpret(program, values, step)
            if is_main and looks:
                for atom, output in zip(program.outputs, outputs, strict=True):
                    # Where inputs that are numbers lead to numbers alone, a NaN is one that came in.
                    if atom.aval.size and atom in of_numbers and atom not in program.inputs and of_numbers[atom].nan:
                        bind(check_p, _has_no_nan(output), report=Finding("nan", "", ""), lanes=())
            return outputs, None

        key = ("checks", self._kinds, self._quick, around, tuple(carries), tuple(bounds), less, is_main)
        return derive(program, key, build, program.in_avals).program

    def _step(self, equation: Equation, inputs: list[Any], around: Source | None, made: set[Atom],
              tested: set[Atom], program: Program, known: dict[Fact, Interval]) -> Sequence[Any]:
        source = around or equation.source
        line = "" if source is None else f"{source.place} (in {source.code.co_name})" + (
            f", {equation.source.part} pass" if equation.source is not None and equation.source.part == "backward"
            else "")
        given = operands_of(equation.inputs, known)
        rules = [rule for rule in check_rules.of(equation.primitive)
                 if rule.kind in self._kinds and not rule.holds(equation, given)
                 and not (rule.kind == "overflow" and floored_divisor(equation, program) is not None)]
        for rule in rules:
            if rule.kind == "sqrt" and equation.outputs[0] in made:
                # The flag need not have it: the NaN that it makes is found.
                known.update(_with_sources(rule.passed(equation, given), program, known))
            elif rule.before and self._check(rule, equation, inputs, (), line):
                known.update(_with_sources(rule.passed(equation, given), program, known))
        known.update(zip(equation.outputs, outputs_of(equation, given, program, known), strict=True))
        outputs = self._bind(equation, inputs, source, given, program, known)
        if equation.primitive is check_p:  # the user's
            known.update(_with_sources(refined(program, equation.inputs[0], True, known), program, known))
        for rule in rules:
            if not rule.before and self._check(rule, equation, inputs, outputs, line):
                known.update(_with_sources(rule.passed(equation, given), program, known))
        if self._quick:
            for var, output in zip(equation.outputs, outputs, strict=True):
                if var in tested and var.aval.size:
                    bind(check_p, _has_no_nan(output), report=Finding("nan", "", ""), lanes=())
        elif "nan" in self._kinds and not equation.regions and _made(equation, program, known, given):
            self._check_nans(equation, inputs, outputs, line)
            known.update(_without_nans(equation, given, known))
        return outputs

    def _bind(self, equation: Equation, inputs: list[Any], source: Source | None,
              given: Sequence[Interval], program: Program, known: Intervals) -> Sequence[Any]:
        regions, primitive = equation.regions, equation.primitive
        if not regions:
            return bind(primitive, *inputs, **equation.params)
        programs = [self.of(region.program, source if region.role == "inline" else None, _carries(region),
                            region_inputs(equation, region, given, program, known),
                            region_pairs(equation, region, program, known)) for region in regions]
        if primitive is jit_call_p and not self._quick:
            primitive = named_call_p
        return bind(primitive, *inputs, **replace_programs(equation.params, regions, programs))

    @staticmethod
    def _check(rule: Rule, equation: Equation, inputs: list[Any], outputs: Sequence[Any], line: str) -> bool:
        """Add a check; return whether it applies, so that values that pass it are what it demands."""
        condition = rule.condition(equation, inputs, outputs)
        if condition is None or aval_of(condition).size == 0:
            return False
        shown, sizes = inputs, ()
        if rule.kind == "index":
            first = equation.inputs[0].aval.shape
            params = equation.params
            axes = params.get("start_index_map", params.get("scatter_dims_to_operand_dims", range(len(first))))
            sizes = tuple(first[axis] for axis in axes)
            shown = [inputs[1]] if len(axes) != len(first) or "mode" in params else [joining.stack(
                inputs[1 if equation.primitive is dynamic.dynamic_slice_p else 2:], 0)]
        bind(check_p, condition, *shown, lanes=(), report=Finding(
            rule.kind, equation.primitive.name, line, sizes, rule.form))
        return True

    @staticmethod
    def _check_nans(equation: Equation, inputs: list[Any], outputs: Sequence[Any], line: str) -> None:
        given = [value for value in inputs if dtypes.is_inexact(aval_of(value).dtype)]
        for output in outputs:
            if not dtypes.is_inexact(aval_of(output).dtype) or aval_of(output).size == 0:
                continue
            condition = eq(output, output)
            for value in given:
                passed = ne(value, value)
                if not acts_on_each.of(equation.primitive):
                    passed = reduce_or(passed, tuple(range(aval_of(passed).ndim)))
                condition = or_(condition, passed)
            bind(check_p, condition, *inputs, report=Finding("nan", equation.primitive.name, line), lanes=())


_MOVES = frozenset({structural.reshape_p, structural.transpose_p, structural.broadcast_to_p, shaping.broadcast_in_dim_p,
                    shaping.rev_p, shaping.tile_p})
"""Operations whose results have all elements of the operand, and no others."""


def _with_sources(intervals: dict[Fact, Interval], program: Program, known: Intervals) -> dict[Fact, Interval]:
    """Return narrower intervals of variables, and of those whose elements they have: an index is that of a reshape."""
    found: dict[Fact, Interval] = {}
    made = definitions(program)
    for atom, narrow in intervals.items():
        if isinstance(atom, Less):
            found[atom] = narrow
        while isinstance(atom, Variable):
            found[atom] = narrow
            equation = made.get(atom)
            if equation is None or equation.primitive not in _MOVES or not atom.aval.size:
                break
            atom = equation.inputs[0]  # noqa: PLW2901
            before = known.get(atom)
            if before is None or max(before.low, narrow.low) > min(before.high, narrow.high):
                break  # the last is code that does not run
            narrow = before._replace(  # noqa: PLW2901
                low=max(before.low, narrow.low), high=min(before.high, narrow.high), nan=before.nan and narrow.nan,
                zero=before.zero and narrow.zero)
    return found


def _has_no_nan(value: Any) -> Any:
    """Return whether an array has no NaN, which its maximum has: XLA takes a quarter of the time of a comparison."""
    most = reduce_max(value, tuple(range(aval_of(value).ndim))) if _is_real(value) and aval_of(value).ndim else value
    return eq(most, most)


def _carries(region: Region) -> list[tuple[int, int]]:
    """Return which outputs of a region become which inputs in its next turn."""
    given = [place for place, link in enumerate(region.inputs) if link.how == "carry"]
    made = [place for place, link in enumerate(region.outputs) if link.how == "carry"]
    return [*zip(made, given, strict=False)]
