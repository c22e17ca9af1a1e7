"""Two versions of fxgrad side by side: the workloads of this tree on its own code and on that of another commit.

Each side of a workload has a process of its own, and they take turns: a machine that is busy, or gets slower, is so for
both. What counts is the ratio of the quickest turns.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from benchmarks.measure import FEWEST, PEER_SECONDS, rotated
from benchmarks.report import digits, duration
from benchmarks.worker import ROOT, FailedError, environment


@dataclass(frozen=True)
class Line:
    """Microseconds of the quickest turn of a workload here and on the other commit; or why there are none."""

    name: str
    here: float = 0.0
    there: float = 0.0
    failure: str = ""

    @property
    def ratio(self) -> float:
        """How many times as long this tree takes."""
        return self.here / self.there


@contextlib.contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """A folder with the files of `commit`, which is gone afterwards; raises `FailedError` if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(path), commit)
        try:
            yield path
        finally:
            _git("worktree", "remove", "--force", str(path))


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(done.stderr.strip())
    return done.stdout.strip()


class Taker(Protocol):
    """Something that takes turns."""

    turn_seconds: float

    def turn(self) -> float: ...


class Side:
    """The process that measures one workload with the code under `root`; `turn` gives microseconds a call."""

    def __init__(self, name: str, root: Path, platform: str) -> None:
        self._root = root
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.turns", name], cwd=root, env=environment(platform, root), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.turn_seconds = 0.0

    def wait(self) -> None:
        """Waits until it can take turns."""
        file, self.turn_seconds = self._answer()
        if not Path(file).is_relative_to(self._root):
            raise FailedError(f"measured {file}, not what is in {self._root}")

    def turn(self) -> float:
        """Microseconds a call, in one turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._process.communicate()[1].strip().splitlines()
            raise FailedError(f"{'here' if self._root == ROOT else 'there'}: {(said or ['no message'])[-1]}")
        return json.loads(line)

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()


def compared(name: str, there: Path, rounds: int, platform: str) -> Line:
    """One workload on both sides."""
    sides = [Side(name, ROOT, platform), Side(name, there, platform)]
    try:
        for side in sides:
            side.wait()
        return Line(name, *quickest(sides, rounds))
    except FailedError as failure:
        return Line(name, failure=str(failure))
    finally:
        for side in sides:
            side.end()


def quickest(sides: Sequence[Taker], rounds: int) -> list[float]:
    """The quickest turn of each; every round begins with another one, and there are fewer rounds for slow ones."""
    slowest = max(side.turn_seconds for side in sides)
    best = [math.inf for _ in sides]
    for number in range(min(rounds, max(FEWEST, int(PEER_SECONDS / max(slowest, 1e-9))))):
        for place, side in rotated([*enumerate(sides)], number):
            best[place] = min(best[place], side.turn())
    return best


def geometric_mean(ratios: Iterable[float]) -> float:
    """The mean of ratios: as many times above some as below others."""
    found = [*ratios]
    return math.exp(sum(map(math.log, found)) / len(found)) if found else math.nan


def show(console: Console, commit: str, lines: Sequence[Line]) -> None:
    """The table, the slowest first, and the mean."""
    table = Table(title=f"Quickest turns, and how many times as long as at {commit}")
    for title in ("workload", "here", commit, "ratio"):
        table.add_column(title, justify="left" if title == "workload" else "right")
    measured = sorted((line for line in lines if not line.failure), key=lambda line: -line.ratio)
    for line in measured:
        style = "red" if line.ratio > _SLOWER else "green" if line.ratio < 1 / _SLOWER else ""
        table.add_row(line.name, duration(line.here), duration(line.there), digits(line.ratio), style=style)
    table.add_section()
    table.add_row("geometric mean", "", "", digits(geometric_mean(line.ratio for line in measured)))
    console.print(table)
    for line in lines:
        if line.failure:
            console.print(f"{line.name}: {line.failure}", style="yellow", markup=False)


_SLOWER = 1.1
"""What runs of one and the same code differ by on a busy machine."""
