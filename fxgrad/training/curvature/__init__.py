"""`fxgrad.curvature`: second order for learning, from products with curvature matrices to reports."""

from fxgrad.training.curvature.products import empirical_fisher_product, fisher_product, gauss_newton_product

__all__ = ["empirical_fisher_product", "fisher_product", "gauss_newton_product"]
