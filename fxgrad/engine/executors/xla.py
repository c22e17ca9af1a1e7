"""Execution by XLA: programs are emitted as `jax.lax` calls inside `jax.jit`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from fxgrad.engine import dtypes
from fxgrad.engine.caches import Cache
from fxgrad.engine.core.avals import PYTHON_SCALARS, Aval, Literal, keys_to_jax, vma_of_jax
from fxgrad.engine.core.cache_keys import param_key
from fxgrad.engine.core.faces import face
from fxgrad.engine.core.primitive import Primitive, infer_types, library
from fxgrad.engine.core.program import Equation, Program, Variable, subprograms
from fxgrad.engine.core.program_properties import (
    ProgramAttribute,
    calls_user_code,
    count_equations,
    has_effects,
    memoize,
    needs_x64,
)
from fxgrad.engine.core.walk import eval_program, value_of
from fxgrad.engine.derivation.guards import Guard, collect_guards, memoize_guarded
from fxgrad.engine.executors import explicit, failures
from fxgrad.engine.executors.lines import Lines
from fxgrad.engine.executors.platforms import default_device
from fxgrad.engine.executors.speculative import Speculation, speculation_of
from fxgrad.engine.ops.below_byte import lowering_for
from fxgrad.engine.ops.strong import is_finite_xla
from fxgrad.engine.pickling import SharedList
from fxgrad.engine.tracing.tape import aval_of

_NOT_JAX = frozenset({np.ndarray, np.float32, np.float64, Literal, *PYTHON_SCALARS})


def is_jax(value: Any) -> bool:
    """Return whether `value` is a jax array, or a tracer of jax."""
    return type(value) not in _NOT_JAX and isinstance(value, jax.Array)


def is_jax_tracer(value: Any) -> bool:
    """Return whether a value belongs to a jax trace, and so is valid for one call only."""
    return isinstance(value, jax.core.Tracer)


def x64(needed: bool = True) -> AbstractContextManager[Any]:
    """Return a scope in which jax keeps 64-bit dtypes, whatever its global flag."""
    return jax.enable_x64(True) if needed else nullcontext()


idle_scopes: list[AbstractContextManager[Any]] = SharedList(__name__, "idle_scopes")
"""A pool of unused `x64()` scopes: making one takes as long as entering it."""


def as_jax(value: Any) -> Any:
    """Return `value` for `lax`, in its own dtype; call it within `x64()` for 64-bit ones."""
    if type(value) is Literal:
        return value.value
    if type(value) in PYTHON_SCALARS:
        return np.asarray(value, aval_of(value).dtype)
    return keys_to_jax(value)


def emit(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Call the `xla` rule of every equation on jax values (within a jax trace, or eagerly)."""
    emission = _under_way.get()
    if emission is None:
        token = _under_way.set(_Emission())
        try:
            return emit(program, inputs)
        finally:
            _under_way.reset(token)
    values = [*map(as_jax, inputs)]
    attempt = None if emission.is_again else speculation_of(program)
    with jax.numpy_dtype_promotion("standard"):  # the rules call functions of jax that need it inside
        if attempt is None:
            emission.look_into(program)
            outputs = eval_program(program, values, emission.equation, value_of)
        else:
            outputs = emission.speculate(attempt, values)
    return [*map(jax.numpy.asarray, outputs)]


def _vary_literals(equation: Equation, values: list[Any]) -> list[Any]:
    """Return `values` with literals varying over the mesh axes that the operation's programs require.

    No `pvary` precedes a literal; but if jax tracks varying axes, its loops must carry values of one type.
    """
    given = [*values]
    for region in equation.regions:
        for link, var in zip(region.inputs, region.program.inputs, strict=True):
            if link.place >= 0 and var.aval.vma and type(equation.inputs[link.place]) is Literal:
                given[link.place] = as_varying(values[link.place], var.aval)
    return given


def as_varying(value: Any, aval: Aval) -> Any:
    """Return a jax value varying over the mesh axes of the type `aval`, if jax tracks them."""
    missing = tuple(sorted(aval.vma - vma_of_jax(jax.typeof(value)))) if aval.vma else ()
    return lax.pcast(value, missing, to="varying") if missing else value


def jax_axis_size(axis_name: str) -> int | None:
    """Return the size of the axis that jax maps under this name, or None."""
    try:
        size = int(lax.axis_size(axis_name))
    except NameError:
        return None
    asked = _axes_asked.get()
    if asked is not None:
        asked[axis_name] = size
    return size


@contextmanager
def record_axis_uses() -> Iterator[dict[str, int]]:
    """Yield the sizes, by name, of jax's axes that the code in this block uses."""
    asked: dict[str, int] = {}
    around = _axes_asked.get()
    token = _axes_asked.set(asked)
    try:
        yield asked
    finally:
        _axes_asked.reset(token)
        if around is not None:
            around.update(asked)


_axes_asked: ContextVar[dict[str, int] | None] = ContextVar("axes_asked", default=None)


def emit_results(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Emit a program whose outputs go to a user: weak outputs are weak in jax, too."""
    return weaken_jax_outputs(program.out_avals, emit(program, inputs))


def weaken_jax_outputs(avals: Sequence[Aval], outputs: Sequence[Any]) -> list[Any]:
    """Return `outputs`, of types `avals`, each as weakly typed in jax as its type."""
    return [_make_weak(output) if aval.weak else output for aval, output in zip(avals, outputs, strict=True)]


def _make_weak(value: Any) -> Any:
    """Return a jax array as a weakly typed one, of the same dtype.

    `jax.lax` has no function for it that keeps the dtype.
    """
    from jax.extend.core.primitives import convert_element_type_p  # imported when needed: it brings Pallas along

    return convert_element_type_p.bind(value, new_dtype=value.dtype, weak_type=True, sharding=None)


def emit_named(program: Program, inputs: Sequence[Any], name: str) -> list[Any]:
    """Emit a program in the scope `name`."""
    with jax.named_scope(name):
        return emit(program, inputs)


def emit_unit(program: Program, inputs: Sequence[Any], name: str) -> list[Any]:
    """Emit a program that is a function of its own to the user, called `name`.

    If several operations being emitted hold the program, jax gets one function that is called from each of these
    places, and lowers it once for each kind of inputs. Otherwise its equations are inlined.
    """
    emission = _under_way.get()
    function = None if emission is None else emission.function(program, name)
    return emit_named(program, inputs, f"jit({name})") if function is None else function(
        *(cast_to_var(value, var) for value, var in zip(inputs, program.inputs, strict=True)))


class _Emission:
    """One emission of a program and its nested programs: how often each occurs, and the functions made of some.

    The functions live no longer than the emission, so the next emission runs user code again.
    """

    __slots__ = ("_functions", "_lines", "_occurrences", "_seen", "is_again")

    def __init__(self) -> None:
        self.is_again = False  # whether only strong products remain to try
        self._lines = Lines()
        self._seen: set[Program] = set()
        self._occurrences: dict[Program, int] = {}
        self._functions: dict[tuple[Program, bool], Callable[..., list[Any]]] = {}

    def speculate(self, attempt: Speculation, values: Sequence[Any]) -> list[Any]:
        """Return the outputs of a program with strong matrix products, by ordinary ones if these make no NaN.

        The strong ones are then in a loop of zero iterations. A conditional would copy the values that it passes.
        """
        made = emit(attempt.first, values)
        count = len(attempt.again.outputs)

        def again(state: Any) -> Any:
            self.is_again = True
            try:
                return lax.full_like(state[0], True), tuple(emit(attempt.again, values))
            finally:
                self.is_again = False

        is_fine = _are_cuts_finite([made[place] for place, _ in attempt.looked], [cuts for _, cuts in attempt.looked])
        changed = lax.while_loop(lambda state: lax.bitwise_not(state[0]), again, (is_fine, tuple(made[:count])))[1]
        return emit(attempt.rest, [*values, *changed, *made[count:]])

    def equation(self, equation: Equation, values: list[Any]) -> list[Any]:
        """Call the rule of an equation, from the user's line, in its scopes."""
        if equation.primitive.regions is not None and Literal in map(type, equation.inputs):
            values = _vary_literals(equation, values)
        source, rule = equation.source, lowering_for(equation.primitive, values)
        if source is None:
            outputs: list[Any] = rule(lax, *values, **equation.params)
            return outputs
        call = self._lines.caller(source)
        if source.scope:
            with jax.named_scope(source.scope):
                return call(rule, values, equation.params)
        return call(rule, values, equation.params)

    def look_into(self, program: Program) -> None:
        """Count the operations that hold each program, in `program` and all nested programs; visit each once."""
        remaining = [program]
        while remaining:
            found = remaining.pop()
            if found not in self._seen:
                self._seen.add(found)
                for equation in found.equations:
                    for inner in equation.programs if equation.primitive.regions is not None else ():
                        self._occurrences[inner] = self._occurrences.get(inner, 0) + 1
                        remaining.append(inner)

    def function(self, program: Program, name: str) -> Callable[..., list[Any]] | None:
        """Return `program` as one jax function, if it is used more than once; else None."""
        key = (program, self.is_again)
        function = self._functions.get(key)
        times = self._occurrences.get(program, 0)
        if function is None and times > 1 and not calls_user_code(program):
            def emitted(*inputs: Any) -> list[Any]:
                with set_xla_metadata(inlineable=None):  # it is said of the call, not of what is called
                    return emit(program, inputs)

            emitted.__name__ = emitted.__qualname__ = name  # shown in jaxprs, and in the code lowered from them
            function = jax.jit(emitted)
            if _stays_apart(program, times):
                function = set_xla_metadata(inlineable="false")(function)
            self._functions[key] = function
        return function


compiled_apart: ProgramAttribute[bool] = ProgramAttribute("compiled apart")
"""Whether XLA is to keep calls of a program: the time it takes for inlined ones grows faster than their number."""
_MANY_CALLS, _LARGE_FUNCTION = 8, 24
"""Nested jitted functions stay apart from so many calls and so many equations on."""


_runs_here: ContextVar[bool] = ContextVar("runs_here", default=False)


@contextmanager
def running_here() -> Iterator[None]:
    """Within the block programs are emitted for this process, on its default device."""
    token = _runs_here.set(True)
    try:
        yield
    finally:
        _runs_here.reset(token)


def _stays_apart(program: Program, times: int) -> bool:
    """Return whether XLA is told not to inline calls of a program; only its CPU backend is known to compile these.

    Code that is exported, or that jax compiles as part of something else, may run elsewhere.
    """
    if not _runs_here.get() or default_device().platform != "cpu":
        return False
    return compiled_apart.of(program) or (times >= _MANY_CALLS and count_equations(program) >= _LARGE_FUNCTION)


def _are_cuts_finite(values: Sequence[Any], cuts: Sequence[Sequence[Sequence[int]]]) -> Any:
    """Return whether parts of `values` are finite; `cuts` has for each part the axes where only entry 0 counts.

    The parts of one dtype are checked as one array, which takes the time of one.
    """
    looked: list[Any] = []
    pieces: dict[Any, list[Any]] = {}
    for value, parts in zip(values, cuts, strict=True):
        for axes in parts:
            part = value
            for axis in axes:
                part = lax.slice_in_dim(part, 0, 0 if part.shape[axis] == 0 else 1, axis=axis)
            kept = pieces.setdefault((part.dtype, vma_of_jax(jax.typeof(part))), []) if axes else looked
            kept.append(lax.reshape(part, (part.size,)) if axes else part)
    looked += [lax.concatenate(some, 0) for some in pieces.values()]
    return functools.reduce(lax.bitwise_and, [is_finite_xla(lax, part) for part in looked])


_under_way: ContextVar[_Emission | None] = ContextVar("emission", default=None)


def run_compiled(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of the program on jax values, compiled by `jax.jit` and memoized on the program."""
    return _runners[-1](_run_emitted, program, inputs) if has_effects(program) else _run_emitted(program, inputs)


Runner = Callable[[Callable[[Program, Sequence[Any]], "list[Any]"], Program, Sequence[Any]], "list[Any]"]
"""(the function that runs programs as they are, a program with effects, its inputs) -> its outputs."""
_runners: list[Runner] = SharedList(__name__, "_runners")


def register_runner(runner: Runner) -> None:
    """Register the function that runs compiled programs with effects."""
    _runners.append(runner)


def _run_emitted(program: Program, inputs: Sequence[Any]) -> list[Any]:
    return _run_emission(program, ("xla",), lambda inputs: emit_results(program, inputs), inputs)


def _run_emission(program: Program, key: tuple[Any, ...], emission: explicit.Emission,
                  inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of `emission`, compiled and memoized on `program` under guards of user code that it runs."""
    on_meshes = _MET_EXPLICIT_AXES.of(program) is True
    run: Callable[..., list[Any]] = memoize_guarded(
        program, (*key, on_meshes), functools.partial(_compile_emission, emission, on_meshes))
    try:
        return run(*inputs)
    except explicit.ExplicitAxes:  # only a jax trace detects them
        _MET_EXPLICIT_AXES.put(program, True)
        return _run_emission(program, key, emission, inputs)
    except jax.errors.JaxRuntimeError as error:
        raise failures.translate_error(error) from None


_MET_EXPLICIT_AXES: ProgramAttribute[bool] = ProgramAttribute("met Explicit axes")


def _compile_emission(emission: explicit.Emission, on_meshes: bool, guards: list[Guard]) -> Callable[..., list[Any]]:
    """Compile `emission`; whenever jax traces it, `guards` gains those of the user code that runs.

    Explicit axes raise `ExplicitAxes` unless it runs `on_meshes`.
    """
    def emitted(*inputs: Any) -> list[Any]:
        with collect_guards() as collected:
            outputs = explicit.emit_on_auto_axes(emission, inputs, foreseen=on_meshes)
        guards.extend(collected)
        return outputs

    function = jax.jit(emitted)
    return explicit.OnMeshes(function, emitted) if on_meshes else function


def execute(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Run a program on concrete values, at least one of them a jax array; the results are jax arrays."""
    if any(map(is_jax_tracer, inputs)):
        found: list[Any] | None = face("in_jax")(program, inputs)
        if found is not None:
            return found
    with x64(needs_x64(program)):
        return run_compiled(program,
                            [cast_to_var(value, var) for value, var in zip(inputs, program.inputs, strict=True)])


def cast_to_var(value: Any, var: Variable) -> Any:
    """Return a value in the dtype that the program expects; Python scalars have none of their own."""
    if type(value) is Literal:
        return value.value
    if type(value) in PYTHON_SCALARS:
        return np.asarray(value, var.aval.dtype)
    return keys_to_jax(value)


def evaluate(primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Compute one primitive on concrete values, at least one of them a jax array.

    An operation of the library is compiled once for each type of its operands. Called as it stands, its rule would have
    jax compile loops and branches at every call, and run each operation of the rule for itself.
    """
    on_meshes = explicit.explicit_mesh(args) is not None
    if primitive.regions is None and not any(map(is_jax_tracer, args)) and (on_meshes or _depends_on_key(primitive)):
        key = (primitive, on_meshes, *param_key(primitive, params), *map(type_key, args))
        run: Callable[..., list[Any]] = _operations.get(key) or _operations.add(
            key, compile_program(_program_of(primitive, [*map(aval_of, args)], params), on_meshes))
        return run(*map(as_jax, args))
    avals = [aval_of(arg) for arg in args]
    if any(map(is_jax_tracer, args)):
        found: list[Any] | None = face("in_jax")(_program_of(primitive, avals, params), args)
        if found is not None:
            return found
    out_avals = infer_types(primitive, avals, params)
    held = subprograms(primitive, params)
    wide = any(dtypes.is_64bit(aval.dtype) for aval in (*avals, *out_avals)) or any(
        map(needs_x64, held))
    with x64(wide):
        values = [arg if isinstance(arg, jax.Array) else jax.numpy.asarray(as_jax(arg)) for arg in args]
        if any(map(has_effects, held)):  # whose runner takes programs
            key = ("alone", primitive, *param_key(primitive, params), *avals)
            return run_compiled(memoize(held[0], key, lambda: _program_of(primitive, avals, params)), values)
        if held:  # memoized on the program, since jax would recompile a loop at every call
            return _run_emission(held[0], ("xla rule", primitive, *param_key(primitive, params)),
                                 lambda values: weaken_jax_outputs(out_avals, primitive.xla(lax, *values, **params)),
                                 values)
        outputs: list[Any] = lowering_for(primitive, values)(lax, *values, **params)
        return weaken_jax_outputs(out_avals, outputs)


def _depends_on_key(primitive: Primitive) -> bool:
    """Return whether what an operation computes depends on its operands and parameters alone."""
    return primitive in library and not (primitive.effectful or primitive.calls_user_code or primitive.collective)


def compile_program(program: Program, on_meshes: bool) -> Callable[..., list[Any]]:
    """Return a program without effects and user code, compiled: a function of jax and NumPy values.

    If one of these lies on a mesh with Explicit axes, it is to be compiled to run `on_meshes`.
    """
    compiled = _compile_emission(lambda inputs: emit_results(program, inputs), on_meshes, [])

    def run(*values: Any) -> list[Any]:
        try:
            return compiled(*values)
        except jax.errors.JaxRuntimeError as error:
            raise failures.translate_error(error) from None

    def run_wide(*values: Any) -> list[Any]:
        with x64():
            return run(*values)
    return run_wide if needs_x64(program) else run


def type_key(value: Any) -> Any:
    """Return what types an operand in a key: its aval, or, which takes less time, what jax's array says of it."""
    if not isinstance(value, jax.Array):
        return aval_of(value)
    return value.dtype, value.shape, getattr(value, "weak_type", False)  # random keys have none


_operations = Cache("compiled operations", 4096)


def _program_of(primitive: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> Program:
    """Return the program of one operation."""
    inputs, outputs = [*map(Variable, avals)], [*map(Variable, infer_types(primitive, avals, params))]
    return Program(inputs, [Equation(primitive, [*inputs], params, outputs)], outputs)

