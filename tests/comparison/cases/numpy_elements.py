"""Cases of the functions of `numpy` that act on each element."""

from __future__ import annotations

from tests.comparison.arguments import NARROW, PAIRS, SPECIAL, A, Case, whole

UNARY = """abs absolute angle arcsinh arctan asinh atan bitwise_count bitwise_invert bitwise_not cbrt ceil conj
conjugate cos cosh deg2rad degrees exp exp2 expm1 fabs floor frexp i0 imag invert iscomplex isfinite isinf isnan
isneginf isposinf isreal logical_not modf negative positive rad2deg radians real rint sign signbit sin sinc sinh spacing
square tan tanh trunc nan_to_num around round real_if_close unwrap iscomplexobj isrealobj isscalar""".split()
POSITIVE = "log log10 log1p log2 reciprocal sqrt".split()
INSIDE = "arccos arcsin arctanh acos asin atanh".split()
BINARY = """add arctan2 atan2 bitwise_and bitwise_or bitwise_xor copysign divide divmod equal float_power floor_divide
fmax fmin fmod greater greater_equal heaviside hypot less less_equal logaddexp logaddexp2 logical_and logical_or
logical_xor maximum minimum mod multiply nextafter not_equal remainder subtract true_divide gcd lcm isclose allclose
array_equal array_equiv""".split()
SHIFTS = "bitwise_left_shift bitwise_right_shift left_shift right_shift".split()

CASES: dict[str, list[Case]] = {
    **{name: [Case(A(2, 3))] for name in UNARY},
    **{name: [Case(A(2, 3, low=0.3, high=3))] for name in POSITIVE},
    **{name: [Case(A(2, 3, low=-0.9, high=0.9))] for name in INSIDE},
    **{name: [Case(A(2, 3, low=1.2, high=3))] for name in ("arccosh", "acosh")},
    **{name: [Case(A(2, 3), A(3, low=0.5, high=3))] for name in BINARY},
    **{name: [Case(A(2, 3), A(3, low=0.5, high=3), dtypes=("float32", "float64", "int32", "complex64"))]
       for name in ("divide", "true_divide", "fmod")},  # of bools XLA makes 0 / 0 = 0 where it optimizes little
    **{name: [Case(A(2, 3), whole(3, high=4), dtypes=("int32",))] for name in SHIFTS},
    **{name: [Case(A(2, 3, low=0.3, high=2), A(3, low=0, high=3)), Case(A(2, 3), 2), Case(A(2, 3, low=1, high=2), -0.5)]
       for name in ("power", "pow")},
    "ldexp": [Case(A(2, 3), whole(3, low=-2, high=3))],
    "clip": [Case(A(2, 3), -1, 1), Case(A(2, 3), A(3, low=-1, high=0), None)],
    "round": [Case(A(2, 3)), Case(A(2, 3), 1)],
    "around": [Case(A(2, 3)), Case(A(2, 3), 1)],
    "isscalar": [Case(A(2, 3), static=True), Case(1.0, static=True)],
    "angle": [Case(A(2, 3)), Case(A(2, 3), deg=True)],
    "where": [Case(A(2, 3, dtype="bool"), A(2, 3), A(3)), Case(A(2, 1, dtype="bool"), A(3), 0)],
}

_INTEGERS = {"bitwise_count", "bitwise_invert", "bitwise_not", "invert", "bitwise_and", "bitwise_or", "bitwise_xor",
             "gcd", "lcm"}
# At integers and 0, and for the whole part of infinities, values are NumPy's, where jax's are not defined, or NaNs.
_NUMPYS = {"floor_divide", "divmod", "modf"}

for _name in {*UNARY, *POSITIVE, *INSIDE, "arccosh", "acosh"} - _INTEGERS - _NUMPYS:
    CASES[_name].append(Case(SPECIAL, static=True))
for _name in {*BINARY, "divide", "fmod"}:
    if _name not in _INTEGERS | {"divmod"}:
        CASES[_name].append(Case(*PAIRS, static=True))
    if _name not in _NUMPYS | {"gcd", "lcm"}:  # jax's do not come to an end at the least integer
        CASES[_name].append(Case(*NARROW, static=True))
for _name in ("power", "pow"):
    CASES[_name] += [Case(*PAIRS, static=True), Case(A(12, low=-9, high=9), whole(12, high=30), dtypes=("int32",))]
