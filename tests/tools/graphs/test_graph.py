"""The graph of a program: nodes and kinds, order, roles, paths, and numbers beside `grad` and finite differences."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import grad, graph, intermediate_grads, make_program
from fxgrad.errors import ArgumentError, DTypeError
from fxgrad.tools.graphs import Graph
from tests.support.random_programs import build, recipes, shapes

RNG = np.random.default_rng(0)


def product(x, y, w):
    z = (x + y) * w
    return z


def neuron(X, W, b):
    return fnp.exp(X @ W + b)


def branching(a, b):
    e = (a + b) * (b + 1)
    return e


def perceptron(W1, b1, W2, b2, x, y):
    h = fnp.maximum(x @ W1 + b1, 0)
    o = h @ W2 + b2
    L = fnp.mean(fnp.square(o - y))
    return L


LAYERS = [RNG.normal(size=size) for size in [(3, 4), 4, (4, 2), 2, (5, 3), (5, 2)]]


def _arguments(shape: Any) -> list[Any]:
    return [*np.random.default_rng(1).normal(size=(2, *shape))]


def test_row_g1_edges_are_dependencies_and_parameters_are_leaves() -> None:
    made = graph(perceptron, argnums=(0, 1, 2, 3))(*LAYERS)
    assert made.is_acyclic()
    assert [node.name for node in made.nodes if node.role == "parameter"] == ["W1", "b1", "W2", "b2"]
    assert all(node.kind == "leaf" and not node.inputs for node in made.nodes if node.role == "parameter")
    pairs = {(edge.source.name, edge.operation.name) for edge in made.edges}
    assert pairs >= {("W1", "dot_general_1"), ("h", "dot_general_2")}
    assert type(made.edges[0])._fields == ("source", "target", "operation", "position")  # no weights


@given(recipes(), shapes)
def test_row_g1_and_g3_hold_for_any_program(steps: Any, shape: Any) -> None:
    made = graph(build(steps, fnp))(*_arguments(shape))
    assert made.is_acyclic()
    order = {node: place for place, node in enumerate(made.toposort())}
    backwards = {node: place for place, node in enumerate(made.toposort(reverse=True))}
    assert all(order[edge.source] < order[edge.target] for edge in made.edges)
    assert all(backwards[edge.target] < backwards[edge.source] for edge in made.edges)


def test_row_g2_kinds() -> None:
    made = graph(perceptron)(*LAYERS)
    kinds = {node.text: node.kind for node in made.nodes}
    assert kinds["W1"] == kinds["x"] == kinds["0.0"] == "leaf"
    assert kinds["h"] == kinds["o"] == kinds["x @ W1"] == "internal"
    assert [node.name for node in made.roots] == ["L"]
    assert all(not node.inputs for node in made.nodes if node.kind == "leaf")


def test_row_g3_the_backward_part_is_a_reverse_order() -> None:
    made = graph(grad(perceptron, argnums=(0, 1, 2, 3)))(*LAYERS)
    linked = [(node, node.gradient_of) for node in made.nodes if node.role == "gradient" and node.gradient_of]
    assert {node.name: of.name for node, of in linked if of.is_named} == {
        "d_o": "o", "d_h": "h", "d_W1": "W1", "d_b1": "b1", "d_W2": "W2", "d_b2": "b2"}
    places = [of.index for _, of in linked if of.kind != "leaf"]
    assert places == sorted(places, reverse=True)
    assert len(places) >= 3


def test_row_g4_upstream_times_local_is_downstream() -> None:
    explanation = graph(perceptron)(*LAYERS).backward_table()
    sums: dict[str, Any] = {}
    for step in explanation.steps:
        assert np.allclose(np.tensordot(step.upstream, step.local, np.ndim(step.upstream)), step.downstream)
        sums[step.edge.source.name] = sums.get(step.edge.source.name, 0) + step.downstream
    for name, slope in zip(("W1", "b1", "W2", "b2"), grad(perceptron, argnums=(0, 1, 2, 3))(*LAYERS), strict=True):
        np.testing.assert_allclose(sums[name], slope, rtol=1e-12)


def test_the_table_of_the_backward_pass() -> None:
    assert str(graph(product)(2.0, 3.0, 4.0).backward_table()).splitlines()[4:-1] == [
        "│ z = a * w │ a       │ d_z = 1  │ 4  (d_z * w)     │ 4          │",
        "│           │ w       │ d_z = 1  │ 5  (a * d_z)     │ 5          │",
        "│ a = x + y │ x       │ d_a = 4  │ 1  (d_a)         │ 4          │",
        "│           │ y       │ d_a = 4  │ 1  (d_a)         │ 4          │"]


def test_fan_outs_have_a_sum_in_the_table() -> None:
    assert "│ sum of 2         │ = 5" in str(graph(branching)(2.0, 1.0).backward_table())


def test_operations_of_several_outputs_are_explained_output_by_output() -> None:
    def loop(w, xs):
        def step(c, x):
            c = fnp.tanh(c * w + x)
            return c, c
        c, ys = fxgrad.scan(step, 0.0, xs)
        return c * w + fnp.sum(ys)

    explanation = graph(loop)(0.5, np.arange(3.0)).backward_table()
    assert {step.edge.target.name for step in explanation.steps if step.edge.operation.op == "scan"} == {"c", "ys"}
    for step in explanation.steps:
        assert np.allclose(np.tensordot(step.upstream, step.local, np.ndim(step.upstream)), step.downstream)
    assert np.isclose(explanation.graph["w"].grad, grad(loop)(0.5, np.arange(3.0)))


def test_row_g6_three_leaves_and_three_operations() -> None:
    made = graph(neuron)(np.ones((2, 3)), np.ones((3, 1)), np.ones(1))
    assert [node.name for node in made.leaves] == ["X", "W", "b"]
    assert [operation.op for operation in made.operations] == ["dot_general", "add", "exp"]
    assert len(made.roots) == 1


def test_row_g8_local_rules() -> None:
    def total(X, W, b):
        y = fnp.exp(X @ W + b)
        return fnp.sum(y)

    rules = {(step.edge.operation.op, step.edge.source.text): step.rule
             for step in graph(total)(np.ones((2, 3)), np.ones((3, 1)), np.ones(1)).backward_table().steps}
    assert rules["exp", "a + b"] == "d_y * y"
    assert rules["add", "X @ W"] == "d_c"  # c is the sum
    assert rules["dot_general", "X"] == "d_a @ W.T"
    assert rules["dot_general", "W"] == "X.T @ d_a"


def test_row_g14_only_parameters_get_gradients() -> None:
    def loss(w: fxgrad.Param[Any], x, y):
        return fnp.sum((w["W"] @ x + w["b"] - y) ** 2)

    args = {"W": np.ones((2, 3)), "b": np.ones(2)}, np.ones(3), np.ones(2)
    by_name = [graph(loss, roles={"params": each})(*args) for each in ("w", "w.*", ["w.W", "w.b"])]
    for made in (graph(loss)(*args), *by_name):
        assert [node.name for node in made.inputs if node.role == "parameter"] == ["w.W", "w.b"]
        assert made.parameter_argnums == (0,)
    assert graph(loss, roles={"params": "w*", "labels": "y"})(*args)["y"].role == "label"
    before = [np.array(leaf) for leaf in fxgrad.tree.leaves(args)]
    gradients = grad(loss, argnums=made.parameter_argnums)(*args)
    assert fxgrad.tree.structure(gradients) == fxgrad.tree.structure((args[0],))
    assert all(np.array_equal(*pair) for pair in zip(before, fxgrad.tree.leaves(args), strict=True))


def test_row_g15_which_leaf_is_a_label() -> None:
    def regression(w1, w2, b, x1, x2, y):
        prediction = w1 * x1 + w2 * x2 + b
        return (prediction - y) ** 2

    found = fxgrad.infer_roles(make_program(regression)(*[1.0] * 6))
    assert (found.labels, found.biases, found.pairs) == (("y",), ("b",), (("w1", "x1"), ("w2", "x2")))
    assert "a label" in str(found)


def test_row_g17_what_a_node_knows() -> None:
    made = graph(perceptron)(*LAYERS)
    h = made["h"]
    assert (h.op, [node.text for node in h.inputs], h.shape, h.dtype, h.device) == (
        "max", ["a + b1", "0.0"], (5, 4), np.dtype("float64"), "cpu")
    W1, b1, *_, x, _ = LAYERS
    np.testing.assert_array_equal(h.value, np.maximum(x @ W1 + b1, 0))
    assert h.grad.shape == (5, 4)
    assert callable(h.vjp)
    assert made["L"].inputs[0].saved
    assert [node.name for node in made.nodes if node.is_saved] == ["W1", "W2", "x", "h"]


def test_row_g18_a_producer_has_the_local_pullback() -> None:
    made = graph(perceptron)(*LAYERS)
    producer = made["o"].inputs[0].producer
    assert producer is not None
    cotangent = RNG.normal(size=(5, 2))
    left, right = producer.vjp(cotangent)
    np.testing.assert_array_equal(left, cotangent @ LAYERS[2].T)
    np.testing.assert_array_equal(right, made["h"].value.T @ cotangent)


def test_row_g19_gradients_live_on_values() -> None:
    slopes = intermediate_grads(perceptron)(*LAYERS)
    assert {"W1", "b1", "W2", "b2", "x", "y", "h", "o", "L"} <= set(slopes)
    W2, b2, y = LAYERS[2], LAYERS[3], LAYERS[5]
    hidden = np.asarray(graph(perceptron)(*LAYERS)["h"].value)
    for place in ((0, 0), (4, 3)):
        def at(step, place=place):
            moved = np.array(hidden)
            moved[place] += step
            return np.mean((moved @ W2 + b2 - y) ** 2)
        assert np.isclose((at(1e-6) - at(-1e-6)) / 2e-6, slopes["h"][place], rtol=1e-6)


@pytest.mark.slow
@settings(max_examples=20)
@given(recipes(), shapes)
def test_gradients_on_nodes_are_those_of_grad(steps: Any, shape: Any) -> None:
    function, args = build(steps, fnp), _arguments(shape)
    made = graph(function)(*args)
    for node, slope in zip(made.inputs, grad(function, argnums=(0, 1))(*args), strict=True):
        np.testing.assert_allclose(node.grad, slope, rtol=1e-12, atol=1e-12)


# --- worked examples --------------------------------------------------------------------------------------------


def test_row_w1() -> None:
    made = graph(lambda x, y: (x + y) * np.sin(x))(0.7, 1.1)
    assert sorted(operation.op for operation in made.operations) == ["add", "mul", "sin"]
    assert np.isclose(made["x"].grad, np.sin(0.7) + 1.8 * np.cos(0.7))
    assert np.isclose(made["y"].grad, np.sin(0.7))


def test_row_w2() -> None:
    made = graph(lambda x, y: (x + y) * (x - y))(3.0, 2.0)
    assert ([node.name for node in made.leaves], [operation.op for operation in made.operations]) == (
        ["x", "y"], ["add", "sub", "mul"])
    assert (made["x"].grad, made["y"].grad) == (6.0, -4.0)


def test_row_w3() -> None:
    made = graph(product)(2.0, 3.0, 4.0)
    assert [made[name].value for name in ("z",)] == [20.0]
    assert [made[name].grad for name in "xyw"] == [4.0, 4.0, 5.0]


def test_row_w4_one_local_derivative_per_edge() -> None:
    def squared_error(w, x, b, y):
        u = w * x
        prediction = u + b
        error = prediction - y
        return error ** 2

    made = graph(squared_error)(2.0, 3.0, 0.5, 5.0)
    way, = made.paths("w", made.root)
    assert [float(edge.derivative) for edge in way.edges] == [3.0, 1.0, 1.0, 3.0]
    assert float(way.product) == float(made["w"].grad) == grad(squared_error)(2.0, 3.0, 0.5, 5.0) == 9.0


def test_local_derivatives_of_empty_arrays() -> None:
    edges = graph(lambda x: fnp.sum(fnp.sin(x).T, axis=1))(np.zeros((0, 3))).edges
    assert sorted(np.shape(edge.derivative) for edge in edges) == sorted([
        (0, 3, 0, 3), (3, 0, 0, 3), (3, 3, 0)])


def test_row_w5_two_paths() -> None:
    made = Graph(make_program(branching)(2.0, 1.0))
    assert len(made.paths("b", "e")) == 2
    assert len(made.paths("a", "e")) == 1
    made = graph(branching)(2.0, 1.0)
    assert sum(path.product for path in made.paths("b", "e")) == made["b"].grad == 5.0


@pytest.mark.parametrize("function", [
    lambda x, y: fnp.sin(x * y) * (x + y * x), lambda x, y: x * x * x * y, lambda x, y: fnp.where(x < y, x * y, x / y),
    lambda x, y: fnp.exp(x) / (fnp.exp(x) + fnp.exp(y)), lambda x, y: fnp.tanh(x + fnp.tanh(x + fnp.tanh(x * y))),
])
def test_row_w6_sums_over_paths_are_gradients(function: Any) -> None:
    made = graph(function)(0.3, 0.8)
    for node, slope in zip(made.inputs, grad(function, argnums=(0, 1))(0.3, 0.8), strict=True):
        assert np.isclose(sum(path.product for path in made.paths(node, made.root)), slope, rtol=1e-12)


def test_row_w7_each_local_derivative_is_found_once() -> None:
    def squares(x):
        for _ in range(10):
            x = x * x
        return x

    made = graph(squares)(1.01)
    assert np.isclose(made["x"].grad, 1024 * 1.01 ** 1023)
    assert set(made.run().evaluations.values()) == {1}
    assert len(made.run().evaluations) == 10
    costs = made.path_costs("x", made.root)
    assert (costs.paths, costs.products_by_paths, costs.edges, costs.products_in_reverse) == (1024, 9216, 20, 18)
    few = graph(lambda x: (x * x) * (x * x + x))(1.5)
    ways = few.paths("x", few.root)
    costs = few.path_costs("x", few.root)
    assert costs.paths == len(ways)
    assert costs.products_by_paths == sum(len(path.edges) - 1 for path in ways)


def test_row_w12_one_path_through_the_perceptron() -> None:
    way, = Graph(make_program(perceptron)(*LAYERS)).paths("W1", "L")
    assert way.operations == ("dot_general_1", "add_1", "max", "dot_general_2", "add_2", "sub", "square", "mean")


def test_products_along_paths_of_arrays() -> None:
    made = graph(perceptron)(*LAYERS)
    for name in ("W1", "b2", "x"):
        np.testing.assert_allclose(sum(path.product for path in made.paths(name, "L")), made[name].grad, rtol=1e-12)


# --- what it is given -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [
    2.0, np.float32(2), np.ones(3), np.ones((0, 2)), np.ones(3, ml_dtypes.bfloat16), jnp.ones(3), jnp.float32(2.0)])
def test_any_floating_argument(x: Any) -> None:
    def f(x):
        return fnp.sum(fnp.sin(x) * x)

    made = graph(f)(x)
    expected = grad(f)(x)
    tolerance = 1e-2 if made["x"].dtype == ml_dtypes.bfloat16 else 1e-6
    np.testing.assert_allclose(np.asarray(made["x"].grad, float), np.asarray(expected, float), rtol=tolerance)
    assert np.asarray(made["x"].grad).dtype == np.asarray(expected).dtype


def test_integers_have_no_gradient_and_containers_have_paths() -> None:
    def f(params, index):
        return params["table"][index] * params["scale"][0]

    made = graph(f)({"table": np.arange(3.0), "scale": [2.0]}, 1)
    assert [node.name for node in made.inputs] == ["params.scale[0]", "params.table", "index"]
    np.testing.assert_array_equal(made["params.table"].grad, [0.0, 2.0, 0.0])
    assert "index" not in intermediate_grads(f)({"table": np.arange(3.0), "scale": [2.0]}, 1)
    with pytest.raises(DTypeError, match="index is i64\\*\\[\\], which has no gradient"):
        _ = made["index"].grad


def test_closed_over_arrays_are_constants() -> None:
    table = np.arange(3.0)
    made = graph(lambda x: fnp.sum(x * table))(np.ones(3))
    assert [(node.role, node.kind) for node in made.leaves] == [("input", "leaf"), ("constant", "leaf")]
    np.testing.assert_array_equal(made["x"].grad, table)


def test_regions_are_subgraphs() -> None:
    def f(x, n):
        return fxgrad.cond(x > 0, lambda x: fnp.sin(x) * n, lambda x: x - n, x)

    made = graph(f)(1.0, 2.0)
    operation, = [operation for operation in made.operations if operation.subgraphs]
    assert [subgraph.role for subgraph in operation.subgraphs] == ["branch", "branch"]
    inside = [[each.op for each in subgraph.graph.operations] for subgraph in operation.subgraphs]
    assert inside == [["sub"], ["sin", "mul"]]
    assert {node.name for node in operation.subgraphs[0].enters if node is not None} == {"x", "n"}


def test_order_levels_and_neighbourhoods() -> None:
    made = graph(branching)(2.0, 1.0)
    assert (made.depth, made.width) == (2, 2)
    assert [[node.text for node in level] for level in made.levels()] == [
        ["a", "b", "1.0"], ["a + b", "b + 1.0"], ["e"]]
    assert {node.name for node in made.descendants("a")} >= {"a", "e"}
    assert {node.name for node in made.ancestors(made["e"].inputs[0])} >= {"a", "b"}
    assert [node.name for node in made["b"].successors] == [node.name for node in made["e"].inputs]


def test_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    made = graph(branching)(2.0, 1.0)
    other = made.to_networkx()
    assert networkx.is_directed_acyclic_graph(other)
    assert other.number_of_edges() == len(made.edges)
    start, end = made["b"].index, made["e"].index
    assert len([*networkx.all_simple_paths(other, start, end)]) == len(made.paths("b", "e")) == 2


def test_a_graph_of_a_program_gets_values_later() -> None:
    made = graph(make_program(product)(1.0, 1.0, 1.0))
    assert not made.has_values
    assert made.with_values(2.0, 3.0, 4.0)["w"].grad == 5.0


def test_a_callback_has_no_pullback_and_keeps_nothing() -> None:
    def f(x):
        return fnp.sum(fxgrad.pure_callback(np.sin, fxgrad.ShapeDtypeStruct((2,), np.float64), x))

    made = graph(f)(np.ones(2))
    assert [(node.saved, node.is_saved) for node in made] == [((), False)] * 3
    np.testing.assert_allclose(made.root.value, 2 * np.sin(1.0), rtol=1e-12)


def test_numbers_have_the_dtypes_of_the_program() -> None:
    program = make_program(lambda x: x * x * 3)(np.float32(1))
    made = graph(program).with_values(0.1)
    assert [np.asarray(node.value).dtype for node in made] == [np.dtype("float32")] * len(made)
    assert made.root.value == program(0.1)


# --- mistakes ---------------------------------------------------------------------------------------------------

MISTAKES = {
    "no values": (lambda: graph(make_program(product)(1.0, 1.0, 1.0))["z"].value, ArgumentError,
                  ("<graph of product: 5 nodes, 4 edges, 2 operations> has no values: it was made of a program, or of "
                  "shapes alone. Write fxgrad.graph(f)(*arrays), or graph.with_values(*arrays)")),
    "unknown name": (lambda: graph(perceptron)(*LAYERS)["W3"], ArgumentError,
                     ("no node of <graph of perceptron: 15 nodes, 14 edges, 8 operations> is called 'W3'; there are "
                     "W1, b1, W2, b2, x, ...")),
    "another graph": (lambda: graph(product)(1.0, 1.0, 1.0)[graph(branching)(1.0, 2.0)["e"]], ArgumentError,
                      ("the node e is of another graph (<graph of branching: 6 nodes, 6 edges, 3 operations>); this is "
                      "<graph of product: 5 nodes, 4 edges, 2 operations>. Take it by its name, graph['e']")),
    "unknown role": (lambda: graph(product, roles={"weights": "w"})(1.0, 1.0, 1.0), ArgumentError,
                     ("infer_roles: there is no role 'weights'; a leaf is one of params, inputs, labels, constants. "
                      "Write "
                     "roles={'params': 'W*'}")),
    "no such leaf": (lambda: graph(product, roles={"params": "W*"})(1.0, 1.0, 1.0), ArgumentError,
                     ("infer_roles: no input of product is called 'W*'; its inputs are x, y, w")),
    "argnums": (lambda: graph(product, argnums=5)(1.0, 1.0, 1.0), ArgumentError,
                ("graph: argnums=5 of product, which was called with 3 arguments")),
    "not a scalar": (lambda: graph(lambda x: x * 2)(np.ones(3))["x"].grad, ArgumentError,
                     ("gradients need one real scalar output, and function returns a: f64[3]. Sum or average it")),
    "several outputs": (lambda: graph(lambda x: (x, x * 2))(1.0)["x"].grad, ArgumentError,
                        ("graph: function has 2 outputs, where one is needed; take one of graph.outputs")),
    "other shapes": (lambda: graph(make_program(neuron)(np.ones((2, 3)), np.ones((3, 1)), np.ones(1))).with_values(
        np.ones(2), 1.0, np.ones(1)), ArgumentError,
                     ("with_values: neuron takes X: f64[2,3], W: f64[3,1], b: f64[1]; got float64[2], a number, "
                     "float64[1]")),
    "too many paths": (lambda: graph(lambda x: ((x * x) * (x * x)))(1.0).paths("x", "b", most=3), ArgumentError,
                       ("paths: 4 paths lead from x to b, more than most=3. Count them with "
                        "graph.path_costs(start, end), or look at "
                       "graph.between(start, end)")),
    "too large": (lambda: graph(lambda x: fnp.sum(fnp.sin(x)))(np.ones(4000))["a"].edges[0].derivative, ArgumentError,
                  ("the local derivative of sin(x) in x has 16,000,000 numbers, shape (4000, 4000); use node.vjp, "
                  "which applies it without writing it out")),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes(case: str) -> None:
    call, kind, text = MISTAKES[case]
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text


