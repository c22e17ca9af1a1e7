"""The tape: it records operations on tracers, yields the interned program, and computes values on demand.

A *staging* tape records every operation bound while it is current; a *selective* tape only those that depend on
its inputs. Values from outside become captured inputs of the program.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.engine import config, user_lines
from fxgrad.engine.core import backends
from fxgrad.engine.core.arrays import Array, copy_of, make_weak, origin_of
from fxgrad.engine.core.avals import PYTHON_SCALARS, Aval, Literal, array_aval, is_frozen, is_unchanged
from fxgrad.engine.core.cache_keys import param_key
from fxgrad.engine.core.primitive import Primitive, infer_types, require_primitive
from fxgrad.engine.core.program import Atom, Equation, Program, Provenance, Source, Variable
from fxgrad.engine.core.program_properties import ordering_constraints
from fxgrad.engine.core.sizes import SymbolicDim
from fxgrad.engine.core.sources import NOWHERE, equation_source, rerecord_source, user_source, with_callers
from fxgrad.engine.hints import CHOICES, Hint
from fxgrad.engine.tracing import interning
from fxgrad.engine.tracing.provenance import RETURNED, enter_origins, enter_tags, note_call_names, note_partial
from fxgrad.engine.tracing.tracer import Tracer, leak_error
from fxgrad.engine.tracing.tracer import aval_of as aval_of  # noqa: PLC0414  (found here by all who bind)
from fxgrad.engine.tracing.varying import MeshAxes, insert_pvary

current: ContextVar[Tape | None] = ContextVar("current_tape", default=None)
"""The innermost tape of this thread or task."""


def bind(primitive: Primitive, *args: Any, **params: Any) -> list[Any]:
    """Apply `primitive`: record it on the innermost tape concerned, or compute it if there is none.

    `args` are arrays, numbers or tracers of the types that the primitive's abstract rule accepts. Returns the list of
    its outputs.

    >>> import numpy as np
    >>> from fxgrad.engine.ops.pointwise import add_p
    >>> bind(add_p, np.ones(2), np.ones(2))
    [array([2., 2.])]
    """
    innermost = current.get()
    tape = _find_tape(innermost, args)
    try:
        if tape is not innermost:
            tape = _tape_in_scope(primitive, params, innermost, tape)
        if tape is None:
            return backends.executor.evaluate(primitive, args, params)
        return tape.record(primitive, args, params)
    except AttributeError:
        require_primitive("bind", primitive)
        raise


def bind_equation(equation: Equation, args: Sequence[Any]) -> list[Any]:
    """Apply the primitive of `equation` to `args`; new equations keep the source of `equation`."""
    innermost = current.get()
    tape = _find_tape(innermost, args)
    if tape is not innermost:
        tape = _tape_in_scope(equation.primitive, equation.params, innermost, tape)
    if tape is None:
        return backends.executor.evaluate(equation.primitive, args, equation.params)
    return tape.record(equation.primitive, args, equation.params, rerecord_source(equation))


def innermost_for(values: Sequence[Any]) -> Tape | None:
    """Return the tape that would record an operation on `values`, or None if it would be computed."""
    return _find_tape(current.get(), values)


def _find_tape(tape: Tape | None, values: Sequence[Any]) -> Tape | None:
    """Return the first of `tape` and its parents that records everything, or owns one of `values`."""
    while tape is not None:
        if tape.staging:
            return tape
        for value in values:
            if type(value) is Tracer and value.tape is tape:
                return tape
        tape = tape.parent
    return None


def _tape_in_scope(primitive: Primitive, params: dict[str, Any], innermost: Tape | None,
                   outer: Tape | None) -> Tape | None:
    """Return the tape for an operation whose operands belong to `outer`, unless it is bound to an inner tape.

    A collective is valid only inside the tape that maps its axis. An effect goes to the innermost tape, so that it
    keeps its order among others; but not to a tape of tangents, which runs at another time.
    """
    effectful, axes = ordering_constraints(primitive, params)
    if effectful or axes:
        tape = innermost
        while tape is not None and tape is not outer:
            if not axes.isdisjoint(tape.axes) or (effectful and tape.takes_effects):
                return tape
            tape = tape.parent
    return outer


def axes_in_scope() -> Mapping[str, int]:
    """Return the sizes, by name, of the mapped axes around the code being traced."""
    tape = current.get()
    return NO_AXES if tape is None else tape.scope


on_new_program: list[Callable[[Tape, Program], None]] = []  # callbacks, called when a recording yields a new program
MAX_INTERNED_STEPS = 20_000
"""The maximal length of an interned recording: a longer one would evict everything else from the table."""
_aval = operator.attrgetter("aval")
NO_AXES: Mapping[str, int] = {}
InputNames = Callable[[], Sequence[str]]
"""Returns the names of a tape's inputs for messages; a function, since they are seldom needed."""


def integer_error(value: int) -> OverflowError:
    """Return the error for an integer that no program can hold."""
    return OverflowError(user_lines.at_user_line(
        f"the integer {value} does not fit int64, the dtype of Python's integers. Write it as a float, for example "
        "2.0**70"))


class Tape:
    """Records one call of one function; `values` are those of its inputs, if known.

    With `literals`, Python and NumPy scalars become literals of the program, otherwise captured inputs. `axes` maps the
    names of the function's own mapped axes to sizes; `scope` includes those around it.
    """

    takes_effects = True
    leak_cure = ""  # what else errors advise about values that leave the function by other ways than its result
    # Defaults that most calls never change are class attributes: a tape is made for every call of a transformed
    # function.
    closed, interned, literals, shown, _collects = False, True, False, False, False
    named_scope = ""  # the scopes that the function itself has entered
    refused: user_lines.Refused | None = None
    asked_for_values = False  # whether the function asked if values are known, and may do otherwise with them
    needed_values = False  # whether it needed them, and may have gone on without
    owns_inputs = False  # whether only the function refers to its inputs, so that it may overwrite them
    axes: Mapping[str, int] = NO_AXES
    scope: Mapping[str, int] = NO_AXES
    mesh: MeshAxes | None = None  # the mesh axes that the function, or one around it, is mapped over
    varies = False  # whether values may vary over the devices of a mesh
    parameters: InputNames | None = None  # the names of the inputs in the function, if messages use others
    node: interning.PrefixNode
    _environment: dict[Variable, Any] | None = None
    roots: dict[Any, Any] | None = None  # roots of recordings within a displayed program
    origins: dict[Variable, list[Provenance]] | None = None  # noted by `fxgrad/engine/tracing/provenance.py`
    tags: dict[Variable, str] | None = None  # likewise
    returned: list[tuple[Source, dict[Variable, str]]] | None = None  # likewise
    notes_callers = False  # whether its program is part of a displayed one
    num_concretizations = _done = _captured_done = 0

    def __init__(self, root: interning.Root, staging: bool, values: Sequence[Any] | None = None,
                 function: Any = "function", input_names: InputNames | None = None, interned: bool = True,
                 literals: bool = False, axes: Mapping[str, int] = NO_AXES, mesh: MeshAxes | None = None) -> None:
        parent = self.parent = current.get()
        if not interned:
            self.interned = False
        if literals:
            self.literals = True
        if axes:
            self.axes = self.scope = axes
        if parent is not None:
            self.scope = {**parent.scope, **axes} if axes else parent.scope
            mesh = mesh or parent.mesh
        if root.varies or mesh is not None:
            self.varies, self.mesh = True, mesh
        self.root, self.node = root, root
        self.staging, self.values = staging, values
        self.function, self.input_names = function, input_names
        self.nodes: list[interning.RecordedStep] = []
        self.captured: list[Any] = []
        self._identified: dict[int, tuple[Variable, Any, Any]] = {}

    def run(self, function: Callable[..., Any], flatten: Callable[[Any], Any] | None = None) -> Any:
        """Return the result of `function` on tracers of the inputs; record its operations.

        Outputs that are no tracers go through `flatten`, which may be user code too.
        """
        token = current.set(self)
        try:
            output = function(*[Tracer(self, var) for var in self.root.outputs])
            return output if flatten is None or type(output) is Tracer else flatten(output)
        except (TypeError, ValueError) as error:
            if not user_lines.masks_refusal(error, self.refused):
                raise
            assert self.refused is not None
            raise self.refused[0] from None
        finally:
            current.reset(token)
            self.closed = True
            if self._collects:
                gc.enable()

    def refuse(self, refusal: errors.FxgradError) -> errors.FxgradError:
        """Return the error `refusal` after storing it, since NumPy may raise another one in its place."""
        self.refused = refusal, user_lines.running_place()
        return refusal

    @property
    def name(self) -> str:
        """The name of the traced function in messages."""
        return user_lines.function_name(self.function)

    def record(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any],
               source: Source | None = None) -> list[Any]:
        """Record one operation and return the tracers of its outputs; by default find `source` on the stack."""
        atoms: list[Any] = [arg.variable if type(arg) is Tracer and arg.tape is self else self.atom(arg)
                            for arg in args]
        return [Tracer(self, var) for var in self.append(primitive, atoms, params, source)]

    def append(self, primitive: Primitive, atoms: list[Atom], params: dict[str, Any], source: Source | None,
               avals: Sequence[Aval] | None = None) -> list[Variable]:
        """Record an operation on variables of this tape and literals; `avals` are the outputs' types, if known."""
        if self.varies:
            atoms = insert_pvary(self.put, primitive, atoms, params, source, self.mesh)
        if self.interned:
            key: Any = (primitive, *atoms, *param_key(primitive, params)) if params else (primitive, *atoms)
            if source is not None and source.scope:
                key = key, source.scope  # of a program that is inlined here
            node = self.node.children.get(key)
            if node is None and (len(self.nodes) < MAX_INTERNED_STEPS or not self._exceeds_limit()):
                equation = self._equation(primitive, atoms, params, source, avals)
                node = interning.extend(self.node, key, equation, equation.outputs)
            if node is not None:
                self.node = node
                self.nodes.append(node)
                return node.outputs
        equation = self._equation(primitive, atoms, params, source, avals)
        self.nodes.append(interning.RecordedStep(equation, equation.outputs))
        return equation.outputs

    put = append  # for equations inserted between others

    def _equation(self, primitive: Primitive, atoms: list[Atom], params: dict[str, Any], source: Source | None,
                  avals: Sequence[Aval] | None) -> Equation:
        if avals is None:
            avals = infer_types(primitive, [*map(_aval, atoms)], params)
        source = source or equation_source.get()
        if source is None:
            source = with_callers(user_source()) if self.notes_callers else user_source()
        if source is NOWHERE:
            source = None
        elif self.named_scope and source is not None:
            source = source.inside(self.named_scope)
        return Equation(primitive, atoms, params, [*map(Variable, avals)], source)

    def _exceeds_limit(self) -> bool:
        """Return whether the recording is too long to be interned; from then on lookups stop too."""
        if len(self.nodes) < MAX_INTERNED_STEPS:
            return False
        self.interned, self.node = False, interning.fresh_root(())
        if gc.isenabled():  # the new objects survive, and scanning them repeatedly takes longer than making them
            gc.disable()
            self._collects = True
        return True

    @property
    def reached(self) -> interning.PrefixNode:
        """The place in the table of recordings: equal recordings from one root reach the same."""
        return self.node

    def is_plain(self, output: Any) -> bool:
        """Return whether the recording that ended with `output` consists of operations of interned programs alone."""
        return (type(output) is Tracer and output.tape is self and self.parent is None and self.interned
                and self._environment is None)

    def cache_get(self, key: Any) -> Any:
        """Return the value cached here under `key`, None if there is none."""
        return self.node.calls.get(key)

    def cache_put(self, key: Any, value: Any) -> None:
        """Cache `value`, which follows from the recording and `key`, for all recordings that reach this node."""
        interning.cache_put(self.node, key, value)

    def step(self, node: interning.PrefixNode) -> Tracer:
        """Advance to a child of the current node; return the tracer of its first output."""
        self.node = node
        self.nodes.append(node)
        return Tracer(self, node.outputs[0])

    def replay(self, call: interning.Call) -> Any:
        """Repeat the cached steps of a call; return its result."""
        nodes, captured, outputs = call
        if nodes:
            self.nodes += nodes
            self.node = nodes[-1]  # type: ignore[assignment]
            if captured:
                self.captured += captured
        elif type(outputs) is Variable:  # the function returned its argument; NumPy would have copied it
            return Tracer(self, outputs).__copy__()
        if type(outputs) is Variable:
            return Tracer(self, outputs)
        return type(outputs)([Tracer(self, var) for var in outputs])

    def atom(self, value: Any) -> Atom:
        """Return `value` as an input of an equation: a variable of this tape, a literal, or a captured input."""
        if type(value) is Tracer:
            if value.tape is self:
                return value.variable
            if value.tape.closed:
                raise leak_error(value)
        elif type(value) is np.ndarray or type(value) is Array:
            return self._array(value)
        elif type(value) is Literal:
            return value
        elif type(value) in PYTHON_SCALARS or isinstance(value, np.generic):
            # Scalars are captured by position: their identity carries no information.
            aval = aval_of(value)
            # A copy, since scalars of structured dtypes are mutable.
            try:
                scalar = value if type(value) is aval.dtype.type and aval.dtype.names is None else np.array(
                    value, aval.dtype)[()]
            except OverflowError:
                raise integer_error(value) from None
            literal = self.literals and aval.dtype.names is None  # random keys have no text form
            return Literal(scalar, aval) if literal else self._capture(make_weak(scalar) if aval.weak else scalar, aval)
        return self._array(value)

    def capture(self, array: Any) -> Tracer:
        """Return the tracer of an array from outside, a captured input of the program."""
        return Tracer(self, self._array(array))

    def _array(self, value: Any) -> Variable:
        """Return the variable of a captured array, or of a tracer of another tape: one for each, by identity."""
        value = origin_of(value)
        entry = self._identified.get(id(value))
        if entry is not None and (entry[1] is value or is_unchanged(entry[1], value)):
            return entry[0]
        captured, aval = value, None
        if isinstance(value, np.ndarray):  # of any subclass: memory-mapped files change too
            aval = array_aval(value)
            if value.flags.writeable or not is_frozen(value):
                captured = copy_of(value)  # the function may change it before the program runs, or before its next use
        elif type(value) is Tracer:
            note_partial(self, value)
        var = self._capture(captured, aval or aval_of(value))
        self._identified[id(value)] = var, captured, value  # keyed by id, so keep the object alive
        return var

    def identified(self) -> Iterator[tuple[Any, Any]]:
        """Yield each captured array, a copy if it could change, and the array that it was captured from."""
        return ((kept, value) for _, kept, value in self._identified.values())

    def captures(self) -> Iterator[tuple[Variable, Any]]:
        """Yield the variable of each captured array or tracer, and what it was captured from."""
        return ((var, value) for var, _, value in self._identified.values())

    def count_references(self, value: Any) -> int:
        """Return how many references to a value this recording alone holds: since it captured it, or a view of it."""
        entry, values = self._identified.get(id(value)), self._environment or {}
        # A captured array is in `captured` too, and among the values of a prefix that was run.
        count = 0 if entry is None else 2 * (entry[1] is value) + (entry[2] is value) + (values.get(entry[0]) is value)
        return count + sum(
            sys.getrefcount(each[2]) == _HELD_ONCE + 2 * (each[1] is each[2]) + (values.get(each[0]) is each[2])
            and _is_view(each[2], value) for each in self._identified.values())

    def _capture(self, value: Any, aval: Aval) -> Variable:
        if aval.vma:
            self.varies = True
        self.captured.append(value)
        if not self.interned:
            return self._capture_var(aval)
        node = self.node.children.get(aval)
        if node is None:
            if self._exceeds_limit():
                return self._capture_var(aval)
            node = interning.extend(self.node, aval, None, [Variable(aval)])
        self.node = node
        self.nodes.append(node)
        return node.outputs[0]

    def _capture_var(self, aval: Aval) -> Variable:
        self.nodes.append(interning.RecordedStep(None, [Variable(aval)]))
        return self.nodes[-1].outputs[0]

    def finish(self, outputs: Sequence[Any]) -> Program:
        """End the recording; return the interned program, whose captured inputs are `self.captured`."""
        if self.origins:
            enter_origins(self.origins, [self.root, *self.nodes])
        atoms = tuple([output.variable if type(output) is Tracer and output.tape is self else self.atom(output)
                       for output in outputs])
        program = self.node.programs.get(atoms)
        if program is None:
            captured = [node.outputs[0] for node in self.nodes if node.equation is None]
            program = Program([*captured, *self.root.outputs], [*self.equations()], atoms, len(captured))
            if config.check_level:
                program.check()
            program = self.node.programs.setdefault(atoms, program)
            for told in on_new_program:
                told(self, program)
        if self.tags:
            enter_tags(program, self.tags)
        if self.returned:
            RETURNED.put(program, self.returned)
        if self.parent is not None:
            note_call_names(self, program)
        return program

    def program_so_far(self, outputs: Sequence[Tracer]) -> Program:
        """Return the program of the recording up to here, which computes `outputs`, tracers of this tape."""
        captured = [node.outputs[0] for node in self.nodes if node.equation is None]
        return Program([*captured, *self.root.outputs], [*self.equations()], [output.variable for output in outputs],
                       len(captured))

    def equations(self, mark: tuple[Any, ...] = (0,)) -> Iterator[Equation]:
        """Yield what was recorded, in order: all, or what came since `mark`."""
        return (node.equation for node in self.nodes[mark[0]:] if node.equation is not None)

    def mark(self) -> tuple[Any, ...]:
        """Return the place that the recording has reached, for `rewind`."""
        return len(self.nodes), self.node, len(self.captured), self.interned, self._done, self._captured_done

    def rewind(self, mark: tuple[Any, ...]) -> None:
        """Forget what was recorded since `mark`; its tracers must not be used any more."""
        length, node, num_captured, self.interned, self._done, self._captured_done = mark
        forgotten = {var for step in self.nodes[length:] for var in step.outputs}
        del self.nodes[length:], self.captured[num_captured:]
        self.node = node
        self._identified = {key: entry for key, entry in self._identified.items() if entry[0] not in forgotten}
        if self._environment is not None:  # it would keep their values
            self._environment = {var: value for var, value in self._environment.items() if var not in forgotten}

    # --- values of tracers ------------------------------------------------------------------------------

    def note_question(self, needed: bool = False) -> None:
        """Note, here and in the tapes around, that the function asked if values are known, or `needed` them."""
        tape: Tape | None = self
        while tape is not None:
            tape.asked_for_values = True
            tape.needed_values = tape.needed_values or needed
            tape = tape.parent

    def force(self, tracer: Tracer, use: str | Callable[[], Hint]) -> Any:
        """Return the concrete value of `tracer`; raise `ConcretizationError` if it has none.

        The message begins with the `use`, or is that of a hint, which is looked for only then.
        """
        if self.closed:
            raise leak_error(tracer)
        if self.values is None:
            self.note_question(needed=True)
            raise self.refuse(self._unknown(tracer, use))
        self.num_concretizations += 1
        value = self.run_prefix(self.values)[tracer.variable]
        return value.tape.force(value, use) if type(value) is Tracer else np.asarray(value)

    def run_prefix(self, values: Sequence[Any]) -> dict[Variable, Any]:
        """Evaluate, in the enclosing context, the equations recorded since the last call, on these inputs."""
        if self._environment is None:
            self._environment = dict(zip(self.root.outputs, values, strict=True))
        environment = self._environment
        if self._done == len(self.nodes):
            return environment
        segment = interning.segment(self.nodes, self._done)
        environment.update(zip(segment.captured, self.captured[self._captured_done:], strict=True))
        token = current.set(self.parent)
        try:
            outputs = backends.executor.compute(segment.program, [environment[var] for var in segment.program.inputs])
        finally:
            current.reset(token)
        environment.update(zip(segment.program.outputs, outputs, strict=True))  # type: ignore[arg-type]
        self._done, self._captured_done = len(self.nodes), len(self.captured)
        return environment

    def forced(self) -> tuple[int, Sequence[Any]]:
        """Return the number of first equations that forcing has computed, and the values of their outputs."""
        if self._environment is None:
            return 0, ()
        done = [node for node in self.nodes[:self._done] if node.equation is not None]
        return len(done), [self._environment[var] for node in done for var in node.outputs]

    def concrete_value(self, tracer: Tracer) -> Any:
        """Return the concrete value for display, or None if there is none."""
        if self.closed or self.values is None:
            return None
        value = self.run_prefix(self.values)[tracer.variable]
        return value.tape.concrete_value(value) if type(value) is Tracer else value

    def _unknown(self, tracer: Tracer, use: str | Callable[[], Hint]) -> errors.ConcretizationError:
        hint = Hint(use, CHOICES) if isinstance(use, str) else use()
        names = ", ".join(self._ancestors(tracer.variable)) or "no argument"
        return errors.ConcretizationError(user_lines.at_user_line(
            f"{hint.done} needs the value of a traced array ({tracer.aval}) in {self.name}, which is traced without "
            f"values. It depends on: {names}. {hint.instead}"))

    def _ancestors(self, var: Variable) -> list[str]:
        """Return the names of the inputs, and of the sizes, that `var` depends on."""
        wanted: set[Any] = {var}
        for equation in reversed([*self.equations()]):
            if not wanted.isdisjoint(equation.outputs):
                wanted.update(equation.inputs, (size for size in equation.params.values() if type(size) is SymbolicDim))
        names = self.input_names() if self.input_names else [f"input {i}" for i in range(len(self.root.outputs))]
        sizes = sorted(f"the size {size}" for size in wanted if type(size) is SymbolicDim)
        return [name for name, root in zip(names, self.root.outputs, strict=True) if root in wanted] + sizes


_probe = (object(),)
_HELD_ONCE = sys.getrefcount(_probe[0])
"""The number of references to an object that only a tuple has."""


def _is_view(array: Any, value: Any) -> bool:
    """Return whether an array is a view of `value`, directly or through views that nothing else refers to."""
    bases = [getattr(array, "viewed" if type(array) is Tracer else "base", None)]
    return bases[0] is value or (bases[0] is not None and sys.getrefcount(bases[0]) == _HELD_ONCE + 1 and _is_view(
        bases[0], value))


def read_atom(environment: dict[Variable, Any], atom: Atom) -> Any:
    """Return the value of an atom: that of the variable, or the literal itself."""
    return atom if type(atom) is Literal else environment[atom]  # type: ignore[index]
