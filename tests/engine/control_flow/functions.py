"""Sixty functions with Python's control flow on values, of the kind that numerical code has, and their fates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fxgrad.numpy as fnp


class Case(NamedTuple):
    """A function with arguments; `smooth` if its gradient in the first exists; `refusal` is the text of its refusal."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kind: str
    smooth: bool = True
    refusal: str = ""


# --- root finders and fixed points ----------------------------------------------------------------------------------


def newton_root(a):
    x = a
    for _ in range(60):
        step = (x * x - a) / (2.0 * x)
        x = x - step
        if abs(step) < 1e-12:
            break
    return x


def bisection(c):
    low, high = 0.0, 2.0
    while high - low > 1e-10:
        middle = 0.5 * (low + high)
        if middle ** 3 + middle - c > 0:
            high = middle
        else:
            low = middle
    return 0.5 * (low + high)


def secant(a):
    x0, x1 = 1.0, 2.0
    f0, f1 = x0 * x0 - a, x1 * x1 - a
    n = 0
    while abs(f1) > 1e-12 and n < 50:
        x0, x1 = x1, x1 - f1 * (x1 - x0) / (f1 - f0)
        f0, f1 = f1, x1 * x1 - a
        n += 1
    return x1


def regula_falsi(a):
    low, high = 0.0, 4.0
    x = low
    for _ in range(200):
        f_low, f_high = low * low - a, high * high - a
        x = (low * f_high - high * f_low) / (f_high - f_low)
        f = x * x - a
        if abs(f) < 1e-9:
            return x
        if f * f_low > 0:
            low = x
        else:
            high = x
    return x


def fixed_point(a):
    x = a
    delta = np.inf
    while delta > 1e-11:
        new = np.cos(x) * a
        delta = abs(new - x)
        x = new
    return x


def kepler(mean, eccentricity):
    e = mean if eccentricity < 0.8 else math.pi
    while True:
        change = (e - eccentricity * np.sin(e) - mean) / (1.0 - eccentricity * np.cos(e))
        e = e - change
        if abs(change) < 1e-12:
            return e


def halley(a):
    x, n = 1.0, 0
    while n < 20:
        f = x ** 3 - a
        if abs(f) < 1e-13:
            break
        x = x - 2.0 * f * 3.0 * x * x / (2.0 * (3.0 * x * x) ** 2 - f * 6.0 * x)
        n += 1
    return x


def lambert_w(z):
    w = np.log(1.0 + z)
    for _ in range(30):
        e = np.exp(w)
        step = (w * e - z) / (e * (w + 1.0))
        w = w - step
        if not abs(step) > 1e-13:
            break
    return w


def golden_section(c):
    ratio = 0.6180339887498949
    low, high = -5.0, 5.0
    while high - low > 1e-6:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if (left - c) ** 2 < (right - c) ** 2:
            high = right
        else:
            low = left
    return 0.5 * (low + high)


def arithmetic_geometric_mean(a, b):
    while abs(a - b) > 1e-13 * abs(a):
        a, b = 0.5 * (a + b), np.sqrt(a * b)
    return a


# --- integrators ----------------------------------------------------------------------------------------------------


def adaptive_euler(y):
    t, h = 0.0, 0.1
    while t < 1.0:
        if t + h > 1.0:
            h = 1.0 - t
        whole = y - h * y
        half = y - 0.5 * h * y
        twice = half - 0.5 * h * half
        if abs(twice - whole) < 1e-3:
            t = t + h
            y = twice
            h = h * 1.3
        else:
            h = h * 0.5
    return y


def bouncing_ball(height, steps):
    position, speed = height, 0.0
    for _ in range(steps):
        speed = speed - 0.0981
        position = position + 0.01 * speed
        if position < 0.0:
            position = -position
            speed = -0.8 * speed
    return position


def time_to_threshold(x, threshold):
    t = 0.0
    while x < threshold:
        x = x * 1.1
        t += 0.1
    return t


def runge_kutta_until(y, stop):
    t = 0.0
    while t < stop:
        k1 = np.sin(y)
        k2 = np.sin(y + 0.05 * k1)
        y = y + 0.1 * k2
        t = t + 0.1
    return y


def simpson_converged(a):
    n, old, new = 2, 0.0, 1.0
    while abs(new - old) > 1e-8 and n < 200:
        old = new
        h = a / n
        total = 0.0
        for k in range(n):
            left = k * h
            total = total + (np.exp(-left) + 4.0 * np.exp(-(left + 0.5 * h)) + np.exp(-(left + h))) * h / 6.0
        new = total
        n = n * 2
    return new


def leaky_neuron(current, steps):
    v, spikes, waiting = 0.0, 0, 0
    for _ in range(steps):
        if waiting > 0:
            waiting -= 1
            continue
        v = v + 0.1 * (current - v)
        if v > 1.0:
            v = 0.0
            spikes += 1
            waiting = 3
    return v, spikes


def pendulum_period(angle):
    speed, t = 0.0, 0.0
    while angle > 0.0 and t < 10.0:
        speed -= 0.01 * np.sin(angle)
        angle += 0.01 * speed
        t += 0.01
    return t * 4


# --- series, recurrences, number theory -----------------------------------------------------------------------------


def exponential_series(x):
    term, total, n = 1.0, 1.0, 1
    while abs(term) > 1e-15 * abs(total):
        term = term * x / n
        total = total + term
        n += 1
    return total


def continued_fraction(x, depth):
    value = 1.0
    for k in reversed(range(depth)):
        value = 1.0 + (k + 1) * x / value
    return value


def greatest_common_divisor(a, b):
    while b:
        a, b = b, a % b
    return a


def collatz_steps(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def integer_power(x, n):
    result = 1.0
    while n > 0:
        if n % 2 == 1:
            result = result * x
        x = x * x
        n = n // 2
    return result


def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def is_prime(n):
    if n < 2:
        return False
    k = 2
    while k * k <= n:
        if n % k == 0:
            return False
        k += 1
    return True


def mandelbrot(re, im):
    x = y = 0.0
    n = 0
    while n < 50 and x * x + y * y < 4.0:
        x, y = x * x - y * y + re, 2.0 * x * y + im
        n += 1
    return n


def harmonic_until(limit):
    total, k = 0.0, 0
    while (total := total + 1.0 / (k + 1)) < limit:
        k += 1
    return total, k


def bessel_j0(x):
    if abs(x) < 3.0:
        q = 0.25 * x * x
        term = total = 1.0
        for k in range(1, 30):
            term = -term * q / (k * k)
            total = total + term
            if abs(term) < 1e-14:
                break
        return total
    return np.sqrt(0.6366197723675814 / x) * np.cos(x - 0.7853981633974483)


def sine_reduced(x):
    while x > math.pi:
        x = x - 2.0 * math.pi
    while x < -math.pi:
        x = x + 2.0 * math.pi
    return x - x ** 3 / 6.0 + x ** 5 / 120.0


# --- piecewise functions --------------------------------------------------------------------------------------------


def huber(x):
    if abs(x) <= 1.0:
        return 0.5 * x * x
    return abs(x) - 0.5


def tax(income):
    if income < 10.0:
        return 0.0 * income
    elif income < 40.0:
        return 0.2 * (income - 10.0)
    else:
        due = 6.0 + 0.4 * (income - 40.0)
    return due


def smooth_step(x):
    return 0.0 if x < 0.0 else 1.0 if x > 1.0 else x * x * (3.0 - 2.0 * x)


def inside_ring(x, y):
    return 1.0 < x * x + y * y <= 4.0 and not (x < 0 or y < 0)


def activation(x, kind):
    match kind:
        case 0:
            y = x
        case 1 | 2:
            y = np.tanh(x)
        case k if k > 10:
            y = x * k
        case _:
            y = -x
    return y


def safe_log(x):
    return np.log(x) if x > 0 else 0.0


def quadratic_root(b, c):
    disc = b * b - 4.0 * c
    if disc < 0.0:
        return -0.5 * b, np.sqrt(-disc) * 0.5
    root = np.sqrt(disc)
    sign = 1.0 if b >= 0.0 else -1.0
    q = -0.5 * (b + sign * root)
    return q, c / q


def clamp_all(x, y, z):
    return min(max(x, y), z)


def median_of_three(a, b, c):
    if a > b:
        a, b = b, a
    if b > c:
        b, c = c, b
    if a > b:
        a, b = b, a
    return b


# --- search in arrays -----------------------------------------------------------------------------------------------


def binary_search(values, wanted):
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def first_above(values, limit):
    for k, value in enumerate(values):
        if value > limit:
            return k
    return -1


def interpolate(xs, ys, x):
    k = 0
    while k < len(xs) - 2 and xs[k + 1] < x:
        k += 1
    slope = (ys[k + 1] - ys[k]) / (xs[k + 1] - xs[k])
    return ys[k] + slope * (x - xs[k])


def longest_run(bits):
    best = run = 0
    for bit in bits:
        if bit:
            run += 1
            best = max(best, run)
        else:
            run = 0
    return best


def tree_lookup(x, feature, threshold, left, right, value):
    node = 0
    while left[node] >= 0:
        node = left[node] if x[feature[node]] < threshold[node] else right[node]
    return value[node]


def count_in_order(values):
    for k, (one, other) in enumerate(zip(values[:-1], values[1:], strict=True)):  # noqa: B007, RUF007
        if one > other:
            break
    else:
        return len(values)
    return k + 1


def insertion_sort(values):
    values = fnp.asarray(values)
    n = values.shape[0]
    for i in range(1, n):
        j = i
        while j > 0 and values[j - 1] > values[j]:
            one, other = values[j - 1], values[j]
            values = values.at[j - 1].set(other).at[j].set(one)
            j -= 1
    return values


def power_iteration(matrix):
    v = matrix[0] / np.sqrt(np.sum(matrix[0] ** 2))
    old, value = 0.0, 1.0
    while abs(value - old) > 1e-10:
        w = matrix @ v
        old, value = value, np.sqrt(np.sum(w * w))
        v = w / value
    return value


def conjugate_gradient(b, matrix):
    x = 0.0 * b
    r = p = b
    rr = np.sum(r * r)
    while rr > 1e-16:
        ap = matrix @ p
        alpha = rr / np.sum(p * ap)
        x, r = x + alpha * p, r - alpha * ap
        new = np.sum(r * r)
        p, rr = r + new / rr * p, new
    return np.sum(x * x)


# --- dynamic programming, games, simulations ------------------------------------------------------------------------


def edit_distance(one, other, n, m):
    row = fnp.arange(8)
    for i in range(1, n + 1):
        diagonal = row[0]
        row = row.at[0].set(i)
        for j in range(1, m + 1):
            above = row[j]
            if one[i - 1] == other[j - 1]:
                cost = diagonal
            else:
                cost = 1 + min(diagonal, above, row[j - 1])
            diagonal = above
            row = row.at[j].set(cost)
    return row[m]


def knapsack(weights, values, capacity):
    best = fnp.zeros(16)
    for weight, value in zip(weights, values, strict=True):
        c = capacity
        while c >= weight:
            candidate = best[c - weight] + value
            if candidate > best[c]:
                best = best.at[c].set(candidate)
            c -= 1
    return best[capacity]


def maximum_subarray(values):
    best = current = values[0]
    for value in values[1:]:
        current = value if current < 0 else current + value
        best = max(best, current)
    return best


def game_of_life(board, generations):
    n = board.shape[0]
    for _ in range(generations):
        around = 0 * board
        for di in (-1, 0, 1):
            for dj in (-1, 0, 1):
                if di or dj:
                    around = around + np.roll(np.roll(board, di, 0), dj, 1)
        board = fnp.where((around == 3) | ((board == 1) & (around == 2)), 1, 0)
        if np.sum(board) == 0:
            break
    return np.sum(board), n


def queue_waits(arrivals, services):
    free, total = 0.0, 0.0
    for arrival, service in zip(arrivals, services, strict=True):
        if arrival < free:
            total += free - arrival
            free = free + service
        else:
            free = arrival + service
    return total


def random_walk_exit(seed, limit):
    state, position, steps = seed, 0, 0
    while abs(position) < limit and steps < 500:
        state = (1103515245 * state + 12345) % 2147483648
        position += 1 if state // 65536 % 2 else -1
        steps += 1
    return position, steps


def accepted_by_rejection(uniforms):
    k, n = 0, len(uniforms) // 2
    x = uniforms[0]
    while k < n:
        x, y = uniforms[2 * k], uniforms[2 * k + 1]
        if x * x + y * y <= 1.0:
            break
        k += 1
    return x, k


def elevator(calls, start):
    floor, moved = start, 0
    for call in calls:
        while floor != call:
            floor += 1 if call > floor else -1
            moved += 1
    return moved


def halve_until_small(x):
    def small(v):
        return v < 1.0

    def halved(v):
        return v / 2

    n = 0
    while not small(x):
        x = halved(x)
        n += 1
    return x, n


def gradient_descent(x):
    rate, value = 1.0, (x - 3.0) ** 2
    for _ in range(100):
        slope = 2.0 * (x - 3.0)
        if slope * slope < 1e-14:
            break
        trial = x - rate * slope
        while (trial - 3.0) ** 2 > value - 0.3 * rate * slope * slope:
            rate = rate * 0.5
            trial = x - rate * slope
        x, value = trial, (trial - 3.0) ** 2
    return x


# --- refused --------------------------------------------------------------------------------------------------------


def growing_list(x):
    path = [x]
    while x > 1.0:
        x = x / 2
        path.append(x)
    return path


def growing_array(x, n):
    for _ in range(n):
        x = np.concatenate([x, x])
    return x


def recursive_ackermann(n):
    if n < 1:
        return n
    return recursive_ackermann(n - 1) + 1


def checked_root(x):
    if x < 0:
        raise ValueError("x must not be negative")
    return np.sqrt(x)


def asserted_root(x):
    assert x >= 0, "x must not be negative"
    return np.sqrt(x)


def found_or_none(values, wanted):
    for k, value in enumerate(values):
        if value == wanted:
            return k
    return None


def memoized(x, seen):
    if x > 0:
        seen["last"] = x
    return x


def unset_on_one_side(x):
    if x > 0:
        label = 1.0
    return label * x


SORTED = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
MATRIX = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]])
TREE = (np.array([0, 1, 0, 0, 0]), np.array([0.5, 0.3, 0.0, 0.0, 0.0]), np.array([1, 3, -1, -1, -1]),
        np.array([2, 4, -1, -1, -1]), np.array([0.0, 0.0, 7.0, 8.0, 9.0]))
GLIDER = np.zeros((6, 6), int)
GLIDER[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = 1
ROOTS, STEPS, SERIES, PIECES, ARRAYS, PROCESSES, REFUSED = (
    "root finder", "integrator", "series", "piecewise", "search", "process", "refused")

CASES = [
    Case(asserted_root, (2.0,), ROOTS),
    Case(checked_root, (2.0,), ROOTS),
    Case(newton_root, (2.0,), ROOTS), Case(bisection, (5.0,), ROOTS), Case(secant, (2.0,), ROOTS),
    Case(regula_falsi, (2.0,), ROOTS), Case(fixed_point, (0.7,), ROOTS), Case(kepler, (1.0, 0.3), ROOTS),
    Case(kepler, (1.0, 0.9), ROOTS), Case(halley, (2.0,), ROOTS), Case(lambert_w, (1.5,), ROOTS),
    Case(golden_section, (1.3,), ROOTS), Case(arithmetic_geometric_mean, (1.0, 2.0), ROOTS),
    Case(adaptive_euler, (1.0,), STEPS), Case(bouncing_ball, (1.0, 120), STEPS),
    Case(time_to_threshold, (1.0, 3.0), STEPS), Case(runge_kutta_until, (0.4, 2.05), STEPS),
    Case(simpson_converged, (1.5,), STEPS), Case(leaky_neuron, (1.5, 80), STEPS, False),
    Case(pendulum_period, (0.5,), STEPS),
    Case(exponential_series, (1.2,), SERIES), Case(continued_fraction, (0.5, 8), SERIES),
    Case(greatest_common_divisor, (84, 36), SERIES, False), Case(collatz_steps, (27,), SERIES, False),
    Case(integer_power, (1.1, 13), SERIES), Case(fibonacci, (20,), SERIES, False), Case(is_prime, (91,), SERIES, False),
    Case(is_prime, (97,), SERIES, False), Case(mandelbrot, (-0.1, 0.9), SERIES, False),
    Case(harmonic_until, (3.0,), SERIES, False), Case(bessel_j0, (1.7,), SERIES), Case(bessel_j0, (5.0,), SERIES),
    Case(sine_reduced, (20.0,), SERIES),
    Case(huber, (0.4,), PIECES), Case(huber, (-3.0,), PIECES), Case(tax, (55.0,), PIECES), Case(tax, (5.0,), PIECES),
    Case(smooth_step, (0.3,), PIECES), Case(inside_ring, (1.0, 1.5), PIECES, False), Case(activation, (0.5, 2), PIECES),
    Case(activation, (0.5, 12), PIECES), Case(safe_log, (-1.0,), PIECES), Case(safe_log, (2.0,), PIECES),
    Case(quadratic_root, (3.0, 1.0), PIECES, False), Case(quadratic_root, (1.0, 2.0), PIECES, False),
    Case(clamp_all, (2.0, 0.0, 1.5), PIECES), Case(median_of_three, (3.0, 1.0, 2.0), PIECES),
    Case(binary_search, (SORTED, 5.0), ARRAYS, False), Case(first_above, (SORTED, 3.0), ARRAYS, False),
    Case(first_above, (SORTED, 30.0), ARRAYS, False), Case(interpolate, (SORTED, SORTED ** 2, 5.0), ARRAYS),
    Case(longest_run, (np.array([1, 1, 0, 1, 1, 1, 0]),), ARRAYS, False),
    Case(tree_lookup, (np.array([0.2, 0.9]), *TREE), ARRAYS, False),
    Case(count_in_order, (np.array([1.0, 2.0, 5.0, 3.0]),), ARRAYS, False),
    Case(count_in_order, (SORTED,), ARRAYS, False),
    Case(insertion_sort, (np.array([3.0, 1.0, 2.0, 5.0, 4.0]),), ARRAYS, False),
    Case(power_iteration, (MATRIX,), ARRAYS), Case(conjugate_gradient, (np.array([1.0, 2.0, 3.0]), MATRIX), ARRAYS),
    Case(edit_distance, (np.array([1, 2, 3, 4]), np.array([1, 3, 4, 5, 6]), 4, 5), PROCESSES, False),
    Case(knapsack, (np.array([2, 3, 4]), np.array([3.0, 4.0, 5.5]), 6), PROCESSES, False),
    Case(maximum_subarray, (np.array([1.0, -3.0, 4.0, -1.0, 2.0, -6.0]),), PROCESSES),
    Case(game_of_life, (GLIDER, 4), PROCESSES, False),
    Case(queue_waits, (np.array([0.0, 1.0, 1.5, 9.0]), np.array([2.0, 2.0, 1.0, 1.0])), PROCESSES),
    Case(random_walk_exit, (42, 4), PROCESSES, False),
    Case(accepted_by_rejection, (np.array([0.9, 0.8, 0.7, 0.9, 0.2, 0.4]),), PROCESSES, False),
    Case(elevator, (np.array([3, 1, 7]), 0), PROCESSES, False), Case(halve_until_small, (20.0,), PROCESSES, False),
    Case(gradient_descent, (0.0,), PROCESSES),
    Case(growing_list, (8.0,), REFUSED, False,
         "`path`, which changes at {change}, is 1 item long before a turn of this `while` and 2 items long after it; "
         "the number of turns is traced, so the length must stay. Begin with an array of the greatest length, and "
         "write into it with x[i] = v"),
    Case(growing_array, (np.ones(2), 2), REFUSED, False, "`x` is f64[2] before a turn of this `for` and f64[4] after "
                                                         "it; the number of turns is traced, so the shape must stay. "
                                                         "Begin with an array of the final shape, and fill it with "
                                                         "x[i] = v"),
    Case(recursive_ackermann, (3,), REFUSED, False, "recursive_ackermann calls itself inside the traced `if` at "
                                                    "{test}: both "
         "sides of a traced condition are traced, so the recursion would not end. Write a `while` loop, with a stack "
         "in an array if needed"),
    Case(found_or_none, (SORTED, 4.0), REFUSED, False, "found_or_none returns None on one path and a value on "
                                                       "another, and a traced condition chooses: what is compiled or "
         "batched returns arrays and numbers. In the place of None, return np.nan or another default; or return a flag "
         "beside the value: `return x, True` and `return 0.0, False`"),
    Case(memoized, (1.0, {"last": 0.0}), REFUSED, False, "a dict is changed inside the traced `if` at {test}, which "
                                                         "is traced once and may run never or often. Change a copy "
                                                         "of it: x = dict(x)"),
    Case(unset_on_one_side, (2.0,), REFUSED, False, "`label` is set only if the condition of this `if` is true, and "
                                                    "it is used after. Set it on both sides, or before"),
]
