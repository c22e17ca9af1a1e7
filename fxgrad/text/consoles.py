"""Consoles of rich that write to a file.

In a notebook rich treats every console as a display: printed text becomes a further output instead of going to the
file.
"""

from __future__ import annotations

from typing import Any, TextIO

from rich.console import Console


def file_console(file: TextIO | None, **options: Any) -> Console:
    """Return a console that writes to `file` everywhere; `options` are those of rich's `Console`.

    Without a file it writes to rich's default: the standard output, or the notebook.
    """
    return Console(file=file, force_jupyter=None if file is None else False, **options)
