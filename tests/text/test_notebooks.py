"""Programs as HTML: the whole text, every name with what it is, safe, whatever names and lines contain."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.text import parse, program_text, side_by_side
from fxgrad.text.html import CLICK, HOVER, STYLE, program_html
from tests.support.show_programs import with_constant

STYLES = ["equations", "compact"]


def model(state: Any, xs: Any, flag: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        hidden = np.tanh(carry * state["a"] + x)
        return hidden, hidden * 2.0

    last, seen = fxgrad.lax.scan(step, state["b"], xs)
    chosen = fxgrad.lax.cond(flag, lambda v: v * 2.0, np.sin, last)
    return fxgrad.nn.softmax(chosen), seen


def traced() -> Any:
    return fxgrad.make_program(model)({"a": np.ones(2), "b": np.ones(2)}, np.ones((4, 2)), True)


class Page(HTMLParser):
    """What a browser would make of it: the text, and the elements with attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.open, self.elements = "", [], []
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.open.append(tag)
        self.elements.append((tag, dict(attributes)))
        self.text += "\n" * (tag == "div")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.text += "\n" * (tag == "div")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n") if line.strip()]


@pytest.mark.parametrize("style", STYLES)
def test_the_text_is_that_of_print(style: Any) -> None:
    for program in (traced(), fxgrad.make_program(fxgrad.grad(lambda x: np.sum(np.sin(x) * x)))(np.ones(3)),
                    parse("program f() { return 1.0 }")):
        assert lines(Page(program_html(program, style=style)).text) == lines(program_text(program, style=style))
    assert lines(Page(traced()._repr_html_()).text) == lines(str(traced()))


@pytest.mark.parametrize("style", STYLES)
def test_names_tell_what_they_are_and_lead_to_their_definition(style: Any) -> None:
    page = Page(program_html(traced(), style=style))
    names = [attributes for _, attributes in page.elements if "data-v" in attributes]
    defined: set[str] = set()
    for attributes in names:  # the definition comes first, and it alone has the title, which a script hands on
        assert ("title" in attributes) == (attributes["data-v"] not in defined)
        defined.add(attributes["data-v"])
    titles = {attributes["data-v"].split()[1]: attributes["title"] for attributes in names if "title" in attributes}
    line = model.__code__.co_firstlineno + 2
    assert titles["xs"] == "xs: f64[4,2]"
    wanted = ["hidden: f64[2]", f"test_notebooks.py:{line}", 'hidden = np.tanh(carry * state["a"] + x)']
    if "hidden" in titles:
        assert titles["hidden"].split("\n") == wanted
    assert any(title.split("\n")[1:] == wanted[1:] for title in titles.values())


def test_types_that_the_text_leaves_out_are_told() -> None:
    """In the compact style letters have no type: hovering tells it."""
    program = fxgrad.make_program(fxgrad.grad(lambda x: np.sum(np.tanh(x @ x.T) ** 2)))(np.ones((2, 3)))
    text = program_text(program, style="compact", source=False)
    untyped = re.findall(r"^  ([a-z]) = ", text, re.MULTILINE)
    assert untyped, text
    page = Page(program_html(program, style="compact", source=False))
    titles = {each["data-v"]: each["title"] for _, each in page.elements if "title" in each}
    assert {titles[f"1 {name}"] for name in untyped} == {f"{name}: f64[2,2]" for name in untyped}


def test_programs_inside_of_others_fold() -> None:
    page = Page(program_html(traced(), style="equations"))
    assert [tag for tag, _ in page.elements].count("details") == 4  # the body, two branches, softmax
    assert all(attributes == {"open": None} for tag, attributes in page.elements if tag == "details")


HOSTILE = '<script>alert("x")</script>&\'`'


def test_nothing_in_names_or_texts_is_markup() -> None:
    text = program_text(with_constant(np.ones(2))).replace("program f", "program " + '"<img src=x onerror=alert(1)>"')
    program = parse(text)
    quoted = parse("program f(`" + HOSTILE.replace("`", "\\`") + "`: f32[]) { `</style>`: f32[] = sin(`"
                   + HOSTILE.replace("`", "\\`") + "`) return `</style>` }")
    for each in (program, quoted):
        for style in STYLES:
            html = program_html(each, style=style)
            page = Page(html)
            assert {tag for tag, _ in page.elements} <= {"div", "pre", "style", "span", "details", "summary"}
            assert lines(page.text) == lines(program_text(each, style=style))
            assert html.count("</style>") == 1
            assert 'class="fx-"' not in html
            assert all(set(attributes) <= {"class", "data-v", "title", "open", "onclick", "onmouseover", "style"}
                       for _, attributes in page.elements)


def test_it_needs_nothing_from_elsewhere_and_fits_dark_and_light() -> None:
    html = program_html(traced())
    assert not re.search(r"https?:|src=|@import|url\(", html)
    for theme in ("prefers-color-scheme: dark", 'theme-light="false"', 'theme-light="true"', "vscode-dark"):
        assert theme in STYLE
    used = set(re.findall(r"var\((--fx-\w+)\)", STYLE))
    assert used <= set(re.findall(r"(--fx-\w+):", STYLE))
    assert STYLE.count("{") == STYLE.count("}")


@pytest.mark.skipif(shutil.which("node") is None, reason="there is nothing that runs the script")
def test_a_click_follows_a_value() -> None:
    """On a page of three elements: a definition and two uses, the last in a program that is folded."""
    script = """
    function element(tag, v, parent) {
      return {tagName: tag, dataset: v ? {v: v} : {}, parentElement: parent, title: '', on: false, seen: 0, open: false,
              classList: {add: function () {}, remove: function () {}},
              closest: function () { return v ? this : null; }, scrollIntoView: function () { this.seen += 1; }};
    }
    const root = element('DIV', ''), fold = element('DETAILS', '', root);
    const all = [element('SPAN', '1 x', root), element('SPAN', '1 x', root), element('SPAN', '1 x', fold),
                 element('SPAN', '2 x', root)];
    all[0].title = 'x: f32[]'; root.querySelectorAll = function () { return all; };
    const click = new Function('event', %s), hover = new Function('event', %s);
    const seen = function (at) {
      click.call(root, {target: at});
      return all.map(function (e) { return e.seen; }).join();
    };
    const found = [seen(all[1]), seen(all[0]), seen(all[0]), fold.open, seen(all[0]), seen(root)];
    hover.call(root, {target: all[2]});
    console.log(JSON.stringify([...found, all[2].title]));
    """
    import json

    made = subprocess.run(["node", "-e", script % (json.dumps(CLICK), json.dumps(HOVER))], capture_output=True,
                          text=True, check=True)
    # A use leads to the definition; that to one use after the other, and what is folded opens.
    assert json.loads(made.stdout) == ["1,0,0,0", "1,1,0,0", "1,1,1,0", True, "1,2,1,0", "1,2,1,0", "x: f32[]"]


def test_columns_and_differences_show_in_notebooks() -> None:
    columns = side_by_side(np.sin, fxgrad.grad(np.sin))(1.0)
    page = Page(columns._repr_html_())
    assert len([each for each in page.elements if each == ("div", {})]) == 2
    assert page.text.count("program") == 2
    program = fxgrad.make_program(np.sin)(1.0)
    html = program.diff(fxgrad.make_program(np.cos)(1.0))._repr_html_()
    assert '<span class="fx-removed">- ' in html
    assert '<span class="fx-added">+ ' in html
    Page(html)


@pytest.mark.slow
def test_large_programs_take_linear_time() -> None:
    def long(x: Any) -> Any:
        for _ in range(1500):
            x = np.sin(x) * 2.0
        return x

    program = fxgrad.make_program(long)(1.0)
    assert len(program_html(program)) < 40 * len(str(program))
