"""Derivatives of `fxgrad.nan_safe` with ordinary products first, and with strong ones only if a result is a NaN.

A strong product differs from the ordinary one only where the ordinary one yields NaN, and linear operations propagate
NaN. So if no result is a NaN, the results equal those of the strong program. NumPy runs whole derivatives this way. In
compiled code only matrix products are ordinary at first; values that strong ones could change are then recomputed from
the start, in a loop with zero iterations if there is no NaN.
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
"""All strong products."""
MATRICES: frozenset[Primitive] = frozenset((strong_dot_general_p,))
"""Strong products that a compiler does not fuse with their neighbours."""


def relax_products(program: Program, strong: frozenset[Primitive] = ALL) -> Program:
    """Return the program with ordinary products in place of `strong` ones: equal if these make no NaN."""
    def of(equation: Equation) -> Equation:
        if equation.regions:
            inner = [relax_products(region.program, strong) for region in equation.regions]
            return equation.replace(equation.inputs, replace_programs(equation.params, equation.regions, inner))
        ordinary = ordinary_form.of(equation.primitive) if equation.primitive in strong else None
        return equation if ordinary is None else Equation(
            ordinary, equation.inputs, equation.params, equation.outputs, equation.source)

    return memoize(program, ("weakened", strong), lambda: program.replace(equations=[*map(of, program.equations)]))


def has_products(program: Program, strong: frozenset[Primitive] = ALL) -> bool:
    """Return whether there is a `strong` product in `program`, or in a nested program."""
    return not strong.isdisjoint(_strong_products(program))


@program_property
def _strong_products(program: Program) -> frozenset[Primitive]:
    return frozenset(equation.primitive for equation in program.equations if equation.primitive in ALL).union(
        *(_strong_products(inner) for equation in program.equations for inner in equation.programs))


# --- values that a product could change ------------------------------------------------------------------------------


class _Suspects:
    """The values of a program that `strong` products could change, including the marked ones of `inputs`."""

    def __init__(self, program: Program, strong: frozenset[Primitive], inputs: Sequence[bool] = ()) -> None:
        self._strong = strong
        self.vars: set[Atom] = {var for var, marked in zip(program.inputs, inputs, strict=False) if marked}

    def take(self, equation: Equation) -> bool:
        """Mark the suspect results of an equation; return False, and mark none, if it may hide a NaN in an operand."""
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
        """Return whether the equation is a strong product, or contains one."""
        return equation.primitive in self._strong or any(has_products(inner, self._strong)
                                                         for inner in equation.programs)


def _outputs_inside(region: Region, strong: frozenset[Primitive], inputs: Sequence[bool]) -> Sequence[int] | None:
    """Return the places of an operation's outputs that its region could make suspect; None if that hides a NaN."""
    suspects = _Suspects(region.program, strong, inputs)
    if not all(map(suspects.take, region.program.equations)):
        return None
    at_once = all(link.how == "same" for link in region.inputs)  # so a later run does not depend on an earlier one
    return [link.place for link, atom in zip(region.outputs, region.program.outputs, strict=True)
            if link.place >= 0 and (atom in suspects.vars or not at_once)]


def propagates_nans(program: Program, strong: frozenset[Primitive] = ALL) -> bool:
    """Return whether NaNs of ordinary products, in place of `strong` ones, reach a result or are never selected.

    Linear operations propagate a NaN. A comparison does not: the values that it selects may be finite.
    """
    return all(map(_Suspects(program, strong).take, program.equations))


exposes_nans: Analysis[Literal["early", "late"] | None] = Analysis(
    "exposes NaNs", "Whether each NaN in an operand makes one in the result, if that has elements.",
    missing="conservative", default=None)
"""An "early" operation is computed with the products whose results alone it takes, a "late" one is not."""
exposes_nans.enter("early", pointwise.add_p, arithmetic.sub_p, arithmetic.neg_p, arithmetic.mul_p, arithmetic.div_p,
                   structural.reduce_sum_p, structural.reshape_p, structural.transpose_p,
                   structural.convert_element_type_p)
exposes_nans.enter("late", products.dot_general_p, structural.broadcast_to_p)


def nan_check_outputs(program: Program, strong: frozenset[Primitive] = ALL) -> tuple[int, ...]:
    """Return indices of outputs to check: if a relaxed product made a NaN, at least one is NaN.

    For a layer's matrix product a gradient has the sum of its bias: if the product is NaN, so is the sum.
    """
    return memoize(program, ("to look at", strong), lambda: _to_look_at(program, strong))


def _to_look_at(program: Program, strong: frozenset[Primitive]) -> tuple[int, ...]:
    suspects = _Suspects(program, strong)
    needed: dict[Atom, list[Atom]] = {}  # suspect -> values to expose, so that it may be skipped
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
    """Return the results of a call that are to be checked, if all of these are among `outputs`."""
    if [region.role for region in equation.regions] != ["call"]:
        return None
    looked: list[Atom] = [equation.outputs[place] for place in nan_check_outputs(equation.programs[0], strong)]
    return looked if set(outputs).issuperset(looked) else None


# --- compiled: a program in three ----------------------------------------------------------------------------------

Cuts = tuple[tuple[int, ...], ...]
"""Parts of an array to check: for each, the axes along which only the first entry is checked."""


class Speculation(NamedTuple):
    """A program in three parts: `first`, with ordinary products, `again`, with strong ones, and `rest`.

    `first` and `again` take the program's inputs. The results of `again` are the first outputs of `first`; the parts of
    those at the places `looked` are checked. `rest` takes the program's inputs and the results of `first`.
    """

    first: Program
    again: Program
    rest: Program
    looked: tuple[tuple[int, Cuts], ...]


def speculation_of(program: Program) -> Speculation | None:
    """Return the program in three parts, if it has strong matrix products that may be ordinary at first."""
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
    """Return the parts of a product that are not finite wherever one of its factors is not.

    A number in the first factor that is not finite makes a whole row of the product so, and one in the second a whole
    column: checking a row and a column suffices. If the variable is no product, all of it is checked.
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
    """Return the equations needed for strong matrix products, these, and those that follow from them alone."""
    late: set[Atom] = set()
    possible = []
    for equation in program.equations:
        if late.isdisjoint(equation.inputs) and suspects.take(equation):
            possible.append(equation)
        else:  # and so are its results
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
