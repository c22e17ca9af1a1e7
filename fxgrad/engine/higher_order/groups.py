"""Masks of values, and groups: the named parts of the flat operand lists of operations with nested programs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.regions import How, Links
from fxgrad.engine.core.symbolic import Linear, Zero
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.ops.structural import zeros

Marks = tuple[bool, ...]
"""A mask of a list of values, a flag for each: those that have a tangent, are linear, or are batched."""


# --- marked values ------------------------------------------------------------------------------------------


def select_marked(values: Sequence[Any], marks: Sequence[bool]) -> list[Any]:
    """Return the marked values."""
    return [value for value, marked in zip(values, marks, strict=True) if marked]


def select_unmarked(values: Sequence[Any], marks: Sequence[bool]) -> list[Any]:
    """Return the values that are not marked."""
    return [value for value, marked in zip(values, marks, strict=True) if not marked]


def merge_marked(marks: Sequence[bool], marked: Iterable[Any], rest: Iterable[Any]) -> list[Any]:
    """Undo `select_marked` and `select_unmarked`: return the list of which these return `marked` and `rest`.

    >>> merge_marked([True, False, True], "ac", "b")
    ['a', 'b', 'c']
    """
    one, other = iter(marked), iter(rest)
    return [next(one if mark else other) for mark in marks]


def nonzero_mask(tangents: Sequence[Any]) -> Marks:
    """Return a mask of the tangents that are not symbolic zeros."""
    return tuple(type(tangent) is not Zero for tangent in tangents)


def nonzero_tangents(tangents: Sequence[Any]) -> list[Any]:
    """Return the tangents that are not symbolic zeros."""
    return [tangent for tangent in tangents if type(tangent) is not Zero]


def linear_mask(values: Sequence[Any]) -> Marks:
    """Return a mask of the inputs of a transpose rule that are markers of linearity."""
    return tuple(type(value) is Linear for value in values)


def with_markers(avals: Sequence[Aval], linear: Sequence[bool], rest: Iterable[Any]) -> list[Any]:
    """Return the inputs of a program to transpose: markers for the linear ones, and `rest` for the others."""
    return merge_marked(linear, map(Linear, select_marked(avals, linear)), rest)


def with_zeros(avals: Sequence[Aval], linear: Sequence[bool], rest: Iterable[Any]) -> list[Any]:
    """Return inputs for a program that ignores its linear ones: zeros for these, and `rest` for the others."""
    return merge_marked(linear, map(zeros, select_marked(avals, linear)), rest)


def cotangents_of(inputs: Sequence[Any], linear: Sequence[bool], found: Iterable[Any]) -> list[Any]:
    """Return the result of a transpose rule, where `found` are cotangents of the inputs that `linear` marks.

    A loop marks more than the inputs that are `Linear`: also those that become linear at a later step.
    """
    return [cotangent if type(value) is Linear else None
            for value, cotangent in zip(inputs, merge_marked(linear, found, itertools.repeat(None)), strict=True)]


# --- groups -------------------------------------------------------------------------------------------------


_new: Callable[..., Any] = tuple.__new__
Parts = TypeVar("Parts", bound=NamedTuple)


class Groups(Generic[Parts]):
    """The groups of a flat list: their names, which are those of a named tuple, and their sizes.

    The list may be one of values, of their types, tangents or axes, or of marks.

    >>> class Inputs(NamedTuple):
    ...     consts: Sequence
    ...     carry: Sequence
    >>> groups = groups_of(Inputs, 1, 2)
    >>> groups.split([10, 20, 21])
    Inputs(consts=[10], carry=[20, 21])
    >>> groups.each(select_marked, [10, 20, 21], [True, False, True])
    Inputs(consts=[10], carry=[21])
    """

    __slots__ = ("_pieces", "parts", "sizes")

    def __init__(self, parts: type[Parts], sizes: tuple[int, ...]) -> None:
        self.parts, self.sizes = parts, sizes
        stops = [*itertools.accumulate(sizes[:-1]), None]
        self._pieces: Callable[[Any], tuple[Any, ...]] = itemgetter(*map(slice, [0, *stops[:-1]], stops))
        if len(sizes) == 1:  # `itemgetter` with one index returns no tuple
            self._pieces = lambda values: (values,)

    def split(self, values: Sequence[Any]) -> Parts:
        """Return the groups of `values`; the last one gets surplus values, which type checks report."""
        return _new(self.parts, self._pieces(values))

    def each(self, function: Callable[..., Any], *lists: Sequence[Any]) -> Parts:
        """Return the results of `function` for each group, called with that group of every list."""
        return self.parts._make(map(function, *map(self.split, lists)))

    def with_tangents(self, values: Sequence[Any], tangents: Sequence[Any]) -> Parts:
        """Return each group of `values` followed by its nonzero tangents."""
        return self.each(lambda own, along: [*own, *nonzero_tangents(along)], values, tangents)

    def without_tangents(self, values: Sequence[Any], marks: Sequence[bool]) -> tuple[list[Any], list[Any]]:
        """Undo `with_tangents`, given a mask of nonzero tangents: return the values, and those tangents."""
        counts = zip(self.sizes, map(sum, self.split(marks)), strict=True)
        pieces = split_by_sizes(values, itertools.chain(*counts))
        return join_groups(pieces[::2]), join_groups(pieces[1::2])

    def links(self, **how: How) -> tuple[Links, ...]:
        """Return the links between the inputs or outputs of a program and these groups, in the program's order."""
        return tuple(self.link(name, kind) for name, kind in how.items())

    def link(self, name: str, how: How) -> Links:
        """Return the link between the inputs or outputs of a program and one of these groups."""
        number = self.parts._fields.index(name)
        return Links(how, sum(self.sizes[:number]), self.sizes[number])


@cached("groups of operands", 1024)
def groups_of(parts: type[Parts], *sizes: int) -> Groups[Parts]:
    """Return groups of these names and sizes, cached: loops split their operands at every run."""
    return Groups(parts, sizes)


def split_by_sizes(values: Sequence[Any], sizes: Iterable[int]) -> list[list[Any]]:
    """Split `values` into pieces of these sizes; the last one gets the remaining values."""
    start, pieces = 0, []
    for size in sizes:
        pieces.append([*values[start:start + size]])
        start += size
    if start < len(values):
        pieces[-1] += values[start:]
    return pieces


def join_groups(groups: Iterable[Iterable[Any]]) -> list[Any]:
    """Return all values of all groups."""
    return [*itertools.chain.from_iterable(groups)]


class StepInputs(NamedTuple):
    """The groups of the inputs of one step of a loop."""

    consts: Sequence[Any]
    carry: Sequence[Any]


class Carry(NamedTuple):
    """The one group of the outputs of a step, and of a loop."""

    carry: Sequence[Any]


def step_groups(program: Program) -> tuple[Groups[StepInputs], Groups[Carry]]:
    """Return the groups of the inputs and the outputs of a step (constants, carry) -> carry."""
    carry = len(program.outputs)
    return groups_of(StepInputs, len(program.inputs) - carry, carry), groups_of(Carry, carry)


def derive_grouped(program: Program, key: Any, build: Callable[..., Sequence[Any]], **avals: Sequence[Aval]) -> Derived:
    """Derive as `derive`; `build` takes a list for each group of inputs, of these types, and returns the outputs."""
    sizes = [*map(len, avals.values())]
    return derive(program, key, lambda *values: (build(*split_by_sizes(values, sizes)), None),
                  join_groups(avals.values()))
