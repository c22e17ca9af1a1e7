"""Run a program in its own precision and in a wider one at once, and keep every operation on a tape.

Each value is a pair: the program's result, and its shadow. If an operation chooses (a branch, an index, an integer),
the shadow follows the program. The tape is walked backwards to find the effect of each operation's error on the
results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.errors import ArgumentError
from fxgrad.extend import (
    Analysis,
    DType,
    Equation,
    Interpreter,
    Literal,
    Primitive,
    Program,
    Region,
    at_user_line,
    primitives,
)
from fxgrad.extend.kernels import evaluate_with_numpy
from fxgrad.interop.opaque import jax_call_p, jax_effect_p
from fxgrad.tools.numerics.records import (
    LoopEntry,
    RecordedOperation,
    ShadowPair,
    StackedEntries,
    as_float64,
    at_most_float64,
)

has_shadow: Analysis[bool] = Analysis(
    "shadows", "Whether an operation runs again in a wider dtype for `precision_report`.",
    missing="conservative", default=True)
"""False if a result is its own shadow: bits, random numbers, foreign code, which runs once."""

has_shadow.enter(False, primitives.bitcast_convert_type, primitives.nextafter, primitives.reduce_precision,
                 primitives.random_binomial, primitives.random_gamma,
                 primitives.random_poisson, primitives.check, primitives.debug_callback, primitives.io_callback,
                 primitives.pure_callback, jax_call_p, jax_effect_p,
                 primitives.custom_vjp_tangent)

factored: Analysis[tuple[int, ...]] = Analysis(
    "operands with factors", "Which results of `lu` of the first operand stand behind it, and round as it does.",
    missing="conservative", default=())
"""Triangular systems are well conditioned; the map from a matrix to its factors is not, and derivatives leave it out.
"""

factored.enter((0, 2), primitives.lu_solve)
factored.enter((0, 1, 2), primitives.slogdet)

class Shadow(Interpreter):
    """Run a program and its shadow on `ShadowPair`s; `tape` has the operations, `unfollowed` those without a shadow."""

    def __init__(self, wide: DType, limit: int) -> None:
        self.wide, self._limit = wide, limit
        self.tape: list[RecordedOperation | LoopEntry | StackedEntries] = []
        self.unfollowed: dict[str, None] = {}
        self._called_by: list[Equation] = []

    def pair(self, value: Any) -> ShadowPair:
        """Return the pair of an argument, which is exact."""
        array = np.asarray(value)
        return ShadowPair(array, self._widened(array))

    def literal(self, literal: Literal) -> ShadowPair:
        return self.pair(literal.value)

    def constant(self, array: Any) -> ShadowPair:
        return self.pair(array)

    def _widened(self, value: Any) -> Any:
        array = np.asarray(value)
        return array.astype(self._dtype(array.dtype)) if dtypes.is_inexact(array.dtype) else array

    def _dtype(self, dtype: DType) -> Any:
        """Return the shadow's dtype for one of the program's."""
        if not dtypes.is_inexact(dtype):
            return dtype
        return np.result_type(self.wide, np.complex64) if dtypes.is_complex(dtype) else self.wide

    def equation(self, equation: Equation, inputs: list[ShadowPair]) -> list[ShadowPair]:
        if equation.regions:
            return self._run_regions(equation, inputs)
        if len(self.tape) >= self._limit:
            raise ArgumentError(at_user_line(
                f"precision_report: the program runs more than {self._limit:,} operations, of which each is kept. "
                "Report on a smaller case, or write precision_report(f, limit=...)"))
        primitive, params = equation.primitive, equation.params
        low = [*map(np.asarray, evaluate_with_numpy(primitive, [pair.low for pair in inputs], params))]
        if not any(dtypes.is_inexact(output.dtype) for output in low):
            return [ShadowPair(output, output) for output in low]
        wider = {name: self._dtype(value) if isinstance(value, np.dtype) else value for name, value in params.items()}
        rounded, moved = [pair.rounded() for pair in inputs], [*map(_perturb, inputs, range(len(inputs)))]
        factors = factored.of(primitive)
        if factors:
            rounded, moved = _solve_again(rounded, factors), _solve_again(moved, factors)
        exact = self._exact(primitive, [pair.wide for pair in inputs], wider, low)
        at_low = self._exact(primitive, [self._widened(pair.low) for pair in inputs], wider, low)
        beside = self._exact(primitive, moved, wider, low)
        if exact is None or at_low is None or beside is None:
            self.unfollowed[primitive.name] = None
            outputs = [self.pair(output) for output in low]
            if not has_shadow.of(primitive):
                return outputs
            # Amplification by the operation shows in the program's own precision, too.
            given = [one.astype(pair.low.dtype) if pair.is_real else pair.low
                     for one, pair in zip(moved, inputs, strict=True)]
            nearby = [self._compute_low(primitive, _solve_again(given, factors) if factors else given, params)]
            at_low = [pair.wide for pair in outputs]
        else:
            outputs = [ShadowPair(one, other if dtypes.is_inexact(one.dtype) else one)
                       for one, other in zip(low, exact, strict=True)]
            nearby = [self._compute_low(primitive, rounded, params), beside]
        narrow = {name: at_most_float64(value) if isinstance(value, np.dtype) else value
                  for name, value in wider.items()}
        called_by = self._called_by[0] if self._called_by else None
        self.tape.append(RecordedOperation(equation, called_by, narrow, inputs, outputs, nearby, at_low))
        return outputs

    def _compute_low(self, primitive: Primitive, values: list[Any], params: dict[str, Any]) -> list[Any]:
        """Return the results of an operation in the program's precision, converted to the shadow's."""
        return [*map(self._widened, evaluate_with_numpy(primitive, values, params))]

    def _exact(self, primitive: Primitive, values: list[Any], params: dict[str, Any], low: list[Any],
               ) -> list[Any] | None:
        """Return the results of an operation in the wider precision; None if its kernel has none."""
        if not has_shadow.of(primitive):
            return None
        try:
            with np.errstate(all="ignore"):
                outputs = [*map(np.asarray, primitive.numpy(*values, **params))]
        except Exception:  # noqa: BLE001  (kernels of LAPACK and XLA have no type wider than float64)
            return None
        fits = all(output.shape == one.shape and output.dtype == self._dtype(one.dtype)
                   for output, one in zip(outputs, low, strict=True) if dtypes.is_inexact(one.dtype))
        return outputs if fits else None

    # --- operations that hold programs ------------------------------------------------------------------------

    def _run_regions(self, equation: Equation, inputs: list[ShadowPair]) -> list[ShadowPair]:
        regions = {region.role: region for region in reversed(equation.regions)}
        if "branch" in regions:
            branches = [region for region in equation.regions if region.role == "branch"]
            region = branches[min(max(int(inputs[0].low), 0), len(branches) - 1)]
            return self._once(region, inputs)
        if "condition" in regions:
            return self._while(regions["condition"], regions["body"], inputs)
        if "back" in regions:
            return self._sweep(regions["step"], regions["back"], inputs)
        if "body" in regions:
            region = regions["body"]
            return self._loop(equation, region, int(inputs[0].low) if region.times is None else region.times, inputs)
        is_library = "inline" in regions
        self._called_by += [equation] * is_library
        runs = next(region for region in equation.regions if all(link.how == "same" for link in (
            *region.inputs, *region.outputs)))
        outputs = self._once(runs, inputs)
        del self._called_by[len(self._called_by) - is_library:]
        return outputs

    def _once(self, region: Region, inputs: list[ShadowPair]) -> list[ShadowPair]:
        return self.run(region.program, [inputs[link.place] for link in region.inputs])

    def _loop(self, equation: Equation, region: Region, times: int, inputs: list[ShadowPair]) -> list[ShadowPair]:
        carry = {link.place: inputs[link.place] for link in region.inputs if link.how == "carry"}
        entries: dict[int, dict[int, ShadowPair]] = {
            link.place: {} for link in region.outputs if link.how == "entry"}
        finals: dict[int, ShadowPair] = {}
        places = [link.place for link in region.outputs if link.how == "carry"]
        for step in reversed(range(times)) if region.reverse else range(times):
            given = [carry[link.place] if link.how == "carry" else self._entry(inputs[link.place], step)
                     if link.how == "entry" else inputs[link.place] for link in region.inputs]
            outputs = self.run(region.program, given)
            made = [output for link, output in zip(region.outputs, outputs, strict=True) if link.how == "carry"]
            carry = dict(zip(carry, made, strict=True))
            for link, output in zip(region.outputs, outputs, strict=True):
                if link.how == "entry":
                    entries[link.place][step] = output
        finals.update(zip(places, carry.values(), strict=True))
        return [finals[place] if place in finals else self._stack(entries[place], var.aval)
                for place, var in enumerate(equation.outputs)]

    def _entry(self, whole: ShadowPair, step: int) -> ShadowPair:
        entry = ShadowPair(np.asarray(whole.low[step]), np.asarray(whole.wide[step]))
        self.tape.append(LoopEntry(whole, step, entry))
        return entry

    def _stack(self, entries: dict[int, ShadowPair], aval: Any) -> ShadowPair:
        if not entries:
            return self.pair(np.zeros(aval.shape, aval.dtype))
        ordered = [entries[step] for step in sorted(entries)]
        whole = ShadowPair(np.stack([entry.low for entry in ordered]), np.stack([entry.wide for entry in ordered]))
        self.tape.append(StackedEntries(ordered, whole))
        return whole

    def _while(self, condition: Region, body: Region, inputs: list[ShadowPair]) -> list[ShadowPair]:
        values = [*inputs]
        places = [link.place for link in body.inputs if link.how == "carry"]
        while bool(self._once(condition, values)[0].low):
            for place, output in zip(places, self._once(body, values), strict=True):
                values[place] = output
        return [values[place] for place in places]

    def _sweep(self, step: Region, back: Region, inputs: list[ShadowPair]) -> list[ShadowPair]:
        values, states = [*inputs], []
        places = [link.place for link in step.inputs if link.how == "carry"]
        for number in range(int(inputs[0].low)):
            if number:
                for place, output in zip(places, self._once(step, values), strict=True):
                    values[place] = output
            states.append([values[place] for place in places])
        moved = [link.place for link in back.inputs if link.how == "carry"]
        for state in reversed(states):
            inside = iter(state)
            given = [next(inside) if link.how == "inside" else values[link.place] for link in back.inputs]
            for place, output in zip(moved, self.run(back.program, given), strict=True):
                values[place] = output
        return [values[place] for place in moved]


def run_shadowed(program: Program, inputs: Sequence[Any], wide: DType, limit: int) -> tuple[Shadow, list[ShadowPair]]:
    """Run a closed program on arrays beside its shadow, and walk back to its inputs."""
    shadow = Shadow(wide, limit)
    results = shadow.run(program, [*map(shadow.pair, inputs)])
    for result in results:
        if result.is_real:
            result.add_slope(_error_slope(result))
    # Where a result is lost, so are slopes on the path to its cause; elsewhere only those of unselected values.
    is_lost = any(not np.all(np.isfinite(value)) for result in results if result.is_real
                  for value in (result.low, result.wide))
    for entry in reversed(shadow.tape):
        entry.back(float(is_lost))
    return shadow, results


def _perturb(pair: ShadowPair, number: int) -> Any:
    """Return the shadow of an operand, moved by a unit of the program's precision up or down where it is rounded.

    A rounding may happen to be small; this is one that is not.
    """
    if not pair.is_real:
        return pair.wide
    with np.errstate(all="ignore"):
        is_exact = pair.rounded().astype(pair.wide.dtype) == pair.wide
        signs = 1 - 2 * ((np.arange(pair.wide.size) * 7 // 3 + number) % 2).reshape(pair.wide.shape)
        unit = dtypes.finfo(pair.low.dtype).eps / 2
        return np.where(is_exact, pair.wide, pair.wide * (1 + signs * pair.wide.dtype.type(float(unit))))


def _solve_again(values: list[Any], factors: tuple[int, ...]) -> list[Any]:
    try:
        found = primitives.lu.numpy(values[0])
    except TypeError:  # LAPACK has no longdouble
        return values
    return [values[0], *(found[place] for place in factors), *values[1 + len(factors):]]


def _error_slope(result: ShadowPair) -> Any:
    """Return the slope of the relative error of a result: along its error, or for all elements alike."""
    wide = as_float64(result.wide)
    with np.errstate(all="ignore"):
        error = as_float64(result.low) - wide
        scale = np.max(np.where(np.isfinite(wide), np.abs(wide), 0), initial=0.0) or 1.0
        lost = ~np.isfinite(error)
        if lost.any():
            return lost / (np.sum(lost) * scale)
        norm = np.sqrt(np.sum(np.abs(error) ** 2))
    return np.conj(error) / (norm * scale) if norm else np.full_like(wide, 1 / (scale * np.sqrt(max(wide.size, 1))))
