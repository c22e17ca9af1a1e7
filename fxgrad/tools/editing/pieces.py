"""Small functions of users, traced to the equations that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad import tree
from fxgrad.errors import ArgumentError
from fxgrad.extend import Aval, Program, at_user_line, convert, leaf_aval, simplify_for_display
from fxgrad.extend.tracing import WITH_LITERALS, trace_flat


class Piece(NamedTuple):
    """The equations of a function, on inputs after those that are `captured`, and the container of its results."""

    program: Program
    captured: list[Any]
    out_tree: Any


def piece(what: str, function: Callable[..., Any], avals: Sequence[Aval], wanted: Sequence[Aval] | None = None,
          instead: str = "") -> Piece:
    """What `function` does on values of these types; its results are to be of the types `wanted`, if these are given.

    `what` is the operation on programs that asks and `instead` what the function takes the place of, for messages.
    Raises `ArgumentError` where the results are of other types.
    """
    def call(*tracers: Any) -> Any:
        results = function(*tracers)
        if wanted is None:
            return results
        leaves = tree.leaves(results)
        found = [leaf_aval(leaf) for leaf in leaves]
        if [aval and (aval.shape, aval.dtype) for aval in found] != [(aval.shape, aval.dtype) for aval in wanted]:
            raise ArgumentError(at_user_line(
                f"{what}: the function returns {_types(found)} in the place of {instead}, where {_types(wanted)} is "
                "needed. Give it results of the same shape and dtype"))
        return [convert(leaf, aval.dtype, aval.weak) for leaf, aval in zip(leaves, wanted, strict=True)]

    traced = trace_flat(call, avals, what, function, mode=WITH_LITERALS)
    return Piece(simplify_for_display(traced.program), traced.captured, traced.out_tree)


def _types(avals: Sequence[Aval | None]) -> str:
    return ", ".join(map(str, avals)) or "nothing"
