"""Programs in files: `save` and `load`.

A file is a zip archive, not compressed: `program.json`, which has the program, the trees of its arguments and results
and their names, and an array of raw bytes in NumPy's format for each constant. Nothing in it is executed, and no
array is made that is larger than the file.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import tokenize
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.programs import program_for
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Program, Signature
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ProgramSyntaxError, UnsupportedError
from fxgrad.text.json_reader import of_document, parsed_json
from fxgrad.text.json_writer import document, known_array
from fxgrad.text.text_parser import refusing_excess
from fxgrad.text.values import is_named_tuple

FORMAT, VERSION = "fxgrad file", 1
CONTENTS = "program.json"
STAMP = 1980, 1, 1, 0, 0, 0
"""The time of all entries, so that equal programs make equal files."""

File = str | os.PathLike[str] | IO[bytes]


def save(file: File, fun: Callable[..., Any] | Program, *specs: Any, **kwargs: Any) -> Program:
    """Writes the program of `fun(*specs, **kwargs)` to a file, from which `load` makes it without `fun`; returns it.

    `file` is a path, or a binary file that is open for writing. The other arguments are arrays or `ShapeDtypeStruct`s,
    as for `make_program`, of which only shapes and dtypes matter; `fun` may be a program itself, and then there are
    none. Gradients, whole steps of training and what `vmap` and `jit` made are programs like any other. Arrays that
    the function closes over are kept; equal programs make equal files. A path is replaced when all is written.

    Raises `UnsupportedError` for Python code among what is to be kept (rules of `custom_vjp` that were not applied,
    callbacks) and containers that are neither dicts, lists, tuples nor named tuples.

    >>> import io, fxgrad, numpy as np
    >>> def loss(p, x):
    ...     return np.sum((x @ p["w"] + p["b"]) ** 2)
    >>> file = io.BytesIO()
    >>> _ = fxgrad.save(file, fxgrad.grad(loss), {"w": np.ones(3), "b": 0.0}, np.ones((5, 3)))
    >>> fxgrad.load(file)({"w": np.ones(3), "b": 1.0}, np.ones((5, 3)))
    {'b': np.float64(40.0), 'w': array([40., 40., 40.])}
    """
    program = program_for("save", fun, specs, kwargs)
    arrays: list[Any] = []

    def stand_in(value: Any) -> dict[str, Any]:
        array = known_array(value)
        arrays.append(array)
        return {"dtype": dtypes.short_name(array.dtype), "shape": [*map(int, array.shape)], "file": len(arrays) - 1}

    contents = {"format": FORMAT, "version": VERSION, "signature": written_signature(program.signature, "save"),
                "program": document(program, stand_in)}
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(CONTENTS, STAMP), json.dumps(contents))
        for number, array in enumerate(arrays):
            archive.writestr(zipfile.ZipInfo(_entry(number), STAMP), _npy(array))
    _put(file, written.getbuffer())
    return program


def load(file: File, primitives: Iterable[Primitive] = (), classes: Iterable[type] = ()) -> Program:
    """The program that `save` wrote; calling it takes and returns the containers of the function that was saved.

    `primitives` are of your own, and `classes` named tuples and enumerations of your own, if there are any in it. The
    arrays that the program closes over are read at once. Nothing in the file is executed.

    Raises `ProgramSyntaxError`, which says where, for a file that `save` did not write or that was changed, and
    `ProgramError` where the program breaks the rules.

    >>> import io, fxgrad
    >>> file = io.BytesIO()
    >>> _ = fxgrad.save(file, lambda x: x * 2.0, 1.0)
    >>> fxgrad.load(file)(3.0)
    np.float64(6.0)
    """
    classes = [*classes]
    with refusing_excess(), contextlib.ExitStack() as stack:
        opened = file if hasattr(file, "read") else stack.enter_context(Path(file).open("rb"))
        try:
            archive = stack.enter_context(zipfile.ZipFile(opened))
        except zipfile.BadZipFile as error:
            raise ProgramSyntaxError(f"this is no file of fxgrad.save: {error}") from None
        reader = _Reader(archive)
        contents = parsed_json(reader.bytes_of(CONTENTS).decode("utf-8", "replace"))
        if not isinstance(contents, dict) or contents.get("format") != FORMAT:
            raise ProgramSyntaxError(f'this is no file of fxgrad.save: {CONTENTS} is to have "format": "{FORMAT}"')
        version = contents.get("version")
        if type(version) is not int or not 1 <= version <= VERSION:
            raise ProgramSyntaxError(f"the file is of version {version!r}; this fxgrad reads versions up to {VERSION}: "
                                     "a newer one may read it")
        program = of_document(contents.get("program"), primitives, classes, reader.constant)
        return program.replace(signature=trees_of(
            contents.get("signature"), classes, (len(program.inputs) - program.captured, len(program.outputs))))


# --- trees ----------------------------------------------------------------------------------------------------------


def written_signature(signature: Signature | None, what: str) -> Any:
    """A signature as JSON, for the function `what`; raises `UnsupportedError` for containers that have no form."""
    if signature is None:
        return None
    return {"name": signature.name, "title": signature.title, "inputs": [*signature.input_names],
            "takes": _tree(signature.in_tree, what), "gives": _tree(signature.out_tree, what)}


def _tree(structure: Any, what: str) -> Any:
    """A tree as JSON, with the number of each leaf in its place."""
    if structure is None:
        return None
    return _branch(tree.unflatten(structure, range(structure.num_leaves)), what)


def _branch(value: Any, what: str) -> Any:
    kind = type(value)
    if value is None or kind is int:
        return value
    if kind is dict and all(type(key) in (str, int) for key in value):
        return {"dict": [[key, _branch(each, what)] for key, each in value.items()]}
    if kind in (list, tuple):
        return {kind.__name__: [_branch(each, what) for each in value]}
    if is_named_tuple(kind):
        return {"class": kind.__name__, "fields": {name: _branch(each, what) for name, each in zip(
            value._fields, value, strict=True)}}
    raise UnsupportedError(at_user_line(
        f"{what}: an argument or a result is a {kind.__name__}, which a file does not hold; dicts with strings or "
        f"integers as keys, lists, tuples and named tuples have a form. {what.capitalize()} a function of these"))


def trees_of(found: Any, classes: list[type], expected: tuple[int, int]) -> Signature | None:
    """The signature that `written_signature` wrote, with trees of as many leaves as expected.

    Raises `ProgramSyntaxError`, which says where, for anything else.
    """
    if found is None:
        return None
    if not isinstance(found, dict) or not {"name", "title", "inputs", "takes", "gives"} <= found.keys():
        _fail("signature", "name, title, inputs, takes and gives are expected")
    inputs = found["inputs"]
    names = [found["name"], found["title"], *(inputs if isinstance(inputs, list) else [None])]
    if any(type(name) is not str for name in names):
        _fail("signature", "names are strings")
    known = {each.__name__: each for each in classes}
    takes, gives = (None if each is None else tree.structure(_made(each, known, where))
                    for each, where in ((found["takes"], "takes"), (found["gives"], "gives")))
    for structure, count, what in zip((takes, gives), expected, ("takes", "gives"), strict=True):
        if structure is not None and structure.num_leaves != count:
            _fail(f"signature.{what}", f"{structure.num_leaves} leaves, where the program has {count}")
    return Signature(found["name"], tuple(inputs), takes, gives, found["title"])


def _made(value: Any, classes: dict[str, type], where: str) -> Any:
    """The container that `_branch` wrote."""
    if value is None or type(value) is int:
        return value
    kind: Any = ""
    items: Any = None
    if isinstance(value, dict) and value:
        kind, items = next(iter(value.items()))
    if kind == "class":
        return _record(value, classes, where)
    is_dict = kind == "dict" and isinstance(items, list) and all(
        isinstance(item, list) and len(item) == 2 and type(item[0]) in (str, int) for item in items)
    if not is_dict and (kind not in ("list", "tuple") or not isinstance(items, list)):
        _fail(f"signature.{where}", "a number, null, or an object with dict, list, tuple or class is expected")
    if is_dict:
        return {key: _made(each, classes, where) for key, each in items}
    made = [_made(each, classes, where) for each in items]
    return made if kind == "list" else tuple(made)


def _record(value: dict[str, Any], classes: dict[str, type], where: str) -> Any:
    name, fields = value["class"], value.get("fields")
    kind: Any = classes.get(name) if isinstance(name, str) else None
    if kind is None:
        _fail(f"signature.{where}", f"there is no class {name!r}; named tuples of your own are passed as "
                                    "load(file, classes=[...])")
    if not is_named_tuple(kind) or not isinstance(fields, dict) or [*fields] != [*kind._fields]:
        _fail(f"signature.{where}", f"the fields of {name} are {', '.join(getattr(kind, '_fields', ()))}")
    return tuple.__new__(kind, [_made(each, classes, where) for each in fields.values()])


# --- arrays ---------------------------------------------------------------------------------------------------------


def _entry(number: int) -> str:
    return f"constants/{number}.npy"


def _npy(array: Any) -> bytes:
    """Its elements, little-endian, as an array of bytes in NumPy's format."""
    data = np.frombuffer(array.astype(array.dtype.newbyteorder("<")).tobytes(), np.uint8)
    file = io.BytesIO()
    np.lib.format.write_array(file, data, version=(1, 0), allow_pickle=False)
    return file.getvalue()


class _Reader:
    """Reads entries of an archive, each as it stands in the file."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def bytes_of(self, name: str) -> bytes:
        """The bytes of an entry; raises `ProgramSyntaxError` if it is not there, packed, or not what it should be."""
        try:
            entry = self._archive.getinfo(name)
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                _fail(name, "it is compressed, which fxgrad.save does not do")
            return self._archive.read(entry)
        except KeyError:
            _fail(name, "it is missing")
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            _fail(name, f"it cannot be read: {error}")

    def constant(self, item: Any, where: str) -> Any:
        """The array that `item` of the JSON stands for."""
        if not isinstance(item, dict) or type(item.get("file")) is not int:
            _fail(where, "the number of an array is expected")
        shape = item.get("shape")
        if not isinstance(shape, list) or any(type(extent) is not int or extent < 0 for extent in shape):
            _fail(f"{where}.shape", "an array of integers is expected")
        try:
            dtype = dtypes.from_short_name(str(item.get("dtype")))
        except KeyError:
            _fail(f"{where}.dtype", f"there is no dtype {item.get('dtype')!r}")
        name = _entry(item["file"])
        file = io.BytesIO(self.bytes_of(name))
        try:
            version = np.lib.format.read_magic(file)
            found, _, kind = np.lib.format.read_array_header_1_0(file, max_header_size=1000)
        except (ValueError, SyntaxError, tokenize.TokenError, TypeError) as error:  # NumPy reads headers as Python
            _fail(name, f"it is no array: {error}")
        data = file.read()
        if version != (1, 0) or kind != np.uint8 or found != (len(data),):
            _fail(name, "bytes are expected, as many as it says")
        if len(data) != math.prod(shape) * dtype.itemsize:
            _fail(where, f"{len(data)} bytes do not make an array of shape {tuple(shape)} and dtype {dtype.name}")
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)[()]


def _put(file: File, data: Any) -> None:
    if hasattr(file, "write"):
        file.write(data)
        return
    path = Path(file)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _fail(where: str, problem: str) -> NoReturn:
    raise ProgramSyntaxError(f"{where}: {problem}")
