"""First-order operations: a room per family, each primitive with all its rules in one record.

`families` builds records, `space` holds what transformations themselves need; the rooms import those two and
each other where a derivative calls for it, and nothing above. No jax here: `xla` rules are handed `lax`.

Importing this package imports every room, so that all primitives are registered.
"""

from fxgrad.ops import (
    arithmetic,
    choose,
    comparison,
    creation,
    cumulative,
    dot,
    dynamic,
    exponential,
    index,
    join,
    parts,
    pointwise,
    reduce,
    shape,
    sort,
    space,
    special,
    trigonometric,
    windows,
)

__all__ = ["arithmetic", "choose", "comparison", "creation", "cumulative", "dot", "dynamic", "exponential", "index",
           "join", "parts", "pointwise", "reduce", "shape", "sort", "space", "special", "trigonometric", "windows"]
