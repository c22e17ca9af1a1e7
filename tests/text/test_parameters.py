"""Parameters in texts: those that differ print differently, and options that change nothing do not print."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.engine.ops
import fxgrad.numpy as fnp
from fxgrad import lax
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation, Program, Variable
from fxgrad.engine.frontend.operands import aval_of
from fxgrad.text import program_text
from tests.samples import COMPILED, Sample, all_samples

SAMPLES = all_samples()


def written(primitive: Primitive, avals: list[Any], params: dict[str, Any]) -> str | None:
    """The text of one equation; None where there is no such one."""
    inputs = [Variable(aval) for aval in avals]
    try:
        outputs = [Variable(aval) for aval in primitive.abstract(*avals, **params)]
    except Exception:  # noqa: BLE001  (of options that do not go together)
        return None
    return program_text(Program(inputs, [Equation(primitive, [*inputs], params, outputs)], outputs))


@pytest.mark.slow
def test_equations_that_differ_in_a_parameter_print_differently() -> None:
    """Whatever is left out where it is the default is so for one value alone."""
    wrong, compared = [], 0
    for primitive, samples in SAMPLES.items():
        if primitive.regions is not None:
            continue
        values = {name: {repr(sample.params[name]): sample.params[name] for sample in samples if name in sample.params}
                  for name in samples[0].params}
        for sample in {repr((each.specs, sorted(each.params))): each for each in samples}.values():
            avals = [aval_of(arg) for arg in sample.args()]
            own = written(primitive, avals, sample.params)
            for name, others in values.items():
                for other in others.values():
                    if name not in sample.params or repr(other) == repr(sample.params[name]):
                        continue
                    text = written(primitive, avals, {**sample.params, name: other})
                    compared += text is not None and own is not None
                    if text is not None and text == own:
                        wrong.append((primitive.name, name, sample.params[name], other, own))
    assert not wrong, wrong
    assert compared > 500


def test_parameters_of_callbacks_stand_in_the_order_of_their_calls() -> None:
    def doubled(x: Any) -> Any:
        return 2 * x

    like, x = fxgrad.ShapeDtypeStruct((), np.float32), np.float32(1)
    for name, call in (
            ("pure_callback", lambda x: fxgrad.pure_callback(doubled, like, x, vmap_method="sequential")),
            ("io_callback", lambda x: fxgrad.experimental.io_callback(doubled, like, x, ordered=True))):
        rest = 'vmap_method="sequential"' if name == "pure_callback" else "ordered=True"
        assert f"{name}(x, callback=<doubled>, results=(f32[],), {rest})" in str(fxgrad.make_program(call)(x))


def operation_of(primitive: Primitive) -> Callable[..., Any] | None:
    """The function that records `primitive`, which has its name."""
    for found in pkgutil.iter_modules(fxgrad.engine.ops.__path__):
        module = importlib.import_module(f"fxgrad.engine.ops.{found.name}")
        if getattr(module, f"{primitive.name}_p", None) is primitive:
            return getattr(module, primitive.name, None)
    return None


def same_results(primitive: Primitive, sample: Sample, flag: str) -> bool:
    """Whether the opposite of an option gives the same types, and the same bits."""
    args = sample.args()
    opposite = {**sample.params, flag: not sample.params[flag]}
    avals = [aval_of(arg) for arg in args]
    try:
        if primitive.abstract(*avals, **sample.params) != primitive.abstract(*avals, **opposite):
            return False
        one, other = (primitive.numpy(*args, **params) for params in (sample.params, opposite))
    except Exception:  # noqa: BLE001  (of options that do not go together)
        return False
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in zip(one, other, strict=True))


def test_options_that_change_nothing_for_a_dtype_do_not_print() -> None:
    """Found by computing: where an option gives the same bits for all samples of a kind, no operation records it."""
    found: dict[Any, list[tuple[bool, Primitive, Sample]]] = {}
    for primitive, samples in SAMPLES.items():
        if primitive.regions is not None or primitive.name in COMPILED or operation_of(primitive) is None:
            continue
        for sample in samples:
            flags = {name: value for name, value in sample.params.items() if type(value) is bool}
            args = sample.args() if flags else []
            if not flags or any(np.size(arg) < 2 for arg in args):
                continue
            for flag in flags:
                others = tuple((name, value) for name, value in flags.items() if name != flag)
                is_complex = any(np.asarray(arg).dtype.kind == "c" for arg in args)
                found.setdefault((primitive.name, flag, is_complex, others), []).append(
                    (same_results(primitive, sample, flag), primitive, sample))
    without_effect = {key: cases[0] for key, cases in found.items() if all(same for same, _, _ in cases)}
    assert {key[:3] for key in without_effect} == {
        ("triangular_solve", "conjugate_a", False), ("svd", "full_matrices", False), ("svd", "full_matrices", True)}
    for (_, flag, _, _), (_, primitive, sample) in without_effect.items():
        operation = operation_of(primitive)
        assert operation is not None
        one, other = (str(fxgrad.make_program(lambda *args, f=operation, flags={**sample.params, flag: value}:
                                              f(*args, **flags))(*sample.args())) for value in (False, True))
        assert one == other


def test_options_of_products_that_change_nothing_do_not_print() -> None:
    for dtype, precision, shown in ((np.float32, "highest", True), (np.int32, "highest", False),
                                    (np.complex64, ("high", "highest"), True), (np.int8, ("high", "highest"), False)):
        x = np.ones((2, 2), dtype)
        product = fxgrad.make_program(lambda x, precision=precision: fnp.matmul(x, x, precision=precision))
        assert ("precision" in program_text(product(x))) is shown
    for dtype, preferred, shown in ((np.float32, np.float32, False), (np.float32, np.float64, True),
                                    (np.int8, np.int32, True), (np.int32, np.int32, False)):
        x = np.ones((2, 2), dtype)
        dot = fxgrad.make_program(lambda x, preferred=preferred: lax.dot(x, x, preferred_element_type=preferred))
        assert ("preferred_element_type" in program_text(dot(x))) is shown


def test_derivatives_of_real_factorizations_conjugate_nothing() -> None:
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    for function in (np.linalg.cholesky, np.linalg.inv, np.linalg.qr, lambda a: np.linalg.eigh(a)[1],
                     lambda a: np.linalg.solve(a, a[0]), lambda a: np.linalg.svd(a, compute_uv=False)):
        for derived in (fxgrad.jacrev(function), fxgrad.jacfwd(function)):
            text = str(fxgrad.make_program(derived)(matrix))
            assert "conj" not in text, text
