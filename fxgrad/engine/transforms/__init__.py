"""Transformations as interpreters over programs: forward, linearize, transpose, batch, cost.

None knows an operation: each applies the rule of its kind that the equation's primitive has.
"""
