"""Notations of operators and calls: arithmetic, comparisons, products, reductions, conversions, default parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fxgrad import dtypes
from fxgrad.extend import Aval, Primitive, primitives
from fxgrad.extend.sizes import has_symbolic_dim
from fxgrad.text.forms import Form
from fxgrad.text.notations import Notation, Params, Written, defaults, register_notation

Avals = Sequence[Aval]
Fits = Callable[[Avals], bool]

# --- operators ----------------------------------------------------------------------------------------------------


def _always(_: Avals) -> bool:
    return True


def register_infix(symbol: str, primitive: Primitive, fits: Fits = _always) -> None:
    """Register the infix notation of a primitive of two operands without parameters."""
    def write(avals: Avals, params: Params) -> Iterator[Form]:
        if not params and len(avals) == 2 and fits(avals):
            yield Form("infix", symbol, 2)

    def read(form: Form, avals: Avals) -> Params | None:
        return {} if form.arity == 2 and fits(avals) else None

    register_notation(Notation(write, (("infix", symbol),), read), primitive)


def register_prefix(symbol: str, primitive: Primitive) -> None:
    """Register the prefix notation of a primitive of one operand."""
    def write(_: Avals, params: Params) -> Iterator[Form]:
        if not params:
            yield Form("prefix", symbol, 1)

    register_notation(Notation(write, (("prefix", symbol),), lambda *_: {}), primitive)


def _divides(avals: Avals) -> bool:
    return not any(dtypes.is_integer(aval.dtype) or aval.dtype.kind == "b" for aval in avals)


def _signed(avals: Avals) -> bool:
    return avals[0].dtype.kind == "i"


for _symbol, _primitive in (("+", primitives.add), ("-", primitives.sub), ("*", primitives.mul),
                            ("==", primitives.eq), ("!=", primitives.ne), ("<", primitives.lt),
                            ("<=", primitives.le), (">", primitives.gt), (">=", primitives.ge),
                            ("&", primitives["and"]), ("|", primitives["or"]), ("^", primitives.xor),
                            ("<<", primitives.shift_left), ("**", primitives.pow)):
    register_infix(_symbol, _primitive)
register_infix("/", primitives.div, _divides)
register_infix(">>", primitives.shift_right_arithmetic, _signed)
register_infix(">>", primitives.shift_right_logical, lambda avals: not _signed(avals))
register_prefix("-", primitives.neg)
register_prefix("~", primitives["not"])


def _write_power(_: Avals, params: Params) -> Iterator[Form]:
    if params.keys() == {"exponent"} and type(params["exponent"]) is int:
        yield Form("infix", "**", 1, (params["exponent"],))


def _read_power(form: Form, _: Avals) -> Params | None:
    return {"exponent": form.statics[0]} if form.arity == 1 else None


register_notation(Notation(_write_power, (("infix", "**"),), _read_power), primitives.integer_pow)


# --- products -----------------------------------------------------------------------------------------------------


def _product_axes(avals: Avals, turned: Sequence[bool]) -> Any:
    """Return the dimension numbers of `x @ y` with the `turned` matrices transposed; None if there is no product."""
    x, y = avals
    if any(flag and aval.ndim != 2 for flag, aval in zip(turned, avals, strict=True)) or not x.ndim or not y.ndim:
        return None
    batch = tuple(range(x.ndim - 2)) if y.ndim > 2 and x.ndim > 1 else ()
    if (batch and x.ndim != y.ndim) or (y.ndim > 2 and x.ndim == 2):
        return None
    left = 0 if turned[0] else x.ndim - 1
    right = max(y.ndim - 2, 0) + turned[1]
    return ((left,), (right,)), (batch, batch)


_SIDES = ((False, False), (True, False), (False, True), (True, True))


def _letters(avals: Avals, params: Params) -> str | None:
    """Return the contraction as `ij,jk->ik`."""
    if sum(aval.ndim for aval in avals) > 18:
        return None
    (left, right), (left_batch, right_batch) = params["dimension_numbers"]
    names = iter("ijklmnopqrstuvwxyz")
    x = [next(names) for _ in range(avals[0].ndim)]
    shared = dict(zip((*right, *right_batch), (*left, *left_batch), strict=True))
    y = [x[shared[axis]] if axis in shared else next(names) for axis in range(avals[1].ndim)]
    free = [x[axis] for axis in range(len(x)) if axis not in (*left, *left_batch)]
    out = [*(x[axis] for axis in left_batch), *free, *(y[axis] for axis in range(len(y)) if axis not in shared)]
    return f"{''.join(x)},{''.join(y)}->{''.join(out)}"


def _write_product(avals: Avals, params: Params) -> Iterator[Form]:
    rest = tuple((name, value) for name, value in params.items() if name != "dimension_numbers" and value is not None)
    if not rest:
        for turned in _SIDES:
            if _product_axes(avals, turned) == params["dimension_numbers"]:
                yield Form("infix", "@", 2, turned)
    if [aval.ndim for aval in avals] == [1, 1]:
        yield Form("call", "outer", 2, (), rest)
    letters = _letters(avals, params)
    if letters is not None:
        yield Form("call", "einsum", 2, (letters,), rest)


def _read_product(form: Form, avals: Avals) -> Params | None:
    rest = {"precision": None, "preferred_element_type": None, **dict(form.params)}
    if len(avals) != 2:
        return None
    if form.kind == "infix":
        numbers = _product_axes(avals, form.statics)
    elif form.name == "outer":
        numbers = (((), ()), ((), ())) if not form.statics else None
    else:
        numbers = _axes_of(form.statics[0], avals) if len(form.statics) == 1 else None
    return None if numbers is None else {"dimension_numbers": numbers, **rest}


def _axes_of(letters: Any, avals: Avals) -> Any:
    if not isinstance(letters, str) or letters.count(",") != 1 or letters.count("->") != 1:
        return None
    sides, out = letters.split("->")
    x, y = sides.split(",")
    if [len(x), len(y)] != [aval.ndim for aval in avals] or len({*x}) < len(x) or len({*y}) < len(y):
        return None
    batch = [name for name in out if name in x and name in y]
    contracted = [name for name in x if name in y and name not in out]
    numbers = ((tuple(x.index(name) for name in contracted), tuple(y.index(name) for name in contracted)),
               (tuple(x.index(name) for name in batch), tuple(y.index(name) for name in batch)))
    free = [name for name in (*x, *y) if name not in batch and name not in contracted]
    return numbers if [*batch, *free] == [*out] else None


register_notation(Notation(_write_product, (("infix", "@"), ("call", "einsum"), ("call", "outer")), _read_product),
                  primitives.dot_general)


# --- calls by other names -----------------------------------------------------------------------------------------


def register_name(name: str, primitive: Primitive) -> None:
    """Register `name` as the call notation of a primitive."""
    def write(_: Avals, params: Params) -> Iterator[Form]:
        if not params:
            yield Form("call", name, 2)

    def read(form: Form, _: Avals) -> Params | None:
        return {} if form == Form("call", name, 2) else None

    register_notation(Notation(write, (("call", name),), read), primitive)


def register_reduction(name: str, primitive: Primitive) -> None:
    """Register the notation of a reduction, as NumPy's: `sum(x)`, `sum(x, axis=0)`, `sum(x, axis=(0, 1))`."""
    def write(avals: Avals, params: Params) -> Iterator[Form]:
        axes, rank = params["axes"], avals[0].ndim
        if axes == (*range(rank),):
            yield Form("call", name, 1)
        elif len(axes) == 1:
            yield Form("call", name, 1, (), (("axis", axes[0] - rank if axes[0] == rank - 1 > 0 else axes[0]),))
        else:
            yield Form("call", name, 1, (), (("axis", axes),))

    def read(form: Form, avals: Avals) -> Params | None:
        if form.arity != 1 or form.statics or {name for name, _ in form.params} - {"axis"}:
            return None
        rank = avals[0].ndim
        axes = dict(form.params).get("axis", (*range(rank),))
        listed = axes if type(axes) is tuple else (axes,)
        if not all(type(axis) is int for axis in listed):
            return None
        return {"axes": tuple(axis + rank if axis < 0 else axis for axis in listed)}

    register_notation(Notation(write, (("call", name),), read), primitive)


register_name("maximum", primitives.max)
register_name("minimum", primitives.min)
for _name, _primitive in (("sum", primitives.reduce_sum), ("prod", primitives.reduce_prod),
                          ("max", primitives.reduce_max), ("min", primitives.reduce_min),
                          ("all", primitives.reduce_and), ("any", primitives.reduce_or)):
    register_reduction(_name, _primitive)


def _write_where(avals: Avals, _: Params) -> Iterator[Written]:
    if len(avals) == 3 and avals[0].dtype.kind == "b":
        yield Form("call", "where", 3), (0, 2, 1)


def _read_where(form: Form, avals: Avals) -> tuple[Params, tuple[int, ...]] | None:
    return ({}, (0, 2, 1)) if form.arity == 3 and avals[0].dtype.kind == "b" and not form.params else None


register_notation(Notation(_write_where, (("call", "where"),), _read_where), primitives.select_n)


def _write_conversion(_: Avals, params: Params) -> Iterator[Form]:
    yield Form("call", dtypes.short_name(params["dtype"]), 1, params=(("weak", True),) if params["weak"] else ())


def _read_conversion(form: Form, _: Avals) -> Params | None:
    plain = form.arity == 1 and not form.statics and form.params in ((), (("weak", True),))
    return {"dtype": dtypes.from_short_name(form.name), "weak": bool(form.params)} if plain else None


register_notation(Notation(_write_conversion,
                           tuple(("call", dtypes.short_name(dtype)) for dtype in dtypes.SUPPORTED.values()),
                           _read_conversion), primitives.convert_element_type)


# --- arrays of a type ---------------------------------------------------------------------------------------------


def _write_full(avals: Avals, params: Params) -> Iterator[Form]:
    if not avals[0].shape:
        yield Form("call", "full", 1, (avals[0].update(shape=params["shape"]),))
    yield Form("call", "broadcast_to", 1, (params["shape"],))


def _read_full(form: Form, avals: Avals) -> Params | None:
    static = form.statics[0] if len(form.statics) == 1 else None
    if form.arity != 1 or form.params:
        return None
    if form.name == "full":
        return {"shape": static.shape} if isinstance(static, Aval) and avals[0] == static.update(shape=()) else None
    return {"shape": static} if type(static) is tuple else None


register_notation(Notation(_write_full, (("call", "full"), ("call", "broadcast_to")), _read_full),
                  primitives.broadcast_to)


def _write_iota(_: Avals, params: Params) -> Iterator[Form]:
    rest = (("axis", params["dimension"]),) if params["dimension"] else ()
    yield Form("call", "iota", 0, (Aval(params["shape"], params["dtype"]),), rest)


def _read_iota(form: Form, _: Avals) -> Params | None:
    static = form.statics[0] if len(form.statics) == 1 else None
    if not isinstance(static, Aval) or {name for name, _ in form.params} - {"axis"} or form.arity:
        return None
    return {"dtype": static.dtype, "shape": static.shape, "dimension": dict(form.params).get("axis", 0)}


register_notation(Notation(_write_iota, (("call", "iota"),), _read_iota), primitives.iota)


def _write_size(_: Avals, params: Params) -> Iterator[Form]:
    if has_symbolic_dim(params["size"]):
        yield Form("call", "size", 0, (params["size"],))


def _read_size(form: Form, _: Avals) -> Params | None:
    return {"size": form.statics[0]} if not form.arity and not form.params and len(form.statics) == 1 else None


register_notation(Notation(_write_size, (("call", "size"),), _read_size), primitives.size)


# --- default parameters -------------------------------------------------------------------------------------------


def register_defaults(primitives: Iterable[Primitive], **values: Any) -> None:
    """Register `values` as default parameters, which texts omit."""
    defaults.enter(lambda avals, given: values, *primitives)


register_defaults([primitives.cumsum, primitives.cumprod, primitives.cummax, primitives.cummin, primitives.cumlogsumexp,
                   primitives.linear_recurrence], reverse=False)
register_defaults([primitives.concatenate], dimension=0)
register_defaults([primitives.stack, primitives.unstack], axis=0)
register_defaults([primitives.argmax, primitives.argmin], index_dtype=dtypes.int64)
register_defaults([primitives.attains], greatest=True)
register_defaults([primitives.eigh], lower=True)
register_defaults([primitives.qr], full_matrices=False, pivoting=False)
register_defaults([primitives.svd], full_matrices=False, compute_uv=True)
register_defaults([primitives.triangular_solve], left_side=True, lower=True, transpose_a=False, conjugate_a=False,
                  unit_diagonal=False)
register_defaults([primitives.lu_solve], transpose_a=False)
register_defaults([primitives.round], to_even=True)
register_defaults([primitives.convert_element_type], weak=False)
defaults.enter(lambda avals, given: {"axis": avals[0].ndim - 1}, primitives.top_k)
defaults.enter(lambda avals, given: {"dimension": avals[0].ndim - 1, "num_keys": 1}, primitives.sort)


def _of_convolution(avals: Avals, _: Params) -> Params:
    rank = avals[0].ndim
    ones, straight = (1,) * (rank - 2), tuple(range(rank))
    return {"window_strides": ones, "padding": ((0, 0),) * (rank - 2), "lhs_dilation": ones, "rhs_dilation": ones,
            "dimension_numbers": (straight,) * 3, "feature_group_count": 1, "batch_group_count": 1, "precision": None}


defaults.enter(_of_convolution, primitives.conv_general_dilated)


def _of_window(avals: Avals, _: Params) -> Params:
    ones = (1,) * avals[0].ndim
    return {"window_strides": ones, "padding": ((0, 0),) * avals[0].ndim, "base_dilation": ones,
            "window_dilation": ones}


defaults.enter(_of_window, primitives.reduce_window_sum, primitives.reduce_window_max, primitives.reduce_window_min,
               primitives.select_and_gather_add, primitives.select_and_scatter_add)


def _without(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis for axis in range(rank) if axis not in axes)


def _windows_of(avals: Avals, mapped: tuple[int, ...], batching: tuple[int, ...]) -> tuple[int, ...]:
    """Return the window axes of the result, if the axes of the indices are at NumPy's positions."""
    kept = _without(avals[0].ndim, (*mapped, *batching))
    lead = avals[1].ndim - 1
    before = sum(axis < min(mapped, default=0) for axis in kept) if not batching else 0
    return tuple(range(before)) + tuple(range(before + lead, len(kept) + lead))


def _of_gather(avals: Avals, given: Params) -> Params:
    batching = given.get("operand_batching_dims", ())
    found = _without(avals[0].ndim, batching)[:avals[1].shape[-1]]
    mapped = given.get("start_index_map", found)
    gone = (*mapped, *batching)
    return {"operand_batching_dims": (), "start_index_map": found, "collapsed_slice_dims": tuple(sorted(mapped)),
            "start_indices_batching_dims": tuple(range(len(batching))),
            "offset_dims": _windows_of(avals, mapped, batching),
            "slice_sizes": tuple(1 if axis in gone else size for axis, size in enumerate(avals[0].shape)),
            "mode": "checked", "fill_value": None, "promises": ()}


def _of_scatter(avals: Avals, given: Params) -> Params:
    batching = given.get("operand_batching_dims", ())
    found = _without(avals[0].ndim, batching)[:avals[1].shape[-1]]
    mapped = given.get("scatter_dims_to_operand_dims", found)
    return {"operand_batching_dims": (), "scatter_dims_to_operand_dims": found,
            "inserted_window_dims": tuple(sorted(mapped)), "scatter_indices_batching_dims": tuple(range(len(batching))),
            "update_window_dims": _windows_of(avals, mapped, batching), "mode": "checked", "promises": ()}


defaults.enter(_of_gather, primitives.gather)
defaults.enter(_of_scatter, primitives.scatter, primitives.scatter_add, primitives.scatter_sub, primitives.scatter_mul,
               primitives.scatter_min, primitives.scatter_max)
