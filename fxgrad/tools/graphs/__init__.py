"""The computational graph of a program: its nodes, edges and paths, and their values."""

from __future__ import annotations

from fxgrad.tools.graphs.backward import BackwardTable, short
from fxgrad.tools.graphs.graph import Graph, graph, intermediate_grads
from fxgrad.tools.graphs.nodes import Edge, Node, Operation, Subgraph
from fxgrad.tools.graphs.paths import Path, PathCosts
from fxgrad.tools.graphs.proposals import Proposal, infer_roles
from fxgrad.tools.graphs.roles import Param
from fxgrad.tools.graphs.viewers import (
    to_model_explorer,
    to_model_explorer_data,
    write_model_explorer,
    write_tensorboard,
)

__all__ = ["BackwardTable", "Edge", "Graph", "Node", "Operation", "Param", "Path", "PathCosts", "Proposal", "Subgraph",
           "graph", "infer_roles", "intermediate_grads", "short", "to_model_explorer", "to_model_explorer_data",
           "write_model_explorer", "write_tensorboard"]
