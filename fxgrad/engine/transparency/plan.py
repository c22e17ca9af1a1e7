"""The generated function of a transparent call: it loads values by their paths, guards them, and runs the program."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.arrays import Array, as_strong_scalar
from fxgrad.engine.core.avals import is_frozen
from fxgrad.engine.transparency.values import Data, Known, LooksAtContents, Path, Refusal


class MISS:
    """The result of a generated function whose guards do not hold; a class, which pickles keep as itself."""


MAX_COMPARED_BYTES = 1 << 16
"""The size of an array up to which its content is compared at every call, if that decides what is recorded."""
_PATH_NAMES = re.compile(r"\bp\d+\b")
_DATA_NAMES = re.compile(r"\b[pwd]\d+\b")


class Plan:
    """The loads, guards and computed data of one function at given types of its arguments.

    Each path is loaded once, and the value then guarded and used, so that a thread that rebinds it changes nothing in
    between. `overrides` has values in the place of those found at paths, by the code of the path. The contents of data
    at the paths `by_content` are guarded, too.
    """

    def __init__(self, overrides: Callable[[str, Any], Any] | None = None, by_content: frozenset[str] = frozenset(),
                 ) -> None:
        self.namespace: dict[str, Any] = {
            "ndarray": np.ndarray, "Array": Array, "MISS": MISS, "is_frozen": is_frozen,
            "as_strong_scalar": as_strong_scalar}
        self.lines: list[str] = []
        self.class_lines: list[str] = []
        """The guards of the classes of numbers, tested after all loads."""
        self.argument_lines: list[str] = []
        """The guards of the transformed arguments."""
        self.loaded: dict[str, Any] = {}
        """The item of each path, by its code."""
        self.titles: dict[str, str] = {}
        """What users call each path, by its name."""
        self.by_content = by_content
        self.pinned: frozenset[str] = frozenset()
        """The paths of data whose value decided what is recorded."""
        self._arrays: dict[int, tuple[str, Data]] = {}
        """Arrays that were read, by identity: the name of the first path, and the item."""
        self._paths: dict[str, frozenset[str]] = {}
        self._conditions: set[str] = set()
        self._alive: list[Any] = []
        self._names: dict[Any, str] = {}
        self._overrides = overrides
        self._small: set[str] = set()
        """The paths of numbers, and of arrays whose contents take no longer to compare than a call takes."""

    def constant(self, value: Any) -> str:
        """Return the name of an object in the generated function."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"c{len(self._names)}"
            self.namespace[name] = value
            self._alive.append(value)
        return name

    def guard(self, condition: str) -> None:
        """Add a condition without which the generated function misses, unless it is tested already."""
        if condition not in self._conditions:
            self._conditions.add(condition)
            self.lines.append(f"if not ({condition}): return MISS")

    def guard_argument(self, condition: str) -> None:
        """Add a condition on the transformed arguments, which only direct calls test."""
        self.argument_lines.append(f"if not ({condition}): return MISS")

    def type_test(self, name: str, value: Any) -> str:
        """Return the condition that what has this name is of the class of `value`, an array also of its type."""
        test = f"type({name}) is {self.constant(type(value))}"
        if isinstance(value, np.ndarray):
            test += f" and {name}.dtype is {self.constant(value.dtype)} and {name}.shape == {value.shape}"
        return test

    def load(self, code: str, value: Any, wraps: bool = False, title: str = "") -> Any:
        """Return the item of the value at a path; `wraps` marks arguments, whose arrays the function sees as `Array`s.

        The path is loaded by `code` in the generated function. `title` is what users call it.
        """
        found = self.loaded.get(code)
        if found is None:
            name = f"p{len(self.loaded)}"
            self.titles[name] = title or _PATH_NAMES.sub(lambda match: self.titles.get(match[0], match[0]), code)
            self.lines.append(f"{name} = {code}")
            found = self.loaded[code] = self._classify(code, name, value, wraps)
        return found

    def _classify(self, code: str, name: str, value: Any, wraps: bool) -> Any:
        kind = type(value)
        if value is None or value is True or value is False or value is Ellipsis:
            self.guard(f"{name} is {value}")
            return Known(value)
        if kind in (int, str, bytes):
            self.guard(f"type({name}) is {kind.__name__} and {name} == {self.constant(value)}")
            return Known(value)
        if kind in (float, complex) or (isinstance(value, np.floating | np.complexfloating)
                                        and kind.__module__ == "numpy"):
            self.guard(f"type({name}) is {self.constant(kind)}")
            self._paths[name] = frozenset([code])
            self._small.add(code)
            item = Data(self._override(code, value), name, is_path=True)
            return self.guard_value(item) if code in self.by_content else item
        if isinstance(value, np.integer | np.bool_) and kind.__module__ == "numpy":
            self.guard(f"type({name}) is {self.constant(kind)} and {name} == {self.constant(value)}")
            return Known(value)
        if kind is np.ndarray or kind is Array:
            return self._array(code, name, value, wraps)
        if isinstance(value, np.dtype) or (isinstance(value, type) and value.__module__ in ("builtins", "numpy")):
            self.guard(f"{name} is {self.constant(value)}")
            return Known(value)
        if kind in (list, tuple):
            self.guard(f"type({name}) is {kind.__name__} and len({name}) == {len(value)}")
        if kind is dict:
            self.guard(f"type({name}) is dict")
        return Path(value, name, wraps)

    def _array(self, code: str, name: str, value: Any, wraps: bool) -> Data | Known:
        kind = type(value)
        if value.dtype.names is not None or value.dtype.hasobject:
            raise Refusal("an array of random keys, or of objects, is read")
        test = self.type_test(name, value)
        if kind is Array or wraps:  # one that nobody can write to is captured as it is, and makes results `Array`s
            test += f" and {name}.flags.writeable" if value.flags.writeable else (
                f" and is_frozen({name}) is {is_frozen(value)}")
        self.guard(test)
        if value.nbytes <= MAX_COMPARED_BYTES:
            self._small.add(code)
        if code in self.by_content:
            return self._known_array(name, value, wraps)
        seen = self._arrays.get(id(value))
        if seen is not None:
            # One object at two paths is captured once: if one of them is rebound, the other must not follow it.
            first, item = seen
            self.guard(f"{name} is {first}")
            return item
        item_value, item_code = self._override(code, value), name
        if wraps and kind is np.ndarray:
            item_value, item_code = item_value.view(Array), f"w{name}"
            self.lines.append(f"{item_code} = {name}.view(Array)")
        self._paths[item_code] = frozenset([code])
        item = Data(item_value, item_code, is_path=True)
        self._alive.append(value)
        self._arrays[id(value)] = name, item
        return item

    def _known_array(self, name: str, value: Any, wraps: bool) -> Known:
        """Return a copy of an array, after guarding its content to the bit."""
        self.guard(f"{name}.tobytes() == {self.constant(value.tobytes())}")
        kept = np.array(value)
        kept.flags.writeable = False
        return Known(kept.view(Array) if wraps or type(value) is Array else kept)

    def needs_contents(self, items: Sequence[Data], reason: str, syntax: ast.AST | None) -> Refusal:
        """Return the refusal of what depends on contents of data: it ends with guards of these, if they are small."""
        codes = frozenset().union(*(self._paths.get(item.code, ()) for item in items))
        if codes and codes <= self._small and not codes <= self.by_content:
            return LooksAtContents(reason, syntax, codes)
        return Refusal(reason, syntax)

    def small_data(self) -> list[str]:
        """Return the paths of data that were read whose contents may be guarded, by their codes."""
        return [code for code, item in self.loaded.items() if isinstance(item, Data) and code in self._small]

    def _override(self, code: str, value: Any) -> Any:
        return value if self._overrides is None else self._overrides(code, value)

    def compute(self, code: str, value: Any) -> Data:
        """Return the item of a value that is computed from data by `code`, at each call."""
        name = f"d{len(self.lines)}"
        self.lines.append(f"{name} = {code}")
        self._paths[name] = frozenset().union(*(self._paths.get(each, ()) for each in _DATA_NAMES.findall(code)))
        return Data(value, name, is_path=False)

    def guard_value(self, item: Data) -> Known:
        """Return a number as known, after guarding its value; raise `Refusal` for arrays, NaN and complex numbers."""
        value, name = item.value, item.code
        if isinstance(value, np.ndarray):
            raise Refusal("the values of an array are needed")
        if isinstance(value, complex | np.complexfloating) or np.isnan(value):
            raise Refusal("the value of a number that is NaN or complex is needed")
        zero = f" and str({name}) == {str(value)!r}" if value == 0 else ""  # of one sign
        self.guard(f"type({name}) is {self.constant(type(value))} and {name} == {self.constant(value)}{zero}")
        self.pinned |= self._paths[name]
        return Known(value)

    def guard_classes(self, data: Sequence[Data]) -> None:
        """Guard that each number among data that the library gets stays positive, negative, 0, infinite or NaN.

        The library compares numbers that it knows with 0, as in `x % n`, and what it records then depends on it.
        """
        for item in data:
            value, code = item.value, item.code
            if isinstance(value, complex | np.complexfloating):
                self._guard_class(f"{code}.real", value.real)
                self._guard_class(f"{code}.imag", value.imag)
            elif not isinstance(value, np.ndarray):
                self._guard_class(code, value)

    def _guard_class(self, code: str, value: Any) -> None:
        infinity = self.constant(math.inf)
        condition = (f"0.0 < {code} < {infinity}" if 0 < value < math.inf else
                     f"-{infinity} < {code} < 0.0" if -math.inf < value < 0 else
                     f"str({code}) == {str(value)!r}")  # also the sign of 0
        if condition not in self._conditions:
            self._conditions.add(condition)
            self.class_lines.append(f"if not ({condition}): return MISS")

    def guard_type(self, item: Data) -> None:
        """Guard the type of computed data."""
        self.guard(self.type_test(item.code, item.value))

    @property
    def all_lines(self) -> list[str]:
        """The loads and guards, in the order of their tests."""
        return [*self.lines, *self.class_lines]

    def function(self, lines: Sequence[str], body: Sequence[str], **objects: Any) -> Any:
        """Return the generated function of `args` and `kwargs` that runs `lines`, and then `body`.

        `objects` are further ones, by name. An exception in a load or a guard is a miss.
        """
        text = ["def call(args, kwargs):", "    try:", *(f"        {line}" for line in lines),
                "    except Exception:", "        return MISS", *(f"    {line}" for line in body)]
        namespace = {**self.namespace, **objects}
        exec(compile("\n".join(text) + "\n", "<fxgrad>", "exec"), namespace)  # made here, of names and numbers
        return namespace["call"]
