"""Programs as straight-line Python code: one line an operation, in place where that is unobservable.

The code calls the kernels that the interpreter calls, on arrays of the same layout, so the results are equal bit for
bit. It saves the interpreter's loop, frees dead values, and reuses memory: an operation writes its result over a dead
operand, or over an earlier dead value of the same type, if the code itself has allocated that array.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import PYTHON_AVALS, Aval, Literal
from fxgrad.engine.core.cache_keys import cache_key
from fxgrad.engine.core.primitive import ArrayKernel
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import calls_user_code, is_effectful
from fxgrad.engine.derivation.simplify import live_equations
from fxgrad.engine.ops.below_byte import has_below_byte, kernel_for
from fxgrad.engine.ops.snippets import Snippet, snippet_of


def as_kernel_operand(value: Any) -> Any:
    """Return an operand for a kernel: literals and Python scalars as NumPy scalars, anything else unchanged."""
    if type(value) is Literal:
        return value.value
    aval = PYTHON_AVALS.get(type(value))
    return value if aval is None else aval.dtype.type(value)


def generate(program: Program) -> tuple[str, dict[str, Any]]:
    """Return the source of a function `run(*inputs)`, and its namespace of kernels and constants.

    `borrowed` in the namespace has the positions of the outputs that may be inputs, constants, views or arrays of shape
    ().

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> program = fxgrad.make_program(lambda x: fnp.exp(fnp.sin(x) * x))(np.ones(3))
    >>> print(generate(program)[0])
    def run(x0):
        v1 = sin(x0)
        v1 = multiply(v1, x0, v1)
        del x0
        v1 = exp(v1, v1)
        return [v1]
    <BLANKLINE>
    """
    equations, constants = _without_constants(live_equations(program))
    in_bytes = has_below_byte(program)
    calls = [None if in_bytes and kernel_for(equation) is not equation.primitive.numpy else snippet_of(
        equation.primitive, [atom.aval for atom in equation.inputs], equation.params) for equation in equations]
    storage = _Storage(program, equations, calls)
    writer = (_FloatWriter if _is_of_floats(program, equations, calls) else _CodeWriter)(program, constants)
    for index, (equation, call) in enumerate(zip(equations, calls, strict=True)):
        target = storage.targets.get(index)
        if target is not None:
            writer.rename(equation.outputs[0], target)
        if call is None:
            writer.kernel(equation)
        else:
            writer.snippet(equation, call, target)
        writer.drop(storage.dropped[index])
    returned, borrowed = [], []
    made = {equation.outputs[0] for equation, call in zip(equations, calls, strict=True) if call and call.owned}
    given: set[Atom] = {*program.inputs, *constants}
    for index, atom in enumerate(program.outputs):
        returned.append(writer.output(atom))
        if type(atom) is Variable and (atom not in made or atom in given):
            borrowed.append(index)
        given.add(atom)  # a second output of the same value must be copied
    writer.namespace["borrowed"] = borrowed
    inputs = ", ".join(writer.name(var) for var in program.inputs)
    used = {atom for equation in equations for atom in equation.inputs}.union(program.outputs)
    lines = [f"def run({inputs}):", *writer.scalars([var for var in program.inputs if var in used]), *writer.lines,
             f"    return [{', '.join(returned)}]"]
    return "\n".join(lines) + "\n", writer.namespace


_FLOAT64 = np.dtype(np.float64)


def _is_of_floats(program: Program, equations: Sequence[Equation], calls: Sequence[Snippet | None]) -> bool:
    """Return whether all values are float64 of shape (), with enough operations to repay conversion to Python floats.

    Python's float arithmetic rounds as NumPy's does, in a third of the time. Converting a result to NumPy costs the
    time that two operations save, converting an input to Python less.
    """
    if len(equations) <= len(program.inputs) + 2 * len(program.outputs) or not all(
            call is not None and call.of_floats for call in calls):
        return False
    atoms = itertools.chain(program.inputs, program.outputs, *(
        (*equation.inputs, *equation.outputs) for equation in equations))
    return all(not atom.aval.shape and atom.aval.dtype == _FLOAT64 for atom in atoms)


_LARGEST = 2**16
"""The most elements of a constant stored with the code."""


def _without_constants(equations: Sequence[Equation]) -> tuple[list[Equation], dict[Atom, Any]]:
    """Return the equations that depend on inputs, have effects or make large arrays; and the values of the others."""
    constants: dict[Atom, Any] = {}
    kept = []
    with np.errstate(all="ignore"):
        for equation in equations:
            if all(type(atom) is Literal or atom in constants for atom in equation.inputs) and sum(
                    var.aval.size for var in equation.outputs) <= _LARGEST and not is_effectful(
                    equation.primitive, equation.params) and not equation.primitive.calls_user_code and not any(
                    map(calls_user_code, equation.programs)):
                values = [atom.value if type(atom) is Literal else constants[atom] for atom in equation.inputs]
                results = kernel_for(equation)(*values, **equation.params)
                for var, result in zip(equation.outputs, results, strict=True):
                    if type(result) is np.ndarray:
                        result.flags.writeable = False  # so that a result that is one of them is copied
                    constants[var] = result
            else:
                kept.append(equation)
    return kept, constants


class _Storage:
    """The target variable whose array each operation overwrites, and the variables that die after each operation.

    An array may be overwritten if an operation here has allocated it, no live value shares its memory, and its layout
    is that of a new one.
    """

    def __init__(self, program: Program, equations: Sequence[Equation], calls: Sequence[Snippet | None]) -> None:
        self.targets: dict[int, Variable] = {}
        self.dropped: list[list[Variable]] = [[] for _ in equations]
        self._sharing: dict[Atom, frozenset[Variable]] = {var: frozenset([var]) for var in program.inputs}
        self._contiguous: set[Variable] = set()
        self._free: dict[Aval, list[Variable]] = {}
        self._taken: set[Variable] = set()
        for equation, call in zip(equations, calls, strict=True):
            self._follow(equation, call)
        self._end = self._ends(program, equations)
        self._ending: dict[int, list[Variable]] = {}
        for var, end in self._end.items():
            self._ending.setdefault(end, []).append(var)
        for index, (equation, call) in enumerate(zip(equations, calls, strict=True)):
            self._allocate(index, equation, call)
        self._drop(program, equations)

    def _follow(self, equation: Equation, call: Snippet | None) -> None:
        """Record which operands the outputs share memory with, and whether they are new arrays in row-major order."""
        operands = [atom for atom in equation.inputs if type(atom) is Variable and atom in self._sharing]
        if call is not None and call.owned:
            out = equation.outputs[0]
            self._sharing[out] = frozenset([out])
            # Among several elementwise operands one of the full shape decides; a reduction has one operand.
            deciding = [atom for atom in operands if not call.in_place or atom.aval.shape == out.aval.shape]
            if out.aval.ndim <= 1 or call.row_major or not self._contiguous.isdisjoint(deciding):
                self._contiguous.add(out)
        else:
            shared = frozenset().union(*(self._sharing[atom] for atom in operands))
            for out in equation.outputs:
                self._sharing[out] = shared | {out}

    def _ends(self, program: Program, equations: Sequence[Equation]) -> dict[Variable, int]:
        """Return the operation after which the memory of each variable is dead."""
        end: dict[Variable, int] = {}
        nobody: frozenset[Variable] = frozenset()  # for literals and constants
        for index, equation in enumerate(equations):
            for atom in (*equation.inputs, *equation.outputs):
                for owner in self._sharing.get(atom, nobody):
                    end[owner] = index
        for atom in program.outputs:
            for owner in self._sharing.get(atom, nobody):
                end[owner] = len(equations)
        return end

    def _allocate(self, index: int, equation: Equation, call: Snippet | None) -> None:
        ending = self._ending.get(index, ())
        if call is not None and "out}" in call.text:
            out = equation.outputs[0]
            if out in self._contiguous and out.aval.size:
                self._choose(index, out, [var for var in ending if var in equation.inputs] if call.in_place else [])
        for var in ending:
            if var in self._contiguous and var not in self._taken:
                self._free.setdefault(_memory(var), []).append(var)

    def _choose(self, index: int, out: Variable, candidates: Sequence[Variable]) -> None:
        """Choose an operand that dies here, or else an earlier array, as the target of `out`."""
        if not out.aval.shape:
            return
        wanted = _memory(out)
        for var in candidates:
            if var in self._contiguous and _memory(var) == wanted:
                self._take(index, var)
                return
        free = self._free.get(wanted)
        if free:
            self._take(index, free.pop())

    def _take(self, index: int, var: Variable) -> None:
        self.targets[index] = var
        self._taken.add(var)

    def _drop(self, program: Program, equations: Sequence[Equation]) -> None:
        """Choose after which operation to delete each name, unless its array continues under the name."""
        kept = set(program.outputs)
        last: dict[Variable, int] = {}
        for index, equation in enumerate(equations):
            for atom in (*equation.inputs, *equation.outputs):
                if type(atom) is Variable and atom in self._sharing:
                    last[atom] = index
        for var, index in last.items():
            if var not in kept and var not in self._taken:
                self.dropped[index].append(var)


def _memory(var: Variable) -> Aval:
    return var.aval.strong()


class _CodeWriter:
    """Names for variables, kernels and constants, and the lines of the function."""

    def __init__(self, program: Program, constants: dict[Atom, Any]) -> None:
        self._constants = constants
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {"scalar": as_kernel_operand}
        self._names: dict[Variable, str] = {var: f"x{index}" for index, var in enumerate(program.inputs)}
        self._objects: dict[Any, str] = {}
        self._arrays: dict[Literal, str] = {}

    def name(self, var: Variable) -> str:
        """Return the Python name of a variable."""
        return self._names.setdefault(var, f"v{len(self._names)}")

    def rename(self, var: Variable, other: Variable) -> None:
        """Give `var` the name of `other`, whose array it overwrites."""
        self._names[var] = self._names[other]

    def value(self, atom: Atom) -> str:
        """Return the Python name of a variable, or of a hoisted value."""
        if isinstance(atom, Literal):
            return self.object(atom, self.constant(atom.value), "c")
        return self.object(atom, self.constant(self._constants[atom]), "c") if atom in self._constants else (
            self.name(atom))

    def constant(self, value: Any) -> Any:
        """Return a hoisted value in the form that the function uses."""
        return value

    def output(self, atom: Atom) -> str:
        """Return the expression of a result."""
        return self.value(atom)

    def operand(self, atom: Atom, among_arrays: bool) -> str:
        """Return `value(atom)`; but among arrays a literal is an array of shape (), which ufuncs accept faster."""
        if among_arrays and isinstance(atom, Literal):
            return self.object(("array", atom), np.array(atom.value), "c")
        return self.value(atom)

    def object(self, key: Any, value: Any, prefix: str) -> str:
        """Return the name under which the function finds `value`."""
        name = self._objects.get(key)
        if name is None:
            name = self._objects[key] = f"{prefix}{len(self._objects)}"
            self.namespace[name] = value
        return name

    def scalars(self, inputs: Sequence[Variable]) -> list[str]:
        """Return the lines that convert inputs of shape () to NumPy's scalars."""
        lines = []
        for var in inputs:
            if not var.aval.shape:
                name, kind = self.name(var), var.aval.dtype.type
                known = self.object(("type", kind), kind, "t")
                lines.append(f"    if type({name}) is not {known}: {name} = scalar({name})")
        return lines

    def snippet(self, equation: Equation, call: Snippet, target: Variable | None) -> None:
        """Add the line of an operation with an expression of its own."""
        out = equation.outputs[0]
        arrays = bool(out.aval.shape) and call.in_place
        operands = [self.operand(atom, arrays) for atom in equation.inputs]
        self.namespace.update(call.objects)
        place, named = ("", "") if target is None else (f", {self.name(target)}", f", out={self.name(target)}")
        self.lines.append(f"    {self.name(out)} = {call.text.format(*operands, out=place, named_out=named)}")

    def kernel(self, equation: Equation) -> None:
        """Add the line of one equation: it calls the kernel's own function if there is one output."""
        rule = kernel_for(equation)
        single = isinstance(rule, ArrayKernel)
        kernel = self.object(rule, rule.function if isinstance(rule, ArrayKernel) else rule, "k")
        arguments = [self.value(atom) for atom in equation.inputs]
        for key, value in equation.params.items():
            arguments.append(f"{key}={self.object(('param', cache_key(value)), value, 'p')}")
        outputs = ", ".join(self.name(var) for var in equation.outputs) if equation.outputs else "_"
        self.lines.append(f"    {outputs}{'' if single or not equation.outputs else ','} = "
                          f"{kernel}({', '.join(arguments)})")

    def drop(self, variables: Sequence[Variable]) -> None:
        """Add the line that deletes values."""
        if variables:
            self.lines.append(f"    del {', '.join(map(self.name, variables))}")


class _FloatWriter(_CodeWriter):
    """A writer for programs of float64 scalars alone, which are Python floats between inputs and results."""

    def constant(self, value: Any) -> Any:
        return float(value)

    def output(self, atom: Atom) -> str:
        return f"{self.object(np.float64, np.float64, 't')}({self.value(atom)})"

    def scalars(self, inputs: Sequence[Variable]) -> list[str]:
        return [f"    {name} = float({name})" for name in map(self.name, inputs)]

    def snippet(self, equation: Equation, call: Snippet, target: Variable | None) -> None:
        super().snippet(equation, call._replace(text=call.of_floats), target)
