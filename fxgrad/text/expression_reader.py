"""Expressions of compact text: by recursive descent, with the precedence of Python's operators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fxgrad import dtypes
from fxgrad.extend import Aval
from fxgrad.text.blocks import NAMES, ROLE_NAMES
from fxgrad.text.expressions import (
    Call,
    Group,
    Index,
    Infix,
    InputSyntax,
    Node,
    Numeral,
    Prefix,
    RoleSyntax,
    StaticArgument,
    TransposeSyntax,
)
from fxgrad.text.forms import COMPARISON, LEVELS, Span
from fxgrad.text.names import RESERVED
from fxgrad.text.numbers import NanBits
from fxgrad.text.numbers import Number as Value
from fxgrad.text.syntax import Use
from fxgrad.text.text_reader import Reader, convert_at, plain_name, plain_number
from fxgrad.text.tokens import Token

NUMBER_WORDS = ("True", "False", "nan", "inf", "complex")
SCALARS = frozenset(map(dtypes.short_name, dtypes.SUPPORTED.values()))
"""Dtypes, which are also types of scalars."""


class ExpressionReader(Reader):
    """Reads expressions, and types of scalars."""

    def _type(self) -> Aval:
        """Read a type; a scalar's may be a dtype alone."""
        token = self._token
        if token.kind == "name" and token.text in SCALARS:
            self._next()
            return Aval((), dtypes.from_short_name(token.text), weak=self._take("*"))
        return super()._type()

    # --- expressions --------------------------------------------------------------------------------------

    def _expression(self, level: int = 0) -> Node:
        """Read an expression of operators that bind at least as tightly as `level`."""
        self._enter()
        left = self._unary()
        while True:
            token = self._token
            symbol = "@" if token.kind == "data" else token.text
            binds = LEVELS.get(symbol, -1) if token.kind in ("mark", "data") else -1
            if binds < level or binds < 0 or symbol == "**":
                break
            if token.kind == "data":  # `x @w`
                self._tokens[self._index] = Token("name", token.text[1:], token.at + 1)
            else:
                self._next()
            right = self._expression(binds + 1)
            if binds == COMPARISON and LEVELS.get(self._token.text) == COMPARISON and self._token.kind == "mark":
                self._fail("one comparison at a time: write (a < b) & (b < c)")
            left = Infix(symbol, left, right, token.at)
        self._depth -= 1
        return left

    def _unary(self) -> Node:
        token = self._token
        if token.kind == "mark" and token.text in ("-", "~"):
            following = self._tokens[self._index + 1]
            if token.text == "-" and (following.kind == "number" or following.text in ("inf", "nan")):
                number = self._literal()
                if not self._is("**"):
                    return number
                self._text.fail(token.at, "write (-x) ** y or -(x ** y) of a negative number")
            self._next()
            self._enter()
            operand = self._unary()
            self._depth -= 1
            return Prefix(token.text, operand, token.at)
        base = self._postfix()
        if self._is("**"):
            at = self._next().at
            return Infix("**", base, self._unary(), at)
        return base

    def _postfix(self) -> Node:
        node = self._primary()
        while True:
            token = self._token
            if self._take("["):
                self._enter()
                items: list[Any] = []
                while not self._take("]"):
                    items.append(self._item())
                    if not self._take(",") and not self._is("]"):
                        self._fail("',' or ']' after an item of an index")
                self._depth -= 1
                node = Index(node, tuple(items), token.at)
            elif self._is(".") and self._tokens[self._index + 1].text.split("[")[0].split(".")[0] == "T":
                self._next()
                for step in steps(f".{self._next().text}"):  # `.T[0]` is one word
                    if step != "T" and not isinstance(step, int):
                        self._text.fail(token.at, "an operation or '.T' and integers between brackets are needed "
                                        "after an expression")
                    node = TransposeSyntax(node, token.at) if step == "T" else Index(node, (step,), token.at)
            else:
                return node

    def _primary(self) -> Node:
        token = self._token
        if self._take("("):
            return self._read_parenthesized(token)
        following = self._tokens[self._index + 1]
        if token.kind == "string":
            if following.text != "(":
                return StaticArgument(self._string(), token.at)
            name = self._string()
            return self._call(name, True, token)
        if token.kind == "type":
            return StaticArgument(self._type(), token.at)
        if token.kind == "size":
            return StaticArgument(self.size(), token.at)
        if token.kind == "name" and following.text == "(" and token.text not in NUMBER_WORDS:
            self._next()
            return self._call(token.text, False, token)
        if token.kind == "quoted" or (token.kind == "name" and token.text not in RESERVED):
            self._next()
            return Use(plain_name(token), token.at)
        return self._literal()

    def _literal(self) -> Numeral:
        at = self._token.at
        value = self._number("an operand")
        following = self._tokens[self._index + 1]
        typed = self._is(":") and following.kind == "name" and following.text in SCALARS
        return Numeral(value, self._suffix() if typed else None, at)

    def _suffix(self) -> Aval | None:
        """Read the dtype after a number; a star directly after it makes the type weak."""
        if not self._take(":"):
            return None
        if self._token.text not in SCALARS:
            self._fail("a dtype such as f32 after a number and ':'")
        dtype = self._next()
        star = self._token
        weak = star.text == "*" and star.at == dtype.at + len(dtype.text)
        self._index += weak
        return Aval((), dtypes.from_short_name(dtype.text), weak)

    def _number(self, what: str) -> Value:
        """Read a number; its sign is a word of its own."""
        if not self._is("-"):
            return super()._number(what)
        self._next()
        value = super()._number(what)
        if isinstance(value, bool | tuple | NanBits):
            self._fail("a number after '-'")
        return -value

    def _read_parenthesized(self, opening: Token) -> Node:
        """Read `(expression)`, or a tuple of numbers."""
        self._enter()
        items: list[Node] = []
        single = False
        while not self._take(")"):
            items.append(self._expression())
            single = self._take(",")
            if not single and not self._is(")"):
                self._fail("an operator, ',' or ')'")
        self._depth -= 1
        if len(items) == 1 and not single:
            item = items[0]
            return item if isinstance(item, StaticArgument) else Group(item, opening.at)
        return StaticArgument(tuple(map(self._static, items)), opening.at)

    def _static(self, node: Node) -> Any:
        """Read an item of a tuple."""
        if isinstance(node, StaticArgument):
            return node.value
        if isinstance(node, Group):
            return self._static(node.inner)
        if not isinstance(node, Numeral):
            self._text.fail(node.at, "only numbers, types and tuples of them stand in a tuple")
        if node.aval is not None:
            return convert_at(self._text, [node.value], node.aval, node.at)[0]
        return plain_number(self._text, node.value, node.at)

    def _call(self, name: str, quoted: bool, token: Token) -> Node:
        self._expect("(", "after the name of an operation")
        called = ""
        if not quoted and self._token.kind == "name" and self._tokens[self._index + 1].text == ")" and \
                self._tokens[self._index + 2].text == "(" and self._tokens[self._index + 2].at == \
                self._tokens[self._index + 1].at + 1:
            called = self._word("the name of a program")
            self._index += 2
        self._enter()
        arguments: list[Node | RoleSyntax] = []
        params: dict[str, Any] = {}
        inner = name in NAMES and not quoted
        while not self._take(")"):
            word = self._token
            is_operand = inner and name == "cond" and self._token.text != "branches"  # of a branch, not a parameter
            if word.kind == "name" and self._tokens[self._index + 1].text == "=" and not is_operand:
                self._parameter(params)
            elif params:
                self._fail("a parameter (name=value): operands stand before parameters")
            else:
                arguments.append(self._argument() if inner else self._expression())
            if not self._take(",") and not self._is(")"):
                self._fail("an operator, ',' or ')' after an argument")
        self._depth -= 1
        return Call(name, tuple(arguments), params, quoted, called, token.at)

    def _argument(self) -> Node | RoleSyntax:
        """Read an argument of a block: operands of a role, an input with its operand, or an operand."""
        token, following = self._token, self._tokens[self._index + 1]
        if token.kind == "name" and token.text in ROLE_NAMES and following.text == "(":
            self._index += 2
            inputs: list[InputSyntax] = []
            while not self._take(")"):
                inputs.append(self._read_input())
                if not self._take(",") and not self._is(")"):
                    self._fail("',' or ')' after an operand")
            return RoleSyntax(token.text, inputs, token.at)
        if token.kind in ("name", "quoted", "type") and following.text in (":", "="):
            return self._read_input()
        return self._expression()

    def _read_input(self) -> InputSyntax:
        """Read `name`, `name=operand` or `name: type=operand`."""
        token = self._token
        if token.kind not in ("name", "quoted", "type") or token.text in RESERVED:
            self._fail("the name of an input (name=operand)")
        self._next()
        name = plain_name(token)
        aval = self._type() if self._take(":") else None
        operand = self._expression() if self._take("=") else Use(name, token.at)
        return InputSyntax(name, aval, operand, token.at)

    def _item(self) -> Any:
        if self._take("None"):
            return None
        parts: list[int | None] = [None, None, None]
        count = 0
        if not self._is(":"):
            node = self._expression()
            if not (isinstance(node, Numeral) and type(node.value) is int and node.aval is None):
                return node
            if not self._is(":"):
                return node.value
            parts[0] = node.value
        while count < 2 and self._take(":"):
            count += 1
            if not self._is(":") and not self._is("]") and not self._is(","):
                at = self._token.at
                value = self._number("a whole number, ':', ',' or ']'")
                if type(value) is not int:
                    self._text.fail(at, "the bounds of a range are whole numbers")
                parts[count] = value
        return Span(*parts)


def steps(rest: str) -> Iterator[Any]:
    """Yield the suffixes of a name in one word: attributes, and integers in brackets."""
    for match in _step.finditer(rest):
        inner, word = match.groups()
        yield word if inner is None else int(inner) if inner.lstrip("-").isdigit() else inner


_step = re.compile(r"\[([^\]]*)\]|\.([^.\[]*)")
