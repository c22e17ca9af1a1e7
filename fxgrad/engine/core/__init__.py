"""The IR: avals and sizes, arrays, primitives with their rules and facts, programs and regions, analyses, interpreters.

Nothing here knows any particular operation, and nothing here imports from `ops` or above.
"""
