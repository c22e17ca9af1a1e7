"""Random keys and bits: the hash threefry2x32 in operations of whole numbers, equal to fxgrad's own to the bit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fxgrad import dtypes
from fxgrad.extend.formulas import GROUPS, PARITY, ROTATIONS
from fxgrad.extend.sizes import has_symbolic_dim
from fxgrad.shipping.onnx import library
from fxgrad.shipping.onnx.emission import Emission
from fxgrad.shipping.onnx.graph import OnnxGraph, OnnxValue
from fxgrad.shipping.onnx.rules import RuleOperation, register_library_rule, register_onnx_rule

Values = list[OnnxValue]
UINT32, UINT64 = library.UINT32, library.UINT64


def hash_words(graph: OnnxGraph, key: Sequence[OnnxValue], counter: Sequence[OnnxValue]) -> Values:
    """Return twenty rounds of threefry2x32 on words of 32 bits."""
    def plus(x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return graph.operation("Add", x, y)

    def mixed(x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return graph.operation("BitwiseXor", x, y)

    schedule = (*key, mixed(mixed(*key), graph.number(PARITY, UINT32)))
    first, second = plus(counter[0], schedule[0]), plus(counter[1], schedule[1])
    for group in range(GROUPS):
        for rotation in ROTATIONS[group % 2]:
            first = plus(first, second)
            turned = graph.operation("BitwiseOr", library.shift_by(graph, second, rotation, "LEFT"),
                                     library.shift_by(graph, second, 32 - rotation, "RIGHT"))
            second = mixed(turned, first)
        first = plus(first, schedule[(group + 1) % 3])
        second = plus(second, plus(schedule[(group + 2) % 3], graph.number(group + 1, UINT32)))
    return [first, second]


def pack_words(graph: OnnxGraph, words: Sequence[OnnxValue]) -> OnnxValue:
    """Return two words as one number, the first in the upper half."""
    high, low = (graph.cast(word, UINT64) for word in words)
    return graph.operation("BitwiseOr", library.shift_by(graph, high, 32, "LEFT"), low)


def _hash_counters(graph: OnnxGraph, keys: OnnxValue, shape: tuple[int, ...], added: tuple[int, ...]) -> Values:
    """For each key the hashes of 0, 1, 2, ... in the elements of `added`."""
    if has_symbolic_dim(*added):
        counted = graph.reshape(graph.cast(graph.counting(math.prod(added)), UINT64), added)
        high, low = library.both_words(graph, counted)
        spread = graph.reshape(keys, (*shape, *[1] * len(added)))
        return hash_words(graph, library.both_words(graph, spread), [high, low])
    counters = np.arange(math.prod(added), dtype=np.uint64).reshape(added)
    spread = graph.reshape(keys, (*shape, *[1] * len(added))) if added else keys
    high, low = (graph.constant(part.astype(np.uint32)) for part in (counters >> np.uint64(32), counters))
    return hash_words(graph, library.both_words(graph, spread), [high, low])


@register_onnx_rule("threefry2x32")
def _hash(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return hash_words(emission.graph, values[:2], values[2:])


@register_onnx_rule("random_split")
def _split(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph = emission.graph
    return [pack_words(graph, _hash_counters(graph, values[0], operation.shapes[0], operation.params["shape"]))]


@register_onnx_rule("random_bits")
def _bits(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, width = emission.graph, operation.params["bit_width"]
    words = _hash_counters(graph, values[0], operation.shapes[0], operation.params["shape"])
    if width == 64:
        return [pack_words(graph, words)]
    return [graph.cast(graph.operation("BitwiseXor", *words), np.dtype(f"uint{width}"))]


@register_onnx_rule("random_fold_in")
def _fold_in(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (keys, data) = emission.graph, values
    return [pack_words(graph, hash_words(graph, library.both_words(graph, keys), [graph.number(0, UINT32), data]))]


@register_onnx_rule("random_seed")
def _seed(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    """Emit the key of a seed: both words of 64-bit seeds, the low one of narrower ones."""
    graph, (seeds,) = emission.graph, values
    if dtypes.is_64bit(seeds.dtype):
        return [graph.cast(seeds, UINT64)]
    return [graph.cast(graph.cast(seeds, UINT32), UINT64)]


register_library_rule("random_wrap", library.key_of_words)
register_library_rule("random_unwrap", library.words_of_key)


@register_onnx_rule("random_clone")
def _clone(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return values
