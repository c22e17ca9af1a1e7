"""One application of a primitive for the laws to check, and its derived computations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Literal, array_aval
from fxgrad.engine.core.primitive import Primitive, require_primitive
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.simplifying import SimplifyingTape
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import UNSHARED, WITH_LITERALS, trace_at
from fxgrad.errors import FxgradError
from fxgrad.testing.numbers import TOLERANCES, LawError, describe_arguments, direction, mismatch, widen


class Case:
    """One application of a primitive, and computations from it."""

    def __init__(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any], fixed: Sequence[int],
                 tolerance: float) -> None:
        require_primitive("check_primitive", primitive,
                          "; derivatives of functions are checked by fxgrad.testing.check_grads")
        self.primitive, self.args, self.params = primitive, [np.asarray(arg)[()] for arg in args], params
        self.tolerance, self.law = tolerance, ""
        self.inexact = [place for place, arg in enumerate(self.args)
                        if dtypes.is_inexact(arg.dtype) and place not in fixed]
        self.wide = [widen(arg) for arg in self.args]
        try:
            self.avals(self.wide)
        except FxgradError:
            self.wide = self.args
        self.random = np.random.default_rng(0)

    def numpy(self, *args: Any) -> list[Any]:
        """Return the outputs by the numpy rule."""
        with np.errstate(all="ignore"):
            return list(self.primitive.numpy(*args, **self.params))

    def avals(self, args: Sequence[Any]) -> list[Aval]:
        """Return the outputs by the abstract rule."""
        given = [array_aval(arg) for arg in args]
        return list(self.primitive.abstract(*given, **self.params))

    def fail(self, message: str) -> LawError:
        """Return the error with a message that names the law and the application."""
        return LawError(f"{self.primitive.name}({describe_arguments(self.args, self.params)}) breaks the law "
                        f"{self.law!r}: {message}")

    def typed(self, outputs: Sequence[Any], avals: Sequence[Aval], what: str) -> None:
        """Raise unless the outputs are of these types."""
        if len(outputs) != len(avals):
            raise self.fail(f"{what} has {len(outputs)} outputs, abstract gives {len(avals)}")
        for index, (output, aval) in enumerate(zip(outputs, avals, strict=True)):
            if np.shape(output) != aval.shape or output.dtype != aval.dtype:
                raise self.fail(f"output {index} of {what} is {describe_arguments([output])}, abstract gives "
                                f"{describe_arguments([aval])}")

    def same(self, got: Sequence[Any], expected: Sequence[Any], what: str, tolerance: float | None = None) -> None:
        """Raise unless the numbers agree, to `tolerance` or that of the dtype."""
        for index, (left, right) in enumerate(zip(got, expected, strict=True)):
            allowed = TOLERANCES.get(right.dtype.name, 0.0) if tolerance is None else tolerance
            wrong = mismatch(left, right, self.tolerance * allowed)
            if wrong:
                raise self.fail(f"{what}, output {index}: {wrong}")

    def jvp(self, args: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return outputs and tangents by the rule; `tangents` may be None: then a symbolic zero is given."""
        given = [Zero(array_aval(arg)) if tangent is None else tangent  # type: ignore[arg-type]
                 for arg, tangent in zip(args, tangents, strict=True)]
        with np.errstate(all="ignore"):
            outputs, out_tangents = self.primitive.jvp(list(args), given, **self.params)
            return list(outputs), [as_plain_array(tangent) for tangent in out_tangents]

    def recorded(self, rule: Callable[..., Sequence[Any]], values: Sequence[Any], computed: Sequence[Any],
                 what: str) -> None:
        """Raise unless `rule`, called with tracers for `values`, records a program that gives `computed`.

        The tape is that of derived programs. Outputs that are None are left out on both sides.
        """
        program, captured = trace_at(
            lambda *tracers: [instantiate_zeros(output) for output in rule(*tracers) if output is not None],
            [array_aval(value) for value in values], mode=WITH_LITERALS, tape_class=SimplifyingTape)  # type: ignore[misc]
        program.check()
        arrays = [as_plain_array(output) for output in computed if output is not None]
        types = [(aval.shape, aval.dtype) for aval in program.out_avals]
        if types != [(array.shape, array.dtype) for array in arrays]:
            raise self.fail(f"{what}: recorded it gives {describe_arguments(program.out_avals)}, computed "
                            f"{describe_arguments(arrays)}; does abstract say what the numpy rule does?")
        with np.errstate(all="ignore"):
            outputs = [as_plain_array(output) for output in apply_equations(program, [*captured, *values])]
        self.same(outputs, arrays, f"{what}: recorded and run, compared with computed")

    def directions(self, places: Sequence[int], args: Sequence[Any]) -> list[Any]:
        """Return random tangents for the arguments at `places`, None for the others."""
        return [direction(self.random, arg) if place in places else None for place, arg in enumerate(args)]

    def program(self, args: Sequence[Any]) -> Program:
        """Return the program of this one equation."""
        program, _ = trace_at(lambda *tracers: bind(self.primitive, *tracers, **self.params),
                              [array_aval(arg) for arg in args], mode=UNSHARED)  # type: ignore[misc]
        return program


def as_plain_array(value: Any) -> Any:
    """Return a NumPy array or scalar, also for a symbolic zero or a literal."""
    value = instantiate_zeros(value)
    return np.asarray(value.value if type(value) is Literal else value)[()]
