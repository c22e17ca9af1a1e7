"""Read programs from JSON: every field is checked before it is used, and nothing is executed."""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from fxgrad import dtypes, tree
from fxgrad.errors import FxgradError, ProgramError, ProgramSyntaxError
from fxgrad.extend import (
    Atom,
    Aval,
    DType,
    Equation,
    Literal,
    NoValues,
    Primitive,
    Program,
    Signature,
    Variable,
    primitives,
)
from fxgrad.extend.analyses import check_program
from fxgrad.extend.sizes import parse_size
from fxgrad.text.names import NAMES
from fxgrad.text.text_parser import WRONG_PARAMS, refuse_excess
from fxgrad.text.text_reader import convert_at, plain_number, read_number, read_type
from fxgrad.text.tokens import Text
from fxgrad.text.values import ValueClasses, is_named_tuple

FORMAT = "fxgrad program"
VERSION = 1


def from_json(text: str, primitives: Iterable[Primitive] = (), classes: Iterable[type] = ()) -> Program:
    """Return the program that `to_json` wrote as `text`; `primitives` and `classes` are your own, as for `parse`.

    Raises `ProgramSyntaxError`, which names the field, if the text does not have that form, and `ProgramError` if the
    program breaks the rules. Nothing in the text is executed.
    """
    with refuse_excess():
        return program_of_document(parse_json(text), primitives, classes)


def parse_json(text: str) -> Any:
    """Return the parsed JSON; raise `ProgramSyntaxError` for invalid text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ProgramSyntaxError(f"{place}: this is not JSON: {error.msg}") from None
    except RecursionError:
        raise ProgramSyntaxError("the JSON is nested too deeply to be a program") from None


def program_of_document(document: Any, further: Iterable[Primitive] = (), classes: Iterable[type] = (),
                        array: Callable[[Any, str], Any] | None = None, rules: Sequence[Any] = ()) -> Program:
    """Return the program of a document of `json_writer.document`; `array` restores each constant.

    `rules` are those that are kept beside the document, by number.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ProgramSyntaxError(f'this JSON is not a program: an object with "format": "{FORMAT}" is expected')
    version = document.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise ProgramSyntaxError(f"the program is of version {version!r} of the format; this fxgrad reads versions "
                                 f"up to {VERSION}: a newer one may read it")
    known = {**primitives, **{primitive.name: primitive for primitive in further}}
    loader = _Loader(known, ValueClasses(classes), array, rules)
    for number, fields in enumerate(_field(document, "programs", list, "the document")):
        loader.programs.append(loader.program(_require_kind(fields, dict, f"programs[{number}]"),
                                              f"programs[{number}]"))
    if not loader.programs:
        _fail("programs", "at least one program is expected")
    program = loader.programs[-1]
    try:
        check_program(program)
    except WRONG_PARAMS as error:
        if isinstance(error, FxgradError):
            raise
        raise ProgramError(f"the program is wrong: {error}") from error
    return program


_KINDS = {dict: "an object", list: "an array", str: "a string", int: "an integer"}


def _fail(where: str, problem: str) -> NoReturn:
    raise ProgramSyntaxError(f"{where}: {problem}")


def _require_kind(value: Any, kind: type, where: str) -> Any:
    if type(value) is not kind:
        shown = json.dumps(value)
        _fail(where, f"{_KINDS[kind]} is expected, found {shown if len(shown) <= 40 else shown[:37] + '...'}")
    return value


def _field(fields: dict[str, Any], name: str, kind: type, where: str) -> Any:
    if name not in fields:
        _fail(where, f"the field {name!r} is missing")
    return _require_kind(fields[name], kind, f"{where}.{name}")


class _Loader:
    """Makes programs, in order; each may refer to those before it."""

    def __init__(self, primitives: dict[str, Primitive], classes: ValueClasses,
                 array: Callable[[Any, str], Any] | None, rules: Sequence[Any]) -> None:
        self.programs: list[Program] = []
        self._rules = rules
        self._array = array or self._parse_parameter
        self._primitives, self._classes = primitives, classes
        self._types: dict[str, Aval] = {}

    def program(self, fields: dict[str, Any], where: str) -> Program:
        """Read one program."""
        scope: dict[str, Variable] = {}
        captured = self._bindings(scope, _field(fields, "captured", list, where), f"{where}.captured")
        inputs = self._bindings(scope, _field(fields, "inputs", list, where), f"{where}.inputs")
        input_names = tuple(scope)[len(captured):]
        constants = []
        if fields.get("constants") is not None:
            constants = [self._array(item, f"{where}.constants[{number}]")
                         for number, item in enumerate(_field(fields, "constants", list, where))]
            if [(value.shape, value.dtype) for value in constants] != \
                    [(var.aval.shape, var.aval.dtype) for var in captured]:
                _fail(f"{where}.constants", "the arrays are not of the types of the captured values")
        equations = [self._equation(scope, _require_kind(item, dict, f"{where}.equations[{number}]"),
                                    f"{where}.equations[{number}]")
                     for number, item in enumerate(_field(fields, "equations", list, where))]
        outputs = [self._atom(scope, item, f"{where}.outputs[{number}]")
                   for number, item in enumerate(_field(fields, "outputs", list, where))]
        name = fields.get("name")
        signature = None if name is None else Signature(_require_kind(name, str, f"{where}.name"), input_names, None,
                                                        None)
        result = Program([*captured, *inputs], equations, outputs, len(captured), constants, signature)
        NAMES.put(result, {var: name for name, var in scope.items()})
        return result

    def _bindings(self, scope: dict[str, Variable], items: list[Any], where: str) -> list[Variable]:
        variables = []
        for number, item in enumerate(items):
            place = f"{where}[{number}]"
            if type(item) is not list or len(item) != 2:
                _fail(place, "a pair of a name and a type is expected")
            name = _require_kind(item[0], str, place)
            if name in scope:
                _fail(place, f"the name {name!r} is bound already")
            scope[name] = Variable(self._aval(item[1], place))
            variables.append(scope[name])
        return variables

    def _equation(self, scope: dict[str, Variable], fields: dict[str, Any], where: str) -> Equation:
        name = _field(fields, "primitive", str, where)
        if name not in self._primitives:
            _fail(f"{where}.primitive", f"there is no operation of the name {name!r}; operations of your own are "
                                        "passed as from_json(text, primitives=[...])")
        inputs = [self._atom(scope, item, f"{where}.inputs[{number}]")
                  for number, item in enumerate(_field(fields, "inputs", list, where))]
        params = {key: self._value(value, f"{where}.params.{key}")
                  for key, value in _field(fields, "params", dict, where).items()}
        outputs = self._bindings(scope, _field(fields, "outputs", list, where), f"{where}.outputs")
        return Equation(self._primitives[name], inputs, params, outputs)

    def _atom(self, scope: dict[str, Variable], item: Any, where: str) -> Atom:
        if isinstance(item, dict):
            aval = self._aval(_field(item, "type", str, where), where)
            if aval.shape:
                _fail(where, f"a literal is of shape (), and {aval} is not")
            return Literal(self._scalar(_field(item, "literal", str, where), aval.dtype, where), aval)
        if _require_kind(item, str, where) not in scope:
            _fail(where, f"no input and no equation before has bound the name {item!r}")
        return scope[item]

    def _aval(self, text: Any, where: str) -> Aval:
        known = self._types.get(_require_kind(text, str, where))
        if known is None:
            known = self._types[text] = _parse_at(where, read_type, text)
        return known

    def _size(self, text: str, where: str) -> Any:
        try:
            return parse_size(text)
        except ValueError:
            _fail(where, f"{text!r} is no size such as 2*n + 1")

    def _scalar(self, text: str, dtype: DType, where: str) -> Any:
        number = _parse_at(where, read_number, text)
        return _parse_at(where, convert_at, Text(text), [number], Aval((), dtype), 0)[0]

    def _dtype(self, name: Any, where: str) -> DType:
        try:
            return dtypes.from_short_name(_require_kind(name, str, where))
        except KeyError:
            _fail(where, f"there is no dtype {name!r}")

    def _parse_parameter(self, item: Any, where: str) -> Any:
        fields = _require_kind(item, dict, where)
        dtype = self._dtype(_field(fields, "dtype", str, where), where)
        shape = tuple(_require_kind(extent, int, f"{where}.shape") for extent in _field(fields, "shape", list, where))
        try:
            data = base64.b64decode(_field(fields, "base64", str, where), validate=True)
            # Little-endian in the text; a copy, since arrays over bytes are read-only.
            array = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
        except ValueError as error:
            _fail(where, f"the elements do not make an array of shape {shape} and dtype {dtype.name}: {error}")
        return array[()]

    def _value(self, value: Any, where: str) -> Any:
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, list):
            return [self._value(item, where) for item in value]
        if isinstance(value, float):
            _fail(where, f'a floating number is written as {{"float": "{value}"}}, since JSON has no dtypes')
        read = {
            "float": lambda text: plain_number(Text(text), _parse_at(where, read_number, text), 0),
            "complex": lambda text: plain_number(Text(text), _parse_at(where, read_number, text), 0),
            "scalar": lambda text: self._scalar(text, self._dtype(value.get("dtype"), where), where),
            "dtype": lambda name: self._dtype(name, where),
            "type": lambda text: self._aval(text, where),
            "size": lambda text: self._size(_require_kind(text, str, where), where),
            "tuple": lambda items: tuple(self._value(item, where) for item in _require_kind(items, list, where)),
            "program": lambda number: self._reference(number, where),
            "enum": lambda name: self._member(name, value.get("member"), where),
            "class": lambda name: self._record(name, _field(value, "fields", dict, where), where),
            "tree": lambda container: tree.structure(container_of_json(container, self._classes.by_name, where)),
        }
        if self._rules:
            read["rule"] = lambda number: self._rule(number, where)
        for key, function in read.items():
            if key in value:
                if key in ("float", "complex", "scalar"):
                    _require_kind(value[key], str, where)
                return function(value[key])
        _fail(where, f"an object with one of the fields {', '.join(read)} is expected")

    def _reference(self, number: Any, where: str) -> Program:
        if not 0 <= _require_kind(number, int, where) < len(self.programs):
            _fail(where, f"program {number} is not among those before this one")
        return self.programs[number]

    def _rule(self, number: Any, where: str) -> Any:
        if not 0 <= _require_kind(number, int, where) < len(self._rules):
            _fail(where, f"rule {number} is not among those of the file before this place")
        return self._rules[number]

    def _member(self, name: Any, member: Any, where: str) -> Any:
        kind = self._class(name, where)
        if not issubclass(kind, enum.Enum) or member not in kind.__members__:
            _fail(where, f"{name} has no member {member!r}")
        return kind[member]

    def _record(self, name: Any, fields: dict[str, Any], where: str) -> Any:
        kind: Any = self._class(name, where)
        is_dataclass = dataclasses.is_dataclass(kind)
        names = [field.name for field in dataclasses.fields(kind)] if is_dataclass else getattr(kind, "_fields", ())
        if not (is_dataclass or is_named_tuple(kind)) or {*names} != fields.keys():
            _fail(where, f"the fields of {name} are {', '.join(names)}")
        values = [self._value(fields[field], f"{where}.{field}") for field in names]
        return kind(*values) if is_dataclass else tuple.__new__(kind, values)

    def _class(self, name: Any, where: str) -> type:
        kind = self._classes.by_name.get(_require_kind(name, str, where))
        if kind is None:
            _fail(where, f"there is no class {name!r} for parameters; those of your own are passed as "
                         "from_json(text, classes=[...])")
        return kind


def _parse_at(where: str, function: Any, *args: Any) -> Any:
    """Return the result of a text reader; its errors name the field, not a line."""
    try:
        return function(*args)
    except ProgramSyntaxError as error:
        _fail(where, str(error).split("\n", maxsplit=1)[0].split(": ", 1)[1])


def container_of_json(value: Any, classes: Mapping[str, type], where: str) -> Any:
    """Return the container that `json_writer.container_json` wrote; `classes` are the named tuples, by name."""
    if value is None or type(value) is int:
        return value
    kind: Any = ""
    items: Any = None
    if isinstance(value, dict) and value:
        kind, items = next(iter(value.items()))
    if kind == "class":
        return _container_of_class(value, classes, where)
    if kind == "float0" and type(items) is int:
        return NoValues(items)
    is_dict = kind == "dict" and isinstance(items, list) and all(
        isinstance(item, list) and len(item) == 2 and type(item[0]) in (str, int) for item in items)
    if not is_dict and (kind not in ("list", "tuple") or not isinstance(items, list)):
        _fail(where, "a number, null, or an object with dict, list, tuple, class or float0 is expected")
    if is_dict:
        return {key: container_of_json(each, classes, where) for key, each in items}
    made = [container_of_json(each, classes, where) for each in items]
    return made if kind == "list" else tuple(made)


def _container_of_class(value: dict[str, Any], classes: Mapping[str, type], where: str) -> Any:
    name, fields = value["class"], value.get("fields")
    kind: Any = classes.get(name) if isinstance(name, str) else None
    if kind is None:
        _fail(where, f"there is no class {name!r}; named tuples of your own are passed as load(file, classes=[...])")
    if not is_named_tuple(kind) or not isinstance(fields, dict) or [*fields] != [*kind._fields]:
        _fail(where, f"the fields of {name} are {', '.join(getattr(kind, '_fields', ()))}")
    return tuple.__new__(kind, [container_of_json(each, classes, where) for each in fields.values()])
