"""Trace small functions of users to equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad import tree
from fxgrad.errors import ArgumentError
from fxgrad.extend import Aval, Program, at_user_line, convert, leaf_aval, simplify_for_display
from fxgrad.extend.tracing import WITH_LITERALS, trace_flat


class TracedPiece(NamedTuple):
    """The equations of a traced function, whose inputs begin with the `captured` ones, and the tree of its results."""

    program: Program
    captured: list[Any]
    out_tree: Any


def trace_piece(what: str, function: Callable[..., Any], avals: Sequence[Aval], wanted: Sequence[Aval] | None = None,
                instead: str = "") -> TracedPiece:
    """Trace `function` on values of these types; raise `ArgumentError` unless the results are of the types `wanted`.

    `what` is the calling operation and `instead` the thing that the function replaces; both appear in messages.
    """
    def call(*tracers: Any) -> Any:
        results = function(*tracers)
        if wanted is None:
            return results
        leaves = tree.leaves(results)
        found = [leaf_aval(leaf) for leaf in leaves]
        if [aval and (aval.shape, aval.dtype) for aval in found] != [(aval.shape, aval.dtype) for aval in wanted]:
            raise ArgumentError(at_user_line(
                f"{what}: the function returns {_types_text(found)} in the place of {instead}, where "
                f"{_types_text(wanted)} is needed. Give it results of the same shape and dtype"))
        return [convert(leaf, aval.dtype, aval.weak) for leaf, aval in zip(leaves, wanted, strict=True)]

    traced = trace_flat(call, avals, what, function, mode=WITH_LITERALS)
    return TracedPiece(simplify_for_display(traced.program), traced.captured, traced.out_tree)


def _types_text(avals: Sequence[Aval | None]) -> str:
    return ", ".join(map(str, avals)) or "nothing"
