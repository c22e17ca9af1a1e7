"""Linear systems solved by a function of the user's, differentiated by what they solve and not by how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.analyses.cost import cost
from fxgrad.control.call import check_arguments
from fxgrad.control.groups import are_linear, moving
from fxgrad.control.wiring import dual_program, with_outputs
from fxgrad.core.avals import Aval
from fxgrad.core.primitive import NOT_LINEAR, Cost, Primitive, register
from fxgrad.core.program import Program
from fxgrad.core.recording import inner_mode, trace
from fxgrad.core.regions import How, Links, Region
from fxgrad.core.symbolic import Zero
from fxgrad.core.tape import aval_of, bind, takes_literals
from fxgrad.derivation.derive import Derived
from fxgrad.errors import LinearityError, at_user_line
from fxgrad.executors import numpy as numpy_executor
from fxgrad.executors import xla as xla_executor
from fxgrad.ops.arithmetic import neg, sub
from fxgrad.ops.space import instantiate
from fxgrad.transforms.batch import Batched, batched_program, put_axis
from fxgrad.transforms.forward import forward
from fxgrad.transforms.transpose import transposed

Function = Callable[..., Sequence[Any]]

# The inputs of the primitive are the constants of each program, in this order, and the right-hand sides.
# `transpose_solve` may be None; its constants are then none.


def _parts(values: Sequence[Any], counts: tuple[int, int, int, int]) -> tuple[list[list[Any]], list[Any]]:
    """The constants of matvec, solve, transposed matvec and transposed solve; and the right-hand sides."""
    constants, start = [], 0
    for count in counts:
        constants.append(list(values[start:start + count]))
        start += count
    return constants, list(values[start:])


Programs = tuple[Program, Program, "Program | None", "Program | None"]


def _abstract(*avals: Aval, programs: Programs, counts: tuple[int, int, int, int]) -> list[Aval]:
    constants, rhs = _parts(avals, counts)
    for program, given in zip(programs, constants, strict=True):
        if program is not None:
            check_arguments("custom_linear_solve", program.in_avals, [*given, *rhs])
    return programs[1].out_avals


def _run_numpy(*values: Any, programs: Programs, counts: tuple[int, int, int, int]) -> list[Any]:
    constants, rhs = _parts(values, counts)
    return numpy_executor.call(programs[1], [*constants[1], *rhs])


def _emit(lax: Any, *values: Any, programs: Programs, counts: tuple[int, int, int, int]) -> list[Any]:
    constants, rhs = _parts(values, counts)
    return xla_executor.emit(programs[1], [*constants[1], *rhs])


def _jvp(primals: list[Any], tangents: list[Any], *, programs: Programs, counts: tuple[int, int, int, int],
         ) -> tuple[list[Any], list[Any]]:
    """From A x = b: A dx = db - dA x. What `solve` computes with is of no importance."""
    outputs = bind(linear_solve_p, *primals, programs=programs, counts=counts)
    constants, rhs = _parts(primals, counts)
    const_tangents, rhs_tangents = _parts(tangents, counts)
    solution = outputs[:len(rhs)]
    moved = [Zero(aval_of(x)) for x in solution]
    if any(moving(const_tangents[0])):
        _, moved = forward(programs[0], [*constants[0], *solution], [*const_tangents[0], *moved])
    if not any(moving([*moved, *rhs_tangents])):
        return outputs, [Zero(aval_of(output)) for output in outputs]
    right = [sub(instantiate(one), instantiate(other)) for one, other in zip(rhs_tangents, moved, strict=True)]
    flat = [value for given in constants for value in given]
    results = bind(linear_solve_p, *flat, *right, programs=programs, counts=counts)
    return outputs, [*results[:len(rhs)], *(Zero(aval_of(extra)) for extra in outputs[len(rhs):])]


def _transpose(cotangents: list[Any], inputs: list[Any], *, programs: Programs, counts: tuple[int, int, int, int],
               ) -> list[Any]:
    constants, rhs = _parts(inputs, counts)
    matvec, solve, transposed_matvec, transposed_solve = programs
    if any(are_linear(inputs[:sum(counts)])) or not all(are_linear(rhs)):
        raise LinearityError(at_user_line("cannot transpose custom_linear_solve but in its right-hand side as a whole"))
    if transposed_solve is None:
        raise LinearityError(at_user_line(
            "custom_linear_solve: reverse mode solves the transposed system, and there is no transpose_solve. "
            "Pass transpose_solve=function(vecmat, b), or symmetric=True if the matrix is equal to its transpose"))
    swapped = (transposed_matvec, transposed_solve, matvec, solve)
    order = (2, 3, 0, 1)
    arriving = list(map(instantiate, cotangents[:len(rhs)]))
    results = bind(linear_solve_p, *(value for index in order for value in constants[index]), *arriving,
                   programs=swapped, counts=tuple(counts[index] for index in order))
    return [*[None] * sum(counts), *results[:len(rhs)]]


def _batch(size: int, values: list[Any], axes: list[int | None], *, programs: Programs,
           counts: tuple[int, int, int, int]) -> tuple[list[Any], list[int | None]]:
    constants, rhs = _parts(values, counts)
    const_axes, rhs_axes = _parts(axes, counts)
    lanes = [0] * len(rhs)
    parts = [None if program is None else batched_program(program, size, (*given, *lanes))
             for program, given in zip(programs, const_axes, strict=True)]
    flat: list[Any] = []
    sizes = []
    for part, given in zip(parts, constants, strict=True):
        own = [*([] if part is None else part.captured), *given]
        flat += own
        sizes.append(len(own))
    right = [put_axis(Batched(value, axis), size, 0) for value, axis in zip(rhs, rhs_axes, strict=True)]
    outputs = bind(linear_solve_p, *flat, *right, counts=tuple(sizes),
                   programs=tuple(None if part is None else part.program for part in parts))
    return outputs, [0] * len(outputs)


def _cost(*avals: Aval, programs: Programs, counts: tuple[int, int, int, int]) -> Cost:
    return cost(programs[1])


def _regions(operands: Sequence[Any], *, programs: Programs, counts: tuple[int, int, int, int]) -> tuple[Region, ...]:
    """Only `solve` runs; derivatives run the others."""
    return _held(programs, counts, ("matvec", "solve", "transposed matvec", "transposed solve"), 1)


def _held(programs: Programs, counts: tuple[int, int, int, int], roles: Sequence[str], solver: int,
          ) -> tuple[Region, ...]:
    regions = []
    for number, (role, program) in enumerate(zip(roles, programs, strict=True)):
        if program is not None:
            runs, own = number == solver, counts[number]
            how: How = "same" if runs else "inside"
            takes = Links("same", sum(counts[:number]), own), Links(how, sum(counts), len(program.inputs) - own)
            regions.append(Region(role, ("programs", number), program, takes, (Links(how, 0, len(program.outputs)),),
                                  int(runs)))
    return tuple(regions)


linear_solve_p = register(Primitive(
    name="custom_linear_solve", abstract=_abstract, numpy=_run_numpy, xla=_emit, jvp=_jvp, transpose=_transpose,
    batch=_batch, cost=_cost, regions=_regions))
"""(constants of each of the programs, right-hand sides) -> (solutions, further outputs of `solve`)."""


def _traced(function: Function, avals: Sequence[Aval]) -> Derived:
    program, captured = trace(function, avals, mode=inner_mode(takes_literals()))
    return Derived(program, captured, None)


def linear_solve(matvec: Function, rhs: Sequence[Any], solve: Callable[[Function, Sequence[Any]], Sequence[Any]],
                 transpose_solve: Callable[[Function, Sequence[Any]], Sequence[Any]] | None, symmetric: bool,
                 ) -> list[Any]:
    """The outputs of `solve(matvec, rhs)`, all functions taking and returning flat lists."""
    avals = [aval_of(value).strong() for value in rhs]
    forwards = _traced(matvec, avals)

    def apply(*values: Any) -> list[Any]:
        return forwards(values)

    solved = _traced(lambda *values: solve(apply, values), avals)
    parts: list[Derived | None] = [forwards, solved, None, None]
    if symmetric:
        parts[2:] = [forwards, solved]
    elif transpose_solve is not None:
        own = len(forwards.captured)
        flipped = transposed(forwards.program, (*[False] * own, *[True] * len(avals)))
        backwards = Derived(flipped.program, [*flipped.captured, *forwards.captured], None)

        def apply_transposed(*values: Any) -> list[Any]:
            return backwards(values)

        parts[2:] = [backwards, _traced(lambda *values: transpose_solve(apply_transposed, values), avals)]
    constants = [[] if part is None else part.captured for part in parts]
    return bind(linear_solve_p, *(value for given in constants for value in given), *rhs,
                programs=tuple(None if part is None else part.program for part in parts),
                counts=tuple(map(len, constants)))


# --- roots ----------------------------------------------------------------------------------------------------

# The inputs of the primitive are the constants of the solver, of f, of the solver for tangents and of that for
# cotangents, and the guess. The last two programs take (constants, constants of f, root, right-hand side).


def _root_abstract(*avals: Aval, programs: Programs, counts: tuple[int, int, int, int]) -> list[Aval]:
    constants, guess = _parts(avals, counts)
    check_arguments("custom_root", programs[0].in_avals, [*constants[0], *guess])
    check_arguments("custom_root", programs[1].in_avals, [*constants[1], *guess])
    check_arguments("custom_root", programs[1].out_avals, programs[0].out_avals[:len(guess)])
    return programs[0].out_avals


def _root_numpy(*values: Any, programs: Programs, counts: tuple[int, int, int, int]) -> list[Any]:
    constants, guess = _parts(values, counts)
    return numpy_executor.call(programs[0], [*constants[0], *guess])


def _root_emit(lax: Any, *values: Any, programs: Programs, counts: tuple[int, int, int, int]) -> list[Any]:
    constants, guess = _parts(values, counts)
    return xla_executor.emit(programs[0], [*constants[0], *guess])


def _root_jvp(primals: list[Any], tangents: list[Any], *, programs: Programs, counts: tuple[int, int, int, int],
              ) -> tuple[list[Any], list[Any]]:
    """From f(theta, x) = 0: f_x dx = -f_theta dtheta."""
    outputs = bind(root_p, *primals, programs=programs, counts=counts)
    constants, guess = _parts(primals, counts)
    theta, root = constants[1], outputs[:len(guess)]
    theta_tangents = _parts(tangents, counts)[0][1]
    _, function, solver, transposed_solver = programs
    if not any(moving(theta_tangents)):
        return outputs, [Zero(aval_of(output)) for output in outputs]
    _, pushed = forward(function, [*theta, *root], [*theta_tangents, *(Zero(aval_of(x)) for x in root)])
    matvec, vecmat = along_root(function, len(theta))
    at = [*theta, *root]
    given = [[*matvec.captured, *at], [*constants[2], *at], [*vecmat.captured, *at], [*constants[3], *at]]
    solved = bind(linear_solve_p, *(value for each in given for value in each),
                  *(neg(instantiate(tangent)) for tangent in pushed),
                  programs=(matvec.program, solver, vecmat.program, transposed_solver), counts=tuple(map(len, given)))
    return outputs, [*solved[:len(root)], *(Zero(aval_of(extra)) for extra in outputs[len(root):])]


def along_root(function: Program, num_consts: int) -> tuple[Derived, Derived]:
    """f_x as a program (constants, x, direction) -> change of f; and its transpose."""
    count = len(function.outputs)
    derived = dual_program(function, (*[False] * num_consts, *[True] * count), (True,) * count, separate=True)
    matvec = Derived(with_outputs(derived.program, [False] * count + [True] * count), derived.captured, None)
    own = len(derived.captured)
    flipped = transposed(matvec.program, (*[False] * (own + num_consts + count), *[True] * count))
    return matvec, Derived(flipped.program, [*flipped.captured, *derived.captured], None)


def _root_batch(size: int, values: list[Any], axes: list[int | None], *, programs: Programs,
                counts: tuple[int, int, int, int]) -> tuple[list[Any], list[int | None]]:
    constants, guess = _parts(values, counts)
    const_axes, guess_axes = _parts(axes, counts)
    lanes = [0] * len(guess)
    at = [*const_axes[1], *lanes]
    axes_of = [[*const_axes[0], *lanes], at, [*const_axes[2], *at, *lanes], [*const_axes[3], *at, *lanes]]
    parts = [batched_program(program, size, tuple(each)) for program, each in zip(programs, axes_of, strict=True)
             if program is not None]
    given = [[*part.captured, *each] for part, each in zip(parts, constants, strict=True)]
    begin = [put_axis(Batched(value, axis), size, 0) for value, axis in zip(guess, guess_axes, strict=True)]
    outputs = bind(root_p, *(value for each in given for value in each), *begin,
                   programs=tuple(part.program for part in parts), counts=tuple(map(len, given)))
    return outputs, [0] * len(outputs)


def _root_cost(*avals: Aval, programs: Programs, counts: tuple[int, int, int, int]) -> Cost:
    return cost(programs[0])


def _root_regions(operands: Sequence[Any], *, programs: Programs, counts: tuple[int, int, int, int],
                  ) -> tuple[Region, ...]:
    """Only the solver runs; derivatives run the others."""
    return _held(programs, counts, ("solve", "function", "tangent solve", "cotangent solve"), 0)


root_p = register(Primitive(name="custom_root", abstract=_root_abstract, numpy=_root_numpy, xla=_root_emit,
                            jvp=_root_jvp, transpose=NOT_LINEAR, batch=_root_batch, cost=_root_cost,
                            regions=_root_regions))
"""(constants of each of the programs, guess) -> (root, further outputs of the solver)."""
