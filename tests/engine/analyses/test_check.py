"""`Program.check`: every way in which a program can be wrong is found, and the message shows where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import Equation, Program, Variable
from fxgrad.engine.core.avals import array_aval
from fxgrad.engine.ops.arithmetic import neg_p
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.ops.structural import reduce_sum_p
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from fxgrad.errors import FxgradError, ProgramError
from tests.samples import all_samples

SAMPLES = all_samples()


def sound() -> Program:
    return fxgrad.make_program(lambda x: -(x + x))(np.ones(3))


def test_a_sound_program_passes_and_is_returned() -> None:
    program = sound()
    assert program.check() is program


def test_unbound_input() -> None:
    program = sound()
    with pytest.raises(ProgramError, match=r"input 0 .* is used before it is bound"):
        Program(program.inputs, program.equations[::-1], program.outputs).check()


def test_unbound_output() -> None:
    program = sound()
    with pytest.raises(ProgramError, match=r"output 0 .* is bound by no input and no equation"):
        Program(program.inputs, program.equations, [Variable(program.out_avals[0])]).check()


def test_wrong_types() -> None:
    program = sound()
    x, = program.inputs
    wrong = Equation(add_p, [x, x], {}, [Variable(x.aval.update(shape=(4,)))])
    with pytest.raises(ProgramError, match=r"its outputs are \[f64\[4\]\], where its abstract rule gives \[f64\[3\]\]"):
        Program([x], [wrong], wrong.outputs).check()


def test_refused_inputs_and_parameters() -> None:
    program = sound()
    x, = program.inputs
    other = Variable(x.aval.update(shape=(4,)))
    with pytest.raises(ProgramError, match="its abstract rule refuses the inputs"):
        Program([x, other], [Equation(add_p, [x, other], {}, [Variable(x.aval)])], [x]).check()
    with pytest.raises(ProgramError, match="its abstract rule refuses the inputs"):
        Program([x], [Equation(reduce_sum_p, [x], {"axis": 0}, [Variable(x.aval)])], [x]).check()
    with pytest.raises(ProgramError, match=r"neg takes the parameters \[\], got \['axis'\]"):
        Program([x], [Equation(neg_p, [x], {"axis": 0}, [Variable(x.aval)])], [x]).check()


def test_bound_twice() -> None:
    program = sound()
    x, = program.inputs
    y = Variable(x.aval)
    twice = [Equation(neg_p, [x], {}, [y]), Equation(neg_p, [x], {}, [y])]
    with pytest.raises(ProgramError, match="is bound already"):
        Program([x], twice, [y]).check()
    with pytest.raises(ProgramError, match="appears twice among the inputs"):
        Program([x, x], [], [x]).check()


def test_constants_must_match() -> None:
    program = sound()
    with pytest.raises(ProgramError, match="as many constants as captured inputs"):
        Program(program.inputs, program.equations, program.outputs, 0, [np.ones(3)]).check()


def test_nested_programs_are_checked() -> None:
    inner = sound()
    broken = Program(inner.inputs, inner.equations[1:], inner.outputs)
    from fxgrad.engine.higher_order.call import named_call_p
    x = Variable(inner.inputs[0].aval)
    call = Equation(named_call_p, [x], {"program": broken, "name": "inner"}, [Variable(x.aval)])
    with pytest.raises(ProgramError, match="is used before it is bound"):
        Program([x], [call], call.outputs).check()


def test_the_message_shows_the_neighbours_and_the_line() -> None:
    program = fxgrad.make_program(lambda x: np.sin(np.cos(x) * 2.0))(1.0)
    with pytest.raises(ProgramError) as caught:
        Program(program.inputs, program.equations[1:], program.outputs).check()
    lines = str(caught.value).splitlines()
    assert lines[1].startswith("  -> 0: ")
    assert lines[2].startswith("     1: ")
    assert "test_check.py" in lines[-1]


def test_wrong_number_of_operands() -> None:
    """Kernels would take the third for a place to write the result to."""
    program = sound()
    x, = program.inputs
    for count, problem in ((1, "add takes 2 operands, got 1"), (3, "add takes 2 operands, got 3")):
        with pytest.raises(ProgramError, match=problem):
            Program([x], [Equation(add_p, [x] * count, {}, [Variable(x.aval)])], [x]).check()


def test_floats_for_whole_numbers() -> None:
    """Whatever has a shape, an axis or a count: a float in its place is refused, before something runs."""
    taken = []
    for primitive, samples in SAMPLES.items():
        for sample in samples[:3]:
            try:
                program = trace_at(lambda *args, p=primitive, sample=sample: bind(p, *args, **sample.params),
                                   [array_aval(arg) for arg in sample.args()], mode=UNSHARED)[0]
            except FxgradError:
                continue  # under a named axis alone
            taken += [f"{primitive}({name}={floated(value)!r})" for name, value in program.equations[-1].params.items()
                      if floated(value) is not value and takes(program, name, floated(value))]
    assert taken == []


def takes(program: Program, name: str, value: Any) -> bool:
    """Whether the program is taken for right with another parameter of its last equation."""
    equation = program.equations[-1]
    wrong = Equation(equation.primitive, equation.inputs, {**equation.params, name: value}, equation.outputs)
    try:
        Program(program.inputs, [*program.equations[:-1], wrong], program.outputs, program.captured).check()
    except ProgramError:
        return False
    return True


def floated(value: Any) -> Any:
    """With floats in place of ints, in tuples too; the value itself if there are none."""
    if type(value) is int:
        return float(value)
    return tuple(map(floated, value)) if type(value) is tuple and any(
        floated(each) is not each for each in value) else value


def test_no_axes() -> None:
    """Parsed or not, jitted or not, a reduction over no axes is its operand, to the sign of a zero."""
    program = fxgrad.parse("program f(x: f64[2]) { y: f64[2] = reduce_sum(x, axes=()) return y }")
    for run in (program, program, program, fxgrad.jit(program)):
        assert np.asarray(run(np.array([-0.0, 1.5]))).tobytes() == np.array([-0.0, 1.5]).tobytes()
