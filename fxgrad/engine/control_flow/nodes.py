"""Nodes of generated code, each at the place of the user's code that it stands for."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from fxgrad.engine.control_flow.names import OPERATORS
from fxgrad.engine.user_source import Node


def placed(node: Node, at: ast.AST) -> Node:
    """Return a node, with the place of another."""
    node.lineno, node.col_offset = at.lineno, at.col_offset  # type: ignore[attr-defined]
    node.end_lineno, node.end_col_offset = at.end_lineno, at.end_col_offset  # type: ignore[attr-defined]
    return node


def load(name: str, at: ast.AST) -> ast.Name:
    """Return the expression that reads a name."""
    return placed(ast.Name(name, ast.Load()), at)


def store(name: str, at: ast.AST) -> ast.Name:
    """Return the target that binds a name."""
    return placed(ast.Name(name, ast.Store()), at)


def constant(value: Any, at: ast.AST) -> ast.Constant:
    """Return a constant; the compiler takes tuples for them, too."""
    return placed(ast.Constant(value), at)


def assign(name: str, value: ast.expr, at: ast.AST) -> ast.Assign:
    """Return the statement `name = value`."""
    return placed(ast.Assign([store(name, at)], value), at)


def define_function(name: str, body: list[ast.stmt], parameters: Sequence[str], at: ast.AST) -> ast.FunctionDef:
    """Return the definition of a function."""
    return placed(ast.FunctionDef(name, _arguments(parameters, at), body, []), at)


def make_lambda(parameters: Sequence[str], body: ast.expr) -> ast.Lambda:
    """Return a lambda expression; a keyword `~` marks it as generated."""
    arguments = _arguments(parameters, body)
    arguments.kwonlyargs, arguments.kw_defaults = [placed(ast.arg("~"), body)], [constant(None, body)]
    return placed(ast.Lambda(arguments, body), body)


def thunk(body: ast.expr) -> ast.Lambda:
    """Return the function without arguments that computes an expression."""
    return make_lambda([], body)


def _arguments(names: Sequence[str], at: ast.AST) -> ast.arguments:
    """Return the parameters of a function, without defaults."""
    return ast.arguments([], [placed(ast.arg(name), at) for name in names], None, [], [], None, [])


def operator(name: str, at: ast.AST) -> ast.expr:
    """Return the expression for an operator (`operators.py`)."""
    return placed(ast.Attribute(load(OPERATORS, at), name, ast.Load()), at)


def call_operator(name: str, args: Sequence[ast.expr], at: ast.AST, **keywords: ast.expr) -> ast.Call:
    """Return the call of an operator."""
    given = [placed(ast.keyword(each, value), at) for each, value in keywords.items()]
    return placed(ast.Call(operator(name, at), [*args], given), at)


def run_operator(name: str, args: Sequence[ast.expr], at: ast.AST, **keywords: ast.expr) -> ast.Expr:
    """Return the statement that calls an operator."""
    return placed(ast.Expr(call_operator(name, args, at, **keywords)), at)
