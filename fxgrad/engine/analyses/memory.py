"""How many bytes a program needs at once beside its arguments: as it is written, and as XLA compiles it."""

from __future__ import annotations

from collections.abc import Callable

from fxgrad.engine.analyses.compiled import Compiled, compiled
from fxgrad.engine.analyses.flow import Flow
from fxgrad.engine.analyses.written import written
from fxgrad.engine.core.facts import fact
from fxgrad.engine.core.program import Program, Var

__all__ = ["Compiled", "compiled", "peak_bytes", "temporaries", "written"]


@fact
def peak_bytes(program: Program) -> int:
    """The most bytes of computed values that are alive at once; arguments are not counted, results are.

    Every value is dropped after its last use; an elementwise operation writes over an operand of the same type that is
    used no more, and a loop over what it carries; views take nothing. Compilers fuse operations and reorder them:
    `compiled` models that.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: np.sum(np.exp(x) * x))(np.ones(100))
    >>> peak_bytes(program)
    808
    """
    return written(program).peak


def temporaries(program: Program, bytes_of: Callable[[Var], int]) -> int:
    """The bytes beside arguments and results of a compiled program, where `bytes_of` says what a value takes."""
    flow = Flow(program)
    flow.sizes = [bytes_of(var) for var in flow.variables]
    return Compiled(flow).temporary
