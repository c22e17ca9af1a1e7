"""Importing jaxprs: programs of jax, equation by equation, as programs of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.extend.core import Literal as JaxLiteral

from fxgrad.engine import dtypes
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval, Literal, to_numpy, vma_of_jax
from fxgrad.engine.core.primitive import Primitive, library
from fxgrad.engine.core.program import Program, Source, join_scopes
from fxgrad.engine.core.sources import NOWHERE, equation_source
from fxgrad.engine.derivation.simplify import remove_dead_code
from fxgrad.engine.derivation.simplifying import SimplifyingTape
from fxgrad.engine.executors.xla import is_jax, x64
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.tape import aval_of, axes_in_scope
from fxgrad.engine.tracing.trace import WITH_LITERALS, join_unchecked_vma, mesh_in_scope, trace_at
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line, is_user_file
from fxgrad.errors import ArgumentError, DTypeError, UnsupportedError

Rule = Callable[..., Any]
"""(equation of jax's, *operands) -> the output, or a list of the outputs.

A rule returns NotImplemented, or raises `DTypeError` or `UnsupportedError`, if the equation has no counterpart.
"""

rules: dict[str, Rule] = {}
"""The import rules of jax's primitives, by name."""

OTHERS = "others"
"""In the place of a name: the rule of all equations that have no counterpart."""


def _of_the_same_name(primitive: Primitive) -> tuple[str, ...]:
    return (primitive.name,) if primitive in library and primitive.name in rules else ()


names_in_jax: Analysis[tuple[str, ...]] = Analysis(
    "names in jax", "The primitives of jax that are imported as an operation; by default the one of its name.",
    missing="derive", derive=_of_the_same_name)


def import_rule(*names: str, made: Primitive | None = None) -> Callable[[Rule], Rule]:
    """Decorate a function as the rule for jax's primitives of these names.

    `made` is needed if that primitive has another name, or if there are several names.
    """
    if made is not None:
        names_in_jax.enter(names, made)

    def enter(rule: Rule) -> Rule:
        for name in names:
            if name in rules:
                raise ValueError(f"there is a rule for {name} already")
            rules[name] = rule
        return rule
    return enter


class ImportedProgram(NamedTuple):
    """An imported program, and the constants that are its first inputs, for NumPy and as jax had them."""

    program: Program
    constants: list[Any]
    originals: list[Any]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the program, or record it; the constants are jax's if one of the inputs is."""
        constants = self.originals if self.originals and any(map(_is_on_device, inputs)) else self.constants
        return apply_program(self.program, [*constants, *inputs])

    @property
    def captures_tracers(self) -> bool:
        """Whether a tracer of jax's is among the constants, so that the program is valid for one call only."""
        return any(is_jax_tracer(constant) for constant in self.constants)


def is_jax_tracer(value: Any) -> bool:
    """Return whether a value belongs to a trace of jax's."""
    return isinstance(value, jax.core.Tracer)


def _is_on_device(value: Any) -> bool:
    """Return whether a value is a jax array, or traced together with one."""
    if type(value) is Tracer:
        return value.tape.values is not None and any(map(_is_on_device, value.tape.values))
    return is_jax(value)


def import_jaxpr(jaxpr: ClosedJaxpr) -> Program:
    """Return the program that computes the same as `jaxpr`, as returned by `jax.make_jaxpr`.

    Each of its equations becomes operations of fxgrad, inner jaxprs included; an equation without a counterpart becomes
    a `jax_call`, whose rules are jax's. The constants are those of `jaxpr`, as NumPy arrays. Raises `ArgumentError` if
    `jaxpr` is something else, and `UnsupportedError` for inputs, outputs and constants of dtypes that fxgrad does not
    have.

    >>> import fxgrad, jax, jax.numpy as jnp
    >>> program = fxgrad.import_jaxpr(jax.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0))
    >>> [str(equation.primitive) for equation in program.equations]
    ['sin', 'mul']
    >>> round(float(program(1.0)), 4)
    1.6829
    """
    if not isinstance(jaxpr, ClosedJaxpr):
        raise ArgumentError(at_user_line(
            f"import_jaxpr takes what jax.make_jaxpr(f)(*args) returns, got a {type(jaxpr).__name__}. Write "
            "import_jaxpr(jax.make_jaxpr(f)(*args)); from_jax(f) takes the function itself"))
    dtypes_met = {str(getattr(var.aval, "dtype", "")) for var in _variables(jaxpr)}
    with x64(not dtypes_met.isdisjoint(("float64", "int64", "uint64", "complex128"))):
        program, constants, _ = import_with_constants(jaxpr)
    return program.replace(captured=len(constants), constants=constants)


def _variables(jaxpr: ClosedJaxpr) -> Iterator[Any]:
    inner = jaxpr.jaxpr
    yield from (*inner.constvars, *inner.invars, *(var for equation in inner.eqns for var in equation.outvars))


def import_with_constants(jaxpr: ClosedJaxpr) -> ImportedProgram:
    """Import a jaxpr as `import_jaxpr` does, with the constants apart."""
    state = ImportState()
    token = _under_way.set(state)
    try:
        program, constants = import_nested(jaxpr)
    finally:
        _under_way.reset(token)
    return ImportedProgram(program, constants, [state.original(constant) for constant in constants])


class ImportState:
    """Jaxprs and constants met while one jaxpr is imported, so that each is imported once."""

    def __init__(self) -> None:
        self._programs: dict[Any, tuple[Any, Program, list[Any]]] = {}
        self._arrays: dict[int, tuple[Any, Any]] = {}
        self._originals: dict[int, Any] = {}

    def program(self, jaxpr: Any, axes: Mapping[str, int]) -> tuple[Program, list[Any]]:
        key = id(jaxpr), (*axes.items(),), mesh_in_scope()
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = (jaxpr, *trace_jaxpr(as_closed_jaxpr(jaxpr), axes))
        return found[1:]

    def array(self, value: Any) -> Any:
        known = self._arrays.get(id(value))
        if known is None:
            array = np.array(to_numpy(value) if is_jax(value) else value)
            array.flags.writeable = False  # the tape requires this of arrays that it does not copy
            known = self._arrays[id(value)] = value, array
            self._originals[id(array)] = value
        return known[1]

    def original(self, array: Any) -> Any:
        return self._originals.get(id(array), array)


_under_way: ContextVar[ImportState | None] = ContextVar("import_under_way", default=None)


def as_closed_jaxpr(jaxpr: Any) -> ClosedJaxpr:
    """Return a jaxpr of a parameter as a closed one."""
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


def import_nested(jaxpr: Any, axes: Mapping[str, int] | None = None) -> tuple[Program, list[Any]]:
    """Return the program of a jaxpr inside another, and its constants, the first inputs of the program.

    `axes` are mapped axes that it gets beside those around it, sizes by name.
    """
    state = _under_way.get() or ImportState()
    return state.program(jaxpr, {**axes_in_scope(), **(axes or {})})


def trace_jaxpr(jaxpr: ClosedJaxpr, axes: Mapping[str, int]) -> tuple[Program, list[Any]]:
    """Trace a jaxpr as `import_nested` does, for all axes in `axes`."""
    avals = join_unchecked_vma([aval_of_jax(var.aval) for var in jaxpr.jaxpr.invars])
    recorded, captured = trace_at(lambda *values: inline_jaxpr(jaxpr, values), avals, mode=WITH_LITERALS,
                                  name="a jaxpr",
                                  tape_class=SimplifyingTape, axes=axes)
    return remove_dead_code(recorded), captured


def inline_jaxpr(jaxpr: Any, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of a jaxpr of a parameter, recorded in its place."""
    inner = as_closed_jaxpr(jaxpr)
    constants = [_constant(value, var.aval) for value, var in
                 zip(inner.consts, inner.jaxpr.constvars, strict=True)]
    return eval_jaxpr(inner.jaxpr, [*constants, *inputs])


def _constant(value: Any, aval: Any) -> Any:
    """Return a constant of a jaxpr: a number as a literal, an array as NumPy's, a jax tracer unchanged."""
    if is_jax_tracer(value):
        return value
    known = aval_of_jax(aval)
    if known.dtype == dtypes.bool_:
        value = np.asarray(value).astype(dtypes.bool_)
    if not known.shape and not dtypes.is_key(known.dtype):
        return Literal(np.asarray(value), known)
    state = _under_way.get()
    return value if state is None else state.array(value)


_DTYPES = frozenset([*dtypes.SUPPORTED.values(), dtypes.key_dtype])


def aval_of_jax(aval: Any) -> Aval:
    """Return the type of a variable of jax's; tangents of integers (float0), which carry no value, become bools."""
    dtype = dtypes.from_jax(aval.dtype) if hasattr(aval, "dtype") else None
    if dtype == dtypes.float0:
        return Aval(tuple(aval.shape), dtypes.bool_)
    if dtype not in _DTYPES:
        raise UnsupportedError(at_user_line(
            f"an imported function has a value of type {aval}, which fxgrad has not; it supports "
            f"{', '.join(dtypes.WIDE_NAMES)} and keys of threefry2x32. Convert it inside the function, for example "
            "x.astype('float32')"))
    weak = bool(getattr(aval, "weak_type", False)) and dtype != dtypes.bool_
    return Aval(tuple(aval.shape), dtype, weak, vma_of_jax(aval))


def eval_jaxpr(jaxpr: Jaxpr, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of `jaxpr`, applying the equations to `inputs` as fxgrad operations."""
    environment: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), inputs, strict=True))

    def value(atom: Any) -> Any:
        return _constant(atom.val, atom.aval) if isinstance(atom, JaxLiteral) else environment[atom]

    outer = equation_source.get()
    try:
        for equation in jaxpr.eqns:
            equation_source.set(equation_source_of(equation, outer))
            outputs = apply_jax_equation(equation, [value(atom) for atom in equation.invars])
            environment.update(zip(equation.outvars, outputs, strict=True))
    finally:
        equation_source.set(outer)
    return [_with_jax_weakness(value(atom), aval_of_jax(atom.aval)) for atom in jaxpr.outvars]


def equation_source_of(equation: JaxprEqn, outer: Source | None) -> Source | None:
    """Return the user's line of an equation of jax's, or `outer`, and the scopes of `jax.named_scope` there."""
    traceback = equation.source_info.traceback
    frames: Iterable[Any] = () if traceback is None else zip(*traceback.raw_frames(), strict=True)
    found = next((Source(code, instruction) for code, instruction in frames if is_user_file(code.co_filename)), outer)
    if found is None or found is NOWHERE:
        return found
    within = "" if outer is None else outer.scope
    return found._replace(scope=join_scopes(within, str(equation.source_info.name_stack)))


def apply_jax_equation(equation: JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """Return the outputs of one equation of jax."""
    rule = rules.get(equation.primitive.name)
    result = NotImplemented
    if rule is not None:
        with suppress(DTypeError, UnsupportedError):  # jax's own rules know more (kept as a jax_call)
            result = rule(equation, *operands)
    if result is NotImplemented:
        result = rules[OTHERS](equation, *operands)
    outputs = list(result) if isinstance(result, list | tuple) else [result]
    for var, output in zip(equation.outvars, outputs, strict=True):
        expected, given = aval_of_jax(var.aval), aval_of(output)
        if (given.shape, given.dtype) != (expected.shape, expected.dtype):
            raise AssertionError(f"{equation.primitive} was imported as {given}, where jax has {expected}; "
                                 "this is a bug in fxgrad")
    return outputs


def _with_jax_weakness(value: Any, aval: Aval) -> Any:
    """Return an output with jax's weak type."""
    return value if aval_of(value).weak == aval.weak else convert(value, aval.dtype, aval.weak)
