"""`OnnxGraph`: the nodes of a model on their way, and what rules write them with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import DType
from fxgrad.extend.sizes import SizeFunctions, SymbolicDim, has_symbolic_dim
from fxgrad.shipping.onnx import protos
from fxgrad.shipping.onnx.kernels import COMPARING, kernel_dtype
from fxgrad.shipping.onnx.rules import OnnxRefusal
from fxgrad.text.names import UniqueNames

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


class OnnxValue(NamedTuple):
    """A value of a graph: its name and its dtype."""

    name: str
    dtype: DType


class SymbolicCount:
    """A symbolic size under construction: the arithmetic of `Size.at` as nodes."""

    __slots__ = ("graph", "value")

    def __init__(self, graph: OnnxGraph, value: OnnxValue) -> None:
        self.graph, self.value = graph, value

    def combined(self, operator: str, other: Any, turned: bool = False) -> SymbolicCount:
        """The node of an operator on this and another size, or a number; `turned` has that first."""
        given = other.value if isinstance(other, SymbolicCount) else self.graph.constant(np.array([other], np.int64))
        operands = (given, self.value) if turned else (self.value, given)
        return SymbolicCount(self.graph, self.graph.operation(operator, *operands))

    def __add__(self, other: Any) -> SymbolicCount:
        return self.combined("Add", other)

    def __sub__(self, other: Any) -> SymbolicCount:
        return self.combined("Sub", other)

    def __rsub__(self, other: Any) -> SymbolicCount:
        return self.combined("Sub", other, turned=True)

    def __mul__(self, other: Any) -> SymbolicCount:
        return self.combined("Mul", other)

    def __pow__(self, other: int) -> SymbolicCount:
        return self if other == 1 else self * self ** (other - 1)

    def __neg__(self) -> SymbolicCount:
        return self * -1

    __radd__, __rmul__ = __add__, __mul__


def _binary_count(operator: str) -> Callable[[Any, Any], SymbolicCount]:
    def function(first: Any, second: Any) -> SymbolicCount:
        if isinstance(first, SymbolicCount):
            return first.combined(operator, second)
        found: SymbolicCount = second.combined(operator, first, turned=True)
        return found
    return function


def _floor_quotient(first: Any, second: Any) -> SymbolicCount:
    """Rounded down: what is left over, which has the sign of the divisor, goes first."""
    return _binary_count("Div")(first - FUNCTIONS["mod"](first, second), second)


FUNCTIONS: SizeFunctions = {"floordiv": _floor_quotient, "mod": _binary_count("Mod"), "max": _binary_count("Max"),
                            "min": _binary_count("Min")}


class _Level:
    """The graph of the model, or one within: of a branch, or of the body of a loop."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.known: list[Any] = []
        self.values: dict[Any, OnnxValue] = {}
        self.sizes: dict[SymbolicDim, OnnxValue] = {}

    def used_constants(self) -> list[Any]:
        """The constants that a node uses, here or in a graph within: of others runtimes warn."""
        used = _used_names(self.nodes)
        return [each for each in self.constants if each.name in used]


def _used_names(nodes: Sequence[Any]) -> set[str]:
    """The names that nodes take in, those in their graphs too."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                names |= _used_names(attribute.g.node)
    return names


class OnnxGraph:
    """The nodes of a model under construction; `operation` adds one, in a dtype that runtimes support.

    Names of values are given once in the whole model, since bodies see what is around them.
    """

    def __init__(self) -> None:
        self.unique = UniqueNames()
        self.opset = OPSET
        self.named: dict[str, OnnxValue] = {}
        """The sizes that names stand for, each an array of one element."""
        self.base = ""
        """What the nodes that are added compute: the name of a variable, of which theirs are made."""
        self._levels = [_Level()]

    # --- nodes ------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Any]:
        """The nodes of the graph that is being written."""
        return self._levels[-1].nodes

    def operation(self, operator: str, *inputs: OnnxValue | None, **attributes: Any) -> OnnxValue:
        """The one output of a node; None stands for an optional input that is left out."""
        return self.operations(operator, 1, *inputs, **attributes)[0]

    def operations(self, operator: str, count: int, *inputs: OnnxValue | None, **attributes: Any) -> list[OnnxValue]:
        """The outputs of a node, in the dtype of its operands but for comparisons and places."""
        data = [place for place in _DATA.get(operator, range(len(inputs))) if place < len(inputs)]
        dtype = next(value.dtype for place in data if (value := inputs[place]) is not None)
        way = kernel_dtype(operator, dtype)
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

    def raw(self, operator: str, inputs: Sequence[OnnxValue | None], kinds: Sequence[DType],
            attributes: dict[str, Any]) -> list[OnnxValue]:
        """The outputs of a node as it stands, of the dtypes `kinds`."""
        self.opset = max(self.opset, NEWER.get(operator, 0))
        outputs = [OnnxValue(self.unique(f"{self.base}.{operator.lower()}"), kind) for kind in kinds]
        names = ["" if value is None else value.name for value in inputs]
        while names and not names[-1]:
            names.pop()
        self.nodes.append(protos.make_node(operator, names, [value.name for value in outputs], attributes))
        return outputs

    def _turned(self, value: OnnxValue, dtype: DType, turned: bool) -> OnnxValue:
        return self.cast(self._first_bit(value) if turned else value, dtype)

    def _turned_back(self, value: OnnxValue, dtype: DType, turned: bool) -> OnnxValue:
        found = self.cast(value, dtype)
        return self._first_bit(found) if turned else found

    def _first_bit(self, value: OnnxValue) -> OnnxValue:
        return self.operation("BitwiseXor", value, self.number(1 << 63, value.dtype))

    # --- constants --------------------------------------------------------------------------------------------

    def constant(self, array: Any, name: str = "") -> OnnxValue:
        """An array that stands in the model, once in each graph that uses it."""
        array = np.asarray(array)
        key = (array.tobytes(), array.shape, array.dtype.name)
        level = self._levels[-1]
        known = level.values.get(key)
        if known is None or name:
            shown = str(array) if array.size == 1 and array.dtype.names is None else f"constant_{array.dtype.name}"
            made = OnnxValue(self.unique(name or shown), array.dtype)
            level.constants.append(protos.make_tensor(made.name, array))
            known = level.values.setdefault(key, made) if not name else made
        return known

    def number(self, value: Any, dtype: DType) -> OnnxValue:
        """A scalar."""
        return self.constant(np.asarray(value).astype(dtype))

    def sizes(self, values: Sequence[Any]) -> OnnxValue:
        """Shapes, axes and other lists of whole numbers, as nodes take them; sizes with names are computed."""
        values = [*values]
        if not has_symbolic_dim(*values):
            return self.constant(np.array(values, np.int64))
        return self.concatenate([self.size(value) for value in values], 0)

    def size(self, value: Any) -> OnnxValue:
        """A size, which may have a name, as an array of one element."""
        if type(value) is not SymbolicDim:
            return self.constant(np.array([value], np.int64))
        for level in reversed(self._levels):
            if value in level.sizes:
                return level.sizes[value]
        unknown = [name for name in value.names if name not in self.named]
        if unknown:
            raise OnnxRefusal(f"needs the size {unknown[0]}, which is that of no axis of an argument by itself. Pass "
                              "an "
                              f"array that has an axis of this size")
        found: OnnxValue = value.at({name: SymbolicCount(self, size) for name, size in self.named.items()},
                                    FUNCTIONS).value
        self._levels[-1].sizes[value] = found
        return found

    def number_of(self, value: Any) -> OnnxValue:
        """A size, which may have a name, as a scalar."""
        return self.number(value, INT64) if type(value) is not SymbolicDim else self.reshape(self.size(value), ())

    def counting(self, count: Any) -> OnnxValue:
        """0, 1, 2, ... as int64, so many."""
        if type(count) is not SymbolicDim:
            return self.constant(np.arange(count))
        return self.operation("Range", self.number(0, INT64), self.number_of(count), self.number(1, INT64))

    def filled(self, number: Any, dtype: DType, shape: Sequence[Any]) -> OnnxValue:
        """An array of one number."""
        if has_symbolic_dim(*shape):
            return self.expand(self.number(number, dtype), shape)
        return self.constant(np.full(tuple(shape), np.asarray(number).astype(dtype), dtype))

    # --- graphs within ----------------------------------------------------------------------------------------

    @contextmanager
    def within(self) -> Iterator[None]:
        """What is added in this block belongs to a graph within; `body` makes it."""
        self._levels.append(_Level())
        try:
            yield
        finally:
            self._levels.pop()

    def body(self, name: str, inputs: Sequence[tuple[OnnxValue, Sequence[Any]]],
             outputs: Sequence[tuple[OnnxValue, Sequence[Any]]]) -> Any:
        """The graph that is being written; each output gets a node of its own, as runtimes want it."""
        level = self._levels[-1]
        results = [self.raw("Identity", [value], [value.dtype], {})[0] for value, _ in outputs]
        infos = [protos.value_info(value.name, shape, value.dtype)
                 for value, (_, shape) in zip(results, outputs, strict=True)]
        return protos.make_graph(name, level.nodes, [protos.value_info(value.name, shape, value.dtype)
                                                     for value, shape in inputs], infos, level.used_constants(),
                                 level.known)

    def model_graph(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The graph of the model; values are outputs or known, not both."""
        level, made = self._levels[-1], {each.name for each in outputs}
        return protos.make_graph(name, level.nodes, inputs, outputs, level.used_constants(),
                                 [each for each in level.known if each.name not in made])

    def is_known(self, value: OnnxValue, shape: Sequence[Any]) -> None:
        """Notes the type of a value, which checkers compare with what they infer."""
        self._levels[-1].known.append(protos.value_info(value.name, shape, value.dtype))

    # --- what rules are written in ----------------------------------------------------------------------------

    def cast(self, value: OnnxValue, dtype: DType) -> OnnxValue:
        """The value in another dtype; as it is if it has it."""
        if value.dtype == dtype:
            return value
        if dtypes.is_floating(dtype) and dtype.itemsize == 1:  # what is out of range is infinite or a NaN, as in XLA
            return self.raw("Cast", [value], [dtype], {"to": protos.element_type(dtype), "saturate": 0})[0]
        return self.raw("Cast", [value], [dtype], {"to": protos.element_type(dtype)})[0]

    def in_dtype(self, dtype: DType, rule: Callable[..., OnnxValue], *values: OnnxValue) -> OnnxValue:
        """What `rule` makes of the values in `dtype`, in their own again."""
        return self.cast(rule(*(self.cast(value, dtype) for value in values)), values[0].dtype)

    def reshape(self, value: OnnxValue, shape: Sequence[Any]) -> OnnxValue:
        """The elements in another shape; a size of 0 is one."""
        return self.operation("Reshape", value, self.sizes(shape), allowzero=int(0 in shape))

    def expand(self, value: OnnxValue, shape: Sequence[Any]) -> OnnxValue:
        """The value broadcast to a shape."""
        return self.operation("Expand", value, self.sizes(shape))

    def transpose(self, value: OnnxValue, permutation: Sequence[int]) -> OnnxValue:
        """The value with its axes in another order."""
        if list(permutation) == list(range(len(permutation))):
            return value
        return self.operation("Transpose", value, perm=list(permutation))

    def slice(self, value: OnnxValue, starts: Sequence[Any], ends: Sequence[Any], axes: Sequence[int],
              steps: Sequence[int] | None = None) -> OnnxValue:
        """A part of the value along `axes`."""
        return self.operation("Slice", value, self.sizes(starts), self.sizes(ends), self.sizes(axes),
                              self.sizes(steps or [1] * len(axes)))

    def unsqueeze(self, value: OnnxValue, axes: Sequence[int]) -> OnnxValue:
        """New axes of size 1 at the places that they have in the result."""
        return self.operation("Unsqueeze", value, self.sizes(axes)) if len(axes) else value

    def where(self, condition: OnnxValue, chosen: OnnxValue, other: OnnxValue) -> OnnxValue:
        """Elements of `chosen` where the condition holds, and of `other` elsewhere.

        onnxruntime makes 0 of a -0 that is chosen, but not of another: what may be one stands there.
        """
        return self.operation("Where", condition, chosen, other)

    def isnan(self, value: OnnxValue) -> OnnxValue:
        """Where there is a NaN; x is not x would do in every dtype, and runtimes simplify it away."""
        return self.operation("IsNaN", value)

    def concatenate(self, values: Sequence[OnnxValue], axis: int) -> OnnxValue:
        """The values joined along an axis."""
        return values[0] if len(values) == 1 else self.operation("Concat", *values, axis=axis)


def has_nans(dtype: DType) -> bool:
    """Whether a dtype has NaNs."""
    return dtypes.is_floating(dtype)
