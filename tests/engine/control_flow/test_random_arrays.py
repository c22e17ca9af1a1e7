"""Random functions in which arrays get several names and views, and their items are assigned: as NumPy, or refused."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import fxgrad
from fxgrad import python_control_flow
from fxgrad.errors import FxgradError
from tests.support.sources import load_source

VECTORS, MATRICES = ["a", "b", "c"], ["m", "k"]
HEAD = """import numpy as np

class State:
    def __init__(self, x):
        self.p, self.q = np.zeros(4), x * np.arange(4.0)
        self.g = np.ones((4, 4))

    def put(self, i, v):
        self.p[i] = v
        self.g[i, 1:] += self.q[0]

def swap(u, i, j):
    u[i], u[j] = u[j], u[i]

def put(u, i, v):
    if v > 0.5:
        u[i] = v
        u += 1.0
    return u[i - 1]

def fill(u, n, v):
    for t in range(n):
        put(u, t, v * t)
        swap(u, t, -1)
    return u

def renew(u, i, v):
    u[i] += v
    if v > 0.5:
        u[1] = v
    u = u * 2.0
    u[0] = v
    return u

def add(u, w, v):
    for t in range(2):
        u[t] += v * w[1]
        if v > t:
            u[2] -= w[t]

def both(u, w, i):
    u[i] += w[0]
    w[1:] -= u[i]

def exchange(u, w):
    kept = u.copy()
    u[:] = w
    if w[0] > 0.5:
        w[:] = kept

def rotate(u, w, v):
    for t in range(3):
        u[t], w[t] = 0.6 * u[t] + v * w[t], 0.8 * w[t] - u[t + 1]
    put(w, 1, v)
    return u

"""
START = ["    a, b, c = np.zeros(4), np.arange(4.0), x * np.ones(4)",
         "    m, k, s = np.ones((4, 4)), np.arange(16.0).reshape(4, 4).copy(), 0.0"]
SLOTS = ["    o, d, rows = State(x), {'u': np.arange(4.0), 'w': np.ones((4, 4))}, [np.zeros(4), x * np.ones(4)]"]
SLOT_VECTORS, SLOT_MATRICES = ["o.p", "o.q", "d['u']", "rows[0]", "rows[1]"], ["o.g", "d['w']"]


class Writer:
    """Writes one function; `counters` are the loops around the statement. With `slots`, containers hold arrays too;
    with `calls`, functions change them; with `parts`, rows and other views of them, and slices have names.
    """

    def __init__(self, seed: int, *, slots: bool = False, calls: bool = False, parts: bool = False) -> None:
        self.draw = random.Random(seed)
        self.counters: list[str] = []
        self.slots, self.calls, self.parts = slots, calls or parts, parts
        self.vectors = VECTORS + SLOT_VECTORS * slots
        self.matrices = MATRICES + SLOT_MATRICES * slots

    def index(self) -> str:
        kind = self.draw.random()
        if kind < 0.5:
            return self.draw.choice(["0", "1", "-1", "2"] if kind < 0.4 else ["n"])
        return self.draw.choice(self.counters or ["3"])

    def number(self) -> str:
        kind = self.draw.random()
        if self.parts and self.draw.random() < 0.1:
            return self.draw.choice(["np.sum(p)", "len(p)", "(p * p).sum()"])
        if kind < 0.25:
            return self.draw.choice(["x", "1.0", "2.0", "0.5", "s"])
        if kind < 0.5:
            return f"{self.draw.choice(self.vectors)}[{self.index()}]"
        if kind < 0.65:
            return f"{self.draw.choice(self.matrices)}[{self.index()}, {self.index()}]"
        if kind < 0.7:
            if self.draw.random() < 0.5:
                one, bounds = self.draw.choice(self.vectors), self.bounds()
                return self.draw.choice([f"np.sum({one}[{bounds}])", f"({one}[{bounds}] @ {one}[{bounds}])",
                                         f"np.mean({one}[:n + 1])", f"{one}[{bounds}].prod()", f"len({one}[{bounds}])",
                                         f"np.max({self.draw.choice(self.matrices)}[{self.index()}, :n + 1])"])
            return f"np.sum({self.draw.choice(self.vectors + self.matrices)})"
        return f"({self.number()} {self.draw.choice('+-')} 0.5 * {self.number()})"

    def vector(self) -> str:
        kind, one = self.draw.random(), self.draw.choice(self.vectors)
        matrix = self.draw.choice(self.matrices)
        if kind < 0.75:
            return self.draw.choice([one, one, f"{matrix}[{self.index()}]", f"{matrix}[:, {self.index()}]",
                                     f"{matrix}.T[1]", f"{one}[::-1]", f"{one}.copy()", f"{one}.copy()", "np.zeros(4)",
                                     "np.arange(4.0)"])
        return f"({self.vector()} {self.draw.choice('+-')} 0.5 * {self.vector()})"

    def matrix(self) -> str:
        one = self.draw.choice(self.matrices)
        return self.draw.choice([one, one, f"{one}.T", f"{one}.copy()", f"{one}.copy()", "np.zeros((4, 4))",
                                 f"({one} + {self.vector()})"])

    def statement(self, depth: int, level: int) -> list[str]:
        indent, kind = "    " * level, self.draw.random()
        if depth > 0 and kind < 0.22:
            lines = [f"{indent}if {self.number()} > {self.number()}:", *self.block(depth - 1, level + 1)]
            other = [f"{indent}else:", *self.block(depth - 1, level + 1)] if self.draw.random() < 0.6 else []
            return lines + other
        if depth > 0 and kind < 0.34:
            self.counters.append(f"i{level}")
            body = self.block(depth - 1, level + 1)
            self.counters.pop()
            return [f"{indent}for i{level} in range({self.draw.choice(['n', 'n', '2'])}):", *body]
        if depth > 0 and kind < 0.37:
            return [f"{indent}t{level} = {self.draw.choice(['0', 'n'])}",
                    f"{indent}while t{level} < {self.draw.choice(['3', 'n + 1'])}:", f"{indent}    t{level} += 1",
                    *self.block(depth - 1, level + 1)]
        if self.parts and kind < 0.44:
            return self.loop_over_rows(level)
        return [indent + self.assignment()]

    def loop_over_rows(self, level: int) -> list[str]:
        """Return a loop over the rows of a matrix, or of two, that changes them."""
        indent, one, two = "    " * level, self.draw.choice(self.matrices), self.draw.choice(self.matrices)
        row, other = f"r{level}", self.draw.choice([f"w{level}", *self.vectors])
        begin = self.draw.choice([f"for {row} in {one}:", f"for j{level}, {row} in enumerate({one}):"])
        if other.startswith("w"):
            begin = f"for {row}, {other} in zip({one}, {two}):"
        changes = [f"{row}[{self.index()}] += {self.number()}", f"{row} *= {other}", f"{row}.sort()",
                   f"put({row}, {self.index()}, {self.number()})", f"exchange({row}, {other})",
                   f"rotate({row}, {other}, {self.number()})", f"add({row}, {other}, {self.number()})",
                   f"s = {row}[1] - {other}[0]", f"{other} = {row}.copy()", f"if {row}[0] > {self.number()}: break",
                   f"{one}[{self.index()}, 1] = {row}[2]", f"if {row}[1] > {other}[2]: {row} -= {self.number()}"]
        lines = self.draw.sample(changes, self.draw.randrange(1, 4))
        return [indent + begin, *(f"{indent}    {line}" for line in lines)]

    def bounds(self) -> str:
        """Return the bounds of a slice of unknown length."""
        index = self.index()
        return f"{self.draw.choice(['', 'n', '-n', index])}:{self.draw.choice(['', 'n', '-1', index])}"

    def change(self, operator: str) -> str:
        """Return a statement with a slice of unknown length, or a call that changes an array."""
        one, matrix, index = self.draw.choice(self.vectors), self.draw.choice(self.matrices), self.index()
        bounds, other = self.bounds(), self.draw.choice(self.vectors)
        if self.draw.random() < 0.3:
            return self.draw.choice([
                f"{one}[{bounds}] {operator} {other}[{bounds}]", f"{one}[{bounds}] = {one}[{bounds}][::-1]",
                f"{one}[{bounds}] {operator} {other}[{bounds}] * {self.number()} - 1.0",
                f"{matrix}[{index}, {bounds}] {operator} {other}[{bounds}]", f"{one}[n:] = np.sort({one}[n:])",
                f"{one}[:n].sort()"])
        return self.draw.choice([
            f"{one}[{bounds}] {operator} {self.number()}", f"{matrix}[{bounds}, {index}] {operator} {self.number()}",
            f"{matrix}[{index}, {bounds}] {operator} {self.number()}", f"{one}.sort()", f"{one}.fill({self.number()})",
            f"np.add.at({one}, {index}, {self.number()})", f"np.minimum({self.vector()}, {self.number()}, out={one})",
            f"np.fill_diagonal({matrix}, {self.number()})"])

    def call(self) -> str:
        """Return a statement that calls a function that changes arrays."""
        one, other, index = self.draw.choice(self.vectors), self.draw.choice(self.vectors), self.index()
        name = self.draw.choice(VECTORS)
        if self.parts and self.draw.random() < 0.3:
            return self.draw.choice([
                f"p = {one}[{self.bounds()}]", "p = p[1:]", "p = p[::-1]", f"p = p + {self.number()}",
                f"p = np.concatenate([{one}[n:], {one}[:n]])[:n]",
                f"{one}[:n] = p[0:1] if len(p) > 0 else {self.number()}",
                f"s = 1.0 if {self.number()} in {one}[{self.bounds()}] else s"])
        if self.parts:
            matrix = self.draw.choice(self.matrices)
            one = self.draw.choice([one, f"{matrix}[{index}]", f"{matrix}[{index}]", f"{matrix}[:, {index}]",
                                    f"{matrix}[{index}][::-1]", f"{matrix}[::-1, {index}]", f"{one}[::-1]", f"{one}[:]",
                                    f"{matrix}[{index}].copy()", *["rows[n - 2]"] * self.slots])
            if self.draw.random() < 0.3:
                read = self.draw.choice([other, f"{matrix}[{self.index()}]", f"{matrix}[:, {self.index()}]"])
                return f"add({one}, {read}, {self.number()})"
            if self.draw.random() < 0.35:
                second = self.draw.choice([f"{matrix}[{self.index()}]", f"{matrix}[:, {self.index()}]", other,
                                           f"{matrix}[{self.index()}]", f"{matrix}[::-1][{self.index()}]"])
                return self.draw.choice([
                    f"exchange({one}, {second})", f"rotate({one}, {second}, {self.number()})",
                    f"both({one}, {second}, {self.index()})", f"exchange({matrix}[{index}, :2], {matrix}[0, 2:])",
                    f"{name} = rotate({one}, {second}, {self.number()})", f"exchange({other}[:2], {other}[2:])"])
            if self.draw.random() < 0.3:
                return f"{name} = renew({one}, {self.index()}, {self.number()})"
        return self.draw.choice([
            f"swap({one}, {index}, {self.index()})", f"put({one}, {index}, {self.number()})",
            f"s = put({one}, {index}, {self.number()})", f"fill({one}, n, {self.number()})",
            f"{name} = fill({one}, 2, {self.number()})", f"both({one}, {other}, {index})", f"nested({index})",
            f"both(w={one}, i={index}, u={other})", f"put(v={self.number()}, u={one}, i={index})"])

    def assignment(self) -> str:
        kind, operator = self.draw.random(), self.draw.choice(["=", "=", "+=", "*="])
        one, other = self.draw.choice(self.vectors), self.draw.choice(self.vectors)
        matrix, index = self.draw.choice(self.matrices), self.index()
        if self.draw.random() < 0.2:
            return self.change(operator)
        if self.calls and self.draw.random() < 0.25:
            return self.call()
        if self.slots and self.draw.random() < 0.15:
            at_row = f"rows[{self.draw.choice(['n - 2', '0'])}]"
            return self.draw.choice([
                f"o.put({index}, {self.number()})", f"{at_row}[{index}] {operator} {self.number()}",
                f"{one} = {at_row}", f"{at_row} = {one}", "rows.reverse()"])
        if kind < 0.25:
            return f"{one}[{index}] {operator} {self.number()}"
        if kind < 0.38:
            return f"{matrix}[{index}{self.draw.choice([', ', ', ', ']['])}{self.index()}] {operator} {self.number()}"
        if kind < 0.46:
            part = self.vector()
            part = f"{part}.copy()" if part.startswith(matrix) else part  # NumPy itself overwrites a row by a column
            return f"{matrix}[{self.draw.choice([index, ':, ' + index])}] {operator} {part}"
        if kind < 0.52:
            return f"{one}[{self.draw.choice([':', '1:', ':-1', '::2'])}] {operator} {self.number()}"
        if kind < 0.57:
            array = self.draw.choice([one, matrix])
            return f"{array}[{array} {self.draw.choice('<>')} {self.number()}] {operator} {self.number()}"
        if kind < 0.62:
            return f"{one}[1:] {operator} {other}[:-1]"
        if kind < 0.66:
            return f"{one}[{index}], {other}[{self.index()}] = {self.number()}, {self.number()}"
        if kind < 0.72 and one != other:
            return f"{one}, {other} = {other}, {one}"
        if kind < 0.82:
            if self.draw.random() < 0.2:
                return f"{one} = {self.vector()} if {self.number()} > {self.number()} else {self.vector()}"
            return f"{one} = {self.vector()}"
        if kind < 0.88:
            return f"{matrix} = {self.matrix()}"
        if kind < 0.94:
            return f"{one} {self.draw.choice(['+=', '-='])} {self.vector()}"
        return f"s = {self.number()}"

    def block(self, depth: int, level: int) -> list[str]:
        return [line for _ in range(self.draw.randrange(1, 4)) for line in self.statement(depth, level)]


NESTED = ["    def nested(i):", "        b[i] += x", "        if c[i] > 1:", "            put(c, i, 0.5)",
          "            a[i] = c[0]"]


def source(seed: int, *, slots: bool = False, calls: bool = False, parts: bool = False) -> str:
    writer = Writer(seed, slots=slots, calls=calls, parts=parts)
    calls = writer.calls
    body = [line for _ in range(writer.draw.randrange(3, 7)) for line in writer.statement(2, 1)]
    results = ["a", "b", "c", "m", "k", "s", *(SLOT_VECTORS + SLOT_MATRICES) * slots]
    start = [f"def f{seed}(x, n):", *START, *["    p = c[:n]"] * parts, *SLOTS * slots, *NESTED * calls]
    return "\n".join([*start, *body, f"    return {', '.join(results)}", ""])


KNOWN = '''
def view_of_an_unchanged_matrix(x, n):
    a, m = np.zeros(4), np.ones((4, 4))
    for i in range(n):
        a = m[i]
    a[0] += x
    return a, m

def other_name_in_a_known_branch(x, n):
    a, b, c = np.zeros(4), np.arange(4.0), x * np.ones(4)
    if c[3] < 3.0:
        if 0.5 > a[0]:
            c = b
        else:
            b[3] += 1.0
    b += c[::-1]
    return a, b, c

def reversed_view_in_a_turn(x, n):
    a, b, c = np.zeros(4), np.arange(4.0), x * np.ones(4)
    for i in range(n):
        c = b[::-1]
    b[3] *= a[3]
    return b, c

def other_name_in_an_inner_turn(x, n):
    a, c = np.zeros(4), x * np.ones(4)
    for i in range(n):
        t = 0
        while t < n + 1:
            t += 1
            a = c
            c *= np.arange(4.0)
    return a, c

def row_at_a_traced_index(x, n):
    m = np.ones((4, 4))
    c = m[n] * 1.0
    row = m[n]
    m[3, 3] = m[2, 2] + 3.0
    return row, c, x

def view_beside_a_traced_index(x, n):
    m = np.ones((4, 4))
    a = m[1]
    a[n] *= m[-1, 3] - x
    return a, m

def chosen_by_an_expression(x, n):
    a, b = np.zeros(4), np.ones(4)
    c = a if x > n else b
    c[0] = 5.0
    return a, b, c

def changed_beside_an_expression(x, n):
    a, b = x * np.zeros(4), np.ones(4)
    c = b if x > n else a
    a[0] = 5.0
    return a, b, c

def item_at_a_traced_index(x, n):
    rows = [np.zeros(3), np.ones(3), np.ones(3)]
    row = rows[n]
    row[0] = x
    return rows, row

def assigned_at_a_traced_index(x, n):
    rows, row = [np.zeros(3), np.ones(3), np.ones(3)], x * np.ones(3)
    rows[n] = row
    row[0] = 5.0
    return rows, row

def item_of_a_tuple(x, n):
    a, b = np.zeros(3), x * np.ones(3)
    c = (a, b)[n - 1]
    c[0] = 5.0
    return a, b, c

def sorted_arrays(x, n):
    a, b = np.zeros(3), x * np.ones(3)
    first, second = sorted([a, b], key=lambda array: array[0])
    first[0] = 5.0
    return a, b, second

def name_of_one_side_in_an_item(x, n):
    k, d = np.ones(4), {'u': np.zeros(4)}
    if x > n:
        k[0] = x
    else:
        d['u'] = k
    d['u'][1] = 7.0
    return k, d

def name_of_an_item_that_the_other_side_changes(x, n):
    b, rows = np.ones(4), [np.zeros(4)]
    if x > n:
        rows[0][0] = x
    else:
        b = rows[0]
    rows[0][1] = 7.0
    return b, rows

def view_of_an_item_that_the_other_side_changes(x, n):
    d = {'u': np.zeros(4), 'v': np.ones(4)}
    for i in range(n):
        if x > i:
            d['u'] = d['v'][::-1]
        else:
            d['v'].fill(x)
    return d
'''


def outcome(function: object, args: tuple[float, int]) -> str:
    """Return "right", "wrong" or "refused"."""
    wanted = fxgrad.tree_util.tree_leaves(function(*args))  # type: ignore[operator]
    try:
        program = fxgrad.make_program(python_control_flow(function))(*args)  # type: ignore[arg-type]
        found = fxgrad.tree_util.tree_leaves(program(*args))
    except FxgradError:
        return "refused"
    same = all(np.allclose(one, other, rtol=1e-9, equal_nan=True) for one, other in zip(found, wanted, strict=True))
    return "right" if same else "wrong"


def test_functions_that_were_wrong_are_refused(tmp_path: Path) -> None:
    module = load_source(tmp_path / "known_arrays.py", HEAD + KNOWN)
    names = [name for name in vars(module) if "_" in name and not name.startswith("__")]
    assert len(names) == 15
    assert {name: outcome(getattr(module, name), (1.5, 2)) for name in names} == dict.fromkeys(names, "refused")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_random_functions_give_what_numpy_gives_or_are_refused(tmp_path: Path) -> None:
    seeds = range(80)
    module = load_source(tmp_path / "random_arrays.py", "\n".join([HEAD, *map(source, seeds)]))
    found = {(seed, args): outcome(getattr(module, f"f{seed}"), args) for seed in seeds
             for args in ((1.5, 2), (-0.7, 0), (0.3, 3))}
    assert not [source(seed) for (seed, _), what in found.items() if what == "wrong"]
    assert sum(what == "right" for what in found.values()) > 0.5 * len(found), "most run"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("slots", "calls", "parts"), [(True, False, False), (False, True, False), (True, True, False),
                                                       (False, False, True), (True, False, True)])
def test_random_functions_with_containers_and_calls_give_what_numpy_gives_or_are_refused(
        slots: bool, calls: bool, parts: bool, tmp_path: Path) -> None:
    seeds = range(50)
    sources = {seed: source(seed, slots=slots, calls=calls, parts=parts) for seed in seeds}
    module = load_source(tmp_path / f"random_slots_{slots}_{calls}_{parts}.py", "\n".join([HEAD, *sources.values()]))
    found = {(seed, args): outcome(getattr(module, f"f{seed}"), args) for seed in seeds
             for args in ((1.5, 2), (-0.7, 1), (0.3, 3))}
    assert not [sources[seed] for (seed, _), what in found.items() if what == "wrong"]
    assert sum(what == "right" for what in found.values()) > (0.2 if parts else 0.3) * len(found), "many run"
