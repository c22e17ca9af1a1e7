"""Debugging inside functions: while they are traced, and while their programs run."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.analyses.key_reuse import refuse_key_reuse
from fxgrad.engine.core.cache_keys import StructuralKey
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.callback import debug_callback_p, host_function
from fxgrad.engine.frontend.flat import argument_leaf_names, check_leaf, nth_name, require_function, trace_flat
from fxgrad.engine.frontend.formats import check_format
from fxgrad.engine.lazy_names import lazy_getattr
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import WITH_LITERALS
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line, function_name, named_as
from fxgrad.errors import ArgumentError
from fxgrad.extend import hide_frames
from fxgrad.text.consoles import NotebookOutput

if TYPE_CHECKING:
    from fxgrad.tools.curves import Curves
    from fxgrad.tools.inside.stopping import breakpoint  # noqa: A004
    from fxgrad.tools.numerics.nan_origins import find_nan
    from fxgrad.tools.numerics.precision_report import precision_report

__all__ = ["Curves", "breakpoint", "callback", "check_key_reuse", "find_nan", "inspect_array_sharding", "plot",
           "precision_report", "print", "progress", "value", "visualize_array_sharding", "visualize_sharding"]

__getattr__ = lazy_getattr(__name__, {"Curves": "tools.curves", "breakpoint": "tools.inside.stopping",
                                      "find_nan": "tools.numerics.nan_origins",
                                      "precision_report": "tools.numerics.precision_report"})


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion


_print = print


def value(x: Any) -> Any:
    """Return the concrete value of `x` for inspection, never for computing: derivatives do not flow through it.

    Returns a copy as a NumPy array, or a jax array, if the value is known (under `grad`, `jvp`, `vjp`, `linearize`),
    and `x` itself if it is no tracer. Raises `ConcretizationError` under `jit`, and on mapped arguments of `vmap`.

    >>> import fxgrad
    >>> seen = []
    >>> def f(x):
    ...     seen.append(float(fxgrad.debug.value(x * 2)))
    ...     return x * x
    >>> _ = fxgrad.grad(f)(3.0)
    >>> seen
    [6.0]
    """
    # A copy, since later computations use the array.
    return np.array(x.tape.force(x, "fxgrad.debug.value()")) if type(x) is Tracer else x


def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:  # noqa: A001  (jax's name)
    """Print `fmt.format(*args, **kwargs)` whenever the program runs, with the values of traced arrays.

    Arguments are arrays, containers of them, or any hashable objects. It prints once where the user's code runs once:
    in the forward pass of a derivative, for every entry under `vmap`, at every step of a loop. Under `vmap`, a `cond`
    whose choice differs between entries prints in both branches, and a loop whose length differs prints for all entries
    until the last one stops; masked entries show the values of a live one. NumPy keeps the order of all prints, XLA
    that of `ordered` ones.

    Raises `ArgumentError` if `fmt` and the arguments do not fit together.

    >>> import fxgrad
    >>> def f(x):
    ...     fxgrad.debug.print("x is {x:.1f}, its square {}", x * x, x=x)
    ...     return x * x
    >>> slope = fxgrad.grad(f)(3.0)
    x is 3.0, its square 9.0
    """
    check_format("debug.print", fmt, args, kwargs)
    _look("debug.print", _Printer(fmt), args, kwargs, ordered)


def callback(callback: Callable[..., Any], *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Call `callback(*args, **kwargs)` whenever the program runs, with the values of traced arrays.

    It gets NumPy arrays in the containers of the arguments; its result is ignored. It is called when `print` would
    print.

    Raises `ArgumentError` for a callback that cannot be called.

    >>> import numpy as np, fxgrad
    >>> seen = []
    >>> def f(x):
    ...     fxgrad.debug.callback(seen.append, x)
    ...     return x * x
    >>> _ = fxgrad.vmap(f)(np.array([1.0, 2.0]))
    >>> [float(x) for x in seen]
    [1.0, 2.0]
    """
    _look("debug.callback", callback, args, kwargs, ordered)


def plot(curves: Curves, **values: Any) -> None:
    """Add values to `curves` by name whenever the program runs: numbers, or arrays of one shape.

    They are added when `print` would print; in compiled functions once the devices have computed them
    (`jax.effects_barrier()` waits for all). `curves.figure()` draws them, `curves.write_tensorboard(folder)` writes
    them.

    Raises `ArgumentError` if `curves` is no `Curves`, or if there are no values.

    >>> import numpy as np, fxgrad
    >>> curves = fxgrad.debug.Curves()
    >>> def loss(w):
    ...     value = np.sum(w ** 2)
    ...     fxgrad.debug.plot(curves, loss=value)
    ...     return value
    >>> w = np.array([1.0, 2.0])
    >>> for _ in range(3):
    ...     w = w - 0.25 * fxgrad.grad(loss)(w)
    >>> curves["loss"]
    array([5.    , 1.25  , 0.3125])
    """
    adding = getattr(curves, "adding", None)
    if adding is None or not values:
        given = f"a {type(curves).__name__}" if adding is None else "no values"
        raise ArgumentError(at_user_line(
            f"debug.plot: got {given}. Write curves = fxgrad.debug.Curves(), and debug.plot(curves, loss=loss)"))
    _look("debug.plot", adding, (), values, False)


def progress(function: Callable[..., Any], total: int, label: str = "") -> Callable[..., Any]:
    """Return `function` with a bar on the terminal that advances at each of its runs, inside compiled loops too.

    `function` is the body of a `scan` or a `fori_loop`, or a step of a training loop in Python; `total` is the number
    of its runs, after which the bar is complete, and begins anew for the next loop. Results are those of `function`, to
    the bit. Under `grad` the bar shows the forward pass, under `vmap` one run for all entries. Each run of a compiled
    body calls Python, some ten microseconds.

    Raises `ArgumentError` unless `total` is a positive integer.

    >>> import numpy as np, fxgrad
    >>> def body(carry, x):
    ...     return carry + x, carry
    >>> float(fxgrad.lax.scan(fxgrad.debug.progress(body, 1000), 0.0, np.ones(1000))[0])
    1000.0
    """
    if not callable(function):
        raise ArgumentError(at_user_line(
            f"debug.progress: got a {type(function).__name__}, where the body of a loop, a function, is needed"))
    if not isinstance(total, int) or isinstance(total, bool) or total < 1:
        raise ArgumentError(at_user_line(
            f"debug.progress: total={total!r}, where the number of runs is needed, such as total=1000"))
    bar = _Bar(total, label or function_name(function))

    @named_as(function)
    def shown(*args: Any, **kwargs: Any) -> Any:
        output = function(*args, **kwargs)
        _look("debug.progress", bar.advancing, (), {}, False)
        return output
    weakref.finalize(shown, bar.stop)
    return shown


_REFRESH = 0.1
"""Seconds between two states of a bar in a notebook."""


class _Bar:
    """A bar of rich's: it starts at the first run, ends at the last, and begins anew."""

    def __init__(self, total: int, label: str) -> None:
        self._total, self._label = total, label
        self._lock = threading.Lock()
        self._shown: Any = None
        self._output: NotebookOutput | None = None
        self._last = 0.0
        self._count = 0
        self.advancing = self.advance
        """`advance`, as one object: programs with equal callbacks are one."""

    def advance(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        with self._lock:
            if self._shown is None:
                console = _console()
                self._shown = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                                       TimeRemainingColumn(), console=console)
                self._shown.add_task(self._label, total=self._total)
                self._output = NotebookOutput() if console.is_jupyter else None
                if self._output is None:
                    self._shown.start()
            self._count += 1
            self._shown.advance(self._shown.task_ids[0])
            if self._output is not None and time.monotonic() >= self._last + _REFRESH:
                self._output.show(self._shown.make_tasks_table(self._shown.tasks))
                self._last = time.monotonic()
        if self._count == self._total:
            self.stop()

    def stop(self) -> None:
        with self._lock:
            if self._output is not None and self._shown is not None:
                self._output.show(self._shown.make_tasks_table(self._shown.tasks))
            elif self._shown is not None:
                self._shown.stop()
            self._shown, self._count = None, 0


def _console() -> Any:
    from rich.console import Console
    return Console(stderr=True)


def _look(what: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], ordered: bool,
          ) -> None:
    host, values = host_function(what, function, args, kwargs, (), tree.structure(()))
    bind(debug_callback_p, *values, callback=host, ordered=bool(ordered))


@dataclass(frozen=True)
class _Printer(StructuralKey):
    """A function that prints; equal ones print the same text."""

    fmt: str
    __name__ = "print"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        _print(self.fmt.format(*args, **kwargs))


visualize_sharding = jax.debug.visualize_sharding


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Print how a `jax.Array` lies on its devices, with the options of `jax.debug.visualize_array_sharding`.

    Raises `ArgumentError` for NumPy's arrays, which have no placement, and for traced ones, whose placement is unknown
    before XLA has compiled the program: inspect the result of the call instead.
    """
    jax.debug.visualize_array_sharding(_require_placed_array("debug.visualize_array_sharding", arr), **kwargs)


def inspect_array_sharding(value: Any, *, callback: Callable[[Any], None]) -> None:
    """Call `callback` with the sharding of a `jax.Array`. Raises as `visualize_array_sharding`.

    >>> import fxgrad, numpy as np
    >>> inspect_array_sharding(fxgrad.device_put(np.ones(2)), callback=lambda sharding: _print(type(sharding).__name__))
    SingleDeviceSharding
    """
    callback(_require_placed_array("debug.inspect_array_sharding", value).sharding)


def _require_placed_array(what: str, value: Any) -> Any:
    if type(value) is Tracer:
        raise ArgumentError(at_user_line(
            f"{what}: the array ({value.aval}) is traced, and its sharding is known only after XLA has compiled the "
            "program. Call it with the result of the jitted function"))
    if not isinstance(value, jax.Array):
        raise ArgumentError(at_user_line(
            f"{what}: got a {type(value).__name__}, and only arrays of jax's lie on devices. Write "
            "fxgrad.device_put(x, sharding), or look at what a jitted function returns"))
    return value


def check_key_reuse(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fun`, or a program, with a check before each run that no random key is drawn from twice.

    Drawing from a key, splitting it and folding into it each consume it (folding in different integers counts once);
    `fxgrad.random.clone` returns a key that can be consumed once more. The check includes calls, branches and loops.
    Raises `KeyReuseError`, which names both lines.

    >>> import fxgrad
    >>> def same_noise_twice(key):
    ...     return fxgrad.random.normal(key) + fxgrad.random.uniform(key)
    >>> fxgrad.debug.check_key_reuse(same_noise_twice)(fxgrad.random.key(0))
    Traceback (most recent call last):
        ...
    fxgrad.errors.KeyReuseError: a random key is used twice: ...
    """
    require_function("check_key_reuse", fun)

    @named_as(fun, ())
    @hide_frames
    def checked(*args: Any, **kwargs: Any) -> Any:
        refuse_key_reuse(fun if isinstance(fun, Program) else _require_program(fun, args, kwargs))
        return fun(*args, **kwargs)
    return checked


def _require_program(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
    leaves, structure = tree.flatten((args, kwargs))
    names = argument_leaf_names(fun, args, kwargs=kwargs)
    avals = [check_leaf(leaf, "check_key_reuse", nth_name(names, index)) for index, leaf in enumerate(leaves)]

    def call(*tracers: Any) -> Any:
        given, keywords = tree.unflatten(structure, tracers)
        return fun(*given, **keywords)

    traced = trace_flat(call, avals, "check_key_reuse", fun, mode=WITH_LITERALS, names=names)
    return traced.program.replace(constants=traced.captured)
