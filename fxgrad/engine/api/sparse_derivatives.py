"""Sparse derivatives: patterns of Jacobians and Hessians, and matrices from as few passes as their colors take."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fxgrad.engine.analyses.coloring import Coloring, Compression
from fxgrad.engine.analyses.index_sets import Dependence, identity, starts_of
from fxgrad.engine.analyses.index_sets import joined as join_dependences
from fxgrad.engine.analyses.sparsity import dependences, function_dependences, known_values
from fxgrad.engine.analyses.sparsity_values import Walk
from fxgrad.engine.api.argument_names import Argnames, by_names
from fxgrad.engine.api.arguments import (
    Argnums,
    check_differentiable,
    leaf_avals,
    select_arguments,
    transformation,
)
from fxgrad.engine.api.eager import ensure_compile_time_eval
from fxgrad.engine.api.factored_jacobians import can_factor, push_identity
from fxgrad.engine.api.jacobian_passes import Passes, pullback_program
from fxgrad.engine.api.reverse import Differentiation, gradient_for, trace_differentiated
from fxgrad.engine.api.sparse_patterns import Pattern, lines_of, pattern_of_matrix
from fxgrad.engine.core.avals import Aval, without_literals
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.program_properties import memoize, used_axes
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.derivation.guards import drop_derived
from fxgrad.engine.derivation.simplify import with_outputs
from fxgrad.engine.executors.platforms import default_device
from fxgrad.engine.executors.xla import is_jax
from fxgrad.engine.frontend.flat import TracedCall
from fxgrad.engine.higher_order.groups import select_marked
from fxgrad.engine.higher_order.scan import bind_scan
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.indexing import Windows, gather
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import convert, reshape, zeros
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.transforms.linearize import Linearized, linearize_program
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError

_DENSE = 0.5
"""The share of entries from which on the dense matrix is computed, and the entries taken from it."""
_PIECES = 16
"""The most pieces of the results of the passes that are joined, instead of gathering entry by entry."""
_PATTERNS = 8
"""The most patterns of one program, for different values that it captured, such as indices."""


class Found(NamedTuple):
    """The pattern of a program's derivative, and whether it can be taken by reverse passes alone."""

    pattern: Pattern
    reverse_only: bool


def find_pattern(traced: TracedCall, main: int, moving: Sequence[bool]) -> Found:
    """Return the pattern of the Jacobian of the first `main` outputs in the inputs that `moving` marks.

    It is kept on the program, and holds for the values that the function captured: indices, and numbers that are 0.
    """
    marks = traced.wrt(moving), main
    kept = _kept(traced.program)
    if not kept.needs_derivative:
        captured = [*map(_known, traced.captured)]
        found = kept.pattern_for(marks, captured)
        if found is None:
            shown = _of_function(traced, main, moving, captured)
            found = shown and kept.keep(traced.program, marks, captured, shown)
        if found is not None:
            return found
    derived = linearize_program(traced.program, marks[0])  # it forgets all of a program whose custom rules have changed
    kept = _kept(traced.program)
    kept.needs_derivative = True
    captured = [*map(_known, (*derived.captured, *traced.captured))]
    found = kept.pattern_for(marks, captured)
    return found or kept.keep(traced.program, marks, captured, _of_derivative(traced, main, derived))


def _of_function(traced: TracedCall, main: int, moving: Sequence[bool], captured: Sequence[Any]) -> Found | None:
    """Return the pattern that the operations of the function show; None if its derivative has to be looked at."""
    program, outputs = traced.program, traced.program.out_avals[:main]
    avals = program.in_avals[program.captured:]
    selected = [*itertools.compress(avals, moving)]
    width, inputs = _total(selected), iter(_identities(selected))
    found = function_dependences(with_outputs(program, program.outputs[:main]), [
        *captured, *(next(inputs) if marked else None for marked in moving)], width)
    return found and Found(_pattern(found[0], outputs, width, found[1]), reverse_only=False)


class _Kept:
    """What is kept on a program: patterns with the values they hold for, the symmetric ones, and plans.

    Equal patterns are one object, by whose identity the plans and the programs of the passes are found.
    """

    def __init__(self) -> None:
        self.found: list[tuple[Any, list[Any], Found]] = []
        self.needs_derivative = False
        """Whether the program does not show its pattern, so that its derivative is looked at."""
        self.patterns: list[Pattern] = []
        self.symmetric: dict[int, Pattern] = {}
        self.plans: dict[Any, SparsePlan] = {}
        self.checked: set[SparsePlan] = set()

    def pattern_for(self, marks: Any, captured: list[Any]) -> Found | None:
        """Return the kept pattern of the derivative that `marks` says, for these captured values."""
        for each, values, found in self.found:
            if each == marks and len(values) == len(captured) and all(map(_is_same, values, captured)):
                return found
        return None

    def keep(self, program: Program, marks: Any, captured: list[Any], found: Found) -> Found:
        """Return `found`, with the kept pattern that equals its own, which is kept now."""
        found = found._replace(pattern=self.unique(program, found.pattern))
        del self.found[:1 - _PATTERNS]
        self.found.append((marks, captured, found))
        return found

    def unique(self, program: Program, pattern: Pattern) -> Pattern:
        """Return the kept pattern that equals `pattern`; forget all others when there are too many."""
        for each in self.patterns:
            if each.equals(pattern):
                return each
        if len(self.patterns) >= _PATTERNS:
            for kept in (self.found, self.patterns, self.symmetric, self.plans, self.checked):
                kept.clear()
            drop_derived(program, _PASSES)
        self.patterns.append(pattern)
        return pattern


_PASSES = "sparse jacobian"
"""The first part of the keys of the programs of passes."""


def _kept(program: Program) -> _Kept:
    return memoize(program, "sparse derivatives", _Kept)


def _known(value: Any) -> Any:
    """Return a value as a NumPy array if it is known."""
    if type(value) is float:
        return np.asarray(value)
    if type(value) is np.ndarray:
        return value if value.dtype.names is None else None
    if type(value) is Tracer or (isinstance(value, jax.Array) and isinstance(value, jax.core.Tracer)):
        return None
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return None
    array = np.asarray(value)
    return array if array.dtype.names is None else None


def _is_same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    # Of one type, as what one program captures is; most are numbers.
    return one is other or (one.tobytes() == other.tobytes() if one.size < _FEW else bool(np.array_equal(one, other)))


_FEW = 64
"""Elements up to which arrays are compared by their bytes, which a call of a function of NumPy's takes longer than."""


def _of_derivative(traced: TracedCall, main: int, derived: Derived) -> Found:
    """Return the pattern of the linear half of a program; of its transpose if that cannot be run."""
    program, half = traced.program, derived.extra
    marks = half.nonzero_outputs
    explicit = [None] * (len(program.inputs) - program.captured)
    residuals = known_values(derived.program, [*map(_known, (*derived.captured, *traced.captured)), *explicit],
                             len(derived.program.outputs) - half.linear.captured)
    inputs = half.linear.in_avals[half.linear.captured:]
    outputs = program.out_avals[:main]
    width, height = _total(inputs), _total(outputs)
    values, walk = dependences(half.linear, [*residuals, *_identities(inputs)], width)
    results = iter(values)
    found = [next(results) if marked else None for marked in marks][:main]
    if not walk.reverse_only:
        return Found(_pattern(found, outputs, width, walk), reverse_only=False)
    pulled, captured = pullback_program(program, half, main)
    reached = select_marked(outputs, marks[:main])
    rows, backward = dependences(pulled, [*map(_known, captured), *residuals, *_identities(reached)],
                                 _total(reached))
    pattern = _pattern(rows, inputs, backward.width, backward)
    numbers = np.concatenate([np.zeros(0, np.int64), *(
        np.full(aval.size, marked) for aval, marked in zip(outputs, marks, strict=False))]).astype(bool)
    starts = np.zeros(height + 1, np.int64)
    turned = pattern.transpose()
    starts[1:][numbers] = np.diff(turned.starts)
    return Found(Pattern((height, width), np.cumsum(starts), turned.indices, lines_of(backward.blames)),
                 reverse_only=True)


def _identities(avals: Sequence[Aval]) -> list[Dependence]:
    """Return the dependence on itself of each of some inputs."""
    *starts, width = itertools.accumulate((aval.size for aval in avals), initial=0)
    return [identity(aval.shape, start, width) for aval, start in zip(avals, starts, strict=True)]


def _pattern(found: Sequence[Any], avals: Sequence[Aval], width: int, walk: Walk) -> Pattern:
    """Return the pattern whose rows are the elements of results of these types."""
    shapes = [(aval.size,) for aval in avals]
    flat = [each.reshaped((-1,)) if type(each) is Dependence else None
            for each in found]
    whole = flat[0] if len(flat) == 1 and flat[0] is not None else join_dependences(
        flat, shapes, 0, width) if flat else Dependence((0,), width, [])
    starts, indices = whole.csr()
    return Pattern((_total(avals), width), np.asarray(starts, np.int64), np.ascontiguousarray(indices, np.int32),
                   lines_of(walk.blames))


def _total(avals: Sequence[Aval]) -> int:
    return sum(aval.size for aval in avals)


def sparse_values(what: str, traced: TracedCall, main: int, first: int, moving: Sequence[bool], mode: str, sparse: Any,
                  chunk_size: int | None, leaves: Sequence[Any]) -> list[Any]:
    """Return the outputs of a traced call from `first` on, and the matrices of its blocks.

    These are for each of the `main` first outputs one per `moving` input.
    """
    found = find_pattern(traced, main, moving)
    pattern = found.pattern
    if sparse is not True:
        pattern = _kept(traced.program).unique(traced.program, given_pattern(what, sparse, pattern.shape))
    if used_axes(traced.program) and mode in ("auto", "symmetric"):
        # A pass adds up the derivatives in all entries of a mapped axis, forward and reverse ones differently: such a
        # matrix is not symmetric, and is not taken by both. The side is that of dense matrices.
        height, width = pattern.shape
        mode = "forward" if mode == "symmetric" or width <= height else "reverse"
    if mode == "symmetric" and not found.reverse_only:
        pattern = _symmetric(traced, pattern)
    plan = plan_of(traced, main, moving, pattern, "reverse" if found.reverse_only else mode)
    inputs = traced.inputs(*leaves)
    is_bcoo = any(type(value) is Tracer or is_jax(value) for value in inputs)
    derived = sparse_program(traced, main, first, plan, moving, chunk_size, is_bcoo)
    values = without_literals(derived(inputs))
    count = len(traced.program.outputs) - first
    if sparse is not True:
        _check_given(what, traced, main, moving, found, plan, inputs, values[count:])
    return [*values[:count], *(bcoo_of(plan, block, data) if is_bcoo else scipy_of(block, data, what)
                               for block, data in zip(plan.blocks, values[count:], strict=True))]


def _symmetric(traced: TracedCall, pattern: Pattern) -> Pattern:
    """Return the symmetric part of a pattern that is kept on the program."""
    kept = _kept(traced.program).symmetric
    found = kept.get(id(pattern))
    if found is None:
        found = kept[id(pattern)] = pattern.symmetric()
    return found


class Sparsity:
    """The patterns of the derivatives of a call: `jacobian`, and `hessian` for a scalar function."""

    def __init__(self, find_jacobian: Callable[[], Pattern], find_hessian: Callable[[], Pattern]) -> None:
        self._find_jacobian, self._find_hessian = find_jacobian, find_hessian

    @functools.cached_property
    def jacobian(self) -> Pattern:
        """The pattern of first derivatives, found when it is first asked for; raises as `jacobian`."""
        return self._find_jacobian()

    @functools.cached_property
    def hessian(self) -> Pattern:
        """The pattern of second derivatives, found when it is first asked for; raises as `grad` if there are none."""
        return self._find_hessian()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the pattern of the Jacobian, and that of the Hessian if it was asked for."""
        hessian = vars(self).get("hessian")
        return _known_sparsity, (self.jacobian, hessian)

    def __repr__(self) -> str:
        height, width = self.jacobian.shape
        return f"Sparsity({height} x {width}, {self.jacobian.nnz} entries in the Jacobian)"


def _known_sparsity(jacobian: Pattern, hessian: Pattern | None) -> Sparsity:
    """Return patterns that were pickled."""
    def missing() -> Pattern:
        raise ArgumentError(at_user_line(
            "sparsity.hessian: the pattern was not asked for before these were pickled. Ask for it, then pickle"))
    return Sparsity(lambda: jacobian, missing if hessian is None else lambda: hessian)


def sparsity(fun: Callable[..., Any], argnums: Argnums = 0, *, argnames: Argnames | None = None,
             ) -> Callable[..., Sparsity]:
    """Return the function that finds the patterns of the derivatives of `fun` at its arguments: a `Sparsity`.

    `jacobian` and `hessian` of it are `Pattern`s, of matrices with a row for each element of the output (of the
    arguments, for the Hessian) and a column for each element of the arguments at `argnums`. They hold all places that
    can be other than zero, for any values of the arguments at `argnums`; what the function captures, and other
    arguments, such as indices and masks, count with their values. Nothing is differentiated numerically. `argnames` is
    as for `grad`, and errors are.

    >>> import numpy as np, fxgrad
    >>> found = fxgrad.sparsity(lambda x: np.sum(x[1:] * x[:-1] ** 2))(np.ones(4))
    >>> found
    Sparsity(1 x 4, 4 entries in the Jacobian)
    >>> found.hessian
    Pattern(4 x 4, 9 entries, 56.25 %)
    ● ● · ·
    ● ● ● ·
    · ● ● ●
    · · ● ·
    """
    if argnames is not None:
        return by_names("sparsity", sparsity, fun, argnames, argnums)

    gradient = Differentiation("sparsity", fun, argnums)

    def of_call(is_second: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pattern:
        selected = select_arguments("sparsity", fun, argnums, args)
        avals = leaf_avals("sparsity", selected)
        check_differentiable("sparsity", selected, avals)
        traced = gradient.trace(selected, avals, args, kwargs) if is_second else None
        if traced is None:
            traced, _ = trace_differentiated(
                "sparsity", gradient_for("sparsity", fun, argnums) if is_second else fun, False, args, kwargs, selected,
                avals)
        found = find_pattern(traced, traced.out_tree.num_leaves, [has_tangent(aval) for aval in avals])
        return _symmetric(traced, found.pattern) if is_second else found.pattern

    @transformation("sparsity", fun, argnums)
    @hide_frames
    def find(*args: Any, **kwargs: Any) -> Sparsity:
        return Sparsity(lambda: of_call(False, args, kwargs), lambda: of_call(True, args, kwargs))
    return find


# --- matrices ---------------------------------------------------------------------------------------------------------


class Block(NamedTuple):
    """The entries of a block of the matrix: its shape, columns by row as in CSR, and their numbers in the whole."""

    shape: tuple[int, int]
    starts: Any
    indices: Any
    entries: Any


class SparsePlan:
    """How a sparse matrix is computed: its pattern, its compression, and its blocks by output and input.

    A BCOO may have its entries in any order. `pieces` is in the order of colors; it is None for several blocks, and
    where there are many.
    """

    def __init__(self, pattern: Pattern, mode: str, outputs: Sequence[Aval], inputs: Sequence[Aval]) -> None:
        self.pattern, self._mode = pattern, mode
        self.blocks = _blocks_of(pattern, [aval.size for aval in outputs], [aval.size for aval in inputs])
        self.is_product = False
        """Whether the matrix is multiplied out of the program's arrays, and has no passes."""

    @property
    def is_reverse(self) -> bool:
        """Whether the passes must be reverse ones."""
        return self._mode == "reverse"

    @functools.cached_property
    def compression(self) -> Compression:
        """The products that suffice for all entries."""
        return self.pattern.compression(self._mode)

    @functools.cached_property
    def _pieces(self) -> tuple[list[tuple[int, int]] | None, Any]:
        """The pieces, and the order of the entries in them."""
        places = self.compression.places
        if len(self.blocks) == 1 and places.size:
            order = np.argsort(places)
            ordered = places[order]
            ends = np.flatnonzero(np.diff(ordered) != 1)
            if ends.size < _PIECES:
                return [(int(first), int(last) + 1) for first, last in zip(
                    ordered[np.r_[0, ends + 1]], ordered[np.r_[ends, -1]], strict=True)], order
        return None, None

    @property
    def pieces(self) -> list[tuple[int, int]] | None:
        """The ranges of the results of the passes that are the entries of a BCOO."""
        return self._pieces[0]

    def coordinates(self, block: Block) -> tuple[Any, bool]:
        """Return the row and the column of each entry of a BCOO, and whether they are sorted."""
        rows = np.repeat(np.arange(block.shape[0], dtype=np.int32), np.diff(block.starts))
        found = np.stack([rows, block.indices], 1)
        order = None if self.is_product else self._pieces[1]
        return (found, True) if order is None else (found[order], False)


def _blocks_of(pattern: Pattern, heights: Sequence[int], widths: Sequence[int]) -> list[Block]:
    if len(heights) == len(widths) == 1:
        return [Block(pattern.shape, pattern.starts, pattern.indices, None)]
    rows, columns, blocks = pattern.rows, pattern.indices, []
    above = 0
    for height in heights:
        left = 0
        for width in widths:
            entries = np.flatnonzero((rows >= above) & (rows < above + height)
                                     & (columns >= left) & (columns < left + width))
            starts = starts_of(np.bincount(rows[entries] - above, minlength=height))
            blocks.append(Block((height, width), starts, columns[entries] - np.int32(left), entries))
            left += width
        above += height
    return blocks


def plan_of(traced: TracedCall, main: int, moving: Sequence[bool], pattern: Pattern, mode: str) -> SparsePlan:
    """Return the plan for a pattern and a mode, kept on the program."""
    inputs = select_marked(traced.program.in_avals[traced.program.captured:], moving)
    plans, key = _kept(traced.program).plans, (id(pattern), mode, main, *moving)
    plan = plans.get(key)
    if plan is None:  # which keeps the pattern alive
        plan = plans[key] = SparsePlan(pattern, mode, traced.program.out_avals[:main], inputs)
    return plan


def sparse_program(traced: TracedCall, main: int, first: int, plan: SparsePlan, moving: Sequence[bool],
                   chunk_size: int | None, is_bcoo: bool) -> Derived:
    """Return the program inputs -> (outputs from `first` on, entries of each block), for a BCOO in any order."""
    program = traced.program
    inputs, outputs = select_marked(program.in_avals[program.captured:], moving), program.out_avals[:main]
    wrt = traced.wrt(moving)
    half = linearize_program(program, wrt).extra
    plan.is_product = (len(program.outputs) == main == len(inputs) == 1 and all(half.nonzero_outputs)
                       and plan.pattern.density > _DENSE and not plan.is_reverse and can_factor(half.linear))

    def build(*primals: Any) -> tuple[list[Any], None]:
        derived = linearize_program(program, wrt)
        results = derived(primals)
        with ensure_compile_time_eval() if order == "together" else contextlib.nullcontext():
            # What is linear in known seeds alone is computed once.
            return [*results[first:len(program.outputs)], *entries(derived.extra, results)], None

    def entries(half: Linearized, results: Sequence[Any]) -> list[Any]:
        count = len(program.outputs)
        if plan.is_product:
            (matrix,), = push_identity(half.linear, results[count:])
            flat = reshape(matrix, (aval_of(matrix).size,))
            height, width = plan.pattern.shape
            if plan.pattern.nnz == height * width:
                return [flat]
            return [_entries(flat, plan.pattern.rows.astype(np.int64) * width + plan.pattern.indices)]
        passes = Passes(program, half, results[count:], main)
        columns, rows, places = plan.compression
        dtype = np.result_type(*(aval.dtype for aval in outputs), *(aval.dtype for aval in inputs)) if (
            len({aval.dtype for aval in (*outputs, *inputs)}) > 1) else outputs[0].dtype
        parts = []
        for apply, coloring, sources, targets in ((passes.push, columns, inputs, outputs),
                                                  (passes.pull, rows, outputs, inputs)):
            parts += (_products(apply, coloring, sources, targets, chunk_size, dtype) if order == "together" else
                      _products_in_turn(apply, coloring, sources, targets, dtype, order))
        flat = parts[0] if len(parts) == 1 else concatenate(parts, 0) if parts else None
        if is_bcoo and plan.pieces is not None:
            cut = [slice_in_dim(flat, first, last, 0) for first, last in plan.pieces]
            return cut if len(cut) == 1 else [concatenate(cut, 0)]
        blocks = []
        for block in plan.blocks:
            chosen = places if block.entries is None else places[block.entries]
            blocks.append(zeros(Aval((0,), dtype)) if flat is None or not chosen.size else _entries(flat, chosen))
        return blocks

    order = _order_of(half, plan.compression, _total(inputs) + _total(outputs)) if (
        is_bcoo and not plan.is_product) else "together"
    return derive(program, (_PASSES, plan, main, first, chunk_size, is_bcoo, order, *moving), build, program.in_avals)


def _order_of(half: Linearized, compression: Compression, size: int) -> str:
    """Return how XLA's passes over so many elements are ordered: "together", "in turn", or in a "loop" over colors.

    XLA fuses passes that are done together into one loop over colors and elements, which computes the residuals again
    for each color. In turn they are computed once, and unit vectors are made where they are used. That takes as many
    instructions as colors, or a loop, which takes longer to compile. Products with matrices are better done for all
    colors at once, and on accelerators one kernel is.
    """
    count, equations = compression.columns.number + compression.rows.number, half.linear.equations
    if count < 2 or default_device().platform != "cpu" or used_axes(half.linear) or any(
            equation.regions or equation.cost.flops > _FLOPS * size for equation in equations):
        return "together"
    return "in turn" if count * len(equations) <= _IN_TURN else "loop" if count * size >= _IN_LOOP else "together"


_FLOPS = 4
"""Operations for each element of inputs and outputs, at most, of what acts on elements."""
_IN_TURN = 64
"""Equations of all passes up to which they are compiled one by one."""
_IN_LOOP = 1 << 20
"""Elements of all passes from which on a loop is faster by more than it takes to compile."""


def _products(apply: Callable[[Sequence[Any], int], list[Any]], coloring: Coloring, sources: Sequence[Aval],
              targets: Sequence[Aval], chunk_size: int | None, dtype: Any) -> list[Any]:
    """Return the flat results of the passes for all colors, in pieces of as many colors as `chunk_size` allows."""
    count = coloring.number
    step = count if chunk_size is None else chunk_size
    parts = []
    for start in range(0, count, max(step, 1)):
        size = min(step, count - start)
        seeds, first = [], 0
        for aval in sources:
            own = coloring.colors[first:first + aval.size].reshape(1, *aval.shape)
            first += aval.size
            numbers = np.arange(start, start + size, dtype=np.int32).reshape(size, *[1] * aval.ndim)
            seed = (own == numbers).astype(aval.dtype)
            seed.flags.writeable = False  # or a copy of it is captured, and one of each slice
            seeds.append(seed)
        found = apply(seeds, size)
        rows = [convert(reshape(value, (size, aval.size)), dtype) for value, aval in zip(found, targets, strict=True)]
        whole = rows[0] if len(rows) == 1 else concatenate(rows, 1)
        parts.append(reshape(whole, (size * _total(targets),)))
    return parts


def _products_in_turn(apply: Callable[[Sequence[Any], int | None], list[Any]], coloring: Coloring,
                      sources: Sequence[Aval], targets: Sequence[Aval], dtype: Any, order: str) -> list[Any]:
    """Return the flat results of the passes for all colors, computed one after the other."""
    colors = coloring.colors.astype(np.int32)
    colors.flags.writeable = False

    def of_color(color: Any) -> list[Any]:
        seeds, first = [], 0
        for aval in sources:
            own = colors[first:first + aval.size].reshape(aval.shape)
            first += aval.size
            seeds.append(convert(eq(own, color), aval.dtype))
        rows = [convert(reshape(value, (aval.size,)), dtype) for value, aval in zip(
            apply(seeds, None), targets, strict=True)]
        return rows if len(rows) == 1 else [concatenate(rows, 0)]

    numbers = np.arange(coloring.number, dtype=np.int32)
    if not numbers.size:
        return []
    if order == "in turn":  # stacked as together, or pieces on several devices would keep their places there
        found = concatenate([reshape(of_color(number)[0], (1, _total(targets))) for number in numbers], 0)
    else:
        pass_of_color, captured = trace_at(of_color, [Aval((), numbers.dtype)], mode=WITH_LITERALS, name="a pass")
        found, = bind_scan(pass_of_color, captured, [], [numbers], coloring.number)
    return [reshape(found, (coloring.number * _total(targets),))]


def _entries(flat: Any, places: Any) -> Any:
    """Return the elements of a flat array at known places."""
    kind = np.int32 if places.max() < 2 ** 31 else np.int64
    return gather(flat, places.astype(kind)[:, None], Windows((), (0,), (0,)), (1,), mode="promise_in_bounds")


def bcoo_of(plan: SparsePlan, block: Block, data: Any) -> Any:
    """Return a block as a BCOO, for a traced function as well."""
    from fxgrad.engine.api.sparse_matrices import matrix_of
    indices, is_sorted = plan.coordinates(block)
    return matrix_of(data, indices, block.shape, is_sorted)


def scipy_of(block: Block, data: Any, what: str) -> Any:
    """Return a block as a SciPy array."""
    from scipy import sparse
    data = np.asarray(data)
    if data.dtype.kind not in "fc" or data.dtype.itemsize < 4:
        raise DTypeError(at_user_line(
            f"{what} returns SciPy arrays, which have no {data.dtype.name}. Compute in float32, or pass arrays of jax, "
            "for a BCOO"))
    kind = np.int32 if block.indices.size < 2 ** 31 else np.int64  # of both, or SciPy converts them
    return sparse.csr_array((data, block.indices.astype(kind), block.starts.astype(kind)), shape=block.shape)


def given_pattern(what: str, value: Any, shape: tuple[int, int]) -> Pattern:
    """Return the pattern that a caller gave as `sparse=`; raise `ArgumentError` for another shape."""
    if not isinstance(value, Pattern) and len(getattr(value, "shape", ())) != 2:
        found = "hessian" if what == "hessian" else "jacobian"
        hint = f". Write sparse=fxgrad.sparsity(f)(x).{found}" if isinstance(value, Sparsity) else ""
        raise ArgumentError(at_user_line(
            f"{what}: sparse={value!r}; it must be True, False, a Pattern, or a matrix whose places are the pattern"
            f"{hint}"))
    pattern = value if isinstance(value, Pattern) else pattern_of_matrix(
        value.todense() if hasattr(value, "todense") and isinstance(getattr(value, "data", None), jax.Array) else value)
    if pattern.shape != shape:
        raise ArgumentError(at_user_line(
            f"{what}: sparse= is a pattern of shape {pattern.shape}, and the matrix has one row for each of "
            f"{shape[0]} elements of the output and one column for each of {shape[1]} of the input"))
    return pattern


def _check_given(what: str, traced: TracedCall, main: int, moving: Sequence[bool], found: Found, plan: SparsePlan,
                 inputs: Sequence[Any], entries: Sequence[Any]) -> None:
    """Raise `ArgumentError` if a pattern that the caller gave lacks an entry that is not 0 here.

    The first call with known values compares the matrix with that of the pattern that was found.
    """
    checked = _kept(traced.program).checked
    if plan in checked or any(type(value) is Tracer for value in entries):
        return
    own = plan_of(traced, main, moving, found.pattern, "reverse" if found.reverse_only else "auto")
    whole = without_literals(sparse_program(
        traced, main, len(traced.program.outputs), own, moving, None, is_bcoo=False)(inputs))
    for found_entries, block, given in zip(whole, own.blocks, plan.blocks, strict=True):
        width = block.shape[1]
        places = [np.repeat(np.arange(each.shape[0]), np.diff(each.starts)) * width + each.indices
                  for each in (block, given)]
        numbers = np.asarray(found_entries)
        missing = np.flatnonzero(~np.isin(places[0], places[1]) & (numbers != 0))
        if missing.size:
            row, column = divmod(int(places[0][missing[0]]), width)
            raise ArgumentError(at_user_line(
                f"{what}: the pattern given as sparse= lacks {missing.size} "
                f"entr{'y' if missing.size == 1 else 'ies'}: the first is ({row}, {column}), which is "
                f"{numbers[missing[0]]:.6g}. Pass sparse=True to find the pattern"))
    checked.add(plan)
