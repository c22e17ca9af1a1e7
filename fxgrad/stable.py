"""Forms that lose digits or overflow in floating point: found by line, and replaced by stable ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rich.table import Table

from fxgrad import nn
from fxgrad import numpy as fnp
from fxgrad.api.arguments import transformation
from fxgrad.core.program import Atom, Equation, Program, inner_first
from fxgrad.editing.patterns import Match
from fxgrad.editing.rewriting import Rewriting
from fxgrad.frontend.calling import program_of_call
from fxgrad.ops.arithmetic import sub_p
from fxgrad.ops.reductions import reduce_max_p
from fxgrad.show.tables import Shown, add_row, new_table


class Form(NamedTuple):
    """A naive form, what computes the same without its fault, what goes wrong, and what to write."""

    naive: Callable[..., Any]
    stable: Callable[..., Any]
    fault: str
    write: str


def _forms() -> Iterator[Form]:
    """Those that contain others come first."""
    for axis in (None, 0, 1, 2, 3):
        yield from _of_axis(axis)
    yield Form(lambda x: fnp.log(1 + fnp.exp(x)), lambda x: fnp.logaddexp(x, 0.0),
               "exp overflows for large x", "fxgrad.nn.softplus(x)")
    yield Form(lambda x: 1 / (1 + fnp.exp(-x)), nn.sigmoid,
               "exp overflows for x far below zero, and its derivative is NaN there", "fxgrad.nn.sigmoid(x)")
    yield Form(lambda x: fnp.exp(x) - 1, fnp.expm1, "digits cancel for x near zero", "np.expm1(x)")
    yield Form(lambda x: fnp.log(1 + x), fnp.log1p, "digits of a small x are lost in the sum", "np.log1p(x)")


def _of_axis(axis: int | None) -> Iterator[Form]:
    shown = f", axis={axis}"
    for keepdims in (True, False):
        yield Form(lambda x, keep=keepdims: fnp.log(fnp.exp(x) / fnp.sum(fnp.exp(x), axis=axis, keepdims=keep)),
                   lambda x: nn.log_softmax(x, axis=axis),
                   "exp overflows for large x, and inf / inf is NaN", f"fxgrad.nn.log_softmax(x{shown})")
        yield Form(lambda x, keep=keepdims: fnp.exp(x) / fnp.sum(fnp.exp(x), axis=axis, keepdims=keep),
                   lambda x: nn.softmax(x, axis=axis),
                   "exp overflows for large x, and inf / inf is NaN", f"fxgrad.nn.softmax(x{shown})")
        yield Form(lambda x, keep=keepdims: fnp.log(fnp.sum(fnp.exp(x), axis=axis, keepdims=keep)),
                   lambda x, keep=keepdims: nn.logsumexp(x, axis=axis, keepdims=keep),
                   "exp overflows for large x", f"fxgrad.nn.logsumexp(x{shown})")


FORMS = tuple(_forms())


def stabilize(program: Program) -> Program:
    """The program with stable forms in the place of those that overflow or cancel, inside loops and branches too.

    Values agree to rounding wherever the naive form is accurate; it is `program` itself where there is none. `lint`
    tells the lines. Known are softmax, log-softmax, log-sum-exp, softplus, sigmoid, expm1 and log1p, written out.

    >>> import fxgrad, numpy as np
    >>> naive = fxgrad.make_program(lambda x: np.log(np.sum(np.exp(x))))(np.ones(2))
    >>> large = np.array([1000.0, 1000.0])
    >>> float(naive(large)), round(float(fxgrad.stabilize(naive)(large)), 6)
    (inf, 1000.693147)
    """
    for form in FORMS:
        program, _ = _replaced(program, form)
    return program


def _replaced(program: Program, form: Form) -> tuple[Program, list[Match]]:
    """The program without the naive form, and where that was."""
    makers: dict[Atom, Equation] = {
        var: equation for each in inner_first(program) for equation in each.equations for var in equation.outputs}
    found: list[Match] = []

    def is_meant(match: Match) -> bool:
        is_naive = not _is_shifted(match.operands[0], makers)
        if is_naive:
            found.append(match)
        return is_naive

    return Rewriting(form.naive, form.stable, where=is_meant, inside=True).of(program), found


def _is_shifted(atom: Atom, makers: Mapping[Atom, Equation]) -> bool:
    """Whether a largest value was subtracted already: then nothing overflows."""
    difference = makers.get(atom)
    if difference is None or difference.primitive is not sub_p:
        return False
    maker = makers.get(difference.inputs[1])
    while maker is not None and len(maker.inputs) == 1 and maker.primitive is not reduce_max_p:
        maker = makers.get(maker.inputs[0])
    return maker is not None and maker.primitive is reduce_max_p


class Finding(NamedTuple):
    """A naive form in a program: the line of it, what goes wrong there, and what to write."""

    line: str
    fault: str
    write: str


class Findings(Shown):
    """What `lint` found, in the order of the program; false if that is nothing. It prints as a table."""

    def __init__(self, title: str, findings: list[Finding]) -> None:
        self.title, self.findings = title, findings

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def table(self) -> Table:
        """The table for rich."""
        made = new_table(self.title, dict.fromkeys(("line", "what goes wrong", "write"), "left"))
        for finding in self.findings:
            add_row(made, [*finding])
        return made

    def __str__(self) -> str:
        return super().__str__() if self.findings else f"{self.title}: nothing was found"

    __repr__ = __str__


def lint(fun: Callable[..., Any]) -> Callable[..., Findings]:
    """The function that traces `fun` and finds forms that overflow or lose digits in floating point, with their lines.

    `stabilize` puts the stable ones in their place.

    >>> import fxgrad, numpy as np
    >>> def softmax(x):
    ...     return np.exp(x) / np.sum(np.exp(x))
    >>> finding, = fxgrad.lint(softmax)(np.ones(3))
    >>> finding.fault, finding.write
    ('exp overflows for large x, and inf / inf is NaN', 'fxgrad.nn.softmax(x, axis=None)')
    """
    @transformation("lint", fun)
    def findings(*args: Any, **kwargs: Any) -> Findings:
        program = program_of_call("lint", fun, args, kwargs)
        title = "" if program.signature is None else program.signature.title or program.signature.name
        found: list[tuple[int, Finding]] = []
        for form in FORMS:
            program, matches = _replaced(program, form)
            found += [_finding(match, form) for match in matches]
        return Findings(title, [finding for _, finding in sorted(set(found))])
    return findings


def _finding(match: Match, form: Form) -> tuple[int, Finding]:
    source = match.equations[-1].source
    line = "?" if source is None else source.place
    return 0 if source is None else source.line, Finding(line, form.fault, form.write)
