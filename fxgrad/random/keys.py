"""Random keys: made from seeds, split, folded, unpacked; and the samplers' reading of their arguments."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import Integer
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_dtype,
    as_new_shape,
    common_shape,
    common_type,
    operand,
    shape_of,
)
from fxgrad.engine.ops.comparison import and_p, eq
from fxgrad.engine.ops.joining import unstack
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.random import (
    random_clone_p,
    random_fold_in_p,
    random_seed_p,
    random_split_p,
    random_unwrap_p,
    random_wrap_p,
)
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import broadcast_to, convert
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, FxgradError, ShapeError, UnsupportedError

GENERATOR = "threefry2x32"

# --- common to the samplers ---------------------------------------------------------------------------------------


def is_typed(key: Any) -> bool:
    """Return whether `key` is an array, traced or not, of the key dtype; raise `ArgumentError` if it is no array."""
    return dtypes.is_key(aval_of(key).dtype)


def typed_keys(name: str, key: Any, place: str = "the first argument") -> Any:
    """Return `key` as an array of keys: words of keys (uint32, two along the last axis) are wrapped."""
    try:
        aval = aval_of(as_array_operand(key))
    except FxgradError as error:
        if isinstance(error, DTypeError):
            raise
        raise ArgumentError(_no_key(name, place, f"a {type(key).__name__}")) from None
    if dtypes.is_key(aval.dtype):
        return key
    if aval.dtype != np.uint32 or not aval.shape or aval.shape[-1] != 2:
        raise ArgumentError(_no_key(name, place, repr(aval) if hasattr(key, "dtype") else
                                    f"a {type(key).__name__}" if aval.shape else type(key).__name__))
    return bind(random_wrap_p, as_array_operand(key))[0]


def _no_key(name: str, place: str, came: str) -> str:
    return at_user_line(f"{name}: {place} is a random key, got {came}. Make one with fxgrad.random.key(0), and new "
                        "ones from it with fxgrad.random.split(key)")


def one_key(name: str, key: Any, place: str = "the first argument", mapped: str = "") -> Any:
    """Return `key` as one typed key; raise `ShapeError` for an array of several.

    Messages name the `place` of the argument, and show how to map over keys, by default in a function of this package.
    """
    key = typed_keys(name, key, place)
    if shape_of(key):
        mapped = mapped or f"fxgrad.vmap(lambda key: fxgrad.random.{name}(key, ...))(keys)"
        raise ShapeError(at_user_line(f"{name}: one key is needed, got an array of keys of shape {shape_of(key)}. "
                                      f"Map over them: {mapped}"))
    return key


def chosen_dtype(name: str, dtype: Any, default: DType) -> DType:
    """Return the dtype that a caller chose, or the default one; raise `DTypeError` for what is no dtype."""
    if dtype is None:
        return default
    try:
        return dtypes.canonical(dtype)
    except DTypeError:
        raise
    except TypeError:
        raise DTypeError(at_user_line(
            f"{name}: dtype is {dtype!r}, which is no dtype. Give a shape as one tuple, such as (2, 3), and what "
            "follows it by name")) from None


def float_dtype(name: str, dtype: Any) -> DType:
    """Return the floating dtype of draws, by default the default float; raise `DTypeError` for another kind."""
    result = chosen_dtype(name, dtype, dtypes.default_float())
    if not dtypes.is_floating(result):
        raise DTypeError(at_user_line(f"{name}: dtype={result.name}, where a floating dtype is needed, such as "
                                      "'float32'"))
    return result


def int_dtype(name: str, dtype: Any) -> DType:
    """Return the integer dtype of draws, by default int32; raise `DTypeError` for another kind."""
    result = chosen_dtype(name, dtype, dtypes.int32)
    if not dtypes.is_integer(result):
        raise DTypeError(at_user_line(f"{name}: dtype={result.name}, where an integer dtype is needed, such as "
                                      "'int32'"))
    return result


def drawn_shape(name: str, shape: Any, *parameters: Any) -> Shape:
    """Return the shape of the draws: that of the broadcast parameters, or `shape`, to which they must broadcast."""
    own = common_shape(name, *map(shape_of, parameters))
    if shape is None:
        return own
    result = as_new_shape(name, shape)
    if common_shape(name, result, own) != result:
        raise ShapeError(at_user_line(f"{name}: shape={result} cannot hold draws for parameters of shape {own}; give a "
                                      "shape that ends in theirs, or leave it out"))
    return result


def own_dtype(*values: Any) -> DType:
    """Return the common dtype of parameters, which the draws have too; the default float for Python's floats."""
    dtype, weak = common_type([aval_of(as_array_operand(value)) for value in values])
    return dtypes.default_float() if weak and dtypes.is_floating(dtype) else dtype


def as_parameter(value: Any, dtype: DType) -> Any:
    """Return a parameter of a distribution as an array of the dtype of the draws."""
    return as_dtype(as_array_operand(value), dtype)


def spread_parameter(value: Any, shape: Shape, dtype: DType) -> Any:
    """Return `as_parameter` repeated to the shape of the draws."""
    return broadcast_to(as_parameter(value, dtype), shape)


def subkeys(key: Any, number: int = 2) -> list[Any]:
    """Return new keys from one typed key."""
    return unstack(bind(random_split_p, key, shape=(number,))[0], 0)


# --- the public functions -----------------------------------------------------------------------------------------


def _check_generator(name: str, impl: Any, dtype: Any = None) -> None:
    if impl is not None and dtype is not None:
        raise ArgumentError(at_user_line(f"{name}: impl and dtype both name the generator; give one of them"))
    chosen = impl if impl is not None else dtype
    if chosen is not None and str(chosen) not in (GENERATOR, dtypes.KEY_NAME) and not dtypes.is_key(chosen):
        raise UnsupportedError(at_user_line(f"{name}: there is no generator {str(chosen)!r} here; there is "
                                            f"{GENERATOR!r}, which is the default"))


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Return a random key, from which all random numbers are drawn.

    `seed` is an integer, or a traced scalar of an integer dtype. The key is a scalar of the dtype `key<fry>`. Every
    sampler draws the same numbers from the same key; `split` it for others. Raises `ArgumentError` for seeds that are
    not integers, `ShapeError` for arrays of them, `UnsupportedError` for generators other than `"threefry2x32"`.

    >>> import fxgrad
    >>> fxgrad.random.key_data(fxgrad.random.key(42))
    array([ 0, 42], dtype=uint32)
    """
    _check_generator("key", impl, dtype)
    return _seed_key("key", seed)


def _seed_key(name: str, seed: Any) -> Any:
    try:
        aval = aval_of(as_array_operand(seed))
    except FxgradError:
        raise ArgumentError(at_user_line(f"{name}: the seed is a {type(seed).__name__}, where an integer is "
                                         "needed")) from None
    if not dtypes.is_integer(aval.dtype):
        raise ArgumentError(at_user_line(f"{name}: the seed is {aval}, where an integer is needed"))
    if aval.shape:
        raise ShapeError(at_user_line(f"{name}: one seed is needed, got an array of shape {aval.shape}. Map over it: "
                                      f"fxgrad.vmap(fxgrad.random.{name})(seeds)"))
    weak = aval_of(operand(seed)).weak
    seed = as_array_operand(seed)
    return bind(random_seed_p, _low_word_if_it_fits(seed) if weak else seed)[0]


def _low_word_if_it_fits(seed: Any) -> Any:
    """Return a Python integer as a seed: without a high word if it fits 32 bits, whatever its sign, as in jax."""
    if type(seed) is not Tracer:
        return np.int32(seed) if -2**31 <= seed < 2**31 else seed
    fits = eq(convert(convert(seed, dtypes.int32), dtypes.int64), convert(seed, dtypes.int64))
    return where(fits, bind(and_p, seed, scalar_like(0xFFFFFFFF, seed))[0], seed)


def PRNGKey(seed: Any, *, impl: Any = None) -> Any:  # noqa: N802  (jax's name)
    """Return a key in the old form: its two words, of dtype uint32. All functions here accept it; prefer `key`.

    >>> import fxgrad
    >>> fxgrad.random.PRNGKey(0)
    array([0, 0], dtype=uint32)
    """
    _check_generator("PRNGKey", impl)
    return bind(random_unwrap_p, _seed_key("PRNGKey", seed))[0]


def _in_given_form(given: Any, keys: Any) -> Any:
    """Return keys in the form in which one came: words for words."""
    return keys if is_typed(as_array_operand(given)) else bind(random_unwrap_p, keys)[0]


def split(key: Any, num: int | Sequence[int] = 2) -> Any:
    """Return `num` new keys (a number or a shape), independent of each other; do not use `key` itself any more.

    Raises `ArgumentError` for an invalid key, `ShapeError` for an array of keys.

    >>> import fxgrad
    >>> first, second = fxgrad.random.split(fxgrad.random.key(0))
    >>> fxgrad.random.split(first, (2, 3)).shape
    (2, 3)
    """
    keys = bind(random_split_p, one_key("split", key), shape=as_new_shape("split", num))[0]
    return _in_given_form(key, keys)


def fold_in(key: Any, data: Any) -> Any:
    """Return a new key from `key` and an integer, such as the number of a step or of a device.

    Raises `ArgumentError` for an invalid key and for data that is not an integer, `ShapeError` for arrays of either.

    >>> import fxgrad
    >>> step = fxgrad.random.fold_in(fxgrad.random.key(0), 7)
    >>> step.shape
    ()
    """
    typed, data = one_key("fold_in", key), as_array_operand(data)
    aval = aval_of(data)
    if aval.shape:
        raise ShapeError(at_user_line(f"fold_in: one integer is needed, got an array of shape {aval.shape}. Map over "
                                      "it: fxgrad.vmap(fxgrad.random.fold_in, in_axes=(None, 0))(key, data)"))
    if not dtypes.is_integer(aval.dtype):
        raise ArgumentError(at_user_line(f"fold_in: data is {aval}, where an integer is needed"))
    if isinstance(data, np.generic | Integer):  # at once, so that equal numbers are equal in programs
        data = np.asarray(data).astype(np.uint32)[()]
    return _in_given_form(key, bind(random_fold_in_p, typed, convert(data, np.dtype(np.uint32)))[0])


def clone(key: Any) -> Any:
    """Return the same keys for deliberate reuse: `fxgrad.debug.check_key_reuse` treats them as new ones.

    >>> import fxgrad
    >>> key = fxgrad.random.key(0)
    >>> bool(fxgrad.random.clone(key) == key)
    True
    """
    return _in_given_form(key, bind(random_clone_p, typed_keys("clone", key))[0])


def key_data(keys: Any) -> Any:
    """Return the words of keys, two of dtype uint32 along a new last axis.

    >>> import fxgrad
    >>> fxgrad.random.key_data(fxgrad.random.split(fxgrad.random.key(0), 3)).shape
    (3, 2)
    """
    return bind(random_unwrap_p, typed_keys("key_data", keys))[0]


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Return keys of their words, of dtype uint32, two along the last axis: the inverse of `key_data`.

    Raises `DTypeError` and `ShapeError` for words of another dtype or number.

    >>> import fxgrad, numpy as np
    >>> keys = fxgrad.random.wrap_key_data(np.zeros((3, 2), np.uint32))
    >>> keys.shape
    (3,)
    """
    _check_generator("wrap_key_data", impl, dtype)
    return bind(random_wrap_p, as_array_operand(key_bits_array))[0]


def key_impl(keys: Any) -> str:
    """Return the name of the generator of `keys`.

    >>> import fxgrad
    >>> fxgrad.random.key_impl(fxgrad.random.key(0))
    'threefry2x32'
    """
    typed_keys("key_impl", keys)
    return GENERATOR


def key_dtype(impl: Any = None) -> DType:
    """Return the dtype of keys: a NumPy dtype with one field, the two words of a key.

    >>> import fxgrad
    >>> fxgrad.random.key(0).dtype == fxgrad.random.key_dtype()
    True
    """
    _check_generator("key_dtype", impl)
    return dtypes.key_dtype


def positive_int(name: str, what: str, value: Any) -> int:
    """Return a caller's size as an integer; raise `ArgumentError` for anything else and below 0."""
    try:
        number = operator.index(value)
    except FxgradError:
        raise
    except TypeError:
        raise ArgumentError(at_user_line(f"{name}: {what} must be an integer, got {type(value).__name__}")) from None
    if number < 0:
        raise ArgumentError(at_user_line(f"{name}: {what} must not be negative, got {number}"))
    return number
