"""The JSON form: what it looks like, what it refuses, and that it is stable."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fxgrad.engine.api.programs import make_program
from fxgrad.engine.higher_order.call import library_function
from fxgrad.engine.ops.arithmetic import add
from fxgrad.errors import ProgramError, ProgramSyntaxError, UnsupportedError
from fxgrad.text import equal, from_json, to_json
from tests.support.show_programs import SCALAR, USER, VECTOR, keep_p, one_equation, with_constant, with_value


@library_function
def twice(x: Any) -> Any:
    return add(x, x)


def document() -> dict[str, Any]:
    def f(x: Any) -> Any:
        y = twice(x)
        return add(y, np.array([1.0, 2.0], np.float32))

    return json.loads(to_json(make_program(f)(np.ones(2, np.float32))))  # type: ignore[no-any-return]


def test_the_form() -> None:
    assert document() == {
        "format": "fxgrad program",
        "version": 1,
        "programs": [
            {"name": None, "captured": [], "constants": None, "inputs": [["x", "f32[2]"]],
             "equations": [
                 {"primitive": "add", "inputs": ["x", "x"], "params": {}, "outputs": [["a", "f32[2]"]]}],
             "outputs": ["a"]},
            {"name": "f", "captured": [["a", "f32[2]"]],
             "constants": [{"dtype": "f32", "shape": [2], "base64": "AACAPwAAAEA="}],
             "inputs": [["x", "f32[2]"]],
             "equations": [
                 {"primitive": "named_call", "inputs": ["x"], "params": {"program": {"program": 0}, "name": "twice"},
                  "outputs": [["y", "f32[2]"]]},
                 {"primitive": "add", "inputs": ["y", "a"], "params": {}, "outputs": [["b", "f32[2]"]]}],
             "outputs": ["b"]},
        ],
    }


def test_version_one_stays_readable() -> None:
    """Written by the first version; this text must never change."""
    text = ('{"format": "fxgrad program", "version": 1, "programs": [{"name": "f", "captured": [], "constants": '
            'null, "inputs": [["x", "f32[3]"]], "equations": [{"primitive": "mul", "inputs": ["x", {"literal": "2.0", '
            '"type": "f32[]"}], "params": {}, "outputs": [["y", "f32[3]"]]}, {"primitive": "reduce_sum", "inputs": '
            '["y"], "params": {"axes": {"tuple": [0]}}, "outputs": [["z", "f32[]"]]}], "outputs": ["z"]}]}')
    program = from_json(text)
    assert program(np.array([1.0, 2.0, 3.0], np.float32)) == 12.0
    assert to_json(program) == text


def test_an_indented_form() -> None:
    program = with_value((1, 2))
    assert to_json(program, indent=2).startswith('{\n  "format": "fxgrad program",')
    assert equal(from_json(to_json(program, indent=2), USER), program)


def test_programs_of_deep_nesting() -> None:
    program = one_equation(keep_p, VECTOR)
    for _ in range(300):
        program = one_equation(keep_p, VECTOR, body=program)
    assert equal(from_json(to_json(program), USER), program)


def test_objects_have_no_form() -> None:
    with pytest.raises(UnsupportedError) as caught:
        to_json(with_value(np.sin))
    assert str(caught.value) == (
        "to_json: the parameter value of keep is a Python object (sin), which JSON does not hold; numbers, strings, "
        "dtypes, types, programs, and tuples of them have a form. Leave the operation out of the function, or write "
        "pickle.dumps(program), which holds every object that pickle takes")


def test_bytes_are_in_one_order() -> None:
    assert '"base64": "AAAAAAAA8D8AAAAAAAAAQA=="' in to_json(with_constant(np.array([1.0, 2.0])))


def test_arrays_that_were_read_can_be_written_to() -> None:
    read = from_json(to_json(with_constant(np.array([1.0, 2.0]))))
    read.constants[0][0] = 3.0
    np.testing.assert_array_equal(read.constants[0], [3.0, 2.0])


def edited(path: list[Any], value: Any) -> str:
    """The document with one field replaced, or removed where `value` is `...`."""
    result = document()
    inner: Any = result
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(result)


FIRST = ["programs", 0]
MAIN = ["programs", 1]
VALUE = [*MAIN, "equations", 1, "params", "v"]

CASES: list[tuple[list[Any], Any, str]] = [
    (["format"], "other", 'this JSON is not a program: an object with "format": "fxgrad program" is expected'),
    (["version"], 2,
     "the program is of version 2 of the format; this fxgrad reads versions up to 1: a newer one may read it"),
    (["version"], "1",
     "the program is of version '1' of the format; this fxgrad reads versions up to 1: a newer one may read it"),
    (["programs"], [], "programs: at least one program is expected"),
    (["programs"], {}, "the document.programs: an array is expected, found {}"),
    (["programs"], ..., "the document: the field 'programs' is missing"),
    (FIRST, 3, "programs[0]: an object is expected, found 3"),
    ([*FIRST, "inputs"], ..., "programs[0]: the field 'inputs' is missing"),
    ([*FIRST, "inputs", 0], ["a"], "programs[0].inputs[0]: a pair of a name and a type is expected"),
    ([*FIRST, "inputs", 0, 0], 3, "programs[0].inputs[0]: a string is expected, found 3"),
    ([*FIRST, "inputs", 0, 1], "f32", "programs[0].inputs[0]: expected a type such as f32[3,4], found 'f32'"),
    ([*FIRST, "inputs", 0, 1], "f32[2] x", "programs[0].inputs[0]: expected nothing after a type, found 'x'"),
    ([*FIRST, "name"], 3, "programs[0].name: a string is expected, found 3"),
    ([*FIRST, "outputs", 0], "z", "programs[0].outputs[0]: no input and no equation before has bound the name 'z'"),
    ([*FIRST, "outputs", 0], [], "programs[0].outputs[0]: a string is expected, found []"),
    ([*FIRST, "outputs", 0], {"literal": "2.0", "type": "f32[2]"},
     "programs[0].outputs[0]: a literal is of shape (), and f32[2] is not"),
    ([*FIRST, "outputs", 0], {"literal": "two", "type": "f32[]"},
     "programs[0].outputs[0]: expected a number, found 'two'"),
    ([*FIRST, "outputs", 0], {"literal": "2.5", "type": "i32[]"},
     "programs[0].outputs[0]: 2.5 is not a number of dtype int32"),
    ([*FIRST, "equations", 0, "primitive"], "plus",
     ("programs[0].equations[0].primitive: there is no operation of the name 'plus'; operations of your own are"
      " passed as from_json(text, primitives=[...])")),
    ([*FIRST, "equations", 0, "outputs", 0, 0], "x",
     "programs[0].equations[0].outputs[0]: the name 'x' is bound already"),
    ([*MAIN, "constants"], [], "programs[1].constants: the arrays are not of the types of the captured values"),
    ([*MAIN, "constants", 0, "dtype"], "f64",
     ("programs[1].constants[0]: the elements do not make an array of shape (2,) and dtype float64: cannot "
      "reshape array of size 1 into shape (2,)")),
    ([*MAIN, "constants", 0, "dtype"], "float", "programs[1].constants[0]: there is no dtype 'float'"),
    ([*MAIN, "constants", 0, "base64"], "A",
     ("programs[1].constants[0]: the elements do not make an array of shape (2,) and dtype float32: Invalid "
      "base64-encoded string: number of data characters (1) cannot be 1 more than a multiple of 4")),
    ([*MAIN, "equations", 0, "params", "program"], {"program": 1},
     "programs[1].equations[0].params.program: program 1 is not among those before this one"),
    (VALUE, 1.5,
     ('programs[1].equations[1].params.v: a floating number is written as {"float": "1.5"}, since JSON has no '
      "dtypes")),
    (VALUE, {"object": 1},
     ("programs[1].equations[1].params.v: an object with one of the fields float, complex, scalar, dtype, type, size,"
      " tuple, program, enum, class, tree is expected")),
    (VALUE, {"float": 1.5}, "programs[1].equations[1].params.v: a string is expected, found 1.5"),
    (VALUE, {"class": "Windows", "fields": {}},
     ("programs[1].equations[1].params.v: the fields of Windows are offset_dims, collapsed_slice_dims, "
      "start_index_map, operand_batching_dims, start_indices_batching_dims")),
    (VALUE, {"class": "Mine", "fields": {}},
     ("programs[1].equations[1].params.v: there is no class 'Mine' for parameters; those of your own are passed"
      " as from_json(text, classes=[...])")),
]


@pytest.mark.parametrize(("path", "value", "expected"), CASES)
def test_wrong_fields(path: list[Any], value: Any, expected: str) -> None:
    with pytest.raises(ProgramSyntaxError) as caught:
        from_json(edited(path, value))
    assert str(caught.value) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("{", "line 1, column 2: this is not JSON: Expecting property name enclosed in double quotes"),
    ("3", 'this JSON is not a program: an object with "format": "fxgrad program" is expected'),
    ("[" * 100_000, "the JSON is nested too deeply to be a program"),
])
def test_what_is_no_program(text: str, expected: str) -> None:
    with pytest.raises(ProgramSyntaxError) as caught:
        from_json(text)
    assert str(caught.value) == expected


@pytest.mark.parametrize(("path", "value"), [
    ([*FIRST, "equations", 0, "outputs", 0, 1], "f32[3]"),
    ([*MAIN, "equations", 0, "params"], {"program": {"program": 0}}),
    ([*MAIN, "equations", 0, "params", "program"], 3),
    ([*MAIN, "equations", 1, "inputs"], []),
])
def test_programs_that_break_the_rules(path: list[Any], value: Any) -> None:
    with pytest.raises(ProgramError, match="is wrong: "):
        from_json(edited(path, value))


def test_weak_types_stay_weak() -> None:
    program = make_program(lambda x: x)(1.0)
    assert from_json(to_json(program)).inputs[0].aval == program.inputs[0].aval
    assert from_json(to_json(program)).inputs[0].aval.weak
    assert program.inputs[0].aval != SCALAR
