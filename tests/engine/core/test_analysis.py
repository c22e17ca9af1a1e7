"""`Analysis`: answers with and without an entry, states and places, and that nothing else keys facts by name."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import fxgrad
from fxgrad.engine.analyses.key_reuse import key_rules
from fxgrad.engine.core.analysis import Analysis, Collection, Place, all_analyses
from fxgrad.engine.rooms import registry
from fxgrad.text.notations import defaults
from tests.support.primitive_names import questions

PACKAGE = Path(fxgrad.__file__).parent
SIN, COS = registry["sin"], registry["cos"]


def test_an_entry_is_what_was_entered() -> None:
    parity: Analysis[str] = Analysis("parity", "Odd or even.", missing="conservative", default="none")
    parity.enter("odd", SIN)
    assert (parity.of(SIN), parity.of(COS)) == ("odd", "none")
    assert parity.entered() == {SIN: "odd"}
    with pytest.raises(ValueError, match=re.escape("the analysis parity has an entry for sin already")):
        parity.enter("even", SIN)
    assert repr(parity) == "Analysis('parity', missing='conservative', 1 entries)"


def test_a_function_is_entered_by_decoration() -> None:
    bound: Analysis[object] = Analysis("bound", "The largest value.", missing="conservative", default=None)

    @bound.register(SIN, COS)
    def of_unit_circle() -> float:
        return 1.0

    assert bound.of(SIN) is bound.of(COS) is of_unit_circle


def test_a_missing_entry_is_derived() -> None:
    length = Analysis("length", "Letters.", missing="derive", derive=lambda primitive: len(primitive.name))
    length.enter(0, SIN)
    assert (length.of(SIN), length.of(registry["add"])) == (0, 3)


def test_a_missing_entry_is_a_mistake() -> None:
    strict: Analysis[int] = Analysis("strict", "Something.", missing="raise")
    with pytest.raises(TypeError, match=re.escape(
            "nothing is known of the primitive sin for the analysis strict, which needs an entry for each. Enter one "
            "beside the record: strict.enter(fact, sin_p)")):
        strict.of(SIN)


def test_what_is_needed_of_an_analysis() -> None:
    for missing, default, derive in (("raise", 0, None), ("derive", 0, len), ("conservative", 0, len)):
        with pytest.raises(TypeError, match="default= is needed with 'conservative' alone"):
            Analysis("wrong", "Something.", missing=missing, default=default, derive=derive)  # type: ignore[arg-type]
    for missing in ("derive", "conservative"):
        with pytest.raises(TypeError, match="default= is needed with 'conservative' alone"):
            Analysis("wrong", "Something.", missing=missing)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the analysis wrong needs a description: one sentence"):
        Analysis("wrong", "", missing="raise")


def test_the_states_of_facts() -> None:
    absence = fxgrad.extend.TODO("nobody wrote it")
    derived: Analysis[object] = Analysis("derived", "Something.", missing="derive", derive=lambda primitive: (
        absence if primitive is COS else primitive.name))
    default: Analysis[object] = Analysis("default", "Something.", missing="conservative", default=absence)
    strict: Analysis[object] = Analysis("strict", "Something.", missing="raise")
    for table in derived, default, strict:
        table.enter(None, SIN)
        assert table.known(SIN)[:2] == ("entered", None)
    assert derived.known(registry["add"])[:2] == ("derived", "add")
    assert derived.known(COS)[:2] == default.known(COS)[:2] == ("refused", absence)
    assert strict.known(COS)[:2] == ("missing", None)
    default.enter(1, COS)
    assert default.known(COS)[:2] == ("entered", 1)


def _line() -> int:
    return sys._getframe(1).f_lineno


def test_the_places_of_facts() -> None:
    """An entry has the place of the call of the user's, or of the module of the library in which it stands."""
    table: Analysis[int] = Analysis("placed", "Something.", missing="conservative", default=0)
    made = _line() - 1
    table.enter(1, SIN)
    entered = _line() - 1
    assert table.known(SIN).place == Place(__file__, entered)
    assert table.known(COS).place == table.place == Place(__file__, made)
    place = key_rules.known(registry["random_fold_in"]).place
    line = Path(place.file).read_text(encoding="utf-8").splitlines()[place.line - 1]
    assert (Path(place.file).name, line) == ("key_reuse.py", "@key_rules.register(keys_room.random_fold_in_p)")
    place = defaults.known(registry["argmax"]).place  # entered by a function of its module
    line = Path(place.file).read_text(encoding="utf-8").splitlines()[place.line - 1]
    assert line == "register_defaults([primitives.argmax, primitives.argmin], index_dtype=dtypes.int64)"


def test_a_collection_keeps_the_order() -> None:
    zeros: Collection[float] = Collection("zeros", "Where the result is 0.")
    zeros.add(0.0, SIN, COS)
    zeros.add(3.0, SIN)
    assert (zeros.of(SIN), zeros.of(COS), zeros.of(registry["exp"])) == ((0.0, 3.0), (0.0,), ())
    assert zeros.known(SIN).state == "entered"


def test_descriptions_are_sentences() -> None:
    for analysis in all_analyses():
        assert re.fullmatch(r"[^a-z].*\.", analysis.description), analysis
        assert "\n" not in analysis.description


def test_every_analysis_answers_for_every_primitive() -> None:
    own = {analysis.name: analysis for analysis in all_analyses()}
    assert {"rewrites", "snippets", "acts", "kept always", "batches", "key rules", "alike"} <= own.keys()
    for analysis in own.values():
        for primitive in registry.values():
            analysis.of(primitive)


def test_facts_of_the_records() -> None:
    assert {name for name, primitive in registry.items() if primitive.commutative} == {
        "add", "mul", "strong_mul", "eq", "ne", "eq_to", "and", "or", "xor"}
    assert {name for name, primitive in registry.items() if primitive.exactly_rounded} == {
        "add", "sub", "mul", "div", "strong_mul", "strong_div"}


READ_FROM_TEXT = {
    "engine/core/primitive.py:registry[name]": "a pickled primitive is found by its name",
    "engine/core/primitive.py:primitive.name in registry": "no two primitives have one name",
    "engine/higher_order/sweep.py:registry[name]": "loops are transposed to sweeps, and sweeps are made of loops",
    "interop/importing.py:primitive.name in rules": "jax's primitives are known by their names",
    "interop/importing.py:rules.get(equation.primitive.name)": "jax's primitives are known by their names",
    "extend/registry.py:registry[name]": "records by name, for who writes code",
    "shipping/onnx/rules.py:primitives[name]": "rules are entered once, by names in a table; one that is none raises",
    "text/parameters.py:primitives[name]": "orders are entered once, by names that stand in a table",
    "text/literals.py:primitives[made_of.operation]": "numbers in files have the name of what computed them",
    "tools/editing/editor.py:operation in (equation.primitive, equation.primitive.name, operation_name(equation))":
        "the user chooses operations by name",
    "text/names.py:equation.primitive.name == assigned.operation": "what the user's own line calls the operation",
}


@pytest.mark.slow
def test_no_other_place_compares_a_primitive_with_a_name() -> None:
    """Names belong to text: what is read, what is printed, and jax's primitives, which are known by theirs."""
    found = {f"{path.relative_to(PACKAGE).as_posix()}:{each.partition(' ')[2]}"
             for path in PACKAGE.rglob("*.py") for each in questions(path)}
    assert found == set(READ_FROM_TEXT)


@pytest.mark.parametrize("code", [
    "def f(equation): return equation.primitive.name == 'sin'",
    "def f(equation, names): return 'sin' != equation.primitive.name",
    "def f(equation, names): return equation.primitive.name in names",
    "def f(equation, text): return text in (equation.primitive.name, 'sin')",
    "def f(equation):\n    name = equation.primitive.name\n    return name == 'sin'",
    "def f(equation):\n    name, params = equation.primitive.name, equation.params\n    return name in params",
    "def f(equation):\n    first = equation.primitive.name\n    name = first\n    return TABLE[name]",
    "def f(equation):\n    if (name := equation.primitive.name) == 'sin':\n        return name",
    "def f(equation):\n    kind = equation.primitive.name.rpartition('_')[2]\n    return kind == 'sum'",
    "def f(equation):\n    primitive = equation.primitive\n    return TABLE.get(primitive.name, ())",
    "def f(equation):\n    made = equation.primitive\n    return made.name in TABLE",
    "def f(first: Primitive | None): return first.name == 'sin'",
    "def f(equation): return equation.primitive.name.startswith('reduce_')",
    "def f(equation): return [place for place in range(3) if str(equation.primitive) == 'sin']",
    "def f(equation):\n    match equation.primitive.name:\n        case 'sin':\n            return 1",
    "def f(name): return registry[name]",
    "lambda: sin_p.name == 'sin'",
])
def test_the_search_for_names_sees_them(code: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(code)
    assert len(questions(file)) == 1


@pytest.mark.parametrize("code", [
    "def f(equation): return equation.primitive is sin_p and equation.name == 'sin'",
    "def f(equation): return f'{equation.primitive.name} of {equation.inputs}'",
    "def f(equation):\n    name = equation.params['name']\n    return name == 'sin'",
    "TABLE.enter(1, registry['sin'])",
])
def test_the_search_for_names_passes_others_over(code: str, tmp_path: Path) -> None:
    file = tmp_path / "right.py"
    file.write_text(code)
    assert not questions(file)
