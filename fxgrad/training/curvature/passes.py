"""One pass forward and back that also returns the operands and cotangents of layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad import grad, scan, tree
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
from fxgrad.training.curvature.uses import MANY_STEPS, ParameterUses, Use, find_uses, loop_body, opened_program


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
               is_missed: Callable[[ParameterUses], Any], shortest: int = MANY_STEPS) -> TracedLoss:
    """Trace the loss of one example for `what`; raise if it is no scalar, or a parameter has no derivative.

    Loops are unrolled if `is_missed` holds for fewer parameters then; layers are found in those over stacks of layers
    of at least `shortest` steps.
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
    opened, uses = _uses_in(program, count, shortest, loops=False)
    missed = sum(bool(is_missed(found)) for found in uses)
    if missed:
        unrolled, more = _uses_in(program, count, shortest, loops=True)
        if sum(bool(is_missed(found)) for found in more) < missed:
            opened, uses = unrolled, more
    return TracedLoss(opened, [*traced.captured, *leaves], first, names, uses)


def _uses_in(program: Program, count: int, shortest: int, *, loops: bool) -> tuple[Program, list[ParameterUses]]:
    """Return the opened program, and the uses of its first inputs that are not captured, `count` of them."""
    opened = opened_program(program, loops=loops)
    return opened, memoize(opened, ("uses of parameters", program.captured, count, shortest), lambda: find_uses(
        opened, opened.inputs[program.captured:program.captured + count], shortest))


def require_batch(what: str, batch: Sequence[Any]) -> None:
    """Raise `ArgumentError` if there are no arrays with an axis of examples."""
    if not tree.leaves(batch):
        raise ArgumentError(at_user_line(
            f"{what}: no batch was given, where arrays with the examples along axis 0 are needed. Write "
            f"{what}(loss)(params, x, y)"))


class UseInLoop(NamedTuple):
    """A use of a parameter, and the scan in whose body it is, if any."""

    use: Use
    loop: Equation | None


def pull_back(traced: TracedLoss, uses: Sequence[UseInLoop], direct: Sequence[int],
              ) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the operands of the equations of `uses`, the cotangents of their results, and the gradients at `direct`.

    Each result has a zero added to it, whose gradient is the cotangent; parameters that are not at `direct` are
    constants here, so that their gradients are not computed. Operands and cotangents in a loop are stacked by step. The
    parameter itself is None among the operands, and so are all operands of a bias.
    """
    program, first = traced.program, traced.first
    numbers = {id(use.equation): number for number, (use, loop) in enumerate(uses) if loop is None}
    in_loops: dict[int, dict[int, int]] = {}
    for number, (use, loop) in enumerate(uses):
        if loop is not None:
            in_loops.setdefault(id(loop), {})[id(use.equation)] = number

    def operands_of(number: int, values: Sequence[Any]) -> list[Any]:
        use = uses[number].use
        return [None if place == use.place or use.layer.kind == "bias" else
                value.value if isinstance(value, Literal) else value for place, value in enumerate(values)]

    def loss(outputs: list[Any], given: list[Any]) -> tuple[Any, list[Any]]:
        inputs = [*traced.inputs]
        operands: list[Any] = [None] * len(uses)
        for place, value in zip(direct, given, strict=True):
            inputs[first + place] = value

        def run(program: Program, inputs: Sequence[Any], numbers: dict[int, int], added: dict[int, Any]) -> list[Any]:
            """Run a program whose equations have uses of these numbers."""
            with at_source("") as at:
                def step(equation: Equation, values: list[Any]) -> Sequence[Any]:
                    at(equation)
                    inner = in_loops.get(id(equation))
                    if inner is not None:
                        return run_loop(equation, values, inner, {number: added[number] for number in inner.values()})
                    results = bind(equation.primitive, *values, **equation.params)
                    number = numbers.get(id(equation))
                    if number is None:
                        return results
                    operands[number] = operands_of(number, values)
                    return [fnp.add(results[0], added[number])]
                return eval_program(program, inputs, step)

        def run_loop(loop: Equation, values: Sequence[Any], numbers: dict[int, int], added: dict[int, Any],
                     ) -> Sequence[Any]:
            """Run a scan, whose steps return the operands as further results."""
            params = loop.params
            consts, carried = params["num_consts"], params["num_consts"] + params["num_carry"]
            body, arrays = loop_body(loop), [value.value if isinstance(value, Literal) else value for value in values]

            def turn(carry: Any, entries: Any) -> Any:
                results = run(body, [*arrays[:consts], *carry, *entries[0]], numbers, entries[1])
                count = params["num_carry"]
                return results[:count], (results[count:], {number: operands[number] for number in numbers.values()})
            carry, (stacked, found) = scan(turn, arrays[consts:carried], (arrays[carried:], added), params["length"],
                                           params["reverse"], params["unroll"])
            for number, own in found.items():
                operands[number] = own
            return [*carry, *stacked]

        value, = run(program, inputs, numbers, dict(enumerate(outputs)))
        return value, operands

    zeros = [fnp.zeros(var.aval.shape if loop is None else (loop.params["length"], *var.aval.shape), var.aval.dtype)
             for use, loop in uses for var in use.equation.outputs]
    given = [traced.inputs[first + place] for place in direct]
    (cotangents, gradients), operands = grad(loss, argnums=(0, 1), has_aux=True)(zeros, given)
    return operands, cotangents, gradients
