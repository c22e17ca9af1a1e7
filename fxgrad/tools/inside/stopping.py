"""`fxgrad.debug.breakpoint`: stop where a program runs, forward and backward, and look at values by their names."""

from __future__ import annotations

import cmd
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from fxgrad import custom_vjp, debug, stop_gradient, tree
from fxgrad.errors import ArgumentError
from fxgrad.extend import Program, Tracer, at_user_line, file_name, leaf_aval, remove_dead_code
from fxgrad.text import program_text


class Stop:
    """A place at which a program stops: `values` by name, as NumPy arrays, and the `line` of the breakpoint.

    `backward` says whether the backward pass stopped there; then `gradient` has the cotangent of the value that the
    breakpoint returned. `program` is the text of what computed that value, or "" if it was not traced.
    """

    def __init__(self, line: str, values: dict[str, Any], program: str, backward: bool, gradient: Any = None) -> None:
        self.line, self.values, self.program = line, values, program
        self.backward, self.gradient = backward, gradient

    def __str__(self) -> str:
        width = max(map(len, self.values), default=0)
        rows = [f"  {name.ljust(width)}  {_short(value)}" for name, value in self.values.items()]
        if self.backward:
            rows.append(f"  gradient: {_short(self.gradient)}")
        return "\n".join([f"stopped at {self.line}, {'backward' if self.backward else 'forward'}", *rows])


def breakpoint(x: Any = None, *, on: Callable[[Stop], None] | None = None) -> Any:  # noqa: A001  (jax's name)
    """Stop whenever the program runs through here, and return `x`: an array or a container of them.

    The prompt shows the local variables of the calling function that hold arrays, by name. It takes Python expressions
    of them; `program` prints the operations that computed `x`, `c` goes on, and `q` ends the run with
    `KeyboardInterrupt`. Where derivatives are taken of the `x` that is returned, the backward pass stops here as well,
    with the same values and the gradient with respect to `x`. It stops as often as `debug.print` prints: at each
    turn of a loop, for each entry of a batch, in compiled code too. Results are unchanged.

    With `on`, that function of a `Stop` is called in place of the prompt.

    >>> import numpy as np, fxgrad
    >>> def loss(w):
    ...     h = np.tanh(w * 2.0)
    ...     h = fxgrad.debug.breakpoint(h, on=print)
    ...     return np.sum(h ** 2)
    >>> slope = fxgrad.grad(loss)(np.array([0.5]))  # doctest: +ELLIPSIS
    stopped at <doctest ...>:3 (in loss), forward
      h  f64[1] [0.7616]
      w  f64[1] [0.5]
    stopped at <doctest ...>:3 (in loss), backward
      h  f64[1] [0.7616]
      w  f64[1] [0.5]
      gradient: f64[1] [1.5232]
    """
    frame = sys._getframe(1)
    values = {name: value for name, value in frame.f_locals.items() if _holds_arrays(value)}
    stopping = _Stopping(_line(frame), on or _prompt)
    leaves = tree.leaves(x)
    if any(leaf_aval(leaf) is None for leaf in leaves):
        raise ArgumentError(at_user_line(
            f"debug.breakpoint: got a {type(x).__name__}, where an array or a container of them is needed"))
    traced = [leaf for leaf in leaves if type(leaf) is Tracer]
    program = _text(traced)
    debug.callback(stopping.forward, program, values)
    if not traced:
        return x
    seen = tree.map(stop_gradient, values)

    @custom_vjp
    def passed(x: Any, _: Any) -> Any:
        return x

    def backward(seen: Any, cotangent: Any) -> Any:
        debug.callback(stopping.backward, program, seen, cotangent)
        return cotangent, None

    passed.defvjp(lambda x, seen: (x, seen), backward)
    return passed(x, seen)


class _Stopping:
    """Makes the stops of one breakpoint."""

    def __init__(self, line: str, on: Callable[[Stop], None]) -> None:
        self._line, self._on = line, on

    def forward(self, program: str, values: dict[str, Any]) -> None:
        self._on(Stop(self._line, values, program, backward=False))

    def backward(self, program: str, values: dict[str, Any], gradient: Any) -> None:
        self._on(Stop(self._line, values, program, backward=True, gradient=gradient))


def _holds_arrays(value: Any) -> bool:
    leaves = tree.leaves(value)
    return bool(leaves) and all(leaf_aval(leaf) is not None and not isinstance(leaf, str) for leaf in leaves)


def _line(frame: FrameType) -> str:
    return f"{file_name(frame.f_code.co_filename)}:{frame.f_lineno} (in {frame.f_code.co_name})"


def _text(traced: list[Tracer]) -> str:
    """Return the text of the program that computed values so far."""
    own = [leaf for leaf in traced if leaf.tape is traced[0].tape]
    if not own:
        return ""
    program: Program = traced[0].tape.program_so_far(own)
    return program_text(remove_dead_code(program), source=True)


def _short(value: Any) -> str:
    def leaf(value: Any) -> str:
        array = np.asarray(value)
        shown = np.array2string(array.ravel()[:6], precision=4, separator=", ")
        more = f", ... {array.size - 6} more]" if array.size > 6 else "]"
        return f"{leaf_aval(array)} {shown[:-1] + more if array.ndim else np.array2string(array, precision=4)}"

    leaves = tree.leaves_with_path(value)
    if len(leaves) == 1 and not leaves[0][0]:
        return leaf(value)
    return ", ".join(f"{tree.path_name(path)}: {leaf(each)}" for path, each in leaves)


class _Prompt(cmd.Cmd):
    """The prompt of a stop."""

    prompt = "(fxgrad) "

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._stop = stop

    def default(self, line: str) -> None:
        """Evaluate an expression of the values."""
        names = {**self._stop.values, "gradient": self._stop.gradient, "np": np}
        try:
            self.stdout.write(f"{eval(line, names)!r}\n")  # noqa: S307  (the prompt is for expressions of Python)
        except Exception as error:  # noqa: BLE001  (whatever was typed)
            self.stdout.write(f"{type(error).__name__}: {error}\n")

    def emptyline(self) -> bool:
        """Ask again."""
        return False

    def do_c(self, _: str) -> bool:
        """Go on."""
        return True

    def do_q(self, _: str) -> None:
        """End the run."""
        raise KeyboardInterrupt

    do_EOF = do_q  # noqa: N815  (the name that cmd looks for)

    def do_program(self, _: str) -> None:
        """Print the operations that computed the value."""
        self.stdout.write(f"{self._stop.program or 'the value was not traced'}\n")

    def do_names(self, _: str) -> None:
        """Print the values again."""
        self.stdout.write(f"{self._stop}\n")


def _prompt(stop: Stop) -> None:
    sys.stdout.write(f"{stop}\nnames, program, c (go on), q (end), or an expression\n")
    _Prompt(stop).cmdloop()
