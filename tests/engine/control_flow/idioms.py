"""Idioms of Python that compile: each with arguments, the first of which is mapped and differentiated."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import math
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
XS = np.array([3.0, -1.0, 2.0])


def case(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append((function, args))
        return function
    return add


# --- the best so far, sentinels, flags, early exits -----------------------------------------------------------------


@case(XS)
def best_and_its_place(xs):
    best, where = float("inf"), -1
    for i, x in enumerate(xs):
        if x < best:
            best, where = x, i
    return best, where


@case(XS)
def best_is_a_list(xs):
    best = [xs[0], 0]
    for i in range(3):
        current = [xs[i], i]
        if current[0] < best[0]:
            best = current
    best[1] += 1
    return best


@case(XS)
def best_is_changed_in_the_turn(xs):
    best = [xs[0], 0]
    for i in range(3):
        current = [xs[i] - 1, i]
        if current[0] < best[0]:
            best = current
        best[0] *= 1.5
        best.append(best.pop(0))
        best.reverse()
    return best


@case(XS)
def best_is_none_at_first(xs):
    best = None
    for i in range(3):
        if best is None or xs[i] < best[0]:
            best = (xs[i], i)
    return best


@case(2.5)
def best_of_copies(x):
    path = [x]
    best = path
    for i in range(3):
        new = path[:]
        new[0] = new[0] * 0.5 + i
        if new[0] > best[0]:
            best = new
        path = new
    return best, path


@case(1.7)
def leaves_early_with_three_values(x):
    if x < 0:
        return 0.0, x, -1
    for i in range(10):
        x = x * 0.7
        if x < 0.3:
            return x, x * x, i
    return x, 0.0, 10


@case(np.array([[1.0, 2.0], [3.0, 4.0]]), 2.9)
def leaves_two_loops(rows, y):
    for i in range(2):
        for j in range(2):
            if rows[i, j] >= y:
                return i, j, rows[i, j]
    return -1, -1, 0.0


@case(7.0)
def runs_until_it_returns(x):
    n = 0
    while True:
        x = x / 2
        n += 1
        if x < 1:
            return x, n


@case(2.5)
def runs_until_a_flag_is_set(x):
    done, n = False, 0
    while not done:
        x *= 0.5
        n += 1
        if x < 0.1:
            done = True
    return x, n


@case(XS)
def found_or_else(xs):
    for i, x in enumerate(xs):
        if x < -0.5:
            found, square = i, x * x
            where = i
            break
    else:
        found, square = -1, 0.0
        where = found
    return found, square, where


@case(9.0)
def loops_or_else(x):
    while x > 2:
        x = x / 2
        if x < 4.2:
            if x > 4:
                kind = 1.0
                break
            kind = 2.0
            break
    else:
        kind = 3.0
    return kind * x


@case(XS)
def previous_item(xs):
    previous, total = None, 0.0
    for x in xs:
        if previous is not None and x > previous:
            total += x - previous
        previous = x
    return total


# --- lists and dicts ------------------------------------------------------------------------------------------------


@case(XS)
def bubble_sort(xs):
    a = list(xs)
    for i in range(3):
        for j in range(2 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
    return a


@case(2.5, 3)
def nested_lists_by_traced_numbers(x, n):
    grid = [[0.0] * 3 for _ in range(3)]
    for i in range(n):
        for j in range(n):
            grid[i][j] += x * i + j
        grid[-1 - i][0] = grid[i][1]
    return grid


@case(2.5, 2)
def lists_three_deep(x, n):
    cube = [[[0.0, x], [1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]]
    for i in range(n):
        cube[i][1 - i][i] *= x
    return cube


@case(2.5, 3)
def adds_to_a_list_and_takes_away(x, n):
    window = other = [0.0, x]
    for i in range(n):
        window += [x * i]
        window.pop(0)
    return other, window


@case(XS)
def priorities(xs):
    queue = [(xs[0], 0), (xs[1], 1), (xs[2], 2)]
    total = 0.0
    while queue:
        best = 0
        for i in range(1, len(queue)):
            if queue[i][0] < queue[best][0]:
                best = i
        cost, node = queue.pop(best)
        total = 2 * total + cost * (node + 1)
    return total


@case(XS)
def finds_in_lists(xs):
    values = [4.0, xs[0], xs[1], xs[2]]
    place = values.index(xs[1])
    count = values.count(xs[2])
    values.remove(xs[0])
    values.sort(reverse=True)
    return place, count, values


@case(2.5)
def counts_by_key(x):
    counts = {"low": 0, "high": 0}
    for i in range(5):
        if x > i:
            counts["high"] += 1
        else:
            counts["low"] = counts.get("low", 0) + 1
    return counts


@case(2.5)
def dicts_keep_the_order_of_their_keys(x):
    made = {}
    if x > 1:
        made["b"] = x
        made["a"] = 1.0
    else:
        made["b"] = -x
        made["a"] = 2.0
    state = {"z": x, "y": 0}
    while state["z"] > 1:
        state = {"z": state["z"] / 2, "y": state["y"] + 1}
    return [*made.values()], [*state.values()]


@case(2.5)
def list_in_a_tuple(x):
    state = (x, [0.0, 0.0])
    while state[0] > 1:
        state[1][0] += 1
        state = (state[0] / 2, state[1])
    return state


@case(XS)
def unpacks(xs):
    first, *rest = xs
    for x, (y, z) in [(first, (1.0, rest[0])), (rest[1], (2.0, first))]:
        if x < z:
            first += x * y
    return first, rest


@case(XS)
def ring(xs):
    last = deque([xs[0], 1.0], maxlen=2)
    for _ in range(3):
        last.append(last[1] * 2 if last[0] > 1 else 0.0)
    return [*last]


# --- builtins -------------------------------------------------------------------------------------------------------


@case(XS)
def extremes_of_arrays(xs):
    return max(xs) - min(xs), min(*xs), max([x for x in xs], default=0.0)  # noqa: C416


@case(XS)
def extremes_by_key(xs):
    where = max(range(3), key=lambda i: xs[i])
    return where, min(xs, key=abs), max((xs[0], 1), (xs[1], 2), (2.5, 0)), min([-xs[0], 2], [xs[0] - 5.5, 1])


@case(XS)
def sorts(xs):
    pairs = sorted([(xs[2], 0), (xs[0], 1), (xs[1], 2)])
    return sorted(xs), sorted(xs, reverse=True), pairs, sorted(range(3), key=lambda i: -xs[i]), sum(xs) / len(xs)


@case(np.array([1.0, 2.0, 1.0, 2.0]))
def sorts_equal_keys_in_order(xs):
    pairs = [(x, i) for i, x in enumerate(xs)]
    return sorted(pairs, key=lambda pair: pair[0]), sorted(pairs, key=lambda pair: pair[0], reverse=True)


@case(XS, 2.0)
def looks_for_a_value(xs, y):
    a = 2.0 if y in xs else 3.0
    b = 2.0 if y not in [xs[0], xs[1]] else 3.0
    return a * y, b * y, 1.0 if xs[0] in (3.0, 7.0) else 0.0


@case(XS)
def any_and_all(xs):
    if any(x > 2.9 for x in xs) and not all(xs > 0):
        return xs[0] * 2
    return xs[1] * 3


@case(-2.4567)
def numbers(x):
    quotient, rest = divmod(x, 3.0)
    if rest > 0.5:
        quotient += abs(x)
    return quotient + round(x, 2), bool(x > 1), float(int(x)) + round(x)


@case(2.5)
def functions_of_math(x):
    if math.isnan(x) or math.isinf(x):
        return 0.0
    return math.sqrt(abs(x)) + math.atan2(x, 2.0) + math.pow(x * x, 1.5) + math.log(x * x + 1.0, 2.0) + math.floor(x)


@case(2.5, 5)
def ranges_that_go_down(x, n):
    total = 0.0
    for i in range(n, 0, -2):
        total = total * x + i
    for i in range(n - 1, -1, -1):
        total += x ** i
    return total


def clip(low: Any, high: Any, x: Any) -> Any:
    if x < low:
        return low
    if x > high:
        return high
    return x


@case(XS)
def functions_as_values(xs):
    unit = functools.partial(clip, 0.0, 1.0)
    square = lambda t: t * t if t > 1 else t
    largest = functools.reduce(lambda a, b: a if a > b else b, xs)
    return unit(xs[2]) + unit(xs[1]), [*map(square, xs)], [*map(unit, xs)], largest


@case(2.5)
def texts_of_known_values(x):
    for i in range(2):
        key = f"layer {i:02d}"
        if x > i:
            x = x * len(key)
    return x


@case(9.0)
def walrus_and_del(x):
    n, spare = 0, x
    while (x := x / 2) > 1:
        n += 1
    if x > 0.6:
        kept = spare
        del spare
        x = kept
    return x + n


@case(5.0)
def set_first_in_each_turn(x):
    last, word, pair, shape = None, 0, [0.0], np.zeros(2)
    while True:
        last, word, pair, shape = 3.0 * x, "half", [x, x + 1.0], np.ones(3) * x
        x = x * 0.5
        if x < 0.1:
            break
    pair[0] += 1.0
    for row in np.arange(4.0) * last:
        pair = (row, row * 2.0)
        if row > 0.2:
            break
    return last * (2.0 if word == "half" else 1.0), pair, shape


@case(0.7, 3)
def over_places_of_true_elements(x, n):
    values, total, last = np.sin(np.arange(6.0) * x), 0.0, -1
    for i in np.nonzero(values > 0.2)[0]:
        total += values[i] * i
        if total > 2.0:
            continue
        last = i
    for i in np.where(values < n)[0]:
        if i > 3:
            break
        values[i] *= 2.0
    for k in np.flatnonzero(np.floor(values * 2)):
        total += k
    for k in np.nonzero(np.arange(4) % 2)[0]:
        total += k * x
    table = np.cos(np.outer(np.arange(3.0), np.arange(2.0)) * x)
    for i, j in np.argwhere(table > 0.5):
        total += table[i, j] * (i + 1) + j
    for i, j in zip(*np.nonzero(table < 0.8)):  # noqa: B905  (of one length)
        table[i, j] -= i * x
        if j > n - 3:
            break
    for k, i in enumerate(np.flatnonzero(values > 0)):
        total += (k + 1) * values[i]
    for i, j, k in np.argwhere(values.reshape(1, 2, 3) < 0.5):
        total += i + 2 * j + x * k
    for i in reversed(np.where(values > 0)[0]):
        for j in np.nonzero(values < values[i])[0]:
            if j > i:
                break
            total += values[j]
        else:
            total *= 0.5
    for _ in np.nonzero(values[:0] > 0)[0]:
        total += 1.0
    places, others = np.nonzero(table > 0)
    for k in range(len(places)):
        total += places[k] * others[k]
    return values, total, last, table


@case(0.7, 2)
def elements_that_a_mask_chooses(x, n):
    v, w, total = np.sin(np.arange(7.0) * x), np.cos(np.outer(np.arange(3.0), np.arange(4.0)) * x), 0.0
    chosen = v[v > -0.1]
    for value in v[v > 0]:
        total += value * value
        if total > n:
            break
    found = [len(chosen), chosen.sum(), np.mean(v[v > -0.5]), np.max(chosen), np.dot(chosen, chosen),
             w[w > 0.2].sum(), np.sum(w[w[:, 1] > 0.5], axis=0), len(np.nonzero(v > 0)[0]), sum(v[v < 0.2]),
             np.flatnonzero(v > 0).sum(), np.where(v > 0.1)[0].max()]
    mask, other = v > 0.1, np.arange(7.0) * x
    v[mask] = 2.0 * v[mask] + 1.0
    v[v < 0.5] = 0.1 * v[v < 0.5]
    other[mask] += v[mask]
    return found, total, v, other


# --- objects --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Ball:
    height: Any
    speed: Any


@dataclasses.dataclass(frozen=True)
class State:
    value: Any
    turns: Any


class Point(NamedTuple):
    x: Any
    y: Any


class Light(enum.IntEnum):
    RED = 0
    GREEN = 1
    YELLOW = 2


class Crossing:
    def __init__(self) -> None:
        self.light, self.kind, self.turns = Light.RED, "crossing", 0

    def step(self, x: Any) -> None:
        if self.light is Light.RED:
            if x > 0:
                self.light = Light.GREEN
                self.turns += 1
        elif self.light is not Light.YELLOW:
            if x < 0:
                self.light = Light.YELLOW
        else:
            self.light = Light.RED


class Halving:
    def __init__(self, x: Any) -> None:
        self.x, self.seen = x, [0, 0]

    def step(self) -> None:
        if self.x > 1:
            self.x = self.x / 2
            self.seen[0] += 1
        else:
            self.seen[1] += 1

    def __call__(self, x: Any) -> Any:
        return self.x if x > self.x else x


@case(2.5)
def dataclass_changes_in_branches(height):
    ball = Ball(height, 0.0)
    other = ball
    for _ in range(5):
        ball.height += 0.1 * ball.speed
        ball.speed -= 1.0
        if ball.height < 0.5:
            ball.height = -ball.height
            other.speed = -0.5 * ball.speed
    return ball.height, other.speed


@case(2.5)
def dataclass_is_replaced(height):
    ball, best = Ball(height, 0.0), Ball(0.0, 0.0)
    for _ in range(5):
        ball = dataclasses.replace(ball, height=ball.height + 0.1 * ball.speed, speed=ball.speed - 1.0)
        if ball.height > best.height:
            best = copy.copy(ball)
    return ball.height, ball.speed, best.height


@case(2.5)
def frozen_dataclass_in_a_loop(x):
    state = State(x, 0)
    while state.value > 0.5:
        state = State(state.value * 0.7, state.turns + 1)
    return state.value, state.turns


@case(0.7)
def numbers_of_an_enumeration(x):
    light, timer, log = Light.RED, 0.0, []
    for k in range(8):
        timer += abs(np.sin(k * x))
        if light == Light.RED and timer > 1.0:
            light, timer = Light.GREEN, 0.0
        elif light is Light.GREEN and timer > 0.8:
            light, timer = Light.YELLOW, 0.0
        elif light is Light.YELLOW and timer > 0.2:
            light, timer = Light.RED, 0.0
        log.append(int(light))
    other = Light.GREEN if x > 1 else Light.YELLOW
    return log, timer, 1.5 * other, other is Light.GREEN, other is not Light.RED


@case(1.3, 5)
def members_of_an_enumeration_in_loops(x, n):
    crossing, light, y = Crossing(), Light.RED, x
    for k in range(n):
        crossing.step(np.sin(3 * k * x))
        if y > 1:
            light = Light.GREEN
        elif light is Light.GREEN:
            light = Light.YELLOW
        y = y * np.array([0.5, 2.0, 3.0])[light] * 0.3
    match light:
        case Light.RED:
            y += 1
        case Light.GREEN:
            y += 2
        case _:
            y += 3
    return int(crossing.light), crossing.turns, len(crossing.kind), y


@case(2.6)
def named_tuple(x):
    point = Point(x, 0.0)
    point = point._replace(y=x * 2) if x > 1 else Point(0.0, x)
    while point.y < 10:
        point = Point(point.x * 2, point.y + 1)
    return point.x * point.y


@case(9.0, 5)
def methods_set_attributes(x, n):
    first, second = Halving(x), Halving(x - 4)
    while first.x > 1:
        first.step()
    for _ in range(n):
        second.step()
    return first.x, second.x, first.seen, second.seen, first(0.6)


@case(5.0)
def objects_made_in_a_block(x):
    total = 0.0
    while x > 1:
        ball = Ball(x, 0.0)
        ball.speed = x * 2
        total += ball.speed
        x = x / 2
    return total
