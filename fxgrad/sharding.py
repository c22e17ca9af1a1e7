"""Meshes of devices, and how arrays lie on them: the classes and functions of `jax.sharding` themselves.

What jax has and this module has not, and why, says `ABSENT`.

>>> import fxgrad
>>> mesh = fxgrad.make_mesh((1,), ("data",))
>>> NamedSharding(mesh, PartitionSpec("data")).is_fully_replicated
True
"""

from jax.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    get_abstract_mesh,
    get_mesh,
    set_mesh,
    use_abstract_mesh,
)

P = PartitionSpec

__all__ = ["AbstractMesh", "AxisType", "Mesh", "NamedSharding", "P", "PartitionSpec", "Sharding",
           "SingleDeviceSharding", "get_abstract_mesh", "get_mesh", "set_mesh", "use_abstract_mesh"]

_TYPES = "types of programs do not say how arrays lie; XLA places what lies between inputs and outputs"
ABSENT = {
    "AbstractDevice": "it stands for a device that is not there; programs ask for none",
    "ManualAxisType": "it belongs to types of jax's own",
    "auto_axes": _TYPES,
    "explicit_axes": _TYPES,
    "make_single_device_sharding": "SingleDeviceSharding(device) is the same",
    "reshard": _TYPES + "; with_sharding_constraint says where a value is to lie",
}
"""Names of jax.sharding that are not here, each with the reason."""
