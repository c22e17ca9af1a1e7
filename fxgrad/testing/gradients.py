"""Checking the derivatives of a function against central differences, in forward and reverse mode, to any order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.frontend.flat import function_origin, leaf_aval, require_function
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import UNSHARED_SELECTIVE, trace_at
from fxgrad.engine.transforms.forward import push_forward
from fxgrad.engine.transforms.linearize import linearize_in_place, pull_back
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, FxgradError
from fxgrad.testing.numbers import (
    DIFFERENCES,
    LawError,
    central_difference,
    describe_arguments,
    direction,
    inner,
    mismatch,
    widen,
)

_COMPLEX_STEP = 1e-100
_OF_COMPLEX_STEPS = 1e-13
"""The tolerance of derivatives by complex steps, which are exact to rounding."""

Flat = Callable[..., "list[Any]"]
"""A function from arrays to a list of arrays."""

MODES = ("fwd", "rev")


def check_grads(f: Callable[..., Any], args: Sequence[Any], order: int = 2, modes: Sequence[str] = MODES,
                atol: float | None = None, rtol: float | None = None, eps: float | None = None, *,
                complex_step: bool = False) -> None:
    """Compare the derivatives of `f` at `args` up to `order` with central differences; raises `LawError`.

    `f` is called on the tuple `args` of arrays, numbers and containers of them, with floating ones converted to float64
    (complex ones to complex128), so that differences of a float32 function have enough digits. Integers stay fixed. At
    each order the derivative along one random direction is compared: in mode "fwd" by jvp, in mode "rev" by vjp, paired
    with a random cotangent; then the derivative of that derivative in every mode.

    A deviation up to `atol` or `rtol * |difference|` passes (both 2e-7 by default, ten times that at each further
    order); `eps` is the step of the differences, which are of fourth order (1e-4 by default).

    With `complex_step` the derivatives are compared with Im f(x + ih t) / h for h = 1e-100, in which nothing cancels:
    the tolerances are 1e-13 by default (Squire and Trapp, "Using complex variables to estimate derivatives of real
    functions", SIAM Review, 1998). That takes real arguments, and a function that is analytic there: raises
    `ArgumentError` for one with `abs`, `conj`, a norm or `floor` on the way, which central differences tell.

    A pass shows that derivatives agree along a few directions at this point. It does not show that they agree
    elsewhere, at kinks (a difference across one is wrong: move the point), or where `f` is saturated and right and
    wrong derivatives are both nearly zero; nor that `f` itself is right.

    >>> import fxgrad.numpy as fnp
    >>> check_grads(lambda x: fnp.sin(x) * x, (1.5,), order=3)
    >>> check_grads(lambda x: fnp.sin(x) * x, (1.5,), order=3, complex_step=True)
    """
    require_function("check_grads", f, "f, (x,)")
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes or order < 1:
        raise ArgumentError(at_user_line(f"check_grads: modes={tuple(modes)!r}, order={order!r}; some of {MODES} and "
                                         "an order from 1 on are needed"))
    leaves, structure = tree.flatten(tuple(args))
    values = [_float64(leaf) for leaf in leaves]
    moved = [dtypes.is_inexact(value.dtype) for value in values]
    if not any(moved):
        raise ArgumentError(at_user_line(
            f"check_grads: no argument of {function_name(f)} is floating, so there is nothing to differentiate; got "
            f"{describe_arguments(values)}. Write 1.0 in place of 1"))

    def flat(*given: Any) -> list[Any]:
        outputs: list[Any] = tree.leaves(f(*tree.unflatten(structure, given)))
        return [output for output in outputs if dtypes.is_inexact(aval_of(output).dtype)]

    if complex_step and any(value.dtype.kind == "c" for value in values):
        raise ArgumentError(at_user_line(f"check_grads: complex_step=True takes real arguments, got "
                                         f"{describe_arguments(values)}; leave complex_step out"))
    step, tolerance = DIFFERENCES["float64"]
    if complex_step:
        tolerance = _OF_COMPLEX_STEPS
    checker = _Checker(f, tuple(modes), eps or step, tolerance if atol is None else atol,
                       tolerance if rtol is None else rtol, moved, complex_step)
    checker.check(flat, values, order, "f")


def check_jvp(f: Callable[..., Any], f_jvp: Callable[..., Any], args: Sequence[Any], atol: float | None = None,
              rtol: float | None = None, eps: float | None = None, err_msg: str = "") -> None:
    """Compare a function for tangents with `f` and with central differences of it; raise `LawError`.

    `f_jvp(args, tangents)` returns the output of `f` at the tuple `args` and its tangent, as
    `functools.partial(fxgrad.jvp, f)` does. One random direction is compared, as in `check_grads`, with its options;
    `err_msg` begins the message.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> check_jvp(fnp.sin, lambda args, tangents: (fnp.sin(*args), fnp.cos(*args) * tangents[0]), (0.5,))
    """
    case = _Case("check_jvp", f, args, atol, rtol, eps, err_msg)
    output, pushed = f_jvp(*case.trees(case.values, case.tangents))
    case.compare("the first output", output, case.outputs)
    case.compare("the tangent", pushed, case.slopes)


def check_vjp(f: Callable[..., Any], f_vjp: Callable[..., Any], args: Sequence[Any], atol: float | None = None,
              rtol: float | None = None, eps: float | None = None, err_msg: str = "") -> None:
    """Compare a function for cotangents with `f` and with central differences of it; raise `LawError`.

    `f_vjp(*args)` returns the output of `f` and its pullback, as `functools.partial(fxgrad.vjp, f)` does. The pullback
    of one random cotangent is paired with one random direction; options are those of `check_jvp`.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> check_vjp(fnp.sin, lambda x: (fnp.sin(x), lambda d_out: (fnp.cos(x) * d_out,)), (0.5,))
    """
    case = _Case("check_vjp", f, args, atol, rtol, eps, err_msg)
    output, pullback = f_vjp(*case.trees(case.values)[0])
    case.compare("the first output", output, case.outputs)
    cotangents = [direction(case.random, slope) for slope in case.slopes]
    pulled = [*map(_array, tree.leaves(pullback(tree.unflatten(tree.structure(output), cotangents))))]
    pairs = [(cotangent, tangent) for cotangent, tangent, value in zip(pulled, case.tangents, case.values, strict=True)
             if dtypes.is_inexact(value.dtype)]
    case.compare("the pairing of cotangents and tangents", [inner(*zip(*pairs, strict=True))],
                 [inner(cotangents, case.slopes)])


class _Case:
    """A function at a point: its output there, and its difference along one random direction."""

    def __init__(self, what: str, f: Callable[..., Any], args: Sequence[Any], atol: float | None, rtol: float | None,
                 eps: float | None, err_msg: str) -> None:
        require_function(what, f, f"f, f_{what.removeprefix('check_')}, (x,)")
        leaves, self.structure = tree.flatten(tuple(args))
        self.title = f"{err_msg + ': ' if err_msg else ''}{what}({function_name(f)})"
        self.values = [_float64(leaf) for leaf in leaves]
        self.random = np.random.default_rng(0)
        self.tangents = [direction(self.random, value) if dtypes.is_inexact(value.dtype) else
                         np.zeros(np.shape(value), dtypes.float0) for value in self.values]

        def flat(*given: Any) -> list[Any]:
            return [*map(_array, tree.leaves(f(*tree.unflatten(self.structure, given))))]

        step, tolerance = DIFFERENCES["float64"]
        self.tolerances = tolerance if rtol is None else rtol, tolerance if atol is None else atol
        self.outputs = flat(*self.values)
        moved = [None if tangent.dtype == dtypes.float0 else tangent for tangent in self.tangents]
        self.slopes = central_difference(flat, self.values, moved, eps or step)

    def trees(self, *leaves: Sequence[Any]) -> list[Any]:
        """Return containers like the arguments."""
        return [tree.unflatten(self.structure, each) for each in leaves]

    def compare(self, what: str, got: Any, expected: Sequence[Any]) -> None:
        """Raise unless the two agree."""
        found = [*map(_array, tree.leaves(got))]
        if len(found) != len(expected):
            raise LawError(f"{self.title} at {describe_arguments(self.values)}: {what} has {len(found)} arrays, and "
                           f"{len(expected)} are needed")
        for each, wanted in zip(found, expected, strict=True):
            wrong = None if each.dtype == dtypes.float0 else mismatch(each, wanted, *self.tolerances)
            if wrong:
                raise LawError(f"{self.title} at {describe_arguments(self.values)}: {what} is wrong: {wrong}")


def _float64(leaf: Any) -> Any:
    if leaf_aval(leaf) is None:
        raise ArgumentError(at_user_line(f"check_grads: an argument is a {type(leaf).__name__}, where arrays and "
                                         "numbers are needed; pass it by closure"))
    return widen(np.asarray(leaf)[()])


class _Checker:
    """The state shared by all orders: the tolerances, and the random directions drawn so far."""

    def __init__(self, function: Any, modes: tuple[str, ...], eps: float, atol: float, rtol: float,
                 moved: list[bool], complex_step: bool) -> None:
        self.function, self.modes, self.eps, self.atol, self.rtol, self.moved = function, modes, eps, atol, rtol, moved
        self.complex_step = complex_step
        self.random = np.random.default_rng(0)

    def check(self, flat: Flat, values: list[Any], order: int, path: str) -> None:
        """Check all modes at this order, and the derivatives themselves at the next."""
        tangents = [direction(self.random, value) if moved else None
                    for value, moved in zip(values, self.moved, strict=True)]
        with np.errstate(all="ignore"):
            slopes = self.slopes(lambda *at: list(map(_array, flat(*at))), values, tangents, path)
            cotangents = [direction(self.random, slope) for slope in slopes]
            if "fwd" in self.modes:
                pushed: Flat = functools.partial(self.push_tangents, flat, tangents)
                for got, slope in zip(pushed(*values), slopes, strict=True):
                    self.compare(_array(got), slope, f"the jvp of {path}", values)
                self.deeper(pushed, values, order - 1, f"jvp({path})")
            if "rev" in self.modes:
                pulled: Flat = functools.partial(self.pulled, flat, cotangents)
                given = [tangent for tangent in tangents if tangent is not None]
                paired = inner(list(map(_array, pulled(*values))), given)
                self.compare(paired, inner(cotangents, slopes), f"the vjp of {path}, paired with a tangent", values)
                self.deeper(pulled, values, order - 1, f"vjp({path})")

    def slopes(self, flat: Flat, values: list[Any], tangents: list[Any], path: str) -> list[Any]:
        """Return the derivative along the tangents, by differences or by a complex step."""
        slopes = central_difference(flat, values, tangents, self.eps)
        if not self.complex_step:
            return slopes
        try:
            outputs = flat(*(value if tangent is None else value + 1j * _COMPLEX_STEP * tangent
                             for value, tangent in zip(values, tangents, strict=True)))
        except (TypeError, FxgradError) as error:
            raise self.not_analytic(path, str(error).split("\n", maxsplit=1)[0]) from error
        found = [np.imag(output) / _COMPLEX_STEP for output in outputs]
        for one, other in zip(found, slopes, strict=True):
            wrong = mismatch(one, other, *2 * [100 * DIFFERENCES["float64"][1]])
            if wrong:
                raise self.not_analytic(path, f"a complex step and a central difference differ: {wrong}")
        return found

    def not_analytic(self, path: str, reason: str) -> ArgumentError:
        """Return the error for a function that a complex step does not differentiate."""
        return ArgumentError(at_user_line(
            f"check_grads({function_name(self.function)}, complex_step=True): {path} is not analytic there: {reason}. "
            "Leave complex_step out"))

    def deeper(self, derivative: Flat, values: list[Any], order: int, path: str) -> None:
        """Check a derivative in the same way, with more tolerance."""
        if order:
            checker = _Checker(self.function, self.modes, self.eps, 10 * self.atol, 10 * self.rtol, self.moved,
                               self.complex_step)
            checker.random = self.random
            checker.check(derivative, values, order, path)

    def compare(self, got: Any, slope: Any, what: str, values: list[Any]) -> None:
        """Raise unless the two agree."""
        wrong = mismatch(got, slope, self.rtol, self.atol)
        if wrong:
            raise LawError(f"check_grads({function_name(self.function)}) at {describe_arguments(values)}: {what} is "
                           f"not the {'complex step' if self.complex_step else 'central difference'}: {wrong}")

    def traced(self, flat: Flat, values: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Return the program of `flat` at `values`, which may decide its control flow, and the inputs to run it on."""
        program, captured = trace_at(flat, [aval_of(value) for value in values], mode=UNSHARED_SELECTIVE, values=values,
                                     name=function_name(self.function), origin=function_origin(self.function))
        return program, [*captured, *values]

    def push_tangents(self, flat: Flat, tangents: list[Any], *values: Any) -> list[Any]:
        """Return the tangents of the outputs."""
        program, inputs = self.traced(flat, values)
        given = [Zero(aval_of(value)) if tangent is None else _like(value, tangent)
                 for value, tangent in zip(values, tangents, strict=True)]
        seeds = [*(Zero(aval) for aval in program.in_avals[:len(inputs) - len(values)]), *given]
        return [instantiate_zeros(tangent) for tangent in push_forward(program, inputs, seeds)[1]]

    def pulled(self, flat: Flat, cotangents: list[Any], *values: Any) -> list[Any]:
        """Return the cotangents of the inputs that are differentiated."""
        program, inputs = self.traced(flat, values)
        wrt = [*[False] * (len(inputs) - len(values)), *self.moved]
        outputs, residuals, split = linearize_in_place(program, inputs, wrt)
        reaching = [_like(output, cotangent) for output, cotangent, reached in zip(
            outputs, cotangents, split.nonzero_outputs, strict=True) if reached]
        return [instantiate_zeros(cotangent) for cotangent in pull_back(split, residuals, reaching)]


def _like(value: Any, tangent: Any) -> Any:
    """Return a real tangent or cotangent as a complex one if the value is complex, as on a complex step."""
    return tangent + 0j if aval_of(value).dtype.kind == "c" and tangent.dtype.kind == "f" else tangent


def _array(value: Any) -> Any:
    return np.asarray(value.value if type(value) is Literal else value)
