"""Reverse mode: `grad`, `value_and_grad`, `vjp`, `linear_transpose`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import config, dtypes, tree
from fxgrad.engine.api.argument_names import Argnames, by_names
from fxgrad.engine.api.arguments import (
    ONE_LEAF,
    Argnums,
    Aux,
    Selected,
    bind_selected,
    check_differentiable,
    gradient_leaf,
    leaf_avals,
    match_trees,
    select_arguments,
    tangent_leaf,
    transformation,
)
from fxgrad.engine.api.inner_arguments import with_respect_to
from fxgrad.engine.api.pullbacks import LongPullback, Pullback, PullbackSpec
from fxgrad.engine.core import backends
from fxgrad.engine.core.arrays import as_numpy
from fxgrad.engine.core.avals import Aval, without_literals
from fxgrad.engine.core.program import Equation, Program, inner_first
from fxgrad.engine.core.program_properties import calls_user_code
from fxgrad.engine.core.regions import dependent_within
from fxgrad.engine.derivation.derive import Derived
from fxgrad.engine.derivation.guards import memoize_guarded
from fxgrad.engine.executors import direct
from fxgrad.engine.executors.xla import is_jax
from fxgrad.engine.frontend.flat import (
    LEAF,
    TracedCall,
    Transformation,
    argument_aval,
    finish_trace,
    function_origin,
    note_result,
    nth_name,
    plain_outside,
    record_flat,
    refuse_repeated_effects,
    trace_flat,
)
from fxgrad.engine.higher_order.custom import has_backward_rules
from fxgrad.engine.higher_order.safe_call import map_inside_safe_call, without_safe_calls
from fxgrad.engine.higher_order.saving import kept_always
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.rematerialization.operation import call_within
from fxgrad.engine.tracebacks import hide_frames, shorten_traceback
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.tape import Tape, aval_of, current
from fxgrad.engine.tracing.trace import SELECTIVE, SHARED, TraceRootCache, is_tracing, join_unchecked_vma, new_tape
from fxgrad.engine.transforms.forward import has_tangent, slope_program
from fxgrad.engine.transforms.joint import grad_program
from fxgrad.engine.transforms.linearize import linearize_program, transpose_linear
from fxgrad.engine.transparency.plan import MISS
from fxgrad.engine.transparency.replays import MAX_REPLAYS, Replays, Run, begin_run, direct_call
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.units import parse_bytes
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, DTypeError, LinearityError

Budget = int | float | str | None
"""Bytes, or text such as "512 MiB"."""


def grad(fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
         allow_int: bool = False, memory_budget: Budget = None, *, argnames: Argnames | None = None,
         wrt: Any = None) -> Callable[..., Any]:
    """Return the function that computes the gradient of `fun`, by reverse mode.

    `fun` returns a scalar (shape `()`, real floating; complex with `holomorphic`), or with `has_aux` a pair of a scalar
    and any auxiliary output. `argnums` (an int, or a sequence of ints) selects the positional arguments to
    differentiate, `argnames` (a name, or a sequence of names) those passed by position or keyword under these names;
    each is an array, a number, or a container of them. The gradient has the structure, shapes and dtypes
    of those arguments; integer ones, with `allow_int`, get zeros of dtype float0. With `has_aux` the result is a pair
    (gradient, aux). For complex arguments of a real function the convention is jax's. With a `memory_budget` (bytes, or
    text such as "512 MiB") values are recomputed in the backward pass instead of saved, as few as possible, so that
    those live at once beside arguments and results fit the budget (docs/appendix/memory-budgets.md).

    `wrt` differentiates with respect to values inside `fun` in place of arguments: a path, such as "block3.h", or a
    container of paths, in which the gradient is returned. Paths are those of `fxgrad.capture`.

    Raises `ArgumentError` if the output is not a scalar, `argnums` does not fit or no plan fits the memory budget,
    `DTypeError` for integer arguments without `allow_int`.

    >>> import numpy as np, fxgrad
    >>> def loss(w):
    ...     return np.sum(np.sin(w) * w)
    >>> fxgrad.grad(loss)(np.array([0.0, 1.0]))
    array([0.        , 1.38177329])
    >>> def model(x):
    ...     h = np.sin(x)
    ...     return h * h
    >>> float(fxgrad.grad(model, wrt="h")(np.pi / 2))
    2.0
    """
    if wrt is not None:
        return with_respect_to("grad", fun, wrt, argnums, lambda function, zeros: grad(
            function, 0, has_aux, holomorphic, allow_int, memory_budget)(zeros), argnames=argnames)
    if argnames is not None:
        return by_names("grad", grad, fun, argnames, argnums, has_aux=has_aux, holomorphic=holomorphic,
                        allow_int=allow_int, memory_budget=memory_budget)
    return gradient_for("grad", fun, argnums, has_aux, holomorphic, allow_int, memory_budget)


def gradient_for(what: str, fun: Callable[..., Any], argnums: Argnums, has_aux: bool = False, holomorphic: bool = False,
                 allow_int: bool = False, memory_budget: Budget = None) -> Callable[..., Any]:
    """Return `grad(fun)` for a function of the library that errors are to name."""
    differentiation = Differentiation(what, fun, argnums, has_aux, holomorphic, allow_int, memory_budget)
    differentiate, replays = differentiation.differentiate, differentiation.replays

    @transformation("grad", fun, argnums)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        for replay in replays:
            replayed = replay(args, kwargs)
            if replayed is not MISS:
                return replayed
        try:
            _, result, aux = differentiate(args, kwargs)
        except Exception as error:  # noqa: BLE001  (raised again)
            __tracebackhide__ = True
            raise shorten_traceback(error)  # noqa: B904
        if current.get() is not None:
            note_result((result, aux) if has_aux else result)
        return (result, aux) if has_aux else result
    return gradient


def value_and_grad(fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
                   allow_int: bool = False, memory_budget: Budget = None, *, argnames: Argnames | None = None,
                   wrt: Any = None) -> Callable[..., Any]:
    """Return the function that computes `(fun(...), gradient)`, sharing the forward work; arguments as for `grad`.

    With `has_aux` the result is `((value, aux), gradient)`.

    >>> import fxgrad
    >>> value, slope = fxgrad.value_and_grad(lambda x: x ** 3)(2.0)
    >>> float(value), float(slope)
    (8.0, 12.0)
    """
    if wrt is not None:
        return with_respect_to("value_and_grad", fun, wrt, argnums, lambda function, zeros: value_and_grad(
            function, 0, has_aux, holomorphic, allow_int, memory_budget)(zeros), argnames=argnames)
    if argnames is not None:
        return by_names("value_and_grad", value_and_grad, fun, argnames, argnums, has_aux=has_aux,
                        holomorphic=holomorphic, allow_int=allow_int, memory_budget=memory_budget)
    differentiation = Differentiation("value_and_grad", fun, argnums, has_aux, holomorphic, allow_int, memory_budget)
    differentiate, replays = differentiation.differentiate, differentiation.replays

    @transformation("value_and_grad", fun, argnums)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        for replay in replays:
            replayed = replay(args, kwargs)
            if replayed is not MISS:
                return replayed
        try:
            value, result, aux = differentiate(args, kwargs)
        except Exception as error:  # noqa: BLE001  (raised again)
            __tracebackhide__ = True
            raise shorten_traceback(error)  # noqa: B904
        if current.get() is not None:
            note_result(((value, aux), result) if has_aux else (value, result))
        return ((value, aux), result) if has_aux else (value, result)
    return value_and_gradient


def _same_digits(one: Any, other: Any) -> bool:
    """Return whether arrays of one type have the same bits, or differ by no more than roundings.

    Two arrays of different layouts are added up in different orders, in sums as in products: half of the digits of the
    largest element are compared.
    """
    one, other = np.asarray(one), np.asarray(other)
    if one.tobytes() == other.tobytes():
        return True
    if not dtypes.is_inexact(other.dtype):
        return False
    tolerance = float(dtypes.finfo(other.dtype).eps) ** 0.5
    one, other = (value.astype(np.complex128) for value in (one, other))
    largest = np.max(np.abs(other), where=np.isfinite(other), initial=0)
    return np.allclose(one, other, rtol=0, atol=tolerance * largest, equal_nan=True)


class Differentiation:
    """`grad` or `value_and_grad` (`what`) of one function."""

    __slots__ = ("_allow_int", "_argnums", "_beginnings", "_budget", "_fun", "_has_aux", "_holomorphic",
                 "_is_of_gradient", "_is_plain", "_key", "_of_method", "_safe", "_what", "_with_value", "replays")

    replays: list[Callable[[tuple[Any, ...], dict[str, Any]], Any]]
    """Functions for calls that need not run the user's function, the last one made first; each may return `MISS`."""

    def __init__(self, what: str, fun: Callable[..., Any], argnums: Argnums, has_aux: bool = False,
                 holomorphic: bool = False, allow_int: bool = False, memory_budget: Budget = None) -> None:
        self._budget = None if memory_budget is None else parse_bytes(f"{what}: memory_budget", memory_budget)
        # To differentiate a safe function, record the function itself: no call within a call.
        self._safe = _safe_info(fun)
        fun = fun if self._safe is None else self._safe.function
        self._what, self._fun, self._argnums, self._has_aux = what, fun, argnums, has_aux
        self._holomorphic, self._allow_int, self._with_value = holomorphic, allow_int, what == "value_and_grad"
        self._key = "value_and_grad", holomorphic, self._with_value or has_aux, self._budget
        # Within a safe function record everything: an operation executed at once would not be safe. A budget also
        # covers values computed from other arguments.
        self._beginnings = TraceRootCache(fun, staging=self._safe is not None or self._budget is not None)
        is_plain = self._safe is None and self._budget is None and not (has_aux or holomorphic or allow_int)
        self._is_plain = is_plain
        made = getattr(fun, "transformed", None)
        self._is_of_gradient = self._budget is None and type(made) is Transformation and made.what == "grad" and (
            getattr(fun, "__wrapped__", None) is made.function)  # other wrappers copy the attribute
        self.replays = []
        self._of_method = Replays(fun) if type(fun) in (MethodType, partial) else None

    @property
    def differentiate(self) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, Any, Any]]:
        """The function from a call's arguments to the value (None for `grad`), the gradient and auxiliary output."""
        return self._differentiate if self._safe is None else self._safely

    def _safely(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        assert self._safe is not None
        with rewrite_before_derivatives(self._safe.after(before_derivatives.get())):
            return self._differentiate(args, kwargs)

    def _differentiate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        what, fun = self._what, self._fun
        selected = select_arguments(what, fun, self._argnums, args)
        avals = leaf_avals(what, selected)
        rewriting = before_derivatives.get()
        run = None if not self._is_plain or rewriting is not None else begin_run(
            fun, selected.positions, selected.structure, avals, args, kwargs, self._of_method)
        if run is not None and run.traced is not None:
            return self._replay_run(run, avals, selected)
        tape = self._tape(selected, avals)
        leaves, out_tree, aux = _record_differentiated(tape, what, fun, self._has_aux, args, kwargs, selected)
        if run is not None:
            run.end(tape, leaves, out_tree)
        # Everything derived from the recording is cached at the node where the recording ends.
        place = (self._key, rewriting, leaves[0].variable) if (
            out_tree is LEAF and tape.is_plain(leaves[0])) else None
        found: Derived | None = tape.cache_get(place)
        forced: Sequence[Any] = ()
        if found is None or (found.guards and not found.is_valid):
            call = _finish_differentiated(tape, leaves, out_tree)
            at_once = self._directly(call, avals, selected)
            if at_once is not None:
                return self._results(*at_once, avals, selected, aux)
            found, forced = self._derive_joint(call, avals)
            if self._safe is not None and tape.parent is None:
                found = without_safe_calls(found)
            if place is not None and not found.captures_tracers:
                tape.cache_put(place, found)
        inputs = [*plain_outside(tape.captured), *selected.leaves, *(plain_outside(forced) if forced else ())]
        return self._run(found, inputs, len(leaves), avals, selected, aux)

    def trace(self, selected: Selected, avals: Sequence[Aval], args: tuple[Any, ...], kwargs: dict[str, Any],
              ) -> TracedCall | None:
        """Return the trace of a gradient: the program that is kept with that of the function.

        None where a recording of the gradient would be another program: see `keeps_derivatives`, and for functions
        with options.
        """
        what, fun = self._what, self._fun
        if not (self._is_plain and keeps_derivatives(avals)):
            return None
        run = begin_run(fun, selected.positions, selected.structure, avals, args, kwargs, self._of_method)
        if run is not None and run.traced is not None:
            call = run.traced
        else:
            tape = self._tape(selected, avals)
            leaves, out_tree, _ = _record_differentiated(tape, what, fun, False, args, kwargs, selected)
            if run is not None:
                run.end(tape, leaves, out_tree)
            call = _finish_differentiated(tape, leaves, out_tree)
        # Values that were computed to choose a path depend on the arguments: the program computes them again.
        found, _ = self._derive_joint(call._replace(computed=0, forced=[]), avals)
        return call.of_derived(found, LEAF if selected.single and selected.structure is ONE_LEAF else tree.structure(
            selected.rebuild(selected.leaves)))

    def _replay_run(self, run: Run, avals: Sequence[Aval], selected: Selected) -> tuple[Any, Any, Any]:
        """Return the results of a call that is not run; later calls of its kind need fewer steps."""
        call, is_outermost = run.traced, current.get() is None
        assert call is not None
        at_once = self._directly(call, avals, selected)
        if at_once is not None:
            return self._results(*at_once, avals, selected, None)
        found, _ = self._derive_joint(call, avals)
        if is_outermost and not found.guards and not found.captures_tracers and all(map(has_tangent, avals)):
            assert run.replay is not None
            direct_one = direct_call(run.replay, found.program, found.captured, int(self._with_value), selected.single,
                                     selected.leaves, call.captured, before_derivatives.get)
            self.replays[:] = [direct_one, *self.replays][:MAX_REPLAYS]
        return self._run(found, call.inputs(*selected.leaves), 1, avals, selected, None)

    def _run(self, found: Derived, inputs: Sequence[Any], values: int, avals: Sequence[Aval], selected: Selected,
             aux: Aux | None) -> tuple[Any, Any, Any]:
        """Return the results of the joint program, whose first outputs are so many `values` if they are wanted."""
        outputs = apply_program(found.program, [*found.captured, *inputs])
        if current.get() is not None:  # the function around recorded the derivative
            outputs = without_literals(outputs)
        count = values if self._key[2] else 0
        return self._results(outputs[:count], outputs[count:] if count else outputs, avals, selected, aux)

    def _directly(self, call: TracedCall, avals: Sequence[Aval], selected: Selected,
                  ) -> tuple[list[Any], list[Any]] | None:
        """Return outputs and gradients by running a program that is new, or too long to derive one from; else None."""
        inputs = call.inputs(*selected.leaves)
        if current.get() is not None or self._budget is not None or backends.is_replaced() or any(
                map(is_jax, inputs)):
            return None
        _check_scalar(self._what, self._fun, call, self._holomorphic)
        wrt = call.wrt([*map(has_tangent, avals)])
        is_long = len(call.program.equations) >= direct.LONG
        if not is_long and self._has_slope(call.program, wrt, call.computed):
            return None
        results = direct.gradients(call.program, wrt, inputs, call.computed)
        if config.check_level and results is not None and not is_long and not any(
                kept_always.of(equation.primitive) for equation in call.program.equations):
            self._check_direct(results, call, avals, inputs)
        return results

    def _check_direct(self, results: tuple[list[Any], list[Any]], call: TracedCall, avals: Sequence[Aval],
                      inputs: Sequence[Any]) -> None:
        """Raise `AssertionError` unless the gradient program computes the same, up to roundings."""
        outputs, gradients = results
        found, _ = self._derive_joint(call, avals)
        expected = apply_program(found.program, [*found.captured, *inputs])
        for value, wanted in zip([*(outputs if self._key[2] else ()), *gradients], expected, strict=True):
            if aval_of(value) != aval_of(wanted) or not _same_digits(as_numpy(value), as_numpy(wanted)):
                raise AssertionError(
                    f"{self._what} of {function_name(self._fun)} is {value} if its equations run directly, and "
                    f"{wanted} by its gradient program; this is a bug in the rules of an operation")

    def _results(self, outputs: list[Any], gradients: list[Any], avals: Sequence[Aval], selected: Selected,
                 aux: Aux | None) -> tuple[Any, Any, Any]:
        if len(gradients) < len(avals):
            remaining = iter(gradients)
            gradients = [gradient_leaf(next(remaining) if has_tangent(aval) else None, aval) for aval in avals]
        return (outputs[0] if self._with_value else None, selected.rebuild(gradients),
                aux.restore(outputs[1:]) if aux is not None else None)

    def _tape(self, selected: Selected, avals: Sequence[Aval]) -> Tape:
        """Return a tape for a call with these arguments; raise `DTypeError` if they are not differentiable."""
        key = avals[0] if selected.structure is ONE_LEAF else (selected.structure, *avals)
        tape = self._beginnings.tape(key, selected.leaves, selected.names)
        if tape is None:
            check_differentiable(self._what, selected, avals, holomorphic=self._holomorphic, allow_int=self._allow_int)
            tape = tape_with_values(self._fun, selected, avals, self._budget is not None)
            self._beginnings.add(key, tape)
        return tape

    def _derive_joint(self, traced: TracedCall, avals: Sequence[Aval]) -> tuple[Derived, Sequence[Any]]:
        """Return the joint program of the trace, and its extra inputs beside the captured values and arguments."""
        if self._budget is not None:
            traced = plan_within_budget(self._what, self._fun, traced, self._budget)
        program, _, out_tree, computed, forced = traced
        key = (*self._key, self._is_of_gradient, computed, out_tree)

        def make(_: Any) -> Derived:
            _check_scalar(self._what, self._fun, traced, self._holomorphic)
            wrt = traced.wrt([has_tangent(aval) for aval in avals])
            if self._has_slope(program, wrt, computed):
                return slope_program(program, wrt, self._key[2])
            return grad_program(program, wrt, self._key[2], computed)

        return memoize_guarded(program, key, make, lambda derived: not derived.captures_tracers), forced


    def _has_slope(self, program: Program, wrt: Sequence[bool], computed: int) -> bool:
        """Return whether to take the slope of a gradient in forward mode: it is one number by one number.

        The equations of nested reverse modes double with each order, those of forward mode are added. A first
        derivative is taken in reverse mode all the same, as that of any other function, and so is that of a program
        with rules for reverse mode alone.
        """
        moving = list(itertools.compress(program.in_avals, wrt))
        return self._is_of_gradient and not computed and len(moving) == len(program.out_avals) == 1 and (
            moving[0].shape == () and moving[0].strong() == program.out_avals[0].strong()
            and dtypes.is_floating(moving[0].dtype)
            and not calls_user_code(program) and not has_backward_rules(program))


def plan_within_budget(what: str, fun: Callable[..., Any], traced: TracedCall, budget: int) -> TracedCall:
    """Return the traced function as one call whose derivative is planned within `budget` bytes."""
    refuse_repeated_effects(traced, what)
    program = map_inside_safe_call(traced.program, lambda inner: call_within(inner, function_name(fun), budget))
    return traced._replace(program=program, computed=0, forced=[])


class SafeInfo(NamedTuple):
    """The content of the attribute `safe` that marks a function made by `fxgrad.nan_safe`."""

    function: Callable[..., Any]
    after: Callable[[Any], Callable[[TracedCall], TracedCall]]
    """Composes a rewrite of the traces around the function with the function's own rewrite of the traces inside."""


def _safe_info(fun: Callable[..., Any]) -> SafeInfo | None:
    """Return the `SafeInfo` of a function made by `fxgrad.nan_safe`; wrappers copy its attributes, and do not count."""
    found: SafeInfo | None = getattr(fun, "safe", None)
    made = getattr(fun, "transformed", None)
    is_itself = type(found) is SafeInfo and made is not None and made.what == "nan_safe" and (
        getattr(fun, "__wrapped__", None) is made.function is found.function)
    return found if is_itself else None


def tape_with_values(fun: Callable[..., Any], selected: Selected, avals: Sequence[Aval], whole: bool = False) -> Tape:
    """Return a tape for a call of `fun` with known values of the selected arguments.

    If the trace is rewritten before it is differentiated, or recorded as a `whole`, the tape records all operations,
    whether or not they depend on the inputs.
    """
    mode = SHARED if whole or before_derivatives.get() is not None else SELECTIVE
    return new_tape(join_unchecked_vma(avals), mode=mode, values=selected.leaves, name=fun, input_names=selected.names,
                    origin=function_origin(fun))


def trace_differentiated(what: str, fun: Callable[..., Any], has_aux: bool, args: tuple[Any, ...],
                         kwargs: dict[str, Any], selected: Selected, avals: Sequence[Aval], whole: bool = False,
                         ) -> tuple[TracedCall, Aux | None]:
    """Trace a call with known values; traced auxiliary leaves become further outputs of the program.

    For `whole` see `tape_with_values`.
    """
    run = None if whole or has_aux or before_derivatives.get() is not None else begin_run(
        fun, selected.positions, selected.structure, avals, args, kwargs)
    if run is not None and run.traced is not None:
        return run.traced, None
    tape = tape_with_values(fun, selected, avals, whole)
    leaves, out_tree, aux = _record_differentiated(tape, what, fun, has_aux, args, kwargs, selected)
    if run is not None:
        run.end(tape, leaves, out_tree)
    return _finish_differentiated(tape, leaves, out_tree), aux


TraceRewrite = Callable[[TracedCall], TracedCall]
before_derivatives: ContextVar[TraceRewrite | None] = ContextVar("before_derivatives", default=None)
"""Rewrites a trace before it is differentiated, within a function that is rewritten as a whole."""


@contextmanager
def rewrite_before_derivatives(rewrite: TraceRewrite | None) -> Iterator[None]:
    """Within the block rewrite each trace before it is differentiated; `rewrite` returns a trace, possibly the same."""
    token = before_derivatives.set(rewrite)
    try:
        yield
    finally:
        before_derivatives.reset(token)


def keeps_derivatives(avals: Sequence[Aval]) -> bool:
    """Return whether the derivative that is kept with a program may stand for a recording of it.

    It may not within other traces, which may be displayed, in a function that is rewritten, and for integers.
    """
    return current.get() is None and before_derivatives.get() is None and all(map(has_tangent, avals))


def _finish_differentiated(tape: Tape, leaves: Sequence[Any], out_tree: TreeDef) -> TracedCall:
    """Close the tape and return the trace to differentiate."""
    traced = finish_trace(tape, leaves, out_tree)
    rewriting = before_derivatives.get()
    return traced if rewriting is None else rewriting(traced)


def _record_differentiated(tape: Tape, what: str, fun: Callable[..., Any], has_aux: bool, args: tuple[Any, ...],
                           kwargs: dict[str, Any], selected: Selected) -> tuple[list[Any], TreeDef, Aux | None]:
    """Record a call on `tape`; return the leaves of the output and of the auxiliary output, and the output's tree."""
    call = bind_selected(fun, args, kwargs, selected)
    if not has_aux:
        return *record_flat(tape, call, what, fun), None
    aux = Aux()
    leaves, _ = record_flat(tape, aux.apart(what, fun, call, (args, kwargs)), what, fun)
    return leaves, aux.out_tree, aux



def _check_scalar(what: str, fun: Any, traced: TracedCall, holomorphic: bool) -> None:
    if traced.out_tree is LEAF and not holomorphic:
        aval = traced.program.outputs[0].aval
        if not aval.shape and aval.dtype.kind == "f":
            return  # as nearly always
    name = function_name(fun)
    if traced.out_tree == tree.structure(None):
        raise ArgumentError(at_user_line(
            f"{what} needs a function that returns one scalar, and {name} returned None. Return the scalar; a return "
            "may be missing"))
    if traced.out_tree != LEAF:
        raise ArgumentError(at_user_line(
            f"{what} needs a function that returns one scalar, and {name} returned a container "
            f"({traced.out_tree}). Return the scalar alone; has_aux=True allows (scalar, anything)"))
    aval = traced.program.out_avals[0]
    if aval.shape:
        raise ArgumentError(at_user_line(
            f"{what} needs a function with a scalar output, and {name} returned {aval.strong()}. "
            f"Sum or average it, {what}(lambda x: np.sum({name}(x)))" + (
                ", or use jacrev for all derivatives" if what in ("grad", "value_and_grad") else "")))
    if not dtypes.is_inexact(aval.dtype):
        raise DTypeError(at_user_line(
            f"{what} needs a function with a floating-point output, and {name} returned {aval.strong()}, "
            "which has no derivative. Leave out the comparison or the conversion to integers"))
    if dtypes.is_complex(aval.dtype) != holomorphic:
        wanted, cure = (("complex", "leave out holomorphic=True") if holomorphic else
                        ("real", "pass holomorphic=True, or take np.real of the output"))
        raise DTypeError(at_user_line(
            f"{what} with holomorphic={holomorphic} needs a {wanted} output, and {name} returned {aval.strong()}; "
            f"{cure}"))


@hide_frames
def vjp(fun: Callable[..., Any], *primals: Any, argnums: Argnums | None = None, has_aux: bool = False,
        memory_budget: Budget = None, wrt: Any = None) -> Any:
    """Return `fun(*primals)` and its pullback: `(output, pullback)`, or `(output, pullback, aux)` with `has_aux`.

    `pullback(cotangent)` takes a container like the output and returns the tuple of the primals' cotangents
    (with an int `argnums`, that argument's alone). It may be called any number of times.
    Integer primals get zeros of dtype float0. For `memory_budget` see `grad`; here a value may be computed again by
    each call of the pullback. With `wrt`, as in `grad`, the pullback returns cotangents of values inside `fun`.

    >>> import numpy as np, fxgrad
    >>> output, pullback = fxgrad.vjp(lambda x, y: x * y, 2.0, 5.0)
    >>> [float(cotangent) for cotangent in pullback(1.0)]
    [5.0, 2.0]
    """
    if wrt is not None:
        return with_respect_to("vjp", fun, wrt, argnums, lambda function, zeros: vjp(
            function, zeros, argnums=0, has_aux=has_aux, memory_budget=memory_budget), compiled=False)(*primals)
    transformation("vjp", fun)
    numbers = tuple(range(len(primals))) if argnums is None else argnums
    selected = select_arguments("vjp", fun, numbers, primals)
    avals = leaf_avals("vjp", selected)
    traced, aux = trace_differentiated("vjp", fun, has_aux, primals, {}, selected, avals, memory_budget is not None)
    if memory_budget is not None:
        traced = plan_within_budget("vjp", fun, traced, parse_bytes("vjp: memory_budget", memory_budget))
    marks = traced.wrt([has_tangent(aval) for aval in avals])
    main, count = traced.out_tree.num_leaves, len(traced.program.outputs)
    rebuilt = selected.structure, selected.positions, selected.single
    form = PullbackSpec(function_name(fun), rebuilt, tuple(avals), traced.out_tree, tuple(traced.program.out_avals))
    eager = _eager_vjp(traced, selected.leaves, marks)
    pullback: Pullback | LongPullback
    if eager is not None:
        values, pullback = eager.outputs, LongPullback(form, eager, traced.program, marks)
    else:
        derived = linearize_program(traced.program, marks, traced.computed)
        values = without_literals(derived(traced.inputs(*selected.leaves, *plain_outside(traced.forced))))
        pullback = Pullback(values[count:], (form, derived.extra))
    output = tree.unflatten(traced.out_tree, values[:main])
    note_result((output,))  # the first of what is returned
    return (output, pullback) if aux is None else (output, pullback, aux.restore(values[main:count]))


def _eager_vjp(traced: TracedCall, leaves: Sequence[Any], wrt: Sequence[bool]) -> direct.EagerVjp | None:
    """Run a long program equation by equation, and save its residuals; None for a short or traced one."""
    inputs = traced.inputs(*leaves)
    if is_tracing() or len(traced.program.equations) < direct.LONG or any(map(is_jax, inputs)):
        return None
    return direct.eager_vjp(traced.program, wrt, inputs, traced.computed)


@hide_frames
def linear_transpose(fun: Callable[..., Any], *primals: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return the transpose of a linear function: it maps a cotangent like its output to a tuple like `primals`.

    `primals` give shapes and dtypes only (arrays, numbers or `ShapeDtypeStruct`s). Raises `LinearityError` if `fun` is
    not zero at zero, and, when called, if it turns out not to be linear otherwise.

    >>> import numpy as np, fxgrad
    >>> transposed = fxgrad.linear_transpose(lambda x: 3.0 * x, np.float32(0))
    >>> float(transposed(np.float32(2))[0])
    6.0
    """
    transformation("linear_transpose", fun)
    selected = select_arguments("linear_transpose", fun, tuple(range(len(primals))), primals)
    avals = [argument_aval(leaf, "linear_transpose", nth_name(selected.names, index))
             for index, leaf in enumerate(selected.leaves)]
    traced = trace_flat(bind_selected(fun, primals, {}, selected), avals, "linear_transpose", fun, names=selected.names)

    _refuse_affine(fun, traced)

    @hide_frames
    def transpose(cotangent: Any) -> tuple[Any, ...]:
        leaves = match_trees("linear_transpose", "the output", traced.out_tree, "the cotangent", cotangent)
        given = [tangent_leaf("linear_transpose", leaf, aval, lambda: "the output", "cotangent", whole=True)
                 for leaf, aval in zip(leaves, traced.program.out_avals, strict=True)]
        results = without_literals(transpose_linear(traced.program, traced.wrt())(
            traced.inputs(*map(instantiate_zeros, given))))
        arguments: tuple[Any, ...] = tree.unflatten(selected.structure, results)
        return arguments
    return transpose


def _refuse_affine(fun: Any, traced: TracedCall) -> None:
    """Raise `LinearityError` if the function adds a constant, shown by its value at zero if that can be computed."""
    program = traced.program
    if is_tracing() or _depends_in_condition(program, traced.wrt()):
        return
    at_zero = apply_program(program, traced.inputs(*(
        np.zeros(var.aval.shape, var.aval.dtype) for var in program.inputs[program.captured:])))
    for value in at_zero:
        if np.any((np.asarray(value) != 0) & (np.asarray(value) == np.asarray(value))):  # a NaN proves nothing
            raise LinearityError(at_user_line(
                f"linear_transpose: {function_name(fun)} is not linear: it is not zero at zero. Leave out what it "
                "adds, or use vjp, which linearizes first"))


def _depends_in_condition(program: Program, marks: Sequence[bool]) -> bool:
    """Return whether the condition of a while loop depends on marked inputs, so that the loop may not end at zero."""
    asked = {id(equation) for each in inner_first(program) for holder in each.equations for region in holder.regions
             if region.role == "condition" for inner in inner_first(region.program) for equation in inner.equations}
    found: list[Equation] = []

    def visit(equation: Equation) -> None:
        if id(equation) in asked:
            found.append(equation)

    if asked:
        dependent_within(program, marks, visit)
    return bool(found)
