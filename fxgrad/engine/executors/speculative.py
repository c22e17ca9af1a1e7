"""Derivatives of `fxgrad.nan_safe` with ordinary products, and with strong ones only once a result is a NaN.

A strong product differs from the ordinary one only in numbers of which that makes a NaN, and what is linear hands a
NaN on. So where no result is a NaN, all of them are those of the strong program. With NumPy a whole derivative runs so.
In what is compiled it is the products of matrices that are ordinary at first, and what strong ones could change is
computed again from the beginning, in a loop of no turns where nothing is a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

from fxgrad.engine import dtypes
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.primitive import MissingRule, Primitive
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import definitions, has_effects, memoize, program_property, used_axes
from fxgrad.engine.core.regions import Region, marked_inputs, replace_programs
from fxgrad.engine.derivation.simplify import remove_dead_code
from fxgrad.engine.ops import arithmetic, pointwise, products, structural
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


exposes_nans: Analysis[Literal["early", "late"] | None] = Analysis(
    "exposes NaNs", "Whether each NaN in an operand makes one in the result, if that has elements.",
    missing="conservative", default=None)
"""What does so "early" is computed with the products whose results alone it takes; what does so "late" is not."""
exposes_nans.enter("early", pointwise.add_p, arithmetic.sub_p, arithmetic.neg_p, arithmetic.mul_p, arithmetic.div_p,
                   structural.reduce_sum_p, structural.reshape_p, structural.transpose_p,
                   structural.convert_element_type_p)
exposes_nans.enter("late", products.dot_general_p, structural.broadcast_to_p)


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
            instead = None if given else _called_outputs(equation, program.outputs, strong)
            needed.update({var: [var] if instead is None or var in instead else instead for var in equation.outputs})
        else:
            needed.update(dict.fromkeys(equation.outputs, given))
    outputs = [atom for atom in program.outputs if atom in suspects.vars]
    exposed = {atom for atom in outputs if needed[atom] == [atom]}
    for equation in reversed(program.equations):
        ordinary = ordinary_form.of(equation.primitive) if equation.primitive in strong else equation.primitive
        out = equation.outputs[0]
        if ordinary is not None and exposes_nans.of(ordinary) and out in exposed and 0 not in out.aval.shape:
            exposed.update(atom for atom in equation.inputs if atom in suspects.vars)
    return tuple(place for place, atom in enumerate(program.outputs)
                 if atom in suspects.vars and (needed[atom] == [atom] or not exposed.issuperset(needed[atom])))


def _called_outputs(equation: Equation, outputs: Sequence[Atom], strong: frozenset[Primitive]) -> list[Atom] | None:
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
    early = _early_equations(program, suspects)
    head = [equation for equation in program.equations if equation in early]
    rest = [equation for equation in program.equations if equation not in early]
    made = [var for equation in head for var in equation.outputs]
    used = {*program.outputs, *(atom for equation in rest for atom in equation.inputs)}
    changed = [var for var in made if var in used and var in suspects.vars]
    known = [var for var in made if var in used and var not in suspects.vars]
    both = program.replace(equations=head, outputs=[*changed, *known], captured=0, constants=(), signature=None)
    again = remove_dead_code(both.replace(outputs=[*changed]))
    if not changed or has_effects(again) or used_axes(again):  # which are not repeated, or not by all devices alike
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
    if [region.role for region in equation.regions] == ["call"]:
        inner = equation.programs[0]
        return _cuts(inner, inner.outputs[[*equation.outputs].index(atom)])
    rule = cut_rules.of(equation.primitive)
    return _WHOLE if rule is None else rule(program, equation)


cut_rules: Analysis[Callable[[Program, Equation], Cuts] | None] = Analysis(
    "cuts", "Which parts of a result tell of numbers in the factors of a product that are not finite.",
    missing="conservative", default=None)


@cut_rules.register(products.dot_general_p, strong_dot_general_p)
def _of_product(_: Program, equation: Equation) -> Cuts:
    (contracted, _), (batch, _) = equation.params["dimension_numbers"]
    place = equation.inputs[0].aval.ndim - len(contracted)
    rows, columns = tuple(range(len(batch), place)), tuple(range(place, equation.outputs[0].aval.ndim))
    return (rows, columns) if rows and columns else _WHOLE


@cut_rules.register(structural.transpose_p)
def _of_transpose(program: Program, equation: Equation) -> Cuts:
    return _permute_cuts(_cuts(program, equation.inputs[0]), equation.params["permutation"])


@cut_rules.register(structural.reduce_sum_p)
def _of_sum(program: Program, equation: Equation) -> Cuts:
    operand, axes = equation.inputs[0], equation.params["axes"]
    return _permute_cuts(_cuts(program, operand), [axis for axis in range(operand.aval.ndim) if axis not in axes])


@cut_rules.register(structural.reshape_p)
def _of_reshape(program: Program, equation: Equation) -> Cuts:
    operand, shape = equation.inputs[0], equation.outputs[0].aval.shape
    before, after = ([axis for axis, size in enumerate(each) if size != 1] for each in (operand.aval.shape, shape))
    if [operand.aval.shape[axis] for axis in before] != [shape[axis] for axis in after]:
        return _WHOLE
    places = dict(zip(after, before, strict=True))
    return _permute_cuts(_cuts(program, operand), [places.get(axis, -1) for axis in range(len(shape))])


@cut_rules.register(arithmetic.neg_p, structural.convert_element_type_p)
def _of_operand(program: Program, equation: Equation) -> Cuts:
    return _cuts(program, equation.inputs[0])


@cut_rules.register(arithmetic.mul_p)
def _of_factor(program: Program, equation: Equation) -> Cuts:
    if not any(map(is_plain_factor, equation.inputs)):
        return _WHOLE
    return _cuts(program, next(each for each in equation.inputs if not is_plain_factor(each)))


def _permute_cuts(cuts: Cuts, order: Sequence[int]) -> Cuts:
    """Return the cuts of an array that keeps the axes `order`, in this order."""
    moved = tuple(tuple(place for place, axis in enumerate(order) if axis in cut) for cut in cuts)
    return moved if all(moved) else _WHOLE


def _early_equations(program: Program, suspects: _Suspects) -> Collection[Equation]:
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
        if exposes_nans.of(equation.primitive) == "early" and given and there.issuperset(given):
            early.add(equation)
            there.update(equation.outputs)
    return early
