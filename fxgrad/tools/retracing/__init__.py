"""Why functions are traced and compiled again: what was new in a call, and what to write."""

from __future__ import annotations

from fxgrad.tools.retracing.causes import Cause
from fxgrad.tools.retracing.report import Explanation, FunctionReport, Stop
from fxgrad.tools.retracing.watching import Explained, explain, explaining

__all__ = ["Cause", "Explained", "Explanation", "FunctionReport", "Stop", "explain", "explaining"]
