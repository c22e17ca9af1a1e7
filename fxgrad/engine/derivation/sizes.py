"""Substitution of sizes: programs with symbolic sizes, with numbers in place of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import output_types
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import ProgramAttribute, program_property
from fxgrad.engine.core.sizes import SymbolicDim, has_symbolic_dim
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, FxgradError, ProgramError

_AT: ProgramAttribute[BoundedDict] = ProgramAttribute("programs at sizes")
_KEPT = 64


@program_property
def size_names(program: Program) -> tuple[str, ...]:
    """Return the names of sizes in the types of the inputs, sorted."""
    return _size_names_of(program.in_avals)


def _size_names_of(avals: Sequence[Aval]) -> tuple[str, ...]:
    named: list[Any] = [size for aval in avals for size in aval.shape if has_symbolic_dim(size)]
    return tuple(sorted({name for size in named for name in size.names}))


def at_sizes(program: Program, sizes: Mapping[str, Any]) -> Program:
    """Return `program` for these sizes, by name: numbers, or other named sizes. Up to 64 are memoized on it.

    Raises the errors of operations that are illegal at such sizes.
    """
    known = _AT.of(program) or _AT.put(program, BoundedDict(_KEPT))
    key = tuple(sizes[name] for name in size_names(program))
    found: Program | None = known.get(key)
    if found is None:
        found = known.add(key, _Substitution(sizes, checked=True).program(program))
    return found


def at_jax_sizes(program: Program, sizes: Mapping[str, Any]) -> Program:
    """Return `program` with jax's symbolic sizes in place of names, to be emitted in a trace of jax."""
    return _Substitution(sizes, checked=False).program(program)


def types_at(avals: Sequence[Aval], sizes: Mapping[str, Any]) -> list[Aval]:
    """Return the types for these sizes."""
    substitution = _Substitution(sizes, checked=True)
    return [substitution.aval(aval) for aval in avals]


class _Substitution:
    """One substitution, in a program and all nested programs; each program is replaced once."""

    def __init__(self, sizes: Mapping[str, Any], *, checked: bool) -> None:
        self._sizes, self._checked = sizes, checked
        self._made: dict[int, Program] = {}

    def program(self, program: Program) -> Program:
        made = self._made.get(id(program))
        if made is None:
            atoms: dict[Variable, Atom] = {}
            inputs = []
            for var in program.inputs:
                new = atoms[var] = Variable(self.aval(var.aval))
                inputs.append(new)
            equations = [self._equation(equation, atoms) for equation in program.equations]
            outputs = [_substituted_atom(atoms, atom) for atom in program.outputs]
            # Variables are new, and names derive from the recording, so `base` does not refer to the old ones.
            made = self._made[id(program)] = Program(inputs, equations, outputs, program.captured, program.constants,
                                                     program.signature)
        return made

    def _equation(self, equation: Equation, atoms: dict[Variable, Atom]) -> Equation:
        inputs = [_substituted_atom(atoms, atom) for atom in equation.inputs]
        params = {name: self.value(value) for name, value in equation.params.items()}
        avals = [self.aval(var.aval) for var in equation.outputs]
        if self._checked:
            found = self._infer(equation, [atom.aval for atom in inputs], params)
            if found != avals:
                raise ProgramError(f"{equation.primitive} makes {found} at the sizes {dict(self._sizes)}, where "
                                   f"{[var.aval for var in equation.outputs]} are {avals}; this is a bug in fxgrad")
        outputs = [Variable(aval) for aval in avals]
        atoms.update(zip(equation.outputs, outputs, strict=True))
        return Equation(equation.primitive, inputs, params, outputs, equation.source)

    def _infer(self, equation: Equation, avals: Sequence[Aval], params: dict[str, Any]) -> list[Aval]:
        """Return the types of the outputs; an error names these sizes, and the line of the operation."""
        try:
            return output_types(equation.primitive, avals, params)
        except FxgradError as error:
            sizes = ", ".join(f"{name} = {size}" for name, size in self._sizes.items())
            place = f", which is at {equation.source.place}" if equation.source else ""
            raise type(error)(at_user_line(f"{error}: so it is for {sizes}{place}")) from None

    def aval(self, aval: Aval) -> Aval:
        if not has_symbolic_dim(*aval.shape):
            return aval
        return aval.update(shape=self.value(aval.shape))

    def value(self, value: Any) -> Any:
        """Return a parameter with the sizes in it replaced."""
        kind = type(value)
        if kind is SymbolicDim:
            return value.at(self._sizes)
        if kind is Program:
            return self.program(value)
        if kind is Aval:
            return self.aval(value)
        if kind is tuple or kind is list:
            return kind(map(self.value, value))
        if isinstance(value, tuple) and hasattr(value, "_make"):
            return kind._make(map(self.value, value))
        return value


def _substituted_atom(atoms: Mapping[Variable, Atom], atom: Atom) -> Atom:
    return atom if type(atom) is Literal else atoms[atom]  # type: ignore[index]


# --- the sizes of arguments ------------------------------------------------------------------------------------------


def specialize(program: Program, avals: Sequence[Aval]) -> Program:
    """Return `program` for the sizes of arguments of these types; raise `ArgumentError` if they do not fit."""
    explicit = program.inputs[len(program.constants):]
    wanted = [var.aval for var in explicit]
    return at_sizes(program, solve_sizes("the program", wanted, avals, argument_names(program)))


def argument_names(program: Program) -> Sequence[str]:
    """Return the names of the inputs of `program` for messages, without those that `constants` fill."""
    count = len(program.inputs) - len(program.constants)
    names = program.signature.input_names if program.signature else ()
    return names if len(names) == count else [f"input {index}" for index in range(count)]


def require_numbers(what: str, program: Program) -> Program:
    """Return `program` for the function `what`; raise `ArgumentError` if it has symbolic sizes."""
    if size_names(program):
        refuse_symbolic_sizes(what, program.in_avals[len(program.constants):], argument_names(program))
    return program


def refuse_symbolic_sizes(what: str, avals: Sequence[Aval], arguments: Sequence[str]) -> None:
    """Raise `ArgumentError` for the first argument that has a named size."""
    for aval, argument in zip(avals, arguments, strict=True):
        if has_symbolic_dim(*aval.shape):
            raise ArgumentError(at_user_line(
                f"{what}: {argument} is {aval}, and every size must be a number there. Give an array, or a type such "
                "as fxgrad.symbolic_spec(4, 3); of a program, make_program(program)(fxgrad.symbolic_spec(4, 3)) is "
                "that for numbers. fxgrad.export takes sizes with names"))


class _Given(NamedTuple):
    """A size of an argument, and the symbolic size of the program in its place."""

    size: Any
    value: Any
    problem: str
    argument: str
    wanted: Aval
    came: Aval


def solve_sizes(what: str, wanted: Sequence[Aval], came: Sequence[Aval], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the sizes by name; raise `ArgumentError` if arguments do not fit, disagree, or leave one undetermined."""
    names, every = _size_names_of(wanted), []
    for one, other, argument in zip(wanted, came, arguments, strict=True):
        if one.dtype != other.dtype or one.ndim != other.ndim:
            raise ArgumentError(at_user_line(f"{what} takes {one} as {argument}, got {other}. Trace it again for "
                                             "other types, or convert with x.astype(...)"))
        every += [_Given(size, value, f"{what} takes {one} as {argument}, got {other}", argument, one, other)
                  for size, value in zip(one.shape, other.shape, strict=True)]
    sizes: dict[str, Any] = {}
    said: dict[str, _Given] = {}
    while not all(name in sizes for name in names):
        before = len(sizes)
        for given in every:
            unknown = [] if type(given.size) is not SymbolicDim else [name for name in given.size.names
                                                                      if name not in sizes]
            if len(unknown) == 1:
                value = _solve_size(given, unknown[0], sizes)
                if value is not None:
                    sizes[unknown[0]], said[unknown[0]] = value, given
        if len(sizes) == before:
            missing = ", ".join(name for name in names if name not in sizes)
            raise ArgumentError(at_user_line(
                f"{what} has sizes that its arguments do not determine: {missing}. Give one argument an axis of each "
                "such size alone, as in fxgrad.symbolic_spec(\"n\", 3)"))
    for given in every:
        expected = given.size.at(sizes) if type(given.size) is SymbolicDim else given.size
        if expected != given.value:
            _refuse_sizes(given, sizes, said)
    return sizes


def _solve_size(given: _Given, name: str, sizes: Mapping[str, Any]) -> Any:
    """Solve for the size called `name`, the only unknown in `given`; None if that does not determine it."""
    if str(given.size) == name:
        if type(given.value) is int and given.value < 1:
            raise ArgumentError(at_user_line(
                f"{given.problem}: symbolic sizes are at least 1, since a program may do something else on size 0. "
                "Trace it for the size 0"))
        return given.value
    first, second, third = (given.size.at({**sizes, name: size}) for size in (1, 2, 3))
    slope = second - first
    if third - second != slope or type(slope) is not int or not slope or type(given.value) is not int:
        return None
    size, rest = divmod(given.value - first + slope, slope)
    if rest or size < 1:
        raise ArgumentError(at_user_line(
            f"{given.problem}: no size {name} from 1 on makes "
            f"{given.size} equal to {given.value}"))
    return size


def _refuse_sizes(given: _Given, sizes: Mapping[str, Any], said: Mapping[str, _Given]) -> NoReturn:
    if type(given.size) is not SymbolicDim:
        raise ArgumentError(at_user_line(
            f"{given.problem}: that axis has the size "
            f"{given.size} whatever the named sizes are. Trace it again for other types"))
    others = "; ".join(f"{name} = {sizes[name]} by {said[name].argument}, which is {said[name].came} where the program "
                       f"takes {said[name].wanted}" for name in given.size.names)
    raise ArgumentError(at_user_line(
        f"{given.problem}, where {given.size} = {given.value}; "
        f"but {others}. A name stands for one size: give arrays that agree, or trace with two names"))
