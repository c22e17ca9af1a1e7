"""Repeated blocks of a program as one: rolled into a `scan`, or outlined as one program that is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import config, dtypes
from fxgrad.engine.analyses import fusing
from fxgrad.engine.analyses.fusing import fusion_kind
from fxgrad.engine.analyses.repeat_ends import Surroundings, with_first_copy, with_last_copy
from fxgrad.engine.analyses.repeats import Repeat, Repeats, find_repeats
from fxgrad.engine.core.avals import PYTHON_SCALARS, Aval, Literal
from fxgrad.engine.core.cache_keys import cache_key
from fxgrad.engine.core.program import Atom, Equation, Program, Source, Variable, join_scopes
from fxgrad.engine.core.program_properties import count_equations, has_effects, memoize
from fxgrad.engine.core.regions import rewrite_programs
from fxgrad.engine.derivation.simplify import merge_equal_equations
from fxgrad.engine.executors.platforms import default_device
from fxgrad.engine.higher_order.call import named_call_p
from fxgrad.engine.higher_order.padded_sums import join_padded_sums
from fxgrad.engine.higher_order.repeat_rewriting import Rewriting
from fxgrad.engine.higher_order.repeat_stacks import Chosen, Stacks, order_equations, reads_of
from fxgrad.engine.ops.structural import broadcast_to_p

Chooser = Callable[[Repeat, Stacks], str]
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
    if count_equations(program) < way.at_least or any(var.aval.vma for var in program.inputs):
        return program  # too few for any copies, or what one device of a mesh runs
    # Derivatives inline named calls; so in compiled code, where nobody sees them, the others do too.
    flat = _without_named_calls(program) if way.in_place else program
    joined = join_padded_sums(merge_equal_equations(flat), way.at_least)
    found = find_repeats(joined, way.at_least)
    stacks = Stacks(found)
    joined, chosen = _choose_all(joined, found, stacks, way)
    if not chosen:
        return program
    return Rewriting(joined, found, chosen, stacks, lambda block: roll_program(block, way), way.in_place).program()


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
    return rewrite_programs(equation, lambda region: roll_program(region.program, way) if region.role in _ROLES
                            else region.program)


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


# --- ends ------------------------------------------------------------------------------------------------------------

_ENDS = 2
"""Partial copies that are taken into a loop at each end, at most."""


def _choose_all(program: Program, found: Repeats, stacks: Stacks, way: Way) -> tuple[Program, Chosen]:
    """Return the chosen repeats with partial copies at the ends of loops, and the program in an order for them."""
    if has_effects(program) or not found.repeats:  # effects keep their order
        chosen = [(repeat, stacks.note(repeat, way.choose(repeat, stacks))) for repeat in found.repeats]
        return program, [each for each in chosen if each[1]]
    reads = reads_of(program, stacks.rows)
    core = [equation for equation in program.equations if equation not in reads]
    around = Surroundings(core, {
        equation for repeat in found.repeats for equations in repeat.copies for equation in equations},
        {*program.outputs, *(row.base for row in stacks.rows.values())})
    fillers: dict[Aval, Equation] = {}

    def zeros(aval: Aval) -> Atom | None:
        if dtypes.is_key(aval.dtype):
            return None
        number = -0.0 if dtypes.is_inexact(aval.dtype) else 0
        if not aval.shape:
            return Literal(number, aval)
        if aval not in fillers:
            var = Variable(Aval(aval.shape, aval.dtype))
            fillers[aval] = Equation(broadcast_to_p, [Literal(number, Aval((), aval.dtype))], {"shape": aval.shape},
                                     [var])
        return fillers[aval].outputs[0]

    ordered: list[Equation] | None = None
    chosen = [(repeat, "scan") for repeat in found.repeats]  # those to come in one place, as if all were loops
    for number, repeat in enumerate(found.repeats):
        how = stacks.note(repeat, way.choose(repeat, stacks))
        chosen[number] = repeat, how
        for extend in (with_first_copy, with_last_copy) * _ENDS if how == "scan" else ():
            extended = extend(repeat, around, stacks.guess, zeros)
            if extended is None or stacks.reads_itself(extended[0]):
                continue
            longer, replaced = extended
            remaining = [equation for equation in core if equation not in replaced]
            pairs = zip(repeat.flow.by_copy, longer.flow.by_copy, strict=True)
            if not all(_lies_as_before(old, new, repeat, stacks, around) for old, new in pairs):
                continue
            chosen_then = [*chosen[:number], (longer, how), *chosen[number + 1:]]
            order = order_equations(remaining, stacks.rows, chosen_then)
            if order is not None:
                stacks.note(longer, how, again=repeat)
                chosen, core, ordered, repeat = chosen_then, remaining, order, longer  # noqa: PLW2901
                around.accept(longer, replaced)
    chosen = [each for each in chosen if each[1]]
    if ordered is None:
        return program, chosen
    in_order = [*(each for each in program.equations if each in reads), *fillers.values(), *ordered]
    return program.replace(equations=in_order), chosen


def _lies_as_before(old: Sequence[Atom], new: Sequence[Atom], repeat: Repeat, stacks: Stacks, around: Surroundings,
                    ) -> bool:
    """Return whether the values that an input of `repeat` has by copy lie as well with one copy more (`new`).

    Results of a loop may be read as the states before its copies, if no other reader has the loop stack them, too.
    """
    before, after = stacks.place_of(old), stacks.place_of(new)
    if before in ("", after):
        return True
    if (before, after) != ("results", "states"):
        return False  # something would have to be stacked
    states = stacks.states_of(new)
    assert states is not None
    inside = {equation for equations in (*states[0].copies, *repeat.copies) for equation in equations}
    others = [column for column in repeat.flow.by_copy if column != old]
    return all(atom not in around.kept and inside.issuperset(around.readers.get(atom, ())) and not any(
        atom in column for column in others) for atom in old)


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
_FEWEST_EQUATIONS = 60
"""Smaller programs are not searched: products count for more equations than one, but these would not be enough."""


def _choose_for_jit(repeat: Repeat, stacks: Stacks) -> str:
    size = sum(_KERNEL_SIZE if fusion_kind(equation) in _OWN_KERNELS else
               1 + sum(map(count_equations, equation.programs)) for equation in repeat.block)
    pays = size >= _SMALLEST_BLOCK and size * (len(repeat.copies) - 1) >= _LEAST_SAVED
    return _choose(repeat, stacks) if pays else ""


def may_roll(program: Program) -> bool:
    """Return whether a program is large enough for `jit` to search it for repeated blocks.

    Only on CPUs: elsewhere calls are inlined, and an iteration of a loop may take longer than the kernels of a block.
    """
    return count_equations(program) >= _FEWEST_EQUATIONS and config.roll_repeats and default_device().platform == "cpu"


def roll_where_it_pays(program: Program) -> Program:
    """Return the program as `jit` compiles it: rolled where compilation is predicted to take less, and a call no more.

    A scan is chosen where all values that differ by copy lie stacked, and else calls of one function. The program
    itself is returned if it is small, after looking at its length alone.
    """
    return roll_program(program, Way(_choose_for_jit, _FEWEST_COPIES, in_place=True)) if may_roll(program) else program
