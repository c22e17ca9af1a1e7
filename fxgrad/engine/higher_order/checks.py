"""`check`: an operation that raises unless a condition holds, and the rewriting of a program's checks to one flag.

Un-jitted the operation raises at once. In a compiled program it calls Python, only if the condition is false. The
entries of a batch are known to it. `gather_checks` returns a program without such operations that has one more output:
whether all of them held.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval, Literal, to_numpy
from fxgrad.engine.core.cache_keys import StructuralKey, cache_key, tree_key
from fxgrad.engine.core.interpreter import interpret
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.program import Equation, Program, Variable
from fxgrad.engine.core.program_properties import is_effectful, program_property, used_axes
from fxgrad.engine.core.regions import rewrite_programs
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.executors import callbacks
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors.xla import is_jax, is_jax_tracer, register_runner
from fxgrad.engine.higher_order.branch import bind_branches, cond_p
from fxgrad.engine.higher_order.call import jit_call_p, named_call_p
from fxgrad.engine.higher_order.checkpoint import checkpoint_p, recompute_p
from fxgrad.engine.higher_order.custom import custom_jvp_p, custom_vjp_p, custom_vjp_tangent_p
from fxgrad.engine.higher_order.groups import split_by_sizes
from fxgrad.engine.higher_order.loop import bind_for, for_p
from fxgrad.engine.higher_order.masking import expand_mask, register_flags, remedies
from fxgrad.engine.higher_order.safe_call import safe_call_p
from fxgrad.engine.higher_order.scan import Loop, scan_p
from fxgrad.engine.higher_order.solve import linear_solve_p, root_operands, root_p, solve_operands
from fxgrad.engine.higher_order.sweep import bind_sweep, sweep_p
from fxgrad.engine.higher_order.while_loop import bind_while, while_p
from fxgrad.engine.ops.arithmetic import stop_gradient
from fxgrad.engine.ops.comparison import and_, not_, or_
from fxgrad.engine.ops.reductions import reduce_and
from fxgrad.engine.ops.select import select_n
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import is_tracing
from fxgrad.engine.transforms.batch import Batched, batched_axis, batched_program, live_lanes, put_axis, takes_mask
from fxgrad.errors import CheckError, DTypeError, ProgramError, UnsupportedError

HOLDS = Aval((), dtypes.bool_)
"""The type of the flag: true as long as every check held."""
Lanes = tuple[tuple[int, tuple[bool, ...], str | None], ...]
"""For each `vmap`, the outermost first: its size, which operands have its axis, in front, and the name of the axis."""
device_axes: ContextVar[tuple[str, ...]] = ContextVar("device_axes", default=())
"""The mesh axes whose devices NumPy computes as the entries of a batch."""


class Report(Protocol):
    """Raises the error of a failed check; hashable, and equal to an equivalent one."""

    def fail(self, condition: Any, values: Sequence[Any]) -> None:
        """Raise `CheckError` for NumPy values of one entry of the batches; return if nothing is wrong after all."""
        ...

    def require_operands(self, count: int) -> None:
        """Raise `ProgramError` unless the report, which may be from a file, is one of so many values."""
        ...


def require_fields(report: Report, holds: bool) -> None:
    """Raise `ProgramError` unless the fields of a report are what they should be, as `holds` says."""
    if not holds:
        raise ProgramError(f"check: the fields of the report {type(report).__name__} do not fit the operation")


def _abstract(condition: Aval, *values: Aval, report: Report, lanes: Lanes) -> list[Aval]:
    if condition.dtype != dtypes.bool_:
        raise DTypeError(f"check: the condition must be of dtype bool, got {condition}")
    report.require_operands(len(values))
    return []


def _entries(operands: Sequence[Any], lanes: Lanes, entry: tuple[int, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the index of each entry whose condition is false, and its operands."""
    if np.all(operands[0]):
        return
    if not lanes:
        yield entry, operands
        return
    (size, marks, _), *inner = lanes
    for index in range(size):
        own = [operand[index] if marked else operand for operand, marked in zip(operands, marks, strict=True)]
        yield from _entries(own, tuple(inner), (*entry, index))


def _run(*operands: Any, report: Report, lanes: Lanes) -> list[Any]:
    for entry, (condition, *values) in _entries(operands, lanes):
        try:
            report.fail(condition, values)
        except CheckError as error:
            names, devices = [name for _, _, name in lanes], device_axes.get()
            own = [index for name, index in zip(names, entry, strict=True) if name not in devices]
            if own:
                error.add_context(f"in entry {own[0] if len(own) == 1 else own} of the batch")
            at = {name: index for name, index in zip(names, entry, strict=True) if name in devices}
            if at:
                places = ", ".join(f"{name}={at[name]}" for name in devices if name in at)
                error.add_context(f"on the device at {places} of the mesh")
            raise
    return []


def _emit(lax: Any, condition: Any, *values: Any, report: Report, lanes: Lanes) -> list[Any]:
    def host(*operands: Any) -> list[Any]:
        return _run(*operands, report=report, lanes=lanes)

    def call() -> tuple[()]:
        callbacks.emit_debug_callback(host, [condition, *values], ordered=False)
        return ()

    holds = lax.reduce(condition, np.True_, lax.bitwise_and, tuple(range(condition.ndim)))
    if not is_jax_tracer(holds):  # un-jitted, on jax's arrays: the error is raised here
        return [] if np.asarray(holds) else host(*map(to_numpy, (condition, *values)))
    lax.cond(holds, lambda: (), call)
    return []


def _batch(size: int, values: list[Any], axes: list[int | None], *, report: Report, lanes: Lanes,
           ) -> tuple[list[Any], list[int]]:
    marks, live = [axis is not None for axis in axes], live_lanes.get()
    marks[0] |= live is not None
    condition, *given = [put_axis(Batched(value, axis), size, 0) if marked else value
                         for value, axis, marked in zip(values, axes, marks, strict=True)]
    if live is not None:  # dead lanes repeat a live one, and their checks hold
        condition = or_(condition, expand_mask(not_(live), len(aval_of(condition).shape)))
    bind(check_p, condition, *given, report=report, lanes=((size, tuple(marks), batched_axis.get()), *lanes))
    return [], []


check_p = register(Primitive(
    name="check", abstract=_abstract, numpy=_run, xla=_emit, jvp=NO_TANGENT, transpose=NOT_LINEAR, batch=_batch,
    cost=lambda *avals, **_: Cost(avals[0].size, total_bytes(avals, ())), effectful=True))
"""(condition, values of the message) -> (); raises by its report unless every element of the condition is true."""
takes_mask.enter(True, check_p, custom_jvp_p, custom_vjp_p, custom_vjp_tangent_p)
remedies.enter("Write fxgrad.vmap(fxgrad.checked(f)), where f is the function of one entry", check_p)


def mark_untaken(error: Exception) -> None:
    """Note that tracing raised the error of one side of a traced condition, whose other side raises another one."""
    vars(error)[_MAY_BE_UNTAKEN] = True


def raise_taken(error: Exception, call: Callable[[], Any]) -> None:
    """Raise what `call` raises on known values if tracing raised an error that may be of a side that they do not take.

    Returns for other errors, in traced functions, and if the call raises nothing.
    """
    if _MAY_BE_UNTAKEN in vars(error) and not is_tracing():
        try:
            call()
        except Exception as taken:
            raise taken from None


_MAY_BE_UNTAKEN = "fxgrad_may_be_untaken"


@program_property
def has_checks(program: Program) -> bool:
    """Return whether `program`, or a program nested in it, has a check."""
    return any(map(is_check, program.equations))


def is_check(equation: Equation) -> bool:
    """Return whether an equation is a check, or has one in a nested program."""
    return equation.primitive is check_p or any(map(has_checks, equation.programs))


# --- one flag for all checks ---------------------------------------------------------------------------------------


def gather_checks(program: Program, is_final: bool = False, follows: bool = False) -> Program:
    """Return `program` with one more output, whether all its checks held, and without these.

    A check that fails ends the loops after it: with values that it refuses they may have no end. A program that
    `follows` checks has one more input, whether these held, and the output is about them too.

    Checks in operations that have no rule for it stay there. Those of functions with derivatives of their own, and of
    solvers, do so too, unless the program `is_final`: it is run, and not differentiated.
    """
    def build(*values: Any) -> tuple[list[Any], None]:
        *given, held = values if follows else (*values, None)

        def step(equation: Equation, inputs: list[Any]) -> Sequence[Any]:
            nonlocal held
            if equation.primitive is check_p:
                held = _both(held, _all(inputs[0]))
                return []
            rule = gather_rules.of(equation.primitive)
            before = held if held is not None and not aval_of(held).vma and _has_loop(equation) else None
            if rule is None or not (before is not None or any(map(has_checks, equation.programs))) or (
                    equation.primitive in _WITH_DERIVATIVES and not is_final):
                return bind(equation.primitive, *inputs, **equation.params)
            *outputs, flag = rule(inputs, equation.params, is_final, before)
            held = flag if before is not None else _both(held, flag)
            return outputs

        outputs = interpret(_with_loops_late(program), given, step)
        return [*outputs, Literal(True, HOLDS) if held is None else held], None

    avals = [*program.in_avals, HOLDS] if follows else program.in_avals
    return derive(program, ("gathered checks", is_final, follows), build, avals).program


def _with_loops_late(program: Program) -> Program:
    """Return `program` with its loops after the checks that do not need them; derivatives compute known loops first."""
    order: list[Equation] = []
    late: list[Equation] = []
    given_late: set[Variable] = set()
    for equation in program.equations:
        is_late = not given_late.isdisjoint(each for each in equation.inputs if isinstance(each, Variable))
        if is_effectful(equation.primitive, equation.params):
            if is_late:
                order += late
                late, given_late = [], set()
            order.append(equation)
        elif is_late or _has_loop(equation):
            late.append(equation)
            given_late.update(equation.outputs)
        else:
            order.append(equation)
    return program.replace(equations=[*order, *late])


def _both(one: Any, other: Any) -> Any:
    return other if one is None else and_(one, other)


@program_property
def _has_loops(program: Program) -> bool:
    """Return whether a program has a loop, at any depth, whose number of turns is not known."""
    return any(map(_has_loop, program.equations))


def _has_loop(equation: Equation) -> bool:
    is_loop = equation.primitive is while_p or (equation.primitive is for_p and not isinstance(
        equation.inputs[0], Literal))
    return is_loop or any(map(_has_loops, equation.programs))


def _without_checks(program: Program) -> Program:
    """Return `program` without checks, at any depth."""
    def build(*values: Any) -> tuple[list[Any], None]:
        def step(equation: Equation, inputs: list[Any]) -> Sequence[Any]:
            if equation.primitive is check_p:
                return []
            params = rewrite_programs(equation, lambda region: _without_checks(region.program)).params
            return bind(equation.primitive, *inputs, **params)
        return interpret(program, values, step), None

    return derive(program, "without checks", build, program.in_avals).program if has_checks(program) else program


def _all(condition: Any) -> Any:
    return reduce_and(condition, tuple(range(aval_of(condition).ndim))) if aval_of(condition).ndim else condition


GatherRule = Callable[[list[Any], dict[str, Any], bool, Any], "list[Any]"]
"""(operands, parameters, `is_final`, `before`) -> the outputs, and whether the checks inside held.

`before` tells whether those before the operation held, which the last output is about too; None without any.
"""

gather_rules: Analysis[GatherRule | None] = Analysis(
    "gather rules", "How an operation that holds programs returns whether the checks in these held.",
    missing="conservative", default=None)


def _following(before: Any) -> list[Any]:
    """Return the operand that a program gets if checks are before it."""
    return [] if before is None else [before]


def _gather_call(primitive: Primitive) -> None:
    def rule(inputs: list[Any], params: dict[str, Any], is_final: bool, before: Any) -> list[Any]:
        program = gather_checks(params["program"], is_final, before is not None)
        return bind(primitive, *inputs, *_following(before), **{**params, "program": program})
    gather_rules.enter(rule, primitive)


for _primitive in (named_call_p, jit_call_p, checkpoint_p, recompute_p, safe_call_p):
    _gather_call(_primitive)
_WITH_DERIVATIVES = frozenset({custom_jvp_p, custom_vjp_p, linear_solve_p, root_p})


@gather_rules.register(linear_solve_p)
def _gather_solve(inputs: list[Any], params: dict[str, Any], is_final: bool, before: Any) -> list[Any]:
    program = gather_checks(params["programs"][1], is_final, before is not None)
    return apply_equations(program, [*solve_operands(inputs, **params), *_following(before)])


@gather_rules.register(root_p)
def _gather_root(inputs: list[Any], params: dict[str, Any], is_final: bool, before: Any) -> list[Any]:
    program = gather_checks(params["programs"][0], is_final, before is not None)
    return apply_equations(program, [*root_operands(inputs, **params), *_following(before)])


@gather_rules.register(custom_jvp_p, custom_vjp_p)
def _gather_custom(inputs: list[Any], params: dict[str, Any], is_final: bool, before: Any) -> list[Any]:
    program = gather_checks(params["program"], is_final, before is not None)
    return bind(named_call_p, *inputs, *_following(before), program=program, name=params["rule"].name)


@gather_rules.register(cond_p)
def _gather_cond(inputs: list[Any], params: dict[str, Any], is_final: bool, before: Any) -> list[Any]:
    branches = [gather_checks(branch, is_final, before is not None) for branch in params["branches"]]
    return bind_branches(inputs[0], branches, [*inputs[1:], *_following(before)])


def _turn(program: Program, is_final: bool, values: Sequence[Any], held: Any) -> list[Any]:
    """Return the outputs of a turn, and whether the checks in it and before it held: a loop of known length goes on."""
    if _has_loops(program):
        return apply_equations(gather_checks(program, is_final, True), [*values, held])
    *outputs, flag = apply_equations(gather_checks(program, is_final), values)
    return [*outputs, and_(held, flag)]


def _begin(before: Any) -> Any:
    return Literal(True, HOLDS) if before is None else before


@gather_rules.register(scan_p)
def _gather_scan(inputs: list[Any], params: dict[str, Any], is_final: bool, before: Any) -> list[Any]:
    program, count = params["program"], params["num_carry"]
    loop = Loop(**{name: value for name, value in params.items() if name != "program"})
    at = loop.num_consts + count

    def build(*values: Any) -> tuple[list[Any], None]:
        *outputs, flag = _turn(program, is_final, [*values[:at], *values[at + 1:]], values[at])
        return [*outputs[:count], flag, *outputs[count:]], None

    avals = program.in_avals
    body = derive(program, ("flag carried", at, is_final), build, [*avals[:at], HOLDS, *avals[at:]]).program
    consts, carry, xs = loop.takes(program).split(inputs)
    outputs = loop.again(body, consts, [*carry, _begin(before)], xs)
    return [*outputs[:count], *outputs[count + 1:], outputs[count]]


@gather_rules.register(for_p)
def _gather_for(inputs: list[Any], params: dict[str, Any], is_final: bool, before: Any) -> list[Any]:
    program, num_consts = params["program"], params["num_consts"]
    count, *values = inputs
    if before is not None and not isinstance(count, Literal):
        count = select_n(before, Literal(0, aval_of(count)), count)

    def build(*values: Any) -> tuple[list[Any], None]:
        return _turn(program, is_final, values[:-1], values[-1]), None

    body = derive(program, ("flag carried", is_final), build, [*program.in_avals, HOLDS]).program
    return bind_for(count, body, values[:num_consts], [*values[num_consts:], _begin(before)])


@gather_rules.register(while_p)
def _gather_while(inputs: list[Any], params: dict[str, Any], is_final: bool, before: Any) -> list[Any]:
    condition, body = gather_checks(params["condition"], is_final), gather_checks(params["body"], is_final)
    num_asked = params["num_condition_consts"]
    num_fixed = num_asked + params["num_body_consts"]
    asked, given, carry = inputs[:num_asked], inputs[num_asked:num_fixed], inputs[num_fixed:]

    def test(*values: Any) -> tuple[list[Any], None]:  # a failed check ends the loop, which may have no other end
        return [and_(apply_equations(condition, values[:-1])[0], values[-1])], None

    def step(*values: Any) -> tuple[list[Any], None]:  # constants of the condition, of the body, carry, flag
        *before, flag = values
        state = before[num_fixed:]
        held = apply_equations(condition, [*before[:num_asked], *state])[1]
        *outputs, held_too = apply_equations(body, [*before[num_asked:num_fixed], *state])
        return [*outputs, and_(flag, and_(held, held_too))], None

    avals = [*params["condition"].in_avals[:num_asked], *params["body"].in_avals, HOLDS]
    going = derive(params["condition"], ("flag asked", is_final), test,
                   [*params["condition"].in_avals, HOLDS]).program
    taken = derive(params["body"], ("flag carried", num_asked, params["condition"], is_final), step, avals).program
    *outputs, flag = bind_while(going, asked, taken, [*asked, *given], [*carry, _begin(before)])
    last = apply_equations(condition, [*asked, *outputs])[1]  # the test that ended the loop
    return [*outputs, and_(flag, last)]


@gather_rules.register(sweep_p)
def _gather_sweep(inputs: list[Any], params: dict[str, Any], is_final: bool, before: Any) -> list[Any]:
    step, back, num_step_consts, num_back_consts = (
        params[name] for name in ("step", "back", "num_step_consts", "num_back_consts"))
    count, *values = inputs
    step_consts, back_consts, state, carry = split_by_sizes(values, (
        num_step_consts, num_back_consts, len(step.outputs), len(back.outputs)))

    def ahead(*values: Any) -> tuple[list[Any], None]:  # constants, state, flag
        return _turn(step, is_final, values[:-1], values[-1]), None

    def backwards(*values: Any) -> tuple[list[Any], None]:  # constants, state, its flag, carry, flag
        at = num_back_consts + len(state)
        return _turn(back, is_final, [*values[:at], *values[at + 1:-1]], and_(values[-1], values[at])), None

    at, avals = num_back_consts + len(state), back.in_avals
    held = _begin(before)
    stepping = derive(step, ("flag carried", is_final), ahead, [*step.in_avals, HOLDS]).program
    going_back = derive(back, ("flag carried", at, is_final), backwards,
                        [*avals[:at], HOLDS, *avals[at:], HOLDS]).program
    return bind_sweep(count, stepping, step_consts, going_back, back_consts, [*state, held], [*carry, held])


# --- batches --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Diagnosis(StructuralKey):
    """The report of checks that one flag stands for: NumPy runs the program once more, and stops at the first."""

    program: Program

    def require_operands(self, count: int) -> None:
        """Raise `ProgramError` unless the program has so many inputs."""
        require_fields(self, isinstance(self.program, Program) and len(self.program.inputs) == count)

    def fail(self, condition: Any, values: Sequence[Any]) -> None:
        """Raise the error of the first check that fails, if there is one."""
        with np.errstate(all="ignore"):
            numpy_executor.call(self.program, values)


declare_parameter_class(Diagnosis)


def _batch_by_flag(primitive: Primitive, size: int, values: Sequence[Any], axes: Sequence[int | None],
                   params: dict[str, Any]) -> tuple[list[Any], list[int | None]] | None:
    """Batch an operation with one more output, whether its checks held in the lane, which is checked after it.

    Checks of functions with derivatives of their own, which keep their rules, are computed apart from the results.
    """
    programs = [each for given in params.values() for each in (given if isinstance(given, tuple) else [given])
                if isinstance(each, Program)]
    rule = gather_rules.of(primitive)
    if rule is None or not any(map(has_checks, programs)) or any(
            batched_axis.get() in used_axes(each) for each in programs):  # a lane alone has no collectives
        return None

    def alone(*given: Any) -> tuple[list[Any], None]:
        return bind(primitive, *given, **params), None

    def with_flag(*given: Any) -> tuple[list[Any], None]:
        return rule([*given], params, False, None), None

    def with_flag_apart(*given: Any) -> tuple[list[Any], None]:
        outputs = apply_equations(_without_checks(whole), given)
        return [*outputs, rule([*map(stop_gradient, given)], params, True, None)[-1]], None

    def derived_by(build: Callable[..., tuple[list[Any], None]]) -> Program:
        avals = [aval_of(value).without_axis(axis) for value, axis in zip(values, axes, strict=True)]
        return derive(programs[0], (build.__name__, primitive, *params.items()), build, avals).program

    whole, flagged = derived_by(alone), derived_by(with_flag)
    if has_checks(flagged):
        flagged = derived_by(with_flag_apart)
    if has_checks(flagged):
        return None
    derived = batched_program(flagged, size, tuple(axes), (None,) * len(flagged.outputs))
    *outputs, flag = derived(values)
    *marks, differs = derived.extra
    if not isinstance(flag, Literal):
        _batch(size, [flag, *values], [0 if differs else None, *axes], report=Diagnosis(whole), lanes=())
    return outputs, [0 if mark else None for mark in marks]


register_flags(_batch_by_flag)


# --- compiled units -------------------------------------------------------------------------------------------------


def _run_with_flag(run: Callable[[Program, Sequence[Any]], list[Any]], program: Program, inputs: Sequence[Any],
                   ) -> list[Any]:
    """Run a compiled program on concrete values, by `run`: with one flag, if it has checks."""
    if not has_checks(program) or any(map(is_jax_tracer, inputs)):
        return run(program, inputs)
    *outputs, held = run(gather_checks(program, is_final=True), inputs)
    if np.asarray(held):
        return outputs
    # NumPy stops at the first check that fails, or cannot run what XLA can, such as branches that devices differ in.
    with np.errstate(all="ignore"), contextlib.suppress(UnsupportedError):
        numpy_executor.call(program, [to_numpy(value) if is_jax(value) else value for value in inputs])
    return run(program, inputs)


register_runner(_run_with_flag)


# --- reports -------------------------------------------------------------------------------------------------------


def first_false(condition: Any) -> tuple[int, ...]:
    """Return the index of the first false element."""
    return tuple(map(int, np.argwhere(~np.asarray(condition))[0])) if np.ndim(condition) else ()


def check_error(text: str, line: str) -> CheckError:
    """Return the error of a check that failed at the user's `line`."""
    return CheckError(text + (f"\n  at {line}" if line else ""))


@dataclass(frozen=True, eq=False)
class Message(StructuralKey):
    """The report of the user's check: the text, the line, and how the values of the operation make its arguments."""

    text: str
    line: str
    structure: tree.TreeDef
    constants: callbacks.Constants

    def require_operands(self, count: int) -> None:
        """Raise `ProgramError` unless the report is one of so many values."""
        require_fields(
            self, type(self.text) is str and type(self.line) is str and isinstance(self.structure, tree.TreeDef)
            and type(self.constants) is tuple and all(
                type(each) is tuple and len(each) == 2 and type(each[0]) is int for each in self.constants)
            and self.structure.num_leaves == count + len(self.constants))

    def fail(self, condition: Any, values: Sequence[Any]) -> None:
        """Raise the error with the user's text."""
        args, kwargs = callbacks.rebuild_arguments(self.structure, self.constants, values)
        error = self.error_class()(check_error(self.text.format(*args, **kwargs), self.line).args[0])
        place = first_false(condition)
        if place:
            error.add_context(f"at {list(place)} of the condition")
        raise error

    def error_class(self) -> type[CheckError]:
        """Return the class of the error."""
        return CheckError

    def _key(self) -> Any:
        return self.text, self.line, tree_key(self.structure), cache_key(self.constants)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


declare_parameter_class(Message)


@dataclass(frozen=True, eq=False)
class Raised(Message):
    """The report of a check in the place of a `raise`: the error is of the class of the exception, too.

    Files hold the `name` of the nearest class of Python's own, since programs that they give know no other.
    """

    name: str

    @classmethod
    def of(cls, kind: type[BaseException], message: Message) -> Raised:
        """Return the report for exceptions of a class."""
        name = next(each.__name__ for each in kind.__mro__ if each.__module__ == "builtins")
        report = cls(message.text, message.line, message.structure, message.constants, name)
        object.__setattr__(report, "kind", kind)
        return report

    def require_operands(self, count: int) -> None:
        """Raise `ProgramError` unless the report is one of so many values and of an exception of Python's."""
        super().require_operands(count)
        require_fields(self, type(self.name) is str and isinstance(getattr(builtins, self.name, None), type)
                       and issubclass(getattr(builtins, self.name), BaseException))

    def error_class(self) -> type[CheckError]:
        """Return a class of errors that are `CheckError` and of the class of the exception."""
        kind = self._kind()
        if issubclass(CheckError, kind):
            return CheckError
        words = {"__module__": CheckError.__module__, "__str__": Exception.__str__,
                 "__reduce__": lambda error: (CheckError, error.args)}
        with contextlib.suppress(TypeError):  # the two have no joint layout
            return type(CheckError.__name__, (kind,) if issubclass(kind, CheckError) else (CheckError, kind), words)
        return CheckError

    def _key(self) -> Any:
        return *super()._key(), self._kind()

    def _kind(self) -> type[BaseException]:
        found: type[BaseException] = getattr(self, "kind", None) or getattr(builtins, self.name)
        return found


declare_parameter_class(Raised)
