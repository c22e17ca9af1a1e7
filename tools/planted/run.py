"""Runs of tests against a copy of the package that has one fault in it."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from planted.generate import Fault
from planted.reached import Reach, noted, without_notes
from planted.rooms import looking_at

COPIED = ("fxgrad", "tests", "tools", "docs", "examples", "pyproject.toml", "README.md")
TIERS = {"quick": 60.0, "others": 45.0, "slow": 60.0}
"""What is run in turn, of the tests that come by the fault: the quick ones of its file, quick ones of others, and slow
ones of all; and for how many seconds, where there are more."""
FIRST = 5.0
"""Of each tier the cheapest tests run in a process of their own first, of so many seconds: most faults end there."""
MEMORY = 24 << 30
"""Bytes of data: a fault that allocates without end is stopped. (Browsers reserve far more addresses.)"""


@dataclass
class Verdict:
    """What became of a fault: caught or not, by what, in which tier, and in how many seconds."""

    caught: bool
    by: str
    tier: str
    seconds: float


LIMIT = 300.0
"""Seconds after which tests are stopped: five times what the longest tier may take without a fault."""


class Copy:
    """A copy of the project in a folder, where faults are planted one at a time."""

    def __init__(self, root: Path, path: Path) -> None:
        self.path = path
        shutil.rmtree(self.path, ignore_errors=True)
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, self.path / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(root / name, self.path / name)
        self._written = time.time() - 1e6

    def write(self, file: str, source: bytes) -> None:
        """Writes a file, at a time of its own: Python tells compiled files of one second and size apart by nothing."""
        path = self.path / file
        path.write_bytes(source)
        self._written += 10
        os.utime(path, (self._written, self._written))

    def run(self, tests: Sequence[str], limit: float, *options: str, **settings: str) -> tuple[int, str, float]:
        """The exit status of the tests (-1: out of time), what they wrote, and the seconds."""
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "FXGRAD_CHECK": "3", "JAX_PLATFORMS": "cpu",
                       "PYTHONPATH": os.pathsep.join([str(self.path), str(self.path / "tools")]),
                       "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CI": "1", **settings}
        names = self.path.parent / f"{self.path.name}.tests"  # there can be more than a command line holds
        names.write_text("\n".join(tests), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "-m",
                   "not bench and not long", *options, f"@{names}"]
        begin = time.monotonic()
        with subprocess.Popen(command, cwd=self.path, env=environment, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, start_new_session=True) as process:
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
            try:
                output, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return -1, "", time.monotonic() - begin
        return process.returncode, output, time.monotonic() - begin


class Session:
    """The runs of one list of faults, whose verdicts are kept in a file, so that they can be resumed."""

    def __init__(self, root: Path, folder: Path, workers: int) -> None:
        folder = folder.resolve()  # the tests run in another folder
        folder.mkdir(parents=True, exist_ok=True)
        self.file, self.folder, self.root = folder / "verdicts.json", folder, root
        self.verdicts = verdicts(folder)
        self._copies = [Copy(root, folder / f"copy-{number}") for number in range(workers)]
        self.reach = Reach.read(folder / "reach")

    def look(self, faults: Sequence[Fault]) -> str:
        """Runs the suite once to see which tests come by which fault, and keeps that; the last line of the tests."""
        copy = Copy(self.root, self.folder / "copy-noted")
        for file in {fault.file for fault in faults}:
            copy.write(file, noted((self.root / file).read_bytes(), [each for each in faults if each.file == file]))
        first = copy.path / "fxgrad" / "__init__.py"
        first.write_text(without_notes(first.read_text("utf-8")), encoding="utf-8")
        shutil.rmtree(self.folder / "reach", ignore_errors=True)
        _, output, _ = copy.run(["tests"], 4 * 3600.0, "-p", "planted.reached", "-n", str(len(self._copies)), "--dist",
                                "worksteal", FAULTS_REACH=str(self.folder / "reach"))
        self.reach = Reach.read(self.folder / "reach")
        for fault in faults:
            self.reach.tests.setdefault(fault.name, set())
        (self.folder / "reach" / "looked.json").write_text(self.reach.text(), encoding="utf-8")
        return output.rstrip().rpartition("\n")[2]

    def judge_all(self, faults: Sequence[Fault], tiers: Sequence[str]) -> Iterator[Fault]:
        """Judges faults side by side, and yields each when it is judged."""
        with ThreadPoolExecutor(len(self._copies)) as pool:
            for done in as_completed([pool.submit(self.judge, fault, tiers) for fault in faults]):
                yield done.result()

    def judge(self, fault: Fault, tiers: Sequence[str]) -> Fault:
        """Plants the fault in a copy that is free, runs the tests that come by, and takes it out again."""
        copy, source = self._copies.pop(), (self.root / fault.file).read_bytes()
        copy.write(fault.file, fault.applied(source))
        try:
            verdict = self._judged(fault, tiers, copy)
        finally:
            copy.write(fault.file, source)
            self._copies.append(copy)
        self.verdicts[fault.name] = {**asdict(fault), **asdict(verdict)}
        self.file.write_text(json.dumps(dict(self.verdicts), indent=1), encoding="utf-8")
        return fault

    def _judged(self, fault: Fault, tiers: Sequence[str], copy: Copy) -> Verdict:
        total, own, ran = 0.0, looking_at(fault.file), set[str]()
        for tier in tiers:
            every = self.reach.of(fault.name, own if tier == "quick" else None, tier == "slow", TIERS[tier])
            tests = [test for test in every if test not in ran]
            ran.update(tests)
            first = self.reach.within(tests, FIRST)
            for part in (tests[:first], tests[first:]):
                if not part:
                    continue
                status, output, seconds = copy.run(part, LIMIT, "-x")
                total += seconds
                if status != 0:
                    return Verdict(True, failing(status, output), tier, round(total, 1))
        return Verdict(False, "" if ran else "no test comes by", tiers[-1], round(total, 1))

    def confirm(self) -> str:
        """What the tests that caught faults say without any: nothing, unless they fail for another reason."""
        known = {str(verdict["by"]) for verdict in self.verdicts.values()}
        names = sorted(name for name in known if name.startswith("tests/") and "::" in name)
        status, output, _ = self._copies[0].run(names, 10 * LIMIT)
        return "" if status == 0 else output[-3000:]


def failing(status: int, output: str) -> str:
    """What failed: a test, or what became of the whole run."""
    if status == -1:
        return "ran out of time"
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)
    if found:
        return found[1]
    return "the package does not import" if status in (2, 3, 4) else f"the run died ({status})"


def verdicts(folder: Path) -> dict[str, dict[str, object]]:
    """What earlier runs found, by the names of the faults."""
    file = folder / "verdicts.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
