"""User rules of custom derivatives and batches, with their computations rewritten by a transformation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.higher_order.custom import ByValue, Flat, apply_dual, custom_jvp_p, custom_vjp_p, dual_function
from fxgrad.engine.higher_order.groups import nonzero_mask, nonzero_tangents, select_marked
from fxgrad.engine.higher_order.mapped_rule import custom_vmap_p
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.transforms.forward import fill_zeros


class RuleTransform(Protocol):
    """A transformation of a rule's program; hashable, and equal to an equivalent one."""

    def __call__(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of `program`, rewritten, with their original types; captured inputs come first."""
        ...


class _Transformed(ByValue):
    """A rule and the transformation of its computations."""

    __slots__ = ()

    def _apply(self, function: Callable[..., Sequence[Any]], values: Flat) -> list[Any]:
        """Return the transformed results of `function` on `values`."""
        _, transform = self._key
        program, captured = trace_at(function, [aval_of(value) for value in values], mode=WITH_LITERALS)
        outputs: list[Any] = transform(program, [*captured, *values])
        return outputs


class TransformedJvpRule(_Transformed):
    """A jvp rule."""

    __slots__ = ()

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[list[Any], list[Any]]:
        """Return outputs and tangents of the types that the rule returns."""
        reached: list[bool] = []
        both = dual_function(self._key[0], nonzero_mask(tangents), reached)
        return apply_dual(lambda *values: self._apply(both, values), primals, tangents,
                          f"the jvp rule of {self.name}", reached)


class TransformedVjpRule(_Transformed):
    """A vjp rule."""

    __slots__ = ()

    def forward(self, primals: Flat, moving: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:
        """Return outputs, residuals and their structure."""
        rule = self._key[0]
        shape: list[Any] = []

        def both(*values: Any) -> list[Any]:
            outputs, residuals, structure = rule.forward(values, moving)
            shape[:] = [len(outputs), structure]
            return [*outputs, *residuals]

        results = self._apply(both, primals)
        return results[:shape[0]], results[shape[0]:], shape[1]

    def backward(self, structure: Any, residuals: Flat, cotangents: Flat) -> list[Any]:
        """Return cotangents of the types of the primals."""
        rule, count, marks = self._key[0], len(residuals), nonzero_mask(cotangents)
        avals = [zero.aval if type(zero) is Zero else aval_of(zero) for zero in cotangents]
        absent: list[Any] = []

        def back(*values: Any) -> list[Any]:
            in_cotangents = rule.backward(structure, values[:count], fill_zeros(avals, marks, values[count:]))
            absent[:] = [each if each is None or type(each) is Zero else ... for each in in_cotangents]
            return [each for each in in_cotangents if each is not None and type(each) is not Zero]

        results = iter(self._apply(back, [*residuals, *select_marked(cotangents, marks)]))
        return [next(results) if each is ... else each for each in absent]

    def tangents(self, structure: Any, residuals: Flat, tangents: Flat) -> list[Any]:
        """Return tangents of the types of the outputs."""
        rule, count, marks = self._key[0], len(residuals), nonzero_mask(tangents)
        avals = [each.aval if type(each) is Zero else aval_of(each) for each in tangents]

        def push(*values: Any) -> list[Any]:
            return [*map(instantiate_zeros, rule.tangents(
                structure, values[:count], fill_zeros(avals, marks, values[count:])))]

        return self._apply(push, [*residuals, *nonzero_tangents(tangents)])


class TransformedBatchRule(_Transformed):
    """A batch rule."""

    __slots__ = ()

    def batch(self, size: int, values: Flat, batched: Sequence[bool]) -> tuple[list[Any], list[bool]]:
        """Return the outputs, and which of them have a batch axis."""
        rule = self._key[0]
        marks: list[bool] = []

        def one(*given: Any) -> list[Any]:
            outputs, out_batched = rule.batch(size, given, batched)
            marks[:] = out_batched
            return outputs

        return self._apply(one, values), list(marks)


_CLASSES: dict[Primitive, type[_Transformed]] = {
    custom_jvp_p: TransformedJvpRule, custom_vjp_p: TransformedVjpRule, custom_vmap_p: TransformedBatchRule}


def transform_rule(primitive: Primitive, params: dict[str, Any], transform: RuleTransform) -> dict[str, Any]:
    """Return the parameters of a custom operation with its user rule transformed; those of others unchanged.

    `transform(program, inputs)` computes the rewritten outputs of the program that the rule records, at every run.
    """
    made = _CLASSES.get(primitive)
    return params if made is None else {**params, "rule": made(params["rule"], transform)}
