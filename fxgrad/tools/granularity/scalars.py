"""A scalar program under construction: its equations, their sources in the tensor program, and their limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fxgrad.errors import ArgumentError, FxgradError, UnsupportedError
from fxgrad.extend import Atom, Aval, Equation, Literal, Primitive, Source, Variable, at_user_line, infer_types

Elements = np.ndarray[Any, Any]
"""An array with one atom for each element of an array of numbers."""
Rule = Callable[["Scalars", Equation, list[Elements]], list[Elements]]
"""The elements of the outputs of an equation, given those of its inputs."""


class Scalars:
    """The equations of a program of scalars. Operations on numbers alone are folded, not recorded."""

    def __init__(self, limit: int) -> None:
        self.equations: list[Equation] = []
        self._limit = limit
        self._equation: Equation | None = None
        self._source: Source | None = None
        self._types: dict[Any, list[Aval]] = {}

    @contextmanager
    def at(self, equation: Equation) -> Iterator[None]:
        """Attribute the equations recorded in this block to `equation`."""
        before = self._equation, self._source
        self._equation = equation
        self._source = None if equation.source is None else equation.source.derived()
        try:
            yield
        finally:
            self._equation, self._source = before

    def apply(self, primitive: Primitive, *atoms: Atom, **params: Any) -> Atom:
        """Return the output of an operation on scalars."""
        if all(type(atom) is Literal for atom in atoms):
            values = [atom.value for atom in atoms]  # type: ignore[union-attr]
            aval, = self._outputs(primitive, atoms, params)
            with np.errstate(all="ignore"):
                return Literal(primitive.numpy(*values, **params)[0], aval)
        if len(self.equations) >= self._limit:
            raise self._too_long()
        outputs = [*map(Variable, self._outputs(primitive, atoms, params))]
        self.equations.append(Equation(primitive, list(atoms), params, outputs, self._source))
        return outputs[0]

    def _outputs(self, primitive: Primitive, atoms: Sequence[Atom], params: dict[str, Any]) -> list[Aval]:
        key = (primitive, *(atom.aval for atom in atoms), *params.items())
        known = self._types.get(key)
        if known is None:
            known = self._types[key] = infer_types(primitive, [atom.aval for atom in atoms], params)
        return known

    def folded(self, primitive: Primitive, atoms: Iterable[Atom]) -> Atom:
        """Reduce the nonempty `atoms` by a binary operation, from first to last."""
        first, *rest = atoms
        for atom in rest:
            first = self.apply(primitive, first, atom)
        return first

    def reserve(self, count: int) -> None:
        """Raise `ArgumentError` if `count` more equations exceed the limit, before they are created."""
        if len(self.equations) + count > self._limit:
            raise self._too_long(count)

    # --- messages -------------------------------------------------------------------------------------------

    def _place(self) -> str:
        """Return the equation that is being scalarized, and its line in the user's code."""
        equation = self._equation
        assert equation is not None
        where = "" if self._source is None else f" at {self._source.place}"
        types = ", ".join(str(atom.aval) for atom in equation.inputs)
        return f"{equation.primitive}({types}){where}"

    def _too_long(self, count: int = 1) -> FxgradError:
        return ArgumentError(at_user_line(
            f"scalarize: the program would have more than {self._limit} equations; up to {self._place()} there are "
            f"{len(self.equations)}, and {count} more are needed. Make the arrays smaller, or allow more: "
            "scalarize(program, limit=...)"))

    def refusal(self, why: str) -> FxgradError:
        """Return the error to raise if an equation has no form in scalars."""
        return UnsupportedError(at_user_line(f"scalarize: {self._place()} {why}"))


def as_elements(atoms: Sequence[Atom], shape: tuple[int, ...]) -> Elements:
    """Return atoms as an array."""
    array = np.empty(len(atoms), object)
    array[:] = atoms
    return array.reshape(shape)


def literal_elements(array: Any, aval: Aval) -> Elements:
    """Return the literals of an array of numbers."""
    of_each = Aval((), aval.dtype, aval.weak)
    return as_elements([Literal(value, of_each) for value in np.asarray(array).ravel()], aval.shape)


def known_numbers(operand: Elements, aval: Aval) -> Any:
    """Return the numbers of an operand if they are constant; None unless all are."""
    if not all(type(atom) is Literal for atom in operand.flat):
        return None
    return np.array([atom.value for atom in operand.flat], aval.dtype).reshape(operand.shape)


def number_elements(operands: Sequence[Elements]) -> tuple[list[Any], Elements]:
    """Return arrays with a number for each element of `operands`, and the elements by number."""
    starts = np.cumsum([0, *(operand.size for operand in operands)])
    places = [np.arange(start, start + operand.size).reshape(operand.shape)
              for start, operand in zip(starts, operands, strict=False)]
    flat = np.concatenate([operand.ravel() for operand in operands]) if operands else np.empty(0, object)
    return places, flat


def take_elements(flat: Elements, places: Any) -> Elements:
    """Return the elements of these numbers."""
    return as_elements([flat[place] for place in np.asarray(places).flat], np.shape(places))
