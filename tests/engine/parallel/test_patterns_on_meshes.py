"""The patterns of examples/parallel on eight devices: as on one device, with no more collectives than jax's."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh

import fxgrad

sys.path[:0] = [str(Path(__file__).parents[3] / "tools")]
from parallels import hlo  # noqa: E402  (the path is set first)
from parallels.measured import laid_out, payload  # noqa: E402
from parallels.patterns import PATTERNS, example  # noqa: E402

pytestmark = pytest.mark.slow

OPERATIONS = {
    "data": {"all-reduce": 1},
    "fully sharded": {"all-gather": 4, "reduce-scatter": 2, "all-reduce": 1},
    "tensor": {"all-reduce": 5},
    "GPipe": {"collective-permute": 2, "all-reduce": 2},
    "1F1B": {"collective-permute": 4, "all-reduce": 2},
    "ring attention": {"collective-permute": 2, "all-reduce": 1},
    "experts": {"all-to-all": 3, "all-reduce": 1},
    "transformer": {"all-gather": 9, "all-reduce": 9, "reduce-scatter": 5, "collective-permute": 3},
}
"""Collectives in the compiled step, those in a loop once."""


class Compiled(NamedTuple):
    """A pattern's arguments, as NumPy has them and on the mesh, and its step, compiled by fxgrad and by jax."""

    mesh: Any
    arrays: Any
    laid_out: Any
    step: Any
    ours: Any
    theirs: Any


@cache
def compiled(name: str) -> Compiled:
    pattern = PATTERNS[name]
    mesh, arrays, laid = laid_out(pattern, **pattern.measured)
    step = pattern.step(mesh)
    with jax.enable_x64(True):
        ours = fxgrad.jit(step).lower(*laid).compile()
        theirs = jax.jit(pattern.jax_step(mesh)).lower(*laid).compile()
    return Compiled(mesh, arrays, laid, step, ours, theirs)


def assert_same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == theirs.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10 * np.max(np.abs(theirs)))


@pytest.mark.parametrize("name", PATTERNS)
def test_a_step_is_that_of_one_device(name: str) -> None:
    found = compiled(name)
    expected = fxgrad.value_and_grad(PATTERNS[name].ours.loss)(*found.arrays)
    assert min(np.max(np.abs(leaf)) for leaf in jax.tree.leaves(expected)) > 1e-6  # no gradient is nothing
    with jax.enable_x64(True):
        assert_same(found.ours(*found.laid_out), expected)
        assert_same(found.theirs(*found.laid_out), expected)
    assert_same(found.step(*found.arrays), expected)  # with NumPy, without devices


@pytest.mark.parametrize("name", PATTERNS)
def test_collectives_are_those_of_the_pattern(name: str) -> None:
    found = compiled(name)
    ours, theirs = found.ours.as_text(), found.theirs.as_text()
    assert hlo.operations(ours) == Counter(OPERATIONS[name])
    assert hlo.operations(ours).total() <= hlo.operations(theirs).total()
    assert payload(hlo.transfers(ours)).total() <= payload(hlo.transfers(theirs)).total()


@pytest.mark.parametrize("name", PATTERNS)
def test_what_is_counted_is_what_is_compiled(name: str) -> None:
    found = compiled(name)
    stated = fxgrad.traffic(fxgrad.make_program(found.step)(*found.laid_out))
    assert payload(stated) == payload(hlo.transfers(found.ours.as_text()))
    assert {axis for each in stated for axis in each.axes} == {*found.mesh.axis_names}


@pytest.mark.parametrize("name", PATTERNS)
def test_temporary_memory_is_at_most_jaxs(name: str) -> None:
    found = compiled(name)
    ours, theirs = (each.memory_analysis().temp_size_in_bytes for each in (found.ours, found.theirs))
    assert ours <= theirs


@pytest.mark.parametrize(("name", "devices"), [("fully sharded", 8), ("GPipe", 4), ("1F1B", 4)])
def test_parameters_and_gradients_are_divided(name: str, devices: int) -> None:
    found = compiled(name)
    params = found.laid_out[0]
    with jax.enable_x64(True):
        _, slopes = found.ours(*found.laid_out)
    for tree in (params, slopes):
        whole = sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
        assert max(example("setting").bytes_on_each(tree)) <= 1.01 * whole / devices


@pytest.mark.parametrize("name", ["fully sharded", "GPipe", "experts"])
def test_the_same_program_is_for_gpus_and_tpus(name: str) -> None:
    """Their compilers get the same collectives, which on GPUs are NCCL's; no device of theirs is needed to say so."""
    found = compiled(name)
    with jax.enable_x64(True):
        traced = jax.jit(fxgrad.to_jax(found.step)).trace(*found.laid_out)
        text = traced.lower(lowering_platforms=("cuda", "tpu")).as_text()
    spoken = {kind.replace("_", "-") for kind in re.findall(r"stablehlo\.(\w+)", text)}
    assert spoken & {*hlo.KINDS} == {*OPERATIONS[name]}


def test_bytes_are_those_of_the_formulas_of_the_page() -> None:
    """docs/appendix/parallel-patterns.md, with n = 4 devices along the axis that speaks, in float64."""
    n, rows, length, width = 4, 2, 3, 8

    def sent(name: str, axes: tuple[int, ...], kinds: str, **sizes: int) -> tuple[int, Any]:
        pattern = PATTERNS[name]
        mesh = AbstractMesh(axes, tuple(pattern.ours.AXES))
        types = pattern.ours.types(*axes, width=width, **sizes)
        program = fxgrad.make_program(pattern.step(mesh))(*types)
        found = sum(each.sent for each in fxgrad.traffic(program) if each.kind in kinds and each.bytes > 8)
        return found, sum(math.prod(each.shape) * 8 for each in jax.tree.leaves(types[0]))

    found, whole = sent("data", (n,), "all-reduce")
    assert found == 2 * whole * (n - 1) // n
    found, whole = sent("fully sharded", (n,), "all-gather reduce-scatter")
    assert found == 3 * whole * (n - 1) // n
    activations = rows * length * width * 8
    assert sent("tensor", (1, n), "all-reduce", heads=1, rows=rows, length=length)[0] == 8 * activations * (n - 1) // n
    steps = 5 + n - 1  # of five microbatches
    assert sent("GPipe", (1, n), "permute", rows=rows, microbatches=5)[0] == steps * 2 * rows * width * 8
    assert sent("1F1B", (1, n), "permute", rows=rows, microbatches=5)[0] == steps * 2 * rows * width * 8
    assert sent("ring attention", (n,), "permute", rows=rows, length=length)[0] == 2 * activations * (3 * n - 1)
    places = 2 * 16 * width * 8  # for twice as many tokens; the tokens themselves need no gradient here
    assert sent("experts", (n,), "all-to-all", count=16)[0] == 3 * places * (n - 1) // n


# --- data parallel --------------------------------------------------------------------------------------------------


def test_data_parallel_has_one_all_reduce_each_way() -> None:
    found = compiled("data")
    module = example("data_parallel")

    def operations(function: Any) -> Counter[str]:
        with jax.enable_x64(True):
            return hlo.operations(fxgrad.jit(function).lower(*found.laid_out).compile().as_text())
    value = lambda *args: module.parallel(found.mesh)(*args)[0]
    slopes = lambda *args: module.parallel(found.mesh)(*args)[1]
    assert operations(value) == operations(slopes) == Counter({"all-reduce": 1})


# --- tensor parallel ------------------------------------------------------------------------------------------------


def test_collectives_are_seen_in_the_picture_and_in_the_text() -> None:
    """Of the loss: a sum for attention, one for the MLP, and the mean over the batch."""
    found = compiled("tensor")
    program = fxgrad.make_program(lambda *args: found.step(*args)[0])(*found.laid_out)
    picture = str(fxgrad.draw(program, expand=["shard_map"]))
    assert picture.count("psum") == 3
    over = re.findall(r'psum_invariant\(.*axis_name=\("(\w+)",\)', str(program))
    assert over == ["model", "model", "data"]


# --- fully sharded --------------------------------------------------------------------------------------------------


def test_optax_trains_in_pieces_as_one_device_does() -> None:
    found = compiled("fully sharded")
    module = example("fully_sharded")
    bytes_on_each = example("setting").bytes_on_each
    params, x, y = jax.tree.map(lambda each: each.copy(), found.laid_out)
    with jax.enable_x64(True):
        state, step = module.initial_state(params), module.training_step(found.mesh)
        whole = sum(leaf.nbytes for leaf in jax.tree.leaves((params, state)))
        for _ in range(3):
            value, params, state = step(params, state, x, y)
        assert max(bytes_on_each((params, state))) <= 1.01 * whole / 8 + 8  # each has the number of the step
        alone, given = jax.tree.map(np.asarray, found.arrays), found.arrays[1:]
        alone, memory = alone[0], module.OPTIMISER.init(alone[0])
        for _ in range(3):
            expected, slopes = fxgrad.value_and_grad(module.loss)(alone, *given)
            changes, memory = module.OPTIMISER.update(slopes, memory, alone)
            alone = jax.tree.map(lambda weight, change: np.asarray(weight + change), alone, changes)
    assert_same((value, params), (expected, alone))


# --- pipelines ------------------------------------------------------------------------------------------------------


def test_one_forward_one_back_needs_no_more_memory_for_more_microbatches() -> None:
    module = example("pipeline")
    mesh = compiled("1F1B").mesh
    setting = example("setting")

    def temporary(schedule: Any, microbatches: int) -> int:
        types = module.types(**module.AXES, microbatches=microbatches)
        laid = setting.lay_out(setting.draw(types), mesh, module.SPECS)
        with jax.enable_x64(True):
            return int(fxgrad.jit(schedule(mesh)).lower(*laid).compile().memory_analysis().temp_size_in_bytes)
    few, many = (temporary(module.one_forward_one_back, count) for count in (16, 128))
    assert many <= 1.01 * few
    assert temporary(module.gpipe, 128) > 4 * many


def test_the_bubble_is_the_share_of_masked_steps() -> None:
    """Each stage works on every microbatch once, in as many steps as the forward loop has."""
    module = example("pipeline")
    stages, microbatches = 4, len(compiled("GPipe").arrays[1])
    steps = microbatches + stages - 1
    busy = sum(0 <= step - stage < microbatches for step in range(steps) for stage in range(stages))
    assert module.bubble(stages, microbatches) == pytest.approx(1 - busy / (stages * steps))
    program = fxgrad.make_program(module.gpipe(compiled("GPipe").mesh))(*compiled("GPipe").arrays)
    there, back = [each for each in fxgrad.traffic(program) if each.kind == "permute"]
    assert there.times == back.times == steps
    assert [pair[::-1] for pair in there.groups] == [*back.groups]


# --- the examples as they are ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", sorted({pattern.module for pattern in PATTERNS.values()}))
def test_examples_show_that_devices_agree(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    example(module).main()
    shown = capsys.readouterr().out
    apart = [float(number) for number in re.findall(r"one device by (\S+) at most", shown)]
    assert apart
    assert max(apart) < 1e-13
    assert re.search(r"\d x (all-reduce|permute) over \w+: each of \d devices sends", shown)


@pytest.mark.parametrize(("name", "sizes"), [*((name, (1, 1)) for name in PATTERNS if name != "transformer"),
                                             ("GPipe", (1, 3)), ("1F1B", (3, 2)), ("ring attention", (3,)),
                                             ("tensor", (3, 2))])
def test_any_mesh_gives_what_one_device_does(name: str, sizes: tuple[int, ...]) -> None:
    """With NumPy, which needs no devices; an axis of one device has nobody to speak with."""
    pattern = PATTERNS[name]
    axes = dict(zip(pattern.ours.AXES, sizes, strict=False))
    width = {"width": 12, "heads": 2} if name in ("tensor", "ring attention") else {"width": 12}
    arrays = example("setting").draw(pattern.ours.types(**axes, **width))
    step = pattern.step(AbstractMesh(tuple(axes.values()), tuple(axes)))
    assert_same(step(*arrays), fxgrad.value_and_grad(pattern.ours.loss)(*arrays))
    spoken = {axis for each in fxgrad.traffic(fxgrad.make_program(step)(*arrays)) for axis in each.axes
              if each.sent}
    assert spoken == {axis for axis, size in axes.items() if size > 1}
