"""Random numbers of explicit keys: names, signatures and numbers (to the bit, or to rounding) are those of jax.random.

A key is a value: the same key gives the same numbers, on NumPy and under `jit`. Make one with `key(seed)`, and new ones
from it with `split` or `fold_in`.
"""

from fxgrad.engine.core.arrays import returns_array as _making
from fxgrad.engine.frontend.value_calls import replay_public as _replay
from fxgrad.engine.pytorch_names import module_getattr as _of_module
from fxgrad.random.continuous import (
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    pareto,
    triangular,
    weibull_min,
)
from fxgrad.random.discrete import (
    binomial,
    categorical,
    choice,
    geometric,
    multinomial,
    permutation,
    poisson,
)
from fxgrad.random.gamma import (
    ball,
    beta,
    chisquare,
    dirichlet,
    f,
    gamma,
    generalized_normal,
    loggamma,
    t,
)
from fxgrad.random.keys import (
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from fxgrad.random.normal import (
    double_sided_maxwell,
    lognormal,
    maxwell,
    normal,
    rayleigh,
    truncated_normal,
    wald,
)
from fxgrad.random.uniform import (
    bernoulli,
    bits,
    rademacher,
    randint,
    uniform,
)
from fxgrad.random.vectors import (
    multivariate_normal,
    orthogonal,
)

__all__ = ["PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice",
           "clone", "dirichlet", "double_sided_maxwell", "exponential", "f", "fold_in", "gamma", "generalized_normal",
           "geometric", "gumbel", "key", "key_data", "key_dtype", "key_impl", "laplace", "loggamma", "logistic",
           "lognormal", "maxwell", "multinomial", "multivariate_normal", "normal", "orthogonal", "pareto",
           "permutation", "poisson", "rademacher", "randint", "rayleigh", "split", "t", "triangular",
           "truncated_normal", "uniform", "wald", "weibull_min", "wrap_key_data"]

_KEYS = "write key = fxgrad.random.key(seed), and give each function of fxgrad.random a key of its own, by split"
ABSENT = {
    "seed": _KEYS, "default_rng": _KEYS, "RandomState": _KEYS, "Generator": _KEYS,
    "random": "write fxgrad.random.uniform(key, shape)", "random_sample": "write fxgrad.random.uniform(key, shape)",
    "standard_normal": "write fxgrad.random.normal(key, shape)",
    "integers": "write fxgrad.random.randint(key, shape, low, high)",
    "shuffle": "write x = fxgrad.random.permutation(key, x)",
}
"""Names of numpy.random that are not here, each with what to write."""
__getattr__ = _of_module(__name__, ABSENT)


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion


# Draws, unlike keys, take traced indices and updates.
for _name in set(__all__) - {"PRNGKey", "clone", "fold_in", "key", "key_data", "key_dtype", "key_impl", "split",
                             "wrap_key_data"}:
    globals()[_name] = _making(globals()[_name])


_replay(globals(), "fxgrad.random", ("continuous", "discrete", "gamma", "keys", "normal", "uniform", "vectors"))
