"""Types of results are looked up, and never where something else than types and parameters decides."""

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.caches import cache_info
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import infer_types, output_types, registry
from fxgrad.errors import ShapeError

F32 = np.dtype(np.float32)
SUM, SLICE, SIN = registry["reduce_sum"], registry["slice"], registry["sin"]


def count() -> int:
    return next(info.entries for info in cache_info() if info.name == "types of results")


@pytest.mark.usefixtures("fresh_tables")
def test_types_are_entered_once_for_each_key() -> None:
    fxgrad.clear_caches()
    matrix = Aval((2, 3), F32)
    for axes in ((0,), (1,), (0, 1)):
        for aval in (matrix, Aval((2, 3), F32, weak=True), Aval((2, 3), np.dtype(np.float64))):
            for _ in range(2):
                assert infer_types(SUM, [aval], {"axes": axes}) == output_types(SUM, [aval], {"axes": axes})
    assert count() == 9


@pytest.mark.usefixtures("fresh_tables")
def test_who_changes_the_list_changes_no_entry() -> None:
    fxgrad.clear_caches()
    aval = Aval((2, 3), F32)
    for _ in range(3):
        types = infer_types(SUM, [aval], {"axes": (0,)})
        assert types == [Aval((3,), F32)]
        types.clear()


@pytest.mark.usefixtures("fresh_tables")
def test_errors_and_operations_without_parameters_are_not_entered() -> None:
    fxgrad.clear_caches()
    refused = {"start_indices": (0,), "limit_indices": (9,), "strides": (1,)}
    for _ in range(2):
        with pytest.raises(ShapeError, match=r"slice: 0:9:1 of an axis of size 3 in shape \(3,\)"):
            infer_types(SLICE, [Aval((3,), F32)], refused)
    assert infer_types(SIN, [Aval((3,), F32)], {}) == [Aval((3,), F32)]
    assert count() == 0


@pytest.mark.usefixtures("fresh_tables")
def test_symbolic_sizes_and_varying_types_are_not_entered() -> None:
    fxgrad.clear_caches()
    size, = jax.export.symbolic_shape("n")
    struct = jax.ShapeDtypeStruct((size, 3), F32)
    program = fxgrad.make_program(lambda x: fnp.sum(x[:-1], axis=0))(struct)
    before = count()
    assert [str(aval) for aval in program.out_avals] == ["f32[3]"]
    varying = Aval((2, 3), F32).varying({"data"})
    assert infer_types(SUM, [varying], {"axes": (0,)}) == [Aval((3,), F32).varying({"data"})]
    assert count() == before == 0


@pytest.mark.usefixtures("fresh_tables")
def test_parameters_that_cannot_be_hashed_are_inferred_each_time() -> None:
    fxgrad.clear_caches()
    for _ in range(2):
        assert infer_types(SUM, [Aval((2, 3), F32)], {"axes": [0]}) == [Aval((3,), F32)]
    assert count() == 0
