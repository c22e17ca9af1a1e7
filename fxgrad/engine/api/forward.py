"""Forward mode: `jvp` and `linearize`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import (
    Argnums,
    gradient_leaf,
    leaf_avals,
    match_trees,
    select_arguments,
    tangent_leaf,
    transformation,
)
from fxgrad.engine.api.inner_arguments import with_respect_to
from fxgrad.engine.api.reverse import trace_differentiated
from fxgrad.engine.core.avals import Aval, without_literals
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.frontend.flat import constant_name, note_result, nth_name, plain_outside
from fxgrad.engine.ops.structural import zeros
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.transforms.forward import ONE, has_tangent, is_one, jvp_program
from fxgrad.engine.transforms.linearize import linearize_program
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError


@hide_frames
def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Any, has_aux: bool = False,
        argnums: Argnums | None = None, *, wrt: Any = None) -> Any:
    """Return the output of `fun` and its derivative in the direction `tangents`: `(output, tangent)`, by forward mode.

    `primals` is the tuple of arguments; `tangents` a tuple like it (or like the arguments at `argnums`), of equal
    shapes and dtypes; the tangent of an integer argument is ignored. With `has_aux` the result is `(output,
    tangent, aux)`. With `wrt`, as in `grad`, `tangents` are those of values inside `fun`, in the container of
    the paths. Raises `TreeError` or `ArgumentError` where primals and tangents do not match.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> output, tangent = fxgrad.jvp(lambda x: x * x, (3.0,), (1.0,))
    >>> float(output), float(tangent)
    (9.0, 6.0)
    """
    if wrt is not None:
        return with_respect_to("jvp", fun, wrt, argnums, lambda function, zeros: jvp(
            function, (zeros,), (tangents,), has_aux), compiled=False)(*primals)
    return jvp_of("jvp", fun, primals, tangents, has_aux, argnums)


def jvp_of(what: str, fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool,
           argnums: Argnums | None) -> Any:
    """Compute `jvp` for the public function `what`, which messages name."""
    transformation(what, fun)
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, tuple | list):
            raise ArgumentError(at_user_line(
                f"{what} takes the {name} as a tuple, one entry for each argument, got a {type(value).__name__}. "
                f"Write {what}(f, (x,), (t,))"))
    primals = tuple(primals)
    numbers = tuple(range(len(primals))) if argnums is None else argnums
    selected = select_arguments(what, fun, numbers, primals)
    given = match_trees(what, "primals", selected.structure, "tangents", tuple(tangents))
    avals = leaf_avals(what, selected)
    values = [tangent_leaf(what, value, aval, nth_name(selected.names, index))
              for index, (value, aval) in enumerate(zip(given, avals, strict=True))]
    ones = [*map(is_one, given)]
    traced, aux = trace_differentiated(what, fun, has_aux, primals, {}, selected, avals)
    marks = [ONE if one and type(value) is not Zero else type(value) is not Zero
             for one, value in zip(ones, values, strict=True)]
    present = [value for value, mark in zip(values, marks, strict=True) if mark is True]
    wrt = (*[False] * traced.program.captured, *marks)
    outputs = without_literals(jvp_program(traced.program, wrt, traced.computed)(
        traced.inputs(*selected.leaves, *present, *plain_outside(traced.forced))))
    count, main = len(traced.program.outputs), traced.out_tree.num_leaves
    output = tree.unflatten(traced.out_tree, outputs[:main])
    tangent = tree.unflatten(traced.out_tree, [
        gradient_leaf(value, aval)
        for value, aval in zip(outputs[count:count + main], traced.program.out_avals[:main], strict=True)])
    results = (output, tangent) if aux is None else (output, tangent, aux.restore(outputs[main:count]))
    note_result(results)
    return results


@hide_frames
def linearize(fun: Callable[..., Any], *primals: Any, argnums: Argnums | None = None, has_aux: bool = False) -> Any:
    """Return `fun(*primals)` and its derivative there as a linear function: `(output, linear[, aux])`.

    `linear(*tangents)` takes tangents like the primals (those at `argnums`) and returns a tangent like the output,
    without running the nonlinear part of `fun` again; `linear.program` is its program, which can be printed.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> output, linear = fxgrad.linearize(lambda x: x * x, 3.0)
    >>> float(output), float(linear(1.0)), float(linear(10.0))
    (9.0, 6.0, 60.0)
    """
    transformation("linearize", fun)
    numbers = tuple(range(len(primals))) if argnums is None else argnums
    selected = select_arguments("linearize", fun, numbers, primals)
    avals = leaf_avals("linearize", selected)
    traced, aux = trace_differentiated("linearize", fun, has_aux, primals, {}, selected, avals)
    derived = linearize_program(traced.program, traced.wrt([has_tangent(aval) for aval in avals]), traced.computed)
    values = derived(traced.inputs(*selected.leaves, *plain_outside(traced.forced)))
    count, main = len(traced.program.outputs), traced.out_tree.num_leaves
    output = tree.unflatten(traced.out_tree, without_literals(values[:main]))
    linear = LinearFunction(values[count:], (function_name(fun), derived.extra, tuple(avals),
                                             tuple(traced.program.out_avals[:main]), selected.structure,
                                             traced.out_tree))
    return (output, linear) if aux is None else (output, linear, aux.restore(without_literals(values[main:count])))


class LinearFunction:
    """The second result of `linearize`: a linear function of tangents.

    It is a container of its residuals, so that a jitted function can return it.
    """

    def __init__(self, residuals: Sequence[Any], settings: Any) -> None:
        self._residuals, self._settings = list(residuals), settings
        self._name, self._split, self._avals, self._out_avals, self._in_tree, self._out_tree = settings

    def flatten(self) -> tuple[list[Any], Any]:
        """Return the residuals, and the static rest."""
        return self._residuals, self._settings

    @property
    def program(self) -> Program:
        """The linear program, with the residuals as its constants."""
        program: Program = self._split.linear.replace(constants=self._residuals)
        return program

    @hide_frames
    def __call__(self, *tangents: Any) -> Any:
        """Return the tangent of the output; raise `TreeError` or `ArgumentError` unless `tangents` fit the primals."""
        leaves = match_trees("linearize", "the primals", self._in_tree, "the tangents", tangents)
        given = [tangent_leaf("linearize", leaf, aval, constant_name(f"leaf {index} of the arguments"))
                 for index, (leaf, aval) in enumerate(zip(leaves, self._avals, strict=True))]
        present = [value for value in given if type(value) is not Zero]
        results = iter(without_literals(apply_program(self._split.linear, [*self._residuals, *present])))
        outputs = [next(results) if reached else _zero_tangents(aval)
                   for aval, reached in zip(self._out_avals, self._split.nonzero_outputs, strict=False)]
        return tree.unflatten(self._out_tree, [gradient_leaf(value, aval) for value, aval in
                                               zip(outputs, self._out_avals, strict=True)])

    def __repr__(self) -> str:
        return f"<derivative of {self._name}, {len(self._residuals)} residuals>"


def _zero_tangents(aval: Aval) -> Any:
    value, = without_literals([zeros(aval)])
    return value.copy() if type(value) is np.ndarray else value  # a zero may be a read-only broadcast


tree.register_pytree_node(LinearFunction, LinearFunction.flatten,
                          lambda settings, residuals: LinearFunction(residuals, settings))
