"""`wrt`: derivatives with respect to values inside a function, chosen by the names that its code gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine.core.faces import face
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


def with_respect_to(what: str, fun: Callable[..., Any], wrt: Any, argnums: Any,
                    derive: Callable[[Callable[[Any], Any], Any], Any], compiled: bool = True, argnames: Any = None,
                    ) -> Callable[..., Any]:
    """Return the function of the arguments of `fun` that returns `derive(function, zeros)`.

    `function` computes `fun` with shifts of the values at `wrt` (a path, or a container of paths), which are `zeros` in
    the same container. With `compiled` the result for a jitted `fun` is jitted.

    Raises `ArgumentError` if `argnums`, whose default is 0 or None, or `argnames` is given as well.
    """
    for name, given in ("argnums", argnums), ("argnames", argnames):
        if given not in (0, None):
            raise ArgumentError(at_user_line(
                f"{what} takes {name} or wrt, and got {name}={given!r} and wrt={wrt!r}. Leave one out"))
    transformed: Callable[..., Any] = face("with_respect_to")(what, fun, wrt, derive, compiled)
    return transformed
