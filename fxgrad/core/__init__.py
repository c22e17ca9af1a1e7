"""The IR and its machinery: avals, primitives, programs, the tracer, the tape, interning, simplification.

Nothing here knows any particular operation, and nothing here imports from `ops` or above.
"""
