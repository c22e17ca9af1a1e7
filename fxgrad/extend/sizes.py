"""Symbolic sizes: axes whose length has a name, and programs at given sizes.

`SymbolicDim` is such a size; `has_symbolic_dim(*shape)` finds one. `size_names(program)` lists the names of a program,
`require_numbers` raises if there are any, `types_at` and `solve_sizes` put numbers in their place.
"""

from fxgrad.engine.core.sizes import (
    SizeFunctions,
    SymbolicDim,
    has_symbolic_dim,
    named_size,
    parse_size,
    parse_sizes,
    slice_indices,
    surely_less,
)
from fxgrad.engine.derivation.sizes import argument_names, require_numbers, size_names, solve_sizes, types_at

__all__ = ["SizeFunctions", "SymbolicDim", "argument_names", "has_symbolic_dim", "named_size", "parse_size",
           "parse_sizes", "require_numbers", "size_names", "slice_indices", "solve_sizes", "surely_less", "types_at"]
