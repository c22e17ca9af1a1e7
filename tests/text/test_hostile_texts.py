"""Text that is written cannot become code; what is read neither hangs nor fills memory, and raises errors of ours."""

from __future__ import annotations

import ast
import io
import re
import time
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import fxgrad
from fxgrad import make_program
from fxgrad.errors import FxgradError, ProgramSyntaxError
from fxgrad.text.quoting import c_comment_line, docstring_lines
from tests.support.with_c import compiled
from tests.support.with_onnx import to_onnx

HOSTILE = [
    'f"""\nraise SystemExit(1)\n"""', '"""', '"', 'ends in "', 'ends in \\', '\\"""', "'''\nraise SystemExit(1)\n'''",
    "*/ int injected; /*", "* / */", "**//**/", "/*", "??/\n", "ends in ??/", "line\\\ncontinued",
    "a\r\nimport os", "a\rb",
    "nul\x00", "\x1b[31mred", "a\u2028b", "a\x0cb\x85c",
    "<script>alert(1)</script>", "</title><b>", "-->", "]]>", "&lt;",
    "%s {} %(a)s {0}", "\ud800", "日本", "`backquoted`", "`", "\n\n",
]
"""What a title, a name or a docstring may be made of by others."""


def entitled(title: str) -> Any:
    program = make_program(lambda x: np.sin(x) * 2.0)(np.ones(3))
    return program.replace(signature=program.signature._replace(title=title, name=title))


def test_titles_never_become_code_of_python() -> None:
    for title in HOSTILE:
        text = entitled(title).to_python()
        bodies = [type(node).__name__ for node in ast.parse(text.encode("utf-8", "surrogatepass").decode(
            "utf-8", "replace")).body]
        assert bodies[0] == "Expr", title
        assert {*bodies[1:]} <= {"Import", "ImportFrom", "FunctionDef"}, title
        names: dict[str, Any] = {}
        exec(text, names)


def test_docstrings_are_read_back() -> None:
    for text in HOSTILE:
        written = "\n".join(docstring_lines(text))
        found = ast.literal_eval(written)
        assert found.rstrip("\n") == text.rstrip("\n"), text


@pytest.mark.slow
def test_titles_never_become_code_of_c(tmp_path: Path) -> None:
    for number, title in enumerate(HOSTILE):
        (tmp_path / str(number)).mkdir()
        functions = compiled([entitled(title)], tmp_path / str(number))
        assert len(functions) == 1, title


def test_comments_of_c_end_where_they_end() -> None:
    for text in HOSTILE:
        line = c_comment_line(text)
        assert not re.search(r"\*/|/\*|\?\?|[^ -~]|\\$", line), text


def test_titles_are_text_in_pages_and_pictures() -> None:
    for title in HOSTILE:
        if "\ud800" in title or "\x00" in title:
            continue
        program = entitled(title)
        for page in (program._repr_html_(),):
            assert "<script>alert" not in page, title
            assert "</title><b>" not in page, title


# --- names of parameters, of scopes and of library functions, through every writer ------------------------------------


def named_so(name: str) -> Any:
    """A program whose argument, result, scope, nodes and called function have the name."""
    inner = fxgrad.named_call(lambda x: np.sin(x) * 2.0, name=name)

    def function(params: Any, x: Any) -> Any:
        with fxgrad.named_scope(name):
            hidden = np.tanh(params[name] @ x)
        return {name: inner(hidden), "other": fxgrad.lax.cond(hidden[0] > 0, lambda h: h * 2.0, lambda h: h, hidden)}
    return make_program(function)({name: np.ones((2, 3))}, np.ones(3))


def as_python(program: Any) -> None:
    text = program.to_python()
    kinds = {type(node).__name__ for node in ast.parse(text).body}
    assert kinds <= {"Import", "ImportFrom", "FunctionDef", "Expr", "Assign"}, kinds
    exec(text, {})


def as_c(program: Any) -> None:
    text = program.to_c()
    assert text.isascii()
    assert "int injected" not in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def as_text(program: Any) -> None:
    for style in ("compact", "equations"):
        assert fxgrad.text.equal(fxgrad.parse(fxgrad.text.program_text(program, style=style)), program), style


def as_json(program: Any) -> None:
    file = io.BytesIO()
    fxgrad.save(file, program)
    for read in (fxgrad.load(file), fxgrad.text.from_json(fxgrad.text.to_json(program))):
        assert fxgrad.text.equal(read, program)


def as_svg(program: Any) -> None:
    root = ET.fromstring(fxgrad.draw(program).text("svg"))  # which no control character may stand in
    assert {"script", "b"}.isdisjoint(element.tag.rpartition("}")[2] for element in root.iter())


def as_dot(program: Any) -> None:
    text = fxgrad.draw(program).text("dot")
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", text.encode().decode(), flags=re.DOTALL)
    assert not re.search(r"script|injected|raise|import|[^\n -~]", outside), outside


def as_ascii(program: Any) -> None:
    """A terminal obeys no name; and one of several lines is on one."""
    assert all(line.isprintable() for line in fxgrad.draw(program).text("ascii").split("\n"))


def as_pages(program: Any) -> None:
    for page in (program._repr_html_(), fxgrad.visualize(program).html, fxgrad.draw(program).text("html")):
        assert "<script>alert" not in page
        assert "</title><b>" not in page


def as_onnx(program: Any) -> None:
    to_onnx(program)()  # checked, loaded and run


@pytest.mark.parametrize("writer", [as_python, as_c, as_text, as_json, as_ascii, as_dot, as_pages, as_svg, as_onnx],
                         ids=lambda writer: writer.__name__)
def test_names_never_become_code(writer: Any) -> None:
    found = {}
    for name in HOSTILE:
        try:
            writer(named_so(name))
        except Exception as error:  # noqa: BLE001  (each is a fault that is listed)
            found[name] = f"{type(error).__name__}: {error}"[:200]
    assert not found, found


@pytest.mark.slow
def test_names_never_become_code_of_c(tmp_path: Path) -> None:
    assert len(compiled([named_so(name) for name in HOSTILE], tmp_path)) == len(HOSTILE)


def test_titles_are_read_back_from_texts() -> None:
    for title in HOSTILE:
        if "\ud800" in title:
            continue
        program = entitled(title)
        assert fxgrad.text.equal(fxgrad.parse(fxgrad.text.program_text(program)), program), title
        assert fxgrad.text.equal(fxgrad.text.from_json(fxgrad.text.to_json(program)), program), title


HEAD = "program (x: f64[2,2]): return x"
LARGE_TEXTS = {
    "transposed in a word": HEAD + ".T" * 100_000,
    "transposed": "program (x: f64[2,2]): return (x)" + ".T" * 100_000,
    "brackets": "program (x: f64): return " + "(" * 100_000 + "x" + ")" * 100_000,
    "signs": "program (x: f64): return " + "-" * 100_000 + "x",
    "sums": "program (x: f64): return " + "+".join(["x"] * 20_000),
    "indices": HEAD + "[0]" * 50_000,
    "digits of a size": "program (x: f64[" + "9" * 1_000_000 + "]): return x",
    "digits of a number": "program (x: f64): return x * " + "9" * 1_000_000,
    "bits": "program (x: f64): return x * nan(0x" + "f" * 100_000 + ")",
    "a constant": "program (x: f64):\n  captured c: f64[150000000] = full(1.0)\n  return x",
    "a constant in the other style": "program f(x: f64[]) { captured c: f64[150000000] = full(1.0) return x }",
}


@pytest.mark.slow
def test_small_texts_ask_for_little() -> None:
    for name, text in LARGE_TEXTS.items():
        begin = time.perf_counter()
        with pytest.raises(ProgramSyntaxError):
            fxgrad.parse(text)
        assert time.perf_counter() - begin < 10.0, name


def test_the_errors_say_what_is_too_large() -> None:
    with pytest.raises(ProgramSyntaxError, match=re.escape(
            "line 2, column 32: an array of type f64[150000000] takes 1200000000 bytes, and a text may ask for "
            "268435456; make it an argument, or keep the program in a file of fxgrad.save")):
        fxgrad.parse(LARGE_TEXTS["a constant"])
    with pytest.raises(ProgramSyntaxError, match=re.escape(
            "a word of 200001 characters; names and types have at most 20000")):
        fxgrad.parse(LARGE_TEXTS["transposed in a word"])


def test_definitions_that_call_each_other_twice_are_written_once() -> None:
    """Sixty of them would be 2**60 calls; each is one function in every file."""
    count = 60
    definitions = "\n".join(f"where f{i}(x: f64) -> f64:\n  return f{i + 1}(f{i + 1}(x))" for i in range(count))
    text = f"program (x: f64) -> f64:\n  return f0(x)\n\n{definitions}\nwhere f{count}(x: f64) -> f64:\n  return sin(x)"
    program = fxgrad.parse(text)
    written = [fxgrad.text.program_text(program), fxgrad.text.to_json(program), program.to_python(), program.to_c()]
    assert max(map(len, written)) < 50_000


def test_loading_raises_our_errors_alone() -> None:
    """A file with any byte of an array's header changed, or cut, is refused by us or read."""
    buffer = io.BytesIO()
    large = np.arange(300.0)
    fxgrad.save(buffer, make_program(lambda x: x * large)(np.ones(300)))
    with zipfile.ZipFile(io.BytesIO(buffer.getvalue())) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in entries if name.endswith(".npy"))
    headers = [entries[name].replace(b"(2400,)", change) for change in (
        b"(2400, ", b"((((((( ", b"'''''''", b"\x00\x00\x00\x00\x00\x00\x00", b"{2400}.", b"[2400]]", b"9**9**9")]
    headers += [entries[name][:10] + bytes([byte]) + entries[name][11:] for byte in range(0, 256, 5)]
    headers += [entries[name][:length] for length in (0, 5, 8, 11, 50, 127)]
    for header in headers:
        changed = io.BytesIO()
        with zipfile.ZipFile(changed, "w") as archive:
            for each, data in entries.items():
                archive.writestr(zipfile.ZipInfo(each), header if each == name else data)
        try:
            loaded = fxgrad.load(io.BytesIO(changed.getvalue()))
        except FxgradError:
            continue
        assert loaded.in_avals[-1].shape == (300,)
