"""The ground all tests stand on: the environment, the random programs' profile, and clean tables on request."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

# Before anything imports NumPy, jax or fxgrad, which read these once. Threads: the test workers share the cores.
os.environ.setdefault("FXGRAD_CHECK", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")  # virtual ones, on which meshes are made
# With JAX_COMPILATION_CACHE_DIR, programs that an earlier run compiled are read from that folder. Without one, jax
# computes for each program all the same under which key it would stand there.
if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.01")  # reading takes half as long
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
else:
    os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "0")
# Most of the time of the tests goes to XLA, which compiles thousands of programs of a few numbers each. It optimizes
# their machine code little here, writes it by its older emitters of fused loops, which take less than half the time
# (jaxlib 0.12 has no others than the newer ones, and dies of a flag that it does not know), and in one piece, since
# threads of its own gain nothing beside the other workers. With JAX_DISABLE_MOST_OPTIMIZATIONS=0 it compiles as for
# users.
if os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") != "0":
    older = "--xla_cpu_use_fusion_emitters=false " if version("jaxlib").startswith("0.10.") else ""
    os.environ.setdefault("XLA_FLAGS", older + "--xla_cpu_parallel_codegen_split_count=1")

import hypothesis
import pytest

from tests.support.ids import name_of

QUICK_EXAMPLES = 20
"""So many random cases a test draws in the quick tier that draws 100 in the slow one.

FXGRAD_EXAMPLES=1000 in the environment has it draw 1000.
"""
KEPT = 1000
"""So many programs may jax have compiled before its caches are emptied, between two tests.

It keeps each with what it was lowered from, half a megabyte and more.
"""


def pytest_configure(config: pytest.Config) -> None:
    """Sets how random cases are drawn."""
    gc.disable()  # while tests are collected: the collector would go through all of them time and again
    # No deadline: the first run of an example compiles. In continuous integration the same examples every time.
    repeatable = {"derandomize": True, "database": None} if os.environ.get("CI") else {}
    count = int(os.environ.get("FXGRAD_EXAMPLES", QUICK_EXAMPLES if is_quick(config) else 100))
    hypothesis.settings.register_profile("tier", deadline=None, print_blob=True, max_examples=count, **repeatable)
    hypothesis.settings.load_profile("tier")


def pytest_make_parametrize_id(val: object) -> str | None:
    """What `val` is called in the name of a test, unless pytest has a name for it."""
    return name_of(val)


def is_quick(config: pytest.Config) -> bool:
    """Whether slow tests are left out of this run."""
    return "not slow" in config.option.markexpr


@pytest.fixture
def fresh_tables() -> Iterator[None]:
    """Empties the table of recorded programs before the test and after it, for tests that count what is in it."""
    # Imported here: tests of the source text (layers, sizes) must run where the package does not import.
    from fxgrad.engine.tracing import interning

    interning.clear()
    yield
    interning.clear()


@pytest.fixture(scope="module")
def small_heap() -> None:
    """Spares the garbage collector what is there before the tests of a module that ask it for all of its work.

    One collection goes through millions of objects at the end of a run, which takes seconds.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def frames_unread() -> Iterator[None]:
    """Has jax leave the frames of its errors alone in a module that reads only their kinds: it takes 10 ms for each."""
    config = sys.modules["jax"].config
    before = config.jax_traceback_filtering
    config.update("jax_traceback_filtering", "off")
    yield
    config.update("jax_traceback_filtering", before)


@pytest.fixture
def compiled_anew() -> Iterator[None]:
    """Has XLA compile what the test compiles, also where JAX_COMPILATION_CACHE_DIR names a folder that has it.

    What is read from there has the names and lines of whatever compiled it first.
    """
    from tests.support.kept_by_jax import folder_of_jax

    with folder_of_jax(None):
        yield


@pytest.fixture(scope="session", autouse=True)
def _texts_read_by_kind() -> Iterator[None]:
    """Has programs read back where a kind of operation is new, and not wherever two meet that did not before.

    That took a sixth of the time of all tests. It stays so in tests/text, and FXGRAD_CHECK=4 reads all programs.
    """
    if "fxgrad" in sys.modules:  # imported by the tests
        from tests.support.kinds import read_by_kind

        with read_by_kind():
            yield
    else:
        yield


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Empties jax's caches now and then: what later tests need again is little."""
    if compiled["programs"] >= KEPT:
        compiled.clear()
        contexts.clear()
        sys.modules["jax"].clear_caches()


compiled: Counter[str] = Counter()
"""What was compiled since jax's caches were emptied."""
contexts: list[Any] = []
"""The MLIR context that programs are lowered in until then."""


def share_contexts() -> None:
    """Has jax lower program after program in one MLIR context.

    By itself it makes one for each, which takes half of the time to lower a small program. Those that its caches keep
    it goes through wherever it asks for a type: after 2000 programs lowering took three times as long.
    """
    from jax.interpreters import mlir

    initialize = mlir.ModuleContext.__init__
    if "context" not in inspect.signature(initialize).parameters or not hasattr(mlir, "make_ir_context"):
        return  # another version of jax, which may make one for each

    @functools.wraps(initialize)
    def with_context(self: Any, *args: Any, context: Any = None, **options: Any) -> None:
        if context is None:
            if not contexts:
                contexts.append(mlir.make_ir_context())
            context = contexts[0]
        initialize(self, *args, context=context, **options)

    mlir.ModuleContext.__init__ = with_context


def count_compiled(event: str, *_: float, **__: str | int) -> None:
    if event.endswith("backend_compile_duration"):
        compiled["programs"] += 1


def pytest_collection_finish() -> None:
    """Spares the garbage collector what stays to the end: the modules and thousands of tests.

    Tracing makes many objects, so that it would else look through all others every few milliseconds.
    """
    if "jax" in sys.modules:  # imported by the tests
        sys.modules["jax"].monitoring.register_event_duration_secs_listener(count_compiled)
        share_contexts()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Spares the garbage collector what is left at the end: pytest has it go through all of that twice, for seconds.

    After the first time, which pytest's own hook asks for before this one, nothing is to be found.
    """
    gc.freeze()
