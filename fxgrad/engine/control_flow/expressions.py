"""Expressions of converted code: names, items, conditions, calls and comprehensions, through operators."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from fxgrad.engine.control_flow.changes import changed_by_call
from fxgrad.engine.control_flow.jumps import RaisedFlag, UnsetFlags
from fxgrad.engine.control_flow.mutators import LIST_METHODS, STORING_METHODS
from fxgrad.engine.control_flow.names import FunctionNode, arrays_of, dotted, has_walrus, parameter_names
from fxgrad.engine.control_flow.nodes import call_operator, constant, load, make_lambda, operator, placed, store, thunk
from fxgrad.engine.control_flow.optional import compared_with_none, is_none, names_set_if
from fxgrad.engine.control_flow.rows import LastRows, NumberedRows, is_transposed
from fxgrad.engine.control_flow.texts import joined_text
from fxgrad.engine.user_source import copy_tree, walk_tree

_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_SEQUENCES = ("range", "zip", "enumerate", "reversed", "count", "itertools.count")
_COMPARISONS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_DIVISIONS = {ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod"}
_MAY_HOLD_ITEMS = (ast.Tuple, ast.List, ast.Name, ast.Attribute, ast.Subscript, ast.Call)
"""Expressions whose values may be tuples or lists."""
_REDUCTIONS = ("sum", "any", "all", "min", "max", "len", "next")


class ExpressionRewriter(ast.NodeTransformer):
    """Rewrites expressions of a function, whose own names and those around are known; `rewriting.py` has statements."""

    def __init__(self, node: FunctionNode, around: Collection[str]) -> None:
        self._parameters = parameter_names(node.args)
        self._own: set[str] = set()  # names of the function itself
        self._around = {*around}.difference(self._parameters)  # names of the functions around
        self._global: set[str] = set()  # names that it declares
        self._outer: set[str] = set()
        self._optional: set[str] = set()  # names that may be None, as the code says
        self._certain: set[str] = set()  # those that are not None where the code stands
        self._is_lambda = isinstance(node, ast.Lambda)
        self._count = 0  # of generated names
        self._chosen = 0  # how many expressions are around that a traced condition may choose
        self._asks_depth = False
        self._in_iterable = False  # of a comprehension
        self._is_caught = False  # what an expression raises, by a `try` around it in the function

    def _new(self, word: str) -> str:
        self._count += 1
        return f"~{word} {self._count}"

    @contextlib.contextmanager
    def _knowing(self, test: ast.expr, when: bool, binds: Collection[str] = ()) -> Iterator[None]:
        """In the block, visit code that runs if a test gives `when`, and that binds these names."""
        around = self._certain
        if self._optional:
            self._certain = around | (names_set_if(test, when) & self._optional).difference(binds)
        yield
        self._certain = around

    # --- names --------------------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return node
        if arrays_of(node):
            return call_operator("value_of", [node], node)
        if node.id in self._optional and not (hasattr(node, "may_be_none") and node.id not in self._certain):
            if (callee := getattr(node, "callee", "")):
                return call_operator("argument", [load(callee, node), node, constant(node.id, node)], node)
            return call_operator("value_set", [node, constant(node.id, node), constant(
                node.id in self._certain, node)], node)
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        self.generic_visit(node)
        checks = self._rebinding([node.target.id], node)
        if checks:
            both = placed(ast.Tuple([*checks, node.value], ast.Load()), node)
            node.value = placed(ast.Subscript(both, constant(1, node), ast.Load()), node)
        return node

    def _rebinding(self, names: Iterable[str], at: ast.AST) -> list[ast.expr]:
        """Return the checks for the names of scopes outside among those that are about to be assigned."""
        checks: list[ast.expr] = []
        for name in sorted({*names} & (self._global | self._outer)):
            args: list[ast.expr] = [constant(name, at)]
            if name in self._outer:
                args.append(thunk(load(name, at)))
            if name in self._around:
                args.append(load(f"~depth {name}", at))
            checks.append(call_operator("rebinding", args, at))
        return checks

    # --- items and attributes -----------------------------------------------------------------------------------------

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not isinstance(node.ctx, ast.Load):
            variable = [thunk(load(node.value.id, node))] if isinstance(
                node.value, ast.Name) and node.value.id in self._own else []
            node.value = call_operator("itemized", [self._place(node.value), *variable], node.value)
            node.slice = self.visit(node.slice)
            return node
        reads_row = isinstance(node.value, ast.Subscript) and not isinstance(node.slice, ast.Slice)
        node.value = self.visit(node.value)
        if reads_row and isinstance(node.value, ast.Call):
            node.value = call_operator("row", node.value.args, node.value)
        index, named = self._index(node.slice), getattr(node, "named", None)
        if named is not None:
            index = placed(ast.NamedExpr(store(named, node), index), node.slice)
        return call_operator("item", [node.value, index], node)

    def _index(self, node: ast.expr) -> ast.expr:
        """Return the expression for an index, which may have slices."""
        visited: ast.expr = self.visit(node)
        if not any(isinstance(each, ast.Slice | ast.Starred) for each in walk_tree(node)):
            return visited
        return placed(ast.Subscript(operator("index", node), visited, ast.Load()), node)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        node.value = self.visit(node.value)
        if not isinstance(node.ctx, ast.Load):
            node.value = call_operator("attributed", [node.value], node.value)
        return node

    def _place(self, node: ast.expr) -> ast.expr:
        """Return the expression for an object whose items change: the one that an index selects, not a copy."""
        if isinstance(node, ast.Name) and node.id in self._own:
            self._asks_depth |= self._chosen > 0
            depth = [self._depth(node)] if self._chosen else []
            return call_operator("stored", [thunk(load(node.id, node)), constant(node.id, node), constant(
                node.id in self._parameters, node), *depth], node)
        if isinstance(node, ast.Name) and node.id in self._around:
            return call_operator("stored", [thunk(load(node.id, node)), constant(node.id, node), constant(
                False, node), load(f"~depth {node.id}", node)], node)
        shown = constant(ast.unparse(node), node)
        if isinstance(node, ast.Attribute):
            getter = make_lambda(["~owner"], placed(ast.Attribute(load("~owner", node), node.attr, ast.Load()), node))
            return call_operator("attribute", [self.visit(node.value), getter, shown], node)
        if isinstance(node, ast.Subscript):
            named: str | None = getattr(node, "named", None)
            index = self._index(node.slice) if named is None else load(named, node)
            return call_operator("place", [self._place(node.value), index, shown], node)
        visited: ast.expr = self.visit(node)
        return visited

    def _depth(self, at: ast.AST) -> ast.expr:
        """Return the expression for the number of traced blocks around the function."""
        return call_operator("depth", [], at) if self._is_lambda else load("~depth", at)

    def _is_place(self, node: ast.expr) -> bool:
        """Return whether an argument is a name, or an attribute or an item of one: it may be lent."""
        inner = node
        while isinstance(inner, ast.Attribute | ast.Subscript):
            if self._in_iterable and isinstance(inner, ast.Subscript) and not _is_constant_index(inner.slice):
                return False  # no name can be given to the index there
            inner = inner.value
        return isinstance(inner, ast.Name) and inner.id in self._own | self._around

    # --- conditions ---------------------------------------------------------------------------------------------------

    def _condition(self, node: ast.expr, is_operand: bool = False) -> ast.expr:
        """Return a condition; a name that may be None is one, and so is any object as an operand of `and` and `or`."""
        if isinstance(node, ast.BoolOp):
            return self._boolean(node, functools.partial(self._condition, is_operand=True))
        if isinstance(node, ast.Name) and node.id in self._optional:
            return call_operator("is_true", [node], node)
        visited: ast.expr = self.visit(node)
        return call_operator("is_true", [visited, constant(True, node)], node) if is_operand and isinstance(
            node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) else visited

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        return self._boolean(node, self.visit)

    def _boolean(self, node: ast.BoolOp, visit: Callable[[ast.expr], ast.expr]) -> ast.expr:
        """Return `and` or `or` of operands as `visit` returns them."""
        word = "and" if isinstance(node.op, ast.And) else "or"
        first, *rest = node.values
        if any(map(has_walrus, rest)):
            node.values = [*(self._known(each, f"`{word}` before :=") for each in node.values[:-1]),
                           visit(node.values[-1])]
            return node
        args = [constant(word, node), visit(first)]
        with contextlib.ExitStack() as tests:
            for before, each in zip(node.values, rest, strict=False):
                tests.enter_context(self._knowing(before, word == "and"))
                args.append(self._choice(each, visit))
        return call_operator("boolean", args, node)

    def _choice(self, node: ast.expr, visit: Callable[[ast.expr], ast.expr]) -> ast.expr:
        """Return the function for an expression that a traced condition may choose."""
        self._chosen += 1
        found = thunk(visit(node))
        self._chosen -= 1
        return found

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if has_walrus(node.body) or has_walrus(node.orelse):
            node.test = self._known(node.test, "a conditional expression with :=")
            node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
            return node
        sides = []
        for each, when in (node.body, True), (node.orelse, False):
            with self._knowing(node.test, when):
                sides.append(self._choice(each, self.visit))
        optional = [constant(True, node)] if hasattr(node, "may_be_none") else []
        return call_operator("if_expression", [self._condition(node.test), *sides, *optional], node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return call_operator("not_", [self._condition(node.operand)], node)
        node.operand = self.visit(node.operand)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        of_conditions = {ast.Add: "counted", ast.Sub: "as_number"}.get(type(node.op)) if all(
            map(_is_condition, (node.left, node.right))) else None
        self.generic_visit(node)
        if self._is_caught and type(node.op) in _DIVISIONS:
            return call_operator("divided", [constant(_DIVISIONS[type(node.op)], node), node.left, node.right], node)
        if of_conditions is not None:
            node.left, node.right = (call_operator(of_conditions, [each], each) for each in (node.left, node.right))
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) > 1:
            return self._chain(node)
        name, kind, other = compared_with_none(node), type(node.ops[0]), node.comparators[0]
        is_identity = kind in (ast.Is, ast.IsNot)
        if name in self._optional or (is_identity and is_none(other)):
            left = load(name, node) if name in self._optional else self.visit(node.left)
            found = call_operator("is_none", [left], node)
        elif kind in (ast.In, ast.NotIn):
            found = call_operator("contains", [self.visit(other), self.visit(node.left)], node)
        elif is_identity and isinstance(other, ast.Constant) and isinstance(other.value, bool):
            node.left = call_operator("without_traced_bools", [self.visit(node.left)], node.left)
            return node
        elif is_identity and not isinstance(other, ast.Constant):
            found = call_operator("is_same", [self.visit(node.left), self.visit(other)], node)
        elif kind in _COMPARISONS and isinstance(node.left, _MAY_HOLD_ITEMS) and isinstance(other, _MAY_HOLD_ITEMS):
            operands = [constant(_COMPARISONS[kind], node), self.visit(node.left), self.visit(other)]
            return call_operator("compared", operands, node)
        else:
            return self.generic_visit(node)
        return call_operator("not_", [found], node) if kind in (ast.NotIn, ast.IsNot, ast.NotEq) else found

    def _chain(self, node: ast.Compare) -> ast.expr:
        """Return `a < b < c` as `a < b and b < c`, with names for the operands, which are computed once."""
        if any(map(has_walrus, node.comparators[1:])):
            self.generic_visit(node)
            return node
        middle = node.comparators[0]
        first, second = self.visit(node.left), self.visit(middle)
        left, right = self._new("left"), self._new("right")
        pair = self.visit(placed(ast.Compare(load(left, node.left), [node.ops[0]], [load(right, middle)]), node))
        rest = self.visit(placed(ast.Compare(load(right, middle), node.ops[1:], node.comparators[1:]), node))
        both = call_operator("boolean", [constant("and", node), pair, thunk(rest)], node)
        return placed(ast.Call(make_lambda([left, right], both), [first, second], []), node)

    def _known(self, node: ast.expr, what: str) -> ast.expr:
        return call_operator("known", [self.visit(node), constant(what, node)], node)

    def visit_UnsetFlags(self, node: UnsetFlags) -> Any:
        return self._unset(node.flags, node)

    def _unset(self, flags: Sequence[str], at: ast.AST) -> ast.expr:
        return call_operator("unset", [load(flag, at) for flag in flags], at)

    def visit_RaisedFlag(self, node: RaisedFlag) -> Any:
        return call_operator("raised_flag", [self.visit(each) for each in node.values], node)

    # --- calls --------------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and self._parameters:
            node.args = [load("__class__", node), load(self._parameters[0], node)]
            return node
        if (reduced := self._reduction(node)) is not None:
            return reduced
        target = changed_by_call(node)
        if isinstance(node.func, ast.Attribute) and target is not None and (
                not isinstance(target, ast.Name) or target.id in self._own):
            return self._changing_call(node, node.func, target)
        if isinstance(node.func, ast.Attribute) and node.func.attr in LIST_METHODS and isinstance(
                node.func.value, ast.Subscript) and not _is_constant_index(node.func.value.slice):
            return self._changing_call(node, node.func, node.func.value)
        prints = isinstance(node.func, ast.Name) and node.func.id == "print"
        callee, lent = ("", []) if prints else (self._name_callee(node), self._lent(node))
        node.args = [self._printed(each) if prints else self._argument(each, node) for each in node.args]
        for keyword in node.keywords:
            keyword.value = self._argument(keyword.value, node)
        if lent:
            lent.insert(0, self._depth(node.func))
        name = "acted" if getattr(node, "is_statement", False) else "called"
        node.func = call_operator(name, [self.visit(node.func), *lent], node.func)
        if callee:
            node.func = placed(ast.NamedExpr(store(callee, node), node.func), node.func)
        return node

    def _printed(self, node: ast.expr) -> ast.expr:
        """Return an argument of `print`: an f-string for a text of traced values, else with texts as they are."""
        text = joined_text(node)
        if text is not None:
            return self._formatted(text)
        makes_text = not has_walrus(node) and any(
            (isinstance(each, ast.Name) and each.id in ("str", "repr", "format")) or (
                isinstance(each, ast.Attribute) and each.attr == "format") for each in walk_tree(node))
        visited: ast.expr = self.visit(node)
        if not makes_text:
            return visited
        if isinstance(node, ast.Starred):
            node.value = call_operator("as_they_are", [thunk(node.value)], node)
            return node
        return call_operator("as_they_are", [thunk(visited)], node)

    def _changing_call(self, node: ast.Call, function: ast.Attribute, target: ast.expr) -> ast.expr:
        """Return a call that changes an array, which is the owner of the method, or an argument."""
        node.args = [self._place(each) if each is target else self._argument(each, node) for each in node.args]
        for keyword in node.keywords:
            is_target = keyword.value is target
            keyword.value = self._place(target) if is_target else self._argument(keyword.value, node)
        is_owner = function.value is target
        owner = self._place(target) if is_owner else self.visit(function.value)
        is_statement = is_owner and getattr(node, "is_statement", False)
        node.func = call_operator("changing", [owner, constant(function.attr, function), *(
            [constant(True, function)] if is_statement else [])], function)
        return node

    def _name_callee(self, node: ast.Call) -> str:
        """Return a name for the function of a call if it decides what arguments that may be None become; else ""."""
        names = [each for each in arguments_of(node) if isinstance(each, ast.Name) and (
            each.id in self._optional - self._certain)]
        callee = self._new("callee") if names and not self._in_iterable else ""
        for each in names if callee else ():
            each.callee = callee  # type: ignore[attr-defined]
        return callee

    def _argument(self, node: ast.expr, of: ast.Call) -> ast.expr:
        """Return an argument of a call, which a container may store."""
        stores = isinstance(of.func, ast.Attribute) and of.func.attr in STORING_METHODS
        visited: ast.expr = self._stored(node) if stores else self._new_containers(node) if _may_change_arguments(
            of.func) else self.visit(node)
        return visited

    def _lent(self, node: ast.Call) -> list[ast.expr]:
        """Return, for the arguments of a call that may be lent, the position or keyword and a function for the place.

        An index is computed once, where the argument is, and has a name for the place.
        """
        found: list[ast.expr] = []
        positions = itertools.takewhile(lambda pair: not isinstance(pair[1], ast.Starred), enumerate(node.args))
        for key, each in [*positions, *((keyword.arg, keyword.value) for keyword in node.keywords)]:
            if key is None or not self._is_place(each):
                continue
            inner = each
            while isinstance(inner, ast.Attribute | ast.Subscript):
                if isinstance(inner, ast.Subscript) and not _is_constant_index(inner.slice):
                    inner.named = self._new("index")  # type: ignore[attr-defined]
                inner = inner.value
            place = thunk(self._place(copy_tree(each)))
            found.append(placed(ast.Tuple([constant(key, each), place], ast.Load()), each))
        return found

    def _reduction(self, node: ast.Call) -> ast.expr | None:
        """Return the operator for `sum`, `max` and others of a comprehension, whose length and filter may be traced."""
        if not node.args or any(isinstance(each, ast.Starred) for each in node.args):
            return None
        comprehension, *others = node.args
        if not (isinstance(node.func, ast.Name) and node.func.id in _REDUCTIONS) or any(
                each.arg not in ("key", "default") for each in node.keywords) or not isinstance(
                comprehension, ast.GeneratorExp | ast.ListComp):
            return None
        names = _names_of_item(comprehension)
        if names is None:
            return None
        function, listed = self.visit(node.func), constant(isinstance(comprehension, ast.ListComp), node)
        call: Any = call_operator("reduced", [
            function, listed, *self._parts_of_comprehension(comprehension, names), *map(self.visit, others)], node)
        call.keywords = [placed(ast.keyword(each.arg, self.visit(each.value)), each.value) for each in node.keywords]
        return call

    def _parts_of_comprehension(self, node: ast.GeneratorExp | ast.ListComp, names: Sequence[str]) -> list[ast.expr]:
        """Return the number of parts of an item, what gives the items, and the functions of its element and filter."""
        first = node.generators[0]
        element = make_lambda(names, self.visit(node.elt))
        keep: ast.expr = constant(None, node)
        if first.ifs:
            test = first.ifs[0] if len(first.ifs) == 1 else placed(ast.BoolOp(ast.And(), first.ifs), first.ifs[0])
            keep = make_lambda(names, self.visit(test))
        return [constant(len(names) if isinstance(first.target, ast.Tuple) else 0, node), self._sequence(first.iter),
                element, keep]

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        first = node.generators[0]
        may_grow = bool(first.ifs) or isinstance(first.iter, ast.Name | ast.Attribute)
        names = _names_of_item(node) if may_grow else None
        return self._comprehension(node) if names is None else call_operator(
            "kept", self._parts_of_comprehension(node, names), node)

    # --- containers, and what loops go over ---------------------------------------------------------------------------

    def _new_containers(self, value: ast.expr) -> ast.expr:
        """Return the value of an assignment; lists and their kin that it makes are known to be new."""
        if isinstance(value, ast.Tuple):
            value.elts = [self._new_containers(each) for each in value.elts]
            return value
        visited: ast.expr = self.visit(value)
        is_new = (isinstance(value, (*_DISPLAYS, ast.BinOp)) and any(
            isinstance(each, _DISPLAYS) for each in walk_tree(value))) or (
            isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice))
        may_be = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and not any(
            isinstance(each, ast.Constant) for each in (value.left, value.right))
        return call_operator("fresh" if is_new else "fresh_list", [visited], value) if is_new or may_be else visited

    def _stored(self, value: ast.expr) -> ast.expr:
        """Return an argument that a container stores, or whose items it stores: displays in it are known to be new."""
        if isinstance(value, ast.List | ast.Tuple | ast.Set):
            value.elts = [self._stored(each) for each in value.elts]
        elif isinstance(value, ast.Dict):
            value.keys = [each and self.visit(each) for each in value.keys]
            value.values = [self._stored(each) for each in value.values]
        else:
            return self._new_containers(value)
        return value if isinstance(value, ast.Tuple) else call_operator("fresh", [value], value)

    def _comprehension(self, node: Any) -> Any:
        for generator in node.generators:
            around, self._in_iterable = self._in_iterable, True
            generator.iter = self._sequence(generator.iter)
            self._in_iterable = around
            generator.target = self.visit(generator.target)
            generator.ifs = [self.visit(each) for each in generator.ifs]
        for name in ("elt", "key", "value"):
            if hasattr(node, name):
                setattr(node, name, self.visit(getattr(node, name)))
        for generator in node.generators:
            generator.ifs = [call_operator("known_filter", [each], each) for each in generator.ifs]
        return node

    visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815  (names that ast asks for)

    def _sequence(self, node: ast.expr) -> ast.expr:
        """Return what a loop goes over: calls of `range` and its kin may have traced arguments here."""
        path = dotted(node.func) if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Call) and (".".join(path) in _SEQUENCES or path[-1:] == ["arange"]):
            of_loop = call_operator("sequence", [node.func], node.func)
            nested = path[-1] not in ("range", "arange")
            args = [self._sequence(each) if nested else self.visit(each) for each in node.args]
            keywords = [placed(ast.keyword(each.arg, self.visit(each.value)), each.value) for each in node.keywords]
            return placed(ast.Call(of_loop, args, keywords), node)
        visited: ast.expr = self.visit(node)
        return visited

    def visit_NumberedRows(self, node: NumberedRows) -> Any:
        wholes = [(node.array, False)]
        if isinstance(node.array, ast.Attribute) and is_transposed(node.array):  # of an array, or of an object
            wholes.insert(0, (node.array.value, True))
        rows = [placed(ast.Tuple([thunk(self.visit(copy_tree(array))), thunk(self._place(copy_tree(array))), constant(
            columns, node)], ast.Load()), node) for array, columns in wholes]
        bounds = [constant(None, node) if each is None else self.visit(copy_tree(each)) for each in node.bounds]
        bounds = bounds or [constant(None, node)] * 3
        return call_operator("numbered", [
            thunk(self.visit(node.elts[0])), thunk(placed(ast.Tuple(bounds, ast.Load()), node)),
            constant(node.reads_elements, node), *rows], node)

    def visit_LastRows(self, node: LastRows) -> Any:
        names: list[ast.expr] = [load(each.id, each) for each in node.elts
                                 if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
        return call_operator("with_values", [thunk(placed(ast.Tuple(names, ast.Load()), node))], node)

    # --- f-strings ----------------------------------------------------------------------------------------------------

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        self.generic_visit(node)
        node.value = call_operator("shown", [node.value], node.value)
        return node

    def _formatted(self, node: ast.JoinedStr) -> ast.expr:
        """Return the argument of `print` or `assert` for an f-string: its parts, since values may be printed later.

        A part that converts to an integer first, as of "%d", has `i` for the conversion.
        """
        parts: list[ast.expr] = []
        values = [*node.values]
        while values:
            each = values.pop(0)
            inner = joined_text(each.value) if isinstance(each, ast.FormattedValue) and not each.format_spec else None
            if inner is not None:
                values[:0] = inner.values
            elif isinstance(each, ast.FormattedValue):
                spec = constant("", each) if each.format_spec is None else self.visit(each.format_spec)
                conversion = "" if each.conversion == -1 else chr(each.conversion)
                parts.append(placed(ast.Tuple([self.visit(each.value), spec, constant(
                    conversion, each)], ast.Load()), each))
            else:
                parts.append(each)
        return call_operator("text", parts, node)


def _may_change_arguments(function: ast.expr) -> bool:
    """Return whether a function may be one of the user's, which may change lists that are made for it."""
    parts = dotted(function)
    return parts[:1] != ["np"] and parts[:1] != ["numpy"] and not (len(parts) == 1 and hasattr(builtins, parts[0]))


def is_display(node: ast.expr) -> bool:
    """Return whether an expression makes lists and dicts of constants, such as [], {} and [0.0] * n."""
    return any(isinstance(each, _DISPLAYS) for each in walk_tree(node)) and not any(
        isinstance(each, ast.Name | ast.Call) for each in walk_tree(node) if not isinstance(node, ast.BinOp))


def arguments_of(node: ast.Call) -> list[ast.expr]:
    """Return the arguments of a call, by position and by keyword."""
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _is_condition(node: ast.expr) -> bool:
    """Return whether an expression is a condition, or a sum of them."""
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _is_condition(node.left)
        and _is_condition(node.right))


def _is_constant_index(index: ast.expr) -> bool:
    """Return whether an index is a number, or a slice with numbers for bounds."""
    return all(isinstance(each, ast.Slice | ast.Constant | ast.expr_context) for each in walk_tree(index))


def _names_of_item(node: ast.GeneratorExp | ast.ListComp) -> list[str] | None:
    """Return the names of an item, or of its parts, in a comprehension with one `for`; None for others."""
    first, *more = node.generators
    targets = first.target.elts if isinstance(first.target, ast.Tuple) else [first.target]
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    return None if more or first.is_async or has_walrus(node) or len(names) < len(targets) else names
