"""Cases of the functions of `lax` that shape, index, reduce, sort and multiply arrays."""

from __future__ import annotations

import numpy as np

from tests.comparison.arguments import A, Case, D, whole

ONE = ("float32",)
CASES: dict[str, list[Case]] = {
    "broadcast": [Case(A(3), (2,))], "broadcast_in_dim": [Case(A(2, 1), (2, 4, 3), (0, 2))],
    "broadcast_like": [Case(A(3), A(2, 3), fixed=(1,))], "broadcast_to_rank": [Case(A(3), 3), Case(A(2, 3), 1)],
    "broadcast_shapes": [Case((2, 1), (3,), static=True)],
    "reshape": [Case(A(2, 3), (3, 2)), Case(A(2, 3), (6,), (1, 0))],
    "collapse": [Case(A(2, 3, 4), 0, 2), Case(A(2, 3, 4), 1)],
    "squeeze": [Case(A(2, 1, 3), (1,)), Case(A(1, 3, 1), (0, -1))],
    "expand_dims": [Case(A(2, 3), (0, 2)), Case(A(3), (-1,))],
    "transpose": [Case(A(2, 3, 4), (1, 2, 0))], "rev": [Case(A(2, 3), (1,))], "tile": [Case(A(2, 3), (2, 1))],
    "pad": [Case(A(2, 3), A(), [(1, 0, 1), (-1, 2, 0)])],
    "slice": [Case(A(3, 5), (0, 1), (2, 5), (1, 2))],
    "slice_in_dim": [Case(A(3, 5), 1, -1, 2, 1), Case(A(5), None, None)],
    "index_in_dim": [Case(A(3, 5), -1), Case(A(3, 5), 1, 1, False)],
    "split": [Case(A(2, 5), (2, 3), 1)], "unstack": [Case(A(2, 3)), Case(A(2, 3), 1)],
    "concatenate": [Case([A(2, 3), A(1, 3)], 0)], "stack": [Case([A(3), A(3)], 1)],
    "iota": [Case(D, 4)], "broadcasted_iota": [Case(D, (2, 3), 1)],
    "full": [Case((2,), 1.5, dtypes=ONE), Case(2, 1.5, dtypes=ONE), Case((2,), 3, D)], "full_like": [Case(A(2, 3), 2)],
    "empty": [Case((2, 0), D)],
    "convert_element_type": [Case(A(2, 3), "float32"), Case(A(2, 3), "int32")],
    "bitcast_convert_type": [Case(A(3), "int32"), Case(A(3), "uint8")],
    "dtype": [Case(A(2), static=True)], "shape_as_value": [Case((2, 3), dtypes=ONE)],
    "stage": [Case(A(2, 3))], "stop_gradient": [Case(A(2, 3))], "optimization_barrier": [Case(A(2, 3))],
    # indexing
    "dynamic_slice": [Case(A(3, 5), [whole(), whole(low=-2)], (2, 2)), Case(A(5), [whole(low=4, high=9)], (2,))],
    "dynamic_slice_in_dim": [Case(A(3, 5), whole(low=-3, high=4), 2, 1)],
    "dynamic_index_in_dim": [Case(A(3, 5), whole(), 1), Case(A(3, 5), whole(), 0, False)],
    "dynamic_update_slice": [Case(A(3, 5), A(2, 2), [whole(), whole(low=-2)])],
    "dynamic_update_slice_in_dim": [Case(A(3, 5), A(3, 2), whole(), 1)],
    "dynamic_update_index_in_dim": [Case(A(3, 5), A(5), whole(), 0), Case(A(3, 5), A(3, 1), whole(), 1)],
    "gather": [
        Case(A(4, 3), whole(2, 1, high=3), call=lambda m, x, i: m.gather(
            x, i, m.GatherDimensionNumbers((1,), (0,), (0,)), (1, 3))),
        Case(A(5), whole(4, 1, low=-1, high=6), call=lambda m, x, i: m.gather(
            x, i, m.GatherDimensionNumbers((1,), (), (0,)), (2,), mode="clip")),
        Case(A(5), whole(4, 1, low=-1, high=6), call=lambda m, x, i: m.gather(
            x, i, m.GatherDimensionNumbers((), (0,), (0,)), (1,), mode=m.GatherScatterMode.FILL_OR_DROP,
            fill_value=7))],
    "index_take": [Case(A(4, 3), whole(2, low=-2, high=5), call=lambda m, x, i: m.index_take(x, (i,), (0,)))],
    **{f"scatter{suffix}": [
        Case(A(5, 3), whole(2, 1, low=0, high=6), A(2, 3), call=lambda m, x, i, u, suffix=suffix: getattr(
            m, f"scatter{suffix}")(x, i, u, m.ScatterDimensionNumbers((1,), (0,), (0,)))),
        Case(A(5), np.array([[3], [1]]), A(2, low=0.5), call=lambda m, x, i, u, suffix=suffix: getattr(
            m, f"scatter{suffix}")(x, i, u, m.ScatterDimensionNumbers((), (0,), (0,)), mode="clip",
                                   unique_indices=True))]
       for suffix in ("", "_add", "_sub", "_mul", "_min", "_max")},
    "scatter_apply": [Case(A(4), np.array([[1], [1], [3]]), call=lambda m, x, i: m.scatter_apply(
        x, i, lambda v: m.mul(v, v), m.ScatterDimensionNumbers((), (0,), (0,)), update_shape=(3,)))],
    # reductions
    **{name: [Case(A(2, 3), (1,)), Case(A(2, 3, 2), (0, 2)), Case(A(2, 3), ())] for name in (
        "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor")},
    "reduce": [
        Case(A(2, 3), A(), call=lambda m, x, init: m.reduce(x, init, m.add, (1,))),
        Case(A(2, 3), A(), call=lambda m, x, init: m.reduce(x, init, lambda a, b: m.max(a, b), (0, 1)),
             dtypes=("float32", "float64", "int32", "bool")),
        Case(A(2, 5), A(2, 5), call=lambda m, x, y: m.reduce(
            (x, y), (x.dtype.type(1), x.dtype.type(0)),
            lambda a, b: (m.mul(a[0], b[0]), m.add(m.mul(a[1], b[0]), b[1])), (1,)),
            without={"derivatives": "of several operands jax's are not those that central differences of its own values"
                                    " give; ours are"})],
    "argmax": [Case(A(2, 3), 1, "int32")], "argmin": [Case(A(2, 3), 0, "int32")],
    **{name: [Case(A(4)), Case(A(2, 3), 1, True)] for name in ("cumsum", "cumprod", "cummax", "cummin",
                                                              "cumlogsumexp")},
    "sort": [Case(A(2, 5)), Case(A(5, 2), 0), Case([A(5, low=0, high=1), A(5)], num_keys=2)],
    "sort_key_val": [Case(A(2, 5), A(2, 5))],
    "top_k": [Case(A(2, 5), 2)], "approx_max_k": [Case(A(2, 5), 2)], "approx_min_k": [Case(A(2, 5), 2)],
    # products
    "dot": [Case(A(2, 3), A(3, 2)), Case(A(3), A(3)), Case(A(2, 3), A(3)),
            Case(A(2, 3), A(4, 3), dimension_numbers=(((1,), (1,)), ((), ())))],
    "dot_general": [Case(A(5, 2, 3), A(4, 3, 5), (((2,), (1,)), ((0,), (2,)))),
                    Case(A(2, 3), A(3), (((1,), (0,)), ((), ())), preferred_element_type="float32",
                         dtypes=("float32", "int32"))],
    "batch_matmul": [Case(A(5, 2, 3), A(5, 3, 4))],
    "scaled_dot": [Case(A(2, 4), A(4, 3), lhs_scale=A(2, 2), dtypes=ONE, tolerance=200)],
    "fft": [Case(A(2, 4), "fft", (4,)), Case(A(2, 4), "rfft", (2, 4)), Case(A(2, 3), "irfft", (4,))],
    "ragged_dot": [Case(A(5, 2), A(3, 2, 4), np.array([2, 1, 2], np.int32))],
    "ragged_dot_general": [
        Case(A(3, 4), A(2, 5, 4), call=lambda m, x, w: m.ragged_dot_general(
            x, w, np.array([2, 1], "int32"), m.RaggedDotDimensionNumbers((((1,), (2,)), ((), ())), (0,), (0,)))),
        Case(A(3, 4), A(4, 2), call=lambda m, x, y: m.ragged_dot_general(
            x, y, np.array([3, 1], "int32"), m.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), (1,), ())))],
    # code by name and by platform
    "composite": [Case(A(3), call=lambda m, x: m.composite(lambda v: m.mul(v, v), name="fxgrad.test")(x))],
    "platform_dependent": [Case(A(3), call=lambda m, x: m.platform_dependent(
        x, cpu=lambda v: m.mul(v, v), default=lambda v: m.add(v, v)))],
}
