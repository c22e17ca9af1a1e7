"""The command `export`: write a program to a file, in the format of the file's extension."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

import fxgrad
from fxgrad.extend import Program
from fxgrad.extend.sizes import size_names
from fxgrad.tools.cli.arguments import CommandError
from fxgrad.tools.cli.targets import CommandTarget


class FileFormat(NamedTuple):
    """A kind of file, and the function that writes it."""

    what: str
    write: Callable[[Program, Path, Namespace], Any]


def _export_program(program: Program, options: Namespace) -> Any:
    return fxgrad.export(program, platforms=options.platforms)()


def _stablehlo(program: Program, path: Path, options: Namespace) -> None:
    """Write StableHLO; programs with symbolic sizes or for other platforms are exported first."""
    exported = size_names(program) or options.platforms
    text = _export_program(program, options).stablehlo if exported else fxgrad.stablehlo(program)()
    path.write_text(text, encoding="utf-8")


FORMS = {
    ".fxgrad": FileFormat("what fxgrad.load reads", lambda program, path, options: fxgrad.save(path, program)),
    ".exported": FileFormat("what fxgrad.export.deserialize reads, compiled where it runs",
                            lambda program, path,
                            options: path.write_bytes(_export_program(program, options).serialize())),
    ".mlir": FileFormat("StableHLO as text", _stablehlo),
    ".onnx": FileFormat("a model of ONNX", lambda program, path, options: fxgrad.onnx.save(path, program)),
    ".py": FileFormat("Python with NumPy alone",
                      lambda program, path, options: path.write_text(program.to_python(), encoding="utf-8")),
    ".c": FileFormat("C99, with the mathematical library alone",
                     lambda program, path, options: path.write_text(program.to_c(), encoding="ascii")),
}
"""By the ending of the name of the file."""


def export(options: Namespace, console: Console) -> int:
    """Write a program in the format of a file's extension."""
    path = Path(options.output)
    form = FORMS.get(path.suffix)
    if form is None:
        known = "".join(f"\n  {ending:<10} {each.what}" for ending, each in FORMS.items())
        raise CommandError(f"the ending of {options.output!r} says nothing of what it is to be. Write one of{known}")
    form.write(CommandTarget(options.target, options).program, path, options)
    console.print(f"wrote {options.output}: {form.what}", soft_wrap=True)
    return 0
