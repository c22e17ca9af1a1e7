"""Storage of saved values: moved to another memory (`move`), or rounded to bytes."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.families import linear_unary
from fxgrad.engine.ops.pointwise import unary
from fxgrad.engine.ops.xla_kernels import in_memory_space
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, UnsupportedError

INT8 = np.dtype(np.int8)
PLACES = {"host": "device", "device": "host"}
"""The memories, each with the destination of a cotangent of a value moved there."""


def _abstract(x: Aval, *, to: str) -> list[Aval]:
    if to not in PLACES:
        raise ArgumentError(f"move: to={to!r}; 'host' and 'device' are there")
    return [x]


def _move_numpy(x: Any, *, to: str) -> Any:
    """Move values out of the memory of the process, which NumPy uses, to an unnamed, memory-mapped file.

    The system reads its pages on demand, and removes it with the last array that lies in it.
    """
    if to == "device" or not x.nbytes:
        return x
    with tempfile.TemporaryFile(prefix="fxgrad-") as file:
        mapped = np.memmap(file, dtype=np.uint8, mode="w+", shape=(x.nbytes,))
    spilled: Any = np.asarray(mapped).view(x.dtype).reshape(x.shape)
    spilled[...] = x
    return spilled


move_p: Primitive = linear_unary(
    "move", abstract=_abstract, numpy=_move_numpy, xla=lambda lax, x, *, to: in_memory_space(x, to),
    transpose=lambda cotangent, aval, *, to: move(cotangent, PLACES[to]),
    batch=lambda size, values, axes, *, to: (bind(move_p, *values, to=to), axes))


def _refuse_move(*_: Any) -> Any:
    raise UnsupportedError(at_user_line(
        "a second derivative goes through what a checkpoint keeps in int8, and rounding has no derivative. Keep it in "
        "bfloat16, fxgrad.checkpoint_policies.store_as('bfloat16'), or as it is"))


round_to_int8_p: Primitive = unary(
    "round_to_int8", numpy=lambda x: np.rint(np.clip(x, -127, 127)).astype(INT8), accepts="floating",
    xla=lambda lax, x: lax.convert_element_type(
        lax.clamp(lax.full_like(x, -127), lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), lax.full_like(x, 127)),
        INT8),
    tangent=_refuse_move, result=lambda dtype: INT8)
"""Numbers from -127 to 127 rounded to integers of dtype int8; numbers out of range become the nearest of these."""


def move(x: Any, to: str) -> Any:
    """Return `x` in the memory `to`: "host" (a file for NumPy), or "device", where computations run."""
    return bind(move_p, x, to=to)[0]
