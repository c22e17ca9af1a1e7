"""A jax equation as a parameter: how to compute it, and jax's derivatives of it, imported."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NoReturn

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, gensym, jaxpr_as_fun

from fxgrad.engine import dtypes, tree
from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.arrays import Integer
from fxgrad.engine.core.avals import Aval, vma_of_jax
from fxgrad.engine.core.cache_keys import comparison_key
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.higher_order.groups import (
    Marks,
    linear_mask,
    nonzero_mask,
    nonzero_tangents,
    select_marked,
    select_unmarked,
)
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.tape import aval_of, axes_in_scope
from fxgrad.engine.tracing.trace import mesh_in_scope
from fxgrad.engine.transforms.batch import batch_aval
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import FxgradError, UnsupportedError
from fxgrad.interop.importing import ImportedProgram, aval_of_jax, import_with_constants, is_jax_tracer
from fxgrad.interop.manual import example_value, trace_in_mesh
from fxgrad.interop.settings import Settings

_OF_EXPORTED_PROGRAMS = ("call_exported", "No VJP is available")
"""Words of jax's errors for the rules that exported programs lack."""
_OF_SYMBOLIC_SIZES = ("Symbolic dimension", "non-constant size")
"""Words of jax's errors for sizes that vary."""


def _advice(reason: str) -> str:
    if any(words in reason for words in _OF_EXPORTED_PROGRAMS):
        return ("Exported programs have reverse mode alone: every order where they were exported, where they are read "
                "the vjp_order of serialize. Export grad(f), hessian(f) or vmap(f), or call them on each row with "
                "fxgrad.lax.map")
    if any(words in reason for words in _OF_SYMBOLIC_SIZES):
        return "Export the gradient, grad(f), or for sizes that are numbers"
    return "Give the function that calls it a rule, with fxgrad.custom_vjp or custom_jvp, or with those of jax"


class JaxCall:
    """An equation of jax's, compared by value: equal if primitive, types, parameters and settings are equal.

    Its methods apply jax's derivatives of it: each is traced by jax once, imported, and cached.
    """

    __slots__ = (
        "_derived",
        "_hash",
        "_key",
        "_trees",
        "compiled",
        "function",
        "in_avals",
        "name",
        "out_avals",
        "settings",
    )

    def __init__(self, equation: JaxprEqn, name: str | None = None) -> None:
        self.name = name or equation.primitive.name
        self.settings = Settings.now()
        self.in_avals = tuple(aval_of_jax(var.aval) for var in equation.invars)
        self.out_avals = tuple(aval_of_jax(var.aval) for var in equation.outvars)
        new: Any = gensym()
        inputs, outputs = [new(var.aval) for var in equation.invars], [new(var.aval) for var in equation.outvars]
        names = DebugInfo("jax_call", equation.primitive.name, tuple(f"x{index}" for index in range(len(inputs))),
                          tuple(f"[{index}]" for index in range(len(outputs))))
        only = equation.replace(invars=inputs, outvars=outputs)
        function: Callable[..., list[Any]] = jaxpr_as_fun(
            ClosedJaxpr(Jaxpr([], inputs, outputs, [only], equation.effects, names), ()))
        self.function = function if not any(map(_is_float0, (*inputs, *outputs))) else _restore_float0(function, inputs)
        self.compiled: Callable[..., list[Any]] = jax.jit(self.function)
        self._key = (equation.primitive, self.in_avals, self.settings,
                     *((key, comparison_key(value)) for key, value in sorted(equation.params.items())))
        self._hash = hash(self._key)
        self._derived = BoundedDict(256)
        self._trees: dict[Hashable, Any] = {}

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, JaxCall) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"the program holds an operation of jax's, {self.name}, which cannot be pickled. Pickle the "
                        "jax function, and trace it again where it is read: make_program(from_jax(function))(*args)")

    def __call__(self, *values: Any) -> list[Any]:
        """Return the outputs, as jax computes or traces them."""
        with self.settings.scope():
            return self.function(*values)

    # --- jax's rules ----------------------------------------------------------------------------------------

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return outputs and their tangents, computed together."""
        marks = nonzero_mask(tangents)

        def both(*values: Any) -> list[Any]:
            given, along = values[:len(marks)], values[len(marks):]
            outputs, out_tangents = jax.jvp(self._function_of(given, marks), tuple(select_marked(given, marks)), along)
            return [*outputs, *self._inexact(out_tangents)]

        results = self._import(("jvp", marks), both, [*self.in_avals, *select_marked(self.in_avals, marks)])(
            [*primals, *nonzero_tangents(tangents)])
        return self._with_tangents(results[:len(self.out_avals)], results[len(self.out_avals):])

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Compute `jvp` in two parts, one that depends on the tangents and one that does not."""
        marks = nonzero_mask(tangents)

        def known(*values: Any) -> list[Any]:
            outputs, linear = jax.linearize(self._function_of(values, marks), *select_marked(values, marks))
            residuals = self._flattened(("linear", marks), linear)
            return [*outputs, *residuals]

        results = self._import(("linearize", marks), known, self.in_avals)(primals)
        outputs, residuals = results[:len(self.out_avals)], results[len(self.out_avals):]
        structure, avals = self._types_of(("linear", marks), residuals)

        def along(*values: Any) -> list[Any]:
            linear = tree.unflatten(structure, values[:len(avals)])
            return self._inexact(linear(*values[len(avals):]))

        moved = self._import(("linear", marks), along, [*avals, *select_marked(self.in_avals, marks)])
        return self._with_tangents(outputs, moved([*residuals, *nonzero_tangents(tangents)]))

    def pull(self, primals: Sequence[Any], marks: Marks) -> tuple[list[Any], list[Any]]:
        """Return outputs, and the residuals that `pull_back` needs for the cotangents of the marked inputs."""
        def forwards(*values: Any) -> list[Any]:
            outputs, back = jax.vjp(self._function_of(values, marks), *select_marked(values, marks))
            residuals = self._flattened(("back", marks), back)
            return [*outputs, *residuals]

        results = self._import(("pull", marks), forwards, self.in_avals)(primals)
        return results[:len(self.out_avals)], results[len(self.out_avals):]

    def pull_back(self, marks: Marks, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Return the cotangents of the marked inputs; None for the others."""
        structure, avals = self._types_of(("back", marks), residuals)

        def backwards(*values: Any) -> Any:
            back = tree.unflatten(structure, values[:len(avals)])
            found = iter(values[len(avals):])
            return back([next(found) if has_tangent(aval) else np.zeros(aval.shape, dtypes.float0)
                         for aval in self.out_avals])

        moved = self._import(("pull back", marks), backwards, [*avals, *self._cotangent_avals()])
        found = iter(moved([*residuals, *self._inexact([*map(instantiate_zeros, cotangents)])]))
        return [next(found) if marked else None for marked in marks]

    def transpose(self, cotangents: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Return the cotangents of the linear inputs; None for the others."""
        linear = linear_mask(inputs)
        count = linear.count(False)

        def back(*values: Any) -> Any:
            known = iter(values[:count])
            function = self._function_of([None if marked else next(known) for marked in linear], linear)
            transposed = jax.linear_transpose(lambda *given: self._inexact(function(*given)),
                                              *map(example_value, select_marked(self.in_avals, linear)))
            return transposed([*values[count:]])

        moved = self._import(("transpose", linear), back,
                             [*select_unmarked(self.in_avals, linear), *self._cotangent_avals()])
        found = iter(moved([*select_unmarked(inputs, linear), *self._inexact([*map(instantiate_zeros, cotangents)])]))
        return [next(found) if marked else None for marked in linear]

    def batch(self, size: int, values: Sequence[Any], axes: Sequence[int | None], name: str | None,
              ) -> tuple[list[Any], list[int | None]]:
        """Return the outputs for a batch along their first axis, and that axis; `name` is its name in collectives.

        An output that jax's rule leaves unbatched stays so, so that a branch on it stays one.
        """
        avals = [batch_aval(aval, size, axis) for aval, axis in zip(self.in_avals, axes, strict=True)]
        key = "batch", size, tuple(axes), name
        out_axes = self._trees.get(_key_in_axes(key))
        if out_axes is None:
            out_axes = self._trees[_key_in_axes(key)] = self._batched_outputs(avals, *key[1:])
        return self._import(key, self._map_function(*key[1:], out_axes), avals)(values), [*out_axes]

    def _map_function(self, size: int, axes: tuple[int | None, ...], name: str | None, out_axes: Sequence[int | None],
                      part: slice = slice(None)) -> Callable[..., Any]:
        return jax.vmap(lambda *given: self.function(*given)[part], axes, [*out_axes[part]], axis_name=name,
                        axis_size=size)

    def _batched_outputs(self, avals: Sequence[Aval], size: int, axes: tuple[int | None, ...], name: str | None,
                         ) -> list[int | None]:
        """Return the batch axis of each output; None if jax returns it unbatched, which it must be without an axis."""
        nowhere: list[int | None] = [None] * len(self.out_avals)

        def is_the_same(part: slice) -> bool:
            try:
                with self.settings.scope():
                    mapped = self._map_function(size, axes, name, nowhere, part)
                    trace_in_mesh(axes_in_scope(), mesh_in_scope(), mapped, avals)
            except (NotImplementedError, ValueError):
                return False
            return True
        if is_the_same(slice(None)):
            return nowhere
        return [None if len(nowhere) > 1 and is_the_same(slice(at, at + 1)) else 0 for at in range(len(nowhere))]

    # --- the means ------------------------------------------------------------------------------------------

    def _import(self, key: Hashable, function: Callable[..., Any], avals: Sequence[Aval]) -> ImportedProgram:
        """Return the program of `function`, for inputs of the types `avals`."""
        key = _key_in_axes(key)
        known = self._derived.get(key)
        if known is not None:
            return known
        try:
            with self.settings.scope():
                found = import_with_constants(trace_in_mesh(axes_in_scope(), mesh_in_scope(), function, avals))
            jax.lax.optimization_barrier([*filter(is_jax_tracer, found.constants)])  # raises for those that leaked
        except (NotImplementedError, ValueError, jax.errors.InconclusiveDimensionOperation) as error:
            if isinstance(error, FxgradError):
                raise
            what = key[0] if isinstance(key[0], str) else key[0][0]
            reason = str(error).split(chr(10))[0].rstrip('.')
            raise UnsupportedError(at_user_line(
                f"{self.name} is computed by jax, which has no rule for what is asked of it ({what}): {reason}. "
                f"{_advice(reason)}")) from None
        except jax.errors.UnexpectedTracerError:
            raise UnsupportedError(at_user_line(
                f"a rule of {self.name}, an imported function of jax's, uses a traced array that is no argument of "
                f"{self.name}, and what was traced has returned by the time the rule runs. Make that array an argument "
                f"of {self.name}; or import a function that closes over its value: from_jax(lambda x: f(x, a))(x) in "
                "the place of from_jax(f)(x, a)")) from None
        if not found.captures_tracers:
            self._derived[key] = found
        return found

    def _flattened(self, key: Hashable, function: Any) -> list[Any]:
        """Return the leaves of a function of jax's; cache its structure and which leaves vary over a mesh."""
        residuals, structure = tree.flatten(function)
        self._trees[_key_in_axes(key)] = structure, [vma_of_jax(getattr(residual, "aval", None))
                                                     for residual in residuals]
        return residuals

    def _types_of(self, key: Hashable, residuals: Sequence[Any]) -> tuple[Any, list[Aval]]:
        """Return the structure, and jax's types of the leaves of the function."""
        structure, varying = self._trees[_key_in_axes(key)]
        return structure, [aval_of(residual).varying(names) for residual, names in
                           zip(residuals, varying, strict=True)]

    def _function_of(self, values: Sequence[Any], marks: Marks) -> Callable[..., list[Any]]:
        """Return the call as a function of the marked inputs."""
        def function(*given: Any) -> list[Any]:
            remaining = iter(given)
            return self.function(*(next(remaining) if marked else value
                                   for value, marked in zip(values, marks, strict=True)))
        return function

    def _inexact(self, outputs: Sequence[Any]) -> list[Any]:
        return [output for output, aval in zip(outputs, self.out_avals, strict=True) if has_tangent(aval)]

    def _cotangent_avals(self) -> list[Aval]:
        return [aval.strong() for aval in self._inexact(self.out_avals)]

    def _with_tangents(self, outputs: list[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        found = iter(tangents)
        return outputs, [next(found) if has_tangent(aval) else Zero(aval) for aval in self.out_avals]


def _key_in_axes(key: Hashable) -> tuple[Any, ...]:
    """Return `key` for the mapped axes around."""
    return (key, *axes_in_scope().items(), mesh_in_scope())


def _is_float0(var: Any) -> bool:
    return getattr(var.aval, "dtype", None) == dtypes.float0


def _restore_float0(function: Callable[..., list[Any]], inputs: Sequence[Any]) -> Callable[..., list[Any]]:
    """Return `function` with inputs and outputs of float0, which are bools in programs."""
    def wrapper(*values: Any) -> list[Any]:
        given = [np.zeros(value.shape, dtypes.float0) if _is_float0(var) else value
                 for value, var in zip(values, inputs, strict=True)]
        return [jax.numpy.zeros(output.shape, bool) if output.dtype == dtypes.float0 else output
                for output in function(*given)]
    return wrapper


NARROWER = {dtypes.int64: dtypes.int32, dtypes.float64: dtypes.float32, dtypes.complex128: dtypes.complex64}
"""jax's dtypes of Python's numbers, unless it is in its x64 mode."""


def as_typed_number(leaf: Any) -> Any:
    """Return jax's typed numbers, which have a dtype, as arrays; any other leaf unchanged."""
    return jax.numpy.asarray(leaf) if isinstance(leaf, int | float | complex) and hasattr(leaf, "dtype") and \
        not isinstance(leaf, np.generic | Integer) else leaf
