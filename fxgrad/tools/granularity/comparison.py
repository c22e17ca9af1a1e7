"""`compare_granularities`: one function as scalars, as arrays and as blocks, and the cost of each form."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from fxgrad import saved_residuals, tree, value_and_grad
from fxgrad.errors import FxgradError
from fxgrad.extend import Literal, Program, aval_of, has_tangent, hide_frames, time_text, trace_program, transformation
from fxgrad.extend.sizes import require_numbers
from fxgrad.text.inlining import inline
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.tools.granularity.scalarize import scalarize


class Granularity(NamedTuple):
    """A function at one granularity.

    `nodes` counts the values of the program, arguments and numbers included. `seconds` is the shortest time for its
    value with the gradient. `saved` and `saved_bytes` are the number and size of the residuals, arguments included.
    `difference` is the largest difference between an element of its gradient and that of the arrays. Without floating
    arguments and results there is no gradient, and these are None. If the function has no form at this granularity,
    `refusal` gives the reason, and all else is None.
    """

    name: str
    program: Program | None
    nodes: int | None = None
    equations: int | None = None
    seconds: float | None = None
    saved: int | None = None
    saved_bytes: int | None = None
    difference: float | None = None
    refusal: str = ""


class Granularities(Report):
    """The rows of `compare_granularities`, finest first; prints as a table, and as HTML in notebooks."""

    def __init__(self, title: str, rows: Sequence[Granularity]) -> None:
        self.title, self.rows = title, tuple(rows)

    def __iter__(self) -> Iterator[Granularity]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Granularity:
        """Return the row named "scalar", "tensor" or "fused"."""
        return {row.name: row for row in self.rows}[name]

    def table(self) -> Table:
        """Return the table for rich."""
        right: Any = "right"
        made = new_table(f"compare_granularities of {self.title}", {
            "granularity": "left", "nodes": right, "equations": right, "time": right, "saved values": right,
            "saved bytes": right, "gradient differs by": right})
        for row in self.rows:
            if row.program is None:
                add_row(made, [row.name, *["-"] * 6])
                continue
            add_row(made, [
                row.name, f"{row.nodes:,}", f"{row.equations:,}",
                _text_or_dash(row.seconds, time_text),
                _text_or_dash(row.saved, "{:,}".format),
                _text_or_dash(row.saved_bytes, "{:,}".format),
                _text_or_dash(row.difference, "{:.1e}".format)])
        made.caption = "\n".join(f"{row.name}: {row.refusal}" for row in self.rows if row.refusal).replace("[", "\\[")
        return made

    def __repr__(self) -> str:
        counts = ", ".join(f"{row.name} {row.equations}" for row in self.rows)
        return f"<granularities of {self.title}: equations: {counts}>"


def _text_or_dash(value: Any, text: Callable[[Any], str]) -> str:
    return "-" if value is None else text(value)


def compare_granularities(fun: Callable[..., Any], *, limit: int = 100_000, repeat: int = 5) -> Callable[...,
Granularities]:
    """Return a function that compares `fun` at its arguments, written in scalars, in arrays and in blocks.

    - "scalar": every sum and product of numbers is an equation (`scalarize`), loops unrolled;
    - "tensor": operations on arrays, all calls taken apart;
    - "fused": library functions, named calls and functions with rules of their own are one equation each.

    `limit` is that of `scalarize`. Times are the shortest of `repeat` runs on NumPy, after a first one.
    The gradient is that of the sum of the results, in the arguments that hold floating numbers alone.

    >>> import fxgrad, numpy as np
    >>> found = fxgrad.compare_granularities(lambda x, W, b: np.exp(x @ W + b))(np.ones(3), np.ones(3), 0.5)
    >>> [(row.name, row.nodes, row.equations, row.difference) for row in found]
    [('scalar', 14, 7, 0.0), ('tensor', 6, 3, 0.0), ('fused', 6, 3, 0.0)]
    """
    @transformation("compare_granularities", fun)
    @hide_frames
    def compared(*args: Any) -> Granularities:
        fused = fun if isinstance(fun, Program) else trace_program("compare_granularities", fun, args, {})
        signature = fused.signature
        if signature is not None and signature.path is not None:  # valid only where the traced path is taken
            fused = fused.replace(signature=signature._replace(path=None))
        tensor = inline(require_numbers("compare_granularities", fused), calls="*")
        lists = tree.map(_elements, args)
        expected = _gradient(tensor, args)
        rows = [_granularity("tensor", tensor, args, expected, repeat),
                _granularity("fused", fused, args, expected, repeat)]
        try:
            scalars = scalarize(inline(tensor, loops=True, limit=limit), limit=limit)
        except FxgradError as error:
            first = Granularity("scalar", None, refusal=str(error).splitlines()[0])
        else:
            first = _granularity("scalar", scalars, lists, expected, repeat)
        signature = fused.signature
        return Granularities("a program" if signature is None else signature.title or signature.name, [first, *rows])
    return compared


def count_nodes(program: Program) -> int:
    """Return the number of values: arguments, closed-over arrays, literals, and results of equations."""
    used = [atom for equation in program.equations for atom in equation.inputs] + program.outputs
    return (len(program.inputs) + sum(type(atom) is Literal for atom in used)
            + sum(len(equation.outputs) for equation in program.equations))


def _granularity(name: str, program: Program, args: Sequence[Any], expected: Sequence[Any] | None,
                 repeat: int) -> Granularity:
    row = Granularity(name, program, count_nodes(program), len(program.equations))
    if expected is None or not _floating(args):
        return row
    gradient = _flatten(_gradient(program, args) or ())
    residuals = saved_residuals(program, *args)
    differences = np.abs(gradient - _flatten(expected))
    function = _gradient_function(program, args)
    shortest = float("inf")
    for _ in range(repeat + 2):  # code is generated at the second run
        begin = time.perf_counter()
        function(*args)
        shortest = min(shortest, time.perf_counter() - begin)
    return row._replace(
        seconds=shortest, saved=len(residuals), saved_bytes=sum(residual.nbytes for residual in residuals),
        difference=float(differences.max(initial=0.0)))


def _elements(leaf: Any) -> Any:
    """Return the elements of an argument in nested lists, in its dtype; a number unchanged."""
    if isinstance(leaf, bool | int | float | complex) or not np.ndim(leaf):
        return leaf
    return [_elements(each) for each in np.asarray(leaf)]


def _flatten(gradient: Sequence[Any]) -> Any:
    leaves = [np.asarray(leaf).ravel() for leaf in tree.leaves(gradient)]
    return np.concatenate(leaves) if leaves else np.empty(0)


def _gradient(program: Program, args: Sequence[Any]) -> Sequence[Any] | None:
    """Return the gradient in all floating arguments; None if there is none."""
    floating = program.outputs and all(map(has_tangent, program.out_avals))
    return _gradient_function(program, args)(*args)[1] if floating and _floating(args) else None


def _floating(args: Sequence[Any]) -> tuple[int, ...]:
    return tuple(number for number, arg in enumerate(args) if tree.leaves(arg) and all(
        has_tangent(aval_of(leaf)) for leaf in tree.leaves(arg)))


def _gradient_function(program: Program, args: Sequence[Any]) -> Callable[..., Any]:
    def total(*args: Any) -> Any:
        parts = [np.sum(leaf) if np.ndim(leaf) else leaf for leaf in tree.leaves(program(*args))]
        return sum(parts[1:], parts[0])
    return value_and_grad(total, argnums=_floating(args))
