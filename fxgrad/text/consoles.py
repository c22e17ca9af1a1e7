"""Consoles of rich that write to a file.

In a notebook rich takes every console for one that displays: what is printed then appears as a further output, and not
in the file.
"""

from __future__ import annotations

from typing import Any, TextIO

from rich.console import Console


def file_console(file: TextIO | None, **options: Any) -> Console:
    """A console that writes to `file` wherever it runs; `options` are those of rich's `Console`.

    Without a file it writes where rich does by default: to the standard output, or into the notebook.
    """
    return Console(file=file, force_jupyter=None if file is None else False, **options)
