"""In-place changes of traced arrays: supported if only one name is rebound, refused if another name would see them.

`x += y` changes the array of `x` in NumPy. A traced array cannot change. A new array in its place is equivalent if
nothing else refers to the old one: no other name, no container, no view, no caller. Views refer to their base
(`Tracer.viewed`), so counting references suffices.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.dtypes import DType
from fxgrad.engine.hints import conversion_hint
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.engine.user_source import augmented_assignment, is_discarded, item_assignment, running_call, running_code
from fxgrad.errors import ArrayConversionError, DTypeError, FxgradError, MutationError, ShapeError

Function = Callable[..., Any]
_references = sys.getrefcount


class _Probe:
    """Counts the references to an object that an in-place operator sees if one name holds it."""

    seen = 0

    def __iadd__(self, _: Any) -> _Probe:  # noqa: PYI034
        self.seen = _references(self)
        return self


def _seen_by_name() -> int:
    probe = _Probe()
    probe += None
    return probe.seen


def _seen_elsewhere() -> int:
    probes = [_Probe()]
    probes[0] += None
    return probes[0].seen


_NAMED, _HELD = _seen_by_name(), _seen_elsewhere()
"""Reference counts of an object held by one local variable, and by one item or attribute: later versions of Python
count no reference of their own while they use a local variable."""


def inplace_operator(symbol: str, function: Function) -> Function:
    """Return the method for `x += y`, where `symbol` is `+` and `function` computes `x + y`."""
    def method(self: Any, other: Any) -> Any:
        aval = self.variable.aval
        if not aval.shape:  # NumPy's scalars never change: the name is rebound
            if _is_array_of_callers(self):
                raise _operator_error(self, symbol, "argument")
            if _is_view_of_array(self):
                raise _operator_error(self, symbol, "view")
            return function(self, other)
        count = _references(self)
        why = _other_owner(self, count)
        if why:
            raise _operator_error(self, symbol, why, is_item=count < allowed_references(self))
        result = function(self, other)
        if type(result) is Tracer and result.variable.aval != aval:
            return cast_result(symbol, aval, result)
        return result
    return method


def _other_owner(tracer: Tracer, count: int) -> str:
    """Return who else would observe a change of the array: "argument", "view", "name", or "" for none."""
    viewed = getattr(tracer, "viewed", tracer)
    if viewed is not None and viewed is not tracer:
        return "view" if isinstance(viewed, Tracer | np.ndarray) else "name"
    if viewed is tracer and any(var is tracer.variable for var in tracer.tape.root.outputs):
        return "" if tracer.tape.owns_inputs else "argument"
    return "name" if count > allowed_references(tracer) else ""


def allowed_references(tracer: Any) -> int:
    """Return how many references an array has if one name, or one item or attribute, holds it."""
    if _NAMED == _HELD:
        return _HELD
    frame = sys._getframe(2)
    code = frame.f_code
    plain = set(code.co_varnames) - set(code.co_cellvars)
    return _NAMED if any(name in plain and value is tracer for name, value in frame.f_locals.items()) else _HELD


def _is_array_of_callers(tracer: Tracer) -> bool:
    """Return whether a 0-d tracer stands for an array of shape () that the function was called with."""
    tape = tracer.tape
    if tape.values is None or hasattr(tracer, "viewed"):
        return False
    return any(var is tracer.variable and type(value) is np.ndarray
               for var, value in zip(tape.root.outputs, tape.values, strict=True))


def _is_view_of_array(tracer: Tracer) -> bool:
    """Return whether a 0-d tracer stands for an array of shape () that is a view of one with axes: `y[0, ...]`."""
    viewed = getattr(tracer, "viewed", None)
    while type(viewed) is Tracer:
        if viewed.variable.aval.shape:
            return True
        viewed = getattr(viewed, "viewed", None)
    return False


_KINDS = "buifc"


def cast_result(symbol: str, own: Aval, result: Tracer) -> Tracer:
    """Return the result in the type of the array that it takes the place of, as in NumPy; raise where NumPy raises."""
    aval = result.aval
    if aval.shape != own.shape:
        raise ShapeError(at_user_line(
            f"x {symbol}= y: the result has shape {aval.shape} and x has shape {own.shape}, which cannot change in "
            f"place. Write x = x {symbol} y"))
    if not can_store(own.dtype, aval.dtype):
        raise DTypeError(at_user_line(
            f"x {symbol}= y: the result is of dtype {aval.dtype.name} and x of dtype {own.dtype.name}, which cannot "
            f"change in place. Write x = x {symbol} y, or convert the result: (x {symbol} y).astype(x.dtype)"))
    return convert(result, own.dtype, own.weak)


def can_store(own: DType, dtype: DType) -> bool:
    """Return whether NumPy stores numbers of `dtype` in an array of the dtype `own`."""
    return _KINDS.index(_kind_text(dtype)) <= _KINDS.index(_kind_text(own))


def _kind_text(dtype: Any) -> str:
    return "f" if dtypes.is_inexact(dtype) and not dtypes.is_complex(dtype) else dtype.kind


_WHY = {
    "view": "it is a view, and NumPy would change what it is a view of too, which here stays as it is",
    "argument": "it belongs to the caller of the function, and NumPy would change it there too",
    "name": "another name, a container or a view has it too, and in NumPy would see the change",
}


def _operator_error(tracer: Tracer, symbol: str, why: str, is_item: bool = False) -> MutationError:
    statement = running_code().statement
    if is_item:
        assignment = item_assignment(statement)
        if assignment is not None:
            return MutationError(at_user_line(
                f"{assignment.done} on a traced array: traced arrays cannot change. Write {assignment.instead}"))
    assignment = augmented_assignment(statement)
    done, instead = assignment or (f"x {symbol}= y", f"x = x {symbol} y")
    return MutationError(at_user_line(
        f"{done} would change a traced array ({tracer.aval}) in place: {_WHY[why]}. Write {instead}"))


# --- methods and functions that change an array -----------------------------------------------------------------------


_METHODS = {
    "fill": "{x} = np.full_like({x}, {arguments})",
    "partition": "{x} = np.partition({x}, {arguments})",
    "put": "{x} = fxgrad.numpy.put({x}, {arguments}, inplace=False)",
    "resize": "{x} = np.resize({x}, {arguments})",
}
"""In-place methods of arrays, each with the expression to write instead."""

_FUNCTIONS = {
    "copyto": "{x} = np.broadcast_to({second}, {x}.shape).astype({x}.dtype)",
    "fill_diagonal": "{x} = fxgrad.numpy.fill_diagonal({arguments}, inplace=False)",
    "place": "{x} = fxgrad.numpy.place({arguments}, inplace=False)",
    "put": "{x} = fxgrad.numpy.put({arguments}, inplace=False)",
    "put_along_axis": "{x} = fxgrad.numpy.put_along_axis({arguments}, inplace=False)",
    "putmask": "{x} = np.where({second}, {third}, {x})",
}
CHANGING_FUNCTIONS = frozenset(_FUNCTIONS)
"""NumPy's functions that only change their first argument."""


def mutating_methods() -> dict[str, Function]:
    """Return methods that raise for changes that traced arrays do not support, by name."""
    def refusing(name: str, instead: str) -> Function:
        def method(self: Any, *_: Any, **__: Any) -> Any:
            raise _mutation_error(f"x.{name}(...)", self, instead, is_method=True)
        method.__name__ = method.__qualname__ = name
        method.__doc__ = f"Refused: traced arrays cannot change. Write `{instead.format(x='x', arguments='...')}`."
        return method
    return {name: refusing(name, instead) for name, instead in _METHODS.items()}


def sort_method(sorted_copy: Function) -> Function:
    """Return the method `x.sort()`: it returns a sorted copy, and raises if the result is discarded."""
    def sort(self: Any, *args: Any, **options: Any) -> Any:
        if is_discarded(sys._getframe(1)):
            raise _mutation_error("x.sort()", self, "{x} = np.sort({x}{arguments})", is_method=True)
        return sorted_copy(self, *args, **options)
    sort.__doc__ = sorted_copy.__doc__
    return sort


def function_error(name: str, args: Any, options: Any) -> FxgradError:
    """Return the error for a call of one of `CHANGING_FUNCTIONS`."""
    found = conversion_hint()
    if found is not None and not found.done.split("(")[0].endswith(name):
        return ArrayConversionError(at_user_line(
            f"{found.done} would make an array of NumPy's of traced ones, and cut them off from the derivative. "
            f"{found.instead}"))
    instead = _FUNCTIONS[name]
    if name == "copyto" and (options.get("where", True) is not True or len(args) > 3):
        instead = "{x} = np.where({where}, {second}, {x})"
    return _mutation_error(f"np.{name}(...)", args[0] if args else None, instead)


def option_error(name: str, array: Any, option: str) -> MutationError:
    """Return the error for `out=` and `copy=False`, which make NumPy functions write to `array`."""
    return _mutation_error(f"np.{name}(..., {option}=...)", array, "{target} = {call}", without=option)


_MAKERS = frozenset({"zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "empty", "empty_like", "array",
                     "copy"})
"""Functions and methods whose results are new arrays."""


def is_out_new() -> bool:
    """Return whether the running call makes the array for `out=` itself: `np.divide(a, b, out=np.zeros(3))`."""
    call = running_code().expression
    outs = [each.value for each in call.keywords if each.arg == "out"] if isinstance(call, ast.Call) else []
    if not outs or not isinstance(outs[0], ast.Call):
        return False
    function = outs[0].func
    return (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")) in _MAKERS


def out_error(name: str, out: Any) -> MutationError:
    """Return the error for a ufunc with `out=`, which NumPy arrays call for `S *= k` too."""
    statement = running_code().statement
    assignment = augmented_assignment(statement)
    if assignment is None:
        call = running_call()
        if call is not None and {"out", "where"} <= call.keywords.keys():
            kept = {"out": f"{call.keywords['out']}.copy()", "where": call.keywords["where"]}
            options = ", ".join(f"{key}={value}" for key, value in kept.items())
            return _mutation_error(name, out, f"{{target}} = {call.function}({call.arguments(*kept)}, {options})")
        return option_error(name, out, "out")
    if getattr(out, "base", None) is not None:
        assignment = item_assignment(statement, at="fxgrad.numpy.at({array})") or assignment
    return MutationError(at_user_line(
        f"{assignment.done} would change {_array_text(out)} in place, which cannot be. Write {assignment.instead}"))


def ufunc_at_error(name: str, array: Any) -> MutationError:
    """Return the error for `np.add.at(x, i, y)` and similar calls."""
    method = name if name in ("add", "subtract", "multiply", "divide", "power") else ""
    method = {"maximum": "max", "minimum": "min"}.get(name, method)
    at = "{x}.at" if type(array) is Tracer else "fxgrad.numpy.at({x})"
    instead = f"{{x}} = {at}[{{second}}].{method}({{third}})" if method else (
        f"{{x}} = {at}[{{second}}].set(np.{name}({{x}}[{{second}}], {{third}}))")
    return _mutation_error(f"np.{name}.at(...)", array, instead)


def _mutation_error(shown: str, array: Any, instead: str, is_method: bool = False, without: str = "") -> MutationError:
    call = running_call()
    fields: dict[str, Any] = {"x": "x", "arguments": "...", "call": "...", "target": "result", "where": "mask"}
    places = ["x", "i", "y"]
    if call is not None:
        shown, places = call.text, [*call.positional, *call.keywords.values(), "x", "i", "y"]
        arguments = call.arguments()
        target = call.keywords.get("out", places[0])
        fields = {"x": call.receiver if is_method else places[0], "arguments": arguments,
                  "call": f"{call.function}({call.arguments(without)})",
                  "target": target if target.isidentifier() else "result",
                  "where": call.keywords.get("where", "mask")}
        if instead.endswith("({x}{arguments})") and arguments:
            fields["arguments"] = f", {arguments}"
    elif instead.endswith("({x}{arguments})"):
        fields["arguments"] = ""
    fields |= {"second": places[1], "third": places[2]}
    return MutationError(at_user_line(f"{shown} would change {_array_text(array)} in place, which cannot be. "
                                      f"Write {instead.format(**fields)}"))


def _array_text(array: Any) -> str:
    return f"a traced array ({array.aval})" if type(array) is Tracer else "an array of NumPy's by traced values"
