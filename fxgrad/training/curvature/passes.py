"""One pass forward and back that also returns the operands and cotangents of layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad import grad, tree
from fxgrad import numpy as fnp
from fxgrad.errors import ArgumentError, DTypeError
from fxgrad.extend import (
    Aval,
    Equation,
    Literal,
    Program,
    at_source,
    at_user_line,
    bind,
    eval_program,
    function_name,
    has_tangent,
    memoize,
    parameter_names,
)
from fxgrad.extend.tracing import trace_for_rewrite
from fxgrad.training.curvature.uses import ParameterUses, Use, find_uses, opened_program


class TracedLoss(NamedTuple):
    """The program of the loss of one example, with its calls opened, its inputs, and the uses of its parameters."""

    program: Program
    inputs: list[Any]
    first: int
    names: list[str]
    uses: list[ParameterUses]

    @property
    def avals(self) -> list[Aval]:
        """The types of the parameters."""
        return self.program.in_avals[self.first:self.first + len(self.uses)]


def trace_loss(what: str, loss: Callable[..., Any], params: Any, example: Sequence[Any],
               is_missed: Callable[[ParameterUses], Any]) -> TracedLoss:
    """Trace the loss of one example for `what`; raise if it is no scalar, or a parameter has no derivative.

    Loops are unrolled if `is_missed` holds for fewer parameters then.
    """
    traced, leaves = trace_for_rewrite(what, loss, (params, *example), {})
    avals = traced.program.out_avals
    if len(avals) != 1 or avals[0].shape != ():
        returned = f"an array of shape {avals[0].shape}" if len(avals) == 1 else f"{len(avals)} arrays"
        raise ArgumentError(at_user_line(
            f"{what}: {function_name(loss)} is to return the scalar loss of one example, and returned {returned}. "
            "Sum it, and take no axis of examples"))
    program, count = traced.program, len(tree.leaves(params))
    names = tree.leaf_names(params, parameter_names(loss, 1)[0])
    first = program.captured
    for name, aval in zip(names, program.in_avals[first:first + count], strict=True):
        if not has_tangent(aval):
            raise DTypeError(at_user_line(
                f"{what}: {name} is {aval.strong()}, which has no derivative. Pass it with the batch, or close over "
                "it"))
    opened, uses = _uses_in(program, count, loops=False)
    missed = sum(bool(is_missed(found)) for found in uses)
    if missed:
        unrolled, more = _uses_in(program, count, loops=True)
        if sum(bool(is_missed(found)) for found in more) < missed:
            opened, uses = unrolled, more
    return TracedLoss(opened, [*traced.captured, *leaves], first, names, uses)


def _uses_in(program: Program, count: int, *, loops: bool) -> tuple[Program, list[ParameterUses]]:
    """Return the opened program, and the uses of its first inputs that are not captured, `count` of them."""
    opened = opened_program(program, loops=loops)
    return opened, memoize(opened, ("uses of parameters", count), lambda: find_uses(opened, program.captured, count))


def require_batch(what: str, batch: Sequence[Any]) -> None:
    """Raise `ArgumentError` if there are no arrays with an axis of examples."""
    if not tree.leaves(batch):
        raise ArgumentError(at_user_line(
            f"{what}: no batch was given, where arrays with the examples along axis 0 are needed. Write "
            f"{what}(loss)(params, x, y)"))


def pull_back(traced: TracedLoss, uses: Sequence[Use], direct: Sequence[int],
              ) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the operands of the equations of `uses`, the cotangents of their results, and the gradients at `direct`.

    Each result has a zero added to it, whose gradient is the cotangent; parameters that are not at `direct` are
    constants here, so that their gradients are not computed.
    """
    program, first = traced.program, traced.first
    numbers = {id(use.equation): number for number, use in enumerate(uses)}

    def loss(outputs: list[Any], given: list[Any]) -> tuple[Any, list[Any]]:
        inputs = [*traced.inputs]
        operands: list[Any] = [None] * len(uses)
        for place, value in zip(direct, given, strict=True):
            inputs[first + place] = value
        with at_source("") as at:
            def step(equation: Equation, values: list[Any]) -> Sequence[Any]:
                at(equation)
                results = bind(equation.primitive, *values, **equation.params)
                number = numbers.get(id(equation))
                if number is None:
                    return results
                operands[number] = [value.value if isinstance(value, Literal) else value for value in values]
                return [fnp.add(results[0], outputs[number])]

            value, = eval_program(program, inputs, step)
        return value, operands

    zeros = [fnp.zeros(var.aval.shape, var.aval.dtype) for use in uses for var in use.equation.outputs]
    given = [traced.inputs[first + place] for place in direct]
    (cotangents, gradients), operands = grad(loss, argnums=(0, 1), has_aux=True)(zeros, given)
    return operands, cotangents, gradients
