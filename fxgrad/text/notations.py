"""The table of the compact style: how each primitive is written, and how that notation is read back.

A notation is a proposal. `form_of` accepts it only if `meaning` reads it back as the same primitive, parameters and
order of operands; a primitive without a notation, or with parameters that none fits, is written as a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fxgrad.errors import ConcretizationError
from fxgrad.extend import Analysis, Aval, Primitive, primitives
from fxgrad.extend.sizes import has_symbolic_dim
from fxgrad.text.equality import same_parameters
from fxgrad.text.forms import Form, Span, is_word
from fxgrad.text.parameters import optional_parameters, order_parameters

Params = dict[str, Any]
Order = tuple[int, ...]


class Meaning(NamedTuple):
    """The operation of a form: the primitive, the written operand at each input of the equation, the parameters."""

    primitive: Primitive
    order: Order
    params: Params


Written = tuple[Form, Order]
"""A form, and for each operand in the order of the text its position in the equation."""
Read = Callable[[Form, Sequence[Aval]], "Params | tuple[Params, Order] | None"]
"""From a form and the types of the operands as written, the parameters, and the order if it is not that of the text."""


class Notation(NamedTuple):
    """`write` proposes forms for an operation on operands of given types; `read` reads back those named `heads`."""

    write: Callable[[Sequence[Aval], Params], Iterable[Form | Written]]
    heads: tuple[tuple[str, str], ...]
    read: Read


Defaults = Callable[[Sequence[Aval], Params], Params]
"""From the types of the operands and the parameters that are given, values of others that are not."""


def _no_defaults(_: Sequence[Aval], __: Params) -> Params:
    return {}


notations: Analysis[Notation | None] = Analysis(
    "notations", "The operator or call as which the compact text writes an operation; others are calls by their name.",
    missing="conservative", default=None)
defaults: Analysis[Defaults] = Analysis(
    "default parameters", "Values of parameters that texts leave out; None is left out of any that may be None.",
    missing="conservative", default=_no_defaults)
SEVERAL = ("take", "take_along_axis", "diag", "diagonal")
"""Calls that are short for several equations."""
_readers: dict[tuple[str, str], list[tuple[Primitive, Read]]] = {}


def register_notation(notation: Notation, *primitives: Primitive) -> None:
    """Add a notation to the table."""
    notations.enter(notation, *primitives)
    for primitive in primitives:
        for head in notation.heads:
            _readers.setdefault(head, []).append((primitive, notation.read))


def sign_of(primitive: Primitive) -> str:
    """Return the sign between the operands of an operation, "" if there is none.

    >>> sign_of(primitives.add), sign_of(primitives.exp)
    ('+', '')
    """
    notation = notations.of(primitive)
    return "" if notation is None else next((name for kind, name in notation.heads if kind == "infix"), "")


def call_names() -> set[str]:
    """Return the words that may precede parentheses and are no program's name: primitives and notations."""
    return {*primitives, *SEVERAL, *(name for kind, name in _readers if kind == "call")}


def meaning(form: Form, avals: Sequence[Aval], primitives: Mapping[str, Primitive]) -> Meaning | None:
    """Return the meaning of `form` on operands of these types; None if it has none."""
    for primitive, read in _readers.get((form.kind, form.name), ()):
        found = read(form, avals)
        if found is not None:
            params, order = found if isinstance(found, tuple) else (found, tuple(range(form.arity)))
            return Meaning(primitive, order, params)
    named = primitives.get(form.name) if form.kind in ("call", "quoted") and not form.statics else None
    if named is None or (form.kind == "call" and form.name in SEVERAL):
        return None
    given = dict(form.params)
    return Meaning(named, tuple(range(form.arity)), {**_default_parameters(named, avals, given), **given})


def _default_parameters(primitive: Primitive, avals: Sequence[Aval], given: Params) -> Params:
    try:
        return {**dict.fromkeys(optional_parameters(primitive)), **defaults.of(primitive)(avals, given)}
    except (IndexError, KeyError, TypeError, ValueError):  # hand-written text that the abstract rule rejects
        return dict.fromkeys(optional_parameters(primitive))


def form_of(primitive: Primitive, avals: Sequence[Aval], params: Params) -> Written:
    """Return the notation of an operation that holds no programs: the first form that is read back unchanged."""
    params = order_parameters(primitive, params)
    known = primitives if primitives.has(primitive) else {primitive.name: primitive}
    for form, order in _proposed_forms(primitive, avals, params):
        read = _meaning(form, [avals[place] for place in order], known) if _is_complete(form) else None
        if read is not None and read.primitive is primitive and same_parameters(read.params, params) and \
                tuple(order[place] for place in read.order) == tuple(range(len(avals))):
            return form, order
    return Form("quoted", primitive.name, len(avals), (), tuple(params.items())), tuple(range(len(avals)))


def _meaning(form: Form, avals: Sequence[Aval], primitives: Mapping[str, Primitive]) -> Meaning | None:
    try:
        return meaning(form, avals, primitives)
    except ConcretizationError:  # the form depends on the value of a symbolic size
        return None


def _is_complete(form: Form) -> bool:
    """Return whether types and ranges in a form equal those that their text denotes.

    Sizes may be NumPy's integers, which are others; those with names have no text in an index.
    """
    return all(type(size) is int or has_symbolic_dim(size)
               for static in form.statics if isinstance(static, Aval) for size in static.shape) and not any(
        type(static) is Span and has_symbolic_dim(*static) for static in form.statics)


def _proposed_forms(primitive: Primitive, avals: Sequence[Aval], params: Params) -> Iterable[Written]:
    straight = tuple(range(len(avals)))
    notation = notations.of(primitive)
    if notation is not None:
        try:
            for proposed in notation.write(avals, params):
                yield proposed if not isinstance(proposed, Form) else (proposed, straight)
        except ConcretizationError:
            pass  # a symbolic size would have to be known
    # Parameters that differ from their defaults, which may depend on earlier parameters.
    explicit: Params = {}
    first = [name for name in _DECIDING if name in params]
    for name in [*first, *(name for name in params if name not in first)]:
        value = params[name]
        left_out = _default_parameters(primitive, avals, explicit)
        if name not in left_out or not same_parameters({name: left_out[name]}, {name: value}):
            explicit[name] = value
    given = tuple(explicit.items())
    if is_word(primitive.name):
        yield Form("call", primitive.name, len(avals), (), given), straight
    yield Form("quoted", primitive.name, len(avals), (), given), straight


_DECIDING = ("operand_batching_dims", "start_index_map", "scatter_dims_to_operand_dims")
"""Parameters that defaults of others follow from."""
