"""The house: who may import whom, who may import jax, and what every file of the package has at its top."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "fxgrad").rglob("*.py"))

# From the ground up. A module imports from its own layer and those below. A name stands for the module or package of
# that name and all that is in it.
LAYERS = [
    ["caches", "shared_state", "timing", "units", "errors", "written", "advice", "pytorch_names", "tracebacks",
     "config", "dtypes", "tree", "tree_util"],
    ["core"],
    ["tracing"],
    ["derivation"],
    ["ops"],
    ["analyses"],
    ["transforms"],
    ["executors"],
    ["control"],
    ["budgets"],
    ["parallel"],
    ["frontend"],
    ["numpy"],
    ["lax"],
    ["nn", "random", "image", "segment", "flatten_util", "optim"],
    ["scipy"],
    ["checkpoint_policies", "debug", "editing", "show", "interop", "testing"],
    ["api", "custom_batching", "custom_derivatives", "sharding", "ad_checkpoint", "ffi", "stages", "test_util",
     "typing"],
    ["graphs", "granularity", "simulation", "nan_origins", "ode", "distributions", "stochastic", "stable", "files",
     "specs", "precision", "autocast_policies", "loss_scaling", "safe_derivatives", "xray", "retracing",
     "benchmarking", "onnx", "experimental"],
    ["pictures", "explorer", "exports"],
    ["__init__", "__main__", "cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# Operations and transformations speak of jax only through the namespace that their rules are given.
MAY_IMPORT_JAX = ["ad_checkpoint", "debug", "dtypes", "errors", "ffi", "tree", "tree_util",
                  "core.avals", "core.sizes", "ops.xla_kernels", "executors", "parallel.meshes", "parallel.shardings",
                  "sharding", "exports", "frontend", "interop", "numpy", "testing", "api", "retracing", "benchmarking",
                  "onnx.definitions", "experimental.mesh_utils", "stages", "typing"]

# Slow to import or not always there, so imported where they are used.
MAY_HIDE = {"rich", "matplotlib", "graphlay", "graphviz", "networkx", "tensorboard", "IPython",
            "scipy", "torch", "autograd", "onnx"}

FILE_LIMIT = 420
FUNCTION_LIMIT = 44  # lines, without the docstring
LONG_FUNCTIONS = {"elementwise"}  # a record of seven rules that share what it is given


class Import(NamedTuple):
    """One imported module, as a full dotted name; `hidden` inside a function, `typing` for annotations only."""

    module: str
    line: int
    hidden: bool
    typing: bool


def module_name(path: Path) -> str:
    """`fxgrad.tracing.tape` of its file; a package's own file is `fxgrad.core.__init__`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


MODULES = {module_name(path) for path in FILES}


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def imports(path: Path) -> list[Import]:
    return list(_imports(tree_of(path), hidden=False, typing=False))


def _imports(node: ast.AST, hidden: bool, typing: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(_own_file(alias.name), node.lineno, hidden, typing)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            is_module = inner in MODULES or f"{inner}.__init__" in MODULES
            yield Import(_own_file(inner if is_module else node.module or ""), node.lineno, hidden, typing)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("__import__", "importlib.import_module"):
        yield Import(ast.unparse(node.args[0]).strip("'\""), node.lineno, True, typing)
    hidden |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    typing |= isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, hidden, typing)


def _own_file(name: str) -> str:
    return f"{name}.__init__" if f"{name}.__init__" in MODULES else name


def is_within(module: str, names: list[str]) -> bool:
    """Whether `module` (with its leading `fxgrad.`) is one of `names` or inside one."""
    return any(f"{module}.".startswith(f"fxgrad.{name}.") for name in names)


def level(module: str) -> int:
    part = module.split(".")[1]
    assert part in LEVEL, f"{module} has no place in LAYERS in {Path(__file__).name}; give it one"
    return LEVEL[part]


TOP = {".ci", ".gitignore", "LICENSE", "README.md", "docs", "examples", "fxgrad", "pyproject.toml", "tests", "tools"}


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="no clone")
def test_the_top_level_has_nothing_else() -> None:
    """No file that somebody left behind."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:  # as in a clone of another user's
        pytest.skip(listed.stderr)
    assert {name.partition("/")[0] for name in listed.stdout.splitlines()} == TOP


def test_the_page_names_every_part_of_every_layer() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    shown = page[page.index("## The layers"):page.index("`tests/house/test_layers.py` holds every import")]
    parts = [part for layer in LAYERS for part in layer if not part.startswith("__")]
    assert [part for part in parts if f"`{part}`" not in shown] == []


def test_imports_go_downwards() -> None:
    upwards = [f"{path}:{found.line} imports {found.module}" for path in FILES for found in imports(path)
               if found.module.split(".")[0] == "fxgrad" and level(found.module) > level(module_name(path))]
    assert not upwards, "\n".join(upwards)


def test_imports_have_no_cycles() -> None:
    graph = {module_name(path): {found.module for found in imports(path) if not found.typing} & MODULES
             for path in FILES}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


def test_imports_of_jax() -> None:
    found = [f"{path}:{found.line} imports {found.module}" for path in FILES for found in imports(path)
             if found.module.split(".")[0] in ("jax", "jaxlib") and not is_within(module_name(path), MAY_IMPORT_JAX)]
    assert not found, "\n".join(found)
    private = [str(path) for path in FILES if "jax._src" in text_of(path)]
    assert not private, f"only public names of jax: {private}"


def test_imports_stand_at_the_top() -> None:
    hidden = [f"{path}:{found.line} imports {found.module} inside a function" for path in FILES
              for found in imports(path) if found.hidden and found.module.split(".")[0] not in MAY_HIDE]
    assert not hidden, "\n".join(hidden)


def test_a_file_says_what_it_owns_and_is_short() -> None:
    silent = [str(path) for path in FILES
              if not (ast.get_docstring(tree_of(path)) or "").split("\n\n")[0].endswith(".")]
    assert not silent, f"these begin with no sentence on what they own: {silent}"
    lines = {str(path): len(text_of(path).splitlines()) for path in FILES}
    assert not {path: count for path, count in lines.items() if count > FILE_LIMIT}, f"more than {FILE_LIMIT} lines"


def length(function: ast.FunctionDef) -> int:
    """Lines of a function without its docstring."""
    def lines(node: ast.stmt) -> int:
        return (node.end_lineno or node.lineno) - node.lineno + 1

    return lines(function) - (lines(function.body[0]) if ast.get_docstring(function) is not None else 0)


def test_functions_are_short() -> None:
    long = {each.name: length(each) for path in FILES for each in ast.walk(tree_of(path))
            if isinstance(each, ast.FunctionDef) and length(each) > FUNCTION_LIMIT}
    assert long.keys() == LONG_FUNCTIONS, f"of more than {FUNCTION_LIMIT} lines: {long}"


def test_only_tracing_knows_the_keys_of_the_table_of_recordings() -> None:
    of_tapes = {"node", "nodes"}
    others = [path for path in FILES if not is_within(module_name(path), [
        "tracing", "derivation", "graphs", "granularity", "pictures", "explorer", "onnx", "cli"])]  # nodes of a graph
    found = [f"{path}:{each.lineno} reads .{each.attr}" for path in others
             for each in ast.walk(tree_of(path)) if isinstance(each, ast.Attribute) and each.attr in of_tapes]
    assert not found, "\n".join(found) + "\nask `Tape.recall`, or the functions of `tracing/recall.py`"


def test_the_reader_of_imports_sees_each_form() -> None:
    source = """
import jax.numpy as jnp
from fxgrad import config, errors
from fxgrad.core.avals import Aval
if TYPE_CHECKING:
    import fxgrad.core
def function():
    from jax import lax
    importlib.import_module('fxgrad.tracing.tape')
"""
    assert [tuple(found) for found in _imports(ast.parse(source), hidden=False, typing=False)] == [
        ("jax.numpy", 2, False, False),
        ("fxgrad.config", 3, False, False),
        ("fxgrad.errors", 3, False, False),
        ("fxgrad.core.avals", 4, False, False),
        ("fxgrad.core.__init__", 6, False, True),
        ("jax", 8, True, False),
        ("fxgrad.tracing.tape", 9, True, False),
    ]


def test_tests_share_what_is_in_support_alone() -> None:
    """A file of tests imports from `tests/support`, `samples` or `comparison`, and not from another file of tests."""
    found = [f"{path.relative_to(ROOT)}:{found.line} imports {found.module}" for path in (ROOT / "tests").rglob("*.py")
             for found in imports(path) if re.match(r"tests\.(.*\.)?test_", found.module)]
    assert not found, "\n".join(found)


def test_tests_mirror_the_package() -> None:
    """Each folder of tests has the name of a room, or holds what concerns the whole house."""
    rooms = {path.name for path in (ROOT / "fxgrad").iterdir() if path.is_dir() or path.suffix == ".py"}
    others = {"house", "support", "samples", "comparison", "tools", "__pycache__"}
    strange = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - rooms - others
    assert not strange
    loose = {path.name for path in (ROOT / "tests").glob("test_*.py")}
    assert loose <= {f"test_{name}" for name in rooms}, f"these belong into a folder: {loose}"
