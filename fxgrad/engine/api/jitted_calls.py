"""One call of a jitted function, taken apart: its dynamic leaves, their types, its signature."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from fxgrad.engine.api.executables import Signature
from fxgrad.engine.api.keys import has_many_arguments
from fxgrad.engine.api.static_arguments import Args, Kwargs, StaticArguments
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.frontend.flat import TracedCall


class JittedCall:
    """A call that has no plan yet; `traced` is what the function recorded, if it was traced."""

    def __init__(self, static: StaticArguments, args: Args, kwargs: Kwargs) -> None:
        self.args, self.kwargs = args, kwargs
        self.split = static.split(args, kwargs)
        self.leaves = self.split.leaves
        self.static = static.values(args, kwargs)
        self._names = static.leaf_names
        self.traced: TracedCall | None = None
        self.avals: Sequence[Aval] = ()  # of the leaves, where somebody watches

    @property
    def is_flat(self) -> bool:
        """Whether the dynamic arguments are the leaves, all given by position."""
        dynamic, named = self.split.args, self.split.kwargs
        return not named and len(dynamic) == len(self.leaves) and all(map(operator.is_, dynamic, self.leaves))

    @property
    def is_known_by_key(self) -> bool:
        """Whether the key of the call has the classes of all its arguments: they are few, and none is a container."""
        dynamic = (*self.split.args, *self.split.kwargs.values())
        return not has_many_arguments(self.args, self.kwargs) and len(dynamic) == len(self.leaves) and all(
            any(arg is leaf for leaf in self.leaves) for arg in dynamic)

    def signature(self, avals: Sequence[Aval]) -> Signature:
        """Return the signature, equal for calls that jax takes for equal; `avals` are the types of the leaves."""
        return self.split.structure, tuple(avals), self.static

    def leaf_names(self) -> list[str]:
        """Return the names of the dynamic leaves, as messages and programs show them."""
        return self._names(self.args, self.kwargs)
