"""Reference optimisers, pairs of pure functions that keep the dtypes of parameters; clipping and schedules of rates."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.dtypes import finfo, float0, is_complex, is_inexact
from fxgrad.engine.frontend.flat import note_result
from fxgrad.engine.frontend.operands import as_array_operand, shape_of
from fxgrad.engine.ops.arithmetic import stop_gradient
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.pytorch_names import add_hint_attributes, module_getattr
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tracer import Tracer, aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.numpy.arithmetic import add, divide, maximum, multiply, power
from fxgrad.numpy.arithmetic import clip as clip_array
from fxgrad.numpy.creation import astype, widen_half
from fxgrad.numpy.elementwise import absolute, cos, expm1, log, sign, sqrt, square
from fxgrad.numpy.logic import equal, less_equal, where
from fxgrad.numpy.reductions import max as max_of
from fxgrad.numpy.reductions import sum as sum_of
from fxgrad.numpy.types import iscomplexobj

P = ParamSpec("P")
R = TypeVar("R")
Parameters = Any


class Optimizer(NamedTuple):
    """`init(params)` gives the first state, `update(gradients, state, params)` the next parameters and state.

    Both are pure functions of containers of arrays, so they may be traced, jitted, scanned over and differentiated.
    Parameters keep their dtypes. Those in half precision are updated in float32 and rounded once, and their state is
    float32. Integers whose gradients are float0 (`grad(..., allow_int=True)`) stay as they are, with None as state.
    `update` raises `ArgumentError` for gradients of another structure or shape than the parameters, for other gradients
    of integers, for complex gradients of real parameters, and for a state of other parameters.
    """

    init: Callable[[Parameters], Any]
    update: Callable[[Parameters, Any, Parameters], tuple[Parameters, Any]]


add_hint_attributes(Optimizer, {
    "step": "Write params, state = optimizer.update(gradients, state, params)",
    "zero_grad": "Gradients are returned and not stored: leave it out",
    "state_dict": "The state is what optimizer.init and optimizer.update return, a container of arrays",
    "param_groups": "Rates may be functions of the number of updates: fxgrad.optim.adam(schedule)",
})


def _optimizer(what: str, init: Callable[[Parameters], Any], step: Callable[..., tuple[Parameters, Any]]) -> Optimizer:
    """Return the optimizer of a formula, which gets parameters and gradients of one dtype, of 32 bits at least."""
    def update(gradients: Parameters, state: Any, params: Parameters) -> tuple[Parameters, Any]:
        _check_match(what, gradients, params)
        if all(map(_is_as_needed, tree.leaves(params), tree.leaves(gradients))):
            return advance(gradients, state, params)
        wide = tree.map(_widen, params)
        gradients = tree.map(lambda p, g, w: _as_parameter(what, p, g, w), params, gradients, wide)
        moved, state = advance(gradients, state, wide)
        return tree.map(_narrow, params, moved), state

    def advance(gradients: Parameters, state: Any, params: Parameters) -> tuple[Parameters, Any]:
        try:
            moved, after = step(gradients, state, params)
        except (AttributeError, TypeError, ValueError):
            _check_state(what, state, init(params))
            raise
        if not _is_alike(state, after):  # the state of another optimizer, or one that was broadcast
            _check_state(what, state, init(params))
        for parameter, value in zip(tree.leaves(params), tree.leaves(moved), strict=True):
            _check_kept(what, parameter, value)
        return moved, after

    update.__qualname__ = f"{what}.update"  # errors of calls have it
    return Optimizer(lambda params: init(tree.map(_widen, params)), _with_names(update))


def _check_state(what: str, state: Any, first: Any) -> None:
    """Raise an error for a state that has not the structure and the shapes of the first one."""
    given: Any = tree.structure(state)
    needed: Any = tree.structure(first)
    makers = "optimizer.init(params) makes the first state, optimizer.update the next ones"
    if given != needed:
        raise ArgumentError(at_user_line(
            f"{what}: the state has the structure {given}, and that of these parameters {needed}; {makers}")) from None
    for one, other in zip(tree.leaves(state), tree.leaves(first), strict=True):
        if shape_of(one) != shape_of(other):
            raise ArgumentError(at_user_line(
                f"{what}: an array of the state has the shape {shape_of(one)}, and that of these parameters "
                f"{shape_of(other)}; {makers}")) from None


def _is_alike(state: Any, after: Any) -> bool:
    """Return whether two states have the same structure and shapes."""
    before: tuple[list[Any], Any] = tree.flatten(state)
    now: tuple[list[Any], Any] = tree.flatten(after)
    return bool(before[1] == now[1]) and all(getattr(one, "shape", ()) == getattr(two, "shape", ())
                                             for one, two in zip(before[0], now[0], strict=True))


def _check_kept(what: str, parameter: Any, moved: Any) -> None:
    """Raise an error for a parameter whose shape or dtype an array of the state, or one that is a setting, changed."""
    are_arrays = type(parameter) is type(moved) is np.ndarray  # nearly all; the types of others take longer
    before, after = (parameter, moved) if are_arrays else (aval_of(parameter), aval_of(moved))
    if before.shape != after.shape or before.dtype != after.dtype:
        raise ArgumentError(at_user_line(
            f"{what}: an update makes {after.dtype}{list(after.shape)} of a parameter that is "
            f"{before.dtype}{list(before.shape)}. The state or a setting has an array of that shape or dtype: give the "
            "state that optimizer.init makes of these parameters, and numbers as settings"))


def _is_as_needed(parameter: Any, gradient: Any) -> bool:
    """Return whether the formula may take a parameter and its gradient as they are, as nearly all of them."""
    aval = aval_of(parameter)
    return aval.dtype.itemsize >= 4 and not aval.weak and is_inexact(aval.dtype) and aval == aval_of(gradient)


def _widen(parameter: Any) -> Any:
    """Return a parameter, half precision in float32, and None for integers and bools."""
    return widen_half(parameter) if is_inexact(aval_of(parameter).dtype) else None


def _narrow(parameter: Any, moved: Any) -> Any:
    """Return the next value of a parameter in its dtype."""
    return parameter if moved is None else _cast_to(moved, parameter)


def _as_parameter(what: str, parameter: Any, gradient: Any, wide: Any) -> Any:
    """Return a gradient in the dtype of the widened parameter."""
    if wide is None:
        if getattr(gradient, "dtype", None) != float0:
            raise ArgumentError(at_user_line(
                f"{what}: a parameter has the dtype {aval_of(parameter).dtype}, and an update makes floats of it; give "
                "it as floats, or leave it out. With gradients of grad(..., allow_int=True) it stays as it is"))
        return None
    needed, given = aval_of(wide), aval_of(gradient)
    if given == needed:
        return gradient
    if given.shape != needed.shape:
        raise ArgumentError(at_user_line(
            f"{what}: a gradient has the shape {given.shape}, its parameter {needed.shape}; they must be the same. "
            "fxgrad.grad gives them so"))
    if is_complex(given.dtype) and not is_complex(needed.dtype):
        raise ArgumentError(at_user_line(
            f"{what}: a gradient is {given.dtype}, its parameter {aval_of(parameter).dtype}; they must both be complex "
            "or real. fxgrad.grad gives them so"))
    return _cast_to(gradient, wide)


def _with_names(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function`, whose result has the names that the calling line assigns it to."""
    @functools.wraps(function)
    def noted(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        note_result(result)
        return result
    return noted


class Moments(NamedTuple):
    """The state of Adam: the number of updates, and running averages of gradients and of their squares."""

    count: Any
    first: Parameters
    second: Parameters


@hide_frames
def sgd(rate: Any, momentum: float = 0.0, *, nesterov: bool = False, weight_decay: float = 0.0) -> Optimizer:
    """Stochastic gradient descent, v ← momentum · v + g, p ← p - rate · v, with Nesterov's look-ahead on request.

    `weight_decay` times the parameter is added to its gradient. The state is the container of the v, or None without
    momentum; with a rate that is a function of the number of earlier updates, a pair of that number and the container.
    The formulas are those of PyTorch's SGD (Sutskever et al., 2013, with the rate outside of v).

    Raises `ArgumentError` for a rate, momentum or weight decay that is negative or no number, or Nesterov's form
    without momentum.

    >>> import fxgrad
    >>> optimizer = fxgrad.optim.sgd(0.1)
    >>> params = {"w": 2.0}
    >>> optimizer.update({"w": 1.0}, optimizer.init(params), params)
    ({'w': 1.9}, None)
    """
    if callable(rate):
        return _schedule(lambda now: sgd(now, momentum, nesterov=nesterov, weight_decay=weight_decay), rate)
    _check("sgd", rate=rate, momentum=momentum, weight_decay=weight_decay)
    if nesterov and _is_zero(momentum):
        raise ArgumentError(at_user_line("sgd: nesterov=True needs a momentum, such as momentum=0.9"))

    def step(gradients: Parameters, state: Any, params: Parameters) -> tuple[Parameters, Any]:
        gradients = _add_decay(gradients, params, weight_decay)
        if _is_zero(momentum):
            return tree.map(lambda p, g: p - _cast_to(rate, p) * g, params, gradients), None
        velocity = tree.map(lambda v, g: _cast_to(momentum, v) * v + g, state, gradients)
        steps = tree.map(lambda g, v: g + _cast_to(momentum, v) * v, gradients, velocity) if nesterov else velocity
        return tree.map(lambda p, v: p - _cast_to(rate, p) * v, params, steps), velocity

    return _optimizer("sgd", (lambda _: None) if _is_zero(momentum) else _zeros, step)


@hide_frames
def adam(rate: Any = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, *,
         weight_decay: float = 0.0) -> Optimizer:
    """Adam (Kingma and Ba, 2015, algorithm 1): steps by the average gradient over the root of the average square.

    m ← β₁ m + (1 - β₁) g, s ← β₂ s + (1 - β₂) g², p ← p - rate · (m / (1 - β₁ᵗ)) / (√(s / (1 - β₂ᵗ)) + ε), after t
    updates. `weight_decay` times the parameter is added to its gradient. The rate is a number, which may be traced, or
    a function of the number of updates before. Parameters keep their dtypes; of complex gradients the average is of
    |g|², which is real. Raises as `sgd` does.

    >>> import fxgrad
    >>> optimizer = fxgrad.optim.adam(0.1)
    >>> params, state = optimizer.update(3.0, optimizer.init(2.0), 2.0)
    >>> round(params, 6), state.count
    (1.9, 1)
    """
    return _adam("adam", rate, beta1, beta2, epsilon, weight_decay, decoupled=False)


@hide_frames
def adamw(rate: Any = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, *,
          weight_decay: float = 1e-2) -> Optimizer:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): p shrinks by rate · weight_decay · p besides.

    Raises as `sgd` does.

    >>> import fxgrad
    >>> optimizer = fxgrad.optim.adamw(0.1, weight_decay=0.5)
    >>> params, _ = optimizer.update(3.0, optimizer.init(2.0), 2.0)
    >>> round(params, 6)
    1.8
    """
    return _adam("adamw", rate, beta1, beta2, epsilon, weight_decay, decoupled=True)


def _adam(what: str, rate: Any, beta1: float, beta2: float, epsilon: float, weight_decay: float, decoupled: bool,
          ) -> Optimizer:
    _check(what, rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=weight_decay)

    def init(params: Parameters) -> Moments:
        return Moments(0, _zeros(params), _no_squares(params))

    def step(gradients: Parameters, state: Moments, params: Parameters) -> tuple[Parameters, Moments]:
        if not decoupled:
            gradients = _add_decay(gradients, params, weight_decay)
        count = state.count + 1
        first = _averages(beta1, state.first, gradients)
        second = _averages(beta2, state.second, tree.map(_square, gradients))
        now = _rate_after(rate, state.count)
        shrink = 1 - now * weight_decay if decoupled else 1.0

        def move(p: Any, m: Any, s: Any) -> Any:
            m, s = m / _cast_to(_bias_correction(beta1, count, s), m), s / _cast_to(_bias_correction(beta2, count, s),
                                                                                    s)
            return _cast_to(shrink, p) * p - _cast_to(now, p) * m / (_root(s) + _cast_to(epsilon, s))

        return tree.map(move, params, first, second), Moments(count, first, second)

    return _optimizer(what, init, step)


def _schedule(make: Callable[[Any], Optimizer], rate: Callable[[Any], Any]) -> Optimizer:
    """Return an optimiser whose state counts the updates; `make` returns the optimiser of one rate."""
    def init(params: Parameters) -> tuple[Any, Any]:
        return 0, make(0.0).init(params)

    @_with_names
    def update(gradients: Parameters, state: Any, params: Parameters) -> tuple[Parameters, Any]:
        if not (isinstance(state, tuple | list) and len(state) == 2):
            _check_state("sgd", state, init(params))
        count, inner = state
        params, inner = inspect.unwrap(make(rate(count)).update)(gradients, inner, params)  # named below
        return params, (count + 1, inner)

    return Optimizer(init, update)


def _add_decay(gradients: Parameters, params: Parameters, weight_decay: float) -> Parameters:
    if _is_zero(weight_decay):
        return gradients
    return tree.map(lambda g, p: g + _cast_to(weight_decay, p) * p, gradients, params)


def _is_zero(setting: Any) -> bool:
    """Return whether a setting is the number 0; False for a traced one, whose value is unknown."""
    return isinstance(setting, int | float) and not setting


def _averages(beta: float, averages: Parameters, values: Parameters) -> Parameters:
    return tree.map(lambda m, g: _cast_to(beta, m) * m + _cast_to(1 - beta, m) * g, averages, values)


def _square(gradient: Any) -> Any:
    """Return the square of the magnitude, which is real for complex gradients too."""
    if not iscomplexobj(gradient):
        return gradient * gradient
    return gradient.real * gradient.real + gradient.imag * gradient.imag


def _root(average: Any) -> Any:
    """Return the root of an average of squares.

    Where that is 0, its derivative is 0 and not infinite: the gradients were 0, and what is divided by it is 0 too.
    """
    half = _cast_to(0.5, average)
    if not isinstance(average, Tracer):
        return average ** half
    is_zero = equal(average, 0)
    return where(is_zero, average, where(is_zero, _cast_to(1.0, average), average) ** half)


def _zeros(params: Parameters) -> Parameters:
    return tree.map(_zeros_like, params)


def _no_squares(params: Parameters) -> Parameters:
    return tree.map(lambda p: _zeros_like(p.real if iscomplexobj(p) else p), params)


def _zeros_like(parameter: Any) -> Any:
    """Return zeros of the kind of the parameter: where that is an infinity, 0 times it is NaN."""
    return 0 * parameter ** 0


def _rate_after(rate: Any, count: Any) -> Any:
    """Return the learning rate of the update after `count` others."""
    return rate(count) if callable(rate) else rate


def _bias_correction(beta: float, count: Any, parameter: Any) -> Any:
    """Return 1 - beta ** count with all digits, unlike the difference in float32."""
    if not isinstance(beta, int | float):  # log(0) is minus infinity, and the difference 1
        return -expm1(multiply(count, log(beta)))
    if isinstance(count, int):
        return -math.expm1(count * math.log(beta)) if beta else 1.0
    dtype = "float64" if getattr(parameter, "dtype", None) == np.float64 else "float32"
    return -expm1(astype(count, dtype) * np.dtype(dtype).type(math.log(beta))) if beta else 1.0


def _cast_to(number: Any, array: Any) -> Any:
    """Return a number in the dtype of an array, and as weak, so that it changes neither."""
    if type(array) is np.ndarray:
        dtype, weak = array.dtype, False
    else:
        aval = aval_of(array)
        dtype, weak = aval.dtype, aval.weak
    if isinstance(number, int | float):
        return number if weak else dtype.type(number)
    return convert(as_array_operand(number), dtype, weak)


@hide_frames
def rmsprop(rate: Any = 1e-2, decay: float = 0.99, epsilon: float = 1e-8) -> Optimizer:
    """RMSprop (Hinton, 2012): s ← decay · s + (1 - decay) g², p ← p - rate · g / (√s + ε), as PyTorch has it.

    The rate and complex gradients are as those of `adam`. The state is `Moments`, its first average None. Raises as
    `sgd` does.

    >>> import fxgrad
    >>> optimizer = fxgrad.optim.rmsprop(0.1, 0.75)
    >>> params, _ = optimizer.update(3.0, optimizer.init(2.0), 2.0)
    >>> round(params, 6)
    1.8
    """
    _check("rmsprop", rate=rate, decay=decay, epsilon=epsilon)

    def step(gradients: Parameters, state: Moments, params: Parameters) -> tuple[Parameters, Moments]:
        second, now = _averages(decay, state.second, tree.map(_square, gradients)), _rate_after(rate, state.count)
        params = tree.map(lambda p, g, s: p - _cast_to(now, p) * g / (_root(s) + _cast_to(epsilon, s)), params,
                          gradients, second)
        return params, Moments(state.count + 1, None, second)

    return _optimizer("rmsprop", lambda params: Moments(0, None, _no_squares(params)), step)


@hide_frames
def lion(rate: Any = 1e-4, beta1: float = 0.9, beta2: float = 0.99, *, weight_decay: float = 0.0) -> Optimizer:
    """Lion (Chen et al., 2023): steps of one size, by the sign of an average of gradients.

    p ← p - rate · (sign(β₁ m + (1 - β₁) g) + weight_decay · p), m ← β₂ m + (1 - β₂) g. The rate is as that of `adam`.
    The state is `Moments`, its second average None. Raises as `sgd` does.

    >>> import fxgrad, numpy as np
    >>> optimizer = fxgrad.optim.lion(0.25)
    >>> params = np.array([2.0, 1.0])
    >>> optimizer.update(np.array([3.0, -1.0]), optimizer.init(params), params)[0]
    array([1.75, 1.25])
    """
    _check("lion", rate=rate, beta1=beta1, beta2=beta2, weight_decay=weight_decay)

    def step(gradients: Parameters, state: Moments, params: Parameters) -> tuple[Parameters, Moments]:
        now, mixed = _rate_after(rate, state.count), _averages(beta1, state.first, gradients)
        params = tree.map(lambda p, c: p - _cast_to(now, p) * (sign(c) + _cast_to(weight_decay, p) * p), params, mixed)
        return params, Moments(state.count + 1, _averages(beta2, state.first, gradients), None)

    return _optimizer("lion", lambda params: Moments(0, _zeros(params), None), step)


@hide_frames
@_with_names
def clip_by_global_norm(gradients: Parameters, limit: Any) -> Parameters:
    """Return the gradients, all divided by one number where their global norm is above `limit`.

    No square overflows, and half precision is added up in float32; the gradients keep their dtypes. A NaN among them
    makes all NaN. Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks" (2013).
    An infinite limit changes nothing, and gradients of integers, of dtype float0, stay as they are. Raises
    `ArgumentError` for a negative limit, and for gradients that are integers.

    >>> import fxgrad, numpy as np
    >>> fxgrad.optim.clip_by_global_norm([np.array([3.0]), np.array([4.0])], 1.0)
    [array([0.6]), array([0.8])]
    """
    _check("clip_by_global_norm", limit=limit)
    arrays = [each for each in tree.leaves(gradients)
              if _has_values("clip_by_global_norm", each) and 0 not in shape_of(each)]
    if not arrays:
        return gradients
    # 1 unless the norm is above the limit, or NaN.
    norm = _norm(arrays)
    factor = where(less_equal(norm, limit), 1.0, divide(limit, norm))
    # In the dtype of the gradient; half precision may not represent the factor.
    return tree.map(lambda g: _cast_to(multiply(widen_half(as_array_operand(g)), factor), g) if _has_values(
        "clip_by_global_norm", g) else g, gradients)


@hide_frames
@_with_names
def clip_by_norm(gradients: Parameters, limit: Any) -> Parameters:
    """Return the gradients with each array divided by a number where its own norm is above `limit`.

    Otherwise as `clip_by_global_norm`.

    >>> import fxgrad, numpy as np
    >>> fxgrad.optim.clip_by_norm([np.array([3.0, 4.0]), np.array([0.5])], 1.0)
    [array([0.6, 0.8]), array([0.5])]
    """
    _check("clip_by_norm", limit=limit)
    return tree.map(lambda g: clip_by_global_norm(g, limit) if _has_values("clip_by_norm", g) else g, gradients)


@hide_frames
@_with_names
def clip(gradients: Parameters, limit: Any) -> Parameters:
    """Return the gradients, each element clipped to [-`limit`, `limit`]; NaN stays.

    Raises as `clip_by_global_norm` does.

    >>> import fxgrad, numpy as np
    >>> fxgrad.optim.clip({"w": np.array([-3.0, 0.5])}, 1.0)
    {'w': array([-1. ,  0.5])}
    """
    _check("clip", limit=limit)
    return tree.map(lambda g: clip_array(g, _cast_to(-limit, g), _cast_to(limit, g)) if _has_values("clip", g) else g,
                    gradients)


def _has_values(what: str, gradient: Any) -> bool:
    """Return False for dtype float0; raise an error for integers and bools."""
    if getattr(gradient, "dtype", None) == float0:
        return False
    dtype = aval_of(gradient).dtype
    if not is_inexact(dtype):
        raise ArgumentError(at_user_line(f"{what}: a gradient has the dtype {dtype}, where floats are needed"))
    return True


def _norm(arrays: Sequence[Any]) -> Any:
    """Return the root of the sum of squares of all elements, slightly above 0 if all are 0.

    The squares are those of ratios to the largest element, so that none overflows; their sum is at least 1.
    """
    wide = [widen_half(as_array_operand(array)) for array in arrays]
    plain = _plain_norm(wide)
    if plain is not None:
        return plain
    sizes = [as_array_operand(absolute(array)) for array in wide]
    peak = functools.reduce(maximum, (stop_gradient(max_of(size)) for size in sizes))
    unit = clip_array(peak, 1e-30, float(finfo(peak.dtype).max))
    total = functools.reduce(add, (sum_of(square(divide(size, unit))) for size in sizes))
    return multiply(unit, sqrt(maximum(total, 0.5)))


def _plain_norm(arrays: Sequence[Any]) -> Any:
    """Return the root of the plain sum of squares; None if a square may be lost, or for dtypes that NumPy lacks."""
    if not all(isinstance(array, np.ndarray) and array.dtype.kind in "fc" for array in arrays):
        return None
    with np.errstate(all="ignore"):
        total = functools.reduce(np.add, [np.vdot(array, array).real for array in arrays])
    limits = np.finfo(total.dtype)
    lost = limits.tiny / limits.eps * sum([array.size for array in arrays])  # by squares that are rounded to 0
    return np.asarray(np.sqrt(total)) if lost < total <= limits.max else None


def linear_schedule(first: float, last: float, steps: int) -> Callable[[Any], Any]:
    """Return the rate as a function of the number of updates: linear from `first` to `last` over `steps`, then `last`.

    Raises `ArgumentError` for less than one step, as the other schedules do.

    >>> import fxgrad
    >>> rate = fxgrad.optim.linear_schedule(1.0, 0.0, 4)
    >>> [float(rate(count)) for count in (0, 1, 4, 9)]
    [1.0, 0.75, 0.0, 0.0]
    """
    _check_steps("linear_schedule", steps)
    return lambda count: first + (last - first) * _progress(count, steps)


def exponential_decay(first: float, steps: int, factor: float) -> Callable[[Any], Any]:
    """Return the rate after a number of updates: `first`, times `factor` for each `steps` updates, smoothly.

    >>> import fxgrad
    >>> rate = fxgrad.optim.exponential_decay(1.0, 2, 0.25)
    >>> [float(rate(count)) for count in (0, 1, 2)]
    [1.0, 0.5, 0.25]
    """
    _check_steps("exponential_decay", steps)
    return lambda count: first * power(factor, divide(count, steps))


def cosine_decay(first: float, steps: int, *, warmup: int = 0, last: float = 0.0) -> Callable[[Any], Any]:
    """Return the rate as a function of the update count: half a cosine from `first` to `last`, reached after `steps`.

    In the first `warmup` of these steps, fewer than all, the rate grows linearly from 0 to `first`. Loshchilov and
    Hutter, 2017.

    >>> import fxgrad
    >>> rate = fxgrad.optim.cosine_decay(1.0, 6, warmup=2)
    >>> [round(float(rate(count)), 4) for count in (0, 1, 2, 4, 6)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    _check_steps("cosine_decay", steps, warmup)

    def rate(count: Any) -> Any:
        fallen = 0.5 - 0.5 * cos(math.pi * _progress(count - warmup, steps - warmup))
        risen = first * _progress(count, warmup) if warmup else first
        return where(count < warmup, risen, first + (last - first) * fallen)

    return rate


def _progress(count: Any, steps: int) -> Any:
    """Return the fraction of the steps that is done, from 0 to 1."""
    return clip_array(divide(count, steps), 0.0, 1.0)


ABSENT = {
    "apply_updates": "optimizer.update(gradients, state, params) returns the new parameters and state: leave it out",
    "chain": "write gradients = fxgrad.optim.clip_by_global_norm(gradients, limit) before optimizer.update, and "
             "weight_decay= of the optimizer",
    "cosine_decay_schedule": "write fxgrad.optim.cosine_decay(rate, steps)",
    "warmup_cosine_decay_schedule": "write fxgrad.optim.cosine_decay(rate, steps, warmup=warmup)",
}
"""Names of optax that are not here, each with what to write."""
__getattr__ = module_getattr("fxgrad.optim", ABSENT, stands_at=__name__)


def _check(what: str, **settings: float) -> None:
    for name, value in settings.items():
        most = 1.0 if name in ("beta1", "beta2", "decay") else math.inf
        is_known = isinstance(value, int | float | np.number)
        is_unknown = hasattr(value, "dtype") or (name == "rate" and callable(value))  # or an array of the user's
        if not (0 <= value < most or (name == "limit" and value == math.inf) if is_known else is_unknown):
            given = repr(value) if isinstance(value, str) else str(value)
            given = given if len(given) <= 60 else f"a {type(value).__name__}"  # of parameters, say
            raise ArgumentError(at_user_line(
                f"{what}: {name} is {given}, where a number from 0{' to below 1' if most == 1 else ' on'} is needed"))


def _check_steps(what: str, steps: int, warmup: int = 0) -> None:
    """Raise an error unless some of the steps come after the warmup; traced numbers are not looked at."""
    if all(isinstance(number, int | float | np.number) for number in (steps, warmup)) and not 0 <= warmup < steps:
        raise ArgumentError(at_user_line(
            f"{what}: steps is {steps}, where a number over {warmup}{', the warmup,' if warmup else ''} is needed"))


def _check_match(what: str, gradients: Parameters, params: Parameters) -> None:
    given: Any = tree.structure(gradients)
    needed: Any = tree.structure(params)
    if given != needed:
        raise ArgumentError(at_user_line(
            f"{what}: the gradients have the structure {given}, the parameters {needed}; they must be the "
            "same. fxgrad.grad gives them so"))
