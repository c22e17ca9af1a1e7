"""Samples of `fxgrad.engine.parallel.shardings`."""

from __future__ import annotations

from typing import Any

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.parallel.meshes import MeshShape
from fxgrad.engine.parallel.shardings import Placement, device_put_p, sharding_constraint_p
from tests.samples import Draw, Sample

MESH = MeshShape(("x", "y"), (2, 1), "0-1", "cpu")


def lying(*spec: Any, **more: Any) -> dict[str, Any]:
    return {"spec": spec, "mesh": MESH, "memory_kind": None, **more}


SAMPLES: dict[Primitive, list[Sample]] = {
    sharding_constraint_p: [
        Sample(Draw((2, 3)), params=lying(("x",), ())), Sample(Draw(()), params=lying()),
        Sample(Draw((0,)), params=lying(("x",))), Sample(Draw((1,), "float32"), params=lying(("y",))),
        Sample(Draw((3, 4), "complex128"), params=lying(None, ("x", "y"))),
        Sample(Draw((2, 3), "bool"), params=lying((), ())), Sample(Draw((4,), "int32"), params=lying(("x",))),
        Sample(Draw((4,), "bfloat16"), params=lying(None), slow=True),
    ],
    device_put_p: [
        Sample(Draw((2, 3)), params=lying(("x",), (), src=None)), Sample(Draw(()), params=lying(src=None)),
        Sample(Draw((0,)), params=lying(("y",), src=None)), Sample(Draw((1,), "float32"), params=lying((), src=None)),
        Sample(Draw((3, 2)), params=lying((), ("x",), src=Placement(((), ("y",)), MESH))),
        Sample(Draw((4,), "int32"), params=lying(("x",), src=None)),
        Sample(Draw((4,), "complex64"), params=lying(None, src=None), slow=True),
    ],
}
