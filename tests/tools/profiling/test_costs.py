"""`cost` of functions: closed forms, loops, rooflines; and `fusions`: what XLA computes together."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
import fxgrad.tools.profiling
from fxgrad import lax
from fxgrad.errors import ArgumentError


def f32(*shape: int) -> fxgrad.ShapeDtypeStruct:
    return fxgrad.ShapeDtypeStruct(shape, np.float32)


def step(w: Any, h: Any) -> Any:
    return lax.fori_loop(0, 7, lambda _, h: h @ w, h)


def convolved(x: Any, k: Any) -> Any:
    return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.parametrize(("function", "args", "flops"), [
    (lambda a, b: a @ b, (f32(3, 4), f32(4, 5)), 2 * 3 * 4 * 5),
    (lambda a, b: fnp.einsum("bij,bjk->bik", a, b), (f32(6, 3, 4), f32(6, 4, 5)), 6 * 2 * 3 * 4 * 5),
    (convolved, (f32(2, 8, 8, 3), f32(3, 3, 3, 5)), 2 * 2 * 8 * 8 * 5 * 3 * 3 * 3),
    (lambda q, k, v: (q @ k.T) @ v, (f32(10, 4), f32(12, 4), f32(12, 6)), 2 * 10 * 12 * 4 + 2 * 10 * 12 * 6),
    (step, (f32(5, 5), f32(2, 5)), 7 * 2 * 2 * 5 * 5),
    (lambda a: lax.linalg.cholesky(a, symmetrize_input=False), (f32(30, 30),), 30 ** 3 // 3),
    (lambda x: fnp.sum(x * 2.0), (f32(100),), 100 + 100)])
def test_flops_are_those_of_closed_forms(function: Any, args: Any, flops: int) -> None:
    found = fxgrad.cost_analysis(function)(*args)
    assert found.flops == pytest.approx(flops, abs=0.02 * flops)  # a sum of n takes n - 1
    assert sum(row.flops for row in found.lines) == found.flops
    program = fxgrad.make_program(function)(*args)
    assert (found.flops, found.bytes) == fxgrad.cost_analysis(program)


def test_lines_of_a_loop_are_counted_by_its_steps() -> None:
    def scanned(w: Any, xs: Any) -> Any:
        def body(h: Any, x: Any) -> Any:
            h = fnp.tanh(h @ w)
            return h + x, None
        return lax.scan(body, fnp.zeros(8, np.float32), xs)[0]
    found = fxgrad.cost_analysis(scanned)(f32(8, 8), f32(50, 8))
    assert found.lines[0].flops >= 50 * 2 * 8 * 8
    assert found.lines[0].operations == 2 * 50
    assert sum(row.flops for row in found.lines) == found.flops


def test_functions_of_the_library_are_of_the_line_that_calls_them() -> None:
    def called(x: Any) -> Any:
        hidden = fxgrad.nn.softmax(np.mean(x, axis=0))
        rows, _ = lax.scan(lambda c, row: (c + np.std(row), fxgrad.nn.logsumexp(row)), np.float32(0.0), x)
        return rows + np.var(hidden)

    for function in (called, fxgrad.grad(called)):
        found = fxgrad.cost_analysis(function)(f32(5, 8))
        assert {row.line.partition(":")[0] for row in found.lines} == {"test_costs.py"}, found


def test_a_roofline_tells_what_bounds_each_line() -> None:
    def mixed(a: Any, b: Any) -> Any:
        c = a @ b
        return c + 1.0
    found = fxgrad.cost_analysis(mixed, flops=1e9, bandwidth=1e9)(f32(100, 100), f32(100, 100))
    assert [row.bound for row in found.lines] == ["compute", "memory"]
    assert found.lines[0].seconds == 2e6 / 1e9
    assert found.lines[1].seconds == 80_004 / 1e9  # with the number
    assert found.ridge == 1.0
    assert found.seconds == 2.01e6 / 1e9
    assert "bound by" in str(found)
    assert json.loads(found.to_json())["lines"][0]["bound"] == "compute"


def test_fusion_moves_fewer_bytes() -> None:
    def chain(x: Any) -> Any:
        return fnp.sum(fnp.tanh(x * 2.0 + 1.0))
    found = fxgrad.cost_analysis(chain)(f32(8192))
    assert found.bytes >= 7 * 4 * 8192
    assert found.fused_bytes == 4 * 8192 + 4
    in_two_steps = fxgrad.cost_analysis(chain)(f32(1000))  # as XLA has it: what is summed is stored, then 32 sums are
    assert in_two_steps.fused_bytes == 4000 + 2 * 4000 + 2 * 4 * 32 + 4
    looped = fxgrad.cost_analysis(lambda x: lax.fori_loop(0, 5, lambda _, c: fnp.sin(c) * 2.0 + 1.0, x))(f32(1000))
    assert looped.fused_bytes == 5 * 8000


def test_the_roofline_needs_both_numbers() -> None:
    message = ("cost_analysis: bandwidth is None, where a positive number is needed, that of one second; a roofline "
               "needs both. Write cost(f, flops=1e12, bandwidth=1e11)")
    with pytest.raises(ArgumentError, match=re.escape(message)):
        fxgrad.cost_analysis(np.sin, flops=1e9)
    with pytest.raises(ArgumentError, match="cost_analysis: flops is -1, where a positive number is needed"):
        fxgrad.cost_analysis(np.sin, flops=-1, bandwidth=1e9)
    with pytest.raises(ArgumentError, match=r"cost_analysis takes a function, got a int"):
        fxgrad.cost_analysis(3)  # type: ignore[arg-type]


# --- fusion ---------------------------------------------------------------------------------------------------


def layer(x: Any, w: Any, b: Any) -> Any:
    h = x @ w
    return np.maximum(h + b, 0.0) * 2.0


def test_row_c10_groups_are_shown_by_line_and_equation() -> None:
    found = fxgrad.tools.profiling.fusions(layer)(f32(64, 32), f32(32, 48), f32(48))
    number = {equation.primitive.name: index for index, equation in enumerate(found.program.equations)}
    group, = (group for group in found.of(number["max"]) if number["add"] in group.equations)
    assert number["mul"] in group.equations
    assert number["dot_general"] in found.of(number["dot_general"])[0].equations
    assert group.name in found.by_line[group.lines[0]]
    assert all(line.startswith("test_costs.py:") for line in found.by_line)
    assert [equation.scope for equation in found.grouped.equations][number["max"]] == group.name
    assert group.name in str(fxgrad.draw(found.grouped, view="network"))
    assert found.unfused_bytes > found.fused_bytes
    assert len(found) == len(found.groups)
    assert "operations in" in str(found)
    assert json.loads(found.to_json())["groups"][0]["name"] == found.groups[0].name


def test_row_c10_groups_are_drawn_with_the_bytes_that_they_move() -> None:
    found = fxgrad.tools.profiling.fusions(layer)(f32(64, 32), f32(32, 48), f32(48))
    number = {equation.primitive.name: index for index, equation in enumerate(found.program.equations)}
    group, = (group for group in found.of(number["max"]) if number["add"] in group.equations)
    alone, together = found.bytes_of(group)
    assert alone == sum(found.program.equations[each].cost.bytes for each in group.equations)
    inside = {output for each in group.equations for output in found.program.equations[each].outputs}
    entering = {atom for each in group.equations for atom in found.program.equations[each].inputs
                if isinstance(atom, fxgrad.Variable)} - inside
    leaving = inside & {*found.program.outputs, *(
        atom for each, equation in enumerate(found.program.equations) if each not in group.equations
        for atom in equation.inputs)}
    assert together == sum(variable.aval.nbytes for variable in entering | leaving) < alone
    scope = found.grouped_with_bytes.equations[number["max"]].scope
    assert re.fullmatch(rf"{re.escape(group.name)}: \S+ \S+ unfused, \S+ \S+ fused", scope), scope
    assert " fused]" in str(fxgrad.draw(found.grouped_with_bytes, view="network"))
    page = fxgrad.visualize(lambda x: np.sum(np.tanh(x * 2.0 + 1.0)))(np.ones(300, np.float32))
    graphs = json.loads(re.search(r'id="data">(.*?)</script>', page.html, re.DOTALL)[1])["graphs"]
    assert [graph["name"] for graph in graphs] == ["function", "gradient", "fused"]
    assert any("unfused" in item["label"] for item in graphs[2]["items"] if item["kind"] == "scope")


def test_row_c10_numpy_writes_over_what_is_needed_no_more() -> None:
    """NumPy computes an operation at a time, into arrays that are there: one array for four operations."""
    text = fxgrad.engine.executors.numpy.generate(fxgrad.make_program(layer)(f32(64, 32), f32(32, 48), f32(48)))[0]
    assert len(set(re.findall(r"(v\d+) =", text))) <= 2


def test_a_loop_is_one_group() -> None:
    found = fxgrad.tools.profiling.fusions(step)(f32(5, 5), f32(2, 5))
    assert "while" in {group.opcode for group in found}


def test_rows_by_operation_count_the_steps_of_loops() -> None:
    def powers(a):
        return fxgrad.lax.fori_loop(0, 5, lambda _, b: fnp.tanh(a @ b), a)
    found = fxgrad.cost_analysis(powers, by="operation")(f32(4, 4))
    rows = {row.line: row for row in found.lines}
    assert rows["dot_general"].operations == rows["tanh"].operations == 5
    assert sum(row.flops for row in found.lines) == found.flops
    assert '"operation": "dot_general"' in found.to_json()
    with pytest.raises(fxgrad.errors.ArgumentError,
                       match="cost_analysis: by='shape'; it is one of 'line', 'operation'"):
        fxgrad.cost_analysis(powers, by="shape")(f32(4, 4))
