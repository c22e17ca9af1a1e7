"""Functions in C that elements are computed by: what NumPy computes and C's operators and library do not."""

from __future__ import annotations

import re

_BITS = {"i32": 32, "i64": 64}


def _generated() -> dict[str, str]:
    found: dict[str, str] = {}
    for kind, bits in _BITS.items():
        t, u = f"int{bits}_t", f"uint{bits}_t"
        for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*")):
            found[f"{name}_{kind}"] = f"{t} {name}_{kind}({t} x, {t} y) {{ return ({t})(({u})x {sign} ({u})y); }}"
        found[f"neg_{kind}"] = f"{t} neg_{kind}({t} x) {{ return ({t})(0 - ({u})x); }}"
        found[f"abs_{kind}"] = f"{t} abs_{kind}({t} x) {{ return x < 0 ? neg_{kind}(x) : x; }}"
        found[f"div_{kind}"] = (f"{t} div_{kind}({t} x, {t} y) {{ return y == 0 ? -1 : y == -1 ? neg_{kind}(x) : x / y;"
                                " }")
        found[f"rem_{kind}"] = f"{t} rem_{kind}({t} x, {t} y) {{ return y == 0 ? x : y == -1 ? 0 : x % y; }}"
        found[f"max_{kind}"] = f"{t} max_{kind}({t} x, {t} y) {{ return x > y ? x : y; }}"
        found[f"min_{kind}"] = f"{t} min_{kind}({t} x, {t} y) {{ return x < y ? x : y; }}"
        found[f"shift_left_{kind}"] = (
            f"{t} shift_left_{kind}({t} x, {t} y) {{ return y < 0 || y >= {bits} ? 0 : ({t})(({u})x << y); }}")
        found[f"shift_right_logical_{kind}"] = (
            f"{t} shift_right_logical_{kind}({t} x, {t} y) {{ return y < 0 || y >= {bits} ? 0 : ({t})(({u})x >> y); }}")
        found[f"shift_right_arithmetic_{kind}"] = (
            f"{t} shift_right_arithmetic_{kind}({t} x, {t} y)\n"
            f"{{\n    {u} sign = x < 0 ? ~({u})0 : 0;\n"
            f"    return y < 0 || y >= {bits} ? ({t})sign : ({t})((({u})x >> y) | (y ? sign << ({bits} - y) : 0));\n}}")
        found[f"power_{kind}"] = (
            f"{t} power_{kind}({t} x, {t} n)\n"
            "{\n"
            f"    {t} result = 1;\n"
            "    if (n < 0)\n"
            f"        return x == 1 ? 1 : x == -1 ? (n % 2 ? -1 : 1) : 0;\n"
            f"    for (; n; n >>= 1, x = mul_{kind}(x, x))\n"
            f"        if (n & 1)\n            result = mul_{kind}(result, x);\n"
            "    return result;\n}")
        for source, c in (("f32", "float"), ("f64", "double")):
            limit = f"{2 ** (bits - 1)}.0" + ("f" if source == "f32" else "")
            found[f"whole_{kind}_{source}"] = (
                f"{t} whole_{kind}_{source}({c} x)\n{{\n"
                f"    return x != x ? 0 : x >= {limit} ? INT{bits}_MAX : x < -{limit} ? INT{bits}_MIN : ({t})x;\n}}")
    for kind, c, f in (("f32", "float", "f"), ("f64", "double", "")):
        one = "1.0" + f
        found[f"max_{kind}"] = f"{c} max_{kind}({c} x, {c} y) {{ return x != x || x >= y ? x : y; }}"
        found[f"min_{kind}"] = f"{c} min_{kind}({c} x, {c} y) {{ return x != x || x <= y ? x : y; }}"
        found[f"sign_{kind}"] = f"{c} sign_{kind}({c} x) {{ return x != x ? x : ({c})((x > 0) - (x < 0)); }}"
        found[f"logistic_{kind}"] = f"{c} logistic_{kind}({c} x) {{ return {one} / ({one} + exp{f}(-x)); }}"
        found[f"logaddexp_{kind}"] = (
            f"{c} logaddexp_{kind}({c} x, {c} y)\n{{\n"
            f"    return x == y ? x + {0.6931471805599453!r}{f} : x > y ? x + log1p{f}(exp{f}(y - x)) :\n"
            f"        x < y ? y + log1p{f}(exp{f}(x - y)) : x + y;\n}}")
        for name, log in (("xlogy", "log"), ("xlog1py", "log1p")):
            found[f"{name}_{kind}"] = (f"{c} {name}_{kind}({c} x, {c} y) "
                                       f"{{ return x == 0 && y == y ? 0 : x * {log}{f}(y); }}")
        found[f"entr_{kind}"] = (f"{c} entr_{kind}({c} x) "
                                 f"{{ return x > 0 ? -x * log{f}(x) : x == 0 ? 0 : x < 0 ? -INFINITY : x; }}")
        found[f"strong_mul_{kind}"] = (
            f"{c} strong_mul_{kind}({c} x, {c} y)\n{{\n    {c} product = x * y;\n"
            "    return product != product && (x == 0 || y == 0) ? 0 : product;\n}")
        found[f"strong_div_{kind}"] = (
            f"{c} strong_div_{kind}({c} x, {c} y)\n{{\n    {c} quotient = x / y;\n"
            "    return quotient != quotient && (x == 0 || isinf(y)) ? 0 : quotient;\n}")
        found[f"power_{kind}"] = (
            f"{c} power_{kind}({c} x, int n)\n"
            "{\n"
            f"    {c} result = 1;\n"
            "    if (n < 0)\n"
            f"        return {one} / power_{kind}(x, -n);\n"
            "    for (; n; n >>= 1, x *= x)\n        if (n & 1)\n            result *= x;\n"
            "    return result;\n}")
    for bits, c in ((32, "float"), (64, "double")):
        for target, source in ((f"int{bits}_t", c), (c, f"int{bits}_t")):
            name = f"{target}_of_bits"
            found[name] = (f"{target} {name}({source} x)\n{{\n    {target} y;\n    memcpy(&y, &x, sizeof y);\n"
                           "    return y;\n}")
    found["clip_index"] = "int clip_index(int64_t i, int last) { return i < 0 ? 0 : i > last ? last : (int)i; }"
    found["wrap_index"] = "int64_t wrap_index(int64_t i, int extent) { return i < 0 ? i + extent : i; }"
    found["in_range"] = "bool in_range(int64_t i, int last) { return i >= 0 && i <= last; }"
    return found


HELPERS = _generated()
_name = re.compile(r"\w+")


def helpers_of(text: str) -> str:
    """The functions that a text in C calls, and those that these call."""
    needed: list[str] = []
    stack = [text]
    while stack:
        for name in dict.fromkeys(_name.findall(stack.pop())):
            if name in HELPERS and name not in needed:
                needed.append(name)
                stack.append(HELPERS[name])
    order = [name for name in HELPERS if name in needed]
    # A function stands behind those that it calls: the order in which they are made here.
    return "\n".join(f"static {HELPERS[name]}" for name in order)
