"""The interpreter behind `autocast`: each value in the precision it was computed in, and cast once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad import dtypes
from fxgrad.extend import (
    PRIMAL,
    Aval,
    Derived,
    DType,
    Equation,
    Interpreter,
    Literal,
    Program,
    Region,
    Variable,
    at_source,
    aval_of,
    bind,
    convert,
    definitions,
    derive,
    region_scope,
    replace_programs,
    transform_rule,
)
from fxgrad.extend.tracing import note_provenance
from fxgrad.training.autocast.classes import Kind, boundaries
from fxgrad.training.autocast_policies import AutocastPolicy

Marks = tuple[bool, ...]


def is_castable(aval: Aval) -> bool:
    """Return whether values of a type are cast: real ones of more than 16 bits."""
    return dtypes.is_floating(aval.dtype) and aval.dtype.itemsize > 2


class CastValue:
    """A value in the dtypes requested so far; `narrow` if it was computed in half precision."""

    __slots__ = ("_forms", "_half", "asked", "aval", "narrow")

    def __init__(self, given: Any, aval: Aval, half: DType, narrow: bool = False) -> None:
        self.aval, self.narrow, self._half = aval, narrow, half
        self._forms: dict[str, Any] = {"half" if narrow else "wide": given}
        self.asked: set[str] = set()

    def wide(self) -> Any:
        """Return the value as it was in the program without `autocast`."""
        self.asked.add("wide")
        if "wide" not in self._forms:
            self._forms["wide"] = convert(self._forms["half"], self.aval.dtype, self.aval.weak)
        return self._forms["wide"]

    def half(self) -> Any:
        """In half precision."""
        self.asked.add("half")
        if "half" not in self._forms:
            self._forms["half"] = convert(self._forms["wide"], self._half)
        return self._forms["half"]

    @property
    def given(self) -> Any:
        """The value as it came in, or was computed."""
        return self._forms["half" if self.narrow else "wide"]

    def uncast(self) -> Any:
        """Return the value in the precision in which it was computed."""
        return self.half() if self.narrow else self.wide()


class CastOutcome(NamedTuple):
    """The result of casting a program.

    `narrow` marks the outputs that are in half precision, `halved` the full-precision inputs of which only the
    half-precision cast is used.
    """

    narrow: Marks
    halved: Marks


def cast_program(program: Program, policy: AutocastPolicy, forced: Kind | None, arriving: Marks, leaving: Marks,
                 ) -> Derived:
    """Return `program` under `autocast`; `extra` is its `CastOutcome`.

    Inputs marked by `arriving` come in half precision; outputs marked by `leaving` may stay in half precision, the
    others keep their original types. `forced` is the kind of the enclosing block, if the policy has one for it.
    """
    def build(*inputs: Any) -> tuple[list[Any], CastOutcome]:
        cast = Caster(policy, forced)
        values = [CastValue(given, aval, policy.dtype, mark)
                  for given, aval, mark in zip(inputs, program.in_avals, arriving, strict=True)]
        outputs = cast.run(program, values)
        made = definitions(program)
        results = []
        with at_source("") as at:
            for atom, output, may_leave in zip(program.outputs, outputs, leaving, strict=True):
                if isinstance(atom, Variable) and atom in made:
                    at(made[atom])
                results.append(output.uncast() if may_leave else output.wide())
        return results, CastOutcome(
            tuple(mark and output.narrow for mark, output in zip(leaving, outputs, strict=True)),
            tuple(value.asked == {"half"} and not value.narrow for value in values))

    avals = [aval.update(dtype=policy.dtype) if mark else aval
             for aval, mark in zip(program.in_avals, arriving, strict=True)]
    return derive(program, ("autocast", policy, forced, arriving, leaving), build, avals)


class CastRule(NamedTuple):
    """The transformation of a user's rule: its computation is cast like any other, its output types are kept."""

    policy: AutocastPolicy
    forced: Kind | None

    def __call__(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        given = [CastValue(value, aval_of(value), self.policy.dtype) for value in inputs]
        return [output.wide() for output in Caster(self.policy, self.forced).run(program, given)]


class Caster(Interpreter):
    """Computes each equation in the precision that the policy has for it; carries `CastValue`s."""

    def __init__(self, policy: AutocastPolicy, forced: Kind | None) -> None:
        self.policy, self.forced = policy, forced

    def run(self, program: Program, inputs: Sequence[CastValue]) -> list[CastValue]:
        """Run the program as any interpreter does; for displayed programs the casts are recorded."""
        self._program = program
        note_provenance([value.given for value in inputs], PRIMAL, program, program.inputs[len(program.constants):])
        return super().run(program, inputs)

    def literal(self, literal: Literal) -> CastValue:
        return CastValue(literal, literal.aval, self.policy.dtype)

    def constant(self, array: Any) -> CastValue:
        return CastValue(array, aval_of(array), self.policy.dtype)

    def equation(self, equation: Equation, inputs: list[CastValue]) -> list[CastValue]:
        block = self.policy.block_kind(equation) or self.forced
        if equation.primitive.regions is not None:
            outputs = self._cast_regions(equation, inputs, block)
        else:
            kind = self.policy.kind(equation.primitive)
            given = self._operands(equation, inputs, kind if block is None or kind == "as_is" else block)
            outputs = self._outputs_of(equation, bind(equation.primitive, *given, **equation.params))
        note_provenance([output.given for output in outputs], PRIMAL, self._program, equation.outputs)
        return outputs

    def _outputs_of(self, equation: Equation, outputs: Sequence[Any]) -> list[CastValue]:
        """Return the outputs; they are in half precision where the original program's were not."""
        half = self.policy.dtype
        return [CastValue(output, var.aval, half, is_castable(var.aval) and aval_of(output).dtype == half)
                for output, var in zip(outputs, equation.outputs, strict=True)]

    # --- single operations ----------------------------------------------------------------------------------

    def _operands(self, equation: Equation, inputs: list[CastValue], kind: Kind) -> list[Any]:
        if kind == "as_is":
            return [value.uncast() if is_castable(value.aval) else value.wide() for value in inputs]
        castable = [value for value in inputs if is_castable(value.aval)]
        # Complex numbers have no half precision, and half-precision operands are the user's own decision.
        is_mixed = any(dtypes.is_inexact(value.aval.dtype) and not is_castable(value.aval) for value in inputs)
        halves = castable and not is_mixed and (kind == "half" or (
            kind == "follow" and all(value.narrow for value in _deciding_operands(equation, castable))))
        return [value.half() if halves and is_castable(value.aval) else value.wide() for value in inputs]

    # --- operations that hold programs ------------------------------------------------------------------------

    def _cast_regions(self, equation: Equation, inputs: list[CastValue], block: Kind | None) -> list[CastValue]:
        boundary = boundaries.of(equation.primitive)
        if boundary == "untouched":
            return self._outputs_of(equation, bind(equation.primitive, *(value.wide() for value in inputs),
                                                   **equation.params))
        if boundary == "closed":
            programs = [cast_program(region.program, self.policy, block, (False,) * len(region.program.inputs),
                                     (False,) * len(region.program.outputs)).program for region in equation.regions]
            params = replace_programs(equation.params, equation.regions, programs)
            params = transform_rule(equation.primitive, params, CastRule(self.policy, block))
            return self._outputs_of(equation, bind(equation.primitive, *(value.wide() for value in inputs), **params))
        arriving, leaving = _free_places(equation)
        narrow = [value.narrow and free for value, free in zip(inputs, arriving, strict=True)]
        free_outputs = leaving
        parts = self._parts(equation, block, narrow, leaving)
        for place, value in enumerate(inputs):
            # A weight that a loop or a call uses in half precision only is cast once, outside.
            found = [part.extra.halved[index] for region, part in zip(equation.regions, parts, strict=True)
                     for index, link in enumerate(region.inputs) if link.place == place]
            used = [number for number, (region, part) in enumerate(zip(equation.regions, parts, strict=True))
                    for index, link in enumerate(region.inputs)
                    if link.place == place and _is_used(region.program, index)]
            if arriving[place] and found and not value.narrow and sum(found) == len(used) > 0:
                narrow[place] = True
        parts = self._parts(equation, block, narrow, leaving)
        leaving = tuple(_all_narrow(equation.regions, parts, place) and free for place, free in enumerate(free_outputs))
        parts = self._parts(equation, block, narrow, leaving)
        given = [value.half() if mark else value.wide() for value, mark in zip(inputs, narrow, strict=True)]
        params = replace_programs(equation.params, equation.regions, [part.program for part in parts])
        return self._outputs_of(equation, bind(equation.primitive, *given, **params))

    def _parts(self, equation: Equation, block: Kind | None, narrow: Sequence[bool], leaving: Marks) -> list[Derived]:
        """Return the programs of an equation whose operands marked by `narrow` come in half precision."""
        with region_scope(equation):
            return [cast_program(
                region.program, self.policy, block,
                tuple(link.place >= 0 and narrow[link.place] for link in region.inputs),
                tuple(link.place >= 0 and link.how != "carry" and leaving[link.place] for link in region.outputs))
                for region in equation.regions]


def _deciding_operands(equation: Equation, castable: Sequence[CastValue]) -> Sequence[CastValue]:
    """Return the operands that determine the precision: those of the result's shape, or all; never numbers."""
    own = [value for value in castable if not value.aval.weak] or castable
    shapes = [var.aval.shape for var in equation.outputs]
    return [value for value in own if value.aval.shape in shapes] or own


def _free_places(equation: Equation) -> tuple[Marks, Marks]:
    """Return masks of operands and outputs that may be in half precision: those of the programs, except carries."""
    regions = equation.regions
    ins: dict[int, set[str]] = {}
    outs: dict[int, set[str]] = {}
    for region in regions:
        for link in region.inputs:
            ins.setdefault(link.place, set()).add(link.how)
        for link in region.outputs:
            outs.setdefault(link.place, set()).add(link.how)
    free = {"same", "entry", "piece"}
    return (tuple(is_castable(atom.aval) and place in ins and ins[place] <= free
                  for place, atom in enumerate(equation.inputs)),
            tuple(is_castable(var.aval) and place in outs and outs[place] <= free
                  for place, var in enumerate(equation.outputs)))


def _is_used(program: Program, index: int) -> bool:
    var = program.inputs[index]
    return any(var in equation.inputs for equation in program.equations) or var in program.outputs


def _all_narrow(regions: Sequence[Region], parts: Sequence[Derived], place: int) -> bool:
    """Return whether all programs that make an output make it in half precision."""
    return all(part.extra.narrow[index] for region, part in zip(regions, parts, strict=True)
               for index, link in enumerate(region.outputs) if link.place == place)
