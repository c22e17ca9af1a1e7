"""`shard_map`: functions that every device of a mesh runs on its own pieces."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.core.avals import Aval, without_literals
from fxgrad.engine.executors.xla import is_jax_tracer
from fxgrad.engine.frontend.flat import argument_leaf_names, check_leaf, constant_name, trace_flat
from fxgrad.engine.ops.varying import pvary
from fxgrad.engine.parallel.layouts import Layout
from fxgrad.engine.parallel.meshes import MeshShape, Spec, mesh_shape, partition_of, refuse_partial, spec_axes, spec_of
from fxgrad.engine.parallel.shard_map import bind_shard_map
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import inner_mode, mesh_in_scope, takes_literals
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, ShapeError, TreeError

Specs = Any
"""A `PartitionSpec`, or a container of them that is a prefix of that of the arguments or results."""


def shard_map(f: Callable[..., Any] | None = None, /, *, out_specs: Specs, in_specs: Specs = None, mesh: Any = None,
              axis_names: Any = frozenset(), check_vma: bool = True) -> Any:
    """Return the function of whole arrays that runs `f` on every device of `mesh`, on its pieces; jax's `shard_map`.

    `in_specs` gives the pieces of the arguments: a `PartitionSpec`, which names for each axis of an array the mesh axes
    that shard it, or a container of them that is a prefix of that of the arguments. An array axis without a name is
    whole on every device. Along a mesh axis that a spec does not name, all devices have the same piece. None in a
    container is `P()`: all devices have the whole array. Without `in_specs` the arguments are sharded as they lie
    (`jax.Array`s with a `NamedSharding`; others are whole). `out_specs` gives in the same way how to assemble the
    results. In `f` the collectives of `fxgrad.lax` reduce over the axes of the mesh. `mesh` is jax's `Mesh`, or an
    `AbstractMesh`, whose devices are those of the arguments; the default is the mesh of `jax.set_mesh`. `axis_names`
    are the mesh axes that `f` is mapped over, all if it is empty; the others are left to the compiler.

    With NumPy arrays and without `jit`, NumPy computes all pieces at once, whatever devices there are. With
    `jax.Array`s, or under `jit`, XLA runs it on the devices.

    The mesh axes along which each value may vary are tracked. A result must be equal along the axes that its spec does
    not name; `psum` and `pmean` make it so. The gradient of a value that several devices share, taken inside or outside
    of `f`, is the sum over them. With `check_vma=False` nothing is tracked: results are assumed equal where their spec
    implies it, and gradients taken inside of `f` are those of each device alone.

    Raises `ArgumentError` for specs that fit neither mesh nor rank and for results that vary along an axis where they
    must be equal, and `ShapeError` for sizes that the mesh does not divide.

    >>> import numpy as np, fxgrad
    >>> from jax.sharding import AbstractMesh, PartitionSpec as P
    >>> mesh = AbstractMesh((4,), ("data",))
    >>> def loss(w, x):
    ...     return fxgrad.lax.pmean(np.mean((x * w) ** 2), "data")
    >>> sharded = fxgrad.shard_map(loss, mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
    >>> x = np.arange(8.0)
    >>> float(sharded(2.0, x)), float(fxgrad.grad(sharded)(2.0, x))
    (70.0, 70.0)
    """
    if f is None:
        return functools.partial(shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names,
                                 check_vma=check_vma)
    fun, name = f, function_name(f)

    @transformation("shard_map", fun)
    @hide_frames
    def sharded(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise ArgumentError(at_user_line(
                f"shard_map: {name} was called with the keyword arguments {', '.join(kwargs)}, for which in_specs has "
                "no place. Pass all arguments by position"))
        shape = _require_mesh(mesh)
        manual = _manual_axes(shape, axis_names)
        call = _ShardedCall(fun, args, in_specs, shape, manual)
        layout = Layout(shape, tuple(call.specs), (), manual, check_vma)
        results = _Results(name, out_specs, layout, call)
        traced = trace_flat(results.of, [layout.piece(aval, spec) for aval, spec in
                                         zip(call.avals, call.specs, strict=True)],
                            "shard_map", fun, mode=inner_mode(takes_literals()), names=lambda: call.names,
                            axes=layout.axes, mesh=layout.mesh_axes)
        layout = layout._replace(out_specs=tuple(results.specs))
        layout.check(traced.program, traced.captured)
        outputs = bind_shard_map(traced.program, traced.captured, call.leaves, layout)
        return tree.unflatten(traced.out_tree, without_literals(outputs))
    return sharded


def _require_mesh(mesh: Any) -> MeshShape:
    """Return the given mesh, or the one around the call."""
    if mesh is None:
        around = mesh_in_scope()
        if around is not None:
            return around.shape  # type: ignore[no-any-return]
        try:
            mesh = jax.sharding.get_mesh()
        except ValueError:  # jax is tracing (`jit(f).trace`), and hides the devices then
            mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty:
            mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty:
            raise ArgumentError(at_user_line(
                "shard_map: there is no mesh. Pass mesh=fxgrad.make_mesh((n,), ('data',)), or call it within "
                "`with jax.set_mesh(mesh):`"))
    return mesh_shape("shard_map", mesh)


def _manual_axes(shape: MeshShape, axis_names: Any) -> tuple[str, ...]:
    given = {axis_names} if isinstance(axis_names, str) else set(axis_names)
    unknown = sorted(map(str, given.difference(shape.names)))
    if unknown:
        raise ArgumentError(at_user_line(
            f"shard_map: axis_names has {', '.join(map(repr, unknown))}, which the mesh ({shape}) has not"))
    around = mesh_in_scope()
    taken = frozenset() if around is None else around.names
    twice = sorted(taken & given) if given else sorted(taken.intersection(shape.names))
    if twice and (given or taken.issuperset(shape.names)):
        raise ArgumentError(at_user_line(
            f"shard_map: the code is mapped over {', '.join(map(repr, twice))} already, by a shard_map around it. Map "
            "over other axes of the mesh (axis_names)"))
    return tuple(name for name in shape.names if (name in given if given else name not in taken))


# --- arguments --------------------------------------------------------------------------------------------------


class _ShardedCall:
    """One call: the leaves of the arguments, with names and specs, checked."""

    def __init__(self, fun: Any, args: tuple[Any, ...], in_specs: Specs, shape: MeshShape, manual: tuple[str, ...],
                 ) -> None:
        self._fun = fun
        self.leaves, self._structure = tree.flatten(args)
        self.names = argument_leaf_names(fun, args, kwargs={})()
        self.avals = [check_leaf(leaf, "shard_map", constant_name(name)) for leaf, name in
                      zip(self.leaves, self.names, strict=True)]
        if in_specs is None:
            partitions = [_require_partition(leaf, name, function_name(fun))
                          for leaf, name in zip(self.leaves, self.names, strict=True)]
        else:
            in_specs = tuple(in_specs) if isinstance(in_specs, list) else in_specs
            if isinstance(in_specs, tuple) and not isinstance(in_specs, PartitionSpec) and len(in_specs) != len(args):
                raise ArgumentError(at_user_line(
                    f"shard_map: in_specs has {len(in_specs)} entries, and {function_name(fun)} was called with "
                    f"{len(args)} arguments; one spec for each is needed, or one for all"))
            partitions = [partition_of(()) if partition is None else partition
                          for partition in _broadcast_specs("in_specs", in_specs, args, PartitionSpec | None)]
        self.specs = [_check_spec("in_specs", partition, aval, f"the argument {name}", shape, manual)
                      for partition, aval, name in zip(partitions, self.avals, self.names, strict=True)]
        for aval, spec, name in zip(self.avals, self.specs, self.names, strict=True):
            _check_divides(aval, spec, name, shape)

    def arguments(self, tracers: Sequence[Any]) -> Any:
        """Return the arguments of the function, with tracers in place of leaves."""
        return tree.unflatten(self._structure, tracers)

    def run(self, tracers: Sequence[Any]) -> Any:
        """Call the function with these tracers and return its output."""
        return self._fun(*self.arguments(tracers))

    def arguments_cut_along(self, names: Sequence[str]) -> list[str]:
        """Return the names of the arguments that are sharded along any of `names`."""
        return [name for name, spec in zip(self.names, self.specs, strict=True)
                if not set(names).isdisjoint(spec_axes(spec))]


def _require_partition(leaf: Any, name: str, function: str) -> Any:
    """Return the partition of an array; raise `ArgumentError` for a traced one, whose placement is unknown."""
    if type(leaf) is Tracer or is_jax_tracer(leaf):
        raise ArgumentError(at_user_line(
            f"shard_map: in_specs was left out, and the argument {name} of {function} is traced here, so its "
            "sharding is unknown. Pass in_specs, a PartitionSpec for each argument"))
    sharding = getattr(leaf, "sharding", None) if isinstance(leaf, jax.Array) else None
    return sharding.spec if isinstance(sharding, NamedSharding) else partition_of(())


def _is_partition(value: Any) -> bool:
    return value is None or isinstance(value, PartitionSpec)


def _broadcast_specs(argument: str, specs: Specs, container: Any, kinds: Any = PartitionSpec) -> list[Any]:
    """Return the spec of every leaf of a container, from specs that are a prefix of it."""
    try:
        spread = jax.tree_util.tree_map(lambda spec, part: [spec] * len(jax.tree_util.tree_leaves(part)), specs,
                                        container, is_leaf=_is_partition)
    except (ValueError, TypeError):
        raise TreeError(at_user_line(
            f"shard_map: {argument} has the structure {jax.tree_util.tree_structure(specs, is_leaf=_is_partition)}, "
            f"which is not a prefix of {jax.tree_util.tree_structure(container)}. Write one PartitionSpec for all, or "
            "a container of the same structure")) from None
    found = jax.tree_util.tree_leaves(spread, is_leaf=_is_partition)
    for leaf in found:
        if not isinstance(leaf, kinds):
            raise ArgumentError(at_user_line(
                f"shard_map: {argument} holds {leaf!r}, where a PartitionSpec is needed, such as P('data'), or P() "
                "for an array that all devices hold whole"))
    return found


def _check_spec(argument: str, partition: Any, aval: Aval, what: str, shape: MeshShape,
                manual: Sequence[str]) -> Spec:
    """Return the names in a spec; raise `ArgumentError` unless it fits the rank of the array and the mesh."""
    refuse_partial("shard_map", partition, what)
    said = f"shard_map: {argument} has {partition} for {what}"
    if len(partition) > aval.ndim:
        raise ArgumentError(at_user_line(
            f"{said}, which has {len(partition)} entries, and the array has the type {aval}; at most {aval.ndim} "
            "entries are needed, one for each axis"))
    if any(entry is PartitionSpec.UNCONSTRAINED for entry in partition):
        raise ArgumentError(at_user_line(f"{said}; an axis of a piece is cut or whole, not unconstrained"))
    spec = spec_of(partition, aval.ndim)
    names = spec_axes(spec)
    for name in names:
        if name not in shape.names:
            raise ArgumentError(at_user_line(
                f"{said}; the mesh ({shape}) has no axis {name!r}"))
        if name not in manual:
            raise ArgumentError(at_user_line(
                f"{said}; the function is not mapped over the mesh axis {name!r}. It is over "
                f"{', '.join(map(repr, manual))} (axis_names)"))
        if names.count(name) > 1:
            raise ArgumentError(at_user_line(
                f"{said}; it names the mesh axis {name!r} twice, and an axis cuts an array once"))
    return spec


def _check_divides(aval: Aval, spec: Spec, name: str, shape: MeshShape) -> None:
    for axis, (extent, names) in enumerate(zip(aval.shape, spec, strict=True)):
        count = shape.size(names)
        if count and extent % count:
            raise ShapeError(at_user_line(
                f"shard_map: axis {axis} of the argument {name}, of the type {aval}, is to be cut along the mesh axis "
                f"{' and '.join(map(repr, names))} into {count} equal pieces, and its size {extent} is not divisible "
                f"by {count}. Pad the array, or leave that axis whole"))


# --- results ----------------------------------------------------------------------------------------------------


class _Results:
    """The function's results on each device, converted as `out_specs` requires; `specs` are set during the call."""

    def __init__(self, name: str, out_specs: Specs, layout: Layout, call: _ShardedCall) -> None:
        self._name, self._out_specs, self._layout, self._call = name, out_specs, layout, call
        self.specs: list[Spec] = []

    def of(self, *tracers: Any) -> Any:
        """Return the results, in their container."""
        layout = self._layout
        if not layout.check_vma:
            tracers = tuple(pvary(tracer, layout.axis_names) for tracer in tracers)
        leaves, structure = tree.flatten(self._call.run(tracers))
        container = tree.unflatten(structure, leaves)
        names = tree.leaf_names(container, "output")
        avals = [check_leaf(leaf, "shard_map", constant_name(f"{name} of {self._name}")) for leaf, name in
                 zip(leaves, names, strict=True)]
        self.specs = [
            _check_spec("out_specs", partition, aval, f"{name} of {self._name}", layout.mesh, layout.axis_names)
            for partition, aval, name in zip(_broadcast_specs("out_specs", self._out_specs, container), avals, names,
                                             strict=True)]
        return tree.unflatten(structure, [self._check_result(leaf, spec, name) for leaf, spec, name in
                                          zip(leaves, self.specs, names, strict=True)])

    def _check_result(self, leaf: Any, spec: Spec, name: str) -> Any:
        named, manual = spec_axes(spec), self._layout.axis_names
        more = [each for each in manual if each in aval_of(leaf).vma and each not in named]
        if more and self._layout.check_vma:
            axes = " and ".join(map(repr, more))
            cut = self._call.arguments_cut_along(more)
            because = f" It depends on {', '.join(cut)}, cut along {axes}." if cut and type(leaf) is Tracer else ""
            raise ArgumentError(at_user_line(
                f"shard_map: by out_specs {name} of {self._name} is the same for all devices along the mesh axis "
                f"{axes}, and it may differ.{because} Make it equal, for example with fxgrad.lax.psum(..., "
                f"{more[0]!r}), or name {axes} in its spec"))
        return self._layout.brought_to(leaf, spec) if type(leaf) is Tracer else leaf
