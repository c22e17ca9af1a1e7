"""Mesh axes over which the operands of an operation must vary, within programs that devices run on their pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad.engine.core.avals import INVARIANT, Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Atom, Source
from fxgrad.engine.core.program_properties import collective_axes


class MeshAxes(NamedTuple):
    """The mesh axes that a function is mapped over.

    Along the `checked` axes it is tracked which values are equal; along the others every value may vary. `shape` is the
    mesh itself.
    """

    checked: frozenset[str]
    unchecked: frozenset[str]
    shape: Any

    @property
    def names(self) -> frozenset[str]:
        """The names of all mesh axes."""
        return self.checked | self.unchecked


def insert_pvary(put: Callable[..., list[Any]], primitive: Primitive, atoms: list[Atom], params: dict[str, Any],
                 source: Source | None, mesh: MeshAxes | None) -> list[Atom]:
    """Return the operands of an operation, with a `pvary` by `put` where one varies over too few mesh axes."""
    return [atom if type(atom) is Literal or atom.aval.vma == vma else
            put(_pvary[0], [atom], {"axis_name": tuple(sorted(vma - atom.aval.vma))}, source)[0]
            for atom, vma in zip(atoms, _operand_vmas(primitive, atoms, params, mesh), strict=True)]


_pvary: list[Primitive] = []


def install_pvary(primitive: Primitive) -> None:
    """Register the operation that makes a value vary over more mesh axes."""
    _pvary.append(primitive)


def _operand_vmas(primitive: Primitive, atoms: Sequence[Atom], params: dict[str, Any],
                  mesh: MeshAxes | None) -> list[frozenset[str]]:
    """Return the mesh axes that each operand of an operation must vary over.

    These are all axes that any operand varies over, and those of a collective, unless the operation sets the vma
    itself. Programs in an operation's parameters determine those of its operands.
    """
    own = [atom.aval.vma for atom in atoms]
    if primitive.sets_vma:
        return own
    if primitive.regions is None:
        over = INVARIANT
        if primitive.collective and mesh is not None:
            # Also of a program that was recorded for a varying operand, and is applied to one that does not vary.
            over = collective_axes(primitive, params) & mesh.names
        return [over.union(*own)] * len(own)
    for region in primitive.regions(atoms, **params):
        for link, var in zip(region.inputs, region.program.inputs, strict=True):
            if link.place >= 0 and var.aval.vma:
                own[link.place] |= var.aval.vma
    return own
