"""Regions: every program that an operation holds is declared, with where its inputs come from and its outputs go."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import Primitive, Program
from fxgrad.engine import rooms  # noqa: F401  (registers all primitives)
from fxgrad.engine.core.avals import array_aval
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, Cost
from fxgrad.engine.core.program import Equation
from fxgrad.engine.core.regions import Region, region_roles, replace_programs
from fxgrad.engine.rooms import registry
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from fxgrad.errors import ProgramError
from tests.samples import all_samples

HOLDING = {name for name, primitive in registry.items() if primitive.regions is not None}


def programs_in(value: Any) -> Iterator[Program]:
    """The programs in containers of any depth."""
    if isinstance(value, Program):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from programs_in(each)
    elif isinstance(value, dict):
        yield from programs_in([*value.values()])


def equations() -> Iterator[tuple[Equation, list[Any]]]:
    """Every sample of an operation that holds programs, with its arguments."""
    for primitive, samples in all_samples().items():
        if primitive.regions is not None:
            for sample in samples:
                args = sample.args()
                program, _ = trace_at(lambda *given, sample=sample, primitive=primitive: bind(
                    primitive, *given, **sample.params), [*map(array_aval, args)], mode=UNSHARED)
                for equation in program.equations:
                    if equation.primitive is primitive:
                        yield equation, args


def test_what_holds_programs_says_so() -> None:
    for primitive, samples in all_samples().items():
        for sample in samples:
            assert (primitive.regions is not None) == any(programs_in(sample.params)), primitive
    assert {"cond", "scan", "for", "while", "sweep", "named_call", "jit_call", "checkpoint", "recompute",
                       "custom_jvp", "custom_vjp", "custom_vmap", "custom_linear_solve", "custom_root"} <= HOLDING


def test_the_table_of_roles_has_those_of_all_regions() -> None:
    found: dict[Primitive, dict[str, None]] = {}
    for primitive, samples in all_samples().items():
        if primitive.regions is not None:
            regions = [region for sample in samples for region in primitive.regions(sample.args(), **sample.params)]
            found[primitive] = dict.fromkeys(region.role for region in regions)
    assert found.keys() == region_roles.entered().keys() == {registry[name] for name in HOLDING}
    for primitive, roles in found.items():
        assert {*roles} == {*region_roles.of(primitive)}
        assert len(region_roles.of(primitive)) == len(roles)


def test_all_programs_are_declared_with_their_links() -> None:
    seen = set()
    for equation, _ in equations():
        regions = equation.regions
        assert [region.program for region in regions] == [*programs_in(equation.params)], equation
        assert replace_programs(equation.params, regions, [region.program for region in regions]) == equation.params
        for region in regions:
            program = region.program
            assert (len(region.inputs), len(region.outputs)) == (len(program.inputs), len(program.outputs)), region
            for link, var in zip(region.inputs, program.inputs, strict=True):
                check_type(link, var.aval, [atom.aval for atom in equation.inputs])
            for link, atom in zip(region.outputs, program.outputs, strict=True):
                check_type(link, atom.aval, [var.aval for var in equation.outputs])
            carried = [var.aval for link, var in zip(region.inputs, program.inputs, strict=True) if link.how == "carry"]
            made = [atom.aval for link, atom in zip(region.outputs, program.outputs, strict=True)
                    if link.how == "carry"]
            assert carried == made or not made, region
        seen.add(equation.primitive.name)
    assert seen == HOLDING


def check_type(link: Any, inner: Any, outer: list[Any]) -> None:
    if link.how == "inside":
        assert link.place == -1
        return
    aval = outer[link.place]
    shape = aval.shape[1:] if link.how == "entry" else aval.shape
    if link.how == "piece":
        assert all(whole % piece == 0 for whole, piece in zip(shape, inner.shape, strict=True) if piece), link
        shape = inner.shape
    assert (inner.shape, inner.dtype) == (shape, aval.dtype), link


def computed(equation: Equation, args: list[Any]) -> list[Any] | None:
    """The outputs of an operation by its links alone; None where the operation chooses or asks."""
    regions = [region for region in equation.regions if region.times != 0]
    if any(region.role in ("branch", "condition", "step", "mapped") for region in regions) or len(regions) != 1:
        return None
    region = regions[0]
    times = region.times if region.times is not None else int(args[0])
    values = [None if link.how == "inside" else args[link.place] for link in region.inputs]
    places = [place for place, link in enumerate(region.inputs) if link.how == "carry"]
    results: list[Any] = [values[place] for place in places]
    entries: list[list[Any]] = []
    for step in range(times)[::-1] if region.reverse else range(times):
        carry = iter(results)
        given = [next(carry) if link.how == "carry" else value[step] if link.how == "entry" else value
                 for link, value in zip(region.inputs, values, strict=True)]
        outputs = apply_program(region.program, given)
        by_link = list(zip(region.outputs, outputs, strict=True))
        results = [value for link, value in by_link if link.how in ("carry", "same")]
        entries.append([value for link, value in by_link if link.how == "entry"])
    in_order = entries[::-1] if region.reverse else entries
    return [*results, *(np.stack(column) for column in zip(*in_order, strict=True))]


def test_the_links_say_what_is_computed() -> None:
    seen = set()
    for equation, args in equations():
        outputs = computed(equation, args)
        if outputs is not None and len(outputs) == len(equation.outputs):
            with np.errstate(all="ignore"):
                wanted = equation.primitive.numpy(*args, **equation.params)
            for one, other in zip(outputs, wanted, strict=True):
                np.testing.assert_array_equal(one, other)
            seen.add(equation.primitive.name)
    assert seen >= {"scan", "for", "named_call", "jit_call", "checkpoint", "recompute", "custom_jvp", "custom_vjp",
                    "custom_vmap", "custom_linear_solve", "custom_root"}


def test_how_often() -> None:
    def loops(x: Any) -> Any:
        y, _ = fxgrad.lax.scan(lambda c, _: (c * 2.0, None), x, None, length=7)
        y = fxgrad.lax.fori_loop(0, 5, lambda i, c: c + 1.0, y)
        return fxgrad.lax.while_loop(lambda c: c < 100.0, lambda c: c * 2.0, y)

    program = fxgrad.make_program(loops)(1.0)
    regions = itertools.chain.from_iterable(equation.regions for equation in program.equations)
    assert sorted((region.role, str(region.times)) for region in regions) == [
        ("body", "5"), ("body", "7"), ("body", "None"), ("condition", "None")]


def test_of_users() -> None:
    """A primitive of a user's that holds a program is looked into as the library's are, and refused if it hides it."""
    def declared(regions: Any) -> Primitive:
        return Primitive(
            name="mine", abstract=lambda x, *, body: body.out_avals, numpy=lambda x, *, body: apply_program(body, [x]),
            xla=lambda lax, x, *, body: body(x), jvp=NO_TANGENT, transpose=NOT_LINEAR,
            batch=lambda size, values, axes, *, body: (values, axes), cost=lambda *_, **__: Cost(0, 0), regions=regions)

    body = fxgrad.make_program(lambda x: fnp.sin(x))(np.ones(2))
    hidden, shown = declared(None), declared(
        lambda operands, *, body: (Region("call", ("body",), body, (), (), 1),))
    program = fxgrad.make_program(lambda x: bind(shown, x, body=body))(np.ones(2))
    assert [region.program for region in program.equations[0].regions] == [body]
    assert "sin" in str(program)
    with pytest.raises(ProgramError) as caught:
        fxgrad.make_program(lambda x: bind(hidden, x, body=body))(np.ones(2)).check()
    assert ("its parameter body holds a program, which nothing that walks into programs would find. Give the primitive "
            "regions=function(operands, **params)") in str(caught.value)
