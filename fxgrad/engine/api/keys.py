"""Cache keys of calls of jitted functions: calls with equal keys share a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.api.static_arguments import Args, Kwargs, StaticArguments
from fxgrad.engine.caches import cached
from fxgrad.engine.core.arrays import Array
from fxgrad.engine.core.avals import PYTHON_AVALS
from fxgrad.engine.dtypes import SUPPORTED
from fxgrad.engine.executors.xla import is_jax_tracer
from fxgrad.engine.tree import TreeDef

Fits = Callable[[Args, Kwargs], bool]
"""A test whether a call has a certain key."""


def matches_nothing(args: Args, kwargs: Kwargs) -> bool:  # noqa: ARG001
    """Return False: no call has this key."""
    return False


class Key(Protocol):
    """A key of calls that share a plan; it is hashable."""

    @property
    def is_full(self) -> bool:
        """Whether it holds all types, and the values of static arguments."""

    def fits(self) -> Fits:
        """Return a fast test whether a call has this key."""


# --- keys of an argument
# ------------------------------------------------------------------------------------------------


_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    np.ndarray: ("shape", "dtype"), Array: ("shape", "dtype"), **dict.fromkeys(PYTHON_AVALS, ()),
    **{dtype.type: () for dtype in SUPPORTED.values() if dtype.names is None}}
"""Attributes that distinguish the types of a class's values. jax's array classes are entered at their first occurrence,
since importing them would start jax's backends."""


def _type_attributes(value: Any) -> tuple[str, ...] | None:
    """Return the attributes that distinguish types of values of one class; None for values without a type."""
    kind = type(value)
    if kind not in _ATTRIBUTES and isinstance(value, jax.Array) and not is_jax_tracer(value):
        # An array of jax's has its type in one object, and there is one such object for a type.
        _ATTRIBUTES[kind] = ("aval",) if hasattr(value, "aval") else ("shape", "dtype", "weak_type")
    return _ATTRIBUTES.get(kind)


def _type_keys(values: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return a key of the types of values, to compare with those of the same classes; None if one has no type."""
    attributes = [*map(_type_attributes, values)]
    return None if None in attributes else tuple([
        tuple([getattr(value, name) for name in names or ()]) for value, names in zip(values, attributes, strict=True)])


# --- keys ------------------------------------------------------------------------------------------------------------


class _StaticKey(NamedTuple):
    """The key of a static argument: its type and value."""

    value: Any


class KeyOfArguments(NamedTuple):
    """The keywords' names, the classes of the arguments, and the attributes that distinguish types of these classes.

    For `f(x, 2.0, axis=0)` with the last argument static: `("axis",), (ndarray, float, int), (((3,), float64), (),
    _Static(0))`. If there is a container, nothing else is `seen`; if there are many arguments, the key is `MANY`.
    """

    names: tuple[str, ...]
    classes: tuple[type, ...]
    seen: tuple[Any, ...] | None

    @property
    def is_full(self) -> bool:
        """Whether it holds all types, and the values of static arguments."""
        return self.seen is not None

    def fits(self) -> Fits:
        """Return a test whether a call has this key: one expression, faster than making a key."""
        if self is MANY:
            return has_many_arguments
        constants: list[Any] = []
        positional = len(self.classes) - len(self.names)

        def constant(value: Any) -> str:
            for number, other in enumerate(constants):
                if other is value:
                    return f"c{number}"
            constants.append(value)
            return f"c{len(constants) - 1}"

        tests = [f"len(kwargs) == {len(self.names)}" if self.names else "not kwargs", f"len(args) == {positional}"]
        for place, kind in enumerate(self.classes):
            named = place >= positional
            value = f"kwargs.get({constant(self.names[place - positional])})" if named else f"args[{place}]"
            tests.append(f"type(x := {value}) is {constant(kind)}")
            seen = () if self.seen is None else self.seen[place]
            if type(seen) is _StaticKey:
                tests.append(_equality_test("x", constant(seen.value)))
            else:
                tests += [f"x.aval is {constant(part)}" if name == "aval"
                          else _equality_test(f"x.{name}", constant(part))
                          for name, part in zip(_ATTRIBUTES.get(kind, ()), seen, strict=False)]
        fits: Fits = _make_test(" and ".join(tests), len(constants))(*constants)
        return fits


MANY = KeyOfArguments((), (), None)
FEW = 12
"""Keys of more arguments take longer to make than the x64 scope to enter."""


def has_many_arguments(args: Args, kwargs: Kwargs) -> bool:
    """Return whether a call has too many arguments for a key that describes each."""
    return len(args) + len(kwargs) > FEW


def _equality_test(value: str, constant: str) -> str:
    return f"((y := {value}) is {constant} or y == {constant})"


@cached("questions of plans", 1024)
def _make_test(test: str, count: int) -> Callable[..., Fits]:
    """Return a function that makes a test from its constants; the text holds numbers and attribute names only."""
    constants = ", ".join(f"c{number}" for number in range(count))
    made: Callable[..., Fits] = eval(f"lambda {constants}: lambda args, kwargs: {test}")  # noqa: S307
    return made


def key_of(static: StaticArguments, args: Args, kwargs: Kwargs) -> KeyOfArguments:
    """Return the key of a call, by its arguments."""
    if has_many_arguments(args, kwargs):
        return MANY
    values, positions = (*args, *kwargs.values()), static.positions(len(args))
    dynamic, named = static.dynamic(args, kwargs)
    seen = _type_keys((*dynamic, *named.values()))
    if seen is not None and static.any:
        remaining = iter(seen)
        seen = tuple([_StaticKey(arg) if position in positions else next(remaining) for position,
                      arg in enumerate(args)]
                     + [_StaticKey(arg) if name in static.names else next(remaining) for name, arg in kwargs.items()])
    return KeyOfArguments(tuple(kwargs), tuple(map(type, values)), seen)


class KeyOfLeaves(NamedTuple):
    """The tree of the dynamic arguments, the key of its leaves as arguments, and the static arguments."""

    structure: TreeDef
    leaves: KeyOfArguments
    static: tuple[Any, ...]
    split: StaticArguments

    @property
    def is_full(self) -> bool:
        """Whether it holds all types, and the values of static arguments."""
        return self.leaves.is_full

    def fits(self) -> Fits:
        """Return a test whether a call has this key."""
        fit: Callable[..., bool] = self.leaves.fits()

        def has_leaves(args: Args, kwargs: Kwargs) -> bool:
            if self.split.any:
                if self.split.values(args, kwargs) != self.static:
                    return False
                args, kwargs = self.split.dynamic(args, kwargs)
            leaves, structure = tree.flatten((args, kwargs))
            return structure == self.structure and fit(leaves, {})
        return has_leaves


def key_of_leaves(static: StaticArguments, args: Args, kwargs: Kwargs) -> KeyOfLeaves:
    """Return the key of a call, by the leaves of its arguments."""
    split = static.split(args, kwargs)
    leaves = KeyOfArguments((), tuple(map(type, split.leaves)), _type_keys(split.leaves))
    return KeyOfLeaves(split.structure, leaves, static.values(args, kwargs), static)
