"""The user's source of an equation: the names that its result is assigned to, and the line to show.

An equation refers to the instruction that recorded it, and Python maps that to an expression of the file. If the file
cannot be read (a prompt, a deleted file), there are no names, and nothing fails.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, MappingProxyType
from typing import Any, NamedTuple

from fxgrad.extend import Source, cached, file_name, parse_source, source_lines

Span = tuple[int | None, int | None, int | None, int | None]
"""First line, last line, first column, last column, as `co_positions` gives them."""
Targets = tuple[str | None, ...]
"""The names that an expression is assigned to: one, or one for each element; None if there is no plain name."""
Places = Mapping[str, str]


class AssignedNames(NamedTuple):
    """An assignment: the names, and the name of the operation that computes its value ("" if unknown).

    A call may compute intermediate values; an operator is one operation. `places` has the names by their position in
    the value, such as `[0][1]`.
    """

    names: Targets
    operation: str
    is_call: bool = False
    places: Places = MappingProxyType({})


OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.MatMult: "dot_general", ast.USub: "neg"}
"""The primitives of Python's operators."""


class Spans(NamedTuple):
    """The contents of a file by position: targets of assigned expressions, direct operands, and operators.

    `operands` are names among direct operands, operators have their two operands. By the name of a function and its
    first line there are the names that it unpacks its arguments to, by the path of each part. `returned` are the
    expressions whose value a function returns, in a `return` or assigned last to a name that it returns, with the path
    in the result. `assigned` has, by function and name, the statements that assign it in every call.
    `chains` has the expressions in a chain of calls that may return their operand, `np.sin(x).astype(dtype)`, with the
    position of the whole.
    """

    targets: dict[Span, AssignedNames]
    operands: dict[Span, list[str]]
    parts: dict[tuple[str, int], dict[str, str]]
    sides: dict[Span, tuple[str, tuple[ast.expr, ast.expr]]]
    returned: dict[Span, str]
    assigned: dict[tuple[str, int], dict[str, list[Assignment]]]
    chains: dict[Span, Span]


KEEPING = frozenset([
    "array", "asarray", "ascontiguousarray", "astype", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "conj",
    "conjugate", "copy", "flatten", "mT", "positive", "ravel", "real", "reshape", "squeeze", "swapaxes", "T",
    "transpose"])
"""Functions, methods and attributes that return their operand itself where there is nothing to do."""


class Assignment(NamedTuple):
    """A statement that assigns a name: its first and last line, and whether the value is what the name has already.

    That is where a function that may return its operand has nothing to do, `h = h.reshape(3)`.
    """

    first: int
    last: int
    keeps: bool


class Sources:
    """Looks up equations in the user's files; one is created for each printing, so that files are read once."""

    def __init__(self) -> None:
        # By identity: the hash of a code object takes as long as its code.
        self._positions: dict[int, list[Span]] = {}
        self._files: dict[str, Spans] = {}
        self.names: dict[int, Any] = {}
        """The wanted names of variables, by program: computed once for each printing."""

    def span(self, source: Source) -> Span:
        """Return the position of the expression that recorded the equation."""
        known = self._positions.get(id(source.code))
        if known is None:
            known = self._positions[id(source.code)] = list(source.code.co_positions())
        index = source.instruction // 2
        return known[index] if 0 <= index < len(known) else (None, None, None, None)

    def _spans(self, code: CodeType) -> Spans:
        known = self._files.get(code.co_filename)
        if known is None:
            known = self._files[code.co_filename] = _read_spans(file_text(code.co_filename))
        return known

    def targets(self, source: Source) -> AssignedNames | None:
        """Return the names that the value of the expression is assigned to, or None."""
        return self._spans(source.code).targets.get(self.span(source))

    def name_of_part(self, code: CodeType, path: str) -> str:
        """Return a function's name for a part of an argument: `h` for `carry[0]` after `h, c = carry`; else `path`."""
        parts = _of_function(self._spans(code).parts, code)
        return name_at(parts, path) or path

    def returned_place(self, source: Source) -> str | None:
        """Return the path of the value of the expression in what its function returns; None if it is not in that."""
        return self._spans(source.code).returned.get(self.span(source))

    def chain(self, source: Source) -> Span | None:
        """Return the position of the chain of calls of which the expression is part; None if it is in none.

        In a chain each call may return its operand, so that the last one that records an operation gives the value.
        """
        return self._spans(source.code).chains.get(self.span(source))

    def assignments(self, code: CodeType, name: str) -> Sequence[Assignment]:
        """Return the statements of a function that assign `name` something else in every call, by their lines.

        Those of operators are left out: they compute arrays, which have their names from the operation, or none of the
        program's.
        """
        return _of_function(self._spans(code).assigned, code).get(name, ())

    def free_operand(self, source: Source) -> str | None:
        """Return the only direct operand of the expression that is a global or in a closure; None if there is none."""
        code = source.code
        local = {*code.co_varnames, *code.co_cellvars}
        names = self._spans(code).operands.get(self.span(source), ())
        free = [name for name in names if name.split(".")[0] not in local]
        return free[0] if len(free) == 1 else None

    def operand(self, source: Source, operation: str, place: int) -> str:
        """Return the user's text of an operand, if the operator there is `operation`; "" for a number itself."""
        operator, sides = self._spans(source.code).sides.get(self.span(source), ("", None))
        if operator != operation or sides is None or not 0 <= place < 2:
            return ""
        side = sides[place]
        inner = side.operand if isinstance(side, ast.UnaryOp) else side
        return "" if isinstance(inner, ast.Constant) else ast.unparse(side)

    def comment(self, source: Source) -> str:
        """Return the file and the line, as `model.py:12`."""
        name = "".join(char if char.isprintable() else "?" for char in file_name(source.filename))
        return f"{name}:{self.span(source)[0] or source.code.co_firstlineno}"


def _of_function(table: Mapping[tuple[str, int], dict[str, Any]], code: CodeType) -> dict[str, Any]:
    """Return the entry of a function in a table by names and first lines.

    The code of a converted function, and of its blocks, begins behind the decorators.
    """
    known = table.get((code.co_name, code.co_firstlineno))
    if known is None:
        lines = [line for name, line in table if name == code.co_name and line < code.co_firstlineno]
        known = table[code.co_name, max(lines)] if lines else {}
    return known


def file_text(filename: str) -> str:
    """Return the text of a file; "" if it cannot be read."""
    try:
        return "".join(source_lines(filename))
    except Exception:  # noqa: BLE001  (doctest, notebooks and debuggers put functions of their own in its place)
        return ""


@cached("names in source texts", 64)
def _read_spans(text: str) -> Spans:
    spans = Spans({}, {}, {}, {}, {}, {}, {})
    module = parse_source(text)
    if module is None:
        return spans
    nodes = [*ast.walk(module)]
    for node in nodes:
        for target, value in _assignments(node):
            _add_target(spans.targets, target, value)
            if isinstance(target, ast.Name | ast.Attribute):
                for inner in _chained(spans.chains, value):
                    _add_target(spans.targets, target, inner)
        if isinstance(node, ast.FunctionDef):
            begin = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            # Names of parts of arguments, by path, from the first assignment that unpacks each argument.
            arguments = {argument.arg for argument in (*node.args.posonlyargs, *node.args.args)}
            parts: dict[str, str] = {}
            for statement in node.body:
                if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name) and \
                        statement.value.id in arguments and isinstance(statement.targets[0], ast.Tuple | ast.List):
                    arguments.discard(statement.value.id)
                    parts |= _target_places(statement.targets[0], statement.value.id)
            spans.parts[node.name, begin] = parts
            spans.assigned[node.name, begin] = _certainly_assigned(node)
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            spans.returned.update(_returned(node, spans.chains))
        if isinstance(node, ast.AugAssign):
            # The instruction that adds has the position of the whole statement.
            spans.targets.setdefault(_span(node),
                                     AssignedNames(_target_names(node.target), OPERATORS.get(type(node.op), "")))
            spans.operands[_span(node)] = [*_paths([node.target, node.value])]
            spans.sides[_span(node)] = OPERATORS.get(type(node.op), ""), (node.target, node.value)
        elif isinstance(node, ast.BinOp):
            spans.operands[_span(node)] = [*_paths([node.left, node.right])]
            spans.sides[_span(node)] = OPERATORS.get(type(node.op), ""), (node.left, node.right)
        elif isinstance(node, ast.Call):
            # The name before a dot may be an array, or a module under any name.
            for span in _call_spans(node):
                spans.operands[span] = [*_paths(node.args)]
    return spans


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield pairs of a target and the assigned expression."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield node.target, node.value


def _add_target(targets: dict[Span, AssignedNames], target: ast.expr, value: ast.expr) -> None:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Call) and \
            (_path(value.func.func) or "").endswith("make_program"):
        return  # the assigned value is the program, not a value in it
    if isinstance(value, ast.IfExp):
        _add_target(targets, target, value.body)
        _add_target(targets, target, value.orelse)
        return
    if isinstance(target, ast.Tuple | ast.List):
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            for inner_target, inner_value in zip(target.elts, value.elts, strict=True):
                _add_target(targets, inner_target, inner_value)
            return
        # Taking an array apart into variables happens at the position of the variables.
        targets.setdefault(_span(target), AssignedNames(_target_names(target), ""))
    part, path = _part(value)
    if path and isinstance(part, ast.Call):  # `h = scan(...)[0]` names this part of the result, and no other
        for span in _call_spans(part):
            targets.setdefault(span, AssignedNames((None,), _operation(part), True, _target_places(target, path)))
    names = _target_names(target)
    if any(names) or _target_places(target):
        for span in _call_spans(value) if isinstance(value, ast.Call) else [_span(value)]:
            targets.setdefault(span, AssignedNames(names, _operation(value), isinstance(value, ast.Call),
                                                   _target_places(target)))


def _part(value: ast.expr) -> tuple[ast.expr, str]:
    """Return what an expression takes a part of, `f(x)` of `f(x)[0]["w"]`, and the path, `[0].w`; "" if unknown."""
    path = ""
    while isinstance(value, ast.Subscript):
        try:
            index = ast.literal_eval(value.slice)
        except ValueError:
            return value, ""
        if not isinstance(index, str) and (not isinstance(index, int) or isinstance(index, bool) or index < 0):
            return value, ""
        path = (f".{index}" if isinstance(index, str) and index.isidentifier() else f"[{index!r}]") + path
        value = value.value
    return value, path


def _target_places(target: ast.expr, path: str = "") -> dict[str, str]:
    """Return the names in a target, by their position in the value."""
    if not isinstance(target, ast.Tuple | ast.List):
        name = _path(target)
        return {} if name is None else {path: name}
    places: dict[str, str] = {}
    for number, element in enumerate(target.elts):
        if isinstance(element, ast.Starred):
            break  # later positions are counted from the end
        places |= _target_places(element, f"{path}[{number}]")
    return places


def name_at(places: Places, path: str) -> str | None:
    """Return the name at `path`: that of the place itself, or of the place that it is a part of."""
    for end in range(len(path), -1, -1):
        if path[:end] in places and (end == len(path) or path[end] in "[."):
            return places[path[:end]] + path[end:]
    return None


def _operation(value: ast.expr) -> str:
    """Return `tanh` of `np.tanh(x)`, `mul` of `x * y`."""
    if isinstance(value, ast.BinOp | ast.UnaryOp):
        return OPERATORS.get(type(value.op), "")
    path = _path(value.func) if isinstance(value, ast.Call) else None
    return path.rpartition(".")[2] if path is not None else ""


def _target_names(target: ast.expr) -> Targets:
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(_path(element) for element in target.elts)
    return (_path(target),)


def _path(node: ast.expr) -> str | None:
    """Return the text of an expression such as `self.weights`; None unless it is made of names and dots alone."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _paths(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        path = _path(node)
        if path is not None:
            yield path


def _span(node: ast.expr | ast.stmt) -> Span:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _chained(chains: dict[Span, Span], value: ast.expr) -> list[ast.expr]:
    """Return the operands in a chain of calls that may return their operand, and note the chain."""
    found: list[ast.expr] = []
    operands = _kept_operands(value)
    while operands:
        operand = operands.pop()
        found.append(operand)
        operands += _kept_operands(operand)
    if found:
        for each in (value, *found):
            for span in _value_spans(each):
                chains[span] = _span(value)
    return found


def _kept_operands(value: ast.expr) -> list[ast.expr]:
    """Return the operands, computed in place, that an expression may return as they are."""
    operands: list[ast.expr] = []
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.UAdd):
        operands = [value.operand]
    elif isinstance(value, ast.Attribute) and value.attr in KEEPING:
        operands = [value.value]
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name | ast.Attribute) and \
            (value.func.id if isinstance(value.func, ast.Name) else value.func.attr) in KEEPING:
        operands = [*value.args[:1], *([value.func.value] if isinstance(value.func, ast.Attribute) else ())]
    return [each for each in operands if isinstance(each, ast.Call | ast.BinOp | ast.UnaryOp | ast.Attribute)
            and _path(each) is None]


def _returned(function: ast.FunctionDef | ast.Lambda, chains: dict[Span, Span]) -> Iterator[tuple[Span, str]]:
    """Yield the positions of the expressions whose value a function returns, with their paths in the result."""
    if isinstance(function, ast.Lambda):
        yield from _returned_spans(function.body, chains)
        return
    own = [*_own_statements(function)]
    returns = [each.value for each in own if isinstance(each, ast.Return) and each.value is not None]
    for value in returns:
        yield from _returned_spans(value, chains)
    if len(returns) != 1:
        return
    parts = [*enumerate(returns[0].elts)] if isinstance(returns[0], ast.Tuple) else [(None, returns[0])]
    for number, part in parts:
        if isinstance(part, ast.Name):
            targets = [(each, target, value) for each in own for target, value in _assignments(each)
                       if any(isinstance(inner, ast.Name) and inner.id == part.id for inner in ast.walk(target))]
            # The last assignment is what is returned, unless it is in a loop or a branch.
            if targets and targets[-1][0] in function.body and isinstance(targets[-1][1], ast.Name):
                yield from _returned_part(targets[-1][2], "" if number is None else f"[{number}]", chains)


def _certainly_assigned(function: ast.FunctionDef) -> dict[str, list[Assignment]]:
    """Return the statements that assign each name in every call: not in branches or loops, and without early returns.

    Values that are computed by an operator are left out, and parts of what has the name already.
    """
    found: dict[str, list[Assignment]] = {}
    if any(isinstance(each, ast.Return) and each is not function.body[-1] for each in _own_statements(function)):
        return found
    statements = [*function.body]
    for statement in statements:
        if isinstance(statement, ast.With):
            statements += statement.body
        for target, value in _assignments(statement):
            for name, part in _assigned_parts(target, value):
                if _may_hold_arrays(name, part):
                    found.setdefault(name, []).append(
                        Assignment(statement.lineno, statement.end_lineno or statement.lineno,
                                   _keeps(name, part)))
    return found


def _keeps(name: str, value: ast.expr) -> bool:
    """Return whether an expression is a call that may return the value of `name` as it is."""
    if not isinstance(value, ast.Call):
        return False
    function = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    operands = [*value.args[:1], *([value.func.value] if isinstance(value.func, ast.Attribute) else ())]
    return function in KEEPING and any(isinstance(each, ast.Name) and each.id == name for each in operands)


def _assigned_parts(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names in a target, and the expression that each is assigned or a part of."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else \
            [value] * len(target.elts)
        for inner, part in zip(target.elts, parts, strict=True):
            yield from _assigned_parts(inner, part)


def _may_hold_arrays(name: str, value: ast.expr) -> bool:
    """Return whether an expression may be another array than `name` or a container, and is no operator."""
    if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
        root: ast.expr = value
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        return not (isinstance(root, ast.Name) and root.id == name)
    if isinstance(value, ast.Dict | ast.List | ast.Tuple):
        return any(isinstance(each, ast.Name | ast.Call) for each in ast.walk(value))
    return isinstance(value, ast.Call | ast.ListComp | ast.DictComp)


def _returned_spans(value: ast.expr, chains: dict[Span, Span]) -> Iterator[tuple[Span, str]]:
    if isinstance(value, ast.Tuple):
        for number, part in enumerate(value.elts):
            yield from _returned_part(part, f"[{number}]", chains)
    else:
        yield from _returned_part(value, "", chains)


def _returned_part(value: ast.expr, path: str, chains: dict[Span, Span]) -> Iterator[tuple[Span, str]]:
    for each in (value, *_chained(chains, value)):
        yield from ((span, path) for span in _value_spans(each))


def _own_statements(function: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a function in their order, without those of functions in it."""
    for each in ast.iter_child_nodes(function):
        if isinstance(each, ast.stmt):
            yield each
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own_statements(each)


def _value_spans(value: ast.expr) -> Iterator[Span]:
    if isinstance(value, ast.Call):
        yield from _call_spans(value)
    elif not isinstance(value, ast.Name | ast.Tuple | ast.Constant):
        yield _span(value)


def _call_spans(node: ast.Call) -> Iterator[Span]:
    """Yield the positions of a call: for Python, a method on a line of its own begins with its name."""
    yield _span(node)
    function = node.func
    if isinstance(function, ast.Attribute) and function.end_lineno != node.lineno and function.end_col_offset:
        start = function.end_col_offset - len(function.attr.encode())
        yield function.end_lineno, node.end_lineno, start, node.end_col_offset
