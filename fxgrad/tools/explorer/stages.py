"""The stages of a program: recorded, simplified, differentiated, as NumPy and as XLA's program."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad import grad, jit, make_program
from fxgrad.errors import FxgradError
from fxgrad.extend import Equation, Program, join_scopes
from fxgrad.text.color import user_names
from fxgrad.text.roles import Word, structure
from fxgrad.text.text_writer import program_text

MAX_EQUATIONS = 2_000
"""Equations up to which a program is compiled for the last stage."""


class ProgramStage(NamedTuple):
    """One stage: its name, a sentence about it, its text, and marks of new and removed lines.

    `program` is the program of the stage, if it has one.
    """

    name: str
    note: str
    lines: list[tuple[str, str]]
    program: Program | None = None

    def data(self) -> dict[str, Any]:
        """Return the stage, for JSON."""
        return {"name": self.name, "note": self.note, "lines": self.lines}


def stages_of(fun: Callable[..., Any], argnums: int | Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any],
         ) -> list[ProgramStage]:
    """Return the stages of a function at its arguments, with those of its gradient if it has one.

    >>> import numpy as np
    >>> [stage.name for stage in stages_of(lambda x: np.sum(np.sin(x)), 0, (np.ones(3),), {})]
    ['recorded', 'simplified', 'gradient', 'gradient, simplified', 'NumPy', 'XLA']
    """
    recorded = make_program(fun, as_recorded=True)(*args, **kwargs)
    simplified = make_program(fun)(*args, **kwargs)
    stages = [_program_stage("recorded", "The operations that running the function on tracers recorded.", recorded,
                             None),
              _program_stage("simplified", "What is there twice or not used is gone; no bit of the result changes.",
                             simplified, recorded)]
    last = simplified
    try:
        slopes = make_program(grad(fun, argnums), as_recorded=True)(*args, **kwargs)
    except FxgradError:  # a function without a gradient has the other stages
        pass
    else:
        last = make_program(grad(fun, argnums))(*args, **kwargs)
        stages += [_program_stage("gradient",
                                  "Reverse mode: each operation's pullback, from the result to the arguments.",
                                  slopes, simplified),
                   _program_stage("gradient, simplified", "The same without what nothing needs.", last, slopes)]
    try:
        text, note = last.to_python(), "The same as a file of plain NumPy, bit for bit: `program.to_python()`."
    except FxgradError as error:
        text, note = "", f"There is no such file: {error}".split("\n", maxsplit=1)[0]
    return [*stages, ProgramStage("NumPy", note, [("", line) for line in text.splitlines()]), _xla(last)]


def _program_stage(name: str, note: str, program: Program, before: Program | None) -> ProgramStage:
    lines = program_text(program).splitlines()
    if before is None:
        return ProgramStage(name, note, [("", line) for line in lines], program)
    return ProgramStage(name, note, _compare_lines(before, program), program)


def _compare_lines(before: Program, after: Program) -> list[tuple[str, str]]:
    """Return the lines after, marked as new or removed; letters and the user's lines at the margin are ignored."""
    one, other = (program_text(program).splitlines() for program in (before, after))
    found: list[tuple[str, str]] = []
    for kind, start, end, first, last in difflib.SequenceMatcher(
            None, _canonical_lines(before), _canonical_lines(after), autojunk=False).get_opcodes():
        if kind == "equal":
            found += [("", line) for line in other[first:last]]
        else:
            found += [("-", line) for line in one[start:end]]
            found += [("+", line) for line in other[first:last]]
    return found


def _canonical_lines(program: Program) -> list[str]:
    """Return the lines without comments and with letters expanded, since letters differ between programs."""
    text = program_text(program)
    stands_for: dict[tuple[int, str], str] = {}
    end_of_text = Word(len(text) + 1, len(text) + 1, "")
    words = iter([*structure(text, user_names(program)).words, end_of_text])
    word, start, meant = next(words), 0, []
    for line in text.split("\n"):
        end, at, pieces = start + len(line), start, [""]
        bound: list[tuple[int, str]] = []
        while word.start < end:
            name = text[word.start:word.end]
            pieces.append(text[at:word.start])
            if word.role == "letter" and word.binds:
                bound.append((word.scope, name))
            elif word.role == "letter":
                pieces.append(stands_for.get((word.scope, name), name))
            elif word.role != "comment":
                pieces.append(name)
            at, word = word.end, next(words)
        meant.append("".join([*pieces, text[at:end]]).rstrip())
        for place, key in enumerate(bound):
            stands_for[key] = f"<{hash((meant[-1], place))}>"
        start = end + 1
    return meant


def _xla(program: Program) -> ProgramStage:
    if len(program.equations) > MAX_EQUATIONS:
        note = f"Left out: to compile {len(program.equations):,} operations would take long."
        return ProgramStage("XLA", note, [])
    structs = [var.aval.struct for var in program.inputs[program.captured:]]
    closed = Program(program.inputs, [_mark_line(each) for each in program.equations], program.outputs,
                     program.captured, program.constants)
    try:
        text = jit(lambda *values: closed(*values)).lower(*structs).compile().as_text()
    except (FxgradError, NotImplementedError, RuntimeError) as error:
        return ProgramStage("XLA", f"XLA does not compile it: {error}".split("\n", maxsplit=1)[0], [])
    note = "XLA's own program, optimised for this machine; op_name says which of your lines each operation is of."
    return ProgramStage("XLA", note, [("", line) for line in _strip_tables(text)])


def _mark_line(equation: Equation) -> Equation:
    """Return the equation in a scope named after the user's line, so that XLA's program shows the line."""
    source = equation.source
    if source is None:
        return equation
    return Equation(equation.primitive, equation.inputs, equation.params, equation.outputs,
                    source._replace(scope=join_scopes(source.scope, source.place)))


def _strip_tables(text: str) -> list[str]:
    """Return the lines of XLA's text without file tables and settings, and with called programs after their callers."""
    lines = [re.sub(r", stack_frame_id=\d+|, backend_config=\{.*\}$", "", line) for line in text.splitlines()]
    blocks = [block.strip("\n") for block in "\n".join(lines).split("\n\n")]
    computations = [block for block in blocks if re.match(r"(ENTRY )?%\w", block)]
    computations.sort(key=lambda block: not block.startswith("ENTRY"))
    return "\n\n".join([lines[0].partition(",")[0], *computations]).splitlines() if lines else []
