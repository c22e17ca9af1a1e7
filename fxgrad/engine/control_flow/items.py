"""Items of lists, dicts and arrays in converted code, also where a traced index selects them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes, tree
from fxgrad.engine.control_flow.aliases import may_be
from fxgrad.engine.control_flow.blocks import is_unknown, refuse
from fxgrad.engine.control_flow.structures import (
    ChosenMember,
    containers_in,
    flatten,
    stacked,
    unflatten,
)
from fxgrad.engine.frontend.views import is_view
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.errors import ControlFlowError
from fxgrad.numpy.indexing import getitem


def number_name(value: Any) -> str:
    """Return the name of the type of Python's that a traced value stands for a number of; "" for arrays and others."""
    if type(value) is not Tracer or value.shape or not value.weak_type:
        return ""
    return {"b": "bool", "f": "float", "c": "complex"}.get(dtypes.kind_of(value.dtype), "int")


def select(container: Any, index: Any) -> Any:
    """Return `container[index]`; a traced index selects from NumPy arrays and lists of numbers too."""
    if type(index) in (slice, tuple) and has_unknown_bound(index):
        raise refuse_bound(container)
    parts = entries_of(index)
    if container is np.r_ or container is np.c_:
        return _joined(container, parts)
    if type(index) is ChosenMember and isinstance(container, dict):
        return index.among(lambda member: container[member], "the item of the dict")
    is_array = isinstance(container, np.ndarray)
    if any(type(part) is Tracer and (is_unknown(part) or (is_array and part.shape)) for part in parts) or (
            is_array and any(type(part) is list and any(type(each) is Tracer for each in part) for part in parts)):
        if is_array:
            found = getitem(container, index)
            return may_be(found, [container]) if type(found) is Tracer and is_view(index, found) else found
        if isinstance(container, list | tuple):
            flat = [flatten(each) for each in container]
            if container and isinstance(container[0], tuple) and all(
                    one.structure == flat[0].structure and None not in one.avals for one in flat) and not containers_in(
                    tuple(container)):
                rows = zip(*(one.leaves for one in flat), strict=True)
                return unflatten(flat[0].structure, [select([*row], index) for row in rows])
            try:
                return may_be(stacked(container)[as_number(index)], container)
            except (TypeError, ValueError):
                raise refuse(f"a traced index selects from a {type(container).__name__} whose items are not arrays of "
                             "one shape. Keep them in one array, or choose with fxgrad.lax.switch") from None
        if isinstance(container, str | bytes):
            raise _without_text(container)
        if isinstance(container, dict):
            raise refuse("a traced value is no key of a dict. Keep the values in an array, and select by position")
    return container[index]


def _joined(container: Any, parts: tuple[Any, ...]) -> Any:
    """Return `numpy.r_[parts]` or `numpy.c_[parts]`, of traced values too, in the dtype of NumPy's."""
    if not any(type(leaf) is Tracer for leaf in tree.leaves(parts)):
        return container[parts]
    zeros = tree.map(_zeros_like, parts)
    arrays = [np.r_[part] if type(part) is slice else
              fnp.asarray(part, np.asarray(zero).dtype) if type(part) in (list, tuple) else part
              for part, zero in zip(parts, zeros, strict=True)]
    return convert((fnp.r_ if container is np.r_ else fnp.c_)[tuple(arrays)], container[zeros].dtype)


def _zeros_like(value: Any) -> Any:
    """Return zeros of the type of a traced value for NumPy: a Python number for a traced one."""
    if type(value) is not Tracer:
        return value
    zeros = np.zeros(value.shape, value.dtype)
    return zeros.item() if value.weak_type and not value.shape else zeros


def has_unknown_bound(index: Any) -> bool:
    """Return whether a bound of a slice in an index is traced."""
    return any(isinstance(each, slice) and any(map(is_unknown, (each.start, each.stop, each.step)))
               for each in entries_of(index))


def refuse_bound(container: Any = None) -> ControlFlowError:
    """Return the error for a slice, of a container or else of an array, whose length must be known."""
    if isinstance(container, str | bytes):
        return _without_text(container)
    if isinstance(container, list | tuple):
        return refuse(f"a bound of this slice of a {type(container).__name__} is traced, and so would be its length. "
                      "Make an array of the items before, x = np.array(xs), and write x[a:b]; or go over the items in "
                      "a loop with an `if`")
    return refuse("a bound of this slice is traced, and its length must be known. Write "
                  "fxgrad.lax.dynamic_slice(x, (start,), (length,)), or go over the items in a loop with an `if`")


def _without_text(text: str | bytes) -> ControlFlowError:
    return refuse(f"a traced index selects from a {type(text).__name__}, and compiled functions compute with numbers "
                  "alone. Select from the numbers of the characters, [*map(ord, text)][i], or return the index and "
                  "look the text up outside")


def entries_of(index: Any) -> tuple[Any, ...]:
    """Return the entries of an index, one or several."""
    return index if isinstance(index, tuple) else (index,)


def as_number(index: Any) -> Any:
    """Return a traced index of a list; there True is 1, and no mask."""
    return index.astype("int32") if getattr(index, "dtype", None) == np.bool_ else index


def from_front(number: Any, size: Any) -> Any:
    """Return a traced index of an axis or a list as the number of the element; negative ones count from the end."""
    return fnp.where(fnp.less(number, 0), number + size, number)
