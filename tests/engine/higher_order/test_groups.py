"""Groups of operands: lists are split by them and put together again; and what is malformed is refused by its types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import fxgrad
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.regions import Links
from fxgrad.engine.core.symbolic import Linear, Zero
from fxgrad.engine.higher_order.groups import (
    cotangents_of,
    groups_of,
    join_groups,
    merge_marked,
    nonzero_tangents,
    select_marked,
    select_unmarked,
    split_by_sizes,
)
from fxgrad.engine.higher_order.scan import scan_p
from fxgrad.engine.tracing.tape import bind
from fxgrad.errors import ProgramError

SCALAR = Aval((), np.dtype("float64"))


class Three(NamedTuple):
    """Names of groups."""

    a: Sequence[Any]
    b: Sequence[Any]
    c: Sequence[Any]


class One(NamedTuple):
    """One group alone."""

    a: Sequence[Any]


@pytest.mark.parametrize("sizes", [(1, 2, 1), (0, 0, 3), (2, 0, 0), (0, 0, 0)])
def test_lists_of_any_kind_are_split_and_joined(sizes: tuple[int, int, int]) -> None:
    groups = groups_of(Three, *sizes)
    for values in ([*range(sum(sizes))], tuple(range(sum(sizes))), range(sum(sizes))):
        parts = groups.split(values)
        assert type(parts) is Three
        assert tuple(map(len, parts)) == sizes
        assert join_groups(parts) == [*values]
        assert join_groups(split_by_sizes(values, sizes)) == [*values]


def test_one_group_is_the_list() -> None:
    assert groups_of(One, 2).split([1, 2]) == One([1, 2])
    assert groups_of(One, 0).split([]) == One([])


def test_what_is_too_much_goes_to_the_last_group() -> None:
    assert groups_of(Three, 1, 1, 1).split([1, 2, 3, 4]) == Three([1], [2], [3, 4])
    assert split_by_sizes([1, 2, 3, 4], (1, 1)) == [[1], [2, 3, 4]]


@pytest.mark.parametrize("marks", [(True, False, True, True), (False,) * 4, (True,) * 4])
def test_tangents_follow_their_groups_and_are_taken_out_again(marks: tuple[bool, ...]) -> None:
    groups, values = groups_of(Three, 1, 0, 3), ["a", "b", "c", "d"]
    tangents = [f"t{value}" if marked else Zero(SCALAR) for value, marked in zip(values, marks, strict=True)]
    parts = groups.with_tangents(values, tangents)
    for own, group in zip(groups.split(values), parts, strict=True):
        assert group[:len(own)] == own
        assert group[len(own):] == [f"t{value}" for value in own if f"t{value}" in tangents]
    assert groups.without_tangents(join_groups(parts), marks) == (values, nonzero_tangents(tangents))


def test_marked_values_are_taken_out_and_put_back() -> None:
    values, marks = [1, 2, 3, 4], (False, True, True, False)
    assert merge_marked(marks, select_marked(values, marks), select_unmarked(values, marks)) == values


def test_cotangents_go_to_linear_inputs_alone() -> None:
    inputs = [Linear(SCALAR), 1.0, 2.0, Linear(SCALAR)]
    # The third is linear at a later step of a loop: its cotangent is that of a constant.
    assert cotangents_of(inputs, (True, False, True, True), ["first", "third", "fourth"]) == [
        "first", None, None, "fourth"]


def test_links_have_the_places_of_their_groups() -> None:
    groups = groups_of(Three, 1, 2, 3)
    assert groups.links(c="entry", a="same") == (Links("entry", 3, 3), Links("same", 0, 1))


@pytest.mark.parametrize(("consts", "carry", "values"), [(0, 1, 1), (0, 1, 3), (1, 1, 2), (0, 3, 2), (3, 0, 2)])
def test_operands_that_do_not_fit_the_program_are_refused(consts: int, carry: int, values: int) -> None:
    program = fxgrad.make_program(lambda c, x: (c + x, c * x))(1.0, 2.0)
    with pytest.raises(ProgramError, match="scan: the program called takes"):
        bind(scan_p, *[np.ones(2)] * values, program=program, length=2, reverse=False, unroll=1, num_consts=consts,
             num_carry=carry)
