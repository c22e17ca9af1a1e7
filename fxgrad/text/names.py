"""Names for the variables of a program: from its signature, from the user's assignments, and letters for the rest."""

from __future__ import annotations

import functools
import itertools
import json
import keyword
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fxgrad.extend import (
    CALL_NAMES,
    MERGED_VARIABLES,
    PRIMAL,
    RETURNED,
    TAGS,
    TANGENT,
    TRANSPOSED,
    Atom,
    CallNames,
    Equation,
    Program,
    ProgramAttribute,
    Provenance,
    Source,
    Variable,
    require_program,
)
from fxgrad.text.sources import AssignedNames, Places, Sources, Span, Targets, name_at

STRING = r'"(?:[^"\\\n]|\\.)*"'
PATH = rf"[^\W\d]\w*(?:\.[^\W\d]\w*|\[(?:-?\d+|{STRING}|'(?:[^'\\\n]|\\.)*')\])*"
_AXIS = rf"(?:[^\W\d]\w*|{STRING})"
TYPE = (r"(?:bool|bf16|f[48]_e\w+|u?int[24]|[iuf]\d+|c\d+|key<fry>)\*?"
        r"\[[\w,\s+*^()-]*\]"  # sizes are numbers, or arithmetic of names
        rf"(?:\{{{_AXIS}(?:,{_AXIS})*\}})?")  # with the mesh axes that the value varies over
RESERVED = frozenset(["program", "captured", "return", "where",
                      "True", "False", "None", "nan", "inf", "complex"])
"""Words of the text form that variables cannot be named without quotes."""

_CALLS_OF_FUNCTIONS = frozenset(["all", "any", "dict", "filter", "list", "map", "max", "min", "next", "set", "sorted",
                                 "sum", "tuple"])
"""Functions of Python that call others, whose results are not theirs."""

_plain = re.compile(PATH)
_identifier = re.compile(r"[^\W\d]\w*")
_type = re.compile(TYPE)
_axis = re.compile(_AXIS)


def axis_names(text: str) -> list[str]:
    """Return the names of mesh axes after a type, between the braces.

    >>> axis_names('data,"my axis"')
    ['data', 'my axis']
    """
    return [json.loads(name) if name.startswith('"') else name for name in _axis.findall(text)]


def is_identifier(text: str) -> bool:
    """Return whether a text is one word in Python and in the grammar: Python accepts `A·`, regular expressions `²`."""
    return text.isidentifier() and _identifier.fullmatch(text) is not None


def quoted_name(name: str) -> str:
    """Return a name as written in the text: in backquotes unless it consists of identifiers, dots and indices."""
    if _plain.fullmatch(name) and name not in RESERVED and not _type.fullmatch(name):
        return name
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`").replace("\n", "\\n") + "`"


def unquoted_name(text: str) -> str:
    """Return the name that `quoted_name` wrote in backquotes as `text`."""
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text[1:-1])


class UniqueNames:
    """A source of unique names: `h`, then `h_1`, `h_2`."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self.taken = {*RESERVED, *taken}
        self._next: dict[str, int] = {}

    def __call__(self, wanted: str) -> str:
        name = wanted
        number = self._next.get(wanted, 1)
        while name in self.taken:
            name = f"{wanted}_{number}"
            number += 1
        self._next[wanted] = number
        self.taken.add(name)
        return name

    def letters(self) -> Iterator[str]:
        """Yield a, b, ..., z, aa, ab, ..., except taken names and Python's keywords."""
        for length in itertools.count(1):
            for letters in itertools.product(string.ascii_lowercase, repeat=length):
                name = "".join(letters)
                if name not in self.taken and not keyword.iskeyword(name):
                    self.taken.add(name)
                    yield name


NAMES: ProgramAttribute[dict[Variable, str]] = ProgramAttribute("names")
"""The names of variables of a program that was parsed."""


def variable_names(program: Program, sources: Sources | None = None) -> dict[Variable, str]:
    """Return a name for every variable of `program`, as its text has it: the user's names, and letters for the rest.

    `sources`, if given, keeps the source files that it reads, for several programs.
    """
    names = own_names(require_program("variable_names", program), sources or Sources())
    letters = UniqueNames([*names.values()]).letters()
    inputs = [*program.inputs[program.captured:], *program.inputs[:program.captured]]  # in the order of the text
    for var in itertools.chain(inputs, *(equation.outputs for equation in program.equations)):
        if var not in names:
            names[var] = next(letters)
    return names


def own_names(program: Program, sources: Sources) -> dict[Variable, str]:
    """Return the names of variables: from parsed text, the signature, assignments, and their provenance.

    Names are unique: repeated ones are numbered.
    """
    names: dict[Variable, str] = dict(NAMES.of(program) or {})
    unique = UniqueNames([*names.values()])
    if program.signature is not None:
        for var, name in zip(program.inputs[program.captured:], program.signature.input_names, strict=False):
            if var not in names:
                # An argument may be named like a word of the grammar: it is quoted then.
                names[var] = unique(name) if name in unique.taken and name not in RESERVED else name
                unique.taken.add(names[var])
    wanted = wanted_names(program, sources)
    called = CALL_NAMES.of(program)
    if called is not None and called.is_library:  # outside of the definition these names mean nothing
        own = {var: Name(text, var) for var, text in zip(program.inputs, called.input_names, strict=False)}
        wanted = {**own, **wanted}
    variables = [[var] for var in program.inputs] + [equation.outputs for equation in program.equations]
    for together in variables:
        found = [(var, wanted[var].text) for var in together
                 if var in wanted and var not in names and not wanted[var].prefix]
        roots = {name.partition("[")[0] for _, name in found}
        if len(found) > 1 and len(roots) == 1:  # `q[0]` and `q[1]`, counted together
            root, = roots
            other = unique(root)
            found = [(var, other + name[len(root):]) for var, name in found]
        for var, name in found:
            names[var] = unique(name)
    shown = {wanted[var].root: names[var] for var in reversed(names) if var in wanted and not wanted[var].prefix}
    for var in itertools.chain(*variables):  # the cotangent of `h_1` is `d_h_1`
        if var in wanted and var not in names:
            prefix, base = wanted[var].prefix, wanted[var].base
            names[var] = unique(prefix + shown.get(wanted[var].root, base))
    return names


def function_label(program: Program) -> str:
    """Return the user's name of the function of a program, or of the one it was derived from; "" if unknown."""
    called = called_function(program)
    return "" if called is None or called.is_library or called.name == "function" else called.name


def called_function(program: Program) -> CallNames | None:
    """Return the names of the function of a program, or of the one it was derived from; None if unknown."""
    called = CALL_NAMES.of(program)
    if called is not None:
        return called
    if program.base is not None:
        return called_function(program.base)
    origins = (origin for var in program.inputs for origin in getattr(var, "origins", ()))
    first = next(origins, None)
    return None if first is None else called_function(first.program)


class Name(NamedTuple):
    """The wanted name of a variable: `base`, after `d_` for a cotangent and `t_` for a tangent.

    `root` is the variable that has the name without a prefix. `is_shared` marks a name of several equal variables of
    the user's, or of a variable captured from the code around: a cotangent here is then only part of the cotangent of
    that name. `is_of_region` marks the result of a loop or a branch that is named after a value inside, `is_of_input` a
    value that is an input of a program inside, as a batch computes it there.
    """

    base: str
    root: Variable
    prefix: str = ""
    is_shared: bool = False
    is_of_region: bool = False
    is_of_input: bool = False

    @property
    def text(self) -> str:
        """The whole name."""
        return self.prefix + self.base


def wanted_names(program: Program, sources: Sources) -> dict[Variable, Name]:
    """Return the known wanted names of variables; several may have the same name."""
    known = sources.names.get(id(program))
    if known is not None:
        return known
    names: dict[Variable, Name] = {}
    sources.names[id(program)] = names
    names |= {var: Name(text, var) for var, text in {**tags_of(program), **(NAMES.of(program) or {})}.items()}
    if program.signature is not None:
        for var, text in zip(program.inputs[program.captured:], program.signature.input_names, strict=False):
            names.setdefault(var, Name(text, var))
    called = CALL_NAMES.of(program)
    if called is not None and not called.is_library:
        for var, text in zip(program.inputs[program.captured:], called.input_names, strict=False):
            if text:
                inside = text if called.code is None else sources.name_of_part(called.code, text)
                names.setdefault(var, Name(inside, var))
    if program.base is not None:
        merged = MERGED_VARIABLES.of(program) or ()
        for var, name in wanted_names(program.base, sources).items():
            names.setdefault(var, name._replace(is_shared=True) if var in merged else name)
    else:
        captured = {*program.inputs[:program.captured]}
        for var, text in assigned_names(program, sources, {var: name.text for var, name in names.items()}):
            names.setdefault(var, Name(text, var, is_shared=var in captured))
    for var in program.inputs:
        _name_by_origins(var, getattr(var, "origins", ()), names, sources)
    returned = {*program.outputs}
    for equation in program.equations:
        source = equation.source
        for number, var in enumerate(equation.outputs):
            origins = source.origins[number] if source is not None and source.origins else getattr(var, "origins", ())
            if var in returned:  # results are named after the argument that they correspond to, if possible
                origins = sorted(origins, key=lambda origin: origin.var not in origin.program.inputs)
            _name_by_origins(var, origins, names, sources)
    for equation in program.equations:
        if equation.primitive.regions is not None:
            _name_by_regions(equation, names, sources)
    return names


def tags_of(program: Program) -> dict[Variable, str]:
    """Return the names that the user's code gives to variables by `fxgrad.tag`."""
    tags: dict[Variable, str] = {}
    recorded: Program | None = program
    while recorded is not None:
        tags = {**(TAGS.of(recorded) or {}), **tags}
        recorded = recorded.base
    return tags


def _name_by_regions(equation: Equation, names: dict[Variable, Name], sources: Sources) -> None:
    """Name unnamed results of a loop or a branch after the value that its last step, or every branch, returns."""
    if equation.source is None or equation.source.part == "backward":
        return
    found: dict[int, set[str]] = {}
    for region in equation.regions:
        if region.role in ("body", "branch"):
            inside = wanted_names(region.program, sources)
            for atom, link in zip(region.program.outputs, region.outputs, strict=True):
                name = inside.get(atom) if isinstance(atom, Variable) and link.how in ("same", "carry") else None
                found.setdefault(link.place, set()).add("" if name is None or name.prefix else name.base)
    for place, called in found.items():
        if 0 <= place < len(equation.outputs) and len(called) == 1 and "" not in called:
            var = equation.outputs[place]
            names.setdefault(var, Name(next(iter(called)), var, is_of_region=True))


def _name_by_origins(var: Variable, origins: Sequence[Provenance], names: dict[Variable, Name],
                     sources: Sources) -> None:
    """Name `var`, if it has no name yet, by its first provenance. A primal value is never named as a derivative."""
    if var in names:
        return
    is_primal = any(origin.role == PRIMAL and not _is_residual(origin) for origin in origins)
    for origin in origins:
        if is_primal and origin.role != PRIMAL:
            continue
        name = wanted_names(origin.program, sources).get(origin.var)
        if name is not None and (not name.is_shared or origin.role in (PRIMAL, TANGENT)):
            named = _name_for_role(origin.role, name)
            equal = any(other.program is origin.program and other.role == origin.role and other.var is not origin.var
                        for other in origins)
            names[var] = named._replace(is_shared=named.is_shared or equal, is_of_input=origin.role == PRIMAL and (
                named.is_of_input or origin.var in origin.program.inputs))
            return


def _is_residual(origin: Provenance) -> bool:
    """Return whether a value is only an input of a tangent program, which belongs to no function of the user's."""
    program, var = origin.program, origin.var
    return program.signature is None and program.base is None and CALL_NAMES.of(program) is None and \
        not getattr(var, "origins", ()) and any(each is var for each in program.inputs)


def _name_for_role(role: str, name: Name) -> Name:
    if role == PRIMAL:
        return name
    if role == TANGENT:
        return name._replace(prefix="t_" + name.prefix)
    is_of_tangent = role == TRANSPOSED and name.prefix.startswith("t_")
    return name._replace(prefix="d_" + name.prefix[2 * is_of_tangent:], is_shared=False)


def assigned_names(program: Program, sources: Sources, inputs: Mapping[Variable, str],
                   ) -> Iterator[tuple[Variable, str]]:
    """Yield the variables that the user's own code computed, and the names that it assigns them to.

    `inputs` has the names of inputs.
    """
    results = [*_names_of_results(program, sources)]
    yield from _names_of_captured(program, sources, {**dict(results), **inputs})
    yield from results


def _names_of_captured(program: Program, sources: Sources, others: Mapping[Variable, str],
                       ) -> Iterator[tuple[Variable, str]]:
    """Yield captured values with the names of the expressions that use them, if these are unambiguous.

    If an operation uses two of them, the free name in its expression may belong to either. It may be one of `others`,
    since the variables of a converted function are free in its branches and loops.
    """
    captured = {*program.inputs[:program.captured]}
    for equation in program.equations if captured else ():
        used = {atom for atom in equation.inputs if isinstance(atom, Variable) and atom in captured}
        if len(used) == 1 and equation.source is not None and equation.source.part is None:
            name = sources.free_operand(equation.source)
            if name is not None and all(others.get(atom) != name for atom in equation.inputs
                                        if isinstance(atom, Variable)):
                yield used.pop(), name


def _names_of_results(program: Program, sources: Sources) -> Iterator[tuple[Variable, str]]:
    """Yield variables with assigned names, for each run of the instruction of an assigned expression."""
    equations = [equation for equation in program.equations
                 if equation.source is not None and equation.source.part is None and _is_computed_here(equation.source)]
    runs = _runs(equations)
    used = _used_elsewhere(program, runs)
    for number, run in enumerate(runs):
        source = run[0].source
        assigned = None if source is None else sources.targets(source)
        if assigned is not None and not _goes_on(runs, number, sources):
            yield from _named_results(run, assigned, used)


def _is_computed_here(source: Source) -> bool:
    """Return whether a line computes its values itself: they may be arguments of walked programs, but not results."""
    return all(origin.var in origin.program.inputs for known in source.origins for origin in known)


def returned_names(program: Program, sources: Sources) -> Iterator[tuple[Variable, str, Source]]:
    """Yield the variables that a function returns to a line of the user's that assigns them, the name, and that line.

    `mixed = attention(x)` names what the last line of `attention` computes, and `loss, grads = value_and_grad(f)(w)`
    what the transformed function returns.
    """
    recorded: Program | None = program
    while recorded is not None:
        for source, paths in RETURNED.of(recorded) or ():
            for var, path in paths.items():
                yield from _name_where_assigned(var, path, source, sources)
        recorded = recorded.base

    runs = _runs(program.equations)
    used = _used_elsewhere(program, runs)
    for number, run in enumerate(runs):
        line = run[-1].source
        found = [var for equation in run for var in equation.outputs if var in used][-1:]
        if line is not None and found and not _goes_on(runs, number, sources):
            yield from _name_where_assigned(found[0], None, line, sources,
                                            functools.partial(_goes_on, runs, number, sources))


def _runs(equations: Sequence[Equation]) -> list[list[Equation]]:
    """Return the equations in runs, each recorded by one instruction of the user's code.

    They follow each other, but for those of code that the instruction calls: `sum(np.sin(x) for x in xs)` adds to what
    it has after each sine.
    """
    runs: list[list[Equation]] = []
    running: dict[tuple[int, int], list[Equation]] = {}  # by instruction, the runs that may go on
    for equation in equations:
        source = equation.source
        if source is None:
            running.clear()
            runs.append([equation])
            continue
        key = (id(source.code), source.instruction)
        around = {(id(code), instruction) for code, instruction in source.callers} if running else ()
        running = {each: run for each, run in running.items() if each == key or each in around}
        run = running.get(key)
        if run is None or (runs[-1] is not run and run[-1].outputs and run[-1].outputs[0] not in equation.inputs):
            run = running[key] = []
            runs.append(run)
        run.append(equation)
    return runs


def _goes_on(runs: Sequence[list[Equation]], number: int, sources: Sources, line: Source | None = None) -> bool:
    """Return whether the value of a run is only the operand of another in a chain of calls: of `(x * 2).astype(t)`.

    `line` is the expression that has the value, by default that of the run.
    """
    source = runs[number][-1].source if line is None else line
    whole = None if source is None else sources.chain(source)
    if source is None or whole is None:
        return False
    for run in runs[number + 1:]:
        later = run[0].source
        if later is None:
            continue
        if later.code is not source.code:
            calls = [source._replace(instruction=instruction) for code, instruction in later.callers
                     if code is source.code]
            if not calls:
                return False  # the function has returned
            if any(sources.chain(call) == whole for call in calls):
                return True  # a function of the user's that is called like one that may return its operand
            continue
        if later.instruction == source.instruction:
            return False  # once more, in a loop
        if sources.chain(later) == whole:
            return True
        span = sources.span(later)
        if not _is_inside(span, whole):
            return False
    return False


def _is_inside(span: Span, whole: Span) -> bool:
    """Return whether an expression is part of another one."""
    return None not in (*span, *whole) and (whole[0], whole[2]) <= (span[0], span[2]) and (
        span[1], span[3]) <= (whole[1], whole[3])


def _name_where_assigned(var: Variable, path: str | None, source: Source, sources: Sources,
                         goes_on: Callable[[Source], bool] | None = None) -> Iterator[tuple[Variable, str, Source]]:
    """Yield the name of a value where a line assigns it: `source`, if it has the value at `path`, or one around it.

    `goes_on` tells whether an expression in a chain of calls is only the operand of another; it may be unknown.
    """
    around = [source._replace(code=code, instruction=instruction) for code, instruction in source.callers]
    for line in around if path is None else [source, *around]:
        if path is None or line is not source:
            inner = sources.returned_place(source)
            if inner is None:
                return
            path = inner + (path or "")
        assigned, source = sources.targets(line), line
        if sources.chain(line) not in (None, sources.span(line)) and (goes_on is None or goes_on(line)):
            return
        if assigned is not None and assigned.is_call and assigned.operation in _CALLS_OF_FUNCTIONS:
            return
        if assigned is not None:
            name = name_at(assigned.places, path)
            if name is None and len(assigned.names) == 1 and assigned.names[0] is not None:
                name = assigned.names[0] + path
            if name is not None:
                yield var, name, line
            return


def _used_elsewhere(program: Program, runs: list[list[Equation]]) -> set[Variable]:
    """Return the variables that are outputs, or that another run than their own uses."""
    made: dict[Atom, int] = {}
    used = {atom for atom in program.outputs if isinstance(atom, Variable)}
    in_runs = {id(equation) for run in runs for equation in run}
    for equation in program.equations:
        if id(equation) not in in_runs:
            used.update([atom for atom in equation.inputs if isinstance(atom, Variable)])
    for number, run in enumerate(runs):
        for equation in run:
            used.update(atom for atom in equation.inputs if isinstance(atom, Variable) and made.get(atom) != number)
            made.update(dict.fromkeys(equation.outputs, number))
    return used


def _named_results(run: list[Equation], assigned: AssignedNames, used: set[Variable]) -> Iterator[tuple[Variable, str]]:
    """Yield the variables of a run that are assigned to names, and the names.

    A library function records several equations at one instruction. The value of the expression is given by a note of
    the operation; or else it is the result of an operation of that name, or the last result that later code uses.
    """
    noted = [equation for equation in run if equation.source is not None and equation.source.results]
    if noted:
        for equation in noted:
            yield from _at_places(equation, assigned.places)
        return
    found = [equation for equation in run if not used.isdisjoint(equation.outputs)] or run[-1:]
    alike = [equation for equation in run if equation.primitive.name == assigned.operation
             or equation.params.get("name") == assigned.operation]
    if len(assigned.names) > 1:
        yield from _match_targets(found, assigned.names)
    elif len(alike) == len(run) or not (assigned.is_call or len({equation.primitive for equation in alike or run}) > 1):
        for equation in alike or run:  # the rounds of a loop
            yield from _all_outputs(equation, assigned.names[0])
    else:
        last = ([equation for equation in found if equation in alike] or found)[-1]
        needed = [var for var in last.outputs if var in used]
        if len(needed) == 1 and assigned.is_call and not alike and assigned.names[0] is not None:
            yield needed[0], assigned.names[0]  # `argsort` gives one of the two results of `sort`
        else:
            yield from _all_outputs(last, assigned.names[0])


def _at_places(equation: Equation, places: Places) -> Iterator[tuple[Variable, str]]:
    """Yield outputs whose positions in the value of the expression are known."""
    assert equation.source is not None
    for var, place in zip(equation.outputs, equation.source.results, strict=True):
        name = None if place is None else name_at(places, place)
        if name is not None:
            yield var, name


def _match_targets(found: Sequence[Equation], targets: Targets) -> Iterator[tuple[Variable, str]]:
    """Yield several targets: the outputs of one equation, or of one equation each."""
    made = [equation for equation in found if len(equation.outputs) == len(targets) and not equation.regions]
    if made:
        outputs = made[-1].outputs
    elif len(found) == len(targets) and len({equation.primitive for equation in found}) == 1:
        outputs = [equation.outputs[0] for equation in found if len(equation.outputs) == 1]
    else:
        return
    yield from ((var, name) for var, name in zip(outputs, targets, strict=False) if name is not None)


def _all_outputs(equation: Equation, target: str | None) -> Iterator[tuple[Variable, str]]:
    """Yield one target: the output, or each output of a single operation, whose positions in a loop are unknown."""
    outputs = equation.outputs
    if target is not None and len(outputs) == 1:
        yield outputs[0], target
    elif target is not None and not equation.regions:
        yield from ((var, f"{target}[{number}]") for number, var in enumerate(outputs))
