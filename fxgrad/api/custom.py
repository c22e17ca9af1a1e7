"""Functions with derivatives that their author gives: `custom_jvp` and `custom_vjp`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from fxgrad import dtypes, tree
from fxgrad.api.arguments import transformation
from fxgrad.control.custom import Flat, custom_jvp_p, custom_vjp_p
from fxgrad.control.flat import (
    Traced,
    check_leaf,
    leaf_aval,
    nth,
    origin_of,
    parameter_names,
    refuse_repeated_effects,
    trace_flat,
    with_static,
)
from fxgrad.core.avals import Aval
from fxgrad.core.consultation import consult
from fxgrad.core.symbolic import Zero
from fxgrad.core.tape import aval_of, bind, innermost_for
from fxgrad.core.told import told
from fxgrad.errors import ArgumentError, TreeError, at_user_line, function_name
from fxgrad.ops import arithmetic
from fxgrad.ops.space import convert, instantiate
from fxgrad.tracebacks import boundary


class _Call:
    """One call of a function with a custom rule: its flat inputs, and the Python call that they stand for."""

    def __init__(self, what: str, function: Callable[..., Any], nondiff: Sequence[int], args: tuple[Any, ...],
                 kwargs: dict[str, Any], arity: int | None) -> None:
        self.what, self.function = what, function
        self.args = args if len(args) == arity and not kwargs else _positional(function, args, kwargs)
        self.static = {number % len(self.args) for number in nondiff if -len(self.args) <= number < len(self.args)}
        dynamic = [arg for position, arg in enumerate(self.args) if position not in self.static]
        self.structure: Any
        self.leaves, self.structure = tree.flatten(dynamic)
        for index, leaf in enumerate(self.leaves):
            if leaf_aval(leaf) is None:
                check_leaf(leaf, what, nth(self.names, index))

    def names(self) -> list[str]:
        """The names of the flat inputs."""
        roots = parameter_names(self.function, len(self.args))
        return [name for position, arg in enumerate(self.args) if position not in self.static
                for name in tree.leaf_names(arg, roots[position])]

    @property
    def nondiff_args(self) -> list[Any]:
        """The arguments that rules receive first and as they are."""
        return [arg for position, arg in enumerate(self.args) if position in self.static]

    def arguments(self, leaves: Flat) -> list[Any]:
        """All positional arguments, with `leaves` in the places of the flat inputs."""
        return with_static(self.args, self.static, tree.unflatten(self.structure, leaves))

    def dynamic(self, leaves: Flat) -> tuple[Any, ...]:
        """The differentiable arguments alone."""
        return tuple(tree.unflatten(self.structure, leaves))

    def trace(self) -> Traced:
        """The program of the plain function."""
        avals = [aval_of(leaf) for leaf in self.leaves]
        traced = trace_flat(lambda *leaves: self.function(*self.arguments(leaves)), avals, self.what, self.function,
                            names=self.names, values=self.leaves)
        refuse_repeated_effects(traced, self.what)
        self._forget_values()
        return traced

    def _forget_values(self) -> None:
        """Rules live as long as the programs they are in, so they keep types in the places of arrays."""
        self.leaves = [aval_of(leaf) for leaf in self.leaves]
        self.args = tuple(self.arguments(self.leaves))

    def is_recorded(self) -> bool:
        """Whether a transformation is under way that concerns the arguments."""
        return innermost_for(self.leaves) is not None


def _positional(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Keyword arguments and defaults as positional ones, since rules receive positional arguments."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except ValueError:
        return args
    except TypeError as error:
        raise ArgumentError(at_user_line(f"{function_name(function)}: {error}")) from None
    bound.apply_defaults()
    if bound.kwargs:
        raise ArgumentError(at_user_line(
            f"{function_name(function)} has a custom derivative and was called with keyword-only arguments "
            f"({', '.join(bound.kwargs)}), which rules cannot receive. Pass them by position"))
    return bound.args


def _arity(function: Callable[..., Any]) -> int | None:
    """The number of arguments, if they can all be given by position."""
    try:
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return None  # some builtins have no signature
    by_position = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return len(kinds) if all(kind in by_position for kind in kinds) else None


def _nondiff(function: Callable[..., Any], argnums: int | Sequence[int], argnames: str | Iterable[str],
             ) -> tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    parameters = list(inspect.signature(function).parameters) if names else []
    for name in names:
        if name not in parameters:
            raise ArgumentError(at_user_line(
                f"nondiff_argnames names {name!r}, and the parameters of {function_name(function)} are "
                f"{', '.join(parameters)}"))
    return tuple(sorted({*numbers, *map(parameters.index, names)}))


class _CapturedInputs:
    """The inputs that a custom function closed over come first in its program and have no derivative."""

    def __init__(self, call: _Call, traced: Traced, owner: Any) -> None:
        self.call, self.out_tree = call, traced.out_tree
        self.program, self.out_avals = traced.program, traced.program.out_avals
        self.captured = traced.program.captured
        self.owner = owner
        self.name = function_name(call.function)

        self._key = owner, traced.program, call.structure, *map(told, call.nondiff_args)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def is_called_again(self, call: _Call) -> bool:
        """Whether `call` is as the one that this is about, but for the differentiable arguments."""
        return self._key[2:] == (call.structure, *map(told, call.nondiff_args))

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def flat_output(self, what: str, output: Any, like: str = "the output") -> list[Any]:
        """Leaves of an output of a rule, which must be like that of the function; converted to its dtypes."""
        leaves, structure = tree.flatten(output)
        if structure != self.out_tree:
            raise TreeError(at_user_line(
                f"the {what} of {self.name} must return {like} in the structure that {self.name} returns "
                f"({self.out_tree}), and it returned {structure}"))
        return [_checked(leaf, aval, f"the {what} of {self.name}", like)
                for leaf, aval in zip(leaves, self.out_avals, strict=True)]


def _checked(value: Any, aval: Aval, who: str, what: str) -> Any:
    if type(value) is Zero:
        return value
    if not dtypes.is_inexact(aval.dtype) and what != "the output":
        return Zero(aval)
    given = check_leaf(value, who, lambda: what)
    if given.shape != aval.shape:
        raise ArgumentError(at_user_line(
            f"{who} returned {what} of shape {given.shape}, where {aval.strong()} is needed"))
    return convert(value, aval.dtype, aval.weak) if given != aval else value


class _WithRule:
    """What functions with a custom derivative share: the function, and which arguments rules receive as they are."""

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: int | Sequence[int] = (),
                 nondiff_argnames: str | Iterable[str] = ()) -> None:
        decorate: Callable[..., Any] = transformation(type(self).__name__, fun)
        decorate(self)
        self.fun = fun
        self.nondiff = _nondiff(fun, nondiff_argnums, nondiff_argnames)
        self._arity = _arity(fun)

    def _call(self, defined: bool, define: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        """The call with these arguments; raises `ArgumentError` if the rule was not `defined` yet."""
        what, name = type(self).__name__, function_name(self.fun)
        if not defined:
            raise ArgumentError(at_user_line(
                f"the {what} function {name} has no rule. Write {name}.{define} after its definition"))
        return _Call(what, self.fun, self.nondiff, args, kwargs, self._arity)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        bind_instance: Callable[..., Any] = functools.partial
        return self if instance is None else bind_instance(self, instance)


class custom_jvp(_WithRule):  # noqa: N801  (a decorator, named as in jax)
    """A function whose forward derivative its author gives; reverse mode follows by transposition.

    `defjvp(rule)`: `rule(*nondiff_args, primals, tangents)` returns `(output, output tangent)`, both
    shaped like the output; it must be linear in the tangents and made of traceable operations. `defjvps(*rules)`
    takes one function for each argument, `rule(tangent, output, *primals)`, or None. Arguments at
    `nondiff_argnums` (or named in `nondiff_argnames`) are passed to the rule first and as they are.

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
        """Sets the rule; returns it, so that this can be used as a decorator.

        With `symbolic_zeros` tangents that are known to be zero are `fxgrad.custom_derivatives.SymbolicZero` objects,
        which have a shape and a dtype and no value; the rule may return such tangents too.
        """
        self.rule, self.symbolic_zeros = rule, symbolic_zeros
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Sets the rule as a sum of one part for each differentiable argument."""
        def rule(*arguments: Any) -> tuple[Any, Any]:
            *nondiff, primals, tangents = arguments
            output = self(*self._merge(nondiff, primals))
            parts = [part(tangent, output, *primals) for part, tangent in zip(rules, tangents, strict=True)
                     if part is not None]
            if not parts:
                return output, tree.map(lambda leaf: instantiate(Zero(aval_of(leaf))), output)
            total = functools.reduce(lambda a, b: tree.map(arithmetic.add, a, b), parts)
            return output, total
        self.rule = rule

    def _merge(self, nondiff: Sequence[Any], primals: Sequence[Any]) -> list[Any]:
        first, rest = iter(nondiff), iter(primals)
        return [next(first) if position in self.nondiff else next(rest)
                for position in range(len(nondiff) + len(primals))]

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The output of the function itself."""
        call = self._call(self.rule is not None, "defjvp(rule)", args, kwargs)
        running = _running.get()
        if running is not None and running.is_called_again(self, call):
            known = running.rule
            outputs = bind(custom_jvp_p, *running.primals, program=known.program, rule=known)
            return tree.unflatten(known.out_tree, outputs)
        if not call.is_recorded():
            return self.fun(*call.args)
        leaves = call.leaves
        traced = call.trace()
        rule = _UserJvp(call, traced, self)
        outputs = bind(custom_jvp_p, *traced.captured, *leaves, program=traced.program, rule=rule)
        return tree.unflatten(traced.out_tree, outputs)


class _Running(NamedTuple):
    """The jvp rule under way and the primals that it was given.

    Such a rule nearly always calls its own function on them for the output. The program is known then, and with
    it the path that Python's control flow took, which could not be taken again without values.
    """

    rule: _UserJvp
    primals: list[Any]

    def is_called_again(self, owner: custom_jvp, call: _Call) -> bool:
        """Whether `call` is of the same function on the same values."""
        mine = self.primals[self.rule.captured:]
        return self.rule.owner is owner and self.rule.is_called_again(call) and \
            all(a is b for a, b in zip(mine, call.leaves, strict=True))


_running: ContextVar[_Running | None] = ContextVar("running_jvp_rule", default=None)


class _UserJvp(_CapturedInputs):
    """The rule of one call of a `custom_jvp` function."""

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[list[Any], list[Any]]:
        """What the user's rule gives for the explicit inputs; those that are captured stand still."""
        given = tangents[self.captured:]
        zeros = [tangent if type(tangent) is Zero and self.owner.symbolic_zeros else None for tangent in given]
        moving = [instantiate(tangent) for tangent, zero in zip(given, zeros, strict=True) if zero is None]
        outputs, _ = consult(functools.partial(self._called, len(primals), zeros), [*primals, *moving],
                             origin_of(self.owner.rule), f"the jvp rule of {self.name}")
        half = len(self.out_avals)
        return outputs[:half], outputs[half:]

    def _called(self, count: int, zeros: Sequence[Zero | None], *values: Any) -> tuple[list[Any], None]:
        """Calls the user's rule on containers."""
        call, rule, moving = self.call, self.owner.rule, iter(values[count:])
        tangents = [next(moving) if zero is None else zero for zero in zeros]
        token = _running.set(_Running(self, [*values[:count]]))
        try:
            result = rule(*call.nondiff_args, call.dynamic(values[self.captured:count]), call.dynamic(tangents))
        finally:
            _running.reset(token)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise ArgumentError(at_user_line(
                f"the jvp rule of {self.name} must return a pair (output, output tangent), "
                f"and it returned a {type(result).__name__}"))
        return [*self.flat_output("jvp rule", result[0]),
                *self.flat_output("jvp rule", result[1], "the output tangent")], None


class custom_vjp(_WithRule):  # noqa: N801  (a decorator, named as in jax)
    """A function whose reverse derivative its author gives.

    `defvjp(forward, backward)`: `forward(*args)` returns `(output, residuals)`, residuals being any container of
    arrays; `backward(*nondiff_args, residuals, cotangent)` returns a tuple with a cotangent for each differentiable
    argument (None for zero). Forward mode (`jvp`, `hessian`) is derived by transposing `backward` where it is
    linear in the cotangent and made of transposable operations; the error says so where it is not.

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

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Sets the two halves of the rule."""
        self.forward, self.backward = forward, backward

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The output of the function itself."""
        call = self._call(self.forward is not None, "defvjp(forward, backward)", args, kwargs)
        if not call.is_recorded():
            return self.fun(*call.args)
        leaves = call.leaves
        traced = call.trace()
        rule = _UserVjp(call, traced, self)
        outputs = bind(custom_vjp_p, *traced.captured, *leaves, program=traced.program, rule=rule)
        return tree.unflatten(traced.out_tree, outputs)


class _UserVjp(_CapturedInputs):
    """The rule of one call of a `custom_vjp` function."""

    def forward(self, primals: Flat, moving: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:
        """What the user's forward pass gives, which is the same whatever is `moving`."""
        del moving
        results, structure = consult(self._passed_forward, primals, origin_of(self.owner.forward),
                                     f"the forward pass of {self.name}")
        count = len(self.out_avals)
        return results[:count], results[count:], structure

    def _passed_forward(self, *values: Any) -> tuple[list[Any], Any]:
        """Calls the user's forward pass on containers."""
        result = self.owner.forward(*self.call.arguments(values[self.captured:]))
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
        """What the user's backward pass gives."""
        count = len(residuals)
        results, _ = consult(functools.partial(self._passed_back, structure, count), [*residuals, *cotangents],
                             origin_of(self.owner.backward), f"the backward pass of {self.name}")
        return [*[None] * self.captured, *results]

    def _passed_back(self, structure: Any, count: int, *values: Any) -> tuple[list[Any], None]:
        """Calls the user's backward pass on containers."""
        call = self.call
        cotangent = tree.unflatten(self.out_tree, values[count:])
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

    def _argument_cotangents(self, given: Any, argument: Any) -> list[Any]:
        leaves, structure = tree.flatten(argument)
        if given is None:
            return [None] * len(leaves)
        values, actual = tree.flatten(given, is_leaf=tree.is_none)
        if len(values) != len(leaves):
            raise TreeError(at_user_line(
                f"the backward pass of {self.name} must return a cotangent like the argument ({structure}), and it "
                f"returned {actual}"))
        return [None if value is None else _checked(value, leaf, f"the backward pass of {self.name}",
                                                    "a cotangent")
                for value, leaf in zip(values, leaves, strict=True)]
