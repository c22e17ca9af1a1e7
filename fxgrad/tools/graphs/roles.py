"""Roles of the leaves of a graph: which are parameters, inputs, labels and constants, by patterns of their names."""

from __future__ import annotations

import fnmatch
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from fxgrad.errors import ArgumentError
from fxgrad.extend import at_user_line, function_name, parameter_names

Roles = Mapping[str, "str | Sequence[str]"]


class Param:
    """An annotation: the argument is a parameter of the model, marked by `graph` and differentiated by default.

    `Param[type]` also gives the type; type checkers see that type alone.

    >>> import fxgrad
    >>> def loss(weight: fxgrad.Param, x: float) -> float:
    ...     return weight * x
    >>> [(node.name, node.role) for node in fxgrad.graph(loss)(1.0, 2.0).inputs]
    [('weight', 'parameter'), ('x', 'input')]
    """

    def __class_getitem__(cls, kind: Any) -> Any:
        return Annotated[kind, cls]


WORDS = {"params": "parameter", "parameters": "parameter", "parameter": "parameter", "inputs": "input",
         "input": "input", "labels": "label", "label": "label", "constants": "constant", "constant": "constant"}


def roles_of(title: str, names: Sequence[str], wanted: Roles) -> dict[str, str]:
    """Return the roles of the leaves `names` that patterns assign: a pattern is a name, with `*` for anything.

    A pattern is that of a leaf, or of a container with all that is in it: `params`, `layers[*].W`. Raises
    `ArgumentError` for an unknown role and for a pattern that no leaf has.

    >>> roles_of("loss", ["params.W", "params.b", "x"], {"params": "params"})
    {'params.W': 'parameter', 'params.b': 'parameter'}
    """
    found: dict[str, str] = {}
    for word, patterns in wanted.items():
        if word not in WORDS:
            raise ArgumentError(at_user_line(
                f"infer_roles: there is no role {word!r}; a leaf is one of params, inputs, labels, constants. "
                "Write roles={'params': 'W*'}"))
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            literal = pattern.replace("[", "[[]")  # an index of a path, not a set of characters
            forms = literal, f"{literal}.*", f"{literal}[[]*"
            fitting = [name for name in names if any(fnmatch.fnmatchcase(name, form) for form in forms)]
            if not fitting:
                raise ArgumentError(at_user_line(
                    f"infer_roles: no input of {title or 'the program'} is called {pattern!r}; "
                    f"its inputs are {', '.join(names) or 'none'}"))
            found.update(dict.fromkeys(fitting, WORDS[word]))
    return found


def annotated_roles(function: Callable[..., Any], count: int, argnums: int | Sequence[int] | None) -> dict[str, str]:
    """Return the roles that `argnums` and annotations with `Param` give: patterns of arguments, and "params".

    Raises `ArgumentError` for an `argnums` that names no argument.
    """
    names = parameter_names(function, count)
    numbers = [] if argnums is None else [argnums] if isinstance(argnums, int) else [*argnums]
    for number in numbers:
        if not -count <= number < count:
            raise ArgumentError(at_user_line(
                f"graph: argnums={number} of {function_name(function)}, which was called with {count} arguments"))
    found = {names[number]: "params" for number in numbers}
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001  (annotations may name what cannot be found, and need not be types)
        hints = getattr(function, "__annotations__", {})
    found |= {name: "params" for name, hint in hints.items()
              if name in names and (hint is Param or Param in getattr(hint, "__metadata__", ()))}
    return found
