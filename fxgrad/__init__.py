"""fxgrad: plain functions over arrays as programs you can read, and programs as other programs.

Wrap a function with `grad`, `vmap`, `jit` and their relatives, nest them freely, and print what was traced with
`make_program`. Functions may be written with NumPy itself or with `fxgrad.numpy`.
"""

import sys as _sys
from importlib import import_module as _import_module
from importlib.abc import Loader as _Loader
from importlib.abc import MetaPathFinder as _MetaPathFinder
from importlib.machinery import ModuleSpec as _ModuleSpec
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from fxgrad import errors, numpy
from fxgrad.engine import config, dtypes, tree
from fxgrad.engine.api.batching import vmap
from fxgrad.engine.api.callbacks import io_callback, pure_callback
from fxgrad.engine.api.closures import closure_convert, custom_gradient
from fxgrad.engine.api.compiled import explain_store, jit
from fxgrad.engine.api.custom import custom_jvp, custom_vjp
from fxgrad.engine.api.eager import ensure_compile_time_eval
from fxgrad.engine.api.forward import jvp, linearize
from fxgrad.engine.api.jacobians import (
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    value_and_hessian,
    value_and_jacobian,
)
from fxgrad.engine.api.lowering import stablehlo
from fxgrad.engine.api.naming import named_call, named_scope, tag
from fxgrad.engine.api.nans import debug_infs, debug_nans
from fxgrad.engine.api.passes import fwd_and_bwd
from fxgrad.engine.api.programs import eval_shape, make_program
from fxgrad.engine.api.residuals import (
    checkpoint,
    checkpoint_name,
    print_saved_residuals,
    saved_residuals,
    stop_gradient,
)
from fxgrad.engine.api.reverse import grad, linear_transpose, value_and_grad, vjp
from fxgrad.engine.api.settings import default_matmul_precision, enable_x64
from fxgrad.engine.api.switches import disable_jit
from fxgrad.engine.api.transparency import explain_transparency
from fxgrad.engine.api.types import ShapeDtypeStruct, typeof
from fxgrad.engine.caches import clear_caches
from fxgrad.engine.config import default_dtype, set_default_dtype
from fxgrad.engine.core.arrays import Array
from fxgrad.engine.core.interpreter import Interpreter
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, Cost, Primitive
from fxgrad.engine.core.program import Equation, Program, Variable
from fxgrad.engine.core.regions import Region
from fxgrad.engine.derivation.simplify import simplify
from fxgrad.engine.lazy_names import lazy_getattr as _lazy_getattr
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.transparency.replays import transparent

if _TYPE_CHECKING:
    from fxgrad import (
        debug,
        flatten_util,
        image,
        interop,
        lax,
        nn,
        random,
        scipy,
        sharding,
        testing,
        text,
        tree_util,
        typing,
    )
    from fxgrad.engine.analyses.traffic import traffic
    from fxgrad.engine.api import checkpoint_policies
    from fxgrad.engine.api.axis_types import auto_axes, explicit_axes, reshard
    from fxgrad.engine.api.buckets import bucketed
    from fxgrad.engine.api.checking import check, checked
    from fxgrad.engine.api.dataflow import dataflow
    from fxgrad.engine.api.device_maps import pmap
    from fxgrad.engine.api.devices import (
        block_until_ready,
        default_backend,
        device_count,
        device_get,
        device_put,
        devices,
        local_device_count,
        local_devices,
        make_array_from_callback,
        make_array_from_process_local_data,
        make_array_from_single_device_arrays,
        make_mesh,
        process_count,
        process_index,
    )
    from fxgrad.engine.api.rolling import roll
    from fxgrad.engine.api.safe_derivatives import nan_safe
    from fxgrad.engine.api.sharded import shard_map
    from fxgrad.engine.api.sparse_derivatives import sparsity
    from fxgrad.engine.api.specs import symbolic_spec
    from fxgrad.engine.control_flow.functions import python_control_flow
    from fxgrad.interop import from_jax, import_jaxpr, to_jax
    from fxgrad.interop.jax_modules import (
        ad_checkpoint,
        custom_batching,
        custom_derivatives,
        experimental,
        ffi,
        stages,
        test_util,
    )
    from fxgrad.lax import associative_scan, cond, fori_loop, scan, switch, while_loop
    from fxgrad.lax import segments as ops
    from fxgrad.sharding import NamedSharding, P, set_mesh
    from fxgrad.shipping import onnx
    from fxgrad.shipping.exports import export
    from fxgrad.shipping.files import load, save
    from fxgrad.text import inline, parse
    from fxgrad.tools.editing.extracting import subprogram
    from fxgrad.tools.editing.rewriting import replace_pattern
    from fxgrad.tools.explorer import visualize
    from fxgrad.tools.granularity.comparison import compare_granularities
    from fxgrad.tools.granularity.outlining import outline
    from fxgrad.tools.granularity.scalarize import scalarize
    from fxgrad.tools.granularity.summary import tabulate
    from fxgrad.tools.graphs import Param, graph, infer_roles, intermediate_grads
    from fxgrad.tools.numerics import lint, stabilize
    from fxgrad.tools.numerics.bounds import bounds
    from fxgrad.tools.pictures.drawing import draw
    from fxgrad.tools.profiling.benchmarking import benchmark
    from fxgrad.tools.profiling.budgets import budget_curve
    from fxgrad.tools.profiling.costs import cost_analysis
    from fxgrad.tools.profiling.memory import memory_analysis
    from fxgrad.tools.profiling.policies import policy_report
    from fxgrad.tools.profiling.simulation import simulate
    from fxgrad.tools.retracing.watching import explain_retraces
    from fxgrad.training import autocast_policies, curvature, distributions, loss_scaling, optim, stochastic
    from fxgrad.training.autocast.autocast import autocast
    from fxgrad.training.ode import odeint
    from fxgrad.training.stochastic import straight_through

float0 = dtypes.float0
make_jaxpr = make_program
remat = checkpoint
__version__ = "0.1.0"

__all__ = [
    "Array", "Cost", "Equation", "Interpreter", "NOT_LINEAR", "NO_TANGENT", "NamedSharding", "P", "Param", "Primitive",
    "Program", "Region", "ShapeDtypeStruct", "Variable", "ad_checkpoint", "associative_scan", "auto_axes", "autocast",
    "autocast_policies", "benchmark", "bind", "block_until_ready", "bounds", "bucketed", "budget_curve", "capture",
    "check", "checked", "checkpoint", "checkpoint_name", "checkpoint_policies", "clear_caches", "closure_convert",
    "compare_granularities", "cond", "config", "cost_analysis", "curvature", "custom_batching", "custom_derivatives",
    "custom_gradient", "custom_jvp", "custom_vjp", "dataflow", "debug", "debug_infs", "debug_nans", "default_backend",
    "default_dtype", "default_matmul_precision", "derivatives", "device_count", "device_get", "device_put", "devices",
    "disable_jit", "distributions", "divergence", "draw", "dtypes", "enable_x64", "ensure_compile_time_eval", "errors",
    "eval_shape", "experimental", "explain_retraces", "explain_store", "explain_transparency", "explicit_axes",
    "export", "ffi", "flatten_util", "float0", "fori_loop", "from_jax", "fwd_and_bwd", "grad", "graph", "hessian",
    "hessian_diag", "hvp", "image", "implicit", "import_jaxpr", "infer_roles", "inline", "instantiate_zeros",
    "intermediate_grads", "interop", "io_callback", "jacfwd", "jacobian", "jacrev", "jet", "jit", "jvp", "laplacian",
    "lax", "linear_transpose", "linearize", "lint", "load", "local_device_count", "local_devices", "loss_scaling",
    "make_array_from_callback", "make_array_from_process_local_data", "make_array_from_single_device_arrays",
    "make_jaxpr", "make_mesh", "make_program", "memory_analysis", "named_call", "named_scope", "names", "nan_safe",
    "nn", "numpy", "odeint", "onnx", "ops", "optim", "outline", "parse", "pmap", "policy_report",
    "print_saved_residuals", "process_count", "process_index", "pure_callback", "python_control_flow", "random",
    "remat", "replace", "replace_pattern", "reshard", "roll", "save", "saved_residuals", "scalarize", "scan", "scipy",
    "set_default_dtype", "set_mesh", "shard_map", "sharding", "simplify", "simulate", "sparsity", "split", "stabilize",
    "stablehlo", "stages", "stochastic", "stop_gradient", "straight_through", "subprogram", "switch", "symbolic_spec",
    "tabulate", "tag", "taylor", "test_util", "testing", "text", "to_jax", "traffic", "transparent", "tree",
    "tree_util", "typeof", "typing", "value_and_grad", "value_and_hessian", "value_and_jacobian", "visualize", "vjp",
    "vmap", "watch", "while_loop",
]


# What is not imported above is imported when it is first asked for: who only computes does not wait for pictures.
_NAMES = {
    "engine.analyses.traffic": "traffic",
    "engine.api.axis_types": "auto_axes explicit_axes reshard",
    "engine.api.buckets": "bucketed",
    "tools.profiling.budgets": "budget_curve",
    "engine.api.dataflow": "dataflow",
    "engine.api.device_maps": "pmap",
    "engine.api.devices":
        "block_until_ready default_backend device_count device_get device_put devices local_device_count "
        "local_devices make_array_from_callback make_array_from_process_local_data "
        "make_array_from_single_device_arrays make_mesh process_count process_index",
    "tools.profiling.policies": "policy_report",
    "engine.api.checking": "check checked",
    "engine.api.laplacians": "divergence hessian_diag laplacian",
    "training.implicit": "implicit",
    "engine.api.taylor": "derivatives jet taylor",
    "engine.api.rolling": "roll",
    "engine.api.safe_derivatives": "nan_safe",
    "engine.api.sharded": "shard_map",
    "engine.api.sparse_derivatives": "sparsity",
    "engine.api.specs": "symbolic_spec",
    "engine.control_flow.functions": "python_control_flow",
    "interop": "from_jax import_jaxpr to_jax",
    "lax": "associative_scan cond fori_loop scan switch while_loop",
    "sharding": "NamedSharding P set_mesh",
    "shipping.exports": "export",
    "shipping.files": "load save",
    "text": "inline parse",
    "tools.editing.extracting": "subprogram",
    "tools.editing.rewriting": "replace_pattern",
    "tools.explorer": "visualize",
    "tools.granularity.comparison": "compare_granularities",
    "tools.granularity.outlining": "outline",
    "tools.granularity.scalarize": "scalarize",
    "tools.granularity.summary": "tabulate",
    "tools.graphs": "Param graph infer_roles intermediate_grads",
    "tools.inside.capturing": "capture names replace split",
    "tools.inside.watching": "watch",
    "tools.numerics": "lint stabilize",
    "tools.numerics.bounds": "bounds",
    "tools.pictures.drawing": "draw",
    "tools.profiling.benchmarking": "benchmark",
    "tools.profiling.costs": "cost_analysis",
    "tools.profiling.memory": "memory_analysis",
    "tools.profiling.simulation": "simulate",
    "tools.retracing.watching": "explain_retraces",
    "training.autocast.autocast": "autocast",
    "training.ode": "odeint",
    "training.stochastic": "straight_through",
}
"""The names of modules that are loaded later."""
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
_MODULES = {
    "config": "engine.config",
    "dtypes": "engine.dtypes",
    "tree": "engine.tree",
    "checkpoint_policies": "engine.api.checkpoint_policies",
    "ad_checkpoint": "interop.jax_modules.ad_checkpoint",
    "custom_batching": "interop.jax_modules.custom_batching",
    "custom_derivatives": "interop.jax_modules.custom_derivatives",
    "experimental": "interop.jax_modules.experimental",
    "ffi": "interop.jax_modules.ffi",
    "stages": "interop.jax_modules.stages",
    "test_util": "interop.jax_modules.test_util",
    "ops": "lax.segments",
    "onnx": "shipping.onnx",
    "autocast_policies": "training.autocast_policies",
    "curvature": "training.curvature",
    "distributions": "training.distributions",
    "experimental.ode": "training.ode",
    "loss_scaling": "training.loss_scaling",
    "optim": "training.optim",
    "stochastic": "training.stochastic",
    **{name: name for name in (
        "debug", "flatten_util", "image", "interop", "lax", "nn", "random", "scipy",
        "sharding", "testing", "text", "tree_util", "typing")},
}
"""Modules that people know as `fxgrad.name`, and where each lives."""


class _ModulesByName(_MetaPathFinder, _Loader):
    """Imports a module of `_MODULES` by its short name, for `import fxgrad.optim` and `from fxgrad.optim import adam`.

    Both names stand for one module, as `os.path` and `posixpath` do.
    """

    def find_spec(self, fullname: str, path: _Any = None, target: _Any = None) -> _Any:  # noqa: ARG002
        is_known = fullname.startswith("fxgrad.") and fullname.removeprefix("fxgrad.") in _MODULES
        return _ModuleSpec(fullname, self) if is_known else None

    def create_module(self, spec: _ModuleSpec) -> _Any:
        module = _import_module(f"fxgrad.{_MODULES[spec.name.removeprefix('fxgrad.')]}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: _Any) -> None:
        module.__spec__ = module.__spec__.loader_state  # its own, which the import by its short name has replaced


_sys.meta_path.append(_ModulesByName())


_REFERENCES = "arrays do not change. Return new ones, x.at[i].set(v), and carry them through loops"
_ABSENT = {
    **{name: f"it is jax's, and holds for code that fxgrad compiles too. Write jax.{name}" for name in (
        "Device", "default_device", "distributed", "effects_barrier", "live_arrays", "log_compiles",
        "print_environment_info", "profiler", "transfer_guard", "transfer_guard_device_to_device",
        "transfer_guard_device_to_host",
        "transfer_guard_host_to_device")},
    **dict.fromkeys(("Ref", "empty_ref", "free_ref", "freeze", "new_ref"), _REFERENCES),
    **dict.fromkeys(("check_tracer_leaks", "checking_leaks"), "a leaked tracer is always an error. Leave it out"),
    **{f"tree_{name}": f"write fxgrad.tree.{name}" for name in (
        "all", "flatten", "leaves", "map", "reduce", "structure", "transpose", "unflatten")},
    "tree_multimap": "write fxgrad.tree.map(f, *trees)",
    "ds": "write fxgrad.lax.dynamic_slice_in_dim(x, start, size)",
    "debug_key_reuse": "write fxgrad.debug.check_key_reuse(f)(x)",
    "enable_checks": "programs are checked with the environment variable FXGRAD_CHECK=3",
    "explain_cache_misses": "write fxgrad.explain_retraces(f)(x)",
    "host_count": "write fxgrad.process_count()", "host_id": "write fxgrad.process_index()",
    "host_ids": "write range(fxgrad.process_count())",
}
"""Names of jax that are missing here, each with the reason."""
__getattr__ = _lazy_getattr("fxgrad", _HOMES, _MODULES, _ABSENT)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]  # so that completion shows no modules of the inside
