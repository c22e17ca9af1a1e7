"""The targets of commands: a function of a module or a file, or a program in a file, text or JSON."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import unicodedata
from argparse import Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import fxgrad
from fxgrad.extend import Program, file_name
from fxgrad.extend.tracing import is_user_file
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
            if not getattr(options, "transform", None) or options.command == "diff":  # the other one may be a function
                return
            function, self.args = _function_of(self._program, text)
            self._program = None
        else:
            function = find_function(text)
        for name in getattr(options, "transform", None) or ():
            argnums = getattr(options, "argnums", None)
            if argnums is None or name not in ("grad", "value_and_grad", "hessian", "jacfwd", "jacrev"):
                function = getattr(fxgrad, name)(function)
            else:
                function = getattr(fxgrad, name)(function, argnums=argnums[0] if len(argnums) == 1 else argnums)
        self.function = function
        self.args = self.args or self._arguments(function)

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


def _function_of(program: Program, text: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function that computes a program, to be transformed, and the types of its arguments."""
    signature = program.signature
    types = [fxgrad.ShapeDtypeStruct(var.aval.shape, var.aval.dtype, weak_type=var.aval.weak)
             for var in program.inputs[program.captured:]]
    args, named = (types, {}) if signature is None or signature.in_tree is None else fxgrad.tree.unflatten(
        signature.in_tree, types)
    if named:
        raise CommandError(f"{text} takes {', '.join(named)} by name, which -t does not transform")

    def function(*args: Any) -> Any:
        return program(*args)

    names = () if signature is None else signature.input_names
    heads = [*dict.fromkeys(re.split(r"[.[]", name)[0] for name in names)]
    if len(heads) == len(args) and all(head.isidentifier() for head in heads):
        parameters = [inspect.Parameter(head, inspect.Parameter.POSITIONAL_OR_KEYWORD) for head in heads]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__name__ = "function" if signature is None else signature.name
    return function, tuple(args)


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
    for part in unicodedata.normalize("NFKC", name).split("."):  # as Python reads names
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
    path = Path(place)
    try:
        if not place.endswith(".py"):
            if path.exists() and not place.isidentifier():
                raise CommandError(f"{place} is no file of Python. Write FILE.py:FUNCTION, such as model.py:loss")
            sys.path.insert(0, "")
            return import_module(place)
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
    except (Exception, SystemExit) as error:
        relative = isinstance(error, ImportError) and str(error).startswith("attempted relative import")
        hint = ("\n  Its package imports it: write MODULE:FUNCTION, such as package.model:loss, in the folder that has "
                "the package" if relative else "")
        raise CommandError(f"{place} cannot be imported: {error_text(error)}{hint}") from error
    else:
        return module


def error_text(error: BaseException) -> str:
    """Return an error with the file and the line of the user's where it was raised, if there is one."""
    found, message = None, str(error)
    if isinstance(error, SyntaxError) and error.filename:
        found, message = (error.filename, error.lineno), error.msg
    trace = error.__traceback__ if found is None else None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_user_file(file):
            found = file, trace.tb_lineno
        trace = trace.tb_next
    place = "" if found is None else f"\n  at {file_name(found[0])}:{found[1]}"
    return f"{type(error).__name__}: {message}{place}"


def _required_arguments(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments of a function that have no default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each.name for each in parameters if each.default is each.empty
            and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
