"""jax's stages of a jitted function, `Traced`, `Lowered` and `Compiled`, with 64-bit dtypes kept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.api.conversions import WIDE, convert_arguments, like_arguments
from fxgrad.engine.api.static_arguments import Args, Kwargs, StaticArguments
from fxgrad.engine.derivation.sizes import refuse_symbolic_sizes
from fxgrad.engine.executors.xla import is_jax_tracer, x64
from fxgrad.engine.frontend.flat import argument_aval, constant_name
from fxgrad.engine.frontend.mismatches import ExpectedArguments
from fxgrad.engine.user_lines import function_name
from fxgrad.errors import ArgumentError


class MadeFor(NamedTuple):
    """The name of the function that was jitted, and its dynamic arguments."""

    name: str
    arguments: ExpectedArguments

    @staticmethod
    def of(fun: Callable[..., Any], static: StaticArguments, args: Args, kwargs: Kwargs) -> MadeFor:
        """Return it for the dynamic ones of these arguments; raise `ArgumentError` for one without a type."""
        name, names, split = function_name(fun), static.leaf_names(args, kwargs), static.split(args, kwargs)
        avals = [argument_aval(leaf, "jit", constant_name(f"{where} of {name}"))
                 for leaf, where in zip(split.leaves, names, strict=True)]
        refuse_symbolic_sizes(f"jit({name}).lower", avals, names)
        return MadeFor(name, ExpectedArguments(split.structure, tuple(names), tuple(avals)))


class Stage:
    """A jax stage (`Traced`, `Lowered`, `Compiled`) whose methods all keep 64-bit dtypes."""

    __slots__ = ("_captured", "_find_failed", "_made_for", "_stage")

    def __init__(self, stage: Any, made_for: MadeFor, captured: tuple[Any, ...] = ()) -> None:
        self._stage, self._made_for = stage, made_for
        self._captured = captured  # values before the arguments
        self._find_failed: Callable[[Args, Kwargs], Any] | None = None

    def with_flag(self, find_failed: Callable[[Args, Kwargs], Any] | None) -> Stage:
        """Mark a stage whose second result is whether all checks held: if not, calls return what `find_failed` does."""
        self._find_failed = find_failed
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stage of a jitted function belongs to its process, and is neither pickled nor copied. "
                        "Pickle the jitted function, and call lower(*args).compile() where it is read")

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._stage, name)
        if self._find_failed is not None and name in _OF_RESULTS:
            return value.children()[0] if name == "out_tree" else value[0]
        return self._wrap_method(value) if callable(value) else value

    def __repr__(self) -> str:
        name, expected = self._made_for
        types = ", ".join(f"{each}: {aval}" for each, aval in zip(expected.names, expected.avals, strict=True))
        return f"<jit({name}), {type(self._stage).__name__.lower()}: {types}>"

    def _wrap_method(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def in_scope(*args: Any, **kwargs: Any) -> Any:
            with x64():
                result = method(*args, **kwargs)
            return stage_of(result, self._made_for, self._captured).with_flag(self._find_failed) if isinstance(
                result, (*_CLASSES,)) else result
        return in_scope


_OF_RESULTS = frozenset({"out_tree", "out_info", "output_shardings", "output_formats", "output_layouts"})
"""Attributes that describe the results."""


def _is_narrow(value: Any) -> bool:
    """Return whether `value` is a concrete `jax.Array` of a dtype that jax keeps whatever its x64 mode."""
    return isinstance(value, jax.Array) and not is_jax_tracer(value) and isinstance(
        value.dtype, np.dtype) and value.dtype not in WIDE


class Traced(Stage):
    """A function traced for certain types, with its jaxpr; `lower()` returns the next stage."""

    __slots__ = ()


class Lowered(Stage):
    """A function lowered to StableHLO, `as_text()`; `compile()` returns the next stage."""

    __slots__ = ()


class Compiled(Stage):
    """A function compiled by XLA, called with arguments of the types that it was compiled for."""

    __slots__ = ("_as_they_are", "_run")

    def __init__(self, stage: Any, made_for: MadeFor, captured: tuple[Any, ...] = ()) -> None:
        super().__init__(stage, made_for, captured)
        # Bound once: a call takes a few microseconds, and each look-up counts.
        run = stage.__call__
        self._run: Any = functools.partial(run, *captured) if captured else run
        self._as_they_are: frozenset[type] = frozenset()  # types of arguments that need no x64 scope

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled function.

        Raises `ArgumentError`, a `TypeError`, for arguments that it was not made for, and `CheckError` for a failed
        check.
        """
        if args and not kwargs:
            for arg in args:
                if type(arg) not in self._as_they_are:
                    break
            else:
                if self._find_failed is None:
                    return self._run(*args)
        outputs = self._run_converted(args, kwargs)
        if self._find_failed is None:
            return outputs
        results, held = outputs
        return results if np.asarray(held) else self._find_failed(args, kwargs)

    def _run_converted(self, args: Args, kwargs: Kwargs) -> Any:
        """Run it in the scope that 64-bit dtypes need, unless the types of the arguments are known to do without."""
        if self._as_they_are and not kwargs and self._as_they_are.issuperset(map(type, tree.leaves(args))):
            return self._run(*args)
        given, named = convert_arguments(args, kwargs)
        wide = not jax.config.jax_enable_x64  # type: ignore[attr-defined]
        with x64():
            try:
                outputs = self._run(*given, **named)
            except TypeError:
                self._refuse(args, kwargs)
                raise
        leaves = tree.leaves((args, kwargs))
        if leaves and all(map(_is_narrow, leaves)) and all(map(_is_narrow, tree.leaves(outputs))):
            # A `jax.Array` keeps its dtype without a scope, so one that does not fit is refused without it too.
            self._as_they_are = frozenset(map(type, leaves))
        return like_arguments(outputs, args, kwargs) if wide else outputs

    def _refuse(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise our own message if the arguments are not those that it was compiled for."""
        name, expected = self._made_for
        if expected.mismatches(f"jit({name})", args, kwargs):
            raise ArgumentError(expected.message(
                f"jit({name}) was compiled ahead of time for other arguments", f"jit({name})", args, kwargs,
                f"Convert them, lower and compile for these types too, or call jit({name}), which compiles by itself "
                f"for what is new")) from None


_CLASSES: dict[type, type[Stage]] = {
    jax.stages.Traced: Traced, jax.stages.Lowered: Lowered, jax.stages.Compiled: Compiled}


def stage_of(stage: Any, made_for: MadeFor, captured: tuple[Any, ...] = ()) -> Stage:
    """Wrap a jax stage in the class here of the same kind."""
    return _CLASSES[type(stage)](stage, made_for, captured)
