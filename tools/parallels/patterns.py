"""The patterns by name, each twice: the example as it is, and the same text with jax in the place of fxgrad."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "parallel"


class Pattern(NamedTuple):
    """A function of an example that makes a step for a mesh: what it shows, and the sizes at which it is measured."""

    title: str
    module: str
    function: str = "parallel"
    measured: dict[str, int] = {}  # noqa: RUF012  (given to `types`, never changed)

    @property
    def ours(self) -> ModuleType:
        """The example."""
        return example(self.module)

    def step(self, mesh: Any) -> Callable[..., Any]:
        """fxgrad's function from parameters and batch to loss and gradients."""
        made: Callable[..., Any] = getattr(self.ours, self.function)(mesh)
        return made

    def jax_step(self, mesh: Any) -> Callable[..., Any]:
        """The same of jax's."""
        made: Callable[..., Any] = getattr(with_jax(self.module), self.function)(mesh)
        return made


PATTERNS = {
    "data": Pattern("data parallel", "data_parallel", measured={"width": 128, "rows": 16}),
    "fully sharded": Pattern("fully sharded", "fully_sharded", measured={"width": 128, "layers": 8, "rows": 16}),
    "tensor": Pattern("tensor parallel", "tensor_parallel", measured={"width": 128, "rows": 4, "length": 64}),
    "GPipe": Pattern("pipeline, all forward and then all back", "pipeline", "gpipe",
                     measured={"width": 64, "microbatches": 32, "rows": 8}),
    "1F1B": Pattern("pipeline, each back as soon as it is through", "pipeline", "one_forward_one_back",
                    measured={"width": 64, "microbatches": 32, "rows": 8}),
    "ring attention": Pattern("sequences in pieces", "ring_attention",
                              measured={"width": 64, "heads": 4, "length": 64}),
    "experts": Pattern("experts", "experts", measured={"width": 64, "count": 64}),
    "transformer": Pattern("all of it on 2 x 2 x 2", "transformer",
                           measured={"width": 64, "layers": 4, "rows": 4, "length": 32, "words": 64, "size": 16}),
}


def example(name: str) -> ModuleType:
    """The module of an example."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


def with_jax(name: str) -> ModuleType:
    """The module of an example with jax in the place of fxgrad, whose names it has."""
    twin = f"{name}_of_jax"
    if twin not in sys.modules:
        example("setting")
        path = EXAMPLES / f"{name}.py"
        made = ModuleType(twin)
        made.__file__ = str(path)
        sys.modules[twin] = made
        text = translated(path.read_text(encoding="utf-8"))
        for other in re.findall(r"^from (\w+)_of_jax import", text, re.MULTILINE):
            with_jax(other)
        exec(compile(text, f"{path} with jax", "exec"), made.__dict__)  # noqa: S102  (the text is ours)
    return sys.modules[twin]


def translated(text: str) -> str:
    """The text of an example as jax's: other imports, nothing to import from jax, and the twins of other examples."""
    text = re.sub(r"\bfxgrad\.from_jax\(([\w.]+)\)", r"\1", text)
    text = re.sub(r"^from (?!setting)([a-z_]+) import", lambda match: f"from {match[1]}_of_jax import"
                  if (EXAMPLES / f"{match[1]}.py").exists() else match[0], text, flags=re.MULTILINE)
    return re.sub(r"\bfxgrad\b", "jax", text)
