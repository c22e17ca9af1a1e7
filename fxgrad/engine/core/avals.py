"""Abstract values: the properties of an array known before it is computed (shape, dtype, weakness)."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.export import is_symbolic_dim

from fxgrad.engine import dtypes
from fxgrad.engine.caches import Cache
from fxgrad.engine.core.arrays import Array, Integer, WeakArray, make_weak
from fxgrad.engine.core.sizes import SymbolicDim, parse_size
from fxgrad.engine.dtypes import DType
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError, ShapeError

Shape = tuple[int, ...]


INVARIANT: frozenset[str] = frozenset()
"""The vma of a value that is equal on all devices, or that only one device computes."""


class Aval:
    """The type of an array: `shape`, `dtype`, and whether the dtype is weak (that of a Python scalar).

    Within a program that each device of a mesh runs on its own pieces, `vma` has the names of the mesh axes along which
    the devices may have different values ("varying manual axes", as jax calls them); elsewhere it is empty.

    >>> Aval((2, 3), np.dtype("float32"))
    f32[2,3]
    >>> Aval((2, 3), np.dtype("float32")).varying({"data"})
    f32[2,3]{data}
    """

    # A plain class with a stored hash: avals are dictionary keys on the path of every recorded operation.
    __slots__ = ("_hash", "dtype", "shape", "vma", "weak")

    shape: Shape
    dtype: DType
    weak: bool
    vma: frozenset[str]

    def __init__(self, shape: Shape, dtype: DType, weak: bool = False, vma: frozenset[str] = INVARIANT) -> None:
        self.shape, self.dtype, self.weak, self.vma = shape, dtype, weak, vma
        self._hash = hash((shape, dtype, weak))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Aval) and self.shape == other.shape and self.dtype == other.dtype
                                 and self.weak == other.weak and self.vma == other.vma)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Aval, (self.shape, self.dtype, self.weak, self.vma)  # hashes are valid in one process only

    def __repr__(self) -> str:
        size = ",".join(map(str, self.shape))
        names = [name if name.isidentifier() else json.dumps(name, ensure_ascii=False) for name in sorted(self.vma)]
        varying = f"{{{','.join(names)}}}" if names else ""
        return f"{dtypes.short_name(self.dtype)}{'*' if self.weak else ''}[{size}]{varying}"

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def struct(self) -> Any:
        """The `jax.ShapeDtypeStruct` of this type.

        >>> Aval((2,), np.dtype("float32")).struct
        ShapeDtypeStruct(shape=(2,), dtype=float32)
        """
        build: Any = jax.ShapeDtypeStruct
        return build(self.shape, self.dtype, weak_type=self.weak)

    def strong(self) -> Aval:
        """Return the type without weakness."""
        return Aval(self.shape, self.dtype, vma=self.vma) if self.weak else self

    def update(self, shape: Shape | None = None, dtype: DType | None = None) -> Aval:
        """Return the type with another shape or dtype (a new dtype is not weak)."""
        return Aval(self.shape if shape is None else shape, self.dtype if dtype is None else dtype,
                    self.weak and dtype is None, self.vma)

    def resized(self, axis: int, size: int) -> Aval:
        """Return the type with another size along an axis."""
        return self.update(shape=(*self.shape[:axis], size, *self.shape[axis + 1:]))

    def without_axis(self, axis: int | None) -> Aval:
        """Return the type without an axis; None: the type itself."""
        return self if axis is None else self.update(shape=self.shape[:axis] + self.shape[axis + 1:])

    def varying(self, names: Iterable[str]) -> Aval:
        """Return the type varying over the mesh axes `names` too."""
        vma = self.vma.union(names)
        return self if vma == self.vma else Aval(self.shape, self.dtype, self.weak, vma)

    def invariant(self, names: Iterable[str] | None = None) -> Aval:
        """Return the type varying over none of the mesh axes `names` (None: over none at all)."""
        if not self.vma:
            return self
        return Aval(self.shape, self.dtype, self.weak, INVARIANT if names is None else self.vma.difference(names))


def vma_of_jax(aval: Any) -> frozenset[str]:
    """Return the mesh axes over which a value of a jax type varies within `jax.shard_map`."""
    kind = getattr(aval, "manual_axis_type", None)
    names: frozenset[str] = getattr(aval, "vma", INVARIANT) if kind is None else kind.varying
    return names


class FoldedConstant(NamedTuple):
    """The provenance of a number that a program has in place of an operation on numbers.

    `source` is the place in the user's code, as equations have it, or the name of the function called there.
    """

    operation: str
    operands: tuple[Literal, ...]
    source: Any


class Literal:
    """A scalar constant that is part of a program's identity, made by rules (not by user code).

    `made_of` is the provenance of a folded constant and no part of the identity; it is set for those alone.
    """

    __slots__ = ("_hash", "_key", "aval", "made_of", "value")

    value: np.generic
    aval: Aval
    made_of: FoldedConstant

    def __init__(self, value: Any, aval: Aval) -> None:
        self.value = np.asarray(value).astype(aval.dtype).reshape(-1)[0]
        self.aval = aval = aval.invariant() if aval.vma else aval
        self._key = (self.value.tobytes(), aval)
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Literal) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        made_of = getattr(self, "made_of", None)
        kept = {"made_of": made_of} if made_of is not None and isinstance(made_of.source, str) else None
        return Literal, (self.value, self.aval), kept and (None, kept)

    def __repr__(self) -> str:
        return f"{self.value!s}:{self.aval}"

    @property
    def shape(self) -> Shape:
        """Always `()`."""
        return ()

    @property
    def dtype(self) -> DType:
        """The dtype of the value."""
        return self.aval.dtype


def without_literals(values: Iterable[Any]) -> list[Any]:
    """Return `values` for user code, with arrays and numbers in place of literals."""
    return [_of_literal(value) if type(value) is Literal else value for value in values]


def _of_literal(literal: Literal) -> Any:
    return make_weak(literal.value) if literal.aval.weak else literal.value


PYTHON_AVALS: dict[type, Aval] = {
    bool: Aval((), dtypes.bool_), int: Aval((), dtypes.int64, weak=True), float: Aval((), dtypes.float64, weak=True),
    complex: Aval((), dtypes.complex128, weak=True), Integer: Aval((), dtypes.int64, weak=True)}
"""The types of Python's numbers: as wide as they are, and weak, except for bool."""
PYTHON_SCALARS = frozenset(PYTHON_AVALS)


# Native byte order only: others hash differently.
_SUPPORTED = frozenset([*dtypes.SUPPORTED.values(), dtypes.key_dtype])


def array_aval(value: Any) -> Aval | None:
    """Return the aval of a NumPy array or scalar, a jax array, a Python scalar or a literal; None for all else.

    NumPy's float64 and complex128 *scalars* are weak, as Python's floats are: one such as `np.sqrt(d)` leaves float32
    arrays float32, and keeps its own width where nothing else decides. Masked arrays and matrices have no aval: their
    arithmetic differs from that of arrays.

    >>> array_aval(2.0), array_aval(np.zeros((2, 3))), array_aval(np.sqrt(2.0)), array_aval("no")
    (f64*[], f64[2,3], f64*[], None)
    """
    kind = type(value)
    if kind is np.ndarray or kind is Array:
        aval = _of_arrays.get((value.shape, value.dtype))
        if aval is None and value.dtype in _SUPPORTED:
            aval = _of_arrays.add((value.shape, value.dtype), Aval(value.shape, value.dtype))
        return aval
    if kind is Literal:
        return value.aval  # type: ignore[no-any-return]
    if kind in _of_scalars:
        return _of_scalars[kind]
    if isinstance(value, np.generic | np.ndarray) and not isinstance(value, np.ma.MaskedArray | np.matrix):
        return Aval(value.shape, value.dtype, kind is WeakArray) if value.dtype in _SUPPORTED else None
    if isinstance(value, jax.Array):
        dtype = dtypes.from_jax(value.dtype)
        if dtype is None or dtype not in _SUPPORTED:
            return None
        return Aval(value.shape, dtype, bool(getattr(value, "weak_type", False)))
    return None


_of_scalars = PYTHON_AVALS | {dtype.type: Aval((), dtype, weak=dtype in (dtypes.float64, dtypes.complex128))
                              for dtype in _SUPPORTED if dtype.names is None}
"""The types of Python's and NumPy's scalars."""

_of_arrays = Cache("types of arrays", 4096)
"""Types of arrays seen before, since every call of a transformed function reads those of its arguments."""


def struct_aval(value: Any) -> Aval | None:
    """Return the aval that a `jax.ShapeDtypeStruct` describes; None for anything else."""
    if isinstance(value, jax.ShapeDtypeStruct):
        dtype = dtypes.from_jax(value.dtype)
        shape = tuple([_as_size(extent) for extent in value.shape])
        if not all(type(extent) is SymbolicDim or extent >= 0 for extent in shape):
            raise ShapeError(at_user_line(
                f"ShapeDtypeStruct of shape {tuple(value.shape)}: sizes are whole numbers, not less than 0. Programs "
                "are traced for one shape; trace again for another"))
        return Aval(shape,
                    dtypes.key_dtype if dtypes.is_key(dtype) else dtypes.canonical(value.dtype), bool(value.weak_type))
    return None


def _as_size(extent: Any) -> Any:
    """Return a size of a `jax.ShapeDtypeStruct`: a number, or a symbolic one; -1 for anything else."""
    if isinstance(extent, int | np.integer):
        return int(extent)
    if type(extent) is SymbolicDim:
        return extent
    return parse_size(str(extent)) if is_symbolic_dim(extent) else -1


def way_to_array(value: Any, name: str) -> str:
    """Return how to make an array of `value`, called `name`, of which NumPy can make one; "" for another value."""
    if isinstance(value, np.ma.MaskedArray):
        return f"Write np.ma.filled({name}, 0.0), and np.ma.getmaskarray({name}) where the mask is needed"
    can_be_one = not isinstance(value, type) and (hasattr(value, "__array__") or isinstance(value, array | memoryview))
    return f"Write np.asarray({name})" if can_be_one else ""


def check_dtype(value: Any, name: str) -> None:
    """Raise `DTypeError` if `value` is an array of a dtype that fxgrad does not have."""
    dtype = getattr(value, "dtype", None)
    if isinstance(value, jax.Array) and dtypes.is_jax_key(dtype) and dtypes.from_jax(dtype) is None:
        raise DTypeError(at_user_line(
            f"{name} is an array of dtype {dtype}, keys of a generator which fxgrad does not have; it has "
            "threefry2x32: jax.random.key(seed, impl='threefry2x32'), or fxgrad.random.key(seed)"))
    if not isinstance(dtype, np.dtype) or dtype in _SUPPORTED:
        return
    if dtype.name in dtypes.SUPPORTED:
        raise DTypeError(at_user_line(
            f"{name} is an array of {dtype.name} in foreign byte order; "
            "convert it first: x.astype(x.dtype.newbyteorder('='))"))
    if dtype == dtypes.float0:
        raise DTypeError(at_user_line(
            f"{name} is an array of dtype float0, which has no values: tangents and gradients of integers are such. "
            "Leave it out of the arguments, or give np.zeros(x.shape)"))
    raise DTypeError(at_user_line(
        f"{name} is an array of dtype {dtype.name}, which fxgrad does not have; "
        f"it supports {', '.join(dtypes.WIDE_NAMES)}: convert it first, for example x.astype('float32')"))


def is_unchanged(copied: Any, array: Any) -> bool:
    """Return whether an array is unchanged since its capture, bit for bit: -0.0 is not 0.0, and a NaN equals itself."""
    if copied.shape != array.shape or copied.dtype != array.dtype:
        return False
    kind = _SAME_SIZE.get(copied.dtype.itemsize)
    if copied.nbytes < _LARGE or kind is None or copied.dtype.hasobject:
        return copied.nbytes == 0 or np.asarray(copied).tobytes() == np.asarray(array).tobytes()
    return np.array_equal(np.asarray(copied).view(kind), np.asarray(array).view(kind))


_SAME_SIZE: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""The integers that have the bits of numbers of so many bytes."""
_LARGE = 1 << 16
"""Bytes from which on arrays are compared without copies."""


def is_frozen(array: Any) -> bool:
    """Return whether the memory of a NumPy array is read-only, through the array itself and through its bases."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None or isinstance(array, bytes)


_HOLDS_KEYS = frozenset({np.ndarray, np.void})


def holds_numpy_keys(value: Any) -> bool:
    """Return whether `keys_to_jax` would convert a value, which takes longer than to find out."""
    return (type(value) in _HOLDS_KEYS or isinstance(value, jax.ShapeDtypeStruct)) and dtypes.is_key(value.dtype)


def keys_to_jax(value: Any) -> Any:
    """Return NumPy's array of random keys as jax's, also in a `ShapeDtypeStruct`; other values unchanged."""
    if type(value) in _HOLDS_KEYS and dtypes.is_key(value.dtype):
        words: Any = np.asarray(value)["threefry2x32"]
        return jax.random.wrap_key_data(words, impl="threefry2x32")
    if isinstance(value, jax.ShapeDtypeStruct) and dtypes.is_key(value.dtype):
        words = np.zeros((*value.shape, 2), np.uint32)
        return jax.eval_shape(lambda: jax.random.wrap_key_data(words, impl="threefry2x32"))
    return value


def to_numpy(value: Any) -> Any:
    """Return a jax array as NumPy's (a scalar for the shape ()), also one of random keys."""
    if dtypes.is_jax_key(value.dtype):
        data = np.asarray(jax.random.key_data(value))
        return np.ascontiguousarray(data).view(dtypes.key_dtype).reshape(value.shape)[()]
    return np.asarray(value)[()]
