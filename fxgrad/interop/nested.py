"""Equations of jax's that hold jaxprs: calls, loops, branches, checkpoints and solvers become ours."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive, jaxpr_as_fun, primitives
from jax.sharding import NamedSharding

from fxgrad.engine.api import checkpoint_policies as policies
from fxgrad.engine.core import primitive as ours
from fxgrad.engine.core.program import Program
from fxgrad.engine.derivation.derive import Derived
from fxgrad.engine.higher_order.branch import bind_cond
from fxgrad.engine.higher_order.call import jit_call_p, named_call_p
from fxgrad.engine.higher_order.checkpoint import checkpoint_p, recompute_p
from fxgrad.engine.higher_order.custom import ByValue
from fxgrad.engine.higher_order.saving import Policy
from fxgrad.engine.higher_order.scan import bind_scan
from fxgrad.engine.higher_order.solve import linear_solve_p
from fxgrad.engine.higher_order.storing import HOST
from fxgrad.engine.higher_order.while_loop import bind_while
from fxgrad.engine.ops.arithmetic import name_p
from fxgrad.engine.parallel.shardings import constrain
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.interop.custom import jaxpr_name
from fxgrad.interop.importing import as_closed_jaxpr, import_nested, import_rule, inline_jaxpr

# --- calls ------------------------------------------------------------------------------------------------------

SMALL = 8
"""Jitted functions of this many equations or fewer are inlined."""
_OF_JAX = os.path.dirname(jax.__file__)


@import_rule("jit", "pjit", made=jit_call_p)
def _jit(equation: JaxprEqn, *operands: Any) -> list[Any]:
    """Import a jitted function as a `jit_call`, or a `named_call` if it is jax's own.

    A small one, or one with `inline=True`, is inlined. Its shardings become constraints on inputs and outputs. Donation
    by an inner function is left out: it does not affect values.
    """
    params = equation.params
    inner, inline = params["jaxpr"], params.get("inline", False)
    operands = (*_constrain_values(operands, params.get("in_shardings")),)
    if equation_count(inner) <= SMALL or str(getattr(inline, "value", inline)) in ("True", "jax_early", "jax_late"):
        return _constrain_values(inline_jaxpr(inner, operands), params.get("out_shardings"))
    program, constants = import_nested(inner)
    is_jaxs_own = _OF_JAX in str(as_closed_jaxpr(inner).jaxpr.debug_info.func_src_info)
    outputs = bind(named_call_p if is_jaxs_own else jit_call_p, *constants, *operands, program=program,
                   name=params["name"])
    return _constrain_values(outputs, params.get("out_shardings"))


def _constrain_values(values: Sequence[Any], shardings: Sequence[Any] | None) -> list[Any]:
    if not any(isinstance(sharding, NamedSharding) for sharding in shardings or ()):
        return [*values]
    return [constrain("jit", value, sharding, aval_of(value).shape) if isinstance(sharding, NamedSharding) else value
            for value, sharding in zip(values, shardings or (), strict=True)]


def equation_count(jaxpr: Any) -> int:
    """Return the number of equations, inner jaxprs included."""
    count = 0
    for equation in jaxpr.eqns:
        count += 1
        for value in equation.params.values():
            count += sum(equation_count(part) for part in (value if isinstance(value, tuple | list) else [value])
                         if hasattr(part, "eqns"))
    return count


@import_rule("closed_call", "core_call", "core_closed_call")
def _call(equation: JaxprEqn, *operands: Any) -> list[Any]:
    return inline_jaxpr(equation.params["call_jaxpr"], operands)


# --- loops and branches -----------------------------------------------------------------------------------------


@import_rule("scan")
def _scan(equation: JaxprEqn, *operands: Any) -> list[Any]:
    params = equation.params
    if "num_consts" in params:
        count, carry = params["num_consts"], params["num_carry"]
    else:  # from jax 0.12 on a container of constants, carry and scanned inputs
        count, carry, _ = (len([*part.vals]) for part in params["ft_in"].unpack())
    program, constants = import_nested(params["jaxpr"])
    return bind_scan(program, [*constants, *operands[:count]], operands[count:count + carry], operands[count + carry:],
                     params["length"], params["reverse"], params["unroll"])


@import_rule("while")
def _while(equation: JaxprEqn, *operands: Any) -> list[Any]:
    params = equation.params
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    to_body = [*operands[first:second]]
    goes_on, step = params["cond_jaxpr"], params["body_jaxpr"]
    if goes_on.out_avals[0].shape:
        goes_on, step = _loop_while_any(goes_on, step, first)
        to_body = [*operands[:second]]
    condition, asked = import_nested(goes_on)
    body, given = import_nested(step)
    return bind_while(condition, [*asked, *operands[:first]], body, [*given, *to_body], operands[second:])


def _loop_while_any(condition: ClosedJaxpr, body: ClosedJaxpr, count: int) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """Return the condition and body of a loop that jax batched: it runs while any example does, and updates only these.

    The body gets the `count` constants of the condition before its own.
    """
    asked, moved = jaxpr_as_fun(condition), jaxpr_as_fun(body)
    own = len(body.in_avals) - len(body.out_avals)

    def any_goes_on(*values: Any) -> Any:
        return asked(*values)[0].any()

    def step(*values: Any) -> list[Any]:
        to_condition, to_body, carry = values[:count], values[count:count + own], values[count + own:]
        goes_on, = asked(*to_condition, *carry)
        axes = range(goes_on.ndim)
        return [jax.lax.select(jax.lax.broadcast_in_dim(goes_on, new.shape, axes), new, old)
                for new, old in zip(moved(*to_body, *carry), carry, strict=True)]

    return (jax.make_jaxpr(any_goes_on)(*condition.in_avals),
            jax.make_jaxpr(step)(*condition.in_avals[:count], *body.in_avals))


@import_rule("cond")
def _cond(equation: JaxprEqn, index: Any, *operands: Any) -> list[Any]:
    return bind_cond(index, [Derived(*import_nested(branch), None) for branch in equation.params["branches"]], operands)


@import_rule("name")
def _name(equation: JaxprEqn, operand: Any) -> list[Any]:
    return bind(name_p, operand, name=equation.params["name"])


# --- checkpoints ------------------------------------------------------------------------------------------------


@import_rule("remat2", "checkpoint", "remat", made=checkpoint_p)
def _checkpoint(equation: JaxprEqn, *operands: Any) -> list[Any]:
    """Import a checkpoint; in a derivative that jax took already (`differentiated`), recomputation is kept as well."""
    params = equation.params
    program, constants = import_nested(params["jaxpr"])
    name = jaxpr_name(params["jaxpr"])
    if params["differentiated"]:
        if params["prevent_cse"]:
            return bind(recompute_p, *constants, *operands, program=program, name=name)
        return inline_jaxpr(params["jaxpr"], operands)
    settings: dict[str, Any] = {} if params["policy"] is None else {"policy": _policy(params["policy"])}
    settings |= {} if params["prevent_cse"] else {"prevent_cse": False}
    return bind(checkpoint_p, *constants, *operands, program=program, name=name, **settings)


def _policy(policy: Any) -> Any:
    """Return a policy of jax's as ours: known ones by name, any other is called with jax's primitives."""
    for name in ("everything_saveable", "nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable"):
        if policy == getattr(jax.checkpoint_policies, name):
            known: Policy = getattr(policies, name)
            return known
    return JaxPolicy(policy)


class JaxPolicy(ByValue):
    """A policy of jax's; it is called with jax's primitives of the same names as ours."""

    __slots__ = ()

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)

    @property
    def name(self) -> str:
        """The name of the policy."""
        return getattr(self._key[0], "__name__", None) or type(self._key[0]).__name__

    def __call__(self, primitive: ours.Primitive, *avals: Any, **params: Any) -> bool | str:
        """Return whether to save results of `primitive`; policies of names do not save primitives that jax lacks.

        Residuals that jax offloads are offloaded.
        """
        known = getattr(primitives, f"{primitive.name}_p", None)
        answer = self._key[0](Primitive(primitive.name) if known is None else known, *avals, **params)
        # Beside bools there are classes of answers, only one of which means no.
        return HOST if hasattr(answer, "dst") else bool(answer) and not type(answer).__name__.startswith("Recompute")


# --- solvers ----------------------------------------------------------------------------------------------------


@import_rule("custom_linear_solve")
def _linear_solve(equation: JaxprEqn, *operands: Any) -> list[Any]:
    lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
    given: list[Sequence[Any]] = []
    start = 0
    for length in lengths:
        given.append(operands[start:start + length])
        start += length
    programs: list[Program | None] = []
    constants: list[Sequence[Any]] = []
    for part in ("matvec", "solve", "vecmat", "transpose_solve"):
        jaxpr = getattr(jaxprs, part)
        program, own = (None, []) if jaxpr is None else import_nested(jaxpr)
        programs.append(program)
        constants.append(() if jaxpr is None else [*own, *given[jaxprs._fields.index(part)]])
    return bind(linear_solve_p, *(value for part in constants for value in part), *operands[start:],
                programs=tuple(programs), counts=tuple(map(len, constants)))
