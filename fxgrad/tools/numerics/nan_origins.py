"""Find the origin of a NaN in a result: the first operation, its path to the result, and what to write."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group
from rich.table import Table

from fxgrad import device_get, dtypes, tree
from fxgrad.errors import ArgumentError
from fxgrad.extend import (
    Atom,
    Equation,
    Literal,
    Program,
    Provenance,
    Source,
    Variable,
    eval_program,
    hide_frames,
    primitives,
    trace_with_values,
    transformation,
)
from fxgrad.extend.analyses import acts_on_each
from fxgrad.extend.kernels import evaluate
from fxgrad.text.inlining import inline
from fxgrad.text.notations import sign_of
from fxgrad.text.tables import Report, add_row, new_table

LONGEST_UNROLLED = 20_000
"""Most equations of a loop that is unrolled to find the step that made the NaN."""


class Cause(NamedTuple):
    """An operation that made a NaN from numbers, or an infinity from finite ones.

    `computed` is the computation, such as `0.0 * inf`, at `place` in its result; `line` is the user's, and `part` is
    "backward" for operations that differentiation created.
    """

    operation: str
    computed: str
    place: tuple[int, ...]
    line: str
    part: str

    def __str__(self) -> str:
        at = f" at {list(self.place)}" if self.place else ""
        return f"{self.computed}{at}"


class NanOrigin(Report):
    """The origin of a NaN: prints as a table, and is false if the results have none.

    `results` are the results with a NaN. `cause` is the operation that made it first; `infinity`, if an operand was
    infinite, the operation that made that. Both are None for a NaN in the arguments; `arguments` then has their names.
    `lines` are the lines that it passed through, first one first, and `write` is the remedy.
    """

    def __init__(self, title: str, results: Sequence[str] = (), cause: Cause | None = None,
                 infinity: Cause | None = None, arguments: Sequence[str] = (), lines: Sequence[str] = (),
                 write: str = "") -> None:
        self.title, self.results, self.cause, self.infinity = title, [*results], cause, infinity
        self.arguments, self.lines, self.write = [*arguments], [*lines], write

    def __bool__(self) -> bool:
        return bool(self.results)

    def table(self) -> Table:
        """Return the table for rich."""
        made = new_table(f"NaN in {self.title}", dict.fromkeys(("", "what", "where"), "left"))
        if self.arguments:
            add_row(made, ["came in with", ", ".join(self.arguments), ""])
        for head, cause in (("first made by", self.cause), ("the infinity by", self.infinity)):
            if cause is not None:
                add_row(made, [head, str(cause), f"{cause.line}{', backward' if cause.part == 'backward' else ''}"])
        add_row(made, ["is in", ", ".join(self.results), ", ".join(self.lines)])
        if self.write:
            add_row(made, ["write", self.write, ""])
        return made

    def content(self) -> Table | Group | str:
        """Return the table, or a sentence if there is no NaN."""
        return self.table() if self else f"{self.title}: no NaN"

    __repr__ = Report.__str__


def find_nan(fun: Callable[..., Any]) -> Callable[..., NanOrigin]:
    """Return a function that runs `fun` operation by operation, and finds the origin of a NaN in its results.

    Gradients work too: `find_nan(grad(loss))(x)`. NaNs that do not reach a result, since `where` chose the other
    value, are ignored. Calls are searched, and loops that run a known number of times. It runs with NumPy.

    Raises `ArgumentError` for arguments that are types without values.

    >>> import fxgrad, numpy as np
    >>> def length(x):
    ...     return np.where(x > 0, np.sqrt(x), 0.0)
    >>> origin = fxgrad.debug.find_nan(fxgrad.grad(length))(0.0)
    >>> origin.cause.computed, origin.cause.part
    ('0.0 / 0.0', 'backward')
    >>> origin.write.partition(":")[0]
    'the slope of sqrt is infinite at 0, and a `where` behind it comes too late'
    """
    @transformation("find_nan", fun)
    @hide_frames
    def explained(*args: Any, **kwargs: Any) -> NanOrigin:
        program, leaves = trace_with_values("find_nan", fun, args, kwargs)
        return _NanSearch(_unfold(program), program).origin(leaves)
    return explained


Place = tuple[int, int]
"""An expression of the user's: the id of a code object, and an instruction."""


def _unfold(program: Program) -> Program:
    try:
        return inline(program, calls="*", loops=True, devices=True, limit=LONGEST_UNROLLED)
    except ArgumentError:
        return inline(program, calls="*", devices=True)


class _NanSearch:
    """One run of a program that keeps every value."""

    def __init__(self, program: Program, recorded: Program) -> None:
        self._program = program
        self._values: dict[Variable, Any] = {}
        self._maker: dict[Variable, Equation] = {}
        self._written = _operations_by_place(recorded)

    def origin(self, leaves: Sequence[Any]) -> NanOrigin:
        """Return the origin of the first NaN that reaches a result."""
        program, signature = self._program, self._program.signature
        title = "the program" if signature is None else signature.title or signature.name
        given = [*program.constants, *leaves]
        self._values = {var: np.asarray(value, None if hasattr(value, "dtype") else var.aval.dtype)
                        for var, value in zip(program.inputs, device_get(given), strict=True)}
        with np.errstate(all="ignore"):
            eval_program(program, [self._values[var] for var in program.inputs], self._compute,
                         lambda literal: literal.value)
        names = self._result_names()
        results = [name for name, atom in zip(names, program.outputs, strict=True) if self._has(np.isnan, atom)]
        if not results:
            return NanOrigin(title)
        first = next(atom for atom in program.outputs if self._has(np.isnan, atom))
        trail = self._trail(first, np.isnan)
        lines = [*dict.fromkeys(line for line in map(self._line, trail[::-1]) if line)]
        start = trail[-1]
        if start not in self._maker:
            place = program.inputs.index(start)
            known = [] if signature is None else [*signature.input_names]
            captured = len(program.constants)
            name = known[place - captured] if place >= captured and place - captured < len(known) else "a constant"
            return NanOrigin(title, results, arguments=[name], lines=lines, write=_CAME_IN)
        equation = self._maker[start]
        cause = self._cause(equation, start, np.isnan)
        infinite = next((atom for atom in equation.inputs if self._has(np.isinf, atom)), None)
        infinity = None
        if isinstance(infinite, Variable):
            source = self._trail(infinite, np.isinf)[-1]
            if source in self._maker:
                infinity = self._cause(self._maker[source], source, np.isinf)
        return NanOrigin(title, results, cause, infinity, lines=lines,
                         write=self._advice(self._maker[source] if infinity else equation, cause, infinity))

    def _compute(self, equation: Equation, inputs: list[Any]) -> Sequence[Any]:
        """Compute an equation, and record its values and their equation."""
        outputs = evaluate(equation.primitive, inputs, equation.params)
        self._values.update(zip(equation.outputs, outputs, strict=True))
        self._maker.update(dict.fromkeys(equation.outputs, equation))
        return outputs

    def _value(self, atom: Atom) -> Any:
        return atom.value if isinstance(atom, Literal) else self._values[atom]

    def _has(self, test: Callable[[Any], Any], atom: Atom) -> bool:
        value = np.asarray(self._value(atom))
        return dtypes.is_inexact(value.dtype) and bool(test(value).any())

    def _trail(self, atom: Any, test: Callable[[Any], Any]) -> list[Variable]:
        """Return the path from a value back to the first that passes the test, along operands that pass it."""
        found = [atom]
        while found[-1] in self._maker:
            before = [operand for operand in self._maker[found[-1]].inputs
                      if isinstance(operand, Variable) and self._has(test, operand)]
            if not before:
                break
            found.append(before[0])
        return found

    # --- the report ---------------------------------------------------------------------------------------------

    def _line(self, var: Variable) -> str:
        equation = self._maker.get(var)
        return "" if equation is None or equation.source is None else equation.source.place

    def _cause(self, equation: Equation, var: Variable, test: Callable[[Any], Any]) -> Cause:
        value = np.asarray(self._values[var])
        place = tuple(int(each) for each in np.argwhere(test(value))[0])
        operands = [np.asarray(self._value(atom)) for atom in equation.inputs]
        alike = all(operand.shape in ((), value.shape) for operand in operands)
        name = equation.primitive.name
        if alike:
            numbers = [_number_text(operand[place] if operand.shape else operand[()]) for operand in operands]
            sign = sign_of(equation.primitive) if acts_on_each.of(equation.primitive) and len(numbers) > 1 else ""
            computed = f" {sign} ".join(numbers) if sign else f"{name}({', '.join(numbers)})"
        else:
            computed = f"{name} of {'; '.join(map(_value_text, operands))}"
        return Cause(name, computed, place, self._line(var), "" if equation.source is None else
                     equation.source.part or "")

    def _result_names(self) -> list[str]:
        signature, count = self._program.signature, len(self._program.outputs)
        if signature is None or signature.out_tree is None:
            return [f"output {number}" for number in range(count)]
        return tree.leaf_names(tree.unflatten(signature.out_tree, range(count)), "the result")

    def _advice(self, equation: Equation, cause: Cause, infinity: Cause | None) -> str:
        """Return the remedy, chosen by the user's call on the line of the operation that began it."""
        source = equation.source
        # Operations that the user's code recorded in the expression of the equation, last to first.
        here = [] if source is None else self._written.get((id(source.code), source.instruction), [])[::-1]
        begun = infinity or cause
        # Operations not recorded there were created by differentiating the recorded ones.
        derived = begun.part == "backward" or begun.operation not in here or self._comes_from_derivative(begun)
        late = derived and any(each.primitive in _CHOICES for each in self._program.equations)
        for called, is_slope in ((here, True), ([begun.operation], False)) if derived else (
                ([begun.operation], False), (here, False)):
            for name, slope, value in _hints():
                if name in called:
                    what, write = slope if is_slope else value
                    return f"{what}{_LATE if late and is_slope else ': '}{write}{_SAFE if derived and is_slope else ''}"
        return "look at the line above with fxgrad.debug_nans(), which stops there"

    def _comes_from_derivative(self, begun: Cause) -> bool:
        """Return whether differentiation created a power: only its powers are negative where the user's are not."""
        return begun.operation == "pow" and begun.computed.startswith("0.0 ** -") and any(
            equation.source is not None and equation.source.part == "backward" and equation.source.place == begun.line
            for equation in self._program.equations)


def _operations_by_place(program: Program) -> dict[Place, list[str]]:
    """Return the operations that the user's code recorded, by expression, in order: also the primals of a derivative.

    A derivative's program may no longer contain the operation itself; the program before it does.
    """
    found: dict[Place, list[str]] = {}
    pending, seen = [program], {id(program)}

    def look(each: Program, around: Source | None) -> None:
        for var in each.inputs:
            enter(getattr(var, "origins", ()))
        for equation in each.equations:
            source = equation.source or around
            if source is not None:
                enter(itertools.chain(*source.origins))
                if source.part is None:  # and not created by a transformation
                    found.setdefault((id(source.code), source.instruction), []).append(equation.primitive.name)
            for inner in equation.programs:
                look(inner, source)

    def enter(origins: Iterable[Provenance]) -> None:
        for origin in origins:
            if id(origin.program) not in seen:
                seen.add(id(origin.program))
                pending.append(origin.program)

    while pending:
        look(pending.pop(), None)
    return found


def _number_text(value: Any) -> str:
    return f"{value:.6g}" if np.ndim(value) == 0 and dtypes.is_floating(value.dtype) and not float(
        value).is_integer() else str(value)


def _value_text(value: np.ndarray[Any, Any]) -> str:
    if not dtypes.is_floating(value.dtype) or not value.size:
        return f"{value.dtype.name}{list(value.shape)}"
    parts = [f"{count} {word}" for word, count in (
        ("infinite", int(np.isinf(value).sum())), ("zero", int((value == 0).sum()))) if count]
    return f"{value.dtype.name}{list(value.shape)}" + (f" ({', '.join(parts)})" if parts else "")


_CAME_IN = ("it came in: look where it comes from, or put a number in its place before it is used, "
            "np.where(np.isnan(x), 0.0, x)")
_SAFE = "; or differentiate fxgrad.nan_safe(f), in which 0 times an infinite slope is 0"
_CHOICES = (primitives.select_n, primitives.clamp, primitives.max, primitives.min)
_LATE = ", and a `where` behind it comes too late: choose before, too: "
Advice = tuple[str, str]


def _hints() -> Iterator[tuple[str, Advice, Advice]]:
    """Yield for each operation its name, and the hints for its derivative and for itself; most specific first."""
    root = "safe = np.where(x > 0, x, 1.0), then np.where(x > 0, np.sqrt(safe), 0.0)"
    yield "sqrt", ("the slope of sqrt is infinite at 0", root), ("sqrt has no value below 0", root)
    yield "rsqrt", ("1 / sqrt and its slope are infinite at 0", "add a small number under the root"), (
        "1 / sqrt has no value at or below 0", "add a small number under the root")
    yield "cbrt", ("the slope of cbrt is infinite at 0", "safe = np.where(x == 0, 1.0, x), as for sqrt"), (
        "an infinity went in", "look at its operand")
    log = ("safe = np.where(x > 0, x, 1.0), then np.where(x > 0, np.log(safe), 0.0); for x * log(x) fxgrad.scipy."
           "special.xlogy(x, x), for log of softmax fxgrad.nn.log_softmax")
    yield "log", ("the slope of log is infinite at 0", log), ("log has no number at or below 0", log)
    yield "log1p", ("the slope of log1p is infinite at -1", "keep x above -1, for example np.maximum(x, -1 + 1e-12)"), (
        "log1p has no number at or below -1", "keep x above -1, for example np.maximum(x, -1 + 1e-12)")
    power = "safe = np.where(x > 0, x, 1.0), then np.where(x > 0, safe ** p, 0.0)"
    yield "pow", ("the slopes of a power at 0 hold log(0), or 0 to a negative exponent", power), (
        "a negative number has no power of a broken exponent, and 0 none of a negative one", power)
    yield "atan2", ("atan2 has no slope where both operands are 0",
                    "safe = np.where((x == 0) & (y == 0), 1.0, x), then np.arctan2(y, safe)"), (
        "an operand was infinite", "look at it")
    for name in ("asin", "acos", "atanh", "acosh"):
        yield name, (f"the slope of {name} is infinite at the ends of its domain",
                     "clip a little inside: np.clip(x, -1 + 1e-7, 1 - 1e-7)"), (
            f"the operand left the domain of {name}", "clip it: np.clip(x, -1.0, 1.0)")
    shift = "subtract the largest value first, x - np.max(x), or use fxgrad.nn.logsumexp, softmax or softplus"
    for name in ("exp", "expm1", "exp2", "cosh", "sinh"):
        yield name, (f"{name} overflows", shift), (f"{name} overflows", shift)
    part = "safe = np.where(d == 0, 1.0, d), then np.where(d == 0, 0.0, n / safe)"
    yield "div", ("the slope of a quotient is infinite where its denominator is 0", part), (
        "a quotient of 0 and 0, or of infinities, is no number", part)
    for name in ("eigh", "eig", "svd", "cholesky", "qr", "lu"):
        yield name, (f"the derivative of {name} divides by differences of equal values",
                     "add a little noise to the diagonal, or differentiate a function of the whole (trace, logdet)"), (
            f"{name} failed", "make the matrix symmetric and positive: x @ x.T + 1e-6 * np.eye(n)")
    yield "sub", ("infinities were subtracted", "keep the operands finite, for example np.clip(x, -1e30, 1e30)"), (
        "infinity minus infinity is no number", "keep the operands finite, for example np.clip(x, -1e30, 1e30)")
    yield "mul", ("0 times infinity is no number", "choose with np.where and not by a mask that is multiplied"), (
        "0 times infinity is no number", "choose with np.where and not by a mask that is multiplied")
    yield "reduce_sum", ("infinities of both signs were added", "keep the operands finite"), (
        "infinities of both signs were added", "keep the operands finite")
