"""PyTorch's names: each error says what to write, and what it says to write is there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.pytorch_names import KEYWORDS, SENTENCES

X = fnp.arange(3.0)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: X.detach(),
     "'Array' object has no attribute 'detach', which is PyTorch's. Write fxgrad.stop_gradient(x)"),
    (lambda: fxgrad.jit(lambda x: x.unsqueeze(0))(X),
     "'Tracer' object has no attribute 'unsqueeze', which is PyTorch's. Write fxgrad.numpy.expand_dims(x, axis)"),
    (lambda: X.cuda(), ("'Array' object has no attribute 'cuda', which is PyTorch's. Write fxgrad.device_put(x, "
                        "device), or fxgrad.jit(f), which computes where jax does")),
    (lambda: X.requires_grad, ("'Array' object has no attribute 'requires_grad', which is PyTorch's. Arrays need no "
                               "mark: fxgrad.grad(f, argnums=0) says what is differentiated")),
    (lambda: fxgrad.grad(lambda x: x.relu_().sum())(X),
     ("'Tracer' object has no attribute 'relu_', which is PyTorch's. Arrays do not change: write x = fxgrad.nn.relu(x) "
      "and use the new array")),
    (lambda: fxgrad.no_grad(), ("module 'fxgrad' has no attribute 'no_grad', which is PyTorch's. Nothing is recorded "
                                "outside of fxgrad.grad: leave it out, or write fxgrad.stop_gradient(x)")),
    (lambda: fxgrad.nn.Linear(3, 2), ("module 'fxgrad.nn' has no attribute 'Linear', which is PyTorch's. Layers are "
                                      "functions of arrays and weights: write x @ w + b")),
    (lambda: fxgrad.optim.Adam([X]), (
        "module 'fxgrad.optim' has no attribute 'Adam', which is PyTorch's. Write optimizer = fxgrad.optim.adam(rate), "
        "state = optimizer.init(params), and in each step params, state = optimizer.update(gradients, state, params)")),
    (lambda: X.exp(), "'Array' object has no attribute 'exp', which is PyTorch's. Write fxgrad.numpy.exp(x)"),
    (lambda: fxgrad.vmap(lambda x: x.pow(2))(X),
     "'Tracer' object has no attribute 'pow', which is PyTorch's. Write x ** y"),
    (lambda: fxgrad.nn.CrossEntropyLoss(), (
        "module 'fxgrad.nn' has no attribute 'CrossEntropyLoss', which is PyTorch's. Losses are functions of "
        "predictions and targets: write fxgrad.nn.cross_entropy(predictions, targets)")),
    (lambda: fnp.cat([X, X]), ("module 'fxgrad.numpy' has no attribute 'cat', which is PyTorch's. Write "
                               "fxgrad.numpy.concatenate(arrays, axis)")),
])
def test_pytorchs_names_say_what_to_write(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        call()
    text, line = str(caught.value).split("\n")
    assert text == message
    assert re.fullmatch(r"  at test_pytorch_names.py:\d+ \(in <lambda>\)", line)


def test_python_looks_for_a_similar_name_of_a_module() -> None:
    for module in (fxgrad, fxgrad.nn, fxgrad.lax, fnp, fnp.linalg, fxgrad.optim):
        with pytest.raises(AttributeError) as caught:
            module.gradd  # noqa: B018
        assert str(caught.value) == f"module '{module.__name__.replace('training.', '')}' has no attribute 'gradd'"
        assert (caught.value.name, caught.value.obj) == ("gradd", module)  # for "Did you mean: 'grad'?" in tracebacks


def answers(call: Callable[[], Any]) -> str:
    """The message of an error about a call, which is a `TypeError` that names the caller's line."""
    with pytest.raises(TypeError) as caught:
        call()
    text, *line = str(caught.value).split("\n")
    assert line, text
    assert re.fullmatch(r"  at test_pytorch_names.py:\d+ \(in \S+\)", line[0])
    return text


@pytest.mark.parametrize(("function", "message"), [
    (lambda x: fnp.sum(x, dim=0), "sum() got an unexpected keyword argument 'dim', as PyTorch has it. Write axis="),
    (lambda x: np.sum(x, dim=0), "sum() got an unexpected keyword argument 'dim', as PyTorch has it. Write axis="),
    (lambda x: x.mean(dim=0), "mean() got an unexpected keyword argument 'dim', as PyTorch has it. Write axis="),
    (lambda x: x.sum(0, keepdim=True), (
        "sum() got an unexpected keyword argument 'keepdim', as PyTorch has it. Write keepdims=")),
    (lambda x: fnp.concatenate([x, x], dim=0), (
        "concatenate() got an unexpected keyword argument 'dim', as PyTorch has it. Write axis=")),
    (lambda x: fnp.linalg.norm(x, dim=0), (
        "norm() got an unexpected keyword argument 'dim', as PyTorch has it. Write axis=")),
    (lambda x: fnp.std(x, unbiased=False), ("std() got an unexpected keyword argument 'unbiased', as PyTorch has it. "
                                            "Write ddof=1 for True, and ddof=0 for False")),
    (lambda x: x.size(0) * x, ("'int' object is not callable, as PyTorch has it. PyTorch's sizes are x.shape here, and "
                               "x.shape[axis]; x.size is the number of all elements")),
    (lambda x: x[:x.size()], ("'int' object is not callable, as PyTorch has it. PyTorch's sizes are x.shape here, and "
                              "x.shape[axis]; x.size is the number of all elements")),
    (lambda x: x.view(3, 1), ("view() takes from 1 to 2 positional arguments but 3 were given, as PyTorch has it. "
                              "Write x.reshape(shape)")),
])
def test_calls_as_in_pytorch_say_what_to_write(function: Callable[[Any], Any], message: str) -> None:
    for way in (fxgrad.grad, fxgrad.jit, fxgrad.vmap, fxgrad.make_program):
        assert answers(lambda way=way: way(function)(X)) == message


def test_views_of_shapes() -> None:
    for shape in (-1, (3, 1)):
        with pytest.raises(fxgrad.errors.ArgumentError) as caught:
            fxgrad.jit(lambda x, shape=shape: x.view(shape))(X)
        assert str(caught.value).split("\n")[0] == (
            f"view: {shape} is no dtype; views of other shapes, which PyTorch calls so, are x.reshape({shape})")


@pytest.mark.parametrize(("call", "name", "keyword", "sentence"), [
    (lambda: fxgrad.nn.softmax(X, dim=0), "softmax", "dim", "Write axis="),
    (lambda: fxgrad.nn.glu(X, dim=0), "glu", "dim", "Write axis="),
    (lambda: fxgrad.nn.relu(X, inplace=True), "relu", "inplace",
     "Arrays do not change: leave it out, and use the result"),
    (lambda: fxgrad.nn.dropout(X, p=0.5), "dropout", "p", "Give the number by position"),
    (lambda: fxgrad.nn.dropout(X, 0.5, training=False), "dropout", "training",
     "Leave the key of dropout out, or give batch_norm its mean= and variance=, where nothing is trained"),
    (lambda: fxgrad.nn.mse_loss(X, target=X), "mse_loss", "target", "Give the arrays by position"),
    (lambda: fxgrad.nn.cross_entropy(X, 1, weight=X), "cross_entropy", "weight",
     "Write weights=, or give the arrays by position"),
    (lambda: fxgrad.nn.max_pool(X, (2,), stride=2), "max_pool", "stride", "Write strides="),
    (lambda: fxgrad.nn.layer_norm(X, eps=1e-3), "layer_norm", "eps", "Write epsilon="),
    (lambda: fxgrad.optim.sgd(lr=0.1), "sgd", "lr", "Give the rate by position, or write rate="),
    (lambda: fxgrad.optim.adam(0.1, betas=(0.9, 0.99)), "adam", "betas", "Write beta1=, beta2="),
    (lambda: fxgrad.optim.clip_by_global_norm([X], max_norm=1.0), "clip_by_global_norm", "max_norm",
     "Give the limit by position"),
])
def test_keywords_of_layers_and_optimisers(call: Callable[[], Any], name: str, keyword: str, sentence: str) -> None:
    expected = f"{name}() got an unexpected keyword argument {keyword!r}, as PyTorch has it. {sentence}"
    assert answers(call) == expected
    assert answers(lambda: fxgrad.jit(lambda x: x + call())(X)) == expected


@pytest.mark.parametrize(("call", "function", "keyword", "library", "sentence"), [
    (lambda: fxgrad.optim.adam(learning_rate=0.1), "adam", "learning_rate", "optax",
     "Give the rate by position, or write rate="),
    (lambda: fxgrad.optim.lion(0.1, b1=0.9), "lion", "b1", "optax", "Write beta1="),
    (lambda: fxgrad.random.normal(fxgrad.random.key(0), size=3), "normal", "size", "NumPy", "Write shape="),
    (lambda: fxgrad.random.normal(fxgrad.random.key(0), loc=1.0), "normal", "loc", "NumPy", (
        "Write loc + scale * x of draws x, or fxgrad.distributions.Normal(loc, scale).sample(key, shape)")),
    (lambda: fxgrad.random.uniform(fxgrad.random.key(0), low=1.0), "uniform", "low", "NumPy", "Write minval=, maxval="),
    (lambda: fxgrad.odeint(lambda y, t, a: a * y, 1.0, X, args=(2.0,)), "odeint", "args", "SciPy",
     "Write odeint(func, y0, t, *args)"),
])
def test_keywords_of_optax_and_numpy(call: Callable[[], Any], function: str, keyword: str, library: str,
                                     sentence: str) -> None:
    expected = f"{function}() got an unexpected keyword argument {keyword!r}, as {library} has it. {sentence}"
    assert answers(call) == expected
    assert answers(lambda: fxgrad.jit(lambda x: x + call())(X)) == expected


@pytest.mark.parametrize(("call", "module", "name", "advice"), [
    (lambda: fxgrad.loss_scaling.GradScaler, "loss_scaling", "GradScaler",
     ": write scale = fxgrad.loss_scaling.Dynamic() and scaled = loss_scaling.value_and_grad(f)(scale, params)"),
    (lambda: fxgrad.optim.apply_updates, "optim", "apply_updates",
     ": optimizer.update(gradients, state, params) returns the new parameters and state: leave it out"),
    (lambda: fxgrad.random.seed(0), "random", "seed",
     (": write key = fxgrad.random.key(seed), and give each function of fxgrad.random a key of its own, by split")),
    (lambda: fxgrad.random.rand(3), "random", "rand",
     ", which is PyTorch's. Write fxgrad.random.uniform(key, shape)"),
])
def test_names_of_optax_and_numpy_say_what_to_write(call: Callable[[], Any], module: str, name: str, advice: str,
                                                    ) -> None:
    with pytest.raises(AttributeError) as caught:
        call()
    assert str(caught.value).split("\n")[0] == f"module 'fxgrad.{module}' has no attribute {name!r}{advice}"


@pytest.mark.parametrize(("call", "message"), [
    (lambda: fxgrad.optim.adam(0.1).step(), (
        "'Optimizer' object has no attribute 'step', which is PyTorch's. Write params, state = "
        "optimizer.update(gradients, state, params)")),
    (lambda: fxgrad.distributions.Normal().log_prob(X),
     "'Normal' object has no attribute 'log_prob', which is PyTorch's. Write .logpdf(x)"),
    (lambda: fxgrad.distributions.Categorical(X).log_prob(1),
     "'Categorical' object has no attribute 'log_prob', which is PyTorch's. Write .logpmf(x)"),
])
def test_names_of_optimizers_and_distributions(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        call()
    assert str(caught.value).split("\n")[0] == message
    assert not {"step", "log_prob", "mean"} & {*dir(fxgrad.optim.adam(0.1)), *dir(fxgrad.distributions.Normal())}


def test_functions_of_the_users_own_have_pythons_message() -> None:
    name = "test_functions_of_the_users_own_have_pythons_message"

    def mean(x: Any) -> Any:
        return x

    def size(x: Any) -> Any:
        return x

    for call, message in (
            (lambda x: mean(x, dim=0),  # type: ignore[call-arg]
             f"{name}.<locals>.mean() got an unexpected keyword argument 'dim'"),
            (lambda x: size(x, where=0),  # type: ignore[call-arg]
             f"{name}.<locals>.size() got an unexpected keyword argument 'where'"),
            (lambda x: (x.shape[0])(x), "'int' object is not callable"),
            (lambda x: fnp.sum(x, colour=0), "sum() got an unexpected keyword argument 'colour'")):
        with pytest.raises(TypeError) as caught:
            fxgrad.jit(call)(X)
        assert str(caught.value) == message


def test_what_the_sentences_name_is_there_and_what_they_answer_is_not() -> None:
    sentences = (*SENTENCES.values(), *KEYWORDS.values())
    asked = {path: sentence for sentence in sentences for path in re.findall(r"fxgrad\.([\w.]*\w)", sentence)}
    absent = []
    for path in asked:
        found: Any = fxgrad
        for name in path.split("."):
            found = getattr(found, name, None)
        absent += [path] if found is None else []
    assert not absent
    owners = [fxgrad.Array, fxgrad, fxgrad.nn, fxgrad.optim, fnp]
    assert not [name for name in SENTENCES if all(name in dir(owner) for owner in owners)]


def test_other_names_have_pythons_message() -> None:
    for owner, name in ((X, "'Array' object"), (fnp, "module 'fxgrad.numpy'"), (fxgrad.nn, "module 'fxgrad.nn'"),
                        (fxgrad.optim, "module 'fxgrad.optim'"), (fxgrad, "module 'fxgrad'")):
        with pytest.raises(AttributeError) as caught:
            owner.slope  # noqa: B018  (asked for)
        assert str(caught.value) == f"{name} has no attribute 'slope'"


def test_asking_whether_a_name_is_there_still_works() -> None:
    assert not hasattr(X, "detach")
    assert not hasattr(X, "numpy")
    assert not hasattr(fxgrad.nn, "Linear")
    assert "detach" not in dir(X)
    np.testing.assert_array_equal(fxgrad.jit(lambda x: x + hasattr(x, "cuda"))(X), X)
