"""Programs as stand-alone Python files, which import NumPy and compute the same bits as the NumPy executor.

Each equation becomes one statement, in the names of the user's variables, with the user's line beside it; loops and
branches are Python's, and programs that operations hold are functions. Kernels without a NumPy function are copied
below, with their source (`carried.py`).
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import numpy as np

from fxgrad.errors import UnsupportedError
from fxgrad.extend import (
    Atom,
    Equation,
    Literal,
    Program,
    Tracer,
    Variable,
    drop_devices,
    inner_first,
    live_equations,
    primitives,
    require_all_paths,
)
from fxgrad.extend.kernels import WIDER, ArrayKernel, Snippet, kernel_for, snippet_of
from fxgrad.extend.sizes import require_numbers
from fxgrad.shipping.python import constants
from fxgrad.shipping.python.carried import Carrier, FileDefinition, refuse_internals
from fxgrad.shipping.python.containers import Containers
from fxgrad.shipping.python.docstrings import docstring_of
from fxgrad.shipping.python.layout import WIDTH, break_line, wrap_code
from fxgrad.shipping.python.statements import region_statements
from fxgrad.shipping.python.trees import SourceRefusal, parse_expression
from fxgrad.text.names import UniqueNames, variable_names
from fxgrad.text.parameters import order_parameters
from fxgrad.text.quoting import docstring_lines, one_line
from fxgrad.text.sources import Sources

INDENT = "    "


def python_text(program: Program, *, source: bool = True) -> str:
    r"""Return `program` as the text of a Python file of one public function, which imports NumPy alone.

    The function has the name of the program, and takes and returns the containers that the program was traced with.
    Files of programs with dtypes or kernels that need SciPy or ml_dtypes import these too.
    With `source`, statements end with the user's lines.

    >>> import fxgrad
    >>> def f(x):
    ...     wave = np.sin(x)
    ...     return {"area": np.sum(wave * x)}
    >>> print(python_text(fxgrad.make_program(f)(np.ones(3)), source=False).split("\n\n\n")[2])
    @np.errstate(all='ignore')
    def f(x):
        x = array_of(x, 'x', 'float64', (3,))
        wave = np.sin(x)
        a = wave * x
        b = np.sum(a)
        return {'area': b}

    Raises `UnsupportedError`, which names the operation and the user's line, if a kernel runs XLA or calls a user's
    function, and if the results are in a container that is not one of Python's own.
    """
    return PythonFile(require_all_paths("to_python", program), source).text()


class PythonFile:
    """One file: the main function, the functions that it calls, and their requirements."""

    def __init__(self, program: Program, source: bool) -> None:
        program = drop_devices(require_numbers("to_python", program))
        self._main, self._source = program, source
        self.sources = Sources()
        self._names: dict[int, dict[Variable, str]] = {}
        self._functions: dict[int, str] = {}
        self._text: list[str] = []
        signature = program.signature
        self._what = "function" if signature is None else signature.title or signature.name
        reserved = [*keyword.kwlist, "np", "at", "states"]
        found = {id(inner): variable_names(inner, self.sources) for inner in inner_first(program)}
        arguments = [_identifier(found[id(program)][var]) for var in program.inputs]
        # `grad_loss` of `grad(loss, [weights, bias])`; values inside give way to it, arguments do not.
        self._title = UniqueNames([*reserved, *arguments])(_identifier(self._what.partition(", [")[0]))
        for key, names in found.items():
            unique = UniqueNames([*reserved, self._title])
            self._names[key] = {var: unique(_identifier(name)) for var, name in names.items()}
        taken = {name for names in self._names.values() for name in names.values()}
        self._unique = UniqueNames([*taken, *reserved, self._title])
        self.carrier = Carrier(self._unique)

    def text(self) -> str:
        """Return the whole file."""
        self.carrier.root("numpy")
        main = self._function(self._main)
        needs = [name for name in ("ml_dtypes", "scipy") if name in self.carrier.imports]
        also = f" and {' and '.join(needs)}" if needs else ""
        head, = docstring_lines(
            f"`{one_line(self._what)}`, as fxgrad traced it: a file that needs NumPy 2{also}, and nothing else.")
        parts = [head, "\n".join(sorted(self.carrier.imports.values(), key=lambda line: line.split()[1])), main,
                 *self._text]
        if self.carrier.functions:
            parts.append("# --- what NumPy has no function for " + "-" * 70)
            parts += [wrap_code(definition.text) for definition in self.carrier.functions]
        if self.carrier.constants:
            parts.append("# --- constants " + "-" * 91)
            parts.append("\n".join(wrap_code(definition.text) for definition in self.carrier.constants))
        return "\n\n\n".join(parts) + "\n"

    # --- functions --------------------------------------------------------------------------------------------

    def function(self, program: Program, wanted: str) -> str:
        """Return the name of the function of a program that an operation holds."""
        known = self._functions.get(id(program))
        if known is None:
            known = self._functions[id(program)] = self._unique(_identifier(wanted))
            place = len(self._text)
            self._text.insert(place, "")
            names = self._names[id(program)]
            head = f"def {known}({', '.join(names[var] for var in program.inputs)}):"
            outputs = [self.atom(names, atom) for atom in program.outputs]
            result = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
            body = [*self._body(program), f"return {result}"]
            self._text[place] = "\n".join([head, *(INDENT + line for line in body)])
        return known

    def _function(self, program: Program) -> str:
        names = self._names[id(program)]
        containers = Containers(program, names, self.carrier, self._unique)
        lines = []
        docs = docstring_of(program)
        if docs and program.signature is not None and self._what != program.signature.name:
            docs = f"This is {self._what}. Of {program.signature.name} itself:\n\n{docs}"
        if docs:
            lines += docstring_lines(docs)
        for var, value in zip(program.inputs, program.constants, strict=False):
            if isinstance(value, Tracer):
                raise UnsupportedError("to_python: a constant of the program is a traced array, which has no elements "
                                       "yet. Write the program outside of the transformation that traces it")
            text = constants.value_text(np.asarray(value)[()], repr, self.carrier.root)
            self.carrier.constants.append(FileDefinition(names[var], f"{names[var]} = {text}"))
        lines += [line for statement in containers.taken() for line in break_line(statement, WIDTH - 4)]
        lines += self._body(program)
        lines.append(f"return {containers.returned([self._result(program, names, atom) for atom in program.outputs])}")
        head = f"@np.errstate(all='ignore')\ndef {self._title}({', '.join(containers.parameters)}):"
        return "\n".join([head, *((INDENT + line).rstrip() for line in lines)])

    def _body(self, program: Program) -> list[str]:
        names = self._names[id(program)]
        lines: list[str] = []
        for equation in live_equations(program):
            try:
                statements = self.statements(equation, names)
            except SourceRefusal as refusal:
                raise UnsupportedError(self._refusal_text(equation, str(refusal))) from None
            shown = equation.source if self._source else None
            comment = "" if shown is None else f"  # {self.sources.comment(shown)}"
            first, *rest = [line for statement in statements for line in break_line(statement, WIDTH - 4)]
            lines += [first + comment, *rest]
        return lines

    def _refusal_text(self, equation: Equation, reason: str) -> str:
        source = equation.source
        line = "" if source is None else f"\n  at {self.sources.comment(source)} (in {source.code.co_name})"
        return (f"to_python: {equation.primitive} {reason}, so that no file of NumPy alone can compute it. Leave it "
                "out of the function, or keep the program itself: pickle.dumps(program), or program_text(program)"
                f"{line}")

    # --- equations --------------------------------------------------------------------------------------------

    def statements(self, equation: Equation, names: dict[Variable, str]) -> list[str]:
        """Return the statements of an equation."""
        if equation.regions:
            return region_statements(self, equation, names)
        simple = self._simple(equation, names)
        if simple:
            return [f"{names[equation.outputs[0]]} = {simple}"]
        below_byte = kernel_for(equation) is not equation.primitive.numpy
        snippet = None if below_byte else snippet_of(
            equation.primitive, [atom.aval for atom in equation.inputs], equation.params)
        if snippet is not None and not any(getattr(value, "__closure__", None) for value in snippet.objects.values()):
            return [f"{names[equation.outputs[0]]} = {self._expression(equation, snippet, names)}"]
        rule = equation.primitive.numpy
        if below_byte:
            dtype = next(atom.aval.dtype for atom in (*equation.inputs, *equation.outputs) if atom.aval.dtype in WIDER)
            raise SourceRefusal(f"is of {dtype.name}, with which NumPy does not compute (it does with "
                                f"x.astype({WIDER[dtype].name!r}))")
        function = rule.function if isinstance(rule, ArrayKernel) else rule
        if isinstance(function, FunctionType):
            refuse_internals(function)
        self.carrier.operation = _identifier(equation.primitive.name)
        operands = [self.atom(names, atom) for atom in equation.inputs]
        params = {name: self._parameter(value) for name, value in order_parameters(
            equation.primitive, equation.params).items()}
        targets = ", ".join(names[var] for var in equation.outputs)
        if isinstance(rule, ArrayKernel):
            inlined = self.carrier.inlined(function, operands, params)
            if inlined is not None:
                return [f"{targets} = {inlined}"]
        else:
            targets += "," * (len(equation.outputs) == 1)
        arguments = ", ".join([*operands, *(f"{name}={text}" for name, text in params.items())])
        call = f"{self.carrier.expression(function)}({arguments})"
        return [f"{targets} = {call}" if targets else call]

    def _simple(self, equation: Equation, names: dict[Variable, str]) -> str:
        """Return a call of a NumPy function that is shorter than the kernel; "" for most operations."""
        if equation.primitive is primitives.broadcast_to and isinstance(equation.inputs[0], Literal):
            return f"np.full({equation.params['shape']}, {self.atom(names, equation.inputs[0])})"
        if equation.primitive is primitives.convert_element_type:
            before, after = equation.inputs[0].aval.dtype, equation.params["dtype"]
            widens = before.kind in "biu" or (before.kind in "fc" and after.kind == before.kind)
            if widens and after.isbuiltin == 1:
                kind = constants.scalar_class_text(after, self.carrier.root)
                return f"{self.atom(names, equation.inputs[0])}.astype({kind}, copy=False)"
        return ""

    def _parameter(self, value: Any) -> str:
        if isinstance(value, np.dtype):
            return constants.dtype_expression(value, self.carrier.root)
        return self.carrier.expression(value)

    def _expression(self, equation: Equation, snippet: Snippet, names: dict[Variable, str]) -> str:
        """Return the expression of a snippet: ufuncs as operators if Python's call them, plain numbers with arrays."""
        plain = snippet.in_place or "dot" not in snippet.text
        operands = [self._operand(equation, names, atom, plain) for atom in equation.inputs]
        places = {f"operand_{index}": parse_expression(text) for index, text in enumerate(operands)}
        text = snippet.text.format(*places, out="", named_out="")
        aval = equation.outputs[0].aval
        # Python's operators on scalars are not always the ufuncs: those of complex numbers may round otherwise.
        exact = bool(aval.shape) or all(atom.aval.dtype.kind in "biuf" for atom in equation.inputs)
        tree = _SnippetFilling(places, snippet, self.carrier, exact
                               and any(atom.aval.shape for atom in equation.inputs)).visit(
            parse_expression(text))
        return ast.unparse(tree)

    def _operand(self, equation: Equation, names: dict[Variable, str], atom: Atom, plain: bool) -> str:
        if isinstance(atom, Literal) and plain and any(type(other) is Variable and other.aval.dtype == atom.aval.dtype
                                                       for other in equation.inputs):
            text = constants.plain_text(atom.value, self.carrier.root) if atom.aval.dtype.kind in "iufc" else None
            if text is not None:
                return text
        return self.atom(names, atom)

    def atom(self, names: dict[Variable, str], atom: Atom) -> str:
        """Return the expression of a variable or a number."""
        if isinstance(atom, Literal):
            return constants.scalar_text(atom.value, self.carrier.root)
        return names[atom]

    # --- results ----------------------------------------------------------------------------------------------

    def _result(self, program: Program, names: dict[Variable, str], atom: Atom) -> str:
        """Return a result that shares no memory, and a NumPy scalar for the shape ()."""
        text = self.atom(names, atom)
        if isinstance(atom, Literal):
            return text
        if atom in program.inputs or program.outputs.count(atom) > 1:
            return f"{text}.copy()"
        maker = next(equation for equation in program.equations if atom in equation.outputs)
        made = snippet_of(maker.primitive, [each.aval for each in maker.inputs], maker.params)
        is_scalar = made is not None and made.owned and all(
            isinstance(value, np.ufunc) or value == np.add.reduce for value in made.objects.values())
        return text if atom.aval.shape or is_scalar else f"{text}[()]"


_OPERATORS: dict[Any, Any] = {
    np.add: ast.Add, np.subtract: ast.Sub, np.multiply: ast.Mult, np.true_divide: ast.Div, np.bitwise_and: ast.BitAnd,
    np.bitwise_or: ast.BitOr, np.bitwise_xor: ast.BitXor, np.greater: ast.Gt, np.greater_equal: ast.GtE,
    np.less: ast.Lt, np.less_equal: ast.LtE, np.equal: ast.Eq, np.not_equal: ast.NotEq, np.negative: ast.USub}


class _SnippetFilling(ast.NodeTransformer):
    """Puts operands and objects into the expression of a snippet."""

    def __init__(self, places: dict[str, ast.expr], snippet: Snippet, carrier: Carrier, operators: bool) -> None:
        self._places, self._objects, self._carrier, self._operators = places, snippet.objects, carrier, operators

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in self._places:
            return self._places[node.id]
        return parse_expression(self._carrier.expression(self._objects[node.id],
                                                       node.id)) if node.id in self._objects else node

    def visit_Call(self, node: ast.Call) -> Any:
        name = getattr(node.func, "id", "")
        function = self._objects.get(name)
        operator = _OPERATORS.get(function) if isinstance(function, np.ufunc) and self._operators else None
        if operator is None or node.keywords:
            return self.generic_visit(node)
        operands: Sequence[Any] = [self.visit(arg) for arg in node.args]
        if issubclass(operator, ast.unaryop):
            return ast.UnaryOp(operator(), *operands)
        if issubclass(operator, ast.cmpop):
            return ast.Compare(operands[0], [operator()], [operands[1]])
        return ast.BinOp(operands[0], operator(), operands[1])


def _identifier(name: str) -> str:
    """Return `params_w` for `params.w`."""
    words = re.sub(r"\W+", "_", name).strip("_") or "value"
    return f"_{words}" if words[0].isdigit() else words
