"""Looking at functions: `make_program` and `eval_shape`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import static_positions, transformation
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.calling import require_all_paths, trace_call, trace_program
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


def make_program(fun: Callable[..., Any], static_argnums: int | Sequence[int] = (), *,
                 as_recorded: bool = False) -> Callable[..., Program]:
    """The function that traces `fun` and returns its `Program`, the counterpart of `jax.make_jaxpr`.

    The arguments are arrays, numbers, `ShapeDtypeStruct`s, or containers of them; only shapes and dtypes matter.
    Those at `static_argnums` are passed to `fun` as they are. Closed-over arrays become constants of the program.
    The program prints with the names of the user's variables, and calling it runs it.

    Where Python's control flow asks for values, such as `if x > 0`, the program is that of the path that the values of
    the arguments take: it says `# here x > 0: True`, and raises `ArgumentError` when it is called with arguments that
    take another one. What is asked for is computed meanwhile. Arguments of which the type alone is given have no
    values: then `ConcretizationError` is raised.

    Equal equations stand in it once, those that nothing depends on are left out, and what transformations made is
    simplified, to the same bits. With `as_recorded` all stays as it was recorded.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> function = lambda x: fnp.sin(x) * fnp.sin(x)
    >>> program = fxgrad.make_program(function)(1.0)
    >>> len(program.equations), len(fxgrad.make_program(function, as_recorded=True)(1.0).equations)
    (2, 3)
    """
    @transformation("make_program", fun)
    @hide_frames
    def traced_program(*args: Any, **kwargs: Any) -> Program:
        static = static_positions(static_argnums, len(args))
        return trace_program("make_program", fun, args, kwargs, static, as_recorded)
    return traced_program


def program_of(what: str, fun: Callable[..., Any] | Program, specs: Sequence[Any], kwargs: Mapping[str, Any],
               ) -> Program:
    """The program of `fun` for these types, or `fun` if it is one, and there are none; for `what`, which keeps it.

    Raises `ArgumentError` for types beside a program, and `UnsupportedError` for the program of one path.
    """
    if not isinstance(fun, Program):
        transformation("make_program", fun)
        return trace_program("make_program", fun, (*specs,), {**kwargs}, follow=False)
    if specs or kwargs:
        raise ArgumentError(at_user_line(
            f"{what}: a program has its types, and takes no further arguments; pass the function for others"))
    return require_all_paths(what, fun)


@hide_frames
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of `fun(*args, **kwargs)` without computing anything.

    Returns a container like the output with a `ShapeDtypeStruct` in the place of every array.

    >>> import numpy as np, fxgrad
    >>> fxgrad.eval_shape(lambda a, b: a @ b, np.ones((2, 3), "f"), fxgrad.ShapeDtypeStruct((3, 5), "f")).shape
    (2, 5)
    """
    transformation("eval_shape", fun)
    traced, _, _ = trace_call("eval_shape", fun, args, kwargs)
    structs = [aval.struct for aval in traced.program.out_avals]
    return tree.unflatten(traced.out_tree, structs)
