"""Rules of custom functions under `autocast`: what they compute is cast as all else is, the types they speak stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.higher_order.custom import ByValue, Flat, custom_jvp_p, custom_vjp_p
from fxgrad.engine.higher_order.groups import nonzero_mask, nonzero_tangents, select_marked
from fxgrad.engine.higher_order.mapped_rule import custom_vmap_p
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace
from fxgrad.engine.transforms.forward import fill_zeros
from fxgrad.training.autocast.casting import Caster, Value, rules


class _Cast(ByValue):
    """A rule, the policy, and the kind of the block that the function is in."""

    __slots__ = ()

    def _apply(self, function: Callable[..., Sequence[Any]], values: Flat) -> list[Any]:
        """What `function` computes of `values`, cast inside."""
        _, policy, forced = self._key
        program, captured = trace(function, [aval_of(value) for value in values], mode=WITH_LITERALS)
        given = [Value(value, aval_of(value), policy.dtype) for value in (*captured, *values)]
        return [output.wide() for output in Caster(policy, forced).run(program, given)]


@rules.register(custom_jvp_p)
class CastJvpRule(_Cast):
    """A jvp rule."""

    __slots__ = ()

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[list[Any], list[Any]]:
        """Outputs and tangents of the types that the rule makes."""
        rule, count, marks = self._key[0], len(primals), nonzero_mask(tangents)
        zeros: list[Any] = []

        def both(*values: Any) -> list[Any]:
            avals = [aval_of(value) for value in values[:count]]
            outputs, found = rule.jvp(values[:count], fill_zeros(avals, marks, values[count:]))
            zeros[:] = [tangent if type(tangent) is Zero else None for tangent in found]
            return [*outputs, *nonzero_tangents(found)]

        results = self._apply(both, [*primals, *nonzero_tangents(tangents)])
        outputs, moved = results[:len(zeros)], iter(results[len(zeros):])
        return outputs, [next(moved) if zero is None else zero for zero in zeros]


@rules.register(custom_vjp_p)
class CastVjpRule(_Cast):
    """A vjp rule."""

    __slots__ = ()

    def forward(self, primals: Flat, moving: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:
        """Outputs, residuals and their structure."""
        rule = self._key[0]
        shape: list[Any] = []

        def both(*values: Any) -> list[Any]:
            outputs, residuals, structure = rule.forward(values, moving)
            shape[:] = [len(outputs), structure]
            return [*outputs, *residuals]

        results = self._apply(both, primals)
        return results[:shape[0]], results[shape[0]:], shape[1]

    def backward(self, structure: Any, residuals: Flat, cotangents: Flat) -> list[Any]:
        """Cotangents of the types of the primals."""
        rule, count = self._key[0], len(residuals)
        avals, marks = [zero.aval if type(zero) is Zero else aval_of(zero) for zero in cotangents], nonzero_mask(
            cotangents)
        absent: list[Any] = []

        def back(*values: Any) -> list[Any]:
            found = rule.backward(structure, values[:count], fill_zeros(avals, marks, values[count:]))
            absent[:] = [each if each is None or type(each) is Zero else ... for each in found]
            return [each for each in found if each is not None and type(each) is not Zero]

        results = iter(self._apply(back, [*residuals, *select_marked(cotangents, marks)]))
        return [next(results) if each is ... else each for each in absent]


@rules.register(custom_vmap_p)
class CastBatchRule(_Cast):
    """A batch rule."""

    __slots__ = ()

    def batch(self, size: int, values: Flat, batched: Sequence[bool]) -> tuple[list[Any], list[bool]]:
        """The outputs, and which of them have a batch axis."""
        rule = self._key[0]
        marks: list[bool] = []

        def one(*given: Any) -> list[Any]:
            outputs, found = rule.batch(size, given, batched)
            marks[:] = found
            return outputs

        return self._apply(one, values), list(marks)
