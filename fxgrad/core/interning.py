"""The table of recorded prefixes: re-recording the same operations leads to the same `Program` object.

A `Node` stands for "these operations were recorded so far"; an edge is one more operation or captured value.
Nodes own the variables and equations, so programs with a common beginning share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fxgrad import config
from fxgrad.core.avals import Aval
from fxgrad.core.program import Equation, Program, Var


class Node:
    """A recorded prefix: its last step (`equation`, or a captured value if that is None) and what followed."""

    __slots__ = ("children", "equation", "outputs", "programs")

    def __init__(self, equation: Equation | None, outputs: list[Var]) -> None:
        self.equation, self.outputs = equation, outputs
        self.children: dict[Any, Node] = {}
        self.programs: dict[Any, Program] = {}


_roots: dict[Any, tuple[Node, Any]] = {}  # with the origin, so that its id stays its own
_recorded = 0


def root(origin: Any, in_avals: tuple[Aval, ...], scope: Mapping[str, int]) -> Node:
    """The node at which recording starts, for functions of one origin (a code object) and these input types.

    The mapped axes in `scope` tell roots apart too: user code that runs later, such as a custom rule, may ask for them.
    """
    key = (id(origin), *in_avals)  # by identity: the hash of a code object reads all of its code
    if scope:
        key += (*scope.items(),)
    entry = _roots.get(key)
    if entry is None:
        entry = _roots.setdefault(key, (Node(None, [Var(aval) for aval in in_avals]), origin))
    return entry[0]


def fresh_root(in_avals: tuple[Aval, ...]) -> Node:
    """A root of its own: the program recorded from it is shared with no other and is not remembered."""
    return Node(None, [Var(aval) for aval in in_avals])


def extend(node: Node, key: Any, equation: Equation | None, outputs: list[Var]) -> Node:
    """The child of `node` under `key`, new unless another thread was faster."""
    global _recorded
    _recorded += 1
    if _recorded > config.interning_limit:
        clear()
    return node.children.setdefault(key, Node(equation, outputs))


def clear() -> None:
    """Forgets every recorded prefix; programs still referred to elsewhere stay as they are.

    >>> import fxgrad
    >>> fxgrad.clear_caches()
    >>> recorded_operations()
    0
    """
    global _recorded
    _roots.clear()
    _recorded = 0


def recorded_operations() -> int:
    """How many recorded operations the table holds."""
    return _recorded
