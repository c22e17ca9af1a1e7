"""Products with Gauss-Newton and Fisher matrices, which are never formed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad import distributions, hvp, linear_transpose, linearize, stop_gradient, tree, vmap
from fxgrad import numpy as fnp
from fxgrad.errors import ArgumentError
from fxgrad.extend import at_user_line, function_name, hide_frames
from fxgrad.training.curvature.passes import check_examples

Function = Callable[..., Any]
Argnums = int | Sequence[int]


@hide_frames
def gauss_newton_product(model: Function, loss: Function, primals: Sequence[Any], tangents: Sequence[Any],
                         argnums: Argnums = 0) -> Any:
    """Return the Gauss-Newton matrix of `loss(model(*primals))` times a vector: Jᵀ H J v.

    J is the Jacobian of `model`, which returns a container of floating-point arrays, in the arguments at `argnums`;
    H is the Hessian of `loss`, a function of that container that returns a scalar. `tangents` is a tuple of containers
    like these arguments; the result is like their gradient, a tuple if `argnums` is one. The matrix is the Hessian
    without the second derivatives of `model`; if `loss` is convex, it is positive semidefinite (Schraudolph, Fast
    curvature matrix-vector products, 2002). The cost is that of a few gradients.

    Raises `ArgumentError` if `primals` or `tangents` is no tuple, if the tangents have other shapes or dtypes than the
    arguments, or if `loss` returns no scalar; `TreeError` if the tangents are another container.

    >>> import numpy as np, fxgrad
    >>> x, y = np.array([1.0, 2.0]), np.array([0.0, 1.0])
    >>> model = lambda w: np.exp(w * x)
    >>> loss = lambda outputs: np.sum((outputs - y) ** 2)
    >>> product = fxgrad.curvature.gauss_newton_product(model, loss, (0.0,), (1.0,))
    >>> float(product), float(np.sum(2 * x ** 2))  # at w = 0 the Jacobian is x
    (10.0, 10.0)
    """
    return _product("gauss_newton_product", "loss", model, primals, tangents, argnums,
                    lambda outputs, moved: hvp(loss, (outputs,), (moved,)))


@hide_frames
def fisher_product(model: Function, distribution: Function, primals: Sequence[Any], tangents: Sequence[Any],
                   argnums: Argnums = 0) -> Any:
    """Return the Fisher information matrix of a model times a vector: Jᵀ F J v.

    `distribution(outputs)` is the distribution of the observations for the outputs of `model(*primals)`: a class of
    `fxgrad.distributions` for which `kl` is known, such as `Categorical` for logits. Entries of a batch are
    independent: their information is summed. F is the information in the outputs, the Hessian of kl(p(outputs), p(z))
    in z at z = outputs. J, `argnums`, `tangents` and the result are those of `gauss_newton_product`. No observations
    are needed. Where the outputs are natural parameters (logits, means), this is the Gauss-Newton matrix of the summed
    negative log-likelihood (Martens, New insights and perspectives on the natural gradient method, 2020).

    Raises the errors of `gauss_newton_product`, and `ArgumentError` if `kl` is not known.

    >>> import numpy as np, fxgrad
    >>> from fxgrad.distributions import Categorical
    >>> x = np.array([[1.0], [2.0]])
    >>> product = fxgrad.curvature.fisher_product(lambda w: x @ w, Categorical, (np.zeros((1, 2)),),
    ...                                           (np.array([[1.0, 0.0]]),))
    >>> product  # at equal chances F is [[1/4, -1/4], [-1/4, 1/4]]
    array([[ 1.25, -1.25]])
    """
    def information(outputs: Any, moved: Any) -> Any:
        fixed = distribution(stop_gradient(outputs))
        return hvp(lambda z: fnp.sum(distributions.kl(fixed, distribution(z))), (outputs,), (moved,))

    return _product("fisher_product", "distribution", model, primals, tangents, argnums, information)


@hide_frames
def empirical_fisher_product(loss: Function, params: Any, batch: Any, tangent: Any) -> Any:
    """Return the empirical Fisher matrix times a vector, Σ g (g · v), summed over examples, without their gradients g.

    `loss(params, *example)` is the scalar loss of one example; `batch` is a tuple of containers of its other arguments,
    whose arrays have the examples along axis 0. `tangent` and the result are like `params`. All products g · v are one
    jvp of the losses, and the sum is one vjp. With observations drawn from the model, this is an unbiased estimate of
    the Fisher matrix times the vector; with those of the data it is not (Kunstner, Balles and Hennig, Limitations of
    the empirical Fisher approximation, 2019).

    Raises `ArgumentError` if `batch` is no tuple of arrays with as many examples, or if `loss` returns no scalar.

    >>> import numpy as np, fxgrad
    >>> loss = lambda w, x: np.dot(w, x)  # whose gradient is x
    >>> x = np.array([[1.0, 0.0], [1.0, 2.0]])
    >>> fxgrad.curvature.empirical_fisher_product(loss, np.zeros(2), (x,), np.array([1.0, 1.0]))
    array([4., 6.])
    """
    if not isinstance(batch, tuple | list):
        raise ArgumentError(at_user_line(
            f"empirical_fisher_product takes the batch as a tuple, one entry for each argument after the parameters, "
            f"got a {type(batch).__name__}. Write empirical_fisher_product(loss, params, (x, y), tangent)"))
    check_examples("empirical_fisher_product", batch)

    def losses(params: Any) -> Any:
        return example_losses("empirical_fisher_product", loss, params, batch)

    return _product("empirical_fisher_product", "", losses, (params,), (tangent,), 0, lambda outputs, moved: moved)


def example_losses(what: str, loss: Function, params: Any, batch: Sequence[Any]) -> Any:
    """Return the losses of all examples as a vector; raise `ArgumentError` unless `loss` returns scalars."""
    losses = vmap(loss, in_axes=(None, *[0] * len(batch)))(params, *batch)
    shapes = [fnp.shape(leaf)[1:] for leaf in tree.leaves(losses)]
    if shapes != [()]:
        returned = f"an array of shape {shapes[0]}" if len(shapes) == 1 else f"{len(shapes)} arrays"
        raise ArgumentError(at_user_line(
            f"{what}: {function_name(loss)} is to return the scalar loss of one example, and returned {returned}. "
            "Sum it, and take no axis of examples"))
    return tree.leaves(losses)[0]


def _product(what: str, second: str, model: Function, primals: Sequence[Any], tangents: Sequence[Any],
             argnums: Argnums, middle: Callable[[Any, Any], Any]) -> Any:
    """Return Jᵀ M J v, where `middle(outputs, J v)` is M J v; the model runs once."""
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, tuple | list):
            raise ArgumentError(at_user_line(
                f"{what} takes the {name} as a tuple, one entry for each argument, got a {type(value).__name__}. "
                f"Write {what}(model, {second}, (x,), (t,))"))
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    outputs, linear = linearize(model, *primals, argnums=numbers)
    moved = middle(outputs, linear(*tangents))
    found = linear_transpose(linear, *(primals[number] for number in numbers))(moved)
    return found[0] if isinstance(argnums, int) else found
