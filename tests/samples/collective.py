"""Samples of `engine.parallel.collective` and `gathers`, over axes of size 1: on these executors compute them too.

What they mean over longer axes is tested against jax in `tests/engine/parallel/test_collectives.py`.
"""

from __future__ import annotations

from typing import Any

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.parallel import collective, gathers
from tests.samples import Draw, Sample

OVER = {"axis_name": "i", "axis_size": 1}
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (2, 3), (3, 0, 2)]
DTYPES = ("float64", "float32", "complex64", "int32", "bfloat16")


def samples(*params: dict[str, Any], dtypes: tuple[str, ...] = DTYPES, least_rank: int = 0) -> list[Sample]:
    shapes = [shape for shape in SHAPES if len(shape) >= least_rank]
    return [Sample(Draw(shape), params={**OVER, **one}) for one in params for shape in shapes] + \
        [Sample(Draw((2, 3), dtype), params={**OVER, **params[0]}) for dtype in dtypes[1:]]


OVER_TWO = {"axis_name": ("i", "j"), "axis_size": (1, 1)}
REAL = ("float64", "float32", "int32", "bfloat16")

SAMPLES: dict[Primitive, list[Sample]] = {
    collective.psum_p: [*samples({}), Sample(Draw((2, 3)), params=OVER_TWO)],
    collective.pmax_p: [*samples({}, dtypes=REAL), Sample(Draw((2, 3)), params=OVER_TWO)],
    collective.pmin_p: samples({}, dtypes=REAL),
    gathers.ppermute_p: [*samples({"perm": ((0, 0),)}, {"perm": ()}),
                         Sample(Draw((2, 3)), params={**OVER_TWO, "perm": ((0, 0),)})],
    gathers.all_gather_p: [
        *samples({"axis": 0}, least_rank=1), Sample(Draw((2, 3)), params={**OVER, "axis": 1}),
        Sample(Draw((2, 3)), params={**OVER_TWO, "axis": 1})],
    gathers.psum_scatter_p: [
        *samples({"axis": 0}, least_rank=1), Sample(Draw((2, 3)), params={**OVER, "axis": 1}),
        Sample(Draw((2, 3)), params={**OVER_TWO, "axis": 1})],
    gathers.all_to_all_p: [
        *samples({"split_axis": 0, "concat_axis": 0}, least_rank=1),
        Sample(Draw((2, 3)), params={**OVER, "split_axis": 1, "concat_axis": 0}),
        Sample(Draw((2, 3)), params={**OVER, "split_axis": 0, "concat_axis": 1}),
        Sample(Draw((2, 3)), params={**OVER_TWO, "split_axis": 0, "concat_axis": 1})],
    collective.axis_index_p: [Sample(params=OVER)],
}
