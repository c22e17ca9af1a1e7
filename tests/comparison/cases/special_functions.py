"""Cases of `scipy.special`."""

from __future__ import annotations

from tests.comparison.arguments import DTYPES, SPECIAL, A, Case

REAL = ("float32", "float64")
NO_BOOL = tuple(dtype for dtype in DTYPES if dtype != "bool")
UNARY = """dawsn digamma erf erfc erfcx exp1 expit fresnel gamma gammaln gammasgn i0 i0e i1 i1e log_ndtr loggamma ndtr
sici wofz expi entr""".split()
P = A(2, 3, low=0.3, high=3)

CASES: dict[str, list[Case]] = {
    **{name: [Case(P)] for name in UNARY},
    **{name: [Case(A(2, 3)), Case(SPECIAL, static=True)] for name in (
        "erf", "erfc", "expit", "i0", "i0e", "i1", "i1e", "log_ndtr", "ndtr")},
    **{name: [Case(A(2, 3, low=0.1, high=0.9))] for name in ("logit", "ndtri")},
    "digamma": [Case(P, dtypes=NO_BOOL)],  # at the pole 0 it is NaN or -inf, by the version of jax
    "spence": [Case(P, without={"derivatives": "jax's vjp is NaN for some arguments between 1 and 2, where its own "
                                               "jvp is not"})],
    "erfinv": [Case(A(2, 3, low=-0.9, high=0.9))],
    "log_softmax": [Case(A(2, 3), axis=1)], "softmax": [Case(A(2, 3), axis=1)],
    "logsumexp": [Case(A(2, 3)), Case(A(2, 3), axis=1)],
    "bernoulli": [Case(4, dtypes=("float32",))],
    **{name: [Case(P, A(3, low=0.5, high=2))] for name in ("beta", "betaln", "rel_entr", "kl_div", "owens_t", "xlogy",
                                                          "xlog1py", "gammainc", "gammaincc", "boxcox", "boxcox1p",
                                                          "poch", "comb")},
    "zeta": [Case(A(2, 3, low=1.5, high=3), A(3, low=0.5, high=2))],
    "polygamma": [Case(A(3, low=1, high=3, make=lambda x: x.round()), P, fixed=(0,))],
    "expn": [Case(A(3, low=1, high=3, dtype="int32"), P)],
    "betainc": [Case(P, A(3, low=0.5, high=2), A(3, low=0.1, high=0.9), fixed=(0, 1))],
    "hyp1f1": [Case(P, A(3, low=0.5, high=2), A(3), fixed=(0, 1), dtypes=REAL)],
    "hyp2f1": [Case(P, A(3, low=0.5, high=2), A(3, low=2, high=3), A(3, low=0.1, high=0.6), fixed=(0, 1, 2),
                    dtypes=REAL)],
    "factorial": [Case(A(3, low=0, high=5))],
    "multigammaln": [Case(A(3, low=2, high=4), 2)],
}

CASES["log_ndtr"] += [Case(A(400, low=-40, high=5), dtypes=("float32",), without={
    "derivatives": "in float32 jax's have five digits, since it derives a sum of six terms"}),
                      # jax's own is good to 6e-11 there (ours to 2e-15): a sum of six terms in the place of erfcx.
                      Case(A(400, low=-40, high=5), dtypes=("float64",), tolerance=1e3)]
CASES["betaln"].append(Case(A(3, low=1e4, high=1e7), A(3, low=0.5, high=9), dtypes=("float32",), without={
    "derivatives": "differences of digammas of large numbers"}))
CASES["zeta"].append(Case(A(3, low=4, high=30), A(3, low=0.5, high=40)))
