"""Layers of a program: equations grouped by named scope, by call, or else by the user's function."""

from __future__ import annotations

from typing import NamedTuple

from fxgrad.extend import CALL_NAMES, Cost, Equation, Program, Source, join_scopes, primitives
from fxgrad.text.inlining import call_name, holds_call, inline
from fxgrad.text.short import operation_name


class LayerEquations(NamedTuple):
    """A layer: its name, and its equations in order."""

    name: str
    equations: tuple[Equation, ...]

    @property
    def cost(self) -> Cost:
        """The cost of its equations."""
        costs = [equation.cost for equation in self.equations]
        return Cost(sum(each.flops for each in costs), sum(each.bytes for each in costs))

    @property
    def operations(self) -> list[str]:
        """The names of the operations, each once."""
        return [*dict.fromkeys(map(operation_name, self.equations))]


def inline_blocks(program: Program) -> Program:
    """Return the program with the user's blocks in place of their calls, since they may contain layers.

    Library functions, checkpoints and functions with rules of their own stay one equation.
    """
    sole = program.equations[0] if len(program.equations) == 1 else None
    opened = inline(program, calls=_is_block)
    if sole is None or opened is program:
        return opened
    name = call_name(sole)  # the whole is jitted, which is no layer

    def without(source: Source | None) -> Source | None:
        if source is None:
            return None
        first, _, rest = source.scope.partition("/")
        return source._replace(scope=rest) if first == name else source

    return opened.replace(equations=[
        Equation(each.primitive, each.inputs, each.params, each.outputs, without(each.source))
        for each in opened.equations])


def _is_block(equation: Equation) -> bool:
    return equation.primitive in (primitives.named_call, primitives.jit_call) and not _is_library(equation)


def layers(program: Program, depth: int | None = None) -> list[LayerEquations]:
    """Return the layers of a program, each at the position of its first equation.

    All equations of one scope are one layer, even if they are not adjacent; at most `depth` names of a scope count.
    Without a scope, consecutive equations of one of the user's functions are one layer, which is numbered from the
    second of that function on.
    """
    parts: dict[str, list[Equation]] = {}
    counts: dict[str, int] = {}
    before = ""
    main = "" if program.signature is None else program.signature.name
    for equation in program.equations:
        name, is_scope = _layer(equation, main, before)
        if is_scope:
            key = "/".join(name.split("/")[:depth])
        elif name == before:
            key = name if counts[name] == 1 else f"{name} ({counts[name]})"
        else:
            counts[name] = counts.get(name, 0) + 1
            key = name if counts[name] == 1 else f"{name} ({counts[name]})"
        before = "" if is_scope else name
        parts.setdefault(key, []).append(equation)
    return [LayerEquations(name, tuple(equations)) for name, equations in parts.items()]


def _layer(equation: Equation, main: str, before: str) -> tuple[str, bool]:
    """Return the name of the layer of an equation, and whether it is a scope; `before` is the preceding function's."""
    if holds_call(equation) and not _is_library(equation):
        return join_scopes(equation.scope, call_name(equation)), True
    if equation.scope:
        return equation.scope, True
    if equation.source is None:
        return before or main or "program", False
    code = equation.source.code
    if code.co_name == "__call__":
        return code.co_qualname.split(".")[-2], False  # the class
    return code.co_name if code.co_name.isidentifier() else main, False


def _is_library(equation: Equation) -> bool:
    called = CALL_NAMES.of(equation.programs[0])
    return called is not None and called.is_library
