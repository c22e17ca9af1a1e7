"""Cards: the rules and the facts of one primitive with their states and places, and that no table is missing."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

import fxgrad
from fxgrad.engine.core.analysis import Analysis, Place, all_analyses
from fxgrad.engine.core.primitive import RULES, MissingRule
from fxgrad.engine.rooms import registry
from fxgrad.shipping.onnx.rules import onnx_rules
from fxgrad.tools.cards import ENTERING, MODULES, Row, card, load_tables, place_text

PACKAGE = Path(fxgrad.__file__).parent
LINEAR_P = fxgrad.Primitive(
    name="cards_linear", abstract=lambda x: [x], numpy=lambda x: [x], xla=lambda lax, x: [x],
    jvp=fxgrad.NO_TANGENT, transpose=fxgrad.extend.TODO("nobody wrote it"), batch=lambda size, values, axes: (values,
                                                                                                              axes),
    cost=lambda x: fxgrad.Cost(0, 0), collective=True)


def source_line(place: Place | None) -> str:
    assert place is not None
    return Path(place.file).read_text(encoding="utf-8").splitlines()[place.line - 1]


def test_the_card_of_an_operation() -> None:
    found = card(registry["strong_mul"])
    assert [row.what for row in found.rows] == [*RULES, "flags", "regions", *(table.name for table in all_analyses())]
    assert found["abstract"][1:3] == ("derived", "by elementwise")
    assert found["xla"].value == "by elementwise"
    assert "def abstract(" in source_line(found["abstract"].place)
    assert found["flags"][1:3] == ("entered", "commutative, exactly_rounded")
    assert found["regions"][1:3] == ("default", "holds no programs")
    assert found["ordinary form"][1:3] == ("entered", "mul")
    assert found["strong form"][1:3] == ("default", "none")
    assert found["kept always"][1:3] == ("derived", "False")
    assert found["JavaScript"][1:3] == ("refused", "NOT_IN_JAVASCRIPT: has no form in JavaScript")
    with pytest.raises(KeyError):
        found["nothing"]


def test_rules_have_their_places() -> None:
    found = card(registry["eigh"])
    assert found["jvp"][:3] == ("jvp", "entered", "_eigh_jvp")
    assert source_line(found["jvp"].place).startswith("def _eigh_jvp(")
    assert found["transpose"][1:3] == ("refused", "NOT_LINEAR: the output is linear in no input")
    assert source_line(found["transpose"].place).startswith("eigh_p = register(Primitive(")
    assert card(registry["exp"])["numpy"][1:3] == ("entered", "np.exp")
    assert card(registry["scan"])["roles"].value == "body"


@pytest.mark.slow
def test_refusals_are_whole_and_facts_are_short() -> None:
    found = card(registry["eigh"])["onnx rules"]
    absence = onnx_rules.of(registry["eigh"])
    assert isinstance(absence, MissingRule)
    assert (found.state, found.value) == ("refused", str(absence))
    assert all(len(row.value) <= 100 for primitive in registry.values() for row in card(primitive).rows
               if row.state != "refused")


def test_the_card_of_a_users_primitive() -> None:
    found = card(LINEAR_P)
    assert found["batch"].state == "entered"
    assert (found["transpose"].state, found["transpose"].value) == ("refused", "TODO: nobody wrote it")
    assert place_text(found["transpose"].place) == f"test_cards.py:{found['flags'].place.line}"
    assert source_line(found["flags"].place).startswith("LINEAR_P =")
    assert found["flags"].value == "collective"
    assert found["speaks"][1:3] == ("derived", "all-gather")
    table: Analysis[int] = Analysis("a table of the user's", "Something.", missing="raise")
    assert card(LINEAR_P)["a table of the user's"] == Row("a table of the user's", "missing", "none", table.place)


def test_a_card_prints_as_a_table() -> None:
    text = str(card(registry["sin"]))
    rows = [re.split(r"\s*[│┃]\s*", line.strip("│┃ "), maxsplit=3) for line in text.splitlines() if "│" in line]
    written = next(row for row in rows if row[0] == "numpy")
    assert written[1:3] == ["entered", "np.sin"]
    assert re.fullmatch(r"fxgrad/engine/ops/trigonometric\.py:\d+", written[3])
    assert {row[0] for row in rows} >= {*RULES, *(table.name for table in all_analyses())}
    assert repr(card(registry["sin"])) == text


def test_numbers_do_not_change_when_a_card_is_made() -> None:
    before = fxgrad.grad(fxgrad.numpy.sin)(1.0)
    card(registry["sin"])
    assert np.array_equal(before, fxgrad.grad(fxgrad.numpy.sin)(1.0))


# --- no table is missing ----------------------------------------------------------------------------------------------


@functools.cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _nodes(texts: Iterable[str], names: set[str]) -> Iterator[ast.AST]:
    """The nodes of those files that have one of the names: going through the trees of all takes seconds."""
    for text in texts:
        if any(name in text for name in names):
            yield from ast.walk(_tree(text))


def _kinds_of_tables(texts: Collection[str]) -> set[str]:
    """`Analysis` and the classes that derive from it."""
    kinds: set[str] = set()
    names = {"Analysis"}
    while names != kinds:
        kinds = {*names}
        names |= {node.name for node in _nodes(texts, kinds) if isinstance(node, ast.ClassDef)
                  and any(_name(base) in kinds for base in node.bases)}
    return kinds


def _name(node: ast.AST) -> str:
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@pytest.mark.slow
def test_every_module_that_makes_a_table_is_in_the_list() -> None:
    texts = {path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", "."): path.read_text(
        encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    kinds = _kinds_of_tables(texts.values())
    made = {module for module, text in texts.items() for node in _nodes([text], kinds)
            if isinstance(node, ast.Call) and _name(node.func) in kinds}
    _tree.cache_clear()
    assert kinds == {"Analysis", "Collection", "Rewrites"}
    assert made == set(MODULES), "MODULES of fxgrad/tools/cards.py lists every module that makes an Analysis"
    assert [*MODULES] == sorted(MODULES)


_COUNTS = """
import importlib, json, pkgutil, sys
import fxgrad
from fxgrad.engine.core.analysis import all_analyses
from fxgrad.tools.cards import load_tables

def counts():
    return {table.name: len(table.entered()) for table in all_analyses()}

load_tables()
loaded = counts()
for module in pkgutil.walk_packages(fxgrad.__path__, "fxgrad."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(json.dumps([loaded, counts()]))
"""


@pytest.mark.slow
def test_all_entries_are_loaded() -> None:
    """Importing every module of the package adds no table and no entry."""
    ran = subprocess.run([sys.executable, "-W", "error::ImportWarning", "-c", _COUNTS], capture_output=True, text=True,
                         check=True, cwd=PACKAGE.parent)
    loaded, everything = json.loads(ran.stdout)
    assert loaded == everything


def test_the_recipe_for_a_new_primitive_speaks_of_every_table() -> None:
    load_tables()
    page = (PACKAGE.parent / "docs" / "contributing.md").read_text(encoding="utf-8")
    recipe = page[page.index("### The tables"):page.index("### An example")]
    names = {table.name for table in all_analyses() if place_text(table.place).startswith("fxgrad/")}
    missing = sorted(name for name in names if f"`{name}`" not in recipe)
    assert not missing, f"write a row for each in docs/contributing.md, under 'The tables': {missing}"


def test_names_of_tables_are_one_each() -> None:
    load_tables()
    names = [table.name for table in all_analyses() if place_text(table.place).startswith("fxgrad/")]
    assert len(names) == len({*names})
    assert not {*names} & {*RULES, "flags", "regions"}
    assert not {*MODULES} & {*ENTERING}
