"""Names of a function's own scope in its syntax tree: which are bound, which are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

Nodes = ast.AST | Sequence[ast.AST]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

OPERATORS = "~operators"
RESULT = "~result"
RETURNED = "~returned"
RAISED = "~raised"
CHANGES = "~changes"
GIVES_NONE = "~gives none"
"""Names of generated variables begin with `~`, which no name in Python does."""
CHANGING_METHODS = ("sort", "fill")
"""Methods that change an array in place."""
CHANGING_FUNCTIONS = ("at", "copyto", "fill_diagonal")
"""Functions that change their first argument: `at` of ufuncs."""


def is_generated(name: str) -> bool:
    """Return whether a name was generated, and is not the user's."""
    return name.startswith("~")


_SCOPES = (*FUNCTIONS, ast.ClassDef)
_LEAVES = frozenset({"ctx", "op", "ops", "id", "attr", "kind", "type_comment", "n", "s"})
"""Fields of nodes without names, calls or statements."""
_INNER = {kind: tuple(field for field in kind._fields if field not in _LEAVES) for kind in vars(ast).values()
          if isinstance(kind, type) and issubclass(kind, ast.AST) and not issubclass(kind, _SCOPES)}
_INNER[ast.Constant] = ()
"""The fields that may hold other nodes of the scope, by the kind of node, for those that make no scope themselves."""
_WITHOUT_NAMES = frozenset({ast.Constant, ast.Attribute, ast.Call, ast.BinOp, ast.Subscript, ast.Assign, ast.Compare,
                            ast.Expr, ast.Tuple})
"""The most frequent nodes that bind no name themselves."""


def walk_scope(nodes: Nodes) -> Iterator[ast.AST]:
    """Yield nodes of the scope, without operators: of nested functions and classes the node alone, and what their
    definition evaluates.
    """
    waiting: list[ast.AST] = [nodes] if isinstance(nodes, ast.AST) else list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        fields = _INNER.get(type(node))
        if fields is None:
            if isinstance(node, ast.ClassDef):
                waiting += [*node.bases, *node.keywords, *node.decorator_list]
                continue
            if isinstance(node, FUNCTIONS):
                waiting += [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]
                waiting += [] if isinstance(node, ast.Lambda) else node.decorator_list
                continue
            fields = node._fields  # of a kind of this package
        for field in fields:
            value = getattr(node, field, None)
            if type(value) is list:
                waiting += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                waiting.append(value)


def bound_names(nodes: Nodes) -> set[str]:
    """Return the names that the nodes bind in their scope."""
    names: set[str] = set()
    targets: set[str] = set()
    for node in walk_scope(nodes):
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                names.add(node.id)
        elif type(node) in _WITHOUT_NAMES:
            continue
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names.add(node.rest)
        elif isinstance(node, _COMPREHENSIONS):
            targets.update(_comprehension_targets(node))
    if targets:  # those of comprehensions live in a scope of their own
        outside = _bound_outside_comprehensions(nodes)
        names -= {name for name in targets if name not in outside}
    return names


def stored_names(nodes: Nodes) -> set[str]:
    """Return the names whose objects the nodes may change in place: `x[i] = v`, `x[i][j] += v`, `x += v`, `x.sort()`.

    Lists and others are among them, and the arrays whose rows names have (`rows.py`).
    """
    names: set[str] = set()
    for node in walk_scope(nodes):
        target: ast.AST | None = None
        if isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node
        elif isinstance(node, ast.Call):
            target = changed_by_call(node)
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Name):
            names.update((target.id, *arrays_of(target)))
    return names


def arrays_of(name: ast.Name) -> tuple[str, ...]:
    """Return the names whose arrays have the row that a name stands for in a loop."""
    return getattr(name, "arrays", ())


def changed_by_call(node: ast.Call) -> ast.expr | None:
    """Return the array that a call may change: `x` of `x.sort()`, `np.add.at(x, ...)`, `np.copyto(x, ...)`, `out=x`.

    It is a name, an item or an attribute.
    """
    function = node.func
    out = next((each.value for each in node.keywords if each.arg == "out"), None)
    target: ast.expr | None = out
    if out is None and isinstance(function, ast.Attribute):
        if function.attr in CHANGING_METHODS:
            target = function.value
        elif function.attr in CHANGING_FUNCTIONS and node.args:
            target = node.args[0]
    return target if isinstance(target, ast.Name | ast.Attribute | ast.Subscript) else None


def passed_names(nodes: Nodes) -> list[tuple[str, ast.expr, int | str]]:
    """Return the names that are arguments of calls, or whose items are: with the function, and position or keyword."""
    found: list[tuple[str, ast.expr, int | str]] = []
    for node in walk_scope(nodes):
        if isinstance(node, ast.Call) and dotted(node.func):
            starred = [number for number, each in enumerate(node.args) if isinstance(each, ast.Starred)]
            places: list[tuple[int | str, ast.expr]] = [*enumerate(node.args[:starred[0]] if starred else node.args)]
            places += [(each.arg, each.value) for each in node.keywords if each.arg is not None]
            for place, value in places:
                while isinstance(value, ast.Subscript):
                    value = value.value  # noqa: PLW2901
                if isinstance(value, ast.Name):
                    found += [(name, node.func, place) for name in (value.id, *arrays_of(value))]
    return found


def dotted(node: ast.expr) -> list[str]:
    """Return the parts of `a.b.c`; none for another expression."""
    if isinstance(node, ast.Name):
        return [node.id]
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else []
    return [*inner, node.attr] if inner and isinstance(node, ast.Attribute) else []


def rebound_names(nodes: Nodes) -> set[str]:
    """Return the names that the nodes give another object; an operator such as `+=` changes an array in place."""
    walked = [*walk_scope(nodes)]
    augmented = {id(node.target) for node in walked if isinstance(node, ast.AugAssign)}
    named = [node for node in walked if isinstance(node, ast.Name)]
    names = {node.id for node in named if not isinstance(node.ctx, ast.Load) and id(node) not in augmented}
    others = bound_names(nodes) - {node.id for node in named}
    for node in walked:
        if not isinstance(node, _SCOPES):
            continue
        declared = {name for each in ast.walk(node) if isinstance(each, ast.Nonlocal) for name in each.names}
        names |= declared
    return names | others


def _comprehension_targets(node: ast.AST) -> set[str]:
    return {each.id for generator in node.generators for each in ast.walk(generator.target)  # type: ignore[attr-defined]
            if isinstance(each, ast.Name)}


def _bound_outside_comprehensions(nodes: Nodes) -> set[str]:
    found: set[str] = set()
    waiting: list[ast.AST] = [nodes] if isinstance(nodes, ast.AST) else list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, _COMPREHENSIONS):
            found.update(each.target.id for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)
        elif not isinstance(node, ast.Lambda):
            found.add(node.name)
    return found


def parameter_names(arguments: ast.arguments) -> list[str]:
    """Return the names of all parameters."""
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    found += [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [each.arg for each in found]


def read_names(nodes: Nodes) -> set[str]:
    """Return the names that the nodes may read, also in nested functions."""
    names: set[str] = set()
    inside: set[int] = set()  # nodes of comprehensions, whose names are their own
    for node in walk_scope(nodes):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.update((node.id, *arrays_of(node)))
            names.update(getattr(node, "flags", ()))  # of `UnsetFlags`
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.update((node.target.id, *arrays_of(node.target)))
        elif isinstance(node, _SCOPES):
            names |= free_names(node)
        elif isinstance(node, _COMPREHENSIONS):
            first, parts = node.generators[0].iter, [*ast.iter_child_nodes(node)]
            outside = {id(each) for each in walk_scope(first)}
            inside.update(id(each) for each in walk_scope(parts) if id(each) not in outside)
            rest = [each for part in parts for each in (
                ast.iter_child_nodes(part) if isinstance(part, ast.comprehension) else [part]) if each is not first]
            names |= read_names(rest) - _comprehension_targets(node)
    return names


def free_names(node: ast.AST) -> set[str]:
    """Return the names that a nested function or class may read of the scopes around it."""
    body: Nodes = node.body  # type: ignore[attr-defined]
    own = set() if isinstance(node, ast.ClassDef) else bound_names(body)
    if isinstance(node, FUNCTIONS):
        own |= {*parameter_names(node.args)}
    declared = {name for each in walk_scope(body) if isinstance(each, ast.Nonlocal) for name in each.names}
    return (read_names(body) - own) | declared


def nested_functions(nodes: Nodes) -> list[ast.AST]:
    """Return the nodes of functions and classes defined in the scope."""
    return [node for node in walk_scope(nodes) if isinstance(node, _SCOPES)]


def optional_names(function: ast.FunctionDef | ast.Lambda) -> set[str]:
    """Return the names that a function may give None: by `x = None`, or as the default of a parameter.

    Those that get the value of such a name are among them, and those that it asks about: `x is None`.
    """
    nodes = [*walk_scope(function.body)]
    found = {name.arg for name, default in zip(
        [*function.args.posonlyargs, *function.args.args][::-1], function.args.defaults[::-1], strict=False)
        if _may_be_none(default, set())} | {compared_with_none(node) for node in nodes if isinstance(node, ast.Compare)}
    pairs = [pair for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
             for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
             for pair in assigned_values(target, node.value)]
    while more := {name for name, value in pairs if name not in found and _may_be_none(value, found)}:
        found |= more
    return found


def assigned_values(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    """Return the names of a target, and the expressions that they get, if these are written out."""
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [each for pair in zip(target.elts, value.elts, strict=True) for each in assigned_values(*pair)]
    return []


def is_none(value: ast.expr) -> bool:
    """Return whether an expression is None."""
    return isinstance(value, ast.Constant) and value.value is None


def _may_be_none(value: ast.expr, names: set[str]) -> bool:
    if isinstance(value, ast.IfExp | ast.Tuple):
        parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else value.elts
        return any(_may_be_none(each, names) for each in parts)
    return is_none(value) or (isinstance(value, ast.Name) and value.id in names)


def returns_none(body: Nodes) -> bool:
    """Return whether a function without jumps gives None on a path, as the code says."""
    results = [node for node in walk_scope(body) if isinstance(node, ast.Return) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == RESULT)]
    return any(node.value is not None and _may_be_none(node.value, set()) for node in results)


def compared_with_none(node: ast.AST) -> str:
    """Return the name of `x is None`, `x is not None` or the same with `==`; "" for another expression."""
    is_asked = isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(
        node.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and isinstance(node.left, ast.Name) and is_none(
        node.comparators[0])
    return node.left.id if is_asked else ""  # type: ignore[attr-defined]


def names_set_if(test: ast.expr, when: bool) -> set[str]:
    """Return the names that are not None if a test gives `when`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return names_set_if(test.operand, not when)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is when:
        return set().union(*(names_set_if(each, when) for each in test.values))
    if isinstance(test, ast.Name):
        return {test.id} if when else set()
    name = compared_with_none(test)
    return {name} if name and isinstance(test.ops[0], ast.IsNot | ast.NotEq) is when else set()  # type: ignore[attr-defined]


def has_walrus(node: ast.AST) -> bool:
    """Return whether an expression binds a name in its scope."""
    return any(isinstance(each, ast.NamedExpr) for each in walk_scope(node))
