"""The layers: which modules may import which, which may import jax, and the head of every file of the package."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "fxgrad").rglob("*.py"))

# Bottom layer first. A module imports from its own layer and those below. A name stands for the module or package of
# that name and all that is in it; the longest name that fits a module gives its layer.
LAYERS = [
    ["engine", "engine.caches", "engine.lazy_names", "engine.pickling", "engine.units", "errors",
     "engine.user_lines", "engine.user_source", "engine.hints",
     "engine.pytorch_names", "engine.tracebacks", "engine.config", "engine.dtypes", "engine.tree",
     "tree_util"],
    ["engine.core"],
    ["engine.tracing"],
    ["engine.derivation"],
    ["engine.ops"],
    ["engine.analyses"],
    ["engine.transforms"],
    ["engine.executors"],
    ["engine.higher_order"],
    ["engine.rematerialization"],
    ["engine.parallel"],
    ["engine.frontend", "engine.rooms"],
    ["engine.transparency", "engine.store"],
    ["engine.api"],
    ["numpy"],
    ["lax", "sharding"],
    ["nn", "random", "image", "flatten_util"],
    ["scipy", "training"],
    ["extend"],
    ["interop", "typing"],
    ["text"],
    ["tools", "shipping", "training.autocast", "training.autocast_policies", "training.curvature",
     "testing"],
    ["tools.pictures", "tools.explorer", "shipping.exports", "debug", "tools.inside.stopping"],
    ["engine.control_flow", "tools.inside.watching"],
    ["interop.jax_modules"],
    ["__init__", "__main__", "tools.cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# Built on `fxgrad.extend` and the public API, with nothing of the engine: what inspects programs, changes or ships
# them.



ON_THE_LINE = ["text", "tools", "shipping", "training.autocast", "training.autocast_policies", "training.curvature"]

# Operations and transformations use jax only through the namespace that their rules are given.
MAY_IMPORT_JAX = ["debug", "engine.dtypes", "errors", "engine.tree", "tree_util", "engine.core.avals",
                  "engine.core.sizes", "engine.ops.xla_kernels", "engine.executors", "engine.parallel.meshes",
                  "engine.parallel.shardings", "sharding", "shipping.exports", "engine.frontend", "interop", "numpy",
                  "testing", "engine.api", "engine.store", "tools.retracing", "tools.profiling.benchmarking",
                  "shipping.onnx.definitions", "typing"]

# Slow to import or optional, so imported where they are used.
MAY_HIDE = {"rich", "matplotlib", "graphlay", "graphviz", "networkx", "tensorboard", "IPython",
            "scipy", "torch", "autograd", "onnx"}


class Import(NamedTuple):
    """One imported module, as a full dotted name; `hidden` inside a function, `typing` for annotations only.

    A name of the public API, `from fxgrad import grad`, is imported from where it lives, and `public`.
    """

    module: str
    line: int
    hidden: bool
    typing: bool
    public: bool = False


@cache
def module_name(path: Path) -> str:
    """Return `fxgrad.engine.tracing.tape` of its file; a package's own file is `fxgrad.engine.core.__init__`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


MODULES = {module_name(path) for path in FILES}


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@pytest.fixture(scope="module", autouse=True)
def _trees_are_dropped() -> Iterator[None]:
    """Drop the trees with the last test: the garbage collector would go through two million objects ever after."""
    yield
    tree_of.cache_clear()


@cache
def imports(path: Path) -> list[Import]:
    calls = "import_module(" in text_of(path) or "__import__(" in text_of(path)
    return list(_imports(tree_of(path), hidden=False, typing=False, inside=ast.AST if calls else STATEMENTS))


STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
"""In these alone are import statements: expressions, most of a file, need not be gone through."""


def _imports(node: ast.AST, hidden: bool, typing: bool, inside: Any = ast.AST) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(_own_file(alias.name), node.lineno, hidden, typing)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        for alias in node.names:
            if node.module == "fxgrad" and alias.name in (homes := homes_of_public_names()):
                yield Import(homes[alias.name], node.lineno, hidden, typing, public=True)
                continue
            inner = f"{node.module}.{alias.name}"
            is_module = inner in MODULES or f"{inner}.__init__" in MODULES
            yield Import(_own_file(inner if is_module else node.module or ""), node.lineno, hidden, typing)
    elif isinstance(node, ast.Call) and _imports_by_name(node.func) and (
            isinstance(node.args[0], ast.Constant)):  # names in tables, of what is loaded when asked for, do not count
        yield Import(node.args[0].value, node.lineno, True, typing)
    hidden |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    typing |= isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    for child in ast.iter_child_nodes(node):
        if isinstance(child, inside):
            yield from _imports(child, hidden, typing, inside)


def _imports_by_name(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "__import__"
    return isinstance(function, ast.Attribute) and function.attr == "import_module"


@cache
def homes_of_public_names() -> dict[str, str]:
    """Map each name of `fxgrad` to the module that it comes from; lazily loaded ones are listed there for typing."""
    homes: dict[str, str] = {}
    for node in ast.walk(tree_of(ROOT / "fxgrad" / "__init__.py")):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fxgrad"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = inner in MODULES or f"{inner}.__init__" in MODULES
                homes[alias.asname or alias.name] = _own_file(inner if is_module else node.module or "")
    return homes


def _own_file(name: str) -> str:
    return f"{name}.__init__" if f"{name}.__init__" in MODULES else name


def is_within(module: str, names: list[str]) -> bool:
    """Return whether `module` (with its leading `fxgrad.`) is one of `names` or inside one."""
    return any(f"{module}.".startswith(f"fxgrad.{name}.") for name in names)


def level(module: str) -> int:
    parts = module.removeprefix("fxgrad.").removesuffix(".__init__").split(".")
    fitting = [name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in LEVEL]
    assert fitting, f"{module} has no place in LAYERS in {Path(__file__).name}; give it one"
    return LEVEL[fitting[0]]


TOP = {".ci", ".gitignore", "LICENSE", "README.md", "docs", "examples", "fxgrad", "pyproject.toml", "tests", "tools"}


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="no clone")
def test_the_top_level_has_nothing_else() -> None:
    """Check that the top level has no stray file."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:  # as in a clone of another user's
        pytest.skip(listed.stderr)
    assert {name.partition("/")[0] for name in listed.stdout.splitlines()} == TOP


def test_the_page_names_every_part_of_every_layer() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    shown = page[page.index("## The layers"):page.index("`tests/house/test_layers.py` holds every import")]
    parts = [part for layer in LAYERS for part in layer if not part.startswith("__")]
    assert [part for part in parts if f"`{part}`" not in shown] == []


def upwards(path: Path, found: list[Import]) -> list[str]:
    """Return the imports of a file that go to a layer above its own."""
    return [f"{path}:{each.line} imports {each.module}" for each in found
            if each.module.split(".")[0] == "fxgrad" and level(each.module) > level(module_name(path))]


UPWARDS = ("""
docs/contributing.md has the layers. `import fxgrad` is written `from fxgrad import NAME`; a file built on fxgrad.extend
belongs into tools, shipping or text; one of the engine imports from the engine's own modules""")


def test_imports_go_downwards() -> None:
    wrong = [line for path in FILES for line in upwards(path, imports(path))]
    assert not wrong, "\n".join(wrong) + UPWARDS


def past_the_line(path: Path, found: list[Import]) -> list[str]:
    """Return the imports of the engine in a file that is built on the public line."""
    return [f"{path}:{each.line} imports {each.module}" for each in found
            if is_within(module_name(path), ON_THE_LINE) and not each.public and is_within(each.module, ["engine"])]


def test_what_looks_at_programs_is_built_on_the_public_line() -> None:
    """Check that tools take from the engine only what users can: names of `fxgrad.extend` and of the public API."""
    inside = [line for path in FILES for line in past_the_line(path, imports(path))]
    assert not inside, "\n".join(inside) + "\nimport it from fxgrad.extend, or give the line a name for it"


NEW_FILE = re.compile(r"new\s+file,\s+`(fxgrad/[^`]+)`.*?^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_guide_puts_its_files_where_their_imports_are_allowed() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    files = NEW_FILE.findall(page)
    assert len(files) == len(re.findall(r"new\s+file,\s+`fxgrad/", page)) >= 3
    wrong = [line for name, code in files for found in [list(_imports(ast.parse(code), hidden=False, typing=False))]
             for line in (*upwards(ROOT / name, found), *past_the_line(ROOT / name, found))]
    assert not wrong, "\n".join(wrong) + UPWARDS


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
              for found in imports(path) if found.hidden and found.module.split(".")[0] not in MAY_HIDE
              and not found.module.startswith(("jax.extend", "fxgrad.engine.api.sparse_matrices"))]
    assert not hidden, "\n".join(hidden)


def test_a_file_says_what_it_owns() -> None:
    silent = [str(path) for path in FILES
              if not (ast.get_docstring(tree_of(path)) or "").split("\n\n")[0].endswith(".")]
    assert not silent, f"these begin with no sentence on what they own: {silent}"


def test_only_tracing_knows_the_keys_of_the_table_of_recordings() -> None:
    of_tapes = {"node", "nodes"}
    others = [path for path in FILES if not is_within(module_name(path), [
        "engine.tracing", "engine.derivation", "tools", "shipping.onnx"])  # nodes of a graph
        and re.search(r"\bnodes?\b", text_of(path))]  # not all: going through a tree takes a while
    found = [f"{path}:{each.lineno} reads .{each.attr}" for path in others
             for each in ast.walk(tree_of(path)) if isinstance(each, ast.Attribute) and each.attr in of_tapes]
    assert not found, "\n".join(found) + "\nask `Tape.cache_get`, or the functions of `engine/tracing/op_cache.py`"


def test_the_reader_of_imports_sees_each_form() -> None:
    source = """
import jax.numpy as jnp
from fxgrad.engine import config, dtypes
from fxgrad.engine.core.avals import Aval
if TYPE_CHECKING:
    import fxgrad.engine.core
def function():
    from jax import lax
    importlib.import_module('fxgrad.engine.tracing.tape')
"""
    assert [found[:4] for found in _imports(ast.parse(source), hidden=False, typing=False)] == [
        ("jax.numpy", 2, False, False),
        ("fxgrad.engine.config", 3, False, False),
        ("fxgrad.engine.dtypes", 3, False, False),
        ("fxgrad.engine.core.avals", 4, False, False),
        ("fxgrad.engine.core.__init__", 6, False, True),
        ("jax", 8, True, False),
        ("fxgrad.engine.tracing.tape", 9, True, False),
    ]
    public, = _imports(ast.parse("from fxgrad import grad"), hidden=False, typing=False)
    assert public == Import("fxgrad.engine.api.reverse", 1, False, False, public=True)


@pytest.mark.slow
def test_tests_share_what_is_in_support_alone() -> None:
    """Check that a file of tests imports from `tests/support`, `samples` or `comparison`, not from another one."""
    found = [f"{path.relative_to(ROOT)}:{found.line} imports {found.module}" for path in (ROOT / "tests").rglob("*.py")
             for found in imports(path) if re.match(r"tests\.(.*\.)?test_", found.module)]
    assert not found, "\n".join(found)


WINGS = {"engine", "text", "tools", "training", "shipping"}


def test_tests_mirror_the_package() -> None:
    """Each folder of tests has the path of a room, or holds what concerns all; each room of a wing has one."""
    rooms = {path.relative_to(ROOT / "fxgrad") for path in (ROOT / "fxgrad").rglob("*")
             if path.is_dir() or path.suffix == ".py"}
    others = {"house", "support", "samples", "comparison", "commands", "__pycache__"}
    folders = {path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*") if path.is_dir()}
    strange = {str(path) for path in folders if path.parts[0] not in others and path.name not in others} - {
        str(path) for path in rooms}
    assert not {path for path in strange if "golden" not in path}
    of_wings = {path for path in rooms if len(path.parts) == 2 and path.parts[0] in WINGS
                and (ROOT / "fxgrad" / path / "__init__.py").exists()}
    bare = {str(path) for path in of_wings if not any((ROOT / "tests" / path).glob("test_*.py"))}
    assert not bare, f"these rooms have no tests of their own: {bare}"
    loose = {path.name for path in (ROOT / "tests").glob("test_*.py")}
    assert loose <= {f"test_{path.name}" for path in rooms}, f"these belong into a folder: {loose}"
