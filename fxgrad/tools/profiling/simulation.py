"""`simulate`: the time of a step on a mesh of devices, and the memory of each, from stated speeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from fxgrad.errors import ArgumentError
from fxgrad.extend import (
    Program,
    Variable,
    at_user_line,
    hide_frames,
    primitives,
    time_text,
    trace_program,
    transformation,
)
from fxgrad.extend.analyses import CollectiveKind, Transfer, total_cost, traffic
from fxgrad.extend.parameters import MeshShape
from fxgrad.extend.sizes import require_numbers
from fxgrad.text.inlining import inline
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.tools.profiling.compiler_model import temporary_bytes


class NetworkLink(NamedTuple):
    """A connection of devices: its latency in seconds, and the bytes a second that each device sends."""

    latency: float
    bandwidth: float


class Machine(NamedTuple):
    """Devices in nodes of `per_node`, with links `inside` of a node and `between` nodes.

    `flops` are those a second that programs reach on one device, `memory` the bytes that it has.
    """

    flops: float
    memory: float
    per_node: int
    inside: NetworkLink
    between: NetworkLink


H100 = Machine(flops=400e12, memory=80e9, per_node=8, inside=NetworkLink(2e-6, 450e9), between=NetworkLink(5e-6, 50e9))
"""Nodes of eight H100. By the data sheet, 989e12 bfloat16 operations a second, of which large models reach about 40 %;
NVLink with 450e9 bytes a second each way; a network card of 400 Gbit/s for each device. Latencies are typical.
"""


class Exchange(NamedTuple):
    """Collectives of one kind, the link that bounds them, and the seconds that they take."""

    transfer: Transfer
    link: str
    seconds: float


class Simulation(Report):
    """The time and the memory of a step on one device; prints as a table.

    `compute` and `communication` are seconds; `time` is their sum, as if nothing overlapped, and `overlapped` the
    greater of them, as if everything did. `memory` is bytes: `arguments`, `results`, and `temporaries` during the run.
    """

    def __init__(self, title: str, mesh: MeshShape, machine: Machine, flops: int, exchanges: Sequence[Exchange],
                 arguments: int, results: int, temporaries: int) -> None:
        self.title, self.mesh, self.machine, self.flops, self.exchanges = title, mesh, machine, flops, tuple(exchanges)
        self.arguments, self.results, self.temporaries = arguments, results, temporaries
        self.devices = math.prod(mesh.sizes)
        self.compute = flops / machine.flops
        self.communication = sum(each.seconds for each in exchanges)
        self.time, self.overlapped = self.compute + self.communication, max(self.compute, self.communication)
        self.memory = arguments + results + temporaries
        self.fits = self.memory <= machine.memory

    @property
    def wire(self) -> dict[str, float]:
        """The seconds of the collectives by mesh axis."""
        found: dict[str, float] = {}
        for each in self.exchanges:
            found[each.transfer.axis] = found.get(each.transfer.axis, 0.0) + each.seconds
        return found

    def table(self) -> Table:
        """Return the table for rich."""
        made = new_table(f"{self.title} on {self.mesh}", {"": "left", "how often": "right", "bytes sent": "right",
                                                          "link": "left", "time": "right"})
        add_row(made, ["compute", "", "", f"{self.flops:.3g} flops", time_text(self.compute)])
        for transfer, link, seconds in self.exchanges:
            add_row(made, [f"{transfer.kind} over {transfer.axis}", f"{transfer.times:,}", f"{transfer.sent:,}", link,
                           time_text(seconds)])
        made.add_section()
        add_row(made, ["time", "", "", "nothing overlaps", time_text(self.time)], style="bold")
        add_row(made, ["", "", "", "all overlaps", time_text(self.overlapped)])
        add_row(made, ["memory", "", f"{self.memory:,}", "" if self.fits else "more than there is", ""], style="bold")
        return made

    def __repr__(self) -> str:
        return f"<simulation of {self.title} on {self.devices} devices: {time_text(self.time)}, {self.memory:,} bytes>"


def simulate(fun: Callable[..., Any], *, machine: Machine = H100) -> Callable[..., Simulation]:
    """Return the function that estimates a step of `fun`, which calls `shard_map`, on the devices of its mesh.

    Nothing runs, and only shapes and dtypes of the arguments matter: `jax.sharding.AbstractMesh` replaces absent
    devices, `fxgrad.ShapeDtypeStruct` arrays. The model is that of Hockney (1994): a message of b bytes takes `latency
    + b / bandwidth` seconds. A collective sends the bytes of `fxgrad.traffic`, in 2 log n rounds for an all-reduce, log
    n for a gather or a scatter, n - 1 for an all-to-all and one for a permutation. It uses the link inside of a node if
    all its devices are in one, else the link between nodes; a node is a run of `per_node` devices of the mesh, row by
    row. Work is the flops of `fxgrad.cost_analysis` at the speed of the machine, masked steps of pipelines included;
    memory is that of one device in the model of XLA that `fxgrad.memory_analysis` has. The model ignores kernels,
    memory bandwidth and stragglers.

    Raises `ArgumentError` if no `shard_map` is called.

    >>> import jax, numpy as np, fxgrad
    >>> from jax.sharding import AbstractMesh, PartitionSpec as P
    >>> mesh = AbstractMesh((512,), ("data",))
    >>> mean = fxgrad.shard_map(lambda x: fxgrad.lax.pmean(np.sum(x), "data"), mesh=mesh, in_specs=P("data"),
    ...                         out_specs=P())
    >>> found = fxgrad.simulate(mean)(fxgrad.ShapeDtypeStruct((512, 1000), np.float32))
    >>> found.devices, found.arguments, [each.transfer.kind for each in found.exchanges]
    (512, 4000, ['all-reduce'])
    """
    @transformation("simulate", fun)
    @hide_frames
    def simulated(*args: Any, **kwargs: Any) -> Simulation:
        program = fun if isinstance(fun, Program) else trace_program("simulate", fun, args, kwargs)
        signature = program.signature
        title = "a program" if signature is None else signature.title or signature.name
        return simulation_of_program(require_numbers("simulate", program), machine, title)
    return simulated


def simulation_of_program(program: Program, machine: Machine, title: str) -> Simulation:
    """Return the simulation of a program; see `simulate`."""
    opened = inline(program, calls="*")
    sharded = [equation for equation in opened.equations if equation.primitive is primitives.shard_map]
    if not sharded:
        raise ArgumentError(at_user_line(
            f"simulate: {title} calls no shard_map, so that there is no mesh. Write the step with "
            "fxgrad.shard_map(f, mesh=jax.sharding.AbstractMesh((8,), ('data',)), in_specs=..., out_specs=...)"))
    mesh: MeshShape = sharded[0].params["mesh"]
    pieces = _device_shares(opened)
    flops = 0.0
    for equation in opened.equations:
        if equation.primitive is primitives.shard_map:
            flops += total_cost(equation.regions[0].program).flops
        else:
            flops += equation.cost.flops * max((pieces[var] for var in equation.outputs), default=1.0)
    exchanges = [_estimate_exchange(each, mesh, machine) for each in traffic(opened)]

    def bytes_of(var: Variable) -> int:
        return round(var.aval.nbytes * pieces.get(var, 1.0))  # inside a shard_map a value is a shard already
    arguments = sum(bytes_of(var) for var in opened.inputs)
    results = sum(bytes_of(var) for var in {var for var in opened.outputs if isinstance(var,
                                                                                        Variable)} - {*opened.inputs})
    return Simulation(title, mesh, machine, round(flops), exchanges, arguments, results,
                      temporary_bytes(opened, bytes_of))


def _device_shares(program: Program) -> dict[Variable, float]:
    """Return the fraction of each value of a program that one device holds.

    It is known for operands and results of `shard_map`. Values computed from them, or with them, in an array of the
    same shape, are sharded alike; all others are replicated.
    """
    pieces: dict[Variable, float] = {}
    outside = []
    for equation in program.equations:
        if equation.primitive is not primitives.shard_map:
            outside.append({atom for atom in (*equation.inputs, *equation.outputs) if isinstance(atom, Variable)})
            continue
        body = equation.regions[0].program
        for atom, aval in zip((*equation.inputs, *equation.outputs), body.in_avals + body.out_avals, strict=True):
            if isinstance(atom, Variable) and atom.aval.size:
                pieces[atom] = aval.size / atom.aval.size
    before = -1
    while len(pieces) > before:
        before = len(pieces)
        for together in (*outside, *outside[::-1]):
            shares = {var.aval.shape: pieces[var] for var in together if var in pieces}
            pieces.update({var: shares[var.aval.shape] for var in together - pieces.keys() if var.aval.shape in shares})
    everything = {*program.inputs, *(var for equation in program.equations for var in equation.outputs)}
    return {**dict.fromkeys(everything, 1.0), **pieces}


def _estimate_exchange(transfer: Transfer, mesh: MeshShape, machine: Machine) -> Exchange:
    """Return how long collectives take, on the link that the slowest group of devices waits for."""
    # Whether all communicating devices are in one node; nodes are filled row by row.
    own = [mesh.names.index(name) for name in transfer.axes]
    others = [axis for axis in range(len(mesh.sizes)) if axis not in own]
    nodes = np.arange(math.prod(mesh.sizes)).reshape(mesh.sizes) // machine.per_node
    nodes = nodes.transpose(*others, *own).reshape(-1, mesh.size(transfer.axes))
    groups = transfer.groups or [(*range(nodes.shape[1]),)]
    is_inside = all(bool((nodes[:, group] == nodes[:, group[:1]]).all()) for group in groups)
    link = machine.inside if is_inside else machine.between
    once = num_rounds(transfer.kind, transfer.size) * link.latency + transfer.sent / transfer.times / link.bandwidth
    return Exchange(transfer, "inside" if is_inside else "between", transfer.times * once)


def num_rounds(kind: CollectiveKind, size: int) -> int:
    """Return how many messages follow one another in a collective among `size` devices.

    >>> [num_rounds(kind, 8) for kind in ("all-reduce", "all-gather", "all-to-all", "permute")]
    [6, 3, 7, 1]
    """
    levels = (size - 1).bit_length()
    return {"all-reduce": 2 * levels, "all-gather": levels, "reduce-scatter": levels, "all-to-all": size - 1,
            "permute": 1, "nothing": 0}[kind]
