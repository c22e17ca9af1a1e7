"""Executables of jitted functions in a store on disk: their keys, and how a call finds its own.

A second process that jits a function of equal content loads what the first one compiled, and traces nothing. The key
of an entry is a digest of the function's content (`engine/store/content.py`), of the options of `jit`, of the types
and containers of the arguments, and of all else that decides what XLA makes of it (`engine/store/environment.py`).
At check level 1 and above a function whose executable was loaded is traced all the same: the lowered text must be the
one that was compiled.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.monitoring
from jax.experimental import serialize_executable

from fxgrad.engine import config, tree
from fxgrad.engine.api.jitted_calls import JittedCall
from fxgrad.engine.api.reverse import before_derivatives
from fxgrad.engine.caches import Cache
from fxgrad.engine.core.analysis import facts_of_users
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.executors.platforms import default_device
from fxgrad.engine.executors.xla import is_jax_tracer, x64
from fxgrad.engine.store.content import Content, Unknown, place_text
from fxgrad.engine.store.environment import environment
from fxgrad.engine.store.folder import Folder
from fxgrad.engine.tracing import observers
from fxgrad.engine.user_lines import at_user_line, function_name


class Stored(NamedTuple):
    """A compiled function: jax's executable, and what its plan needs to know of it.

    `lowered` is a digest of the text that XLA compiled.
    """

    scoped: bool
    is_wide: bool
    lowered: str
    compiled: Any


_loaded = Cache("executables of the store", 256)
"""By key: what this process made or loaded, for functions that are created anew."""
_folders: dict[tuple[str, int], Folder] = {}


def folder_in_use() -> Folder | None:
    """Return the folder of the store; None if none is set."""
    path = config.executable_store
    return None if path is None else _folder_at(path)


def _folder_at(path: str) -> Folder:
    """Return a folder of the size that is set; raise `ArgumentError` if it cannot be used."""
    key = path, config.executable_store_bytes
    folder = _folders.get(key)
    if folder is None:
        folder = _folders[key] = Folder(*key)
    return folder


config.check_store = _folder_at


def key_of_call(function: Callable[..., Any], options: dict[str, Any], call: JittedCall, avals: list[Aval],
                content: Content) -> str:
    """Return the key of the executable of a call; raise `Unknown` if the content of the function is not known.

    `content` is filled, so that it tells what was looked at.
    """
    _check_circumstances(call)
    try:
        content.add(function)
        content.add(options)
        content.add([*call.static])
        # The arguments with types in the place of arrays: containers of users' classes are looked at as objects. The
        # types are numbered, since a class may flatten in another order than before.
        content.add(tree.unflatten(call.split.structure, [*enumerate(avals)]))
        content.add(facts_of_users())
        content.add(repr(environment()))
        return content.digest()
    except RecursionError:
        raise Unknown("its content is nested too deeply") from None
    except Unknown:
        raise
    except Exception as error:  # noqa: BLE001  (of a user's own `__getattr__`, `__slots__`, `__reduce__`)
        raise Unknown(f"its content cannot be read: {type(error).__name__}: {error}") from None


def _check_circumstances(call: JittedCall) -> None:
    """Raise `Unknown` for what no key covers: meshes, several processes, other devices, rewritten traces."""
    if jax.process_count() > 1:
        raise Unknown("several processes compute together")
    if observers.observers or before_derivatives.get() is not None:
        raise Unknown("traces are observed or rewritten at present")
    if jax.config.jax_debug_nans or jax.config.jax_debug_infs:  # type: ignore[attr-defined]
        raise Unknown("NaNs or infinities are looked for")
    if not jax.sharding.get_abstract_mesh().empty:
        raise Unknown("it is called within a mesh")
    default = {default_device()}
    for leaf in call.leaves:
        if isinstance(leaf, jax.Array) and (is_jax_tracer(leaf) or leaf.sharding.device_set != default):
            raise Unknown("an argument lies on another device than the default one, or on several")


def load(folder: Folder, key: str) -> Stored | None:
    """Return an executable of this process, or from the folder; None if there is none that can be used."""
    found: Stored | None = _loaded.get(key)
    if found is not None:
        return found
    data = folder.read(key)
    if data is None:
        return None
    try:
        scoped, is_wide, lowered, (binary, in_tree, out_tree) = pickle.loads(data)  # noqa: S301  (signed by this user's processes)
        with _mode(scoped):
            compiled = serialize_executable.deserialize_and_load(
                binary, in_tree, out_tree, execution_devices=[default_device()])
    except Exception:  # noqa: BLE001  (of another version of XLA, or of classes that moved)
        folder.remove(key)
        return None
    entry: Stored = _loaded.add(key, Stored(scoped, is_wide, lowered, compiled))
    return entry


def store(folder: Folder, key: str, scoped: bool, is_wide: bool, lowered: Any) -> Stored:
    """Compile a lowered function, and enter it, on disk too where XLA can write it.

    What jax read from its own folder of compiled programs is not written: XLA leaves out its machine code.
    """
    with _mode(scoped):
        with _reads_of_jax() as reads:
            compiled = lowered.compile()
        entry: Stored = _loaded.add(key, Stored(scoped, is_wide, digest_of_text(lowered), compiled))
        if reads:
            return entry
        try:
            data = pickle.dumps((*entry[:3], serialize_executable.serialize(compiled)))
        except Exception:  # noqa: BLE001  (the platform cannot, or pickle does not find a class of a container)
            return entry
    folder.write(key, data)
    return entry


@contextmanager
def _reads_of_jax() -> Iterator[list[str]]:
    """Collect an entry for each program that this thread gets from jax's own folder of compiled ones in the block."""
    reads: list[str] = []
    thread = threading.get_ident()

    def listener(event: str, **_: str | int) -> None:
        if event == "/jax/compilation_cache/cache_hits" and threading.get_ident() == thread:
            reads.append(event)
    jax.monitoring.register_event_listener(listener)
    try:
        yield reads
    finally:
        jax.monitoring.unregister_event_listener(listener)


def is_of_one_device(lowered: Any) -> bool:
    """Return whether a lowered function runs on one device; the others are loaded where they were compiled."""
    return re.findall(r"mhlo\.num_(?:partitions|replicas) = (\d+)", lowered.as_text()) == ["1", "1"]


def digest_of_text(lowered: Any) -> str:
    """Return a digest of the text that XLA compiles."""
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()


def _mode(scoped: bool) -> AbstractContextManager[Any]:
    return x64() if scoped else nullcontext()


def check_lowered(function: Callable[..., Any], entry: Stored, lowered: Any) -> None:
    """Raise `AssertionError` unless an executable is of the text that the function lowers to now."""
    if digest_of_text(lowered) != entry.lowered:
        raise AssertionError(at_user_line(
            f"the store of executables has another program for {function_name(function)} than it records now; this is "
            "a bug in fxgrad, unless the function depends on what its code does not show "
            "(docs/appendix/stored-executables.md)"))


@dataclass(frozen=True)
class StoreExplanation:
    """Whether the store keeps the executable of a call, and why.

    Attributes:
        kept: Whether the content of the function is known, so that its executable can be kept.
        text: All of it as a text.
        key: The key of the executable, or "".
        reason: Why it is not kept, or "".
        file: The file of the line that `reason` speaks of, or "".
        line: The line, or None.
        functions: The functions whose code is part of the key, with their files and lines.
    """

    kept: bool
    text: str
    key: str = ""
    reason: str = ""
    file: str = ""
    line: int | None = None
    functions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__



def explain(function: Callable[..., Any], options: dict[str, Any], call: JittedCall, avals: list[Aval] | None,
            ) -> StoreExplanation:
    """Say whether the store keeps the executable of a call, and why; nothing is traced."""
    name, content = function_name(function), Content()
    try:
        if avals is None:
            raise Unknown("an argument is no array and no number")
        key = key_of_call(function, options, call, avals, content)
    except Unknown as unknown:
        place = f"{place_text(unknown.file, unknown.line)}: " if unknown.line else ""
        return StoreExplanation(False, f"the store does not keep {name}: {place}{unknown.reason}", "", unknown.reason,
                                unknown.file, unknown.line)
    functions = tuple(content.functions)
    text = "\n".join([f"the store keeps {name}; the key covers the code and the values read by:",
                      *(f"  {each}" for each in functions)])
    return StoreExplanation(True, text, key, functions=functions)
