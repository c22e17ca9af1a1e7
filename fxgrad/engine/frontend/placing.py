"""Placement of results: `out_sharding=`, and `reshard`."""

from __future__ import annotations

from typing import Any

import jax

from fxgrad.engine import tree
from fxgrad.engine.core.avals import keys_to_jax
from fxgrad.engine.executors.xla import x64
from fxgrad.engine.frontend.flat import broadcast_prefix
from fxgrad.engine.parallel.shardings import constrain, placement_of, shardings_text
from fxgrad.engine.tracing.tape import aval_of, innermost_for
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


def shardings_of_leaves(what: str, xs: Any, shardings: Any, one: str = "one sharding") -> list[Any]:
    """Return the sharding of each leaf of `xs`, from one for all or a container that is a prefix.

    Raises `ArgumentError` for anything else; `one` describes in the message what to pass for all.
    """
    given = broadcast_prefix(shardings, xs)
    if given is None:
        raise ArgumentError(at_user_line(
            f"{what}: {shardings_text(shardings)} is not a prefix of the container {tree.structure(xs)}. Write {one} "
            "for all of it, or a container of its structure"))
    return given


def place_array(what: str, x: Any, sharding: Any, name: str = "the result") -> Any:
    """Return the array `x` on the sharding `sharding`, a NamedSharding or a PartitionSpec on the current mesh.

    The program constrains a traced array; a concrete one is moved, and becomes a `jax.Array`. Raises `ArgumentError`
    and `ShapeError` for shardings that do not fit, naming `what`.
    """
    shape = aval_of(x).shape
    if innermost_for((x,)) is not None:
        return constrain(what, x, sharding, shape, name)
    placement_of(what, sharding, shape, name)
    with x64():
        return jax.device_put(keys_to_jax(x), sharding)
