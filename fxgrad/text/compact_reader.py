"""From compact text to its syntax tree: programs, statements, blocks."""

from __future__ import annotations

from fxgrad.text.blocks import NAMES, labels_of
from fxgrad.text.expression_reader import NUMBER_WORDS, ExpressionReader
from fxgrad.text.expressions import BlockPart, Body, Call, CompactProgram, Node, RoleSyntax, StatementSyntax, Target
from fxgrad.text.names import RESERVED
from fxgrad.text.patterns import ARGUMENTS, Pattern
from fxgrad.text.syntax import Constant, Use
from fxgrad.text.text_reader import plain_name
from fxgrad.text.tokens import Text


class CompactReader(ExpressionReader):
    """Reads one text in the compact style."""

    def __init__(self, text: Text) -> None:
        super().__init__(text, text.compact_tokens())

    # --- programs -----------------------------------------------------------------------------------------

    def _main(self) -> CompactProgram:
        at = self._expect("program", "at the beginning of a program").at
        return self._program(self._title(), at)

    def _defined(self, at: int) -> CompactProgram:
        return self._program(None, at)

    def _title(self) -> str | None:
        """Return the text between `program` and the inputs, which are the last brackets of the head."""
        if self._token.kind == "string":
            return self._string()
        if self._is("("):
            return None
        first = self._token
        self._word("the name of the program or '('")
        last = self._after_brackets(self._index)
        if last is not None and self._tokens[last].text == "(":
            self._index = last
        return self._text.text[first.at:self._tokens[self._index].at].rstrip()

    def _after_brackets(self, index: int) -> int | None:
        """Return the index of the word after the brackets that begin at `index`."""
        depth = 0
        for place in range(index, len(self._tokens)):
            depth += self._tokens[place].text in ("(", "[")
            depth -= self._tokens[place].text in (")", "]")
            if not depth:
                return place + 1 if place + 1 < len(self._tokens) else None
        return None

    def _program(self, title: str | None, at: int) -> CompactProgram:
        self._expect("(", "before the inputs of the program")
        inputs = self._targets(")", "an input")
        self._expect(")", "after the inputs")
        for target in inputs:
            if target.aval is None:
                self._text.fail(target.at, f"the input {target.name!r} has no type; write {target.name}: f32[3]")
        types = None
        if self._take("->"):
            types = []
            while not self._is(":"):
                types.append(self._type())
                if not self._take(",") and not self._is(":"):
                    self._fail("',' or ':' after a type")
        self._expect(":", "before the statements of the program")
        captured: list[tuple[Target, Constant | None]] = []
        while self._take("captured"):
            binding = self._binding("the name of a captured value")
            captured.append((Target(*binding), self._constant() if self._take("=") else None))
        return CompactProgram(title, inputs, types, captured, self._body(), at)

    def _targets(self, closing: str, what: str) -> list[Target]:
        """Read `x: f32[3], y, z: f32`: names before a type have it too."""
        found: list[Target] = []
        untyped: list[int] = []
        while not self._is(closing):
            token = self._token
            if token.kind not in ("name", "quoted", "type") or token.text in RESERVED:
                self._fail(f"the name of {what}")
            self._next()
            found.append(Target(plain_name(token), None, token.at))
            untyped.append(len(found) - 1)
            if self._take(":"):
                aval = self._type()
                for place in untyped:
                    found[place] = found[place]._replace(aval=aval)
                untyped.clear()
            if not self._take(","):
                break
        return found

    def _constant(self) -> Constant:
        name, at = self._token.text, self._token.at
        if name not in ARGUMENTS or self._tokens[self._index + 1].text != "(":
            return super()._constant()
        self._index += 2
        numbers = []
        while not self._take(")"):
            numbers.append(self._number(f"a number or ')' of {name}(...)"))
            if not self._take(",") and not self._is(")"):
                self._fail("',' or ')' after a number")
        least, most = ARGUMENTS[name]
        if not least <= len(numbers) <= most:
            self._text.fail(at, f"{name} takes {least} to {most} numbers")
        return Constant(Pattern(name, tuple(numbers)), uniform=False, at=at)

    def _body(self) -> Body:
        self._enter()
        statements: list[StatementSyntax] = []
        while not self._take("return"):
            statements.append(self._statement())
        outputs: list[Node] = []
        nothing = self._is("(") and self._tokens[self._index + 1].text == ")"
        self._index += 2 * nothing
        while not nothing and self._begins_operand():
            outputs.append(self._expression())
            if not self._take(","):
                break
        self._depth -= 1
        return Body(statements, outputs)

    def _begins_operand(self) -> bool:
        token = self._token
        if token.kind == "name":
            is_where = self._is("where") and self._tokens[self._index + 1].text == "("
            return token.text not in RESERVED or token.text in NUMBER_WORDS or is_where
        return token.kind in ("number", "quoted", "string", "type") or token.text in ("(", "-", "~")

    def _statement(self) -> StatementSyntax:
        token = self._token
        if not (token.kind in ("name", "quoted", "string", "type") and token.text not in RESERVED):
            self._fail("a statement (name = ...) or 'return'")
        targets: list[Target] = []
        if token.kind != "string" and self._tokens[self._index + 1].text in (":", ",", "="):
            targets = self._targets("=", "a result")
            self._expect("=", "after the results of a statement")
        expression = self._expression()
        parts: list[BlockPart] = []
        if isinstance(expression, Call) and not expression.quoted and expression.name in NAMES and self._take(":"):
            parts = self._parts(expression.name)
        return StatementSyntax(targets, expression, parts, token.at)

    def _parts(self, name: str) -> list[BlockPart]:
        """Return the programs of a block: one without a label, or several, each after its own."""
        fixed = labels_of(NAMES[name])
        if fixed:
            return [self._read_label(self._word("the label of a program")) for _ in fixed]
        if self._token.kind != "number" and not self._is("True") and not self._is("False"):
            return [BlockPart("", [], self._read_program(), self._token.at)]
        parts = []
        while (self._token.kind == "number" or self._is("True") or self._is("False")) and \
                self._tokens[self._index + 1].text in (":", "("):
            parts.append(self._read_label(self._next().text))
        return parts

    def _read_label(self, label: str) -> BlockPart:
        at = self._tokens[self._index - 1].at
        roles: list[RoleSyntax] = []
        if self._take("("):
            while not self._take(")"):
                given = self._argument()
                if not isinstance(given, RoleSyntax):
                    self._text.fail(given.at, "expected captured(...), consts(...) or given(...)")
                roles.append(given)
                if not self._take(",") and not self._is(")"):
                    self._fail("',' or ')' after operands")
        self._expect(":", "after the label of a program")
        return BlockPart(label, roles, None if self._take("None") else self._read_program(), at)

    def _read_program(self) -> Body | Use:
        """Return a program of a block, or the label of its definition if nothing after it continues an expression."""
        token, following = self._token, self._tokens[self._index + 1]
        if token.kind == "name" and token.text not in RESERVED and following.text not in (":", ",", "=", "("):
            return Use(self._next().text, token.at)
        return self._body()


def is_compact(text: Text) -> bool:
    """Return whether a text is in the compact style: no brace follows the inputs of its first program."""
    depth = 0
    for token in text.any_tokens():
        depth += token.text in ("(", "[")
        depth -= token.text in (")", "]")
        if token.text == "{" and not depth:
            return False
        if token.text in (":", "->") and not depth:
            return True
    return False
