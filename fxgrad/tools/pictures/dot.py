"""Pictures in the language of Graphviz, and in that of Mermaid, which wikis and notebooks draw."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fxgrad.tools.pictures.picture import Box, Picture
from fxgrad.tools.pictures.theme import LINES, Paint, Theme, apply_theme

DOT_SHAPES = {"circle": "circle", "square": "square", "pill": "box"}
DOT_STYLES = {"forward": "solid", "gradient": "dashed", "saved": "dotted", "carry": "dashed"}
WIDEST_SQUARE = 5
"""Most characters of a label in a square; longer ones get rectangles."""


def dot_text(picture: Picture, theme: Theme | None = None) -> str:
    """Return the picture as text for `dot`.

    >>> box = Box("x", "x", shape="circle", role="input")
    >>> print(dot_text(Picture("", (box,), ())).splitlines()[3])
      "x" [label="x", shape=circle, style="filled", fillcolor="#a8d1f7", color="#0b5fa5"];
    """
    lines = [f"digraph {_quoted(picture.title or 'program')} {{",
             '  node [fontname="monospace", fontsize=12, margin="0.08,0.04", height=0.4, width=0.4];',
             '  edge [fontname="monospace", fontsize=9, arrowsize=0.7];']
    if picture.orientation == "right":
        lines.append("  rankdir=LR;")
    palette = apply_theme(theme)[0]
    lines += _dot_boxes(picture, "", palette, "  ")
    for line in picture.lines:
        above, below = line.ends
        look = "marked" if line.is_marked else line.kind
        told = [f'color="{LINES[look][0]}"', *([f"style={DOT_STYLES[line.kind]}"] if line.kind != "forward" else []),
                *(["dir=back"] if line.is_upward else []), *(["penwidth=2.5"] if line.is_marked else []),
                *([f"label={_quoted(line.label)}"] if line.label else [])]
        lines.append(f"  {_quoted(above)} -> {_quoted(below)} [{', '.join(told)}];")
    for box in picture.boxes:
        if box.twin:
            lines.append(f'  {_quoted(box.twin)} -> {_quoted(box.key)} [style=dotted, dir=none, constraint=false, '
                         f'color="{LINES["twin"][0]}"];')
    if picture.caption:
        lines.insert(1, f"  label={_quoted(picture.caption)};")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_boxes(picture: Picture, cluster: str, palette: Mapping[str, Paint], indent: str) -> Iterator[str]:
    for box in picture.boxes:
        if box.cluster == cluster:
            yield indent + _dot_box(box, palette)
    for inner in picture.clusters:
        if inner.parent == cluster:
            yield f"{indent}subgraph {_quoted(f'cluster {inner.key}')} {{"
            yield f'{indent}  label={_quoted(inner.title)}; style="rounded"; color="#a8b0b9"; fontname="monospace";'
            yield from _dot_boxes(picture, inner.key, palette, indent + "  ")
            yield f"{indent}}}"


def _dot_box(box: Box, palette: Mapping[str, Paint]) -> str:
    paint = palette[box.role]
    shape = DOT_SHAPES[box.shape]
    if shape == "square" and len(box.label) > WIDEST_SQUARE:
        shape = "box"
    style = "filled,rounded" if box.shape == "pill" else "filled"
    text = "\n".join([box.label, *box.details])
    told = [f"label={_quoted(text)}", f"shape={shape}", f'style="{style}"',
            f'fillcolor="{paint.fill}"', f'color="{paint.stroke}"',
            *(["penwidth=3"] if box.is_marked else []), *([f"tooltip={_quoted(box.note)}"] if box.note else [])]
    return f"{_quoted(box.key)} [{', '.join(told)}];"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# --- Mermaid --------------------------------------------------------------------------------------------------------

MERMAID_SHAPES = {"circle": ("((", "))"), "square": ("[", "]"), "pill": ("([", "])")}
MERMAID_ARROWS = {"forward": "-->", "gradient": "-.->", "saved": "-.->", "carry": "-.->"}


def mermaid_text(picture: Picture, theme: Theme | None = None) -> str:
    """Return the picture as a Mermaid flow chart.

    >>> print(mermaid_text(Picture("", (Box("x", "x", shape="circle", role="input"),), ())).splitlines()[1])
      x(("x")):::input
    """
    lines = [f"flowchart {'LR' if picture.orientation == 'right' else 'TD'}", *_mermaid_boxes(picture, "", "  ")]
    marked = []
    for number, line in enumerate(picture.lines):
        label = f"|{_escape(line.label)}|" if line.label else ""
        lines.append(f"  {_identifier(line.source)} {MERMAID_ARROWS[line.kind]}{label} {_identifier(line.target)}")
        marked += [number] if line.is_marked else []
    used = {box.role for box in picture.boxes}
    lines += [f"  classDef {role} fill:{paint.fill},stroke:{paint.stroke},color:{paint.text};"
              for role, paint in apply_theme(theme)[0].items() if role in used]
    if marked:
        lines.append(f"  linkStyle {','.join(map(str, marked))} stroke:{LINES['marked'][0]},stroke-width:3px;")
    return "\n".join(lines) + "\n"


def _mermaid_boxes(picture: Picture, cluster: str, indent: str) -> Iterator[str]:
    for box in picture.boxes:
        if box.cluster == cluster:
            opening, closing = MERMAID_SHAPES[box.shape]
            text = _escape("\n".join([box.label, *box.details])).replace("#10;", "<br/>")
            yield f"{indent}{_identifier(box.key)}{opening}{text}{closing}:::{box.role}"
    for inner in picture.clusters:
        if inner.parent == cluster:
            yield f"{indent}subgraph {_identifier(inner.key)}_frame [{_escape(inner.title)}]"
            yield from _mermaid_boxes(picture, inner.key, indent + "  ")
            yield f"{indent}end"


def _identifier(key: str) -> str:
    return re.sub(r"\W", "_", key)


def _escape(text: str) -> str:
    """Return text in quotes, with Mermaid's special characters as entities."""
    return '"' + "".join(char if char.isalnum() or char in " .,=_[]-" else f"#{ord(char)};" for char in text) + '"'
