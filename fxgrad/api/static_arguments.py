"""Which arguments of a jitted function are static, and the call of the function with others in the dynamic places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fxgrad import tree
from fxgrad.core.avals import check_dtype
from fxgrad.core.tracer import Tracer, leaked
from fxgrad.errors import ArgumentError, at_user_line, function_name
from fxgrad.frontend.flat import keyword_names, leaf_aval, parameter_names, with_static
from fxgrad.tree import TreeDef


class Split(NamedTuple):
    """The arguments of one call: what is dynamic, its leaves and structure, and the function of other leaves."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]
    structure: TreeDef
    rebuild: Callable[[Sequence[Any]], Any]


class StaticArguments:
    """Those of `fun` at the positions `numbers` and of the `names`, given either way."""

    __slots__ = ("_dynamic", "_fun", "_numbers", "_positions", "any", "names")

    def __init__(self, fun: Callable[..., Any], numbers: int | Sequence[int] | None,
                 names: str | Iterable[str] | None) -> None:
        self._fun = fun
        self._numbers = _tuple(numbers)
        self.names = frozenset(_tuple(names)) | self._names_of_numbers()
        self.any = bool(self._numbers or self.names)
        self._positions: dict[int, set[int]] = {}
        self._dynamic: dict[int, list[int]] = {}

    def _names_of_numbers(self) -> set[str]:
        if not self._numbers:
            return set()  # without looking at the signature, which takes longer than all else here
        names = parameter_names(self._fun, 1 + max(self._numbers))
        by_keyword = keyword_names(self._fun)
        return {names[number] for number in self._numbers if 0 <= number < len(names)} & by_keyword

    def positions(self, count: int) -> set[int]:
        """The static ones of `count` positional arguments."""
        known = self._positions.get(count)
        if known is None:
            numbered = {number % count for number in self._numbers if -count <= number < count}
            names = parameter_names(self._fun, count) if self.any else []
            known = numbered | {position for position, name in enumerate(names) if name in self.names}
            self._positions[count] = known
        return known

    def dynamic(self, args: tuple[Any, ...]) -> list[Any]:
        """The positional arguments that are not static."""
        count = len(args)
        if count not in self._dynamic:
            static = self.positions(count)
            self._dynamic[count] = [position for position in range(count) if position not in static]
        return [args[position] for position in self._dynamic[count]]

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Split:
        """The dynamic arguments, and the call of the function with other leaves in their places."""
        if not self.any:
            leaves, structure = tree.flatten((args, kwargs))

            def call(values: Sequence[Any]) -> Any:
                given, named = tree.unflatten(structure, values)
                return self._fun(*given, **named)
            return Split(args, kwargs, leaves, structure, call)
        static, dynamic = self.positions(len(args)), tuple(self.dynamic(args))
        keywords = {key: value for key, value in kwargs.items() if key not in self.names}
        leaves, structure = tree.flatten((dynamic, keywords))

        def call_with_static(values: Sequence[Any]) -> Any:
            given, named = tree.unflatten(structure, values)
            return self._fun(*with_static(args, static, given), **{**kwargs, **named})
        return Split(dynamic, keywords, leaves, structure, call_with_static)

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The static arguments with their places and types; equal for calls that are equal in them."""
        if not self.any:
            return ()
        given = [(position, args[position]) for position in sorted(self.positions(len(args)))]
        named = [(key, kwargs[key]) for key in sorted(kwargs) if key in self.names]
        return tuple((place, type(value), value) for place, value in (*given, *named))

    def leaf_names(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """The names of the dynamic leaves, as messages and programs show them."""
        roots, static = parameter_names(self._fun, len(args)), self.positions(len(args))
        names = [name for position, arg in enumerate(args) if position not in static
                 for name in tree.leaf_names(arg, roots[position])]
        return names + [name for key in sorted(kwargs) if key not in self.names
                        for name in tree.leaf_names(kwargs[key], key)]

    def explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises our own message where jax refuses a static or a dynamic argument."""
        name = function_name(self._fun)
        roots = parameter_names(self._fun, len(args))
        for position in sorted(self.positions(len(args))):
            _check_hashable(name, roots[position], args[position])
        for key, value in kwargs.items():
            if key in self.names:
                _check_hashable(name, key, value)
        for leaf, where in zip(self.split(args, kwargs).leaves, self.leaf_names(args, kwargs), strict=True):
            if type(leaf) is Tracer:
                raise leaked(leaf)
            if leaf_aval(leaf) is None:
                if isinstance(leaf, jax.Array) or type(leaf) is np.ndarray:
                    check_dtype(leaf, f"jit: {where} of {name}")
                raise ArgumentError(at_user_line(
                    f"jit: {where} of {name} is a {type(leaf).__name__}, where an array or a number is needed. "
                    f"Make the argument static: jit({name}, static_argnames={roots[0] if not roots else where!r})",
                )) from None


def _tuple(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,) if isinstance(value, int | str) else tuple(value)


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
