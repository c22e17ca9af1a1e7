"""`assert` on traced values is a check, which raises when the compiled function runs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import CheckError, ControlFlowError
from tests.engine.control_flow.assertions import (
    absolute,
    caught,
    described,
    elementwise,
    formatted,
    halving,
    known,
    positive,
    root,
    says_what_is_set_later,
)


def raised(call: Any, *args: Any) -> str:
    """The message of the error; that of a check has the line, as the traceback of an assertion has."""
    with pytest.raises(AssertionError) as found:
        call(*args)
    if not isinstance(found.value, CheckError):
        assert found.traceback[-1].path.name == "assertions.py"
    return re.sub(r"py:\d+", "py:N", str(found.value))


def test_compiled_functions_raise_with_the_message_and_the_line() -> None:
    assert jit(root)(4.0) == 2.0
    assert raised(jit(root), -4.0) == "-4.0 has no root"
    assert raised(jit(absolute), -11.0) == ""
    assert raised(vmap(formatted), np.array([1.0, -4.0])).startswith("'%e has no root' % x\n")
    assert raised(vmap(described), np.array([1.0, -4.0])).startswith(
        "'{}: '.format(round(1.5)) + '%e has no root' % x\n")
    assert (jit(absolute)(11.0), jit(absolute)(-9.0)) == (11.0, 9.0)


def test_loops_batches_and_derivatives_keep_assertions() -> None:
    assert jit(halving)(16.0) == 1.0
    assert raised(jit(halving), 100.0) == "too many turns"
    assert raised(vmap(root), np.array([1.0, -4.0])) == (
        "-4.0 has no root\n  at assertions.py:N (in root)\n  in entry 1 of the batch")
    assert jit(grad(root))(4.0) == 0.25
    assert raised(jit(grad(root)), -4.0).endswith("value=-4.0) has no root")


def test_what_python_knows_is_asserted_at_once() -> None:
    with pytest.raises(AssertionError, match=r"^-4\.0 has no root$"):
        root(-4.0)

    np.testing.assert_array_equal(jit(known, static_argnums=1)(np.ones(3), 3), [3.0, 3.0, 3.0])
    with pytest.raises(AssertionError, match=r"^\(2, 3\)$"):
        jit(known, static_argnums=1)(np.ones(3), 2)


def test_an_assertion_in_a_branch_is_that_of_the_branch_taken() -> None:
    assert jit(positive)(3.0) == 3.0
    assert raised(jit(positive), -3.0) == "never here"


def test_an_assertion_in_try_is_refused() -> None:
    with pytest.raises(ControlFlowError, match=re.escape(
            "the condition of this `assert` is traced and stands inside of `try`: both sides are traced once, so no "
            "exception can depend on traced values. Move the traced code out of the `try`\n  at assertions.py:")):
        jit(caught)(1.0)


def test_arrays_need_all_or_any() -> None:
    with pytest.raises(ControlFlowError, match=re.escape("Write np.any(x) or np.all(x)")):
        jit(elementwise)(np.ones(2))
    assert fxgrad.jit(python_control_flow(lambda x: x))(1.0) == 1.0


def test_a_message_that_cannot_be_made_before_the_assertion_fails_is_not_made() -> None:
    compiled = fxgrad.jit(fxgrad.python_control_flow(says_what_is_set_later))
    assert float(compiled(2.0)) == 4.0
    with pytest.raises((AssertionError, UnboundLocalError, NameError)):
        compiled(-2.0)
