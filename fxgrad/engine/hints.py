"""Replacements for calls that cannot take traced arrays: the same call of fxgrad's own function."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from fxgrad.engine import user_lines
from fxgrad.engine.caches import Cache
from fxgrad.engine.user_source import RunningCode, index_text, item_assignment, node_text, running_code


class Hint(NamedTuple):
    """A piece of user code, and a sentence on what to write instead."""

    done: str
    instead: str


_MATH = {"gamma": "scipy.special.gamma", "lgamma": "scipy.special.gammaln", "erf": "scipy.special.erf",
         "erfc": "scipy.special.erfc", "fsum": "numpy.sum", "pow": "numpy.power",
         "factorial": "scipy.special.factorial", "ldexp": "numpy.ldexp", "atan2": "numpy.arctan2"}
"""Functions of `math` that have another name here."""


_FORMS = {
    ("math", "log", 2): "fxgrad.numpy.log({0}) / fxgrad.numpy.log({1})",
    ("math", "remainder", 2): "({0}) - ({1}) * fxgrad.numpy.round(({0}) / ({1}))",
    ("math", "isclose", 2): "abs(({0}) - ({1})) <= 1e-09 * fxgrad.numpy.maximum(abs({0}), abs({1}))",
    ("math", "dist", 2): "fxgrad.numpy.linalg.norm(fxgrad.numpy.subtract({0}, {1}))",
    ("math", "hypot", 3): "fxgrad.numpy.linalg.norm(fxgrad.numpy.array([{0}, {1}, {2}]))",
    ("numpy", "ndenumerate", 1): "((i, ({0})[i]) for i in np.ndindex(({0}).shape))",
    ("numpy", "nditer", 1): "({0}).ravel()",
    ("numpy.polynomial.polynomial", "polyval", 2): "fxgrad.numpy.polyval(({1})[::-1], {0})",
    **{("statistics", name, 1): f"fxgrad.numpy.{form}" for name, form in {
        "mean": "mean({0})", "fmean": "mean({0})", "median": "median({0})", "pvariance": "var({0})",
        "variance": "var({0}, ddof=1)", "pstdev": "std({0})", "stdev": "std({0}, ddof=1)"}.items()},
}
"""Calls by module, name and number of arguments that are written in another form here: NumPy's logarithm has no base,
its remainder another sign, its isclose another tolerance, and its older polyval the coefficients in another order."""

COMPILED_CONTROL_FLOW = "fxgrad.python_control_flow(f) compiles the `if`, `for` and `while` of f"
"""What to write where Python needs the value of a condition; replaced by the reason why a function is not converted."""


CHOICES = ("Write fxgrad.numpy.where(condition, a, b) to choose between values, fxgrad.lax.cond, while_loop or "
           "fori_loop to choose or repeat pieces of code, or make the argument static (static_argnums). "
           f"{COMPILED_CONTROL_FLOW}")
_SIZES = ("Sizes, axes and numbers of turns must be known: make the argument static (static_argnums), or take it from "
          "a shape")


def condition_hint() -> Hint:
    """Return the hint for running user code that needs the truth of a traced array."""
    call = running_code().expression
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _EXTREMA and (
            len(call.args) == 2 and not call.keywords):
        own = ast.Call(ast.parse(_EXTREMA[call.func.id], mode="eval").body, call.args, [])
        return Hint(node_text(call), f"Write {node_text(own)}. {COMPILED_CONTROL_FLOW}")
    return Hint("bool()", CHOICES)


_EXTREMA = {"max": "fxgrad.numpy.maximum", "min": "fxgrad.numpy.minimum"}


def index_hint() -> Hint:
    """Return the hint for running user code that needs a traced integer as Python's, as an index or a size."""
    expression = running_code().expression
    if isinstance(expression, ast.Call):
        is_range = isinstance(expression.func, ast.Name) and expression.func.id == "range"
        repeated = f"; fxgrad.lax.fori_loop repeats code. {COMPILED_CONTROL_FLOW}" if is_range else ""
        return Hint(node_text(expression), _SIZES + repeated)
    if not isinstance(expression, ast.Subscript):
        return Hint("an index", CHOICES)
    if any(isinstance(each, ast.Slice) for each in ast.walk(expression.slice)):
        return Hint(node_text(expression), "Write fxgrad.lax.dynamic_slice_in_dim(x, start, size) for a part of known "
                    "size, fxgrad.numpy.where(mask, x, 0) for one of unknown size, or make the argument static "
                    f"(static_argnums). {COMPILED_CONTROL_FLOW}")
    stacked = f"fxgrad.numpy.stack({node_text(expression.value)})[{index_text(expression)}]"
    return Hint(node_text(expression), f"Write {stacked} for one of several arrays, fxgrad.lax.switch for one of "
                f"several functions, or make the argument static (static_argnums). {COMPILED_CONTROL_FLOW}")


def conversion_hint() -> Hint | None:
    """Return the hint for running user code that converts traced arrays to numbers or NumPy arrays."""
    frame = user_lines.user_frame()
    if frame is None:
        return None
    running = running_code(frame)
    expression = running.expression
    if isinstance(expression, ast.Call):
        return _call_hint(frame, expression)
    if isinstance(expression, ast.Subscript):
        return _item_hint(running, expression)
    if isinstance(expression, ast.BinOp) and not isinstance(expression.op, ast.Mod):
        return _operand_hint(frame, expression)
    if isinstance(expression, ast.BinOp):
        right = expression.right
        operands: Sequence[ast.expr] = right.elts if isinstance(right, ast.Tuple) else [right]
        look = ast.parse("fxgrad.debug.value", mode="eval").body
        looked: list[ast.expr] = [each if isinstance(each, ast.Constant) else ast.Call(look, [each], [])
                                  for each in operands]
        values = ast.BinOp(expression.left, ast.Mod(),
                           ast.Tuple(looked, ast.Load()) if isinstance(right, ast.Tuple) else looked[0])
        return Hint(node_text(expression), f"Write {node_text(values)}")
    return None


def _operand_hint(frame: FrameType, operation: ast.BinOp) -> Hint | None:
    """Return the hint for an operation that a library computes with NumPy's arrays, as pandas does those of tables.

    The first operand is the library's, since traced arrays convert a second one.
    """
    called, converts = sys._getframe(), False
    while called.f_back is not None and called.f_back is not frame:
        called = called.f_back
        converts = converts or called.f_code.co_name == "__array__"
    module = called.f_globals.get("__name__", "")
    if not converts or module.split(".")[0] == "fxgrad":  # such as numbers in a list
        return None
    if module.startswith("numpy.ma"):
        return Hint(node_text(operation), "Masked arrays compute with numbers alone: take np.ma.getdata(m) and "
                    "np.ma.getmaskarray(m), and fxgrad.numpy.where to choose by the mask")
    numbers = ast.Call(ast.parse("np.asarray", mode="eval").body, [operation.left], [])
    return Hint(node_text(operation), f"Write {node_text(ast.BinOp(numbers, operation.op, operation.right))}")


def item_hint() -> Hint | None:
    """Return the hint for running user code that indexes an array; None for other code."""
    running = running_code()
    return _item_hint(running, running.expression) if isinstance(running.expression, ast.Subscript) else None


def method_hint() -> Hint | None:
    """Return the hint for running user code that calls a method of an array; None for other code."""
    frame, call = user_lines.user_frame(), running_code().expression
    if frame is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    receiver, name = call.func.value, call.func.attr
    before = receiver.value if isinstance(receiver, ast.Subscript) else None
    if isinstance(receiver, ast.Subscript) and isinstance(before, ast.Attribute) and before.attr == "at":
        at = ast.Call(ast.parse("fxgrad.numpy.at", mode="eval").body, [before.value], [])
        own = ast.Call(ast.Attribute(ast.Subscript(at, receiver.slice), name), call.args, call.keywords)
    elif hasattr(_resolve_name(frame, receiver), "__array__") and _exists(f"numpy.{name}"):
        own = ast.Call(ast.parse(f"fxgrad.numpy.{name}", mode="eval").body, [receiver, *call.args], call.keywords)
    else:
        return None
    return Hint(node_text(call), f"Write {node_text(own)}")


_hinted = Cache("lines with a hint how to print values", 1024)


def printing_hint(*, converted: bool) -> str:
    """Return how to see values of a tracer that is printed without any, in parentheses; "" where it was said before.

    It is said once for each line of the user's. `converted` says that the tracer is made a text for people, by `str` or
    by `format`; else only a running `print` counts, since debuggers and tests ask for `repr` too.
    """
    frame = user_lines.user_frame()
    if frame is None:
        return ""
    expression = running_code(frame).expression
    is_print = isinstance(expression, ast.Call) and node_text(expression.func) == "print"
    # By names, since a code object would keep what its constants hold alive. A line that is edited and run again is
    # another one only if its number or its function is.
    line = frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_lineno
    if not (converted or is_print) or line in _hinted:
        return ""
    _hinted[line] = True
    shown: list[ast.expr] = []
    if isinstance(expression, ast.Call) and is_print:
        shown = expression.args
    elif isinstance(expression, ast.JoinedStr | ast.FormattedValue):
        shown = [each.value for each in ast.walk(expression) if isinstance(each, ast.FormattedValue)]
    names = {each.id for each in shown if isinstance(each, ast.Name)}
    name = names.pop() if len(names) == 1 else "x"
    return f' (no value while it is traced: fxgrad.debug.print("{{}}", {name}) prints it when the program runs)'


def running_call_text() -> str:
    """Return the text of the running call; "" if there is none."""
    expression = running_code().expression
    return node_text(expression) if isinstance(expression, ast.Call) else ""


def _call_hint(frame: FrameType, call: ast.Call) -> Hint | None:
    function = call.func
    found = _resolve_name(frame, function)
    module = getattr(found, "__module__", None) or ""
    if found is None and isinstance(function, ast.Attribute):
        distribution = type(_resolve_name(frame, function.value)).__module__
        module = distribution if distribution.startswith("scipy.stats.") else module
    name = getattr(found, "__name__", node_text(function).rsplit(".", 1)[-1])
    form = None if call.keywords else _FORMS.get((module, name, len(call.args)))
    if form is not None:
        written = ast.parse(form.format(*map(node_text, call.args)), mode="eval").body
        return Hint(node_text(call), f"Write {node_text(written)}")
    if module == "math":
        return _math_hint(call, name)
    if module.split(".")[0] == "scipy" or node_text(function).startswith("scipy."):
        return _scipy_hint(call, function, module, name)
    if isinstance(found, type) and issubclass(found, _SCALARS) and len(call.args) == 1:
        return Hint(node_text(call), f"Write {node_text(ast.Attribute(call.args[0], 'astype'))}('{name}')")
    if isinstance(found, _UFUNC):
        return _renamed_hint(call, f"numpy.{name}") or _renamed_hint(call, f"scipy.special.{name}")
    if module.split(".")[0] == "numpy":
        return _numpy_hint(call, module, name)
    if isinstance(function, ast.Call) and getattr(_resolve_name(frame, function.func), "__module__", "") == "numpy":
        made = _renamed_hint(function, f"numpy.{_resolve_name(frame, function.func).__name__}")  # np.vectorize(f)(x)
        return made and Hint(node_text(call), f"{made.instead}(...)")
    if isinstance(function, ast.Attribute) and hasattr(_resolve_name(frame, function.value), "__array_interface__"):
        method = ast.Call(ast.parse(f"np.{function.attr}", mode="eval").body, [function.value, *call.args],
                          call.keywords)
        return Hint(node_text(call), f"Write {node_text(method)}") if _exists(f"numpy.{function.attr}") else None
    return None


_UFUNC = type(sys.modules["numpy"].add) if "numpy" in sys.modules else ()
_SCALARS = sys.modules["numpy"].generic if "numpy" in sys.modules else ()
NOTHING_INSTEAD = "fxgrad.numpy lists what takes traced arrays"
"""Stands in hints where no call is known that does the same."""
_WITHOUT_MEANING = frozenset({"workers", "overwrite_x", "plan", "overwrite_a", "overwrite_b", "check_finite"})
"""Options of SciPy's that change no result, left out of what is to be written."""
_LAYOUTS = frozenset({"asanyarray", "ascontiguousarray", "asfortranarray", "asarray_chkfinite", "require"})
"""Functions that differ from `asarray` in where and how numbers lie in memory."""


def _numpy_hint(call: ast.Call, module: str, name: str) -> Hint:
    """Return the hint for a function or class of NumPy's; those of its other modules may mean something else here."""
    if name in _LAYOUTS and call.args:
        return Hint(node_text(call), f"Write fxgrad.numpy.asarray({node_text(call.args[0])})")
    path = f"{module}.{name}" if module in ("numpy.linalg", "numpy.fft") else f"numpy.{name}"
    found = _renamed_hint(call, path) if module in ("numpy", "numpy.linalg", "numpy.fft", "numpy.lib.scimath") else None
    return found or Hint(node_text(call), NOTHING_INSTEAD)


def _math_hint(call: ast.Call, name: str) -> Hint:
    """Return the hint for a function of `math`."""
    has_other_meaning = name == "isclose" or (name == "hypot" and len(call.args) != 2)
    found = None if has_other_meaning else _renamed_hint(call, _MATH.get(name, f"numpy.{name}"))
    return found or Hint(node_text(call), NOTHING_INSTEAD)


def _renamed_hint(call: ast.Call, path: str) -> Hint | None:
    if not _exists(path):
        return None
    kept = [each for each in call.keywords if each.arg not in _WITHOUT_MEANING]
    own = ast.Call(ast.parse(f"fxgrad.{path}", mode="eval").body, call.args, kept)
    return Hint(node_text(call), f"Write {node_text(own)}")


def _scipy_hint(call: ast.Call, function: ast.expr, module: str, name: str) -> Hint | None:
    written_path = node_text(function).split(".")
    parts = [part for part in [*module.split(".")[1:], *written_path[:-1]] if not part.startswith("_")]
    written_names = [".".join([*written_path[place:-1], name]) for place in range(len(written_path))]  # norm.logpdf too
    for package in dict.fromkeys(["", *parts, "special", "linalg", "stats"]):
        for known_as in written_names:
            path = ".".join(filter(None, ["scipy", package, known_as.removeprefix("scipy.")]))
            if _exists(path):
                return _renamed_hint(call, path)
    found = _renamed_hint(call, f"numpy.fft.{name}") if "fft" in parts else None
    return found or Hint(node_text(call),
                "fxgrad.scipy has no function of this name. If jax has one, write fxgrad.from_jax(f)(x)")


def _item_hint(running: RunningCode, item: ast.Subscript) -> Hint | None:
    if isinstance(item.ctx, ast.Store):
        assignment = item_assignment(running.statement, at="fxgrad.numpy.at({array})")
        return None if assignment is None else Hint(assignment.done, f"Write {assignment.instead}")
    array = node_text(item.value)
    if array.rsplit(".", 1)[-1] in ("r_", "c_"):
        own = array.rsplit(".", 1)[-1]
        return Hint(node_text(item), f"Write fxgrad.numpy.{own}[{index_text(item)}]")
    return Hint(node_text(item), f"Write fxgrad.numpy.at({array})[{index_text(item)}].get()")


def _exists(path: str) -> bool:
    """Return whether `fxgrad.<path>` is a function or a class."""
    found: Any = sys.modules["fxgrad"]
    for name in path.split("."):
        found = getattr(found, name, None)
    return callable(found)


def _resolve_name(frame: FrameType, expression: ast.expr) -> Any:
    """Return the value of a name, or of a module's attribute, in a frame; None for all else."""
    if isinstance(expression, ast.Name):
        for names in (frame.f_locals, frame.f_globals):
            if expression.id in names:
                return names[expression.id]
        return None
    if isinstance(expression, ast.Attribute):
        owner = _resolve_name(frame, expression.value)
        return getattr(owner, expression.attr, None) if isinstance(owner, ModuleType) else None
    return None
