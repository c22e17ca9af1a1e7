"""`Analysis`: what it says of primitives with and without an entry, and that nothing else keys facts by name."""

from __future__ import annotations

import ast
import operator
import re
from pathlib import Path

import pytest

import fxgrad
from fxgrad.engine.core.analysis import Analysis, analyses
from fxgrad.engine.rooms import registry

PACKAGE = Path(fxgrad.__file__).parent
SIN, COS = registry["sin"], registry["cos"]


def test_an_entry_is_what_was_entered() -> None:
    parity: Analysis[str] = Analysis("parity", missing="conservative", default="none")
    parity.enter("odd", SIN)
    assert (parity.of(SIN), parity.of(COS)) == ("odd", "none")
    assert parity.entered() == {SIN: "odd"}
    with pytest.raises(ValueError, match=re.escape("the analysis parity has an entry for sin already")):
        parity.enter("even", SIN)
    assert repr(parity) == "Analysis('parity', missing='conservative', 1 entries)"


def test_a_function_is_entered_by_decoration() -> None:
    bound: Analysis[object] = Analysis("bound", missing="conservative", default=None)

    @bound.register(SIN, COS)
    def of_unit_circle() -> float:
        return 1.0

    assert bound.of(SIN) is bound.of(COS) is of_unit_circle


def test_a_missing_entry_is_derived() -> None:
    length = Analysis("length", missing="derive", derive=lambda primitive: len(primitive.name))
    length.enter(0, SIN)
    assert (length.of(SIN), length.of(registry["add"])) == (0, 3)


def test_a_missing_entry_is_a_mistake() -> None:
    strict: Analysis[int] = Analysis("strict", missing="raise")
    with pytest.raises(TypeError, match=re.escape(
            "nothing is known of the primitive sin for the analysis strict, which needs an entry for each. Enter one "
            "beside the record: strict.enter(fact, sin_p)")):
        strict.of(SIN)


def test_what_is_needed_of_an_analysis() -> None:
    for missing, default, derive in (("raise", 0, None), ("derive", 0, len), ("conservative", 0, len)):
        with pytest.raises(TypeError, match="default= is needed with 'conservative' alone"):
            Analysis("wrong", missing=missing, default=default, derive=derive)  # type: ignore[arg-type]
    for missing in ("derive", "conservative"):
        with pytest.raises(TypeError, match="default= is needed with 'conservative' alone"):
            Analysis("wrong", missing=missing)  # type: ignore[arg-type]


def test_every_analysis_answers_for_every_primitive() -> None:
    own = {analysis.name: analysis for analysis in analyses()}
    assert {"rewrites", "snippets", "acts", "kept_always", "batches", "key_rules", "alike"} <= own.keys()
    for analysis in own.values():
        for primitive in registry.values():
            analysis.of(primitive)


def test_facts_of_the_records() -> None:
    assert {name for name, primitive in registry.items() if primitive.commutative} == {
        "add", "mul", "strong_mul", "eq", "ne", "eq_to", "and", "or", "xor"}
    assert {name for name, primitive in registry.items() if primitive.exactly_rounded} == {
        "add", "sub", "mul", "div", "strong_mul", "strong_div"}


def _comparisons(path: Path) -> list[str]:
    """Where a file compares something with the name of a primitive, or looks a primitive up by its name."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            parts = [ast.unparse(part) for part in (node.left, *node.comparators)]
            if any(re.fullmatch(r"(.*\.)?\w*primitive\.name", part) for part in parts):
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)}")
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            found += [f"{path.relative_to(PACKAGE)}:{inner.lineno} {ast.unparse(inner)}" for inner in ast.walk(node)
                      if isinstance(inner, ast.Subscript) and ast.unparse(inner.value) == "registry"
                      and isinstance(inner.ctx, ast.Load)]
    return found


READ_FROM_TEXT = {
    "engine/core/primitive.py:registry[name]": "a pickled primitive is found by its name",
    "engine/core/primitive.py:primitive.name in registry": "no two primitives have one name",
    "engine/higher_order/sweep.py:registry[name]": "loops are transposed to sweeps, and sweeps are made of loops",
    "shipping/onnx/rules.py:registry[name]": "rules are entered once, by names in a table; one that is none raises",
    "text/parameters.py:registry[primitive]": "orders are entered once, by names that stand in a table",
    "text/names.py:equation.primitive.name == operation": "what the user's own line calls the operation",
}


@pytest.mark.slow
def test_no_other_place_compares_a_primitive_with_a_name() -> None:
    """Names belong to text: what is read, what is printed, and jax's primitives, which are known by theirs."""
    files = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "interop"]
    found = {re.sub(r":\d+ ", ":", each) for path in files for each in _comparisons(path)}
    assert found == set(READ_FROM_TEXT)


def test_the_search_for_names_sees_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    file = tmp_path / "wrong.py"
    file.write_text("def f(equation, names):\n"
                    "    if equation.primitive.name == 'sin' or equation.primitive.name in names:\n"
                    "        return registry['sin']\n")
    assert len(_comparisons(file)) == 3
    assert operator.contains(_comparisons(file), "wrong.py:3 registry['sin']")
