"""Repeated blocks of a program as one: rolled into a `scan`, or outlined as one program that is called."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import config, dtypes
from fxgrad.engine.analyses import fusing
from fxgrad.engine.analyses.fusing import fusion_kind
from fxgrad.engine.analyses.repeat_ends import Surroundings, with_first_copy, with_last_copy
from fxgrad.engine.analyses.repeats import Output, Repeat, Repeats, Row, find_repeats, symbols_of
from fxgrad.engine.core.avals import PYTHON_SCALARS, Aval, Literal
from fxgrad.engine.core.cache_keys import cache_key
from fxgrad.engine.core.primitive import Primitive, infer_types
from fxgrad.engine.core.program import Atom, Equation, Program, Source, Variable, join_scopes
from fxgrad.engine.core.program_properties import count_equations, has_effects, memoize
from fxgrad.engine.core.regions import replace_programs
from fxgrad.engine.derivation.simplify import merge_equal_equations, remove_dead_code
from fxgrad.engine.executors.platforms import default_device
from fxgrad.engine.executors.xla import compiled_apart
from fxgrad.engine.higher_order.call import jit_call_p, named_call_p
from fxgrad.engine.higher_order.padded_sums import join_padded_sums
from fxgrad.engine.higher_order.scan import scan_p
from fxgrad.engine.ops.arithmetic import mul_p
from fxgrad.engine.ops.creation import iota_p
from fxgrad.engine.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fxgrad.engine.ops.joining import concatenate_p, stack_p
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.ops.shaping import rev_p, slice_p
from fxgrad.engine.ops.structural import broadcast_to_p, reshape_p, transpose_p

Chooser = Callable[[Repeat, "Stacks"], str]
"""(repeat, where its values by copy lie) -> "scan", "call", or "" to leave it as it is."""
_ROLES = frozenset(("body", "condition", "step", "back", "call", "inline", "recomputed", "branch"))
"""Roles of nested programs that are searched, too."""


class Way(NamedTuple):
    """How programs are rolled: the choice for each repeat of `at_least` so many copies.

    If results are joined `in_place`, loops write them into the array that they are a part of. That saves a copy where
    updates are in place, as in compiled code.
    """

    choose: Chooser
    at_least: int
    in_place: bool = False


def roll_program(program: Program, way: Way) -> Program:
    """Return an equal program in which repeated blocks are compiled once; nested ones too.

    Returns `program` itself if it has none.
    """
    return memoize(program, ("rolled", *way), lambda: _roll(program, way))


def _roll(program: Program, way: Way) -> Program:
    inner = [_with_rolled_regions(equation, way) for equation in program.equations]
    if any(new is not old for new, old in zip(inner, program.equations, strict=True)):
        program = program.replace(equations=inner)
    if any(var.aval.vma for var in program.inputs):
        return program  # what one device of a mesh runs
    # Derivatives inline named calls; so in compiled code, where nobody sees them, the others do too.
    flat = _without_named_calls(program) if way.in_place else program
    joined = join_padded_sums(merge_equal_equations(flat), way.at_least)
    found = find_repeats(joined, way.at_least)
    stacks = Stacks(found)
    joined, chosen = _choose_all(joined, found, stacks, way)
    return _Rewriting(joined, found, chosen, stacks, way).program() if chosen else program


def _without_named_calls(program: Program) -> Program:
    """Return the program with named calls inlined, in scopes of their names."""
    if not any(equation.primitive is named_call_p for equation in program.equations):
        return program
    equations: list[Equation] = []

    def inline(called: Equation, to: dict[Atom, Atom], around: Source | None) -> None:
        """Add the equations of a call; `to` has the values of its variables, `around` is the source of the call."""
        inner: Program = called.params["program"]
        env: dict[Atom, Atom] = dict(zip(inner.inputs, (to.get(atom, atom) for atom in called.inputs), strict=True))
        scope = called.params["name"] if around is None else join_scopes(around.scope, called.params["name"])
        for equation in inner.equations:
            source = equation.source.inside(scope) if equation.source is not None else (
                None if around is None else around._replace(scope=scope, origins=(), results=()))
            if equation.primitive is named_call_p:
                inline(equation, env, source)
                continue
            made = [Variable(var.aval) for var in equation.outputs]
            equations.append(Equation(equation.primitive, [env.get(atom, atom) for atom in equation.inputs],
                                      equation.params, made, source))
            env.update(zip(equation.outputs, made, strict=True))
        to.update(zip(called.outputs, (env.get(atom, atom) for atom in inner.outputs), strict=True))

    values: dict[Atom, Atom] = {}
    for equation in program.equations:
        if equation.primitive is named_call_p:
            inline(equation, values, equation.source)
        elif values:
            equations.append(equation.replace([values.get(atom, atom) for atom in equation.inputs]))
        else:
            equations.append(equation)
    return program.replace(equations=equations, outputs=[values.get(atom, atom) for atom in program.outputs])


def _with_rolled_regions(equation: Equation, way: Way) -> Equation:
    if equation.primitive.regions is None:
        return equation
    regions = equation.regions
    programs = [roll_program(region.program, way) if region.role in _ROLES else region.program for region in regions]
    if all(new is region.program for new, region in zip(programs, regions, strict=True)):
        return equation
    return equation.replace(equation.inputs, replace_programs(equation.params, regions, programs))


def merge_equal_numbers(program: Program, captured: Sequence[Any]) -> tuple[Program, list[Any]]:
    """Return the program with one input for all captured numbers that are equal, and its captured values.

    Each number in the code is an input of its own, since other calls may have another one there. So copies of a block
    would read different inputs for the same number. The program is memoized by which numbers are equal.
    """
    first: dict[Any, int] = {}
    pattern = tuple([
        first.setdefault((var.aval, cache_key(value)), index)
        if type(value) in PYTHON_SCALARS or isinstance(value, np.generic) else index
        for index, (var, value) in enumerate(zip(program.inputs, captured, strict=False))])
    kept = [index for index, same in enumerate(pattern) if index == same]
    if len(kept) == len(pattern):
        return program, [*captured]

    def merged() -> Program:
        to: dict[Atom, Atom] = {program.inputs[index]: program.inputs[same]
                                for index, same in enumerate(pattern) if index != same}
        equations = [equation if to.keys().isdisjoint(equation.inputs) else
                     equation.replace([to.get(atom, atom) for atom in equation.inputs])
                     for equation in program.equations]
        return program.replace(
            inputs=[*(program.inputs[index] for index in kept), *program.inputs[len(pattern):]], equations=equations,
            outputs=[to.get(atom, atom) for atom in program.outputs], captured=len(kept))
    return memoize(program, ("equal numbers", pattern), merged), [captured[index] for index in kept]


class Run(NamedTuple):
    """Entries `first`, `first + step`, ... of an array along an axis, one for each copy; `step` is 1 or -1."""

    base: Variable
    axis: int
    first: int
    step: int

    def is_whole(self, order: _Order) -> bool:
        """Return whether a loop in this order takes the array as it is."""
        return self.axis == 0 and self.base.aval.shape[0] == order.length and (self.step > 0) == order.forward


class _Order(NamedTuple):
    """The number of copies, and whether a loop over them counts up."""

    length: int
    forward: bool

    def of_copies(self, first: int, step: int) -> tuple[int, int]:
        """Return first number and difference, by index, of numbers that are `first + step * copy`."""
        return (first, step) if self.forward else (first + step * (self.length - 1), -step)


class Stacks:
    """Where the values lie that differ by copy: as entries of one array, or apart.

    Loops stack what they compute: `note` enters their repeats.
    """

    def __init__(self, found: Repeats) -> None:
        self.rows = found.rows
        self._loops: list[Repeat] = []
        self._made: dict[Atom, tuple[int, Output, int]] = {}
        self._entered: dict[Atom, list[tuple[int, int, int]]] = {}

    def note(self, repeat: Repeat, how: str, again: Repeat | None = None) -> str:
        """Note the choice for a repeat, in place of that for `again`; return it."""
        if how == "scan":
            if again is None:
                self._loops.append(repeat)
            loop = len(self._loops) - 1 if again is None else next(
                number for number, other in enumerate(self._loops) if other is again)
            self._loops[loop] = repeat
            for copy, equations in enumerate(repeat.copies):
                for place, equation in enumerate(equations):
                    self._made.update((var, (loop, Output(place, number), copy))
                                      for number, var in enumerate(equation.outputs))
                for number in range(len(repeat.flow.carried)):
                    self._entered.setdefault(_entering(repeat, number, copy), []).append((loop, number, copy))
        return how

    def states_of(self, column: Sequence[Atom]) -> tuple[Repeat, int] | None:
        """Return the loop and the carried value whose states before each copy are the values, if nothing else is."""
        run = self._run_of_states(column) if self.place_of(column) == "states" else None
        return None if run is None else (self._loops[run[0]], run[1])

    def _run_of_states(self, column: Sequence[Atom]) -> tuple[int, int, list[int], int] | None:
        """Return the loop, the carried value, the copies and the step between them, if the values enter its copies."""
        for loop, number, copy in self._entered.get(column[0], ()):
            repeat = self._loops[loop]
            for step in (1, -1):
                copies = [*range(copy, copy + step * len(column), step)]
                if all(0 <= each < len(repeat.copies) and _entering(repeat, number, each) is atom
                       for each, atom in zip(copies, column, strict=True)):
                    return loop, number, copies, step
        return None

    def are_stacked(self, repeat: Repeat) -> bool:
        """Return whether all values that differ by copy are scalars, or the entries of one array, in order or reverse.

        Such an array is one that the caller has, or that a loop of the copies of another block makes.
        """
        return all(map(self.place_of, repeat.flow.by_copy))

    def place_of(self, column: Sequence[Atom]) -> str:
        """Return where the values of one input lie in a row: as "scalars", "rows", "results", "states"; or ""."""
        if not column[0].aval.shape:
            return "scalars"
        if run_of_rows(self._rows_of(column)) is not None:
            return "rows"
        if self._run_of_results(column) is not None:
            return "results"
        return "" if self._run_of_states(column) is None else "states"

    def _rows_of(self, column: Sequence[Atom]) -> list[Row | None]:
        return [self.rows.get(atom) for atom in column]

    def _run_of_results(self, column: Sequence[Atom]) -> tuple[int, Output, list[int], int] | None:
        """Return the loop, its output, the copies and the step between them, if the values are results of a loop."""
        made = [self._made.get(atom) for atom in column]
        first = made[0]
        if first is None or any(each is None or each[:2] != first[:2] for each in made):
            return None
        copies = [each[2] for each in made if each is not None]
        step = _step_of(copies)
        return None if step is None else (*first[:2], copies, step)

    def guess(self, column: Sequence[Atom], side: int) -> Atom | None:
        """Return the value after the last one of a column (`side` is 1), or before the first (-1), if it is known."""
        run = run_of_rows(self._rows_of(column))
        if run is not None:
            index = run.first + run.step * (len(column) if side > 0 else -1)
            row = self.rows[column[0]]
            if not 0 <= index < run.base.aval.shape[run.axis]:
                return None
            var = Variable(column[0].aval)
            self.rows[var] = row._replace(place=index)
            return var
        results = self._run_of_results(column)
        if results is not None:  # not as states, too: then a loop would stack both
            loop, output, copies, step = results
            index = copies[-1] + step if side > 0 else copies[0] - step
            known = self._loops[loop].copies
            return _output_of(known[index], output) if 0 <= index < len(known) else None
        states = self._run_of_states(column)
        if states is not None:
            loop, number, copies, step = states
            index = copies[-1] + step if side > 0 else copies[0] - step
            return _entering(self._loops[loop], number, index) if 0 <= index < len(self._loops[loop].copies) else None
        return None

    def reads_itself(self, repeat: Repeat) -> bool:
        """Return whether copies read values of other copies than the one before."""
        made = {var for equations in repeat.copies for equation in equations for var in equation.outputs}
        return any(not made.isdisjoint(column) for column in repeat.flow.by_copy)


def _entering(repeat: Repeat, number: int, copy: int) -> Atom:
    """Return a carried value as it enters a copy."""
    carry = repeat.flow.carried[number]
    return _output_of(repeat.copies[copy - 1], carry.output) if copy else carry.first


def _step_of(places: Sequence[int]) -> int | None:
    """Return 1 or -1 if the numbers go up or down by one, or None."""
    for step in (1, -1):
        if all(other - one == step for one, other in itertools.pairwise(places)):
            return step
    return None


def run_of_rows(rows: Sequence[Row | None]) -> Run | None:
    """Return the run that entries are, or None."""
    first = rows[0]
    if first is None or any(row is None or row[:2] != first[:2] or row.shape != first.shape for row in rows):
        return None
    step = _step_of([row.place for row in rows if row is not None])
    return None if step is None else Run(first.base, first.axis, first.place, step)


# --- ends ------------------------------------------------------------------------------------------------------------

Chosen = list[tuple[Repeat, str]]
_ENDS = 2
"""Partial copies that are taken into a loop at each end, at most."""


def _choose_all(program: Program, found: Repeats, stacks: Stacks, way: Way) -> tuple[Program, Chosen]:
    """Return the chosen repeats with partial copies at the ends of loops, and the program in an order for them."""
    if has_effects(program) or not found.repeats:  # effects keep their order
        chosen = [(repeat, stacks.note(repeat, way.choose(repeat, stacks))) for repeat in found.repeats]
        return program, [each for each in chosen if each[1]]
    reads = _reads(program, stacks.rows)
    core = [equation for equation in program.equations if equation not in reads]
    around = Surroundings(core, symbols_of(core).tolist(), {
        equation for repeat in found.repeats for equations in repeat.copies for equation in equations})
    fillers: list[Equation] = []

    def zeros(aval: Aval) -> Atom | None:
        if dtypes.is_key(aval.dtype):
            return None
        zero = Literal(0, Aval((), aval.dtype))
        if aval.shape:
            var = Variable(Aval(aval.shape, aval.dtype))
            fillers.append(Equation(broadcast_to_p, [zero], {"shape": aval.shape}, [var]))
            return var
        return Literal(0, aval)

    ordered: list[Equation] | None = None
    chosen = [(repeat, "scan") for repeat in found.repeats]  # those to come in one place, as if all were loops
    for number, repeat in enumerate(found.repeats):
        how = stacks.note(repeat, way.choose(repeat, stacks))
        chosen[number] = repeat, how
        for extend in (with_first_copy, with_last_copy) * _ENDS if how == "scan" else ():
            longer = extend(repeat, around, stacks.guess, zeros)
            if longer is None or stacks.reads_itself(longer):
                continue
            pairs = zip(repeat.flow.by_copy, longer.flow.by_copy, strict=True)
            if any(stacks.place_of(old) not in ("", stacks.place_of(new)) for old, new in pairs):
                continue  # something would have to be stacked, or a loop would stack the same states twice
            chosen_then = [*chosen[:number], (longer, how), *chosen[number + 1:]]
            order = _ordered(core, stacks.rows, chosen_then)
            if order is not None:
                stacks.note(longer, how, again=repeat)
                chosen, ordered, repeat = chosen_then, order, longer  # noqa: PLW2901
                around.taken.update(equation for equations in longer.copies for equation in equations)
    chosen = [each for each in chosen if each[1]]
    if ordered is None:
        return program, chosen
    in_order = [*(each for each in program.equations if each in reads), *fillers, *ordered]
    return program.replace(equations=in_order), chosen


def _reads(program: Program, rows: dict[Atom, Row]) -> set[Equation]:
    """Return the equations that read entries of arrays and nothing else."""
    return {equation for equation in program.equations if equation.outputs[:1] and equation.outputs[0] in rows}


def _ordered(equations: Sequence[Equation], rows: dict[Atom, Row], chosen: Chosen) -> list[Equation] | None:
    """Return the equations in an order in which loops, and calls, stand in one place; None if there is none.

    It is the given order as far as possible.
    """
    position = {equation: place for place, equation in enumerate(equations)}
    groups: list[list[Equation]] = []
    for repeat, how in chosen:
        if how:
            groups += [[each for copy in repeat.copies for each in copy]] if how == "scan" else repeat.copies
    node: dict[Equation, int] = {equation: number for number, group in enumerate(groups) for equation in group}
    for equation in equations:
        if equation not in node:
            node[equation] = len(groups)
            groups.append([equation])
    maker: dict[Atom, int] = {var: node[equation] for equation in node for var in equation.outputs}
    after: list[list[int]] = [[] for _ in groups]
    missing = [0] * len(groups)
    for number, group in enumerate(groups):
        read = {atom for equation in group for atom in equation.inputs}
        read = {rows[atom].base if atom in rows else atom for atom in read}
        for before in {maker[atom] for atom in read if atom in maker} - {number}:
            after[before].append(number)
            missing[number] += 1
    priority = [max(position.get(equation, -1) for equation in group) for group in groups]
    ready = [(priority[number], number) for number, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    result: list[Equation] = []
    count = 0
    while ready:
        _, number = heapq.heappop(ready)
        result += groups[number]
        count += 1
        for other in after[number]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (priority[other], other))
    return result if count == len(groups) else None


class _Rewriting:
    """One rewriting: the new equations, and values that are entries of arrays until somebody reads them alone."""

    def __init__(self, program: Program, found: Repeats, chosen: Sequence[tuple[Repeat, str]], stacks: Stacks,
                 way: Way) -> None:
        self._program, self._chosen, self._way = program, chosen, way
        self._states: set[tuple[int, int]] = set()  # loops and carried values whose states are stacked
        self._state_rows: dict[Atom, Row] = {}
        self._by_state: set[tuple[Atom, ...]] = set()
        for repeat, how in chosen:
            for column in repeat.flow.by_copy if how == "scan" else ():
                states = stacks.states_of(column)
                if states is not None:
                    self._states.add((id(states[0]), states[1]))
                    self._by_state.add(column)
        self._equations: list[Equation] = []
        self._rows = dict(found.rows)
        self._read: set[Atom] = set()
        self._source: Source | None = None
        self._last: dict[Equation, tuple[int, int]] = {}
        self._inside: set[Equation] = set()
        for number, (repeat, _) in enumerate(chosen):
            for copy, equations in enumerate(repeat.copies):
                self._last[equations[-1]] = number, copy
                self._inside.update(equations)
        self._reads = _reads(program, found.rows)
        self._used = self._used_outside()
        self._blocks: dict[int, tuple[Program, list[Output]]] = {}
        self._readers = self._readers_of_copies() if way.in_place else {}
        self._filled: dict[Equation, tuple[Variable, range]] = {}

    def _used_outside(self) -> set[Atom]:
        """Return the values that are read outside of the copies, or by a copy that is not the next one."""
        used: set[Atom] = {*self._program.outputs}
        for equation in self._program.equations:
            if equation not in self._inside:
                used.update(equation.inputs)
        for repeat, how in self._chosen:
            flow = repeat.flow
            used.update(flow.shared, (carry.first for carry in flow.carried),
                        *(column for column in flow.by_copy if how == "call" or column not in self._by_state))
        used.update(row.base for row in self._rows.values())
        return used

    def _readers_of_copies(self) -> dict[Atom, list[Equation | None]]:
        """Return for each value that a copy computes the equations outside of that copy that read it.

        None stands for the outputs of the program.
        """
        place: dict[Equation, tuple[int, int]] = {}
        readers: dict[Atom, list[Equation | None]] = {}
        maker: dict[Atom, tuple[int, int]] = {}
        for number, (repeat, _) in enumerate(self._chosen):
            for copy, equations in enumerate(repeat.copies):
                for equation in equations:
                    place[equation] = number, copy
                    maker.update((var, (number, copy)) for var in equation.outputs)
        for equation in self._program.equations:
            for atom in equation.inputs:
                if atom in maker and maker[atom] != place.get(equation):
                    readers.setdefault(atom, []).append(equation)
        for atom in self._program.outputs:
            readers.setdefault(atom, []).append(None)
        return readers

    def program(self) -> Program:
        """Return the rewritten program."""
        for equation in self._program.equations:
            ended = self._last.get(equation)
            if ended is not None:
                self._end_of_copy(*ended)
            elif equation not in self._inside and equation not in self._reads:
                self._outside(equation)
        for atom in self._program.outputs:
            self._value(atom)
        return remove_dead_code(self._program.replace(equations=self._equations))

    def _end_of_copy(self, number: int, copy: int) -> None:
        repeat, how = self._chosen[number]
        self._source = _outer_source(repeat.copies[copy][0].source)
        if how == "call":
            self._call(number, copy)
        elif copy == len(repeat.copies) - 1:
            self._scan(number)

    def _outside(self, equation: Equation) -> None:
        self._source = equation.source
        if equation in self._filled:
            self._fill(equation, *self._filled[equation])
        elif equation.primitive is reshape_p and equation.inputs[0] in self._rows:
            row = self._rows[equation.inputs[0]]
            self._rows[equation.outputs[0]] = row._replace(shape=equation.params["shape"])
        elif equation.primitive in (concatenate_p, stack_p):
            self._join(equation)
        else:
            self._equations.append(equation.replace([self._value(atom) for atom in equation.inputs]))

    # --- values ------------------------------------------------------------------------------------------------------

    def _bind(self, primitive: Primitive, inputs: list[Atom], params: dict[str, Any],
              outputs: list[Variable] | None = None) -> list[Variable]:
        made = outputs or [Variable(aval) for aval in infer_types(primitive, [atom.aval for atom in inputs], params)]
        self._equations.append(Equation(primitive, inputs, params, made, self._source))
        return made

    def _value(self, atom: Atom) -> Atom:
        """Return the value, read from the array that it is an entry of, if it is one and was not read before."""
        row = self._rows.get(atom)
        if row is None or atom in self._read:
            return atom
        self._read.add(atom)
        assert type(atom) is Variable
        size = row.base.aval.shape
        starts, limits = [0] * len(size), [*size]
        starts[row.axis], limits[row.axis] = row.place, row.place + 1
        entry: Variable | None = atom if len(atom.aval.shape) == len(size) and row.shape == (
            *size[:row.axis], 1, *size[row.axis + 1:]) else None
        params = {"start_indices": (*starts,), "limit_indices": (*limits,), "strides": (1,) * len(size)}
        cut, = self._bind(slice_p, [self._value(row.base)], params, None if entry is None else [entry])
        if entry is None:
            self._bind(reshape_p, [cut], {"shape": row.shape}, [atom])
        return atom

    def _stacked(self, run: Run, count: int, shape: tuple[int, ...], forward: bool) -> Atom:
        """Return the entries of a run along a first axis, in the order of copies if `forward`, else in reverse."""
        base, size = self._value(run.base), run.base.aval.shape
        low = min(run.first, run.first + run.step * (count - 1))
        if count != size[run.axis]:
            starts, limits = [0] * len(size), [*size]
            starts[run.axis], limits[run.axis] = low, low + count
            base, = self._bind(slice_p, [base], {"start_indices": (*starts,), "limit_indices": (*limits,),
                                                 "strides": (1,) * len(size)})
        if run.axis:
            order = (run.axis, *(axis for axis in range(len(size)) if axis != run.axis))
            base, = self._bind(transpose_p, [base], {"permutation": order})
        if base.aval.shape != (count, *shape):
            base, = self._bind(reshape_p, [base], {"shape": (count, *shape)})
        if (run.step > 0) != forward:
            base, = self._bind(rev_p, [base], {"dimensions": (0,)})
        return base

    def _join(self, equation: Equation) -> None:
        """Join arrays by concatenation or as a stack; entries of one array in a row are one piece of it."""
        is_stack, axis = _joining_of(equation)
        atoms = equation.inputs
        pieces = self._pieces(atoms, axis, is_stack)
        if len(pieces) == len(atoms):
            self._equations.append(equation.replace([self._value(atom) for atom in atoms]))
        elif len(pieces) == 1:  # an equation of its own, which binds the output
            self._bind(reshape_p, pieces, {"shape": equation.outputs[0].aval.shape}, equation.outputs)
        else:
            self._bind(concatenate_p, pieces, {"dimension": axis}, equation.outputs)

    def _pieces(self, atoms: Sequence[Atom], axis: int, is_stack: bool) -> list[Atom]:
        """Return arrays whose concatenation joins `atoms`."""
        pieces: list[Atom] = []
        begin = 0
        while begin < len(atoms):
            end, found = begin + 1, None
            while end < len(atoms):
                run = run_of_rows([self._rows.get(atom) for atom in atoms[begin:end + 1]][-2:])
                if run is None or (found is not None and run.step != found.step):
                    break
                found = found or run
                end += 1
            if found is None:
                piece = self._value(atoms[begin])
                if is_stack:
                    shape = piece.aval.shape
                    piece, = self._bind(reshape_p, [piece], {"shape": (*shape[:axis], 1, *shape[axis:])})
            else:
                piece = self._joined_run(found, end - begin, atoms[begin].aval.shape, axis, is_stack)
            pieces.append(piece)
            begin = end
        return pieces

    def _fill(self, equation: Equation, whole: Variable, covered: range) -> None:
        """Write the arrays that the equation joins, but those that a loop has written, into the array of the loop."""
        is_stack, axis = _joining_of(equation)
        atoms = equation.inputs
        size = 1 if is_stack else atoms[covered[0]].aval.shape[0]
        before = self._pieces(atoms[:covered[0]], axis, is_stack)
        after = self._pieces(atoms[covered[-1] + 1:], axis, is_stack)
        row = 0
        for number, piece in enumerate((*before, *after), 1):
            if number == len(before) + 1:
                row += size * len(covered)
            is_last = number == len(before) + len(after)
            whole, = self._bind(dynamic_update_slice_p, [whole, piece, *_starts(whole.aval, row)], {},
                                equation.outputs if is_last else None)
            row += piece.aval.shape[0]

    def _joined_run(self, run: Run, count: int, shape: tuple[int, ...], axis: int, is_stack: bool) -> Atom:
        whole = self._stacked(run, count, shape, forward=True)
        if axis:
            order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1))
            whole, = self._bind(transpose_p, [whole], {"permutation": order})
        if not is_stack:
            whole, = self._bind(reshape_p, [whole], {
                "shape": (*shape[:axis], count * shape[axis], *shape[axis + 1:])})
        return whole

    # --- blocks ------------------------------------------------------------------------------------------------------

    def _call(self, number: int, copy: int) -> None:
        """Call the block for one copy."""
        repeat = self._chosen[number][0]
        flow = repeat.flow
        if number not in self._blocks:
            carried = dict.fromkeys(carry.output for carry in flow.carried)
            wanted = [output for output in _all_outputs(repeat) if output in carried or any(
                _output_of(equations, output) in self._used for equations in repeat.copies)]
            self._blocks[number] = roll_program(_block(repeat, wanted), self._way), wanted
            compiled_apart.put(self._blocks[number][0], True)
        block, wanted = self._blocks[number]
        before = [carry.first if copy == 0 else _output_of(repeat.copies[copy - 1], carry.output)
                  for carry in flow.carried]
        inputs = [self._value(atom) for atom in (*flow.shared, *before, *(column[copy] for column in flow.by_copy))]
        self._bind(jit_call_p, inputs, {"program": block, "name": _name_of(repeat)},
                   [_output_of(repeat.copies[copy], output) for output in wanted])

    def _scan(self, number: int) -> None:
        """Run all copies of the block in one loop."""
        repeat = self._chosen[number][0]
        flow, count = repeat.flow, len(repeat.copies)
        carried = [carry.output for carry in flow.carried]
        stacked = [output for output in _all_outputs(repeat) if any(
            _output_of(equations, output) in self._used
            for equations in (repeat.copies[:-1] if output in carried else repeat.copies))]
        runs = [run_of_rows([(self._state_rows if column in self._by_state else self._rows).get(atom)
                             for atom in column]) for column in flow.by_copy]
        states = [place for place in range(len(carried)) if (id(repeat), place) in self._states]
        steps = [run.step for run in runs if run is not None]
        order = _Order(count, not steps or sum(steps) >= 0)
        parts = [(output, part) for output in stacked if (part := self._part_of(repeat, output)) is not None]
        apart = {output for output, _ in parts}
        stacked = [output for output in stacked if output not in apart]
        block = roll_program(_block(repeat, [*carried, *stacked, *(output for output, _ in parts)]), self._way)
        body = _Body(block, len(flow.shared), len(flow.carried), order)
        consts: list[Atom] = [*map(self._value, flow.shared)]
        xs: list[Atom] = []
        for var, run, column in zip(body.by_copy, runs, flow.by_copy, strict=True):
            if run is None:
                values = [self._value(atom) for atom in (column if order.forward else column[::-1])]
                xs += self._bind(stack_p, values, {"axis": 0})
            elif self._way.in_place and not run.is_whole(order):
                consts.append(self._value(run.base))
                body.read(var, run)
                continue
            else:
                xs.append(self._stacked(run, count, column[0].aval.shape, order.forward))
            body.xs.append(var)
        carry = [self._value(carry.first) for carry in flow.carried]
        final: list[Variable] = []
        for output in carried:
            var = _output_of(repeat.copies[-1], output)
            final.append(Variable(var.aval) if var in final else var)
        for (_, part), value in zip(parts, block.outputs[len(carried) + len(stacked):], strict=True):
            joined = part.joined.outputs[0]
            carry += self._bind(broadcast_to_p, [Literal(0, Aval((), joined.aval.dtype))], {"shape": joined.aval.shape})
            body.write(value, part)
            final.append(joined if len(part.covered) == len(part.joined.inputs) else Variable(joined.aval))
            self._filled[part.joined] = final[-1], part.covered
        xs += [self._numbers(first, step, count) for first, step in body.places]
        entering = [block.inputs[len(flow.shared) + place] for place in states]
        stacks = [Variable(atom.aval.update(shape=(count, *atom.aval.shape)))
                  for atom in (*block.outputs[len(carried):len(carried) + len(stacked)], *entering)]
        self._bind(scan_p, [*consts, *carry, *xs], {
            "program": body.program(len(stacked), entering), "length": count, "reverse": not order.forward, "unroll": 1,
            "num_consts": len(consts), "num_carry": len(carry)}, [*final, *stacks])
        for place, stack in zip(states, stacks[len(stacked):], strict=True):
            for copy in range(count):
                atom = _entering(repeat, place, copy)
                self._state_rows[atom] = Row(stack, 0, copy if order.forward else count - 1 - copy, atom.aval.shape)
        ended = {*final}
        for output, stack in zip(stacked, stacks, strict=False):
            for copy, equations in enumerate(repeat.copies):
                var = _output_of(equations, output)
                if var not in ended:
                    self._rows[var] = Row(stack, 0, copy if order.forward else count - 1 - copy, var.aval.shape)

    def _numbers(self, first: int, step: int, count: int) -> Atom:
        """Return `first`, `first + step`, ..., in int32."""
        numbers, = self._bind(iota_p, [], {"dtype": np.dtype(np.int32), "shape": (count,), "dimension": 0})
        if step != 1:
            numbers, = self._bind(mul_p, [numbers, _int32(step)], {})
        return self._bind(add_p, [numbers, _int32(first)], {})[0] if first else numbers

    def _part_of(self, repeat: Repeat, output: Output) -> _Part | None:
        """Return the array that the values of an output by copy are joined to, if nothing else reads them."""
        values = [_output_of(equations, output) for equations in repeat.copies]
        readers = [self._readers.get(value, ()) for value in values]
        joined = readers[0][0] if readers[0] else None
        if joined is None or any([*each] != [joined] for each in readers) or joined in self._inside or (
                joined in self._filled or joined.primitive not in (concatenate_p, stack_p)):
            return None
        is_stack, axis = _joining_of(joined)
        places = {atom: place for place, atom in enumerate(joined.inputs)}
        covered = [places[value] for value in values]
        step = _step_of(covered)
        if axis or step is None or joined.outputs[0].aval.weak or len(places) != len(joined.inputs):
            return None
        before = joined.inputs[:min(covered)]
        first = len(before) if is_stack else sum(atom.aval.shape[0] for atom in before)
        return _Part(joined, range(min(covered), max(covered) + 1), step, first, is_stack,
                     1 if is_stack else values[0].aval.shape[0])


class _Part(NamedTuple):
    """Values by copy that are the inputs at `covered` of the equation `joined`, in order or in reverse (`step`).

    They begin at row `first` of its result, and each has `size` rows.
    """

    joined: Equation
    covered: range
    step: int
    first: int
    is_stack: bool
    size: int


def _joining_of(equation: Equation) -> tuple[bool, int]:
    """Return whether an equation stacks, and the axis along which it joins."""
    is_stack = equation.primitive is stack_p
    return is_stack, equation.params["axis" if is_stack else "dimension"]


def _int32(number: int) -> Literal:
    return Literal(number, Aval((), np.dtype(np.int32)))


def _starts(aval: Aval, row: Atom | int, axis: int = 0) -> list[Atom]:
    """Return the operands that say where a window begins: at a row along an axis."""
    starts: list[Atom] = [_int32(0)] * len(aval.shape)
    starts[axis] = _int32(row) if isinstance(row, int) else row
    return starts


class _Body:
    """The body of a loop over copies: the block, with entries that it reads and writes by number.

    `by_copy` are the inputs of the block that differ by copy, `xs` those that are entries of stacks. `places` are the
    first number and the difference of further scanned numbers.
    """

    def __init__(self, block: Program, num_shared: int, num_carried: int, order: _Order) -> None:
        self._block, self._order = block, order
        self._shared, self._carried = block.inputs[:num_shared], block.inputs[num_shared:num_shared + num_carried]
        self.by_copy = block.inputs[num_shared + num_carried:]
        self.xs: list[Variable] = []
        self.places: dict[tuple[int, int], Variable] = {}
        self._bases: list[Variable] = []
        self._wholes: list[Variable] = []
        self._written: list[Atom] = []
        self._before: list[Equation] = []
        self._after: list[Equation] = []

    def _place(self, first: int, step: int) -> Variable:
        """Return the scanned number that is `first + step * copy`."""
        key = self._order.of_copies(first, step)
        return self.places.setdefault(key, Variable(_int32(0).aval))

    def read(self, var: Variable, run: Run) -> None:
        """Read an input of the block from an array that is passed whole."""
        base = Variable(run.base.aval)
        self._bases.append(base)
        sizes = (*base.aval.shape[:run.axis], 1, *base.aval.shape[run.axis + 1:])
        cut = Variable(base.aval.update(shape=sizes))
        starts = _starts(base.aval, self._place(run.first, run.step), run.axis)
        self._before.append(Equation(dynamic_slice_p, [base, *starts], {"slice_sizes": sizes}, [cut]))
        self._before.append(Equation(reshape_p, [cut], {"shape": var.aval.shape}, [var]))

    def write(self, value: Atom, part: _Part) -> None:
        """Write an output of the block into an array that is carried."""
        whole = part.joined.outputs[0].aval
        source = part.joined.source
        if part.is_stack:
            row = Variable(value.aval.update(shape=(1, *value.aval.shape)))
            self._after.append(Equation(reshape_p, [value], {"shape": row.aval.shape}, [row], source))
            value = row
        first = part.first if part.step > 0 else part.first + part.size * (self._order.length - 1)
        before, after = Variable(whole), Variable(whole)
        self._wholes.append(before)
        self._written.append(after)
        self._after.append(Equation(dynamic_update_slice_p, [
            before, value, *_starts(whole, self._place(first, part.size * part.step))], {}, [after], source))

    def program(self, num_stacked: int, entering: Sequence[Atom]) -> Program:
        """Return the program of the body, which stacks so many outputs of the block, and carried values that enter."""
        count = len(self._carried)
        outputs = self._block.outputs
        return Program([*self._shared, *self._bases, *self._carried, *self._wholes, *self.xs, *self.places.values()],
                       [*self._before, *self._block.equations, *self._after],
                       [*outputs[:count], *self._written, *outputs[count:count + num_stacked], *entering])


def _output_of(copy: Sequence[Equation], output: Output) -> Variable:
    return copy[output.place].outputs[output.number]


def _all_outputs(repeat: Repeat) -> list[Output]:
    return [Output(place, number) for place, equation in enumerate(repeat.block)
            for number in range(len(equation.outputs))]


def _block(repeat: Repeat, wanted: Sequence[Output]) -> Program:
    """Return the program of one copy: (shared, carried, values of the copy) -> `wanted`."""
    flow = repeat.flow
    inputs = [Variable(atom.aval) for atom in (*flow.shared, *(carry.first for carry in flow.carried),
                                               *(column[0] for column in flow.by_copy))]
    made: list[list[Variable]] = []
    equations: list[Equation] = []
    scopes = _scopes(repeat)
    for equation, operands, scope in zip(repeat.block, flow.operands, scopes, strict=True):
        atoms: list[Atom] = [inputs[each] if isinstance(each, int) else
                             each if isinstance(each, Literal) else made[each.place][each.number] for each in operands]
        made.append([Variable(var.aval) for var in equation.outputs])
        source = equation.source
        if source is not None:
            source = source._replace(scope=scope, origins=())
        equations.append(Equation(equation.primitive, atoms, equation.params, made[-1], source))
    return remove_dead_code(Program(inputs, equations, [made[output.place][output.number] for output in wanted]))


def _scopes(repeat: Repeat) -> list[str]:
    """Return the scope of each equation of the block: the names that all copies have in common."""
    result = []
    for place, equation in enumerate(repeat.block):
        scopes = {copy[place].scope for copy in repeat.copies} if equation.scope else {""}
        parts = [scope.split("/") for scope in scopes]
        is_regular = len({len(names) for names in parts}) == 1
        result.append("/".join(names[0] for names in zip(*parts, strict=True) if len({*names}) == 1) if is_regular
                      else "")
    return result


def _outer_source(source: Source | None) -> Source | None:
    """Return the source of a call of a block: its first line, outside of its scopes."""
    return None if source is None else source._replace(scope="", origins=(), results=())


def _name_of(repeat: Repeat) -> str:
    """Return the name of a block: that of the function whose line begins it."""
    source = repeat.block[0].source
    name = "" if source is None else source.code.co_name
    return f"{name}_block" if name.isidentifier() else "block"


# --- choices ---------------------------------------------------------------------------------------------------------


def _choose(repeat: Repeat, stacks: Stacks) -> str:
    """Choose a scan where nothing has to be stacked for it, and else calls."""
    return "scan" if not stacks.reads_itself(repeat) and stacks.are_stacked(repeat) else "call"


choose_by_hand: dict[str | None, Chooser] = {
    None: _choose,
    "scan": lambda repeat, stacks: "call" if stacks.reads_itself(repeat) else "scan",
    "call": lambda repeat, stacks: "call",
}
"""The choice of a loop or of calls, by the argument of `roll`."""

_FEWEST_COPIES = 4
_SMALLEST_BLOCK = 12
"""In equations, nested ones included. An iteration takes about a microsecond, and so does a call; XLA may compute many
copies of a smaller block at once, unless it has operations that are not fused."""
_OWN_KERNELS = frozenset((fusing.DOT, fusing.CONVOLUTION, fusing.KERNEL))
_KERNEL_SIZE = 12
"""What an operation of its own kernel counts for."""
_LEAST_SAVED = 150
"""Equations that are not compiled: fewer take XLA less than a tenth of a second."""


def _choose_for_jit(repeat: Repeat, stacks: Stacks) -> str:
    size = sum(_KERNEL_SIZE if fusion_kind(equation) in _OWN_KERNELS else
               1 + sum(map(count_equations, equation.programs)) for equation in repeat.block)
    pays = size >= _SMALLEST_BLOCK and size * (len(repeat.copies) - 1) >= _LEAST_SAVED
    return _choose(repeat, stacks) if pays else ""


def may_roll(program: Program) -> bool:
    """Return whether a program is large enough for `jit` to search it for repeated blocks.

    Only on CPUs: elsewhere calls are inlined, and an iteration of a loop may take longer than the kernels of a block.
    """
    return count_equations(program) > _LEAST_SAVED and config.roll_repeats and default_device().platform == "cpu"


def roll_where_it_pays(program: Program) -> Program:
    """Return the program as `jit` compiles it: rolled where compilation is predicted to take less, and a call no more.

    A scan is chosen where all values that differ by copy lie stacked, and else calls of one function. The program
    itself is returned if it is small, after looking at its length alone.
    """
    return roll_program(program, Way(_choose_for_jit, _FEWEST_COPIES, in_place=True)) if may_roll(program) else program
