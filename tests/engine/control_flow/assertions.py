"""Functions that assert, in a file whose assertions pytest leaves as they are."""

# ruff: noqa: RET506  (the functions are written as users write them)

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import python_control_flow


@python_control_flow
def root(x: Any) -> Any:
    assert x >= 0, f"{x} has no root"
    return np.sqrt(x)


@python_control_flow
def absolute(x: Any) -> Any:
    if x > 0:
        return x
    assert x > -10
    return -x


@python_control_flow
def halving(x: Any) -> Any:
    turns = 0
    while x > 1.0:
        x = x / 2
        turns = turns + 1
        assert turns < 5, "too many turns"
    return x


@python_control_flow
def known(x: Any, size: int) -> Any:
    assert size == len(x), (size, len(x))
    return x * size


@python_control_flow
def positive(x: Any) -> Any:
    if x > 0:
        y = x
    else:
        assert False, "never here"  # noqa: B011, PT015
        y = -x
    return y


@python_control_flow
def caught(x: Any) -> Any:
    try:
        assert x > 0
    except AssertionError:
        return 0.0
    return x


@python_control_flow
def elementwise(x: Any) -> Any:
    assert x > 0
    return x


@python_control_flow
def formatted(x: Any) -> Any:
    assert x >= 0, "%e has no root" % x  # noqa: UP031
    return np.sqrt(x)


@python_control_flow
def described(x: Any) -> Any:
    assert x >= 0, "{}: ".format(round(1.5)) + "%e has no root" % x  # noqa: UP031, UP032
    return np.sqrt(x)


def checks_in_a_side_that_changes_nothing(x: Any) -> Any:
    if x > 0:
        if x > 2:
            raise ValueError("above")
        assert x < 1
    return x * x


def checks_in_a_loop_that_changes_nothing(x: Any) -> Any:
    for k in range(4):
        if x > k:
            if x > 2 * k + 2:
                raise ValueError("above")
            assert x < 2 * k + 1
    return x * x


def ends_by_a_check_in_a_side(x: Any) -> Any:
    k = 0
    while True:
        k += 1
        if x > 0:
            if x > k:
                raise ValueError("above")
            assert x * k != 1
        if k * x < -1:
            break
        if k > 5:
            break
    return x * x


def raises_after_checks(x: Any) -> Any:
    if x > 0:
        if x > 2:
            raise ValueError("above")
        elif x > 1:
            raise IndexError("between")
        raise KeyError("below")
    return x * x


def raises_on_both_sides(x: Any) -> Any:
    if x > 0:
        if x > 2:
            raise ValueError("above")
        else:
            assert x < 1, "between"
            raise KeyError("below")
    return x * x


def says_what_is_set_later(x):
    assert x > 0, (x, later)  # noqa: F821
    later = 2 * x
    return later
