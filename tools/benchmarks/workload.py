"""What a workload is: peers that compute the same, and the bars that fxgrad is held to against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from benchmarks.places import interning

OURS = "fxgrad"


AGAIN = "jax.jit again"
"""A second compile of what jax.jit runs: how far its time is from the first's is what the figures cannot tell."""


def forget_programs() -> None:
    """Empties fxgrad's table of programs; what is known of single operations stays, as for the other libraries."""
    interning.clear()


def itself(value: Any) -> Any:
    """The result of a call as it is."""
    return value


def nothing() -> None:
    """A `prepare` that only makes every call timed by itself."""


@dataclass(frozen=True)
class Peer:
    """One library's way of doing the work: `call` is what is timed.

    `result` turns what `call` returned into arrays to be compared with those of the other peers, or is None for what
    has none, such as a part of the work. With `prepare`, which runs before every call outside the clock, every call is
    timed by itself. `memory` is the temporary memory in bytes, where the library tells it.
    """

    call: Callable[[], Any]
    result: Callable[[Any], Any] | None = itself
    prepare: Callable[[], None] | None = None
    memory: int | None = None


Peers = dict[str, Peer]
"""The peers of a workload by name; the first is fxgrad."""


class Verdict(NamedTuple):
    """How a bar was met: what is compared, the figure, the bar, and whether the figure is within it."""

    what: str
    figure: float
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether the figure is at the bar or better."""
        return self.figure <= self.limit


class Bar(Protocol):
    """A bound on the figures of fxgrad; `judge` gives None where the peer that it speaks of was left out."""

    def judge(self, times: Mapping[str, float], memory: Mapping[str, int]) -> Verdict | None: ...


@dataclass(frozen=True)
class Ratio:
    """At most `limit` times the time of `peer`, plus the time of `allowance` (another peer) where one is named.

    `plus` are microseconds more, for what a call takes whatever it computes. `of` names what is held to the bar, where
    fxgrad does the work in several ways.
    """

    peer: str
    limit: float
    allowance: str = ""
    plus: float = 0.0
    of: str = OURS

    def judge(self, times: Mapping[str, float], memory: Mapping[str, int]) -> Verdict | None:  # noqa: ARG002
        if self.peer not in times:
            return None
        extra = ((times[self.allowance] if self.allowance else 0.0) + self.plus) / times[self.peer]
        what = ("" if self.of == OURS else f"{self.of}: ") + f"time of {self.peer}" + (
            f" (+ {self.allowance})" if self.allowance else "") + (f" (+ {self.plus:g} µs)" if self.plus else "")
        return Verdict(what, times[self.of] / times[self.peer], self.limit + extra, "x")


@dataclass(frozen=True)
class Memory:
    """At most `limit` times the temporary memory of `peer`."""

    peer: str
    limit: float

    def judge(self, times: Mapping[str, float], memory: Mapping[str, int]) -> Verdict | None:  # noqa: ARG002
        if self.peer not in memory:
            return None
        # A function that needs no temporary memory at all is compared as if it needed one byte.
        return Verdict(f"memory of {self.peer}", memory[OURS] / max(memory[self.peer], 1), self.limit, "x")


@dataclass(frozen=True)
class Absolute:
    """At most `limit` microseconds for each of the `count` things (`each`) of a call."""

    limit: float
    count: int = 1
    each: str = "call"

    def judge(self, times: Mapping[str, float], memory: Mapping[str, int]) -> Verdict | None:  # noqa: ARG002
        return Verdict(f"microseconds per {self.each}", times[OURS] / self.count, self.limit, "µs")


@dataclass(frozen=True)
class Workload:
    """Something to measure: `make(small)` builds its peers, at a size for tests if `small`.

    Results are compared to the relative `tolerance`. With `wide`, jax's 64-bit flag is set, so that all peers compute
    in float64. `jitted` says that all of it is compiled code, which may run on a GPU. On a CPU there are so many
    virtual `devices`.
    """

    name: str
    title: str
    make: Callable[[bool], Peers]
    bars: tuple[Bar, ...] = ()
    tolerance: float = 1e-4
    wide: bool = False
    jitted: bool = False
    devices: int = 1

    @property
    def group(self) -> str:
        """The first word of the name."""
        return self.name.split(":")[0]
