"""Text is a fixed point: what is read of it prints as it; and equal programs have one text and one file."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fxgrad
from fxgrad.engine.core.program import Program, inner_first
from fxgrad.engine.core.regions import replace_programs
from fxgrad.engine.rooms import registry
from fxgrad.engine.tracing.tape import bind
from fxgrad.text import equal, parse, program_text, to_json
from fxgrad.text.difference import difference
from fxgrad.text.gathers import IMPLIED
from fxgrad.text.names import NAMES
from fxgrad.text.parameters import orders
from fxgrad.text.scope import UNTYPED
from tests.samples import all_samples
from tests.support import named_functions
from tests.support.random_texts import programs
from tests.support.shipped import SHIPPED
from tests.support.show_programs import CLASSES, USER, one_equation, user_primitive

STYLES = "compact", "equations"
Named = Iterator[tuple[str, Callable[[], Program]]]


def of_functions() -> Named:
    """Functions of the suite that are written to be shown and shipped, and their gradients."""
    for name, (function, args, _) in SHIPPED.items():
        yield name, lambda function=function, args=args: fxgrad.make_program(function)(*args)
    for function, args in named_functions.CASES:
        for how, made in (("", function), ("gradient of ", fxgrad.grad(lambda *args, f=function: np.sum(f(*args))))):
            yield how + function.__name__, lambda made=made, args=args: fxgrad.make_program(made)(*args)


def of_samples() -> Named:
    """One operation each, with every kind of parameters that the laws of operations have."""
    for primitive, samples in all_samples().items():
        if primitive.name.endswith("callback"):
            continue  # their parameters are Python objects, which no text holds
        for sample in samples[:4]:
            def applied(*args: Any, primitive: Any = primitive, params: Any = sample.params) -> Any:
                return bind(primitive, *args, **params)
            yield f"{primitive} of {sample}", lambda applied=applied, sample=sample: fxgrad.make_program(applied)(
                *sample.args())


def text_of(program: Program, style: Any) -> str:
    return program_text(program, style=style, source=False, constants=True)


def without_remarks(text: str) -> str:
    """Comments say which path of a function a program is; what is read of its text is a program like any other."""
    return re.sub(r"^ *# here .*\n", "", text, flags=re.MULTILINE)


def reordered(program: Program) -> Program:
    """An equal program, the parameters of whose operations were given in the opposite order."""
    made: dict[int, Program] = {}
    for inner in inner_first(program):
        equations = []
        for equation in inner.equations:
            params = replace_programs(equation.params, equation.regions, [made[id(each)] for each in equation.programs])
            equations.append(equation.replace(equation.inputs, dict(reversed(params.items()))))
        other = made[id(inner)] = inner.replace(equations=equations)
        for slot in (NAMES, UNTYPED, IMPLIED):  # what the text said of names
            kept: Any = slot.of(inner)
            if kept is not None:
                slot.put(other, kept)
    return made[id(program)]


def faults(program: Program) -> list[str]:
    """What is wrong with the texts of a program, and of one that is equal to it."""
    found = []
    if not equal(program, reordered(program)) or difference(program, reordered(program)):
        found.append("what says that programs are equal looks at the order of parameters")
    for style in STYLES:
        text = text_of(program, style)
        try:
            read = parse(text, USER, CLASSES)
        except fxgrad.errors.ProgramSyntaxError as error:
            if "stands for a Python object" in str(error):
                continue
            raise
        other = reordered(read)
        if not equal(read, program):
            found.append(f"{style}: what is read is another program")
        if text_of(read, style) != without_remarks(text):
            found.append(f"{style}: what is read prints otherwise")
        if text_of(other, style) != text_of(read, style) or to_json(other) != to_json(read):
            found.append(f"{style}: equal programs have two texts, or two files")
        if style == "equations" and to_json(read) != to_json(program):
            found.append(f"{style}: what is read has another file")
    return found


def check(cases: Named) -> None:
    found = {name: wrong for name, make in cases if (wrong := faults(make()))}
    assert not found, found


def test_some_functions() -> None:
    check(itertools.islice(of_functions(), 0, None, 9))


@pytest.mark.slow
def test_functions() -> None:
    check(of_functions())


@pytest.mark.slow
def test_operations() -> None:
    check(of_samples())


@pytest.mark.slow
@given(programs())
def test_random_programs(program: Program) -> None:
    assert not faults(program)


def test_equal_programs_make_equal_files() -> None:
    def saved(program: Program) -> bytes:
        file = io.BytesIO()
        fxgrad.save(file, program)
        return file.getvalue()

    one, two = (parse(f"program f(x: f64[3,4]) -> i32[3]:\n  return argmax(x, {params})")
                for params in ("axis=1, index_dtype=i32", "index_dtype=i32, axis=1"))
    assert saved(one) == saved(two)
    function, args, _ = SHIPPED["convolutional net, gradient"]
    program = fxgrad.make_program(function)(*args)
    assert saved(program) == saved(reordered(program))


@pytest.mark.slow
def test_every_parameter_has_its_place() -> None:
    """By the abstract rule of its operation or in the table; by the letters of its name at most one that comes last."""
    found: dict[str, list[str]] = {}
    for _, make in (*of_functions(), *of_samples()):
        for equation in (equation for program in inner_first(make()) for equation in program.equations):
            unknown = [name for name in equation.params if name not in orders.of(equation.primitive)]
            if len(unknown) > 1:
                found[equation.primitive.name] = unknown
    assert not found


def test_operations_of_users_have_their_parameters_by_name() -> None:
    free = user_primitive("free", lambda *avals, **params: list(avals))
    aval = fxgrad.make_program(lambda x: x)(1.0).in_avals[0]
    assert "free(a, a=1, b=2)" in text_of(one_equation(free, aval, b=2, a=1), "equations")
    assert registry.get("free") is None
