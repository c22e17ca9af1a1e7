"""The examples with models of other libraries: they run, and fxgrad's derivatives equal jax's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad.interop.nested import equation_count
from tests.support.worked import example

pytestmark = pytest.mark.slow


def assert_close(ours: Any, theirs: Any, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def assert_not_larger(function: Any, *args: Any) -> None:
    """Assert that a function imported and exported to jax again has no more equations than before."""
    before = equation_count(jax.make_jaxpr(function)(*args).jaxpr)
    after = equation_count(jax.make_jaxpr(fxgrad.to_jax(fxgrad.from_jax(function)))(*args).jaxpr)
    assert after <= before, f"{after} equations, {before} before"


def test_optax() -> None:
    module = example("optax_training")
    unjitted, _ = module.train(4, compiled=False)
    compiled, params = module.train(60, compiled=True)
    np.testing.assert_allclose(unjitted, compiled[:4], rtol=5e-5)
    assert compiled[-1] < 0.5 * compiled[0]
    x, y = module.spirals()

    def loss(params: Any) -> Any:
        first, second, last = (params[f"layer{number}"] for number in range(3))
        hidden = jnp.tanh(jnp.tanh(x @ first["w"] + first["b"]) @ second["w"] + second["b"])
        z = (hidden @ last["w"] + last["b"])[:, 0]
        return jnp.mean(jnp.logaddexp(0.0, z) - y * z)

    assert_close(fxgrad.grad(module.loss)(params, x, y), jax.grad(loss)(params))


def test_equinox() -> None:
    import equinox as eqx

    module = example("equinox_model")
    model, x, y = module.model_and_data()
    arrays, static = eqx.partition(model, eqx.is_array)
    loss = module.make_loss(static)
    imported = fxgrad.from_jax(loss)
    assert_close(fxgrad.grad(imported)(arrays, x, y), jax.grad(loss)(arrays, x, y))
    assert_close(fxgrad.jit(fxgrad.grad(imported))(arrays, x, y), jax.grad(loss)(arrays, x, y))
    program = fxgrad.make_program(fxgrad.grad(imported))(arrays, x, y)
    assert " @ " in str(program)
    assert "jax_call" not in str(program)
    ours, _ = module.train(20, fxgrad.value_and_grad(imported), arrays, x, y)
    theirs, _ = module.train(20, jax.value_and_grad(loss), arrays, x, y)
    np.testing.assert_allclose(ours, theirs, rtol=5e-5)
    assert_not_larger(loss, arrays, x, y)


def test_flax() -> None:
    from flax import nnx

    module = example("flax_model")
    definition, state = nnx.split(module.Net(nnx.Rngs(0)))
    images, labels = module.data()
    images, labels = images[:64], labels[:64]
    loss = module.make_loss(definition)
    imported = fxgrad.from_jax(loss)
    expected = jax.grad(loss)(state, images, labels)
    assert_close(fxgrad.grad(imported)(state, images, labels), expected)
    assert_close(fxgrad.jit(fxgrad.grad(imported))(state, images, labels), expected)
    assert "jax_call" not in str(fxgrad.make_program(fxgrad.grad(imported))(state, images, labels))
    ours, _ = module.train(2, fxgrad.jit(fxgrad.value_and_grad(imported)), state, images, labels)
    theirs, _ = module.train(2, jax.jit(jax.value_and_grad(loss)), state, images, labels)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5)
    assert_not_larger(loss, state, images, labels)


def test_scipy() -> None:
    module = example("scipy_minimize")
    for name, way in module.ways(module.rosenbrock).items():
        result = module.solve(module.rosenbrock, way, 5)
        assert result.fun < 1e-6, name
    imported = fxgrad.from_jax(module.rosenbrock_in_jax)
    result = module.solve(imported, module.ways(imported)["gradient and Hessian"], 5)
    np.testing.assert_allclose(result.x, 1.0, atol=5e-8, rtol=5e-9)
    x = np.linspace(-1.0, 1.0, 5)
    with jax.enable_x64(True):
        expected = jax.hessian(module.rosenbrock_in_jax)(x)
    assert_close(fxgrad.hessian(imported)(x), expected, 1e-10)
    assert_not_larger(module.rosenbrock_in_jax, jnp.linspace(-1.0, 1.0, 5))


def test_diffrax() -> None:
    module = example("diffrax_solve")
    observed = module.observations()
    rates = np.array([0.8, 0.3, 0.6, 0.15], np.float32)
    imported = fxgrad.from_jax(module.loss)
    value, gradient = jax.jit(jax.value_and_grad(module.loss))(rates, observed)
    assert_close(imported(rates, observed), value, 1e-3)
    # Both choose steps by errors near the rounding, so that they agree to the tolerance of the solver.
    assert_close(fxgrad.jit(fxgrad.value_and_grad(imported))(rates, observed), (value, gradient), 1e-2)
    assert_not_larger(module.loss, rates, observed)


def test_flops_by_line() -> None:
    """Ten steps of 2 n^2 for the product and 3 n + 1 for the norm, against the closed form."""
    module, size = example("flops_by_line"), 7
    program = fxgrad.make_program(module.iterated)(np.eye(size), np.ones(size))
    flops = list(module.flops_by_line(program).values())
    assert flops == [10 * 2 * size**2, 10 * (3 * size + 1), 2 * size**2 + 2 * size]
    branches = fxgrad.make_program(lambda x: fxgrad.lax.fori_loop(0, 3, lambda i, x: fxgrad.lax.cond(
        x[0] > 0, np.sin, np.cos, x), x))(np.ones(size))
    assert sum(module.flops_by_line(branches).values()) >= 3 * 2 * size


def test_pde_control_solves_for_a_hundred_thousand_unknowns() -> None:
    """At the solution each optimality condition holds, written by hand; Newton's method converges quadratically."""
    module = example("pde_control")
    found, steps = module.solve(1667, 20)
    assert found.size > 100_000
    assert len(steps) <= 6
    y, u, multipliers = np.moveaxis(found, 2, 0)
    rate, diffusion = 1667 / module.DURATION, module.DIFFUSION * 21 ** 2

    def second(v: Any) -> Any:
        around = np.pad(v, ((0, 0), (1, 1)))
        return diffusion * (around[:, :-2] - 2.0 * v + around[:, 2:])

    forward = rate * np.diff(y, axis=0, prepend=np.zeros((1, 20))) - second(y) + y ** 3 - u
    backward = (-rate * np.diff(multipliers, axis=0, append=np.zeros((1, 20))) - second(multipliers)
                + 3.0 * y ** 2 * multipliers + y - module.target(1667, 20))
    for condition in (forward, backward, module.COST * u - multipliers):
        assert np.abs(condition).max() < 1e-8
    assert np.abs(y - module.target(1667, 20)).mean() < 0.02


def test_pde_control_is_a_minimum() -> None:
    """The matrix is the dense Hessian, and other sources are worse, with temperatures by steps of dense matrices."""
    module = example("pde_control")
    wanted = module.target(6, 4)
    unknowns = np.random.default_rng(0).normal(size=72)
    sparse = fxgrad.hessian(module.lagrangian, sparse=True)(unknowns, wanted)
    np.testing.assert_allclose(sparse.toarray(), fxgrad.hessian(module.lagrangian)(unknowns, wanted), rtol=1e-12)
    found, _ = module.solve(6, 4)

    rate = 6 / module.DURATION
    matrix = rate * np.eye(4) + module.DIFFUSION * 25 * (2.0 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1))

    def objective(u: Any) -> Any:
        y, total = np.zeros(4), 0.0
        for source, aim in zip(u, wanted, strict=True):
            before = y
            for _ in range(20):  # Newton's method for one step of implicit Euler
                y = y - np.linalg.solve(matrix + np.diag(3.0 * y ** 2), matrix @ y + y ** 3 - rate * before - source)
            total += 0.5 * np.sum((y - aim) ** 2) + 0.5 * module.COST * np.sum(source ** 2)
        return total

    best = objective(found[..., 1])
    for seed in range(5):
        change = np.random.default_rng(seed).normal(size=(6, 4)) * 0.05
        assert objective(found[..., 1] + change) > best


@pytest.mark.parametrize(("name", "arguments"), [
    ("optax_training", ()), ("equinox_model", (10,)), ("flax_model", (1,)), ("scipy_minimize", ()),
    ("diffrax_solve", (5,)), ("flops_by_line", ()), ("pde_control", (30, 8))])
def test_examples_run(name: str, arguments: tuple[int, ...], capsys: pytest.CaptureFixture[str]) -> None:
    example(name).main(*arguments)
    assert capsys.readouterr().out


def test_row_a16_hmc_draws_from_the_distribution() -> None:
    """Mean and covariance of a correlated normal; means and deviations of a posterior, by sums over a grid."""
    module = example("hmc")
    key = fxgrad.random.key(1)
    found = np.asarray(module.hmc(module.correlated, np.zeros((8, 2)), key, 2500).positions)[200:].reshape(-1, 2)
    np.testing.assert_allclose(found.mean(0), module.MEAN, atol=0.08)
    np.testing.assert_allclose(np.cov(found.T), module.COVARIANCE, atol=0.12)

    x, y = module.flowers()
    logpdf = module.logistic_posterior(x, y)
    found = np.asarray(module.hmc(logpdf, np.zeros((8, 3)), key, 1500).positions)[200:].reshape(-1, 3)
    axes = [np.linspace(centre - 6 * width, centre + 6 * width, 33)
            for centre, width in zip(found.mean(0), found.std(0), strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    logits = grid @ x.T
    density = -0.5 * np.sum(grid ** 2, 1) / 4.0 + np.sum(y * logits - np.logaddexp(0.0, logits), 1)
    weights = np.exp(density - density.max())
    mean = weights @ grid / weights.sum()
    deviation = np.sqrt(weights @ (grid - mean) ** 2 / weights.sum())
    np.testing.assert_allclose(found.mean(0), mean, atol=0.06)
    np.testing.assert_allclose(found.std(0), deviation, rtol=0.1)


def test_row_a16_the_log_density_goes_to_jax_and_to_a_file() -> None:
    module = example("hmc")
    logpdf = module.logistic_posterior(*module.flowers())
    w = np.array([0.3, -0.2, 0.5])
    slope = fxgrad.grad(logpdf)(w)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.grad(fxgrad.to_jax(logpdf))(w), slope, rtol=1e-12)
    names: dict[str, Any] = {}
    exec(fxgrad.make_program(fxgrad.grad(logpdf))(w).to_python(), names)
    np.testing.assert_allclose(names["grad_logpdf"](w), slope, rtol=1e-12)


def test_a_server_makes_the_tokens_of_whole_sequences_and_compiles_once() -> None:
    """Ragged requests on few slots: every token equals that of the model without a cache, and jax's."""
    from tools import serve

    module = example("serving")
    weights, requests = module.initial(), [*module.some_requests(7), module.Request([5], 1), module.Request([7, 8], 30)]
    server = module.Server(weights, slots=3)
    compiled = jax.jit(serve.transformer)
    places = np.arange(module.LENGTH, dtype=np.int32)[None]
    with fxgrad.explain_retraces() as report:
        served = list(server.serve(requests))
    compiles = report.compiles
    assert sorted(number for number, _ in served) == [*range(len(requests))]
    assert [number for number, _ in served] != [*range(len(requests))]  # they end in another order than they arrive
    assert server.steps < sum(request.count for request in requests)
    for number, made in served:
        request = requests[number]
        assert made == module.greedy(weights, request)
        sequence = np.zeros((1, module.LENGTH), np.int32)
        tokens = [*request.prompt, *made]
        sequence[0, :len(tokens)] = tokens
        logits, _ = compiled(weights, sequence, places, module.empty(1))
        wanted = np.argmax(logits[0, len(request.prompt) - 1:len(tokens) - 1], -1)
        np.testing.assert_array_equal(made, wanted)
    with fxgrad.explain_retraces() as report:
        assert sorted(server.serve(requests[::-1])) == [
            (len(requests) - 1 - number, made) for number, made in sorted(served, reverse=True)]
    assert (compiles, report.compiles) == (2, 0)  # `enter` and `step`, and no more in another order of requests


def test_the_cache_is_taken_out_of_the_trace_of_the_model() -> None:
    module = example("serving")
    weights = module.initial()
    program = module.traced(weights, 2, 1)
    part = module.with_cache(program)
    tokens, places, cache = np.array([[3], [9]], np.int32), np.array([[0], [5]], np.int32), module.empty(2)
    made = part(weights, tokens, places, cache)
    np.testing.assert_array_equal(made["logits"], program(weights, tokens, places, cache))
    for name in ("keys", "values"):
        for before, after in zip(cache[name], made["cache"][name], strict=True):
            changed = np.argwhere((before != after).any(axis=(2, 3)))
            np.testing.assert_array_equal(changed, [[0, 0], [1, 5]])  # each row at the place of its token


def test_copying() -> None:
    """The values inside, against jax's own code of the same model."""
    module = example("copying")
    params, curves = module.train(160)
    assert curves["loss"][-1] < 0.1
    assert curves["loss"][0] > 2.0
    assert curves["grads.norm"].shape == (8,)
    tokens = module.sequences(1, 10_000)[0]

    def by_hand(params: Any, shifts: Any) -> tuple[Any, list[Any]]:
        x, found = params["embedding"][tokens] + params["places"], []
        for layer, shift in zip(params["layers"], shifts, strict=True):
            queries, keys, values = (jnp.einsum("tw,hwd->htd", x, layer[name]) for name in ("query", "key", "value"))
            scores = jnp.einsum("htd,hsd->hts", queries, keys) / np.sqrt(module.WIDTH // module.HEADS)
            weights = jax.nn.softmax(jnp.where(module.EARLIER, scores, -1e9))
            found.append(weights)
            x = x + jnp.einsum("hts,hsd->thd", weights, values).reshape(x.shape) @ layer["mix"] + shift
        chances = jax.nn.log_softmax(x @ params["head"])
        correct = jnp.take_along_axis(chances[:-1], tokens[1:, None], axis=1)
        return -jnp.mean(correct[module.HALF - 1:]), found

    zeros = [jnp.zeros((module.LENGTH, module.WIDTH), "float32")] * 2
    gradient, weights = jax.grad(by_hand, 1, has_aux=True)(params, zeros)
    values = fxgrad.capture(module.surprise, "layer*.weights")(params, tokens)[1]
    for ours, theirs in zip(values.values(), weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    slopes = fxgrad.grad(module.surprise, wrt=["layer0.taken", "layer1.taken"])(params, tokens)
    for ours, theirs in zip(slopes, gradient, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-5)
    corrupted = tokens.copy()
    corrupted[:module.HALF] = (corrupted[:module.HALF] + 5) % module.TOKENS
    assert module.patched(params, tokens, corrupted).shape == (2, module.LENGTH)
