"""Settings under jax's names: those with a meaning here, those of XLA, and why there are no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

import jax

from fxgrad.engine import config
from fxgrad.engine.api.nans import debug_infs, debug_nans
from fxgrad.engine.api.switches import disable_jit
from fxgrad.engine.config import Setting, as_switch, default_dtype

_JAX: Any = jax.config

# --- blocks that stay entered -------------------------------------------------------------------------------------

_entered: dict[str, AbstractContextManager[Any]] = {}


def _block_setting(name: str, block: Callable[[], AbstractContextManager[Any]]) -> Setting:
    """Return a setting that enters `block` for the rest of the process."""
    def change(value: Any) -> None:
        on = as_switch(value)
        if on and name not in _entered:
            _entered[name] = block()
            _entered[name].__enter__()
        elif not on and name in _entered:
            _entered.pop(name).__exit__(None, None, None)
        _JAX.update(name, on)  # for jax's other threads: jax's blocks hold for their own thread
    return Setting(change, lambda: name in _entered)


# --- settings passed to jax, and those that have one value -----------------------------------------------------------


def _jax_setting(name: str) -> Setting:
    return Setting(lambda value: _JAX.update(name, value), lambda: _JAX.values[name])


def _fixed_setting(name: str, values: tuple[Any, ...], why: str) -> Setting:
    """Return a setting that accepts only `values`, which describe how fxgrad always behaves."""
    def change(value: Any) -> None:
        if value not in values:
            raise ValueError(f"{name} cannot be {value!r}: {why}")
    return Setting(change, lambda: values[0])


def _refused_setting(name: str) -> Setting:
    def refuse(*_: Any) -> NoReturn:
        raise ValueError(f"{name} is a setting of how jax traces and lowers functions of its own, and has no meaning "
                         f"for those of fxgrad. jax.config.update({name!r}, ...) sets it for fxgrad.from_jax")
    return Setting(refuse, lambda: _JAX.values[name])


_XLA = (
    "jax_allow_f16_reductions", "jax_array_garbage_collection_guard", "jax_backend_target",
    "jax_compilation_cache_", "jax_compiler_", "jax_cpu_", "jax_cross_host_", "jax_cuda_visible_devices",
    "jax_debug_leaked_clients", "jax_debug_log_modules", "jax_default_device", "jax_default_matmul_precision",
    "jax_disable_most_optimizations", "jax_distributed_debug", "jax_dump_ir_", "jax_embedded_constants_max_bytes",
    "jax_enable_compilation_cache", "jax_enable_pgle", "jax_enable_preemption_service", "jax_enable_recoverability",
    "jax_exec_time_optimization_effort", "jax_experimental_unsafe_xla_runtime_errors", "jax_explain_cache_misses",
    "jax_force_dcn_cross_host_transfers", "jax_hlo_source_file_canonicalization_regex",
    "jax_include_", "jax_log_compiles", "jax_logging_level", "jax_memory_fitting_", "jax_mock_gpu_topology",
    "jax_no_execution", "jax_num_cpu_devices", "jax_oneapi_visible_devices", "jax_optimization_level",
    "jax_persistent_cache_", "jax_pgle_", "jax_pjrt_client_create_options", "jax_platform",
    "jax_raise_persistent_cache", "jax_rocm_visible_devices", "jax_send_traceback_to_runtime",
    "jax_share_binary_between_hosts", "jax_sort_devices_by_process_index", "jax_thread_guard", "jax_transfer_guard",
    "jax_use_magma", "jax_use_shardy_partitioner", "jax_xla_", "mock_num_gpu_processes")
"""Prefixes of the settings of XLA, its compiler and its devices."""

_FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "jax_check_tracer_leaks": ((True, False), ""),
    "jax_debug_key_reuse": ((False,), "fxgrad.debug.check_key_reuse(f) looks for it in a function"),
    "jax_default_prng_impl": (("threefry2x32",), "keys are of threefry2x32 alone"),
    "jax_enable_custom_prng": ((True, False), ""),
    "jax_explicit_x64_dtypes": (("allow",), "arrays keep their dtype, 64 bits included"),
    "jax_legacy_prng_key": (("allow",), "raw keys are taken"),
    "jax_no_tracing": ((False,), "functions are traced again where their arguments are of other types"),
    "jax_numpy_dtype_promotion": (("standard",), "dtypes promote by one rule; fxgrad.numpy.astype converts"),
    "jax_numpy_rank_promotion": (("allow",), "shapes broadcast as NumPy's do"),
    "jax_threefry_partitionable": ((True,), "bits are those of jax with jax_threefry_partitionable"),
}
"""Settings that have one value here, or no effect: the accepted values, and why others are refused."""


def _settings() -> Iterator[tuple[str, Setting]]:
    for name in _JAX.values:
        if name.startswith(_XLA):
            yield name, _jax_setting(name)
        elif name in _FIXED:
            yield name, _fixed_setting(name, *_FIXED[name])
        else:
            yield name, _refused_setting(name)
    yield "jax_debug_nans", _block_setting("jax_debug_nans", debug_nans)
    yield "jax_debug_infs", _block_setting("jax_debug_infs", debug_infs)
    yield "jax_disable_jit", _block_setting("jax_disable_jit", disable_jit)
    yield "jax_enable_checks", Setting(_set_nan_checks, lambda: config.check_level > 0)


def _set_nan_checks(value: Any) -> None:
    """Set at least the first level of checks, or none."""
    config.update("check_level", max(config.check_level, 1) if as_switch(value) else 0)


config.of_jax.update(_settings())


# --- blocks ---------------------------------------------------------------------------------------------------------


@contextmanager
def default_matmul_precision(value: Any) -> Iterator[None]:
    """Within the block XLA multiplies matrices in this precision by default: "float32", "bfloat16", ...

    It applies to functions compiled by `jit`, and so to their derivatives and batches, on devices that have several
    precisions; NumPy's products are of full precision. The values are those of `jax.default_matmul_precision`, and so
    is the `ValueError` for others.

    >>> import numpy as np, fxgrad
    >>> with fxgrad.default_matmul_precision("float32"):
    ...     "HIGHEST" in fxgrad.stablehlo(np.dot)(np.ones((2, 2)), np.ones((2, 2)))
    True
    """
    with jax.default_matmul_precision(value):
        yield


@contextmanager
def enable_x64(new_val: bool = True) -> Iterator[None]:
    """Within the block arrays created without a dtype are float64; with False, float32.

    Existing arrays keep their dtype. `default_dtype` sets all floating dtypes.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> with fxgrad.enable_x64():
    ...     fnp.zeros(2).dtype
    dtype('float64')
    """
    with default_dtype("float64" if as_switch(new_val) else "float32"):
        yield
