"""Run a program with some of its inner values taken out or replaced, through the loops, branches and calls around them.

An operation that holds programs is recorded anew by the public function that records it (`scan`, `switch`, ...), with a
body that looks inside again: what a replacement closes over is captured as in any other function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fxgrad import checkpoint, dtypes, lax, named_scope, nan_safe, shard_map
from fxgrad.errors import UnsupportedError
from fxgrad.extend import (
    Analysis,
    Atom,
    Aval,
    Equation,
    Literal,
    Program,
    Region,
    Variable,
    at_source,
    at_user_line,
    bind_equation,
    eval_program,
    primitives,
)
from fxgrad.sharding import PartitionSpec
from fxgrad.tools.inside.paths import Chain, Chosen, Place


class Turn(NamedTuple):
    """Where a run is: the number of the running turn of each loop around, and by key the entries fed to this turn.

    Loops go by the length of the chain to their body. Devices of a mesh are turns of one.
    """

    numbers: Mapping[int, Any] = MappingProxyType({})
    entries: Mapping[str, Any] = MappingProxyType({})

    def within(self, inner: Chain, number: Any, entries: Mapping[str, Any] = MappingProxyType({})) -> Turn:
        """Return the turn `number` of the loop whose body is at `inner`."""
        return Turn({**self.numbers, len(inner): number}, {**self.entries, **entries})


Action = Callable[[Any, Turn], Any]
"""(value, turn) -> the value to go on with."""


class Opened:
    """A program with `actions` on inner values, and those `taken`.

    `taken` maps a key to the value that is returned under it, `actions` a key to a value and what replaces it. `fed`
    has arrays by keys of actions: the loops around the value take their entries, for each turn one. `known` has values
    of the outermost program that are put in without their own being computed, if nothing else needs them.
    """

    def __init__(self, what: str, program: Program, taken: Mapping[str, Chosen],
                 actions: Mapping[str, tuple[Chosen, Action]] = MappingProxyType({}),
                 fed: Mapping[str, Any] = MappingProxyType({}),
                 known: Mapping[Variable, Any] = MappingProxyType({})) -> None:
        self.what, self.program = what, program
        self._taken: dict[Place, list[str]] = {}
        self._actions: dict[Place, list[Action]] = {}
        self._opened: set[tuple[Chain, int]] = set()
        """The operations that values are inside of: by the chain to their program, and their position in it."""
        self._fed, self._known = fed, known
        self._chosen = {**{key: chosen for key, (chosen, _) in actions.items()}, **taken}
        for key, chosen in taken.items():
            for place in chosen.places:
                self._taken.setdefault(place, []).append(key)
        for chosen, action in actions.values():
            for place in chosen.changed_places:
                self._actions.setdefault(place, []).append(action)
        for chain, _ in (*self._taken, *self._actions):
            self._opened.update(_operations_around(chain))

    def run(self, inputs: Sequence[Any], outputs: Sequence[Atom] | None = None, everything: bool = True,
            ) -> tuple[list[Any], dict[str, Any]]:
        """Return the values of `outputs`, by default the program's, and the values taken.

        With `everything` false, nothing is computed that only others need.
        """
        results, taken = self.inside(self.program, [*self.program.constants, *inputs], (), Turn({}, self._fed),
                                     outputs, everything)
        for key, value in taken.items():
            turns = self._chosen[key].turns
            if any(turn is not None for turn in turns):
                taken[key] = value[tuple(slice(None) if turn is None else turn for turn in turns)]
        return results, taken

    def inside(self, program: Program, inputs: Sequence[Any], chain: Chain, turn: Turn,
               outputs: Sequence[Atom] | None = None, everything: bool = True) -> tuple[list[Any], dict[str, Any]]:
        """Run a program that is nested at `chain`; return its outputs and the values taken in it."""
        taken: dict[str, Any] = {}
        places = {id(equation): place for place, equation in enumerate(program.equations)}
        outputs = program.outputs if outputs is None else outputs

        def visit(var: Variable, value: Any) -> Any:
            if var in self._known:
                value = self._known[var]
            for action in self._actions.get((chain, var), ()):
                value = action(value, turn)
            for key in self._taken.get((chain, var), ()):
                taken[key] = value
            return value

        with at_source("") as at:
            def step(equation: Equation, operands: list[Any]) -> list[Any]:
                at(equation)
                place = places[id(equation)]
                if (chain, place) in self._opened:
                    results, found = self._open(equation, [*map(value_of, operands)], chain, place, turn)
                    taken.update(found)
                else:
                    results = bind_equation(equation, operands)
                return [visit(var, value) for var, value in zip(equation.outputs, results, strict=True)]

            values = [visit(var, value) for var, value in zip(program.inputs, inputs, strict=True)]
            variables = program.inputs
            equations = None if everything else self._needed(program, outputs, chain)
            if not everything:
                rest = [var for var in self._known if var not in variables]
                variables, values = [*variables, *rest], [*values, *(visit(var, None) for var in rest)]
            results = eval_program(program.replace(inputs=variables, outputs=[*outputs]), values, step,
                                   equations=equations)
            for number, value in enumerate(results):
                for action in self._actions.get((chain, number), ()):
                    results[number] = action(value_of(value), turn)
        return [*map(value_of, results)], {key: value_of(value) for key, value in taken.items()}

    def _needed(self, program: Program, outputs: Sequence[Atom], chain: Chain) -> list[Equation]:
        """Return the equations that `outputs` and the values taken need, where replaced values need none."""
        wanted = {atom for atom in outputs if isinstance(atom, Variable)}
        wanted.update(var for place, var in self._taken if place == chain and isinstance(var, Variable))
        around = {each for inner, _ in self._taken for each in _operations_around(inner)}
        needed: list[Equation] = []
        for place, equation in reversed([*enumerate(program.equations)]):
            if (chain, place) in around or any(var in wanted and var not in self._known for var in equation.outputs):
                needed.append(equation)
                wanted.update(atom for atom in equation.inputs if isinstance(atom, Variable))
        return needed[::-1]

    def _open(self, equation: Equation, operands: list[Any], chain: Chain, place: int, turn: Turn,
              ) -> tuple[list[Any], dict[str, Any]]:
        opening = openings.of(equation.primitive)
        if opening is None:
            where = "" if equation.source is None else f" at {equation.source.place}"
            names = ", ".join(repr(key) for key, chosen in self._chosen.items()
                              if any((chain, place) in _operations_around(inner)
                                     for inner, _ in (*chosen.places, *chosen.changed_places)))
            raise UnsupportedError(at_user_line(
                f"{self.what}: {names} is inside {equation.primitive.name}{where}, which runs its program in a way of "
                "its own. Return the value from there"))
        return opening(self, equation, operands, chain, place, turn)

    def takes(self, chain: Chain) -> list[str]:
        """Return the keys of values that are taken in the program at `chain`, or in those nested in it."""
        return [key for (inner, _), keys in self._taken.items() if inner[:len(chain)] == chain for key in keys]

    def feeds(self, chain: Chain) -> list[str]:
        """Return the keys of arrays whose entries a value in the program at `chain`, or in one nested in it, takes."""
        return [key for key in self._fed
                if any(inner[:len(chain)] == chain for inner, _ in self._chosen[key].changed_places)]

    def axes_of(self, key: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of the mesh axes of these names along which a value differs."""
        return tuple(name for name in names if name in self._chosen[key].value.aval.vma)

    def type_of(self, key: str, depth: int) -> Aval:
        """Return the type of a value as the program at the depth of its chain has it: turns of inner loops stacked."""
        value = self._chosen[key].value
        times = [loop.times or 0 for loop in value.loops if loop.depth > depth]
        return value.aval.strong().update(shape=(*times, *value.aval.shape))

    def missing(self, key: str, depth: int) -> Any:
        """Return what stands for a floating-point value that is not computed."""
        aval = self.type_of(key, depth)
        return np.full(aval.shape, np.nan, aval.dtype)

    def replaces(self, chain: Chain) -> bool:
        """Return whether values are replaced in the program at `chain`, or in those nested in it."""
        return any(inner[:len(chain)] == chain for inner, _ in self._actions)


def _operations_around(chain: Chain) -> list[tuple[Chain, int]]:
    """Return the operations that a chain leads through: by the chain to their program, and their position in it."""
    return [(chain[:length], place) for length, (place, _) in enumerate(chain)]


def value_of(value: Any) -> Any:
    """Return a value for functions of users: a literal as the number that it stands for."""
    if type(value) is not Literal:
        return value
    return value.value.item() if value.aval.weak and isinstance(value.value, np.generic) else value.value


Opening = Callable[[Opened, Equation, "list[Any]", Chain, int, Turn], "tuple[list[Any], dict[str, Any]]"]
"""(the opened program, the operation, its operands, chain and position, turns) -> its results, and the values taken."""
openings: Analysis[Opening | None] = Analysis(
    "openings", "How an operation that holds programs is run with values inside taken out or replaced.",
    missing="conservative", default=None)


def _call(opened: Opened, equation: Equation, operands: list[Any], chain: Chain, place: int, turn: Turn,
          ) -> tuple[list[Any], dict[str, Any]]:
    """Run a call in place."""
    region, = equation.regions
    name = equation.params.get("name")
    with named_scope(str(name)) if name else nullcontext():
        return opened.inside(region.program, [operands[link.place] for link in region.inputs], (*chain, (place, 0)),
                             turn)


def _wrapped(transformation: Callable[[Equation, Callable[..., Any]], Callable[..., Any]]) -> Opening:
    """Return the opening of a call that `transformation(equation, function)` records."""
    def opening(opened: Opened, equation: Equation, operands: list[Any], chain: Chain, place: int, turn: Turn,
                ) -> tuple[list[Any], dict[str, Any]]:
        program = equation.regions[0].program

        def function(*values: Any) -> Any:
            return opened.inside(program, values, (*chain, (place, 0)), turn)

        return transformation(equation, function)(*operands)
    return opening


def _own_rule(opened: Opened, equation: Equation, operands: list[Any], chain: Chain, place: int, turn: Turn,
              ) -> tuple[list[Any], dict[str, Any]]:
    """Run a function with a rule of its own as it is, and its code beside it for the values taken."""
    inner = (*chain, (place, 0))
    if opened.replaces(inner):
        raise UnsupportedError(at_user_line(
            f"{opened.what}: a value is to be replaced inside a function with a derivative rule of its own, which "
            "would stay that of the function as it is. Replace its result, or an argument"))
    _, taken = opened.inside(equation.regions[0].program, operands, inner, turn)
    return bind_equation(equation, operands), taken


def _branches(opened: Opened, equation: Equation, operands: list[Any], chain: Chain, place: int, turn: Turn,
              ) -> tuple[list[Any], dict[str, Any]]:
    """Run a choice; values taken in branches that are not chosen are NaN."""
    index, *values = operands
    regions = equation.regions
    branches = [opened.takes((*chain, (place, number))) for number in range(len(regions))]
    keys = [*dict.fromkeys(key for taken in branches for key in taken)]
    for key in keys:
        if all(key in taken for taken in branches):
            continue
        aval = opened.type_of(key, len(chain) + 1)
        if not dtypes.is_inexact(aval.dtype):
            raise UnsupportedError(at_user_line(
                f"{opened.what}: {key!r} ({aval}) is computed in one branch alone, and where that is not taken it "
                "has no value: only floating-point values can be NaN then. Return it from every branch"))

    def branch(region: Region, number: int) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            results, taken = opened.inside(region.program, values, (*chain, (place, number)), turn)
            return results, {key: taken[key] if key in taken else opened.missing(key, len(chain) + 1) for key in keys}
        return run

    index = lax.convert_element_type(index, np.int32)  # it may be a bool
    return lax.switch(index, [branch(region, number) for number, region in enumerate(regions)], *values)


def _scan(opened: Opened, equation: Equation, operands: list[Any], chain: Chain, place: int, turn: Turn,
          ) -> tuple[list[Any], dict[str, Any]]:
    """Run a scan; values taken inside are stacked."""
    region, = equation.regions
    params = equation.params
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    consts, carry, entries = (operands[:num_consts], operands[num_consts:num_consts + num_carry],
                              operands[num_consts + num_carry:])

    inner = (*chain, (place, 0))
    fed = {key: turn.entries[key] for key in opened.feeds(inner)}

    def step(carry: Any, x: Any) -> Any:
        number, entry, fed = x
        results, taken = opened.inside(region.program, [*consts, *carry, *entry], inner,
                                       turn.within(inner, number, fed))
        return results[:num_carry], (results[num_carry:], taken)

    last, (stacks, taken) = lax.scan(
        step, carry, (np.arange(params["length"], dtype=np.int32), entries, fed), params["length"],
        params["reverse"], params["unroll"])
    return [*last, *stacks], taken


def _loop(opened: Opened, equation: Equation, operands: list[Any], chain: Chain, place: int, turn: Turn,
          ) -> tuple[list[Any], dict[str, Any]]:
    """Run a loop of a number of turns that depends on values: nothing can be stacked in it."""
    inner = [key for number in range(len(equation.regions)) for key in opened.takes((*chain, (place, number)))]
    if inner:
        raise UnsupportedError(at_user_line(
            f"{opened.what}: {inner[0]!r} is inside a {equation.primitive} loop, whose number of turns depends on "
            "values, so that they cannot be stacked. Carry it to the end of the loop, or write "
            "fxgrad.lax.scan(..., until=)"))
    if equation.primitive is primitives["for"]:
        count, *values = operands
        region, = equation.regions
        num_consts = equation.params["num_consts"]
        consts = values[:num_consts]

        def run(number: Any, carry: list[Any]) -> list[Any]:
            inner = (*chain, (place, 0))
            return opened.inside(region.program, [*consts, *carry], inner, turn.within(inner, number))[0]

        return lax.fori_loop(0, count, run, values[num_consts:]), {}
    condition, body = equation.regions
    num_asked, num_given = equation.params["num_condition_consts"], equation.params["num_body_consts"]
    asked, given = operands[:num_asked], operands[num_asked:num_asked + num_given]

    def goes_on(state: Any) -> Any:
        number, carry = state
        inner = (*chain, (place, 0))
        return opened.inside(condition.program, [*asked, *carry], inner, turn.within(inner, number))[0][0]

    def step(state: Any) -> Any:
        number, carry = state
        inner = (*chain, (place, 1))
        return number + 1, opened.inside(body.program, [*given, *carry], inner, turn.within(inner, number))[0]

    return lax.while_loop(goes_on, step, (np.int32(0), operands[num_asked + num_given:]))[1], {}


def _mapped(opened: Opened, equation: Equation, operands: list[Any], chain: Chain, place: int, turn: Turn,
            ) -> tuple[list[Any], dict[str, Any]]:
    """Run a function on the devices of a mesh: values that differ on them have the devices as their first axis."""
    region, = equation.regions
    params = equation.params
    inner = (*chain, (place, 0))
    axes = {key: opened.axes_of(key, params["axis_names"]) for key in (*opened.takes(inner), *opened.feeds(inner))}
    fed = {key: turn.entries[key] for key in opened.feeds(inner)}

    def function(fed: dict[str, Any], *values: Any) -> Any:
        own = {key: entry[0] if axes[key] else entry for key, entry in fed.items()}
        device = lax.axis_index(params["axis_names"])
        results, taken = opened.inside(region.program, values, inner, turn.within(inner, device, own))
        return results, {key: value[None] if axes[key] else value for key, value in taken.items()}

    def spec(names: Sequence[Any]) -> PartitionSpec:
        return PartitionSpec(*(tuple(each) or None for each in names))

    first = {key: PartitionSpec(axes[key]) if axes[key] else PartitionSpec() for key in axes}
    mapped = shard_map(
        function, mesh=params["mesh"], in_specs=({key: first[key] for key in fed}, *map(spec, params["in_specs"])),
        out_specs=([*map(spec, params["out_specs"])], {key: first[key] for key in opened.takes(inner)}),
        axis_names=frozenset(params["axis_names"]), check_vma=params["check_vma"])
    return mapped(fed, *operands)


openings.enter(_call, primitives.named_call, primitives.jit_call, primitives.recompute, primitives.within_budget,
               primitives.custom_vmap)
openings.enter(_wrapped(lambda equation, function: checkpoint(
    function, policy=equation.params.get("policy"), prevent_cse=equation.params.get("prevent_cse", True))),
    primitives.checkpoint)
openings.enter(_wrapped(lambda _, function: nan_safe(function)), primitives.safe_call)
openings.enter(_own_rule, primitives.custom_jvp, primitives.custom_vjp)
openings.enter(_branches, primitives.cond)
openings.enter(_scan, primitives.scan)
openings.enter(_loop, primitives["for"], primitives["while"])
openings.enter(_mapped, primitives.shard_map)
