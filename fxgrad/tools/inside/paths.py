"""Paths of values inside a program: the scopes, functions and loops around a value, and the user's own name for it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import CodeType, MappingProxyType
from typing import NamedTuple

from rich.table import Table

from fxgrad.errors import ArgumentError
from fxgrad.extend import (
    CALL_NAMES,
    RETURNED,
    Atom,
    Aval,
    Equation,
    Program,
    Region,
    Source,
    Variable,
    at_user_line,
    file_name,
    inner_first,
    primitives,
    region_roles,
)
from fxgrad.text.inlining import call_name
from fxgrad.text.names import called_function, function_label, returned_names, tags_of, wanted_names
from fxgrad.text.sources import Sources, file_text
from fxgrad.text.tables import Report, add_row, new_table

Chain = tuple[tuple[int, int], ...]
"""Where a nested program is: for each operation around it its position, and the position of the program in it."""
Place = tuple[Chain, Variable | int]
"""A value of the program at a chain: a variable, or the number of an output, at the end of the program alone."""
SHOWN = 6
"""Most names that one message lists."""
_token = re.compile(r"""(?:[^.\[/#]|\[(?:[^\]"']|"[^"]*"|'[^']*')*\])+""")
_turn = re.compile(r"(.+)\[(-?\d+)\]")
_entry = re.compile(r"(.*)#(\*|-?\d+)")


class Turns(NamedTuple):
    """A loop around a value: the positions of its words in the path, and the length of the chain to its body.

    `times` is how often it runs; None if that depends on values. The devices of a mesh are turns too, of the values
    that differ along its axes, whose sizes `mesh` has by name.
    """

    first: int
    last: int
    times: int | None
    depth: int
    mesh: Mapping[str, int] = MappingProxyType({})

    def of(self, aval: Aval) -> Turns | None:
        """Return the turns that a value of this type has; None if it is one for all."""
        if not self.mesh:
            return self
        sizes = [size for name, size in self.mesh.items() if name in aval.vma]
        return self._replace(times=math.prod(sizes)) if sizes else None


class Value(NamedTuple):
    """A value inside a program, as `fxgrad.names` lists it.

    `path` is unique; `aval` is the type of one value, in one turn of the loops around it. `line` is the user's.
    """

    path: str
    aval: Aval
    line: str
    words: tuple[str, ...]
    chain: Chain
    var: Variable
    loops: tuple[Turns, ...]
    is_argument: bool
    is_named: bool
    reassigned: tuple[str, str] | None = None
    """The name, and a later line that assigns it something that has no path; None if there is none."""
    is_merged: bool = False
    """Whether a derived program computes equal values once, this one and others of the function."""
    own: tuple[str, ...] = ()
    """The words without those of the branches and loops that are statements of a converted function."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape as it is captured, of all turns stacked; None for a number of turns that depends on values."""
        return (*[loop.times for loop in self.loops], *self.aval.shape)

    def __str__(self) -> str:
        return self.path


class Chosen(NamedTuple):
    """A value that a path stands for, under the `key` of results, and the turns that it names: by loop, or None.

    `others` are values of the same type in other branches of the same choice, of which one is computed. If `value` is
    what a choice leaves, `others` are those of its branches, and `ends` has for each branch where that comes from.
    """

    key: str
    value: Value
    turns: tuple[int | None, ...]
    others: tuple[Value, ...] = ()
    ends: tuple[Place, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the value is computed: in one place, or in one for each branch."""
        return tuple([(each.chain, each.var) for each in (self.value, *(() if self.ends else self.others))])

    @property
    def changed_places(self) -> tuple[Place, ...]:
        """Where the value is replaced, so that its uses in a branch take the new one, too."""
        return self.ends or self.places


class Values(Report, tuple[Value, ...]):
    """The values inside a function that have names; prints as a table of paths, types and lines."""

    __slots__ = ()

    def table(self) -> Table:
        """Return the table for rich."""
        made = new_table("", {"path": "left", "type": "left", "line": "left"})
        for value in self:
            add_row(made, [value.path, _type_text(value), value.line])
        return made

    def __repr__(self) -> str:
        return f"<{len(self)} values: {', '.join(value.path for value in self[:SHOWN])}{', ...' * (len(self) > SHOWN)}>"


def _type_text(value: Value) -> str:
    times = "".join("?" if loop.times is None else str(loop.times) for loop in value.loops[:1]) + "".join(
        f" x {'?' if loop.times is None else loop.times}" for loop in value.loops[1:])
    return f"{value.aval}" + (f" x {times}" if times else "")


# --- listing --------------------------------------------------------------------------------------------------------


def values_of(program: Program, code: CodeType | None) -> Values:
    """Return the values inside the program of the function with this `code`, in the order in which they are computed.

    Those that no line names have `is_named` false: they may be results of a scope or a call.
    """
    listing = _Listing(code)
    found = listing.with_reassigned([*listing.values(program, (), (), ())])
    equal: dict[tuple[str, ...], list[Value]] = {}
    for value in found:
        if value.is_named:
            equal.setdefault(value.words, []).append(value)
    paths: dict[int, str] = {}
    for words, values in equal.items():
        for number, value in enumerate(_computed_first(values)):
            alone = len(values) == 1 or (number == 0 and sum(not each.is_argument for each in values) == 1)
            paths[id(value)] = ".".join(words) + ("" if alone else f"#{number}")
    return Values(value._replace(path=paths.get(id(value), ".".join(value.words))) for value in found)


def _computed_first(values: Sequence[Value]) -> list[Value]:
    """Return values of equal paths in the order of their numbers: those that code computes, then arguments."""
    return sorted(values, key=lambda value: value.is_argument)


class _Listing:
    """Walks through a program and those nested in it; paths leave out the name of the traced function, of this code."""

    def __init__(self, code: CodeType | None) -> None:
        self._sources = Sources()
        self._code = code
        self._lines: dict[int, tuple[CodeType, str, int]] = {}
        """By the number of a named value: its function, the name that is assigned, and the line; 0 for arguments."""
        self._count = 0
        self._statements: dict[Chain, tuple[int, int]] = {}
        """The words of the branches and turns of converted statements: the first one, and the one after the last."""

    def with_reassigned(self, values: Sequence[Value]) -> list[Value]:
        """Return values with the later lines that assign their names."""
        lines: dict[tuple[str, str, str], set[int]] = {}
        for code, name, line in self._lines.values():
            lines.setdefault((code.co_filename, code.co_qualname, name), set()).add(line)
        found = [*values]
        for number, (code, name, line) in self._lines.items():
            value = values[number]
            for later in self._sources.assignments(code, name):
                known = lines[code.co_filename, code.co_qualname, name]
                if later.first > line and (value.words[-1] != name or not later.keeps) and not any(
                        later.first <= each <= later.last for each in known):
                    found[number] = value._replace(reassigned=(name, f"{file_name(code.co_filename)}:{later.first}"))
                    break
        return found

    def values(self, program: Program, chain: Chain, around: tuple[str, ...], loops: tuple[Turns, ...],
               ) -> Iterator[Value]:
        names = wanted_names(program, self._sources)
        returned = {var: (name, source) for var, name, source in returned_names(program, self._sources)}
        calls, tags = _calls_of_containers(program), tags_of(program)
        called = CALL_NAMES.of(program)
        code = called.code if chain and called is not None else None if chain else self._code
        for var in program.inputs:
            name = names.get(var)
            yield self._value(var, None if name is None else name.text, around, chain, loops, None, code,
                              is_argument=var not in tags)
        for place, equation in enumerate(program.equations):
            within = (*around, *self._words_of(equation.source, around))
            yield from self._inside(equation, place, chain, within, loops)
            held = self._words_of_held(equation) if equation.regions else ()
            for var in equation.outputs:
                name = names.get(var)
                is_own = var in tags or (name is not None and not name.is_of_region and not name.is_of_input and (
                    not _is_within(equation, calls)))
                is_merged = name is not None and name.is_shared
                if name is not None and is_own:
                    yield self._value(var, name.text, within, chain, loops, equation.source, is_merged=is_merged)
                if is_merged:
                    for other, line in self._merged(equation, var):
                        if name is not None and other != name.text:
                            yield self._value(var, other, (*around, *self._words_of(line, around)), chain, loops, line,
                                              is_merged=True)
                text, source = returned.get(var, ("", None))
                if source is not None and (name is None or not is_own or name.text != text):
                    yield self._value(var, text, (*around, *self._words_of(source, around)), chain, loops, source)
                if not is_own:
                    yield self._value(var, None, (*within, *held), chain, loops, equation.source)

    def _merged(self, equation: Equation, var: Variable) -> Iterator[tuple[str, Source]]:
        """Yield the names, with their lines, of the values of the function that this one stands for."""
        source = equation.source
        origins = source.origins[equation.outputs.index(var)] if source is not None and source.origins else ()
        for origin in origins:
            name = wanted_names(origin.program, self._sources).get(origin.var)
            maker = next((each for each in origin.program.equations if origin.var in each.outputs), None)
            if origin.role == "primal" and name is not None and maker is not None and maker.source is not None:
                yield name.text, maker.source
                yield from self._merged(maker, origin.var)

    def _value(self, var: Variable, name: str | None, around: tuple[str, ...], chain: Chain, loops: tuple[Turns, ...],
               source: Source | None, function: CodeType | None = None, is_argument: bool = False,
               is_merged: bool = False) -> Value:
        """Return the value that a line gives a name, or an argument of `function`."""
        own = () if name is None else tuple(_token.findall(name))
        code = function if source is None else source.code
        if own and code is not None:
            line = 0 if source is None else self._sources.span(source)[0] or source.line
            self._lines[self._count] = code, own[0].partition("[")[0], line
        self._count += 1
        turns = tuple([each for loop in loops if (each := loop.of(var.aval)) is not None])
        words = (*around, *own)
        left_out = {place for length in range(1, len(chain) + 1)
                    for place in range(*self._statements.get(chain[:length], (0, 0)))}
        return Value("", var.aval, "" if source is None else source.place, words, chain, var, turns,
                     is_argument, name is not None, is_merged=is_merged,
                     own=tuple([word for place, word in enumerate(words) if place not in left_out]))

    def _inside(self, equation: Equation, place: int, chain: Chain, around: tuple[str, ...],
                loops: tuple[Turns, ...]) -> Iterator[Value]:
        source = equation.source
        if equation.primitive is primitives.sweep and source is not None and source.part == "backward":
            return  # its programs are those of the forward pass, and steps of the compiler's own
        for number, region in enumerate(equation.regions):
            words = (*around, *self._words_of_held(equation, region))
            inner = loops
            if region.role == "body" or (region.times != 1 and region.role == "condition"):
                inner = (*loops, Turns(len(around), len(words) - 1, region.times, len(chain) + 1))
            if region.role == "mapped":
                mesh, axes = equation.params["mesh"], equation.params["axis_names"]
                inner = (*loops, Turns(len(around), len(words) - 1, None, len(chain) + 1,
                                       {name: mesh.size((name,)) for name in axes}))
            within = (*chain, (place, number))
            called = called_function(region.program)
            if source is not None and called is not None and called.code is not None and _are_of_one(
                    called.code, source.code):
                self._statements[within] = len(around), len(words)
            yield from self.values(region.program, within, words, inner)

    def _words_of(self, source: Source | None, around: tuple[str, ...]) -> tuple[str, ...]:
        """Return the scopes and the function of a line; the traced function itself has no word."""
        if source is None:
            return ()
        scopes = tuple(_token.findall(source.scope))
        code = source.code
        if self._code is not None and _are_of_one(code, self._code):
            return scopes
        own = code.co_qualname.rpartition("<locals>.")[2].split(".")  # a function, or a class and its method
        return (*scopes, *(word for word in own if not word.startswith("<") and word != "__call__"
                           and word not in (*scopes, *around[-2:])))

    @staticmethod
    def _words_of_held(equation: Equation, region: Region | None = None) -> tuple[str, ...]:
        """Return the words of an operation that holds a program: the loop or branch, and the function called."""
        name = str(equation.primitive)
        roles = region_roles.of(equation.primitive)
        label = "" if region is None else function_label(region.program)
        label = "" if label.startswith("<") else label
        if not {"body", "branch", "mapped"}.isdisjoint(roles):
            return (name, label) if label else (name,)
        return (call_name(equation) if len(equation.regions) == 1 else name,)


def _calls_of_containers(program: Program) -> set[tuple[int, int]]:
    """Return the instructions of calls that return a container, whose values have paths."""
    found: set[tuple[int, int]] = set()
    recorded: Program | None = program
    while recorded is not None:
        found.update((id(source.code), source.instruction) for source, paths in RETURNED.of(recorded) or ()
                     if any(paths.values()))
        recorded = recorded.base
    return found


def _are_of_one(code: CodeType, other: CodeType) -> bool:
    """Return whether two codes are of one function: converted code, and its blocks, are objects of their own."""
    return code is other or (code.co_qualname, code.co_filename) == (other.co_qualname, other.co_filename)


def _is_within(equation: Equation, calls: Container[tuple[int, int]]) -> bool:
    """Return whether an operation is one of those calls itself: its name would be a guess."""
    source = equation.source
    return source is not None and not source.origins and (id(source.code), source.instruction) in calls


# --- choosing -------------------------------------------------------------------------------------------------------


def choose(what: str, path: str, values: Values, program: Program) -> list[Chosen]:
    """Return the values that `path` stands for: one, or all that match if it has wildcards or ends with `#*`.

    Raises `ArgumentError` with the nearest names if there is none, or if one name stands for several values.
    """
    name = program.signature.name if program.signature is not None else "the function"
    entry = _entry.fullmatch(path) if isinstance(path, str) else None
    asked, number = (path, None) if entry is None else (entry[1], entry[2])
    tokens = _token.findall(asked) if isinstance(asked, str) else []
    if not tokens:
        raise ArgumentError(at_user_line(
            f"{what}: values go by path, such as \"encoder.h\"; got {path!r}. fxgrad.names(f)(*args) lists them"))
    found = _matches(tokens, values, by_own=number is None)
    if not found and name in tokens[:-1]:  # the word of the traced function, which is in paths of its callers
        found = _matches([token for token in tokens[:-1] if token != name] + tokens[-1:], values)
    found = found or _results(tokens, values, program)
    if number is None or number == "*":  # arguments only if nothing computed has the name
        found = [each for each in found if not each.value.is_argument] or found
    many = any("*" in token or "?" in token for token in tokens)
    if not found:
        raise ArgumentError(at_user_line(
            f"{what}: {name} has no value {path!r}. {_nearest(path, values)}{_hidden(program)}"))
    if number is not None and number != "*":
        if not -len(found) <= int(number) < len(found):
            raise ArgumentError(at_user_line(
                f"{what}: {path!r} is out of range: {asked!r} stands for {len(found)} values of {name}"))
        found = [found[int(number)]]
    elif not many and number is None and (left := _left(found, tokens, values, program)) is not None:
        found = [left]
    elif not many and number is None and len(found) > 1 and _are_of_branches(found, program):
        found = [found[0]._replace(others=tuple([each.value for each in found[1:]]))]
    elif not many and number is None and len(found) > 1:
        listed = ", ".join(repr(each.value.path) for each in found[:SHOWN])
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise ArgumentError(at_user_line(
            f"{what}: {path!r} stands for {len(found)} values of {name}: {listed}{more}. Say which, or take all: "
            f"{asked + '#*'!r}"))
    for each in found:
        for loop, turn in zip(each.value.loops, each.turns, strict=True):
            if turn is not None and loop.times is not None and not -loop.times <= turn < loop.times:
                raise ArgumentError(at_user_line(f"{what}: {path!r} names turn {turn} of a loop of {loop.times} turns"))
    if number is None and not many:
        require_last(what, path, [each.value for each in found])
    if len(found) == 1 and not many and number != "*":
        return [found[0]._replace(key=path)]
    return [each._replace(key=f"{each.value.path}" if each.value.is_named else f"{asked}#{place}")
            for place, each in enumerate(found)]


def choose_to_change(what: str, path: str, values: Values, program: Program) -> list[Chosen]:
    """Return the values that `path` stands for; raise `ArgumentError` if one is computed together with equal ones.

    Whatever is done to such a value is done to the others.
    """
    found = choose(what, path, values, program)
    for each in found:
        if any(value.is_merged for value in (each.value, *each.others)):
            line = f" of {each.value.line}" if each.value.line else ""
            raise ArgumentError(at_user_line(
                f"{what}: the value {path!r}{line} is equal to another one of the function, and its batch or "
                "derivative computes both as one. Change it in the function before that is transformed, such as "
                f"fxgrad.vmap(fxgrad.{'replace' if what == 'split' else what}(f, ...))"))
        _require_uses(what, path, each, values, program)
    return found


def require_last(what: str, path: str, values: Sequence[Value]) -> None:
    """Raise `ArgumentError` for a value whose name a later line assigns something else, which has no path."""
    for value in values:
        if value.reassigned is not None:
            name, later = value.reassigned
            line = f"the value of {value.line}" if value.line else "an argument"
            raise ArgumentError(at_user_line(
                f"{what}: {path!r} is {line}, and {later} assigns something else to {name}, by no operation that a "
                f"path leads to. For the first write {path + '#0'!r}; name the second by "
                f'fxgrad.tag(..., "{name}")'))


def _left(found: Sequence[Chosen], tokens: Sequence[str], values: Values, program: Program) -> Chosen | None:
    """Return the one of `found` that a statement leaves, if all others are what its branches or turns end in.

    It is returned with all these of the path, also if `found` has only the one whose path is whole.
    """
    named = [value for value in values
             if value.is_named and not value.is_argument and _match(tokens, value) is not None]
    among = {(value.chain, value.var) for value in named}
    for each in found:
        seen: set[Place] = set()
        ends = _ends((each.value.chain, each.value.var), among, program, seen)
        if ends and all((other.value.chain, other.value.var) in seen for other in found):
            return each._replace(ends=ends, others=tuple([
                value for value in named if value is not each.value and (value.chain, value.var) in seen]))
    return None


def _program_at(program: Program, chain: Chain) -> Program:
    for place, number in chain:
        program = program.equations[place].regions[number].program
    return program


def _ends(place: Place, among: Container[Place], program: Program, seen: set[Place]) -> tuple[Place, ...]:
    """Return what the branches or turns of a statement end in for the variable that it leaves; () for other values.

    These are variables in `among`, and otherwise outputs. All variables in `among` that were met are added to `seen`.
    """
    chain, var = place
    seen.add(place)
    around = _program_at(program, chain)
    position = next((number for number, equation in enumerate(around.equations) if var in equation.outputs), None)
    if position is None or var not in tags_of(around):
        return ()
    equation = around.equations[position]
    ends: list[Place] = []
    for number, region in enumerate(equation.regions):
        if region.role != "branch" and (region.role != "body" or region.times is not None):
            continue
        inner = (*chain, (position, number))
        for output, (atom, link) in enumerate(zip(region.program.outputs, region.outputs, strict=True)):
            if link.how in ("same", "carry") and link.place == equation.outputs.index(var):
                if isinstance(atom, Variable) and (inner, atom) in among:
                    ends += _ends((inner, atom), among, program, seen) or ((inner, atom),)
                else:
                    ends.append((inner, output))
    return tuple(ends)


def _require_uses(what: str, path: str, chosen: Chosen, values: Values, program: Program) -> None:
    """Raise `ArgumentError` if a branch may use a value, which is to change, under a name that the value has before."""
    for chain, output in chosen.ends:
        inside = _program_at(program, chain)
        if isinstance(output, int) and any(inside.outputs[output] in equation.inputs for equation in inside.equations):
            matches = [each.value for each in _matches(_token.findall(path), values)]
            raise ArgumentError(at_user_line(
                f"{what}: in a branch or turn of {chosen.value.line}, {path!r} is another name of a value that is "
                f"computed with there, and its uses cannot be told from others. Compute {path} by an operation of its "
                f"own; or write {path + '#' + str(matches.index(chosen.value))!r} for its uses after the statement"))


def _are_of_branches(found: Sequence[Chosen], program: Program) -> bool:
    """Return whether values are of one type, each in another branch of the same choice."""
    first = found[0].value
    depth = 0
    chains = [each.value.chain for each in found]
    while all(len(chain) > depth and chain[depth] == first.chain[depth] for chain in chains):
        place, number = first.chain[depth]
        program = program.equations[place].regions[number].program
        depth += 1
    if any(len(chain) <= depth or chain[depth][0] != first.chain[depth][0] for chain in chains):
        return False
    choice = program.equations[first.chain[depth][0]]
    return len({chain[depth][1] for chain in chains}) == len(found) and region_roles.of(
        choice.primitive) == ("branch",) and all(
        (each.value.aval, each.turns, each.value.shape) == (first.aval, found[0].turns, first.shape) for each in found)


def _matches(tokens: Sequence[str], values: Values, by_own: bool = False) -> list[Chosen]:
    """Return the named values that match, computed ones first; only those of the whole path, if there are any.

    With `by_own` the branches and turns of a converted function's statements are part of the function.
    """
    named = _computed_first([value for value in values if value.is_named])
    whole = [value for value in named if [*(value.own if by_own else value.words)] == [*tokens]]
    found = []
    for value in whole or named:
        turns = _match(tokens, value)
        if turns is not None:
            found.append(Chosen("", value, turns))
    return found


def _match(tokens: Sequence[str], value: Value) -> tuple[int | None, ...] | None:
    """Return the turns that a path names if it fits `value`: its words in order, the last of them last."""
    at = _fit(tokens, value.words)
    return None if at is None else _turns(tokens, at, value)


def _fit(tokens: Sequence[str], words: Sequence[str]) -> list[int] | None:
    """Return for each token the position of its word, in order, the last of them last; None if there is none."""
    if not words or not _is_word(tokens[-1], words[-1]):
        return None
    at: list[int] = []
    place = len(words) - 1
    for token in reversed(tokens):
        while place >= 0 and not _is_word(token, words[place]):
            place -= 1
        if place < 0:
            return None
        at.append(place)
        place -= 1
    return at[::-1]


def _is_word(token: str, word: str) -> bool:
    if token == word or fnmatchcase(word, token.replace("[", "[[]")):
        return True
    turn = _turn.fullmatch(token)
    return turn is not None and turn[1] == word


def _turns(tokens: Sequence[str], at: Sequence[int], value: Value) -> tuple[int | None, ...] | None:
    """Return the turn named for each loop; None if a token has an index where there is no loop."""
    turns: list[int | None] = [None] * len(value.loops)
    for token, place in zip(tokens, at, strict=True):
        turn = _turn.fullmatch(token)
        if turn is None or token == value.words[place]:
            continue
        number = next((number for number, loop in enumerate(value.loops) if loop.first <= place <= loop.last), None)
        if number is None:
            return None
        turns[number] = int(turn[2])
    return tuple(turns)


def in_container(what: str, path: str, values: Values) -> list[Chosen]:
    """Return the values in the container that a path stands for: `grads.w` and `grads.b` for `grads`.

    Raises `ArgumentError` if it stands for several containers, and neither has wildcards nor a number: `grads#0`.
    """
    entry = _entry.fullmatch(path)
    asked, number = (path, "") if entry is None else (entry[1], entry[2])
    tokens = _token.findall(asked)
    containers: dict[tuple[tuple[str, ...], int], list[Value]] = {}
    times: dict[tuple[str, ...], int] = {}
    for value in values:
        words = [word.partition("[")[0] for word in value.words]
        ends = [end for end in range(1, len(words) + 1)
                if (end < len(words) or words[-1] != value.words[-1]) and _fit(tokens, words[:end])]
        if value.is_named and ends:
            time = times[value.words] = times.get(value.words, -1) + 1
            containers.setdefault((tuple(words[:ends[0]]), time), []).append(value)
    found = [*containers.values()]
    found = [each for each in found if not each[0].is_argument] or found
    if number not in ("", "*"):
        found = found[int(number):][:1] if -len(found) <= int(number) < len(found) else []
    elif not number and not any("*" in token or "?" in token for token in tokens):
        if len(found) > 1:
            lines = ", ".join(each[0].line or "an argument" for each in found[:SHOWN])
            raise ArgumentError(at_user_line(
                f"{what}: {path!r} stands for {len(found)} containers, those of {lines}. Say which, such as {path}#0, "
                f"or take all: {path}#*"))
        require_last(what, path, [value for each in found for value in each])
    return [Chosen(value.path, value, (None,) * len(value.loops)) for each in found for value in each]


def _results(tokens: Sequence[str], values: Values, program: Program) -> list[Chosen]:
    """Return the results of the scopes or calls that a path stands for: what is made in them and used outside."""
    inside: dict[tuple[Chain, Variable], tuple[Value, int]] = {}
    for value in values:
        container = value.words[:-1] if value.is_named else value.words
        end = _end(tokens, container)
        if end is not None and not value.is_argument:
            inside[value.chain, value.var] = value, end
    found = []
    for value, end in inside.values():
        prefix = value.words[:end]
        users = [user for user in _users(program, value, values) if user is None or user[:end] != prefix]
        if users:
            turns = _turns(tokens, _fit(tokens, value.words[:end]) or [], value)
            if turns is not None:
                found.append(Chosen("", value, turns))
    outermost = min([len(each.value.chain) for each in found], default=0)  # a call also returns what its program does
    return [each for each in found if len(each.value.chain) == outermost]


def _end(tokens: Sequence[str], words: Sequence[str]) -> int | None:
    """Return how many words the path takes, if it fits the first ones of `words`."""
    for end in range(1, len(words) + 1):
        if _fit(tokens, words[:end]) is not None:
            return end
    return None


def _users(program: Program, value: Value, values: Values) -> Iterator[tuple[str, ...] | None]:
    """Yield the words around each operation that uses a value; None for a result of its program."""
    for place, number in value.chain:
        program = program.equations[place].regions[number].program
    words: dict[Atom, tuple[str, ...]] = {each.var: each.words for each in values if each.chain == value.chain}
    for equation in program.equations:
        if value.var in equation.inputs:
            first = next((words[var] for var in equation.outputs if var in words), ())
            yield first
    if value.var in program.outputs:
        yield None


def _nearest(path: str, values: Values) -> str:
    known = [*dict.fromkeys(value.path for value in values if value.is_named)]
    by_last: dict[str, list[str]] = {}
    for name in known:
        by_last.setdefault(name.partition("#")[0].rpartition(".")[2], []).append(name)
    last = path.partition("#")[0].rpartition(".")[2]
    near = [*difflib.get_close_matches(path, by_last.get(last, ()), 3, 0.0), *difflib.get_close_matches(path, known, 3)]
    near += [name for word in difflib.get_close_matches(last, [*by_last], 2) for name in by_last[word][:2]]
    if near:
        return f"Did you mean {', '.join(map(repr, [*dict.fromkeys(near)][:3]))}?"
    if not known:
        return "No line in it gives a value a name: write x = fxgrad.tag(x, \"name\")"
    more = f" and {len(known) - 12} more" if len(known) > 12 else ""
    return f"It has {', '.join(known[:12])}{more}"


def _hidden(program: Program) -> str:
    """Return a sentence on the first operation that has no names: jax's own, or code without a source; or ""."""
    opaque = [primitives.get("jax_call"), primitives.get("jax_effect")]
    for each in inner_first(program):
        for equation in each.equations:
            if equation.source is not None and not file_text(equation.source.filename):
                return (f". The source of {file_name(equation.source.filename)} cannot be read, so that its lines give "
                        'no names: write x = fxgrad.tag(x, "name")')
            if equation.primitive in opaque:
                at = "" if equation.source is None else f" at {equation.source.place}"
                return f". {equation.params['call']}{at} is computed by XLA alone: return what is inside from there"
    return ""
