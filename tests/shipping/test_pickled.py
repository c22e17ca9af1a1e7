"""Programs through `pickle`: everything that a user can tell comes back, and nothing that was found out about them."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Cost, Primitive
from fxgrad.engine.core.program import Equation, Program, Source, inner_first
from fxgrad.engine.higher_order.call import library_function
from fxgrad.engine.tracing.tape import bind
from fxgrad.errors import UnsupportedError
from fxgrad.shipping.pickled import RecordedCode
from fxgrad.text import equal, program_text
from tests.samples import Sample, all_samples

X = np.array([0.5, -1.0, 2.0])


class Layer(NamedTuple):
    weights: Any
    bias: Any


twice_p = Primitive(
    name="twice_own", abstract=lambda x: [x], numpy=lambda x: [2 * x], xla=lambda lax, x: [lax.add(x, x)],
    jvp=lambda primals, tangents: (bind(twice_p, *primals), bind(twice_p, *tangents)),
    transpose=lambda cotangents, inputs: bind(twice_p, *cotangents),
    batch=lambda size, values, axes: (bind(twice_p, *values), list(axes)), cost=lambda x: Cost(0, 0))


@fxgrad.custom_jvp
def clipped(x: Any) -> Any:
    return np.clip(x, -1.0, 1.0)


@clipped.defjvp
def clipped_jvp(primals: Any, tangents: Any) -> Any:
    return clipped(*primals), tangents[0]


@fxgrad.custom_vjp
def scaled(x: Any, by: Any) -> Any:
    return x * by


scaled.defvjp(lambda x, by: (x * by, by), lambda by, cotangent: (cotangent * by * 2.0, None))


@library_function
def squash(x: Any) -> Any:
    shrunk = np.tanh(x)
    return shrunk * 0.5


def loss(layers: list[Layer], x: Any, flag: Any) -> Any:
    scale = np.array([1.0, 0.5, 0.25])
    hidden = x
    for weights, bias in layers:
        hidden = squash(hidden * weights + bias)

    def step(carry: Any, value: Any) -> Any:
        grown = carry * 0.9 + value
        return grown, grown * scale[0]

    last, seen = fxgrad.lax.scan(step, 0.0, hidden * scale)
    chosen = fxgrad.lax.cond(flag, lambda v: v * 2.0, lambda v: v - 1.0, last)
    ends = fxgrad.lax.while_loop(lambda v: v < 10.0, lambda v: v * 2.0 + 1.0, chosen * chosen)
    return {"loss": np.sum(clipped(seen)) + ends, "seen": (seen, None)}


LAYERS = [Layer(X, 0.5), Layer(2.0 * X, -0.5)]
PROGRAMS = {
    "loss": (lambda: fxgrad.make_program(loss), (LAYERS, X, True)),
    "tangents": (lambda: fxgrad.make_program(lambda x: fxgrad.jvp(lambda v: loss(LAYERS, v, True), (x,), (x,))), (X,)),
    "gradient": (lambda: fxgrad.make_program(fxgrad.grad(
        lambda layers, x: np.sum(loss(layers, x, True)["seen"][0]))), (LAYERS, X)),
    "custom": (lambda: fxgrad.make_program(lambda x: np.sum(clipped(x) + scaled(x, 3.0))), (X,)),
    "mapped custom": (lambda: fxgrad.make_program(fxgrad.vmap(lambda x: clipped(x))), (X,)),
    "hessian": (lambda: fxgrad.make_program(fxgrad.hessian(lambda x: np.sum(np.sin(x) * x))), (X,)),
    "jitted": (lambda: fxgrad.make_program(fxgrad.jit(squash)), (X,)),
    "own": (lambda: fxgrad.make_program(lambda x: bind(twice_p, x)[0] * 3.0), (X,)),
    "key": (lambda: fxgrad.make_program(lambda key: fxgrad.random.normal(key, (3,))), (fxgrad.random.key(3),)),
    "narrow": (lambda: fxgrad.make_program(lambda x: x * x + 1), (X.astype(fxgrad.dtypes.bfloat16),)),
}


def through_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def assert_same_bits(got: Any, expected: Any) -> None:
    left, left_tree = jax.tree.flatten(got)
    right, right_tree = jax.tree.flatten(expected)
    assert left_tree == right_tree
    for one, other in zip(left, right, strict=True):
        assert type(one) is type(other)
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_come_back(name: str) -> None:
    make, args = PROGRAMS[name]
    program = make()(*args)
    again = through_pickle(program)
    assert equal(again, program) or "rule=" in str(program)  # each program of one has a rule of its own
    assert str(again) == str(program)  # with names and lines
    assert program_text(again, style="compact") == program_text(program, style="compact")
    assert again.signature == program.signature
    assert_same_bits(again(*args), program(*args))  # in the containers of the function
    assert again.check() is again
    assert pickle.dumps(again) == pickle.dumps(through_pickle(again))
    assert copy.deepcopy(program) is program


def test_derivatives_of_what_came_back() -> None:
    program = fxgrad.make_program(lambda x: loss(LAYERS, x, True)["loss"])(X)
    assert_same_bits(fxgrad.grad(through_pickle(program))(X), fxgrad.grad(program)(X))
    program = fxgrad.make_program(lambda x: np.sum(scaled(x, 3.0) * bind(twice_p, x)[0]))(X)
    again = through_pickle(program)
    assert_same_bits(fxgrad.grad(again)(X), fxgrad.grad(program)(X))
    assert_same_bits(fxgrad.vmap(again)(np.stack([X, X])), fxgrad.vmap(program)(np.stack([X, X])))


def test_what_was_derived_stays_here() -> None:
    program = fxgrad.make_program(lambda x: np.sum(np.sin(x) * x))(X)
    before = pickle.dumps(program)
    for _ in range(3):
        program(X)
    fxgrad.grad(program)(X)
    fxgrad.jit(program)(X)
    assert program.attributes
    assert len(pickle.dumps(program)) == len(before)
    assert not through_pickle(program).memo


def test_hashes_are_of_the_process_that_reads() -> None:
    """Texts and bytes hash differently in each process, so a stored hash would find nothing."""
    aval = Aval((2,), np.dtype("float32"))
    for value in (aval, Literal(2.0, Aval((), np.dtype("float64"), weak=True))):
        assert through_pickle(value) == value
        assert not any(isinstance(part, tuple) and any("_hash" in str(entry) for entry in part)
                       for part in value.__reduce__()[1:])
    rule = fxgrad.make_program(clipped)(X).equations[0].params["rule"]
    assert {"_hash", "_key"}.isdisjoint(rule.__getstate__())
    again = through_pickle(rule)
    assert hash(again) == hash(again._key)


@pytest.mark.slow
def test_deep_nests() -> None:
    inner = fxgrad.make_program(np.sin)(1.0)
    for _ in range(600):
        inner = _calling(inner)
    again = through_pickle(inner)
    assert len(inner_first(again)) == 601


def _calling(program: Program) -> Program:
    equation = fxgrad.make_program(squash)(1.0).equations[0]
    inputs, outputs = program.inputs, equation.outputs
    return Program(inputs, [Equation(equation.primitive, [*inputs], {"program": program, "name": "inner"}, outputs)],
                   [*outputs])


def test_every_field_is_kept() -> None:
    """What a program has beside these is to be kept too, or left out with a reason.

    `memo` and `attributes` are derived; of `base`, `part`, `origins` and `results` come names, and these are kept. Of
    `callers` come further paths of values in functions, which programs do not print.
    """
    assert {*Source._fields} == {"code", "instruction", "part", "origins", "results", "scope", "callers"}
    assert {*Program.__slots__} == {"__weakref__", "attributes", "base", "captured", "constants", "equations", "inputs",
                                    "memo", "outputs", "signature"}
    assert {*Equation.__slots__} == {"inputs", "outputs", "params", "primitive", "source"}


def test_recorded_code_tells_the_same_places() -> None:
    code = loss.__code__
    assert [*RecordedCode(code).co_positions()] == [*code.co_positions()]
    assert through_pickle(RecordedCode(code)).co_filename == __file__


OF_JAX = {"jax_call", "jax_effect"}
SAMPLES: list[tuple[Primitive, Sample]] = [
    (primitive, sample) for primitive, samples in all_samples().items() if primitive.name not in OF_JAX
    for sample in samples]


def assert_sample_comes_back(primitive: Primitive, sample: Sample) -> None:
    program = fxgrad.make_program(lambda *args: bind(primitive, *args, **sample.params))(*sample.args())
    again = through_pickle(program)
    assert str(again) == str(program)
    assert [equation.params.keys() for equation in again.equations] == [
        equation.params.keys() for equation in program.equations]
    assert through_pickle(primitive) is primitive


def test_every_operation_comes_back() -> None:
    seen: set[Primitive] = set()
    for primitive, sample in SAMPLES:
        if primitive not in seen and not sample.slow:
            seen.add(primitive)
            assert_sample_comes_back(primitive, sample)
    assert len(seen) > 150


@pytest.mark.slow
def test_every_sample_comes_back() -> None:
    for primitive, sample in SAMPLES:
        assert_sample_comes_back(primitive, sample)


# --- primitives of users ------------------------------------------------------------------------------------


def local_primitive() -> Primitive:
    local_p = Primitive(
        name="local", abstract=lambda x: [x], numpy=lambda x: [3 * x], xla=lambda lax, x: [lax.mul(x, 3.0)],
        jvp=lambda primals, tangents: (bind(local_p, *primals), bind(local_p, *tangents)),
        transpose=lambda cotangents, inputs: bind(local_p, *cotangents),
        batch=lambda size, values, axes: (bind(local_p, *values), list(axes)), cost=lambda x: Cost(0, 0))
    return local_p


def local_functions() -> dict[str, Any]:
    """Return functions with rules that no module has under a name."""
    @fxgrad.custom_vjp
    def seven_sines(x: Any) -> Any:
        return fnp.sin(x)

    @fxgrad.custom_jvp
    def five_squares(x: Any) -> Any:
        return x * x

    seven_sines.defvjp(lambda x: (seven_sines(x), x), lambda x, cotangent: (7.0 * cotangent * fnp.cos(x),))
    five_squares.defjvp(lambda primals, tangents: (five_squares(*primals), 5.0 * primals[0] * tangents[0]))
    return {"custom_vjp": seven_sines, "custom_jvp": five_squares, "batch": fxgrad.vmap(seven_sines),
            "loop": lambda x: fxgrad.lax.fori_loop(0, 3, lambda _, c: seven_sines(c) + five_squares(c), x),
            "odeint": lambda x: fxgrad.odeint(lambda y, t: -y * y, x, np.array([0.0, 0.5]))[1]}


@pytest.mark.slow
@pytest.mark.parametrize("name", local_functions())
def test_rules_without_a_name_are_recorded(name: str, tmp_path: Path) -> None:
    function = local_functions()[name]

    def slope(f: Any, x: Any) -> Any:
        return fxgrad.grad(lambda x: fnp.sum(fnp.sin(f(x))))(x)

    program = fxgrad.make_program(function)(X)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(program))))
    assert program_text(again) == program_text(program)
    np.testing.assert_array_equal(again(X), program(X))
    np.testing.assert_allclose(slope(again, X), slope(function, X), rtol=1e-13)
    if name != "odeint":  # whose second derivatives take long
        np.testing.assert_allclose(fxgrad.grad(lambda x: fnp.sum(slope(again, x)))(X),
                                   fxgrad.grad(lambda x: fnp.sum(slope(function, x)))(X), rtol=1e-13)
    derived = fxgrad.make_program(lambda x, t: fxgrad.jvp(function, (x,), (t,))[1])(X, X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(derived))(X, X), derived(X, X))
    path = tmp_path / "program"
    path.write_bytes(pickle.dumps(program))
    code = ("import pickle, fxgrad, numpy as np, fxgrad.numpy as fnp\n"
            f"program = pickle.load(open({str(path)!r}, 'rb'))\n"
            f"x = np.array({X.tolist()})\n"
            "print(fxgrad.grad(lambda x: fnp.sum(fnp.sin(program(x))))(x).tolist())")
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose([float(each) for each in printed.strip("[]\n").split(",")], slope(function, X),
                               rtol=1e-13)


def test_rules_that_can_be_neither_named_nor_recorded_are_left_to_pickle() -> None:
    @fxgrad.custom_jvp
    def branching(x: Any) -> Any:
        return x * 2.0

    branching.defjvp(lambda primals, tangents: (primals[0] * 2.0, tangents[0] if primals[0] > 0 else -tangents[0]))
    with pytest.raises((AttributeError, pickle.PicklingError), match=r"local object .*branching"):
        pickle.dumps(fxgrad.make_program(branching)(1.0))


def test_primitives_of_a_module_are_found_by_name() -> None:
    assert through_pickle(twice_p) is twice_p


def test_primitives_are_sent_with_their_rules_by_cloudpickle() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    local_p = local_primitive()
    program = fxgrad.make_program(lambda x: np.sum(bind(local_p, x)[0] * x))(X)
    sent = cloudpickle.dumps(program)
    assert pickle.loads(sent).equations[0].primitive is local_p  # it came back to where it is from
    again = pickle.loads(sent.replace(_token_of(local_p), b"0" * 32))
    received = again.equations[0].primitive
    assert received is not local_p
    assert (received.name, received.commutative) == ("local", False)
    assert_same_bits(again(X), program(X))
    assert_same_bits(fxgrad.grad(again)(X), fxgrad.grad(program)(X))
    assert pickle.loads(sent.replace(_token_of(local_p), b"0" * 32)).equations[0].primitive is received


def _token_of(primitive: Primitive) -> bytes:
    from fxgrad.engine.core import primitive as module

    return module._tokens[primitive].encode()


# --- what has no pickle -------------------------------------------------------------------------------------


def test_operations_of_jax_are_refused() -> None:
    (primitive, sample), *_ = [(primitive, samples[0]) for primitive, samples in all_samples().items()
                               if primitive.name in OF_JAX]
    program = fxgrad.make_program(lambda *args: bind(primitive, *args, **sample.params))(*sample.args())
    with pytest.raises(TypeError) as raised:
        pickle.dumps(program)
    assert str(raised.value) == (
        "the program holds an operation of jax's, sin, which cannot be pickled. Pickle the jax function, and trace it "
        "again where it is read: make_program(from_jax(function))(*args)")


def test_programs_with_traced_constants_are_refused() -> None:
    def outer(x: Any) -> Any:
        with pytest.raises(UnsupportedError) as raised:
            pickle.dumps(fxgrad.make_program(lambda y: y * x)(1.0))
        assert str(raised.value) == (
            "pickle: a constant of the program is a traced array, which has no elements yet. Pickle the program "
            "outside of the transformation that traces it")
        return x

    fxgrad.grad(outer)(1.0)


# --- another process ----------------------------------------------------------------------------------------


SENT = """
import pickle, sys
import numpy as np

with open(sys.argv[1], "rb") as file:
    functions, args = pickle.load(file)
results = [[np.asarray(leaf).tobytes() for leaf in leaves(function(*given))]
           for function, given in zip(functions, args)]
with open(sys.argv[2], "wb") as file:
    pickle.dump((results, [str(function) for function in functions]), file)
"""


@pytest.mark.slow
def test_programs_and_functions_run_alike_in_another_process(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    programs = [(make()(*args), args) for make, args in PROGRAMS.values()]
    local_p = local_primitive()
    programs.append((fxgrad.make_program(lambda x: np.sum(bind(local_p, x)[0] * x))(X), (X,)))
    total = lambda x: np.sum(bind(local_p, x)[0] * fnp.sin(x))
    functions = [(made, (X,)) for made in (
        fxgrad.grad(total), fxgrad.value_and_grad(total), fxgrad.vmap(fxgrad.grad(lambda x: np.sin(x))),
        fxgrad.hessian(total), fxgrad.jit(total), fxgrad.jit(fxgrad.grad(total)), fxgrad.checkpoint(total))]
    sent = [*programs, *functions]
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        (tmp_path / "sent").write_bytes(cloudpickle.dumps(([*map(_first, sent)], [args for _, args in sent])))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    script = "from jax.tree_util import tree_leaves as leaves\n" + SENT
    subprocess.run([sys.executable, "-c", script, tmp_path / "sent", tmp_path / "back"], check=True, timeout=120)
    results, texts = pickle.loads((tmp_path / "back").read_bytes())
    for (function, args), result, text in zip(sent, results, texts, strict=True):
        assert [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(function(*args))] == result
        assert text == str(function) or not isinstance(function, Program)


def _first(pair: Any) -> Any:
    return pair[0]
