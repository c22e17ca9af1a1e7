"""Reading programs: `parse`, for both styles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from fxgrad.errors import ArgumentError, FxgradError, ProgramError, ProgramSyntaxError
from fxgrad.extend import Primitive, Program, at_user_line, primitives
from fxgrad.extend.analyses import check_program
from fxgrad.text.compact_parser import CompactBuilder
from fxgrad.text.compact_reader import CompactReader, is_compact
from fxgrad.text.parsing import WRONG_PARAMS, ProgramBuilder
from fxgrad.text.text_reader import Reader
from fxgrad.text.tokens import Text
from fxgrad.text.values import ValueClasses


def parse(text: str, primitives: Iterable[Primitive] = (), classes: Iterable[type] = ()) -> Program:
    """Return the program that `text` describes, in the grammar of printed programs (docs/reference/grammar.md).

    `primitives` are your own operations, in addition to the library's; `classes` are your own named tuples and
    enumerations that occur in parameters. The program is checked. Nothing in the text is executed.

    >>> import numpy as np
    >>> program = parse("program f(x: f32[3]) { y: f32[3] = mul(x, 2.0:f32) return y }")
    >>> program(np.ones(3, np.float32))
    array([2., 2., 2.], dtype=float32)

    Raises `ArgumentError` for anything but a text, `ProgramSyntaxError` with line and column if the text does not
    follow the grammar or contains an unknown name, and `ProgramError` with line and column if a type differs from the
    type that the operation gives.
    """
    if not isinstance(text, str):
        raise ArgumentError(at_user_line(f"parse takes the text of a program, got a {type(text).__name__}. Write "
                                         "parse(str(program)); load reads files of save"))
    with refuse_excess():
        return _parse(text, primitives, classes)


@contextmanager
def refuse_excess() -> Iterator[None]:
    """Raise `ProgramSyntaxError` if Python itself fails in the block, as for very deep nesting."""
    try:
        yield
    except FxgradError:
        raise
    except RecursionError:
        raise ProgramSyntaxError("the program is nested too deeply to be read") from None
    except (MemoryError, OverflowError, ValueError) as error:
        raise ProgramSyntaxError(f"the program holds something too large to be read: {error}") from None


def _parse(text: str, further: Iterable[Primitive], classes: Iterable[type]) -> Program:
    place = Text(text)
    known = {**primitives, **{primitive.name: primitive for primitive in further}}
    builder = ProgramBuilder(place, Reader(place).document(), known,
                             ValueClasses(classes)) if not is_compact(place) else \
        CompactBuilder(place, CompactReader(place).document(), known, ValueClasses(classes))
    program = builder.build_all()
    try:
        check_program(program)
    except (FxgradError, *WRONG_PARAMS) as error:
        builder.locate()
        raise ProgramError(f"the program is wrong: {error}") from error
    return program
