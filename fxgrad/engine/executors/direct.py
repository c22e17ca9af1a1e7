"""Values and gradients of new and of long programs, computed equation by equation without making a gradient program.

Making a gradient program and generating code for it takes as long as many runs. A new program may run once, and one of
thousands of operations, such as the trace of a Python loop, a few times only, or differ at every call. The `VjpRule` of
each operation (`engine/transforms/joint.py`) has compiled code of its own, which runs at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress
from typing import Any

import numpy as np

from fxgrad.engine.core.arrays import OWN, as_numpy, freeze_result
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import NO_TANGENT
from fxgrad.engine.core.program import Program, Variable
from fxgrad.engine.core.program_properties import ProgramAttribute
from fxgrad.engine.core.walk import BackwardStep, pull_back_steps
from fxgrad.engine.derivation.derive import gc_paused
from fxgrad.engine.derivation.simplify import live_equations, merge_equal_equations
from fxgrad.engine.derivation.simplifying import Template
from fxgrad.engine.executors.numpy import (
    as_arrays,
    call,
    copy_borrowed,
    has_run,
    run_reference,
    runner_of,
    weaken_outputs,
)
from fxgrad.engine.executors.silence import silence_warnings
from fxgrad.engine.executors.straightline import as_kernel_operand
from fxgrad.engine.ops.below_byte import WIDER
from fxgrad.engine.ops.products import dot_general_p
from fxgrad.engine.ops.structural import broadcast_to_p, has_weak_cotangent
from fxgrad.engine.transforms.joint import VjpRule, may_have_rule, simplify_once, vjp_rule_of

LONG = 1000
"""The number of equations from which several runs of a program are direct, and those of `vjp`."""
MAX_COMPILED_EQUATIONS = 20_000
"""The number of equations from which all runs are direct."""
MAX_BYTES = 2**22
"""The bytes of all values of a short program up to which its first run is direct, for that keeps every value."""
TIMES, TIMES_OF_LONG = 1, 3
"""How often a short and a long program run directly before a gradient program is made."""
_TIMES_RUN: ProgramAttribute[int] = ProgramAttribute("times run directly")

Run = Callable[..., Sequence[Any]]
_aval = operator.attrgetter("aval")


def gradients(program: Program, wrt: Sequence[bool], inputs: Sequence[Any], computed: int = 0,
              ) -> tuple[list[Any], list[Any]] | None:
    """Return the outputs of `program`, and the gradients of the first one in the inputs that `wrt` marks.

    Returns None if the program was run directly often enough, or has operations without a `VjpRule`. The first
    `computed` equations of a long program have been computed; they are computed again.
    """
    holds_arrays = _holds_arrays(inputs)
    if holds_arrays and len(program.equations) < LONG and any(var.aval.weak for var in compress(program.inputs, wrt)):
        return None  # the type of a gradient program says whether the gradient in a number is a number or an `Array`
    with gc_paused():
        chosen = _program_to_run(program, computed)
        if chosen is None:
            return None
        given = _plain_values(inputs)
        found = _run_both_ways(chosen, wrt, given)
    if found is None:
        return None
    outputs, slopes = found
    results = copy_borrowed([*outputs, *slopes], range(len(outputs) + len(slopes)), given)
    outputs = weaken_outputs(program, results[:len(outputs)])
    if not holds_arrays:
        return outputs, results[len(outputs):]
    return as_arrays(program, outputs), [*map(freeze_result, results[len(outputs):])]


@silence_warnings
def _run_both_ways(program: Program, wrt: Sequence[bool], inputs: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
    """Return the outputs of `program`, and the gradients of the first one; None as for `_run_forward`."""
    found = _run_forward(program, wrt, inputs)
    if found is None:
        return None
    outputs, active, steps = found
    # Steps are removed from the last to the first: the residuals of each are freed when the next is requested.
    steps.insert(0, _FIRST)
    return outputs, _gradients(program, wrt, active, iter(steps.pop, _FIRST), [1.0, *[None] * (len(outputs) - 1)])


def eager_vjp(program: Program, wrt: Sequence[bool], inputs: Sequence[Any], computed: int = 0) -> EagerVjp | None:
    """Run `program`, and return its outputs and residuals for the pullback; None as for `gradients`."""
    with gc_paused():
        chosen = _program_to_run(program, computed)
        if chosen is None:
            return None
        given = [np.array(value) if type(value) is np.ndarray else value for value in _plain_values(inputs)]
        found = silence_warnings(_run_forward)(chosen, wrt, given)
    return None if found is None else EagerVjp(
        chosen, wrt, [*map(freeze_result, given)] if _holds_arrays(inputs) else given, *found)


def _plain_values(inputs: Sequence[Any]) -> list[Any]:
    """Return the values that kernels compute with."""
    return [as_numpy(as_kernel_operand(value)) for value in inputs]


def _holds_arrays(values: Sequence[Any]) -> bool:
    """Return whether an `Array` is among them, so that results are `Array`s."""
    return any(type(value) in OWN for value in values)


class EagerVjp:
    """A program that was run, with the residuals for any number of pullbacks.

    `inputs` and `outputs` are copies, since they may be residuals, and callers may write to their own arrays.
    """

    __slots__ = ("_active", "_program", "_steps", "_wrt", "inputs", "outputs")

    def __init__(self, program: Program, wrt: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Any],
                 active: set[Any], steps: list[_Step]) -> None:
        self._program, self._wrt, self.inputs, self._active, self._steps = program, wrt, inputs, active, steps
        outputs = weaken_outputs(program, [np.array(value)[()] for value in outputs])
        self.outputs = as_arrays(program, outputs) if _holds_arrays(inputs) else outputs

    @property
    def length(self) -> int:
        """Return the number of operations in the pullback."""
        return len(self._steps)

    def pullback(self, cotangents: Sequence[Any]) -> list[Any]:
        """Return the cotangents of the marked inputs, given those of the outputs (None for zero)."""
        given = [None if value is None else as_numpy(as_kernel_operand(value)) for value in cotangents]
        with gc_paused():
            found = silence_warnings(_gradients)(
                self._program, self._wrt, self._active, reversed(self._steps), given)
        slopes = copy_borrowed(found, range(len(found)), [*given, *self.inputs])
        if not _holds_arrays([*self.inputs, *cotangents]):
            return slopes
        outputs = self._program.out_avals
        return [slope if has_weak_cotangent(aval, outputs) else freeze_result(slope)
                for aval, slope in zip(compress(self._program.in_avals, self._wrt), slopes, strict=True)]


def _program_to_run(program: Program, computed: int) -> Program | None:
    """Return the program to run for `program`; None if it ran directly often enough, or an operation has no rule."""
    size = len(program.equations)
    is_long = size >= LONG
    if (computed and not is_long) or not _may_run(program, is_long):
        return None  # computed values would be computed again
    if size >= MAX_COMPILED_EQUATIONS:
        return program
    times = _TIMES_RUN.put(program, (_TIMES_RUN.of(program) or 0) + 1)
    if times > (TIMES_OF_LONG if is_long else TIMES):
        return None
    # Simplified as a gradient program is, so that sums are equal bit for bit.
    return merge_equal_equations(program) if computed else simplify_once(program)


def _may_run(program: Program, is_long: bool) -> bool:
    """Return whether all operations of `program` have rules and nothing but values, of dtypes that NumPy computes with.

    Those of a short one must call no user code and make at most `MAX_BYTES` of values. All is read in one pass, since
    most programs are new.
    """
    num_bytes = nbytes = 0
    last: Aval | None = None  # mostly that of the next variable, too
    for var in program.inputs:
        if var.aval.dtype.kind == "V" and var.aval.dtype in WIDER:
            return False
    for equation in program.equations:
        primitive = equation.primitive
        if not may_have_rule(equation) or primitive.effectful or (primitive.calls_user_code and not is_long):
            return False
        for var in equation.outputs:
            aval = var.aval
            if aval is not last:
                if aval.dtype.kind == "V" and aval.dtype in WIDER:
                    return False
                last, nbytes = aval, aval.nbytes
            num_bytes += nbytes
    return is_long or num_bytes <= MAX_BYTES


def _run_forward(program: Program, wrt: Sequence[bool], inputs: Sequence[Any],
                 ) -> tuple[list[Any], set[Any], list[_Step]] | None:
    """Return the outputs, the variables that depend on the marked inputs, and the steps, the first operation first."""
    values: dict[Any, Any] = dict(zip(program.inputs, inputs, strict=True))
    active: set[Any] = {var for var, marked in zip(program.inputs, wrt, strict=True) if marked}
    steps: list[_Step] = []
    is_active, value_of = active.__contains__, values.__getitem__
    for equation in live_equations(program):
        operands, variables = equation.inputs, equation.outputs
        if active.isdisjoint(operands) or equation.primitive.jvp is NO_TANGENT:
            known = [atom.value if type(atom) is Literal else values[atom] for atom in operands]
            outputs: Sequence[Any] = equation.primitive.numpy(*known, **equation.params)
        else:
            given: list[Any] = operands
            if len(operands) > 2 or operands[0] is operands[-1] or Literal in map(type, operands):
                given = [atom for atom in dict.fromkeys(operands) if type(atom) is Variable]
            marks = [*map(is_active, given)]
            rule = vjp_rule_of(equation, given, [*map(_aval, given)], marks)
            if rule is None:
                return None
            code = rule.forward.code or _code(rule.forward)
            outputs = code(*map(value_of, given))
            residuals = outputs[len(variables):]
            moving = variables if rule.all_nonzero else [*compress(variables, rule.nonzero_outputs)]
            active.update(moving)
            steps.append((moving, given if False not in marks else [*compress(given, marks)], rule, residuals))
        if len(variables) == 1:
            values[variables[0]] = outputs[0]
        else:
            values.update(zip(variables, outputs))  # noqa: B905  (residuals may follow)
    outputs = [atom.value if type(atom) is Literal else values[atom] for atom in program.outputs]
    return outputs, active, steps


_Step = tuple[list[Variable], list[Any], VjpRule, Sequence[Any]]
"""The outputs of an operation that may have cotangents, the operands that receive them, its rule, its residuals."""
_FIRST: Any = None
"""What stands before the first step while steps are removed."""


def _gradients(program: Program, wrt: Sequence[bool], active: set[Any], steps: Iterable[_Step],
               cotangents: Sequence[Any]) -> list[Any]:
    sums: dict[Any, Any] = {}
    typed = [np.asarray(cotangent, atom.aval.dtype)[()] if cotangent is not None and atom in active else None
             for atom, cotangent in zip(program.outputs, cotangents, strict=True)]
    pull_back_steps(sums, program.outputs, typed, _backward_steps(sums, steps), operator.add)
    return [sums[var] if var in sums else np.zeros(var.aval.shape, var.aval.dtype)[()]
            for var, marked in zip(program.inputs, wrt, strict=True) if marked]


def _backward_steps(sums: dict[Any, Any], steps: Iterable[_Step]) -> Iterator[BackwardStep]:
    """Yield the pullback of each step with cotangents in `sums`; it depends on which outputs have one."""
    for outputs, operands, rule, residuals in steps:
        if len(outputs) == 1:  # the most frequent case
            if outputs[0] not in sums:
                continue
            arriving = outputs
            template, nonzero = rule.of_one or rule.backward_of_one(outputs[0].aval)
        else:
            arriving = [var for var in outputs if var in sums]
            if not arriving:
                continue
            template, nonzero = rule.backward(tuple([var.aval if var in sums else None for var in outputs]))
        yield (arriving, operands if False not in nonzero else [*compress(operands, nonzero)],
               partial(template.code or _code(template), *residuals))


def _code(template: Template) -> Run:
    """Return a function of the operands that runs a template: interpreted at its first use, then by generated code.

    Generated code stores repeated elements in row-major order, which sets the order of sums that are taken of them
    later; a gradient program has no such array where the other operand of an operation repeats the elements. So they
    stay views here, as kernels make them, and products take kernels too, which store repeated elements.
    """
    run: Run | None = template.code
    if run is None:
        program = template.program
        captured = [as_kernel_operand(value) for value in template.captured]
        if not has_run(program):
            return lambda *operands: call(program, [*captured, *operands])
        takes_kernels = any(equation.primitive in _BY_KERNELS for equation in program.equations)
        inner: Run = partial(_run_kernels, program) if takes_kernels else runner_of(program)
        run = template.code = (lambda *operands: inner(*captured, *operands)) if captured else inner
    return run


_BY_KERNELS = {broadcast_to_p, dot_general_p}


def _run_kernels(program: Program, *operands: Any) -> Sequence[Any]:
    return run_reference(program, operands)
