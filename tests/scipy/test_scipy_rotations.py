"""Rotations against SciPy; derivatives against differences."""

from __future__ import annotations

import itertools
import re
from typing import Any

import jax.scipy.spatial.transform as jax_transform
import numpy as np
import pytest
import scipy.spatial.transform

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.scipy.spatial.transform import Rotation, Slerp
from fxgrad.testing import check_grads

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(0)
QUATS = RANDOM.normal(size=(6, 4))
QUATS[1, 3], QUATS[2] = 0.0, [0.0, 0.0, 0.0, -1.0]
ROTATIONS, THEIRS = Rotation.from_quat(QUATS), scipy.spatial.transform.Rotation.from_quat(QUATS)
VECTORS = RANDOM.normal(size=(6, 3))
PROPER = ["xyx", "xzx", "yxy", "yzy", "zxz", "zyz"]
ORDERS = [*PROPER, *map("".join, itertools.permutations("xyz"))]


def close(ours: Any, theirs: Any, atol: float = 1e-12) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=atol)


FORMS: dict[str, Any] = {
    "quat": lambda r: r.as_quat(), "canonical": lambda r: r.as_quat(canonical=True),
    "scalar first": lambda r: r.as_quat(scalar_first=True), "rotvec": lambda r: r.as_rotvec(),
    "degrees": lambda r: r.as_rotvec(degrees=True), "matrix": lambda r: r.as_matrix(), "mrp": lambda r: r.as_mrp(),
    "inv": lambda r: r.inv().as_quat(), "magnitude": lambda r: r.magnitude(),
    "product": lambda r: (r * r[::-1]).as_quat(),
    "items": lambda r: r[1:4].as_quat(), "item": lambda r: r[2].as_quat(), "applied": lambda r: r.apply(VECTORS),
    "undone": lambda r: r.apply(VECTORS, inverse=True), "one for many": lambda r: r[0].apply(VECTORS),
    "many for one": lambda r: r.apply(VECTORS[0]), "one for one": lambda r: r[3].apply(VECTORS[0]),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_as_scipy(name: str) -> None:
    form = FORMS[name]
    close(form(ROTATIONS), form(THEIRS))
    close(fxgrad.jit(lambda quat: form(Rotation(quat)))(ROTATIONS.quat), form(THEIRS))
    narrow = Rotation(ROTATIONS.quat.astype(np.float32))
    assert form(narrow).dtype == (np.float64 if "appl" in name or " for " in name or name == "undone" else np.float32)


def test_made_of_other_forms_as_scipy() -> None:
    theirs = scipy.spatial.transform.Rotation
    for name, given in (("rotvec", VECTORS), ("rotvec", np.zeros((2, 3))), ("rotvec", 1e-5 * VECTORS),
                        ("mrp", VECTORS), ("matrix", THEIRS.as_matrix()), ("quat", QUATS)):
        wanted = getattr(theirs, f"from_{name}")(given)
        make = getattr(Rotation, f"from_{name}")
        close(make(given).as_quat(canonical=True), wanted.as_quat(canonical=True))
        close(make(given[0]).as_matrix(), wanted[0].as_matrix())
        close(fxgrad.vmap(make)(given).as_matrix(), wanted.as_matrix())
    close(Rotation.from_rotvec(np.array([30.0, 0.0, 0.0]), degrees=True).magnitude(), np.pi / 6)


@pytest.mark.parametrize("seq", ORDERS)
def test_angles_as_scipy(seq: str) -> None:
    theirs = scipy.spatial.transform.Rotation
    angles = RANDOM.uniform(-3.0, 3.0, (5, 3))
    for order in (seq, seq.upper()):
        wanted = theirs.from_euler(order, angles)
        close(Rotation.from_euler(order, angles).as_matrix(), wanted.as_matrix())
        close(Rotation.from_euler(order, angles[0], degrees=True).as_matrix(),
              theirs.from_euler(order, angles[0], degrees=True).as_matrix())
        close(Rotation(wanted.as_quat()).as_euler(order), wanted.as_euler(order))
        close(fxgrad.jit(lambda quat, order=order: Rotation(quat).as_euler(order, True))(wanted.as_quat()),
              wanted.as_euler(order, True), 1e-9)
        for ends in ((0.0, np.pi) if seq in PROPER else (-np.pi / 2, np.pi / 2)):
            locked = theirs.from_euler(order, [0.3, ends, 0.4])
            with pytest.warns(UserWarning, match="Gimbal lock"):
                close(Rotation(locked.as_quat()).as_euler(order), locked.as_euler(order), 1e-7)


def test_single_axes() -> None:
    theirs = scipy.spatial.transform.Rotation
    vector = np.array([0.5, 1.0])
    close(Rotation.from_euler("y", vector).quat, Rotation.from_euler("y", vector[:, None]).quat)
    for order, angles in (("x", 0.5), ("Z", [[0.5], [1.0]]), ("xz", [0.5, 1.0]), ("YX", [[0.1, 0.2]])):
        wanted = theirs.from_euler(order, angles)
        ours = Rotation.from_euler(order, angles if isinstance(angles, float) else np.array(angles))
        close(ours.as_matrix(), wanted.as_matrix())
        assert ours.single == wanted.single


def test_many() -> None:
    together = Rotation.concatenate([ROTATIONS[0], ROTATIONS[1:]])
    close(together.quat, ROTATIONS.quat)
    assert len(together) == 6
    assert not together.single
    assert Rotation.identity().single
    close(Rotation.identity(3).as_matrix(), np.tile(np.eye(3), (3, 1, 1)))
    drawn = Rotation.random(fxgrad.random.key(0), 2000)
    close(fnp.linalg.norm(drawn.quat, axis=1), np.ones(2000), 1e-6)
    assert float(fnp.max(fnp.abs(fnp.mean(drawn.apply(VECTORS[0]), 0)))) < 0.1
    assert Rotation.random(fxgrad.random.key(0)).single
    for weights in (None, RANDOM.uniform(size=6)):
        close(np.abs(ROTATIONS.mean(weights).as_matrix()), np.abs(THEIRS.mean(weights).as_matrix()))
    doubled = fxgrad.tree.map(lambda quat: quat, ROTATIONS)
    assert isinstance(doubled, Rotation)
    assert set(dir(jax_transform.Rotation)) <= set(dir(Rotation))
    assert set(dir(jax_transform.Slerp)) <= set(dir(Slerp))


def test_slerp_as_scipy() -> None:
    times = np.array([0.0, 1.0, 1.5, 4.0, 5.0, 7.0])
    ours, theirs = Slerp.init(times, ROTATIONS), scipy.spatial.transform.Slerp(times, THEIRS)
    at = np.array([0.0, 0.3, 1.0, 2.0, 6.9, 7.0])
    close(ours(at).as_matrix(), theirs(at).as_matrix())
    close(ours(2.0).as_matrix(), theirs(2.0).as_matrix())
    close(fxgrad.jit(lambda quat, at: Slerp.init(times, Rotation(quat))(at).as_matrix())(ROTATIONS.quat, at),
          theirs(at).as_matrix())
    close(fxgrad.vmap(lambda at: ours(at).as_matrix())(at), theirs(at).as_matrix())


@pytest.mark.parametrize("name", ["rotvec", "matrix", "mrp", "euler", "slerp", "applied", "magnitude"])
def test_derivatives(name: str) -> None:
    vectors = VECTORS[:3]
    functions: dict[str, Any] = {
        "rotvec": lambda v: Rotation.from_rotvec(v).as_rotvec(),
        "matrix": lambda v: Rotation.from_rotvec(v).as_matrix(),
        "mrp": lambda v: Rotation.from_mrp(v).as_mrp(),
        "euler": lambda v: Rotation.from_euler("XYZ", v).as_euler("zyz"),
        "slerp": lambda v: Slerp.init(np.arange(3.0), Rotation.from_rotvec(v))(np.array([0.4, 1.7])).quat,
        "applied": lambda v: Rotation.from_matrix(Rotation.from_rotvec(v).as_matrix()).apply(v[::-1]),
        "magnitude": lambda v: Rotation.from_rotvec(v).magnitude(),
    }
    check_grads(functions[name], (vectors,), order=2)


def test_derivatives_at_no_rotation_are_finite() -> None:
    """Turning by a small vector is adding the cross product with it."""
    slope = fxgrad.jacobian(lambda v: Rotation.from_rotvec(v).apply(VECTORS[0]))(np.zeros(3))
    close(slope, np.stack([np.cross(axis, VECTORS[0]) for axis in np.eye(3)], 1))
    close(fxgrad.jacobian(lambda v: Rotation.from_rotvec(v).as_rotvec())(np.zeros(3)), np.eye(3))
    second = fxgrad.hessian(lambda v: Rotation.from_rotvec(v).as_rotvec()[0])(np.zeros(3))
    close(second, np.zeros((3, 3)))


MESSAGES = {
    "complex": (lambda: Rotation.from_quat(QUATS * 1j), errors.DTypeError,
                "from_quat: not defined for complex numbers (complex128); use x.real, x.imag or abs(x)"),
    "quat": (lambda: Rotation.from_quat(np.ones(3)), errors.ShapeError,
             "from_quat: an array of shape (3,), where (4,) or (n, 4) is needed"),
    "matrix": (lambda: Rotation.from_matrix(np.ones((2, 2))), errors.ShapeError,
               "from_matrix: an array of shape (2, 2), where (3, 3) or (n, 3, 3) is needed"),
    "letters": (lambda: Rotation.from_euler("xXy", np.ones(3)), errors.ArgumentError,
                ("from_euler: seq='xXy'; one to three of the letters x, y, z are needed, or of X, Y, Z, no two alike "
                 "in a row")),
    "angles": (lambda: Rotation.from_euler("xyz", np.ones(2)), errors.ShapeError,
               "from_euler: angles of shape (2,) for seq='xyz'; 3 of them along the last axis are needed"),
    "two letters": (lambda: ROTATIONS.as_euler("xy"), errors.ArgumentError,
                    "as_euler: seq='xy'; three letters are needed"),
    "apply": (lambda: ROTATIONS.apply(np.ones((4, 3))), errors.ShapeError,
              "apply: 6 rotations and 4 vectors; as many of both, or one of either, are needed"),
    "weights": (lambda: ROTATIONS.mean(np.ones(2)), errors.ShapeError,
                "mean: weights of shape (2,) for 6 rotations; one for each is needed"),
    "item": (lambda: ROTATIONS[0][0], errors.ArgumentError,
             "a single Rotation has no items; its quaternion is .quat"),
    "times": (lambda: Slerp.init(np.ones(2), ROTATIONS), errors.ArgumentError,
              "Slerp.init: times of shape (2,); a vector of two or more times, and as many rotations, are needed"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name: str) -> None:
    call, kind, message = MESSAGES[name]
    with pytest.raises(kind, match=re.escape(message) + r"\n  at test_scipy_rotations\.py"):
        call()
