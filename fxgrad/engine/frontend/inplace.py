"""Changes in place of traced arrays: what only rebinds a name is done, what another name would see is refused.

`x += y` changes the array of `x` in NumPy. A traced array cannot change; a new one in its place is the same to
everyone if nothing else refers to the array: no other name, no container, no view, no caller. Views refer to what they
are views of (`Tracer.viewed`), so the number of references says it all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.hints import conversion
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.engine.user_source import augmented, is_discarded, item_assignment, running_call, running_code
from fxgrad.errors import ArrayConversionError, DTypeError, FxgradError, MutationError, ShapeError

Function = Callable[..., Any]
_references = sys.getrefcount


class _Probe:
    """Counts the references that an in-place operator sees where one name has the object."""

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
"""References to an object that a local variable has alone, and to one that an item or an attribute has: later versions
of Python count no reference of their own while they use a local variable."""


def operator(symbol: str, function: Function) -> Function:
    """The method for `x += y`, where `symbol` is `+` and `function` that of `x + y`."""
    def method(self: Any, other: Any) -> Any:
        aval = self.variable.aval
        if not aval.shape:  # NumPy's scalars never change: the name gets another
            if _is_array_of_callers(self):
                raise _refusal(self, symbol, "argument")
            if _is_view_of_array(self):
                raise _refusal(self, symbol, "view")
            return function(self, other)
        count = _references(self)
        why = _seen(self, count)
        if why:
            raise _refusal(self, symbol, why, is_item=count < _allowed(self))
        result = function(self, other)
        if type(result) is Tracer and result.variable.aval != aval:
            return _of_type(symbol, self, result)
        return result
    return method


def _seen(tracer: Tracer, count: int) -> str:
    """Who else would see a change of the array: "" if nobody."""
    viewed = getattr(tracer, "viewed", tracer)
    if type(viewed) is Tracer and viewed is not tracer:
        return "view"
    if viewed is tracer and _is_input(tracer):
        return "" if tracer.tape.owns_inputs else "argument"
    return "name" if count > _allowed(tracer) else ""


def _allowed(tracer: Tracer) -> int:
    if _NAMED == _HELD:
        return _HELD
    frame = sys._getframe(2)
    code = frame.f_code
    plain = set(code.co_varnames) - set(code.co_cellvars)
    return _NAMED if any(name in plain and value is tracer for name, value in frame.f_locals.items()) else _HELD


def _is_input(tracer: Tracer) -> bool:
    return any(var is tracer.variable for var in tracer.tape.root.outputs)


def _is_array_of_callers(tracer: Tracer) -> bool:
    """Whether a 0-d tracer stands for an array of shape () that the function was called with."""
    tape = tracer.tape
    if tape.values is None or hasattr(tracer, "viewed"):
        return False
    return any(var is tracer.variable and type(value) is np.ndarray
               for var, value in zip(tape.root.outputs, tape.values, strict=True))


def _is_view_of_array(tracer: Tracer) -> bool:
    """Whether a 0-d tracer stands for an array of shape () that shares the memory of one with axes: `y[0, ...]`."""
    viewed = getattr(tracer, "viewed", None)
    while type(viewed) is Tracer:
        if viewed.variable.aval.shape:
            return True
        viewed = getattr(viewed, "viewed", None)
    return False


_KINDS = "buifc"


def _of_type(symbol: str, array: Tracer, result: Tracer) -> Tracer:
    """The result in the type of the array, as NumPy writes it there; raises where it refuses to."""
    own, aval = array.aval, result.aval
    if aval.shape != own.shape:
        raise ShapeError(at_user_line(
            f"x {symbol}= y: the result has shape {aval.shape} and x has shape {own.shape}, which cannot change in "
            f"place. Write x = x {symbol} y"))
    if aval.dtype != own.dtype and _KINDS.index(_kind(aval.dtype)) > _KINDS.index(_kind(own.dtype)):
        raise DTypeError(at_user_line(
            f"x {symbol}= y: the result is of dtype {aval.dtype.name} and x of dtype {own.dtype.name}, which cannot "
            f"change in place. Write x = x {symbol} y, or convert the result: (x {symbol} y).astype(x.dtype)"))
    return convert(result, own.dtype, own.weak)


def _kind(dtype: Any) -> str:
    return "f" if dtypes.is_inexact(dtype) and not dtypes.is_complex(dtype) else dtype.kind


_WHY = {
    "view": "it is a view, and NumPy would change what it is a view of too, which here stays as it is",
    "argument": "it belongs to the caller of the function, and NumPy would change it there too",
    "name": "another name, a container or a view has it too, and in NumPy would see the change",
}


def _refusal(tracer: Tracer, symbol: str, why: str, is_item: bool = False) -> MutationError:
    statement = running_code().statement
    if is_item:
        assignment = item_assignment(statement)
        if assignment is not None:
            return MutationError(at_user_line(
                f"{assignment.done} on a traced array: traced arrays cannot change. Write {assignment.instead}"))
    assignment = augmented(statement)
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
"""Methods of arrays that do nothing but change them, by what to write instead."""

_FUNCTIONS = {
    "copyto": "{x} = np.broadcast_to({second}, {x}.shape).astype({x}.dtype)",
    "fill_diagonal": "{x} = fxgrad.numpy.fill_diagonal({arguments}, inplace=False)",
    "place": "{x} = fxgrad.numpy.place({arguments}, inplace=False)",
    "put": "{x} = fxgrad.numpy.put({arguments}, inplace=False)",
    "put_along_axis": "{x} = fxgrad.numpy.put_along_axis({arguments}, inplace=False)",
    "putmask": "{x} = np.where({second}, {third}, {x})",
}
CHANGING_FUNCTIONS = frozenset(_FUNCTIONS)
"""Functions of NumPy's that do nothing but change their first argument."""


def changing_methods() -> dict[str, Function]:
    """Methods that refuse what traced arrays cannot do, by name."""
    def refusing(name: str, instead: str) -> Function:
        def method(self: Any, *_: Any, **__: Any) -> Any:
            raise _changed(f"x.{name}(...)", self, instead, is_method=True)
        method.__name__ = method.__qualname__ = name
        method.__doc__ = f"Refused: traced arrays cannot change. Write `{instead.format(x='x', arguments='...')}`."
        return method
    return {name: refusing(name, instead) for name, instead in _METHODS.items()}


def sorting(sorted_copy: Function) -> Function:
    """`x.sort()`: a sorted copy, as jax's; refused where the result is not used, for it is to change `x` then."""
    def sort(self: Any, *args: Any, **options: Any) -> Any:
        if is_discarded(sys._getframe(1)):
            raise _changed("x.sort()", self, "{x} = np.sort({x}{arguments})", is_method=True)
        return sorted_copy(self, *args, **options)
    sort.__doc__ = sorted_copy.__doc__
    return sort


def refuse_function(name: str, args: Any, options: Any) -> FxgradError:
    """The error for a call of one of `CHANGING_FUNCTIONS`, by the user or by another function of NumPy's."""
    found = conversion()
    if found is not None and not found.done.split("(")[0].endswith(name):
        return ArrayConversionError(at_user_line(
            f"{found.done} would make an array of NumPy's of traced ones, and cut them off from the derivative. "
            f"{found.instead}"))
    instead = _FUNCTIONS[name]
    if name == "copyto" and (options.get("where", True) is not True or len(args) > 3):
        instead = "{x} = np.where({where}, {second}, {x})"
    return _changed(f"np.{name}(...)", args[0] if args else None, instead)


def refuse_option(name: str, array: Any, option: str) -> MutationError:
    """The error for `out=` and `copy=False`, by which functions of NumPy's write to `array`."""
    return _changed(f"np.{name}(..., {option}=...)", array, "{target} = {call}", without=option)


def refuse_out(name: str, out: Any) -> MutationError:
    """The error for a ufunc with `out=`; NumPy's arrays call one so for `S *= k` too."""
    statement = running_code().statement
    assignment = augmented(statement)
    if assignment is None:
        return refuse_option(name, out, "out")
    if getattr(out, "base", None) is not None:
        assignment = item_assignment(statement, at="fxgrad.numpy.at({array})") or assignment
    return MutationError(at_user_line(
        f"{assignment.done} would change {_shown(out)} in place, which cannot be. Write {assignment.instead}"))


def refuse_ufunc_at(name: str, array: Any) -> MutationError:
    """The error for `np.add.at(x, i, y)` and its like."""
    method = name if name in ("add", "subtract", "multiply", "divide", "power") else ""
    method = {"maximum": "max", "minimum": "min"}.get(name, method)
    at = "{x}.at" if type(array) is Tracer else "fxgrad.numpy.at({x})"
    instead = f"{{x}} = {at}[{{second}}].{method}({{third}})" if method else (
        f"{{x}} = {at}[{{second}}].set(np.{name}({{x}}[{{second}}], {{third}}))")
    return _changed(f"np.{name}.at(...)", array, instead)


def _changed(shown: str, array: Any, instead: str, is_method: bool = False, without: str = "") -> MutationError:
    call = running_call()
    fields: dict[str, Any] = {"x": "x", "arguments": "...", "call": "...", "target": "result", "where": "mask"}
    places = ["x", "i", "y"]
    if call is not None:
        shown, places = call.text, [*call.positional, *call.keywords.values(), "x", "i", "y"]
        arguments = call.arguments()
        fields = {"x": call.receiver if is_method else places[0], "arguments": arguments,
                  "call": f"{call.function}({call.arguments(without)})",
                  "target": _assignable(call.keywords.get("out", places[0])),
                  "where": call.keywords.get("where", "mask")}
        if instead.endswith("({x}{arguments})") and arguments:
            fields["arguments"] = f", {arguments}"
    elif instead.endswith("({x}{arguments})"):
        fields["arguments"] = ""
    fields |= {"second": places[1], "third": places[2]}
    return MutationError(at_user_line(f"{shown} would change {_shown(array)} in place, which cannot be. "
                                      f"Write {instead.format(**fields)}"))


def _assignable(target: str) -> str:
    return target if target.isidentifier() else "result"


def _shown(array: Any) -> str:
    return f"a traced array ({array.aval})" if type(array) is Tracer else "an array of NumPy's by traced values"
