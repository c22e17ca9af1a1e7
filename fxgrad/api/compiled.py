"""Compilation: `jit`, on jax's own dispatch, cache, static arguments and donation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from fxgrad import config, tree
from fxgrad.api.arguments import transformation
from fxgrad.control.call import jit_call_p
from fxgrad.control.flat import function_name, leaf_aval, parameter_names, trace_flat, with_static
from fxgrad.core.avals import Aval, check_dtype, keys_to_jax
from fxgrad.core.program import Program, has_effects
from fxgrad.core.tape import axes_in_scope, bind, innermost_for, is_tracing, leaked
from fxgrad.core.tracer import Tracer
from fxgrad.dtypes import DType, from_jax, is_key
from fxgrad.errors import ArgumentError, UnsupportedError, at_user_line
from fxgrad.executors.xla import emit, x64


def jit(fun: Callable[..., Any], *, static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Iterable[str] | None = None, donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Iterable[str] | None = None, inline: bool = False) -> Jitted:
    """`fun` compiled by XLA, once for every combination of shapes, dtypes and static arguments.

    Arguments are arrays, numbers, or containers of them; those named static are any hashable Python values, and `fun`
    is compiled anew for each of their values. Donated arguments give their memory to the outputs, where the
    platform can. The outputs are `jax.Array`s. float64 and int64 arguments keep their dtype. `lower(*args)` and
    `trace(*args)` are jax's. Inside other transformations the call is recorded and stays compiled.

    Raises `ArgumentError` for unhashable static arguments, `ConcretizationError` where `fun` asks for values.

    >>> import numpy as np, fxgrad
    >>> fast = fxgrad.jit(lambda x: np.sum(x * 2.0))
    >>> float(fast(np.array([1.0, 2.0])))
    6.0
    """
    transformation("jit", fun)
    return Jitted(fun, static_argnums, static_argnames, donate_argnums, donate_argnames, inline)


def _tuple(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,) if isinstance(value, int | str) else tuple(value)


class Jitted:
    """A compiled function: call it, or look at its stages with `lower` and `trace`."""

    def __init__(self, fun: Callable[..., Any], static_argnums: Any, static_argnames: Any, donate_argnums: Any,
                 donate_argnames: Any, inline: bool) -> None:
        transformation("jit", fun)(self)
        self._fun = fun
        self._static_argnums, self._static_argnames = _tuple(static_argnums), frozenset(_tuple(static_argnames))
        self._static_argnames |= self._names_of_static()

        self._options = {"static_argnums": static_argnums, "static_argnames": tuple(sorted(self._static_argnames)),
                         "donate_argnums": donate_argnums, "donate_argnames": donate_argnames, "inline": inline}
        self._compilers: dict[tuple[DType, bool], Any] = {}
        self._given_keys = False  # whether NumPy arrays of random keys came, which jax does not take as they are

    def _jitted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What jax compiles and keeps, one for each way in which Python numbers get their types.

        That depends on the default dtype, and for integers on whether they fit 32 bits, which jax does not tell.
        """
        key = (config.default_float(), _has_wide_integers(args) or (bool(kwargs) and _has_wide_integers((kwargs,))))
        compiler = self._compilers.get(key)
        if compiler is None:
            @transformation("jit", self._fun)  # with the signature of the function, in which jax looks for names
            def traced_by_jax(*args: Any, **kwargs: Any) -> Any:
                return self._traced_by_jax(key[1], args, kwargs)

            compiler = self._compilers[key] = jax.jit(traced_by_jax, **self._options)
        return compiler

    def _names_of_static(self) -> set[str]:
        names = parameter_names(self._fun, 1 + max((number for number in self._static_argnums), default=-1))
        return {names[number] for number in self._static_argnums if 0 <= number < len(names)}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs, computed by XLA, or recorded if a transformation is under way."""
        if is_tracing():
            structure, inputs, traced = self._trace(args, kwargs)
            if innermost_for(inputs) is not None or axes_in_scope() or has_effects(traced):
                outputs = bind(jit_call_p, *inputs, program=traced, name=function_name(self._fun))
                return tree.unflatten(structure, outputs)
        if self._given_keys:
            args, kwargs = tree.map(keys_to_jax, (args, kwargs))
        try:
            with x64():
                return self._jitted(args, kwargs)(*args, **kwargs)
        except (ValueError, TypeError, UnsupportedError):
            if not self._given_keys and any(keys_to_jax(leaf) is not leaf for leaf in tree.leaves((args, kwargs))):
                self._given_keys = True
                return self(*args, **kwargs)
            self._explain(args, kwargs)
            raise

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """jax's `Lowered` stage for these arguments (arrays or `ShapeDtypeStruct`s): `as_text()`, `compile()`."""
        args, kwargs = tree.map(keys_to_jax, (args, kwargs))
        with x64():
            return self._jitted(args, kwargs).lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """jax's `Traced` stage for these arguments, with the jaxpr of the emitted operations."""
        args, kwargs = tree.map(keys_to_jax, (args, kwargs))
        with x64():
            return self._jitted(args, kwargs).trace(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forgets all compiled versions."""
        for compiler in self._compilers.values():
            compiler.clear_cache()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {function_name(self._fun)}>"

    def _traced_by_jax(self, wide: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What jax traces: our own trace of the function, emitted as `lax` calls."""
        leaves, _, rebuild = self._dynamic(args, kwargs)
        avals = [_aval_from_jax(leaf, wide) for leaf in leaves]
        traced = trace_flat(lambda *tracers: rebuild(tracers), avals, "jit", self._fun, staging=True,
                            names=lambda: self._leaf_names(args, kwargs), intern=False, literals=True)
        values = [leaf.astype(aval.dtype) if leaf.dtype != aval.dtype and not is_key(aval.dtype) else leaf
                  for leaf, aval in zip(leaves, avals, strict=True)]
        for value in traced.captured:
            if type(value) is Tracer:
                raise AssertionError("a tracer was captured by a compiled function; this is a bug in fxgrad")
        return tree.unflatten(traced.out_tree, emit(traced.program, [*traced.captured, *values]))

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any], Program]:
        """The tree of the output, and the program with all its inputs: what it closed over may be a tracer."""
        leaves, _, rebuild = self._dynamic(args, kwargs)
        avals = []
        for index, leaf in enumerate(leaves):
            aval = leaf_aval(leaf)
            if aval is None:
                raise ArgumentError(at_user_line(
                    f"jit: {self._leaf_names(args, kwargs)[index]} is a {type(leaf).__name__}, where an array or a "
                    "number is needed. Make the argument static with static_argnums"))
            avals.append(aval)
        traced = trace_flat(lambda *tracers: rebuild(tracers), avals, "jit", self._fun, staging=True,
                            names=lambda: self._leaf_names(args, kwargs), literals=True)
        return traced.out_tree, [*traced.captured, *leaves], traced.program

    def _is_static(self, position: int, count: int) -> bool:
        return any(number % count == position for number in self._static_argnums if -count <= number < count) or \
            parameter_names(self._fun, count)[position] in self._static_argnames

    def _dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any, Callable[..., Any]]:
        """The leaves that are not static, and the call of the function with others in their places."""
        static = {position for position in range(len(args)) if self._is_static(position, len(args))}
        dynamic = [arg for position, arg in enumerate(args) if position not in static]
        keywords = {key: value for key, value in kwargs.items() if key not in self._static_argnames}
        leaves, structure = tree.flatten((dynamic, keywords))

        def rebuild(values: Sequence[Any]) -> Any:
            given, named = tree.unflatten(structure, values)
            return self._fun(*with_static(args, static, given), **{**kwargs, **named})
        return leaves, structure, rebuild

    def _leaf_names(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        roots = parameter_names(self._fun, len(args))
        names = [name for position, arg in enumerate(args) if not self._is_static(position, len(args))
                 for name in tree.leaf_names(arg, roots[position])]
        return names + [name for key in sorted(kwargs) if key not in self._static_argnames
                        for name in tree.leaf_names(kwargs[key], key)]

    def _explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises our own message where jax refused a static or a dynamic argument."""
        name = function_name(self._fun)
        roots = parameter_names(self._fun, len(args))
        for position, arg in enumerate(args):
            if self._is_static(position, len(args)):
                _check_hashable(name, roots[position], arg)
        for key, value in kwargs.items():
            if key in self._static_argnames:
                _check_hashable(name, key, value)
        leaves, _, _ = self._dynamic(args, kwargs)
        for leaf, where in zip(leaves, self._leaf_names(args, kwargs), strict=True):
            if type(leaf) is Tracer:
                raise leaked(leaf)
            if leaf_aval(leaf) is None:
                if isinstance(leaf, jax.Array):
                    check_dtype(leaf, f"jit: {where} of {name}")
                raise ArgumentError(at_user_line(
                    f"jit: {where} of {name} is a {type(leaf).__name__}, where an array or a number is needed. "
                    f"Make the argument static: jit({name}, static_argnames={roots[0] if not roots else where!r})",
                )) from None


def _check_hashable(name: str, where: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        kind = type(value).__name__
        instead = {"list": "a tuple", "dict": "a tuple of its items", "set": "a frozenset",
                   "ndarray": "a dynamic argument (leave it out of static_argnums)"}.get(kind, "a hashable value")
        raise ArgumentError(at_user_line(
            f"jit: the static argument {where} of {name} is a {kind}, which is not hashable; static arguments are keys "
            f"of the compile cache. Pass {instead}")) from None


_WITHOUT_INTEGERS = frozenset({np.ndarray, float, bool, complex, str, type(None)})


def _has_wide_integers(args: Sequence[Any]) -> bool:
    """Whether a Python integer among the arguments, or in a container there, does not fit 32 bits."""
    for arg in args:
        if type(arg) is int:
            if not -2**31 <= arg < 2**31:
                return True
        elif type(arg) not in _WITHOUT_INTEGERS and not isinstance(arg, jax.Array) and any(
                type(leaf) is int and not -2**31 <= leaf < 2**31 for leaf in tree.leaves(arg)):
            return True
    return False


def _aval_from_jax(leaf: Any, wide: bool) -> Aval:
    """The type of a jax tracer; weak scalars, which jax widens in the x64 scope, get their own width back."""
    aval = jax.typeof(leaf)
    dtype = from_jax(aval.dtype)
    if dtype is None:
        check_dtype(leaf, "jit: an argument")
        raise AssertionError(f"jax traces an array of dtype {aval.dtype}")
    if not aval.shape and getattr(aval, "weak_type", False):
        scalar = {"f": 0.0, "i": 2**32 * wide, "c": 0j}.get(dtype.kind)
        if scalar is not None:
            known = leaf_aval(scalar)
            assert known is not None
            return known
    return Aval(tuple(aval.shape), dtype)
