"""`Graph`: the computational graph of a program, and `graph`, which makes it of a function or a program."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from fxgrad import tree
from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.extend import (
    COTANGENT,
    NO_TANGENT,
    PRIMAL,
    TANGENT,
    TRANSPOSED,
    Atom,
    Equation,
    Literal,
    Program,
    Provenance,
    Variable,
    at_user_line,
    has_tangent,
    hide_frames,
    linearize_program,
    trace_program,
    transformation,
)
from fxgrad.extend.tracing import static_positions
from fxgrad.text.scope import Scope
from fxgrad.text.short import expression
from fxgrad.text.sources import Sources
from fxgrad.text.text_writer import text_scopes
from fxgrad.text.values import literal_text
from fxgrad.tools.graphs.backward import BackwardTable
from fxgrad.tools.graphs.nodes import Edge, Node, Operation, Subgraph
from fxgrad.tools.graphs.paths import MOST, Path, PathCosts, path_costs, paths_between
from fxgrad.tools.graphs.roles import Roles, annotated_roles, roles_of
from fxgrad.tools.graphs.run import Run


class Graph:
    """A directed acyclic graph: `nodes` are values, `operations` compute them, `edges` are dependencies.

    Without values it holds the structure of a program; `with_values`, or `graph(f)(*args)`, adds the numbers, which are
    computed on first use. Nodes are found by name, `graph["h"]`, and are in topological order.

    >>> import fxgrad
    >>> def f(x, y, w):
    ...     return (x + y) * w
    >>> z = fxgrad.graph(f)(2.0, 3.0, 4.0)
    >>> len(z.nodes), len(z.edges), [operation.name for operation in z.operations]
    (5, 4, ['add', 'mul'])
    >>> [node.name for node in z.leaves], float(z.root.value), float(z["w"].grad)
    (['x', 'y', 'w'], 20.0, 5.0)
    """

    def __init__(self, program: Program, roles: Roles | None = None, *, leaves: Sequence[Any] | None = None,
                 scopes: Mapping[int, Scope] | None = None) -> None:
        self.program = program
        self._scopes = text_scopes(program) if scopes is None else scopes
        known = self._scopes.get(id(program))
        self._names = Scope(program, Sources(), {}) if known is None else known
        self._asked = dict(roles or {})
        self._leaves = leaves
        self._run: Run | None = None
        self._subgraphs: dict[int, tuple[Subgraph, ...]] = {}
        self._links: dict[Node, Node] | None = None
        self._of: dict[Variable, Node] = {}
        self.nodes: tuple[Node, ...]
        self.operations: tuple[Operation, ...]
        self._build()
        self._by_name = {node.name: node for node in reversed(self.nodes)}

    # --- how it is built ----------------------------------------------------------------------------------

    def _build(self) -> None:
        program = self.program
        nodes: list[Node] = []

        def add(atom: Atom, role: str) -> Node:
            is_number = isinstance(atom, Literal)
            name = literal_text(atom) if isinstance(atom, Literal) else self.name_of(atom)
            node = Node(self, len(nodes), atom, name, is_number or atom in self._names.named, role)
            nodes.append(node)
            if isinstance(atom, Variable):
                self._of[atom] = node
            return node

        arguments = program.inputs[program.captured:]
        wanted = roles_of(self.title, [self.name_of(var) for var in arguments], self._asked)
        for var in arguments:
            add(var, wanted.get(self.name_of(var), "input"))
        for var in program.inputs[:program.captured]:
            add(var, "constant")
        operations: list[Operation] = []
        for equation in program.equations:
            inputs = tuple([self._of[atom] if isinstance(atom, Variable) else add(atom, "constant")
                            for atom in equation.inputs])
            outputs = tuple([add(var, "intermediate" if inputs else "constant") for var in equation.outputs])
            operation = Operation(self, len(operations), equation, inputs, outputs)
            operations.append(operation)
            for number, node in enumerate(outputs):
                node.producer = operation
                node.role = _role_of_origins(equation, number, node.role)
                for position, source in enumerate(inputs):
                    source.uses.append(Edge(source, node, operation, position))
        self.outputs = tuple([self._of[atom] if isinstance(atom, Variable) else add(atom, "constant")
                              for atom in program.outputs])
        for node in self.outputs:
            node.is_output = True
        # Operations of one kind are numbered.
        kinds: dict[str, list[Operation]] = {}
        for operation in operations:
            kinds.setdefault(operation.op, []).append(operation)
        for kind, alike in kinds.items():
            for number, operation in enumerate(alike, 1):
                operation.name = f"{kind}_{number}" if len(alike) > 1 else kind
        self.nodes, self.operations = tuple(nodes), tuple(operations)

    # --- nodes, operations, edges ------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """The name of the graphed function, such as `loss` or `grad(loss)`; "" if unknown."""
        signature = self.program.signature
        return "" if signature is None else signature.title or signature.name

    def __repr__(self) -> str:
        return (f"<graph of {self.title or 'a program'}: {len(self.nodes)} nodes, {len(self.edges)} edges, "
                f"{len(self.operations)} operations>")

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """One edge for each operand of each operation, and each of its results."""
        return tuple([edge for node in self.nodes for edge in node.edges])

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The arguments, in their order."""
        return self.nodes[:len(self.program.inputs) - self.program.captured]

    @property
    def leaves(self) -> tuple[Node, ...]:
        """The nodes without predecessors: arguments and constants."""
        return tuple([node for node in self.nodes if node.kind == "leaf"])

    @property
    def roots(self) -> tuple[Node, ...]:
        """The outputs that no other value depends on, each once."""
        return tuple([node for node in self.nodes if node.kind == "root"])

    @property
    def root(self) -> Node:
        """The only output. Raises `ArgumentError` if there are several, or none."""
        if len(self.outputs) != 1:
            raise ArgumentError(at_user_line(
                f"graph: {self.title or 'the program'} has {len(self.outputs)} outputs, where one is needed; "
                "take one of graph.outputs"))
        return self.outputs[0]

    def __getitem__(self, name: str | Node) -> Node:
        """Return the node of this name; of equal literals the first. A node of this graph is returned unchanged.

        Raises `ArgumentError` for a name that no node has, and for nodes of other graphs.
        """
        if isinstance(name, Node):
            if name.graph is not self:
                raise ArgumentError(at_user_line(
                    f"the node {name.name} is of another graph ({name.graph!r}); this is {self!r}. "
                    f"Take it by its name, graph[{name.name!r}]"))
            return name
        found = self._by_name.get(name)
        if found is None:
            near = difflib.get_close_matches(str(name), self._by_name, n=3) or [*reversed(self._by_name)][:5]
            raise ArgumentError(at_user_line(
                f"no node of {self!r} is called {name!r}; there are {', '.join(near)}"
                f"{', ...' if len(near) < len(self._by_name) else ''}"))
        return found

    def named(self, names: str | Node | Iterable[str | Node]) -> tuple[Node, ...]:
        """Return the nodes of one name or several; raise `ArgumentError` as `graph[name]` does."""
        return (self[names],) if isinstance(names, str | Node) else tuple([self[name] for name in names])

    def name_of(self, var: Variable) -> str:
        """Return the name of a variable, as the printed text has it; variables unnamed there get other letters."""
        self._names.bind(var)
        return self._names.names[var]

    def node_of(self, var: Variable) -> Node:
        """Return the node of a variable. Raise `ArgumentError` if it belongs to another program."""
        if var not in self._of:
            raise ArgumentError(at_user_line(f"the variable {var} is not of the program of {self!r}"))
        return self._of[var]

    @property
    def parameter_argnums(self) -> tuple[int, ...]:
        """The positions of the arguments that contain parameters, for `grad(f, argnums=graph.parameter_argnums)`."""
        signature = self.program.signature
        if signature is None or signature.in_tree is None:
            return tuple([number for number, node in enumerate(self.inputs) if node.role == "parameter"])
        args, _ = tree.unflatten(signature.in_tree, [node.role == "parameter" for node in self.inputs])
        return tuple([number for number, part in enumerate(args) if any(tree.leaves(part))])

    def subgraphs(self, operation: Operation) -> tuple[Subgraph, ...]:
        """Return the graphs of the programs that an operation holds."""
        known = self._subgraphs.get(operation.index)
        if known is None:
            known = self._subgraphs[operation.index] = tuple([
                Subgraph.of(operation, region, Graph(region.program, scopes=self._scopes))
                for region in operation.equation.regions])
        return known

    # --- order --------------------------------------------------------------------------------------------

    def toposort(self, *, reverse: bool = False) -> tuple[Node, ...]:
        """Return the nodes in topological order; with `reverse`, in the order of the backward pass."""
        return self.nodes[::-1] if reverse else self.nodes

    def is_acyclic(self) -> bool:
        """Return whether no node depends on itself; True for every program that `check` accepts."""
        sorter = TopologicalSorter({node.index: [source.index for source in node.inputs] for node in self.nodes})
        try:
            sorter.prepare()
        except CycleError:
            return False
        return True

    def levels(self) -> list[tuple[Node, ...]]:
        """Return the nodes grouped by the number of operations on the longest path from a leaf."""
        depths: list[int] = []
        for node in self.nodes:
            depths.append(1 + max([depths[source.index] for source in node.inputs]) if node.inputs else 0)
        found: list[list[Node]] = [[] for _ in range(1 + max(depths, default=-1))]
        for node, depth in zip(self.nodes, depths, strict=True):
            found[depth].append(node)
        return [tuple(level) for level in found]

    @property
    def depth(self) -> int:
        """Return the number of operations on the longest path."""
        return max(0, len(self.levels()) - 1)

    @property
    def width(self) -> int:
        """Return the size of the largest level: the number of values that could be computed at once."""
        return max([len(level) for level in self.levels()[1:]], default=0)

    def descendants(self, names: str | Node | Iterable[str | Node]) -> frozenset[Node]:
        """Return the nodes themselves, and all nodes that depend on them."""
        found = {*self.named(names)}
        for node in self.nodes:
            if not found.isdisjoint(node.inputs):
                found.add(node)
        return frozenset(found)

    def ancestors(self, names: str | Node | Iterable[str | Node]) -> frozenset[Node]:
        """Return the nodes themselves, and all nodes that they depend on."""
        found = {*self.named(names)}
        for node in reversed(self.nodes):
            if node in found:
                found.update(node.inputs)
        return frozenset(found)

    def between(self, start: str | Node | Iterable[str | Node], end: str | Node | Iterable[str | Node],
                ) -> tuple[Node, ...]:
        """Return the nodes on the paths from `start` to `end` (each one node or several), both included, in order.

        >>> import fxgrad
        >>> graph = fxgrad.graph(lambda x, y: (x + y) * x)(1.0, 2.0)
        >>> [node.text for node in graph.between("y", graph.root)]
        ['y', 'x + y', 'a * x']
        """
        both = self.descendants(start) & self.ancestors(end)
        return tuple([node for node in self.nodes if node in both])

    def paths(self, start: str | Node, end: str | Node, *, most: int = MOST) -> list[Path]:
        """Return all paths from `start` to `end` (names or nodes); none if `end` does not depend on it.

        An operand that stands twice in an operation gives two paths. Raises `ArgumentError` if there are more than
        `most`, and for unknown nodes.

        >>> import fxgrad
        >>> def f(a, b):
        ...     e = (a + b) * (b + 1)
        ...     return e
        >>> graph = fxgrad.graph(f)(2.0, 1.0)
        >>> [path.operations for path in graph.paths("b", "e")]
        [('add_1', 'mul'), ('add_2', 'mul')]
        >>> [float(path.product) for path in graph.paths("b", "e")], float(graph["b"].grad)
        ([2.0, 3.0], 5.0)
        """
        return paths_between(self, start, end, most)

    def path_costs(self, start: str | Node, end: str | Node) -> PathCosts:
        """Return what the derivative of `end` in `start` costs by following all paths, and by reverse mode.

        >>> import fxgrad
        >>> def f(x):
        ...     for _ in range(10):
        ...         x = x * x
        ...     return x
        >>> graph = fxgrad.graph(f)(1.0)
        >>> costs = graph.path_costs("x", graph.root)
        >>> costs.paths, costs.products_by_paths, costs.edges, costs.products_in_reverse
        (1024, 9216, 20, 18)
        """
        return path_costs(self, start, end)

    # --- numbers and gradients ----------------------------------------------------------------------------

    def with_values(self, *args: Any) -> Graph:
        """Return the graph with the values at these arguments, containers like those that the program takes.

        Raises `ArgumentError` if they are others.
        """
        leaves = tree.leaves((args, {}))
        expected = [node.aval for node in self.inputs]
        given = [(leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else () for leaf in leaves]
        if len(leaves) != len(expected) or any(
                pair and pair != (aval.shape, aval.dtype) for pair, aval in zip(given, expected, strict=True)):
            raise ArgumentError(at_user_line(
                f"with_values: {self.title or 'the program'} takes "
                f"{', '.join(f'{node.name}: {node.aval}' for node in self.inputs)}; got "
                f"{', '.join(f'{pair[1]}{[*pair[0]]}' if pair else 'a number' for pair in given) or 'nothing'}"))
        return Graph(self.program, self._asked, leaves=leaves)

    @property
    def has_values(self) -> bool:
        """Whether the graph was made with arguments that have values."""
        return self._leaves is not None and len(self.program.constants) == self.program.captured

    def backward_table(self) -> BackwardTable:
        """Return the backward pass as a table: upstream gradient times local derivative, for each edge.

        Raises `ArgumentError` if the graph was made without values, or its output is not a real scalar.

        >>> import fxgrad
        >>> def f(x, y, w):
        ...     z = (x + y) * w
        ...     return z
        >>> table = fxgrad.graph(f)(2.0, 3.0, 4.0).backward_table()
        >>> [(step.edge.source.name, float(step.upstream), float(step.local), float(step.downstream))
        ...  for step in table.steps]
        [('a', 1.0, 4.0, 4.0), ('w', 1.0, 5.0, 5.0), ('x', 4.0, 1.0, 4.0), ('y', 4.0, 1.0, 4.0)]
        """
        return BackwardTable(self)

    def run(self) -> Run:
        """Return the numbers of this graph; raise `ArgumentError` if it was made without values."""
        if self._run is None:
            if self._leaves is None or not self.has_values:
                raise ArgumentError(at_user_line(
                    f"{self!r} has no values: it was made of a program, or of shapes alone. "
                    "Write fxgrad.graph(f)(*arrays), or graph.with_values(*arrays)"))
            self._run = Run(self, [*self.program.constants, *self._leaves])
        return self._run

    def saved_by(self, operation: Operation) -> tuple[str, ...]:
        """Return the residuals of one operation's pullback: names, and expressions computed for it."""
        equation = operation.equation
        variables = [*dict.fromkeys(atom for atom in equation.inputs if isinstance(atom, Variable))]
        wrt = tuple([has_tangent(var.aval) for var in variables])
        if equation.primitive.jvp is NO_TANGENT or not any(wrt):
            return ()
        try:
            primal = linearize_program(Program(variables, [equation], equation.outputs), wrt).program
        except UnsupportedError:  # a callback has no pullback, so no residuals
            return ()
        given = zip([*primal.inputs[primal.captured:], *primal.outputs], [*variables, *equation.outputs], strict=False)
        names = {atom: self.name_of(var) for atom, var in given if isinstance(atom, Variable)}
        for each in primal.equations:
            for var in each.outputs:
                if var not in names:
                    names[var] = expression(each, lambda operand: names.get(operand, "..."))
        residuals = [atom for atom in primal.outputs[len(equation.outputs):] if isinstance(atom, Variable)]
        return tuple(dict.fromkeys(names.get(var, "...") for var in residuals))

    def gradient_links(self) -> dict[Node, Node]:
        """In a gradient's graph: the primal node of each cotangent, as far as it is known."""
        if self._links is None:
            primals: dict[Any, Node] = {}
            cotangents: list[tuple[Node, Provenance]] = []
            for node in self.nodes:
                for origin in node.origins:
                    if origin.role == PRIMAL:
                        primals.setdefault((id(origin.program), origin.var), node)
                    elif origin.role in (COTANGENT, TRANSPOSED):
                        cotangents.append((node, origin))
            named = {node.name: node for node in reversed(self.nodes)}
            self._links = {}
            for node, origin in cotangents:  # a cotangent may belong to several values; its name tells which
                primal = named.get(node.name.removeprefix("d_"))
                if primal is None or primal is node:
                    primal = primals.get((id(origin.program), origin.var))
                if primal is not None and primal is not node:
                    self._links.setdefault(node, primal)
        return self._links

    def to_networkx(self) -> Any:
        """Return the graph for networkx, a `MultiDiGraph` of numbered values.

        Nodes have `name`, `role`, `kind`, `op` and type, edges have `operation` and `position`. Raises `ImportError` if
        networkx is not installed.
        """
        import networkx as nx  # an extra

        made = nx.MultiDiGraph(title=self.title)
        for node in self.nodes:
            made.add_node(node.index, name=node.name, text=node.text, role=node.role, kind=node.kind, op=node.op,
                          type=str(node.aval))
        for edge in self.edges:
            made.add_edge(edge.source.index, edge.target.index, operation=edge.operation.name, position=edge.position)
        return made


def _role_of_origins(equation: Equation, number: int, role: str) -> str:
    source = equation.source
    found = source.origins[number] if source is not None and source.origins else ()
    named = {origin.role for origin in found}
    if not named or PRIMAL in named:
        return role
    return "tangent" if named == {TANGENT} else "gradient"


def graph(fun: Callable[..., Any] | Program, argnums: int | Sequence[int] | None = None, *, roles: Roles | None = None,
          static_argnums: int | Sequence[int] = ()) -> Any:
    """Return a function that traces `fun` and returns its computational `Graph`; for a `Program`, the graph itself.

    Arguments are arrays, numbers, `ShapeDtypeStruct`s or containers of them; with arrays and numbers the graph has
    values and gradients too. Parameters are the leaves of the arguments at `argnums`, those annotated with
    `fxgrad.Param`, and those whose names fit `roles`, such as {"params": "W*", "labels": "y"}; paths are names too
    ("layers[*].W", or "params" for all that is in it).

    Raises `ArgumentError` for roles and names that do not exist.

    >>> import fxgrad, numpy as np
    >>> def predict(W, b, x):
    ...     return np.exp(x @ W + b)
    >>> made = fxgrad.graph(predict, argnums=(0, 1))(np.ones((3, 2)), np.ones(2), np.ones((5, 3)))
    >>> {node.name: node.role for node in made.leaves}
    {'W': 'parameter', 'b': 'parameter', 'x': 'input'}
    >>> [operation.op for operation in made.operations], made.root.shape
    (['dot_general', 'add', 'exp'], (5, 2))
    """
    if isinstance(fun, Program):
        names = Graph(fun).inputs if argnums is not None else ()
        numbers = [] if argnums is None else [argnums] if isinstance(argnums, int) else argnums
        return Graph(fun, _add_parameters(roles or {}, [names[number].name for number in numbers]))

    @transformation("graph", fun)
    @hide_frames
    def made(*args: Any, **kwargs: Any) -> Graph:
        static = static_positions(static_argnums, len(args))
        program = trace_program("graph", fun, args, kwargs, static)
        asked = _add_parameters(roles or {}, [*annotated_roles(fun, len(args), argnums)])
        return graph_of_call(program, asked, [arg for place, arg in enumerate(args) if place not in static], kwargs)

    return made


def graph_of_call(program: Program, roles: Roles, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Graph:
    """Return the graph of a program that was traced at these arguments, with values for arguments that have them."""
    leaves = tree.leaves((tuple(args), dict(kwargs)))
    known = not any(isinstance(leaf, tree.ShapeDtypeStruct) for leaf in leaves)
    return Graph(program, roles, leaves=leaves if known else None)


def _add_parameters(roles: Roles, marked: Sequence[str]) -> Roles:
    """Return the roles with `marked` added to the parameters."""
    given = roles.get("params", ())
    params = [*marked, *([given] if isinstance(given, str) else given)]
    return {**roles, "params": params} if params else roles


def intermediate_grads(fun: Callable[..., Any] | Program) -> Callable[..., dict[str, Any]]:
    """Return the function that finds the gradients of `fun`, a real scalar, in its arguments and all intermediates.

    One backward pass finds all. The result is by name, in the order of the forward pass; integers have no gradient and
    are left out, and values that the output does not depend on get zeros. Raises `ArgumentError` if the output is not a
    real scalar.

    >>> import fxgrad
    >>> def f(x, y, w):
    ...     total = x + y
    ...     return total * w
    >>> {name: float(slope) for name, slope in fxgrad.intermediate_grads(f)(2.0, 3.0, 4.0).items()}
    {'x': 4.0, 'y': 4.0, 'w': 5.0, 'total': 4.0, 'a': 1.0}
    """
    @transformation("intermediate_grads", fun)
    @hide_frames
    def gradients(*args: Any, **kwargs: Any) -> dict[str, Any]:
        made = Graph(fun).with_values(*args) if isinstance(fun, Program) else graph(fun)(*args, **kwargs)
        made.run().gradients()
        return {node.name: node.grad for node in made.nodes if has_tangent(node.aval) and not node.is_number}
    return gradients
