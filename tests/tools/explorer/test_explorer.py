"""The explorer: its data, and the page in a headless browser, used as a person would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import visualize
from tests.support.browser import screenshot

RNG = np.random.default_rng(0)


def block(w, x):
    with fxgrad.named_scope("attention"):
        q, k, v = x @ w["q"], x @ w["k"], x @ w["v"]
        weights = fxgrad.nn.softmax(q @ k.T)
        mixed = weights @ v
    with fxgrad.named_scope("mlp"):
        h = fnp.maximum(mixed @ w["up"], 0)
        return x + h @ w["down"]


def model(params, x, y):
    with fxgrad.named_scope("encoder"):
        x = block(params, x)

    def step(c, r):
        c = fnp.tanh(c + r)
        return c, fnp.sum(c)

    c, ys = fxgrad.scan(step, np.zeros(8), x)
    c = fxgrad.cond(fnp.sum(c) > 0, lambda c: c * 2, lambda c: -c, c)
    loss = fnp.mean((c - y) ** 2) + fnp.sum(ys)
    return loss


PARAMS = {name: RNG.normal(size=size) * 0.1 for name, size in {
    "q": (8, 8), "k": (8, 8), "v": (8, 8), "up": (8, 16), "down": (16, 8)}.items()}
ARGS = PARAMS, RNG.normal(size=(5, 8)), np.ones(8)


def data_of(page: fxgrad.tools.explorer.Page) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.slow
def test_data_has_every_operation_once_in_its_scope() -> None:
    forward = data_of(visualize(model)(*ARGS))["graphs"][0]
    made = fxgrad.graph(model)(*ARGS)
    items = forward["items"]
    outer = [item for item in items if item["kind"] == "op" and _scopes(items, item) is not None]
    assert [item["op"] for item in outer] == [operation.op for operation in made.operations]
    assert [_scopes(items, item) for item in outer] == [operation.equation.scope for operation in made.operations]
    assert {item["label"] for item in items if item["kind"] == "region"} == {
        "body: step × 5", "False", "True", "softmax", "mean"}


def _scopes(items: list[Any], item: Any) -> str | None:
    """The path of scopes around an item; None inside of regions."""
    names = []
    while item["in"] >= 0:
        item = items[item["in"]]
        if item["kind"] == "region":
            return None
        if item["kind"] == "scope":
            names.append(item["label"])
    return "/".join(reversed(names))


@pytest.mark.slow
def test_the_names_in_expressions_are_those_of_boxes() -> None:
    for graph in data_of(visualize(model)(*ARGS))["graphs"]:
        items = graph["items"]
        missing = []
        for item in items:
            if item["kind"] == "op" and "in" in item:
                around = _program_of(items, item)
                known = {name for other in items if _program_of(items, other) == around
                         for name in (other.get("name") or other["label"].split(" = ")[0]).split(", ")}
                used = re.findall(r"(?<![\w.'\"])[a-z]{1,2}(?:_\d+)?(?![\w(='\"])", item["label"].partition(" = ")[2])
                missing += [(item["label"], name) for name in used if name not in known]
        assert not missing, missing


def _program_of(items: list[Any], item: Any) -> int:
    """The region that an item stands in, -1 outside of all."""
    while item["in"] >= 0 and items[item["in"]]["kind"] != "region":
        item = items[item["in"]]
    return int(item["in"])


def test_data_has_what_chooses_and_what_is_carried() -> None:
    def rolled(c: Any, start: Any) -> Any:
        def step(total: Any, x: Any) -> Any:
            return total + x, total * x

        def positive(x: Any) -> Any:
            return x * 2

        total, _ = fxgrad.scan(step, 0.5, c)
        total = fxgrad.while_loop(lambda t: t < 9, lambda t: t * 2.0, 1.0) + total + start
        chosen = fxgrad.cond(total > 0, positive, lambda x: -x, total)
        return chosen + fxgrad.lax.switch(2, [np.sin, np.cos, np.tan], total)

    graph = data_of(visualize(rolled)(np.ones(3), fxgrad.ShapeDtypeStruct((), np.float64)))["graphs"][0]
    items, edges = graph["items"], graph["edges"]
    labels = [item["label"] for item in items]
    assert {item["label"] for item in items if item["kind"] == "region"} == {
        "body: step × 3", "condition", "body", "False", "True: positive", "branch 0: sin", "branch 1: cos",
        "branch 2: tan"}
    assert labels.count("t = 1.0 at first") == 2  # in the condition and in the body
    carried = [(labels[edge[0]], labels[edge[2]]) for edge in edges if len(edge) > 3]
    assert ("a = total + x", "total") in carried
    assert len(carried) == 2
    chooser = next(item for item in items if item["label"].startswith("chooses: "))
    into = [edge for edge in edges if items[edge[2]] is chooser]
    assert [items[edge[0]]["op"] for edge in into] == ["gt"]


def test_values_go_to_the_names_that_a_body_has_for_them() -> None:
    """What it closes over too."""
    def rolled(x: Any, w: Any) -> Any:
        def step(c: Any, e: Any) -> Any:
            return c * w + e, c
        return fxgrad.scan(step, x, np.arange(3.0))[0]

    graph = data_of(visualize(rolled)(fxgrad.ShapeDtypeStruct((), np.float64), 3.0))["graphs"][0]
    items, labels = graph["items"], [item["label"] for item in graph["items"]]
    assert {(labels[edge[0]], labels[edge[2]]) for edge in graph["edges"]
            if len(edge) == 3 and items[edge[2]]["kind"] == "leaf"} == {("x", "c"), ("w", "w"), ("a", "e")}


def test_the_film_marks_no_line_that_has_other_letters_alone() -> None:
    def repeated(x: Any) -> Any:
        np.cos(x)  # is gone in the next stage, so that all letters behind it are others
        return np.sum(np.exp(np.sin(x)) * np.tanh(np.sin(np.sin(x))) * np.exp(np.sin(x)))

    _, simplified = data_of(visualize(repeated)(np.ones(3)))["stages"][:2]
    gone = [text for mark, text, _ in simplified["lines"] if mark == "-"]
    assert any("cos(x)" in text for text in gone)
    parts: list[Any] = []

    def first(x: Any) -> Any:
        parts[:] = [np.cos(x), np.sin(x)]
        parts.append(parts[1] * parts[1])
        return parts[2] + parts[2] + parts[1]

    def second(x: Any) -> Any:
        parts[:] = [np.cos(x), np.sin(x)]
        parts.append(parts[1] * parts[0])
        return parts[2] + parts[2] + parts[1]

    recorded, simple, other = (fxgrad.make_program(function, as_recorded=function is first)(1.0)
                               for function in (first, first, second))
    simple = fxgrad.make_program(first)(1.0)
    assert "b = sin(x)" in str(recorded)
    assert "a = sin(x)" in str(simple)
    moved = [line for line in fxgrad.tools.explorer.stages._compare_lines(recorded, simple)[1:] if line[0]]
    assert [(mark, re.sub(r" +#.*", "", text)) for mark, text in moved] == [("-", "  a = cos(x)")]
    changed = fxgrad.tools.explorer.stages._compare_lines(recorded, other)[1:]
    assert any(mark == "+" and "b * a" in text for mark, text in changed)


def test_data_has_values_gradients_and_lines() -> None:
    forward = data_of(visualize(lambda x: np.sum(np.sin(x)))(np.array([1.0, 2.0])))["graphs"][0]
    x, sine, total = forward["items"]
    assert (x["value"], x["grad"]) == ("[1., 2.]", "[ 0.5403, -0.4161]")
    assert np.isclose(x["norm"], np.hypot(np.cos(1), np.cos(2)))
    assert (sine["label"], sine["flops"] > 0, total["returns"]) == ("a = sin(x)", True, [0])
    file, line = sine["line"]
    assert "np.sum(np.sin(x))" in forward["sources"][file][str(line)]


def test_the_graph_of_the_gradient_links_forward_and_backward() -> None:
    _, backward, _ = data_of(visualize(model)(*ARGS))["graphs"]
    items = backward["items"]
    links = {item["name"]: items[item["of"]] for item in items if "of" in item and item["kind"] == "op"}
    assert links["d_h"]["name"] == "h"
    assert links["d_params.q"]["label"] == "params.q"
    assert {item["label"] for item in items if item["kind"] == "scope"} >= {"encoder", "encoder, backward"}


def test_the_film_has_every_stage() -> None:
    stages = data_of(visualize(model)(*ARGS))["stages"]
    assert [stage["name"] for stage in stages] == [
        "recorded", "simplified", "gradient", "gradient, simplified", "NumPy", "StableHLO", "XLA"]
    assert all(stage["lines"] for stage in stages)
    gone, added = ([text for mark, text, _ in stages[3]["lines"] if mark == sign] for sign in "-+")
    assert gone
    assert added
    assert any("test_explorer.py:" in text for _, text, _ in stages[6]["lines"])  # XLA's operations by the user's line


def test_row_c20_a_line_of_the_user_is_followed_through_all_stages() -> None:
    def squares(x):
        y = np.sin(x)
        return np.sum(y * y)
    line = squares.__code__.co_firstlineno
    stages = {stage["name"]: stage["lines"] for stage in data_of(visualize(squares)(np.ones(3)))["stages"]}
    of_line = {name: [text for _, text, place in lines if place == f"test_explorer.py:{line + 1}"]
               for name, lines in stages.items()}
    assert [text.split("=")[0].strip().split(":")[0] for text in of_line["simplified"]] == ["y"]
    assert all("sin(x)" in text for text in of_line["recorded"])
    assert any("cos(" in text for text in of_line["gradient, simplified"])
    assert any("np.cos(x)" in text for text in of_line["NumPy"])
    assert any("stablehlo.cosine" in text for text in of_line["StableHLO"])
    assert any("cosine" in text for text in of_line["XLA"])
    assert not any("loc(" in text for _, text, _ in stages["StableHLO"])
    for lines in stages.values():
        assert {place for _, _, place in lines} <= {"", f"test_explorer.py:{line + 1}", f"test_explorer.py:{line + 2}"}


def test_lines_of_programs_without_a_margin_are_of_the_line_above() -> None:
    lines = [("", "program f(x: f64[3]) -> f64[3]:  # loss.py"), ("", "  a = sin(x)  # 3"), ("-", "  b = a * a"),
             ("+", "  b = a + a  # model.py:7 layer"), ("", "  # backward"), ("", "  return b")]
    assert fxgrad.tools.explorer.stages.places_of_program(lines) == [
        "", "loss.py:3", "loss.py:3", "model.py:7", "", "model.py:7"]


def test_functions_without_a_gradient_and_programs() -> None:
    page = data_of(visualize(lambda x: x * 2)(np.arange(3)))
    assert ([graph["name"] for graph in page["graphs"]], [stage["name"] for stage in page["stages"]]) == (
        ["function", "fused"], ["recorded", "simplified", "NumPy", "StableHLO", "XLA"])
    page = data_of(visualize(fxgrad.make_program(model)(*ARGS)))
    assert [graph["name"] for graph in page["graphs"]] == ["program"]
    assert "value" not in page["graphs"][0]["items"][0]


def test_shapes_alone_and_text_that_looks_like_html(tmp_path: Path) -> None:
    def closing(x):
        return x + 1  # </script><!--

    page = visualize(closing)(fxgrad.ShapeDtypeStruct((3,), np.float32))
    assert page.html.count("</script>") == 3
    assert "# </script><!--" in data_of(page)["graphs"][0]["sources"]["test_explorer.py"].popitem()[1]
    assert page.save(tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    assert "srcdoc" in page._repr_html_()


def test_functions_of_keys_and_of_nothing() -> None:
    drawn = data_of(visualize(lambda key: fxgrad.random.normal(key, (3,)))(fxgrad.random.key(0)))
    assert drawn["stages"][-1]["lines"]  # XLA compiles it
    alone = data_of(visualize(lambda: fnp.ones(3) * 2)())
    assert [graph["name"] for graph in alone["graphs"]] == ["function", "fused"]


# --- in a browser -----------------------------------------------------------------------------------------------


class Opened:
    """A page in the browser: what went wrong on it, and what it asked the network for."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.page = browser.new_page(viewport={"width": 1300, "height": 850})
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)

    def click(self, name: str, count: int = 1) -> None:
        """Clicks the box of a name, where it stands."""
        self.ask(f"explorer.select(explorer.find({name!r}), true)")
        place = self.ask(f"explorer.position(explorer.find({name!r}))")
        self.page.mouse.click(place["x"], place["y"], click_count=count)

    def shot(self, name: str) -> bytes:
        """A picture of the page, once it stands still."""
        self.page.wait_for_timeout(120)
        return screenshot(self.page, name)


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    made = Opened(browser, visualize(model)(*ARGS).save(tmp_path / "model.html"))
    yield made
    assert made.errors == []
    assert [url for url in made.requests if not url.startswith("file:")] == []
    made.page.close()


@pytest.mark.slow
def test_a_person_explores(opened: Opened) -> None:
    blank = opened.shot("explorer-function")
    names = [box["name"] for box in opened.ask("explorer.boxes()")]
    assert any(name.startswith("h = maximum(") for name in names)

    # A click says what a value is, of which line.
    opened.click("h")
    panel = opened.page.inner_text("#node")
    assert "f64[5,16]" in panel
    assert "h = fnp.maximum(mixed @ w[\"up\"], 0)" in panel
    assert "gradient" in panel
    assert opened.shot("explorer-value") != blank

    # A double click folds a scope, and unfolds a loop.
    before = len(opened.ask("explorer.boxes()"))
    opened.ask("explorer.toggle(explorer.find('mlp'))")
    assert len(opened.ask("explorer.boxes()")) < before
    opened.click("c, ys", count=2)
    assert any(box["name"].startswith("c_1 = tanh") for box in opened.ask("explorer.boxes()"))

    # Searching goes there, and unfolds what is around it.
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("maximum")
    opened.page.keyboard.press("Enter")
    assert "made by max" in opened.page.inner_text("#node")
    assert any(name["name"].startswith("h = maximum(") for name in opened.ask("explorer.boxes()"))

    # The wheel zooms, and dragging pans.
    view = opened.ask("explorer.view()")
    opened.page.mouse.move(400, 400)
    opened.page.mouse.wheel(0, -300)
    opened.page.wait_for_function("scale => explorer.view().scale > scale", arg=view["scale"])
    view = opened.ask("explorer.view()")
    opened.page.mouse.down()
    opened.page.mouse.move(460, 380, steps=3)
    opened.page.mouse.up()
    moved = opened.ask("explorer.view()")
    assert (round(moved["x"] - view["x"]), round(moved["y"] - view["y"])) == (60, -20)


@pytest.mark.slow
def test_forward_and_backward_heat_and_film(opened: Opened) -> None:
    opened.page.click("#graphs button:nth-child(2)")
    opened.click("d_h")
    assert "cotangent of" in opened.page.inner_text("#node")
    opened.page.click("#node a:text-is('h')")
    assert "made by max" in opened.page.inner_text("#node")
    plain = opened.shot("explorer-gradient")
    opened.page.select_option("#heat", "norm")
    assert opened.shot("explorer-heat") != plain
    opened.page.click("#tabs button:nth-child(2)")
    seen = []
    for _ in range(7):
        seen.append(opened.page.inner_text("#note"))
        opened.page.click("#forward")
    assert [text[:6] for text in seen] == [f"{number} of 7" for number in range(1, 8)]
    assert opened.page.inner_text("#note") == seen[0]  # and begins again
    opened.page.select_option("#stages", "3")
    assert opened.page.locator("#text .gone").count() > 0
    assert "h: f64[5,16] = maximum(" in opened.page.locator("#text .on").first.inner_text()  # of what is selected
    opened.shot("explorer-film")


@pytest.mark.slow
def test_controls_of_the_film_fit_into_its_panel(opened: Opened) -> None:
    for width in (1300, 1000, 820, 700):
        opened.page.set_viewport_size({"width": width, "height": 800})
        opened.page.click("#tab-film")
        panel, controls = opened.ask("""(() => {
          const edge = (each) => each.getBoundingClientRect().right;
          return [edge(document.querySelector('aside')), [...document.querySelectorAll('#player *')].map(edge)];
        })()""")
        assert max(controls) <= panel, width
        assert opened.ask("document.querySelector('#play').getClientRects()[0].height") < 40  # in one row


@pytest.mark.slow
def test_row_c10_groups_of_xla_stand_in_boxes_with_their_bytes(opened: Opened) -> None:
    opened.page.click("#graphs button:nth-child(3)")
    opened.page.click("text=fit")
    fits = opened.shot("explorer-fused")
    assert {"params.up", "params.down"} <= {item["label"] for item in opened.ask(
        "explorer.boxes().map(box => explorer.item(box.id)).filter(item => item.role === 'parameter')")}
    opened.ask("explorer.select(explorer.find('h'), true)")
    assert opened.shot("explorer-fused-value") != fits
    assert re.search(r"fusion\S*: \S+ \S+ unfused, \S+ \S+ fused", opened.page.inner_text("#node"))


@pytest.mark.slow
def test_row_c20_a_click_follows_a_line_through_stages_side_by_side(opened: Opened) -> None:
    opened.page.click("#tabs button:nth-child(2)")
    opened.page.select_option("#stages", "3")
    assert not opened.page.is_visible("#text-beside")
    opened.page.select_option("#beside", "5")
    assert opened.page.is_visible("#text-beside")
    opened.page.locator("#text span", has_text="maximum(").first.click()
    program, lowered = opened.ask("explorer.followed()")
    assert any("maximum(" in text for text in program)
    assert any("stablehlo.maximum" in text for text in lowered)
    opened.shot("explorer-side-by-side")
    opened.page.select_option("#beside", "6")
    assert opened.ask("explorer.followed()")[1]  # the same line in XLA's program
    opened.page.click("#forward")
    assert opened.ask("explorer.followed()")[0]  # and in the file of NumPy
    opened.page.locator("#text .followed").first.click()
    assert opened.ask("explorer.followed()") == [[], []]
    opened.page.select_option("#beside", "")
    assert not opened.page.is_visible("#text-beside")


@pytest.mark.slow
def test_open_loops_and_branches_keep_their_lines(opened: Opened) -> None:
    opened.ask("explorer.toggle(explorer.find('c, ys'))")
    opened.ask("explorer.toggle(explorer.boxes().map(box => box.id).find(id => explorer.item(id).op === 'cond'))")
    names = {box["id"]: box["name"] for box in opened.ask("explorer.boxes()")}
    lines = [(names[line["source"]], names[line["target"]], line["carried"]) for line in opened.ask("explorer.lines()")]
    carried = [line[:2] for line in lines if line[2]]
    assert carried == [("c_1 = tanh(d)", "c")]
    assert sum(target == "c" and not carries for _, target, carries in lines) == 3  # the start, and two branches
    assert [source.partition(" = ")[2] for source, target, _ in lines if target.startswith("chooses")] == ["i > 0.0"]


@pytest.mark.slow
def test_text_can_be_read_when_a_page_opens_and_nothing_overlaps(opened: Opened) -> None:
    for width in (1300, 1000, 820, 700):
        opened.page.set_viewport_size({"width": width, "height": 800})
        opened.ask("explorer.show(0)")
        assert 12 * opened.ask("explorer.view()")["scale"] >= 10.5
        opened.page.select_option("#heat", "norm")
        shapes = [opened.ask(f"(() => {{ const r = document.querySelector('{name}').getBoundingClientRect(); "
                             "return [r.left, r.top, r.right, r.bottom]; })()")
                  for name in ("#legend", "#hint", "canvas")]
        for place, one in enumerate(shapes):
            for other in shapes[place + 1:]:
                assert (one[2] <= other[0] + 1 or other[2] <= one[0] + 1 or one[3] <= other[1] + 1
                        or other[3] <= one[1] + 1 or other[2] == other[0]), (width, one, other)
    assert opened.ask("document.querySelector('.scale').getAttribute('aria-label')").startswith(
        "heat: length of the gradient, from 0 to ")
    assert len(opened.ask("[...document.querySelectorAll('.scale em')].map(each => each.textContent)")) == 4


@pytest.mark.slow
def test_keys_do_what_the_mouse_does(opened: Opened) -> None:
    page = opened.page
    page.focus("canvas")
    page.keyboard.press("ArrowDown")
    way = [opened.ask("explorer.item(explorer.selected()).label")]
    for _ in range(3):
        page.keyboard.press("ArrowDown")
        way.append(opened.ask("explorer.item(explorer.selected()).label"))
    assert len({*way}) == 4
    assert page.inner_text("#said").startswith(way[-1])
    page.keyboard.press("ArrowUp")
    assert opened.ask("explorer.lines().some(line => line.source === explorer.selected() && "
                      f"explorer.item(line.target).label === {way[-1]!r})")
    opened.ask("explorer.select(explorer.find('c, ys'), true)")
    before = len(opened.ask("explorer.boxes()"))
    page.focus("canvas")
    page.keyboard.press("Enter")
    assert len(opened.ask("explorer.boxes()")) > before
    assert "unfolded" in page.inner_text("#said")
    scale = opened.ask("explorer.view()")["scale"]
    page.keyboard.press("+")
    assert opened.ask("explorer.view()")["scale"] > scale
    page.focus("#tabs button")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("#film")
    assert not page.is_visible("#node")
    assert opened.ask("document.activeElement.textContent") == "film"


@pytest.mark.slow
def test_roles_are_complete(opened: Opened) -> None:
    """What checkers of accessibility ask: roles with what belongs to them, and a name for all that takes the focus."""
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("m")
    problems = opened.ask("""(() => {
      const found = [], all = (what) => [...document.querySelectorAll(what)];
      const role = (each) => each?.getAttribute('role'), told = (each, name) => each.getAttribute('aria-' + name) || '';
      const named = (each, name) => told(each, name).split(' ').some((id) => document.getElementById(id));
      for (const list of all('[role=tablist]')) {
        const tabs = [...list.children];
        if (!tabs.length || tabs.some((tab) => role(tab) !== 'tab')) found.push(list.id + ' has no tabs');
        if (tabs.filter((tab) => told(tab, 'selected') === 'true').length !== 1) found.push(list.id + ' selected');
        if (tabs.filter((tab) => tab.tabIndex === 0).length !== 1) found.push(list.id + ' has several stops');
      }
      for (const tab of all('[role=tab]'))
        if (role(document.getElementById(told(tab, 'controls'))) !== 'tabpanel') found.push(tab.textContent);
      for (const panel of all('[role=tabpanel]')) if (!named(panel, 'labelledby')) found.push(panel.id);
      for (const list of all('[role=listbox]'))
        if (!list.children.length || [...list.children].some((each) => role(each) !== 'option')) found.push('options');
      for (const each of all('[aria-activedescendant]')) if (!named(each, 'activedescendant')) found.push('descendant');
      for (const each of all('button, input, select, a, [tabindex]')) {
        const name = told(each, 'label') || each.textContent.trim() || each.closest('label')?.textContent.trim();
        if (!name && !named(each, 'labelledby')) found.push('without a name: ' + each.outerHTML.slice(0, 80));
        if (each.matches('a:not([href])') && role(each) !== 'link') found.push('no link');
      }
      return found;
    })()""")
    assert problems == []
    assert opened.ask("document.querySelector('canvas').tabIndex") == 0


@pytest.mark.bench
def test_ten_thousand_nodes_open_within_two_seconds(browser: Any, tmp_path: Path) -> None:
    def long(x):
        for _ in range(5000):
            x = np.sin(x) * 1.5
        return x

    opened = Opened(browser, visualize(fxgrad.make_program(long)(0.3)).save(tmp_path / "long.html"))
    assert len(opened.ask("explorer.boxes()")) == 10_001
    assert opened.ask("performance.now()") < 2000
    assert max(opened.ask("explorer.frame()") for _ in range(10)) < 16
    assert opened.errors == []


@pytest.mark.slow
@pytest.mark.parametrize(("notebook", "is_dark"), [
    ('<body data-jp-theme-light="false">', True), ('<body data-jp-theme-light="true">', False),
    ('<body class="vscode-dark">', True), ("<body>", False)])
def test_a_page_in_a_notebook_takes_its_theme(browser: Any, tmp_path: Path, notebook: str, is_dark: bool) -> None:
    path = tmp_path / "notebook.html"
    shown = visualize(np.sin)(1.0)._repr_html_()
    path.write_text(f"<!doctype html><meta charset='utf-8'>{notebook}{shown}", encoding="utf-8")
    page = browser.new_page(color_scheme="null")  # no theme of the system
    page.goto(path.as_uri())
    ground = page.frames[1].evaluate("getComputedStyle(document.body).backgroundColor")
    page.close()
    assert (ground == "rgb(13, 17, 23)") is is_dark
