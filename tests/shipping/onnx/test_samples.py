"""A law over all primitives: what has a form in ONNX, onnxruntime computes as fxgrad does; the page says which."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fxgrad.engine.rooms import registry
from fxgrad.shipping.onnx.rules import onnx_rules
from tests.samples import all_samples
from tests.support.onnx_samples import run_samples

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

from onnx_gates.table import HEAD, cells  # noqa: E402  (the path is set first)
from pages import DOCS, has, markdown  # noqa: E402


def test_some_primitives() -> None:
    samples = all_samples()
    for name in ("add", "reduce_max", "shift_right_arithmetic"):
        assert run_samples(registry[name], samples[registry[name]][:6]).equal == 6, name


@pytest.mark.slow
def test_every_primitive() -> None:
    """Of each, the samples that are not refused are equal, and the table stands on the page."""
    rows = [run_samples(primitive, samples)
            for primitive, samples in sorted(all_samples().items(), key=lambda item: item[0].name)]
    for row in rows:
        refused = onnx_rules.known(row.primitive).state == "refused"
        assert bool(refused) == (row.equal == 0), row
        assert refused or not row.refusals, row
    page = DOCS / "appendix" / "onnx.md"
    assert has(page, "primitives", markdown(HEAD, [*map(cells, rows)])), "run tools/onnx --page"
