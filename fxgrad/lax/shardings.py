"""Sharding of values on meshes of devices within programs: `with_sharding_constraint`."""

from __future__ import annotations

from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.frontend.placing import shardings_of_leaves
from fxgrad.engine.frontend.strict import require_array
from fxgrad.engine.parallel.shardings import constrain
from fxgrad.engine.tracing.tape import aval_of

__all__ = ["with_sharding_constraint"]


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """Return the arrays of the container `x` unchanged, placed by XLA according to `shardings`.

    Those are one sharding of jax's, or a container of them that is a prefix of `x`; a `PartitionSpec` alone refers to
    the mesh of the `shard_map` around, or the one set by `jax.set_mesh`. Cotangents are sharded like the arrays; an
    axis that `vmap` adds is left to XLA, or is sharded along its `spmd_axis_name`. NumPy arrays are on no device, and
    are unchanged.

    Raises `ArgumentError` for invalid shardings, and axes that the mesh does not have; `ShapeError` for more entries
    than axes, and un-jitted for sizes that do not divide. Within a program XLA pads such pieces.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> from fxgrad.sharding import NamedSharding, PartitionSpec
    >>> rows = NamedSharding(fxgrad.make_mesh((1,), ("data",)), PartitionSpec("data", None))
    >>> fxgrad.jit(lambda x: with_sharding_constraint(x * 2, rows))(fnp.ones((2, 2))).sharding.is_equivalent_to(rows, 2)
    True
    """
    leaves, structure = tree.flatten(x)
    given = shardings_of_leaves("with_sharding_constraint", x, shardings)
    names = [name and f"x{name if name[0] == '[' else f'.{name}'}" for name in tree.leaf_names(x, "")]
    arrays = [require_array("with_sharding_constraint", leaf) for leaf in leaves]
    return tree.unflatten(structure, [
        constrain("with_sharding_constraint", array, sharding, aval_of(array).shape, name or "the array")
        for array, sharding, name in zip(arrays, given, names, strict=True)])
