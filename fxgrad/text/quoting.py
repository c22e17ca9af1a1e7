"""Titles, docstrings and lines of users, quoted for comments and docstrings of files."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Return a text with line breaks and control characters written as Python's escapes."""
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def docstring_lines(text: str) -> list[str]:
    """Return the lines of a Python docstring that holds a text: nothing in the text ends it."""
    written = "".join("\\\\" if each == "\\" else each if each == "\n" or each.isprintable() else _escape(each)
                      for each in text)
    if '"""' in written or written.endswith('"'):
        written = written.replace('"', '\\"')
    lines = written.split("\n")
    return [f'"""{lines[0]}', *lines[1:], '"""'] if len(lines) > 1 else [f'"""{written}"""']


def c_comment_line(text: str) -> str:
    """Return a line of a C comment that holds a text: nothing in the text ends it, or begins another one."""
    ascii_text = one_line(text).encode("ascii", "replace").decode()
    apart = ascii_text.replace("??", "? ?").rstrip("\\")  # trigraphs, and a continued line
    while "*/" in apart or "/*" in apart:
        apart = apart.replace("*/", "* /").replace("/*", "/ *")
    return apart


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
