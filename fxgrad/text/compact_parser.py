"""Build a program from the syntax tree of compact text: look up notations, and infer the types left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from fxgrad.errors import FxgradError, ProgramError, ProgramSyntaxError
from fxgrad.extend import (
    Atom,
    Aval,
    Equation,
    Literal,
    Primitive,
    Program,
    Signature,
    Variable,
    output_types,
    primitives,
)
from fxgrad.text import diagonals, indices, operators  # noqa: F401  (the last two fill the table)
from fxgrad.text.block_parser import parse_block
from fxgrad.text.expression_reader import steps
from fxgrad.text.expressions import (
    Body,
    Call,
    Group,
    Index,
    Infix,
    InputSyntax,
    Node,
    Numeral,
    Prefix,
    RoleSyntax,
    StatementSyntax,
    StaticArgument,
    TransposeSyntax,
)
from fxgrad.text.forms import Entry, Form, Item, Span
from fxgrad.text.gathers import IMPLIED, indices_key, make_gather
from fxgrad.text.literals import implied_aval, implying_types, kind_as_read
from fxgrad.text.names import NAMES as VARIABLE_NAMES
from fxgrad.text.notations import SEVERAL, call_names, meaning
from fxgrad.text.parsing import WRONG_PARAMS, ProgramBuilder, message_of_rule, nearest_name
from fxgrad.text.patterns import Pattern, pattern_array
from fxgrad.text.scope import UNTYPED
from fxgrad.text.sugar import desugar
from fxgrad.text.syntax import Binding, Constant, Reference, Use
from fxgrad.text.text_reader import convert_at
from fxgrad.text.tokens import Text


class CompactBuilder(ProgramBuilder):
    """Makes the programs of one document in the compact style."""

    DEFINED = "(inputs): ..."

    def _references(self, program: Any) -> Iterator[Reference]:
        yield from self._definitions_in_body(program.body)

    def _definitions_in_body(self, body: Body) -> Iterator[Reference]:
        for statement in body.statements:
            yield from self._definitions_in_node(statement.expression)
            for part in statement.parts:
                if isinstance(part.body, Body):
                    yield from self._definitions_in_body(part.body)
                elif part.body is not None and part.body.name in self._document.programs:
                    yield Reference(part.body.name, part.body.at)
        for output in body.outputs:
            yield from self._definitions_in_node(output)

    def _definitions_in_node(self, node: Node | RoleSyntax) -> Iterator[Reference]:
        """Yield the definitions that an expression uses."""
        pending: list[Any] = [node]
        while pending:
            top = pending.pop()
            if isinstance(top, Call):
                label = top.called or top.name
                if label in self._document.programs and not top.quoted:
                    yield Reference(label, top.at)
                yield from self._references_in([*top.params.values()])
                pending += reversed(top.arguments)
            elif isinstance(top, Infix):
                pending += [top.right, top.left]
            elif isinstance(top, Index):
                pending += [item for item in reversed(top.items) if isinstance(item, tuple) and type(item) is not Span]
                pending.append(top.base)
            elif isinstance(top, RoleSyntax):
                pending += reversed(top.inputs)
            elif isinstance(top, Prefix | Group | TransposeSyntax | InputSyntax):
                pending.append(top[1] if isinstance(top, Prefix) else top.operand if isinstance(top, InputSyntax)
                               else top[0])

    # --- programs -----------------------------------------------------------------------------------------

    def _program(self, syntax: Any) -> Program:
        body = Maker(self, {}, [])
        captured = [body.bind(target.name, Variable(self._declared_type(target)), target.at) for target,
                    _ in syntax.captured]
        inputs = [body.bind(target.name, Variable(self._declared_type(target)), target.at) for target in syntax.inputs]
        outputs = body.run(syntax.body)
        if syntax.types is not None and [atom.aval for atom in outputs] != syntax.types:
            given = [atom.aval for atom in outputs]
            shown = [", ".join(map(repr, avals)) or "nothing" for avals in (given, syntax.types)]
            self._text.fail(syntax.at, f"the program returns {shown[0]}, and its head says {shown[1]}", ProgramError)
        names = tuple(target.name for target in syntax.inputs)
        title = syntax.title
        inner = None if title is None else _made_of.fullmatch(title)  # `loss` of `vmap(grad(loss, [weights, bias]))`
        signature = None if title is None else Signature(inner[1] if inner else title, names, None, None, title)
        constants = self._constants([(Binding(target.name, self._declared_type(target), target.at), constant)
                                     for target, constant in syntax.captured])
        program = Program([*captured, *inputs], body.equations, outputs, len(captured), constants, signature)
        body.note(program)
        return program

    @staticmethod
    def _declared_type(target: Any) -> Aval:
        aval: Aval = target.aval
        return aval

    def _array(self, constant: Constant, aval: Aval) -> Any:
        if not isinstance(constant.value, Pattern):
            return super()._array(constant, aval)
        self._check_size(aval, constant.at)
        name, numbers = constant.value
        own = numbers if name == "arange" else numbers[:1]
        exact = [*convert_at(self._text, [*own], aval, constant.at), *numbers[len(own):]]
        try:
            return pattern_array(name, exact, aval)
        except (ValueError, TypeError, OverflowError) as error:
            self._text.fail(constant.at, str(error))

    # --- interface to the makers of bodies ----------------------------------------------------------------

    @property
    def text(self) -> Text:
        """The text, for messages."""
        return self._text

    @property
    def primitives(self) -> dict[str, Primitive]:
        """Operations by name."""
        return self._primitives

    def params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return parameters with placeholders of the syntax replaced."""
        return {name: self._value(value) for name, value in params.items()}

    def call(self, node: Call) -> tuple[Primitive, dict[str, Any]] | None:
        """Return the primitive and parameters of a call of a program defined under `where`; None for other calls."""
        label = node.called or node.name
        if node.quoted or not (node.called or label in self._defined):
            return None
        if label not in self._defined:
            self._unknown_program(label, node.at)
        primitive = self._primitive(node.name, node.at) if node.called else primitives.named_call
        params = self.params(node.params)
        if node.called and params.keys() - {"name"}:
            return primitive, {"program": self._defined[label], **params}
        if params.keys() - {"name"} or not isinstance(params.get("name", ""), str):
            self._text.fail(node.at, f"a call of the program {label!r} has one parameter at most, name=\"...\"")
        name = params.get("name", self._document.programs[label].name)
        return primitive, {"program": self._defined[label], "name": name}

    def defined(self, use: Use) -> Program:
        """Return the program that is defined under `where` by this label."""
        if use.name not in self._defined:
            self._unknown_program(use.name, use.at)
        return self._defined[use.name]

    def unknown(self, node: Call) -> None:
        """Raise for a call of an unknown name."""
        if node.quoted or node.name not in call_names():
            self._primitive(node.name, node.at)


class Maker:
    """Makes the equations of one body."""

    def __init__(self, builder: CompactBuilder, scope: dict[str, Variable], equations: list[Equation]) -> None:
        self.builder, self.scope, self.equations = builder, scope, equations
        self._bound: set[Variable] = set()
        self._implied: set[Variable] = set()
        # possible arrays of indices, of equal ones the first
        self._indices: dict[Any, Variable] = {}
        self.untyped: set[Variable] = set()

    def bind(self, name: str, var: Variable, at: int) -> Variable:
        """Give a variable its name."""
        if name in self.scope:
            self.fail(at, f"the name {name!r} is bound already")
        self.scope[name] = var
        self._bound.add(var)
        return var

    def note(self, program: Program) -> None:
        """Store the names of the text on a program, so that it is printed with them."""
        VARIABLE_NAMES.put(program, {var: name for name, var in self.scope.items()})
        UNTYPED.put(program, frozenset(self.untyped))
        IMPLIED.put(program, frozenset(self._implied))

    def run(self, body: Body) -> list[Atom]:
        """Make all equations of a body; returns its outputs."""
        for statement in body.statements:
            self._statement(statement)
        return [self.plain(node) for node in body.outputs]

    def _statement(self, syntax: StatementSyntax) -> None:
        outputs = self.emit(*parse_block(self, syntax)) if syntax.parts else self._equations(syntax.expression)
        if len(outputs) != len(syntax.targets):
            self.fail(syntax.at, f"the number of results is {len(outputs)}, and that of the names before '=' is "
                      f"{len(syntax.targets)}")
        for target, var in zip(syntax.targets, outputs, strict=True):
            if target.aval is not None and target.aval != var.aval:
                self.fail(target.at, f"{target.name} is {var.aval} here, and the text says {target.aval}",
                          ProgramError)
            if not isinstance(var, Variable) or var in self._bound:
                self.fail(syntax.at, "what no operation makes gets no second name; write the first where it is used")
            self.bind(target.name, var, target.at)
            if target.aval is None:
                self.untyped.add(var)

    def inside(self) -> Maker:
        """Return a maker of a program inside this one."""
        return Maker(self.builder, {}, [])

    def fail(self, at: int, problem: str, error: type[FxgradError] = ProgramSyntaxError) -> NoReturn:
        """Raise an error for a problem at a place of the text."""
        self.builder.text.fail(at, problem, error)

    # --- expressions --------------------------------------------------------------------------------------

    def _atom(self, node: Node) -> Atom | Numeral:
        """Return the value of an expression; a number without a type stays one until its neighbours are known."""
        if isinstance(node, Group):
            return self._atom(node.inner)
        if isinstance(node, Numeral):
            return node if node.aval is None else Literal(
                convert_at(self.builder.text, [node.value], node.aval, node.at)[0], node.aval)
        if isinstance(node, Use) and node.name in self.scope:
            return self.scope[node.name]
        if isinstance(node, StaticArgument):
            self.fail(node.at, "a type, a tuple or a string is no operand here")
        outputs = self._equations(node)
        if len(outputs) != 1:
            self.fail(node.at, f"an operand must be one value, and this has {len(outputs)}")
        return outputs[0]

    def plain(self, node: Node) -> Atom:
        """Return the value of an expression on its own: numbers get Python's types."""
        atom = self._atom(node)
        return self._literal(atom, ()) if isinstance(atom, Numeral) else atom

    def _literal(self, number: Numeral, beside: Sequence[Aval]) -> Literal:
        aval = implied_aval(kind_as_read(number.value), beside)
        return Literal(convert_at(self.builder.text, [number.value], aval, number.at)[0], aval)

    def _literals_with_types(self, form: Form | None, found: Sequence[Atom | Numeral]) -> list[Atom]:
        known = implying_types(form, [None if isinstance(atom, Numeral | Literal) else atom.aval for atom in found])
        return [self._literal(atom, known) if isinstance(atom, Numeral) else atom for atom in found]

    def _equations(self, node: Node) -> list[Any]:
        """Make the equations of an expression; returns the results of the last."""
        if isinstance(node, Use):
            return self._path(node)
        if isinstance(node, Group):
            return self._equations(node.inner)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Infix):
            left, right = node.left, node.right
            if node.operator == "**" and isinstance(right, Numeral) and right.aval is None and type(right.value) is int:
                return self._form(Form("infix", "**", 1, (right.value,)), [left], node.at)
            if node.operator == "@":
                left, left_turned = self._side(left)
                right, right_turned = self._side(right)
                return self._form(Form("infix", "@", 2, (left_turned, right_turned)), [left, right], node.at)
            return self._form(Form("infix", node.operator, 2), [left, right], node.at)
        if isinstance(node, Prefix):
            return self._form(Form("prefix", node.operator, 1), [node.operand], node.at)
        if isinstance(node, TransposeSyntax):
            return self._form(Form("turned", "T", 1), [node.base], node.at)
        if isinstance(node, Index):
            return self._index(self.plain(node.base), node.items, node.at)
        return self.fail(node.at, "an operation is needed here")

    def _side(self, node: Node) -> tuple[Node, bool]:
        """Return an operand of `@`, and whether it is transposed there."""
        if isinstance(node, TransposeSyntax):
            return node.base, True
        if isinstance(node, Use) and node.name.endswith(".T") and node.name not in self.scope:
            return Use(node.name[:-2], node.at), True
        return node, False

    def _form(self, form: Form, operands: Sequence[Node], at: int) -> list[Any]:
        return self.apply_meaning(form, [self._atom(operand) for operand in operands], at)

    def apply_meaning(self, form: Form, found: Sequence[Atom | Numeral], at: int) -> list[Any]:
        """Apply the operation of a form to these operands; return its results."""
        atoms = self._literals_with_types(form, found)
        avals = [atom.aval for atom in atoms]
        meant = meaning(form, avals, self.builder.primitives)
        if meant is None:
            shown = ", ".join(map(repr, avals))
            self.fail(at, f"{form.name} has no meaning here, with operands {shown}" if avals
                      else f"{form.name} has no meaning here")
        return self.emit(meant.primitive, [atoms[place] for place in meant.order], meant.params, at)

    def emit(self, primitive: Primitive, atoms: Sequence[Atom], params: dict[str, Any], at: int) -> list[Variable]:
        """Make an equation; returns its results."""
        try:
            avals = output_types(primitive, [atom.aval for atom in atoms], params)
        except (FxgradError, *WRONG_PARAMS) as error:
            self.fail(at, f"{primitive.name} refuses its inputs: {message_of_rule(error)}", ProgramError)
        outputs = [Variable(aval) for aval in avals]
        self.equations.append(Equation(primitive, [*atoms], params, outputs))
        key = indices_key(primitive, atoms, params)
        if key is not None:
            self._indices.setdefault(key, outputs[0])
        return outputs

    def _call(self, node: Call) -> list[Any]:
        operands: list[Node] = []
        for argument in node.arguments:
            if isinstance(argument, RoleSyntax | InputSyntax):
                self.fail(argument.at, f"{node.name} with operands by role or name needs ':' and its programs")
            if not isinstance(argument, StaticArgument):
                operands.append(argument)
        call = self.builder.call(node)
        if call is not None:
            atoms = self._literals_with_types(None, [self._atom(operand) for operand in operands])
            return self.emit(call[0], atoms, call[1], node.at)
        statics = tuple(argument.value for argument in node.arguments if isinstance(argument, StaticArgument))
        params = tuple(self.builder.params(node.params).items())
        form = Form("quoted" if node.quoted else "call", node.name, len(operands), statics, params)
        self.builder.unknown(node)
        if node.name in diagonals.NAMES and not node.quoted:
            if form != Form("call", node.name, 1):
                self.fail(node.at, f"{node.name} takes one array and nothing else here")
            return [diagonals.desugar_diagonal(node.name, self.plain(operands[0]),
                                               lambda form, atoms: self.apply_meaning(form, atoms, node.at)[0],
                                               lambda problem: self.fail(node.at, problem))]
        if node.name in SEVERAL and not node.quoted:
            return self._make_take(node, operands)
        return self._form(form, operands, node.at)

    # --- indices ------------------------------------------------------------------------------------------

    def _path(self, node: Use) -> list[Any]:
        """Return the value of a name with a suffix, `x.T` or `x[0]`, if the whole is not itself a name."""
        name = node.name
        ends = (at for at in range(len(name), 0, -1) if at == len(name) or name[at] in ".[")
        root = next((name[:at] for at in ends if name[:at] in self.scope), "")
        if not root:
            self.fail(node.at, f"no input and no equation above has bound the name {name!r}"
                      + nearest_name(name, self.scope))
        found: list[Any] = [self.scope[root]]
        for step in steps(name[len(root):]):
            if step == "T":
                found = self.apply_meaning(Form("turned", "T", 1), found, node.at)
            elif isinstance(step, int):
                found = self._index(found[0], (step,), node.at)
            else:
                self.fail(node.at, f"no input and no equation above has bound the name {name!r}"
                          + nearest_name(name, self.scope))
        return found

    def _index(self, base: Atom, items: Sequence[Any], at: int) -> list[Any]:
        shown: list[Item] = [item if item is None or isinstance(item, int | Span) else Entry() for item in items]
        arrays = [self.plain(item) for item, each in zip(items, shown, strict=True) if isinstance(each, Entry)]
        parts = any(isinstance(item, Span) and item != Span() for item in shown)
        if not any(isinstance(item, int | Entry) for item in shown) and not (parts and None in shown):
            return self.apply_meaning(Form("index", "[]", 1, tuple(shown)), [base], at)
        return desugar(shown, base, arrays, lambda form, atoms: self.apply_meaning(form, atoms, at)[0],
                      lambda form, atoms: self._once(form, atoms, at), lambda problem: self.fail(at, problem))

    def _once(self, form: Form, atoms: list[Any], at: int) -> Any:
        """Return the array of indices of a form; an equal one from above is reused."""
        meant = meaning(form, [atom.aval for atom in atoms], self.builder.primitives)
        known = None if meant is None else self._indices.get(indices_key(meant.primitive, atoms, meant.params))
        if known is None:
            return self.apply_meaning(form, atoms, at)[0]
        self._implied.add(known)
        return known

    def _make_take(self, node: Call, operands: Sequence[Node]) -> list[Any]:
        """Build `take(x, i, axis=1)` and `take_along_axis(x, i, axis=1)`."""
        params = self.builder.params(node.params)
        axis = params.pop("axis", None)
        atoms = [self.plain(operand) for operand in operands]
        if len(atoms) != 2 or type(axis) is not int or not 0 <= axis < atoms[0].aval.ndim:
            self.fail(node.at, f"{node.name} takes an array, indices and an axis of the array: "
                               f"{node.name}(x, i, axis=0)")
        return [make_gather(atoms[0], atoms[1:], [axis], lambda form,
                            given: self.apply_meaning(form, given, node.at)[0],
                            lambda form, given: self._once(form, given, node.at), node.name == "take_along_axis",
                            tuple(params.items()))]


_made_of = re.compile(r"(?:\w+\()+(\w+)(?:, [\w., \[\]-]+)?\)+(?:, [\w., \[\]-]+\)+)*")
