"""What a function reads from outside of its call: names, attributes, functions, each guarded."""

from __future__ import annotations

import ast
import builtins
import functools
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transparency.plan import Plan
from fxgrad.engine.transparency.values import Function, Item, Partial, Path, Refusal

_PLAIN_READS: tuple[Any, ...] = (object.__getattribute__, SimpleNamespace.__getattribute__)


class Reader:
    """The reads of one interpretation: each becomes a load and its guards in the plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def item(self, code: str, value: Any, node: ast.AST | None, wraps: bool = False, title: str = "") -> Item:
        """Return the item of a value that was found by `code`."""
        if isinstance(value, Tracer):
            raise Refusal("a traced array of another function is read", node)
        try:
            item = self._plan.load(code, value, wraps, title)
        except Refusal as refusal:
            refusal.syntax = refusal.syntax or node
            raise
        if isinstance(item, Path) and callable(value) and not isinstance(value, list | tuple | dict):
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

    def _of_object(self, item: Path, owner: Any, name: str, node: ast.AST) -> Item:
        """Read an attribute of a plain object: of its own, or a method of its class."""
        kind = type(owner)
        if item.wraps:  # an argument is rebuilt, with other arrays, if its class is registered as a pytree
            raise Refusal("an object in a container among the arguments is read", node)
        is_plain = kind.__getattribute__ in _PLAIN_READS and not hasattr(kind, "__getattr__") and hasattr(
            owner, "__dict__") and type(kind) is type
        of_class = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
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
