"""Find the cause of a trace or compilation: the difference between a call and the nearest earlier one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fxgrad.extend import Aval, Equation, Literal, Program
from fxgrad.tools.retracing.signatures import ARGUMENT, CLOSURE, PARTIAL, SETTING, SHARDING, STATIC, Entries

FIRST = "first call"
ADVICE = {
    FIRST: "",
    "shape": "pad to a few sizes (buckets) and mask, or vmap over what varies",
    "dtype": "convert before the call: {name}.astype('{before}')",
    "weak type": "pass the same kind always: a Python number, or np.asarray({name}, '{dtype}')",
    "structure": "pass the same keys, lengths and Nones at every call; an array of zeros in the place of None",
    "static value": "leave {name} out of the static arguments if it can be traced; else keep its values few",
    "partial": "make functools.partial once for each value; or pass {name} as an argument",
    "new partial": "make functools.partial and jit once, outside of the loop, and call what they gave",
    "closure": "pass {name} as an argument of the function",
    "new function": "call jit once, at module level or outside of the loop, and keep what it gives",
    "setting": "set {name} once, before the first call",
    "sharding": "put {name} where it lay before the call: jax.device_put, or in_shardings=",
    "control flow": "fxgrad.numpy.where, lax.cond or lax.switch on the value: one program for all branches",
    "python": "pass what decides there as an argument; what Python decides makes programs of their own",
    "forgotten": "leave out clear_caches() and clear_cache() between calls, and set jax's settings once",
}
"""The code to write, by the kind of a cause."""


class RetraceCause(NamedTuple):
    """Why a function was traced or compiled: `kind` is a key of `ADVICE`, `what` names it, `line` is the user's call.

    `name` is that of the argument or other subject; `compiled` is whether XLA compiled for it, and `milliseconds` is
    the time of the trace and the compilation.
    """

    kind: str
    name: str
    what: str
    advice: str
    line: str
    compiled: bool = False
    milliseconds: float = 0.0


Difference = tuple[str, str, str, str]
"""Kind, name, what, advice."""


def differences(before: Entries, now: Entries) -> list[Difference]:
    """Return the differences between two calls, each by itself."""
    found = [*_structural_differences(before, now)]
    for key in now:
        if key in before and before[key] != now[key]:
            kind, name = key
            if kind == ARGUMENT:
                found += _type_differences(name, before[key], now[key])
            else:
                found.append(_difference(_KINDS[kind], name, f"{name}: {before[key]} -> {now[key]}"))
    return found


_KINDS = {STATIC: "static value", SETTING: "setting", PARTIAL: "partial", CLOSURE: "closure", SHARDING: "sharding"}


def _difference(kind: str, name: str, what: str, **words: str) -> Difference:
    return kind, name, what, ADVICE[kind].format(name=name, **words)


def _type_differences(name: str, before: Aval, now: Aval) -> Iterator[Difference]:
    if before.weak != now.weak:
        words = [f"a Python number ({aval.dtype.name})" if aval.weak else str(aval) for aval in (before, now)]
        strong = now if before.weak else before
        yield _difference("weak type", name, f"{name}: {words[0]} -> {words[1]}", dtype=strong.dtype.name)
        return
    if len(before.shape) != len(now.shape):
        yield _difference("shape", name, f"{name}.shape: {before.shape} -> {now.shape}")
    else:
        for axis, (old, new) in enumerate(zip(before.shape, now.shape, strict=True)):
            if old != new:
                yield _difference("shape", name, f"{name}.shape[{axis}]: {old} -> {new}")
    if before.dtype != now.dtype:
        yield _difference("dtype", name, f"{name}.dtype: {before.dtype.name} -> {now.dtype.name}",
                          before=before.dtype.name)


def _structural_differences(before: Entries, now: Entries) -> Iterator[Difference]:
    """Yield the differences of entries that only one of two calls has."""
    kinds = (ARGUMENT, STATIC)
    gone = [name for kind, name in before if kind in kinds and not any((each, name) in now for each in kinds)]
    come = [name for kind, name in now if kind in kinds and not any((each, name) in before for each in kinds)]
    if gone or come:
        words = [f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''} {what}"
                 for names, what in ((come, "came"), (gone, "went")) if names]
        root = (come or gone)[0].split("[")[0].split(".")[0]
        yield _difference("structure", root, f"{root}: {', '.join(words)}")
    for key in [*now, *before]:
        kind, name = key
        if kind not in (ARGUMENT, SHARDING) and (key in now) != (key in before):
            if kind == STATIC and any(name in names for names in (gone, come)):
                continue
            old, new = before.get(key, before.get((ARGUMENT, name), "none")), now.get(
                key, now.get((ARGUMENT, name), "none"))
            if (kind in _KINDS and kind != STATIC) or key in now or (ARGUMENT, name) in now:
                yield _difference(_KINDS[kind], name, f"{name}: {old} -> {new}")


def first_difference(before: Program, now: Program) -> tuple[str, str]:
    """Return the first operation in which two programs differ, and the user's line; "" if they do not."""
    numbers: dict[object, object] = {}
    for theirs, ours in zip(before.inputs, now.inputs, strict=False):
        if theirs.aval != ours.aval:
            return f"a value from outside: {theirs.aval} -> {ours.aval}", ""
        numbers[theirs] = ours
    for old, new in zip(before.equations, now.equations, strict=False):
        if old.primitive is not new.primitive:
            return f"{old.primitive} -> {new.primitive}", _place(new)
        same = len(old.inputs) == len(new.inputs) and all(
            _is_same(numbers, one, other) for one, other in zip(old.inputs, new.inputs, strict=True))
        if not same:
            return f"{new.primitive} of other operands", _place(new)
        if str(old.params) != str(new.params) or [var.aval for var in old.outputs] != [
                var.aval for var in new.outputs]:
            return f"{new.primitive} with other parameters", _place(new)
        numbers |= zip(old.outputs, new.outputs, strict=True)
    if len(before.equations) == len(now.equations):
        return "", ""
    longer = max((before, now), key=lambda each: len(each.equations))
    equation = longer.equations[min(len(before.equations), len(now.equations))]
    return f"{equation.primitive} {'came' if longer is now else 'went'}", _place(equation)


def _place(equation: Equation) -> str:
    source = equation.source
    return "" if source is None else f"{source.place} (in {source.code.co_name})"


def _is_same(numbers: dict[object, object], one: object, other: object) -> bool:
    if isinstance(one, Literal) or isinstance(other, Literal):
        return str(one) == str(other)
    return numbers.get(one, other) is other


def nearest_call(known: Sequence[Entries], now: Entries) -> tuple[int, list[Difference]]:
    """Return the call before that differs least, and its differences; the latest of several."""
    best: tuple[int, list[Difference]] = 0, []
    for index, before in enumerate(known):
        found = differences(before, now)
        if index == 0 or len(found) <= len(best[1]):
            best = index, found
    return best
