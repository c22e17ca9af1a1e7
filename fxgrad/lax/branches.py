"""Choosing between pieces of code: `cond` and `switch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import PYTHON_SCALARS
from fxgrad.engine.executors.xla import is_jax_tracer
from fxgrad.engine.frontend.flat import TracedCall, check_leaf, constant_name
from fxgrad.engine.higher_order.branch import bind_branches
from fxgrad.engine.ops.comparison import ne
from fxgrad.engine.ops.select import clamp
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.provenance import note_results
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, FxgradError, IndexingError, ShapeError
from fxgrad.lax.bodies import check_function, flatten_checked, join_branches, result_paths, trace_body

_NONE: Any = object()


@hide_frames
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any, operand: Any = _NONE,
         linear: Any = None) -> Any:  # noqa: ARG001  (jax has it, and gives it no meaning)
    """Return `true_fun(*operands)` if the scalar `pred` is true, and `false_fun(*operands)` if not.

    Both are traced; one is computed. With a known `pred`, as un-jitted, an index or a value that the function not taken
    cannot have, such as `x[k]` behind `k < len(x)`, is no error. Under `vmap` with a `pred` that differs between
    entries both are computed, and no derivative or NaN of the branch not taken reaches the result. The operands and
    results are containers of arrays; both functions must return the same structure, shapes and dtypes. `operand` is an
    older way to pass one operand, and `cond(pred, x, true_fun, y, false_fun)` one to pass an operand to each function;
    `linear` has no effect here.

    Raises `ShapeError` or `DTypeError` if `pred` is no scalar, or if the outputs differ in type, and `TreeError` if
    they differ in structure, naming the first path.

    >>> import fxgrad
    >>> slope = fxgrad.grad(lambda x: cond(x > 0, lambda x: x * x, lambda x: -x, x))
    >>> float(slope(3.0)), float(slope(-3.0))
    (6.0, -1.0)
    """
    if not callable(true_fun) and callable(false_fun) and len(operands) == 2 and callable(operands[1]):
        first, if_true, second, if_false = true_fun, false_fun, *operands
        true_fun, false_fun, operands = lambda x, _: if_true(x), lambda _, y: if_false(y), (first, second)
    if operand is not _NONE:
        operands = (*operands, operand)
    check_function("cond", true_fun, "true_fun")
    check_function("cond", false_fun, "false_fun")
    aval = check_leaf(pred, "cond", constant_name("pred"))
    if aval.shape != ():
        raise ShapeError(at_user_line(
            f"cond: pred must be a scalar, got {aval}. Reduce it with fnp.all(pred) or fnp.any(pred) to choose once, "
            "or use fnp.where to choose for each element"))
    holds = bool(pred) if type(pred) in PYTHON_SCALARS else pred if aval.dtype == dtypes.bool_ else ne(pred, 0)
    return _choose("cond", holds, (false_fun, true_fun), ("false_fun", "true_fun"), operands,
                   (lambda: int(bool(pred))) if _is_known(pred) else None)


@hide_frames
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any, operand: Any = _NONE) -> Any:
    """Return `branches[index](*operands)`; an index out of range means the first or the last branch.

    `index` is an integer scalar. All branches are traced and one is computed; they must return the same structure,
    shapes and dtypes, with errors as in `cond`, and those of branches that a known `index` does not take.

    >>> import fxgrad.numpy as fnp
    >>> [float(switch(index, [lambda x: x, lambda x: 2 * x, lambda x: x * x], 5.0)) for index in (0, 1, 2, 7)]
    [5.0, 10.0, 25.0, 25.0]
    """
    if operand is not _NONE:
        operands = (*operands, operand)
    if callable(branches):
        raise ArgumentError(at_user_line("switch: branches is a function, where a list of functions is needed. Write "
                                         "switch(index, [f, g], x)"))
    branches = list(branches)
    if not branches:
        raise ArgumentError(at_user_line("switch: branches is empty; pass at least one function"))
    for number, branch in enumerate(branches):
        check_function("switch", branch, f"branches[{number}]")
    aval = check_leaf(index, "switch", constant_name("index"))
    if aval.shape != ():
        raise ShapeError(at_user_line(f"switch: index must be a scalar, got {aval}. Use vmap to choose for each entry"))
    if not dtypes.is_integer(aval.dtype):
        raise DTypeError(at_user_line(
            f"switch: index must be an integer, got {aval}. Convert it with .astype('int32'), or use cond for a bool"))
    if len(branches) == 1:
        return branches[0](*operands)
    last = len(branches) - 1
    limited = min(max(index, 0), last) if type(index) is int else clamp(
        np.zeros((), aval.dtype), index, np.array(min(last, int(np.iinfo(aval.dtype).max)), aval.dtype))
    return _choose("switch", convert(limited, dtypes.int32), branches,
                   [f"branches[{number}]" for number in range(len(branches))], operands,
                   (lambda: min(max(int(index), 0), last)) if _is_known(index) else None)


def _is_known(value: Any) -> bool:
    return type(value) is not Tracer and not is_jax_tracer(value)


def _choose(what: str, index: Any, functions: Sequence[Callable[..., Any]], names: Sequence[str],
            operands: Sequence[Any], taken: Callable[[], int] | None) -> Any:
    """Return the result of the function at `index`; that is `taken()` where the number is known while tracing."""
    given = flatten_checked(what, tuple(operands), "operands")

    def trace(number: int) -> TracedCall | None:
        function = functions[number]
        try:
            return trace_body(what, function, lambda *tracers: function(*given.rebuild(tracers)), given.avals,
                              given.names, given.structure.children())
        except (ArithmeticError, IndexError, ValueError) as error:
            if taken is None or taken() == number or (
                    isinstance(error, FxgradError) and not isinstance(error, IndexingError)):
                raise
            return None  # its numbers are such that it is not taken

    found = [trace(number) for number in range(len(functions))]
    # The one that is taken has a trace, or its error was raised.
    traced = [call for call in (each or found[taken() if taken else 0] for each in found) if call is not None]
    # In the user's order, since messages name the branch that comes first.
    order = [1, 0] if what == "cond" else range(len(traced))
    joined = join_branches(what, [functions[number] for number in order], [names[number] for number in order],
                           [traced[number] for number in order])
    programs = joined.programs[::-1] if what == "cond" else joined.programs
    outputs = bind_branches(index, programs, [*joined.captured, *given.leaves])
    note_results(outputs, lambda: result_paths(joined.out_tree))
    return joined.out_tree.unflatten(outputs)
