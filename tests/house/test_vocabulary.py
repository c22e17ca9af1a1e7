"""The vocabulary is complete: every name of jax's families is a primitive here or covered, and the page is current."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fxgrad.engine.ops
from fxgrad.engine.core.primitive import RULES, MissingRule
from fxgrad.engine.rooms import registry
from tools import cards

ROOT = Path(__file__).resolve().parents[2]

# The families of jax's first-order primitives that this library promises, with jax's names.
FAMILIES = {
    "exponential": "exp exp2 expm1 log log1p sqrt rsqrt cbrt logistic square integer_pow",
    "trigonometric": "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh",
    "special": "erf erfc erf_inv lgamma digamma bessel_i0e bessel_i1e",
    "sign and parts": "neg sign abs floor ceil round is_finite not population_count clz real imag conj",
    "arithmetic": "add sub mul div rem pow max min atan2 nextafter complex clamp mulhi add_any",
    "comparison": "eq ne lt le gt ge eq_to le_to lt_to and or xor shift_left shift_right_arithmetic "
                  "shift_right_logical",
    "selection": "select_n",
    "reductions": "reduce reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or reduce_xor argmax argmin "
                  "reduce_precision",
    "cumulative": "cumsum cumprod cummax cummin cumlogsumexp",
    "layout": "broadcast_in_dim broadcast_to reshape squeeze transpose rev concatenate pad split stack unstack tile "
              "iota empty empty2 copy convert_element_type bitcast_convert_type zeros_like stage",
    "indexing": "slice dynamic_slice dynamic_update_slice gather scatter scatter_add scatter_sub scatter_mul "
                "scatter_min scatter_max",
    "pooling": "reduce_window reduce_window_sum reduce_window_max reduce_window_min select_and_scatter "
               "select_and_scatter_add select_and_gather_add",
    "contraction": "dot_general ragged_dot_general scaled_dot conv_general_dilated fft",
    "sorting": "sort top_k approx_top_k",
    "linear algebra": "cholesky cholesky_update eig eigh hessenberg householder_product lu lu_pivots_to_permutation "
                      "ormqr qr schur svd symmetric_product triangular_solve tridiagonal tridiagonal_solve geqp3 geqrf",
    "control flow": "cond while scan custom_linear_solve",
    "special of two": "igamma igammac igamma_grad_a random_gamma polygamma zeta regularized_incomplete_beta",
    "random numbers": "threefry2x32 random_seed random_split random_fold_in random_bits random_wrap random_unwrap "
                      "random_clone",
    "collectives": "psum pmax pmin ppermute all_gather all_to_all psum_scatter axis_index",
}


def covered() -> dict[str, str]:
    return {name: reason for module in list(sys.modules.values()) if module.__name__.startswith("fxgrad.engine.ops.")
            for name, reason in getattr(module, "COVERED_BY", {}).items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_name_is_there(family: str) -> None:
    missing = [name for name in FAMILIES[family].split() if name not in registry and name not in covered()]
    assert not missing
    assert all(covered().get(name, "reason") for name in FAMILIES[family].split())


def test_every_room_is_imported() -> None:
    rooms = {path.stem for path in (ROOT / "fxgrad" / "engine" / "ops").glob("*.py")} - {"__init__"}
    assert rooms - {"families", "snippets"} == set(fxgrad.engine.ops.__all__)


# Derivatives that are undefined in general, or unknown: jax has none either, and a zero would be wrong.
OWED = {("schur", "jvp"), ("hessenberg", "jvp"), ("tridiagonal", "jvp")}


def test_every_absence_is_named_and_none_is_owed_but_those_that_are_known() -> None:
    for primitive in registry.values():
        for rule in RULES:
            value = getattr(primitive, rule)
            assert value is not None
            is_owed = isinstance(value, MissingRule) and value not in (fxgrad.NOT_LINEAR, fxgrad.NO_TANGENT)
            assert is_owed == ((primitive.name, rule) in OWED), (primitive, value)


@pytest.mark.slow
def test_the_page_is_current() -> None:
    assert cards.PAGE.read_text(encoding="utf-8") == cards.page(), "run tools/cards.py"
