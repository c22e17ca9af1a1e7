"""Masked lanes: batch entries whose result is unused, since they took another branch or have stopped.

A masked lane must have no effect. It computes on the values of a live lane, so that it neither runs longer nor makes a
NaN or an infinity of its own, and no derivative flows back through the replaced values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.interpreter import interpret
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.program_properties import has_effects, program_property, used_axes
from fxgrad.engine.core.regions import close_marks
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.higher_order.groups import Marks
from fxgrad.engine.ops.arithmetic import stop_gradient
from fxgrad.engine.ops.comparison import and_
from fxgrad.engine.ops.dynamic import dynamic_slice
from fxgrad.engine.ops.factorizations import cholesky_p
from fxgrad.engine.ops.indexing import (
    gather_p,
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
    scatter_sub_p,
)
from fxgrad.engine.ops.matrices import on_diagonal
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.reductions import argmax, reduce_or
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import move_axis, reshape
from fxgrad.engine.ops.triangular import lu_solve_p, tridiagonal_solve_p
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.batch import (
    Batched,
    batched_axis,
    batched_program,
    has_masked,
    live_lanes,
    masking_lanes,
    put_axis,
)
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import UnsupportedError


def expand_mask(mask: Any, rank: int) -> Any:
    """Return `mask`, of one axis, with trailing axes of size 1 up to `rank`."""
    return reshape(mask, (*aval_of(mask).shape, *[1] * (rank - 1)))


def fill_dead_lanes(mask: Any, size: int, values: Sequence[Any], axes: Sequence[int | None],
                    ) -> tuple[list[Any], list[int | None]]:
    """Return values (batched ones batch first) in which lanes outside of `mask` repeat a live lane."""
    if size == 0:
        return list(values), list(axes)
    some = reduce_or(mask, (0,))
    first = argmax(mask, 0)
    results = []
    for value, axis in zip(values, axes, strict=True):
        if axis is None:
            # If no lane is live, a derivative of 0 * inf must not reach the values shared by all lanes.
            results.append(where(some, value, stop_gradient(value)) if has_tangent(aval_of(value)) else value)
        else:
            in_front = move_axis(value, axis, 0)
            shape = aval_of(in_front).shape
            starts = [first, *[scalar_like(0, first)] * (len(shape) - 1)]
            live = stop_gradient(dynamic_slice(in_front, starts, (1, *shape[1:])))
            results.append(where(expand_mask(mask, len(shape)), in_front, live))
    return results, [None if axis is None else 0 for axis in axes]


SafeOperands = Callable[[Any, list[Any], dict[str, Any]], list[Any]]
"""(whether a lane is live, operands, parameters) -> the operands, others if none is live."""

safe_operands: Analysis[SafeOperands | None] = Analysis(
    "safe operands", "With which operands an operation that raises errors on NumPy raises none, where no lane is live.",
    missing="conservative", default=None)


@program_property
def may_raise(program: Program) -> bool:
    """Return whether an operation of `program`, at any depth, raises errors on NumPy that it does not on XLA."""
    return any(safe_operands.of(equation.primitive) is not None or any(map(may_raise, equation.programs))
               for equation in program.equations)


def raising_where_live(program: Program) -> Program:
    """Return `program` with an input more, before the others: whether a lane is live.

    Dead lanes repeat a live one and raise no error of their own. Where no lane is live, all compute on values that the
    program is not made for: an index that a condition of the user's keeps in range is out of range there. Operations
    in programs inside stay as they are.
    """
    def build(live: Any, *values: Any) -> tuple[list[Any], None]:
        def step(equation: Equation, inputs: list[Any]) -> Sequence[Any]:
            safe = safe_operands.of(equation.primitive)
            operands = inputs if safe is None else safe(live, inputs, equation.params)
            return bind(equation.primitive, *operands, **equation.params)
        return interpret(program, values, step), None

    return derive(program, "raising where live", build, [Aval((), dtypes.bool_), *program.in_avals]).program


@safe_operands.register(gather_p, scatter_p, scatter_add_p, scatter_sub_p, scatter_mul_p, scatter_min_p, scatter_max_p)
def _safe_indices(live: Any, operands: list[Any], params: dict[str, Any]) -> list[Any]:
    x, indices, *updates = operands
    return [x, where(live, indices, scalar_like(0, indices)), *updates] if params["mode"] == "checked" else operands


@safe_operands.register(cholesky_p)
def _safe_matrix(live: Any, operands: list[Any], _: dict[str, Any]) -> list[Any]:
    a, = operands
    return [where(live, a, where(on_diagonal(a), scalar_like(1, a), scalar_like(0, a)))]


@safe_operands.register(lu_solve_p)
def _safe_factors(live: Any, operands: list[Any], _: dict[str, Any]) -> list[Any]:
    a, factors, *rest = operands
    return [a, where(live, factors, scalar_like(1, factors)), *rest]


@safe_operands.register(tridiagonal_solve_p)
def _safe_diagonals(live: Any, operands: list[Any], _: dict[str, Any]) -> list[Any]:
    low, middle, high, b = operands
    return [*(where(live, each, scalar_like(value, each)) for each, value in ((low, 0), (middle, 1), (high, 0))), b]


def masking_dead_lanes(mask: Any, program: Program) -> AbstractContextManager[None]:
    """Set the mask of live lanes in this block for a batch of `program`, within the lanes that are live already.

    `fill_dead_lanes` makes a dead lane repeat a live one: a check that fails there must not name the dead one.
    """
    if not has_masked(program):
        return masking_lanes(None)
    outer = live_lanes.get()
    return masking_lanes(mask if outer is None else and_(mask, outer))


def unbatched_where_equal(program: Program, size: int, axes: Sequence[int | None], outputs: Sequence[Any],
                          ) -> tuple[list[Any], list[int | None]]:
    """Return outputs of an operation with a custom rule, and their batch axes; equal lanes are computed once.

    Outputs that `program` makes equal for all entries, by collectives over their axis, are taken from the first entry.
    So their cotangent goes there, and the rule treats it as it would treat the separate cotangents of all entries.
    """
    if size == 0 or batched_axis.get() not in used_axes(program):
        return [*outputs], [0] * len(outputs)
    differ = batched_program(program, size, tuple(axes), (None,) * len(outputs)).extra
    return [output if differs else reshape(slice_in_dim(output, 0, 1, 0), aval_of(output).shape[1:])
            for output, differs in zip(outputs, differ, strict=True)], [0 if differs else None for differs in differ]


def passthrough_inputs(programs: Sequence[Program], axes: Sequence[int | None]) -> list[int | None]:
    """Return for each output the unbatched input that every program returns there; None if there is none.

    Such an output is the same for all lanes, whichever program each lane runs, and how often.
    """
    found: list[int | None] = []
    for outputs in zip(*(program.outputs for program in programs), strict=True):
        places = {program.inputs.index(output) if output in program.inputs else None
                  for program, output in zip(programs, outputs, strict=True)}
        place = places.pop() if len(places) == 1 else None
        found.append(None if place is None or axes[place] is not None else place)
    return found


def keep_unchanged_carries(program: Program, consts: Sequence[Any], carry: Sequence[Any], axes: Sequence[int | None],
                            results: Sequence[Any]) -> tuple[list[Any], list[int | None]]:
    """Return results by lane, but a single copy of carries that every step leaves unchanged."""
    own = len(consts)
    kept = [place == own + at for at, place in enumerate(passthrough_inputs([program], [*[None] * own, *axes]))]
    return ([before if keeps else after for keeps, before, after in zip(kept, carry, results, strict=True)],
            [None if keeps else 0 for keeps in kept])


def select_live(mask: Any, new: Any, old: Any) -> Any:
    """Return `new` in the lanes that `mask` marks and `old` in the others; both batch first."""
    return where(expand_mask(mask, len(aval_of(new).shape)), new, old)


def refuse_effects(what: str, programs: Sequence[Program]) -> None:
    """Raise `UnsupportedError` for programs with side effects, which masked lanes would have too.

    Operations that only observe (`debug_callback`) may see dead lanes too.
    """
    for program in programs:
        primitive = _acting_primitive(program)
        if primitive is not None:
            raise UnsupportedError(at_user_line(
                f"{what}: the entries of vmap differ in what they run, and {primitive} cannot be called for some of "
                f"them alone. {remedies.of(primitive)}"))


Lanes = tuple[list[Any], list[int | None]]
"""The outputs of a batch rule, and their batch axes."""
ByFlag = Callable[[Primitive, int, Sequence[Any], Sequence[int | None], dict[str, Any]], Lanes | None]
_by_flag: list[ByFlag] = []


def register_flags(batch: ByFlag) -> None:
    """Set the rule for batches of operations whose programs have checks."""
    _by_flag.append(batch)


def batch_by_flag(primitive: Primitive, size: int, values: Sequence[Any], axes: Sequence[int | None],
                  **params: Any) -> Lanes | None:
    """Return the results of a batch whose lanes differ in what they run, if checks are its only effects.

    `params` are those of the operation; None if it has no checks.
    """
    return next(filter(None, (batch(primitive, size, values, axes, params) for batch in _by_flag)), None)


remedies: Analysis[str] = Analysis(
    "remedies", "What to write where an operation cannot be called for some entries of a batch alone.",
    missing="conservative",
    default="Call it outside, and choose between results with fxgrad.numpy.where")

acts: Analysis[bool] = Analysis(
    "acts", "Whether an operation has a side effect that must not happen in dead lanes.",
    missing="derive", derive=lambda primitive: primitive.effectful)


def _acting_primitive(program: Program) -> Primitive | None:
    """Return the first operation, at any depth, with a side effect that must not happen in dead lanes."""
    if not has_effects(program):
        return None
    for equation in program.equations:
        if acts.of(equation.primitive):
            return equation.primitive
        inside = next(filter(None, map(_acting_primitive, equation.programs)), None)
        if inside is not None:
            return inside
    return None


# --- which values of a loop differ between lanes --------------------------------------------------------------


def lane_axes(marks: Sequence[bool]) -> tuple[int | None, ...]:
    """Return axis 0 for values that are marked, None for the others."""
    return tuple(0 if marked else None for marked in marks)


def batched_marks(step: Program, size: int, fixed: Sequence[int | None], carry: Sequence[bool]) -> Marks:
    """Return which carried values differ between lanes at some step of (fixed, carry) -> carry."""
    open_axes = (None,) * len(step.outputs)
    return close_marks(
        lambda marks: batched_program(step, size, (*fixed, *lane_axes(marks)), open_axes).extra, carry)


def batch_first_if_marked(size: int, values: Sequence[Any], axes: Sequence[int | None],
                          marks: Sequence[bool]) -> list[Any]:
    """Return marked values batch first, broadcast if they are unbatched; others unchanged."""
    return [put_axis(Batched(value, axis), size, 0) if marked else value
            for value, axis, marked in zip(values, axes, marks, strict=True)]
