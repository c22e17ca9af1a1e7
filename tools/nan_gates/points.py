"""Singular points of operations, from the table in `fxgrad/engine/ops/singular.py`."""

from __future__ import annotations

import math

from fxgrad.engine.ops.singular import singular_points

POINT_HEAD = ("operation", "operands", "in", "first derivative", "second", "why")
_OPERANDS = ("the first", "the second")


def point_rows() -> list[list[str]]:
    """One row for each point."""
    return [[f"`{primitive}`", ", ".join(map(_number, point.operands)),
             "" if len(point.operands) == 1 else _OPERANDS[point.place], _number(point.first), _number(point.second),
             point.because or "the limit from within the domain"]
            for primitive, points in sorted(singular_points.entered().items(), key=lambda entry: entry[0].name)
            for point in points]


def _number(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return "NaN" if math.isnan(value) else f"{value:g}"
