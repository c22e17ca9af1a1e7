"""Inline calls and unroll loops: replace one equation by the equations of the program that it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from fxgrad.errors import ArgumentError
from fxgrad.extend import (
    PRIMAL,
    Atom,
    Equation,
    Link,
    Literal,
    Program,
    Provenance,
    Region,
    Source,
    Variable,
    at_user_line,
    drop_devices,
    eval_program,
    infer_types,
    join_scopes,
    primitives,
    remove_dead_code,
    replace_programs,
    require_program,
)
from fxgrad.text.names import NAMES, function_label, own_names
from fxgrad.text.sources import Sources

Choice = bool | str | Sequence[str] | Callable[[Equation], bool]
"""All, none, those whose name or scope matches a pattern, such as `"encoder/*"`, or those that a function selects."""


def inline(program: Program, *, calls: Choice = True, loops: Choice = False, devices: bool = False,
           limit: int = 100_000) -> Program:
    """Return an equal program with calls replaced by their equations, and loops by their steps.

    - `calls`: by default named calls (library functions, and those of `named_call`), at every depth. Patterns select by
      name or scope, from all calls: also jitted functions, checkpoints and functions with rules of their own, which
      lose
      their rules. `"*"` is every call. A predicate of the equation may select as well.
    - `loops`: whether to unroll loops that run a known number of times, or which of them. By default they stay.
    - `devices`: whether to write the per-device computations of a mesh (`shard_map`) as operations on whole arrays.

    Equations of a call get a scope of its name. Raises `ArgumentError` if more than `limit` equations would be made.

    >>> import fxgrad
    >>> from fxgrad.extend import library_function
    >>> @library_function
    ... def square(x):
    ...     return x * x
    >>> program = fxgrad.make_program(lambda x: square(x) + 1.0)(3.0)
    >>> [equation.primitive.name for equation in program.equations]
    ['named_call', 'add']
    >>> [equation.primitive.name for equation in inline(program).equations]
    ['mul', 'add']
    >>> loop = fxgrad.make_program(lambda x: fxgrad.lax.fori_loop(0, 3, lambda i, y: y * x, x))(2.0)
    >>> [equation.primitive.name for equation in inline(loop, loops=True).equations]
    ['mul', 'mul', 'mul']
    """
    program = require_program("inline", program)
    if devices:
        program = drop_devices(program)
    choices = _Choices(calls, loops, limit)
    done: dict[int, Program] = {}
    stack = [program]
    while stack:  # not by recursion: calls may nest deeply
        top = stack[-1]
        missing = [inner for equation in top.equations for inner in equation.programs if id(inner) not in done]
        if missing and id(top) not in done:
            stack.extend(missing)
        else:
            stack.pop()
            if id(top) not in done:
                done[id(top)] = _Unfolding(top, choices, done).program()
    return done[id(program)]


def holds_call(equation: Equation) -> bool:
    """Return whether an equation is one call of one program that can be inlined."""
    regions = equation.regions
    return len(regions) == 1 and regions[0].role in ("inline", "call", "recomputed") and regions[0].times == 1 and all(
        link.how == "same" for link in (*regions[0].inputs, *regions[0].outputs))


def call_name(equation: Equation) -> str:
    """Return the name of a call: its own, or that of the function."""
    rule = equation.params.get("rule")
    return str(equation.params.get("name") or getattr(rule, "name", "") or function_label(equation.programs[0]))


class _Choices:
    """The calls and loops to unfold."""

    def __init__(self, calls: Choice, loops: Choice, limit: int) -> None:
        self._calls, self._loops, self.limit = calls, loops, limit

    def takes_call(self, equation: Equation) -> bool:
        """Return whether an equation is a selected call."""
        if not holds_call(equation):
            return False
        if isinstance(self._calls, bool):
            return self._calls and equation.regions[0].role == "inline"
        return _is_chosen(self._calls, equation, call_name(equation))

    def takes_loop(self, equation: Equation) -> bool:
        """Return whether an equation is a selected loop that runs a known number of times."""
        regions = equation.regions
        if len(regions) != 1 or regions[0].role != "body" or regions[0].times is None or any(
                link.how == "inside" for link in (*regions[0].inputs, *regions[0].outputs)):
            return False
        return self._loops if isinstance(self._loops, bool) else _is_chosen(
            self._loops, equation, function_label(regions[0].program))


def _is_chosen(choice: str | Sequence[str] | Callable[[Equation], bool], equation: Equation, name: str) -> bool:
    if callable(choice):
        return choice(equation)
    texts = {name, equation.scope, join_scopes(equation.scope, name)}
    return any(fnmatchcase(text, pattern) for text in texts
               for pattern in ([choice] if isinstance(choice, str) else choice))


class _Unfolding:
    """One program being unfolded, given the results for the programs in its parameters (`done`)."""

    def __init__(self, program: Program, choices: _Choices, done: dict[int, Program]) -> None:
        self._before, self._choices, self._done = program, choices, done
        self._equations: list[Equation] = []
        self._values: dict[Variable, Atom] = {}

    def program(self) -> Program:
        """Return the program; the original one if nothing changed."""
        before, values, changed = self._before, self._values, False
        for equation in before.equations:
            regions = equation.regions
            if not regions and not values:
                self._equations.append(equation)
                continue
            inputs = [self._read(atom) for atom in equation.inputs]
            self._holder = equation
            if self._choices.takes_call(equation) or self._choices.takes_loop(equation):
                made = self._call(regions[0], inputs) if holds_call(equation) else self._unroll(regions[0], inputs)
                values.update(zip(equation.outputs, made, strict=True))
                changed = True
                continue
            inner = [self._done[id(region.program)] for region in regions]
            changed |= any(new is not region.program for new, region in zip(inner, regions, strict=True))
            self._add(equation, inputs, replace_programs(equation.params, regions, inner))
        if not changed:
            return before
        result = remove_dead_code(before.replace(
            equations=self._equations, outputs=[self._read(atom) for atom in before.outputs]))
        names: dict[Variable, str] = {}
        for var, name in own_names(before, Sources()).items():
            # The result of a call keeps the name that its own line gives it.
            atom = self._read(var)
            if isinstance(atom, Variable):
                names.setdefault(atom, name)
        NAMES.put(result, names)
        return result

    def _add(self, equation: Equation, inputs: list[Atom], params: dict[str, object]) -> None:
        """Append an equation; numbers may be weakly typed where the loop's carry was not, or vice versa."""
        if [atom.aval for atom in inputs] == [atom.aval for atom in equation.inputs]:
            self._equations.append(equation.replace(inputs, params))
            return
        outputs = [*map(Variable, infer_types(equation.primitive, [atom.aval for atom in inputs], params))]
        self._equations.append(Equation(equation.primitive, inputs, params, outputs, equation.source))
        self._values.update(zip(equation.outputs, outputs, strict=True))

    def _read(self, atom: Atom) -> Atom:
        return self._values.get(atom, atom) if isinstance(atom, Variable) else atom

    # --- calls and loops ------------------------------------------------------------------------------------

    def _call(self, region: Region, inputs: list[Atom]) -> list[Atom]:
        """Append the equations of a call; return its outputs."""
        operands = [inputs[link.place] for link in region.inputs]
        made = self._inlined(region, operands, call_name(self._holder))
        outputs: list[Atom] = list(made)
        for link, atom in zip(region.outputs, made, strict=True):
            outputs[link.place] = atom
        return outputs

    def _unroll(self, region: Region, inputs: list[Atom]) -> list[Atom]:
        """Append the steps of a loop; return its outputs."""
        assert region.times is not None
        entries = {link.place: self._record(primitives.unstack, [inputs[link.place]], {"axis": 0}) if region.times
                   else []
                   for link in region.inputs if link.how == "entry"}
        carried = [inputs[link.place] for link in region.inputs if link.how == "carry"]
        stacks: dict[int, list[Atom]] = {link.place: [] for link in region.outputs if link.how == "entry"}
        for step in reversed(range(region.times)) if region.reverse else range(region.times):
            left = iter(carried)
            made = self._inlined(region,
                                 [self._take_input(link, inputs, left, entries, step) for link in region.inputs], "")
            carried = [atom for link, atom in zip(region.outputs, made, strict=True) if link.how == "carry"]
            for link, atom in zip(region.outputs, made, strict=True):
                if link.how == "entry":
                    stacks[link.place].append(atom)
        results = iter(carried)
        places = {link.place: next(results) for link in region.outputs if link.how == "carry"}
        for place, atoms in stacks.items():
            places[place] = self._stack(atoms[::-1] if region.reverse else atoms, self._holder.outputs[place])
        return [places[place] for place in range(len(self._holder.outputs))]

    def _take_input(self, link: Link, inputs: list[Atom], carried: object, entries: dict[int, list[Variable]],
                    step: int) -> Atom:
        if link.how == "carry":
            return next(carried)  # type: ignore[call-overload]
        return entries[link.place][step] if link.how == "entry" else inputs[link.place]

    def _stack(self, atoms: list[Atom], var: Variable) -> Atom:
        if atoms:
            return self._record(primitives.stack, atoms, {"axis": 0})[0]
        zero = Literal(0, var.aval.update(shape=()))
        return self._record(primitives.broadcast_to, [zero], {"shape": var.aval.shape})[0]

    def _record(self, primitive: object, inputs: list[Atom], params: dict[str, object]) -> list[Variable]:
        """Append an equation with the source line of the loop; return its outputs."""
        outputs = [*map(Variable, infer_types(primitive, [atom.aval for atom in inputs], params))]  # type: ignore[arg-type]
        source = self._holder.source
        self._equations.append(Equation(primitive, inputs, params, outputs,  # type: ignore[arg-type]
                                        None if source is None else source.derived()))
        return outputs

    def _inlined(self, region: Region, inputs: list[Atom], name: str) -> list[Atom]:
        """Add copies of the equations that a region holds; returns the atoms of its outputs."""
        program = self._done[id(region.program)]
        if len(self._equations) + len(program.equations) > self._choices.limit:
            raise ArgumentError(at_user_line(self._too_long(region)))
        holder = self._holder
        scope = join_scopes(holder.scope, name)

        def placed(source: Source | None) -> Source | None:
            if source is None:
                return None if holder.source is None else holder.source._replace(scope=scope)
            return source.inside(scope) if scope else source

        def step(equation: Equation, operands: list[Atom]) -> list[Variable]:
            avals = [var.aval for var in equation.outputs]
            given = [atom.aval for atom in operands]
            if given != [atom.aval for atom in equation.inputs]:
                avals = infer_types(equation.primitive, given, equation.params)
            outputs = [*map(Variable, avals)]
            for var, original in zip(outputs, equation.outputs, strict=True):
                var.origins = (Provenance(PRIMAL, program, original),)
            self._equations.append(Equation(equation.primitive, operands, equation.params, outputs,
                                            placed(equation.source)))
            return outputs

        return eval_program(program, inputs, step)

    def _too_long(self, region: Region) -> str:
        source = self._holder.source
        where = "" if source is None else f" at {source.place}"
        steps = f", {region.times} steps of {len(region.program.equations)} equations each" if region.times != 1 else ""
        return (f"inline: the program would have more than {self._choices.limit} equations; it has as many at "
                f"{self._holder.primitive}{where}{steps}. Choose fewer calls and loops by name or scope, or allow "
                "more: inline(program, limit=...)")
