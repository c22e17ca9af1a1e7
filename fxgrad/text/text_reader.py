"""From program text to its syntax tree, by recursive descent."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from fxgrad import dtypes
from fxgrad.extend import Aval, Literal
from fxgrad.extend.sizes import parse_size, parse_sizes
from fxgrad.text.names import RESERVED, axis_names, unquoted_name
from fxgrad.text.numbers import NanBits, Number, WrongNumberError, convert_values
from fxgrad.text.syntax import (
    Binding,
    Constant,
    Definition,
    Document,
    EquationSyntax,
    Member,
    ProgramSyntax,
    Record,
    Reference,
    Use,
)
from fxgrad.text.tokens import Text, Token
from fxgrad.text.values import PLAIN_LITERALS

NESTING_LIMIT = 60


class Reader:
    """Reads one text."""

    def __init__(self, text: Text, tokens: list[Token] | None = None) -> None:
        self._text, self._index, self._depth = text, 0, 0
        self._tokens = text.tokens() if tokens is None else tokens
        self._types: dict[str, Aval] = {}

    # --- words --------------------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._index]

    def _is(self, text: str) -> bool:
        token = self._tokens[self._index]
        return token.text == text and token.kind in ("mark", "name")

    def _take(self, text: str) -> bool:
        """Skip `text` if it is the next word."""
        if self._is(text):
            self._index += 1
            return True
        return False

    def _next(self) -> Token:
        self._index += 1
        return self._tokens[self._index - 1]

    def _expect(self, text: str, where: str) -> Token:
        if not self._is(text):
            self._fail(f"{text!r} {where}")
        return self._next()

    def _fail(self, expected: str) -> NoReturn:
        token = self._token
        found = "the end of the text" if token.kind == "end" else repr(token.text)
        self._text.fail(token.at, f"expected {expected}, found {found}")

    def _word(self, what: str) -> str:
        """Read a single identifier."""
        if self._token.kind != "name" or not self._token.text.isidentifier():
            self._fail(what)
        return self._next().text

    # --- programs -----------------------------------------------------------------------------------------

    def document(self) -> Document:
        """Read the whole text."""
        main = self._main()
        programs: dict[str, Definition] = {}
        data: dict[str, Constant] = {}
        while self._take("where"):
            token = self._token
            if token.text in programs or token.text in data:
                self._text.fail(token.at, f"{token.text!r} is defined twice")
            if token.kind == "data":
                self._next()
                self._expect("=", "after the name of an array")
                data[token.text] = self._constant()
            else:
                label = self._word("the name of a program or of an array (@name) after 'where'")
                name = self._string() if self._token.kind == "string" else label
                programs[label] = Definition(name, self._defined(token.at))
        if self._token.kind != "end":
            self._fail("'where' or the end of the text after a program")
        return Document(main, programs, data)

    def _main(self) -> Any:
        """Read the first program, with its head."""
        return self.program()

    def _defined(self, _: int) -> Any:
        """Read a program defined after a name, whose position is for messages."""
        self._expect("=", "after the name of a program")
        return self.program()

    def program(self) -> ProgramSyntax:
        """Read `program title(inputs) { captured values, equations, return }`."""
        at = self._expect("program", "at the beginning of a program").at
        title = None
        if self._token.kind == "string":
            title = self._string()
        elif not self._is("("):
            title = self._word("the name of the program or '('")
        self._expect("(", "before the inputs of the program")
        inputs: list[Binding] = []
        while not self._take(")"):
            inputs.append(self._binding("the name of an input"))
            if not self._take(",") and not self._is(")"):
                self._fail("',' or ')' after an input")
        self._expect("{", "before the equations")
        captured: list[tuple[Binding, Constant | None]] = []
        while self._take("captured"):
            binding = self._binding("the name of a captured value")
            captured.append((binding, self._constant() if self._take("=") else None))
        equations: list[EquationSyntax] = []
        while not self._is("return"):
            equations.append(self._equation())
        self._next()
        outputs: list[Use | Literal] = []
        while not self._take("}"):
            outputs.append(self._operand("an output or '}'"))
            if not self._take(",") and not self._is("}"):
                self._fail("',' or '}' after an output")
        return ProgramSyntax(title, inputs, captured, equations, outputs, at)

    def single_type(self) -> Aval:
        """Read a text that is a type."""
        aval = self._type()
        return aval if self._token.kind == "end" else self._fail("nothing after a type")

    def single_number(self) -> Number:
        """Read a text that is a number."""
        number = self._number("a number")
        return number if self._token.kind == "end" else self._fail("nothing after a number")

    def _binding(self, what: str) -> Binding:
        token = self._token
        if token.kind not in ("name", "quoted") or token.text in RESERVED:
            self._fail(what)
        self._next()
        self._expect(":", f"and a type after {token.text!r}")
        return Binding(plain_name(token), self._type(), token.at)

    def _type(self) -> Aval:
        token = self._token
        known = self._types.get(token.text)
        if known is None:
            if token.kind != "type":
                self._fail("a type such as f32[3,4]")
            array, _, axes = token.text.rstrip("}").partition("{")
            name, _, sizes = array.rstrip("]").partition("[")
            try:
                dtype = dtypes.from_short_name(name.rstrip("*"))
            except KeyError:
                self._text.fail(token.at, f"there is no dtype {name.rstrip('*')!r}; there are "
                                f"{', '.join(map(dtypes.short_name, dtypes.SUPPORTED.values()))}")
            try:
                shape = parse_sizes(sizes)
            except ValueError:
                self._fail("a type such as f32[3,4], with sizes between commas")
            known = self._types[token.text] = Aval(shape, dtype, name.endswith("*"), frozenset(axis_names(axes)))
        self._index += 1
        return known

    def size(self) -> Any:
        """Read a symbolic size, in single quotes."""
        token = self._next()
        try:
            return parse_size(token.text[1:-1])
        except ValueError:
            self._text.fail(token.at, f"{token.text} is no size such as '2*n+1'")

    def _equation(self) -> EquationSyntax:
        outputs: list[Binding] = []
        if self._take("("):
            self._expect(")", "of an equation without results")
        else:
            outputs.append(self._binding("an equation (name: type = ...) or 'return'"))
            while self._take(","):
                outputs.append(self._binding("the name of a result"))
        self._expect("=", "after the results of an equation")
        at = self._token.at
        primitive = self._string() if self._token.kind == "string" else self._word("the name of an operation")
        called = self._word("'('") if self._token.kind == "name" else ""
        self._expect("(", "after the name of an operation")
        operands: list[Use | Literal] = []
        params: dict[str, Any] = {}
        while not self._take(")"):
            token = self._token
            if token.kind == "name" and self._tokens[self._index + 1].text == "=":
                self._parameter(params)
            elif params:
                self._fail("a parameter (name=value): operands stand before parameters")
            else:
                operands.append(self._operand("an operand, a parameter (name=value) or ')'"))
            if not self._take(",") and not self._is(")"):
                self._fail("',' or ')' after an argument")
        return EquationSyntax(outputs, primitive, called, operands, params, at)

    def _parameter(self, params: dict[str, Any]) -> None:
        """Read `name=value` into `params`."""
        token = self._next()
        self._index += 1
        if token.text in params:
            self._text.fail(token.at, f"the parameter {token.text!r} is given twice")
        params[token.text] = self.value()

    def _operand(self, what: str) -> Use | Literal:
        token = self._token
        if token.kind == "quoted" or (token.kind == "name" and token.text not in RESERVED):
            self._index += 1
            return Use(plain_name(token), token.at)
        value = self._number(what)
        aval = self._suffix()
        if aval is None:
            kind = "b" if isinstance(value, bool) else "i" if isinstance(value, int) else \
                "c" if isinstance(value, tuple) else "f"
            aval = PLAIN_LITERALS[kind]
        return Literal(convert_at(self._text, [value], aval, token.at)[0], aval)

    # --- numbers and parameters ---------------------------------------------------------------------------

    def _suffix(self) -> Aval | None:
        """Read the dtype after a number, as `:f64` or `:f64*`."""
        if not self._take(":"):
            return None
        token = self._token
        try:
            dtype = dtypes.from_short_name(token.text)
        except KeyError:
            self._fail("a dtype such as f32 after a number and ':'")
        self._next()
        return Aval((), dtype, weak=self._take("*"))

    def _number(self, what: str) -> Number:
        token = self._token
        if token.kind == "number" and "x" not in token.text:
            self._next()
            return float(token.text) if set(".eEn") & set(token.text) else int(token.text)
        if token.kind != "name" or token.text not in ("True", "False", "nan", "inf", "complex"):
            self._fail(what)
        self._next()
        if token.text in ("True", "False"):
            return token.text == "True"
        if token.text == "complex":
            self._expect("(", "after 'complex'")
            real = self._part()
            self._expect(",", "between the parts of a complex number")
            imaginary = self._part()
            self._expect(")", "after a complex number")
            return real, imaginary
        if token.text == "nan" and self._take("("):
            if not self._token.text.startswith("0x"):
                self._fail("the bits of a NaN, such as 0x7fc00001")
            bits = NanBits(int(self._next().text, 16))
            self._expect(")", "after the bits of a NaN")
            return bits
        return float(token.text)

    def _part(self) -> float | NanBits:
        value = self._number("a number")
        if isinstance(value, tuple | bool):
            self._text.fail(self._tokens[self._index - 1].at, "expected a real number")
        return value if isinstance(value, NanBits) else float(value)

    def _string(self) -> str:
        token = self._next()
        try:
            return str(json.loads(token.text))
        except ValueError:
            self._text.fail(token.at, f"{token.text} is not a string: escapes are those of JSON")

    def _constant(self) -> Constant:
        at = self._token.at
        if self._token.kind == "data":
            return Constant(Reference(self._next().text, at), uniform=False, at=at)
        if self._token.kind == "ellipsis":
            self._text.fail(at, "the elements of this array were left out when the program was printed; print it "
                                "with program_text(program, constants=True) to read it back")
        if self._take("full"):
            self._expect("(", "after 'full'")
            value = self._number("a number")
            self._expect(")", "after the number")
            return Constant(value, uniform=True, at=at)
        return Constant(self._elements(), uniform=False, at=at)

    def _elements(self) -> Any:
        if not self._take("["):
            return self._number("a number, '[', full(...), '...' or a reference such as @W")
        self._enter()
        items = []
        while not self._take("]"):
            items.append(self._elements())
            if not self._take(",") and not self._is("]"):
                self._fail("',' or ']' after an element")
        self._depth -= 1
        return items

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > NESTING_LIMIT:
            self._text.fail(self._token.at, f"brackets are nested more than {NESTING_LIMIT} deep")

    def value(self) -> Any:
        """Read the value of a parameter."""
        token = self._token
        if token.kind == "string":
            return self._string()
        if token.kind == "type":
            return self._type()
        if token.kind == "size":
            return self.size()
        if token.kind == "opaque":
            self._text.fail(token.at, f"{token.text} stands for a Python object, which text does not hold: reading a "
                                      "program never makes objects other than numbers, names and containers of them")
        if token.text in ("(", "["):
            return self._container(token.text)
        if token.kind == "name":
            if token.text == "program":
                self._enter()
                program = self.program()
                self._depth -= 1
                return program
            if token.text == "None":
                self._next()
                return None
            if token.text not in ("True", "False", "nan", "inf", "complex"):
                return self._named_value()
        number = self._number("the value of a parameter")
        aval = self._suffix()
        if aval is not None:
            return convert_at(self._text, [number], aval, token.at)[0]
        return plain_number(self._text, number, token.at)

    def _container(self, opening: str) -> Any:
        self._next()
        self._enter()
        closing = ")" if opening == "(" else "]"
        items = []
        single = False
        while not self._take(closing):
            items.append(self.value())
            single = self._take(",")
            if not single and not self._is(closing):
                self._fail(f"',' or {closing!r} after an item")
        self._depth -= 1
        if opening == "(" and len(items) == 1 and not single:
            return items[0]
        return tuple(items) if opening == "(" else items

    def _named_value(self) -> Any:
        """Read a dtype, a named tuple, a member of an enumeration, or a program defined under `where`."""
        token = self._next()
        if self._take("("):
            fields: dict[str, Any] = {}
            while not self._take(")"):
                name = self._word("the name of a field")
                self._expect("=", "after the name of a field")
                fields[name] = self.value()
                if not self._take(",") and not self._is(")"):
                    self._fail("',' or ')' after a field")
            return Record(token.text, fields, token.at)
        if "." in token.text:
            name, _, member = token.text.rpartition(".")
            return Member(name, member, token.at)
        try:
            return dtypes.from_short_name(token.text)
        except KeyError:
            return Reference(token.text, token.at)


def read_type(text: str) -> Aval:
    """Return the type written as `text`."""
    return Reader(Text(text)).single_type()


def read_number(text: str) -> Number:
    """Return the number written as `text`."""
    return Reader(Text(text)).single_number()


def convert_at(text: Text, values: list[Number], aval: Aval, at: int) -> Any:
    """Return `values` as an array of one axis and the dtype of `aval`; an error names the place of the number."""
    try:
        return convert_values(values, aval.dtype)
    except WrongNumberError as error:
        text.fail(at, str(error))


def plain_number(text: Text, number: Number, at: int) -> bool | int | float | complex:
    """Return a number as Python's own."""
    if isinstance(number, tuple):
        parts = convert_at(text, [number], Aval((), dtypes.complex128), at).view(dtypes.float64)
        return complex(*parts.tolist())
    if isinstance(number, NanBits):
        return float(convert_at(text, [number], Aval((), dtypes.float64), at)[0])
    return number


def plain_name(token: Token) -> str:
    """Return the name that a word denotes, without backquotes."""
    return unquoted_name(token.text) if token.kind == "quoted" else token.text
