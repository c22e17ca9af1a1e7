"""Functions as people write them: heaps, stacks, tables and simulations, with `x` a float and `n` a small integer."""

import dataclasses

import numpy as np


def quicksort_stack(x, n):
    a = np.sin(np.arange(8) * x + n)
    stack = np.zeros((16, 2), int)
    top = 0
    stack[0] = [0, 7]
    top = 1
    while top > 0:
        top -= 1
        lo, hi = stack[top]
        if lo < hi:
            pivot = a[hi]
            i = lo
            for j in range(lo, hi):
                if a[j] < pivot:
                    a[i], a[j] = (a[j], a[i])
                    i += 1
            a[i], a[hi] = (a[hi], a[i])
            stack[top] = [lo, i - 1]
            stack[top + 1] = [i + 1, hi]
            top += 2
    return a


class UnionFind:

    def __init__(self, n):
        self.parent = np.arange(n)
        self.size = np.ones(n, int)
        self.count = n

    def find(self, i):
        while self.parent[i] != i:
            self.parent[i] = self.parent[self.parent[i]]
            i = self.parent[i]
        return i

    def union(self, i, j):
        a, b = (self.find(i), self.find(j))
        if a == b:
            return False
        if self.size[a] < self.size[b]:
            a, b = (b, a)
        self.parent[b] = a
        self.size[a] += self.size[b]
        self.count -= 1
        return True


def components(x, n):
    uf = UnionFind(8)
    for k in range(n + 3):
        uf.union(k * 3 % 8, (k * k + 1) % 8)
    return (uf.count, uf.parent, uf.size)


def kruskal(x, n):
    w = np.sin(x * np.arange(12)) + 2
    us = np.arange(12) % 6
    vs = (np.arange(12) * 5 + 1) % 6
    order = np.argsort(w)
    uf = UnionFind(6)
    total = 0.0
    for e in order:
        if us[e] != vs[e] and uf.union(us[e], vs[e]):
            total += w[e]
    return total


def lu_pivot(x, n):
    A = np.sin(x * np.arange(16.0).reshape(4, 4) ** 2 + n)
    A = A.copy()
    P = np.arange(4)
    for k in range(4):
        p = k + np.argmax(np.abs(A[k:, k]))
        if p != k:
            A[[k, p]] = A[[p, k]]
            P[[k, p]] = P[[p, k]]
        for i in range(k + 1, 4):
            A[i, k] = A[i, k] / A[k, k]
            A[i, k + 1:] -= A[i, k] * A[k, k + 1:]
    return (A, P)


def floyd(x, n):
    d = np.abs(np.sin(x * np.arange(25.0).reshape(5, 5))) * 10
    for k in range(5):
        for i in range(5):
            for j in range(5):
                d[i, j] = min(d[i, j], d[i, k] + d[k, j])
    return d


def viterbi(x, n):
    A = np.log(np.array([[0.7, 0.3], [0.4, 0.6]]))
    B = np.log(np.array([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]]))
    obs = np.array([0, 1, 2, 1, 0])
    T = 5
    V = np.zeros((T, 2))
    back = np.zeros((T, 2), int)
    V[0] = np.log(0.5) + B[:, obs[0]] * x
    for t in range(1, T):
        for s in range(2):
            best = -np.inf
            arg = 0
            for r in range(2):
                c = V[t - 1, r] + A[r, s]
                if c > best:
                    best = c
                    arg = r
            V[t, s] = best + B[s, obs[t]] * x
            back[t, s] = arg
    path = np.zeros(T, int)
    path[-1] = np.argmax(V[-1])
    for t in range(T - 2, -1, -1):
        path[t] = back[t + 1, path[t + 1]]
    return (V, path)


def kalman(x, n):
    m, P = (np.zeros(2), np.eye(2))
    F = np.array([[1.0, 1.0], [0.0, 1.0]])
    H = np.array([[1.0, 0.0]])
    means = np.zeros((6, 2))
    for t in range(6):
        m = F @ m
        P = F @ P @ F.T + 0.1 * np.eye(2)
        if t < n:
            y = x * t - (H @ m)[0]
            S = (H @ P @ H.T)[0, 0] + 0.5
            K = (P @ H.T)[:, 0] / S
            m = m + K * y
            P = P - np.outer(K, H @ P)
        means[t] = m
    return means


def adaptive_simpson(x, n):

    def f(t):
        return np.sin(x * t) + t * t
    stack = np.zeros((32, 2))
    stack[0] = [0.0, 2.0]
    top = 1
    total = 0.0
    calls = 0
    while top > 0 and calls < 200:
        top -= 1
        a, b = (stack[top, 0], stack[top, 1])
        m = 0.5 * (a + b)
        h = b - a
        one = h / 6 * (f(a) + 4 * f(m) + f(b))
        two = h / 12 * (f(a) + 4 * f(0.5 * (a + m)) + 2 * f(m) + 4 * f(0.5 * (m + b)) + f(b))
        calls += 1
        if abs(two - one) < 1e-06 or top > 28:
            total += two
        else:
            stack[top, 0] = a
            stack[top, 1] = m
            top += 1
            stack[top, 0] = m
            stack[top, 1] = b
            top += 1
    return (total, calls)


def life(x, n):
    g = (np.sin(x * np.arange(36.0)) > 0).astype(int).reshape(6, 6)
    for _ in range(n):
        new = np.zeros_like(g)
        for i in range(6):
            for j in range(6):
                s = 0
                for di in (-1, 0, 1):
                    for dj in (-1, 0, 1):
                        if di or dj:
                            s += g[(i + di) % 6, (j + dj) % 6]
                if s == 3 or (s == 2 and g[i, j]):
                    new[i, j] = 1
        g = new
    return g


class Body:

    def __init__(self, p, v, m):
        self.p, self.v, self.m = (p, v, m)


def nbody(x, n):
    bodies = [Body(np.array([float(k), 1.0 - k]), np.array([0.0, 0.1 * k]) * x, 1.0 + k) for k in range(3)]
    for _ in range(n):
        for a in bodies:
            for b in bodies:
                if a is not b:
                    d = b.p - a.p
                    r2 = d @ d + 0.01
                    a.v += 0.01 * b.m * d / r2 ** 1.5
        for a in bodies:
            a.p += 0.01 * a.v
    return [a.p for a in bodies]


def gillespie(x, n):
    u = np.abs(np.sin(np.arange(1, 200) * 12.9898)) * 0.98 + 0.01
    s, t, k = (10, 0.0, 0)
    history = np.zeros(20)
    while t < n and k < 20 and (s > 0):
        birth, death = (0.5 * x * x, 0.1 * s)
        total = birth + death
        t += -np.log(u[2 * k]) / total
        if u[2 * k + 1] * total < birth:
            s += 1
        else:
            s -= 1
        history[k] = s
        k += 1
    return (history, t)


def ising(x, n):
    u = np.abs(np.sin(np.arange(1, 400) * 78.233))
    s = np.ones((4, 4), int)
    k = 0
    energy = 0.0
    for _ in range(n * 5):
        i, j = (int(u[k] * 4) % 4, int(u[k + 1] * 4) % 4)
        nb = s[(i + 1) % 4, j] + s[i - 1, j] + s[i, (j + 1) % 4] + s[i, j - 1]
        dE = 2 * s[i, j] * nb
        if dE <= 0 or u[k + 2] < np.exp(-dE * abs(x)):
            s[i, j] *= -1
            energy += dE
        k += 3
    return (s, energy)


def cg(x, n):
    A = np.eye(5) * 3 + np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1)
    b = np.sin(x * np.arange(5.0))
    z = np.zeros(5)
    r = b - A @ z
    p = r.copy()
    rs = r @ r
    k = 0
    while rs > 1e-20 and k < 10:
        Ap = A @ p
        alpha = rs / (p @ Ap)
        z += alpha * p
        r -= alpha * Ap
        new = r @ r
        p = r + new / rs * p
        rs = new
        k += 1
    return z


def power(x, n):
    A = np.array([[2.0, 1.0], [1.0, 3.0]]) * x
    v = np.ones(2)
    for _ in range(100):
        w = A @ v
        w /= np.linalg.norm(w)
        if np.max(np.abs(w - v)) < 1e-10:
            break
        v = w
    return v


def needleman(x, n):
    a = np.array([0, 1, 2, 3, 1])
    b = np.array([0, 2, 3, 1])
    D = np.zeros((6, 5))
    D[:, 0] = -np.arange(6) * abs(x)
    D[0, :] = -np.arange(5) * abs(x)
    for i in range(1, 6):
        for j in range(1, 5):
            m = D[i - 1, j - 1] + (1.0 if a[i - 1] == b[j - 1] else -1.0)
            D[i, j] = max(m, D[i - 1, j] - abs(x), D[i, j - 1] - abs(x))
    i, j, k = (5, 4, 0)
    path = np.zeros(10, int)
    while i > 0 and j > 0:
        if D[i, j] == D[i - 1, j] - abs(x):
            i -= 1
            path[k] = 1
        elif D[i, j] == D[i, j - 1] - abs(x):
            j -= 1
            path[k] = 2
        else:
            i -= 1
            j -= 1
            path[k] = 3
        k += 1
    return (D, path, k)


def knapsack(x, n):
    w = [2, 3, 4]
    v = [3.0 * x, 4.0, 5.0]
    best = np.zeros(9)
    for i in range(3):
        for c in range(8, w[i] - 1, -1):
            best[c] = max(best[c], best[c - w[i]] + v[i])
    return best


def knapsack_cap(x, n):
    best = np.zeros(9)
    v = np.array([3.0, 4.0, 5.0]) * x
    w = np.array([2, 3, 4])
    for i in range(3):
        for c in range(n + 4, w[i] - 1, -1):
            best[c] = max(best[c], best[c - w[i]] + v[i])
    return best


def sieve(x, n):
    p = np.ones(40, bool)
    p[:2] = False
    i = 2
    while i * i < 40 - n:
        if p[i]:
            p[i * i::i] = False
        i += 1
    return (p, np.sum(p) * x)


def josephus(x, n):
    alive = np.ones(7, bool)
    order = np.zeros(7, int)
    pos = 0
    k = n + 2
    for r in range(7):
        steps = 0
        while True:
            if alive[pos]:
                steps += 1
                if steps == k:
                    break
            pos = (pos + 1) % 7
        alive[pos] = False
        order[r] = pos
    return order


def hull(x, n):
    pts = np.stack([np.cos(np.arange(8) * x), np.sin(np.arange(8) * 2.0)], 1)
    order = np.argsort(pts[:, 0])
    pts = pts[order]
    h = np.zeros(16, int)
    k = 0
    for i in range(8):
        while k >= 2 and cross(pts[h[k - 2]], pts[h[k - 1]], pts[i]) <= 0:
            k -= 1
        h[k] = i
        k += 1
    return (h, k)


def cross(o, a, b):
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])


def kmeans(x, n):
    pts = np.sin(x * np.arange(12.0)).reshape(6, 2)
    c = pts[:2].copy()
    label = np.zeros(6, int)
    for _ in range(n):
        changed = False
        for i in range(6):
            d = np.sum((c - pts[i]) ** 2, axis=1)
            k = np.argmin(d)
            if k != label[i]:
                label[i] = k
                changed = True
        for k in range(2):
            m = label == k
            if np.any(m):
                c[k] = np.sum(pts * m[:, None], axis=0) / np.sum(m)
        if not changed:
            break
    return (c, label)


def dijkstra(x, n):
    w = np.abs(np.sin(np.arange(36.0).reshape(6, 6) * x)) * 5 + 0.1
    dist = np.full(6, np.inf)
    done = np.zeros(6, bool)
    prev = -np.ones(6, int)
    dist[n] = 0.0
    for _ in range(6):
        u = -1
        best = np.inf
        for i in range(6):
            if not done[i] and dist[i] < best:
                best = dist[i]
                u = i
        if u < 0:
            break
        done[u] = True
        for v in range(6):
            if not done[v] and dist[u] + w[u, v] < dist[v]:
                dist[v] = dist[u] + w[u, v]
                prev[v] = u
    return (dist, prev)


def toposort(x, n):
    adj = np.zeros((6, 6), int)
    adj[0, 1] = adj[1, 2] = adj[0, 3] = adj[3, 2] = adj[4, 5] = 1
    adj[2, 4] = n % 2
    deg = adj.sum(axis=0)
    queue = np.zeros(6, int)
    head = tail = 0
    for i in range(6):
        if deg[i] == 0:
            queue[tail] = i
            tail += 1
    while head < tail:
        u = queue[head]
        head += 1
        for v in range(6):
            if adj[u, v]:
                deg[v] -= 1
                if deg[v] == 0:
                    queue[tail] = v
                    tail += 1
    return (queue, tail)


def bucket(x, n):
    a = np.abs(np.sin(x * np.arange(10.0)))
    count = np.zeros(5, int)
    for v in a:
        count[min(int(v * 5), 4)] += 1
    start = np.zeros(5, int)
    for k in range(1, 5):
        start[k] = start[k - 1] + count[k - 1]
    out = np.zeros(10)
    for v in a:
        b = min(int(v * 5), 4)
        out[start[b]] = v
        start[b] += 1
    return (out, count)


def rle(x, n):
    a = (np.sin(x * np.arange(12)) > 0).astype(int)
    vals = np.zeros(12, int)
    lens = np.zeros(12, int)
    k = -1
    for i in range(12):
        if i == 0 or a[i] != a[i - 1]:
            k += 1
            vals[k] = a[i]
        lens[k] += 1
    return (vals, lens, k + 1)


def gauss_seidel(x, n):
    A = np.eye(4) * 4 + 1
    b = np.arange(4.0) * x
    z = np.zeros(4)
    for _it in range(n + 5):
        old = z.copy()
        for i in range(4):
            s = b[i]
            for j in range(4):
                if j != i:
                    s -= A[i, j] * z[j]
            z[i] = s / A[i, i]
        if np.max(np.abs(z - old)) < 1e-08:
            break
    return z


def thomas(x, n):
    a, b, c, d = (-np.ones(5), 2.5 * np.ones(5), -np.ones(5), np.sin(x * np.arange(5.0)))
    for i in range(1, 5):
        w = a[i] / b[i - 1]
        b[i] -= w * c[i - 1]
        d[i] -= w * d[i - 1]
    z = np.zeros(5)
    z[4] = d[4] / b[4]
    for i in range(3, -1, -1):
        z[i] = (d[i] - c[i] * z[i + 1]) / b[i]
    return z


def lcs(x, n):
    a = np.array([1, 2, 3, 4, 2])
    b = np.array([2, 4, 3, 2, n])
    L = np.zeros((6, 6), int)
    for i in range(5):
        for j in range(5):
            L[i + 1, j + 1] = L[i, j] + 1 if a[i] == b[j] else max(L[i, j + 1], L[i + 1, j])
    return L * x


def lis(x, n):
    a = np.sin(x * np.arange(8.0))
    best = np.ones(8, int)
    prev = np.full(8, -1)
    for i in range(8):
        for j in range(i):
            if a[j] < a[i] and best[j] + 1 > best[i]:
                best[i] = best[j] + 1
                prev[i] = j
    return (best, prev)


def nqueens(x, n):
    cols = np.zeros(5, int)
    row = 0
    count = 0
    cols[0] = -1
    while row >= 0 and count < n:
        cols[row] += 1
        while cols[row] < 5 and (not safe(cols, row)):
            cols[row] += 1
        if cols[row] == 5:
            row -= 1
        elif row == 4:
            count += 1
        else:
            row += 1
            cols[row] = -1
    return (cols, count)


def safe(cols, row):
    for r in range(row):  # noqa: SIM110
        if cols[r] == cols[row] or abs(cols[r] - cols[row]) == row - r:
            return False
    return True


def flood(x, n):
    g = (np.sin(x * np.arange(25.0)) > -0.3).astype(int).reshape(5, 5)
    stack = np.zeros((60, 2), int)
    stack[0] = [2, 2]
    top = 1
    seen = np.zeros((5, 5), bool)
    area = 0
    while top > 0:
        top -= 1
        i, j = stack[top]
        if i < 0 or j < 0 or i >= 5 or (j >= 5):
            continue
        if seen[i, j] or not g[i, j]:
            continue
        seen[i, j] = True
        area += 1
        for di, dj in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            stack[top, 0] = i + di
            stack[top, 1] = j + dj
            top += 1
    return (seen, area)


class RNG:

    def __init__(self, seed):
        self.state = np.array([seed, 17])
        self.calls = 0

    def next(self):
        self.state[0] = (self.state[0] * 1103515245 + 12345) % 2147483648
        self.calls += 1
        return self.state[0] / 2147483648.0


def mc_pi(x, n):
    r = RNG(7)
    hits = 0
    for _ in range(n * 10):
        a, b = (r.next(), r.next())
        if a * a + b * b < 1:
            hits += 1
    return (hits, r.state, r.calls)


def shuffle(x, n):
    r = RNG(n)
    a = np.arange(6) * x
    for i in range(5, 0, -1):
        j = int(r.next() * (i + 1))
        a[i], a[j] = (a[j], a[i])
    return a


class Ring:

    def __init__(self, size):
        self.buf = np.zeros(size)
        self.head = 0
        self.full = False

    def add(self, v):
        self.buf[self.head] = v
        self.head = (self.head + 1) % len(self.buf)
        if self.head == 0:
            self.full = True

    def mean(self):
        return np.sum(self.buf) / (len(self.buf) if self.full else max(self.head, 1))


def ring(x, n):
    r = Ring(4)
    out = np.zeros(6)
    for i in range(6):
        if np.sin(x * i) > -0.5:
            r.add(np.sin(x * i))
        out[i] = r.mean()
    return out


def pid(x, n):
    st = {'i': 0.0, 'e': 0.0, 'log': np.zeros(10)}
    y = 0.0
    for k in range(10):
        e = x - y
        st['i'] += e * 0.1
        u = 2 * e + st['i'] + 0.5 * (e - st['e']) / 0.1
        st['e'] = e
        if u > 5:
            u = 5.0
        elif u < -5:
            u = -5.0
        y += 0.1 * u
        st['log'][k] = y
    return st['log']


def simplex2(x, n):
    s = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])

    def f(p):
        return (p[0] - x) ** 2 + (p[1] + 1) ** 2
    v = np.zeros(3)
    for i in range(3):
        v[i] = f(s[i])
    for _ in range(20):
        o = np.argsort(v)
        s = s[o]
        v = v[o]
        c = (s[0] + s[1]) / 2
        r = 2 * c - s[2]
        fr = f(r)
        if fr < v[0]:
            e = 3 * c - 2 * s[2]
            fe = f(e)
            if fe < fr:
                s[2] = e
                v[2] = fe
            else:
                s[2] = r
                v[2] = fr
        elif fr < v[1]:
            s[2] = r
            v[2] = fr
        else:
            k = 0.5 * (c + s[2])
            fk = f(k)
            if fk < v[2]:
                s[2] = k
                v[2] = fk
            else:
                for i in range(1, 3):
                    s[i] = 0.5 * (s[0] + s[i])
                    v[i] = f(s[i])
    return (s[0], v)


def matrix_chain(x, n):
    d = [2, 3, 4, 2, 5]
    m = np.zeros((4, 4))
    split = np.zeros((4, 4), int)
    for L in range(2, 5):
        for i in range(5 - L):
            j = i + L - 1
            m[i, j] = np.inf
            for k in range(i, j):
                c = m[i, k] + m[k + 1, j] + d[i] * d[k + 1] * d[j + 1] * x * x
                if c < m[i, j]:
                    m[i, j] = c
                    split[i, j] = k
    return (m, split)


def cholesky(x, n):
    A = np.eye(4) * 5 + np.cos(x * np.abs(np.subtract.outer(np.arange(4), np.arange(4))))
    L = np.zeros((4, 4))
    for i in range(4):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s -= L[i, k] * L[j, k]
            if i == j:
                L[i, j] = np.sqrt(s)
            else:
                L[i, j] = s / L[j, j]
    return L


def cellauto(x, n):
    rule = 110
    s = np.zeros(16, int)
    s[8] = 1
    hist = np.zeros((5, 16), int)
    for t in range(5):
        hist[t] = s
        new = s.copy()
        for i in range(16):
            k = 4 * s[i - 1] + 2 * s[i] + s[(i + 1) % 16]
            new[i] = rule >> k & 1
        s = new if t < n else s
    return hist


@dataclasses.dataclass
class Particle:
    x: object
    v: object
    alive: bool = True


def particles(x, n):
    ps = [Particle(np.array([float(i), 0.0]), np.array([x, 1.0 - i])) for i in range(3)]
    for _ in range(n):
        for p in ps:
            p.v[1] -= 0.1
            p.x += 0.1 * p.v
            if p.x[1] < -0.05:
                p.x[1] = 0.0
                p.v[1] *= -0.9
    return ([p.x for p in ps], [p.v for p in ps])


class Stack:

    def __init__(self, cap):
        self.items = np.zeros(cap)
        self.top = 0

    def push(self, v):
        self.items[self.top] = v
        self.top += 1

    def pop(self):
        self.top -= 1
        return self.items[self.top]

    def empty(self):
        return self.top == 0


def rpn(x, n):
    s = Stack(8)
    prog = np.array([1, 2, -1, 3, -2, 4, -1])
    for t in prog:
        if t > 0:
            s.push(t * x)
        else:
            b = s.pop()
            a = s.pop()
            if t == -1:
                s.push(a + b)
            else:
                s.push(a * b)
    return (s.pop(), s.items)


class Queue:

    def __init__(self, cap):
        self.buf, self.head, self.tail = (np.zeros(cap, int), 0, 0)

    def put(self, v):
        self.buf[self.tail % len(self.buf)] = v
        self.tail += 1

    def get(self):
        v = self.buf[self.head % len(self.buf)]
        self.head += 1
        return v

    def __len__(self):
        return self.tail - self.head


def bfs(x, n):
    g = (np.abs(np.sin(np.arange(36.0) * x)) > 0.6).reshape(6, 6)
    dist = np.full(6, -1)
    q = Queue(8)
    dist[n] = 0
    q.put(n)
    while q.tail > q.head:
        u = q.get()
        for v in range(6):
            if g[u, v] and dist[v] < 0:
                dist[v] = dist[u] + 1
                q.put(v)
    return dist


class Matrix:

    def __init__(self, data):
        self.data = data

    def swap_rows(self, i, j):
        t = self.data[i].copy()
        self.data[i] = self.data[j]
        self.data[j] = t

    def scale(self, i, c):
        self.data[i] *= c

    def add(self, i, j, c):
        self.data[i] += c * self.data[j]


def gauss_jordan(x, n):
    m = Matrix(np.sin(np.arange(12.0).reshape(3, 4) * x) + np.eye(3, 4) * 3)
    for k in range(3):
        p = k
        for i in range(k + 1, 3):
            if abs(m.data[i, k]) > abs(m.data[p, k]):
                p = i
        if p != k:
            m.swap_rows(p, k)
        m.scale(k, 1.0 / m.data[k, k])
        for i in range(3):
            if i != k:
                m.add(i, k, -m.data[i, k])
    return m.data


def rotate(m, p, q, c, s):
    for k in range(3):
        a, b = (m[p, k], m[q, k])
        m[p, k] = c * a - s * b
        m[q, k] = s * a + c * b
    for k in range(3):
        a, b = (m[k, p], m[k, q])
        m[k, p] = c * a - s * b
        m[k, q] = s * a + c * b


def jacobi_eig(x, n):
    A = np.array([[2.0, x, 0.5], [x, 1.0, 0.3], [0.5, 0.3, 3.0]])
    for _sweep in range(n * 4):
        for p in range(2):
            for q in range(p + 1, 3):
                if abs(A[p, q]) > 1e-12:
                    th = 0.5 * np.arctan2(2 * A[p, q], A[q, q] - A[p, p])
                    rotate(A, p, q, np.cos(th), np.sin(th))
    return np.sort(np.diag(A))


def sift_down(h, i, n):
    while 2 * i + 1 < n:
        c = 2 * i + 1
        if c + 1 < n and h[c] < h[c + 1]:
            c += 1
        if h[i] >= h[c]:
            break
        h[i], h[c] = (h[c], h[i])
        i = c


def heapsort(x, n):
    h = np.cos(np.arange(8.0) * x)
    for i in range(3, -1, -1):
        sift_down(h, i, 8)
    for m in range(7, 0, -1):
        h[0], h[m] = (h[m], h[0])
        sift_down(h, 0, m)
    return h


def partition(a, lo, hi):
    p, i = (a[hi], lo)
    for j in range(lo, hi):
        if a[j] < p:
            a[i], a[j] = (a[j], a[i])
            i += 1
    a[i], a[hi] = (a[hi], a[i])
    return i


def quickselect(x, n):
    a = np.cos(np.arange(9.0) * x + 0.1)
    lo, hi, k = (0, 8, n + 2)
    while lo < hi:
        i = partition(a, lo, hi)
        if i == k:
            break
        if i < k:
            lo = i + 1
        else:
            hi = i - 1
    return a[k]


def reverse(a, i, j):
    while i < j:
        a[i], a[j] = (a[j], a[i])
        i += 1
        j -= 1


def rotate_array(x, n):
    a = np.arange(7.0) * x
    reverse(a, 0, 6)
    reverse(a, 0, n - 1)
    reverse(a, n, 6)
    return a


def next_perm(a):
    i = len(a) - 2
    while i >= 0 and a[i] >= a[i + 1]:
        i -= 1
    if i >= 0:
        j = len(a) - 1
        while a[j] <= a[i]:
            j -= 1
        a[i], a[j] = (a[j], a[i])
    reverse(a, i + 1, len(a) - 1)
    return i >= 0


def permutations(x, n):
    a = np.arange(4)
    out = np.zeros((6, 4), int)
    for k in range(n + 2):
        out[k] = a
        next_perm(a)
    return out


def hanoi_count(x, n):
    pegs = np.zeros((3, 4), int)
    sizes = np.zeros(3, int)
    for d in range(3):
        pegs[0, d] = 3 - d
    sizes[0] = 3

    def move(a, b):
        sizes[a] -= 1
        pegs[b, sizes[b]] = pegs[a, sizes[a]]
        pegs[a, sizes[a]] = 0
        sizes[b] += 1

    def solve(k, a, b, c):
        if k == 0:
            return
        solve(k - 1, a, c, b)
        move(a, b)
        solve(k - 1, c, b, a)
    solve(3, 0, 1, 2)
    return (pegs * x, sizes)


def memo_fib(x, n):
    memo = -np.ones(12)

    def fib(k):
        if k < 2:
            return 1.0 * k
        if memo[k] >= 0:
            return memo[k]
        memo[k] = fib(k - 1) + fib(k - 2)
        return memo[k]
    return fib(10) * x


def counting(x, n):
    counts = {'up': np.zeros(3, int), 'down': np.zeros(3, int)}
    prev = 0.0
    for i in range(9):
        v = np.sin(x * i)
        if v > prev:
            counts['up'][i % 3] += 1
        else:
            counts['down'][i % 3] += 1
        prev = v
    return counts


def twogrids(x, n):
    grids = [np.zeros((4, 4)), np.zeros((4, 4))]
    grids[0][1, 1] = x
    cur = 0
    for t in range(n):
        _a, _b = (grids[t % 2], grids[(t + 1) % 2])
        for i in range(1, 3):
            for j in range(1, 3):
                vertical = grids[cur][i - 1, j] + grids[cur][i + 1, j]
                grids[1 - cur][i, j] = 0.25 * (vertical + grids[cur][i, j - 1] + grids[cur][i, j + 1])
        cur = 1 - cur
    return (grids[0], grids[1])


def swapgrids(x, n):
    u, v = (np.zeros(6), np.zeros(6))
    u[2] = x
    for _t in range(n):
        for i in range(1, 5):
            v[i] = 0.5 * (u[i - 1] + u[i + 1])
        u, v = (v, u)
    return u


def adam(x, n):
    st = {'m': np.zeros(2), 'v': np.zeros(2), 't': 0}
    w = np.array([x, 1.0])
    for _ in range(n * 3):
        g = 2 * w
        st['t'] += 1
        st['m'] = 0.9 * st['m'] + 0.1 * g
        st['v'] = 0.99 * st['v'] + 0.01 * g * g
        w -= 0.1 * st['m'] / (np.sqrt(st['v']) + 1e-08)
        if np.sum(w * w) < 0.1:
            break
    return (w, st)


class Tableau:

    def __init__(self, A, b, c):
        m, k = A.shape
        self.t = np.zeros((m + 1, k + m + 1))
        self.t[:m, :k] = A
        self.t[:m, k:k + m] = np.eye(m)
        self.t[:m, -1] = b
        self.t[-1, :k] = -c
        self.basis = np.arange(k, k + m)

    def pivot(self, r, c):
        self.t[r] /= self.t[r, c]
        for i in range(len(self.t)):
            if i != r:
                self.t[i] -= self.t[i, c] * self.t[r]
        self.basis[r] = c


def simplex(x, n):
    T = Tableau(np.array([[1.0, 1.0], [1.0, 3.0]]), np.array([4.0, 6.0]), np.array([3.0 * x, 2.0]))
    for _ in range(6):
        c = np.argmin(T.t[-1, :-1])
        if T.t[-1, c] >= -1e-09:
            break
        r, best = (-1, np.inf)
        for i in range(2):
            if T.t[i, c] > 1e-09 and T.t[i, -1] / T.t[i, c] < best:
                best = T.t[i, -1] / T.t[i, c]
                r = i
        T.pivot(r, c)
    return (T.t, T.basis)


def backtrack_subset(x, n):
    w = np.array([3, 5, 7, 2])
    chosen = np.zeros(4, int)
    best = np.zeros(1)

    def go(i, total):
        if total == 10:
            best[0] += 1
            return
        if i == 4:
            return
        chosen[i] = 1
        go(i + 1, total + w[i])
        chosen[i] = 0
        go(i + 1, total)
    go(0, 0)
    return best * x


def trie(x, n):
    nxt = -np.ones((12, 3), int)
    end = np.zeros(12, int)
    size = 1
    words = np.array([[0, 1, 2], [0, 1, 0], [2, 1, 0]])
    for w in words:
        node = 0
        for ch in w:
            if nxt[node, ch] < 0:
                nxt[node, ch] = size
                size += 1
            node = nxt[node, ch]
        end[node] += n
    return (nxt, end, size)


def fenwick(x, n):
    t = np.zeros(9)

    def add(i, v):
        while i < 9:
            t[i] += v
            i += i & -i

    def total(i):
        s = 0.0
        while i > 0:
            s += t[i]
            i -= i & -i
        return s
    for i in range(1, 9):
        add(i, x * i)
    add(n + 1, 5.0)
    return (total(5), total(n), t)


def segtree(x, n):
    t = np.zeros(16)
    for i in range(8):
        t[8 + i] = np.sin(x * i)
    for i in range(7, 0, -1):
        t[i] = max(t[2 * i], t[2 * i + 1])

    def update(i, v):
        i += 8
        t[i] = v
        while i > 1:
            i //= 2
            t[i] = max(t[2 * i], t[2 * i + 1])
    update(n, 2.0)
    update(3, -2.0)
    lo, hi, r = (8 + n, 8 + 6, -np.inf)
    while lo < hi:
        if lo & 1:
            r = max(r, t[lo])
            lo += 1
        if hi & 1:
            hi -= 1
            r = max(r, t[hi])
        lo //= 2
        hi //= 2
    return (r, t)


def lru(x, n):
    keys = -np.ones(3, int)
    age = np.zeros(3, int)
    hits = 0
    for t in range(10):
        k = (t * t + n) % 5
        slot = -1
        for i in range(3):
            if keys[i] == k:
                slot = i
        if slot >= 0:
            hits += 1
        else:
            slot = np.argmin(age)
            keys[slot] = k
        age[slot] = t + 1
    return (hits * x, keys, age)


def markov(x, n):
    P = np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.0, 0.3, 0.7]])
    p = np.array([1.0, 0.0, 0.0])
    hist = np.zeros((8, 3))
    for t in range(8):
        hist[t] = p
        q = p @ P
        if np.max(np.abs(q - p)) < 0.02 * x:
            break
        p = q
    return (p, hist)


def fft(x, n):
    a = np.cos(np.arange(8.0) * x) + 0j
    j = 0
    for i in range(1, 8):
        bit = 4
        while j & bit:
            j ^= bit
            bit >>= 1
        j |= bit
        if i < j:
            a[i], a[j] = (a[j], a[i])
    L = 2
    while L <= 8:
        w = np.exp(-2j * np.pi / L)
        for s in range(0, 8, L):
            f = 1.0 + 0j
            for k in range(L // 2):
                u, v = (a[s + k], a[s + k + L // 2] * f)
                a[s + k] = u + v
                a[s + k + L // 2] = u - v
                f *= w
        L *= 2
    return a


def qr(x, n):
    A = np.cos(np.arange(12.0).reshape(4, 3) ** 2 * x)
    Q = np.zeros((4, 3))
    R = np.zeros((3, 3))
    for j in range(n if n < 3 else 3):
        v = A[:, j].copy()
        for i in range(j):
            R[i, j] = Q[:, i] @ A[:, j]
            v -= R[i, j] * Q[:, i]
        R[j, j] = np.sqrt(v @ v)
        Q[:, j] = v / R[j, j]
    return (Q, R)


def spline(x, n):
    y = np.sin(np.arange(6.0) * x)
    c = np.zeros(6)
    d = np.zeros(6)
    for i in range(1, 5):
        w = 4 - c[i - 1]
        c[i] = 1 / w
        d[i] = (6 * (y[i + 1] - 2 * y[i] + y[i - 1]) - d[i - 1]) / w
    m = np.zeros(6)
    for i in range(4, 0, -1):
        m[i] = d[i] - c[i] * m[i + 1]
    return m


def ode_history(x, n):

    class Sim:

        def __init__(self, y):
            self.y = y
            self.t = 0.0
            self.log = np.zeros((6, 2))
            self.k = 0

        def step(self, h):
            k1 = self.f(self.y)
            k2 = self.f(self.y + h * k1)
            self.y = self.y + 0.5 * h * (k1 + k2)
            self.t += h
            self.log[self.k] = self.y
            self.k += 1

        def f(self, y):
            return np.array([y[1], -x * y[0]])
    s = Sim(np.array([1.0, 0.0]))
    while s.t < 0.3 * n and s.k < 6:
        s.step(0.2)
    return (s.y, s.log, s.k)
