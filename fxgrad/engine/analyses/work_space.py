"""The work space that NumPy's kernels allocate beside operands and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.program import Equation
from fxgrad.engine.ops import products
from fxgrad.engine.ops.convolution import PATCH_LIMIT, conv_general_dilated_p, dilated, geometry_of

work_space: Analysis[Callable[[Equation], int] | None] = Analysis(
    "work space", "The bytes that the NumPy kernel allocates beside operands and results, where these are many.",
    missing="conservative", default=None)


@work_space.register(conv_general_dilated_p)
def _of_convolution(equation: Equation) -> int:
    """Return the bytes of the padded image, the row-major kernel, and the patches or one place of each."""
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
    """Return the bytes of copies of operands in which the axes of a matrix are not adjacent."""
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
    """Return whether the elements along these axes, in this order, are evenly spaced in a row-major array."""
    moving = [axis for axis in axes if shape[axis] != 1]
    between = [axis for axis in range(len(shape)) if shape[axis] != 1]
    return not moving or between[(at := between.index(moving[0])):at + len(moving)] == moving
