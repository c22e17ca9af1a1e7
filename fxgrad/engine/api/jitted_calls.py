"""One call of a jitted function, split up: its dynamic leaves, their types, its signature."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from fxgrad.engine.api.executables import Signature
from fxgrad.engine.api.keys import has_many_arguments
from fxgrad.engine.api.static_arguments import Args, Kwargs, StaticArguments
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.frontend.flat import TracedCall


class JittedCall:
    """A call that has no plan yet; `traced` is the function's trace, if there is one."""

    def __init__(self, static: StaticArguments, args: Args, kwargs: Kwargs) -> None:
        self.args, self.kwargs = args, kwargs
        self.split = static.split(args, kwargs)
        self.leaves = self.split.leaves
        self.static = static.values(args, kwargs)
        self._names = static.leaf_names
        self.traced: TracedCall | None = None
        self.avals: Sequence[Aval] = ()  # types of the leaves, set only if observers are registered

    @property
    def is_flat(self) -> bool:
        """Whether the dynamic arguments are the leaves themselves, all positional."""
        dynamic, named = self.split.args, self.split.kwargs
        return not named and len(dynamic) == len(self.leaves) and all(map(operator.is_, dynamic, self.leaves))

    @property
    def is_known_by_key(self) -> bool:
        """Whether the key of the call holds the classes of all arguments: they are few, and none is a container."""
        dynamic = (*self.split.args, *self.split.kwargs.values())
        return not has_many_arguments(self.args, self.kwargs) and len(dynamic) == len(self.leaves) and all(
            any(arg is leaf for leaf in self.leaves) for arg in dynamic)

    def signature(self, avals: Sequence[Aval]) -> Signature:
        """Return the signature, equal for calls that jax considers equal; `avals` are the types of the leaves."""
        return self.split.structure, tuple(avals), self.static

    def leaf_names(self) -> list[str]:
        """Return the names of the dynamic leaves, as messages and programs show them."""
        return self._names(self.args, self.kwargs)
