"""The content of a function: a digest of its code and of all that its code reads, equal in processes that agree on it.

A digest is a claim: functions with equal digests record the same program for arguments of the same types. Code counts
by its instructions and constants, not by its place in a file; what it reads counts by value, found as Python finds it:
names in the globals of the function, cells, defaults, attributes of modules, and all attributes of objects. Functions,
classes and modules of libraries stand for themselves, since the versions of the libraries are part of the key of an
entry. Whatever is not known here is refused: files, clocks, environment variables, random numbers, objects of compiled
classes.
"""

from __future__ import annotations

import abc
import builtins
import dis
import enum
import functools
import hashlib
import os
import struct
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.analysis import all_analyses
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive, library
from fxgrad.engine.pickling import import_object
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import file_name, function_name, is_user_file

LIBRARIES = frozenset({"fxgrad", "jax", "jaxlib", "ml_dtypes", "numpy", "opt_einsum", "scipy"})
"""Packages whose functions stand for themselves: their versions are in the key of an entry, fxgrad's by its sources."""

_PURE = frozenset({
    "__future__", "_abc", "_collections", "_collections_abc", "_functools", "_operator", "abc", "bisect", "cmath",
    "collections", "contextlib", "copy", "copyreg", "dataclasses", "enum", "fractions", "functools", "heapq",
    "itertools", "math", "numbers", "operator", "re", "reprlib", "statistics", "string", "types", "typing"})
"""Modules of Python's library whose functions depend on their arguments alone."""

_IMPURE_BUILTINS = frozenset({
    "__import__", "breakpoint", "compile", "dir", "eval", "exec", "globals", "hash", "id", "input", "locals", "open",
    "print", "vars"})
_IMPURE_MODULES = "numpy.random", "numpy.lib.npyio", "numpy.lib._npyio_impl", "fxgrad.shipping"
_IMPURE_NAMES = frozenset({
    "numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile", "numpy.fromregex", "numpy.memmap",
    "numpy.save", "numpy.savez", "numpy.savetxt", "numpy.geterr", "numpy.get_printoptions"})
_IMPURE_ATTRIBUTES_OF_NUMPY = frozenset({"random"} | {name.removeprefix("numpy.") for name in _IMPURE_NAMES})
_IMPURE_TEXT = "it uses {}, whose results or effects its content does not decide"
_DECIDED_BY_WRAPPED = "cache_parameters", "converted"
"""Attributes of wrappers that their function decides: caches, made again, and functions with converted control flow."""
_LOOKS_AT_ITSELF = frozenset({
    "__annotations__", "__builtins__", "__code__", "__globals__", "__subclasses__", "_getframe", "f_back", "f_globals",
    "f_locals", "gi_frame"})
"""Attributes by which code reads what its content does not show."""


class Unknown(Exception):  # noqa: N818  (it says that nothing is stored, and no user sees it as an error)
    """The reason why the content of a value is not known; `line` of `file` is where a function reads it."""

    def __init__(self, reason: str, file: str = "", line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.file, self.line = reason, file, line


class Content:
    """A digest under way: parts of it are added one by one, in an order that depends on the content alone."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=32)
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []
        self._attributes: set[str] = set()
        self._passes_numpy = self._has_containers = False
        self.functions: list[str] = []
        """The names of the functions of users that were met, with their files and lines."""

    def digest(self) -> str:
        """Return the digest of all parts so far."""
        names = sorted(self._attributes & _IMPURE_ATTRIBUTES_OF_NUMPY)
        if self._passes_numpy and names:
            raise Unknown(f"it passes NumPy as a value, and uses the attribute {names[0]}, which may be NumPy's")
        if self._has_containers:  # any file of the user's may register a class
            for source in _registering_files():
                self._write("registering file", source)
        return self._hash.hexdigest()

    def _write(self, kind: str, data: bytes | str = b"") -> None:
        data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        self._hash.update(f"{kind} {len(data)} ".encode())
        self._hash.update(data)

    def _is_new(self, value: Any) -> bool:
        """Return whether an object is met for the first time; if not, write which it was."""
        number = self._seen.get(id(value))
        if number is not None:
            self._write("again", str(number))
            return False
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)  # so that no other object gets its id
        return True

    # --- values ------------------------------------------------------------------------------------------------------

    def add(self, value: Any) -> None:
        """Add a value: by type and bits if it is a number, by parts if it is a container, an object or a function."""
        kind = type(value)
        if value is None or value is True or value is False or value is Ellipsis or value is NotImplemented:
            self._write("constant", repr(value))
        elif kind is int or kind is str:
            self._write(kind.__name__, str(value))
        elif kind is bytes:
            self._write("bytes", value)
        elif kind is float:
            self._write("float", struct.pack("<d", value))
        elif kind is complex:
            self._write("complex", struct.pack("<2d", value.real, value.imag))
        elif kind in (tuple, list, dict, set, frozenset):
            self._add_container(value, kind)
        elif isinstance(value, np.ndarray | np.generic):
            self._add_array(value)
        elif kind is Aval:
            self._write("type", f"{value.shape} {value.dtype!r} {value.dtype.metadata} {value.weak}")
        else:
            self._add_object(value, kind)

    def _add_container(self, value: Any, kind: type) -> None:
        if kind in (list, dict) and not self._is_new(value):
            return
        self._write(kind.__name__, str(len(value)))
        if kind is dict:
            for key, each in value.items():
                self.add(key)
                self.add(each)
        elif kind in (set, frozenset):
            for text in sorted(_digest_of_key(each) for each in value):
                self._write("entry", text)
        else:
            for each in value:
                self.add(each)

    def _add_array(self, value: Any) -> None:
        if isinstance(value, np.ndarray) and not self._is_new(value):
            return
        self._add_class(type(value))
        if value.dtype.hasobject:
            raise Unknown("it reads an array of objects")
        flags = value.flags
        self._write("array", f"{value.dtype!r} {value.dtype.metadata} {value.shape} {flags.c_contiguous} "
                             f"{flags.f_contiguous} {flags.writeable}")
        self._write("data", np.ascontiguousarray(value).tobytes())
        if isinstance(value, np.ma.MaskedArray) or not _is_library(type(value).__module__):
            self._add_attributes(value, type(value))  # the mask; what a user's subclass adds

    def _add_object(self, value: Any, kind: type) -> None:
        if isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, ModuleType):
            if not _is_library(value.__name__):
                raise Unknown(f"it uses the module {value.__name__} as a value")
            self._passes_numpy |= value is np
            self._write("module", value.__name__)
        elif kind is FunctionType:
            self._add_function(value)
        elif kind is MethodType:
            self._write("method")
            self.add(value.__func__)
            self.add(value.__self__)
        elif (name := library_name(value)) is not None:
            _check_pure(name)
            self._write("library", name)
        elif kind is BuiltinFunctionType:
            if isinstance(value.__self__, ModuleType | None):
                is_builtin = vars(builtins).get(value.__name__) is value  # `open`, whose module is io, or _io
                raise Unknown(_IMPURE_TEXT.format(
                    value.__name__ if is_builtin else f"{value.__module__}.{value.__qualname__}"))
            self._write("method", value.__name__)
            self.add(value.__self__)
        elif kind is CodeType:
            self._add_code(value)
        elif not self._is_new(value):
            return
        elif isinstance(value, Iterator):
            raise Unknown("it reads an iterator, which changes as it is read")
        elif isinstance(value, np.dtype):
            self._write("dtype", f"{value!r} {value.metadata}")
        elif isinstance(value, BoundedDict):
            self._write("cache")  # entries are no content: they are made again
        elif isinstance(value, Tracer):
            raise Unknown("it closes over a traced array")
        elif isinstance(value, enum.Enum):
            self._add_class(kind)
            self._write("member", value.name)
        elif kind in _PARTS_OF_CLASSES:
            self._write(kind.__name__)
            for part in _PARTS_OF_CLASSES[kind](value):
                self.add(part)
        elif _is_library(kind.__module__):
            self._add_library_object(value, kind)
        elif _is_written_in_python(kind) and not _is_of_python(kind.__module__):
            self._add_class(kind)
            self._add_state(value, kind)
        else:
            raise Unknown(f"it reads an object of class {kind.__module__}.{kind.__qualname__}, "
                          "whose content is not known")

    def _add_state(self, value: Any, kind: type) -> None:
        """Add all attributes of an object of a class written in Python, and what it holds as a container."""
        containers: tuple[Any, ...] = tuple, list, dict, str, bytes, int, float, complex
        for base in containers:
            if issubclass(kind, base):
                self.add(base(value))
                break
        else:
            compiled = next(base for base in kind.__mro__ if not _is_written_in_python(base))
            if compiled not in (object, BaseException, Exception):
                raise Unknown(f"it reads an object of class {kind.__qualname__}, which derives from "
                              f"{compiled.__qualname__}, whose content is not known")
        self._add_attributes(value, kind)

    def _add_attributes(self, value: Any, kind: type) -> None:
        """Add what `__dict__` and the slots of an object hold."""
        self.add(dict(getattr(value, "__dict__", {})))
        for base in kind.__mro__:
            slots = base.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                is_private = slot.startswith("__") and not slot.endswith("__")
                name = f"_{base.__name__.lstrip('_')}{slot}" if is_private else slot
                if slot not in ("__dict__", "__weakref__"):
                    self._write("slot" if hasattr(value, name) else "empty slot", slot)
                    self.add(getattr(value, name, None))

    def _add_library_object(self, value: Any, kind: type) -> None:
        name = f"{kind.__module__}.{kind.__qualname__}"
        _check_pure(name)
        if any(hasattr(value, name) for name in _DECIDED_BY_WRAPPED):
            self._write("wrapper", name)
            self.add(value.__wrapped__)
            return
        if isinstance(value, Primitive) and value not in library:
            self._write("primitive")
            self._add_state(value, kind)
            self.add([(analysis.name, fact) for analysis in all_analyses() for primitive, fact in (
                analysis.entered().items()) if primitive is value])
            return
        aval = getattr(value, "aval", None)
        if kind.__module__.startswith("jaxlib") and aval is not None:  # an array of jax
            if len(value.sharding.device_set) > 1 or not value.is_fully_addressable:
                raise Unknown("it reads an array that lies on several devices")
            self._write("jax array", f"{aval.str_short()} {aval.weak_type}")
            is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
            self._write("data", np.asarray(jax.random.key_data(value) if is_key else value).tobytes())
            return
        try:
            parts = value.__reduce_ex__(2)
        except Exception:  # noqa: BLE001  (whatever the class raises)
            raise Unknown(f"it reads an object of class {name}, whose content is not known") from None
        self._write("object", name)
        is_place = parts[0] is import_object and not _is_library(parts[1][0])
        if isinstance(parts, str) or is_place:  # a name in a module, which says nothing of the object
            if kind.__module__ == "typing":
                self._write("name", parts)
            elif _is_written_in_python(kind):
                self._add_state(value, kind)
            else:
                raise Unknown(f"it reads an object of class {name}, whose content is not known")
            return
        for part in parts:
            self.add([*part] if isinstance(part, Iterator) else part)

    # --- code --------------------------------------------------------------------------------------------------------

    def _add_class(self, kind: type) -> None:
        name = library_name(kind)
        if name is not None:
            _check_pure(name)
            self._write("library", name)
            return
        if not self._is_new(kind):
            return
        if not _is_written_in_python(kind) or _is_of_python(kind.__module__):
            raise Unknown(f"it uses the class {kind.__module__}.{kind.__qualname__}, whose content is not known")
        self._write("class", kind.__qualname__)
        if not _is_library(kind.__module__):  # what registers it, as a container of arrays say, is code of its file
            source = _read_source(kind.__module__)
            if not source:
                raise Unknown(f"it uses the class {kind.__qualname__}, which is not in a file, so that nothing shows "
                              "whether it is registered as a container")
            self._write("file", source)
            self._has_containers |= _is_container(kind)
        self._add_class(type(kind))
        if isinstance(kind, abc.ABCMeta):
            registered = [each() for each in abc._get_dump(kind)[0]]  # type: ignore[attr-defined]  # noqa: SLF001
            self.add(sorted(filter(None, registered), key=lambda each: (each.__module__, each.__qualname__)))
        for base in kind.__bases__:
            self._add_class(base)
        for key, value in kind.__dict__.items():
            if key not in _OF_EVERY_CLASS and type(value) not in _DESCRIPTORS:
                self._write("attribute", key)
                self.add(value)

    def _add_function(self, function: FunctionType) -> None:
        name = library_name(function)
        if name is not None:
            _check_pure(name)
            self._write("library", name)
            return
        if not self._is_new(function):
            return
        code = function.__code__
        self._write("function", code.co_qualname)
        self._write("name", function.__name__)
        self.add(function.__doc__)
        self._add_code(code)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        # Our own notes on a function, and the signature that others are shown, decide nothing.
        self.add({key: value for key, value in function.__dict__.items()
                  if not key.startswith("_fxgrad") and key != "__signature__"})
        module: str | None = function.__globals__.get("__name__")
        is_library = _is_library(module) and getattr(
            sys.modules.get(module or ""), "__dict__", None) is function.__globals__
        if _is_of_python(module) and not is_library:
            raise Unknown(_IMPURE_TEXT.format(f"{module}.{code.co_qualname}"))
        if not is_library and code.co_filename != "<string>":  # methods that dataclasses make
            self.functions.append(f"{function_name(function)}, {place_text(code.co_filename, code.co_firstlineno)}")
        try:
            for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
                self._write("cell", variable)
                try:
                    content = cell.cell_contents
                except ValueError:
                    self._write("empty")
                    continue
                self.add(content)
            if not is_library:  # what its code reads elsewhere is of the library
                for each in _codes(code):
                    self._add_reads(each, function)
        except Unknown as unknown:
            if unknown.line is None:
                unknown.file, unknown.line = code.co_filename, code.co_firstlineno
            raise

    def _add_code(self, code: CodeType) -> None:
        self._write("code", code.co_code)
        self._write("flags", f"{code.co_flags} {code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount}")
        self._write("exceptions", code.co_exceptiontable)
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            self._write("names", " ".join(names))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._add_code(constant)
            else:
                self.add(constant)

    def _add_reads(self, code: CodeType, function: FunctionType) -> None:
        """Add the values of the names that code reads in the globals of `function`, and of what it reads of modules."""
        line = code.co_firstlineno
        instructions = [each for each in dis.get_instructions(code)
                        if each.opname not in ("CACHE", "PUSH_NULL", "EXTENDED_ARG", "NOT_TAKEN")]
        for place, instruction in enumerate(instructions):
            line = getattr(instruction, "line_number", None) or instruction.starts_line or line
            try:
                self._add_read(instruction, instructions[place + 1:], function)
            except Unknown as unknown:
                if unknown.line is None:
                    unknown.file, unknown.line = code.co_filename, int(line)
                raise

    def _add_read(self, instruction: dis.Instruction, following: Iterable[dis.Instruction],
                  function: FunctionType) -> None:
        operation, name = instruction.opname, instruction.argval
        if not isinstance(name, str):
            return
        if operation in ("LOAD_ATTR", "LOAD_METHOD"):
            self._attributes.add(name)
        if operation in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            raise Unknown(f"it changes the global variable {name}")
        if operation in ("STORE_DEREF", "DELETE_DEREF") and name in function.__code__.co_freevars:
            raise Unknown(f"it changes {name}, a variable of the function around it")
        if operation == "IMPORT_NAME":
            raise Unknown(f"it imports {name} when it is called; import it at the top of the file")
        if name in _LOOKS_AT_ITSELF:
            raise Unknown(f"it reads the attribute {name}")
        if operation not in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            return
        self._write("global", name)
        if name in function.__globals__:
            value = function.__globals__[name]
        elif hasattr(builtins, name):
            value = getattr(builtins, name)
        else:
            self._write("missing")
            return
        path = name
        for each in following:
            if not isinstance(value, ModuleType) or each.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            path += f".{each.argval}"
            if not hasattr(value, each.argval):
                self._write("missing", path)
                return
            value = getattr(value, each.argval)
        if isinstance(value, ModuleType) and not _is_library(value.__name__):
            raise Unknown(f"it uses the module {value.__name__}, whose content is not known")
        self.add(value)


_IS_HEAP_TYPE = 1 << 9
"""The flag of classes made by a `class` statement, Py_TPFLAGS_HEAPTYPE."""
_IS_IMMUTABLE_TYPE = 1 << 8
"""The flag of classes that nobody can change, which are those of compiled code, Py_TPFLAGS_IMMUTABLETYPE."""
_OF_EVERY_CLASS = frozenset({
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__annotate__", "__annotate_func__",
    "__annotations_cache__", "__static_attributes__", "__firstlineno__", "_abc_impl", "__abstractmethods__"})
_DESCRIPTORS = types.GetSetDescriptorType, types.MemberDescriptorType
_PARTS_OF_CLASSES: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    property: lambda value: (value.fget, value.fset, value.fdel),
    staticmethod: lambda value: (value.__func__,),
    classmethod: lambda value: (value.__func__,),
    functools.cached_property: lambda value: (value.func,),
    functools.partialmethod: lambda value: (value.func, value.args, value.keywords),
    functools.partial: lambda value: (value.func, value.args, value.keywords, dict(value.__dict__)),
    types.MappingProxyType: lambda value: (dict(value),),
    range: lambda value: (value.start, value.stop, value.step),
    slice: lambda value: (value.start, value.stop, value.step),
    types.GenericAlias: lambda value: (value.__origin__, value.__args__),
}
"""The parts of objects of Python's own classes."""


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and those of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_written_in_python(kind: type) -> bool:
    """Return whether objects of a class have attributes alone, and no memory that compiled code looks at."""
    base = kind.__base__
    if base is None or not kind.__flags__ & _IS_HEAP_TYPE or kind.__flags__ & _IS_IMMUTABLE_TYPE:
        return False
    names = [name for name, value in kind.__dict__.items() if type(value) in _DESCRIPTORS]
    return kind.__basicsize__ - base.__basicsize__ <= 8 * len(names)  # of slots, the dictionary, weak references


def _is_library(module: str | None) -> bool:
    top = (module or "").partition(".")[0]
    return top in LIBRARIES or top in _PURE or top == "builtins"


def _is_of_python(module: str | None) -> bool:
    """Return whether a module is one of Python's library that is not known to be pure."""
    top = (module or "").partition(".")[0]
    return top in sys.stdlib_module_names and top not in _PURE and top not in ("builtins", "__main__")


_missing = object()


def library_name(value: Any) -> str | None:
    """Return the full name of a function, class or object of a library; None unless it is found under that name."""
    if value is jax.Array:
        return "jax.Array"  # its module is of the compiled part of jax, and cannot be imported
    owner = value.__self__ if type(value) is BuiltinFunctionType and not isinstance(
        value.__self__, ModuleType | None) else None
    module = getattr(value, "__module__", None)
    qualname = getattr(value, "__qualname__", None)
    if isinstance(value, np.ufunc):
        module, qualname = "numpy", value.__name__
    if owner is not None or not isinstance(module, str) or not isinstance(qualname, str) or not _is_library(module):
        return None
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, _missing)
    return f"{module}.{qualname}" if found is value else None


def _check_pure(name: str) -> None:
    """Raise `Unknown` for what depends on something else than its arguments."""
    module, _, last = name.rpartition(".")
    if (module == "builtins" and last in _IMPURE_BUILTINS) or name in _IMPURE_NAMES or name.startswith(_IMPURE_MODULES):
        raise Unknown(_IMPURE_TEXT.format(name.removeprefix("builtins.")))


def place_text(file: str, line: int) -> str:
    """Return a file with its folders and a line; a cell of a notebook as `In[2]:1`."""
    name = file_name(file)
    return f"{file if name == os.path.basename(file) else name}:{line}"


def _digest_of_key(value: Any) -> str:
    """Return the digest of an entry of a set, whose order means nothing."""
    content = Content()
    content.add(value)
    return content.digest()


def _read_source(module: str) -> bytes:
    """Return the text of the file of a module; b"" where there is none, as in a console."""
    try:
        with open(getattr(sys.modules.get(module), "__file__", None) or "", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _registering_files() -> list[bytes]:
    """Return the texts of the user's files that may register containers, in the order of their modules' names."""
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    texts = [_read_source(name) for name, file in sorted(files.items()) if is_user_file(file)]
    return [text for text in texts if b"register" in text]


def _is_container(kind: type) -> bool:
    """Return whether a class written in Python is registered as a container; none of its code is run."""
    compiled: Any = next(base for base in kind.__mro__ if not _is_written_in_python(base))
    try:
        return not jax.tree_util.all_leaves([compiled.__new__(kind)])
    except TypeError:  # there are no objects of it, such as of an abstract class
        return False
