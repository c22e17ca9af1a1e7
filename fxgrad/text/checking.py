"""Check finished programs by printing them, parsing the text back, and comparing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from fxgrad import config
from fxgrad.errors import ProgramSyntaxError
from fxgrad.extend import Cache, Program, ProgramAttribute, Tracer, Variable, require_program
from fxgrad.extend.analyses import check_program
from fxgrad.extend.sizes import SymbolicDim
from fxgrad.text.equality import equal
from fxgrad.text.text_parser import parse
from fxgrad.text.text_writer import program_text
from fxgrad.text.values import is_opaque, is_value_class

SIZE_LIMIT = 2000
"""Programs of more equations are not printed at every step: tests of large programs do that themselves."""

_CHECKED: ProgramAttribute[bool] = ProgramAttribute("text is checked")
_seen = Cache("neighbourhoods of operations in texts that were checked", 65536)


def check_with_text(program: Program) -> None:
    """Verify the rules of the IR; at level 3 also the text, if it contains anything new, at level 4 any text."""
    check_program(program)
    if config.check_level < 3 or len(program.equations) > SIZE_LIMIT or _CHECKED.of(program):
        return
    new = [each for each in text_features(program) if each not in _seen]
    if new or config.check_level > 3:
        check_text(program)
        for each in new:
            _seen.add(each, True)
    _CHECKED.put(program, True)


def text_features(program: Program) -> Iterator[int]:
    """Yield hashes of the contents of a program's text, one for each operation.

    An operation is identified by its primitive, parameters and ranks, by the operations that compute its operands, and
    by the number of uses of each. Sizes, widths of dtypes and numbers are left out, as tests record the same formulas
    in all of them.
    """
    for inner in _programs_within(program, unchecked=True):
        makers: dict[int, Any] = {id(each): place < inner.captured for place, each in enumerate(inner.inputs)}
        uses = Counter(id(atom) for equation in inner.equations for atom in equation.inputs)
        uses.update(map(id, inner.outputs))
        for equation in inner.equations:
            operands = [(makers[id(atom)], uses[id(atom)] > 1) if isinstance(atom, Variable) else atom.aval.dtype.kind
                        for atom in equation.inputs]
            makers.update((id(output), (equation.primitive, place)) for place, output in enumerate(equation.outputs))
            yield hash((equation.primitive, *operands,
                        *((output.aval.ndim, output.aval.dtype.kind, min(uses[id(output)], 2))
                          for output in equation.outputs),
                        *((name, _kind_of_value(value)) for name, value in equation.params.items())))


def _kind_of_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    return frozenset(map(_kind_of_value, value)) if type(value) is tuple and len(value) < 8 else type(value)


def check_text(program: Program) -> None:
    """Raise `AssertionError` unless the text of `program` gives back an equal program.

    Programs that contain Python objects have no text and are skipped, as are those with jax's symbolic sizes, which
    occur when a program is exported.
    """
    values = [*require_program("check_text", program).constants, *_operand_values(program)]
    is_jaxs = not all(isinstance(size, int | SymbolicDim) for aval in program.in_avals for size in aval.shape)
    if is_jaxs or any(isinstance(value, Tracer) or is_opaque(value) for value in values):
        return
    primitives = {equation.primitive for inner in _programs_within(program) for equation in inner.equations}
    # Those of users alone: a reader must know the library's own classes without being told.
    classes = {type(value) for value in values
               if is_value_class(type(value)) and not type(value).__module__.startswith("fxgrad.")}
    text = program_text(program, constants=True)
    try:
        same = equal(program, parse(text, primitives, classes))
    except ProgramSyntaxError as error:
        raise AssertionError(f"the text of a program does not parse; this is a bug in fxgrad: {error}\n{text}") \
            from error
    assert same, f"the text of a program gives back another one; this is a bug in fxgrad\n{text}"


def _programs_within(program: Program, unchecked: bool = False) -> Iterator[Program]:
    """Yield `program` and all programs in it, each once; with `unchecked`, none in it whose text was checked."""
    found = {id(program): program}
    pending = [program]
    for each in pending:
        yield each
        for equation in each.equations:
            for inner in equation.programs:
                if id(inner) not in found and not (unchecked and _CHECKED.of(inner)):
                    found[id(inner)] = inner
                    pending.append(inner)


def _operand_values(program: Program) -> Iterator[Any]:
    for each in _programs_within(program):
        for equation in each.equations:
            yield from _parts([*equation.params.values()])


def _parts(values: list[Any]) -> Iterator[Any]:
    for value in values:
        yield value
        if isinstance(value, tuple | list):
            yield from _parts([*value])
