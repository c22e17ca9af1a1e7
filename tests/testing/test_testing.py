"""The testers themselves: right rules pass, and each planted error is reported by the law that it breaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, TODO, Cost, Primitive
from fxgrad.engine.core.symbolic import Linear
from fxgrad.engine.ops.arithmetic import mul, mul_p, neg, neg_p, stop_gradient
from fxgrad.engine.ops.comparison import gt
from fxgrad.engine.ops.parts import conj, conj_p
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.shaping import rev
from fxgrad.engine.ops.structural import move_axis, reduce_sum, unbroadcast
from fxgrad.engine.ops.trigonometric import cos, sin, sin_p
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.errors import ArgumentError, DTypeError
from fxgrad.extend.analyses import reads_elements, sparsity_rules
from fxgrad.testing import LAWS, TOLERANCES, LawError, check_grads, check_laws, check_primitive
from fxgrad.testing.numbers import direction

X, Y = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]), np.array([0.3, 0.7, -1.1])


def no_unbroadcast(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    return [mul(cotangents[0], value) if type(other) is Linear else None
            for other, value in zip(inputs, inputs[::-1], strict=True)]


def both(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    known = next(value for value in inputs if type(value) is not Linear)
    return [unbroadcast(mul(cotangents[0], known), Aval(np.shape(value), value.dtype)) for value in inputs]


def changes_its_argument(x: Any, y: Any) -> list[Any]:
    if isinstance(x, np.ndarray):
        x *= 1.0
    return [np.multiply(x, y)]


def reads_memory(x: Any) -> list[Any]:
    """Right only for arrays that lie in memory in one piece."""
    if isinstance(x, np.ndarray) and x.base is not None and not x.flags.c_contiguous:
        return [np.sin(np.asarray(x.base)[..., :x.shape[-1]])]
    return [np.sin(x)]


def sin_jvp(derivative: Callable[..., Any]) -> Callable[..., Any]:
    return lambda primals, tangents: ([sin(primals[0])], [derivative(tangents[0], primals[0])])


# The record with an error in it, its arguments, the law that must report it, and words of the report.
TURNED = replace(neg_p, name="turned")
sparsity_rules.enter(reads_elements(lambda x: [[np.arange(x.size)[::-1].reshape(*x.shape, 1)]]), TURNED)

PLANTED: dict[str, tuple[Primitive, tuple[Any, ...], str, str]] = {
    "numpy dtype": (replace(sin_p, numpy=lambda x: [np.sin(x).astype(np.float32)]), (X,), "numpy",
                    "output 0 of the numpy rule is f32[2,3], abstract gives f64[2,3]"),
    "numpy shape": (replace(sin_p, numpy=lambda x: [np.sin(x).ravel()]), (X,), "numpy",
                    "is f64[6], abstract gives f64[2,3]"),
    "numpy outputs": (replace(sin_p, numpy=lambda x: [np.sin(x), x]), (X,), "numpy", "has 2 outputs, abstract gives"),
    "numpy writes": (replace(mul_p, numpy=changes_its_argument), (X, Y), "numpy",
                     "the numpy rule writes to its arguments"),
    "numpy strides": (replace(sin_p, numpy=reads_memory), (X,), "numpy", "read-only and strided arrays, output 0"),
    "abstract dtype": (replace(sin_p, abstract=lambda x: [Aval(x.shape, np.dtype(np.float32))]), (X,), "numpy",
                       "is f64[2,3], abstract gives f32[2,3]"),
    "xla value": (replace(sin_p, xla=lambda lax, x: [lax.cos(x)]), (X,), "xla", "compared with the numpy rule"),
    "xla dtype": (replace(sin_p, xla=lambda lax, x: [lax.convert_element_type(lax.sin(x), np.float32)]), (X,), "xla",
                  "output 0 of the xla rule is f32[2,3]"),
    "xla narrow": (replace(sin_p, xla=lambda lax, x: [lax.convert_element_type(
        lax.sin(lax.convert_element_type(x, np.float32)), np.float64)]), (X,), "xla", "(tolerance 1e-11)"),
    "jvp factor": (replace(sin_p, jvp=sin_jvp(lambda t, x: mul(t, mul(cos(x), 1.001)))), (X,), "jvp",
                   "compared with a central difference"),
    "jvp sign": (replace(sin_p, jvp=sin_jvp(lambda t, x: neg(mul(t, cos(x))))), (X,), "jvp", "central difference"),
    "jvp forgets": (replace(mul_p, jvp=lambda primals, tangents: ([mul(*primals)], [mul(tangents[0], primals[1])])),
                    (X, Y), "jvp", "tangents of arguments [0, 1], compared"),
    "jvp nothing": (replace(sin_p, jvp=NO_TANGENT), (X,), "jvp", "NO_TANGENT, compared with a central difference"),
    "jvp affine": (replace(sin_p, jvp=sin_jvp(lambda t, x: mul(cos(x), add(t, 1.0)))), (X,), "jvp",
                   "do not give twice the result"),
    "jvp output": (replace(sin_p, jvp=lambda primals, tangents: (
        [cos(primals[0])], [mul(tangents[0], cos(primals[0]))])), (X,), "jvp", "the outputs of the jvp rule"),
    "jvp shape": (replace(sin_p, jvp=sin_jvp(lambda t, x: reduce_sum(mul(t, cos(x)), (0,)))), (X,), "jvp",
                  "output 0 of the tangents is f64[3], abstract gives f64[2,3]"),
    "jvp conjugate": (replace(sin_p, jvp=sin_jvp(lambda t, x: mul(conj(t), cos(x)))), (X + 1j,), "jvp", "difference"),
    "jvp recorded": (replace(sin_p, jvp=sin_jvp(lambda t, x: mul(t, sin(x) if type(x) is Tracer else cos(x)))), (X,),
                     "jvp", "the jvp rule: recorded and run, compared with computed"),
    "second": (replace(sin_p, jvp=sin_jvp(lambda t, x: mul(t, stop_gradient(cos(x))))), (X,), "second",
               "the jvp of the jvp rule, compared with a central difference of it"),
    "transpose factor": (replace(mul_p, transpose=lambda cotangents, inputs: [
        None if c is None else mul(c, 1.001) for c in mul_p.transpose(cotangents, inputs)]), (X, Y), "transpose",
                         "transposed in arguments [0]: <Jᵀ c, t> is not <c, J t>: got"),
    "transpose none": (replace(mul_p, transpose=lambda cotangents, inputs: [None, None]), (X, Y), "transpose",
                       "got 0.0 where"),
    "transpose shape": (replace(mul_p, transpose=no_unbroadcast), (X, Y), "transpose",
                        "cotangent 1 is f64[2,3], its argument f64[3]"),
    "transpose known": (replace(mul_p, transpose=both), (X, Y), "transpose",
                        "a cotangent for argument 1, which is not linear"),
    "transpose count": (replace(mul_p, transpose=lambda cotangents, inputs: [cotangents[0]]), (X, Y), "transpose",
                        "returned 1 cotangents for 2 arguments"),
    "transpose conjugate": (replace(conj_p, transpose=lambda cotangents, inputs: [cotangents[0]]), (X + 1j,),
                            "transpose", "<Jᵀ c, t> is not <c, J t>"),
    "transpose recorded": (replace(mul_p, transpose=lambda cotangents, inputs: [
        None if c is None else neg(c) if type(c) is Tracer else c for c in mul_p.transpose(cotangents, inputs)]),
        (X, Y), "transpose", "the transpose rule: recorded and run, compared with computed"),
    "transpose dtype": (replace(mul_p, transpose=lambda cotangents, inputs: [
        None if c is None else mul(c, np.ones((), np.float64)[None]) for c in mul_p.transpose(cotangents, inputs)]),
        (X.astype(np.float32), Y.astype(np.float32)), "transpose", "is f64[2,3], its argument f32[2,3]"),
    "batch order": (replace(sin_p, batch=lambda size, values, axes: ([rev(sin(values[0]), (axes[0],))], axes)), (X,),
                    "batch", "batched along [0], compared with a loop, output 0"),
    "batch axis": (replace(sin_p, batch=lambda size, values, axes: ([sin(values[0])], [0])), (X,), "batch",
                   "output 0 of batched along [2] is f64[2,3,3]"),
    "batch no axis": (replace(sin_p, batch=lambda size, values, axes: ([sin(values[0])], [None])), (X,), "batch",
                      "output 0 of batched along [0] is f64[3,3,2,3], abstract gives f64[3,2,3]"),
    "batch recorded": (replace(sin_p, batch=lambda size, values, axes: (
        [cos(*values) if type(values[0]) is Tracer else sin(*values)], axes)), (X,), "batch",
                       "batched along [0]: recorded and run, compared with computed"),
    "batch outputs": (replace(sin_p, batch=lambda size, values, axes: ([], [])), (X,), "batch", "0 outputs and 0 axes"),
    "batch alignment": (replace(mul_p, batch=lambda size, values, axes: ([mul(*values)], [0])),
                        (np.ones((3, 3)), np.ones(3)), "batch", "batched along"),
    "sparsity": (TURNED, (X,), "sparsity",
                 "element 0 of argument 0 changes element 0 of output 0, which does not depend on it by the rule"),
    "cost negative": (replace(sin_p, cost=lambda x: Cost(-1, 0)), (X,), "cost", "of non-negative ints is needed"),
    "cost float": (replace(sin_p, cost=lambda x: Cost(x.size / 2, 0)), (X,), "cost", "got Cost(flops=3.0, bytes=0)"),
    "cost kind": (replace(sin_p, cost=lambda x: (1, 1)), (X,), "cost", "got (1, 1)"),
}


@pytest.mark.parametrize("error", PLANTED)
def test_planted_errors_are_found(error: str) -> None:
    primitive, args, law, words = PLANTED[error]
    with pytest.raises(LawError, match=re.escape(words)) as caught:
        check_primitive(primitive, *args)
    assert f"breaks the law {law!r}" in str(caught.value)


def test_text_that_cannot_be_read() -> None:
    def applied(x: Any, table: Any) -> Any:
        return np.sin(x)

    primitive = replace(sin_p, name="held", abstract=lambda x, table: [x], numpy=lambda x, table: [np.sin(x)])
    with pytest.raises(LawError, match="breaks the law 'text': its text cannot be read back: "):
        check_laws(primitive, [X], {"table": applied}, laws=["text"])


def test_every_law_has_a_planted_error() -> None:
    assert {law for _, _, law, _ in PLANTED.values()} | {"text"} == set(LAWS)


def test_message() -> None:
    wrong = replace(sin_p, jvp=sin_jvp(lambda t, x: t))
    with pytest.raises(LawError) as caught:
        check_primitive(wrong, np.array([0.0, np.pi]))
    assert str(caught.value) == (
        "sin(f64[2]) breaks the law 'jvp': tangents of arguments [0], compared with a central difference, output 0: "
        "got 0.10490011715303971 where -0.1049001171526953 is expected at [1] (tolerance 2e-07)")


def test_right_rules_pass() -> None:
    check_primitive(sin_p, X)
    check_primitive(mul_p, X, Y)
    check_primitive(mul_p, X.astype(np.float32), Y[:, None][:1].astype(np.float32))
    check_primitive(conj_p, X + 1j)


def test_own_primitive() -> None:
    """Parameters, several outputs, an integer argument, and rules that are absent on purpose."""
    def abstract(x: Aval, n: Aval, *, power: int) -> list[Aval]:
        return [x, n]

    own = Primitive(
        "own", abstract=abstract, numpy=lambda x, n, *, power: [x ** power, n + np.int32(power)],
        xla=lambda lax, x, n, *, power: [lax.integer_pow(x, power), lax.add(n, np.int32(power))],
        jvp=TODO("not written yet"), transpose=NOT_LINEAR, batch=TODO("not written yet"),
        cost=lambda x, n, *, power: Cost(x.size * power, 0))
    check_primitive(own, X, np.int32(3), power=3)


def test_primitive_of_float32_only() -> None:
    """Where float64 is refused, differences are taken in float32, with the tolerance of that."""
    def abstract(x: Aval) -> list[Aval]:
        if x.dtype != np.float32:
            raise DTypeError("narrow: float32 is needed")
        return [x]

    narrow = replace(sin_p, name="narrow", abstract=abstract)
    check_primitive(narrow, X.astype(np.float32))
    with pytest.raises(LawError, match="central difference"):
        check_primitive(replace(narrow, jvp=sin_jvp(lambda t, x: mul(t, mul(cos(x), 1.01)))), X.astype(np.float32))


def test_some_laws_only() -> None:
    wrong = replace(sin_p, jvp=sin_jvp(lambda t, x: t))
    check_laws(wrong, [X], laws=[law for law in LAWS if law not in ("jvp", "second")])
    check_laws(wrong, [X], fixed=[0])
    with pytest.raises(LawError):
        check_laws(wrong, [X], laws=["jvp"])


def test_tolerance_factor() -> None:
    wrong = replace(sin_p, xla=lambda lax, x: [lax.mul(lax.sin(x), np.float64(1 + 1e-10))])
    check_laws(wrong, [X], laws=["xla"], tolerance=100)
    with pytest.raises(LawError):
        check_laws(wrong, [X], laws=["xla"])


def test_tolerances_cover_the_inexact_dtypes() -> None:
    assert set(TOLERANCES) == {"float64", "float32", "float16", "bfloat16", "complex64", "complex128"}


# --- check_grads ------------------------------------------------------------------------------------------------

wrong_jvp_p = replace(sin_p, name="wrong_jvp", jvp=sin_jvp(lambda t, x: mul(t, sin(x))))
wrong_second_p = replace(sin_p, name="wrong_second", jvp=sin_jvp(lambda t, x: mul(t, stop_gradient(cos(x)))))
wrong_transpose_p = replace(mul_p, name="wrong_transpose", transpose=lambda cotangents, inputs: [
    None if c is None else mul(c, 2.0) for c in mul_p.transpose(cotangents, inputs)])
wrong_transpose_sin_p = replace(sin_p, name="wrong_transpose_sin", jvp=sin_jvp(
    lambda t, x: bind(wrong_transpose_p, t, cos(x))[0]))


def test_check_grads_passes() -> None:
    check_grads(lambda x, y: add(mul(sin(x), y), cos(y)), (X, Y), order=3)
    check_grads(lambda x: [{"a": mul(x["b"], 2.0)}, sin(x["c"])], ({"b": X, "c": np.float32(0.5)},))
    check_grads(lambda x: mul(x, x), (2.0,), modes=["rev"], order=4)
    check_grads(lambda x: sin(mul(x, x)), (X + 0.5j,))
    check_grads(lambda x, n: mul(x, x) if gt(n, 1) else x, (2.0, np.int32(3)))


def test_check_grads_follows_control_flow() -> None:
    check_grads(lambda x: mul(x, x) if gt(x, 0.0) else neg(x), (2.0,))
    check_grads(lambda x: mul(x, x) if gt(x, 0.0) else neg(x), (-2.0,))


@pytest.mark.parametrize(("primitive", "modes", "order", "words"), [
    (wrong_jvp_p, ("fwd",), 1, "the jvp of f is not the central difference"),
    (wrong_jvp_p, ("rev",), 1, "the vjp of f, paired with a tangent is not the central difference"),
    (wrong_transpose_sin_p, ("rev",), 1, "the vjp of f, paired with a tangent"),
    (wrong_second_p, ("fwd",), 2, "the jvp of jvp(f)"),
    (wrong_second_p, ("rev",), 2, "the vjp of vjp(f)"),
    (wrong_second_p, ("fwd", "rev"), 2, "of jvp(f)"),
])
def test_check_grads_finds(primitive: Primitive, modes: tuple[str, ...], order: int, words: str) -> None:
    with pytest.raises(LawError, match=re.escape(words)):
        check_grads(lambda x: bind(primitive, x)[0], (X,), order=order, modes=modes)


def test_check_grads_finds_only_what_it_looks_at() -> None:
    check_grads(lambda x: bind(wrong_second_p, x)[0], (X,), order=1)
    check_grads(lambda x: bind(wrong_transpose_sin_p, x)[0], (X,), order=1, modes=["fwd"])


def test_check_grads_names_the_function() -> None:
    def model(x: Any) -> Any:
        return bind(wrong_jvp_p, x)[0]

    with pytest.raises(LawError, match=r"^check_grads\(model\) at f64\[2,3\]: the jvp of f is not the central diff"):
        check_grads(model, (X.astype(np.float32),))


def test_check_grads_tolerance() -> None:
    nearly_p = replace(sin_p, name="nearly", jvp=sin_jvp(lambda t, x: mul(t, mul(cos(x), 1.0 + 1e-4))))
    with pytest.raises(LawError):
        check_grads(lambda x: bind(nearly_p, x)[0], (X,), order=1)
    check_grads(lambda x: bind(nearly_p, x)[0], (X,), order=1, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: check_grads(sin, (1.0,), modes=["backward"]),
     "check_grads: modes=('backward',), order=2; some of ('fwd', 'rev') and an order from 1 on are needed"),
    (lambda: check_grads(sin, (1.0,), order=0),
     "check_grads: modes=('fwd', 'rev'), order=0; some of ('fwd', 'rev') and an order from 1 on are needed"),
    (lambda: check_grads(cos, (np.arange(3),)),
     "check_grads: no argument of cos is floating, so there is nothing to differentiate; got i64[3]. "  # noqa: ISC004
     "Write 1.0 in place of 1"),
    (lambda: check_grads(sin, ("text",)),
     "check_grads: an argument is a str, where arrays and numbers are needed; pass it by closure"),
])
def test_check_grads_refuses(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).splitlines()[0] == message



def test_a_batch_rule_that_records_another_type_than_it_computes() -> None:
    """With axes of size 1 in place of repeated ones, for a rule of types that does not broadcast."""
    def batch(size: int, values: list[Any], axes: list[int | None]) -> tuple[list[Any], list[int]]:
        moved = [value[None] if axis is None else move_axis(value, axis, 0)
                 for value, axis in zip(values, axes, strict=True)]
        return bind(narrow, *moved), [0]

    narrow = replace(mul_p, name="narrow", abstract=lambda x, y: [x], batch=batch)
    with pytest.raises(LawError, match="does abstract say what the numpy rule does"):
        check_laws(narrow, [np.ones(3), np.ones(3)], laws=["batch"])


def test_directions_are_drawn_real_parts_first() -> None:
    for dtype in (np.float32, np.complex128):
        drawn = np.random.default_rng(0).standard_normal((2, *X.shape))
        expected = drawn[0] + 1j * drawn[1] if dtype is np.complex128 else drawn[0].astype(dtype)
        found = direction(np.random.default_rng(0), X.astype(dtype))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)
