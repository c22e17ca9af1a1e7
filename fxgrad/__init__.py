"""fxgrad: plain functions over arrays as programs you can read, and programs as other programs.

Wrap a function with `grad`, `vmap`, `jit` and their relatives, nest them freely, and print what was traced with
`make_program`. Functions may be written with NumPy itself or with `fxgrad.numpy`.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from fxgrad import (
    checkpoint_policies,
    config,
    custom_batching,
    custom_derivatives,
    debug,
    dtypes,
    errors,
    executors,
    flatten_util,
    image,
    interop,
    lax,
    nn,
    numpy,
    random,
    scipy,
    segment,
    sharding,
    show,
    testing,
    tree,
    tree_util,
)
from fxgrad.analyses.traffic import traffic
from fxgrad.api.axis_types import auto_axes, explicit_axes, reshard
from fxgrad.api.batching import vmap
from fxgrad.api.budgets import budget_curve
from fxgrad.api.callbacks import io_callback, pure_callback
from fxgrad.api.closures import closure_convert, custom_gradient
from fxgrad.api.compiled import jit
from fxgrad.api.custom import custom_jvp, custom_vjp
from fxgrad.api.device_maps import pmap
from fxgrad.api.devices import (
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
from fxgrad.api.eager import ensure_compile_time_eval
from fxgrad.api.forward import jvp, linearize
from fxgrad.api.jacobians import hessian, hvp, jacfwd, jacobian, jacrev, value_and_jacobian
from fxgrad.api.lowering import stablehlo
from fxgrad.api.naming import named_call, named_scope
from fxgrad.api.nans import debug_infs, debug_nans
from fxgrad.api.passes import fwd_and_bwd
from fxgrad.api.policies import policy_report
from fxgrad.api.programs import eval_shape, make_program
from fxgrad.api.residuals import checkpoint, checkpoint_name, print_saved_residuals, saved_residuals, stop_gradient
from fxgrad.api.reverse import grad, linear_transpose, value_and_grad, vjp
from fxgrad.api.settings import default_matmul_precision, enable_x64
from fxgrad.api.sharded import shard_map
from fxgrad.api.switches import disable_jit
from fxgrad.api.types import ShapeDtypeStruct, typeof
from fxgrad.caches import clear_caches
from fxgrad.config import default_dtype, set_default_dtype
from fxgrad.core.arrays import Array
from fxgrad.core.interpreter import Interpreter
from fxgrad.core.primitive import NO_TANGENT, NOT_LINEAR, TODO, Cost, Primitive
from fxgrad.core.program import Equation, Program, Var
from fxgrad.core.regions import Links, Region
from fxgrad.derivation.simplify import simplify
from fxgrad.interop import from_jax, import_jaxpr, to_jax
from fxgrad.lax import associative_scan, cond, fori_loop, map, scan, switch, while_loop  # noqa: A004  (jax's name)
from fxgrad.ops.space import instantiate
from fxgrad.pytorch_names import of_module as _of_module
from fxgrad.sharding import NamedSharding, P, set_mesh
from fxgrad.show import parse, unfold
from fxgrad.tracing.tape import bind

if _TYPE_CHECKING:
    from fxgrad.api.buckets import bucketed
    from fxgrad.benchmarking import benchmark
    from fxgrad.editing.extracting import extract
    from fxgrad.editing.rewriting import rewrite
    from fxgrad.explorer import explore
    from fxgrad.exports import export
    from fxgrad.files import load, save
    from fxgrad.granularity.comparison import granularities
    from fxgrad.granularity.folding import fold
    from fxgrad.granularity.scalarize import scalarize
    from fxgrad.granularity.summary import summary
    from fxgrad.graphs import Param, explain_backward, gradients_on_nodes, graph, path_costs, paths, roles
    from fxgrad.nan_origins import explain_nan
    from fxgrad.ode import odeint
    from fxgrad.pictures import draw
    from fxgrad.precision.autocast import autocast
    from fxgrad.precision.report import precision_report
    from fxgrad.retracing.watching import explain, explaining
    from fxgrad.safe_derivatives import safe
    from fxgrad.simulation import simulate
    from fxgrad.specs import spec
    from fxgrad.stable import lint, stabilise
    from fxgrad.stochastic import straight_through
    from fxgrad.xray.costs import cost
    from fxgrad.xray.memory import memory

float0 = dtypes.float0
make_jaxpr = make_program
remat = checkpoint
__version__ = "0.1.0"

__all__ = [
    "Array", "Cost", "Equation", "Interpreter", "Links", "NOT_LINEAR", "NO_TANGENT", "NamedSharding", "P", "Param",
    "Primitive", "Program", "Region", "ShapeDtypeStruct", "TODO", "Var", "ad_checkpoint", "associative_scan",
    "auto_axes", "autocast", "autocast_policies", "benchmark", "bind", "block_until_ready", "bucketed", "budget_curve",
    "checkpoint", "checkpoint_name", "checkpoint_policies", "clear_caches", "closure_convert", "cond", "config",
    "cost", "custom_batching", "custom_derivatives", "custom_gradient", "custom_jvp", "custom_vjp", "debug",
    "debug_infs", "debug_nans", "default_backend", "default_dtype", "default_matmul_precision", "device_count",
    "device_get", "device_put", "devices", "disable_jit", "distributions", "draw", "dtypes", "enable_x64",
    "ensure_compile_time_eval", "errors", "eval_shape", "executors", "experimental", "explain", "explain_backward",
    "explain_nan", "explaining", "explicit_axes", "explore", "export", "extract", "flatten_util", "float0", "fold",
    "fori_loop", "from_jax", "fwd_and_bwd", "grad", "gradients_on_nodes", "granularities", "graph", "hessian", "hvp",
    "image", "import_jaxpr", "instantiate", "interop", "io_callback", "jacfwd", "jacobian", "jacrev", "jit", "jvp",
    "lax", "linear_transpose", "linearize", "lint", "load", "local_device_count", "local_devices", "loss_scaling",
    "make_array_from_callback", "make_array_from_process_local_data", "make_array_from_single_device_arrays",
    "make_jaxpr", "make_mesh", "make_program", "map", "memory", "named_call", "named_scope", "nn", "numpy", "odeint",
    "onnx", "optim", "parse", "path_costs", "paths", "pmap", "policy_report", "precision_report",
    "print_saved_residuals", "process_count", "process_index", "pure_callback", "random", "remat", "reshard",
    "rewrite", "roles", "safe", "save", "saved_residuals", "scalarize", "scan", "scipy", "segment",
    "set_default_dtype", "set_mesh", "shard_map", "sharding", "show", "simplify", "simulate", "spec", "stabilise",
    "stablehlo", "stages", "stochastic", "stop_gradient", "straight_through", "summary", "switch", "test_util",
    "testing", "to_jax", "traffic", "tree", "tree_util", "typeof", "typing", "unfold", "value_and_grad",
    "value_and_jacobian", "vjp", "vmap", "while_loop"]


_LATER = {
    "autocast": "precision.autocast", "benchmark": "benchmarking", "bucketed": "api.buckets", "cost": "xray.costs",
    "draw": "pictures", "explain": "retracing", "explain_backward": "graphs", "explain_nan": "nan_origins",
    "explaining": "retracing", "explore": "explorer", "export": "exports", "extract": "editing.extracting",
    "fold": "granularity.folding", "gradients_on_nodes": "graphs", "granularities": "granularity.comparison",
    "graph": "graphs", "lint": "stable", "load": "files", "memory": "xray.memory", "odeint": "ode",
    "Param": "graphs", "path_costs": "graphs", "paths": "graphs", "precision_report": "precision.report",
    "rewrite": "editing.rewriting", "roles": "graphs", "safe": "safe_derivatives", "save": "files",
    "scalarize": "granularity.scalarize", "simulate": "simulation", "spec": "specs", "stabilise": "stable",
    "straight_through": "stochastic", "summary": "granularity.summary"}
"""Where names are that are imported when they are first asked for: who only computes does not wait for pictures."""
_LATER_MODULES = {
    "ad_checkpoint", "autocast_policies", "benchmarking", "distributions", "editing", "experimental", "explorer", "ffi",
    "granularity", "graphs", "loss_scaling", "onnx", "optim", "pictures", "retracing", "simulation", "stable", "stages",
    "stochastic", "test_util", "typing", "xray"}


def __getattr__(name: str) -> _Any:
    if name in _LATER_MODULES:
        return _import_module(f"fxgrad.{name}")
    if name not in _LATER:
        return _of_module("fxgrad")(name)
    found = globals()[name] = getattr(_import_module(f"fxgrad.{_LATER[name]}"), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]  # so that completion shows no modules of the inside
