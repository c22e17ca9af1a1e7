"""Records in the parameters of some operations, and functions of them.

`Windows` of `gather` and `scatter`, `Sliding` of reductions over windows, `Geometry` of convolutions, `ScanParameters`
of `scan`, `MeshShape` of `shard_map`.
"""

from fxgrad.engine.core.parameter_classes import parameter_classes
from fxgrad.engine.higher_order.scan import Loop as ScanParameters
from fxgrad.engine.higher_order.sweep import sweep_as_loops
from fxgrad.engine.ops.convolution import Geometry, dilated, geometry_of
from fxgrad.engine.ops.pool import Sliding, elements_of_windows, identity_of
from fxgrad.engine.ops.windows import Windows, default_fill, gather_numpy
from fxgrad.engine.parallel.meshes import MeshShape

__all__ = ["Geometry", "MeshShape", "ScanParameters", "Sliding", "Windows", "default_fill", "dilated",
           "elements_of_windows", "gather_numpy", "geometry_of", "identity_of", "parameter_classes",
           "sweep_as_loops"]
