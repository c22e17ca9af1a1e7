"""`tabulate`: the layers of a function, with the shapes, parameters, operations and memory of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from fxgrad import tree
from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.extend import (
    Aval,
    Cost,
    Equation,
    Program,
    Source,
    Variable,
    at_user_line,
    definitions,
    hide_frames,
    parameter_names,
    trace_program,
    transformation,
)
from fxgrad.extend.analyses import residuals
from fxgrad.extend.sizes import require_numbers
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.tools.granularity.layers import LayerEquations, inline_blocks, layers
from fxgrad.tools.graphs.roles import annotated_roles


class Layer(NamedTuple):
    """A layer: its name, its operations, the types of its results, and its cost.

    `parameters` are the elements of the parameters that it is the first to use, `parameter_bytes` their size. `flops`
    and `bytes` are the cost of its operations. `saved_bytes` is the size of the residuals among its values and among
    the arguments that it is the first to use, None if there is no derivative.
    """

    name: str
    operations: tuple[str, ...]
    outputs: tuple[Aval, ...]
    parameters: int
    parameter_bytes: int
    flops: int
    bytes: int
    saved_bytes: int | None


class Summary(Report):
    """The layers of a function and their totals; prints as a table, and as HTML in notebooks.

    `parameters` and `parameter_bytes` are those of all parameters, used or not; `cost` is that of the whole program;
    `saved_bytes` is None without a derivative.
    """

    def __init__(self, title: str, rows: Sequence[Layer], parameters: Sequence[Aval]) -> None:
        self.title, self.rows = title, tuple(rows)
        self.parameters = sum(aval.size for aval in parameters)
        self.parameter_bytes = sum(aval.nbytes for aval in parameters)
        self.cost = Cost(sum(row.flops for row in rows), sum(row.bytes for row in rows))
        saved = [row.saved_bytes for row in rows if row.saved_bytes is not None]
        self.saved_bytes = sum(saved) if saved else None

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Layer:
        """Return the layer of a name."""
        return {row.name: row for row in self.rows}[name]

    def table(self) -> Table:
        """Return the table for rich."""
        right: Any = "right"
        made = new_table(f"summary of {self.title}", {
            "layer": "left", "operations": "left", "output": "left", "parameters": right, "flops": right,
            "saved bytes": right})
        for row in self.rows:
            shown = ", ".join(row.operations[:MOST]) + (", ..." if len(row.operations) > MOST else "")
            add_row(made, [row.name, shown, ", ".join(map(str, row.outputs)), _count(row.parameters),
                           _count(row.flops), _count(row.saved_bytes)])
        made.add_section()
        add_row(made, ["total", "", "", f"{_count(self.parameters)} ({_count(self.parameter_bytes)} bytes)",
                       _count(self.cost.flops), _count(self.saved_bytes)], style="bold")
        return made

    def __repr__(self) -> str:
        return f"<summary of {self.title}: {len(self.rows)} layers, {self.parameters} parameters>"


MOST = 4
"""Most operations of a layer that are shown."""


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def tabulate(fun: Callable[..., Any], *, argnums: int | Sequence[int] | None = None, depth: int | None = None,
             ) -> Callable[..., Summary]:
    """Return the function that sums up the layers of `fun`: shapes, parameters, operations, memory.

    A layer is a named scope (`fxgrad.named_scope`), a block (`named_call`, `checkpoint`, functions with rules of their
    own), or else consecutive equations of one of the user's functions; `depth` limits how deep nested scopes are
    distinguished. Parameters are the arguments at `argnums`; by default those annotated with `fxgrad.Param`, or else
    the first. Only shapes and dtypes of the arguments matter. Totals are those of `fxgrad.cost_analysis` and
    `fxgrad.saved_residuals`.

    Raises `ArgumentError` for an `argnums` that names no argument.

    >>> import fxgrad, numpy as np
    >>> def network(params, x):
    ...     with fxgrad.named_scope("hidden"):
    ...         h = np.tanh(x @ params["W"] + params["b"])
    ...     with fxgrad.named_scope("head"):
    ...         return h @ params["V"]
    >>> params = {"W": np.ones((3, 8)), "b": np.ones(8), "V": np.ones((8, 2))}
    >>> found = fxgrad.tabulate(network)(params, np.ones((5, 3)))
    >>> [(row.name, row.outputs, row.parameters, row.flops) for row in found]
    [('hidden', (f64[5,8],), 32, 320), ('head', (f64[5,2],), 16, 160)]
    >>> found.parameters, found.cost.flops
    (48, 480)
    """
    @transformation("tabulate", fun)
    @hide_frames
    def summed_up(*args: Any, **kwargs: Any) -> Summary:
        program = fun if isinstance(fun, Program) else trace_program("tabulate", fun, args, kwargs)
        marked = [*_parameter_mask(fun, args, argnums), *[False] * len(tree.leaves(kwargs))]
        opened = inline_blocks(require_numbers("tabulate", program))
        parts = layers(opened, depth)
        arguments = opened.inputs[opened.captured:]
        parameters = [var for var, is_parameter in zip(arguments, marked, strict=True) if is_parameter]
        first_user: dict[Variable, int] = {}  # the first layer that uses each variable
        users: dict[Any, set[int]] = {atom: {-1} for atom in opened.outputs}  # the layers that do; -1 for results
        for number, part in enumerate(parts):
            for equation in part.equations:
                for atom in equation.inputs:
                    users.setdefault(atom, set()).add(number)
                    if isinstance(atom, Variable):
                        first_user.setdefault(atom, number)
        saved = _saved_bytes(opened, parts, first_user)
        # The types of each layer's values that others use, or that are results.
        leaving = [[var.aval for equation in part.equations for var in equation.outputs
                    if users.get(var, {number}) - {number}] for number, part in enumerate(parts)]
        rows = [_layer_row(part, leaving[number], [var.aval for var in parameters if first_user.get(var) == number],
                           None if saved is None else saved[number]) for number, part in enumerate(parts)]
        signature = program.signature
        title = "a program" if signature is None else signature.title or signature.name
        return Summary(title, rows, [var.aval for var in parameters])
    return summed_up


def _parameter_mask(fun: Callable[..., Any], args: Sequence[Any], argnums: int | Sequence[int] | None) -> list[bool]:
    """Return for each leaf of the arguments whether it belongs to a parameter."""
    names = parameter_names(fun, len(args))
    if argnums is None:
        found = annotated_roles(fun, len(args), None)
        chosen = {number for number, name in enumerate(names) if name in found} or {0}
    else:
        numbers = [argnums] if isinstance(argnums, int) else [*argnums]
        for number in numbers:
            if not -len(args) <= number < len(args):
                raise ArgumentError(at_user_line(
                    f"tabulate: argnums={number} of a function that was called with {len(args)} arguments"))
        chosen = {number % len(args) for number in numbers}
    return [number in chosen for number, arg in enumerate(args) for _ in tree.leaves(arg)]


def _layer_row(part: LayerEquations, leaving: Sequence[Aval], parameters: Sequence[Aval], saved: int | None) -> Layer:
    cost = part.cost
    return Layer(part.name, tuple(part.operations), tuple(dict.fromkeys(leaving)),
                 sum(aval.size for aval in parameters), sum(aval.nbytes for aval in parameters), cost.flops, cost.bytes,
                 saved)


def _saved_bytes(program: Program, parts: Sequence[LayerEquations], user: dict[Variable, int]) -> list[int] | None:
    """Return the bytes of the residuals, by layer; None if there is no derivative.

    Derivatives keep the scopes of their primal operations: each layer gets a scope of its own, which identifies it.
    """
    number_of = {id(equation): number for number, part in enumerate(parts) for equation in part.equations}
    numbered = program.replace(equations=[_number_equation(equation, number_of[id(equation)])
                                         for equation in program.equations])
    try:
        found = residuals(numbered)
    except UnsupportedError:  # a callback has no derivative
        return None
    if found is None:
        return None
    makers = definitions(found.forward)
    arguments = dict(zip(found.forward.inputs[found.captured:], program.inputs, strict=True))
    bytes_of = [0] * len(parts)
    for var, _ in found.kept:
        maker = makers.get(var)
        scope = "" if maker is None else maker.scope.partition("/")[0]
        # Residuals that the derivative captured, or computed outside any scope, are counted with the first layer.
        number = user.get(arguments[var], 0) if var in arguments else int(scope) if scope.isdigit() else 0
        bytes_of[number] += var.aval.nbytes
    return bytes_of


def _number_equation(equation: Equation, number: int) -> Equation:
    source = equation.source or Source(_number_equation.__code__, 0)
    return Equation(equation.primitive, equation.inputs, equation.params, equation.outputs,
                    source._replace(scope=str(number)))
