"""Computing with NumPy: a plain interpreter of the kernels, and straight-line Python code generated from programs.

A program seen for the first time is interpreted; from its second run on, generated code runs, which calls the
same kernels in the same order, so the results are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import config
from fxgrad.core.avals import Literal
from fxgrad.core.primitive import ArrayKernel, Primitive
from fxgrad.core.program import Atom, Equation, Program, Var
from fxgrad.core.simplify import live_equations
from fxgrad.core.tape import aval_of, infer
from fxgrad.errors import FxgradError

Runner = Callable[..., list[Any]]


def concrete(value: Any) -> Any:
    """A kernel's operand: literals and Python scalars as NumPy scalars, everything else as it is."""
    if type(value) is Literal:
        return value.value
    if type(value) in (bool, int, float, complex):
        return np.asarray(value, aval_of(value).dtype)[()]
    return value


def evaluate(primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """One primitive on NumPy values; illegal operands get the error of the abstract rule."""
    values = [concrete(arg) for arg in args]
    try:
        with np.errstate(all="ignore"):
            outputs: list[Any] = primitive.numpy(*values, **params)
    except FxgradError:
        raise
    except Exception:
        infer(primitive, [aval_of(value) for value in values], params)
        raise
    return outputs


def execute(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """A program on NumPy values. The results own their memory: none is an input or a view of one."""
    with np.errstate(all="ignore"):
        return [owned(output) for output in call(program, inputs)]


def call(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """A program on NumPy values, as part of another one: results may be views of inputs."""
    runner: Runner | None = program.memo.get("numpy")
    if runner is not None:
        return runner(*inputs)
    if "numpy_seen" in program.memo:
        return _generated(program)(*inputs)
    program.memo["numpy_seen"] = True
    return interpret(program, inputs)


def owned(value: Any) -> Any:
    """`value` as a result: an array that is no view and can be written to, or a NumPy scalar for shape ()."""
    if type(value) is np.ndarray:
        if not value.shape:
            return value[()]
        # Inputs themselves were copied where they were returned; views are told by their base.
        if value.base is not None or not value.flags.writeable:
            return value.copy()
    return value


def interpret(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """The reference: calls the kernels one by one, and at check level 2 verifies what they return."""
    environment: dict[Var, Any] = dict(zip(program.inputs, map(concrete, inputs), strict=True))
    for equation in live_equations(program):
        values = [_read(environment, atom) for atom in equation.inputs]
        outputs = equation.primitive.numpy(*values, **equation.params)
        if config.check_level >= 2:
            _check_values(equation, outputs)
        environment.update(zip(equation.outputs, outputs, strict=True))
    given = {id(value) for value in inputs}
    return [_unaliased(_read(environment, atom), given) for atom in program.outputs]


def _unaliased(value: Any, given: set[int]) -> Any:
    return value.copy() if id(value) in given and type(value) is np.ndarray else value


def _read(environment: dict[Var, Any], atom: Atom) -> Any:
    return atom.value if isinstance(atom, Literal) else environment[atom]


def _check_values(equation: Equation, outputs: Sequence[Any]) -> None:
    for var, output in zip(equation.outputs, outputs, strict=True):
        if np.shape(output) != var.aval.shape or output.dtype != var.aval.dtype:
            raise AssertionError(
                f"the numpy rule of {equation.primitive} returned {output.dtype}{list(np.shape(output))}, "
                f"where its abstract rule gives {var.aval}; this is a bug in the primitive")


# --- generated code ---------------------------------------------------------------------------------------


def _generated(program: Program) -> Runner:
    runner: Runner | None = program.memo.get("numpy")
    if runner is None:
        source, namespace = generate(program)
        exec(compile(source, "<fxgrad>", "exec"), namespace)  # the source is our own, made of names and numbers
        runner = program.memo["numpy"] = namespace["run"]
    return runner


def generate(program: Program) -> tuple[str, dict[str, Any]]:
    """Straight-line source of a function `run(*inputs)`, and the namespace of kernels and constants it needs.

    Dead equations are left out, and values are dropped after their last use.
    """
    writer = _Writer(program)
    equations = live_equations(program)
    last_use = {atom: index for index, equation in enumerate(equations) for atom in equation.inputs
                if type(atom) is Var}
    kept = {atom for atom in program.outputs if type(atom) is Var}
    inputs = ", ".join(writer.name(var) for var in program.inputs)
    for var in program.inputs:
        if not var.aval.shape:
            writer.lines.append(f"    {writer.name(var)} = scalar({writer.name(var)})")
    writer.namespace["scalar"] = concrete
    for index, equation in enumerate(equations):
        writer.equation(equation)
        dead = [atom for atom in dict.fromkeys((*equation.inputs, *equation.outputs))
                if type(atom) is Var and atom not in kept and last_use.get(atom, index) == index]
        if dead:
            writer.lines.append(f"    del {', '.join(writer.name(var) for var in dead)}")
    returned = []
    given = set(program.inputs)
    for atom in program.outputs:
        copied = isinstance(atom, Var) and atom in given and atom.aval.shape
        returned.append(writer.name(atom) + (".copy()" if copied else ""))
        given.add(atom)  # type: ignore[arg-type]  # a second output of the same value gets a copy of its own
    lines = [f"def run({inputs}):", *writer.lines, f"    return [{', '.join(returned)}]"]
    return "\n".join(lines) + "\n", writer.namespace


class _Writer:
    """Names for variables, kernels and constants, and the lines of the function."""

    def __init__(self, program: Program) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self._names: dict[Var, str] = {var: f"x{index}" for index, var in enumerate(program.inputs)}
        self._objects: dict[Any, str] = {}

    def name(self, atom: Atom) -> str:
        """The Python name of a variable, or of a literal's hoisted value."""
        if isinstance(atom, Literal):
            return self.object(atom, atom.value, "c")
        return self._names.setdefault(atom, f"v{len(self._names)}")

    def object(self, key: Any, value: Any, prefix: str) -> str:
        """The name under which the function finds `value`."""
        name = self._objects.get(key)
        if name is None:
            name = self._objects[key] = f"{prefix}{len(self._objects)}"
            self.namespace[name] = value
        return name

    def equation(self, equation: Equation) -> None:
        """Adds the line of one equation: the kernel's own function where it has one output."""
        rule = equation.primitive.numpy
        outputs = ", ".join(self.name(var) for var in equation.outputs)
        single = isinstance(rule, ArrayKernel)
        kernel = self.object(rule, rule.function if isinstance(rule, ArrayKernel) else rule, "k")
        arguments = [self.name(atom) for atom in equation.inputs]
        for key, value in equation.params.items():
            arguments.append(f"{key}={self.object(('param', type(value), value), value, 'p')}")
        if not equation.outputs:
            outputs = "_"
        self.lines.append(f"    {outputs}{'' if single or not equation.outputs else ','} = "
                          f"{kernel}({', '.join(arguments)})")
