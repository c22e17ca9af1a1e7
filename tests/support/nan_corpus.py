"""Functions whose gradients are NaN by the rules of calculus applied one by one, and their true gradients.

They are of the kinds that people report. Each is written for any library with the names of jax, passed as `k`. The
gradient is that of the selected value if there is a selection, the limit if there is one, and at a kink the subgradient
of least norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

INF, NAN = math.inf, math.nan
MIXED, ZERO = np.array([0.0, 1.0, 4.0]), np.zeros(3)
ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]])
WEIGHTS = np.array([0.5, -1.0, 2.0])
POINTS = np.array([[0.0, 0.1, 0.2], [1.0, -0.2, 1.3], [2.4, 1.2, -0.2]])
CHARGES = np.array([1.3, 0.3, -0.7])
OFF_DIAGONAL = ~np.eye(3, dtype=bool)
SEEN = np.array([[1.0, 2.0], [NAN, 1.0], [3.0, -1.0]])
SEEN_ROWS = np.array([True, False, True])


class Case(NamedTuple):
    """`function(k, x)` is a scalar; `gradient` is what it is at `x`, and `hessian` that of it where there is one.

    `threads` are reports of the kind; `works` is whether `fxgrad.nan_safe` finds the gradient, and if not, `why`.
    """

    function: Callable[[Any, Any], Any]
    x: Any
    gradient: Any
    threads: str = ""
    hessian: Any = None
    why: str = ""


def _rows_over_norm(x: Any) -> Any:
    norm = np.sqrt((x * x).sum(1, keepdims=True))
    return np.where(norm > 0, x / np.where(norm > 0, norm, 1.0), 0.0)


def _coulomb_gradient(points: Any) -> Any:
    apart = points[:, None] - points[None]
    cubed = np.where(OFF_DIAGONAL, ((apart ** 2).sum(-1) + np.eye(3)) ** 1.5, INF)
    return -2 * (np.outer(CHARGES, CHARGES)[..., None] * apart / cubed[..., None]).sum(1)


def coulomb(k: Any, x: Any) -> Any:
    distance = k.numpy.linalg.norm(x[:, None] - x[None], axis=-1)
    return k.numpy.sum(k.numpy.where(OFF_DIAGONAL, np.outer(CHARGES, CHARGES) / distance, 0.0))


def masked_entropy(k: Any, x: Any) -> Any:
    chosen = np.array([True, True, False])
    weights = k.nn.softmax(k.numpy.where(chosen, x, -INF))
    return -k.numpy.sum(k.numpy.where(chosen, weights * k.numpy.log(weights), 0.0))


def attention_with_an_empty_row(k: Any, x: Any) -> Any:
    allowed = np.array([[True, True], [False, False]])
    scores = k.numpy.outer(x, x) + np.where(allowed, 0.0, -INF)
    parts = k.numpy.exp(scores - k.numpy.max(scores, axis=1, keepdims=True))
    shares = parts / k.numpy.sum(parts, axis=1, keepdims=True)
    return k.numpy.sum(k.numpy.where(allowed.any(1, keepdims=True), shares, 0.0) @ np.array([1.0, 3.0]))


def _attention_gradient() -> Any:
    share = 1 / (1 + math.exp(-1.0 * (2.0 - 1.0)))  # of x[1], where x is (1, 2) and the scores x[0] * x
    slope = 2.0 * share * (1 - share)
    return np.array([slope * (2.0 - 2.0 * 1.0), slope * 1.0])  # of x0 (x1 - x0)


def masked_softmax(k: Any, x: Any) -> Any:
    chosen = np.array([True, True, False])
    parts = k.numpy.where(chosen, k.numpy.exp(x - 1.0), 0.0)
    return k.numpy.sum(parts / k.numpy.sum(parts) * WEIGHTS)


def rotation_angle(k: Any, x: Any) -> Any:
    sine = k.numpy.linalg.norm(x)
    return k.numpy.where(sine > 1e-6, 2.0 * k.numpy.arctan2(sine, 1.0) / sine, 2.0) + k.numpy.sum(WEIGHTS * x)


def huber(k: Any, x: Any) -> Any:
    size = k.numpy.linalg.norm(x)
    return k.numpy.where(size < 1.0, 0.5 * size ** 2, size - 0.5)


def cosine_with_floor(k: Any, x: Any) -> Any:
    size = k.numpy.sqrt(x @ x) * np.sqrt(WEIGHTS @ WEIGHTS)
    return (x @ WEIGHTS) / k.numpy.maximum(size, 1e-3)


def root_of_matrix(k: Any, x: Any) -> Any:
    values = k.numpy.linalg.eigvalsh(x)
    return k.numpy.sum(k.numpy.where(values > 1e-9, k.numpy.sqrt(values), 0.0))


def scanned(k: Any, x: Any) -> Any:
    def step(total: Any, each: Any) -> Any:
        return total + k.numpy.where(each > 0, k.numpy.sqrt(each), 0.0), None
    return k.lax.scan(step, 0.0, x)[0]


def repeated(k: Any, x: Any) -> Any:
    def step(index: Any, total: Any) -> Any:
        return total + k.numpy.where(x[index] > 0, k.numpy.sqrt(x[index]), 0.0)
    return k.lax.fori_loop(0, 3, step, 0.0)


def standardised(k: Any, x: Any) -> Any:
    deviation = k.numpy.std(x)
    return k.numpy.sum(WEIGHTS * (x - k.numpy.mean(x)) / k.numpy.where(deviation > 0, deviation, 1.0))


def with_rule(k: Any, x: Any) -> Any:
    root = k.custom_jvp(lambda x: k.numpy.sqrt(x))
    root.defjvp(lambda primals, tangents: (root(*primals), tangents[0] * (0.5 / root(*primals))))
    return k.numpy.sum(k.numpy.where(x > 0, root(x), 0.0))


def with_backward_rule(k: Any, x: Any) -> Any:
    root = k.custom_vjp(lambda x: k.numpy.sqrt(x))
    root.defvjp(lambda x: (k.numpy.sqrt(x), x), lambda x, t: (t * (0.5 / k.numpy.sqrt(x)),))
    return k.numpy.sum(k.numpy.where(x > 0, root(x), 0.0))


ROOTS = np.array([0.0, 0.5, 0.25])
CASES: dict[str, Case] = {
    # choices
    "a root beside a line": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x < 1.0, x, k.numpy.sqrt(x))), np.array([0.0, 0.5, 4.0]),
        [1.0, 1.0, 0.25], "jax#5798", np.diag([0.0, 0.0, -1 / 32])),
    "a root of the other sign": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x >= 0, x, k.numpy.sqrt(-x))), np.array([1.0, -4.0]), [1.0, -0.25],
        "autograd#802", np.diag([0.0, -1 / 32])),
    "a norm of rows, where it is large": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(k.numpy.sqrt(k.numpy.sum(x ** 2, axis=1)) > 0.5,
                                               k.numpy.sqrt(k.numpy.sum(x ** 2, axis=1)), 1.0)), ROWS,
        _rows_over_norm(ROWS), "jax#347"),
    "an angle that is not chosen": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(np.array([False, True, False]), 0.0, k.numpy.arctan2(x, x))),
        np.array([3.0, 0.0, -5.0]), ZERO, "jax#1052", np.zeros((3, 3))),
    "charges that repel each other": Case(coulomb, POINTS, _coulomb_gradient(POINTS), "jax#654"),
    "a factor that is infinite": Case(
        lambda k, x: k.numpy.where(x > 0, 0.0, x * INF), 1.0, 0.0, "jax#2630", 0.0),
    "a sine over its argument": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x != 0, k.numpy.sin(x) / x, 1.0)), np.array([0.0, 1.0]),
        [0.0, math.cos(1.0) - math.sin(1.0)], "jax#1722"),
    "a logarithm": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x > 0, k.numpy.log(x), 0.0)), MIXED, [0.0, 1.0, 0.25], "jax#12952",
        np.diag([0.0, -1.0, -1 / 16])),
    "an exponential": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x < 10, k.numpy.exp(x), 1.0)), np.array([0.0, 1000.0]), [1.0, 0.0],
        "jax#1052", np.diag([1.0, 0.0])),
    "a power": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x > 0, x ** 0.3, 0.0)), MIXED, [0.0, 0.3, 0.3 * 4 ** -0.7], "",
        np.diag([0.0, -0.21, -0.21 * 4 ** -1.7])),
    "a reciprocal": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x > 0, 1 / x, 0.0)), MIXED, [0.0, -1.0, -1 / 16], "jax#4047",
        np.diag([0.0, 2.0, 1 / 32])),
    "an arccosine": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x < 1, k.numpy.arccos(x), 0.0)), np.array([1.0, 0.0]), [0.0, -1.0], "",
        np.zeros((2, 2))),
    "an arcsine": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x < 1, k.numpy.arcsin(x), 0.0)), np.array([1.0, 0.0]), [0.0, 1.0], "",
        np.zeros((2, 2))),
    "an area tangent": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x < 1, k.numpy.arctanh(x), 0.0)), np.array([1.0, 0.5]), [0.0, 4 / 3]),
    "a cubic root": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x > 0, k.numpy.cbrt(x), 0.0)), np.array([0.0, 8.0]), [0.0, 1 / 12]),
    "a logarithm of 1 + x": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(x > -1, k.numpy.log1p(x), 0.0)), np.array([-1.0, 1.0]), [0.0, 0.5]),
    "a Poisson likelihood": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(WEIGHTS > 1, 2.0 * k.numpy.log(x), 0.0) - x), np.array([0.0, 0.0, 4.0]),
        [-1.0, -1.0, -0.5], "", np.diag([0.0, 0.0, -1 / 8])),
    "an entropy": Case(
        lambda k, x: -k.numpy.sum(k.numpy.where(x > 0, x * k.numpy.log(x), 0.0)), np.array([0.0, 0.5, 0.5]),
        [0.0, math.log(2) - 1, math.log(2) - 1], "jax#17070", np.diag([0.0, -2.0, -2.0])),
    "a density that begins at 0": Case(
        lambda k, x: k.numpy.sum(k.numpy.exp(k.numpy.where(
            x > 0, -k.numpy.log(x) - 0.5 * k.numpy.log(x) ** 2, -INF))), np.array([0.0, 1.0]), [0.0, -1.0]),
    # norms
    "a norm": Case(lambda k, x: k.numpy.sqrt(k.numpy.sum(x * x)), ZERO, ZERO, "jax#3058, autograd#151"),
    "the library's norm": Case(lambda k, x: k.numpy.linalg.norm(x), ZERO, ZERO, "jax#3058, #26248"),
    "a squared norm": Case(lambda k, x: k.numpy.linalg.norm(x) ** 2, ZERO, ZERO, "jax#21723"),
    "a norm as a power": Case(lambda k, x: k.numpy.sum(x ** 2) ** 0.5, ZERO, ZERO, "jax#6484"),
    "a norm of order 3": Case(
        lambda k, x: k.numpy.sum(k.numpy.abs(x) ** 3) ** (1 / 3), ZERO, ZERO, "jax#4177"),
    "norms of rows": Case(
        lambda k, x: k.numpy.sum(k.numpy.sqrt(k.numpy.einsum("ij,ij->i", x, x))), ROWS, _rows_over_norm(ROWS)),
    "a distance from itself": Case(
        lambda k, x: k.numpy.linalg.norm(x - WEIGHTS), WEIGHTS, ZERO, "autograd#151"),
    "an exponential kernel": Case(
        lambda k, x: k.numpy.exp(-k.numpy.linalg.norm(x - WEIGHTS)), WEIGHTS, ZERO, "pytorch#2421"),
    "a root of a square": Case(lambda k, x: k.numpy.sqrt(x ** 2), 0.0, 0.0),
    "a loss with two pieces": Case(huber, ZERO, ZERO, "jax#6484"),
    "a direction": Case(
        lambda k, x: k.numpy.where(k.numpy.linalg.norm(x) > 0, x @ WEIGHTS / k.numpy.linalg.norm(x), 0.0), ZERO, ZERO),
    "a cosine of zero vectors": Case(
        cosine_with_floor, ZERO, WEIGHTS / 1e-3),
    "a rotation by nothing": Case(rotation_angle, ZERO, WEIGHTS),
    "an angle at the origin": Case(lambda k, x: k.numpy.arctan2(x[0], x[1]), np.zeros(2), [0.0, 0.0], "jax#1052"),
    # statistics
    "a standard deviation of constants": Case(lambda k, x: k.numpy.std(x), np.ones(3), ZERO),
    "standardised constants": Case(standardised, np.ones(3), WEIGHTS - WEIGHTS.mean()),
    "targets that are missing": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(np.array([False, True, False]), 0.0,
                                               (x - np.array([1.0, NAN, 2.0])) ** 2)), MIXED, [-2.0, 0.0, 4.0], "",
        np.diag([2.0, 0.0, 2.0])),
    "rows that are missing": Case(
        lambda k, x: k.numpy.sum(k.numpy.where(SEEN_ROWS[:, None], SEEN @ x, 0.0)), np.ones((2, 4)),
        np.outer([4.0, 1.0], np.ones(4))),
    "a mean of what is positive": Case(
        lambda k, x: k.numpy.mean(k.numpy.log(x), where=x > 0), MIXED, [0.0, 0.5, 0.125], "", np.diag(
            [0.0, -0.5, -1 / 32])),
    # logarithms of sums
    "log-sum-exp of nothing": Case(
        lambda k, x: k.numpy.exp(k.nn.logsumexp(k.numpy.stack([-INF * k.numpy.ones(()), -INF + x]))), 1.0, 0.0,
        "jax#6811", 0.0),
    "a softmax with a mask": Case(
        masked_softmax, np.array([1.0, 1.0, 1000.0]), [0.375, -0.375, 0.0], "jax#17117"),
    "an entropy with a mask": Case(masked_entropy, np.array([1.0, 1.0, 5.0]), ZERO, "jax#17070"),
    "attention with an empty row": Case(
        attention_with_an_empty_row, np.array([1.0, 2.0]), _attention_gradient(), "pytorch#31829"),
    # picks
    "a maximum with a mask": Case(
        lambda k, x: k.numpy.max(k.numpy.where(x > 0, k.numpy.log(x), -INF)), MIXED, [0.0, 0.0, 0.25]),
    "the greatest of a sort": Case(
        lambda k, x: k.numpy.sum(k.numpy.sort(k.numpy.sqrt(x))[1:]), MIXED, ROOTS),
    "a floor": Case(lambda k, x: k.numpy.sum(k.numpy.maximum(k.numpy.sqrt(x), 0.5)), MIXED, ROOTS),
    "a logarithm that is clipped": Case(
        lambda k, x: k.numpy.sum(k.numpy.clip(k.numpy.log(x), -5.0, 5.0)), MIXED, [0.0, 1.0, 0.25]),
    "a rectified reciprocal": Case(lambda k, x: k.numpy.sum(k.nn.relu(-1 / x)), np.array([0.0, -2.0]), [0.0, 0.25]),
    "an index out of range": Case(
        lambda k, x: k.numpy.sum(k.numpy.nan_to_num(k.numpy.sqrt(x).at[np.array([1, 7])].get(
            mode="fill", fill_value=NAN), nan=0.0)), MIXED, [0.0, 0.5, 0.0]),
    "a matrix of less than full rank": Case(
        root_of_matrix, np.diag([0.0, 0.0, 4.0]), np.diag([0.0, 0.0, 0.25])),
    # loops, calls and rules
    "in a scan": Case(scanned, MIXED, ROOTS, "", np.diag([0.0, -0.25, -1 / 32])),
    "in a loop": Case(repeated, MIXED, ROOTS),
    "under vmap": Case(
        lambda k, x: k.numpy.sum(k.vmap(lambda each: k.numpy.where(each > 0, k.numpy.sqrt(each), 0.0))(x)), MIXED,
        ROOTS, "", np.diag([0.0, -0.25, -1 / 32])),
    "in a checkpoint": Case(
        lambda k, x: k.numpy.sum(k.checkpoint(lambda x: k.numpy.where(x > 0, k.numpy.sqrt(x), 0.0))(x)), MIXED, ROOTS,
        "", np.diag([0.0, -0.25, -1 / 32])),
    "in a jitted function": Case(
        lambda k, x: k.numpy.sum(k.jit(lambda x: k.numpy.where(x > 0, k.numpy.sqrt(x), 0.0))(x)), MIXED, ROOTS, "",
        np.diag([0.0, -0.25, -1 / 32])),
    "with a forward rule": Case(with_rule, MIXED, ROOTS),
    "with a backward rule": Case(with_backward_rule, MIXED, ROOTS),
    # not found by strong zeros
    "a cubic root of a cube": Case(
        lambda k, x: k.numpy.cbrt(x ** 3), 0.0, 1.0, why="the limit of 0 times infinity is 1 here, and 0 is taken"),
    "a deviation by means of squares": Case(
        lambda k, x: k.numpy.sqrt(k.numpy.mean(x * x) - k.numpy.mean(x) ** 2), np.ones(4), np.zeros(4),
        why="two infinite slopes are subtracted; np.std has one"),
    "a geometric mean": Case(
        lambda k, x: k.numpy.exp(k.numpy.mean(k.numpy.log(x))), np.array([0.0, 4.0]), [INF, 0.0],
        why="the slope is infinite, and 0 is taken"),
}
