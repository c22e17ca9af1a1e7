"""Consoles of rich that write to a file, and outputs of notebooks that are replaced.

In a notebook rich treats every console as a display: printed text becomes a further output instead of going to the
file. What it replaces in place needs ipywidgets there; IPython alone replaces an output, too.
"""

from __future__ import annotations

from typing import Any, TextIO

from rich.console import Console


def file_console(file: TextIO | None, **options: Any) -> Console:
    """Return a console that writes to `file` everywhere; `options` are those of rich's `Console`.

    Without a file it writes to rich's default: the standard output, or the notebook.
    """
    return Console(file=file, force_jupyter=None if file is None else False, **options)


class NotebookOutput:
    """One output of a notebook, which is replaced."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, shown: Any) -> None:
        """Show this in place of what was shown before."""
        from IPython.display import display
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)
