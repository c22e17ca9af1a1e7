"""Forty-one functions from textbooks and puzzles: queues and stacks in arrays, integer arithmetic, pivoting."""

from __future__ import annotations

import numpy as np


def xorshift(x, n):
    s = np.uint32(n + 12345)
    out = np.zeros(5)
    for k in range(5):
        s ^= s << np.uint32(13) & np.uint32(4294967295)
        s ^= s >> np.uint32(17)
        s ^= s << np.uint32(5) & np.uint32(4294967295)
        out[k] = int(s) / 2 ** 32
    return out * x


def lcg(x, n):
    s, total = (n, 0.0)
    i = 0
    while i < 10:
        s = (1103515245 * s + 12345) % 2147483648
        if s % 3 == 0:
            total += s / 2147483648
        i += 1
    return (total * x, s)


def popcount(x, n):
    v, c = (n * 37 + 5, 0)
    while v:
        v &= v - 1
        c += 1
    return c


def bit_reverse(x, n):
    v, r = (n * 5 + 1, 0)
    for _ in range(8):
        r = r << 1 | v & 1
        v >>= 1
    return r


def isqrt(x, n):
    m = n * 1000 + 17
    if m == 0:
        return 0
    r = m
    while True:
        y = (r + m // r) // 2
        if y >= r:
            return r
        r = y


def powmod(x, n):
    b, e, m, r = (n + 7, 13, 101, 1)
    b %= m
    while e > 0:
        if e & 1:
            r = r * b % m
        b = b * b % m
        e >>= 1
    return r


def egcd(x, n):
    a, b = (240, 46 + n)
    x0, x1, y0, y1 = (1, 0, 0, 1)
    while b:
        q, a, b = (a // b, b, a % b)
        x0, x1 = (x1, x0 - q * x1)
        y0, y1 = (y1, y0 - q * y1)
    return (a, x0, y0)


def sieve(x, n):
    p = np.ones(60, bool)
    p[:2] = False
    i = 2
    while i * i < 40 + n:
        if p[i]:
            p[i * i::i] = False
        i += 1
    return (p, np.sum(p[:40 + n]))


def lis_patience(x, n):
    a = np.cos(np.arange(12) * x)
    tails, size = (np.zeros(12), 0)
    for v in a:
        lo, hi = (0, size)
        while lo < hi:
            mid = (lo + hi) // 2
            if tails[mid] < v:
                lo = mid + 1
            else:
                hi = mid
        tails[lo] = v
        if lo == size:
            size += 1
    return (size, tails)


def lcs(x, n):
    a, b = (np.array([1, 3, 4, 1, 2, 3]), np.array([3, 4, 1, 2, 1, 3]))
    d = np.zeros((7, 7), dtype=np.int64)
    for i in range(1, n + 4):
        for j in range(1, 7):
            if a[i - 1] == b[j - 1]:
                d[i, j] = d[i - 1, j - 1] + 1
            else:
                d[i, j] = max(d[i - 1, j], d[i, j - 1])
    i, j, k = (n + 3, 6, 0)
    out = np.full(6, -1)
    while i > 0 and j > 0:
        if a[i - 1] == b[j - 1]:
            out[k] = a[i - 1]
            k += 1
            i -= 1
            j -= 1
        elif d[i - 1, j] >= d[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return (d, out[:6][::-1])


def kmp(x, n):
    p, t = (np.array([0, 1, 0, 1, 0]), np.array([0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0]))
    fail = np.zeros(5, int)
    k = 0
    for i in range(1, 5):
        while k > 0 and p[k] != p[i]:
            k = fail[k - 1]
        if p[k] == p[i]:
            k += 1
        fail[i] = k
    q, hits = (0, 0)
    for i in range(len(t) - n + 1):
        while q > 0 and (q == 5 or p[q] != t[i]):
            q = fail[q - 1]
        if p[q] == t[i]:
            q += 1
        if q == 5:
            hits += 1
            q = fail[q - 1]
    return (fail, hits)


def flood(x, n):
    g = np.array([[0, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]])
    stack = np.zeros((64, 2), dtype=int)
    stack[0] = [0, n % 2]
    top = 1
    count = 0
    while top > 0:
        top -= 1
        r, c = stack[top]
        if r < 0 or r >= 4 or c < 0 or (c >= 4) or (g[r, c] != 0):
            continue
        g[r, c] = 2
        count += 1
        for dr, dc in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            stack[top] = (r + dr, c + dc)
            top += 1
    return (g, count)


def bfs(x, n):
    adj = np.array([[0, 1, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 1, 0], [0, 1, 1, 0, 1], [0, 0, 0, 1, 0]])
    dist = np.full(5, -1)
    queue = np.zeros(10, int)
    head, tail = (0, 1)
    queue[0] = n
    dist[n] = 0
    while head < tail:
        u = queue[head]
        head += 1
        for v in range(5):
            if adj[u, v] and dist[v] < 0:
                dist[v] = dist[u] + 1
                queue[tail] = v
                tail += 1
    return dist


def dijkstra(x, n):
    w = np.abs(np.sin(np.arange(25.0).reshape(5, 5) * x)) + 0.1
    dist = np.full(5, np.inf)
    done = np.zeros(5, bool)
    dist[n] = 0.0
    for _ in range(5):
        u, best = (-1, np.inf)
        for v in range(5):
            if not done[v] and dist[v] < best:
                u, best = (v, dist[v])
        if u < 0:
            break
        done[u] = True
        for v in range(5):
            alt = dist[u] + w[u, v]
            dist[v] = min(dist[v], alt)
    return dist


def kruskal(x, n):
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (1, 3)]
    w = np.abs(np.sin(np.arange(1.0, 6) * x))
    comp = np.arange(4)
    total = 0.0
    for k in np.argsort(w):
        u = 0
        v = 0
        for q, (a, b) in enumerate(edges):
            if q == k:
                u, v = (a, b)
        if comp[u] != comp[v]:
            old, new = (comp[v], comp[u])
            for t in range(4):
                if comp[t] == old:
                    comp[t] = new
            total += w[k]
    return total


def lu(x, n):
    a = np.sin(np.arange(16.0).reshape(4, 4) ** 2 * x) + np.eye(4)
    piv = np.arange(4)
    sign = 1
    for k in range(3):
        p = k
        for i in range(k + 1, 4):
            if abs(a[i, k]) > abs(a[p, k]):
                p = i
        if p != k:
            a[[k, p]] = a[[p, k]]
            piv[k], piv[p] = (piv[p], piv[k])
            sign = -sign
        for i in range(k + 1, 4):
            a[i, k] /= a[k, k]
            a[i, k + 1:] -= a[i, k] * a[k, k + 1:]
    det = sign
    for k in range(4):
        det *= a[k, k]
    return (a, piv, det)


def swap_rows(m, i, j):
    t = m[i].copy()
    m[i] = m[j]
    m[j] = t


def gauss(x, n):
    a = np.cos(np.arange(9.0).reshape(3, 3) ** 2 * x) + np.eye(3)
    b = np.arange(3.0)
    for k in range(3):
        p = k + np.argmax(np.abs(a[k:, k]))
        if p != k:
            swap_rows(a, k, p)
            b[k], b[p] = (b[p], b[k])
        for i in range(k + 1, 3):
            f = a[i, k] / a[k, k]
            a[i] -= f * a[k]
            b[i] -= f * b[k]
    for k in reversed(range(3)):
        b[k] = (b[k] - a[k, k + 1:] @ b[k + 1:]) / a[k, k]
    return b


def householder(x, n):
    a = np.sin(np.arange(12.0).reshape(4, 3) * x) + 1
    for k in range(3):
        v = a[k:, k].copy()
        s = np.sqrt((v ** 2).sum())
        if v[0] < 0:
            s = -s
        v[0] += s
        v /= np.sqrt((v ** 2).sum())
        for j in range(k, 3):
            a[k:, j] -= 2 * v * (v @ a[k:, j])
    return a


def jacobi(x, n):
    a = np.array([[4.0, 1, 0.5], [1, 3, 0.2], [0.5, 0.2, 2]]) * x
    sweeps = 0
    while True:
        off = abs(a[0, 1]) + abs(a[0, 2]) + abs(a[1, 2])
        if off < 1e-09 or sweeps > 20:
            break
        for p in range(2):
            for q in range(p + 1, 3):
                if abs(a[p, q]) > 1e-12:
                    th = (a[q, q] - a[p, p]) / (2 * a[p, q])
                    t = (1.0 if th >= 0 else -1.0) / (abs(th) + np.sqrt(th * th + 1))
                    c = 1 / np.sqrt(t * t + 1)
                    s = t * c
                    for k in range(3):
                        u, v = (a[k, p], a[k, q])
                        a[k, p], a[k, q] = (c * u - s * v, s * u + c * v)
                    for k in range(3):
                        u, v = (a[p, k], a[q, k])
                        a[p, k], a[q, k] = (c * u - s * v, s * u + c * v)
        sweeps += 1
    return (np.sort(np.diag(a)), sweeps)


def intervals(x, n):
    s = np.array([1, 8, 15, 2, 6, 17])
    e = np.array([3, 10, 18, 6, 9 + n, 20])
    order = np.argsort(s)
    out, k = (np.zeros((6, 2), int), -1)
    for i in order:
        if k >= 0 and s[i] <= out[k, 1]:
            out[k, 1] = max(out[k, 1], e[i])
        else:
            k += 1
            out[k] = (s[i], e[i])
    return (out, k + 1)


def rle(x, n):
    a = np.array([1, 1, 2, 2, 2, 3, 1, 1, 1, 1])
    vals, counts, k = (np.zeros(10, int), np.zeros(10, int), 0)
    i = 0
    while i < len(a) - n:
        j = i
        while j < len(a) - n and a[j] == a[i]:
            j += 1
        vals[k], counts[k] = (a[i], j - i)
        k += 1
        i = j
    return (vals, counts, k)


def lz77(x, n):
    t = np.array([0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1])
    out = np.zeros((12, 3), int)
    pos = k = 0
    while pos < len(t):
        bl = bd = 0
        for d in range(1, 6):
            if d > pos:
                break
            length = 0
            while pos + length < len(t) - 1 and t[pos + length] == t[pos + length - d] and (length < 4 + n):
                length += 1
            if length > bl:
                bl, bd = (length, d)
        out[k] = [bd, bl, t[pos + bl]]
        k += 1
        pos += bl + 1
    return (out, k)


def lzw(x, n):
    t = np.array([0, 1, 0, 1, 1, 0, 1, 0, 0])
    table = np.full((32, 2), -1)
    size = 2
    out, k, cur = (np.zeros(12, int), 0, -1)
    for ch in t:
        if cur < 0:
            cur = ch
            continue
        found = -1
        for q in range(2, 20):
            if q >= size:
                break
            if table[q, 0] == cur and table[q, 1] == ch:
                found = q
                break
        if found >= 0:
            cur = found
        else:
            out[k] = cur
            k += 1
            table[size] = (cur, ch)
            size += 1
            cur = ch
    out[k] = cur
    return (out, size)


def queens(x, n):
    size = 4 + n % 2
    pos = np.full(8, -1)
    row, sols = (0, 0)
    while row >= 0:
        pos[row] += 1
        if pos[row] >= size:
            pos[row] = -1
            row -= 1
            continue
        ok = True
        for r in range(8):
            if r >= row:
                break
            if pos[r] == pos[row] or abs(pos[r] - pos[row]) == row - r:
                ok = False
                break
        if ok:
            if row == size - 1:
                sols += 1
            else:
                row += 1
    return sols


def rule110(x, n):
    c = np.zeros(16, int)
    c[-1] = 1
    for _ in range(n + 3):
        new = np.zeros_like(c)
        for i in range(1, 15):
            p = c[i - 1] * 4 + c[i] * 2 + c[i + 1]
            new[i] = 110 >> p & 1
        new[15] = c[15]
        c = new
    return c


def langton(x, n):
    g = np.zeros((7, 7), bool)
    r = c = 3
    d = 0
    for _ in range(n * 5 + 3):
        if g[r, c]:
            d = (d + 1) % 4
        else:
            d = (d - 1) % 4
        g[r, c] = not g[r, c]
        if d == 0:
            r = (r - 1) % 7
        elif d == 1:
            c = (c + 1) % 7
        elif d == 2:
            r = (r + 1) % 7
        else:
            c = (c - 1) % 7
    return (g, r, c)


def state_machine(x, n):
    t = np.array([11, 3, 1, 10, 4, 2])
    state, sign, val, scale = (0, 1, 0.0, 1.0)
    for k in range(len(t) - n % 2):
        ch = t[k]
        match state:
            case 0:
                if ch == 11:
                    sign = -1
                else:
                    val = float(ch)
                state = 1
            case 1:
                if ch == 10:
                    state = 2
                else:
                    val = val * 10 + ch
            case _:
                scale /= 10
                val += ch * scale
    return sign * val * x


class Queue:

    def __init__(self, n):
        self.buf, self.head, self.size = (np.zeros(n), 0, 0)

    def push(self, v):
        self.buf[(self.head + self.size) % len(self.buf)] = v
        self.size += 1

    def pop(self):
        v = self.buf[self.head]
        self.head = (self.head + 1) % len(self.buf)
        self.size -= 1
        return v

    def __len__(self):
        return 3


def ring(x, n):
    q = Queue(5)
    t = 0.0
    for k in range(n + 6):
        if q.size == 5:
            t += q.pop()
        q.push(np.sin(x * k))
    while q.size > 0:
        t = 0.5 * t + q.pop()
    return t


class Agent:

    def __init__(self, p, w):
        self.p, self.w, self.trades = (p, w, 0)

    def trade(self, other, price):
        if self.w > price and other.p > 0:
            self.w -= price
            other.w += price
            self.p += 1
            other.p -= 1
            self.trades += 1
            return True
        return False


def market(x, n):
    a, b = (Agent(2, 5.0), Agent(3, 4.0 * x))
    price, done = (1.0, 0)
    for t in range(n + 4):
        if t % 2 == 0:
            ok = a.trade(b, price)
        else:
            ok = b.trade(a, price)
        if ok:
            price *= 1.1
            done += 1
        else:
            price *= 0.8
    return (a.p, a.w, b.p, b.w, price, done, a.trades + b.trades)


def events(x, n):
    times = np.full(8, np.inf)
    kinds = np.zeros(8, int)
    times[0], kinds[0] = (0.3 * x + 1, 0)
    times[1], kinds[1] = (0.9, 1)
    now, served, waiting = (0.0, 0, 0)
    while now < 5.0:
        k = int(np.argmin(times))
        now = times[k]
        kind = kinds[k]
        times[k] = np.inf
        if kind == 0:
            waiting += 1
            times[k] = now + 0.7
        else:
            if waiting > 0:
                waiting -= 1
                served += 1
            times[k] = now + 0.5 + 0.1 * n
            kinds[k] = 1
    return (now, served, waiting)


def knight(x, n):
    moves = np.array([(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)])
    b = np.zeros((5, 5), int)
    r = c = n % 3
    step = 1
    b[r, c] = 1
    while step < 25:
        best, bm = (9, -1)
        for m in range(8):
            a, d = (r + moves[m, 0], c + moves[m, 1])
            if 0 <= a < 5 and 0 <= d < 5 and (b[a, d] == 0):
                deg = 0
                for q in range(8):
                    e, f = (a + moves[q][0], d + moves[q][1])
                    if 0 <= e < 5 and 0 <= f < 5 and (b[e, f] == 0):
                        deg += 1
                if deg < best:
                    best, bm = (deg, m)
        if bm < 0:
            break
        r += moves[bm, 0]
        c += moves[bm, 1]
        step += 1
        b[r, c] = step
    return (b, step)


def tridiag(x, n):
    a, b, c, d = (np.full(6, -1.0), np.full(6, 2.0 + x ** 2), np.full(6, -1.0), np.arange(6.0))
    for i in range(1, 6):
        w = a[i] / b[i - 1]
        b[i] -= w * c[i - 1]
        d[i] -= w * d[i - 1]
    d[-1] /= b[-1]
    for i in range(4, -1, -1):
        d[i] = (d[i] - c[i] * d[i + 1]) / b[i]
    return d


def ising(x, n):
    s = np.ones((4, 4))
    seed = n + 1
    acc = 0
    for _ in range(30):
        seed = (seed * 1664525 + 1013904223) % 4294967296
        i, j = ((seed >> 8) % 4, (seed >> 16) % 4)
        e = 2 * s[i, j] * (s[(i + 1) % 4, j] + s[i - 1, j] + s[i, (j + 1) % 4] + s[i, j - 1])
        if e <= 0 or (seed >> 4) % 1000 / 1000 < np.exp(-e * abs(x)):
            s[i, j] *= -1
            acc += 1
    return (s, acc)


def simplex(x, n):
    t = np.array([[1.0, 1, 1, 0, 4], [1, 3, 0, 1, 6], [-3 - x, -5, 0, 0, 0]])
    it = 0
    while it < 10:
        col = int(np.argmin(t[-1, :-1]))
        if t[-1, col] >= 0:
            break
        row, best = (-1, np.inf)
        for r in range(2):
            if t[r, col] > 1e-12 and t[r, -1] / t[r, col] < best:
                best, row = (t[r, -1] / t[r, col], r)
        t[row] /= t[row, col]
        for r in range(3):
            if r != row:
                t[r] -= t[r, col] * t[row]
        it += 1
    return (t, it)


def nelder(x, n):
    f = lambda p: (p[0] - x) ** 2 + 3 * (p[1] + 1) ** 2
    s = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    v = np.array([f(p) for p in s])
    for _ in range(15):
        o = np.argsort(v)
        s, v = (s[o], v[o])
        c = (s[0] + s[1]) / 2
        r = c + (c - s[2])
        fr = f(r)
        if fr < v[0]:
            e = c + 2 * (c - s[2])
            fe = f(e)
            if fe < fr:
                s[2], v[2] = (e, fe)
            else:
                s[2], v[2] = (r, fr)
        elif fr < v[1]:
            s[2], v[2] = (r, fr)
        else:
            k = c + 0.5 * (s[2] - c)
            fk = f(k)
            if fk < v[2]:
                s[2], v[2] = (k, fk)
            else:
                for i in (1, 2):
                    s[i] = (s[0] + s[i]) / 2
                    v[i] = f(s[i])
    return (s[0], v[0])


def roman(x, n):
    vals, out, k, m = ((10, 9, 5, 4, 1), np.zeros(12, int), 0, n + 14)
    for i, v in enumerate(vals):
        while m >= v:
            out[k] = i
            k += 1
            m -= v
    return (out, k)


def luhn(x, n):
    m, total, dbl = (79927398713 + n, 0, False)
    while m:
        m, d = divmod(m, 10)
        if dbl:
            d *= 2
            if d > 9:
                d -= 9
        total += d
        dbl = not dbl
    return total % 10 == 0


def perm(x, n):
    a = np.array([1, 2, 3, 4])
    for _ in range(n + 5):
        i = 2
        while i >= 0 and a[i] >= a[i + 1]:
            i -= 1
        if i < 0:
            break
        j = 3
        while a[j] <= a[i]:
            j -= 1
        a[i], a[j] = (a[j], a[i])
        a[i + 1:] = a[i + 1:][::-1]
    return a


def gray(x, n):
    out = np.zeros((8, 3), int)
    for i in range(8):
        g = i + n ^ i + n >> 1
        for b in range(3):
            out[i, 2 - b] = g >> b & 1
    return out


def hanoi(x, n):
    pegs = np.zeros((3, 5), int)
    top = np.zeros(3, int)
    d = 3
    for k in range(d):
        pegs[0, k] = d - k
    top[0] = d
    m = 1
    while m < 2 ** d + n - n:
        a, b = ((m & m - 1) % 3, ((m | m - 1) + 1) % 3)
        v = pegs[a, top[a] - 1]
        top[a] -= 1
        pegs[b, top[b]] = v
        pegs[a, top[a]] = 0
        top[b] += 1
        m += 1
    return (pegs, top)


def quick_stack(x, n):
    a = np.cos(np.arange(9.0) * x)
    st = np.zeros((20, 2), int)
    st[0] = (0, 8)
    top = 1
    while top > 0:
        top -= 1
        lo, hi = st[top]
        if lo >= hi:
            continue
        p, i = (a[hi], lo)
        for j in range(lo, hi):
            if a[j] < p:
                a[i], a[j] = (a[j], a[i])
                i += 1
        a[i], a[hi] = (a[hi], a[i])
        st[top] = (lo, i - 1)
        top += 1
        st[top] = (i + 1, hi)
        top += 1
    return a
