"""`lint`: the lines of a function that lose numbers, derivatives or time, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.errors import ArgumentError, KeyReuseError
from fxgrad.extend import Program, at_user_line, hide_frames, trace_program, transformation
from fxgrad.extend.analyses import refuse_key_reuse
from fxgrad.extend.tracing import TracedCall, rewrite_before_derivatives
from fxgrad.tools.numerics.findings import KINDS, Finding, Findings, finding
from fxgrad.tools.numerics.repeated_lines import repeated_lines
from fxgrad.tools.numerics.rewriting import find_forms
from fxgrad.tools.numerics.slopes import infinite_slopes, zero_slopes

Kinds = str | Sequence[str]


def lint(fun: Callable[..., Any], *, only: Kinds | None = None, ignore: Kinds = ()) -> Callable[..., Findings]:
    """Return a function that traces `fun` and reports lines that lose numbers, digits, derivatives or compile time.

    It takes the arguments of `fun`, of which only the types matter: arrays, numbers or `ShapeDtypeStruct`s. Nothing is
    computed. Each finding has the line, the fault, what to write, and a kind:

    - "overflow" and "cancellation": the naive forms that `stabilize` rewrites;
    - "derivative": operations without a derivative but 0 through which alone an argument reaches the result (round,
      argmax, comparisons, conversions to integers), with a remedy; logarithms, roots and quotients of values held at 0,
      and in a branch of `where`, whose derivatives are NaN;
    - "keys": random keys that are drawn from twice;
    - "repeats": blocks of which a Python loop records many copies ("96 copies of lines 12 to 19"), to be compiled once;
    - "edges": forms that fail only where squares overflow or underflow, or next to a zero. Reported on request.

    `only` (a kind, or several) reports these alone, `ignore` all but these. The result prints as a table, is false if
    nothing was found, and has `to_json()`. Raises `ArgumentError` for unknown kinds.

    >>> import fxgrad, numpy as np
    >>> def softmax(x):
    ...     return np.exp(x) / np.sum(np.exp(x))
    >>> finding, = fxgrad.lint(softmax)(np.ones(3))
    >>> finding.kind, finding.fault, finding.write
    ('overflow', 'exp overflows for large x, and inf / inf is NaN', 'fxgrad.nn.softmax(x, axis)')
    >>> print(fxgrad.lint(softmax, ignore="overflow")(np.ones(3)))
    softmax: nothing was found
    """
    chosen = set(KINDS[:-1]) if only is None else _check_kinds("only", only)
    kinds = chosen - _check_kinds("ignore", ignore)

    @transformation("lint", fun)
    @hide_frames
    def findings(*args: Any, **kwargs: Any) -> Findings:
        found: list[Finding] = []

        def look(traced: TracedCall) -> TracedCall:
            """Search the functions that `fun` differentiates as they were written."""
            program = traced.program.replace(constants=traced.captured)
            found.extend((*_find_naive_forms(program), *repeated_lines(program)))
            return traced

        with rewrite_before_derivatives(look):
            program = trace_program("lint", fun, args, kwargs)
        title = "" if program.signature is None else program.signature.title or program.signature.name
        found += [*_find_naive_forms(program), *zero_slopes(program), *infinite_slopes(program),
                  *_find_key_reuse(program), *repeated_lines(program)]
        return Findings(title, [each for each in found if each.kind in kinds])
    return findings


def _check_kinds(name: str, given: Kinds) -> set[str]:
    kinds = {given} if isinstance(given, str) else set(given)
    if not kinds <= set(KINDS):
        raise ArgumentError(at_user_line(
            f"lint: {name}={given!r}; the kinds of findings are {', '.join(map(repr, KINDS))}"))
    return kinds


def _find_naive_forms(program: Program) -> list[Finding]:
    """Return the naive forms that the user wrote, not those in derivatives."""
    return [finding(source, found.rule.fault, found.rule.write, found.rule.kind)
            for found in find_forms(program).all()
            if (source := found.equation.source) is None or source.part is None]


def _find_key_reuse(program: Program) -> list[Finding]:
    try:
        refuse_key_reuse(program)
    except KeyReuseError as error:
        place = re.findall(r"at (\S+:(\d+)) \(in", str(error))
        line, number = place[-1] if place else ("?", "0")
        what = str(error).split(". ")[0]
        return [Finding(line, what, "fxgrad.random.split(key), or fxgrad.random.clone(key) if it is meant", "keys",
                        int(number))]
    return []
