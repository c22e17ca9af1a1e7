"""Pickling of programs: everything is kept, with names, containers and lines, except programs derived from it.

Programs are stored as a list, each after those that it holds, so that deep nesting needs no recursion. Of the code that
recorded them only the data for names and lines is kept, no instructions. Rules of custom functions are pickled by name;
those that have none, as those of functions within functions, as the programs that they record, like in files.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fxgrad.errors import UnsupportedError
from fxgrad.extend import (
    CALL_NAMES,
    Atom,
    Aval,
    CallNames,
    Equation,
    FoldedConstant,
    Literal,
    Primitive,
    Program,
    Signature,
    Source,
    Tracer,
    Variable,
    inner_first,
)
from fxgrad.shipping.rules import RecordedRule, programs_of, record_rule, rule_key, user_rule
from fxgrad.text.compact_writer import formulas_of
from fxgrad.text.differentiated import FORMULAS, Formula
from fxgrad.text.literals import WRITTEN, literal_with_source
from fxgrad.text.margin import Margin
from fxgrad.text.names import NAMES, function_label, own_names
from fxgrad.text.sources import Sources


def reduce_program(program: Program) -> tuple[Callable[..., Program], tuple[Any, ...]]:
    """Return the function that `pickle` calls, and its arguments.

    >>> import pickle, fxgrad
    >>> def twice(x):
    ...     doubled = x * 2.0
    ...     return {"result": doubled}
    >>> again = pickle.loads(pickle.dumps(fxgrad.make_program(twice)(1.0)))
    >>> again(3.0)
    {'result': np.float64(6.0)}

    Raises `UnsupportedError` if a constant is a traced array.
    """
    rules = _RulesWithoutNames(program)
    numbers = {id(inner): _ProgramNumber(number) for number, inner in enumerate(rules.programs)}
    sources, codes = Sources(), dict[int, RecordedCode]()
    said = formulas_of(program)
    pickled = [_pickle_program(inner, numbers, rules, sources, codes)._replace(formulas=said.get(id(inner), []))
               for inner in rules.programs]
    if not rules.recorded:
        return _make_programs, (pickled,)
    return _make_programs, (pickled, [_PickledRule(type(rule), {
        name: value for name, value in vars(rule).items() if not isinstance(value, Program)}, {
        name: numbers[id(inner)].number for name, inner in programs_of(rule)}) for rule in rules.recorded])


class _RulesWithoutNames:
    """The rules of custom functions in a program that `pickle` finds by no name, recorded.

    `programs` are those of the rules, and those that `program` holds, each after those that it holds.
    """

    def __init__(self, program: Program) -> None:
        self.recorded: list[RecordedRule] = []
        self._numbers: dict[Any, int] = {}
        self._by_equation: dict[int, int] = {}
        self._programs: dict[int, Program] = {}
        self._visit(program)
        self.programs = [*self._programs.values()]

    def _visit(self, program: Program) -> None:
        for inner in inner_first(program):
            if id(inner) not in self._programs:
                for equation in inner.equations:
                    if _lacks_name(user_rule(equation)):
                        self._record(equation)
                self._programs[id(inner)] = inner

    def _record(self, equation: Equation) -> None:
        key = rule_key(equation)
        if key not in self._numbers:
            try:
                rule = record_rule(equation)
            except UnsupportedError:
                return  # it is left to pickle, or to a library that pickles functions by value
            self._numbers[key] = len(self.recorded)  # entered first, since rules may apply their own function
            self.recorded.append(rule)
            for _, each in programs_of(rule):
                self._visit(each)
        self._by_equation[id(equation)] = self._numbers[key]

    def params(self, equation: Equation) -> dict[str, Any]:
        """Return the parameters of an equation with the number of its rule in place of the rule."""
        number = self._by_equation.get(id(equation))
        if number is None:
            return equation.params
        found = {**equation.params, "rule": _RuleNumber(number)}
        return {**found, "structure": None} if "structure" in found else found  # which rules of Python code need


class _PicklerOfNames(pickle.Pickler):
    """A pickler that leaves out programs."""

    def persistent_id(self, value: Any) -> Any:
        return True if isinstance(value, Program) else None


def _lacks_name(rule: Any) -> bool:
    """Return whether a rule has functions that `pickle` cannot find again."""
    if rule is None:
        return False
    try:
        _PicklerOfNames(io.BytesIO()).dump(rule)
    except Exception:  # noqa: BLE001  (whatever pickle, or a class of the user's, raises)
        return True
    return False


class RecordedCode:
    """The parts of a code object that equations use: file, function names, and the position of each instruction."""

    def __init__(self, code: Any) -> None:
        self.co_filename, self.co_name, self.co_qualname = code.co_filename, code.co_name, code.co_qualname
        self.co_firstlineno, self.co_varnames = code.co_firstlineno, code.co_varnames
        self.co_cellvars, self.co_freevars = code.co_cellvars, code.co_freevars
        self._positions = [*code.co_positions()]

    def co_positions(self) -> Iterator[tuple[int | None, int | None, int | None, int | None]]:
        """Return, like a code object, first line, last line, first column and last column of each instruction."""
        return iter(self._positions)


class _ProgramNumber(NamedTuple):
    """A reference to a program of the list, by its number."""

    number: int


class _RuleNumber(NamedTuple):
    """A reference to a recorded rule, by its number."""

    number: int


class _PickledRule(NamedTuple):
    """A recorded rule: its class, its fields, and its programs by number."""

    kind: type[RecordedRule]
    fields: dict[str, Any]
    programs: dict[str, int]


class _PickledSource(NamedTuple):
    code: RecordedCode
    instruction: int
    part: str
    scope: str


class _PickledEquation(NamedTuple):
    primitive: Primitive
    inputs: list[int | Literal]
    params: dict[str, Any]
    outputs: list[Aval]
    source: _PickledSource | None


class _PickledProgram(NamedTuple):
    """One program; variables are numbered in the order in which they are bound."""

    inputs: list[Aval]
    equations: list[_PickledEquation]
    outputs: list[int | Literal]
    captured: int
    constants: list[Any]
    signature: Signature | None
    names: dict[int, str]
    called: str
    formulas: list[Formula]


def _pickle_program(program: Program, held: dict[int, _ProgramNumber], rules: _RulesWithoutNames, sources: Sources,
                    codes: dict[int, RecordedCode]) -> _PickledProgram:
    if any(isinstance(value, Tracer) for value in program.constants):
        raise UnsupportedError("pickle: a constant of the program is a traced array, which has no elements yet. Pickle "
                               "the program outside of the transformation that traces it")
    names, margin = own_names(program, sources), Margin(program, sources)
    variables = [*program.inputs, *(var for equation in program.equations for var in equation.outputs)]
    numbers = {var: number for number, var in enumerate(variables)}

    def atoms(values: Sequence[Atom]) -> list[int | Literal]:
        return [_strip_place(value, margin) if isinstance(value, Literal) else numbers[value] for value in values]

    def operands(equation: Equation) -> list[Atom]:
        return [literal_with_source(equation, place, sources) or atom for place, atom in enumerate(equation.inputs)]

    def place(source: Source | None) -> _PickledSource | None:
        if source is None:
            return None
        code = codes.get(id(source.code)) or RecordedCode(source.code)
        # The names are stored, since `part` shows that a derivative is not what the line assigns.
        return _PickledSource(codes.setdefault(id(source.code), code), source.instruction, source.part or "",
                              source.scope)

    equations = [_PickledEquation(equation.primitive, atoms(operands(equation)),
                                  {name: _replace_objects(value, lambda each: isinstance(each, Program),
                                                          lambda inner: held[id(inner)])
                                   for name, value in rules.params(equation).items()},
                                  [var.aval for var in equation.outputs], place(equation.source))
                 for equation in program.equations]
    return _PickledProgram(program.in_avals, equations, atoms(program.outputs), program.captured, program.constants,
                           program.signature, {numbers[var]: name for var, name in names.items() if var in numbers},
                           function_label(program), [])


def _strip_place(literal: Literal, margin: Margin) -> Literal:
    """Return the number with the name of the function that it comes from instead of the source."""
    made_of = getattr(literal, "made_of", None)
    if made_of is None or made_of.operation == WRITTEN:
        return literal
    result = Literal(literal.value, literal.aval)
    result.made_of = FoldedConstant(made_of.operation, tuple([_strip_place(each, margin) for each in made_of.operands]),
                            margin.function_called_at(made_of.source))
    return result


def _make_programs(programs: list[_PickledProgram], rules: Sequence[_PickledRule] = ()) -> Program:
    """Return the last of the programs."""
    recorded: list[RecordedRule] = []
    for rule in rules:
        recorded.append(object.__new__(rule.kind))
        vars(recorded[-1]).update(rule.fields)
    made: list[Program] = []
    for kept in programs:
        made.append(_unpickle_program(kept, made, recorded))
    for made_rule, given in zip(recorded, rules, strict=True):
        vars(made_rule).update({name: made[number] for name, number in given.programs.items()})
    return made[-1]


def _unpickle_program(kept: _PickledProgram, held: Sequence[Program], rules: Sequence[RecordedRule]) -> Program:
    variables = [Variable(aval) for aval in kept.inputs]
    inputs = [*variables]

    def atoms(values: Sequence[int | Literal]) -> list[Atom]:
        return [value if isinstance(value, Literal) else variables[value] for value in values]

    equations = []
    for equation in kept.equations:
        operands, outputs = atoms(equation.inputs), [Variable(aval) for aval in equation.outputs]
        params = {name: _replace_objects(value, lambda each: type(each) in (_ProgramNumber, _RuleNumber), lambda each: (
            held if type(each) is _ProgramNumber else rules)[each.number]) for name, value in equation.params.items()}
        source = None if equation.source is None else Source(**equation.source._asdict())
        equations.append(Equation(equation.primitive, operands, params, outputs, source))
        variables += outputs
    program = Program(inputs, equations, atoms(kept.outputs), kept.captured, kept.constants, kept.signature)
    NAMES.put(program, {variables[number]: name for number, name in kept.names.items()})
    if kept.called:
        CALL_NAMES.put(program, CallNames(kept.called, ()))
    FORMULAS.put(program, kept.formulas)
    return program


def _replace_objects(value: Any, wanted: Callable[[Any], bool], replacement: Callable[[Any], Any]) -> Any:
    """Return a parameter with objects that are `wanted` replaced, in tuples and lists too."""
    if wanted(value):
        return replacement(value)
    if not isinstance(value, tuple | list):
        return value
    items = [_replace_objects(item, wanted, replacement) for item in value]
    if all(one is other for one, other in zip(items, value, strict=True)):
        return value
    return value._make(items) if hasattr(value, "_make") else type(value)(items)
