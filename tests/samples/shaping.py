"""Samples of layout, joining and creation: fxgrad/engine/ops/{shape,join,creation}.py."""

from __future__ import annotations

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.dtypes import SUPPORTED
from fxgrad.engine.ops.creation import bitcast_convert_type_p, copy_p, iota_p, size_p
from fxgrad.engine.ops.joining import concatenate_p, split_p, stack_p, unstack_p
from fxgrad.engine.ops.shaping import broadcast_in_dim_p, pad_p, rev_p, slice_p, tile_p
from tests.samples import Draw, Sample

OTHERS = ("float32", "bfloat16", "float16", "complex64", "int32", "int64", "uint8", "bool")
"""Dtypes that every operation here takes, besides float64."""


def in_dim(shape: tuple[int, ...], result: tuple[int, ...], dims: tuple[int, ...], dtype: str = "float64",
           slow: bool = False) -> Sample:
    return Sample(Draw(shape, dtype), params={"shape": result, "broadcast_dimensions": dims}, slow=slow)


def sliced(shape: tuple[int, ...], starts: tuple[int, ...], limits: tuple[int, ...], strides: tuple[int, ...],
           dtype: str = "float64", slow: bool = False) -> Sample:
    params = {"start_indices": starts, "limit_indices": limits, "strides": strides}
    return Sample(Draw(shape, dtype), params=params, slow=slow)


def padded(shape: tuple[int, ...], *config: tuple[int, int, int], dtype: str = "float64", slow: bool = False) -> Sample:
    return Sample(Draw(shape, dtype), Draw((), dtype), params={"padding_config": config}, slow=slow)


def joined(axis: str, position: int, *shapes: tuple[int, ...], dtype: str = "float64", slow: bool = False) -> Sample:
    return Sample(*(Draw(shape, dtype) for shape in shapes), params={axis: position}, slow=slow)


def bits(shape: tuple[int, ...], old: str, new: str, slow: bool = False) -> Sample:
    # Bits of random integers are NaNs here and there, whose payload no dtype keeps; so floats come from floats.
    without = {"jvp": "bits have no derivative, also where they stay as they are"} if old == new else {}
    return Sample(Draw(shape, old, 0, 2), params={"new_dtype": SUPPORTED[new]}, slow=slow, without=without)


def counted(dtype: str, shape: tuple[int, ...], dimension: int, slow: bool = False) -> Sample:
    return Sample(params={"dtype": SUPPORTED[dtype], "shape": shape, "dimension": dimension}, slow=slow)


SAMPLES: dict[Primitive, list[Sample]] = {
    broadcast_in_dim_p: [
        in_dim((), (), ()), in_dim((), (2, 3), ()), in_dim((0,), (2, 0), (1,)), in_dim((1,), (3, 2), (0,)),
        in_dim((2, 3), (2, 4, 3), (0, 2)), in_dim((2, 1), (5, 2, 3, 1), (1, 2)), in_dim((3,), (3, 2), (0,)),
        *(in_dim((3, 1), (3, 2, 4), (0, 2), dtype, slow=True) for dtype in OTHERS),
    ],
    rev_p: [
        Sample(Draw(()), params={"dimensions": ()}), Sample(Draw((0,)), params={"dimensions": (0,)}),
        Sample(Draw((1,)), params={"dimensions": (0,)}), Sample(Draw((2, 3)), params={"dimensions": (1,)}),
        Sample(Draw((2, 3, 4)), params={"dimensions": (0, 2)}),
        *(Sample(Draw((2, 3), dtype), params={"dimensions": (0, 1)}, slow=True) for dtype in OTHERS),
    ],
    slice_p: [
        sliced((), (), (), ()), sliced((0,), (0,), (0,), (1,)), sliced((1,), (0,), (1,), (3,)),
        sliced((5,), (1,), (1,), (1,)), sliced((7,), (1,), (6,), (2,)), sliced((7,), (1,), (7,), (3,)),
        sliced((2, 3), (1, 0), (2, 3), (1, 2)), sliced((4, 5, 6), (1, 2, 0), (4, 3, 6), (2, 1, 3)),
        *(sliced((4, 3), (1, 0), (4, 2), (2, 1), dtype, slow=True) for dtype in OTHERS),
    ],
    pad_p: [
        padded(()), padded((0,), (1, 2, 0)), padded((0,), (1, 2, 3)), padded((1,), (0, 0, 2)), padded((3,), (2, 1, 0)),
        padded((3,), (1, 0, 2)), padded((4,), (-1, -2, 0)), padded((4,), (-2, 3, 1)), padded((4,), (-9, 0, 2)),
        padded((4,), (0, -8, 2)), padded((2, 3), (1, 0, 0), (0, 2, 1)), padded((2, 3), (-1, 1, 2), (0, -2, 0)),
        padded((2, 1, 3), (0, 1, 0), (2, 0, 0), (-1, 0, 1)), padded((2, 3), (3, -5, 0), (0, 0, 0)),
        padded((3,), (0, 0, 3)), padded((2, 1, 3), (0, 0, 2), (0, 0, 1), (0, 0, 3)),
        padded((2, 3), (1, -1, 1), (0, 0, 3)),
        *(padded((2, 3), (1, 0, 1), (0, -1, 0), dtype=dtype, slow=True) for dtype in OTHERS),
        *(padded((2, 3), (0, 0, 2), (0, 0, 3), dtype=dtype, slow=True) for dtype in OTHERS),
    ],
    tile_p: [
        Sample(Draw(()), params={"reps": ()}), Sample(Draw((0,)), params={"reps": (2,)}),
        Sample(Draw((1,)), params={"reps": (3,)}), Sample(Draw((3,)), params={"reps": (0,)}),
        Sample(Draw((2, 3)), params={"reps": (3, 2)}), Sample(Draw((2, 1, 3)), params={"reps": (1, 4, 2)}),
        *(Sample(Draw((2, 3), dtype), params={"reps": (2, 1)}, slow=True) for dtype in OTHERS),
    ],
    concatenate_p: [
        joined("dimension", 0, (3,)), joined("dimension", 0, (0,), (2,)), joined("dimension", 0, (1,), (3,), (2,)),
        joined("dimension", 0, (2, 3), (1, 3)), joined("dimension", 1, (2, 3), (2, 1), (2, 0)),
        joined("dimension", 2, (2, 1, 3), (2, 1, 2)),
        *(joined("dimension", 1, (2, 3), (2, 1), dtype=dtype, slow=True) for dtype in OTHERS),
    ],
    stack_p: [
        joined("axis", 0, ()), joined("axis", 0, (), (), ()), joined("axis", 0, (0,), (0,)),
        joined("axis", 1, (1,), (1,)), joined("axis", 0, (2, 3), (2, 3)), joined("axis", 1, (2, 3), (2, 3), (2, 3)),
        joined("axis", 2, (2, 3), (2, 3)),
        *(joined("axis", 1, (2, 3), (2, 3), dtype=dtype, slow=True) for dtype in OTHERS),
    ],
    split_p: [
        Sample(Draw((0,)), params={"sizes": (0, 0), "axis": 0}), Sample(Draw((1,)), params={"sizes": (1,), "axis": 0}),
        Sample(Draw((5,)), params={"sizes": (2, 0, 3), "axis": 0}),
        Sample(Draw((2, 3)), params={"sizes": (1, 2), "axis": 1}),
        Sample(Draw((3, 1, 4)), params={"sizes": (1, 1, 1), "axis": 0}),
        *(Sample(Draw((2, 3), dtype), params={"sizes": (2, 1), "axis": 1}, slow=True) for dtype in OTHERS),
    ],
    unstack_p: [
        Sample(Draw((1,)), params={"axis": 0}), Sample(Draw((3,)), params={"axis": 0}),
        Sample(Draw((2, 0)), params={"axis": 0}), Sample(Draw((2, 3)), params={"axis": 1}),
        Sample(Draw((2, 3, 2)), params={"axis": 2}),
        *(Sample(Draw((2, 3), dtype), params={"axis": 0}, slow=True) for dtype in OTHERS),
    ],
    copy_p: [
        Sample(Draw(())), Sample(Draw((0,))), Sample(Draw((1,))), Sample(Draw((2, 3))), Sample(Draw((2, 1, 3))),
        *(Sample(Draw((2, 3), dtype), slow=True) for dtype in OTHERS),
    ],
    bitcast_convert_type_p: [
        bits((), "float32", "int32"), bits((0,), "float64", "uint64"), bits((1,), "float64", "float64"),
        bits((2, 3), "float32", "uint32"), bits((2, 3), "bool", "bool"), bits((), "float32", "uint8"),
        bits((2, 3), "float64", "uint32"), bits((2, 3), "int32", "uint8"), bits((3, 4), "uint8", "int32"),
        bits((4,), "uint8", "uint32"), bits((0, 2), "uint16", "uint32"), bits((2, 3), "complex64", "complex64"),
        bits((2, 3), "bfloat16", "uint16", slow=True), bits((2, 3), "float16", "int16", slow=True),
        bits((2, 3), "int64", "float64", slow=True),
    ],
    iota_p: [
        counted("int32", (0,), 0), counted("int32", (1,), 0), counted("float64", (3,), 0), counted("int64", (2, 3), 1),
        counted("float32", (2, 3, 4), 0), counted("uint8", (2, 3), 0, slow=True),
        counted("bfloat16", (2, 3), 1, slow=True), counted("float16", (5,), 0, slow=True),
        counted("complex64", (2, 3), 1, slow=True),
    ],
    size_p: [Sample(params={"size": 3}), Sample(params={"size": 0})],  # one with a name has no value
}

