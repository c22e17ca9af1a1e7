"""Batching: every value may have one more axis, which each primitive's batch rule handles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.interpreter import Interpreter
from fxgrad.engine.core.program import PRIMAL, Equation, Program, Variable
from fxgrad.engine.core.program_properties import collective_axes, program_property
from fxgrad.engine.derivation.derive import Derived, derive, rule_inputs
from fxgrad.engine.derivation.guards import batched_axis, live_lanes, spmd_names
from fxgrad.engine.ops.structural import broadcast_to, move_axis, reshape
from fxgrad.engine.tracing.provenance import is_shown, note_provenance
from fxgrad.engine.tracing.tape import aval_of, bind, current

__all__ = ["Batch", "Batched", "batch_aval", "batched_axis", "batched_program", "batching_over", "live_lanes",
           "masking_lanes", "put_axis", "repeat", "takes_mask"]


class Batched(NamedTuple):
    """A value and the position of its batch axis, or None if it is the same for the whole batch."""

    value: Any
    axis: int | None


class Batch(Interpreter):
    """Applies the batch rule of every equation that has a batched input or is a collective over the batch axis.

    `name` is the name of that axis, if it has one. A batch that a batch rule begins inherits the name, so that
    collectives of nested programs reduce over the same axis.
    """

    def __init__(self, size: int) -> None:
        self.size, self.name = size, batched_axis.get()
        self._notes = False

    def run(self, program: Program, inputs: Sequence[Batched]) -> list[Batched]:
        """Walk `program`; if it is shown, note which variable is a batch of which."""
        self._program, self._notes = program, is_shown(current.get())
        if self._notes:
            self._note(inputs, program.inputs[len(program.constants):])
        return super().run(program, inputs)

    def _note(self, items: Sequence[Batched], variables: Sequence[Variable]) -> None:
        note_provenance([item.value for item in items], PRIMAL, self._program, variables)

    def equation(self, equation: Equation, inputs: list[Batched]) -> list[Batched]:
        primitive, values, axes = equation.primitive, [item.value for item in inputs], [item.axis for item in inputs]
        if all(axis is None for axis in axes) and (self.name is None or not _involves(self.name, equation)):
            outputs = [Batched(output, None) for output in bind(primitive, *values, **equation.params)]
        else:
            results, out_axes = primitive.batch(self.size, rule_inputs(primitive, values), axes, **equation.params)
            outputs = [Batched(result, axis) for result, axis in zip(results, out_axes, strict=True)]
        if self._notes:
            self._note(outputs, equation.outputs)
        return outputs

    def literal(self, literal: Literal) -> Batched:
        return Batched(literal, None)

    def constant(self, array: Any) -> Batched:
        return Batched(array, None)


def _involves(name: str, equation: Equation) -> bool:
    """Return whether an operation has collectives over an axis, or programs whose types tell of it."""
    return name in collective_axes(equation.primitive, equation.params) or any(
        name in aval.vma for region in equation.regions for aval in region.program.in_avals)


class batching_over:  # noqa: N801  (used as `with batching_over(name):`)
    """Name the axis of batches begun in this block, for collectives (None: it has no name).

    It is sharded along the mesh axes `spmd`, where a program constrains the sharding of a value. The results of all
    lanes are used, unless `masking_lanes` says otherwise.
    """

    __slots__ = ("_cut", "_masked", "_name", "_spmd", "_token")

    def __init__(self, name: str | None, spmd: tuple[str, ...] = ()) -> None:
        self._name, self._spmd = name, spmd

    def __enter__(self) -> None:
        self._token = batched_axis.set(self._name)
        self._cut = spmd_names.set(self._spmd) if self._spmd or spmd_names.get() else None
        self._masked = None if live_lanes.get() is None else live_lanes.set(None)

    def __exit__(self, *_: object) -> None:
        batched_axis.reset(self._token)
        if self._cut is not None:
            spmd_names.reset(self._cut)
        if self._masked is not None:
            live_lanes.reset(self._masked)


@contextmanager
def masking_lanes(mask: Any) -> Iterator[None]:
    """Set the mask of the lanes whose results are used, for batches in this block; None: all are."""
    token = live_lanes.set(mask)
    try:
        yield
    finally:
        live_lanes.reset(token)


takes_mask: Analysis[bool] = Analysis(
    "takes the mask", "Whether the batch rule takes the mask of live lanes, so that checks fail in these alone.",
    missing="conservative", default=False)


@program_property
def has_masked(program: Program) -> bool:
    """Return whether an operation of `program`, at any depth, takes the mask of live lanes."""
    return any(takes_mask.of(equation.primitive) or any(map(has_masked, equation.programs))
               for equation in program.equations)


def batch_aval(aval: Aval, size: int, axis: int | None) -> Aval:
    """Return the type of a batch of values of type `aval`; it no longer varies over the axis that is batched."""
    name = batched_axis.get()
    if name is not None and name in aval.vma:
        aval = aval.invariant((name,))
    return aval if axis is None else aval.update(shape=(*aval.shape[:axis], size, *aval.shape[axis:]))


def repeat(value: Any, size: int, axis: int) -> Any:
    """Return `value` with a new axis of `size` equal entries."""
    shape = aval_of(value).shape
    expanded = reshape(value, (*shape[:axis], 1, *shape[axis:]))
    return broadcast_to(expanded, (*shape[:axis], size, *shape[axis:]))


def put_axis(batched: Batched, size: int, axis: int) -> Any:
    """Return the value with its batch axis at `axis`, repeated if it has none."""
    if batched.axis is None:
        return repeat(batched.value, size, axis)
    return move_axis(batched.value, batched.axis, axis)


def batched_program(program: Program, size: int, in_axes: tuple[int | None, ...],
                    out_axes: tuple[int | None, ...] | None = None) -> Derived:
    """Return `program` on batches; `in_axes` and `out_axes` give the batch axes of inputs and outputs.

    By default every output has it first. An output marked None has none if it is the same for the whole batch; `extra`
    marks the outputs that have one. The mask of live lanes is a captured value, if an operation takes it.
    """
    wanted = (0,) * len(program.outputs) if out_axes is None else out_axes
    live = live_lanes.get()

    def build(*values: Any) -> tuple[list[Any], tuple[bool, ...]]:
        outputs = Batch(size).run(program, [Batched(value, axis) for value, axis in zip(values, in_axes, strict=True)])
        results = [output.value if axis is None and output.axis is None else put_axis(output, size, axis or 0)
                   for output, axis in zip(outputs, wanted, strict=True)]
        return results, tuple(output.axis is not None for output in outputs)

    def build_masked(mask: Any, *values: Any) -> tuple[list[Any], tuple[bool, ...]]:
        with masking_lanes(mask):
            return build(*values)

    avals = [batch_aval(aval, size, axis) for aval, axis in zip(program.in_avals, in_axes, strict=True)]
    key = "batch", size, in_axes, wanted
    if live is None or not has_masked(program):
        return derive(program, key, build, avals)
    derived = derive(program, key, build_masked, [aval_of(live), *avals])
    return derived._replace(captured=[*derived.captured, live])
