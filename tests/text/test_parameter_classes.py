"""Classes of parameters: those that the library declares are read back in a process that imports fxgrad alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import fxgrad
from fxgrad import lax
from fxgrad.engine.core.parameter_classes import declare_parameter_class, parameter_classes
from fxgrad.extend.parameters import Geometry, Sliding, Windows

NUMBERS = lax.ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))


def on_a_mesh(x: Any) -> Any:
    mesh = AbstractMesh((2,), ("data",))
    return fxgrad.shard_map(np.sin, mesh=mesh, in_specs=P("data"), out_specs=P("data"))(x)


BOXED = """
import fxgrad
boxed_p = fxgrad.Primitive(
    name="boxed", abstract=lambda x, *, box: [x], numpy=lambda x, *, box: [x], xla=lambda lax, x, *, box: [x],
    jvp=fxgrad.NO_TANGENT, transpose=fxgrad.NOT_LINEAR, batch=lambda size, values, axes, *, box: (values, axes),
    cost=lambda x, *, box: fxgrad.Cost(0, 0))
"""
space: dict[str, Any] = {}
exec(BOXED, space)
boxed_p = space["boxed_p"]  # an operation of a user's, with any parameter


def boxed(value: Any) -> Callable[[Any], Any]:
    return lambda x: fxgrad.bind(boxed_p, x, box=value)


PROGRAMS = {
    "MeshShape": on_a_mesh,
    "Placement": lambda x: fxgrad.device_put(x, jax.memory.Space.Host, src=jax.memory.Space.Device),
    "Policy": fxgrad.checkpoint(np.sin, policy=fxgrad.checkpoint_policies.save_only_these_names("a")),
    "StraightThrough": fxgrad.straight_through(np.round),
    # Records and enumerations that people meet in the library, in operations of their own.
    **{type(value).__name__: boxed(value) for value in (
        lax.Precision.HIGHEST, lax.DotAlgorithmPreset.F32_F32_F32, lax.FftType.FFT, lax.GatherScatterMode.CLIP,
        lax.RoundingMethod.TO_NEAREST_EVEN, fxgrad.image.ResizeMethod.LINEAR,
        lax.GatherDimensionNumbers((0,), (), (1,)), lax.ScatterDimensionNumbers((0,), (), (1,)),
        lax.RaggedDotDimensionNumbers((((0,), (1,)), ((), ())), (0,), (0,)), NUMBERS,
        Windows((0,), (), (1,)), Sliding((2,), (1,), ((0, 0),), (1,), (1,)),
        Geometry((1,), ((0, 0),), (1,), (1,), NUMBERS, 1, 1))},
}
"""By the name of a class, a function whose program has an object of it among the parameters."""


def positive(x: Any) -> Any:
    fxgrad.check(x > 0, "{x}", x=x)
    return np.log(x)


@fxgrad.python_control_flow
def not_negative(x: Any) -> Any:
    if np.min(x) < 0:
        raise ValueError("negative")
    return np.sqrt(x)


REPORTS = {"Message": positive, "Raised": not_negative, "Diagnosis": fxgrad.checked(np.log, errors="sqrt")}
"""The same for reports of checks, which texts do not hold. The program of a `Diagnosis` has a `Finding`."""


def test_every_class_has_a_program() -> None:
    assert {*PROGRAMS, *REPORTS, "Finding"} == parameter_classes.keys()
    for name, function in PROGRAMS.items():
        program = fxgrad.make_program(function)(np.ones(4))
        values = [value for equation in program.equations for value in equation.params.values()]
        assert parameter_classes[name] in {type(value) for value in values}
        assert fxgrad.text.equal(program, fxgrad.parse(fxgrad.text.program_text(program), [boxed_p]))


def test_reports_of_checks_have_programs() -> None:
    for name, function in REPORTS.items():
        program = fxgrad.make_program(function)(np.ones(4))
        read = fxgrad.text.from_json(fxgrad.text.to_json(program))
        assert fxgrad.text.equal(program, read)
        reports = [equation.params["report"] for equation in read.equations if "report" in equation.params]
        assert [type(report) for report in reports] == [parameter_classes[name]]
        if name == "Diagnosis":
            assert parameter_classes["Finding"] in {
                type(equation.params.get("report")) for equation in reports[0].program.equations}


@pytest.mark.slow
def test_a_process_that_imports_fxgrad_alone_reads_them(tmp_path: Path) -> None:
    for name, function in {**PROGRAMS, **REPORTS}.items():
        program = fxgrad.make_program(function)(np.ones(4))
        fxgrad.save(tmp_path / f"{name}.fxgrad", program)
        (tmp_path / f"{name}.json").write_text(fxgrad.text.to_json(program), encoding="utf-8")
        if name in PROGRAMS:
            (tmp_path / f"{name}.txt").write_text(fxgrad.text.program_text(program), encoding="utf-8")
    script = BOXED + """
import sys, pathlib
READERS = {".fxgrad": lambda path: fxgrad.load(path, [boxed_p]),
           ".json": lambda path: fxgrad.text.from_json(path.read_text(), [boxed_p]),
           ".txt": lambda path: fxgrad.parse(path.read_text(), [boxed_p])}
for path in pathlib.Path(sys.argv[1]).glob(f"*{sys.argv[2]}"):
    found = {type(value).__name__ for equation in READERS[path.suffix](path).equations
             for value in equation.params.values()}
    assert path.stem in found, (path, found)
"""
    for suffix in (".fxgrad", ".json", ".txt"):
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path), suffix], capture_output=True, text=True,
                              check=False, timeout=120)
        assert done.returncode == 0, done.stderr


def test_a_name_stands_for_one_class() -> None:
    other = type("Policy", (tuple,), {})
    with pytest.raises(ValueError, match=r"fxgrad\.engine\.higher_order\.saving has a class of parameters named Policy "
                                         r"already; that of .* needs another name"):
        declare_parameter_class(other)


class Undeclared(NamedTuple):
    """A class that nobody declared."""

    size: int


def test_the_check_of_texts_finds_classes_of_the_library_that_are_not_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    program = fxgrad.make_program(boxed(Undeclared(1)))(1.0)
    fxgrad.text.check_text(program)
    monkeypatch.setattr(Undeclared, "__module__", "fxgrad.somewhere")
    with pytest.raises(AssertionError, match="there is no class 'Undeclared' for parameters"):
        fxgrad.text.check_text(program)
