"""tools/faults: each kind of fault applies and changes what the source says, and the page of the report adds up."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

generate, kinds, page, reached, rooms, run, explained = (
    importlib.import_module(f"planted.{name}")
    for name in ("generate", "kinds", "page", "reached", "rooms", "run", "explained"))

SOURCE = b'''"""A module."""
LIMIT: int = 400


def rule(x: int = 3, y: float = 0.0, axis: int = 1) -> list[int]:
    """A docstring with 1 number."""
    if x is None:
        return []
    if not x and y < 2:
        raise ValueError("at most 2", 1 + 1)
    key = (x, y)
    x += 1
    found = remembered(program, ("rule", axis), make)
    z = unbroadcast(sub(conj(x), div(x, y)), x.aval) + move_axis(y, 0, axis)
    return [neg(z).astype(x.dtype), sum(x, axis=axis) if y else -z]


def rule_cost(x):
    return x + 1
'''

EXPECTED = {
    "wrong sign": "neg(z) -> z", "dropped term": "unbroadcast", "swapped operands": "div(x, y) -> div(y, x)",
    "wrong axis": "axis -> (axis - 1)", "missing broadcast": "move_axis(y, 0, axis) -> y",
    "short key": "(x, y) -> (y,)", "skipped dtype": "neg(z).astype(x.dtype) -> neg(z)",
    "flipped comparison": "y < 2 -> y <= 2", "dropped not": "not x -> x", "off by one": "2 -> 3",
    "dropped argument": "sum(x, axis=axis) -> sum(x)", "dropped conj": "conj(x) -> x",
    "dropped guard": "x is None -> False", "dropped statement": "x += 1 -> pass",
    "wrong branch": "sum(x, axis=axis) if y else -z -> (-z) if y else sum(x, axis=axis)",
    "dropped condition": "not x and y < 2 -> ((y < 2))",
}


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_every_kind_applies(kind):
    made = [f"{fault.before} -> {fault.after}" for fault in generate.faults_of("f.py", SOURCE) if fault.kind == kind]
    assert any(EXPECTED[kind] in change for change in made), made


def test_faults_parse_and_say_something_else():
    found = generate.faults_of("f.py", SOURCE)
    assert all(generate.is_fault(fault, SOURCE) for fault in found)
    assert len({fault.name for fault in found}) == len(found)
    assert {fault.line for fault in found} == {2, 5, 7, 9, 11, 12, 13, 14, 15}  # no messages, types and costs


def test_faults_of_the_package_parse():
    file = ROOT / "fxgrad" / "engine" / "ops" / "pointwise.py"
    found = generate.faults_of("fxgrad/engine/ops/pointwise.py", file.read_bytes())
    assert len(found) > 50
    assert all(generate.is_fault(fault, file.read_bytes()) for fault in found[::7])


def test_a_name_outlives_changes_elsewhere_in_the_file():
    before = {fault.name for fault in generate.faults_of("f.py", SOURCE)}
    assert before == {fault.name for fault in generate.faults_of("f.py", b"\n\n" + SOURCE)}


@pytest.mark.slow
def test_each_room_gets_its_share():
    asked = {"fxgrad/engine/ops": 12, "fxgrad/engine/transforms": 9}
    faults = generate.all_faults(ROOT, {"fxgrad/engine/transforms": 1})
    file = "fxgrad/engine/ops/products.py"
    faults["fxgrad/engine/ops"] = generate.faults_of(file, (ROOT / file).read_bytes())
    chosen = generate.chosen(ROOT, faults, asked, 0)
    assert [sum(fault.room == room for fault in chosen) for room in asked] == [12, 9]
    assert chosen == generate.chosen(ROOT, faults, asked, 0) != generate.chosen(ROOT, faults, asked, 1)
    assert len({(fault.file, fault.line) for fault in chosen}) == 21
    assert sum(rooms.ROOMS.values()) >= 400
    wings = ("engine", "tools", "training", "shipping")
    packages = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "fxgrad").rglob("__init__.py")}
    packages.remove("fxgrad/extend")  # names of the engine, and no code
    in_wings = tuple(f"fxgrad/{wing}/" for wing in wings)
    assert {package for package in packages if package.removeprefix("fxgrad/") not in wings
            and package.count("/") == 1 + package.startswith(in_wings)} == {*rooms.ROOMS}


def test_the_looking_at_every_file_exist():
    files = [path.relative_to(ROOT).as_posix() for room in rooms.ROOMS for path in (ROOT / room).rglob("*.py")]
    assert [file for file in files if not rooms.looking_at(file)] == []
    named = {test for tests in rooms.TESTS.values() for test in tests.split()}
    assert [test for test in sorted(named) if not (ROOT / test).exists()] == []
    assert [pattern for pattern in rooms.TESTS if not any(fnmatch(file, pattern) for file in files)] == []


def test_notes_leave_the_source_as_it_is():
    """Each fault of the example has its note, and what is computed stays."""
    source = b"""def f(x, y):
    if x > 1 and y:
        x += 2
    z = (x +
         y * 2)
    return -z
"""
    faults = {(fault.line, fault.kind): fault for fault in generate.faults_of("f.py", source)}
    chosen = [faults[place] for place in ((2, "flipped comparison"), (3, "dropped statement"), (4, "swapped operands"),
                                          (5, "dropped term"), (6, "wrong sign")) if place in faults]
    assert len(chosen) >= 4
    names, plain, with_notes = [], {}, {reached.NOTE: lambda name: names.append(name)}
    exec(source, plain)
    exec(reached.noted(source, chosen), with_notes)
    assert with_notes["f"](2, 3) == plain["f"](2, 3) == -10
    assert set(names) == {fault.name for fault in chosen}
    names.clear()
    assert with_notes["f"](0, 3) == plain["f"](0, 3) == -6
    assert set(names) == {fault.name for fault in chosen if fault.line != 3}


def test_tests_that_come_by():
    """The cheapest of each function first; those that only see what was imported last; slow ones by themselves."""
    reach = reached.Reach(
        {"a": {"t/x.py::f[1]", "t/x.py::f[2]", "t/x.py::g", "u/y.py::h", "t/x.py::s"}, "b": {"", "t/x.py::g"}},
        {"t/x.py::f[1]": 0.2, "t/x.py::f[2]": 0.1, "t/x.py::g": 3.0, "u/y.py::h": 1.0, "t/x.py::s": 9.0,
         "t/x.py::k": 0.0},
        {"t/x.py::s"})
    assert reach.of("a", ["t"], False, 10.0) == ["t/x.py::f[2]", "t/x.py::g", "t/x.py::f[1]"]
    assert reach.of("a", None, False, 1.5) == ["t/x.py::f[2]", "u/y.py::h", "t/x.py::f[1]"]
    assert reach.of("a", None, True, 10.0) == ["t/x.py::s"]
    assert reach.of("b", ["t"], False, 10.0) == ["t/x.py::g", "t/x.py::k", "t/x.py::f[2]", "t/x.py::f[1]"]
    assert reach.of("c", ["u"], False, 10.0) == ["u/y.py::h"]
    assert reach.within(["t/x.py::f[2]", "t/x.py::g", "t/x.py::k"], 0.05) == 1
    assert reach.within(["t/x.py::f[2]", "t/x.py::g", "t/x.py::k"], 4.0) == 3


def test_the_tool_says_what_it_does():
    shown = subprocess.run([sys.executable, str(ROOT / "tools" / "faults"), "--help"], capture_output=True, text=True,
                           check=True).stdout
    assert "Plants faults in a copy of the package, one at a time" in shown


@pytest.mark.parametrize(("status", "output", "message"), [
    (1, "FAILED tests/a.py::test_b[c d] - AssertionError: - no", "tests/a.py::test_b[c d]"),
    (2, "ERROR tests/a.py", "tests/a.py"),
    (4, "ImportError while loading conftest", "the package does not import"),
    (-1, "", "ran out of time"),
    (-9, "", "the run died (-9)"),
])
def test_what_caught_a_fault(status, output, message):
    assert run.failing(status, output) == message


def totals(text: str, title: str) -> list[tuple[str, int, int]]:
    table = text.partition(f"| {title} | planted | caught |")[2].partition("\n\n")[0]
    return [(name, int(planted), int(caught)) for name, planted, caught in
            re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \|$", table, re.MULTILINE)]


def test_the_report_adds_up():
    text = page.PAGE.read_text(encoding="utf-8")
    planted, caught, survived = map(int, re.search(
        r"Of (\d+) faults (\d+) were caught \(.*?\), and (\d+) survived", text).groups())
    assert sum(map(int, re.findall(r"(\d+) (?:were caught )?by (?:the quick|quick|tests)", text))) == caught
    for title in ("kind", "room"):
        *rows, last = totals(text, title)
        assert last == ("all", planted, caught)
        assert (sum(row[1] for row in rows), sum(row[2] for row in rows)) == (planted, caught)
    survivors = re.findall(r"^- `\w{10}` ", text, re.MULTILINE)
    assert len(survivors) == survived == planted - caught
    assert planted >= 400
    assert caught >= 0.95 * planted
    assert int(re.search(r"(\d+) were caught by the quick tests of the file", text)[1]) >= 0.85 * planted
    assert "Not explained" not in text


def test_explanations_are_on_the_page():
    text = page.PAGE.read_text(encoding="utf-8")
    assert [key for key, why in explained.EXPLAINED.items() if why not in text] == []
