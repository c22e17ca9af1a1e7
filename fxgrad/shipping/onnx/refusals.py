"""Operations that have no form in ONNX, and why."""

from __future__ import annotations

from fxgrad.extend import MissingRule, primitives
from fxgrad.shipping.onnx.rules import onnx_rules

COMPLEX = MissingRule("NOT_IN_ONNX", (
    "has complex numbers, for which ONNX has no operators. Compute with real and imaginary parts as two arrays, or "
    "leave it out of the function that is exported"))
DECOMPOSITION = MissingRule("NOT_IN_ONNX", (
    "is a decomposition for which ONNX has no operator. Compute it before the export and pass what it gives as "
    "arguments, or export what comes before and behind it as two models"))
CALLBACK = MissingRule("NOT_IN_ONNX", (
    "calls Python, which a model cannot. Leave it out of the function that is exported"))
COLLECTIVE = MissingRule("NOT_IN_ONNX", (
    "speaks with other devices or lanes of a mapped axis, and a model runs on one. Export the function within vmap, or "
    "that of one device"))
SERIES = MissingRule("NOT_IN_ONNX", (
    "is a series whose length depends on the values, for which ONNX has no operator. Compute it before the export and "
    "pass its values as an argument"))

for _absence, _names in (
        (COMPLEX, "real imag conj complex fft wofz eig sqrtm"),
        (DECOMPOSITION, "eigh svd qr schur hessenberg pinv nearest_unitary solve_sylvester tridiagonal cofactor"),
        (CALLBACK, "pure_callback io_callback debug_callback check jax_effect"),
        (COLLECTIVE, "psum pmax pmin psum_invariant psum_scatter all_gather all_to_all ppermute axis_index take_equal"),
        (SERIES, "zeta polygamma igamma igammac igamma_grad_a regularized_incomplete_beta random_gamma")):
    onnx_rules.enter(_absence, *(primitives[name] for name in _names.split()))
