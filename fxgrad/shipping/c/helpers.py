"""C functions for elementwise operations that C's operators and library lack."""

from __future__ import annotations

import re

_INTEGERS = """
TYPE add_KIND(TYPE x, TYPE y) { return (TYPE)((UNSIGNED)x + (UNSIGNED)y); }
TYPE sub_KIND(TYPE x, TYPE y) { return (TYPE)((UNSIGNED)x - (UNSIGNED)y); }
TYPE mul_KIND(TYPE x, TYPE y) { return (TYPE)((UNSIGNED)x * (UNSIGNED)y); }
TYPE neg_KIND(TYPE x) { return (TYPE)(0 - (UNSIGNED)x); }
TYPE abs_KIND(TYPE x) { return x < 0 ? neg_KIND(x) : x; }
TYPE div_KIND(TYPE x, TYPE y) { return y == 0 ? -1 : y == -1 ? neg_KIND(x) : x / y; }
TYPE rem_KIND(TYPE x, TYPE y) { return y == 0 ? x : y == -1 ? 0 : x % y; }
TYPE max_KIND(TYPE x, TYPE y) { return x > y ? x : y; }
TYPE min_KIND(TYPE x, TYPE y) { return x < y ? x : y; }
TYPE shift_left_KIND(TYPE x, TYPE y) { return y < 0 || y >= BITS ? 0 : (TYPE)((UNSIGNED)x << y); }
TYPE shift_right_logical_KIND(TYPE x, TYPE y) { return y < 0 || y >= BITS ? 0 : (TYPE)((UNSIGNED)x >> y); }
TYPE shift_right_arithmetic_KIND(TYPE x, TYPE y)
{
    UNSIGNED sign = x < 0 ? ~(UNSIGNED)0 : 0;
    return y < 0 || y >= BITS ? (TYPE)sign : (TYPE)(((UNSIGNED)x >> y) | (y ? sign << (BITS - y) : 0));
}
TYPE power_KIND(TYPE x, TYPE n)
{
    TYPE result = 1;
    if (n < 0)
        return x == 1 ? 1 : x == -1 ? (n % 2 ? -1 : 1) : 0;
    for (; n; n >>= 1, x = mul_KIND(x, x))
        if (n & 1)
            result = mul_KIND(result, x);
    return result;
}
TYPE whole_KIND_f32(float x)
{
    return x != x ? 0 : x >= LIMITf ? INTBITS_MAX : x < -LIMITf ? INTBITS_MIN : (TYPE)x;
}
TYPE whole_KIND_f64(double x)
{
    return x != x ? 0 : x >= LIMIT ? INTBITS_MAX : x < -LIMIT ? INTBITS_MIN : (TYPE)x;
}
"""
_UNSIGNED = """
TYPE add_KIND(TYPE x, TYPE y) { return (TYPE)(x + y); }
TYPE sub_KIND(TYPE x, TYPE y) { return (TYPE)(x - y); }
TYPE mul_KIND(TYPE x, TYPE y) { return (TYPE)(x * y); }
TYPE neg_KIND(TYPE x) { return (TYPE)(0 - x); }
TYPE abs_KIND(TYPE x) { return x; }
TYPE div_KIND(TYPE x, TYPE y) { return y == 0 ? UINTBITS_MAX : x / y; }
TYPE rem_KIND(TYPE x, TYPE y) { return y == 0 ? x : x % y; }
TYPE max_KIND(TYPE x, TYPE y) { return x > y ? x : y; }
TYPE min_KIND(TYPE x, TYPE y) { return x < y ? x : y; }
TYPE shift_left_KIND(TYPE x, TYPE y) { return y >= BITS ? 0 : (TYPE)(x << y); }
TYPE shift_right_logical_KIND(TYPE x, TYPE y) { return y >= BITS ? 0 : x >> y; }
TYPE shift_right_arithmetic_KIND(TYPE x, TYPE y)
{
    TYPE sign = x > UINTBITS_MAX / 2 ? UINTBITS_MAX : 0;
    return y >= BITS ? sign : (TYPE)((x >> y) | (sign << (BITS - y)));
}
TYPE power_KIND(TYPE x, TYPE n)
{
    TYPE result = 1;
    for (; n; n >>= 1, x = mul_KIND(x, x))
        if (n & 1)
            result = mul_KIND(result, x);
    return result;
}
TYPE whole_KIND_f32(float x) { return x != x || x <= 0 ? 0 : x >= UINTBITS_MAX ? UINTBITS_MAX : (TYPE)x; }
TYPE whole_KIND_f64(double x) { return x != x || x <= 0 ? 0 : x >= UINTBITS_MAX ? UINTBITS_MAX : (TYPE)x; }
"""
_FLOATS = """
TYPE max_KIND(TYPE x, TYPE y) { return x != x || x >= y ? x : y; }
TYPE min_KIND(TYPE x, TYPE y) { return x != x || x <= y ? x : y; }
TYPE sign_KIND(TYPE x) { return x != x ? x : (TYPE)((x > 0) - (x < 0)); }
TYPE logistic_KIND(TYPE x) { return 1 / (1 + EXP(-x)); }
TYPE logaddexp_KIND(TYPE x, TYPE y)
{
    return x == y ? x + LOG2 : x > y ? x + LOG1P(EXP(y - x)) : x < y ? y + LOG1P(EXP(x - y)) : x + y;
}
TYPE xlogy_KIND(TYPE x, TYPE y) { return x == 0 && y == y ? 0 : x * LOG(y); }
TYPE xlog1py_KIND(TYPE x, TYPE y) { return x == 0 && y == y ? 0 : x * LOG1P(y); }
TYPE entr_KIND(TYPE x) { return x > 0 ? -x * LOG(x) : x == 0 ? 0 : x < 0 ? -INFINITY : x; }
TYPE strong_mul_KIND(TYPE x, TYPE y)
{
    TYPE product = x * y;
    return product != product && (x == 0 || y == 0) ? 0 : product;
}
TYPE strong_div_KIND(TYPE x, TYPE y)
{
    TYPE quotient = x / y;
    return quotient != quotient && (x == 0 || isinf(y)) ? 0 : quotient;
}
TYPE power_KIND(TYPE x, int n)
{
    TYPE result = 1;
    if (n < 0)
        return 1 / power_KIND(x, -n);
    for (; n; n >>= 1, x *= x)
        if (n & 1)
            result *= x;
    return result;
}
"""
_BITS = """
INTEGER INTEGER_of_bits(TYPE x)
{
    INTEGER y;
    memcpy(&y, &x, sizeof y);
    return y;
}
TYPE TYPE_of_bits(INTEGER x)
{
    TYPE y;
    memcpy(&y, &x, sizeof y);
    return y;
}
"""
_INDICES = """
int clip_index(int64_t i, int last) { return i < 0 ? 0 : i > last ? last : (int)i; }
int64_t wrap_index(int64_t i, int extent) { return i < 0 ? i + extent : i; }
bool in_range(int64_t i, int last) { return i >= 0 && i <= last; }
"""
_word = re.compile(r"\w+")
_head = re.compile(r"^(?=\w+ \w+\()", re.MULTILINE)


def _functions_by_name(text: str, words: dict[str, str]) -> dict[str, str]:
    """Return the functions of a text by name, with words replaced."""
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return {each.split("(")[0].split()[1]: each.strip() for each in _head.split(text) if each.strip()}


def _generated_functions() -> dict[str, str]:
    found: dict[str, str] = {}
    for bits in (8, 32, 64):
        found |= _functions_by_name(_INTEGERS, {"UNSIGNED": f"uint{bits}_t", "TYPE": f"int{bits}_t", "KIND": f"i{bits}",
                                                "BITS": str(bits), "LIMIT": f"{2 ** (bits - 1)}.0"})
    found |= _functions_by_name(_UNSIGNED, {"TYPE": "uint8_t", "KIND": "u8", "BITS": "8"})
    for bits, kind, suffix in ((32, "float", "f"), (64, "double", "")):
        words = {name.upper(): name + suffix for name in ("exp", "log1p")}
        words |= {"LOG2": f"0.6931471805599453{suffix}", "LOG": f"log{suffix}", "KIND": f"f{bits}", "TYPE": kind}
        found |= _functions_by_name(_FLOATS, words)
        found |= _functions_by_name(_BITS, {"INTEGER": f"int{bits}_t", "TYPE": kind})
    return {**found, **_functions_by_name(_INDICES, {})}


HELPERS = _generated_functions()
"""The text of each function by its name, preceded by those that it calls."""


def helpers_of(text: str) -> str:
    """Return the functions that a C text calls, directly or indirectly."""
    needed: set[str] = set()
    stack = [text]
    while stack:
        for name in _word.findall(stack.pop()):
            if name in HELPERS and name not in needed:
                needed.add(name)
                stack.append(HELPERS[name])
    return "\n".join(f"static {HELPERS[name]}" for name in HELPERS if name in needed)
