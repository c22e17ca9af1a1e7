"""Lower equations to instructions before fusion: quotients rewritten, products canonical, loops with buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from fxgrad.extend import Analysis, Equation, Region, primitives
from fxgrad.extend.analyses import ALIAS, BARRIER, CHEAP, EXPENSIVE, LOOP, Flow
from fxgrad.tools.profiling.elements import add_element
from fxgrad.tools.profiling.instructions import (
    BROADCAST,
    CONCATENATE,
    ELEMENT,
    GATHER,
    IOTA,
    LEAST,
    OPAQUE,
    PAD,
    PART,
    PRODUCT,
    REDUCE,
    SLICE,
    TAKE,
    TRANSPOSE,
    UPDATE,
    Instructions,
    Shape,
)

_WINDOW = 32
"""Reductions over more elements than this take two steps, unless the library computes them."""
_WIDE = 16
"""Convolutions of no more features than this are not computed by the library."""
_SHORTEST = 8
"""Products whose sizes are all less than this are not computed by the library, either."""

_Rule = Callable[[Instructions, Equation, list[int]], None]
_rules: Analysis[_Rule | None] = Analysis(
    "instructions", "The instructions of an operation that does not act on each element; others are kernels.",
    missing="conservative", default=None)


def lower_flow(flow: Flow, region: Region | None = None) -> Instructions:
    """Return the instructions of a program, or of the body of a loop."""
    entries = () if region is None else {
        value for value, link in zip(flow.inputs, region.inputs, strict=True) if link.how == "entry"}
    made = Instructions(flow, entries)
    for step, equation in enumerate(flow.equations):
        made.step = step
        _lower(made, equation)
    return made


def _lower(made: Instructions, equation: Equation) -> None:
    """Add the instructions of a step."""
    flow, of = made.flow, made.of
    kind, makes = flow.kinds[made.step], made.makes
    if kind in (CHEAP, EXPENSIVE):
        of[makes[0]] = add_element(made, equation, kind == EXPENSIVE, makes[0])
        return
    reads = [each for each in made.operands(equation) if type(each) is int]
    if kind == BARRIER and len(reads) == len(makes):
        of.update(zip(makes, reads, strict=True))
        return
    if kind == ALIAS and reads:
        of[makes[0]] = made.add_reshape(reads[0], flow.avals[makes[0]].shape)
        return
    rule = _rules.of(equation.primitive)
    if rule is not None:
        rule(made, equation, reads)
    elif kind == LOOP:
        _lower_loop(made, equation, reads, makes)
    else:
        _kernel(made, reads, makes)


def _kernel(made: Instructions, reads: list[int], makes: list[int]) -> int:
    """Add a kernel, with a part for each of several results."""
    if len(makes) == 1:
        found = made.of[makes[0]] = made.add(OPAQUE, reads, made.flow.avals[makes[0]].shape, makes[0])
        return found
    found = made.add(OPAQUE, reads, (0,), makes[0] if makes else 0)
    for value in makes:
        made.of[value] = made.add(PART, [found], made.flow.avals[value].shape, value)
    return found


def _lower_loop(made: Instructions, equation: Equation, reads: list[int], makes: list[int]) -> None:
    """Add a loop, with buffers for its stacked results; it overwrites these, and its carry."""
    stacked = {link.place for region in equation.regions for link in region.outputs if link.how == "entry"}
    carried: dict[int, int] = {}
    operands = made.operands(equation)
    for region in equation.regions:
        ends = [link.place for link in region.outputs if link.how == "carry"]
        begins = [link.place for link in region.inputs if link.how == "carry"]
        carried.update(zip(ends, begins, strict=False))
    reads = [*reads]
    over: dict[int, int] = {}
    for place, value in enumerate(makes):
        if place in stacked:
            over[place] = made.add(BROADCAST, [], made.flow.avals[value].shape, value)
            made.constants[over[place]] = "stacked", over[place]
            reads.append(over[place])
        elif place in carried:
            start = operands[carried[place]]
            if type(start) is not int:
                start = made.constant(start, made.flow.avals[value].shape, value)
                reads.append(start)
            over[place] = start
    found = made.add(OPAQUE, reads, (0,), makes[0] if makes else 0)
    for place, value in enumerate(makes):
        part = made.of[value] = made.add(PART, [found], made.flow.avals[value].shape, value)
        if place in over:
            made.over[part] = [over[place]]
        if place in carried:
            made.carried.setdefault(found, []).append(part)


# --- other than elementwise ---------------------------------------------------------------------------------------


@_rules.register(primitives.broadcast_to, primitives.broadcast_in_dim)
def _lower_repeat(made: Instructions, equation: Equation, _reads: list[int]) -> None:
    value, = made.makes
    shape = made.flow.avals[value].shape
    operand, *_ = made.operands(equation)
    if type(operand) is not int:
        made.of[value] = made.constant(operand, shape, value)
        return
    rank = len(made.shapes[operand])
    axes = equation.params.get("broadcast_dimensions", tuple(range(len(shape) - rank, len(shape))))
    made.of[value] = made.repeated(operand, shape, tuple(axes))


@_rules.register(primitives.transpose)
def _lower_transpose(made: Instructions, equation: Equation, reads: list[int]) -> None:
    value, = made.makes
    made.of[value] = made.turned(reads[0], equation.params["permutation"])


def _simple_rule(kind: int, costly: bool = False, offers: bool = False) -> _Rule:
    def rule(made: Instructions, _equation: Equation, reads: list[int]) -> None:
        value, = made.makes
        made.of[value] = made.add(kind, reads, made.flow.avals[value].shape, value, costly,
                                   offers and made.flow.avals[value].dtype.kind == "f")
    return rule


_rules.enter(_simple_rule(SLICE), primitives.slice, primitives.rev, primitives.tile)
_rules.enter(_simple_rule(TAKE), primitives.dynamic_slice)
_rules.enter(_simple_rule(UPDATE), primitives.dynamic_update_slice)
_rules.enter(_simple_rule(IOTA, offers=True), primitives.iota)


def _wrapped_indices(made: Instructions, node: int) -> int:
    """Return the instruction of indices in which negative ones count from the end."""
    return made.once(("indices", node), ELEMENT, [node], made.shapes[node], made.like[node], name="indices")


def _with_batches(made: Instructions, equation: Equation, node: int) -> int:
    """Return the indices with those of the batch axes that operand and indices share."""
    batches = len(equation.params["operand_batching_dims"])
    if not batches:
        return node
    *shape, width = made.shapes[node]
    return made.once(("batches", node, batches), CONCATENATE, [node], (*shape, width + batches), made.like[node])


@_rules.register(primitives.gather)
def _lower_gather(made: Instructions, equation: Equation, reads: list[int]) -> None:
    """Add a gather; out-of-range results are replaced unless the mode says otherwise."""
    value, = made.makes
    shape = made.flow.avals[value].shape
    if len(reads) != 2:
        _kernel(made, reads, [value])
        return
    places = _wrapped_indices(made, reads[1])
    found = made.add(GATHER, [reads[0], _with_batches(made, equation, places)], shape, value, costly=True)
    if equation.params["mode"] not in ("promise_in_bounds", "clip"):
        inside = made.once(("inside", places), SLICE, [places], made.shapes[places][:-1], made.like[places])
        found = made.add(ELEMENT, [found, inside], shape, value, name="select_n")
    made.of[value] = found


@_rules.register(primitives.scatter, primitives.scatter_add, primitives.scatter_sub, primitives.scatter_mul,
                 primitives.scatter_min, primitives.scatter_max)
def _lower_scatter(made: Instructions, equation: Equation, reads: list[int]) -> None:
    """Add a scatter, which writes over its operand."""
    value, = made.makes
    if len(reads) == 3:
        reads = [reads[0], _with_batches(made, equation, _wrapped_indices(made, reads[1])), reads[2]]
    found = made.of[value] = made.add(OPAQUE, reads, made.flow.avals[value].shape, value)
    made.over[found] = reads[:1]


@_rules.register(primitives.select_and_scatter_add)
def _lower_scatter_to_largest(made: Instructions, _equation: Equation, reads: list[int]) -> None:
    """Add the search for the largest elements along each axis, and a scatter to them."""
    value, = made.makes
    if len(reads) != 2:
        _kernel(made, reads, [value])
        return
    source, operand = reads
    shape, small = made.shapes[operand], made.shapes[source]
    axes = [made.add(IOTA, [], shape, value) for _ in shape]
    found = made.add(OPAQUE, [operand, *axes], (0,), value)
    places = [made.add(PART, [found], small, value) for _ in shape]
    made.carried[found] = [made.add(PART, [found], small, value)]
    indices = made.add(CONCATENATE, places, (prod(small), len(shape)), value)
    zeros = made.constant(0.0, shape, value)
    last = made.of[value] = made.add(OPAQUE, [zeros, indices, source], shape, value)
    made.over[last] = [zeros]


@_rules.register(primitives.real, primitives.imag)
def _lower_part(made: Instructions, _equation: Equation, reads: list[int]) -> None:
    value, = made.makes
    made.of[value] = made.add(ELEMENT, reads, made.flow.avals[value].shape, value)


@_rules.register(primitives.pad)
def _lower_pad(made: Instructions, equation: Equation, reads: list[int]) -> None:
    value, = made.makes
    holes = any(hole for _, _, hole in equation.params["padding_config"])
    made.of[value] = made.add(PAD, reads, made.flow.avals[value].shape, value,
                               offers=not holes and made.floats[reads[0]] if reads else False)


@_rules.register(primitives.concatenate, primitives.stack)
def _lower_join(made: Instructions, equation: Equation, reads: list[int]) -> None:
    value, = made.makes
    shape = made.flow.avals[value].shape
    axis = equation.params.get("axis", equation.params.get("dimension", 0))
    found = made.of[value] = made.add(CONCATENATE, reads, shape, value)
    if axis % max(len(shape), 1) == len(shape) - 1 and len(shape) > 1:
        made.names[found] = "in rows"


@_rules.register(primitives.split, primitives.unstack)
def _lower_split(made: Instructions, equation: Equation, reads: list[int]) -> None:
    for value in made.makes:
        shape = made.flow.avals[value].shape
        whole = shape
        if equation.primitive is primitives.unstack:
            axis = equation.params["axis"]
            whole = (*shape[:axis], 1, *shape[axis:])
        made.of[value] = made.add_reshape(made.add(SLICE, reads, whole, value), shape)


@_rules.register(primitives.reduce_sum, primitives.reduce_prod, primitives.reduce_max, primitives.reduce_min,
                 primitives.reduce_and, primitives.reduce_or, primitives.reduce_xor)
def _lower_reduction(made: Instructions, equation: Equation, reads: list[int]) -> None:
    value, = made.makes
    if not reads:
        _kernel(made, reads, [value])
        return
    operand, = reads
    axes = equation.params["axes"]
    shape = made.shapes[operand]
    negated = made.names[operand] == "neg" and equation.primitive is primitives.reduce_sum
    if negated:  # the sum is
        operand, = made.reads[operand]
    offered = made.floats[operand] and equation.primitive in (
        primitives.reduce_sum, primitives.reduce_max, primitives.reduce_min) and made.elements[operand] >= LEAST
    while not offered and any(shape[axis] > _WINDOW for axis in axes):
        shape = tuple([-(-size // _WINDOW) if axis in axes else size for axis, size in enumerate(shape)])
        operand = made.add(OPAQUE, [operand], shape, value)
    found = made.once((equation.primitive, axes, operand, made.flow.waits.get(made.step)), REDUCE, [operand],
                       made.flow.avals[value].shape, value, costly=True, offers=offered, name=equation.primitive.name)
    made.of[value] = found if not negated else made.add(ELEMENT, [found], made.shapes[found], value,
                                                         offers=made.floats[found], name="neg")


@_rules.register(primitives.reduce_window_max, primitives.reduce_window_min, primitives.reduce_window_sum)
def _lower_window_reduction(made: Instructions, equation: Equation, reads: list[int]) -> None:
    """Add a reduction of windows; the library has those side by side."""
    value, = made.makes
    params = equation.params
    sizes = params["window_dimensions"]
    offered = bool(reads) and made.floats[reads[0]] and made.elements[reads[0]] >= LEAST and max(sizes) > 1 and all(
        stride == size for stride, size in zip(params["window_strides"], sizes, strict=True) if max(stride, size) > 1
    ) and {*params["base_dilation"], *params["window_dilation"]} <= {1}
    made.of[value] = made.add(OPAQUE, reads, made.flow.avals[value].shape, value, offers=offered)


@_rules.register(primitives.dot_general)
def _lower_product(made: Instructions, equation: Equation, reads: list[int]) -> None:
    """Add a product in the compiler's order: batches, rows, columns; vectors have one of these."""
    value, = made.makes
    contracted, batches = equation.params["dimension_numbers"]
    if len(reads) != 2:
        _kernel(made, reads, [value])
        return
    count = len(batches[0])
    sides = []
    for node, summed, batch in zip(reads, contracted, batches, strict=True):
        shape = made.shapes[node]
        sides.append((node, [axis for axis in range(len(shape)) if axis not in summed and axis not in batch],
                      summed, batch))
    rows, columns = (prod([made.shapes[node][axis] for axis in rest]) for node, rest, _, _ in sides)
    depth = prod([made.shapes[reads[0]][axis] for axis in contracted[0]])
    shape = made.flow.avals[value].shape
    if depth == 1:  # no sum
        made.of[value] = _outer_product(made, sides, shape, value)
        return
    operands, lies = [], []
    for place, (whole, rest, summed, batch) in enumerate(sides):
        node = whole
        lead = tuple([made.shapes[node][axis] for axis in batch])
        at = summed[0] if len(summed) == 1 else -1
        if len(rest) == 1 and at >= 0 and tuple(batch) == tuple(range(count)):  # no copy is needed
            if made.kinds[node] == TRANSPOSE and made.axes[node] == (*range(count), count + 1, count):
                node, = made.reads[node]
                at = 2 * count + 1 - at
        else:
            order = (*batch, *rest, *summed) if place == 0 else (*batch, *summed, *rest)
            node = made.add_reshape(made.turned(node, order),
                                 (*lead, rows, depth) if place == 0 else (*lead, depth, columns))
            at = count + 1 - place
        operands.append(node)
        lies.append(at)
    offered = lies[0] == count + 1 and all(made.floats[each] for each in operands) and min(rows, columns) > 1 and max(
        rows, columns, depth) >= _SHORTEST
    own = (*shape[:count], rows, columns)
    found = made.add(PRODUCT, operands, own, value, costly=True, offers=offered)
    made.swaps[found] = lies[1] == count + 1 and all(made.floats[each] for each in operands) and min(
        rows, columns) > 1 and max(rows, columns, depth) >= _SHORTEST
    made.of[value] = made.add_reshape(found, shape)


def _outer_product(made: Instructions, sides: list[tuple[int, list[int], Sequence[int], Sequence[int]]], shape: Shape,
                   value: int) -> int:
    """Return a product without a summed axis, as an elementwise instruction."""
    laid, place = [], len(sides[0][3])
    for node, rest, _, batch in sides:
        axes = [-1] * len(made.shapes[node])
        for at, axis in enumerate(batch):
            axes[axis] = at
        for axis in rest:
            axes[axis], place = place, place + 1
        laid.append(made.repeated(node, shape, tuple(axes)))
    return made.add_elementwise(laid, shape, value, costly=False, offered=True, name="mul")


@_rules.register(primitives.lu, primitives.cholesky)
def _lower_factorization(made: Instructions, _equation: Equation, reads: list[int]) -> None:
    """Add a factorization, written over a column-major copy, and scanned afterwards."""
    values = made.makes
    shape = made.shapes[reads[0]]
    columns = made.add(TRANSPOSE, reads, shape, values[0])
    found = made.add(OPAQUE, [columns], (0,), values[0])
    parts_of = [made.add(PART, [found], made.flow.avals[value].shape, value) for value in values]
    made.over[parts_of[0]] = [columns]
    made.of.update(zip(values, parts_of, strict=True))
    made.of[values[0]] = made.add(ELEMENT, parts_of[:1], shape, values[0], name="factor")


@_rules.register(primitives.lu_solve, primitives.triangular_solve)
def _lower_solve(made: Instructions, equation: Equation, reads: list[int]) -> None:
    """Add a solve, written over a column-major copy of the right-hand side."""
    value, = made.makes
    *factors, right = reads
    factors = factors[1:] or factors  # the factored matrix is not read
    found = made.add(TRANSPOSE, [right], made.shapes[right], value)
    for _ in range(1 if equation.primitive is primitives.triangular_solve else 2):
        before = found
        found = made.add(OPAQUE, [*factors, before], made.shapes[right], value)
        made.over[found] = [before]
    made.of[value] = made.add_reshape(found, made.flow.avals[value].shape)


@_rules.register(primitives.conv_general_dilated)
def _lower_convolution(made: Instructions, equation: Equation, reads: list[int]) -> None:
    """Add a convolution in the compiler's order: batch, space, feature; kernels space, in, out."""
    value, = made.makes
    if len(reads) != 2:
        _kernel(made, reads, [value])
        return
    params = equation.params
    images, kernel, results = params["dimension_numbers"]
    last = len(images) - 1
    space_axes = range(1, last)
    image = made.turned(reads[0], (images[0], *images[2:], images[1]))
    window = made.turned(reads[1], (*kernel[2:], kernel[1], kernel[0]))
    shape = made.flow.avals[value].shape
    order = (results[0], *results[2:], results[1])
    own = tuple([shape[axis] for axis in order])
    offered = (last == 3 and made.floats[image] and made.floats[window] and params["batch_group_count"] == 1
               and all(hole == 1 for hole in params["lhs_dilation"])
               and max(made.shapes[image][-1], own[-1]) > _WIDE
               and all(made.shapes[image][axis] >= max(own[axis], made.shapes[window][axis - 1])
                       for axis in space_axes))
    found = made.add(PRODUCT, [image, window], own, value, costly=True, offers=offered)
    made.of[value] = made.turned(found, sorted(range(last + 1), key=order.__getitem__))
