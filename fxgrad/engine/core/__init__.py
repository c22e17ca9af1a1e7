"""The IR: avals and sizes, arrays, primitives with rules and properties, programs and regions, analyses, interpreters.

Nothing here depends on any particular operation, and nothing here imports from `ops` or above.
"""
