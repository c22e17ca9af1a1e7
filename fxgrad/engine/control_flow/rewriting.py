"""A function whose branches, loops, conditions and calls go through operators that decide at run time what they mean.

The blocks of a statement become functions inside of the user's, which share its variables. Every node keeps the place
of the user's code that it stands for.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fxgrad.engine.control_flow.changes import (
    Changes,
    changed_by_call,
    changed_names,
    changes_by,
    changes_in,
    changes_until_rebound,
    may_change,
    outer_places,
    rebound_names,
    second_names,
    stored_names,
    with_methods,
)
from fxgrad.engine.control_flow.jumps import JumpLowering, RaisedFlag, UnsetFlags, is_endless
from fxgrad.engine.control_flow.liveness import annotate
from fxgrad.engine.control_flow.mutators import STORING_METHODS
from fxgrad.engine.control_flow.names import (
    CHANGES,
    GIVES_NONE,
    OPERATORS,
    RESULT,
    FunctionNode,
    Nodes,
    Scope,
    arrays_of,
    bound_names,
    dotted,
    free_names,
    has_walrus,
    is_generated,
    nested_functions,
    parameter_names,
    read_names,
    walk_scope,
)
from fxgrad.engine.control_flow.nodes import assign, constant, define_function, load, make_lambda, placed, store, thunk
from fxgrad.engine.control_flow.optional import (
    assigned_values,
    compared_with_none,
    is_none,
    names_set_if,
    optional_names,
    returns_none,
)
from fxgrad.engine.control_flow.rows import LastRows, NumberedRows, is_transposed, with_numbered_rows
from fxgrad.engine.user_source import copy_tree, walk_tree

_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_SEQUENCES = ("range", "zip", "enumerate", "reversed", "count", "itertools.count")
_REDUCTIONS = ("sum", "any", "all", "min", "max", "len", "next")


def rewrite(node: FunctionNode) -> FunctionNode:
    """Return the function with operators in the place of control flow; the tree is not used otherwise."""
    return _Rewriter(node).function(node)


def _is_condition(node: ast.expr) -> bool:
    """Return whether an expression is a condition, or a sum of them."""
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _is_condition(node.left)
        and _is_condition(node.right))


def _is_only_displays(node: ast.expr) -> bool:
    """Return whether an expression makes lists and dicts of constants, such as [], {} and [0.0] * n."""
    return any(isinstance(each, _DISPLAYS) for each in walk_tree(node)) and not any(
        isinstance(each, ast.Name | ast.Call) for each in walk_tree(node) if not isinstance(node, ast.BinOp))


def is_kept(node: ast.AST) -> bool:
    """Return whether a nested function runs as it is, since it yields or awaits."""
    return isinstance(node, ast.AsyncFunctionDef) or any(
        isinstance(each, ast.Yield | ast.YieldFrom | ast.Await) for each in walk_scope(node.body))  # type: ignore[attr-defined]


def _keep_none(value: ast.expr | None) -> None:
    """Mark a value that is returned, or that a name gets which may be None: it may be that, too."""
    if isinstance(value, ast.Name | ast.IfExp):
        value.may_be_none = True  # type: ignore[union-attr]
    for each in [value.body, value.orelse] if isinstance(value, ast.IfExp) else (
            value.elts if isinstance(value, ast.Tuple) else []):
        _keep_none(each)


class _Rewriter(ast.NodeTransformer):
    """Rewrites one function; nested ones get rewriters of their own."""

    def __init__(self, node: FunctionNode, around: Collection[str] = (), changes: Mapping[str, Changes] = {},
                 ) -> None:
        self._parameters = parameter_names(node.args)
        self._around = {*around}  # names of the functions around
        self._changes = {**changes}  # what functions that are nested here, or in the functions around, change outside
        self._global: set[str] = set()
        self._outer: set[str] = set()
        self._second_names: set[str] = set()
        self._own: set[str] = set()
        self._changed: set[str] = set()  # names whose arrays may change for others: parameters, and those around
        self._count = 0
        self._chosen = 0  # how many expressions are around that a traced condition may choose
        self._asks_depth = False
        self._has_rows = False
        self._in_iterable = False  # of a comprehension
        self._is_lambda = isinstance(node, ast.Lambda)
        self._optional: set[str] = set()  # names that may be None, as the code says
        self._certain: set[str] = set()  # those that are not None where the code stands

    def function(self, node: FunctionNode) -> FunctionNode:
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
            return node
        for each in walk_scope(node.body):
            if isinstance(each, ast.Global):
                self._global.update(each.names)
            elif isinstance(each, ast.Nonlocal):
                self._outer.update(each.names)
        start = node.body[0]
        has_text = isinstance(start, ast.Expr) and isinstance(start.value, ast.Constant) and isinstance(
            start.value.value, str)
        head, body = node.body[:has_text], node.body[has_text:]
        if not body:
            return node
        body = JumpLowering().function(with_numbered_rows(body))
        scope = walk_scope(body)
        self._has_rows = any(isinstance(each, NumberedRows) for each in scope)
        defined = nested_functions(scope)
        nested = with_methods(defined)
        changes = [changes_in(scope), *map(changes_by, nested)]
        locals_ = sorted(bound_names(scope) - self._global - self._outer - {*self._parameters})
        locals_ += [GIVES_NONE] if returns_none(scope) else []
        self._own = {*locals_, *self._parameters}
        self._second_names = {*locals_} & second_names(scope)
        self._optional = (optional_names(node) & self._own) - set().union(
            self._outer, *map(free_names, defined))
        self._around -= self._own
        self._changes = {name: each for name, each in self._changes.items() if name not in self._own}
        self._changes |= {each.name: changes_by(each) for each in nested
                          if isinstance(each, ast.FunctionDef) and each.name in self._own}
        rebound, changed = rebound_names(scope), self._changed_by_nested(scope).union(*map(changed_names, changes))
        self._changed = ({*self._parameters, *self._around} - rebound) & changed
        given_back = changes_until_rebound(rebound.intersection(self._parameters, changed), body, nested)
        self._changed |= given_back.keys()
        annotate(body, self._changed, self._outer)
        of_nested = set().union(*map(outer_places, nested)) & self._own
        lends = any(isinstance(each, ast.Call) and any(map(self._is_place, _arguments_of(each)))
                    for each in scope)
        parameters = self._entered(changes, given_back, start)
        rewritten = self._block(body)
        rewritten[:0] = parameters
        if self._asks_depth or lends:
            rewritten.insert(0, assign("~depth", self._call("depth", [], start), start))
        rewritten[:0] = [assign(f"~depth {name}", self._call("depth", [], start), start) for name in sorted(of_nested)]
        if locals_:  # never run: it makes the names variables of this function, which its blocks share
            targets: list[ast.expr] = [store(each, start) for each in locals_]
            never = ast.If(constant(False, start), [placed(ast.Assign(targets, constant(None, start)), start)], [])
            rewritten.insert(0, placed(never, start))
        node.body = [*head, *rewritten]
        return node

    def _entered(self, changes: Sequence[Changes], given_back: Mapping[str, Changes], at: ast.AST) -> list[ast.stmt]:
        """Return the statement for parameters that the function may change, with a note of how it does."""
        own = {*self._parameters} & self._changed
        if not own:
            return []
        kept = [(own - given_back.keys(), each) for each in changes] + [({name}, each) for name, each in (
            given_back.items())]
        stored = {name for names, each in kept for name in names & each.stored}
        passed = {(name, ".".join(dotted(function)), place) for names, each in kept
                  for name, function, place in each.passed if name in names}
        note = (CHANGES, tuple(sorted(stored)), tuple(sorted(passed, key=repr)))
        values = placed(ast.Tuple([load(name, at) for name in sorted(own)], ast.Load()), at)
        return [placed(ast.Expr(self._call("entered", [thunk(values), constant(note, at)], at)), at)]

    # --- statements -----------------------------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            dead = self._second_names - getattr(statement, "live_before", self._second_names)
            if dead and any(map(may_change, walk_scope([statement]))):
                out.append(self._forget(sorted(dead), statement))
            rewritten = self.visit(statement)
            out += rewritten if isinstance(rewritten, list) else [rewritten]
        return out

    def _forget(self, names: Sequence[str], at: ast.stmt) -> ast.stmt:
        """Return the statement after which names have no value."""
        values = placed(ast.Tuple([load(each, at) for each in names], ast.Load()), at)
        return placed(ast.Expr(self._call("forget", [thunk(values)], at)), at)

    def visit_Delete(self, node: ast.Delete) -> Any:
        names = [each.id for each in node.targets if isinstance(each, ast.Name) and is_generated(each.id)]
        return self._forget(names, node) if names else self.generic_visit(node)

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

    def _new(self, word: str) -> str:
        self._count += 1
        return f"~{word} {self._count}"

    def visit_If(self, node: ast.If) -> Any:
        if hasattr(node, "raises"):
            return self._raising_branch(node, node.raises)
        if hasattr(node, "stops") and len(node.body) == 1 and not node.orelse:  # nothing but the jump
            flag, test = node.stops, node.test
            return assign(flag, self._call("ended", [
                self._condition(test), thunk(load(flag, test)), constant(flag, test)], test), test)
        then, other = self._new("then"), self._new("else")
        scope = walk_scope([*node.body, *node.orelse])
        changed = self._changed_names(scope, node.test, node.live)  # type: ignore[attr-defined]
        reads = self._places_of_nested(scope)
        test, binds = node.test, [bound_names(node.body), bound_names(node.orelse)]
        defined = []
        for name, block, when in (then, node.body, True), (other, node.orelse, False):
            with self._knowing(test, when, binds[not when]):
                certain = [assign(each, self._call("value_set", [load(each, test), constant(
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
        choose: Any = self._with_optional(self._call("if_", args, test))
        if hasattr(node, "stops"):
            choose.keywords.append(placed(ast.keyword("stops", constant(node.stops, test)), test))
        return [*defined, placed(ast.Expr(choose), test)]

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
        test = self._call("not_raising", [self.visit(node.test), constant(raises, node.test), message, source, kind],
                          error)
        return placed(ast.If(test, self._block(node.body), self._block(node.orelse)), node)

    def visit_While(self, node: ast.While) -> Any:
        test, body = self._new("test"), self._new("body")
        flags: tuple[str, ...] = node.flags  # type: ignore[attr-defined]
        scope = walk_scope(node.body)
        changed = self._changed_names(scope, node.test, node.live, node.turn)  # type: ignore[attr-defined]
        reads, binds = self._places_of_nested(scope), bound_names(scope)
        condition = self._condition(node.test)
        if flags:
            condition = self._call("boolean", [constant("and", node.test), self._unset(flags, node.test),
                                               thunk(condition)], node.test)
        returns = placed(ast.Return(condition), node.test)
        call: Any = self._call("while_", [load(test, node.test), load(body, node.test), *changed], node.test)
        if not flags and is_endless(node):  # it ends by an exception, if at all
            call.keywords.append(placed(ast.keyword("endless", constant(True, call)), call))
        call = self._with_optional(call)
        return [self._inner(test, [returns], set(), node.test),
                self._inner(body, self._block(node.body), binds, node.body[0], reads=reads),
                placed(ast.Expr(call), node.test)]

    def visit_For(self, node: ast.For) -> Any:
        body, stopped = self._new("body"), self._new("stopped")
        flags: tuple[str, ...] = node.flags  # type: ignore[attr-defined]
        scope = walk_scope([node.target, *node.body])
        changed = self._changed_names(scope, node.iter, node.live, node.turn)  # type: ignore[attr-defined]
        binds = bound_names(scope)
        begin = placed(ast.Assign([self.visit(node.target)], load("~item", node.target)), node.target)
        rebinding = [placed(ast.Expr(check), node.target) for check in self._rebinding(
            bound_names(node.target), node.target)]
        reads = self._places_of_nested(node.body)
        defined = [self._inner(body, [*rebinding, begin, *self._block(node.body)], binds, node.target, "~item", reads)]
        at = node.iter
        stops: ast.expr = constant(None, at)
        if flags:
            defined.append(self._inner(stopped, [placed(ast.Return(self._unset(flags, at)), at)], set(), at))
            stops = load(stopped, at)
        call = self._with_optional(self._call("for_", [
            self._sequence(node.iter), load(body, at), stops, *changed], at))
        return [*defined, placed(ast.Expr(call), at)]

    def _with_optional(self, call: Any) -> Any:
        """Return a call for a block, with the names that may be None."""
        names = self._optional | ({RESULT} & self._own)
        if names:
            call.keywords.append(placed(ast.keyword("optional", constant(tuple(sorted(names)), call)), call))
        return call

    @contextlib.contextmanager
    def _knowing(self, test: ast.expr, when: bool, binds: Collection[str] = ()) -> Iterator[None]:
        """In the block, visit code that runs if a test gives `when`, and that binds these names."""
        around = self._certain
        if self._optional:
            self._certain = around | (names_set_if(test, when) & self._optional).difference(binds)
        yield
        self._certain = around

    def _changed_names(self, body: Scope, at: ast.AST, *live: set[str]) -> list[ast.expr]:
        """Return the names that a block changes, for each set of live ones, and those whose arrays change in place.

        The last is a function that tells which names are arguments of functions that change them, if any are.
        """
        stored = (stored_names(body) | self._changed_by_nested(body)) & (self._own | self._around)
        changed = bound_names(body) | stored | self._rebound_by_nested(body)
        changes = [changes_in(body), *(self._changes[name] for name in sorted(self._nested_in(body)))]
        passed = {(name, ".".join(dotted(function)), place): function for each in changes
                  for name, function, place in each.passed if name in self._own | self._around}
        lent = {name for name, *_ in passed}
        lists = [constant(tuple(sorted(each)), at) for each in (*((changed | lent) & names for names in live), stored)]
        if not passed:
            return [*lists, constant(None, at)]
        entries = [placed(ast.Tuple([constant(name, at), constant(name in changed, at), thunk(copy_tree(function)),
                                  constant(place, at)], ast.Load()), at)
                   for (name, _, place), function in sorted(passed.items(), key=lambda each: repr(each[0]))]
        return [*lists, thunk(self._call("passed", entries, at))]

    def _nested_in(self, body: Nodes) -> set[str]:
        """Return the names of nested functions that a block reads, and of those that these read."""
        if not self._changes:
            return set()
        found, waiting = set(), [*read_names(body) & self._changes.keys()]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self._changes[name].reads & self._changes.keys()
        return found

    def _changed_by_nested(self, body: Nodes) -> set[str]:
        """Return the names whose arrays nested functions change that a block reads."""
        return set().union(*(self._changes[name].stored for name in self._nested_in(body)), set()) & (
            self._own | self._around)

    def _rebound_by_nested(self, body: Nodes) -> set[str]:
        """Return the names that nested functions rebind that a block reads."""
        return set().union(*(self._changes[name].rebound for name in self._nested_in(body)), set()) & (
            self._own | self._around)

    def _places_of_nested(self, body: Nodes) -> set[str]:
        """Return the names that nested functions rebind that a block reads, or whose arrays they change or pass.

        So are those whose arrays have rows that the block reads.
        """
        passed = {name for nested in self._nested_in(body) for name, *_ in self._changes[nested].passed}
        if self._has_rows:  # they are read through functions of their loop
            passed.update(name for node in walk_scope(body) if isinstance(node, ast.Name) for name in arrays_of(node))
        return self._changed_by_nested(body) | self._rebound_by_nested(body) | (passed & (self._own | self._around))

    def _sequence(self, node: ast.expr) -> ast.expr:
        """Return what a loop goes over: calls of `range` and its kin may have traced arguments here."""
        path = dotted(node.func) if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Call) and (".".join(path) in _SEQUENCES or path[-1:] == ["arange"]):
            of_loop = self._call("sequence", [node.func], node.func)
            nested = path[-1] not in ("range", "arange")
            args = [self._sequence(each) if nested else self.visit(each) for each in node.args]
            keywords = [placed(ast.keyword(each.arg, self.visit(each.value)), each.value) for each in node.keywords]
            return placed(ast.Call(of_loop, args, keywords), node)
        visited: ast.expr = self.visit(node)
        return visited

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        self._defaults(node)
        return node if is_kept(node) else _Rewriter(node, self._own | self._around, self._changes).function(node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        self._defaults(node)
        inner = _Rewriter(node, self._own | self._around, self._changes)
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

    def visit_With(self, node: ast.With) -> Any:
        items = [self.visit(item) for item in node.items]
        return placed(ast.With(items, self._block(node.body)), node)

    def visit_Try(self, node: ast.Try) -> Any:
        body = self._block(node.body)
        if node.handlers:  # which exceptions are raised cannot depend on traced values
            inside = ast.withitem(self._operator("in_try", node), None)
            body = [placed(ast.With([inside], body), node)]
        handlers = [placed(ast.ExceptHandler(each.type and self.visit(each.type), each.name, self._block(each.body)),
                           each) for each in node.handlers]
        if handlers:  # they are for exceptions that Python has, too
            refused = placed(ast.ExceptHandler(self._operator("refusals", node), None, [placed(ast.Raise(), node)]),
                             node)
            handlers.insert(0, refused)
        return placed(ast.Try(body, handlers, self._block(node.orelse), self._block(node.finalbody)), node)

    def visit_Match(self, node: ast.Match) -> Any:
        cases = [ast.match_case(each.pattern, each.guard and self._known(each.guard, "the guard of a case"),
                                self._block(each.body)) for each in node.cases]
        subject = self.visit(node.subject)
        if any(isinstance(each, ast.MatchSingleton) and each.value is not None
               for case in node.cases for each in walk_tree(case.pattern)):
            subject = self._call("without_traced_bools", [subject], node.subject)
        return placed(ast.Match(subject, cases), node)

    def visit_Assert(self, node: ast.Assert) -> Any:
        message: ast.expr = constant(None, node.test)
        source = constant("" if node.msg is None else ast.unparse(node.msg), node.test)
        if node.msg is not None:
            message = thunk(self._formatted(node.msg) if isinstance(node.msg, ast.JoinedStr) else self.visit(node.msg))
            node.msg = self.visit(copy_tree(node.msg))
        node.test = self._call("assertion", [self.visit(node.test), message, source], node.test)
        return node

    def visit_Raise(self, node: ast.Raise) -> Any:
        self.generic_visit(node)
        if node.exc is None:
            return [placed(ast.Expr(self._call("raising", [], node)), node), node]
        node.exc = self._call("raising", [node.exc], node.exc)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        value = node.value
        is_result = isinstance(node.targets[0], ast.Name) and node.targets[0].id == RESULT
        for name, each in itertools.chain.from_iterable(assigned_values(target, value) for target in node.targets):
            if name in self._optional:
                _keep_none(each)
        node.targets = [self.visit(target) for target in node.targets]
        node.value = self._returned(value) if is_result else self._new_containers(value)
        for name in getattr(node, "given_back", ()):
            node.value = self._call("given_back", [thunk(load(name, node)), node.value], node)
        if hasattr(node, "moves") and isinstance(value, ast.Name) and (
                value.id in self._second_names - node.live_after):  # type: ignore[attr-defined]
            return [node, self._forget([value.id], node)]
        found = self._noting_rebinding(node, bound_names(node.targets))
        lists = [each.value for target in node.targets for each in walk_tree(target)
                 if isinstance(each, ast.Starred) and isinstance(each.value, ast.Name)]
        return [*(found if isinstance(found, list) else [found]), *(
            placed(ast.Expr(self._call("fresh", [load(each.id, each)], each)), each)
            for each in lists)] if lists else found

    def _returned(self, value: ast.expr) -> ast.expr:
        """Return the value of an early `return`."""
        if isinstance(value, ast.Tuple):
            value.elts = [self._returned(each) for each in value.elts]
            return value
        if isinstance(value, ast.Name) and value.id in self._own and not arrays_of(value):
            certain = [constant(True, value)] if value.id in self._certain else []
            return self._call("returned", [thunk(value), *certain], value)
        _keep_none(value)
        return self._new_containers(value)

    def visit_Return(self, node: ast.Return) -> Any:
        _keep_none(node.value)
        if node.value is not None:
            node.value = self._new_containers(node.value) if _is_only_displays(node.value) else self.visit(node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return placed(ast.Pass(), node)
        plain = placed(ast.Assign([node.target], node.value), node)
        plain.given_back = getattr(node, "given_back", [])  # type: ignore[attr-defined]
        return self.visit(plain)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        before: list[ast.stmt] = []
        after: list[ast.stmt] = []
        node.value = self._stored(node.value) if isinstance(node.value, ast.List) else self.visit(node.value)
        if isinstance(node.target, ast.Name):
            name = node.target.id
            if name in self._optional:
                before.append(assign(name, self.visit(load(name, node)), node))
            before += [assign("~operand", node.value, node.value)]
            node.value = load("~operand", node.value)
            check = self._call("augmented", [thunk(load(name, node)), constant(name, node),
                                             node.value], node)
            before.append(placed(ast.Expr(check), node))
            if arrays_of(node.target):
                store = self._call("store_row", [thunk(load(name, node))], node)
                after = [assign("~operand", constant(None, node), node), placed(ast.Expr(store), node)]
        shown = constant(ast.unparse(node.target), node.target)
        node.target = self.visit(node.target)
        if isinstance(node.target, ast.Subscript | ast.Attribute):
            node.target.value = self._call("slots", [node.target.value, shown], node.target)
        found = self._noting_rebinding(node, bound_names(node.target))
        return [*before, *(found if isinstance(found, list) else [found]), *after]

    def _noting_rebinding(self, node: ast.stmt, names: Iterable[str]) -> Any:
        checks = self._rebinding(names, node)
        return [*(placed(ast.Expr(check), node) for check in checks), node] if checks else node

    def _rebinding(self, names: Iterable[str], at: ast.AST) -> list[ast.expr]:
        """Return the checks for the names of scopes outside among those that are about to be assigned."""
        checks = []
        for name in sorted({*names} & (self._global | self._outer)):
            args: list[ast.expr] = [constant(name, at)]
            if name in self._outer:
                args.append(thunk(load(name, at)))
            if name in self._around:
                args.append(load(f"~depth {name}", at))
            checks.append(self._call("rebinding", args, at))
        return checks

    # --- expressions ----------------------------------------------------------------------------------------------

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        self.generic_visit(node)
        checks = self._rebinding([node.target.id], node)
        if checks:
            both = placed(ast.Tuple([*checks, node.value], ast.Load()), node)
            node.value = placed(ast.Subscript(both, constant(1, node), ast.Load()), node)
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return node
        if arrays_of(node):
            return self._call("value_of", [node], node)
        if node.id in self._optional and not (hasattr(node, "may_be_none") and node.id not in self._certain):
            if (callee := getattr(node, "callee", "")):
                return self._call("argument", [load(callee, node), node, constant(node.id, node)], node)
            return self._call("value_set", [node, *self._of_optional(node)], node)
        return node

    def _of_optional(self, name: ast.Name) -> list[ast.expr]:
        """Return the arguments of `value_set` for a name that may be None."""
        return [constant(name.id, name), constant(name.id in self._certain, name)]

    def _condition(self, node: ast.expr) -> ast.expr:
        """Return a condition; a name that may be None is one."""
        if isinstance(node, ast.Name) and node.id in self._optional:
            return self._call("is_true", [node], node)
        if isinstance(node, ast.BoolOp) and self._optional:
            return self._boolean(node, self._condition)
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
        return self._call("numbered", [
            thunk(self.visit(node.elts[0])), thunk(placed(ast.Tuple(bounds, ast.Load()), node)),
            constant(node.reads_elements, node), *rows], node)

    def visit_LastRows(self, node: LastRows) -> Any:
        names: list[ast.expr] = [load(each.id, each) for each in node.elts
                                 if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
        return self._call("with_values", [thunk(placed(ast.Tuple(names, ast.Load()), node))], node)

    def visit_UnsetFlags(self, node: UnsetFlags) -> Any:
        return self._unset(node.flags, node)

    def visit_RaisedFlag(self, node: RaisedFlag) -> Any:
        return self._call("raised_flag", [self.visit(each) for each in node.values], node)

    def _unset(self, flags: Sequence[str], at: ast.AST) -> ast.expr:
        return self._call("unset", [load(flag, at) for flag in flags], at)

    def _new_containers(self, value: ast.expr) -> ast.expr:
        """Return the value of an assignment; lists and their kin that it makes are known to be new."""
        if isinstance(value, ast.Tuple):
            value.elts = [self._new_containers(each) for each in value.elts]
            return value
        visited: ast.expr = self.visit(value)
        is_new = (isinstance(value, (*_DISPLAYS, ast.BinOp)) and any(
            isinstance(each, _DISPLAYS) for each in walk_tree(value))) or (
            isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice))
        return self._call("fresh", [visited], value) if is_new else visited

    def _stored(self, value: ast.expr) -> ast.expr:
        """Return an argument that a container stores, or whose items it stores: displays in it are known to be new."""
        if isinstance(value, ast.List | ast.Tuple | ast.Set):
            value.elts = [self._stored(each) for each in value.elts]
        elif isinstance(value, ast.Dict):
            value.keys = [each and self.visit(each) for each in value.keys]
            value.values = [self._stored(each) for each in value.values]
        else:
            return self._new_containers(value)
        return value if isinstance(value, ast.Tuple) else self._call("fresh", [value], value)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        node.value = self.visit(node.value)
        if not isinstance(node.ctx, ast.Load):
            node.value = self._call("attributed", [node.value], node.value)
        return node

    def _place(self, node: ast.expr) -> ast.expr:
        """Return the expression for an object whose items change: the one that an index selects, not a copy."""
        if isinstance(node, ast.Name) and node.id in self._own:
            self._asks_depth |= self._chosen > 0
            depth = [self._depth(node)] if self._chosen else []
            return self._call("stored", [thunk(load(node.id, node)), constant(node.id, node),
                                         constant(node.id in self._parameters, node), *depth], node)
        if isinstance(node, ast.Name) and node.id in self._around:
            return self._call("stored", [thunk(load(node.id, node)), constant(node.id, node), constant(
                False, node), load(f"~depth {node.id}", node)], node)
        shown = constant(ast.unparse(node), node)
        if isinstance(node, ast.Attribute):
            getter = make_lambda(["~owner"], placed(ast.Attribute(load("~owner", node), node.attr, ast.Load()),
                                             node))
            return self._call("attribute", [self.visit(node.value), getter, shown], node)
        if isinstance(node, ast.Subscript):
            named: str | None = getattr(node, "named", None)
            index = self._index(node.slice) if named is None else load(named, node)
            return self._call("place", [self._place(node.value), index, shown], node)
        visited: ast.expr = self.visit(node)
        return visited

    def _depth(self, at: ast.AST) -> ast.expr:
        """Return the expression for the number of traced blocks around the function."""
        return self._call("depth", [], at) if self._is_lambda else load("~depth", at)

    def _index(self, node: ast.expr) -> ast.expr:
        """Return the expression for an index, which may have slices."""
        visited: ast.expr = self.visit(node)
        if not any(isinstance(each, ast.Slice | ast.Starred) for each in walk_tree(node)):
            return visited
        return placed(ast.Subscript(self._operator("index", node), visited, ast.Load()), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not isinstance(node.ctx, ast.Load):
            node.value = self._call("mutable", [self._place(node.value)], node.value)
            node.slice = self.visit(node.slice)
            return node
        node.value = self.visit(node.value)
        if _is_constant_index(node.slice):
            return node
        index, named = self._index(node.slice), getattr(node, "named", None)
        if named is not None:
            index = placed(ast.NamedExpr(store(named, node), index), node.slice)
        return self._call("item", [node.value, index], node)

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
        return self._call("boolean", args, node)

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
        return self._call("if_expression", [self._condition(node.test), *sides, *optional], node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self._call("not_", [self._condition(node.operand)], node)
        node.operand = self.visit(node.operand)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        of_conditions = {ast.Add: "counted", ast.Sub: "as_number"}.get(type(node.op)) if all(
            map(_is_condition, (node.left, node.right))) else None
        self.generic_visit(node)
        if of_conditions is not None:
            node.left, node.right = (self._call(of_conditions, [each], each) for each in (node.left, node.right))
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
            found = self._call("contains", [self.visit(node.comparators[0]), self.visit(node.left)], node)
            return found if isinstance(node.ops[0], ast.In) else self._call("not_", [found], node)
        name, kind = compared_with_none(node), type(node.ops[0])
        if name in self._optional or (kind in (ast.Is, ast.IsNot) and is_none(node.comparators[0])):
            left = load(name, node) if name in self._optional else self.visit(node.left)
            found = self._call("is_none", [left], node)
            return found if kind in (ast.Is, ast.Eq) else self._call("not_", [found], node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot) and isinstance(
                node.comparators[0], ast.Constant) and isinstance(node.comparators[0].value, bool):
            node.left = self._call("without_traced_bools", [self.visit(node.left)], node.left)
            return node
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot) and not isinstance(
                node.comparators[0], ast.Constant):
            found = self._call("is_same", [self.visit(node.left), self.visit(node.comparators[0])], node)
            return found if isinstance(node.ops[0], ast.Is) else self._call("not_", [found], node)
        if len(node.ops) == 1 or any(map(has_walrus, node.comparators[1:])):
            self.generic_visit(node)
            return node
        first, second = self.visit(node.left), self.visit(node.comparators[0])
        left, right = self._new("left"), self._new("right")
        pair = placed(ast.Compare(load(left, node.left), [node.ops[0]],
                               [load(right, node.comparators[0])]), node)
        rest = self.visit(placed(ast.Compare(load(right, node.comparators[0]), node.ops[1:],
                                          node.comparators[1:]), node))
        both = self._call("boolean", [constant("and", node), pair, thunk(rest)], node)
        return placed(ast.Call(make_lambda([left, right], both), [first, second], []), node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Call):
            node.value.is_statement = True  # type: ignore[attr-defined]
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and self._parameters:
            node.args = [load("__class__", node), load(self._parameters[0], node)]
            return node
        if (reduced := self._reduction(node)) is not None:
            return reduced
        target = changed_by_call(node)
        changes = isinstance(node.func, ast.Attribute) and target is not None and (
            not isinstance(target, ast.Name) or target.id in self._own)
        lent: list[ast.expr] = []
        callee = ""
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            node.args = [self._formatted(each) if isinstance(each, ast.JoinedStr) else self.visit(each)
                         for each in node.args]
        else:
            names = [each for each in _arguments_of(node) if isinstance(each, ast.Name) and (
                each.id in self._optional - self._certain)]
            callee = self._new("callee") if names and not (changes or self._in_iterable) else ""
            for each in names if callee else ():
                each.callee = callee  # type: ignore[attr-defined]
            lent = [] if changes else self._lent(node)
            node.args = [self._argument(each, node, changes and each is target) for each in node.args]
        for keyword in node.keywords:
            keyword.value = self._argument(keyword.value, node, changes and keyword.value is target)
        if changes and isinstance(node.func, ast.Attribute):
            of = self._argument(node.func.value, node.func, node.func.value is target)
            node.func = self._call("changing", [of, constant(node.func.attr, node.func)], node.func)
            return node
        if lent:
            lent.insert(0, self._depth(node.func))
        operator = "acted" if getattr(node, "is_statement", False) else "called"
        node.func = self._call(operator, [self.visit(node.func), *lent], node.func)
        if callee:
            node.func = placed(ast.NamedExpr(store(callee, node), node.func), node.func)
        return node

    def _reduction(self, node: ast.Call) -> ast.expr | None:
        """Return the operator for `sum`, `max` and others of a comprehension, whose length and filter may be traced."""
        if not (isinstance(node.func, ast.Name) and node.func.id in _REDUCTIONS and node.args) or any(
                isinstance(each, ast.Starred) for each in node.args) or any(
                each.arg not in ("key", "default") for each in node.keywords):
            return None
        comprehension, *others = node.args
        if not isinstance(comprehension, ast.GeneratorExp | ast.ListComp):
            return None
        first, *more = comprehension.generators
        targets = first.target.elts if isinstance(first.target, ast.Tuple) else [first.target]
        if more or first.is_async or has_walrus(comprehension) or not all(
                isinstance(each, ast.Name) for each in targets):
            return None
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        element = make_lambda(names, self.visit(comprehension.elt))
        keep: ast.expr = constant(None, node)
        if first.ifs:
            test = first.ifs[0] if len(first.ifs) == 1 else placed(ast.BoolOp(ast.And(), first.ifs), first.ifs[0])
            keep = make_lambda(names, self.visit(test))
        call: Any = self._call("reduced", [
            self.visit(node.func), constant(isinstance(comprehension, ast.ListComp), node),
            constant(len(names) if isinstance(first.target, ast.Tuple) else 0, node), self._sequence(first.iter),
            element, keep, *map(self.visit, others)], node)
        call.keywords = [placed(ast.keyword(each.arg, self.visit(each.value)), each.value) for each in node.keywords]
        return call

    def _is_place(self, node: ast.expr) -> bool:
        """Return whether an argument is a name, or an attribute or an item of one: it may be lent."""
        inner = node
        while isinstance(inner, ast.Attribute | ast.Subscript):
            if self._in_iterable and isinstance(inner, ast.Subscript) and not _is_constant_index(inner.slice):
                return False  # no name can be given to the index there
            inner = inner.value
        return isinstance(inner, ast.Name) and inner.id in self._own | self._around

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

    def _argument(self, node: ast.expr, of: ast.AST, changes: bool) -> ast.expr:
        """Return an argument of a call, which the call `changes`, or which a container stores."""
        stores = isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr in STORING_METHODS
        visited: ast.expr = self._place(node) if changes else self._stored(node) if stores else self.visit(node)
        return visited

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        self.generic_visit(node)
        node.value = self._call("shown", [node.value], node.value)
        return node

    def _formatted(self, node: ast.JoinedStr) -> ast.expr:
        """Return the argument of `print` or `assert` for an f-string: its parts, since values may be printed later."""
        parts: list[ast.expr] = []
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                spec = each.format_spec
                if spec is not None and not all(isinstance(part, ast.Constant) for part in walk_tree(spec)
                                                if isinstance(part, ast.expr) and part is not spec):
                    visited: ast.expr = self.generic_visit(node)  # type: ignore[assignment]
                    return visited
                text = "" if spec is None else "".join(part.value for part in spec.values)  # type: ignore[attr-defined]
                parts.append(placed(ast.Tuple([self.visit(each.value), constant(text, each), constant(
                    "" if each.conversion == -1 else chr(each.conversion), each)], ast.Load()), each))
            else:
                parts.append(each)
        return self._call("text", parts, node)

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
            generator.ifs = [self._call("known_filter", [each], each) for each in generator.ifs]
        return node

    visit_ListComp = visit_SetComp = _comprehension  # noqa: N815  (names that ast asks for)
    visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def _known(self, node: ast.expr, what: str) -> ast.expr:
        return self._call("known", [self.visit(node), constant(what, node)], node)

    def _operator(self, name: str, at: ast.AST) -> ast.expr:
        return placed(ast.Attribute(load(OPERATORS, at), name, ast.Load()), at)

    def _call(self, operator: str, args: Sequence[ast.expr], at: ast.AST) -> ast.expr:
        return placed(ast.Call(self._operator(operator, at), [*args], []), at)


def _arguments_of(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _is_constant_index(index: ast.expr) -> bool:
    """Return whether an index is a number, or a slice with numbers for bounds."""
    return all(isinstance(each, ast.Slice | ast.Constant | ast.expr_context) for each in walk_tree(index))
