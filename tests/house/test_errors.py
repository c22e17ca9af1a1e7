"""What users read when something is wrong: the full text of every message, with the line numbers left out."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, grad, jacfwd, jit, jvp, linear_transpose, linearize, make_program, vjp, vmap

ONES, MATRIX = np.ones(3), np.ones((2, 3))
ROWS = [ONES, MATRIX]
leaked: list[Any] = []


def unit(x):
    return x


def leak(x):
    leaked.append(x * 2)
    return x


def choose(x, flag):
    if flag:
        return x
    return -x


def set_item(x):
    x[0] = 1.0
    return x


def set_update(x):
    x.at[0] = 1.0


def add_update(state):
    state["a"].at[0, 1:] += 2.0


def call_leaked() -> Any:
    grad(leak)(1.0)
    return leaked[-1] + 1.0


def broken_program() -> Any:
    program = make_program(lambda x: np.sin(x) * 2.0)(1.0)
    return fxgrad.Program(program.inputs, program.equations[1:], program.outputs).check()


static = jit(choose, static_argnames="flag")
ruled = fxgrad.custom_vjp(lambda x: x)
ruled.defvjp(lambda x: (x, None), lambda residuals, cotangent: cotangent)
nonlinear_rule = fxgrad.custom_vjp(lambda x: x)
nonlinear_rule.defvjp(lambda x: (x, x), lambda x, cotangent: (np.sin(cotangent),))


@dataclasses.dataclass
class Unregistered:
    weights: Any


alone_p = jax.extend.core.Primitive("alone")
alone_p.def_impl(lambda x: x)
alone_p.def_abstract_eval(lambda x: x)


def without_derivative(x: Any) -> Any:
    return alone_p.bind(jnp.asarray(x))


def reused(key: Any) -> Any:
    return fxgrad.random.normal(key) + fxgrad.random.uniform(key)


def ahead_of_time(*args: Any, **kwargs: Any) -> Any:
    def model(p, x):
        return p["w"] @ x
    return jit(model).lower({"w": MATRIX}, ONES).compile()(*args, **kwargs)


def set_on_one_side(x: Any) -> Any:
    if x > 0:
        y = x
    return y


CASES: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "grad of a vector": (errors.ArgumentError, lambda: grad(unit)(ONES)),
    "grad of a container": (errors.ArgumentError, lambda: grad(lambda x: {"a": x})(1.0)),
    "grad of an integer function": (errors.DTypeError, lambda: grad(lambda x: np.argmax(x))(ONES)),
    "grad of a complex function": (errors.DTypeError, lambda: grad(lambda x: x * 1j)(1.0)),
    "grad in an integer": (errors.DTypeError, lambda: grad(unit)(3)),
    "grad in an integer leaf": (errors.DTypeError, lambda: grad(lambda p: p["w"][0])({"w": [np.arange(3)]})),
    "grad in a string": (errors.ArgumentError, lambda: grad(unit)("three")),
    "grad in an object array": (errors.DTypeError, lambda: grad(unit)(np.array([None]))),
    "grad in a foreign byte order": (errors.DTypeError, lambda: grad(np.sum)(np.ones(3, ">f8"))),
    "grad in a masked array": (errors.ArgumentError, lambda: grad(np.sum)(np.ma.array([1.0]))),
    "grad of no function": (errors.ArgumentError, lambda: grad(3.0)),
    "argnums out of range": (errors.ArgumentError, lambda: grad(unit, argnums=2)(1.0)),
    "argnums of a wrong type": (errors.ArgumentError, lambda: grad(unit, argnums=("x",))(1.0)),
    "argnums twice": (errors.ArgumentError, lambda: grad(choose, argnums=(0, 0))(1.0, 2.0)),
    "no pair for has_aux": (errors.ArgumentError, lambda: grad(unit, has_aux=True)(1.0)),
    "output is a string": (errors.ArgumentError, lambda: grad(lambda x: "words")(1.0)),
    "holomorphic in a real": (errors.DTypeError, lambda: grad(unit, holomorphic=True)(1.0)),
    "jacobian in an integer": (errors.DTypeError, lambda: jacfwd(unit)(3)),
    "jacobian of a complex function": (errors.DTypeError, lambda: fxgrad.jacrev(unit)(np.ones(2, complex))),
    "jacobian of an integer function": (errors.DTypeError, lambda: jacfwd(lambda x: np.argmax(x))(ONES)),
    "broadcasting": (errors.ShapeError, lambda: grad(lambda x: np.sum(x + np.ones(4)))(ONES)),
    "matmul": (errors.ShapeError, lambda: grad(lambda x: np.sum(x @ np.ones((4, 5))))(MATRIX)),
    "dot": (errors.ShapeError, lambda: grad(lambda x: np.dot(x, np.ones(4)))(ONES)),
    "reshape": (errors.ShapeError, lambda: grad(lambda x: np.sum(x.reshape(2, 2)))(ONES)),
    "axis": (errors.AxisError, lambda: grad(lambda x: np.sum(np.sum(x, axis=2)))(MATRIX)),
    "concatenate": (errors.ShapeError, lambda: grad(lambda x: np.sum(np.concatenate([x, MATRIX])))(np.ones((2, 2)))),
    "index out of range": (errors.IndexingError, lambda: grad(lambda x: x[5])(ONES)),
    "too many indices": (errors.IndexingError, lambda: grad(lambda x: x[0, 0])(ONES)),
    "float index": (errors.IndexingError, lambda: grad(lambda x: x[1.0])(ONES)),
    "mask under jit": (errors.ConcretizationError, lambda: jit(lambda x: np.sum(x[x > 0]))(ONES)),
    "item assignment": (errors.MutationError, lambda: grad(set_item)(ONES)),
    "if under jit": (errors.ConcretizationError, lambda: jit(choose)(1.0, True)),
    "if under vmap": (errors.ConcretizationError, lambda: vmap(choose)(ONES, ONES)),
    "int under jit": (errors.ConcretizationError, lambda: jit(lambda x, n: x * sum(range(n)))(1.0, 3)),
    "size under jit": (errors.ConcretizationError, lambda: jit(lambda n: np.zeros(n))(3)),
    "slice under jit": (errors.ConcretizationError, lambda: jit(lambda x, n: x[:n])(ONES, 2)),
    "item of a list under jit": (errors.ConcretizationError, lambda: jit(lambda n: ROWS[n])(1)),
    "greatest of two under jit": (errors.ConcretizationError, lambda: jit(lambda x: max(x, 0.0))(1.0)),
    "name as index": (errors.IndexingError, lambda: jit(lambda params: params["w"])(ONES)),
    "sum of segments under jit": (errors.ConcretizationError, lambda: jit(fxgrad.ops.segment_sum)(ONES, np.arange(3))),
    "assignment to an update": (errors.MutationError, lambda: set_update(fnp.zeros(3))),
    "assignment in place to an update": (errors.MutationError, lambda: add_update({"a": fnp.zeros((3, 3))})),
    "update of a call": (errors.ArgumentError, lambda: fnp.zeros(3).at(0).set(1.0)),
    "call of an update": (errors.ArgumentError, lambda: fnp.zeros(3).at[0](1.0)),
    "float of a tracer": (errors.ArrayConversionError, lambda: grad(lambda x: float(x) * x)(1.0)),
    "item of a tracer": (errors.ArrayConversionError, lambda: grad(lambda x: x.item() * x)(1.0)),
    "name set on one side of a traced if": (errors.ControlFlowError,
                                            lambda: jit(fxgrad.python_control_flow(set_on_one_side))(1.0)),
    "asarray of a tracer": (errors.ArrayConversionError, lambda: grad(lambda x: np.asarray(x) * x)(1.0)),
    "int of a float tracer under jit": (errors.ConcretizationError, lambda: jit(lambda x: int(x) * x)(1.0)),
    "jax function of a tracer": (errors.UnsupportedError, lambda: grad(lambda x: jnp.sin(x))(1.0)),
    "hash of a tracer": (TypeError, lambda: grad(lambda x: {x: 1})(1.0)),
    "leaked tracer": (errors.LeakedTracerError, call_leaked),
    "unsupported numpy function": (errors.UnsupportedError, lambda: grad(lambda x: np.sum(np.real_if_close(x)))(ONES)),
    "unsupported ufunc": (errors.UnsupportedError, lambda: grad(lambda x: np.sum(np.isnat(x)))(ONES)),
    "out argument": (errors.MutationError, lambda: grad(lambda x: np.sum(np.sin(x, out=ONES)))(ONES)),
    "out argument with a mask": (errors.MutationError, lambda: grad(
        lambda x: np.sum(np.log(x, out=ONES, where=x > 0)))(ONES)),
    "unhashable static argument": (errors.ArgumentError, lambda: static(1.0, flag=[True])),
    "string under jit": (errors.ArgumentError, lambda: jit(choose)(1.0, "yes")),
    "string in a container under jit": (errors.ArgumentError, lambda: jit(unit)({"name": "relu"})),
    "string by keyword under jit": (errors.ArgumentError, lambda: jit(lambda **options: 1.0)(name="relu")),
    "string under jit within grad": (errors.ArgumentError, lambda: grad(lambda x: jit(choose)(x, "yes"))(1.0)),
    "dataclass as an argument": (errors.ArgumentError, lambda: grad(unit)(Unregistered(1.0))),
    "dataclass under jit": (errors.ArgumentError, lambda: jit(unit)([Unregistered(1.0)])),
    "output is a dataclass": (errors.ArgumentError, lambda: jit(Unregistered)(1.0)),
    "vmap sizes": (errors.ArgumentError, lambda: vmap(lambda p, y: p["a"] * y)({"a": ONES}, np.ones(4))),
    "vmap of a scalar": (errors.ArgumentError, lambda: vmap(unit)(1.0)),
    "vmap axis out of range": (errors.ArgumentError, lambda: vmap(unit, in_axes=2)(MATRIX)),
    "vmap in_axes of a wrong type": (errors.ArgumentError, lambda: vmap(unit, in_axes="x")),
    "vmap in_axes entry": (errors.ArgumentError, lambda: vmap(unit, in_axes=(1.5,))),
    "vmap in_axes length": (errors.ArgumentError, lambda: vmap(choose, in_axes=(0,))(ONES, True)),
    "vmap in_axes name": (errors.ArgumentError, lambda: vmap(choose, in_axes={"z": 0})(ONES, True)),
    "vmap in_axes not a prefix": (errors.ArgumentError,
                                  lambda: vmap(lambda p: p["a"], in_axes=({"b": 0},))({"a": ONES})),
    "vmap nothing mapped": (errors.ArgumentError, lambda: vmap(unit, in_axes=None)(ONES)),
    "vmap out_axes None": (errors.ArgumentError, lambda: vmap(unit, out_axes=None)(ONES)),
    "vmap out_axes out of range": (errors.ArgumentError, lambda: vmap(unit, out_axes=3)(ONES)),
    "vmap of a string": (errors.ArgumentError, lambda: vmap(choose, in_axes=(0, 0))(ONES, "yes")),
    "jvp without tuples": (errors.ArgumentError, lambda: jvp(unit, 1.0, 1.0)),
    "jvp trees": (errors.TreeError, lambda: jvp(lambda p: p["a"], ({"a": 1.0},), ({"b": 1.0},))),
    "jvp tangent shape": (errors.ArgumentError, lambda: jvp(unit, (ONES,), (np.ones(2),))),
    "jvp tangent dtype": (errors.ArgumentError, lambda: jvp(unit, (ONES,), (np.ones(3, np.float32),))),
    "pullback tree": (errors.TreeError, lambda: vjp(unit, 1.0)[1]((1.0, 2.0))),
    "pullback shape": (errors.ArgumentError, lambda: vjp(unit, ONES)[1](np.ones(2))),
    "linearized tree": (errors.TreeError, lambda: linearize(unit, 1.0)[1](1.0, 2.0)),
    "transpose of a nonlinear function": (errors.LinearityError, lambda: linear_transpose(lambda x: x * x, 1.0)(1.0)),
    "transpose of an affine function": (errors.LinearityError, lambda: linear_transpose(lambda x: x + 1.0, 1.0)(1.0)),
    "custom rule missing": (errors.ArgumentError, lambda: fxgrad.custom_jvp(unit)(1.0)),
    "custom backward pass": (errors.ArgumentError, lambda: grad(lambda x: ruled(x))(1.0)),
    "forward mode of a nonlinear rule": (errors.UnsupportedError, lambda: jvp(nonlinear_rule, (1.0,), (1.0,))),
    "unparsable text": (errors.ProgramSyntaxError, lambda: fxgrad.parse("program f(x: f32[3]) {\n  return y\n}")),
    "broken program": (errors.ProgramError, broken_program),
    "program called with a wrong type": (errors.ArgumentError, lambda: make_program(unit)(ONES)(np.ones(4))),
    "program called with a type alone": (errors.ArgumentError, lambda: make_program(np.sin)(ONES)(
        jax.ShapeDtypeStruct((3,), "float64"))),
    "compiled ahead of time, called with other types": (
        errors.ArgumentError, lambda: ahead_of_time({"w": np.ones((4, 2)), "c": ONES}, [ONES, ONES])),
    "compiled ahead of time, called by name": (errors.ArgumentError, lambda: ahead_of_time({"w": MATRIX}, x=ONES)),
    "lowered with a static array": (errors.ArgumentError, lambda: static.lower(ONES, flag=ONES)),
    "primitive without a rule": (TypeError, lambda: fxgrad.Primitive("p", *[None] * 7)),
    "default dtype": (ValueError, lambda: fxgrad.set_default_dtype("int32")),
    "check": (errors.CheckError, lambda: fxgrad.check(False, "no")),
    "key reuse": (errors.KeyReuseError, lambda: fxgrad.debug.check_key_reuse(reused)(fxgrad.random.key(0))),
    "no key": (errors.ArgumentError, lambda: fxgrad.random.normal(ONES)),
    "chunk size": (errors.ArgumentError, lambda: vmap(unit, chunk_size=0)),
    "jacobian mode": (errors.ArgumentError, lambda: fxgrad.jacobian(unit, mode="sideways")),
    "static argument of checkpoint out of range": (
        errors.ArgumentError, lambda: grad(fxgrad.checkpoint(choose, static_argnums=3))(1.0, True)),
    "static argument out of range": (errors.ArgumentError, lambda: make_program(unit, static_argnums=3)(1.0)),
    "from_jax of an array": (errors.ArgumentError, lambda: fxgrad.from_jax(ONES)),
    "from_jax of a function that closes over a tracer": (
        errors.UnsupportedError, lambda: grad(lambda x: fxgrad.from_jax(lambda y: jnp.sin(y) * x)(2.0))(3.0)),
    "from_jax with an array of 8 bits": (
        errors.DTypeError, lambda: fxgrad.from_jax(unit)(ONES.astype(jnp.float6_e2m3fn))),
    "from_jax with 8 bits on the way": (
        errors.UnsupportedError, lambda: fxgrad.from_jax(lambda x: x.astype(jnp.float6_e2m3fn))(ONES)),
    "from_jax of what jax cannot differentiate": (
        errors.UnsupportedError, lambda: jvp(fxgrad.from_jax(without_derivative), (1.0,), (1.0,))),
    "import_jaxpr of a function": (errors.ArgumentError, lambda: fxgrad.import_jaxpr(unit)),
    "to_jax of an array": (errors.ArgumentError, lambda: fxgrad.to_jax(ONES)),
    "to_jax of a function that returns text": (errors.ArgumentError, lambda: fxgrad.to_jax(lambda x: "yes")(1.0)),
    "to_jax of a function that asks for a value": (
        errors.ConcretizationError, lambda: fxgrad.to_jax(lambda x: x if x > 0 else -x)(1.0)),
}


def message_of(case: str) -> str:
    expected, call = CASES[case]
    with pytest.raises(expected) as caught:
        call()
    return re.sub(r"(\.py):\d+", r"\1:LINE", str(caught.value))


@pytest.mark.parametrize("case", CASES)
def test_message(case: str, golden: dict[str, str]) -> None:
    assert message_of(case) == golden[case]


@pytest.fixture(scope="module")
def golden() -> dict[str, str]:
    """Return the texts of `error_messages.txt`: blocks that begin with `== case`."""
    blocks = re.split(r"^== (.*)\n", (Path(__file__).parent / "error_messages.txt").read_text(), flags=re.MULTILINE)[1:]
    return {case: text.rstrip("\n") for case, text in zip(blocks[::2], blocks[1::2], strict=True)}


def test_every_message_is_golden(golden: dict[str, str]) -> None:
    assert set(golden) == set(CASES)


def test_every_class_is_raised_by_some_case() -> None:
    def subclasses(cls: type) -> set[type]:
        return {cls, *(inner for direct in cls.__subclasses__() for inner in subclasses(direct))}

    raised = {expected for expected, _ in CASES.values()}
    public = {cls for cls in subclasses(errors.FxgradError) if vars(errors).get(cls.__name__) is cls}
    assert len(public) > 10  # checks made of `raise ValueError` have classes of their own
    assert public - {errors.FxgradError} <= raised


def test_every_class_is_in_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text()
    for name, cls in vars(errors).items():
        if isinstance(cls, type) and issubclass(cls, errors.FxgradError) and cls is not errors.FxgradError:
            assert f"| `{name}` |" in page
            assert name in (errors.__doc__ or "")
            assert "Cure:" in (cls.__doc__ or "") or cls is errors.ProgramSyntaxError


OF_PROGRAMS = [
    *(getattr(fxgrad, name) for name in (
        "infer_roles", "inline", "outline", "replace_pattern", "scalarize", "simplify", "subprogram", "traffic")),
    *(getattr(fxgrad.text, name) for name in (
        "check_text", "equal", "print_program", "program_text", "render", "to_json", "variable_names")),
    *(getattr(fxgrad.extend, name) for name in (
        "definitions", "derive", "drop_devices", "eval_program", "inner_first", "linearize_program", "live_equations",
        "memoize", "merge_equal_equations", "remove_dead_code", "simplify_for_display"))]
OF_FUNCTIONS = [
    (fxgrad.saved_residuals, "f, x"), (fxgrad.print_saved_residuals, "f, x"), (fxgrad.closure_convert, "f, x"),
    (fxgrad.auto_axes, "f)(x"), (fxgrad.benchmark, "f)(x"), (fxgrad.debug.check_key_reuse, "f)(x"),
    (fxgrad.explain_retraces, "f)(x"), (fxgrad.value_and_hessian, "f)(x"), (fxgrad.stablehlo, "f)(x"),
    (fxgrad.testing.check_grads, "f, (x,)"), (fxgrad.testing.check_jvp, "f, f_jvp, (x,)"),
    (fxgrad.testing.check_vjp, "f, f_vjp, (x,)")]


def arguments_of(function: Callable[..., Any], first: Any) -> list[Any]:
    """Return `first` for each argument that `function` needs."""
    needed = [each for each in inspect.signature(function).parameters.values()
              if each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return [first] * max(len(needed), 1)


@pytest.mark.parametrize("function", OF_PROGRAMS)
def test_what_takes_a_program_says_so_of_anything_else(function: Callable[..., Any]) -> None:
    name = function.__name__
    for value, kind in ((unit, "function"), (jit(unit), "function"), (make_program(unit), "function"),
                        (ONES, "ndarray"), (None, "NoneType"), (jit(unit).lower(ONES), "Lowered")):
        hint = f". Write {name}(fxgrad.make_program(f)(x))" if kind == "function" else ""
        text = f"{name} takes a program, got a {kind}{hint}\n"
        with pytest.raises(errors.ArgumentError, match=f"^{re.escape(text)}"):
            function(*arguments_of(function, value))


@pytest.mark.parametrize(("function", "arguments"), OF_FUNCTIONS)
def test_what_takes_a_function_says_so_of_anything_else(function: Callable[..., Any], arguments: str) -> None:
    name = function.__name__.removeprefix("print_")
    for value, kind in ((ONES, "ndarray"), (jit(unit).lower(ONES), "Lowered")):
        text = f"{name} takes a function, got a {kind}. Write {name}({arguments}), not {name}(f(x))\n"
        with pytest.raises(errors.ArgumentError, match=f"^{re.escape(text)}"):
            function(*arguments_of(function, value))


@pytest.mark.parametrize("name", ["bind", "infer_types", "operation", "output_types"])
@pytest.mark.parametrize("value", [np.sin, unit, jit(unit), ONES, None])
def test_what_takes_a_primitive_says_so_of_anything_else(name: str, value: Any) -> None:
    text = f"{name} takes a primitive, got a {type(value).__name__}. Primitives are in fxgrad.extend.primitives\n"
    more = {"bind": (ONES,), "infer_types": ((), {}), "operation": (), "output_types": ((), {})}[name]
    with pytest.raises(errors.ArgumentError, match=f"^{re.escape(text)}"):
        getattr(fxgrad.extend, name)(value, *more)


def test_checks_of_primitives_and_feeds_of_models_say_what_they_take() -> None:
    with pytest.raises(errors.ArgumentError, match=(
            r"^check_primitive takes a primitive, got a ufunc\. Primitives are in fxgrad\.extend\.primitives; "
            r"derivatives of functions are checked by fxgrad\.testing\.check_grads\n")):
        fxgrad.testing.check_primitive(np.sin, ONES)
    with pytest.raises(errors.ArgumentError, match=(
            r"^onnx\.feeds takes a model, got a function\. Write feeds\(fxgrad\.onnx\.to_onnx\(f\)\(x\), x\)\n")):
        fxgrad.onnx.feeds(unit, ONES)
