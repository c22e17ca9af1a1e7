"""`named_call`, `named_scope`, `tag`: label parts and values of a program."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.core.sources import nested_scope
from fxgrad.engine.frontend.flat import leaf_aval, transformation
from fxgrad.engine.frontend.named import record_named_call
from fxgrad.engine.tracing.provenance import note_tag
from fxgrad.engine.tracing.scopes import enter_scope, leave_scope
from fxgrad.engine.tracing.tape import Tape, innermost_for
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError


class _NamedCallTape(Tape):
    leak_cure = ". named_scope(name)(f) instead of named_call(f) only names the operations, and lets values out"


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """Return `fun` shown as one call of this name in programs; derivatives and batches look inside.

    Its operations, their derivatives and batches, and XLA's operations for them are in the scope of that name
    (`fxgrad.named_scope`). Arguments are arrays, numbers or containers of them. As under `jit`, the function does not
    see the values of arrays; it sees those of Python numbers. With arguments of other kinds, or without a
    transformation around it, `fun` is called directly, in the scope of its name.

    Arrays leave the call by its result alone: using one that `fun` has stored elsewhere, as a layer that creates its
    parameters does, raises `LeakedTracerError`. `fxgrad.named_scope(name)(fun)` only names the operations, as jax's
    `named_call` does.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> layer = fxgrad.named_call(lambda x: fnp.sin(x) * 2.0, name="layer")
    >>> [equation.params["name"] for equation in fxgrad.make_program(layer)(1.0).equations]
    ['layer']
    >>> {equation.scope for equation in fxgrad.make_program(fxgrad.grad(layer))(1.0).equations}
    {'layer'}
    """
    shown = name or function_name(fun)

    @transformation("named_call", fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = tree.leaves((args, kwargs))
        if any(leaf_aval(leaf) is None for leaf in leaves) or innermost_for(leaves) is None:
            with named_scope(shown):
                return fun(*args, **kwargs)
        return record_named_call("named_call", fun, shown, args, kwargs, _NamedCallTape)
    return call


class named_scope(ContextDecorator):  # noqa: N801  (jax's name)
    """A name for the operations that are recorded in a block, or in a function that is decorated with it.

    Scopes nest: in "attention" within "encoder", `equation.scope` is "encoder/attention". Derivatives and batches of an
    operation stay in its scope. `jit` passes it to XLA, whose profiles and HLO texts show it as the `op_name`. Equal
    operations that are computed once are in the scope of the first.

    Raises `ArgumentError` if `name` is not a string.

    >>> import fxgrad, numpy as np
    >>> @fxgrad.named_scope("attention")
    ... def attention(x):
    ...     return np.tanh(x)
    >>> def model(x):
    ...     with fxgrad.named_scope("encoder"):
    ...         return attention(x * 2.0)
    >>> [(equation.primitive.name, equation.scope) for equation in fxgrad.make_program(model)(1.0).equations]
    [('mul', 'encoder'), ('tanh', 'encoder/attention')]
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise ArgumentError(at_user_line(
                f"named_scope: the name is a {type(name).__name__}, where a str is needed"))
        self._name = name
        self._within: list[Any] = []  # one for each open block

    def _recreate_cm(self) -> named_scope:
        return named_scope(self._name)  # each call of a decorated function opens its own block

    def __enter__(self) -> None:
        handed = nested_scope(self._name)
        if handed is not None:
            handed.__enter__()
        self._within.append(enter_scope(self._name) if handed is None else handed)

    def __exit__(self, *error: object) -> None:
        within = self._within.pop()
        if type(within) is list:
            leave_scope(within)
        else:
            within.__exit__(*error)


def tag(x: Any, name: str) -> Any:
    """Return `x` unchanged, under a name for programs and paths, where the code has no name for it.

    `x` is an array or a container of them: its parts are called `name.key` and `name[0]`. The name is that of printed
    programs and of `fxgrad.capture`, in place of the variable that a line assigns the value to. Nothing is recorded:
    the program is that without the tag.

    Raises `ArgumentError` if `name` is not a string, or empty.

    >>> import numpy as np, fxgrad
    >>> def model(x):
    ...     return np.sum(fxgrad.tag(np.sin(x), "features") ** 2)
    >>> fxgrad.capture(model, "features")(np.zeros(2))[1]["features"]
    array([0., 0.])
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(at_user_line(f"tag: the name is {name!r}, where a str is needed, such as \"features\""))
    for path, leaf in tree.leaves_with_path(x):
        if type(leaf) is Tracer:
            note_tag(leaf, tree.path_name(path, name))
    return x
