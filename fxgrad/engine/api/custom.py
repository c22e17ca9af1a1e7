"""`custom_jvp` and `custom_vjp`: functions with user-defined derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Self

from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.api.custom_arguments import CustomVJPPrimal
from fxgrad.engine.api.custom_calls import CustomCall, WithRule, nondiff_positions, positional_arity
from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.cache_keys import cache_key, tree_key
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program_properties import memoize
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.guards import run_guarded
from fxgrad.engine.frontend.flat import LEAF, TracedCall, check_leaf, function_origin, leaf_aval
from fxgrad.engine.higher_order.custom import Flat, custom_jvp_p, custom_vjp_p, separate_tangents
from fxgrad.engine.ops import arithmetic
from fxgrad.engine.ops.structural import convert, instantiate_zeros
from fxgrad.engine.pickling import is_importable
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.interning import MAX_FUNCTIONS
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, TreeError


class _CapturedInputs:
    """The captured inputs of a custom function: they come first in its program and have no derivative."""

    primitive: Primitive

    def __init__(self, call: CustomCall, traced: TracedCall, owner: Any) -> None:
        call.forget_values()
        self.call, self.out_tree = call, traced.out_tree
        self.program, self.out_avals = traced.program, traced.program.out_avals
        self.captured = traced.program.captured
        self.owner = owner
        self.name = function_name(call.function)

        self._tell()

    def _tell(self) -> None:
        self._key = self.owner, self.program, tree_key(self.out_tree), *_static_keys(self.call)
        self._hash = hash(self._key)

    def __getstate__(self) -> dict[str, Any]:
        """Drop state that is valid in this process only, and the function, which unpickling finds through its owner."""
        call = {name: value for name, value in vars(self.call).items() if name != "function"}
        return {name: value for name, value in {**vars(self), "call": call}.items() if name not in ("_key", "_hash")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        call = CustomCall.__new__(CustomCall)
        vars(call).update(state["call"], function=state["owner"].fun)
        vars(self).update(state, call=call)
        self._tell()

    @classmethod
    def of(cls, call: CustomCall, traced: TracedCall, owner: Any) -> Self:
        """Return the rule of `call`; calls without static arguments that recorded the same program share one rule."""
        if call.static:
            return cls(call, traced, owner)
        rules = memoize(traced.program, "rules", lambda: BoundedDict(MAX_FUNCTIONS))
        key = owner, tree_key(call.structure), tree_key(traced.out_tree)
        found: Self | None = rules.get(key)
        return rules.add(key, cls(call, traced, owner)) if found is None else found

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def repeats_call(self, call: CustomCall) -> bool:
        """Return whether `call` equals the call of this rule in all but the differentiable arguments."""
        return self._key[3:] == _static_keys(call)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @contextmanager
    def running(self, primals: Sequence[Any], arguments: tuple[Any, ...]) -> Iterator[None]:
        """Have calls of the function on these arguments, in the block, return the output of the known program."""
        token = _running.set(_RunningRule(self, [*primals], None if self.call.static else arguments))
        try:
            yield
        finally:
            _running.reset(token)

    def flat_output(self, what: str, output: Any, like: str = "the output") -> list[Any]:
        """Return the leaves of a rule's output, which must match the function's output, converted to its dtypes."""
        leaves, structure = ([output], LEAF) if type(output) is Tracer else tree.flatten(output)
        if structure is not self.out_tree and structure != self.out_tree:
            raise TreeError(at_user_line(
                f"the {what} of {self.name} must return {like} in the structure that {self.name} returns "
                f"({self.out_tree}), and it returned {structure}"))
        who = f"the {what} of {self.name}"
        return [_check_value(leaf, aval, who, like)
                for leaf, aval in zip(leaves, self.out_avals, strict=True)]


def _static_keys(call: CustomCall) -> tuple[Any, ...]:
    """Return the cache keys of all that a rule receives as it is: metadata of containers, static arguments."""
    return tree_key(call.structure), *map(cache_key, call.nondiff_args)


def _check_value(value: Any, aval: Aval, who: str, what: str) -> Any:
    if type(value) is Zero:
        return value
    if not dtypes.is_inexact(aval.dtype) and what != "the output":
        return Zero(aval)
    if type(value) is Tracer and value.variable.aval == aval:
        return value
    given = check_leaf(value, who, lambda: what)
    if given.shape != aval.shape:
        raise ArgumentError(at_user_line(
            f"{who} returned {what} of shape {given.shape}, where {aval.strong()} is needed"))
    return convert(value, aval.dtype, aval.weak) if given != aval else value


class _CustomDerivative(WithRule):
    """The base of functions with a custom derivative: the function, and its non-differentiable arguments."""

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: int | Sequence[int] = (),
                 nondiff_argnames: str | Iterable[str] = ()) -> None:
        decorate: Callable[..., Any] = transformation(type(self).__name__, fun)
        decorate(self)
        self.fun = fun
        self.nondiff = nondiff_positions(fun, nondiff_argnums, nondiff_argnames)
        self._arity = positional_arity(fun)

    def _apply(self, kind: type[_CapturedInputs], defined: bool, define: str, args: tuple[Any, ...],
               kwargs: dict[str, Any]) -> Any:
        """Return the output of a call, recorded with a rule of this kind if its arguments are traced."""
        running = _running.get()
        if running is not None and running.is_same_call(self, args, kwargs):
            return running.output()
        call = self._call(defined, define, args, kwargs)
        if running is not None and running.repeats_call(self, call):
            return running.output()
        if not call.is_recorded():
            return self.fun(*call.args)
        leaves = call.leaves
        traced = call.trace()
        rule = kind.of(call, traced, self)
        outputs = bind(kind.primitive, *traced.captured, *leaves, program=traced.program, rule=rule)
        return tree.unflatten(traced.out_tree, outputs)

    def _call(self, defined: bool, define: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CustomCall:
        """Return the call with these arguments; raise `ArgumentError` if the rule is not `defined` yet."""
        what = type(self).__name__
        if not defined:
            name = function_name(self.fun)
            raise ArgumentError(at_user_line(
                f"the {what} function {name} has no rule. Write {name}.{define} after its definition"))
        return CustomCall(what, self.fun, self.nondiff, args, kwargs, self._arity)

    def __reduce__(self) -> Any:
        """Pickle by name if a module has it, as any function; else by its parts."""
        if is_importable(self):
            return getattr(self, "__qualname__")  # noqa: B009  (the function's, which no class declares)
        return object.__new__, (type(self),), self.__dict__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        bind_instance: Callable[..., Any] = functools.partial
        return self if instance is None else bind_instance(self, instance)


class custom_jvp(_CustomDerivative):  # noqa: N801  (a decorator, named as in jax)
    """A function with a user-defined forward derivative; reverse mode transposes it.

    `defjvp(rule)`: `rule(*nondiff_args, primals, tangents)` returns `(output, output tangent)`, both shaped like the
    output; it must be linear in the tangents and made of traceable operations. `defjvps(*rules)` takes one function for
    each argument, `rule(tangent, output, *primals)`, or None. Arguments at `nondiff_argnums` (or named in
    `nondiff_argnames`) are passed to the rule first and unchanged.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> @fxgrad.custom_jvp
    ... def clipped(x):
    ...     return fnp.clip(x, 0.0, 1.0)
    >>> @clipped.defjvp
    ... def clipped_jvp(primals, tangents):
    ...     return clipped(*primals), tangents[0]       # straight through
    >>> float(fxgrad.grad(clipped)(5.0))
    1.0
    """

    rule: Callable[..., Any] | None = None
    symbolic_zeros = False

    def defjvp(self, rule: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule; return it, so that this can be used as a decorator.

        With `symbolic_zeros` tangents known to be zero are `fxgrad.custom_derivatives.SymbolicZero` objects, which have
        a shape and a dtype and no value; the rule may return such tangents too.
        """
        self.rule, self.symbolic_zeros = rule, symbolic_zeros
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Set the rule as a sum of one part for each differentiable argument."""
        def rule(*arguments: Any) -> tuple[Any, Any]:
            *nondiff, primals, tangents = arguments
            first, rest = iter(nondiff), iter(primals)
            output = self(*[next(first) if position in self.nondiff else next(rest)
                            for position in range(len(nondiff) + len(primals))])
            parts = [part(tangent, output, *primals) for part, tangent in zip(rules, tangents, strict=True)
                     if part is not None]
            if not parts:
                return output, tree.map(lambda leaf: instantiate_zeros(Zero(aval_of(leaf))), output)
            total = functools.reduce(lambda a, b: tree.map(arithmetic.add, a, b), parts)
            return output, total
        self.rule = rule

    @hide_frames
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the function itself."""
        return self._apply(_UserJvp, self.rule is not None, "defjvp(rule)", args, kwargs)


class _RunningRule(NamedTuple):
    """A running jvp rule or forward pass and its primals, flat and (unless some are static) as arguments.

    Such a rule nearly always calls its own function on the primals to get the output. The program of that call is
    known, and with it the path that Python's control flow took, which a retrace without values could not follow.
    """

    rule: _CapturedInputs
    primals: list[Any]
    given: tuple[Any, ...] | None

    def is_same_call(self, owner: _CustomDerivative, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether `owner`, called with `args`, is the running rule's function on the same array objects."""
        given = self.given
        return self.rule.owner is owner and given is not None and not kwargs and len(args) == len(given) and all(
            type(a) is Tracer and a is b for a, b in zip(args, given, strict=True))

    def repeats_call(self, owner: _CustomDerivative, call: CustomCall) -> bool:
        """Return whether `call` is of the same function on the same values."""
        mine = self.primals[self.rule.captured:]
        return self.rule.owner is owner and self.rule.repeats_call(call) and \
            all(a is b for a, b in zip(mine, call.leaves, strict=True))

    def output(self) -> Any:
        """Evaluate the known program: return the output of the function."""
        rule = self.rule
        outputs = bind(rule.primitive, *self.primals, program=rule.program, rule=rule)
        return tree.unflatten(rule.out_tree, outputs)


_running: ContextVar[_RunningRule | None] = ContextVar("running_rule", default=None)


class _UserJvp(_CapturedInputs):
    """The rule of one call of a `custom_jvp` function."""

    primitive = custom_jvp_p

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[list[Any], list[Any]]:
        """Return the outputs and tangents of the user's rule for the explicit inputs; captured ones have no tangent."""
        given = tangents[self.captured:]
        zeros = [tangent if type(tangent) is Zero and self.owner.symbolic_zeros else None for tangent in given]
        moving = [instantiate_zeros(tangent) for tangent, zero in zip(given, zeros, strict=True) if zero is None]
        half, name = len(self.out_avals), f"the jvp rule of {self.name}"
        outputs, _ = run_guarded(
            functools.partial(self._run_rule, len(primals), zeros), [*primals, *moving],
            function_origin(self.owner.rule), name, functools.partial(separate_tangents, len(moving), half, name))
        return outputs[:half], outputs[half:]

    def _run_rule(self, count: int, zeros: Sequence[Zero | None], *values: Any) -> tuple[list[Any], None]:
        """Call the user's rule on containers."""
        call, rule, moving = self.call, self.owner.rule, iter(values[count:])
        tangents = [next(moving) if zero is None else zero for zero in zeros]
        primals = call.dynamic(values[self.captured:count])
        with self.running(values[:count], primals):
            result = rule(*call.nondiff_args, primals, call.dynamic(tangents))
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise ArgumentError(at_user_line(
                f"the jvp rule of {self.name} must return a pair (output, output tangent), "
                f"and it returned a {type(result).__name__}"))
        return [*self.flat_output("jvp rule", result[0]),
                *self.flat_output("jvp rule", result[1], "the output tangent")], None


class custom_vjp(_CustomDerivative):  # noqa: N801  (a decorator, named as in jax)
    """A function with a user-defined reverse derivative.

    `defvjp(forward, backward)`: `forward(*args)` returns `(output, residuals)`, residuals being any container of
    arrays; `backward(*nondiff_args, residuals, cotangent)` returns a tuple with a cotangent for each differentiable
    argument (None for zero). Forward mode (`jvp`, `hessian`) transposes `backward`, which must be linear in the
    cotangent and made of transposable operations; an error reports where it is not.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> @fxgrad.custom_vjp
    ... def safe_log(x):
    ...     return fnp.log(x)
    >>> safe_log.defvjp(lambda x: (fnp.log(x), x), lambda x, cotangent: (cotangent / (x + 1e-3),))
    >>> round(float(fxgrad.grad(safe_log)(0.0)))
    1000
    """

    forward: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None
    # For the library's own functions whose backward pass cannot be transposed: `tangents(residuals, tangents)` returns
    # the tangent of the output, from those of the arguments in their structures, with `Zero` objects among the leaves.
    tangents: Callable[..., Any] | None = None
    symbolic_zeros = False

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any], symbolic_zeros: bool = False,
               optimize_remat: bool = False) -> None:
        """Set the two halves of the rule.

        With `symbolic_zeros` the forward pass gets each array as a `fxgrad.custom_derivatives.CustomVJPPrimal`, whose
        `perturbed` is True if its derivative is needed, and the backward pass gets `SymbolicZero` objects for
        cotangents known to be zero. `optimize_remat` is jax's and has no effect: under `checkpoint` the forward pass
        runs again only for the residuals of the backward pass, and the output is always that of `forward`.
        """
        del optimize_remat
        self.forward, self.backward, self.symbolic_zeros = forward, backward, symbolic_zeros

    @hide_frames
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the function itself."""
        return self._apply(_UserVjp, self.forward is not None, "defvjp(forward, backward)", args, kwargs)


class _UserVjp(_CapturedInputs):
    """The rule of one call of a `custom_vjp` function."""

    primitive = custom_vjp_p

    def forward(self, primals: Flat, moving: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:
        """Run the user's forward pass; only one with `symbolic_zeros` receives the mask `moving`."""
        marks = tuple(moving[self.captured:]) if self.owner.symbolic_zeros else None
        results, structure = run_guarded(functools.partial(self._run_forward_rule, marks), primals,
                                     function_origin(self.owner.forward), f"the forward pass of {self.name}")
        count = len(self.out_avals)
        return results[:count], results[count:], structure

    def _run_forward_rule(self, marks: Sequence[bool] | None, *values: Any) -> tuple[list[Any], Any]:
        """Call the user's forward pass on containers."""
        given: Sequence[Any] = values[self.captured:]
        if marks is not None:
            given = [CustomVJPPrimal(value, mark) for value, mark in zip(given, marks, strict=True)]
        arguments = self.call.arguments(given)
        with self.running(values, tuple(arguments)):
            result = self.owner.forward(*arguments)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise ArgumentError(at_user_line(
                f"the forward pass of {self.name} must return a pair (output, residuals), "
                f"and it returned a {type(result).__name__}"))
        residuals, structure = tree.flatten(result[1])
        for residual in residuals:
            if leaf_aval(residual) is None:
                check_leaf(residual, f"the forward pass of {self.name}", lambda: "a residual")
        return [*self.flat_output("forward pass", result[0]), *residuals], structure

    def backward(self, structure: Any, residuals: Flat, cotangents: Flat) -> list[Any]:
        """Run the user's backward pass."""
        zeros = [cotangent if type(cotangent) is Zero and self.owner.symbolic_zeros else None
                 for cotangent in cotangents]
        arriving = [instantiate_zeros(cotangent) for cotangent, zero in zip(cotangents, zeros, strict=True)
                    if zero is None]
        results, _ = run_guarded(functools.partial(self._run_backward_rule, structure, len(residuals), zeros),
                             [*residuals, *arriving], function_origin(self.owner.backward),
                             f"the backward pass of {self.name}")
        return [*[None] * self.captured, *results]

    def _run_backward_rule(self, structure: Any, count: int, zeros: Sequence[Zero | None], *values: Any,
                           ) -> tuple[list[Any], None]:
        """Call the user's backward pass on containers."""
        call, arriving = self.call, iter(values[count:])
        cotangent = tree.unflatten(self.out_tree, [next(arriving) if zero is None else zero for zero in zeros])
        saved = tree.unflatten(structure, values[:count])
        result = self.owner.backward(*call.nondiff_args, saved, cotangent)
        arguments = call.dynamic(call.leaves)
        if not isinstance(result, tuple | list) or len(result) != len(arguments):
            raise ArgumentError(at_user_line(
                f"the backward pass of {self.name} must return a tuple with one cotangent for each of its "
                f"{len(arguments)} differentiable arguments, and it returned "
                f"{f'{len(result)} of them' if isinstance(result, tuple | list) else f'a {type(result).__name__}'}"))
        found: list[Any] = []
        for given, argument in zip(result, arguments, strict=True):
            found.extend(self._argument_cotangents(given, argument))  # the leaves of `argument` are avals
        return found, None

    @property
    def gives_tangents(self) -> bool:
        """Whether the function has a rule of tangents."""
        return self.owner.tangents is not None

    def tangents(self, structure: Any, residuals: Flat, tangents: Flat) -> list[Any]:
        """Run the function's rule of tangents."""
        given = tangents[self.captured:]  # captured inputs are differentiated through the function itself
        zeros = [tangent if type(tangent) is Zero else None for tangent in given]
        moving = [tangent for tangent in given if type(tangent) is not Zero]
        results, _ = run_guarded(functools.partial(self._run_tangent_rule, structure, len(residuals), zeros),
                                 [*residuals, *moving], function_origin(self.owner.tangents),
                                 f"the rule of tangents of {self.name}")
        return results

    def _run_tangent_rule(self, structure: Any, count: int, zeros: Sequence[Zero | None], *values: Any,
                          ) -> tuple[list[Any], None]:
        """Call the function's rule of tangents on containers."""
        moving = iter(values[count:])
        tangents = self.call.dynamic([next(moving) if zero is None else zero for zero in zeros])
        result = self.owner.tangents(tree.unflatten(structure, values[:count]), tangents)
        return self.flat_output("rule of tangents", result, "the output tangent"), None

    def _argument_cotangents(self, given: Any, argument: Any) -> list[Any]:
        """Return the leaves of a cotangent; None expands to one zero for each leaf of `argument`."""
        structure: Any
        leaves, structure = tree.flatten(argument)
        values, actual = tree.flatten(given, is_leaf=tree.is_none)
        if structure != actual:
            counts = _leaf_counts(actual, argument) or [1] * len(leaves)
            if len(values) != len(counts) or any(count != 1 for value, count in zip(values, counts, strict=True)
                                                 if value is not None):
                raise TreeError(at_user_line(
                    f"the backward pass of {self.name} must return a cotangent like the argument ({structure}), and it "
                    f"returned {actual}"))
            values = [value for value, count in zip(values, counts, strict=True) for _ in range(count)]
        return [None if value is None else _check_value(value, leaf, f"the backward pass of {self.name}",
                                                        "a cotangent")
                for value, leaf in zip(values, leaves, strict=True)]


def _leaf_counts(structure: Any, container: Any) -> list[int] | None:
    """Return the number of leaves of `container` below each leaf of `structure`; None if the containers differ."""
    try:
        return [len(tree.leaves(part)) for part in structure.flatten_up_to(container)]
    except ValueError:
        return None
