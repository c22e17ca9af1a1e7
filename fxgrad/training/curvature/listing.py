"""`layers`: which parameters of a loss are the weights of layers, of which kind, and where."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

from rich.table import Table

from fxgrad import eval_shape, vmap
from fxgrad.extend import Aval, function_name, hide_frames, transformation
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.training.curvature.kronecker import find_placements
from fxgrad.training.curvature.norms import reason_for_gradient
from fxgrad.training.curvature.passes import ExampleLoss, require_batch, trace_loss

__all__ = ["LayerEntry", "Layers", "layers"]


class LayerEntry(NamedTuple):
    """A parameter: its name and type, and the kinds, lines and numbers of positions of the layers that it belongs to.

    `reason` says why `per_example_norms` computes the gradients of examples for it, "" if it does not;
    `without_factors` why `kfac_factors` has None for it, "" if it has factors.
    """

    name: str
    aval: Aval
    kinds: tuple[str, ...]
    lines: tuple[str, ...]
    positions: tuple[int, ...]
    reason: str
    without_factors: str


class Layers(Report):
    """The parameters of a loss in their order; it prints as a table."""

    def __init__(self, name: str, entries: tuple[LayerEntry, ...]) -> None:
        self.name, self.entries = name, entries

    def __getitem__(self, name: str) -> LayerEntry:
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(name)

    def table(self) -> Table:
        """Return the table for rich."""
        columns = {"parameter": "left", "type": "left", "layer": "left", "positions": "right", "line": "left",
                   "norms from": "left"}
        if any(entry.without_factors for entry in self.entries):
            columns["no factors, since"] = "left"
        made = new_table(f"layers of {self.name}", columns)
        for entry in self.entries:
            add_row(made, [
                entry.name, str(entry.aval.strong()), ", ".join(dict.fromkeys(entry.kinds)),
                _counts(entry.positions), ", ".join(dict.fromkeys(entry.lines)),
                f"gradients: {entry.reason}" if entry.reason else "the layer", entry.without_factors][:len(columns)])
        return made

    def __repr__(self) -> str:
        found = sum(bool(entry.kinds) for entry in self.entries)
        return f"<layers of {self.name}: {found} of {len(self.entries)} parameters>"


def _counts(positions: tuple[int, ...]) -> str:
    """Return the numbers of positions, with equal ones in a row counted: "24 x 64"."""
    return " + ".join(f"{times} x {number}" if (times := len([*same])) > 1 else str(number)
                      for number, same in groupby(positions))


def layers(loss: Callable[..., Any]) -> Callable[..., Layers]:
    """Return the function `(params, *batch) -> Layers` that lists the layers which a loss has its parameters in.

    Arguments are those of `per_example_norms(loss)`; types, `fxgrad.ShapeDtypeStruct`, will do. Nothing is computed.
    For each parameter, the table has the kind of layer, the number of positions at which an example uses it, the line,
    and whether norms come from the layer or, with the reason, from the gradients of examples; also the reason where
    `kfac_factors` has None.

    Raises the errors of `per_example_norms`.

    >>> import numpy as np, fxgrad
    >>> def loss(params, x):
    ...     return np.sum(np.tanh(x @ params["w"] + params["b"]))
    >>> found = fxgrad.curvature.layers(loss)({"b": np.zeros(4), "w": np.ones((3, 4))}, np.ones((10, 3)))
    >>> found
    <layers of loss: 2 of 2 parameters>
    >>> found["params.w"].kinds, found["params.b"].kinds
    (('dense',), ('bias',))
    """
    @transformation("layers", loss)
    @hide_frames
    def listed(params: Any, *batch: Any) -> Layers:
        require_batch("layers", batch)
        found: list[ExampleLoss] = []

        def of_example(params: Any, *example: Any) -> float:
            found.append(trace_loss("layers", loss, params, example))
            return 0.0

        eval_shape(vmap(of_example, in_axes=(None, *[0] * len(batch))), params, *batch)
        traced, (_, placements) = found[-1].find_layers(reason_for_gradient), find_placements(found[-1])
        return Layers(function_name(loss), tuple(
            LayerEntry(name, aval, tuple(use.layer.kind for use in own.uses for _ in range(use.entries)),
                       tuple(use.line for use in own.uses for _ in range(use.entries)) or (own.line,),
                       tuple(use.rows for use in own.uses for _ in range(use.entries)), reason_for_gradient(own),
                       placement if isinstance(placement, str) else "")
            for name, aval, own, placement in zip(traced.names, traced.avals, traced.uses, placements, strict=True)))
    return listed
