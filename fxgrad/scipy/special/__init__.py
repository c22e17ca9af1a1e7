"""Special functions under the names and with the signatures of jax.scipy.special."""

from fxgrad.engine.frontend.value_calls import replay_public as _replay
from fxgrad.scipy.special.elements import (
    beta,
    betainc,
    betaln,
    boxcox,
    boxcox1p,
    comb,
    dawsn,
    digamma,
    entr,
    erf,
    erfc,
    erfcinv,
    erfcx,
    erfinv,
    exp1,
    expi,
    expit,
    expn,
    factorial,
    fresnel,
    gamma,
    gammainc,
    gammaincc,
    gammaln,
    gammasgn,
    hyp1f1,
    hyp2f1,
    i0,
    i0e,
    i1,
    i1e,
    kl_div,
    log_ndtr,
    loggamma,
    logit,
    ndtr,
    ndtri,
    owens_t,
    poch,
    polygamma,
    rel_entr,
    sici,
    spence,
    wofz,
    xlog1py,
    xlogy,
    zeta,
)
from fxgrad.scipy.special.orders import bessel_jn, sph_harm_y
from fxgrad.scipy.special.sums import (
    bernoulli,
    log_softmax,
    logsumexp,
    multigammaln,
    softmax,
)

__all__ = ["bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn", "digamma",
           "entr", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp1", "expi", "expit", "expn", "factorial",
           "fresnel", "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn", "hyp1f1", "hyp2f1", "i0", "i0e", "i1",
           "i1e", "kl_div", "log_ndtr", "log_softmax", "loggamma", "logit", "logsumexp", "multigammaln", "ndtr",
           "ndtri", "owens_t", "poch", "polygamma", "rel_entr", "sici", "softmax", "spence", "sph_harm_y", "wofz",
           "xlog1py", "xlogy", "zeta"]


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion


_replay(globals(), "fxgrad.scipy.special", ("elements", "orders", "sums"))
