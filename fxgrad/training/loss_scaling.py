"""Loss scaling, which keeps small gradients of half precision from vanishing: small states, changed by pure functions.

Float16 has no number between 0 and 6e-8. Multiplying the loss by a large number multiplies its gradients by it too;
they are divided by it again in float32. `Static` keeps the number. `Dynamic` uses the largest number that does not
overflow: it skips a step with an infinity or a NaN and halves the number, and doubles it after a number of good steps.
This is the method of Micikevicius et al., Mixed Precision Training (2018), PyTorch's `GradScaler`, Flax's
`DynamicScale` and jmp.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.api.reverse import value_and_grad as _value_and_grad
from fxgrad.engine.frontend.operands import as_array_operand, shape_of
from fxgrad.engine.pytorch_names import module_getattr
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line, named_as
from fxgrad.errors import ArgumentError, TreeError

__all__ = ["Dynamic", "LossScale", "Scaled", "Static", "all_finite", "select", "value_and_grad"]

Tree = TypeVar("Tree")


class LossScale:
    """The base of `Static` and `Dynamic`: a container of arrays, so that it passes through `jit` and `scan`."""

    value: Any
    """The number that losses are multiplied by, float32."""

    def scale(self, loss: Tree) -> Tree:
        """Return `loss`, an array or a container, times the number; half-precision losses in float32."""
        return tree.map(lambda leaf: _scale_leaf(fnp.multiply, leaf, self.value), loss)

    def unscale(self, gradients: Tree) -> Tree:
        """Return `gradients` divided by the number; half-precision ones in float32, which has the range for them."""
        return tree.map(lambda leaf: _scale_leaf(fnp.divide, leaf, self.value), gradients)

    def adjust(self, finite: Any) -> Any:
        """Return the state for the next step; `finite` is whether the gradients of this one were finite."""
        raise NotImplementedError(f"{type(self).__name__} must define adjust(self, finite)")


@tree.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Static(LossScale):
    """One number for all steps.

    >>> import fxgrad
    >>> scaling = fxgrad.loss_scaling.Static(1024.0)
    >>> float(scaling.scale(2.0)), float(scaling.unscale(2048.0))
    (2048.0, 2.0)
    """

    value: Any = 2.0**15

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _number("Static", self.value))

    def adjust(self, finite: Any) -> Static:  # noqa: ARG002  (states have the same methods)
        """Return the state unchanged."""
        return self

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Return the number as the only leaf."""
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Sequence[Any]) -> Static:
        """Return the state of a number, which may be any placeholder."""
        return _fill_state(cls, value=children[0])


@tree.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Dynamic(LossScale):
    """A number that adapts: doubled after `growth_interval` good steps, halved after a bad one.

    `good_steps` counts the steps since it was last changed. It stays between `smallest` and the largest number that
    float32 has. Raises `ArgumentError` for a number or a setting that is out of range or not of shape ().

    >>> import fxgrad
    >>> scaling = fxgrad.loss_scaling.Dynamic(1024.0, growth_interval=2)
    >>> float(scaling.adjust(False).value), float(scaling.adjust(True).adjust(True).value)
    (512.0, 2048.0)
    """

    value: Any = 2.0**15
    good_steps: Any = 0
    growth_interval: int = 2000
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    smallest: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _number("Dynamic", self.value))
        object.__setattr__(self, "good_steps", fnp.asarray(self.good_steps, np.int32))
        for name, kind, is_right, needed in (
                ("growth_interval", Integral, lambda value: value >= 1, "an integer of at least 1"),
                ("growth_factor", Real, lambda value: value >= 1, "a number of at least 1"),
                ("backoff_factor", Real, lambda value: 0 < value <= 1, "a number up to 1"),
                ("smallest", Real, lambda value: value > 0, "a number above 0")):
            value = getattr(self, name)
            if not isinstance(value, kind) or not is_right(value):
                raise ArgumentError(at_user_line(
                    f"loss_scaling.Dynamic: {name} is {value!r}, where {needed} is needed"))

    def adjust(self, finite: Any) -> Dynamic:
        """Return the state grown after enough good steps, and backed off after a bad one.

        Raises `ArgumentError` unless `finite` is one bool.
        """
        if shape_of(finite := as_array_operand(finite)) != ():
            raise ArgumentError(at_user_line(
                f"loss_scaling.Dynamic.adjust: finite has the shape {shape_of(finite)}, where one bool is needed: "
                "fxgrad.loss_scaling.all_finite(gradients)"))
        is_due = self.good_steps + 1 >= self.growth_interval
        grown = self.value * np.float32(self.growth_factor)
        grown = fnp.where(is_due & fnp.isfinite(grown), grown, self.value)
        smaller = fnp.maximum(self.value * np.float32(self.backoff_factor), np.float32(self.smallest))
        steps = fnp.where(is_due, np.int32(0), self.good_steps + np.int32(1))
        return _fill_state(Dynamic, **{**self._settings(), "value": fnp.where(finite, grown, smaller),
                                       "good_steps": fnp.where(finite, steps, np.int32(0))})

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SETTINGS}

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the number and the count as leaves; the rest are settings."""
        return (self.value, self.good_steps), tuple(self._settings().values())

    @classmethod
    def tree_unflatten(cls, settings: Sequence[Any], children: Sequence[Any]) -> Dynamic:
        """Return the state of a number and a count, which may be any placeholders."""
        return _fill_state(cls, value=children[0], good_steps=children[1],
                           **dict(zip(_SETTINGS, settings, strict=True)))


_SETTINGS = ("growth_interval", "growth_factor", "backoff_factor", "smallest")


class Scaled(NamedTuple):
    """The result of `value_and_grad`: the loss and its gradients, whether all are finite, and the next state."""

    value: Any
    gradients: Any
    finite: Any
    loss_scale: Any


def value_and_grad(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
                   ) -> Callable[..., Scaled]:
    """Return the function `(loss_scale, *args) -> Scaled`: `fxgrad.value_and_grad(fun)(*args)` through a scaled loss.

    Value and gradients are unscaled. Skip a step whose gradients are not `finite`: `select` the previous parameters and
    optimiser state. With `has_aux` the value is a pair with the auxiliary output of `fun`.

    >>> import numpy as np, fxgrad
    >>> from fxgrad import loss_scaling
    >>> def loss(w):                       # a slope of 1e-9, which float16 does not have
    ...     return np.sum((w.astype(np.float16) * np.float16(1.0)).astype(np.float32)) * 1e-9
    >>> w = np.ones(2, np.float32)
    >>> float(fxgrad.grad(loss)(w)[0])
    0.0
    >>> step = loss_scaling.value_and_grad(loss)(loss_scaling.Dynamic(2.0**24), w)
    >>> round(float(step.gradients[0]), 12), bool(step.finite)
    (1e-09, True)
    """
    @transformation("loss_scaling.value_and_grad", fun)
    def scaled(loss_scale: LossScale, *args: Any, **kwargs: Any) -> Scaled:
        if not isinstance(loss_scale, LossScale):
            raise ArgumentError(at_user_line(
                f"loss_scaling.value_and_grad: the first argument is a {type(loss_scale).__name__}, where a loss scale "
                "is needed, such as fxgrad.loss_scaling.Dynamic()"))

        @named_as(fun)
        def with_scale(*given: Any, **keywords: Any) -> Any:
            result = fun(*given, **keywords)
            return loss_scale.scale(result[0] if has_aux else result), result

        (_, value), gradients = _value_and_grad(with_scale, argnums=argnums, has_aux=True)(*args, **kwargs)
        gradients = loss_scale.unscale(gradients)
        finite = all_finite(gradients)
        return Scaled(value, gradients, finite, loss_scale.adjust(finite))
    return scaled


def all_finite(values: Any) -> Any:
    """Return whether a container has neither an infinity nor a NaN: a bool of shape ().

    >>> import numpy as np, fxgrad
    >>> bool(fxgrad.loss_scaling.all_finite({"w": np.array([1.0, np.inf])}))
    False
    """
    finite = fnp.asarray(True)
    for leaf in tree.leaves(values):
        if dtypes.is_inexact(fnp.result_type(leaf)):
            finite = finite & fnp.all(fnp.isfinite(leaf))
    return finite


def select(finite: Any, new: Tree, old: Tree) -> Tree:
    """Return `new` if the step was `finite`, else `old`: equal containers, of parameters or of an optimiser's state.

    Raises `TreeError` for containers that differ.

    >>> import numpy as np, fxgrad
    >>> fxgrad.loss_scaling.select(False, {"w": np.array([np.nan])}, {"w": np.array([1.0])})
    {'w': array([1.])}
    """
    made: TreeDef = tree.structure(new)
    before: TreeDef = tree.structure(old)
    if made != before:
        raise TreeError(at_user_line(
            f"loss_scaling.select: new is {made}, and old is {before}, where equal containers are needed. Write "
            "select(finite, (params_after, state_after), (params, state))"))
    return tree.map(lambda one, other: fnp.where(finite, one, other), new, old)


def _scale_leaf(operation: Callable[..., Any], leaf: Any, factor: Any) -> Any:
    dtype = fnp.result_type(leaf)
    if not dtypes.is_inexact(dtype):
        return leaf
    if dtypes.is_floating(dtype) and dtype.itemsize < 4:
        leaf, dtype = fnp.asarray(leaf).astype(np.float32), np.dtype(np.float32)
    return operation(leaf, fnp.asarray(factor).astype(dtypes.real_dtype(dtype)))


def _number(name: str, value: Any) -> Any:
    if isinstance(value, int | float) and not 0 < value < np.inf:
        raise ArgumentError(at_user_line(
            f"loss_scaling.{name}: the number is {value}, where one above 0 is needed, such as 2.0**15"))
    number = fnp.asarray(value, np.float32)
    if shape_of(number) != ():
        raise ArgumentError(at_user_line(
            f"loss_scaling.{name}: the number has the shape {shape_of(number)}, where one number is needed, such as "
            "2.0**15"))
    return number


def _fill_state(kind: Any, **fields: Any) -> Any:
    """Return a state of given fields, unchecked: transformations put placeholders in the places of arrays."""
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


ABSENT = dict.fromkeys(("DynamicLossScale", "DynamicScale", "GradScaler"), (
    "write scale = fxgrad.loss_scaling.Dynamic() and scaled = loss_scaling.value_and_grad(f)(scale, params)"))
"""Names of PyTorch, Flax and jmp that are not here, with what to write."""
__getattr__ = module_getattr("fxgrad.loss_scaling", ABSENT, stands_at=__name__)
