"""`OnnxGraph`: the nodes of a model under construction, and the methods that rules write them with."""

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
"""Operators of later versions, by version; a model that uses one declares that version."""

_DATA = {"Where": (1, 2), "Pad": (0, 2), "ScatterElements": (0, 2), "Gather": (0,), "GatherElements": (0,),
         "Reshape": (0,), "Expand": (0,), "Tile": (0,), "Slice": (0,), "TopK": (0,), "CumSum": (0,), "ReduceSum": (0,),
         "ReduceProd": (0,), "ReduceMax": (0,), "ReduceMin": (0,), "Unsqueeze": (0,), "Squeeze": (0,), "Split": (0,)}
"""The inputs of an operator that have the dtype it computes in; for other operators all inputs have."""
_PLACES = {"ArgMax": 0, "ArgMin": 0, "TopK": 1}
"""The output of an operator that holds int64 indices."""

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
        """Return the node of an operator on this size and another, or a number; `turned` swaps them."""
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
    """Return the quotient rounded down: the remainder, which has the sign of the divisor, is subtracted first."""
    return _binary_count("Div")(first - FUNCTIONS["mod"](first, second), second)


FUNCTIONS: SizeFunctions = {"floordiv": _floor_quotient, "mod": _binary_count("Mod"), "max": _binary_count("Max"),
                            "min": _binary_count("Min")}


class _Level:
    """The graph of the model, or an inner one: of a branch, or of the body of a loop."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.known: list[Any] = []
        self.values: dict[Any, OnnxValue] = {}
        self.sizes: dict[SymbolicDim, OnnxValue] = {}

    def used_constants(self) -> list[Any]:
        """Return the constants that nodes here or in inner graphs use; runtimes warn of unused ones."""
        used = _used_names(self.nodes)
        return [each for each in self.constants if each.name in used]


def _used_names(nodes: Sequence[Any]) -> set[str]:
    """Return the input names of nodes, those in their graphs included."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                names |= _used_names(attribute.g.node)
    return names


class OnnxGraph:
    """The nodes of a model under construction; `operation` adds one, in a dtype that runtimes support.

    Names of values are unique in the whole model, since bodies see the values around them.
    """

    def __init__(self) -> None:
        self.unique = UniqueNames()
        self.opset = OPSET
        self.named: dict[str, OnnxValue] = {}
        """The values of symbolic sizes by name, each an array of one element."""
        self.base = ""
        """The name of the variable that is being computed; the names of new nodes are derived from it."""
        self._levels = [_Level()]

    # --- nodes ------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Any]:
        """The nodes of the graph that is being written."""
        return self._levels[-1].nodes

    def operation(self, operator: str, *inputs: OnnxValue | None, **attributes: Any) -> OnnxValue:
        """Add a node; return its one output. None is an optional input that is left out."""
        return self.operations(operator, 1, *inputs, **attributes)[0]

    def operations(self, operator: str, count: int, *inputs: OnnxValue | None, **attributes: Any) -> list[OnnxValue]:
        """Add a node; return its outputs, in the dtype of its operands except for comparisons and indices."""
        data = [place for place in _DATA.get(operator, range(len(inputs))) if place < len(inputs)]
        dtype = next(value.dtype for place in data if (value := inputs[place]) is not None)
        way = kernel_dtype(operator, dtype)
        given = list(inputs)
        if way is not None:
            for place in data:
                value = given[place]
                given[place] = None if value is None else self.cast(self._first_bit(value) if way.turned else value,
                                                                    way.dtype)
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
        """Add a node exactly as given; return its outputs, of the dtypes `kinds`."""
        self.opset = max(self.opset, NEWER.get(operator, 0))
        outputs = [OnnxValue(self.unique(f"{self.base}.{operator.lower()}"), kind) for kind in kinds]
        names = ["" if value is None else value.name for value in inputs]
        while names and not names[-1]:
            names.pop()
        self.nodes.append(protos.make_node(operator, names, [value.name for value in outputs], attributes))
        return outputs

    def _turned_back(self, value: OnnxValue, dtype: DType, turned: bool) -> OnnxValue:
        found = self.cast(value, dtype)
        return self._first_bit(found) if turned else found

    def _first_bit(self, value: OnnxValue) -> OnnxValue:
        return self.operation("BitwiseXor", value, self.number(1 << 63, value.dtype))

    # --- constants --------------------------------------------------------------------------------------------

    def constant(self, array: Any, name: str = "") -> OnnxValue:
        """Return an array that is stored in the model, once in each graph that uses it."""
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
        """Return a scalar."""
        return self.constant(np.asarray(value).astype(dtype))

    def sizes(self, values: Sequence[Any]) -> OnnxValue:
        """Return shapes, axes and other lists of integers as nodes take them; symbolic sizes are computed."""
        values = [*values]
        if not has_symbolic_dim(*values):
            return self.constant(np.array(values, np.int64))
        return self.concatenate([self.size(value) for value in values], 0)

    def size(self, value: Any) -> OnnxValue:
        """Return a size, which may be symbolic, as an array of one element."""
        if type(value) is not SymbolicDim:
            return self.constant(np.array([value], np.int64))
        for level in reversed(self._levels):
            if value in level.sizes:
                return level.sizes[value]
        unknown = [name for name in value.names if name not in self.named]
        if unknown:
            raise OnnxRefusal(f"needs the size {unknown[0]}, which is that of no axis of an argument by itself. Pass "
                              f"an array that has an axis of this size")
        found: OnnxValue = value.at({name: SymbolicCount(self, size) for name, size in self.named.items()},
                                    FUNCTIONS).value
        self._levels[-1].sizes[value] = found
        return found

    def number_of(self, value: Any) -> OnnxValue:
        """Return a size, which may be symbolic, as a scalar."""
        return self.number(value, INT64) if type(value) is not SymbolicDim else self.reshape(self.size(value), ())

    def counting(self, count: Any) -> OnnxValue:
        """Return 0, 1, 2, ... as int64."""
        if type(count) is not SymbolicDim:
            return self.constant(np.arange(count))
        return self.operation("Range", self.number(0, INT64), self.number_of(count), self.number(1, INT64))

    def filled(self, number: Any, dtype: DType, shape: Sequence[Any]) -> OnnxValue:
        """Return an array filled with one number."""
        if has_symbolic_dim(*shape):
            return self.expand(self.number(number, dtype), shape)
        return self.constant(np.full(tuple(shape), np.asarray(number).astype(dtype), dtype))

    # --- graphs within ----------------------------------------------------------------------------------------

    @contextmanager
    def within(self) -> Iterator[None]:
        """Add the nodes of this block to an inner graph, which `body` makes."""
        self._levels.append(_Level())
        try:
            yield
        finally:
            self._levels.pop()

    def body(self, name: str, inputs: Sequence[tuple[OnnxValue, Sequence[Any]]],
             outputs: Sequence[tuple[OnnxValue, Sequence[Any]]]) -> Any:
        """Return the current graph; each output gets a node of its own, as runtimes require."""
        level = self._levels[-1]
        results = [self.raw("Identity", [value], [value.dtype], {})[0] for value, _ in outputs]
        infos = [protos.value_info(value.name, shape, value.dtype)
                 for value, (_, shape) in zip(results, outputs, strict=True)]
        return protos.make_graph(name, level.nodes, [protos.value_info(value.name, shape, value.dtype)
                                                     for value, shape in inputs], infos, level.used_constants(),
                                 level.known)

    def model_graph(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Return the graph of the model; a value is recorded as an output or as known, not both."""
        level, made = self._levels[-1], {each.name for each in outputs}
        return protos.make_graph(name, level.nodes, inputs, outputs, level.used_constants(),
                                 [each for each in level.known if each.name not in made])

    def is_known(self, value: OnnxValue, shape: Sequence[Any]) -> None:
        """Record the type of a value, which checkers compare with the inferred type."""
        self._levels[-1].known.append(protos.value_info(value.name, shape, value.dtype))

    # --- building blocks of rules -----------------------------------------------------------------------------

    def cast(self, value: OnnxValue, dtype: DType) -> OnnxValue:
        """Return the value in another dtype; unchanged if it has it."""
        if value.dtype == dtype:
            return value
        if dtypes.is_floating(dtype) and dtype.itemsize == 1:  # out-of-range values become infinite or NaN, as in XLA
            return self.raw("Cast", [value], [dtype], {"to": protos.element_type(dtype), "saturate": 0})[0]
        return self.raw("Cast", [value], [dtype], {"to": protos.element_type(dtype)})[0]

    def in_dtype(self, dtype: DType, rule: Callable[..., OnnxValue], *values: OnnxValue) -> OnnxValue:
        """Apply `rule` to the values in `dtype`; return the result in their own dtype."""
        return self.cast(rule(*(self.cast(value, dtype) for value in values)), values[0].dtype)

    def reshape(self, value: OnnxValue, shape: Sequence[Any]) -> OnnxValue:
        """Return the elements in another shape; a size of 0 is allowed."""
        return self.operation("Reshape", value, self.sizes(shape), allowzero=int(0 in shape))

    def expand(self, value: OnnxValue, shape: Sequence[Any]) -> OnnxValue:
        """Return the value broadcast to a shape."""
        return self.operation("Expand", value, self.sizes(shape))

    def transpose(self, value: OnnxValue, permutation: Sequence[int]) -> OnnxValue:
        """Return the value with its axes in another order."""
        if list(permutation) == list(range(len(permutation))):
            return value
        return self.operation("Transpose", value, perm=list(permutation))

    def slice(self, value: OnnxValue, starts: Sequence[Any], ends: Sequence[Any], axes: Sequence[int],
              steps: Sequence[int] | None = None) -> OnnxValue:
        """Return a part of the value along `axes`."""
        return self.operation("Slice", value, self.sizes(starts), self.sizes(ends), self.sizes(axes),
                              self.sizes(steps or [1] * len(axes)))

    def unsqueeze(self, value: OnnxValue, axes: Sequence[int]) -> OnnxValue:
        """Return new axes of size 1 at the places that they have in the result."""
        return self.operation("Unsqueeze", value, self.sizes(axes)) if len(axes) else value

    def where(self, condition: OnnxValue, chosen: OnnxValue, other: OnnxValue) -> OnnxValue:
        """Return elements of `chosen` where the condition holds, and of `other` elsewhere.

        onnxruntime turns a -0 of `chosen` into 0, but not one of `other`: operands that may have one go there.
        """
        return self.operation("Where", condition, chosen, other)

    def isnan(self, value: OnnxValue) -> OnnxValue:
        """Return where there is a NaN; runtimes would simplify x != x, which every dtype has, to false."""
        return self.operation("IsNaN", value)

    def concatenate(self, values: Sequence[OnnxValue], axis: int) -> OnnxValue:
        """Return the values joined along an axis."""
        return values[0] if len(values) == 1 else self.operation("Concat", *values, axis=axis)


def has_nans(dtype: DType) -> bool:
    """Return whether a dtype has NaNs."""
    return dtypes.is_floating(dtype)
