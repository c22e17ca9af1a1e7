"""`stabilize`: a function, or a program, with stable formulas for naive ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from fxgrad.errors import ArgumentError
from fxgrad.extend import Program, ProgramAttribute, apply, at_user_line, hide_frames, transformation
from fxgrad.extend.tracing import TracedCall, rewrite_before_derivatives, trace_for_rewrite
from fxgrad.tools.numerics.rewriting import captured_numbers, rewrite_forms


@overload
def stabilize(fun: Program) -> Program: ...
@overload
def stabilize(fun: Callable[..., Any]) -> Callable[..., Any]: ...
def stabilize(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fun` computed by formulas that neither overflow nor lose digits where its own do.

    `fun` takes and returns arrays, numbers or containers of them; the result has the same shapes and dtypes. Some fifty
    forms are rewritten, such as log(sum(exp(x))), 1 / (1 + exp(-x)), log(1 - exp(x)), 1 - cos(x), sqrt(x**2 + y**2),
    mean(x**2) - mean(x)**2 and inv(a) @ b, however they are written; docs/appendix/stable-formulas.md lists all rules,
    their domain and their accuracy. Where a form is accurate, its replacement agrees with it to rounding.

    Functions that `fun` differentiates are rewritten before and after differentiation, so that `stabilize(grad(f))` is
    as accurate as `grad(stabilize(f))`. Loops, branches, calls and checkpoints are rewritten too; custom derivative
    rules and complex numbers are left alone. Given a `Program` it returns a program: `program` itself if it has no
    naive form.

    Raises `ArgumentError` for an argument that is neither an array nor a number.

    >>> import fxgrad, numpy as np
    >>> def loss(x):
    ...     return np.log(np.sum(np.exp(x)))
    >>> large = np.array([1000.0, 1000.0])
    >>> round(float(fxgrad.stabilize(loss)(large)), 6)
    1000.693147
    >>> fxgrad.grad(fxgrad.stabilize(loss))(large)
    array([0.5, 0.5])
    >>> fxgrad.stabilize(fxgrad.grad(loss))(large)
    array([0.5, 0.5])
    """
    if isinstance(fun, Program):
        derived = rewrite_forms(fun)
        if derived is None:
            return fun
        if derived.captured:
            raise ArgumentError(at_user_line("stabilize: the program was not closed when it was rewritten"))
        made: Program = derived.program.replace(
            captured=fun.captured, constants=fun.constants, signature=fun.signature)
        return made.check()

    @transformation("stabilize", fun)
    @hide_frames
    def stabilized(*args: Any, **kwargs: Any) -> Any:
        with rewrite_before_derivatives(_rewritten_trace):
            traced, leaves = trace_for_rewrite("stabilize", fun, args, kwargs)
        derived = rewrite_forms(traced.program, _known_inputs(traced))
        inputs = traced.inputs(*leaves)
        outputs = apply(traced.program, inputs) if derived is None else derived(inputs)
        return traced.rebuild(outputs)
    return stabilized


def _known_inputs(traced: TracedCall) -> tuple[float | None, ...]:
    """Return the known numbers among the inputs of the traced call: the captured ones."""
    return captured_numbers(traced.captured) + (None,) * (len(traced.program.inputs) - len(traced.captured))


def _rewritten_trace(traced: TracedCall) -> TracedCall:
    """Return the trace to be differentiated, with stable forms; values that forcing computed are recomputed."""
    derived = rewrite_forms(traced.program, _known_inputs(traced))
    if derived is None:
        return traced
    count = len(derived.captured) + traced.program.captured
    if count == derived.program.captured:
        program = derived.program
    else:  # memoized, since derived programs are memoized on it
        program = _CAPTURING.of(derived.program) or _CAPTURING.put(
            derived.program, derived.program.replace(captured=count))
    return TracedCall(program, [*derived.captured, *traced.captured], traced.out_tree)


_CAPTURING: ProgramAttribute[Program] = ProgramAttribute("with captured inputs")
"""The rewritten program, whose inputs include those that its trace captured."""
