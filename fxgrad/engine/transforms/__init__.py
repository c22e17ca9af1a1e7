"""Transformations as interpreters over programs: forward, linearize, transpose, batch, cost.

Each knows no operation: it finds what an equation means to it in the rules of the equation's primitive.
"""
