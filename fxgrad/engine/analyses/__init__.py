"""Analyses of programs without running them: well-formedness, cost, traffic, liveness, uses of random keys."""
