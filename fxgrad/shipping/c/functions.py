"""One program as one function in C: its values, its statements in order, and its work space."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fxgrad.extend import Atom, Aval, Equation, Literal, MissingRule, Program, Variable, live_equations, primitives
from fxgrad.shipping.c.elements import elements
from fxgrad.shipping.c.held import write_regions
from fxgrad.shipping.c.memory import LiveArray, offsets
from fxgrad.shipping.c.statements import NOT_IN_C, statements
from fxgrad.shipping.c.values import (
    INDICES,
    CValue,
    SourceRefusal,
    array_value,
    broadcast_indices,
    c_type,
    expression_value,
    literal,
    loop_lines,
    strip_parentheses,
)
from fxgrad.shipping.c.views import views

if TYPE_CHECKING:
    from fxgrad.shipping.c.writer import CFile

_RANDOM = frozenset({primitives.gather, primitives.dynamic_slice})
"""Operations that may read an element more than once."""
DEEPEST = 6
"""Most nested operations of one expression."""


_word = re.compile(r"\w+")


class CStatement(NamedTuple):
    """Lines, the arrays that they read and write, and the comment before them."""

    lines: list[str]
    arrays: frozenset[str]
    comment: str = ""


class CFunction:
    """The C function of a program; `inputs` and `outputs` are the names of its parameters.

    `inputs` and `outputs` are the names of its parameters.
    """

    def __init__(self, file: CFile, program: Program, name: str, names: dict[Variable, str], is_main: bool) -> None:
        self.file, self.program, self.name, self.names = file, program, name, names
        self._values: dict[Variable, CValue] = {}
        self._statements: list[CStatement] = []
        self._arrays: dict[str, Aval] = {}
        self._variables: dict[str, Aval] = {}
        self._reading: set[str] = set()
        self._comment = ""
        self.made: CValue
        self.equation: Equation
        self.below = 0
        """The bytes of work space of the functions that it calls."""
        self._equations = live_equations(program)
        self._uses = Counter(atom for equation in self._equations for atom in equation.inputs
                             if isinstance(atom, Variable))
        self._uses.update({atom: 2 for atom in program.outputs if isinstance(atom, Variable)})
        for place, var in enumerate(program.inputs):
            constant = is_main and place < len(program.constants)
            c_type(var.aval)
            self._values[var] = (file.constant(names[var], var, program.constants[place]) if constant
                                 else array_value(var.aval, names[var], self._read, var=var))
        self.inputs = program.inputs[len(program.constants):] if is_main else program.inputs
        # A new name stands where a variable's name is taken.
        taken: set[str] = set()
        found = []
        for atom in self.program.outputs:
            name = self.names[atom] if isinstance(atom, Variable) and atom not in self.program.inputs else ""
            found.append(self.file.unique("out") if not name or name in taken else name)
            taken.add(found[-1])
        self.outputs = found
        self._targets = {atom: name for atom, name in reversed([*zip(program.outputs, self.outputs, strict=True)])
                         if isinstance(atom, Variable) and atom not in program.inputs}
        for equation in self._equations:
            self.equation = equation
            self._comment = file.comment(equation)
            self._write(equation)
        self._return()

    def _read(self, name: str) -> None:
        self._reading.add(name)

    # --- values ---------------------------------------------------------------------------------------------

    def value(self, atom: Atom) -> CValue:
        """Return the value of an atom."""
        if isinstance(atom, Literal):
            text = literal(atom.value, atom.dtype) if c_type(atom.aval) else ""
            return expression_value(atom.aval, lambda indices: text, 0, lambda place: text)
        return self._values[atom]

    def once(self, atom: Atom, size: int | None = None) -> CValue:
        """Return a value; stored first if it is a deep expression, or smaller than the result computed from it."""
        value = self.value(atom)
        if value.depth >= DEEPEST or (value.depth and size is not None and value.aval.size < size):
            return self.many(atom)
        return value

    def many(self, atom: Atom) -> CValue:
        """Return a value whose elements are free to read: expressions are stored first."""
        value = self.value(atom)
        if value.depth and isinstance(atom, Variable):
            return self.store(atom, value)
        return value

    def array(self, atom: Atom) -> str:
        """Return the argument of a call: the pointer to a whole array, or the value of a scalar."""
        value = self.value(atom)
        if not value.aval.shape:
            return value.at([])
        if not value.name:
            value = self.store(atom if isinstance(atom, Variable) else Variable(atom.aval), value)
        self._read(value.name)
        return value.name

    def new(self, var: Variable, result: bool = True) -> CValue:
        """Return a new array, or variable, for a value; for a result of the program, its output."""
        if result and var in self._targets:
            made = array_value(var.aval, self._targets[var], self._read, pointer=True, var=var)
        else:
            name = self.names.get(var) or self.file.unique("copy")
            (self._arrays if var.aval.shape else self._variables)[name] = var.aval
            made = array_value(var.aval, name, self._read, var=var)
        c_type(var.aval)
        return made

    def store(self, var: Variable, value: CValue) -> CValue:
        """Store a value in an array or a variable; return it."""
        made = self.new(var)

        def lines() -> list[str]:
            shape = var.aval.shape
            if value.flat is not None and shape:
                count = ["i"] if var.aval.size != 1 else ["0"]
                return loop_lines(count, [var.aval.size],
                                  [f"{made.place(count[0])} = {strip_parentheses(value.flat(count[0]))};"])
            indices = ["0" if extent == 1 else INDICES[axis] if axis < len(INDICES) else f"i{axis}"
                       for axis, extent in enumerate(shape)]
            return loop_lines(indices, shape, [f"{made.at(indices)} = {strip_parentheses(value.at(indices))};"])

        self.emit(lines, var.aval.size)
        self._values[var] = made
        return made

    def emit(self, lines: Callable[[], list[str]], size: int = 1) -> None:
        """Add a statement that computes `size` elements; its reads and writes are recorded while its lines are made."""
        before, self._reading = self._reading, set()
        made = lines()
        self._statements.append(CStatement(made if size else [], frozenset(self._reading), self._comment))
        self._reading = before

    # --- equations ------------------------------------------------------------------------------------------

    def _write(self, equation: Equation) -> None:
        for var in equation.outputs:
            c_type(var.aval)
        if equation.regions:
            for var, value in write_regions(self, equation).items():
                self._values[var] = value
            return
        made = self._expressions(equation)
        if made is None:
            rule = statements.of(equation.primitive)
            if rule is None or isinstance(rule, MissingRule):
                raise SourceRefusal(NOT_IN_C.reason)
            if len(equation.outputs) > 1:
                raise SourceRefusal("which is written in C for one array at a time")
            var, = equation.outputs
            lines = rule(_StatementContext(self, equation, self.new(var)))
            self.emit(lines, var.aval.size)
            self._values[var] = self.made
            return
        for var, value in zip(equation.outputs, made, strict=True):
            self._values[var] = value
            if var in self._targets or (value.depth and self._uses[var] > 1):
                self.store(var, value)

    def _expressions(self, equation: Equation) -> list[CValue] | None:
        """Return the results as expressions; None if the operation needs statements."""
        outs = [var.aval for var in equation.outputs]
        move = views.of(equation.primitive)
        if move is not None:
            several = len(outs) > 1
            operands = [self.many(atom) if several or atom.aval.size < outs[0].size or equation.primitive in _RANDOM
                        else self.once(atom) for atom in equation.inputs]
            return move(operands, outs, equation.params)
        rule = elements.of(equation.primitive)
        if rule is None:
            return None
        out, = outs
        operands = [self.once(atom, out.size) for atom in equation.inputs]
        avals = [value.aval for value in operands]
        computes = rule(["x"] * len(operands), avals, out, equation.params) != "x"  # refuses unsupported ones

        def element(texts: Sequence[str]) -> str:
            return rule(texts, avals, out, equation.params)

        flat = None
        if all(value.flat is not None and value.aval.shape in ((), out.shape) for value in operands):
            def flat(text: str) -> str:
                return element([value.place(text) for value in operands])
        return [expression_value(out, lambda indices: element([value.at(broadcast_indices(value, indices))
                                                               for value in operands]),
                                 computes + max((value.depth for value in operands), default=0), flat)]

    def _return(self) -> None:
        """Copy outputs that are not in place yet: arguments, numbers, values returned twice."""
        for atom, name in zip(self.program.outputs, self.outputs, strict=True):
            if isinstance(atom, Variable) and self._targets.get(atom) == name:
                continue
            value = self.value(atom)
            made = array_value(atom.aval, name, self._read, pointer=True)

            def lines(value: CValue = value, made: CValue = made) -> list[str]:
                shape = made.aval.shape
                indices = ["0" if extent == 1 else INDICES[axis] if axis < len(INDICES) else f"i{axis}"
                           for axis, extent in enumerate(shape)]
                return loop_lines(indices, shape, [f"{made.at(indices)} = {value.at(indices)};"])

            self.emit(lines, atom.aval.size)

    # --- text -----------------------------------------------------------------------------------------------

    def text(self) -> tuple[str, int]:
        """Return the definition, and the bytes of work space needed, those of called functions included."""
        alive: dict[str, LiveArray] = {}
        for place, statement in enumerate(self._statements):
            for name in statement.arrays & self._arrays.keys():
                first = alive[name].first if name in alive else place
                alive[name] = LiveArray(self._arrays[name].nbytes, first, place)
        placed, frame = offsets(alive)
        total = frame + self.below
        used = {*_word.findall("\n".join(line for statement in self._statements for line in statement.lines))}
        body = [f"{c_type(self._arrays[name])} *{name} = ({c_type(self._arrays[name])} *)(workspace + {at});"
                for name, at in placed.items() if name in used]
        body += [f"{c_type(aval)} {name};" for name, aval in self._variables.items() if name in used]
        body += [f"(void){name};" for name in (*(self.names[var] for var in self.inputs), *self.outputs)
                 if name not in used]
        lines, said = [], ""
        for statement in self._statements:
            if statement.lines and statement.comment and statement.comment != said:
                said = statement.comment
                lines.append(f"/* {said} */")
            lines += statement.lines
        lines = [line.replace("@FRAME@", str(frame)) for line in lines]
        if "workspace" not in used and not placed.keys() & used:
            body.append("(void)workspace;")
        return "\n".join(["{", *("    " + line for line in (*body, *lines)), "}"]), total

    def parameters(self) -> list[str]:
        """Return the declarations of the parameters."""
        found = [f"const {c_type(var.aval)} *{self.names[var]}" if var.aval.shape else
                 f"{c_type(var.aval)} {self.names[var]}" for var in self.inputs]
        found += [f"{c_type(atom.aval)} *{name}" for atom, name in zip(self.program.outputs, self.outputs, strict=True)]
        return [*found, "char *workspace"]


class _StatementContext:
    """The result and operands for rules of statements."""

    def __init__(self, function: CFunction, equation: Equation, made: CValue) -> None:
        self._function, self.equation, self._made = function, equation, made
        self.out = made.aval
        function.made = made

    def once(self, number: int) -> CValue:
        return self._function.once(self.equation.inputs[number])

    def many(self, number: int) -> CValue:
        return self._function.many(self.equation.inputs[number])

    def write(self, indices: Sequence[str]) -> str:
        return self._made.at(indices)
