"""A function whose branches, loops, conditions and calls go through operators that decide at run time what they mean.

The blocks of a statement become functions inside of the user's, which share its variables. Every node keeps the place
of the user's code that it stands for.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fxgrad.engine.control_flow.changes import (
    Changes,
    NestedFunctions,
    changed_names,
    changes_by,
    changes_in,
    changes_until_rebound,
    may_change,
    name_outputs,
    outer_places,
    rebound_names,
    second_names,
    stored_names,
    with_methods,
)
from fxgrad.engine.control_flow.expressions import ExpressionRewriter, arguments_of, is_display
from fxgrad.engine.control_flow.jumps import JumpLowering, UnsetFlags, is_endless
from fxgrad.engine.control_flow.liveness import annotate
from fxgrad.engine.control_flow.names import (
    CHANGES,
    GIVES_NONE,
    RESULT,
    FunctionNode,
    Scope,
    arrays_of,
    bound_names,
    dotted,
    free_names,
    is_generated,
    nested_functions,
    read_names,
    walk_scope,
)
from fxgrad.engine.control_flow.nodes import (
    assign,
    call_operator,
    constant,
    define_function,
    load,
    operator,
    placed,
    run_operator,
    store,
    thunk,
)
from fxgrad.engine.control_flow.optional import assigned_values, names_set_if, optional_names, returns_none
from fxgrad.engine.control_flow.rows import NumberedRows, with_numbered_rows
from fxgrad.engine.user_source import copy_tree, walk_tree


def rewrite(node: FunctionNode) -> FunctionNode:
    """Return the function with operators in the place of control flow; the tree is not used otherwise."""
    name_outputs(node)
    return _Rewriter(node).function(node)


def is_kept(node: ast.AST) -> bool:
    """Return whether a nested function runs as it is, since it yields or awaits."""
    return isinstance(node, ast.AsyncFunctionDef) or any(
        isinstance(each, ast.Yield | ast.YieldFrom | ast.Await) for each in walk_scope(node.body))  # type: ignore[attr-defined]


class _Rewriter(ExpressionRewriter, ast.NodeTransformer):  # the linter knows visitors by the second
    """Rewrites one function; nested ones get rewriters of their own."""

    def __init__(self, node: FunctionNode, around: Collection[str] = (), changes: Mapping[str, Changes] = {},
                 ) -> None:
        super().__init__(node, around)
        self._nested = NestedFunctions(changes)  # those that are defined in the function or around it
        self._second_names: set[str] = set()

    def function(self, node: FunctionNode) -> FunctionNode:
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
            return node
        head, body = _without_text(node.body)
        if not body:
            return node
        for each in walk_scope(node.body):
            if isinstance(each, ast.Global | ast.Nonlocal):
                (self._global if isinstance(each, ast.Global) else self._outer).update(each.names)
        body = JumpLowering().function(with_numbered_rows(body))
        scope = walk_scope(body)
        start, nested = node.body[0], with_methods(nested_functions(scope))
        changes = [changes_in(scope), *map(changes_by, nested)]
        local_names = self._find_names(node, scope, nested)
        rebound, changed = rebound_names(scope), self._nested.changed_by(scope).union(*map(changed_names, changes))
        given_back = changes_until_rebound(rebound.intersection(self._parameters, changed), body, nested)
        changed_outside = ({*self._parameters, *self._around} - rebound) & changed | given_back.keys()
        annotate(body, changed_outside, self._outer)
        of_nested = set().union(*map(outer_places, nested)) & self._own
        lends = any(isinstance(each, ast.Call) and any(map(self._is_place, arguments_of(each))) for each in scope)
        parameters = self._entered(changed_outside, changes, given_back, start)
        rewritten = self._block(body)
        depths = [f"~depth {name}" for name in sorted(of_nested)]
        depths += ["~depth"] if self._asks_depth or lends else []
        before: list[ast.stmt] = [assign(name, call_operator("depth", [], start), start) for name in depths]
        if local_names:  # never run: it makes the names variables of this function, which its blocks share
            targets: list[ast.expr] = [store(each, start) for each in local_names]
            never = ast.If(constant(False, start), [placed(ast.Assign(targets, constant(None, start)), start)], [])
            before.insert(0, placed(never, start))
        node.body = [*head, *before, *parameters, *rewritten]
        return node

    def _find_names(self, node: FunctionNode, scope: Scope, nested: Sequence[FunctionNode]) -> list[str]:
        """Find what the names of the function are; return those of its variables that are no parameters."""
        found = sorted(bound_names(scope) - self._global - self._outer - {*self._parameters})
        found += [GIVES_NONE] if returns_none(scope) else []
        self._own = {*found, *self._parameters}
        self._around -= self._own
        self._second_names = {*found} & second_names(scope)
        self._optional = (optional_names(node) & self._own) - set().union(
            self._outer, *map(free_names, nested_functions(scope)))
        self._nested = self._nested.inside(self._own, self._around, nested, has_rows=any(
            isinstance(each, NumberedRows) for each in scope))
        return found

    def _entered(self, changed: set[str], changes: Sequence[Changes], given_back: Mapping[str, Changes], at: ast.AST,
                 ) -> list[ast.stmt]:
        """Return the statement for parameters that the function may change, with a note of how it does."""
        own = {*self._parameters} & changed
        if not own:
            return []
        kept = [(own - given_back.keys(), each) for each in changes] + [({name}, each) for name, each in (
            given_back.items())]
        stored = {name for names, each in kept for name in names & each.stored}
        passed = {(name, ".".join(dotted(function)), place) for names, each in kept
                  for name, function, place in each.passed if name in names}
        note = (CHANGES, tuple(sorted(stored)), tuple(sorted(passed, key=repr)))
        return [run_operator("entered", [_values_of(sorted(own), at), constant(note, at)], at)]

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            dead = self._second_names - getattr(statement, "live_before", self._second_names)
            if dead and any(map(may_change, walk_scope([statement]))):
                out.append(self._forget(sorted(dead), statement))
            rewritten = self.visit(statement)
            out += rewritten if isinstance(rewritten, list) else [rewritten]
        return out

    def _inner(self, name: str, body: list[ast.stmt], binds: set[str], at: ast.AST, parameter: str | None = None,
               reads: Collection[str] = ()) -> ast.stmt:
        """Return the definition of a function for a block, which binds names of the function around."""
        declared: list[ast.stmt] = []
        if outside := sorted(binds - self._global):
            declared.append(placed(ast.Nonlocal(outside), at))
        if of_module := sorted(binds & self._global):
            declared.append(placed(ast.Global(of_module), at))
        if reads:  # never run: it makes the names variables that the block shares
            names = placed(ast.Tuple([load(each, at) for each in sorted(reads)], ast.Load()), at)
            declared.append(placed(ast.If(constant(False, at), [placed(ast.Expr(names), at)], []), at))
        return define_function(name, [*declared, *body], [] if parameter is None else [parameter], at)

    def _changed_names(self, body: Scope, at: ast.AST, *live: set[str]) -> list[ast.expr]:
        """Return the names that a block changes, for each set of live ones, and those whose arrays change in place.

        The last is a function that tells which names are arguments of functions that change them, if any are.
        """
        visible = self._own | self._around
        stored = (stored_names(body) | self._nested.changed_by(body)) & visible
        changed = bound_names(body) | stored | self._nested.rebound_by(body)
        passed = {(name, ".".join(dotted(function)), place): function
                  for each in [changes_in(body), *self._nested.changes_read_in(body)]
                  for name, function, place in each.passed if name in visible}
        lent = {name for name, *_ in passed}
        lists = [constant(tuple(sorted(each)), at) for each in (*((changed | lent) & names for names in live), stored)]
        if not passed:
            return [*lists, constant(None, at)]
        entries = [placed(ast.Tuple([constant(name, at), constant(name in changed, at), thunk(copy_tree(function)),
                                     constant(place, at)], ast.Load()), at)
                   for (name, _, place), function in sorted(passed.items(), key=lambda each: repr(each[0]))]
        return [*lists, thunk(call_operator("passed", entries, at))]

    def _optional_names(self, at: ast.AST) -> dict[str, ast.expr]:
        """Return the names that may be None as a keyword for the call of a block."""
        names = self._optional | ({RESULT} & self._own)
        return {"optional": constant(tuple(sorted(names)), at)} if names else {}

    def _forget(self, names: Sequence[str], at: ast.stmt) -> ast.stmt:
        """Return the statement after which names have no value."""
        return run_operator("forget", [_values_of(names, at)], at)

    def _dead_after_value(self, node: ast.Assign | ast.AugAssign, targets: Sequence[ast.expr]) -> list[str]:
        """Return the names that a value assigned to an item is the last to read: such as a view of the same array."""
        if not any(isinstance(each, ast.Subscript) for each in targets) or isinstance(node.value, ast.Name):
            return []
        live: set[str] = getattr(node, "live_after", self._second_names)
        return sorted((self._second_names & read_names([node.value])) - live - read_names(targets))

    def _forgetting(self, names: Sequence[str], value: ast.expr) -> ast.expr:
        """Return an expression after which names have no value."""
        return call_operator("forgetting", [value, _values_of(names, value)], value) if names else value

    def _with_checks(self, node: ast.stmt, names: Iterable[str]) -> list[ast.stmt]:
        """Return a statement that binds names, after checks for those of scopes outside."""
        return [*(placed(ast.Expr(check), node) for check in self._rebinding(names, node)), node]

    def visit_If(self, node: ast.If) -> Any:
        if hasattr(node, "raises"):
            return self._raising_branch(node, node.raises)
        if hasattr(node, "stops") and len(node.body) == 1 and not node.orelse:  # nothing but the jump
            flag, test = node.stops, node.test
            return assign(flag, call_operator("ended", [
                self._condition(test), thunk(load(flag, test)), constant(flag, test)], test), test)
        then, other = self._new("then"), self._new("else")
        scope = walk_scope([*node.body, *node.orelse])
        changed = self._changed_names(scope, node.test, node.live)  # type: ignore[attr-defined]
        reads = self._nested.places_in(scope)
        test, binds = node.test, [bound_names(node.body), bound_names(node.orelse)]
        defined = []
        for name, block, when in (then, node.body, True), (other, node.orelse, False):
            with self._knowing(test, when, binds[not when]):
                certain = [assign(each, call_operator("value_set", [load(each, test), constant(
                    each, test), constant(True, test)], test), test)
                    for each in sorted(names_set_if(test, when) & self._optional & binds[when])]
                body = [*certain, *self._block(block)]
            if body:
                at = block[0] if block else test
                names = binds[not when] | bound_names(certain)
                defined.append(self._inner(name, body, names, at, reads=reads if when else ()))
        args = [self._condition(test), load(then, test),
                load(other, test) if len(defined) > 1 else constant(None, test), *changed]
        if isinstance(test, UnsetFlags) or hasattr(node, "returned"):
            what = "rest" if isinstance(test, UnsetFlags) else "if"
            args += [constant(what, test), constant(getattr(node, "returned", None), test)]
        keywords = self._optional_names(test)
        if hasattr(node, "stops"):
            keywords["stops"] = constant(node.stops, test)
        return [*defined, run_operator("if_", args, test, **keywords)]

    def _raising_branch(self, node: ast.If, raises: bool) -> ast.stmt:
        """Return the `if` of which one side only raises: a traced condition is checked, and the other side runs."""
        *before, statement = node.body if raises else node.orelse
        error: ast.expr = statement.exc  # type: ignore[attr-defined]
        if before and isinstance(error, ast.Name) and bound_names(before) == {error.id}:
            before, error = [], before[0].value  # type: ignore[attr-defined]
        source = constant(ast.unparse(error), error)
        parts: list[ast.expr] = [source]
        text = error.args[0] if isinstance(error, ast.Call) and len(error.args) == 1 and not error.keywords else None
        if before:  # it is not run if the condition is traced
            is_bound = isinstance(text, ast.Name) and bound_names(before) == {text.id}
            text = before[0].value if is_bound else None  # type: ignore[attr-defined]
        if text is not None and not isinstance(text, ast.Starred):
            text = copy_tree(text)
            word = ast.unparse(error.func)  # type: ignore[attr-defined]
            parts = [constant(f"{word}: ", error), *(text.values if isinstance(
                text, ast.JoinedStr) else [placed(ast.FormattedValue(text, -1), text)])]
        message = thunk(self._formatted(placed(ast.JoinedStr(parts), error)))
        kind = thunk(copy_tree(error.func if isinstance(error, ast.Call) else error))
        test = call_operator(
            "not_raising", [self.visit(node.test), constant(raises, node.test), message, source, kind], error)
        return placed(ast.If(test, self._block(node.body), self._block(node.orelse)), node)

    def visit_While(self, node: ast.While) -> Any:
        test, body = self._new("test"), self._new("body")
        flags: tuple[str, ...] = node.flags  # type: ignore[attr-defined]
        scope = walk_scope(node.body)
        changed = self._changed_names(scope, node.test, node.live, node.turn)  # type: ignore[attr-defined]
        reads, binds = self._nested.places_in(scope), bound_names(scope)
        condition = self._condition(node.test)
        if flags:
            condition = call_operator("boolean", [constant("and", node.test), self._unset(flags, node.test),
                                               thunk(condition)], node.test)
        returns = placed(ast.Return(condition), node.test)
        keywords: dict[str, ast.expr] = {}
        if not flags and is_endless(node):  # it ends by an exception, if at all
            keywords["endless"] = constant(True, node.test)
        keywords |= self._optional_names(node.test)
        return [self._inner(test, [returns], set(), node.test),
                self._inner(body, self._block(node.body), binds, node.body[0], reads=reads),
                run_operator("while_", [load(test, node.test), load(body, node.test), *changed], node.test, **keywords)]

    def visit_For(self, node: ast.For) -> Any:
        body, stopped = self._new("body"), self._new("stopped")
        flags: tuple[str, ...] = node.flags  # type: ignore[attr-defined]
        scope = walk_scope([node.target, *node.body])
        changed = self._changed_names(scope, node.iter, node.live, node.turn)  # type: ignore[attr-defined]
        binds = bound_names(scope)
        begin = placed(ast.Assign([self.visit(node.target)], load("~item", node.target)), node.target)
        rebinding = [placed(ast.Expr(check), node.target) for check in self._rebinding(
            bound_names(node.target), node.target)]
        reads = self._nested.places_in(node.body)
        defined = [self._inner(body, [*rebinding, begin, *self._block(node.body)], binds, node.target, "~item", reads)]
        at = node.iter
        stops: ast.expr = constant(None, at)
        if flags:
            defined.append(self._inner(stopped, [placed(ast.Return(self._unset(flags, at)), at)], set(), at))
            stops = load(stopped, at)
        return [*defined, run_operator("for_", [self._sequence(node.iter), load(body, at), stops, *changed], at,
                                       **self._optional_names(at))]

    def visit_With(self, node: ast.With) -> Any:
        items = [self.visit(item) for item in node.items]
        return placed(ast.With(items, self._block(node.body)), node)

    def visit_Try(self, node: ast.Try) -> Any:
        around, self._is_caught = self._is_caught, self._is_caught or bool(node.handlers)
        body = self._block(node.body)
        self._is_caught = around
        if node.handlers:  # which exceptions are raised cannot depend on traced values
            kinds = [load("BaseException", each) if each.type is None else self.visit(copy_tree(each.type))
                     for each in node.handlers]
            inside = call_operator("in_try", [thunk(placed(ast.Tuple(kinds, ast.Load()), node))], node)
            body = [placed(ast.With([ast.withitem(inside, None)], body), node)]
        handlers = [placed(ast.ExceptHandler(each.type and self.visit(each.type), each.name, self._block(each.body)),
                           each) for each in node.handlers]
        if handlers:  # they are for exceptions that Python has, too
            refused = placed(ast.ExceptHandler(operator("refusals", node), None, [placed(ast.Raise(), node)]), node)
            handlers.insert(0, refused)
        return placed(ast.Try(body, handlers, self._block(node.orelse), self._block(node.finalbody)), node)

    def visit_Match(self, node: ast.Match) -> Any:
        cases = [ast.match_case(each.pattern, each.guard and self._known(each.guard, "the guard of a case"),
                                self._block(each.body)) for each in node.cases]
        subject = self.visit(node.subject)
        if any(isinstance(each, ast.MatchSingleton) and each.value is not None
               for case in node.cases for each in walk_tree(case.pattern)):
            subject = call_operator("without_traced_bools", [subject], node.subject)
        return placed(ast.Match(subject, cases), node)

    # --- nested functions ---------------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        self._defaults(node)
        return node if is_kept(node) else _Rewriter(node, self._own | self._around, self._nested.changes).function(node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        self._defaults(node)
        inner = _Rewriter(node, self._own | self._around, self._nested.changes)
        inner._in_iterable = self._in_iterable  # Python binds no name there
        return inner.function(node)

    def _defaults(self, node: FunctionNode) -> None:
        node.args.defaults = [self.visit(each) for each in node.args.defaults]
        node.args.kw_defaults = [None if each is None else self.visit(each) for each in node.args.kw_defaults]

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        node.body = [self.visit_FunctionDef(each) if isinstance(each, ast.FunctionDef) else each for each in node.body]
        return node

    def visit_Global(self, node: ast.Global) -> Any:
        return node

    # --- simple statements --------------------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> Any:
        value, dead = node.value, self._dead_after_value(node, node.targets)
        is_result = isinstance(node.targets[0], ast.Name) and node.targets[0].id == RESULT
        for name, each in itertools.chain.from_iterable(assigned_values(target, value) for target in node.targets):
            if name in self._optional:
                _keep_none(each)
        node.targets = [self.visit(target) for target in node.targets]
        node.value = self._returned(value) if is_result else self._new_containers(value)
        node.value = self._forgetting(dead, node.value)
        for name in getattr(node, "given_back", ()):
            node.value = call_operator("given_back", [thunk(load(name, node)), node.value], node)
        if hasattr(node, "moves") and isinstance(value, ast.Name) and (
                value.id in self._second_names - node.live_after):  # type: ignore[attr-defined]
            return [node, self._forget([value.id], node)]
        lists = [each.value for target in node.targets for each in walk_tree(target)
                 if isinstance(each, ast.Starred) and isinstance(each.value, ast.Name)]
        return [*self._with_checks(node, bound_names(node.targets)),
                *(run_operator("fresh", [load(each.id, each)], each) for each in lists)]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return placed(ast.Pass(), node)
        plain = placed(ast.Assign([node.target], node.value), node)
        plain.given_back = getattr(node, "given_back", [])  # type: ignore[attr-defined]
        return self.visit(plain)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        before: list[ast.stmt] = []
        after: list[ast.stmt] = []
        dead = self._dead_after_value(node, [node.target])
        node.value = self._stored(node.value) if isinstance(node.value, ast.List) else self.visit(node.value)
        node.value = self._forgetting(dead, node.value)
        if isinstance(node.target, ast.Name):
            name = node.target.id
            if name in self._optional:
                before.append(assign(name, self.visit(load(name, node)), node))
            before += [assign("~operand", node.value, node.value)]
            node.value = load("~operand", node.value)
            before.append(run_operator("augmented", [thunk(load(name, node)), constant(name, node), node.value], node))
            if arrays_of(node.target):
                after = [assign("~operand", constant(None, node), node),
                         run_operator("store_row", [thunk(load(name, node))], node)]
        shown = constant(ast.unparse(node.target), node.target)
        node.target = self.visit(node.target)
        if isinstance(node.target, ast.Subscript | ast.Attribute):
            node.target.value = call_operator("slots", [node.target.value, shown], node.target)
        return [*before, *self._with_checks(node, bound_names(node.target)), *after]

    def visit_Return(self, node: ast.Return) -> Any:
        _keep_none(node.value)
        if node.value is not None:
            is_new = is_display(node.value) or isinstance(node.value, ast.Subscript | ast.BinOp)
            node.value = self._new_containers(node.value) if is_new else self.visit(node.value)
        return node

    def _returned(self, value: ast.expr) -> ast.expr:
        """Return the value of an early `return`."""
        if isinstance(value, ast.Tuple):
            value.elts = [self._returned(each) for each in value.elts]
            return value
        if isinstance(value, ast.Name) and value.id in self._own and not arrays_of(value):
            certain = [constant(True, value)] if value.id in self._certain else []
            return call_operator("returned", [thunk(value), *certain], value)
        _keep_none(value)
        return self._new_containers(value)

    def visit_Delete(self, node: ast.Delete) -> Any:
        names = [each.id for each in node.targets if isinstance(each, ast.Name) and is_generated(each.id)]
        return self._forget(names, node) if names else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Call):
            node.value.is_statement = True  # type: ignore[attr-defined]
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> Any:
        message: ast.expr = constant(None, node.test)
        source = constant("" if node.msg is None else ast.unparse(node.msg), node.test)
        if node.msg is not None:
            text = copy_tree(node.msg)
            message = thunk(self._formatted(text) if isinstance(text, ast.JoinedStr) else self.visit(text))
            node.msg = self.visit(node.msg)
        node.test = call_operator("assertion", [self.visit(node.test), message, source], node.test)
        return node

    def visit_Raise(self, node: ast.Raise) -> Any:
        given = node.exc
        if given is None:
            return [run_operator("raising", [], node), node]
        kind = thunk(copy_tree(given.func if isinstance(given, ast.Call) else given))
        source = constant(ast.unparse(given), given)
        self.generic_visit(node)
        assert node.exc is not None
        node.exc = call_operator("raising", [thunk(node.exc), kind, source], given)
        return node


def _keep_none(value: ast.expr | None) -> None:
    """Mark a value that is returned, or that a name gets which may be None: it may be that, too."""
    if isinstance(value, ast.Name | ast.IfExp):
        value.may_be_none = True  # type: ignore[union-attr]
    for each in [value.body, value.orelse] if isinstance(value, ast.IfExp) else (
            value.elts if isinstance(value, ast.Tuple) else []):
        _keep_none(each)


def _without_text(body: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the docstring of a function, if it has one, and the other statements."""
    start = body[0]
    has_text = isinstance(start, ast.Expr) and isinstance(start.value, ast.Constant) and isinstance(
        start.value.value, str)
    return body[:has_text], body[has_text:]


def _values_of(names: Sequence[str], at: ast.AST) -> ast.expr:
    """Return the function that reads variables, which tells an operator what they are."""
    return thunk(placed(ast.Tuple([load(each, at) for each in names], ast.Load()), at))
