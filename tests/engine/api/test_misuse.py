"""Programs that are copied, pickled or too large to read, and misuse that Python would answer with raw errors."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, Cost, Primitive
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.tracing.tape import bind
from fxgrad.text.json_reader import from_json
from fxgrad.text.json_writer import to_json

X = np.array([0.5, -1.0])


def program() -> Any:
    k = np.array([2.0, 3.0])
    return fxgrad.make_program(lambda x: np.sum(np.where(x > 0.0, x * k, fxgrad.nn.softmax(x))))(X)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_of_programs(copied: Any) -> None:
    original = program()
    again = copied({"program": original})["program"]
    assert to_json(again) == to_json(original)
    assert again(X) == original(X)
    np.testing.assert_array_equal(fxgrad.grad(again)(X), fxgrad.grad(original)(X))
    np.testing.assert_array_equal(fxgrad.vmap(again)(np.stack([X, X])), [original(X)] * 2)
    assert copied(add_p) is add_p


def test_primitives_without_a_place_have_no_pickle() -> None:
    own_p = Primitive(name="own", abstract=lambda x: [x], numpy=lambda x: [x], xla=lambda lax, x: [x], jvp=NO_TANGENT,
                      transpose=NOT_LINEAR, batch=lambda size, values, axes: (values, axes), cost=lambda x: Cost(0, 0))
    assert copy.deepcopy(own_p) is own_p
    with pytest.raises(TypeError) as raised:
        pickle.dumps(own_p)
    assert str(raised.value) == (
        "the primitive own cannot be pickled, since no module has it under a name. Assign it to a name at the top of a "
        "module (own_p = Primitive(...)), or use cloudpickle, which sends it with its rules")
    assert fxgrad.grad(copy.deepcopy(fxgrad.make_program(lambda x: x * bind(own_p, x)[0])(2.0)))(3.0) == 3.0


@pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="newer versions of jax refuse to make such a struct")
def test_structs_without_sizes() -> None:
    with pytest.raises(errors.ShapeError, match=r"ShapeDtypeStruct of shape \(None, 3\): sizes are whole numbers, not "
                                                "less than 0. Programs are traced for one shape; trace again for"):
        fxgrad.make_program(np.sin)(jax.ShapeDtypeStruct((None, 3), np.float32))


LARGE = {
    "digits": "program f(x: f32[%s]) { return x }" % ("1" * 5000),
    "number": "program f(x: f32[]) { y: f32[] = mul(x, %s:f32) return y }" % ("1" * 5000),
    "lists": "program f(x: f32[]) { y: f32[] = reduce_sum(x, axes=%s) return y }" % ("(" * 600 + ")" * 600),
    "deep": "program f(x: f32[]) { y: f32[] = sin(x) return %s }" % ("(" * 5000),
}


@pytest.mark.parametrize("name", LARGE)
def test_texts_that_are_too_large(name: str) -> None:
    with pytest.raises((errors.ProgramSyntaxError, errors.ProgramError)):
        fxgrad.parse(LARGE[name])


def test_json_that_is_too_large() -> None:
    document = json.loads(to_json(fxgrad.make_program(lambda x: fnp.sum(x, 0))(np.ones((2, 2)))))
    text = json.dumps(document)
    broken_texts = [text.replace("f64[2,2]", "f64[2,%s]" % ("9" * 5000)), "[" * 100_000,
                    text.replace("[0]", "[" * 900 + "]" * 900)]
    for broken in broken_texts:
        with pytest.raises((errors.ProgramSyntaxError, errors.ProgramError)):
            from_json(broken)


def test_a_tracer_in_another_thread() -> None:
    caught: list[BaseException] = []

    def work(x: Any) -> None:
        try:
            np.sin(x) + 1.0
        except errors.LeakedTracerError as error:
            caught.append(error)

    def function(x: Any) -> Any:
        thread = threading.Thread(target=work, args=(x,))
        thread.start()
        thread.join()
        return x * 1.0

    fxgrad.grad(function)(np.float64(2.0))
    assert str(caught[0]).split("\n")[0] == (
        "a traced array (f64*[]) of function was used in another thread or task than that in which function is traced. "
        "Compute with it in that thread, and pass arrays to other threads")


@pytest.mark.parametrize("call", [
    lambda size: fxgrad.vmap(np.sin, chunk_size=size), lambda size: fxgrad.jacfwd(np.sin, chunk_size=size),
    lambda size: fxgrad.jacrev(np.sin, chunk_size=size), lambda size: fxgrad.hessian(np.sum, chunk_size=size)])
def test_chunk_sizes(call: Any) -> None:
    for size in ("auto", 1.5, True, 0, -2):
        with pytest.raises(errors.ArgumentError, match=r"chunk_size=.*; it must be an int, at least 1, or None"):
            call(size)
    call(np.int64(2))(X)


def test_errors_of_hvp_speak_of_hvp() -> None:
    with pytest.raises(errors.ArgumentError, match=r"^hvp: the tangent of a is f64\[3\], and the primal is f64\[2\]"):
        fxgrad.hvp(np.sum, (X,), (np.ones(3),))
    with pytest.raises(errors.ArgumentError, match=r"^hvp takes the primals as a tuple"):
        fxgrad.hvp(np.sum, X, X)


def test_collectives_in_jitted_functions_without_an_output_axis() -> None:
    total = fxgrad.vmap(fxgrad.jit(lambda x: fxgrad.lax.psum(x, "i")), axis_name="i", out_axes=None)
    assert total(np.arange(3.0)) == 3.0
    both = fxgrad.vmap(fxgrad.jit(lambda x: (x, fxgrad.lax.pmax(x, "i"))), axis_name="i", out_axes=(0, None))
    one, most = both(np.arange(3.0))
    np.testing.assert_array_equal(one, np.arange(3.0))
    assert most == 2.0
    with pytest.raises(errors.ArgumentError, match="its entries differ"):
        fxgrad.vmap(fxgrad.jit(lambda x: x), out_axes=None)(X)


def test_nans_are_looked_for_where_jax_is_told_to() -> None:
    with jax.debug_nans(True):
        np.testing.assert_array_equal(fxgrad.jit(np.log)(np.ones(3, np.float32)), np.zeros(3))
        with pytest.raises(FloatingPointError, match="nan"):
            fxgrad.jit(np.log)(-np.ones(3, np.float32))


def test_nans_of_numbers_in_jitted_functions_and_of_operators() -> None:
    def root(x: Any) -> Any:
        return fnp.sqrt(x) * 0
    with fxgrad.debug_nans():
        for call in (lambda: fxgrad.jit(fxgrad.grad(root))(0.0), lambda: fxgrad.jit(lambda d: d["a"] / d["b"])(
                {"a": 0.0, "b": 0})):
            with pytest.raises(FloatingPointError, match=r"NaN in the result of div, in a compiled program\n  at"):
                call()
        zeros = fnp.zeros(2)
        for operation in (lambda: zeros / zeros, lambda: 0.0 / zeros, lambda: zeros / 0, lambda: zeros % zeros,
                          lambda: fnp.inf * zeros, lambda: (zeros - 1.0) ** 0.5):
            with pytest.raises(FloatingPointError, match=r"^NaN in the result of (div|rem|mul|pow).*\n  at test_m"):
                operation()
        assert (zeros + 1.0).dtype == np.float32
        assert not (zeros * zeros).flags.writeable
        assert (zeros.copy() * zeros).flags.writeable
    assert np.isnan(zeros / zeros).all()


def test_derivatives_of_constants_can_be_written_to() -> None:
    _, linear = fxgrad.linearize(lambda x: (x, np.ones(3)), X)
    tangent = linear(X)[1]
    tangent += 1.0
    np.testing.assert_array_equal(linear(X)[1], np.zeros(3))


@pytest.mark.parametrize("transformed", [
    fxgrad.jit(lambda x: x), fxgrad.vmap(lambda x: x), fxgrad.grad(lambda x: 1.0), fxgrad.make_program(lambda x: x)],
    ids=["jit", "vmap", "grad", "make_program"])
def test_arrays_without_values_are_no_arguments(transformed: Any) -> None:
    with pytest.raises(fxgrad.errors.DTypeError, match=(
            r"^(jit|vmap|grad|make_program): .* is an array of dtype float0, which has no values: tangents and "
            r"gradients of integers are such\. Leave it out of the arguments, or give np\.zeros\(x\.shape\)\n")):
        transformed(np.zeros(3, fxgrad.float0))


class Unnamed:
    """A function object whose name is no text, as those of some libraries of modules."""

    __name__ = None

    def __call__(self, x: Any) -> Any:
        return fnp.sum(x * x)


@pytest.mark.parametrize("transform", [
    fxgrad.grad, fxgrad.value_and_grad, fxgrad.value_and_hessian, fxgrad.jit, fxgrad.checkpoint, fxgrad.vmap,
    fxgrad.checked, fxgrad.laplacian, fxgrad.to_jax, fxgrad.debug.check_key_reuse, fxgrad.sparsity,
    lambda f: lambda x: fxgrad.derivatives(f, 2)(x, direction=x), lambda f: lambda x: fxgrad.vjp(f, x)[0]])
def test_function_objects_need_no_name(transform: Any) -> None:
    found, expected = (fxgrad.tree.leaves(transform(f)(X)) for f in (Unnamed(), lambda x: fnp.sum(x * x)))
    assert str(found) == str(expected)
