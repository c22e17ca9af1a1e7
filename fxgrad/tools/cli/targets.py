"""The targets of commands: a function of a module or a file, or a program in a file, text or JSON."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from argparse import Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import fxgrad
from fxgrad.extend import Program, file_name
from fxgrad.text.json_reader import from_json
from fxgrad.text.text_parser import parse
from fxgrad.tools.cli.arguments import CommandError, read_arguments, with_random_values

TRANSFORMATIONS = ("grad", "value_and_grad", "vmap", "jit", "hessian", "jacfwd", "jacrev", "checkpoint")


class CommandTarget:
    """A function with its arguments, or a program, named on the command line and loaded on demand."""

    def __init__(self, text: str, options: Namespace) -> None:
        self.text, self._options = text, options
        self.function: Callable[..., Any] | None = None
        self._program: Program | None = None
        self.args: tuple[Any, ...] = ()
        if text.endswith(".py") and ":" not in text.removeprefix(Path(text).drive):
            found = _own_functions(_module(text))
            hint = f"Write {text}:{found[0]}; its functions are {', '.join(found[:8])}" if found else "It has none"
            raise CommandError(f"{text} is a file of Python: say which of its functions. {hint}")
        if is_program_file(text):
            self._program = read_program(Path(text))
            return
        function = find_function(text)
        for name in getattr(options, "transform", None) or ():
            argnums = getattr(options, "argnums", None)
            if argnums is None or name not in ("grad", "value_and_grad", "hessian", "jacfwd", "jacrev"):
                function = getattr(fxgrad, name)(function)
            else:
                function = getattr(fxgrad, name)(function, argnums=argnums[0] if len(argnums) == 1 else argnums)
        self.function = function
        self.args = self._arguments(function)

    @property
    def name(self) -> str:
        """The stem of the names of output files."""
        return Path(self.text).stem if self.function is None else self.text.rpartition(":")[2].replace(".", "_")

    @property
    def program(self) -> Program:
        """Return the program of the function at its arguments, or the program in the file."""
        if self._program is None:
            assert self.function is not None
            self._program = self.call(fxgrad.make_program)
        return self._program

    def call(self, what: Callable[..., Any], **options: Any) -> Any:
        """Return `what(function)(*args)`; for a program, `what(program)`. `what` may be `fxgrad.make_program`."""
        if self.function is None:
            return what(self._program, **options)
        static = [place for place, arg in enumerate(self.args) if isinstance(arg, str | None)]
        if static and what is fxgrad.make_program:
            options["static_argnums"] = static
        return what(self.function, **options)(*self.args)

    def _arguments(self, function: Callable[..., Any]) -> tuple[Any, ...]:
        text, seed = getattr(self._options, "args", None), getattr(self._options, "random", None)
        if text is None:
            wanted = _required_arguments(function)
            if wanted:
                raise CommandError(f"{self.text} takes {', '.join(wanted)}: say what they are like, "
                                   f"such as --args '{', '.join('f32[3]' for _ in wanted)}'")
            return ()
        args = read_arguments(text)
        return args if seed is None else with_random_values(args, seed)


def is_program_file(text: str) -> bool:
    """Return whether a target is a file that holds a program, not a function."""
    return ":" not in text.removeprefix(Path(text).drive) and (
        text.endswith((".txt", ".json", ".program", ".fxgrad")) or Path(text).is_file())


def read_program(path: Path) -> Program:
    """Return the program in a file (saved, JSON or text); raise `CommandError`, or as `load` or `parse` does."""
    if path.suffix == ".fxgrad" and path.is_file():
        return fxgrad.load(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not a file of text, so no program: a program is its printed text, or the JSON "
                           "that fxgrad.text.to_json writes") from error
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error
    return from_json(text) if text.lstrip().startswith("{") else parse(text)


def find_function(text: str) -> Callable[..., Any]:
    """Return a function that `module:function` or `file.py:function` names; raise `CommandError` if there is none."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise CommandError(f"{text!r} names no function and no file. Write MODULE:FUNCTION or FILE.py:FUNCTION, such "
                           "as model.py:loss, or the path of a printed program")
    module = _module(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = ", ".join(_own_functions(module)[:8])
            raise CommandError(f"{place} has no {name!r}" + (f"; its functions are {near}" if near else ""))
        found = getattr(found, part)
    if not callable(found):
        raise CommandError(f"{text} is a {type(found).__name__}, where a function is needed")
    return found


def _own_functions(module: Any) -> list[str]:
    """Return the names of the functions that a module defines itself."""
    return sorted(each for each, value in vars(module).items()
                  if inspect.isfunction(value) and value.__module__ == module.__name__)


def _module(place: str) -> Any:
    try:
        if not place.endswith(".py"):
            sys.path.insert(0, "")
            return import_module(place)
        path = Path(place)
        if not path.is_file():
            raise CommandError(f"there is no file {place}")
        sys.path.insert(0, str(path.parent.resolve()))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        spec.loader.exec_module(module)
    except CommandError:
        raise
    except ModuleNotFoundError as error:
        raise CommandError(f"{place} cannot be imported: there is no module {error.name!r}. Run this where it is "
                           "installed, or write the path of a file, such as model.py:loss") from error
    except Exception as error:
        raise CommandError(
            f"{place} cannot be imported: {type(error).__name__}: {error}\n  at {error_place(error)}") from error
    else:
        return module


def error_place(error: Exception) -> str:
    """Return the file and the line where an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{file_name(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _required_arguments(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments of a function that have no default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each.name for each in parameters if each.default is each.empty
            and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
