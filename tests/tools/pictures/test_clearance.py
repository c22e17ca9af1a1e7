"""Labels lie at their lines, lines keep out of foreign boxes, and no line crosses the title of a frame: measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.errors import ArgumentError
from fxgrad.tools.pictures import layout
from fxgrad.tools.pictures.clearance import FARTHEST, area_around, areas_overlap, crosses, distance
from tests.support.pictured import EXAMPLES, Example

pytest.importorskip("graphlay")


def newton(x: Any, steps: Any) -> Any:
    def far(state: Any) -> Any:
        return (abs(state[0] * state[0] - x) > 1e-4) & (state[1] < steps)

    def step(state: Any) -> Any:
        return 0.5 * (state[0] + x / state[0]), state[1] + 1

    return fxgrad.lax.while_loop(far, step, (x * 0.5 + 0.5, 0))[0]


def routed(x: Any, way: Any, scale: Any) -> Any:
    def through(carry: Any, row: Any) -> Any:
        chosen = fxgrad.lax.switch(way, [lambda v: v * scale, np.sin, lambda v: v + carry], row)
        return carry + chosen, np.sum(chosen)

    last, sums = fxgrad.lax.scan(through, x[0], x)
    return np.sum(last * scale) + np.sum(sums)


CONTROL = {"newton": Example(newton, (2.0, 10)), "routed": Example(routed, (np.ones((4, 3)), 1, 2.0)),
           "steps": Example(lambda x, y: fxgrad.lax.fori_loop(0, 4, lambda i, z: z * x + y, x), (1.0, 2.0))}
OPTIONS: list[dict[str, Any]] = [
    {}, {"view": "value"}, {"view": "op"}, {"view": "network"}, {"show": "joint"}, {"show": "backward"},
    {"expand": True}, {"view": "value", "derivatives": True}, {"show": "joint", "view": "value"},
    *({"orientation": "right", **more} for more in (
        {}, {"view": "value", "derivatives": True}, {"view": "network"}, {"show": "joint"}, {"expand": True}))]


@pytest.mark.slow
def test_pictures_of_the_corpus_are_clear() -> None:
    wrong: list[Any] = []
    seen = [0, 0, 0]
    for name, example in {**EXAMPLES, **CONTROL}.items():
        for options in OPTIONS:
            try:
                picture = example.draw(**options).picture
            except ArgumentError:  # what cannot be drawn so
                continue
            found = layout.place_picture(picture)
            for line, points, label in zip(picture.lines, found.lines, found.labels, strict=True):
                seen[0] += 1
                if options.get("orientation") == "right" and not line.is_upward:
                    source, target = found.boxes[line.source], found.boxes[line.target]
                    if source.x + source.width / 2 > target.x - target.width / 2:
                        wrong.append((name, options, line.ends, "does not lead to the right"))
                if line.label:
                    seen[1] += 1
                    area = area_around(label, layout.text_width(line.label, layout.BESIDE), layout.BESIDE)
                    wrong += [(name, options, line.label, "lies on", key) for key, box in found.boxes.items()
                              if areas_overlap(area, area_around((box.x, box.y), box.width, box.height))]
                    if distance(label, points) > FARTHEST:
                        wrong.append((name, options, line.label, "is far from its line"))
                wrong += [(name, options, line.ends, "goes through", key) for key, box in found.boxes.items()
                          if key not in line.ends
                          and crosses(points, area_around((box.x, box.y), box.width - 2, box.height - 2))]
            for cluster in picture.clusters:
                seen[2] += 1
                x, y = found.titles[cluster.key]
                area = x - 1, y - 0.9 * layout.TITLE, x + layout.text_width(cluster.title, layout.TITLE), y + 2
                frame = found.clusters[cluster.key]
                assert frame.x - frame.width / 2 < x < area[2] < frame.x + frame.width / 2
                if any(crosses(points, area) for points in found.lines):
                    wrong.append((name, options, cluster.title, "is crossed"))
    assert seen[0] > 2000, seen
    assert seen[1] > 600, seen
    assert seen[2] >= 18, seen
    assert not wrong, wrong


def test_few_boxes_are_looked_at_for_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def counted(*args: Any) -> bool:
        nonlocal count
        count += 1
        return crosses(*args)

    def chain(x: Any) -> Any:
        for _ in range(100):
            x = np.sin(x) * 1.5
        return x

    monkeypatch.setattr(layout, "crosses", counted)
    for orientation in ("down", "right"):
        picture = fxgrad.draw(chain, orientation=orientation)(np.ones(3)).picture
        layout.place_picture(picture)
        assert count < 8 * len(picture.lines)
        count = 0
