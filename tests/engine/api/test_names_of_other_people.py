"""Names that code written for jax brings along: they are here, with jax's signatures, and mean what they mean there."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import re
import subprocess
import sys
from typing import Any

import fxgrad.ad_checkpoint
import fxgrad.experimental
import fxgrad.stages
import fxgrad.test_util
import jax
import jax.ad_checkpoint
import jax.experimental
import jax.numpy as jnp
import jax.stages
import jax.test_util
import jax.typing
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
import fxgrad.typing
from fxgrad import errors, grad, jit, vmap
from fxgrad.testing import LawError
from tests.support.versions import IS_OLDEST_JAX

X = np.array([0.3, 1.2, -2.0], np.float32)


class Duck:
    """What has a shape and a dtype, and is no array."""

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)


# --- types ------------------------------------------------------------------------------------------------------------

WITH_TYPES = [X, X[:0], np.ones((2, 3)), np.float32(1), 1.0, 2, True, 1j, np.arange(3), jnp.ones(2),
              X.astype(fnp.bfloat16)]


def test_typeof_as_jax() -> None:
    with jax.enable_x64(True):
        wrong = [(value, str(fxgrad.typeof(value)), str(jax.typeof(value))) for value in WITH_TYPES
                 if str(fxgrad.typeof(value)) != str(jax.typeof(value))]
    assert not wrong
    seen: list[Any] = []
    jit(lambda x: seen.append(fxgrad.typeof(x)))(X)
    vmap(lambda x: seen.append(fxgrad.typeof(x[None])))(X)
    grad(lambda x: (seen.append(fxgrad.typeof(x)), np.sum(x))[1])(X)
    assert [str(each) for each in seen] == ["float32[3]", "float32[1]", "float32[3]"]
    assert fxgrad.typeof(X) == fxgrad.typeof(X + 1) == seen[0] != fxgrad.typeof(X[1:])
    assert hash(seen[0]) == hash(seen[2])
    found = fxgrad.typeof(np.ones((2, 3)))
    assert (found.ndim, found.size, found.nbytes, found.weak_type) == (2, 6, 48, False)
    assert found.str_short(short_dtypes=True) == "f64[2,3]"
    assert str(fxgrad.typeof(fxgrad.random.key(0))) == str(jax.typeof(jax.random.key(0))) == "key<fry>[]"
    assert str(fxgrad.typeof(fxgrad.symbolic_spec("n", 3))) == "float64[n,3]"
    with pytest.raises(errors.ArgumentError, match=(
            r"^typeof: got a list, where an array or a number is needed; for a container write "
            r"fxgrad\.tree\.map\(fxgrad\.typeof, x\)\n  at test_names_of_other_people\.py:\d+ ")):
        fxgrad.typeof([1.0])


def test_typeof_on_meshes() -> None:
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    for spec in (jax.P("x"), jax.P(None, ("x", "y")), jax.P()):
        placed = jax.device_put(np.ones((8, 8), np.float32), jax.sharding.NamedSharding(mesh, spec))
        assert str(fxgrad.typeof(placed)) == str(jax.typeof(placed))
        assert fxgrad.typeof(placed).sharding == jax.typeof(placed).sharding
    seen: list[Any] = []

    def body(x: Any) -> Any:
        seen.append(fxgrad.typeof(x))
        return x
    automatic = jax.make_mesh((4, 2), ("x", "y"), (jax.sharding.AxisType.Auto,) * 2)
    jit(fxgrad.shard_map(body, mesh=automatic, in_specs=jax.P("x"), out_specs=jax.P("x")))(np.ones(8, np.float32))
    assert str(seen[0]) == "float32[2]{V:x}"
    assert seen[0].vma == {"x"}


def test_shape_dtype_struct_like() -> None:
    like = fxgrad.ShapeDtypeStruct.like
    with jax.enable_x64(True):
        assert [like(value) for value in WITH_TYPES] == [jax.ShapeDtypeStruct.like(value) for value in WITH_TYPES]
    assert like(np.ones(3)).dtype == np.float64  # jax's is float32 without its flag
    assert jit(lambda x: fnp.zeros(like(x).shape, like(x).dtype) + x)(X).dtype == np.float32
    assert grad(lambda x: np.sum(fnp.ones_like(like(x)) * x))(X).tolist() == [1, 1, 1]
    with pytest.raises(errors.ArgumentError, match=(
            r"^ShapeDtypeStruct\.like: got a dict, where an array or a number is needed; for a container write "
            r"fxgrad\.tree\.map\(fxgrad\.ShapeDtypeStruct\.like, x\)\n  at test_names")):
        like({"a": X})


def test_shape_dtype_struct_is_jaxs() -> None:
    made = fxgrad.ShapeDtypeStruct((2,), "float32", weak_type=True)
    assert type(made) is jax.ShapeDtypeStruct
    assert made.weak_type
    assert isinstance(jax.ShapeDtypeStruct((), "int32"), fxgrad.ShapeDtypeStruct)
    assert not isinstance(X, fxgrad.ShapeDtypeStruct)
    assert issubclass(jax.ShapeDtypeStruct, fxgrad.ShapeDtypeStruct)
    assert fxgrad.ShapeDtypeStruct == jax.ShapeDtypeStruct


def test_what_stands_for_an_array_by_its_type() -> None:
    """In all places that look at types alone, and in none that need values."""
    for given in (Duck((2, 3), "float32"), fxgrad.ShapeDtypeStruct((2, 3), "float32"), Duck([2, 0], "int8")):
        out = fxgrad.eval_shape(lambda a: {"t": a.T, "s": a[0]}, given)
        expected = jax.eval_shape(lambda a: {"t": a.T, "s": a[0]}, given)
        assert out == expected
        for name in ("zeros_like", "ones_like", "empty_like"):
            ours = getattr(fnp, name)(given)
            assert (ours.shape, ours.dtype) == (tuple(given.shape), given.dtype)
            if name != "empty_like":  # which jax 0.12 refuses where the shape is a list
                np.testing.assert_array_equal(ours, getattr(jnp, name)(given), strict=True)
        for ours, theirs in ((fnp.full_like(given, 2), jnp.full_like(given, 2)),
                             (fxgrad.lax.full_like(given, 2), jax.lax.full_like(given, 2))):
            np.testing.assert_array_equal(ours, theirs, strict=False)
            assert ours.dtype == theirs.dtype
        assert jit(lambda a: a * 2).lower(given).out_info.shape == expected["t"].shape[::-1]
        assert fxgrad.make_program(lambda a: a + a)(given).in_avals[0].shape == tuple(given.shape)
    with pytest.raises(errors.ArgumentError, match="grad: x is a Duck, where an array or a number is needed"):
        grad(lambda x: x)(Duck((), "float32"))
    with pytest.raises(errors.ArgumentError, match="program: an argument is a type without a value"):
        fxgrad.make_program(np.sin)(X)(Duck((3,), "float32"))
    with pytest.raises(errors.ArgumentError, match="an operand must be an array or a number, got Duck"):
        fnp.sin(Duck((3,), "float32"))


# --- scalar types -----------------------------------------------------------------------------------------------------

SCALAR_TYPES = ("bool_ bool int8 int16 int32 int64 int_ uint8 uint16 uint32 uint64 uint bfloat16 float16 float32 "
                "float64 float_ single double complex64 complex128 csingle cdouble complex_").split()


@pytest.mark.slow
def test_scalar_types_convert() -> None:
    """Every one of fxgrad.numpy's: numbers, lists, arrays and traced arrays, on every path, as jax's."""
    values = [1, 2.5, True, [1.5, 0], np.array([3, 1, 0]), np.array([[0.5], [1.5]]), np.zeros((0, 2)), np.float32(1.5)]
    types = [name for name in SCALAR_TYPES if getattr(fnp, name).__name__ == name]
    assert [getattr(fnp, name).dtype for name in SCALAR_TYPES] == [
        getattr(jnp, name).dtype for name in SCALAR_TYPES]
    of_all = lambda lib, values: [getattr(lib, name)(value) for name in types for value in values]
    ours = functools.partial(of_all, fnp)
    with jax.enable_x64(True):
        expected = of_all(jnp, values)
        mapped = jax.vmap(lambda row: of_all(jnp, [row]))(np.ones((2, 3)))
    program = fxgrad.make_program(ours)(values)
    results = {"un-jitted": ours(values), "jitted": jit(ours)(values), "program": program(values)}
    wrong = [(how, given.dtype, given) for how, each in results.items()
             for given, wanted in zip(each, expected, strict=True)
             if given.dtype != wanted.dtype or not np.array_equal(given, wanted)]
    wrong += [("mapped", given.dtype, given) for given, wanted in zip(
        vmap(lambda row: ours([row]))(np.ones((2, 3))), mapped, strict=True) if given.dtype != wanted.dtype]
    assert not wrong
    assert (fnp.float64(2) * X).dtype == jit(lambda x: fnp.float64(2) * x)(X).dtype == np.float64
    assert grad(lambda x: fnp.float64(x) ** 2)(np.float32(3)) == 6
    assert grad(lambda x: fnp.float64(x) ** 2)(np.float32(3)).dtype == np.float32
    assert str(fxgrad.make_program(lambda x: fnp.float16(x))(X)).splitlines()[1].split("#")[0].strip() == (
        "return f16(x)")


def test_scalar_types_stand_for_dtypes() -> None:
    for name in SCALAR_TYPES:
        ours, theirs = getattr(fnp, name), np.dtype(getattr(jnp, name))
        assert np.dtype(ours) == theirs == ours == theirs.type
        assert ours != np.int_ or theirs == np.int_
        assert np.zeros(2, ours).dtype == fnp.zeros(2, ours).dtype == X.astype(ours).dtype == theirs
        assert {theirs.type: 1}[ours] == 1
        assert isinstance(theirs.type(1), ours)
        assert not isinstance("1", ours)
        assert fnp.issubdtype(theirs, ours)
        assert np.issubdtype(theirs, ours)
        assert pickle.loads(pickle.dumps(ours)) is copy.deepcopy(ours) is ours
        assert ours.__doc__
    assert fnp.promote_types(fnp.int8, fnp.float16) == np.float16
    assert fnp.result_type(fnp.float32, 1.0) == np.float32
    assert str(fnp.ones(2, fnp.bfloat16)) == "[1 1]"
    held = np.ones(2, np.float32)
    fnp.float32(held)
    held[0] = 3  # the caller's array stays the caller's


def test_narrow_types_say_what_to_write() -> None:
    narrow = [name for name in dir(jnp) if re.match(r"float[468]_|u?int[124]", name)
              and isinstance(getattr(jnp, name), type) and np.dtype(getattr(jnp, name)).itemsize == 1]
    assert len(narrow) == 17
    kept = [name for name in narrow if not re.match(r"float6|u?int1$", name)]
    for name in kept:
        assert np.zeros(2, getattr(fnp, name)).dtype == getattr(jnp, name)
    for name in {*narrow} - {*kept}:
        with pytest.raises(AttributeError, match=(
                rf"^module 'fxgrad\.numpy' has no attribute '{name}': XLA does not compute with that dtype\. .*"
                r"\n  at t")):
            getattr(fnp, name)
        assert not hasattr(fnp, name)
    with pytest.raises(AttributeError, match=r"fxgrad\.lax\.reduce_precision\(x, 2, 3\) rounds to as many digits"):
        fnp.float6_e2m3fn  # noqa: B018
    with pytest.raises(AttributeError, match="bool holds its numbers"):
        fnp.int1  # noqa: B018
    with pytest.raises(errors.DTypeError, match="fxgrad has no dtype 'float6_e2m3fn'; it supports bool, uint8"):
        fnp.zeros(2, jnp.float6_e2m3fn)
    with pytest.raises(AttributeError, match=r"^module 'fxgrad\.numpy' has no attribute 'float9'$"):
        fnp.float9  # noqa: B018


# --- programs by the names of jaxprs ----------------------------------------------------------------------------------


def test_parts_of_jaxprs() -> None:
    def function(x: Any, y: Any) -> Any:
        return fnp.sin(x) * X + y
    program = fxgrad.make_jaxpr(function)(X, X)
    theirs = jax.make_jaxpr(lambda x, y: jnp.sin(x) * X + y)(X, X)
    for jaxpr in (program, program.jaxpr):
        assert [len(jaxpr.invars), len(jaxpr.outvars), len(jaxpr.constvars)] == [2, 1, 1] == [
            len(theirs.jaxpr.invars), len(theirs.jaxpr.outvars), len(theirs.jaxpr.constvars)]
        assert [equation.primitive.name for equation in jaxpr.eqns] == ["sin", "mul", "add"]
    np.testing.assert_array_equal(program.consts[0], X)
    assert [str(each.aval) for each in program.eqns[0].invars] == ["f32[3]"]
    assert program.eqns[-1].outvars == program.outvars
    assert [len(fxgrad.make_program(np.sin)(1.0).constvars), fxgrad.make_program(np.sin)(1.0).consts] == [0, []]


# --- modules ----------------------------------------------------------------------------------------------------------


def test_modules_have_what_jaxs_have() -> None:
    missing = {
        "ad_checkpoint": set(), "test_util": set(), "typing": set(), "stages": set(),
        "errors": set(), "experimental": {"EArray", "compilation_cache", "cur_qdd", "primal_tangent_dtype"}}
    for module, absent in missing.items():
        theirs, ours = getattr(jax, module), getattr(fxgrad, module)
        names = {name for name in dir(theirs)
                 if not name.startswith("_") and not inspect.ismodule(getattr(theirs, name))}
        lacking = {name for name in names if not hasattr(ours, name)}
        known = absent & names
        assert lacking == known or (lacking > known and not IS_OLDEST_JAX), module
        for name in names - lacking:
            if inspect.isfunction(getattr(theirs, name)):
                assert [*inspect.signature(getattr(theirs, name)).parameters] == [
                    *inspect.signature(getattr(ours, name)).parameters], name
    with pytest.raises(AttributeError, match=(
            r"^module 'fxgrad\.experimental' has no attribute 'sparse'; it has io_callback and the modules mesh_utils, "
            r"ode and shard_map\. A function made with others of jax\.experimental is called with "
            r"fxgrad\.from_jax\(f\)\n  at test_names")):
        fxgrad.experimental.sparse  # noqa: B018


def test_modules_of_experimental() -> None:
    from fxgrad.experimental import io_callback, mesh_utils
    from fxgrad.experimental.ode import odeint
    from fxgrad.experimental.shard_map import shard_map
    assert io_callback is fxgrad.io_callback
    assert odeint is fxgrad.odeint
    assert shard_map is fxgrad.shard_map
    assert mesh_utils.create_device_mesh((4, 2)).shape == (4, 2)
    seen: list[float] = []
    jit(lambda x: io_callback(lambda v: seen.append(float(v)), None, x, ordered=True))(2.0)
    jax.effects_barrier()
    assert seen == [2.0]


def test_errors_by_jaxs_names() -> None:
    def leak(kept: list[Any]) -> Any:
        jit(lambda x: (kept.append(x), x)[1])(1.0)
        return kept[0] + 1
    raised: dict[str, Any] = {
        "ConcretizationTypeError": lambda: jit(lambda x: int(x))(1.0),
        "TracerBoolConversionError": lambda: jit(lambda x: 1 if x else 2)(1.0),
        "TracerIntegerConversionError": lambda: jit(lambda n: [1, 2][n])(1),
        "NonConcreteBooleanIndexError": lambda: jit(lambda x: x[x > 0])(X),
        "TracerArrayConversionError": lambda: jit(lambda x: np.asarray(x))(X),
        "UnexpectedTracerError": lambda: leak([]),
        "JAXIndexError": lambda: jit(lambda x: x[1.5])(X),
        "JAXTypeError": lambda: jit(lambda x: bool(x))(1.0),
    }
    for name, call in raised.items():
        with pytest.raises(getattr(errors, name)):
            call()
    assert errors.JaxRuntimeError is jax.errors.JaxRuntimeError


def test_stages_have_classes() -> None:
    fast = jit(np.sin)
    traced, lowered = fast.trace(X), fast.lower(X)
    for stage, name in ((traced, "Traced"), (lowered, "Lowered"), (traced.lower(), "Lowered"),
                        (lowered.compile(), "Compiled"), (traced.lower().compile(), "Compiled")):
        for each in ("Traced", "Lowered", "Compiled"):
            assert isinstance(stage, getattr(fxgrad.stages, each)) == (each == name)
    assert isinstance(fast, fxgrad.stages.Wrapped)
    assert not isinstance(np.sin, fxgrad.stages.Wrapped)


def test_annotations() -> None:
    for value in (X, 1, 2.0, True, 1j, np.float32(1), jnp.ones(2)):
        assert isinstance(value, fxgrad.typing.ArrayLike)
    assert jit(lambda x: fnp.zeros(int(isinstance(x, fxgrad.typing.ArrayLike))))(X).shape == (1,)
    assert not isinstance("x", fxgrad.typing.ArrayLike)


def test_ad_checkpoint() -> None:
    from fxgrad.interop.jax_modules.ad_checkpoint import checkpoint_name, checkpoint_policies, print_saved_residuals
    assert checkpoint_policies is fxgrad.checkpoint_policies
    assert print_saved_residuals is fxgrad.print_saved_residuals
    kept = fxgrad.ad_checkpoint.checkpoint(lambda x: fnp.sum(fnp.sin(checkpoint_name(fnp.exp(x), "e"))),
                                           policy=checkpoint_policies.save_only_these_names("e"))
    np.testing.assert_allclose(grad(kept)(X), np.cos(np.exp(X)) * np.exp(X), rtol=1e-5)


def test_answers_of_policies_as_in_jax() -> None:
    from fxgrad.interop.jax_modules.ad_checkpoint import Offloadable, Recompute, Saveable

    def block(x: Any, *, scale: Any) -> Any:
        return fnp.sum(fnp.sin(fnp.exp(x) * scale))

    def kept(answer: Any) -> bool:
        policy = lambda primitive, *_, **__: answer if primitive.name == "exp" else False
        checkpointed = fxgrad.checkpoint(block, policy=policy)
        expected = 2 * np.cos(2 * np.exp(X)) * np.exp(X)
        np.testing.assert_allclose(grad(checkpointed)(X, scale=2.0), expected, rtol=1e-5)
        return any(each.made_at.startswith("exp") for each in fxgrad.saved_residuals(checkpointed, X, scale=2.0))
    assert not any(map(kept, (False, Recompute, None)))
    assert all(map(kept, (True, Saveable, np.True_, Offloadable("device", "pinned_host"))))
    with pytest.raises(errors.ArgumentError, match=(
            r"^checkpoint: the policy answered 'save', where a bool is needed, one of Saveable, Recompute and "
            r"Offloadable\(\.\.\.\) of fxgrad\.ad_checkpoint, or how to store the value: 'host', 'int8', 'bfloat16', "
            r"'float16', 'float32'\n  at test_names")):
        kept("save")


# --- checks of derivatives --------------------------------------------------------------------------------------------


@fxgrad.custom_jvp
def wrong(x: Any) -> Any:
    return fnp.sin(x)


wrong.defjvp(lambda primals, tangents: (fnp.sin(*primals), 1.01 * fnp.cos(*primals) * tangents[0]))


def test_check_grads_as_jax() -> None:
    check = fxgrad.test_util.check_grads
    for modes in ("fwd", "rev", ["fwd"], ("fwd", "rev")):
        check(lambda x, n: {"y": fnp.sin(x["a"]) * n}, ({"a": X}, 2), 2, modes, 1e-3, 1e-3, 1e-3)
        with pytest.raises(AssertionError):
            check(wrong, (X,), order=1, modes=modes)
        jax.test_util.check_grads(jnp.sin, (X,), 1, modes, 1e-2, 1e-2)


def test_check_jvp_and_check_vjp_as_jax() -> None:
    args = ({"a": X, "n": np.arange(3)}, 2.0)

    def function(p: Any, y: Any) -> Any:
        return [fnp.sin(p["a"]) * y * p["n"], fnp.sum(p["a"])]
    for check, transformed in ((fxgrad.test_util.check_jvp, fxgrad.jvp), (fxgrad.test_util.check_vjp, fxgrad.vjp)):
        check(function, functools.partial(transformed, function), args)
        check(lambda x: fnp.sin(x), functools.partial(transformed, np.sin), (X,), 1e-3, 1e-3, 1e-3)
        check(function, functools.partial(transformed, function), ({"a": X[:0], "n": np.arange(0)}, 1.0))
        with pytest.raises(LawError, match=r"^hint: check_(jvp|vjp)\(sin\) at f64\[3\]: the .* is wrong: got "):
            check(fnp.sin, functools.partial(transformed, wrong), (X,), err_msg="hint")
        with pytest.raises(LawError, match=r"^check_(jvp|vjp)\(sin\) at f64\[3\]: the first output is wrong: got "):
            check(fnp.sin, functools.partial(transformed, np.cos), (X,))
        with pytest.raises(LawError, match="the first output has 2 arrays, and 1 are needed"):
            check(np.sum, functools.partial(transformed, lambda x: (np.sum(x), np.sum(x))), (X,))


# --- settings ---------------------------------------------------------------------------------------------------------


def test_every_setting_of_jax_is_taken_or_refused_with_a_sentence() -> None:
    """Given its own value, each of jax's settings is taken or refused; none is unknown."""
    refused, taken = [], []
    for name in {**jax.config.values}:  # type: ignore[attr-defined]
        if name in ("jax_num_cpu_devices", "jax_platforms", "jax_enable_x64"):  # those that cannot be set again
            continue
        before = fxgrad.config.read(name)
        sentence = (f"{name} is a setting of how jax traces and lowers functions of its own, and has no meaning for "
                    f"those of fxgrad. jax.config.update({name!r}, ...) sets it for fxgrad.from_jax")
        try:
            fxgrad.config.update(name, before)
        except ValueError as error:
            refused.append((name, str(error), sentence))
            continue
        assert fxgrad.config.read(name) == before
        if name.startswith("jax_"):
            assert getattr(fxgrad.config, name) == before
        taken.append(name)
    assert not [each for each in refused if each[1] != each[2]]
    assert {"jax_log_compiles", "jax_default_matmul_precision", "jax_compilation_cache_dir", "jax_debug_nans",
            "jax_transfer_guard", "jax_check_tracer_leaks", "jax_traceback_filtering"} <= {*taken}
    assert {"jax_use_direct_linearize", "jax_scan3"} <= {name for name, *_ in refused}


def test_settings_that_are_blocks() -> None:
    def nan(x: Any) -> Any:
        return np.log(x) * 2

    def infinite(x: Any) -> Any:
        return np.exp(x) * 2
    for order in (("jax_debug_nans", "jax_debug_infs"), ("jax_debug_infs", "jax_debug_nans")):
        for name in order:
            fxgrad.config.update(name, True)
            fxgrad.config.update(name, True)  # twice is once
            assert fxgrad.config.read(name) is True
        for function, value in ((nan, -1.0), (infinite, 1e3)):
            for call in (fxgrad.value_and_grad(function), jit(function)):
                with pytest.raises(FloatingPointError):
                    call(np.float32(value))
        fxgrad.config.update(order[0], False)
        with pytest.raises(FloatingPointError):  # the other one goes on
            fxgrad.value_and_grad(nan if order[1] == "jax_debug_nans" else infinite)(
                -1.0 if order[1] == "jax_debug_nans" else 1e3)
        fxgrad.config.update(order[1], False)
        assert np.isnan(jit(nan)(np.float32(-1)))
        assert grad(infinite)(1e3) == np.inf
    with pytest.raises(ValueError, match="a setting that is on or off was given 'perhaps'; write True or False"):
        fxgrad.config.update("jax_debug_nans", "perhaps")


def test_blocks_of_executors_end_in_any_order() -> None:
    first, second = fxgrad.debug_nans(), fxgrad.debug_infs()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(FloatingPointError, match="infinity in the result of exp"):
        grad(np.exp)(1e3)
    assert np.isnan(grad(np.log)(np.nan))
    second.__exit__(None, None, None)
    assert grad(np.exp)(1e3) == np.inf


@pytest.mark.parametrize("wrap", [lambda f: f, grad, lambda f: lambda x: fxgrad.check(x > 0, "{x}", x=x) or f(x)],
                         ids=["plain", "grad", "checks"])
@pytest.mark.parametrize("argument", [3.0, np.float32(3), jnp.float32(3)])
def test_jaxs_disable_jit_runs_pythons_own(wrap: Any, argument: Any) -> None:
    seen: list[bool] = []

    def halved(x: Any) -> Any:
        seen.append(bool(x > 1))  # a question that a compiled function cannot answer
        while x > 1:
            x = x / 2
        return x * x

    fast = jit(wrap(lambda x: x * x))
    expected = fast(argument)  # there is a plan for it
    disabled = jit(wrap(halved))
    with jax.disable_jit():
        for _ in range(2):
            assert float(disabled(argument)) == (0.5625 if wrap is not grad else 0.375)
            assert float(fast(argument)) == float(expected)
    assert seen == [True, True]
    assert fast.lower(argument).compile() is not None
    with jax.disable_jit():
        assert fast.lower(argument).compile() is not None
    with pytest.raises(fxgrad.errors.ConcretizationError):
        disabled(argument)


def test_disable_jit_and_checks_as_settings() -> None:
    seen: list[Any] = []
    fast = jit(lambda x: (seen.append(type(x)), x * 2)[1])
    fxgrad.config.update("jax_disable_jit", True)
    try:
        fast(X)
        assert seen == [np.ndarray]
    finally:
        fxgrad.config.update("jax_disable_jit", False)
    assert fxgrad.config.read("jax_disable_jit") is False
    before = fxgrad.config.check_level
    try:
        fxgrad.config.update("jax_enable_checks", False)
        assert fxgrad.config.check_level == 0
        for level in (1, 1):
            fxgrad.config.update("jax_enable_checks", True)
            assert fxgrad.config.check_level == level
        fxgrad.config.update("check_level", 3)
        fxgrad.config.update("jax_enable_checks", True)
        assert fxgrad.config.check_level == 3  # as strict as it was
    finally:
        fxgrad.config.check_level = before


def test_settings_that_say_what_is_so() -> None:
    for name, value, why in (("jax_default_prng_impl", "rbg", "keys are of threefry2x32 alone"),
                             ("jax_debug_key_reuse", True, r"fxgrad\.debug\.check_key_reuse\(f\) looks for it"),
                             ("jax_numpy_dtype_promotion", "strict", "dtypes promote by one rule"),
                             ("jax_threefry_partitionable", False, "bits are those of jax with"),
                             ("jax_numpy_rank_promotion", "raise", "shapes broadcast as NumPy's do")):
        with pytest.raises(ValueError, match=rf"^{name} cannot be {value!r}: {why}"):
            fxgrad.config.update(name, value)
        fxgrad.config.update(name, fxgrad.config.read(name))
    with pytest.raises(ValueError, match=r"^jax_nonsense is no setting of fxgrad; it has check_level, default_dtype, "):
        fxgrad.config.update("jax_nonsense", 1)
    with pytest.raises(AttributeError, match="jax_nonsense is no setting"):
        fxgrad.config.jax_nonsense  # noqa: B018
    assert fxgrad.config.jax_enable_x64 is False or fxgrad.config.jax_enable_x64 == np.False_


@pytest.mark.slow
def test_the_number_of_devices_is_a_setting() -> None:
    script = "import fxgrad; fxgrad.config.update('jax_num_cpu_devices', 3); print(fxgrad.device_count())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120,
                          env={"PATH": "", "JAX_PLATFORMS": "cpu", "PYTHONPATH": ":".join(sys.path)})
    assert done.stdout.strip() == "3", done.stderr


def test_precision_of_products() -> None:
    a = np.ones((4, 4), np.float32)
    product = lambda a: fnp.sum(fnp.sin(a @ a))

    def precisions(function: Any) -> int:
        return fxgrad.stablehlo(function)(a).count("precision = [HIGHEST, HIGHEST]")
    assert precisions(product) == precisions(grad(product)) == 0
    with fxgrad.default_matmul_precision("float32"):
        assert precisions(product) == 1
        assert precisions(grad(product)) == 3
        assert precisions(lambda a: fxgrad.lax.dot(a, a, precision="default")) == 0
    assert precisions(product) == 0
    fxgrad.config.update("jax_default_matmul_precision", "highest")
    try:
        assert precisions(product) == 1
    finally:
        fxgrad.config.update("jax_default_matmul_precision", None)
    with pytest.raises(ValueError, match="nope"), fxgrad.default_matmul_precision("nope"):
        pass


def test_enable_x64_is_a_block() -> None:
    for value, dtype in ((True, np.float64), (False, np.float32)):
        with fxgrad.enable_x64(value):
            assert fnp.zeros(2).dtype == dtype
            assert jit(lambda: fnp.ones(2))().dtype == dtype
    with fxgrad.enable_x64():
        assert fnp.zeros(2).dtype == np.float64
    assert fnp.zeros(2).dtype == np.float32


# --- computing while tracing ------------------------------------------------------------------------------------------


def test_ensure_compile_time_eval_as_jax() -> None:
    def function(lib: Any, numpy: Any, x: Any) -> Any:
        with lib.ensure_compile_time_eval():
            size = int(numpy.sum(numpy.arange(3)))
            table = numpy.cumsum(numpy.ones(size))
            shifted = x + table[:3]  # recorded: it depends on x
            if numpy.all(table > 0):
                size -= 1
        return numpy.sum(shifted[:size] * table[1])
    expected = jax.jit(lambda x: function(jax, jnp, x))(X)
    ours = lambda x: function(fxgrad, fnp, x)
    for call in (ours, jit(ours)):
        np.testing.assert_allclose(call(X), expected)
    for call in (vmap(ours), vmap(jit(ours)), jit(vmap(ours))):
        np.testing.assert_allclose(call(np.stack([X, X])), [expected] * 2)
    slope = jax.grad(lambda x: function(jax, jnp, x))(X)
    for derived in (grad(ours), jit(grad(ours)), grad(jit(ours))):
        np.testing.assert_allclose(derived(X), slope)
    program = fxgrad.make_program(ours)(X)
    assert [equation.primitive.name for equation in program.equations].count("cumsum") == 0
    assert [equation.primitive.name for equation in fxgrad.make_program(
        lambda x: x + fnp.cumsum(fnp.ones(3)))(X).equations].count("cumsum") == 1


def test_effects_on_known_values_take_place_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        with fxgrad.ensure_compile_time_eval():
            fxgrad.debug.print("known {}", fnp.sum(fnp.ones(2)))
            fxgrad.debug.print("traced {}", x)
        fxgrad.debug.print("later")
        return x * 2.0
    program = fxgrad.make_program(function)(1.0)
    assert capsys.readouterr().out == "known 2.0\n"
    assert [equation.primitive.name for equation in program.equations].count("debug_callback") == 2
    assert grad(function)(3.0) == 2.0
    assert capsys.readouterr().out.splitlines() == ["known 2.0", "traced 3.0", "later"]


def test_ensure_compile_time_eval_ends() -> None:
    """Also with an error, and within loops; values of traced arrays stay unknown."""
    def function(x: Any) -> Any:
        with pytest.raises(ZeroDivisionError), fxgrad.ensure_compile_time_eval():
            1 / 0  # noqa: B018
        return x + fnp.cumsum(fnp.ones(3))
    assert "cumsum" in str(fxgrad.make_program(function)(X))

    def refused(x: Any) -> Any:
        with fxgrad.ensure_compile_time_eval():
            return x * 2 if x[0] > 0 else x
    with pytest.raises(errors.ConcretizationError, match=r"bool\(\) needs the value of a traced array"):
        jit(refused)(X)

    def body(carry: Any, x: Any) -> Any:
        with fxgrad.ensure_compile_time_eval():
            count = int(fnp.sum(fnp.ones(2)))
        return carry + x * count, None
    assert jit(lambda x: fxgrad.lax.scan(body, 0.0, x)[0])(X) == np.float32(-1.0)
    with fxgrad.ensure_compile_time_eval():
        assert fnp.sum(fnp.ones(2)) == 2
        assert jit(lambda x: x * 2)(2.0) == 4
