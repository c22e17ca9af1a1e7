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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from planted.generate import Fault
from planted.rooms import LAWS, OTHERS, looking_at

COPIED = ("fxgrad", "tests", "tools", "docs", "examples", "pyproject.toml", "README.md")
MARKERS = {"quick": "not slow and not long and not bench", "others": "not slow and not long and not bench",
           "slow": "slow and not long and not bench", "any": "not bench"}
LIMITS = {"quick": 300.0, "others": 600.0, "slow": 900.0}
"""What is run in turn, the quick tests of the file, quick tests of others, and the slow ones of the file; and the
seconds after which each is stopped: several times what they take without a fault."""
MEMORY = 24 << 30
"""Bytes of addresses: a fault that allocates without end is stopped."""


@dataclass
class Verdict:
    """What became of a fault: caught or not, by what, in which tier, and in how many seconds."""

    caught: bool
    by: str
    tier: str
    seconds: float


class Copy:
    """A copy of the project in `folder`, where faults are planted one at a time."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.path = root, folder / "copy"
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

    def run(self, tests: list[str], tier: str, primitives: list[str], limit: float) -> tuple[int, str, float]:
        """The exit status of the tests (-1: out of time), what they wrote, and the seconds."""
        path = os.pathsep.join([str(self.path), str(self.path / "tools" / "planted")])
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": path,
                       "FAULTS_PRIMITIVES": " ".join(primitives), "FXGRAD_CHECK": "3", "JAX_PLATFORMS": "cpu",
                       "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CI": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider", "-p", "restrict",
                   "-m", MARKERS[tier], *tests]
        begin = time.monotonic()
        with subprocess.Popen(command, cwd=self.path, env=environment, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, start_new_session=True,
                              preexec_fn=_bounded) as process:  # noqa: PLW1509  (there are no threads)
            try:
                output, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return -1, "", time.monotonic() - begin
        return process.returncode, output, time.monotonic() - begin


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


class Session:
    """The runs of one list of faults, whose verdicts are kept in a file, so that they can be resumed."""

    def __init__(self, root: Path, folder: Path, primitives: Mapping[str, list[str]]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file, self.copy, self.primitives = folder / "verdicts.json", Copy(root, folder), primitives
        self.verdicts = verdicts(folder)

    def judge(self, fault: Fault, tiers: Sequence[str]) -> Verdict:
        """Plants the fault, runs the tests of its file in these tiers, and takes it out again."""
        source = (self.copy.root / fault.file).read_bytes()
        self.copy.write(fault.file, fault.applied(source))
        try:
            verdict = self._judged(fault, tiers)
        finally:
            self.copy.write(fault.file, source)
        self.verdicts[fault.name] = {**asdict(fault), **asdict(verdict)}
        self.file.write_text(json.dumps(self.verdicts, indent=1), encoding="utf-8")
        return verdict

    def _judged(self, fault: Fault, tiers: Sequence[str]) -> Verdict:
        total = 0.0
        primitives = self.primitives.get(fault.file, [])
        for tier in tiers:
            own = [*([LAWS] if primitives else []), *looking_at(fault.file)]
            tests = own if tier != "others" else [test for test in looking_at(fault.file, OTHERS) if test not in own]
            status, output, seconds = self.copy.run(tests, tier, primitives, LIMITS[tier])
            total += seconds
            if status not in (0, 5):  # 5: there are no such tests
                return Verdict(True, failing(status, output), tier, round(total, 1))
        return Verdict(False, "", tiers[-1], round(total, 1))

    def confirm(self) -> str:
        """What the tests that caught faults say without any: nothing, unless they fail for another reason."""
        known = {str(verdict["by"]) for verdict in self.verdicts.values()}
        names = sorted(name for name in known if name.startswith("tests/") and "::" in name)
        everything = sorted({name for found in self.primitives.values() for name in found})
        status, output, _ = self.copy.run(names, "any", everything, 10 * LIMITS["slow"])
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
