"""A gather as NumPy writes it: `x[i]`, `x[:, i, j]`, `take(x, i, axis=1)`, `take_along_axis(x, i, axis=1)`.

Each is short for two equations: one that makes the array of indices from one or several arrays, and the gather. If the
program has an equal array of indices already, that one is meant; it is not made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from fxgrad.extend import Atom, Aval, Primitive, ProgramAttribute, Variable, cache_key, primitives
from fxgrad.text.forms import Entry, Form, OperandText, Span
from fxgrad.text.notations import defaults
from fxgrad.text.parameters import order_parameters

_FULL = Span()
_REST = {"fill_value", "mode", "promises"}


IMPLIED: ProgramAttribute[frozenset[Variable]] = ProgramAttribute("implied indices")
"""Arrays of indices of a program that was read, to which its text gives names, and which indices imply nevertheless."""


class Ready(NamedTuple):
    """An expression that may be inlined into another: its value, its form, and the texts and types of its operands."""

    var: Variable
    form: Form
    operands: tuple[OperandText, ...]
    avals: tuple[Aval, ...]


def indices_key(primitive: Primitive, atoms: Sequence[Atom], params: dict[str, Any]) -> Hashable:
    """Return a key of equations that may make an array of indices, equal for equal ones; None for all others."""
    if (primitive is primitives.reshape
        or primitive is primitives.stack) and atoms and atoms[0].aval.dtype.kind in "iu":
        return primitive, *((name, cache_key(value)) for name,
                            value in order_parameters(primitive, params).items()), *atoms
    return None


def short_form(gather: Form, x: Aval, indices: Ready) -> Form | None:
    """Return the form of a gather from `x` in terms of the operands of its indices; None if NumPy has none."""
    if (gather.kind, gather.name) != ("call", "gather"):
        return None
    count = _num_columns(indices)
    if not count:
        return None
    given = dict(gather.params)
    shape = indices.avals[0].shape
    layout = {**defaults.of(primitives.gather)([x, indices.var.aval], given), **given}
    along = _along_axis(x, len(shape), layout) if count == 1 else ()
    axes = along or layout["start_index_map"]
    numpy = _numpy(x, axes, len(shape), bool(along))
    if any(layout[name] != value for name, value in numpy.items()):
        return None
    rest = tuple((name, value) for name, value in given.items() if name in _REST)
    if given.keys() - _REST - numpy.keys() or [*axes] != sorted({*axes}):
        return None
    if along:
        return Form("call", "take_along_axis", 2, (), (("axis", along[0]), *rest))
    if rest:
        return Form("call", "take", 2, (), (("axis", axes[0]), *rest)) if count == 1 else None
    return Form("index", "[]", 1 + count, tuple(Entry() if axis in axes else _FULL for axis in range(axes[-1] + 1)))


def _num_columns(indices: Ready) -> int:
    """Return how many integer arrays of one shape the indices are stacked from; 0 if they are made otherwise."""
    form, avals = indices.form, indices.avals
    if not avals or any(aval.shape != avals[0].shape or aval.dtype.kind not in "iu" for aval in avals):
        return 0
    is_reshape = (form.kind == "index" and None in form.statics) or (form.kind, form.name) == ("call", "reshape")
    is_stack = (form.kind, form.name, form.statics) == ("call", "stack", ()) and \
        dict(form.params) == ({"axis": avals[0].ndim} if avals[0].ndim else {})
    return len(avals) if (is_reshape or is_stack) and indices.var.aval.shape == (*avals[0].shape, len(avals)) else 0


def _along_axis(x: Aval, rank: int, layout: dict[str, Any]) -> tuple[int, ...]:
    """Return the axis, if entries are taken along one axis at each position of the others; else an empty tuple."""
    batching = layout["operand_batching_dims"]
    axes = tuple(axis for axis in range(x.ndim) if axis not in batching)
    return axes if batching and len(axes) == 1 and rank == x.ndim else ()


def _numpy(x: Aval, axes: Sequence[int], rank: int, along: bool) -> dict[str, Any]:
    """Return the dimension numbers of the gather that NumPy's index, or `take_along_axis`, performs."""
    if along:
        others = tuple(axis for axis in range(x.ndim) if axis not in axes)
        return {"operand_batching_dims": others, "start_indices_batching_dims": others, "start_index_map": (*axes,),
                "offset_dims": ()}
    side_by_side = [*axes] == [*range(axes[0], axes[0] + len(axes))]
    placed = axes[0] if side_by_side else 0
    count = x.ndim - len(axes) + rank
    return {"operand_batching_dims": (), "start_indices_batching_dims": (), "start_index_map": (*axes,),
            "offset_dims": tuple(axis for axis in range(count) if not placed <= axis < placed + rank)}


Make = Callable[[Form, list[Any]], Any]


def make_gather(base: Atom, arrays: Sequence[Atom], axes: Sequence[int], make: Make, once: Make, along: bool = False,
                rest: tuple[tuple[str, Any], ...] = ()) -> Any:
    """Make a gather along `axes` by one array each; `once` makes parts that may exist already."""
    shape = arrays[0].aval.shape
    if len(arrays) == 1:
        indices = once(Form("call", "reshape", 1, ((*shape, 1),)), [*arrays])
    else:
        indices = once(Form("call", "stack", len(arrays), (), (("axis", len(shape)),)), [*arrays])
    layout = _numpy(base.aval, axes, len(shape), along)
    return make(Form("call", "gather", 2, (), (*layout.items(), *rest)), [base, indices])
