"""Modules of generated source, in files: conversion reads the source of a function."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def load_source(path: Path, text: str) -> Any:
    """Return the module of a text, which is written to a file: conversion reads the source."""
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
