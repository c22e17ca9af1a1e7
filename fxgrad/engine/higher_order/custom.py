"""The primitives behind `custom_jvp` and `custom_vjp`: functions with user-defined derivatives.

A rule is user code that runs when the function is differentiated. Its wrappers (`CustomJvpRule`, `CustomVjpRule`) are
parameters of the equation and take flat lists; batching wraps them once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.analyses.sparsity_moves import sparsity_rules
from fxgrad.engine.analyses.sparsity_values import reverse_only
from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.cache_keys import StructuralKey, tree_key
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.core.primitive import Cost, Primitive, register
from fxgrad.engine.core.program import Program, Variable
from fxgrad.engine.core.program_properties import program_property
from fxgrad.engine.core.regions import Region, dependent_variables, dependent_within, region_roles, whole_region
from fxgrad.engine.core.sources import in_place
from fxgrad.engine.core.symbolic import Linear, Zero
from fxgrad.engine.derivation.derive import Derived
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.higher_order.call import check_arguments, emit_inline, run_with_numpy
from fxgrad.engine.higher_order.groups import merge_marked, nonzero_mask, nonzero_tangents, select_marked
from fxgrad.engine.higher_order.masking import unbatched_where_equal
from fxgrad.engine.higher_order.wiring import add_tangents, dual_outputs, needs_tangent_tape, rewire
from fxgrad.engine.ops.structural import convert, instantiate_zeros, reduce_sum
from fxgrad.engine.ops.varying import pvary, sum_to_vma
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.transforms.batch import (
    Batch,
    Batched,
    batched_axis,
    batched_program,
    batching_over,
    live_lanes,
    masking_lanes,
    put_axis,
)
from fxgrad.engine.transforms.forward import fill_zeros, has_tangent, push_forward
from fxgrad.engine.transforms.linearize import transpose_linear
from fxgrad.engine.transforms.transpose import backward_pass
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, LinearityError, UnsupportedError

Flat = Sequence[Any]


class CustomJvpRule(Protocol):
    """The derivative of a `custom_jvp` equation."""

    name: str

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[list[Any], list[Any]]:
        """Return the outputs and their tangents; tangents may be `Zero`."""
        ...


class CustomVjpRule(Protocol):
    """The derivative of a `custom_vjp` equation."""

    name: str

    def forward(self, primals: Flat, moving: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:
        """Return outputs, residuals, and the structure of the residuals for `backward`.

        `moving` marks the primals whose cotangents will be needed.
        """
        ...

    def backward(self, structure: Any, residuals: Flat, cotangents: Flat) -> list[Any]:
        """Return a cotangent for every primal (None or `Zero` if it is zero)."""
        ...

    @property
    def gives_tangents(self) -> bool:
        """Whether the rule has `tangents`; those of others are derived from `backward`."""
        ...

    def tangents(self, structure: Any, residuals: Flat, tangents: Flat) -> list[Any]:
        """Return the tangents of the outputs, linear in `tangents`, those of the primals (`Zero` if it is zero)."""
        ...


def _abstract(*avals: Aval, program: Program, rule: Any) -> list[Aval]:
    check_arguments(rule.name, program.in_avals, avals)
    return program.out_avals


def _cost(*avals: Aval, program: Program, rule: Any) -> Cost:
    return total_cost(program)


def _regions(operands: Sequence[Any], *, program: Program, rule: Any) -> tuple[Region, ...]:
    return (whole_region("call", program),)


def _transpose(cotangents: list[Any], inputs: list[Any], *, program: Program, rule: Any) -> list[Any]:
    """Transpose a function that is linear itself through its own equations."""
    with in_place():
        return backward_pass(program, inputs, cotangents)


# --- custom_jvp -------------------------------------------------------------------------------------------


def _custom_jvp_jvp(primals: list[Any], tangents: list[Any], *, program: Program, rule: CustomJvpRule,
                    ) -> tuple[list[Any], list[Any]]:
    explicit, through = _split_captured(primals, tangents, program, rule)
    outputs, out_tangents = rule.jvp(primals, explicit)
    # On a mesh, a rule may leave out the tangent of what makes the output vary: the tangent varies all the same.
    return outputs, add_tangents([tangent if type(tangent) is Zero else pvary(tangent, [*aval_of(output).vma])
                                  for output, tangent in zip(outputs, out_tangents, strict=True)], through)


def _split_captured(primals: list[Any], tangents: list[Any], program: Program, rule: Any,
                    ) -> tuple[list[Any], Sequence[Any]]:
    """Return the tangents without those of captured inputs, and the tangents of the outputs that these make.

    Rules take the arguments alone; captured inputs are differentiated through the function itself.
    """
    captured = getattr(rule, "captured", 0)
    if all(type(tangent) is Zero for tangent in tangents[:captured]):
        return tangents, [Zero(aval) for aval in program.out_avals]
    zeros = [Zero(aval_of(primal)) for primal in primals]
    with in_place():
        _, through = push_forward(program, primals, [*tangents[:captured], *zeros[captured:]])
    return [*zeros[:captured], *tangents[captured:]], through


def separate_tangents(moving: int, outputs: int, name: str, program: Program, inputs: Sequence[Any],
                      ) -> list[Any] | None:
    """Evaluate a recorded jvp rule so that its first `outputs` are computed apart from its last `moving` inputs.

    A rule that calls `jvp` of a function with loops or calls records equations that make both values and tangents. On
    a tape for tangents alone they would make tangents of the values. So the program is linearized in its tangents, at
    zero: it is linear in them. Returns None if no equation makes both. Raises `ArgumentError` if an output depends on a
    tangent.
    """
    known = len(inputs) - moving
    marks = [False] * known + [True] * moving
    if not needs_tangent_tape(inputs[:known], inputs[known:]):
        return None
    reached = dependent_within(program, marks)
    if not reached.isdisjoint(program.outputs[:outputs]):
        raise ArgumentError(at_user_line(
            f"{name} returned an output that depends on the tangents. Return the output of the function, and a "
            "tangent"))
    if reached == dependent_variables(program, marks):
        return None
    zeros = [Zero(aval) for aval in program.in_avals]
    results, tangents = push_forward(program, [*inputs[:known], *map(instantiate_zeros, zeros[known:])],
                                     [*zeros[:known], *inputs[known:]])
    return [*results[:outputs], *map(instantiate_zeros, tangents[outputs:])]


def dual_function(rule: CustomJvpRule, marks: Sequence[bool], reached: list[bool]) -> Callable[..., list[Any]]:
    """Return the rule as a function of primals and tangents that `marks` has, which returns outputs and tangents.

    It returns nonzero tangents only, and sets `reached` to the mask of these.
    """
    count = len(marks)

    def both(*values: Any) -> list[Any]:
        avals = [aval_of(value) for value in values[:count]]
        outputs, out_tangents = rule.jvp(values[:count], fill_zeros(avals, marks, values[count:]))
        reached[:] = nonzero_mask(out_tangents)
        return [*outputs, *nonzero_tangents(out_tangents)]
    return both


def apply_dual(function: Callable[..., Sequence[Any]], primals: Flat, tangents: Flat, name: str, reached: list[bool],
               ) -> tuple[list[Any], list[Any]]:
    """Return outputs and tangents of a rewritten jvp rule, the outputs computed apart from the tangents.

    `function` is made of a `dual_function`, and `reached` is the mask that this sets.
    """
    moving = nonzero_tangents(tangents)
    if needs_tangent_tape(primals, moving):
        program, captured = trace_at(function, [*map(aval_of, [*primals, *moving])], mode=WITH_LITERALS)
        inputs = [*captured, *primals, *moving]
        separated = separate_tangents(len(moving), len(reached), name, program, inputs)
        results = apply_equations(program, inputs) if separated is None else separated
    else:
        results = [*function(*primals, *moving)]
    return dual_outputs([aval_of(output) for output in results[:len(reached)]], tuple(reached), results)


def _custom_jvp_batch(size: int, values: list[Any], axes: list[int | None], *, program: Program, rule: CustomJvpRule,
                      ) -> tuple[list[Any], list[int | None]]:
    derived = batched_program(program, size, tuple(axes))
    if isinstance(rule, StraightThrough):
        return [bind_straight_through(*(put_axis(Batched(value, axis), size, 0)
                                        for value, axis in zip(values, axes, strict=True)))], [0]
    batched, masks = _mask_first(derived)
    wrapped = BatchedJvpRule(rule, size, tuple(axes), batched_axis.get(), len(masks))
    outputs = bind(custom_jvp_p, *masks, *values, program=batched, rule=wrapped)
    return unbatched_where_equal(program, size, axes, outputs)


custom_jvp_p = register(Primitive(
    name="custom_jvp", abstract=_abstract, numpy=run_with_numpy, xla=emit_inline, jvp=_custom_jvp_jvp,
    transpose=_transpose, batch=_custom_jvp_batch, cost=_cost, regions=_regions))
region_roles.enter(("call",), custom_jvp_p)


def _mask_first(derived: Derived) -> tuple[Program, list[Any]]:
    """Return the batch of a function, with the mask of live lanes as first input; and that mask, if there is one.

    The function's rule runs later, when its derivative is taken, and its checks must hold in dead lanes then.
    """
    live = live_lanes.get()
    if any(value is not live for value in derived.captured):
        raise AssertionError("a function with a rule captured values while it was batched; this is a bug in fxgrad")
    if live is None or derived.captured:
        return derived.program, derived.captured
    avals = aval_of(live), *derived.program.in_avals
    return rewire(derived.program, avals, tuple(range(1, len(avals)))), [live]


def _apply_batched(function: Callable[..., Sequence[Any]], size: int, values: Flat, axes: Sequence[int | None],
                   name: str | None, masks: Flat) -> list[Batched]:
    """Apply `function`, which takes values without the batch axis (for collectives: `name`), to batches.

    `masks` holds the mask of live lanes, if there is one.
    """
    avals = [aval_of(value).without_axis(axis) for value, axis in zip(values, axes, strict=True)]
    program, captured = trace_at(function, avals, mode=WITH_LITERALS,
                                 axes={} if name is None else {name: size})
    with batching_over(name), masking_lanes(masks[0] if masks else None):
        return Batch(size).run(program, [*(Batched(value, None) for value in captured),
                                         *(Batched(value, axis) for value, axis in zip(values, axes, strict=True))])


class ByValue(StructuralKey):
    """Batched rules compare by their parts, so that equal programs are recognized."""

    __slots__ = ("_compared", "_key")

    def __init__(self, *key: Any) -> None:
        self._key = key
        self._compared = tuple([tree_key(part) if type(part) is TreeDef else part for part in key])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._compared == other._compared

    def __hash__(self) -> int:
        return hash((type(self), self._compared))

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def name(self) -> str:
        """The name of the user's function."""
        return str(self._key[0].name)

    @property
    def captured(self) -> int:
        """The number of inputs that the function closed over."""
        return getattr(self._key[0], "captured", 0)

    @property
    def gives_tangents(self) -> bool:
        """Whether the rule of a `custom_vjp` function has `tangents` of its own."""
        return getattr(self._key[0], "gives_tangents", False)


class _BatchedRule(ByValue):
    """A rule on batches; `masks` (0 or 1) masks of live lanes come before the operands."""

    __slots__ = ()

    @property
    def captured(self) -> int:
        """The number of inputs that the function does not take as arguments: masks, and those it closed over."""
        masks: int = self._key[-1]
        return masks + super().captured


class BatchedJvpRule(_BatchedRule):
    """A jvp rule on batches."""

    __slots__ = ()

    def __init__(self, rule: CustomJvpRule, size: int, axes: tuple[int | None, ...], axis_name: str | None,
                 masks: int) -> None:
        super().__init__(rule, size, axes, axis_name, masks)

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[list[Any], list[Any]]:
        """Return outputs and tangents with the batch axis first."""
        rule, size, axes, axis_name, masks = self._key
        marks = nonzero_mask(tangents[masks:])
        reached: list[bool] = []
        both = dual_function(rule, marks, reached)

        def batched(*values: Any) -> list[Any]:
            return [put_axis(result, size, 0) for result in _apply_batched(
                both, size, values[masks:], [*axes, *select_marked(axes, marks)], axis_name, values[:masks])]

        return apply_dual(batched, primals, tangents, f"the jvp rule of {self.name}", reached)


# --- a library rule ---------------------------------------------------------------------------------------


class StraightThrough(NamedTuple):
    """The rule of a value with the derivative of another operand; stored by name in files."""

    @property
    def name(self) -> str:
        """The name of the function that makes it."""
        return "straight_through"

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[list[Any], list[Any]]:
        """Return the value, and the tangent of the other operand in its dtype."""
        value, (_, tangent) = bind_straight_through(*primals), tangents
        aval = aval_of(value)
        return [value], [Zero(aval) if type(tangent) is Zero else convert(tangent, aval.dtype)]


declare_parameter_class(StraightThrough)


def bind_straight_through(value: Any, like: Any) -> Any:
    """Return `value` with the derivative of `like`, an array of the same shape."""
    program = _first_operand_program(aval_of(value), aval_of(like))
    return bind(custom_jvp_p, value, like, program=program, rule=StraightThrough())[0]


@cached("programs of straight-through values", 256)
def _first_operand_program(value: Aval, like: Aval) -> Program:
    first, second = Variable(value), Variable(like)
    return Program([first, second], [], [first])


# --- custom_vjp -------------------------------------------------------------------------------------------


def _custom_vjp_jvp(primals: list[Any], tangents: list[Any], *, program: Program, rule: CustomVjpRule,
                    ) -> tuple[list[Any], list[Any]]:
    tangents, through = _split_captured(primals, tangents, program, rule)
    marks = nonzero_mask(tangents)
    outputs, residuals, structure = rule.forward(primals, marks)
    out_avals = tuple(aval.strong() for aval in program.out_avals)
    out_tangents = bind(custom_vjp_tangent_p, *residuals, *nonzero_tangents(tangents), rule=rule, structure=structure,
                        moving=marks, in_avals=tuple(aval_of(primal).strong() for primal in primals),
                        out_avals=out_avals)
    return outputs, add_tangents([tangent if has_tangent(aval) else Zero(aval)
                                  for tangent, aval in zip(out_tangents, out_avals, strict=True)], through)


def _custom_vjp_batch(size: int, values: list[Any], axes: list[int | None], *, program: Program, rule: CustomVjpRule,
                      ) -> tuple[list[Any], list[int | None]]:
    derived = batched_program(program, size, tuple(axes))
    avals = tuple(aval_of(value).without_axis(axis).strong() for value, axis in zip(values, axes, strict=True))
    batched, masks = _mask_first(derived)
    wrapped = BatchedVjpRule(rule, size, tuple(axes), avals, batched_axis.get(), len(masks))
    outputs = bind(custom_vjp_p, *masks, *values, program=batched, rule=wrapped)
    return unbatched_where_equal(program, size, axes, outputs)


custom_vjp_p = register(Primitive(
    name="custom_vjp", abstract=_abstract, numpy=run_with_numpy, xla=emit_inline, jvp=_custom_vjp_jvp,
    transpose=_transpose, batch=_custom_vjp_batch, cost=_cost, regions=_regions))
region_roles.enter(("call",), custom_vjp_p)


@program_property
def has_backward_rules(program: Program) -> bool:
    """Return whether `program` calls functions that have a rule for reverse mode and none for forward mode."""
    return any(not getattr(equation.params["rule"], "gives_tangents", False) if equation.primitive is custom_vjp_p else
               any(map(has_backward_rules, equation.programs)) for equation in program.equations)


class BatchedVjpRule(_BatchedRule):
    """A vjp rule on batches; residuals have the batch axis first, and the mask is one of them."""

    __slots__ = ()

    def __init__(self, rule: CustomVjpRule, size: int, axes: tuple[int | None, ...], avals: tuple[Aval, ...],
                 axis_name: str | None, masks: int) -> None:
        super().__init__(rule, size, axes, avals, axis_name, masks)

    def forward(self, primals: Flat, moving: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:
        """Return outputs and residuals of the rule for batches."""
        rule, size, axes, _, axis_name, masks = self._key
        shape: list[Any] = []

        def both(*values: Any) -> list[Any]:
            outputs, residuals, structure = rule.forward(values, moving[masks:])
            shape[:] = [len(outputs), structure]
            return [*outputs, *residuals]

        results = [put_axis(result, size, 0) for result in _apply_batched(
            both, size, primals[masks:], axes, axis_name, primals[:masks])]
        return results[:shape[0]], [*primals[:masks], *results[shape[0]:]], shape[1]

    def backward(self, structure: Any, residuals: Flat, cotangents: Flat) -> list[Any]:
        """Return cotangents of the rule; those of inputs that are not batched are summed over the batch.

        Inputs without tangents, as integers and masks, have none.
        """
        rule, size, axes, avals, axis_name, masks = self._key
        differentiable = [*map(has_tangent, avals)]
        count, marks = len(residuals) - masks, nonzero_mask(cotangents)
        types = [(value.aval if type(value) is Zero else aval_of(value)).without_axis(0) for value in cotangents]

        def one(*values: Any) -> list[Any]:
            given = rule.backward(structure, values[:count], fill_zeros(types, marks, values[count:]))
            return [instantiate_zeros(Zero(aval) if cotangent is None else cotangent
                            if type(cotangent) is Zero else sum_to_vma(cotangent, aval))
                    for cotangent, aval in select_marked([*zip(given, avals, strict=True)], differentiable)]

        arriving = [*residuals[masks:], *nonzero_tangents(cotangents)]
        results = _apply_batched(one, size, arriving, [0] * len(arriving), axis_name, residuals[:masks])
        found = [reduce_sum(put_axis(result, size, 0), (0,)) if axis is None else put_axis(result, size, axis)
                 for result, axis in zip(results, select_marked(axes, differentiable), strict=True)]
        return [*[None] * masks, *merge_marked(differentiable, found, [None] * differentiable.count(False))]

    def tangents(self, structure: Any, residuals: Flat, tangents: Flat) -> list[Any]:
        """Return the tangents of the outputs, with the batch axis first."""
        rule, size, axes, avals, axis_name, masks = self._key
        count, marks = len(residuals) - masks, nonzero_mask(tangents[masks:])

        def one(*values: Any) -> list[Any]:
            return [*map(instantiate_zeros, rule.tangents(
                structure, values[:count], fill_zeros(avals, marks, values[count:])))]

        results = _apply_batched(one, size, [*residuals[masks:], *nonzero_tangents(tangents)],
                                 [*[0] * count, *select_marked(axes, marks)], axis_name, residuals[:masks])
        return [put_axis(result, size, 0) for result in results]


# --- the tangent of a custom_vjp function -------------------------------------------------------------------
# Under reverse mode only its transpose is used, which is the user's backward pass. Forward mode takes the tangents that
# the rule gives, as functions of this library may. It derives those of others by transposing the backward pass once
# more, which takes that the pass is linear in the cotangent and transposable.


def _tangent_abstract(*avals: Aval, rule: CustomVjpRule, moving: tuple[bool, ...], in_avals: tuple[Aval, ...],
                      out_avals: tuple[Aval, ...], **_: Any) -> list[Aval]:
    expected = [aval for aval, moves in zip(in_avals, moving, strict=True) if moves]
    check_arguments(rule.name, expected, avals[len(avals) - len(expected):])
    return list(out_avals)


def _tangent_program(avals: Sequence[Aval], *, rule: CustomVjpRule, structure: Any, moving: tuple[bool, ...],
                     in_avals: tuple[Aval, ...], out_avals: tuple[Aval, ...]) -> tuple[Program, list[Any]]:
    """Return (residuals, tangents) -> output tangents: those of the rule, or else the transpose of `backward`."""
    count = len(avals) - sum(moving)

    def pass_back(*values: Any) -> list[Any]:
        given = rule.backward(structure, values[:count], values[count:])
        return [instantiate_zeros(Zero(aval) if cotangent is None else cotangent)
                for cotangent, aval, moves in zip(given, in_avals, moving, strict=True) if moves]

    def given_tangents(*values: Any) -> list[Any]:
        found = rule.tangents(structure, values[:count], fill_zeros(in_avals, moving, values[count:]))
        return [pvary(instantiate_zeros(tangent), [*aval.vma]) for tangent, aval in zip(found, out_avals, strict=True)]

    def derived_tangents(*values: Any) -> list[Any]:
        residuals, tangents = values[:count], values[count:]
        program, captured = trace_at(pass_back, [*avals[:count], *out_avals], mode=WITH_LITERALS)
        try:
            linear = (*[False] * (len(captured) + count), *[True] * len(out_avals))
            return transpose_linear(program, linear)([*captured, *residuals, *tangents])
        except (LinearityError, UnsupportedError) as error:
            raise UnsupportedError(at_user_line(
                f"forward mode through the custom_vjp function {rule.name}: its derivative was to be derived from the "
                f"backward pass, which cannot be transposed: {str(error).split('  at ')[0].strip()}\n"
                "Define the function with custom_jvp, or use reverse mode (grad, vjp, jacrev)")) from None

    gives_tangents = getattr(rule, "gives_tangents", False)
    return trace_at(given_tangents if gives_tangents else derived_tangents, avals, mode=WITH_LITERALS)


def _tangent_numpy(*values: Any, **params: Any) -> list[Any]:
    program, captured = _tangent_program([aval_of(value) for value in values], **params)
    return numpy_executor.call(program, [*captured, *values])


def _tangent_xla(lax: Any, *values: Any, **params: Any) -> list[Any]:
    avals = [Aval(tuple(value.shape), value.dtype) for value in values]
    program, captured = _tangent_program(avals, **params)
    return xla_executor.emit(program, [*captured, *values])


def _tangent_jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    program, captured = _tangent_program([aval_of(primal) for primal in primals], **params)
    zeros = [Zero(aval_of(value)) for value in captured]
    return push_forward(program, [*captured, *primals], [*zeros, *tangents])


def _tangent_transpose(cotangents: list[Any], inputs: list[Any], *, rule: CustomVjpRule, structure: Any,
                       moving: tuple[bool, ...], in_avals: tuple[Aval, ...], out_avals: tuple[Aval, ...]) -> list[Any]:
    count = len(inputs) - sum(moving)
    given = rule.backward(structure, inputs[:count], cotangents)
    moved = [Zero(aval) if cotangent is None else cotangent if type(cotangent) is Zero else sum_to_vma(cotangent, aval)
             for cotangent, aval, moves in zip(given, in_avals, moving, strict=True) if moves]
    return [*[None] * count, *(cotangent if type(value) is Linear else None
                               for cotangent, value in zip(moved, inputs[count:], strict=True))]


def _tangent_batch(size: int, values: list[Any], axes: list[int | None], **params: Any) -> tuple[list[Any], list[int]]:
    avals = [aval_of(value).without_axis(axis) for value, axis in zip(values, axes, strict=True)]
    with batching_over(None):  # batches in the user's rule are over another axis
        program, captured = _tangent_program(avals, **params)
    results = Batch(size).run(program, [*(Batched(value, None) for value in captured),
                                        *(Batched(value, axis) for value, axis in zip(values, axes, strict=True))])
    return [put_axis(result, size, 0) for result in results], [0] * len(results)


custom_vjp_tangent_p = register(Primitive(
    name="custom_vjp_tangent", abstract=_tangent_abstract, numpy=_tangent_numpy, xla=_tangent_xla, jvp=_tangent_jvp,
    transpose=_tangent_transpose, batch=_tangent_batch, calls_user_code=True, sets_vma=True,
    cost=lambda *avals, **params: total_cost(_tangent_program(avals, **params)[0])))
sparsity_rules.enter(reverse_only, custom_vjp_tangent_p)
