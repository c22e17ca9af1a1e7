"""Rotations in three dimensions and their interpolation, as in jax.scipy.spatial.transform and SciPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad import numpy as fnp
from fxgrad import random
from fxgrad.engine.frontend.operands import inexact_operands, refuse_complex, shape_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.scipy.spatial.quaternions import canonical_sign, normalize, product

__all__ = ["Rotation", "Slerp"]

_SERIES = 1e-6
"""Squares of angles below which ratios of sines are the first terms of their series: exact to the last digits there,
and with derivatives at zero."""
_LOCKED = 1e-7
"""Radians from gimbal lock, where two of Euler's angles turn about one axis, within which it is assumed."""


class Rotation(NamedTuple):
    """One rotation, or a vector of them, kept as quaternions of norm 1: (x, y, z, w), the scalar last.

    `quat` has the shape (4,) or (n, 4). Make one by `from_quat`, `from_rotvec`, `from_matrix`, `from_euler` or
    `from_mrp`; it is a container of one array, which transformations look into.

    >>> import numpy as np
    >>> quarter = Rotation.from_rotvec(np.array([0.0, 0.0, np.pi / 2]))
    >>> np.abs(quarter.apply(np.array([1.0, 0.0, 0.0]))).round(6)
    array([0., 1., 0.])
    >>> float((quarter * quarter).magnitude().round(6))
    3.141593
    """

    quat: Any

    # --- from other forms ---------------------------------------------------------------------------------------

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """Return rotations of quaternions (x, y, z, w), shape (4,) or (n, 4), normalized first; raise `ShapeError`.

        >>> import numpy as np
        >>> Rotation.from_quat(np.array([0.0, 0.0, 0.0, 2.0])).quat
        array([0., 0., 0., 1.])
        """
        return cls(normalize(_check_operand("from_quat", quat, (4,))))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """Return rotations of vectors along the axes whose lengths are the angles, shape (3,) or (n, 3).

        Raises `ShapeError` for other shapes.

        >>> import numpy as np
        >>> Rotation.from_rotvec(np.array([180.0, 0.0, 0.0]), degrees=True).quat.round(6)
        array([1., 0., 0., 0.])
        """
        vector = _check_operand("from_rotvec", rotvec, (3,))
        vector = fnp.deg2rad(vector) if degrees else vector
        squared = fnp.sum(vector * vector, -1, keepdims=True)
        small = squared < _SERIES
        angle = fnp.sqrt(fnp.where(small, 1.0, squared))
        scale = fnp.where(small, 0.5 - squared / 48 + squared**2 / 3840, fnp.sin(angle / 2) / angle)
        real = fnp.where(small, 1 - squared / 8 + squared**2 / 384, fnp.cos(angle / 2))
        return cls(fnp.concatenate([scale * vector, real], -1))

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """Return rotations of orthogonal matrices, shape (3, 3) or (n, 3, 3); raise `ShapeError`.

        Of the four ways to compute a quaternion from a matrix, the one that divides by the largest number is used
        (Shepperd, "Quaternion from rotation matrix", 1978).

        >>> import numpy as np
        >>> Rotation.from_matrix(np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])).quat.round(4)
        array([0.    , 0.    , 0.7071, 0.7071])
        """
        m = _check_operand("from_matrix", matrix, (3, 3))
        diagonal = [m[..., axis, axis] for axis in range(3)]
        trace = diagonal[0] + diagonal[1] + diagonal[2]
        ways = []
        for first in range(3):
            second, third = (first + 1) % 3, (first + 2) % 3
            parts: list[Any] = [None] * 4
            parts[first] = 1 - trace + 2 * diagonal[first]
            parts[second] = m[..., second, first] + m[..., first, second]
            parts[third] = m[..., third, first] + m[..., first, third]
            parts[3] = m[..., third, second] - m[..., second, third]
            ways.append(fnp.stack(parts, -1))
        ways.append(fnp.stack([m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1],
                               1 + trace], -1))
        largest = fnp.argmax(fnp.stack([*diagonal, trace], -1), -1)[..., None]
        quat = ways[3]
        for number in range(3):
            quat = fnp.where(largest == number, ways[number], quat)
        return cls(normalize(quat))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """Return rotations of modified Rodrigues parameters, axis times tan(angle / 4), shape (3,) or (n, 3).

        Raises `ShapeError` for other shapes.

        >>> import numpy as np
        >>> float(Rotation.from_mrp(np.array([0.0, np.tan(0.25), 0.0])).magnitude().round(6))
        1.0
        """
        vector = _check_operand("from_mrp", mrp, (3,))
        squared = fnp.sum(vector * vector, -1, keepdims=True)
        return cls(fnp.concatenate([2 * vector, 1 - squared], -1) / (1 + squared))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Return rotations by angles about the axes in `seq`, one to three letters, one after the other.

        Lower case (`"xyz"`) means axes that stay, upper case (`"XYZ"`) axes that turn along. `angles` has one number
        for each letter along its last axis; for one letter it is a number or a vector of n, too. Raises `ArgumentError`
        for another `seq` and `ShapeError`.

        >>> import numpy as np
        >>> Rotation.from_euler("z", 90.0, degrees=True).as_matrix().round(6) + 0.0
        array([[ 0., -1.,  0.],
               [ 1.,  0.,  0.],
               [ 0.,  0.,  1.]])
        """
        axes, turning = _axes("from_euler", seq)
        given, = inexact_operands(angles)
        given = fnp.deg2rad(given) if degrees else given
        if len(axes) == 1 and len(shape_of(given)) < 2:
            given = given[..., None]
        if len(shape_of(given)) not in (1, 2) or shape_of(given)[-1] != len(axes):
            raise ShapeError(at_user_line(f"from_euler: angles of shape {shape_of(angles)} for seq={seq!r}; "
                                          f"{len(axes)} of them along the last axis are needed"))
        result: Any = None
        for place, axis in enumerate(axes):
            half = given[..., place] / 2
            zero = fnp.zeros_like(half, fnp.result_type(half))  # strong, like the quaternion then
            step = fnp.stack([fnp.sin(half) if axis == each else zero for each in range(3)] + [fnp.cos(half)], -1)
            result = step if result is None else product(result, step) if turning else product(step, result)
        return cls(result)

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """Return the identity rotation; `num` of them in a vector.

        >>> Rotation.identity().quat
        array([0., 0., 0., 1.])
        """
        one = fnp.array([0.0, 0.0, 0.0, 1.0], dtype)
        return cls(one if num is None else fnp.tile(one, (num, 1)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Return uniformly distributed rotations, of the default float dtype; `num` of them in a vector.

        >>> import fxgrad
        >>> Rotation.random(fxgrad.random.key(0), 3).quat.shape
        (3, 4)
        """
        return cls(normalize(random.normal(random_key, (4,) if num is None else (num, 4))))

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Return all rotations in one vector.

        >>> len(Rotation.concatenate([Rotation.identity(), Rotation.identity(2)]))
        3
        """
        return cls(fnp.concatenate([fnp.atleast_2d(each.quat) for each in rotations]))

    # --- in other forms -----------------------------------------------------------------------------------------

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Any:
        """Return the quaternions, (x, y, z, w) or (w, x, y, z); of the two signs `canonical` ones have w > 0.

        >>> Rotation.identity().as_quat(scalar_first=True)
        array([1., 0., 0., 0.])
        """
        quat = canonical_sign(self.quat) if canonical else self.quat
        return fnp.roll(quat, 1, -1) if scalar_first else quat

    def as_rotvec(self, degrees: bool = False) -> Any:
        """Return vectors along the axes whose lengths are the angles, from 0 to pi.

        >>> import numpy as np
        >>> Rotation.from_quat(np.array([0.0, 1.0, 0.0, 0.0])).as_rotvec(degrees=True)
        array([  0., 180.,   0.])
        """
        quat = canonical_sign(self.quat)
        vector, real = quat[..., :3], quat[..., 3:]
        squared = fnp.sum(vector * vector, -1, keepdims=True)
        small = squared < _SERIES
        sine = fnp.sqrt(fnp.where(small, 1.0, squared))
        # angle / sin(angle / 2), where angle = 2 arcsin(sine): 2 + s^2 / 3 + 3 s^4 / 20 + ...
        scale = fnp.where(small, 2 + squared / 3 + 3 * squared**2 / 20, 2 * fnp.arctan2(sine, real) / sine)
        return fnp.rad2deg(scale * vector) if degrees else scale * vector

    def as_matrix(self) -> Any:
        """Return orthogonal matrices, shape (3, 3) or (n, 3, 3).

        >>> Rotation.identity().as_matrix()
        array([[1., 0., 0.],
               [0., 1., 0.],
               [0., 0., 1.]])
        """
        x, y, z, w = (self.quat[..., place] for place in range(4))
        rows = [[x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w]]
        return fnp.stack([fnp.stack(row, -1) for row in rows], -2)

    def as_mrp(self) -> Any:
        """Return modified Rodrigues parameters, axis times tan(angle / 4).

        >>> import numpy as np
        >>> Rotation.from_mrp(np.array([0.0, 0.25, 0.0])).as_mrp()
        array([0.  , 0.25, 0.  ])
        """
        quat = fnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        return quat[..., :3] / (1 + quat[..., 3:])

    def as_euler(self, seq: str, degrees: bool = False) -> Any:
        """Return three angles about the axes in `seq` (as for `from_euler`, three letters), shape (3,) or (n, 3).

        The first and the third are between -pi and pi, the second between 0 and pi if the first axis is the third, and
        otherwise between -pi / 2 and pi / 2. At the ends of the second, where only the sum or the difference of the
        others is known, the third is zero. The formulas are those of Bernardes and Viollet, "Quaternion to Euler angles
        conversion: A direct, general and computationally efficient method", 2022. Raises `ArgumentError` for another
        `seq`.

        >>> import numpy as np
        >>> rotation = Rotation.from_euler("xyz", np.array([10.0, 20.0, 30.0]), degrees=True)
        >>> rotation.as_euler("xyz", degrees=True).round(4)
        array([10., 20., 30.])
        """
        axes, turning = _axes("as_euler", seq)
        if len(axes) != 3:
            raise ArgumentError(at_user_line(f"as_euler: seq={seq!r}; three letters are needed"))
        i, j, k = axes[::-1] if turning else axes
        proper = i == k
        k = 3 - i - j if proper else k
        sign = (i - j) * (j - k) * (k - i) // 2
        w, one, two, three = self.quat[..., 3], self.quat[..., i], self.quat[..., j], self.quat[..., k] * sign
        a, b, c, d = (w, one, two, three) if proper else (w - two, one + three, two + w, three - one)
        second = 2 * fnp.arctan2(fnp.hypot(c, d), fnp.hypot(a, b))
        half_sum, half_difference = fnp.arctan2(b, a), fnp.arctan2(d, c)
        at_zero = fnp.abs(second) <= _LOCKED
        locked = fnp.logical_or(at_zero, fnp.abs(second - math.pi) <= _LOCKED)
        alone = fnp.where(at_zero, 2 * half_sum, (2 if turning else -2) * half_difference)
        outer = [half_sum - half_difference, half_sum + half_difference]
        first, third = outer[::-1] if turning else outer
        first, third = fnp.where(locked, alone, first), fnp.where(locked, fnp.zeros_like(third), third)
        if not proper:
            first, third = (first * sign, third) if turning else (first, third * sign)
            second = second - math.pi / 2
        result = fnp.stack([_wrap_angle(angle) for angle in (first, second, third)], -1)
        return fnp.rad2deg(result) if degrees else result

    # --- operations ---------------------------------------------------------------------------------------------

    def apply(self, vectors: Any, inverse: bool = False) -> Any:
        """Return `vectors`, shape (3,) or (n, 3), turned; one rotation turns all, one vector is turned by all.

        Raises `ShapeError` for several rotations and a different number of several vectors.

        >>> import numpy as np
        >>> Rotation.from_euler("z", np.pi / 2).apply(np.array([0.0, 1.0, 0.0])).round(6) + 0.0
        array([-1.,  0.,  0.])
        """
        given = _check_operand("apply", vectors, (3,))
        matrix = self.as_matrix()
        if len(shape_of(given)) == len(shape_of(matrix)) - 1 == 2 and 1 not in (
                len(self), shape_of(given)[0]) and len(self) != shape_of(given)[0]:
            raise ShapeError(at_user_line(f"apply: {len(self)} rotations and {shape_of(given)[0]} vectors; as many of "
                                          "both, or one of either, are needed"))
        return fnp.sum((fnp.swapaxes(matrix, -1, -2) if inverse else matrix) * given[..., None, :], -1)

    def inv(self) -> Rotation:
        """Return the inverse rotation.

        >>> import numpy as np
        >>> Rotation.from_euler("x", 0.5).inv().as_euler("xyz").round(6) + 0.0
        array([-0.5,  0. ,  0. ])
        """
        return Rotation(self.quat * np.array([-1, -1, -1, 1], np.int8))

    def magnitude(self) -> Any:
        """Return the angles, from 0 to pi.

        >>> import numpy as np
        >>> float(Rotation.from_rotvec(np.array([0.0, 0.5, 0.0])).magnitude().round(6))
        0.5
        """
        vector = self.quat[..., :3]
        return 2 * fnp.arctan2(fnp.linalg.norm(vector, axis=-1), fnp.abs(self.quat[..., 3]))

    def mean(self, weights: Any = None) -> Rotation:
        """Return the rotation with the least weighted sum of squared distances to all.

        It is the eigenvector of the largest eigenvalue of the sum of q q^T (Markley, Cheng, Crassidis and Oshman,
        "Averaging quaternions", 2007). Raises `ShapeError` unless there are as many weights as rotations.

        >>> import numpy as np
        >>> Rotation.from_euler("z", np.array([0.1, 0.3])).mean().as_euler("xyz").round(6) + 0.0
        array([0. , 0. , 0.2])
        """
        quat = fnp.atleast_2d(self.quat)
        if weights is not None and shape_of(weights) != shape_of(quat)[:1]:
            raise ShapeError(at_user_line(f"mean: weights of shape {shape_of(weights)} for {shape_of(quat)[0]} "
                                          "rotations; one for each is needed"))
        scaled = quat if weights is None else quat * inexact_operands(weights)[0][:, None]
        return Rotation(fnp.linalg.eigh(scaled.T @ quat)[1][:, -1])

    def __mul__(self, other: Any) -> Rotation:
        """Return `self` after `other`."""
        return Rotation(product(self.quat, other.quat))

    def __getitem__(self, index: Any) -> Any:
        """Return some of a vector of rotations; raise `ArgumentError` for a single one."""
        if self.single:
            raise ArgumentError(at_user_line("a single Rotation has no items; its quaternion is .quat"))
        return Rotation(self.quat[index])

    def __len__(self) -> int:
        """Return the number of rotations in a vector; raise `TypeError` for a single one."""
        if self.single:
            raise TypeError("a single Rotation has no length")
        return shape_of(self.quat)[0]

    def __bool__(self) -> bool:
        return True

    @property
    def single(self) -> bool:
        """Whether it is one rotation, not a vector of them."""
        return len(shape_of(self.quat)) == 1


class Slerp(NamedTuple):
    """A function of time that rotates evenly from each of some rotations to the next; made by `Slerp.init`.

    >>> import numpy as np
    >>> turn = Slerp.init(np.array([0.0, 2.0]), Rotation.from_euler("z", np.array([0.0, 1.0])))
    >>> turn(np.array([0.5, 1.0])).as_euler("xyz").round(6)[:, 2]
    array([0.25, 0.5 ])
    """

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """At `times`, a vector in increasing order, the `rotations`, at least two; raises `ArgumentError`.

        >>> import numpy as np
        >>> Slerp.init(np.array([0.0, 1.0]), Rotation.identity(2)).timedelta
        array([1.])
        """
        given, = inexact_operands(times)
        if rotations.single or len(rotations) < 2 or shape_of(given) != (len(rotations),):
            raise ArgumentError(at_user_line(f"Slerp.init: times of shape {shape_of(given)}; a vector of two or more "
                                             "times, and as many rotations, are needed"))
        begin = Rotation(rotations.quat[:-1])
        return cls(given, fnp.diff(given), begin, (begin.inv() * Rotation(rotations.quat[1:])).as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """Return the rotations at `times`, a number or a vector; beyond the first and last they are extrapolated."""
        at, = inexact_operands(times)
        place = fnp.clip(fnp.searchsorted(self.times, at, side="right") - 1, 0, len(self.rotations) - 1)
        part = (at - fnp.asarray(self.times)[place]) / fnp.asarray(self.timedelta)[place]
        begin = Rotation(fnp.asarray(self.rotations.quat)[place])
        return begin * Rotation.from_rotvec(part[..., None] * fnp.asarray(self.rotvecs)[place])


def _check_operand(name: str, value: Any, trailing: tuple[int, ...]) -> Any:
    """Return the operand as floats, if it is one of this shape or a vector of them."""
    array, = inexact_operands(value)
    refuse_complex(name, array)
    shape, own = shape_of(array), len(trailing)
    if len(shape) not in (own, own + 1) or shape[len(shape) - own:] != trailing:
        sizes = ", ".join(map(str, trailing))
        raise ShapeError(at_user_line(f"{name}: an array of shape {shape}, where ({sizes}{',' * (own == 1)}) or "
                                      f"(n, {sizes}) is needed"))
    return fnp.asarray(array)


def _axes(name: str, seq: Any) -> tuple[list[int], bool]:
    """Return the numbers of the axes, and whether they rotate along (intrinsic)."""
    fits = isinstance(seq, str) and 1 <= len(seq) <= 3 and (set(seq) <= set("xyz") or set(seq) <= set("XYZ"))
    if not fits or any(one == other for one, other in itertools.pairwise(seq)):
        raise ArgumentError(at_user_line(
            f"{name}: seq={seq!r}; one to three of the letters x, y, z are needed, or of X, Y, Z, no two alike in a "
            "row"))
    return ["xyz".index(letter) for letter in seq.lower()], seq.isupper()


def _wrap_angle(angle: Any) -> Any:
    """Return the equal angle between -pi and pi."""
    return fnp.where(angle < -math.pi, angle + 2 * math.pi, fnp.where(angle > math.pi, angle - 2 * math.pi, angle))
