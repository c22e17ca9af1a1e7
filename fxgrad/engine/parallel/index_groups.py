"""Groups of the entries along a mapped axis: collectives that communicate only within a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import reshape, zeros
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.transforms.batch import Batched, put_axis
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError

Groups = tuple[tuple[int, ...], ...]
"""Each position along the axis is in exactly one of them."""
Meeting = Callable[..., "tuple[Any, int | None]"]
"""(size, value, its batch axis or None, parameters) -> the result if all entries are local, and its batch axis."""


def group_size(name: str, groups: Groups, size: int, alike: bool) -> int | None:
    """Return the number of entries in each of `groups` of an axis of `size`; None if it differs, if not `alike`.

    Raises `ArgumentError` unless each position is in one group.
    """
    positions = sorted(position for group in groups for position in group)
    if positions != [*range(size)]:
        raise ArgumentError(at_user_line(
            f"{name}: axis_index_groups={_as_lists(groups)} over an axis of size {size}; each position from 0 to "
            f"{size - 1} is needed in one of the groups, and {_position_problem(positions, size)}"))
    sizes = sorted({len(group) for group in groups})
    if alike and len(sizes) > 1:
        raise ArgumentError(at_user_line(
            f"{name}: axis_index_groups={_as_lists(groups)} have {' and '.join(map(str, sizes))} "
            "entries, where groups of one size are needed, since what each entry gets has the same shape"))
    return sizes[0] if len(sizes) == 1 else None


def _as_lists(groups: Groups) -> list[list[int]]:
    return [[*group] for group in groups]


def _position_problem(positions: Sequence[int], size: int) -> str:
    """Return the problem with the first invalid position."""
    outside = [position for position in positions if not 0 <= position < size]
    if outside:
        return f"{outside[0]} is none of them"
    twice = [position for position in range(size) if positions.count(position) > 1]
    if twice:
        return f"{twice[0]} is in more than one"
    return f"{next(position for position in range(size) if position not in positions)} is in none"


def take_sources(rows: Any, sources: Sequence[int | None]) -> Any:
    """Return the entries of `rows` along axis 0 at `sources`, zeros for None; neighbours move as one piece."""
    aval, pieces, start = aval_of(rows), [], 0
    while start < len(sources):
        first, stop = sources[start], start + 1
        while stop < len(sources) and sources[stop] == (None if first is None else first + stop - start):
            stop += 1
        pieces.append(zeros(aval.update(shape=(stop - start, *aval.shape[1:]))) if first is None else
                      slice_in_dim(rows, first, first + stop - start, 0))
        start = stop
    return concatenate(pieces, 0) if pieces else rows


def meet_in_groups(meet: Meeting, size: int, value: Any, axis: int | None, groups: Groups, params: dict[str, Any],
                   ) -> tuple[Any, int]:
    """Apply `meet` among the entries of each group; `params` count positions beside one more axis at 0.

    Groups of one size are computed at once: they become that axis.
    """
    rows = put_axis(Batched(value, axis), size, 0)
    results, order = [], []
    for count in sorted({len(group) for group in groups}):
        alike = [group for group in groups if len(group) == count]
        positions = [position for group in alike for position in group]
        entries = take_sources(rows, positions)
        apart = reshape(entries, (len(alike), count, *aval_of(entries).shape[1:]))
        result, place = meet(count, apart, 1, **params)
        result = put_axis(Batched(result, place), count, 1)
        results.append(reshape(result, (len(positions), *aval_of(result).shape[2:])))
        order += positions
    together = concatenate(results, 0) if len(results) > 1 else results[0]
    return take_sources(together, [order.index(position) for position in range(size)]), 0
