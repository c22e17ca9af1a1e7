"""Find derivatives of a program that are zero by accident, infinite or NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fxgrad.extend import (
    CALL_NAMES,
    Analysis,
    Atom,
    Equation,
    Interpreter,
    Literal,
    MissingRule,
    Program,
    Region,
    has_tangent,
    primitives,
)
from fxgrad.tools.numerics.findings import Finding, finding
from fxgrad.tools.numerics.view import ProgramView

# --- derivatives that are zero --------------------------------------------------------------------------------------


class Dependence(NamedTuple):
    """Dependence of a value on inputs, by their numbers: with a derivative, and without one."""

    smoothly: frozenset[int]
    cut: frozenset[tuple[int, Equation]]


NOTHING = Dependence(frozenset(), frozenset())
OPAQUE = (primitives.custom_jvp, primitives.custom_vjp)


class _DependenceSearch(Interpreter):
    """Carries, for each value, the inputs that it depends on and how."""

    def literal(self, _: Literal) -> Dependence:
        return NOTHING

    def constant(self, _: object) -> Dependence:
        return NOTHING

    def equation(self, equation: Equation, inputs: list[Dependence]) -> list[Dependence]:
        cut = frozenset[tuple[int, Equation]]().union(*(each.cut for each in inputs))
        smoothly = frozenset[int]().union(*(
            each.smoothly for each, atom in zip(inputs, equation.inputs, strict=True) if has_tangent(atom.aval)))
        if equation.primitive is primitives.stop_gradient:  # that is meant
            return [NOTHING]
        if equation.primitive in OPAQUE:  # its derivative is whatever the user's rule says
            return [Dependence(smoothly, frozenset())] * len(equation.outputs)
        if equation.regions:
            return self._into(equation, inputs)
        has_rule = not isinstance(equation.primitive.jvp, MissingRule) and equation.primitive is not primitives.sign
        return [Dependence(smoothly, cut) if has_rule and has_tangent(var.aval) else
                Dependence(frozenset(), cut | {(number, equation) for number in smoothly}) for var in equation.outputs]

    def _into(self, equation: Equation, inputs: list[Dependence]) -> list[Dependence]:
        """Return the results of an operation's inner programs; an operand that selects one has no derivative."""
        linked = {link.place for region in equation.regions for link in region.inputs}
        chosen = frozenset[tuple[int, Equation]]().union(*(
            each.cut | {(number, equation) for number in each.smoothly}
            for place, each in enumerate(inputs) if place not in linked))
        outputs = [Dependence(frozenset(), chosen)] * len(equation.outputs)
        for region in equation.regions:
            for place, found in self._visit_region(region, inputs):
                if place < len(outputs):
                    outputs[place] = Dependence(outputs[place].smoothly | found.smoothly,
                                                outputs[place].cut | found.cut)
        return outputs

    def _visit_region(self, region: Region, inputs: list[Dependence]) -> Iterator[tuple[int, Dependence]]:
        given = [NOTHING if link.how == "inside" or link.place >= len(inputs) else inputs[link.place]
                 for link in region.inputs]
        carried = [index for index, link in enumerate(region.inputs) if link.how == "carry"]
        while True:
            made, before = self.run(region.program.replace(constants=[]), given), [*given]
            again = [found for link, found in zip(region.outputs, made, strict=True) if link.how == "carry"]
            for index, found in zip(carried, again, strict=False):
                given[index] = Dependence(given[index].smoothly | found.smoothly, given[index].cut | found.cut)
            if given == before:
                break
        final = iter([given[index] for index in carried])
        for link, found in zip(region.outputs, made, strict=True):
            if link.how != "inside":
                yield link.place, next(final, found) if link.how == "carry" else found


work_arounds: Analysis[tuple[str, str]] = Analysis(
    "work-arounds", "What to write in the place of an operation whose slope is zero, and what messages call it.",
    missing="conservative", default=("", "x + stop_gradient(step(x) - x), straight through"))
work_arounds.enter(("", "np.sum(softmax(x / temperature) * values), a soft choice"), primitives.argmax,
                   primitives.argmin)
work_arounds.enter(("", "x + stop_gradient(np.round(x) - x), straight through"), primitives.round, primitives.floor,
                   primitives.ceil)
work_arounds.enter(("", "np.tanh(x / width), a smooth step"), primitives.sign)
work_arounds.enter(("a conversion to integers", "x + stop_gradient(np.round(x) - x), straight through"),
                   primitives.convert_element_type)
work_arounds.enter(("a comparison", "sigmoid(x / width), a smooth step"), primitives.gt, primitives.ge, primitives.lt,
                   primitives.le, primitives.ne, primitives.eq)
work_arounds.enter(("the choice of a branch", "both branches, weighted by a smooth step"), primitives.cond)
_OTHERS = "or a smooth function in its place; or an estimator of the derivative (score function)"


def zero_slopes(program: Program) -> list[Finding]:
    """Return operations without a derivative by which alone a floating-point input reaches floating-point results."""
    count = len(program.inputs) - len(program.constants)
    free = program.inputs[len(program.constants):]
    given = [Dependence(frozenset({number}) if has_tangent(var.aval) else frozenset(), frozenset())
             for number, var in enumerate(free)]
    reached = _DependenceSearch().run(program, given)
    results = [each for each, atom in zip(reached, program.outputs, strict=True) if has_tangent(atom.aval)]
    smoothly = frozenset[int]().union(*(each.smoothly for each in results))
    lost: dict[Equation, list[int]] = {}
    pairs = {pair for each in results for pair in each.cut}
    for number, equation in sorted(pairs, key=lambda pair: (pair[0], program_order(pair[1]))):
        if number not in smoothly:
            lost.setdefault(equation, []).append(number)
    names = [f"input {number}" for number in range(count)] if program.signature is None else [
        *program.signature.input_names]
    return [_lost_finding(equation, [names[number] for number in numbers]) for equation, numbers in lost.items()]


def program_order(equation: Equation) -> tuple[int, str]:
    """Return a sort key: the line, and the operation."""
    return (0 if equation.source is None else equation.source.line), equation.primitive.name


def _lost_finding(equation: Equation, names: Sequence[str]) -> Finding:
    called, first = work_arounds.of(equation.primitive)
    what, who = called or equation.primitive.name, ", ".join(names)
    fault = f"{what} has no derivative but 0, and so has {who}: no gradient comes through"
    return finding(equation.source, fault, f"{first}; {_OTHERS}", "derivative")


# --- derivatives that are infinite or NaN ---------------------------------------------------------------------------

singular_operands: Analysis[tuple[int, str] | None] = Analysis(
    "singular operands", "The operand at whose zero the slope is infinite, and what messages call the operation.",
    missing="conservative", default=None)
singular_operands.enter((0, "log"), primitives.log)
singular_operands.enter((0, "sqrt"), primitives.sqrt)
singular_operands.enter((0, "1 / sqrt"), primitives.rsqrt)
singular_operands.enter((1, "a quotient"), primitives.div)
_DOUBLE_WHERE = "np.where(x > 0, f(np.where(x > 0, x, 1.0)), 0.0)"
_COMPARISONS = (primitives.gt, primitives.ge, primitives.lt, primitives.le, primitives.ne)


def _singular(maker: Equation | None) -> tuple[int, str] | None:
    return None if maker is None else singular_operands.of(maker.primitive)


def infinite_slopes(program: Program) -> list[Finding]:
    """Return findings for logarithms, roots and quotients of a value that is 0 on an interval, or masked by `where`."""
    view = ProgramView(program)
    found = []
    for equation in program.equations:
        singular = singular_operands.of(equation.primitive)
        if singular is not None:
            place, what = singular
            if _is_held_at_zero(view, equation.inputs[place]):
                found.append(finding(
                    equation.source, f"{what} of what is 0 for every number below 0: the derivative there is NaN",
                    _DOUBLE_WHERE, "derivative"))
        elif equation.primitive is primitives.select_n:
            found += _branch_findings(view, equation)
        for region in equation.regions:
            called = CALL_NAMES.of(region.program)
            if called is None or not called.is_library:
                found += infinite_slopes(region.program)
    return found


_MOVES = (primitives.reshape, primitives.broadcast_to, primitives.convert_element_type)


def _is_held_at_zero(view: ProgramView, atom: Atom) -> bool:
    """Return whether a value is 0 on an interval: maximum(x, 0), and products with it."""
    if not has_tangent(atom.aval):
        return False
    maker = view.maker(atom)
    if maker is None:
        return False
    if maker.primitive is primitives.max:
        return any(view.is_number(each, 0.0) for each in maker.inputs)
    if maker.primitive in _MOVES or maker.primitive is primitives.neg:
        return _is_held_at_zero(view, maker.inputs[0])
    if maker.primitive is primitives.mul:
        return any(_is_held_at_zero(view, each) for each in maker.inputs)
    return False


def _branch_findings(view: ProgramView, equation: Equation) -> list[Finding]:
    """Return findings for a single `where`: the branch not taken has an infinite derivative where the test fails."""
    test, *branches = equation.inputs
    compared = view.of(test, *_COMPARISONS)
    if compared is None:
        return []
    tested = {each for each in compared if view.number(each) is None}
    for branch in branches:
        maker, steps = view.maker(branch), 0
        while maker is not None and maker.primitive in (primitives.mul, primitives.neg, *_MOVES) and steps < 4:
            inner = [view.maker(each) for each in maker.inputs]
            maker, steps = next((each for each in inner if _singular(each) is not None), None), steps + 1
        singular = _singular(maker)
        if maker is not None and singular is not None:
            place, what = singular
            at_zero = any(view.is_number(each, 0.0) for each in compared)
            if maker.inputs[place] in tested and at_zero:
                fault = f"where leaves {what} out, but not its derivative: 0 times infinity is NaN"
                return [finding(equation.source, fault, _DOUBLE_WHERE, "derivative")]
    return []
