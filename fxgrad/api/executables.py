"""Executables of jitted functions: the calls of them that need care, and those that several functions share.

A jitted function made anew at every call (a lambda in a loop) records the same interned program each time. From the
second function on, the program has an executable that all of them share; what they closed over is an argument of it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fxgrad import tree
from fxgrad.api.static_arguments import Split, StaticArguments
from fxgrad.core.arrays import Array, made
from fxgrad.core.avals import Aval, check_dtype, keys_to_jax, to_numpy
from fxgrad.core.facts import needs_x64
from fxgrad.core.program import Program
from fxgrad.core.tracer import Tracer
from fxgrad.dtypes import SUPPORTED, DType, float0, from_jax, is_64bit, is_key
from fxgrad.errors import ArgumentError, at_user_line
from fxgrad.executors.xla import emit, x64
from fxgrad.frontend.flat import Traced, leaf_aval
from fxgrad.tree import TreeDef

Executable = Callable[..., Any]
"""Takes the arguments of the user's function; to be called in the x64 scope."""


class Unprepared(Exception):  # noqa: N818  (no error, but a call that is not as those before)
    """What was prepared does not fit this call; `Jitted` prepares what does, and calls again."""


class KeysMet(Unprepared):
    """NumPy's arrays of random keys are among the arguments, which jax does not take as they are."""


class WideMet(Unprepared):
    """Something of 64 bits is computed from arguments that did not look like it, and there is no x64 scope."""


class OtherSignature(Unprepared):
    """The arguments are of other types than those of the shared executable."""


def computed(program: Program, captured: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    """The outputs of `program` within jax's trace, its inputs being of the dtypes that it expects, and never weak.

    Raises `WideMet` if jax is not in the x64 scope that the program needs.
    """
    if not jax.config.jax_enable_x64 and needs_x64(program):  # type: ignore[attr-defined]
        raise WideMet
    avals = program.in_avals[program.captured:]
    values = [leaf if is_key(aval.dtype) or (
        leaf.dtype == aval.dtype and not getattr(leaf, "weak_type", False)) else
              jax.lax.convert_element_type(leaf, aval.dtype) for leaf, aval in zip(leaves, avals, strict=True)]
    if any(type(value) is Tracer for value in captured):
        raise AssertionError("a tracer was captured by a compiled function; this is a bug in fxgrad")
    return emit(program, [*captured, *values])


def argument_avals(leaves: Sequence[Any]) -> list[Aval] | None:
    """The types that the leaves of a call have for the function; None if jax has to say what is wrong with one.

    They are the same for all calls that jax takes for equal.
    """
    avals = []
    for leaf in leaves:
        if isinstance(leaf, jax.Array):
            aval = None if from_jax(leaf.dtype) is None else aval_from_jax(leaf)
        else:
            aval = leaf_aval(leaf)
            if isinstance(leaf, np.matrix | np.ma.MaskedArray):  # jax would take the data for it
                raise ArgumentError(at_user_line(
                    f"jit: an argument is a {type(leaf).__name__}, whose operations are not those of arrays. Write "
                    "np.asarray(m)"))
        if aval is None or type(leaf) is Tracer:
            return None
        avals.append(aval)
    return avals


def aval_from_jax(leaf: Any) -> Aval:
    """The type of a jax array or tracer."""
    aval = jax.typeof(leaf)
    dtype = from_jax(aval.dtype)
    if dtype is None or dtype == float0:
        check_dtype(leaf, "jit: an argument")
        raise AssertionError(f"jax traces an array of dtype {aval.dtype}")
    return Aval(tuple(aval.shape), dtype, not aval.shape and bool(getattr(aval, "weak_type", False)))


def like_arguments(outputs: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The outputs of a call in the x64 scope: those of 64 bits as NumPy's arrays, unless an argument is one of jax's.

    Outside that scope jax's own operators would narrow them. On the CPU both share their memory.
    """
    leaves = tree.leaves((args, kwargs))
    if any(isinstance(leaf, jax.Array) for leaf in leaves):
        return outputs
    if isinstance(outputs, jax.Array):
        outputs = _numpy_if_wide(outputs)
    else:
        outputs = tree.map(_numpy_if_wide, outputs)
    return tree.map(made, outputs) if any(type(leaf) is Array for leaf in leaves) else outputs


def _numpy_if_wide(output: Any) -> Any:
    """An array of 64 bits as NumPy's; that of a trace of jax's under way stays what it is, as does all else."""
    if not isinstance(output, jax.Array) or output.dtype not in _WIDE or is_jax_tracer(output):
        return output
    return to_numpy(output)


_WIDE = frozenset(dtype for dtype in SUPPORTED.values() if is_64bit(dtype))


class Stage:
    """A stage of jax's (`Traced`, `Lowered`, `Compiled`) that keeps 64-bit dtypes in all that is asked of it."""

    __slots__ = ("_as_they_are", "_stage")

    def __init__(self, stage: Any) -> None:
        self._stage = stage
        self._as_they_are: frozenset[type] | None = None  # types of arguments of which no care need be taken

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._stage, name)
        return self._kept(value) if callable(value) else value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a compiled stage; raises `TypeError` for arguments of other shapes or dtypes than it was made for."""
        known = self._as_they_are
        if known is not None and not kwargs and (
                known.issuperset(map(type, args)) or known.issuperset(map(type, tree.leaves(args)))):
            return self._stage(*args)
        given = tree.map(keys_to_jax, (args, kwargs))
        wide = not jax.config.jax_enable_x64  # type: ignore[attr-defined]
        with x64():
            outputs = self._stage(*given[0], **given[1])
        leaves = tree.leaves((args, kwargs))
        if leaves and all(map(_is_narrow, leaves)) and all(map(_is_narrow, tree.leaves(outputs))):
            # jax's arrays keep their dtype without a scope, so one that does not fit is refused without it too.
            self._as_they_are = frozenset(map(type, leaves))
        return like_arguments(outputs, args, kwargs) if wide else outputs

    def __repr__(self) -> str:
        return repr(self._stage)

    @staticmethod
    def _kept(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def in_scope(*args: Any, **kwargs: Any) -> Any:
            with x64():
                result = method(*args, **kwargs)
            return Stage(result) if isinstance(result, _STAGES) else result
        return in_scope


def _is_narrow(value: Any) -> bool:
    """Whether `value` is an array of jax's with a value, of a dtype that jax keeps whatever its x64 mode."""
    return isinstance(value, jax.Array) and not is_jax_tracer(value) and isinstance(
        value.dtype, np.dtype) and value.dtype not in _WIDE


_STAGES = (jax.stages.Lowered, jax.stages.Compiled)


class KeysConverted:
    """Calls an executable with NumPy's arrays of random keys as jax's, which does not take them as they are."""

    __slots__ = ("_executable",)

    def __init__(self, executable: Executable) -> None:
        self._executable = executable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree.map(keys_to_jax, (args, kwargs))
        return self._executable(*args, **kwargs)


_SHAPE_AND_DTYPE = operator.attrgetter("shape", "dtype")


class BySignature:
    """Calls the shared executable that belongs to the types of the arguments and to the static ones."""

    __slots__ = ("_known", "_of_arrays", "_static")

    def __init__(self, static: StaticArguments) -> None:
        self._static = static
        self._known: dict[Any, Bound] = {}
        self._of_arrays: dict[Any, Bound] = {}  # for arguments that are all arrays, which are compared in less time

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        split = self._static.split(args, kwargs)
        try:
            key: Any = (split.structure, self._static.values(args, kwargs), *map(_SHAPE_AND_DTYPE, split.leaves))
        except AttributeError:
            key = None
        bound = self._of_arrays.get(key)
        if bound is None:
            avals = argument_avals(split.leaves)
            bound = None if avals is None else self._known.get(self.signature(split, avals, args, kwargs))
            if bound is None:
                raise OtherSignature
            if key is not None:
                self._of_arrays[key] = bound
        return bound(*split.args, **split.kwargs)

    def signature(self, split: Split, avals: Sequence[Aval], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What tells the calls apart that need executables of their own."""
        return split.structure, tuple(avals), self._static.values(args, kwargs)

    def add(self, signature: Any, bound: Bound) -> None:
        """Enters the executable for the calls of one signature."""
        self._known[signature] = bound

    def __contains__(self, signature: Any) -> bool:
        return signature in self._known


class Bound:
    """A shared executable with the captured values of one function; takes the dynamic arguments."""

    __slots__ = ("_called", "_captured", "_executable")

    def __init__(self, executable: Executable, captured: Captured) -> None:
        self._executable, self._captured, self._called = executable, captured, False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._called:
            self._called = True  # most that share are called once, for which no value need be put on a device
            return self._executable(self._captured, *args, **kwargs)
        return self.settled()(*args, **kwargs)

    def settled(self) -> Executable:
        """The same for many calls: the captured arrays are put on the device, once."""
        if isinstance(self._executable, functools.partial):
            return self._executable
        with x64():
            on_device = [[jax.numpy.asarray(each) if isinstance(each, np.ndarray | np.generic) else each
                          for each in part] for part in self._captured]
        self._executable = functools.partial(self._executable, tuple(on_device))
        return self._executable


Captured = tuple[list[Any], list[Any]]
"""Captured values as a shared executable takes them: most of them, and the scalars of each dtype as one array."""
_Layout = tuple[DType | None, ...]
"""For each captured value the dtype of the array that it is packed into, None if it is not."""


def bind_captured(traced: Traced, structure: TreeDef, name: str, inline: bool) -> Bound:
    """The executable of a program, shared by the functions that record it, with what this one captured.

    Raises `TypeError` if there are containers in `structure` or in the result that cannot be told apart by equality.
    """
    scalars = [index for index, value in enumerate(traced.captured) if isinstance(value, np.generic)]
    layout: _Layout = ()
    captured: Captured = [keys_to_jax(value) for value in traced.captured], []
    if len(scalars) > _FEW:
        layout = tuple(value.dtype if isinstance(value, np.generic) and value.dtype.names is None else None
                       for value in traced.captured)
        captured = [value for value, dtype in zip(captured[0], layout, strict=True) if dtype is None], [
            np.array([value for value in traced.captured if isinstance(value, np.generic) and value.dtype == dtype])
            for dtype in _packs(layout)]
    return Bound(_shared(traced.program, traced.out_tree, structure, layout, name, inline), captured)


_FEW = 4
"""Each argument of a call takes about a microsecond, as does making an array of many scalars."""


def _packs(layout: _Layout) -> list[DType]:
    return [dtype for dtype in dict.fromkeys(layout) if dtype is not None]


def _unpacked(captured: Captured, layout: _Layout) -> list[Any]:
    """The captured values in order."""
    others, packs = captured
    if not layout:
        return others
    remaining = iter(others)
    scalars = {dtype: iter(range(len(layout))) for dtype in _packs(layout)}
    arrays = dict(zip(scalars, packs, strict=True))
    return [next(remaining) if dtype is None else
            jax.lax.index_in_dim(arrays[dtype], next(scalars[dtype]), keepdims=False) for dtype in layout]


def _shared(program: Program, out_tree: TreeDef, structure: TreeDef, layout: _Layout, name: str,
            inline: bool) -> Executable:
    """The executable of a program, kept on it: takes the captured values, then the dynamic arguments."""
    key = ("jit", structure, out_tree, layout, inline)
    executable: Executable | None = program.memo.get(key)
    if executable is None:
        avals = program.in_avals[program.captured:]

        def of_program(captured: Captured, /, *args: Any, **kwargs: Any) -> Any:
            leaves, given = tree.flatten((args, kwargs))
            if given != structure or [*map(aval_from_jax, leaves)] != avals:
                raise OtherSignature
            return tree.unflatten(out_tree, computed(program, _unpacked(captured, layout), leaves))

        of_program.__name__ = of_program.__qualname__ = name
        executable = program.memo[key] = jax.jit(of_program, inline=inline)
    return executable


def is_jax_tracer(value: Any) -> bool:
    """Whether a value belongs to a trace of jax, and so is right for one call only."""
    return isinstance(value, jax.core.Tracer)
