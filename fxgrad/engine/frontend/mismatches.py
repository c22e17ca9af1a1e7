"""Messages for arguments that do not match the expected ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fxgrad.engine import tree
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.frontend.flat import argument_aval, constant_name
from fxgrad.engine.user_lines import at_user_line

MOST = 8
"""The number of arguments that a message names; it counts the others."""


class ExpectedArguments(NamedTuple):
    """The expected arguments: the container of `(args, kwargs)`, and names and types of the leaves."""

    structure: tree.TreeDef
    names: tuple[str, ...]
    avals: tuple[Aval, ...]

    def mismatches(self, what: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
        """Return a line for each argument that differs from the expected one.

        Raises `ArgumentError`, naming `what`, for an argument that is neither an array nor a number.

        >>> import numpy as np
        >>> structure = tree.structure(((0, {"w": 0, "b": 0}), {}))
        >>> types = [Aval(shape, np.dtype("float64")) for shape in ((), (3,), (2, 3))]
        >>> expected = ExpectedArguments(structure, ("x", "p.b", "p.w"), tuple(types))
        >>> for line in expected.mismatches("f", [1.0, {"w": np.ones((2, 4)), "c": np.ones(3)}], {}):
        ...     print(line)
        p.b: f64[3] is missing
        p.w: f64[2,3] is needed, not f64[2,4]: axis 1 has 4 and not 3
        p.c: f64[3] is not among them
        """
        given = self._leaves_by_name(args, kwargs)
        expected = dict(zip(self.names, self.avals, strict=True))
        found: dict[str, None] = {}
        for name, aval in expected.items():
            if name in given:
                found |= dict.fromkeys(_differences(what, name, aval, given[name]))
            elif within := _parts_of(name, given):
                found[f"{name}: {aval} is needed, not a container of {len(within)} arrays or numbers"] = None
                given = {other: value for other, value in given.items() if other not in within}
            elif (around := _container_of(name, given)) and around not in expected:
                found[f"{around}: {', '.join(_parts_of(around, expected))} are needed in it, and it is "
                      f"{argument_aval(given[around], what, constant_name(around))}"] = None
            else:
                found[f"{name}: {aval} is missing"] = None
        for name, value in given.items():
            if name not in expected and not _parts_of(name, expected):
                found[f"{name}: {argument_aval(value, what, constant_name(name))} is not among them"] = None
        lines = [*found] or self._other_containers(args, kwargs)
        return lines if len(lines) <= MOST else [*lines[:MOST], f"and {len(lines) - MOST} more"]

    def message(self, said: str, what: str, args: Sequence[Any], kwargs: Mapping[str, Any], advice: str = "") -> str:
        """Return a message at the user's line: `said`, a line for each of `mismatches`, and `advice`."""
        lines = [f"\n    {line}" for line in self.mismatches(what, args, kwargs)]
        return at_user_line("".join((said, ":", *lines, f"\n  {advice}" if advice else "")))

    def _other_containers(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
        """Return lines about arguments in other containers, whose leaves are those expected."""
        needed, named = tree.unflatten(self.structure, self.names)
        if len(args) != len(needed) or set(kwargs) != set(named):
            other = [*self._roots()[len(args):], *(name for name in named if name not in kwargs)]
            ways = ("position", "name") if len(args) < len(needed) else ("name", "position")
            return [f"{', '.join(other)} by {ways[0]}, and not by {ways[1]}"] if other else []
        structure = tree.structure((tuple(args), dict(kwargs)))
        return [] if structure == self.structure else [
            f"the containers are {_structure_text(structure)}, and {_structure_text(self.structure)} are needed"]

    def _leaves_by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments' leaves by the names that tracing would give them."""
        roots = self._roots()
        found: dict[str, Any] = {}
        for position, arg in enumerate(args):
            root = roots[position] if position < len(roots) else f"argument {position}"
            found.update(zip(tree.leaf_names(arg, root), tree.leaves(arg), strict=True))
        for name in sorted(kwargs):
            found.update(zip(tree.leaf_names(kwargs[name], name), tree.leaves(kwargs[name]), strict=True))
        return found

    def _roots(self) -> list[str]:
        """Return the names of the positional arguments: the part of a leaf's name before its path."""
        args, _ = tree.unflatten(self.structure, self.names)
        roots = []
        for position, arg in enumerate(args):
            names, paths = tree.leaves(arg), tree.leaf_names(arg, ":")
            roots.append(names[0].removesuffix(paths[0][1:]) if names else f"argument {position}")
        return roots


def _parts_of(name: str, names: Iterable[str]) -> list[str]:
    """Return those of `names` that are parts of the container called `name`."""
    return [other for other in names if other.startswith((f"{name}.", f"{name}["))]


def _container_of(name: str, names: Iterable[str]) -> str:
    """Return the one of `names` that is a container holding `name`."""
    return next((other for other in names if name.startswith((f"{other}.", f"{other}["))), "")


def _differences(what: str, name: str, aval: Aval, value: Any) -> list[str]:
    got = argument_aval(value, what, constant_name(name))
    if got.dtype == aval.dtype and (got.shape == aval.shape or (got.ndim == aval.ndim
                                                                and has_symbolic_dim(*aval.shape))):
        return []  # symbolic sizes are bound elsewhere
    places = [axis for axis, (size, other) in enumerate(zip(aval.shape, got.shape, strict=False)) if size != other]
    where = ""
    if got.ndim != aval.ndim:
        where = f": it has {got.ndim} axes and not {aval.ndim}"
    elif places and aval.ndim > 1:
        where = ": " + ", ".join(f"axis {axis} has {got.shape[axis]} and not {aval.shape[axis]}" for axis in places)
    return [f"{name}: {aval} is needed, not {got}{where}"]


def _structure_text(structure: tree.TreeDef) -> str:
    return str(structure).removeprefix("PyTreeDef(").removesuffix(")")
