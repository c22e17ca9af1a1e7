"""`watch`: inner values of a function, by name, sent to a table, curves, TensorBoard or a callback while it runs."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from fxgrad import debug, dtypes
from fxgrad import numpy as fnp
from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.extend import Tracer, at_user_line, hide_frames, transformation
from fxgrad.text.consoles import NotebookOutput, file_console
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.tools.curves import Curves
from fxgrad.tools.inside.capturing import Traced, for_arguments
from fxgrad.tools.inside.opening import Opened
from fxgrad.tools.inside.paths import Chosen, choose, in_container

STATISTICS: Mapping[str, Callable[[Any], Any]] = {
    "norm": lambda x: fnp.sqrt(fnp.sum(fnp.abs(x) ** 2)), "mean": fnp.mean, "std": fnp.std, "min": fnp.min,
    "max": fnp.max, "rms": lambda x: fnp.sqrt(fnp.mean(fnp.abs(x) ** 2)),
    "nans": lambda x: fnp.sum(fnp.isnan(x))}
"""What may follow a path: a number for the elements of the value, or of all values of a container together."""
Receiver = Callable[[int, dict[str, Any]], None]
"""(step, values by path, as NumPy arrays) -> None."""


def watch(fun: Callable[..., Any], *paths: str, every: int = 1, to: Any = None) -> Callable[..., Any]:
    """Return `fun`, which sends inner values to `to` at each call, or at one of `every` calls, the first among them.

    Paths are those of `fxgrad.capture`. After a path may stand what to send of the value: `norm`, `mean`, `std`, `min`,
    `max`, `rms`, `nans`, as in `"h.mean"`; for a container of that name it is that of all its elements: `"grads.norm"`.
    `to` is one of these, or a list of them:

    - None: a line of text for each step;
    - `"table"`: a table of the last steps, on the terminal or in a notebook, which is replaced in place;
    - a function of the step and the values, a dict of NumPy arrays by path;
    - `fxgrad.debug.Curves`, which draws figures and writes files for TensorBoard;
    - an object with `add_scalar(name, value, step)`, such as TensorBoard's `SummaryWriter`; arrays go to its
      `add_histogram`;
    - `"plot"`: a figure in a notebook that grows.

    Results are those of `fun`, to the bit, and so is its speed at calls without values: at the others they are computed
    beside it, up to where they are known: an un-jitted `fun` runs once more, with its side effects. A jitted `fun` has
    a jitted companion for them. In a function that is traced, such as a loop, values arrive at each run, and `every`
    counts there; so they do for each entry under `vmap`.

    Raises `ArgumentError` as `capture` does, and for an `every` below 1 or a `to` that is none of these.

    >>> import numpy as np, fxgrad
    >>> def step(w, x):
    ...     loss, grads = fxgrad.value_and_grad(lambda w: np.mean((x @ w - 1.0) ** 2))(w)
    ...     return w - 0.1 * grads
    >>> watched = fxgrad.watch(step, "loss", "grads.norm", every=2)
    >>> w = np.zeros(2)
    >>> for _ in range(3):
    ...     w = watched(w, np.eye(2))
    step 0  loss 1  grads.norm 1.41421
    step 2  loss 0.6561  grads.norm 1.14551
    """
    if not paths:
        raise ArgumentError(at_user_line('watch: no path is given. Write fxgrad.watch(f, "loss")'))
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise ArgumentError(at_user_line(
            f"watch: every={every!r}, where a number of calls is needed, such as every=10"))
    receivers = [*map(_receiver, to if isinstance(to, list | tuple) else [to])]
    stream = _Stream(every, receivers)

    def run(traced: Traced) -> tuple[dict[str, Any], ...]:  # in the order of the paths, which jit would sort in a dict
        wanted = [(path, *_chosen(traced, path)) for path in paths]
        values = {each.key: each for _, _, found in wanted for each in found}
        _, taken = traced.run(Opened("watch", traced.program, values), ())
        return tuple(_named(path, statistic, {each.key: taken[each.key] for each in found})
                     for path, statistic, found in wanted)

    values_of = for_arguments("watch", fun, run, {"donate_argnums": None, "donate_argnames": None})

    @transformation("watch", fun)
    @hide_frames
    def watched(*args: Any, **kwargs: Any) -> Any:
        if stream.is_due():
            values = {name: value for each in values_of(*args, **kwargs) for name, value in each.items()}
            if any(type(value) is Tracer for value in values.values()):
                debug.callback(stream.receiving, values)
            else:
                stream.send(values)
        return fun(*args, **kwargs)
    for receiver in receivers:
        if isinstance(receiver, _Table):
            weakref.finalize(watched, receiver.stop)
    return watched


def _chosen(traced: Traced, path: str) -> tuple[str, list[Chosen]]:
    """Return the statistic that ends a path, or "", and the values that it is of."""
    asked, _, last = path.rpartition(".")
    try:
        return "", choose("watch", path, traced.values, traced.program)
    except ArgumentError:
        if not asked:
            raise
        if last not in STATISTICS:
            if not _is_path(traced, asked):
                raise
            raise ArgumentError(at_user_line(
                f"watch: {path!r} ends in {last!r}, which is neither a value in {asked!r} nor one of "
                f"{', '.join(STATISTICS)}")) from None
    found = in_container("watch", asked, traced.values)
    return last, found or choose("watch", asked, traced.values, traced.program)


def _is_path(traced: Traced, path: str) -> bool:
    try:
        return bool(choose("watch", path, traced.values, traced.program))
    except ArgumentError:
        return False


def _named(path: str, statistic: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return what to send for a path: the values, or a statistic of all their elements."""
    if not statistic:
        return values
    flat = [fnp.ravel(value) for value in values.values()]
    flat = [each.astype(np.float32) if dtypes.is_inexact(each.dtype) and dtypes.finfo(each.dtype).bits < 32 else each
            for each in flat]  # squares of float16 overflow, and sums of bfloat16 stand still
    return {path: STATISTICS[statistic](flat[0] if len(flat) == 1 else fnp.concatenate(flat))}


class _Stream:
    """Counts the steps of a watched function, and hands values on to those who receive them."""

    def __init__(self, every: int, receivers: Sequence[Receiver]) -> None:
        self._every, self._receivers = every, receivers
        self._lock = threading.Lock()
        self._step = 0
        self.receiving = self.receive
        """`receive`, as one object: programs with equal callbacks are one."""

    def is_due(self) -> bool:
        """Return whether the values of this step are wanted; else count it."""
        with self._lock:
            if self._step % self._every == 0:
                return True
            self._step += 1
            return False

    def receive(self, values: dict[str, Any]) -> None:
        """Take the values of a step of a compiled program, which does not know whether they are wanted."""
        if self.is_due():
            self.send(values)

    def send(self, values: dict[str, Any]) -> None:
        """Hand the values of this step on."""
        with self._lock:
            step = self._step
            self._step += 1
            for receiver in self._receivers:
                receiver(step, {name: np.asarray(value) for name, value in values.items()})


# --- receivers ------------------------------------------------------------------------------------------------------


def _receiver(to: Any) -> Receiver:
    if to is None:
        return _print_line
    if isinstance(to, str) and to in _SHOWN:
        return _SHOWN[to]()
    if isinstance(to, Curves):
        return lambda step, values: to.add_at(step, **values)
    if hasattr(to, "add_scalar"):
        return lambda step, values: _write(to, step, values)
    if callable(to):
        return to
    raise ArgumentError(at_user_line(
        f"watch: to={to!r}, where a function of the step and the values, fxgrad.debug.Curves(), an object with "
        'add_scalar, "table", "plot" or None is needed'))


def _print_line(step: int, values: dict[str, Any]) -> None:
    shown = "  ".join(f"{name} {_short(value)}" for name, value in values.items())
    file_console(sys.stdout, highlight=False, soft_wrap=True).print(f"step {step}  {shown}", markup=False)


def _short(value: Any) -> str:
    if value.ndim == 0:
        return f"{value:.6g}" if value.dtype.kind in "fc" else str(value)
    if value.dtype.kind not in "fiub" or not value.size:
        return f"{value.dtype}{[*value.shape]}"
    wide = value.astype(np.float64)
    return f"{np.mean(wide):.6g} ± {np.std(wide):.3g}"


def _write(writer: Any, step: int, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value.ndim == 0:
            writer.add_scalar(name, float(value), step)
        elif hasattr(writer, "add_histogram"):
            writer.add_histogram(name, value, step)


class _Table(Report):
    """A table of the last steps, which rich replaces on the terminal, and a notebook in its output."""

    rows = 10

    def __init__(self) -> None:
        self._steps: list[tuple[int, dict[str, Any]]] = []
        self._output = NotebookOutput() if file_console(None).is_jupyter else None
        self._live: Any = None

    def table(self) -> Table:
        """Return the table for rich."""
        made = new_table("", {"step": "right", **dict.fromkeys(self._steps[-1][1], "right")})
        for number, shown in self._steps:
            add_row(made, [str(number), *map(_short, shown.values())])
        return made

    def __call__(self, step: int, values: dict[str, Any]) -> None:
        self._steps = [*self._steps, (step, values)][-self.rows:]
        if self._output is not None:
            self._output.show(self)
            return
        if self._live is None:
            from rich.live import Live
            self._live = Live(console=file_console(None), auto_refresh=False)
            self._live.start()
        self._live.update(self.table(), refresh=True)

    def stop(self) -> None:
        """Leave the table as it is."""
        if self._live is not None:
            self._live.stop()


class _Plot:
    """A figure of all values so far, which a notebook shows and replaces at each step."""

    def __init__(self) -> None:
        if not file_console(None).is_jupyter:
            raise UnsupportedError(at_user_line(
                'watch: to="plot" shows a figure in a notebook, and this is none. Write '
                "curves = fxgrad.debug.Curves(), to=curves, and curves.figure() at the end"))
        self._curves = Curves()
        self._output = NotebookOutput()

    def __call__(self, step: int, values: dict[str, Any]) -> None:
        self._curves.add_at(step, **values)
        self._output.show(self._curves.figure())


_SHOWN: dict[str, Callable[[], Receiver]] = {"table": _Table, "plot": _Plot}
