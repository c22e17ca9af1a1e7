"""What control flow says when it is given what does not fit, word for word."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, lax
from fxgrad.errors import FxgradError

X = np.ones(3)


def carry_shape() -> Any:
    return lax.scan(lambda c, _: ({"h": c["h"][:2]}, None), {"h": X}, length=2)


def carry_dtype() -> Any:
    return lax.while_loop(lambda c: True, lambda c: [c[0], c[1].astype("float32")], [X, X])


def carry_structure() -> Any:
    return lax.fori_loop(0, 3, lambda i, c: {"a": c["a"]}, {"a": X, "b": X})


CASES: dict[str, tuple[Callable[[], Any], type[FxgradError], str]] = {
    "carry shape": (carry_shape, errors.ShapeError,
        ("scan: carry.h comes to function as f64[3] and is returned as f64[2]; the shape must stay the same. "
         "Return an array of shape (3,), or begin with one of shape (2,)")),
    "carry dtype": (carry_dtype, errors.DTypeError,
        ("while_loop: carry[1] comes to function as f64[3] and is returned as f32[3]; the dtype must stay the same. "
         "Return it with .astype('float64'), or begin with an array of float32")),
    "carry structure": (carry_structure, errors.TreeError,
        ("fori_loop: function takes a carry of one structure and returns one of another. They differ first at carry.b: "
         "it takes PyTreeDef({'a': *, 'b': *}) and returns PyTreeDef({'a': *}). "
         "Return the carry in the structure in which it comes")),
    "no pair": (lambda: lax.scan(lambda c, x: c, 0.0, X), errors.TreeError,
        ("scan: function must return a pair (carry, y), got PyTreeDef(*). "
         "Write `return carry, None` if there is nothing to stack")),
    "no length": (lambda: lax.scan(lambda c, x: (c, x), 0.0), errors.ArgumentError,
        "scan: without xs the number of steps is not known. Pass length=n"),
    "lengths": (lambda: lax.scan(lambda c, x: (c, None), 0.0, {"a": X, "b": np.ones(4)}), errors.ShapeError,
        "scan: the first axes of xs must be equally long: xs.a has 3, xs.b has 4"),
    "length and xs": (lambda: lax.scan(lambda c, x: (c, None), 0.0, X, length=5), errors.ShapeError,
        "scan: the first axes of xs must be equally long: xs has 3, length is 5"),
    "scalar xs": (lambda: lax.scan(lambda c, x: (c, None), 0.0, 1.0), errors.ShapeError,
        "scan: xs is a scalar (f64*[]) and has no axis to go along. Pass it by closure"),
    "branch structure": (lambda: lax.cond(True, lambda x: {"a": x}, lambda x: {"b": x}, X), errors.TreeError,
        ("cond: true_fun (function) and false_fun (function) return containers of different structures, which differ "
         "first at output.a: PyTreeDef({'a': *}) and PyTreeDef({'b': *}). "
         "Return the same structure from every branch")),
    "branch shape": (lambda: lax.cond(True, lambda x: (x, x), lambda x: (x, x[:2]), X), errors.ShapeError,
        ("cond: output[1] is f64[3] from true_fun and f64[2] from false_fun; the shapes must be equal. "
         "Return arrays of the same shape from every branch")),
    "branch dtype": (lambda: lax.switch(0, [lambda x: x, lambda x: x.astype("int32")], X), errors.DTypeError,
        ("switch: output is f64[3] from branches[0] and i32[3] from branches[1]; the dtypes must be equal. "
         "Convert one of them, for example with .astype('float64')")),
    "array pred": (lambda: lax.cond(X > 0, lambda: 1, lambda: 2), errors.ShapeError,
        ("cond: pred must be a scalar, got bool[3]. Reduce it with fnp.all(pred) or fnp.any(pred) to choose once, or "
         "use fnp.where to choose for each element")),
    "float index": (lambda: lax.switch(0.5, [lambda: 1, lambda: 2]), errors.DTypeError,
        "switch: index must be an integer, got f64*[]. Convert it with .astype('int32'), or use cond for a bool"),
    "one function in the place of branches": (lambda: lax.switch(0, np.sin, np.cos), errors.ArgumentError,
        "switch: branches is a function, where a list of functions is needed. Write switch(index, [f, g], x)"),
    "no branches": (lambda: lax.switch(0, []), errors.ArgumentError,
        "switch: branches is empty; pass at least one function"),
    "no function": (lambda: lax.cond(True, 1.0, lambda: 2.0), errors.ArgumentError,
        ("cond: true_fun is a float, where a function is needed. Pass the function itself: cond(..., true_fun=f), "
         "not the value f(x)")),
    "condition": (lambda: lax.while_loop(lambda c: c > 0, lambda c: c, X), errors.ShapeError,
        "while_loop: function must return one bool, got bool[3]. Reduce it, for example with fnp.all or fnp.any"),
    "bounds": (lambda: lax.fori_loop(0, 2.5j, lambda i, c: c, X), errors.DTypeError,
        "fori_loop: upper must be a real scalar, got c128*[]. Write int(n), or convert it with .astype('int32')"),
    "unroll": (lambda: fxgrad.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c, X, unroll=4))(3), errors.ArgumentError,
        "fori_loop: unroll needs bounds that are known while tracing. Leave it out, or make the bounds static"),
    "leaf": (lambda: lax.fori_loop(0, 2, lambda i, c: c, {"a": "text"}), errors.ArgumentError,
        ("fori_loop: carry.a is a str, where an array or a number is needed. Pass it by closure (functools.partial), "
         "or "
         "leave it out of the arguments that are transformed")),
    "forced": (lambda: lax.scan(lambda c, x: (c if c > 0 else x, None), 0.0, X), errors.ConcretizationError,
        ("bool() needs the value of a traced array (bool[]) in function, which is traced without values. "
         "It depends on: carry. Write fxgrad.numpy.where(condition, a, b) to choose between values, fxgrad.lax.cond, "
         "while_loop or fori_loop to choose or repeat pieces of code, or make the argument static (static_argnums). "
         "fxgrad.python_control_flow(f) compiles the `if`, `for` and `while` of f")),
    "batch_size": (lambda: lax.map(lambda x: x, X, batch_size=-1), errors.ArgumentError,
        "map: batch_size=-1; it must be at least 0, or None"),
    "axis": (lambda: lax.associative_scan(fnp.add, X, axis=1), errors.AxisError,
        "associative_scan: axis=1, and elems is f64[3]"),
    "solver": (lambda: lax.custom_linear_solve(lambda x: x, X, lambda m, b: b[:2]), errors.ShapeError,
        "custom_linear_solve: function returns f64[2] at output, where f64[3] is needed"),
    "solver's call": (lambda: lax.custom_linear_solve(lambda x: x, X, lambda m, b: b / m(1.0)), errors.ShapeError,
        "custom_linear_solve: a solver calls its linear function with f64[] at x, where f64[3] is needed"),
    "solver's dtype": (lambda: lax.custom_root(lambda x: x * x - 2.0, np.float32(1.0), lambda f, x: x,
                                               lambda g, y: y / g(np.array(1.0))), errors.ShapeError,
        "custom_root: a solver calls its linear function with f64[] at x, where f32[] is needed"),
    "solver's container": (lambda: lax.custom_root(lambda x: x * x - 2.0, 1.0, lambda f, x: x,
                                                   lambda g, y: y / g([1.0])), errors.TreeError,
        "custom_root: a solver calls its linear function with PyTreeDef([*]), where PyTreeDef(*) is needed"),
    "no transpose": (lambda: fxgrad.grad(lambda b: fnp.sum(lax.custom_linear_solve(
        lambda x: 2.0 * x, b, lambda m, b: b / 2.0)))(X), errors.LinearityError,
        ("custom_linear_solve: reverse mode solves the transposed system, and there is no transpose_solve. "
         "Pass transpose_solve=function(vecmat, b), or symmetric=True if the matrix is equal to its transpose")),
    "policy": (lambda: fxgrad.checkpoint(fnp.sin, policy="dots"), errors.ArgumentError,
        ("checkpoint: policy is a str, where one of fxgrad.checkpoint_policies or a function is needed, such as "
         "policy=fxgrad.checkpoint_policies.dots_saveable")),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    call, kind, message = CASES[name]
    with pytest.raises(kind) as caught:
        call()
    text, _, place = str(caught.value).partition("\n  at ")
    assert text == message
    assert re.match(r"test_lax_control_flow_errors.py:\d+ \(in \S+\)$", place)
