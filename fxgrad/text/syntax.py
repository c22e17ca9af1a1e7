"""The syntax tree of program text, before names are looked up."""

from __future__ import annotations

from typing import Any, NamedTuple

from fxgrad.extend import Aval, Literal


class Binding(NamedTuple):
    """`name: type`."""

    name: str
    aval: Aval
    at: int


class Use(NamedTuple):
    """A use of a variable."""

    name: str
    at: int


class Reference(NamedTuple):
    """The name of a program, or with `@` of an array, that is defined under `where`."""

    label: str
    at: int


class Record(NamedTuple):
    """`Name(field=value)`, a named tuple."""

    name: str
    fields: dict[str, Any]
    at: int


class Member(NamedTuple):
    """`Name.MEMBER`, of an enumeration."""

    name: str
    member: str
    at: int


class Constant(NamedTuple):
    """The value after `captured c: f32[3] =`: nested lists, one number for all elements, or a reference."""

    value: Any
    uniform: bool
    at: int


class EquationSyntax(NamedTuple):
    """One equation; `called` is the program's label in `checkpoint block(x)`, else "".

    `word` is the place of the primitive's name, for messages.
    """

    outputs: list[Binding]
    primitive: str
    called: str
    operands: list[Use | Literal]
    params: dict[str, Any]
    word: int


class ProgramSyntax(NamedTuple):
    """One program; `title` is None if the text has none."""

    title: str | None
    inputs: list[Binding]
    captured: list[tuple[Binding, Constant | None]]
    equations: list[EquationSyntax]
    outputs: list[Use | Literal]
    at: int


class Definition(NamedTuple):
    """A program under `where`, and the name that its equations call it by."""

    name: str
    program: Any


class Document(NamedTuple):
    """A whole text, of either style: the main program and the definitions under `where`."""

    main: Any
    programs: dict[str, Definition]
    data: dict[str, Constant]
