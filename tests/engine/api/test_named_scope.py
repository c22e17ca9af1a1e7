"""Named scopes: which operations are in which, in programs, in what is derived of them, and in what XLA is told."""

from __future__ import annotations

import copy
import functools
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad import lax
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.tracing.trace import SELECTIVE, SHARED, trace_at

pytestmark = pytest.mark.usefixtures("compiled_anew")
X = np.array([0.5, -1.0, 2.0])
VECTOR = Aval((3,), np.dtype("float64"))


def scopes(program: Program) -> list[tuple[str, str]]:
    return [(equation.primitive.name, equation.scope) for equation in program.equations]


def names_given_to_xla(function: Callable[..., Any], *args: Any) -> set[str]:
    """The scopes in the `op_name`s of the HLO text: without the function and the operation."""
    text = function.lower(*args).compile().as_text()  # type: ignore[attr-defined]
    found = (re.sub(r"^jit\([^)]*\)/?", "", name) for name in re.findall(r'op_name="(jit[^"]*)"', text))
    return {name.rpartition("/")[0] for name in found}


@fxgrad.named_scope("attention")
def attention(x: Any) -> Any:
    return np.tanh(x)


def model(x: Any) -> Any:
    with fxgrad.named_scope("encoder"):
        hidden = attention(x * 2.0)
    return np.sum(hidden * hidden)


def test_operations_know_their_scopes() -> None:
    assert scopes(fxgrad.make_program(model)(X)) == [
        ("mul", "encoder"), ("tanh", "encoder/attention"), ("mul", ""), ("reduce_sum", "")]


def test_no_scope_is_left_behind_by_an_error() -> None:
    def fails(x: Any) -> Any:
        try:
            with fxgrad.named_scope("outer"), fxgrad.named_scope("inner"):
                raise KeyError
        except KeyError:
            return x + 1.0
    assert scopes(fxgrad.make_program(fails)(X)) == [("add", "")]


def test_one_scope_entered_twice_and_functions_that_call_themselves() -> None:
    scope = fxgrad.named_scope("a")

    @fxgrad.named_scope("r")
    def recursive(x: Any, depth: int) -> Any:
        return np.sin(x) if depth == 0 else recursive(x, depth - 1) * 2.0

    def function(x: Any) -> Any:
        with scope:
            with scope:
                x = x + 1.0
            x = recursive(x, 1)
        return x + 3.0

    assert scopes(fxgrad.make_program(function)(X)) == [("add", "a/a"), ("sin", "a/r/r"), ("mul", "a/r"), ("add", "")]


@pytest.mark.parametrize("derived", [
    fxgrad.grad(model), lambda x: fxgrad.jvp(model, (x,), (x,)), lambda x: fxgrad.vjp(model, x)[1](1.0),
    lambda x: fxgrad.linearize(model, x)[1](x), fxgrad.vmap(lambda x: model(x[None])), fxgrad.hessian(model),
    fxgrad.grad(fxgrad.checkpoint(model)), fxgrad.jit(fxgrad.grad(model)), fxgrad.grad(fxgrad.jit(model))])
def test_what_is_derived_stays_in_the_scope(derived: Callable[..., Any]) -> None:
    program = fxgrad.make_program(derived)(X)
    for equation in _all_equations(program):
        if equation.primitive.name in ("tanh", "sub"):
            assert equation.scope == "encoder/attention"
        assert equation.scope in ("", "encoder", "encoder/attention")
    assert {"encoder", "encoder/attention"} <= {equation.scope for equation in _all_equations(program)}


def _all_equations(program: Program) -> Iterator[Any]:
    for equation in program.equations:
        yield equation
        for inner in equation.programs:
            yield from _all_equations(inner)


def test_scopes_around_a_transformation_and_within_it() -> None:
    def outer(x: Any) -> Any:
        with fxgrad.named_scope("outer"):
            return fxgrad.grad(lambda y: np.sum(fxgrad.named_scope("inner")(np.sin)(y) * np.exp(x)))(x)

    assert scopes(fxgrad.make_program(outer)(X)) == [
        ("exp", "outer"), ("cos", "outer/inner"), ("mul", "outer/inner")]


def test_a_scope_within_one_of_its_own_name() -> None:
    def nested(x: Any) -> Any:
        with fxgrad.named_scope("block"):
            return fxgrad.named_call(fxgrad.named_scope("block")(np.sin), name="block")(x)

    assert scopes(fxgrad.make_program(fxgrad.grad(nested))(1.0)) == [("cos", "block/block/block")]
    assert names_given_to_xla(fxgrad.jit(nested), X) == {"block/block/block"}
    assert names_given_to_xla(fxgrad.jit(fxgrad.grad(nested)), 1.0) == {"block/block/block"}


def test_a_rule_that_enters_a_scope_is_within_that_of_the_call() -> None:
    @fxgrad.custom_jvp
    def sine(x: Any) -> Any:
        return np.sin(x)

    @sine.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        with fxgrad.named_scope("rule"):
            return np.sin(primals[0]), tangents[0] * np.cos(primals[0])

    def called(x: Any) -> Any:
        with fxgrad.named_scope("layer"):
            return sine(x)

    assert ("cos", "layer/rule") in scopes(fxgrad.make_program(fxgrad.grad(called))(1.0))


def test_named_calls_are_scopes_of_what_is_inside() -> None:
    layer = fxgrad.named_call(attention, name="layer")
    assert scopes(fxgrad.make_program(layer)(X)) == [("named_call", "")]
    assert {scope for _, scope in scopes(fxgrad.make_program(fxgrad.grad(lambda x: np.sum(layer(x))))(X))} == {
        "layer/attention"}
    static = fxgrad.named_call(lambda x, kind: np.sin(x), name="static")  # which has no call, for `kind` is no array
    assert scopes(fxgrad.make_program(lambda x: static(x, "kind"))(X)) == [("sin", "static")]


@pytest.mark.slow
def test_in_loops_and_branches() -> None:
    def loop(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            with fxgrad.named_scope("step"):
                return np.sin(carry), None
        with fxgrad.named_scope("loop"):
            return np.sum(lax.scan(step, x, None, 3)[0])

    for function in (loop, fxgrad.grad(loop)):
        program = fxgrad.make_program(function)(X)
        inner = [equation for equation in _all_equations(program) if equation.primitive.name in ("sin", "cos")]
        assert inner
        assert {equation.scope for equation in inner} == {"step"}
        assert {scope for name, scope in scopes(program) if name in ("scan", "for", "sweep")} == {"loop"}
        given = names_given_to_xla(fxgrad.jit(function), X)
        assert any(re.fullmatch(r"loop/.*body.*/step", name) for name in given), given


# --- kept ---------------------------------------------------------------------------------------------------------


def test_xla_is_told() -> None:
    assert names_given_to_xla(fxgrad.jit(model), X) >= {"encoder/attention"}
    assert names_given_to_xla(fxgrad.jit(fxgrad.grad(model)), X) >= {"encoder", "encoder/attention"}
    theirs = jax.jit(jax.named_scope("encoder")(jax.numpy.sin))
    assert names_given_to_xla(fxgrad.jit(fxgrad.named_scope("encoder")(np.sin)), X) == names_given_to_xla(theirs, X)


def test_pickles_and_copies_keep_scopes() -> None:
    program = fxgrad.make_program(fxgrad.grad(model))(X)
    assert scopes(pickle.loads(pickle.dumps(program))) == scopes(program) == scopes(copy.deepcopy(program))
    assert scopes(fxgrad.simplify(program)) == scopes(program)


# --- told apart: recordings are shared by functions that record the same -------------------------------------------


def in_scope(name: str) -> Callable[[Any], Any]:
    """Functions of one code object, which record the same operations; `jit` shares programs between them."""
    def function(x: Any) -> Any:
        with fxgrad.named_scope(name):
            y = np.sin(x) * 2.0
        return np.sum(y + x)
    return function


def test_functions_that_record_the_same_in_other_scopes() -> None:
    for name in ("first", "second", "first"):
        assert names_given_to_xla(fxgrad.jit(in_scope(name)), X) - {""} == {name}
        assert names_given_to_xla(fxgrad.jit(fxgrad.grad(in_scope(name))), X) - {""} == {name}


def test_programs_applied_in_other_scopes() -> None:
    def shared(f: Any) -> Any:
        return fxgrad.jit(lambda x: fxgrad.grad(f)(x) + x)
    for name in ("first", "second", "first"):
        assert names_given_to_xla(shared(in_scope(name)), X) - {""} == {name}


def test_where_a_scope_begins_and_ends() -> None:
    def parts(first: str, second: str) -> Callable[[Any], Any]:
        def function(x: Any) -> Any:
            with fxgrad.named_scope(first):
                y = np.sin(x)
            with fxgrad.named_scope(second):
                z = np.cos(y)
            return np.exp(z)
        return function

    def listed(function: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
        return lambda x: [function(x)]

    for first, second in (("a", "b"), ("a", ""), ("", "b"), ("", ""), ("b", "a"), ("a", "a"), ("a", "b")):
        program, _ = trace_at(listed(parts(first, second)), [VECTOR], mode=SHARED, origin=parts)
        assert scopes(program) == [("sin", first), ("cos", second), ("exp", "")]


def test_scopes_around_a_call_are_no_part_of_what_it_shares() -> None:
    compiled = fxgrad.jit(model)
    with fxgrad.named_scope("around"):
        assert names_given_to_xla(compiled, X) >= {"encoder/attention"}
    assert names_given_to_xla(fxgrad.jit(lambda x: model(x)), X) >= {"encoder/attention"}

    def twice(x: Any) -> Any:
        with fxgrad.named_scope("around"):
            y = compiled(x)
        return y + compiled(x * 3.0)
    assert names_given_to_xla(fxgrad.jit(twice), X) >= {
        "around/jit(model)/encoder/attention", "jit(model)/encoder/attention"}


def test_programs_with_scopes_are_found_again() -> None:
    programs = {id(trace_at(lambda x: [model(x)], [VECTOR], mode=SELECTIVE, origin=model)[0]) for _ in range(3)}
    assert len(programs) == 1
    with fxgrad.named_scope("eager"):  # nothing is recorded: nothing to be done
        np.testing.assert_allclose(fxgrad.grad(model)(X), fxgrad.grad(lambda x: np.sum(np.tanh(x * 2.0) ** 2))(X),
                                   rtol=1e-12)


def test_scopes_of_jax_are_imported() -> None:
    def imported(name: str) -> Callable[[Any], Any]:
        def function(x: Any) -> Any:
            with jax.named_scope(name):
                return jax.jit(jax.named_scope("inner")(jax.numpy.cos))(jax.numpy.sin(x))
        return fxgrad.from_jax(function)

    def within(x: Any) -> Any:
        with fxgrad.named_scope("outer"):
            return imported("a")(x)

    assert scopes(fxgrad.make_program(imported("a"))(X)) == [("sin", "a"), ("cos", "a/inner")]
    assert scopes(fxgrad.make_program(within)(X)) == [("sin", "outer/a"), ("cos", "outer/a/inner")]
    for name in ("a", "b", "a"):
        function = imported(name)
        assert names_given_to_xla(fxgrad.jit(lambda x, f=function: f(x)), X) >= {f"{name}/inner"}


def test_named_calls_know_the_numbers_of_python() -> None:
    def layer(x: Any, train: bool, times: int = 2, rest: Any = None) -> Any:
        assert train is True
        assert times == 3
        assert rest is None
        return x * times if train else x

    named = fxgrad.named_call(layer, name="layer")
    program = fxgrad.make_program(lambda x: named(x, True, times=3))(np.ones(2))
    assert [equation.params["name"] for equation in program.equations] == ["layer"]
    assert fxgrad.jit(lambda x: named(x, True, times=3))(np.ones(2)).tolist() == [3.0, 3.0]
    assert fxgrad.grad(lambda x: named(x, True, times=3))(2.0) == 3.0


def test_values_that_a_named_function_stores_leave_a_scope_but_no_call() -> None:
    stored: dict[str, Any] = {}

    def layer(x: Any) -> Any:
        stored["w"] = np.sin(x) * 2.0
        return x * stored["w"]

    def model(layer: Callable[..., Any], x: Any) -> Any:
        y = layer(x)
        return np.sum(y * stored["w"])

    scoped, called = fxgrad.named_scope("layer")(layer), fxgrad.named_call(layer)
    expected = np.sum(4 * X * np.sin(X) ** 2)
    for transform in (fxgrad.jit, lambda f: lambda x: fxgrad.value_and_grad(f)(x)[0],
                      lambda f: lambda x: fxgrad.vmap(f)(x[None])[0]):
        np.testing.assert_allclose(transform(functools.partial(model, scoped))(X), expected, rtol=1e-12)
        with pytest.raises(fxgrad.errors.LeakedTracerError) as caught:
            transform(functools.partial(model, called))(X)
        assert re.sub(r"\.py:\d+", ".py:LINE", str(caught.value)) == (
            "a traced array (f64[3]) of layer, made at test_named_scope.py:LINE (in layer), was used after layer had "
            "returned. Return the value from the function (has_aux=True allows values beside the result) and do not "
            "store it elsewhere. named_scope(name)(f) instead of named_call(f) only names the operations, and lets "
            "values out\n  at test_named_scope.py:LINE (in model)")
