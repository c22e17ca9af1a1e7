"""Roles of the words of program text, their programs, and the lines that collapse: for colours and notebooks.

It reads only words and their neighbours, in either style, so that any text that `parse` accepts has roles, and so do
texts with mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from fxgrad.text.blocks import ROLE_NAMES
from fxgrad.text.tokens import COMPACT_KINDS, KINDS


class Word(NamedTuple):
    """A word: its role (`STYLES` in `color.py` has all; "" for marks), and the program in which it is bound.

    `scope` is the number of that program, in the order of the text, for names of variables, and of the enclosing
    program for other words; 0 outside of all. `binds` marks the word that binds a variable.
    """

    start: int
    end: int
    role: str
    scope: int = 0
    binds: bool = False


class Structure(NamedTuple):
    """The words of a text, and the ends of lines between which inner programs collapse, outer ones first."""

    words: list[Word]
    folds: list[tuple[int, int]]


VARIABLES = ("variable", "input", "letter")
"""The roles of names of variables."""
DTYPE = re.compile(r"(?:bool|bf16|[iuf](?:8|16|32|64)|c(?:64|128)|key<fry>)")
_patterns = [re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in kinds.items()))
             for kinds in (KINDS, COMPACT_KINDS)]
_letters = re.compile("[a-z]{1,2}")
_defined = re.compile(r"^where ([^\W\d]\w*)", re.MULTILINE)
_ROLES = {"comment": "comment", "type": "type", "number": "literal", "string": "literal", "ellipsis": "literal",
          "opaque": "opaque", "data": "literal"}
_KEYWORDS = ("program", "captured", "return", "where")
_CONSTANTS = ("True", "False", "None", "nan", "inf", "complex", "full")


def structure(text: str, named: Collection[str] | None = None) -> Structure:
    """Return the words of `text` with their roles, and the collapsible parts.

    `named` are the names that users gave, which are no letters, however short. Without it, all variables of one or two
    small letters are.
    """
    scanner: _Scanner = (_Compact if _is_compact(text) else _Equations)(text, named)
    scanner.scan()
    return Structure(sorted(scanner.words), sorted(scanner.folds, key=lambda fold: (fold[0], -fold[1])))


def _is_compact(text: str) -> bool:
    """Return whether a text is in the compact style: no brace follows the inputs of its first program."""
    depth = 0
    for match in _patterns[1].finditer(text):
        depth += (match[0] in ("(", "[")) - (match[0] in (")", "]"))
        if match[0] in ("{", ":", "->") and not depth:
            return match[0] != "{"
    return False


class _Scope:
    """One program of the text: its number, its variables with their roles, and the column where its head begins."""

    def __init__(self, number: int, column: int) -> None:
        self.number, self.column = number, column
        self.roles: dict[str, str] = {}
        self.fold = -1  # the start of the collapsible part


Matches = list[re.Match[str]]


class _Scanner:
    """The base of both styles: the words, the open programs, and the roles of names."""

    style = 0

    def __init__(self, text: str, named: Collection[str] | None) -> None:
        self.text, self._named = text, named
        self.functions = {*_defined.findall(text)}
        self.words: list[Word] = []
        self.folds: list[tuple[int, int]] = []
        self.scopes: list[_Scope] = [_Scope(0, -1)]
        self._count = 0
        self.matches = [match for match in _patterns[self.style].finditer(text) if match.lastgroup != "space"]

    def scan(self) -> None:
        """Fill `words` and `folds`."""
        raise NotImplementedError

    def opened(self, column: int = 0) -> _Scope:
        """Open a new program."""
        self._count += 1
        self.scopes.append(_Scope(self._count, column))
        return self.scopes[-1]

    def bind(self, match: re.Match[str], scope: _Scope, is_input: bool) -> None:
        """Record a variable at the word that binds it."""
        name = match[0]
        is_letter = _letters.fullmatch(name) and (self._named is None or name not in self._named)
        scope.roles[name] = "input" if is_input else "letter" if is_letter else "variable"
        self.words.append(Word(*match.span(), scope.roles[name], scope.number, True))

    def known(self, name: str) -> _Scope | None:
        """Return the innermost program that has bound a name; None if none has."""
        return next((scope for scope in reversed(self.scopes) if name in scope.roles), None)

    def note(self, match: re.Match[str], role: str) -> None:
        """Note a word that is not a variable."""
        self.words.append(Word(*match.span(), role, self.scopes[-1].number))

    def plain(self, match: re.Match[str]) -> bool:
        """Record a word whose kind determines its role; False for names."""
        if match.lastgroup in ("name", "quoted"):
            return False
        self.note(match, _ROLES.get(match.lastgroup or "", ""))
        return True


class _Equations(_Scanner):
    """Scans the style of one operation per line, with braces."""

    def scan(self) -> None:
        in_head = False
        for index, match in enumerate(self.matches):
            following = self.matches[index + 1][0] if index + 1 < len(self.matches) else ""
            preceding = self.matches[index - 1][0] if index else ""
            if match[0] == "{":
                in_head = False
                self.scopes[-1].fold = match.end()
            if self.plain(match):
                if match[0] == "}" and len(self.scopes) > 1:
                    self._close(match)
                continue
            role = self._role(match[0], following, preceding)
            if role == "binding":
                self.bind(match, self.scopes[-1], in_head or preceding == "captured")
            elif role == "variable" and match[0] in self.scopes[-1].roles:
                self.words.append(Word(*match.span(), self.scopes[-1].roles[match[0]], self.scopes[-1].number))
            else:
                if role == "keyword" and match[0] == "program":
                    self.opened()
                    in_head = True
                self.note(match, role)

    def _close(self, match: re.Match[str]) -> None:
        scope = self.scopes.pop()
        end = self.text.rfind("\n", 0, match.start())
        if scope.number > 1 and 0 <= scope.fold < end:
            self.folds.append((scope.fold, end))

    def _role(self, word: str, following: str, preceding: str) -> str:
        """Return the role of a name, given its neighbours."""
        if preceding == "program" and following == "(":
            return "title"
        if word in _KEYWORDS and following != "=":
            return "keyword"
        if word in _CONSTANTS:
            return "literal"
        if preceding == ":" or (DTYPE.fullmatch(word) and following not in (":", "(")):
            return "type"  # of a literal, or among parameters
        if following == "(" or preceding == "where":
            return "function" if word in self.functions else "primitive"
        if following == "=":
            return "parameter"
        if following == ":":
            return "binding"
        return "primitive" if following in self.functions and preceding == "=" else "variable"


class _Compact(_Scanner):
    """Scans the style of expressions: programs are indented, and inner ones see the variables of outer ones."""

    style = 1

    def scan(self) -> None:
        # A line ends a statement unless a bracket is open.
        statements: list[Matches] = []
        depth, end = 0, 0
        for match in self.matches:
            if not statements or (depth <= 0 and "\n" in self.text[end:match.start()]):
                statements.append([])
            depth += (match[0] in ("(", "[")) - (match[0] in (")", "]"))
            statements[-1].append(match)
            end = match.end()
        for statement in statements:
            column = statement[0].start() - self.text.rfind("\n", 0, statement[0].start()) - 1
            self._close(column, statement[0].start())
            self._statement([match for match in statement if match.lastgroup != "comment"], column, statement[-1].end())
            for match in statement:
                if match.lastgroup == "comment":
                    self.note(match, "comment")
        self._close(-1, len(self.text))

    def _close(self, column: int, place: int) -> None:
        """Close the programs whose heads are not left of `column`."""
        while len(self.scopes) > 1 and self.scopes[-1].column >= column:
            scope = self.scopes.pop()
            end = len(self.text[:place].rstrip())
            if scope.number > 1 and 0 <= scope.fold < end:
                self.folds.append((scope.fold, end))

    def _statement(self, words: Matches, column: int, end: int) -> None:
        if not words:
            return
        texts = [match[0] for match in words]
        depths, depth = [], 0
        for text in texts:
            depth -= text in (")", "]")
            depths.append(depth)
            depth += text in ("(", "[")
        colon = self._first(":", texts, depths)
        equals = self._first("=", texts, depths)
        if texts[0] in ("program", "where") and texts[1:2] != ["="]:
            self._definition(words, texts, depths, end)
        elif colon is not None and equals is None and texts[0] not in _KEYWORDS:  # `0: return x`, `body(consts(a)):`
            self._block(words[:colon + 1], True, column, end if colon == len(words) - 1 else -1)
            self._uses(words[colon + 1:], self.scopes[-1], is_head=False)
        elif equals is None:
            self._uses(words, self.scopes[-1], is_head=False)
        else:
            scope = self.scopes[-1]
            if texts[-1] == ":" or (texts[-2:-1] == [":"] and texts[-1] in self.functions):
                self._block(words[equals:], False, column, end)
            else:
                self._uses(words[equals:], scope, is_head=False)
            self._targets(words[:equals], texts, scope)

    @staticmethod
    def _first(mark: str, texts: Sequence[str], depths: Sequence[int]) -> int | None:
        return next((index for index, text in enumerate(texts) if text == mark and not depths[index]), None)

    def _definition(self, words: Matches, texts: Sequence[str], depths: Sequence[int], end: int) -> None:
        """Scan a head, `program loss(w: f64[3]):` or `where body(x) -> f64:`; or data."""
        self.note(words[0], "keyword")
        opening = [index for index, text in enumerate(texts) if text == "(" and not depths[index]]
        if not opening:
            self._uses(words[1:], self.scopes[-1], is_head=False)
            return
        scope = self.opened()
        scope.fold = end
        for match in words[1:opening[-1]]:
            self.note(match, ("title" if texts[0] == "program" else "function") if match.lastgroup == "name" else "")
        for index in range(opening[-1], len(words)):
            match = words[index]
            if self.plain(match):
                continue
            if depths[index] == 1 and texts[index - 1] in ("(", ","):
                self.bind(match, scope, True)
            else:
                self.note(match, "type")

    def _block(self, words: Matches, labelled: bool, column: int, fold: int) -> None:
        """Scan the head of an indented program: names before `=` and `:` are bound in it."""
        outer = self.scopes[-1]
        scope = self.opened(column)
        scope.fold = fold
        self.scopes.pop()
        if labelled:
            self.note(words[0], "keyword")
            words = words[1:]
        self._uses(words, scope, is_head=True)
        assert self.scopes[-1] is outer
        self.scopes.append(scope)

    def _targets(self, words: Matches, texts: Sequence[str], scope: _Scope) -> None:
        is_input = texts[0] == "captured"
        if is_input:
            self.note(words[0], "keyword")
            words = words[1:]
        before = ","
        for match in words:
            if not self.plain(match):
                if before == ",":
                    self.bind(match, scope, is_input)
                else:
                    self.note(match, "type")
            before = match[0]

    def _uses(self, words: Matches, scope: _Scope, is_head: bool) -> None:
        """Scan the words of an expression; in a head, names before `=` and `:` are bound in `scope`."""
        for index, match in enumerate(words):
            if self.plain(match):
                continue
            following = words[index + 1][0] if index + 1 < len(words) else ""
            preceding = words[index - 1][0] if index else ""
            if is_head and following in ("=", ":") and preceding in ("(", ",") and match[0] not in _OPTIONS:
                self.bind(match, scope, False)
            else:
                self._use(match, following, preceding)

    def _use(self, match: re.Match[str], following: str, preceding: str) -> None:
        name = match[0]
        whole = self.known(name)
        if name in _KEYWORDS and whole is None and following not in ("=", "("):
            self.note(match, "keyword")
        elif preceding == ":" or (DTYPE.fullmatch(name) and following != "("):
            self.note(match, "type")
        elif following == "=" and preceding in ("(", ","):
            self.note(match, "parameter")
        elif whole is not None and following != "(":
            self.words.append(Word(*match.span(), whole.roles[name], whole.number))
        elif not self._attribute(match):
            role = "literal" if name in _CONSTANTS else "keyword" if name in ROLE_NAMES and following == "(" \
                else "function" if name in self.functions else "primitive" if following == "(" else ""
            self.note(match, role)

    def _attribute(self, match: re.Match[str]) -> bool:
        """Record `x.T`, `x[0]` and `x.reshape(` as a variable and its suffix; False if no variable begins it."""
        name = match[0]
        for place in reversed([each.start() for each in re.finditer(r"[.\[]", name)]):
            scope = self.known(name[:place])
            if scope is not None:
                middle = match.start() + place
                self.words.append(Word(match.start(), middle, scope.roles[name[:place]], scope.number))
                self.words.append(Word(middle, match.end(), "primitive" if name[place] == "." else "", scope.number))
                return True
        return False


_OPTIONS = ("reverse", "length", "unroll", "name", "linear", "policy")
