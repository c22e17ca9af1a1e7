"""What the backward pass keeps and what it computes again: the cut between a known program and its tangent program.

The rule that chooses is a `Keep`. By default it weighs bytes against work: a minimum cut of the program, in which
values that are cheap to compute again cost nothing (the idea is that of Jain et al., "Checkmate", 2020, and of the
min-cut partitioner of PyTorch's functorch, 2022; here a loop's constants and inputs are free as well).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.facts import made_once
from fxgrad.engine.core.program import PRIMAL, Equation, Program, Var
from fxgrad.engine.core.sizes import nominal
from fxgrad.engine.core.sources import sources
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.derivation.effects import outputs_of_effects
from fxgrad.engine.derivation.simplify import without_dead_code
from fxgrad.engine.higher_order.groups import Marks, chosen
from fxgrad.engine.ops.space import instantiate
from fxgrad.engine.ops.varying import psum_invariant_p
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.provenance import note
from fxgrad.engine.tracing.tape import bind, read
from fxgrad.engine.transforms.forward import spread
from fxgrad.engine.transforms.linearize import TangentHalf

Keep = Callable[[Program, Sequence[Var], "set[Var]"], "list[Var]"]
"""(known program, residuals that are not free, free inputs) -> the variables to keep."""

RECOMPUTED_FLOPS_PER_BYTE = 32
"""A value is computed again if that takes at most this many operations for each of its bytes.

Writing and reading a byte of a large array takes about as long as 32 operations of a vectorised kernel: with float32,
a product over an axis of 64 is at the boundary.
"""


class Partition(NamedTuple):
    """The two halves: `forward` (inputs) -> (outputs, saved), `tangent` (free inputs, saved, tangents) -> tangents."""

    forward: Program
    tangent: Program
    saved: list[Var]


def partition(known: Program, count: int, half: TangentHalf, free: Marks, keep: Keep, wanted: Marks) -> Partition:
    """Cuts a linearized program, `known` (inputs) -> (`count` outputs, residuals), in two.

    The inputs that `free` marks are there in the backward pass without being saved. The tangent half gives the
    tangents of the outputs that `wanted` marks, zeros where `half` reaches none.
    """
    residuals = known.outputs[count:]
    free_inputs = {var for var, marked in zip(known.inputs, free, strict=True) if marked}
    needed = [atom for atom in dict.fromkeys(residuals) if type(atom) is Var and atom not in free_inputs]
    saved = _with_effects_kept(known, needed, free_inputs, keep(known, needed, free_inputs))
    forward = made_once(known, ("forward half", count, tuple(saved)), lambda: without_dead_code(Program(
        known.inputs, known.equations, [*known.outputs[:count], *saved], known.captured)))
    linear = half.linear
    tangent_avals = linear.in_avals[linear.captured:]
    given = [var for var in known.inputs if var in free_inputs] + saved

    def build(*values: Any) -> tuple[list[Any], None]:
        environment = dict(zip(given, values, strict=False))
        note(values, PRIMAL, known, given)
        _compute(known, needed, environment)
        outputs = apply_equations(linear, [*(read(environment, atom) for atom in residuals), *values[len(given):]])
        out_avals = [atom.aval.strong() for atom in known.outputs[:count]]
        return [*map(instantiate, chosen(spread(out_avals, half.reached, outputs), wanted))], None

    tangent = derive(known, ("tangent half", tuple(saved), free, wanted, linear), build,
                     [*(var.aval for var in given), *tangent_avals]).program
    return Partition(forward, tangent, saved)


def _with_effects_kept(known: Program, needed: Sequence[Var], free: set[Var], saved: list[Var]) -> list[Var]:
    """`saved`, and what would have to be computed again by an operation with effects."""
    once = outputs_of_effects(known)
    if not once:
        return saved
    wanted, kept = {var for var in needed if var not in free}, set(saved)
    for equation in reversed(known.equations):
        missing = [var for var in equation.outputs if var in wanted and var not in kept]
        if missing and missing[0] in once:
            kept.update(missing)
        elif missing:
            wanted.update(atom for atom in equation.inputs if type(atom) is Var and atom not in free)
    return [*saved, *(var for equation in known.equations for var in equation.outputs
                      if var in kept and var not in saved)]


def _compute(program: Program, needed: Sequence[Var], environment: dict[Var, Any]) -> None:
    """Adds the values of `needed` to `environment`, computing what is not there yet."""
    wanted = {var for var in needed if var not in environment}
    equations: list[Equation] = []
    for equation in reversed(program.equations):
        if not wanted.isdisjoint(equation.outputs):
            equations.append(equation)
            wanted.update(atom for atom in equation.inputs if type(atom) is Var and atom not in environment)
    with sources("") as at:
        for equation in reversed(equations):
            at(equation)
            outputs = bind(equation.primitive, *(read(environment, atom) for atom in equation.inputs),
                           **equation.params)
            note(outputs, PRIMAL, program, equation.outputs)
            environment.update({var: value for var, value in zip(equation.outputs, outputs, strict=True)
                                if var not in environment})


# --- rules that choose ----------------------------------------------------------------------------------------


def keep_by_cost(known: Program, needed: Sequence[Var], free: set[Var]) -> list[Var]:
    """The fewest bytes from which every residual follows by cheap computations."""
    if not needed:
        return []
    relevant = _ancestors(known, needed, free)
    cut = MinimumCut()
    for var in known.inputs:
        if var in relevant:
            cut.add([var], [nominal(var.aval.nbytes) + 1], (), None)
    for equation in known.equations:
        outputs = [var for var in equation.outputs if var in relevant]
        if outputs:
            inputs = [atom for atom in equation.inputs if type(atom) is Var and atom in relevant and atom not in free]
            cut.add(outputs, [nominal(var.aval.nbytes) + 1 for var in outputs], inputs,
                    None if is_expensive(equation) else 0)
    return cut.solve(needed)[0]


def _ancestors(known: Program, needed: Sequence[Var], free: set[Var]) -> set[Var]:
    wanted = set(needed)
    for equation in reversed(known.equations):
        if not wanted.isdisjoint(equation.outputs):
            wanted.update(atom for atom in equation.inputs if type(atom) is Var and atom not in free)
    return wanted


kept_always: Analysis[bool] = Analysis("kept_always", missing="derive",
                                       derive=lambda primitive: primitive.effectful or (
                                           primitive.collective and not primitive.says_what_varies))
"""Whether what an operation makes is never computed again, whatever its cost rule says of it.

What devices say to each other takes longer than it looks.
"""
kept_always.enter(True, psum_invariant_p)


def is_expensive(equation: Equation) -> bool:
    """Whether the outputs are better kept than computed again."""
    if any(region.role != "inline" for region in equation.regions):
        return True
    if kept_always.of(equation.primitive):
        return True
    bytes_out = sum(nominal(var.aval.nbytes) for var in equation.outputs)
    flops = nominal(equation.cost.flops)
    return flops > RECOMPUTED_FLOPS_PER_BYTE * max(bytes_out, 1)


class MinimumCut:
    """The least sum of sizes of what is kept and prices of what is computed again, so that all that is needed is there.

    Each value is an edge of a network, with its size as capacity. What makes it hangs on the source with its price, or
    without bound if it cannot be made again; what is needed hangs on the sink; and what is made again depends on what
    it is made of without bound.
    """

    def __init__(self) -> None:
        self._edges: list[tuple[int, int, float]] = []
        self._ends: dict[Any, tuple[int, int]] = {}
        self._source, self._sink, self._count = 0, 1, 2

    def add(self, values: Sequence[Any], sizes: Sequence[float], inputs: Iterable[Any], price: float | None) -> None:
        """What makes `values`, of `sizes`, from `inputs`, which were added before; `price` None: only once."""
        start = self._count
        self._count += 1 + len(values)
        for end, (value, size) in enumerate(zip(values, sizes, strict=True), start + 1):
            self._ends[value] = start, end
            self._edges.append((start, end, size))
        if price is None or price > 0:
            self._edges.append((self._source, start, np.inf if price is None else price))
        self._edges += [(self._ends[value][1], start, np.inf) for value in dict.fromkeys(inputs)]

    def solve(self, needed: Sequence[Any]) -> tuple[list[Any], set[Any]]:
        """The values to keep, and those that are there again in the backward pass without being kept.

        Of several least cuts that nearest to what is needed, so that the least is computed again.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow
        edges = [*self._edges, *((self._ends[value][1], self._sink, np.inf) for value in needed)]
        rows, columns, sizes = (np.array(column) for column in zip(*edges, strict=True))
        bounded = np.isfinite(sizes)
        unit = max(1.0, sizes[bounded].sum() / 2**29)  # capacities are 32-bit integers
        sizes[bounded] = np.maximum(1, np.round(sizes[bounded] / unit))
        capacities = np.where(bounded, sizes, 2**30).astype(np.int32)
        graph = csr_array((capacities, (rows, columns)), shape=(self._count, self._count), dtype=np.int32)
        flow = maximum_flow(graph, self._source, self._sink).flow
        remaining = (graph - flow).tocsr()
        remaining.data = (remaining.data > 0).astype(np.int32)
        remaining.eliminate_zeros()
        reaching = set(breadth_first_order(remaining.T.tocsr(), self._sink, return_predecessors=False).tolist())
        there = [value for value, (_, end) in self._ends.items() if end in reaching]
        again = {value for value in there if self._ends[value][0] in reaching}
        return [value for value in there if value not in again], again
