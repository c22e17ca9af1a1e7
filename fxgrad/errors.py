"""The tree of errors that fxgrad raises on purpose; each class documents its cause and its cure.

FxgradError
├── ShapeError (ValueError)             shapes of the operands do not fit together
├── DTypeError (TypeError)              a dtype that the operation is not defined for
├── AxisError (ValueError)              an axis that the array does not have
├── IndexingError (IndexError)          a static index out of range, or an index of the wrong kind
├── ArgumentError (TypeError)           an argument of a transformation that makes no sense
├── TreeError (ValueError)              a container (pytree) of the wrong structure
├── ConcretizationError (TypeError)     a Python value was asked of a tracer that has none
├── ControlFlowError (TypeError)         Python's control flow on traced values that cannot be compiled
├── ArrayConversionError (TypeError)    a tracer was to become a NumPy array or a Python number
├── MutationError (TypeError)           a change in place of a tracer
├── LeakedTracerError (RuntimeError)    a tracer used after its function had returned
├── UnsupportedError (NotImplementedError)   a NumPy or jax function that fxgrad cannot trace, or a missing rule
├── LinearityError (TypeError)          transposing something that is not linear
├── CheckError (AssertionError)         a condition of `check`, or an automatic check of `checked`, that failed
├── KeyReuseError (ValueError)           a random key that is drawn from twice
├── ProgramError (ValueError)           a program that breaks the rules of the IR
└── ProgramSyntaxError (ValueError)     text that does not parse as a program

Under jax's names: `ConcretizationTypeError`, `TracerBoolConversionError`, `TracerIntegerConversionError`,
`NonConcreteBooleanIndexError` and `InconclusiveDimensionOperation` are `ConcretizationError`,
`TracerArrayConversionError` is `ArrayConversionError`, `UnexpectedTracerError` is `LeakedTracerError`, `JAXIndexError`
is `IndexingError`, `JaxprTypeError` is `ProgramError`, and `JAXTypeError`, the base class in jax, is `FxgradError`.
Errors of XLA at run time are jax's own `JaxRuntimeError`.

A message names the call, the value received, the value expected and the fix. Messages raised while a user's function is
being traced end with the user's own line.
"""

from __future__ import annotations

from jax.errors import JaxRuntimeError as JaxRuntimeError  # noqa: PLC0414  (what XLA raises, for callers to catch)


class FxgradError(Exception):
    """Base class of every error that fxgrad raises on purpose."""


class ShapeError(FxgradError, ValueError):
    """Shapes that do not fit together.

    Cause: `np.add(a, b)` with shapes `(3,)` and `(4,)`, or `a @ b` with unequal inner sizes.
    Cure: reshape, transpose or insert an axis (`x[:, None]`) so that the sizes agree.
    """


class DTypeError(FxgradError, TypeError):
    """A dtype for which the operation, or its derivative, is not defined.

    Cause: `grad(f)(3)`, `x << y` of floats, `np.floor` of a complex array.
    Cure: convert first (`x.astype(...)`, `float(...)`), or pass `allow_int=True` or `holomorphic=True`
    where the transformation offers it.
    """


class AxisError(FxgradError, ValueError):
    """An axis number outside the range of the array's axes, or one given twice.

    Cause: `np.sum(x, axis=2)` of a matrix. Cure: an axis between `-x.ndim` and `x.ndim - 1`.
    """


class IndexingError(FxgradError, IndexError):
    """A static index that is out of range, or an index that cannot be used.

    Cause: `x[5]` where `x` has five rows, `x[1.0]`, or a boolean mask whose value is unknown. Cure: an index in range;
    `where(mask, x, 0)` in place of `x[mask]` under `jit` and `vmap`.
    """


class ArgumentError(FxgradError, TypeError):
    """An invalid argument of a transformation.

    Cause: `argnums=3` of a function called with two arguments, `in_axes` of the wrong structure, a
    gradient of a function whose output is not a scalar, an unhashable static argument.
    Cure: the message names the argument and a value that fits.
    """


class TreeError(FxgradError, ValueError):
    """A container (pytree) whose structure is not the expected one.

    Cause: tangents shaped unlike the primals. Cure: the same nesting, keys and lengths.
    """


class ConcretizationError(FxgradError, TypeError):
    """A Python value (`bool`, `int`, an index) was needed of a tracer that has no value.

    Cause: `if x > 0:` inside `jit` or on a mapped argument of `vmap`, where the function is traced
    once for all values. Cure: `fxgrad.numpy.where` for a choice of values, a static argument
    (`static_argnums`) for a choice of code, or leave out `jit`: under `grad`, `jvp`, `vjp` and
    `linearize` alone the values are known and Python's own control flow works.
    """


class ControlFlowError(FxgradError, TypeError):
    """Python's control flow on traced values, in a function of `python_control_flow`, that cannot be compiled.

    Cause: a variable that only one side of a traced `if` sets, a shape that grows in a loop, a list that is changed, or
    an exception raised, in a block that is traced once. Cure: the message gives it, with the user's own line.
    """


class ArrayConversionError(FxgradError, TypeError):
    """A tracer was converted to a NumPy array or a Python number.

    Cause: `float(x)`, `x.item()`, `np.asarray(x)`, `math.sin(x)` inside a transformed function: the result would
    silently be cut off from the derivative. Cure: the function of the same name in `fxgrad.numpy`; `stop_gradient(x)`
    to cut on purpose; and `fxgrad.debug.value(x)` to inspect the value.
    """


class MutationError(FxgradError, TypeError):
    """An in-place change of a tracer: `x[0] = 1`, `row *= 2` of a view, `x.sort()`, `out=x`.

    Cause: traced arrays are immutable values. `x += y` works if no other name would see the change. Cure: `x =
    x.at[0].set(1)`; the message gives the replacement of the user's own line.
    """


class LeakedTracerError(FxgradError, RuntimeError):
    """A tracer used after the traced function had returned.

    Cause: a traced value stored in a global, an attribute or a list outside the function.
    Cure: return the value; use `has_aux=True` for values beside the result.
    """


class UnsupportedError(FxgradError, NotImplementedError):
    """A function of NumPy or jax, a method or a rule that fxgrad does not have.

    Cause: the message names it. Cure: the nearest supported name, which the message gives too.
    """


class LinearityError(FxgradError, TypeError):
    """A function to be transposed is not linear.

    Cause: `linear_transpose(lambda x: x * x, x)`. Cure: close over the nonlinear arguments, or use `vjp`, which
    linearizes first.
    """


class CheckError(FxgradError, AssertionError):
    """A check that failed: a condition of `fxgrad.check`, or an automatic check of `fxgrad.checked`.

    Cause: the message says what was computed, and at which line. Cure: the values that it names. It goes on with the
    turn of each loop and the entry of each batch around it, the innermost first.
    """

    turn_of_block = 0
    """The turn within a block of turns, until the loop over the blocks adds it to the message."""

    def add_context(self, where: str) -> None:
        """Add a line to the message: the loop or the batch that the check ran in."""
        self.args = (f"{self.args[0]}\n  {where}", *self.args[1:])


class KeyReuseError(FxgradError, ValueError):
    """A random key that is drawn from twice, found by `fxgrad.debug.check_key_reuse`.

    Cause: `normal(key) + uniform(key)`: both use the same bits. Cure: a key for each, `first, second =
    fxgrad.random.split(key)`; or `fxgrad.random.clone(key)` if reuse is intended.
    """


class ProgramError(FxgradError, ValueError):
    """A program that breaks the rules of the IR: an unbound variable, a wrong type.

    Cause: a hand-written program, or an interpreter that emits wrong equations. The message shows the
    equation among its neighbours. Cure: `program.check()` after each step of the construction.
    """


class ProgramSyntaxError(FxgradError, ValueError):
    """Text that does not parse as a program; the message gives line and column."""


ConcretizationTypeError = TracerBoolConversionError = TracerIntegerConversionError = ConcretizationError
NonConcreteBooleanIndexError = InconclusiveDimensionOperation = ConcretizationError
TracerArrayConversionError = ArrayConversionError
UnexpectedTracerError = LeakedTracerError
JAXIndexError = IndexingError
JAXTypeError = FxgradError
JaxprTypeError = ProgramError
