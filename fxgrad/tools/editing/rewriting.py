"""`replace_pattern`: replace every match of a pattern in a program."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fxgrad.errors import ArgumentError, FxgradError
from fxgrad.extend import (
    Atom,
    Aval,
    Program,
    argument_aval,
    at_user_line,
    function_name,
    hide_frames,
    inner_first,
    replace_programs,
    require_program,
    simplify,
)
from fxgrad.text.equality import equal
from fxgrad.tools.editing.editor import Editor, EquationReplacement
from fxgrad.tools.editing.patterns import Match, MatchSites
from fxgrad.tools.editing.pieces import TracedPiece, trace_piece

MOST = 2000
"""So many combinations of types are tried."""


@hide_frames
def replace_pattern(program: Program, pattern: Callable[..., Any], replacement: Callable[..., Any], *,
            types: Sequence[Any] | None = None, where: Callable[[Match], bool] | None = None, shared: bool = False,
            inside: bool = False) -> Program:
    """Return the program with `replacement` wherever it computes `pattern`.

    Both are functions of the same arguments. `pattern` is traced for the types that occur in the program. It matches
    the same operations with the same parameters on the same structure of operands; operands of commutative operations
    match in either order. Matches do not overlap. Names of values are kept, dead equations are left out, and the result
    is checked. If nothing matches, `program` itself is returned.

    - `types`: arrays or `ShapeDtypeStruct`s of the types of the arguments, to match these types only.
    - `where`: a predicate that selects matches by `match.equations`, `match.operands` and `match.outputs`.
    - `shared`: by default a match with an inner value that is used elsewhere is left, since nothing would be saved.
      If this is True it is rewritten, and that value is still computed.
    - `inside`: whether to rewrite loops, branches and calls as well.

    Raises `ArgumentError` for a pattern that computes nothing or ignores an argument, for results of other types, and
    if the program has too many types to try.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: np.log(np.exp(x) + np.exp(2.0 * x)))(1.0)
    >>> stable = fxgrad.replace_pattern(program, lambda a, b: np.log(np.exp(a) + np.exp(b)), np.logaddexp)
    >>> [equation.primitive.name for equation in stable.equations]
    ['mul', 'logaddexp']
    >>> stable(1000.0)
    np.float64(2000.0)
    """
    rewriting = Rewriting(pattern, replacement, types, where, shared, inside)
    result = rewriting.of(require_program("replace_pattern", program))
    rewriting.check()
    return result


class Rewriting:
    """A pattern, its replacement, and the matches to be rewritten."""

    def __init__(self, pattern: Callable[..., Any], replacement: Callable[..., Any], types: Sequence[Any] | None = None,
                 where: Callable[[Match], bool] | None = None, shared: bool = False, inside: bool = False) -> None:
        self._pattern, self._replacement = pattern, replacement
        self._where, self._shared, self._inside = where, shared, inside
        self._types = None if types is None else [
            argument_aval(value, "replace_pattern",
                          partial("types[{}]".format, number)) for number, value in enumerate(types)]
        self._replacements: dict[tuple[Aval, ...], TracedPiece] = {}
        self._traced: dict[tuple[Aval, ...], list[Program]] = {}
        self._failure = ""
        self._done: dict[Program, Program] = {}

    def of(self, program: Program) -> Program:
        """Return the program rewritten, together with its inner programs if `inside` is set."""
        for inner in inner_first(program)[:-1] if self._inside else ():  # not by recursion: calls may nest deeply
            if inner not in self._done:
                self._done[inner] = self._one(inner, is_held=True)
        return self._one(program)

    def _one(self, program: Program, is_held: bool = False) -> Program:
        """Return one program rewritten, with its inner programs replaced by the rewritten ones."""
        before = program
        if self._inside:
            program = self._with_held(program)
        places = MatchSites(program)
        chosen = self._choose_matches(places)
        if not chosen:
            return before if program is before else program.check()
        editor = Editor(program, is_held=is_held)
        editor.put([self._instead(editor, match) for match in chosen])
        return editor.program()

    def check(self) -> None:
        """Raise `ArgumentError` if the pattern could not be used at any of the types that were tried."""
        if self._failure and not any(self._traced.values()):
            raise ArgumentError(at_user_line(f"replace_pattern: the pattern {function_name(self._pattern)} "
                                             f"{self._failure}"))

    def _with_held(self, program: Program) -> Program:
        equations, changed = [], False
        for equation in program.equations:
            regions = equation.regions
            inner = [self._done[region.program] for region in regions]
            if any(new is not region.program for new, region in zip(inner, regions, strict=True)):
                equations.append(equation.replace(equation.inputs, replace_programs(equation.params, regions, inner)))
                changed = True
            else:
                equations.append(equation)
        return program.replace(equations=equations) if changed else program

    def _choose_matches(self, places: MatchSites) -> list[Match]:
        """Return the matches to be rewritten, such that none removes the result of another."""
        found: dict[tuple[int, ...], Match] = {}
        for pattern in self._patterns(places.program):
            for match in places.matches(pattern):
                numbers = tuple(map(places.number, match.equations))
                if numbers not in found or match.exchanged < found[numbers].exchanged:
                    found[numbers] = match  # of the two orders of commutative operands the written one is preferred
        wanted = [match for _, match in sorted(found.items(), key=lambda item: item[0][-1])
                  if _is_possible(places, match) and (self._where is None or self._where(match))]
        while True:
            chosen = _disjoint_matches(wanted)
            covered = {id(equation) for match in chosen for equation in match.equations}
            needed = {id(match) for match in chosen if not self._shared and _is_needed(places, match, covered)}
            if not needed:
                return chosen
            wanted = [match for match in wanted if id(match) not in needed]

    def _instead(self, editor: Editor, match: Match) -> EquationReplacement:
        avals = tuple(atom.aval for atom in match.operands)
        made = self._replacements.get(avals)
        if made is None:
            made = self._replacements[avals] = trace_piece(
                "replace_pattern", self._replacement, avals, [var.aval for var in match.outputs], "the pattern")
        captured = [editor.constant(value) for value in made.captured]
        # Equations that only feed the results are removed at the end, if they are dead.
        gone = [equation for equation in match.equations if not {*match.outputs}.isdisjoint(equation.outputs)]
        return EquationReplacement(gone, made.program, [*captured, *match.operands], match.outputs)

    # --- the pattern ----------------------------------------------------------------------------------------

    def _patterns(self, program: Program) -> Iterator[Program]:
        """Yield the pattern for each combination of types, recorded and simplified."""
        combinations = [tuple(self._types)] if self._types is not None else self._combinations(program)
        found: list[Program] = []
        occurring = {equation.primitive for equation in program.equations}
        for avals in combinations:
            if avals not in self._traced:
                self._traced[avals] = self._trace(avals)
            found += self._traced[avals]
        return (each for each in found if occurring.issuperset(one.primitive for one in each.equations))

    def _combinations(self, program: Program) -> list[tuple[Aval, ...]]:
        count = required_arguments(self._pattern)
        atoms: list[Atom] = [*program.inputs]
        for equation in program.equations:
            atoms += [*equation.inputs, *equation.outputs]
        avals = [*dict.fromkeys(atom.aval for atom in atoms)]
        if len(avals) ** count > MOST:
            raise ArgumentError(at_user_line(
                f"replace_pattern: the program has values of {len(avals)} types, and the pattern {count} arguments: "
                "too many combinations to try. Say which types are meant: rewrite(..., types=[x, y]), of arrays or "
                "ShapeDtypeStructs"))
        return [*itertools.product(avals, repeat=count)]

    def _trace(self, avals: tuple[Aval, ...]) -> list[Program]:
        """Return the pattern at these types in a list; an empty list if it cannot be applied to them."""
        try:
            made = trace_piece("replace_pattern", self._pattern, avals)
        except (FxgradError, TypeError, ValueError) as error:
            self._failure = f"fails for all types of the program; last: {str(error).splitlines()[0]}"
            return []
        program = made.program
        fault = "closes over an array. Make it an argument" if made.captured else self._fault(program)
        if fault:
            self._failure = fault
            return []
        simple = simplify(program)
        return [program] if equal(program, simple) or self._fault(simple) else [program, simple]

    def _fault(self, program: Program) -> str:
        """Return why a program is no valid pattern; "" if it is one."""
        made = {var for equation in program.equations for var in equation.outputs}
        used = {atom for equation in program.equations for atom in equation.inputs}
        if not program.outputs or not all(atom in made for atom in program.outputs):
            return "returns what it does not compute; results of operations on its arguments are needed"
        unused = [str(number) for number, var in enumerate(program.inputs) if var not in used]
        return f"does not use its argument {unused[0]}, which could then be anything. Leave it out" if unused else ""


def _disjoint_matches(matches: Sequence[Match]) -> list[Match]:
    """Return those of `matches` that can be replaced together; earlier ones are preferred."""
    made: set[int] = set()
    replaced_by: set[int] = set()
    chosen = []
    for match in matches:
        makers = {id(equation) for equation in match.equations if not {*match.outputs}.isdisjoint(equation.outputs)}
        own = {id(equation) for equation in match.equations}
        if made.isdisjoint(own) and replaced_by.isdisjoint(makers):
            made |= makers
            replaced_by |= own
            chosen.append(match)
    return chosen


def _is_needed(places: MatchSites, match: Match, covered: set[int]) -> bool:
    """Return whether an inner value of a match is used outside the equations that are replaced."""
    inner = [var for equation in match.equations for var in equation.outputs if var not in match.outputs]
    return any(var in places.program.outputs or any(id(user) not in covered for user in places.uses.get(var, ()))
               for var in inner)


def _is_possible(places: MatchSites, match: Match) -> bool:
    """Return whether every argument of a match is computed before the first use of its results."""
    own = {id(equation) for equation in match.equations}
    last = max(map(places.made_at, match.operands), default=-1)
    return all(places.number(user) > last for var in match.outputs for user in places.uses.get(var, ())
               if id(user) not in own)


def required_arguments(function: Callable[..., Any]) -> int:
    """Return the least number of arguments that a function takes."""
    if isinstance(function, np.ufunc):
        return function.nin
    parameters = inspect.signature(function).parameters.values()
    return sum(parameter.default is parameter.empty and parameter.kind in (
        parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters)
