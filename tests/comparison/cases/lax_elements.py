"""Cases of the functions of `lax` that act on each element."""

from __future__ import annotations

from tests.comparison.arguments import A, Case, whole

UNARY = """abs asinh atan bitwise_not cbrt ceil clz conj cos cosh exp exp2 expm1 floor imag is_finite logistic neg
population_count real round sign sin sinh square tan tanh erf bessel_i0e bessel_i1e erfc""".split()
POSITIVE = "log log1p reciprocal rsqrt sqrt lgamma digamma".split()
BINARY = """add atan2 bitwise_and bitwise_or bitwise_xor complex div eq ge gt le lt max min mul mulhi ne nextafter rem
sub""".split()
SHIFTS = "shift_left shift_right_arithmetic shift_right_logical".split()

CASES: dict[str, list[Case]] = {
    **{name: [Case(A(2, 3))] for name in UNARY},
    **{name: [Case(A(2, 3, low=0.3, high=3))] for name in POSITIVE},
    **{name: [Case(A(2, 3, low=-0.9, high=0.9))] for name in ("acos", "asin", "atanh", "erf_inv")},
    "acosh": [Case(A(2, 3, low=1.2, high=3))],
    **{name: [Case(A(2, 3), A(2, 3, low=0.5, high=3)), Case(A(2, 3), A(1, 3, low=0.5, high=3)),
              Case(A(2, 3), A(low=0.5, high=3))] for name in BINARY},
    **{name: [Case(A(2, 3), A(2, 3, low=0, high=4), dtypes=("int32",))] for name in SHIFTS},
    "round": [Case(A(2, 3)), Case(A(2, 3), call=lambda m, x: m.round(x, m.RoundingMethod.TO_NEAREST_EVEN))],
    "mul": [Case(A(2, 3), A(2, 3)), Case(A(2, 3), A(2, 3), out_dtype="float32", dtypes=("float32", "int32"))],
    "pow": [Case(A(2, 3, low=0.3, high=2), A(2, 3)), Case(A(2, 3), whole(2, 3, low=1, high=3)), Case(A(3), 2)],
    "integer_pow": [Case(A(2, 3), 3), Case(A(2, 3, low=0.5), -2), Case(A(3), 0)],
    "reduce_precision": [Case(A(2, 3), 5, 3)],
    "clamp": [Case(-1.0, A(2, 3), 1.0, dtypes=("float32",)), Case(A(2, 3, high=-1), A(2, 3), A(low=0))],
    "select": [Case(A(2, 3, dtype="bool"), A(2, 3), A(2, 3)), Case(A(dtype="bool"), A(2, 3), A(2, 3))],
    "select_n": [Case(A(2, 3, dtype="bool"), A(2, 3), A(2, 3)), Case(whole(2, 3), A(2, 3), A(2, 3), A(2, 3))],
    **{name: [Case(A(2, 3, low=0.5, high=3), A(2, 3, low=0.5, high=3), fixed=(0,))]
       for name in ("igamma_grad_a", "random_gamma_grad")},
    **{name: [Case(A(2, 3, low=0.5, high=3), A(2, 3, low=0.5, high=3))] for name in ("igamma", "igammac")},
    "zeta": [Case(A(2, 3, low=1.5, high=3), A(2, 3, low=0.5, high=3))],
    "polygamma": [Case(A(3, low=1, high=3, make=lambda x: x.round()), A(3, low=0.5, high=3), fixed=(0,))],
    "betainc": [Case(A(3, low=0.5, high=3), A(3, low=0.5, high=3), A(3, low=0.1, high=0.9), fixed=(0, 1))],
}
