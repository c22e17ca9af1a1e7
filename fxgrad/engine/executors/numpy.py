"""Computing with NumPy: a plain interpreter of the kernels, and straight-line Python code generated from programs.

A program seen for the first time is interpreted, unless it computes large arrays. From its second run on, generated
code runs, which calls the same kernels in the same order, so the results are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from fxgrad.engine import config
from fxgrad.engine.core.arrays import freeze_result, make_weak
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive, infer_types
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.program_properties import ProgramAttribute, program_property
from fxgrad.engine.core.walk import eval_program, value_of
from fxgrad.engine.derivation.simplify import live_equations
from fxgrad.engine.executors.silence import silence_warnings
from fxgrad.engine.executors.straightline import as_kernel_operand, generate
from fxgrad.engine.ops.below_byte import has_below_byte, kernel_for, kernel_in_bytes
from fxgrad.engine.ops.strong import is_finite
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import add_user_line
from fxgrad.errors import FxgradError

Runner = Callable[..., list[Any]]

_RUNNER: ProgramAttribute[Runner] = ProgramAttribute("runner")
_ALONE: ProgramAttribute[Runner] = ProgramAttribute("runner of a program that is no part of another one")
_HAS_RUN: ProgramAttribute[bool] = ProgramAttribute("has run")


def evaluate(primitive: Primitive, args: Sequence[Any], params: dict[str, Any], below_byte: bool = False) -> list[Any]:
    """Compute one primitive on NumPy values; illegal operands get the error of the abstract rule.

    `below_byte` is set if some have dtypes that NumPy cannot compute with.
    """
    values = [as_kernel_operand(arg) for arg in args]
    kernel = kernel_in_bytes(primitive) if below_byte else primitive.numpy
    try:
        with np.errstate(all="ignore"):
            outputs: list[Any] = kernel(*values, **params)
    except FxgradError as error:
        raise add_user_line(error)  # noqa: B904  (the same error)
    except Exception:
        infer_types(primitive, [aval_of(value) for value in values], params)
        raise
    return outputs


def execute(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Run a program on NumPy values; the results share no memory with an input or with another result."""
    runner: Runner | None = program.attributes.get(_ALONE)
    if runner is not None:
        return runner(*inputs)
    with np.errstate(all="ignore"):
        outputs = call(program, inputs)
    return weaken_outputs(program, copy_borrowed(outputs, range(len(outputs)), inputs))


def call(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Run a program on NumPy values, as part of another one: results may be views of inputs."""
    runner: Runner | None = program.attributes.get(_RUNNER)
    if runner is not None:
        return runner(*inputs)
    if has_run(program) or (_is_large(program) and config.check_level < 2):
        return runner_of(program)(*inputs)
    _HAS_RUN.put(program, True)
    return run_reference(program, inputs)


def _is_large(program: Program) -> bool:
    """Return whether generated code pays at once: the reference keeps all values, and large ones in new memory."""
    equations = program.equations
    return sum(var.aval.size for equation in equations for var in equation.outputs) > _LARGE * len(equations)


_LARGE = 1 << 16
"""Elements for each equation from which on its kernel takes longer than its code takes to be generated."""


def has_run(program: Program) -> bool:
    """Return whether `call` ran the program, and so will generate code for it, or did."""
    return bool(_HAS_RUN.of(program))


def copy_borrowed(outputs: list[Any], borrowed: Iterable[int], inputs: Sequence[Any]) -> list[Any]:
    """Return `outputs` as results: those at `borrowed` are copied if they share memory.

    Kernels may return an operand, or a view of one. Views are recognized by their base, constants by being read-only.
    Arrays of shape () become NumPy scalars.
    """
    for index in borrowed:
        value = outputs[index]
        if type(value) is np.ndarray:
            if not value.shape:
                outputs[index] = value[()]
            elif value.base is not None or not value.flags.writeable or _is_among(value, inputs) or _is_among(
                    value, outputs[:index]) or _is_among(value, outputs[index + 1:]):
                outputs[index] = value.copy()
    return outputs


@program_property
def _weak_outputs(program: Program) -> tuple[int, ...]:
    """Return the positions of the weak outputs that are no floats (weak floats need no conversion)."""
    places = []
    for index, atom in enumerate(program.outputs):
        aval = atom.aval
        if aval.weak and (aval.shape or aval.dtype not in (np.float64, np.complex128)):
            places.append(index)
    return tuple(places)


def weaken_outputs(program: Program, outputs: list[Any]) -> list[Any]:
    """Return the first of `outputs`, those of `program`, as weakly typed as the program declares."""
    for index in _weak_outputs(program):
        outputs[index] = make_weak(outputs[index])
    return outputs


def as_arrays(program: Program, outputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of `program` as `Array`s; weak numbers stay numbers."""
    return [output if atom.aval.weak else freeze_result(output) for atom,
            output in zip(program.outputs, outputs, strict=True)]


def _is_among(value: Any, others: Sequence[Any]) -> bool:
    for other in others:  # noqa: SIM110  (a generator takes longer to begin than most of these to end)
        if value is other:
            return True
    return False


def run_reference(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Run the kernels one by one: the reference."""
    return eval_program(program, [*map(as_kernel_operand, inputs)], step_of(program), value_of,
                        live_equations(program))


def step_of(program: Program) -> Callable[[Equation, list[Any]], list[Any]]:
    """Return the function that runs an equation of `program`; at check level 2 it verifies the results."""
    return _run_checked if config.check_level >= 2 else _run_in_bytes if has_below_byte(program) else _run_kernel


def _run_kernel(equation: Equation, values: list[Any]) -> list[Any]:
    outputs: list[Any] = equation.primitive.numpy(*values, **equation.params)
    return outputs


def _run_in_bytes(equation: Equation, values: list[Any]) -> list[Any]:
    outputs: list[Any] = kernel_for(equation)(*values, **equation.params)
    return outputs


def _run_checked(equation: Equation, values: list[Any]) -> list[Any]:
    outputs = _run_in_bytes(equation, values)
    _check_values(equation, outputs)
    return outputs


def _check_values(equation: Equation, outputs: Sequence[Any]) -> None:
    for var, output in zip(equation.outputs, outputs, strict=True):
        if np.shape(output) != var.aval.shape or output.dtype != var.aval.dtype:
            raise AssertionError(
                f"the numpy rule of {equation.primitive} returned {output.dtype}{list(np.shape(output))}, "
                f"where its abstract rule gives {var.aval}; this is a bug in the primitive")


# --- generated code ---------------------------------------------------------------------------------------


def runner_of(program: Program) -> Runner:
    """Return the code of a program, as part of another one: results may be inputs, or views of inputs."""
    runner = _RUNNER.of(program)
    if runner is None:
        source, namespace = generate(program)
        exec(compile(source, "<fxgrad>", "exec"), namespace)  # the source is generated here, from names and numbers
        _ALONE.put(program, _main_runner(program, namespace["run"], namespace["borrowed"]))
        runner = _RUNNER.put(program, namespace["run"])
    return runner


def _main_runner(program: Program, runner: Runner, borrowed: Sequence[int]) -> Runner:
    """Return a runner for a program that is no part of another; outputs at `borrowed` may be inputs or views."""
    quietly = silence_warnings(runner)
    if _weak_outputs(program):
        return lambda *inputs: weaken_outputs(program, copy_borrowed(quietly(*inputs), borrowed, inputs))
    if not borrowed:
        return quietly
    return lambda *inputs: copy_borrowed(quietly(*inputs), borrowed, inputs)


def finite_outputs(avals: Sequence[Aval], places: Sequence[int]) -> Callable[[Sequence[Any]], bool]:
    """Return a test whether the arrays at `places` of a list, of types `avals`, are finite.

    Arrays of one dtype and size are multiplied in pairs: one pass over both. A product that is not finite may have
    overflowed, so its factors are then tested separately.
    """
    numbers: list[int] = []
    alike: dict[tuple[Any, int], list[int]] = {}
    others: list[int] = []
    for aval, place in zip(avals, places, strict=True):
        if aval.dtype.kind not in "fc":
            others.append(place)
        elif aval.shape or aval.dtype.kind == "c":
            alike.setdefault((aval.dtype, aval.size), []).append(place)
        else:
            numbers.append(place)
    pairs = [(some[first], some[min(first + 1, len(some) - 1)])
             for some in alike.values() for first in range(0, len(some), 2)]
    vdot = np.vdot

    def are_finite(outputs: Sequence[Any]) -> bool:
        for place in numbers:
            if not isfinite(outputs[place]):
                return False
        for one, other in pairs:
            if not isfinite(vdot(outputs[one], outputs[other]).real) and not (
                    is_finite(outputs[one]) and is_finite(outputs[other])):
                return False
        return not others or all(is_finite(outputs[place]) for place in others)

    return are_finite


def run_first(program: Program, simpler: Program, looked: Sequence[int]) -> None:
    """Run `simpler` in place of `program` until one of the results at the places `looked` is not finite.

    If these are finite, both programs must be equal.
    """
    are_finite = finite_outputs([program.outputs[place].aval for place in looked], looked)

    def run(*inputs: Any) -> list[Any]:
        outputs = execute(simpler, inputs)
        if are_finite(outputs):
            return outputs
        _ALONE.remove(program)
        return execute(program, inputs)

    if _ALONE.of(program) is None:
        _ALONE.put(program, run)
