"""Build a program from its syntax tree: names become variables, words become primitives; nothing is executed."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.errors import FxgradError, ProgramError
from fxgrad.extend import (
    CALL_NAMES,
    Atom,
    Aval,
    CallNames,
    Equation,
    Literal,
    Primitive,
    Program,
    Signature,
    Variable,
    output_types,
    primitives,
)
from fxgrad.text.names import NAMES
from fxgrad.text.parameters import optional_parameters
from fxgrad.text.syntax import (
    Binding,
    Constant,
    Document,
    EquationSyntax,
    Member,
    ProgramSyntax,
    Record,
    Reference,
    Use,
)
from fxgrad.text.text_reader import convert_at
from fxgrad.text.tokens import Text
from fxgrad.text.values import ValueClasses, is_named_tuple

MOST_BYTES = 2 ** 28
"""Most bytes of an array that a text writes as one number or as a pattern."""

WRONG_PARAMS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
"""The errors that abstract rules raise for parameters of the wrong kind."""


def message_of_rule(error: Exception) -> str:
    """Return the message of an abstract rule's error, without the user's line: it is about a line of the text."""
    return str(error).partition("\n  at ")[0]


class ProgramBuilder:
    """Maker of the programs of one document."""

    DEFINED = " = program ..."
    """The text after the label of a definition."""

    def __init__(self, text: Text, document: Document, primitives: dict[str, Primitive], classes: ValueClasses,
                 ) -> None:
        self._text, self._document, self._primitives, self._classes = text, document, primitives, classes
        self._defined: dict[str, Program] = {}
        self._built: list[tuple[ProgramSyntax, Program]] = []

    def build_all(self) -> Program:
        """Return the main program, built after those that it refers to."""
        open_labels: dict[str, Iterator[Reference]] = {"": self._references(self._document.main)}
        while open_labels:
            label = next(reversed(open_labels))
            reference = next(open_labels[label], None)
            if reference is None:
                open_labels.pop(label)
                if label:
                    definition = self._document.programs[label]
                    self._defined[label] = self._program(definition.program)
                    CALL_NAMES.put(self._defined[label], CallNames(definition.name, ()))
            elif reference.label in open_labels:
                self._text.fail(reference.at, f"the program {reference.label!r} refers to itself")
            elif reference.label not in self._defined:
                definition = self._document.programs[reference.label]
                open_labels[reference.label] = self._references(definition.program)
        return self._program(self._document.main)

    def _references(self, program: Any) -> Iterator[Reference]:
        """Yield the definitions that `program` uses, directly or in its inner programs."""
        for equation in program.equations:
            for label in (equation.called or equation.primitive,):
                if label in self._document.programs:
                    yield Reference(label, equation.word)
            yield from self._references_in([*equation.params.values()])

    def _references_in(self, values: list[Any]) -> Iterator[Reference]:
        for value in values:
            if isinstance(value, Reference):
                if value.label in self._document.programs:
                    yield value
            elif isinstance(value, ProgramSyntax):
                yield from self._references(value)
            elif isinstance(value, Record):
                yield from self._references_in([*value.fields.values()])
            elif isinstance(value, tuple | list) and not isinstance(value, Member):
                yield from self._references_in([*value])

    # --- one program --------------------------------------------------------------------------------------

    def _program(self, syntax: Any) -> Program:
        scope: dict[str, Variable] = {}
        captured = [self._bind(scope, binding) for binding, _ in syntax.captured]
        inputs = [self._bind(scope, binding) for binding in syntax.inputs]
        equations = [self._equation(scope, equation) for equation in syntax.equations]
        outputs = [self._atom(scope, operand) for operand in syntax.outputs]
        names = tuple(binding.name for binding in syntax.inputs)
        signature = None if syntax.title is None else Signature(syntax.title, names, None, None)
        constants = self._constants(syntax.captured)
        program = Program([*captured, *inputs], equations, outputs, len(captured), constants, signature)
        NAMES.put(program, {var: name for name, var in scope.items()})
        self._built.append((syntax, program))
        return program

    def _bind(self, scope: dict[str, Variable], binding: Binding) -> Variable:
        if binding.name in scope:
            self._text.fail(binding.at, f"the name {binding.name!r} is bound already")
        var = scope[binding.name] = Variable(binding.aval)
        return var

    def _atom(self, scope: dict[str, Variable], operand: Use | Literal) -> Atom:
        if isinstance(operand, Literal):
            return operand
        var = scope.get(operand.name)
        if var is None:
            self._text.fail(operand.at, f"no input and no equation above has bound the name {operand.name!r}"
                            + nearest_name(operand.name, scope))
        return var

    def _equation(self, scope: dict[str, Variable], syntax: EquationSyntax) -> Equation:
        inputs = [self._atom(scope, operand) for operand in syntax.operands]
        if syntax.called or syntax.primitive in self._defined:
            primitive, params = self._call(syntax)
        else:
            primitive = self._primitive(syntax.primitive, syntax.word)
            params = dict.fromkeys(optional_parameters(primitive)) | \
                {name: self._value(value) for name, value in syntax.params.items()}
        return Equation(primitive, inputs, params, [self._bind(scope, binding) for binding in syntax.outputs])

    def _call(self, syntax: EquationSyntax) -> tuple[Primitive, dict[str, Any]]:
        primitive = self._primitive(syntax.primitive, syntax.word) if syntax.called else primitives.named_call
        label = syntax.called or syntax.primitive
        if label not in self._defined:
            self._unknown_program(label, syntax.word)
        if syntax.params.keys() - {"name"} or not isinstance(syntax.params.get("name", ""), str):
            self._text.fail(syntax.word, f"a call of the program {label!r} has one parameter at most, name=\"...\"")
        name = syntax.params.get("name", self._document.programs[label].name)
        return primitive, {"program": self._defined[label], "name": name}

    def _primitive(self, name: str, at: int) -> Primitive:
        primitive = self._primitives.get(name)
        if primitive is None:
            self._text.fail(at, f"there is no operation and no definition of the name {name!r}"
                            + nearest_name(name, [*self._primitives, *self._defined])
                            + "; operations of your own are passed as parse(text, primitives=[...])")
        return primitive

    def _unknown_program(self, label: str, at: int) -> None:
        self._text.fail(at, f"the program {label!r} is not defined: where {label}{self.DEFINED} is needed"
                        + nearest_name(label, self._document.programs))

    # --- constants and parameters -------------------------------------------------------------------------

    def _constants(self, captured: list[tuple[Binding, Constant | None]]) -> list[Any]:
        given = [constant is not None for _, constant in captured]
        if not any(given):
            return []
        if not all(given):
            binding = captured[given.index(False)][0]
            self._text.fail(binding.at, f"the captured value {binding.name!r} has no constant, and others have one; "
                                        "either all have or none has")
        return [self._array(constant, binding.aval) for binding, constant in captured if constant is not None]

    def _array(self, constant: Constant, aval: Aval) -> Any:
        at = constant.at
        if isinstance(constant.value, Reference):
            label = constant.value.label
            found = self._document.data.get(label)
            if found is None or isinstance(found.value, Reference):
                self._text.fail(at, f"the array {label} is not defined: where {label} = [...] is needed")
            constant = found
        if dtypes.is_key(aval.dtype):
            words = self._array(constant, Aval((*aval.shape, 2), np.dtype(np.uint32)))
            return np.ascontiguousarray(words).view(aval.dtype).reshape(aval.shape)[()]
        if constant.uniform:
            self._check_size(aval, at)
            element = convert_at(self._text, [constant.value], aval, constant.at)
            return np.full(aval.shape, element[0], aval.dtype)
        flat, shape = _flatten(constant.value)
        if shape != aval.shape and not (aval.size == 0 and not flat):
            self._text.fail(at, f"the elements make an array of shape {shape}, where the type is {aval}"
                            if shape is not None else "the rows are not of equal lengths")
        array = convert_at(self._text, flat, aval, constant.at).reshape(aval.shape)
        return array[()]

    def _check_size(self, aval: Aval, at: int) -> None:
        """Raise for an array that is short in the text but large in memory."""
        size = aval.size * aval.dtype.itemsize
        if size > MOST_BYTES:
            self._text.fail(at, f"an array of type {aval} takes {size} bytes, and a text may ask for {MOST_BYTES}; "
                                "make it an argument, or keep the program in a file of fxgrad.save")

    def _value(self, value: Any) -> Any:
        """Return the value of a parameter, with placeholders of the syntax replaced."""
        if isinstance(value, ProgramSyntax):
            return self._program(value)
        if isinstance(value, Reference):
            if value.label not in self._defined:
                self._text.fail(value.at, f"{value.label!r} is neither a dtype nor a program defined under 'where'"
                                + nearest_name(value.label, self._document.programs))
            return self._defined[value.label]
        if isinstance(value, Record):
            kind: Any = self._class(value.name, value.at)
            if not is_named_tuple(kind) or {*kind._fields} != value.fields.keys():
                needed = f"{value.name}({', '.join(f'{field}=...' for field in getattr(kind, '_fields', ()))})"
                self._text.fail(value.at, f"the fields of {value.name} are {needed}")
            # Past the class's own constructor, which may be anyone's code.
            return tuple.__new__(kind, [self._value(value.fields[field]) for field in kind._fields])
        if isinstance(value, Member):
            kind = self._class(value.name, value.at)
            if not issubclass(kind, enum.Enum) or value.member not in kind.__members__:
                self._text.fail(value.at, f"{value.name} has no member {value.member!r}")
            return kind[value.member]
        if type(value) is tuple:
            return tuple(map(self._value, value))
        return [*map(self._value, value)] if type(value) is list else value

    def _class(self, name: str, at: int) -> type:
        kind = self._classes.by_name.get(name)
        if kind is None:
            self._text.fail(at, f"there is no class {name!r} for parameters" + nearest_name(name, self._classes.by_name)
                            + "; named tuples and enumerations of your own are passed as parse(text, classes=[...])")
        return kind

    # --- errors -------------------------------------------------------------------------------------------

    def locate(self) -> None:
        """Find the equation that breaks the rules; raises `ProgramError` with its place."""
        for syntax, program in self._built:
            for place, equation in zip(syntax.equations, program.equations, strict=True):
                name = equation.primitive.name
                try:
                    expected = output_types(
                        equation.primitive, [atom.aval for atom in equation.inputs], equation.params)
                except (FxgradError, *WRONG_PARAMS) as error:
                    self._text.fail(place.word, f"{name} refuses its inputs: {message_of_rule(error)}", ProgramError)
                actual = [var.aval for var in equation.outputs]
                if actual != expected:
                    shown = [", ".join(map(repr, avals)) or "nothing" for avals in (expected, actual)]
                    self._text.fail(place.word, f"{name} gives {shown[0]} here, and the text says {shown[1]}",
                                    ProgramError)


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known name."""
    near = difflib.get_close_matches(name, [*known], 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _flatten(nested: Any) -> tuple[list[Any], tuple[int, ...] | None]:
    """Return the elements of nested lists in order, and their shape; None for the shape if the lists are ragged."""
    shape: list[int] = []
    level = [nested]
    while level and all(isinstance(item, list) for item in level):
        if len({len(item) for item in level}) > 1:
            return [], None
        shape.append(len(level[0]))
        level = [element for item in level for element in item]
    ragged = any(isinstance(item, list) for item in level)
    return ([], None) if ragged else (level, tuple(shape))
