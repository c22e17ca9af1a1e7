"""Programs as straight-line Python code: one line an operation, in place where that is unobservable.

The code calls the kernels that the interpreter calls, on arrays of the same layout, so the results are equal bit for
bit. It saves the interpreter's loop, frees dead values, and reuses memory: an operation writes its result over a dead
operand, or over an earlier dead value of the same type, if the code itself has allocated that array. Scalars of float64
and bool are Python's numbers where that pays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import PYTHON_AVALS, Aval, Literal
from fxgrad.engine.core.cache_keys import cache_key
from fxgrad.engine.core.primitive import ArrayKernel
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import calls_user_code, is_effectful
from fxgrad.engine.derivation.simplify import live_equations
from fxgrad.engine.executors.idioms import Operation, group
from fxgrad.engine.ops.below_byte import has_below_byte, kernel_for
from fxgrad.engine.ops.snippets import Snippet, snippet_of
from fxgrad.engine.ops.structural import reshape_p, transpose_p


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
    operations = group(program, equations, calls)
    storage = _Storage(program, operations)
    of_numbers = _operations_of_numbers(program, operations)
    writer = _CodeWriter(program, constants, _inlined_numbers(program, operations, of_numbers))
    writer.store(storage.owners([atom for operation in operations if operation.call and operation.call.takes_stored
                                 for atom in operation.inputs]))
    for index, operation in enumerate(operations):
        target = storage.targets.get(index)
        if target is not None:
            writer.rename(operation.outputs[0], target)
        if operation.call is None:
            writer.kernel(operation.equation)
        elif index in of_numbers:
            writer.numbers(operation, operation.call)
        else:
            writer.snippet(operation, operation.call, target)
        writer.drop(storage.dropped[index])
    returned, borrowed = [], []
    made = _arrays_made(operations)
    given: set[Atom] = {*program.inputs, *constants}
    for index, atom in enumerate(program.outputs):
        returned.append(writer.operand(atom, _NUMPY))
        array = made.get(atom, atom)
        if type(atom) is Variable and (atom not in made or array in given):
            borrowed.append(index)
        given.add(array)  # a second output of the same array must be copied
    writer.namespace["borrowed"] = borrowed
    inputs = ", ".join(writer.name(var) for var in program.inputs)
    lines = [f"def run({inputs}):", *writer.conversions, *writer.lines, f"    return [{', '.join(returned)}]"]
    return "\n".join(lines) + "\n", writer.namespace


def _arrays_made(operations: Sequence[Operation]) -> dict[Atom, Variable]:
    """Return the variable whose array, made by the code, is all of a variable's: its own, or seen in another order."""
    made: dict[Atom, Variable] = {}
    for operation in operations:
        call, equation = operation.call, operation.equation
        if call is not None and call.owned:
            made.update((var, var) for var in operation.outputs)
        elif call is not None and equation.primitive in (transpose_p, reshape_p) and equation.inputs[0] in made and (
                equation.outputs[0].aval.shape):  # scalars become NumPy's as borrowed ones do
            made[equation.outputs[0]] = made[equation.inputs[0]]
    return made


# --- scalars as Python's numbers --------------------------------------------------------------------------

_NUMBER, _NUMPY, _ARRAY, _ANY = "number", "NumPy", "array", "any"
"""The forms of a scalar: Python's number, NumPy's scalar, an array of shape (); and whichever there is.

Python's arithmetic takes a third of the time of NumPy's scalars, and rounds alike. A ufunc of an array and a scalar
takes half the time if the scalar is an array.
"""
_NUMBER_TYPES: dict[Any, type] = {np.dtype(np.float64): float, np.dtype(np.bool_): bool}


def _may_be_number(atom: Atom) -> bool:
    return not atom.aval.shape and atom.aval.dtype in _NUMBER_TYPES


def _form_wanted(operation: Operation) -> str:
    """Return the form of scalar operands for an operation that is not one of numbers."""
    call = operation.call
    if call is None:
        return _NUMPY
    return _ANY if call.takes_numbers else _ARRAY if call.in_place and operation.outputs[0].aval.shape else _NUMPY


def _operations_of_numbers(program: Program, operations: Sequence[Operation]) -> set[int]:
    """Return the indices of the operations that compute with Python's numbers.

    Those that hand numbers to each other form a group. It must repay the conversions of its operands, each of which
    takes as long as an operation saves, and of its results to NumPy's scalars, which take twice as long.
    """
    able = {index for index, operation in enumerate(operations)
            if operation.call and operation.call.of_numbers and all(map(_may_be_number, operation.outputs))
            and all(atom.aval.shape or _may_be_number(atom) for atom in operation.inputs)}
    maker = {var: index for index in able for var in operations[index].outputs}
    leader = {index: index for index in able}

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = index = leader[leader[index]]
        return index

    for index in able:
        for atom in operations[index].inputs:
            if atom in maker:
                leader[find(index)] = find(maker[atom])  # type: ignore[index]
    gain = dict.fromkeys(able, 0)
    converted: set[tuple[Atom, int]] = set()
    for index, operation in enumerate(operations):
        if index in able:
            group_of = find(index)
            gain[group_of] += not any(atom.aval.shape for atom in operation.inputs)
            converted.update((atom, group_of) for atom in operation.inputs
                             if type(atom) is Variable and not atom.aval.shape and atom not in maker)
    needed: set[Atom] = {*program.outputs}
    for index, operation in enumerate(operations):
        if index not in able and _form_wanted(operation) is _NUMPY:
            needed.update(operation.inputs)
    for _, group_of in converted:
        gain[group_of] -= 1
    for var, index in maker.items():
        gain[find(index)] -= 2 * (var in needed)
    return {index for index in able if gain[find(index)] > 0}


def _inlined_numbers(program: Program, operations: Sequence[Operation], of_numbers: set[int]) -> set[Atom]:
    """Return the numbers that may be written as expressions where they are used: once, by an operation of numbers."""
    uses = Counter(atom for operation in operations for atom in operation.inputs)
    uses.update(program.outputs)
    made = {operations[index].outputs[0] for index in of_numbers if not any(
        atom.aval.shape for atom in operations[index].inputs)}
    return {atom for index in of_numbers for place, atom in enumerate(operations[index].inputs)
            if atom in made and uses[atom] == 1 and operations[index].call.of_numbers.count(f"{{{place}}}") == 1}  # type: ignore[union-attr]


_LONGEST = 200
"""The most characters of an expression that is written where it is used."""
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

    def __init__(self, program: Program, operations: Sequence[Operation]) -> None:
        self.targets: dict[int, Variable] = {}
        self.dropped: list[list[Variable]] = [[] for _ in operations]
        self._sharing: dict[Atom, frozenset[Variable]] = {var: frozenset([var]) for var in program.inputs}
        self._contiguous: set[Variable] = set()
        self._free: dict[Aval, list[Variable]] = {}
        self._taken: set[Variable] = set()
        for operation in operations:
            self._follow(operation)
        self._end = self._ends(program, operations)
        self._ending: dict[int, list[Variable]] = {}
        for var, end in self._end.items():
            self._ending.setdefault(end, []).append(var)
        for index, operation in enumerate(operations):
            self._allocate(index, operation)
        self._drop(program, operations)

    def _follow(self, operation: Operation) -> None:
        """Record which operands the outputs share memory with, and whether they are new arrays in row-major order."""
        call = operation.call
        operands = [atom for atom in operation.inputs if type(atom) is Variable and atom in self._sharing]
        if call is not None and call.owned:
            self._sharing.update((out, frozenset([out])) for out in operation.outputs)
            out = operation.outputs[0]
            # Among several elementwise operands one of the full shape decides; a reduction has one operand.
            deciding = [atom for atom in operands if not call.in_place or atom.aval.shape == out.aval.shape]
            if out.aval.ndim <= 1 or call.row_major or not self._contiguous.isdisjoint(deciding):
                self._contiguous.add(out)
        else:
            shared = frozenset().union(*(self._sharing[atom] for atom in operands))
            for out in operation.outputs:
                self._sharing[out] = shared | {out}

    def owners(self, atoms: Sequence[Atom]) -> list[Atom]:
        """Return the atoms whose memory `atoms` are, or are views of, each once."""
        return [*dict.fromkeys(owner for atom in atoms for owner in self._sharing.get(atom, (atom,)))]

    def _ends(self, program: Program, operations: Sequence[Operation]) -> dict[Variable, int]:
        """Return the operation after which the memory of each variable is dead."""
        end: dict[Variable, int] = {}
        nobody: frozenset[Variable] = frozenset()  # for literals and constants
        for index, operation in enumerate(operations):
            for atom in (*operation.inputs, *operation.outputs):
                for owner in self._sharing.get(atom, nobody):
                    end[owner] = index
        for atom in program.outputs:
            for owner in self._sharing.get(atom, nobody):
                end[owner] = len(operations)
        return end

    def _allocate(self, index: int, operation: Operation) -> None:
        ending, call = self._ending.get(index, ()), operation.call
        if call is not None and "out}" in call.text:
            out = operation.outputs[0]
            if out in self._contiguous and out.aval.size:
                self._choose(index, out, [var for var in ending if var in operation.inputs] if call.in_place else [])
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

    def _drop(self, program: Program, operations: Sequence[Operation]) -> None:
        """Choose after which operation to delete each name, unless its array continues under the name.

        A scalar that may be a view keeps an array alive; other scalars need no deletion.
        """
        kept = {*program.outputs, *(var for var in program.inputs if not var.aval.shape)}
        last: dict[Variable, int] = {}
        for index, operation in enumerate(operations):
            if operation.call is not None and operation.call.owned:
                kept.update(var for var in operation.outputs if not var.aval.shape)
            for atom in (*operation.inputs, *operation.outputs):
                if type(atom) is Variable and atom in self._sharing:
                    last[atom] = index
        for var, index in last.items():
            if var not in kept and var not in self._taken:
                self.dropped[index].append(var)


def _memory(var: Variable) -> Aval:
    return var.aval.strong()


class _CodeWriter:
    """Names for variables, kernels and constants, and the lines of the function.

    `conversions` are the lines at its beginning, which convert scalar inputs, and copy those that repeat elements.
    """

    def __init__(self, program: Program, constants: dict[Atom, Any], inlined: set[Atom]) -> None:
        self._constants, self._inlined = constants, inlined
        self._inputs = {*program.inputs}
        self.conversions: list[str] = []
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self._names: dict[Variable, str] = {var: f"x{index}" for index, var in enumerate(program.inputs)}
        self._forms: dict[Variable, dict[str, str]] = {var: {} for var in program.inputs if not var.aval.shape}
        self._objects: dict[Any, str] = {}

    def name(self, var: Variable) -> str:
        """Return the Python name of a variable."""
        return self._names.setdefault(var, f"v{len(self._names)}")

    def rename(self, var: Variable, other: Variable) -> None:
        """Give `var` the name of `other`, whose array it overwrites."""
        self._names[var] = self._names[other]

    def store(self, atoms: Sequence[Atom]) -> None:
        """Have inputs and constants among `atoms` store all their elements."""
        for atom in atoms:
            if atom in self._constants:
                self._constants[atom] = np.ascontiguousarray(self._constants[atom])
            elif atom in self._inputs and atom.aval.shape:
                self.namespace["stored"], name = np.ascontiguousarray, self.name(atom)  # type: ignore[arg-type]
                self.conversions.append(f"    if 0 in {name}.strides: {name} = stored({name})")

    def operand(self, atom: Atom, form: str) -> str:
        """Return the expression of an operand; `form` is that of a scalar."""
        if isinstance(atom, Literal) or atom in self._constants:
            value = atom.value if isinstance(atom, Literal) else self._constants[atom]
            if not atom.aval.shape:
                if form is _NUMBER or (form is _ANY and _may_be_number(atom)):
                    value = _NUMBER_TYPES[atom.aval.dtype](value)
                    if not isfinite(value):
                        return self.object(("number", atom), value, "c")
                    return f"({value!r})" if repr(value).startswith("-") else repr(value)
                if form is _ARRAY:
                    return self.object(("array", atom), np.array(value), "c")
            return self.object(atom, value, "c")
        return self.name(atom) if atom.aval.shape else self._scalar(atom, form)

    def _scalar(self, var: Variable, form: str) -> str:
        """Return the name of a scalar variable in a form, into which it is converted if need be."""
        forms = self._forms[var]
        if form is _ANY:
            form = _NUMBER if _NUMBER in forms or (_NUMPY not in forms and _may_be_number(var)) else _NUMPY
        if form is _ARRAY and var.aval.dtype.kind not in "biufc":
            form = _NUMPY
        if form in forms:
            return forms[form]
        name, kind, number = self.name(var), var.aval.dtype.type, _NUMBER_TYPES.get(var.aval.dtype)
        lines = self.conversions if var in self._inputs else self.lines
        if var in self._inputs and form is _NUMPY:
            known = self.object(("type", kind), kind, "t")
            self.namespace["scalar"] = as_kernel_operand
            # Before the other conversions of this input, which read its name.
            lines.append(f"    if type({name}) is not {known}: {name} = scalar({name})")
            return forms.setdefault(form, name)
        given = name if var in self._inputs else next(iter(forms.values()))
        made = f"{form[0].lower()}{name}"
        if form is _ARRAY:
            self.namespace["array"] = np.array
            lines.append(f"    {made} = array({given})")
        elif form is _NUMBER:
            assert number is not None
            lines.append(f"    {made} = {number.__name__}({given})")
        else:
            lines.append(f"    {made} = {self.object(('type', kind), kind, 't')}({given})")
        return forms.setdefault(form, made)

    def object(self, key: Any, value: Any, prefix: str) -> str:
        """Return the name under which the function finds `value`."""
        name = self._objects.get(key)
        if name is None:
            name = self._objects[key] = f"{prefix}{len(self._objects)}"
            self.namespace[name] = value
        return name

    def numbers(self, operation: Operation, call: Snippet) -> None:
        """Add the line of an operation that computes with Python's numbers."""
        operands = [self.operand(atom, _NUMBER) for atom in operation.inputs]
        text = call.of_numbers.format(*operands)
        if operation.outputs[0] in self._inlined and len(text) < _LONGEST:
            self.namespace.update(call.objects)
            self._forms[operation.outputs[0]] = {_NUMBER: f"({text})"}
        else:
            self._add(operation, call, text, _NUMBER)

    def snippet(self, operation: Operation, call: Snippet, target: Variable | None) -> None:
        """Add the line of an operation with an expression of its own."""
        form = _form_wanted(operation)
        operands = [self.operand(atom, form) for atom in operation.inputs]
        place, named = ("", "") if target is None else (f", {self.name(target)}", f", out={self.name(target)}")
        self._add(operation, call, call.text.format(*operands, out=place, named_out=named), _NUMPY)

    def _add(self, operation: Operation, call: Snippet, text: str, form: str) -> None:
        self.namespace.update(call.objects)
        self.lines.append(f"    {self._results(operation.outputs, form)} = {text}")

    def _results(self, outputs: Sequence[Variable], form: str) -> str:
        self._forms.update((var, {form: self.name(var)}) for var in outputs if not var.aval.shape)
        return ", ".join(map(self.name, outputs))

    def kernel(self, equation: Equation) -> None:
        """Add the line of one equation: it calls the kernel's own function if there is one output."""
        rule = kernel_for(equation)
        single = isinstance(rule, ArrayKernel)
        kernel = self.object(rule, rule.function if isinstance(rule, ArrayKernel) else rule, "k")
        arguments = [self.operand(atom, _NUMPY) for atom in equation.inputs]
        for key, value in equation.params.items():
            arguments.append(f"{key}={self.object(('param', cache_key(value)), value, 'p')}")
        outputs = self._results(equation.outputs, _NUMPY) if equation.outputs else "_"
        self.lines.append(f"    {outputs}{'' if single or not equation.outputs else ','} = "
                          f"{kernel}({', '.join(arguments)})")

    def drop(self, variables: Sequence[Variable]) -> None:
        """Add the line that deletes values; Python's numbers need no deletion."""
        names = [self.name(var) for var in variables if _NUMPY in self._forms.get(var, (_NUMPY,))]
        if names:
            self.lines.append(f"    del {', '.join(names)}")
