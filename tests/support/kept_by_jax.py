"""The folder in which jax keeps compiled programs, set within a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache


@contextmanager
def folder_of_jax(path: Path | None) -> Iterator[None]:
    """Have jax keep all that it compiles in `path`, or nothing, in place of what the environment says."""
    settings = {"jax_enable_compilation_cache": path is not None, "jax_compilation_cache_dir": path and str(path),
                "jax_persistent_cache_min_compile_time_secs": 0, "jax_persistent_cache_min_entry_size_bytes": -1}
    before = {name: getattr(jax.config, name) for name in settings}

    def use(values: dict[str, Any]) -> None:
        for name, value in values.items():
            jax.config.update(name, value)
        reset_cache()  # jax looks at them once
    use(settings)
    try:
        yield
    finally:
        use(before)
