#!/usr/bin/env python
"""Shows the lines and the longest function of each file of the package.

tools/size.py          a table
tools/size.py --json   the same as JSON, one object for each file
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Size:
    """The size of one file; `function` is the name of the longest function in it, "" if there is none."""

    file: str
    lines: int
    function: str
    function_lines: int


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[int, str]]:
    """Length and qualified name of each function under `node`; decorators count, and so do docstrings."""
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}."
            if not isinstance(child, ast.ClassDef):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                yield (child.end_lineno or first) - first + 1, name.rstrip(".")
        yield from functions(child, name)


def measure(path: Path) -> Size:
    """The size of the file at `path`."""
    text = path.read_text(encoding="utf-8")
    length, function = max(functions(ast.parse(text)), default=(0, ""))
    return Size(path.relative_to(ROOT).as_posix(), len(text.splitlines()), function, length)


def show(sizes: list[Size]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(show_footer=True)
    table.add_column("file", f"{len(sizes)} files")
    table.add_column("lines", str(sum(size.lines for size in sizes)), justify="right")
    table.add_column("longest function", overflow="fold")
    table.add_column("lines", justify="right")
    for size in sizes:
        table.add_row(size.file, str(size.lines), size.function, str(size.function_lines))
    Console().print(table)


def main() -> None:
    """Measures every file of the package."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    arguments = parser.parse_args()
    sizes = [measure(path) for path in sorted((ROOT / "fxgrad").rglob("*.py"))]
    if arguments.json:
        print(json.dumps([*map(asdict, sizes)], indent=2))
    else:
        show(sizes)


if __name__ == "__main__":
    main()
