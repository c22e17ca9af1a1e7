"""The command line: programs, graphs and pictures of functions in files, without writing a script for it."""

from __future__ import annotations

from fxgrad.tools.cli.parser import main

__all__ = ["main"]
