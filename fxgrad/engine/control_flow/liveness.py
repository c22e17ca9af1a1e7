"""Which names are live: read before they are bound again, after a block or at the next turn of a loop."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from fxgrad.engine.control_flow.names import bound_names, free_names, is_generated, nested_functions, read_names


def annotate(body: Sequence[ast.stmt], after: set[str], outer: set[str]) -> None:
    """Give every branch and loop in a body without jumps its live names; those in `after` are live after the body.

    So are those in `outer`, the variables of functions around, and after each `return` too.

    `live` of a branch are those after it, of a loop those after a turn; `turn` of a loop are those that a turn reads
    before it binds them; `live_before` of every statement are those before it. What a function defined outside of the
    block reads is live.
    """
    readers = [(node, free_names(node)) for node in nested_functions(body)]
    _Liveness(readers, outer).block(body, after | outer)


class _Liveness:
    def __init__(self, readers: Sequence[tuple[ast.AST, set[str]]], outer: set[str]) -> None:
        self._readers, self._outer = readers, outer
        self._read_first: dict[int, set[str]] = {}  # by loops
        self._read_after_exceptions = set[str]()  # by the handlers and `finally` around, from anywhere in the `try`

    def block(self, statements: Sequence[ast.stmt], after: set[str]) -> set[str]:
        """Return the names live before a block."""
        for statement in reversed(statements):
            statement.live_after = after | self._read_after_exceptions  # type: ignore[attr-defined]
            after = self._statement(statement, after) | self._read_after_exceptions
            statement.live_before = after  # type: ignore[attr-defined]
        return after

    def _read_by_turn(self, node: ast.While | ast.For) -> set[str]:
        """Return the names that a turn of a loop reads before it binds them; the other live ones are live after it.

        Kept, since a loop in a loop is asked twice for each one around.
        """
        if id(node) not in self._read_first:
            self._read_first[id(node)] = self.block(node.body, set())
        return self._read_first[id(node)]

    def _outside(self, block: Sequence[ast.stmt]) -> set[str]:
        if not self._readers:
            return set()
        inside = {id(node) for node in nested_functions(block)}
        return set().union(*(names for node, names in self._readers if id(node) not in inside))

    def _statement(self, node: ast.stmt, after: set[str]) -> set[str]:
        """Return the names live before a statement."""
        if isinstance(node, ast.If):
            return self._if(node, after)
        if isinstance(node, ast.While):
            return self._while(node, after)
        if isinstance(node, ast.For):
            return self._for(node, after)
        if isinstance(node, ast.With):
            return self._with(node, after)
        if isinstance(node, ast.Try):
            return self._try(node, after)
        if isinstance(node, ast.Match):
            cases = (self.block(case.body, after) | read_names(case.pattern) | (set() if case.guard is None else
                     read_names(case.guard)) for case in node.cases)
            return after | read_names(node.subject) | set().union(*cases)
        if isinstance(node, ast.Return):
            return after if node.value is None else after | read_names(node.value)
        before = (after - bound_names(node)) | read_names(node)
        before.update(getattr(node, "given_back", ()))  # the caller has the array of a parameter after the statement
        return before

    def _if(self, node: ast.If, after: set[str]) -> set[str]:
        node.live = after | self._outside([*node.body, *node.orelse])  # type: ignore[attr-defined]
        returned = getattr(node, "returned", None)
        flags = {name for name in after if is_generated(name)} | self._outer  # all that is read after a `return`
        inside = self.block(node.body, flags if returned is True else after)
        inside |= self.block(node.orelse, flags if returned is False else after)
        return _needed_names(node.test) | (inside - bound_names(node.test))

    def _while(self, node: ast.While, after: set[str]) -> set[str]:
        tests = _needed_names(node.test) | {*node.flags}  # type: ignore[attr-defined]
        head = after | tests | self._read_by_turn(node)
        turn = tests | self.block(node.body, head)
        self._annotate_loop(node, head, turn)
        return turn if isinstance(node.test, ast.Constant) and node.test.value else head  # it has a turn

    def _for(self, node: ast.For, after: set[str]) -> set[str]:
        targets = bound_names(node.target)
        head = after | {*node.flags} | (self._read_by_turn(node) - targets)  # type: ignore[attr-defined]
        turn = self.block(node.body, head) - targets
        self._annotate_loop(node, head, turn)
        return (turn if _has_a_turn(node.iter) else head) | read_names(node.iter) | read_names(node.target)

    def _with(self, node: ast.With, after: set[str]) -> set[str]:
        inside = self.block(node.body, after)
        for item in reversed(node.items):
            if item.optional_vars is not None:
                inside = (inside - bound_names(item.optional_vars)) | read_names(item.optional_vars)
            inside |= read_names(item.context_expr)
        return inside

    def _try(self, node: ast.Try, after: set[str]) -> set[str]:
        around, by_final = self._read_after_exceptions, self.block(node.finalbody, set())
        final = self.block(node.finalbody, after)  # the last to annotate it
        self._read_after_exceptions = around | by_final
        handlers = set[str]().union(*(self.block(each.body, final) for each in node.handlers))
        other = self.block(node.orelse, final)
        self._read_after_exceptions |= handlers
        body = self.block(node.body, other | handlers)
        self._read_after_exceptions = around
        return body | handlers | final | set().union(
            *(read_names(each.type) for each in node.handlers if each.type is not None))

    def _annotate_loop(self, node: ast.While | ast.For, live: set[str], turn: set[str]) -> None:
        outside = self._outside(node.body)
        node.live, node.turn = live | outside, turn | outside  # type: ignore[union-attr]


def _needed_names(test: ast.expr) -> set[str]:
    """Return the names that a condition reads before it binds them: `(x := f()) > 0 and x < 9` does not need `x`."""
    if not isinstance(test, ast.BoolOp):
        return read_names(test)
    needed, bound = set[str](), set[str]()
    for each in test.values:
        needed |= _needed_names(each) - bound
        bound |= bound_names(each.values[0] if isinstance(each, ast.BoolOp) else each)
    return needed


def _has_a_turn(iterable: ast.expr) -> bool:
    """Return whether a loop over an expression has a turn, as that over `range(3)` or `(x, y)` has."""
    if type(iterable) in (ast.Tuple, ast.List):  # others are of kinds of this package
        return any(not isinstance(each, ast.Starred) for each in iterable.elts)  # type: ignore[attr-defined]
    if not isinstance(iterable, ast.Call) or not isinstance(iterable.func, ast.Name) or iterable.func.id != "range":
        return False
    bounds = [each.value for each in iterable.args if isinstance(each, ast.Constant) and type(each.value) is int]
    return len(bounds) == len(iterable.args) in {1, 2} and len(range(*bounds)) > 0
