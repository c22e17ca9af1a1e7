"""Short forms of two equations in a row: `x[0]`, a range and a reshape; `x[i]` and its like, indices and a gather;
`diag(v)` and `diagonal(m)`.

`sugar` writes them, `desugar` reads them, by the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from fxgrad.extend import Atom, Equation, Variable
from fxgrad.extend.sizes import has_symbolic_dim
from fxgrad.text.diagonals import diagonal_form
from fxgrad.text.forms import Entry, Form, Item, OperandText, Span
from fxgrad.text.gathers import Make, Ready, make_gather, short_form
from fxgrad.text.indices import FULL, indexed_shape, new_axes, trim_full_ranges


def sugar(form: Form, equation: Equation, operands: Sequence[OperandText], given: Mapping[Variable, Ready],
          ) -> tuple[Form, list[OperandText]] | None:
    """Return the short form of an equation and one that is ready inside it; None if there is none."""
    last = equation.inputs[-1] if equation.inputs else None
    ready = given.get(last) if isinstance(last, Variable) else None
    if ready is None:
        return None
    diagonal = diagonal_form(form, ready) if len(operands) == 1 else None
    if diagonal is not None:
        return diagonal, [ready.operands[0]]
    shapes = [static for static in form.statics + ready.form.statics if type(static) is tuple]
    if any(type(size) is not int and not has_symbolic_dim(size) for shape in shapes for size in shape):
        return None
    ranges = ready.form.kind == "index" and all(isinstance(item, Span) for item in ready.form.statics)
    is_reshape = (form.kind == "index" and None in form.statics) or (form.kind, form.name) == ("call", "reshape")
    if len(operands) == 1 and ranges and is_reshape:
        items = _with_integers(ready.form.statics, ready.avals[0].shape, ready.var.aval.shape, equation.params["shape"])
        return None if items is None else (Form("index", "[]", 1, items), [*ready.operands])
    short = short_form(form, equation.inputs[0].aval, ready) if len(operands) == 2 else None
    return None if short is None else (short, [operands[0], *ready.operands])


def _with_integers(spans: Sequence[Item], shape: tuple[int, ...], part: tuple[int, ...],
                   result: tuple[int, ...]) -> tuple[Item, ...] | None:
    """Return the items of one index that slices an array of `shape` to `part` and reshapes it to `result`."""
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
    return trim_full_ranges(items) if given == result else None


def desugar(items: Sequence[Item], base: Atom, arrays: Sequence[Atom], make: Make, once: Make,
           fail: Callable[[str], NoReturn]) -> list[Any]:
    """Make the equations of an index with integers or with arrays; returns the result."""
    shape = base.aval.shape
    used = sum(item is not None for item in items)
    if used > len(shape):
        fail(f"an index with {used} items of an array with {len(shape)} {'axis' if len(shape) == 1 else 'axes'}")
    if arrays:
        if any(item not in (FULL, Entry()) for item in items):
            fail("arrays stand in an index beside full ranges alone: x[i], x[:, i, j]; for others write "
                 "gather(x, indices)")
        axes = [axis for axis, item in enumerate(items) if item == Entry()]
        return [make_gather(base, arrays, axes, make, once)]
    sizes_left = iter(shape)
    spans = [_single_span(item, next(sizes_left), fail) if item is not None else None for item in items]
    part = make(Form("index", "[]", 1, trim_full_ranges([span for span in spans if span is not None])), [base])
    sizes = indexed_shape(part.aval.shape, [1 if type(item) is int else item for item in items])
    return [make(Form("call", "reshape", 1, (sizes,)), [part])]


def _single_span(item: Item, size: int, fail: Callable[[str], NoReturn]) -> Span:
    if type(item) is not int:
        assert isinstance(item, Span)
        return item
    place = item + size if item < 0 else item
    if not 0 <= place < size:
        fail(f"the index {item} is out of range for an axis of size {size}")
    return Span(place, place + 1)
