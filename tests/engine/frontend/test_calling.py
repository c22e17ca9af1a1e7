"""Calling a program as a function: with its constants, in its containers, and refused by number and type."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.frontend import calling
from fxgrad.errors import ArgumentError, TreeError

X, SCALE = np.array([1.0, 2.0]), np.array([3.0, -1.0])


def test_constants_are_no_arguments() -> None:
    program = fxgrad.make_program(lambda x: x * SCALE)(X)
    flat = program.replace(signature=None)
    assert len(program.constants) == 1
    for called in (program, flat):
        np.testing.assert_array_equal(called(X), [3.0, -2.0])
    with pytest.raises(ArgumentError, match=re.escape("the program takes 1 inputs, got 2")):
        flat(X, X)


def test_a_flat_list_fits_a_program_of_containers() -> None:
    program = fxgrad.make_program(lambda pair: {"sum": pair[0] + pair[1]})((X, SCALE))
    for result in (program((X, SCALE)), program(X, SCALE)):
        np.testing.assert_array_equal(result["sum"], [4.0, 1.0])
    with pytest.raises(TreeError, match=re.escape("pair: pair[0], pair[1] are needed in it, and it is f64[2]")):
        program(X)
    with pytest.raises(ArgumentError, match=re.escape("pair[1]: f64[2] is needed, not f64[3]")):
        program(X, np.ones(3))


def test_a_flat_list_fits_a_program_of_containers_that_closes_over_arrays() -> None:
    program = fxgrad.make_program(lambda pair: pair[0] * SCALE + pair[1])((X, X))
    assert len(program.constants) == 1
    np.testing.assert_array_equal(program(X, X), X * SCALE + X)


def test_sizes_are_found_once_for_each_type_of_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    specialised, sizes = calling.specialize, []

    def noting(program, avals):
        sizes.append(avals[0].shape)
        return specialised(program, avals)

    monkeypatch.setattr(calling, "specialize", noting)
    program = fxgrad.make_program(lambda x: fnp.sin(x) * x)(fxgrad.symbolic_spec("n"))
    for size in (2, 3, 2, 3):
        np.testing.assert_array_equal(program(np.ones(size)), np.full(size, np.sin(1.0)))
    assert sizes == [(2,), (3,)]
