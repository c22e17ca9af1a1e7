"""Selection of elements: select_n and clamp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.ops.comparison import and_, gt, lt, or_
from fxgrad.engine.ops.families import broadcast_shapes, check_same_dtype, is_linear
from fxgrad.engine.ops.pointwise import align, align_batch, elementwise, is_same, operation, scalar_like, scalars_like
from fxgrad.engine.ops.snippets import Snippet, snippets
from fxgrad.engine.ops.structural import broadcast_to, repeated_scalar, unbroadcast
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ArgumentError, DTypeError

# --- select_n ---------------------------------------------------------------------------------------------


def _select_abstract(which: Aval, *cases: Aval) -> list[Aval]:
    if not cases:
        raise ArgumentError("select_n: no cases to choose from; give one array for each value of `which`")
    if which.dtype not in (dtypes.bool_, dtypes.int32):
        raise DTypeError(f"select_n: `which` must be bool or int32, got {which.dtype.name}; "
                         "compare (which != 0) or convert (which.astype('int32'))")
    if which.dtype == dtypes.bool_ and len(cases) > 2:
        raise DTypeError(f"select_n: a bool `which` chooses between 2 cases, got {len(cases)}; give an int32 one")
    check_same_dtype("select_n", *cases)
    shape = broadcast_shapes("select_n", which.shape, *(case.shape for case in cases))
    return [Aval(shape, cases[0].dtype, all(case.weak for case in cases))]


def _select_numpy(which: Any, *cases: Any) -> Any:
    if len(cases) == 2 and which.dtype == np.bool_:
        return np.where(which, cases[1], cases[0])
    # As in XLA, the last case covers every greater value and the first every smaller one.
    chosen = np.broadcast_to(cases[0], np.broadcast_shapes(which.shape, *(case.shape for case in cases)))
    for index, case in enumerate(cases[1:], 1):
        chosen = np.where(which >= index, case, chosen)
    return chosen


def _select_xla(lax: Any, which: Any, *cases: Any) -> list[Any]:
    if not which.shape:
        return [lax.select_n(which, *align(lax, *cases))]
    return [lax.select_n(*align(lax, which, *cases))]


def _select_jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    out = select_n(*primals)
    aval = aval_of(out)
    if all(type(tangent) is Zero for tangent in tangents[1:]):
        return [out], [Zero(aval)]
    chosen = [scalar_like(0, out) if type(tangent) is Zero else tangent for tangent in tangents[1:]]
    return [out], [broadcast_to(select_n(primals[0], *chosen), aval.shape)]


def _select_transpose(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    which, *cases = inputs
    cotangent = cotangents[0]
    zero = scalar_like(0, cotangent)
    results: list[Any] = [None]
    for place, case in enumerate(cases):
        alone = [cotangent if other == place else zero for other in range(len(cases))]
        results.append(unbroadcast(select_n(which, *alone), case.aval) if is_linear(case) else None)
    return results


def _select_batch(size: int, values: list[Any], axes: list[int | None]) -> tuple[list[Any], list[int]]:
    return [select_n(*align_batch(values, axes))], [0]


def _select_cost(which: Aval, *cases: Aval) -> Cost:
    outputs = _select_abstract(which, *cases)
    return Cost(0, total_bytes([which, *cases], outputs))


select_n_p = register(Primitive(
    name="select_n", abstract=_select_abstract, numpy=ArrayKernel(_select_numpy), xla=_select_xla,
    jvp=_select_jvp, transpose=_select_transpose, batch=_select_batch, cost=_select_cost))


@snippets.register(select_n_p)
def _select_snippet(avals: Sequence[Aval], params: dict[str, Any]) -> Snippet | None:
    """Return the choice between two cases; the layout of larger results depends on that of all operands."""
    if len(avals) != 3 or avals[0].dtype != dtypes.bool_:
        return None
    return Snippet("where({0}, {2}, {1})", {"where": np.where}, owned=all(aval.ndim < 2 for aval in avals),
                   of_numbers="({2} if {0} else {1})")


def select_n(which: Any, *cases: Any) -> Any:
    """Return elements of `cases[which]`: `which` is bool (False, True) or int32; the shapes broadcast."""
    return bind(select_n_p, which, *cases)[0]


def where(condition: Any, x: Any, y: Any) -> Any:
    """Return elements of `x` where `condition` holds and of `y` elsewhere; in rules, one may be a Python scalar."""
    x, y = scalars_like(x, y)
    return select_n(condition, y, x)


@rewrites.register(select_n_p)
def _select_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Remove a selection between equal cases, and one with a known condition."""
    which, *cases = inputs
    avals = [aval_of(value) for value in inputs]
    shape = broadcast_shapes("select_n", *(aval.shape for aval in avals))
    if any(aval.weak != avals[1].weak for aval in avals[1:]):
        return None
    if all(is_same(case, cases[0]) for case in cases):
        return [broadcast_to(cases[0], shape)]
    choice = repeated_scalar(known, which)
    if type(choice) is Literal:
        index = min(max(int(choice.value), 0), len(cases) - 1)
        return [broadcast_to(cases[index], shape)]
    return None


# --- clamp ------------------------------------------------------------------------------------------------


def _clamp_numpy(low: Any, x: Any, high: Any) -> Any:
    return np.minimum(np.maximum(low, x), high)


def _clamp_xla(lax: Any, low: Any, x: Any, high: Any) -> Any:
    if x.dtype == bool:  # some of XLA's emitters cannot clamp these
        return lax.min(lax.max(low, x), high)
    return lax.clamp(low, x, high)


def _mask_tangent(t: Any, condition: Any) -> Any:
    """Return `t` where `condition` holds, and 0 elsewhere."""
    return where(condition, t, 0.0)


clamp_p = elementwise(
    "clamp", 3, numpy=_clamp_numpy, accepts="ordered", public="clip",
    xla=_clamp_xla,
    # At a tie of x with a bound every part is 0, as in jax.
    tangents=[lambda t, out, low, x, high: _mask_tangent(t, and_(gt(low, x), lt(low, high))),
              lambda t, out, low, x, high: _mask_tangent(t, and_(gt(x, low), lt(x, high))),
              lambda t, out, low, x, high: _mask_tangent(t, or_(lt(high, x), lt(high, low)))])


def clamp(low: Any, x: Any, high: Any) -> Any:
    """Return `x` held between `low` and `high` (`high` where `low` is greater); shapes broadcast."""
    return operation(clamp_p)(low, x, high)
