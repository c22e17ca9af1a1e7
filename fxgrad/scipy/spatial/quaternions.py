"""Arithmetic of quaternions (x, y, z, w), along the last axis of arrays."""

from __future__ import annotations

from typing import Any

from fxgrad import numpy as fnp


def normalize(quat: Any) -> Any:
    """Return `quat` divided by its norm."""
    return quat / fnp.sqrt(fnp.sum(quat * quat, -1, keepdims=True))


def canonical_sign(quat: Any) -> Any:
    """Return the quaternion of a rotation with w > 0; if w is zero, with the first nonzero one of x, y, z positive."""
    signs = fnp.sign(quat)
    deciding = signs[..., 2]
    for place in (1, 0, 3):
        deciding = fnp.where(signs[..., place] == 0, deciding, signs[..., place])
    return fnp.where(deciding[..., None] < 0, -quat, quat)


def product(left: Any, right: Any) -> Any:
    """Return Hamilton's product: first `right`, then `left`."""
    x, y, z, w = (left[..., place] for place in range(4))
    i, j, k, r = (right[..., place] for place in range(4))
    return fnp.stack([w * i + x * r + y * k - z * j, w * j - x * k + y * r + z * i,
                      w * k + x * j - y * i + z * r, w * r - x * i - y * j - z * k], -1)
