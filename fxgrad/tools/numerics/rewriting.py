"""Find naive forms in a program, and replace them by stable ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import (
    CALL_NAMES,
    Derived,
    Equation,
    Interpreter,
    Literal,
    Program,
    Region,
    Variable,
    aval_of,
    bind,
    bind_equation,
    convert,
    derive,
    memoize,
    merge_equal_equations,
    primitives,
    replace_programs,
)
from fxgrad.tools.numerics import of_differences, of_logarithms, of_products, of_quotients
from fxgrad.tools.numerics.rules import Rule, StableForm, stable_forms
from fxgrad.tools.numerics.view import ProgramView

ROOMS = (of_quotients, of_logarithms, of_products, of_differences)
"""The modules of rules, imported in the order in which their rules are tried."""

Known = tuple[float | None, ...]
"""For each input of a program its number if it is known, else None."""


class NaiveForm(NamedTuple):
    """A naive form in a program: the rule, the equation of its result, and its replacement."""

    rule: Rule
    equation: Equation
    instead: StableForm


class FormSearch(NamedTuple):
    """The naive forms of a program: its own, by equation, and those of its inner programs."""

    program: Program
    known: Known
    own: dict[int, NaiveForm]
    inner: dict[int, tuple[FormSearch, ...]]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to rewrite."""
        return not self.own and not self.inner

    def all(self) -> list[NaiveForm]:
        """Return all naive forms, those of the inner programs included."""
        return [*self.own.values(), *(found for searches in self.inner.values() for each in searches
                                      for found in each.all())]


def find_forms(program: Program, known: Known | None = None) -> FormSearch:
    """Return the naive forms of a program, memoized; `known` are numbers among its inputs."""
    if known is None:
        known = captured_numbers(program.constants) + (None,) * (len(program.inputs) - len(program.constants))
    return memoize(program, ("naive forms", known),
                   lambda: _find_forms(merge_equal_equations(_with_numbers(program, known)), known))


def _with_numbers(program: Program, known: Known) -> Program:
    """Return the program with literals for known inputs, so that equal operations are equal."""
    literals = {var: Literal(number, var.aval) for var, number in zip(program.inputs, known, strict=True)
                if number not in (None, IDENTITY)}
    if not literals:
        return program
    equations = [equation.replace([literals.get(atom, atom) if isinstance(atom, Variable) else atom
                                   for atom in equation.inputs]) for equation in program.equations]
    outputs = [literals.get(atom, atom) if isinstance(atom, Variable) else atom for atom in program.outputs]
    return program.replace(equations=equations, outputs=outputs)


def captured_numbers(values: Sequence[Any]) -> Known:
    """Return the Python numbers among captured values, which rules may inspect."""
    return tuple(map(_known_number, values))


_LARGEST = 2.0 ** 53
IDENTITY = math.inf
"""In the place of a number: the input is an identity matrix."""


def _known_number(value: Any) -> float | None:
    if type(value) not in (int, float) and not isinstance(value, np.ndarray | np.generic):
        return None
    kind, shape = getattr(value, "dtype", _FLOAT), getattr(value, "shape", ())
    if kind.kind not in "fi" and not dtypes.is_floating(kind):
        return None
    if shape:
        return IDENTITY if _is_identity(value) else None
    number = float(value)
    return number if abs(number) < _LARGEST and 2.0 * number == round(2.0 * number) else None


def _is_identity(value: Any) -> bool:
    size = value.shape[-1]
    if value.ndim != 2 or value.shape != (size, size) or not size or value[0, 0] != 1 or value[-1, 0] != (size == 1):
        return False  # most are not, at first sight
    return bool((value == np.eye(size)).all())


_FLOAT = np.dtype(np.float64)


def _find_forms(program: Program, known: Known) -> FormSearch:
    view = ProgramView(program, [var for var, number in zip(program.inputs, known, strict=True) if number == IDENTITY])
    own: dict[int, NaiveForm] = {}
    inner: dict[int, tuple[FormSearch, ...]] = {}
    for place, equation in enumerate(program.equations):
        if equation.regions:
            searches = tuple(_region_forms(view, equation, region) for region in equation.regions)
            if not all(each.is_empty for each in searches):
                inner[place] = searches
        elif stable_forms.of(equation.primitive) and dtypes.is_floating(equation.outputs[0].aval.dtype):
            found = _first_form(view, equation)
            if found is not None:
                own[place] = found
    return FormSearch(program, known, own, inner)


def _first_form(view: ProgramView, equation: Equation) -> NaiveForm | None:
    for rule in stable_forms.of(equation.primitive):
        instead = rule.search(view, equation)
        if instead is not None and all(
                dtypes.is_floating(atom.aval.dtype) or atom.aval.dtype.kind == "b" or rule.name in _OF_INTEGERS
                for atom in instead.atoms):
            return NaiveForm(rule, equation, instead)
    return None


_OF_INTEGERS = ("solve", "log-softmax")
"""Rules that take integer operands, such as indices."""


def _region_forms(view: ProgramView, equation: Equation, region: Region) -> FormSearch:
    """Return the naive forms in a program that an operation holds; none for the library's own functions."""
    called = CALL_NAMES.of(region.program)
    if called is not None and called.is_library:
        return FormSearch(region.program, (), {}, {})
    known = tuple(view.number(equation.inputs[link.place]) if link.how == "same" else None
                  for link in region.inputs)
    return find_forms(region.program, known)


# --- rewriting ------------------------------------------------------------------------------------------------------


def rewrite_forms(program: Program, known: Known | None = None) -> Derived | None:
    """Return the program with the stable forms, memoized; None if there is none to rewrite."""
    found = find_forms(program, known)
    return None if found.is_empty else _derive_rewritten(program, found)


def _derive_rewritten(program: Program, found: FormSearch) -> Derived:
    def build(*tracers: Any) -> tuple[Sequence[Any], None]:
        return _Rewriting(found).outputs(tracers), None
    return derive(program, ("stable", found.known), build, program.in_avals)


class _Rewriting(Interpreter):
    """Record the equations of a program, with naive forms replaced."""

    def __init__(self, found: FormSearch) -> None:
        self._found, self._place = found, -1
        self._values: dict[Any, Any] = {}

    def outputs(self, tracers: Sequence[Any]) -> list[Any]:
        """Return the outputs, for all inputs, captured ones first."""
        program = self._found.program
        self._values = dict(zip(program.inputs, tracers, strict=True))
        bare = program.replace(constants=[]) if program.constants else program
        return self.run(bare, tracers)

    def equation(self, equation: Equation, inputs: list[Any]) -> Sequence[Any]:
        """Return the results of the equation or of its replacement."""
        self._place += 1
        self._values.update(zip(equation.inputs, inputs, strict=True))
        own, inner = self._found.own.get(self._place), self._found.inner.get(self._place)
        if own is not None:
            value, aval = own.instead.function(*map(self._value, own.instead.atoms)), equation.outputs[0].aval
            if aval_of(value).shape != aval.shape:
                value, = bind(primitives.broadcast_to, value, shape=aval.shape)
            return [convert(value, aval.dtype, aval.weak)]
        if inner is not None:
            programs = []
            for region, found in zip(equation.regions, inner, strict=True):
                derived = None if found.is_empty else _derive_rewritten(region.program, found)
                programs.append(region.program if derived is None else derived.program)
                assert derived is None or not derived.captured, "stable forms close over nothing"
            equation = equation.replace(equation.inputs, replace_programs(equation.params, equation.regions, programs))
        return bind_equation(equation, inputs)

    def _value(self, atom: Any) -> Any:
        """Return the operand of a formula, with which Python's operators can compute: literals become numbers."""
        if isinstance(atom, Variable):
            value = self._values[atom]
            if not isinstance(value, Literal):
                return value
            atom = value
        return atom.value.item() if atom.aval.weak else atom.value
