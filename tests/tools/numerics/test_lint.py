"""`lint`: lines are named with what goes wrong and what to write, and programs without faults have no finding."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lint
from fxgrad.tools.numerics import RULES, Finding

X = np.linspace(0.2, 2.0, 4)


def softmax_of(exponentials):
    return exponentials / exponentials.sum()


def line_of(function: Any, offset: int = 0) -> str:
    return f"test_lint.py:{inspect.getsourcelines(function)[1] + offset}"


NAIVE: dict[str, Any] = {
    "logsumexp": lambda x: np.log(np.sum(np.exp(x))),
    "logsumexp of a mean": lambda x: np.log(np.sum(np.exp(x)) * 0.25),
    "softmax, once": lambda x: softmax_of(np.exp(x)),
    "log_softmax": lambda x: np.log(np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True)),
    "softplus": lambda x: np.log(1 + np.exp(x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "expm1": lambda x: np.exp(x) - 1,
    "log1p": lambda x: np.log(1 + x),
    "in a loop": lambda x: fxgrad.fori_loop(0, 3, lambda _, x: np.log(1 + np.exp(x)), x),
    "in a gradient": fxgrad.grad(lambda x: np.log(np.sum(np.exp(x)))),
}


@pytest.mark.parametrize("name", NAIVE)
def test_naive_forms_are_named_by_line(name: str) -> None:
    function = NAIVE[name]
    found = [each for each in lint(function)(X) if each.kind in ("overflow", "cancellation")]
    lines = {each.line for each in found}
    inner = softmax_of if name == "softmax, once" else inspect.unwrap(function)
    assert lines == {line_of(inner, inner is softmax_of)}


def test_row_w10_the_linter_names_the_line_and_the_cure() -> None:
    def naive(x):
        scores = x * 2
        return np.exp(scores) / np.sum(np.exp(scores))

    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isnan(naive(np.array([1000.0, 0.0]))[0])
    line = line_of(naive, 2)
    found = lint(naive)(np.ones(2))
    assert [each[:4] for each in found] == [
        (line, "exp overflows for large x, and inf / inf is NaN", "fxgrad.nn.softmax(x, axis)", "overflow")]
    assert line in str(found)
    np.testing.assert_array_equal(fxgrad.stabilize(naive)(np.array([1000.0, 0.0])), [1.0, 0.0])


# --- derivatives ----------------------------------------------------------------------------------------------------

WITHOUT_GRADIENT: dict[str, tuple[Any, str, str]] = {
    "round": (lambda x: np.sum((np.round(x * 3) - 1.0) ** 2), "round", "straight through"),
    "floor": (lambda x: np.sum(np.floor(x)), "floor", "straight through"),
    "ceil": (lambda x: np.sum(np.ceil(x)), "ceil", "straight through"),
    "sign": (lambda x: np.sum(np.sign(x)), "sign", "smooth step"),
    "argmax": (lambda x: fnp.array([1.0, 2.0, 3.0, 4.0])[np.argmax(x)], "argmax", "soft choice"),
    "argmin, as a number": (lambda x: np.argmin(x) * 2.0, "argmin", "soft choice"),
    "argsort": (lambda x: np.sum(np.argsort(x) * 1.0), "sort", "straight through"),
    "comparison": (lambda x: np.sum(np.where(x > 1.0, 2.0, 3.0)), "a comparison", "smooth step"),
    "comparison, converted": (lambda x: np.mean((x > 0.5).astype("float64")), "a comparison", "smooth step"),
    "conversion": (lambda x: np.sum(x.astype("int32") * 0.5), "a conversion to integers", "straight through"),
    "branch": (lambda x: fxgrad.cond(x[0] > 0.0, lambda: 1.0, lambda: 2.0), "a comparison", "smooth step"),
    "in a loop": (lambda x: fxgrad.lax.scan(lambda c, row: (c + np.round(row), None), 0.0, x)[0], "round", "straight"),
}


@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_row_m16_operations_without_a_derivative(name: str) -> None:
    function, operation, cure = WITHOUT_GRADIENT[name]
    assert not np.any(fxgrad.grad(lambda x: np.sum(function(x)))(X)), "the gradient is defined, and zero"
    finding, = lint(function, only="derivative")(X)
    assert finding.line == line_of(function)
    assert finding.fault == f"{operation} has no derivative but 0, and so has x: no gradient comes through"
    assert cure in finding.write
    assert "smooth" in finding.write and "score function" in finding.write  # noqa: PT018


def test_only_the_arguments_that_get_no_gradient_are_named() -> None:
    def quantised(weights, scale, labels):
        return np.sum(weights * 0.0 + np.round(scale * 3.0) * labels), labels

    finding, = lint(quantised)(X, X, X)
    assert finding.fault == "round has no derivative but 0, and so has scale: no gradient comes through"


FINE: dict[str, Any] = {
    "relu": lambda x: np.sum(np.where(x > 0, x, 0.0)),
    "gate": lambda x: np.sum(x * (x > 0)),
    "greatest": lambda x: x[np.argmax(x)],
    "sorted": lambda x: np.sort(x)[0],
    "remainder": lambda x: x - np.floor(x),
    "straight through": lambda x: x + fxgrad.stop_gradient(np.round(x) - x),
    "stopped": lambda x: np.sum(x * np.round(fxgrad.stop_gradient(x))),
    "position": lambda x: np.argmax(x),
    "double where": lambda x: np.where(x > 0, np.log(np.where(x > 0, x, 1.0)), 0.0),
    "shifted": lambda x: np.exp(x - np.max(x, keepdims=True)) / np.sum(np.exp(x - np.max(x, keepdims=True))),
    "shifted by ours": lambda x: np.log(np.sum(np.exp(x - fxgrad.stop_gradient(x.max())))) + x.max(),
    "norm": lambda x: np.sqrt(np.sum(x ** 2)) + np.linalg.norm(x) + np.std(x),
    "polynomial": lambda x: 1 - x ** 2 + x ** 4,
    "derivative of tanh": fxgrad.grad(lambda x: np.sum(np.tanh(x))),
    "attention": lambda x: fxgrad.nn.softmax(np.outer(x, x)) @ x,
    "losses": lambda x: np.mean(np.logaddexp(0.0, -x)) + np.mean(np.square(fxgrad.nn.sigmoid(x) - 1.0)) * 0.5,
    "offset": lambda x: np.log(x + 1e-8) + np.sqrt(x + 1e-6) + np.log(2 + np.cos(x)),
    "normalised": lambda x: (x - np.mean(x)) / np.sqrt(np.var(x) + 1e-5),
}


@pytest.mark.parametrize("name", [each for each in FINE if each != "losses"])
def test_what_is_fine_has_no_finding(name: str) -> None:
    assert not lint(FINE[name])(X)


def test_derivatives_that_are_nan() -> None:
    choices = {
        "log": lambda x: np.where(x > 0, np.log(x), 0.0),
        "sqrt": lambda x: np.where(x > 0, np.sqrt(x) * 2.0, 0.0),
        "a quotient": lambda x: np.where(x != 0, 1.0 / x, 0.0),
    }
    for what, function in choices.items():
        finding, = lint(function)(X)
        assert finding.fault == f"where leaves {what} out, but not its derivative: 0 times infinity is NaN"
        with np.errstate(all="ignore"):
            assert np.isnan(fxgrad.grad(function)(0.0))
    held = {"sqrt": lambda x: np.sqrt(np.maximum(x, 0.0)), "log": lambda x: np.log(np.maximum(x, 0.0) * 2.0),
            "a quotient": lambda x: x / np.maximum(x, 0.0)}
    for what, function in held.items():
        finding, = lint(function)(X)
        assert finding.fault == f"{what} of what is 0 for every number below 0: the derivative there is NaN"
        with np.errstate(all="ignore"):
            assert np.isnan(fxgrad.grad(function)(-1.0))


def test_keys() -> None:
    def twice(key):
        return fxgrad.random.normal(key) + fxgrad.random.uniform(key)

    finding, = lint(twice)(fxgrad.random.key(0))
    assert (finding.line, finding.kind) == (line_of(twice, 1), "keys")
    assert finding.fault.startswith("a random key is used twice: by bits at ")
    assert not lint(lambda key: fxgrad.random.normal(key))(fxgrad.random.key(0))


# --- reports --------------------------------------------------------------------------------------------------------


def test_kinds_are_chosen() -> None:
    def several(x):
        return np.sum(np.log(1 + np.exp(x)) + (np.exp(x) - 1)) + np.sqrt(np.sum(x ** 2))

    assert [each.kind for each in lint(several)(X)] == ["overflow", "cancellation"]
    assert [each.kind for each in lint(several, only="cancellation")(X)] == ["cancellation"]
    assert [each.kind for each in lint(several, ignore=["cancellation"])(X)] == ["overflow"]
    assert [each.write for each in lint(several, only="edges")(X)] == ["fxgrad.tools.numerics.formulas.norm(x, axes)"]
    with pytest.raises(fxgrad.errors.ArgumentError) as raised:
        lint(several, only="nan")
    assert str(raised.value).splitlines()[0] == (
        "lint: only='nan'; the kinds of findings are 'overflow', 'cancellation', 'derivative', 'keys', "
        "'repeats', 'edges'")


def test_reports() -> None:
    found = lint(NAIVE["softplus"])(X)
    assert len(found) == 1
    assert isinstance(next(iter(found)), Finding)
    assert json.loads(found.to_json()) == [{
        "line": line_of(NAIVE["softplus"]), "kind": "overflow", "fault": "exp overflows for large x",
        "write": "fxgrad.nn.softplus(x)"}]
    assert str(lint(FINE["relu"])(X)) == "function: nothing was found"
    assert not lint(FINE["relu"])(X)


def test_nothing_is_computed() -> None:
    seen = []

    def function(x):
        fxgrad.debug.callback(seen.append, x)
        return x

    lint(function)(fxgrad.ShapeDtypeStruct((3,), np.float32))
    assert not seen


@pytest.mark.slow
def test_the_library_has_no_naive_form() -> None:
    """What users call gives no finding of numbers that are lost, or of derivatives that are NaN."""
    norm = fxgrad.scipy.stats.norm
    a, looked = np.full((3, 3), 0.3), 0
    for module in (fxgrad.nn, fnp, fnp.linalg, fxgrad.scipy.special, norm):
        for name in norm.functions if module is norm else module.__all__:
            function = getattr(module, name)
            for arguments in ((a,), (a, a + 0.1)):
                if not callable(function) or inspect.isclass(function):
                    continue
                try:
                    found = lint(function)(*arguments)
                except Exception:  # noqa: BLE001  (other arguments are needed)
                    continue
                looked += 1
                assert not [each for each in found if each.kind != "derivative" or "NaN" in each.fault], name
    assert looked > 300
    assert (norm.__name__, norm.functions[0]) == ("norm", "logpdf")  # nothing was called that changes it


def test_what_to_write_can_be_written() -> None:
    """What rules say is Python, and its names are there."""
    for rule in RULES:
        for name in re.findall(r"\b(?:np|fxgrad)(?:\.\w+)+", rule.write):
            assert eval(name, {"np": np, "fxgrad": fxgrad}) is not None
        if rule.write.count(", y *") == 0:
            assert compile(rule.write, rule.name, "eval")


def layer(x: Any, w: Any) -> Any:
    hidden = np.tanh(x @ w)
    return x + np.sin(hidden)


@pytest.mark.slow
def test_many_copies_of_a_block_are_found_with_their_lines_and_what_to_write() -> None:
    def stacked(x: Any, w: Any) -> Any:
        for index in range(96):
            x = layer(x, w[index])
        return np.sum(x)

    def apart(x: Any, w: Any) -> Any:
        for each in w:
            x = layer(x, each)
        return np.sum(x)

    def steps(x: Any) -> Any:
        for _ in range(96):
            x = x - 0.1 * (np.sin(x) + x)
        return np.sum(x)

    x, w = np.ones(3, "float32"), np.ones((96, 3, 3), "float32")
    first = layer.__code__.co_firstlineno + 1
    finding, = fxgrad.lint(stacked)(x, w)
    assert finding == (
        f"test_lint.py:{first}", f"96 copies of lines {first} to {first + 1}",
        ("fxgrad.lax.scan over the stacked arrays, or fxgrad.roll(f), which finds the loop. On CPUs jit does so by "
         "itself"), "repeats", first)
    finding, = fxgrad.lint(apart)(x, [*w])
    assert finding.fault == f"96 copies of lines {first} to {first + 1}"
    assert finding.write == ('fxgrad.roll(f, by="call"), or stack the parameters once and write fxgrad.lax.scan. '
                             "On CPUs jit calls one function by itself")
    finding, = fxgrad.lint(steps)(x)
    assert finding.fault == f"96 copies of line {steps.__code__.co_firstlineno + 2}"
    assert finding.write.startswith("fxgrad.lax.scan or fori_loop, or fxgrad.roll(f)")
    assert not fxgrad.lint(fxgrad.roll(steps))(x)
    assert not fxgrad.lint(steps, ignore="repeats")(x)
    assert not fxgrad.lint(lambda x: np.sum(layer(layer(x, w[0]), w[1])))(x)
    found = fxgrad.lint(fxgrad.grad(stacked))(x, w)
    assert [finding.fault for finding in found] == [f"96 copies of lines {first} to {first + 1}"]
