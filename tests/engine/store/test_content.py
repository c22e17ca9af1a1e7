"""Digests of content: equal for equal code and values in every process, and different after any change."""

from __future__ import annotations

import builtins
import functools
import importlib.util
import linecache
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad.engine.store.content import Content, Unknown
from fxgrad.extend.analyses import sparsity_rules

ROOT = Path(__file__).resolve().parents[3]


def digest(value: Any) -> str:
    content = Content()
    content.add(value)
    return content.digest()


def function_of(text: str, name: str = "f", **names: Any) -> Any:
    """The function of that name in a module of this text."""
    namespace = {"__name__": "of_a_user", "np": np, "fxgrad": fxgrad, **names}
    exec(compile(text, "user.py", "exec"), namespace)
    return namespace[name]


def refusal(value: Any) -> str:
    with pytest.raises(Unknown) as caught:
        digest(value)
    return caught.value.reason


# --- values -----------------------------------------------------------------------------------------------------------

def array(*values: Any, dtype: Any = np.float64, order: Any = "C", frozen: bool = False) -> Any:
    made = np.array(values, dtype=dtype, order=order)
    made.flags.writeable = not frozen
    return made


class Held:
    """An object with attributes."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Slotted:
    """An object with slots."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Image(np.ndarray):
    """An array with an attribute."""

    spacing: float


def image(spacing: float) -> Any:
    made = np.ones(2).view(Image)
    made.spacing = spacing
    return made


def with_an_empty_slot() -> Any:
    made = Slotted(None)
    del made.value
    return made


FAMILIES: dict[str, list[Any]] = {
    "ones": [1, 1.0, True, 1 + 0j, "1", b"1", np.float64(1), np.float32(1), np.int64(1), np.bool_(True), (1,), [1],
             {1}, frozenset({1}), {1: 1}, {"1": 1}, array(1), array(1, dtype=np.float32), array(1)[:0]],
    "zeros": [0, 0.0, -0.0, False, None, 0j, complex(0.0, -0.0), complex(-0.0, 0.0), "", b"", (), [], {}, set(),
              np.float64(0), np.float64(-0.0), array(0.0), array(-0.0), np.array(0.0), np.zeros(0), np.zeros((0, 1))],
    "not finite": [float("nan"), -float("nan"), float("inf"), -float("inf"), np.float32("nan"), array(np.nan),
                   "nan"],
    "containers": [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}, [1, 2], [2, 1], (1, 2), (1, [2]), [[1], 2],
                   {"a": {"b": 2}}, range(2), range(1, 2), slice(2), slice(1, 2)],
    "arrays": [array(1, 2), array(2, 1), array(1, 2, dtype=np.int64), array(1, 2, dtype=np.float32),
               array([1, 2]), array([1], [2]), array(1, 2, frozen=True), array(1, 2).view(fxgrad.Array),
               jnp.array([1.0, 2.0]), jnp.array([1, 2]), array([1, 2], [3, 4]), array([1, 2], [3, 4], order="F"),
               jnp.asarray(1.0), jnp.ones(()), fxgrad.random.key(0), fxgrad.random.key(1), image(1.0), image(2.0),
               np.ma.array([1.0, 2.0], mask=[True, False]), np.ma.array([1.0, 2.0], mask=[False, True]),
               np.ma.array([1.0, 2.0], mask=[False, True], fill_value=3.0)],
    "objects": [Held(1), Held(2), Held([1]), Slotted(1), Slotted(2), Slotted(None), with_an_empty_slot(), Held,
                Slotted, functools.partial(Held, 1), functools.partial(Held, 2), functools.partial(Held, value=1),
                Held(Held(1)), Held(np.sin)],
    "cached functions": [functools.cache(np.sin), functools.cache(np.cos), functools.lru_cache(3)(lambda x: x),
                         functools.lru_cache(3)(lambda x: -x)],
    "functions": [np.sin, np.cos, np.float32, np.float64, np.dtype("float32"), np.dtype("float64"), len, sum, np,
                  fxgrad, np.linalg.norm, fxgrad.grad, fxgrad.vmap, functools.reduce, Ellipsis, NotImplemented, int,
                  float, jax.Array],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_told_apart(family) -> None:
    digests = [digest(value) for value in FAMILIES[family]]
    for place, value in enumerate(FAMILIES[family]):
        assert digests.index(digests[place]) == place, (value, FAMILIES[family][digests.index(digests[place])])
    assert digests == [digest(value) for value in FAMILIES[family]]


PLACES: dict[str, Callable[[Any], Any]] = {
    "global": lambda value: function_of("def f(x): return x * v", v=value),
    "cell": lambda value: function_of("def g(v):\n  def f(x): return x * v\n  return f", "g")(value),
    "default": lambda value: function_of("def f(x, v=w): return x * v", w=value),
    "keyword default": lambda value: function_of("def f(x, *, v=w): return x * v", w=value),
    "attribute": lambda value: function_of("def f(x): return x * v.value", v=Held(value)),
    "slot": lambda value: function_of("def f(x): return x * v.value", v=Slotted(value)),
    "list": lambda value: function_of("def f(x): return x * v[0]", v=[value]),
    "dict": lambda value: function_of("def f(x): return x * v['a']", v={"a": value}),
    "partial": lambda value: functools.partial(function_of("def f(v, x): return x * v"), value),
    "named partial": lambda value: functools.partial(function_of("def f(x, v): return x * v"), v=value),
    "bound method": lambda value: method_of(value),
    "helper": lambda value: function_of("def g(x): return x * v\ndef f(x): return g(x)", v=value),
    "helper's helper": lambda value: function_of(
        "def h(x): return x * v\ndef g(x): return h(x)\ndef f(x): return [g(y) for y in x]", v=value),
    "nested function": lambda value: function_of("def f(x):\n  def g(y): return y * v\n  return g(x)", v=value),
    "attribute of a function": lambda value: with_attribute(value),
    "grad": lambda value: fxgrad.grad(function_of("def f(x): return x * v", v=value)),
    "vmap of grad": lambda value: fxgrad.vmap(fxgrad.grad(function_of("def f(x): return x * v", v=value))),
    "jit": lambda value: fxgrad.jit(function_of("def f(x): return x * v", v=value)),
    "custom rule": lambda value: with_rule(value),
    "wrapped": lambda value: functools.wraps(len)(function_of("def f(x): return x * v", v=value)),
    "primitive": lambda value: function_of("def f(x): return fxgrad.bind(p, x)[0]", p=primitive_with_rule(value)),
    "fact of a primitive": lambda value: function_of("def f(x): return fxgrad.bind(p, x)[0]", p=with_fact(value)),
    "converted control flow": lambda value: converted("def f(x):\n  if x > 0: return x * v\n  return x", v=value),
}


def primitive_with_rule(value: Any) -> Any:
    def rule(*_: Any) -> Any:
        return value
    return fxgrad.Primitive(name="p", abstract=list, numpy=list, xla=rule, jvp=fxgrad.NO_TANGENT,
                            transpose=fxgrad.NOT_LINEAR, batch=list, cost=list)


def with_fact(value: Any) -> Any:
    made = primitive_with_rule(1)
    sparsity_rules.enter([value], made)
    return made


def converted(text: str, **names: Any) -> Any:
    """The function `f` of this text with its control flow converted; its source is found, as of a cell's."""
    file = f"<cell of {text}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    namespace = {"__name__": "of_a_user", **names}
    exec(compile(text, file, "exec"), namespace)
    return fxgrad.python_control_flow(namespace["f"])


def method_of(value: Any) -> Any:
    class Model:
        def __init__(self) -> None:
            self.weight = value

        def __call__(self, x: Any) -> Any:
            return x * self.weight
    return Model().__call__


def with_attribute(value: Any) -> Any:
    made = function_of("def f(x): return x * f.scale")
    made.scale = value
    return made


def with_rule(value: Any) -> Any:
    made = fxgrad.custom_vjp(function_of("def f(x): return x"))
    made.defvjp(lambda x: (x, None), lambda _, g: (g * value,))
    return made


NUMBERS = [1, 1.0, True, 2, 2.0, 0.0, -0.0, np.float64(2), np.float32(2), array(2.0), array(3.0), jnp.array([2.0]), "2",
           None, (2,), [2], np.sin, np.cos]


@pytest.mark.parametrize("place", PLACES)
def test_a_change_at_a_place_changes_the_digest(place) -> None:
    digests = [digest(PLACES[place](value)) for value in NUMBERS]
    assert len(set(digests)) == len(NUMBERS)
    assert digests == [digest(PLACES[place](value)) for value in NUMBERS]


# --- code -------------------------------------------------------------------------------------------------------------

CODES = ["def f(x): return x + 1", "def f(x): return x + 2", "def f(x): return x - 1", "def f(x): return 1 + x",
         "def f(x): return x + 1.0", "def f(x): return x + True", "def f(x, y=1): return x + y",
         "def f(x, y=2): return x + y", "def f(x, *, y=1): return x + y", "def f(x): return np.sin(x)",
         "def f(x): return np.cos(x)", "def f(x): return np.linalg.norm(x)", "def f(x): return abs(x)",
         "def f(x): return float(x)", "def f(x): return (lambda y: y + 1)(x)", "def f(x): return (lambda y: y + 2)(x)",
         "def g(x): return x\ndef f(x): return g(x)", "def g(x): return -x\ndef f(x): return g(x)",
         "def f(x):\n  for _ in range(2): x = x * x\n  return x",
         "def f(x):\n  for _ in range(3): x = x * x\n  return x",
         "def f(x):\n  try: return x\n  except ValueError: return 1",
         "def f(x):\n  try: return x\n  except KeyError: return 1",
         "def f(x): return x if x.ndim else -x", "def f(x): return -x if x.ndim else x",
         "async def f(x): return x + 1", "def f(x):\n  yield x + 1", "def f(*x): return x", "def f(**x): return x",
         "def f(x): return missing(x)", "def missing(x): return x\ndef f(x): return missing(x)"]


def test_codes_are_told_apart() -> None:
    digests = [digest(function_of(text)) for text in CODES]
    for place, text in enumerate(CODES):
        assert digests.index(digests[place]) == place, (text, CODES[digests.index(digests[place])])
    assert digests == [digest(function_of(text)) for text in CODES]


@pytest.mark.parametrize("text", ["\n\n# A comment.\ndef f(x):\n\n  return x + 1", "y = 3\ndef f(x): return (x +\n 1)",
                                  "def g(): pass\ndef f(x): return x + 1"])
def test_moved_code_and_what_is_not_read_are_equal(text) -> None:
    assert digest(function_of(text)) == digest(function_of("def f(x): return x + 1"))


def test_patched_functions_of_libraries_are_told_apart(monkeypatch) -> None:
    function, plain = function_of("def f(x): return np.exp(x) + sum(x)"), {}
    plain["before"] = digest(function)
    monkeypatch.setattr(np, "exp", np.sin)
    plain["another ufunc"] = digest(function)
    monkeypatch.setattr(np, "exp", lambda x: x)
    plain["a user's function"] = digest(function)
    monkeypatch.undo()
    monkeypatch.setattr(builtins, "sum", max)
    plain["a builtin"] = digest(function)
    monkeypatch.undo()
    assert len(set(plain.values())) == 4
    assert digest(function) == plain["before"]


def test_names_and_docstrings_given_later_are_told_apart() -> None:
    digests = [digest(function_of(f"def g(): pass\n{text}\ndef f(x): return x * len(g.__name__)"))
               for text in ("", "g.__name__ = 'h'", "g.__doc__ = 'h'")]
    assert len(set(digests)) == 3


def test_a_replaced_code_object_is_told_apart() -> None:
    function = function_of("def f(x): return x + 1")
    before = digest(function)
    function.__code__ = function_of("def f(x): return x + 2").__code__
    assert digest(function) != before


def test_primitives_that_a_module_has_are_told_apart(monkeypatch) -> None:
    digests = []
    for value in (1, 2):
        monkeypatch.setattr(sys.modules[__name__], "grown_p", primitive_with_rule(value), raising=False)
        digests.append(digest(function_of("def f(x): return fxgrad.bind(p, x)[0]", p=sys.modules[__name__].grown_p)))
    assert digests[0] != digests[1]


def test_one_array_at_two_places_differs_from_two_equal_arrays() -> None:
    one = np.ones(2)
    assert digest([one, one]) != digest([one, one.copy()])
    assert digest([one, one]) == digest([one.copy()] * 2)


def test_cycles_end() -> None:
    def recursive(text: str) -> Any:
        return function_of(text)
    one = recursive("def f(x): return f(x - 1) if x.ndim else x")
    assert digest(one) == digest(recursive("def f(x): return f(x - 1) if x.ndim else x"))
    assert digest(one) != digest(recursive("def f(x): return f(x - 2) if x.ndim else x"))
    looped: list[Any] = [1]
    looped.append(looped)
    assert digest(looped) == digest(looped)


# --- classes ----------------------------------------------------------------------------------------------------------

CLASSES = [
    "class Model:\n  scale = 2.0\n  def __call__(self, x): return x * self.scale",
    "class Model:\n  scale = 3.0\n  def __call__(self, x): return x * self.scale",
    "class Model:\n  scale = 2.0\n  def __call__(self, x): return x + self.scale",
    "class Base:\n  scale = 2.0\nclass Model(Base):\n  def __call__(self, x): return x * self.scale",
    "class Base:\n  scale = 3.0\nclass Model(Base):\n  def __call__(self, x): return x * self.scale",
    "class Model:\n  @property\n  def scale(self): return 2.0\n  def __call__(self, x): return x * self.scale",
    "class Model:\n  @staticmethod\n  def scale(): return 2.0\n  def __call__(self, x): return x * self.scale()",
    "import enum\nclass Kind(enum.Enum):\n  A = 1\nclass Model:\n  kind = Kind.A\n  def __call__(self, x): return x",
    "import dataclasses\n@dataclasses.dataclass\nclass Model:\n  scale: float = 2.0\n  def __call__(self, x): return x",
    "class Model:\n  __slots__ = ('a',)\n  def __call__(self, x): return x",
    ("import jax\nclass Model:\n  scale = 2.0\n  def __call__(self, x): return x * self.scale\n"
     "jax.tree_util.register_pytree_node(Model, lambda m: ((), None), lambda *_: Model())"),
]


def imported(folder: Path, text: str, name: str = "of_a_user") -> Any:
    file = folder / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_classes_are_told_apart(tmp_path) -> None:
    digests = []
    for place, text in enumerate(CLASSES):
        (tmp_path / str(place)).mkdir()
        model = imported(tmp_path / str(place), text).Model()
        digests.append(digest(model))
        assert digest(model.__call__) != digests[-1]
    del sys.modules["of_a_user"]
    assert len(set(digests)) == len(CLASSES)


REGISTRATIONS = [
    "", "register_pytree_node(Model, lambda m: ((m.x,), None), lambda _, children: Model(*children))",
    "register_pytree_node(Model, lambda m: ((m.x * 3,), None), lambda _, children: Model(*children))"]


def test_classes_that_another_file_registers_are_told_apart(tmp_path, monkeypatch) -> None:
    digests = []
    for place, registration in enumerate(REGISTRATIONS):
        (folder := tmp_path / str(place)).mkdir()
        monkeypatch.setitem(sys.modules, "of_a_user", None)
        monkeypatch.setitem(sys.modules, "registering", None)
        model = imported(folder, "class Model:\n  def __init__(self, x): self.x = x").Model(1.0)
        imported(folder, f"from jax.tree_util import register_pytree_node\nfrom of_a_user import Model\n{registration}",
                 "registering")
        digests.append(digest(model))
        assert digest(model) == digests[-1]
    assert len(set(digests)) == 3


def test_classes_registered_with_an_abstract_one_are_told_apart(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "of_a_user", None)
    module = imported(tmp_path, "import abc\nclass Model: pass\nclass Base(abc.ABC): pass")
    before = digest(module.Base)
    module.Base.register(module.Model)
    assert digest(module.Base) != before


def test_a_class_of_no_file_is_refused() -> None:
    model = function_of("class Model:\n  def __call__(self, x): return x", "Model")()
    assert refusal(model) == ("it uses the class Model, which is not in a file, so that nothing shows whether it is "
                              "registered as a container")


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED = {
    "def f(x): return x + np.random.normal()":
        "it uses numpy.random.RandomState.normal, whose results or effects its content does not decide",
    "def f(x): return x + np.load('w.npy')": "it uses numpy.load, whose results or effects its content does not decide",
    "def f(x): return open('w').read()": "it uses open, whose results or effects its content does not decide",
    "def f(x): print(x); return x": "it uses print, whose results or effects its content does not decide",
    "def f(x): return eval('x')": "it uses eval, whose results or effects its content does not decide",
    "import time\ndef f(x): return x + time.time()": "it uses time.time, whose results or effects its content does not "
                                                     "decide",
    "import os\ndef f(x): return x + len(os.environ)":
        "it reads an object of class os._Environ, whose content is not known",
    "def f(x):\n  global count\n  count = 1\n  return x": "it changes the global variable count",
    "def f(x):\n  import math\n  return math.sin(x)":
        "it imports math when it is called; import it at the top of the file",
    "def f(x): return f.__globals__['w']": "it reads the attribute __globals__",
    "import sys\ndef f(x): return sys._getframe().f_locals": "it uses sys._getframe, whose results or effects its "
                                                                    "content does not decide",
    "import threading\nlock = threading.Lock()\ndef f(x):\n  with lock: return x":
        "it reads an object of class _thread.lock, whose content is not known",
    "import contextvars\nv = contextvars.ContextVar('v')\ndef f(x): return v.get()":
        "it reads an object of class _contextvars.ContextVar, whose content is not known",
    "import random\ndef f(x): return x + random.random()":
        "it reads an object of class random.Random, whose content is not known",
    "import random\ndef f(x): return x + random.seed(1)":
        "it uses random.Random.seed, whose results or effects its content does not decide",
    "w = np.array([None])\ndef f(x): return w[0]": "it reads an array of objects",
    "rng = np.random.default_rng(0)\ndef f(x): return x + rng.normal()":
        "it uses numpy.random._generator.Generator, whose results or effects its content does not decide",
    "def g(xp, x): return xp.random.normal() + x\ndef f(x): return g(np, x)":
        "it passes NumPy as a value, and uses the attribute random, which may be NumPy's",
    "w = iter([1, 2])\ndef f(x): return x + next(w)": "it reads an iterator, which changes as it is read",
    "def g():\n  yield 1\nw = g()\ndef f(x): return x + next(w)": "it reads an iterator, which changes as it is read",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_known_is_refused(text) -> None:
    found = refusal(function_of(text)).replace("random.mtrand.", "random.")  # so before version 2.2 of NumPy
    assert found == REFUSED[text]


def test_a_refusal_names_the_line() -> None:
    with pytest.raises(Unknown) as caught:
        digest(function_of("def g(x):\n  y = x\n  return y + np.random.normal()\ndef f(x):\n  return g(x)"))
    assert (caught.value.file, caught.value.line) == ("user.py", 3)


def test_a_variable_of_the_function_around_that_is_changed_is_refused() -> None:
    text = "def g():\n  n = 0\n  def f(x):\n    nonlocal n\n    n += 1\n    return x * n\n  return f"
    assert refusal(function_of(text, "g")()) == "it changes n, a variable of the function around it"


def test_a_traced_array_is_refused() -> None:
    seen = []

    def function(x: Any) -> Any:
        seen.append(refusal(lambda y: x + y))
        return x
    fxgrad.grad(function)(1.0)
    assert seen == ["it closes over a traced array"]


# --- in other processes, and after calls ------------------------------------------------------------------------------

TRANSFORMED = """
import numpy as np, jax.numpy as jnp, fxgrad, functools
from fxgrad import lax, nn, optim
from fxgrad.engine.store.content import Content
def loss(w, x): return np.sum(np.tanh(x @ w) ** 2)
@fxgrad.custom_vjp
def reverse(x): return np.sin(x)
reverse.defvjp(lambda x: (np.sin(x), x), lambda r, g: (g * np.cos(r),))
@fxgrad.custom_jvp
def forward(x): return np.sin(x)
forward.defjvp(lambda p, t: (np.sin(p[0]), t[0]))
adam = optim.adam(1e-3)
def step(w, s, x):
    return adam.update(fxgrad.grad(loss)(w, x), s, w)
w, x = np.ones(3), np.ones((2, 3))
CASES = {
    "grad": (fxgrad.grad(loss), w, x), "value_and_grad": (fxgrad.value_and_grad(loss), w, x),
    "vmap": (fxgrad.vmap(loss, (None, 0)), w, x[:, None]), "hessian": (fxgrad.hessian(loss), w, x),
    "jacfwd": (fxgrad.jacfwd(loss), w, x), "jacrev": (fxgrad.jacrev(loss), w, x), "jit": (fxgrad.jit(loss), w, x),
    "grad of jit": (fxgrad.grad(fxgrad.jit(loss)), w, x), "grad of grad": (fxgrad.grad(fxgrad.grad(np.sin)), 1.0),
    "checkpoint": (fxgrad.checkpoint(loss, policy=fxgrad.checkpoint_policies.dots_saveable), w, x),
    "custom_vjp": (fxgrad.grad(lambda x: reverse(x)), 1.0), "custom_jvp": (fxgrad.grad(lambda x: forward(x)), 1.0),
    "step": (step, w, adam.init(w), x), "scan": (lambda x: lax.scan(lambda c, y: (c + y, c), 0.0, x)[0], w),
    "relu": (lambda x: nn.relu(x), x), "normal": (lambda k: fxgrad.random.normal(k, (3,)), fxgrad.random.key(0)),
    "from_jax": (fxgrad.from_jax(lambda x: jnp.sin(x)), x), "autocast": (fxgrad.autocast(loss), w, x),
    "nan_safe": (fxgrad.nan_safe(loss), w, x), "a jax array": ((lambda c: lambda x: x + c)(jnp.ones(3)), w),
    "a set": (lambda x: x * len({"a", "b", "c"} & names), w),
}
names = {"b", "c", "d"}
def digest(function):
    content = Content()
    content.add(function)
    return content.digest()
"""


@pytest.mark.slow
def test_digests_are_those_of_other_processes() -> None:
    script = TRANSFORMED + "\nfor name, case in CASES.items(): print(name, digest(case[0]))"
    runs = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT,
                             env=sys_environment(PYTHONHASHSEED=seed)) for seed in ("1", "2")]
    first, second = (run.communicate(timeout=300)[0].splitlines() for run in runs)
    assert len(first) == 21
    assert first == second


def sys_environment(**variables: str) -> dict[str, str]:
    import os
    return {**os.environ, "PYTHONPATH": str(ROOT), **variables}


def test_calls_leave_digests_as_they_are() -> None:
    namespace: dict[str, Any] = {"__name__": "of_a_user"}
    exec(compile(TRANSFORMED, "user.py", "exec"), namespace)
    for name, (function, *args) in namespace["CASES"].items():
        before = namespace["digest"](function)
        for _ in range(2):
            function(*args)
        fxgrad.jit(function)(*args)
        assert namespace["digest"](function) == before, name
