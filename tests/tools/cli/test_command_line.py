"""The command line, on files as users write them: what it prints, what it writes, its status and its messages."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from rich.console import Console

import fxgrad
from fxgrad.tools.cli import main, parser
from fxgrad.tools.cli.arguments import CommandError, read_arguments, with_random_values
from fxgrad.tools.cli.exporting import FORMS
from tests.support import with_onnx

MODEL = '''\
import numpy as np


def loss(w, x):
    h = np.tanh(x @ w)
    return np.mean(h ** 2)


def trees(params, rate=0.1):
    return params["W"][0] * rate + params["b"]


def wrong(w):
    return w.shape_of


def branch(x):
    if x > 0:
        return x
    return -x


number = 3


def ends():
    raise SystemExit(0)


def on_devices(w, x):
    import fxgrad
    from jax.sharding import AbstractMesh, PartitionSpec as P

    def body(w, x):
        return fxgrad.lax.pmean(np.sum(np.tanh(x @ w)), "data")
    return fxgrad.shard_map(body, mesh=AbstractMesh((4,), ("data",)), in_specs=(P(), P("data")), out_specs=P())(w, x)
'''
ROOT = Path(__file__).resolve().parents[3]
TYPES = ["--args", "f32[3], f32[5,3]"]


class Result(NamedTuple):
    """What a command printed, said of mistakes, and returned."""

    output: str
    error: str
    status: int


class Commands:
    """Runs commands in a folder with a model."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *argv: str) -> Result:
        file = io.StringIO()
        status = main(argv, Console(file=file, width=100, highlight=False))
        return Result(file.getvalue(), self._capsys.readouterr().err, status)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "model", raising=False)
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    return Commands(capsys)


def test_show(run: Commands) -> None:
    assert run("show", "model.py:loss", *TYPES).output == """\
program loss(w: f32[3], x: f32[5,3]) -> f32:  # model.py
  h: f32[5] = tanh(x @ w)                     # 5
  return mean(h ** 2)                         # 6

where mean(x: f32[5]) -> f32:
  return sum(x) / 5.0
"""
    assert "tanh(a)" in run("show", "model.py:loss", *TYPES, "--style", "equations").output
    gradient = run("show", "model:loss", *TYPES, "-t", "grad", "--argnums", "0,1", "--no-source").output
    assert gradient.startswith("program grad(loss, [w, x])(w: f32[3], x: f32[5,3]):\n")
    assert run("show", "model.py:trees", "--args", '{"W": f32[3], "b": f32}', "-t", "vmap").status == 2  # b has no axis
    assert "params.W: f32[3]" in run("show", "model.py:trees", "--args", '{"W": f32[3], "b": f32}').output


def test_show_follows_the_path_of_values(run: Commands) -> None:
    shown = run("show", "model.py:branch", "--args", "2.0", "-t", "grad")
    assert (shown.output, shown.status) == ("""\
program grad(branch)(x: f64*):
  # here x > 0.0: True (model.py:18)
  return 1.0
""", 0)
    for suffix in (".py", ".c", ".onnx", ".fxgrad", ".exported"):
        refused = run("export", "model.py:branch", "--args", "2.0", "-o", f"made{suffix}")
        assert (refused.output, refused.status) == ("", 2)
        assert "Python's control flow asks for values in branch, at model.py:18 (in branch)" in refused.error, suffix


@pytest.mark.parametrize("command", ["cost", "memory"])
def test_what_an_encoding_lacks_is_replaced(command: str, run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", written)
    status = main([command, "model.py:loss", *TYPES])
    text = written.detach().getvalue().decode("ascii")  # type: ignore[attr-defined]
    monkeypatch.undo()
    assert (status, "??" in text) == (0, True)  # bars
    assert "total" in text or "arguments" in text


@pytest.mark.slow
def test_errors_do_not_name_the_script(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    script = tmp_path / "fxgrad-script"
    script.write_text("import sys\nfrom fxgrad.tools.cli import main\nsys.exit(main())\n", encoding="utf-8")
    found = subprocess.run([sys.executable, str(script), "show", "model.py:loss", *TYPES, "-t", "vmap"],
                           cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.startswith("fxgrad: vmap: ")
    assert "fxgrad-script" not in found.stderr


def test_programs_go_to_files_and_come_back(run: Commands, tmp_path: Path) -> None:
    assert run("show", "model.py:loss", *TYPES, "-o", "a.txt") == ("wrote a.txt\n", "", 0)
    assert run("show", "model.py:loss", *TYPES, "--style", "json", "-o", "a.json").status == 0
    assert run("check", "a.txt", "a.json") == ("2 of 2 programs are right\n", "", 0)
    assert run("diff", "a.txt", "a.json") == ("a.txt and a.json are the same program\n", "", 0)
    assert run("diff", "a.txt", "model.py:loss", *TYPES).status == 0
    other = run("diff", "a.txt", "model.py:loss", "--args", "f32[3], f32[6,3]")
    assert (other.status, "+ x: f32[6,3]" in other.output) == (1, True)
    assert run("python", "a.txt", "-o", "made.py").status == 0
    names: dict[str, object] = {}
    exec(compile((tmp_path / "made.py").read_text(), "made.py", "exec"), names)
    w, x = np.ones(3, np.float32), np.ones((5, 3), np.float32)
    assert names["loss"](w, x) == fxgrad.parse((tmp_path / "a.txt").read_text())(w, x)  # type: ignore[operator]


def test_programs_are_exported_by_the_ending_of_a_file(run: Commands, tmp_path: Path) -> None:
    sized = ("--args", "f32[3], f32[n,3]", "-t", "grad")
    assert run("export", "model.py:loss", *sized, "-o", "a.fxgrad").output == "wrote a.fxgrad: what fxgrad.load reads\n"
    assert run("show", "a.fxgrad").output.startswith("program grad(loss)(w: f32[3], x: f32[n,3]):")
    refused = run("export", "a.fxgrad", "-o", "a.exe")
    assert (refused.status, "Write one of\n  .fxgrad " in refused.error) == (2, True)


@pytest.mark.slow
def test_every_form_is_written(run: Commands, tmp_path: Path) -> None:
    w, x = np.linspace(0.1, 0.3, 3, dtype=np.float32), np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
    run("export", "model.py:loss", "--args", "f32[3], f32[n,3]", "-o", "n.fxgrad")
    expected = fxgrad.load(tmp_path / "n.fxgrad")(w, x)
    for ending in FORMS:
        assert run("export", "model.py:loss", *TYPES, "-o", f"a{ending}").status == 0
    assert run("export", "n.fxgrad", "-o", "n.exported", "--platforms", "cpu", "tpu").status == 0
    exported = fxgrad.export.deserialize((tmp_path / "n.exported").read_bytes())
    assert exported.platforms == ("cpu", "tpu")
    np.testing.assert_allclose(exported.call(w, x), expected, rtol=1e-6)
    names: dict[str, Any] = {}
    exec(compile((tmp_path / "a.py").read_text(), "a.py", "exec"), names)
    assert names["loss"](w, x) == expected
    model = onnx.load(tmp_path / "a.onnx")
    np.testing.assert_allclose(with_onnx.run(model, {"w": w, "x": x})[0], expected, rtol=1e-6)
    assert "tensor<5x3xf32>" in (tmp_path / "a.mlir").read_text()
    assert "\nvoid loss(const float *w, const float *x, " in (tmp_path / "a.c").read_text()
    run("export", "n.fxgrad", "-o", "n.mlir")
    assert "tensor<?x3xf32>" in (tmp_path / "n.mlir").read_text()


def test_check_says_what_is_wrong(run: Commands, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("program f(x: f32[3]) { y: f32[2] = sin(x) return y }")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    found = run("check", "bad.txt", "bytes.txt", "absent.txt")
    assert found.status == 1
    assert "bad.txt: line 1, column" in found.output
    assert "bytes.txt: bytes.txt is not a file of text, so no program" in found.output
    assert "absent.txt: absent.txt cannot be read: No such file or directory" in found.output
    assert found.output.endswith("0 of 3 programs are right\n")


def test_cost(run: Commands) -> None:
    shown = run("cost", "model.py:loss", *TYPES).output
    assert "model.py:5" in shown
    program = fxgrad.make_program(lambda w, x: np.mean(np.tanh(x @ w) ** 2))(
        np.ones(3, np.float32), np.ones((5, 3), np.float32))
    total = json.loads(run("cost", "model.py:loss", *TYPES, "--by", "operation", "--json").output)
    assert (total["flops"], total["bytes"]) == fxgrad.cost_analysis(program)
    assert sum(row["flops"] for row in total["lines"]) == total["flops"]
    assert {row["operation"] for row in total["lines"]} == {
        "dot_general", "tanh", "integer_pow", "reduce_sum", "div"}


def test_memory(run: Commands, tmp_path: Path) -> None:
    shown = run("memory", "model.py:loss", *TYPES, "-t", "grad").output
    assert "held at the peak, unfused" in shown
    assert "saved for the backward pass" in shown
    found = json.loads(run("memory", "model.py:loss", *TYPES, "-t", "grad", "--json").output)
    assert (found["arguments"], found["unfused"]["results"]) == (4 * (3 + 15), 4 * 3)
    assert "sub model.py:5" in [each["made_at"] for each in found["saved"]]


def test_cost_with_a_roofline(run: Commands) -> None:
    found = json.loads(run("cost", "model.py:loss", *TYPES, "--json", "--flops", "1e9", "--bandwidth", "1e6").output)
    assert found["ridge"] == 1000.0
    assert {line["bound"] for line in found["lines"]} == {"memory"}
    assert run("cost", "model.py:loss", *TYPES, "--flops", "1e9").status == 2


def test_cost_on_a_mesh_has_what_each_line_sends(run: Commands) -> None:
    types = ("--args", "f32[6], f32[8,6]")
    shown = run("cost", "model.py:on_devices", *types).output
    assert "each device sends 6 bytes over data" in shown
    total = json.loads(run("cost", "model.py:on_devices", *types, "--json").output)
    assert total["wire"] == {"data": 6}
    sending = {row["line"]: row["sent"] for row in total["lines"] if row["sent"]}
    assert [*sending.values()] == [6]
    assert next(iter(sending)).startswith("model.py:")
    assert sum(row["flops"] for row in total["lines"]) == total["flops"]


def test_graph(run: Commands) -> None:
    shown = run("graph", "model.py:loss", *TYPES, "--params", "w", "--nodes", "--random", "0").output
    assert "parameters         │ w" in shown
    assert "gradient" in shown
    found = json.loads(run("graph", "model.py:loss", *TYPES, "--json").output)
    assert (found["acyclic"], found["operations"], found["inputs"]) == (True, 4, ["w", "x"])
    assert [node["name"] for node in found["nodes"] if node["kind"] == "leaf"] == ["w", "x"]


def test_draw(run: Commands, tmp_path: Path) -> None:
    layers = run("draw", "model.py:loss", *TYPES, "--view", "network", "--params", "w").output
    assert all(name in layers for name in ("[tanh]", "[mean]", "f32[5,3]"))
    joint = run("draw", "model.py:loss", *TYPES, "--show", "joint", "--values", "--random", "0", "-o", "loss.svg")
    assert joint.output == "wrote loss.svg\n"
    assert (tmp_path / "loss.svg").read_text().startswith("<svg")
    assert run("draw", "model.py:loss", *TYPES, "--values").error == (
        "fxgrad: draw --values needs arrays in the place of types: --random 0\n")
    assert run("draw", "model.py:loss", *TYPES, "-o", "loss.jpg").error.startswith(
        "fxgrad: draw: a file that ends with '.jpg' is none of a picture")


def test_random_values_have_the_types_that_are_asked_for() -> None:
    given = read_arguments("f16[2], f32[3], f64[], i32[4], bool[5]")
    drawn = with_random_values(given, 0)
    assert [(each.shape, each.dtype) for each in drawn] == [(each.shape, each.dtype) for each in given]


def test_summary(run: Commands, tmp_path: Path) -> None:
    shown = run("tabulate", "model.py:loss", *TYPES).output
    assert "dot_general, tanh" in shown
    run("show", "model.py:loss", *TYPES, "-o", "a.txt")
    assert run("tabulate", "a.txt").error == (
        "fxgrad: tabulate needs a function: fxgrad cost and fxgrad graph take programs too\n")


def test_card(run: Commands) -> None:
    found = run("card", "floor")
    assert found.status == 0
    rows = {cells[0]: cells[1:] for line in found.output.splitlines() if "│" in line
            and (cells := [cell.strip() for cell in line.split("│")[1:-1]])[0]}
    assert rows["numpy"][:2] == ["entered", "np.floor"]
    assert rows["jvp"][0] == "refused"
    assert len(rows) > 50


def test_lint(run: Commands, tmp_path: Path) -> None:
    assert run("lint", "model.py:loss", *TYPES).output == "loss: nothing was found\n"
    (tmp_path / "naive.py").write_text("import numpy as np\n\n\ndef f(x):\n    return np.log(1 + np.exp(x))\n")
    found = run("lint", "naive.py:f", "--args", "f32[3]")
    assert found.status == 1
    assert "│ naive.py:5 │ overflow │ exp overflows for large x │ fxgrad.nn.softplus(x) │" in found.output
    assert run("lint", "naive.py:f", "--args", "f32[3]", "--ignore", "overflow").status == 0
    assert json.loads(run("lint", "naive.py:f", "--args", "f32[3]", "--json").output)[0]["line"] == "naive.py:5"
    (tmp_path / "deep.py").write_text("""\
import numpy as np


def network(weights, x):
    for w in weights:
        hidden = np.tanh(x @ w)
        x = x + 0.1 * np.sin(hidden) * x
    return np.sum(x)
""", encoding="utf-8")
    repeated, = json.loads(run("lint", "deep.py:network", "--args", "f32[96,4,4], f32[4]", "--json").output)
    assert (repeated["kind"], repeated["fault"]) == ("repeats", "96 copies of lines 6 to 7")
    refused = run("lint", "naive.py:f", "--args", "f32[3]", "--only", "nan")
    assert refused.error.startswith("fxgrad: lint: only=['nan']; the kinds")


def test_explore(run: Commands, tmp_path: Path) -> None:
    assert run("visualize", "model.py:loss", *TYPES, "--random", "0").output == (
        "wrote loss.html: open it in a browser\n")
    assert (tmp_path / "loss.html").read_text().startswith("<!doctype html>")


MISTAKES = {
    "no arguments": (["show", "model.py:loss"],
                     "model.py:loss takes w, x: say what they are like, such as --args 'f32[3], f32[3]'"),
    "no such function": (["show", "model.py:los"],
                         "model.py has no 'los'; its functions are branch, ends, loss, on_devices, trees, wrong"),
    "no function": (["show", "model.py:number"], "model.py:number is a int, where a function is needed"),
    "no such module": (["show", "nowhere:loss"],
                       ("nowhere cannot be imported: there is no module 'nowhere'. Run this where it is installed, or "
                       "write the path of a file, such as model.py:loss")),
    "no such file": (["show", "nowhere.py:loss"], "there is no file nowhere.py"),
    "no target": (["show", "loss"],
                  ("'loss' names no function and no file. Write MODULE:FUNCTION or FILE.py:FUNCTION, such as "
                  "model.py:loss, or the path of a printed program")),
    "no types": (["show", "model.py:loss", "--args", "f33"],
                 ("--args 'f33' cannot be read. Write types such as f32[100,20] or i32, numbers, and lists, tuples and "
                 "dicts of them: --args 'f32[100,20], {\"W\": f32[20,3], \"b\": f32[3]}, 0.1'")),
    "needs values": (["show", "model.py:branch", "--args", "f32"],
                     ("bool() needs the value of a traced array (bool[]) in branch, which is traced without values. It "
                     "depends on: x. Write fxgrad.numpy.where(condition, a, b) to choose between values, "
                     "fxgrad.lax.cond, while_loop or fori_loop to choose or repeat pieces of code, or make the "
                     "argument static (static_argnums). fxgrad.python_control_flow(f) compiles the `if`, `for` and "
                     "`while` of f\n  at model.py:18 (in branch)")),
    "raises": (["show", "model.py:wrong", "--args", "f32"],
               "AttributeError: 'Tracer' object has no attribute 'shape_of'\n  at model.py:14"),
    "no such primitive": (["card", "ad"], "there is no primitive 'ad'. Near to it: pad, and, add"),
    "nothing like a primitive": (["card", "?"], "there is no primitive '?'. docs/appendix/cards.md lists them"),
    "not a program": (["python", "model.py"],
                      ("model.py is a file of Python: say which of its functions. Write model.py:branch; its functions "
                       "are branch, ends, loss, on_devices, trees, wrong")),
    "wrong arguments": (["show", "model.py:loss", "--args", "f32, f32, f32"],
                        "TypeError: loss() takes 2 positional arguments but 3 were given"),
    "ends the process": (["show", "model.py:ends"], "SystemExit: 0\n  at model.py:27"),
    "a folder": (["show", ".:loss"], ". is no file of Python. Write FILE.py:FUNCTION, such as model.py:loss"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_a_sentence(case: str, run: Commands) -> None:
    argv, text = MISTAKES[case]
    assert run(*argv) == ("", f"fxgrad: {text}\n", 2)


def test_a_module_that_fails(run: Commands, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import numpy\n1 / 0\n")
    assert run("show", "broken.py:f").error == (
        "fxgrad: broken.py cannot be imported: ZeroDivisionError: division by zero\n  at broken.py:2\n")


def test_modules_that_cannot_be_imported(run: Commands, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "open.py").write_text("x = 1\ndef f(x:\n")
    (tmp_path / "part.py").write_text("from .model import loss\n")
    (tmp_path / "notes.ipynb").write_text("{}")
    for target, message in {
            "script.py:f": "script.py cannot be imported: SystemExit: 0\n  at script.py:2",
            "open.py:f": "open.py cannot be imported: SyntaxError: '(' was never closed\n  at open.py:2",
            "part.py:f": "part.py cannot be imported: ImportError: attempted relative import with no known parent "
                         "package\n  at part.py:1\n  Its package imports it: write MODULE:FUNCTION, such as "
                         "package.model:loss, in the folder that has the package",
            "notes.ipynb:f": "notes.ipynb is no file of Python. Write FILE.py:FUNCTION, such as model.py:loss"}.items():
        assert run("show", target) == ("", f"fxgrad: {message}\n", 2)


def test_programs_in_files_are_transformed(run: Commands, tmp_path: Path) -> None:
    assert run("export", "model.py:loss", *TYPES, "-o", "loss.fxgrad").status == 0
    shown = run("show", "loss.fxgrad", "-t", "grad").output
    assert shown.startswith("program grad(loss)(w: f32[3], x: f32[5,3])")
    assert "d_w" in shown
    assert run("export", "loss.fxgrad", "-t", "value_and_grad", "-o", "both.fxgrad").status == 0
    args = np.ones(3, "f"), np.ones((5, 3), "f")
    assert [np.shape(each) for each in fxgrad.load(tmp_path / "both.fxgrad")(*args)] == [(), (3,)]


def test_functions_are_named_as_python_names_them(run: Commands, tmp_path: Path) -> None:
    (tmp_path / "greek.py").write_text("def \u00b5(x): return x * 2\n", encoding="utf-8")
    assert run("show", "greek.py:\u00b5", "--args", "f32").status == 0


def test_arguments() -> None:
    types = read_arguments("f32[2,3], [i8, bool[4]], {'name': 'f32', 'x': c64[0]}, 1.5, None, bf16[2]")
    assert [str(leaf) for leaf in fxgrad.tree.leaves(types)] == [
        "ShapeDtypeStruct(shape=(2, 3), dtype=float32)", "ShapeDtypeStruct(shape=(), dtype=int8)",
        "ShapeDtypeStruct(shape=(4,), dtype=bool)", "f32", "ShapeDtypeStruct(shape=(0,), dtype=complex64)", "1.5",
        "ShapeDtypeStruct(shape=(2,), dtype=bfloat16)"]
    for text in ("f32[", "x", "f32[-1]", "__import__('os')"):
        with pytest.raises(CommandError, match=r"cannot be read|f32\[-1\] is no type"):
            read_arguments(text)


def command_names() -> list[str]:
    (subparsers,) = (action for action in parser._parser()._actions if isinstance(action, argparse._SubParsersAction))
    return list(subparsers.choices)


def test_the_page_has_every_command() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    rows = page[page.index("## Commands"):page.index("## Arguments")]
    missing = [name for name in command_names() if f"\n| `fxgrad {name}" not in rows]
    assert not missing, f"write a row for each in docs/reference/command-line.md: {missing}"


@pytest.mark.parametrize("command", ["", *command_names()], ids=lambda command: command or "no command")
def test_help_teaches_by_examples(command: str, run: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run(*command.split(), "--help")
    assert left.value.code == 0
    assert f"fxgrad {command or 'show'} " in capsys.readouterr().out.split("example", 1)[-1]


@pytest.mark.slow
def test_the_module_is_the_command_line() -> None:
    found = subprocess.run([sys.executable, "-m", "fxgrad", "--help"], capture_output=True, text=True, check=True,
                           timeout=120)
    assert "fxgrad show " in found.stdout.split("example", 1)[-1]
