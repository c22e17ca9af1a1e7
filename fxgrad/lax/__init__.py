"""The functions of jax.lax, under their own names.

Only Python's numbers are promoted here, and shapes must be equal (or a scalar): `fxgrad.numpy` promotes and broadcasts.
`ABSENT` lists the names of jax.lax that this module lacks, with the reasons.
"""

# ruff: noqa: A004  (the names are jax's)

from fxgrad.engine.core.arrays import returns_array as _making
from fxgrad.engine.pytorch_names import module_getattr as _of_module
from fxgrad.lax import linalg
from fxgrad.lax.arithmetic import (
    add,
    atan2,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    clamp,
    complex,
    div,
    eq,
    ge,
    gt,
    le,
    lt,
    max,
    min,
    mul,
    mulhi,
    ne,
    nextafter,
    pow,
    rem,
    select,
    select_n,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    sub,
)
from fxgrad.lax.associative import associative_scan
from fxgrad.lax.barriers import optimization_barrier, stop_gradient
from fxgrad.lax.branches import cond, switch
from fxgrad.lax.collectives import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pbroadcast,
    pcast,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
    pswapaxes,
)
from fxgrad.lax.convolution import (
    ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers,
    conv,
    conv_dimension_numbers,
    conv_general_dilated,
    conv_general_dilated_local,
    conv_general_dilated_patches,
    conv_general_permutations,
    conv_general_shape_tuple,
    conv_shape_tuple,
    conv_transpose,
    conv_transpose_shape_tuple,
    conv_with_general_padding,
    padtype_to_pads,
)
from fxgrad.lax.creation import (
    bitcast_convert_type,
    broadcasted_iota,
    convert_element_type,
    dtype,
    empty,
    full,
    full_like,
    iota,
    shape_as_value,
    stage,
)
from fxgrad.lax.elementwise import (
    RoundingMethod,
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitwise_not,
    cbrt,
    ceil,
    clz,
    conj,
    cos,
    cosh,
    exp,
    exp2,
    expm1,
    floor,
    imag,
    integer_pow,
    is_finite,
    log,
    log1p,
    logistic,
    neg,
    population_count,
    real,
    reciprocal,
    reduce_precision,
    round,
    rsqrt,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
)
from fxgrad.lax.indexing import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
    gather,
    index_take,
    scatter,
    scatter_add,
    scatter_apply,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_sub,
)
from fxgrad.lax.loops import fori_loop, map, scan, while_loop
from fxgrad.lax.platforms import composite, platform_dependent
from fxgrad.lax.products import (
    DotAlgorithmPreset,
    DotDimensionNumbers,
    FftType,
    Precision,
    PrecisionLike,
    batch_matmul,
    dot,
    dot_general,
    fft,
    scaled_dot,
)
from fxgrad.lax.ragged import RaggedDotDimensionNumbers, ragged_dot, ragged_dot_general
from fxgrad.lax.ragged_exchange import ragged_all_to_all
from fxgrad.lax.reductions import (
    argmax,
    argmin,
    cumlogsumexp,
    cummax,
    cummin,
    cumprod,
    cumsum,
    reduce,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    reduce_xor,
    sort,
    sort_key_val,
)
from fxgrad.lax.shaping import (
    broadcast,
    broadcast_in_dim,
    broadcast_like,
    broadcast_shapes,
    broadcast_to_rank,
    collapse,
    concatenate,
    expand_dims,
    index_in_dim,
    pad,
    reshape,
    rev,
    slice,
    slice_in_dim,
    split,
    squeeze,
    stack,
    tile,
    transpose,
    unstack,
)
from fxgrad.lax.shardings import with_sharding_constraint
from fxgrad.lax.solves import custom_linear_solve, custom_root
from fxgrad.lax.special import (
    bessel_i0e,
    bessel_i1e,
    betainc,
    digamma,
    erf,
    erf_inv,
    erfc,
    igamma,
    igamma_grad_a,
    igammac,
    lgamma,
    polygamma,
    random_gamma_grad,
    zeta,
)
from fxgrad.lax.windows import approx_max_k, approx_min_k, reduce_window, reduce_window_shape_tuple, top_k

__all__ = [
    "ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "DotAlgorithmPreset", "DotDimensionNumbers",
    "FftType", "GatherDimensionNumbers", "GatherScatterMode", "Precision", "PrecisionLike",
    "RaggedDotDimensionNumbers", "RoundingMethod", "ScatterDimensionNumbers", "abs", "acos", "acosh", "add",
    "all_gather", "all_to_all", "approx_max_k", "approx_min_k", "argmax", "argmin", "asin", "asinh",
    "associative_scan", "atan", "atan2", "atanh", "axis_index", "axis_size", "batch_matmul", "bessel_i0e",
    "bessel_i1e", "betainc", "bitcast_convert_type", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor",
    "broadcast", "broadcast_in_dim", "broadcast_like", "broadcast_shapes", "broadcast_to_rank", "broadcasted_iota",
    "cbrt", "ceil", "clamp", "clz", "collapse", "complex", "composite", "concatenate", "cond", "conj", "conv",
    "conv_dimension_numbers", "conv_general_dilated", "conv_general_dilated_local", "conv_general_dilated_patches",
    "conv_general_permutations", "conv_general_shape_tuple", "conv_shape_tuple", "conv_transpose",
    "conv_transpose_shape_tuple", "conv_with_general_padding", "convert_element_type", "cos", "cosh",
    "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "custom_linear_solve", "custom_root", "digamma", "div",
    "dot", "dot_general", "dtype", "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim", "empty", "eq", "erf",
    "erf_inv", "erfc", "exp", "exp2", "expand_dims", "expm1", "fft", "floor", "fori_loop", "full", "full_like",
    "gather", "ge", "gt", "igamma", "igamma_grad_a", "igammac", "imag", "index_in_dim", "index_take", "integer_pow",
    "iota", "is_finite", "le", "lgamma", "linalg", "log", "log1p", "logistic", "lt", "map", "max", "min", "mul",
    "mulhi", "ne", "neg", "nextafter", "optimization_barrier", "pad", "padtype_to_pads", "pbroadcast", "pcast",
    "platform_dependent", "pmax", "pmean", "pmin", "polygamma", "population_count", "pow", "ppermute", "pshuffle",
    "psum", "psum_scatter", "pswapaxes", "ragged_all_to_all", "ragged_dot", "ragged_dot_general",
    "random_gamma_grad", "real", "reciprocal", "reduce", "reduce_and", "reduce_max", "reduce_min", "reduce_or",
    "reduce_precision", "reduce_prod", "reduce_sum", "reduce_window", "reduce_window_shape_tuple", "reduce_xor",
    "rem", "reshape", "rev", "round", "rsqrt", "scaled_dot", "scan", "scatter", "scatter_add", "scatter_apply",
    "scatter_max", "scatter_min", "scatter_mul", "scatter_sub", "select", "select_n", "shape_as_value",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "slice", "slice_in_dim",
    "sort", "sort_key_val", "split", "sqrt", "square", "squeeze", "stack", "stage", "stop_gradient", "sub",
    "switch", "tan", "tanh", "tile", "top_k", "transpose", "unstack", "while_loop", "with_sharding_constraint",
    "zeta"]


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion


_DEVICES = "one device sends and another waits; `ppermute` moves values between devices"
_TOKENS = "it orders effects, which programs do not have"
ABSENT = {
    **dict.fromkeys(("log2", "one_minus_square", "polynomial", "psum_scatter_start"), "jax has it since 0.11 or 0.12"),
    "AccuracyMode": "`accuracy=` of elementwise functions must be None",
    "DotAlgorithm": "`DotAlgorithmPreset` names the algorithms that devices have",
    "RandomAlgorithm": "it belongs to rng_bit_generator",
    "Tolerance": "`accuracy=` of elementwise functions must be None",
    "after_all": _TOKENS,
    "create_token": _TOKENS,
    "dce_sink": "it keeps computations alive whose result nothing uses; programs have no such computations",
    "precv": _DEVICES,
    "psend": _DEVICES,
    "rng_bit_generator": "its bits depend on the device; draw with fxgrad.random",
    "rng_uniform": "it draws from a hidden state; draw with fxgrad.random.uniform",
}
"""Names of jax.lax that are missing here, each with the reason; primitives (`..._p`) belong to jax."""
__getattr__ = _of_module(__name__, ABSENT)

# These return their arguments unchanged if there is nothing to do.
for _name in ("broadcast_to_rank", "convert_element_type", "reduce_and", "reduce_max", "reduce_min",
              "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor", "stage"):
    globals()[_name] = _making(globals()[_name], of_operands=True)
