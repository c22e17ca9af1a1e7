"""`fxgrad.curvature`: second order for learning, from products with curvature matrices to reports."""

from fxgrad.training.curvature.kronecker import KroneckerFactors, kfac_factors
from fxgrad.training.curvature.listing import layers
from fxgrad.training.curvature.norms import per_example_norms
from fxgrad.training.curvature.products import empirical_fisher_product, fisher_product, gauss_newton_product
from fxgrad.training.curvature.reporting import report

__all__ = ["KroneckerFactors", "empirical_fisher_product", "fisher_product", "gauss_newton_product", "kfac_factors",
           "layers", "per_example_norms", "report"]
