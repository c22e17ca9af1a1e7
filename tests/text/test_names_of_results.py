"""Results of library functions have the names of the user's line, whatever order operations make them in."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np

import fxgrad
import fxgrad.numpy as fnp
import fxgrad.scipy.linalg
from fxgrad import lax
from fxgrad.engine.core.sources import at_source, current_source
from fxgrad.text import program_text
from fxgrad.text.names import own_names
from fxgrad.text.sources import Sources

M = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
TARGETS = ("first", "second", "third", "fourth", "fifth")
SEVERAL = {
    "np.linalg.eigh(M)": 2, "fnp.linalg.eigh(M)": 2, "fnp.linalg.eig(M)": 2, "np.linalg.eig(M)": 2,
    "np.linalg.svd(M)": 3, "fnp.linalg.svd(M)": 3, "np.linalg.qr(M)": 2, "np.linalg.slogdet(M)": 2,
    "np.linalg.lstsq(M, M[0])": 4, "lax.linalg.eigh(M)": 2, "lax.linalg.svd(M)": 3, "lax.linalg.qr(M)": 2,
    "lax.linalg.lu(M)": 3, "lax.linalg.eig(M)": 3, "lax.linalg.schur(M)": 2, "lax.linalg.hessenberg(M)": 2,
    "lax.linalg.tridiagonal(M)": 4, "scipy.linalg.lu(M)": 3, "scipy.linalg.lu_factor(M)": 2,
    "scipy.linalg.cho_factor(M)": 2, "scipy.linalg.polar(M)": 2, "scipy.linalg.schur(M)": 2, "scipy.linalg.qr(M)": 2,
    "scipy.linalg.qr(M, pivoting=True)": 3, "scipy.linalg.qr(M, mode='r', pivoting=True)": 2,
    "scipy.linalg.svd(M)": 3, "scipy.linalg.eigh(M)": 2, "scipy.linalg.eigh(M, M)": 2,
    "scipy.linalg.eigh_tridiagonal(M[0], M[0, 1:])": 2, "np.modf(M)": 2, "fnp.modf(M)": 2, "np.frexp(M)": 2,
    "np.divmod(M, 2.0)": 2, "divmod(M, 2.0)": 2, "np.split(M, 3)": 3, "fnp.unstack(M)": 3, "np.meshgrid(M[0], M[1])": 2,
    "lax.top_k(M, 2)": 2, "lax.sort((M, -M), num_keys=1)": 2, "lax.sort_key_val(M, -M)": 2, "np.histogram(M, 4)": 2,
    "fnp.unique(M, return_counts=True, size=9)": 2, "np.average(M, returned=True)": 2, "np.gradient(M)": 2,
    "fnp.linalg.eigh(M)[::-1]": 2, "np.hsplit(M, 3)": 3, "fnp.polydiv(M[0], M[1])": 2,
    "lax.cond(M[0, 0] > 0, lambda v: (v * 2.0, v + 1.0), lambda v: (v + 1.0, v * 2.0), M)": 2,
    "lax.scan(lambda c, x: (c + x, c), M[0], M)": 2, "fxgrad.vmap(lambda m: (m * 2.0, m + 1.0))(M)": 2,
    "lax.associative_scan(lambda a, b: (a[0] + b[0], a[1] * b[1]), (M, M))": 2,
}
ONE = (
    "np.argsort(M)", "fnp.argsort(M, axis=0)", "np.linalg.eigvalsh(M)", "np.linalg.svdvals(M)",
    "np.linalg.svd(M, compute_uv=False)", "np.linalg.cond(M)", "np.linalg.det(M)", "np.linalg.inv(M)",
    "np.linalg.pinv(M)", "fnp.linalg.matrix_rank(M)", "np.median(M)", "np.percentile(M, 30)",
    "np.argpartition(M[0], 1)", "fnp.lexsort((M[0], M[1]))", "np.searchsorted(M[0], M[1])", "fnp.unique(M, size=9)",
    "fnp.argmax(M)", "np.linalg.norm(M, 2)", "np.linalg.norm(M, 'nuc')", "np.sort(M)", "np.partition(M, 1)",
    "np.linalg.qr(M, mode='r')", "scipy.linalg.eigh(M, eigvals_only=True)",
    "scipy.linalg.eigh(M, M, eigvals_only=True)", "scipy.linalg.expm(M)",
    "scipy.linalg.eigh_tridiagonal(M[0], M[0, 1:], eigvals_only=True)", "np.take_along_axis(M, np.argsort(M), 1)",
    "fnp.digitize(M, M[0])", "np.linalg.matrix_power(M, 3)", "np.interp(M, M[0], M[1])", "scipy.linalg.solve(M, M)")


def program_of(lines: str, number: int) -> fxgrad.Program:
    """The program of a function of `M` with these lines, of which Python knows the source."""
    text = "def f(M):\n" + "".join(f"    {line}\n" for line in lines.split("\n"))
    file = f"<names of results {number}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space: dict[str, Any] = {"np": np, "fnp": fnp, "lax": lax, "scipy": fxgrad.scipy, "fxgrad": fxgrad}
    exec(compile(text, file, "exec"), space)
    program: fxgrad.Program = fxgrad.make_program(space["f"])(M)
    return program


def test_results_that_are_taken_apart() -> None:
    wrong, named = [], 0
    for number, (call, count) in enumerate(SEVERAL.items()):
        targets = TARGETS[:count]
        program = program_of(f"{', '.join(targets)} = {call}\nreturn {', '.join(targets)}", number)
        names = own_names(program, Sources())
        found = [names.get(atom) for atom in program.outputs]
        named += sum(name is not None for name in found)
        if any(name not in (None, target) for name, target in zip(found, targets, strict=True)):
            wrong.append((call, found))
    assert not wrong, wrong
    assert named > 60


def test_results_of_loops_and_branches_have_all_their_names() -> None:
    found = {}
    for number, call in enumerate((
            "lax.fori_loop(0, 2, lambda i, c: (c[0] * 2.0, c[1] + i), (M, M + 1.0))",
            "lax.while_loop(lambda c: c[0].sum() < 9.0, lambda c: (c[0] * 2.0, c[1] + 1.0), (M, M + 1.0))",
            "lax.cond(M[0, 0] > 0, lambda v: (v * 2.0, v + 1.0), lambda v: (v + 1.0, v * 2.0), M)")):
        program = program_of(f"{TARGETS[0]}, {TARGETS[1]} = {call}\nreturn {TARGETS[0]}, {TARGETS[1]}", 4000 + number)
        names = own_names(program, Sources())
        found[call] = [names.get(atom) for atom in program.outputs]
    assert [call for call, names in found.items() if names != [*TARGETS[:2]]] == []


def test_results_of_one_name() -> None:
    wrong, named = [], 0
    for number, (call, count) in enumerate(SEVERAL.items()):
        program = program_of("\n".join([f"result = {call}", "return " + ", ".join(
            f"result[{place}]" for place in range(count))]), 1000 + number)
        names = own_names(program, Sources())
        found = [names.get(atom) for atom in program.outputs]
        named += sum(name is not None for name in found)
        if any(name not in (None, "result", f"result[{place}]") for place, name in enumerate(found)):
            wrong.append((call, found))
    for number, call in enumerate(ONE):
        program = program_of(f"result = {call}\nreturn result", 2000 + number)
        names = own_names(program, Sources())
        others = [name for var, name in names.items() if name.startswith("result") and var is not program.outputs[0]]
        if names.get(program.outputs[0]) != "result" or others:
            wrong.append((call, names))
    assert not wrong, wrong
    assert named > 40


def test_parts_of_results_have_the_names_they_are_assigned_to() -> None:
    wrong, named = [], set()
    for number, (call, count) in enumerate(SEVERAL.items()):
        for place in range(count):
            program = program_of(f"part = {call}[{place}]\nreturn part", 5000 + 10 * number + place)
            names = own_names(program, Sources())
            found = names.get(program.outputs[0])
            others = [name for var, name in names.items() if name.startswith("part") and var not in program.outputs]
            if found not in (None, "part") or others:
                wrong.append((call, place, names))
            if found is not None:
                named.add(call)
    assert not wrong, wrong
    assert {call for call in SEVERAL if call.startswith(("lax.scan", "lax.cond"))} <= named


def test_nested_parts_of_loops_have_the_names_they_are_assigned_to() -> None:
    turn = "lambda i, c: {'a': (c['a'][1], c['a'][0] * 2.0), 'b c': c['b c'] + i}"
    loop = f"lax.fori_loop(0, 2, {turn}, {{'a': (M, M + 1.0), 'b c': M}})"
    found = {}
    for number, path in enumerate(("['a'][1]", "['b c']", "['a']", "['a'][-1]", "['a'][True]")):
        program = program_of(f"part = {loop}{path}\nreturn part", 6000 + number)
        found[path] = [own_names(program, Sources()).get(atom) for atom in program.outputs]
    assert found == {"['a'][1]": ["part"], "['b c']": ["part"], "['a']": ["part[0]", "part[1]"],
                     "['a'][-1]": [None], "['a'][True]": [None]}


def test_operations_recorded_for_a_loop_do_not_have_its_results() -> None:
    program = program_of("first, second = lax.fori_loop(0, 2, lambda i, c: (c[1], c[0] + i), (M, M + 1.0))\n"
                         "return first, second", 7000)
    loop, = [equation for equation in program.equations if equation.source is not None and equation.source.results]
    with at_source() as at:
        at(loop)
        source = current_source()
    assert source is not None
    assert source.results == ()
    assert loop.source == source._replace(results=(None, "[0]", "[1]"))


def test_values_at_computed_indices_read_as_in_the_code() -> None:
    argsort = "idx = np.argsort(M[0])"
    cases = {
        f"{argsort}\nreturn M[1][idx]": "[idx]",
        "idx = fnp.argsort(-M[0])\nreturn M[1][idx[:1]]": "[idx[:1]]",
        f"{argsort}[::-1]\nreturn M[1][idx]": "[idx]", "_, idx = lax.top_k(M[0], 2)\nreturn M[1][idx]": "[idx]",
        "order = np.argsort(M[0])\nranks = np.argsort(order)\nreturn M[2][ranks]": "[ranks]",
        f"{argsort}\nreturn M[1][idx[1:][None]]": "[idx[None, 1:]]",
        f"{argsort}\nreturn M[idx, idx]": "M[idx, idx]",
        "idx = fnp.argmax(M, axis=1)[:, None]\nreturn fnp.take_along_axis(M, idx, 1)":
            "take_along_axis(M, idx, axis=1)",
    }
    wrong = []
    for number, (lines, expected) in enumerate(cases.items()):
        text = program_text(program_of(lines, 3000 + number), source=False)
        if expected not in text:
            wrong.append((expected, text))
    assert not wrong, wrong
