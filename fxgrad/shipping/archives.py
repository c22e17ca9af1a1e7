"""Archives of programs: zip files, not compressed, with a JSON header, and the form of signatures in it.

`files` and `exports` are built on these. An archive has its header first, then entries of raw bytes; equal contents
make equal archives. Nothing in an archive is executed.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable
from typing import IO, Any, NamedTuple, NoReturn

from fxgrad import tree
from fxgrad.errors import ProgramSyntaxError, UnsupportedError
from fxgrad.extend import Signature, at_user_line
from fxgrad.numpy import sets
from fxgrad.numpy.linalg import decompositions, solving
from fxgrad.scipy import optimize
from fxgrad.scipy.spatial import transform
from fxgrad.scipy.stats import ranks
from fxgrad.text.json_reader import container_of_json, parse_json
from fxgrad.text.json_writer import container_json
from fxgrad.text.values import is_named_tuple
from fxgrad.training import distributions, optim, stochastic

STAMP = 1980, 1, 1, 0, 0, 0
"""The timestamp of all entries, so that equal programs give equal archives."""
LIBRARY_CLASSES: dict[str, type] = {
    name: kind
    for module in (decompositions, distributions, optim, optimize, ranks, sets, solving, stochastic, transform)
    for name, kind in vars(module).items() if isinstance(kind, type) and is_named_tuple(kind)}
"""The named tuples that functions of the library take and return, such as the states of optimizers, by name."""


class Format(NamedTuple):
    """A kind of archive: its name and version, with which the entry `header` begins, and words for error messages."""

    name: str
    version: int
    header: str
    noun: str
    writer: str
    refusal: str

    def write(self, header: dict[str, Any], entries: Iterable[tuple[str, bytes]]) -> bytes:
        """Return an archive of `header` and `entries` as bytes."""
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
            contents = json.dumps({"format": self.name, "version": self.version, **header})
            archive.writestr(zipfile.ZipInfo(self.header, STAMP), contents)
            for name, data in entries:
                archive.writestr(zipfile.ZipInfo(name, STAMP), data)
        return written.getvalue()

    def fail(self, problem: object) -> NoReturn:
        """Raise `ProgramSyntaxError` for a file that is not such an archive."""
        raise ProgramSyntaxError(f"{self.refusal}: {problem}")


class Archive:
    """An archive being read, whose entries are uncompressed; raises `ProgramSyntaxError` for any other file."""

    def __init__(self, kind: Format, file: IO[bytes]) -> None:
        self._kind = kind
        try:
            self._archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:  # the last, for versions of zip files
            kind.fail(error)
        self.names = {*self._archive.namelist()}

    def read(self, name: str) -> bytes:
        """Return the bytes of an entry."""
        try:
            entry = self._archive.getinfo(name)
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                fail_at(name, f"it is compressed, which {self._kind.writer} does not do")
            return self._archive.read(entry)
        except KeyError:
            fail_at(name, "it is missing")
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            names_differ = " and header b" in str(error)  # the message has all bytes that follow
            fail_at(name, f"it cannot be read: {'its two names in the archive differ' if names_differ else error}")

    def header(self) -> dict[str, Any]:
        """Return the header, of this format and of a known version."""
        kind = self._kind
        if kind.header not in self.names:
            others = ", ".join(sorted(self.names)[:3])
            kind.fail(f"it has no {kind.header}" + (f", and has {others}" if others else ""))
        found = parse_json(self.read(kind.header).decode("utf-8", "replace"))
        if not isinstance(found, dict) or found.get("format") != kind.name:
            kind.fail(f'{kind.header} is to have "format": "{kind.name}"')
        version = found.get("version")
        if type(version) is not int or not 1 <= version <= kind.version:
            raise ProgramSyntaxError(f"{kind.noun} is of version {version!r}; this fxgrad reads versions up to "
                                     f"{kind.version}: a newer one may read it")
        return found


def fail_at(where: str, problem: str) -> NoReturn:
    """Raise `ProgramSyntaxError` for a problem at an entry, or at a place in the header."""
    raise ProgramSyntaxError(f"{where}: {problem}")


# --- signatures ------------------------------------------------------------------------------------------------------


def signature_to_json(signature: Signature | None, what: str) -> Any:
    """Return a signature as JSON, for the function `what`; raise `UnsupportedError` for containers that JSON lacks."""
    if signature is None:
        return None
    return {"name": signature.name, "title": signature.title, "inputs": [*signature.input_names],
            "takes": _tree(signature.in_tree, what), "gives": _tree(signature.out_tree, what)}


def _tree(structure: Any, what: str) -> Any:
    """Return a tree as JSON, with the number of each leaf in its place."""
    if structure is None:
        return None
    return container_json(tree.unflatten(structure, range(structure.num_leaves)), lambda kind: UnsupportedError(
        at_user_line(
            f"{what}: an argument or a result is a {kind}, which a file does not hold; dicts with strings or integers "
            f"as keys, lists, tuples and named tuples have a form. {what.capitalize()} a function of these")))


def signature_from_json(found: Any, classes: list[type], expected: tuple[int, int]) -> Signature | None:
    """Return the signature that `signature_to_json` wrote, whose trees have the expected numbers of leaves.

    Raise `ProgramSyntaxError`, which names the place, for anything else.
    """
    if found is None:
        return None
    if not isinstance(found, dict) or not {"name", "title", "inputs", "takes", "gives"} <= found.keys():
        fail_at("signature", "name, title, inputs, takes and gives are expected")
    inputs = found["inputs"]
    names = [found["name"], found["title"], *(inputs if isinstance(inputs, list) else [None])]
    if any(type(name) is not str for name in names):
        fail_at("signature", "names are strings")
    known = {**LIBRARY_CLASSES, **{each.__name__: each for each in classes}}
    containers = {where: container_of_json(found[where], known, f"signature.{where}") for where in ("takes", "gives")
                  if found[where] is not None}
    takes, gives = (tree.structure(containers[where]) if where in containers else None for where in ("takes", "gives"))
    for structure, count, what in zip((takes, gives), expected, ("takes", "gives"), strict=True):
        if structure is not None and structure.num_leaves != count:
            fail_at(f"signature.{what}", f"{structure.num_leaves} leaves, where the program has {count}")
    args = containers.get("takes")
    if takes is not None and (type(args) is not tuple or [*map(type, args)] != [tuple, dict]):
        fail_at("signature.takes", "a tuple of the arguments and a dict of those by name are expected")
    return Signature(found["name"], tuple(inputs), takes, gives, found["title"])
