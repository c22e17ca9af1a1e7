#!/usr/bin/env python3
"""Writes docs/appendix/bridge-table.md: what imported jax functions become, from the cases of the tests.

With `--check` it only says whether the page would change.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
PAGE = ROOT / "docs" / "appendix" / "bridge-table.md"

import jax  # noqa: E402  (the path is set first)

from tests.comparison.arguments import DTYPES  # noqa: E402
from tests.comparison.cases.jax_alone import WITHOUT_CASE  # noqa: E402
from tests.comparison.libraries import LIBRARIES  # noqa: E402
from tests.support.origins import NOTHING, Origins, by_function  # noqa: E402

HEAD = """# What the bridge imports

`tools/bridge.py` wrote this page with jax {version}, from the cases of `tests/comparison`; other versions of jax trace
some functions to other equations. For each public function of jax it counts the equations that `fxgrad.from_jax` meets,
over the dtypes float32, float64, int32, bool and complex64 as far as jax accepts them, and says what they become (`-`:
the function computes nothing that could be traced).

`native`: all become operations of fxgrad. `opaque`: in the named dtypes these become equations `jax_call`, which jax
computes and differentiates; all others are native. `refused`: fxgrad lacks the dtype. The tests compare each imported
function with jax's: values, derivatives, `vmap` and `jit` (`tests/comparison/test_comparison.py`). One thing differs:
if a matrix has no such decomposition, NumPy arrays raise `numpy.linalg.LinAlgError`, as everywhere in fxgrad, and jax
returns NaN.

Of {met} equations {share:.2%} are native.
"""


def origin(found: dict[str, Origins]) -> str:
    """What one row says."""
    refused = {dtype: each.refused for dtype, each in found.items() if each.refused}
    if refused:
        reasons = dict.fromkeys(reason.split(" has ", 1)[-1].split(";")[0] for reason in refused.values())
        return f"refused in {', '.join(refused)}: {'; '.join(reasons)}"
    opaque = {dtype: ", ".join(sorted(each.opaque)) for dtype, each in found.items() if each.opaque}
    if opaque:
        names = dict.fromkeys(opaque.values())
        return "; ".join(f"opaque in {', '.join(dtype for dtype, each in opaque.items() if each == name)}: {name}"
                         for name in names)
    return "native" if found else "-"


def table(library: str, found: dict[str, dict[str, Origins]]) -> str:
    """The section of one library."""
    lines = [f"## {library}", "", "| name | equations | origin |", "|---|---|---|"]
    for name, each in found.items():
        said = WITHOUT_CASE.get(f"{library}.{name}") or origin(each)
        lines.append(f"| {name} | {sum(origins.met.total() for origins in each.values())} | {said} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    found = {library: by_function(library, DTYPES) for library in LIBRARIES}
    every = [origins for each in found.values() for dtypes in each.values() for origins in dtypes.values()]
    total = sum(every, NOTHING)
    met, opaque = total.met.total(), total.opaque.total()
    head = HEAD.format(version=jax.__version__, met=met, share=1 - opaque / met)
    return "\n".join([head, *(table(library, each) for library, each in found.items())])


def main() -> int:
    """Writes the page, or compares it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = page()
    if parser.parse_args().check:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
