"""Distributions under the names and with the signatures of jax.scipy.stats: `norm.logpdf(x, loc, scale)`."""

from fxgrad.engine.frontend.value_calls import replay_public as _replay
from fxgrad.scipy.stats.density import gaussian_kde
from fxgrad.scipy.stats.of_integers import bernoulli, betabinom, binom, geom, nbinom, poisson
from fxgrad.scipy.stats.of_reals import (
    beta,
    cauchy,
    chi2,
    expon,
    gamma,
    gennorm,
    gumbel_l,
    gumbel_r,
    laplace,
    logistic,
    norm,
    pareto,
    t,
    truncnorm,
    uniform,
    vonmises,
    wrapcauchy,
)
from fxgrad.scipy.stats.of_vectors import dirichlet, multinomial, multivariate_normal, sem
from fxgrad.scipy.stats.ranks import mode, rankdata

__all__ = [
    "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma", "gaussian_kde",
    "gennorm", "geom", "gumbel_l", "gumbel_r", "laplace", "logistic", "mode", "multinomial", "multivariate_normal",
    "nbinom", "norm", "pareto", "poisson", "rankdata", "sem", "t", "truncnorm", "uniform", "vonmises", "wrapcauchy",
]


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion


_replay(globals(), "fxgrad.scipy.stats", ("of_vectors", "ranks"))
