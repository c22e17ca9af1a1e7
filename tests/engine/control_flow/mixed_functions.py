"""Functions that mix what Python has: nested data, patterns, early exits, closures, objects, kinds of numbers."""

# ruff: noqa: B007, PLW2901

from __future__ import annotations

import enum
import itertools
import math
from dataclasses import dataclass, field

import numpy as np


def dict_state(x, n):
    s = {'pos': x, 'vel': 1.0, 'hits': 0}
    for _ in range(n):
        s['pos'] += s['vel'] * 0.5
        if s['pos'] > 1.2:
            s['vel'] = -s['vel']
            s['hits'] += 1
        else:
            s['vel'] *= 0.9
    return s


def nested_dict(x, n):
    cfg = {'a': {'w': x, 'b': [1.0, 2.0]}, 'k': 0}
    while cfg['a']['w'] < 4 and cfg['k'] < n:
        cfg['a']['w'] += cfg['a']['b'][cfg['k'] % 2]
        cfg['k'] += 1
    return cfg


def match_values(x, n):
    match n:
        case 0:
            return x
        case 1 | 2:
            return x * 2
        case k if k > 4:
            return x - k
        case _:
            return x * x


def match_loop(x, n):
    state = 0
    y = x
    for _ in range(6):
        match state:
            case 0:
                y = y * 1.5
                if y > 1:
                    state = 1
                else:
                    state = 2
            case 1:
                y = y - 0.3
                state = 2
            case 2:
                y = y + 0.1
                state = 0
    return (y, state)


def early_nested(x, n):
    for i in range(n):
        for j in range(4):
            if x * i > j:
                return x * i - j
            if i + j > x * 3 + 4:
                return -x
    return 100.0 * x


def while_true(x, n):
    k = 0
    while True:
        x = x * 1.3 + 0.2
        k += 1
        if x > 5:
            break
        if k > n:
            break
        if x < -1:
            x = -x
            break
    return (x, k)


def for_else(x, n):
    for d in range(2, n + 3):
        if x * d > 3:
            r = d
            break
    else:
        r = -1
    return r * x


def while_else(x, n):
    k = 0
    while k < n:
        if x > 2.5:
            break
        x += 0.4
        k += 1
    else:
        x = -x
    return x


def for_else_nested(x, n):
    c = 0
    for p in range(2, n + 6):
        for d in range(2, p):
            if p % d == 0:
                break
        else:
            c += 1
    return c * x


def swap(x, n):
    a, b = (x, 1.0)
    for _ in range(n):
        a, b = (b, a + b)
        if a > b:
            a, b = (b, a)
    return (a, b)


def rotate3(x, n):
    a, b, c = (x, 2 * x, 3.0)
    while a + b < 20 and n > 0:
        a, b, c = (b, c, a + 1)
        n -= 1
    return (a, b, c)


class Accumulator:

    def __init__(self, x):
        self.s = x
        self.log = [0.0, 0.0]
        self.k = 0

    def add(self, v, scale=2.0):
        self.s += v * scale
        self.log[self.k % 2] = v
        self.k += 1
        return self

    @property
    def mean(self):
        return self.s / (self.k + 1)

    @staticmethod
    def sq(v):
        return v * v

    def __call__(self, v):
        if v > self.s:
            return self.s
        return v


def object_of_a_class(x, n):
    a = Accumulator(x)
    for i in range(n):
        if a.s < 4:
            a.add(i + x)
        else:
            a.add(-1.0, scale=0.5)
    return (a.s, a.log, a.k, a.mean, Accumulator.sq(a.s), a(1.0))


def aug_attr(x, n):
    a = Accumulator(x)
    a.s *= 2
    a.s -= 1
    a.s **= 2
    a.s /= 3
    if a.s > 0.2:
        a.s //= 0.1
        a.log[0] -= x
        a.log[-1] *= 5
    return (a.s, a.log)


@dataclass
class Particle:
    x: float
    v: float = 1.0
    hist: list = field(default_factory=lambda: [0.0])


def dataclass(x, n):
    p = Particle(x)
    while p.x < 3 and n > 0:
        p.v = p.v * 1.1
        p.x += p.v
        p.hist[0] = p.x
        n -= 1
    return (p.x, p.v, p.hist)


def helper(a, b=2.0, *rest, scale=1.0, **kw):
    if a > b:
        return a * scale
    for r in rest:
        if r > a:
            return r
    return b * kw.get('m', 1.0)


def defaults_and_options(x, n):
    return helper(x) + helper(x, 1.0, 3.0, x, scale=2.0) + helper(x, 5.0, m=0.5)


def closure_default(x, n):
    fs = [lambda y, k=k: y * k if y > 0 else y - k for k in range(3)]
    for f in fs:
        x = f(x)
    return x


def fact(n):
    return 1 if n <= 1 else n * fact(n - 1)


def recursion_on_a_known_number(x, n):
    return x * fact(4)


def enum_zip(x, n):
    t = 0.0
    for i, (a, b) in enumerate(zip(np.arange(4.0) * x, [1.0, 2.0, 3.0, 4.0], strict=True)):
        if a > b:
            continue
        t += a * b * i
        if t > 20:
            break
    return (t, i)


def reversed_range(x, n):
    t = 0.0
    for i in reversed(range(n)):
        t = t * x + i
        if t > 30:
            break
    return t


def mixture(x, n):
    t = 0
    for i in range(n):
        if x > i:
            t = t + True
        else:
            t += 0.5
    return t


def mixture_bool(x, n):
    ok = True
    for i in range(n):
        ok = ok and x * i < 2
    return (ok, int(ok), -ok if False else not ok)


def np_known(x, n):
    w = np.linspace(0, 1, 5)
    idx = np.argsort(-w)
    t = 0.0
    for i in idx:
        if w[i] * x > 0.3:
            t += w[i] * x
        elif np.floor(w[i] * 10) % 2:
            t -= 1
    return t


def escape_time(x, n):
    z = complex(0, 0)
    c = complex(-0.4, 0.6) + x * 0.1
    k = 0
    while abs(z) < 2 and k < n + 5:
        z = z * z + c
        k += 1
    return (z, k)


def complex_numbers(x, n):
    z = x + 1j * n
    if z.real > 0:
        z = z.conjugate()
    else:
        z = z * 1j
    return (z, z.imag, z.real * z.imag)


def chain(x, n):
    if -1 < x <= 1 < n:
        return x
    elif 0 < n != 2:
        return 2 * x
    return -x


def ternary(x, n):
    return (x if x > 0 else -x) if n > 2 else (1.0 if x < 0 else 0.0) * x


def listcomp(x, n):
    ys = [v * x if v * x > 0.5 else 0.0 for v in (1.0, -1.0, 2.0)]
    return (sum(ys), max(ys), min(abs(y) for y in ys), [i for i, _ in enumerate(ys)])


def quotients_and_remainders(x, n):
    q, r = divmod(n, 2)
    a, b = divmod(x, 0.7)
    while q > 0:
        q -= 1
        b += q
    return (q, r, a, b, n // 2, n % 3, -n // 2, x // 1, x % 1, round(x), abs(-n), pow(x, 2), n ** 2)


def del_unpack(x, n):
    a, *rest = [x, 2.0, 3.0]
    (p, q), r = ((1.0, x), n)
    if a > rest[0]:
        a, rest[0] = (rest[0], a)
    return (a, rest, p, q, r)


def try_known(x, n):
    try:
        v = {'a': 1}['b']
    except KeyError:
        v = 2
    if x > 0:
        v = v * x
    else:
        v = -x
    return v


def power_by_bits(x, n):
    r = 1.0
    b = x
    e = n
    while e:
        if e & 1:
            r *= b
        b *= b
        e >>= 1
    return r


def int_float(x, n):
    k = int(x * 10)
    f = float(n)
    b = bool(n - 2)
    if k > 5:
        k -= 3
    return (k, f, b, k / 2, k // 2, k * 1.0)


def single_precision(x, n):
    x = np.float32(x)
    y = x * 0.1
    for i in range(n):
        if y > 0.15:
            y = y * 0.1
        else:
            y = y + 0.1
    return y


def continue_mix(x, n):
    t = 0.0
    i = 0
    while i < 10:
        i += 1
        if i % 3 == 0:
            continue
        if i > n + 4:
            break
        if x * i > 3:
            t += 1
            continue
        t += x * i
    return (t, i)


def newton2d(x, n):
    v = np.array([1.0, 1.0])
    for it in range(20):
        F = np.array([v[0] ** 2 + v[1] - x - 3, v[0] - v[1]])
        if np.linalg.norm(F) < 1e-12:
            break
        J = np.array([[2 * v[0], 1.0], [1.0, -1.0]])
        v = v - np.linalg.solve(J, F)
    return v


def not_in(x, n):
    if n in (2, 3):
        x += 1
    if n not in [3, 4]:
        x *= 2
    return x


def none_default(x, n):
    best = None
    for i in range(3):
        c = math.cos(x * i)
        if best is None or c < best:
            best = c
    return best


def queue(x, n):
    q = [(0, x)]
    seen = 0.0
    for _ in range(3):
        d, v = q.pop(0)
        seen += v
        if v > 0.5:
            q.append((d + 1, v * 0.5))
        else:
            q.append((d + 1, v + 1.0))
    return (seen, q)


def matrix_items(x, n):
    A = np.eye(3) * x
    A[0, 1] = 2.0
    for i in range(3):
        for j in range(i):
            if A[i, j] < A[j, i]:
                A[i, j], A[j, i] = (A[j, i], A[i, j])
    return (A, A.T @ A, np.trace(A))


def cumulative(x, n):
    out = np.zeros(6)
    acc = 0.0
    for i, v in enumerate(np.arange(6.0) * x):
        acc = max(0.0, acc + v - 1)
        out[i] = acc
        if acc > 4:
            break
    return out


def lists_of_numbers(x, n):
    weights = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    table = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
    counts = [0.0, 0.0]
    counts[n % 2] = 0.1
    table[n % 3][0] = x
    for k in range(n):
        counts[k % 2] += x * weights[k]
    return weights[n] * x, table, table[n % 3][n % 2], counts, (0.1, x, 0.7)[n % 3], [1, 2, 3][n % 3] / 3


def patterns_of_tuples(x, n):
    match n, x:
        case 3, _:
            y = x + 1
        case (0 | 2, v) as pair:
            y = v * 2 + pair[0]
        case (k, v):
            y = v / k
    match (n % 2, "a"):
        case (1, "b"):
            y = y + 100
        case (0, "a", _):
            y = y + 200
        case (z, "a"):
            y = y - z
        case _:
            y = y * 2
    return y


def flags_are_compared(x, n):
    ready, last = n is not None, None
    for _ in range(2):
        if x > 0.5:
            last = x * n
        else:
            last = x
    if ready is True and last is not None:
        return last
    return x


def numbers_in_loops(x, n):
    total, first, single = 0.0, 0.0, np.float32(0.0)
    for k, weight in zip(range(n), [1.1, 2.1, 3.1, 4.1, 5.1], strict=False):
        total += k * weight * x
    for weight in [0.1, 0.2, 0.3]:
        first += weight
        if first > x:
            break
    for weight in (0.1, 0.2, 0.3):
        single = single + weight
        if single > n - 4.95:
            break
    for k, weight in enumerate((0.1, 0.2, 0.3)):
        if x < k:
            break
        total += k * weight
    return total, first, single


def sorted_numbers(x, n):
    return (sorted([x, 0.1, 0.3]), sorted([(x, 0.7), (0.1, 0.9)]), sorted([0.1, x, 0.3], key=lambda v: -v * n),
            sorted([0.1, 0.2, 0.7], key=lambda v: abs(v - x)))


def types_are_compared(x, n):
    result = 1.0
    if type(x) is float:
        result = x
    if isinstance(n, int) and type(n) is not bool:
        result += 2 * x
    return result, n in range(2, 6), n in range(5, 1, -3)


def complex_of_parts(x, n):
    z = complex(x, n)
    k = 0
    while z.real < 9:
        z = z + complex(1.0, x) + complex(n)
        k += 1
    return (z, k)


def set_unless_returned(x, n):
    for k in range(4):
        if x * k > 3.5:
            return -x, 0.0
        for j in range(2):
            if x * j > 1.3:
                return x * j, 1.0
            last = x + j
        scaled = 2.0 * last
        x = x + 0.25 * n
    return scaled + last, 2.0


def containers_unless_returned(x, n):
    for v in np.array([0.2, 0.5, 0.9]) * x:
        if v > 1.1:
            return v, n
        elif v > 0.6:
            pair, named = [v, 2.0 * v], {"a": x}
        else:
            if v < -0.5:
                return x, n
            pair, named = [x, v], {"a": v}
    return pair[1] + named["a"], n + 1


def sums_of_traced_length(x, n):
    count = int(abs(x) * n)
    table = np.outer(np.arange(1.0, 7.0), np.array([x, 1.0]))
    total = sum(table[k] * k for k in range(count))
    filtered = sum(table[k, 0] for k in range(count) if table[k, 0] < 1.5 if k != 1)
    pairs = sum((a * b for a, b in enumerate(table[:, 0]) if b < 3), 10.0)
    return total, filtered, pairs, sum(1 for v in table[:, 0] if v > 2.0), sum([table[k, 1] for k in range(count)])


def any_and_all_of_traced_length(x, n):
    count = int(abs(x) * n)
    values = np.array([0.1, 0.4, 0.3, 0.9, 2.0, 3.0]) * x
    rising = all(values[k] <= values[k + 1] for k in range(count))
    peak = any(v > 2.0 for v in values if v != values[4])
    seen = any(values[k] == x for k in range(count)), any([x, 0.0]), all([values[0], n])
    best = sum(values[k] for k in range(count) if all(values[j] <= values[k] for j in range(count)))
    return (best if rising else -x), peak, seen


def added_twice(f, x):
    return f(x) + f(2 * x)


def variables_of_the_function_around(x, n):
    calls, best, last, total = 0, -10.0, 0.0, 0.0

    def consider(v):
        nonlocal best, last
        if v > best:
            best = v
            return True
        while last < v + 4:
            last = last + 1.5
        return False

    def square(v):
        nonlocal calls, total
        calls += 1
        for d in (-0.5, 0.5):
            if consider(v * d):
                total += d
        return v * v

    for i in range(n):
        if x > i - 1:
            last = square(x - i)
        elif consider(last):
            total = added_twice(square, x)
    while total < 3 and calls < 9:
        def halved(v):
            nonlocal calls
            calls = calls + 1
            return v / 2
        total += halved(x * x) + 0.5
    return calls, best, last, total


def set_and_left(x, n):
    found, turns = 0.0, 0

    def first_above(limit):
        nonlocal found, turns
        for i in range(n):
            turns = i
            if x * i > limit:
                found = x + i
                if x > 1:
                    found = found * 2
                    return 1.0
        return 2.0
    return first_above(0.9) + first_above(-1.0), found, turns


def extremes_of_traced_length(x, n):
    count = int(abs(x) * n)
    values = np.array([0.1, 0.4, -0.3, 0.9, -2.0, 3.0]) * x
    table = np.outer(values, values + 1.0)
    largest = max((values[k] for k in range(count)), default=-9.0)
    farthest = max([values[k] for k in range(count + 1)], key=lambda v: abs(v - 0.2))
    place = min((k for k in range(count)), key=lambda k: values[k], default=-1)
    pair = min((v, k) for k, v in enumerate(values) if v > -0.8 if k != 3)
    sums = max(sum(table[i, j] for j in range(i)) for i in range(1, n))
    number = len([v for v in values if v > 0.0]) + len([k for k in range(count) if values[k] > 0.2])
    return largest, farthest, place, pair, sums, number, max((v for v in values if v > 99.0), default=x)


def first_items(x, n):
    values = np.array([0.1, 0.4, -0.3, 0.9, -2.0, 3.0]) * x
    place = next((k for k, v in enumerate(values) if v > 0.3), -1)
    value = next(v * v for v in values if v > 0.05 if v < 8)
    by_number = next((k for k in range(int(abs(x) * n)) if values[k] > 0.2), n)
    pivot = next((k for k in range(6) if abs(values[k]) > 2.5), None)
    rest = iter([1.0, 2.0, 3.0, 4.0])
    known = next(v for v in rest if v > 1.5) + next(rest)
    return place, value, by_number, -1 if pivot is None else pivot, known


def loops_without_an_end(x, n):  # noqa: RET503  (the last loop has no end)
    for turns in itertools.count():
        if x > 5 or turns > n:
            break
        x = x * 1.5 + 0.1
    total = 0.0
    for k, v in zip(itertools.count(1), np.array([0.5, 0.2, 3.0, -1.0])):
        if v > x:
            break
        total += k * v
    for k in itertools.count(2, 3):
        total = total * 0.5 + x
        if abs(total) < 0.5 + k:
            return total, k, turns


def names_bound_after_and(x, n):
    """What `:=` binds in a condition after `and` or `or`, as in convergence loops that count their turns."""
    turns, error, total = 0, 1.0, 0.0
    while error > 1e-3 and (turns := turns + 1) < n + 6:
        error = error * 0.3 * abs(x)
    for k in range(n):
        if x * k > 0.5 and (square := x * k * x) < 6 and (cube := square * k) < 20:
            total += square + cube
        elif k > 2 or (shifted := x - k) > 0 or total > 1:
            total -= 0.5 * k
        else:
            total += shifted
        if total > 4 or (half := total / 2) < -1:
            break
        total += 0.1 * half
    while (x > 0 and (doubled := total * 2) < 3 and doubled > -9) or turns < 2:
        total = total + 0.75
        turns += 1
        if x > 1.3 and (double := total * 2) > 2:
            total += 0.01 * double
    return turns, error * x, total * x


def names_bound_in_chains_of_branches(x, n):
    """What a side of several conditions computes, and what `:=` binds there, is in the program once."""
    total, m, table = 0.5, 0.25, np.ones(4) * x
    for k in range(n):
        if x > k and (m := x - k) > 0.7 and (square := m * m) < 5:
            total = total + m * np.sin(square)
        elif x < -0.5 * k or (m := m * 1.5) > 1.2 or (doubled := m * 2.0) < k:
            total = total - np.cos(m) * k
        elif ((k > 1 and (row := table * k).sum() > 3) or (row := table - k)[0] > 0.1) and row[1] < 9:
            row[0] = total
            table[k % 4] = 0.5
            total = total + np.sum(row) * 0.1
        else:
            total = total * np.exp(-doubled * doubled)
        if not (total < 3 or (third := total / 3) > 9):
            total = np.sin(third)
            continue
        if k > 3 and not (total > 0 and (half := total / 2) > 0.3):
            total = total + np.tanh(total)
            break
        if k > 4 or (half := total / 2) > 0.1:
            total = total - 0.3
        else:
            total = total * half
    return total, m, table, x * total


def names_bound_before_raises(x, n):
    t = 1.0
    while t < 9:
        t = t * 1.5
        if n > 6 and (m := t * x) > 3:
            raise ValueError(f"m {m:.3f}")
        if n > 2 or (m := t * x) > -40:
            t = t + np.sin(t * x) ** 2
        else:
            raise KeyError(f"other {m:.3f}")
    return t * x


def optional_names_after_and(x, n):
    best = None
    for k in range(n):
        v = np.sin(x * k + 1.0)
        if best is not None and (gap := v - best) < 0.1:
            best = best + gap * np.exp(gap)
        elif best is None or (twice := best * 2) > 0.2:
            best = v * np.cos(v)
        else:
            best = best - twice * v
    return -9.0 if best is None else best * 2


def numpys_functions_of_lists_of_numbers(x, n):
    values = [x, 0.5 * n, 1.0]
    while sum(values) < 9:
        values = [np.sum([values[0], n]), np.mean(values) + 1.0, np.dot([x, 1.0, n], values) ** 2 + 2.0]
    norm = np.linalg.norm([x, n]) + np.interp(x, [-1.0, 2.0], [values[0], n])
    return norm, np.sqrt([values[2], n]), np.cumsum([x, n]), np.array_equal([x, n], values[:2]), np.max(values)


def arrays_changed_in_place_until_a_break(x, n):
    r, total = np.outer(np.array([x, 1.0, 2.0]), np.ones(2)), 0.0
    residual = r[:, 0] - 0.5
    for k in range(6):
        residual -= 0.25 * n
        if residual @ residual > 9.0:
            break
    for row in r:
        for k in range(n):
            row *= 0.5
            residual += row[0]
            if row[1] < 0.3:
                break
        total += residual[0]
    return r, residual, total


def item_of(row, place):
    return row[place] * 2.0


def lambdas_in_iterables(x, n):
    rows, i = np.outer(np.array([x, 1.0, 2.0]), np.array([1.0, n])), 1
    mapped = [v + 1.0 for v in map(lambda k: item_of(rows[k + i], 0), range(2))]  # noqa: C417
    summed = [v + 1.0 for v in [sum(item_of(rows[k + i], 1) for k in range(n - 1) if k < 2)]]
    return mapped, summed, sum((rows[i, 0] for i in range(2)), start=0.5), sum([rows[k, 0] for k in range(3)], 1.0)



def results_set_before_each_break(x, n):
    k = 0
    while True:
        k += 1
        if k * x > n:
            if x > 1:
                kind, size = 1, x * k
            else:
                kind, size = 2, x
            where = k
            break
        if k > 6:
            kind, where = 0, -1
            size = -x
            break
    for j in range(40):
        if (x + j) ** 2 > 20:
            root = x + j
            break
    else:
        raise ValueError("too few turns")
    for i in range(n):
        if x * i > 1:
            place = i
            break
    else:
        return where, kind, size, root, -1.0
    total = 0.0
    for i in range(3):
        while True:
            k += 1
            if k * x > i + 8:
                hit = k
                break
            if k > 9:
                return where, kind, size, root, total
        total += hit * x
    return where, kind, size * place, root, total + hit


def results_read_by_handlers_and_functions(x, n):
    seen = []

    def note():
        seen.append(found)

    try:
        while True:
            last = n
            if seen:
                raise LookupError
            last = n + 1
            break
    except LookupError:
        last = -last

    def search():
        nonlocal found
        for _ in range(4):
            found = 3.0
            note()
            if len(seen) > 2:
                found = 4.0
                break
        else:
            found = 5.0

    found = 2.0
    search()
    try:
        while True:
            first = n
            if seen:
                raise LookupError
            break
    except LookupError:
        first *= x
    return last, first, found, len(seen)


def whiles_after_caught_exceptions(x, n):
    total, turns = 0.0, 0
    for k in range(3):
        try:
            while True:
                if k == 1:
                    raise LookupError
                total += x
                break
        except LookupError:
            total += 10 * x
        i = 0
        while i < n:
            i, turns = i + 1, turns + 1
            total += x * i
    return total, turns


def arrays_set_before_each_break(x, n):
    total, y = 0.0, abs(x) * 5
    for i in range(3):
        while True:
            y = y / 2
            if y < i:
                pair = np.array([y, 1.0])
                items = [y, 2.0]
                break
            if y < 0.1:
                pair = np.array([1.0, y])
                items = [1.0, y]
                break
        pair[0] += n
        items[1] -= 1.0
        items.append(pair[1])
        total += pair[0] * pair[1] + items[1] * items[2]
    for i in range(4):
        rest = np.zeros(3) * x
        if i > 2:
            break
    else:
        rest = np.ones(3) * x
    rest[0] = x
    return total, pair, rest, items


def names_read_after_exceptions(x, n):
    y, k, notes = x, 0, []
    try:
        while k < 9:
            k += 1
            if k > 3:
                raise LookupError
            y = k * x
            z = y
    except LookupError:
        y = -y
    for i in range(3):
        try:
            last = i
            if i == 1:
                raise KeyError(i)
            last = y
        except KeyError:
            notes.append(last * x)
            continue
        finally:
            notes.append(last + 1.0)
        j = 0
        while j < n:
            j += 1
            if j * x > 3:
                break
        notes.append(j * x)
    return y, z, notes


def nested_loops_left_at_once(x, n):
    for i in range(5):
        for j in range(5):
            if i * j * x > n - 2:
                where = (i, j)
                break
        else:
            continue
        break
    else:
        where = (-1, n)
    return where[0] * x, where[1]


def loops_within_finally(x, n):
    try:
        while True:
            y = x * n
            n += 1
            if n > 6:
                break
    finally:
        z = 3 * x
    return y * z


class Phase(enum.Enum):
    IDLE = 0.5
    RUN = 2.0
    WAIT = -1.0
    DONE = 3.25

    @property
    def rate(self):
        return self.value * 2 + 1

    def following(self):
        if self is Phase.DONE:
            return Phase.IDLE
        return Phase.WAIT if self is Phase.RUN else Phase.DONE


class Mode(enum.Enum):
    SLOW = "slow"
    FAST = "fast"


class Machine:
    def __init__(self, x):
        self.phase, self.mode, self.x, self.count = Phase.IDLE, Mode.FAST, x, 0

    def step(self):
        match self.phase:
            case Phase.IDLE | Phase.WAIT:
                self.x = self.x * 1.25 + 0.1
                if self.x > 1.5:
                    self.phase = Phase.RUN
            case Phase.RUN if self.count < 2:
                self.count += 1
                self.x = self.x - 0.4
                self.mode = Mode.SLOW if self.x > 1 else self.mode
            case Phase.RUN:
                self.phase = Phase.DONE
            case _:
                self.x = np.sin(self.x)


def members_of_enumerations(x, n):
    phase, total, mode = Phase.IDLE, x, Mode.SLOW
    for k in range(n + 3):
        if phase is Phase.IDLE:
            total = total * 1.5
            if abs(total) > 1.2:
                phase = Phase.RUN
        elif phase == Phase.RUN and k % 2 == 0:
            total = total - np.tanh(total)
            phase = Phase.WAIT if total > 0.3 else phase
        elif phase not in (Phase.IDLE, Phase.RUN):
            total = total + 0.25 * phase.value
            phase = phase.following()
        else:
            mode = Mode.FAST
        if phase != Phase.IDLE and total > 3:
            break
    rates = {Phase.IDLE: 0.1, Phase.RUN: x, Phase.WAIT: 0.3, Phase.DONE: 0.4}
    return (total, phase.value, phase.rate, rates[phase] * total, phase in {Phase.RUN, Phase.DONE},
            1.0 if mode is Mode.FAST else x, isinstance(phase, Phase), mode == Phase.IDLE)


def machines_with_phases(x, n):
    machine, other = Machine(x), {"phase": Phase.WAIT, "pair": (Mode.SLOW, x)}
    while machine.phase is not Phase.DONE and machine.count + n < 40 and machine.x > -8:
        machine.step()
        machine.count += machine.x < 0
        if machine.phase == other["phase"] or machine.x > n:
            other["phase"] = Phase.RUN
            other["pair"] = (Mode.FAST, other["pair"][1] * 0.9)
    same = machine.phase is other["phase"]
    return machine.x, machine.count, same, other["pair"][1] * (2 if other["pair"][0] is Mode.FAST else 3), (
        machine.mode is Mode.SLOW)


def phases_returned_early(x, n):
    def phase_of(v):
        for k in range(n):
            if v * k > 1:
                return Phase.RUN
            if v < -0.5:
                return Phase.WAIT
        return Phase.IDLE
    first, second = phase_of(x), phase_of(x - 0.3)
    if first is second:
        return x * first.value
    first, second = second, first
    return (x - first.value) * second.rate


def arrays_returned_early_in_tuples(x, n):
    u, y, turns = np.arange(4.0) * 0.3 + x, x * 0.5, 0
    while turns < 5:
        turns += 1
        if x > y:
            y = y + 0.3
        else:
            u[1] *= x
        if y > x + 0.5:
            return u, y, n
        inner = 0
        while inner < 3 and len(u) < 4:
            u += 1.0
    return u, y, turns
