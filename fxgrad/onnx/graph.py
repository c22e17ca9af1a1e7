"""`Graph`: the nodes of a model on their way, and what rules write them with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fxgrad import dtypes
from fxgrad.dtypes import DType
from fxgrad.onnx import protos
from fxgrad.onnx.kernels import COMPARING, way_of
from fxgrad.show.names import Unique

OPSET = 21
"""The version of the operators that models use: onnxruntime 1.20 and all newer ones read it."""
NEWER = {"BitCast": 26}
"""Operators that came later, and when; a model that has one says so."""

_DATA = {"Where": (1, 2), "Pad": (0, 2), "ScatterElements": (0, 2), "Gather": (0,), "GatherElements": (0,),
         "Reshape": (0,), "Expand": (0,), "Tile": (0,), "Slice": (0,), "TopK": (0,), "CumSum": (0,), "ReduceSum": (0,),
         "ReduceProd": (0,), "ReduceMax": (0,), "ReduceMin": (0,), "Unsqueeze": (0,), "Squeeze": (0,), "Split": (0,)}
"""Which inputs of an operator are of the dtype that it computes in; of others all are."""
_PLACES = {"ArgMax": 0, "ArgMin": 0, "TopK": 1}
"""Which output of an operator is made of int64 places."""

BOOL, INT64 = np.dtype(bool), np.dtype(np.int64)


class Value(NamedTuple):
    """A value of a graph: its name and its dtype."""

    name: str
    dtype: DType


class _Level:
    """The graph of the model, or one within: of a branch, or of the body of a loop."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.known: list[Any] = []
        self.values: dict[Any, Value] = {}


class Graph:
    """The nodes of a model on their way; `operation` adds one, in a dtype for which runtimes have a kernel.

    Names of values are given once in the whole model, since bodies see what is around them.
    """

    def __init__(self) -> None:
        self.unique = Unique()
        self.opset = OPSET
        self.base = ""
        """What the nodes that are added compute: the name of a variable, of which theirs are made."""
        self._levels = [_Level()]

    # --- nodes ------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Any]:
        """The nodes of the graph that is being written."""
        return self._levels[-1].nodes

    def operation(self, operator: str, *inputs: Value | None, **attributes: Any) -> Value:
        """The one output of a node; None stands for an optional input that is left out."""
        return self.operations(operator, 1, *inputs, **attributes)[0]

    def operations(self, operator: str, count: int, *inputs: Value | None, **attributes: Any) -> list[Value]:
        """The outputs of a node, in the dtype of its operands but for comparisons and places."""
        data = [place for place in _DATA.get(operator, range(len(inputs))) if place < len(inputs)]
        dtype = next(value.dtype for place in data if (value := inputs[place]) is not None)
        way = way_of(operator, dtype)
        given = list(inputs)
        if way is not None:
            for place in data:
                value = given[place]
                given[place] = None if value is None else self._turned(value, way.dtype, way.turned)
        computed = dtype if way is None else way.dtype
        kinds = [BOOL if operator in COMPARING else INT64 if _PLACES.get(operator) == number else computed
                 for number in range(count)]
        made = self.raw(operator, given, kinds, attributes)
        if way is None:
            return made
        return [value if value.dtype != way.dtype or _PLACES.get(operator) == number else
                self._turned_back(value, dtype, way.turned) for number, value in enumerate(made)]

    def raw(self, operator: str, inputs: Sequence[Value | None], kinds: Sequence[DType],
            attributes: dict[str, Any]) -> list[Value]:
        """The outputs of a node as it stands, of the dtypes `kinds`."""
        self.opset = max(self.opset, NEWER.get(operator, 0))
        outputs = [Value(self.unique(f"{self.base}.{operator.lower()}"), kind) for kind in kinds]
        names = ["" if value is None else value.name for value in inputs]
        while names and not names[-1]:
            names.pop()
        self.nodes.append(protos.node(operator, names, [value.name for value in outputs], attributes))
        return outputs

    def _turned(self, value: Value, dtype: DType, turned: bool) -> Value:
        return self.cast(self._first_bit(value) if turned else value, dtype)

    def _turned_back(self, value: Value, dtype: DType, turned: bool) -> Value:
        found = self.cast(value, dtype)
        return self._first_bit(found) if turned else found

    def _first_bit(self, value: Value) -> Value:
        return self.operation("BitwiseXor", value, self.number(1 << 63, value.dtype))

    # --- constants --------------------------------------------------------------------------------------------

    def constant(self, array: Any, name: str = "") -> Value:
        """An array that stands in the model, once in each graph that uses it."""
        array = np.asarray(array)
        key = (array.tobytes(), array.shape, array.dtype.str, array.dtype.name)
        level = self._levels[-1]
        known = level.values.get(key)
        if known is None or name:
            shown = str(array) if array.size == 1 and array.dtype.names is None else f"constant_{array.dtype.name}"
            made = Value(self.unique(name or shown), array.dtype)
            level.constants.append(protos.tensor(made.name, array))
            known = level.values.setdefault(key, made) if not name else made
        return known

    def number(self, value: Any, dtype: DType) -> Value:
        """A scalar."""
        return self.constant(np.asarray(value).astype(dtype))

    def sizes(self, values: Sequence[int]) -> Value:
        """Shapes, axes and other lists of whole numbers, as nodes take them."""
        return self.constant(np.array([*values], np.int64))

    # --- graphs within ----------------------------------------------------------------------------------------

    @contextmanager
    def within(self) -> Iterator[None]:
        """What is added in this block belongs to a graph within; `body` makes it."""
        self._levels.append(_Level())
        try:
            yield
        finally:
            self._levels.pop()

    def body(self, name: str, inputs: Sequence[tuple[Value, Sequence[int]]],
             outputs: Sequence[tuple[Value, Sequence[int]]]) -> Any:
        """The graph that is being written; each output gets a node of its own, as runtimes want it."""
        level = self._levels[-1]
        results = [self.raw("Identity", [value], [value.dtype], {})[0] for value, _ in outputs]
        infos = [protos.value_info(value.name, shape, value.dtype)
                 for value, (_, shape) in zip(results, outputs, strict=True)]
        return protos.graph(name, level.nodes, [protos.value_info(value.name, shape, value.dtype)
                                                for value, shape in inputs], infos, level.constants, level.known)

    def model_graph(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The graph of the model; values are outputs or known, not both."""
        level, made = self._levels[-1], {each.name for each in outputs}
        return protos.graph(name, level.nodes, inputs, outputs, level.constants,
                            [each for each in level.known if each.name not in made])

    def is_known(self, value: Value, shape: Sequence[int]) -> None:
        """Notes the type of a value, which checkers compare with what they infer."""
        self._levels[-1].known.append(protos.value_info(value.name, shape, value.dtype))

    # --- what rules are written in ----------------------------------------------------------------------------

    def cast(self, value: Value, dtype: DType) -> Value:
        """The value in another dtype; as it is if it has it."""
        if value.dtype == dtype:
            return value
        return self.raw("Cast", [value], [dtype], {"to": protos.element_type(dtype)})[0]

    def in_dtype(self, dtype: DType, rule: Callable[..., Value], *values: Value) -> Value:
        """What `rule` makes of the values in `dtype`, in their own again."""
        return self.cast(rule(*(self.cast(value, dtype) for value in values)), values[0].dtype)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """The elements in another shape; a size of 0 is one."""
        return self.operation("Reshape", value, self.sizes(shape), allowzero=int(0 in shape))

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        """The value broadcast to a shape."""
        return self.operation("Expand", value, self.sizes(shape))

    def transpose(self, value: Value, permutation: Sequence[int]) -> Value:
        """The value with its axes in another order."""
        if list(permutation) == list(range(len(permutation))):
            return value
        return self.operation("Transpose", value, perm=list(permutation))

    def slice(self, value: Value, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int],
              steps: Sequence[int] | None = None) -> Value:
        """A part of the value along `axes`."""
        return self.operation("Slice", value, self.sizes(starts), self.sizes(ends), self.sizes(axes),
                              self.sizes(steps or [1] * len(axes)))

    def unsqueeze(self, value: Value, axes: Sequence[int]) -> Value:
        """New axes of size 1 at the places that they have in the result."""
        return self.operation("Unsqueeze", value, self.sizes(axes)) if len(axes) else value

    def where(self, condition: Value, chosen: Value, other: Value) -> Value:
        """Elements of `chosen` where the condition holds."""
        return self.operation("Where", condition, chosen, other)

    def isnan(self, value: Value) -> Value:
        """Where there is a NaN; x is not x would do in every dtype, and runtimes simplify it away."""
        return self.operation("IsNaN", value)

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        """The values joined along an axis."""
        return values[0] if len(values) == 1 else self.operation("Concat", *values, axis=axis)


def is_float(dtype: DType) -> bool:
    """Whether a dtype has NaNs."""
    return dtypes.is_floating(dtype)
