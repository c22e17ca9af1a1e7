"""The syntax tree of the compact style: expressions, statements and blocks, before names are looked up."""

from __future__ import annotations

from typing import Any, NamedTuple

from fxgrad.extend import Aval
from fxgrad.text.forms import Span
from fxgrad.text.numbers import Number as Value
from fxgrad.text.syntax import Constant, Use


class Numeral(NamedTuple):
    """A number, with its type if the text gives one."""

    value: Value
    aval: Aval | None
    at: int


class StaticArgument(NamedTuple):
    """An argument other than an operand: a type, a tuple, a string."""

    value: Any
    at: int


class Infix(NamedTuple):
    """`left operator right`."""

    operator: str
    left: Node
    right: Node
    at: int


class Prefix(NamedTuple):
    """`operator operand`."""

    operator: str
    operand: Node
    at: int


class TransposeSyntax(NamedTuple):
    """`base.T`."""

    base: Node
    at: int


class Group(NamedTuple):
    """An expression in parentheses, which the surrounding notation does not take apart."""

    inner: Node
    at: int


class Index(NamedTuple):
    """`base[items]`."""

    base: Node
    items: tuple[Node | Span | int | None, ...]
    at: int


class Call(NamedTuple):
    """`name(arguments, name=value)`; `quoted` if the name is; `called` is the label in `checkpoint(block)(x)`."""

    name: str
    arguments: tuple[Node | RoleSyntax, ...]
    params: dict[str, Any]
    quoted: bool
    called: str
    at: int


class InputSyntax(NamedTuple):
    """`name: type=operand` among the operands of a block: an input of its programs."""

    name: str
    aval: Aval | None
    operand: Node
    at: int


class RoleSyntax(NamedTuple):
    """`role(name=operand, ...)`: inputs of the programs of a block."""

    role: str
    inputs: list[InputSyntax]
    at: int


Node = Use | Numeral | StaticArgument | Infix | Prefix | TransposeSyntax | Group | Index | Call | InputSyntax


class Target(NamedTuple):
    """A name that a statement binds, with its type if the text gives one."""

    name: str
    aval: Aval | None
    at: int


class BlockPart(NamedTuple):
    """One program of a block: written in place, given by the label of its definition, or none."""

    label: str
    roles: list[RoleSyntax]
    body: Body | Use | None
    at: int


class StatementSyntax(NamedTuple):
    """One statement."""

    targets: list[Target]
    expression: Node
    parts: list[BlockPart]
    at: int


class Body(NamedTuple):
    """Statements, and the values that they return."""

    statements: list[StatementSyntax]
    outputs: list[Node]


class CompactProgram(NamedTuple):
    """A program with its head; `types` are those of its outputs, if the text gives them."""

    title: str | None
    inputs: list[Target]
    types: list[Aval] | None
    captured: list[tuple[Target, Constant | None]]
    body: Body
    at: int
