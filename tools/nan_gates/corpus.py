"""The corpus of gradients that are NaN: by jax, by fxgrad as it is, and within `fxgrad.nan_safe`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.scipy.special
import numpy as np

import fxgrad
from tests.support.nan_corpus import CASES, Case

CORPUS_HEAD = ("gradient of", "reports", "jax", "`fxgrad.nan_safe`", "first made by", "what to write")
ENOUGH = 38


def corpus_rows() -> tuple[list[list[str]], str, bool]:
    """The table, a sentence that sums it up, and whether that is what is asked for."""
    rows, right, finite_in_jax, explained = [], 0, 0, 0
    with np.errstate(all="ignore"):
        for name, case in CASES.items():
            in_jax, found, origin = _in_jax(case), _found(case), _origin(case)
            is_right = all(np.allclose(each, case.gradient, rtol=1e-12, atol=1e-12) for each in found)
            right += is_right
            finite_in_jax += in_jax
            explained += bool(origin) and bool(origin.write)
            first = str(origin.cause) if origin.cause is not None else f"came in with {', '.join(origin.arguments)}"
            what = origin.write.split("; or differentiate")[0].partition(":")[0]
            rows.append([name, case.threads, "finite" if in_jax else "NaN", "right" if is_right else case.why,
                         f"`{first}`" if origin.cause is not None else first, what])
    count = len(CASES)
    summary = (f"Of {count} gradients {right} are right within `fxgrad.nan_safe`, un-jitted and jitted; jax has "
               f"{finite_in_jax} without a NaN; {explained} are explained.")
    return rows, summary, right >= ENOUGH and explained == count


def _in_jax(case: Case) -> bool:
    with jax.enable_x64(True):
        return not np.isnan(np.asarray(jax.grad(functools.partial(case.function, jax))(case.x))).any()


def _found(case: Case) -> list[Any]:
    gradient = fxgrad.grad(fxgrad.nan_safe(functools.partial(case.function, fxgrad)))
    return [gradient(case.x), fxgrad.jit(gradient)(case.x)]


def _origin(case: Case) -> Any:
    return fxgrad.debug.find_nan(fxgrad.grad(functools.partial(case.function, fxgrad)))(case.x)
