"""Trace observers, and tracing for transformations that rewrite recorded programs.

`observe_traces(observer)` calls a `TraceObserver` for each trace of a block. `trace_for_rewrite` traces a call whose
program is rewritten and run in place of the function; `rewrite_before_derivatives` does the same to functions
differentiated within it. `trace_flat` traces a function of flat lists.
"""

from fxgrad.engine.api.arguments import static_positions
from fxgrad.engine.api.compiled import is_jitted_frame, jit_options
from fxgrad.engine.api.programs import program_of
from fxgrad.engine.api.reverse import rewrite_before_derivatives
from fxgrad.engine.frontend.calling import trace_for_rewrite
from fxgrad.engine.frontend.flat import TracedCall, trace_flat
from fxgrad.engine.tracing.observers import Run, TraceObserver, observe_traces
from fxgrad.engine.tracing.provenance import note_provenance
from fxgrad.engine.tracing.tape import Tape
from fxgrad.engine.tracing.trace import SELECTIVE, WITH_LITERALS
from fxgrad.engine.user_lines import hide_launcher, is_user_file, user_line

__all__ = ["Run", "SELECTIVE", "Tape", "TraceObserver", "TracedCall", "WITH_LITERALS", "hide_launcher",
           "is_jitted_frame", "is_user_file", "jit_options",
           "note_provenance", "observe_traces", "program_of", "rewrite_before_derivatives", "static_positions",
           "trace_flat", "trace_for_rewrite", "user_line"]
