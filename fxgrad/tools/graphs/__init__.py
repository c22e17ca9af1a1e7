"""The computational graph of a program: its nodes, edges and paths, and their values."""

from __future__ import annotations

from fxgrad.tools.graphs.explanation import Explanation, explain_backward, gradients_on_nodes, short
from fxgrad.tools.graphs.graph import Graph, graph
from fxgrad.tools.graphs.nodes import Edge, Node, Operation, Subgraph
from fxgrad.tools.graphs.paths import Path, PathCosts, path_costs, paths
from fxgrad.tools.graphs.proposals import Proposal, roles
from fxgrad.tools.graphs.roles import Param
from fxgrad.tools.graphs.viewers import (
    to_model_explorer,
    to_model_explorer_data,
    write_model_explorer,
    write_tensorboard,
)

__all__ = ["Edge", "Explanation", "Graph", "Node", "Operation", "Param", "Path", "PathCosts", "Proposal", "Subgraph",
           "explain_backward", "gradients_on_nodes", "graph", "path_costs", "paths", "roles", "short",
           "to_model_explorer", "to_model_explorer_data", "write_model_explorer", "write_tensorboard"]
