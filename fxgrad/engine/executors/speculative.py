"""Derivatives of `fxgrad.safe` with ordinary products, and with strong ones only once a result is a NaN.

A strong product differs from the ordinary one only in numbers of which that makes a NaN, and what is linear hands a
NaN on. So where no result is a NaN, all of them are those of the strong program. With NumPy a whole derivative runs so.
In what is compiled it is the products of matrices that are ordinary at first, and what strong ones could change is
computed again from the beginning, in a loop of no turns where nothing is a NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from fxgrad.engine import dtypes
from fxgrad.engine.core.primitive import MissingRule, Primitive, registry
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import axes_used, definitions, has_effects, memoize, program_property
from fxgrad.engine.core.regions import Region, marked_inputs, replace_programs
from fxgrad.engine.derivation.simplify import remove_dead_code
from fxgrad.engine.ops.strong import is_plain_factor, ordinary_form, strong_dot_general_p

ALL: frozenset[Primitive] = frozenset(ordinary_form.entered())
"""The strong products."""
MATRICES: frozenset[Primitive] = frozenset((strong_dot_general_p,))
"""Those that a compiler does not fuse with what is around them."""


def relax_products(program: Program, strong: frozenset[Primitive] = ALL) -> Program:
    """The program with ordinary products in the place of `strong` ones: equal where these make no NaN."""
    def of(equation: Equation) -> Equation:
        if equation.regions:
            inner = [relax_products(region.program, strong) for region in equation.regions]
            return equation.replace(equation.inputs, replace_programs(equation.params, equation.regions, inner))
        ordinary = ordinary_form.of(equation.primitive) if equation.primitive in strong else None
        return equation if ordinary is None else Equation(
            ordinary, equation.inputs, equation.params, equation.outputs, equation.source)

    return memoize(program, ("weakened", strong), lambda: program.replace(equations=[*map(of, program.equations)]))


def has_products(program: Program, strong: frozenset[Primitive] = ALL) -> bool:
    """Whether there is a `strong` product in `program`, or in a program in it."""
    return not strong.isdisjoint(_strong_products(program))


@program_property
def _strong_products(program: Program) -> frozenset[Primitive]:
    return frozenset(equation.primitive for equation in program.equations if equation.primitive in ALL).union(
        *(_strong_products(inner) for equation in program.equations for inner in equation.programs))


# --- what a product could change ----------------------------------------------------------------------------------


class _Suspects:
    """The values of a program that `strong` products could change, those of `inputs` that are marked among them."""

    def __init__(self, program: Program, strong: frozenset[Primitive], inputs: Sequence[bool] = ()) -> None:
        self._strong = strong
        self.vars: set[Atom] = {var for var, marked in zip(program.inputs, inputs, strict=False) if marked}

    def take(self, equation: Equation) -> bool:
        """Notes what the equation makes of them; False, and nothing is noted, if it may hide a NaN in one."""
        moving = [atom in self.vars for atom in equation.inputs]
        if not any(moving) and not self.is_source(equation):
            return True
        found = {*equation.outputs}
        if equation.regions:
            inner = [_outputs_inside(region, self._strong, marked_inputs(region, moving))
                     for region in equation.regions]
            if None in inner:
                return False
            found = {equation.outputs[place] for places in inner if places is not None for place in places}
        elif isinstance(equation.primitive.transpose, MissingRule):
            return False
        if not all(dtypes.is_inexact(var.aval.dtype) for var in found):
            return False
        self.vars.update(found)
        return True

    def is_source(self, equation: Equation) -> bool:
        """Whether the equation is a strong product, or holds one."""
        return equation.primitive in self._strong or any(has_products(inner, self._strong)
                                                         for inner in equation.programs)


def _outputs_inside(region: Region, strong: frozenset[Primitive], inputs: Sequence[bool]) -> Sequence[int] | None:
    """The places of the outputs of an operation that its region could make suspect; None if that hides a NaN."""
    suspects = _Suspects(region.program, strong, inputs)
    if not all(map(suspects.take, region.program.equations)):
        return None
    at_once = all(link.how == "same" for link in region.inputs)  # and so not in a later run by an earlier one
    return [link.place for link, atom in zip(region.outputs, region.program.outputs, strict=True)
            if link.place >= 0 and (atom in suspects.vars or not at_once)]


def propagates_nans(program: Program, strong: frozenset[Primitive] = ALL) -> bool:
    """Whether a NaN that an ordinary product makes, in the place of a `strong` one, is in a result or chosen by none.

    What is linear hands it on. A comparison does not: what it decides may be finite.
    """
    return all(map(_Suspects(program, strong).take, program.equations))


_FOLLOWING: frozenset[Primitive] = frozenset(registry[name] for name in (
    "add", "sub", "neg", "mul", "div", "reduce_sum", "reshape", "transpose", "convert_element_type"))
_EXPOSING = _FOLLOWING | {registry["dot_general"], registry["broadcast_to"]}
"""Operations of which each NaN in an operand makes one in the result, if that has elements."""


def nan_check_outputs(program: Program, strong: frozenset[Primitive] = ALL) -> tuple[int, ...]:
    """The places of the outputs among which one is a NaN wherever a product in the place of a `strong` one made one.

    A gradient has for the product of matrices of a layer the sum of its bias: where that is a NaN, the product is.
    """
    return memoize(program, ("to look at", strong), lambda: _to_look_at(program, strong))


def _to_look_at(program: Program, strong: frozenset[Primitive]) -> tuple[int, ...]:
    suspects = _Suspects(program, strong)
    needed: dict[Atom, list[Atom]] = {}  # by what is suspect: what of it is to be exposed for it not to be looked at
    for equation in program.equations:
        given = [atom for atom in equation.inputs if atom in suspects.vars]
        suspects.take(equation)
        if suspects.is_source(equation):
            instead = None if given else _inside(equation, program.outputs, strong)
            needed.update({var: [var] if instead is None or var in instead else instead for var in equation.outputs})
        else:
            needed.update(dict.fromkeys(equation.outputs, given))
    outputs = [atom for atom in program.outputs if atom in suspects.vars]
    exposed = {atom for atom in outputs if needed[atom] == [atom]}
    for equation in reversed(program.equations):
        ordinary = ordinary_form.of(equation.primitive) if equation.primitive in strong else equation.primitive
        out = equation.outputs[0]
        if ordinary in _EXPOSING and out in exposed and 0 not in out.aval.shape:
            exposed.update(atom for atom in equation.inputs if atom in suspects.vars)
    return tuple(place for place, atom in enumerate(program.outputs)
                 if atom in suspects.vars and (needed[atom] == [atom] or not exposed.issuperset(needed[atom])))


def _inside(equation: Equation, outputs: Sequence[Atom], strong: frozenset[Primitive]) -> list[Atom] | None:
    """Of a call, those of its results that are to be looked at, if all of these are among `outputs`."""
    if [region.role for region in equation.regions] != ["call"]:
        return None
    looked: list[Atom] = [equation.outputs[place] for place in nan_check_outputs(equation.programs[0], strong)]
    return looked if set(outputs).issuperset(looked) else None


# --- compiled: a program in three ----------------------------------------------------------------------------------

Cuts = tuple[tuple[int, ...], ...]
"""Parts of an array that are to be looked at: for each, the axes along which only the first entry is."""


class Speculation(NamedTuple):
    """A program as `first`, with ordinary products, `again`, with strong ones, and `rest`, which is after these.

    `first` and `again` take what the program does. What `again` makes is what `first` begins its outputs with; of those
    at the places `looked` the parts are to be looked at. `rest` takes what the program does and what `first` makes.
    """

    first: Program
    again: Program
    rest: Program
    looked: tuple[tuple[int, Cuts], ...]


def speculation_of(program: Program) -> Speculation | None:
    """The program in three, if it has strong products of matrices that can be computed ordinarily at first."""
    if not has_products(program, MATRICES):
        return None
    return memoize(program, "attempt", lambda: _attempt(program))


def _attempt(program: Program) -> Speculation | None:
    suspects = _Suspects(program, MATRICES)
    early = _early(program, suspects)
    head = [equation for equation in program.equations if equation in early]
    rest = [equation for equation in program.equations if equation not in early]
    made = [var for equation in head for var in equation.outputs]
    used = {*program.outputs, *(atom for equation in rest for atom in equation.inputs)}
    changed = [var for var in made if var in used and var in suspects.vars]
    known = [var for var in made if var in used and var not in suspects.vars]
    both = program.replace(equations=head, outputs=[*changed, *known], captured=0, constants=(), signature=None)
    again = remove_dead_code(both.replace(outputs=[*changed]))
    if not changed or has_effects(again) or axes_used(again):  # which are not repeated, or not by all devices alike
        return None
    return Speculation(relax_products(both, MATRICES), again, Program([*program.inputs, *changed, *known], rest,
                                                                      program.outputs),
                   tuple((place, _cuts(again, again.outputs[place])) for place in nan_check_outputs(again, MATRICES)))


_WHOLE: Cuts = ((),)


def _cuts(program: Program, atom: Atom) -> Cuts:
    """The parts of a variable of `program` that are not finite wherever a factor of the product that it is is not.

    A number in the first factor that is not finite makes a whole row of the product so, and one in the second a whole
    column: a row and a column tell. What is no product is looked at as a whole.
    """
    if not isinstance(atom, Variable) or (equation := definitions(program).get(atom)) is None:
        return _WHOLE
    name, params, first = equation.primitive.name, equation.params, equation.inputs[0]
    if [region.role for region in equation.regions] == ["call"]:
        inner = equation.programs[0]
        return _cuts(inner, inner.outputs[[*equation.outputs].index(atom)])
    if name in ("dot_general", "strong_dot_general"):
        (contracted, _), (batch, _) = params["dimension_numbers"]
        place = first.aval.ndim - len(contracted)
        rows, columns = tuple(range(len(batch), place)), tuple(range(place, atom.aval.ndim))
        return (rows, columns) if rows and columns else _WHOLE
    if name == "transpose":
        return _moved(_cuts(program, first), params["permutation"])
    if name == "reduce_sum":
        return _moved(_cuts(program, first), [axis for axis in range(first.aval.ndim) if axis not in params["axes"]])
    if name == "reshape":
        before, after = ([axis for axis, size in enumerate(shape) if size != 1]
                         for shape in (first.aval.shape, atom.aval.shape))
        if [first.aval.shape[axis] for axis in before] == [atom.aval.shape[axis] for axis in after]:
            places = dict(zip(after, before, strict=True))
            return _moved(_cuts(program, first), [places.get(axis, -1) for axis in range(atom.aval.ndim)])
    if name in ("neg", "convert_element_type"):
        return _cuts(program, first)
    if name == "mul" and any(map(is_plain_factor, equation.inputs)):
        return _cuts(program, next(each for each in equation.inputs if not is_plain_factor(each)))
    return _WHOLE


def _moved(cuts: Cuts, order: Sequence[int]) -> Cuts:
    """The cuts of an array of which the axes in `order` are left, in this order."""
    moved = tuple(tuple(place for place, axis in enumerate(order) if axis in cut) for cut in cuts)
    return moved if all(moved) else _WHOLE


def _early(program: Program, suspects: _Suspects) -> Collection[Equation]:
    """The equations that strong products of matrices need, these, and what follows from them alone."""
    late: set[Atom] = set()
    possible = []
    for equation in program.equations:
        if late.isdisjoint(equation.inputs) and suspects.take(equation):
            possible.append(equation)
        else:  # and so is what is made of it
            late.update(equation.outputs)
    needed: set[Atom] = set()
    early = set()
    for equation in reversed(possible):
        if suspects.is_source(equation) or not needed.isdisjoint(equation.outputs):
            needed.update(equation.inputs)
            early.add(equation)
    there = {var for equation in early for var in equation.outputs if var in suspects.vars}
    for equation in possible:
        given = [atom for atom in equation.inputs if type(atom) is Variable]
        if equation.primitive in _FOLLOWING and given and there.issuperset(given):
            early.add(equation)
            there.update(equation.outputs)
    return early
