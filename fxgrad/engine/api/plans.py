"""Plans: how a jitted function runs the calls of one key, and the table of plans by key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax

from fxgrad.engine.api.keys import Fits, Key, matches_nothing
from fxgrad.engine.api.static_arguments import Args, Kwargs
from fxgrad.engine.dtypes import DType
from fxgrad.engine.executors.xla import idle_scopes, x64


@dataclass(frozen=True, slots=True, eq=False)
class DispatchPlan:
    """The plan for all calls of one key: the executable, jax's x64 mode, conversions of arguments and results.

    `f = jit(np.sin)`, called with a NumPy array of three float64, gets this plan: call the executable that jax compiled
    for `f` alone, in the x64 scope, with the array unchanged, and return the result as a NumPy array. It fits all such
    calls.
    """

    executable: Callable[..., Any]
    scoped: bool
    """Whether it is called with jax's x64 mode on."""
    arguments: Callable[[Args, Kwargs], tuple[Args, Kwargs]] | None = None
    """Converts the arguments for the executable; None if it takes them unchanged."""
    results: Callable[[Any, Args, Kwargs], Any] | None = None
    """Converts results of the x64 scope for the caller; None if they are returned unchanged."""
    fits: Fits = matches_nothing
    """Whether a call has the key of this plan."""


def run(plan: DispatchPlan, args: Args, kwargs: Kwargs) -> Any:
    """Run a call by its plan and return its results."""
    given, named = args, kwargs
    if plan.arguments is not None:
        given, named = plan.arguments(args, kwargs)
    if not plan.scoped or jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        return plan.executable(*given, **named)
    try:
        scope = idle_scopes.pop()  # reused, since making one takes as long as entering it
    except IndexError:
        scope = x64()
    try:
        with scope:
            outputs = plan.executable(*given, **named) if named else plan.executable(*given)
    finally:
        idle_scopes.append(scope)
    return outputs if plan.results is None else plan.results(outputs, args, kwargs)


class DispatchPlans:
    """The plans of a jitted function under one default dtype, by the keys of calls.

    The `recent` ones are tried first, since making a key takes longer.
    """

    __slots__ = ("_by_key", "default", "recent")

    def __init__(self, default: DType | None) -> None:
        self.default = default
        self.recent: tuple[DispatchPlan, ...] = ()
        self._by_key: dict[Key, DispatchPlan] = {}

    def clear(self) -> None:
        """Drop all plans."""
        self.recent = ()
        self._by_key.clear()

    def find(self, key: Key) -> DispatchPlan | None:
        """Return the plan for calls of a key, if there is one."""
        plan = self._by_key.get(key)
        if plan is not None:
            self._move_to_front(plan, plan)
        return plan

    def enter(self, key: Key, plan: DispatchPlan) -> DispatchPlan:
        """Enter a plan for all calls of a key."""
        if len(self._by_key) >= _PLANS:
            self.clear()
        before, plan = self._by_key.get(key), replace(plan, fits=key.fits())
        self._by_key[key] = plan
        self._move_to_front(plan, before)
        return plan

    def _move_to_front(self, plan: DispatchPlan, before: DispatchPlan | None) -> None:
        self.recent = (plan, *[each for each in self.recent if each is not before][:_RECENT - 1])


_PLANS = 1024
"""The bound of a function's plans; evicted plans are made again, and jax's executables stay."""
_RECENT = 4
"""Trying more plans takes longer than making a key."""
