"""The ground all tests stand on: the environment, the random programs' profile, and clean tables on request."""

from __future__ import annotations

import os
from collections.abc import Iterator

# Before anything imports NumPy, jax or fxgrad, which read these once. Threads: the test workers share the cores.
os.environ.setdefault("FXGRAD_CHECK", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest

# No deadline: the first run of an example compiles. In continuous integration the same examples every time.
hypothesis.settings.register_profile("local", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture
def fresh_tables() -> Iterator[None]:
    """Empties the table of recorded programs before the test and after it, for tests that count what is in it."""
    # Imported here: tests of the source text (layers, sizes) must run where the package does not import.
    from fxgrad.core import interning

    interning.clear()
    yield
    interning.clear()
