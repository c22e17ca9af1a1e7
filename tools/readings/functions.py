"""Twenty-four functions, written once, and traced by fxgrad and by jax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy import array, eye, float32, full, int32

FLOAT = float32


class Function(NamedTuple):
    """A function to be traced and arrays to trace it with."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def ones(*shape: int) -> Any:
    """An array to trace with."""
    return full(shape, 1, FLOAT)


def functions(np: Any, library: Any) -> list[Function]:
    """The functions in the words of one library: `np` is its numpy, `library` has `grad`, `vmap`, `lax`, `nn`."""
    return [*_models(np, library), *_loops(np, library), *_algebra(np, library), *_derivatives(np, library)]


def _models(np: Any, library: Any) -> list[Function]:
    nn, lax = library.nn, library.lax

    def regression(weights: Any, bias: Any, x: Any, y: Any) -> Any:
        logits = np.tanh(x @ weights + bias)
        error = logits - y
        return np.sum(error * error) * 0.1

    def perceptron(params: Any, x: Any, y: Any) -> Any:
        hidden = x
        for layer in params[:-1]:
            hidden = nn.relu(hidden @ layer["w"] + layer["b"])
        logits = hidden @ params[-1]["w"] + params[-1]["b"]
        return np.mean((logits - y) ** 2)

    def cross_entropy(logits: Any, labels: Any) -> Any:
        log_probabilities = nn.log_softmax(logits)
        picked = np.take_along_axis(log_probabilities, labels[:, None], axis=1)
        return -np.mean(picked)

    def attention(query: Any, key: Any, value: Any) -> Any:
        scores = query @ key.T / np.sqrt(query.shape[-1])
        mask = np.tril(np.ones(scores.shape, dtype=bool))
        weights = nn.softmax(np.where(mask, scores, -1e9))
        return weights @ value

    def layer_norm(x: Any, scale: Any, offset: Any) -> Any:
        mean = np.mean(x, axis=-1, keepdims=True)
        variance = np.var(x, axis=-1, keepdims=True)
        normed = (x - mean) / np.sqrt(variance + 1e-5)
        return normed * scale + offset

    def embedding(table: Any, tokens: Any, targets: Any) -> Any:
        vectors = table[tokens]
        scores = vectors @ table.T
        return np.sum((scores - targets) ** 2)

    def convolution(image: Any, kernel: Any) -> Any:
        features = lax.conv_general_dilated(image, kernel, (1, 1), "SAME")
        return np.sum(nn.relu(features))

    dense = [{"w": ones(4, 8), "b": ones(8)}, {"w": ones(8, 8), "b": ones(8)}, {"w": ones(8, 2), "b": ones(2)}]
    labels = array([0, 2, 1], int32)
    return [
        Function("gradient of a regression", library.grad(regression, argnums=(0, 1)),
                 (ones(3, 2), ones(2), ones(5, 3), ones(5, 2))),
        Function("gradient of a perceptron", library.grad(perceptron), (dense, ones(5, 4), ones(5, 2))),
        Function("softmax cross entropy", library.value_and_grad(cross_entropy), (ones(3, 4), labels)),
        Function("masked attention", attention, (ones(6, 4), ones(6, 4), ones(6, 4))),
        Function("layer norm", layer_norm, (ones(5, 8), ones(8), ones(8))),
        Function("gradient of an embedding", library.grad(embedding), (ones(10, 4), labels, ones(3, 10))),
        Function("gradient of a convolution", library.grad(convolution, argnums=1),
                 (ones(2, 3, 8, 8), ones(4, 3, 3, 3))),
    ]


def _loops(np: Any, library: Any) -> list[Function]:
    nn, lax = library.nn, library.lax

    def recurrent(weights: Any, inputs: Any, start: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            new = np.tanh(weights @ state + x)
            return new, new

        final, states = lax.scan(step, start, inputs)
        return np.sum(final) + np.sum(states ** 2)

    def lstm(params: Any, inputs: Any, hidden: Any, cell: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            hidden, cell = carry
            gates = x @ params["wx"] + hidden @ params["wh"] + params["b"]
            i, f, g, o = np.split(gates, 4, axis=-1)
            cell = nn.sigmoid(f) * cell + nn.sigmoid(i) * np.tanh(g)
            hidden = nn.sigmoid(o) * np.tanh(cell)
            return (hidden, cell), hidden

        (hidden, cell), outputs = lax.scan(step, (hidden, cell), inputs)
        return outputs

    def newton(x: Any) -> Any:
        def condition(state: Any) -> Any:
            guess, count = state
            return (np.abs(guess * guess - x) > 1e-4) & (count < 50)

        def body(state: Any) -> Any:
            guess, count = state
            return 0.5 * (guess + x / guess), count + 1

        return lax.while_loop(condition, body, (x, 0))[0]

    def choice(x: Any, slope: Any) -> Any:
        def steep(x: Any) -> Any:
            return slope * x

        def flat(x: Any) -> Any:
            return np.sin(x)

        total = np.sum(x)
        return np.sum(lax.cond(total > 0.0, steep, flat, x))

    def power(matrix: Any, start: Any) -> Any:
        def body(_: Any, vector: Any) -> Any:
            image = matrix @ vector
            return image / np.linalg.norm(image)

        return lax.fori_loop(0, 10, body, start)

    sizes = {"wx": ones(3, 16), "wh": ones(4, 16), "b": ones(16)}
    return [
        Function("scan", recurrent, (ones(4, 4), ones(6, 4), ones(4))),
        Function("gradient of a scan", library.grad(recurrent), (ones(4, 4), ones(6, 4), ones(4))),
        Function("LSTM", lstm, (sizes, ones(7, 3), ones(4), ones(4))),
        Function("while loop", newton, (FLOAT(2.0),)),
        Function("gradient of a branch", library.grad(choice), (ones(5), FLOAT(2.0))),
        Function("power iteration", power, (ones(4, 4), ones(4))),
    ]


def _algebra(np: Any, library: Any) -> list[Function]:
    def likelihood(covariance: Any, x: Any) -> Any:
        factor = np.linalg.cholesky(covariance)
        whitened = library.scipy.linalg.solve_triangular(factor, x, lower=True)
        return 0.5 * np.sum(whitened ** 2) + np.sum(np.log(np.diag(factor)))

    def median_gap(x: Any) -> Any:
        ordered = np.sort(x, axis=0)
        gaps = ordered[1:] - ordered[:-1]
        return np.max(gaps, axis=0)

    def update(x: Any, places: Any, values: Any) -> Any:
        counted = x.at[places].add(values)
        return counted.at[0].set(0.0)

    def smooth(signal: Any) -> Any:
        left, right = signal[:-2], signal[2:]
        inner = (left + 2.0 * signal[1:-1] + right) / 4.0
        return np.concatenate([signal[:1], inner, signal[-1:]])

    def distances(x: Any, y: Any) -> Any:
        difference = x[:, None, :] - y[None, :, :]
        return np.sqrt(np.sum(difference ** 2, axis=-1) + 1e-6)

    places = array([1, 3, 1], int32)
    return [
        Function("gradient of a Gaussian likelihood", library.grad(likelihood), (eye(3, dtype=FLOAT), ones(3))),
        Function("sort", median_gap, (ones(6, 2),)),
        Function("updates at indices", update, (ones(5), places, ones(3))),
        Function("smoothing", smooth, (ones(8),)),
        Function("gradient of distances", library.grad(lambda x, y: np.sum(distances(x, y))), (ones(4, 3), ones(5, 3))),
    ]


def _derivatives(np: Any, library: Any) -> list[Function]:
    def logistic(weights: Any, x: Any, label: Any) -> Any:
        score = np.dot(x, weights)
        return np.logaddexp(0.0, score) - label * score

    def rosenbrock(x: Any) -> Any:
        valley = x[1:] - x[:-1] ** 2
        return np.sum(100.0 * valley ** 2 + (1.0 - x[:-1]) ** 2)

    def pendulum(angle: Any, speed: Any) -> Any:
        force = -9.81 * np.sin(angle) - 0.1 * speed
        return speed, force

    def energy(positions: Any) -> Any:
        gaps = positions[1:] - positions[:-1]
        return 0.5 * np.sum(gaps * gaps) + np.sum(np.cos(positions))

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1.0 + np.tanh(0.7978846 * (x + 0.044715 * x ** 3)))

    def mixture(x: Any, means: Any) -> Any:
        exponents = -0.5 * (x - means) ** 2
        return library.scipy.special.logsumexp(exponents)

    def tangent(angle: Any, speed: Any, turn: Any, push: Any) -> Any:
        return library.jvp(pendulum, (angle, speed), (turn, push))

    def curvature(positions: Any, direction: Any) -> Any:
        return library.jvp(library.grad(energy), (positions,), (direction,))[1]

    return [
        Function("gradients of examples", library.vmap(library.grad(logistic), in_axes=(None, 0, 0)),
                 (ones(3), ones(8, 3), ones(8))),
        Function("hessian", library.hessian(rosenbrock), (ones(4),)),
        Function("jvp", tangent, (FLOAT(1.0), FLOAT(0.0), FLOAT(1.0), FLOAT(1.0))),
        Function("product with a hessian", curvature, (ones(5), ones(5))),
        Function("second derivative", library.grad(library.grad(gelu)), (FLOAT(1.0),)),
        Function("gradient of a mixture", library.grad(mixture), (FLOAT(1.0), ones(3))),
    ]
