"""The elements of a graph: values (`Node`), operations (`Operation`), and dependencies (`Edge`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fxgrad import P
from fxgrad.extend import Atom, Aval, Cost, Equation, Provenance, Region, Source
from fxgrad.extend import Literal as Number
from fxgrad.text.blocks import part_labels
from fxgrad.text.names import function_label
from fxgrad.text.short import expression, operation_name

if TYPE_CHECKING:
    from fxgrad.tools.graphs.graph import Graph

Kind = Literal["leaf", "internal", "root"]


class Node:
    """A value of a graph: an argument, a constant, or a result of an operation.

    `name` is the user's name, or a letter as in the printed program; a number is named by its text. `producer` is the
    operation that makes it, None for arguments and constants; `uses` are the edges that leave it.

    >>> import fxgrad
    >>> def f(x, y, w):
    ...     total = x + y
    ...     return total * w
    >>> total = fxgrad.graph(f)(2.0, 3.0, 4.0)["total"]
    >>> total.kind, total.op, [node.name for node in total.inputs], float(total.value), float(total.grad)
    ('internal', 'add', ['x', 'y'], 5.0, 4.0)
    """

    __slots__ = ("atom", "graph", "index", "is_named", "is_output", "name", "producer", "role", "uses")

    def __init__(self, graph: Graph, index: int, atom: Atom, name: str, is_named: bool, role: str) -> None:
        self.graph, self.index, self.atom, self.name, self.is_named = graph, index, atom, name, is_named
        self.role = role
        """"input", "parameter", "label", "constant"; "gradient", "tangent" or "intermediate" for computed values."""
        self.producer: Operation | None = None
        self.uses: list[Edge] = []
        self.is_output = False

    def __repr__(self) -> str:
        return f"Node({self.name}: {self.aval})"

    @property
    def kind(self) -> Kind:
        """A leaf has no predecessors; a root is an output that nothing uses; the others are internal."""
        if self.producer is None or not self.producer.inputs:
            return "leaf"
        return "root" if self.is_output and not self.uses else "internal"

    @property
    def op(self) -> str:
        """The name of the operation that computes the value, such as "mul"; "" for arguments and constants."""
        return "" if self.producer is None else self.producer.op

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The predecessors: the nodes that it is computed from directly, in the order of the operands."""
        return () if self.producer is None else self.producer.inputs

    @property
    def successors(self) -> tuple[Node, ...]:
        """The nodes computed from it directly, each once."""
        return tuple(dict.fromkeys(edge.target for edge in self.uses))

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The incoming edges, one for each operand."""
        return () if self.producer is None else tuple(
            Edge(source, self, self.producer, position) for position, source in enumerate(self.producer.inputs))

    @property
    def aval(self) -> Aval:
        """The type: shape and dtype."""
        return self.atom.aval

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.atom.aval.shape

    @property
    def dtype(self) -> Any:
        """The dtype."""
        return self.atom.aval.dtype

    @property
    def nbytes(self) -> int:
        """The size of the value in bytes."""
        return self.atom.aval.nbytes

    @property
    def device(self) -> str:
        """The device of the value: "cpu" for NumPy arrays, jax's device name, or the sharding over several devices.

        For an array of jax's on eight devices, cut along its first axis: `P('data',) on 8 of cpu`. Raises as `value`
        does.
        """
        sharding = getattr(self.value, "sharding", None)
        if sharding is None:
            return "cpu"
        devices = sorted(sharding.device_set, key=lambda device: device.id)
        if len(devices) == 1:
            return str(devices[0])
        return f"{getattr(sharding, 'spec', 'everywhere')} on {len(devices)} of {devices[0].platform}"

    @property
    def placement(self) -> str:
        """Where the program puts the value: `P('data',) on 4 of cpu, pinned_host`; "" if it does not say.

        `device_put` and `with_sharding_constraint` say it, in programs that need not have run.
        """
        params = {} if self.producer is None else self.producer.equation.params
        spec, mesh = params.get("spec"), params.get("mesh")
        if spec is None or mesh is None:
            return ""
        axes = [names[0] if len(names) == 1 else names or None for names in spec]
        while axes and axes[-1] is None:
            axes.pop()
        memory = params.get("memory_kind")
        return f"{P(*axes)} on {math.prod(mesh.sizes)} of {mesh.platform or 'any device'}" + (
            f", {memory}" if memory else "")

    @property
    def source(self) -> Source | None:
        """The user's line that computes it, if known."""
        return None if self.producer is None else self.producer.source

    @property
    def text(self) -> str:
        """Its name, if the program gives it one; else the expression that computes it, such as `x + y`."""
        return self.name if self.is_named or self.producer is None else self.producer.expression

    @property
    def is_number(self) -> bool:
        """Whether it is a literal in the program."""
        return type(self.atom) is Number

    @property
    def value(self) -> Any:
        """The value at the arguments of the graph, an array or a number.

        Raises `ArgumentError` if the graph was made without values.
        """
        return self.graph.run().value(self.atom)

    @property
    def grad(self) -> Any:
        """The gradient of the graph's one scalar output in this value; zeros where it does not depend on it.

        All gradients of a graph are computed in one backward pass, on first use. Raises `ArgumentError` if the graph
        was made without values, or its output is not one real scalar; `DTypeError` for integers.
        """
        return self.graph.run().gradient(self)

    @property
    def vjp(self) -> Callable[..., tuple[Any, ...]] | None:
        """The local pullback of the operation that computes it (`Operation.vjp`); None for arguments and constants."""
        return None if self.producer is None else self.producer.vjp

    @property
    def saved(self) -> tuple[str, ...]:
        """The residuals of its operation's pullback (`Operation.saved`)."""
        return () if self.producer is None else self.producer.saved

    @property
    def is_saved(self) -> bool:
        """Whether the value is a residual of the pullback of an operation."""
        users = [edge.operation for edge in self.uses]
        return any(self.name in operation.saved for operation in [*users, *([self.producer] if self.producer else [])])

    @property
    def origins(self) -> tuple[Provenance, ...]:
        """In a derived graph: the values of the earlier program whose primal, tangent or cotangent this is."""
        source = self.source
        if self.producer is not None and source is not None and source.origins:
            return source.origins[self.producer.outputs.index(self)]
        return getattr(self.atom, "origins", ())

    @property
    def gradient_of(self) -> Node | None:
        """In a gradient's graph: the node of the same graph whose cotangent this is, if known."""
        return self.graph.gradient_links().get(self)


class Operation:
    """An operation: an equation of the program. `name` is unique in the graph: `add`, or `add_1`, `add_2`."""

    __slots__ = ("_saved", "equation", "graph", "index", "inputs", "name", "outputs")

    def __init__(self, graph: Graph, index: int, equation: Equation, inputs: tuple[Node, ...],
                 outputs: tuple[Node, ...]) -> None:
        self.graph, self.index, self.equation, self.inputs, self.outputs = graph, index, equation, inputs, outputs
        self.name = ""
        self._saved: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"Operation({self.name})"

    @property
    def op(self) -> str:
        """The name of the primitive, or of the function that is called."""
        return operation_name(self.equation)

    @property
    def expression(self) -> str:
        """The operation as the program prints it, of named operands: `x @ W`."""
        return expression(self.equation, self.graph.name_of)

    @property
    def params(self) -> Mapping[str, Any]:
        """The static parameters."""
        return self.equation.params

    @property
    def source(self) -> Source | None:
        """The user's line that recorded it, if known."""
        return self.equation.source

    @property
    def part(self) -> str:
        """In a gradient's graph "forward" or "backward", if known; else ""."""
        part = None if self.equation.source is None else self.equation.source.part
        return part if part in ("forward", "backward") else ""

    @property
    def cost(self) -> Cost:
        """The floating-point operations and the bytes moved."""
        return self.equation.cost

    @property
    def subgraphs(self) -> tuple[Subgraph, ...]:
        """The graphs of the programs that it holds: bodies of loops, branches, functions called."""
        return self.graph.subgraphs(self)

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles of the frames around its programs: the role, the user's function, and the number of runs."""
        labels = part_labels(self.equation)
        titles = []
        for subgraph, found in zip(self.subgraphs, labels, strict=True):
            label = self.op if subgraph.role in ("inline", "call") else found
            called = function_label(subgraph.graph.program)
            many = "" if subgraph.times in (None, 1) else f" × {subgraph.times}"
            titles.append(f"{label}{f': {called}' if called not in ('', label) else ''}{many}")
        return tuple(titles)

    @property
    def vjp(self) -> Callable[..., tuple[Any, ...]]:
        """Its local pullback at the values of the graph: a function of one cotangent for each output.

        It returns a cotangent for each operand, None for operands that have none (integers). Raises `ArgumentError` if
        the graph was made without values.
        """
        return self.graph.run().pullback(self)

    @property
    def saved(self) -> tuple[str, ...]:
        """The residuals of its pullback: names of nodes, or expressions such as `cos(x)`."""
        if self._saved is None:
            self._saved = self.graph.saved_by(self)
        return self._saved


class Edge(NamedTuple):
    """A dependency: `target` is computed from `source`, which is operand number `position` of `operation`.

    An operand that occurs twice has two edges; they carry nothing but the dependency.
    """

    source: Node
    target: Node
    operation: Operation
    position: int

    @property
    def derivative(self) -> Any:
        """The local derivative of the target in this operand, of shape target.shape + source.shape.

        Raises `ArgumentError` if the graph was made without values, or for more than ten million numbers.
        """
        return self.target.graph.run().derivative(self)

    def __repr__(self) -> str:
        return f"Edge({self.source.name} -> {self.target.name}: {self.operation.name}[{self.position}])"


class Subgraph(NamedTuple):
    """A graph that an operation holds.

    `role` is its purpose ("body", "branch", "inline", ...), `enters` the operand that each of its inputs comes from
    (None if the operation computes it), and `times` the number of runs, None if it depends on the values.
    """

    role: str
    graph: Graph
    enters: tuple[Node | None, ...]
    times: int | None

    @classmethod
    def of(cls, operation: Operation, region: Region, graph: Graph) -> Subgraph:
        """Return the subgraph of a region."""
        enters = tuple(None if link.place < 0 else operation.inputs[link.place] for link in region.inputs)
        return cls(region.role, graph, enters, region.times)
