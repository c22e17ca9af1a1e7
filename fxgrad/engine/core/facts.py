"""What follows from a program alone, found out once and kept on it: effects, axes, widths; and places for more."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from fxgrad.engine import dtypes
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation, Program, Var, subprograms

Kind = TypeVar("Kind")


class Slot(Generic[Kind]):
    """A place on every program for one kind of thing; what stands there lasts as long as the program does.

    >>> import fxgrad
    >>> program = fxgrad.make_program(lambda x: x + 1.0)(1.0)
    >>> price: Slot[int] = Slot("price")
    >>> price.of(program), price.put(program, 3), price.of(program)
    (None, 3, 3)
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Slot({self.name!r})"

    def of(self, program: Program) -> Kind | None:
        """What was put there, or None."""
        return program.slots.get(self)

    def put(self, program: Program, value: Kind) -> Kind:
        """Puts `value` there, and returns it."""
        program.slots[self] = value
        return value


def fact(find: Callable[[Program], Kind]) -> Callable[[Program], Kind]:
    """`find`, whose result follows from the program alone and is not None, found out once for each program."""
    @functools.wraps(find)
    def of(program: Program) -> Kind:
        found: Kind | None = program.slots.get(find)
        if found is None:
            found = program.slots[find] = find(program)
        return found
    return of


NO_AXES: frozenset[str] = frozenset()


@fact
def has_effects(program: Program) -> bool:
    """Whether running `program` does anything beside computing its outputs."""
    return any(is_effectful(equation.primitive, equation.params) for equation in program.equations)


def is_effectful(primitive: Primitive, params: dict[str, Any]) -> bool:
    """Whether an operation, or a program that it holds, has effects."""
    return primitive.effectful or any(map(has_effects, subprograms(primitive, params)))


@fact
def consults(program: Program) -> bool:
    """Whether running `program` asks code of the user's what is to be computed."""
    return any(equation.primitive.consults or any(map(consults, equation.programs)) for equation in program.equations)


@fact
def axes_used(program: Program) -> frozenset[str]:
    """The names of the mapped axes over which `program` has collective operations."""
    return NO_AXES.union(*(axes_of(equation.primitive, equation.params) for equation in program.equations))


def axes_of(primitive: Primitive, params: dict[str, Any]) -> frozenset[str]:
    """The names of the mapped axes that an operation, or a program that it holds, speaks over."""
    if primitive.collective:
        name = params["axis_name"]
        return frozenset(name if isinstance(name, tuple) else (name,))
    if primitive.regions is None:
        return NO_AXES
    # What maps its programs over axes says over which, and speaks over none of them to others.
    return NO_AXES.union(*map(axes_used, subprograms(primitive, params))).difference(params.get("axis_names", ()))


def bonds(primitive: Primitive, params: dict[str, Any]) -> tuple[bool, frozenset[str]]:
    """`is_effectful` and `axes_of` at once: what keeps an operation at its place."""
    if primitive.effectful or primitive.collective or primitive.regions is not None:
        return is_effectful(primitive, params), axes_of(primitive, params)
    return False, NO_AXES


@fact
def needs_x64(program: Program) -> bool:
    """Whether any value in `program` is of a 64-bit dtype, so that jax must be told to keep it."""
    avals = program.in_avals + program.out_avals
    avals += [atom.aval for equation in program.equations for atom in (*equation.inputs, *equation.outputs)]
    return any(dtypes.is_64bit(aval.dtype) for aval in avals) or any(
        any(map(needs_x64, equation.programs)) for equation in program.equations)


@fact
def makers_of(program: Program) -> Mapping[Var, Equation]:
    """The equation of `program` that makes each variable; inputs are made by none."""
    return {var: equation for equation in program.equations for var in equation.outputs}


def made_once(program: Program, key: Any, make: Callable[[], Kind]) -> Kind:
    """What `make` returns, made once for `program` and `key`."""
    found: Kind | None = program.memo.get(key)
    if found is None:
        found = program.memo[key] = make()
    return found
