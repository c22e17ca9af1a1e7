"""Repeated stretches of a program: copies of one block, equal up to literals and the values that they read.

Equations get symbols, and a stretch of period p is one where each symbol equals the one p places later (a tandem
repeat). Candidates for p are the distances between consecutive equal k-grams, for k = 1, 2, 4, ..., whose ranks double
(Karp, Miller and Rosenberg, 1972). Then the data flow is compared: see `BlockFlow`. The work is n log n.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.core.avals import Aval, Literal, Shape
from fxgrad.engine.core.cache_keys import param_key
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import calls_user_code, ordering_constraints
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.ops.joining import unstack_p
from fxgrad.engine.ops.shaping import slice_p
from fxgrad.engine.ops.structural import convert_element_type_p, reshape_p, transpose_p


class Row(NamedTuple):
    """An entry of an array: `base` at `place` along `axis`, of the shape `shape`."""

    base: Variable
    axis: int
    place: int
    shape: Shape


class Output(NamedTuple):
    """A value computed in a block: output `number` of its equation `place`."""

    place: int
    number: int


class Carry(NamedTuple):
    """A value that each copy takes from the copy before: its `output` there, and for the first copy `first`."""

    first: Atom
    output: Output


class BlockFlow(NamedTuple):
    """Where the copies of a block get their operands.

    `operands` has for each equation of the block, for each of its operands, the `Output` of an equation of the same
    copy, a `Literal`, or the number of an input. The inputs are, in this order, `shared` values, equal for all copies;
    the `carried` ones; and those of `by_copy`, with one atom for each copy.
    """

    operands: list[list[Output | Literal | int]]
    shared: list[Atom]
    carried: list[Carry]
    by_copy: list[tuple[Atom, ...]]


class Repeat(NamedTuple):
    """Copies of a block: equations of a program, by copy, and their data flow."""

    copies: list[list[Equation]]
    flow: BlockFlow

    @property
    def block(self) -> list[Equation]:
        """The equations of a copy in the middle: those at the ends may be partial ones that were completed."""
        return self.copies[len(self.copies) // 2]


class Repeats(NamedTuple):
    """The repeats of a program, in order, and the entries of arrays that are read outside of them."""

    repeats: list[Repeat]
    rows: dict[Atom, Row]
    work: int
    """The number of operands and equations that were looked at."""


def find_repeats(program: Program, at_least: int = 2) -> Repeats:
    """Return the repeats in the equations of `program` itself, of `at_least` so many copies, without overlaps.

    Equations with effects, with collectives and with user code repeat nothing. Reads of the entries of an array
    (`w[0]`, `w[1]`, ...), which differ by a parameter, belong to no copy: they are `rows`.

    >>> import fxgrad, numpy as np
    >>> def function(x, w):
    ...     for i in range(4):
    ...         x = np.tanh(x * w[i])
    ...     return x
    >>> program = fxgrad.make_program(function)(np.ones(3), np.ones(4))
    >>> found = find_repeats(program)
    >>> [(len(repeat.copies), [str(each.primitive) for each in repeat.block]) for repeat in found.repeats]
    [(4, ['mul', 'tanh'])]
    >>> [found.rows[atom].place for atom in found.repeats[0].flow.by_copy[0]]
    [0, 1, 2, 3]
    """
    inside: set[Variable] = set()
    while True:
        rows, reads = _find_rows(program, inside)
        found = _find_in([equation for equation in program.equations if equation not in reads], at_least)
        wrong = {base for repeat in found[0] for base in _bases_within(repeat, rows)}
        if not wrong:
            return Repeats(found[0], rows, found[1])
        inside |= wrong  # arrays that the copies themselves compute: their entries belong to the copies


def _find_in(core: Sequence[Equation], at_least: int) -> tuple[list[Repeat], int]:
    """Return the repeats of `core`, and the number of equations and operands looked at."""
    finder = _Finder(core)
    taken: list[tuple[int, int]] = []
    found: list[tuple[int, Repeat]] = []
    candidates = _candidates(symbols_of(core), at_least)
    while candidates:
        _, start, length, period = candidates.pop()
        clear = _clear_part(start, start + length, taken)
        if clear is None or clear[1] - clear[0] < at_least * period:
            continue
        if clear != (start, start + length):
            _insert(candidates, clear[0], clear[1], period, at_least)
            continue
        begin, count, flow, end = finder.verify(start, length, period)
        if count >= at_least:
            taken.append((begin, begin + count * period))
            copies = [[*core[begin + copy * period:begin + (copy + 1) * period]] for copy in range(count)]
            found.append((begin, Repeat(copies, flow)))
            _insert(candidates, start, begin, period, at_least)
        _insert(candidates, end, start + length, period, at_least)
    return [repeat for _, repeat in sorted(found, key=lambda each: each[0])], finder.work


def _bases_within(repeat: Repeat, rows: dict[Atom, Row]) -> set[Variable]:
    """Return the arrays, computed by copies, whose entries the copies read."""
    flow = repeat.flow
    read = {*flow.shared, *(carry.first for carry in flow.carried),
            *(atom for column in flow.by_copy for atom in column)}
    bases = {rows[atom].base for atom in read if atom in rows}
    if not bases:
        return bases
    return bases.intersection(*[{var for copy in repeat.copies for equation in copy for var in equation.outputs}])


# --- symbols ---------------------------------------------------------------------------------------------------------


def symbols_of(equations: Sequence[Equation]) -> np.ndarray[Any, Any]:
    """Return a number for each equation, equal for those that compute the same function of their operands."""
    numbers: dict[Any, int] = {}
    result = np.empty(len(equations), np.int64)
    for place, equation in enumerate(equations):
        primitive, params = equation.primitive, equation.params
        effects, axes = ordering_constraints(primitive, params)
        key: Any
        if effects or axes or primitive.calls_user_code or (
                primitive.regions is not None and any(map(calls_user_code, equation.programs))):
            key = place
        else:
            key = (primitive, *param_key(primitive, params), None, *(atom.aval for atom in equation.inputs))
        try:
            result[place] = numbers.setdefault(key, len(numbers))
        except TypeError:  # a parameter without equality
            result[place] = numbers.setdefault(place, len(numbers))
    return result


def _find_rows(program: Program, inside: set[Variable]) -> tuple[dict[Atom, Row], set[Equation]]:
    """Return the values that are entries of an array, and the equations that read them.

    The array is an input (converted or reshaped, too), or one of which several entries are read; none of `inside`.
    """
    early: set[Atom] = {*program.inputs}
    cuts: dict[Variable, list[tuple[Equation, Row]]] = {}
    for equation in program.equations:
        primitive = equation.primitive
        if primitive is slice_p or primitive is unstack_p:
            operand = equation.inputs[0]
            if type(operand) is Variable and operand not in inside:
                found = _rows_of(operand, equation)
                if found:
                    cuts.setdefault(operand, []).extend((equation, row) for row in found)
        elif primitive in _KEEPS_ENTRIES and equation.inputs[0] in early:
            early.update(equation.outputs)
    rows: dict[Atom, Row] = {}
    reads: set[Equation] = set()
    for base, each in cuts.items():
        if base in early or len({row.place for _, row in each}) >= _SEVERAL:
            for equation, row in each:
                rows[equation.outputs[row.place if len(equation.outputs) > 1 else 0]] = row
                reads.add(equation)
    for equation in program.equations if rows else ():
        entry = rows.get(equation.inputs[0]) if equation.primitive is reshape_p else None
        if entry is not None and len(entry.shape) == len(entry.base.aval.shape):
            size = entry.base.aval.shape
            if equation.params["shape"] == size[:entry.axis] + size[entry.axis + 1:]:
                rows[equation.outputs[0]] = entry._replace(shape=equation.params["shape"])
                reads.add(equation)
    return rows, reads


_SEVERAL = 4
_KEEPS_ENTRIES = frozenset((convert_element_type_p, reshape_p, transpose_p))


def _rows_of(base: Variable, equation: Equation) -> list[Row]:
    """Return the entries of `base` that an equation reads, one for each output; none if it reads something else."""
    shape, params = base.aval.shape, equation.params
    if has_symbolic_dim(*shape):
        return []
    if equation.primitive is unstack_p:
        axis = params["axis"]
        return [Row(base, axis, index, var.aval.shape) for index, var in enumerate(equation.outputs)]
    starts, limits = params["start_indices"], params["limit_indices"]
    cut = [axis for axis, size in enumerate(shape) if (starts[axis], limits[axis]) != (0, size)]
    if len(cut) != 1 or limits[cut[0]] - starts[cut[0]] != 1 or any(stride != 1 for stride in params["strides"]):
        return []
    axis = cut[0]
    return [Row(base, axis, starts[axis], (*shape[:axis], 1, *shape[axis + 1:]))]


# --- candidates ------------------------------------------------------------------------------------------------------

Candidate = tuple[int, int, int, int]
"""Equations that are saved, start, length, period."""
_DISTANCES = 4
"""Distances tried for each length of k-grams: the most frequent ones."""
_RUNS = 256
"""Stretches looked at; the longest ones."""


def _insert(candidates: list[Candidate], start: int, end: int, period: int, at_least: int) -> None:
    if end - start >= at_least * period:
        candidates.append((end - start - period, start, end - start, period))
        candidates.sort()


def _clear_part(start: int, end: int, taken: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the longest part of a stretch that overlaps none of `taken`, or None."""
    parts = [(start, end)]
    for first, last in taken:
        parts = [piece for begin, stop in parts
                 for piece in ((begin, min(stop, first)), (max(begin, last), stop)) if piece[0] < piece[1]]
    return max(parts, key=lambda part: part[1] - part[0], default=None)


def _candidates(symbols: np.ndarray[Any, Any], at_least: int) -> list[Candidate]:
    """Return the stretches of `symbols` of `at_least` so many periods, those that save the most equations last."""
    found: set[Candidate] = set()
    count = len(symbols)
    for period in _periods(symbols):
        equal = np.concatenate(([False], symbols[:count - period] == symbols[period:], [False]))
        starts, ends = np.flatnonzero(equal[1:] & ~equal[:-1]), np.flatnonzero(equal[:-1] & ~equal[1:])
        long = ends - starts >= (at_least - 1) * period
        for start, end in zip(starts[long].tolist(), ends[long].tolist(), strict=True):
            found.add((end - start, start, end - start + period, period))
    return sorted(found)[-_RUNS:]


def _periods(symbols: np.ndarray[Any, Any]) -> list[int]:
    """Return the most frequent distances between consecutive equal k-grams, for k = 1, 2, 4, ..."""
    periods: set[int] = set()
    ranks, length = symbols, 1
    while len(ranks):
        order = np.argsort(ranks, kind="stable")
        same = ranks[order[1:]] == ranks[order[:-1]]
        distances = (order[1:] - order[:-1])[same]
        if not len(distances):
            break
        # A stretch of n copies of period p has about n p such pairs.
        periods.update(distance for distance, _ in Counter(distances.tolist()).most_common(_DISTANCES))
        if len(ranks) <= length:
            break
        pairs = ranks[:-length] * (int(ranks.max()) + 1) + ranks[length:]
        ranks, length = np.unique(pairs, return_inverse=True)[1].reshape(-1), 2 * length
    return sorted(periods)


# --- data flow -------------------------------------------------------------------------------------------------------


class _Finder:
    """Compares the data flow of copies; `core` are the equations that may repeat."""

    def __init__(self, core: Sequence[Equation]) -> None:
        self._core = core
        self._made: dict[Atom, tuple[int, int]] = {
            var: (place, number) for place, equation in enumerate(core) for number, var in enumerate(equation.outputs)}
        self.work = len(core)

    def verify(self, start: int, length: int, period: int) -> tuple[int, int, BlockFlow, int]:
        """Return where equal copies begin in a stretch, how many there are, their flow, and where they stop."""
        begin = start + self._phase(start, length, period)
        count = (start + length - begin) // period
        flow, found = self._flow(begin, count, period)
        return begin, found, flow, start + length if found == count else begin + max(found, 1) * period

    def _phase(self, start: int, length: int, period: int) -> int:
        """Return the rotation of the block across whose borders the fewest values (then bytes) pass."""
        passing, sizes = [0] * (period + 1), [0] * (period + 1)
        total, total_size = 0, 0  # over all borders, for values that live longer than a period
        last: dict[Atom, int] = {}
        for place in range(start, start + length):
            inputs = self._core[place].inputs
            self.work += len(inputs)
            for atom in inputs:
                last[atom] = place
        for atom, use in last.items():
            place = self._made.get(atom, (-1, 0))[0]
            if place < start:
                continue
            size = _num_bytes(atom.aval)
            rounds, rest = divmod(use - place, period)
            total, total_size = total + rounds, total_size + rounds * size
            first = (place + 1 - start) % period
            for begin, end in ((first, min(first + rest, period)), (0, first + rest - period)):
                if begin < end:
                    passing[begin] += 1
                    passing[end] -= 1
                    sizes[begin] += size
                    sizes[end] -= size
        crossing, bytes_ = np.cumsum(passing[:period]) + total, np.cumsum(sizes[:period]) + total_size
        counts = [(length - phase) // period for phase in range(period)]
        # Per border, so that a rotation with a copy less has no advantage.
        return min(range(period), key=lambda phase: (
            -(-int(crossing[phase]) // max(counts[phase], 1)), -counts[phase], int(bytes_[phase]), phase))

    def _flow(self, begin: int, count: int, period: int) -> tuple[BlockFlow, int]:
        """Return the flow of the copies from `begin` on, up to the first one whose flow differs, and their number."""
        slots = [(place, index) for place in range(period) for index in range(len(self._core[begin + place].inputs))]
        columns: list[list[Atom]] = [[] for _ in slots]
        inner: list[Output | None] = []
        before: list[Output | None] = []
        for copy in range(count):
            first = begin + copy * period
            atoms = [atom for place in range(period) for atom in self._core[first + place].inputs]
            self.work += len(atoms)
            if len(atoms) != len(slots):
                count = copy
                break
            pairs = [self._from(atom, first, period) for atom in atoms]
            here, previous = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            if copy == 0:
                inner = here
            elif here != inner:
                count = copy
                break
            if copy == 1:
                before = previous
            elif copy > 1 and any(one is not None and one != other
                                  for one, other in zip(before, previous, strict=True)):
                count = copy
                break
            for column, atom in zip(columns, atoms, strict=True):
                column.append(atom)
        before = before or [None] * len(slots)
        return _classify(self._core[begin:begin + period], columns, inner, before), count

    def _from(self, atom: Atom, first: int, period: int) -> tuple[Output | None, Output | None]:
        """Return the output that `atom` is of the copy that begins at `first`, and that of the copy before."""
        place, number = self._made.get(atom, (-1, 0))
        if place >= first:
            return Output(place - first, number), None
        return None, Output(place - first + period, number) if place >= first - period else None


def _classify(block: Sequence[Equation], columns: Sequence[list[Atom]], inner: Sequence[Output | None],
              before: Sequence[Output | None]) -> BlockFlow:
    shared: dict[Atom, int] = {}
    carried: dict[Carry, int] = {}
    by_copy: dict[tuple[Atom, ...], int] = {}
    kinds: list[Any] = []
    for column, output, previous in zip(columns, inner, before, strict=True):
        if output is not None:
            kinds.append(output)
        elif previous is not None:
            kinds.append((1, carried.setdefault(Carry(column[0], previous), len(carried))))
        elif all(atom == column[0] for atom in column):
            kinds.append(column[0] if type(column[0]) is Literal else (0, shared.setdefault(column[0], len(shared))))
        else:
            kinds.append((2, by_copy.setdefault((*column,), len(by_copy))))
    starts = 0, len(shared), len(shared) + len(carried)
    numbered = iter(starts[kind[0]] + kind[1] if type(kind) is tuple else kind for kind in kinds)
    return BlockFlow([[next(numbered) for _ in equation.inputs] for equation in block],
                [*shared], [*carried], [*by_copy])


def _num_bytes(aval: Aval) -> int:
    size = aval.dtype.itemsize
    for extent in aval.shape:
        size *= extent if isinstance(extent, int) else 1
    return size
