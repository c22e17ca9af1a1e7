"""Short forms of two equations in a row: `x[0]`, a range and a reshape; `x[i]`, a reshape of `i` and a gather.

`sugared` writes them, `spread` reads them, by the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from fxgrad.core.avals import Aval, Shape
from fxgrad.core.program import Atom, Equation, Var
from fxgrad.show.forms import Entry, Form, Item, Shown, Span
from fxgrad.show.indices import FULL, indexed_shape, new_axes, trimmed


class Ready(NamedTuple):
    """An expression that may stand inside another: its value, its form, and the texts and types of its operands."""

    var: Var
    form: Form
    operands: tuple[Shown, ...]
    avals: tuple[Aval, ...]


def sugared(form: Form, equation: Equation, operands: Sequence[Shown], given: Mapping[Var, Ready],
            ) -> tuple[Form, list[Shown]] | None:
    """A form that stands for an equation and for one that stands ready inside it; None if there is none."""
    last = equation.inputs[-1] if equation.inputs else None
    ready = given.get(last) if isinstance(last, Var) else None
    if ready is None:
        return None
    shapes = [static for static in form.statics + ready.form.statics if type(static) is tuple]
    if any(type(size) is not int for shape in shapes for size in shape):
        return None
    ranges = ready.form.kind == "index" and all(isinstance(item, Span) for item in ready.form.statics)
    if len(operands) == 1 and ranges and _is_reshape(form):
        items = _with_integers(ready.form.statics, ready.avals[0].shape, ready.var.aval.shape, equation.params["shape"])
        return None if items is None else (Form("index", "[]", 1, items), [*ready.operands])
    axis = _gathered_axis(form) if len(operands) == 2 else None
    if axis is not None and len(ready.operands) == 1 and ready.var.aval.shape == (*ready.avals[0].shape, 1) and \
            _is_reshape(ready.form) and ready.avals[0].dtype.kind in "iu":
        return Form("index", "[]", 2, (*[FULL] * axis, Entry())), [operands[0], ready.operands[0]]
    return None


def _with_integers(spans: Sequence[Item], shape: Shape, part: Shape, result: Shape) -> tuple[Item, ...] | None:
    """The items of one index for a range of an array of `shape` that gives `part`, reshaped to `result`."""
    spans = (*spans, *[FULL] * (len(shape) - len(spans)))
    if all(span == FULL for span in spans):
        return None  # would be read as the reshape alone
    single = [span != FULL and size == 1 for span, size in zip(spans, part, strict=True)]
    dropped = tuple(size for size, gone in zip(part, single, strict=True) if not gone)
    added = new_axes(dropped, result) if dropped != result else (FULL,) * len(result)
    if added is None or not (any(single) or None in added):
        return None
    if any(gone and isinstance(span, Span) and span.step for gone, span in zip(single, spans, strict=True)):
        return None
    after = iter([*added, *[FULL] * (len(dropped) - sum(item == FULL for item in added))])
    items: list[Item] = []
    for span, gone, size in zip(spans, single, shape, strict=True):
        if gone:
            assert isinstance(span, Span)
            start = span.start or 0
            items.append(start - size if start == size - 1 > 1 and span.stop is None else start)
            continue
        while next(after) is None:
            items.append(None)
        items.append(span)
    items += list(after)
    given = indexed_shape(part, [1 if type(item) is int else item for item in items])
    return trimmed(items) if given == result else None


def _is_reshape(form: Form) -> bool:
    return (form.kind == "index" and None in form.statics) or (form.kind, form.name) == ("call", "reshape")


def _gathered_axis(form: Form) -> int | None:
    """The axis along which a gather takes entries where NumPy's index would, if that is all that it does."""
    if (form.kind, form.name) != ("call", "gather"):
        return None
    given = dict(form.params)
    mapped = given.pop("start_index_map", (0,))
    return mapped[0] if not given and len(mapped) == 1 else None


def spread(items: Sequence[Item], base: Atom, arrays: Sequence[Atom], make: Callable[[Form, list[Any]], Any],
           fail: Callable[[str], NoReturn]) -> list[Any]:
    """Makes the equations of an index with integers or with an array; returns the result."""
    shape = base.aval.shape
    used = sum(item is not None for item in items)
    if used > len(shape):
        fail(f"an index with {used} items of an array with {len(shape)} {'axis' if len(shape) == 1 else 'axes'}")
    if arrays:
        axis = len(items) - 1
        if items != [*[FULL] * axis, Entry()]:
            fail("one array stands in an index, after full ranges alone: x[i], x[:, i]; for others write "
                 "gather(x, indices)")
        rows = make(Form("call", "reshape", 1, ((*arrays[0].aval.shape, 1),)), [arrays[0]])
        params = (("start_index_map", (axis,)),) if axis else ()
        return [make(Form("call", "gather", 2, (), params), [base, rows])]
    axes = iter(shape)
    spans = [_one(item, next(axes), fail) if item is not None else None for item in items]
    part = make(Form("index", "[]", 1, trimmed([span for span in spans if span is not None])), [base])
    sizes = indexed_shape(part.aval.shape, [1 if type(item) is int else item for item in items])
    return [make(Form("call", "reshape", 1, (sizes,)), [part])]


def _one(item: Item, size: int, fail: Callable[[str], NoReturn]) -> Span:
    if type(item) is not int:
        assert isinstance(item, Span)
        return item
    place = item + size if item < 0 else item
    if not 0 <= place < size:
        fail(f"the index {item} is out of range for an axis of size {size}")
    return Span(place, place + 1)
