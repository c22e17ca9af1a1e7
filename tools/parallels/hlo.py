"""Collectives as XLA's text of a compiled program has them: kinds, sizes of groups, bytes, and how often each runs."""

from __future__ import annotations

import math
import re
from collections import Counter

from fxgrad.engine.analyses.traffic import CollectiveKind, Transfer

KINDS: dict[str, CollectiveKind] = {"all-reduce": "all-reduce", "all-gather": "all-gather",
                                    "reduce-scatter": "reduce-scatter",
                                    "all-to-all": "all-to-all", "collective-permute": "permute"}
_OPERATION = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(-start)?\((.*)")
_TYPE = re.compile(r"\b(pred|[a-z]+\d+)\w*\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


def computations(text: str) -> tuple[str, dict[str, list[str]]]:
    """The name of the computation that runs, and the lines of all by name."""
    found: dict[str, list[str]] = {}
    entry, lines = "", []
    for line in text.splitlines():
        head = re.match(r"(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$", line)
        if head and not line.startswith(" "):
            lines = found[head[2]] = []
            entry = head[2] if head[1] else entry
        else:
            lines.append(line)
    return entry, found


def times_run(text: str) -> Counter[str]:
    """How often each computation runs; a loop whose steps XLA does not know counts as one."""
    entry, found = computations(text)
    times: Counter[str] = Counter()

    def visit(name: str, count: int) -> None:
        times[name] += count
        for line in found.get(name, ()):
            trips = _TRIPS.search(line) if " while(" in line else None
            inner = count * (int(trips[1]) if trips else 1)
            for called in (*_CALLED.findall(line), *(each.strip(" %") for each in ",".join(
                    _BRANCHES.findall(line)).split(",") if each)):
                visit(called, inner)
    visit(entry, 1)
    return times


def transfers(text: str) -> list[Transfer]:
    """The collectives of a compiled program; which axes they speak over it does not say."""
    found: Counter[Transfer] = Counter()
    runs = times_run(text)
    for name, lines in computations(text)[1].items():
        for line in lines:
            match = _OPERATION.search(line)
            if match and runs[name]:
                kind, size = KINDS[match[2]], _group(line)
                result = _bytes(match[1], last=bool(match[3]))
                operand = {"all-gather": result // size, "reduce-scatter": result * size}.get(kind, result)
                found[Transfer(kind, (), size, 1, operand)] += runs[name]
    return [each._replace(times=times) for each, times in found.items()]


def operations(text: str) -> Counter[str]:
    """How many collectives of each kind the text has, each counted once, in a loop too."""
    return Counter(match[2] for match in map(_OPERATION.search, text.splitlines()) if match)


def _bytes(types: str, last: bool) -> int:
    """The bytes of a result; of one that is begun and ended apart, those of its last part, which is the result."""
    sizes = [math.prod(map(int, filter(None, shape.split(",")))) * _width(kind) for kind, shape in _TYPE.findall(types)]
    return sizes[-1] if last else sum(sizes)


def _width(kind: str) -> int:
    return 1 if kind == "pred" else int(re.sub(r"\D", "", kind)) // 8


def _group(line: str) -> int:
    """How many devices speak with each other; of a permutation, how many pairs there are."""
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if listed:
        return len(listed[1].split(","))
    counted = re.search(r"replica_groups=\[\d+,(\d+)\]", line)
    if counted:
        return int(counted[1])
    named = re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", line)
    if named:
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", named[2]))
    pairs = re.search(r"source_target_pairs=\{(.*?)\}\}", line)
    return 0 if pairs is None else pairs[1].count("{")
