"""X-rays of programs before they run: where memory goes, what is computed where, and what a compiler fuses."""

from __future__ import annotations

from fxgrad.xray.costs import CostReport, LineCost, cost
from fxgrad.xray.fusion import FusionGroup, Fusions, fusions
from fxgrad.xray.memory import memory
from fxgrad.xray.report import Holder, Memory, Peak, Point, Saved, View

__all__ = ["CostReport", "FusionGroup", "Fusions", "Holder", "LineCost", "Memory", "Peak", "Point", "Saved", "View",
           "cost", "fusions", "memory"]
