"""Values of local names, found by running the user's own source, changed to report each assignment, with jax.

In `ratio = a / b` the value is passed to a probe, which reports it, and adds a zero in which jax differentiates: so the
cotangent of every local value is known, and its tangent, without any of fxgrad's transformations.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxgrad import tree

Values = dict[str, list[Any]]
"""What a name stood for, each time that it was assigned."""


class _Probes(ast.NodeTransformer):
    """Puts a probe behind every assignment, and at the beginning of functions for their arguments."""

    def _probes(self, names: Sequence[str]) -> list[ast.stmt]:
        return ast.parse("\n".join(f"{name} = __probe__('{name}', {name})" for name in names)).body

    def _targets(self, target: ast.expr) -> list[str]:
        return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        names = [argument.arg for argument in node.args.args]
        node.decorator_list = [each for each in node.decorator_list if "case" not in ast.unparse(each)]
        node.body = self._probes(names) + node.body
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        if isinstance(node.value, ast.ListComp):
            return node
        return [node, *self._probes([name for target in node.targets for name in self._targets(target)])]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        return [node, *self._probes(self._targets(node.target))]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        return [node, *self._probes(self._targets(node.target))]

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        self.generic_visit(node)
        names = [each.arg for each in node.args.args]
        probes = [ast.Call(ast.Name("__probe__", ast.Load()), [ast.Constant(name), ast.Name(name, ast.Load())], [])
                  for name in names]
        inner = ast.Lambda(node.args, node.body)
        node.body = ast.Call(inner, probes, [])  # type: ignore[arg-type]
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        self.generic_visit(node)
        probe = ast.Name("__probe__", ast.Load())
        node.value = ast.Call(probe, [ast.Constant(node.target.id), node.value], [])
        return node


class Recorder:
    """One run: it reports values under their names, and adds to each inexact one the zero of its number."""

    def __init__(self, zeros: Sequence[Any] = ()) -> None:
        self.values: Values = {}
        self.order: list[tuple[str, Any]] = []
        self._zeros = zeros

    def __call__(self, name: str, value: Any) -> Any:
        leaves, structure = tree.flatten(value)
        if not all(isinstance(leaf, int | float | np.ndarray | np.generic | jax.Array) for leaf in leaves):
            return value
        result = []
        for path, given in zip(tree.leaf_names(value, name), leaves, strict=True):
            leaf = given
            if jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.inexact):
                number = len(self.order)
                if number < len(self._zeros):
                    leaf = leaf + self._zeros[number]
                self.order.append((path, leaf))
            self.values.setdefault(path, []).append(leaf)
            result.append(leaf)
        return tree.unflatten(structure, result)


def _scan(step: Any, init: Any, xs: Any) -> Any:
    carry, ys = init, []
    for number in range(len(xs)):
        carry, y = step(carry, xs[number])
        ys.append(y)
    return carry, jnp.stack(ys)


def _while_loop(going: Any, step: Any, value: Any) -> Any:
    while going(value):
        value = step(value)
    return value


def _fori_loop(lower: int, upper: int, body: Any, value: Any) -> Any:
    for number in range(lower, upper):
        value = body(number, value)
    return value


LAX = SimpleNamespace(scan=_scan, while_loop=_while_loop, fori_loop=_fori_loop,
                      cond=lambda flag, yes, no, *operands: (yes if flag else no)(*operands),
                      switch=lambda index, branches, *operands: branches[index](*operands))


def probed(function: Callable[..., Any]) -> Callable[[Recorder], Callable[..., Any]]:
    """For a recorder, the function that reports to it; its NumPy is jax's, and its loops are Python's."""
    module = _Probes().visit(ast.parse(textwrap.dedent(inspect.getsource(function))))
    code = compile(ast.fix_missing_locations(module), "<probed>", "exec")

    def with_recorder(recorder: Recorder) -> Callable[..., Any]:
        names = {**function.__globals__, "np": jnp, "lax": LAX, "nn": jax.nn, "checkpoint": lambda f: f,
                 "__probe__": recorder}
        exec(code, names)
        found: Callable[..., Any] = names[function.__name__]
        return found

    return with_recorder
