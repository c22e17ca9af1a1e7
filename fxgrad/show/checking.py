"""The third level of checking: every finished program is printed, parsed back, and compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fxgrad import config
from fxgrad.analyses.check import check
from fxgrad.caches import Cache
from fxgrad.core.facts import Slot
from fxgrad.core.program import Program
from fxgrad.core.sizes import Size
from fxgrad.errors import ProgramSyntaxError
from fxgrad.show.equality import equal
from fxgrad.show.text_parser import parse
from fxgrad.show.text_writer import program_text
from fxgrad.show.values import is_opaque, is_value_class
from fxgrad.tracing.tracer import Tracer

SIZE_LIMIT = 2000
"""Programs of more equations are not printed at every step: tests of large programs do that themselves."""

_CHECKED: Slot[bool] = Slot("text is checked")
_read = Cache("programs read to check texts", 1024)
"""By the text and what it names: tests record the same again and again."""


def checked(program: Program) -> None:
    """Verifies the rules of the IR, and at level 3 the text."""
    check(program)
    if config.check_level >= 3 and len(program.equations) <= SIZE_LIMIT and not _CHECKED.of(program):
        check_text(program)
        _CHECKED.put(program, True)


def check_text(program: Program) -> None:
    """Raises `AssertionError` unless the text of `program` gives back an equal program.

    Programs with Python objects in them, which have no text, are passed over, as are those with sizes of jax's, which
    are made where a program is exported.
    """
    values = [*program.constants, *_values(program)]
    is_jaxs = not all(isinstance(size, int | Size) for aval in program.in_avals for size in aval.shape)
    if is_jaxs or any(isinstance(value, Tracer) or is_opaque(value) for value in values):
        return
    primitives = {equation.primitive for inner in _programs(program) for equation in inner.equations}
    classes = {type(value) for value in values if is_value_class(type(value))}
    text = program_text(program, constants=True)
    key = text, frozenset(primitives), frozenset(classes)
    try:
        same = equal(program, _read.get(key) or _read.add(key, parse(text, primitives, classes)))
    except ProgramSyntaxError as error:
        raise AssertionError(f"the text of a program does not parse; this is a bug in fxgrad: {error}\n{text}") \
            from error
    assert same, f"the text of a program gives back another one; this is a bug in fxgrad\n{text}"


def _programs(program: Program) -> Iterator[Program]:
    """`program` and all programs in it, each once."""
    found = {id(program): program}
    pending = [program]
    for each in pending:
        yield each
        for equation in each.equations:
            for inner in equation.programs:
                if id(inner) not in found:
                    found[id(inner)] = inner
                    pending.append(inner)


def _values(program: Program) -> Iterator[Any]:
    for each in _programs(program):
        for equation in each.equations:
            yield from _parts([*equation.params.values()])


def _parts(values: list[Any]) -> Iterator[Any]:
    for value in values:
        yield value
        if isinstance(value, tuple | list):
            yield from _parts([*value])
