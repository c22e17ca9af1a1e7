"""Compilation: `jit`, on jax's own dispatch, cache, static arguments and donation."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, cast

import jax
import numpy as np

from fxgrad import tree
from fxgrad.api.arguments import transformation
from fxgrad.api.executables import (
    Bound,
    BySignature,
    Executable,
    KeysConverted,
    KeysMet,
    OtherSignature,
    Stage,
    Unprepared,
    WideMet,
    argument_avals,
    aval_from_jax,
    bind_captured,
    computed,
    is_jax_tracer,
    like_arguments,
)
from fxgrad.api.inner_traces import InnerTraces
from fxgrad.api.static_arguments import Split, StaticArguments
from fxgrad.api.switches import Jitted, is_disabled, switched
from fxgrad.config import default_float
from fxgrad.control.call import jit_call_p
from fxgrad.core.avals import Aval, keys_to_jax
from fxgrad.core.facts import consults, has_effects, needs_x64
from fxgrad.core.recording import SHARED, WRITTEN, Mode
from fxgrad.core.tape import axes_in_scope, bind, current, innermost_for
from fxgrad.dtypes import DType, is_64bit
from fxgrad.errors import ArgumentError, UnsupportedError, at_user_line, function_name
from fxgrad.executors.xla import idle_scopes, x64
from fxgrad.frontend.flat import Traced, leaf_aval, trace_flat
from fxgrad.tracebacks import boundary


def jit(fun: Callable[..., Any] | None = None, *, static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Iterable[str] | None = None, donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Iterable[str] | None = None, inline: bool = False,
        keep_unused: bool = False, compiler_options: dict[str, Any] | None = None) -> Any:
    """`fun` compiled by XLA, once for every combination of shapes, dtypes and static arguments.

    Arguments are arrays, numbers, or containers of them; those named static are any hashable Python values, and `fun`
    is compiled anew for each of their values. Donated arguments give their memory to the outputs, where the
    platform can. float64 and int64 arguments keep their dtype. The outputs are `jax.Array`s; but those of 64 bits are
    NumPy's (read-only, where they share XLA's memory) if no argument is a `jax.Array` and jax's x64 mode is off, for
    its operators would narrow them. `lower(*args)` and `trace(*args)` are jax's. Inside other transformations the call
    is recorded and stays compiled.

    Without `fun` it is a decorator, `@jit(static_argnums=0)`. `compiler_options` are XLA's, by name.

    A function made anew at every call, such as a lambda in a loop, is traced anew, and compiled anew only where it
    records other operations than the one before; what it closes over makes no difference.

    Raises `ArgumentError` for unhashable static arguments, `ConcretizationError` where `fun` asks for values.

    >>> import numpy as np, fxgrad
    >>> fast = fxgrad.jit(lambda x: np.sum(x * 2.0))
    >>> float(fast(np.array([1.0, 2.0])))
    6.0
    """
    if fun is None:
        return functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames,
                                 donate_argnums=donate_argnums, donate_argnames=donate_argnames, inline=inline,
                                 keep_unused=keep_unused, compiler_options=compiler_options)
    state = _State(fun, static_argnums, static_argnames, donate_argnums, donate_argnames, inline,
                   keep_unused=keep_unused, compiler_options=compiler_options)
    static = state.static

    # A function with attributes, since Python calls it faster than an object.
    @transformation("jit", fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        version = state.version
        if current.get() is not None or default_float() is not version.default:
            return state.call(args, kwargs)
        scope = None
        try:
            if not _needs_scope(version.narrow, static, args, kwargs):
                return version.executable(*args, **kwargs) if kwargs else version.executable(*args)
            try:
                scope = idle_scopes.pop()  # used again, since making one takes as long as entering it
            except IndexError:
                scope = x64()
            with scope:
                outputs = version.executable(*args, **kwargs)
            return like_arguments(outputs, args, kwargs) if state.wide else outputs
        except Unprepared as unprepared:
            reason = type(unprepared)
        except (ValueError, TypeError, UnsupportedError):
            reason = state.explained(version, args, kwargs)
        finally:
            if scope is not None:
                idle_scopes.append(scope)
        return state.call_again(reason, version, args, kwargs)

    jitted = cast(Jitted, call)
    jitted.lower, jitted.trace, jitted.clear_cache = (  # type: ignore[method-assign]
        state.lower, state.trace, state.clear_cache)
    return jitted


class _Version:
    """What a jitted function calls under one default dtype.

    `own` is the executable of its own. `by_signature` has what it shares with other functions, if it does, and `only`
    the one thing that it shares while all arguments were of one kind. `narrow` are the types of arguments with which
    nothing of 64 bits is computed, as far as is known, so that calls need no x64 scope.
    """

    __slots__ = ("by_signature", "default", "executable", "given_keys", "narrow", "only", "own")

    def __init__(self, default: DType | None) -> None:
        self.default = default
        self.own: Any = None
        self.only: Bound | None = None
        self.by_signature: BySignature | None = None
        self.executable: Executable = _nothing
        self.given_keys = False
        self.narrow: frozenset[Any] = frozenset()

    def use(self, executable: Executable) -> None:
        """Calls `executable` from now on."""
        self.executable = KeysConverted(executable) if self.given_keys else executable


_NARROW_DTYPES: frozenset[Any] = frozenset(map(np.dtype, (
    "bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32", "complex64")))
_NARROW_TYPES = frozenset({bool, *(dtype.type for dtype in _NARROW_DTYPES)})
"""Python's other numbers are of 64 bits."""


def _needs_scope(narrow: frozenset[Any], static: StaticArguments, args: tuple[Any, ...], kwargs: dict[str, Any],
                 ) -> bool:
    """Whether a call is to be made in the x64 scope: not if all arguments are of the types `narrow`, or NumPy arrays of
    at most 32 bits. (jax's own arrays keep their dtype without a scope, so that the trace may look at it.)
    """
    if narrow and len(args) <= _FEW:
        for arg in static.dynamic(args) if static.any else args:
            if type(arg) not in narrow and (type(arg) is not np.ndarray or arg.dtype not in _NARROW_DTYPES):
                break
        else:
            for name in kwargs:
                if name not in static.names:
                    break
            else:
                return False
    return not jax.config.jax_enable_x64  # type: ignore[attr-defined]


_FEW = 12
"""To look at more arguments than these takes longer than to enter the scope."""


def _nothing(*_: Any, **__: Any) -> Any:
    raise AssertionError("nothing is prepared; this is a bug in fxgrad")


_NO_VERSION = _Version(None)
_handed_over: ContextVar[tuple[Any, Traced] | None] = ContextVar("handed_over", default=None)
"""A jitted function and its trace, made before jax asks for it in the same call."""


class _State:
    """What a jitted function knows of its calls."""

    def __init__(self, fun: Callable[..., Any], static_argnums: Any, static_argnames: Any, donate_argnums: Any,
                 donate_argnames: Any, inline: bool, **options: Any) -> None:
        self._given = fun, static_argnums, static_argnames, donate_argnums, donate_argnames, inline, options
        self._fun = fun
        self.static = StaticArguments(fun, static_argnums, static_argnames)
        self._options = {"static_argnums": static_argnums, "static_argnames": tuple(sorted(self.static.names)),
                         "donate_argnums": donate_argnums, "donate_argnames": donate_argnames, "inline": inline,
                         **{name: option for name, option in options.items() if option}}
        self._own_alone = donate_argnums is not None or donate_argnames is not None or any(options.values())
        self.version = _NO_VERSION
        switched.add(self)
        self._versions: dict[DType, _Version] = {}
        self._inside = InnerTraces(self.static)
        self.wide = False  # whether any output so far was of 64 bits

    def __reduce__(self) -> Any:
        """What it was made of: compiled code stays here."""
        *given, options = self._given
        return functools.partial(_State, **options), tuple(given)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """jax's `Lowered` stage for these arguments (arrays or `ShapeDtypeStruct`s): `as_text()`, `compile()`."""
        return self._stage("lower", args, kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """jax's `Traced` stage for these arguments, with the jaxpr of the emitted operations."""
        return self._stage("trace", args, kwargs)

    def clear_cache(self) -> None:
        """Forgets all compiled versions."""
        for version in self._versions.values():
            if version.own is not None:
                version.own.clear_cache()
        self.version = _NO_VERSION
        self._versions = {}
        self._inside.clear()

    def interrupt(self) -> None:
        """Has the next call ask whether jit is disabled."""
        self.version = _NO_VERSION

    # --- calls that are not as those before -------------------------------------------------------------

    @boundary
    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call inside a transformation, or the first one under this default dtype, or while jit is disabled."""
        if is_disabled():
            return self._fun(*args, **kwargs)
        if current.get() is not None:
            traced, inputs = self._recorded(args, kwargs)
            if innermost_for(inputs) is not None or axes_in_scope() or has_effects(traced.program):
                outputs = bind(jit_call_p, *inputs, program=traced.program, name=function_name(self._fun))
                return tree.unflatten(traced.out_tree, outputs)
        default = default_float()
        version = self._versions.get(default)
        if version is not None:
            if version.only is not None:
                version.use(version.only.settled())
            self.version = version
            return self._run(version, args, kwargs)
        version = _Version(default)
        traced_first = self._prepare(version, args, kwargs)
        self._versions[default] = version
        if version.only is None:
            self.version = version
        token = _handed_over.set(None if traced_first is None else (self, traced_first))
        try:
            return self._run(version, args, kwargs)
        finally:
            _handed_over.reset(token)

    def _run(self, version: _Version, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            scoped = _needs_scope(version.narrow, self.static, args, kwargs)
            with x64(scoped):
                outputs = version.executable(*args, **kwargs)
            return like_arguments(outputs, args, kwargs) if scoped and self.wide else outputs
        except Unprepared as unprepared:
            reason = type(unprepared)
        except (ValueError, TypeError, UnsupportedError):
            reason = self.explained(version, args, kwargs)
        return self.call_again(reason, version, args, kwargs)

    @boundary
    def call_again(self, reason: type[Unprepared], version: _Version, args: tuple[Any, ...], kwargs: dict[str, Any],
                    ) -> Any:
        """A call that what was prepared did not fit."""
        if reason is OtherSignature:
            self._add_signature(version, args, kwargs)
        elif reason is WideMet:
            version.narrow = frozenset()
        elif reason is KeysMet:
            version.given_keys = True
            version.use(version.executable)
        return self._run(version, args, kwargs)

    @boundary
    def explained(self, version: _Version, args: tuple[Any, ...], kwargs: dict[str, Any]) -> type[Unprepared]:
        """Called where jax raised an error: what there is to prepare, or raises the error, in our words if it can."""
        if not version.given_keys and _given_keys(args, kwargs):
            return KeysMet
        self.static.explain(args, kwargs)
        raise  # noqa: PLE0704  (the error under way)

    # --- which executable ---------------------------------------------------------------------------------

    def _prepare(self, version: _Version, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced | None:
        """Chooses the executable for the first call: that of the program, if another function recorded it before.

        Returns the trace of the function if it is still of use.
        """
        version.given_keys = _given_keys(args, kwargs)
        split = self.static.split(args, kwargs)
        avals = argument_avals(split.leaves)
        traced = None
        if avals is not None:
            traced = self._traced(split, avals, args, kwargs)
            if not (needs_x64(traced.program) or version.given_keys):
                version.narrow = _NARROW_TYPES.union(type(leaf) for leaf in split.leaves if isinstance(leaf, jax.Array)
                                                     and not is_jax_tracer(leaf))
            if self._may_share(split, traced):
                owner = traced.program.memo.setdefault("jitted by", weakref.ref(self))()
                if owner is not self:
                    self._share(version, split, avals, traced, args, kwargs)
        if version.by_signature is None:
            self._use_own(version)
        return traced

    def _may_share(self, split: Split, traced: Traced) -> bool:
        """Whether what was traced is right for other calls, and its executable for other functions."""
        return not self._own_alone and not has_effects(traced.program) and not consults(traced.program) and not any(
            map(is_jax_tracer, (*split.leaves, *traced.captured)))

    def _share(self, version: _Version, split: Split, avals: Sequence[Aval], traced: Traced, args: tuple[Any, ...],
               kwargs: dict[str, Any]) -> None:
        """Calls the executable of the program from now on, for arguments such as these."""
        first = version.by_signature is None
        by_signature = version.by_signature = version.by_signature or BySignature(self.static)
        signature = by_signature.signature(split, avals, args, kwargs)
        try:
            bound = bind_captured(traced, split.structure, function_name(self._fun), self._options["inline"])
            by_signature.add(signature, bound)
        except TypeError:  # there are containers, or static arguments, that have no equality
            self._use_own(version)
            return
        self._note_outputs(traced)
        simple = first and not self.static.any
        version.only = bound if simple else None
        version.use(bound if simple else by_signature)

    def _add_signature(self, version: _Version, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Prepares a function that shares executables for arguments of other types than before."""
        split = self.static.split(args, kwargs)
        avals = argument_avals(split.leaves)
        if avals is None:
            self.static.explain(args, kwargs)
        by_signature = version.by_signature
        if avals is None or by_signature is None or by_signature.signature(split, avals, args, kwargs) in by_signature:
            self._use_own(version)
            return
        traced = self._traced(split, avals, args, kwargs)
        if self._may_share(split, traced):
            self._share(version, split, avals, traced, args, kwargs)
        else:
            self._use_own(version)

    def _use_own(self, version: _Version) -> None:
        """Calls what is compiled for this function alone from now on."""
        version.by_signature = version.only = None
        version.use(self._own(version))

    def _note_outputs(self, traced: Traced) -> None:
        self.wide = self.wide or any(is_64bit(aval.dtype) for aval in traced.program.out_avals)

    # --- tracing ------------------------------------------------------------------------------------------

    def _own(self, version: _Version) -> Any:
        """What jax compiles for this function alone."""
        if version.own is None:
            this = weakref.ref(self)  # so that it dies when the user drops it

            @transformation("jit", self._fun)  # with the signature of the function, in which jax looks for names
            def traced_by_jax(*args: Any, **kwargs: Any) -> Any:
                jitted = this()
                assert jitted is not None  # for who calls this holds it
                return jitted._traced_by_jax(args, kwargs)  # noqa: SLF001  (our own, by a weak reference)

            version.own = jax.jit(traced_by_jax, **self._options)
        return version.own

    def _traced_by_jax(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What jax traces: our own trace of the function, emitted as `lax` calls."""
        split = self.static.split(args, kwargs)
        avals = [*map(aval_from_jax, split.leaves)]
        traced = _handed_over.get()
        if traced is None or traced[0] is not self or traced[1].program.in_avals[traced[1].program.captured:] != avals:
            traced = self, self._traced(split, avals, args, kwargs, WRITTEN)
        self._note_outputs(traced[1])
        program, captured, out_tree = traced[1][:3]
        return tree.unflatten(out_tree, computed(program, captured, split.leaves))

    def _traced(self, split: Split, avals: Sequence[Aval], args: tuple[Any, ...], kwargs: dict[str, Any],
                mode: Mode = SHARED) -> Traced:
        return trace_flat(lambda *tracers: split.rebuild(tracers), avals, "jit", self._fun, mode=mode,
                          names=lambda: self.static.leaf_names(args, kwargs))

    def _recorded(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Traced, list[Any]]:
        """The trace within a transformation, and all inputs of its program: what it closed over may be a tracer."""
        split = self.static.split(args, kwargs)
        avals = []
        for index, leaf in enumerate(split.leaves):
            aval = leaf_aval(leaf)
            if aval is None:
                raise ArgumentError(at_user_line(
                    f"jit: {self.static.leaf_names(args, kwargs)[index]} is a {type(leaf).__name__}, where an array "
                    "or a number is needed. Make the argument static with static_argnums"))
            avals.append(aval)
        make = functools.partial(self._traced, split, avals, args, kwargs)
        traced = self._inside.of(split, avals, args, kwargs, make)
        return traced, [*traced.captured, *split.leaves]

    def _stage(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A stage of jax's for these arguments."""
        args, kwargs = tree.map(keys_to_jax, (args, kwargs))
        version = self._versions.setdefault(default_float(), _Version(default_float()))
        if version.executable is _nothing:
            self._use_own(version)
        with x64():
            return Stage(getattr(self._own(version), name)(*args, **kwargs))


def _given_keys(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether there are NumPy's arrays of random keys among the arguments."""
    return any(keys_to_jax(leaf) is not leaf for leaf in tree.leaves((args, kwargs)))
