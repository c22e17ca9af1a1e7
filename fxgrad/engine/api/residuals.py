"""`checkpoint`, `saved_residuals` and `stop_gradient`: the residuals of reverse mode, and where it stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import static_positions, transformation
from fxgrad.engine.api.custom_calls import is_traced
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Equation, Program, Source, Variable
from fxgrad.engine.executors.xla import is_jax_tracer
from fxgrad.engine.frontend.flat import (
    argument_leaf_names,
    check_leaf,
    insert_static,
    leaf_aval,
    nth_name,
    parameter_names,
    refuse_repeated_effects,
    require_function,
    trace_flat,
)
from fxgrad.engine.higher_order.checkpoint import checkpoint_p
from fxgrad.engine.ops import arithmetic
from fxgrad.engine.ops.moving import move_p
from fxgrad.engine.rematerialization.operation import within_budget_p
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import WITH_LITERALS
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transforms.residuals import KeptVariable, residuals
from fxgrad.engine.units import parse_bytes
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError


def stop_gradient(x: Any) -> Any:
    """Return `x`, through which no derivative flows; `x` is an array, a number, or a container of them.

    >>> import fxgrad
    >>> float(fxgrad.grad(lambda x: x * fxgrad.stop_gradient(x))(3.0))
    3.0
    """
    return tree.map(lambda leaf: arithmetic.stop_gradient(leaf) if type(leaf) is Tracer or is_jax_tracer(leaf) else (
        leaf), x)


def checkpoint(fun: Callable[..., Any], *, prevent_cse: bool = True, policy: Callable[..., Any] | None = None,
               static_argnums: int | Sequence[int] = (), static_argnames: str | Iterable[str] = (),
               budget: int | float | str | None = None) -> Callable[..., Any]:
    """Rematerialize `fun`: reverse mode saves few values, and recomputes the rest in the backward pass.

    Saves memory for time. Values and derivatives are unchanged. Without a `policy` only the inputs are saved. A policy
    is one of `fxgrad.checkpoint_policies`, or a function of a primitive, the types of its inputs and its parameters
    that returns a bool: whether to save the results. `prevent_cse=False` lets XLA merge recomputed values with the
    originals, which is safe in the body of a `scan`, where it cannot. Arguments of `static_argnums` and
    `static_argnames` are passed to `fun` unchanged. Also under the name `remat`.

    A `budget` (bytes, or text such as "512 MiB") replaces the policy by a plan. The plan recomputes as little as
    possible while the values that `fun` and its backward pass hold at once, beside arguments, results and their
    cotangents, stay within the budget (docs/appendix/memory-budgets.md).

    Raises `ArgumentError` for a policy that is no function, for a budget that is no number of bytes or comes with a
    policy, and, when the derivative is taken, if no plan fits the budget.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> block = fxgrad.checkpoint(lambda x: fnp.sin(fnp.sin(x)))
    >>> round(float(fxgrad.grad(block)(1.0)), 4)
    0.36
    """
    if policy is not None and not callable(policy):
        raise ArgumentError(at_user_line(
            f"checkpoint: policy is a {type(policy).__name__}, where one of fxgrad.checkpoint_policies or a function "
            "is needed, such as policy=fxgrad.checkpoint_policies.dots_saveable"))
    if policy is not None and budget is not None:
        raise ArgumentError(at_user_line(
            "checkpoint: policy and budget both select what is saved; pass one of them, such as budget='512 MiB'"))
    settings: dict[str, Any] = {} if policy is None else {"policy": policy}
    settings |= {} if prevent_cse else {"prevent_cse": False}
    primitive = checkpoint_p
    static_names = frozenset([static_argnames] if isinstance(static_argnames, str) else static_argnames)
    if budget is not None:
        primitive, settings = within_budget_p, {"budget": parse_bytes("checkpoint: budget", budget)}

    @transformation("checkpoint", fun)
    @hide_frames
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        static = static_positions(static_argnums, len(args))
        kept = {name: value for name, value in kwargs.items() if name in static_names}
        if static_names:
            kwargs = {name: value for name, value in kwargs.items() if name not in static_names}
            static |= {position for position, name in enumerate(parameter_names(fun, len(args)))
                       if name in static_names}
        moving = [position for position in range(len(args)) if position not in static]
        dynamic = [args[position] for position in moving]
        leaves, structure = tree.flatten((dynamic, kwargs))
        if any(leaf_aval(leaf) is None for leaf in leaves) or not is_traced(leaves):
            return fun(*args, **kwargs, **kept)

        def call(*tracers: Any) -> Any:
            given, keywords = tree.unflatten(structure, tracers)
            return fun(*insert_static(args, static, given), **keywords, **kept)

        traced = trace_flat(call, [aval_of(leaf) for leaf in leaves], "checkpoint", fun, values=leaves,
                            names=argument_leaf_names(fun, args, moving, kwargs))
        refuse_repeated_effects(traced, "checkpoint")
        outputs = bind(primitive, *traced.captured, *leaves, program=traced.program, name=function_name(fun),
                       **settings)
        return tree.unflatten(traced.out_tree, outputs)
    return checkpointed


def checkpoint_name(x: Any, name: str) -> Any:
    """Return `x` under a name for policies of `checkpoint`; `x` is an array or a container of them.

    >>> import fxgrad
    >>> print(fxgrad.make_program(lambda x: fxgrad.checkpoint_name(x + 1.0, "y"))(1.0).equations[1].params)
    {'name': 'y'}
    """
    return tree.map(lambda leaf: bind(arithmetic.name_p, leaf, name=name)[0] if type(leaf) is Tracer else leaf, x)


class Residual(NamedTuple):
    """A value that reverse mode saves: its type, its name, and the lines that compute and use it."""

    aval: Aval
    name: str
    made_at: str
    used_by: str

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.aval.nbytes


@hide_frames
def saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Residual]:
    """Return the values that the backward pass of `f` saves, largest first; arguments and numbers included.

    `args` and `kwargs` are arrays or containers of them. Raises `ArgumentError` for leaves that are neither.

    >>> import numpy as np, fxgrad, fxgrad.numpy as fnp
    >>> [str(residual.aval) for residual in saved_residuals(lambda x: fnp.sum(fnp.sin(x)), np.ones(3))]
    ['f64[3]']
    """
    require_function("saved_residuals", f, "f, x")
    names = argument_leaf_names(f, args, None, kwargs)
    leaves, structure = tree.flatten((args, kwargs))
    avals = [check_leaf(leaf, "saved_residuals", nth_name(names, index)) for index, leaf in enumerate(leaves)]

    def call(*tracers: Any) -> Any:
        given, keywords = tree.unflatten(structure, tracers)
        return f(*given, **keywords)

    traced = trace_flat(call, avals, "saved_residuals", f, mode=WITH_LITERALS, names=names)
    found = residuals(traced.program)
    if found is None:
        return []
    captured = found.captured + traced.program.captured
    labels = [*(f"captured[{index}]" for index in range(captured)), *names()]
    return sorted([_describe(found.forward, each, labels) for each in found.kept],
                  key=lambda residual: -residual.nbytes)


def _describe(forward: Program, kept: KeptVariable, labels: Sequence[str]) -> Residual:
    var = kept.var
    if var in forward.inputs:
        name, made = labels[forward.inputs.index(var)], "an argument"
    else:
        maker = _defining_equation(forward, var)
        made = f"{maker.primitive} at {_line_text(maker.source)}"
        name = maker.params["name"] if maker.primitive is arithmetic.name_p else ""
    users = [f"{equation.primitive} at {_line_text(equation.source)}" for equation in kept.users]
    return Residual(var.aval, name, made, ", ".join(dict.fromkeys(users)))


def _defining_equation(program: Program, var: Variable) -> Equation:
    """Return the equation that computes `var`, searching inside calls and through moves to other memory."""
    for equation in program.equations:
        if var in equation.outputs:
            if equation.primitive is move_p and type(equation.inputs[0]) is Variable:
                return _defining_equation(program, equation.inputs[0])
            for region in equation.regions:
                if region.role in ("inline", "call", "recomputed"):
                    within = region.program.outputs[equation.outputs.index(var)]
                    if type(within) is Variable and within not in region.program.inputs:
                        return _defining_equation(region.program, within)
            return equation
    raise AssertionError("a residual is made by an equation; this is a bug in fxgrad")


def _line_text(source: Source | None) -> str:
    return "?" if source is None else source.place


@hide_frames
def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print `saved_residuals(f, *args, **kwargs)` as a table, followed by the sum of the bytes.

    Raises as that does. Colours are used only on a terminal.

    >>> import contextlib, io, fxgrad.numpy as fnp
    >>> with contextlib.redirect_stdout(io.StringIO()) as text:
    ...     print_saved_residuals(lambda x: fnp.sin(x), 1.0)
    >>> "1 values" in text.getvalue()
    True
    """
    from rich.console import Console
    from rich.table import Table

    kept = saved_residuals(f, *args, **kwargs)
    table = Table(title=f"kept for the backward pass of {function_name(f)}", show_footer=True)
    table.add_column("value", footer=f"{len(kept)} values")
    table.add_column("bytes", footer=f"{sum(residual.nbytes for residual in kept):,}", justify="right")
    table.add_column("made by")
    table.add_column("used by")
    for residual in kept:
        value = f"{residual.name}: {residual.aval}" if residual.name else str(residual.aval)
        table.add_row(value.replace("[", "\\["), f"{residual.nbytes:,}", residual.made_at, residual.used_by)
    Console().print(table)
