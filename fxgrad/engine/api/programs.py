"""`make_program` and `eval_shape`: the program of a function, and the types of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import require_positions, static_positions, transformation
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.calling import require_all_paths, trace_call, trace_program
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


def make_program(fun: Callable[..., Any], static_argnums: int | Sequence[int] = (), *,
                 as_recorded: bool = False) -> Callable[..., Program]:
    """Return the function that traces `fun` and returns its `Program`, the counterpart of `jax.make_jaxpr`.

    The arguments are arrays, numbers, `ShapeDtypeStruct`s, or containers of them; only shapes and dtypes matter. Those
    at `static_argnums` are passed to `fun` unchanged. Closed-over arrays become constants of the program. The program
    prints with the names of the user's variables, and calling it runs it.

    Where Python's control flow needs values, such as `if x > 0`, these are computed during the trace, and the program
    is that of the path taken for them. It prints `# here x > 0: True`, and raises `ArgumentError` when called with
    arguments that take another path. Arguments given by type alone have no values: then `ConcretizationError` is
    raised.

    The program holds equal equations once and no dead ones, and transformed code is simplified, without changing a bit
    of the results. With `as_recorded` all equations stay as recorded. Raises `ArgumentError` for `static_argnums` that
    are no positions, as in `make_program(fun, x)`.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> function = lambda x: fnp.sin(x) * fnp.sin(x)
    >>> program = fxgrad.make_program(function)(1.0)
    >>> len(program.equations), len(fxgrad.make_program(function, as_recorded=True)(1.0).equations)
    (2, 3)
    """
    require_positions("make_program", "static_argnums", static_argnums)

    @transformation("make_program", fun)
    @hide_frames
    def traced_program(*args: Any, **kwargs: Any) -> Program:
        static = static_positions(static_argnums, len(args))
        return trace_program("make_program", fun, args, kwargs, static, as_recorded)
    return traced_program


_CALLS = {"save": "save(path, f, *specs)", "onnx.save": "onnx.save(path, f, *specs)"}
"""How functions that do not return one are called."""


def program_of(what: str, fun: Callable[..., Any] | Program, specs: Sequence[Any], kwargs: Mapping[str, Any],
               ) -> Program:
    """Return the program of `fun` for these types, or `fun` itself if it is a `Program`.

    `what`, the caller, is named in messages. Raises `ArgumentError` for anything else and for types beside a program,
    and `UnsupportedError` for a program that is valid for one path only.
    """
    if not isinstance(fun, Program):
        if not callable(fun):
            raise ArgumentError(at_user_line(f"{what} takes a function or a program, got a {type(fun).__name__}. Write "
                                             f"{_CALLS.get(what, f'{what}(f)(x)')}, with the function f itself"))
        return trace_program("make_program", fun, (*specs,), {**kwargs}, follow=False)
    if specs or kwargs:
        raise ArgumentError(at_user_line(
            f"{what}: a program has its types, and takes no further arguments; pass the function for others"))
    return require_all_paths(what, fun)


@hide_frames
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the shapes and dtypes of `fun(*args, **kwargs)` without computing anything.

    Returns a container like the output with a `ShapeDtypeStruct` in place of every array.

    >>> import numpy as np, fxgrad
    >>> fxgrad.eval_shape(lambda a, b: a @ b, np.ones((2, 3), "f"), fxgrad.ShapeDtypeStruct((3, 5), "f")).shape
    (2, 5)
    """
    transformation("eval_shape", fun)
    traced, _, _ = trace_call("eval_shape", fun, args, kwargs)
    structs = [aval.struct for aval in traced.program.out_avals]
    return tree.unflatten(traced.out_tree, structs)
