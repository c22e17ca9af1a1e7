"""`card`: all facts registered about one primitive, each with its place in the code."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from textwrap import shorten
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from fxgrad import errors
from fxgrad.extend import RULES, MissingRule, Place, Primitive, State, all_analyses, cached
from fxgrad.extend.kernels import ArrayKernel
from fxgrad.text.tables import Report, add_row, new_table

MODULES = (
    "fxgrad.engine.analyses.fusing",
    "fxgrad.engine.analyses.interval_rules",
    "fxgrad.engine.analyses.key_reuse",
    "fxgrad.engine.analyses.sparsity_moves",
    "fxgrad.engine.analyses.sparsity_zeros",
    "fxgrad.engine.analyses.traffic",
    "fxgrad.engine.analyses.variation",
    "fxgrad.engine.analyses.work_space",
    "fxgrad.engine.core.regions",
    "fxgrad.engine.derivation.rewrites",
    "fxgrad.engine.derivation.simplify",
    "fxgrad.engine.executors.speculative",
    "fxgrad.engine.higher_order.automatic_checks",
    "fxgrad.engine.higher_order.checks",
    "fxgrad.engine.higher_order.masking",
    "fxgrad.engine.higher_order.saving",
    "fxgrad.engine.ops.below_byte",
    "fxgrad.engine.ops.pointwise",
    "fxgrad.engine.ops.singular",
    "fxgrad.engine.ops.snippets",
    "fxgrad.engine.ops.strong",
    "fxgrad.engine.ops.strong_solves",
    "fxgrad.engine.transforms.batch",
    "fxgrad.engine.transforms.series",
    "fxgrad.interop.emission",
    "fxgrad.interop.importing",
    "fxgrad.lax.reductions",
    "fxgrad.lax.windows",
    "fxgrad.shipping.c.elements",
    "fxgrad.shipping.c.statements",
    "fxgrad.shipping.c.views",
    "fxgrad.shipping.onnx.rules",
    "fxgrad.text.blocks",
    "fxgrad.text.notations",
    "fxgrad.text.parameters",
    "fxgrad.tools.explorer.javascript",
    "fxgrad.tools.granularity.rules",
    "fxgrad.tools.inside.opening",
    "fxgrad.tools.numerics.rules",
    "fxgrad.tools.numerics.shadow",
    "fxgrad.tools.numerics.slopes",
    "fxgrad.tools.profiling.lowering",
    "fxgrad.training.autocast.classes",
    "fxgrad.training.curvature.rules",
)
"""Every module that makes an `Analysis`."""
ENTERING = (
    "fxgrad.engine.analyses.sparsity",
    "fxgrad.engine.higher_order.series",
    "fxgrad.shipping.onnx",
    "fxgrad.text",
    "fxgrad.tools.numerics.stabilizing",
)
"""Modules that load those which enter facts into the tables of others."""
LONGEST = 100
"""Most characters of a fact that a card prints."""
PACKAGE = Path(errors.__file__).parent


def load_tables() -> None:
    """Import every module that makes a table of primitives, and every one that enters facts."""
    for module in (*MODULES, *ENTERING):
        importlib.import_module(module)


class Row(NamedTuple):
    """One fact about a primitive: its name, its state, its text, and its place in the code.

    `state` is one of those of `Known` (fxgrad/engine/core/analysis.py). A rule is "derived" if a function made it, as
    those of families do, and "refused" if it is a named absence; then the text is the reason.
    """

    what: str
    state: State
    value: str
    place: Place | None


class Card(Report):
    """The facts about one primitive, as `rows`: the seven rules, flags and regions, then every table by name.

    It prints as a table.
    """

    def __init__(self, primitive: Primitive, rows: list[Row]) -> None:
        self.primitive, self.rows = primitive, rows

    def __getitem__(self, what: str) -> Row:
        """Return the row of this name; raise `KeyError` if there is none."""
        return {row.what: row for row in self.rows}[what]

    def table(self) -> Table:
        """Return the table for rich."""
        made = new_table(f"{self.primitive}", dict.fromkeys(("what", "state", "value or reason", "where"), "left"))
        for column in made.columns:
            column.no_wrap = column.header in ("what", "state", "where")
            column.overflow = "fold"
        for row in self.rows:
            add_row(made, [row.what, row.state, row.value, place_text(row.place)], end_section=row.what == "regions")
        return made

    __repr__ = Report.__str__


def card(primitive: Primitive) -> Card:
    """Return a card of `primitive`: its rules, flags and regions, and its entry in each table.

    Loads every module that has such a table. The place of a fact is that of its own entry, or else of its table; the
    place of a rule is that of its function.

    >>> from fxgrad.extend import primitives
    >>> found = card(primitives.floor)
    >>> found["jvp"].state, found["jvp"].value.partition(":")[0]
    ('refused', 'NO_TANGENT')
    >>> found["batch"].state, found["onnx rules"].state, found["work space"].state
    ('derived', 'entered', 'default')
    """
    load_tables()
    record = _place_of_record(primitive)
    rows = [_rule(name, getattr(primitive, name), record) for name in RULES]
    flags = [field.name for field in fields(primitive) if field.default is False and getattr(primitive, field.name)]
    rows.append(Row("flags", "entered" if flags else "default", ", ".join(flags) or "none", record))
    rows.append(_rule("regions", primitive.regions, record) if primitive.regions is not None else
                Row("regions", "default", "holds no programs", record))
    for table in all_analyses():
        state, fact, place = table.known(primitive)
        rows.append(Row(table.name, state, _text(fact) if state == "refused" else shorten(_text(fact), LONGEST), place))
    return Card(primitive, rows)


def place_text(place: Place | None) -> str:
    """Return a place as `fxgrad/engine/ops/structural.py:12`, of files of users without their folders; "" for None."""
    if place is None:
        return ""
    path = Path(place.file)
    is_own = path.is_relative_to(PACKAGE)
    return f"{path.relative_to(PACKAGE.parent).as_posix() if is_own else path.name}:{place.line}"


# --- rules --------------------------------------------------------------------------------------------------------


def _rule(name: str, rule: Any, record: Place | None) -> Row:
    if isinstance(rule, MissingRule):
        return Row(name, "refused", str(rule), record)
    function = rule.function if isinstance(rule, ArrayKernel) else rule
    maker = _maker(function)
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = record if code is None else Place(code.co_filename, code.co_firstlineno)
    return Row(name, "derived" if maker else "entered", f"by {maker}" if maker else _text(function), place)


def _maker(function: Callable[..., Any]) -> str:
    """Return the name of the function that defined `function` locally, "" if a module defines it."""
    name = getattr(function, "__qualname__", "")
    return name.partition(".<locals>")[0] if "<locals>" in name else ""


def _name(function: Callable[..., Any]) -> str:
    if isinstance(function, np.ufunc):
        return f"np.{function.__name__}"
    if isinstance(function, functools.partial):
        return _name(function.func)
    return getattr(function, "__qualname__", type(function).__name__)


def _place_of_record(primitive: Primitive) -> Place | None:
    """Return the place where a module assigns the primitive to a name; None if no module does."""
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
        names = {name for name, value in vars(module).items() if value is primitive} if file else set()
        if names:
            for name, line in _assignments(module.__file__ or ""):
                if name in names:
                    return Place(module.__file__ or "", line)
    return None


@cached("assignments in modules", 1024)
def _assignments(file: str) -> tuple[tuple[str, int], ...]:
    """Return the names that a file assigns at its top level, with the lines."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):  # a module without a source
        return ()
    return tuple(_assigned(tree))


def _assigned(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(each, ast.Name):
                        yield each.id, node.lineno


# --- facts --------------------------------------------------------------------------------------------------------


def _text(fact: Any) -> str:
    """Return a fact as text, with functions by their names."""
    if fact is None:
        return "none"
    if isinstance(fact, str | MissingRule | Primitive):
        return str(fact) or "none"
    if isinstance(fact, Mapping):
        return ", ".join(f"{_text(key)}: {_text(value)}" for key, value in fact.items()) or "none"
    if isinstance(fact, tuple) and isinstance(getattr(fact, "name", None), str):
        return str(fact.name)  # type: ignore[attr-defined]
    if isinstance(fact, tuple) and hasattr(fact, "_fields"):
        shown = [_text(value) for value in fact if not callable(value) and value not in ("", None)]
        return f"{type(fact).__name__}({', '.join(shown)})"
    if isinstance(fact, tuple | list):
        return ", ".join(map(_text, fact)) or "none"
    if callable(fact) and not isinstance(fact, type):
        return _maker(fact) or _name(fact).strip("<>")
    return str(fact)
