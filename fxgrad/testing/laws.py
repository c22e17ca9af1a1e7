"""The laws of the seven rules of a primitive, checked on one application of it."""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.index_sets import Dependence, identity
from fxgrad.engine.analyses.sparsity import dependences
from fxgrad.engine.analyses.sparsity_moves import sparsity_rules
from fxgrad.engine.core.avals import Aval, array_aval, keys_to_jax, to_numpy
from fxgrad.engine.core.primitive import NO_TANGENT, Cost, MissingRule, Primitive
from fxgrad.engine.core.symbolic import Linear, Zero
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from fxgrad.engine.transforms.forward import push_forward
from fxgrad.engine.transforms.linearize import linearize_in_place, pull_back
from fxgrad.errors import FxgradError, LinearityError
from fxgrad.testing.cases import Case, as_plain_array
from fxgrad.testing.numbers import (
    TOLERANCES,
    central_difference,
    describe_arguments,
    direction,
    inner,
    mismatch,
    step_for,
)
from fxgrad.text import equal, from_json, parse, program_text, to_json

BATCH = 3


def check_primitive(primitive: Primitive, *args: Any, **params: Any) -> None:
    """Check `primitive`, applied to `args` with `params`, against all laws; raise `LawError` for the first it breaks.

    - numpy: the outputs have the shapes and dtypes that `abstract` says, also for arguments that are strided or
      read-only, and arguments are not changed
    - xla: compiled, the rule gives the same to the rounding of the dtype (`TOLERANCES`)
    - jvp: tangents are central differences in float64 along random directions, alone and together, and linear;
      where the rule is `NO_TANGENT`, the differences are zero
    - transpose: `<c, J t> = <Jᵀ c, t>` in each set of arguments that the operation is linear in (found by trying; a
      rule may refuse one with `LinearityError`), and for the derivative itself
    - batch: for every choice of batched arguments and several axes, equal to a Python loop
    - jvp, transpose, batch: recorded with tracers, the rules give the types and numbers that they give with arrays
    - second: the jvp of the jvp rule is the central difference of that rule
    - cost: non-negative whole numbers
    - sparsity: if the primitive is entered in `fxgrad.extend.analyses.sparsity_rules`, each element of an argument that
      the operation is linear in changes none but the elements of the outputs that the rule says depend on it
    - text: a program of this one equation, printed and parsed back, is equal and gives the same numbers; so does JSON

    `args` are NumPy arrays or scalars. A pass says nothing about points other than `args` and their neighbourhood:
    an error in a region that is not sampled, at a kink or a singular point (choose `args` away from those: differences
    across them are wrong), or where the function is saturated, so that right and wrong derivatives are both nearly
    zero. Nor does it show an error below the tolerance, or that costs are right.

    >>> import numpy as np
    >>> from fxgrad.engine.ops.trigonometric import sin_p
    >>> check_primitive(sin_p, np.array([0.5, 2.0]))
    """
    check_laws(primitive, args, params)


def check_laws(primitive: Primitive, args: Sequence[Any], params: dict[str, Any] | None = None, *,
               laws: Sequence[str] | None = None, fixed: Sequence[int] = (), tolerance: float = 1.0) -> None:
    """Check some `laws` (names in `LAWS`) like `check_primitive`, without derivatives in the arguments at `fixed`.

    `tolerance` is a factor on those of the tables.
    """
    case = Case(primitive, args, params or {}, fixed, tolerance)
    for law in LAWS if laws is None else laws:
        case.law = law
        _CHECKS[law](case)


def _numpy_law(case: Case) -> None:
    avals = case.avals(case.args)
    expected = case.numpy(*case.args)
    case.typed(expected, avals, "the numpy rule")
    for strided in (False, True):
        args = [_awkward(arg, strided) for arg in case.args]
        try:
            outputs = case.numpy(*args)
        except ValueError as error:
            if "read-only" in str(error):
                raise case.fail("the numpy rule writes to its arguments") from error
            raise
        what = "the numpy rule, given read-only" + (" and strided arrays" if strided else " arrays")
        case.typed(outputs, avals, what)
        case.same(outputs, expected, what)


def _awkward(arg: Any, strided: bool) -> Any:
    """Return an equal array that is read-only and, if `strided`, not contiguous."""
    array = np.array(arg)
    if strided and array.ndim:
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    array.flags.writeable = False
    return array


def _xla_law(case: Case) -> None:
    _check_compiled([case])


Application = tuple[Primitive, Sequence[Any], dict[str, Any], float]


def check_xla_together(applications: Sequence[Application]) -> None:
    """Check the law "xla" for many `(primitive, args, params, tolerance)`, compiled together to save compile time."""
    cases = [Case(primitive, args, params, (), tolerance) for primitive, args, params, tolerance in applications]
    for case in cases:
        case.law = "xla"
    _check_compiled(cases)


def _check_compiled(cases: Sequence[Case]) -> None:
    def emitted(*groups: Sequence[Any]) -> list[list[Any]]:
        return [list(case.primitive.xla(lax, *group, **case.params))
                for case, group in zip(cases, groups, strict=True)]

    with jax.enable_x64(True):
        results = jax.jit(emitted)(*([*map(keys_to_jax, case.args)] for case in cases))
        arrays = [[*map(to_numpy, outputs)] for outputs in results]
    for case, outputs in zip(cases, arrays, strict=True):
        case.typed(outputs, case.avals(case.args), "the xla rule")
        case.same(outputs, case.numpy(*case.args), "the xla rule, compared with the numpy rule")


def _jvp_law(case: Case) -> None:
    if not case.inexact or (isinstance(case.primitive.jvp, MissingRule) and case.primitive.jvp is not NO_TANGENT):
        return
    outputs = case.numpy(*case.wide)
    steps = step_for(outputs)
    if case.primitive.jvp is NO_TANGENT:
        tangents = case.directions(case.inexact, case.wide)
        if steps is not None:
            slopes = central_difference(case.numpy, case.wide, tangents, steps[0])
            zeros = [np.zeros(np.shape(slope)) for slope in slopes]
            case.same(_where_finite(zeros, slopes), slopes, "NO_TANGENT, compared with a central difference", steps[1])
        return
    _check_narrow_jvp(case, case.directions(case.inexact, case.args))
    for places in _subsets(case.inexact):
        tangents = case.directions(places, case.wide)
        primals, got = case.jvp(case.wide, tangents)
        case.same(primals, outputs, "the outputs of the jvp rule")
        case.typed(got, case.avals(case.wide), "the tangents")
        _, doubled = case.jvp(case.wide, [None if tangent is None else 2 * tangent for tangent in tangents])
        case.same(doubled, [2 * tangent for tangent in got], f"twice the tangents of {list(places)} do not give twice "
                  "the result")
        if steps is not None:
            slopes = central_difference(case.numpy, case.wide, tangents, steps[0])
            case.same(_where_finite(got, slopes), slopes, f"tangents of arguments {list(places)}, compared with a "
                      "central difference", steps[1])


def _check_narrow_jvp(case: Case, tangents: Sequence[Any]) -> None:
    """In the dtypes of the arguments themselves: types, and the same while the rule is recorded."""
    primals, computed = case.jvp(case.args, tangents)
    case.typed(computed, case.avals(case.args), "the tangents")
    count = len(case.args)

    def rule(*tracers: Any) -> list[Any]:
        moved = iter(tracers[count:])
        given = [Zero(array_aval(arg)) if tangent is None else next(moved)  # type: ignore[arg-type]
                 for arg, tangent in zip(case.args, tangents, strict=True)]
        outputs, out_tangents = case.primitive.jvp(list(tracers[:count]), given, **case.params)
        return [*outputs, *out_tangents]

    case.recorded(rule, [*case.args, *(tangent for tangent in tangents if tangent is not None)],
                  [*primals, *computed], "the jvp rule")


def _where_finite(got: Sequence[Any], slopes: Sequence[Any]) -> list[Any]:
    """Return `got` except where an output is infinite or NaN, so that no difference can be compared with it."""
    return [np.where(np.isfinite(slope), tangent, slope) for tangent, slope in zip(got, slopes, strict=True)]


def _subsets(places: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all positions together, and each one alone."""
    yield tuple(places)
    if len(places) > 1:
        yield from ((place,) for place in places)


def _second_law(case: Case) -> None:
    steps = step_for(case.numpy(*case.wide))
    if not case.inexact or isinstance(case.primitive.jvp, MissingRule) or steps is None:
        return
    count = len(case.wide)
    tangents = [tangent for tangent in case.directions(case.inexact, case.wide) if tangent is not None]

    def first(*values: Any) -> list[Any]:
        spread = iter(values[count:])
        given = [next(spread) if place in case.inexact else Zero(array_aval(case.wide[place]))  # type: ignore[arg-type]
                 for place in range(count)]
        return [instantiate_zeros(tangent) for tangent in
                case.primitive.jvp(list(values[:count]), given, **case.params)[1]]

    values = [*case.wide, *tangents]
    program, captured = trace_at(first, [array_aval(value) for value in values],  # type: ignore[misc]
                                 mode=UNSHARED)
    moved = case.directions([*case.inexact, *range(count, len(values))], values)
    seeds = [Zero(array_aval(value)) for value in captured]  # type: ignore[arg-type]
    seeds += [Zero(array_aval(value)) if tangent is None else tangent  # type: ignore[arg-type]
              for value, tangent in zip(values, moved, strict=True)]
    with np.errstate(all="ignore"):
        _, second = push_forward(program, [*captured, *values], seeds)
        slopes = central_difference(lambda *at: [as_plain_array(tangent) for tangent in first(*at)], values, moved,
                                    steps[0])
    case.same(_where_finite(list(map(as_plain_array, second)), slopes), slopes,
              "the jvp of the jvp rule, compared with a central difference of it", 10 * steps[1])


def _transpose_law(case: Case) -> None:
    if not isinstance(case.primitive.transpose, MissingRule):
        for places in _linear_places(case):
            _check_transpose(case, places)
    if case.inexact and not isinstance(case.primitive.jvp, MissingRule):
        _check_adjoint(case)


def _linear_places(case: Case) -> Iterator[tuple[int, ...]]:
    """Set of arguments that the operation depends on and is linear in, found by trying."""
    def outputs(changed: dict[int, Any]) -> list[Any]:
        return case.numpy(*(changed.get(place, arg) for place, arg in enumerate(case.wide)))

    def depends(place: int) -> bool:
        original, moved = outputs({}), outputs({place: direction(case.random, case.wide[place])})
        return any(mismatch(x, y, 0.0) is not None for x, y in zip(original, moved, strict=True))

    candidates = [place for place in case.inexact if depends(place)]
    for size in range(len(candidates), 0, -1):
        for places in itertools.combinations(candidates, size):
            left, right = ({place: direction(case.random, case.wide[place]) for place in places} for _ in range(2))
            a, b = 0.75, -1.25
            both = {place: a * left[place] + b * right[place] for place in places}
            tolerance = max(1e-9, *(TOLERANCES.get(output.dtype.name, 0.0) for output in outputs({})))
            if all(dtypes.is_inexact(z.dtype) and mismatch(z, a * x + b * y, tolerance) is None
                   for x, y, z in zip(outputs(left), outputs(right), outputs(both), strict=True)):
                yield places


def _check_transpose(case: Case, places: tuple[int, ...]) -> None:
    tangents = case.directions(places, case.wide)
    args = [arg if tangent is None else tangent for arg, tangent in zip(case.wide, tangents, strict=True)]
    outputs = case.numpy(*args)
    cotangents = [direction(case.random, output) for output in outputs]
    try:
        arrays = _cotangents_of(case, places, args, cotangents)
    except LinearityError:
        return  # linear here by the numbers alone; the rule refuses it
    _adjoint(case, f"transposed in arguments {list(places)}", (cotangents, outputs),
             (arrays, [args[place] for place in places]))
    # In the dtypes of the arguments themselves: types, and the same while the rule is recorded.
    narrow = [direction(case.random, output) for output in case.numpy(*case.args)]
    _cotangents_of(case, places, case.args, narrow)
    known = [arg for place, arg in enumerate(case.args) if place not in places]
    case.recorded(
        lambda *tracers: _transpose(case, places, case.args, tracers[:len(narrow)], tracers[len(narrow):]),
        [*narrow, *known], _transpose(case, places, case.args, narrow, known), "the transpose rule")


def _transpose(case: Case, places: tuple[int, ...], args: Sequence[Any], cotangents: Sequence[Any],
               known: Sequence[Any]) -> Sequence[Any]:
    """Return the result of the transpose rule; `known` are the values of the nonlinear arguments."""
    values = iter(known)
    marked = [Linear(array_aval(arg)) if place in places else next(values)  # type: ignore[arg-type]
              for place, arg in enumerate(args)]
    back: Sequence[Any] = case.primitive.transpose(list(cotangents), marked, **case.params)
    return back


def _cotangents_of(case: Case, places: tuple[int, ...], args: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Return the cotangents of the linear arguments, with the types of these."""
    known = [arg for place, arg in enumerate(args) if place not in places]
    back = _transpose(case, places, args, cotangents, known)
    if len(back) != len(args):
        raise case.fail(f"the transpose rule returned {len(back)} cotangents for {len(args)} arguments")
    arrays = []
    for place, cotangent in enumerate(back):
        if place in places:
            array = np.zeros(np.shape(args[place])) if cotangent is None else as_plain_array(cotangent)
            if np.shape(array) != np.shape(args[place]) or \
                    (cotangent is not None and array.dtype != args[place].dtype):
                raise case.fail(f"cotangent {place} is {describe_arguments([array])}, its argument "
                                f"{describe_arguments([args[place]])}")
            arrays.append(array)
        elif cotangent is not None:
            raise case.fail(f"the transpose rule returned a cotangent for argument {place}, which is not linear")
    return arrays


def _check_adjoint(case: Case) -> None:
    """Check the derivative transposed by the interpreter, with every operation that the jvp rule records."""
    wrt = [place in case.inexact for place in range(len(case.wide))]
    tangents = case.directions(case.inexact, case.wide)
    _, forwards = case.jvp(case.wide, tangents)
    with np.errstate(all="ignore"):
        _, residuals, split = linearize_in_place(case.program(case.wide), case.wide, wrt)
        reached = [tangent for tangent, is_reached in zip(forwards, split.nonzero_outputs, strict=True) if is_reached]
        if any(not dtypes.is_inexact(tangent.dtype) for tangent in reached):
            raise case.fail("an output that is not inexact has a tangent")
        cotangents = [direction(case.random, tangent) for tangent in reached]
        back = [as_plain_array(cotangent) for cotangent in pull_back(split, residuals, cotangents)]
    given = [tangent for tangent in tangents if tangent is not None]
    for cotangent, tangent in zip(back, given, strict=True):
        if np.shape(cotangent) != np.shape(tangent) or cotangent.dtype != tangent.dtype:
            raise case.fail(f"the transposed derivative gives {describe_arguments([cotangent])} for "
                            f"{describe_arguments([tangent])}")
    if all(np.all(np.isfinite(tangent)) for tangent in reached):
        _adjoint(case, "derivative, transposed", (cotangents, reached), (back, given))


def _adjoint(case: Case, what: str, forwards: tuple[list[Any], list[Any]],
             backwards: tuple[list[Any], list[Any]]) -> None:
    tolerance = max(1e-9, *(TOLERANCES.get(output.dtype.name, 0.0) for output in forwards[1]), 0.0)
    wrong = mismatch(inner(*backwards), inner(*forwards), 10 * case.tolerance * tolerance)
    if wrong:
        raise case.fail(f"{what}: <Jᵀ c, t> is not <c, J t>: {wrong}")


def _batch_law(case: Case) -> None:
    if not case.args or isinstance(case.primitive.batch, MissingRule):
        return
    for chosen in _choices(len(case.args)):
        def placed(is_last: Callable[[int], bool], chosen: tuple[int, ...] = chosen) -> tuple[int | None, ...]:
            return tuple((np.ndim(arg) if is_last(place) else 0) if place in chosen else None
                         for place, arg in enumerate(case.args))

        # The batch axes all first, all last, and alternating.
        for axes in dict.fromkeys([placed(lambda place: False), placed(lambda place: True),
                                   placed(lambda place: place % 2 == 1)]):
            _check_batch(case, axes)


def _choices(count: int) -> Iterator[tuple[int, ...]]:
    """Set of batched arguments: every one of up to four, and else all, each alone, and each left out."""
    sizes = range(1, count + 1) if count <= 4 else (1, count - 1, count)
    for size in sizes:
        yield from itertools.combinations(range(count), size)


def _batch_entries(arg: Any) -> list[Any]:
    """Return the entries of a batch: `arg` and others in its range."""
    if arg.dtype.kind == "b":
        return [arg, ~arg, arg]
    if dtypes.is_key(arg.dtype):
        words = [arg["threefry2x32"] + np.uint32(added) for added in range(BATCH)]
        return [np.ascontiguousarray(each).view(arg.dtype).reshape(arg.shape)[()] for each in words]
    if dtypes.is_inexact(arg.dtype):
        return [arg, *((np.asarray(arg) * np.asarray(factor, arg.dtype)).astype(arg.dtype)[()]
                       for factor in (0.5, 0.75))]
    return [arg, arg // arg.dtype.type(2), arg]


def _check_batch(case: Case, axes: tuple[int | None, ...]) -> None:
    entries = [[arg] * BATCH if axis is None else _batch_entries(arg) for arg,
               axis in zip(case.args, axes, strict=True)]
    values = [arg if axis is None else np.stack(entry, axis)
              for arg, axis, entry in zip(case.args, axes, entries, strict=True)]
    loop = [case.numpy(*args) for args in zip(*entries, strict=True)]
    with np.errstate(all="ignore"):
        outputs, out_axes = case.primitive.batch(BATCH, values, list(axes), **case.params)
    what = f"batched along {list(axes)}"
    if len(outputs) != len(loop[0]) or len(out_axes) != len(outputs):
        raise case.fail(f"{what}: {len(outputs)} outputs and {len(out_axes)} axes, where {len(loop[0])} are expected")
    case.recorded(lambda *tracers: case.primitive.batch(BATCH, list(tracers), list(axes), **case.params)[0], values,
                  outputs, what)
    stacked = [np.stack(list(column)) for column in zip(*loop, strict=True)]
    moved = []
    for index, (output, axis) in enumerate(zip(outputs, out_axes, strict=True)):
        array = as_plain_array(output)
        if axis is None:  # the same for every entry
            moved.append(np.stack([array] * BATCH))
            continue
        if not isinstance(axis, int) or not 0 <= axis < np.ndim(array):
            raise case.fail(f"{what}: output {index} of shape {np.shape(array)} has the batch axis {axis}")
        moved.append(np.moveaxis(array, axis, 0))
    case.typed(moved, [Aval(array.shape, array.dtype) for array in stacked], what)
    case.same(moved, stacked, f"{what}, compared with a loop")


def _cost_law(case: Case) -> None:
    cost = case.primitive.cost(*(array_aval(arg) for arg in case.args), **case.params)
    if not isinstance(cost, Cost) or any(type(number) is not int or number < 0 for number in cost):
        raise case.fail(f"got {cost!r}; Cost(flops, bytes) of non-negative ints is needed")


def _text_law(case: Case) -> None:
    program = case.program(case.args)
    own = [type(value) for value in case.params.values() if isinstance(value, tuple | enum.Enum)]
    classes = [kind for kind in own if kind is not tuple]
    in_equations = functools.partial(program_text, style="equations")
    for form, write, read in (("text", program_text, parse), ("text in equations", in_equations, parse),
                              ("JSON", to_json, from_json)):
        try:
            text = write(program)
            back = read(text, [case.primitive], classes)
        except FxgradError as error:
            raise case.fail(f"its {form} cannot be read back: {error}") from error
        if not equal(program, back):
            raise case.fail(f"its {form} is read back as another program:\n{text}\nas\n{program_text(back)}")
        with np.errstate(all="ignore"):
            case.same(apply_program(back, case.args), case.numpy(*case.args), f"the program read from {form}", 0.0)


def _sparsity_law(case: Case) -> None:
    if isinstance(case.primitive.transpose, MissingRule) or sparsity_rules.known(case.primitive).state != "entered":
        return
    with np.errstate(all="ignore"):
        for places in _linear_places(case):
            if len(places) == 1 and case.wide[places[0]].size <= _ELEMENTS:
                _check_pattern(case, places[0])


_ELEMENTS = 100
"""The most elements of an argument that are changed one by one."""


def _check_pattern(case: Case, place: int) -> None:
    """Raise unless each element of the argument changes elements alone that depend on it by the rule."""
    given = np.asarray(case.wide[place])
    values = [identity(given.shape, 0, given.size) if number == place else np.asarray(arg)
              for number, arg in enumerate(case.wide)]
    found, _ = dependences(case.program(case.wide), values, given.size)
    masks = [np.zeros((np.size(output), given.size), bool) if type(each) is not Dependence else each.matrix().toarray()
             for each, output in zip(found, case.numpy(*case.wide), strict=True)]

    def outputs(changed: Any) -> list[Any]:
        return [np.ravel(output) for output in case.numpy(*(
            changed.reshape(given.shape)[()] if number == place else arg for number, arg in enumerate(case.wide)))]

    zero = np.zeros(given.size, given.dtype)
    still = outputs(zero)
    for element in range(given.size):
        unit = zero.copy()
        unit[element] = 1
        for index, (output, before, mask) in enumerate(zip(outputs(unit), still, masks, strict=True)):
            differs = (output != before) & ~(np.isnan(output) & np.isnan(before))
            changed = np.flatnonzero(differs & ~mask[:, element])
            if changed.size:
                raise case.fail(f"element {element} of argument {place} changes element {changed[0]} of output "
                                f"{index}, which does not depend on it by the rule")


LAWS: tuple[str, ...] = ("numpy", "xla", "jvp", "transpose", "batch", "second", "cost", "sparsity", "text")
"""The names of the laws, in the order in which they are checked."""

_CHECKS: dict[str, Callable[[Case], None]] = {
    "numpy": _numpy_law, "xla": _xla_law, "jvp": _jvp_law, "transpose": _transpose_law, "batch": _batch_law,
    "second": _second_law, "cost": _cost_law, "sparsity": _sparsity_law, "text": _text_law,
}
