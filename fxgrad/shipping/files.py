"""`save` and `load`: programs in files.

A file is an archive (`fxgrad/archives.py`): the header `program.json` has the program, the trees of its arguments and
results and their names; each constant is an array of raw bytes in NumPy's format. Nothing in a file is executed, and no
array is allocated that is larger than the file.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import math
import os
import tokenize
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from fxgrad import dtypes
from fxgrad.errors import ArgumentError
from fxgrad.extend import Equation, Primitive, Program, at_user_line, hide_frames
from fxgrad.extend.tracing import program_of
from fxgrad.shipping.archives import Archive, Format, fail_at, signature_from_json, signature_to_json
from fxgrad.shipping.rules import (
    read_rule_programs,
    record_rule,
    require_fitting_rules,
    rule_from_json,
    rule_key,
    rule_to_json,
    user_rule,
)
from fxgrad.text.json_reader import program_of_document
from fxgrad.text.json_writer import document, require_untraced
from fxgrad.text.text_parser import refuse_excess

FORMAT = Format("fxgrad file", 1, "program.json", "the file", "fxgrad.save", "this is no file of fxgrad.save")

File = str | os.PathLike[str] | IO[bytes]


@hide_frames
def save(file: File, fun: Callable[..., Any] | Program, *specs: Any, **kwargs: Any) -> Program:
    """Write the program of `fun(*specs, **kwargs)` to a file, from which `load` makes it without `fun`; return it.

    `file` is a path, or a binary file that is open for writing. The other arguments are arrays or `ShapeDtypeStruct`s,
    as for `make_program`, of which only shapes and dtypes matter; if `fun` is a program, there are none. Gradients,
    whole training steps and results of `vmap` and `jit` are programs like any other. Closed-over arrays are stored;
    equal programs give equal files. A path is replaced only once everything is written.

    Rules of `custom_jvp` and `custom_vjp` are stored as the programs that they record for the types at hand. Raises
    `FileNotFoundError` or `IsADirectoryError` for a path that cannot be written, `ArgumentError` for what is neither a
    path nor a binary file, and `UnsupportedError` if Python code would have to be stored (rules that branch on values,
    callbacks) and for containers that are neither dicts, lists, tuples nor named tuples.

    >>> import io, fxgrad, numpy as np
    >>> def loss(p, x):
    ...     return np.sum((x @ p["w"] + p["b"]) ** 2)
    >>> file = io.BytesIO()
    >>> _ = fxgrad.save(file, fxgrad.grad(loss), {"w": np.ones(3), "b": 0.0}, np.ones((5, 3)))
    >>> fxgrad.load(file)({"w": np.ones(3), "b": 1.0}, np.ones((5, 3)))
    {'b': np.float64(40.0), 'w': array([40., 40., 40.])}
    """
    require_file("save", file, "wb")
    program = program_of("save", fun, specs, kwargs)
    arrays: list[Any] = []

    def stand_in(value: Any) -> dict[str, Any]:
        array = require_untraced(value, "save")
        arrays.append(array)
        return {"dtype": dtypes.short_name(array.dtype), "shape": [*map(int, array.shape)], "file": len(arrays) - 1}

    numbers: dict[Any, int] = {}
    rules: list[Any] = []

    def number_of_rule(equation: Equation) -> int | None:
        if user_rule(equation) is None:
            return None
        key = rule_key(equation)
        if key not in numbers:  # entered first, since rules may apply their own function
            number = numbers[key] = len(rules)
            rules.append(None)
            rules[number] = rule_to_json(record_rule(equation), write)
        return numbers[key]

    def write(program: Program) -> dict[str, Any]:
        return document(program, stand_in, number_of_rule)

    header = {"signature": signature_to_json(program.signature, "save"), "program": write(program)}
    if rules:
        header["rules"] = rules
    write_file("save", file,
               FORMAT.write(header, ((_entry(number), _npy(array)) for number, array in enumerate(arrays))))
    return program


@hide_frames
def load(file: File, primitives: Iterable[Primitive] = (), classes: Iterable[type] = ()) -> Program:
    """Return the program that `save` wrote; calling it takes and returns the containers of the function that was saved.

    `primitives` are your own operations, and `classes` your own named tuples and enumerations, if the program contains
    any. The arrays that the program closes over are read at once. Nothing in the file is executed.

    Raises `FileNotFoundError` or `IsADirectoryError` for a path that is no file, `ArgumentError` for what is neither a
    path nor a binary file, `ProgramSyntaxError`, which names the place, for a file that `save` did not write or that
    was changed, and `ProgramError` if the program breaks the rules.

    >>> import io, fxgrad
    >>> file = io.BytesIO()
    >>> _ = fxgrad.save(file, lambda x: x * 2.0, 1.0)
    >>> fxgrad.load(file)(3.0)
    np.float64(6.0)
    """
    classes = [*classes]
    with refuse_excess(), _opened("load", file) as opened:
        archive = Archive(FORMAT, opened)
        header = archive.header()
        forms = header.get("rules", [])
        if not isinstance(forms, list):
            fail_at("rules", "an array is expected")
        rules = [rule_from_json(form, f"rules[{number}]") for number, form in enumerate(forms)]

        def read(form: Any) -> Program:
            return program_of_document(form, primitives, classes, functools.partial(_constant, archive), rules)

        for rule, form in zip(rules, forms, strict=True):
            read_rule_programs(rule, form, read)
        program = read(header.get("program"))
        require_fitting_rules(program, rules)
        return program.replace(signature=signature_from_json(
            header.get("signature"), classes, (len(program.inputs) - program.captured, len(program.outputs))))


# --- arrays ---------------------------------------------------------------------------------------------------------


def _entry(number: int) -> str:
    return f"constants/{number}.npy"


def _npy(array: Any) -> bytes:
    """Return the elements of an array, little-endian, as an array of bytes in NumPy's format."""
    data = np.frombuffer(array.astype(array.dtype.newbyteorder("<")).tobytes(), np.uint8)
    file = io.BytesIO()
    np.lib.format.write_array(file, data, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _constant(archive: Archive, item: Any, where: str) -> Any:
    """Return the array of an `item` of the JSON."""
    if not isinstance(item, dict) or type(item.get("file")) is not int:
        fail_at(where, "the number of an array is expected")
    shape = item.get("shape")
    if not isinstance(shape, list) or any(type(extent) is not int or extent < 0 for extent in shape):
        fail_at(f"{where}.shape", "an array of integers is expected")
    try:
        dtype = dtypes.from_short_name(str(item.get("dtype")))
    except KeyError:
        fail_at(f"{where}.dtype", f"there is no dtype {item.get('dtype')!r}")
    name = _entry(item["file"])
    file = io.BytesIO(archive.read(name))
    try:
        version = np.lib.format.read_magic(file)
        found, _, kind = np.lib.format.read_array_header_1_0(file, max_header_size=1000)
    except (ValueError, SyntaxError, tokenize.TokenError, TypeError) as error:  # NumPy reads headers as Python
        fail_at(name, f"it is no array: {error}")
    data = file.read()
    if version != (1, 0) or kind != np.uint8 or found != (len(data),):
        fail_at(name, "bytes are expected, as many as it says")
    if len(data) != math.prod(shape) * dtype.itemsize:
        fail_at(where, f"{len(data)} bytes do not make an array of shape {tuple(shape)} and dtype {dtype.name}")
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)[()]


# --- paths and open files ---------------------------------------------------------------------------------------------


def write_file(what: str, file: File, data: Any) -> None:
    """Write bytes to a path, which is replaced only once everything is written, or to an open file, for `what`."""
    opened = require_file(what, file, "wb")
    if opened is not None:
        opened.write(data)
        return
    path = Path(file)  # type: ignore[arg-type]
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, f"{what}: this is a directory, where the path of a file is needed",
                                    str(path))
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"{what}: there is no such folder. Make it first", str(path.parent))
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _opened(what: str, file: File) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Return a block that reads a path, or an open file, for `what`."""
    opened = require_file(what, file, "rb")
    if opened is not None:
        return contextlib.nullcontext(opened)
    path = Path(file)  # type: ignore[arg-type]
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, f"{what}: this is a directory, where a file of save is needed", str(path))
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, f"{what}: there is no such file", str(path))
    return path.open("rb")


def require_file(what: str, file: Any, mode: str) -> IO[bytes] | None:
    """Return an open file, or None for a path; raise `ArgumentError` for anything else, and for files of text."""
    method, call = ("read", f"{what}(path)") if mode == "rb" else ("write", f"{what}(path, f, *specs)")
    if isinstance(file, str | os.PathLike):
        return None
    if not hasattr(file, method):
        if isinstance(file, bytes):
            call += f", or {what}(io.BytesIO(data)) for the bytes of a file"
        raise ArgumentError(at_user_line(f"{what} takes a path or an open binary file first, got a "
                                         f"{type(file).__name__}. Write {call}"))
    if isinstance(file, io.TextIOBase):
        raise ArgumentError(at_user_line(f"{what}: the file is open for text, and a program is bytes. Open it with "
                                         f"open(path, {mode!r}), or pass the path"))
    if not getattr(file, "readable" if mode == "rb" else "writable", lambda: True)():
        raise ArgumentError(at_user_line(f"{what}: the file is not open to {method}. Open it with open(path, {mode!r}),"
                                         " or pass the path"))
    return file
