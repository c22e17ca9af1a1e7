"""NumPy's functions, on traced arrays as on NumPy's and jax's: names, signatures and dtypes are those of jax.numpy.

NumPy dispatches: `np.sin(x)` of a traced `x` calls `fxgrad.numpy.sin(x)`. The names are also those of the array API
standard, 2024.12.
"""

# Names are packed into lines, which would otherwise be five times as many.
# isort: off
from numpy import (
    array_repr, array_str, character, complexfloating, dtype, e, euler_gamma, flexible, floating, generic,
    get_printoptions, index_exp, inexact, inf, integer, nan, newaxis, number, object_, pi, printoptions, s_,
    save, savez, set_printoptions, signedinteger, unsignedinteger,
)
from numpy.exceptions import ComplexWarning

from fxgrad.numpy import fft, linalg
from fxgrad.numpy import methods as _methods
from fxgrad.engine.frontend import protocol as _protocol
from fxgrad.numpy.linalg import triangles as _triangles
from fxgrad.engine.core.arrays import returns_array as _making
from fxgrad.engine.frontend.value_calls import replay_public as _replay
from fxgrad.numpy import arrays as _arrays
from fxgrad.numpy import folds as _folds
from fxgrad.numpy import numpy_semantics as _meanings
from fxgrad.numpy import scalars as _scalars
from fxgrad.engine.user_lines import at_user_line as _at_user_line
from fxgrad.numpy.alike import empty_like, full_like, ones_like, zeros_like
from fxgrad.numpy.applying import (
    apply_along_axis, apply_over_axes, fromfunction, frompyfunc, piecewise, vectorize,
)
from fxgrad.numpy.arithmetic import (
    add, arctan2, atan2, clip, copysign, divide, divmod, float_power, floor_divide, fmax, fmin, fmod, heaviside,
    hypot, logaddexp, logaddexp2, maximum, minimum, mod, multiply, nextafter, pow, power, remainder, subtract,
    true_divide,
)
from fxgrad.numpy.calculus import convolve, correlate, ediff1d, gradient, trapezoid, unwrap
from fxgrad.numpy.covariance import corrcoef, cov
from fxgrad.numpy.creation import (
    arange, array, asarray, astype, copy, empty, eye, full, identity, meshgrid, ones, tri, zeros,
)
from fxgrad.numpy.editing import (
    block, choose, compress, delete, extract, fill_diagonal, insert, place, put, put_along_axis, resize, rollaxis,
    trim_zeros,
)
from fxgrad.numpy.einsum import einsum, einsum_path
from fxgrad.numpy.files import from_dlpack, frombuffer, fromfile, fromiter, fromstring, load
from fxgrad.numpy.finding import argwhere, flatnonzero, nonzero
from fxgrad.numpy.grids import (
    c_, diag_indices, diag_indices_from, indices, ix_, mask_indices, mgrid, ogrid, r_,
    ravel_multi_index, tril_indices, tril_indices_from, triu_indices, triu_indices_from, unravel_index,
)
from fxgrad.numpy.histograms import bincount, digitize, histogram, histogram2d, histogram_bin_edges, histogramdd
from fxgrad.numpy.interpolation import interp
from fxgrad.numpy.joining import (
    append, array_split, column_stack, concat, concatenate, dsplit, dstack, hsplit, hstack, split, stack, unstack,
    vsplit, vstack,
)
from fxgrad.numpy.logic import (
    allclose, array_equal, array_equiv, bitwise_and, bitwise_count, bitwise_invert, bitwise_left_shift, bitwise_not,
    bitwise_or, bitwise_right_shift, bitwise_xor, equal, greater, greater_equal, invert, isclose, left_shift, less,
    less_equal, logical_and, logical_not, logical_or, logical_xor, not_equal, right_shift, select, where,
)
from fxgrad.numpy.elementwise import (
    abs, absolute, acos, acosh, angle, arccos, arccosh, arcsin, arcsinh, arctan, arctanh, around, asin, asinh, atan,
    atanh, cbrt, ceil, conj, conjugate, cos, cosh, deg2rad, degrees, exp, exp2, expm1, fabs, fix, floor, imag,
    iscomplex, isfinite, isinf, isnan, isneginf, isposinf, isreal, log, log10, log1p, log2, nan_to_num, negative,
    positive, rad2deg, radians, real, reciprocal, rint, round, sign, signbit, sin, sinc, sinh, sqrt, square, tan,
    tanh, trunc,
)
from fxgrad.numpy.numbers import frexp, gcd, i0, lcm, ldexp, modf, packbits, spacing, unpackbits
from fxgrad.numpy.ordering import (
    argpartition, argsort, cumprod, cumsum, cumulative_prod, cumulative_sum, diff, lexsort, nancumprod, nancumsum,
    partition, searchsorted, sort, sort_complex,
)
from fxgrad.numpy.padding import pad
from fxgrad.numpy.polynomials import (
    poly, polyadd, polyder, polydiv, polyfit, polyint, polymul, polysub, polyval, roots, vander,
)
from fxgrad.numpy.products import cross, dot, inner, kron, matmul, matvec, outer, tensordot, vdot, vecdot, vecmat
from fxgrad.numpy.quantiles import median, nanmedian, nanpercentile, nanquantile, percentile, quantile
from fxgrad.numpy.rearranging import (
    diag, diagflat, diagonal, repeat, roll, take, take_along_axis, tile, trace, tril, triu,
)
from fxgrad.numpy.reductions import all, amax, amin, any, argmax, argmin, count_nonzero, max, min, prod, ptp, sum
from fxgrad.numpy.scalars import (
    bfloat16, bool_, bool_ as bool, complex64, complex64 as csingle, complex128, complex128 as cdouble,
    complex128 as complex_, float4_e2m1fn, float8_e3m4, float8_e4m3, float8_e4m3b11fnuz, float8_e4m3fn,
    float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float16, float32, float32 as single, float64,
    float64 as double, float64 as float_, int2, int4, int8, int16, int32, int64, int64 as int_, uint2, uint4, uint8,
    uint16, uint32, uint64, uint64 as uint,
)
from fxgrad.numpy.sets import (
    intersect1d, isin, setdiff1d, setxor1d, union1d, unique, unique_all, unique_counts, unique_inverse,
    unique_values,
)
from fxgrad.numpy.shaping import (
    atleast_1d, atleast_2d, atleast_3d, broadcast_arrays, broadcast_shapes, broadcast_to, expand_dims, flip, fliplr,
    flipud, matrix_transpose, moveaxis, ndim, permute_dims, ravel, reshape, rot90, shape, size, squeeze, swapaxes,
    transpose,
)
from fxgrad.numpy.statistics import (
    average, mean, nanargmax, nanargmin, nanmax, nanmean, nanmin, nanprod, nanstd, nansum, nanvar, std, var,
)
from fxgrad.numpy.spaced import geomspace, linspace, logspace
from fxgrad.numpy.window_functions import bartlett, blackman, hamming, hanning, kaiser
from fxgrad.numpy.types import (
    can_cast, finfo, iinfo, iscomplexobj, isdtype, isrealobj, isscalar, issubdtype, iterable, ndarray, promote_types,
    result_type,
)
from fxgrad.numpy.updates import at
from fxgrad.numpy.inspection import __array_namespace_info__
from fxgrad.engine.frontend.ufuncs import Elementwise as ufunc  # noqa: N813
from fxgrad.engine.pytorch_names import module_getattr as _of_module
# isort: on

__array_api_version__ = "2024.12"

__all__ = [
    "ComplexWarning", "__array_api_version__", "__array_namespace_info__", "abs", "absolute", "acos", "acosh", "add",
    "all", "allclose", "amax", "amin", "angle", "any", "append", "apply_along_axis", "apply_over_axes", "arange",
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition",
    "argsort", "argwhere", "around", "array", "array_equal", "array_equiv", "array_repr", "array_split", "array_str",
    "asarray", "asin", "asinh", "astype", "at", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d",
    "average", "bartlett", "bfloat16", "bincount", "bitwise_and", "bitwise_count", "bitwise_invert",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman", "block",
    "bool", "bool_", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "c_", "can_cast", "cbrt", "cdouble",
    "ceil", "character", "choose", "clip", "column_stack", "complex128", "complex64", "complex_", "complexfloating",
    "compress", "concat", "concatenate", "conj", "conjugate", "convolve", "copy", "copysign", "corrcoef", "correlate",
    "cos", "cosh", "count_nonzero", "cov", "cross", "csingle", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum",
    "deg2rad", "degrees", "delete", "diag", "diag_indices", "diag_indices_from", "diagflat", "diagonal", "diff",
    "digitize", "divide", "divmod", "dot", "double", "dsplit", "dstack", "dtype", "e", "ediff1d", "einsum",
    "einsum_path", "empty", "empty_like", "equal", "euler_gamma", "exp", "exp2", "expand_dims", "expm1", "extract",
    "eye", "fabs", "fft", "fill_diagonal", "finfo", "fix", "flatnonzero", "flexible", "flip", "fliplr", "flipud",
    "float16", "float32", "float4_e2m1fn", "float64", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float_", "float_power",
    "floating", "floor", "floor_divide", "fmax", "fmin", "fmod", "frexp", "from_dlpack", "frombuffer", "fromfile",
    "fromfunction", "fromiter", "frompyfunc", "fromstring", "full", "full_like", "gcd", "generic", "geomspace",
    "get_printoptions", "gradient", "greater", "greater_equal", "hamming", "hanning", "heaviside", "histogram",
    "histogram2d", "histogram_bin_edges", "histogramdd", "hsplit", "hstack", "hypot", "i0", "identity", "iinfo", "imag",
    "index_exp", "indices", "inexact", "inf", "inner", "insert", "int16", "int2", "int32", "int4", "int64", "int8",
    "int_", "integer", "interp", "intersect1d", "invert", "isclose", "iscomplex", "iscomplexobj", "isdtype", "isfinite",
    "isin", "isinf", "isnan", "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype", "iterable",
    "ix_", "kaiser", "kron", "lcm", "ldexp", "left_shift", "less", "less_equal", "lexsort", "linalg", "linspace",
    "load", "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logspace", "mask_indices", "matmul", "matrix_transpose", "matvec", "max", "maximum", "mean",
    "median", "meshgrid", "mgrid", "min", "minimum", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num",
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile",
    "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "ndarray", "ndim", "negative", "newaxis", "nextafter",
    "nonzero", "not_equal", "number", "object_", "ogrid", "ones", "ones_like", "outer", "packbits", "pad", "partition",
    "percentile", "permute_dims", "pi", "piecewise", "place", "poly", "polyadd", "polyder", "polydiv", "polyfit",
    "polyint", "polymul", "polysub", "polyval", "positive", "pow", "power", "printoptions", "prod", "promote_types",
    "ptp", "put", "put_along_axis", "quantile", "r_", "rad2deg", "radians", "ravel", "ravel_multi_index", "real",
    "reciprocal", "remainder", "repeat", "reshape", "resize", "result_type", "right_shift", "rint", "roll", "rollaxis",
    "roots", "rot90", "round", "s_", "save", "savez", "searchsorted", "select", "set_printoptions", "setdiff1d",
    "setxor1d", "shape", "sign", "signbit", "signedinteger", "sin", "sinc", "single", "sinh", "size", "sort",
    "sort_complex", "spacing", "split", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "swapaxes",
    "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "trace", "transpose", "trapezoid", "tri", "tril",
    "tril_indices", "tril_indices_from", "trim_zeros", "triu", "triu_indices", "triu_indices_from", "true_divide",
    "trunc", "ufunc", "uint", "uint16", "uint2", "uint32", "uint4", "uint64", "uint8", "union1d", "unique",
    "unique_all", "unique_counts", "unique_inverse", "unique_values", "unpackbits", "unravel_index", "unsignedinteger",
    "unstack", "unwrap", "vander", "var", "vdot", "vecdot", "vecmat", "vectorize", "vsplit", "vstack", "where", "zeros",
    "zeros_like",
]


_ABSENT = {"minmax": "write fnp.min(x), fnp.max(x)", "top_k": "write fxgrad.lax.top_k(x, k)"}
"""Names of jax.numpy that are missing here, each with a replacement."""


def __getattr__(name: str) -> object:
    narrow = _scalars.missing_scalar_reason(name)
    if narrow is not None:
        raise AttributeError(_at_user_line(narrow), name=name)
    return _of_module(__name__, _ABSENT)(name)


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion


_methods.attach_tracer_methods()
_arrays.attach_array_methods()
_folds.attach_ufunc_methods()
_protocol.install({name: globals()[name] for name in __all__})
_protocol.install({name: getattr(linalg, name) for name in linalg.__all__}, np_module="linalg")
_protocol.install(_meanings.FUNCTIONS)
_protocol.install(_meanings.OF_STRIDES, np_module="lib.stride_tricks")
_protocol.install(_triangles.FUNCTIONS, np_module="linalg")
_protocol.install({name: getattr(fft, name) for name in fft.__all__}, np_module="fft")

# These make arrays, or return their arguments, by other means than primitives.
for _name in ("arange", "argwhere", "array", "asarray", "astype", "atleast_1d", "atleast_2d", "atleast_3d",
              "average", "bartlett", "blackman", "copy", "diag_indices", "diag_indices_from", "diff", "digitize",
              "empty", "eye", "flatnonzero", "from_dlpack", "frombuffer", "fromfile", "fromiter", "fromstring",
              "full", "geomspace", "hamming", "hanning", "identity", "indices", "kaiser", "linspace", "load",
              "logspace", "mask_indices", "nonzero", "ones", "searchsorted", "tri", "tril_indices",
              "tril_indices_from", "triu_indices", "triu_indices_from", "where", "zeros"):
    globals()[_name] = _making(globals()[_name], of_operands=_name in ("average", "where"))

_replay(globals(), "fxgrad.numpy", (
    "alike", "arithmetic", "bits", "calculus", "covariance", "creation", "editing", "einsum", "elementwise", "grids",
    "histograms", "interpolation", "joining", "logic", "ordering", "padding", "polynomials", "positions", "products",
    "quantiles", "rearranging", "reductions", "shaping", "spaced", "statistics", "window_functions"))
