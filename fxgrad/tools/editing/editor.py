"""`Editor`: a mutable copy of a program, and the program after the edits."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad import tree
from fxgrad.errors import ArgumentError, FxgradError
from fxgrad.extend import (
    Atom,
    Aval,
    Equation,
    Literal,
    Primitive,
    Program,
    Variable,
    at_user_line,
    aval_of,
    convert,
    eval_program,
    remove_dead_code,
    replace_programs,
)
from fxgrad.text.names import NAMES, own_names
from fxgrad.text.short import operation_name
from fxgrad.text.sources import Sources
from fxgrad.text.text_writer import text_scopes
from fxgrad.tools.editing.order import equation_text, sort_by_need
from fxgrad.tools.editing.pieces import trace_piece

Value = str | Variable
"""A value of a program: its name, as printed, or the variable."""


class EquationReplacement(NamedTuple):
    """A program of `inputs` that computes `outputs` and replaces the last of `equations`; the others are removed."""

    equations: Sequence[Equation]
    program: Program
    inputs: Sequence[Atom]
    outputs: Sequence[Variable]


class Editor:
    """A mutable copy of a program, as `program.edit()` returns it; `program()` returns the result.

    Values are referred to by variable or by name, as the program prints them; letters are those of the current text.
    Values inside an expression have no name; `find` finds their equations. The original program does not change. Dead
    equations are left out of the result.

    >>> import fxgrad, numpy as np
    >>> def model(x):
    ...     h = np.sin(x)
    ...     return h * 2.0
    >>> editor = fxgrad.make_program(model)(1.0).edit()
    >>> editor.replace(editor.maker("h"), np.cos)
    >>> print(fxgrad.text.program_text(editor.program(), source=False))
    program model(x: f64*) -> f64*:
      h: f64* = cos(x)
      return h * 2.0
    """

    def __init__(self, program: Program, *, is_held: bool = False, outer: Editor | None = None) -> None:
        self._before, self._is_held, self._outer = program, is_held, outer
        self._equations = [*program.equations]
        self._outputs = [*program.outputs]
        self._inputs, self._constants = [*program.inputs], [*program.constants]
        self._signature = program.signature
        self._own = own_names(program, Sources())
        self._given: dict[Variable, str] = {}
        self._made = program
        self._held: list[tuple[list[Variable], int, Editor]] = []
        self._exchanged: dict[Variable, Atom] = {}

    def __repr__(self) -> str:
        signature = self._before.signature
        return f"<editor of {signature.name if signature else 'a program'}: {len(self._equations)} equations>"

    # --- finding --------------------------------------------------------------------------------------------

    @property
    def equations(self) -> tuple[Equation, ...]:
        """The current equations, in order."""
        return tuple(self._equations)

    @property
    def outputs(self) -> tuple[Atom, ...]:
        """The current outputs of the program."""
        return tuple(self._outputs)

    @property
    def names(self) -> dict[str, Variable]:
        """The values by name, as the program prints them now, and the inserted values by the names they were given."""
        made = {var for equation in self._equations for var in equation.outputs}
        own = {var: name for var, name in self._own.items() if var in made or var in self._inputs}
        return {name: var for var, name in {**own, **self._given, **self._current_names()}.items()}

    def _current_names(self) -> dict[Variable, str]:
        """Return the names in the current text of the program; unnamed variables get letters."""
        top = self
        while top._outer is not None:
            top = top._outer
        try:
            scopes = text_scopes(top.current())
        except FxgradError:  # on its way it may be no program
            return {}
        return scopes[id(self._made)].names if id(self._made) in scopes else {}

    def value(self, name: Value) -> Variable:
        """Return the variable of a name; raise `ArgumentError`, which lists similar names, if there is none."""
        if isinstance(name, Variable):
            return name
        for var, known in {**self._own, **self._given}.items():
            if known == name:
                now = self._replacement_of(var)
                return now if isinstance(now, Variable) else var
        names = self.names
        if name in names:
            return names[name]
        near = ", ".join(difflib.get_close_matches(str(name), names, 3))
        raise ArgumentError(at_user_line(
            f"edit: the program has no value {name!r}. " + (f"Did you mean {near}?" if near else
                                                            f"It has {', '.join([*names][:12])}")))

    def maker(self, value: Value) -> Equation:
        """Return the equation that defines a value; raise `ArgumentError` if it is an argument."""
        var = self.value(value)
        for equation in self._equations:
            if var in equation.outputs:
                return equation
        raise ArgumentError(at_user_line(f"edit: {self._name(var)} is an argument, which no equation makes"))

    def find(self, operation: str | Primitive | None = None, *, line: int | None = None, scope: str | None = None,
             ) -> list[Equation]:
        """Return the equations of an operation, line or scope.

        An operation is given by its name, by the name of the called function, or by the primitive.
        """
        return [equation for equation in self._equations if
                (operation is None or operation in (equation.primitive, equation.primitive.name,
                                                    operation_name(equation)))
                and (line is None or (equation.source is not None and equation.source.line == line))
                and (scope is None or equation.scope == scope or equation.scope.startswith(scope + "/"))]

    def users(self, value: Value) -> list[Equation]:
        """Return the equations that use a value."""
        var = self.value(value)
        return [equation for equation in self._equations if var in equation.inputs]

    # --- changing -------------------------------------------------------------------------------------------

    def insert(self, function: Callable[..., Any], *operands: Value | Any, name: str | None = None,
               after: Value | Equation | None = None) -> Any:
        """Insert the equations of `function` on `operands` (values, numbers or arrays); return its results.

        The results are variables. The equations are placed `after` that value or equation, by default after the last
        operand. Unused results are dead and left out of the final program: use them in other equations (`substitute`),
        or return them (`returns`). `name` names a single result.

        >>> import fxgrad, numpy as np
        >>> editor = fxgrad.make_program(lambda x: np.sin(x) * 2.0)(1.0).edit()
        >>> clipped = editor.insert(lambda x: np.clip(x, -1.0, 1.0), "x", name="clipped")
        >>> editor.substitute("x", clipped)
        >>> editor.program()(3.0)
        np.float64(1.682941969615793)
        """
        atoms = [self._atom(operand) for operand in operands]
        made = trace_piece("edit", function, [atom.aval for atom in atoms])
        place = 1 + (self._index(after) if isinstance(after, Equation) else max(
            (self._definition_index(atom) for atom in ([self.value(after)] if after is not None else atoms)),
            default=-1))
        results, equations = self._copy(made.program, [*map(self.constant, made.captured), *atoms])
        self._equations[place:place] = equations
        if name is not None:
            single = results[0] if len(results) == 1 else None
            if not isinstance(single, Variable):
                raise ArgumentError(at_user_line(f"edit: name={name!r} is for one computed result; the function has "
                                                 f"{len(results)} results"))
            if name in self.names:
                raise ArgumentError(at_user_line(f"edit: the program has a value {name!r} already"))
            self._given[single] = name
        return tree.unflatten(made.out_tree, results)

    def replace(self, equation: Equation, function: Callable[..., Any]) -> None:
        """Replace `equation` by the equations of `function` on its operands; its values keep their names.

        Raises `ArgumentError` if the results are not of the same types.
        """
        equation = self._equations[self._index(equation)]
        made = trace_piece("edit", function, [atom.aval for atom in equation.inputs],
                           [var.aval for var in equation.outputs], equation_text(equation))
        inputs = [*map(self.constant, made.captured), *equation.inputs]
        self.put([EquationReplacement([equation], made.program, inputs, equation.outputs)])

    def erase(self, equation: Equation) -> None:
        """Remove an equation; raise `ArgumentError`, which names the users, if its values are used."""
        place = self._index(equation)
        for var in self._equations[place].outputs:
            used = [f"used by {equation_text(user)}" for user in self.users(var)]
            used += [f"output {number} of the program" for number, atom in enumerate(self._outputs) if atom is var]
            if used:
                raise ArgumentError(at_user_line(
                    f"edit: {equation_text(equation)} makes {self._name(var)}, which is {' and '.join(used)}. Let "
                    "another value be used first: editor.substitute(value, other)"))
        del self._equations[place]

    def substitute(self, value: Value, other: Value | Any, *, only: Sequence[Equation] | None = None) -> None:
        """Replace `value` by `other`, a value or a number, in all equations that use it, or in `only` some.

        Equations that `other` itself is computed from keep their operands, unless they are in `only`. Raises
        `ArgumentError` if the two differ in shape or dtype.
        """
        var = self.value(value)
        is_number = isinstance(other, bool | int | float | complex) and not var.aval.shape
        atom = Literal(other, var.aval) if is_number else self._atom(other)
        if (var.aval.shape, var.aval.dtype) != (atom.aval.shape, atom.aval.dtype):
            raise ArgumentError(at_user_line(
                f"edit: {self._name(var)} is {var.aval}, and what is {atom.aval} cannot stand in its place. Make a "
                "value of its shape and dtype first: editor.insert(function, ...)"))
        if atom.aval != var.aval:
            atom = self.insert(lambda x: convert(x, var.aval.dtype, var.aval.weak), atom)
        chosen = None if only is None else {self._index(equation) for equation in only}
        behind = {id(equation) for equation in self._ancestors_of(atom)} if only is None else set()
        for place, equation in enumerate(self._equations):
            if var in equation.inputs and id(equation) not in behind and (chosen is None or place in chosen):
                self._equations[place] = equation.replace([atom if each is var else each for each in equation.inputs])
        if only is None:
            self._outputs = [atom if each is var else each for each in self._outputs]

    def returns(self, results: Any) -> None:
        """Make the program return other values: a value, or a container of values, which is that of the results.

        >>> import fxgrad, numpy as np
        >>> def model(x):
        ...     h = np.sin(x)
        ...     return h * 2.0
        >>> editor = fxgrad.make_program(model)(1.0).edit()
        >>> editor.returns({"hidden": "h"})
        >>> editor.program()(0.0)
        {'hidden': np.float64(0.0)}
        """
        if self._is_held:
            raise ArgumentError(at_user_line("edit: what an operation holds returns what the operation needs. Change "
                                             "the operation itself: editor.replace(equation, function)"))
        leaves, structure = tree.flatten(results)
        self._outputs = [self._atom(leaf) for leaf in leaves]
        if self._signature is not None:
            self._signature = self._signature._replace(out_tree=structure)

    def inside(self, equation: Equation, role: str | None = None) -> Editor:
        """Return an editor of the program that an equation holds, such as a loop body; its edits change this one too.

        `role` selects one of several: "body", "condition", "branch" (the first).
        """
        place = self._index(equation)
        regions = self._equations[place].regions
        roles = [region.role for region in regions]
        if not regions or (role is None and len(regions) > 1) or (role is not None and role not in roles):
            held = f"holds {', '.join(roles)}" if roles else "holds no program"
            raise ArgumentError(at_user_line(
                f"edit: {equation_text(equation)} {held}" + (f", and not {role!r}" if role else "") +
                (f". Say which: editor.inside(equation, {roles[0]!r})" if roles else "")))
        number = 0 if role is None else roles.index(role)
        for outputs, at, editor in self._held:
            if outputs is self._equations[place].outputs and at == number:
                return editor
        editor = Editor(regions[number].program, is_held=True, outer=self)
        self._held.append((self._equations[place].outputs, number, editor))
        return editor

    # --- the result -----------------------------------------------------------------------------------------

    def program(self) -> Program:
        """Return the current program, checked. The editor may be used further.

        Raises `ArgumentError` if a value needs itself, and `ProgramError` for whatever breaks the rules of programs.
        """
        return self.current().check()

    def current(self) -> Program:
        """Return the current program, not checked."""
        made = remove_dead_code(self._before.replace(
            inputs=self._inputs, equations=[*map(self._with_held, sort_by_need(self._equations))],
            outputs=self._outputs,
            signature=self._signature, constants=self._constants,
            captured=self._before.captured + len(self._constants) - len(self._before.constants)))
        if self._given:
            NAMES.put(made, {**(NAMES.of(self._before) or {}), **self._given})
        self._made = made
        return made

    def _with_held(self, equation: Equation) -> Equation:
        changed = {number: editor.current() for outputs, number, editor in self._held if outputs is equation.outputs}
        if not changed:
            return equation
        regions = equation.regions
        programs = [changed.get(number, region.program) for number, region in enumerate(regions)]
        return equation.replace(equation.inputs, replace_programs(equation.params, regions, programs))

    # --- parts ----------------------------------------------------------------------------------------------

    def put(self, pieces: Sequence[EquationReplacement]) -> None:
        """Replace equations by the equations of programs, all at once.

        Replaced values keep their variables, and so their names, and the line of the last replaced equation.
        """
        gone = {id(equation) for each in pieces for equation in each.equations}
        copies = {id(each.equations[-1]): self._copy_piece(each) for each in pieces}
        made: list[Equation] = []
        for equation in self._equations:
            made += copies.get(id(equation), ())
            if id(equation) not in gone:
                made.append(equation)
        if self._exchanged:
            made = [each if self._exchanged.keys().isdisjoint(each.inputs) else
                    each.replace([*map(self._replacement_of, each.inputs)]) for each in made]
            self._outputs = [*map(self._replacement_of, self._outputs)]
        self._equations = made

    def _copy_piece(self, piece: EquationReplacement) -> list[Equation]:
        """Return the equations of a piece; outputs that it passes through are noted as substitutions."""
        results, equations = self._copy(piece.program, piece.inputs)
        fresh = {var for equation in equations for var in equation.outputs}
        renamed: dict[Atom, Variable] = {}
        for var, atom in zip(piece.outputs, results, strict=True):
            if atom in fresh and atom not in renamed:
                renamed[atom] = var
            else:
                self._exchanged[var] = renamed.get(atom, atom)
        before = piece.equations[-1].source  # the new equations get the line of the replaced one
        source = None if before is None else before._replace(origins=(), results=())
        return [Equation(each.primitive, [renamed.get(atom, atom) for atom in each.inputs], each.params,
                         [renamed.get(var, var) for var in each.outputs], source or each.source) for each in equations]

    def _replacement_of(self, atom: Atom) -> Atom:
        """Return the atom that now replaces a value whose equation was replaced."""
        while isinstance(atom, Variable) and atom in self._exchanged:
            atom = self._exchanged[atom]
        return atom

    def _copy(self, program: Program, inputs: Sequence[Atom]) -> tuple[list[Atom], list[Equation]]:
        """Return the outputs and the equations of `program` with fresh variables."""
        equations: list[Equation] = []

        def step(equation: Equation, operands: list[Atom]) -> list[Variable]:
            outputs = [Variable(var.aval) for var in equation.outputs]
            equations.append(Equation(equation.primitive, operands, equation.params, outputs, equation.source))
            return outputs

        return eval_program(program, inputs, step), equations

    def _ancestors_of(self, atom: Atom) -> list[Equation]:
        """Return the equations that a value depends on, its own among them."""
        wanted, found = {atom}, []
        for equation in reversed(self._equations):
            if not wanted.isdisjoint(equation.outputs):
                found.append(equation)
                wanted.update(equation.inputs)
        return found

    def _atom(self, operand: Any) -> Atom:
        if isinstance(operand, str | Variable):
            var = self.value(operand)
            if var not in self._inputs and self._definition_index(var) < 0:
                raise ArgumentError(at_user_line("edit: that variable is not of this program"))
            return var
        if isinstance(operand, Literal):
            return operand
        aval = aval_of(operand)
        return self.constant(operand) if aval.shape else Literal(operand, aval)

    def constant(self, value: Any) -> Variable:
        """Return the variable of a new constant of the program, which holds an array."""
        before = self._before
        if self._is_held or len(before.constants) != before.captured:
            raise ArgumentError(at_user_line(
                f"edit: an array ({aval_of(value)}) cannot be added to a program that an operation holds. Compute it "
                "of numbers and of values there"))
        var = Variable(Aval(np.shape(value), aval_of(value).dtype))
        self._inputs.insert(len(self._constants), var)
        self._constants.append(np.array(value))
        return var

    def _index(self, equation: Equation) -> int:
        for place, each in enumerate(self._equations):
            if each is equation or (each.outputs and each.outputs is equation.outputs):
                return place
        raise ArgumentError(at_user_line(
            f"edit: {equation_text(equation)} is not an equation of this program, or not any more. Find it again: "
            "editor.find(...)"))

    def _definition_index(self, atom: Atom) -> int:
        return next((place for place, equation in enumerate(self._equations) if atom in equation.outputs), -1)

    def _name(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return repr(atom)
        name = self._given.get(atom) or self._own.get(atom) or self._current_names().get(atom)
        return name or f"a value of type {atom.aval}"
