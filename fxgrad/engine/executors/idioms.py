"""The operations of generated code: one for each equation, or for a group of equations that is one step in NumPy.

These groups are: reading elements of an array (a slice and a reshape each), putting elements into an array of zeros (a
reshape and a padding each, and their sums), and reductions that keep the reduced axes (a reduction and a reshape).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.core.avals import Aval, Literal, Shape
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.ops.joining import stack_p, unstack_p
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.ops.reductions import reduce_max_p, reduce_min_p
from fxgrad.engine.ops.shaping import pad_p, slice_p
from fxgrad.engine.ops.snippets import Snippet
from fxgrad.engine.ops.structural import broadcast_to_p, reduce_sum_p, reshape_p


class Operation(NamedTuple):
    """A step of generated code: `call` is its expression, with its operands and results; None calls the kernel.

    An expression with several results is a sequence of them.
    """

    inputs: Sequence[Atom]
    outputs: Sequence[Variable]
    call: Snippet | None
    equation: Equation


def group(program: Program, equations: Sequence[Equation], calls: Sequence[Snippet | None]) -> list[Operation]:
    """Return the operations of the equations, whose expressions on their own are `calls`."""
    uses = Counter(atom for equation in equations for atom in equation.inputs if type(atom) is Variable)
    uses.update(atom for atom in program.outputs if type(atom) is Variable)
    grouping = _Grouping(equations, uses)
    operations: list[Operation] = []
    for equation, call in zip(equations, calls, strict=True):
        if equation in grouping.absorbed:
            continue
        operations.append(grouping.operation(equation) or Operation(equation.inputs, equation.outputs, call, equation))
    return operations


_Index = tuple[int, ...]


class _Grouping:
    """Finds the groups; `absorbed` are the equations that another one's operation computes."""

    def __init__(self, equations: Sequence[Equation], uses: Mapping[Variable, int]) -> None:
        self.absorbed: set[Equation] = set()
        self._uses = uses
        self._definitions: dict[Atom, Equation] = {}
        self._operations: dict[Equation, Operation] = {}
        self._placed: dict[Variable, dict[_Index, _Element]] = {}
        reads: dict[Variable, list[tuple[Equation, list[_Index], Sequence[Variable]]]] = {}
        for equation in equations:
            self._definitions.update(dict.fromkeys(equation.outputs, equation))
            primitive = equation.primitive
            if primitive is reshape_p:
                read = self._element(equation)
                if read is not None:
                    reads.setdefault(read[0], []).append((equation, [read[1]], equation.outputs))
            elif primitive is unstack_p:
                array = equation.inputs[0]
                if type(array) is Variable and array.aval.ndim == 1 and equation.outputs and _is_wide(array.aval):
                    reads.setdefault(array, []).append(
                        (equation, [(place,) for place in range(array.aval.shape[0])], equation.outputs))
            elif primitive in (pad_p, stack_p, add_p):
                self._place(equation)
        for array, found in reads.items():
            self._read(array, found)
        for equation in equations:
            if equation.primitive is reshape_p and equation not in self.absorbed:
                self._keep_axes(equation)

    def operation(self, equation: Equation) -> Operation | None:
        """Return the operation of a group whose last equation (the first, of reads) is `equation`, or None."""
        found = self._operations.get(equation)
        if found is None and equation.outputs and equation.outputs[0] in self._placed:
            return _place_elements(equation, self._placed[equation.outputs[0]])
        return found

    def _sole(self, atom: Atom, *primitives: Any) -> Equation | None:
        """Return the definition of `atom` by one of `primitives` if nothing else uses it."""
        made = self._definitions.get(atom)
        return made if made is not None and made.primitive in primitives and self._uses[atom] == 1 else None  # type: ignore[index]

    # --- reading -----------------------------------------------------------------------------------------

    def _element(self, equation: Equation) -> tuple[Variable, _Index] | None:
        """Return the array and the index of the element that a reshape of a slice reads."""
        if equation.outputs[0].aval.shape:
            return None
        part = self._sole(equation.inputs[0], slice_p)
        if part is None or type(part.inputs[0]) is not Variable or not _is_wide(part.inputs[0].aval):
            return None
        self.absorbed.add(part)
        return part.inputs[0], part.params["start_indices"]

    def _read(self, array: Variable, reads: Sequence[tuple[Equation, list[_Index], Sequence[Variable]]]) -> None:
        """Enter the operations that read elements of one array: one for all if there are several."""
        indices = [index for _, some, _ in reads for index in some]
        outputs = [var for _, _, some in reads for var in some]
        if len(indices) < 3:
            for equation, some, _ in reads:
                self._operations[equation] = Operation([array], equation.outputs, _read_elements(array.aval, some),
                                                       equation)
            return
        first, *others = [equation for equation, _, _ in reads]
        self._operations[first] = Operation([array], outputs, _read_elements(array.aval, indices), first)
        self.absorbed.update(others)

    # --- reductions --------------------------------------------------------------------------------------

    def _keep_axes(self, equation: Equation) -> None:
        """Enter a reduction for a reshape that puts the reduced axes back, if one axis or none is left.

        Of more axes the reshape also decides the layout of the result.
        """
        made = self._sole(equation.inputs[0], *_REDUCTIONS)
        if made is None:
            return
        aval, axes = made.inputs[0].aval, made.params["axes"]
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(aval.shape))
        if equation.outputs[0].aval.shape != kept or aval.ndim - len(axes) > 1 or aval.dtype.kind != "f" or not (
                aval.size and axes and aval.dtype.itemsize >= 4):
            return
        name, function = _REDUCTIONS[made.primitive]
        axis = axes[0] if len(axes) == 1 else axes
        self.absorbed.add(made)
        self._operations[equation] = Operation(made.inputs, equation.outputs, Snippet(
            f"{name}({{0}}, {axis}, None, None, True)", {name: function}, row_major=True), equation)

    # --- putting -----------------------------------------------------------------------------------------

    def _place(self, equation: Equation) -> None:
        """Enter the elements of an array that is zero but for scalars at known places."""
        aval = equation.outputs[0].aval
        if aval.dtype not in _FLOATS or not aval.shape:
            return
        if equation.primitive is stack_p:
            if aval.ndim == 1:
                self._placed[equation.outputs[0]] = {
                    (place,): _Element([atom]) for place, atom in enumerate(equation.inputs)}
        elif equation.primitive is pad_p:
            made = self._sole(equation.inputs[0], reshape_p, broadcast_to_p)
            value = equation.inputs[1]
            if made is None or made.inputs[0].aval.shape or made.outputs[0].aval.size != 1 or not (
                    type(value) is Literal and value.value == 0 and not np.signbit(value.value)):
                return
            config = equation.params["padding_config"]
            if all(low >= 0 and high >= 0 for low, high, _ in config):
                self.absorbed.add(made)
                self._placed[equation.outputs[0]] = {tuple(low for low, _, _ in config): _Element([made.inputs[0]])}
        else:
            parts = [self._sole(atom, pad_p, stack_p, add_p) for atom in equation.inputs]
            if any(part is None or part.outputs[0] not in self._placed or part.outputs[0].aval.shape != aval.shape
                   for part in parts):
                return
            left, right = (self._placed.pop(part.outputs[0]) for part in parts if part is not None)
            self.absorbed.update(part for part in parts if part is not None)
            self._placed[equation.outputs[0]] = {
                index: _Element.added(left.get(index), right.get(index)) for index in {**left, **right}}


_REDUCTIONS = {reduce_sum_p: ("add_reduce", np.add.reduce), reduce_max_p: ("maximum_reduce", np.maximum.reduce),
               reduce_min_p: ("minimum_reduce", np.minimum.reduce)}
_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


def _is_wide(aval: Aval) -> bool:
    """Return whether NumPy reads an element as one of its own scalars, with the array's dtype."""
    return aval.dtype.kind in "biufc" and bool(aval.shape)


def _read_elements(aval: Aval, indices: Sequence[_Index]) -> Snippet:
    """Return the expression of elements of an array: NumPy's scalars, or Python's numbers."""
    read = [f"{{0}}[{', '.join(map(str, index))}]" for index in indices]
    items = [f"{{0}}.item({', '.join(map(str, index))})" for index in indices]
    if len(indices) == 1:
        return Snippet(read[0], of_numbers=items[0])
    text = ", ".join(read)
    if aval.size > 8 * len(indices) + 32:
        return Snippet(text, of_numbers=", ".join(items))
    flat = [int(np.ravel_multi_index(index, aval.shape)) for index in indices]
    listed = "{0}.tolist()" if aval.ndim == 1 else "{0}.ravel().tolist()"
    if flat == [*range(aval.size)]:
        return Snippet(text, of_numbers=listed)
    name = "pick_" + "_".join(map(str, flat))
    return Snippet(text, {name: itemgetter(*flat)}, of_numbers=f"{name}({listed})")


class _Element(NamedTuple):
    """The scalars whose sum an element is; `text` is that sum, `{}` for each.

    A sum with an element that is zero adds 0.0, which makes 0.0 of -0.0.
    """

    atoms: list[Atom]
    text: str = "{}"
    has_zero: bool = False

    @staticmethod
    def added(left: _Element | None, right: _Element | None) -> _Element:
        """Return the sum of two elements; None is zero."""
        if left is None or right is None:
            one = left or right
            assert one is not None
            return one if one.has_zero else _Element(one.atoms, f"({one.text} + 0.0)", True)
        return _Element([*left.atoms, *right.atoms], f"({left.text} + {right.text})", left.has_zero or right.has_zero)


def _place_elements(equation: Equation, elements: Mapping[_Index, _Element]) -> Operation:
    """Return the operation that makes an array of its elements that are not zero."""
    aval = equation.outputs[0].aval
    atoms: list[Atom] = []
    texts: dict[_Index, str] = {}
    for index, element in elements.items():
        texts[index] = element.text.format(*(f"{{{len(atoms) + place}}}" for place in range(len(element.atoms))))
        atoms.extend(element.atoms)
    kind = aval.dtype.name
    if aval.size <= 4 * len(texts) + 8:
        listed = ", ".join(texts.get(index, "0.0") for index in np.ndindex(aval.shape))
        shaped = "" if aval.ndim == 1 else f".reshape({aval.shape})"
        return Operation(atoms, equation.outputs, Snippet(f"array([{listed}], {kind}){shaped}", {
            "array": np.array, kind: aval.dtype}, row_major=True, takes_numbers=True), equation)
    name = "_".join(map(str, ("put", *(place for index in texts for place in index), "in", kind, *aval.shape)))
    return Operation(atoms, equation.outputs, Snippet(
        f"{name}({', '.join(texts.values())})", {name: _put(aval.shape, aval.dtype, [*texts])}, row_major=True,
        takes_numbers=True), equation)


def _put(shape: Shape, dtype: Any, indices: Sequence[_Index]) -> Any:
    def put(*elements: Any) -> Any:
        out = np.zeros(shape, dtype)
        for index, element in zip(indices, elements, strict=True):
            out[index] = element
        return out
    return put
