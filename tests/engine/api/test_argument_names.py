"""`argnames`: gradients by the arguments of some names are those by their positions."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import grad, value_and_grad
from fxgrad.errors import ArgumentError


def loss(x, w, *, scale=2.0, bias=None):
    return scale * fnp.sum(x * w ** 2) + (0.0 if bias is None else bias["b"])


X, W = np.array([1.0, 2.0]), np.array([3.0, -1.0])


@pytest.mark.parametrize("transformed", [lambda f: f, fxgrad.jit], ids=["un-jitted", "jitted"])
def test_a_name_is_a_position_or_a_keyword(transformed):
    by_name = transformed(grad(loss, argnames="w"))
    np.testing.assert_array_equal(by_name(X, W), grad(loss, 1)(X, W))
    np.testing.assert_array_equal(by_name(X, w=W), grad(loss, 1)(X, W))
    np.testing.assert_array_equal(by_name(w=W, x=X), grad(loss, 1)(X, W))
    assert transformed(grad(loss, argnames="scale"))(X, W, scale=3.0) == np.sum(X * W ** 2)


def test_several_names_give_a_tuple_in_their_order():
    value, (scale, x) = value_and_grad(loss, argnames=("scale", "x"))(X, W, scale=3.0)
    assert value == loss(X, W, scale=3.0)
    assert scale == np.sum(X * W ** 2)
    np.testing.assert_array_equal(x, 3.0 * W ** 2)


def test_containers_auxiliary_output_and_further_keywords():
    assert grad(loss, argnames="bias")(X, W, bias={"b": 0.5}) == {"b": 1.0}
    gradient, aux = grad(lambda x, **kw: (x * kw["t"] ** 2, "kept"), argnames="t", has_aux=True)(2.0, t=3.0)
    assert (gradient, aux) == (12.0, "kept")
    assert grad(lambda *xs, y: xs[0] * xs[1] * y, argnames="y")(2.0, 3.0, y=1.0) == 6.0


def test_they_nest():
    second = grad(grad(lambda x, y: x ** 2 * y ** 3, argnames="y"), argnames="x")
    assert second(2.0, 3.0) == 2 * 2.0 * 3 * 9.0
    batch = fxgrad.vmap(lambda t: grad(loss, argnames="scale")(X, W, scale=t))(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(batch, np.full(2, np.sum(X * W ** 2)))


@pytest.mark.parametrize(("text", "call"), [
    ("grad: argnames='z', and loss has no parameter z; it has x, w, scale, bias", lambda: grad(loss, argnames="z")),
    ("grad: argnames='scale', and loss was called without scale. Pass it: a default is a constant",
     lambda: grad(loss, argnames="scale")(X, W)),
    ("grad takes argnums or argnames, and got argnums=1 and argnames='x'. Leave one out",
     lambda: grad(loss, 1, argnames="x")),
    ("value_and_grad: argnames=('x', 'x'), where a name or a sequence of distinct names is needed, such as \"x\"",
     lambda: value_and_grad(loss, argnames=("x", "x"))),
])
def test_wrong_names_are_refused(text, call):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text
