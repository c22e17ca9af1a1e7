"""Calls of compiled functions of other languages, as in `jax.ffi`: XLA makes them, un-jitted too.

Targets are registered with jax's own functions, re-exported here.

>>> import numpy as np, fxgrad
>>> matrix = np.array([[4.0, 2.0], [2.0, 5.0]], np.float32)
>>> _ = fxgrad.jit(fxgrad.numpy.linalg.cholesky)(matrix)  # has XLA load LAPACK, whose functions are called here
>>> types = (fxgrad.ShapeDtypeStruct((2, 2), np.float32), fxgrad.ShapeDtypeStruct((), np.int32))
>>> factor, status = ffi_call("lapack_spotrf_ffi", types)(matrix, uplo=np.uint8(ord("L")))
>>> int(status), float(factor[1, 1])
(0, 2.0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.ffi import (
    include_dir,
    pycapsule,
    register_ffi_target,
    register_ffi_target_as_batch_partitionable,
    register_ffi_type,
)

from fxgrad.engine import tree
from fxgrad.engine.core.avals import struct_aval
from fxgrad.engine.frontend.flat import as_struct
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.interop import from_jax

__all__ = ["ffi_call", "include_dir", "pycapsule", "register_ffi_target", "register_ffi_target_as_batch_partitionable",
           "register_ffi_type"]


def ffi_call(target_name: str, result_shape_dtypes: Any, *, has_side_effect: bool = False,
             vmap_method: str | None = None, input_layouts: Any = None, output_layouts: Any = None,
             input_output_aliases: dict[int, int] | None = None, custom_call_api_version: int = 4,
             legacy_backend_config: str | None = None) -> Callable[..., Any]:
    """Return a function that calls the registered target `target_name` with arrays, and with attributes by keyword.

    Its results are of the types `result_shape_dtypes`: one, or a sequence of them. The options are those of
    `jax.ffi.ffi_call`; `vmap_method` selects how it is batched. It has no derivative: `UnsupportedError` is raised if
    one is needed, unless the function that calls it has a rule of its own (`custom_jvp`, `custom_vjp`). Raises
    `ArgumentError` for invalid types; XLA's errors are those of jax.
    """
    for leaf in tree.leaves(result_shape_dtypes):
        if struct_aval(as_struct(leaf)) is None and not hasattr(leaf, "dtype"):
            raise ArgumentError(at_user_line(
                f"ffi_call: result_shape_dtypes has a {type(leaf).__name__}, where ShapeDtypeStructs are needed: "
                "fxgrad.ShapeDtypeStruct(shape, dtype)"))
    made = jax.ffi.ffi_call(
        target_name, result_shape_dtypes, has_side_effect=has_side_effect, vmap_method=vmap_method,
        input_layouts=input_layouts, output_layouts=output_layouts, input_output_aliases=input_output_aliases,
        custom_call_api_version=custom_call_api_version, legacy_backend_config=legacy_backend_config)

    @hide_frames
    def call(*args: Any, **attributes: Any) -> Any:
        def target(*arrays: Any) -> Any:
            return made(*arrays, **attributes)
        target.__name__ = target_name
        return from_jax(target)(*args)
    call.__name__ = target_name
    return call
