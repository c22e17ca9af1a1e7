"""Pictures as a browser draws them: texts fit into their boxes, and pictures to the right lead there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import screenshot
from tests.support.pictured import EXAMPLES

pytest.importorskip("graphlay")

# For each box of each picture: its name, and how far its texts reach beyond its shape, in pixels.
BEYOND = """[...document.querySelectorAll('svg')].flatMap((picture) => [...picture.querySelectorAll('.fxp-shape')].map(
  (shape) => {
    const box = shape.getBoundingClientRect(), texts = [...shape.parentElement.querySelectorAll('text')];
    const edges = texts.map((text) => text.getBoundingClientRect());
    return [texts.map((text) => text.textContent).join(' '), Math.max(
      ...edges.map((edge) => Math.max(box.left - edge.left, edge.right - box.right)))];
  }))"""


@pytest.mark.slow
@pytest.mark.parametrize("orientation", ["down", "right"])
def test_g11_texts_fit_into_their_boxes(browser: Any, orientation: str, tmp_path: Path) -> None:
    drawn = [str(example.draw(style="svg", orientation=orientation)) for example in EXAMPLES.values()]
    path = tmp_path / "pictures.html"
    path.write_text("<!doctype html><meta charset='utf-8'>" + "".join(f"<div>{each}</div>" for each in drawn))
    page = browser.new_page(viewport={"width": 1300, "height": 850})
    page.goto(path.as_uri())
    boxes = page.evaluate(BEYOND)
    screenshot(page, f"pictures-{orientation}", full_page=True)
    page.close()
    assert len(boxes) > 100
    assert [box for box in boxes if not box[1] <= 0] == []
