"""A page that trains a small network: values, gradients, weights, and its predictions over the plane."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fxgrad import make_program, tree, value_and_grad
from fxgrad.errors import ArgumentError
from fxgrad.extend import at_user_line
from fxgrad.text.text_writer import program_text
from fxgrad.tools.explorer.javascript import javascript
from fxgrad.tools.explorer.page import Page, fill_template
from fxgrad.tools.granularity.scalarize import scalarize

MOST = 8
"""Most layers, and most nodes of a layer, that the page can show clearly."""


def playground(hidden: Sequence[int] = (4, 3), *, seed: int = 0) -> Page:
    """Return a page where a network of two inputs, tanh layers of `hidden` nodes and one output learns to classify.

    The reader chooses the points and the rate, and trains continuously or step by step. Every node shows its value at
    the selected point and the gradient of the loss in it; lines show weights. The page runs the program of
    `fxgrad.value_and_grad`, in scalars, as JavaScript: it is one file that loads nothing. `seed` is the seed of the
    weights.

    Raises `ArgumentError` for more than eight layers, and for layers of fewer than one or more than eight nodes.

    >>> page = playground((3,))
    >>> page
    <explorer of playground: ... characters of HTML; .save('playground.html')>
    """
    sizes = [2, *hidden, 1]
    if len(sizes) > MOST + 2 or not all(1 <= size <= MOST for size in sizes):
        raise ArgumentError(at_user_line(
            f"playground: hidden={tuple(hidden)}, where at most {MOST} layers of 1 to {MOST} nodes are needed, "
            "such as hidden=(4, 3)"))
    generator = np.random.default_rng(seed)
    params = [{"weights": generator.normal(size=pair) / np.sqrt(pair[0]), "bias": np.zeros(pair[1])}
              for pair in pairwise(sizes)]
    taps = [np.zeros(size) for size in sizes[1:]]
    step = make_program(value_and_grad(network, argnums=(0, 1), has_aux=True))(params, taps, np.zeros(2), 1.0)
    data = {"sizes": sizes, "params": [float(value) for leaf in tree.leaves(params) for value in np.ravel(leaf)]}
    loss = make_program(lambda params, x, y: network(params, taps, x, y)[0])(params, np.zeros(2), 1.0)
    return Page("playground", fill_template("playground.html", {
        "title": "playground", "playground.css": None, "playground.js": None,
        "step": javascript(scalarize(step), "step"), "program": program_text(loss, source=False),
        "data": json.dumps(data)}))


def network(params: Any, taps: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Return the loss at one point, and the values of all layers; the zeros `taps` are added to them.

    The gradients in the taps are those in the values.
    """
    values = []
    for layer, tap in zip(params, taps, strict=True):
        x = np.tanh(x @ layer["weights"] + layer["bias"]) + tap
        values.append(x)
    return (x[0] - y) ** 2, values
