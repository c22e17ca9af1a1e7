"""Programs with repeats as loops and calls: the new equations, and blocks as programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.analyses.fusing import CHEAP, fusion_kind
from fxgrad.engine.analyses.repeats import BlockFlow, Output, Repeat, Repeats, Row
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Primitive, infer_types
from fxgrad.engine.core.program import Atom, Equation, Program, Source, Variable
from fxgrad.engine.derivation.simplify import remove_dead_code
from fxgrad.engine.executors.xla import compiled_apart
from fxgrad.engine.higher_order.call import jit_call_p
from fxgrad.engine.higher_order.repeat_stacks import (
    Order,
    Run,
    Stacks,
    output_of,
    reads_of,
    run_of_rows,
    state_entering,
    step_of,
)
from fxgrad.engine.higher_order.scan import scan_p
from fxgrad.engine.ops.arithmetic import mul_p
from fxgrad.engine.ops.creation import iota_p
from fxgrad.engine.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fxgrad.engine.ops.joining import concatenate_p, stack_p
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.ops.shaping import rev_p, slice_p
from fxgrad.engine.ops.structural import broadcast_to_p, reshape_p, transpose_p

_MOST_AGAIN = 4
"""Operations that are computed again in place of a result that is stored, at most."""


class Rewriting:
    """One rewriting: the new equations, and values that are entries of arrays until somebody reads them alone."""

    def __init__(self, program: Program, found: Repeats, chosen: Sequence[tuple[Repeat, str]], stacks: Stacks,
                 roll: Callable[[Program], Program], in_place: bool) -> None:
        self._program, self._chosen, self._roll, self._in_place = program, chosen, roll, in_place
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
        self._final_rows: dict[Atom, Row] = {}  # of final carried values, which are the last entries of stacks, too
        self._read: set[Atom] = set()
        self._source: Source | None = None
        self._last: dict[Equation, tuple[int, int]] = {}
        self._inside: set[Equation] = set()
        for number, (repeat, _) in enumerate(chosen):
            for copy, equations in enumerate(repeat.copies):
                self._last[equations[-1]] = number, copy
                self._inside.update(equations)
        self._reads = reads_of(program, found.rows)
        self._derived: list[dict[int, _Derived]] = [{} for _ in chosen]
        self._used = self._used_outside()
        if in_place:
            self._derived = self._derivable()
            self._used = self._used_outside()
        self._blocks: dict[int, tuple[Program, list[Output]]] = {}
        self._readers = self._readers_of_copies() if in_place else {}
        self._stacks: dict[tuple[Atom, ...], Variable] = {}
        self._filled: dict[Equation, tuple[Variable, range]] = {}

    def _used_outside(self) -> set[Atom]:
        """Return the values that are read outside of the copies, or by a copy that is not the next one."""
        used: set[Atom] = {*self._program.outputs}
        for equation in self._program.equations:
            if equation not in self._inside:
                used.update(equation.inputs)
        for (repeat, how), derived in zip(self._chosen, self._derived, strict=True):
            flow = repeat.flow
            used.update(flow.shared, (carry.first for carry in flow.carried),
                        *(column for index, column in enumerate(flow.by_copy) if index not in derived and (
                            how == "call" or column not in self._by_state)))
        used.update(row.base for row in self._rows.values())
        return used

    def _derivable(self) -> list[dict[int, _Derived]]:
        """Return for each repeat the inputs by copy that its block computes from its other inputs.

        They are cheap results of the copies of another repeat, such as residuals, which nobody else reads. So neither
        stacks nor results of calls hold them: separate functions and loops store what XLA otherwise fuses.
        """
        made: dict[Atom, tuple[int, Output, int]] = {
            var: (number, Output(place, index), copy)
            for number, (repeat, _) in enumerate(self._chosen) for copy, equations in enumerate(repeat.copies)
            for place, equation in enumerate(equations) for index, var in enumerate(equation.outputs)}
        result: list[dict[int, _Derived]] = []
        for number, (repeat, _) in enumerate(self._chosen):
            by_atoms = {column: index for index, column in enumerate(repeat.flow.by_copy)}
            result.append({})
            for index, column in enumerate(repeat.flow.by_copy):
                makers = [made.get(atom, (-1, Output(-1, -1), 0)) for atom in column]
                maker, output, _ = makers[0]
                if maker in (-1, number) or any(each[:2] != (maker, output) for each in makers):
                    continue
                found = _derive(self._chosen[maker][0], output, [copy for _, _, copy in makers], repeat.flow, by_atoms)
                if found is not None:
                    result[-1][index] = found
        read_elsewhere = self._read_beside(result)
        return [{index: found for index, found in derived.items()
                 if read_elsewhere.isdisjoint(repeat.flow.by_copy[index])}
                for (repeat, _), derived in zip(self._chosen, result, strict=True)]

    def _read_beside(self, derived: list[dict[int, _Derived]]) -> set[Atom]:
        """Return what is read outside of the copies if these inputs are derived."""
        before, self._derived = self._derived, derived
        used = self._used_outside()
        self._derived = before
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
                output_of(equations, output) in self._used for equations in repeat.copies)]
            self._blocks[number] = self._roll(_block(repeat, wanted, self._derived[number])), wanted
            compiled_apart.put(self._blocks[number][0], True)
        block, wanted = self._blocks[number]
        before = [carry.first if copy == 0 else output_of(repeat.copies[copy - 1], carry.output)
                  for carry in flow.carried]
        inputs = [self._value(atom) for atom in (
            *flow.shared, *before, *(column[copy] for column in self._columns(number)))]
        self._bind(jit_call_p, inputs, {"program": block, "name": _name_of(repeat)},
                   [output_of(repeat.copies[copy], output) for output in wanted])

    def _columns(self, number: int) -> list[tuple[Atom, ...]]:
        """Return the inputs by copy that the block of a repeat reads."""
        return [column for index, column in enumerate(self._chosen[number][0].flow.by_copy)
                if index not in self._derived[number]]

    def _scan(self, number: int) -> None:
        """Run all copies of the block in one loop."""
        repeat = self._chosen[number][0]
        flow, count = repeat.flow, len(repeat.copies)
        carried = [carry.output for carry in flow.carried]
        stacked = [output for output in _all_outputs(repeat) if any(
            output_of(equations, output) in self._used
            for equations in (repeat.copies[:-1] if output in carried else repeat.copies))]
        again = self._computed_again(repeat, stacked)
        stacked = [output for output in stacked if output not in again]
        runs = [run_of_rows([(self._state_rows if column in self._by_state else self._rows).get(
            atom, self._final_rows.get(atom)) for atom in column]) for column in self._columns(number)]
        states = [place for place in range(len(carried)) if (id(repeat), place) in self._states]
        steps = [run.step for run in runs if run is not None]
        order = Order(count, not steps or sum(steps) >= 0)
        parts = [(output, part) for output in stacked if (part := self._part_of(repeat, output)) is not None]
        apart = {output for output, _ in parts}
        stacked = [output for output in stacked if output not in apart]
        block = self._roll(_block(repeat, [*carried, *stacked, *(output for output, _ in parts)],
                                  self._derived[number]))
        body = _Body(block, len(flow.shared), len(flow.carried), order)
        shared = [*map(self._value, flow.shared)]
        entries, bases = self._read_by_copy(body, runs, self._columns(number))
        carry = [self._value(carry.first) for carry in flow.carried]
        final: list[Variable] = []
        for output in carried:
            var = output_of(repeat.copies[-1], output)
            final.append(Variable(var.aval) if var in final else var)
        for (_, part), value in zip(parts, block.outputs[len(carried) + len(stacked):], strict=True):
            start, whole = self._write_part(body, value, part)
            carry.append(start)
            final.append(whole)
        consts = [*shared, *bases]
        xs = [*entries, *(self._numbers(first, step, count) for first, step in body.places)]
        entering = [block.inputs[len(flow.shared) + place] for place in states]
        stacks = [Variable(atom.aval.update(shape=(count, *atom.aval.shape)))
                  for atom in (*block.outputs[len(carried):len(carried) + len(stacked)], *entering)]
        self._bind(scan_p, [*consts, *carry, *xs], {
            "program": body.program(len(stacked), entering), "length": count, "reverse": not order.forward, "unroll": 1,
            "num_consts": len(consts), "num_carry": len(carry)}, [*final, *stacks])
        for place, stack in zip(states, stacks[len(stacked):], strict=True):
            _enter_rows(stack, [state_entering(repeat, place, copy) for copy in range(count)], order,
                        lambda _: self._state_rows)
        ended = {*final}
        for output, stack in zip(stacked, stacks, strict=False):
            _enter_rows(stack, [output_of(equations, output) for equations in repeat.copies], order,
                        lambda var: self._final_rows if var in ended else self._rows)
        places = {place for found in again.values() for place in found}
        for place in sorted(places):
            self._outside(repeat.copies[-1][place])

    def _read_by_copy(self, body: _Body, runs: Sequence[Run | None], columns: Sequence[tuple[Atom, ...]],
                      ) -> tuple[list[Atom], list[Atom]]:
        """Have the body read its inputs by copy; return stacks of their values, and arrays that are passed whole."""
        entries: list[Atom] = []
        bases: list[Atom] = []
        order = body.order
        for var, run, column in zip(body.by_copy, runs, columns, strict=True):
            if run is None:
                values = (*map(self._value, column if order.forward else column[::-1]),)
                if values not in self._stacks:  # the loop back may take those of the loop forward
                    self._stacks[values], = self._bind(stack_p, [*values], {"axis": 0})
                entries.append(self._stacks[values])
            elif self._in_place and not run.is_whole(order):
                bases.append(self._value(run.base))
                body.read(var, run)
                continue
            else:
                entries.append(self._stacked(run, order.length, column[0].aval.shape, order.forward))
            body.xs.append(var)
        return entries, bases

    def _write_part(self, body: _Body, value: Atom, part: _Part) -> tuple[Variable, Variable]:
        """Have the body write a value into the array that joins it; return the array before the loop and after it."""
        joined = part.joined.outputs[0]
        start, = self._bind(broadcast_to_p, [Literal(0, Aval((), joined.aval.dtype))], {"shape": joined.aval.shape})
        body.write(value, part)
        whole = joined if len(part.covered) == len(part.joined.inputs) else Variable(joined.aval)
        self._filled[part.joined] = whole, part.covered
        return start, whole

    def _computed_again(self, repeat: Repeat, stacked: Sequence[Output]) -> dict[Output, set[int]]:
        """Return the outputs of which only the last one is used, if that is cheap to compute again after the loop.

        A stack would have one for each copy. Maps each output to the places of the block that are computed again, from
        final carried values, values that all copies read, and other stacks.
        """
        last, flow = repeat.copies[-1], repeat.flow
        only_last = [output for output in stacked if self._used.isdisjoint(
            output_of(equations, output) for equations in repeat.copies[:-1])]
        at_hand = {*(carry.output for carry in flow.carried), *stacked}.difference(only_last)

        def places_of(output: Output) -> set[int] | None:
            if fusion_kind(last[output.place]) != CHEAP:
                return None
            result = {output.place}
            for operand in flow.operands[output.place]:
                if isinstance(operand, Output) and operand not in at_hand:
                    inner = places_of(operand)
                    if inner is None:
                        return None
                    result |= inner
                elif isinstance(operand, int) and operand >= len(flow.shared):
                    return None
            return result if len(result) <= _MOST_AGAIN else None

        found: dict[Output, set[int]] = {}
        for output in only_last:
            places = places_of(output)
            if places is not None:
                found[output] = places
        return found

    def _numbers(self, first: int, step: int, count: int) -> Atom:
        """Return `first`, `first + step`, ..., in int32."""
        numbers, = self._bind(iota_p, [], {"dtype": np.dtype(np.int32), "shape": (count,), "dimension": 0})
        if step != 1:
            numbers, = self._bind(mul_p, [numbers, _int32(step)], {})
        return self._bind(add_p, [numbers, _int32(first)], {})[0] if first else numbers

    def _part_of(self, repeat: Repeat, output: Output) -> _Part | None:
        """Return the array that the values of an output by copy are joined to, if nothing else reads them."""
        values = [output_of(equations, output) for equations in repeat.copies]
        readers = [self._readers.get(value, ()) for value in values]
        joined = readers[0][0] if readers[0] else None
        if joined is None or any([*each] != [joined] for each in readers) or joined in self._inside or (
                joined in self._filled or joined.primitive not in (concatenate_p, stack_p)):
            return None
        is_stack, axis = _joining_of(joined)
        places = {atom: place for place, atom in enumerate(joined.inputs)}
        covered = [places[value] for value in values]
        step = step_of(covered)
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

    def __init__(self, block: Program, num_shared: int, num_carried: int, order: Order) -> None:
        self._block, self.order = block, order
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
        key = self.order.of_copies(first, step)
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
        first = part.first if part.step > 0 else part.first + part.size * (self.order.length - 1)
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


def _enter_rows(stack: Variable, values: Sequence[Atom], order: Order,
                table_of: Callable[[Atom], dict[Atom, Row]]) -> None:
    """Enter in tables that `values`, in the order of copies, are the entries of a stack that a loop made."""
    for copy, atom in enumerate(values):
        table_of(atom)[atom] = Row(stack, 0, copy if order.forward else order.length - 1 - copy, atom.aval.shape)


def _all_outputs(repeat: Repeat) -> list[Output]:
    return [Output(place, number) for place, equation in enumerate(repeat.block)
            for number in range(len(equation.outputs))]


class _Derived(NamedTuple):
    """How a block computes an input: equations of another block, with operands as in `BlockFlow`.

    Each operand is a `Literal`, an input of the block, or an `Output` of these equations.
    """

    equations: list[tuple[Equation, list[Output | Literal | int]]]


def _derive(maker: Repeat, output: Output, copies: Sequence[int], flow: BlockFlow,
            by_atoms: dict[tuple[Atom, ...], int]) -> _Derived | None:
    """Return how a block with this flow computes an output of copies of the block `maker`, if that is cheap."""
    first = len(flow.shared) + len(flow.carried)
    number_of = {tuple(atoms): first + index for atoms, index in by_atoms.items()}
    number_of.update(((atom,) * len(copies), index) for index, atom in enumerate(flow.shared))
    equations: list[tuple[Equation, list[Output | Literal | int]]] = []
    places: dict[int, int] = {}

    def add(place: int) -> bool:
        model = maker.block[place]
        if fusion_kind(model) != CHEAP or len(equations) == _MOST_AGAIN:
            return False
        operands: list[Output | Literal | int] = []
        for operand in maker.flow.operands[place]:
            if isinstance(operand, Literal):
                operands.append(operand)
                continue
            known = number_of.get(tuple(_atom_in(maker, operand, copy) for copy in copies))
            if known is not None:
                operands.append(known)
            elif isinstance(operand, int) or (operand.place not in places and not add(operand.place)):
                return False
            else:
                operands.append(Output(places[operand.place], operand.number))
        places[place] = len(equations)
        equations.append((model, operands))
        return True

    return _Derived(equations) if add(output.place) else None


def _atom_in(repeat: Repeat, operand: Output | int, copy: int) -> Atom:
    """Return the value of an operand in a copy."""
    if isinstance(operand, Output):
        return output_of(repeat.copies[copy], operand)
    flow = repeat.flow
    if operand < len(flow.shared):
        return flow.shared[operand]
    index = operand - len(flow.shared)
    if index < len(flow.carried):
        return state_entering(repeat, index, copy)
    return flow.by_copy[index - len(flow.carried)][copy]


def _block(repeat: Repeat, wanted: Sequence[Output], derived: dict[int, _Derived]) -> Program:
    """Return the program of one copy: (shared, carried, values of the copy that are not derived) -> `wanted`."""
    flow = repeat.flow
    first = len(flow.shared) + len(flow.carried)
    variables = [Variable(atom.aval) for atom in (*flow.shared, *(carry.first for carry in flow.carried),
                                                  *(column[0] for column in flow.by_copy))]
    inputs = [var for number, var in enumerate(variables) if number - first not in derived]
    equations: list[Equation] = []

    def add(model: Equation, operands: Sequence[Output | Literal | int], made: list[list[Variable]],
            scope: str) -> None:
        atoms: list[Atom] = [variables[each] if isinstance(each, int) else
                             each if isinstance(each, Literal) else made[each.place][each.number] for each in operands]
        made.append([Variable(var.aval) for var in model.outputs])
        source = model.source
        if source is not None:
            source = source._replace(scope=scope, origins=())
        equations.append(Equation(model.primitive, atoms, model.params, made[-1], source))

    # In an order in which derived inputs may be computed from each other: those of others have fewer equations.
    for index in sorted(derived, key=lambda index: len(_needed(index, derived, first))):
        made: list[list[Variable]] = []
        for model, operands in derived[index].equations:
            add(model, operands, made, "")
        variables[first + index] = made[-1][0]
    made = []
    for equation, operands, scope in zip(repeat.block, flow.operands, _scopes(repeat), strict=True):
        add(equation, operands, made, scope)
    return remove_dead_code(Program(inputs, equations, [made[output.place][output.number] for output in wanted]))


def _needed(index: int, derived: dict[int, _Derived], first: int) -> set[int]:
    """Return the derived inputs from which a derived input is computed, and itself."""
    needed = {index}
    for _, operands in derived[index].equations:
        for operand in operands:
            if isinstance(operand, int) and operand - first in derived:
                needed |= _needed(operand - first, derived, first)
    return needed


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
