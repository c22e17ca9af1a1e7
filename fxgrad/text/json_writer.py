"""The JSON form of programs: stable, versioned, exact, and safe to load.

docs/reference/grammar.md describes it. Inner programs come first in the list, the main program last.
"""

from __future__ import annotations

import base64
import enum
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fxgrad import dtypes, tree, tree_util
from fxgrad.errors import UnsupportedError
from fxgrad.extend import (
    Atom,
    Aval,
    Equation,
    Integer,
    Literal,
    NoValues,
    Program,
    Tracer,
    Variable,
    inner_first,
    require_program,
)
from fxgrad.extend.sizes import SymbolicDim
from fxgrad.text.json_reader import FORMAT, VERSION, from_json
from fxgrad.text.names import variable_names
from fxgrad.text.parameters import order_parameters
from fxgrad.text.sources import Sources
from fxgrad.text.values import declared_fields, is_named_tuple, number_text, opaque_name

__all__ = ["from_json", "to_json"]


def to_json(program: Program, *, indent: int | None = None) -> str:
    """Return `program` as JSON, from which `from_json` makes an equal program, on any machine.

    >>> import fxgrad
    >>> text = to_json(fxgrad.make_program(lambda x: x + 1.0)(2.0))
    >>> from_json(text)(2.0)
    np.float64(3.0)

    Raises `UnsupportedError` for a program with Python objects among its parameters (callbacks, rules of `custom_jvp`
    and `custom_vjp`).
    """
    return json.dumps(document(require_program("to_json", program)), indent=indent)


def document(program: Program, array: Callable[[Any], dict[str, Any]] | None = None,
             rule: Callable[[Equation], int | None] | None = None) -> dict[str, Any]:
    """Return the document that `to_json` writes; `array` encodes each constant, by default as base64.

    `rule` returns the number of the user's rule of an operation, kept beside the document, or None if there is none.
    """
    return {"format": FORMAT, "version": VERSION, "programs": _JsonWriter(program, array or _array_json, rule).programs}


class _Rule(NamedTuple):
    """The number of a rule that is kept beside the document."""

    number: int


class _JsonWriter:
    """Writer of a program after the programs that it refers to; `programs` is the list."""

    def __init__(self, main: Program, array: Callable[[Any], dict[str, Any]],
                 rule: Callable[[Equation], int | None] | None) -> None:
        self._array, self._rule = array, rule
        self.programs: list[dict[str, Any]] = []
        self._sources = Sources()
        self._numbers: dict[int, int] = {}
        self._number(main)

    def _number(self, main: Program) -> int:
        """Return the number of a program; write it, after those in it, if it is new."""
        for program in inner_first(main) if id(main) not in self._numbers else []:
            if id(program) not in self._numbers:
                form = self._program(program)  # writes the programs that reports of checks refer to
                self._numbers[id(program)] = len(self.programs)
                self.programs.append(form)
        return self._numbers[id(main)]

    def _program(self, program: Program) -> dict[str, Any]:
        names = variable_names(program, self._sources)
        bindings = [[names[var], repr(var.aval)] for var in program.inputs]
        return {
            "name": None if program.signature is None else program.signature.name,
            "captured": bindings[:program.captured],
            "constants": [self._array(value) for value in program.constants] if program.constants else None,
            "inputs": bindings[program.captured:],
            "equations": [self._equation(equation, names) for equation in program.equations],
            "outputs": [_atom_json(names, atom) for atom in program.outputs],
        }

    def _equation(self, equation: Equation, names: dict[Variable, str]) -> dict[str, Any]:
        number = None if self._rule is None else self._rule(equation)
        params = equation.params
        if number is not None:
            params = {**params, "rule": _Rule(number)}
            if "structure" in params:  # which rules that are Python code need
                params["structure"] = None
        return {
            "primitive": equation.primitive.name,
            "inputs": [_atom_json(names, atom) for atom in equation.inputs],
            "params": {key: self._value(value, key, equation)
                       for key, value in order_parameters(equation.primitive, params).items()},
            "outputs": [[names[var], repr(var.aval)] for var in equation.outputs],
        }

    def _value(self, value: Any, key: str, equation: Equation) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if isinstance(value, Program):
            return {"program": self._number(value)}
        if kind is _Rule:
            return {"rule": value.number}
        if isinstance(value, enum.Enum):
            return {"enum": kind.__name__, "member": value.name}
        if kind is float or kind is complex:
            return {kind.__name__: number_text(np.asarray(value)[()])}
        if isinstance(value, np.generic | Integer) and value.dtype.name in dtypes.SUPPORTED:
            return {"scalar": number_text(value), "dtype": dtypes.short_name(value.dtype)}
        if isinstance(value, np.dtype) and (value.name in dtypes.SUPPORTED or dtypes.is_key(value)):
            return {"dtype": dtypes.short_name(value)}
        if kind is Aval:
            return {"type": repr(value)}
        if kind is SymbolicDim:
            return {"size": str(value)}
        if kind in (tuple, list):
            items = [self._value(item, key, equation) for item in value]
            return {"tuple": items} if kind is tuple else items
        if is_named_tuple(kind):
            return self._record(kind, value._asdict(), key, equation)
        fields = declared_fields(value)
        if fields is not None:
            return self._record(kind, fields, key, equation)
        if kind is tree_util.PyTreeDef:
            return {"tree": container_json(tree.unflatten(value, range(value.num_leaves)), lambda name: self._refuse(
                name, key, equation))}
        raise self._refuse(opaque_name(value), key, equation)

    def _record(self, kind: type, fields: dict[str, Any], key: str, equation: Equation) -> dict[str, Any]:
        return {"class": kind.__name__, "fields": {
            name: self._value(item, key, equation) for name, item in fields.items()}}

    def _refuse(self, name: str, key: str, equation: Equation) -> UnsupportedError:
        source = equation.source
        line = "" if source is None else f"\n  at {self._sources.comment(source)} (in {source.code.co_name})"
        what, form = ("to_json", "JSON") if self._rule is None else ("save", "a file")
        return UnsupportedError(
            f"{what}: the parameter {key} of {equation.primitive} is a Python object ({name}), which {form} does not "
            "hold; numbers, strings, dtypes, types, programs, and tuples of them have a form. Leave the "
            f"operation out of the function, or write pickle.dumps(program), which holds every object that pickle takes"
            f"{line}")


def container_json(value: Any, refusal: Callable[[str], Exception]) -> Any:
    """Return a container of numbers as JSON; raise `refusal(name)` of the class of a container that has no form."""
    kind = type(value)
    if value is None or kind is int:
        return value
    if kind is dict and all(type(key) in (str, int) for key in value):
        return {"dict": [[key, container_json(each, refusal)] for key, each in value.items()]}
    if kind in (list, tuple):
        return {kind.__name__: [container_json(each, refusal) for each in value]}
    if kind is NoValues:
        return {"float0": container_json(value.bools, refusal)}
    if is_named_tuple(kind):
        return {"class": kind.__name__, "fields": {name: container_json(each, refusal) for name, each in zip(
            value._fields, value, strict=True)}}
    raise refusal(kind.__name__)


def _atom_json(names: dict[Variable, str], atom: Atom) -> Any:
    if isinstance(atom, Literal):
        return {"literal": number_text(atom.value), "type": repr(atom.aval)}
    return names[atom]


def require_untraced(value: Any, what: str) -> Any:
    """Return a constant as a NumPy array; raise `UnsupportedError` for a traced one, for the function `what`."""
    if isinstance(value, Tracer):
        raise UnsupportedError(f"{what}: a constant of the program is a traced array, which has no elements yet. "
                               "Write the program outside of the transformation that traces it")
    return np.asarray(value)


def _array_json(value: Any) -> dict[str, Any]:
    array = require_untraced(value, "to_json")
    data = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return {"dtype": dtypes.short_name(array.dtype), "shape": [int(extent) for extent in array.shape],
            "base64": base64.b64encode(data).decode()}
