"""The memory that NumPy's kernels need beside operands and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.program import Equation
from fxgrad.engine.ops import products
from fxgrad.engine.ops.convolution import PATCH_LIMIT, conv_general_dilated_p, dilated, geometry_of

work_space: Analysis[Callable[[Equation], int] | None] = Analysis("work space", missing="conservative", default=None)
"""The bytes of what the kernel of an operation makes for itself; None where that is little."""


@work_space.register(conv_general_dilated_p)
def _of_convolution(equation: Equation) -> int:
    """The padded image, the kernel in the order of rows, and the patches, or one place of each at a time."""
    geometry = geometry_of(equation.params)
    image, kernel = (atom.aval for atom in equation.inputs)
    made = equation.outputs[0].aval
    (batch, features, *space), window, (_, _, *places) = geometry.dimension_numbers
    if not made.size or not kernel.size:
        return 0
    sizes = [dilated(image.shape[axis], holes) + low + high
             for axis, holes, (low, high) in zip(space, geometry.lhs_dilation, geometry.padding, strict=True)]
    images, channels = image.shape[batch], image.shape[features]
    padded = images * channels * prod(sizes)
    patches = images * channels * prod(kernel.shape[axis] for axis in window[2:]) * prod(
        made.shape[axis] for axis in places)
    if patches > PATCH_LIMIT:
        patches = images * channels * prod(made.shape[axis] for axis in places) + made.size
    width = max(made.dtype.itemsize, 4)  # narrow floats are summed in float32
    return int((padded + patches + kernel.size) * width)


@work_space.register(products.dot_general_p)
def _of_product(equation: Equation) -> int:
    """Copies of operands in which the axes of a matrix do not stand side by side."""
    ((first, second), batches) = equation.params["dimension_numbers"]
    if [*first] != sorted(first):
        first, second = zip(*sorted(zip(first, second, strict=True)), strict=True)
    copied = 0
    for atom, contracted, batch in zip(equation.inputs, (first, second), batches, strict=True):
        shape = atom.aval.shape
        free = [axis for axis in range(len(shape)) if axis not in contracted and axis not in batch]
        if not (_stand_together(free, shape) and _stand_together(contracted, shape)):
            copied += atom.aval.nbytes
    return copied


def _stand_together(axes: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether the elements along these axes, in this order, lie at equal distances in an array in the order of rows."""
    moving = [axis for axis in axes if shape[axis] != 1]
    between = [axis for axis in range(len(shape)) if shape[axis] != 1]
    return not moving or between[(at := between.index(moving[0])):at + len(moving)] == moving
