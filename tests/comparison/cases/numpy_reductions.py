"""Cases of the functions of `numpy` along axes: reductions, statistics, sorting, products, and Fourier transforms."""

from __future__ import annotations

import jax
import numpy as np

from tests.comparison.arguments import A, Case, whole

REDUCTIONS = """all amax amin any count_nonzero max mean min prod ptp std sum var nanmax nanmean nanmin nanprod nanstd
nansum nanvar median nanmedian""".split()
RUNNING = "cumprod cumsum nancumprod nancumsum".split()
POSITIONS = "argmax argmin nanargmax nanargmin".split()


CASES: dict[str, list[Case]] = {
    **{name: [Case(A(2, 3)), Case(A(2, 3), axis=1), Case(A(2, 3, 2), axis=(0, 2), keepdims=True)]
       for name in REDUCTIONS},
    **{name: [Case(A(2, 3)), Case(A(2, 3), axis=1)] for name in RUNNING},
    **{name: [Case(A(2, 3)), Case(A(2, 3), axis=1), Case(A(2, 3), axis=-2, keepdims=True)] for name in POSITIONS},
    "cumulative_sum": [Case(A(4)), Case(A(2, 3), axis=1, include_initial=True)],
    "cumulative_prod": [Case(A(4)), Case(A(2, 3), axis=1, include_initial=True)],
    "std": [Case(A(2, 3)), Case(A(2, 3), axis=1, ddof=1)],
    "var": [Case(A(2, 3)), Case(A(2, 3), axis=1, ddof=1)],
    "average": [Case(A(2, 3)), Case(A(2, 3), axis=1, weights=A(3, low=0.5, high=1)), Case(A(2, 3), returned=True)],
    "quantile": [Case(A(2, 5), 0.3), Case(A(2, 5), A(2, low=0.1, high=0.9), axis=1, dtypes=("float32", "float64"))],
    "percentile": [Case(A(2, 5), 30.0), Case(A(2, 5), 60.0, axis=1, keepdims=True)],
    "nanquantile": [Case(A(2, 5), 0.3), Case(A(2, 5), 0.6, axis=1)],
    "nanpercentile": [Case(A(2, 5), 30.0), Case(A(2, 5), 60.0, axis=1)],
    "cov": [Case(A(3, 4)), Case(A(4), bias=True)],
    "corrcoef": [Case(A(3, 4))],
    "sort": [Case(A(2, 5)), Case(A(2, 5), axis=0), Case(A(2, 5), axis=None), Case(A(5), descending=True)],
    "argsort": [Case(A(2, 5)), Case(A(2, 5), axis=0), Case(A(5), descending=True)],
    "sort_complex": [Case(A(5))],
    "lexsort": [Case([A(5), A(5, low=0, high=1)])],
    "partition": [Case(A(2, 5), 2, seen=lambda x: x[..., 2:3])],
    "argpartition": [Case(A(2, 5), 2, seen=lambda x: x[..., 2:3])],
    "searchsorted": [Case(A(5, make=np.sort), A(2, 3)), Case(A(5, make=np.sort), A(3), side="right")],
    "digitize": [Case(A(2, 3), A(4, make=np.sort))],
    "bincount": [Case(whole(5, high=3), dtypes=("int32",), length=4)],
    "histogram": [Case(A(9), 4, range=(-2.0, 2.0))],
    "histogram_bin_edges": [Case(A(9), 4)],
    "interp": [Case(A(4), A(5, make=np.sort), A(5), fixed=(1,))],
    "diff": [Case(A(2, 4)), Case(A(2, 4), n=2, axis=0), Case(A(2, 4), prepend=0)],
    "ediff1d": [Case(A(4))],
    "gradient": [Case(A(4)), Case(A(3, 4), axis=1)],
    "trapezoid": [Case(A(2, 4)), Case(A(2, 4), A(4, make=np.sort))],
    "convolve": [Case(A(5), A(3)), Case(A(5), A(3), mode="same")],
    "correlate": [Case(A(5), A(3)), Case(A(5), A(3), mode="full")],
    "polyval": [Case(A(3), A(2, 3))],
    "polyadd": [Case(A(3), A(2))], "polysub": [Case(A(3), A(2))], "polymul": [Case(A(3), A(2))],
    "polyder": [Case(A(4))], "polyint": [Case(A(4))],
    "poly": [Case(A(3), dtypes=("float32", "float64", "complex64")), Case(A(), dtypes=("float32",))],
    "polydiv": [Case(A(4), A(2, low=1), dtypes=("float32", "float64"))],
    "polyfit": [Case(np.arange(5, dtype=np.float32), A(5), 2, dtypes=("float32",), tolerance=100)],
    "roots": [Case(np.array([1.0, -3.0, 2.0], np.float32), dtypes=("float32",), strip_zeros=False,
                   seen=lambda x: x.sum()),
              *[Case(np.array(p, np.float32), dtypes=("float32",), strip_zeros=False)
                for p in ([0.0, 1.0, 2.0], [0.0, 0.0, 2.0, 3.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0], [2.0, 1.0, 0.0])]],
    "vander": [Case(A(3), 3)],
    # Newer versions of jax refuse vectors in the plane.
    "cross": [Case(A(2, 3), A(2, 3)), *([Case(A(2), A(3))] if jax.__version_info__ < (0, 11) else [])],
    "dot": [Case(A(2, 3), A(3, 2)), Case(A(3), A(3)), Case(A(2, 3), A(2, 3, 2))],
    "matmul": [Case(A(2, 3), A(3, 2)), Case(A(3), A(3)), Case(A(4, 2, 3), A(3, 2)), Case(A(3), A(4, 3, 2))],
    "inner": [Case(A(2, 3), A(4, 3))],
    "outer": [Case(A(2), A(2, 2))],
    "vdot": [Case(A(2, 3), A(2, 3))],
    "vecdot": [Case(A(2, 3), A(3)), Case(A(2, 3), A(2, 1), axis=0)],
    "matvec": [Case(A(4, 2, 3), A(3))], "vecmat": [Case(A(2), A(4, 2, 3))],
    "tensordot": [Case(A(2, 3, 4), A(3, 4, 2)), Case(A(2, 3), A(4, 3), ((1,), (1,)))],
    "einsum": [Case("ij,jk->ik", A(2, 3), A(3, 2)), Case("...ii->...i", A(2, 3, 3)), Case("i,i,i", A(3), A(3), A(3))],
    "kron": [Case(A(2, 2), A(2, 3))],
    "trace": [Case(A(3, 4)), Case(A(2, 3, 4), offset=1, axis1=1, axis2=2)],
}

SHIFTED = {name: [Case(A(2, 5)), Case(A(2, 5), axes=1)] for name in ("fftshift", "ifftshift")}
ONE_AXIS = {name: [Case(A(2, 6)), Case(A(3, 4), n=5, axis=0, norm="ortho")]
            for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")}
TWO_AXES = {name: [Case(A(2, 3, 4)), Case(A(3, 4), s=(2, 5), norm="forward")]
            for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")}
FFT: dict[str, list[Case]] = {
    **SHIFTED, **ONE_AXIS, **TWO_AXES,
    "fftfreq": [Case(5, dtypes=("float32",)), Case(4, 0.5, dtypes=("float32",))],
    "rfftfreq": [Case(5, dtypes=("float32",)), Case(4, 0.5, dtypes=("float32",))],
}

CASES["cumulative_sum"].append(Case(A(4, low=100, high=200, dtype="uint8")))
CASES["diff"].append(Case(A(2, 4), n=0, prepend=0, append=1))
