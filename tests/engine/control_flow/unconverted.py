"""Functions that converted code calls and that cannot be converted, with conditions on values."""

from __future__ import annotations

_session: dict = {}
exec("def typed(x):\n    return x if x > 0 else -x\n", _session)
typed = _session["typed"]


def turns(x):
    if x > 0:
        yield x
    yield -x


def of_typed(x):
    return 2.0 * typed(x)


def of_turns(x):
    return sum(turns(x))
