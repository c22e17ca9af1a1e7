"""Every name in a program is right or absent: what local values are is found by running the user's source with jax."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad.engine.core.program import Program, Variable
from fxgrad.engine.tracing.tape import bind
from fxgrad.text.names import own_names
from fxgrad.text.sources import Sources
from tests.support.name_oracle import Recorder, Values, probed
from tests.support.named_functions import CASES, Case

BY_NAME = {function.__name__: (function, args) for function, args in CASES}
PYTHON_BRANCHES = {"branch_of_python", "conditional_expression"}
"""Of these no batch can be made: they ask for values."""


class Reports:
    """The values of named variables, each as often as its program ran."""

    def __init__(self, program: Program, args: Sequence[Any]) -> None:
        self.found: dict[tuple[int, Variable], tuple[str, list[Any]]] = {}
        self._sources = Sources()
        leaves = fxgrad.tree.leaves(tuple(args))
        self._run(program, [*program.constants, *leaves], skipped=len(program.constants) + len(leaves))

    def _run(self, program: Program, inputs: Sequence[Any], skipped: int = 0) -> list[Any]:
        names = own_names(program, self._sources)
        environment: dict[Any, Any] = dict(zip(program.inputs, inputs, strict=True))
        self._report(program, program.inputs[skipped:], environment, names)
        for equation in program.equations:
            values = [environment[atom] if type(atom) is Variable else atom.value for atom in equation.inputs]
            environment.update(zip(equation.outputs, self._outputs(equation, values), strict=True))
            self._report(program, equation.outputs, environment, names)
        return [environment[atom] if type(atom) is Variable else atom.value for atom in program.outputs]

    def _report(self, program: Program, variables: Sequence[Variable], environment: dict[Any, Any],
                names: dict[Variable, str]) -> None:
        for var in variables:
            if var in names:
                self.found.setdefault((id(program), var), (names[var], []))[1].append(np.asarray(environment[var]))

    def _outputs(self, equation: Any, values: list[Any]) -> list[Any]:
        params, kind = equation.params, equation.primitive.name
        if kind == "scan":
            return self._scan(params, values)
        if kind == "while":
            return self._while(params, values)
        if kind == "cond":
            return self._run(params["branches"][int(values[0])], values[1:])
        if kind in ("checkpoint", "recompute"):
            return self._run(params["program"], values)
        return bind(equation.primitive, *values, **params)

    def _scan(self, params: dict[str, Any], values: list[Any]) -> list[Any]:
        consts, carry, xs = np.split(np.arange(len(values)), np.cumsum([params["num_consts"], params["num_carry"]]))
        state, stacks = [values[place] for place in carry], []
        steps = range(params["length"])
        for step in reversed(steps) if params["reverse"] else steps:
            outputs = self._run(params["program"], [*(values[place] for place in consts), *state,
                                                    *(values[place][step] for place in xs)])
            state = outputs[:len(carry)]
            stacks.append(outputs[len(carry):])
        in_order = reversed(stacks) if params["reverse"] else stacks
        return [*state, *map(np.stack, zip(*in_order, strict=True))]

    def _while(self, params: dict[str, Any], values: list[Any]) -> list[Any]:
        asked, stepped = params["num_condition_consts"], params["num_body_consts"]
        state = values[asked + stepped:]
        while np.asarray(self._run(params["condition"], [*values[:asked], *state])[0]).any():
            state = self._run(params["body"], [*values[asked:asked + stepped], *state])
        return state


class Oracle:
    """What the locals of a function are, by jax: primals and cotangents, and tangents of both along a direction.

    Each of the two is compiled once, for all arguments of the same shapes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._make = probed(function)
        self._values = jax.jit(self._of_leaves(self._primals_and_cotangents), static_argnums=(0, 1))
        self._tangents = jax.jit(self._of_leaves(self._along), static_argnums=(0, 1))

    def values(self, args: Sequence[Any]) -> tuple[Values, Values]:
        """Primals by their names, and cotangents by theirs, which begin with `d_`."""
        return self._values(*split(args))

    def tangents(self, args: Sequence[Any], direction: Any) -> tuple[Values, Values]:
        """The tangents of primals and those of cotangents, along a direction of the first argument."""
        return self._tangents(*split(args), direction)

    @staticmethod
    def _of_leaves(of_args: Callable[..., Any]) -> Callable[..., tuple[Values, Values]]:
        return lambda structure, fixed, arrays, *directions: of_args(
            fxgrad.tree.unflatten(structure, [arrays.get(place, fixed[place]) for place in range(len(fixed))]),
            *directions)

    def _run(self, args: Sequence[Any], zeros: Sequence[Any] = ()) -> tuple[Recorder, Any]:
        recorder = Recorder(zeros)
        return recorder, self._make(recorder)(*args)

    def _cotangents(self, args: Sequence[Any]) -> list[Any]:
        zeros = [np.zeros(np.shape(leaf)) for _, leaf in self._run(args)[0].order]
        gradients: list[Any] = jax.grad(lambda added: self._run(args, added)[1])(zeros)
        return gradients

    def _primals_and_cotangents(self, args: Sequence[Any]) -> tuple[Values, Values]:
        recorder = self._run(args)[0]
        return recorder.values, by_path("d_", recorder, self._cotangents(args))

    def _along(self, args: Sequence[Any], direction: Any) -> tuple[Values, Values]:
        def both(first: Any) -> tuple[list[Any], list[Any]]:
            given = (first, *args[1:])
            return [leaf for _, leaf in self._run(given)[0].order], self._cotangents(given)

        primals, cotangents = jax.jvp(both, (args[0],), (direction,))[1]
        recorder = self._run(args)[0]
        return by_path("t_", recorder, primals), by_path("t_d_", recorder, cotangents)


def split(args: Sequence[Any]) -> tuple[Any, tuple[Any, ...], dict[int, Any]]:
    """The structure of arguments, numbers that Python's control flow reads in their places, and all else by place."""
    leaves, structure = fxgrad.tree.flatten(tuple(args))
    return (structure, tuple(leaf if isinstance(leaf, int) else None for leaf in leaves),
            {place: leaf for place, leaf in enumerate(leaves) if not isinstance(leaf, int)})


def by_path(prefix: str, recorder: Recorder, found: Sequence[Any]) -> Values:
    result: Values = {}
    for (path, _), value in zip(recorder.order, found, strict=True):
        result.setdefault(prefix + path, []).append(value)
    return result


@cache
def oracle_of(name: str) -> Oracle:
    """One for all tests of a function, which share what it compiles."""
    return Oracle(BY_NAME[name][0])


def stacked(runs: Sequence[Values]) -> Values:
    """Values of several runs as batches."""
    return {name: [np.stack(each) for each in zip(*(run[name] for run in runs), strict=True)] for name in runs[0]}


def is_one_of(value: Any, candidates: Sequence[Any], batched: bool) -> bool:
    return any(fits(value, np.asarray(candidate)) or (batched and fits_batch(value, np.asarray(candidate)))
               for candidate in candidates)


def fits(value: Any, candidate: Any) -> bool:
    return value.shape == candidate.shape and bool(np.allclose(value, candidate, rtol=1e-7, atol=1e-9))


def fits_batch(value: Any, candidate: Any) -> bool:
    """Whether a value is a batch, along any axis, or what all entries of the batch are equal to."""
    if candidate.ndim == 0:
        return False
    same = np.all(candidate == candidate[:1])
    return any(fits(np.moveaxis(value, axis, 0), candidate) for axis in range(value.ndim)) or (
        bool(same) and fits(value, candidate[0]))


def wrong_names(program: Program, args: Sequence[Any], oracle: Values, batched: bool = False) -> Iterator[str]:
    """The names whose values are not what the name stands for in the function."""
    for name, values in Reports(program, args).found.values():
        known = oracle.get(name) or oracle.get(re.sub(r"_\d+(?=\[|$)", "", name))
        if known is None:
            yield f"{name}: there is no such value"
            continue
        if not all(is_one_of(value, known, batched) for value in values):
            yield f"{name}: {values[0]} is none of {known}"


def case_of(name: str) -> Case:
    return BY_NAME[name]


def assert_right(program: Program, args: Sequence[Any], oracle: Values, batched: bool = False) -> None:
    wrong = [*wrong_names(program, args, oracle, batched)]
    assert not wrong, "\n".join([*wrong, str(program)])


@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - PYTHON_BRANCHES))
def test_plain(name: str) -> None:
    function, args = case_of(name)
    with jax.enable_x64(True):
        primals, _ = oracle_of(name).values(args)
        assert_right(fxgrad.make_program(function)(*args), args, primals)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (number % 3 > 0))
                                  for number, name in enumerate(sorted(BY_NAME.keys() - PYTHON_BRANCHES))])
@pytest.mark.parametrize("transformation", [fxgrad.grad, pytest.param(fxgrad.value_and_grad, marks=pytest.mark.slow)])
def test_gradients(name: str, transformation: Any) -> None:
    function, args = case_of(name)
    with jax.enable_x64(True):
        primals, cotangents = oracle_of(name).values(args)
        assert_right(fxgrad.make_program(transformation(function))(*args), args, {**primals, **cotangents})


def directions(first: Any) -> list[Any]:
    return [np.reshape(row, np.shape(first)) for row in np.eye(np.size(first))]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - PYTHON_BRANCHES))
def test_tangents(name: str) -> None:
    function, args = case_of(name)
    first, rest = args[0], args[1:]
    direction = fxgrad.tree.map(lambda leaf: 0.5 + np.asarray(leaf) ** 2, first)

    def tangents(direction: Any, *given: Any) -> Any:
        return fxgrad.jvp(function, given, (direction, *map(np.zeros_like, rest)))

    with jax.enable_x64(True):
        oracle = {**oracle_of(name).values(args)[0], **oracle_of(name).tangents(args, direction)[0]}
        assert_right(fxgrad.make_program(tangents)(direction, *args), (direction, *args), oracle)


def batch_of(args: Sequence[Any], size: int = 3) -> list[Any]:
    """`size` arguments like these, as batches: inexact ones differ."""
    def entries(leaf: Any) -> Any:
        leaf = np.asarray(leaf)
        factors = 1.0 + 0.25 * np.arange(size) if leaf.dtype.kind == "f" else np.ones(size, leaf.dtype)
        return factors.reshape(-1, *[1] * leaf.ndim) * leaf if leaf.dtype != bool else np.stack([leaf] * size)

    return fxgrad.tree.map(entries, list(args))


def entry(batches: Any, number: int) -> Any:
    return fxgrad.tree.map(lambda leaf: leaf[number] if leaf.ndim > 1 else leaf[number].item(), batches)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - PYTHON_BRANCHES - {"branched", "switched"}))
@pytest.mark.parametrize("gradient", [False, True], ids=["function", "gradient"])
def test_batches(name: str, gradient: bool) -> None:
    """Of gradients, too. Branches become choices, in which both run: theirs are checked one by one above."""
    function, args = case_of(name)
    batches = batch_of(args)
    with jax.enable_x64(True):
        runs = []
        for number in range(3):
            primals, cotangents = oracle_of(name).values(entry(batches, number))
            runs.append({**primals, **cotangents} if gradient else primals)
        program = fxgrad.make_program(fxgrad.vmap(fxgrad.grad(function) if gradient else function))(*batches)
        assert_right(program, batches, stacked(runs), batched=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name, (_, args) in BY_NAME.items()
                                        if isinstance(args[0], np.ndarray) and args[0].size <= 4
                                        and name not in PYTHON_BRANCHES))
def test_hessians(name: str) -> None:
    """Tangents of cotangents, along every direction at once."""
    function, args = case_of(name)
    with jax.enable_x64(True):
        primals, cotangents = oracle_of(name).values(args)
        along = [oracle_of(name).tangents(args, direction) for direction in directions(args[0])]
        oracle = {**primals, **cotangents, **stacked([{**of_primals, **of_cotangents}
                                                      for of_primals, of_cotangents in along])}
        assert_right(fxgrad.make_program(fxgrad.hessian(function))(*args), args, oracle, batched=True)
