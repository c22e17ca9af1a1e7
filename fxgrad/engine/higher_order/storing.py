"""How a checkpoint stores saved values: unchanged, in fewer bits, or in another memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.interpreter import interpret
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.ops import parts
from fxgrad.engine.ops.arithmetic import div, mul
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.moving import move, round_to_int8_p
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.reductions import reduce_max
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import convert, reshape
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of, bind

HOST, INT8 = "host", "int8"
NARROW = {"bfloat16": dtypes.bfloat16, "float16": np.dtype(np.float16), "float32": np.dtype(np.float32)}
STORES = (HOST, INT8, *NARROW)
"""Storage that a policy may request for a value: host memory, or a dtype."""


def pack(value: Any, store: str) -> list[Any]:
    """Return the stored form of `value`: one array, or two for scaled integers.

    A value is stored unchanged if storing it gains nothing.
    """
    aval = aval_of(value)
    if store == HOST:
        return [move(value, HOST)] if not dtypes.is_key(aval.dtype) else [value]
    if not _is_narrowed(aval, store):
        return [value]
    if store == INT8:
        rows = aval.shape[:-1]
        largest = reshape(reduce_max(parts.abs(value), range(len(rows), aval.ndim)), (*rows, *[1] * (aval.ndim > 0)))
        largest = where(eq(largest, scalar_like(0, largest)), scalar_like(1, largest), largest)
        scale = div(largest, scalar_like(127, largest))
        return [bind(round_to_int8_p, div(value, scale))[0], scale]
    return [convert(value, NARROW[store])]


def unpack(values: Sequence[Any], store: str, aval: Aval) -> Any:
    """Return the value stored as `values`."""
    if store == HOST:
        return move(values[0], "device") if not dtypes.is_key(aval.dtype) else values[0]
    if not _is_narrowed(aval, store):
        return values[0]
    value = convert(values[0], aval.dtype)
    return mul(value, values[1]) if store == INT8 else value


def _is_narrowed(aval: Aval, store: str) -> bool:
    if not dtypes.is_floating(aval.dtype) or not aval.size:
        return False
    return aval.dtype.itemsize > (1 if store == INT8 else NARROW[store].itemsize)


def num_stored(aval: Aval, store: str) -> int:
    """Return the number of arrays stored for a value."""
    return 2 if store == INT8 and _is_narrowed(aval, store) else 1


def pack_outputs(forward: Program, stores: Sequence[str]) -> Program:
    """Return `forward` with its last outputs stored as in `stores`; "" keeps a value unchanged.

    Each value is packed right after it is made, so that it need not live to the end.
    """
    first = len(forward.outputs) - len(stores)
    wanted = {var: store for var, store in zip(forward.outputs[first:], stores, strict=True) if store}

    def build(*values: Any) -> tuple[list[Any], None]:
        kept: dict[Any, list[Any]] = {}

        def step(equation: Equation, inputs: list[Any]) -> list[Any]:
            outputs = bind(equation.primitive, *inputs, **equation.params)
            kept.update({var: pack(value, wanted[var])
                         for var, value in zip(equation.outputs, outputs, strict=True) if var in wanted})
            return outputs

        results = interpret(forward, values, step)
        stored = [part for atom, value in zip(forward.outputs[first:], results[first:], strict=True)
                  for part in kept.get(atom, [value])]
        return [*results[:first], *stored], None

    return derive(forward, ("packing", tuple(stores)), build, forward.in_avals).program


def unpack_inputs(tangent: Program, first: int, stores: Sequence[str], kept: Sequence[Aval]) -> Program:
    """Return `tangent` with its inputs from `first` on, stored as in `stores`, unpacked.

    `kept` are the types of the unpacked values; a store "" means unchanged.
    """
    avals = tangent.in_avals
    beyond = first + len(stores)

    def build(*values: Any) -> tuple[list[Any], None]:
        given = iter(values[first:])
        found = [unpack([*islice(given, num_stored(aval, store))], store, aval) if store else next(given)
                 for store, aval in zip(stores, avals[first:beyond], strict=True)]
        return apply_equations(tangent, [*values[:first], *found, *given]), None

    return derive(tangent, ("unpacking", first, tuple(stores)), build,
                  [*avals[:first], *kept, *avals[beyond:]]).program
