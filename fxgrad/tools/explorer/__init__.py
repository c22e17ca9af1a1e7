"""The explorer: a graph, its text and its stages in one HTML file that needs no server and no network."""

from __future__ import annotations

from fxgrad.tools.explorer.javascript import javascript
from fxgrad.tools.explorer.page import Page, visualize
from fxgrad.tools.explorer.playground import playground

__all__ = ["Page", "visualize", "javascript", "playground"]
