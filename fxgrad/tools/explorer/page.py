"""`visualize`: the page itself, put together of the data and of the files in `assets`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from fxgrad.errors import FxgradError
from fxgrad.extend import Program, hide_frames, transformation
from fxgrad.text.html import DARK_PAGES, LIGHT_PAGES
from fxgrad.text.text_writer import program_text
from fxgrad.tools.explorer.items import Items
from fxgrad.tools.explorer.stages import ProgramStage, places_of_program, stages_of
from fxgrad.tools.graphs.graph import Graph, graph_of_call
from fxgrad.tools.graphs.roles import Roles, annotated_roles
from fxgrad.tools.profiling.fusion import fusions_of_program


class Page:
    """One HTML file: `html` is its text, `save` writes it, and notebooks display it."""

    def __init__(self, title: str, html: str) -> None:
        self.title, self.html = title, html

    def save(self, path: str | Path) -> Path:
        """Write the file, and returns its path."""
        written = Path(path)
        written.write_text(self.html, encoding="utf-8")
        return written

    def __repr__(self) -> str:
        return f"<explorer of {self.title}: {len(self.html):,} characters of HTML; .save('{self.title}.html')>"

    def _repr_html_(self) -> str:
        # The page takes the colors of the frame's scheme, which is that of the notebook, whatever the system's is.
        return (f'<iframe class="fxgrad-page" srcdoc="{escape(self.html)}" style="width: 100%; height: 640px; '
                'border: 0"></iframe><style>.fxgrad-page { color-scheme: light dark; }\n'
                f":is({LIGHT_PAGES}) .fxgrad-page {{ color-scheme: light; }}\n"
                f":is({DARK_PAGES}) .fxgrad-page {{ color-scheme: dark; }}</style>")


def visualize(fun: Callable[..., Any] | Program, argnums: int | Sequence[int] = 0) -> Any:
    """Return a function that traces `fun` and returns the explorer as a `Page`; for a `Program`, the page itself.

    The page shows the graph, which pans, zooms, collapses (scopes, loops, branches and calls) and can be searched; for
    each value its type, line, number and gradient; gradients, flops and bytes as a heat map; the graph of the gradient
    in the arguments at `argnums`, forward and backward linked; what XLA computes together, with the bytes that are
    moved one by one and together; and every stage from the recording over the gradient, the NumPy file and StableHLO to
    XLA's program, two side by side if you like, where a click on a line marks what is of the same line of yours in all
    of them. It is one file, and loads nothing.

    Arguments are those of `fxgrad.graph`; with shapes alone there are no values.

    >>> import fxgrad, numpy as np
    >>> page = fxgrad.visualize(lambda x: np.sum(np.sin(x)))(np.ones(3))
    >>> page.html.startswith("<!doctype html>"), "http" in page.html.split("<script")[0]
    (True, False)
    """
    if isinstance(fun, Program):
        only = Graph(fun)
        shown = [("", line) for line in program_text(fun).splitlines()]
        return _page(only.title or "program", [("program", only)],
                     [ProgramStage("program", "The program.", shown, places_of_program(shown), fun)])

    @transformation("visualize", fun)
    @hide_frames
    def made(*args: Any, **kwargs: Any) -> Page:
        stages = stages_of(fun, argnums, args, kwargs)
        roles = {"params": [*annotated_roles(fun, len(args), argnums)]} if args else {}
        names = {"simplified": "function", "gradient, simplified": "gradient"}
        graphs = [(names[stage.name], graph_of_call(stage.program, roles, args, kwargs)) for stage in stages
                  if stage.program is not None and stage.name in names]
        last = next(stage.program for stage in reversed(stages) if stage.program is not None)
        return _page(graphs[0][1].title, [*graphs, *_fused(last, roles)], stages)
    return made


MAX_FUSED = 500
"""Equations up to which a program is compiled once more, to show what XLA computes together."""


def _fused(program: Program, roles: Roles) -> list[tuple[str, Graph]]:
    """Return the graph of the compiled program in boxes of what XLA computes together, if it compiles."""
    if len(program.equations) > MAX_FUSED:
        return []
    try:
        return [("fused", Graph(fusions_of_program(program).grouped_with_bytes, roles))]
    except (FxgradError, NotImplementedError, RuntimeError):  # the film says why it does not compile
        return []


def _page(title: str, graphs: Sequence[tuple[str, Graph]], stages: Sequence[ProgramStage]) -> Page:
    data = {"title": title, "stages": [stage.data() for stage in stages],
            "graphs": [{"name": name, **Items(each).data()} for name, each in graphs]}
    # JSON within HTML must not contain anything that looks like a tag.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Page(title, fill_template("page.html", {
        "title": escape(title), "page.css": None, "dagre.min.js": None, "page.js": None, "data": text}))


def fill_template(name: str, parts: Mapping[str, str | None]) -> str:
    """Return the asset of that name with its placeholders filled."""
    html = _asset(name)
    for place, text in parts.items():
        html = html.replace("{{" + place + "}}", _asset(place) if text is None else text)
    return html


def _asset(name: str) -> str:
    return resources.files("fxgrad.tools.explorer").joinpath("assets", name).read_text(encoding="utf-8")
