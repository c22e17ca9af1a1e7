"""Random programs for tests of their texts: any types, numbers, names and parameters, nested; they are never run."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from fxgrad import dtypes
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.program import Equation, Program, Signature, Variable
from fxgrad.engine.higher_order.call import named_call_p
from fxgrad.engine.higher_order.checkpoint import checkpoint_p
from fxgrad.engine.rooms import registry
from fxgrad.errors import FxgradError
from tests.support.show_programs import Mode, Numbers, keep_p

DTYPES = [*dtypes.SUPPORTED.values()]
SHAPES = [(), (2,), (3, 2), (0,), (1, 2)]
NAMES = (st.text(st.characters(codec="utf-8"), max_size=6)
         | st.sampled_from(["x", "params.w", "f32[3]", "inf", "return"]))


@st.composite
def avals(draw: st.DrawFn) -> Aval:
    dtype = draw(st.sampled_from(DTYPES))
    return Aval(draw(st.sampled_from(SHAPES)), dtype, draw(st.booleans()) and dtype.kind != "b")


@st.composite
def arrays(draw: st.DrawFn, aval: Aval) -> Any:
    """Draw any bits at all, except for bools; elements of fewer than 8 bits use the lowest of theirs."""
    if aval.dtype.kind == "b":
        return np.array([draw(st.booleans()) for _ in range(aval.size)], bool).reshape(aval.shape)[()]
    data = draw(st.binary(min_size=aval.nbytes, max_size=aval.nbytes))
    if (bits := dtypes.bits_of(aval.dtype)) < 8:
        lowest = np.frombuffer(data, np.uint8) & np.uint8((1 << bits) - 1)
        return (lowest.astype(aval.dtype) if dtypes.is_below_byte(aval.dtype) else lowest.view(aval.dtype)).reshape(
            aval.shape)[()]
    return np.frombuffer(data, aval.dtype).reshape(aval.shape)[()]


@st.composite
def literals(draw: st.DrawFn) -> Literal:
    aval = draw(avals())
    aval = Aval((), aval.dtype, aval.weak)
    return Literal(draw(arrays(aval)), aval)


def values(programs: st.SearchStrategy[Program]) -> st.SearchStrategy[Any]:
    """Parameters of every kind."""
    leaves = (st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text() | avals()
              | st.sampled_from([*DTYPES, *Mode]) | literals().map(lambda literal: literal.value) | programs)
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
                        | st.builds(Numbers, inner, inner), max_leaves=5)


@st.composite
def programs(draw: st.DrawFn, depth: int = 2) -> Program:
    inputs = [Variable(aval) for aval in draw(st.lists(avals(), max_size=3))]
    atoms: list[Any] = [*inputs, *draw(st.lists(literals(), min_size=not inputs, max_size=3))]
    inner = programs(depth - 1) if depth else st.nothing()
    equations: list[Equation] = []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["elementwise", "keep", "call"] if depth else ["elementwise", "keep"]))
        operands = [draw(st.sampled_from(atoms)) for _ in range(draw(st.integers(1, 2)))]
        params: dict[str, Any] = {}
        if kind == "elementwise":
            primitive = registry[draw(st.sampled_from(["neg", "sin", "add", "mul", "max"]))]
        elif kind == "keep":
            primitive = keep_p
            params = draw(st.dictionaries(st.sampled_from(["axes", "value", "program"]), values(inner), max_size=2))
        else:
            primitive = draw(st.sampled_from([named_call_p, checkpoint_p]))
            params = {"program": draw(inner), "name": draw(NAMES)}
            operands = [*(var for var in map(Variable, params["program"].in_avals))]
            continue_with = [next((atom for atom in atoms if atom.aval == var.aval), None) for var in operands]
            if None in continue_with:
                continue
            operands = continue_with
        try:
            outputs = [Variable(aval) for aval in primitive.abstract(*(atom.aval for atom in operands), **params)]
        except (FxgradError, TypeError):
            continue
        equations.append(Equation(primitive, operands, params, outputs))
        atoms += outputs
    captured = draw(st.integers(0, len(inputs)))
    constants = [draw(arrays(var.aval)) for var in inputs[:captured]] if draw(st.booleans()) else []
    names = draw(st.lists(NAMES, min_size=len(inputs) - captured, max_size=len(inputs) - captured, unique=True))
    signature = Signature(draw(NAMES), tuple(names), None, None) if draw(st.booleans()) else None
    outputs = draw(st.lists(st.sampled_from(atoms), max_size=3))
    return Program(inputs, equations, outputs, captured, constants, signature)
