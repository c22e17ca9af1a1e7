"""Sparsity through operations that hold programs: calls, branches, loops and solvers, by the links of their regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine.analyses.index_sets import Dependence, composed, identity, joined, of_matrix, scipy_sparse, union
from fxgrad.engine.analyses.sparsity_values import (
    Value,
    Walk,
    called_region,
    conservative,
    linear_values,
    operands_of,
    placed,
)
from fxgrad.engine.analyses.sparsity_zeros import Masked, has_known_zeros, mask_of
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.regions import Region

_TURNS = 20_000
"""The most operations in the turns of a loop that are looked at one by one."""
_PAIRS = 20_000_000
"""The most pairs that the values of one turn of a loop are written out as; beyond, all may depend on all."""
_WIDE = 16
"""The elements that a turn reads for each input of the walk, beyond which turns are walked in terms of the inputs."""
_ROUNDS = 32
"""The most turns that are walked for what a loop carries to depend on no more inputs."""


def through_regions(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Follow the links of the programs: calls, branches and loops; others may combine everything."""
    called = called_region(equation)
    if called is not None:
        return placed(equation, called, walk.run(called.program, operands_of(called, values)))
    regions = equation.regions
    roles = [region.role for region in regions]
    if roles and all(role == "branch" for role in roles):
        return _branches(walk, equation, regions, values)
    bodies = [region for region in regions if region.role == "body"]
    if len(bodies) == 1 and set(roles) <= {"body", "condition"}:
        return _loop(walk, equation, bodies[0], values)
    if "matvec" in roles:
        return _solve(walk, equation, regions[roles.index("matvec")], values)
    return conservative(walk, equation, values)


def _branches(walk: Walk, equation: Equation, regions: Sequence[Region], values: list[Value]) -> list[Value]:
    if isinstance(values[0], np.ndarray):
        regions = [regions[int(np.clip(values[0], 0, len(regions) - 1))]]
    results = [placed(equation, region, walk.run(region.program, operands_of(region, values))) for region in regions]
    return [_either(walk, found, var.aval.shape) for var, found in zip(equation.outputs, zip(*results, strict=True),
                                                                      strict=True)]


def _either(walk: Walk, found: Sequence[Value], shape: Any) -> Value:
    """Return the value of a result that is one of these."""
    linear = linear_values(found)
    if linear:
        return union(linear, shape, walk.width)
    return found[0] if len(found) == 1 else None


def _operations(program: Program) -> int:
    return sum(1 + sum((region.times or 1) * _operations(region.program) for region in equation.regions)
               for equation in program.equations)


def _loop(walk: Walk, equation: Equation, body: Region, values: list[Value]) -> list[Value]:
    first = {link.place for link in body.inputs}
    times = body.times
    if times is None and 0 not in first and isinstance(values[0], np.ndarray):
        times = max(int(values[0]), 0)  # the count of a loop with a counter
    if times is not None and times * _operations(body.program) <= _TURNS:
        return _unrolled(walk, equation, body, values, times)
    return _closed(walk, equation, body, values)


def _entry(value: Value, turn: int) -> Value:
    if type(value) is Dependence:
        return value.viewed(lambda index: index[turn])
    if type(value) is Masked:
        return Masked(np.asarray(value.mask[turn]))
    return np.asarray(value[turn]) if isinstance(value, np.ndarray) else None


def _unrolled(walk: Walk, equation: Equation, body: Region, values: list[Value], times: int) -> list[Value]:
    """Go through the turns of a loop one by one."""
    inputs, outputs = body.inputs, body.outputs
    carry = [values[link.place] for link in inputs if link.how == "carry"]
    entries: dict[int, list[Value]] = {place: [None] * times for place, link in enumerate(outputs)
                                       if link.how == "entry"}
    for turn in reversed(range(times)) if body.reverse else range(times):
        carried = iter(carry)
        results = walk.run(body.program, [
            next(carried) if link.how == "carry" else _entry(values[link.place], turn) if link.how == "entry"
            else values[link.place] for link in inputs])
        if all(result is None for result in results) and not linear_values(values):
            return placed(equation, body, results)  # later turns know no more
        carry = [result for result, link in zip(results, outputs, strict=True) if link.how == "carry"]
        for place, found in entries.items():
            found[turn] = results[place]
    carried = iter(carry)
    return placed(equation, body, [
        next(carried) if link.how == "carry" else _stacked(walk, entries[place], atom.aval.shape)
        for place, (link, atom) in enumerate(zip(outputs, body.program.outputs, strict=True))])


def _stacked(walk: Walk, found: Sequence[Value], shape: Any) -> Value:
    if any(type(each) is Dependence for each in found):
        pieces = [each.viewed(lambda index: index[None]) if type(each) is Dependence else None for each in found]
        return joined(pieces, [(1, *shape)] * len(pieces), 0, walk.width)
    if all(isinstance(each, np.ndarray) for each in found):
        return np.stack(found) if found else None
    return Masked(np.stack([mask_of(each, shape) for each in found])) if any(map(has_known_zeros, found)) else None


def _closed(walk: Walk, equation: Equation, body: Region, values: list[Value]) -> list[Value]:
    """Close what one turn of a loop connects under any number of turns."""
    inputs = body.inputs
    made = dict(zip(*([place for place, link in enumerate(links) if link.how == "carry"]
                      for links in (inputs, body.outputs)), strict=True))
    operands = operands_of(body, values)
    read = [atom.aval.size for place, (value, atom) in enumerate(zip(operands, body.program.inputs, strict=True))
            if place in made or type(value) is Dependence]
    if sum(read) > _WIDE * walk.width and not any(
            link.how == "entry" and type(value) is Dependence for link, value in zip(inputs, operands, strict=True)):
        return _grown(walk, equation, body, operands, made)
    local, results = _dependent_turn(walk, body, values, made)

    def flat_inputs(places: Sequence[int]) -> list[Dependence]:
        return [_flat(walk, values[inputs[place].place], local.sizes[place]) for place in places]

    marked = sorted(local.sizes)
    carried = [place for place in marked if place in made]
    entries = [values[inputs[place].place] for place in marked if inputs[place].how == "entry"]
    fixed = flat_inputs([place for place in marked if place not in made and inputs[place].how != "entry"])
    state = _carried_at_any_turn(walk, local, flat_inputs(carried), [results[made[place]] for place in carried], [
        *fixed, *(each.merged([0]).reshaped((-1,)) for each in entries)])
    if state is None:
        return conservative(walk, equation, values)
    anytime = _end_to_end(walk, [state, *fixed])
    found: list[Value] = []
    stops = dict(zip(carried, np.cumsum([local.sizes[place] for place in carried]), strict=True))
    carry_of = {place: carry for carry, place in made.items()}
    for place, (result, var) in enumerate(zip(results, body.program.outputs, strict=True)):
        carry = carry_of.get(place)
        if carry is not None and carry in stops:
            own = np.arange(int(stops[carry]) - local.sizes[carry], int(stops[carry]))
            found.append(state.take(own).reshaped(var.aval.shape))
        elif carry is None and type(result) is Dependence:
            found.append(_every_turn(walk, result, anytime, entries, 0 if body.times is None else body.times))
        else:
            found.append(None)
    return placed(equation, body, found)


def _grown(walk: Walk, equation: Equation, body: Region, operands: Sequence[Value], made: dict[int, int],
           ) -> list[Value]:
    """Walk turns until what they carry depends on no more inputs; give up after a number of turns, or with many pairs.

    This takes less memory than one turn in terms of its own elements where these are many more than the inputs of the
    walk, as in the table of states of a loop that goes back. No entries, one for each turn, depend on inputs.
    """
    given = [value if link.how == "same" or type(value) is Dependence else None  # known at the first turn alone
             for link, value in zip(body.inputs, operands, strict=True)]
    counts = [0] * len(made)
    for _ in range(_ROUNDS):
        results = walk.run(body.program, given)
        for carry, place in made.items():
            found = linear_values([given[carry], results[place]])
            if found:
                both = union(found, body.program.inputs[carry].aval.shape, walk.width)
                given[carry] = both.compact(both.terms) if both.terms else both
        carried = [given[carry] for carry in made]
        if sum(each.pair_bound for each in linear_values(carried)) > _PAIRS:
            return conservative(walk, equation, given)
        before, counts = counts, [each.csr()[1].size if type(each) is Dependence else 0 for each in carried]
        if counts == before:
            break
    else:
        return conservative(walk, equation, given)
    carry_of = {place: carry for carry, place in made.items()}
    return placed(equation, body, [
        given[carry_of[place]] if place in carry_of
        else result.viewed(lambda index: np.broadcast_to(index[None], (body.times or 0, *index.shape)))
        if type(result) is Dependence else None for place, result in enumerate(results)])


def _dependent_turn(walk: Walk, body: Region, values: Sequence[Value], made: dict[int, int],
                    ) -> tuple[_LocalTurn, list[Value]]:
    """Return one turn whose marked inputs are those that depend on the walk's inputs in any turn, and its results.

    `made` maps the place of each carry among the inputs to its place among the outputs.
    """
    inputs = body.inputs
    marked = {place for place in range(len(inputs)) if type(values[inputs[place].place]) is Dependence}
    while True:
        local = _LocalTurn(inputs, body.program, values, marked, {*made})
        results = local.run(walk)
        more = {carry for carry, place in made.items() if type(results[place]) is Dependence} - marked
        if not more:
            return local, results
        marked |= more


def _carried_at_any_turn(walk: Walk, local: _LocalTurn, start: Sequence[Dependence], steps: Sequence[Value],
                         others: Sequence[Dependence]) -> Dependence | None:
    """Return what the marked carries, end to end, depend on at any turn; None if there are too many pairs to hold.

    They are `start` before the loop. A turn makes `steps` of the carries and of the `others` that it reads.
    """
    before = _end_to_end(walk, start)
    if not start:
        return before
    if sum(step.pair_bound for step in steps if type(step) is Dependence) > _PAIRS:
        return None
    total = before.size
    matrix = scipy_sparse().vstack([step.matrix() if type(step) is Dependence else scipy_sparse().csr_array(
        (each.size, local.width), dtype=bool) for step, each in zip(steps, start, strict=True)]).tocsr()
    closure = _closure(matrix[:, :total])
    if closure is None:
        return None
    state = composed(of_matrix(closure, (total,)), before)
    if not others:
        return state
    reached = scipy_sparse().csr_array(closure.astype(np.int32) @ matrix[:, total:].astype(np.int32)).astype(bool)
    return union([state, composed(of_matrix(reached, (total,)), _end_to_end(walk, others))], (total,), walk.width)


def _end_to_end(walk: Walk, parts: Sequence[Dependence]) -> Dependence:
    return joined(parts, [each.shape for each in parts], 0, walk.width) if parts else Dependence((0,), walk.width, [])


class _LocalTurn:
    """One turn of a loop, whose marked inputs have indices of their own: carries, then constants, then entries."""

    def __init__(self, inputs: Sequence[Any], program: Program, values: Sequence[Value], marked: set[int],
                 carries: set[int]) -> None:
        self.program = program
        self.sizes = {place: program.inputs[place].aval.size for place in marked}
        order = sorted(marked, key=lambda place: (place not in carries, inputs[place].how == "entry", place))
        self.width = sum(self.sizes.values())
        self.values: list[Value] = []
        starts, start = {}, 0
        for place in order:
            starts[place] = start
            start += self.sizes[place]
        for place, link in enumerate(inputs):
            if place in marked:
                self.values.append(identity(program.inputs[place].aval.shape, starts[place], self.width))
            else:
                self.values.append(values[link.place] if link.how == "same" else None)

    def run(self, walk: Walk) -> list[Value]:
        own = Walk(self.width, walk.rule_of)
        results = own.run(self.program, self.values)
        walk.reverse_only |= own.reverse_only
        return results


def _flat(walk: Walk, value: Value, size: int) -> Dependence:
    if type(value) is not Dependence:
        return Dependence((size,), walk.width, [])
    return value.reshaped((-1,))


def _closure(matrix: Any) -> Any:
    """Return the reflexive and transitive closure of a square matrix of bools; None if it has too many entries."""
    itself = scipy_sparse().eye_array(matrix.shape[0], dtype=np.int32, format="csr")
    found = scipy_sparse().csr_array(matrix.astype(np.int32) + itself)
    while True:
        if found.nnz * (found.nnz / max(found.shape[0], 1)) > 300_000_000:
            return None
        found.data[:] = 1
        squared = scipy_sparse().csr_array(found @ found)
        if squared.nnz == found.nnz:
            return squared.astype(bool)
        found = squared


def _every_turn(walk: Walk, result: Dependence, anytime: Dependence, entries: Sequence[Dependence], times: int,
                ) -> Dependence:
    """Return the dependence of the stack of a result of each turn, on values at any turn and on the turn's entries."""
    matrix, border = result.matrix(), anytime.size
    shape = (times, *result.shape)
    found = []
    if border:
        always = composed(of_matrix(matrix[:, :border], result.shape), anytime)
        found.append(always.viewed(lambda index: np.broadcast_to(index[None], (times, *index.shape))))
    if entries:
        flat = [each.reshaped((times, -1)) for each in entries]
        stacked = joined(flat, [each.shape for each in flat], 1, walk.width)
        one = of_matrix(matrix[:, border:], result.shape)
        width = stacked.shape[1]
        rows, columns = one.pairs()
        turns = np.arange(times)[:, None]
        size = result.size
        every = scipy_sparse().coo_array(
            (np.ones(times * rows.size, bool),
             ((turns * size + rows).reshape(-1), (turns * width + columns).reshape(-1))),
            shape=(times * size, times * width))
        found.append(composed(of_matrix(every, shape), stacked.reshaped((-1,))))
    return union(found, shape, walk.width)


def _solve(walk: Walk, equation: Equation, matvec: Region, values: list[Value]) -> list[Value]:
    """Unknowns depend on the right-hand sides that the matrix connects them with, directly or by others."""
    program = matvec.program
    inside = [place for place, link in enumerate(matvec.inputs) if link.how == "inside"]
    right = values[len(values) - len(inside):]
    shapes = [program.inputs[place].aval.shape for place in inside]
    if (len(equation.outputs) != len(inside) or [var.aval.shape for var in equation.outputs] != shapes
            or any(type(value) is Dependence for value in values[:len(values) - len(inside)])):
        return conservative(walk, equation, values)
    sizes = [math.prod(shape) for shape in shapes]
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    local = Walk(sum(sizes), walk.rule_of)
    unknowns = iter(identity(shape, start, local.width) for shape, start in zip(shapes, starts, strict=True))
    made = local.run(program, [next(unknowns) if link.how == "inside" else values[link.place]
                               for link in matvec.inputs])
    if any(type(each) is not Dependence for each in made):
        return conservative(walk, equation, values)
    matrix = scipy_sparse().vstack([each.matrix() for each in made]).tocsr()
    if matrix.shape[0] != matrix.shape[1]:
        return conservative(walk, equation, values)
    count, labels = scipy_sparse().csgraph.connected_components(matrix, directed=False)
    flat = joined([_flat(walk, each, size) for each, size in zip(right, sizes, strict=True)],
                  [(size,) for size in sizes], 0, walk.width)
    groups = flat.spread(labels, (count,))
    return [groups.take(labels[start:start + size].reshape(shape).astype(np.int64))
            for start, size, shape in zip(starts, sizes, shapes, strict=True)]
