"""Faults of the package, generated from its source: where each is, what it changes, and which are planted."""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from planted.kinds import KINDS

WINGS = ("engine", "tools", "training", "shipping")
"""Folders of the package whose folders are rooms."""


@dataclass(frozen=True)
class Fault:
    """One change of one file; `start` and `end` count bytes, `number` equal changes of a function."""

    file: str
    function: str
    kind: str
    line: int
    start: int
    end: int
    before: str
    after: str
    number: int = 0

    @property
    def name(self) -> str:
        """What the fault is called: the same while its function says the same, wherever that stands in the file."""
        words = "|".join((self.file, self.function, self.kind, self.before, self.after, str(self.number)))
        return hashlib.sha256(words.encode()).hexdigest()[:10]

    @property
    def room(self) -> str:
        """The folder of the package that the file is in; of a wing, the folder in it."""
        folders = Path(self.file).parts[:-1]
        return "/".join(folders[:3 if folders[1:2] and folders[1] in WINGS else 2])

    def applied(self, source: bytes) -> bytes:
        """The source with the fault in it."""
        return source[:self.start] + self.after.encode() + source[self.end:]

    def diff(self, source: bytes) -> str:
        """The lines that change."""
        before, after = source.decode().splitlines(), self.applied(source).decode().splitlines()
        return "\n".join(line for line in difflib.unified_diff(before, after, n=0, lineterm="")
                         if not line.startswith(("---", "+++", "@@")))


SKIPPED_FUNCTIONS = ("cost", "__repr__", "__str__")
"""Functions that are left alone: costs are estimates, which the laws hold to being whole numbers and no more."""


def faults_of(file: str, source: bytes) -> list[Fault]:
    """Every fault that fits into the file, in the order of the source."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.AST) -> tuple[int, int]:
        return (starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
                starts[node.end_lineno - 1] + node.end_col_offset)  # type: ignore[attr-defined]

    def text(node: ast.AST) -> str:
        start, end = span(node)
        return source[start:end].decode()

    tree = ast.parse(source)
    found: dict[tuple[int, int, str], Fault] = {}
    numbers: Counter[str] = Counter()
    for function, node in _nodes(tree, ""):
        for kind, changes in KINDS.items():
            for changed, after in changes(node, text):
                start, end = span(changed)
                fault = Fault(file, function, kind, changed.lineno,  # type: ignore[attr-defined]
                              start, end, text(changed), after)
                if (start, end, after) in found or after == fault.before:
                    continue
                numbers[fault.name] += 1
                found[start, end, after] = Fault(**{**vars(fault), "number": numbers[fault.name] - 1})
    return sorted(found.values(), key=lambda fault: (fault.start, fault.end, fault.after))


def is_fault(fault: Fault, source: bytes) -> bool:
    """Whether the changed source parses, and says something else than the source."""
    try:
        return ast.dump(ast.parse(fault.applied(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _nodes(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Statements and expressions that compute something, with the function that each is in."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "format_spec", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(
                    child, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
                continue
            if isinstance(child, ast.keyword) and child.arg in ("cost", "flops"):
                continue
            inside = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if child.name.strip("_").startswith(SKIPPED_FUNCTIONS) or child.name.endswith("_cost"):
                    continue
                inside = f"{function}.{child.name}".lstrip(".")
            if not isinstance(child, ast.expr_context | ast.operator | ast.cmpop | ast.unaryop | ast.boolop):
                yield inside or "the module", child
            yield from _nodes(child, inside)


def all_faults(root: Path, rooms: Mapping[str, int]) -> dict[str, list[Fault]]:
    """Every fault of the rooms, by room."""
    found: dict[str, list[Fault]] = {room: [] for room in rooms}
    for room in rooms:
        for path in sorted((root / room).rglob("*.py")):
            file = path.relative_to(root).as_posix()
            found[room] += faults_of(file, path.read_bytes())
    return found


def chosen(root: Path, faults: Mapping[str, list[Fault]], rooms: Mapping[str, int], seed: int) -> list[Fault]:
    """So many faults of each room as `rooms` says: the kinds in turns, and files that have few so far.

    Which ones is decided by the seed and by what each fault is called, so that it stays the same where the source does.
    """
    result = []
    for room, count in rooms.items():
        by_kind = {kind: sorted((fault for fault in faults[room] if fault.kind == kind),
                                key=lambda fault: hashlib.sha256(f"{seed}{fault.name}".encode()).digest())
                   for kind in KINDS}
        files: Counter[str] = Counter()
        taken: list[Fault] = []
        lines: set[tuple[str, int]] = set()  # one fault for each line is enough
        while len(taken) < count and any(by_kind.values()):
            for waiting in by_kind.values():
                waiting[:] = [fault for fault in waiting if (fault.file, fault.line) not in lines]
                if waiting and len(taken) < count:
                    fault = min(waiting, key=lambda fault: files[fault.file])
                    lines.add((fault.file, fault.line))
                    if is_fault(fault, (root / fault.file).read_bytes()):
                        files[fault.file] += 1
                        taken.append(fault)
        result += taken
    return result
