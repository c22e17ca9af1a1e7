"""What users read of an error besides its message: a short traceback, and the names of cells of notebooks."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import config, errors

X = np.ones((3, 2))


def layer(x):
    return np.sum(x.reshape(7))


def loss(x):
    return layer(x) * 2.0


CALLS: dict[str, Callable[[], Any]] = {
    "grad": lambda: fxgrad.grad(loss)(X),
    "value_and_grad": lambda: fxgrad.value_and_grad(loss)(X),
    "vjp": lambda: fxgrad.vjp(loss, X),
    "jvp": lambda: fxgrad.jvp(loss, (X,), (X,)),
    "linearize": lambda: fxgrad.linearize(loss, X),
    "hessian": lambda: fxgrad.hessian(loss)(X),
    "jit": lambda: fxgrad.jit(loss)(X),
    "jit of grad": lambda: fxgrad.jit(fxgrad.grad(loss))(X),
    "vmap": lambda: fxgrad.vmap(loss)(X),
    "make_program": lambda: fxgrad.make_program(loss)(X),
    "scan": lambda: fxgrad.lax.scan(lambda carry, x: (loss(x), carry), 0.0, X),
    "value_and_hessian": lambda: fxgrad.value_and_hessian(loss)(X),
    "hvp": lambda: fxgrad.hvp(loss, (X,), (X,)),
    "linear_transpose": lambda: fxgrad.linear_transpose(loss, X),
    "odeint": lambda: fxgrad.odeint(lambda y, t: loss(y), X, np.linspace(0.0, 1.0, 3)),
    "saved_residuals": lambda: fxgrad.saved_residuals(loss, X),
    "print_saved_residuals": lambda: fxgrad.print_saved_residuals(loss, X),
    "policy_report": lambda: fxgrad.policy_report(loss, fxgrad.checkpoint_policies.nothing_saveable)(X),
    "budget_curve": lambda: fxgrad.budget_curve(loss)(X),
    "explain_transparency": lambda: fxgrad.explain_transparency(loss)(X),
    "graph": lambda: fxgrad.graph(loss)(X), "draw": lambda: fxgrad.draw(loss)(X),
    "intermediate_grads": lambda: fxgrad.intermediate_grads(loss)(X),
    "visualize": lambda: fxgrad.visualize(loss)(X), "lint": lambda: fxgrad.lint(loss)(X),
    "export": lambda: fxgrad.export(loss)(X), "to_jax": lambda: fxgrad.to_jax(loss)(X),
    "find_nan": lambda: fxgrad.debug.find_nan(loss)(X),
    "precision_report": lambda: fxgrad.debug.precision_report(loss)(X),
    "check_key_reuse": lambda: fxgrad.debug.check_key_reuse(loss)(X),
}
OF_VALUES: dict[str, Callable[[], Any]] = {
    "matmul": lambda: fnp.matmul(X, X), "solve": lambda: fnp.linalg.solve(X, X),
    "softmax": lambda: fxgrad.nn.softmax(X, axis=5), "logsumexp": lambda: fxgrad.scipy.special.logsumexp(X, axis=5),
}
PACKAGE = os.path.dirname(fxgrad.__file__)


def frames_of(call: Callable[[], Any]) -> list[FrameType]:
    with pytest.raises(errors.FxgradError) as caught:
        call()
    return [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]


def of_package(frames: list[FrameType]) -> list[FrameType]:
    return [frame for frame in frames if frame.f_code.co_filename.startswith(PACKAGE)]


@pytest.mark.parametrize("name", CALLS)
def test_frames_of_fxgrad_are_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        frames = frames_of(CALLS[name])
        ours = of_package(frames)
        assert len(ours) <= 2
        assert all(frame.f_locals.get("__tracebackhide__") for frame in ours)  # IPython and pytest show none of them
        assert frames[-1].f_code.co_filename == __file__  # it ends in the user's code
    monkeypatch.setattr(config, "traceback_filtering", False)
    assert len(of_package(frames_of(CALLS[name]))) > 4


@pytest.mark.parametrize("name", OF_VALUES)
def test_library_functions_of_values_show_one_hidden_frame(name: str) -> None:
    frame, = of_package(frames_of(OF_VALUES[name]))
    assert frame.f_locals["__tracebackhide__"]


def test_the_users_frames_stay() -> None:
    with pytest.raises(errors.ShapeError) as caught:
        fxgrad.jit(fxgrad.grad(loss))(X)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-2:] == ["loss", "layer"]


def test_the_frame_of_a_mistake_of_ours_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    broken.__code__ = broken.__code__.replace(co_filename=os.path.join(os.path.dirname(fxgrad.__file__), "broken.py"))
    with pytest.raises(ZeroDivisionError) as caught:
        fxgrad.grad(broken)(1.0)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "broken"


NOTEBOOK = """
import sys, traceback
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
run = lambda cell: shell.run_cell(cell, store_history=True, silent=False)
run("import numpy as np, fxgrad")
result = run("def f(x):\\n    y = x * 1.0\\n    y[0] = 2.0\\n    return y\\nfxgrad.grad(f)(np.ones(3))")
print(result.error_in_exec, file=sys.stderr)
print(len(traceback.extract_tb(result.error_in_exec.__traceback__)), file=sys.stderr)
"""


@pytest.mark.slow
def test_cells_of_notebooks_have_their_numbers() -> None:
    pytest.importorskip("IPython")
    environment = {**os.environ, "IPYTHONDIR": os.devnull, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, env=environment,
                          check=True)
    assert "on a traced array (f64[3]): traced arrays cannot change. Write y = y.at[0].set(2.0)\n" in done.stderr
    assert "  at In[2]:3 (in f)\n" in done.stderr
    assert int(done.stderr.splitlines()[-1]) <= 5


def test_cells_by_the_public_names_of_ipython(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiler:
        def format_code_name(self, name: str) -> tuple[str, str] | None:
            return ("Cell", "In[7]") if name == "<ipython-input-7-0123>" else None

    class Shell:
        compile = Compiler()

    class Notebook:
        get_ipython = staticmethod(Shell)

    monkeypatch.setitem(sys.modules, "IPython", Notebook)
    source = "def f(x):\n    return x[5]\ndef twice(key):\n    return normal(key) + normal(key)\n"
    linecache.cache["<ipython-input-7-0123>"] = (len(source), None, source.splitlines(keepends=True), "")
    space: dict[str, Any] = {"normal": fxgrad.random.normal}
    exec(compile(source, "<ipython-input-7-0123>", "exec"), space)
    with pytest.raises(errors.KeyReuseError, match=r"by bits at In\[7\]:4 \(in twice\), and by bits at In\[7\]:4 "):
        fxgrad.debug.check_key_reuse(space["twice"])(fxgrad.random.key(0))
    assert fxgrad.explain_store(space["f"])(np.ones(3)).functions == ("f, In[7]:1",)
    with pytest.raises(errors.IndexingError, match=r"at In\[7\]:2 \(in f\)"):
        fxgrad.grad(space["f"])(np.ones(3))
    with pytest.raises(errors.IndexingError, match=r"at test_tracebacks\.py:"):
        fxgrad.grad(lambda x: x[5])(np.ones(3))


def test_a_type_error_of_the_users_code_about_a_traced_array_says_what_to_ask() -> None:
    def total(x: Any) -> Any:
        if not isinstance(x, list | np.ndarray):
            raise TypeError(f"x must be an array, got {type(x)}")
        return np.sum(x)

    for transformed in (fxgrad.jit(total), fxgrad.grad(total)):
        with pytest.raises(TypeError, match=r"^x must be an array, got <class [\s\S]*Ask np.ndim\(x\)") as refused:
            transformed(np.ones(3))
        assert "jax" not in str(refused.value)
    assert fxgrad.jit(fxgrad.python_control_flow(total))(np.ones(3)) == 3.0
