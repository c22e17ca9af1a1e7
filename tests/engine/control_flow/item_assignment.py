"""Functions that assign items of arrays, as public NumPy code does: dynamic programming, sieves, automata, integrators.

Each stands beside its arguments; `smooth` ones have a gradient in the first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Example(NamedTuple):
    """A function, its arguments, and whether it has a gradient in the first."""

    function: Any
    args: tuple[Any, ...]
    smooth: bool = False


def sieve(n):
    is_prime = np.ones(50, bool)
    is_prime[:2] = False
    i = 2
    while i * i < n:
        if is_prime[i]:
            j = i * i
            while j < n:
                is_prime[j] = False
                j += i
        i += 1
    return np.sum(is_prime[:30])


def fibonacci_table(n):
    table = np.zeros(20, dtype=np.int64)
    table[1] = 1
    for i in range(2, n):
        table[i] = table[i - 1] + table[i - 2]
    return table


def edit_distance(first, second, n, m):
    distance = np.zeros((8, 8), int)
    distance[:, 0] = np.arange(8)
    distance[0, :] = np.arange(8)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            if first[i - 1] == second[j - 1]:
                distance[i, j] = distance[i - 1, j - 1]
            else:
                distance[i, j] = 1 + min(distance[i - 1, j], distance[i, j - 1], distance[i - 1, j - 1])
    return distance[n, m]


def edit_distance_of_two_rows(first, second, n, m):
    previous = np.arange(8)
    current = np.zeros(8, int)
    for i in range(1, n + 1):
        current[0] = i
        for j in range(1, m + 1):
            cost = 0 if first[i - 1] == second[j - 1] else 1
            current[j] = min(current[j - 1] + 1, previous[j] + 1, previous[j - 1] + cost)
        previous, current = current, previous
    return previous[m]


def longest_common_subsequence(first, second, n, m):
    table = np.zeros((9, 9), int)
    for i in range(n):
        for j in range(m):
            if first[i] == second[j]:
                table[i + 1][j + 1] = table[i][j] + 1
            else:
                table[i + 1][j + 1] = max(table[i][j + 1], table[i + 1][j])
    return table


def knapsack(weights, values, capacity):
    best = np.zeros(30)
    for k in range(len(weights)):
        w = capacity
        while w >= weights[k]:
            best[w] = max(best[w], best[w - weights[k]] + values[k])
            w -= 1
    return best[capacity]


def coin_change(coins, amount):
    ways = np.zeros(40, int)
    ways[0] = 1
    for coin in coins:
        for total in range(coin, amount + 1):
            ways[total] += ways[total - coin]
    return ways[amount]


def game_of_life(grid, steps):
    grid = grid.copy()
    for _ in range(steps):
        new = grid.copy()
        for i in range(1, 5):
            for j in range(1, 5):
                alive = np.sum(grid[i - 1:i + 2, j - 1:j + 2]) - grid[i, j]
                if grid[i, j] == 1 and (alive < 2 or alive > 3):
                    new[i, j] = 0
                elif grid[i, j] == 0 and alive == 3:
                    new[i, j] = 1
        grid = new
    return grid


def game_of_life_by_masks(grid, steps):
    grid = grid.copy()
    for _ in range(steps):
        alive = np.zeros_like(grid)
        alive[1:-1, 1:-1] = (grid[:-2, :-2] + grid[:-2, 1:-1] + grid[:-2, 2:] + grid[1:-1, :-2] + grid[1:-1, 2:]
                             + grid[2:, :-2] + grid[2:, 1:-1] + grid[2:, 2:])
        born = (grid == 0) & (alive == 3)
        dies = (grid == 1) & ((alive < 2) | (alive > 3))
        grid[born] = 1
        grid[dies] = 0
    return grid


def heat_equation(diffusivity, steps):
    u = np.zeros(12)
    u[4:8] = 1.0
    for _ in range(steps):
        un = u.copy()
        u[1:-1] = un[1:-1] + diffusivity * (un[2:] - 2 * un[1:-1] + un[:-2])
    return np.sum(u * np.arange(12.0))


def nonlinear_convection(speed, steps):
    u = np.ones(10)
    u[3:6] = 2 * speed
    for _ in range(steps):
        un = u.copy()
        for i in range(1, 10):
            u[i] = un[i] - un[i] * 0.02 * (un[i] - un[i - 1])
    return np.sum(u ** 2)


def gauss_seidel(b, tolerance):
    x = np.zeros(4)
    error = 1.0
    while error > tolerance:
        error = 0.0
        for i in range(4):
            old = x[i]
            total = b
            if i > 0:
                total = total + x[i - 1]
            if i < 3:
                total = total + x[i + 1]
            x[i] = total / 4.0
            error = max(error, abs(x[i] - old))
    return np.sum(x)


def thomas_algorithm(d):
    n = 5
    c_new, d_new, x = np.zeros(n), np.zeros(n), np.zeros(n)
    c_new[0] = 1.0 / 4.0
    d_new[0] = d / 4.0
    for i in range(1, n):
        scale = 4.0 - c_new[i - 1]
        c_new[i] = 1.0 / scale
        d_new[i] = (d * i - d_new[i - 1]) / scale
    x[-1] = d_new[-1]
    for i in range(n - 2, -1, -1):
        x[i] = d_new[i] - c_new[i] * x[i + 1]
    return np.sum(x ** 2)


def runge_kutta_trajectory(rate, steps):
    y = np.zeros(11)
    y[0] = 1.0
    for i in range(steps):
        k1 = -rate * y[i]
        k2 = -rate * (y[i] + 0.05 * k1)
        y[i + 1] = y[i] + 0.1 * k2
    return y[steps]


def verlet(force, steps):
    position, velocity = np.zeros((12, 2)), np.zeros((12, 2))
    velocity[0, 0] = 1.0
    position[0] = np.array([0.0, 1.0])
    for k in range(steps):
        acceleration = -force * position[k]
        velocity[k + 1] = velocity[k] + 0.1 * acceleration
        position[k + 1] = position[k] + 0.1 * velocity[k + 1]
    return np.sum(position[steps] ** 2)


def bubble_sort(values, n):
    a = values.copy()
    for i in range(n):
        for j in range(n - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
    return a


def insertion_sort(values):
    a = values.copy()
    for i in range(1, len(a)):
        key = a[i]
        j = i - 1
        while j >= 0 and a[j] > key:
            a[j + 1] = a[j]
            j -= 1
        a[j + 1] = key
    return a


def selection_sort_of_rows(table, n):
    a = table.copy()
    for i in range(n):
        smallest = i
        for j in range(i + 1, n):
            if a[j, 0] < a[smallest, 0]:
                smallest = j
        row = a[i].copy()
        a[i] = a[smallest]
        a[smallest] = row
    return a


def reverse_in_place(values, n):
    a = values.copy()
    i, j = 0, n - 1
    while i < j:
        a[i], a[j] = a[j], a[i]
        i += 1
        j -= 1
    return a


def histogram(values, n):
    counts = np.zeros(5, int)
    for k in range(n):
        counts[int(values[k] * 5)] += 1
    return counts


def cumulative(x, n):
    total = np.zeros(6)
    total[0] = x
    for i in range(1, n):
        total[i] = total[i - 1] * x + i
    total[total > 10.0] = 10.0
    return np.sum(total)


def floyd_warshall(weights, n):
    d = weights.copy()
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i, k] + d[k, j] < d[i, j]:  # noqa: PLR1730
                    d[i, j] = d[i, k] + d[k, j]
    return d


def union_find(pairs, n):
    parent = np.arange(6)
    for k in range(n):
        i, j = pairs[k, 0], pairs[k, 1]
        while parent[i] != i:
            i = parent[i]
        while parent[j] != j:
            j = parent[j]
        if i != j:
            parent[j] = i
    return parent


def pascal(n):
    row = np.zeros(8, int)
    row[0] = 1
    for i in range(1, n):
        for j in range(i, 0, -1):
            row[j] += row[j - 1]
    return row


def relu_in_place(x, n):
    h = x * np.arange(-3.0, 3.0)
    for _ in range(n):
        h[h < 0] *= 0.1
        h[::2] += x
        h -= 0.5
    return np.sum(h * h)


def cholesky(x, n):
    a = np.eye(4) * 3 + x
    low = np.zeros((4, 4))
    for i in range(n):
        for j in range(i + 1):
            total = a[i, j]
            for k in range(j):
                total -= low[i, k] * low[j, k]
            if i == j:
                low[i, j] = np.sqrt(total)
            else:
                low[i, j] = total / low[j, j]
    return np.sum(low)


def truncated_counts(x, n):
    counts = np.zeros(4, int)
    for i in range(n):
        counts[i] = x * i
        counts[-1] += 0.7
    return counts


_WORDS = np.array([1, 2, 3, 4, 2, 0, 5]), np.array([1, 3, 4, 4, 2, 5, 0])
_GRID = (np.arange(36).reshape(6, 6) % 3 == 1).astype(int)
_VALUES = np.array([0.31, 0.92, 0.05, 0.77, 0.44, 0.63])
EXAMPLES = [
    Example(sieve, (30,)),
    Example(fibonacci_table, (15,)),
    Example(edit_distance, (*_WORDS, 5, 6)),
    Example(edit_distance_of_two_rows, (*_WORDS, 5, 6)),
    Example(longest_common_subsequence, (*_WORDS, 5, 6)),
    Example(knapsack, (np.array([3, 4, 5, 2]), np.array([4.0, 5.0, 7.0, 1.5]), 11)),
    Example(coin_change, (np.array([1, 2, 5]), 13)),
    Example(game_of_life_by_masks, (_GRID, 3)),
    Example(heat_equation, (0.2, 5), True),
    Example(nonlinear_convection, (0.9, 4), True),
    Example(gauss_seidel, (1.3, 1e-6), True),
    Example(thomas_algorithm, (0.7,), True),
    Example(runge_kutta_trajectory, (0.8, 7), True),
    Example(verlet, (1.1, 9), True),
    Example(bubble_sort, (_VALUES, 6)),
    Example(insertion_sort, (_VALUES,)),
    Example(selection_sort_of_rows, (np.stack([_VALUES, np.arange(6.0)], 1), 6)),
    Example(reverse_in_place, (_VALUES, 5)),
    Example(histogram, (_VALUES, 6)),
    Example(cumulative, (1.4, 5), True),
    Example(floyd_warshall, (np.abs(np.outer(_VALUES, _VALUES) - 0.2) * 10, 6)),
    Example(union_find, (np.array([[0, 1], [2, 3], [1, 3], [4, 5]]), 4)),
    Example(pascal, (6,)),
    Example(relu_in_place, (1.2, 3), True),
    Example(cholesky, (0.3, 4), True),
    Example(truncated_counts, (1.7, 3)),
]
"""Game of life by windows has slices with traced bounds, and is refused."""
