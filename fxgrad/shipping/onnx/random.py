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
from fxgrad.shipping.onnx.graph import Graph, Value
from fxgrad.shipping.onnx.rules import Operation, library_rule, rule_of

Values = list[Value]
UINT32, UINT64 = library.UINT32, library.UINT64


def hashed(graph: Graph, key: Sequence[Value], counter: Sequence[Value]) -> Values:
    """Twenty rounds of threefry2x32 on words of 32 bits."""
    def plus(x: Value, y: Value) -> Value:
        return graph.operation("Add", x, y)

    def mixed(x: Value, y: Value) -> Value:
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


def packed(graph: Graph, words: Sequence[Value]) -> Value:
    """Two words as one number, the first in the upper half."""
    high, low = (graph.cast(word, UINT64) for word in words)
    return graph.operation("BitwiseOr", library.shift_by(graph, high, 32, "LEFT"), low)


def _of_counters(graph: Graph, keys: Value, shape: tuple[int, ...], added: tuple[int, ...]) -> Values:
    """For each key the hashes of 0, 1, 2, ... in the elements of `added`."""
    if has_symbolic_dim(*added):
        counted = graph.reshape(graph.cast(graph.counting(math.prod(added)), UINT64), added)
        high, low = library.both_words(graph, counted)
        spread = graph.reshape(keys, (*shape, *[1] * len(added)))
        return hashed(graph, library.both_words(graph, spread), [high, low])
    counters = np.arange(math.prod(added), dtype=np.uint64).reshape(added)
    spread = graph.reshape(keys, (*shape, *[1] * len(added))) if added else keys
    high, low = (graph.constant(part.astype(np.uint32)) for part in (counters >> np.uint64(32), counters))
    return hashed(graph, library.both_words(graph, spread), [high, low])


@rule_of("threefry2x32")
def _hash(emission: Emission, operation: Operation, values: Values) -> Values:
    return hashed(emission.graph, values[:2], values[2:])


@rule_of("random_split")
def _split(emission: Emission, operation: Operation, values: Values) -> Values:
    graph = emission.graph
    return [packed(graph, _of_counters(graph, values[0], operation.shapes[0], operation.params["shape"]))]


@rule_of("random_bits")
def _bits(emission: Emission, operation: Operation, values: Values) -> Values:
    graph, width = emission.graph, operation.params["bit_width"]
    words = _of_counters(graph, values[0], operation.shapes[0], operation.params["shape"])
    if width == 64:
        return [packed(graph, words)]
    return [graph.cast(graph.operation("BitwiseXor", *words), np.dtype(f"uint{width}"))]


@rule_of("random_fold_in")
def _fold_in(emission: Emission, operation: Operation, values: Values) -> Values:
    graph, (keys, data) = emission.graph, values
    return [packed(graph, hashed(graph, library.both_words(graph, keys), [graph.number(0, UINT32), data]))]


@rule_of("random_seed")
def _seed(emission: Emission, operation: Operation, values: Values) -> Values:
    """Of seeds of 64 bits both words, of narrower ones the low one."""
    graph, (seeds,) = emission.graph, values
    if dtypes.is_64bit(seeds.dtype):
        return [graph.cast(seeds, UINT64)]
    return [graph.cast(graph.cast(seeds, UINT32), UINT64)]


library_rule("random_wrap", library.key_of_words)
library_rule("random_unwrap", library.words_of_key)


@rule_of("random_clone")
def _clone(emission: Emission, operation: Operation, values: Values) -> Values:
    return values
