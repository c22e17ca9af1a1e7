"""Functions whose control flow looks at values: each tool looks at the path of the values that it is given."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, make_program
from fxgrad.text import parse, program_text, side_by_side
from fxgrad.tools.profiling.fusion import fusions


def loss(x: Any) -> Any:
    if np.any(x > 1) and x[0] != 3:
        x = x * 2.0
    while np.sum(x) > 4:
        x = x / 2.0
    for _ in range(np.argmax(x)):
        x = np.sin(x)
    return np.sum(x[x > 0])


LINE = loss.__code__.co_firstlineno
HERE = [f"# here any(x > 1.0): True (test_value_paths.py:{LINE + 1})",
        f"# here x[0] != 3.0: True (test_value_paths.py:{LINE + 1})",
        f"# here sum(x_1) > 4.0: True, then False (test_value_paths.py:{LINE + 3})",
        f"# here argmax(x_2, axis=0, index_dtype=i32): 2 (test_value_paths.py:{LINE + 5})",
        f"# here x_4 > 0.0: [False, True, True] (test_value_paths.py:{LINE + 7})"]
x = np.array([-1.0, 1.5, 2.0])


def conditions(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("# here")]


@pytest.mark.parametrize("style", ["compact", "equations"])
def test_the_conditions_of_the_path_are_remarks(style: Any) -> None:
    for function in (loss, grad(loss), fxgrad.value_and_grad(loss)):
        program = make_program(function)(x)
        text = program_text(program, style=style)
        assert conditions(text) == HERE, text
        again = parse(text)
        assert not program.diff(again)
        assert not conditions(str(again))
    assert conditions(str(make_program(lambda x: np.sum(x))(x))) == []


def test_the_program_is_what_the_call_computes() -> None:
    for function in (loss, grad(loss), grad(lambda x: np.sum(grad(loss)(x) ** 2))):
        program = make_program(function)(x)
        np.testing.assert_array_equal(program(x), function(x))
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(program))(x), function(x))


def test_a_program_is_not_called_with_values_of_another_path() -> None:
    program = make_program(loss)(x)
    with pytest.raises(fxgrad.errors.ArgumentError) as raised:
        program(-x)
    assert str(raised.value).split("\n")[0] == (
        f"program: loss was traced with values for which Python's control flow goes another way than for these, at "
        f"test_value_paths.py:{LINE + 1} (in loss). Trace it again with these, or call the function")
    assert float(grad(lambda scale: program(x * scale))(1.0)) == pytest.approx(float(grad(
        lambda scale: loss(x * scale))(1.0)))
    with pytest.raises(fxgrad.errors.ConcretizationError, match="needs the value of a traced array"):
        jit(program)(x)


LOOKING: dict[str, Callable[..., Any]] = {
    "make_program": make_program, "graph": fxgrad.graph, "draw": fxgrad.draw, "explore": fxgrad.visualize,
    "cost": fxgrad.cost_analysis, "memory": fxgrad.memory_analysis, "lint": fxgrad.lint, "summary": fxgrad.tabulate,
    "fusions": fusions, "find_nan": fxgrad.debug.find_nan, "precision_report": fxgrad.debug.precision_report,
    "side_by_side": side_by_side, "backward_table": lambda f: lambda *args: fxgrad.graph(f)(*args).backward_table(),
    "granularities": fxgrad.compare_granularities, "budget_curve": fxgrad.budget_curve,
    "intermediate_grads": fxgrad.intermediate_grads}


@pytest.mark.slow
def test_all_tools_look_at_the_path() -> None:
    failed = []
    for name, tool in LOOKING.items():
        for function in (loss, grad(lambda x: np.sum(grad(loss)(x) * x))):
            try:
                str(tool(function)(x))
            except (fxgrad.errors.ArgumentError, fxgrad.errors.UnsupportedError) as error:
                if function is loss:  # some look at scalar functions alone
                    failed.append((name, error))
            except fxgrad.errors.ConcretizationError as error:
                failed.append((name, error))
    assert not failed, failed


def test_types_alone_have_no_path() -> None:
    struct = fxgrad.ShapeDtypeStruct(x.shape, x.dtype)
    message = (f"bool() needs the value of a traced array (bool[]) in loss, which is traced without values. It depends "
               f"on: x. Write fxgrad.numpy.where(condition, a, b) to choose between values, fxgrad.lax.cond, "
               f"while_loop or fori_loop to choose or repeat pieces of code, or make the argument static "
               f"(static_argnums). fxgrad.python_control_flow(f) compiles the `if`, `for` and `while` of f\n  at "
               f"test_value_paths.py:{LINE + 1} (in loss)")
    for name in ("make_program", "graph", "draw", "cost", "memory", "lint", "summary"):
        with pytest.raises(fxgrad.errors.ConcretizationError) as raised:
            LOOKING[name](loss)(struct)
        assert str(raised.value) == message, name
    for function in (jit(loss), fxgrad.vmap(loss)):
        with pytest.raises(fxgrad.errors.ConcretizationError):
            make_program(function)(x if function is not fxgrad.vmap else x[None])


def test_what_ships_programs_refuses_paths() -> None:
    program = make_program(loss)(x)
    ship: dict[str, Callable[[Any], Any]] = {
        "to_python": lambda it: it.to_python(), "to_c": lambda it: it.to_c(),
        "save": lambda it: fxgrad.save(io.BytesIO(), it), "export": lambda it: fxgrad.export(it)(),
        "to_onnx": lambda it: fxgrad.onnx.to_onnx(it)()}
    for name, make in ship.items():
        with pytest.raises(fxgrad.errors.UnsupportedError) as raised:
            make(program)
        assert str(raised.value).split("\n")[0] == (
            f"{name}: Python's control flow asks for values in loss, at test_value_paths.py:{LINE + 1} (in loss), so "
            "that its program is that of one path, and wrong for other values. Write fxgrad.lax.cond, while_loop or "
            "fori_loop, or fxgrad.numpy.where")
    for call in (lambda: fxgrad.save(io.BytesIO(), loss, x), lambda: fxgrad.export(loss)(x),
                 lambda: fxgrad.onnx.to_onnx(loss)(x)):
        with pytest.raises(fxgrad.errors.ConcretizationError, match="which is traced without values"):
            call()


def test_a_program_without_conditions_is_as_before() -> None:
    """Values are looked at where Python's control flow asks, and nowhere else: a mask is not taken apart."""
    def masked(x: Any) -> Any:
        return fxgrad.numpy.asarray(x).at[x > 0].set(0.0)

    struct = fxgrad.ShapeDtypeStruct(x.shape, x.dtype)
    assert not make_program(masked)(x).diff(make_program(masked)(struct))
