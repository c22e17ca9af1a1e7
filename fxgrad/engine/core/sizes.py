"""`SymbolicDim`: the size of an axis with a name in place of a number, and its algebra."""

from __future__ import annotations

import ast
import dis
import operator
import re
import sys
import tokenize
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import jax
import numpy as np
from jax import errors as jax_errors
from jax import export

from fxgrad.engine.caches import cached
from fxgrad.engine.hints import conversion_hint, running_call_text
from fxgrad.engine.user_lines import at_user_line, is_library_file, is_user_file
from fxgrad.errors import ConcretizationError

_INTEGERS = int, np.integer
_CONTAINS = dis.opmap["CONTAINS_OP"]
"""Python's operation `in`: a set of numbers compares the hash of a size first, and would find it at no size."""
SizeFunctions = dict[str, Callable[[Any, Any], Any]]
_RULE = ("{names} any size from 1 on: the program is traced once for all of them. ")


class SymbolicDim:
    """A size such as `n`, `2*n` or `n + m - 1`: exact arithmetic with whole numbers and other sizes.

    `expression` is jax's (`jax.export.symbolic_shape`), which does the algebra. Names stand for sizes from 1 on. A
    question that needs a number raises `ConcretizationError` with the user's line, except that an undecided equality in
    library code is False. In arithmetic with anything but whole numbers the size becomes a value of the program
    (`fxgrad/numpy/sizes.py` attaches the conversion).

    >>> from fxgrad.engine.core.sizes import named_size
    >>> n, m = named_size("n"), named_size("m")
    >>> n * 2 + 1, (n + m) * n // n, n - n, n + 1 > n, hash(n) == hash(named_size("n"))
    (2*n+1, n+m, 0, True, True)
    """

    __slots__ = ("_hash", "expression")

    def __init__(self, expression: Any) -> None:
        self.expression = expression
        self._hash = hash(expression)

    def __repr__(self) -> str:
        return str(self.expression).replace(" ", "")  # without spaces, so that no text is broken into lines within it

    def __format__(self, form: str) -> str:
        return repr(self)  # whatever a number would look like

    def __hash__(self) -> int:
        frame = sys._getframe(1)
        if is_user_file(frame.f_code.co_filename) and frame.f_code.co_code[frame.f_lasti] == _CONTAINS:
            refuse_undecided(f"whether {self} is in a set or dict", self)
        return self._hash

    def __reduce__(self) -> Any:
        return parse_size, (repr(self),)  # jax's expressions belong to a scope of one process

    # --- arithmetic: whole numbers and sizes make sizes ------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a * b)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a // b)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b // a)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a % b)

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b % a)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a ** b)

    def __neg__(self) -> Any:
        return size_from_jax(-self.expression)

    def __pos__(self) -> SymbolicDim:
        return self

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Any:
        if is_user_file(sys._getframe(1).f_code.co_filename) and running_call_text():
            _refuse_number(self,
                           "NumPy")  # its functions divide by counts; the user's own division is no call
        return NotImplemented if hasattr(other, "shape") else self.__jax_array__() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.__jax_array__()

    def _with(self, other: Any, operation: Callable[[Any, Any], Any]) -> Any:
        if type(other) is SymbolicDim:
            return size_from_jax(operation(self.expression, other.expression))
        if isinstance(other, _INTEGERS):
            return size_from_jax(operation(self.expression, int(other)))
        return operation(self.__jax_array__(), other) if isinstance(other, float | complex) else NotImplemented

    def __jax_array__(self) -> Any:
        """Return the size as a weak int64 value of the program being traced, when it becomes an operand."""
        raise NotImplementedError("fxgrad.numpy is not imported")

    # --- questions -----------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Any:
        return self._is_equal(other, "==", is_user_file(sys._getframe(1).f_code.co_filename))

    def __ne__(self, other: object) -> Any:
        found = self._is_equal(other, "!=", is_user_file(sys._getframe(1).f_code.co_filename))
        return found if found is NotImplemented else not found

    def _is_equal(self, other: object, symbol: str, must_be_told: bool) -> Any:
        """Return whether it is equal for all values of the names; if undecided, raise or return False."""
        if type(other) is SymbolicDim:
            given = other.expression
        elif isinstance(other, _INTEGERS):
            given = int(other)
        else:
            return NotImplemented
        if self.expression is given or self.expression == given:
            return True
        if must_be_told and not self._differs(given):
            refuse_undecided(f"{self} {symbol} {other}", self, other)
        return False

    def _differs(self, given: Any) -> bool:
        """Return whether the size is known to differ from `given`."""
        difference = self.expression - given
        return _decide(lambda: difference >= 1) is True or _decide(lambda: difference <= -1) is True

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, "<", lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, "<=", lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, ">", lambda a, b: a > b)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, ">=", lambda a, b: a >= b)

    def _compare(self, other: Any, symbol: str, comparison: Callable[[Any, Any], bool]) -> Any:
        if type(other) is not SymbolicDim and not isinstance(other, _INTEGERS):
            return NotImplemented
        given = other.expression if type(other) is SymbolicDim else int(other)
        found = _decide(lambda: comparison(self.expression, given))
        return refuse_undecided(f"{self} {symbol} {other}", self, other) if found is None else found

    def __bool__(self) -> bool:
        if not self._differs(0):
            refuse_undecided(f"whether {self} is 0", self)
        return True

    # --- refusals ------------------------------------------------------------------------------------------------

    def __index__(self) -> int:  # noqa: PLE0305  (it never does)
        _refuse_number(self, "a loop over range(size), int(size), an index or a size of NumPy's")

    def __int__(self) -> int:
        _refuse_number(self, "int(size)")

    def __float__(self) -> float:
        _refuse_number(self, "float(size)")

    @property
    def names(self) -> list[str]:
        """The names in it, sorted."""
        found = {node.id for node in ast.walk(_parse_notation(str(self))) if isinstance(node, ast.Name)}
        return sorted(found - _FUNCTIONS.keys())

    def at(self, sizes: Mapping[str, Any], functions: SizeFunctions | None = None) -> Any:
        """Return the size with others in place of the names: numbers, sizes, or jax's expressions.

        For other objects with arithmetic, `functions` defines "floordiv", "mod", "max" and "min".
        """
        return _evaluate(_parse_notation(str(self)), sizes, _FUNCTIONS if functions is None else functions)


def index_of(value: Any) -> Any:
    """Return `operator.index(value)`; symbolic sizes stay unchanged."""
    return value if type(value) is SymbolicDim else value.__index__()


def surely_less(first: Any, second: Any) -> bool:
    """Return whether `first` is less than `second` for every value of the symbolic sizes.

    An error for some sizes only is found when the program is specialized to them.
    """
    if type(first) is not SymbolicDim and type(second) is not SymbolicDim:
        return bool(first < second)
    try:
        return bool(first < second)
    except ConcretizationError:
        return False


def may_be_equal(first: Any, second: Any) -> bool:
    """Return whether two sizes are equal for some value of the symbolic sizes, or the algebra cannot decide."""
    return first == second or any(type(size) is SymbolicDim and "(" in str(size) for size in (first, second))


def size_hint(size: Any) -> Any:
    """Return a number in place of a size, for choices between programs that compute the same result."""
    return size.at(dict.fromkeys(size.names, _USUAL)) if type(size) is SymbolicDim else size


_USUAL = 64


def has_symbolic_dim(*sizes: Any) -> bool:
    """Return whether one of these has a name in it."""
    return SymbolicDim in map(type, sizes)


def slice_indices(index: slice, extent: Any) -> tuple[Any, Any, Any]:
    """Return `slice.indices`, with the number of entries in place of the stop, also for symbolic sizes."""
    step = 1 if index.step is None else operator.index(index.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    lowest, highest = (0, extent) if step > 0 else (-1, extent - 1)
    begin = (lowest if step > 0 else highest) if index.start is None else _clamp_bound(index.start, extent, lowest)
    stop = (highest if step > 0 else lowest) if index.stop is None else min_size(
        _clamp_bound(index.stop, extent, lowest), highest)
    gap = stop - begin if step > 0 else begin - stop
    count = max_size(-(-gap // abs(step)), 0)  # if the first is beyond the end, there are none
    return min_size(begin, highest), count, step


def _clamp_bound(place: Any, extent: Any, lowest: int) -> Any:
    """Return a bound of a slice, counted from the front."""
    place = index_of(place)
    return max_size(place + extent, lowest) if surely_less(place, 0) else max_size(place, lowest)


def _decide(question: Callable[[], bool]) -> bool | None:
    """Return the answer of jax's algebra, or None if it is inconclusive."""
    try:
        return bool(question())
    except jax_errors.InconclusiveDimensionOperation:
        return None


def _names_text(*sizes: Any) -> str:
    names = sorted({name for size in sizes if type(size) is SymbolicDim for name in size.names})
    return _RULE.format(names=f"{' and '.join(names)} stand{'s' * (len(names) == 1)} for")


def refuse_undecided(question: str, *sizes: Any) -> NoReturn:
    """Raise `ConcretizationError` for a question whose answer depends on the sizes."""
    raise ConcretizationError(at_user_line(
        f"{question}: that cannot be told, since {_names_text(*sizes)}Trace it for one size where code chooses by it "
        "(fxgrad.symbolic_spec(4, 3), or an array), or let values choose: fxgrad.numpy.where, fxgrad.lax.cond; sizes "
        "that are equal get the same name in fxgrad.symbolic_spec"))


def _is_asked_from_outside() -> bool:
    """Return whether a function of Python or NumPy that the user called needs the answer, not one of the library."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.endswith("sizes.py") and is_library_file(
            frame.f_code.co_filename):
        frame = frame.f_back
    return not is_library_file(frame.f_code.co_filename)


def _refuse_number(size: SymbolicDim, use: str) -> NoReturn:
    advice = conversion_hint() if _is_asked_from_outside() else None
    if advice is not None:
        raise ConcretizationError(at_user_line(
            f"{advice.done} needs a number for the size {size}, and {_names_text(size)}{advice.instead}, or trace it "
            "for one size (fxgrad.symbolic_spec(4, 3), or an array)"))
    call = running_call_text()
    if call.startswith("len("):
        raise ConcretizationError(at_user_line(f"{call} is a number in Python, and {_names_text(size)}Write "
                                               f"{call.removeprefix('len(')[:-1]}.shape[0], the size itself"))
    raise ConcretizationError(at_user_line(
        f"a number is needed of the size {size}, for {call or use}, and {_names_text(size)}Write "
        "fxgrad.numpy.arange(size) for its numbers, fxgrad.numpy.zeros(shape) for an array, fxgrad.lax.scan over an "
        "array or fxgrad.lax.fori_loop(0, size, ...) for a loop, and the size itself in arithmetic; or trace it for "
        "one size (fxgrad.symbolic_spec(4, 3), or an array)"))


# --- making sizes ------------------------------------------------------------------------------------------------


def size_from_jax(expression: Any) -> Any:
    """Return a jax dimension as a size: a number, or a symbolic one."""
    return int(expression) if isinstance(expression, _INTEGERS) else SymbolicDim(expression)


_SCOPE: Any = export.SymbolicScope()
"""The one scope of jax's for all names, so that equal names are the same size."""


def parse_size(text: str) -> Any:
    """Return the size that a text such as "2*n + 1" denotes; raise `ValueError` if it denotes none."""
    if len(text) > _LONGEST or text.count("(") > _MOST_FUNCTIONS or any(
            int(power) > _HIGHEST for power in re.findall(r"\^\s*(\d+)", text)):
        raise ValueError(f"{text!r} is no size")
    try:
        dimension, = export.symbolic_shape(text, scope=_SCOPE)
    except tokenize.TokenError as error:  # of a bracket that is not closed
        raise ValueError(f"{text!r} is no size") from error
    return size_from_jax(dimension)


# Texts may be untrusted, and the time that jax's algebra takes grows fast with nested functions.
_LONGEST, _HIGHEST, _MOST_FUNCTIONS = 400, 16, 6


def parse_sizes(text: str) -> tuple[Any, ...]:
    """Return the sizes in a text such as "2, max(n, 3)"; raise `ValueError` for anything that is no size."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    sizes = tuple(int(part) if part.strip().isdigit() else parse_size(part) for part in parts) if text.strip() else ()
    if any(type(size) is int and size < 0 for size in sizes):
        raise ValueError(f"{text!r} has a negative size")
    return sizes


def named_size(name: str) -> SymbolicDim:
    """Return the symbolic size of this name."""
    size: SymbolicDim = parse_size(name)
    return size


def max_size(first: Any, second: Any) -> Any:
    """Return the larger of two sizes."""
    return _apply_to_expressions(jax.core.max_dim, first, second)


def min_size(first: Any, second: Any) -> Any:
    """Return the smaller of two sizes."""
    return _apply_to_expressions(jax.core.min_dim, first, second)


def _apply_to_expressions(choice: Callable[[Any, Any], Any], *sizes: Any) -> Any:
    given = [size.expression if type(size) is SymbolicDim else size for size in sizes]
    if all(isinstance(size, SymbolicDim | int) for size in sizes):
        return size_from_jax(choice(*given))
    return choice(*given)


# --- other sizes in the places of names --------------------------------------------------------------------------

_FUNCTIONS: SizeFunctions = {
    "floordiv": operator.floordiv, "mod": operator.mod, "max": max_size, "min": min_size}
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow}


@cached("texts of sizes", 4096)
def _parse_notation(text: str) -> ast.expr:
    """Parse the text of a size, in jax's notation, into a syntax tree."""
    return ast.parse(text.replace("^", "**"), mode="eval").body


def _evaluate(tree: Any, sizes: Mapping[str, Any], functions: SizeFunctions) -> Any:
    if isinstance(tree, ast.BinOp):
        return _OPERATORS[type(tree.op)](_evaluate(tree.left, sizes, functions),
                                         _evaluate(tree.right, sizes, functions))
    if isinstance(tree, ast.UnaryOp):
        return -_evaluate(tree.operand, sizes, functions)
    if isinstance(tree, ast.Call):
        assert isinstance(tree.func, ast.Name)
        return functions[tree.func.id](*(_evaluate(argument, sizes, functions) for argument in tree.args))
    if isinstance(tree, ast.Constant):
        return tree.value
    return sizes[tree.id]
