"""Texts for other compilers, and what is compiled ahead of time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import jit

STEP = """
import sys, jax, numpy as np
jax.config.update("jax_enable_compilation_cache", True)
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
import fxgrad, fxgrad.numpy as fnp
def loss(p, x):
    return fnp.sum(fxgrad.nn.softmax(fnp.tanh(x @ p["w"] + p["b"]))[:, 0])
step = fxgrad.jit(fxgrad.value_and_grad(loss))
given = {"w": np.full((3, 4), 0.1), "b": np.zeros(4)}, np.ones((5, 3))
value, slopes = step(*given)
ahead, _ = step.lower(*given).compile()(*given)
assert ahead == value
print(slopes["w"].tobytes().hex())
"""


def mlp(p: Any, x: Any) -> Any:
    return fnp.sum(fnp.tanh(x @ p["w"] + p["b"]))


P, X = {"w": np.ones((3, 2)), "b": np.zeros(2)}, np.ones((4, 3))


def test_text_of_functions_and_of_programs() -> None:
    text = fxgrad.stablehlo(fxgrad.grad(mlp))(P, X)
    assert "func.func public @main(%arg0: tensor<2xf64>, %arg1: tensor<3x2xf64>, %arg2: tensor<4x3xf64>)" in text
    assert text.count("stablehlo.tanh") == 1
    program = fxgrad.make_program(fxgrad.grad(mlp))(P, X)
    assert "module @jit_mlp " in fxgrad.stablehlo(program)()
    assert fxgrad.stablehlo(program)() == fxgrad.stablehlo(program)(P, X)


@pytest.mark.slow
def test_text_of_every_kind_of_argument() -> None:
    def of_all(key: Any, x: Any, count: Any, rest: Any) -> Any:
        return fxgrad.random.normal(key, (2,)) * x, count + 1, rest
    arguments = fxgrad.random.key(0), fnp.bfloat16(1.5), 3, (np.zeros((0, 2), np.complex64), True)
    program = fxgrad.make_program(of_all)(*arguments)
    assert fxgrad.stablehlo(program)() == fxgrad.stablehlo(program)(*arguments)
    head, = (line for line in fxgrad.stablehlo(of_all)(*arguments).splitlines() if "@main" in line)
    for each in ("tensor<2xui32>", "tensor<bf16>", "tensor<i64>", "tensor<0x2xcomplex<f32>>", "tensor<i1>"):
        assert each in head
    read = fxgrad.parse("program f(x: f32[3], unused: i32[]) {\n  y: f32[3] = sin(x)\n  return y\n}")
    assert "@main(%arg0: tensor<3xf32>, %arg1: tensor<i32>)" in fxgrad.stablehlo(read)()


def test_text_with_lines_and_options() -> None:
    assert "test_lowering.py" in fxgrad.stablehlo(lambda x: x * 2, lines=True)(1.0)
    times = lambda x, n: x * n
    assert "dense<3" in fxgrad.stablehlo(times, static_argnums=1)(np.ones(2), 3)
    assert "dense<3" in fxgrad.stablehlo(jit(times, static_argnums=1))(np.ones(2), 3)
    with pytest.raises(fxgrad.errors.TreeError, match=r"p: p\.b, p\.w are needed in it, and it is f64\[4,3\]"):
        fxgrad.stablehlo(fxgrad.make_program(mlp)(P, X))(X)


def test_what_is_compiled_ahead_of_time_shows_what_it_takes() -> None:
    specs = {"w": fxgrad.ShapeDtypeStruct((3, 2), "float64"), "b": fxgrad.ShapeDtypeStruct((2,), "float64")}
    compiled = jit(mlp).lower(specs, fxgrad.ShapeDtypeStruct((4, 3), "float64")).compile()
    assert repr(compiled) == "<jit(mlp), compiled: p.b: f64[2], p.w: f64[3,2], x: f64[4,3]>"
    assert repr(jit(mlp).lower(P, X)) == "<jit(mlp), lowered: p.b: f64[2], p.w: f64[3,2], x: f64[4,3]>"
    np.testing.assert_allclose(compiled(P, X), jit(mlp)(P, X), rtol=1e-15)


@pytest.mark.slow
def test_processes_share_what_they_compiled(tmp_path: Path) -> None:
    """The second process finds what the first one compiled, also where the code has moved down in its file."""
    found, texts = [], []
    for number in range(2):
        script = tmp_path / f"step{number}.py"
        script.write_text("\n" * number + STEP)
        done = subprocess.run([sys.executable, script, tmp_path / "cache"], capture_output=True, text=True, check=True,
                              env=os.environ | {"PYTHONPATH": str(Path(fxgrad.__file__).parents[1])})
        texts.append(done.stdout)
        found.append(sorted(each.name for each in (tmp_path / "cache").iterdir() if each.name.endswith("-cache")))
    assert found[0] == found[1]
    assert [name.split("-")[0] for name in found[0]] == ["jit_loss"]
    assert texts[0] == texts[1]
