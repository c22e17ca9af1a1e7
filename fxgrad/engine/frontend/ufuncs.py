"""Elementwise functions: objects like NumPy's ufuncs, with a fast path for operands that need no conversion."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.frontend.operands import (
    apply,
    as_dtype,
    as_numpy_scalars,
    operand,
    operands,
    promote_inexact,
    promote_operands,
    refuse_out,
    shape_of,
)
from fxgrad.engine.frontend.value_calls import replay_on_values
from fxgrad.engine.ops.structural import convert, reshape
from fxgrad.engine.pickling import import_object
from fxgrad.engine.tracing.call_cache import replay_calls
from fxgrad.engine.tracing.op_cache import in_dtype_of, memoize_binary, memoize_unary
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, UnsupportedError

Function = Callable[..., Any]

_recalling: set[Function] = set()
"""Functions with a cache lookup of their own."""


reductions: dict[Elementwise, Function] = {}
"""Functions with a reduction of their own, each with it: `add.reduce` is `sum`."""
methods: dict[str, Function] = {}
"""The methods `reduce` (of all others), `accumulate`, `reduceat` and `at`, which get the function first."""

_operators: dict[Function, Callable[[Function], tuple[Function, Function]]] = {}
"""Makers of operators: from a function that takes foreign operands they make the pair for a binary function."""


def operator_pair(name: str, function: Function) -> tuple[Function, Function]:
    """Return the operator of a traced array and the reflected one, which gets the traced array first.

    If the other operand is no array and no number, and its class has a reflected operator of its own, that one
    computes, as in Python's data model and in jax.
    """
    def with_others(x: Any, y: Any) -> Any:
        if name == "mul":
            _refuse_repetition(x, y)
        try:
            return function(x, y)
        except ArgumentError:
            if type(x) is Tracer and has_reflected(name, y):
                return NotImplemented
            raise

    make = _operators.get(function)
    return (with_others, lambda self, other: function(other, self)) if make is None else make(with_others)


def _refuse_repetition(x: Any, y: Any) -> None:
    """Raise for a list or tuple times a traced integer, which repeats it in Python, and NumPy's integers too."""
    for repeated, count in ((x, y), (y, x)):
        if isinstance(repeated, list | tuple) and type(count) is Tracer and not count.shape and (
                count.dtype.kind in "iub"):
            word = type(repeated).__name__
            raise ArgumentError(at_user_line(
                f"a {word} times an integer is the {word} repeated in Python, and this integer is traced "
                f"({count.aval}). Make it a static argument, so that the length is known; for the product with each "
                f"element, write fxgrad.numpy.array({word}) * n"))


def has_reflected(name: str, other: Any) -> bool:
    """Return whether the class of an operand, unless built into Python, has the reflected operator of this name."""
    kind = type(other)
    return kind is not Tracer and kind.__module__ != "builtins" and hasattr(kind, f"__r{name}__")


class Elementwise:
    """A function of each element of its operands, with NumPy's broadcasting, and the methods of NumPy's ufuncs.

    >>> import fxgrad.numpy as fnp
    >>> fnp.add([1.0, 2.0], 3.0)
    array([4., 5.])
    >>> fnp.multiply.outer([1.0, 2.0], [3.0, 4.0]).shape
    (2, 2)
    >>> fnp.maximum.accumulate([1.0, 3.0, 2.0])
    array([1., 3., 3.])
    >>> fnp.add.reduceat([1.0, 2.0, 4.0], [0, 2])
    array([3., 4.])
    >>> fnp.add.at([1.0, 2.0], [0, 0], 5.0, inplace=False)
    array([11.,  2.])
    """

    def __init__(self, function: Function, name: str, nin: int, doc: str, module: str, users: bool = False,
                 nout: int = 1, identity: Any = None) -> None:
        # The operations of a user's function depend on more than its arguments.
        self.users = users
        self.function = function if users or function in _recalling else replay_calls(
            replay_on_values(function, of_arrays=True), captures=True)
        self.__name__ = self.__qualname__ = name
        ufunc = self._numpys()
        self.nin = self.nargs = nin
        self.nout: int = nout if ufunc is None else ufunc.nout
        self.identity = identity if ufunc is None else ufunc.identity
        self.__doc__, self.__module__ = doc, module

    def _numpys(self) -> Any:
        """Return NumPy's ufunc of the same name, or None."""
        ufunc = None if self.users else getattr(np, self.__name__, None)
        return ufunc if isinstance(ufunc, np.ufunc) else None

    def __call__(self, *given: Any, **options: Any) -> Any:
        if options:
            return self._with_options(given, **options)
        try:
            return self.function(*given)
        except TypeError:
            if len(given) != self.nin:
                raise ArgumentError(at_user_line(
                    f"{self.__name__} takes {self.nin} operand{'s' * (self.nin > 1)}, got {len(given)}")) from None
            raise

    def _with_options(self, given: tuple[Any, ...], out: Any = None, where: Any = True, dtype: Any = None,
                      casting: str = "same_kind", **ignored: Any) -> Any:
        if ignored.keys() - {"order", "subok"}:
            raise ArgumentError(at_user_line(f"{self.__name__} has no option {', '.join(ignored)}; it has dtype="))
        refuse_out(self.__name__, out)
        refuse_where(self.__name__, where)
        return self.function(*loop_operands(self._numpys(), given, dtype, casting))

    def reduce(self, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
               initial: Any = None, where: Any = None) -> Any:
        """Combine all elements of `a` along `axis` (None: all axes) by this function."""
        refuse_out(f"{self.__name__}.reduce", out)
        options = {"dtype": dtype, "initial": initial, "where": where}
        reduction = reductions.get(self) or functools.partial(methods["reduce"], self)
        return reduction(a, axis=axis, keepdims=keepdims,
                         **{name: option for name, option in options.items() if option is not None})

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Return the combinations, by this function, of the elements up to each one along `axis`."""
        refuse_out(f"{self.__name__}.accumulate", out)
        return methods["accumulate"](self, array, axis, dtype)

    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Combine, by this function, the elements from each of the indices, which are known, to before the next."""
        refuse_out(f"{self.__name__}.reduceat", out)
        return methods["reduceat"](self, array, indices, axis, dtype)

    def at(self, a: Any, indices: Any, *b: Any, inplace: bool = True) -> Any:
        """Return a copy of `a` with this function applied to `a[indices]` and `b`; only with `inplace=False`."""
        return methods["at"](self, a, indices, b, inplace)

    def outer(self, a: Any, b: Any, **options: Any) -> Any:
        """Apply this function to every pair of an element of `a` and one of `b`; the shapes are joined."""
        a, b = operand(a), operand(b)
        return self(reshape(a, shape_of(a) + (1,) * len(shape_of(b))), b, **options)

    def __reduce__(self) -> Any:
        """Pickle by name, except for functions of a user's."""
        if getattr(sys.modules.get(self.__module__), self.__name__, None) is self:
            return import_object, (self.__module__, self.__name__)
        return super().__reduce_ex__(2)

    def __repr__(self) -> str:
        return f"<fxgrad function {self.__name__!r}>"


def refuse_where(name: str, where: Any) -> None:
    """Raise `UnsupportedError` if a caller has only some elements computed."""
    if where is not None and where is not True:
        raise UnsupportedError(at_user_line(
            f"{name}: where= is not supported, since other elements would stay undefined. "
            f"Write where(condition, {name}(...), other)"))


def loop_operands(ufunc: Any, given: Sequence[Any], dtype: Any, casting: str = "same_kind") -> Sequence[Any]:
    """Return the operands in the dtypes in which a ufunc of NumPy's computes results of `dtype` (None: any).

    Comparisons have bools of any operands, and magnitudes are real. Raises `DTypeError` where `casting` forbids the
    conversion. Without a ufunc of NumPy's, and for dtypes that are not NumPy's own, all operands get the dtype.
    """
    if dtype is None:
        return given
    wanted, values = dtypes.canonical(dtype), [operand(value) for value in given]
    avals = [aval_of(value) for value in values]
    if not isinstance(ufunc, np.ufunc) or "V" in {wanted.kind, *(aval.dtype.kind for aval in avals)}:
        return [as_dtype(value, wanted) for value in values]
    # NumPy itself crashes if it resolves the types of Python's numbers with casting="equiv".
    types = [_WEAK.get(aval.dtype.kind, aval.dtype) if aval.weak and casting != "equiv" else aval.dtype
             for aval in avals]
    try:
        loop = ufunc.resolve_dtypes((*types, *[None] * ufunc.nout), casting=casting,  # type: ignore[arg-type]
                                    signature=(*[None] * ufunc.nin, *[wanted] * ufunc.nout))
    except TypeError:
        names = " and ".join(aval.dtype.name for aval in avals)
        raise DTypeError(at_user_line(
            f"{ufunc.__name__}: no results of dtype {wanted.name} are made of {names} with casting={casting!r}. "
            f"Convert first, for example x.astype({wanted.name!r})")) from None
    # NumPy compares two Python integers as objects.
    return [value if into.kind == "O" else as_dtype(value, into) for value, into in zip(values, loop, strict=False)]


_WEAK = {"i": int, "f": float, "c": complex}
"""What NumPy calls a weak number of each kind."""


def unary_function(primitive: Primitive, kinds: str = "fc") -> Function:
    """Return the function of one operand that applies `primitive`; dtypes of other `kinds` become inexact first."""
    def function(x: Any) -> Any:
        if type(x) is Tracer and x.variable.aval.dtype.kind in kinds:
            return bind(primitive, x)[0]
        x = operand(x)
        return apply(primitive, x if aval_of(x).dtype.kind in kinds else promote_inexact(x)[0])

    recalled = memoize_unary(primitive, replay_on_values(function, of_arrays=True), kinds)
    _recalling.add(recalled)
    return recalled


def binary_function(primitive: Primitive, general: Function | None = None, kinds: str = "iufcV") -> Function:
    """Return the function of two operands that binds `primitive` at once if their dtypes are equal, of these `kinds`.

    All else goes to `general`, which by default promotes to the common dtype.
    """
    def promoting(x: Any, y: Any) -> Any:
        return apply(primitive, *promote_operands(x, y))

    rest = general or promoting

    def typed(x: Any, y: Any) -> Any:
        """Test the cases that need no conversion, each once, then fall back to the general path."""
        x_type, y_type = type(x), type(y)
        if x_type is Tracer:
            aval = x.variable.aval
            dtype = aval.dtype
            if y_type is Tracer:
                also = y.variable.aval
                if dtype is also.dtype and aval.weak is also.weak and dtype.kind in kinds:
                    return bind(primitive, x, y)[0]
            else:
                number = in_dtype_of(aval, y, kinds)
                if number is not None:
                    return bind(primitive, x, number)[0]
        elif y_type is Tracer:
            number = in_dtype_of(y.variable.aval, x, kinds)
            if number is not None:
                return bind(primitive, number, y)[0]
        return rest(operand(x), operand(y))

    typed = replay_on_values(typed, of_arrays=True, converts_floats=True)
    recalled, _ = memoize_binary(primitive, typed, kinds)
    _operators[recalled] = functools.partial(memoize_binary, primitive, typed, kinds)
    _recalling.add(recalled)
    return recalled


def inexact_function(primitive: Primitive) -> Function:
    """Return a function as `binary_function` does, for operations that turn integers into floats."""
    return binary_function(primitive, lambda x, y: apply(primitive, *promote_inexact(x, y)), kinds="fc")


def composite_function(function: Function, exact: bool = False) -> Function:
    """Return the function of operands in their common inexact dtype, made of operations.

    Floats of 8 bits are computed in float32, unless `function` is `exact`.
    """
    def composed(*values: Any) -> Any:
        typed = as_numpy_scalars(promote_inexact(*operands(*values)))
        dtype = aval_of(typed[0]).dtype
        if exact or dtype.itemsize > 1:
            return function(*typed)
        result = function(*(convert(value, dtypes.float32) for value in typed))
        return convert(result, dtype) if aval_of(result).dtype == dtypes.float32 else result
    return composed


def dispatch_bools(general: Function, logical: Function) -> Function:
    """Return a general path that uses `logical` for two bools."""
    def function(x: Any, y: Any) -> Any:
        x, y = promote_operands(x, y)
        return logical(x, y) if aval_of(x).dtype == dtypes.bool_ else general(x, y)
    return function


def as_bool(x: Any) -> Any:
    """Return whether each element is not zero."""
    return x if aval_of(x).dtype == dtypes.bool_ else convert(x, dtypes.bool_)
