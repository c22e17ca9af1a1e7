"""What lessons on computational graphs draw, drawn: each test is named after a row of the list of what must work."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree as ET

import networkx as nx
import numpy as np
import pytest

import fxgrad
from fxgrad.tools.pictures.layout import place_picture
from fxgrad.tools.pictures.picture import Picture
from fxgrad.tools.pictures.words import number_label
from tests.support.named_functions import CASES
from tests.support.pictured import EXAMPLES

SVG = "{http://www.w3.org/2000/svg}"


def as_networkx(picture: Picture) -> nx.MultiDiGraph:
    made = nx.MultiDiGraph()
    made.add_nodes_from(box.key for box in picture.boxes)
    made.add_edges_from((line.source, line.target) for line in picture.lines)
    return made


def contracted(whole: nx.MultiDiGraph, gone: set[str]) -> nx.MultiDiGraph:
    """Without the nodes `gone`: each edge into one goes on along each edge out of it."""
    for name in gone:
        ways = [(first, second) for first, _ in whole.in_edges(name) for _, second in whole.out_edges(name)]
        whole.remove_node(name)
        whole.add_edges_from(ways)
    return whole


@pytest.mark.parametrize("name", ["product", "wave", "branching", "perceptron", "cross_entropy", "attention"])
def test_g10_the_views_are_one_another_contracted(name: str) -> None:
    views = {view: EXAMPLES[name].draw(view=view).picture for view in ("bipartite", "value", "op", "network")}
    whole = views["bipartite"]
    operations = {box.key for box in whole.boxes if box.kind == "operation"}
    leaves_and_roots = {box.key for box in whole.boxes
                        if box.kind == "value" and (box.role in ("input", "output"))}
    values = {box.key for box in whole.boxes} - operations - leaves_and_roots
    assert nx.is_isomorphic(as_networkx(views["value"]), contracted(as_networkx(whole), operations))
    assert nx.is_isomorphic(as_networkx(views["op"]), contracted(as_networkx(whole), values))
    assert {box.kind for box in views["value"].boxes} == {"value"}
    assert {box.kind for box in views["op"].boxes} == {"value", "operation"}
    # And against the graph itself, which knows of no pictures.
    graph = EXAMPLES[name].graph()
    expected = Counter((f"v{edge.source.index}", f"v{edge.target.index}") for edge in graph.edges
                       if not edge.source.is_number)
    assert Counter((line.source, line.target) for line in views["value"].lines) == expected


PRODUCT = r"""
x   y
 \ /
 [+]
  |
[x+y]   w
   \   /
    \ /
    [*]
     |
     z
""".strip("\n")


def test_g11_the_ascii_drawing_of_a_product() -> None:
    def f(x, y, w):
        z = (x + y) * w
        return z

    drawing = fxgrad.draw(f, style="ascii")(2.0, 3.0, 4.0)
    assert str(drawing) == PRODUCT
    assert str(drawing).isascii()


TO_THE_RIGHT = r"""
x --.
    +--> [+] ---> [x+y] --.
y --'                     +--> [*] ---> z
                  w ------'
""".strip("\n")


def test_g11_the_drawing_of_a_product_to_the_right() -> None:
    def f(x, y, w):
        z = (x + y) * w
        return z

    drawing = fxgrad.draw(f, orientation="right")(2.0, 3.0, 4.0)
    assert str(drawing) == TO_THE_RIGHT
    assert "\n  rankdir=LR;\n" in drawing.text("dot")
    assert drawing.text("mermaid").startswith("flowchart LR\n")
    assert "rankdir" not in fxgrad.draw(f)(2.0, 3.0, 4.0).text("dot")


@pytest.mark.parametrize("name", ["product", "wave", "perceptron", "attention"])
def test_g11_every_line_of_an_svg_leads_to_the_right(name: str) -> None:
    drawing = EXAMPLES[name].draw(style="svg", orientation="right")
    layout = place_picture(drawing.picture)
    for line in drawing.picture.lines:
        source, target = layout.boxes[line.source], layout.boxes[line.target]
        assert source.x + source.width / 2 <= target.x - target.width / 2, (line.source, line.target)
    down = place_picture(EXAMPLES[name].draw(style="svg").picture)
    assert layout.width / layout.height > down.width / down.height


def test_g11_chains_stay_in_one_row() -> None:
    def chain(x):
        for _ in range(12):
            x = np.sin(x) * 1.5
        return x
    assert len(str(fxgrad.draw(chain, orientation="right")(0.3)).splitlines()) == 1


def test_g11_other_orientations_are_refused() -> None:
    with pytest.raises(fxgrad.errors.ArgumentError) as caught:
        fxgrad.draw(np.sin, orientation="left")
    assert str(caught.value).startswith(
        "draw: there is no orientation 'left'; take orientation='down' or 'right'\n  at test_rows.py:")


def test_g12_lines_between_values_name_the_operation_and_its_derivative() -> None:
    x, y = 1.0, 2.0
    drawn = EXAMPLES["wave"].draw(view="value", derivatives=True).picture
    labels = {box.key: box.label for box in drawn.boxes}
    found = {(labels[line.source], labels[line.target]): line.label for line in drawn.lines}
    result = drawn.boxes[-1].label
    assert found == {("x", "sin(x)"): f"sin: {np.cos(x):.4g}", ("x", "x+y"): "+: 1", ("y", "x+y"): "+: 1",
                     ("x+y", result): f"*: {np.sin(x):.4g}", ("sin(x)", result): f"*: {x + y:.4g}"}
    plain = EXAMPLES["wave"].draw(view="value").picture
    assert sorted(line.label for line in plain.lines) == ["*", "*", "+", "+", "sin"]


def test_g13_inputs_are_blue_circles_parameters_orange_ones_and_what_is_computed_yellow_squares() -> None:
    options = {"view": "value", "roles": {"params": ["W*", "b*"]}}
    dot = str(EXAMPLES["perceptron"].draw(style="dot", **options))
    looks = {match[1]: (match[2], match[3]) for match in re.finditer(
        r'label="(\w+)(?:\\n[^"]*)?", shape=(\w+), style="filled", fillcolor="(#\w+)"', dot)}
    blue, orange, yellow = "#a8d1f7", "#ffc98a", "#ffe97f"
    assert {name for name, look in looks.items() if look == ("circle", blue)} == {"x", "y"}
    assert {name for name, look in looks.items() if look == ("circle", orange)} == {"W1", "b1", "W2", "b2"}
    assert {name for name, look in looks.items() if look == ("square", yellow)} >= {"h", "L"}
    assert {color for shape, color in looks.values() if shape != "circle"} == {yellow}

    drawing = ET.fromstring(str(EXAMPLES["perceptron"].draw(style="svg", **options)))
    shapes: dict[str, set[str]] = {}
    for group in drawing.iter(f"{SVG}g"):
        if "data-box" in group.attrib:
            shape, = [each for each in group if "fxp-shape" in each.get("class", "")]
            shapes.setdefault(group.attrib["class"], set()).add(f"{shape.tag.removeprefix(SVG)} {shape.get('fill')}")
    assert shapes == {"fxp-input": {f"circle {blue}"}, "fxp-parameter": {f"circle {orange}"},
                      "fxp-operation": {f"rect {yellow}"}}
    other = str(EXAMPLES["perceptron"].draw(style="dot", theme={"input": "#00ff00"}, **options))
    assert "#00ff00" in other
    assert blue not in other


def test_g16_v7_a_network_shows_layers_and_opens_them() -> None:
    example = EXAMPLES["network"]
    closed = example.draw(view="network", roles={"params": "params"})
    layers = [box for box in closed.picture.boxes if box.kind == "layer"]
    assert [box.label for box in layers] == ["layer0", "layer1", "layer2"]
    assert layers[1].details == ("params[1].W: f64[4,4]", "params[1].b: f64[4]", "3 operations")
    assert closed.picture.caption == "3 layers, 12 operations"
    assert "3 layers, 12 operations" in str(closed)
    assert len(example.graph().operations) == 12
    flow = {(line.source, line.target) for line in closed.picture.lines}
    keys = [box.key for box in layers]
    assert {(keys[0], keys[1]), (keys[1], keys[2])} <= flow

    opened = example.draw(view="network", expand="layer1", roles={"params": "params"}).picture
    assert [box.label for box in opened.boxes if box.kind == "layer"] == ["layer0", "layer2"]
    inside, = [cluster for cluster in opened.clusters if cluster.title == "layer1"]
    assert [box.label for box in opened.boxes if box.cluster == inside.key] == ["params[1].W", "params[1].b",
                                                                                "@", "+", "tanh"]
    everything = example.draw(view="network", expand=True).picture
    assert sum(box.kind == "operation" for box in everything.boxes) == 12


def test_g16_functions_that_the_traced_one_calls_are_layers() -> None:
    def layer(x, W):
        return np.tanh(x @ W)

    def model(x, W1, W2):
        return np.sum(layer(layer(x, W1), W2))

    drawn = fxgrad.draw(model, view="network")(np.ones((2, 3)), np.ones((3, 3)), np.ones((3, 3))).picture
    assert [(box.label, box.details) for box in drawn.boxes if box.kind == "layer"] == [
        ("layer", ("W1: f64[3,3]", "2 operations")), ("layer", ("W2: f64[3,3]", "2 operations"))]
    alone = fxgrad.draw(lambda x, W1: layer(x, W1), view="network")(np.ones((2, 3)), np.ones((3, 3)))
    assert alone.picture.caption == "1 layer, 2 operations"


def test_g16_layers_do_not_depend_on_each_other_in_a_circle() -> None:
    def dense(x, W):
        return np.tanh(x @ W)

    def block(x, W):
        x = x * 2.0 + dense(x, W)
        return np.sin(x) + dense(x, W)

    def model(x, W):
        with fxgrad.named_scope("first"):
            x = block(x, W)
        x = x + 1.0
        with fxgrad.named_scope("first"):
            return block(x, W)

    for function, count in ((block, 2), (model, 2), (lambda x, W: block(block(x, W), W), 7)):
        drawn = fxgrad.draw(function, view="network")(np.ones((3, 3)), np.ones((3, 3))).picture
        assert nx.is_directed_acyclic_graph(as_networkx(drawn))
        assert sum(box.kind == "layer" for box in drawn.boxes) == count


def test_g16_functions_that_take_turns() -> None:
    def first(x):
        first.kept = np.sin(x)
        yield
        yield np.cos(second.kept) * first.kept

    def second(y):
        second.kept = np.tanh(y)
        yield
        yield np.exp(first.kept) * second.kept

    def model(x, y):
        one, other = first(x), second(y)
        next(one), next(other)
        return next(one) + next(other)

    drawn = fxgrad.draw(model, view="network")(1.0, 2.0)
    assert [box.label for box in drawn.picture.boxes if box.kind == "layer"] == ["first", "second"]
    assert sum(line.is_upward for line in drawn.picture.lines) == 1
    assert "^" in str(drawn)


@pytest.mark.parametrize("name", ["product", "wave", "perceptron", "attention", "choice", "recurrent"])
def test_v8_both_passes_in_one_picture(name: str) -> None:
    drawn = EXAMPLES[name].draw(show="joint", values=True).picture
    boxes = {box.key: box for box in drawn.boxes}
    backward = [box for box in drawn.boxes if box.part == "backward"]
    assert backward
    for box in backward:
        assert box.twin in boxes, box
        assert boxes[box.twin].part == "forward"
        assert boxes[box.twin].kind == box.kind
    kinds = {line.kind for line in drawn.lines}
    assert kinds == {"forward", "gradient", "saved"}
    for line in drawn.lines:
        ends = boxes[line.source].part, boxes[line.target].part
        assert ends == {"forward": ("forward", "forward"), "gradient": ("backward", "backward"),
                        "saved": ("forward", "backward")}[line.kind]
    valued = [box for box in drawn.boxes if box.kind == "value"]
    assert all(any(detail.startswith("= ") for detail in box.details) for box in valued)


@pytest.mark.slow
def test_v8_every_gradient_belongs_to_something() -> None:
    """Of functions of many kinds: each box of the backward pass has one of the forward pass, and all can be drawn."""
    for function, args in CASES:
        if function.__name__ in ("branch_of_python", "conditional_expression"):  # which need values to be traced
            continue
        for view in ("bipartite", "value", "op", "network"):
            drawing = fxgrad.draw(function, view=view, show="joint")(*args)
            boxes = {box.key: box for box in drawing.picture.boxes}
            if view == "bipartite":
                alone = [box.label for box in boxes.values() if box.part == "backward" and box.twin not in boxes]
                assert not alone, function.__name__
            assert all(line.source in boxes and line.target in boxes for line in drawing.picture.lines)
            assert str(drawing).isascii()
            opened = fxgrad.draw(function, view=view, expand=True, style="svg")(*args)
            ET.fromstring(str(opened))


def test_v8_the_numbers_of_the_product() -> None:
    drawn = EXAMPLES["product"].draw(show="joint", values=True).picture
    values = {box.label: box.details for box in drawn.boxes if box.kind == "value"}
    assert values == {"x": ("= 2", "d = 4"), "y": ("= 3", "d = 4"), "w": ("= 4", "d = 5"), "x+y": ("= 5", "d = 4"),
                      "z": ("= 20", "d = 1"), "d_z": ("= 1",), "d_w": ("= 5",), "d_x, d_y": ("= 4",)}


@pytest.mark.parametrize("name", ["wave", "branching", "perceptron", "cross_entropy", "attention"])
def test_v8_gradients_on_nodes_are_those_of_the_backward_pass(name: str) -> None:
    """And both are those of `grad`."""
    example, rng = EXAMPLES[name], np.random.default_rng(0)
    args = [arg if isinstance(arg, int) else rng.normal(size=np.shape(arg))[()] for arg in example.args]
    drawn = fxgrad.draw(example.function, show="joint", values=True)(*args).picture
    boxes = {box.label: box for box in drawn.boxes if box.kind == "value"}
    compared = 0
    for label, box in boxes.items():
        if box.part == "forward" and f"d_{label}" in boxes:
            assert box.details[-1].removeprefix("d ") == boxes[f"d_{label}"].details[-1], label
            compared += 1
    assert compared >= 2
    names = [node.name for node in fxgrad.graph(example.function)(*args).inputs]
    moving = tuple(number for number, arg in enumerate(args) if not isinstance(arg, int))
    for number, expected in zip(moving, fxgrad.grad(example.function, argnums=moving)(*args), strict=True):
        assert boxes[names[number]].details[-1] == f"d = {number_label(expected)}"


def test_w1_wave_has_three_operations() -> None:
    drawn = EXAMPLES["wave"].draw().picture
    assert sorted(box.label for box in drawn.boxes if box.kind == "operation") == ["*", "+", "sin"]


def test_w5_the_two_paths_of_b_and_the_one_of_a() -> None:
    graph = EXAMPLES["branching"].graph()
    of_b = graph.paths("b", "e")
    of_a = graph.paths("a", "e")
    assert (len(of_a), len(of_b)) == (1, 2)

    def marked(highlight: object) -> set[str]:
        drawn = fxgrad.draw(graph, highlight=highlight).picture
        assert all(line.is_marked == {line.source, line.target}.issubset(
            {box.key for box in drawn.boxes if box.is_marked}) for line in drawn.lines)
        return {box.label for box in drawn.boxes if box.is_marked}

    for way in of_b:  # in the picture of both passes, too, whose letters are others
        both = fxgrad.draw(graph, highlight=way, show="joint").picture
        assert {box.label for box in both.boxes if box.is_marked and box.kind == "value"} == {
            node.text.replace(" ", "") for node in way.nodes}
    assert marked(of_a[0]) == {"a", "+", "a+b", "*", "e"}
    assert marked(of_b) == {"b", "+", "a+b", "+ 1.0", "b+1.0", "*", "e"}
    assert "*b*" in str(fxgrad.draw(graph, highlight=of_b))


def test_w12_the_path_of_the_first_weights() -> None:
    graph = EXAMPLES["perceptron"].graph()
    path, = graph.paths("W1", "L")
    drawn = fxgrad.draw(graph, highlight=path, view="value").picture
    names = {box.key: box.label for box in drawn.boxes}
    way = [line for line in drawn.lines if line.is_marked]
    assert [names[way[0].source], *(names[line.target] for line in way)] == [node.name if node.is_named else
                                                                            names[f"v{node.index}"]
                                                                            for node in path.nodes]
    assert [line.label for line in way] == ["@", "+", "maximum(·, 0.0)", "@", "+", "-", "** 2", "mean"]


def test_v8_operations_of_one_line_are_told_apart() -> None:
    """`np.mean((y - y_hat) ** 2)` is a sum and a division; what is kept for its gradient is neither."""
    drawn = EXAMPLES["perceptron"].draw(show="joint", view="op").picture
    labels = {box.key: box.label for box in drawn.boxes}
    found = {(box.label, labels[box.twin]) for box in drawn.boxes if box.part == "backward" and box.kind == "operation"}
    assert found == {("/ 5", "/ 5"), ("*", "** 2"), ("-", "-"), ("sum(axis=0)", "+"), (".T @", "@"), ("@ .T", "@"),
                     ("*", "maximum(·, 0.0)")}
