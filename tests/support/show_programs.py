"""Programs for the tests of their text: traced ones, and operations of a user with parameters of every kind."""

from __future__ import annotations

import enum
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import fxgrad.engine.executors
import fxgrad.engine.ops.arithmetic
import fxgrad.engine.ops.reductions
import fxgrad.engine.ops.trigonometric  # noqa: F401  (enters operations that texts of the tests name)
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, TODO, Cost, Primitive
from fxgrad.engine.core.program import Equation, Program, Signature, Variable
from fxgrad.engine.core.regions import Region
from fxgrad.text import equal, from_json, parse, program_text, to_json

F32 = np.dtype("float32")
SCALAR = Aval((), F32)
VECTOR = Aval((3,), F32)


class Mode(enum.Enum):
    FILL = 1
    CLIP = 2


class Numbers(NamedTuple):
    axes: tuple[int, ...]
    size: int = 0


def every_program(operands: Any, **params: Any) -> tuple[Region, ...]:
    """Return all programs among the parameters, by name, whatever their order; in containers of any depth."""
    def found(value: Any, at: tuple[Any, ...]) -> Iterator[Region]:
        if isinstance(value, Program):
            yield Region("call", at, value, (), (), None)
        elif isinstance(value, tuple | list):
            for place, item in enumerate(value):
                yield from found(item, (*at, place))

    return tuple(region for name, value in sorted(params.items()) for region in found(value, (name,)))


def user_primitive(name: str, abstract: Any) -> Primitive:
    """Return an operation of which only the types matter."""
    return Primitive(name=name, abstract=abstract, numpy=lambda *values, **params: [*values], jvp=NO_TANGENT,
                     xla=lambda lax, *values, **params: [*values], transpose=NOT_LINEAR,
                     batch=TODO("no test needs it"), cost=lambda *avals, **params: Cost(0, 0),
                     regions=every_program)


keep_p = user_primitive("keep", lambda *avals, **params: list(avals))
"""Returns its inputs, and takes parameters of every kind."""
effect_p = user_primitive("effect", lambda *avals, **params: [])
choose_p = user_primitive("choose", lambda *avals, branches: branches[0].out_avals)
repeat_p = user_primitive("repeat", lambda *avals, length, body: list(avals))
USER = [keep_p, effect_p, choose_p, repeat_p]
CLASSES = [Mode, Numbers]


def one_equation(primitive: Primitive, *avals: Aval, **params: Any) -> Program:
    """Return a program of one equation whose inputs are those of the program."""
    inputs = [Variable(aval) for aval in avals]
    outputs = [Variable(aval) for aval in primitive.abstract(*avals, **params)]
    return Program(inputs, [Equation(primitive, [*inputs], params, outputs)], outputs)


def with_value(value: Any) -> Program:
    """Return a program with `value` for a parameter."""
    return one_equation(keep_p, SCALAR, value=value)


def with_literal(value: Any, aval: Aval) -> Program:
    """Return a program that returns a literal."""
    return Program([], [], [Literal(value, aval)])


def with_constant(value: Any) -> Program:
    """Return a closed program that returns its one constant."""
    var = Variable(Aval(np.shape(value), np.asarray(value).dtype))
    return Program([var], [], [var], 1, [value], Signature("f", (), None, None))


def equations_text(program: Program, **options: Any) -> str:
    """Return the text with one operation a line and everything explicit, by which transformations are compared."""
    return program_text(program, style="equations", **options)


def assert_round_trips(program: Program, **options: Any) -> None:
    """Text, JSON and pickle give back an equal program, which prints as the first one did."""
    text = program_text(program, style="equations", constants=True, **options)
    parsed = parse(text, USER, CLASSES)
    assert equal(program, parsed), text
    assert program_text(parsed, style="equations", constants=True) == \
        program_text(program, style="equations", constants=True, source=False)
    compact = program_text(program, style="compact", constants=True, **options)
    from_compact = parse(compact, USER, CLASSES)
    assert equal(program, from_compact), compact
    assert program_text(from_compact, style="compact", constants=True) == \
        program_text(program, style="compact", constants=True, source=False)
    loaded = from_json(to_json(program), USER, CLASSES)
    assert equal(program, loaded), text
    assert to_json(loaded) == to_json(program)
    pickled = pickle.loads(pickle.dumps(program))
    assert equal(program, pickled), text
    assert program_text(pickled, style="equations", constants=True, **options) == text
    for other in (parsed, from_compact, loaded, pickled):
        if program.signature is None:
            assert other.signature is None
        else:
            assert other.signature is not None
            assert other.signature[:2] == program.signature[:2]
