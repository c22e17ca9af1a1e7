"""Code by platform and code by name: `platform_dependent` and `composite`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.executors.platforms import platform_of
from fxgrad.engine.frontend.flat import check_leaf, constant_name
from fxgrad.engine.frontend.named import record_named_call
from fxgrad.engine.frontend.operands import as_integer, is_staging
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import innermost_for
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.lax.bodies import check_function, flatten_checked, join_branches, trace_body

__all__ = ["composite", "platform_dependent"]


@hide_frames
def platform_dependent(*args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any],
                       ) -> Any:
    """Call the function for the current platform with `args`: `cpu=`, `cuda=`, `rocm=`, `tpu=`, or `default`.

    It is chosen while tracing: under `jit` for the platform of jax's default device, otherwise for that of the arrays.
    Programs have the code of that platform alone. All functions must return the same structure, shapes and dtypes.
    Raises `UnsupportedError` if there is none for the platform, and otherwise as `cond` does.

    >>> import fxgrad.numpy as fnp
    >>> platform_dependent(fnp.arange(3), cpu=lambda x: x + 1, default=lambda x: 1 + x)
    array([1, 2, 3], dtype=int32)
    """
    given = {**per_platform} if default is None else {**per_platform, "default": default}
    if not given:
        raise ArgumentError(at_user_line("platform_dependent: there is no function; write cpu=f, or default=f"))
    for name, function in given.items():
        check_function("platform_dependent", function, name)
    if len(given) > 1:
        operands = flatten_checked("platform_dependent", args, "args")
        traced = [trace_body("platform_dependent", function,
                             lambda *tracers, function=function: function(*operands.rebuild(tracers)),
                             operands.avals, operands.names, operands.structure.children())
                  for function in given.values()]
        join_branches("platform_dependent", [*given.values()], [*given], traced)
    platform = platform_of(tree.leaves(args), is_staging())
    chosen = given.get(platform, default)
    if chosen is None:
        raise UnsupportedError(at_user_line(
            f"platform_dependent: there is no function for the platform {platform!r}; given are "
            f"{', '.join(per_platform)}. Write default=f for all others"))
    return chosen(*args)


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """Return `decomposition`, called by a name: `composite(f, "my.square")(x, attribute=2)` is `f(x, attribute=2)`.

    Positional arguments are arrays or containers of them, keyword arguments attributes: numbers and texts that are
    known while tracing. Programs show one call of `name`; derivatives and batches transform its body. The StableHLO
    text has the operations of `decomposition`, and no composite of that name and `version`. Raises `ArgumentError` if
    `name` is not a text or `version` not a non-negative integer.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> tangent = composite(lambda x, *, scale: scale * fnp.sin(x) / fnp.cos(x), "my.tangent")
    >>> print(fxgrad.make_program(lambda x: tangent(x, scale=2))(1.0).equations[0].params["name"])
    my.tangent
    """
    check_function("composite", decomposition, "decomposition")
    if not isinstance(name, str) or not name:
        raise ArgumentError(at_user_line(f"composite: name={name!r}; a text is needed, such as 'my.square'"))
    if as_integer("composite", version) < 0:
        raise ArgumentError(at_user_line(f"composite: version={version}; a whole number from 0 on is needed"))

    @functools.wraps(decomposition)
    @hide_frames
    def call(*args: Any, **attributes: Any) -> Any:
        leaves = tree.leaves(args)
        for number, leaf in enumerate(leaves):
            check_leaf(leaf, name, constant_name(f"array {number} of the arguments"))
        function = functools.wraps(decomposition)(functools.partial(decomposition, **attributes))
        return function(*args) if innermost_for(leaves) is None else record_named_call("composite", function, name,
                                                                                       args, {})
    return call
