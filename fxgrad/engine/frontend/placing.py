"""Where the result of a function is to lie: `out_sharding=`, and `reshard`."""

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
    """For each leaf of `xs` its sharding, where there is one for all or a container that is a prefix.

    Raises `ArgumentError` for what is neither; `one` says what may be given for all.
    """
    given = broadcast_prefix(shardings, xs)
    if given is None:
        raise ArgumentError(at_user_line(
            f"{what}: {shardings_text(shardings)} is not a prefix of the container {tree.structure(xs)}. Write {one} "
            "for all "
            "of it, or a container of its structure"))
    return given


def place_array(what: str, x: Any, sharding: Any, name: str = "the result") -> Any:
    """Return the array `x` on the sharding `sharding`, a NamedSharding or a PartitionSpec on the current mesh.

    A traced one is held to it by the program; with values known it is moved, and becomes an array of jax's. Raises
    `ArgumentError` and `ShapeError` for shardings that do not fit, in which `what` was called.
    """
    shape = aval_of(x).shape
    if innermost_for((x,)) is not None:
        return constrain(what, x, sharding, shape, name)
    placement_of(what, sharding, shape, name)
    with x64():
        return jax.device_put(keys_to_jax(x), sharding)
