"""Meshes of devices, and how arrays lie on them: the classes and functions of `jax.sharding` themselves.

`reshard`, `auto_axes` and `explicit_axes` are our own, which take traced arrays.

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

from fxgrad.engine.api.axis_types import auto_axes, explicit_axes, reshard
from fxgrad.engine.pytorch_names import module_getattr as _of_module

P = PartitionSpec

__all__ = ["AbstractMesh", "AxisType", "Mesh", "NamedSharding", "P", "PartitionSpec", "Sharding",
           "SingleDeviceSharding", "auto_axes", "explicit_axes", "get_abstract_mesh", "get_mesh", "reshard", "set_mesh",
           "use_abstract_mesh"]

ABSENT = {
    "AbstractDevice": "it stands for a device that is not there; programs ask for none",
    "ManualAxisType": "it belongs to types of jax's own",
    "make_single_device_sharding": "SingleDeviceSharding(device) is the same",
}
"""Names of jax.sharding that are not here, each with the reason."""
__getattr__ = _of_module(__name__, ABSENT)
