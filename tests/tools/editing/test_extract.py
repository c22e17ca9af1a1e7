"""Parts of programs: any cut composes to the whole, names lead to values, and what is missing is said."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fxgrad
from fxgrad import errors, lax
from fxgrad.engine.core.program import Program, Variable
from fxgrad.engine.derivation.simplify import live_equations
from fxgrad.text import program_text
from tests.support.random_programs import build, recipes
from tests.support.tiers import examples

X = np.linspace(-1.0, 1.0, 6).reshape(2, 3)
PARAMS = {"w": np.linspace(0.0, 1.0, 12).reshape(3, 4), "b": np.linspace(-1.0, 1.0, 4)}
OFFSET = np.arange(4.0)


def model(params: Any, x: Any, *, scale: Any = 1.0) -> Any:
    h = np.tanh(x @ params["w"] + params["b"])
    s = fxgrad.nn.softmax(h + OFFSET)
    return {"total": np.sum(s * h) * scale, "logs": np.log(s)}


def loss(params: Any, x: Any) -> Any:
    return model(params, x)["total"]


def loop(x: Any) -> Any:
    start = np.sin(x)
    (last, count), seen = lax.scan(lambda c, row: ((c[0] * row, c[1] + 1), c[0]), (start[0], 0), start)
    return lax.cond(count > 1, np.cos, np.sin, last) + seen


def step(params: Any, x: Any) -> Any:
    value, slopes = fxgrad.value_and_grad(loss)(params, x)
    return value, fxgrad.tree.map(lambda p, d: p - 0.1 * d, params, slopes)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "model": (model, (PARAMS, X)),
    "jit": (fxgrad.jit(model), (PARAMS, X)),
    "grad": (fxgrad.grad(loss), (PARAMS, X)),
    "grad of vmap": (fxgrad.grad(lambda p, x: fxgrad.vmap(loss, (None, 0))(p, x[:, None]).sum()), (PARAMS, X)),
    "vmap of grad": (fxgrad.vmap(fxgrad.grad(loss), (None, 0)), (PARAMS, X[:, None])),
    "loop": (loop, (X,)),
    "grad of a loop": (fxgrad.grad(lambda x: loop(x).sum()), (X,)),
    "step": (step, (PARAMS, X)),
    "float32": (step, fxgrad.tree.map(np.float32, (PARAMS, X))),
}


def made(name: str) -> tuple[Program, tuple[Any, ...]]:
    function, args = PROGRAMS[name]
    return fxgrad.make_program(function)(*args), args


def same(one: Any, other: Any) -> None:
    first, second = fxgrad.tree.leaves(one), fxgrad.tree.leaves(other)
    assert len(first) == len(second)
    for each, wanted in zip(first, second, strict=True):
        assert np.asarray(each).dtype == np.asarray(wanted).dtype
        assert np.asarray(each).tobytes() == np.asarray(wanted).tobytes()


def alive(program: Program, place: int) -> list[Variable]:
    """What the equations from `place` on, and the outputs, need of what stands before them."""
    before = {*program.inputs}.union(*(equation.outputs for equation in program.equations[:place]))
    used = [atom for equation in program.equations[place:] for atom in equation.inputs] + program.outputs
    return [*dict.fromkeys(atom for atom in used if isinstance(atom, Variable) and atom in before)]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_parts_before_and_behind_any_cut_are_the_whole(name: str) -> None:
    program, args = made(name)
    whole = program(*args)
    for place in range(len(program.equations) + 1):
        cut = alive(program, place)
        first = fxgrad.subprogram(program, outputs=cut)
        second = fxgrad.subprogram(program, cut)
        own = [arg for arg, kept in zip(args, kept_arguments(first, program), strict=True) if kept]
        same(second(*first(*own)), whole)
        assert len(first.equations) <= place
        assert len(second.equations) <= len(program.equations) - place


@pytest.mark.slow
@examples(60)
@given(recipes(), st.integers(0, 40))
def test_parts_of_random_programs_have_the_operations_of_the_whole(steps: Any, place: int) -> None:
    """Each equation is in one of the parts, as it was; results differ at most by the order in which NumPy adds up."""
    x, y = np.linspace(-1.0, 1.0, 12).reshape(3, 4), np.linspace(0.5, -1.5, 12).reshape(3, 4)
    function = build(steps, np)
    program = fxgrad.make_program(fxgrad.value_and_grad(lambda x, y: np.sum(function(x, y)), argnums=(0, 1)))(x, y)
    place = min(place, len(program.equations))
    cut = alive(program, place)
    first, second = fxgrad.subprogram(program, program.inputs[len(program.constants):],
                                      cut), fxgrad.subprogram(program, cut)
    parts = [*first.equations, *second.equations]
    assert [*map(id, parts)] == [*map(id, live_equations(program))]
    for one, other in zip(fxgrad.tree.leaves(second(*first(x, y))), fxgrad.tree.leaves(program(x, y)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)


def kept_arguments(part: Program, program: Program) -> list[bool]:
    """Which of the arguments of a program a part of it takes."""
    assert program.signature is not None
    assert part.signature is not None
    names = {name.partition(".")[0] for name in part.signature.input_names}
    roots = dict.fromkeys(name.partition(".")[0] for name in program.signature.input_names)
    return [root in names for root in roots]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_name_that_is_printed_is_found(name: str) -> None:
    program, args = made(name)
    names = [each for each, var in program.edit().names.items() if var not in program.inputs]
    every = fxgrad.subprogram(program, [...], names)
    kept = [arg for arg, kept in zip(args, kept_arguments(every, program), strict=True) if kept]
    for wanted, value in zip(names, every(*kept), strict=True):
        part = fxgrad.subprogram(program, outputs=wanted)
        own = [arg for arg, kept in zip(args, kept_arguments(part, program), strict=True) if kept]
        same(part(*own), value)
        assert wanted in part.edit().names  # it is called there what it was called


def test_a_part_has_names_lines_and_containers() -> None:
    program = fxgrad.make_program(model)(PARAMS, X)
    part = fxgrad.subprogram(program, ["h", {"given": "s"}], {"both": ["s", "h"]})
    assert program_text(part, source=False) == """\
program extract(model)(h, s: f64[2,4]):
  return s, h"""
    hidden, given = np.zeros((2, 4)), np.ones((2, 4))
    result = part(hidden, {"given": given})
    same(result["both"], [given, hidden])
    same(fxgrad.subprogram(program, ["h"])(model_hidden()), model(PARAMS, X))
    same(fxgrad.subprogram(program, ["s", "h"])(np.ones((2, 4)), np.ones((2, 4)))["total"], 8.0)


def model_hidden() -> Any:
    return fxgrad.make_program(lambda p, x: np.tanh(x @ p["w"] + p["b"]))(PARAMS, X)(PARAMS, X)


def test_arguments_go_by_name_whole_or_in_part() -> None:
    program = fxgrad.make_program(model)(PARAMS, X, scale=2.0)
    whole = program(PARAMS, X, scale=2.0)
    same(fxgrad.subprogram(program, ["x", "params", "scale"])(X, PARAMS, 2.0), whole)
    same(fxgrad.subprogram(program, ["params.b", ["params.w", "x"], ...])(PARAMS["b"], [PARAMS["w"], X], scale=2.0),
         whole)
    same(fxgrad.subprogram(program, [...])(PARAMS, X, scale=2.0), whole)
    same(fxgrad.subprogram(program, outputs="params")(PARAMS), PARAMS)


def test_a_captured_array_comes_along_or_becomes_an_argument() -> None:
    program = fxgrad.make_program(model)(PARAMS, X)
    name = next(name for name, var in program.edit().names.items() if var is program.inputs[0])
    tail = fxgrad.subprogram(program, ["h"], "s")
    assert len(tail.constants) == 1
    free = fxgrad.subprogram(program, ["h", name], "s")
    assert not free.constants
    same(free(model_hidden(), OFFSET), tail(model_hidden()))


def test_what_stands_inside_calls_goes_by_its_path() -> None:
    program = fxgrad.make_program(fxgrad.jit(model))(PARAMS, X)
    part = fxgrad.subprogram(program, ["model/h", ...], ["model/softmax/a", "model/s", "model/h"])
    top, probabilities, hidden = part(model_hidden())
    same(hidden, model_hidden())
    same(top / np.sum(top, axis=-1, keepdims=True), probabilities)
    same(fxgrad.subprogram(program, ["model/s", "model/h"])(probabilities, hidden), model(PARAMS, X))

    def twice(x: Any) -> Any:
        first = fxgrad.nn.softmax(x)
        second = fxgrad.nn.softmax(first)
        return first, second

    program = fxgrad.make_program(twice)(X)
    inner = fxgrad.subprogram(program, ["first/a"])(np.ones((2, 3)))
    same(inner[0], np.full((2, 3), 1 / 3))
    both = fxgrad.subprogram(program, ["first/a", "second/a"])
    assert program_text(both, source=False) == """\
program extract(twice)(a, `second/a`: f64[2,3]):
  first: f64[2,3] = a / sum(a, axis=-1)[:, None]
  second: f64[2,3] = `second/a` / sum(`second/a`, axis=-1)[:, None]
  return first, second"""
    same(both(np.ones((2, 3)), np.ones((2, 3)))[0], np.full((2, 3), 1 / 3))
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.subprogram(program, outputs="softmax/a")
    assert text_of(caught) == ("subprogram: 'softmax/a' may be in any of 2 calls of softmax. Say in which by the name "
                               "of what it makes: 'first/a', 'second/a'")


def test_a_part_is_a_program_as_any_other(tmp_path: Any) -> None:
    program = fxgrad.make_program(model)(PARAMS, X)
    tail = fxgrad.subprogram(program, ["h"], "s")
    slope = fxgrad.grad(lambda h: (tail(h) ** 2).sum())(model_hidden())
    wanted = fxgrad.grad(lambda h: (fxgrad.nn.softmax(h + OFFSET) ** 2).sum())(model_hidden())
    np.testing.assert_allclose(slope, wanted, rtol=1e-13, atol=1e-15)
    fxgrad.save(tmp_path / "tail", tail)
    same(fxgrad.load(tmp_path / "tail")(model_hidden()), tail(model_hidden()))
    space: dict[str, Any] = {"__name__": "part"}
    exec(tail.to_python(), space)
    same(space["extract_model"](model_hidden()), tail(model_hidden()))
    assert fxgrad.parse(str(tail))(model_hidden()).shape == (2, 4)
    np.testing.assert_allclose(fxgrad.jit(tail)(model_hidden()), tail(model_hidden()), rtol=1e-14)


def text_of(caught: Any) -> str:
    return re.sub(r"test_extract.py:\d+", "FILE", str(caught.value).rpartition("\n  at ")[0])


MISTAKES: list[tuple[Any, Any, str]] = [
    (["x"], "s", (
        "subprogram: the inputs do not give all that the outputs need. Missing, each with what needs it:\n"
        "  params.b: params.b -> h -> s\n"
        "  params.w: params.w -> h -> s\n"
        "Add these to inputs ('params.b', 'params.w'), or `...` for the arguments of the program that "
        "are needed, or values in between")),
    (None, "hh", "subprogram: the program has no value 'hh'. Did you mean 'h'?"),
    (None, "zzz", "subprogram: the program has no value 'zzz'. It has params.b, params.w, x, OFFSET, h, s, a, params"),
    (None, "softmx/a", (
        "subprogram: 'softmx/a': nothing called softmx is a call, or is made by one. Did you mean 'softmax'?")),
    (None, "softmax/h", "subprogram: softmax has no value 'h'. It has x, a"),
    (["h", "h"], None, "subprogram: h is twice among the inputs"),
    (["params.w", ...], None, (
        "subprogram: params.w is an input, and other parts of the same argument are needed. Name these too,"
        " in the place of ...")),
    ({"h": 1}, None, (
        "subprogram: inputs is a list of names, or of containers of names, one for each argument; got {'h':"
        " 1}")),
    ([3], None, "subprogram: values go by name, such as 'h', or by variable; got 3")]


@pytest.mark.parametrize(("inputs", "outputs", "message"), MISTAKES)
def test_what_cannot_be_taken_out_is_said(inputs: Any, outputs: Any, message: str) -> None:
    program = fxgrad.make_program(model)(PARAMS, X)
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.subprogram(program, inputs, outputs)
    assert text_of(caught) == message


def test_a_name_inside_a_call_is_said_to_be_there() -> None:
    program = fxgrad.make_program(fxgrad.jit(model))(PARAMS, X)
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.subprogram(program, outputs="h")
    assert text_of(caught) == "subprogram: the program has no value 'h'. model at FILE has one inside: write 'model/h'"


def test_what_is_in_a_loop_is_not_one_value() -> None:
    def body(c: Any, row: Any) -> Any:
        inner = c * row
        return inner + 1.0, inner * 2.0

    program = fxgrad.make_program(lambda x: lax.scan(body, x[0], x))(X)
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.subprogram(program, outputs="inner")
    assert text_of(caught) == (
        "subprogram: the program has no value 'inner'. scan at FILE has one inside, in its body. Return it from there, "
        "or take a loop of a known number of turns apart: fxgrad.inline(program, loops=True)")
    flat = fxgrad.inline(program, loops=True)
    same(fxgrad.subprogram(flat, outputs="inner")(X), X[0] * X[0])


def test_a_variable_of_another_program_and_a_function_are_refused() -> None:
    program = fxgrad.make_program(model)(PARAMS, X)
    other = fxgrad.make_program(np.sin)(1.0)
    with pytest.raises(errors.ArgumentError, match="subprogram: that variable is not of this program"):
        fxgrad.subprogram(program, outputs=other.inputs[0])
    with pytest.raises(errors.ArgumentError, match=r"subprogram takes a program, got a function. Write subprogram\("):
        fxgrad.subprogram(model, outputs="h")  # type: ignore[arg-type]
