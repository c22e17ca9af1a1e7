"""Colours of pictures by role: a light and a dark palette, both safe for colour blindness."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from fxgrad.errors import ArgumentError
from fxgrad.extend import at_user_line


class Paint(NamedTuple):
    """The colours of a box: fill, border, text."""

    fill: str
    stroke: str
    text: str


MIDDLE = 128
"""The brightness that separates backgrounds for light text from those for dark text."""
Theme = Mapping[str, "str | Paint"]

LIGHT: dict[str, Paint] = {
    "input": Paint("#a8d1f7", "#0b5fa5", "#10202e"),
    "parameter": Paint("#ffc98a", "#b85c00", "#2e1d08"),
    "operation": Paint("#ffe97f", "#9a7b00", "#2b2505"),
    "intermediate": Paint("#ffffff", "#7d8590", "#1f2328"),
    "output": Paint("#ffffff", "#1f2328", "#1f2328"),
    "constant": Paint("#e7eaed", "#7d8590", "#1f2328"),
    "label": Paint("#b8e6cb", "#00785a", "#062a1e"),
    "gradient": Paint("#f6cfe3", "#a8326e", "#33101f"),
    "tangent": Paint("#d9d0f2", "#5b43a8", "#1d1438"),
    "layer": Paint("#eef3f8", "#4a6a8a", "#14202b"),
    "cluster": Paint("#f6f8fa", "#a8b0b9", "#57606a"),
}
DARK: dict[str, Paint] = {
    "input": Paint("#0f4c81", "#6cb6f5", "#eef6fd"),
    "parameter": Paint("#7f4100", "#ffb566", "#fff3e6"),
    "operation": Paint("#665400", "#f2d64b", "#fffbe0"),
    "intermediate": Paint("#22272e", "#8b949e", "#e6edf3"),
    "output": Paint("#22272e", "#e6edf3", "#e6edf3"),
    "constant": Paint("#373e47", "#8b949e", "#e6edf3"),
    "label": Paint("#05533f", "#4fd1a5", "#e3fbf2"),
    "gradient": Paint("#6b1f46", "#f08fbd", "#fdeaf3"),
    "tangent": Paint("#3d2f73", "#b3a1f0", "#f0ecfd"),
    "layer": Paint("#25303b", "#86a5c4", "#e6edf3"),
    "cluster": Paint("#191e24", "#545d68", "#9aa4af"),
}
LINES = {"forward": ("#57606a", "#9aa4af"), "gradient": ("#a8326e", "#f08fbd"), "saved": ("#8c6d1f", "#c9a94a"),
         "carry": ("#5b43a8", "#b3a1f0"), "marked": ("#c62f1d", "#ff7b6b"), "twin": ("#b9c0c8", "#545d68")}
"""Colours of lines by kind, on light and on dark ground."""


def apply_theme(theme: Theme | None) -> tuple[dict[str, Paint], dict[str, Paint]]:
    """Return the light and the dark palette with the changes of `theme`.

    A colour alone is the fill, in both palettes; if it is written as `#00ff00`, the text colour is chosen to be
    readable on it. Raises `ArgumentError` for an unknown role.

    >>> apply_theme({"input": "#00ff00"})[0]["input"]
    Paint(fill='#00ff00', stroke='#0b5fa5', text='#10202e')
    """
    light, dark = dict(LIGHT), dict(DARK)
    for role, paint in (theme or {}).items():
        if role not in LIGHT:
            raise ArgumentError(at_user_line(
                f"draw: the theme has no role {role!r}; it colours {', '.join(LIGHT)}"))
        for palette in (light, dark):
            if isinstance(paint, Paint):
                palette[role] = paint
            else:
                bright = _is_bright(paint)
                readable = palette if bright is None else LIGHT if bright else DARK
                palette[role] = palette[role]._replace(fill=paint, text=readable[role].text)
    return light, dark


def _is_bright(color: str) -> bool | None:
    """Return whether dark text is readable on a colour; None if it is not written as `#00ff00`."""
    if not re.fullmatch("#[0-9a-fA-F]{6}", color):
        return None
    red, green, blue = [int(color[at:at + 2], 16) for at in (1, 3, 5)]
    return 0.299 * red + 0.587 * green + 0.114 * blue > MIDDLE
