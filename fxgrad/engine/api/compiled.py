"""Compilation: `jit`, on jax's own dispatch, cache, static arguments and donation."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast

import jax

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.api.conversions import any_to_convert, chained, converted, holds_wide, results_for
from fxgrad.engine.api.executables import (
    UNFORESEEN,
    Bound,
    Executables,
    OutdatedPlan,
    SpreadClosure,
    argument_avals,
    aval_from_jax,
    bind_captured,
    emit_call,
    has_wide_outputs,
    lie_spread,
)
from fxgrad.engine.api.inner_traces import InnerTraces
from fxgrad.engine.api.jit_shardings import JitShardings
from fxgrad.engine.api.jitted_calls import JittedCall
from fxgrad.engine.api.keys import Key, is_jax_tracer, key_of, key_of_leaves
from fxgrad.engine.api.plans import Plan, Plans, run
from fxgrad.engine.api.stages import MadeFor, stage_of
from fxgrad.engine.api.static_arguments import Args, Kwargs, StaticArguments
from fxgrad.engine.api.switches import Jitted, is_disabled, switched
from fxgrad.engine.config import default_float
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.facts import consults, has_effects, needs_x64
from fxgrad.engine.dtypes import DType, is_64bit
from fxgrad.engine.executors import failures
from fxgrad.engine.executors.explicit import ExplicitAxes
from fxgrad.engine.executors.xla import x64
from fxgrad.engine.frontend.flat import Traced, leaf_aval, trace_flat
from fxgrad.engine.higher_order.call import jit_call_p
from fxgrad.engine.tracebacks import boundary
from fxgrad.engine.tracing import watched
from fxgrad.engine.tracing.tape import axes_in_scope, bind, current, innermost_for
from fxgrad.engine.tracing.trace import SHARED, WRITTEN, Mode
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, UnsupportedError


def jit(fun: Callable[..., Any] | None = None, *, in_shardings: Any = None, out_shardings: Any = None,
        static_argnums: int | Sequence[int] | None = None, static_argnames: str | Iterable[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None, donate_argnames: str | Iterable[str] | None = None,
        inline: bool = False, keep_unused: bool = False, compiler_options: dict[str, Any] | None = None) -> Any:
    """`fun` compiled by XLA, once for every combination of shapes, dtypes and static arguments.

    Arguments are arrays, numbers, or containers of them; those named static are any hashable Python values, and `fun`
    is compiled anew for each of their values. Donated arguments give their memory to the outputs, where the
    platform can. float64 and int64 arguments keep their dtype. The outputs are `jax.Array`s; but those of 64 bits are
    `fxgrad.Array`s (read-only; they share XLA's memory) if no argument is a `jax.Array` and jax's x64 mode is off, for
    its operators would narrow them. What is made of Python's numbers alone gives way to arrays as they do.
    `lower(*args)` and `trace(*args)` are jax's. Inside other transformations the call is recorded and stays compiled.

    `in_shardings` and `out_shardings` say how positional arguments and results lie on a mesh: one sharding of jax's for
    all, or a container of them that is a prefix of the arguments, or of the output; None leaves it to what comes, or to
    XLA. Results are `jax.Array`s then. Inside other transformations they are constraints on the values.

    Without `fun` it is a decorator, `@jit(static_argnums=0)`. `compiler_options` are XLA's, by name.

    A function made anew at every call, such as a lambda in a loop, is traced anew, and compiled anew only where it
    records other operations than the one before; what it closes over makes no difference.

    Raises `ArgumentError` for unhashable static arguments and for shardings that are none or do not fit containers,
    `ShapeError` where they do not fit shapes, `ConcretizationError` where `fun` asks for values.

    >>> import numpy as np, fxgrad
    >>> fast = fxgrad.jit(lambda x: np.sum(x * 2.0))
    >>> float(fast(np.array([1.0, 2.0])))
    6.0
    """
    if fun is None:
        return functools.partial(jit, in_shardings=in_shardings, out_shardings=out_shardings,
                                 static_argnums=static_argnums, static_argnames=static_argnames,
                                 donate_argnums=donate_argnums, donate_argnames=donate_argnames, inline=inline,
                                 keep_unused=keep_unused, compiler_options=compiler_options)
    state = _JittedFunction(fun, static_argnums, static_argnames, donate_argnums, donate_argnames, inline,
                            keep_unused=keep_unused, compiler_options=compiler_options, in_shardings=in_shardings,
                            out_shardings=out_shardings)

    # A function with attributes, since Python calls it faster than an object.
    @transformation("jit", fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        plans = state.plans
        if current.get() is None and default_float() is plans.default:
            try:
                for plan in plans.recent:
                    if plan.fits(args, kwargs):
                        if plan.scoped or plan.arguments is not None:
                            return run(plan, args, kwargs)
                        return plan.executable(*args, **kwargs) if kwargs else plan.executable(*args)
            except REFUSALS as error:
                return state.refused(error, args, kwargs)
        return state.call(args, kwargs)

    jitted = cast(Jitted, call)
    jitted.lower, jitted.trace, jitted.clear_cache = (  # type: ignore[method-assign]
        state.lower, state.trace, state.clear_cache)
    return jitted


REFUSALS = ValueError, TypeError, UnsupportedError, *failures.AT_RUN_TIME, *UNFORESEEN
"""What a call may end in that is looked at again: for another plan, or for another message."""

_handed_over: ContextVar[tuple[Any, Traced] | None] = ContextVar("handed_over", default=None)
"""A jitted function and its trace, made before jax asks for it in the same call."""


class _JittedFunction:
    """A jitted function: its plans, and what they are made of."""

    def __init__(self, fun: Callable[..., Any], static_argnums: Any, static_argnames: Any, donate_argnums: Any,
                 donate_argnames: Any, inline: bool, **options: Any) -> None:
        self._given = fun, static_argnums, static_argnames, donate_argnums, donate_argnames, inline, options
        self._fun = fun
        self._shardings = JitShardings(fun, options["in_shardings"], options["out_shardings"])
        self._static = StaticArguments(fun, static_argnums, static_argnames)
        self._options = {"static_argnums": static_argnums, "static_argnames": tuple(sorted(self._static.names)),
                         "donate_argnums": donate_argnums, "donate_argnames": donate_argnames, "inline": inline,
                         **{name: option for name, option in options.items() if option is not None}}
        self._own_alone = donate_argnums is not None or donate_argnames is not None or bool(
            self._shardings or options["keep_unused"] or options["compiler_options"])
        self._no_plans = self.plans = Plans(None)
        self._executables: dict[DType, Executables] = {}
        self._inside = InnerTraces()
        switched.add(self)

    def __reduce__(self) -> Any:
        """What it was made of: compiled code stays here."""
        *given, options = self._given
        return functools.partial(_JittedFunction, **options), tuple(given)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """jax's `Lowered` stage for these arguments (arrays or `ShapeDtypeStruct`s): `as_text()`, `compile()`."""
        return self._stage("lower", args, kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """jax's `Traced` stage for these arguments, with the jaxpr of the emitted operations."""
        return self._stage("trace", args, kwargs)

    def _stage(self, name: str, args: Args, kwargs: Kwargs) -> Any:
        executables = self._of_default()
        if executables.shares is None:
            executables.shares = False  # so that calls use what jax traces here
        executables.looks = True
        self._static.check_hashable(args, kwargs)
        made_for = MadeFor.of(self._fun, self._static, args, kwargs)
        args, kwargs = converted(args, kwargs)
        with x64():
            try:
                return stage_of(getattr(executables.own, name)(*args, **kwargs), made_for)
            except ExplicitAxes as error:
                executables.prepare_for(error)
                return stage_of(getattr(executables.own, name)(*args, **kwargs), made_for)
            except SpreadClosure as error:
                executables.prepare_for(error)
                bound = self._bound(executables, JittedCall(self._static, args, kwargs), error.traced)
                given, named = self._static.dynamic(args, kwargs)
                return bound.stage(name, given, named, made_for)

    def clear_cache(self) -> None:
        """Forgets all compiled versions."""
        self._executables = {}
        self.plans = self._no_plans
        self._inside.clear()

    def interrupt(self) -> None:
        """Has the next call ask whether jit is disabled."""
        self.plans = self._no_plans

    # --- calls without a plan at hand -------------------------------------------------------------------------

    @boundary
    def call(self, args: Args, kwargs: Kwargs) -> Any:
        """A call inside a transformation, or of a new kind, or under another default dtype, or with jit disabled."""
        if is_disabled():
            return self._fun(*args, **kwargs)
        if current.get() is not None:
            traced, inputs = self._recorded(args, kwargs)
            if innermost_for(inputs) is not None or axes_in_scope() or has_effects(traced.program):
                outputs = bind(jit_call_p, *inputs, program=traced.program, name=function_name(self._fun))
                return tree.unflatten(traced.out_tree, outputs)
        return self._run(args, kwargs)

    def _run(self, args: Args, kwargs: Kwargs) -> Any:
        """Looks up the plan of a call, or makes it, and runs it."""
        self._static.check_hashable(args, kwargs)
        executables = self._of_default()
        self.plans = executables.plans
        plan, traced = None, None
        if executables.shares is not None:
            key = self._key(executables, args, kwargs)
            plan = self._static.looked_up(executables.plans.find, key, args, kwargs)
        if plan is None:
            plan, traced = self._plan(executables, JittedCall(self._static, args, kwargs))
        token = _handed_over.set(None if traced is None else (self, traced))
        try:
            return run(plan, args, kwargs)
        except REFUSALS as error:
            return self.refused(error, args, kwargs)
        finally:
            _handed_over.reset(token)

    @boundary
    def refused(self, error: Exception, args: Args, kwargs: Kwargs) -> Any:
        """Raises the error in which a call ended, in our words if it can.

        Those that are `UNFORESEEN` say that the plan was wrong, and there is another; and so does jax's for NumPy's
        random keys in containers, into which the key of a call does not look.
        """
        executables = self._of_default()
        if isinstance(error, UNFORESEEN):
            executables.prepare_for(error)
            return self._run(args, kwargs)
        if isinstance(error, failures.AT_RUN_TIME):
            raise self._at_run_time(error, args, kwargs) from None
        self._static.explain(args, kwargs, error)
        key = self._key(executables, args, kwargs)
        plan = executables.plans.find(key)
        if plan is not None and plan.arguments is None and not key.is_full and any_to_convert(
                tree.leaves((args, kwargs))):
            executables.plans.enter(key, replace(plan, arguments=converted))
            return self._run(args, kwargs)
        if self._shardings:
            self._shardings.explain(JittedCall(self._static, args, kwargs))
        raise failures.told(error)

    def _at_run_time(self, error: Exception, args: Args, kwargs: Kwargs) -> BaseException:
        """What is raised where the compiled program failed with `error`."""
        found = failures.told(error)
        if found is error and failures.is_out_of_memory(error) and not getattr(error, "__notes__", None):
            call = JittedCall(self._static, args, kwargs)
            program = self._trace(call, argument_avals(call.leaves) or [], SHARED).program
            failures.note_memory(error, program)
        return found

    def _key(self, executables: Executables, args: Args, kwargs: Kwargs) -> Key:
        """The key of a call: by its arguments, and by their leaves if the plan depends on them."""
        key = key_of(self._static, args, kwargs)
        return key if key.is_full or not executables.shares else key_of_leaves(self._static, args, kwargs)

    # --- making plans -------------------------------------------------------------------------------------------

    def _plan(self, executables: Executables, call: JittedCall) -> tuple[Plan, Traced | None]:
        """The plan of a call, and what the function recorded for it, if jax may still ask for that."""
        avals = argument_avals(call.leaves)
        if avals is None:  # jax is to say what is wrong with one of them, if we do not
            self._static.explain(call.args, call.kwargs)
            return self._general_plan(executables, call), None
        if executables.shares is None:
            self._shardings.of_inputs(call, avals)
            traced = call.traced = self._trace(call, avals, SHARED)
            executables.binds = lie_spread(traced.captured)
            executables.shares = executables.binds or (self._may_share(call, traced) and traced.program.memo.setdefault(
                "jitted by", weakref.ref(self))() is not self)
        if executables.shares:
            plan = self._shared_plan(executables, call, avals)
            if plan is not None:
                return plan, None
            if not executables.binds:
                executables.shares = False
                executables.forget()
        return self._own_plan(executables, call, avals), call.traced

    def _own_plan(self, executables: Executables, call: JittedCall, avals: Sequence[Aval]) -> Plan:
        """To call what is compiled for this function alone."""
        key = self._key(executables, call.args, call.kwargs)
        if not key.is_full:
            return executables.plans.enter(key, self._general_plan(executables, call))
        signature = call.signature(avals)
        facts = executables.facts(signature)
        if facts is None:
            call.traced = call.traced or self._trace(call, avals, WRITTEN)
            program = call.traced.program
            facts = executables.note(signature, program, scoped=needs_x64(program))
        return executables.plans.enter(key, Plan(
            executables.called, facts.scoped, converted if any_to_convert(call.leaves) else None,
            results_for(call.leaves) if facts.is_wide and not self._shardings else None))

    def _general_plan(self, executables: Executables, call: JittedCall) -> Plan:
        """The same, for all calls whose key does not say what the arguments are."""
        executables.looks = executables.looks or holds_wide(call.leaves)
        arguments = converted if executables.looks or any_to_convert(call.leaves) else None
        return Plan(executables.called, True, arguments, None if self._shardings else executables.outputs.results)

    def _shared_plan(self, executables: Executables, call: JittedCall, avals: Sequence[Aval]) -> Plan | None:
        """To call the executable of the program that the function records; None if no other function may.

        The first call of its signature puts no value on a device, since most that share are called once; the plan is
        entered at the second.
        """
        signature = call.signature(avals)
        bound = self._static.looked_up(executables.bound.get, signature, call.args, call.kwargs)
        if bound is not None:
            bound = executables.bound[signature] = bound.on_device()
            key, plan = self._key(executables, call.args, call.kwargs), self._plan_of(bound, call)
            return executables.plans.enter(key, plan) if key.is_full else plan
        if call.traced is None:
            call.traced = self._trace(call, avals, SHARED)
            if not lie_spread(call.traced.captured) and not self._may_share(call, call.traced):
                return None
        bound = executables.bound[signature] = self._bound(executables, call, call.traced)
        return self._plan_of(bound, call)

    def _bound(self, executables: Executables, call: JittedCall, traced: Traced) -> Bound:
        """The executable of what was traced: that of the program, or one for this function alone."""
        options = None if self._may_share(call, traced) else self._shardings.behind_captured(
            self._options, self._static, call)
        return bind_captured(traced, call.split.structure, function_name(self._fun), self._options["inline"],
                             executables.on_meshes, options)

    def _plan_of(self, bound: Bound, call: JittedCall) -> Plan:
        arguments = self._static.dynamic if self._static.any else None
        if any_to_convert(call.leaves):
            arguments = converted if arguments is None else functools.partial(chained, arguments, converted)
        program = bound.program
        return Plan(bound.executable, needs_x64(program), arguments,
                    results_for(call.leaves) if has_wide_outputs(program) and not self._shardings else None)

    def _may_share(self, call: JittedCall, traced: Traced) -> bool:
        """Whether what was traced is right for other calls, and its executable for other functions."""
        return not self._own_alone and not has_effects(traced.program) and not consults(traced.program) and not any(
            map(is_jax_tracer, (*call.leaves, *traced.captured)))

    # --- what they are made of ----------------------------------------------------------------------------------

    def _of_default(self) -> Executables:
        """What there is under the default dtype at hand."""
        default = default_float()
        found = self._executables.get(default)
        if found is None:
            make = functools.partial(_own, weakref.ref(self), self._fun, self._options)
            found = self._executables.setdefault(default, Executables(Plans(default), make, self._shardings.mesh))
        return found

    def trace_for_jax(self, args: Args, kwargs: Kwargs) -> Any:
        """What jax traces: our own trace of the function, emitted as `lax` calls."""
        call = JittedCall(self._static, args, kwargs)
        avals = [*map(aval_from_jax, call.leaves)]
        executables = self._of_default()
        if not (executables.looks or call.is_known_by_key) and any(
                is_64bit(aval.dtype) and not aval.weak for aval in avals):
            executables.looks = True
            raise OutdatedPlan
        self._shardings.of_inputs(call, avals)
        jitted, traced = _handed_over.get() or (None, None)
        if traced is None or jitted is not self or traced.program.in_avals[traced.program.captured:] != avals:
            traced = self._trace(call, avals, WRITTEN)
        if lie_spread(traced.captured):
            raise SpreadClosure(traced)
        program, captured, out_tree = traced[:3]
        self._shardings.of_outputs(out_tree, program.out_avals)
        self._of_default().note(call.signature(avals) if call.is_flat else None, program,
                                scoped=jax.config.jax_enable_x64)  # type: ignore[attr-defined]
        return tree.unflatten(out_tree, emit_call(
            program, captured, call.leaves, on_meshes=self._of_default().on_meshes))

    def _trace(self, call: JittedCall, avals: Sequence[Aval], mode: Mode, *, inside: bool = False) -> Traced:
        def function(*leaves: Any) -> Any:
            if inside:
                leaves = (*self._shardings.inputs_held(call, leaves),)
            args, kwargs = call.split.arguments(leaves)
            outputs = self._fun(*args, **kwargs)
            return self._shardings.outputs_held(outputs) if inside else outputs
        if watched.watchers:
            call.avals = avals
            traced: Traced = watched.traced(self, call, lambda: trace_flat(
                function, avals, "jit", self._fun, mode=mode, names=call.leaf_names))
            return traced
        return trace_flat(function, avals, "jit", self._fun, mode=mode, names=call.leaf_names)

    @property
    def function(self) -> Callable[..., Any]:
        """The user's function."""
        return self._fun

    def call_of(self, args: Args, kwargs: Kwargs) -> JittedCall:
        """A call with these arguments, taken apart."""
        return JittedCall(self._static, args, kwargs)

    def _recorded(self, args: Args, kwargs: Kwargs) -> tuple[Traced, list[Any]]:
        """The trace within a transformation, and all inputs of its program: what it closed over may be a tracer."""
        call = JittedCall(self._static, args, kwargs)
        avals = []
        for index, leaf in enumerate(call.leaves):
            aval = leaf_aval(leaf)
            if aval is None:
                raise ArgumentError(at_user_line(
                    f"jit: {call.leaf_names()[index]} is a {type(leaf).__name__}, where an array "
                    "or a number is needed. Make the argument static with static_argnums"))
            avals.append(aval)
        traced = self._inside.of(call, avals, functools.partial(self._trace, call, avals, inside=bool(self._shardings)))
        return traced, [*traced.captured, *call.leaves]


def _own(state: weakref.ref[_JittedFunction], fun: Callable[..., Any], options: dict[str, Any]) -> Any:
    """What jax compiles for a function alone; it dies when the user drops the function."""
    @transformation("jit", fun)  # with the signature of the function, in which jax looks for names
    def trace_for_jax(*args: Any, **kwargs: Any) -> Any:
        jitted = state()
        assert jitted is not None  # for who calls this holds it
        return jitted.trace_for_jax(args, kwargs)

    return jax.jit(trace_for_jax, **options)
