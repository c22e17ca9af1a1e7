"""One call of a function with a custom rule: its flat inputs, and its non-differentiable arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.executors.xla import is_jax_tracer
from fxgrad.engine.frontend.flat import (
    TracedCall,
    check_leaf,
    insert_static,
    leaf_aval,
    nth_name,
    parameter_names,
    refuse_repeated_effects,
    trace_flat,
)
from fxgrad.engine.higher_order.custom import Flat
from fxgrad.engine.tracing.tape import aval_of, innermost_for
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError


class CustomCall:
    """One call of a function with a custom rule: its flat inputs, and the Python call."""

    def __init__(self, what: str, function: Callable[..., Any], nondiff: Sequence[int], args: tuple[Any, ...],
                 kwargs: dict[str, Any], arity: int | None) -> None:
        self.what, self.function = what, function
        self.args = args if len(args) == arity and not kwargs else as_positional(function, args, kwargs)
        self.static: set[int] | frozenset[int] = _NONE if not nondiff else {
            number % len(self.args) for number in nondiff if -len(self.args) <= number < len(self.args)}
        dynamic = [*self.args] if not nondiff else [
            arg for position, arg in enumerate(self.args) if position not in self.static]
        self.structure: Any
        self.leaves, self.structure = tree.flatten(dynamic)
        for index, leaf in enumerate(self.leaves):
            if leaf_aval(leaf) is None:
                check_leaf(leaf, what, nth_name(self.names, index))

    def names(self) -> list[str]:
        """Return the names of the flat inputs."""
        roots = parameter_names(self.function, len(self.args))
        return [name for position, arg in enumerate(self.args) if position not in self.static
                for name in tree.leaf_names(arg, roots[position])]

    @property
    def nondiff_args(self) -> list[Any]:
        """The non-differentiable arguments, which rules receive first and unchanged."""
        return [arg for position, arg in enumerate(self.args) if position in self.static] if self.static else []

    def arguments(self, leaves: Flat) -> list[Any]:
        """Return all positional arguments, with `leaves` in place of the flat inputs."""
        dynamic: list[Any] = tree.unflatten(self.structure, leaves)
        return insert_static(self.args, self.static, dynamic) if self.static else dynamic

    def dynamic(self, leaves: Flat) -> tuple[Any, ...]:
        """Return the differentiable arguments alone."""
        return tuple(tree.unflatten(self.structure, leaves))

    def trace(self) -> TracedCall:
        """Return the program of the plain function."""
        avals = [aval_of(leaf) for leaf in self.leaves]
        traced = trace_flat(lambda *leaves: self.function(*self.arguments(leaves)), avals, self.what, self.function,
                            names=self.names, values=self.leaves)
        refuse_repeated_effects(traced, self.what)
        return traced

    def forget_values(self) -> None:
        """Replace the arrays by their types: rules live as long as the programs that hold them."""
        self.leaves = [aval_of(leaf) for leaf in self.leaves]
        self.args = tuple(self.arguments(self.leaves))

    def is_recorded(self) -> bool:
        """Return whether a running transformation, or jax, traces any of the arguments."""
        return is_traced(self.leaves)


def is_traced(values: Sequence[Any]) -> bool:
    """Return whether a running transformation traces any of these values, or a trace of jax's own does."""
    return innermost_for(values) is not None or any(map(is_jax_tracer, values))


_NONE: frozenset[int] = frozenset()


def as_positional(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return all arguments as positional ones, defaults included: rules receive positional arguments.

    Keyword-only arguments keep their defaults; rules do not receive them.
    """
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except ValueError:
        return args
    except TypeError as error:
        raise ArgumentError(at_user_line(f"{function_name(function)}: {error}")) from None
    bound.apply_defaults()  # arguments after one that is left out would not be positional
    if keywords := [name for name in bound.kwargs if name in kwargs]:
        raise ArgumentError(at_user_line(
            f"{function_name(function)} has a custom rule and was called with keyword-only arguments "
            f"({', '.join(keywords)}), which rules cannot receive. Pass them by position"))
    return bound.args


_RULES = {"defjvp", "defjvps", "defvjp", "def_vmap"}


class WithRule:
    """Forward methods that define another kind of rule to the function, if it has such a rule."""

    fun: Callable[..., Any]

    def __getattr__(self, name: str) -> Any:
        fun = self.__dict__.get("fun")
        if name in _RULES and isinstance(fun, WithRule):
            return getattr(fun, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def positional_arity(function: Callable[..., Any]) -> int | None:
    """Return the number of arguments, or None if some cannot be given by position."""
    try:
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return None  # some builtins have no signature
    by_position = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return len(kinds) if all(kind in by_position for kind in kinds) else None


def nondiff_positions(function: Callable[..., Any], argnums: int | Sequence[int], argnames: str | Iterable[str],
             ) -> tuple[int, ...]:
    """Return the positions of the non-differentiable arguments; raise `ArgumentError` for an unknown name."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    parameters = list(inspect.signature(function).parameters) if names else []
    for name in names:
        if name not in parameters:
            raise ArgumentError(at_user_line(
                f"nondiff_argnames names {name!r}, and the parameters of {function_name(function)} are "
                f"{', '.join(parameters)}"))
    return tuple(sorted({*numbers, *map(parameters.index, names)}))
