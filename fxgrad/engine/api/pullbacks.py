"""Pullbacks returned by `vjp`: functions of cotangents, by a linearized program or by running equations directly."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import Selected, gradient_leaf, match_trees, tangent_leaf
from fxgrad.engine.core.avals import Aval, without_literals
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.executors import direct
from fxgrad.engine.executors.xla import is_jax
from fxgrad.engine.frontend.flat import constant_name, note_result
from fxgrad.engine.ops.structural import cotangent_of
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import is_tracing
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.transforms.linearize import linearize_program, pull_back
from fxgrad.engine.tree import TreeDef


class PullbackSpec(NamedTuple):
    """The signature of a pullback: the function's name, the structure of its arguments, types and trees."""

    name: str
    rebuilt: tuple[TreeDef, Any, bool]
    avals: tuple[Aval, ...]
    out_tree: TreeDef
    out_avals: tuple[Aval, ...]

    def cotangents(self, cotangent: Any) -> list[Any]:
        """Return the cotangent leaves of all outputs, auxiliary ones too, with `Zero` for missing ones.

        Raises `TreeError` or `ArgumentError` unless `cotangent` fits the output.
        """
        if tree.structure(cotangent) != self.out_tree:
            cotangent = _fill_none(self.out_tree, self.out_avals, cotangent)
        names = tree.leaf_names(cotangent, "output")
        leaves = match_trees("vjp", "the output", self.out_tree, "the cotangent", cotangent)
        given: list[Any] = [leaf if type(leaf) is Zero
                            else tangent_leaf("vjp", leaf, aval, constant_name(name), "cotangent")
                            for leaf, aval, name in zip(leaves, self.out_avals, names, strict=False)]
        return given + [Zero(aval) for aval in self.out_avals[len(given):]]

    def gradients(self, results: Sequence[Any]) -> Any:
        """Return the cotangents of the primals, as the user receives them; `results` are those of inputs with one."""
        structure, positions, single = self.rebuilt
        remaining = iter(results)
        return Selected([], structure, positions, single, None, ()).rebuild(
            [gradient_leaf(next(remaining) if has_tangent(aval) else None, aval) for aval in self.avals])


class Pullback:
    """The second result of `vjp`: a function of cotangents of the output.

    It is a container of its residuals, so that a jitted function can return it.
    """

    def __init__(self, residuals: Sequence[Any], settings: Any) -> None:
        self._residuals, self._settings = list(residuals), settings
        self._form, self._half = settings

    def flatten(self) -> tuple[list[Any], Any]:
        """Return the residuals, and the static rest."""
        return self._residuals, self._settings

    @hide_frames
    def __call__(self, cotangent: Any) -> Any:
        """Return the cotangents of the primals; raise `TreeError` or `ArgumentError` unless the cotangent fits."""
        given = self._form.cotangents(cotangent)
        half = self._half
        reaching = [*itertools.compress(given, half.nonzero_outputs)]

        def build(*values: Any) -> tuple[list[Any], None]:
            residuals, cotangents = values[:half.linear.captured], iter(values[half.linear.captured:])
            arriving = [value if type(value) is Zero else next(cotangents) for value in reaching]
            avals, outputs = half.linear.in_avals[half.linear.captured:], half.linear.out_avals
            return [cotangent_of(aval, result, outputs) for aval, result in zip(
                avals, pull_back(half, residuals, arriving), strict=True)], None

        inputs = [*self._residuals, *(value for value in reaching if type(value) is not Zero)]

        def in_avals() -> list[Aval]:
            """Return the types of all cotangents of this kind: NumPy's scalars seem weak, and the result is kept."""
            declared = [*half.linear.in_avals[:half.linear.captured], *(aval for aval, value in zip(itertools.compress(
                self._form.out_avals, half.nonzero_outputs), reaching, strict=True) if type(value) is not Zero)]
            return [aval_of(value) if aval.weak else aval_of(value).strong()
                    for value, aval in zip(inputs, declared, strict=True)]

        key = ("pullback", tuple([type(value) is Zero for value in reaching]))
        derived = derive(half.linear, key, build, in_avals)
        gradients = self._form.gradients(without_literals(derived(inputs)))
        note_result(gradients)
        return gradients

    def __repr__(self) -> str:
        return f"<pullback of {self._form.name}, {len(self._residuals)} residuals>"


class LongPullback:
    """A pullback that runs the equations of a long program backwards, without linearizing it, any number of times.

    If cotangents are traced or `jax.Array`s, or the residuals are read, the program is linearized after all.
    """

    def __init__(self, form: PullbackSpec, vjp: direct.EagerVjp, program: Program, wrt: tuple[bool, ...]) -> None:
        self._form, self._vjp, self._program, self._wrt = form, vjp, program, wrt
        self._linearized: Pullback | None = None

    def linearized(self) -> Pullback:
        """Return the equivalent pullback of the linearized program."""
        if self._linearized is None:
            derived = linearize_program(self._program, self._wrt)
            values = without_literals(derived(self._vjp.inputs))
            self._linearized = Pullback(values[len(self._program.outputs):], (self._form, derived.extra))
        return self._linearized

    @hide_frames
    def __call__(self, cotangent: Any) -> Any:
        """Return the cotangents of the primals; raise `TreeError` or `ArgumentError` unless the cotangent fits."""
        given = self._form.cotangents(cotangent)
        if is_tracing() or any(map(is_jax, given)):
            return self.linearized()(cotangent)
        return self._form.gradients(self._vjp.pullback([None if type(value) is Zero else value for value in given]))

    def __repr__(self) -> str:
        return f"<pullback of {self._form.name}, {self._vjp.length} operations>"


def _fill_none(structure: TreeDef, avals: Sequence[Aval], cotangent: Any) -> Any:
    """Return the cotangent with symbolic zeros in place of None, also for a whole part of the output."""
    remaining = iter(avals)
    zeros = tree.unflatten(structure, [Zero(next(remaining)) for _ in range(structure.num_leaves)])
    try:
        return tree.map(lambda given, zero: zero if given is None else given, cotangent, zeros, is_leaf=tree.is_none)
    except ValueError:
        return cotangent  # refused later, with both structures


tree.register_pytree_node(Pullback, Pullback.flatten, lambda settings, residuals: Pullback(residuals, settings))
def _rebuild(settings: Any, residuals: Sequence[Any]) -> Any:
    return Pullback(residuals, settings)


tree.register_pytree_node(LongPullback, lambda pullback: pullback.linearized().flatten(), _rebuild)
