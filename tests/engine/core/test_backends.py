"""The executor is registered once and replaced for a block; the faces of a program are loaded when asked for."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core import backends
from fxgrad.engine.core.backends import register_executor, use_executor
from fxgrad.engine.core.faces import FACES, face
from tests.support.counting import Counting


def test_another_executor_for_a_block() -> None:
    counting = Counting()

    def branching(x):
        return fnp.sin(x) if x > 0 else fnp.cos(x)

    program = fxgrad.make_program(fnp.tanh)(1.0)
    with use_executor(counting):
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
    before = backends.executor
    with pytest.raises(KeyError), use_executor(Counting()):
        raise KeyError
    assert backends.executor is before


def test_one_executor_is_registered() -> None:
    with pytest.raises(RuntimeError, match=r"is the executor already\. Write: with use_executor\("):
        register_executor(Counting())


def test_without_an_executor() -> None:
    """`import fxgrad.engine.core` imports fxgrad first; a file that is loaded by itself meets this."""
    with pytest.raises(RuntimeError, match=re.escape(
            "no executor is registered that could execute programs. Import fxgrad, and not a part of it")):
        backends._Unregistered().execute  # noqa: B018


@pytest.mark.parametrize("name", FACES)
def test_every_face_of_a_program_is_there(name: str) -> None:
    assert callable(face(name))
    assert face(name) is face(name)


@pytest.mark.slow
def test_computing_loads_no_wing() -> None:
    """Gradients, batches and compiled functions need the engine and the libraries alone."""
    code = """
import sys
import numpy as np
import fxgrad
fxgrad.jit(fxgrad.vmap(fxgrad.grad(lambda x: np.sum(np.sin(x) * x))))(np.ones((2, 3)))
fxgrad.grad(lambda x: x * x)(2.0)
print(*sorted({".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("fxgrad.")}))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                            env={**os.environ, "FXGRAD_CHECK": "0"})
    assert not {"fxgrad.text", "fxgrad.tools", "fxgrad.shipping", "fxgrad.training", "fxgrad.scipy"} & {
        *result.stdout.split()}
