"""`Curves`: values by step that running programs leave, drawn by matplotlib, or written for TensorBoard."""

from __future__ import annotations

import copy
import functools
import io
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.extend import at_user_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 30
"""The number of bins of a histogram for TensorBoard."""


class Curves:
    """Values by name and step. `fxgrad.debug.plot(curves, loss=loss)` adds to them whenever a program runs.

    `curves["loss"]` is an array of all values of `loss`, the first step first. Notebooks show the figure.

    >>> curves = Curves()
    >>> for step in range(3):
    ...     curves.add(loss=1.0 / (step + 1))
    >>> curves
    <curves of loss: 3 steps>
    >>> curves["loss"]
    array([1.        , 0.5       , 0.33333333])
    >>> curves.names
    ['loss']
    """

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {}
        self._steps: dict[str, list[int]] = {}
        self._times: dict[str, list[float]] = {}
        self._lock = threading.Lock()
        self.adding = self.add
        """`add`, as one object: programs with equal callbacks are one."""

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return copy.deepcopy({name: self.__dict__[name] for name in ("_values", "_steps", "_times")})

    def __setstate__(self, state: dict[str, Any]) -> None:
        Curves.__init__(self)
        self.__dict__.update(state)

    def add(self, **values: Any) -> None:
        """Add the values of one step, numbers or arrays, after the last one; the contents of arrays are copied."""
        with self._lock:
            for name, value in values.items():
                self._add(name, value, self._steps[name][-1] + 1 if name in self._steps else 0)

    def add_at(self, step: int, /, **values: Any) -> None:
        """Add the values of the step of this number, where not every step leaves some.

        >>> curves = Curves()
        >>> curves.add_at(0, loss=1.0)
        >>> curves.add_at(10, loss=0.5)
        >>> curves.steps("loss")
        array([ 0, 10])
        """
        with self._lock:
            for name, value in values.items():
                self._add(name, value, step)

    def _add(self, name: str, value: Any, step: int) -> None:
        self._values.setdefault(name, []).append(np.array(value))
        self._steps.setdefault(name, []).append(step)
        self._times.setdefault(name, []).append(time.time())

    @property
    def names(self) -> list[str]:
        """The names of the values, in the order in which they came."""
        return [*self._values]

    def __repr__(self) -> str:
        steps = max(map(len, self._values.values()), default=0)
        return f"<curves of {', '.join(self._values) or 'nothing'}: {steps} step{'s' * (steps != 1)}>"

    def _repr_png_(self) -> bytes | None:
        try:
            return _png_of(self.figure())
        except (ArgumentError, UnsupportedError):  # no values, or no matplotlib
            return None

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        self._require(name, f"curves[{name!r}]")
        return np.stack(self._values[name])

    def steps(self, name: str) -> np.ndarray[Any, Any]:
        """Return the numbers of the steps of the values of a name, in int64.

        Raises `ArgumentError` if there are no values of that name.
        """
        self._require(name, f"curves.steps({name!r})")
        return np.array(self._steps[name], np.int64)

    def _require(self, name: str, what: str) -> None:
        if name not in self._values:
            raise ArgumentError(at_user_line(
                f"{what}: there are no values of that name; there are {', '.join(self._values) or 'none yet'}"))

    def figure(self) -> Figure:
        """Return a figure of matplotlib: a line for each number, and for arrays the median within least and largest.

        Raises `UnsupportedError` if matplotlib is not installed, `ArgumentError` if there are no values.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise UnsupportedError(at_user_line(
                "curves.figure needs matplotlib, which is not installed. Write pip install matplotlib, or take the "
                "numbers, curves['name']")) from None
        if not self._values:
            raise ArgumentError(at_user_line(
                "curves.figure: there are no values yet. Call fxgrad.debug.plot(curves, name=value) in the function, "
                "and run it"))
        figure = Figure(figsize=(6.4, 2.4 * len(self._values)), layout="constrained")
        for place, name in enumerate(self._values, 1):
            axes = figure.add_subplot(len(self._values), 1, place)
            values = self[name].astype(np.float64).reshape(len(self._values[name]), -1)
            steps = self._steps[name]
            axes.plot(steps, np.median(values, axis=1))
            if values.shape[1] > 1:
                axes.fill_between(steps, values.min(axis=1), values.max(axis=1), alpha=0.2)
            axes.set_ylabel(name)
        axes.set_xlabel("step")
        # Notebooks ask for it; pyplot, which would enter it for all figures, is not loaded.
        figure._repr_png_ = functools.partial(_png_of, figure)  # type: ignore[attr-defined]
        return figure

    def write_tensorboard(self, folder: str | Path) -> Path:
        """Write an event file, numbers as scalars and arrays as histograms; `tensorboard --logdir FOLDER` shows it.

        Returns the path of the file. Raises `UnsupportedError` if tensorboard is not installed.
        """
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise UnsupportedError(at_user_line(
                "curves.write_tensorboard needs the package tensorboard, which is not installed: "
                "pip install 'fxgrad[viewers]'. curves.figure() needs matplotlib alone")) from None
        writer = EventFileWriter(str(folder))
        for name, values in self._values.items():
            for step, value, when in zip(self._steps[name], values, self._times[name], strict=True):
                made = summary_pb2.Summary.Value(tag=name)
                if value.ndim:
                    made.histo.CopyFrom(_histogram(summary_pb2.HistogramProto, value.astype(np.float64).ravel()))
                else:
                    made.simple_value = float(value)
                writer.add_event(event_pb2.Event(wall_time=when, step=step, summary=summary_pb2.Summary(value=[made])))
        writer.close()
        return max(Path(folder).glob("events.out.tfevents*"), key=lambda path: path.stat().st_mtime_ns)


def _png_of(figure: Figure) -> bytes:
    written = io.BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()


def _histogram(make: Any, values: np.ndarray[Any, Any]) -> Any:
    """Return the histogram of the finite ones among some numbers."""
    values = values[np.isfinite(values)]
    if not values.size:
        return make()
    counts, edges = np.histogram(values, bins=_BINS)
    return make(min=values.min(), max=values.max(), num=values.size, sum=values.sum(), sum_squares=values @ values,
                bucket_limit=edges[1:], bucket=counts)
