"""The primitive: one frozen record of an operation's seven rules, none optional.

| rule | receives -> returns | must hold |
|---|---|---|
| `abstract` | avals, params -> list of avals | raises a shape or dtype error for every illegal input |
| `numpy` | arrays, params -> list of arrays | shapes and dtypes equal `abstract` |
| `xla` | `lax`, jax values, params -> list of jax values | public `jax.lax` and `jax.numpy` names only |
| `jvp` | primals, tangents, params -> primals, tangents | linear in the tangents; built from ops |
| `transpose` | cotangents, inputs, params -> cotangents or None | the adjoint in the linear inputs |
| `batch` | size, values, axes, params -> values, axes | equals a Python loop |
| `cost` | avals, params -> Cost | from shapes only |
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from fxgrad.engine.caches import Cache
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.pickling import import_object, is_pickled_by_value, qualified_name
from fxgrad.engine.user_lines import add_user_line, at_user_line
from fxgrad.errors import ArgumentError, FxgradError, UnsupportedError


@dataclass(frozen=True)
class MissingRule:
    """The named absence of a rule: calling it raises `UnsupportedError` with the reason.

    >>> str(NOT_LINEAR)
    'NOT_LINEAR: the output is linear in no input'
    """

    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" if self.reason else self.kind

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise UnsupportedError(at_user_line(f"this rule is absent ({self})"))


NOT_LINEAR = MissingRule("NOT_LINEAR", "the output is linear in no input")
"""In place of a transpose rule."""
NO_TANGENT = MissingRule("NO_TANGENT", "the output is integer, bool or piecewise constant: every tangent is zero")
"""In place of a jvp rule; interpreters then give every output a symbolic zero tangent."""


def TODO(reason: str) -> MissingRule:  # noqa: N802  (reads as the marker that it is)
    """Return a placeholder for a rule that is not written yet, with the reason; raise `ValueError` without a reason.

    >>> print(TODO("the transpose of a sort needs a gather"))
    TODO: the transpose of a sort needs a gather
    """
    if not reason:
        raise ValueError("TODO needs a reason")
    return MissingRule("TODO", reason)


class Cost(NamedTuple):
    """The cost of running an equation: floating-point operations, and bytes read and written.

    >>> Cost(flops=10, bytes=80).bytes
    80
    """

    flops: int
    bytes: int

    @property
    def wire(self) -> dict[str, int]:
        """The bytes that one device sends over each mesh axis, counted by `fxgrad.traffic`; none for an equation."""
        return {}

    def with_wire(self, wire: dict[str, int]) -> Cost:
        """Return the cost with the bytes that a whole program sends over mesh axes."""
        return _CostOnWire(self, wire)


class _CostOnWire(Cost):
    """The cost of a program with collectives; as a pair it equals any other."""

    def __new__(cls, cost: Cost, wire: dict[str, int]) -> _CostOnWire:  # noqa: PYI034  (Self is no help to users)
        found = super().__new__(cls, *cost)
        found._wire = wire
        return found

    def __reduce__(self) -> Any:
        return _CostOnWire, (Cost(*self), self._wire)

    _wire: dict[str, int]

    @property
    def wire(self) -> dict[str, int]:
        return dict(self._wire)

    def __repr__(self) -> str:
        return f"Cost(flops={self.flops}, bytes={self.bytes}, wire={self._wire})"


Rule = Callable[..., Any]


class ArrayKernel:
    """A `numpy` rule with one output, made of `function`, which returns the array itself (not in a list).

    The interpreter calls the rule; generated code calls `function`.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arrays: Any, **params: Any) -> list[Any]:
        return [self.function(*arrays, **params)]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Primitive:
    """An operation and its seven rules; see the table at the top of this file.

    `name` is unique and is what programs print. An absent rule is `NOT_LINEAR`, `NO_TANGENT` or `TODO(reason)`; `None`
    is refused with `TypeError`. Seven properties are not rules:

    - `effectful`: it has effects beside its outputs, so it runs exactly as often and in the order that the user wrote.
    - `collective`: it has the parameter `axis_name`, the name of a mapped axis over which it combines the entries, or a
      tuple of names.
    - `calls_user_code`: it runs user code, which may compute another result each time: no result is cached.
    - `commutative`: it has two inputs, and exchanging them changes no bit of the result.
    - `exactly_rounded`: it acts on each element alone and rounds one element as it rounds many, on every executor.
    - `sets_vma`: its abstract rule gives the mesh axes that its outputs vary over; outputs of others vary over
      the axes that their inputs vary over.
    - `regions(operands, **params)`: the programs in its parameters, a tuple of `Region`s
      (`fxgrad/engine/core/regions.py`); the operands may be left out.

    Users define their own with this constructor:

    >>> import numpy as np
    >>> from fxgrad.extend import bind
    >>> double_p = Primitive(
    ...     name="double",
    ...     abstract=lambda x: [x],
    ...     numpy=lambda x: [2 * x],
    ...     xla=lambda lax, x: [lax.add(x, x)],
    ...     jvp=lambda primals, tangents: (bind(double_p, *primals), bind(double_p, *tangents)),
    ...     transpose=lambda cotangents, inputs: bind(double_p, *cotangents),
    ...     batch=lambda size, values, axes: (bind(double_p, *values), list(axes)),
    ...     cost=lambda x: Cost(x.size, 2 * x.nbytes),
    ... )
    >>> import fxgrad
    >>> float(fxgrad.grad(lambda x: bind(double_p, x)[0])(3.0))
    2.0
    """

    name: str
    abstract: Rule
    numpy: Rule
    xla: Rule
    jvp: Rule
    transpose: Rule
    batch: Rule
    cost: Rule
    effectful: bool = False
    collective: bool = False
    calls_user_code: bool = False
    commutative: bool = False
    exactly_rounded: bool = False
    sets_vma: bool = False
    regions: Rule | None = None

    def __post_init__(self) -> None:
        for rule in RULES:
            if not callable(getattr(self, rule)):
                raise TypeError(f"primitive {self.name!r} needs the rule {rule}; if it is absent on purpose, "
                                "say so with NOT_LINEAR, NO_TANGENT or TODO(reason)")
        if isinstance(self.abstract, MissingRule) or isinstance(self.numpy, MissingRule) or isinstance(self.xla,
                                                                                                       MissingRule):
            raise TypeError(f"primitive {self.name!r} must have the rules abstract, numpy and xla")

    def __repr__(self) -> str:
        return self.name

    def __copy__(self) -> Primitive:
        return self

    def __deepcopy__(self, _: Any) -> Primitive:
        return self  # programs compare primitives by identity

    def __reduce__(self) -> Any:
        if registry.get(self.name) is self:
            return _primitive_by_name, (self.name,)
        place = qualified_name(self)
        if place is not None:
            return import_object, place
        if not is_pickled_by_value():
            raise TypeError(f"the primitive {self.name} cannot be pickled, since no module has it under a name. "
                            f"Assign it to a name at the top of a module ({self.name}_p = Primitive(...)), or use "
                            "cloudpickle, which sends it with its rules")
        # The token identifies the primitive in all processes.
        token = _tokens.setdefault(self, uuid.uuid4().hex)
        _sent[token] = self
        return _primitive_of_token, (token, self.name), {name: getattr(self, name)
                                                         for name in _FIELDS}, None, None, _fill


def _primitive_by_name(name: str) -> Primitive:
    return registry[name]


# --- primitives of users, sent by value ---------------------------------------------------------------------

_tokens: WeakKeyDictionary[Primitive, str] = WeakKeyDictionary()
_sent: WeakValueDictionary[str, Primitive] = WeakValueDictionary()
"""Primitives pickled or unpickled by value in this process, so that a further copy is the same object."""


def _primitive_of_token(token: str, name: str) -> Primitive:
    """Return the primitive of a token; a new one has no rules yet, since they may refer to it."""
    primitive = _sent.get(token)
    if primitive is None:
        primitive = object.__new__(Primitive)
        object.__setattr__(primitive, "name", name)
        _tokens[primitive], _sent[token] = token, primitive
    return primitive


def _fill(primitive: Primitive, rules: dict[str, Any]) -> None:
    """Give a new primitive its rules."""
    if not hasattr(primitive, "regions"):
        for name, value in rules.items():
            object.__setattr__(primitive, name, value)


_FIELDS = tuple(field.name for field in fields(Primitive))
RULES = ("abstract", "numpy", "xla", "jvp", "transpose", "batch", "cost")
"""The names of the seven rules, in the order of the record."""

registry: dict[str, Primitive] = {}
"""The library's own primitives by name; `parse` finds them here."""
library: set[Primitive] = set()
"""The same primitives as a set. Their parameters have one form each, so equal ones compare equal."""


def register(primitive: Primitive) -> Primitive:
    """Make `primitive` known to `parse` and to the rule matrix; raise `ValueError` if its name is taken."""
    if primitive.name in registry:
        raise ValueError(f"there is a primitive {primitive.name!r} already")
    registry[primitive.name] = primitive
    library.add(primitive)
    return primitive


def require_primitive(what: str, value: Any, hint: str = "") -> Primitive:
    """Return `value` if it is a primitive; raise `ArgumentError` if not, whose message ends in the `hint`."""
    if isinstance(value, Primitive):
        return value
    raise ArgumentError(at_user_line(
        f"{what} takes a primitive, got a {type(value).__name__}. Primitives are in fxgrad.extend.primitives{hint}"))


def output_types(primitive: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> list[Aval]:
    """Return the types of the outputs of an operation on inputs of the types `avals`."""
    require_primitive("output_types", primitive)
    return _vary(primitive, avals, list(primitive.abstract(*avals, **params)))


def _vary(primitive: Primitive, avals: Sequence[Aval], outputs: list[Aval]) -> list[Aval]:
    """Return the types `outputs` varying over the mesh axes over which an input varies."""
    for aval in avals:
        if aval.vma and primitive.regions is None and not primitive.sets_vma:
            outputs = [output.varying(aval.vma) for output in outputs]
    return outputs


def infer_types(primitive: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> list[Aval]:
    """Return `output_types`; errors of the abstract rule gain the user's line.

    Those of operations with parameters are looked up: a loop records the same operations on the same types.
    """
    try:
        abstract = primitive.abstract
    except AttributeError:
        require_primitive("infer_types", primitive)
        raise
    key = None
    if params and primitive.regions is None and primitive in library and not primitive.collective:
        key = (primitive, *avals, *params.items())
        try:
            known = _known_types(key)
        except TypeError:  # a parameter that cannot be hashed
            key = known = None
        if known is not None:
            return [*known]
    try:
        outputs = list(abstract(*avals, **params))
    except FxgradError as error:
        raise add_user_line(error)  # noqa: B904  (the same error)
    for aval in avals:
        if aval.vma:
            return _vary(primitive, avals, outputs)
    if key is not None and all(_is_plain(aval.shape) for aval in avals) and _is_plain((*params.values(),)):
        _types.add(key, (*outputs,))
    return outputs


_types = Cache("types of results", 4096)
_known_types = _types.get
_PLAIN = frozenset({int, bool, str, float, type(None)})


def _is_plain(value: Any) -> bool:
    """Return whether a parameter or a shape is made of numbers, texts and dtypes alone: no symbolic size, no program.

    What is known of a symbolic size depends on the place where it is used.
    """
    kind = type(value)
    return kind in _PLAIN or isinstance(value, np.dtype) or (kind is tuple and all(map(_is_plain, value)))


def total_bytes(inputs: Sequence[Aval], outputs: Sequence[Aval]) -> int:
    """Return the bytes moved by an operation that reads every input and writes every output once."""
    return sum(aval.nbytes for aval in (*inputs, *outputs))
