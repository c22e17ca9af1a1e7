"""`JittedFunction`: the states that a call of a jitted function goes through.

The next state is the first whose condition holds:

    DISPATCH --> RUN       a recent plan fits, no transformation is around, the default dtype is that of the plans
             --> ROUTE     otherwise
    ROUTE    --> (end)     jit is disabled: the function itself runs
             --> (end)     the arguments are traced, an axis is mapped around, or the program has effects in a trace:
                           the call is recorded
             --> CHECK     the program has checks
             --> LOOK UP   otherwise
    LOOK UP  --> RUN       a plan has the key of the call
             --> PLAN      otherwise
    PLAN     --> CHECK     the trace of the first call has checks
             --> RUN       otherwise: take the executable from the store on disk, if there is one, or trace the function
                           unless its trace is known; enter a plan
    CHECK    --> (end)     `CheckedFunction`, whose executable has one more result, says that all checks held: the
                           results; its plans serve DISPATCH from now on
             --> LOOK UP   otherwise: unless the function, run without jit, raises, the executable raises whose checks
                           call Python
    RUN      --> (end)     the executable returns: the results
             --> EXPLAIN   it raises one of `FAILURES`
             --> (end)     otherwise: the error is the user's own
    EXPLAIN  --> (end)     jax's own `disable_jit` is on: the function itself runs
             --> PREPARE   the plan was not prepared for the call (`Need`)
             --> (end)     otherwise: the error is raised with our message
    PREPARE  --> LOOK UP   always: `Executables.prepare_for` has made the transition for the need

DISPATCH is the closure that `dispatching` makes, RUN is `plans.run`, `call` is ROUTE, and `_run` is the loop of the
others. Three signals arrive as errors. `FailedCheckError` leaves a plan, so that a call by a plan costs nothing for it.
`Unprepared` leaves a jax trace. jax's `TypeError` is the one sign of NumPy's random keys inside a container, which the
key of a call does not search. `_unmet_need` alone turns the last two into a `Need`.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from fxgrad.engine import config, tree
from fxgrad.engine.api import stored
from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.api.conversions import (
    chain_conversions,
    convert_arguments,
    has_wide,
    needs_conversion,
    result_conversion,
)
from fxgrad.engine.api.executables import (
    Bound,
    CompiledSignature,
    Executables,
    Need,
    Sharing,
    StoredExecutables,
    Unprepared,
    any_multi_device,
    argument_avals,
    aval_from_jax,
    bind_captured,
    check_jit_enabled,
    emit_call,
    has_wide_outputs,
)
from fxgrad.engine.api.inner_traces import InnerTraces
from fxgrad.engine.api.jit_shardings import JitShardings
from fxgrad.engine.api.jitted_calls import JittedCall
from fxgrad.engine.api.keys import Key, key_of, key_of_leaves
from fxgrad.engine.api.plans import DispatchPlan, DispatchPlans, run
from fxgrad.engine.api.stages import MadeFor, Stage, stage_of
from fxgrad.engine.api.static_arguments import Args, Kwargs, StaticArguments
from fxgrad.engine.api.switches import is_jit_disabled, switched
from fxgrad.engine.config import default_float
from fxgrad.engine.core.avals import Aval, to_numpy
from fxgrad.engine.core.faces import face
from fxgrad.engine.core.program_properties import (
    ProgramAttribute,
    calls_user_code,
    has_effects,
    memoize,
    needs_x64,
)
from fxgrad.engine.dtypes import DType, is_64bit
from fxgrad.engine.executors import failures
from fxgrad.engine.executors.xla import is_jax, is_jax_tracer, x64
from fxgrad.engine.frontend.callback import repeats_a_run
from fxgrad.engine.frontend.flat import TracedCall, leaf_aval, note_result, trace_flat
from fxgrad.engine.higher_order.call import jit_call_p
from fxgrad.engine.higher_order.checks import gather_checks, has_checks, raise_taken
from fxgrad.engine.higher_order.rolling import may_roll, merge_equal_numbers
from fxgrad.engine.store.content import Content, Unknown
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing import observers
from fxgrad.engine.tracing.tape import axes_in_scope, bind, current, innermost_for
from fxgrad.engine.tracing.trace import SHARED, WITH_LITERALS, Mode
from fxgrad.engine.user_lines import function_name
from fxgrad.errors import CheckError, UnsupportedError


class FailedCheckError(Exception):
    """A compiled call returned that a check failed, or a flag that only jax's tracer knows (not `is_known`)."""

    def __init__(self, is_known: bool) -> None:
        super().__init__()
        self.is_known = is_known


FAILURES = ValueError, TypeError, UnsupportedError, *failures.AT_RUN_TIME, Unprepared, FailedCheckError
"""The errors of RUN that lead to EXPLAIN; others are the user's own."""

_FIRST_JITTED_BY: ProgramAttribute[weakref.ref[JittedFunction]] = ProgramAttribute("first jitted by")
_handed_over: ContextVar[tuple[Any, TracedCall] | None] = ContextVar("handed_over", default=None)
"""A jitted function and its trace: PLAN made the trace, and jax requests it in RUN."""
_is_stage: ContextVar[bool] = ContextVar("is_stage", default=False)
"""Whether jax traces for a stage (`lower`, `trace`), and not for a call."""


class JittedFunction:
    """A jitted function: its plans and executables, and the states of its calls."""

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
        self._no_plans = self.plans = DispatchPlans(None)
        self._executables: dict[DType, Executables] = {}
        self._inside = InnerTraces()
        self._checked: CheckedFunction | None = None
        switched.add(self)

    def __reduce__(self) -> Any:
        """Pickle the arguments of `jit`: compiled code is not pickled."""
        *given, options = self._given
        return functools.partial(JittedFunction, **options), tuple(given)

    @property
    def options(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The function itself, and the options that it is jitted with, by name."""
        fun, static_argnums, static_argnames, donate_argnums, donate_argnames, inline, options = self._given
        return fun, {"static_argnums": static_argnums, "static_argnames": static_argnames,
                     "donate_argnums": donate_argnums, "donate_argnames": donate_argnames, "inline": inline, **options}

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Return jax's `Lowered` stage for these arguments (arrays or `ShapeDtypeStruct`s): `as_text`, `compile`."""
        return self._stage("lower", args, kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Return jax's `Traced` stage for these arguments, with the jaxpr of the emitted operations."""
        return self._stage("trace", args, kwargs)

    def _stage(self, name: str, args: Args, kwargs: Kwargs) -> Stage:
        executables = self._current_executables()
        if executables.sharing is Sharing.UNDECIDED:
            executables.sharing = Sharing.OWN  # so that calls use the trace that jax makes here
        executables.looks = True
        self._static.check_hashable(args, kwargs)
        made_for = MadeFor.of(self._fun, self._static, args, kwargs)
        args, kwargs = convert_arguments(args, kwargs)
        to_bind: TracedCall | None = None
        with x64():
            while True:
                try:
                    if to_bind is None:
                        return stage_of(self._stage_of_own(executables, name, args, kwargs), made_for)
                    if self._takes_flag(to_bind):
                        break
                    bound = self._bound(executables, JittedCall(self._static, args, kwargs), to_bind)
                    given, named = self._static.dynamic(args, kwargs)
                    return bound.stage(name, given, named, made_for)
                except Unprepared as unprepared:
                    if unprepared.need is Need.FLAG:
                        break
                    executables.prepare_for(unprepared.need)
                    to_bind = unprepared.traced or to_bind
        self._checked = self._checked or CheckedFunction(self._given, None)
        split = self._static.split(args, kwargs)

        def find_failed(given: Args, named: Kwargs) -> Any:
            positional, keywords = split.arguments(tree.leaves((given, named)))
            return self._find_failed(tuple(positional), keywords)
        return self._checked.flagged_stage(name, args, kwargs, find_failed)

    def _stage_of_own(self, executables: Executables, name: str, args: Args, kwargs: Kwargs) -> Any:
        token = _is_stage.set(True)
        try:
            return getattr(executables.own, name)(*args, **kwargs)
        finally:
            _is_stage.reset(token)

    def clear_cache(self) -> None:
        """Forget all compiled versions."""
        self._executables = {}
        self.plans = self._no_plans
        self._inside.clear()
        self._checked = None

    def interrupt(self) -> None:
        """Send the next call to ROUTE, which checks whether jit is disabled."""
        self.plans = self._no_plans

    # --- the states of a call -----------------------------------------------------------------------------------

    @hide_frames
    def call(self, args: Args, kwargs: Kwargs) -> Any:
        """ROUTE: inside a transformation, of a new kind, under another default dtype, or with jit disabled."""
        if is_jit_disabled():
            return self._fun(*args, **kwargs)
        if current.get() is not None:
            traced, inputs = self._trace_in_transformation(args, kwargs)
            if innermost_for(inputs) is not None or axes_in_scope() or has_effects(traced.program):
                outputs = bind(jit_call_p, *inputs, program=traced.program, name=function_name(self._fun))
                result = tree.unflatten(traced.out_tree, outputs)
                note_result(result)
                return result
        return self._run(args, kwargs) if self._checked is None else self._check(self._checked, args, kwargs)

    @hide_frames
    def failed(self, error: Exception, args: Args, kwargs: Kwargs) -> Any:
        """EXPLAIN, after a RUN from DISPATCH."""
        if self._checked is not None:
            return self._check(self._checked, args, kwargs, error)
        return self._run(args, kwargs, self._unmet_need(error, args, kwargs))

    def _run(self, args: Args, kwargs: Kwargs, need: Need | None = None, with_flag: bool = True) -> Any:
        """Go from LOOK UP, or from PREPARE if there is a `need`, through the states until the call ends.

        Without `with_flag` checks call Python.
        """
        if any(map(is_jax_tracer, tree.leaves((args, kwargs)))):
            inner, inputs = self._trace_in_transformation(args, kwargs)
            outputs = face("in_jax")(inner.program, inputs)
            if outputs is not None:
                return tree.unflatten(inner.out_tree, outputs)
        while True:
            if need is Need.NO_JIT:
                return self._fun(*args, **kwargs)
            executables = self._current_executables()
            if need is Need.CONVERTED_KEYS:  # PREPARE
                # The plan of this call converts its arguments from now on.
                key = self._key(executables, args, kwargs)
                plan = executables.plans.find(key)
                assert plan is not None  # since `_unmet_need` found it
                executables.plans.enter(key, replace(plan, arguments=convert_arguments))
            elif need is not None:
                executables.prepare_for(need)
            self._static.check_hashable(args, kwargs)
            self.plans = executables.plans
            plan, traced = None, None
            if executables.sharing is not Sharing.UNDECIDED:  # LOOK UP
                key = self._key(executables, args, kwargs)
                plan = self._static.look_up(executables.plans.find, key, args, kwargs)
            if plan is None:  # PLAN
                try:
                    plan, traced = self._plan(executables, JittedCall(self._static, args, kwargs))
                except Exception as error:
                    raise_taken(error, lambda: self._fun(*args, **kwargs))
                    raise
                if with_flag and traced is not None and self._takes_flag(traced):
                    self.plans = self._no_plans
                    self._checked = self._checked or CheckedFunction(self._given, traced)
                    return self._check(self._checked, args, kwargs)
            token = _handed_over.set(None if traced is None else (self, traced))
            try:
                return run(plan, args, kwargs)  # RUN
            except FAILURES as error:
                need = self._unmet_need(error, args, kwargs)  # EXPLAIN
            finally:
                _handed_over.reset(token)

    def _takes_flag(self, traced: TracedCall) -> bool:
        """Return whether a program has checks, so that its executable is to say whether they held."""
        return has_checks(traced.program)

    def _check(self, checked: CheckedFunction, args: Args, kwargs: Kwargs, error: Exception | None = None) -> Any:
        """CHECK: without a call of Python unless a check failed; with the `error` of a RUN by a plan of `checked`."""
        try:
            outputs = checked.call(args, kwargs) if error is None else checked.failed(error, args, kwargs)
            self.plans = checked.plans
            return outputs
        except FailedCheckError as failed:
            is_known = failed.is_known
        try:
            return self._find_failed(args, kwargs) if is_known else self._run(args, kwargs, with_flag=False)
        except CheckError as found:
            raise found from None
        finally:
            self.plans = checked.plans

    def _find_failed(self, args: Args, kwargs: Kwargs) -> Any:
        """Raise the error of the first check that fails, or return the results if there is none after all.

        Without jit NumPy stops at that check, and knows the turn of a loop, but cannot run all that XLA can, such as
        branches that devices differ in. Then checks call Python from compiled code. What the compiled code has printed
        is not printed again.
        """
        given, named = tree.map(lambda leaf: to_numpy(leaf) if is_jax(leaf) else leaf, (args, kwargs))
        token = repeats_a_run.set(True)
        try:
            with np.errstate(all="ignore"), contextlib.suppress(UnsupportedError):
                self._fun(*given, **named)
        finally:
            repeats_a_run.reset(token)
        return self._run(args, kwargs, with_flag=False)

    def _unmet_need(self, error: Exception, args: Args, kwargs: Kwargs) -> Need:
        """Return the requirement that the plan lacked, if `error` is due to one; else raise the error explained."""
        if isinstance(error, FailedCheckError):
            raise error
        if isinstance(error, Unprepared):
            return error.need
        if isinstance(error, failures.AT_RUN_TIME):
            found = failures.translate_error(error)
            if found is error and failures.is_out_of_memory(error) and not getattr(error, "__notes__", None):
                call = JittedCall(self._static, args, kwargs)
                program = self._trace(call, argument_avals(call.leaves) or [], SHARED).program
                failures.note_memory(error, program)
            raise found from None
        self._static.explain(args, kwargs, error)
        executables = self._current_executables()
        key = self._key(executables, args, kwargs)
        plan = executables.plans.find(key)
        if plan is not None and plan.arguments is None and not key.is_full and needs_conversion(
                tree.leaves((args, kwargs))):
            return Need.CONVERTED_KEYS
        if self._shardings:
            self._shardings.explain(JittedCall(self._static, args, kwargs))
        raise failures.translate_error(error)

    def _key(self, executables: Executables, args: Args, kwargs: Kwargs) -> Key:
        """Return the key of a call: by its arguments, and by their leaves if the plan depends on them."""
        key = key_of(self._static, args, kwargs)
        by_leaves = executables.sharing in (Sharing.SHARED, Sharing.BOUND) and not key.is_full
        return key_of_leaves(self._static, args, kwargs) if by_leaves else key

    # --- making plans -------------------------------------------------------------------------------------------

    def _plan(self, executables: Executables, call: JittedCall) -> tuple[DispatchPlan, TracedCall | None]:
        """Make the plan of a call; return the trace too, if jax may still request it."""
        avals = argument_avals(call.leaves)
        executables.rolls = executables.rolls and not any_multi_device(call.leaves)
        if avals is None:  # one is invalid: jax raises, if we do not
            self._static.explain(call.args, call.kwargs)
            return self._general_plan(executables, call), None
        if config.executable_store is not None:
            self._prepare_stored(executables, call, avals)
        if executables.sharing is Sharing.UNDECIDED:
            self._shardings.input_shardings(call, avals)
            call.traced = call.traced or self._trace(call, avals, SHARED)
            executables.sharing = self._first_sharing(call, call.traced)
        if executables.sharing is not Sharing.OWN:
            plan = self._shared_plan(executables, call, avals)
            if plan is not None:
                return plan, None
            if executables.sharing is Sharing.SHARED:
                executables.sharing = Sharing.OWN
                executables.forget()
        return self._own_plan(executables, call, avals), call.traced

    def _first_sharing(self, call: JittedCall, traced: TracedCall) -> Sharing:
        """Return the state after UNDECIDED, from the trace of the first call."""
        if any_multi_device(traced.captured):
            return Sharing.BOUND
        if not self._may_share(call, traced):
            return Sharing.OWN
        first = _FIRST_JITTED_BY.of(traced.program) or _FIRST_JITTED_BY.put(traced.program, weakref.ref(self))
        return Sharing.OWN if first() is self else Sharing.SHARED

    def _prepare_stored(self, executables: Executables, call: JittedCall, avals: list[Aval]) -> bool:
        """Have the executable of a call loaded from the store on disk, or made for it; return whether there is one.

        The function is traced if the store has none. The states SHARED and BOUND keep their executables.
        """
        folder = stored.folder_in_use()
        if folder is None or self._shardings or executables.on_meshes or executables.sharing in (
                Sharing.SHARED, Sharing.BOUND):
            return False
        try:
            key = stored.key_of_call(self._fun, self._options, call, avals, Content())
        except Unknown:
            return False
        entry = stored.load(folder, key)
        if entry is None or config.check_level:
            call.traced = call.traced or self._trace(call, avals, SHARED)
            program = call.traced.program
            if executables.sharing is Sharing.UNDECIDED:
                executables.sharing = self._first_sharing(call, call.traced)
            if executables.sharing is not Sharing.OWN or has_effects(program) or calls_user_code(program) or any(
                    map(is_jax_tracer, call.traced.captured)):
                return False
            # A plan of arguments that are not looked at runs in the x64 scope whatever they are.
            scoped = needs_x64(program) or not key_of(self._static, call.args, call.kwargs).is_full
            if not executables.looks and has_wide(call.leaves):
                executables.prepare_for(Need.WIDE_ARGUMENTS)
            try:
                lowered = self._lower_for_store(executables, call, call.traced, scoped)
                if not stored.is_of_one_device(lowered):
                    return False
                if entry is None:
                    entry = stored.store(folder, key, scoped, has_wide_outputs(program), lowered)
                else:
                    stored.check_lowered(self._fun, entry, lowered)
            except FAILURES:
                return False  # without the store there is a message
        executables.sharing = Sharing.OWN
        executables.note(call.signature(avals) if call.is_known_by_key else None, CompiledSignature(
            entry.scoped, entry.is_wide))
        if executables.stored is None:
            executables.stored = StoredExecutables(
                self._static, executables.own, functools.partial(
                    _prepare_later, weakref.ref(self), jax.config.jax_enable_x64))  # type: ignore[attr-defined]
        executables.stored.add(*convert_arguments(call.args, call.kwargs), entry.compiled)
        return True

    def _lower_for_store(self, executables: Executables, call: JittedCall, traced: TracedCall,
                         scoped: bool) -> Any:
        args, kwargs = convert_arguments(call.args, call.kwargs)
        token = _handed_over.set((self, traced))
        try:
            with x64() if scoped else contextlib.nullcontext():
                return executables.own.lower(*args, **kwargs)
        finally:
            _handed_over.reset(token)

    def prepare_stored_for(self, args: Args, kwargs: Kwargs) -> bool:
        """Have the executable of a call with other types prepared, whose plan does not look at them."""
        call = JittedCall(self._static, args, kwargs)
        if needs_conversion(call.leaves):
            return False  # the plan lacks it, and jax, which refuses or traces, leads to one that has it
        avals = argument_avals(call.leaves)
        return avals is not None and self._prepare_stored(self._current_executables(), call, avals)

    def explain_store(self, args: Args, kwargs: Kwargs) -> stored.StoreExplanation:
        """Say whether the store keeps the executable of a call, and why."""
        call = JittedCall(self._static, args, kwargs)
        return stored.explain(self._fun, self._options, call, argument_avals(call.leaves))

    def _own_plan(self, executables: Executables, call: JittedCall, avals: Sequence[Aval]) -> DispatchPlan:
        """Return the plan to call the executable of this function alone."""
        key = self._key(executables, call.args, call.kwargs)
        if not key.is_full:
            return executables.plans.enter(key, self._general_plan(executables, call))
        signature = call.signature(avals)
        compiled = executables.compiled(signature)
        if compiled is None:
            call.traced = call.traced or self._trace(call, avals, WITH_LITERALS)
            program = call.traced.program
            compiled = executables.note(signature, CompiledSignature(needs_x64(program), has_wide_outputs(program)))
        return executables.plans.enter(key, DispatchPlan(
            self._called(executables.called), compiled.scoped,
            convert_arguments if needs_conversion(call.leaves) else None,
            result_conversion(call.leaves) if compiled.is_wide and not self._shardings else None))

    def _general_plan(self, executables: Executables, call: JittedCall) -> DispatchPlan:
        """Return one plan for all calls whose key lacks the types of the arguments."""
        if not executables.looks and has_wide(call.leaves):
            executables.prepare_for(Need.WIDE_ARGUMENTS)  # earlier plans do not look
        arguments = convert_arguments if executables.looks or needs_conversion(call.leaves) else None
        return DispatchPlan(self._called(executables.called), True, arguments, None if self._shardings
                            else executables.outputs.results)

    def _shared_plan(self, executables: Executables, call: JittedCall, avals: Sequence[Aval]) -> DispatchPlan | None:
        """Return the plan to call the executable of the recorded program; None if it may not be shared.

        The first call of a signature puts no value on a device, since most functions that share are called once; the
        plan is entered at the second.
        """
        signature = call.signature(avals)
        bound = self._static.look_up(executables.bound.get, signature, call.args, call.kwargs)
        if bound is not None:
            bound = executables.bound[signature] = bound.on_device()
            key, plan = self._key(executables, call.args, call.kwargs), self._plan_of(bound, call)
            return executables.plans.enter(key, plan) if key.is_full else plan
        if call.traced is None:
            call.traced = self._trace(call, avals, SHARED)
            if not any_multi_device(call.traced.captured) and not self._may_share(call, call.traced):
                return None
        bound = executables.bound[signature] = self._bound(executables, call, call.traced)
        return self._plan_of(bound, call)

    def _bound(self, executables: Executables, call: JittedCall, traced: TracedCall) -> Bound:
        """Return the executable of a trace: that of the program, or one for this function alone."""
        options = None if self._may_share(call, traced) else self._shardings.jit_options(
            self._options, self._static, call)
        return bind_captured(traced, call.split.structure, function_name(self._fun), self._options["inline"],
                             executables.on_meshes, executables.rolls, options)

    def _plan_of(self, bound: Bound, call: JittedCall) -> DispatchPlan:
        arguments = self._static.dynamic if self._static.any else None
        if needs_conversion(call.leaves):
            arguments = convert_arguments if arguments is None else functools.partial(chain_conversions, arguments,
                                                                                      convert_arguments)
        program = bound.program
        return DispatchPlan(self._called(bound.executable), needs_x64(program), arguments,
                    result_conversion(call.leaves) if has_wide_outputs(program) and not self._shardings else None)

    def _called(self, executable: Callable[..., Any]) -> Callable[..., Any]:
        """Return what plans call."""
        return executable

    def _may_share(self, call: JittedCall, traced: TracedCall) -> bool:
        """Return whether the trace is valid for other calls, and its executable for other functions."""
        program, values = traced.program, (*call.leaves, *traced.captured)
        return not (self._own_alone or has_effects(program) or calls_user_code(program) or any(
            map(is_jax_tracer, values)))

    # --- what they are made of ----------------------------------------------------------------------------------

    def _current_executables(self) -> Executables:
        """Return the executables under the current default dtype."""
        default = default_float()
        found = self._executables.get(default)
        if found is None:
            make = functools.partial(_compile_own, weakref.ref(self), self._fun, self._options)
            found = self._executables.setdefault(default, Executables(DispatchPlans(default), make,
                                                                      self._shardings.mesh))
            found.rolls = found.rolls and not self._shardings
        return found

    def trace_for_jax(self, args: Args, kwargs: Kwargs) -> Any:
        """Emit our own trace of the function as `lax` calls: this is what jax traces.

        Raises `Unprepared` if the plan that called jax was not made for this trace.
        """
        call = JittedCall(self._static, args, kwargs)
        check_jit_enabled(call.leaves)
        avals = [*map(aval_from_jax, call.leaves)]
        executables = self._current_executables()
        if not (executables.looks or call.is_known_by_key) and any(
                is_64bit(aval.dtype) and not aval.weak for aval in avals):
            raise Unprepared(Need.WIDE_ARGUMENTS)
        self._shardings.input_shardings(call, avals)
        jitted, traced = _handed_over.get() or (None, None)
        if traced is None or jitted is not self or traced.program.in_avals[traced.program.captured:] != avals:
            traced = self._trace(call, avals, WITH_LITERALS)
        if _is_stage.get() and self._takes_flag(traced):
            raise Unprepared(Need.FLAG)
        if any_multi_device(traced.captured):
            raise Unprepared(Need.CAPTURED_AS_ARGUMENTS, traced)
        program, captured, out_tree = traced[:3]
        self._shardings.output_shardings(out_tree, program.out_avals)
        self._current_executables().note(call.signature(avals) if call.is_flat else None, CompiledSignature(
            jax.config.jax_enable_x64, has_wide_outputs(program)))  # type: ignore[attr-defined]
        return tree.unflatten(out_tree, emit_call(
            program, captured, call.leaves, on_meshes=executables.on_meshes, rolls=executables.rolls))

    def _trace(self, call: JittedCall, avals: Sequence[Aval], mode: Mode, *, inside: bool = False) -> TracedCall:
        def function(*leaves: Any) -> Any:
            if inside:
                leaves = (*self._shardings.inputs_held(call, leaves),)
            args, kwargs = call.split.arguments(leaves)
            outputs = self._fun(*args, **kwargs)
            return self._shardings.outputs_held(outputs) if inside else outputs
        if observers.observers:
            call.avals = avals
            traced: TracedCall = observers.run_observed(self, call, lambda: trace_flat(
                function, avals, "jit", self._fun, mode=mode, names=call.leaf_names))
        else:
            traced = trace_flat(function, avals, "jit", self._fun, mode=mode, names=call.leaf_names)
        if inside or not may_roll(traced.program):
            return traced
        program, captured = merge_equal_numbers(traced.program, traced.captured)
        return traced._replace(program=program, captured=captured)

    @property
    def function(self) -> Callable[..., Any]:
        """The user's function."""
        return self._fun

    def call_of(self, args: Args, kwargs: Kwargs) -> JittedCall:
        """Split up a call with these arguments."""
        return JittedCall(self._static, args, kwargs)

    def _trace_in_transformation(self, args: Args, kwargs: Kwargs) -> tuple[TracedCall, list[Any]]:
        """Return the trace within a transformation, and all inputs of its program, some of which may be tracers."""
        call = JittedCall(self._static, args, kwargs)
        avals = []
        for index, leaf in enumerate(call.leaves):
            aval = leaf_aval(leaf)
            if aval is None:
                raise self._static.leaf_error(leaf, call.leaf_names()[index], kwargs)
            avals.append(aval)
        traced = self._inside.of(call, avals, functools.partial(self._trace, call, avals, inside=bool(self._shardings)))
        return traced, [*traced.captured, *call.leaves]


class CheckedFunction(JittedFunction):
    """A jitted function with one flag for its checks: calls by its plans raise `FailedCheckError` if one failed.

    Its executables return a pair, the results and whether all checks held. They leave arguments that may be donated as
    they are, since a second run needs them.
    """

    def __init__(self, given: tuple[Any, ...], traced: TracedCall | None) -> None:
        fun, static_argnums, static_argnames, _, _, inline, options = given
        self._of_results = JitShardings(fun, None, options["out_shardings"])
        if options["out_shardings"] is not None:
            options = {**options, "out_shardings": (options["out_shardings"], None)}
        super().__init__(fun, static_argnums, static_argnames, None, None, inline, **options)
        self._first: TracedCall | None = traced

    def _takes_flag(self, traced: TracedCall) -> bool:  # noqa: ARG002  (its program has no check that calls Python)
        return False

    def flagged_stage(self, name: str, args: Args, kwargs: Kwargs, find_failed: Callable[[Args, Kwargs], Any]) -> Stage:
        """Return a stage whose compiled code returns the results alone, or those of `find_failed`."""
        return self._stage(name, args, kwargs).with_flag(find_failed)

    def _called(self, executable: Callable[..., Any]) -> Callable[..., Any]:
        def flagged(*args: Any, **kwargs: Any) -> Any:
            outputs, held = executable(*args, **kwargs)
            try:
                holds = memoryview(held)[()]  # two thirds of the time of np.asarray, a twelfth of that of bool(held)
            except (TypeError, ValueError, BufferError):  # not in this process's memory, or a tracer
                holds = _holds_elsewhere(held)
            if holds:
                return outputs
            raise FailedCheckError(is_known=True)
        return flagged

    def _prepare_stored(self, *_: Any) -> bool:
        return False  # the store knows executables by the user's function alone

    def _trace(self, call: JittedCall, avals: Sequence[Aval], mode: Mode, *, inside: bool = False) -> TracedCall:
        traced, self._first = self._first, None  # the trace that showed the checks
        if traced is None or traced.program.in_avals[traced.program.captured:] != avals:
            traced = super()._trace(call, avals, mode, inside=inside)
        self._of_results.output_shardings(traced.out_tree, traced.program.out_avals)  # raises if they do not fit
        pair = tree.structure((tree.unflatten(traced.out_tree, range(traced.out_tree.num_leaves)), True))
        gathered, count = gather_checks(traced.program, is_final=True), traced.program.captured
        program = memoize(gathered, ("captured", count), lambda: gathered.replace(captured=count))
        return TracedCall(program, traced.captured, pair)


def _holds_elsewhere(held: Any) -> bool:
    """Return a flag that lies on other devices."""
    try:
        return bool(np.asarray(held))
    except jax.errors.TracerArrayConversionError:
        raise FailedCheckError(is_known=False) from None


def dispatching(state: JittedFunction, fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the signature of `fun` that runs calls by a recent plan, and else by their state."""
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
            except FAILURES as error:
                __tracebackhide__ = True
                return state.failed(error, args, kwargs)
        __tracebackhide__ = True
        return state.call(args, kwargs)
    return call


def _prepare_later(state: weakref.ref[JittedFunction], x64_mode: bool, args: Args, kwargs: Kwargs) -> bool:
    """Prepare a call from within the scope of a plan, in the x64 mode that plans are made in."""
    jitted = state()
    with jax.enable_x64(x64_mode):
        return jitted is not None and jitted.prepare_stored_for(args, kwargs)


def _compile_own(state: weakref.ref[JittedFunction], fun: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Compile a function for itself alone; the result is freed when the user drops the function."""
    @transformation("jit", fun)  # with the signature of the function, which jax reads for names
    def trace_for_jax(*args: Any, **kwargs: Any) -> Any:
        jitted = state()
        assert jitted is not None  # the caller holds it
        return jitted.trace_for_jax(args, kwargs)

    return jax.jit(trace_for_jax, **options)
