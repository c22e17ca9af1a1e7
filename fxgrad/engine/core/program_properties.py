"""Properties of a program, computed once and stored on it: effects, axes, widths; and attributes for other modules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from fxgrad.engine import dtypes
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation, Program, Variable, require_program, subprograms

Kind = TypeVar("Kind")


class ProgramAttribute(Generic[Kind]):
    """An attribute that any program may have, with the lifetime of the program.

    >>> import fxgrad
    >>> program = fxgrad.make_program(lambda x: x + 1.0)(1.0)
    >>> price: ProgramAttribute[int] = ProgramAttribute("price")
    >>> price.of(program), price.put(program, 3), price.of(program)
    (None, 3, 3)
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"ProgramAttribute({self.name!r})"

    def of(self, program: Program) -> Kind | None:
        """Return the value on `program`, or None."""
        return program.attributes.get(self)

    def put(self, program: Program, value: Kind) -> Kind:
        """Set the value on `program`, and return it."""
        program.attributes[self] = value
        return value

    def remove(self, program: Program) -> None:
        """Remove the value from `program`, if it has one."""
        program.attributes.pop(self, None)


def program_property(find: Callable[[Program], Kind]) -> Callable[[Program], Kind]:
    """Compute `find(program)` once for each program: it depends on the program alone, and is not None."""
    @functools.wraps(find)
    def of(program: Program) -> Kind:
        try:
            found: Kind | None = program.attributes.get(find)
        except AttributeError:
            found = require_program(find.__name__, program).attributes.get(find)
        if found is None:
            found = program.attributes[find] = find(program)
        return found
    return of


NO_AXES: frozenset[str] = frozenset()


@program_property
def has_effects(program: Program) -> bool:
    """Return whether running `program` has effects beside computing its outputs."""
    return any(is_effectful(equation.primitive, equation.params) for equation in program.equations)


def is_effectful(primitive: Primitive, params: dict[str, Any]) -> bool:
    """Return whether an operation, or a program in its parameters that it runs, has effects.

    Derivatives alone run the solvers of tangents of a `custom_root`: their effects are none of the operation.
    """
    return primitive.effectful or (primitive.regions is not None and any(
        region.times != 0 and has_effects(region.program) for region in primitive.regions((), **params)))


@program_property
def calls_user_code(program: Program) -> bool:
    """Return whether running `program` runs user code, which may compute another result every time."""
    return any(equation.primitive.calls_user_code or any(map(calls_user_code, equation.programs))
               for equation in program.equations)


@program_property
def used_axes(program: Program) -> frozenset[str]:
    """Return the names of the mapped axes over which `program` has collective operations."""
    return NO_AXES.union(*(collective_axes(equation.primitive, equation.params) for equation in program.equations))


def collective_axes(primitive: Primitive, params: dict[str, Any]) -> frozenset[str]:
    """Return the names of the mapped axes that the collectives of an operation, or of its programs, reduce over."""
    if primitive.collective:
        name = params["axis_name"]
        return frozenset(name if isinstance(name, tuple) else (name,))
    if primitive.regions is None:
        return NO_AXES
    # Collectives over the axes that an operation itself maps its programs over end inside it.
    return NO_AXES.union(*map(used_axes, subprograms(primitive, params))).difference(params.get("axis_names", ()))


def ordering_constraints(primitive: Primitive, params: dict[str, Any]) -> tuple[bool, frozenset[str]]:
    """Return `is_effectful` and `collective_axes` of an operation, which forbid moving or dropping it."""
    if primitive.effectful or primitive.collective or primitive.regions is not None:
        return is_effectful(primitive, params), collective_axes(primitive, params)
    return False, NO_AXES


@program_property
def needs_x64(program: Program) -> bool:
    """Return whether any value in `program` is of a 64-bit dtype, which jax keeps in its x64 mode alone."""
    avals = program.in_avals + program.out_avals
    avals += [atom.aval for equation in program.equations for atom in (*equation.inputs, *equation.outputs)]
    return any(dtypes.is_64bit(aval.dtype) for aval in avals) or any(
        any(map(needs_x64, equation.programs)) for equation in program.equations)


@program_property
def count_equations(program: Program) -> int:
    """Return the number of equations of `program` and all programs nested in it, each counted where it stands."""
    return len(program.equations) + sum(
        sum(map(count_equations, equation.programs)) for equation in program.equations
        if equation.primitive.regions is not None)


@program_property
def definitions(program: Program) -> Mapping[Variable, Equation]:
    """Return the defining equation of each variable of `program` that is no input."""
    return {var: equation for equation in program.equations for var in equation.outputs}


def memoize(program: Program, key: Any, make: Callable[[], Kind]) -> Kind:
    """Return `make()`, called once for each `program` and `key`: it depends on these alone."""
    try:
        found: Kind = program.memo.get(key, _MISSING)
    except AttributeError:
        require_program("memoize", program)
        raise
    if found is _MISSING:
        found = program.memo[key] = make()
    return found


_MISSING: Any = object()
