"""Emit programs into a jax trace, so that jax runs them and fxgrad's rules differentiate them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from fxgrad.engine import dtypes
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval, keys_to_jax
from fxgrad.engine.core.primitive import NO_TANGENT, registry
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.program_properties import ProgramAttribute, needs_x64, program_property
from fxgrad.engine.executors.xla import as_varying, emit, run_compiled, weaken_jax_outputs, x64
from fxgrad.engine.transforms.batch import batched_program
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.transforms.linearize import linearize_program
from fxgrad.engine.transforms.transpose import transpose_program
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ProgramError, UnsupportedError
from fxgrad.interop.manual import bind_mesh_around, struct_for_jax, type_in_jax


def apply_in_jax(program: Program, values: Sequence[Any], linear: bool = False) -> list[Any]:
    """Return the outputs of `program` in the current trace of jax, on values of jax or NumPy.

    A program that is `linear` in tangents is emitted so that jax can transpose it as fxgrad does. (For a `custom_jvp`
    jax would transpose the body, and cannot transpose loops of unknown length, or tangents of which only a backward
    pass is known.)
    """
    with x64(needs_x64(program)):
        given = [as_varying(jnp.asarray(keys_to_jax(value), None if dtypes.is_key(aval.dtype) else aval.dtype), aval)
                 for value, aval in zip(values, program.in_avals, strict=True)]
        if linear and not _is_differentiable_by_jax(program):
            places = jax.make_jaxpr(lambda *values: emit(program, values))(*given) if _names_devices(program) else None
            outputs: list[Any] = linear_p.bind(*given, program=program, places=places)
            return outputs
        function = _FUNCTION.of(program)  # with a rule if jax's derivative would differ
        if function is None:
            def fxgrad_program(*values: Any) -> list[Any]:  # this name appears in jaxprs
                return emit(program, values)

            function = _FUNCTION.put(program, fxgrad_program if _is_differentiable_by_jax(program) else _with_rule(
                program, fxgrad_program))
        return function(*given)


def apply_with_own_derivative(program: Program, values: Sequence[Any]) -> list[Any] | None:
    """Return the outputs of `program` on tracers of jax's; None if jax would differentiate it as fxgrad does."""
    if _is_differentiable_by_jax(program):
        return None
    return weaken_jax_outputs(program.out_avals, apply_in_jax(program, values))


_FUNCTION: ProgramAttribute[Callable[..., list[Any]]] = ProgramAttribute("function of jax's")


def _with_rule(program: Program, emitted: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return `emitted` with fxgrad's derivative of `program`: a known part, and a part linear in the tangents.

    Both are programs that are exported in turn, so that jax may differentiate the first again, and transpose the
    second.
    """
    function: Any = jax.custom_jvp(emitted)

    def fxgrad_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        moving = [has_tangent(aval) and not isinstance(tangent, SymbolicZero)
                  for aval, tangent in zip(program.in_avals, tangents, strict=True)]
        return emit_jvp(program, primals, tangents, moving)

    function.defjvp(fxgrad_rule, symbolic_zeros=True)
    return function


def emit_jvp(program: Program, primals: Sequence[Any], tangents: Sequence[Any], moving: Sequence[bool],
             ) -> tuple[list[Any], list[Any]]:
    """Return the outputs of `program` and their tangents, as operations of jax."""
    with bind_mesh_around():
        try:
            known = linearize_program(program, tuple(moving))
        except ProgramError as error:
            if all(type(size) is int for aval in program.in_avals for size in aval.shape):
                raise
            # Rules record programs for the sizes of jax's that they meet, which fxgrad cannot compare with its own.
            raise UnsupportedError(at_user_line(
                "export: the derivative of the function has no form for sizes that vary. Export the gradient, grad(f), "
                "or for sizes that are numbers")) from error
    results = apply_in_jax(known.program, [*known.captured, *primals])
    outputs, residuals = results[:len(program.outputs)], results[len(program.outputs):]
    linear, reached = known.extra
    present = [tangent for tangent, moves in zip(tangents, moving, strict=True) if moves]
    found = iter(apply_in_jax(linear, [*residuals, *present], linear=True))
    return outputs, [next(found) if there else _zero_tangent(aval)
                     for aval, there in zip(program.out_avals, reached, strict=True)]


def _zero_tangent(aval: Aval) -> Any:
    if not has_tangent(aval):
        return np.zeros(aval.shape, dtypes.float0)
    return as_varying(jnp.zeros(aval.shape, aval.dtype), aval)


# --- linear programs that jax does not transpose as fxgrad does ------------------------------------------------------

linear_p: Any = Primitive("fxgrad_linear")
"""A linear program as one operation of jax's, with fxgrad's derivatives, transposes and batches.

If the program names its devices, `places` is what it is lowered to, since jax looks for meshes there.
"""
linear_p.multiple_results = True


def _abstract(*_: Any, program: Program, **__: Any) -> list[Any]:
    structs = map(struct_for_jax, program.out_avals)
    return [type_in_jax(aval.strong()) if aval.vma else jax.core.ShapedArray(struct.shape, struct.dtype)
            for struct, aval in zip(structs, program.out_avals, strict=True)]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, **_: Any) -> tuple[list[Any], list[Any]]:
    return emit_jvp(program, primals, tangents, [type(tangent) is not ad.Zero for tangent in tangents])


def _transpose(cotangents: Sequence[Any], *inputs: Any, program: Program, **_: Any) -> list[Any]:
    linear = tuple(map(ad.is_undefined_primal, inputs))
    with bind_mesh_around():
        back = transpose_program(program, linear)
    given = [_zero_tangent(aval) if type(cotangent) is ad.Zero else cotangent
             for cotangent, aval in zip(cotangents, program.out_avals, strict=True)]
    known = [value for value, marked in zip(inputs, linear, strict=True) if not marked]
    found = iter(apply_in_jax(back.program, [*back.captured, *known, *given], linear=True))
    return [next(found) if marked else None for marked in linear]


def _batch(values: Sequence[Any], axes: Sequence[int | None], *, program: Program, **_: Any,
           ) -> tuple[list[Any], list[int]]:
    size = next(value.shape[axis] for value, axis in zip(values, axes, strict=True) if axis is not None)
    with bind_mesh_around():
        batch = batched_program(program, size, tuple(axes))
    outputs = apply_in_jax(batch.program, [*batch.captured, *values], linear=True)
    return outputs, [0] * len(outputs)


@program_property
def _names_devices(program: Program) -> bool:
    """Return whether an operation of `program` has a parameter that names the devices it runs on."""
    return any("mesh" in equation.params or any(map(_names_devices, equation.programs))
               for equation in program.equations)


linear_p.def_impl(lambda *values, program, **_: run_compiled(program, values))
linear_p.def_abstract_eval(_abstract)
mlir.register_lowering(linear_p, mlir.lower_fun(
    lambda *values, program, **_: emit(program, values), multiple_results=True))
ad.primitive_jvps[linear_p] = _jvp
ad.primitive_transposes[linear_p] = _transpose
batching.primitive_batchers[linear_p] = _batch


# --- programs that jax differentiates as fxgrad does ------------------------------------------------------------------


@program_property
def _is_differentiable_by_jax(program: Program) -> bool:
    """Return whether jax differentiates all emitted operations of `program` exactly as fxgrad does."""
    return all(map(_is_equation_differentiable_by_jax, program.equations))


def _is_equation_differentiable_by_jax(equation: Equation) -> bool:
    primitive = equation.primitive
    if alike.of(primitive):
        return all(map(_is_differentiable_by_jax, equation.programs))
    return primitive.jvp is NO_TANGENT and not any(has_tangent(var.aval) for var in equation.outputs)


alike: Analysis[bool] = Analysis(
    "alike", "Whether jax differentiates an operation by the same formula at every point: no kinks, no choice.",
    missing="conservative", default=False)
alike.enter(True, *(registry[name] for name in (
    "add", "sub", "mul", "div", "neg", "square", "integer_pow", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log1p",
    "logistic", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asinh", "atan", "erf", "erfc", "real", "imag", "complex",
    "conj", "select_n", "convert_element_type", "broadcast_to", "broadcast_in_dim", "reshape", "transpose", "rev",
    "slice", "pad", "tile", "concatenate", "stack", "split", "unstack", "copy", "name", "reduce_sum", "cumsum",
    "dot_general", "conv_general_dilated", "gather", "scatter_add", "dynamic_slice", "dynamic_update_slice", "fft",
    "optimization_barrier", "jax_call", "named_call", "jit_call"
)))
