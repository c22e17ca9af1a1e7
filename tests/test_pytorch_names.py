"""PyTorch's names: each error says what to write, and what it says to write is there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.pytorch_names import SENTENCES

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
    (lambda: fnp.cat([X, X]), ("module 'fxgrad.numpy' has no attribute 'cat', which is PyTorch's. Write "
                               "fxgrad.numpy.concatenate(arrays, axis)")),
])
def test_pytorchs_names_say_what_to_write(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        call()
    text, line = str(caught.value).split("\n")
    assert text == message
    assert re.fullmatch(r"  at test_pytorch_names.py:\d+ \(in <lambda>\)", line)


def test_what_the_sentences_name_is_there_and_what_they_answer_is_not() -> None:
    asked = {path: sentence for sentence in SENTENCES.values() for path in re.findall(r"fxgrad\.([\w.]*\w)", sentence)}
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
