"""Structured code without jumps: `break`, `continue` and `return` become flags that guard what follows.

What follows a branch that ends in a jump moves into the other branch, so that one choice remains one. Flags that Python
knows are tested by Python.

A branch that only raises is marked: with a traced condition it is a check, and what follows is computed anyway. A
`while` around it ends by a flag too, for it might have no other end.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from fxgrad.engine.control_flow.names import (
    COMPREHENSIONS,
    RAISED,
    RESULT,
    RETURNED,
    bound_names,
    dotted,
    has_walrus,
    nested_functions,
    read_names,
    walk_scope,
)
from fxgrad.engine.control_flow.nodes import assign, constant, load, placed
from fxgrad.engine.user_source import walk_tree

Body = list[ast.stmt]


class UnsetFlags(ast.Name):
    """The expression that is true as long as no flag in `flags` is set; as a name, it reads the first."""

    flags: tuple[str, ...]


class RaisedFlag(ast.BoolOp):
    """The flag of checks in the place of a `raise`, or the condition of one more, if that is traced."""


def unset(flags: Sequence[str], at: ast.AST) -> UnsetFlags:
    """Return the expression for: none of `flags` is set."""
    node = placed(UnsetFlags(flags[0], ast.Load()), at)
    node.flags = tuple(flags)
    return node


def _unless(flags: Iterable[str], block: Body) -> ast.If:
    """Return the branch that runs a block if none of `flags` is set.

    `returned` of a branch is the value of its condition for which the function has returned after it, if there is one.
    """
    branch = placed(ast.If(unset(sorted(flags), block[0]), block, []), block[0])
    if {*flags} == {RETURNED}:
        branch.returned = False  # type: ignore[attr-defined]
    return branch


def only_raises(block: Sequence[ast.stmt]) -> bool:
    """Return whether a block is a `raise` with an exception, and at most the assignment of its message."""
    if not block or not isinstance(block[-1], ast.Raise) or block[-1].exc is None:
        return False
    before = block[:-1]
    return not before or (len(before) == 1 and isinstance(before[0], ast.Assign) and len(before[0].targets) == 1
                          and isinstance(before[0].targets[0], ast.Name))


def falls_through(statements: Sequence[ast.stmt]) -> bool:
    """Return whether the end of a block may be reached, as far as jumps tell."""
    for statement in statements:
        if isinstance(statement, ast.Return | ast.Break | ast.Continue):
            return False
        if isinstance(statement, ast.If) and not (falls_through(statement.body) or falls_through(statement.orelse)):
            return False
        if is_endless(statement) and not _breaks(statement.body):  # type: ignore[attr-defined]
            return False
        if isinstance(statement, ast.With) and not falls_through(statement.body):
            return False
    return True


class JumpLowering:
    """Lowers the body of one function."""

    def __init__(self) -> None:
        self._count = 0
        self._whiles = 0  # how many `while` loops are around
        self._tries = 0  # how many `try` statements
        self._ends_by_raise = False  # whether a branch in a `while` only raises
        self._outside: set[str] = set()  # names that belong to scopes around

    def function(self, body: Body) -> Body:
        """Return the body of a function with at most one `return`, as its last statement."""
        self._outside = {name for node in walk_scope(body) if isinstance(node, ast.Global | ast.Nonlocal)
                         for name in node.names}
        lowered = self._function(body)
        return [assign(RAISED, constant(False, body[0]), body[0]), *lowered] if self._ends_by_raise else lowered

    def _function(self, body: Body) -> Body:
        last = body[-1]
        if isinstance(last, ast.Return) and not _returns(body[:-1]):
            return [*self._block(body[:-1], None)[0], last]
        if not _returns(body):
            return self._block(body, None)[0]
        ends = placed(ast.Return(constant(None, last)), last)
        lowered, _ = self._block([*body, ends], None)
        result = placed(ast.Return(load(RESULT, last)), last)
        return [assign(RETURNED, constant(False, body[0]), body[0]), *lowered, result]

    def _block(self, statements: Sequence[ast.stmt], loop: tuple[str, str] | None) -> tuple[Body, set[str]]:
        """Return a block without jumps, and the flags that it may set."""
        out: Body = []
        for number, statement in enumerate(statements):
            rest = statements[number + 1:]
            if isinstance(statement, ast.Return):
                value = statement.value or constant(None, statement)
                return [*out, assign(RESULT, value, statement),
                        assign(RETURNED, constant(True, statement), statement)], {RETURNED}
            if isinstance(statement, ast.Break | ast.Continue):
                assert loop is not None
                flag = loop[isinstance(statement, ast.Continue)]
                return [*out, assign(flag, constant(True, statement), statement)], {flag}
            if isinstance(statement, ast.Raise):
                return [*out, statement], set()
            branches = _as_branches(statement, self) if isinstance(statement, ast.Match) else None
            if branches is not None:
                after, jumps = self._block([*branches, *rest], loop)
                return [*out, *after], jumps
            if isinstance(statement, ast.If):
                jumps, rest = self._if(out, statement, rest, loop)
            elif isinstance(statement, ast.While | ast.For):
                jumps, rest = self._loop(out, statement, rest)
            elif isinstance(statement, ast.With):
                body, jumps = self._block(statement.body, loop)
                out.append(placed(ast.With(statement.items, body), statement))
            elif isinstance(statement, ast.Try):
                jumps = self._try(out, statement, loop)
            elif isinstance(statement, ast.Match):
                jumps = self._match(out, statement, loop)
            else:
                out.append(statement)
                continue
            if not jumps and not rest:
                continue
            after, more = self._block(rest, loop)
            if after and jumps:
                out.append(_unless(jumps, after))
                self._mark_raise(out)
            else:
                out += after
            return out, jumps | more
        return out, set()

    def _if(self, out: Body, statement: ast.If, rest: Sequence[ast.stmt], loop: tuple[str, str] | None,
            ) -> tuple[set[str], Sequence[ast.stmt]]:
        """Append a branch; what follows moves into the side that alone reaches it.

        `stops` of a branch is the flag of the loop that exactly one side ends, whatever else happens on that side.
        """
        before, statement = self._by_operands(statement)
        out += before
        body, other = [*statement.body], [*statement.orelse]
        falls, other_falls = falls_through(body), falls_through(other)
        if not (falls and other_falls):
            if falls and not only_raises(body):
                body += rest
            elif other_falls and not only_raises(other):
                other += rest
            rest = []
        body, jumps = self._block(body, loop)
        other, more = self._block(other, loop)
        branch = placed(ast.If(statement.test, body, other), statement)
        if not falls and jumps == {RETURNED}:
            branch.returned = True  # type: ignore[attr-defined]
        elif not other_falls and more == {RETURNED}:
            branch.returned = False  # type: ignore[attr-defined]
        if loop is not None and (loop[0] in jumps) != (loop[0] in more):
            last = (body if loop[0] in jumps else other)[-1]
            if isinstance(last, ast.Assign) and loop[0] in bound_names(last.targets):
                branch.stops = loop[0]  # type: ignore[attr-defined]
        out.append(branch)
        self._mark_raise(out)
        return jumps | more, rest

    def _mark_raise(self, out: Body) -> None:
        """Mark the branch at the end of a block if one side only raises: `raises` is the condition of that side."""
        branch = out[-1]
        assert isinstance(branch, ast.If)
        raises, other_raises = only_raises(branch.body), only_raises(branch.orelse)
        if raises == other_raises:
            return
        branch.raises = raises  # type: ignore[attr-defined]
        if self._whiles:
            self._count += 1
            self._ends_by_raise = True
            name, test = f"~raises {self._count}", branch.test
            tested, raised = (load(each, test) for each in (name, RAISED))
            condition: ast.expr = tested if raises else placed(ast.UnaryOp(ast.Not(), tested), test)
            either = placed(RaisedFlag(ast.Or(), [raised, condition]), test)
            out[-1:] = [assign(name, test, test), assign(RAISED, either, test), branch]
            branch.test = load(name, test)

    def _loop(self, out: Body, statement: ast.While | ast.For, rest: Sequence[ast.stmt],
              ) -> tuple[set[str], Sequence[ast.stmt]]:
        self._count += 1
        stops, skips, ended = (f"~{word} {self._count}" for word in ("stops", "skips", "ended"))
        results = [] if self._tries else sorted(_results(statement) - self._outside)
        if results:  # they have a value only after `break`, or else after the `else`: as placeholders until then
            rename = _Renaming({name: f"~{name} {self._count}" for name in results})
            statement.body = [rename.visit(each) for each in statement.body]
            if statement.orelse and not _leaves(statement.orelse):
                last = statement.orelse[-1]
                statement.orelse += [assign(f"~{name} {self._count}", load(name, last), last) for name in results]
            rest = [*(assign(name, load(f"~{name} {self._count}", statement), statement) for name in results),
                    *_forget((f"~{name} {self._count}" for name in results), statement),  # `name[i] = v` changes none
                    *rest]
        self._whiles += isinstance(statement, ast.While)
        body, jumps = self._block(statement.body, (stops, skips))
        self._whiles -= isinstance(statement, ast.While)
        # A turn begins with neither set, so that its program need not read them.
        body[:0] = [assign(flag, constant(False, statement), statement) for flag in (stops, skips) if flag in jumps]
        flags = [flag for flag in (stops, RETURNED) if flag in jumps]
        jumped = list(flags)
        loop: ast.While | ast.For
        if isinstance(statement, ast.For):
            loop = ast.For(statement.target, statement.iter, body, [])
        elif has_walrus(statement.test):  # what the test binds must be a value of the turn
            test = statement.test
            branch = ast.If(test, body, [assign(ended, constant(True, test), test)])
            flags.append(ended)
            before, branch = self._by_operands(placed(branch, statement))
            loop = ast.While(constant(True, test), [*before, branch], [])
        else:
            loop = ast.While(statement.test, body, [])
        out += [assign(flag, constant(False, statement), statement) for flag in flags if flag != RETURNED]
        if isinstance(loop, ast.While) and self._ends_by_raise:
            flags.append(RAISED)
        loop.flags = tuple(flags)  # type: ignore[union-attr]
        out.append(placed(loop, statement))
        if not falls_through([statement]):
            return jumps & {RETURNED}, []
        if statement.orelse and jumped:
            rest = [_unless(jumped, statement.orelse), *rest]
        elif statement.orelse:
            rest = [*statement.orelse, *rest]
        return jumps & {RETURNED}, rest

    def _try(self, out: Body, statement: ast.Try, loop: tuple[str, str] | None) -> set[str]:
        self._tries += 1
        body, jumps = self._block(statement.body, loop)
        other, more = self._block(statement.orelse, loop)
        if other and jumps:
            other = [_unless(jumps, other)]
        handlers = []
        for handler in statement.handlers:
            lowered, found = self._block(handler.body, loop)
            handlers.append(placed(ast.ExceptHandler(handler.type, handler.name, lowered), handler))
            more |= found
        final, found = self._block(statement.finalbody, loop)
        self._tries -= 1
        out.append(placed(ast.Try(body, handlers, other, final), statement))
        return jumps | more | found

    def _match(self, out: Body, statement: ast.Match, loop: tuple[str, str] | None) -> set[str]:
        jumps: set[str] = set()
        cases = []
        for case in statement.cases:
            body, found = self._block(case.body, loop)
            cases.append(ast.match_case(case.pattern, case.guard, body))
            jumps |= found
        out.append(placed(ast.Match(statement.subject, cases), statement))
        return jumps

    def _by_operands(self, statement: ast.If) -> tuple[Body, ast.If]:
        """Return a branch on `a and (x := b)`, or with `or`, as branches of which that on `b` alone sets `x`.

        A side that several of them reach is copied if it computes nothing. Otherwise they set a flag and come before
        the branch on it, and what they bind has names of its own in between.
        """
        test = _without_not(statement.test)
        if not _may_skip_walrus(test):
            return [], statement
        if all(map(_computes_nothing, _shared_sides(statement))) or not all(map(_binds_all, _operands(test))):
            return [], _nested(placed(ast.If(test, statement.body, statement.orelse), statement))
        self._count += 1
        flag = f"~decided {self._count}"
        names = {name: f"~{name} {self._count}"
                 for name in bound_names(test) - bound_names(_operands(test)[0]) - self._outside}
        sides: list[Body] = []
        for when, side in (True, statement.body), (False, statement.orelse):
            bound = {name: names[name] for name in sorted(_bound_if(test, when) & names.keys())}
            if only_raises(side):
                rename = _Renaming(bound)
                sides.append([rename.visit(each) for each in side])
            else:
                sides.append([*_read_back(bound, test), *_forget(bound.values(), test), *side])
        before = [*_forget(sorted(names.values()), test), *_decide(test, flag, names)]
        return before, _after_decision(test, flag, *sides)

    def subject(self) -> str:
        """Return a new name for the subject of a `match`."""
        self._count += 1
        return f"~subject {self._count}"


def _nested(statement: ast.If) -> ast.If:
    """Return a branch on `a and (x := b)`, or with `or`, as one on `a` around one on the rest, and a copy of a side."""
    test = statement.test
    if not _may_skip_walrus(test):
        return statement
    first, rest = _first_and_rest(test)
    body, other = statement.body, statement.orelse
    if isinstance(test.op, ast.And):
        body = [_nested(placed(ast.If(rest, body, copy.deepcopy(other)), statement))]
    else:
        other = [_nested(placed(ast.If(rest, copy.deepcopy(body), other), statement))]
    return _nested(placed(ast.If(first, body, other), statement))


def _first_and_rest(test: ast.BoolOp) -> tuple[ast.expr, ast.expr]:
    """Return the first operand of a test, and the test of the others."""
    first, *others = test.values
    return first, placed(ast.BoolOp(test.op, others), test) if len(others) > 1 else others[0]


def _without_not(test: ast.expr) -> ast.expr:
    """Return a test with `not a or not (x := b)` in the place of `not (a and (x := b))`, which is as true."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.BoolOp) and (
            has_walrus(test)):
        operator = ast.Or() if isinstance(test.operand.op, ast.And) else ast.And()
        operands: list[ast.expr] = [placed(ast.UnaryOp(ast.Not(), each), test) for each in test.operand.values]
        test = placed(ast.BoolOp(operator, operands), test)
    if isinstance(test, ast.BoolOp) and has_walrus(test):
        return placed(ast.BoolOp(test.op, [*map(_without_not, test.values)]), test)
    return test


def _operands(test: ast.expr) -> list[ast.expr]:
    """Return the operands of a test that run one by one; the first runs always."""
    return [each for inner in _first_and_rest(test) for each in _operands(inner)] if _may_skip_walrus(test) else [test]


def _binds_all(operand: ast.expr) -> bool:
    """Return whether an operand binds all its names if it runs."""
    return not any(has_walrus(each) for each in walk_scope(operand) if isinstance(
        each, (ast.BoolOp, ast.IfExp, *COMPREHENSIONS)) or (isinstance(each, ast.Compare) and len(each.ops) > 1))


def _may_skip_walrus(test: ast.expr) -> TypeGuard[ast.BoolOp]:
    return isinstance(test, ast.BoolOp) and (any(map(has_walrus, test.values[1:])) or _may_skip_walrus(test.values[0]))


def _forget(names: Iterable[str], at: ast.AST) -> Body:
    """Return the statement after which generated names have no value, whether they had one or not."""
    targets: list[ast.expr] = [placed(ast.Name(name, ast.Del()), at) for name in names]
    return [placed(ast.Delete(targets), at)] if targets else []


def _decide(test: ast.expr, flag: str, names: Mapping[str, str]) -> Body:
    """Return the statements that set a flag to the truth of a test, operand by operand.

    What an operand binds has its name in `names` too, which has no value if the operand does not run.
    """
    if not _may_skip_walrus(test):
        decided: list[Body] = [[assign(flag, constant(when, test), test)] for when in (True, False)]
        bound = sorted(bound_names(test) & names.keys())
        copies: Body = [assign(names[name], load(name, test), test) for name in bound]
        for each in copies:
            each.moves = True  # type: ignore[attr-defined]  # the value, if the user's name is not read again
        return [placed(ast.If(test, *decided), test), *copies]
    first, rest = _first_and_rest(test)
    is_and = isinstance(test.op, ast.And)
    read = {name: names[name] for name in sorted(_bound_if(first, is_and) & read_names(rest) & names.keys())}
    sides: list[Body] = [[*_read_back(read, test), *_decide(rest, flag, names)], [placed(ast.Pass(), test)]]
    return [*_decide(first, flag, names), _after_decision(first, flag, *(sides if is_and else sides[::-1]))]


def _after_decision(test: ast.expr, flag: str, body: Body, other: Body) -> ast.If:
    """Return the branch on a flag, whose name has in `truth_of` the test that the flag has the truth of."""
    decided = load(flag, test)
    decided.truth_of = test  # type: ignore[attr-defined]
    return placed(ast.If(decided, body, other), test)


def _read_back(names: Mapping[str, str], at: ast.AST) -> Body:
    """Return the statements that give names the values of others."""
    return [assign(name, load(other, at), at) for name, other in names.items()]


def _shared_sides(statement: ast.If) -> list[Body]:
    """Return the sides of a branch that several operands of its test lead to."""
    kinds = {isinstance(node.op, ast.And) for node in walk_tree(statement.test) if isinstance(node, ast.BoolOp)}
    return [statement.orelse if each else statement.body for each in kinds]


def _computes_nothing(block: Body) -> bool:
    """Return whether a block only jumps, and gives names constants or the values of names."""
    return all(isinstance(node, ast.Assign | ast.Pass | ast.Break | ast.Continue | ast.Return | ast.Name | ast.Constant
                          | ast.expr_context) for statement in block for node in walk_tree(statement))


def _bound_if(test: ast.expr, when: bool) -> set[str]:
    """Return the names that a test binds wherever it gives `when`."""
    if not isinstance(test, ast.BoolOp):
        return bound_names(test)
    if isinstance(test.op, ast.And) is when:
        return set().union(*(_bound_if(each, when) for each in test.values))
    bound, paths = set[str](), []
    for each in test.values:  # each may be the one that decides
        paths.append(bound | _bound_if(each, when))
        bound |= _bound_if(each, not when)
    return set.intersection(*paths)


class _Renaming(ast.NodeTransformer):
    """Renames variables."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._names.get(node.id, node.id)
        return node


def is_endless(statement: ast.stmt) -> bool:
    """Return whether a loop is `while True`, or one over `itertools.count()`, which ends by jumps alone."""
    if isinstance(statement, ast.For):
        return isinstance(statement.iter, ast.Call) and dotted(statement.iter.func) == ["itertools", "count"]
    return isinstance(statement, ast.While) and isinstance(statement.test, ast.Constant) and bool(statement.test.value)


def _leaves(block: Body) -> bool:
    """Return whether a block ends in a jump, or in a `raise`."""
    return isinstance(block[-1], ast.Raise) or not falls_through(block)


def _results(statement: ast.While | ast.For) -> set[str]:
    """Return names that are bound wherever code after a loop is reached, and that the loop does not read.

    They are bound before each `break`, and in the `else` if its end is reached.
    """
    found, _ = _bound_before_breaks(statement.body, set())
    inside: list[ast.AST] = [*statement.body, statement.test if isinstance(statement, ast.While) else statement.target]
    if found is None or not (is_endless(statement) or statement.orelse):
        return set()
    if is_endless(statement) or _leaves(statement.orelse):  # names that each turn sets have a value in any case
        found -= _assigned(statement.body)
    else:
        found &= _assigned(statement.orelse)
    found -= read_names(inside) | bound_names(inside[-1:])
    found -= {node.id for each in statement.body for node in walk_tree(each)
              if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)}
    return set() if nested_functions(statement.body) else found


def _assigned(block: Body) -> set[str]:
    """Return the names that the assignments of a block bind, those in its inner blocks left out."""
    return set().union(*(bound_names(each.targets) for each in block if isinstance(each, ast.Assign)))


def _bound_before_breaks(body: Sequence[ast.stmt], bound: set[str]) -> tuple[set[str] | None, set[str] | None]:
    """Return the names that are assigned before every `break` of a loop in a block of its body, and before its end.

    None without a `break`, and if the end is not reached. Names that are `bound` are assigned before the block.
    """
    found: set[str] | None = None
    bound = {*bound}
    for statement in body:
        if isinstance(statement, ast.Break):
            return _in_both(found, bound), None
        if isinstance(statement, ast.Return | ast.Continue | ast.Raise):
            return found, None
        if isinstance(statement, ast.Assign):
            bound |= bound_names(statement.targets)
        elif isinstance(statement, ast.If):
            (one, after_one), (other, after_other) = (
                _bound_before_breaks(side, bound) for side in (statement.body, statement.orelse))
            found, after = _in_both(found, _in_both(one, other)), _in_both(after_one, after_other)
            if after is None:
                return found, None
            bound = after
        elif isinstance(statement, ast.While | ast.For):
            left, _ = _bound_before_breaks(statement.body, bound)
            one, ended = _bound_before_breaks(statement.orelse, bound)
            found, after = _in_both(found, one), left if is_endless(statement) else _in_both(left, ended)
            if after is None:
                return found, None
            bound = after
        elif _breaks([statement]):  # in a `with`, `try` or `match`: nothing is known to be bound
            found, bound = set(), set()
    return found, bound


def _in_both(one: set[str] | None, other: set[str] | None) -> set[str] | None:
    """Return the names that two paths have in common; None stands for a path that is not there."""
    return other if one is None else one if other is None else one & other


def _breaks(body: Sequence[ast.AST]) -> bool:
    """Return whether a `break` in the body of a loop ends that loop."""
    for node in body:
        if isinstance(node, ast.Break):
            return True
        if isinstance(node, ast.While | ast.For):
            if _breaks(node.orelse):
                return True
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) and _breaks([*ast.iter_child_nodes(node)]):
            return True
    return False


def _returns(body: Body) -> bool:
    return any(isinstance(node, ast.Return) for statement in body for node in walk_scope(statement))


def _as_branches(statement: ast.Match, names: JumpLowering) -> Body | None:
    """Return a `match` on values as branches; None if a pattern looks at the structure of the subject.

    The structure of a tuple that is written out, as in `match x > 0, n:`, is known: its items are values.
    """
    name = names.subject()
    whole = ast.Name(name, ast.Load())
    tuple_of = statement.subject.elts if isinstance(statement.subject, ast.Tuple) else None
    if tuple_of is not None and any(isinstance(each, ast.Starred) for each in tuple_of):
        tuple_of = None

    def test(pattern: ast.pattern, value: ast.expr) -> ast.expr | None:
        if isinstance(pattern, ast.MatchValue):
            return placed(ast.Compare(_copied(value, pattern), [ast.Eq()], [pattern.value]), pattern)
        if isinstance(pattern, ast.MatchSingleton):
            is_it = ast.Compare(_copied(value, pattern), [ast.Is()], [constant(pattern.value, pattern)])
            return placed(is_it, pattern)
        if isinstance(pattern, ast.MatchOr):
            return None if any(_captured(each, value) for each in pattern.patterns) else together(
                ast.Or(), pattern, [test(each, value) for each in pattern.patterns])
        if isinstance(pattern, ast.MatchAs):
            return constant(True, pattern) if pattern.pattern is None else test(pattern.pattern, value)
        if isinstance(pattern, ast.MatchSequence) and value is whole and tuple_of is not None:
            if any(isinstance(each, ast.MatchStar) for each in pattern.patterns):
                return None
            return constant(False, pattern) if len(pattern.patterns) != len(tuple_of) else together(
                ast.And(), pattern, [test(each, item) for each, item in _items(pattern, value)])
        return None

    def together(operator: ast.boolop, pattern: ast.pattern, tests: list[ast.expr | None]) -> ast.expr | None:
        found = [each for each in tests if each is not None]
        if len(found) < len(tests):
            return None
        if isinstance(operator, ast.And):
            found = [each for each in found if not isinstance(each, ast.Constant)]
        return placed(ast.BoolOp(operator, found), pattern) if len(found) > 1 else (
            found[0] if found else constant(True, pattern))

    branches: Body = []
    for case in reversed(statement.cases):
        condition = test(case.pattern, whole)
        captured = _captured(case.pattern, whole)
        always = isinstance(condition, ast.Constant) and condition.value is True
        if condition is None or (case.guard is not None and (has_walrus(case.guard) or (captured and not always))):
            return None
        first = case.body[0]
        bind: Body = [assign(each, _copied(value, case.pattern), case.pattern) for each, value in captured]
        if case.guard is not None and captured:  # the names are bound before the guard is tested
            branches = [*bind, placed(ast.If(case.guard, case.body, branches), first)]
            continue
        if case.guard is not None:
            condition = placed(ast.BoolOp(ast.And(), [condition, case.guard]), case.pattern)
        if always and case.guard is None:  # the case that always holds
            branches = [*bind, *case.body]
        else:
            branches = [placed(ast.If(condition, [*bind, *case.body], branches), first)]
    return [assign(name, statement.subject, statement.subject), *branches]


def _items(pattern: ast.MatchSequence, value: ast.expr) -> list[tuple[ast.pattern, ast.expr]]:
    return [(each, ast.Subscript(value, ast.Constant(number), ast.Load()))
            for number, each in enumerate(pattern.patterns)]


def _captured(pattern: ast.pattern, value: ast.expr) -> list[tuple[str, ast.expr]]:
    """Return the names that a pattern binds, and what to."""
    if isinstance(pattern, ast.MatchOr):
        return [found for each in pattern.patterns for found in _captured(each, value)]
    if isinstance(pattern, ast.MatchSequence):
        return [found for each, item in _items(pattern, value) for found in _captured(each, item)]
    if not isinstance(pattern, ast.MatchAs):
        return []
    inner = [] if pattern.pattern is None else _captured(pattern.pattern, value)
    return inner if pattern.name is None else [*inner, (pattern.name, value)]


def _copied(value: ast.expr, place: ast.AST) -> ast.expr:
    """Return a copy of a generated expression, at a place of the user's code."""
    found = copy.deepcopy(value)
    for node in walk_tree(found):
        if isinstance(node, ast.expr):
            placed(node, place)
    return found
