"""`bounds`: an interval for every value of a function, by line, from the ranges of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from fxgrad import tree
from fxgrad.errors import ArgumentError
from fxgrad.extend import Program, at_user_line, trace_program, transformation
from fxgrad.extend.analyses import Interval, interval_of_constant, intervals_of, operand_intervals, region_intervals
from fxgrad.text.names import variable_names
from fxgrad.text.tables import Report, add_row, new_table


class Bound(NamedTuple):
    """The interval of one value: its name in the program, the operation, and your line; `nan` allows NaNs too."""

    name: str
    operation: str
    line: str
    low: float
    high: float
    nan: bool


class Bounds(Report):
    """The bounds of all values, in the order of the program; `results` has those of the results. Prints as a table."""

    def __init__(self, title: str, bounds: Sequence[Bound], results: Any) -> None:
        self.title, self.bounds, self.results = title, [*bounds], results

    def __len__(self) -> int:
        return len(self.bounds)

    def __iter__(self) -> Iterator[Bound]:
        return iter(self.bounds)

    def table(self) -> Table:
        """Return the table for rich."""
        made = new_table(f"Bounds of {self.title}", {"line": "left", "value": "left", "operation": "left",
                                                     "from": "right", "to": "right", "NaN": "left"})
        for each in self.bounds:
            add_row(made, [each.line, each.name, each.operation, f"{each.low:.6g}", f"{each.high:.6g}",
                           "possible" if each.nan else ""])
        return made

    __repr__ = Report.__str__


def bounds(fun: Callable[..., Any]) -> Callable[..., Bounds]:
    """Return a function of the ranges of the arguments of `fun` that bounds every value that `fun` computes.

    Each range is a pair (lowest, highest) of arrays or numbers of one shape, or of containers of them, such as the
    argument itself. All elements of an array get one interval. It is sound: no value lies outside, whatever the
    arguments within their ranges, with NumPy or compiled. Values of operations without a rule are unbounded, and may
    be NaN. Intervals in loops hold for all turns.

    Raises `ArgumentError` for a range that is no pair of equal containers, shapes and dtypes, or has low above high.

    >>> import fxgrad, numpy as np
    >>> def wave(x):
    ...     return np.exp(np.sin(x)) + 1.0
    >>> found = fxgrad.bounds(wave)((0.0, 100.0))
    >>> [(each.operation, round(each.low, 3), round(each.high, 3)) for each in found]
    [('sin', -1.0, 1.0), ('exp', 0.368, 2.718), ('add', 1.368, 3.718)]
    >>> found.results.nan
    False
    """
    @transformation("bounds", fun)
    def bounded(*ranges: Any) -> Bounds:
        pairs = [_check_pair(each, number) for number, each in enumerate(ranges)]
        program = trace_program("bounds", fun, tuple(low for low, _ in pairs), {}, follow=False)
        inputs = [interval_of_constant(value, var.aval)
                  for value, var in zip(program.constants, program.inputs, strict=False)]
        inputs += [_interval(low, high, var.aval) for low, high, var in zip(
            tree.leaves([low for low, _ in pairs]), tree.leaves([high for _, high in pairs]),
            program.inputs[program.captured:], strict=True)]
        signature = program.signature
        assert signature is not None
        found: list[Bound] = []
        _collect(program, inputs, found)
        results = tree.unflatten(signature.out_tree, operand_intervals(program.outputs, intervals_of(program, inputs)))
        return Bounds(signature.title or signature.name, found, results)
    return bounded


def _check_pair(pair: Any, number: int) -> tuple[Any, Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ArgumentError(at_user_line(
            f"bounds: the range of argument {number} is a {type(pair).__name__}, where a pair is needed. Write "
            "(lowest, highest), each of them like the argument"))
    low, high = pair
    lows, highs = tree.leaves(low), tree.leaves(high)
    alike = (low_tree := tree.structure(low)) is not None and low_tree == tree.structure(high)
    if not alike or [np.shape(leaf) for leaf in lows] != [np.shape(leaf) for leaf in highs]:
        raise ArgumentError(at_user_line(
            f"bounds: the two ends of the range of argument {number} are containers or arrays of different shapes"))
    if not all(np.all(np.asarray(one) <= np.asarray(two)) for one, two in zip(lows, highs, strict=True)):
        raise ArgumentError(at_user_line(
            f"bounds: the range of argument {number} has a lowest value above the highest, or a NaN"))
    return low, high


def _interval(low: Any, high: Any, aval: Any) -> Interval:
    return interval_of_constant(low, aval).join(interval_of_constant(high, aval))._replace(zero=True)


def _collect(program: Program, inputs: Sequence[Interval], found: list[Bound]) -> None:
    """Add the bounds of the values of `program` and the programs inside, in order."""
    known, names = intervals_of(program, inputs), variable_names(program)
    for equation in program.equations:
        given = operand_intervals(equation.inputs, known)
        for region in equation.regions:
            _collect(region.program, region_intervals(equation, region, given, program, known), found)
        for var in equation.outputs:
            line = "" if equation.source is None else equation.source.place
            found.append(Bound(names[var], equation.primitive.name, line, *known[var][:3]))
