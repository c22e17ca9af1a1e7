"""Programs as Python files that import NumPy alone."""
