"""What a function reads from outside of its call: names, attributes, functions, each guarded."""

from __future__ import annotations

import ast
import builtins
import functools
import operator
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transparency.plan import Plan
from fxgrad.engine.transparency.recording import is_library
from fxgrad.engine.transparency.values import Function, Item, Known, Partial, Path, Refusal, TracedAround, guarded

_PLAIN_READS: tuple[Any, ...] = (object.__getattribute__, SimpleNamespace.__getattribute__)


class Reader:
    """The reads of one interpretation: each becomes a load and its guards in the plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def item(self, code: str, value: Any, node: ast.AST | None, wraps: bool = False, title: str = "") -> Item:
        """Return the item of a value that was found by `code`."""
        if isinstance(value, Tracer):
            raise TracedAround("a traced array of another function is read", node)
        try:
            item = self._plan.load(code, value, wraps, title)
        except Refusal as refusal:
            refusal.syntax = refusal.syntax or node
            raise
        if isinstance(item, Path) and is_function(value):
            return self._partial(item, value, node) if type(value) is functools.partial else self._function(item, value)
        return item

    def _partial(self, item: Path, value: Any, node: ast.AST | None) -> Partial:
        code = item.code
        self._plan.guard(f"type({code}) is {self._plan.constant(functools.partial)} and len({code}.args) == "
                         f"{len(value.args)} and {code}.keywords.keys() == {set(value.keywords) or 'set()'}")
        return Partial(self.item(f"{code}.func", value.func, node),
                       [self.item(f"{code}.args[{place}]", each, node) for place, each in enumerate(value.args)],
                       {name: self.item(f"{code}.keywords[{name!r}]", each, node)
                        for name, each in value.keywords.items()})

    def _function(self, item: Path, value: Any) -> Item:
        """Return a callable object as a function, guarded by identity; a method by its function and its object."""
        plan = self._plan
        if isinstance(value, MethodType) and isinstance(value.__func__, FunctionType):
            receiver = plan.load(f"{item.code}.__self__", value.__self__)
            plan.guard(f"type({item.code}) is {plan.constant(MethodType)} and {item.code}.__func__ is "
                       f"{plan.constant(value.__func__)}")
            return Function(value.__func__, receiver, plan.constant(value.__func__))
        plan.guard(f"{item.code} is {plan.constant(value)}")
        return Function(value, None, plan.constant(value))

    # --- names -------------------------------------------------------------------------------------------

    def of_cell(self, name: str, cell: Any, node: ast.AST) -> Item:
        """Return the value of a variable that the function closes over."""
        try:
            value = cell.cell_contents
        except ValueError:
            raise Refusal(f"{name} has no value", node) from None
        return self.item(f"{self._plan.constant(cell)}.cell_contents", value, node, title=name)

    def of_module(self, name: str, module_globals: dict[str, Any], node: ast.AST) -> Item:
        """Return the value of a global name, or of a builtin one that no global name hides."""
        plan = self._plan
        if name in module_globals:
            return self.item(f"{plan.constant(module_globals)}[{name!r}]", module_globals[name], node, title=name)
        namespace = module_globals.get("__builtins__", builtins)
        namespace = vars(namespace) if isinstance(namespace, ModuleType) else namespace
        if name not in namespace:
            raise Refusal(f"{name} is not defined", node)
        plan.guard(f"{name!r} not in {plan.constant(module_globals)}")
        return self.item(f"{plan.constant(namespace)}[{name!r}]", namespace[name], node, title=name)

    # --- containers and objects ------------------------------------------------------------------------

    def length(self, item: Path) -> Known:
        """Return the length of a list, tuple or dict that outlives the call; those of lists and tuples are guarded."""
        if type(item.value) is dict:
            self._plan.guard(f"len({item.code}) == {len(item.value)}")
        return Known(len(item.value))

    def has_key(self, item: Path, key: Any, node: ast.AST) -> bool:
        """Return whether a dict that outlives the call has a key."""
        found: bool = guarded(node, operator.contains, item.value, key)
        self._plan.guard(f"({self._plan.constant(key)} in {item.code}) is {found}")
        return found

    def keys(self, item: Path, node: ast.AST) -> list[str]:
        """Return the keys of a dict that outlives the call, in their order."""
        if any(type(key) is not str for key in item.value):
            raise Refusal("a dict with keys that are no texts is iterated over", node)
        self._plan.guard(f"[*{item.code}] == {self._plan.constant([*item.value])}")
        return [*item.value]

    def call_of(self, item: Path, node: ast.AST) -> Function:
        """Return the method that a call of an object runs: that of its class, whatever its own attributes."""
        kind, method = type(item.value), user_call(item.value)
        if method is None:
            raise Refusal("an object is called", node)
        if item.wraps:
            raise Refusal("an object in a container among the arguments is called", node)
        name = self._plan.constant(method)
        self._plan.guard(f"type({item.code}) is {self._plan.constant(kind)}")
        self._plan.guard(f"{self._plan.constant(kind)}.__call__ is {name}")
        return Function(method, item, name)

    # --- attributes --------------------------------------------------------------------------------------

    def attribute(self, item: Path, name: str, node: ast.AST) -> Item:
        """Return an attribute of a module, or of an object that outlives the call."""
        owner = item.value
        if isinstance(owner, ModuleType):
            if not hasattr(owner, name):
                raise Refusal(f"{owner.__name__} has no {name}", node)
            self._plan.guard(f"{item.code} is {self._plan.constant(owner)}")
            return self.item(f"{item.code}.{name}", getattr(owner, name), node)
        if isinstance(owner, list | tuple | dict):
            raise Refusal(f"the method {name} of a container that outlives the call is read", node)
        return self._of_object(item, owner, name, node)

    def of_class(self, item: Function, name: str, node: ast.AST) -> Item:
        """Return an attribute of a class, which is guarded by identity: a value, or a function of it."""
        kind = item.value
        found = _kept_by_class(kind, name)
        if type(kind) is not type or found is None:
            raise Refusal(f"the attribute {name} of the class {kind.__name__} is computed, or is not there", node)
        if hasattr(type(found), "__get__") and not isinstance(found, FunctionType | staticmethod):
            raise Refusal(f"the attribute {name} of the class {kind.__name__} is computed", node)
        return self.item(f"{item.code}.{name}", getattr(kind, name), node)

    def _of_object(self, item: Path, owner: Any, name: str, node: ast.AST) -> Item:
        """Read an attribute of a plain object: of its own, or a method of its class."""
        kind = type(owner)
        if item.wraps:  # an argument is rebuilt, with other arrays, if its class is registered as a pytree
            raise Refusal("an object in a container among the arguments is read", node)
        is_plain = kind.__getattribute__ in _PLAIN_READS and not hasattr(kind, "__getattr__") and hasattr(
            owner, "__dict__") and type(kind) is type
        of_class = _kept_by_class(kind, name)
        is_method = isinstance(of_class, FunctionType)
        if not is_plain or (of_class is not None and not is_method and hasattr(type(of_class), "__get__")):
            raise Refusal(f"the attribute {name} of an object of class {kind.__name__} is computed", node)
        plan = self._plan
        plan.guard(f"type({item.code}) is {plan.constant(kind)}")
        if not hasattr(owner, name):
            raise Refusal(f"an object of class {kind.__name__} has no attribute {name}", node)
        if name in vars(owner) or not is_method:
            return self.item(f"{item.code}.{name}", getattr(owner, name), node)
        method = plan.load(f"{item.code}.{name}", getattr(owner, name))
        plan.guard(f"type({method.code}) is {plan.constant(MethodType)} and {method.code}.__func__ is "
                   f"{plan.constant(of_class)} and {method.code}.__self__ is {item.code}")
        return Function(of_class, item, plan.constant(of_class))


def _kept_by_class(kind: type, name: str) -> Any:
    """Return what a class or the first of its bases has under a name, as it is kept there; None if there is nothing."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def user_call(value: Any) -> FunctionType | None:
    """Return the method that a call of a user's object runs; None for functions, classes and objects of libraries."""
    found = _kept_by_class(type(value), "__call__") if type(type(value)) is type else None
    return found if isinstance(found, FunctionType) and not is_library(found) else None


def is_function(value: Any) -> bool:
    """Return whether a value is a function or the like, known by identity, and no object whose parts are read."""
    return callable(value) and not isinstance(value, list | tuple | dict) and user_call(value) is None
