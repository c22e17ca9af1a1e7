"""Rules of users in files: what is loaded has their values, derivatives and batches; what does not fit is refused."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ProgramSyntaxError, UnsupportedError

pytestmark = pytest.mark.slow

SCALE = np.array([1.0, 0.1, 3.0])
X = np.array([0.1, 0.2, -0.3])


@fxgrad.custom_vjp
def scaled(x: Any, y: Any) -> Any:
    return x * y * SCALE


# No derivative that anything but the rule could give: factors of 7 and 5.
scaled.defvjp(lambda x, y: (scaled(x, y), {"x": x, "y": y}),
              lambda saved, cotangent: (7.0 * cotangent * saved["y"], 5.0 * cotangent * saved["x"]))


@fxgrad.custom_vjp
def one_sided(x: Any, n: Any) -> Any:
    return fnp.sin(x) * n, n + 1


one_sided.defvjp(lambda x, n: (one_sided(x, n), (x, n)), lambda saved, cotangents: (11.0 * cotangents[0], None))


@fxgrad.custom_jvp
def powered(x: Any, n: Any) -> Any:
    return x ** 2 * n


powered.defjvp(lambda primals, tangents: (powered(*primals), 13.0 * primals[0] * tangents[0] * SCALE))


@fxgrad.custom_vjp
def with_symbols(x: Any, y: Any) -> Any:
    return x * y


with_symbols.defvjp(lambda x, y: (x.value * y.value, (x.value, y.value)),
                    lambda saved, cotangent: (17.0 * cotangent * saved[1], 19.0 * cotangent * saved[0]),
                    symbolic_zeros=True)


def nested(x: Any) -> Any:
    outer = fxgrad.custom_jvp(lambda x: powered(fnp.cos(x), 2))
    outer.defjvp(lambda primals, tangents: (outer(*primals), powered(primals[0], 3) * tangents[0]))
    return outer(x)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "vjp": lambda x: scaled(x, fnp.sin(x)), "integers and None": lambda x: one_sided(x, 3)[0],
    "jvp": lambda x: powered(x, 2), "symbolic zeros": lambda x: with_symbols(x, 2.0 * x), "rule in a rule": nested,
    "both": lambda x: powered(scaled(x, x), 3), "closed over": lambda x: scaled(x * SCALE, SCALE),
    "float32": lambda x: scaled(x.astype(np.float32), np.float32(0.1) * x.astype(np.float32)).astype(np.float64)}
TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "itself": lambda f: f, "jitted": fxgrad.jit, "mapped": lambda f: lambda x: fxgrad.vmap(f)(fnp.stack([x, 2 * x])),
    "mapped in an argument": lambda f: lambda x: fxgrad.vmap(lambda y: f(x) * y)(x),
    "in a loop": lambda f: lambda x: fxgrad.scan(lambda c, _: (f(c) * 0.1 + c, None), x, None, length=3)[0],
    "checkpoint": fxgrad.checkpoint, "gradient": lambda f: fxgrad.grad(lambda x: fnp.sum(f(x) ** 2)),
    "forward mode": lambda f: lambda x: fxgrad.jvp(f, (x,), (fnp.cos(x),)),
    "batch of forward mode": lambda f: lambda x: fxgrad.vmap(lambda t: fxgrad.jvp(f, (x,), (t,))[1])(
        fnp.stack([x, x * x]))}


def saved(function: Any, *args: Any) -> bytes:
    file = io.BytesIO()
    fxgrad.save(file, function, *args)
    return file.getvalue()


def header_of(file: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(zipfile.ZipFile(io.BytesIO(file)).read("program.json"))
    return header


def again(function: Any, *args: Any) -> Any:
    return fxgrad.load(io.BytesIO(saved(function, *args)))


@pytest.mark.parametrize("how", TRANSFORMED)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_loaded_has_the_derivatives_of_the_rule(name: str, how: str) -> None:
    function = TRANSFORMED[how](FUNCTIONS[name])
    loaded = again(function, X)
    np.testing.assert_allclose(loaded(X), function(X), rtol=1e-14)
    for derive in (lambda f: fxgrad.grad(lambda x: fnp.sum(fnp.sin(fnp.asarray(f(x))))), fxgrad.jacrev,
                   lambda f: fxgrad.vmap(fxgrad.grad(lambda x: fnp.sum(fnp.asarray(f(x)) ** 2)))):
        given = np.stack([X, 3.0 * X]) if derive.__name__ == "<lambda>" and "vmap" in derive.__code__.co_names else X
        np.testing.assert_allclose(derive(loaded)(given), derive(function)(given), rtol=1e-12)
    assert saved(loaded) == saved(again(loaded))


@pytest.mark.parametrize("name", ["vjp", "jvp", "both", "rule in a rule"])
def test_second_derivatives(name: str) -> None:
    function = FUNCTIONS[name]
    loaded = again(function, X)
    for x in X, 2.0 * X:
        expected = fxgrad.jacrev(fxgrad.jacrev(function))(x)
        np.testing.assert_allclose(fxgrad.jacrev(fxgrad.jacrev(loaded))(x), expected, rtol=1e-12)


def test_forward_mode_of_a_vjp_rule_transposes_it() -> None:
    loaded = again(FUNCTIONS["vjp"], X)
    np.testing.assert_allclose(fxgrad.jacfwd(loaded)(X), fxgrad.jacfwd(FUNCTIONS["vjp"])(X), rtol=1e-13)


def of_a_pendulum(x: Any, adjoint: str = "continuous") -> Any:
    """The states of a pendulum that starts at x[0], with the length x[1], at the time x[2] + 2."""
    def field(state: Any, time: Any, length: Any) -> Any:
        return fnp.stack([state[1], -fnp.sin(state[0]) / length + 0.1 * fnp.cos(time) * x[1]])
    return fxgrad.odeint(field, fnp.stack([x[0], 0.0 * x[0]]), fnp.stack([0.0, 1.0, x[2] + 2.0]), x[1] + 1.0,
                         rtol=1e-10, atol=1e-10, adjoint=adjoint)


@pytest.mark.parametrize("how", ["itself", "forward mode"])
def test_tangents_of_solutions_are_stored(how: str) -> None:
    """Of the continuous `odeint`, whose backward pass cannot be transposed."""
    def end(x: Any) -> Any:
        return fnp.concatenate([x[:1], of_a_pendulum(x)[-1]])
    function = TRANSFORMED[how](end)
    loaded = again(function, X)

    def summed(f: Any) -> Any:
        return lambda x: sum(fnp.sum(fnp.sin(leaf)) for leaf in fxgrad.tree.leaves(f(x)))
    np.testing.assert_allclose(fxgrad.jacfwd(loaded)(X), fxgrad.jacfwd(function)(X), rtol=1e-7)
    forwards = fxgrad.jacfwd(summed(function))
    np.testing.assert_allclose(fxgrad.grad(summed(loaded))(X), forwards(X), rtol=1e-7)
    expected = fxgrad.jacfwd(forwards)(X)
    for derive in fxgrad.jacfwd, fxgrad.jacrev:
        np.testing.assert_allclose(derive(fxgrad.jacfwd(summed(loaded)))(X), expected, rtol=1e-6, atol=1e-6)
    assert saved(loaded) == saved(again(loaded))


def test_a_rule_is_stored_once() -> None:
    """However often its function is called; the forward pass of a rule, which calls it too, follows that call."""
    once, often = (header_of(saved(function, X)) for function in (
        lambda x: scaled(x, x), lambda x: scaled(scaled(x, x), scaled(x, x))))
    assert [rule["name"] for rule in once["rules"]] == [rule["name"] for rule in often["rules"]] == ["scaled"]
    assert "rules" not in header_of(saved(fnp.sin, X))


def test_tangents_of_a_rule_are_stored_by_what_they_depend_on() -> None:
    """Equal tangents once; those of other arguments apart."""
    @fxgrad.jit
    def along(x: Any, t: Any) -> Any:
        return fxgrad.jvp(lambda x: scaled(x, SCALE), (x,), (t,))[1]
    for function, count in ((lambda x: along(x, x) + along(x, 2 * x), 1),
                            (lambda x: along(x, x) + fxgrad.jvp(scaled, (x, x), (x, x))[1], 2)):
        kinds = [rule["kind"] for rule in header_of(saved(function, X))["rules"]]
        assert kinds.count("RecordedTangent") == count


def test_it_prints_as_before() -> None:
    loaded = again(FUNCTIONS["jvp"], X)
    assert "rule=<powered>" in str(loaded)


def test_a_rule_that_branches_on_values_is_refused() -> None:
    @fxgrad.custom_jvp
    def stepped(x: Any) -> Any:
        return fnp.sum(x)
    stepped.defjvp(lambda primals, tangents: (stepped(*primals), fnp.sum(tangents[0]) if primals[0][0] > 0.0 else 0.0))
    with pytest.raises(UnsupportedError) as caught:
        saved(stepped, X)
    text = str(caught.value)
    assert text.startswith("save: the derivative of stepped is Python code that cannot be recorded without values, and "
                           "a file holds programs alone. Save the gradient, in which the rule has been applied. "
                           "The reason: bool() needs the value of a traced array")
    assert "test_saved_rules.py" in text


def forward_mode(x: Any) -> Any:
    return fxgrad.jvp(lambda x: of_a_pendulum(x)[1:], (x,), (x,))[1]


def changed(change: Callable[[dict[str, Any]], None], function: Any = FUNCTIONS["both"]) -> bytes:
    """A file whose header was changed."""
    file = saved(function, X)
    read, header = zipfile.ZipFile(io.BytesIO(file)), header_of(file)
    change(header)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in read.namelist():
            archive.writestr(name, json.dumps(header) if name == "program.json" else read.read(name))
    return written.getvalue()


def rule_of(header: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(rule for rule in header["rules"] if rule["kind"] == kind)


def swap_programs(header: dict[str, Any]) -> None:
    rule = rule_of(header, "RecordedVjp")
    rule["forward_program"], rule["backward_program"] = rule["backward_program"], rule["forward_program"]


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no list": (lambda h: h.update(rules={}), "rules: an array is expected"),
    "no object": (lambda h: h["rules"].__setitem__(0, 3), "rules[0].kind: None is not what a rule has there"),
    "kind": (lambda h: h["rules"][0].update(kind="eval"), "rules[0].kind: there is no kind 'eval' of rules"),
    "captured": (lambda h: h["rules"][1].update(captured=-1), "rules[1].captured: -1 is not what a rule has there"),
    "reached": (lambda h: rule_of(h, "RecordedVjp").update(reached=[True]),
                "the rule of scaled has another number of arguments"),
    "outputs": (lambda h: rule_of(h, "RecordedVjp").update(outputs=2),
                "the rule of scaled has another number of results"),
    "no program": (lambda h: rule_of(h, "RecordedJvp").pop("program"),
                   'this JSON is not a program: an object with "format": "fxgrad program" is expected'),
    "swapped": (swap_programs, ("the rule of scaled takes (f64[3], f64[3], f64[3]), where its function asks for "
                                "(f64[3], f64[3])")),
    "missing": (lambda h: h.update(rules=h["rules"][:1]), "rule 1 is not among those of the file before this place"),
    "other kind": (lambda h: h.update(rules=h["rules"][::-1]), "is none of custom_")}


@pytest.mark.parametrize("name", CHANGES)
def test_files_with_other_rules_are_refused(name: str) -> None:
    change, expected = CHANGES[name]
    with pytest.raises(ProgramSyntaxError) as caught:
        fxgrad.load(io.BytesIO(changed(change)))
    assert expected in str(caught.value)


TANGENT_CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "tangents of another type": (lambda rule: rule.update(tangents_program=rule["backward_program"]),
                                 "the rule of odeint_with_the_continuous_adjoint takes ("),
    "no backward pass": (lambda rule: rule.pop("backward_program"), "this JSON is not a program: an object with "),
    "reached": (lambda rule: rule.update(reached=[True]),
                "the rule of odeint_with_the_continuous_adjoint has another number of arguments"),
    "kind": (lambda rule: rule.update(kind="RecordedVjp", outputs=1, forward_program=rule["backward_program"]),
             "the rule of odeint_with_the_continuous_adjoint is none of custom_vjp_tangent")}


@pytest.mark.parametrize("name", TANGENT_CHANGES)
def test_files_with_other_tangents_are_refused(name: str) -> None:
    change, expected = TANGENT_CHANGES[name]
    with pytest.raises(ProgramSyntaxError) as caught:
        fxgrad.load(io.BytesIO(changed(lambda header: change(rule_of(header, "RecordedTangent")), forward_mode)))
    assert expected in str(caught.value)
