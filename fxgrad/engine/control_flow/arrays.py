"""Arrays whose items converted code assigns: `x[i] = v` gives the name `x` a new array, if nobody else has the old one.

NumPy changes the array for every name, container and view that has it. A new array in the place of the old one, which
is a variable, an item or an attribute, is equivalent if nothing else refers to the old one (`ownership.py`).
"""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.control_flow import positions
from fxgrad.engine.control_flow.aliases import (
    ASSIGNED,
    Shared,
    count_marks,
    count_others,
    loans,
    note_array_change,
)
from fxgrad.engine.control_flow.assigned_items import ItemInPlace, ListItems, Place, assigned, mutable, select_place
from fxgrad.engine.control_flow.blocks import block, is_caught, is_unknown, refuse
from fxgrad.engine.control_flow.growing import place_of
from fxgrad.engine.control_flow.items import as_number, entries_of, from_front, has_unknown_bound
from fxgrad.engine.control_flow.ownership import (
    Item,
    Slot,
    cell_of,
    content_of,
    hold_copy,
    is_array,
    is_carried,
    is_sole,
    owns_elements,
)
from fxgrad.engine.control_flow.slices import (
    OpenMesh,
    TracedSlice,
    aligned,
    are_places,
    check_lengths,
    is_condition,
    is_temporary,
    item,
    mask_of,
    places_and_values,
    refuse_chosen_places,
)
from fxgrad.engine.control_flow.structures import OptionalValue, UnknownLength, as_elements, is_growing, is_record
from fxgrad.engine.control_flow.variables import note_names
from fxgrad.engine.core.arrays import Array
from fxgrad.engine.frontend.operands import operand
from fxgrad.engine.tracing.tape import aval_of, current
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError
from fxgrad.numpy.arrays import is_number


def value_set(value: Any, name: str, is_certain: bool) -> Any:
    """Return the value of a variable that may be None; that it has one is checked, if it is not certain."""
    if type(value) is not OptionalValue:
        return value
    return value.value if is_certain else value.required(
        f"`{name}` is None where a value is needed. Ask `if {name} is None` before")


def returned(variable: FunctionType, is_certain: bool = False) -> Any:
    """Return the value of a variable that an early `return` gives: nothing changes the array after it.

    It may be None if it is not `is_certain` that it has a value.
    """
    value = variable()
    if type(value) is OptionalValue:
        return value.value if is_certain else value
    cell = cell_of(variable)
    if block.get() is None or not is_array(value) or any(
            cell is each for loan in loans.get() for each in loan.borrowers):
        return value
    del value
    return copy.copy(cell.cell_contents) if is_sole(cell) else cell.cell_contents


def _is_result(value: Any) -> bool:
    """Return whether a value is an array that a function of fxgrad made, and that nobody writes to."""
    return type(value) is Array and not value.flags.writeable


def stored(variable: FunctionType, name: str, is_parameter: bool, depth: int | None = None) -> Any:
    """Return the object of a variable whose items change; for an array, a place that gives the variable a new one.

    `depth` is the number of traced blocks around the function that has the variable, if that is another one, or if the
    change stands in an expression that a traced condition may choose.
    """
    value = variable()
    if type(value) is Row:
        return value.place_at(depth)
    if type(value) is OptionalValue:
        value = cell_of(variable).cell_contents = value_set(value, name, is_certain=False)
    if not (is_array(value) if current.get() is not None else _is_result(value)):
        return value
    return ArrayItems(cell_of(variable), name, is_parameter, depth)


def place(container: Any, index: Any, name: str) -> Any:
    """Return `container[index]` to change its items; for an array, a place that gives the container a new one."""
    if isinstance(container, Place):
        return container.place(index)
    if is_growing(container):
        return ItemInPlace() if _holds_arrays(container) else positions.item(container, index)
    if current.get() is not None and type(container) in (list, dict) and not is_unknown(index):
        found = container[index]
        return ArrayItems(Item(container, index), name) if is_array(found) else found
    if type(container) is list and is_unknown(index) and container and all(map(is_array, container)):
        return ArrayRows(container, index, name)
    if type(container) is tuple and not is_unknown(index) and type(container[index]) is Tracer:
        raise refuse(f"{name}[...] = v changes an array in a tuple, which cannot get another array in its place. Give "
                     "the array a name, or a parameter, of its own; or keep it in a list that the function makes")
    return select_place(container, index)


def _holds_arrays(items: list[Any]) -> bool:
    """Return whether items of a list whose length is traced are arrays, which an operator changes in place."""
    return any(is_array(place_of(each)[1]) for each in items)


def attribute(owner: Any, getter: FunctionType, name: str) -> Any:
    """Return the attribute that `getter` reads to change its items; for an array, a place to give it a new one."""
    key = getter.__code__.co_names[0]  # a private name is that of its class there
    if current.get() is not None and is_record(owner) and is_array(vars(owner).get(key)):
        return ArrayItems(Item(owner, key), name)
    return getter(owner)


def slots(target: Any, name: str) -> Any:
    """Return the list, dict or object of `target[k] += v` or `target.k += v`, which may change an array in place."""
    if current.get() is None or isinstance(target, Place):
        return target
    if type(target) in (list, dict, ListItems):
        return _ItemSlots(target, name)
    return _AttributeSlots(target, name) if is_record(target) else target


def _changes_in_place(value: Any) -> bool:
    """Return whether an operator such as `+=` changes the elements of a value, which it does not of a number.

    Numbers that are computed from known arrays are `Array`s, which give way to new ones, as NumPy's scalars.
    """
    return is_array(value) and not (isinstance(value, Array) and is_number(value))


class _ItemSlots:
    """A list or dict whose arrays an operator such as `+=` changes in place."""

    def __init__(self, target: Any, name: str) -> None:
        self._target, self._name = target, name

    def __getitem__(self, key: Any) -> Any:
        container = self._target.items if type(self._target) is ListItems else self._target
        if is_growing(container):
            return ItemInPlace()[key] if _holds_arrays(container) else self._target[key]
        if not is_unknown(key) and _changes_in_place(container[key]):
            return ArrayItems(Item(container, key), self._name)
        return self._target[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(value) is not ArrayItems:  # that has changed its array
            self._target[key] = value


class _AttributeSlots:
    """An object whose arrays an operator such as `+=` changes in place."""

    def __init__(self, target: Any, name: str) -> None:
        vars(self).update({"~target": target, "~name": name})

    def __getattr__(self, key: str) -> Any:
        target = vars(self)["~target"]
        if _changes_in_place(vars(target).get(key)):
            return ArrayItems(Item(target, key), vars(self)["~name"])
        return getattr(target, key)

    def __setattr__(self, key: str, value: Any) -> None:
        if type(value) is not ArrayItems:
            setattr(vars(self)["~target"], key, value)


def augmented(variable: FunctionType, name: str, value: Any) -> None:
    """Prepare `name += value`, which changes a list or an array in place; raise if it would change for others too."""
    around, target = block.get(), variable()
    if around is None and isinstance(target, np.ndarray):
        if not _has_tracer(value) or current.get() is None:
            note_array_change(target, name)
            return
    else:
        if around is not None and type(target) is Tracer and type(getattr(target, "viewed", None)) is Shared:
            raise refuse(f"an operator such as += changes the array of `{name}` in place inside {around.text}, and "
                         f"another name may hold that array. Write {name} = {name} + ...")
        mutable(target)
        if type(target) is not Tracer or not (count_marks(target) or type(getattr(target, "viewed", None)) is Tracer):
            return  # in the first turn of a loop, Python would count the mark too, and always what it is a view of
    cell = cell_of(variable)
    del target
    if is_sole(cell):
        hold_copy(cell, cell.cell_contents)


class ArrayItems(Place):
    """The items of the array that a variable, an item or an attribute has."""

    def __init__(self, cell: Slot, name: str, is_parameter: bool = False, depth: int | None = None) -> None:
        self._cell, self._name, self._is_parameter, self.depth = cell, name, is_parameter, depth

    @property
    def slot(self) -> tuple[Slot, str, int | None]:
        """Where the array is, what it is named, and how many blocks are around the function that has it, if another."""
        return self._cell, self._name, self.depth

    def __getitem__(self, index: Any) -> Any:
        """Return `x[index]` for an operator such as `+=`, which then assigns it."""
        array = self._cell.cell_contents
        mask = mask_of(array, index)
        if mask is None:
            return _Operand(item(array, index))
        one = np.ones((), aval_of(array).dtype)[()]  # the other elements must not make NaNs
        return _Operand(fnp.where(mask, array, one), mask, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        mask, chosen = None, are_places(index)
        if not chosen:
            refuse_chosen_places(index)
        if type(value) is _Operand:
            value, mask = value.elements, value.mask
        if is_temporary(value):
            value.release()
        traced = _has_tracer(index) or _has_tracer(value)
        if not traced and block.get() is None and isinstance(self._cell.cell_contents, np.ndarray) and not (
                _is_result(self._cell.cell_contents) and is_sole(self._cell)):
            array = self._cell.cell_contents
            note_array_change(array, self._name)
            array[index] = value
            return
        base = value.base if isinstance(value, np.ndarray) else getattr(
            value.values if isinstance(value, UnknownLength) else value, "viewed", None)
        if type(base) is Shared and len(base.sources) == 1:
            base = base.sources[0]
        is_part = base is self._cell.cell_contents and sys.getrefcount(value) == ASSIGNED  # as in x[i] = x[j]
        del base
        self._check_given_back()
        self._check_sole(beside=int(is_part))
        if is_condition(index):
            index, value = ..., _if(index, value, self._cell.cell_contents)
        elif chosen:
            index, value = places_and_values(self._cell.cell_contents, index, value)
        elif mask is None and (has_unknown_bound(index) or type(index) is OpenMesh or isinstance(
                value, UnknownLength)):
            mask, value = _everywhere(self._cell.cell_contents, index, value)
        if mask is not None:
            index, value = ..., _where(mask, value, self._cell.cell_contents)
        self._cell.cell_contents = _updated(self._cell.cell_contents, index, value, "drop" if chosen else None)
        if self._name.replace(".", "").isidentifier():
            note_names({self._name: self._cell.cell_contents}, [self._cell.cell_contents])

    def _check_given_back(self) -> None:
        """Raise if a block around would not give the new array to the place that has it."""
        around = block.get()
        if type(self._cell) is Item:
            self._cell.check(self._name)
        if self.depth is None or around is None or is_carried(self._cell, self._name, self.depth):
            return
        if not around.cells:
            raise refuse(f"the array of `{self._name}` changes in an expression that {around.text} chooses. Write "
                         "an `if` statement")
        raise refuse(f"{self._name}[...] = v changes the array of `{self._name}`, which belongs to a scope "
                     f"outside, inside {around.text}, which is traced once and may run never or often. Pass "
                     f"`{self._name}` as an argument")

    def _check_sole(self, beside: int) -> None:
        """Raise if another place has the array too, and would see change in NumPy; but for references `beside` it."""
        if is_sole(self._cell, beside):
            return
        around, name = block.get(), self._name
        if around is not None and any(self._cell is each for loan in loans.get() for each in loan.outside):
            raise refuse(f"{name}[...] = v changes an array of the caller inside {around.text}, which does "
                         "not give it back: an expression, the condition of a `while`, or a call by another name. "
                         "Call the function in a statement of its own, and use the result")
        if type(getattr(self._cell.cell_contents, "viewed", None)) is Tracer and not self._is_parameter:
            raise refuse(f"{name}[...] = v changes the array of `{name}`, which is a view of another array, and "
                         f"NumPy would change both. Write x[i][j] = v in the place of {name} = x[i] and {name}[j] "
                         f"= v; or {name} = {name}.copy() before")
        others, then = ("the caller, another name or a view", f", and return {name}") if self._is_parameter else (
            "another name, a container or a view", "")
        raise refuse(f"{name}[...] = v changes the array of `{name}`, which {others} has too and would see change "
                     f"in NumPy. Write {name} = {name}.copy() before{then}")

    @property
    def value(self) -> Any:
        """The array."""
        return self._cell.cell_contents

    def apply(self, name: str, value: Any) -> ArrayItems:
        """Change all elements by an operator such as `+=`."""
        self[...] = _Operand(self._cell.cell_contents).apply(name, value)
        return self

    def sort(self, *args: Any, **kwargs: Any) -> None:
        """Sort the array as its method does."""
        self[...] = np.sort(self._cell.cell_contents, *args, **kwargs)

    def fill(self, value: Any) -> None:
        """Give all elements one value."""
        self[...] = value

    def put(self, places: Any, values: Any, mode: str = "raise") -> None:
        """Store values at places among all elements as the method does."""
        self[...] = fnp.put(self._cell.cell_contents, places, values, mode, inplace=False)

    def apply_at(self, ufunc: np.ufunc, index: Any, *operands: Any) -> None:
        """Change the elements as `ufunc.at` does: as often as an index selects them."""
        method = _UPDATES.get(ufunc)
        if method is None or not operands:
            raise refuse(f"np.{ufunc.__name__}.at changes elements one after the other. Write a loop, {self._name}[i] "
                         f"= np.{ufunc.__name__}({self._name}[i], ...)")
        self[...] = getattr(fnp.at(self._cell.cell_contents)[index], method)(*operands)

    def place(self, index: Any) -> Any:
        """Return the part of the array that is changed in `x[index][...] = v`."""
        return Part(self, index)

    @property
    def wholes(self) -> list[ArrayItems]:
        """The arrays that have the elements."""
        return [self]


class ScalarItems(Place):
    """The element of an array without axes that a variable alone has: `...` or a condition selects it."""

    def __init__(self, cell: CellType) -> None:
        self._cell = cell

    def __getitem__(self, index: Any) -> Any:
        """Return `x[index]` for an operator such as `+=`, which then assigns it."""
        array = self._cell.cell_contents
        one = np.ones((), array.dtype)[()]
        return _Operand(fnp.where(index, array, one) if is_condition(index) else array[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        value = value.elements if type(value) is _Operand else value
        array = self._cell.cell_contents
        if is_condition(index):
            index, value = ..., _if(index, value, array)
        self._cell.cell_contents = _updated(array, index, value)


def _if(condition: Any, value: Any, array: Any) -> Any:
    """Return the elements after `array[condition] = value`, for a traced bool that selects all or none."""
    if type(value) is TracedSlice:
        check_lengths(value.length, fnp.where(condition, 1, 0))
        value = value.values[0]
    return fnp.where(condition, value, array)


def itemized(target: Any, variable: FunctionType | None = None) -> Any:
    """Return the object of which an item is assigned.

    A traced scalar is an array without axes, as np.asarray(x) gives, or a number of NumPy's, which has no items. It is
    taken for an array if a variable alone has it, so that nothing else would see its change, and no `try` stands around
    it that is for numbers.
    """
    if variable is None or type(target) is not Tracer or target.shape or target.weak_type:
        return assigned(target)
    cell = cell_of(variable)
    del target
    holders: list[Any] = [cell.cell_contents]
    if block.get() is None and not is_caught(TypeError) and count_others(holders) == 1 and owns_elements(holders[0]):
        return ScalarItems(cell)
    name = holders[0].dtype.name
    raise TypeError(at_user_line(f"'numpy.{name}' object does not support item assignment. Of an array without axes, "
                                 "write x = np.where(mask, v, x)"))


class ArrayRows(Place):
    """The arrays of a list, of which a traced index selects one: its items are read and assigned."""

    def __init__(self, rows: list[Any], index: Any, name: str) -> None:
        self._rows, self._index, self._name = rows, index, name

    def __getitem__(self, index: Any) -> Any:
        return _Operand(item([item(row, index) for row in self._rows], self._index))

    @property
    def wholes(self) -> list[ArrayItems]:
        """The arrays of the list."""
        return [ArrayItems(Item(self._rows, place), self._name) for place in range(len(self._rows))]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._assign(index, value.elements if type(value) is _Operand else value, lambda row: item(row, index))

    def fill(self, value: Any) -> None:
        """Give the selected array other elements."""
        self._assign(..., value, lambda row: row)

    def _assign(self, index: Any, value: Any, read: Callable[[Any], Any]) -> None:
        number = from_front(as_number(self._index), len(self._rows))
        for place, row in enumerate(self.wholes):
            row[index] = _where(number == place, value, read(row.value))

    @property
    def value(self) -> Any:
        """The selected array."""
        return item(self._rows, self._index)

    def place(self, index: Any) -> Any:
        """Return a part of the array."""
        return Part(self, index)


class Part(Place):
    """A view of an array whose items are assigned: the first index of `x[i][j] = v`."""

    def __init__(self, whole: Any, index: Any) -> None:
        self._whole, self._index = whole, index

    @property
    def wholes(self) -> list[ArrayItems]:
        """The arrays that have the elements."""
        found: list[ArrayItems] = self._whole.wholes
        return found

    def entries(self) -> tuple[Any, ...]:
        """Return the entries of the index in the array, of a part of a part those of both."""
        own = entries_of(self._index)
        return (*self._whole.entries(), *own) if type(self._whole) is Part else own

    def is_of_array(self) -> bool:
        """Return whether it is a part of an array, or of a row of one, `x[i][j]`: of what numbers alone select."""
        if type(self._whole) is not Part:
            return type(self._whole) is ArrayItems
        return self._whole.is_of_array() and not any(
            isinstance(each, slice) or each is None or each is Ellipsis or np.shape(each)
            for each in self._whole.entries())

    def is_apart(self, other: Part) -> Any:
        """Return whether another part of the same array has no element of this one, which may be traced."""
        if not (self.is_of_array() and other.is_of_array()):
            return False
        shape, found = np.shape(self.wholes[0].value), False
        for one, two, size in zip(self.entries(), other.entries(), shape, strict=False):
            if not all(isinstance(each, slice) or (each is not None and each is not Ellipsis and not np.shape(each))
                       for each in (one, two)):
                break  # the axes of what follows are not known
            if not isinstance(one, slice) and not isinstance(two, slice):
                differs = _number_from_front(one, size) != _number_from_front(two, size)
            elif has_unknown_bound((one, two)) or is_unknown(one) or is_unknown(two):
                continue
            else:
                first, second = (_selected(each, size) for each in (one, two))
                differs = first[-1:] < second[:1] or second[-1:] < first[:1]
            found = differs if found is False or differs is True else found | differs
            if found is True:
                return True
        return found

    def __getitem__(self, index: Any) -> Any:
        return _Operand(item(self._whole[self._index].elements, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        if not all(each is None or each is Ellipsis or isinstance(each, slice) or not np.shape(each)
                   for each in entries_of(self._index)):
            raise refuse("x[index][...] = v with an array of indices changes a copy, and not x. Write one index, "
                         "x[index, ...] = v")
        if type(value) is Tracer and sys.getrefcount(value) == ASSIGNED:  # as in row[1:] = row[:-1]
            value.viewed = None
        row = self._whole[self._index].elements
        value = value.elements if type(value) is _Operand else value
        if has_unknown_bound(index) or isinstance(value, UnknownLength):
            mask, value = _everywhere(row, index, value)
            changed = _where(mask, value, row)
        elif _has_tracer(row) or _has_tracer(index) or _has_tracer(value):
            changed = _updated(row, index, value)
        else:
            changed = np.array(row)
            changed[index] = value
        if changed is row:  # the index selects nothing
            return
        del row  # it is a view
        self._whole[self._index] = changed

    @property
    def value(self) -> Any:
        """The part, as it is read."""
        return item(self._whole.value, self._index)

    def sort(self) -> None:
        """Sort the part as its method does."""
        part = self.value
        part = part.sorted() if type(part) is TracedSlice else np.sort(part)
        self._whole[self._index] = part

    def fill(self, value: Any) -> None:
        """Give the elements of the part one value, or those of an array."""
        self._whole[self._index] = value

    def place(self, index: Any) -> Any:
        """Return a part of this part."""
        return Part(self, index)


class RowSource:
    """An array whose rows a loop goes over, or its columns: `array` reads it, and `place` returns its place."""

    __slots__ = ("array", "columns", "place")

    def __init__(self, array: Callable[[], Any], place: Callable[[], Any], columns: bool) -> None:
        self.array, self.place, self.columns = array, place, columns

    def index(self, number: Any) -> Any:
        """Return the index of a row in the array."""
        return (slice(None), number) if self.columns else number


class Row(Place):
    """A row of an array by its number, which a variable has in the place of a view; blocks take it for an object."""

    def __init__(self, source: RowSource, number: Any) -> None:
        self.source, self.number = source, number

    @property
    def value(self) -> Any:
        """The row, as it is read."""
        return item(self.source.array(), self.source.index(self.number))

    def place_at(self, depth: int | None) -> Any:
        """Return the place of the row, whose items change; `depth` is that of `stored`."""
        whole = self.source.place()
        if not isinstance(whole, Place):
            return self.value
        found = whole.place(self.source.index(self.number))
        for each in found.wholes if depth is not None else ():
            each.depth = depth if each.depth is None else each.depth
        return found

    def apply(self, name: str, value: Any) -> _ChangedRow:
        """Compute all elements by an operator such as `+=`; the value may be a view of the array until it is done."""
        return _ChangedRow(self, self.source.place()[self.source.index(self.number)].apply(name, value))


class _ChangedRow(NamedTuple):
    """A row, and the elements that it is to have."""

    row: Row
    elements: _Operand


def store_row(variable: FunctionType) -> None:
    """Store the elements that an operator such as `+=` made of a row that a variable stands for."""
    cell = cell_of(variable)
    if type(cell.cell_contents) is _ChangedRow:
        row, elements = cell.cell_contents
        cell.cell_contents = row
        row.source.place()[row.source.index(row.number)] = elements


def value_of(value: Any) -> Any:
    """Return what a name has that may stand for a row: the row itself."""
    return value.value if type(value) is Row else value


def with_values(names: FunctionType) -> None:
    """Give variables that have numbers of rows the rows themselves."""
    for cell in names.__closure__ or ():
        found = content_of(cell)
        if type(found) is Row:
            cell.cell_contents = found.value


def _number_from_front(place: Any, size: int) -> Any:
    """Return the number of an element, counted from the front."""
    if is_unknown(place):
        return from_front(place, size)
    return operator.index(place) % size


def _selected(index: Any, size: int) -> list[int]:
    """Return the first and the last element that an index or a slice selects, counted from the front."""
    numbers = range(size)[index] if isinstance(index, slice) else [_number_from_front(index, size)]
    return sorted({numbers[0], numbers[-1]}) if numbers else []


_UPDATES: dict[np.ufunc, str] = {np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.minimum: "min",
                                 np.maximum: "max"}


def _everywhere(array: Any, index: Any, value: Any) -> tuple[Any, Any]:
    """Return which elements of an array an index with slices selects, and for each the one of the value."""
    mask = mask_of(array, index)
    if mask is None:  # the slices are known
        mask = np.zeros(np.shape(array), bool)
        mask[index] = True
    return mask, aligned(array, index, value)


def _where(mask: Any, value: Any, array: Any) -> Any:
    """Return a value where a mask is true, else an array: in its dtype, in which NumPy stores the value.

    Their common dtype is another one, and may have no room for the elements that stay. A complex value keeps its own.
    """
    dtype, value = aval_of(array).dtype, operand(value)
    fits = not dtypes.is_complex(aval_of(value).dtype) or dtypes.is_complex(dtype)
    return fnp.where(mask, as_elements(value).astype(dtype) if fits else value, array)


def _has_tracer(value: Any) -> bool:
    if isinstance(value, Tracer | UnknownLength | OptionalValue | OpenMesh):
        return True
    return isinstance(value, list | tuple | slice) and any(map(_has_tracer, (
        (value.start, value.stop, value.step) if isinstance(value, slice) else value)))


def _updated(array: Any, index: Any, value: Any, mode: str | None = None) -> Any:
    """Return a copy of an array in which `x[index]` is the value, as NumPy stores it; `mode` is that of `x.at`."""
    value = operand(value)
    dtype = aval_of(array).dtype
    if dtypes.is_complex(aval_of(value).dtype) and not dtypes.is_complex(dtype):
        raise DTypeError(at_user_line(
            f"x[...] = v: v is of dtype {aval_of(value).dtype.name} and x of dtype {dtype.name}, which has no room for "
            "an imaginary part. Write x[...] = v.real, or make x a complex array"))
    place = fnp.at(array)[index]
    shape = np.shape(value)
    while len(shape) > 1 and shape[0] == 1:  # NumPy leaves out leading axes
        value, shape = value[0], shape[1:]
    return place.set(value, mode=mode)


class _Operand:
    """The elements `x[index]` for an operator such as `+=`; all of `x`, if a `mask` whose value is unknown selects."""

    def __init__(self, elements: Any, mask: Any = None, index: Any = None) -> None:
        self.elements, self.mask, self._index = elements, mask, index

    def apply(self, name: str, value: Any) -> _Operand:
        """Apply an operator to the elements; raise if the result does not fit, as NumPy does."""
        if not isinstance(self.elements, np.ndarray | Tracer) or not np.shape(self.elements):  # a number
            self.elements = _PLAIN[name](self.elements, value)
            return self
        if isinstance(self.elements, np.ndarray) and not _has_tracer(value):
            self.elements = getattr(operator, name)(self.elements.copy(), value)
            return self
        if isinstance(value, UnknownLength) or (
                (has_unknown_bound(self._index) or self.mask is not None) and np.shape(value)):
            if self.mask is None:
                raise refuse("a slice of known length is changed by one with a traced bound. Write x[a:b] = x[a:b] + v")
            value = aligned(self.elements, self._index, value)
        dtype, self.elements = self.elements.dtype, _PLAIN[name](self.elements, value)
        if not np.can_cast(self.elements.dtype, dtype, "same_kind"):
            raise DTypeError(at_user_line(
                f"x[...] is changed by an operator such as +=, whose result is of dtype {self.elements.dtype.name} and "
                f"does not fit into x of dtype {dtype.name}. Write x[...] = (x[...] + v).astype(x.dtype)"))
        return self


_PLAIN = {name: getattr(operator, {"iand": "and_", "ior": "or_"}.get(name, name[1:])) for name in (
    "iadd", "isub", "imul", "imatmul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift",
    "irshift")}
for _name in _PLAIN:
    for _kind in (_Operand, ArrayItems, Row):
        setattr(_kind, f"__{_name}__", lambda self, value, name=_name: self.apply(name, value))
