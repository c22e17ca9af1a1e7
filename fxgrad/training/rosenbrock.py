"""Steps for stiff equations by Rodas5P, a Rosenbrock method: eight linear systems with one matrix, no iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad import numpy as fnp
from fxgrad.engine.api.forward import jvp
from fxgrad.training.linear_systems import shifted_jacobian

# The coefficients of Rodas5P, of order 5 with an embedded order 4, L-stable and stiffly accurate: Steinebach,
# "Construction of Rosenbrock-Wanner method Rodas5P and numerical benchmarks within the Julia Differential Equations
# package", BIT Numerical Mathematics 63 (2023), in the form of Hairer and Wanner, Solving Ordinary Differential
# Equations II, IV.7: (I / (h gamma) - J) k_i = f(t + c_i h, y + sum_j a_ij k_j) + sum_j C_ij / h k_j + h d_i df/dt.
GAMMA = 0.21193756319429014
NODES = (0.0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1.0, 1.0, 1.0)
TIME_WEIGHTS = (GAMMA, -0.42387512638858027, -0.3384627126235924, 1.8046452872882734, 2.325825639765069, 0.0, 0.0, 0.0)
_SIXTH = (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946)
STAGES: tuple[tuple[float, ...], ...] = (
    (), (3.0,), (2.849394379747939, 0.45842242204463923),
    (-6.954028509809101, 2.489845061869568, -10.358996098473584),
    (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
    _SIXTH, (*_SIXTH, 1.0), (*_SIXTH, 1.0, 1.0))
COUPLINGS: tuple[tuple[float, ...], ...] = (
    (), (-14.155112264123755,), (-17.97296035885952, -2.859693295451294),
    (147.12150275711716, -1.41221402718213, 71.68940251302358),
    (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
    (24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471),
    (30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783, -19.097331116725623,
     -28.087943162872662),
    (37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047, -40.06618937091002,
     -54.66780262877968, -9.48861652309627))


def rosenbrock_step(field: Callable[[Any, Any], Any], sparse: Any, by_scipy: bool, state: Any, slope: Any, time: Any,
                    size: Any) -> tuple[Any, Any]:
    """Return the state after a step, and its error.

    `slope` is the field at the state and the time. The systems are those of the method times h gamma, so that steps of
    length 0 are finite.
    """
    length = fnp.asarray(size).astype(state.dtype)
    solve = shifted_jacobian(lambda y: field(y, time), state, GAMMA * length, sparse, by_scipy)
    drift = jvp(lambda moment: field(state, moment), (time,), (fnp.ones_like(time),))[1] * length
    stages: list[Any] = []
    moved = state
    for node, time_weight, weights, couplings in zip(NODES, TIME_WEIGHTS, STAGES, COUPLINGS, strict=True):
        if stages:
            moved = state + weighted_sum(weights, stages)
            slope = field(moved, time + node * size)
        right = length * (slope + time_weight * drift if time_weight else slope)
        stages.append(solve(GAMMA * (right + weighted_sum(couplings, stages) if couplings else right)))
    return moved + stages[-1], stages[-1]


def weighted_sum(weights: Sequence[float], stages: Sequence[Any]) -> Any:
    """Return Σ weight · stage, without the stages of weight 0."""
    terms = [weight * stage for weight, stage in zip(weights, stages, strict=True) if weight]
    return sum(terms[1:], terms[0])
