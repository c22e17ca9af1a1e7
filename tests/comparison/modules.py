"""jax's modules beside the libraries that are compared by cases: what has their names here, what is absent and why."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import NamedTuple

import fxgrad
from tests.comparison.libraries import LIBRARIES

_REFERENCES = "programs have no arrays that change"
_JAX_SETTING = "a setting of jax's: `jax.config.update` and jax's own contexts hold for `fxgrad.jit`"
_MAKERS = "for tools that work on jax itself"


class Counterpart(NamedTuple):
    """Where the names of a module of jax's are (None: nowhere), why, and why single ones are absent."""

    ours: str | None
    why: str = ""
    absent: Mapping[str, str] = MappingProxyType({})


def _each(names: str, why: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), why)


_DISTRIBUTIONS = """
    bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r laplace logistic
    multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform vonmises wrapcauchy
"""

MODULES: dict[str, Counterpart] = {
    "jax": Counterpart("fxgrad", "", {
        **_each("auto_pcast smap remove_size_one_mesh_axis_from_type", "`shard_map` says which devices a "
                "function runs on, and `with_sharding_constraint` how values lie"),
        **_each("Device Shard copy_to_host_async", "classes of jax's own and methods of its arrays, which "
                "results are"),
        "memory": "`memory_kind=` of a sharding names a memory",
        "default_device": "`device_put` says where arrays lie, and functions run where their arguments do",
        **_each("host_count host_id host_ids process_indices", "`process_count` and `process_index`"),
        **_each("Ref ad empty_ref free_ref freeze new_ref ds", _REFERENCES),
        **_each("allow_f16_reductions default_prng_impl enable_custom_prng legacy_prng_key "
                "jax2tf_associative_scan_reductions log_compiles explain_cache_misses numpy_rank_promotion "
                "softmax_custom_jvp threefry_partitionable transfer_guard transfer_guard_device_to_device "
                "transfer_guard_device_to_host transfer_guard_host_to_device thread_guard make_user_context "
                "array_garbage_collection_guard no_execution no_tracing print_environment_info live_arrays",
                _JAX_SETTING),
        **_each("check_tracer_leaks checking_leaks", "a leaked tracer is always refused, with its line"),
        "debug_key_reuse": "`fxgrad.debug.check_key_reuse(f)` looks for it in a function",
        "effects_barrier": "un-jitted effects have run when a call returns; jax's waits for jitted ones",
        "enable_checks": "`FXGRAD_CHECK` and `fxgrad.config.update(\"check_level\", 1)`",
        "numpy_dtype_promotion": "the rules of promotion are one",
    }),
    "jax.tree": Counterpart("fxgrad.tree"),
    "jax.tree_util": Counterpart("fxgrad.tree_util"),
    "jax.flatten_util": Counterpart("fxgrad.flatten_util"),
    "jax.custom_batching": Counterpart("fxgrad.custom_batching"),
    "jax.custom_derivatives": Counterpart("fxgrad.custom_derivatives", "", {
        "linear_call": "`linear_transpose` transposes by the rules of the operations"}),
    "jax.debug": Counterpart("fxgrad.debug", "", {
        **_each("DebugEffect OrderedDebugEffect", _MAKERS),
        "log": "`debug.print`"}),
    "jax.dtypes": Counterpart("fxgrad.dtypes", "", {
        "TypePromotionError": "`fxgrad.errors.DTypeError`", "canonicalize_dtype": "dtypes stay what they are",
        **_each("extended itemsize_bits prng_key scalar_type_of issubdtype",
                "NumPy's dtypes say it; `fxgrad.random` has `key_dtype`"),
        "result_type": "`fxgrad.numpy` has it"}),
    "jax.errors": Counterpart("fxgrad.errors", "aliases of our own classes, see [errors](../reference/errors.md)"),
    "jax.image": Counterpart("fxgrad.image", "", {"*": "methods are given as strings; other scalings are not there"}),
    "jax.ops": Counterpart("fxgrad.ops"),
    "jax.nn.initializers": Counterpart("fxgrad.nn.initializers"),
    "jax.ad_checkpoint": Counterpart("fxgrad.ad_checkpoint"),
    "jax.typing": Counterpart("fxgrad.typing"),
    "jax.dlpack": Counterpart("fxgrad.numpy", "", {"is_supported_dtype": "`from_dlpack` refuses what it has not"}),
    "jax.scipy": Counterpart("fxgrad.scipy"),
    "jax.scipy.stats": Counterpart("fxgrad.scipy.stats"),
    **{f"jax.scipy.stats.{name}": Counterpart(f"fxgrad.scipy.stats.{name}", "an object with the functions")
       for name in _DISTRIBUTIONS.split()},
    "jax.scipy.cluster": Counterpart("fxgrad.scipy.cluster"),
    "jax.scipy.cluster.vq": Counterpart("fxgrad.scipy.cluster.vq"),
    "jax.scipy.fft": Counterpart("fxgrad.scipy.fft"),
    "jax.scipy.integrate": Counterpart("fxgrad.scipy.integrate"),
    "jax.scipy.ndimage": Counterpart("fxgrad.scipy.ndimage"),
    "jax.scipy.signal": Counterpart("fxgrad.scipy.signal"),
    "jax.scipy.spatial": Counterpart("fxgrad.scipy.spatial"),
    "jax.scipy.spatial.transform": Counterpart("fxgrad.scipy.spatial.transform"),
    "jax.scipy.optimize": Counterpart("fxgrad.scipy.optimize"),
    "jax.scipy.interpolate": Counterpart("fxgrad.scipy.interpolate"),
    "jax.scipy.sparse": Counterpart("fxgrad.scipy.sparse"),
    "jax.scipy.sparse.linalg": Counterpart("fxgrad.scipy.sparse.linalg"),
    "jax.sharding": Counterpart("fxgrad.sharding", "", fxgrad.sharding.ABSENT),
    "jax.distributed": Counterpart(None, "processes begin with jax.distributed itself, before fxgrad or after"),
    "jax.ref": Counterpart(None, _REFERENCES),
    "jax.export": Counterpart(
        None, "`fxgrad.export(f)` and `fxgrad.shipping.exports.deserialize`; `jax.export` takes `to_jax(f)` too"),
    "jax.stages": Counterpart("fxgrad.stages"),
    "jax.test_util": Counterpart("fxgrad.test_util"),
    "jax.experimental": Counterpart("fxgrad.experimental", "with `mesh_utils`, `ode` and `shard_map`", {
        "*": "not stable in jax; `from_jax` imports functions made with it"}),
    "jax.ffi": Counterpart("fxgrad.ffi", "", {
        **_each("build_ffi_lowering_function ffi_lowering register_ffi_type_id", "they lower primitives of jax's own; "
                "`fxgrad.Primitive` makes operations")}),
    "jax.profiler": Counterpart(None, "jax's profiler sees what `fxgrad.jit` runs"),
    "jax.monitoring": Counterpart(None, _MAKERS),
    **{f"jax.{name}": Counterpart(None, _MAKERS) for name in (
        "api_util", "core", "interpreters", "lib", "extend", "example_libraries", "tools", "version",
        "cloud_tpu_init", "collect_profile")},
}


def public_modules() -> list[str]:
    """The public modules of jax's: those that it comes with, and those inside that are reached as attributes."""
    found = {"jax"}
    for package in ("jax", "jax.scipy", "jax.scipy.stats", "jax.scipy.cluster", "jax.scipy.spatial", "jax.scipy.sparse",
                    "jax.numpy", "jax.nn", "jax.lax"):
        paths = importlib.import_module(package).__path__
        found |= {f"{package}.{each.name}" for each in pkgutil.iter_modules(paths) if not each.name.startswith("_")}
    return sorted(found)


def is_compared(module: str) -> bool:
    """Whether the module is one of the libraries that are compared name by name."""
    return module.removeprefix("jax.") in LIBRARIES


def missing(module: str) -> list[str]:
    """The public names of a module of jax's that its counterpart has not."""
    theirs, ours = importlib.import_module(module), _counterpart(module)
    return [name for name in dir(theirs) if not name.startswith("_") and not hasattr(ours, name)
            and not name.endswith("_p") and not isinstance(getattr(theirs, name, None), ModuleType)]


def _counterpart(module: str) -> object:
    path = MODULES[module].ours
    assert path is not None
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        package, _, name = path.rpartition(".")
        return getattr(importlib.import_module(package), name)


def why_missing(module: str, name: str) -> str:
    """Why a name is absent; "" if nobody says."""
    absent = MODULES[module].absent
    return absent.get(name, absent.get("*", ""))


def table() -> str:
    """The section of docs/appendix/comparison.md on all modules."""
    lines = ["## All modules of jax", "", "What is compared name by name has a section above. Of the others:", "",
             "| module | here | absent |", "|---|---|---|"]
    for module in public_modules():
        if is_compared(module):
            lines.append(f"| `{module}` | `fxgrad.{module.removeprefix('jax.')}`, see above | |")
            continue
        given = MODULES[module]
        if given.ours is None:
            lines.append(f"| `{module}` | no | {given.why} |")
            continue
        reasons: dict[str, list[str]] = {}
        for name in missing(module):
            reasons.setdefault(why_missing(module, name), []).append(f"`{name}`")
        shown = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
        note = f", {given.why}" if given.why else ""
        lines.append(f"| `{module}` | `{given.ours}`{note} | {shown} |")
    return "\n".join(lines) + "\n"
