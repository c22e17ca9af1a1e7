"""Where a loss uses its parameters: the layers of its program, and what stays without one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any, NamedTuple

from fxgrad.extend import Equation, Literal, Program, Variable, memoize, primitives
from fxgrad.text import inline
from fxgrad.text.inlining import holds_call
from fxgrad.text.short import operation_name
from fxgrad.training.curvature.rules import Axes, Layer, layer_rules, opened_calls, parameter_views

MOST_STEPS, MOST_UNROLLED = 256, 10_000
"""Loops that change a parameter are unrolled up to these numbers of steps and equations, to find the layers in them.
"""
MANY_STEPS = 9
"""Loops of fewer steps with layers are unrolled for norms: they run faster, and are compiled more slowly."""


Path = tuple[tuple[Equation, int | None], ...]


class Use(NamedTuple):
    """A use of a parameter as a layer: by the operand of `equation` at `place`, of which `layer` names the axes.

    `steps` lead from the parameter to the array that is used, in other forms: reshaped, or a part of it. `axes` are the
    axes of that array which the operand has, in its order, those in `flipped` backward; the axes of `layer` are those
    of the operand. `path` has the loops in whose bodies the equation is, with None, and the `cond`s with the number of
    the branch that it is in, outermost first. The scans at the numbers `entered` go through the entries of the
    parameter; in the steps of the others it is the same.
    """

    equation: Equation
    place: int
    layer: Layer
    steps: tuple[Any, ...]
    axes: Axes
    entered: tuple[int, ...] = ()
    path: Path = ()
    flipped: frozenset[int] = frozenset()

    @property
    def loops(self) -> tuple[Equation, ...]:
        """The scans in whose bodies the equation is, outermost first."""
        return tuple(equation for equation, _ in self.path if equation.primitive is primitives.scan)

    @property
    def is_open(self) -> bool:
        """Whether the equation is in a `while_loop`, whose number of steps is unknown."""
        return any(equation.primitive is primitives["while"] for equation, _ in self.path)

    @property
    def is_conditional(self) -> bool:
        """Whether the equation is in a branch, which examples or steps may not run."""
        return any(branch is not None for _, branch in self.path)

    @property
    def line(self) -> str:
        """The user's file and line."""
        return _line(self.equation)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The numbers of steps of the loops."""
        return tuple(loop.params["length"] for loop in self.loops)

    @property
    def entries(self) -> int:
        """The number of entries of the parameter that loops go through, each a layer; 1 without such a loop."""
        return prod(self.lengths[number] for number in self.entered)

    @property
    def rows(self) -> int:
        """The number of outer products in the gradient of an entry: those of the layer in all steps."""
        return self.layer.rows * prod(
            length for number, length in enumerate(self.lengths) if number not in self.entered)


class ParameterUses(NamedTuple):
    """All uses of one parameter: its layers, or the reason, with the line, why its gradient is no sum over layers."""

    uses: tuple[Use, ...]
    reason: str = ""
    line: str = ""


class _View(NamedTuple):
    """A variable that is a parameter in another form."""

    leaf: int
    steps: tuple[Any, ...]
    axes: Axes
    entered: tuple[int, ...] = ()
    flipped: frozenset[int] = frozenset()

    def moved(self, steps: tuple[Any, ...], axes: Axes) -> _View:
        """Return the view of a result of an operation on this one, given its `Placement`."""
        if not steps:
            return self._replace(axes=tuple(self.axes[axis] for axis in axes))
        if steps[0][0] == "reverse":
            return self._replace(flipped=self.flipped ^ {self.axes[axis] for axis in steps[0][1]})
        before = self.steps if not self.flipped else (
            *self.steps, (tuple(range(len(self.axes))), ("reverse", tuple(sorted(self.flipped)))))
        return self._replace(steps=(*before, (self.axes, *steps)), axes=axes, flipped=frozenset())


def opened_program(program: Program, longest: int = -1) -> Program:
    """Return the program with its calls replaced by what they compute, and loops of at most `longest` steps as well."""
    return memoize(program, ("opened for layers", longest), lambda: inline(
        program, calls=_is_opened, loops=lambda loop: is_short(loop, longest)))


def _is_opened(equation: Equation) -> bool:
    return holds_call(equation) and opened_calls.of(equation.primitive)


def is_short(equation: Equation, longest: int) -> bool:
    """Return whether a loop may be unrolled, and has at most `longest` steps."""
    region = equation.regions[0]
    steps = region.times or 0
    return steps <= longest and steps * len(region.program.equations) <= MOST_UNROLLED


def find_uses(program: Program, parameters: Sequence[Variable]) -> list[ParameterUses]:
    """Return the uses of some inputs of an opened `program`, also in the bodies of its loops and in branches."""
    search = _Search(len(parameters))
    search.walk(program, {var: _View(number, (), tuple(range(len(var.aval.shape))))
                          for number, var in enumerate(parameters)}, ())
    return search.result()


class _Search:
    """The uses found so far, and the reasons why parameters have others."""

    def __init__(self, count: int) -> None:
        self._found: list[list[Use]] = [[] for _ in range(count)]
        self._reasons: dict[int, tuple[str, str]] = {}

    def result(self) -> list[ParameterUses]:
        """Return what is known of each parameter."""
        return [ParameterUses((), *self._reasons[number]) if number in self._reasons else _combined(uses)
                for number, uses in enumerate(self._found)]

    def walk(self, program: Program, views: dict[Variable, _View], path: Path,
             unchanged: Collection[int] = ()) -> None:
        """Find uses in a program, whose inputs in `views` are parameters and whose results at `unchanged` may be."""
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
                    views[var] = view.moved(steps, axes)
            elif equation.primitive in (primitives.scan, primitives["while"]):
                self._walk_loop(equation, places, views, path)
            elif equation.primitive is primitives.cond:
                self._walk_branches(equation, places, views, path)
            else:
                self._use(equation, places, views, path)
        for place, atom in enumerate(program.outputs):
            if isinstance(atom, Variable) and atom in views and place not in unchanged:
                self._reasons.setdefault(views[atom].leaf, ("it is a result", ""))

    def _use(self, equation: Equation, places: Sequence[int], views: dict[Variable, _View], path: Path) -> None:
        """Note how an equation uses its operands at `places`."""
        for place in places:
            view = views[equation.inputs[place]]  # type: ignore[index]
            rule = layer_rules.of(equation.primitive)
            layer = (f"{operation_name(equation)} is no layer" if rule is None else
                     "it meets a parameter" if len(places) > 1 else rule(equation, place))
            if isinstance(layer, Layer) and layer.groups > 1 and view.flipped:
                layer = "it is reversed, and has groups"
            if isinstance(layer, str):
                self._reasons.setdefault(view.leaf, (layer, _line(equation)))
            else:
                self._found[view.leaf].append(
                    Use(equation, place, layer, view.steps, view.axes, view.entered, path, view.flipped))

    def _walk_branches(self, equation: Equation, places: Sequence[int], views: dict[Variable, _View],
                       path: Path) -> None:
        """Find uses in the branches of a `cond`."""
        for number, branch in enumerate(equation.params["branches"]):
            self.walk(branch, {branch.inputs[place - 1]: views[equation.inputs[place]] for place in places},  # type: ignore[index]
                      (*path, (equation, number)))

    def _walk_loop(self, loop: Equation, places: Sequence[int], views: dict[Variable, _View], path: Path) -> None:
        """Find uses in the body of a loop, which is given parameters as they are, or by a scan entry by entry."""
        params = loop.params
        if loop.primitive is primitives.scan:
            body, asked, consts = params["program"], 0, params["num_consts"]
            first = consts + params["num_carry"]
        else:
            body, asked, consts = params["body"], params["num_condition_consts"], params["num_body_consts"]
            first = len(body.inputs)
        inner: dict[Variable, _View] = {}
        unchanged = []
        count = sum(equation.primitive is primitives.scan for equation, _ in path)
        for operand in places:
            place = operand - asked
            if place < 0:  # of the condition, which has no derivative
                continue
            var, view = body.inputs[place], views[loop.inputs[operand]]  # type: ignore[index]
            if place >= first:
                inner[var] = view.moved((("entries", 0),), tuple(range(len(var.aval.shape))))._replace(
                    entered=(*view.entered, count))
            elif place < consts:
                inner[var] = view
            elif body.outputs[place - consts] is var:
                inner[var] = views[loop.outputs[place - consts]] = view
                unchanged.append(place - consts)
            else:
                self._reasons.setdefault(view.leaf, ("a loop changes it", _line(loop)))
        self.walk(body, inner, (*path, (loop, None)), unchanged)


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
        if (axes, first) != (other_axes, second):
            if axes != other_axes or first[:2] != second[:2]:
                return False
            # Entries along one axis have different numbers; parts may overlap.
            return first[0] == "entry" or (first[0] == "part" and {*range(*first[2:])}.isdisjoint(range(*second[2:])))
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
