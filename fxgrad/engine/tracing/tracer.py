"""The tracer: the one kind of abstract value that user functions see.

`fxgrad.numpy.methods` attaches operators and array methods. This class has what is independent of operations: its type,
and the refusals.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from fxgrad import errors
from fxgrad.engine import dtypes, user_lines
from fxgrad.engine.core.avals import Aval, Shape, array_aval, check_dtype, way_to_array
from fxgrad.engine.core.program import Variable
from fxgrad.engine.core.symbolic import Linear
from fxgrad.engine.dtypes import DType
from fxgrad.engine.hints import condition_hint, conversion_hint, index_hint, item_hint, method_hint, printing_hint
from fxgrad.engine.pytorch_names import add_hint_attributes
from fxgrad.engine.user_source import Assignment, item_assignment, running_call, running_code

if TYPE_CHECKING:
    from fxgrad.engine.tracing.tape import Tape


@add_hint_attributes
class Tracer:
    """An array whose operations are recorded: it has a shape and a dtype, and behaves as an `ndarray`.

    Under `grad`, `jvp`, `vjp` and `linearize` it also has a value for Python's control flow, but not under `jit` or on
    mapped arguments of `vmap`.
    """

    # Slots: one is built for every recorded operation.
    __slots__ = ("tape", "variable", "viewed")
    __array_priority__ = 1000

    tape: Tape
    variable: Variable
    viewed: Any
    """The base if NumPy would return a view here, None for a copy; unset where it makes no difference. Another object
    stands for arrays that it may be."""

    def __init__(self, tape: Tape, variable: Variable) -> None:
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
        """Whether the dtype is weak, as that of a Python scalar: it gives way to that of an array."""
        return self.variable.aval.weak

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a traced scalar (a 0-d array has no length)")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(user_lines.at_user_line(
                f"the truth value of a traced array with {self.size} elements is ambiguous; "
                "write np.any(x) or np.all(x)"))
        return bool(self.tape.force(self, condition_hint).reshape(()))

    def __index__(self) -> int:
        if dtypes.kind_of(self.dtype) not in "iu" or self.shape:
            raise errors.ArrayConversionError(user_lines.at_user_line(
                f"a traced {self.aval} cannot be used as an index or a size: only integer scalars can"))
        return int(self.tape.force(self, index_hint))

    def __int__(self) -> int:
        if self.size != 1:
            raise TypeError(user_lines.at_user_line("only arrays of one element can be converted to Python integers"))
        if self.dtype.kind == "c":
            raise TypeError(user_lines.at_user_line(f"int() of a complex array ({self.aval}): write int(x.real)"))
        return int(self.tape.force(self, "int()").reshape(()))

    def __float__(self) -> float:
        raise _unsupported_error(self, "float(x)", "Leave out float(): x itself can be used in arithmetic")

    def __complex__(self) -> complex:
        raise _unsupported_error(self, "complex(x)", "Leave out complex(): x itself can be used in arithmetic")

    def item(self, *_: Any) -> Any:
        """Return the value of a bool or an integer, if known; refused for a float, which has a derivative."""
        if self.size == 1 and dtypes.kind_of(self.dtype) in "biu":
            return self.tape.force(self, "x.item()").item()
        raise _unsupported_error(self, "x.item()", "Leave out .item(): a 0-d x itself can be used in arithmetic")

    def tolist(self) -> Any:
        """Refused: the result would be cut off from the derivative."""
        raise _unsupported_error(self, "x.tolist()", "list(x) gives a list of traced rows")

    def as_integer_ratio(self) -> Any:
        """Refused, as `tolist`; Python's `statistics` and `Fraction` ask for it."""
        raise _unsupported_error(self, "x.as_integer_ratio()", "Leave it out: x itself can be used in arithmetic")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise _unsupported_error(self, "np.asarray(x)",
                                 "Call a function that fxgrad.numpy has; np.<function>(x) then works too")

    @property
    def __jax_array__(self) -> Any:
        # jax first looks up this attribute on an unknown operand. Operators of jax arrays may get AttributeError: they
        # then leave the operation to ours. Functions get the error below.
        if sys._getframe(1).f_code.co_name.startswith("_operator"):
            raise AttributeError("__jax_array__")
        found = item_hint()
        if found is not None:
            raise errors.UnsupportedError(user_lines.at_user_line(
                f"{found.done} indexes an array of jax's with a traced array of fxgrad ({self.aval}), which jax cannot "
                f"trace. {found.instead}"))
        found = method_hint()
        if found is not None:
            raise errors.UnsupportedError(user_lines.at_user_line(
                f"{found.done} calls a method of an array of jax's with a traced array of fxgrad ({self.aval}), which "
                f"jax cannot trace. {found.instead}"))
        raise errors.UnsupportedError(user_lines.at_user_line(
            f"a jax function was called on a traced array of fxgrad ({self.aval}), which it cannot trace. "
            "Wrap the function that calls it, and pass the array as an argument: fxgrad.from_jax(f)(x); or use the "
            "function of the same name in fxgrad.numpy"))

    def __setitem__(self, index: Any, value: Any) -> None:
        shown = _index_text(index)
        assignment = item_assignment(running_code().statement, view=type(getattr(self, "viewed", None)) is Tracer)
        call = running_call()
        if assignment is None and call is not None and call.function.endswith("shuffle") and call.positional:
            array = call.positional[0]
            assignment = Assignment(call.text, f"{array} = {array}[np.random.permutation(len({array}))]")
        done, instead = assignment or (f"item assignment x[{shown}] = ...", f"x = x.at[{shown}].set(...)")
        raise errors.MutationError(user_lines.at_user_line(
            f"{done} on a traced array ({self.aval}): traced arrays cannot change. Write {instead}"))

    def __copy__(self) -> Tracer:
        """Return an independent array of the same value."""
        copied = Tracer(self.tape, self.variable)
        copied.viewed = None
        return copied

    def __deepcopy__(self, _: Any) -> Tracer:
        return self.__copy__()

    def __hash__(self) -> int:
        raise TypeError(user_lines.at_user_line(
            f"unhashable: a traced array ({self.aval}) cannot be a dictionary key, a set element or a static argument"))

    def __format__(self, spec: str) -> str:
        """Format the value by `spec` if it is known; without a value, or without `spec`, as `str`."""
        value = self.tape.concrete_value(self) if spec else None
        return str(self) if value is None else format(np.asarray(value)[()], spec)

    def __str__(self) -> str:
        return self._text(converted=True)

    def __repr__(self) -> str:
        return self._text(converted=False)

    def _text(self, *, converted: bool) -> str:
        value = self.tape.concrete_value(self)
        if value is None:
            return f"Tracer({self.aval})" + printing_hint(converted=converted)
        return f"Tracer({self.aval}, value={value!r})"


def _index_text(index: Any) -> str:
    if isinstance(index, tuple):
        return ", ".join(map(_index_text, index))
    if isinstance(index, slice):
        parts = ["" if part is None else _index_text(part) for part in (index.start, index.stop)]
        return ":".join(parts) + ("" if index.step is None else f":{_index_text(index.step)}")
    return "..." if index is Ellipsis else repr(index) if isinstance(index, int | type(None)) else "i"


def _unsupported_error(tracer: Tracer, what: str, instead: str) -> errors.FxgradError:
    found = conversion_hint()
    if found is not None:
        what, instead = found
    return tracer.tape.refuse(errors.ArrayConversionError(user_lines.at_user_line(
        f"{what} would make numbers of a traced array ({tracer.aval}) and cut it off from the derivative without a "
        f"word. {instead}. (stop_gradient(x) cuts on purpose, and fxgrad.debug.value(x) looks at the value)")))


def leak_error(tracer: Tracer) -> errors.LeakedTracerError:
    """Return the error for a tracer that outlived its function, or left the thread or task of the call."""
    name = tracer.tape.name
    if not tracer.tape.closed:
        return errors.LeakedTracerError(user_lines.at_user_line(
            f"a traced array ({tracer.aval}) of {name} was used in another thread or task than that in which {name} is "
            "traced. Compute with it in that thread, and pass arrays to other threads"))
    made = _source_text(tracer)
    where = f"made at {made}" if made else "an argument of the function"
    return errors.LeakedTracerError(user_lines.at_user_line(
        f"a traced array ({tracer.aval}) of {name}, {where}, was used after {name} had "
        "returned. Return the value from the function (has_aux=True allows values beside the result) "
        f"and do not store it elsewhere{tracer.tape.leak_cure}"))


def aval_of(value: Any) -> Aval:
    """Return the type of an operand of any kind; raise `ArgumentError` for anything but an array or a number."""
    if type(value) is Tracer:
        return value.variable.aval
    aval = array_aval(value)
    if aval is None:
        if type(value) is Linear:
            raise errors.LinearityError(user_lines.at_user_line(
                "cannot transpose: two values that the function is to be linear in are multiplied with each other. "
                "Use vjp, which linearizes first, or pass one of them by closure"))
        check_dtype(value, "an operand")
        way = way_to_array(value, "x")
        raise errors.ArgumentError(user_lines.at_user_line(
            f"an operand must be an array or a number, got {type(value).__name__}{way and f'. {way}'}"))
    return aval


def _source_text(tracer: Tracer) -> str:
    """Return the user's line that made the tracer; "" if it is an input."""
    for node in tracer.tape.nodes:
        if node.equation is not None and tracer.variable in node.outputs and node.equation.source is not None:
            source = node.equation.source
            return f"{source.place} (in {source.code.co_name})"
    return ""
