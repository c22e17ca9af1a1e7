"""Loops: `while_loop`, `fori_loop`, `scan`, `map`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.frontend.flat import LEAF, TracedCall, check_leaf, constant_name, parameter_names
from fxgrad.engine.frontend.operands import operand
from fxgrad.engine.higher_order.loop import bind_for
from fxgrad.engine.higher_order.scan import Turns, bind_scan
from fxgrad.engine.higher_order.while_loop import bind_while
from fxgrad.engine.ops.arithmetic import sub
from fxgrad.engine.ops.comparison import lt
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.parts import ceil
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import convert, reshape, zeros
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.provenance import note_results
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transforms.batch import batched_program
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, TreeError
from fxgrad.lax.bodies import (
    FlatTree,
    LoopBody,
    check_function,
    flatten_checked,
    result_paths,
    trace_body,
    trace_step,
    vary_like,
)
from fxgrad.lax.branches import cond

Carry = Any


@hide_frames
def while_loop(cond_fun: Callable[[Carry], Any], body_fun: Callable[[Carry], Carry], init_val: Carry) -> Carry:
    """Repeat `value = body_fun(value)` from `init_val` on while `cond_fun(value)` is true; return the last value.

    The value is a container of arrays, whose structure, shapes and dtypes must not change. All transformations work,
    reverse mode included, without a bound on the number of steps: NumPy saves every value, XLA a fixed number of them
    and recomputes the others. Under `vmap` it runs until every entry has stopped; one that has stopped keeps its value.

    Raises `TreeError`, `ShapeError` or `DTypeError`, naming the path, if the type of the value changes or the condition
    is not a bool scalar.

    >>> import fxgrad
    >>> def root(a):
    ...     return while_loop(lambda x: abs(x * x - a) > 1e-6 * a, lambda x: 0.5 * (x + a / x), a)
    >>> round(float(root(2.0)), 4), round(float(fxgrad.grad(root)(2.0)), 4)
    (1.4142, 0.3536)
    """
    check_function("while_loop", cond_fun, "cond_fun")
    check_function("while_loop", body_fun, "body_fun")
    init = flatten_checked("while_loop", init_val, "carry")

    def traced_step() -> LoopBody:
        return trace_step("while_loop", body_fun, init, [], init.names, lambda carry, _: body_fun(init.rebuild(carry)),
                          lambda structure: structure, [init.structure])

    def traced_test() -> TracedCall:
        avals = [aval_of(leaf) for leaf in step.init]
        return trace_body("while_loop", cond_fun, lambda *carry: _answer("while_loop", cond_fun, "cond_fun",
                                                                         init.rebuild(carry)),
                          avals, init.names, [init.structure])

    step = traced_step()
    test = traced_test()
    while not all(test.program.out_avals[0].vma <= aval_of(leaf).vma for leaf in step.init):
        init = vary_like(init, test.program.out_avals[0])  # for so does the number of steps
        step = traced_step()
        test = traced_test()
    outputs = bind_while(test.program, test.captured, step.program, step.captured, step.init)
    note_results(outputs, lambda: result_paths(init.structure))
    return init.rebuild(outputs)


def _answer(what: str, function: Any, name: str, value: Any) -> Any:
    """Return what the condition says of the carried value; raise unless that is one bool."""
    answer = function(value)
    leaves = tree.leaves(answer)
    if len(leaves) == 1 and check_leaf(leaves[0], what, constant_name(f"the result of {name}")).shape == ():
        if aval_of(leaves[0]).dtype != dtypes.bool_:
            raise DTypeError(at_user_line(
                f"{what}: {function_name(function)} must return a bool, got {aval_of(leaves[0])}. Compare it, "
                "for example with != 0"))
        return leaves[0]
    shown = aval_of(leaves[0]) if len(leaves) == 1 else tree.structure(answer)
    raise ShapeError(at_user_line(
        f"{what}: {function_name(function)} must return one bool, got {shown}. Reduce it, for example with "
        "fnp.all or fnp.any"))


@hide_frames
def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Carry], Carry], init_val: Carry, *,
              unroll: int | bool | None = None) -> Carry:
    """Repeat `value = body_fun(i, value)` for `i` from `lower` to `upper - 1`; return the last value.

    With known bounds it is a `scan`, with traced ones a loop whose length is determined at run time; both have all
    derivatives. The bounds are real scalars; the counter has their type. `unroll` is that of `scan`, and needs known
    bounds.

    Raises as `while_loop` does, and `DTypeError` for bounds that are not real numbers, or whose dtypes differ.

    >>> import fxgrad
    >>> float(fori_loop(0, 4, lambda i, total: total + i * i, 0.0))
    14.0
    >>> float(fxgrad.jit(fxgrad.grad(lambda x, n: fori_loop(0, n, lambda i, y: y * x, 1.0)))(2.0, 3))
    12.0
    """
    check_function("fori_loop", body_fun, "body_fun")
    lower, upper = (operand(bound) if has_symbolic_dim(bound) else bound for bound in (lower, upper))
    for bound, name in ((lower, "lower"), (upper, "upper")):
        aval = check_leaf(bound, "fori_loop", constant_name(name))
        if aval.shape != () or aval.dtype.kind not in "iuf":
            raise DTypeError(at_user_line(f"fori_loop: {name} must be a real scalar, got {aval}. "
                                          "Write int(n), or convert it with .astype('int32')"))
    first_type, last_type = aval_of(lower), aval_of(upper)
    if first_type.dtype != last_type.dtype and not (first_type.weak or last_type.weak):
        raise DTypeError(at_user_line(f"fori_loop: lower is {first_type} and upper is {last_type}; equal dtypes are "
                                      f"needed. Convert one of them with .astype({last_type.dtype.name!r})"))
    kind, weak = dtypes.promote(*((aval.dtype, aval.weak) for aval in (first_type, last_type)))
    counter = Aval((), kind, weak)
    init = flatten_checked("fori_loop", init_val, "carry")
    inner = FlatTree([convert(lower, kind, weak), *init.leaves], [counter, *init.avals],
                     init.structure, ["i", *init.names])

    def call(carry: list[Any], _: list[Any]) -> Any:
        return add(carry[0], Literal(1, counter)), body_fun(carry[0], init.rebuild(carry[1:]))

    inner = vary_like(inner, aval_of(upper))
    step = trace_step("fori_loop", body_fun, inner, [], inner.names, call, lambda structure: structure.children()[1],
                      [LEAF, init.structure])
    if type(lower) is Tracer or type(upper) is Tracer:
        if unroll not in (None, False, 1):
            raise ArgumentError(at_user_line(
                "fori_loop: unroll needs bounds that are known while tracing. Leave it out, or make the bounds static"))
        # Narrow integers would overflow, and unsigned ones wrap around if the upper bound is below the lower.
        wide = kind if kind.itemsize >= 4 or kind.kind == "f" else dtypes.int32
        first, last = convert(lower, wide), convert(upper, wide)
        if kind.kind != "f" and type(lower) is not Tracer and lower == 0:
            count = last  # there is no turn where it is negative
        else:
            count = where(lt(first, last), sub(last, first), 0)
        if kind.kind == "f":
            count = convert(ceil(count), dtypes.int32)
        outputs = bind_for(count, step.program, step.captured, step.init)
    else:
        length = max(math.ceil(upper - lower) if kind.kind == "f" else int(upper) - int(lower), 0)
        outputs = bind_scan(step.program, step.captured, step.init, [], length, False,
                            _check_unroll("fori_loop", 1 if unroll is None else unroll, length))
    note_results(outputs, lambda: [None, *result_paths(init.structure)])
    return init.rebuild(outputs[1:])


def _check_unroll(what: str, unroll: int | bool, length: int) -> int:
    if isinstance(unroll, bool):
        return max(length, 1) if unroll else 1
    if unroll < 0:
        raise ArgumentError(at_user_line(f"{what}: unroll={unroll}; it must be at least 0, or a bool"))
    return max(int(unroll), 1)


@hide_frames
def scan(f: Callable[[Carry, Any], tuple[Carry, Any]], init: Carry, xs: Any = None, length: int | None = None,
         reverse: bool = False, unroll: int | bool = 1, _split_transpose: bool = False,
         until: Callable[[Carry], Any] | None = None) -> Any:
    """Apply `carry, y = f(carry, x)` to each entry `x` of `xs` along its first axis, from `carry = init` on.

    Returns the last carry and the `y` of all steps, stacked along a new first axis. Carry, `x` and `y` are containers
    of arrays (or None); the type of the carry must not change. `length` is needed only without `xs`. `reverse` starts
    at the last entry, and stacks each `y` at the position of its `x`. `unroll` is the number of steps in one iteration
    of the compiled loop (True for all). `_split_transpose` is jax's, and has no effect here.

    With `until` no step is taken from the first carry on for which `until(carry)` is true, a bool scalar, and the
    result is `(carry, ys, count)`: `count` steps were taken (int32), and the `y` of all others are zeros. The steps
    left out of n cost about two square roots of n tests. Under `vmap` with entries that stop at different steps all are
    computed; those that an entry does not take reach neither its results nor its derivatives.

    Reverse mode saves the residuals of each step that are expensive to recompute, and recomputes the rest.

    Raises `TreeError`, `ShapeError` or `DTypeError`, naming the path, if `f` returns no pair or changes the type of the
    carry, or if `until` returns anything but one bool, and `ShapeError` if the entries of `xs` are not equally many.

    >>> import numpy as np
    >>> total, sums = scan(lambda total, x: (total + x, total + x), 0.0, np.array([1.0, 2.0, 3.0]))
    >>> float(total), sums
    (6.0, array([1., 3., 6.]))
    >>> halves, xs, count = scan(lambda x, _: (x / 2, x), 1.0, length=5, until=lambda x: x < 0.2)
    >>> float(halves), xs, int(count)
    (0.125, array([1.  , 0.5 , 0.25, 0.  , 0.  ]), 3)
    """
    check_function("scan", f, "f")
    if until is not None:
        check_function("scan", until, "until")
    return _scan(f, init, xs, length, reverse, unroll, until)


def _scan(f: Callable[[Carry, Any], tuple[Carry, Any]], init: Carry, xs: Any, length: int | None, reverse: bool,
          unroll: int | bool, until: Callable[[Carry], Any] | None = None, turns: Turns | None = None) -> Any:
    """Apply `scan`; `turns` are those of the user's loop that the steps of this one stand for."""
    begin = flatten_checked("scan", init, "carry")
    entries = flatten_checked("scan", xs, "xs")
    count = _length(entries, length)
    avals = [aval.without_axis(0) for aval in entries.avals]

    def carry_of(structure: TreeDef) -> TreeDef:
        children = structure.children()
        if structure.node_data() is None or structure.node_data()[0] is not tuple or len(children) != 2:
            raise TreeError(at_user_line(
                f"scan: {function_name(f)} must return a pair (carry, y), got {structure}. "
                "Write `return carry, None` if there is nothing to stack"))
        return children[0]

    step = trace_step("scan", f, begin, avals, [*begin.names, *entries.names],
                      lambda carry, x: f(begin.rebuild(carry), entries.rebuild(x)), carry_of,
                      [begin.structure, entries.structure])
    unrolled = _check_unroll("scan", unroll, count)
    taken: list[Any] = []
    if until is None:
        outputs = bind_scan(step.program, step.captured, step.init, entries.leaves, count, reverse, unrolled, turns)
    else:
        outputs, *taken = _scan_until(step, lambda carry: _answer("scan", until, "until", begin.rebuild(carry)),
                                      entries.leaves, count, reverse, unrolled)
    note_results(outputs, lambda: result_paths(step.out_tree))
    split = len(begin.leaves)
    return begin.rebuild(outputs[:split]), tree.unflatten(step.out_tree.children()[1], outputs[split:]), *taken


def _scan_until(step: LoopBody, holds: Callable[[list[Any]], Any], xs: list[Any], length: int, reverse: bool,
                unroll: int) -> tuple[list[Any], Any]:
    """Return the outputs of a scan that takes no step any more once `holds(carry)`, and the number of its steps.

    The steps stand in blocks, so that those left out cost one test for each block, and for each step of one block. The
    carry of the blocks begins with the number of steps taken.
    """
    split = len(step.init)
    stacked = step.program.out_avals[split:]

    def turn(carry: list[Any], x: list[Any]) -> Any:
        def take(carry: list[Any], x: list[Any]) -> Any:
            outputs = apply_equations(step.program, [*step.captured, *carry[1:], *x])
            return [add(carry[0], 1), *outputs[:split]], outputs[split:]

        def leave_out(carry: list[Any], x: list[Any]) -> Any:  # noqa: ARG001  (branches take the same)
            return carry, [zeros(aval) for aval in stacked]
        return cond(holds(carry[1:]), leave_out, take, carry, x)

    def block(carry: list[Any], xs: list[Any], size: int, turns: Turns) -> Any:
        def walk(carry: list[Any], xs: list[Any]) -> Any:
            return _scan(turn, carry, xs, size, reverse, unroll, turns=turns)

        def leave_out(carry: list[Any], xs: list[Any]) -> Any:  # noqa: ARG001  (branches take the same)
            return carry, [zeros(aval.update(shape=(size, *aval.shape))) for aval in stacked]
        return cond(holds(carry[1:]), leave_out, walk, carry, xs)

    size = _block_size(length)
    rest = length % size
    # What does not fill a block comes last: after the others, or with `reverse` before them.
    main, others = xs, []
    main_start, others_start = (rest, 0) if reverse else (0, length - rest)
    if rest:
        main = [slice_in_dim(x, main_start, main_start + length - rest, 0) for x in xs]
        others = [slice_in_dim(x, others_start, others_start + rest, 0) for x in xs]
    carry, ys = _scan(lambda carry, xs: block(carry, xs, size, Turns(0, 1, 0)),
                      [zeros(Aval((), dtypes.int32)), *step.init],
                      [reshape(x, (length // size, size, *aval_of(x).shape[1:])) for x in main],
                      length // size, reverse, 1, turns=Turns(main_start, size, length))
    ys = [reshape(y, (length - rest, *aval_of(y).shape[2:])) for y in ys]
    if rest:
        carry, last = block(carry, others, rest, Turns(others_start, 1, length))
        ys = [concatenate([one, y] if reverse else [y, one], 0) for y, one in zip(ys, last, strict=True)]
    return [*carry[1:], *ys], carry[0]


def _block_size(length: int) -> int:
    """Return about the square root of the length: a divisor of it, if there is one from a quarter of the root on."""
    root = max(math.isqrt(length), 1)
    return next((size for size in range(root, root // 4, -1) if length % size == 0), root)


def _length(entries: FlatTree, length: int | None) -> int:
    for aval, name in zip(entries.avals, entries.names, strict=True):
        if aval.shape == ():
            raise ShapeError(at_user_line(
                f"scan: {name} is a scalar ({aval}) and has no axis to go along. Pass it by closure"))
    sizes = {name: aval.shape[0] for name, aval in zip(entries.names, entries.avals, strict=True)}
    if length is not None:
        sizes["length"] = int(length)
    if not sizes:
        raise ArgumentError(at_user_line("scan: without xs the number of steps is not known. Pass length=n"))
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name} has {size}" if name != "length" else f"length is {size}"
                          for name, size in sizes.items())
        raise ShapeError(at_user_line(f"scan: the first axes of xs must be equally long: {shown}"))
    return next(iter(sizes.values()))


@hide_frames
def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:  # noqa: A001  (jax's name)
    """Return `f(x)` for each entry of `xs` along its first axis, one after the other, stacked.

    With `batch_size`, that many entries are computed at once, as under `vmap`, and so is the remainder. `xs` and the
    results of `f` are containers of arrays. Raises as `scan` does.

    >>> import numpy as np
    >>> map(lambda x: x * x, np.arange(3.0))
    array([0., 1., 4.])
    """
    check_function("map", f, "f")
    if batch_size is not None and batch_size < 0:
        raise ArgumentError(at_user_line(f"map: batch_size={batch_size}; it must be at least 0, or None"))
    if not batch_size:
        mapped = scan(_as_scan_step(f), None, xs)[1]
        note_results(tree.leaves(mapped), lambda: result_paths(tree.structure(mapped)))
        return mapped
    entries = flatten_checked("map", xs, "xs")
    count = _length(entries, None)
    traced = trace_body("map", f, lambda *x: f(entries.rebuild(x)),
                        [aval.without_axis(0) for aval in entries.avals], entries.names,
                        [entries.structure])
    open_axes = (*[None] * len(traced.captured), *[0] * len(entries.leaves))
    full = count // batch_size
    chunks = batched_program(traced.program, batch_size, open_axes)
    stacked = bind_scan(chunks.program, [*chunks.captured, *traced.captured], [], [
        reshape(slice_in_dim(leaf, 0, full * batch_size, 0), (full, batch_size, *aval.shape[1:]))
        for leaf, aval in zip(entries.leaves, entries.avals, strict=True)], full)
    results = [reshape(part, (full * batch_size, *aval_of(part).shape[2:])) for part in stacked]
    if full * batch_size < count:
        last = batched_program(traced.program, count - full * batch_size, open_axes)
        rest = apply_equations(last.program, [*last.captured, *traced.captured, *(
            slice_in_dim(leaf, full * batch_size, count, 0) for leaf in entries.leaves)])
        results = [concatenate([whole, part], 0) for whole, part in zip(results, rest, strict=True)]
    return tree.unflatten(traced.out_tree, results)


def _as_scan_step(f: Callable[[Any], Any]) -> Callable[[None, Any], tuple[None, Any]]:
    """Return `f` as the step of a scan, which calls its entry as `f` does."""
    def step(_: None, x: Any) -> tuple[None, Any]:
        return None, f(x)

    name, = parameter_names(f, 1)
    kind = inspect.Parameter.POSITIONAL_ONLY
    names = ("_", name) if name.isidentifier() and name != "_" else ("_", "x")
    step.__signature__ = inspect.Signature([inspect.Parameter(each, kind) for each in names])  # type: ignore[attr-defined]
    return step
