"""Linear algebra with the names, signatures and results of jax.numpy.linalg; NumPy's functions dispatch here too.

NumPy raises `numpy.linalg.LinAlgError` for a singular matrix, and for one that is not positive definite; under `jit`
nothing can be raised, and results are NaN or infinite. Iterations that do not converge, as for a matrix with a NaN in
it, give NaN everywhere.
"""

from fxgrad.engine.frontend.value_calls import replay_public as _replay
from fxgrad.numpy.linalg.decompositions import cholesky, eig, eigh, eigvals, eigvalsh, qr, svd, svdvals
from fxgrad.numpy.linalg.norms import cond, matrix_norm, matrix_rank, norm, vector_norm
from fxgrad.numpy.linalg.products import cross, diagonal, multi_dot, outer, trace
from fxgrad.numpy.linalg.solving import (
    det,
    inv,
    lstsq,
    matrix_power,
    pinv,
    slogdet,
    solve,
    tensorinv,
    tensorsolve,
)
from fxgrad.numpy.products import matmul, tensordot, vecdot
from fxgrad.numpy.shaping import matrix_transpose

__all__ = ["cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq",
           "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer",
           "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace",
           "vecdot", "vector_norm"]


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion


_replay(globals(), "fxgrad.numpy", ("linalg.decompositions", "linalg.norms", "linalg.products", "linalg.solving",
                                    "linalg.triangles", "products", "rearranging", "shaping", "statistics"))
