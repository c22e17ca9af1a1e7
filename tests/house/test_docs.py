"""Every example in a docstring, the README and docs/ runs and prints what it shows; none is skipped."""

from __future__ import annotations

import ast
import contextvars
import doctest
import importlib
import inspect
import linecache
import re
from collections.abc import Callable, Iterator
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

ROOT = Path(__file__).resolve().parents[2]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
MODULES = sorted(path for path in (ROOT / "fxgrad").rglob("*.py") if path.name != "__main__.py")  # that one would run
PAGES = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if path.exists())
COMPILING = {
    *(f"fxgrad/{name}.py" for name in ("random/gamma", "random/discrete", "lax/special", "training/ode")),
    *(f"docs/{name}.md" for name in ("appendix/estimators", "guides/speed", "tutorials/control-flow",
                                     "tutorials/training"))}
"""Modules and pages whose examples compile for half a second and longer: the quick tier leaves them out."""
FENCE = re.compile(r"^(?P<indent> *)```python *\n(?P<code>.*?)^ *```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of Python in a page, and its first line (counted from 0)."""

    line: int
    code: str


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(text: str) -> Iterator[Block]:
    for match in FENCE.finditer(text):
        lines = match["code"].splitlines(keepends=True)
        yield Block(text.count("\n", 0, match.start("code")),
                    "".join(line.removeprefix(match["indent"]) for line in lines))


def _leave_unchecked(filename: str | None = None) -> None:
    """Stands for what looks at every file that was read, for a debugger."""


def run(test: doctest.DocTest) -> None:
    """Run the examples of `test` and compare their output with the text."""
    out = StringIO()
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    with mock.patch.object(linecache, "checkcache", _leave_unchecked):
        runner.run(test, out=out.write, clear_globs=False)
    assert not runner.failures, out.getvalue()


def run_page(path: Path) -> None:
    """Run the blocks of a page in order, as one session: those with prompts are compared, others only run.

    Consecutive blocks with prompts are one test, so that functions of earlier ones have a source.
    """
    session: dict[str, Any] = {"__name__": "__main__"}
    found = blocks(path.read_text(encoding="utf-8"))
    for prompts, together in groupby(found, lambda block: re.search(r"^>>> ", block.code, re.MULTILINE) is not None):
        examples: list[doctest.Example] = []
        for line, code in together:
            if not prompts:
                exec(compile(ast.increment_lineno(ast.parse(code), line), str(path), "exec"), session)
                continue
            for example in doctest.DocTestParser().get_examples(code, path.name):
                example.lineno += line
                examples.append(example)
        if prompts:
            test = doctest.DocTest(examples, session, path.name, str(path), 0, None)
            test.globs = session  # which is copied there
            run(test)


def isolated(function: Callable[..., None], *args: Any) -> None:
    """Call `function`; settings that examples make for their thread, such as the default dtype, and for jax are reset.

    With a folder of compiled programs, one test would get the scopes and lines of another's program.
    """
    settings = jax.config.values
    jax.config.update("jax_enable_compilation_cache", True)  # as for users, whom a page tells to name a folder for it
    jax.config.update("jax_compilation_cache_dir", None)
    reset_cache()  # jax looks at the settings once
    try:
        contextvars.copy_context().run(function, *args)
    finally:
        after = jax.config.values  # made anew whenever asked for
        changed = {name: value for name, value in settings.items() if after[name] != value}
        for name, value in changed.items():
            jax.config.update(name, value)
        reset_cache()


def docstring_tests(path: Path) -> list[doctest.DocTest]:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = finder.find(module, name)
    for key, value in vars(module).items():
        # Callable objects of our own (primitives, functions with rules) are found by no finder.
        if getattr(value, "__module__", None) == name and not inspect.isclass(value) and not inspect.isroutine(value) \
                and value.__doc__ is not type(value).__doc__:
            tests += finder.find(value, f"{name}.{key}", module)
    # What other modules attach to a class is tested in those modules.
    text = path.read_text(encoding="utf-8")
    return [test for test in tests if all(example.source.splitlines()[0] in text for example in test.examples)]


@pytest.mark.parametrize("path", [pytest.param(path, marks=[pytest.mark.slow] * (name_of(path) in COMPILING))
                                  for path in MODULES], ids=name_of)
def test_docstrings(path: Path) -> None:
    tests = docstring_tests(path)
    written = len(re.findall(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE))
    collected = sum(len(test.examples) for test in tests)
    assert collected == written, f"{written} examples are written in {name_of(path)}, and {collected} were found"
    for test in tests:
        isolated(run, test)


@pytest.mark.parametrize("path", [pytest.param(path, marks=[pytest.mark.slow] * (
    path.parent.name == "gallery" or name_of(path) in COMPILING)) for path in PAGES], ids=name_of)
def test_pages(path: Path) -> None:
    isolated(run_page, path)


def test_no_example_is_passed_over() -> None:
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in [*MODULES, *PAGES]}
    skipping = [name for name, text in texts.items() if "+SKIP" in text]
    assert not skipping, f"an example that does not run is text: take the prompts away in {skipping}"
    outside = [name_of(path) for path in PAGES if (text := texts[name_of(path)]).count(">>> ")
               != sum(block.code.count(">>> ") for block in blocks(text))]
    assert not outside, f"an example stands outside the blocks that begin with ```python in {outside}"


PAGE = """
```python
x = 2
```
- In a list:
  ```python
  >>> x + 1
  ANSWER
  ```
"""


def test_a_page_is_one_session(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("ANSWER", "3"))
    run_page(page)


@pytest.mark.parametrize("text", [PAGE.replace("ANSWER", "4"), "```python\nassert False\n```\n"])
def test_a_wrong_page_fails(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError):
        run_page(page)
