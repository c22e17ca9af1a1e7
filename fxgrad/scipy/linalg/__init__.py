"""Linear algebra with the names of scipy.linalg: signatures and results are those of jax.scipy.linalg.

Arguments about memory and checks (`overwrite_a`, `check_finite`, `lwork`, ...) are accepted and ignored.
"""

from fxgrad.engine.frontend.value_calls import replay_public as _replay
from fxgrad.engine.pytorch_names import module_getattr as _of_module
from fxgrad.scipy.linalg.decompositions import (
    cholesky,
    eigh,
    eigh_tridiagonal,
    hessenberg,
    lu,
    polar,
    qr,
    qr_multiply,
    rsf2csf,
    schur,
    svd,
)
from fxgrad.scipy.linalg.functions import expm, expm_frechet, solve_sylvester, sqrtm
from fxgrad.scipy.linalg.special import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)
from fxgrad.scipy.linalg.systems import cho_factor, cho_solve, det, inv, lu_factor, lu_solve, solve, solve_triangular

__all__ = ["block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion", "convolution_matrix", "det",
           "dft", "eigh", "eigh_tridiagonal", "expm", "expm_frechet", "fiedler", "fiedler_companion", "hadamard",
           "hankel", "helmert", "hessenberg", "hilbert", "inv", "invhilbert", "invpascal", "leslie", "lu", "lu_factor",
           "lu_solve", "pascal", "polar", "qr", "qr_multiply", "rsf2csf", "schur", "solve", "solve_sylvester",
           "solve_triangular", "sqrtm", "svd", "toeplitz"]


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion


ABSENT = {
    "funm": "of a matrix with distinct eigenvalues write v @ (f(w)[:, None] * fnp.linalg.inv(v)), "
            "with w, v = fnp.linalg.eig(a)",
}
"""Names of jax.scipy.linalg that are missing here, each with a replacement."""
__getattr__ = _of_module(__name__, ABSENT)


_replay(globals(), "fxgrad.scipy", ("linalg.decompositions", "linalg.functions", "linalg.special", "linalg.systems"))
