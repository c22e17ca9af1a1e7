"""`argnames`: gradients by the arguments of some names are those by their positions."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import grad, value_and_grad
from fxgrad.errors import ArgumentError, DTypeError


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


MATRICES = ("jacfwd", "jacrev", "jacobian", "value_and_jacobian", "hessian", "value_and_hessian", "laplacian",
            "hessian_diag")


@pytest.mark.parametrize("name", MATRICES)
def test_all_derivatives_take_names(name):
    transform = getattr(fxgrad, name)
    expected = transform(loss, 1)(X, W, scale=3.0)
    for found in (transform(loss, argnames="w")(X, W, scale=3.0), transform(loss, argnames="w")(x=X, scale=3.0, w=W)):
        assert fxgrad.tree_util.tree_all(fxgrad.tree_util.tree_map(np.array_equal, found, expected))
    several = transform(loss, argnames=("w", "x"))(X, W)
    assert fxgrad.tree_util.tree_structure(several) == fxgrad.tree_util.tree_structure(transform(loss, (1, 0))(X, W))


def test_sparse_matrices_and_divergences_take_names():
    def field(t, y):
        return t * y ** 2

    assert fxgrad.divergence(field, argnames="y")(2.0, y=X) == fxgrad.divergence(field, 1)(2.0, X) == 12.0
    matrix = fxgrad.jacobian(field, argnames="y", sparse=True)(2.0, y=X)
    np.testing.assert_array_equal(matrix.toarray(), np.diag(4.0 * X))
    np.testing.assert_array_equal(fxgrad.hessian(loss, argnames="w", sparse=True)(X, w=W).toarray(), np.diag(4.0 * X))
    assert fxgrad.sparsity(field, argnames="y")(2.0, y=X).jacobian.nnz == 2


def test_messages_name_the_function_and_its_parameter():
    with pytest.raises(DTypeError) as caught:
        grad(loss, argnames="w")(X, np.array([1, 2]))
    assert str(caught.value).split("\n")[0] == (
        "grad needs floating-point arguments, and w is i64[2]. Convert it, float(x) or x.astype('float32'), leave it "
        "out of argnums, or pass allow_int=True for a gradient of dtype float0")
    with pytest.raises(ArgumentError) as caught:
        grad(lambda args, kwargs: args * kwargs, argnames=("args", "kwargs"))(X, W)
    assert str(caught.value).split("\n")[0] == (
        "grad needs a function with a scalar output, and function returned f64[2]. Sum or average it, "
        "grad(lambda x: np.sum(function(x))), or use jacrev for all derivatives")


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
