"""`fxgrad.extend`, the public interface for transformations, analyses, exporters and pictures of programs.

The engine below it records, transforms and runs programs; tools above it inspect programs, change or ship them. The
project's own tools import these names and the public API, and nothing else of the engine. Names are stable: changes to
them are in the changelog. docs/appendix/extend.md describes each.

Modules hold what few tools need: `analyses` (costs, memory, traffic), `sizes` (symbolic sizes), `kernels` (NumPy code
of operations), `parameters` (records that operations have as parameters), `formulas` (series and constants of
kernels), `tracing` (traces as they happen).
"""

from fxgrad.engine.caches import Cache, cached
from fxgrad.engine.core.analysis import Analysis, Collection, Known, Place, State, all_analyses
from fxgrad.engine.core.arrays import Integer
from fxgrad.engine.core.avals import Aval, FoldedConstant, Literal
from fxgrad.engine.core.cache_keys import StructuralKey, cache_key
from fxgrad.engine.core.interpreter import Interpreter
from fxgrad.engine.core.primitive import (
    NO_TANGENT,
    NOT_LINEAR,
    RULES,
    TODO,
    Cost,
    MissingRule,
    Primitive,
    infer_types,
    output_types,
)
from fxgrad.engine.core.program import (
    COTANGENT,
    PRIMAL,
    TANGENT,
    TRANSPOSED,
    Atom,
    ControlFlowPath,
    Equation,
    Program,
    Provenance,
    Signature,
    Source,
    Variable,
    inner_first,
    join_scopes,
    require_program,
)
from fxgrad.engine.core.program_properties import (
    ProgramAttribute,
    definitions,
    is_effectful,
    memoize,
    program_property,
)
from fxgrad.engine.core.regions import Link, Links, Region, region_roles, replace_programs
from fxgrad.engine.core.sources import at_source
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.core.walk import eval_program, pull_back_steps
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.derivation.simplify import (
    MERGED_VARIABLES,
    live_equations,
    merge_equal_equations,
    remove_dead_code,
    simplify,
    simplify_for_display,
)
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.calling import require_all_paths, trace_program, trace_with_values
from fxgrad.engine.frontend.flat import (
    NoValues,
    Transformation,
    argument_aval,
    leaf_aval,
    parameter_names,
    require_function,
    title_of,
    transformation,
)
from fxgrad.engine.frontend.mismatches import ExpectedArguments
from fxgrad.engine.higher_order.call import library_function
from fxgrad.engine.higher_order.transformed_rules import RuleTransform, transform_rule
from fxgrad.engine.ops import families
from fxgrad.engine.ops.pointwise import operation
from fxgrad.engine.ops.structural import convert, instantiate_zeros
from fxgrad.engine.parallel.shard_map import drop_devices, region_scope
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.apply import apply_program as apply
from fxgrad.engine.tracing.provenance import CALL_NAMES, CAPTURED_VALUES, RETURNED, TAGS, CallNames
from fxgrad.engine.tracing.tape import bind, bind_equation
from fxgrad.engine.tracing.tracer import Tracer, aval_of
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.transforms.joint import record_joint
from fxgrad.engine.transforms.linearize import linearize_program
from fxgrad.engine.units import bytes_text, count_text, time_text
from fxgrad.engine.user_lines import at_user_line, file_name, function_name, user_location
from fxgrad.engine.user_source import copy_tree, parse_source, source_line, source_lines
from fxgrad.extend.registry import primitives

__all__ = [
    "Analysis", "Atom", "Aval", "CALL_NAMES", "CAPTURED_VALUES", "COTANGENT", "Cache", "CallNames", "Collection",
    "ControlFlowPath", "Cost", "DType", "Derived", "Equation", "ExpectedArguments", "FoldedConstant", "Integer",
    "Interpreter", "Known", "Link", "Links", "Literal", "MERGED_VARIABLES", "MissingRule", "NOT_LINEAR", "NO_TANGENT",
    "NoValues", "PRIMAL", "Place", "Primitive", "Program", "ProgramAttribute", "Provenance", "RETURNED", "RULES",
    "Region",
    "RuleTransform", "Signature", "Source", "State", "StructuralKey", "TAGS", "TANGENT", "TODO", "TRANSPOSED", "Tracer",
    "Transformation", "Variable", "Zero", "all_analyses", "apply", "argument_aval", "at_source", "at_user_line",
    "aval_of", "bind", "bind_equation", "bytes_text", "cache_key", "cached", "convert", "copy_tree", "count_text",
    "definitions", "derive", "drop_devices", "eval_program", "families", "file_name", "function_name", "has_tangent",
    "hide_frames", "infer_types", "inner_first", "instantiate_zeros", "is_effectful", "join_scopes", "leaf_aval",
    "library_function", "linearize_program", "live_equations", "memoize", "merge_equal_equations", "operation",
    "output_types", "parameter_names", "parse_source", "primitives", "program_property", "pull_back_steps",
    "record_joint", "region_roles", "region_scope", "remove_dead_code", "replace_programs", "require_all_paths",
    "require_function", "require_program", "simplify", "simplify_for_display", "source_line", "source_lines",
    "time_text", "title_of", "trace_program", "trace_with_values", "transform_rule", "transformation", "user_location"]
