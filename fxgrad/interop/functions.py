"""`from_jax`: a function of jax's as one that fxgrad traces, runs and differentiates."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import get_opaque_trace_state

from fxgrad.engine import config, dtypes, tree
from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.avals import Aval, check_dtype
from fxgrad.engine.core.cache_keys import comparison_key, tree_key
from fxgrad.engine.derivation.sizes import refuse_symbolic_sizes
from fxgrad.engine.frontend.flat import leaf_aval, transformation
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import axes_in_scope, current, innermost_for
from fxgrad.engine.tracing.trace import mesh_in_scope
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import LeakedTracerError, UnsupportedError
from fxgrad.interop.calls import NARROWER, as_typed_number
from fxgrad.interop.importing import ImportedProgram, import_with_constants
from fxgrad.interop.manual import trace_in_mesh
from fxgrad.interop.settings import Settings

_OUTSIDE = get_opaque_trace_state()
"""jax's state outside of its traces."""
LIMIT = 256
"""Programs that one function remembers, for arguments of different types."""


def from_jax(fn: Callable[..., Any], static_argnums: int | Sequence[int] = (),
             static_argnames: str | Iterable[str] = ()) -> Callable[..., Any]:
    """Return `fn`, a function of jax arrays, as a function of fxgrad's, which can be transformed and traced.

    It is traced by jax for the types of its arguments, and its operations become fxgrad's, which then differentiates,
    batches, prints and runs it. An operation without a counterpart becomes a `jax_call`, whose rules are jax's.
    Arguments are containers of arrays and numbers; other leaves, such as strings and functions, and the arguments of
    `static_argnums` and `static_argnames` are passed to `fn` unchanged, and are part of the cache key. NumPy in, NumPy
    out; jax in, jax out; 64-bit dtypes are kept. Programs are cached.

    `fn` may not close over traced arrays of fxgrad's: pass them as arguments (`UnsupportedError`). Raises
    `ArgumentError` if `fn` is not a function, and jax's errors for arguments that `fn` cannot be called with.

    >>> import fxgrad, jax.numpy as jnp
    >>> f = fxgrad.from_jax(lambda x: jnp.sum(jnp.sin(x) * 2))
    >>> import numpy as np
    >>> fxgrad.grad(f)(np.array([0.0, 1.0]))
    array([2.        , 1.08060461])
    """
    memory = BoundedDict(LIMIT)
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = frozenset([static_argnames] if isinstance(static_argnames, str) else static_argnames)

    @transformation("from_jax", fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = _CallLeaves(fn, args, kwargs, numbers, names)
        if call.is_traced_by_jax_alone():
            return fn(*args, **kwargs)
        key = call.key()
        known: _TraceRecord | None = None if key is None else memory.get(key)
        if known is None:
            known = call.traced()
            if key is not None and not known.program.captures_tracers:
                memory[key] = known
        return known.results(known.program(call.values))
    return wrapper


class _StaticLeaf(NamedTuple):
    """A leaf that is neither an array nor a number, passed on unchanged."""

    value: Any


class _TraceRecord(NamedTuple):
    """The record of a traced call: the program, and the results with their static leaves."""

    program: ImportedProgram
    out_tree: TreeDef
    out_static: list[_StaticLeaf | None]

    def results(self, values: Sequence[Any]) -> Any:
        """Return the container of results."""
        found = iter(values)
        return tree.unflatten(self.out_tree, [next(found) if static is None else static.value
                                              for static in self.out_static])


class _CallLeaves:
    """One call: the arrays and numbers among the leaves of its arguments, and the static leaves."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                 numbers: Sequence[int], names: frozenset[str]) -> None:
        self._fn, self._args, self._kwargs = fn, args, kwargs
        self._positions = {number % len(args) for number in numbers if -len(args) <= number < len(args)}
        self._names = names.intersection(kwargs)
        leaves, self._structure = tree.flatten((
            [arg for position, arg in enumerate(args) if position not in self._positions],
            {name: value for name, value in kwargs.items() if name not in self._names}))
        self.values: list[Any] = []
        self.avals: list[Aval] = []
        self._static: list[_StaticLeaf | None] = []
        for leaf in leaves:
            aval, value = leaf_aval(leaf), leaf
            if aval is None:
                check_dtype(leaf, f"from_jax: an argument of {function_name(self._fn)}")
                value = as_typed_number(leaf)
                aval = None if value is leaf else leaf_aval(value)
            if aval is not None:
                self.values.append(value)
                self.avals.append(aval)
            self._static.append(None if aval is not None else _StaticLeaf(leaf))
        refuse_symbolic_sizes("from_jax", self.avals, [f"an argument of {function_name(self._fn)}"] * len(self.avals))
        if not self._settings().wide:
            # Python's numbers get jax's 32-bit types where jax has no 64 bits.
            for index, aval in enumerate(self.avals):
                narrower = NARROWER.get(aval.dtype)
                if narrower is not None:
                    self.values[index] = convert(self.values[index], narrower, weak=True)
                    self.avals[index] = Aval(aval.shape, narrower, True, aval.vma)

    def is_traced_by_jax_alone(self) -> bool:
        """Return whether jax is tracing the calling code and fxgrad is not: then there is nothing to import."""
        return get_opaque_trace_state() != _OUTSIDE and innermost_for(self.values) is None

    def _settings(self) -> Settings:
        """Return the caller's settings, except that 64-bit arguments are not narrowed.

        Python's numbers are arguments of 64 bits too, but give way to arrays: beside narrower ones they are as jax has
        them, unless they do not fit.
        """
        now = Settings.now()
        decisive = [aval for aval in self.avals if not aval.weak] or self.avals
        return now._replace(wide=now.wide or any(dtypes.is_64bit(aval.dtype) for aval in decisive) or any(
            type(value) is int and not -2**31 <= value < 2**31 for value in self.values))

    def key(self) -> Hashable | None:
        """Return the cache key of the program; None if there is none."""
        key = (tree_key(self._structure), len(self._args), config.default_float(), Settings.now(), *self.avals,
               *[None if leaf is None else comparison_key(leaf.value) for leaf in self._static])
        if self._positions or self._names:
            key += (*((position, comparison_key(self._args[position])) for position in sorted(self._positions)),
                    *((name, comparison_key(self._kwargs[name])) for name in sorted(self._names)))
        axes = axes_in_scope()
        if axes:
            key += (*axes.items(), mesh_in_scope())
        try:
            hash(key)
        except TypeError:
            return None  # a user's container whose structure cannot be hashed
        return key

    def traced(self) -> _TraceRecord:
        """Return the program of this call."""
        found: list[Any] = []

        def flat(*values: Any) -> list[Any]:
            given = iter(values)
            args, kwargs = tree.unflatten(self._structure, [next(given) if static is None else static.value
                                                            for static in self._static])
            for position in sorted(self._positions):
                args.insert(position, self._args[position])
            kwargs |= {name: self._kwargs[name] for name in self._names}
            leaves, structure = tree.flatten(self._fn(*args, **kwargs))
            static = [None if _is_array(leaf) else _StaticLeaf(leaf) for leaf in leaves]
            found[:] = structure, static
            return [leaf for leaf in leaves if _is_array(leaf)]

        axes, mesh = dict(axes_in_scope()), mesh_in_scope()
        settings = self._settings()
        token = current.set(None)  # operations of fxgrad's on tracers of jax's are jax's to record
        try:
            with settings.scope():
                jaxpr = trace_in_mesh(axes, mesh, flat, self.avals)
        except LeakedTracerError:
            raise self._closes_over() from None
        finally:
            current.reset(token)
        with settings.scope():
            program = import_with_constants(jaxpr)
        structure, static = found
        if any(leaf is not None and type(leaf.value) is Tracer for leaf in static):
            raise self._closes_over()
        return _TraceRecord(program, structure, static)

    def _closes_over(self) -> UnsupportedError:
        return UnsupportedError(at_user_line(
            f"from_jax: {function_name(self._fn)} closes over a traced array of fxgrad's, which jax cannot trace. Pass "
            "it as an argument"))


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray | np.generic | bool | int | float | complex)
