"""Elementwise operations as instructions: division becomes multiplication, and reshapes move after them."""

from __future__ import annotations

from collections.abc import Sequence

from fxgrad.extend import Atom, Equation, primitives
from fxgrad.extend.analyses import offloaded
from fxgrad.tools.profiling.instructions import BROADCAST, ELEMENT, RESHAPE, Instructions, Shape


def add_element(made: Instructions, equation: Equation, costly: bool, value: int) -> int:
    """Return the instruction of an elementwise operation."""
    primitive = equation.primitive
    shape = made.flow.avals[value].shape
    operands = made.operands(equation)
    if primitive is primitives.convert_element_type and type(operands[0]) is int and (
            made.flow.avals[value].dtype == equation.inputs[0].aval.dtype):
        return operands[0]
    if primitive is primitives.div and type(operands[0]) is type(operands[1]) is int:
        found = _quotient(made, operands[0], operands[1], shape, value)
        if found >= 0:
            return found
    offered = offloaded.of(primitive)
    source = _before_reshape(made, operands, shape) if shape else ()
    if source:  # it acts before the shape is another
        operands = [each if type(each) is not int or made.kinds[each] != RESHAPE else made.reads[each][0]
                    for each in operands]
        inner, shape = shape, source
    if primitive is primitives.logistic and type(operands[0]) is int:
        power = made.add_elementwise([operands[0]], shape, value, costly=True, offered=True, name="exp")
        found = made.add_elementwise([made.constant(1.0, shape, value), power], shape, value, costly=True,
                                  offered=True, name="logistic")
        return made.add_reshape(found, inner) if source else found
    like = value
    if made.flow.avals[value].dtype.kind == "b" and made.flow.reads[made.step]:  # bools are compared with numbers
        like = made.flow.reads[made.step][0]
    shapes = made.shapes
    read = [each if type(each) is int and shapes[each] == shape else made.laid_out(each, shape, like)
            for each in operands]
    params = equation.params
    key = primitive if not params else (primitive, *[(name, str(params[name])) for name in sorted(params)])
    found = made.add_elementwise([each for each in read if each >= 0], shape, value, costly, offered,
                              primitive.name, key)
    return made.add_reshape(found, inner) if source else found


def _before_reshape(made: Instructions, operands: Sequence[int | Atom], shape: Shape) -> Shape:
    """Return the shape of all operands before a reshape that only this step reads; () if there is none."""
    found: Shape = ()
    kinds = made.kinds
    if all(type(operand) is not int or kinds[operand] != RESHAPE for operand in operands):
        return found
    for operand, value in zip([each for each in operands if type(each) is int],
                              made.flow.reads[made.step], strict=True):
        if operand in made.constants and made.shapes[operand] == shape:
            continue
        if made.kinds[operand] != RESHAPE or made.shapes[operand] != shape or {*made.users[value]} != {made.step}:
            return ()
        before = made.shapes[made.reads[operand][0]]
        if found and before != found:
            return ()
        found = before
    return found


def _quotient(made: Instructions, dividend: int, divisor: int, shape: Shape, value: int) -> int:
    """Return the product with the inverse, if that has fewer elements or is that of a root; otherwise -1."""
    if not made.floats[dividend] or dividend in made.constants:
        return -1
    laid = made.laid_out(divisor, shape, value)
    is_root = made.names[divisor] == "sqrt"
    if is_root and 1 not in made.shapes[divisor]:
        if len(made.users[made.flow.reads[made.step][-1]]) > 1:
            return -1
    elif made.kinds[laid] != BROADCAST or laid in made.constants:
        return -1
    else:
        is_root = False
    source = divisor if is_root else made.reads[laid][0]
    small = made.shapes[source]
    one = [made.constant(1.0, small, value)] if small and not is_root else []
    inverse = made.once(("inverse", source), ELEMENT, [*one, *(made.reads[source] if is_root else [source])],
                         small, value, costly=True, offers=True, name="rsqrt" if is_root else "div")
    if made.kinds[laid] == BROADCAST:
        inverse = made.repeated(inverse, shape, made.axes[laid])
    return made.add_elementwise([made.laid_out(dividend, shape, value), inverse], shape, value, False, True, "mul")
