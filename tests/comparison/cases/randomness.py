"""Cases of `random`: the same key must give the same numbers.

Where the bits drawn depend on jax's mode of 64 bits, and not on the dtype alone, float32 is compared only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.comparison.arguments import A, Case, D, key

REAL = ("float32", "float64")
ONE = ("float32",)


def draw(name: str, *args: Any, **options: Any) -> Case:
    """A case of a function that is given a key first; the key is drawn as two words."""
    settings = {"dtypes": REAL, **{option: options.pop(option) for option in (
        "dtypes", "without", "fixed", "tolerance", "seen") if option in options}}
    return Case(key(), *args, call=lambda m, words, *rest, **given: getattr(m, name)(
        m.wrap_key_data(words), *rest, **given), **settings, **options)


STANDARD = "cauchy exponential gumbel laplace logistic maxwell normal uniform".split()
SHAPED = {name: [draw(name, (3,), D)] for name in STANDARD}
A_POSITIVE = A(3, low=0.5, high=3)

CASES: dict[str, list[Case]] = {
    **SHAPED,
    "PRNGKey": [Case(A(low=0, high=9, dtype="int32"), dtypes=ONE)],
    "key": [Case(A(low=0, high=9, dtype="int32"), call=lambda m, s: m.key_data(m.key(s)), dtypes=ONE)],
    "key_data": [draw("key_data", dtypes=ONE)],
    "wrap_key_data": [Case(key(), call=lambda m, w: m.key_data(m.wrap_key_data(w)), dtypes=ONE)],
    "clone": [Case(key(), call=lambda m, w: m.key_data(m.clone(m.wrap_key_data(w))), dtypes=ONE)],
    "split": [Case(key(), call=lambda m, w: m.key_data(m.split(m.wrap_key_data(w), 3)), dtypes=ONE)],
    "fold_in": [Case(key(), A(low=0, high=9, dtype="int32"), dtypes=ONE,
                     call=lambda m, w, i: m.key_data(m.fold_in(m.wrap_key_data(w), i)))],
    "bits": [draw("bits", (3,), dtypes=ONE), draw("bits", (3,), "uint8", dtypes=ONE)],
    "ball": [draw("ball", 3, shape=(2,), dtype=D, dtypes=ONE)],
    "bernoulli": [draw("bernoulli", A(3, low=0.2, high=0.8)), draw("bernoulli", shape=(4,))],
    "beta": [draw("beta", A_POSITIVE, A_POSITIVE, tolerance=10)],
    "binomial": [draw("binomial", np.float32(10.0), A(3, low=0.2, high=0.8), dtypes=ONE)],
    "categorical": [draw("categorical", A(2, 4)), draw("categorical", A(4), shape=(3,))],
    "chisquare": [draw("chisquare", A_POSITIVE)],
    "choice": [draw("choice", A(5), (3,), dtypes=ONE), draw("choice", A(5), (3,), replace=False, dtypes=ONE),
               draw("choice", 5, (3,), p=np.array([0.1, 0.2, 0.3, 0.2, 0.2], np.float32), dtypes=ONE)],
    "dirichlet": [draw("dirichlet", A_POSITIVE, tolerance=10)],
    "double_sided_maxwell": [draw("double_sided_maxwell", A(), A(low=0.5), (3,), dtype=D, dtypes=ONE)],
    "f": [draw("f", A_POSITIVE, A_POSITIVE, tolerance=10)],
    "gamma": [draw("gamma", A_POSITIVE)], "loggamma": [draw("loggamma", A_POSITIVE)],
    "generalized_normal": [draw("generalized_normal", 1.5, (3,), dtype=D)],
    "geometric": [draw("geometric", A(3, low=0.2, high=0.8))],
    "lognormal": [draw("lognormal", A(low=0.5), shape=(3,), dtype=D)],
    "multinomial": [draw("multinomial", np.float32(10.0), A(3, low=0.3, high=0.3001), dtypes=ONE)],
    "multivariate_normal": [draw("multivariate_normal", A(2), A(2, 2, make=lambda x: x @ x.T + np.eye(2)))],
    "orthogonal": [draw("orthogonal", 3, dtype=D, tolerance=20)],
    "pareto": [draw("pareto", A_POSITIVE)],
    "permutation": [draw("permutation", A(5)), draw("permutation", 5, dtypes=ONE),
                    draw("permutation", A(3, 4), axis=1, independent=True)],
    "poisson": [draw("poisson", A_POSITIVE, dtypes=ONE)],
    "rademacher": [draw("rademacher", (3,), dtypes=ONE)],
    "randint": [draw("randint", (5,), 0, 10, dtypes=ONE), draw("randint", (5,), -3, 100, "uint8", dtypes=ONE)],
    "rayleigh": [draw("rayleigh", A_POSITIVE)],
    "t": [draw("t", A_POSITIVE, tolerance=10)],
    "triangular": [draw("triangular", A(low=-2, high=-1), A(low=-0.5, high=0.5), A(low=1), (3,), dtype=D)],
    "truncated_normal": [draw("truncated_normal", -1.0, 2.0, (3,), D)],
    "wald": [draw("wald", A_POSITIVE)],
    "weibull_min": [draw("weibull_min", A(low=0.5), A(low=0.5), (3,), D)],
}
