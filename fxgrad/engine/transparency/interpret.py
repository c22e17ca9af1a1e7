"""The interpretation of a function's syntax tree on a tape: it shows on what the recording depends.

The interpreter calls the real library on real tracers, so it records what the function records. It separates what is
known (guarded by value or identity), what is data (guarded by type) and what is traced. It interprets a part of Python
that has no effects; anything else, and anything in doubt, is a `Refusal`.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, ClassVar

import numpy as np

from fxgrad.engine.core.arrays import Array
from fxgrad.engine.tracing.tape import Tape
from fxgrad.engine.transparency.builtin_functions import BUILTIN_FUNCTIONS, LAZY_TYPES
from fxgrad.engine.transparency.plan import Plan
from fxgrad.engine.transparency.reading import Reader
from fxgrad.engine.transparency.recording import (
    IMMUTABLE,
    Recorder,
    as_known,
    call_method,
    call_update,
    is_library,
    is_of_numbers,
    is_recorded,
)
from fxgrad.engine.transparency.sources import FunctionNode, syntax_tree
from fxgrad.engine.transparency.values import (
    At,
    Closure,
    Data,
    Fresh,
    Function,
    Item,
    Known,
    Lazy,
    Partial,
    Path,
    Refusal,
    Traced,
    guarded,
    holds_array,
    holds_traced,
    is_immutable,
    python_value,
)

MAX_STEPS = 200_000
"""The number of statements and expressions after which a function is refused."""
MAX_DEPTH = 30
_NOWHERE = ast.Pass()

_OPERATORS: dict[type[ast.AST], tuple[Callable[..., Any], str]] = {
    ast.Add: (operator.add, "+"), ast.Sub: (operator.sub, "-"), ast.Mult: (operator.mul, "*"),
    ast.Div: (operator.truediv, "/"), ast.FloorDiv: (operator.floordiv, "//"), ast.Mod: (operator.mod, "%"),
    ast.Pow: (operator.pow, "**"), ast.MatMult: (operator.matmul, "@"),
    ast.USub: (operator.neg, "-"), ast.UAdd: (operator.pos, "+"), ast.Invert: (operator.invert, "~"),
    ast.Eq: (operator.eq, "=="), ast.NotEq: (operator.ne, "!="), ast.Lt: (operator.lt, "<"),
    ast.LtE: (operator.le, "<="), ast.Gt: (operator.gt, ">"), ast.GtE: (operator.ge, ">=")}
_CONVERSIONS: dict[int, Callable[[Any], Any]] = {-1: lambda value: value, 115: str, 114: repr, 97: ascii}
"""What the conversions `!s`, `!r` and `!a` of formatted texts do."""
_ARRAY_FACTS = frozenset({"shape", "ndim", "size", "dtype"})
_ARRAY_METHODS = frozenset({
    "sum", "mean", "dot", "reshape", "astype", "max", "min", "prod", "transpose", "ravel", "std", "var", "flatten",
    "squeeze", "swapaxes", "copy", "cumsum", "conj", "clip", "trace"})
_ARRAY_VIEWS = frozenset({"T", "real", "imag"})


class _Return(Exception):  # noqa: N818
    def __init__(self, item: Item) -> None:
        self.item = item


class _Break(Exception):  # noqa: N818
    pass


class _Continue(Exception):  # noqa: N818
    pass


class _Frame:
    """The names of a running function: its own, those of functions around it, cells, globals."""

    def __init__(self, filename: str, module_globals: dict[str, Any], cells: dict[str, Any],
                 enclosing: _Frame | None) -> None:
        self.filename, self.globals, self.cells = filename, module_globals, cells
        self.enclosing = enclosing
        self.own: dict[str, Item] = {}
        self.local_names: frozenset[str] = frozenset()


class Interpreter:
    """One interpretation of one call, on a tape that is current."""

    def __init__(self, tape: Tape, plan: Plan) -> None:
        self._plan, self.reader, self.recorder = plan, Reader(plan), Recorder(tape, plan)
        self._steps = self._depth = 0

    # --- functions ---------------------------------------------------------------------------------------

    def call_partial(self, function: Any, code: str, args: Sequence[Item], options: dict[str, Item]) -> Item:
        """Return the result of a `functools.partial`, which `code` names in the generated function."""
        return self.call(self.reader.item(code, function, None), args, options, _NOWHERE)

    def call_function(self, function: FunctionType, code: str, args: Sequence[Item], options: dict[str, Item],
                      node: ast.AST | None = None) -> Item:
        """Return the result of a user's function; `code` names it in the generated function."""
        tree = syntax_tree(function)
        if isinstance(tree, str):
            raise Refusal(f"{function.__name__}: {tree}", node)
        if hasattr(function, "__wrapped__"):
            raise Refusal(f"{function.__name__} wraps another function", node)
        self._refuse_kinds(function.__code__, node)
        plan = self._plan
        plan.guard(f"{code}.__code__ is {plan.constant(function.__code__)}")
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        frame = _Frame(function.__code__.co_filename, function.__globals__, cells, None)
        given, named = function.__defaults__ or (), function.__kwdefaults__ or {}
        plan.guard(f"len({code}.__defaults__ or ()) == {len(given)} and len({code}.__kwdefaults__ or ()) == "
                   f"{len(named)}")
        defaults = [self.reader.item(f"{code}.__defaults__[{place}]", value, node,
                                     title=f"default {place} of {function.__name__}")
                    for place, value in enumerate(given)]
        keyword_defaults = {name: self.reader.item(f"{code}.__kwdefaults__[{name!r}]", value, node,
                                                   title=f"default of {name} in {function.__name__}")
                            for name, value in named.items()}
        return self._run(tree, frame, defaults, keyword_defaults, args, options, node)

    @staticmethod
    def _refuse_kinds(code: CodeType, node: ast.AST | None) -> None:
        if code.co_flags & 0x2A0:
            raise Refusal("generators and coroutines are called", node)

    def _run(self, tree: FunctionNode, frame: _Frame, defaults: Sequence[Item], keyword_defaults: dict[str, Item],
             args: Sequence[Item], options: dict[str, Item], node: ast.AST | None) -> Item:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Refusal("functions call each other too deeply", node)
        try:
            frame.own = self._bind(tree.args, defaults, keyword_defaults, args, options, node)
            frame.local_names = _assigned_names(tree) | frame.own.keys()
            if isinstance(tree, ast.Lambda):
                return self.evaluate(tree.body, frame)
            self._block(tree.body, frame)
            return Known(None)
        except _Return as returned:
            return returned.item
        except Refusal as refusal:
            refusal.filename = refusal.filename or frame.filename
            raise
        finally:
            self._depth -= 1

    @staticmethod
    def _bind(parameters: ast.arguments, defaults: Sequence[Item], keyword_defaults: dict[str, Item],
              args: Sequence[Item], options: dict[str, Item], node: ast.AST | None) -> dict[str, Item]:
        """Return the parameters' values, as Python binds them."""
        names = [each.arg for each in (*parameters.posonlyargs, *parameters.args)]
        bound: dict[str, Item] = dict(zip(names, args))  # noqa: B905  (more or fewer are seen below)
        if len(args) > len(names) and parameters.vararg is None:
            raise Refusal("a call has too many arguments", node)
        if parameters.vararg is not None:
            bound[parameters.vararg.arg] = Fresh(tuple(args[len(names):]))
        rest = {}
        keywords = {*names[len(parameters.posonlyargs):], *(each.arg for each in parameters.kwonlyargs)}
        for name, value in options.items():
            if name in keywords and name not in bound:
                bound[name] = value
            elif parameters.kwarg is not None and name not in keywords:
                rest[name] = value
            else:
                raise Refusal("a call does not fit the parameters", node)
        for name, value in (*zip(names[len(names) - len(defaults):], defaults, strict=True),
                            *keyword_defaults.items()):
            bound.setdefault(name, value)
        if parameters.kwarg is not None:
            bound[parameters.kwarg.arg] = Fresh(rest)
        if any(name not in bound for name in (*names, *(each.arg for each in parameters.kwonlyargs))):
            raise Refusal("a call leaves out an argument", node)
        return bound

    def returned(self, item: Item) -> Any:
        """Return the Python value of the function's result, with tracers in it."""
        if isinstance(item, Path) and type(item.value) in (list, tuple):
            item = Fresh(type(item.value)([*self.iterate(item, _NOWHERE)]))
        if isinstance(item, Fresh):
            value = item.value
            return {key: self.returned(each) for key, each in value.items()} if isinstance(value, dict) else type(
                value)([self.returned(each) for each in value])
        if isinstance(item, Traced) or (isinstance(item, Known) and item.value is None):
            return item.value
        raise Refusal("it returns something else than traced arrays")

    # --- statements --------------------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt], frame: _Frame) -> None:
        for statement in statements:
            self._step(statement)
            self._statement(statement, frame)

    def _step(self, node: ast.AST) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Refusal("it takes too many steps", node)

    def _statement(self, node: ast.stmt, frame: _Frame) -> None:
        match node:
            case ast.Return(value=value):
                raise _Return(Known(None) if value is None else self.evaluate(value, frame))
            case ast.Assign():
                item = self.evaluate(node.value, frame)
                for target in node.targets:
                    self._assign(target, item, frame)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self.evaluate(value, frame), frame)
            case ast.AugAssign(target=ast.Name(id=name)):
                old, new = self._read(name, frame, node), self.evaluate(node.value, frame)
                if not isinstance(old, Traced) and not (isinstance(old, Data | Known) and is_immutable(old)):
                    raise Refusal(f"{name} is changed in place", node)
                frame.own[name] = self.operate(node, type(node.op), [old, new])
            case ast.Assert():
                if not self._truth(node.test, frame):
                    raise Refusal("an assertion fails", node)
            case ast.Expr():
                self.evaluate(node.value, frame)
            case ast.If():
                self._block(node.body if self._truth(node.test, frame) else node.orelse, frame)
            case ast.For():
                self._for(node, frame)
            case ast.While():
                self._while(node, frame)
            case ast.FunctionDef(decorator_list=[]):
                frame.own[node.name] = self._closure(node, frame)
            case ast.Pass():
                pass
            case ast.Break():
                raise _Break
            case ast.Continue():
                raise _Continue
            case _:
                raise Refusal(f"{_named(node)} is not interpreted", node)

    def _for(self, node: ast.For, frame: _Frame) -> None:
        for item in self.iterate(self.evaluate(node.iter, frame), node.iter):
            self._assign(node.target, item, frame)
            if self._breaks(node, frame):
                return
        self._block(node.orelse, frame)

    def _while(self, node: ast.While, frame: _Frame) -> None:
        while self._truth(node.test, frame):
            if self._breaks(node, frame):
                return
        self._block(node.orelse, frame)

    def _breaks(self, node: ast.For | ast.While, frame: _Frame) -> bool:
        """Run the body of a loop once; return whether it was left by `break`."""
        self._step(node)
        try:
            self._block(node.body, frame)
        except _Break:
            return True
        except _Continue:
            pass
        return False

    def _assign(self, target: ast.expr, item: Item, frame: _Frame) -> None:
        if isinstance(target, ast.Name):
            frame.own[target.id] = item
        elif isinstance(target, ast.Tuple | ast.List):
            items = [*self.iterate(item, target)]
            starred = [place for place, each in enumerate(target.elts) if isinstance(each, ast.Starred)]
            if starred or len(items) != len(target.elts):
                raise Refusal("values are unpacked to another number of names", target)
            for each, value in zip(target.elts, items, strict=True):
                self._assign(each, value, frame)
        else:
            raise Refusal("something is stored in an object or a container", target)

    # --- names -------------------------------------------------------------------------------------------

    def _name(self, node: ast.Name, frame: _Frame) -> Item:
        return self._read(node.id, frame, node)

    def _read(self, name: str, frame: _Frame, node: ast.AST) -> Item:
        if name.startswith("__"):
            raise Refusal(f"{name} is read, which may be mangled or special", node)
        around: _Frame | None = frame
        while around is not None:
            if name in around.own:
                return around.own[name]
            if name in around.local_names:
                raise Refusal(f"{name} has no value", node)
            if name in around.cells:
                return self.reader.of_cell(name, around.cells[name], node)
            around = around.enclosing
        return self.reader.of_module(name, frame.globals, node)

    # --- expressions -------------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr, frame: _Frame) -> Item:
        """Return the value of an expression."""
        self._step(node)
        case = self._CASES.get(type(node))
        if case is None:
            raise Refusal(f"{_named(node)} is not interpreted", node)
        return case(self, node, frame)

    def _constant(self, node: ast.Constant, _: _Frame) -> Item:
        return Known(node.value)

    def _tuple(self, node: ast.Tuple, frame: _Frame) -> Item:
        return Fresh(tuple(self._elements(node.elts, frame)))

    def _list(self, node: ast.List, frame: _Frame) -> Item:
        return Fresh(self._elements(node.elts, frame))

    def _elements(self, nodes: Sequence[ast.expr], frame: _Frame) -> list[Item]:
        items: list[Item] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items.extend(self.iterate(self.evaluate(node.value, frame), node))
            else:
                items.append(self.evaluate(node, frame))
        return items

    def _dict(self, node: ast.Dict, frame: _Frame) -> Item:
        made = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise Refusal("a dict is unpacked", node)
            made[self.known(self.evaluate(key, frame), key)] = self.evaluate(value, frame)
        return Fresh(made)

    def _slice(self, node: ast.Slice, frame: _Frame) -> Item:
        return Known(slice(*(None if part is None else self.known(self.evaluate(part, frame), part)
                             for part in (node.lower, node.upper, node.step))))

    def _named(self, node: ast.NamedExpr, frame: _Frame) -> Item:
        item = frame.own[node.target.id] = self.evaluate(node.value, frame)
        return item

    def _text(self, node: ast.JoinedStr, frame: _Frame) -> Item:
        """Return a formatted text of known values, such as a key of a dict."""
        parts = []
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                value = self.known(self.evaluate(each.value, frame), each)
                spec = "" if each.format_spec is None else self.known(self.evaluate(each.format_spec, frame), each)
                if type(value) not in (int, str, bool):
                    raise Refusal("a value that is no integer and no text is formatted", each)
                shown = _CONVERSIONS[each.conversion](value)
                parts.append(guarded(each, format, shown, spec))
            else:
                parts.append(self.known(self.evaluate(each, frame), each))
        return Known("".join(parts))

    def _lambda(self, node: ast.Lambda, frame: _Frame) -> Item:
        return self._closure(node, frame)

    def _closure(self, node: FunctionNode, frame: _Frame) -> Closure:
        if isinstance(node, ast.FunctionDef) and any(isinstance(each, ast.Yield | ast.YieldFrom)
                                                     for each in ast.walk(node)):
            raise Refusal("a generator is defined", node)
        given = {name.arg: self.evaluate(value, frame) for name, value in zip(
            node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value is not None}
        return Closure(node, frame, [self.evaluate(value, frame) for value in node.args.defaults], given)

    def _conditional(self, node: ast.IfExp, frame: _Frame) -> Item:
        return self.evaluate(node.body if self._truth(node.test, frame) else node.orelse, frame)

    def _bool(self, node: ast.BoolOp, frame: _Frame) -> Item:
        for each in node.values[:-1]:
            item = self.evaluate(each, frame)
            if self.truth_of(item, each) is isinstance(node.op, ast.Or):
                return item
        return self.evaluate(node.values[-1], frame)

    def _truth(self, node: ast.expr, frame: _Frame) -> bool:
        return self.truth_of(self.evaluate(node, frame), node)

    def truth_of(self, item: Item, node: ast.AST) -> bool:
        """Return whether a known value counts as true."""
        if isinstance(item, Fresh):
            return bool(item.value)
        if isinstance(item, Path) and type(item.value) in (list, tuple):
            return bool(item.value)
        return bool(guarded(node, bool, self.known(item, node)))

    def known(self, item: Item, node: ast.AST) -> Any:
        """Return a value that decides what is recorded; raise `Refusal` if it may change."""
        if isinstance(item, Known):
            return item.value
        if isinstance(item, Fresh) and isinstance(item.value, list | tuple):
            return type(item.value)([self.known(each, node) for each in item.value])
        if isinstance(item, Data):
            try:
                return self._plan.guard_value(item).value
            except Refusal as refusal:
                raise self._plan.needs_contents([item], refusal.reason, node) from None
        if isinstance(item, Traced):
            raise Refusal("Python's control flow needs the value of a traced array", node)
        raise Refusal("a value that may change decides what is recorded", node)

    # --- operators ---------------------------------------------------------------------------------------

    def _binary(self, node: ast.BinOp, frame: _Frame) -> Item:
        return self.operate(node, type(node.op),
                             [self.evaluate(node.left, frame), self.evaluate(node.right, frame)])

    def _unary(self, node: ast.UnaryOp, frame: _Frame) -> Item:
        if isinstance(node.op, ast.Not):
            return Known(not self._truth(node.operand, frame))
        return self.operate(node, type(node.op), [self.evaluate(node.operand, frame)])

    def _compare(self, node: ast.Compare, frame: _Frame) -> Item:
        left = self.evaluate(node.left, frame)
        *firsts, (last, last_operand) = zip(node.ops, node.comparators, strict=True)
        for op, operand in firsts:
            right = self.evaluate(operand, frame)
            item = self._compare_two(node, op, left, right)
            if not self.truth_of(item, node):
                return item
            left = right
        return self._compare_two(node, last, left, self.evaluate(last_operand, frame))

    def _compare_two(self, node: ast.Compare, op: ast.cmpop, left: Item, right: Item) -> Item:
        if isinstance(op, ast.Is | ast.IsNot):
            if not isinstance(right, Known) or right.value is not None:
                raise Refusal("identity is compared with something else than None", node)
            if isinstance(left, Path):
                self._plan.guard(f"{left.code} is not None")
            is_none = isinstance(left, Known) and left.value is None
            return Known(is_none is isinstance(op, ast.Is))
        if isinstance(op, ast.In | ast.NotIn):
            found = self._contains(right, self.known(left, node), node)
            return Known(found is isinstance(op, ast.In))
        return self.operate(node, type(op), [left, right])

    def _contains(self, item: Item, value: Any, node: ast.AST) -> bool:
        if isinstance(item, Path) and type(item.value) is dict:
            return self.reader.has_key(item, value, node)
        values = item.value if isinstance(item, Fresh) and isinstance(item.value, dict) else self.known(item, node)
        found: bool = guarded(node, operator.contains, values, value)
        return found

    def operate(self, node: ast.AST, kind: type[ast.AST], items: Sequence[Item]) -> Item:
        """Return the result of an operator on values of any kind."""
        if kind not in _OPERATORS:
            raise Refusal(f"the operator {kind.__name__} is not interpreted", node)
        function, sign = _OPERATORS[kind]
        if all(isinstance(item, Known) for item in items):
            values = [item.value for item in items if isinstance(item, Known)]
            if all(isinstance(value, (*IMMUTABLE, np.ndarray)) for value in values):
                return self.known_result(function, values, node)
        if kind is ast.Add and all(isinstance(item, Fresh) for item in items):
            parts = [item.value for item in items if isinstance(item, Fresh)]
            if type(parts[0]) is type(parts[1]) and type(parts[0]) in (list, tuple):
                return Fresh(parts[0] + parts[1])
        if kind is ast.Mult and isinstance(items[0], Fresh) and isinstance(items[1], Known) and type(
                items[1].value) is int and isinstance(items[0].value, list | tuple):
            return Fresh(items[0].value * items[1].value)
        if any(not isinstance(item, Traced | Known | Data) for item in items):
            raise Refusal("an operator meets a container or an object", node)
        if any(isinstance(item, Traced) for item in items):
            return self.recorder.call(function, items, node)
        codes = [self.recorder.code_of(item, node) for item in items]
        text = f"{sign}{codes[0]}" if len(codes) == 1 else f"{codes[0]} {sign} {codes[1]}"
        return self._plan.compute(text, guarded(node, function, *(python_value(item, node) for item in items)))

    def known_result(self, function: Callable[..., Any], values: Sequence[Any], node: ast.AST) -> Known:
        """Return the result of a function of known values."""
        return as_known(guarded(node, function, *values))

    # --- calls -------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, frame: _Frame) -> Item:
        if isinstance(node.func, ast.Attribute):
            receiver = self.evaluate(node.func.value, frame)
            if isinstance(receiver, Fresh):
                return self._container_method(node, receiver, frame)
            if isinstance(receiver, Path) and type(receiver.value) is dict:
                return self._dict_method(node, receiver, frame)
            function = self.attribute(receiver, node.func.attr, node.func)
        else:
            function = self.evaluate(node.func, frame)
        args = self._elements(node.args, frame)
        options: dict[str, Item] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise Refusal("keywords are unpacked", node)
            options[keyword.arg] = self.evaluate(keyword.value, frame)
        return self.call(function, args, options, node)

    def call(self, function: Item, args: Sequence[Item], options: dict[str, Item], node: ast.AST) -> Item:
        """Return the result of a call."""
        if isinstance(function, Closure):
            inner = _Frame(function.frame.filename, function.frame.globals, {}, function.frame)
            return self._run(function.tree, inner, function.defaults, function.keyword_defaults, args, options, node)
        if isinstance(function, Partial):
            return self.call(function.function, [*function.args, *args], {**function.options, **options}, node)
        if isinstance(function, Known) and isinstance(function.value, type):
            return self._call_type(function.value, args, options, node)
        if isinstance(function, Path):
            function = self.reader.call_of(function, node)
        if not isinstance(function, Function):
            raise Refusal("an object is called", node)
        value = function.value
        if function.receiver is not None:
            args = [function.receiver, *args]
        if isinstance(value, FunctionType) and not is_library(value):
            return self.call_function(value, function.code, args, options, node)
        if value in BUILTIN_FUNCTIONS:
            if options:
                raise Refusal(f"{value.__name__} is called with keywords", node)
            return BUILTIN_FUNCTIONS[value](self, args, node)
        if isinstance(value, type):
            return self._call_type(value, args, options, node)
        if not is_recorded(value) and not is_of_numbers(value):
            is_ours = isinstance(value, FunctionType) and value.__module__.partition(".")[0] == "fxgrad"
            reason = "is not interpreted" if is_ours else "is no function of the library"
            raise Refusal(f"{getattr(value, '__name__', type(value).__name__)} {reason}", node)
        items = [*args, *options.values()]
        if any(isinstance(item, Function | Partial | Closure) for item in items):
            raise Refusal("a function is handed to the library", node)
        args = [self._unfolded(item, node) for item in args]
        options = {name: self._unfolded(item, node) for name, item in options.items()}
        items = [*args, *options.values()]
        if any(map(holds_traced, items)):
            if is_of_numbers(value):
                raise Refusal(f"math.{value.__name__} needs the value of a traced array", node)
            return self.recorder.call(value, args, node, options)
        return self.recorder.compute(value, function.code, args, options, node)

    def _unfolded(self, item: Item, node: ast.AST) -> Item:
        """Return an argument for the library: lists and tuples that outlive the call by their items, at any depth."""
        if isinstance(item, Lazy):
            raise Refusal("a generator is handed to the library", node)
        if isinstance(item, Fresh) and isinstance(item.value, dict):
            return Fresh({key: self._unfolded(each, node) for key, each in item.value.items()})
        if isinstance(item, Fresh) or (isinstance(item, Path) and type(item.value) in (list, tuple)):
            return Fresh(type(item.value)([self._unfolded(each, node) for each in self.iterate(item, node)]))
        return item

    def _call_type(self, kind: type, args: Sequence[Item], options: dict[str, Item], node: ast.AST) -> Item:
        if kind in (list, tuple) and not options and len(args) <= 1:
            return Fresh(kind(self.iterate(args[0], node)) if args else kind())
        if kind in (int, float, bool, complex, str, slice) and not options:
            if kind is float and len(args) == 1 and isinstance(args[0], Data) and not holds_array(args[0]):
                return self._plan.compute(f"float({args[0].code})", float(args[0].value))
            return self.known_result(kind, [self.known(item, node) for item in args], node)
        if kind is zip and [*options] == ["strict"]:
            rows = [Fresh([*self.iterate(item, node)]) for item in args]
            if self.known(options["strict"], node) and len({len(row.value) for row in rows}) > 1:
                raise Refusal("zip is called with different lengths", node)
            args, options = rows, {}
        if kind in LAZY_TYPES and not options:
            return LAZY_TYPES[kind](self, args, node)
        if issubclass(kind, np.generic) and kind.__module__ == "numpy" and len(args) == 1 and not options:
            if isinstance(args[0], Data):
                return self._plan.compute(f"{self._plan.constant(kind)}({args[0].code})",
                                          guarded(node, kind, args[0].value))
            return self.known_result(kind, [self.known(args[0], node)], node)
        raise Refusal(f"an object of class {kind.__name__} is made", node)

    def _dict_method(self, node: ast.Call, receiver: Path, frame: _Frame) -> Item:
        """Return the result of a method of a dict that outlives the call."""
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        if name == "get" and node.args and not node.keywords:
            key, *default = self._elements(node.args, frame)
            if self.reader.has_key(receiver, self.known(key, node), node):
                return self._element(receiver, key, node)
            return default[0] if default else Known(None)
        if name in ("items", "values", "keys") and not node.args and not node.keywords:
            held = Fresh({key: self._element(receiver, Known(key), node) for key in self.reader.keys(receiver, node)})
            return self._container_method(node, held, frame)
        raise Refusal(f"the method {name} of a container that outlives the call is read", node)

    def _container_method(self, node: ast.Call, receiver: Fresh, frame: _Frame) -> Item:
        """Return the result of a method of a container made in this call."""
        assert isinstance(node.func, ast.Attribute)
        name, value = node.func.attr, receiver.value
        args = self._elements(node.args, frame)
        if node.keywords:
            raise Refusal("a method of a container is called with keywords", node)
        if isinstance(value, list):
            if name == "append" and len(args) == 1:
                value.append(args[0])
                return Known(None)
            if name == "extend" and len(args) == 1:
                value.extend(self.iterate(args[0], node))
                return Known(None)
            if name == "pop" and not args and value:
                return value.pop()
        if isinstance(value, dict) and not args:
            if name == "values":
                return Fresh([*value.values()])
            if name == "keys":
                return Fresh([*map(Known, value)])
            if name == "items":
                return Fresh([Fresh((Known(key), each)) for key, each in value.items()])
        raise Refusal(f"the method {name} of a container is not interpreted", node)

    # --- parts -------------------------------------------------------------------------------------------

    def _attribute(self, node: ast.Attribute, frame: _Frame) -> Item:
        return self.attribute(self.evaluate(node.value, frame), node.attr, node)

    def attribute(self, item: Item, name: str, node: ast.AST) -> Item:
        """Return an attribute of a value."""
        if name.startswith("__"):
            raise Refusal(f"the attribute {name} is read", node)
        if name == "at" and (isinstance(item, Traced) or (holds_array(item) and type(item.value) is Array)):
            return At(item)
        if isinstance(item, At) and item.index is not None:
            update = functools.partial(call_update, name)
            return Function(update, Fresh((item.array, item.index)), self._plan.constant(update))
        if isinstance(item, Traced):
            if name in _ARRAY_FACTS:
                return Known(getattr(item.value, name))
            if name in _ARRAY_VIEWS or name == "mT":
                return self.recorder.call(lambda value: getattr(value, name), [item], node)
            return Function(functools.partial(call_method, name), item, "")
        if holds_array(item):
            return self._array_attribute(item, name, node)
        if isinstance(item, Function) and isinstance(item.value, type):
            return self.reader.of_class(item, name, node)
        if not isinstance(item, Path):
            if isinstance(item, Known) and isinstance(item.value, type | np.dtype) and name in ("name", "kind"):
                return Known(getattr(item.value, name))
            raise Refusal(f"the attribute {name} of a value is read", node)
        return self.reader.attribute(item, name, node)

    def _array_attribute(self, item: Data | Known, name: str, node: ast.AST) -> Item:
        """Return an attribute of an array of data, or of a known one."""
        value = item.value
        if name in _ARRAY_FACTS:
            if isinstance(item, Data) and not item.is_path:
                self._plan.guard_type(item)
            return Known(getattr(value, name))
        if name in _ARRAY_VIEWS:
            return as_known(getattr(value, name)) if isinstance(item, Known) else self._plan.compute(
                f"{item.code}.{name}", getattr(value, name))
        if name in _ARRAY_METHODS:
            method = functools.partial(call_method, name)
            return Function(method, item, self._plan.constant(method))
        raise Refusal(f"the attribute {name} of data is read", node)

    def _subscript(self, node: ast.Subscript, frame: _Frame) -> Item:
        return self._element(self.evaluate(node.value, frame), self.evaluate(node.slice, frame), node)

    def _element(self, item: Item, index: Item, node: ast.AST) -> Item:
        index = self._unfolded(index, node)
        if isinstance(item, At) and item.index is None:
            return At(item.array, index)
        if isinstance(item, Traced):
            return self.recorder.call(operator.getitem, [item, index], node)
        if holds_array(item):
            if holds_traced(index):
                return self.recorder.call(operator.getitem, [item, index], node)
            code = self._plan.constant(operator.getitem)
            return self.recorder.compute(operator.getitem, code, [item, index], {}, node)
        key = self.known(index, node)
        if isinstance(item, Known):
            return self.known_result(operator.getitem, [item.value, key], node)
        if isinstance(item, Fresh):
            part = guarded(node, operator.getitem, item.value, key)
            return Fresh(part) if isinstance(key, slice) else part
        if isinstance(item, Path) and type(item.value) in (list, tuple, dict):
            if isinstance(key, slice):
                return Fresh(type(item.value)([*self.iterate(item, node)][key]))
            value = guarded(node, operator.getitem, item.value, key)
            return self.reader.item(f"{item.code}[{key!r}]", value, node, item.wraps)
        raise Refusal("an item of an object is read", node)

    def iterate(self, item: Item, node: ast.AST) -> Iterator[Item]:
        """Yield the items of a container, or the rows of an array; each is a step."""
        for each in self._items(item, node):
            self._step(node)
            yield each

    def _items(self, item: Item, node: ast.AST) -> Iterator[Item]:
        if isinstance(item, Fresh):
            yield from [*map(Known, item.value)] if isinstance(item.value, dict) else item.value
        elif isinstance(item, Lazy):
            yield from item.items
        elif isinstance(item, Traced):
            yield from self.recorder.rows(item, node)
        elif isinstance(item, Data) and isinstance(item.value, np.ndarray) and item.value.ndim:
            for place in range(len(item.value)):
                yield self._plan.compute(f"{item.code}[{place}]", item.value[place])
        elif isinstance(item, Known) and isinstance(item.value, np.ndarray) and item.value.ndim:
            yield from map(as_known, item.value)
        elif isinstance(item, Known) and isinstance(item.value, tuple | range | str):
            yield from map(Known, item.value)
        elif isinstance(item, Path) and type(item.value) is dict:
            yield from map(Known, self.reader.keys(item, node))
        elif isinstance(item, Path) and type(item.value) in (list, tuple):
            for place, value in enumerate(item.value):
                yield self.reader.item(f"{item.code}[{place}]", value, node, item.wraps)
        else:
            raise Refusal("something is iterated over that may change", node)

    # --- comprehensions ----------------------------------------------------------------------------------

    def _comprehension(self, node: ast.ListComp, frame: _Frame) -> Item:
        return Fresh([*self._comprehended(node, frame)])

    def _generator(self, node: ast.GeneratorExp, frame: _Frame) -> Item:
        return Lazy(self._comprehended(node, frame))

    def _dict_comprehension(self, node: ast.DictComp, frame: _Frame) -> Item:
        made = {}
        for pair in self._comprehended(node, frame):
            key, value = pair.value
            made[self.known(key, node)] = value
        return Fresh(made)

    def _comprehended(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp, frame: _Frame) -> Iterator[Any]:
        """Yield the elements; of a dict, pairs of a key and a value."""
        inner = _Frame(frame.filename, frame.globals, {}, frame)
        # The first iterable is evaluated at once, in the frame around.
        first = self.evaluate(node.generators[0].iter, frame)
        return self._clauses(node, node.generators, inner, first)

    def _clauses(self, node: Any, clauses: Sequence[ast.comprehension], frame: _Frame, first: Item | None,
                 ) -> Iterator[Item]:
        clause, *rest = clauses
        if clause.is_async:
            raise Refusal("an asynchronous comprehension is not interpreted", node)
        items = first if first is not None else self.evaluate(clause.iter, frame)
        for item in self.iterate(items, clause.iter):
            self._assign(clause.target, item, frame)
            if not all(self._truth(test, frame) for test in clause.ifs):
                continue
            if rest:
                yield from self._clauses(node, rest, frame, None)
            elif isinstance(node, ast.DictComp):
                yield Fresh((self.evaluate(node.key, frame), self.evaluate(node.value, frame)))
            else:
                yield self.evaluate(node.elt, frame)

    _CASES: ClassVar[dict[type[ast.AST], Callable[[Interpreter, Any, _Frame], Item]]] = {
        ast.Constant: _constant, ast.Name: _name, ast.BinOp: _binary,
        ast.UnaryOp: _unary, ast.BoolOp: _bool, ast.Compare: _compare,
        ast.IfExp: _conditional, ast.Call: _call, ast.Attribute: _attribute,
        ast.Subscript: _subscript, ast.Tuple: _tuple, ast.List: _list,
        ast.Dict: _dict, ast.Lambda: _lambda, ast.ListComp: _comprehension,
        ast.GeneratorExp: _generator, ast.DictComp: _dict_comprehension,
        ast.Slice: _slice, ast.NamedExpr: _named, ast.JoinedStr: _text}
    """The methods that evaluate expressions, by their syntax."""


def _assigned_names(tree: FunctionNode) -> frozenset[str]:
    """Return the names that a function assigns, without those of functions in it."""
    if isinstance(tree, ast.Lambda):
        return frozenset()
    names: set[str] = set()
    pending: list[ast.AST] = [*tree.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Global | ast.Nonlocal):
            raise Refusal("global or nonlocal is declared", node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
            continue
        elif isinstance(node, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.DictComp):
            continue
        pending.extend(ast.iter_child_nodes(node))
    return frozenset(names)


def _named(node: ast.AST) -> str:
    return _NAMES.get(type(node), type(node).__name__)


_NAMES: dict[type[ast.AST], str] = {
    ast.Try: "try", ast.With: "with", ast.Raise: "raise", ast.Delete: "del",
    ast.Import: "import", ast.ImportFrom: "import", ast.ClassDef: "a class",
    ast.Yield: "yield", ast.Await: "await", ast.FunctionDef: "a decorated function",
    ast.Starred: "an unpacked argument",
    ast.SetComp: "a comprehension of a set", ast.Set: "a set",
    ast.AugAssign: "an assignment in place to an item or attribute"}

