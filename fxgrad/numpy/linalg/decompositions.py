"""Decompositions of matrices: Cholesky, QR, eigenvalues, singular values."""

from __future__ import annotations

from typing import Any, NamedTuple

from fxgrad.engine.ops import eigen, factorizations
from fxgrad.engine.ops.arithmetic import mul, neg
from fxgrad.engine.ops.comparison import lt
from fxgrad.engine.ops.indexing import take_along
from fxgrad.engine.ops.matrices import adjoint, as_row, cast_real_like, conj_if_complex, shape_of, transpose_matrices
from fxgrad.engine.ops.ordering import argsort
from fxgrad.engine.ops.parts import abs
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import broadcast_to
from fxgrad.engine.tracing.provenance import note_results
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.numpy.linalg.operands import from_triangle, matrices, symmetrize


class EighResult(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """The result of `eig`."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """The result of `qr`."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """The result of `svd`."""

    U: Any
    S: Any
    Vh: Any


def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """Return the lower triangular L with `L @ L.T.conj() = a`, or the upper U with `U.T.conj() @ U = a`.

    Unless `symmetrize_input`, only the lower triangle of `a` is read. Raises `numpy.linalg.LinAlgError` for a matrix
    that is not positive definite; under `jit` the result is then NaN.

    >>> cholesky([[4.0, 2.0], [2.0, 2.0]])
    array([[2., 0.],
           [1., 1.]])
    """
    a, = matrices("cholesky", a, square=True)
    factor = factorizations.cholesky(symmetrize(a) if symmetrize_input else a)
    return adjoint(factor) if upper else factor


def qr(a: Any, mode: str = "reduced") -> Any:
    """Return Q with orthonormal columns and the upper triangular R with `Q @ R = a`.

    `mode` is "reduced" (as few columns as needed), "complete" (a square Q) or "r" (R alone). Derivatives are those at
    matrices of full rank; a square Q of a tall matrix turns as the reflections do that LAPACK makes it of.

    >>> abs(qr([[3.0, 0.0], [4.0, 5.0]]).R).round(6)
    array([[5., 4.],
           [0., 3.]])
    """
    if mode == "raw":
        raise UnsupportedError(at_user_line("qr: mode='raw' is not supported: LAPACK's packed form has no derivatives "
                                            "here. Write fxgrad.numpy.linalg.qr(a), which gives Q and R"))
    if mode not in ("reduced", "complete", "full", "r"):
        raise ArgumentError(at_user_line(f"qr: mode={mode!r}; it is one of 'reduced', 'complete', 'r'"))
    a, = matrices("qr", a)
    q, r = factorizations.qr(a, full_matrices=mode in ("complete", "full"))
    if mode == "r":
        note_results((q, r), lambda: (None, ""))
        return r
    return QRResult(q, r)


# --- eigenvalues ------------------------------------------------------------------------------------------------------


def _is_lower(name: str, triangle: str | None) -> bool:
    if triangle not in (None, "L", "U"):
        raise ArgumentError(at_user_line(f"{name}: UPLO={triangle!r}; it is 'L' or 'U'"))
    return triangle != "U"


def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Return ascending eigenvalues and orthonormal eigenvectors (the columns) of Hermitian matrices.

    `a` is made Hermitian first, or else only its lower (`UPLO="L"`) or upper triangle is read.

    Eigenvectors of equal eigenvalues are not unique, and have no derivatives: 0 is used instead. Derivatives of
    quantities that do not depend on their choice are right, such as sums of eigenvalues. But for a function computed as
    `(v * f(w)) @ v.T`, the derivative at equal eigenvalues lacks the part that mixes them.

    >>> eigh([[2.0, 0.0], [0.0, 1.0]]).eigenvalues
    array([1., 2.])
    """
    lower = _is_lower("eigh", UPLO)
    a, = matrices("eigh", a, square=True)
    vectors, values = eigen.eigh(symmetrize(a) if symmetrize_input else from_triangle(a, lower), lower)
    note_results((vectors, values), lambda: ("[1]", "[0]"))
    return EighResult(values, vectors)


def eigvalsh(a: Any, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Any:
    """Return the ascending eigenvalues of Hermitian matrices; the arguments are those of `eigh`.

    >>> eigvalsh([[2.0, 0.0], [0.0, 1.0]])
    array([1., 2.])
    """
    lower = _is_lower("eigvalsh", UPLO)
    a, = matrices("eigvalsh", a, square=True)
    return eigen.eigh(symmetrize(a) if symmetrize_input else from_triangle(a, lower), lower)[1]


def eig(a: Any) -> EigResult:
    """Return eigenvalues and eigenvectors (columns of length 1, largest element real) of square matrices; complex.

    Both have derivatives if the eigenvalues are distinct. Under `jit` there is a kernel for CPUs only. For a matrix
    with a NaN in it all are NaN.

    >>> eig([[0.0, 1.0], [-1.0, 0.0]]).eigenvalues
    array([0.+1.j, 0.-1.j])
    """
    a, = matrices("eig", a, square=True)
    return EigResult(*eigen.eig(a))


def eigvals(a: Any) -> Any:
    """Return the eigenvalues of square matrices, complex; see `eig`.

    >>> eigvals([[0.0, 1.0], [-1.0, 0.0]])
    array([0.+1.j, 0.-1.j])
    """
    a, = matrices("eigvals", a, square=True)
    return eigen.eig(a, right=False)[0]


# --- singular values --------------------------------------------------------------------------------------------------


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False,
        subset_by_index: tuple[int, int] | None = None) -> Any:
    """Return U, the descending singular values S and Vh with `(U * S) @ Vh = a`, or S alone.

    With `full_matrices` U and Vh are square. With `hermitian` the matrices are assumed Hermitian. As for `eigh`,
    vectors of equal singular values have no derivatives, nor have those of the value 0: 0 is used instead. The vectors
    that complete U or Vh to a square matrix are unique up to a rotation only, so derivatives of values that depend on
    its choice are meaningless. For a matrix with a NaN in it all are NaN.

    >>> svd([[0.0, 2.0], [1.0, 0.0]]).S
    array([2., 1.])
    """
    a, = matrices("svd", a, square=hermitian)
    size = min(shape_of(a)[-2:])
    if subset_by_index not in (None, (0, size)):
        raise UnsupportedError(at_user_line(f"svd: subset_by_index={subset_by_index!r} is not supported; compute all "
                                            "and slice: U[:, first:last]"))
    if hermitian:
        return _by_eigenvalues(a, compute_uv)
    found = eigen.svd(a, full_matrices, compute_uv)
    return SVDResult(*found) if compute_uv else found[0]


def _by_eigenvalues(a: Any, compute_uv: bool) -> Any:
    """Singular values are the magnitudes of eigenvalues, and U has their signs."""
    vectors, values = eigen.eigh(symmetrize(a))
    sizes = abs(values)
    order = argsort(neg(sizes), len(shape_of(sizes)) - 1)
    last = len(shape_of(a)) - 1
    sizes = take_along(sizes, order, last - 1, "promise_in_bounds", ("unique",))
    if not compute_uv:
        return sizes
    columns = broadcast_to(as_row(order), shape_of(vectors))
    vectors = take_along(vectors, columns, last, "promise_in_bounds", ("unique",))
    ordered = take_along(values, order, last - 1, "promise_in_bounds", ("unique",))
    signs = where(lt(ordered, 0.0), broadcast_to(scalar_like(-1, ordered), shape_of(ordered)), 1.0)
    return SVDResult(mul(vectors, cast_real_like(as_row(signs), vectors)), sizes,
                     conj_if_complex(transpose_matrices(vectors)))


def svdvals(x: Any, /) -> Any:
    """Return the descending singular values of matrices.

    >>> svdvals([[0.0, 2.0], [1.0, 0.0]])
    array([2., 1.])
    """
    x, = matrices("svdvals", x)
    return eigen.svd(x, full_matrices=False, compute_uv=False)[0]
