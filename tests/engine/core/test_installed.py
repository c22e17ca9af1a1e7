"""What computes and what presents programs: installed once, replaced for a block, and missed by name."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core import installed
from fxgrad.engine.core.installed import executing, install_executor, install_presenter
from tests.support.counting import Counting


def test_another_executor_for_a_block() -> None:
    counting = Counting()

    def branching(x):
        return fnp.sin(x) if x > 0 else fnp.cos(x)

    program = fxgrad.make_program(fnp.tanh)(1.0)
    with executing(counting):
        assert float(fnp.exp(np.float32(0.0))) == 1.0
        assert counting.asked == ["evaluate exp"]
        program(2.0)
        assert counting.asked[1:] == ["execute"]
        assert fxgrad.grad(branching)(1.0) == np.cos(1.0)
        assert counting.asked[2] == "compute"
    asked = [*counting.asked]
    fnp.exp(1.0)
    assert counting.asked == asked


def test_an_error_ends_the_block() -> None:
    before = installed.executor
    with pytest.raises(KeyError), executing(Counting()):
        raise KeyError
    assert installed.executor is before


def test_each_is_installed_once() -> None:
    with pytest.raises(RuntimeError, match=r"computes programs already\. Write: with executing\("):
        install_executor(Counting())
    with pytest.raises(RuntimeError, match="presents programs already"):
        install_presenter(installed.presenter)


@pytest.mark.slow
def test_a_part_of_the_library_alone() -> None:
    """`import fxgrad.engine.core` imports fxgrad first; a file that is loaded by itself meets this."""
    nobody = installed._Nobody()
    with pytest.raises(RuntimeError, match=re.escape(
            "nothing is installed that could execute programs. Import fxgrad, and not a part of it")):
        nobody.execute  # noqa: B018
    code = "import fxgrad.engine.core.installed as i; print(i.presenter, i.executor)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Presenter" in result.stdout
    assert "_ByOperands" in result.stdout
