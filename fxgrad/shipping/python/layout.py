"""Python code in lines that are not too long: statements are broken after commas, and at operators in brackets."""

from __future__ import annotations

from fxgrad.text.values import fill_lines

WIDTH = 110
INDENT = "    "


def wrap_code(code: str, width: int = WIDTH) -> str:
    """Return code in which long lines of statements are broken; strings of several lines stay as they are.

    >>> print(wrap_code("total = add(first_operand, second_operand, third_operand)", width=34))
    total = add(
        first_operand, second_operand,
        third_operand,
    )
    """
    lines: list[str] = []
    in_text = False
    for line in code.splitlines():
        quotes = line.count('"""')
        lines += [line] if in_text or quotes else break_line(line, width)
        in_text ^= quotes % 2 == 1
    return "\n".join(lines)


def break_line(line: str, width: int) -> list[str]:
    """Return one line as several, if it exceeds `width` and has brackets to break it in."""
    if len(line) <= width:
        return [line]
    indent = line[:len(line) - len(line.lstrip())]
    pair = _widest(line)
    if pair is None:
        return [line]
    begin, end = pair
    items = _items(line[begin + 1:end])
    if len(items) < 2:
        return [line]
    inner = indent + INDENT
    filled: list[str] = []
    for short in fill_lines([*items, ""], width - len(inner)):
        filled += break_line(inner + short.rstrip(), width)
    head, tail = line[:begin + 1], indent + line[end:]
    return [head, *filled, *break_line(tail, width)]


def _widest(line: str) -> tuple[int, int] | None:
    """Return the outermost brackets with the longest text between them; None if there are none."""
    found: list[tuple[int, int]] = []
    stack: list[int] = []
    for index, character in _outside_strings(line):
        if character in "([{":
            stack.append(index)
        elif character in ")]}":
            if not stack:
                return None  # the line is the end of another
            begin = stack.pop()
            if not stack:
                found.append((begin, index))
    return max(found, key=lambda pair: pair[1] - pair[0], default=None)


def _items(text: str) -> list[str]:
    """Return the parts of a text between commas outside of brackets; one item if it contains a `for`."""
    depth, begin, items = 0, 0, []
    for index, character in _outside_strings(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            items.append(text[begin:index].strip())
            begin = index + 1
        if not depth and text.startswith((" for ", "lambda"), index):
            return [text]
    last = text[begin:].strip()
    return [*items, last] if last else items


def _outside_strings(line: str) -> list[tuple[int, str]]:
    """Return the characters of a line outside of strings, with their positions."""
    found: list[tuple[int, str]] = []
    quote, index = "", 0
    while index < len(line):
        character = line[index]
        if quote:
            index += character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            found.append((index, character))
        index += 1
    return found
