"""Causes of retraces and recompilations: the difference between calls, and what to write."""

from __future__ import annotations

from fxgrad.tools.retracing.causes import RetraceCause
from fxgrad.tools.retracing.report import FunctionReport, RetraceReport, Stop
from fxgrad.tools.retracing.watching import Explained, explain_retraces

__all__ = ["Explained", "FunctionReport", "RetraceCause", "RetraceReport", "Stop", "explain_retraces"]
