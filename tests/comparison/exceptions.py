"""What is not compared, or known to differ, each with the reason; an entry that is not needed is a failure."""

from __future__ import annotations

import fxgrad.lax

WITHOUT_CASE = {
    "lax.DotDimensionNumbers": "a type",
    "lax.ragged_all_to_all": "jax has it on GPUs and TPUs alone; a loop is compared in "
                             "tests/engine/parallel/test_ragged_exchange.py",
    "lax.pbroadcast": "jax compiles none under vmap; tests/engine/parallel/test_collectives.py has it",
    "lax.pcast": "it has a meaning inside `shard_map` alone; tests/engine/parallel/test_patterns_on_meshes.py has it",
    **{f"numpy.{name}": "it reads or writes, or sets how arrays are printed" for name in (
        "from_dlpack", "fromfile", "fromiter", "get_printoptions", "load", "printoptions", "save", "savez",
        "set_printoptions")},
    "numpy.__array_namespace_info__": "it describes the library",
    "random.key_dtype": "our dtype of keys is not jax's object",
    **{f"scipy.special.{name}": "it is compared with SciPy, in tests/scipy/test_scipy_special.py" for name in (
        "bessel_jn", "sph_harm_y")},
    "random.key_impl": "it gives a name; jax gives an object for some generators",
}
"""Functions without a case, by `library.name`."""

_COMPLEX = "complex numbers are refused; jax takes them"
_WIDE = "a bool that meets a Python number is a weak number of 64 bits, of 32 in jax"
_BY_ZERO = "an integer divided by 0 is 0, as in NumPy; jax's quotient is another"
_REAL_FUNCTION = "complex numbers are refused; jax computes something, but the function is one of real numbers"

DIFFERENT = {
    "numpy.arctan2 in complex64": _REAL_FUNCTION,
    "numpy.atan2 in complex64": _REAL_FUNCTION,
    **{f"numpy.{name} in complex64": _REAL_FUNCTION
       for name in ("histogram", "histogram2d", "histogram_bin_edges", "histogramdd")},
    **{f"numpy.{name} in bool": _WIDE for name in ("clip", "diff", "pow", "power", "where")},
    **{f"numpy.{name} in bool": _BY_ZERO for name in ("divmod", "floor_divide")},
    "lax.atan2 in complex64": _COMPLEX,
    **{f"lax.{name} in complex64": "complex numbers have no order and are refused; jax orders them by their parts"
       for name in ("clamp", "pmax", "pmin")},
    "lax.cumlogsumexp in complex64": _COMPLEX,
    **{f"nn.{name} in bool": _WIDE for name in (
        "celu", "elu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "leaky_relu", "mish", "relu", "relu6",
        "selu", "soft_sign", "softplus", "sparse_plus", "sparse_sigmoid")},
    "scipy.linalg.hadamard in float32": "the dtype by default, int, is int64, of 32 bits in jax",
    "scipy.special.boxcox in complex64": _REAL_FUNCTION,
    "scipy.special.boxcox1p in complex64": _REAL_FUNCTION,
    "scipy.special.erfcx in complex64": _REAL_FUNCTION,
    "scipy.special.expi in bool": "it is -infinity at 0, as in SciPy; jax's is NaN",
    "scipy.special.expn in bool": "it is 1 / (n - 1) at 0, as in SciPy; jax's is 1 / n",
    "scipy.special.gamma in complex64": _REAL_FUNCTION,
    "scipy.special.loggamma in complex64": _REAL_FUNCTION,
    "scipy.special.owens_t in complex64": _REAL_FUNCTION,
}
"""Known differences in values, by `library.name in dtype`."""

DIFFERENT_SLOPES = {
    "random.wald in float64": "it is that of a draw at a fixed quantile; jax's, with the noise fixed, is biased",
}
"""Known differences in derivatives alone."""

ABSENT: dict[str, dict[str, str]] = {
    "lax": fxgrad.lax.ABSENT,
    "lax.linalg": {"*": "a type of argument; strings and jax's own objects are taken where it has a meaning"},
    "numpy": {"*": "not there"}, "numpy.linalg": {"*": "not there"}, "numpy.fft": {"*": "not there"},
    "nn": {"*": "not there"}, "random": {"*": "not there"}, "scipy.special": {"*": "not there"},
    "scipy.linalg": fxgrad.scipy.linalg.ABSENT,
}
"""Why names of jax's are absent, by library; `*` stands for all others."""
