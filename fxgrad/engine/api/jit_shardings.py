"""`in_shardings` and `out_shardings`: the placement of a jitted function's arguments and results on meshes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, Sharding

from fxgrad.engine import tree
from fxgrad.engine.api.executables import argument_avals
from fxgrad.engine.api.jitted_calls import JittedCall
from fxgrad.engine.api.static_arguments import StaticArguments
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.executors.xla import is_jax_tracer
from fxgrad.engine.frontend.flat import broadcast_prefix
from fxgrad.engine.parallel.shardings import constrain, placement_of, shardings_text
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError


class JitShardings:
    """The options of `jit(fun, in_shardings=, out_shardings=)`: each None, a sharding, or a prefix of a container.

    jax enforces them for calls outside of transformations. Inside, where a call is a part of a program, they are
    constraints on its inputs and outputs.
    """

    __slots__ = ("_inputs", "_name", "_outputs", "mesh")

    def __init__(self, fun: Callable[..., Any], in_shardings: Any, out_shardings: Any) -> None:
        self._name = function_name(fun)
        self._inputs, self._outputs = in_shardings, out_shardings
        for option, given in self.options().items():
            for sharding in tree.leaves(given):
                if not isinstance(sharding, Sharding | PartitionSpec):
                    raise ArgumentError(at_user_line(
                        f"jit: {option} of {self._name} has a {type(sharding).__name__} ({sharding!r}), where a "
                        "sharding is needed, such as NamedSharding(mesh, PartitionSpec('x', None)), or a PartitionSpec "
                        "within jax.set_mesh(mesh)"))
        self.mesh = next(self._explicit_meshes(), None)

    def __bool__(self) -> bool:
        return self._inputs is not None or self._outputs is not None

    def options(self) -> dict[str, Any]:
        """Return the given options, in the form of jax's own `jit`."""
        given = {"in_shardings": self._inputs, "out_shardings": self._outputs}
        return {name: value for name, value in given.items() if value is not None}

    def _explicit_meshes(self) -> Iterator[Any]:
        for sharding in tree.leaves((self._inputs, self._outputs)):
            if isinstance(sharding, NamedSharding) and AxisType.Explicit in sharding.mesh.axis_types:
                yield sharding.mesh

    def input_shardings(self, call: JittedCall, avals: Sequence[Aval]) -> list[Any]:
        """Return the sharding of each dynamic leaf, or None.

        Raises `ArgumentError` for keyword arguments, for a container that is no prefix of the arguments, and as
        `placement_of`.
        """
        if self._inputs is None:
            return [None] * len(avals)
        if call.split.kwargs:
            raise ArgumentError(at_user_line(
                f"jit: {self._name} was called with the keyword argument {next(iter(call.split.kwargs))}, and its "
                "in_shardings are those of positional arguments. Give all dynamic arguments by position"))
        inputs = tuple(self._inputs) if isinstance(self._inputs, list) else self._inputs
        found = broadcast_prefix(inputs, call.split.args)
        if found is None:
            raise ArgumentError(at_user_line(
                f"jit: in_shardings of {self._name} are {shardings_text(self._inputs)}, which is not a prefix of its "
                "positional "
                f"arguments {tree.structure(call.split.args)}. Write one sharding (or None) for all arguments, or a "
                "tuple with an entry for each that is not static: one sharding, or a container of its structure"))
        self._check(found, avals, call.leaf_names)
        return found

    def explain(self, call: JittedCall) -> None:
        """Raise `ArgumentError` for an array whose placement differs from the required one: jax never moves it."""
        avals = argument_avals(call.leaves)
        for place, sharding in enumerate([] if avals is None else self.input_shardings(call, avals)):
            leaf = call.leaves[place]
            if isinstance(sharding, NamedSharding) and isinstance(leaf, jax.Array) and not is_jax_tracer(leaf) and (
                    leaf.committed and not leaf.sharding.is_equivalent_to(sharding, leaf.ndim)):
                raise ArgumentError(at_user_line(
                    f"jit of {self._name}: {call.leaf_names()[place]} lies as {shardings_text(leaf.sharding)}, and "
                    "in_shardings "
                    f"say {shardings_text(sharding)}. Move it first: fxgrad.device_put({call.leaf_names()[place]}, "
                    "sharding)"))

    def output_shardings(self, out_tree: TreeDef, avals: Sequence[Aval]) -> list[Any]:
        """Return the sharding of each output, or None. Raises as `input_shardings`."""
        if self._outputs is None:
            return [None] * len(avals)
        example = tree.unflatten(out_tree, range(out_tree.num_leaves))
        found = broadcast_prefix(self._outputs, example)
        if found is None:
            raise ArgumentError(at_user_line(
                f"jit: out_shardings of {self._name} are {shardings_text(self._outputs)}, which is not a prefix of its "
                "output "
                f"{out_tree}. Write one sharding (or None) for the whole output, or a container of its structure"))
        self._check(found, avals, lambda: tree.leaf_names(example, "output"))
        return found

    def _check(self, shardings: Sequence[Any], avals: Sequence[Aval], names: Callable[[], Sequence[str]]) -> None:
        for place, (sharding, aval) in enumerate(zip(shardings, avals, strict=True)):
            if isinstance(sharding, NamedSharding | PartitionSpec):  # jax checks other kinds
                placement_of(f"jit of {self._name}", sharding, aval.shape, names()[place])

    def inputs_held(self, call: JittedCall, leaves: Sequence[Any]) -> Sequence[Any]:
        """Return the leaves of a call within a program, constrained to their shardings."""
        return self._leaf_shardings(self.input_shardings(call, [*map(aval_of, leaves)]), leaves)

    def outputs_held(self, outputs: Any) -> Any:
        """Return the outputs of a call within a program, constrained to their shardings."""
        leaves, structure = tree.flatten(outputs)
        if self._outputs is None:
            return outputs
        return tree.unflatten(structure,
                              self._leaf_shardings(self.output_shardings(structure, [*map(aval_of, leaves)]), leaves))

    def _leaf_shardings(self, shardings: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        return [leaf if sharding is None else constrain(f"jit of {self._name}", leaf, sharding, aval_of(leaf).shape)
                for sharding, leaf in zip(shardings, leaves, strict=True)]

    def jit_options(self, options: dict[str, Any], static: StaticArguments, call: JittedCall) -> dict[str, Any]:
        """Return options of `jax.jit` for a function of the captured values and the dynamic arguments of `call`."""
        given = {name: value for name, value in options.items() if not name.startswith("static_")}
        positions = static.positions(len(call.args))
        dynamic = [position for position in range(len(call.args)) if position not in positions]
        donated = options.get("donate_argnums")
        if donated is not None:
            count, donated = len(call.args), (donated,) if isinstance(donated, int) else donated
            given["donate_argnums"] = [1 + dynamic.index(place % count) for place in donated
                                       if place % count in dynamic]
        if self._inputs is not None:
            inputs = tuple(self._inputs) if isinstance(self._inputs, list | tuple) else (self._inputs,) * len(dynamic)
            given["in_shardings"] = None, *inputs
        return given
