"""Thirty sparse problems from their published formulas, beside asdex and CasADi.

Timed are pattern, colors, compilation and 100 matrices; un-jitted, nothing is compiled by XLA.

Sources: Moré, Garbow and Hillstrom, "Testing unconstrained optimization software" (1981); Bongartz, Conn, Gould and
Toint, "CUTE" (1995); Andrei, "An unconstrained optimization test functions collection" (2008); Dolan, Moré and Munson,
"Benchmarking optimization software with COPS 3.0" (2004); Betts, "Practical methods for optimal control" (2010).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO
from scipy.sparse import coo_matrix

import fxgrad
import fxgrad.numpy as fnp
from benchmarks.casadi_arrays import casadi, sparse_matrix
from benchmarks.sparse import asdex
from benchmarks.workload import Peer, Peers, Ratio, Workload, forget_programs

RUNS = 100
UNJITTED = "fxgrad, un-jitted"


class Problem(NamedTuple):
    """A function of (library, x), where x has `size` elements, and `small` ones in tests: a residual, or a scalar."""

    function: Callable[[Any, Any], Any]
    size: int
    small: int


# --- equations, whose Jacobian is wanted ------------------------------------------------------------------------------


def before(lib: Any, x: Any, by: int = 1) -> Any:
    """The elements `by` places before, zeros at the beginning."""
    return lib.concatenate([np.zeros(by), x[:-by]])


def behind(lib: Any, x: Any, by: int = 1) -> Any:
    """The elements `by` places behind, zeros at the end."""
    return lib.concatenate([x[by:], np.zeros(by)])


def grid(lib: Any, x: Any, fields: int = 1) -> Any:
    """The fields of a square grid, shape (fields, side, side)."""
    side = round((x.shape[0] // fields) ** 0.5)
    return lib.reshape(x, (fields, side, side))


def minus_laplacian(lib: Any, u: Any) -> Any:
    """Five-point differences of a field with zeros around it."""
    around = lib.pad(u, 1)
    return 4.0 * u - around[:-2, 1:-1] - around[2:, 1:-1] - around[1:-1, :-2] - around[1:-1, 2:]


def periodic_laplacian(lib: Any, u: Any) -> Any:
    """Five-point differences of a field that repeats."""
    return lib.roll(u, 1, 0) + lib.roll(u, -1, 0) + lib.roll(u, 1, 1) + lib.roll(u, -1, 1) - 4.0 * u


def broyden_tridiagonal(lib: Any, x: Any) -> Any:
    """Problem 30 of Moré, Garbow and Hillstrom."""
    return (3.0 - 2.0 * x) * x - before(lib, x) - 2.0 * behind(lib, x) + 1.0


def broyden_banded(lib: Any, x: Any) -> Any:
    """Problem 31 of Moré, Garbow and Hillstrom."""
    terms = x * (1.0 + x)
    return (x * (2.0 + 5.0 * x ** 2) + 1.0 - sum(before(lib, terms, by) for by in range(1, 6)) - behind(lib, terms))


def boundary_value(lib: Any, x: Any) -> Any:
    """Problem 28 of Moré, Garbow and Hillstrom."""
    t = np.arange(1, x.shape[0] + 1) / (x.shape[0] + 1)
    return 2.0 * x - before(lib, x) - behind(lib, x) + (x + t + 1.0) ** 3 / (2.0 * (x.shape[0] + 1) ** 2)


def bratu(lib: Any, x: Any) -> Any:
    """-Δu = 6 exp(u) on the unit square."""
    u = grid(lib, x)[0]
    return lib.reshape(minus_laplacian(lib, u) - 6.0 / (u.shape[0] + 1) ** 2 * lib.exp(u), (-1,))


def burgers(lib: Any, x: Any) -> Any:
    """The rate of change of a periodic wave by Burgers' equation."""
    left, right = lib.roll(x, 1), lib.roll(x, -1)
    return -x * (right - left) * 0.5 + 0.1 * (right - 2.0 * x + left)


def brusselator(lib: Any, x: Any) -> Any:
    """Two reacting and diffusing fields."""
    u, v = grid(lib, x, 2)
    reaction = u * u * v
    return lib.reshape(lib.stack([1.0 + reaction - 4.4 * u + 0.1 * periodic_laplacian(lib, u),
                                  3.4 * u - reaction + 0.1 * periodic_laplacian(lib, v)]), (-1,))


def allen_cahn(lib: Any, x: Any) -> Any:
    """The rate of change of a phase."""
    u = grid(lib, x)[0]
    return lib.reshape(0.01 * periodic_laplacian(lib, u) + u - u ** 3, (-1,))


def cahn_hilliard(lib: Any, x: Any) -> Any:
    """The rate of change of a phase whose amount is kept: 13-point differences."""
    u = grid(lib, x)[0]
    return lib.reshape(periodic_laplacian(lib, u ** 3 - u - 0.01 * periodic_laplacian(lib, u)), (-1,))


def kuramoto_sivashinsky(lib: Any, x: Any) -> Any:
    """The rate of change of a flame front."""
    def second(u: Any) -> Any:
        return lib.roll(u, 1) - 2.0 * u + lib.roll(u, -1)
    return -second(second(x)) - second(x) - 0.25 * (lib.roll(x, -1) ** 2 - lib.roll(x, 1) ** 2)


def nonlinear_diffusion(lib: Any, x: Any) -> Any:
    """The divergence of (1 + u²) ∇u."""
    u = lib.pad(grid(lib, x)[0], 1)

    def flow(u: Any) -> Any:
        return 0.5 * (1.0 + u[1:] ** 2 + 1.0 + u[:-1] ** 2) * (u[1:] - u[:-1])
    down, right = flow(u[:, 1:-1]), flow(u[1:-1].T).T
    return lib.reshape(down[1:] - down[:-1] + right[:, 1:] - right[:, :-1], (-1,))


# --- objectives, whose Hessian is wanted ------------------------------------------------------------------------------


def chained_rosenbrock(lib: Any, x: Any) -> Any:
    """Neighbours along a bent valley."""
    return lib.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def arwhead(lib: Any, x: Any) -> Any:
    """The last element meets all others."""
    return lib.sum((x[:-1] ** 2 + x[-1] ** 2) ** 2 - 4.0 * x[:-1] + 3.0)


def bdqrtic(lib: Any, x: Any) -> Any:
    """A band, and the last element."""
    square = x ** 2
    inner = square[:-4] + 2.0 * square[1:-3] + 3.0 * square[2:-2] + 4.0 * square[3:-1] + 5.0 * square[-1]
    return lib.sum((3.0 - 4.0 * x[:-4]) ** 2 + inner ** 2)


def cosine(lib: Any, x: Any) -> Any:
    """Cosines of neighbours."""
    return lib.sum(lib.cos(x[:-1] ** 2 - 0.5 * x[1:]))


def cragglvy(lib: Any, x: Any) -> Any:
    """Chains of four."""
    a, b, c, d = x[:-3:2], x[1:-2:2], x[2:-1:2], x[3::2]
    return lib.sum((lib.exp(a) - b) ** 4 + 100.0 * (b - c) ** 6 + lib.tan(c - d) ** 4 + a ** 8 + (d - 1.0) ** 2)


def dixmaana(lib: Any, x: Any) -> Any:
    """Elements a third and two thirds apart."""
    third = x.shape[0] // 3
    return (1.0 + lib.sum(x ** 2) + 0.125 * lib.sum(x[:2 * third] ** 2 * x[third:] ** 4)
            + 0.125 * lib.sum(x[:third] * x[2 * third:]))


def edensch(lib: Any, x: Any) -> Any:
    """Quartic terms of neighbours."""
    a, b = x[:-1], x[1:]
    return 16.0 + lib.sum((a - 2.0) ** 4 + (a * b - 2.0 * b) ** 2 + (b + 1.0) ** 2)


def engval(lib: Any, x: Any) -> Any:
    """Quartic terms of neighbours."""
    return lib.sum((x[:-1] ** 2 + x[1:] ** 2) ** 2 - 4.0 * x[:-1] + 3.0)


def freuroth(lib: Any, x: Any) -> Any:
    """Cubic residuals of neighbours."""
    a, b = x[:-1], x[1:]
    return lib.sum((-13.0 + a + ((5.0 - b) * b - 2.0) * b) ** 2 + (-29.0 + a + ((b + 1.0) * b - 14.0) * b) ** 2)


def liarwhd(lib: Any, x: Any) -> Any:
    """The first element meets all others."""
    return lib.sum(4.0 * (x ** 2 - x[0]) ** 2 + (x - 1.0) ** 2)


def nondquar(lib: Any, x: Any) -> Any:
    """The last element meets pairs of neighbours."""
    return (x[0] - x[1]) ** 2 + (x[-2] + x[-1]) ** 2 + lib.sum((x[:-2] + x[1:-1] + x[-1]) ** 4)


def powell_singular(lib: Any, x: Any) -> Any:
    """Groups of four, with a singular Hessian at the minimum."""
    a, b, c, d = lib.reshape(x, (-1, 4)).T
    return lib.sum((a + 10.0 * b) ** 2 + 5.0 * (c - d) ** 2 + (b - 2.0 * c) ** 4 + 10.0 * (a - d) ** 4)


def woods(lib: Any, x: Any) -> Any:
    """Groups of four."""
    a, b, c, d = lib.reshape(x, (-1, 4)).T
    return lib.sum(100.0 * (b - a ** 2) ** 2 + (1.0 - a) ** 2 + 90.0 * (d - c ** 2) ** 2 + (1.0 - c) ** 2
                   + 10.0 * (b + d - 2.0) ** 2 + 0.1 * (b - d) ** 2)


def minimal_surface(lib: Any, x: Any) -> Any:
    """The area of a surface over a square."""
    u = grid(lib, x)[0]
    side = u.shape[0]
    return lib.sum(lib.sqrt(1.0 + 0.5 * side ** 2 * (
        (u[1:, 1:] - u[:-1, :-1]) ** 2 + (u[1:, :-1] - u[:-1, 1:]) ** 2))) / side ** 2


# --- optimal control: defects of collocation, and Lagrangians ---------------------------------------------------------


def defects(lib: Any, slope: Any, states: Any, controls: Any, step: float) -> Any:
    """What is missing between neighbours by the trapezoidal rule; states are of shape (states, times)."""
    rate = slope(lib, states, controls)
    return states[:, 1:] - states[:, :-1] - 0.5 * step * (rate[:, 1:] + rate[:, :-1])


def van_der_pol(lib: Any, states: Any, controls: Any) -> Any:
    """Slopes of an oscillator."""
    a, b = states
    return lib.stack([b, (1.0 - a ** 2) * b - a + controls])


def cart_pole(lib: Any, states: Any, controls: Any) -> Any:
    """Slopes of a pole on a cart."""
    _, angle, speed, turn = states
    sine, cosine = lib.sin(angle), lib.cos(angle)
    mass = 1.0 + 0.3 * sine ** 2
    return lib.stack([speed, turn, (0.15 * sine * turn ** 2 + controls + 0.3 * 9.81 * cosine * sine) / mass,
                      -(0.15 * cosine * sine * turn ** 2 + controls * cosine + 1.3 * 9.81 * sine) / (0.5 * mass)])


def rocket(lib: Any, states: Any, controls: Any) -> Any:
    """Slopes of Goddard's rocket."""
    height, speed, mass = states
    drag = 310.0 * speed ** 2 * lib.exp(-500.0 * (height - 1.0))
    return lib.stack([speed, (controls - drag) / mass - 1.0 / height ** 2, -2.0 * controls])


def unpacked(lib: Any, x: Any, states: int) -> tuple[Any, Any]:
    """States and controls of all times; `x` has them by kind."""
    whole = lib.reshape(x, (states + 1, -1))
    return whole[:-1], whole[-1]


def collocated(slope: Any, states: int, lib: Any, x: Any) -> Any:
    """The defects, flat."""
    return lib.reshape(defects(lib, slope, *unpacked(lib, x, states), 0.05), (-1,))


def lagrangian(slope: Any, states: int, lib: Any, x: Any) -> Any:
    """An integral of squares, plus defects times multipliers."""
    given, controls = unpacked(lib, x, states)
    missing = defects(lib, slope, given, controls, 0.05)
    multipliers = np.cos(np.arange(missing.shape[0] * missing.shape[1])).reshape(missing.shape)
    return 0.5 * lib.sum(controls ** 2) + 0.5 * lib.sum(given ** 2) + lib.sum(multipliers * missing)


def hanging_chain(lib: Any, x: Any) -> Any:
    """The Lagrangian of the chain of least potential energy and given length."""
    height, slope = lib.reshape(x, (2, -1))
    step, length = 1.0 / (height.shape[0] - 1), lib.sqrt(1.0 + slope ** 2)
    energy = 0.5 * step * lib.sum((height * length)[1:] + (height * length)[:-1])
    total = 0.5 * step * lib.sum(length[1:] + length[:-1])
    missing = height[1:] - height[:-1] - 0.5 * step * (slope[1:] + slope[:-1])
    return energy + 0.7 * (total - 4.0) + lib.sum(np.cos(np.arange(missing.shape[0])) * missing)


EQUATIONS: dict[str, Problem] = {
    "Broyden tridiagonal": Problem(broyden_tridiagonal, 10_000, 12),
    "Broyden banded": Problem(broyden_banded, 10_000, 12),
    "discrete boundary value": Problem(boundary_value, 10_000, 12),
    "Bratu": Problem(bratu, 10_000, 16),
    "Burgers": Problem(burgers, 10_000, 12),
    "Brusselator": Problem(brusselator, 10_082, 32),
    "Allen-Cahn": Problem(allen_cahn, 10_000, 16),
    "Cahn-Hilliard": Problem(cahn_hilliard, 10_000, 49),
    "Kuramoto-Sivashinsky": Problem(kuramoto_sivashinsky, 10_000, 12),
    "nonlinear diffusion": Problem(nonlinear_diffusion, 10_000, 16),
    "van der Pol, defects": Problem(functools.partial(collocated, van_der_pol, 2), 10_002, 12),
    "cart and pole, defects": Problem(functools.partial(collocated, cart_pole, 4), 10_000, 20),
    "rocket, defects": Problem(functools.partial(collocated, rocket, 3), 10_000, 16),
}
OBJECTIVES: dict[str, Problem] = {
    "chained Rosenbrock": Problem(chained_rosenbrock, 10_000, 12), "ARWHEAD": Problem(arwhead, 10_000, 12),
    "BDQRTIC": Problem(bdqrtic, 10_000, 12), "COSINE": Problem(cosine, 10_000, 12),
    "CRAGGLVY": Problem(cragglvy, 10_000, 12), "DIXMAANA": Problem(dixmaana, 10_002, 12),
    "EDENSCH": Problem(edensch, 10_000, 12), "ENGVAL1": Problem(engval, 10_000, 12),
    "FREUROTH": Problem(freuroth, 10_000, 12), "LIARWHD": Problem(liarwhd, 10_000, 12),
    "NONDQUAR": Problem(nondquar, 10_000, 12), "Powell singular": Problem(powell_singular, 10_000, 12),
    "WOODS": Problem(woods, 10_000, 12), "minimal surface": Problem(minimal_surface, 10_000, 16),
    "van der Pol, Lagrangian": Problem(functools.partial(lagrangian, van_der_pol, 2), 10_002, 12),
    "cart and pole, Lagrangian": Problem(functools.partial(lagrangian, cart_pole, 4), 10_000, 20),
    "hanging chain": Problem(hanging_chain, 10_000, 12),
}


def start(problem: Problem, small: bool) -> Any:
    """A point away from kinks and symmetries."""
    return 1.0 + 0.1 * np.sin(np.arange(problem.small if small else problem.size))


def forget() -> None:
    """Empty the caches of programs and of compiled functions."""
    forget_programs()
    jax.clear_caches()


def peers_of(kind: str, problem: Problem, small: bool) -> Peers:
    """Find the pattern and the colors, compile, and compute 100 matrices; everything is new at each call."""
    x = start(problem, small)
    given = jnp.asarray(x)

    def repeated(make: Callable[[Any], Callable[[Any], Any]], lib: Any) -> Callable[[], Any]:
        def call() -> Any:
            matrix = make(lambda x: problem.function(lib, x))
            for _ in range(1 if small else RUNS):
                found = matrix(given)
            return jax.block_until_ready(found.data), found
        return call

    def dense(result: Any) -> Any:
        matrix = result[1]
        if x.size >= 100:
            return matrix @ given
        if isinstance(matrix, BCOO):  # whose own `todense` XLA compiles anew after each `forget`
            matrix = coo_matrix((np.asarray(matrix.data), np.asarray(matrix.indices).T), matrix.shape)
        return matrix.todense()

    def unjitted() -> Any:
        matrix = getattr(fxgrad, kind)(lambda x: problem.function(fnp, x), sparse=True)
        for _ in range(1 if small else RUNS):
            found = matrix(x)
        return None, found

    peers = {"fxgrad": Peer(repeated(lambda function: fxgrad.jit(getattr(fxgrad, kind)(function, sparse=True)), fnp),
                            result=dense, prepare=forget),
             UNJITTED: Peer(unjitted, result=dense, prepare=forget)}
    if asdex is not None:
        peers["asdex"] = Peer(repeated(lambda function: jax.jit(getattr(asdex, kind)(function, given)), jnp),
                              result=dense, prepare=forget)
    if casadi is not None:
        def by_casadi(symbols: Any) -> Any:
            matrix, point = sparse_matrix(symbols, kind, problem.function, x.size), casadi.DM(x)
            for _ in range(1 if small else RUNS):
                found = matrix(point)
            return None, found.sparse()
        peers["CasADi, scalars"] = Peer(lambda: by_casadi(casadi.SX), result=dense, prepare=forget)
        peers["CasADi, arrays"] = Peer(lambda: by_casadi(casadi.MX), result=dense, prepare=forget)
    return peers


WORKLOADS = [
    Workload(f"sparse problem: {name}", f"{kind.capitalize()} of {name}, n = {problem.size:,}",
             functools.partial(peers_of, kind, problem),
             (Ratio("asdex", 1.0), Ratio("CasADi, arrays", 1.0, of=UNJITTED)), wide=True)
    for kind, problems in (("jacobian", EQUATIONS), ("hessian", OBJECTIVES)) for name, problem in problems.items()]
