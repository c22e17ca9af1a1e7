"""F-strings for the other texts that `print` gets: `str(x)`, `"{}".format(x)`, `"%s" % x` and sums of texts."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Sequence

from fxgrad.engine.control_flow.nodes import constant, placed


def joined_text(node: ast.expr) -> ast.JoinedStr | None:
    """Return the f-string for a text, which may be one; None if it is none of these."""
    if isinstance(node, ast.JoinedStr):
        return node
    if isinstance(node, ast.BinOp):
        form = _text_of(node.left)
        if form is not None and isinstance(node.op, ast.Mod):
            return _of_percent(form, node.right.elts if isinstance(node.right, ast.Tuple) else [node.right], node)
        return _of_sum(node) if isinstance(node.op, ast.Add) else None
    if not isinstance(node, ast.Call) or any(isinstance(each, ast.Starred) for each in node.args) or node.keywords:
        return None
    if isinstance(node.func, ast.Name) and node.func.id in _CONVERSIONS and len(node.args) == 1:
        return placed(ast.JoinedStr([_field(node.args[0], "", _CONVERSIONS[node.func.id])]), node)
    form = _text_of(node.func.value) if isinstance(node.func, ast.Attribute) and node.func.attr == "format" else None
    return None if form is None else _of_format(form, node.args, node)


_CONVERSIONS = {"str": "s", "repr": "r"}


def _text_of(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _of_sum(node: ast.BinOp) -> ast.JoinedStr | None:
    parts: list[ast.expr] = []
    for each in (node.left, node.right):
        joined = None if _text_of(each) is not None else joined_text(each)
        if joined is None and _text_of(each) is None:
            return None
        parts += [each] if joined is None else joined.values
    return placed(ast.JoinedStr(parts), node)


def _of_format(form: str, args: Sequence[ast.expr], at: ast.expr) -> ast.JoinedStr | None:
    """Return the f-string for `"{}".format(x)`, if its fields are arguments by position, each at most once."""
    parts: list[ast.expr] = []
    places: list[int] = []
    try:
        fields = [*string.Formatter().parse(form)]
    except ValueError:
        return None
    for before, name, spec, conversion in fields:
        parts.append(constant(before, at))
        if name is None:
            continue
        if not (name == "" or name.isdigit()) or "{" in (spec or ""):
            return None
        places.append(int(name) if name else len(places))
        if places[-1] >= len(args):
            return None
        parts.append(_field(args[places[-1]], spec or "", conversion or ""))
    return placed(ast.JoinedStr(parts), at) if sorted(places) == [*range(len(args))] else None


def _of_percent(form: str, args: Sequence[ast.expr], at: ast.expr) -> ast.JoinedStr | None:
    """Return the f-string for `"%s %.2f" % (x, y)`, if each of its fields is one that a format has.

    A value of "%d" becomes an integer first, which an f-string does not do: its conversion is `i`.
    """
    parts: list[ast.expr] = []
    rest = [*args]
    before = 0
    for found in _FIELD.finditer(form):
        parts.append(constant(form[before:found.start()], at))
        before = found.end()
        flags, size, kind = found.groups()
        if kind == "%":
            parts.append(constant("%", at))
            continue
        is_text, is_whole = kind in "sr", kind in "diu"
        if not rest or "#" in flags or kind not in "diufFeEgGsr" or (is_whole and "." in size):
            return None
        align = "<" if "-" in flags else ">" if is_text and size else "0" if "0" in flags else ""
        sign = "" if is_text else "+" if "+" in flags else " " if " " in flags else ""
        aligned = f"{sign}{align}" if align == "0" else f"{align}{sign}"
        spec = f"{aligned}{size}" + ("" if is_text else "d" if is_whole else kind)
        parts.append(_field(rest.pop(0), spec, kind if is_text else "i" if is_whole else ""))
    parts.append(constant(form[before:], at))
    return None if rest or "%" in form[before:] else placed(ast.JoinedStr(parts), at)


_FIELD = re.compile(r"%([-+ 0#]*)(\d*(?:\.\d+)?)(.)", re.DOTALL)


def _field(value: ast.expr, spec: str, conversion: str) -> ast.FormattedValue:
    form = placed(ast.JoinedStr([constant(spec, value)]), value) if spec else None
    return placed(ast.FormattedValue(value, ord(conversion) if conversion else -1, form), value)
