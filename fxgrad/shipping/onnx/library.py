"""Building blocks of several rules: shifts, bits, exponentials near zero, remainders, as nodes."""

from __future__ import annotations

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import DType
from fxgrad.shipping.onnx.graph import OnnxGraph, OnnxValue
from fxgrad.shipping.onnx.protos import element_type

UINT32, UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)


def bit_width(dtype: DType) -> int:
    """Return the number of bits of an element."""
    return 8 * dtype.itemsize


def unsigned_dtype(dtype: DType) -> DType:
    """Return the unsigned integer dtype of the same width."""
    return np.dtype(f"uint{bit_width(dtype)}")


def signed_dtype(dtype: DType) -> DType:
    """Return the signed integer dtype of the same width."""
    return np.dtype(f"int{bit_width(dtype)}")


def zero_like(graph: OnnxGraph, value: OnnxValue) -> OnnxValue:
    """Return 0 in the dtype of a value."""
    return graph.number(0, value.dtype)


def one_like(graph: OnnxGraph, value: OnnxValue) -> OnnxValue:
    """Return 1 in the dtype of a value."""
    return graph.number(1, value.dtype)


def constant_like(graph: OnnxGraph, number: float, like: OnnxValue) -> OnnxValue:
    """Return a number in the dtype of a value."""
    return graph.number(number, like.dtype)


# --- logic of bits --------------------------------------------------------------------------------------------------


def bitwise(graph: OnnxGraph, name: str, *values: OnnxValue) -> OnnxValue:
    """Apply "And", "Or", "Xor" or "Not" to bools, or to integers bit by bit."""
    return graph.operation(name if values[0].dtype.kind == "b" else f"Bitwise{name}", *values)


def shift(graph: OnnxGraph, x: OnnxValue, count: OnnxValue, direction: str) -> OnnxValue:
    """Return integers shifted to the "LEFT" or, without their sign, to the "RIGHT"; by all their bits or more gives 0.

    Runtimes only shift unsigned integers, and their results for too large counts are undefined.
    """
    kind = unsigned_dtype(x.dtype)
    bits, counts = graph.cast(x, kind), graph.cast(count, kind)
    width = graph.number(bit_width(x.dtype), kind)
    short = graph.operation("Less", counts, width)
    moved = graph.operation("BitShift", bits, graph.where(short, counts, graph.number(0, kind)), direction=direction)
    return graph.cast(graph.where(short, moved, graph.number(0, kind)), x.dtype)


def shift_by(graph: OnnxGraph, x: OnnxValue, count: int, direction: str) -> OnnxValue:
    """Return unsigned integers shifted by a number of bits that is less than their width."""
    return graph.operation("BitShift", x, graph.number(count, x.dtype), direction=direction)


def shift_arithmetic(graph: OnnxGraph, x: OnnxValue, count: OnnxValue) -> OnnxValue:
    """Return integers shifted to the right, with copies of their first bit."""
    kind = signed_dtype(x.dtype)
    numbers = graph.cast(x, kind)
    negative = graph.operation("Less", numbers, graph.number(0, kind))
    plain = graph.where(negative, graph.operation("BitwiseNot", numbers), numbers)
    moved = shift(graph, plain, graph.cast(count, kind), "RIGHT")
    return graph.cast(graph.where(negative, graph.operation("BitwiseNot", moved), moved), x.dtype)


def population_count(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return the number of set bits: sums of pairs, of fours, and so on."""
    kind, width = unsigned_dtype(x.dtype), bit_width(x.dtype)
    bits, step = graph.cast(x, kind), 1
    while step < width:
        block = (1 << step) - 1
        mask = graph.number(sum(block << at for at in range(0, width, 2 * step)), kind)
        low = graph.operation("BitwiseAnd", bits, mask)
        high = graph.operation("BitwiseAnd", shift_by(graph, bits, step, "RIGHT"), mask)
        bits, step = graph.operation("Add", low, high), 2 * step
    return graph.cast(bits, x.dtype)


def leading_zeros(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return the number of leading zero bits: the highest set bit is copied to all lower ones, which are counted."""
    kind, width = unsigned_dtype(x.dtype), bit_width(x.dtype)
    bits, step = graph.cast(x, kind), 1
    while step < width:
        bits = graph.operation("BitwiseOr", bits, shift_by(graph, bits, step, "RIGHT"))
        step *= 2
    return graph.cast(population_count(graph, graph.operation("BitwiseNot", bits)), x.dtype)


def bitcast(graph: OnnxGraph, x: OnnxValue, dtype: DType) -> OnnxValue:
    """Return the bits of numbers read as another dtype of the same width."""
    if x.dtype == dtype:
        return x
    if dtypes.is_integer(x.dtype) and dtypes.is_integer(dtype):
        return graph.cast(x, dtype)
    return graph.raw("BitCast", [x], [dtype], {"to": element_type(dtype)})[0]


def order_rank(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return integers in the total order of floats; of other numbers themselves."""
    if x.dtype.kind == "b" or not dtypes.is_floating(x.dtype):
        return x
    kind = signed_dtype(x.dtype)
    bits = bitcast(graph, x, kind)
    negative = graph.operation("Less", bits, graph.number(0, kind))
    return graph.where(negative, graph.operation("BitwiseXor", bits, graph.number(np.iinfo(kind).max, kind)), bits)


# --- integers -------------------------------------------------------------------------------------------------------


def divide_whole(graph: OnnxGraph, x: OnnxValue, y: OnnxValue) -> tuple[OnnxValue, OnnxValue]:
    """Return quotient toward zero and remainder of integers; of a division by 0 all bits set, and x.

    Runtimes crash on a division by 0, or of the least integer by -1.
    """
    dtype = x.dtype
    none = graph.operation("Equal", y, graph.number(0, dtype))
    replaced = none
    turned = None
    if dtype.kind == "i":
        turned = graph.operation("Equal", y, graph.number(-1, dtype))
        replaced = graph.operation("Or", none, turned)
    divisor = graph.where(replaced, graph.number(1, dtype), y)
    quotient = graph.operation("Div", x, divisor)
    remainder = graph.operation("Sub", x, graph.operation("Mul", quotient, divisor))
    if turned is not None:
        quotient = graph.where(turned, graph.operation("Sub", graph.number(0, dtype), x), quotient)
    all_bits = np.iinfo(dtype).max if dtype.kind == "u" else -1
    return graph.where(none, graph.number(all_bits, dtype), quotient), graph.where(none, x, remainder)


def power_of(graph: OnnxGraph, x: OnnxValue, exponent: int) -> OnnxValue:
    """Return a whole power: products of repeated squares."""
    if exponent < 0:
        return graph.operation("Reciprocal", power_of(graph, x, -exponent))
    result = None
    while exponent:
        if exponent & 1:
            result = x if result is None else graph.operation("Mul", result, x)
        exponent >>= 1
        if exponent:
            x = graph.operation("Mul", x, x)
    assert result is not None
    return result


# --- exponentials ---------------------------------------------------------------------------------------------------


def emit_expm1(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return exp(x) - 1 without loss near 0, from the rounded u = exp(x): x (u - 1) / log(u).

    N. Higham, "Accuracy and stability of numerical algorithms", section 1.14: numerator and denominator have the same
    errors, which cancel in their quotient.
    """
    u = graph.operation("Exp", x)
    below = graph.operation("Sub", u, one_like(graph, x))
    unchanged = graph.operation("Equal", u, one_like(graph, x))
    slope = graph.where(unchanged, one_like(graph, x), graph.operation("Div", below, graph.operation("Log", u)))
    far = graph.operation("GreaterOrEqual", graph.operation("Abs", x), constant_like(graph, 1, x))
    return graph.where(far, below, graph.operation("Mul", x, slope))


def emit_log1p(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return log(1 + x) without loss near 0, from the rounded u = 1 + x: x log(u) / (u - 1)."""
    u = graph.operation("Add", x, one_like(graph, x))
    slope = graph.operation("Div", graph.operation("Log", u), graph.operation("Sub", u, one_like(graph, x)))
    plain = graph.operation("Or", graph.operation("Equal", u, one_like(graph, x)),
                            graph.operation("Equal", u, constant_like(graph, np.inf, x)))
    return graph.operation("Mul", x, graph.where(plain, one_like(graph, x), slope))


# --- signs ------------------------------------------------------------------------------------------------------------


def odd_function(graph: OnnxGraph, x: OnnxValue, found: OnnxValue) -> OnnxValue:
    """Return an odd function of x, given that of |x|: by a factor, as onnxruntime's Where loses the sign of a zero."""
    unit = one_like(graph, x)
    return graph.operation("Mul", graph.where(sign_bit(graph, x), graph.operation("Neg", unit), unit), found)


def sign_bit(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return whether the sign bit of numbers is set, that of a zero too."""
    none = zero_like(graph, x)
    return graph.operation("Or", graph.operation("Less", x, none),
                           graph.operation("Less", graph.operation("Reciprocal", x), none))


# --- random keys ----------------------------------------------------------------------------------------------------


def key_of_words(graph: OnnxGraph, words: OnnxValue) -> OnnxValue:
    """Return keys, one 64-bit number each, from two words on the last axis."""
    high, low = (graph.cast(graph.operation("Gather", words, graph.number(place, np.dtype(np.int64)), axis=-1), UINT64)
                 for place in (0, 1))
    return graph.operation("BitwiseOr", shift_by(graph, high, 32, "LEFT"), low)


def words_of_key(graph: OnnxGraph, key: OnnxValue) -> OnnxValue:
    """Return the two words of keys, on a new last axis."""
    return graph.concatenate([graph.unsqueeze(word, [-1]) for word in both_words(graph, key)], -1)


def both_words(graph: OnnxGraph, key: OnnxValue) -> list[OnnxValue]:
    """Return the high word and the low word of numbers of 64 bits."""
    return [graph.cast(shift_by(graph, key, 32, "RIGHT"), UINT32), graph.cast(key, UINT32)]
