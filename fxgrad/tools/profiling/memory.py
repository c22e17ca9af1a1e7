"""`memory_analysis`: the live bytes of a function over its steps before it runs, unfused and fused."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.errors import FxgradError
from fxgrad.extend import Program, Source, hide_frames, trace_program, transformation
from fxgrad.extend.analyses import Flow, LiveRanges, flow_of, gc_paused, liveness, residuals
from fxgrad.extend.sizes import require_numbers
from fxgrad.extend.tracing import static_positions
from fxgrad.text.scope import Scope
from fxgrad.text.short import operation_name
from fxgrad.text.sources import Sources
from fxgrad.text.text_writer import text_scopes
from fxgrad.tools.profiling.compiler_model import compiler_model
from fxgrad.tools.profiling.report import Holder, Memory, Peak, Point, Saved, View


def memory_analysis(fun: Callable[..., Any], *, static_argnums: int | Sequence[int] = ()) -> Callable[..., Memory]:
    """Return a function that reports the memory `fun` needs at its arguments: how much, when, and for which values.

    Nothing runs; only shapes and dtypes of the arguments matter: arrays, numbers, `ShapeDtypeStruct`s, containers of
    them. `fun` may be a transformed function, such as `grad(loss)` or `jit(step)`, or a `Program`. The result prints as
    tables; `peak`, `holders`, `timeline`, `temporary` and `saved` are its parts.

    Every figure is given twice. `unfused`: each operation allocates its result, elementwise ones overwrite a dead
    operand, and values are freed after their last use. This is what NumPy needs, except for the work space of some of
    its kernels. `fused`: operations are fused and ordered, and buffers shared, by a model of XLA
    (docs/appendix/memory-model.md). Within `shard_map` bytes are those of one device. A loop needs its carry and the
    peak of a step, a branch the largest of its programs.

    For a gradient, `saved` has the values of the forward pass that its backward pass reads; for another function the
    residuals that reverse mode would save, none if it has no derivative.

    Raises `ArgumentError` for arguments that are not arrays.

    >>> import fxgrad, numpy as np
    >>> def loss(w, x):
    ...     h = np.tanh(x @ w)
    ...     return np.sum(h * h)
    >>> found = fxgrad.memory_analysis(fxgrad.grad(loss))(np.ones((20, 30)), np.ones((50, 20)))
    >>> found.arguments, found.unfused.results, found.temporary, found.fused.temporary
    (12800, 4800, 24000, 12000)
    >>> [(each.name, each.nbytes) for each in found.saved if not each.is_argument]
    [('h', 12000), ('a', 12000)]
    >>> found.peak.point.part, found.holders[0].role
    ('forward', 'saved')
    """
    @transformation("memory_analysis", fun)
    @hide_frames
    def measured(*args: Any, **kwargs: Any) -> Memory:
        static = static_positions(static_argnums, len(args))
        program = fun if isinstance(fun, Program) else trace_program("memory_analysis", fun, args, kwargs, static)
        return memory_of_program(require_numbers("memory_analysis", program))
    return measured


def memory_of_program(program: Program) -> Memory:
    """Return the memory of a program; see `memory_analysis`."""
    with gc_paused():
        return _MemoryReport(program).memory()


class _Names:
    """Names of values and lines, found on demand."""

    def __init__(self, program: Program, flow: Flow) -> None:
        self.program, self.flow = program, flow
        self._scopes: dict[int, Scope] | None = None
        self._places: dict[tuple[int, int], str] = {}

    def of(self, value: int) -> str:
        """Return the name of a value, as the printed program has it."""
        if self._scopes is None:
            self._scopes = text_scopes(self.program)
        var, home = self.flow.variables[value], self.flow.homes[value]
        scope = self._scopes.get(id(home))
        if scope is None:
            scope = self._scopes[id(home)] = Scope(home, Sources(), {})
        scope.bind(var)
        return scope.names[var]

    def place(self, source: Source | None) -> str:
        """Return the user's file and line."""
        if source is None:
            return "?"
        key = id(source.code), source.instruction
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = source.place
        return found

    def operation_at(self, step: int) -> str:
        """Return an operation and its line."""
        return f"{operation_name(self.flow.equations[step])} {self.place(self.flow.sources[step])}"

    def made_at(self, value: int) -> str:
        """Return the line that computes a value; "" for an input."""
        maker = self.flow.made_by[value]
        return "" if maker < 0 else self.place(self.flow.sources[maker])


class _MemoryReport:
    """One report on a program; names and lines are looked up for the values shown."""

    def __init__(self, program: Program) -> None:
        self.program, self.flow = program, flow_of(program)
        self.names = _Names(program, self.flow)
        self._results = {self.flow.base[value] for value in self.flow.results}

    def memory(self) -> Memory:
        program, flow = self.program, self.flow
        signature = program.signature
        title = "a program" if signature is None else signature.title or signature.name
        constants = sum(flow.sizes[value] for value in flow.inputs[:program.captured])
        arguments = sum(flow.sizes[value] for value in flow.inputs[program.captured:])
        results = self._results
        size = sum(atom.aval.nbytes if value < 0 else flow.sizes[value]
                   for value, atom in zip(flow.outputs, program.outputs, strict=True))
        model = compiler_model(program)
        ranges = liveness(program)
        at_peak = sum(ranges.held.get(value, 0) for value in results
                      if ranges.begin.get(value, len(ranges.live)) <= ranges.peak_at)
        given = arguments + constants
        unfused = self._view("unfused", ranges, given, max(ranges.peak - at_peak, 0), size, None)
        fused = self._view("fused", model.live_ranges, given, model.temporary, size, model.values)
        saved = self._saved_list if "backward" in self.flow.parts else functools.partial(_residuals, program)
        return Memory(title, arguments, constants, unfused, fused, saved)

    # --- the two ways -------------------------------------------------------------------------------------

    def _view(self, way: str, ranges: LiveRanges, given: int, temporary: int, results: int,
              values: Callable[[], dict[int, int]] | None) -> View:
        """Return one view; `values` maps entries of `ranges` to values of the flow, if they differ."""
        def timeline() -> tuple[Point, ...]:
            return tuple([self._point(number, moment.step, live) for number, (moment, live) in enumerate(
                zip(ranges.moments, ranges.live, strict=True))])
        at = ranges.peak_at
        point = Point(0, "nothing", "", "", 0) if at < 0 else self._point(
            at, ranges.moments[at].step, ranges.peak)
        peak = Peak(point, given + ranges.peak, functools.partial(self._holders, ranges, point, values))
        return View(way, peak, temporary, results, timeline)

    def _holders(self, ranges: LiveRanges, point: Point, values: Callable[[], dict[int, int]] | None,
                 ) -> tuple[Holder, ...]:
        """Return the holders of memory at the peak; memory of no value of the program is work space."""
        at = ranges.peak_at
        if at < 0:
            return tuple(self._inputs_in_memory())
        held = [(value, ranges.held[value]) for value in ranges.alive_at(at)]
        inside = ranges.moments[at].inside
        if values is not None:
            known = values()
            inside += sum(size for node, size in held if node not in known)
            held = [(known[node], size) for node, size in held if node in known]
        holders = [*self._inputs_in_memory(), *(self._holder(value, size) for value, size in held)]
        if inside:
            holders.append(Holder(f"in {point.operation}", None, inside, point.line, "work space"))
        return tuple(sorted(holders, key=lambda each: -each.nbytes))

    def _point(self, number: int, step: int, live: int) -> Point:
        flow = self.flow
        return Point(number, operation_name(flow.equations[step]), self.names.place(flow.sources[step]),
                     flow.parts[step], live)

    def _inputs_in_memory(self) -> list[Holder]:
        flow, captured = self.flow, self.program.captured
        return [Holder(self.names.of(value), flow.avals[value], flow.sizes[value], "",
                       "constant" if number < captured else "argument")
                for number, value in enumerate(flow.inputs) if flow.sizes[value]]

    def _holder(self, value: int, size: int) -> Holder:
        flow = self.flow
        role = "result" if flow.base[value] in self._results else \
            "saved" if value in self._saved_values else "temporary"
        return Holder(self.names.of(value), flow.avals[value], size, self.names.made_at(value), role)

    # --- residuals ----------------------------------------------------------------------------------------

    @functools.cached_property
    def _saved_values(self) -> dict[int, list[int]]:
        """Map the values of the forward pass that the backward pass reads to the steps that read them."""
        flow, parts = self.flow, self.flow.parts
        found: dict[int, list[int]] = {}
        for step, part in enumerate(parts):
            if part == "backward":
                for value in flow.reads[step]:
                    base = flow.base[value]
                    maker = flow.made_by[base]
                    if maker < 0 or parts[maker] != "backward":
                        found.setdefault(base, []).append(step)
        return found

    def _saved_list(self) -> list[Saved]:
        flow = self.flow
        listed = []
        for value, steps in self._saved_values.items():
            maker = flow.made_by[value]
            made = "an argument" if maker < 0 else self.names.operation_at(maker)
            users = tuple(dict.fromkeys([self.names.operation_at(step) for step in steps]))
            listed.append(Saved(self.names.of(value), flow.avals[value], flow.sizes[value], made, users, maker < 0))
        return sorted(listed, key=lambda each: -each.nbytes)


def _residuals(program: Program) -> list[Saved]:
    """Return the residuals of reverse mode in all arguments of a program; none without a derivative."""
    try:
        found = residuals(program)
    except FxgradError:  # a callback, or a loop of unknown length, has no derivative
        return []
    if found is None:
        return []
    flow = Flow(found.forward)
    names = _Names(found.forward, flow)
    value_of = dict(zip(found.forward.outputs, flow.outputs, strict=True))
    saved = []
    for var, equations in found.kept:
        value = value_of[var]
        maker = flow.made_by[value]
        users = [f"{operation_name(equation)} {names.place(equation.source)}" for equation in equations]
        saved.append(Saved(names.of(value), var.aval, var.aval.nbytes,
                           "an argument" if maker < 0 else names.operation_at(maker),
                           tuple(dict.fromkeys(users)), maker < 0))
    return sorted(saved, key=lambda each: -each.nbytes)
