"""Compiled programs name the user's lines: in what XLA is told of each operation, and in the errors they end with."""

from __future__ import annotations

import os
import re
import statistics
import traceback
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.extend
from fxgrad import lax
from fxgrad.engine.executors import failures
from fxgrad.engine.user_lines import is_user_file

HERE, LIBRARY = __file__, os.path.dirname(fxgrad.__file__)
X = np.array([0.5, -1.0, 2.0], "float32")


def line_of(function: Callable[..., Any], offset: int) -> int:
    return function.__code__.co_firstlineno + offset


def told_to_xla(function: Callable[..., Any], *args: Any) -> set[tuple[str, str, int]]:
    """The operation, the file and the line of all that is lowered and has an innermost place."""
    text = function.lower(*args).as_text(debug_info=True)
    locations = dict(re.findall(r"^#(loc\d+) = loc\((.*)\)$", text, re.M))

    def innermost(name: str) -> str:
        body = locations[name]
        inner = re.match(r"callsite\(#(loc\d+)|\"[^\"]*\"\(#(loc\d+)\)", body)
        return innermost(inner[1] or inner[2]) if inner else body

    found = set()
    for name, body in locations.items():
        operation = re.match(r'"([^"]*)"\(#loc', body)
        place = re.match(r'"([^"]*)":(\d+):', innermost(name))
        if operation and place:
            found.add((operation[1].rpartition("/")[2], place[1], int(place[2])))
    return found


def model(x: Any) -> Any:
    hidden = np.tanh(x)
    def body(carry: Any, row: Any) -> Any:
        return carry * row, np.cos(carry)
    carry, rows = lax.scan(body, hidden[0], x)
    return np.sum(np.exp(
        rows)) + carry


def test_every_operation_has_the_line_that_recorded_it() -> None:
    found = told_to_xla(fxgrad.jit(model), X)
    for operation, offset in (("tanh", 1), ("cos", 3), ("while", 4), ("exp", 5)):
        assert (operation, HERE, line_of(model, offset)) in found, operation
    assert not [each for each in found if each[1].startswith(LIBRARY)]
    backward = told_to_xla(fxgrad.jit(fxgrad.grad(model)), X)
    assert not [each for each in backward if each[1].startswith(LIBRARY)]
    lines = {line for operation, _, line in backward if operation == "mul"}
    assert {line_of(model, 1), line_of(model, 3)} <= lines


def test_compiled_text_has_no_file_of_the_library() -> None:
    text = fxgrad.jit(model).lower(X).compile().as_text()
    files = re.findall(r'^\d+ "(/.*)"$', text, re.M) or re.findall(r'source_file="([^"]*)"', text)
    assert HERE in files
    assert not [file for file in files if file.startswith(LIBRARY)]


def test_lines_of_expressions_over_several_lines_and_far_columns() -> None:
    """The table of positions is written by hand: numbers above 63 take several bytes in it."""
    code = "def far(x):\n" + "\n" * 500 + "    return " + "x + " * 40 + "np.sin(\n" + "\n" * 100 + "    x)\n"
    scope: dict[str, Any] = {"np": np}
    exec(compile(code, "far.py", "exec"), scope)
    text = fxgrad.jit(scope["far"]).lower(X).as_text(debug_info=True)
    assert re.search(r'loc\("far.py":502:171 to 603:6\)', text)


def fails(x: Any) -> Any:
    raise ZeroDivisionError("no numbers today")


def calls(x: Any) -> Any:
    y = x * 2.0
    return fxgrad.pure_callback(fails, jax.ShapeDtypeStruct(x.shape, x.dtype), y)


def acts(x: Any) -> Any:
    return fxgrad.io_callback(fails, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@pytest.mark.parametrize(("function", "what", "offset"), [(calls, "pure_callback", 2), (acts, "io_callback", 1)])
def test_what_a_callback_raises_is_raised(function: Any, what: str, offset: int) -> None:
    compiled = fxgrad.jit(function)
    for _ in range(2):  # the second by the plan
        with pytest.raises(ZeroDivisionError, match=r"no numbers today") as caught:
            np.asarray(compiled(X))
        assert caught.value.__notes__ == [
            (f"  in {what}, called by a compiled program at test_user_lines.py:{line_of(function, offset)} "
             f"(in {function.__name__})")]
        frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert frames[-1] == "fails"


def wrong_shape(x: Any) -> Any:
    return fxgrad.pure_callback(lambda x: x[:2], jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def test_wrong_results_of_callbacks_name_the_call() -> None:
    with pytest.raises(fxgrad.errors.ShapeError) as caught:
        np.asarray(fxgrad.jit(wrong_shape)(X))
    assert str(caught.value) == ("pure_callback: function returned an array of shape (2,) at output, where "
                                 "result_shape_dtypes has (3,)")
    assert caught.value.__notes__ == [
        ("  in pure_callback, called by a compiled program at "
         f"test_user_lines.py:{line_of(wrong_shape, 1)} (in wrong_shape)")]


def logs(x: Any) -> Any:
    y = x * 1.0
    return np.sum(
        np.log(y))


def divides(x: Any) -> Any:
    return x / (x - x)


@pytest.mark.parametrize("function", [fxgrad.jit(logs), fxgrad.jit(fxgrad.value_and_grad(lambda x: logs(x)))])
def test_debug_nans_names_the_line(function: Any) -> None:
    with fxgrad.debug_nans(), pytest.raises(FloatingPointError) as caught:
        function(X)
    assert str(caught.value) == (
        f"NaN in the result of log, in a compiled program\n  at test_user_lines.py:{line_of(logs, 3)} (in logs)")


def test_debug_infs_names_the_line() -> None:
    with fxgrad.debug_infs(), pytest.raises(FloatingPointError) as caught:
        fxgrad.jit(divides)(X)
    assert str(caught.value) == (
        f"infinity in the result of div, in a compiled program\n  at test_user_lines.py:{line_of(divides, 1)} "
        "(in divides)")


def broken(x: Any) -> Any:
    return fxgrad.bind(broken_p, x * 2.0)[0]


broken_p = fxgrad.Primitive(
    "broken", abstract=lambda x: [x], numpy=lambda x: [x], xla=lambda lax, x: [lax.dot(x, lax.full((7,), 1.0))],
    jvp=fxgrad.NO_TANGENT, transpose=fxgrad.NOT_LINEAR,
    batch=fxgrad.extend.TODO("a test"), cost=lambda x: fxgrad.Cost(0, 0))


def test_what_jax_refuses_is_refused_with_the_line() -> None:
    with pytest.raises(ValueError, match=r"jax\.lax\.dot") as caught:
        fxgrad.jit(broken)(X)
    assert f"  at test_user_lines.py:{line_of(broken, 1)} (in broken)" in caught.value.__notes__


def wide(x: Any) -> Any:
    y = fxgrad.numpy.broadcast_to(x, (1000, 3))
    return np.sum(y * y[:, :1])


def test_out_of_memory_names_the_largest_values(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, message = fxgrad.jit(wide), "RESOURCE_EXHAUSTED: Out of memory allocating 12000 bytes."

    def exhausted(*_: Any) -> None:
        raise jax.errors.JaxRuntimeError(message)

    monkeypatch.setattr("fxgrad.engine.api.jitted_functions.run", exhausted)
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        compiled(X)
    assert str(caught.value) == message
    note = "\n".join(caught.value.__notes__).splitlines()
    assert note[0] == "  The largest values that the program makes:"
    assert f"    f32[1000,3] = mul, 12,000 bytes, at test_user_lines.py:{line_of(wide, 2)} (in wide)" in note
    assert note[-1] == ("  Write fxgrad.memory_analysis(f)(*args) to see what is alive at the peak; "
                        "fxgrad.checkpoint(f), or grad(f, memory_budget=...), keeps less")


def test_errors_of_callbacks_are_told_apart() -> None:
    first, second = ValueError("one"), ValueError("two")
    failures.note_callback_error(first, "pure_callback", "")
    failures.note_callback_error(second, "pure_callback", "")
    of = jax.errors.JaxRuntimeError("INTERNAL: CpuCallback error calling callback: ... ValueError: one")
    assert failures.translate_error(of) is first
    other = jax.errors.JaxRuntimeError("INTERNAL: something else")
    assert failures.translate_error(other) is other
    assert failures.translate_error(jax.errors.JaxRuntimeError("ValueError: two")) is second


def test_installed_packages_and_pythons_modules_are_not_the_users() -> None:
    """Debian and Colab install into dist-packages."""
    installed = ["/usr/lib/python3/dist-packages/numpy/linalg/_linalg.py", statistics.__file__, np.__file__,
                 "/usr/local/lib/python3.12/dist-packages/jax/_src/core.py", lax.__file__]
    assert [file for file in installed if is_user_file(file)] == []
    assert [file for file in (HERE, "<stdin>", "/home/me/model.py") if not is_user_file(file)] == []


@pytest.mark.parametrize("call", [
    lambda: lax.conv_general_dilated(np.ones((1, 1, 4)), np.ones((1, 2, 2)), (1,), "SAME"),
    lambda: fxgrad.numpy.sin(fxgrad.random.key(0)),
    lambda: fxgrad.numpy.zeros(2, "S3"),
    lambda: fxgrad.numpy.bitwise_count(1.5),
    lambda: fxgrad.numpy.linalg.cond(np.ones(3)),
    lambda: lax.ragged_dot(np.ones((2, 3)), np.ones((2, 3)), np.ones(3, int)),
], ids=["a kernel", "a promotion", "a dtype", "a kind of dtypes", "a matrix", "groups"])
def test_errors_of_functions_called_on_values_name_the_line(call: Any) -> None:
    with pytest.raises(fxgrad.errors.FxgradError) as caught:
        call()
    assert str(caught.value).count(f"\n  at {os.path.basename(HERE)}:{call.__code__.co_firstlineno} (in <lambda>)") == 1
