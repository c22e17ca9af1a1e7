"""The docstring of the function that a program was traced from, read from the user's file."""

from __future__ import annotations

import ast
import re

from fxgrad.extend import Program, parse_source
from fxgrad.text.sources import file_text


def docstring_of(program: Program) -> str:
    """Return the docstring of a function that recorded an equation and has the program's name; "" if there is none."""
    if program.signature is None:
        return ""
    words = {*re.findall(r"\w+", program.signature.name)}
    seen = set()
    for equation in program.equations:
        source = equation.source
        if source is None or source.code.co_name not in words or id(source.code) in seen:
            continue
        seen.add(id(source.code))
        module = parse_source(file_text(source.filename))
        for node in ast.walk(module) if module is not None else ():
            if isinstance(node, ast.FunctionDef) and node.name == source.code.co_name and (
                    source.code.co_firstlineno in (node.lineno, *(each.lineno for each in node.decorator_list))):
                return ast.get_docstring(node) or ""
    return ""
