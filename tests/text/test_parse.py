"""Reading programs back: what was printed, what people write, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fxgrad import dtypes
from fxgrad.engine.api.programs import make_program
from fxgrad.engine.api.reverse import grad
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Equation, Program, Signature, Variable
from fxgrad.engine.higher_order.call import library_function, named_call_p
from fxgrad.engine.higher_order.checkpoint import checkpoint_p
from fxgrad.engine.ops.arithmetic import add, mul
from fxgrad.engine.ops.reductions import reduce_sum
from fxgrad.engine.ops.trigonometric import sin
from fxgrad.errors import ProgramError, ProgramSyntaxError
from fxgrad.text import equal, from_json, parse, program_text, to_json
from fxgrad.text.numbers import convert_values
from tests.support.show_programs import (
    CLASSES,
    SCALAR,
    USER,
    VECTOR,
    Mode,
    Numbers,
    assert_round_trips,
    choose_p,
    effect_p,
    keep_p,
    one_equation,
    repeat_p,
    with_constant,
    with_literal,
    with_value,
)

OFFSET = np.array([0.5, -1.0, 2.0], np.float32)


@library_function
def squares(x: Any) -> Any:
    return add(mul(x, x), 1.0)


def loss(params: Any, x: Any) -> Any:
    h = squares(squares(mul(x, params["w"])))
    return reduce_sum(mul(h, OFFSET), (0,))


ARGUMENTS = {"w": OFFSET}, OFFSET


@pytest.mark.parametrize("function", [loss, grad(loss), grad(lambda p, x: grad(loss)(p, x)["w"][0])])
@pytest.mark.parametrize("options", [{}, {"source": False}, {"width": 40}])
def test_traced_programs(function: Any, options: dict[str, Any]) -> None:
    try:
        program = make_program(function)(*ARGUMENTS)
    except TypeError:
        pytest.skip("indexing needs the NumPy front end")
    assert_round_trips(program, **options)


def test_the_program_read_computes_the_same() -> None:
    program = make_program(grad(loss))(*ARGUMENTS)
    expected = program(*ARGUMENTS)["w"]
    for other in (parse(str(program)), from_json(to_json(program))):
        # Without the containers of the arguments: the inputs in the order of the text.
        np.testing.assert_array_equal(other(*ARGUMENTS[0].values(), ARGUMENTS[1]), expected)


def test_an_unfolded_text_is_the_unfolded_program() -> None:
    program = make_program(loss)(*ARGUMENTS)
    parsed = parse(program_text(program, unfold=True))
    assert not any(equation.primitive is named_call_p for equation in parsed.equations)
    np.testing.assert_array_equal(parsed(*ARGUMENTS[0].values(), ARGUMENTS[1]), program(*ARGUMENTS))


def test_a_program_called_twice_is_one_program() -> None:
    parsed = parse(str(make_program(loss)(*ARGUMENTS)))
    first, second = (equation.params["program"] for equation in parsed.equations if "program" in equation.params)
    assert first is second


def bits(value: int, dtype: str) -> Any:
    return np.array(value, f"u{np.dtype(dtype).itemsize}").view(dtype)[()]


NUMBERS: list[Any] = [
    *map(np.float64, [0.1, -0.0, 5e-324, 1.7976931348623157e308, np.nan, np.inf, -np.inf, 1e16, 123456789.0]),
    *map(np.float32, [0.1, -0.0, 1e-45, 3.4028235e38, np.nan, np.inf, 16777216, 1 / 3]),
    *map(np.float16, [0.1, 6e-8, 65504, np.nan]),
    *map(ml_dtypes.bfloat16, [0.1, 3.0, 3.39e38, -np.inf, np.nan, 1 / 3]),
    bits(0x7FC00001, "f4"), bits(0xFFC00000, "f4"), bits(0x7F800001, "f4"), bits(0x7FF8000000000002, "f8"),
    np.complex64(complex(-0.0, np.nan)), np.complex128(complex(np.inf, -0.0)), np.complex128(0.1 + 0.2j),
    np.int8(-128), np.uint8(255), np.int64(-2**63), np.uint64(2**64 - 1), np.int32(0),
    np.bool_(True), np.bool_(False),
]


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
@pytest.mark.parametrize("weak", [False, True])
def test_numbers_are_exact(value: Any, weak: bool) -> None:
    assert_round_trips(with_literal(value, Aval((), value.dtype, weak)))
    assert_round_trips(with_constant(value))
    assert_round_trips(with_constant(np.array([[value, value], [value, np.zeros((), value.dtype)]])))
    assert_round_trips(with_value(value))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_narrow_number_is_exact(dtype: str) -> None:
    assert_round_trips(with_constant(np.arange(2**16, dtype=np.uint16).view(dtypes.SUPPORTED[dtype])))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_random_bits_are_exact(dtype: str) -> None:
    data = np.random.default_rng(0).bytes(8000)
    assert_round_trips(with_constant(np.frombuffer(data, dtype)))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (0, 2), (1, 1, 1), (2, 3, 4)])
def test_shapes_of_constants(shape: tuple[int, ...]) -> None:
    assert_round_trips(with_constant(np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)[()]))
    assert_round_trips(with_constant(np.full(shape, -0.0)[()]))


@pytest.mark.parametrize("value", [
    None, True, 3, -2**70, 0.5, -0.0, float("nan"), float("-inf"), 1e300, complex(1, -0.0), complex("nanj"),
    "text", 'with "quotes", \\ and \n', "ünïcode", "\ud800", "", (), (1,), (1, (2, (3,))), ((),), [1, [2.0]],
    np.dtype("float32"), dtypes.bfloat16, np.dtype("bool"), VECTOR, Aval((2, 3), np.dtype("int8"), True),
    Mode.CLIP, Numbers((0, 1), 3), (Numbers(()), Mode.FILL), (None, "a", 1.5, np.dtype("int64")),
], ids=repr)
def test_parameters(value: Any) -> None:
    program = with_value(value)
    assert_round_trips(program)
    read = parse(str(program), USER, CLASSES).equations[0].params["value"]
    assert type(read) is type(value)


def test_programs_among_parameters() -> None:
    inner, other = one_equation(keep_p, VECTOR, axes=(0,)), one_equation(keep_p, VECTOR)
    assert_round_trips(one_equation(choose_p, VECTOR, branches=(inner, other)))
    assert_round_trips(one_equation(choose_p, VECTOR, branches=(inner, inner)))
    assert_round_trips(one_equation(choose_p, VECTOR, branches=(inner,)))
    assert_round_trips(one_equation(repeat_p, VECTOR, body=inner, length=2))
    assert_round_trips(one_equation(repeat_p, VECTOR, body=one_equation(choose_p, VECTOR, branches=(inner, other)),
                                    length=2))
    assert_round_trips(one_equation(keep_p, VECTOR, value=Numbers((inner, 3))))  # type: ignore[arg-type]
    assert_round_trips(one_equation(effect_p, VECTOR, body=inner))


@pytest.mark.parametrize("primitive", [named_call_p, checkpoint_p, keep_p])
@pytest.mark.parametrize("name", ["block", "a block", "mul", "f32", "return", "where", ""])
def test_calls(primitive: Any, name: str) -> None:
    inner = one_equation(keep_p, VECTOR)
    x, y, z = Variable(VECTOR), Variable(VECTOR), Variable(VECTOR)
    assert_round_trips(Program([x], [
        Equation(primitive, [x], {"program": inner, "name": name}, [y]),
        Equation(named_call_p, [y], {"program": inner, "name": "other"}, [z]),
    ], [z]))


@pytest.mark.slow
def test_deep_nesting() -> None:
    program = one_equation(keep_p, VECTOR)
    called = program
    for _ in range(300):
        program = one_equation(repeat_p, VECTOR, body=program, length=2)
        called = one_equation(named_call_p, VECTOR, program=called, name="f")
    assert_round_trips(program)
    assert_round_trips(called)


def test_sharing_does_not_multiply() -> None:
    program = one_equation(keep_p, VECTOR)
    for _ in range(40):
        program = one_equation(choose_p, VECTOR, branches=(program, program))
    assert len(str(program)) < 10_000
    assert_round_trips(program)


@pytest.mark.parametrize("name", ["loss", "my loss", "program", "return", "", 'a"b', "where", "ünïcode"])
def test_titles(name: str) -> None:
    x = Variable(SCALAR)
    assert_round_trips(Program([x], [], [x], signature=Signature(name, ("x",), None, None)))


@pytest.mark.parametrize("name", [
    "x", "params.W", "layers[0].b", "d['a b']", 'd["k"]', "d[-1]", "argument 0", "return", "program", "nan", "True",
    "", " ", "a`b", "a\\", "a\nb", "x.0", "x[1", "f32[3]", "i8[]", "bool*[2]", "f32", "é", "class", "complex", "@a",
    "<a>", "#",
])
def test_names(name: str) -> None:
    x, y = Variable(SCALAR), Variable(SCALAR)
    assert_round_trips(Program([x], [Equation(keep_p, [x], {}, [y])], [x, y],
                               signature=Signature("f", (name,), None, None)))


def test_captured_values_without_constants() -> None:
    x, y = Variable(SCALAR), Variable(VECTOR)
    program = Program([x, y], [], [y, x], 1)
    assert_round_trips(program)
    assert parse(str(program)).captured == 1


def test_operations_whose_names_are_no_words() -> None:
    text = 'program (a: f32[]) { b: f32[] = "scatter-add"(a) return b }'
    primitive = one_equation(keep_p, SCALAR).equations[0].primitive
    odd = type(primitive)(**{field: getattr(primitive, field) for field in
                             ("abstract", "numpy", "xla", "jvp", "transpose", "batch", "cost")}, name="scatter-add")
    program = parse(text, [odd])
    assert equal(program, parse(str(program), [odd]))
    assert '"scatter-add"(a)' in str(program)


def test_what_people_write() -> None:
    program = parse("""
        # spaces, comments and line ends are free; a comma may follow the last item
        program f(
            x: f32[ 2, 3 ],
        ) {
            y : f32[2,3] = mul (x , 2:f32,)   # a whole number of a floating dtype
            z: f32[2,3] = add(y, x) return z,
        }""")
    assert program.check() is program
    assert program.signature is not None
    assert program.signature.input_names == ("x",)
    assert program.equations[0].inputs[1].aval == SCALAR


def test_library_records_are_known() -> None:
    from fxgrad.engine.ops.windows import Windows

    value = Windows((0,), (), (1,))
    program = with_value(value)
    assert "value=Windows(offset_dims=(0,), collapsed_slice_dims=(), " in str(program)
    assert parse(str(program), USER).equations[0].params["value"] == value


def test_nothing_is_executed() -> None:
    class Explosive(Numbers):
        def __new__(cls, *_: Any) -> Any:
            raise AssertionError("a constructor ran")

    text = "program (a: f32[]) { b: f32[] = keep(a, value=Explosive(axes=(1,), size=2)) return b }"
    assert parse(text, USER, [Explosive]).equations[0].params["value"] == ((1,), 2)
    for value in ("__import__", "os.system", "print(x=1)", "<function>", "lambda"):
        with pytest.raises(ProgramSyntaxError):
            parse(f"program (a: f32[]) {{ b: f32[] = keep(a, value={value}) return b }}", USER)


def test_custom_rules_are_refused() -> None:
    program = one_equation(keep_p, SCALAR, rule=sin)
    assert "keep(a, rule=<" in str(program)
    with pytest.raises(ProgramSyntaxError, match="stands for a Python object"):
        parse(str(program), USER)


def test_the_program_is_checked() -> None:
    with pytest.raises(ProgramError, match="line 1, column 46: add refuses its inputs: add: shapes"):
        parse("program (a: f32[3], b: f32[4]) { c: f32[3] = add(a, b) return c }")


def test_numbers_of_other_dtypes_convert_exactly_or_fail() -> None:
    assert convert_values([1, 2.5], dtypes.float32).tolist() == [1.0, 2.5]
    assert convert_values([3], dtypes.complex64).tolist() == [3 + 0j]
