"""Names of a function's own scope in its syntax tree: which are bound, which are read."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from fxgrad.engine.user_source import walk_tree

Nodes = ast.AST | Sequence[ast.AST]
FunctionNode = ast.FunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (*FUNCTIONS, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

OPERATORS = "~operators"
RESULT = "~result"
RETURNED = "~returned"
RAISED = "~raised"
CHANGES = "~changes"
GIVES_NONE = "~gives none"
"""Names of generated variables begin with `~`, which no name in Python does."""


def is_generated(name: str) -> bool:
    """Return whether a name was generated, and is not the user's."""
    return name.startswith("~")


_LEAVES = frozenset({"ctx", "op", "ops", "id", "attr", "kind", "type_comment", "n", "s"})
"""Fields of nodes without names, calls or statements."""
_INNER = {kind: tuple(field for field in kind._fields if field not in _LEAVES) for kind in vars(ast).values()
          if isinstance(kind, type) and issubclass(kind, ast.AST) and not issubclass(kind, SCOPES)}
_INNER[ast.Constant] = ()
"""The fields that may hold other nodes of the scope, by the kind of node, for those that make no scope themselves."""
_WITHOUT_NAMES = frozenset({ast.Constant, ast.Attribute, ast.Call, ast.BinOp, ast.Subscript, ast.Assign, ast.Compare,
                            ast.Expr, ast.Tuple})
"""The most frequent nodes that bind no name themselves."""


class Scope(list[ast.AST]):
    """The nodes of a scope, walked once for all that asks about them until the tree is changed; `roots` hold them."""

    roots: Sequence[ast.AST]


def walk_scope(nodes: Nodes) -> Scope:
    """Return the nodes of the scope, outer ones first, without operators: of nested functions and classes the node
    alone, and what their definition evaluates.
    """
    if type(nodes) is Scope:
        return nodes
    roots = [nodes] if isinstance(nodes, ast.AST) else nodes
    found = Scope(roots)
    found.roots = roots
    for node in found:
        fields = _INNER.get(type(node))
        if fields is None:
            if isinstance(node, ast.ClassDef):
                found += [*node.bases, *node.keywords, *node.decorator_list]
                continue
            if isinstance(node, FUNCTIONS):
                found += [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]
                found += [] if isinstance(node, ast.Lambda) else node.decorator_list
                continue
            fields = node._fields  # of a kind of this package
        for field in fields:
            value = getattr(node, field, None)
            if type(value) is list:
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


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
        elif isinstance(node, COMPREHENSIONS):
            targets.update(_comprehension_targets(node))
    if targets:  # those of comprehensions live in a scope of their own
        outside = _bound_outside_comprehensions(nodes)
        names -= {name for name in targets if name not in outside}
    return names


def arrays_of(name: ast.Name) -> tuple[str, ...]:
    """Return the names whose arrays have the row that a name stands for in a loop."""
    return getattr(name, "arrays", ())


def dotted(node: ast.expr) -> list[str]:
    """Return the parts of `a.b.c`; none for another expression."""
    if isinstance(node, ast.Name):
        return [node.id]
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else []
    return [*inner, node.attr] if inner and isinstance(node, ast.Attribute) else []


def _comprehension_targets(node: ast.AST) -> set[str]:
    return {each.id for generator in node.generators for each in walk_tree(generator.target)  # type: ignore[attr-defined]
            if isinstance(each, ast.Name)}


def _bound_outside_comprehensions(nodes: Nodes) -> set[str]:
    found: set[str] = set()
    waiting: list[ast.AST] = [*walk_scope(nodes).roots]
    while waiting:
        node = waiting.pop()
        if isinstance(node, COMPREHENSIONS):
            found.update(each.target.id for each in walk_tree(node) if isinstance(each, ast.NamedExpr))
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif not isinstance(node, SCOPES):
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
        elif isinstance(node, SCOPES):
            names |= free_names(node)
        elif isinstance(node, COMPREHENSIONS):
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
    return [node for node in walk_scope(nodes) if isinstance(node, SCOPES)]


def has_walrus(node: ast.AST) -> bool:
    """Return whether an expression binds a name in its scope."""
    return any(isinstance(each, ast.NamedExpr) for each in walk_scope(node))
