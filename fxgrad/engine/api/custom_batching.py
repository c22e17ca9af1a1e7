"""`custom_vmap`: functions with a user-defined batching rule, under jax's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.api.custom_calls import WithRule, as_positional
from fxgrad.engine.frontend.flat import TracedCall, check_leaf, constant_name, trace_flat, transformation
from fxgrad.engine.higher_order.mapped_rule import custom_vmap_p
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of, bind, innermost_for
from fxgrad.engine.tracing.trace import SHARED
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, ShapeError, TreeError


class custom_vmap(WithRule):  # noqa: N801  (jax's name)
    """A function with a rule for `vmap`, set by `f.def_vmap(rule)`; without a rule the function itself is batched.

    `rule(axis_size, in_batched, *args)`: `in_batched` is a list with a container of bools for each argument, True where
    a leaf has a batch axis, which is axis 0. The rule returns the output, and a container like it of bools: True where
    a leaf has a batch axis, in front. Arguments given by keyword are passed to it by position. Derivatives are those of
    the function, and under `vmap` those of the rule.

    >>> import numpy as np, fxgrad, fxgrad.numpy as fnp
    >>> @fxgrad.custom_batching.custom_vmap
    ... def squared(x):
    ...     return x * x
    >>> @squared.def_vmap
    ... def rule(axis_size, in_batched, x):
    ...     print("a batch of", axis_size)
    ...     return x * x, in_batched[0]
    >>> fxgrad.vmap(squared)(np.array([1.0, 2.0]))
    a batch of 2
    array([1., 4.])
    """

    def __init__(self, fun: Callable[..., Any]) -> None:
        decorate: Callable[..., Any] = transformation("custom_vmap", fun)
        decorate(self)
        self.fun = fun
        self.vmap_rule: Callable[..., Any] | None = None

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; return it, so that it can be used as a decorator."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    @hide_frames
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the function."""
        args = as_positional(self.fun, args, kwargs)
        leaves, structure = tree.flatten(args)
        for leaf in leaves:
            check_leaf(leaf, "custom_vmap", constant_name(f"an argument of {function_name(self.fun)}"))
        if innermost_for(leaves) is None or self.vmap_rule is None:
            return self.fun(*args)
        traced = trace_flat(lambda *tracers: self.fun(*tree.unflatten(structure, tracers)),
                            [aval_of(leaf) for leaf in leaves], "custom_vmap", self.fun, mode=SHARED)
        rule = _Rule(self.vmap_rule, function_name(self.fun), structure, traced)
        outputs = bind(custom_vmap_p, *traced.captured, *leaves, program=traced.program, rule=rule)
        return tree.unflatten(traced.out_tree, outputs)


class _Rule:
    """The user's rule on flat values; every call of the function has its own, since the rule may change."""

    def __init__(self, rule: Callable[..., Any], name: str, structure: Any, traced: TracedCall) -> None:
        self._rule, self.name, self._structure, self._out_tree = rule, name, structure, traced.out_tree
        self._captured, self._out_avals = traced.program.captured, traced.program.out_avals

    def batch(self, size: int, values: Sequence[Any], batched: Sequence[bool]) -> tuple[list[Any], list[bool]]:
        """Return the outputs of the rule, which must match those of the function."""
        if any(batched[:self._captured]):
            raise ArgumentError(at_user_line(
                f"custom_vmap: {self.name} closes over a mapped array, which its rule does not receive. Make it "
                "an argument"))
        args = tree.unflatten(self._structure, values[self._captured:])
        flags = tree.unflatten(self._structure, batched[self._captured:])
        output, out_batched = self._rule(size, list(flags), *args)
        leaves, structure = tree.flatten(output)
        flags_out, flags_structure = tree.flatten(out_batched)
        if structure != self._out_tree or flags_structure != self._out_tree:
            raise TreeError(at_user_line(
                f"custom_vmap: the rule of {self.name} must return the output and a container of bools, both in the "
                f"structure of its output ({self._out_tree}); it returned {structure} and {flags_structure}"))
        for leaf, aval, flag in zip(leaves, self._out_avals, flags_out, strict=True):
            given, needed = aval_of(leaf), ((size, *aval.shape) if flag else aval.shape)
            if given.shape != needed or given.dtype != aval.dtype:
                raise ShapeError(at_user_line(
                    f"custom_vmap: the rule of {self.name} returned {given.strong()}, where {aval.dtype.name} of shape "
                    f"{needed} is needed"))
        return leaves, flags_out

    def __repr__(self) -> str:
        return f"<{self.name}>"
