"""Operations that have no form in ONNX, and why."""

from __future__ import annotations

from fxgrad.shipping.onnx.rules import refused

COMPLEX = ("has complex numbers, for which ONNX has no operators. Compute with real and imaginary parts as two arrays, "
           "or leave it out of the function that is exported")
DECOMPOSITION = ("is a decomposition for which ONNX has no operator. Compute it before the export and pass what it "
                 "gives as arguments, or export what comes before and behind it as two models")
CALLBACK = "calls Python, which a model cannot. Leave it out of the function that is exported"
COLLECTIVE = ("speaks with other devices or lanes of a mapped axis, and a model runs on one. Export the function "
              "within vmap, or that of one device")
SERIES = ("is a series whose length depends on the values, for which ONNX has no operator. Compute it before the "
          "export and pass its values as an argument")

refused(COMPLEX, "real", "imag", "conj", "complex", "fft", "wofz", "eig", "sqrtm")
refused(DECOMPOSITION, "eigh", "svd", "qr", "schur", "hessenberg", "pinv", "nearest_unitary",
        "solve_sylvester", "tridiagonal", "cofactor")
refused(CALLBACK, "pure_callback", "io_callback", "debug_callback", "jax_effect")
refused(COLLECTIVE, "psum", "pmax", "pmin", "psum_invariant", "psum_scatter", "all_gather", "all_to_all", "ppermute",
        "axis_index", "take_equal")
refused(SERIES, "zeta", "polygamma", "igamma", "igammac", "igamma_grad_a", "regularized_incomplete_beta",
        "random_gamma")
