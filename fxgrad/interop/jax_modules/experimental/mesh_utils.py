"""The functions of `jax.experimental.mesh_utils` themselves: the positions of devices on a mesh.

>>> import fxgrad
>>> create_device_mesh((1,), fxgrad.devices()[:1]).shape
(1,)
"""

from jax.experimental.mesh_utils import create_device_mesh, create_hybrid_device_mesh

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]
