"""Functions that read one value, each from another place, and how the value there is changed.

A file of its own, since a function is shown to be transparent by its source, and pytest rewrites that of tests.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fxgrad.numpy as fnp

HELD: Any = None
ROW = [0.5, 0.25, 1.0]
OTHER = types.SimpleNamespace(value=None)
MODULE = types.ModuleType("held_values")


class Held(NamedTuple):
    """A function of `w` that reads a value, and `put`, which puts another one there.

    With `by_call` the value is an argument of the call: `put` returns the arguments after the first, and the options.
    """

    function: Callable[..., Any]
    put: Callable[[Any], Any]
    by_call: bool = False


class Model:
    """An object with attributes."""

    factor = 2.0

    def __init__(self, value: Any) -> None:
        self.value = value

    def loss(self, w: Any) -> Any:
        """A method."""
        return np.sum(np.tanh(w) * self.value)


class Slots:
    """An object without a dict."""

    __slots__ = ("value",)


def of_global(value: Any) -> Held:
    global HELD
    HELD = value

    def put(new: Any) -> None:
        global HELD
        HELD = new
    return Held(lambda w: np.sum(np.tanh(w) * HELD), put)


def of_cell(value: Any) -> Held:
    held = value

    def put(new: Any) -> None:
        nonlocal held
        held = new

    def f(w: Any) -> Any:
        return np.sum(np.tanh(w) * held)
    return Held(f, put)


def of_default(value: Any) -> Held:
    def f(w: Any, held: Any = value) -> Any:
        return np.sum(np.tanh(w) * held)
    return Held(f, lambda new: setattr(f, "__defaults__", (new,)))


def of_keyword_default(value: Any) -> Held:
    def f(w: Any, *, held: Any = value) -> Any:
        return np.sum(np.tanh(w) * held)
    return Held(f, lambda new: setattr(f, "__kwdefaults__", {"held": new}))


def of_module(value: Any) -> Held:
    MODULE.value = value  # type: ignore[attr-defined]
    return Held(lambda w: np.sum(np.tanh(w) * MODULE.value), lambda new: setattr(MODULE, "value", new))


def of_attribute(value: Any) -> Held:
    model = Model(value)
    return Held(lambda w: np.sum(np.tanh(w) * model.value), lambda new: setattr(model, "value", new))


def of_class(value: Any) -> Held:
    class Settings:
        held = value
    settings = Settings()
    return Held(lambda w: np.sum(np.tanh(w) * settings.held), lambda new: setattr(Settings, "held", new))


def of_method(value: Any) -> Held:
    model = Model(value)
    return Held(model.loss, lambda new: setattr(model, "value", new))


def of_namespace(value: Any) -> Held:
    held = types.SimpleNamespace(inner=types.SimpleNamespace(value=value))

    def put(new: Any) -> None:
        held.inner = types.SimpleNamespace(value=new)
    return Held(lambda w: np.sum(np.tanh(w) * held.inner.value), put)


def of_list(value: Any) -> Held:
    held = [0.5, value]
    return Held(lambda w: np.sum(np.tanh(w) * held[1]), lambda new: held.__setitem__(1, new))


def of_loop(value: Any) -> Held:
    held = [value]

    def f(w: Any) -> Any:
        total = 0.0
        for each in held:
            total = total + np.sum(np.tanh(w) * each)
        return total
    return Held(f, lambda new: held.__setitem__(0, new))


def of_dict(value: Any) -> Held:
    held = {"a": value, "b": 1.5}
    return Held(lambda w: np.sum(np.tanh(w) * held["a"]) * held["b"], lambda new: held.__setitem__("a", new))


def of_helper(value: Any) -> Held:
    held = [value]

    def helper(x: Any, scale: float = 1.0) -> Any:
        return np.tanh(x) * held[0] * scale
    return Held(lambda w: np.sum(helper(w)), lambda new: held.__setitem__(0, new))


def of_comprehension(value: Any) -> Held:
    held = (3.0, [value])

    def put(new: Any) -> None:
        held[1][0] = new
    return Held(lambda w: np.sum(sum(np.tanh(w) * each for each in held[1]) + held[0] * w), put)


def of_argument(value: Any) -> Held:
    return Held(lambda w, held: np.sum(np.tanh(w) * held), lambda new: ((new,), {}), by_call=True)


def of_keyword(value: Any) -> Held:
    return Held(lambda w, *, held: np.sum(np.tanh(w) * held), lambda new: ((), {"held": new}), by_call=True)


def of_container_argument(value: Any) -> Held:
    return Held(lambda w, data: np.sum(np.tanh(w) * data["x"][0]), lambda new: (({"x": [new]},), {}), by_call=True)


def of_computation(value: Any) -> Held:
    held = [value]
    return Held(lambda w: np.sum(np.tanh(w) * (held[0] * 2.0 + 1.0)), lambda new: held.__setitem__(0, new))


def of_partial(value: Any) -> Held:
    held = [functools.partial(product, value)]
    return Held(lambda w: np.sum(held[0](np.tanh(w))), lambda new: held.__setitem__(0, functools.partial(product, new)))


def product(x: Any, y: Any, scale: float = 1.0) -> Any:
    return x * y * scale


def within_a_row(value: Any) -> Held:
    """The library takes a container of a container that holds the value."""
    held = [value, 2.0 * value]
    return Held(lambda w: np.sum(fnp.array([w[:2], held]) * fnp.array([held, w[1:]])),
                lambda new: held.__setitem__(0, new))


def within_a_block(value: Any) -> Held:
    held = [value, 2.0 * value]
    return Held(lambda w: np.sum(fnp.array([[w, w], held]) ** 3), lambda new: held.__setitem__(0, new))


class Layer:
    """An object that is called."""

    rate = 0.5

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, w: Any) -> Any:
        return np.tanh(w) * self.value

    @staticmethod
    def halved(w: Any) -> Any:
        return w * Layer.rate


def of_called_object(value: Any) -> Held:
    layers = [Layer(2.0), Layer(value)]

    def f(w: Any) -> Any:
        for layer in layers:
            w = layer(w)
        return np.sum(Layer.halved(w))
    return Held(f, lambda new: setattr(layers[1], "value", new))


def of_class_itself(value: Any) -> Held:
    class Settings:
        held = value
    return Held(lambda w: np.sum(np.tanh(w) * Settings.held), lambda new: setattr(Settings, "held", new))


def of_items(value: Any) -> Held:
    held = {"a": value, "b": 1.5}

    def f(w: Any) -> Any:
        scaled = {key: np.tanh(w) * each for key, each in held.items()}
        return np.sum(sum(scaled[key] for key in held))
    return Held(f, lambda new: held.__setitem__("a", new))


def of_default_of_get(value: Any) -> Held:
    held = [value]
    table = {"w1": 0.5}
    return Held(lambda w: np.sum(np.tanh(w) * table.get(f"w{len(held)}") * table.get("w2", held[0])),
                lambda new: held.__setitem__(0, new))


def of_map(value: Any) -> Held:
    held = [value, 0.5]

    def f(w: Any) -> Any:
        def scaled(each: Any) -> Any:
            return np.tanh(w) * each
        return np.sum(sum(map(scaled, held)))
    return Held(f, lambda new: held.__setitem__(0, new))


def of_update(value: Any) -> Held:
    held = [value]
    return Held(lambda w: np.sum(w.at[:].set(np.tanh(w) * held[0])), lambda new: held.__setitem__(0, new))


HOLDERS = [of_global, of_cell, of_default, of_keyword_default, of_module, of_attribute, of_class, of_method,
           of_namespace, of_list, of_loop, of_dict, of_helper, of_comprehension, of_argument, of_keyword,
           of_container_argument, of_computation, of_partial, of_called_object, of_class_itself, of_items,
           of_default_of_get, of_map, of_update]


# --- functions --------------------------------------------------------------------------------------------


def first(x: Any) -> Any:
    return np.tanh(x) * 2.0


def second(x: Any) -> Any:
    return np.sin(x) + 1.0


def scaled(by: float) -> Callable[[Any], Any]:
    return lambda x: np.tanh(x) * by


HELPER: Any = first


def calls_global(w: Any) -> Any:
    return np.sum(HELPER(w))


def calls_default(w: Any, helper: Any = first) -> Any:
    return np.sum(helper(w))


def calls_attribute(w: Any) -> Any:
    return np.sum(OTHER.value(w))


def calls_numpy(w: Any) -> Any:
    return np.sum(np.exp(w) * fnp.cos(w))


# --- known values -----------------------------------------------------------------------------------------


def powers(n: Any) -> Held:
    held = [n]
    return Held(lambda w: np.sum(w ** held[0]), lambda new: held.__setitem__(0, new))


def steps(n: Any) -> Held:
    held = [n]

    def f(w: Any) -> Any:
        for _ in range(held[0]):
            w = np.sin(w)
        return np.sum(w)
    return Held(f, lambda new: held.__setitem__(0, new))


def flags(on: Any) -> Held:
    held = [on]

    def f(w: Any) -> Any:
        if held[0]:
            w = np.sin(w)
        return np.sum(w * w)
    return Held(f, lambda new: held.__setitem__(0, new))


def texts(name: Any) -> Held:
    held = [name]

    def f(w: Any) -> Any:
        return np.sum(np.sin(w) if held[0] == "sin" else np.cos(w))
    return Held(f, lambda new: held.__setitem__(0, new))


def places(index: Any) -> Held:
    held = [index]
    return Held(lambda w: np.sum(w[held[0]] ** 2) + np.sum(w), lambda new: held.__setitem__(0, new))


def keys(table: Any) -> Held:
    held = [table]

    def f(w: Any) -> Any:
        return np.sum(w) * len(held[0]) if "a" in held[0] and 2 not in held[0] else np.sum(w * w)
    return Held(f, lambda new: held.__setitem__(0, new))


def between(number: Any) -> Held:
    held = [number]
    return Held(lambda w: np.sum(w * w if 0.25 < held[0] <= 0.5 < w.shape[0] else w * held[0]),
                lambda new: held.__setitem__(0, new))


def any_and_all(numbers: Any) -> Held:
    held = [numbers]

    def f(w: Any) -> Any:
        if any(number > 0.5 for number in held[0]):
            w = np.sin(w)
        return np.sum(w * w if all(held[0]) else w ** 3)
    return Held(f, lambda new: held.__setitem__(0, new))


def of_math(number: Any) -> Held:
    held = [number]
    return Held(lambda w: np.sum(w * w) * (math.sqrt(held[0]) + math.exp(2.0) / math.pi),
                lambda new: held.__setitem__(0, new))


def items(table: Any) -> Held:
    held = [table]

    def f(w: Any) -> Any:
        for key, value in held[0].items():
            w = w * value if key > "b" else w + value
        return np.sum(w * w) * sum(len(key) for key in held[0])
    return Held(f, lambda new: held.__setitem__(0, new))


def updates(index: Any) -> Held:
    held = [index]
    return Held(lambda w: np.sum(w.at[held[0]].set(2.0) * w), lambda new: held.__setitem__(0, new))


def listed_places(index: Any) -> Held:
    held = [0, index]
    return Held(lambda w: np.sum(w[held] ** 2) + np.sum(w[[held, [1, 0]]]) + np.sum(w),
                lambda new: held.__setitem__(1, new))


def axes(axis: Any) -> Held:
    held = [axis]
    return Held(lambda w: np.sum(np.cumsum(w.reshape(3, 1), axis=held[0]) ** 2), lambda new: held.__setitem__(0, new))


def thresholds(value: Any) -> Held:
    held = [value]

    def f(w: Any) -> Any:
        return np.sum(w * w if held[0] > 0.5 else np.sin(w))
    return Held(f, lambda new: held.__setitem__(0, new))


def nothing(value: Any) -> Held:
    held = [value]

    def f(w: Any) -> Any:
        return np.sum(w * w if held[0] is None else np.sin(w) * held[0])
    return Held(f, lambda new: held.__setitem__(0, new))


def lengths(value: Any) -> Held:
    held = [value]
    return Held(lambda w: np.sum(w) * len(held[0]), lambda new: held.__setitem__(0, new))


def branches(value: Any) -> Held:
    held = [value]
    return Held(lambda w: np.sum(w ** 2) * (2 if isinstance(held[0], float) else 3),
                lambda new: held.__setitem__(0, new))


# --- what is not transparent ------------------------------------------------------------------------------


COUNTER = [0]


def counts_calls(w: Any) -> Any:
    COUNTER[0] += 1
    return np.sum(w * w)


def counting() -> Any:
    def f(w: Any) -> Any:
        COUNTER[0] += 1
        return np.sum(w * w)
    return f


def prints(w: Any) -> Any:
    print("called")  # noqa: T201
    return np.sum(w * w)


def tries(w: Any) -> Any:
    try:
        return np.sum(w * w)
    finally:
        pass


def stores(w: Any) -> Any:
    OTHER.last = 1.0
    return np.sum(w * w)


def draws(w: Any) -> Any:
    return np.sum(w * np.random.rand(3))  # noqa: NPY002


def asks(w: Any) -> Any:
    if w[0] > 0.0:
        return np.sum(w * w)
    return np.sum(w)


def adds_a_range(w: Any) -> Any:
    return np.sum(w) * sum(range(2000))


def looks_at_many(w: Any) -> Any:
    return np.sum(w[MANY]) / len(MANY)


MANY = np.arange(20_000) % 3


def looks_at_data(w: Any) -> Any:
    return np.sum(w ** DATA[0])


def by_data(w: Any) -> Any:
    if DATA[0] > 1.0:
        return np.sum(w * w)
    return np.sum(w)


def to_int(w: Any) -> Any:
    return np.sum(w[: int(DATA[1])])


def of_size(w: Any) -> Any:
    return np.sum(w) * np.sum(fnp.arange(int(DATA[1])))


def changes_global(w: Any) -> Any:
    global HELD
    HELD = 3.0
    return np.sum(w * w)


def uses_with(w: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.sum(w * w)


def formats(w: Any) -> Any:
    name = f"{DATA[0]}"
    return np.sum(w * w) if name else w


def imports(w: Any) -> Any:
    import math
    return np.sum(w * math.pi)


class Computed:
    """An attribute that is computed, and one for every name."""

    @property
    def value(self) -> float:
        COUNTER[0] += 1
        return 2.0


class Everything:
    """An object with every attribute."""

    def __getattr__(self, name: str) -> float:
        return 2.0


COMPUTED, EVERYTHING, SLOTS = Computed(), Everything(), Slots()
SLOTS.value = 2.0


def reads_property(w: Any) -> Any:
    return np.sum(w * COMPUTED.value)


def reads_everything(w: Any) -> Any:
    return np.sum(w * EVERYTHING.value)


def reads_slot(w: Any) -> Any:
    return np.sum(w * SLOTS.value)


def yields(w: Any) -> Any:
    def rows() -> Any:
        yield w
    return np.sum(sum(rows()))


def changes_in_place(w: Any) -> Any:
    total = np.zeros(3)
    total += DATA[:3]
    return np.sum(w * total)


def changes_a_list(w: Any) -> Any:
    LIST.append(1.0)
    return np.sum(w * w)


def stacks_a_list(w: Any) -> Any:
    return np.sum(fnp.array([w, [*DATA[:3]]]) ** 2) + np.sum(fnp.array([w, ROW]) ** 3)


LIST: list[float] = []
DATA = np.array([2.0, 1.0, 0.5, 3.0])

def bins(w: Any) -> Any:
    """The edges decide by their order what is recorded."""
    return np.sum(fnp.digitize(w, DATA[1::-1]) * w)


OPAQUE = [counts_calls, prints, tries, stores, draws, asks, changes_global, uses_with, formats, imports,
          reads_property, reads_everything, reads_slot, yields, changes_in_place, changes_a_list]
def picks(w: Any) -> Any:
    return np.sum(w[PLACES] ** 2) + np.sum(w[DATA[:3] > 0.75])


def interpolates(w: Any) -> Any:
    return np.sum(np.interp(w, np.sort(DATA), DATA))


PLACES = np.array([2, 0])
BY_VALUE = [looks_at_data, by_data, to_int, of_size, bins, stacks_a_list, picks, interpolates]
"""Functions that depend on values of an array."""


# --- containers and settings --------------------------------------------------------------------------------


def smoothed(alpha: Any, series: Any) -> Any:
    assert series.ndim == 1
    level, error = series[0], 0.0
    for value in series[1:]:
        error += (value - level) ** 2
        level = alpha * value + (1.0 - alpha) * level
    return error / len(series)


def weighted(w: Any, x: Any, power: int) -> Any:
    return np.sum(w ** power * x)


def pairs(w: Any, x: Any) -> Any:
    return {"sum": np.sum(w * x), "all": [np.sin(w), (w @ x) * 2.0]}


def trees(p: Any, x: Any) -> Any:
    hidden = x
    for w, b in p["layers"]:
        hidden = np.tanh(hidden @ w + b)
    return np.sum(hidden) * p["scale"]


def defaults(w: Any) -> Any:
    return np.sum(w * fnp.ones(3) * 0.1)


def pair_of(pair: Any) -> Any:
    return lambda w: np.sum(w * pair[0] + np.sin(w) * pair[1])


def returns_data(w: Any) -> Any:
    return np.sum(w * DATA[:3])


# --- many values at once ------------------------------------------------------------------------------------


class State:
    """What `of_everything` reads, at every kind of place."""

    def __init__(self) -> None:
        self.number, self.array, self.power, self.flag, self.helper = 0.5, np.ones(3), 2, True, first
        self.items: list[Any] = [1.0, np.ones(3)]
        self.table: dict[str, Any] = {"a": 2.0, "b": np.ones(3)}
        self.names = ("sin", "cos")


STATE = State()


def of_everything(w: Any, x: Any = 1.0) -> Any:
    total = np.sum(STATE.helper(w) * STATE.number * x)
    for item in STATE.items:
        total = total + np.sum(w * item) * STATE.table["a"]
    if STATE.flag:
        total = total + np.sum(w ** STATE.power * STATE.table["b"])
    for name in STATE.names:
        total = total + (np.sum(np.sin(w)) if name == "sin" else np.mean(np.cos(w) + STATE.array))
    return total * HELD
