"""The kinds of faults: for a node of the source, the texts that could wrongly stand in its place."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

Text = Callable[[ast.AST], str]
"""The source of a node."""
Change = tuple[ast.AST, str]
"""A node, and what stands in its place."""


def _called(node: ast.AST) -> str:
    """The last name of the function that `node` calls, "" if it calls none."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", None) or getattr(node.func, "id", "")


def _grouped(node: ast.AST, text: Text) -> str:
    """The source of an expression, in parentheses where the place of another one might need them."""
    simple = isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript | ast.Constant | ast.List | ast.Tuple)
    return text(node) if simple else f"({text(node)})"


def _plain(node: ast.AST, names: set[str], count: int) -> list[ast.expr]:
    """The arguments of a call of one of `names` with at least `count` of them, and no others."""
    if isinstance(node, ast.Call) and _called(node) in names and len(node.args) >= count and not node.keywords and (
            not any(isinstance(arg, ast.Starred) for arg in node.args)):
        return node.args
    return []


def _operator(node: ast.BinOp, text: Text, new: str) -> str:
    return f"{_grouped(node.left, text)} {new} {_grouped(node.right, text)}"


def _renamed(node: ast.Call, text: Text, name: str) -> str:
    before = text(node.func)
    return name + text(node)[len(before):]


def sign(node: ast.AST, text: Text) -> Iterator[Change]:
    """A minus for a plus, or none for one."""
    if _called(node) == "neg" and (args := _plain(node, {"neg"}, 1)):
        yield node, _grouped(args[0], text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("add", "sub"):
        yield node, _renamed(node, text, {"add": "sub", "sub": "add"}[node.func.id])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield node, _grouped(node.operand, text)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and not _is_text(node):
        yield node, _operator(node, text, "-" if isinstance(node.op, ast.Add) else "+")


def _is_text(node: ast.BinOp) -> bool:
    """Whether a sum is one of texts or of sequences, of which there is no difference."""
    return any(isinstance(part, ast.JoinedStr | ast.Tuple | ast.List | ast.ListComp) or (
        isinstance(part, ast.Constant) and isinstance(part.value, str)) for part in ast.walk(node))


def dropped_term(node: ast.AST, text: Text) -> Iterator[Change]:
    """One of two terms or factors."""
    for kept in (0, 1):
        args = _plain(node, {"add", "mul"}, 2)
        if len(args) == 2:
            yield node, _grouped(args[kept], text)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult) and not _is_text(node):
            yield node, _grouped((node.left, node.right)[kept], text)


def swapped_operands(node: ast.AST, text: Text) -> Iterator[Change]:
    """Operands of what is not commutative, in the other order."""
    args = _plain(node, {"sub", "div", "matmul", "rem", "atan2", "pow", "gt", "lt", "ge", "le", "divide",
                         "subtract"}, 2)
    if len(args) == 2:
        assert isinstance(node, ast.Call)
        yield node, f"{text(node.func)}({text(args[1])}, {text(args[0])})"
    swaps = ast.Sub | ast.Div | ast.FloorDiv | ast.Mod | ast.MatMult | ast.Pow
    if isinstance(node, ast.BinOp) and isinstance(node.op, swaps) and not _is_text(node):
        sign = {ast.Sub: "-", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.MatMult: "@", ast.Pow: "**"}
        yield node, f"{_grouped(node.right, text)} {sign[type(node.op)]} {_grouped(node.left, text)}"


AXES = {"axis", "axes", "dimension", "place", "at", "position"}


def wrong_axis(node: ast.AST, _: Text) -> Iterator[Change]:
    """An axis beside the right one."""
    operands: list[ast.expr] = []
    if isinstance(node, ast.Call) and _called(node) != "range":
        operands = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg in AXES)]
    elif isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Load):
        operands = node.elts
    for operand in operands:
        if isinstance(operand, ast.Name) and operand.id in ("axis", "dimension"):
            yield operand, f"({operand.id} - 1)"
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg in AXES and isinstance(keyword.value, ast.Constant) and type(keyword.value.value) is int:
                yield keyword.value, str(keyword.value.value + 1)


def missing_unbroadcast(node: ast.AST, text: Text) -> Iterator[Change]:
    """A cotangent that is not summed to the shape of its operand, an operand that is not broadcast."""
    args = _plain(node, {"unbroadcast", "broadcast_to", "instantiate", "reshape", "move_axis", "front"}, 1)
    if args and isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield node, _grouped(args[0], text)


def cache_key(node: ast.AST, text: Text) -> Iterator[Change]:
    """An element left out of a key."""
    keys: list[ast.AST] = []
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any("key" in text(target) or "settings" in text(target) for target in targets):
            keys.append(node.value)
    if isinstance(node, ast.FunctionDef) and re.search(r"key|signature", node.name):
        keys += [part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value is not None]
    if _called(node) in ("remembered", "derive", "root", "setdefault") and isinstance(node, ast.Call):
        keys += node.args
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and re.search(
            r"memo|known|cache", text(node.value)):
        keys.append(node.slice)
    for key in keys:
        if isinstance(key, ast.Tuple) and len(key.elts) > 1:
            for index in range(len(key.elts)):
                rest = [text(part) for place, part in enumerate(key.elts) if place != index]
                yield key, f"({', '.join(rest)},)"


def skipped_dtype(node: ast.AST, text: Text) -> Iterator[Change]:
    """A conversion that does not happen."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "astype":
        yield node, _grouped(node.func.value, text)
    args = _plain(node, {"convert_element_type", "convert", "scalar_like"}, 2)
    if args:
        yield node, _grouped(args[0], text)
    if _called(node) in ("asarray", "array") and isinstance(node, ast.Call) and len(node.args) == 2:
        yield node.args[1], "None"


def flipped_comparison(node: ast.AST, text: Text) -> Iterator[Change]:
    """A comparison that is true where it was false, or at its border."""
    other = {ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Is: "is not",
             ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield node, f"{_grouped(node.left, text)} {other[type(node.ops[0])]} {_grouped(node.comparators[0], text)}"


def dropped_not(node: ast.AST, text: Text) -> Iterator[Change]:
    """What is asked without its `not`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, _grouped(node.operand, text)


def off_by_one(node: ast.AST, _: Text) -> Iterator[Change]:
    """A whole number one too large."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield node, str(node.value + 1)


def dropped_argument(node: ast.AST, text: Text) -> Iterator[Change]:
    """A call without one of its keywords."""
    if not isinstance(node, ast.Call):
        return
    if re.fullmatch(r"(unary|binary|comparison|reduction|register|Primitive|elementwise|[A-Z]\w+)", _called(node)):
        return  # records without a rule do not import
    parts = [text(part) for part in node.args]
    for dropped in node.keywords:
        if dropped.arg is not None and dropped.arg not in ("strict", "stacklevel"):
            rest = [text(keyword) for keyword in node.keywords if keyword is not dropped]
            yield node, f"{text(node.func)}({', '.join([*parts, *rest])})"


def dropped_conj(node: ast.AST, text: Text) -> Iterator[Change]:
    """A complex number in the place of its conjugate."""
    args = _plain(node, {"conj", "conjugate"}, 1)
    if args:
        yield node, _grouped(args[0], text)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("conj",
                                                                                                    "conjugate"):
        yield node, _grouped(node.func.value, text)


def dropped_guard(node: ast.AST, _: Text) -> Iterator[Change]:
    """A special case that is not looked at: no early return, no refusal."""
    if isinstance(node, ast.If) and not node.orelse and isinstance(
            node.body[-1], ast.Return | ast.Raise | ast.Continue):
        yield node.test, "False"


def dropped_statement(node: ast.AST, _: Text) -> Iterator[Change]:
    """A call or an update that does not happen."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield node, "pass"
    if isinstance(node, ast.AugAssign):
        yield node, "pass"


def wrong_branch(node: ast.AST, text: Text) -> Iterator[Change]:
    """The one of two values that belongs to the other case."""
    if isinstance(node, ast.IfExp):
        yield node, f"{_grouped(node.orelse, text)} if {text(node.test)} else {_grouped(node.body, text)}"
    args = _plain(node, {"where", "select_n"}, 3)
    if len(args) == 3 and isinstance(node, ast.Call):
        yield node, f"{text(node.func)}({text(args[0])}, {text(args[2])}, {text(args[1])})"


def and_or(node: ast.AST, text: Text) -> Iterator[Change]:
    """A condition without one of its parts."""
    if isinstance(node, ast.BoolOp):
        word = " and " if isinstance(node.op, ast.And) else " or "
        for dropped in range(len(node.values)):
            rest = [_grouped(part, text) for place, part in enumerate(node.values) if place != dropped]
            yield node, f"({word.join(rest)})"


KINDS: dict[str, Callable[[ast.AST, Text], Iterator[Change]]] = {
    "wrong sign": sign, "dropped term": dropped_term, "swapped operands": swapped_operands, "wrong axis": wrong_axis,
    "missing broadcast": missing_unbroadcast, "short key": cache_key, "skipped dtype": skipped_dtype,
    "flipped comparison": flipped_comparison, "dropped not": dropped_not, "off by one": off_by_one,
    "dropped argument": dropped_argument, "dropped conj": dropped_conj, "dropped guard": dropped_guard,
    "dropped statement": dropped_statement, "wrong branch": wrong_branch, "dropped condition": and_or,
}
"""The faults by name, in the order in which they are drawn."""
