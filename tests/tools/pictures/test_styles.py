"""The styles of pictures: well-formed, whole, and in need of nothing but themselves."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import fxgrad
from fxgrad.tools.pictures.layout import PictureLayout, place_picture
from fxgrad.tools.pictures.picture import Picture
from fxgrad.tools.pictures.theme import DARK, LIGHT, apply_theme
from tests.support.pictured import EXAMPLES

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["product", "perceptron", "recurrent", "choice", "network"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("show", ["forward", "joint"])
def test_svg_has_every_box_and_line_once(name: str, show: str) -> None:
    drawing = EXAMPLES[name].draw(style="svg", show=show)
    root = ET.fromstring(str(drawing))
    groups = [*root.iter(f"{SVG}g")]
    assert sorted(group.get("data-box", "") for group in groups if "data-box" in group.attrib) == sorted(
        box.key for box in drawing.picture.boxes)
    found = [(group.get("data-from", ""), group.get("data-to", "")) for group in groups if "data-from" in group.attrib]
    assert sorted(found) == sorted((line.source, line.target) for line in drawing.picture.lines)
    titles = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "fxp-title"]
    assert titles == [cluster.title for cluster in drawing.picture.clusters]
    assert "http" not in str(drawing).replace("http://www.w3.org/2000/svg", "")


def overlapping(layout: PictureLayout) -> list[tuple[str, str]]:
    frames = [*layout.boxes.items()]
    return [(one, other) for index, (one, a) in enumerate(frames) for other, b in frames[index + 1:]
            if abs(a.x - b.x) < (a.width + b.width) / 2 and abs(a.y - b.y) < (a.height + b.height) / 2]


@pytest.mark.parametrize("name", [*NAMES, "attention"])
@pytest.mark.parametrize("show", ["forward", "joint"])
def test_boxes_are_apart_on_the_page_and_inside_their_frames(name: str, show: str) -> None:
    picture: Picture = EXAMPLES[name].draw(style="svg", show=show).picture
    layout = place_picture(picture)
    assert not overlapping(layout)
    for box in picture.boxes:
        frame = layout.boxes[box.key]
        assert 0 < frame.x - frame.width / 2 < frame.x + frame.width / 2 < layout.width
        assert 0 < frame.y - frame.height / 2 < frame.y + frame.height / 2 < layout.height
        if box.cluster:
            around = layout.clusters[box.cluster]
            assert abs(frame.x - around.x) + frame.width / 2 <= around.width / 2
            assert abs(frame.y - around.y) + frame.height / 2 <= around.height / 2
    if show == "joint":
        passes = [[layout.boxes[box.key] for box in picture.boxes if box.part == part]
                  for part in ("forward", "backward")]
        wrong = [(one, other) for one in passes[0] for other in passes[1]
                 if abs(one.y - other.y) < (one.height + other.height) / 2 and one.x > other.x]
        assert not wrong, "beside each other the backward pass is on the right"


@pytest.mark.parametrize("name", ["product", "perceptron", "attention"])
def test_values_flow_down_and_gradients_up(name: str) -> None:
    picture = EXAMPLES[name].draw(style="svg", show="joint").picture
    layout = place_picture(picture)
    for line in picture.lines:
        source, target = layout.boxes[line.source].y, layout.boxes[line.target].y
        assert (source > target) == (line.kind == "gradient")


@pytest.mark.parametrize("role", LIGHT)
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_its_ground(role: str, palette: dict[str, object]) -> None:
    """The contrast that the guidelines for accessible pages ask for, between text and the inside of a box."""
    def brightness(color: str) -> float:
        parts = [int(color[at:at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    fill, stroke, text = palette[role]
    low, high = sorted([brightness(fill), brightness(text)])
    assert (high + 0.05) / (low + 0.05) >= 4.5
    low, high = sorted([brightness(fill), brightness(stroke)])
    assert role == "cluster" or (high + 0.05) / (low + 0.05) >= 3.0


def test_text_can_be_read_on_colors_of_a_theme() -> None:
    light, dark = apply_theme({"input": "#00ff88", "label": "#102030", "layer": "teal"})
    assert light["input"].text == dark["input"].text == LIGHT["input"].text
    assert light["label"].text == dark["label"].text == DARK["label"].text
    for palette, before in ((light, LIGHT), (dark, DARK)):
        assert palette["layer"] == before["layer"]._replace(fill="teal")


def test_colors_follow_the_page() -> None:
    text = str(EXAMPLES["product"].draw(style="svg"))
    assert "@media (prefers-color-scheme: dark)" in text
    assert LIGHT["input"].fill in text
    assert DARK["input"].fill in text


@pytest.mark.parametrize("name", NAMES)
def test_dot_names_every_box_and_line(name: str) -> None:
    drawing = EXAMPLES[name].draw(style="dot", show="joint")
    text = str(drawing)
    assert len(re.findall(r"^ *\"\w[^\"]*\" \[label", text, re.MULTILINE)) == len(drawing.picture.boxes)
    solid = [line for line in text.splitlines() if " -> " in line and "constraint=false" not in line]
    assert len(solid) == len(drawing.picture.lines)
    assert sum("dir=back" in line for line in solid) == sum(line.is_upward for line in drawing.picture.lines)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_it() -> None:
    for name in NAMES:
        text = str(EXAMPLES[name].draw(style="dot", show="joint", expand=True))
        done = subprocess.run(["dot", "-Tplain"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_mermaid_names_every_box_and_line(name: str) -> None:
    drawing = EXAMPLES[name].draw(style="mermaid")
    lines = str(drawing).splitlines()
    assert lines[0] == "flowchart TD"
    assert sum(":::" in line for line in lines) == len(drawing.picture.boxes)
    assert sum("-->" in line or "-.->" in line for line in lines) == len(drawing.picture.lines)
    assert sum(line.strip().startswith("subgraph") for line in lines) == sum(line.strip() == "end" for line in lines)
    for line in lines:
        assert line.count('"') % 2 == 0
    assert all("".join(filter(str.isalnum, word)) in str(drawing)
               for box in drawing.picture.boxes for word in box.label.split() if word.isalnum())


def test_a_page_needs_nothing_else() -> None:
    text = str(EXAMPLES["perceptron"].draw(style="html", show="joint"))
    assert not re.search(r"(src|href)=|@import|url\(|fetch\(", text)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "h = np.maximum(x @ W1 + b1, 0.0)" in text, "hovering tells the line"
    assert text.count("data-twin=") == sum(bool(box.twin) for box in EXAMPLES["perceptron"].draw(
        show="joint").picture.boxes)


def test_files_have_the_style_of_their_ending(tmp_path: Path) -> None:
    drawing = EXAMPLES["product"].draw()
    starts = {"a.svg": "<svg", "a.html": "<!DOCTYPE html>", "a.dot": "digraph", "a.mmd": "flowchart", "a.txt": "x   y"}
    for name, start in starts.items():
        drawing.save(tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)
    drawing.save(str(tmp_path / "b.svg"))
    assert (tmp_path / "b.svg").read_text() == drawing.text("svg")


def test_notebooks_show_it_as_svg() -> None:
    drawing = EXAMPLES["product"].draw()
    assert drawing._repr_svg_() == drawing._repr_html_() == drawing.text("svg")
    assert str(drawing) == repr(drawing) == drawing.text("ascii")


def test_themes_of_a_page_do_not_mix() -> None:
    plain = str(EXAMPLES["product"].draw(style="svg"))
    themed = str(EXAMPLES["product"].draw(style="svg", theme={"input": "#00ff00"}))
    scopes = [re.search(r'<svg [^>]*class="([^"]*)"', text)[1] for text in (plain, themed)]
    assert scopes[0] != scopes[1]
    for text, scope in zip((plain, themed), scopes, strict=True):
        rules = re.findall(r"^[^@}\n][^{\n]*(?= {)", text, re.MULTILINE)
        assert rules
        assert all(re.search(rf"\.{scope}(?![\w-])", rule) for rule in rules)


def test_loops_and_branches_are_frames_in_pictures_and_follow_text() -> None:
    loop = EXAMPLES["recurrent"].draw(style="svg").picture
    assert [cluster.title for cluster in loop.clusters] == ["scan × 6"]
    assert sum(line.kind == "carry" for line in loop.lines) == 1
    branches = EXAMPLES["choice"].draw(style="svg").picture
    assert [cluster.title for cluster in branches.clusters] == ["cond", "False", "True"]
    text = str(EXAMPLES["recurrent"].draw())
    assert "\n\nscan, body: step x 6:\n" in text
    assert text.isascii()
    folded = EXAMPLES["choice"].draw(style="svg", expand=False).picture
    assert not folded.clusters
    assert "cond" in [box.label for box in folded.boxes]


def test_calls_open_by_name() -> None:
    def f(x):
        return fxgrad.nn.relu(x)

    closed = fxgrad.draw(f)(1.0).picture
    assert [box.label for box in closed.boxes if box.kind == "operation"] == ["relu"]
    opened = fxgrad.draw(f, expand="relu", style="svg")(1.0).picture
    assert [cluster.title for cluster in opened.clusters] == ["relu"]


def test_a_jitted_function_is_drawn_as_the_function() -> None:
    def f(x, y):
        z = np.sin(x) * y
        return z

    assert str(fxgrad.draw(fxgrad.jit(f))(1.0, 2.0)) == str(fxgrad.draw(f)(1.0, 2.0))
    roles, values = {"params": "x"}, {"values": True, "types": False}
    jitted = fxgrad.draw(fxgrad.jit(fxgrad.jit(f)), roles=roles, **values)(1.0, 2.0)
    plain = fxgrad.draw(f, roles=roles, **values)(1.0, 2.0)
    assert [(box.label, box.role, box.details) for box in jitted.picture.boxes] == [
        (box.label, box.role, box.details) for box in plain.picture.boxes]
    unnamed = fxgrad.draw(fxgrad.jit(lambda x: np.sin(x * x * x)))(1.0)
    assert unnamed.picture.boxes[-1].label == "out"


def test_one_pass_of_two() -> None:
    example = EXAMPLES["perceptron"]
    joint = example.draw(show="joint").picture
    backward = example.draw(show="backward").picture
    assert {box.label for box in backward.boxes if box.part == "backward"} == {
        box.label for box in joint.boxes if box.part == "backward"}
    saved = [box for box in backward.boxes if box.part == "forward"]
    assert saved
    assert not any(line.target == box.key for box in saved for line in backward.lines)
    gradient = fxgrad.make_program(fxgrad.grad(example.function, argnums=2))(*example.args)
    drawn = fxgrad.draw(gradient).picture
    assert drawn == fxgrad.draw(gradient, show="joint").picture
    assert {box.part for box in drawn.boxes} == {"forward", "backward"}
    assert {box.part for box in fxgrad.draw(gradient, show="forward").picture.boxes} == {"forward"}


def test_gradients_of_parameters_alone() -> None:
    drawn = EXAMPLES["perceptron"].draw(show="joint", roles={"params": ["W*"]}).picture
    labels = {box.label for box in drawn.boxes}
    assert {"d_W1", "d_W2"} <= labels
    assert labels.isdisjoint({"d_x", "d_y", "d_b1"})
