"""Cases of the functions of `lax` that take functions, and of its windows and convolutions."""

from __future__ import annotations

from typing import Any

import jax

import fxgrad
import fxgrad.lax
from tests.comparison.arguments import A, Case, whole

REAL = ("float32", "float64", "int32")
INEXACT = ("float32", "float64", "complex64")



def mapped(name: str, *args: Any, size: int = 4, **options: Any) -> Case:
    """A collective along the axis of a vmap."""
    def call(module: Any, x: Any) -> Any:
        vmap = fxgrad.vmap if module is fxgrad.lax else jax.vmap
        return vmap(lambda v: getattr(module, name)(v, "i", *args, **options), axis_name="i")(x)
    return Case(A(size, 4), call=call)


COLLECTIVES = {
    **{name: [mapped(name)] for name in ("all_gather", "pmax", "pmean", "pmin", "psum", "psum_scatter")},
    "all_to_all": [mapped("all_to_all", 0, 0)], "pswapaxes": [mapped("pswapaxes", 0)],
    "ppermute": [mapped("ppermute", [(0, 1), (1, 2), (2, 3), (3, 0)])], "pshuffle": [mapped("pshuffle", [1, 0, 3, 2])],
    **{name: [Case(A(4), call=lambda m, x, name=name: (fxgrad.vmap if m is fxgrad.lax else jax.vmap)(
        lambda v: v * getattr(m, name)("i"), axis_name="i")(x), dtypes=("float32", "int32"))]
       for name in ("axis_index", "axis_size")},
}

CASES: dict[str, list[Case]] = {
    **COLLECTIVES,
    "cond": [Case(A(dtype="bool"), A(3), call=lambda m, p, x: m.cond(p, lambda v: v * v, lambda v: v + v, x))],
    "switch": [Case(whole(), A(3), call=lambda m, i, x: m.switch(i, [lambda v: v, lambda v: v * v, lambda v: -v], x),
                    dtypes=REAL)],
    "fori_loop": [Case(A(3), call=lambda m, x: m.fori_loop(0, 3, lambda i, v: v * x + v, x), dtypes=INEXACT)],
    "while_loop": [Case(A(3, low=0.5, high=1), dtypes=("float32", "float64"),
                        call=lambda m, x: m.while_loop(lambda v: v.sum() < 20, lambda v: v * 2 + 1, x))],
    "scan": [Case(A(3), A(4, 3), call=lambda m, c, xs: m.scan(lambda a, x: (a * x + a, a + x), c, xs), dtypes=INEXACT),
             Case(A(3), A(4, 3), call=lambda m, c, xs: m.scan(lambda a, x: (a + x, x), c, xs, reverse=True),
                  dtypes=REAL)],
    "map": [Case(A(4, 3), call=lambda m, xs: m.map(lambda x: x * x + x, xs))],
    "associative_scan": [Case(A(5), call=lambda m, xs: m.associative_scan(m.mul, xs)),
                         Case(A(2, 4), call=lambda m, xs: m.associative_scan(m.add, xs, reverse=True, axis=1))],
    "custom_root": [Case(A(low=1, high=2), dtypes=("float32", "float64"), call=lambda m, a: m.custom_root(
        lambda x: x * x - a, a, lambda f, x: m.fori_loop(0, 30, lambda i, v: (v + a / v) / 2, x),
        lambda g, y: y / g(y * 0 + 1)))],
    "custom_linear_solve": [Case(A(3, low=1, high=2), A(3), dtypes=("float32", "float64"),
                                 call=lambda m, d, b: m.custom_linear_solve(
                                     lambda x: d * x, b, lambda mv, y: y / d, symmetric=True))],
    "reduce_window": [
        Case(A(2, 5), call=lambda m, x: m.reduce_window(x, x.dtype.type(0), m.add, (1, 2), (1, 2), "SAME")),
        Case(A(5), call=lambda m, x: m.reduce_window(x, x.dtype.type(-1e9), m.max, (3,), (1,), "VALID"), dtypes=REAL)],
    "reduce_window_shape_tuple": [Case((5, 4), (2, 2), (1, 2), [(0, 0), (1, 1)], static=True)],
    "conv": [Case(A(2, 3, 5), A(4, 3, 2), (1,), "SAME")],
    "conv_general_dilated": [
        Case(A(2, 4, 5, 5), A(6, 2, 2, 3), (2, 1), [(1, 0), (0, 2)], feature_group_count=2),
        Case(A(1, 5, 2), A(3, 2, 4), (1,), [(2, 1)], dimension_numbers=("NHC", "HIO", "NHC"), lhs_dilation=(2,),
             rhs_dilation=(2,))],
    "conv_general_dilated_local": [Case(A(2, 2, 5), A(3, 4, 4), (1,), "VALID", (2,))],
    "conv_general_dilated_patches": [Case(A(2, 2, 5), (2,), (1,), "VALID")],
    "conv_transpose": [Case(A(1, 4, 2), A(3, 2, 4), (2,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))],
    "conv_with_general_padding": [Case(A(2, 3, 5), A(4, 3, 2), (1,), [(1, 1)], None, (2,))],
    "conv_dimension_numbers": [Case((1, 2, 3), (1, 2, 3), None, static=True,
                                    seen=lambda numbers: tuple(map(tuple, numbers)))],
    "conv_general_permutations": [Case(("NCH", "OIH", "NHC"), static=True, seen=lambda x: [tuple(y) for y in x])],
    "conv_general_shape_tuple": [Case((2, 3, 5), (4, 3, 2), (1,), "VALID", ("NCH", "OIH", "NCH"), static=True,
                                      seen=tuple)],
    "conv_shape_tuple": [Case((2, 3, 5), (4, 3, 2), (1,), [(0, 0)], static=True, seen=tuple)],
    "conv_transpose_shape_tuple": [Case((2, 3, 5), (4, 3, 2), (1,), "VALID", ("NCH", "OIH", "NCH"), static=True,
                                        seen=tuple)],
    "padtype_to_pads": [Case((5, 4), (2, 3), (1, 2), "SAME", static=True)],
}
