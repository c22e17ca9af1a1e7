"""One pass forward and back that also returns the operands and cotangents of layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad import custom_vjp, eval_shape, grad, lax, scan, stop_gradient, switch, tree, while_loop
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
    primitives,
)
from fxgrad.extend.tracing import trace_for_rewrite
from fxgrad.training.curvature.uses import (
    MANY_STEPS,
    MOST_STEPS,
    ParameterUses,
    Use,
    find_uses,
    is_short,
    opened_program,
)


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


class ExampleLoss(NamedTuple):
    """The program of the loss of one example as it was traced, its inputs, and the names of its parameters."""

    program: Program
    inputs: list[Any]
    names: list[str]

    def find_layers(self, is_missed: Callable[[ParameterUses], Any], shortest: int = MANY_STEPS) -> TracedLoss:
        """Open the calls of the program, and find the uses of its parameters.

        Layers are found in loops; those of fewer than `shortest` steps are unrolled if they have any, and all that are
        short enough if `is_missed` holds for fewer parameters then.
        """
        program, count = self.program, len(self.names)
        opened = opened_program(program)
        uses = _uses_in(opened, program.captured, count)
        if any(is_short(loop, shortest - 1) for found in uses if not is_missed(found)
               for use in found.uses for loop in use.loops):
            opened = opened_program(program, shortest - 1)
            uses = _uses_in(opened, program.captured, count)
        missed = sum(bool(is_missed(found)) for found in uses)
        if missed:
            unrolled = opened_program(program, MOST_STEPS)
            more = _uses_in(unrolled, program.captured, count)
            if sum(bool(is_missed(found)) for found in more) < missed:
                opened, uses = unrolled, more
        return TracedLoss(opened, self.inputs, program.captured, self.names, uses)


def trace_loss(what: str, loss: Callable[..., Any], params: Any, example: Sequence[Any]) -> ExampleLoss:
    """Trace the loss of one example for `what`; raise if it is no scalar, or a parameter has no derivative."""
    traced, leaves = trace_for_rewrite(what, loss, (params, *example), {})
    avals = traced.program.out_avals
    if len(avals) != 1 or avals[0].shape != ():
        returned = f"an array of shape {avals[0].shape}" if len(avals) == 1 else f"{len(avals)} arrays"
        raise ArgumentError(at_user_line(
            f"{what}: {function_name(loss)} is to return the scalar loss of one example, and returned {returned}. "
            "Sum it, and take no axis of examples"))
    names = tree.leaf_names(params, parameter_names(loss, 1)[0])
    first = traced.program.captured
    for name, aval in zip(names, traced.program.in_avals[first:first + len(names)], strict=True):
        if not has_tangent(aval):
            raise DTypeError(at_user_line(
                f"{what}: {name} is {aval.strong()}, which has no derivative. Pass it with the batch, or close over "
                "it"))
    return ExampleLoss(traced.program, [*traced.captured, *leaves], names)


def _uses_in(opened: Program, captured: int, count: int) -> list[ParameterUses]:
    """Return the uses of the first inputs that are not captured, `count` of them."""
    return memoize(opened, ("uses of parameters", captured, count), lambda: find_uses(
        opened, opened.inputs[captured:captured + count]))


def require_batch(what: str, batch: Sequence[Any]) -> None:
    """Raise `ArgumentError` if there are no arrays with an axis of examples, or if these have different sizes."""
    if not tree.leaves(batch):
        raise ArgumentError(at_user_line(
            f"{what}: no batch was given, where arrays with the examples along axis 0 are needed. Write "
            f"{what}(loss)(params, x, y)"))
    check_examples(what, batch)


def check_examples(what: str, batch: Sequence[Any]) -> None:
    """Raise `ArgumentError` for numbers in a batch, and for arrays of different numbers of examples."""
    names = tree.leaf_names(batch, "batch")
    shapes = [leaf.shape if hasattr(leaf, "shape") else fnp.shape(leaf) for leaf in tree.leaves(batch)]  # types, too
    for name, shape in zip(names, shapes, strict=True):
        if not shape:
            raise ArgumentError(at_user_line(
                f"{what}: {name} is a number, where arrays with the examples along axis 0 are needed. Close over it in "
                "the loss"))
        one, other = shapes[0][0], shape[0]
        if type(one) is type(other) is int and one != other:
            raise ArgumentError(at_user_line(
                f"{what}: {names[0]} has {one} examples along axis 0, and {name} has {other}; all arrays of a batch "
                "have as many. Close over those that all examples share"))


_FLAG = np.dtype("float32")

Places = dict[Any, "int | Places"]
"""By the identity of an equation: the number of its use, or if it is a loop, those of the uses in its body.

Those in branches are found by the identity of the `cond` and the number of the branch.
"""


class Sums(NamedTuple):
    """What is summed of a use over all its steps, in place of its operands and cotangents.

    `of_inputs(operands, result)` is of the forward pass, and `of_outputs(operands, cotangent)` of the backward pass.
    """

    of_inputs: Callable[[Sequence[Any], Any], Any]
    of_outputs: Callable[[Sequence[Any], Any], Any]

    def zeros(self, use: Use) -> tuple[Any, Any]:
        """Return the sums of no steps."""
        def both(operands: Sequence[Any], result: Any) -> tuple[Any, Any]:
            return self.of_inputs(operands, result), self.of_outputs(operands, result)
        found = eval_shape(both, _operands_of(use, [atom.aval.struct for atom in use.equation.inputs]),
                           use.equation.outputs[0].aval.struct)
        return tree.map(lambda kind: fnp.zeros(kind.shape, kind.dtype), found)

    def tagged(self, result: Any, operands: Sequence[Any], total: Any) -> Any:
        """Return `result`; the gradient in `total`, of zeros, is the sum of `of_outputs` over all steps.

        That is quadratic in the cotangent, so that steps without one add nothing.
        """
        def backward(operands: Any, cotangent: Any) -> tuple[Any, Any, Any]:
            return cotangent, tree.map(fnp.zeros_like, operands), self.of_outputs(operands, cotangent)
        tag = custom_vjp(lambda result, operands, total: result)
        tag.defvjp(lambda result, operands, total: (result, operands), backward)
        return tag(result, stop_gradient(operands), total)


def _operands_of(use: Use, values: Sequence[Any]) -> list[Any]:
    """Return the operands of a use without the parameter; None for all those of a bias."""
    return [None if place == use.place or use.layer.kind == "bias" else value for place, value in enumerate(values)]


def pull_back(traced: TracedLoss, uses: Sequence[Use], direct: Sequence[int], summed: dict[int, Sums] | None = None,
              ) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the operands of the equations of `uses`, the cotangents of their results, and the gradients at `direct`.

    Each result has a zero added to it, whose gradient is the cotangent; parameters that are not at `direct` are
    constants here, so that their gradients are not computed. Operands and cotangents in loops are stacked by step, with
    the outermost loop first. The parameter itself is None among the operands, and so are all operands of a bias. Uses
    in branches have one operand more: 1 where the branch ran. Where it did not, that is 0, and so is all else.

    Those of `uses` at the numbers in `summed`, as all in a `while_loop` are, have their sums in these places: those of
    the inputs among the operands, and those of the outputs among the cotangents.
    """
    collecting = _Collecting(uses, summed or {})
    first = traced.first

    def loss(outputs: list[Any], given: list[Any]) -> tuple[Any, list[Any]]:
        inputs = [*traced.inputs]
        for place, value in zip(direct, given, strict=True):
            inputs[first + place] = value
        (value,), operands = collecting.run(traced.program, inputs, collecting.places, dict(enumerate(outputs)))
        return value, [operands[number] for number in range(len(uses))]

    given = [traced.inputs[first + place] for place in direct]
    (cotangents, gradients), operands = grad(loss, argnums=(0, 1), has_aux=True)(collecting.zeros(), given)
    return operands, cotangents, gradients


Collected = dict[int, list[Any]]
"""The operands of uses, by the number of the use."""


class _Collecting:
    """A run of programs that returns the operands of `uses` too, and adds to their results what it is given.

    `places` are the numbers of the uses by the ids of their equations, with those of a loop under the id of the loop,
    and those of a branch under the id of its `cond` and its number.
    """

    def __init__(self, uses: Sequence[Use], summed: dict[int, Sums]) -> None:
        self._uses, self._summed = uses, summed
        self._nothing = {number: sums.zeros(uses[number]) for number, sums in summed.items()}
        self.places: Places = {}
        for number, use in enumerate(uses):
            inner = self.places
            for equation, branch in use.path:
                key = id(equation) if branch is None else (id(equation), branch)
                inner = inner.setdefault(key, {})  # type: ignore[assignment]
            inner[id(use.equation)] = number

    def zeros(self) -> list[Any]:
        """Return for each use what adds nothing."""
        return [self._nothing[number][1] if number in self._summed else fnp.zeros(
            (*use.lengths, *use.equation.outputs[0].aval.shape), use.equation.outputs[0].aval.dtype)
            for number, use in enumerate(self._uses)]

    def run(self, program: Program, inputs: Sequence[Any], places: Places, added: dict[int, Any], depth: int = 0,
            ) -> tuple[list[Any], Collected]:
        """Return the results of a program, at `depth` in others, with uses at `places`, and the operands of these."""
        operands: Collected = {}
        with at_source("") as at:
            def step(equation: Equation, values: list[Any]) -> Sequence[Any]:
                at(equation)
                results, found = self._step(equation, values, places, added, depth)
                operands.update(found)
                return results
            return [_number(value) for value in eval_program(program, inputs, step)], operands

    def _step(self, equation: Equation, values: list[Any], places: Places, added: dict[int, Any], depth: int,
              ) -> tuple[Sequence[Any], Collected]:
        place = places.get(id(equation))
        if equation.primitive is primitives.cond:
            return self._run_branches(equation, values, places, added, depth + 1)
        if isinstance(place, dict):
            run = self._run_while if equation.primitive is primitives["while"] else self._run_scan
            return run(equation, values, place, added, depth + 1)
        results = bind(equation.primitive, *values, **equation.params)
        if place is None:
            return results, {}
        own = [*map(_number, _operands_of(self._uses[place], values))]
        if place in self._summed:
            sums = self._summed[place]
            return [sums.tagged(results[0], own, added[place])], {
                place: stop_gradient(sums.of_inputs(own, results[0]))}
        if self._uses[place].is_conditional:
            own.append(fnp.ones((), _FLAG))
        return [fnp.add(results[0], added[place])], {place: own}

    def _run_branches(self, equation: Equation, values: Sequence[Any], places: Places, added: dict[int, Any],
                      depth: int) -> tuple[Sequence[Any], Collected]:
        """Run a `cond`, whose branches return the operands of all of them as further results."""
        branches = equation.params["branches"]
        inner = [places.get((id(equation), number), {}) for number in range(len(branches))]
        numbers = [_numbers(own) for own in inner if isinstance(own, dict)]
        if not any(numbers):
            return bind(equation.primitive, *values, **equation.params), {}
        index, *given = map(_number, values)

        def of_branch(number: int) -> Callable[[], Any]:
            def branch() -> Any:
                own = inner[number]
                assert isinstance(own, dict)
                results, operands = self.run(branches[number], given, own, added, depth)
                for other, missing in enumerate(numbers):
                    if other != number:
                        operands.update((each, self._absent(each, depth)) for each in missing)
                return results, dict(sorted(operands.items()))
            return branch
        index = lax.convert_element_type(index, np.int32)  # it may be a bool
        return switch(index, [of_branch(number) for number in range(len(branches))])

    def _absent(self, number: int, depth: int) -> list[Any]:
        """Return the operands of a use in a branch that did not run, the path to which has the length `depth`."""
        if number in self._nothing:
            return self._nothing[number][0]
        use = self._uses[number]
        lengths = use._replace(path=use.path[depth:]).lengths
        found = _operands_of(use, [fnp.zeros((*lengths, *atom.aval.shape), atom.aval.dtype)
                                   for atom in use.equation.inputs])
        return [*found, fnp.zeros(lengths, _FLAG)]

    def _run_scan(self, loop: Equation, values: Sequence[Any], places: Places, added: dict[int, Any], depth: int,
                  ) -> tuple[Sequence[Any], Collected]:
        """Run a scan, whose steps return the operands as further results."""
        params = loop.params
        consts, carried, count = params["num_consts"], params["num_consts"] + params["num_carry"], params["num_carry"]

        def turn(carry: Any, entries: Any) -> Any:
            results, operands = self.run(params["program"], [*values[:consts], *carry, *entries[0]], places,
                                         {**added, **entries[1]}, depth)
            return results[:count], (results[count:], operands)
        carry, (stacked, operands) = scan(
            turn, [_number(value) for value in values[consts:carried]],
            (values[carried:], {number: added[number] for number in _numbers(places) if number not in self._summed}),
            params["length"], params["reverse"], params["unroll"])
        return [*carry, *stacked], {number: found if number not in self._summed else tree.map(
            lambda sums: fnp.sum(sums, axis=0), found) for number, found in operands.items()}

    def _run_while(self, loop: Equation, values: Sequence[Any], places: Places, added: dict[int, Any], depth: int,
                   ) -> tuple[Sequence[Any], Collected]:
        """Run a `while_loop`, which carries the sums of the uses in it."""
        params = loop.params
        asked = params["num_condition_consts"]
        first = asked + params["num_body_consts"]
        given = [*map(_number, values)]

        def goes_on(state: Any) -> Any:
            return eval_program(params["condition"], [*given[:asked], *state[0]], lambda equation, own: bind(
                equation.primitive, *own, **equation.params))[0]

        def turn(state: Any) -> Any:
            carry, sums = state
            results, operands = self.run(params["body"], [*given[asked:first], *carry], places, added, depth)
            return results, tree.map(fnp.add, sums, operands)
        nothing = {number: self._nothing[number][0] for number in _numbers(places)}
        carry, sums = while_loop(goes_on, turn, (given[first:], nothing))
        return carry, sums


def _number(value: Any) -> Any:
    """Return a value with a literal as the number that it stands for, weak if it is."""
    return value if not isinstance(value, Literal) else value.value.item() if value.aval.weak else value.value


def _numbers(places: Places) -> list[int]:
    """Return the numbers of the uses in a loop and in the loops in its body."""
    return [number for place in places.values() for number in (_numbers(place) if isinstance(place, dict) else [place])]
