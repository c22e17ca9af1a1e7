"""The parts of fxgrad's engine that benches call: a commit to compare with may have them at their former places."""

from __future__ import annotations

try:
    from fxgrad.engine.core.avals import Aval
    from fxgrad.engine.frontend.flat import TracedCall, trace_flat
    from fxgrad.engine.tracing import interning
    from fxgrad.engine.tracing.apply import apply_program
    from fxgrad.engine.transforms.joint import grad_program
except ImportError:
    from fxgrad.core.avals import Aval  # type: ignore[import-not-found, no-redef]
    from fxgrad.frontend.flat import Traced as TracedCall  # type: ignore[import-not-found, no-redef]
    from fxgrad.frontend.flat import trace_flat  # type: ignore[import-not-found, no-redef]
    from fxgrad.tracing import interning  # type: ignore[import-not-found, no-redef]
    from fxgrad.tracing.apply import apply_program  # type: ignore[import-not-found, no-redef]
    from fxgrad.transforms.joint import grad_program  # type: ignore[import-not-found, no-redef]

__all__ = ["Aval", "TracedCall", "apply_program", "grad_program", "interning", "trace_flat"]
