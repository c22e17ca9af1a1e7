"""Files for other viewers, loaded by the viewers' own packages."""

from __future__ import annotations

import dataclasses
import json
import sys
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import UnsupportedError
from fxgrad.tools.graphs.viewers import (
    to_model_explorer,
    to_model_explorer_data,
    write_model_explorer,
    write_tensorboard,
)


def model(w, x):
    with fxgrad.named_scope("encoder"):
        with fxgrad.named_scope("layer"):
            h = np.tanh(x @ w)
        y = fxgrad.cond(h[0] > 0, lambda h: h * 2, lambda h: -h, h)

    def step(c, v):
        return c + v, c * v

    total, parts = fxgrad.scan(step, np.float64(0.0), y)
    return total + fnp.sum(parts)


GRAPH = fxgrad.graph(model)(np.ones((3, 3)), np.arange(3.0))


def _loaded(kind: Any, data: Any) -> Any:
    """JSON as the dataclass `kind`, strictly: every name is a field, and containers are as annotated."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        assert set(data) <= set(hints), (kind, set(data) - set(hints))
        return kind(**{name: _loaded(hints[name], value) for name, value in data.items()})  # type: ignore[operator]
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is list:
        return [_loaded(arguments[0], each) for each in data]
    if typing.get_origin(kind) is dict:
        return {key: _loaded(arguments[1], value) for key, value in data.items()}
    return data


def test_model_explorer_loads_its_graph() -> None:
    builder = pytest.importorskip("model_explorer.graph_builder")
    made = json.loads(json.dumps(to_model_explorer(GRAPH)))
    graphs = [_loaded(builder.Graph, graph) for graph in made["graphs"]]
    main = graphs[0]
    assert len(main.nodes) == len(GRAPH.operations) + 2
    ids = {node.id for node in main.nodes}
    assert all(edge.sourceNodeId in ids for node in main.nodes for edge in node.incomingEdges)
    assert {node.namespace for node in main.nodes} >= {"", "encoder", "encoder/layer"}
    opened = [subgraph for node in main.nodes for subgraph in node.subgraphIds]
    assert len(opened) == 3  # two branches, one body
    assert set(opened) <= {graph.id for graph in graphs}


def test_model_explorer_loads_its_node_data() -> None:
    builder = pytest.importorskip("model_explorer.node_data_builder")
    made = to_model_explorer_data(GRAPH)
    assert set(made) == {"flops", "bytes", "gradient norm"}
    for data in made.values():
        loaded = builder.ModelNodeData({key: _loaded(builder.GraphNodeData, value) for key, value in data.items()})
        assert json.loads(loaded.to_json_string())["model"]["results"]
    flops = made["flops"]["model"]["results"]
    assert sum(each["value"] for each in flops.values()) == fxgrad.cost_analysis(GRAPH.program).flops


def test_files_of_model_explorer(tmp_path: Path) -> None:
    main, *overlays = write_model_explorer(GRAPH, tmp_path / "model.json")
    assert json.loads(main.read_text())["label"] == "model"
    assert [path.name for path in overlays] == ["model.flops.json", "model.bytes.json", "model.gradient-norm.json"]


@pytest.mark.slow
def test_tensorboard_reads_its_graph(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_tensorboard(GRAPH, tmp_path)
    read = EventAccumulator(str(tmp_path)).Reload().Graph()
    nodes = {node.name: node for node in read.node}
    assert {"w", "x", "encoder/layer/tanh", "scan/body_0/c"} <= set(nodes)
    assert list(nodes["encoder/layer/tanh"].input) == ["encoder/layer/dot_general"]
    assert nodes["scan/body_0/v"].input[0].startswith("encoder/cond")
    known = set(nodes)
    assert all(source.partition(":")[0] in known for node in read.node for source in node.input)


def test_tensorboard_reads_what_a_body_captures(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def looped(a, b, x):
        u, v = np.sin(a), np.cos(b)
        return fxgrad.scan(lambda c, e: (c * u + e * v, c * a), np.exp(x[0]), x)

    write_tensorboard(fxgrad.graph(looped)(1.0, 2.0, np.ones(3)), tmp_path)
    read = EventAccumulator(str(tmp_path)).Reload().Graph()
    entering = {node.name.rpartition("/")[2]: [*node.input] for node in read.node
                if node.name.startswith("scan/") and node.op == "Identity"}
    assert entering == {"u": ["sin"], "v": ["cos"], "a": ["a"], "c": ["exp"], "e": ["x"]}


def test_without_tensorboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(UnsupportedError) as caught:
        write_tensorboard(GRAPH, tmp_path)
    assert str(caught.value).split("\n")[0] == (
        "write_tensorboard needs the package tensorboard, which is not installed: pip install 'fxgrad[viewers]'. "
        "fxgrad.visualize and fxgrad.draw need nothing")
