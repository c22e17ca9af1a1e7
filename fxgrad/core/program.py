"""The IR: `Var`, `Equation`, `Program`. Programs are values: built once and never changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

from fxgrad import dtypes
from fxgrad.core.avals import Aval, Literal
from fxgrad.core.primitive import Primitive


class Var:
    """A variable of a program; it has a type, `aval`, and its identity is its name.

    >>> import numpy as np
    >>> Var(Aval((2, 3), np.dtype("float32")))
    Var(f32[2,3])
    """

    __slots__ = ("aval",)

    aval: Aval

    def __init__(self, aval: Aval) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var({self.aval})"


Atom = Var | Literal


class Source(NamedTuple):
    """Where in the user's code an equation was recorded: a code object and an instruction in it."""

    code: CodeType
    instruction: int

    @property
    def positions(self) -> tuple[int | None, int | None, int | None, int | None]:
        """First line, last line, first column, last column of the expression (None where not known)."""
        for index, positions in enumerate(self.code.co_positions()):
            if index == self.instruction // 2:
                return positions
        return self.code.co_firstlineno, None, None, None

    @property
    def line(self) -> int:
        """The line number."""
        return self.positions[0] or self.code.co_firstlineno

    @property
    def filename(self) -> str:
        """The file of the code."""
        return self.code.co_filename


class Equation:
    """One operation: `outputs = primitive[params](inputs)`; `source` is the user's line, if known.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: np.sum(x, axis=0))(np.ones((2, 3)))
    >>> program.equations[0].primitive, program.equations[0].params
    (reduce_sum, {'axes': (0,)})
    """

    # A slots class that is not frozen: frozen dataclasses take three times as long to build.
    __slots__ = ("inputs", "outputs", "params", "primitive", "source")

    primitive: Primitive
    inputs: list[Atom]
    params: dict[str, Any]
    outputs: list[Var]
    source: Source | None

    def __init__(self, primitive: Primitive, inputs: list[Atom], params: dict[str, Any], outputs: list[Var],
                 source: Source | None = None) -> None:
        self.primitive, self.inputs, self.params = primitive, inputs, params
        self.outputs, self.source = outputs, source

    @property
    def regions(self) -> tuple[Any, ...]:
        """The programs that the operation holds, each with what it is for (`Region`s); none for most operations."""
        regions = self.primitive.regions
        return () if regions is None else regions(self.inputs, **self.params)

    @property
    def programs(self) -> list[Program]:
        """The programs that the operation holds."""
        return subprograms(self.primitive, self.params)

    def __repr__(self) -> str:
        outputs = ", ".join(str(var.aval) for var in self.outputs)
        inputs = ", ".join(str(atom.aval) for atom in self.inputs)
        return f"{outputs} = {self.primitive}({inputs})"


class Signature(NamedTuple):
    """How a program is called and shown: its name, names of inputs, and the trees of arguments and results."""

    name: str
    input_names: tuple[str, ...]
    in_tree: Any
    out_tree: Any


class Program:
    """A traced function: `inputs`, `equations` in order, `outputs`.

    The first `captured` inputs are values that the function closed over; `constants` holds their values when
    the program is closed (as `make_program` returns it), and then calling the program takes the other
    inputs only. Calling it runs it: on NumPy arrays with NumPy, on jax arrays with XLA, on tracers by
    recording its equations.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> program = fxgrad.make_program(lambda x: fnp.sin(x) * 2.0)(1.0)
    >>> print(round(float(program(1.0)), 4))
    1.6829
    """

    __slots__ = ("__weakref__", "captured", "constants", "equations", "inputs", "memo", "outputs", "signature")

    inputs: list[Var]
    equations: list[Equation]
    outputs: list[Atom]
    captured: int
    constants: list[Any]
    signature: Signature | None
    memo: dict[Any, Any]

    def __init__(self, inputs: Sequence[Var], equations: Sequence[Equation], outputs: Sequence[Atom],
                 captured: int = 0, constants: Sequence[Any] = (), signature: Signature | None = None) -> None:
        self.inputs, self.equations, self.outputs = list(inputs), list(equations), list(outputs)
        self.captured, self.constants, self.signature = captured, list(constants), signature
        self.memo = {}

    @property
    def in_avals(self) -> list[Aval]:
        """The types of the inputs, the captured ones first."""
        return [var.aval for var in self.inputs]

    @property
    def out_avals(self) -> list[Aval]:
        """The types of the outputs."""
        return [atom.aval for atom in self.outputs]

    def __call__(self, *args: Any) -> Any:
        return call_hook(self, args)

    def __str__(self) -> str:
        return text_hook(self)

    def __repr__(self) -> str:
        return text_hook(self)

    def __rich__(self) -> Any:
        return rich_hook(self)

    def __copy__(self) -> Program:
        return self  # programs are values, which nothing changes

    def __deepcopy__(self, _: Any) -> Program:
        return self

    def __reduce__(self) -> Any:
        return reduce_hook(self)

    def check(self) -> Program:
        """Verifies the program: bindings, types, outputs, nested programs; returns the program.

        Raises `ProgramError`, which shows the equation, its neighbours and the user's line.
        """
        check_hook(self)
        return self


def not_installed(*_: Any) -> Any:
    """What a hook is until the layer that it belongs to is imported."""
    raise RuntimeError("import fxgrad, not a part of it: this hook is set there")


# What a program can do for its user belongs to higher layers, which set these when they are imported.
call_hook: Callable[[Program, tuple[Any, ...]], Any] = not_installed
text_hook: Callable[[Program], str] = not_installed
rich_hook: Callable[[Program], Any] = not_installed
check_hook: Callable[[Program], None] = not_installed
reduce_hook: Callable[[Program], Any] = not_installed


def subprograms(primitive: Primitive, params: dict[str, Any]) -> list[Program]:
    """The programs that an operation holds."""
    return [] if primitive.regions is None else [region.program for region in primitive.regions((), **params)]


NO_AXES: frozenset[str] = frozenset()


def has_effects(program: Program) -> bool:
    """Whether running `program` does anything beside computing its outputs."""
    known: bool | None = program.memo.get("effects")
    if known is None:
        known = program.memo["effects"] = any(
            is_effectful(equation.primitive, equation.params) for equation in program.equations)
    return known


def is_effectful(primitive: Primitive, params: dict[str, Any]) -> bool:
    """Whether an operation, or a program that it holds, has effects."""
    return primitive.effectful or any(map(has_effects, subprograms(primitive, params)))


def consults(program: Program) -> bool:
    """Whether running `program` asks code of the user's what is to be computed."""
    known: bool | None = program.memo.get("consults")
    if known is None:
        known = program.memo["consults"] = any(
            equation.primitive.consults or any(map(consults, equation.programs))
            for equation in program.equations)
    return known


def axes_used(program: Program) -> frozenset[str]:
    """The names of the mapped axes over which `program` has collective operations."""
    known: frozenset[str] | None = program.memo.get("axes used")
    if known is None:
        known = program.memo["axes used"] = NO_AXES.union(*(
            axes_of(equation.primitive, equation.params) for equation in program.equations))
    return known


def axes_of(primitive: Primitive, params: dict[str, Any]) -> frozenset[str]:
    """The names of the mapped axes that an operation, or a program that it holds, speaks over."""
    if primitive.collective:
        return frozenset((params["axis_name"],))
    return NO_AXES if primitive.regions is None else NO_AXES.union(*map(axes_used, subprograms(primitive, params)))


def bonds(primitive: Primitive, params: dict[str, Any]) -> tuple[bool, frozenset[str]]:
    """`is_effectful` and `axes_of` at once: what keeps an operation at its place."""
    if primitive.effectful or primitive.collective or primitive.regions is not None:
        return is_effectful(primitive, params), axes_of(primitive, params)
    return False, NO_AXES


def needs_x64(program: Program) -> bool:
    """Whether any value in `program` is of a 64-bit dtype, so that jax must be told to keep it."""
    known = program.memo.get("needs_x64")
    if known is None:
        avals = program.in_avals + program.out_avals
        avals += [atom.aval for equation in program.equations for atom in (*equation.inputs, *equation.outputs)]
        known = any(dtypes.is_64bit(aval.dtype) for aval in avals) or any(
            any(map(needs_x64, equation.programs)) for equation in program.equations)
        program.memo["needs_x64"] = known
    return bool(known)
