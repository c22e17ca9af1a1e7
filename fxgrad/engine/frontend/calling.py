"""Calls of functions as programs, and calls of programs as functions, on containers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.avals import PYTHON_SCALARS, without_literals
from fxgrad.engine.core.program import ControlFlowPath, Program, Signature, require_program
from fxgrad.engine.core.program_properties import ProgramAttribute
from fxgrad.engine.derivation.simplify import simplify_for_display
from fxgrad.engine.derivation.sizes import argument_names, size_names, specialize
from fxgrad.engine.frontend.flat import (
    TracedCall,
    argument_aval,
    argument_leaf_names,
    as_struct,
    check_leaf,
    constant_name,
    insert_static,
    nth_name,
    record_flat,
    refuse_repeated_effects,
    title_of,
    trace_flat,
)
from fxgrad.engine.frontend.mismatches import ExpectedArguments
from fxgrad.engine.higher_order.wiring import used_inputs
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.followed import FollowedTape
from fxgrad.engine.tracing.trace import DISPLAY, SHARED, Mode, join_unchecked_vma, new_tape
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, TreeError, UnsupportedError


def call_program(program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a program on containers like those it was traced with, or on a flat list without a signature."""
    expected = len(program.inputs) - len(program.constants)
    if program.signature is None or program.signature.in_tree is None:
        if kwargs:
            raise ArgumentError(at_user_line(
                f"the program takes {expected} inputs by position, got {', '.join(kwargs)} by name"))
        if len(args) != expected:
            raise ArgumentError(at_user_line(f"the program takes {expected} inputs, got {len(args)}"))
        outputs = _run_leaves(program, args)
        return outputs[0] if len(outputs) == 1 else outputs
    leaves, structure = tree.flatten((args, kwargs))
    by_position = not kwargs and len(args) == expected and [*map(id, leaves)] == [*map(id, args)]
    if structure != program.signature.in_tree and not by_position:
        raise TreeError(_mismatch_message(program, args, kwargs, program.signature.in_tree))
    outputs = _run_leaves(program, leaves)
    return tree.unflatten(program.signature.out_tree, outputs) if program.signature.out_tree is not None else outputs


def _mismatch_message(program: Program, args: Sequence[Any], kwargs: Mapping[str, Any], structure: tree.TreeDef) -> str:
    """Return the message for arguments that do not match the structure a program was traced for."""
    called = f"the program {program.signature.name}" if program.signature else "the program"
    expected = ExpectedArguments(structure, tuple(argument_names(program)),
                                 tuple(program.in_avals[len(program.constants):]))
    return expected.message(f"{called} was called with other arguments than it was traced for", "program", args, kwargs,
                            "Trace it again for other types, or convert with x.astype(...)")


def _run_leaves(program: Program, leaves: Sequence[Any]) -> list[Any]:
    values = _cast_inputs(program, leaves)
    if values is None:
        # Programs specialized to types are memoized on the program.
        avals = [argument_aval(leaf, "program", constant_name("an input")) for leaf in leaves]
        known = _AT_TYPES.of(program) or _AT_TYPES.put(program, BoundedDict(256))
        key = (*avals,)
        found: Program | None = known.get(key)
        program = known.add(key, specialize(program, avals)) if found is None else found
        values = _cast_inputs(program, leaves)
        assert values is not None
    try:
        _check_path(program, values)
        return without_literals(apply_program(program, values))
    except Exception:
        refuse_types_alone("program", values)
        raise


def _check_path(program: Program, values: Sequence[Any]) -> None:
    """Raise `ArgumentError` if the program holds for one path, and these values make control flow take another."""
    signature = program.signature
    path = None if signature is None else signature.path
    if signature is None or path is None or len(values) != len(path.conditions.inputs) - len(path.conditions.constants):
        return
    for found, known, place in zip(apply_program(path.conditions, values), path.values, path.places, strict=True):
        same = found.shape == known.shape and bool(np.all(found == known))
        if not same:
            raise ArgumentError(at_user_line(
                f"program: {signature.name} was traced with values for which Python's control flow goes "
                f"another way than for these, at {place}. Trace it again with these, or call the function"))


_AT_TYPES: ProgramAttribute[BoundedDict] = ProgramAttribute("programs at types of arguments")


def _cast_inputs(program: Program, values: Sequence[Any]) -> list[Any] | None:
    """Return the inputs checked against the program's types; Python scalars take the declared dtype.

    Returns None if the program has symbolic sizes and must be specialized for these inputs.
    """
    result: list[Any] = []
    for value, var in zip(values, program.inputs[len(program.constants):], strict=True):
        aval = var.aval
        if type(value) in PYTHON_SCALARS and not aval.shape:
            result.append(np.asarray(value, aval.dtype)[()])
            continue
        found = argument_aval(value, "program", lambda: f"input {len(result)}")
        if found.shape != aval.shape or found.dtype != aval.dtype:
            if size_names(program):
                return None
            given, places = [*result, *values[len(result):]], tuple(range(len(values)))
            raise ArgumentError(_mismatch_message(program, given, {}, tree.structure((places, {}))))
        result.append(value)
    return result


def trace_program(what: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                  static: Collection[int] = (), as_recorded: bool = False, follow: bool = True) -> Program:
    """Return the closed program of a call, for the function `what`; arguments at `static` are passed unchanged.

    The program is simplified for reading, and has no constants that nothing reads, unless `as_recorded`. With `follow`,
    Python's control flow takes the path for the values of the arguments, if they have values; the program then holds
    for that path.
    """
    tape, traced, names, structure = _trace_with_tape(what, fun, args, kwargs, static, follow)
    signature = Signature(function_name(fun), tuple(names), structure, traced.out_tree, title_of(fun))
    program = traced.program if as_recorded else simplify_for_display(traced.program)
    if tape.asked:
        conditions = traced.program.replace(outputs=[each.var for each in tape.asked], constants=traced.captured,
                                            signature=signature._replace(out_tree=None))
        signature = signature._replace(path=ControlFlowPath(
            conditions, tuple([each.value for each in tape.asked]), tuple([each.place for each in tape.asked])))
    program = program.replace(constants=traced.captured, signature=signature)
    return program if as_recorded else _without_unread_constants(program)


def _without_unread_constants(program: Program) -> Program:
    """Return the program without the constants that nothing reads, as of dead code: files would store them."""
    count = len(program.constants)
    read = used_inputs(program)[:count]
    if all(read):
        return program
    return program.replace(inputs=[*itertools.compress(program.inputs, read), *program.inputs[count:]],
                           captured=sum(read), constants=[*itertools.compress(program.constants, read)])


def require_all_paths(what: str, program: Program) -> Program:
    """Return `program` for its user `what`; raise `UnsupportedError` if it holds for one path of control flow only."""
    signature = require_program(what, program).signature
    path = None if signature is None else signature.path
    if signature is not None and path is not None:
        raise UnsupportedError(at_user_line(
            f"{what}: Python's control flow asks for values in {signature.name}, at {path.places[0]}, so that "
            "its program is that of one path, and wrong for other values. Write fxgrad.lax.cond, while_loop or "
            "fori_loop, or fxgrad.numpy.where"))
    return program


def trace_with_values(what: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                      ) -> tuple[Program, list[Any]]:
    """Trace a program for `what` to run; return it and the arguments' values; raise `ArgumentError` for mere types."""
    leaves = tree.leaves((args, kwargs))
    refuse_types_alone(what, leaves)
    return trace_program(what, fun, args, kwargs), leaves


def refuse_types_alone(what: str, leaves: Iterable[Any]) -> None:
    """Raise `ArgumentError` if one of `leaves` is a type without a value."""
    if any(isinstance(as_struct(leaf), tree.ShapeDtypeStruct) for leaf in leaves):
        raise ArgumentError(at_user_line(f"{what}: an argument is a type without a value, and values are needed"))


def trace_for_rewrite(what: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *,
                      mode: Mode = SHARED) -> tuple[TracedCall, list[Any]]:
    """Trace a call for the transformation `what`, which runs another program in its place; return it and the leaves.

    All operations of `fun` are recorded, or in the mode `SELECTIVE` those that depend on the arguments.
    `TracedCall.rebuild` puts the results of the other program into the container that `fun` returned.

    Raises `ArgumentError` for an argument that is no array and no number, and `UnsupportedError` if an operation with
    effects would run a second time.
    """
    leaves, structure = tree.flatten((args, kwargs))
    names = argument_leaf_names(fun, args, None, kwargs)
    avals = [check_leaf(leaf, what, nth_name(names, index)) for index, leaf in enumerate(leaves)]

    def call(*tracers: Any) -> Any:
        given, keywords = tree.unflatten(structure, tracers)
        return fun(*given, **keywords)

    traced = trace_flat(call, avals, what, fun, mode=mode, values=leaves, names=names)
    refuse_repeated_effects(traced, what)
    return traced, leaves


def trace_call(what: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
               static: Collection[int] = ()) -> tuple[TracedCall, list[str], Any]:
    """Trace a call without values, as `jit` does; return the traced call, the inputs' names, the arguments' tree."""
    _, traced, names, structure = _trace_with_tape(what, fun, args, kwargs, static, follow=False)
    return traced, names, structure


def _trace_with_tape(what: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                     static: Collection[int], follow: bool) -> tuple[FollowedTape, TracedCall, list[str], Any]:
    """Trace as `trace_call` and return the tape; Python's control flow may use known values of the arguments."""
    moving = [position for position in range(len(args)) if position not in static]
    leaves, structure = tree.flatten((tuple([args[position] for position in moving]), kwargs))
    names = argument_leaf_names(fun, args, moving, kwargs)()
    avals = [argument_aval(leaf, what, constant_name(name)) for leaf, name in zip(leaves, names, strict=True)]

    def call(*tracers: Any) -> Any:
        given, keywords = tree.unflatten(structure, tracers)
        return fun(*insert_static(args, static, given), **keywords)

    tape = new_tape(join_unchecked_vma(avals), mode=DISPLAY, name=fun, input_names=lambda: names,
                    tape_class=FollowedTape)
    assert isinstance(tape, FollowedTape)
    if follow and not any(isinstance(as_struct(leaf), tree.ShapeDtypeStruct) for leaf in leaves):
        tape.follow(leaves)
    leaves_out, out_tree = record_flat(tape, call, what, fun)
    # Equations computed to follow control flow stay in the program, with their effects, so that readers see them.
    return tape, TracedCall(tape.finish(leaves_out), tape.captured, out_tree), names, structure
