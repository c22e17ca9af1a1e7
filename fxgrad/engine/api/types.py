"""Types of arrays as callers see them: `typeof`, and `ShapeDtypeStruct`, the type in place of an array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.avals import Aval, struct_aval
from fxgrad.engine.executors.xla import x64
from fxgrad.engine.frontend.flat import leaf_aval
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


@dataclass(frozen=True, repr=False)
class ArrayType:
    """The type of an array or number: shape, dtype, weakness, sharding, and the axes along which it varies.

    `sharding` is that of a `jax.Array`, and None for all others: the types of programs hold no placement. `vma` has the
    mesh axes along which a value varies within `shard_map`. It prints as jax's types do.

    >>> import numpy as np, fxgrad
    >>> print(fxgrad.typeof(np.ones((2, 3), np.float32)), fxgrad.typeof(1.0))
    float32[2,3] ~float64[]
    """

    shape: tuple[Any, ...]
    dtype: Any
    weak_type: bool = False
    sharding: Any = None
    vma: frozenset[str] = frozenset()

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.aval.nbytes

    @property
    def aval(self) -> Aval:
        """The type as an `Aval`."""
        return Aval(self.shape, self.dtype, self.weak_type, self.vma)

    def str_short(self, short_dtypes: bool = False) -> str:
        """Return the text of the type; with `short_dtypes` `f32[3]`, in place of `float32[3]`."""
        name = dtypes.short_name(self.dtype) if short_dtypes else dtypes.shown_name(self.dtype)
        cut = [None] * self.ndim if self.sharding is None else [*self.sharding.spec, *[None] * self.ndim]
        cuts = zip(self.shape, cut, strict=False)
        sizes = [f"{size}@{_axes_text(names)}" if names else str(size) for size, names in cuts]
        varying = f"{{V:{','.join(sorted(self.vma))}}}" if self.vma else ""
        return f"{'~' * self.weak_type}{name}[{','.join(sizes)}]{varying}"

    def __repr__(self) -> str:
        return self.str_short()


def _axes_text(names: Any) -> str:
    return names if isinstance(names, str) else f"({','.join(names)})"


def typeof(x: Any) -> ArrayType:
    """Return the type of an array, a tracer, a number, or a `ShapeDtypeStruct`, without reading its values.

    Raises `ArgumentError` for anything else.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(lambda row: print(fxgrad.typeof(row)))(np.ones((2, 3)))
    float64[3]
    >>> fxgrad.typeof(np.arange(4)).shape
    (4,)
    """
    aval = leaf_aval(x)
    if aval is None:
        aval = struct_aval(x)
    if aval is None:
        raise ArgumentError(at_user_line(
            f"typeof: got a {type(x).__name__}, where an array or a number is needed; for a container write "
            "fxgrad.tree.map(fxgrad.typeof, x)"))
    sharding = None
    if isinstance(x, jax.Array):
        sharding = jax.typeof(x).sharding
    return ArrayType(aval.shape, aval.dtype, aval.weak, sharding, aval.vma)


class _Types(type):
    """A metaclass: instances are jax's, of whichever of the two classes made them."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, tree.ShapeDtypeStruct)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, tree.ShapeDtypeStruct)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is tree.ShapeDtypeStruct

    def __hash__(cls) -> int:
        return hash(tree.ShapeDtypeStruct)


class ShapeDtypeStruct(metaclass=_Types):
    """A shape and a dtype in place of an array: `ShapeDtypeStruct((2, 3), "float32")`.

    It makes objects of `jax.ShapeDtypeStruct`, and takes the same options: `sharding`, `weak_type`. `eval_shape`,
    `make_program`, `jit(f).lower` and all other functions of types accept it in place of an array.

    >>> import numpy as np, fxgrad
    >>> fxgrad.eval_shape(np.transpose, fxgrad.ShapeDtypeStruct((2, 3), "float32"))
    ShapeDtypeStruct(shape=(3, 2), dtype=float32)
    """

    def __new__(cls, shape: Any, dtype: Any, **options: Any) -> Any:
        """Return an object of `jax.ShapeDtypeStruct`."""
        build: Any = tree.ShapeDtypeStruct
        return build(shape, dtype, **options)

    @staticmethod
    def like(x: Any) -> Any:
        """Return the type of `x`: an array (with the sharding of a `jax.Array`), a tracer, or a number.

        64-bit dtypes stay 64-bit. Raises `ArgumentError` for all else.

        >>> import numpy as np, fxgrad
        >>> fxgrad.ShapeDtypeStruct.like(np.ones(3))
        ShapeDtypeStruct(shape=(3,), dtype=float64)
        """
        if isinstance(x, jax.Array | tree.ShapeDtypeStruct):
            with x64():
                return tree.ShapeDtypeStruct.like(x)
        aval = leaf_aval(x)
        if aval is None:
            raise ArgumentError(at_user_line(
                f"ShapeDtypeStruct.like: got a {type(x).__name__}, where an array or a number is needed; for a "
                "container write fxgrad.tree.map(fxgrad.ShapeDtypeStruct.like, x)"))
        return aval.struct
