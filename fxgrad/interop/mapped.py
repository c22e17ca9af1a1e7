"""jax's operations over mapped axes: sums, extrema, permutations and gathers become the collectives of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.extend.core import JaxprEqn

from fxgrad.engine.ops.reductions import reduce_max, reduce_min
from fxgrad.engine.ops.structural import reduce_sum
from fxgrad.engine.parallel.gathers import psum_scatter_p
from fxgrad.interop.importing import import_rule
from fxgrad.lax import collectives
from fxgrad.lax.ragged_exchange import ragged_all_to_all


def _groups(params: dict[str, Any]) -> dict[str, Any]:
    return {"axis_index_groups": params.get("axis_index_groups")}


def _reduction(name: str, along: Callable[[Any, tuple[int, ...]], Any], over: Callable[..., Any]) -> None:
    """Axes are those of the array, as numbers, or mapped ones, as names."""
    def rule(equation: JaxprEqn, *operands: Any) -> list[Any]:
        axes: Sequence[Any] = equation.params["axes"]
        numbers = tuple(axis for axis in axes if isinstance(axis, int))
        names = tuple(axis for axis in axes if not isinstance(axis, int))
        reduced = [along(operand, numbers) if numbers else operand for operand in operands]
        return [over(operand, names, **_groups(equation.params)) if names else operand for operand in reduced]

    import_rule(name)(rule)


_reduction("psum", reduce_sum, collectives.psum)
_reduction("pmax", reduce_max, collectives.pmax)
_reduction("pmin", reduce_min, collectives.pmin)


def axis_names_of_params(params: dict[str, Any]) -> Any:
    """Return the name or names of the axis that a collective of jax's reduces or moves over."""
    name = params["axis_name"]
    return name[0] if isinstance(name, tuple) and len(name) == 1 else name


@import_rule("ppermute")
def _ppermute(equation: JaxprEqn, *operands: Any) -> list[Any]:
    return [collectives.ppermute(operand, axis_names_of_params(equation.params), equation.params["perm"])
            for operand in operands]


@import_rule("all_gather")
def _all_gather(equation: JaxprEqn, *operands: Any) -> list[Any]:
    params = equation.params
    return [collectives.all_gather(operand, axis_names_of_params(params), axis=params["all_gather_dimension"],
                                   tiled=params["tiled"],
                                   **_groups(params)) for operand in operands]


@import_rule("reduce_scatter", made=psum_scatter_p)
def _reduce_scatter(equation: JaxprEqn, *operands: Any) -> list[Any]:
    params = equation.params
    return [collectives.psum_scatter(operand, axis_names_of_params(params),
                                     scatter_dimension=params["scatter_dimension"],
                                     tiled=params["tiled"], **_groups(params)) for operand in operands]


@import_rule("all_to_all")
def _all_to_all(equation: JaxprEqn, *operands: Any) -> list[Any]:
    params = equation.params
    return [collectives.all_to_all(operand, axis_names_of_params(params), params["split_axis"], params["concat_axis"],
                                   tiled=params["tiled"], **_groups(params)) for operand in operands]


@import_rule("axis_index")
def _axis_index(equation: JaxprEqn) -> Any:
    return collectives.axis_index(axis_names_of_params(equation.params))


@import_rule("ragged_all_to_all")
def _ragged_all_to_all(equation: JaxprEqn, *operands: Any) -> Any:
    return ragged_all_to_all(*operands, axis_name=axis_names_of_params(equation.params), **_groups(equation.params))
