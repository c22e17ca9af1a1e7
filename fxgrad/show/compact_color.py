"""What each word of compact text is, told by its neighbours: the roles that colours are given to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fxgrad.show.blocks import LABELS
from fxgrad.show.expression_reader import NUMBER_WORDS, ROLE_NAMES, SCALARS
from fxgrad.show.tokens import COMPACT_KINDS

_words = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in COMPACT_KINDS.items()))
_letter = re.compile("[a-z]{1,2}")
_KINDS = {"comment": "comment", "type": "type", "number": "literal", "string": "literal", "ellipsis": "literal",
          "opaque": "opaque", "data": "literal"}
_HEADS = ("program", "where")


def roles(text: str, functions: set[str]) -> Iterator[tuple[int, int, str]]:
    """Start, end and role of each word; `functions` are the programs defined below."""
    words = [match for match in _words.finditer(text) if match.lastgroup != "space"]
    texts = [match[0] for match in words]
    inputs: set[str] = set()
    depth, in_head = 0, False
    role_depth = 0
    titled = _title_end(texts)
    for index, match in enumerate(words):
        word, kind = match[0], match.lastgroup or ""
        role = _KINDS.get(kind, "")
        if word in "([" and kind == "mark":
            depth += 1
        elif word in ")]" and kind == "mark":
            depth -= 1
            in_head = in_head and (depth > 0 or index < titled)
            role_depth = role_depth if depth >= role_depth else 0
        elif kind in ("name", "quoted"):
            following, before = (texts[place] if 0 <= place < len(texts) else "" for place in (index + 1, index - 1))
            if word in _HEADS and depth == 0 and (word == "program" or following != "("):
                inputs, in_head, role = set(), True, "keyword"
            elif index < titled:
                role = "title"
            elif word in ROLE_NAMES and following == "(":
                role, role_depth = "keyword", depth + 1
            else:
                role = _of_name(word, texts, index, functions, depth)
            in_role = role_depth == depth and following in (":", "=", ",", ")")
            names_input = in_role or (in_head and depth == 1 and index > titled)
            if role in ("variable", "parameter") and names_input and before in ("(", ","):
                inputs.add(word)
            if before == "captured":
                inputs.add(word)
            if word in inputs and (role == "variable" or (role == "parameter" and names_input)):
                role = "input"
            elif role == "variable" and _letter.fullmatch(word):
                role = "letter"
        if role:
            yield match.start(), match.end(), role


def _title_end(texts: Sequence[str]) -> int:
    """The index of the bracket that opens the inputs of the main program: a title may have brackets too."""
    depth, found = 0, 0
    for index, word in enumerate(texts):
        if word in (":", "->") and not depth:
            break
        if word in ("(", "["):
            found = index if not depth else found
            depth += 1
        elif word in (")", "]"):
            depth -= 1
    return found


def _of_name(word: str, texts: Sequence[str], index: int, functions: set[str], depth: int) -> str:
    following = texts[index + 1] if index + 1 < len(texts) else ""
    before = texts[index - 1] if index else ""
    if word in ("captured", "return"):
        return "keyword"
    if word in (*NUMBER_WORDS, "None"):
        return "literal"
    if before in (":", "->") and word in SCALARS:
        return "type"
    if following == "(":
        return "function" if word in functions else "primitive"
    if following == ":" and depth == 0 and word in LABELS["while"] and before in (":", "]", ")", *NUMBER_WORDS):
        return "keyword"
    if following == "=" and depth:
        return "parameter"
    return "function" if word in functions and before == "=" and depth else "variable"
