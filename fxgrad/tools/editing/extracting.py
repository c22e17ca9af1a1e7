"""`subprogram`: the part of a program between some of its values and others."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fxgrad import tree
from fxgrad.errors import ArgumentError
from fxgrad.extend import (
    PRIMAL,
    Atom,
    Equation,
    Program,
    Provenance,
    Signature,
    Source,
    Variable,
    at_user_line,
    eval_program,
    hide_frames,
    infer_types,
    inner_first,
    join_scopes,
    require_program,
)
from fxgrad.text.inlining import call_name, holds_call
from fxgrad.text.names import NAMES
from fxgrad.text.text_writer import text_scopes
from fxgrad.tools.editing.order import equation_text

SHOWN = 5
"""Most missing values, or existing names, that one message lists."""
_root = re.compile(r"[^.\[]+")


@hide_frames
def subprogram(program: Program, inputs: Any = None, outputs: Any = None) -> Program:
    """Return the part of `program` that computes `outputs` from `inputs`, as a program of its own.

    Values are given by the names that the program prints (or by variable): arguments, intermediates and results. A
    value inside a call, such as a library function, is given by the call's name and its own, `"softmax/a"`, or, if
    several calls have that name, by the call's result, `"probabilities/a"`; that call is then inlined. An argument with
    a structure is given as a whole by its name: `"params"` for `params.w` and `params.b`.

    - `inputs`: a name, or a list of the arguments that the result takes in order, each a name or a container of
      names. `...` in the list stands for those of the program's own arguments that are needed beside the others.
      By default the inputs are these alone. Arrays that the program closes over are kept.
    - `outputs`: a name, or a container of names, in which the results are returned; by default the program's outputs.

    Equations that the outputs do not need are left out, operations with effects too. The result is checked, and keeps
    the names and lines of the original program. The parts before and after a cut have the same operations as the whole,
    and so the same bits, with one exception: NumPy sums a transposed view in the order of its memory, so such a sum may
    differ in the last bit.

    Raises `ArgumentError` for names that do not exist or are not unique, and if an output depends on a value that the
    inputs do not determine: the message names that value and the path from it.

    >>> import fxgrad, numpy as np
    >>> def model(w, x):
    ...     h = np.tanh(w * x)
    ...     y = h + 1.0
    ...     return y * h
    >>> program = fxgrad.make_program(model)(2.0, np.ones(3))
    >>> print(fxgrad.text.program_text(fxgrad.subprogram(program, ["h"]), source=False))
    program extract(model)(h: f64[3]) -> f64[3]:
      y: f64[3] = h + 1.0
      return y * h
    >>> head = fxgrad.subprogram(program, outputs={"hidden": "h"})
    >>> head(0.5, np.zeros(3))
    {'hidden': array([0., 0., 0.])}
    """
    require_program("subprogram", program)
    wanted = [inputs] if isinstance(inputs, str | Variable) else inputs
    if wanted is not None and not isinstance(wanted, list | tuple):
        raise ArgumentError(at_user_line(
            f"subprogram: inputs is a list of names, or of containers of names, one for each argument; got {inputs!r}"))
    names = [leaf for leaf in tree.leaves([wanted, outputs]) if isinstance(leaf, str)]
    return _Extraction(program, names).between(wanted, outputs)


class _Argument(NamedTuple):
    """An argument of the program: its name, how it is passed, and its variables in their container."""

    name: str
    keyword: str | None
    value: Any


class _InnerValue(NamedTuple):
    """A value inside calls: the calls, outermost first, and its variable in the innermost program."""

    calls: tuple[int, ...]
    var: Variable


class _Extraction:
    """A program from which a part is extracted."""

    def __init__(self, program: Program, wanted: Sequence[str]) -> None:
        scopes = text_scopes(program)
        self._shown = {id(each): scopes[id(each)].names for each in inner_first(program) if id(each) in scopes}
        self._given = self._program = program
        self._names = dict(self._shown[id(program)])
        self._by_name = {name: var for var, name in self._names.items()}
        found = {path: self._follow(path) for path in dict.fromkeys(wanted)
                 if path not in self._by_name and "/" in path}
        self._atoms: dict[_InnerValue, Atom] = {}
        if found:
            calls = {each.calls[:count] for each in found.values() for count in range(1, len(each.calls) + 1)}
            equations: list[Equation] = []
            before = self._program
            outputs = self._copy(before, (), before.inputs, None, calls, equations)
            self._program = before.replace(equations=equations, outputs=outputs)
        self._inside = {path: self._atoms[each] for path, each in found.items()}
        for name, var in self._by_name.items():  # a result of a call keeps the name that its own line gives it
            self._call_it(name, self._atoms.get(_InnerValue((), var), var))
        for path, atom in self._inside.items():
            last = path.rpartition("/")[2]
            self._call_it(path if last in self._names.values() else last, atom)

    def _call_it(self, name: str, atom: Atom) -> None:
        if isinstance(atom, Variable):
            self._names.setdefault(atom, name)

    # --- names ----------------------------------------------------------------------------------------------

    def _follow(self, path: str) -> _InnerValue:
        """Return the value that a path leads to, such as "softmax/a"."""
        program, calls = self._given, []
        *heads, last = path.split("/")
        for place, head in enumerate(heads):
            equation = self._call(program, head, "/".join(heads[:place]), "/".join([*heads[place + 1:], last]))
            calls.append(id(equation))
            program, = equation.programs
        names = self._shown.get(id(program), {})
        for var, name in names.items():
            if name == last:
                return _InnerValue(tuple(calls), var)
        raise ArgumentError(at_user_line(
            f"subprogram: {'/'.join(heads)} has no value {last!r}. {_suggestion(last, [*names.values()])}"))

    def _call(self, program: Program, head: str, before: str, behind: str) -> Equation:
        """Return the call that defines the value `head`, or the one call of the function `head`."""
        names = self._shown.get(id(program), {})
        calls = [each for each in program.equations if holds_call(each)]
        found = [each for each in calls if head in map(names.get, each.outputs)] or [
            each for each in calls if call_name(each) == head]
        if len(found) == 1:
            return found[0]
        path = "/".join(filter(None, [before, head, behind]))
        if found:
            made = [names[each.outputs[0]] for each in found if each.outputs and each.outputs[0] in names]
            ways = ", ".join(repr("/".join(filter(None, [before, name, behind]))) for name in made[:SHOWN])
            raise ArgumentError(at_user_line(
                f"subprogram: {path!r} may be in any of {len(found)} calls of {head}. Say in which by the name of what "
                f"it makes: {ways or 'give it one'}"))
        known = [name for each in calls for name in (call_name(each), *(names[var] for var in each.outputs
                                                                        if var in names))]
        raise ArgumentError(at_user_line(
            f"subprogram: {path!r}: nothing called {head} is a call, or is made by one. "
            + (_suggestion(head, known) if known else "There are no calls")))

    def _value(self, name: Any) -> Atom:
        """Return the atom of a name or a variable; a literal if a call returns one."""
        if isinstance(name, Variable):
            program = self._given
            if name in program.inputs or any(name in each.outputs for each in program.equations):
                return self._atoms.get(_InnerValue((), name), name)
            raise ArgumentError(at_user_line("subprogram: that variable is not of this program"))
        if not isinstance(name, str):
            raise ArgumentError(at_user_line("subprogram: values go by name, such as 'h', or by variable; got "
                                             f"{name!r}"))
        if name in self._inside:
            return self._inside[name]
        if name in self._by_name:
            return self._value(self._by_name[name])
        raise ArgumentError(at_user_line(f"subprogram: the program has no value {name!r}. {self._instead_of(name)}"))

    def _instead_of(self, name: str) -> str:
        """Return a hint for a name that does not exist."""
        for equation in self._given.equations:
            for region in equation.regions:
                if name in self._shown.get(id(region.program), {}).values():
                    if holds_call(equation):
                        return f"{equation_text(equation)} has one inside: write {call_name(equation) + '/' + name!r}"
                    return (f"{equation_text(equation)} has one inside, in its {region.role}. Return it from there, or "
                            "take a loop of a known number of turns apart: fxgrad.inline(program, loops=True)")
        return _suggestion(name, [*self._by_name, *(argument.name for argument in self._arguments())])

    # --- calls ----------------------------------------------------------------------------------------------

    def _copy(self, program: Program, inside: tuple[int, ...], inputs: Sequence[Atom],
              around: Source | None, calls: set[tuple[int, ...]], equations: list[Equation]) -> list[Atom]:
        """Append the equations of a program, called at `around`, to `equations`; return the atoms of its outputs."""
        def note(variables: Sequence[Variable], atoms: Sequence[Atom]) -> None:
            self._atoms.update((_InnerValue(inside, var), atom) for var, atom in zip(variables, atoms, strict=True))

        def step(equation: Equation, operands: list[Atom]) -> Sequence[Atom]:
            here = (*inside, id(equation))
            made: Sequence[Atom]
            if here in calls:
                region, = equation.regions
                scope = join_scopes(around.scope if around else "", join_scopes(equation.scope, call_name(equation)))
                source = equation.source or around
                results = self._copy(region.program, here, [operands[link.place] for link in region.inputs],
                                     source and source._replace(scope=scope), calls, equations)
                places = dict(zip((link.place for link in region.outputs), results, strict=True))
                made = [places[place] for place in range(len(equation.outputs))]
            else:
                made = self._add_equation(equation, operands, equations, (program, around) if inside else None)
            note(equation.outputs, made)
            return made

        note(program.inputs, inputs)
        return eval_program(program, inputs, step)

    def _add_equation(self, equation: Equation, operands: list[Atom], equations: list[Equation],
                      held: tuple[Program, Source | None] | None) -> list[Variable]:
        """Append one equation with other operands.

        Inlined equations get fresh variables, since several calls may share a program.
        """
        avals, outputs, source = [var.aval for var in equation.outputs], equation.outputs, equation.source
        changed = [atom.aval for atom in operands] != [atom.aval for atom in equation.inputs]
        if changed:  # a literal may be weakly typed where the call expects a strong type
            avals = infer_types(equation.primitive, [atom.aval for atom in operands], equation.params)
        if held is not None or changed:
            outputs = [*map(Variable, avals)]
        if held is not None:
            program, around = held
            for var, original in zip(outputs, equation.outputs, strict=True):
                var.origins = (Provenance(PRIMAL, program, original),)
            source = source.inside(around.scope) if source is not None and around is not None else source or around
        equations.append(Equation(equation.primitive, operands, equation.params, outputs, source))
        return outputs

    # --- arguments ------------------------------------------------------------------------------------------

    def _arguments(self) -> list[_Argument]:
        """Return the arguments of the original program, with their variables."""
        program = self._program
        variables = program.inputs[len(program.constants):]
        signature = program.signature
        if signature is None or signature.in_tree is None:
            return [_Argument(self._names.get(var, ""), None, var) for var in variables]
        args, kwargs = tree.unflatten(signature.in_tree, variables)
        names = dict(zip(variables, signature.input_names, strict=True))
        found = []
        for keyword, value in [*((None, value) for value in args), *kwargs.items()]:
            leaves = tree.leaves(value)
            roots = {match[0] for leaf in leaves if (match := _root.match(names[leaf]))}
            found.append(_Argument(roots.pop() if len(roots) == 1 else "", keyword, value))
        return found

    def _variables(self, name: Any) -> Any:
        """Return the variable of a name, or the container of the variables of an argument."""
        if isinstance(name, str) and name not in self._by_name:
            for argument in self._arguments():
                if argument.name == name:
                    return argument.value
        return self._value(name)

    # --- the part -------------------------------------------------------------------------------------------

    def between(self, inputs: Sequence[Any] | None, outputs: Any) -> Program:
        """Return the program from `inputs` to `outputs`, each containers of names."""
        program, before = self._program, self._program.signature
        if outputs is None:
            results, out_tree = [*program.outputs], None if before is None else before.out_tree
        else:
            found, out_tree = tree.flatten(tree.map(self._variables, outputs))
            results = [*found]
        own = self._arguments()
        open_end = inputs is None or any(each is ... for each in inputs)
        chosen = [] if inputs is None else [tree.map(self._variables, each) for each in inputs if each is not ...]
        leaves = tree.leaves(chosen)
        for place, var in enumerate(leaves):
            if not isinstance(var, Variable):
                raise ArgumentError(at_user_line(
                    f"subprogram: input {place} is the number {var!r} in this program, which cannot be given"))
            if var in leaves[:place]:
                raise ArgumentError(at_user_line(f"subprogram: {self._name(var)} is twice among the inputs"))
        equations, needed = self._needed_equations(results, {*leaves})
        constants = [*program.inputs[:len(program.constants)]]
        missing = [var for var in needed if var not in leaves and var not in constants]
        taken = [argument for argument in own if any(var in missing for var in tree.leaves(argument.value))]
        if missing and not open_end:
            self._refuse(missing, results, {*leaves})
        plain = [argument.value for argument in taken if argument.keyword is None]
        keywords = {argument.keyword: argument.value for argument in taken if argument.keyword is not None}
        arguments: list[Any] = []
        rest = iter(chosen)
        for each in [...] if inputs is None else inputs:
            arguments += plain if each is ... else [next(rest)]
        variables, in_tree = tree.flatten((tuple(arguments), keywords))
        twice = [var for place, var in enumerate(variables) if var in variables[:place]]
        if twice:
            raise ArgumentError(at_user_line(
                f"subprogram: {self._name(twice[0])} is an input, and other parts of the same argument are needed. "
                "Name these too, in the place of ..."))
        kept = [place for place, var in enumerate(constants) if var in needed and var not in leaves]
        title = "extract(" + (before.title or before.name if before is not None else "") + ")"
        signature = Signature(before.name if before is not None else "part", tuple(map(self._name, variables)),
                              in_tree, out_tree, title)
        made = program.replace(
            inputs=[*(constants[place] for place in kept), *variables], equations=equations, outputs=results,
            captured=len(kept), constants=[program.constants[place] for place in kept], signature=signature)
        present = {*made.inputs}.union(*(equation.outputs for equation in equations))
        NAMES.put(made, {var: name for var, name in self._names.items() if var in present})
        return made.check()

    def _needed_equations(self, results: Sequence[Atom], given: set[Variable]) -> tuple[list[Equation], set[Variable]]:
        """Return the equations that `results` need if the values `given` are known, in order, and their free inputs."""
        wanted = {atom for atom in results if isinstance(atom, Variable)}
        equations = []
        for equation in reversed(self._program.equations):
            if not (wanted - given).isdisjoint(equation.outputs):
                equations.append(equation)
                wanted.update(atom for atom in equation.inputs if isinstance(atom, Variable))
        return equations[::-1], wanted.intersection(self._program.inputs)

    def _refuse(self, missing: Sequence[Variable], results: Sequence[Atom], given: set[Variable]) -> None:
        ways = []
        order = [var for var in self._program.inputs if var in missing]
        for var in order[:SHOWN]:
            through = [self._name(each) for each in self._way(var, results, given)]
            ways.append(f"  {self._name(var)}: {' -> '.join(through)}")
        if len(order) > SHOWN:
            ways.append(f"  and {len(order) - SHOWN} more")
        names = ", ".join(repr(self._name(var)) for var in order[:SHOWN])
        raise ArgumentError(at_user_line(
            "subprogram: the inputs do not give all that the outputs need. Missing, each with what needs it:\n"
            + "\n".join(ways) + f"\nAdd these to inputs ({names}{', ...' if len(order) > SHOWN else ''}), or `...` for "
            "the arguments of the program that are needed, or values in between"))

    def _way(self, var: Variable, results: Sequence[Atom], given: set[Variable]) -> Iterator[Variable]:
        """Yield the named values on a path from a value to an output, each an operand of the next."""
        equations, _ = self._needed_equations(results, given)
        last: Variable | None = var
        outputs = {atom for atom in results if isinstance(atom, Variable)}
        while last is not None:
            if last in self._names or last in outputs:
                yield last
            if last in outputs:
                return
            user = next((each for each in equations if last in each.inputs), None)
            last = None if user is None else next(
                (output for output in user.outputs
                 if output in outputs or any(output in each.inputs for each in equations)), None)

    def _name(self, var: Variable) -> str:
        return self._names.get(var) or next(
            (equation_text(each) for each in self._program.equations if var in each.outputs),
            f"a value of type {var.aval}")


def _suggestion(name: str, known: Sequence[str]) -> str:
    known = [*dict.fromkeys(each for each in known if each)]
    near = difflib.get_close_matches(name, known, 3)
    if near:
        return f"Did you mean {', '.join(map(repr, near))}?"
    more = f" and {len(known) - 12} more" if len(known) > 12 else ""
    return f"It has {', '.join(known[:12])}{more}"

