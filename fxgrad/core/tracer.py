"""The tracer: the one kind of abstract value that user functions see.

Operators and array methods are attached by `fxgrad.numpy.methods`; what stands here is what every tracer has
without knowing any operation: its type, and the refusals.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from fxgrad import errors
from fxgrad.core.avals import Aval, Shape
from fxgrad.core.program import Var
from fxgrad.dtypes import DType

if TYPE_CHECKING:
    from fxgrad.core.tape import Tape


class Tracer:
    """An array whose operations are recorded: it has a shape and a dtype, and behaves as an `ndarray`.

    Under `grad`, `jvp`, `vjp` and `linearize` it also has a value for Python's control flow, though not under
    `jit` or on mapped arguments of `vmap`.
    """

    # Slots: one is built for every recorded operation.
    __slots__ = ("tape", "variable")
    __array_priority__ = 1000

    tape: Tape
    variable: Var

    def __init__(self, tape: Tape, variable: Var) -> None:
        self.tape, self.variable = tape, variable

    @property
    def aval(self) -> Aval:
        """The type: shape, dtype, weakness."""
        return self.variable.aval

    @property
    def shape(self) -> Shape:
        """The shape, a tuple of ints."""
        return self.variable.aval.shape

    @property
    def dtype(self) -> DType:
        """The NumPy dtype."""
        return self.variable.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.variable.aval.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.variable.aval.size

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.variable.aval.nbytes

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""
        return self.variable.aval.dtype.itemsize

    @property
    def weak_type(self) -> bool:
        """Whether the dtype is that of a Python scalar, which gives way to that of an array."""
        return self.variable.aval.weak

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a traced scalar (a 0-d array has no length)")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(errors.at_user_line(
                f"the truth value of a traced array with {self.size} elements is ambiguous; "
                "write np.any(x) or np.all(x)"))
        return bool(self.tape.force(self, "bool()").reshape(()))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.shape:
            raise errors.ArrayConversionError(errors.at_user_line(
                f"a traced {self.aval} cannot be used as an index or a size: only integer scalars can"))
        return int(self.tape.force(self, "an index"))

    def __int__(self) -> int:
        if self.dtype.kind not in "iub":
            raise _refusal(self, "int(x)", "np.floor(x) keeps it traced")
        if self.size != 1:
            raise TypeError("only arrays of one element can be converted to Python integers")
        return int(self.tape.force(self, "int()").reshape(()))

    def __float__(self) -> float:
        raise _refusal(self, "float(x)", "leave out float(): x itself can be used in arithmetic, and in "
                       "place of y[0] = x for a NumPy array y write y = fxgrad.numpy.at(y)[0].set(x)")

    def __complex__(self) -> complex:
        raise _refusal(self, "complex(x)", "leave out complex(): x itself can be used in arithmetic")

    def item(self, *_: Any) -> Any:
        """Refused: the result would be cut off from the derivative."""
        raise _refusal(self, "x.item()", "leave out .item(): a 0-d x itself can be used in arithmetic")

    def tolist(self) -> Any:
        """Refused: the result would be cut off from the derivative."""
        raise _refusal(self, "x.tolist()", "list(x) gives a list of traced rows")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise _refusal(self, "np.asarray(x)", "call a function that fxgrad.numpy has; np.<function>(x) then works too; "
                       "np.stack([x, y]) in place of np.array([x, y]), and fxgrad.numpy.take(a, x, axis=0) in place "
                       "of a[x] for a NumPy array a")

    @property
    def __jax_array__(self) -> Any:
        # Looking for this attribute is the first that jax does with an operand it does not know. The operators of its
        # arrays may go on without: they then leave the operation to ours. Functions get the error.
        if sys._getframe(1).f_code.co_name.startswith("_operator"):
            raise AttributeError("__jax_array__")
        raise errors.UnsupportedError(errors.at_user_line(
            f"a jax function was called on a traced array of fxgrad ({self.aval}), which it cannot trace. "
            "Wrap the function that calls it, and pass the array as an argument: fxgrad.from_jax(f)(x); or use the "
            "function of the same name in fxgrad.numpy"))

    def __setitem__(self, index: Any, value: Any) -> None:
        shown = _shown_index(index)
        raise errors.MutationError(errors.at_user_line(
            f"item assignment x[{shown}] = ... on a traced array ({self.aval}): traced arrays cannot change. "
            f"Write x = x.at[{shown}].set(...)"))

    def __hash__(self) -> int:
        raise TypeError(errors.at_user_line(
            f"unhashable: a traced array ({self.aval}) cannot be a dictionary key, a set element or a static argument"))

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec) if not spec else repr(self)

    def __repr__(self) -> str:
        known = self.tape.known_value(self)
        return f"Tracer({self.aval})" if known is None else f"Tracer({self.aval}, value={known!r})"


def _shown_index(index: Any) -> str:
    if isinstance(index, tuple):
        return ", ".join(map(_shown_index, index))
    if isinstance(index, slice):
        parts = ["" if part is None else _shown_index(part) for part in (index.start, index.stop)]
        return ":".join(parts) + ("" if index.step is None else f":{_shown_index(index.step)}")
    return "..." if index is Ellipsis else repr(index) if isinstance(index, int | type(None)) else "i"


def _refusal(tracer: Tracer, what: str, instead: str) -> errors.ArrayConversionError:
    return errors.ArrayConversionError(errors.at_user_line(
        f"{what} of a traced array ({tracer.aval}) would cut it off from the derivative without a word. "
        f"Instead: {instead}; stop_gradient(x) cuts on purpose; fxgrad.debug.value(x) looks at the value"))
