"""Lower a program to compiler instructions: constants get buffers, equal instructions are shared."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from math import isnan, prod
from typing import Any

from fxgrad.extend import Atom, Equation, Literal, Region
from fxgrad.extend.analyses import Flow

INPUT, ELEMENT, BROADCAST, RESHAPE, TRANSPOSE, SLICE, PAD, CONCATENATE, IOTA, GATHER, TAKE, UPDATE, REDUCE, PRODUCT, \
    OPAQUE, PART = range(16)
"""Kinds of instructions.

`ELEMENT` acts on each element, `SLICE` reads elements in another order, `TAKE` and `UPDATE` read and write at an index
known at run time, `PRODUCT` is a product of matrices, `OPAQUE` any kernel or loop, and `PART` one of its results.
"""
LEAST = 4096
"""Operations on fewer elements are not computed by the library."""

Shape = tuple[int, ...]


class Instructions:
    """The instructions of a program, each with one value; they have the same number.

    Each has its kind, the instructions that it `reads`, its shape, its numbers of elements and bytes, its step of the
    flow (-1 for inputs), the value of the flow whose dtype it has (`like`), whether it is `costly` to compute twice,
    whether the library of reductions `offers` it, and whether it has `floats`. `of` has the instruction of each value
    of the flow, `constants` the number of each that repeats one, `axes` the positions of the operand's axes in a
    broadcast or a transpose. Kernels may overwrite the operands `over`; those `in_place` write an entry of a loop's
    stack; `carried` has the results of a loop that take memory though nothing reads them, `swaps` whether the library
    offers a product with swapped operands. For a loop's body, `entries` are the inputs that are sliced from scanned
    arrays.
    """

    def __init__(self, flow: Flow, entries: Collection[int] = ()) -> None:
        self.flow = flow
        self.kinds: list[int] = []
        self.reads: list[list[int]] = []
        self.shapes: list[Shape] = []
        self.elements: list[int] = []
        self.sizes: list[int] = []
        self.steps: list[int] = []
        self.costly: list[bool] = []
        self.offers: list[bool] = []
        self.floats: list[bool] = []
        self.names: list[str] = []
        self.like: list[int] = []
        self.over: dict[int, list[int]] = {}
        self.in_place: set[int] = set()
        self.carried: dict[int, list[int]] = {}
        self.swaps: dict[int, bool] = {}
        self.of: dict[int, int] = {}
        self.axes: dict[int, Shape] = {}
        self.constants: dict[int, Hashable] = {}
        self._made: dict[Hashable, int] = {}
        self.step = -1
        self.users = flow.users()
        self._results = {*flow.results}
        for value in flow.inputs:
            shape = flow.avals[value].shape
            found = self.add(INPUT, [], shape, value)
            self.of[value] = found if value not in entries else self.add(TAKE, [found], shape, value)

    @property
    def makes(self) -> list[int]:
        """The values that the current step defines."""
        return self.flow.makes[self.step]

    def add(self, kind: int, reads: list[int], shape: Shape, value: int, costly: bool = False, offers: bool = False,
             name: str = "") -> int:
        """Add an instruction like the value `value` of the flow but for its shape, and return its number."""
        number = len(self.kinds)
        flow = self.flow
        aval = flow.avals[value]
        elements = flow.elements(value) if shape == aval.shape else prod(shape)
        size = flow.sizes[value]
        self.kinds.append(kind)
        self.reads.append(reads)
        self.shapes.append(shape)
        self.elements.append(elements)
        self.sizes.append(size if elements == aval.size else -(-size * elements // aval.size) if aval.size else 0)
        self.steps.append(self.step)
        self.costly.append(costly)
        self.offers.append(offers)
        self.floats.append(aval.dtype.kind == "f")
        self.names.append(name)
        self.like.append(value)
        return number

    def once(self, key: Hashable, kind: int, reads: list[int], shape: Shape, value: int, **options: Any) -> int:
        """Return the instruction of this key, added the first time."""
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self.add(kind, reads, shape, value, **options)
        return found

    def add_reshape(self, node: int, shape: Shape) -> int:
        """Return an instruction reshaped."""
        while self.kinds[node] == RESHAPE:
            node, = self.reads[node]
        if self.shapes[node] == shape:
            return node
        if node in self.constants:
            return self.constant(self.constants[node], shape, self.like[node])
        return self.once(("reshape", node, shape), RESHAPE, [node], shape, self.like[node], offers=self.floats[node])

    def constant(self, key: Hashable, shape: Shape, value: int) -> int:
        """Return a constant, broadcast."""
        aval = self.flow.avals[value]
        if isinstance(key, Literal):
            key = key.value.item()
            key = str(key) if isinstance(key, float) and isnan(key) else key
        whole = key, shape, aval.dtype
        found = self._made.get(whole)
        if found is None:
            found = self._made[whole] = self.add(BROADCAST, [], shape, value, offers=aval.dtype.kind == "f")
            self.constants[found] = key
        return found

    def repeated(self, node: int, shape: Shape, axes: Shape) -> int:
        """Return an instruction broadcast along the axes that are not among `axes`, which its own become."""
        kinds, shapes = self.kinds, self.shapes
        if node in self.constants:
            return self.constant(self.constants[node], shape, self.like[node])
        while True:  # axes of size one do not matter, and repeated broadcasts are one
            own = shapes[node]
            kept = tuple([axis for axis, size in zip(axes, own, strict=True) if size != 1])
            if kinds[node] == BROADCAST:
                within = self.axes[node]
                node, axes = self.reads[node][0], tuple([axes[axis] for axis in within])
            elif kinds[node] == RESHAPE and _moving_sizes(shapes[self.reads[node][0]]) == _moving_sizes(own):
                node, = self.reads[node]
                places = iter(kept)
                axes = tuple([-1 if size == 1 else next(places) for size in shapes[node]])
            else:
                break
        if self.elements[node] == prod(shape):
            return self.add_reshape(node, shape)
        found = self.once(("repeat", node, shape, kept), BROADCAST, [node], shape, self.like[node],
                          offers=self.floats[node])
        self.axes[found] = axes
        return found

    def turned(self, node: int, order: Sequence[int]) -> int:
        """Return an instruction with its axes in another order."""
        own = self.shapes[node]
        shape = tuple([own[axis] for axis in order])
        moving = [axis for axis in order if own[axis] != 1]
        if moving == sorted(moving):
            return self.add_reshape(node, shape)
        if node in self.constants:
            return self.constant(self.constants[node], shape, self.like[node])
        if self.kinds[node] == PRODUCT and self._has_single_user(node):
            count = len(own) - 2
            if tuple(order) == (*range(count), count + 1, count):  # the product of the transposed operands
                swapped = self.add(PRODUCT, self.reads[node][::-1], shape, self.like[node], costly=True,
                                    offers=self.swaps[node])
                self.swaps[swapped] = self.offers[node]
                return swapped
        if self.kinds[node] == TRANSPOSE:
            before = self.axes[node]
            return self.turned(self.reads[node][0], [before[axis] for axis in order])
        found = self.once(("turn", node, tuple(order)), TRANSPOSE, [node], shape, self.like[node])
        self.axes[found] = tuple(order)
        return found

    def _has_single_user(self, node: int) -> bool:
        """Return whether a single step reads an instruction."""
        value = self.like[node]
        return self.of.get(value) == node and len(self.users[value]) == 1 and value not in self._results

    def operands(self, equation: Equation) -> list[int | Atom]:
        """Return the operands of an equation: instructions, and numbers."""
        of = self.of
        found = [of[value] if value >= 0 else atom
                 for value, atom in zip(self.flow.given[self.step], equation.inputs, strict=True)]
        return found if not self.flow.in_pieces else [
            each if type(each) is not int else self._piece(each, atom.aval.shape)
            for each, atom in zip(found, equation.inputs, strict=True)]

    def _piece(self, node: int, shape: Shape) -> int:
        """Return the piece of a value that one device has."""
        if self.shapes[node] == shape:
            return node
        if self.kinds[node] == INPUT:
            self.shapes[node], self.elements[node] = shape, prod(shape)
            return node
        found = self.once(("piece", node, shape), RESHAPE, [node], shape, self.like[node])
        self.sizes[found] = self.sizes[node]
        return found

    def ends(self, region: Region) -> list[int]:
        """Return the results of the body of a loop; stacked entries are written in place."""
        flow = self.flow
        found = []
        for value, link in zip(flow.outputs, region.outputs, strict=True):
            if value >= 0:
                node = self.of[value]
                if link.how == "entry":
                    node = self.add(UPDATE, [node], flow.avals[value].shape, value)
                    self.in_place.add(node)
                found.append(node)
        return found

    def laid_out(self, operand: int | Atom, shape: Shape, value: int) -> int:
        """Return an operand in the shape of the result; -1 for a number beside numbers."""
        if type(operand) is not int:
            return self.constant(operand, shape, value) if shape else -1
        own = self.shapes[operand]
        if own == shape:
            return operand
        return self.repeated(operand, shape, tuple(range(len(shape) - len(own), len(shape))))

    def add_elementwise(self, reads: list[int], shape: Shape, value: int, costly: bool, offered: bool, name: str,
                         key: Hashable = None) -> int:
        """Return an elementwise instruction; on broadcast operands it acts before the broadcast."""
        kinds = self.kinds
        if shape and reads and kinds[reads[0]] == kinds[reads[-1]] == BROADCAST and all(
                kinds[each] == BROADCAST for each in reads):
            sources = {(self.reads[each][0], self.axes[each]) for each in reads if each not in self.constants}
            if not sources:
                return self.constant((name, key, *[self.constants[each] for each in reads]), shape, value)
            if len(sources) == 1:
                (source, axes), = sources
                small = self.shapes[source]
                inner = [source if each not in self.constants else
                         self.constant(self.constants[each], small, self.like[each])
                         for each in reads if small or each not in self.constants]
                found = self.add_elementwise(inner, small, value, costly, offered, name, key)
                return self.repeated(found, shape, axes)
        offers = offered and self.flow.avals[value].dtype.kind == "f" and all(self.floats[each] for each in reads)
        return self.once((name, key, shape, self.flow.waits.get(self.step), *reads), ELEMENT, reads, shape, value,
                          costly=costly, offers=offers, name=name)


def _moving_sizes(shape: Shape) -> list[int]:
    """Return the sizes of the axes that have more than one element."""
    return [size for size in shape if size != 1]
