"""Solvers that are differentiated implicitly: `custom_root`, `custom_linear_solve`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine import dtypes, tree
from fxgrad.engine.derivation.derive import Derived
from fxgrad.engine.frontend.flat import TracedCall
from fxgrad.engine.higher_order.solve import linear_solve, root_derivatives, root_p
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ShapeError, TreeError
from fxgrad.lax.bodies import FlatTree, check_function, first_difference, flatten_checked, leaf_paths, trace_body


def custom_linear_solve(matvec: Callable[[Any], Any], b: Any, solve: Callable[..., Any],
                        transpose_solve: Callable[..., Any] | None = None, symmetric: bool = False,
                        has_aux: bool = False) -> Any:
    """Return `x = solve(matvec, b)` with the derivatives of the solution of `matvec(x) = b`, however it was found.

    `matvec` is a linear function of containers like `b`. Forward mode calls `solve` again with another right-hand side;
    reverse mode calls `transpose_solve(vecmat, b)`, or `solve` itself if the system is `symmetric`. With `has_aux` the
    solvers return a pair, whose second part has no derivative.

    Raises `TreeError` or `ShapeError` if `matvec` or a solver returns another structure or other types than those of
    `b`, and `LinearityError` under reverse mode without a transposed solver.

    >>> import numpy as np, fxgrad
    >>> def divide(d, b):
    ...     def solve(matvec, b):
    ...         return b / matvec(np.ones(2))
    ...     return custom_linear_solve(lambda x: d * x, b, solve, symmetric=True)
    >>> fxgrad.grad(lambda d: np.sum(divide(d, np.array([2.0, 8.0]))))(np.array([2.0, 4.0]))
    array([-0.5, -0.5])
    """
    for function, name in ((matvec, "matvec"), (solve, "solve"), (transpose_solve, "transpose_solve")):
        if function is not None:
            check_function("custom_linear_solve", function, name)
    right = flatten_checked("custom_linear_solve", b, "b")
    aux: list[TreeDef] = []

    def flat(matrix: Callable[..., Sequence[Any]]) -> Callable[[Any], Any]:
        return lambda x: right.rebuild(matrix(*_operand("custom_linear_solve", x, right)))

    def flat_solver(solver: Callable[..., Any], name: str) -> Callable[..., Sequence[Any]]:
        def apply(matrix: Callable[..., Sequence[Any]], values: Sequence[Any]) -> Sequence[Any]:
            result = solver(flat(matrix), right.rebuild(values))
            return _solution_leaves("custom_linear_solve", result, name, right, has_aux, aux)
        return apply

    def multiply(*values: Any) -> Sequence[Any]:
        return _same("custom_linear_solve", matvec(right.rebuild(values)), function_name(matvec), right)

    outputs = linear_solve(multiply, right.leaves, flat_solver(solve, function_name(solve)), None
                           if transpose_solve is None else flat_solver(transpose_solve, function_name(transpose_solve)),
                           symmetric)
    count = len(right.leaves)
    solution = right.rebuild(outputs[:count])
    return (solution, tree.unflatten(aux[0], outputs[count:])) if has_aux else solution


def _solution_leaves(what: str, result: Any, name: str, like: FlatTree, has_aux: bool, aux: list[TreeDef]) -> list[Any]:
    """Return the leaves of a solver's result: those of the solution, then those of the auxiliary output."""
    if not has_aux:
        return _same(what, result, name, like)
    if not isinstance(result, tuple) or len(result) != 2:
        raise TreeError(at_user_line(
            f"{what}: {name} must return a pair (x, aux) where has_aux=True, got {type(result).__name__}"))
    solution, extra = result
    leaves, structure = tree.flatten(extra)
    aux.append(structure)
    return [*_same(what, solution, name, like), *leaves]


def _same(what: str, result: Any, name: str, like: FlatTree) -> list[Any]:
    """Return the leaves of `result`, which must have the structure of another container."""
    leaves, structure = tree.flatten(result)
    if structure != like.structure:
        raise TreeError(at_user_line(
            f"{what}: {name} returns {structure}, where {like.structure} is needed; they differ first at "
            f"{first_difference(like.structure, structure, 'output')}"))
    for leaf, aval, path in zip(leaves, like.avals, leaf_paths(structure, "output"), strict=True):
        found = aval_of(leaf)
        if (found.shape, found.dtype) != (aval.shape, aval.dtype):
            raise ShapeError(at_user_line(f"{what}: {name} returns {found} at {path}, where {aval.strong()} is needed"))
    return leaves


def _operand(what: str, x: Any, like: FlatTree) -> list[Any]:
    """Return the leaves that a solver gives its linear function, Python's numbers in the dtypes that it takes."""
    leaves, structure = tree.flatten(x)
    if structure != like.structure:
        raise TreeError(at_user_line(
            f"{what}: a solver calls its linear function with {structure}, where {like.structure} is needed"))
    operands = []
    for leaf, aval, path in zip(leaves, like.avals, leaf_paths(structure, "x"), strict=True):
        given = aval_of(leaf)
        fits = given.dtype == aval.dtype or (given.weak and (
            dtypes.is_complex(aval.dtype) or not dtypes.is_complex(given.dtype)))
        if given.shape != aval.shape or not fits:
            raise ShapeError(at_user_line(
                f"{what}: a solver calls its linear function with {given.strong()} at {path}, where {aval.strong()} is "
                "needed"))
        operands.append(convert(leaf, aval.dtype) if given.weak else leaf)
    return operands


def custom_root(f: Callable[[Any], Any], initial_guess: Any, solve: Callable[..., Any],
                tangent_solve: Callable[..., Any], has_aux: bool = False) -> Any:
    """Return `x = solve(f, initial_guess)` with the derivatives of a root of `f`, by the implicit function theorem.

    `f` takes and returns containers like `initial_guess`, and closes over the parameters of the root. `tangent_solve(g,
    y)` solves `g(x) = y` for a linear function `g`, for the derivatives and their transposes. With `has_aux`, `solve`
    returns a pair, whose second part has no derivative. Derivatives of every order work.

    Raises `TreeError` or `ShapeError` if a function returns another structure or other types than the guess has.

    >>> import fxgrad
    >>> def cube_root(a):
    ...     def newton(f, x):
    ...         for _ in range(30):
    ...             x = x - f(x) / (3 * x * x)
    ...         return x
    ...     return custom_root(lambda x: x ** 3 - a, a, newton, lambda g, y: y / g(1.0))
    >>> round(float(cube_root(8.0)), 4), round(float(fxgrad.grad(cube_root)(8.0)), 4)
    (2.0, 0.0833)
    """
    for function, name in ((f, "f"), (solve, "solve"), (tangent_solve, "tangent_solve")):
        check_function("custom_root", function, name)
    guess = flatten_checked("custom_root", initial_guess, "initial_guess")
    aux: list[TreeDef] = []
    solver = trace_body("custom_root", solve, lambda *x: _solution_leaves(
        "custom_root", solve(f, guess.rebuild(x)), function_name(solve), guess, has_aux, aux), guess.avals, guess.names)
    residual = trace_body("custom_root", f, lambda *x: _same(
        "custom_root", f(guess.rebuild(x)), function_name(f), guess), guess.avals, guess.names, [guess.structure])

    count = len(guess.leaves)
    function, own = residual.program, len(residual.captured)
    at = [*function.in_avals[:own], *(aval.strong() for aval in guess.avals)]

    def tangent_solver(matrix: Derived) -> TracedCall:
        def apply(*tracers: Any) -> Any:
            here, right = tracers[:len(at)], tracers[len(at):]
            result = tangent_solve(lambda x: guess.rebuild(matrix([*here, *_operand("custom_root", x, guess)])),
                                   guess.rebuild(right))
            return _same("custom_root", result, function_name(tangent_solve), guess)
        return trace_body("custom_root", tangent_solve, apply, [*at, *at[own:]], guess.names)

    parts = [solver, residual, *map(tangent_solver, root_derivatives(function, own))]
    outputs = bind(root_p, *(value for part in parts for value in part.captured), *guess.leaves,
                   programs=tuple(part.program for part in parts),
                   counts=tuple(len(part.captured) for part in parts))
    solution = guess.rebuild(outputs[:count])
    return (solution, tree.unflatten(aux[0], outputs[count:])) if has_aux else solution
