"""Regions: the programs in an operation's parameters, each with its role and the links of its inputs and outputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.program import Atom, Equation, Program

How = Literal["same", "entry", "carry", "piece", "inside"]


class Link(NamedTuple):
    """The source of a region's input, or the destination of one of its outputs.

    | `how` | an input is | an output is |
    |---|---|---|
    | `same` | the operand at `place`, at every run | the equation's output at `place` |
    | `entry` | one entry along axis 0 of the operand at `place` | one entry of the equation's output at `place` |
    | `carry` | the operand at `place`, then what the run before made | that for the next run, at last the output |
    | `piece` | what one device has of the operand at `place` | what it has of the equation's output at `place` |
    | `inside` | made by the operation itself; `place` is -1 | used by the operation itself |

    The outputs marked `carry` match, in order, the inputs marked `carry`.
    """

    how: How
    place: int = -1


class Links(NamedTuple):
    """A row of links of one kind: to `number` places from `first` on, or without a place.

    >>> [*Links("carry", 2, 2).each()]
    [Link(how='carry', place=2), Link(how='carry', place=3)]
    """

    how: How
    first: int
    number: int

    def each(self) -> Iterator[Link]:
        """Return the single links."""
        inside = self.how == "inside"
        return (Link(self.how, -1 if inside else place) for place in range(self.first, self.first + self.number))


class Region(NamedTuple):
    """A program in the parameters of an operation.

    `role` names its purpose: "inline" and "call" (a function in one line), "recomputed" (a call run again), "branch"
    (one of several runs), "mapped" (what each device of a mesh runs), "body", "condition", "step" and "back" (of
    loops), and the programs of solvers: "solve", "matvec" and others, which derivatives run. `at` is its position in
    the parameters: a name, and the index in it if that is a tuple. `takes` and `makes` link its `inputs` and `outputs`
    to those of the operation. `times` is how often it runs for each run of the operation; None if that depends on
    values. With `reverse`, entries are taken and made from the last one on.

    >>> import numpy as np, fxgrad
    >>> program = fxgrad.make_program(lambda x: fxgrad.lax.scan(lambda c, x: (c + x, c), 0.0, x))(np.ones(3))
    >>> scan, = [equation for equation in program.equations if equation.regions]
    >>> body, = scan.regions
    >>> body.role, body.times, body.inputs
    ('body', 3, (Link(how='carry', place=0), Link(how='entry', place=1)))
    """

    role: str
    at: tuple[Any, ...]
    program: Program
    takes: tuple[Links, ...]
    makes: tuple[Links, ...]
    times: int | None
    reverse: bool = False

    @property
    def inputs(self) -> tuple[Link, ...]:
        """The source of each input of the program."""
        return tuple(link for links in self.takes for link in links.each())

    @property
    def outputs(self) -> tuple[Link, ...]:
        """The destination of each output of the program."""
        return tuple(link for links in self.makes for link in links.each())


region_roles: Analysis[tuple[str, ...]] = Analysis(
    "roles", "The roles of the programs that an operation holds, each once, in the order of the regions.",
    missing="conservative", default=())


def whole_region(role: str, program: Program, at: tuple[Any, ...] = ("program",), first: int = 0, times: int | None = 1,
                 ) -> Region:
    """Return the region of a program that takes the operands from `first` on and computes all outputs."""
    return Region(role, at, program, (Links("same", first, len(program.inputs)),),
                  (Links("same", 0, len(program.outputs)),), times)


def replace_programs(params: dict[str, Any], regions: Sequence[Region], programs: Sequence[Program]) -> dict[str, Any]:
    """Return the parameters with `programs` in place of those of `regions`."""
    result = dict(params)
    for region, program in zip(regions, programs, strict=True):
        name, *places = region.at
        result[name] = _put_program(result.get(name), places, program)
    return result


def _put_program(value: Any, places: Sequence[int], program: Program) -> Any:
    """Return `value` with `program` at its place in a tuple, or in nested tuples."""
    if not places:
        return program
    first, *rest = places
    items = [*value]
    items[first] = _put_program(items[first], rest, program)
    return value._make(items) if hasattr(value, "_make") else type(value)(items)


def rewrite_programs(equation: Equation, rewrite: Callable[[Region], Program]) -> Equation:
    """Return the equation with `rewrite(region)` for the program of each region; itself if all stay the same."""
    if equation.primitive.regions is None:
        return equation
    regions = equation.regions
    programs = [rewrite(region) for region in regions]
    if all(new is region.program for new, region in zip(programs, regions, strict=True)):
        return equation
    return equation.replace(equation.inputs, replace_programs(equation.params, regions, programs))


# --- what depends on what -----------------------------------------------------------------------------------------


def dependent_variables(program: Program, marks: Sequence[bool]) -> set[Atom]:
    """Return the inputs of `program` marked in `marks`, and all variables that depend on one of them."""
    reached: set[Atom] = {var for var, marked in zip(program.inputs, marks, strict=True) if marked}
    for equation in program.equations:
        if not reached.isdisjoint(equation.inputs):
            reached.update(equation.outputs)
    return reached


def dependent_outputs(program: Program, marks: Sequence[bool]) -> tuple[bool, ...]:
    """Return a mask of the outputs of `program` that depend on an input marked in `marks`."""
    reached = dependent_variables(program, marks)
    return tuple(atom in reached for atom in program.outputs)


def dependent_within(program: Program, marks: Sequence[bool], visit: Callable[[Equation], None] = lambda _: None,
                     ) -> set[Atom]:
    """Return what `dependent_variables` does, looking into the programs of equations.

    An output of a loop or a call depends on what its program makes of marked inputs, and on operands that decide what
    runs. `visit` is called with each equation that takes marked values and holds no program, at any depth.
    """
    reached: set[Atom] = {var for var, marked in zip(program.inputs, marks, strict=True) if marked}
    for equation in program.equations:
        if not reached.isdisjoint(equation.inputs):
            if not equation.regions:
                visit(equation)
            reached.update(itertools.compress(equation.outputs, _dependent_outputs_of(
                equation, [atom in reached for atom in equation.inputs], visit)))
    return reached


def _dependent_outputs_of(equation: Equation, operands: Sequence[bool], visit: Callable[[Equation], None],
                          ) -> Sequence[bool]:
    """Return a mask of the outputs of `equation` that depend on operands marked in `operands`."""
    everything = [True] * len(equation.outputs)
    linked = {link.place for region in equation.regions for link in region.inputs}
    if not equation.regions or any(marked and place not in linked for place, marked in enumerate(operands)):
        return everything
    found, operands = [False] * len(equation.outputs), [*operands]
    # Bodies first: their carries are also those of the condition.
    for region in sorted(equation.regions, key=lambda region: not any(link.how == "carry" for link in region.outputs)):
        carried = [index for index, link in enumerate(region.inputs) if link.how == "carry"]
        after = [index for index, link in enumerate(region.outputs) if link.how == "carry"]

        def outputs_of(marks: Sequence[bool], region: Region = region) -> list[bool]:
            reached = dependent_within(region.program, marks, visit)
            return [atom in reached for atom in region.program.outputs]

        if region.role == "condition":
            carried = []
        if carried and len(after) != len(carried):
            outputs_of([True] * len(region.inputs))
            return everything  # carried inside, as the states that a sweep recomputes

        def step(marks: Sequence[bool], carried: list[int] = carried, after: list[int] = after) -> list[bool]:
            made, again = outputs_of(marks), [*marks]
            for index, place in zip(carried, after, strict=True):
                again[index] = made[place]
            return again

        first = [link.place >= 0 and operands[link.place] for link in region.inputs]
        marks = close_marks(step, first) if carried else first
        made = outputs_of(marks)
        for index, place in zip(carried, after, strict=True):
            made[place] = marks[index]  # a loop may end before its first step
            if region.inputs[index].place >= 0:
                operands[region.inputs[index].place] = marks[index]
        for link, marked in zip(region.outputs, made, strict=True):
            if marked and link.place < 0:
                return everything  # a condition decides how often a loop runs
            found[link.place] = found[link.place] or marked
    return found


def close_marks(step: Callable[[tuple[bool, ...]], Sequence[bool]], marks: Sequence[bool]) -> tuple[bool, ...]:
    """Return the least fixed point of `step` that contains `marks`, the final marks of a loop."""
    current = tuple(marks)
    while True:
        grown = tuple(old or new for old, new in zip(current, step(current), strict=True))
        if grown == current:
            return current
        current = grown


def marked_inputs(region: Region, operands: Sequence[bool]) -> Sequence[bool]:
    """Return a mask of the inputs of a region that depend on marked operands, at any step of a loop."""
    first = [link.place >= 0 and operands[link.place] for link in region.inputs]
    carried = [index for index, link in enumerate(region.inputs) if link.how == "carry"]
    next_places = [index for index, link in enumerate(region.outputs) if link.how == "carry"]
    if carried and not next_places:  # carried values stay inside, such as states that a sweep recomputes
        inside = [*range(len(region.outputs))]
        is_step = [region.program.in_avals[index] for index in carried] == region.program.out_avals
        carried, next_places = (carried, inside) if is_step else ([], [])

    def step(marks: Sequence[bool]) -> Sequence[bool]:
        reached = dependent_outputs(region.program, marks)
        made = [reached[place] for place in next_places]
        after = [*marks]
        for index, mark in zip(carried, made, strict=True):
            after[index] = mark
        return after

    return close_marks(step, first) if carried else first
