"""Forty-four functions of (x, n) as engineers write them: loops that end early, tables, helpers that change rows."""

from __future__ import annotations

import math

import numpy as np

# --- helpers that change what they are given --------------------------------------------------------------------------


def exchange(a, b):
    kept = a.copy()
    a[:] = b
    b[:] = kept


def givens(a, b, c, s):
    first = c * a + s * b
    b[:] = c * b - s * a
    a[:] = first


def scale(a):
    a /= math.sqrt(a @ a)


def subtract(a, b, factor):
    a -= factor * b


def push(queue, count, value):
    queue[count % len(queue)] = value
    return count + 1


def sample(x, size):
    return np.sin(np.arange(float(size * size)).reshape(size, size) ** 2 * x) + 2 * np.eye(size)


def lcg(state):
    return (1103515245 * state + 12345) % 2147483648


# --- linear algebra ---------------------------------------------------------------------------------------------------


def lu_with_row_exchanges(x, n):
    a = sample(x, 4)
    sign = 1.0
    for k in range(4):
        p = k
        for i in range(k + 1, 4):
            if abs(a[i, k]) > abs(a[p, k]):
                p = i
        if p != k:
            exchange(a[p], a[k])
            sign = -sign
        for i in range(k + 1, 4):
            factor = a[i, k] / a[k, k]
            subtract(a[i, k:], a[k, k:].copy(), factor)
            a[i, k] = factor
    return a, sign * np.prod(np.diag(a))


def qr_by_rotations(x, n):
    r, q = sample(x, 4), np.eye(4)
    for j in range(3):
        for i in range(3, j, -1):
            if abs(r[i, j]) > 1e-12:
                length = math.hypot(r[i - 1, j], r[i, j])
                c, s = r[i - 1, j] / length, r[i, j] / length
                givens(r[i - 1], r[i], c, s)
                givens(q[i - 1], q[i], c, s)
    return r, q


def singular_values_one_sided(x, n):
    u = sample(x, 3)
    for _ in range(8):
        worst = 0.0
        for i in range(2):
            for j in range(i + 1, 3):
                a, b, c = u[:, i] @ u[:, i], u[:, j] @ u[:, j], u[:, i] @ u[:, j]
                worst = max(worst, abs(c) / np.sqrt(a * b))
                if abs(c) > 1e-14:
                    t = (b - a) / (2 * c)
                    t = (1.0 if t >= 0 else -1.0) / (abs(t) + np.sqrt(1 + t * t))
                    cosine = 1 / np.sqrt(1 + t * t)
                    givens(u[:, i], u[:, j], cosine, -cosine * t)
        if worst < 1e-12:
            break
    return np.sort(np.sqrt(np.sum(u * u, axis=0)))


def modified_gram_schmidt(x, n):
    q, r = sample(x, 4), np.zeros((4, 4))
    for j in range(4):
        for i in range(j):
            r[i, j] = q[:, i] @ q[:, j]
            subtract(q[:, j], q[:, i], r[i, j])
        r[j, j] = math.sqrt(q[:, j] @ q[:, j])
        scale(q[:, j])
    return q, r


def rows_in_order(x, n):
    m = np.cos(np.arange(12.0).reshape(4, 3) * (x + n))
    for last in range(3, 0, -1):
        moved = False
        for i in range(last):
            if m[i, 0] > m[i + 1, 0]:
                exchange(m[i], m[i + 1])
                moved = True
        if not moved:
            break
    return m


def rank_by_elimination(x, n):
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [x, 1.0, n]])
    rank = 0
    for column in range(3):
        pivot = -1
        for i in range(rank, 3):
            if abs(a[i, column]) > 1e-9:
                pivot = i
                break
        if pivot < 0:
            continue
        if pivot != rank:
            exchange(a[pivot], a[rank])
        for i in range(3):
            if i != rank:
                a[i] -= a[rank] * (a[i, column] / a[rank, column])
        rank += 1
    return rank, a


def over_relaxation(x, n):
    a, b, u = 4 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1), np.arange(1.0, 5.0) * x, np.zeros(4)
    sweeps = 0
    for _ in range(60):
        change = 0.0
        for i in range(4):
            residual = (b[i] - a[i] @ u) / a[i, i]
            u[i] += 1.2 * residual
            change = max(change, abs(residual))
        sweeps += 1
        if change < 1e-10:
            break
    return u, sweeps


def matrix_power(x, n):
    base, result, k = np.array([[1.0, x], [0.5, 0.25]]), np.eye(2), n + 5
    while k > 0:
        if k & 1:
            result = result @ base
        base = base @ base
        k >>= 1
    return result


def deflated_eigenvalues(x, n):
    a, found = sample(x, 3), np.zeros(2)
    a = a @ a.T
    for k in range(2):
        v, old = np.ones(3), 0.0
        for _ in range(200):
            v = a @ v
            scale(v)
            value = v @ a @ v
            if abs(value - old) < 1e-13 * value:
                break
            old = value
        found[k] = value
        a = a - value * np.outer(v, v)
    return found


# --- roots, minima, series --------------------------------------------------------------------------------------------


def bracketed_newton(x, n):
    low, high, t = 0.0, 4.0, 2.0
    for _ in range(80):
        f = t ** 3 - 2 * t - x
        if f > 0:
            high = t
        else:
            low = t
        new = t - f / (3 * t * t - 2)
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - t) < 1e-13:
            break
        t = new
    return t


def aitken(x, n):
    a = x
    for steps in range(1, 40):  # noqa: B007  (it is read after)
        b = math.cos(a)
        c = math.cos(b)
        second = c - 2 * b + a
        if abs(second) < 1e-14:
            break
        a -= (b - a) ** 2 / second
    return a, steps


def damped_newton(x, n):
    t = 3.0 * x
    for _ in range(50):
        value = math.atan(t)
        step, damping = value * (1 + t * t), 1.0
        while abs(math.atan(t - damping * step)) >= abs(value) and damping > 1e-6:
            damping /= 2
        t -= damping * step
        if abs(value) < 1e-12:
            break
    return t


def ternary_search(x, n):
    low, high = -4.0, 4.0
    while high - low > 1e-9:
        third = (high - low) / 3
        if abs(low + third - x) < abs(high - third - x):
            high -= third
        else:
            low += third
    return 0.5 * (low + high)


def clenshaw(x, n):
    coefficients, t = np.cos(np.arange(7.0)), 0.3 * x
    b1 = b2 = 0.0
    for k in range(n + 3, 0, -1):
        b1, b2 = 2 * t * b1 - b2 + coefficients[k], b1
    return t * b1 - b2 + coefficients[0]


def lentz_fraction(x, n):
    tiny = 1e-30
    f, c, d = tiny, tiny, 0.0
    for k in range(1, 200):
        numerator = x if k == 1 else -((k - 1) * x) ** 2
        d = 2 * k - 1 + numerator * d
        if d == 0:
            d = tiny
        c = 2 * k - 1 + numerator / c
        if c == 0:
            c = tiny
        d = 1 / d
        f *= c * d
        if abs(c * d - 1) < 1e-12 or k > 30 + n:
            break
    return f


def miller_bessel(x, n):
    later, current, total, wanted = 0.0, 1e-30, 0.0, 0.0
    for k in range(30, 0, -1):
        before = 2 * k / x * current - later
        later, current = current, before
        if k - 1 == n:
            wanted = current
        if (k - 1) % 2 == 0:
            total += current if k == 1 else 2 * current
    return wanted / total


def legendre(x, n):
    t, previous, current = math.tanh(x), 1.0, math.tanh(x)
    if n == 0:
        return previous
    for k in range(1, n):
        previous, current = current, ((2 * k + 1) * t * current - k * previous) / (k + 1)
    return current


def levenberg(x, n):
    a, damping = 1.0, 1e-2
    t = np.arange(1, 6.0) / 5
    y = np.exp(-x * t)
    cost = np.sum((np.exp(-a * t) - y) ** 2)
    for _ in range(40):
        residual = np.exp(-a * t) - y
        slope = -t * np.exp(-a * t)
        trial = a - (slope @ residual) / (slope @ slope + damping)
        new = np.sum((np.exp(-trial * t) - y) ** 2)
        if new < cost:
            a, cost, damping = trial, new, damping / 3
        else:
            damping *= 2
        if cost < 1e-24:
            break
    return a


def armijo(x, n):
    p, steps = np.array([2.0 * x, -1.0]), 0
    for _ in range(60):
        slope = np.array([2 * p[0], 10 * p[1]])
        size = slope @ slope
        if size < 1e-16:
            break
        value, rate = p[0] ** 2 + 5 * p[1] ** 2, 1.0
        while True:
            trial = p - rate * slope
            if trial[0] ** 2 + 5 * trial[1] ** 2 <= value - 0.3 * rate * size:
                break
            rate *= 0.5
        p = trial
        steps += 1
    return p, steps


# --- time -------------------------------------------------------------------------------------------------------------


def embedded_step(x, n):
    t, y, h, rejected = 0.0, x, 0.2, 0
    while t < 1.0 and rejected < 50:
        h = min(h, 1.0 - t)
        k1 = -y + t
        k2 = -(y + h * k1) + t + h
        error = abs(0.5 * h * (k2 - k1))
        if error < 1e-3:
            t, y = t + h, y + 0.5 * h * (k1 + k2)
            if t > 1.0 - 1e-12:
                break
        else:
            rejected += 1
        h *= min(2.0, max(0.3, 0.9 * math.sqrt(1e-3 / (error + 1e-12))))
    return y, rejected


def leapfrog(x, n):
    position, velocity = np.array([1.0, 0.0]), np.array([0.0, x])
    crossings = 0
    for _ in range(20 * n):
        velocity = velocity - 0.025 * position / (position @ position) ** 1.5
        before = position[1]
        position = position + 0.05 * velocity
        velocity = velocity - 0.025 * position / (position @ position) ** 1.5
        if before < 0 <= position[1]:
            crossings += 1
    return position, velocity, crossings


def balls_in_a_box(x, n):
    p, v = np.array([0.2, 0.5, 0.8]), np.array([x, -0.7, 0.3])
    hits = np.zeros(3, int)
    for _ in range(15 * n):
        p += 0.05 * v
        for k in range(3):
            if p[k] < 0 or p[k] > 1:
                v[k] = -v[k]
                p[k] = min(max(p[k], 0.0), 1.0)
                hits[k] += 1
    return p, v, hits


def heat_until_steady(x, n):
    u = np.zeros(8)
    u[0], steps = x, 0
    while steps < 300:
        new = u.copy()
        new[1:-1] += 0.4 * (u[2:] - 2 * u[1:-1] + u[:-2])
        steps += 1
        done = np.max(np.abs(new - u)) < 1e-4
        u = new
        if done:
            break
    return u, steps


def thermostat(x, n):
    temperature, on, switches = 15.0 + x, False, 0
    history = np.zeros(12)
    for k in range(12):
        if on and temperature > 21:
            on, switches = False, switches + 1
        elif not on and temperature < 19:
            on, switches = True, switches + 1
        temperature += (2.5 if on else 0.0) - 0.1 * (temperature - 5.0 * n)
        history[k] = temperature
    return history, switches


def anti_windup(x, n):
    integral = y = 0.0
    for k in range(30):
        error = x - y
        wanted = 2.0 * error + integral
        command = max(-1.0, min(1.0, wanted))
        if command == wanted or error * wanted < 0:
            integral += 0.1 * error
        y += 0.1 * (command - y)
        if k > 5 and abs(error) < 1e-3:
            break
    return y, integral


def gated_filter(x, n):
    readings = np.array([1.0, 1.1, 9.0, 0.9, 1.2, -7.0, 1.05]) * x
    mean, variance, dropped = readings[0], 1.0, 0
    for z in readings[1:]:
        variance += 0.01
        if (z - mean) ** 2 > 9 * (variance + 0.1):
            dropped += 1
            continue
        gain = variance / (variance + 0.1)
        mean += gain * (z - mean)
        variance *= 1 - gain
    return mean, variance, dropped


# --- signals and tables -----------------------------------------------------------------------------------------------


def moving_average(x, n):
    queue, out, total, count = np.zeros(3), np.zeros(9), 0.0, 0
    for k in range(9):
        value = math.sin(x * k)
        total += value - queue[count % 3]
        count = push(queue, count, value)
        out[k] = total / min(count, 3)
    return out


def running_median(x, n):
    window, out = np.zeros(5), np.zeros(8)
    size = 0
    for k in range(8):
        value = math.cos(x * k * k)
        if size == 5:
            old = math.cos(x * (k - 5) * (k - 5))
            at = 0
            while at < 4 and window[at] != old:
                at += 1
            for j in range(at, 4):
                window[j] = window[j + 1]
            size -= 1
        j = size
        while j > 0 and window[j - 1] > value:
            window[j] = window[j - 1]
            j -= 1
        window[j] = value
        size += 1
        out[k] = window[size // 2] if size % 2 else 0.5 * (window[size // 2 - 1] + window[size // 2])
    return out


def peaks(x, n):
    signal, places, count = np.sin(np.arange(20.0) * x) * np.arange(20.0), np.full(10, -1), 0
    for k in range(1, 19):
        if signal[k - 1] < signal[k] > signal[k + 1] and (count == 0 or k - places[count - 1] > n):
            places[count] = k
            count += 1
    return places, count


def zero_crossings(x, n):
    y, found, count = np.cos(np.arange(12.0) * x), np.zeros(12), 0
    for k in range(11):
        if y[k] * y[k + 1] < 0:
            found[count] = k + y[k] / (y[k] - y[k + 1])
            count += 1
    return found, count


def histogram(x, n):
    counts, outside = np.zeros(4, int), 0
    for k in range(15):
        value = 2.2 * math.sin(x * k)
        if not -2 <= value < 2:
            outside += 1
            continue
        counts[int(value + 2)] += 1
    return counts, outside


def longest_rise(x, n):
    values = np.sin(np.arange(15.0) * x)
    best, best_end, length = 0, 0, 1
    for k in range(1, 15):
        length = length + 1 if values[k] > values[k - 1] else 1
        if length > best:
            best, best_end = length, k
    return values[best_end - best + 1], best


def interpolation_search(x, n):
    values, wanted = np.arange(20) ** 2, (n + 3) ** 2
    low, high = 0, 19
    while low <= high and values[low] <= wanted <= values[high]:
        if values[high] == values[low]:
            break
        middle = low + (high - low) * (wanted - values[low]) // (values[high] - values[low])
        if values[middle] == wanted:
            return middle
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return low if values[low] == wanted else -1


def coin_change(x, n):
    fewest = np.full(16, 99)
    fewest[0] = 0
    for amount in range(1, 16):
        for coin in (1, 4, 5 + n):
            if coin <= amount and fewest[amount - coin] + 1 < fewest[amount]:
                fewest[amount] = fewest[amount - coin] + 1
    return fewest


def typing_errors(x, n):
    one, other = np.array([1, 2, 3, 4, n]), np.array([2, 1, 3, n, 4])
    d = np.zeros((6, 6), int)
    d[:, 0] = d[0] = np.arange(6)
    for i in range(1, 6):
        for j in range(1, 6):
            cost = 0 if one[i - 1] == other[j - 1] else 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost)
            if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
                d[i, j] = min(d[i, j], d[i - 2, j - 2] + 1)
    return d


def longest_palindrome(x, n):
    text = np.array([1, n, 3, 2, 3, n, 1, 2])
    best, begin = 1, 0
    for center in range(8):
        for extra in (0, 1):
            left, right = center, center + extra
            while left >= 0 and right < 8 and text[left] == text[right]:
                left -= 1
                right += 1
            if right - left - 1 > best:
                best, begin = right - left - 1, left + 1
    return best, begin


# --- money, queues, chance --------------------------------------------------------------------------------------------


def loan(x, n):
    balance, rate, payment, months, paid = 1000.0 * x, 0.01, 150.0, 0, 0.0
    while balance > 0 and months < 40:
        balance *= 1 + rate
        due = payment if balance > payment else balance
        balance -= due
        paid += due
        months += 1
    return months, paid


def brackets(x, n):
    limits, rates = np.array([10.0, 40.0, 90.0]), np.array([0.0, 0.2, 0.3, 0.45])
    income, due, low = 60.0 * x, 0.0, 0.0
    for k in range(4):
        high = limits[k] if k < 3 else np.inf
        if income <= low:
            break
        due += rates[k] * (min(income, high) - low)
        low = high
    return due


def inventory(x, n):
    stock, ordered, lost, state = 10.0, 0.0, 0.0, 7 + n
    for _ in range(12):
        state = lcg(state)
        demand = x * (state // 65536 % 8)
        if demand > stock:
            lost += demand - stock
            stock = 0.0
        else:
            stock -= demand
        if stock < 4:
            ordered += 12 - stock
            stock = 12.0
    return stock, ordered, lost


def single_server(x, n):
    state, clock, free, waited, longest = 11 + n, 0.0, 0.0, 0.0, 0.0
    for _ in range(10):
        state = lcg(state)
        clock += -x * math.log((state + 1.0) / 2147483649.0)
        begin = free if free > clock else clock
        waited += begin - clock
        longest = max(longest, begin - clock)
        state = lcg(state)
        free = begin - 0.8 * x * math.log((state + 1.0) / 2147483649.0)
    return waited / 10, longest


def metropolis(x, n):
    state, y, accepted = 3 + n, x, 0
    for _ in range(20):
        state = lcg(state)
        trial = y + state / 1073741824.0 - 1.0
        state = lcg(state)
        if math.log((state + 1.0) / 2147483649.0) < 0.5 * (y * y - trial * trial):
            y, accepted = trial, accepted + 1
    return y, accepted


def systematic_resampling(x, n):
    weights, chosen = np.exp(np.sin(np.arange(6.0) * x)), np.zeros(6, int)
    weights = weights / np.sum(weights)
    total, k = weights[0], 0
    for i in range(6):
        point = (i + 0.3) / 6
        while point > total and k < 5:
            k += 1
            total += weights[k]
        chosen[i] = k
    return chosen


def perceptron(x, n):
    points = np.array([[1.0, 2.0], [2.0, 3.5], [-1.0, -1.5], [-2.0, x]])
    labels, w, epochs = np.array([1, 1, -1, -1]), np.zeros(3), 0
    while epochs < 20:
        errors = 0
        for point, label in zip(points, labels, strict=True):
            if label * (w[:2] @ point + w[2]) <= 0:
                w[:2] += label * point
                w[2] += label
                errors += 1
        epochs += 1
        if errors == 0:
            break
    return w, epochs


def cycle(x, n):
    def following(k):
        return (k * k + n + 1) % 97
    slow, fast = following(2), following(following(2))
    while slow != fast:
        slow, fast = following(slow), following(following(fast))
    length, fast = 1, following(slow)
    while slow != fast:
        fast, length = following(fast), length + 1
    return length
