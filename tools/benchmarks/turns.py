"""Times calls of fxgrad, one turn for every line of its input, in a process of its own: one side of a comparison."""

from __future__ import annotations

import contextlib
import gc
import json
import sys

import fxgrad
from benchmarks.measure import SAMPLE_SECONDS, sample, typical_seconds
from benchmarks.worker import prepared
from benchmarks.workload import OURS

PARTS = 5
"""A turn is as long as elsewhere, and is timed in so many parts: one of them may be undisturbed."""


def main() -> None:
    """Says where its fxgrad is and how many seconds a turn takes; then takes turns, and tells microseconds a call."""
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print is no answer
        peer = prepared(sys.argv[1])[1][OURS]
        seconds = typical_seconds(peer)
        calls = 1 if peer.prepare else max(1, int(SAMPLE_SECONDS / PARTS / seconds))
        parts = max(1, min(PARTS, int(SAMPLE_SECONDS / (seconds * calls))))
        print(json.dumps([fxgrad.__file__, seconds * calls * parts]), file=answers, flush=True)
        gc.collect()
        gc.freeze()
        gc.disable()
        for _ in sys.stdin:
            print(min(sample(peer, calls) for _ in range(parts)), file=answers, flush=True)
            gc.collect()


if __name__ == "__main__":
    main()
