"""Executables of jitted functions: those of one function alone, and those that several functions share.

A jitted function re-created on every call (a lambda in a loop) records the same interned program each time. From the
second function on, all of them share one executable of that program; closed-over values are its arguments.

For each default dtype a function has a state, initially UNDECIDED, that selects its executables:

    UNDECIDED --> SHARED  first call: another function recorded the program before
              --> BOUND   first call: its closure has arrays that lie on several devices
              --> OWN     first call: neither, or the program may not be shared; `lower` or `trace` before any call
    SHARED    --> OWN     a later signature records a program that may not be shared
    OWN, SHARED --> BOUND a later trace closed over arrays that lie on several devices

Two flags are set beside it and stay set: `on_meshes`, if a trace met a mesh with Explicit axes, and `looks`, if calls
had 64-bit values that their keys do not show.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

import jax
import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.api.conversions import like_arguments
from fxgrad.engine.api.plans import DispatchPlans
from fxgrad.engine.api.stages import MadeFor, Stage, stage_of
from fxgrad.engine.api.static_arguments import Args, Kwargs, StaticArguments
from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.arrays import Integer
from fxgrad.engine.core.avals import Aval, check_dtype, keys_to_jax, way_to_array
from fxgrad.engine.core.cache_keys import tree_key
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.program_properties import memoize, needs_x64, program_property
from fxgrad.engine.dtypes import DType, float0, from_jax, is_64bit, is_key
from fxgrad.engine.executors import explicit
from fxgrad.engine.executors.column_sums import with_row_products
from fxgrad.engine.executors.exact_extrema import with_plain_comparisons
from fxgrad.engine.executors.xla import emit_results, is_jax_tracer, running_here, x64
from fxgrad.engine.frontend.flat import TracedCall, leaf_aval
from fxgrad.engine.higher_order.rolling import roll_where_it_pays
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError

Executable = Callable[..., Any]
Signature = tuple[TreeDef, tuple[Aval, ...], tuple[Any, ...]]
"""The tree of the dynamic arguments, their types, and the static ones: equal for calls that jax takes for equal."""


class Sharing(Enum):
    """The executables that a function calls."""

    UNDECIDED = "before the first call"
    OWN = "of this function alone"
    SHARED = "of programs"
    BOUND = "of programs or of this function, with the captured arrays as arguments"


class Need(Enum):
    """A requirement of a call that its plan was not prepared for."""

    X64_MODE = "jax, whose caches were cleared, traces anew, and now there are values of 64 bits"
    WIDE_ARGUMENTS = "arguments of 64 bits, in a container or among many, where there were none before"
    EXPLICIT_AXES = "a mesh with Explicit axes"
    CAPTURED_AS_ARGUMENTS = "captured arrays on several devices: as constants they would be gathered into the text"
    CONVERTED_KEYS = "NumPy's random keys, in a container or among many"
    FLAG = "a stage of a program with checks: its executable is to say whether they held"
    NO_JIT = "jax's own `disable_jit`: the function itself runs, with values"


class Unprepared(Exception):  # noqa: N818  (nobody sees it)
    """Raised inside a jax trace to carry a `Need`: an exception is the only way out of a function that jax traces.

    `traced` is the trace, if the need is captured arrays as arguments.
    """

    def __init__(self, need: Need, traced: TracedCall | None = None) -> None:
        super().__init__(need)
        self.need, self.traced = need, traced


def check_jit_enabled(leaves: Sequence[Any]) -> None:
    """Raise `Unprepared` where jax calls with values what it was to trace, since its `disable_jit` is on."""
    if jax.config.jax_disable_jit and leaves and not any(map(is_jax_tracer, leaves)):  # type: ignore[attr-defined]
        raise Unprepared(Need.NO_JIT)


def any_multi_device(captured: Sequence[Any]) -> bool:
    """Return whether some captured array lies on several devices, and none of them belongs to a jax trace."""
    return any(isinstance(value, jax.Array) and not is_jax_tracer(value) and len(value.sharding.device_set) > 1
               for value in captured) and not any(map(is_jax_tracer, captured))


def emit_call(program: Program, captured: Sequence[Any], leaves: Sequence[Any], *, on_meshes: bool,
              rolls: bool) -> list[Any]:
    """Emit `program` within jax's trace; its inputs have the dtypes that it expects and are never weak.

    If it `rolls`, it is rewritten for XLA's CPU backend: repeated blocks are compiled once where that pays, and wide
    rows are added by products.

    Raises `Unprepared` if jax is not in the x64 mode that the program needs, or if a mesh has Explicit axes and the
    executable is not called `on_meshes`.
    """
    if not jax.config.jax_enable_x64 and needs_x64(program):  # type: ignore[attr-defined]
        raise Unprepared(Need.X64_MODE)
    avals = program.in_avals[program.captured:]
    values = [leaf if is_key(aval.dtype) or (
        getattr(leaf, "dtype", None) == aval.dtype and not getattr(leaf, "weak_type", False)) else
              jax.lax.convert_element_type(leaf, aval.dtype) for leaf, aval in zip(leaves, avals, strict=True)]
    if any(type(value) is Tracer for value in captured):
        raise AssertionError("a tracer was captured by a compiled function; this is a bug in fxgrad")
    if rolls and not on_meshes:
        program = with_plain_comparisons(roll_where_it_pays(with_row_products(program)))
    try:
        with running_here():
            return explicit.emit_on_auto_axes(functools.partial(emit_results, program), [*captured, *values],
                                              foreseen=on_meshes)
    except explicit.ExplicitAxes:
        raise Unprepared(Need.EXPLICIT_AXES) from None


def argument_avals(leaves: Sequence[Any]) -> list[Aval] | None:
    """Return the types of the leaves of a call; None if a leaf has no type, for which jax has a message.

    Calls that jax considers equal have the same types.
    """
    avals = []
    for leaf in leaves:
        if isinstance(leaf, jax.Array):
            aval = None if from_jax(leaf.dtype) is None else aval_from_jax(leaf)
        else:
            aval = leaf_aval(leaf)
            if isinstance(leaf, np.matrix | np.ma.MaskedArray):  # jax would convert it to its data
                raise ArgumentError(at_user_line(
                    f"jit: an argument is a {type(leaf).__name__}, whose operations are not those of arrays. "
                    f"{way_to_array(leaf, 'm')}"))
        if aval is None or type(leaf) is Tracer:
            return None
        avals.append(aval)
    return avals


def aval_from_jax(leaf: Any) -> Aval:
    """Return the type of a jax array or tracer."""
    aval = jax.typeof(leaf)
    dtype = from_jax(aval.dtype)
    if dtype is None or dtype == float0:
        check_dtype(leaf, "jit: an argument")
        raise AssertionError(f"jax traces an array of dtype {aval.dtype}")
    return Aval(tuple(aval.shape), dtype, bool(getattr(aval, "weak_type", False)))


@program_property
def has_wide_outputs(program: Program) -> bool:
    """Return whether any output of `program` is 64-bit."""
    return any(is_64bit(aval.dtype) for aval in program.out_avals)


# --- of one function -------------------------------------------------------------------------------------------------


class CompiledSignature(NamedTuple):
    """How jax compiled a function for one signature: its x64 mode, and whether there are 64-bit outputs."""

    scoped: bool
    is_wide: bool


class OutputWidths:
    """Whether any output of an executable so far had 64 bits."""

    __slots__ = ("are_wide",)

    def __init__(self) -> None:
        self.are_wide = False

    def results(self, outputs: Any, args: Args, kwargs: Kwargs) -> Any:
        """Return the results of a call whose key does not determine the outputs."""
        return like_arguments(outputs, args, kwargs) if self.are_wide else outputs


class StoredExecutables:
    """The executables of one function from the store, called as `own`, the function that jax compiles.

    Each takes arguments of certain types on the default device, and raises a `TypeError` or `ValueError` before it
    starts for others: these go to another one, which `prepare` may load, or to `own`. jax takes weak and strong values
    for the same there, so executables are entered by the classes of the leaves, and the weakness of jax's arrays.
    """

    __slots__ = ("_latest", "_others", "_own", "_prepare", "_static")

    def __init__(self, static: StaticArguments, own: Callable[..., Any],
                 prepare: Callable[[Args, Kwargs], bool]) -> None:
        self._static, self._own, self._prepare = static, own, prepare
        self._latest: dict[Any, Any] = {}
        self._others: dict[Any, list[Any]] = {}

    def _kind(self, args: Args, kwargs: Kwargs) -> tuple[Any, ...]:
        if not self._static.any:
            return tuple([_kind_of(leaf) for leaf in tree.leaves((args, kwargs))])
        split = self._static.split(args, kwargs)
        return self._static.values(args, kwargs), *[_kind_of(leaf) for leaf in split.leaves]

    def add(self, args: Args, kwargs: Kwargs, compiled: Any) -> None:
        """Enter an executable for such arguments."""
        kind = self._kind(args, kwargs)
        others = self._others.setdefault(kind, [])
        if not any(each is compiled for each in others):
            others.append(compiled)
        self._latest[kind] = compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kind = self._kind(args, kwargs)
        given, named = self._static.dynamic(args, kwargs) if self._static.any else (args, kwargs)
        try:
            return self._latest[kind](*given, **named)
        except (TypeError, ValueError, KeyError):  # of other types, or on another device
            return self._select(kind, args, kwargs, given, named)
        except Exception:
            # jax found a NaN, and looks for its origin where it compiles itself.
            if jax.config.jax_debug_nans or jax.config.jax_debug_infs:  # type: ignore[attr-defined]
                return self._own(*args, **kwargs)
            raise

    def _select(self, kind: tuple[Any, ...], args: Args, kwargs: Kwargs, given: Args, named: Kwargs) -> Any:
        for _ in range(2):
            for compiled in self._others.get(kind, ()):
                try:
                    results = compiled(*given, **named)
                except (TypeError, ValueError):
                    continue
                self._latest[kind] = compiled
                return results
            if not self._prepare(args, kwargs):
                break
        return self._own(*args, **kwargs)


def _kind_of(leaf: Any) -> Any:
    return getattr(leaf, "weak_type", None) if isinstance(leaf, jax.Array) else type(leaf)


class Executables:
    """The executables of a jitted function under one default dtype, and its state; see the head of this file.

    `bound` maps signatures to the executables of programs, with the captured values. `mesh` is the mesh that all
    results lie on; nothing `rolls` where arrays lie on several devices, whose communication XLA combines across blocks.
    While `looks` is set, calls whose keys lack the argument types search the arguments for numbers,
    which jax would make strong. `stored` calls those of the store on disk, if there are any, and else `own`.
    """

    __slots__ = ("_called", "_compiled", "_make", "_mesh", "_own", "bound", "looks", "on_meshes", "outputs", "plans",
                 "rolls", "sharing", "stored")

    def __init__(self, plans: DispatchPlans, make: Callable[[], Any], mesh: Any = None) -> None:
        self.plans = plans
        self._make, self._own, self._mesh = make, None, mesh
        self._called: explicit.OnMeshes | None = None
        self.stored: StoredExecutables | None = None
        self.sharing, self.looks, self.on_meshes = Sharing.UNDECIDED, False, mesh is not None
        self.rolls = mesh is None
        self.bound = BoundedDict(_SIGNATURES)
        self._compiled = BoundedDict(_SIGNATURES)
        self.outputs = OutputWidths()

    @property
    def own(self) -> Any:
        """The function that jax compiles for this function alone."""
        if self._own is None:
            self._own = self._make()
        return self._own

    @property
    def called(self) -> Executable:
        """The executable that plans call: `stored` or `own`, wrapped to prepare arrays on Explicit axes if any."""
        if not self.on_meshes:
            return self.stored or self.own
        if self._called is None:
            # Re-created: jax calls a function more slowly after a failed trace of it.
            self._called = explicit.OnMeshes(self._make(), self._make(), self._mesh, self.own)
        return self._called

    def prepare_for(self, need: Need) -> None:
        """Make the state transition for a need; drop the plans, to be made again."""
        if need is Need.EXPLICIT_AXES:
            self.on_meshes = True
            self.bound.clear()
        elif need is Need.CAPTURED_AS_ARGUMENTS:
            self.sharing = Sharing.BOUND
        elif need is Need.WIDE_ARGUMENTS:
            self.looks = True
        self.forget()

    def compiled(self, signature: Signature) -> CompiledSignature | None:
        """Return how jax compiled the function for these arguments, if it did."""
        return self._compiled.get(signature)

    def note(self, signature: Signature | None, compiled: CompiledSignature) -> CompiledSignature:
        """Record how a program was compiled; the first entry stays, since jax keeps what it compiled."""
        self.outputs.are_wide = self.outputs.are_wide or compiled.is_wide
        return compiled if signature is None else self._compiled.add(signature, compiled)

    def forget(self) -> None:
        """Drop the plans and what they are made of, but keep the executables."""
        self._compiled.clear()
        self.plans.clear()


_SIGNATURES = 4096
"""The bound of a function's signature entries."""


# --- of programs -----------------------------------------------------------------------------------------------------


Captured = tuple[list[Any], list[Any]]
"""Captured values as a shared executable takes them: most of them, and the scalars of each dtype as one array."""
_Layout = tuple[DType | None, ...]
"""For each captured value the dtype of the array that it is packed into, None if it is not."""


class Bound(NamedTuple):
    """The executable of a program with the captured values of one function; takes the dynamic arguments."""

    executable: functools.partial[Any]
    program: Program

    def stage(self, name: str, args: Args, kwargs: Kwargs, made_for: MadeFor) -> Stage:
        """Return a stage of jax's for these arguments, `lower` or `trace`."""
        compiled = getattr(self.executable.func, "compiled", self.executable.func)
        stage = getattr(compiled, name)(*self.executable.args, *args, **kwargs)
        return stage_of(stage, made_for, self.executable.args)

    def on_device(self) -> Bound:
        """Return the same executable with the captured arrays put on the device, for many calls."""
        with x64():
            captured = tuple([jax.numpy.asarray(each) if isinstance(each, np.ndarray | np.generic) else each
                              for each in part] for part in self.executable.args[0])
        return self._replace(executable=functools.partial(self.executable.func, captured))


def bind_captured(traced: TracedCall, structure: TreeDef, name: str, inline: bool, on_meshes: bool, rolls: bool,
                  options: dict[str, Any] | None = None) -> Bound:
    """Return a program's executable with this function's captured values; functions that record the program share it.

    With `options` of `jax.jit` the executable is compiled for this function alone.
    """
    values = [np.int64(value) if type(value) is Integer else value for value in traced.captured]
    scalars = [index for index, value in enumerate(values) if isinstance(value, np.generic)]
    layout: _Layout = ()
    captured: Captured = [keys_to_jax(value) for value in values], []
    if len(scalars) > _FEW:
        layout = tuple(value.dtype if isinstance(value, np.generic) and value.dtype.names is None else None
                       for value in values)
        captured = [value for value, dtype in zip(captured[0], layout, strict=True) if dtype is None], [
            np.array([value for value in values if isinstance(value, np.generic) and value.dtype == dtype])
            for dtype in _packed_dtypes(layout)]
    if options is None:
        key = "jit", structure, tree_key(traced.out_tree), layout, inline, on_meshes, rolls
        executable = memoize(traced.program, key, lambda: _compile_program(
            traced.program, traced.out_tree, layout, name, on_meshes, rolls, {"inline": inline}))
    else:
        executable = _compile_program(traced.program, traced.out_tree, layout, name, on_meshes, rolls, options)
    return Bound(functools.partial(executable, captured), traced.program)


_FEW = 4
"""Each argument of a call takes about a microsecond, and so does packing many scalars into an array."""


def _packed_dtypes(layout: _Layout) -> list[DType]:
    return [dtype for dtype in dict.fromkeys(layout) if dtype is not None]


def _unpack_captured(captured: Captured, layout: _Layout) -> list[Any]:
    """Return the captured values in order."""
    others, packs = captured
    if not layout:
        return others
    remaining = iter(others)
    scalars = {dtype: iter(range(len(layout))) for dtype in _packed_dtypes(layout)}
    arrays = dict(zip(scalars, packs, strict=True))
    return [next(remaining) if dtype is None else
            jax.lax.index_in_dim(arrays[dtype], next(scalars[dtype]), keepdims=False) for dtype in layout]


def _compile_program(program: Program, out_tree: TreeDef, layout: _Layout, name: str, on_meshes: bool, rolls: bool,
                     options: dict[str, Any]) -> Executable:
    """Compile `program`: the result takes the captured values, then the dynamic arguments."""
    def of_program(captured: Captured, /, *args: Any, **kwargs: Any) -> Any:
        leaves = tree.leaves((args, kwargs))
        check_jit_enabled(leaves)
        return tree.unflatten(out_tree, emit_call(program, _unpack_captured(captured, layout), leaves,
                                                  on_meshes=on_meshes, rolls=rolls))

    of_program.__name__ = of_program.__qualname__ = name
    compiled = jax.jit(of_program, **options)
    return explicit.OnMeshes(compiled, of_program) if on_meshes else compiled
