"""`checkpoint`: its policies, what it keeps, and what the report says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import checkpoint_policies as policies

X, W = np.linspace(-1.0, 1.0, 20).reshape(4, 5), np.linspace(0.5, -0.5, 25).reshape(5, 5)


def f(x: Any, w: Any) -> Any:
    h = fnp.tanh(fxgrad.checkpoint_name(x @ w, "z"))
    return fnp.sum(fnp.sin(h @ w))


POLICIES: dict[str, tuple[Callable[..., Any] | None, list[str]]] = {
    "none": (None, []),
    "nothing": (policies.nothing_saveable, []),
    "dots": (policies.dots_saveable, ["dot_general", "dot_general"]),
    "dots, as jax calls them too": (policies.checkpoint_dots, ["dot_general", "dot_general"]),
    "dots without batch": (policies.dots_with_no_batch_dims_saveable, ["dot_general", "dot_general"]),
    "these names": (policies.save_only_these_names("z"), ["name"]),
    "other names": (policies.save_any_names_but_these("z"), []),
    "other names, of which there is one": (policies.save_any_names_but_these("y"), ["name"]),
    "offloaded names": (policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["z"], offload_src="device",
        offload_dst="pinned_host"), ["name"]),
    "offloaded dots": (policies.offload_dot_with_no_batch_dims("device", "pinned_host"), ["dot_general"] * 2),
    "either": (policies.save_from_both_policies(policies.dots_saveable, policies.save_only_these_names("z")),
               ["name", "dot_general"]),
    "a function": (lambda primitive, *avals, **params: primitive.name == "tanh", ["tanh"]),
    "either of two functions": (policies.save_from_both_policies(
        lambda primitive, *avals, **params: primitive.name == "tanh", policies.nothing_saveable), ["tanh"]),
}


def kept(function: Callable[..., Any]) -> list[str]:
    """The primitives that make what is kept, without the arguments."""
    return [residual.made_at.split(" at ")[0] for residual in fxgrad.saved_residuals(function, X, W)
            if residual.made_at != "an argument"]


@pytest.mark.parametrize("name", POLICIES)
def test_policies_keep_what_they_say(name: str) -> None:
    policy, expected = POLICIES[name]
    block = fxgrad.checkpoint(f, policy=policy)
    assert kept(block) == expected
    for ours, reference in zip(fxgrad.grad(block, (0, 1))(X, W), fxgrad.grad(f, (0, 1))(X, W), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.hessian(block)(X, W), fxgrad.hessian(f)(X, W), rtol=1e-12, atol=1e-15)


def test_everything_is_as_without_a_checkpoint() -> None:
    for policy in (policies.everything_saveable, policies.save_anything_except_these_names("z")):
        assert sorted(kept(fxgrad.checkpoint(f, policy=policy))) == sorted(kept(f))


def test_batched_products_are_not_kept_by_the_policy_for_those_without_batch() -> None:
    def batched(x: Any, w: Any) -> Any:
        return fnp.sum(fnp.sin(fnp.einsum("ij,ijk->ik", x, fnp.stack([w] * 4))))
    assert kept(fxgrad.checkpoint(batched, policy=policies.dots_with_no_batch_dims_saveable)) == []
    assert "dot_general" in kept(fxgrad.checkpoint(batched, policy=policies.dots_saveable))


def test_only_what_is_asked_is_computed_twice() -> None:
    def count(policy: Any, name: str) -> int:
        program = fxgrad.make_program(fxgrad.grad(fxgrad.checkpoint(f, policy=policy)))(X, W)
        second = next(one for one in program.equations if one.primitive.name == "recompute")
        return sum(one.primitive.name == name for one in second.params["program"].equations)
    assert (count(None, "tanh"), count(policies.dots_saveable, "tanh")) == (1, 1)
    # Two products in the backward pass, and those of the forward pass that are not kept.
    assert (count(None, "dot_general"), count(policies.dots_saveable, "dot_general")) == (4, 2)


def test_without_the_barrier_the_recomputation_is_part_of_the_program() -> None:
    program = fxgrad.make_program(fxgrad.grad(fxgrad.checkpoint(f, prevent_cse=False)))(X, W)
    assert "recompute" not in [equation.primitive.name for equation in program.equations]
    np.testing.assert_allclose(program(X, W), fxgrad.grad(f)(X, W), rtol=1e-12)


def test_a_checkpoint_with_a_policy_is_printed_and_read_back() -> None:
    program = fxgrad.make_program(fxgrad.checkpoint(f, policy=policies.save_only_these_names("z")))(X, W)
    assert "policy=Policy(kind=\"these names\", names=(\"z\",), parts=())" in str(program)
    np.testing.assert_array_equal(fxgrad.parse(str(program))(X, W), program(X, W))


def test_recomputed_equations_keep_the_lines_of_the_user() -> None:
    program = fxgrad.make_program(fxgrad.grad(fxgrad.checkpoint(f)))(X, W)
    inner = program.equations[-1].params["program"]
    first = f.__code__.co_firstlineno
    assert {equation.source.line for equation in inner.equations if equation.source} == {first + 1, first + 2}


def test_the_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    fxgrad.print_saved_residuals(fxgrad.checkpoint(f, policy=policies.save_only_these_names("z")), X, W)
    text = capsys.readouterr().out
    line = f.__code__.co_firstlineno + 1
    assert "kept for the backward pass of f" in text
    assert f"name at test_checkpoint.py:{line}" in " ".join(text.split())
    for part in ("z: f64[4,5]", "160", "an argument", "3 values", "520"):
        assert part in text


def test_residuals_of_a_plain_function_are_those_of_its_gradient() -> None:
    found = fxgrad.saved_residuals(lambda x: fnp.sum(fnp.exp(x) * 2.0), np.ones(3))
    assert [(str(residual.aval), residual.made_at.split(" at ")[0], residual.used_by.split(" at ")[0])
            for residual in found] == [("f64[3]", "exp", "mul")]


def test_residuals_that_are_captured_have_no_name_of_an_argument() -> None:
    """What a custom rule closes over comes before what the function closes over, and before its arguments."""
    found = []

    def outer(a: Any) -> Any:
        @fxgrad.custom_jvp
        def own(x: Any) -> Any:
            return fnp.sin(x)

        own.defjvp(lambda primals, tangents: (own(*primals), tangents[0] * a * 3.0))
        k = np.arange(2.0)
        found.extend(fxgrad.saved_residuals(lambda x, y: fnp.sum(own(x) * y[0] * k), np.ones((4, 2)), [np.ones(2)]))
        return a * 2.0

    assert fxgrad.grad(outer)(2.0) == 2.0
    assert [(residual.name, str(residual.aval)) for residual in found if residual.made_at == "an argument"] == [
        ("y[0]", "f64[2]"), ("captured[1]", "f64[2]"), ("captured[0]", "f64*[]")]


def test_policies_are_asked_once_for_each_operation() -> None:
    """Also where values are used twice at every step, so that there are 2**40 ways through the program."""
    asked = []

    def policy(primitive: Any, *avals: Any, **params: Any) -> bool:
        asked.append(primitive)
        return False

    def ladder(x: Any) -> Any:
        for _ in range(40):
            x = fnp.sin(x) * fnp.cos(x)
        return x

    fxgrad.grad(fxgrad.checkpoint(ladder, policy=policy))(0.5)
    assert 40 <= len(asked) <= 4 * 40
