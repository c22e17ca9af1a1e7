"""Points by the nearest of a few others."""

from __future__ import annotations

from typing import Any

from fxgrad import numpy as fnp
from fxgrad.engine.frontend.operands import inexact_operands, shape_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ShapeError

__all__ = ["vq"]


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """For each row of `obs` the number of the nearest row of `code_book`, and how far away it is.

    Vectors count as rows of one number. Raises `ShapeError` if the rows have different lengths.

    >>> import numpy as np
    >>> numbers, distances = vq(np.array([[0.0, 0.1], [2.0, 2.0]]), np.array([[0.0, 0.0], [2.0, 1.0]]))
    >>> numbers, distances
    (array([0, 1], dtype=int32), array([0.1, 1. ]))
    """
    del check_finite
    obs, code_book = inexact_operands(obs, code_book)
    if len(shape_of(obs)) == 1:
        obs, code_book = obs[:, None], code_book[:, None]
    if len(shape_of(obs)) != 2 or shape_of(obs)[1:] != shape_of(code_book)[1:]:
        raise ShapeError(at_user_line(f"vq: obs of shape {shape_of(obs)} and code_book of shape {shape_of(code_book)}; "
                                      "two matrices with rows of one length are needed"))
    squared = fnp.sum(fnp.square(obs[:, None, :] - code_book[None, :, :]), axis=-1)
    numbers = fnp.argmin(squared, axis=1).astype("int32")
    return numbers, fnp.sqrt(fnp.min(squared, axis=1))
