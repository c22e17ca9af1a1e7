"""The ground all tests stand on: the environment, the random programs' profile, and clean tables on request."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from importlib.metadata import version

# Before anything imports NumPy, jax or fxgrad, which read these once. Threads: the test workers share the cores.
os.environ.setdefault("FXGRAD_CHECK", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most of the time of the tests goes to XLA, which compiles thousands of programs of a few numbers each. It optimizes
# their machine code little; with JAX_DISABLE_MOST_OPTIMIZATIONS=0 XLA_FLAGS="" it compiles as for users.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if version("jaxlib").startswith("0.10."):  # where the new way to emit fusions was an option, and slow
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

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


def pytest_collection_finish() -> None:
    """Spares the garbage collector what stays to the end: the modules and thousands of tests."""
    gc.freeze()
