"""The table of recorded prefixes: re-recording the same operations leads to the same `Program` object.

A `PrefixNode` stands for a sequence of recorded operations; an edge is one more operation or captured value. Nodes own
the variables and equations, so programs with a common beginning share them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fxgrad.engine import caches, config
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Equation, Program, Variable


class RecordedStep:
    """One step of a recording: an equation, or a captured value, and the variables that it binds."""

    __slots__ = ("equation", "outputs")

    def __init__(self, equation: Equation | None, outputs: list[Variable]) -> None:
        self.equation, self.outputs = equation, outputs


class PrefixNode(RecordedStep):
    """A recorded prefix: its last step, and the steps that followed it.

    `children` are the prefixes one step longer. The key of an operation is a tuple of the primitive, its operands
    (variables, literals) and the items of its parameters; that of a captured value is its type. When
    `y = x * x; z = np.sin(y)` was recorded, the root of `x` has a child under `(mul_p, x, x)`, which owns `y` and has a
    child under `(sin_p, y)`, which owns `z`. Named scopes that begin or end have nodes too, which are not steps.

    `calls` maps the arguments of library functions called here to their steps: the nodes passed, the scalars captured
    on the way, and the variables of the result. If the result is that of a single step, the entry is the node alone.
    """

    __slots__ = ("calls", "children", "programs")

    def __init__(self, equation: Equation | None, outputs: list[Variable]) -> None:
        self.equation, self.outputs = equation, outputs
        self.children: dict[Any, PrefixNode] = {}
        self.calls: dict[Any, Any] = {}
        self.programs: dict[Any, Program] = {}


class Root(PrefixNode):
    """The start of a recording: its `outputs` are the inputs of the function.

    `varies` tells whether any of them varies over the devices of a mesh.
    """

    __slots__ = ("varies",)

    def __init__(self, inputs: list[Variable]) -> None:
        super().__init__(None, inputs)
        self.varies = False
        for var in inputs:
            if var.aval.vma:
                self.varies = True


Call = tuple[list[RecordedStep], Sequence[Any], Any]

_roots: dict[Any, tuple[Root, Any]] = {}  # with the origin, which keeps its id from being reused
_recorded = 0
epoch = 0
"""Number of times the table was cleared: a root of an earlier epoch is stale."""


def root(origin: Any, in_avals: tuple[Aval, ...], scope: Mapping[str, int], settings: Any) -> Root:
    """Return the node where recording starts for functions of one origin (a code object) and these input types.

    `settings` are those of the tape, on which the steps of library functions depend. Roots also differ by the mapped
    axes in `scope`: user code that runs later, such as a custom rule, may use them.
    """
    key = (id(origin), settings, *in_avals)  # by identity: hashing a code object reads all of its code
    if scope:
        key += (*scope.items(),)
    entry = _roots.get(key)
    if entry is None:
        _count_entry()
        entry = _roots.setdefault(key, (Root([Variable(aval) for aval in in_avals]), origin))
    return entry[0]


def fresh_root(in_avals: tuple[Aval, ...]) -> Root:
    """Return an unshared root: the program recorded from it is not interned."""
    return Root([Variable(aval) for aval in in_avals])


def extend(node: PrefixNode, key: Any, equation: Equation | None, outputs: list[Variable]) -> PrefixNode:
    """Return the child of `node` under `key`; create it unless another thread has."""
    global _recorded
    _recorded += 1  # as `_count_entry` does
    if _recorded > config.interning_limit:
        clear()
    if equation is not None and _holds_functions(equation):
        _drop_functions(node)
    return node.children.setdefault(key, PrefixNode(equation, outputs))


MAX_FUNCTIONS = 256
"""The number of operations with functions or programs in their parameters, such as loops of different lengths, that
may follow one prefix."""


def _holds_functions(equation: Equation) -> bool:
    primitive = equation.primitive
    return primitive.regions is not None or primitive.calls_user_code or any(map(callable, equation.params.values()))


def _drop_functions(node: PrefixNode) -> None:
    """Forget the children of `node` that hold functions or programs if there are `MAX_FUNCTIONS`.

    A custom rule or a callback that is made anew in each step of a loop is another operation each time. What it
    recorded, and all that was derived from it, is never reached again.
    """
    held = [key for key, child in [*node.children.items()]
            if child.equation is not None and _holds_functions(child.equation)]
    if len(held) >= MAX_FUNCTIONS:
        for key in held:
            node.children.pop(key, None)


def node_in_scope(node: PrefixNode, scope: str) -> PrefixNode:
    """Return the node at which recording continues after the user's code enters or leaves a named scope.

    It is not a step. It separates equal operations of different scopes, which are equations of their own.
    """
    key = "scope", scope
    found = node.children.get(key)
    return extend(node, key, None, []) if found is None else found


class Segment(NamedTuple):
    """Consecutive steps as a program of their operands, returning all their results; `captured` are its new inputs."""

    program: Program
    captured: list[Variable]


def segment(steps: Sequence[RecordedStep], start: int) -> Segment:
    """Return the steps from number `start` on as a program; memoize it on the last step if that is interned."""
    last = steps[-1]
    key = ("segment", start)
    found: Segment | None = last.calls.get(key) if isinstance(last, PrefixNode) else None
    if found is None:
        captured = [step.outputs[0] for step in steps[start:] if step.equation is None]
        equations = [step.equation for step in steps[start:] if step.equation is not None]
        outputs = [var for equation in equations for var in equation.outputs]
        made = {*outputs}
        needed = dict.fromkeys(atom for equation in equations for atom in equation.inputs if type(atom) is Variable)
        found = Segment(Program([var for var in needed if var not in made], equations, outputs), captured)
        if isinstance(last, PrefixNode):
            last.calls[key] = found
    return found


def cache_put(node: PrefixNode, key: Any, call: Any) -> None:
    """Enter at `node` the steps of a call, or another result that follows from the recording."""
    _count_entry()
    node.calls[key] = call


def _count_entry() -> None:
    """Count one more entry of the table, and empty the table if it has too many."""
    global _recorded
    _recorded += 1
    if _recorded > config.interning_limit:
        clear()


def clear() -> None:
    """Forget every recorded prefix; programs still referenced elsewhere stay unchanged."""
    global _recorded, epoch
    _roots.clear()
    _recorded = 0
    epoch += 1


def num_recorded_operations() -> int:
    """Return the number of recorded operations in the table."""
    return _recorded


caches.on_clear(clear)
