"""The static arguments of a jitted function, and the leaves of the dynamic ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.avals import check_dtype
from fxgrad.engine.frontend.flat import cure_of_leaf, insert_static, keyword_names, leaf_aval, parameter_names
from fxgrad.engine.tracing.tracer import Tracer, leak_error
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Split(NamedTuple):
    """The arguments of one call: the dynamic ones, their leaves and structure; `arguments` replaces leaves.

    For `f(x, 3, p={"w": w})` with the second argument static, `args` is `(x,)`, `kwargs` is `{"p": {"w": w}}` and
    `leaves` is `[x, w]`; `arguments([y, v])` is `((y, 3), {"p": {"w": v}})`.
    """

    args: Args
    kwargs: Kwargs
    leaves: list[Any]
    structure: TreeDef
    arguments: Callable[[Sequence[Any]], tuple[Sequence[Any], Kwargs]]


class StaticArguments:
    """The static arguments of `fun`: those at the positions `numbers`, and those of the `names`."""

    __slots__ = ("_fun", "_numbers", "_positions", "any", "names")

    def __init__(self, fun: Callable[..., Any], numbers: int | Sequence[int] | None,
                 names: str | Iterable[str] | None) -> None:
        self._fun = fun
        self._numbers = _as_tuple(numbers)
        self.names = frozenset(_as_tuple(names)) | self._names_of_numbers()
        self.any = bool(self._numbers or self.names)
        self._positions = BoundedDict(64)  # by the number of positional arguments

    def _names_of_numbers(self) -> set[str]:
        if not self._numbers:
            return set()  # without reading the signature, which takes longer than all else here
        names = parameter_names(self._fun, 1 + max(self._numbers))
        by_keyword = keyword_names(self._fun)
        return {names[number] for number in self._numbers if 0 <= number < len(names)} & by_keyword

    def positions(self, count: int) -> set[int]:
        """Return the positions of the static ones among `count` positional arguments."""
        static: set[int] | None = self._positions.get(count)
        if static is None:
            numbered = {number % count for number in self._numbers if -count <= number < count}
            names = parameter_names(self._fun, count) if self.any else []
            static = numbered | {position for position, name in enumerate(names) if name in self.names}
            self._positions[count] = static
        return static

    def dynamic(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Return the arguments that are not static."""
        static = self.positions(len(args))
        return tuple([arg for position, arg in enumerate(args) if position not in static]), {
            key: value for key, value in kwargs.items() if key not in self.names}

    def split(self, args: Args, kwargs: Kwargs) -> Split:
        """Return the arguments of a call, split."""
        if not self.any:
            leaves, structure = tree.flatten((args, kwargs))
            return Split(args, kwargs, leaves, structure, functools.partial(tree.unflatten, structure))
        static = self.positions(len(args))
        dynamic, keywords = self.dynamic(args, kwargs)
        leaves, structure = tree.flatten((dynamic, keywords))
        in_order = {key: value if key in self.names else None for key, value in kwargs.items()}
        kept = [arg if position in static else None for position, arg in enumerate(args)]

        def arguments(values: Sequence[Any]) -> tuple[Sequence[Any], Kwargs]:
            given, named = tree.unflatten(structure, values)
            return insert_static(kept, static, given), {**in_order, **named}
        return Split(dynamic, keywords, leaves, structure, arguments)

    def values(self, args: Args, kwargs: Kwargs) -> tuple[Any, ...]:
        """Return the static arguments with their positions and types, equal for calls that share a trace."""
        if not self.any:
            return ()
        given = [(position, args[position]) for position in sorted(self.positions(len(args)))]
        named = [(key, kwargs[key]) for key in sorted(kwargs) if key in self.names]
        return tuple((place, type(value), value) for place, value in (*given, *named))

    def leaf_names(self, args: Args, kwargs: Kwargs) -> list[str]:
        """Return the names of the dynamic leaves, as messages and programs show them."""
        roots, static = parameter_names(self._fun, len(args)), self.positions(len(args))
        names = [name for position, arg in enumerate(args) if position not in static
                 for name in tree.leaf_names(arg, roots[position])]
        return names + [name for key in sorted(kwargs) if key not in self.names
                        for name in tree.leaf_names(kwargs[key], key)]

    def check_hashable(self, args: Args, kwargs: Kwargs) -> None:
        """Raise `ArgumentError` for a static argument that has no hash."""
        if not self.any:
            return
        name, roots = function_name(self._fun), parameter_names(self._fun, len(args))
        for position in sorted(self.positions(len(args))):
            _check_hashable(name, roots[position], args[position])
        for key, value in kwargs.items():
            if key in self.names:
                _check_hashable(name, key, value)

    def look_up(self, find: Callable[[Any], Any], key: Any, args: Args, kwargs: Kwargs) -> Any:
        """Return `find(key)`; explain an error raised by the `__eq__` of a static argument."""
        try:
            return find(key)
        except Exception as error:
            self._check_comparable(args, kwargs, error)
            raise

    def _check_comparable(self, args: Args, kwargs: Kwargs, error: BaseException | None) -> None:
        """Raise `ArgumentError` for a static argument that could not be compared with that of an earlier call."""
        # The object whose `__eq__` raised, if there is one.
        traceback, compared = None if error is None else error.__traceback__, None
        while traceback is not None:
            if traceback.tb_frame.f_code.co_name == "__eq__":
                compared = traceback.tb_frame.f_locals.get("self")
            traceback = traceback.tb_next
        if compared is None:
            return
        roots = parameter_names(self._fun, len(args))
        static = [(roots[position], args[position]) for position in sorted(self.positions(len(args)))]
        for where, value in (*static, *((key, value) for key, value in kwargs.items() if key in self.names)):
            if type(value) is type(compared):
                raise ArgumentError(at_user_line(
                    f"jit: the static argument {where} of {function_name(self._fun)} is a {type(value).__name__}, "
                    f"whose __eq__ raised {type(error).__name__}: {error}. Static arguments are keys of the compile "
                    "cache, compared with those of earlier calls: have __eq__ return a bool, or pass arrays as dynamic "
                    "arguments")) from None

    def explain(self, args: Args, kwargs: Kwargs, error: BaseException | None = None) -> None:
        """Raise our message for an argument that jax refuses, or for a static one whose `__eq__` raised `error`."""
        self.check_hashable(args, kwargs)
        self._check_comparable(args, kwargs, error)
        for leaf, where in zip(self.split(args, kwargs).leaves, self.leaf_names(args, kwargs), strict=True):
            if type(leaf) is Tracer:
                raise leak_error(leaf)
            if leaf_aval(leaf) is None:
                raise self.leaf_error(leaf, where, kwargs) from None

    def leaf_error(self, leaf: Any, where: str, kwargs: Mapping[str, Any]) -> ArgumentError:
        """Return the error for a dynamic leaf that is no array and no number; raise that of its dtype if it has one."""
        name = function_name(self._fun)
        if isinstance(leaf, jax.Array) or type(leaf) is np.ndarray:
            check_dtype(leaf, f"jit: {where} of {name}")
        if where in kwargs or where in keyword_names(self._fun):
            cure = f"Make the argument static: jit({name}, static_argnames={where!r})"
        else:  # a part of an argument, or one without a name
            cure = "Pass it by closure (functools.partial), or as an argument of its own that is static"
        return ArgumentError(at_user_line(f"jit: {where} of {name} is a {type(leaf).__name__}, where an array or a "
                                          f"number is needed. {cure_of_leaf(leaf, cure, where)}"))


def _as_tuple(value: Any) -> tuple[Any, ...]:
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
