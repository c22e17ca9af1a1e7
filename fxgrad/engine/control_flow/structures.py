"""Values of variables as structures of arrays: containers with the order of their keys, objects by their attributes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, Flag, IntEnum, IntFlag
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.checking import check
from fxgrad.engine.core.avals import PYTHON_SCALARS, Aval, array_aval
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ControlFlowError

_HEAP_TYPE = 1 << 9
_LEAF: Any = tree.structure(0)
NOTHING: Any = tree.structure(None)


def is_record(value: Any) -> bool:
    """Return whether a value is an object of a class written in Python, whose attributes are all that it has."""
    kind = type(value)
    return kind not in _NO_RECORDS and _is_record_class(kind) and type(getattr(value, "__dict__", None)) is dict and (
        array_aval(value) is None and _is_leaf(value))


def _is_leaf(value: Any) -> bool:
    try:
        structure: Any = tree.structure(value)
    except Exception:  # noqa: BLE001  (a registered class flattens attributes that its __init__ has yet to set)
        return False
    return bool(structure == _LEAF)


def _is_record_class(kind: type) -> bool:
    if not kind.__flags__ & _HEAP_TYPE or issubclass(
            kind, (Enum, Kept, _Optional, _Ordered, _Parts, _Possible, _Record, _Word)):
        return False
    bases = kind.__mro__[:-1]
    return all(base.__flags__ & _HEAP_TYPE for base in bases) and not any(
        isinstance(value, MemberDescriptorType) for base in bases for value in vars(base).values())


def is_container(value: Any) -> bool:
    """Return whether a value is a list, a dict or an object that blocks may change."""
    return type(value) in (list, dict) or is_record(value)


def parts_of(container: Any) -> Any:
    """Return the items of a container as a list or dict; those of an object are its attributes."""
    return container if type(container) in (list, dict) else vars(container)


def copy_of(container: Any) -> Any:
    """Return the items of a container as a list or dict of its own."""
    return parts_of(container).copy()


def replace_items(container: Any, items: Any) -> None:
    """Give a container, or an array of NumPy's, other items."""
    if type(container) is list:
        container[:] = items
    elif isinstance(container, np.ndarray):
        container[...] = items
    else:
        inside = parts_of(container)
        inside.clear()
        inside.update(items)


class Kept:
    """A container among items, which stays the object that it is."""

    def __init__(self, container: Any) -> None:
        self.container = container

    def __eq__(self, other: object) -> bool:
        return type(other) is Kept and other.container is self.container

    def __hash__(self) -> int:
        return id(self.container)

    def __repr__(self) -> str:
        return with_article(type(self.container).__name__)


class UnknownLength:
    """An array of unknown length (`slices.py`, `matrices.py`), which consists of arrays and numbers, its `parts`.

    `values` has its elements, and others that do not count; `length` is the number of its rows.
    """

    __slots__ = ()

    values: Any
    length: Any
    ndim: Any
    dtype: Any

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def copy(self) -> Any:
        """Return a copy."""
        raise NotImplementedError

    def astype(self, dtype: Any) -> Any:
        """Return the elements in another dtype."""
        raise NotImplementedError

    def parts(self) -> list[Any]:
        """Return what it consists of; the first are its elements."""
        raise NotImplementedError

    @classmethod
    def of_parts(cls, parts: Sequence[Any]) -> Any:
        """Return the one that consists of other parts."""
        raise NotImplementedError


class OptionalValue:
    """A value, or None if the traced condition `is_set` is false.

    Operators and functions of arrays use the value, with a check that there is one.
    """

    __slots__ = ("is_set", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, is_set: Any, value: Any) -> None:
        self.is_set, self.value = is_set, value

    def required(self, message: str = "a value is None where one is needed. Ask `if x is None` before") -> Any:
        """Return the value; that there is one is checked."""
        if self.is_set is not True:
            check(self.is_set, message)
        return self.value

    def __jax_array__(self) -> Any:
        return self.required()

    def __array_ufunc__(self, function: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(function, method)(*map(required, args), **kwargs)

    def __array_function__(self, function: Any, _: Any, args: Any, kwargs: Any) -> Any:
        return function(*map(required, args), **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.required(), name)

    def __iter__(self) -> Any:
        return iter(self.required())

    def refused(self, *_: Any) -> NoReturn:
        """Raise, since code asks for more than the value."""
        raise ControlFlowError(at_user_line(
            "a traced condition chose whether this value is None, and its truth, text or type is asked. Write "
            "`x is None` or `x is not None`"))

    __array__ = __bool__ = __complex__ = __float__ = __format__ = __int__ = __str__ = refused


def required(value: Any) -> Any:
    """Return a value; that it is not None is checked, if it may be."""
    return value.required() if type(value) is OptionalValue else value


def _operator(name: str) -> Callable[..., Any]:
    def apply(*args: Any) -> Any:
        return getattr(operator, name)(*map(required, args))
    return apply


def _reflected(name: str) -> Callable[..., Any]:
    def apply(*args: Any) -> Any:
        return getattr(operator, name)(*map(required, args[::-1]))
    return apply


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    _word = f"{_name}_" if _name in ("and", "or") else _name
    setattr(OptionalValue, f"__{_name}__", _operator(_word))
    setattr(OptionalValue, f"__r{_name}__", _reflected(_word))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert", "getitem"):
    setattr(OptionalValue, f"__{_name}__", _operator(_name))


class PossibleItem:
    """An item of a list, which is there if the traced condition `is_there` is true (`growing.py`)."""

    __slots__ = ("is_there", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, is_there: Any, value: Any) -> None:
        self.is_there, self.value = is_there, value

    def refused(self, *_: Any, **__: Any) -> NoReturn:
        """Raise, since code computes with the item."""
        raise ControlFlowError(at_user_line(
            "an item is used of a list of which a traced condition decides how long it is, and it may not be there. "
            "Go over the list in a `for` statement, or read it with len(x), sum(x), x[i] or a function of NumPy"))

    def __repr__(self) -> str:
        return f"{self.value!r} if {self.is_there!r}"

    __array__ = __bool__ = __complex__ = __float__ = __index__ = __int__ = __iter__ = __jax_array__ = __len__ = refused
    __array_ufunc__ = __array_function__ = __call__ = __getitem__ = refused


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    setattr(PossibleItem, f"__{_name}__", PossibleItem.refused)
    setattr(PossibleItem, f"__r{_name}__", PossibleItem.refused)
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert"):
    setattr(PossibleItem, f"__{_name}__", PossibleItem.refused)


def is_growing(value: Any) -> bool:
    """Return whether a value is a list of which a traced condition decides how long it is."""
    return type(value) is list and any(type(each) is PossibleItem for each in value)


class ChosenMember:
    """A member of an enumeration that a traced condition chose, by its place among the members.

    Attributes and comparisons of the members are those at this place, if they are numbers.
    """

    __slots__ = ("kind_", "place_")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kind: type[Enum], place: Any) -> None:
        self.kind_, self.place_ = kind, place

    def among(self, of_member: Callable[[Any], Any], what: str) -> Any:
        """Return what a function gives for the member, if it gives numbers or arrays of one shape for all."""
        values = [of_member(each) for each in self.kind_]
        if all(each is values[0] for each in values):
            return values[0]
        try:
            return stacked(values)[self.place_]
        except (TypeError, ValueError):
            raise ControlFlowError(at_user_line(
                f"a traced condition chose this member of {self.kind_.__name__}, and {what} is no number, or array of "
                f"one shape, for each member. Compare the member, `x is {next(iter(self.kind_))}`; or return a number, "
                "and look the rest up outside of the compiled function")) from None

    def is_member(self, other: Any) -> Any:
        """Return whether it is a member, which a traced condition may have chosen too."""
        return member_class(other) is self.kind_ and fnp.equal(self.place_, member_place(other))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        own = next((vars(each)[name] for each in self.kind_.__mro__ if name in vars(each)), None)
        if isinstance(own, FunctionType):
            return MethodType(own, self)
        return self.among(lambda member: getattr(member, name), f"`.{name}`")

    def __eq__(self, other: object) -> Any:
        return self.is_member(other) if self.kind_.__eq__ is object.__eq__ else self.among(
            lambda member: member == other, "`==`")

    def __ne__(self, other: object) -> Any:
        return fnp.logical_not(self == other)

    def __bool__(self) -> bool:
        return bool(self.among(bool, "its truth"))

    def __str__(self) -> str:
        return str(self.among(str, "its text"))

    def __repr__(self) -> str:
        return f"a member of {self.kind_.__name__}"

    __format__ = __str__  # type: ignore[assignment]


def member_class(value: Any) -> type[Enum] | None:
    """Return the enumeration that a value is a member of, if its members are no numbers; None for another value."""
    if type(value) is ChosenMember:
        return value.kind_
    return type(value) if isinstance(value, Enum) and not isinstance(value, IntEnum | Flag) else None


def member_place(value: Any) -> Any:
    """Return the place of a member among those of its enumeration; the number of one of an `IntEnum`; another value."""
    if type(value) is ChosenMember:
        return value.place_
    kind = member_class(value)
    if kind is not None:
        return [each.name for each in kind].index(value.name)
    return int(value) if isinstance(value, IntEnum | IntFlag) else value


def as_chosen(value: Any, place: Any = None) -> Any:
    """Return a member as one that a traced condition chose, with its place or another; of numbers this is the place."""
    place, kind = member_place(value) if place is None else place, member_class(value)
    return place if kind is None else ChosenMember(kind, place)


_NO_RECORDS = {Tracer, PossibleItem, OptionalValue, *PYTHON_SCALARS}
"""Types of many values that have no attributes of the user's."""


class _Optional:
    """An optional value by its parts."""

    def __init__(self, _: None, values: Sequence[Any]) -> None:
        self.values = values


class _Possible:
    """An item that may be there by its parts."""

    def __init__(self, _: None, values: Sequence[Any]) -> None:
        self.values = values


class _Parts:
    """An array of unknown length by its parts."""

    def __init__(self, kind: Any, values: Sequence[Any]) -> None:
        self.kind, self.values = kind, values


class _Ordered:
    """A dict whose keys have an order: pytrees sort them."""

    def __init__(self, keys: tuple[Any, ...], values: Sequence[Any]) -> None:
        self.keys, self.values = keys, values


class _Record:
    """An object of a class by its attributes."""

    def __init__(self, kind: tuple[type, tuple[str, ...]], values: Sequence[Any]) -> None:
        self.kind, self.values = kind, values


tree.register_pytree_node(_Ordered, lambda node: (node.values, node.keys), _Ordered)
tree.register_pytree_node(_Optional, lambda node: (node.values, None), _Optional)
tree.register_pytree_node(_Possible, lambda node: (node.values, None), _Possible)
tree.register_pytree_node(_Parts, lambda node: (node.values, node.kind), _Parts)
tree.register_pytree_node(_Record, lambda node: (node.values, node.kind), _Record)


def _packed(value: Any, around: tuple[int, ...] = (), pack: Callable[..., Any] | None = None) -> Any:
    """Return a value with the order of dicts, and objects as their attributes; `pack` does so with its parts."""
    if type(value) is Tracer or type(value) in PYTHON_SCALARS:
        return value
    pack = pack or _packed
    if isinstance(value, UnknownLength):
        return _Parts(type(value), value.parts())
    if type(value) is OptionalValue:
        return _Optional(None, [value.is_set, pack(value.value, around)])
    if type(value) is PossibleItem:
        return _Possible(None, [value.is_there, pack(value.value, around)])
    if type(value) is dict:
        return _Ordered((*value,), [pack(each, around) for each in value.values()])
    if type(value) in (list, tuple):
        return type(value)([pack(each, around) for each in value])
    if id(value) not in around and is_record(value) and vars(value):
        inside = vars(value)
        return _Record((type(value), (*inside,)), [pack(each, (*around, id(value))) for each in inside.values()])
    structure: Any = tree.structure(value)
    if structure == _LEAF or not structure.num_leaves:
        return value
    return tree.map(lambda part: part if part is value else pack(part, around), value,
                    is_leaf=lambda part: part is not value)


def _unpacked(value: Any) -> Any:
    if type(value) is _Ordered:
        return dict(zip(value.keys, map(_unpacked, value.values), strict=True))
    if type(value) is _Record:
        kind, names = value.kind
        made: Any = object.__new__(kind)
        vars(made).update(zip(names, map(_unpacked, value.values), strict=True))
        return made
    if type(value) is _Parts:
        return value.kind.of_parts(value.values)
    if type(value) is _Optional:
        return OptionalValue(value.values[0], _unpacked(value.values[1]))
    if type(value) is _Possible:
        return PossibleItem(value.values[0], _unpacked(value.values[1]))
    if type(value) is Kept:
        return value.container
    if type(value) in (list, tuple):
        return type(value)([_unpacked(each) for each in value])
    if _is_leaf(value):
        return value
    return tree.map(lambda part: part if part is value else _unpacked(part), value,
                    is_leaf=lambda part: part is not value)


def unflatten(structure: TreeDef, leaves: Sequence[Any]) -> Any:
    """Return the value of a structure with these leaves."""
    return _unpacked(tree.unflatten(structure, leaves))


class Flat(NamedTuple):
    """A value of a variable: its structure, and its leaves; those that are no arrays have no type."""

    structure: TreeDef
    leaves: list[Any]
    avals: list[Aval | None]

    def __str__(self) -> str:
        words = [word_for(leaf) if aval is None or type(leaf) is ChosenMember else str(aval)
                 for leaf, aval in zip(self.leaves, self.avals, strict=True)]
        return _shown(tree.unflatten(self.structure, [_Word(word) for word in words]))


def word_for(value: Any) -> str:
    """Return an object that is no array in words, without its address."""
    if isinstance(value, FunctionType):
        return "a lambda" if value.__name__ == "<lambda>" else f"the function {function_name(value)}"
    text = repr(value)
    return with_article(type(value).__name__) if " at 0x" in text else text


def way_for_objects(one: Any, two: Any) -> str:
    """Return what to write in the place of two objects that a traced condition would choose between; "" if unknown."""
    if callable(one) and callable(two):
        return ". Call them in the branches"
    if isinstance(one, str) and isinstance(two, str):
        return ". Choose a number, and look the text up outside of the compiled function"
    if isinstance(one, Flag) and type(one) is type(two):
        return f". Make {type(one).__name__} an enum.IntFlag, whose members are numbers"
    if member_class(one) is not member_class(two) and None not in (member_class(one), member_class(two)):
        return ", and members of one enumeration"
    return ""


def with_article(word: str) -> str:
    """Return a word with "a" or "an"."""
    return f"{'an' if word[:1] in 'aeiouAEIOU' else 'a'} {word}"


class _Word(str):
    """A text that stands for a leaf."""

    __slots__ = ()


def flatten(value: Any) -> Flat:
    """Flatten a value; leaves that are neither arrays nor numbers stay as they are."""
    leaves, structure = tree.flatten(_packed(value))
    return Flat(structure, leaves, [*map(_leaf_aval, leaves)])


def _leaf_aval(leaf: Any) -> Aval | None:
    if type(leaf) is ChosenMember:
        return _leaf_aval(member_place(leaf))
    return aval_of(leaf) if type(leaf) is Tracer else array_aval(leaf)


def number_type(leaf: Any, aval: Aval | None) -> Aval | None:
    """Return the type of a leaf where it differs from another one: members of enumerations are numbers there."""
    if aval is None and (isinstance(leaf, IntEnum | IntFlag) or member_class(leaf) is not None):
        return array_aval(member_place(leaf))
    return aval


def number_types(one: Any, other: Any, avals: tuple[Aval | None, Aval | None]) -> tuple[Aval | None, Aval | None]:
    """Return the types of two leaves, as numbers if they differ.

    Members of two enumerations have none, and neither has one beside a number.
    """
    alike = member_class(one) is member_class(other)
    if (alike and None not in avals) or is_equal(one, other):
        return avals
    return (number_type(one, avals[0]), number_type(other, avals[1])) if alike else (None, None)


def is_equal(one: Any, other: Any) -> bool:
    """Return whether two objects that are no arrays may stand for one."""
    if one is other:
        return True
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # noqa: BLE001  (of the user's class)
        return False


def stacked(items: Sequence[Any]) -> Any:
    """Return items as one array; of Python's numbers it has all digits, and gives way to the dtypes of arrays."""
    dtype, weak = joint_type(items)
    return convert(fnp.stack([fnp.asarray(each, dtype) for each in items]), dtype, weak)


def as_elements(value: Any) -> Any:
    """Return a value, such as a list of numbers, as an array in the dtype of NumPy's: numbers keep their digits."""
    if isinstance(value, np.ndarray | np.generic | Tracer):
        return fnp.asarray(value)
    found = [aval_of(leaf).dtype for leaf in tree.leaves(value)]
    return fnp.asarray(value, np.result_type(*found) if found else np.dtype(float))


def joint_type(values: Sequence[Any]) -> tuple[Any, bool]:
    """Return the dtype of an array of all values, and whether it is weak; raise `TypeError` if one is no array."""
    avals = [aval for value in values for aval in flatten(value).avals]
    if None in avals or any(type(each) is ChosenMember for each in values):
        raise TypeError("there are values that are no arrays")
    if not avals:
        raise TypeError("there are no values")
    return dtypes.promote(*((aval.dtype, aval.weak) for aval in avals if aval is not None))


def has_unknown_length(flat: Flat) -> bool:
    """Return whether a value is an array of unknown length."""
    return type(tree.unflatten(flat.structure, flat.leaves)) is _Parts


OptionalParts = Flat | dict[Any, Any]
"""The value that may be None, as it is otherwise; of a container the parts of which this is so, by index or key."""


def optional_parts(one: Flat | None, other: Flat | None) -> OptionalParts | None:
    """Return what of a variable may be None, which has one of two values; None if nothing."""
    if one is None or other is None or one.structure == other.structure:
        return None
    return _parts_between(*(unflatten(flat.structure, flat.leaves) for flat in (one, other)))


def _parts_between(one: Any, other: Any) -> OptionalParts | None:
    if one is other:
        return None
    if one is None or other is None or OptionalValue in (type(one), type(other)):
        return _inside_optional(flatten(one), flatten(other))
    if type(one) is not type(other) or not (isinstance(one, tuple) or is_container(one)):
        return None
    items = [dict(enumerate(each)) if isinstance(each, list | tuple) else parts_of(each) for each in (one, other)]
    if [*items[0]] != [*items[1]]:
        return None
    return {key: parts for key, each in items[0].items()
            if (parts := _parts_between(each, items[1][key])) is not None} or None


def _inside_optional(one: Flat, other: Flat) -> Flat | None:
    """Return the value that is not None, if a variable has it or None; None if it is no optional one."""
    values = [flat for flat in (one, other) if flat.structure != NOTHING]
    inner = [flatten(each.value) if type(each) is OptionalValue else None
             for each in (unflatten(flat.structure, flat.leaves) for flat in values)]
    if len(values) == 2 and inner[0] is inner[1] is None:
        return None
    found = inner[0] or values[0]
    if None in found.avals or any(type(each) is ChosenMember for each in found.leaves):
        return None
    return None if containers_in(unflatten(found.structure, found.leaves)) else found


def as_optional(value: Any, inside: OptionalParts, placeholder: Callable[[Aval], Any], made: Mapping[int, Any]) -> Any:
    """Return a value, or None, as an optional value, or with optional parts; `inside` is what these are otherwise.

    Of containers, those that were `made` in the block get them.
    """
    if isinstance(inside, dict):
        if isinstance(value, tuple):
            parts = [as_optional(each, inside[key], placeholder, made) if key in inside else each
                     for key, each in enumerate(value)]
            return tuple(parts) if type(value) is tuple else type(value)(*parts)
        if id(value) in made:
            items = parts_of(value)
            for key, each in inside.items():
                items[key] = as_optional(items[key], each, placeholder, made)
        return value
    if type(value) is OptionalValue:
        return value
    if value is not None:
        return OptionalValue(True, value)
    return OptionalValue(False, unflatten(inside.structure, [
        placeholder(aval) for aval in inside.avals if aval is not None]))


def _shown(value: Any) -> str:
    """Return a value in words, with the types of its arrays."""
    if type(value) is _Word:
        return str(value)
    if type(value) is _Ordered:
        items = [f"{key!r}: {_shown(each)}" for key, each in zip(value.keys, value.values, strict=True)]
        return f"{{{', '.join(items)}}}"
    if type(value) is _Record:
        kind, attributes = value.kind
        inside = ", ".join(f"{name}={_shown(each)}" for name, each in zip(attributes, value.values, strict=True))
        return f"{kind.__name__}({inside})"
    if type(value) is _Optional:
        return f"{_shown(value.values[1])} or None"
    if type(value) is _Possible:
        return f"{_shown(value.values[1])} or nothing"
    if type(value) is _Parts:
        return f"a slice with a traced bound of {_shown(value.values[0])}"
    if type(value) is list:
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        items = [_shown(each) for each in value] if names is None else [
            f"{name}={_shown(each)}" for name, each in zip(names, value, strict=True)]
        word = "" if names is None else type(value).__name__
        return f"{word}({', '.join(items)}{',' * (len(items) == 1 and names is None)})"
    return repr(value)


def with_kept(value: Any, made: Mapping[int, Any]) -> tuple[Any, list[Any]]:
    """Return a value to flatten, with `Kept` in the places of containers that were not `made` in a block, and those."""
    found: list[Any] = []
    return _kept(value, made, found, ()), found


def items_with_kept(items: Any, made: Mapping[int, Any]) -> tuple[Any, list[Any]]:
    """Return the same for a copy of the items of a container."""
    found: list[Any] = []
    return _kept(items, {**made, id(items): items}, found, ()), found


def _kept(value: Any, made: Mapping[int, Any], found: list[Any], around: tuple[int, ...]) -> Any:
    if id(value) in around:
        return value
    if is_container(value) and id(value) not in made:
        found.append(value)
        return Kept(value)
    return _packed(value, around, lambda part, inside: _kept(part, made, found, inside))


def shared_in(values: Iterable[Any]) -> dict[int, Any]:
    """Return the containers that are in several places of values, by their identities."""
    found: dict[int, Any] = {}
    shared: dict[int, Any] = {}
    for value in values:
        for each in containers_in(value):
            (shared if id(each) in found else found)[id(each)] = each
    return shared


def containers_in(value: Any, without: Collection[int] = ()) -> list[Any]:
    """Return the containers that a value consists of, except those of the identities `without` and what is in them."""
    if id(value) in without or not (type(value) is tuple or is_container(value)):
        return []
    parts = value if type(value) is tuple else parts_of(value)
    inner = [each for part in (parts.values() if type(parts) is dict else parts)
             for each in containers_in(part, {*without, id(value)})]
    return inner if type(value) is tuple else [value, *inner]
