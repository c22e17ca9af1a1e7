"""Linear systems and roots solved by a user's function, differentiated by the equation and not through the solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NOT_LINEAR, Cost, Primitive, register
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.regions import Links, Region, region_roles
from fxgrad.engine.core.sources import in_place
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.derive import Derived
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.higher_order.call import check_arguments
from fxgrad.engine.higher_order.groups import Groups, cotangents_of, groups_of, join_groups, linear_mask, nonzero_mask
from fxgrad.engine.higher_order.masking import unbatched_where_equal
from fxgrad.engine.higher_order.narrowing import remaining_operands, removable_inputs, remove_inputs
from fxgrad.engine.higher_order.wiring import dual_program, rewire, select_outputs
from fxgrad.engine.ops.arithmetic import neg, sub
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import inner_mode, takes_literals, trace_at
from fxgrad.engine.transforms.batch import Batched, batched_program, put_axis
from fxgrad.engine.transforms.forward import push_forward
from fxgrad.engine.transforms.linearize import transpose_linear
from fxgrad.engine.transforms.transpose import transpose_program
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import LinearityError

Function = Callable[..., Sequence[Any]]

Counts = tuple[int, ...]
Programs = tuple[Any, ...]
"""Four programs, in the order of the groups of their constants; None if the user gave no transposed solve."""


class SolveInputs(NamedTuple):
    """The groups of the inputs: constants of each program, and the right-hand sides."""

    matvec: Sequence[Any]
    solve: Sequence[Any]
    transposed_matvec: Sequence[Any]
    transposed_solve: Sequence[Any]
    rhs: Sequence[Any]


class SolveOutputs(NamedTuple):
    """The groups of the outputs: the solution, and the solver's other results."""

    solution: Sequence[Any]
    extra: Sequence[Any]


def _solve_groups(programs: Programs, counts: Counts) -> tuple[Groups[SolveInputs], Groups[SolveOutputs]]:
    matvec, solve, _, _ = programs
    size = len(matvec.outputs)
    return groups_of(SolveInputs, *counts, size), groups_of(SolveOutputs, size, len(solve.outputs) - size)


def _bind_solve(programs: Programs, given: SolveInputs) -> list[Any]:
    """Apply `linear_solve_p` to groups of inputs."""
    *constants, _ = given
    return bind(linear_solve_p, *join_groups(given), programs=programs, counts=tuple(map(len, constants)))


def _abstract(*avals: Aval, programs: Programs, counts: Counts) -> list[Aval]:
    *constants, rhs = _solve_groups(programs, counts)[0].split(avals)
    for program, given in zip(programs, constants, strict=True):
        if program is not None:
            check_arguments("custom_linear_solve", program.in_avals, [*given, *rhs])
    return programs[1].out_avals


def solve_operands(values: Sequence[Any], programs: Programs, counts: Counts) -> list[Any]:
    """Return the operands of `linear_solve_p` that go into `solve`."""
    given = _solve_groups(programs, counts)[0].split(values)
    return [*given.solve, *given.rhs]


def _run_numpy(*values: Any, programs: Programs, counts: Counts) -> list[Any]:
    return numpy_executor.call(programs[1], solve_operands(values, programs, counts))


def _emit(lax: Any, *values: Any, programs: Programs, counts: Counts) -> list[Any]:
    return xla_executor.emit(programs[1], solve_operands(values, programs, counts))


def _jvp(primals: list[Any], tangents: list[Any], *, programs: Programs, counts: Counts,
         ) -> tuple[list[Any], list[Any]]:
    """Differentiate A x = b: A dx = db - dA x. The constants of `solve` have no influence."""
    outputs = bind(linear_solve_p, *primals, programs=programs, counts=counts)
    takes, makes = _solve_groups(programs, counts)
    given, moved = takes.split(primals), takes.split(tangents)
    solution, extra = makes.split(outputs)
    along = [Zero(aval_of(x)) for x in solution]
    if any(nonzero_mask(moved.matvec)):
        with in_place():
            _, along = push_forward(programs[0], [*given.matvec, *solution], [*moved.matvec, *along])
    if not any(nonzero_mask([*along, *moved.rhs])):
        return outputs, [Zero(aval_of(output)) for output in outputs]
    right = [sub(instantiate_zeros(one), instantiate_zeros(other)) for one, other in zip(moved.rhs, along, strict=True)]
    found, _ = makes.split(_bind_solve(programs, given._replace(rhs=right)))
    return outputs, [*found, *(Zero(aval_of(value)) for value in extra)]


def _transpose(cotangents: list[Any], inputs: list[Any], *, programs: Programs, counts: Counts) -> list[Any]:
    takes, makes = _solve_groups(programs, counts)
    *constants, rhs = takes.split(linear_mask(inputs))
    if any(map(any, constants)):
        raise LinearityError(at_user_line("cannot transpose custom_linear_solve but in its right-hand side"))
    matvec, solve, transposed_matvec, transposed_solve = programs
    if transposed_solve is None:
        raise LinearityError(at_user_line(
            "custom_linear_solve: reverse mode solves the transposed system, and there is no transpose_solve. "
            "Pass transpose_solve=function(vecmat, b), or symmetric=True if the matrix is equal to its transpose"))
    given, arriving = takes.split(inputs), makes.split(cotangents)
    swapped = SolveInputs(given.transposed_matvec, given.transposed_solve, given.matvec, given.solve,
                          [*map(instantiate_zeros, arriving.solution)])
    found, _ = makes.split(_bind_solve((transposed_matvec, transposed_solve, matvec, solve), swapped))
    # Parts of the right side that are not linear are the zeros of those that do not move.
    return cotangents_of(inputs, join_groups([*constants, rhs]), [
        cotangent for cotangent, marked in zip(found, rhs, strict=True) if marked])


def _batch(size: int, values: list[Any], axes: list[int | None], *, programs: Programs, counts: Counts,
           ) -> tuple[list[Any], list[int | None]]:
    takes, _ = _solve_groups(programs, counts)
    *constants, rhs = takes.split(values)
    *const_axes, rhs_axes = takes.split(axes)
    lanes = [0] * len(rhs)
    parts = [None if program is None else batched_program(program, size, (*given, *lanes))
             for program, given in zip(programs, const_axes, strict=True)]
    given, in_front = _batch_given(size, parts, constants, rhs, rhs_axes)
    outputs = bind(linear_solve_p, *join_groups(given), *in_front, counts=tuple(map(len, given)),
                   programs=tuple(None if part is None else part.program for part in parts))
    return outputs, [0] * len(outputs)


def _batch_given(size: int, parts: Sequence[Derived | None], constants: Sequence[Sequence[Any]],
                 values: Sequence[Any], axes: Sequence[int | None]) -> tuple[list[list[Any]], list[Any]]:
    """Return the constants of batched programs, with their captured values; and `values` with the batch axis first."""
    return ([[*([] if part is None else part.captured), *own] for part, own in zip(parts, constants, strict=True)],
            [put_axis(Batched(value, axis), size, 0) for value, axis in zip(values, axes, strict=True)])


def _cost(*avals: Aval, programs: Programs, counts: Counts) -> Cost:
    return total_cost(programs[1])


def _regions(operands: Sequence[Any], *, programs: Programs, counts: Counts) -> tuple[Region, ...]:
    """Return the regions: only `solve` runs; derivatives run the others."""
    takes, _ = _solve_groups(programs, counts)
    return _solve_regions(programs, takes, region_roles.of(linear_solve_p), 1)


def _solve_regions(programs: Programs, takes: Groups[Any], roles: Sequence[str], solver: int) -> tuple[Region, ...]:
    *names, last = takes.parts._fields
    regions = []
    for number, (role, name, program) in enumerate(zip(roles, names, programs, strict=True)):
        if program is not None:
            runs = number == solver
            own, right = takes.link(name, "same"), takes.link(last, "same")
            rest = right if runs else Links("inside", 0, len(program.inputs) - own.number)
            makes = Links("same" if runs else "inside", 0, len(program.outputs))
            regions.append(Region(role, ("programs", number), program, (own, rest), (makes,), int(runs)))
    return tuple(regions)


linear_solve_p = register(Primitive(
    name="custom_linear_solve", abstract=_abstract, numpy=_run_numpy, xla=_emit, jvp=_jvp, transpose=_transpose,
    batch=_batch, cost=_cost, regions=_regions))
"""(constants of each of the programs, right-hand sides) -> (solutions, further outputs of `solve`)."""
region_roles.enter(("matvec", "solve", "transposed matvec", "transposed solve"), linear_solve_p)


def _trace_groups(function: Function, avals: Sequence[Aval]) -> Derived:
    program, captured = trace_at(function, avals, mode=inner_mode(takes_literals()))
    return Derived(program, captured, None)


def linear_solve(matvec: Function, rhs: Sequence[Any], solve: Callable[[Function, Sequence[Any]], Sequence[Any]],
                 transpose_solve: Callable[[Function, Sequence[Any]], Sequence[Any]] | None, symmetric: bool,
                 ) -> list[Any]:
    """Return the outputs of `solve(matvec, rhs)`; all functions take and return flat lists."""
    avals = [aval_of(value).strong() for value in rhs]
    forwards = _trace_groups(matvec, avals)

    def apply(*values: Any) -> list[Any]:
        return forwards(values)

    solved = _trace_groups(lambda *values: solve(apply, values), avals)
    parts: list[Derived | None] = [forwards, solved, None, None]
    if symmetric:
        parts[2:] = [forwards, solved]
    elif transpose_solve is not None:
        own = len(forwards.captured)
        flipped = transpose_linear(forwards.program, (*[False] * own, *[True] * len(avals)))
        backwards = Derived(flipped.program, [*flipped.captured, *forwards.captured], None)

        def apply_transposed(*values: Any) -> list[Any]:
            return backwards(values)

        parts[2:] = [backwards, _trace_groups(lambda *values: transpose_solve(apply_transposed, values), avals)]
    given = SolveInputs._make([*([] if part is None else part.captured for part in parts), [*rhs]])
    return _bind_solve(tuple(None if part is None else part.program for part in parts), given)


# --- roots ----------------------------------------------------------------------------------------------------


class RootInputs(NamedTuple):
    """The groups of the inputs: constants of each program, and the guess.

    The programs are the solver, f, the solver for tangents and that for cotangents. The last two take (constants,
    constants of f, root, right-hand side).
    """

    solver: Sequence[Any]
    function: Sequence[Any]
    tangent_solver: Sequence[Any]
    cotangent_solver: Sequence[Any]
    guess: Sequence[Any]


def _root_groups(programs: Programs, counts: Counts) -> tuple[Groups[RootInputs], Groups[SolveOutputs]]:
    solver, function, _, _ = programs
    size = len(function.outputs)
    return groups_of(RootInputs, *counts, size), groups_of(SolveOutputs, size, len(solver.outputs) - size)


def _root_abstract(*avals: Aval, programs: Programs, counts: Counts) -> list[Aval]:
    takes, makes = _root_groups(programs, counts)
    given = takes.split(avals)
    solver, function, _, _ = programs
    check_arguments("custom_root", solver.in_avals, [*given.solver, *given.guess])
    check_arguments("custom_root", function.in_avals, [*given.function, *given.guess])
    check_arguments("custom_root", function.out_avals, makes.split(solver.out_avals).solution)
    return solver.out_avals


def root_operands(values: Sequence[Any], programs: Programs, counts: Counts) -> list[Any]:
    """Return the operands of `root_p` that go into the solver."""
    given = _root_groups(programs, counts)[0].split(values)
    return [*given.solver, *given.guess]


def _root_numpy(*values: Any, programs: Programs, counts: Counts) -> list[Any]:
    return numpy_executor.call(programs[0], root_operands(values, programs, counts))


def _root_emit(lax: Any, *values: Any, programs: Programs, counts: Counts) -> list[Any]:
    return xla_executor.emit(programs[0], root_operands(values, programs, counts))


def _root_jvp(primals: list[Any], tangents: list[Any], *, programs: Programs, counts: Counts,
              ) -> tuple[list[Any], list[Any]]:
    """Differentiate f(theta, x) = 0: f_x dx = -f_theta dtheta."""
    outputs = bind(root_p, *primals, programs=programs, counts=counts)
    takes, makes = _root_groups(programs, counts)
    given, theta_tangents = takes.split(primals), takes.split(tangents).function
    root, extra = makes.split(outputs)
    _, function, solver, transposed_solver = programs
    if not any(nonzero_mask(theta_tangents)):
        return outputs, [Zero(aval_of(output)) for output in outputs]
    at = [*given.function, *root]
    with in_place():
        _, pushed = push_forward(function, at, [*theta_tangents, *(Zero(aval_of(x)) for x in root)])
    matvec, vecmat = root_derivatives(function, len(given.function))
    solved = _bind_solve((matvec.program, solver, vecmat.program, transposed_solver), SolveInputs(
        [*matvec.captured, *at], [*given.tangent_solver, *at], [*vecmat.captured, *at], [*given.cotangent_solver, *at],
        [neg(instantiate_zeros(tangent)) for tangent in pushed]))
    return outputs, [*makes.split(solved).solution, *(Zero(aval_of(value)) for value in extra)]


def root_derivatives(function: Program, num_consts: int) -> tuple[Derived, Derived]:
    """Return f_x as a program (constants, x, direction) -> change of f, and its transpose."""
    count = len(function.outputs)
    derived = dual_program(function, (*[False] * num_consts, *[True] * count), (True,) * count, separate=True)
    matvec = Derived(select_outputs(derived.program, [False] * count + [True] * count), derived.captured, None)
    own = len(derived.captured)
    flipped = transpose_program(matvec.program, (*[False] * (own + num_consts + count), *[True] * count))
    return matvec, Derived(flipped.program, [*flipped.captured, *derived.captured], None)


def _root_batch(size: int, values: list[Any], axes: list[int | None], *, programs: Programs, counts: Counts,
                ) -> tuple[list[Any], list[int | None]]:
    takes, _ = _root_groups(programs, counts)
    *constants, guess = takes.split(values)
    given = takes.split(axes)
    lanes = [0] * len(guess)
    at = [*given.function, *lanes]
    axes_of = ([*given.solver, *lanes], at, [*given.tangent_solver, *at, *lanes],
               [*given.cotangent_solver, *at, *lanes])
    parts = [batched_program(program, size, tuple(each)) for program, each in zip(programs, axes_of, strict=True)
             if program is not None]
    masks = tuple(map(aval_of, parts[1].captured))  # constants of f, which the solvers of derivatives take too
    for place in (2, 3):
        own, avals = len(parts[place].captured) + counts[place], parts[place].program.in_avals
        inputs = *avals[:own], *masks, *avals[own:]
        taken = *range(own), *range(own + len(masks), len(inputs))
        parts[place] = parts[place]._replace(program=rewire(parts[place].program, inputs, taken))
    fixed, begin = _batch_given(size, parts, constants, guess, given.guess)
    outputs = bind(root_p, *join_groups(fixed), *begin, programs=tuple(part.program for part in parts),
                   counts=tuple(map(len, fixed)))
    return unbatched_where_equal(programs[0], size, [*given.solver, *given.guess], outputs)


def _root_cost(*avals: Aval, programs: Programs, counts: Counts) -> Cost:
    return total_cost(programs[0])


def _root_regions(operands: Sequence[Any], *, programs: Programs, counts: Counts) -> tuple[Region, ...]:
    """Return the regions: only the solver runs; derivatives run the others."""
    takes, _ = _root_groups(programs, counts)
    return _solve_regions(programs, takes, region_roles.of(root_p), 0)


root_p = register(Primitive(name="custom_root", abstract=_root_abstract, numpy=_root_numpy, xla=_root_emit,
                            jvp=_root_jvp, transpose=NOT_LINEAR, batch=_root_batch, cost=_root_cost,
                            regions=_root_regions))
"""(constants of each of the programs, guess) -> (root, further outputs of the solver)."""
region_roles.enter(("solve", "function", "tangent solve", "cotangent solve"), root_p)


@rewrites.register(linear_solve_p)
def _solve_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Remove constants that a program does not use or gets twice, and inline numbers into it."""
    takes, _ = _solve_groups(params["programs"], params["counts"])
    return _narrow_parts(linear_solve_p, takes, inputs, params["programs"], range(4))


@rewrites.register(root_p)
def _root_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Rewrite as for linear systems, except the constants of the function, which the tangent solvers take too."""
    takes, _ = _root_groups(params["programs"], params["counts"])
    return _narrow_parts(root_p, takes, inputs, params["programs"], (0, 2, 3))


def _narrow_parts(primitive: Primitive, takes: Groups[Any], inputs: list[Any], programs: Programs,
                  places: Sequence[int]) -> list[Any] | None:
    *constants, last = takes.split(inputs)
    instead = [removable_inputs(program, given) if number in places and program is not None else ()
               for number, (program, given) in enumerate(zip(programs, constants, strict=True))]
    if not any(instead):
        return None
    fewer = [remaining_operands(given, each) for given, each in zip(constants, instead, strict=True)]
    return bind(primitive, *join_groups(fewer), *last, counts=tuple(map(len, fewer)), programs=tuple(
        program if program is None else remove_inputs(program, each)
        for program, each in zip(programs, instead, strict=True)))
