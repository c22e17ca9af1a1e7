"""Reports on programs before they run: memory over time, cost by line, and fusion groups."""

from __future__ import annotations

from fxgrad.tools.profiling.costs import CostReport, LineCost, cost_analysis
from fxgrad.tools.profiling.fusion import FusionGroup, Fusions, fusions
from fxgrad.tools.profiling.memory import memory_analysis
from fxgrad.tools.profiling.report import Holder, Memory, Peak, Point, Saved, View

__all__ = ["CostReport", "FusionGroup", "Fusions", "Holder", "LineCost", "Memory", "Peak", "Point", "Saved", "View",
           "cost_analysis", "fusions", "memory_analysis"]
