"""The stages of a program: recorded, simplified, differentiated, as NumPy, as StableHLO and as XLA's program."""

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

    `places` has the user's line that each line of the text is of, as "file.py:12", or "". `program` is the program of
    the stage, if it has one.
    """

    name: str
    note: str
    lines: list[tuple[str, str]]
    places: list[str]
    program: Program | None = None

    def data(self) -> dict[str, Any]:
        """Return the stage, for JSON."""
        return {"name": self.name, "note": self.note, "lines": [
            [mark, text, place] for (mark, text), place in zip(self.lines, self.places, strict=True)]}


def stages_of(fun: Callable[..., Any], argnums: int | Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any],
         ) -> list[ProgramStage]:
    """Return the stages of a function at its arguments, with those of its gradient if it has one.

    >>> import numpy as np
    >>> [stage.name for stage in stages_of(lambda x: np.sum(np.sin(x)), 0, (np.ones(3),), {})]
    ['recorded', 'simplified', 'gradient', 'gradient, simplified', 'NumPy', 'StableHLO', 'XLA']
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
    lines = text.splitlines()
    return [*stages, ProgramStage("NumPy", note, [("", line) for line in lines], [_place_at(_COMMENT, line)
                                                                                 for line in lines]), *_compiled(last)]


_COMMENT = re.compile(r"# (\S+:\d+)$")
"""The user's line in a file of NumPy."""
_SCOPE = re.compile(r'/([^/":]+:\d+)/')
"""The user's line in the name of an operation, where `_mark_line` has put it."""
_MARGIN = re.compile(r"# (?:(\S+):)?(\d+)(?:$|[ ;])")
"""The user's line in the margin of a program, without the file if it is that of the program."""
_HEAD = re.compile(r"# (\S.*)$")


def _place_at(pattern: re.Pattern[str], line: str) -> str:
    found = pattern.search(line)
    return found[1] if found else ""


def places_of_program(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return the user's line for each line of a program; the margin has it where it is another than above."""
    file, places = "", []
    here = {"-": "", "+": ""}  # in the program before, and in this one
    for mark, line in lines:
        code = line.partition("#")[0].rstrip()
        head, margin = _HEAD.search(line), _MARGIN.search(line)
        if not file and head is not None and code.endswith(":"):  # the end of the head, which may take several lines
            file = head[1]
        elif margin is not None:
            here |= dict.fromkeys(mark or "-+", f"{margin[1] or file}:{margin[2]}")
        places.append(here[mark or "+"] if "=" in code or "return" in code else "")
    return places


def _program_stage(name: str, note: str, program: Program, before: Program | None) -> ProgramStage:
    lines = [("", line) for line in program_text(program).splitlines()] if before is None else _compare_lines(
        before, program)
    return ProgramStage(name, note, lines, places_of_program(lines), program)


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


def _compiled(program: Program) -> list[ProgramStage]:
    """Return the stages of the compiler: what it is given, StableHLO, and what it makes of that."""
    if len(program.equations) > MAX_EQUATIONS:
        note = f"Left out: to compile {len(program.equations):,} operations would take long."
        return [ProgramStage(name, note, [], []) for name in ("StableHLO", "XLA")]
    structs = [var.aval.struct for var in program.inputs[program.captured:]]
    closed = Program(program.inputs, [_mark_line(each) for each in program.equations], program.outputs,
                     program.captured, program.constants)
    stages = []
    try:
        lowered = jit(lambda *values: closed(*values)).lower(*structs)
        lines, places = _without_locations(lowered.as_text(debug_info=True))
        stages.append(ProgramStage("StableHLO", "What the compiler is given: the operations, lowered.",
                                   [("", line) for line in lines], places))
        text = lowered.compile().as_text()
    except (FxgradError, NotImplementedError, RuntimeError) as error:
        note = f"XLA does not compile it: {error}".split("\n", maxsplit=1)[0]
        return [*stages, *[ProgramStage(name, note, [], []) for name in ("StableHLO", "XLA")[len(stages):]]]
    lines = _strip_tables(text)
    note = "XLA's own program, optimised for this machine; op_name says which of your lines each operation is of."
    return [*stages, ProgramStage("XLA", note, [("", line) for line in lines],
                                  [_place_at(_SCOPE, line) for line in lines])]


_LOCATION = re.compile(r' loc\((?:#loc\d*|"[^"]*"(?:\(#loc\d*\))?|unknown)\)')


def _without_locations(text: str) -> tuple[list[str], list[str]]:
    """Return the lines of StableHLO without locations, and the user's line of each."""
    named = dict(re.findall(r'^(#loc\d*) = loc\((.*)\)$', text, re.MULTILINE))
    lines = [line for line in text.splitlines() if not line.startswith("#loc")]
    ends = [re.search(r"loc\((#loc\d*)\)$", line) for line in lines]
    places = [_place_at(_SCOPE, named.get(end[1], "")) if end else "" for end in ends]
    return [_LOCATION.sub("", line) for line in lines], places


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
