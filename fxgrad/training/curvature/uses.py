"""Where a loss uses its parameters: the layers of its program, and what stays without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad.extend import Aval, Equation, Literal, Program, Variable, memoize, primitives
from fxgrad.text import inline
from fxgrad.text.inlining import holds_call
from fxgrad.text.short import operation_name
from fxgrad.training.curvature.rules import Axes, Layer, layer_rules, opened_calls, parameter_views

MOST_STEPS, MOST_UNROLLED = 256, 10_000
"""Loops over layers are unrolled up to these numbers of steps and equations, to find the layers in them.

With more steps, a matrix that each of them uses is seldom larger than the pairs of positions.
"""
MANY_STEPS = 9
"""Fewer steps over a stack of layers are unrolled for norms: they run faster, and are compiled more slowly."""


class Use(NamedTuple):
    """A use of a parameter as a layer: by the operand of `equation` at `place`, of which `layer` names the axes.

    `steps` lead from the parameter to the array that is used, in other forms: reshaped, or an entry of it. `axes` are
    the axes of that array which the operand has, in its order; the axes of `layer` are those of the array.
    """

    equation: Equation
    place: int
    layer: Layer
    steps: tuple[Any, ...]
    axes: Axes

    @property
    def line(self) -> str:
        """The user's file and line."""
        return _line(self.equation)


class ParameterUses(NamedTuple):
    """All uses of one parameter: its layers, or the reason, with the line, why its gradient is no sum over layers.

    With `loop` they are in the body of this scan, as `loop_body` returns it, for each entry of the parameter in turn.
    """

    uses: tuple[Use, ...]
    reason: str = ""
    line: str = ""
    loop: Equation | None = None

    @property
    def steps(self) -> int:
        """The number of entries of the parameter that have layers of their own in a loop; 1 without a loop."""
        return 1 if self.loop is None else self.loop.params["length"]

    def entry(self, aval: Aval) -> Aval:
        """Return the type of what the layers use, given that of the parameter."""
        return aval if self.loop is None else Aval(aval.shape[1:], aval.dtype)


class _View(NamedTuple):
    """A variable that is a parameter in another form."""

    leaf: int
    steps: tuple[Any, ...]
    axes: Axes


def opened_program(program: Program, *, loops: bool) -> Program:
    """Return the program with its calls replaced by what they compute, and with `loops` its short loops as well."""
    return memoize(program, ("opened for layers", loops), lambda: inline(
        program, calls=_is_opened, loops=_is_short if loops else False))


def _is_opened(equation: Equation) -> bool:
    return holds_call(equation) and opened_calls.of(equation.primitive)


def _is_short(equation: Equation) -> bool:
    region = equation.regions[0]
    steps = region.times or 0
    return steps <= MOST_STEPS and steps * len(region.program.equations) <= MOST_UNROLLED


def loop_body(loop: Equation) -> Program:
    """Return the program of a step of a scan, with its calls opened."""
    return opened_program(loop.params["program"], loops=False)


def find_uses(program: Program, parameters: Sequence[Variable], shortest: int) -> list[ParameterUses]:
    """Return the uses of some inputs of an opened `program`, and in scans over them of at least `shortest` steps."""
    count = len(parameters)
    found: list[Any] = [[] for _ in range(count)]
    loops: dict[int, list[ParameterUses]] = {}
    reasons: dict[int, tuple[str, str]] = {}
    views: dict[Variable, _View] = {}
    for number, var in enumerate(parameters):
        views[var] = _View(number, (), tuple(range(len(var.aval.shape))))
    for equation in program.equations:
        places = [place for place, atom in enumerate(equation.inputs)
                  if not isinstance(atom, Literal) and atom in views]
        if not places:
            continue
        placement = parameter_views.of(equation.primitive)
        moved = placement(equation) if placement is not None else None
        if moved is not None:
            view = views[equation.inputs[0]]  # type: ignore[index]
            for var, (steps, axes) in zip(equation.outputs, moved, strict=True):
                views[var] = (_View(view.leaf, view.steps, tuple(view.axes[axis] for axis in axes)) if not steps else
                              _View(view.leaf, (*view.steps, (view.axes, *steps)), axes))
            continue
        entries = _uses_in_loop(equation, {
            place: views[equation.inputs[place]] for place in places}, shortest)  # type: ignore[index]
        for place in places:
            view = views[equation.inputs[place]]  # type: ignore[index]
            if place in entries:
                loops.setdefault(view.leaf, []).append(entries[place])
                continue
            rule = layer_rules.of(equation.primitive)
            layer = (f"{operation_name(equation)} is no layer" if rule is None else
                     "it meets a parameter" if len(places) > 1 else rule(equation, place))
            if isinstance(layer, str):
                reasons.setdefault(view.leaf, (layer, _line(equation)))
            else:
                found[view.leaf].append(Use(equation, place, layer, view.steps, view.axes))
    for atom in program.outputs:
        if isinstance(atom, Variable) and atom in views:
            reasons.setdefault(views[atom].leaf, ("it is a result", ""))
    for number, own in loops.items():
        reason = next(((each.reason, each.line) for each in own if each.reason), None)
        if reason is None and (len(own) > 1 or found[number]):
            reason = "it is used in a loop and elsewhere", ""
        if reason is not None:
            reasons.setdefault(number, reason)
        else:
            found[number] = own[0]
    return [ParameterUses((), *reasons[number]) if number in reasons else
            uses if isinstance(uses, ParameterUses) else _combined(uses) for number, uses in enumerate(found)]


def _uses_in_loop(equation: Equation, given: dict[int, _View], shortest: int) -> dict[int, ParameterUses]:
    """Return, by place, the uses of the parameters whose entries a long scan goes through."""
    if equation.primitive is not primitives.scan or (
            equation.params["length"] < shortest and _is_short(equation)):
        return {}
    first = equation.params["num_consts"] + equation.params["num_carry"]
    stacks = [place for place, view in given.items() if place >= first and not view.steps
              and view.axes == tuple(range(len(view.axes)))]
    body = loop_body(equation)
    uses = find_uses(body, [body.inputs[place] for place in stacks], shortest)
    return {place: own._replace(loop=equation) if own.loop is None else ParameterUses((), "it is in a loop in a loop")
            for place, own in zip(stacks, uses, strict=True)}


def _line(equation: Equation) -> str:
    return "" if equation.source is None else equation.source.place


def _combined(uses: list[Use]) -> ParameterUses:
    """Return the uses of a parameter, unless two of them overlap in ways for which there is no common form."""
    for number, use in enumerate(uses):
        for other in uses[:number]:
            if not are_apart(use, other) and form_of(use) != form_of(other):
                return ParameterUses((), "it is used in two forms", _line(use.equation))
    return ParameterUses(tuple(uses))


def are_apart(one: Use, other: Use) -> bool:
    """Return whether two uses are of different entries of a parameter."""
    for (axes, first), (other_axes, second) in zip(one.steps, other.steps, strict=False):
        if (axes, first) != (other_axes, second):  # entries along one axis, so with different numbers
            return bool(axes == other_axes and first[:2] == second[:2] and first[0] == "entry")
    return False


def form_of(use: Use) -> Any:
    """Return what two uses of the same entries need to have in common: the array used, and `axes_of`."""
    return use.steps, *axes_of(use)


def axes_of(use: Use) -> tuple[Any, ...]:
    """Return the axes of blocks, their number of groups, and the two groups of axes of inputs and outputs."""
    layer = use.layer
    blocks, ins, outs = (tuple(use.axes[axis] for axis in axes) for axes in (layer.blocks, layer.ins, layer.outs))
    return blocks, layer.groups, frozenset([tuple(sorted(ins)), tuple(sorted(outs))])


def sorted_axes(use: Use) -> tuple[Sequence[int], Sequence[int]]:
    """Return the orders in which `ins` and `outs` are sorted as axes of the parameter."""
    return tuple(sorted(range(len(axes)), key=lambda number: use.axes[axes[number]])  # type: ignore[return-value]
                 for axes in (use.layer.ins, use.layer.outs))


def is_swapped(use: Use) -> bool:
    """Return whether the outputs have the first axis of the parameter: they are then the first factor."""
    first = [min((use.axes[axis] for axis in axes), default=-1) for axes in (use.layer.ins, use.layer.outs)]
    return first[1] < first[0]
