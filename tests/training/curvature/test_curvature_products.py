"""Products with Gauss-Newton and Fisher matrices against dense matrices made by jax in float64."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fxgrad.distributions import Categorical, Gumbel, Normal, Poisson

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import curvature
from fxgrad.errors import ArgumentError, TreeError

DRAWS = np.random.default_rng(0)
X, LABELS = DRAWS.normal(size=(5, 3)), DRAWS.integers(0, 2, 5)
PARAMS = {"V": DRAWS.normal(size=(4, 2)), "W": DRAWS.normal(size=(3, 4)), "b": DRAWS.normal(size=4)}
TANGENT = {name: DRAWS.normal(size=leaf.shape) for name, leaf in PARAMS.items()}


def model(params: Any, x: Any) -> Any:
    return fnp.tanh(x @ params["W"] + params["b"]) @ params["V"]


def loss(outputs: Any) -> Any:
    return -fnp.mean(fxgrad.nn.log_softmax(outputs)[np.arange(5), LABELS])


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree_util.tree_leaves(tree)])


def dense_jacobian() -> np.ndarray:
    """Return the Jacobian of the model's outputs, (10, number of parameters), by jax."""
    with jax.enable_x64():
        found = jax.jacobian(lambda p: jnp.tanh(X @ p["W"] + p["b"]) @ p["V"])(PARAMS)
        return np.concatenate([np.asarray(leaf).reshape(10, -1) for leaf in jax.tree_util.tree_leaves(found)], axis=1)


def dense_hessian_of_loss() -> np.ndarray:
    with jax.enable_x64():
        outputs = jnp.asarray(model(PARAMS, X))
        return np.asarray(jax.hessian(lambda z: -jnp.mean(jax.nn.log_softmax(z)[np.arange(5), LABELS]))(
            outputs)).reshape(10, 10)


@pytest.mark.slow
def test_gauss_newton_equals_the_dense_product() -> None:
    jacobian = dense_jacobian()
    expected = jacobian.T @ dense_hessian_of_loss() @ jacobian @ flat(TANGENT)
    found = curvature.gauss_newton_product(model, loss, (PARAMS, X), (TANGENT,))
    np.testing.assert_allclose(flat(found), expected, rtol=1e-11, atol=1e-13)
    (found,) = curvature.gauss_newton_product(model, loss, (PARAMS, X), (TANGENT,), argnums=(0,))
    np.testing.assert_allclose(flat(found), expected, rtol=1e-11, atol=1e-13)
    fisher = curvature.fisher_product(model, Categorical, (PARAMS, X), (TANGENT,))
    np.testing.assert_allclose(flat(fisher), 5 * expected, rtol=1e-11, atol=1e-12)


def test_under_jit_vmap_and_scan() -> None:
    def product(params: Any, tangent: Any) -> Any:
        return curvature.gauss_newton_product(model, loss, (params, X), (tangent,))

    expected = flat(product(PARAMS, TANGENT))
    np.testing.assert_allclose(flat(fxgrad.jit(product)(PARAMS, TANGENT)), expected, rtol=1e-11, atol=1e-13)
    stacked = {name: np.stack([leaf, 2.0 * leaf]) for name, leaf in TANGENT.items()}
    batched = fxgrad.vmap(product, in_axes=(None, 0))(PARAMS, stacked)
    np.testing.assert_allclose(flat({name: leaf[1] for name, leaf in batched.items()}), 2.0 * expected, rtol=1e-11,
                               atol=1e-13)
    powers = fxgrad.scan(lambda v, _: (product(PARAMS, v), None), TANGENT, None, length=3)[0]
    np.testing.assert_allclose(flat(powers), flat(product(PARAMS, product(PARAMS, product(PARAMS, TANGENT)))),
                               rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("jitted", [False, True])
def test_gradient_of_a_quadratic_form_equals_central_differences(jitted: bool) -> None:
    def form(params: Any) -> Any:
        product = curvature.gauss_newton_product(model, loss, (params, X), (TANGENT,))
        return sum(fnp.sum(product[name] * TANGENT[name]) for name in TANGENT)

    gradient = (fxgrad.jit if jitted else lambda f: f)(fxgrad.grad(form))(PARAMS)
    step = 1e-6
    moved = [form({name: PARAMS[name] + sign * step * TANGENT[name] for name in PARAMS}) for sign in (1.0, -1.0)]
    np.testing.assert_allclose(flat(gradient) @ flat(TANGENT), (moved[0] - moved[1]) / (2 * step), rtol=1e-7)


def test_a_linear_model_with_squares_has_its_hessian() -> None:
    square = lambda outputs: np.sum(outputs ** 2)
    found = curvature.gauss_newton_product(lambda w: X @ w, square, (np.ones(3),), (np.array([1.0, 2.0, 3.0]),))
    np.testing.assert_allclose(found, 2.0 * X.T @ X @ [1.0, 2.0, 3.0], rtol=1e-12)


def test_outputs_and_arguments_in_containers() -> None:
    def pair(a: Any, b: Any) -> Any:
        return {"product": a * b, "sum": a + b}

    found = curvature.gauss_newton_product(
        pair, lambda outputs: outputs["product"] ** 2 + 3.0 * outputs["sum"] * outputs["product"],
        (2.0, 5.0), (1.0, -1.0), argnums=(0, 1))
    jacobian, middle = np.array([[5.0, 2.0], [1.0, 1.0]]), np.array([[2.0, 3.0], [3.0, 0.0]])
    np.testing.assert_allclose(found, jacobian.T @ middle @ jacobian @ [1.0, -1.0], rtol=1e-12)


@pytest.mark.parametrize(("distribution", "information"), [
    (lambda z: Poisson(np.exp(z)), lambda z: np.diag(np.exp(z))),
    (lambda z: Normal(z, 2.0), lambda z: np.eye(3) / 4.0),
    (lambda z: Normal(z[0], np.exp(z[1])), lambda z: np.diag([np.exp(-2 * z[1]), 2.0, 0.0])),
])
def test_information_of_distributions(distribution: Any, information: Any) -> None:
    weights, tangent = DRAWS.normal(size=3), DRAWS.normal(size=3)
    found = curvature.fisher_product(lambda w: X[:3] @ w, distribution, (weights,), (tangent,))
    np.testing.assert_allclose(found, X[:3].T @ information(X[:3] @ weights) @ X[:3] @ tangent, rtol=1e-10)


def test_empirical_fisher_is_the_sum_of_outer_products() -> None:
    def one(params: Any, x: Any, label: Any) -> Any:
        return -fxgrad.nn.log_softmax(model(params, x))[label]

    gradients = fxgrad.vmap(fxgrad.grad(one), (None, 0, 0))(PARAMS, X, LABELS)
    rows = np.stack([flat({name: leaf[number] for name, leaf in gradients.items()}) for number in range(5)])
    found = curvature.empirical_fisher_product(one, PARAMS, (X, LABELS), TANGENT)
    np.testing.assert_allclose(flat(found), rows.T @ rows @ flat(TANGENT), rtol=1e-11)


def test_arrays_in_arrays_out_and_dtypes() -> None:
    for make, kind in ((np.asarray, np.ndarray), (jnp.asarray, jax.Array)):
        w = make(np.ones(3, np.float32))
        found = curvature.gauss_newton_product(lambda w: w ** 2, lambda z: fnp.sum(z ** 2), (w,), (w,))
        assert isinstance(found, kind)
        assert found.dtype == np.float32
        assert np.asarray(found).tolist() == [8.0, 8.0, 8.0]
    empty = curvature.gauss_newton_product(lambda w: w ** 2, lambda z: fnp.sum(z), (np.ones(0),), (np.ones(0),))
    assert empty.shape == (0,)


def raised(kind: type[Exception], call: Any) -> str:
    with pytest.raises(kind) as error:
        call()
    return str(error.value).split("\n")[0]


def test_errors() -> None:
    assert raised(ArgumentError, lambda: curvature.gauss_newton_product(model, loss, PARAMS, (TANGENT,))) == (
        "gauss_newton_product takes the primals as a tuple, one entry for each argument, got a dict. Write "
        "gauss_newton_product(model, loss, (x,), (t,))")
    assert raised(ArgumentError, lambda: curvature.fisher_product(model, Categorical, (PARAMS, X), TANGENT)) == (
        "fisher_product takes the tangents as a tuple, one entry for each argument, got a dict. Write "
        "fisher_product(model, distribution, (x,), (t,))")
    assert raised(ArgumentError, lambda: curvature.fisher_product(
        model, Gumbel, (PARAMS, X), (TANGENT,))).startswith("kl: of a Gumbel and a Gumbel there is no closed form")
    assert raised(TreeError, lambda: curvature.gauss_newton_product(
        model, loss, (PARAMS, X), (X,))).startswith("linearize: the tangents must be a container like the primals")
    assert raised(ArgumentError, lambda: curvature.gauss_newton_product(
        model, lambda outputs: outputs, (PARAMS, X), (TANGENT,))).startswith("hvp needs a function with a scalar")
    assert raised(ArgumentError, lambda: curvature.empirical_fisher_product(model, PARAMS, X, TANGENT)) == (
        "empirical_fisher_product takes the batch as a tuple, one entry for each argument after the parameters, got a "
        "ndarray. Write empirical_fisher_product(loss, params, (x, y), tangent)")
    assert raised(ArgumentError, lambda: curvature.empirical_fisher_product(model, PARAMS, (X,), TANGENT)) == (
        "empirical_fisher_product: model is to return the scalar loss of one example, and returned an array of shape "
        "(2,). Sum it, and take no axis of examples")
