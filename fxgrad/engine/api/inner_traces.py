"""Traces of a jitted function inside other transformations: one for each kind of arguments, as in jax."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxgrad.engine.api.jitted_calls import JittedCall
from fxgrad.engine.api.reverse import before_derivatives
from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.config import default_float
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.derivation.derive import holds_tracers
from fxgrad.engine.executors.xla import jax_axis_size, record_axis_uses
from fxgrad.engine.frontend.flat import TracedCall
from fxgrad.engine.tracing.tape import axes_in_scope
from fxgrad.engine.tracing.trace import SHARED, Mode, takes_literals

_TRACES = 256


class InnerTraces:
    """Traces of a jitted function, by all that its recording depends on except closed-over values.

    Closed-over values are constants of a jitted function. A trace that closed over a tracer is valid for one call only.
    """

    __slots__ = ("_traces",)

    def __init__(self) -> None:
        self._traces = BoundedDict(_TRACES)

    def of(self, call: JittedCall, avals: Sequence[Aval], make: Callable[[Mode], TracedCall]) -> TracedCall:
        """Return the trace of a call; `make(mode)` makes it."""
        literals = takes_literals()
        rewriting = before_derivatives.get()  # seen by functions that differentiate inside
        key = (call.split.structure, *avals, literals, default_float(), rewriting, *axes_in_scope().items(),
               *call.static)
        try:
            known: tuple[TracedCall, dict[str, int]] | None = self._traces.get(key)
        except TypeError:  # some containers and static arguments have no equality
            return make(SHARED._replace(literals=literals))
        if known is not None and all(jax_axis_size(name) == size for name, size in known[1].items()):
            return known[0]
        self._traces.pop(key, None)
        with record_axis_uses() as axes:
            traced = make(SHARED._replace(literals=literals))
        if not holds_tracers(traced.captured):
            self._traces.add(key, (traced, axes))
        return traced

    def clear(self) -> None:
        """Forget all traces."""
        self._traces.clear()
