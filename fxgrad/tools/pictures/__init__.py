"""Pictures of programs: views of the computational graph, and the styles in which they are drawn."""

from __future__ import annotations

from fxgrad.tools.pictures.drawing import Drawing, draw
from fxgrad.tools.pictures.picture import Box, Cluster, Line, Picture

__all__ = ["Box", "Cluster", "Drawing", "Line", "Picture", "draw"]
