"""`Curves`: values by step that running programs leave, drawn by matplotlib, or written for TensorBoard."""

from __future__ import annotations

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

    `curves["loss"]` is an array of all values of `loss`, the first step first.

    >>> curves = Curves()
    >>> for step in range(3):
    ...     curves.add(loss=1.0 / (step + 1))
    >>> curves["loss"]
    array([1.        , 0.5       , 0.33333333])
    >>> curves.names
    ['loss']
    """

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {}
        self._times: dict[str, list[float]] = {}
        self._lock = threading.Lock()
        self.adding = self.add
        """`add`, as one object: programs with equal callbacks are one."""

    def add(self, **values: Any) -> None:
        """Add the values of one step, numbers or arrays; the contents of arrays are copied."""
        with self._lock:
            for name, value in values.items():
                self._values.setdefault(name, []).append(np.array(value))
                self._times.setdefault(name, []).append(time.time())

    @property
    def names(self) -> list[str]:
        """The names of the values, in the order in which they came."""
        return [*self._values]

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._values:
            raise ArgumentError(at_user_line(
                f"curves[{name!r}]: there are no values of that name; there are "
                f"{', '.join(self._values) or 'none yet'}"))
        return np.stack(self._values[name])

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
            axes.plot(np.median(values, axis=1))
            if values.shape[1] > 1:
                axes.fill_between(range(len(values)), values.min(axis=1), values.max(axis=1), alpha=0.2)
            axes.set_ylabel(name)
        axes.set_xlabel("step")
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
            for step, (value, when) in enumerate(zip(values, self._times[name], strict=True)):
                made = summary_pb2.Summary.Value(tag=name)
                if value.ndim:
                    made.histo.CopyFrom(_histogram(summary_pb2.HistogramProto, value.astype(np.float64).ravel()))
                else:
                    made.simple_value = float(value)
                writer.add_event(event_pb2.Event(wall_time=when, step=step, summary=summary_pb2.Summary(value=[made])))
        writer.close()
        return max(Path(folder).glob("events.out.tfevents*"), key=lambda path: path.stat().st_mtime_ns)


def _histogram(make: Any, values: np.ndarray[Any, Any]) -> Any:
    """Return the histogram of the finite ones among some numbers."""
    values = values[np.isfinite(values)]
    if not values.size:
        return make()
    counts, edges = np.histogram(values, bins=_BINS)
    return make(min=values.min(), max=values.max(), num=values.size, sum=values.sum(), sum_squares=values @ values,
                bucket_limit=edges[1:], bucket=counts)
