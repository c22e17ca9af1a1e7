"""Notations of shapes and places: `x.T`, `x[1:3, None]`, `reshape(x, (2, 3))`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fxgrad.extend import Aval, primitives
from fxgrad.extend.sizes import has_symbolic_dim, slice_indices
from fxgrad.text.forms import Form, Item, Span
from fxgrad.text.notations import Notation, Params, register_notation

Avals = Sequence[Aval]
FULL = Span()


# --- transposition ------------------------------------------------------------------------------------------------


def _write_transpose(_: Avals, params: Params) -> Iterator[Form]:
    if params["permutation"] == (1, 0):
        yield Form("turned", "T", 1)
    yield Form("call", "transpose", 1, (params["permutation"],))


def _read_transpose(form: Form, avals: Avals) -> Params | None:
    if form.kind == "turned":
        return {"permutation": (1, 0)} if avals[0].ndim == 2 else None
    return _one_tuple("permutation", form)


def _one_tuple(name: str, form: Form) -> Params | None:
    """Return the only tuple of a call of one operand as the parameter `name`."""
    if form.arity != 1 or form.params or len(form.statics) != 1 or type(form.statics[0]) is not tuple:
        return None
    return {name: form.statics[0]}


register_notation(Notation(_write_transpose, (("turned", "T"), ("call", "transpose")), _read_transpose),
                  primitives.transpose)


# --- ranges -------------------------------------------------------------------------------------------------------


def trim_full_ranges(items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the items of an index without full ranges at the end; one remains if nothing else does."""
    kept = [*items]
    while len(kept) > 1 and kept[-1] == FULL:
        kept.pop()
    return tuple(kept)


def shortest_span(start: Any, limit: Any, step: int, size: Any) -> Span:
    """Return the shortest range for an axis of `size` elements; from the end for its last two."""
    from_end = size - limit
    if has_symbolic_dim(size):  # a position at a known distance from the end is counted from there
        begin = start - size if has_symbolic_dim(start) else None if start == 0 else start
        stop = (-from_end or None) if type(from_end) is int else limit
        return Span(begin, stop, None if step == 1 else step)
    stop = None if not from_end else -from_end if from_end <= 2 <= limit and from_end < limit else limit
    return Span(start or None, stop, None if step == 1 else step)


def _write_slice(avals: Avals, params: Params) -> Iterator[Form]:
    bounds = zip(params["start_indices"], params["limit_indices"], params["strides"], avals[0].shape, strict=True)
    yield Form("index", "[]", 1, trim_full_ranges([shortest_span(*bound) for bound in bounds]))


def _bounds(span: Any, size: Any) -> tuple[Any, Any, Any]:
    """Return start, stop and step of a range on an axis, whose size may be symbolic."""
    if not has_symbolic_dim(size):
        return slice(*span).indices(size)
    begin, count, step = slice_indices(slice(*span), size)
    return begin, begin + count if step == 1 else begin + (count - 1) * step + 1, step


def _read_slice(form: Form, avals: Avals) -> Params | None:
    shape = avals[0].shape
    spans = form.statics
    if form.arity != 1 or len(spans) > len(shape) or not all(isinstance(item, Span) for item in spans):
        return None
    spans = (*spans, *[FULL] * (len(shape) - len(spans)))
    bounds = [_bounds(span, size) for span, size in zip(spans, shape, strict=True)]
    starts, limits, strides = (tuple(bound[place] for bound in bounds) for place in range(3))
    return {"start_indices": starts, "limit_indices": limits, "strides": strides}


register_notation(Notation(_write_slice, (("index", "[]"),), _read_slice), primitives.slice)


# --- shapes -------------------------------------------------------------------------------------------------------


def new_axes(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[Item, ...] | None:
    """Return the index that turns one shape into another by inserting axes of size 1; None if there is none."""
    items: list[Item] = []
    place = 0
    for size in after:
        if place < len(before) and before[place] == size:
            items.append(FULL)
            place += 1
        elif size == 1:
            items.append(None)
        else:
            return None
    return trim_full_ranges(items) if place == len(before) and None in items else None


def _write_reshape(avals: Avals, params: Params) -> Iterator[Form]:
    items = new_axes(avals[0].shape, params["shape"])
    if items is not None:
        yield Form("index", "[]", 1, items)
    yield Form("call", "reshape", 1, (params["shape"],))


def _read_reshape(form: Form, avals: Avals) -> Params | None:
    if form.kind == "call":
        return _one_tuple("shape", form)
    if form.arity != 1 or None not in form.statics or not all(item in (None, FULL) for item in form.statics):
        return None
    if form.statics.count(FULL) > avals[0].ndim:
        return None
    return {"shape": indexed_shape(avals[0].shape, form.statics)}


def indexed_shape(shape: tuple[int, ...], items: Sequence[Item]) -> tuple[int, ...]:
    """Return the shape after new axes are inserted, and integer-indexed axes, of size 1, are dropped."""
    sizes = iter(shape)
    result: list[int] = []
    for item in items:
        if item is None:
            result.append(1)
        elif isinstance(item, Span):
            result.append(next(sizes))
        else:
            next(sizes)
    return (*result, *sizes)


register_notation(Notation(_write_reshape, (("index", "[]"), ("call", "reshape")), _read_reshape), primitives.reshape)


# --- lists of axes ------------------------------------------------------------------------------------------------


def _write_split(_: Avals, params: Params) -> Iterator[Form]:
    axis = params["axis"]
    yield Form("call", "split", 1, (params["sizes"],), (("axis", axis),) if axis else ())


def _read_split(form: Form, _: Avals) -> Params | None:
    found: Any = _one_tuple("sizes", form._replace(params=()))
    if found is None or {name for name, _ in form.params} - {"axis"}:
        return None
    return {**found, "axis": dict(form.params).get("axis", 0)}


register_notation(Notation(_write_split, (("call", "split"),), _read_split), primitives.split)


def _write_pad(_: Avals, params: Params) -> Iterator[Form]:
    yield Form("call", "pad", 2, (params["padding_config"],))


def _read_pad(form: Form, _: Avals) -> Params | None:
    two = form.arity == 2 and len(form.statics) == 1 and type(form.statics[0]) is tuple and not form.params
    return {"padding_config": form.statics[0]} if two else None


register_notation(Notation(_write_pad, (("call", "pad"),), _read_pad), primitives.pad)
