"""Transformations as interpreters over programs: forward, linearize, transpose, batch, cost.

None depends on particular operations: each applies one kind of rule of the equation's primitive.
"""
