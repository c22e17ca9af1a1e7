"""What `draw` says to what it cannot draw, in full."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

import fxgrad
from fxgrad.errors import ArgumentError, ConcretizationError, UnsupportedError


def product(x, y, w):
    z = (x + y) * w
    return z


def signed(x):
    return x if x > 0 else -x


def rounded(n):
    return n // 2


ARGS = 2.0, 3.0, 4.0
OTHER = fxgrad.graph(lambda x: x * 2.0)(1.0)
PROGRAM = fxgrad.make_program(product)(*ARGS)

CASES: dict[str, tuple[type[Exception], Callable[[], object], str]] = {
    "a view": (ArgumentError, lambda: fxgrad.draw(product, view="tree"),
               "draw: there is no view 'tree'; take view='bipartite', 'value', 'op' or 'network'"),
    "a style": (ArgumentError, lambda: fxgrad.draw(product, style="png"),
                "draw: there is no style 'png'; take style='ascii', 'svg', 'dot', 'mermaid' or 'html'"),
    "what to show": (ArgumentError, lambda: fxgrad.draw(product, show="both"),
                     "draw: there is no show 'both'; take show='forward', 'backward' or 'joint'"),
    "a role": (ArgumentError, lambda: fxgrad.draw(product, roles={"weights": "w"})(*ARGS),
               ("infer_roles: there is no role 'weights'; a leaf is one of params, inputs, labels, constants. "
               "Write roles={'params': 'W*'}")),
    "the name of a role": (ArgumentError, lambda: fxgrad.draw(product, roles={"params": "W*"})(*ARGS),
                           "infer_roles: no input of product is called 'W*'; its inputs are x, y, w"),
    "a colour": (ArgumentError, lambda: fxgrad.draw(product, theme={"weights": "#000000"}),
                 ("draw: the theme has no role 'weights'; it colours input, parameter, operation, intermediate, "
                  "output, constant, label, gradient, tangent, layer, cluster")),
    "a node": (ArgumentError, lambda: fxgrad.draw(product, highlight="v")(*ARGS),
               "no node of <graph of product: 5 nodes, 4 edges, 2 operations> is called 'v'; there are x, y, w, a, z"),
    "a node of another graph": (
        ArgumentError, lambda: fxgrad.draw(PROGRAM, highlight=OTHER["x"]),
        ("the node x is of another graph (<graph of function: 3 nodes, 2 edges, 1 operations>); this is "
        "<graph of product: 5 nodes, 4 edges, 2 operations>. Take it by its name, graph['x']")),
    "a layer": (ArgumentError, lambda: fxgrad.draw(product, view="network", expand="dense")(*ARGS),
                "draw: product has no layer called 'dense' to expand; it has none"),
    "an operation": (ArgumentError, lambda: fxgrad.draw(lambda x: fxgrad.nn.relu(x), expand="gelu")(1.0),
                     "draw: function has no operation that holds a program called 'gelu' to expand; take 'relu'"),
    "values of a program": (
        ArgumentError, lambda: fxgrad.draw(PROGRAM, values=True),
        ("draw: values=True needs the numbers of <graph of product: 5 nodes, 4 edges, 2 operations>, which was made of "
        "a program, or of shapes alone. Write fxgrad.draw(f, ...)(*arrays), or fxgrad.draw(graph.with_values(*arrays), "
        "...)")),
    "derivatives of a program": (
        ArgumentError, lambda: fxgrad.draw(PROGRAM, derivatives=True),
        ("draw: derivatives=True needs the numbers of <graph of product: 5 nodes, 4 edges, 2 operations>, which was "
        "made of a program, or of shapes alone. Write fxgrad.draw(f, ...)(*arrays), or fxgrad.draw("
        "graph.with_values(*arrays), ...)")),
    "gradients of integers": (
        ArgumentError, lambda: fxgrad.draw(rounded, show="joint")(5),
        ("draw: show='joint' needs an argument and a result with derivatives, and rounded takes n: i64*[] and returns "
        "i64*[]; draw it with show='forward'")),
    "the ending of a file": (
        ArgumentError, lambda: fxgrad.draw(PROGRAM).save("picture.png"),
        ("draw: a file that ends with '.png' is none of a picture; save it as .svg, .dot, .gv, .mmd, .mermaid, .html, "
        ".htm or .txt")),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case: str) -> None:
    expected, call, text = CASES[case]
    with pytest.raises(expected) as caught:
        call()
    message, _, place = str(caught.value).partition("\n")
    assert message == text
    assert not place or re.search(r"test_picture_errors\.py", place)


def test_a_function_that_needs_values_to_be_traced() -> None:
    with pytest.raises(ConcretizationError) as caught:
        fxgrad.draw(signed)(fxgrad.ShapeDtypeStruct((), float))
    message = str(caught.value)
    assert re.sub(r":\d+", ":LINE", message) == (
        "bool() needs the value of a traced array (bool[]) in signed, which is traced without values. It depends on: "
        "x. Write fxgrad.numpy.where(condition, a, b) to choose between values, fxgrad.lax.cond, while_loop or "
        "fori_loop to choose or repeat pieces of code, or make the argument static (static_argnums). "
        "fxgrad.python_control_flow(f) compiles the `if`, `for` and `while` of f\n"
        "  at test_picture_errors.py:LINE (in signed)")


@pytest.mark.parametrize("style", ["svg", "html"])
def test_without_the_library_for_layouts(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphlay", None)
    drawing = fxgrad.draw(product, style=style)(*ARGS)
    with pytest.raises(UnsupportedError) as caught:
        str(drawing)
    assert str(caught.value).split("\n")[0] == (
        "draw: a picture as SVG or HTML is laid out by graphlay, which is not installed; "
        "write pip install 'fxgrad[draw]', or take style='ascii', which needs nothing")
    assert drawing._repr_html_() is drawing._repr_svg_() is None, "notebooks show the text"
    assert drawing.text("dot").startswith("digraph")
    assert drawing.text("mermaid").startswith("flowchart")
