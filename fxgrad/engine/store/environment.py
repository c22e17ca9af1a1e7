"""What an executable depends on beside its function: versions, settings, devices, the processor."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from fxgrad.engine import config
from fxgrad.engine.caches import cached

_ROOT = str(Path(__file__).resolve().parents[2])


@cached("versions and machine of the process", 1)
def _of_process() -> tuple[str, ...]:
    """Return what does not change in a process: Python, the libraries, our own sources, the machine."""
    return (sys.version, sys.implementation.cache_tag or "", platform.platform(), *map(_version, (
        "jax", "jaxlib", "numpy", "scipy", "ml_dtypes")), _digest_of_sources(), _processor())


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} is not installed"


def _digest_of_sources() -> str:
    """Return a digest of the sources of the package, so that an entry is of one state of it."""
    digest = hashlib.blake2b(digest_size=32)
    # With paths as texts: `Path` takes two thirds of the time, which every process pays before its first result.
    files = [os.path.join(folder, name) for folder, _, names in os.walk(_ROOT) for name in names
             if name.endswith(".py")]
    for file in sorted(files):
        digest.update(f"{file[len(_ROOT):]}\n".encode())
        with open(file, "rb") as source:
            digest.update(source.read())
    return digest.hexdigest()


def _processor() -> str:
    """Return the name and the features of the processor, for which XLA's code for the CPU is made."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(line for line in lines if line.startswith(_OF_PROCESSORS))


_OF_PROCESSORS = "model", "vendor", "flags", "Features", "CPU", "cpu fam"


def environment() -> tuple[Any, ...]:
    """Return all that executables depend on beside their functions, as this thread has it now."""
    settings = [(name, repr(getattr(jax.config, name, value))) for name, value in sorted(
        jax.config.values.items()) if not name.startswith(_WITHOUT_MEANING)]
    devices = [(device.platform, device.device_kind, device.id) for device in jax.devices()]
    variables = [(name, os.environ.get(name, "")) for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    return (*_of_process(), config.default_float().name, config.roll_repeats, settings, devices, variables,
            jax.devices()[0].client.platform_version)


_WITHOUT_MEANING = (
    "jax_compilation_cache", "jax_persistent_cache", "jax_enable_compilation_cache", "jax_log", "jax_dump",
    "jax_explain", "jax_traceback", "jax_raise_persistent", "jax_debug_log")
"""Settings that decide nothing about the results of an executable."""
