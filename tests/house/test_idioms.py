"""Idioms of plain NumPy code, and of jax's style, under grad, jit and vmap: as in NumPy, or refused with a cure.

Each is the body of a function of a vector or of a matrix `x`. `cured` replaces lines by the code that messages suggest;
where values are unknown and other code is needed, it is given as `traced`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from fxgrad import eval_shape, jit, value_and_grad, vmap
from fxgrad.errors import ConcretizationError
from tests.support.cures import compiled, cured

VECTOR = np.array([0.7, -1.3, 2.1, 0.4])
MATRIX = np.array([[2.0, 0.3, -0.5], [0.3, 1.5, 0.2], [-0.4, 0.1, 3.0]])


class Idiom(NamedTuple):
    """The body, and its replacement where values are unknown."""

    body: str
    traced: str = ""


OF_VECTORS: dict[str, Idiom | str] = {
    # Reductions and statistics.
    "mean square": "return np.mean(x ** 2)",
    "norm": "return np.linalg.norm(x)",
    "norm of order 1": "return np.linalg.norm(x, 1)",
    "norm, infinite": "return np.linalg.norm(x, np.inf)",
    "root mean square": "return np.sqrt((x * x).mean())",
    "standardize": "return (x - x.mean()) / (x.std() + 1e-6)",
    "normalize": "return x / np.linalg.norm(x)",
    "minmax": "return (x - x.min()) / (x.max() - x.min())",
    "softmax": "e = np.exp(x - np.max(x))\nreturn e / e.sum()",
    "logsumexp": "m = x.max()\nreturn m + np.log(np.sum(np.exp(x - m)))",
    "variance with ddof": "return np.var(x, ddof=1)",
    "median": "return np.median(x)",
    "percentile": "return np.percentile(x, 30)",
    "quantiles": "return np.quantile(x, [0.25, 0.75])",
    "peak to peak": "return np.ptp(x)",
    "average with weights": "return np.average(x, weights=[1.0, 2.0, 3.0, 4.0])",
    "product": "return np.prod(x)",
    "cumulative sum": "return np.cumsum(x)",
    "cumulative product": "return np.cumprod(x)",
    "running mean": "return np.cumsum(x) / np.arange(1, 5)",
    "count": "return np.count_nonzero(x > 0) * x",
    "any and all": "return x * np.any(x > 2) + x * np.all(x > 2)",
    "argmax as an index": "return x[np.argmax(x)] ** 2",
    "histogram": "return np.histogram(x, bins=3, range=(-2, 3))[0] * x[:3]",
    "covariance": "return np.cov(x, x ** 2)",
    "correlation": "return np.corrcoef(x, np.sin(x))[0, 1]",
    "reduce of a ufunc": "return np.add.reduce(x) * np.maximum.reduce(x)",
    "accumulate of a ufunc": "return np.add.accumulate(x)",
    "outer of a ufunc": "return np.subtract.outer(x, x) ** 2",
    "nan functions": "return np.nanmean(x) + np.nansum(x) + np.nanmax(x)",
    # Elementwise.
    "sigmoid": "return 1 / (1 + np.exp(-x))",
    "softplus": "return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)",
    "relu": "return np.maximum(0, x)",
    "leaky relu": "return np.where(x > 0, x, 0.01 * x)",
    "gelu": "return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))",
    "clip": "return np.clip(x, -1, 1)",
    "clip, the method": "return x.clip(-1, 1)",
    "huber": "a = np.abs(x)\nreturn np.where(a < 1, 0.5 * a ** 2, a - 0.5)",
    "sign": "return np.sign(x) * x ** 2",
    "power with a negative exponent": "return np.abs(x) ** -1.5",
    "hypot": "return np.hypot(x, 2.0)",
    "arctan2": "return np.arctan2(x, 1.0 + x ** 2)",
    "floor and modulo": "return x // 0.37 + x % 0.37",
    "divmod": "q, r = divmod(x, 0.43)\nreturn q + r * r",
    "round": "return np.round(x, 1) + x.round() + round(x[0])",
    "sinc": "return np.sinc(x)",
    "heaviside": "return np.heaviside(x, 0.5) * x",
    "angles": "return np.deg2rad(x) + np.rad2deg(x)",
    "complex phase": "return np.abs(np.exp(1j * x) + 1.0)",
    "real and imaginary parts": "z = x + 1j * x ** 2\nreturn (z * z.conj()).real + (z * z).imag",
    "select": "return np.select([x > 1, x > 0], [x ** 2, x], -x)",
    "piecewise": "return np.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v ** 2])",
    "interp": "return np.interp(x, [-2.0, 0.0, 3.0], [1.0, 5.0, -1.0])",
    "polynomial": "return np.polyval([1.0, -2.0, 3.0], x)",
    "horner": "y = 0\nfor c in (1.0, -2.0, 3.0):\n    y = y * x + c\nreturn y",
    "nan_to_num": "return np.nan_to_num(x)",
    "isfinite": "return np.where(np.isfinite(x), x, 0.0)",
    "logical": "return np.where((x > 0) & (x < 2) | ~(x > -1), x, 0.0)",
    "bool times": "return (x > 0) * x",
    "where of one argument": Idiom("return x[np.where(x > 0)]", "return np.where(x > 0, x, 0.0)[np.array([0, 2, 3])]"),
    "exponential of a difference": "return np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2)",
    "fmin, fmax": "return np.fmin(x, 1.0) + np.fmax(x, 0.0)",
    "log2 and log10": "return np.log2(np.abs(x)) + np.log10(np.abs(x))",
    # Indexing and shaping.
    "differences": "return np.diff(x)",
    "differences by slices": "return x[1:] - x[:-1]",
    "stride": "return x[::2] * x[1::2]",
    "reversed": "return x[::-1] * np.arange(4.0)",
    "last": "return x[-1] * x[-2]",
    "index array": "return x[[0, 0, 2]] ** 2",
    "mask": Idiom("return np.sum(x[x > 0] ** 2)", "return np.sum(np.where(x > 0, x, 0) ** 2)"),
    "new axis": "return x[:, np.newaxis] * x[np.newaxis, :]",
    "ellipsis": "return x[..., None].T",
    "unpacking": "a, b, c, d = x\nreturn a * b + c / d",
    "unpacking with a star": "a, *rest = x\nreturn a * sum(rest)",
    "enumerate": "s = 0.0\nfor i, v in enumerate(x):\n    s += i * v ** 2\nreturn s",
    "zip": "return sum(a * b for a, b in zip(x, x[1:]))",
    "comprehension": "return np.stack([v ** 2 for v in x])",
    "array of a comprehension": "return np.array([v ** 2 for v in x])",
    "list of scalars": "return np.array([x[0], x[1] * 2, 3.0])",
    "matrix of scalars": "c, s = np.cos(x[0]), np.sin(x[0])\nreturn np.array([[c, -s], [s, c]]) @ x[:2]",
    "len and size": "return np.sum(x) / len(x) + x.size * x.ndim",
    "concatenate": "return np.concatenate([x, [1.0, 2.0], x ** 2])",
    "hstack": "return np.hstack([x, x]) + np.hstack((1.0, x, x[:3]))[:8]",
    "column_stack": "return np.column_stack([np.ones(4), x, x ** 2])",
    "append": "return np.append(x, x[0])",
    "pad": "return np.pad(x, (1, 2))",
    "pad with edges": "return np.pad(x, 1, mode='edge')",
    "roll": "return x * np.roll(x, 1)",
    "tile and repeat": "return np.tile(x, 2) * np.repeat(x, 2)",
    "reshape": "return x.reshape(2, 2).T.reshape(-1) * x",
    "reshape with -1": "return x.reshape(-1, 2).sum(axis=1)",
    "split": "a, b = np.split(x, 2)\nreturn a * b",
    "sort": "return np.sort(x) * np.arange(4.0)",
    "argsort": "return x[np.argsort(x)][:2]",
    "largest": "return np.sort(x)[-2:]",
    "partition": "return np.sum(np.partition(x, 2)[:2])",
    "flip": "return np.flip(x) * x",
    "meshgrid": "a, b = np.meshgrid(x, x)\nreturn a * b ** 2",
    "diagonal matrix": "return np.diag(x) @ x",
    "vander": "return np.vander(x, 3)",
    "searchsorted": "return x * np.searchsorted(np.array([0.0, 1.0]), x)",
    "digitize": "return x * np.digitize(x, np.array([0.0, 1.0]))",
    "take": "return np.take(x, [1, 2]) * x.take(0)",
    "linspace between values": "return np.linspace(x[0], x[1], 5)",
    "trapezoid": "return np.trapezoid(x ** 2, dx=0.1)",
    "gradient": "return np.gradient(x ** 2)",
    "convolve": "return np.convolve(x, [0.25, 0.5, 0.25], mode='same')",
    "correlate": "return np.correlate(x, x, 'full')",
    "fft": "return np.abs(np.fft.fft(x)) ** 2",
    "rfft": "return np.fft.irfft(np.fft.rfft(x) * 0.5)",
    "one-hot": "return np.eye(4)[np.array([0, 2])] @ x",
    "ones_like": "return x * np.ones_like(x) + np.zeros_like(x)",
    "full_like": "return x * np.full_like(x, 2.0)",
    "full of a value": "return np.full(4, x[0]) * x",
    "arange of a length": "return x * np.arange(len(x))",
    "dot": "return np.dot(x, x) + x.dot(x) + x @ x + np.inner(x, x) + np.vdot(x, x)",
    "outer": "return np.outer(x, x ** 2)",
    "cross": "return np.cross(x[:3], x[1:])",
    "einsum of vectors": "return np.einsum('i,i->', x, x) + np.einsum('i,j->ij', x, x)",
    "kron": "return np.kron(x[:2], x)",
    "broadcast_to": "return np.broadcast_to(x, (3, 4)) * np.arange(3.0)[:, None]",
    "atleast_2d": "return np.atleast_2d(x) @ np.atleast_2d(x).T",
    "expand_dims and squeeze": "return np.squeeze(np.expand_dims(x, 0) * 2.0)",
    "insert": "return np.insert(x, 1, 5.0)",
    "delete": "return np.delete(x, 1) ** 2",
    "unique of indices": "return x[np.unique(np.array([2, 0, 2]))]",
    "apply_along_axis": "return np.apply_along_axis(np.sum, 0, x ** 2)",
    "vectorize": "return np.vectorize(lambda v: v * 2.0)(np.arange(4.0)) * x",
    # Changes in place and state.
    "accumulator": "s = np.zeros(4)\nfor i in range(3):\n    s = s + x * i\nreturn s",
    "accumulator in place": "s = np.zeros(4)\nfor i in range(3):\n    s += x * i\nreturn s",
    "traced accumulator in place": "s = x * 0.0\nfor i in range(3):\n    s += x * i\nreturn s",
    "array filled": "y = np.zeros(4)\nfor i in range(4):\n    y[i] = x[i] ** 2\nreturn y",
    "array filled by np.empty": "y = np.empty(4)\ny[0] = x[0]\ny[1:] = x[1:] * x[:-1]\nreturn y",
    "list collected": "y = []\nfor v in x:\n    y.append(v ** 2)\nreturn np.stack(y)",
    "copy changed": "y = x.copy()\ny[0] = 0.0\nreturn y",
    "mask changed": "y = x.copy()\ny[x < 0] = 0.0\nreturn y",
    "slice increased": "y = x * 1.0\ny[1:3] += 1.0\nreturn y ** 2",
    "swap by an index": "y = x[[1, 0, 2, 3]]\nreturn y * np.arange(4.0)",
    "add.at": "y = np.zeros(3)\nnp.add.at(y, [0, 1, 0, 2], x)\nreturn y ** 2",
    "bincount": "return np.bincount(np.array([0, 1, 0, 2]), weights=x)",
    "sort in place": "y = x.copy()\ny.sort()\nreturn y * np.arange(4.0)",
    "out": "y = np.empty(4)\nnp.multiply(x, 2.0, out=y)\nreturn y",
    "recurrence": "h = 0.0\nfor v in x:\n    h = np.tanh(0.5 * h + v)\nreturn h",
    "euler steps": "u, v = x[0], x[1]\nfor _ in range(5):\n    u, v = u + 0.1 * v, v - 0.1 * u\nreturn u * v",
    "velocity in place": ("p, v = x[:2] * 1.0, x[2:] * 1.0\nfor _ in range(3):\n    v -= 0.1 * p\n    p += 0.1 * v"
                          "\nreturn p"),
    # Python's control flow and numbers.
    "if": Idiom("return x.sum() ** 2 if x.sum() > 0 else -x.sum()", "s = x.sum()\nreturn np.where(s > 0, s ** 2, -s)"),
    "while": Idiom("s = np.sum(x ** 2)\nwhile s > 1.0:\n    s = s / 2.0\nreturn s",
                   "return fxgrad.lax.while_loop(lambda s: s > 1.0, lambda s: s / 2.0, np.sum(x ** 2))"),
    "abs and max of Python": Idiom("return abs(x[0]) + max(x[0], x[1]) * min(x[2], x[3])",
                                   "return abs(x[0]) + np.maximum(x[0], x[1]) * np.minimum(x[2], x[3])"),
    "sum of Python": "return sum(x) + sum(v ** 2 for v in x)",
    "sorted": Idiom("return sorted(x)[0] * 2.0", "return np.sort(x)[0] * 2.0"),
    "int of a value": Idiom("return x * int(x[2])", "return x * np.trunc(x[2])"),
    "range of a value": Idiom("s = 0.0\nfor i in range(int(x[2])):\n    s = s + x[0] * i\nreturn s",
                              "n = np.trunc(x[2]).astype(int)\n"
                              "return fxgrad.lax.fori_loop(0, n, lambda i, s: s + x[0] * i, 0 * x[0])"),
    "index of a value": "return x[np.argmin(x)] * 3.0",
    "table at a value": "t = np.arange(4.0) ** 2\nreturn t[np.argmax(x)] * x",
    "assert": Idiom("assert x[0] > 0\nreturn x", "return x"),
    "print": "text = f'{x}'\nreturn x * 2.0",
    "chained comparison": Idiom("return x if 0 < x[0] < 1 else -x",
                                "return np.where((0 < x[0]) & (x[0] < 1), x, -x)"),
    "truth of an array": Idiom("return x if np.any(x > 2) else -x", "return np.where(np.any(x > 2), x, -x)"),
    "math": "return math.exp(x[0]) * math.sqrt(x[2])",
    "pow": "return pow(x, 2) + x ** 3",
    "recursion": "def power(b, n):\n    return 1.0 if n == 0 else b * power(b, n - 1)\nreturn power(x, 4)",
    "default dtype": "return x.astype(np.float32) * np.float32(2)",
    "shape in arithmetic": "return x / x.shape[0] + x * x.dtype.itemsize",
    "isinstance": "return x * 2.0 if np.ndim(x) == 1 else x",
    "containers": "p = {'w': x[:2], 'b': x[2:]}\nreturn p['w'] * p['b'] + sum(np.sum(v) for v in p.values())",
    # jax's style.
    "at set": "return fxgrad.numpy.at(x)[1].set(9.0)",
    "at add": "return fxgrad.numpy.at(x)[np.array([0, 0])].add(1.0) ** 2",
    "lax scan": "c, ys = fxgrad.lax.scan(lambda c, v: (c + v, c * v), 0.0 * x[0], x)\nreturn c * ys",
    "lax cond": "return fxgrad.lax.cond(x[0] > 0, lambda v: v ** 2, lambda v: -v, x)",
    "fori_loop": "return fxgrad.lax.fori_loop(0, 3, lambda i, c: c * 0.5 + x, x)",
    "inner grad": "return fxgrad.vmap(fxgrad.grad(lambda v: np.sin(v) * v))(x)",
    "inner jit": "return fxgrad.jit(lambda v: v ** 2 * v)(x)",
    "inner vmap": "return fxgrad.vmap(lambda v: v * x)(x)",
    "inner jvp": "return fxgrad.jvp(np.sin, (x,), (x,))[1]",
    "stop_gradient": "return x * fxgrad.numpy.sign(x) + 0.0 * fxgrad.stop_gradient(x)",
    "tree map": "t = fxgrad.tree.map(lambda v: v * 2.0, {'a': x, 'b': [x, x]})\nreturn t['a'] + t['b'][1]",
    "one_hot": "return fxgrad.nn.one_hot(np.array([0, 2]), 4) @ x",
    "logsumexp of jax": "return fxgrad.scipy.special.logsumexp(x)",
}

OF_MATRICES: dict[str, Idiom | str] = {
    "trace": "return np.trace(x) + x.trace()",
    "transpose": "return x.T @ x - x @ x.T",
    "sum over axes": "return x.sum(0) * x.sum(axis=1)",
    "keepdims": "return x - x.mean(axis=1, keepdims=True)",
    "row softmax": "e = np.exp(x - x.max(axis=1, keepdims=True))\nreturn e / e.sum(1, keepdims=True)",
    "row norms": "return np.linalg.norm(x, axis=1)",
    "distances": "d = x[:, None, :] - x[None, :, :]\nreturn np.sqrt((d ** 2).sum(-1) + 1.0)",
    "solve": "return np.linalg.solve(x, np.arange(3.0))",
    "inverse": "return np.linalg.inv(x) @ np.ones(3)",
    "determinant": "return np.linalg.det(x)",
    "slogdet": "sign, log = np.linalg.slogdet(x)\nreturn sign * log",
    "cholesky": "return np.linalg.cholesky(x @ x.T + np.eye(3))",
    "eigh": "return np.linalg.eigh(x + x.T)[0]",
    "eigvalsh": "return np.linalg.eigvalsh(x + x.T)",
    "svd": "return np.linalg.svd(x, compute_uv=False)",
    "qr": "q, r = np.linalg.qr(x)\nreturn np.abs(np.diag(r))",
    "pinv": "return np.linalg.pinv(x)",
    "lstsq": "return np.linalg.lstsq(x, np.arange(3.0), rcond=None)[0]",
    "matrix_power": "return np.linalg.matrix_power(x, 3)",
    "multi_dot": "return np.linalg.multi_dot([x, x.T, x])",
    "quadratic form": "v = np.arange(3.0)\nreturn v @ x @ v",
    "einsum": "return np.einsum('ij,jk->ik', x, x) + np.einsum('ii->i', x)",
    "tensordot": "return np.tensordot(x, x, axes=([0], [1]))",
    "triu and tril": "return np.triu(x) @ np.tril(x, -1)",
    "diagonal": "return x.diagonal() * np.diag(x)",
    "rows": "return sum(row @ row for row in x)",
    "columns": "return sum(c[0] * c[1] for c in x.T)",
    "row changed": "y = x.copy()\ny[0] = y[1] * 2.0\nreturn y",
    "row in place": "y = x.copy()\ny[0] += 1.0\nreturn y ** 2",
    "column in place": "y = x.copy()\ny[:, 1] *= 2.0\nreturn y ** 2",
    "element in place": "y = x * 1.0\ny[1, 2] -= 3.0\nreturn y ** 2",
    "diagonal filled": "y = x * 1.0\nnp.fill_diagonal(y, 0.0)\nreturn y ** 2",
    "gauss elimination": "a = x.copy()\nfor i in range(2):\n    for j in range(i + 1, 3):\n"
                         "        a[j] = a[j] - a[i] * (a[j, i] / a[i, i])\nreturn a[0, 0] * a[1, 1] * a[2, 2]",
    "max over an axis": "return x.max(axis=0) + x.min(axis=1)",
    "argmax over an axis": "return x[np.arange(3), x.argmax(axis=1)]",
    "gather": "return x[np.arange(3), [0, 2, 1]] ** 2",
    "take_along_axis": "return np.take_along_axis(x, np.argsort(x, axis=1), axis=1)",
    "ix_": "return x[np.ix_([0, 2], [1, 2])]",
    "blocks": "return np.block([[x, np.eye(3)], [np.zeros((3, 3)), x]]) @ np.ones(6)",
    "vstack": "return np.vstack([x, x[0]]) ** 2",
    "stack": "return np.stack([x, x.T], axis=-1)",
    "flatten": "return x.flatten() * x.ravel()",
    "moveaxis": "return np.moveaxis(x[None], 0, -1)",
    "swapaxes": "return x.swapaxes(0, 1) * np.arange(3.0)",
    "cumulative along an axis": "return np.cumsum(x, axis=1) + np.cumprod(x, 0)",
    "sort along an axis": "return np.sort(x, axis=0)",
    "rotation": "return np.rot90(x) * x",
    "centering": "h = np.eye(3) - np.ones((3, 3)) / 3\nreturn h @ x @ h",
    "covariance of rows": "return np.cov(x)",
    "power iteration": ("v = np.ones(3)\nfor _ in range(4):\n    v = x @ v\n    v = v / np.linalg.norm(v)"
                        "\nreturn v @ x @ v"),
    "newton inverse": "y = x.T / np.sum(x ** 2)\nfor _ in range(3):\n    y = y @ (2 * np.eye(3) - x @ y)\nreturn y",
    "attention": ("s = x @ x.T / np.sqrt(3)\ne = np.exp(s - s.max(-1, keepdims=True))"
                  "\nreturn (e / e.sum(-1, keepdims=True)) @ x"),
    "layer": "w, b = x[:2], x[2, :2]\nreturn np.tanh(w @ np.arange(3.0) + b)",
    "NumPy's array times": "a = np.arange(9.0).reshape(3, 3)\nreturn a @ x + a.dot(x) * 2.0",
    "solve of scipy": "return scipy.linalg.solve(x, np.arange(3.0))",
    "expm of scipy": "return scipy.linalg.expm(x * 0.1)",
    "cross of rows": "return np.cross(x[0], x[1]) @ x[2]",
    "where with axes": "return np.where(x > x.mean(), x, x.mean())",
    "any over an axis": "return x * np.any(x > 1.9, axis=1)[:, None]",
    "fft2": "return np.abs(np.fft.fft2(x))",
    "pad of a matrix": "return np.pad(x, ((0, 1), (1, 0)), mode='constant', constant_values=2.0)",
    "convolution by slices": "return sum(x[i:i + 2, j:j + 2] * (i - 2 * j) for i in range(2) for j in range(2))",
    "laplacian": "return x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]",
    "logdet": "return 2 * np.sum(np.log(np.diag(np.linalg.cholesky(x @ x.T + np.eye(3)))))",
    "vmap of a function": "return fxgrad.vmap(lambda r: r / np.linalg.norm(r))(x)",
    "hessian inside": "return fxgrad.hessian(lambda v: np.sum(np.sin(x @ v)))(np.ones(3))",
    "scan over rows": "return fxgrad.lax.scan(lambda c, r: (np.tanh(c + r), c @ r), 0.0 * x[0], x)[1]",
}

IDIOMS = {**{name: (idiom, VECTOR) for name, idiom in OF_VECTORS.items()},
          **{f"matrix: {name}": (idiom, MATRIX) for name, idiom in OF_MATRICES.items()}}


def total(output: Any) -> Any:
    """Return one number that distinguishes outputs."""
    if isinstance(output, list | tuple):
        return sum(total(part) for part in output)
    output = np.asarray(output) if isinstance(output, jax.Array) else output
    return np.sum(output * np.cos(np.arange(float(np.size(output)))).reshape(np.shape(output)))


def run(name: str, transformed: Callable[[Callable[[Any], Any]], Any]) -> Any:
    """Run the idiom under a transformation: unchanged, after the cures of its messages, or as written for traces."""
    given, _ = IDIOMS[name]
    idiom = given if isinstance(given, Idiom) else Idiom(given)
    try:
        return cured(idiom.body, transformed)
    except ConcretizationError as error:
        assert idiom.traced, f"{name} has no cure: {error}"  # noqa: PT017
        return transformed(compiled(idiom.traced.split("\n")))


def expected(name: str, x: Any) -> Any:
    given, _ = IDIOMS[name]
    return compiled((given if isinstance(given, Idiom) else Idiom(given)).body.split("\n"))(x.copy())


def test_there_are_enough() -> None:
    assert len(IDIOMS) >= 150


@pytest.mark.parametrize("name", IDIOMS)
def test_gradient(name: str) -> None:
    _, x = IDIOMS[name]
    value = total(expected(name, x))
    for _ in range(2):
        found, slope = run(name, lambda function: value_and_grad(lambda x: total(function(x)))(x))
        np.testing.assert_allclose(found, value, rtol=5e-12, atol=2e-15)
    step = 1e-6 * np.sin(1.0 + np.arange(x.size)).reshape(x.shape)
    if expected(name, x + step) is not None and np.asarray(slope).dtype == np.float64 and "default dtype" not in name:
        difference = (total(expected(name, x + step)) - total(expected(name, x - step))) / 2
        np.testing.assert_allclose(np.sum(slope * step), difference, rtol=2e-6, atol=2e-14)


@pytest.mark.parametrize("name", IDIOMS)
def test_batch(name: str) -> None:
    _, x = IDIOMS[name]
    rows = np.stack([x, x + 0.01])
    found = run(name, lambda function: vmap(lambda x: total(function(x)))(rows))
    np.testing.assert_allclose(found, [total(expected(name, row)) for row in rows], rtol=5e-12, atol=2e-15)


TOGETHER = 16
"""So many idioms are compiled as one program, since most of the time goes there."""
GROUPS = [[*IDIOMS][begin:begin + TOGETHER] for begin in range(0, len(IDIOMS), TOGETHER)]


def traceable(function: Callable[[Any], Any], x: Any) -> Callable[[Any], Any]:
    """The total of a function, which refuses here what it refuses while it is compiled."""
    of_output = lambda x: total(function(x))
    eval_shape(jit(of_output), x)
    return of_output


@pytest.mark.slow
@pytest.mark.parametrize("names", GROUPS, ids=[f"{group[0]} to {group[-1]}" for group in GROUPS])
def test_compiled(names: list[str]) -> None:
    xs = [IDIOMS[name][1] for name in names]
    functions = [run(name, lambda function, x=x: traceable(function, x)) for name, x in zip(names, xs, strict=True)]
    found = jit(lambda xs: [function(x) for function, x in zip(functions, xs, strict=True)])(xs)
    for name, x, value in zip(names, xs, found, strict=True):
        np.testing.assert_allclose(value, total(expected(name, x)), rtol=1e-12, atol=1e-15, err_msg=name)
