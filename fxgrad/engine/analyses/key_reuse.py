"""The check of key reuse: a walk through a program that finds random keys drawn from twice.

Keys are tracked as numbers: an array of keys becomes an array of as many numbers, and operations that only move
elements run on those by their own NumPy kernels. If an index is unknown before the program runs (a traced index, a
branch), keys count as new, so that no correct program is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval, to_numpy
from fxgrad.engine.core.program import Equation, Program, Source
from fxgrad.engine.core.regions import Region
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.ops import joining, shaping, structural
from fxgrad.engine.ops import random as keys_room
from fxgrad.engine.ops.arithmetic import stop_gradient_p
from fxgrad.engine.ops.samplers import random_binomial_p, random_gamma_p, random_poisson_p
from fxgrad.errors import KeyReuseError

_WORDS = np.dtype(np.uint32)
Ids = Any
"""Numbers that replace keys; for the words of keys, two numbers along the last axis."""


def refuse_key_reuse(program: Program) -> None:
    """Raise `KeyReuseError` if `program` draws from a key twice."""
    search = _KeyUses()
    constants = [search.of_constant(value) for value in program.constants] or [None] * program.captured
    inputs = [search.fresh(var.aval) for var in program.inputs[program.captured:]]
    captured = [search.fresh(var.aval) if ids is None else ids
                for var, ids in zip(program.inputs, constants, strict=False)]
    search.walk(program, [*captured, *inputs])


def _is_followed(aval: Aval) -> bool:
    return dtypes.is_key(aval.dtype) or (aval.dtype == _WORDS and aval.shape[-1:] == (2,))


class _KeyUses:
    """The numbers given to keys so far, and the operation that used each."""

    def __init__(self) -> None:
        self._new = itertools.count()
        self._made: dict[Hashable, int] = {}
        self._used: dict[int, tuple[str, Source | None]] = {}
        self._in_loop: list[int] = []
        self._called_at: list[Source | None] = []

    def _numbers(self, count: int) -> Any:
        return np.fromiter(itertools.islice(self._new, count), np.int64, count)

    def fresh(self, aval: Aval) -> Ids | None:
        """Return numbers for new keys, or for words of new keys; None for anything else."""
        if dtypes.is_key(aval.dtype):
            return self._numbers(aval.size).reshape(aval.shape)
        return _unwrapped_ids(self._numbers(aval.size // 2).reshape(aval.shape[:-1])) if _is_followed(aval) else None

    def of_constant(self, value: Any) -> Ids | None:
        """Return the numbers of known keys: equal keys have equal numbers."""
        if not hasattr(value, "dtype") or not dtypes.is_key(dtypes.from_jax(value.dtype)) or hasattr(value, "tape"):
            return None
        array = np.asarray(value if isinstance(value, np.ndarray | np.generic) else to_numpy(value))
        known = [self.same(("words", element.tobytes())) for element in array.reshape(-1)]
        return np.array(known, np.int64).reshape(array.shape)

    def same(self, name: Hashable) -> int:
        """Return one number for each name."""
        if name not in self._made:
            self._made[name] = next(self._new)
        return self._made[name]

    def use(self, ids: Ids, what: str, source: Source | None) -> None:
        """Mark keys as used; raise `KeyReuseError` if one of them is already."""
        if self._called_at:  # inside a library function, whose own lines are those of its first caller
            source = self._called_at[0]
        for number in np.asarray(ids).reshape(-1).tolist():
            before = self._used.get(number)
            folded = what.startswith("fold_in") and before is not None and before[0].startswith("fold_in")
            if before is not None and not folded:
                raise _reuse_error(before, (what, source))
            if any(number < limit for limit in self._in_loop):
                raise _reuse_error((what, source), (f"{what} in every step of a loop", source))
            self._used[number] = what, source

    # --- programs -----------------------------------------------------------------------------------------------

    def walk(self, program: Program, inputs: Sequence[Ids | None]) -> list[Ids | None]:
        """Walk the equations, and return the numbers of the outputs."""
        return eval_program(program, inputs, self._equation, literal=lambda _: None)

    def _equation(self, equation: Equation, ids: list[Ids | None]) -> list[Ids | None]:
        rule = key_rules.of(equation.primitive)
        outputs = None if rule is None else rule(self, equation, ids)
        return self._into_regions(equation, ids) if outputs is None else outputs

    def _into_regions(self, equation: Equation, ids: list[Ids | None]) -> list[Ids | None]:
        """Walk the regions of an operation; its results count as new keys."""
        for region in equation.regions:
            if region.role == "mapped":
                # A key that a device has whole is the key outside.
                whole = [var.aval.shape == atom.aval.shape and not var.aval.vma
                         for var, atom in zip(region.program.inputs, equation.inputs, strict=True)]
                self.walk(region.program, [one if kept else self.fresh(var.aval)
                                           for one, kept, var in zip(ids, whole, region.program.inputs, strict=True)])
                return [self.fresh(var.aval) for var in equation.outputs]
            if region.role in ("inline", "call"):
                is_library = region.role == "inline"
                self._called_at += [equation.source] * is_library
                outputs = self.walk(region.program, ids)
                del self._called_at[len(self._called_at) - is_library:]
                return outputs
            if region.role == "body":
                self._loop(region, ids)
        branches = [region.program for region in equation.regions if region.role == "branch"]
        if branches:
            self._branches(branches, ids[1:])
        return [self.fresh(var.aval) for var in equation.outputs]

    def _branches(self, branches: Sequence[Program], ids: Sequence[Ids | None]) -> None:
        """Walk each branch from the keys used before; afterwards every key that any branch used is used."""
        before, after = dict(self._used), dict(self._used)
        for branch in branches:
            self._used = dict(before)
            self.walk(branch, ids)
            after.update(self._used)
        self._used = after

    def _loop(self, body: Region, ids: Sequence[Ids | None]) -> None:
        """Walk the body of a loop: it must not use keys that it closes over, and those it carries once a step."""
        own = {place for place, link in enumerate(body.inputs) if link.how != "same"}
        inside = [self.fresh(var.aval) if place in own else ids[link.place]
                  for place, (var, link) in enumerate(zip(body.program.inputs, body.inputs, strict=True))]
        made = [inside[place] for place in sorted(own)]
        first_of_step = min((int(np.min(each)) for each in made if each is not None and np.size(each)),
                            default=next(self._new))
        self._in_loop.append(first_of_step)
        self.walk(body.program, inside)
        self._in_loop.pop()
        for place in sorted(own):
            var, outer, inner = body.program.inputs[place], ids[body.inputs[place].place], inside[place]
            used = next((self._used[number] for number in np.asarray(inner).reshape(-1).tolist()
                         if number in self._used), None) if inner is not None else None
            if used is not None and outer is not None and dtypes.is_key(var.aval.dtype):
                self.use(outer, *used)


# --- what operations do with keys -------------------------------------------------------------------------------

KeyRule = Callable[[_KeyUses, Equation, "list[Ids | None]"], "list[Ids | None] | None"]
"""(search, equation, numbers of the operands) -> numbers of the outputs; used keys are marked on the search.

None for values that are not tracked.
"""

key_rules: Analysis[KeyRule | None] = Analysis(
    "key rules", "How the check of key reuse follows random keys; the results of other operations count as new keys.",
    missing="conservative", default=None)


@key_rules.register(
    structural.reshape_p, structural.transpose_p, structural.broadcast_to_p, joining.concatenate_p, joining.stack_p,
    joining.split_p,
    joining.unstack_p, shaping.slice_p, shaping.rev_p, stop_gradient_p)
def _move_ids(_: _KeyUses, equation: Equation, ids: list[Ids | None]) -> list[Ids | None] | None:
    if any(each is None for each in ids):
        return None
    outputs = equation.primitive.numpy(*ids, **equation.params)
    return [output if _is_followed(var.aval) else None
            for var, output in zip(equation.outputs, outputs, strict=True)]


@key_rules.register(keys_room.random_bits_p, keys_room.random_split_p, random_gamma_p, random_poisson_p,
                    random_binomial_p)
def _draw(search: _KeyUses, equation: Equation, ids: list[Ids | None]) -> None:
    search.use(ids[0], equation.primitive.name.removeprefix("random_"), equation.source)


@key_rules.register(keys_room.random_fold_in_p)
def _fold(search: _KeyUses, equation: Equation, ids: list[Ids | None]) -> list[Ids | None]:
    """Return equal keys for equal data: folding in the same integer twice gives the same key."""
    search.use(ids[0], "fold_in", equation.source)
    data = equation.inputs[1]
    if data.aval.shape:
        return [search.fresh(equation.outputs[0].aval)]
    keys = np.asarray(ids[0])
    folded = [search.same(("fold", number, data)) for number in keys.reshape(-1).tolist()]
    return [np.array(folded, np.int64).reshape(keys.shape)]


@key_rules.register(keys_room.random_unwrap_p)
def _unwrap(_: _KeyUses, __: Equation, ids: list[Ids | None]) -> list[Ids | None]:
    return [_unwrapped_ids(ids[0])]


@key_rules.register(keys_room.random_wrap_p)
def _wrap(_: _KeyUses, __: Equation, ids: list[Ids | None]) -> list[Ids | None] | None:
    return None if ids[0] is None else [ids[0][..., 0] // 2]


@key_rules.register(keys_room.random_seed_p)
def _seed(search: _KeyUses, equation: Equation, _: list[Ids | None]) -> list[Ids | None] | None:
    if equation.outputs[0].aval.shape:
        return None
    return [np.int64(search.same(("seed", equation.inputs[0])))]


def _unwrapped_ids(ids: Ids) -> Ids:
    return np.stack([np.asarray(ids) * 2, np.asarray(ids) * 2 + 1], -1)


def _place_text(source: Source | None) -> str:
    return "a line that is not known" if source is None else f"{source.place} (in {source.code.co_name})"


def _reuse_error(first: tuple[str, Source | None], second: tuple[str, Source | None]) -> KeyReuseError:
    return KeyReuseError(
        f"a random key is used twice: by {first[0]} at {_place_text(first[1])}, and by {second[0]} at "
        f"{_place_text(second[1])}. "
        "The numbers would not be independent. Make new keys with fxgrad.random.split(key), or mark the reuse as "
        "intended with fxgrad.random.clone(key)")
