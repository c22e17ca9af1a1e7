"""What converted code calls in the place of functions: converted ones, and others that take traced values."""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, WrapperDescriptorType
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import tree
from fxgrad.engine.control_flow.arrays import ArrayItems, Part, value_set
from fxgrad.engine.control_flow.assigned_items import Place, attributed, mutable
from fxgrad.engine.control_flow.blocks import block, is_unknown, refuse
from fxgrad.engine.control_flow.conditions import is_none, known_filter
from fxgrad.engine.control_flow.containers import fresh
from fxgrad.engine.control_flow.conversion import ConvertedFunction, converted_callee
from fxgrad.engine.control_flow.effects import check_effect, check_method, check_next
from fxgrad.engine.control_flow.growing import NATIVE_METHODS, columns, has_items, present, rows_of
from fxgrad.engine.control_flow.lending import Argument, lending, shifted
from fxgrad.engine.control_flow.mutators import STORING_METHODS, changes_first, is_ufunc_at, new_elements
from fxgrad.engine.control_flow.names import OPERATORS
from fxgrad.engine.control_flow.numbers import FUNCTIONS, TYPES, function_of_math, is_instance, numpy_number
from fxgrad.engine.control_flow.printing import printed, text_of
from fxgrad.engine.control_flow.sequences import SEQUENCES, plain_enumerate
from fxgrad.engine.control_flow.slice_functions import JOINS, OF_ARRAYS, joined
from fxgrad.engine.control_flow.slices import call as call_on_slices
from fxgrad.engine.control_flow.slices import has_traced_slice, takes
from fxgrad.engine.control_flow.structures import OptionalValue, UnknownLength, is_growing, is_record
from fxgrad.engine.frontend.protocol import written
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transparency.sources import nested_codes
from fxgrad.engine.user_lines import function_name, is_library_file, is_user_file
from fxgrad.lax.bodies import trace_body

_FUNCTIONS_OF_NUMPY = (np.ufunc, type(np.concatenate))
_COPIES: set[Any] = {copy.copy, copy.deepcopy, dataclasses.replace}
"""Functions of libraries whose results are new."""
_MAX_RECURSION = 5
_CROSSED = trace_body.__code__


def called(function: Any, depth: int = 0, *arguments: Argument) -> Any:
    """Return what to call in the place of `function`: its converted form, if it is the user's.

    The function may change `arguments`, which are places of the caller's (`lending`).
    """
    found = _callee(function, depth, arguments)
    if current.get() is None or _is_of_user(function) or _is_of_objects(function):
        return found
    return functools.partial(_call_on_lists, function, found)


def _is_of_objects(function: Any) -> bool:
    """Return whether a function does with a list whose length is traced what it does with any other."""
    return any(function is each for each in (
        list, isinstance, type, id, callable, repr, copy.copy, sorted, enumerate, zip, reversed, map, filter))


_OF_ITEMS: set[Any] = {len, sum, min, max, any, all}


def _is_of_user(function: Any) -> bool:
    """Return whether a function is converted, or makes an object by one that is, or of what it is given."""
    if isinstance(function, type):
        begin = getattr(function, "__init__", None)
        return dataclasses.is_dataclass(function) or hasattr(function, "_fields") or (
            type(begin) is FunctionType and is_user_file(begin.__code__.co_filename))
    if type(function) is FunctionType:
        return function not in replacements and is_user_file(function.__code__.co_filename)
    return type(function) in (ConvertedFunction, functools.partial) or is_record(function) or (
        type(function) is MethodType and _is_of_user(function.__func__))


def _call_on_lists(function: Any, found: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call what stands in the place of a function of others; lists of traced length are read as arrays."""
    if type(function) is MethodDescriptorType and args and is_growing(args[0]):
        return called(function.__get__(args[0]))(*args[1:], **kwargs)
    owner, name = getattr(function, "__self__", None), function_name(function)
    if is_growing(owner) and name not in NATIVE_METHODS and getattr(list, name, None) not in replacements:
        raise refuse(f".{name}() of a list of which a traced condition decides how long it is is not defined here. "
                     "Write the operator, or go over the list in a `for` statement")
    stores = is_growing(owner) or (type(owner) in (list, dict) and name in STORING_METHODS)
    is_of_arrays = (getattr(function, "__module__", None) or type(owner).__module__).startswith(("numpy", "fxgrad"))
    if is_of_arrays:
        args = tuple([rows_of(part) for part in each] if type(each) in (list, tuple) and any(
            map(is_growing, each)) else each for each in args)
    if stores or not any(map(is_growing, (*args, *kwargs.values()))):
        return found(*args, **kwargs)
    if function is bool:
        return has_items(args[0])
    if function is next:
        raise refuse("next() takes an item of those of a list of which a traced condition decides how long it is. Make "
                     "a list of them, and write xs[0] if xs else default")
    if not (function in _OF_ITEMS or is_of_arrays):
        raise refuse(f"{name} gets a list of which a traced condition decides how long it is. Read the list in "
                     "converted code or by a function of NumPy, or pass an array of the greatest length and the number "
                     "of its items")
    if function is len:
        return columns(args[0])[0][0].length
    read = rows_of if is_of_arrays else present
    if is_growing(args[0]) and function in JOINS:
        return joined(function, rows_of(args[0]), *args[1:], **kwargs)
    return found(*map(read, args), **{key: read(value) for key, value in kwargs.items()})


def _callee(function: Any, depth: int, arguments: Sequence[Argument]) -> Any:
    kind = type(function)
    if kind is FunctionType:
        return _called_function(function, depth, arguments)
    if kind is MethodType and type(function.__func__) is FunctionType and not isinstance(
            function.__self__, UnknownLength):
        if not is_user_file(function.__func__.__code__.co_filename):
            check_method(function)
        return MethodType(called(function.__func__, depth, *shifted(arguments, 1)), function.__self__)
    if kind is BuiltinFunctionType:
        return _called_builtin(function)
    if isinstance(function, type):
        return _called_class(function, depth, arguments)
    if kind is functools.partial:
        return functools.partial(called(function.func), *function.args, **function.keywords)
    if kind is ConvertedFunction:
        return called(function.__wrapped__, depth, *arguments)
    if is_record(function) and type(type(function).__call__) is FunctionType:
        return MethodType(called(type(function).__call__, depth, *shifted(arguments, 1)), function)
    if kind in (MethodDescriptorType, WrapperDescriptorType) and block.get() is not None:
        return lambda owner, *args, **kwargs: called(function.__get__(owner))(*args, **kwargs)
    if kind in _FUNCTIONS_OF_NUMPY and current.get() is not None:
        return functools.partial(_call_numpy, function)
    check_method(function)
    return function


def _called_function(function: FunctionType, depth: int, arguments: Sequence[Argument]) -> Any:
    if function in replacements:
        return replacements[function]
    if function in _COPIES:
        return _making(functools.partial(_with_converted_functions, function))
    if is_library_file(function.__code__.co_filename):
        return functools.partial(_with_converted_functions, function)
    found = converted_callee(function)
    if block.get() is not None:
        _refuse_recursion(function, found)
    return lending(found, depth, arguments) if arguments and current.get() is not None else found


def _called_builtin(function: Any) -> Any:
    if function in replacements:
        return replacements[function]
    if function.__module__ in ("math", "cmath"):
        return function_of_math(function)
    if changes_first(function):
        return functools.partial(_changing_first, function)
    check_method(function)
    owner, name = function.__self__, function.__name__
    if type(owner) is str and name == "format":
        return functools.partial(text_of, function)
    if type(owner) is list and (method := getattr(list, name, None)) in replacements:
        return functools.partial(replacements[method], owner)
    if type(owner) in (list, dict) and name == "copy":
        return _making(function)
    return functools.partial(_with_converted_functions, function) if function is functools.reduce else function


def _called_class(kind: type, depth: int, arguments: Sequence[Argument]) -> Any:
    if kind in replacements:
        return replacements[kind]
    if kind is np.vectorize and current.get() is not None:
        return functools.partial(_with_converted_functions, fnp.vectorize)
    if issubclass(kind, np.number | np.bool_):
        return functools.partial(numpy_number, kind)
    begin = getattr(kind, "__init__", None)
    if type(kind) is type and type(begin) is FunctionType and kind.__new__ is object.__new__:
        return functools.partial(_instance, kind, called(begin, depth, *shifted(arguments, 1)))
    if kind.__module__ == "itertools":
        return _making(functools.partial(_mapped, kind))
    if kind in (list, dict, set, zip, reversed) or kind.__module__ != "builtins":
        return _making(kind)
    return kind


def acted(function: Any, depth: int = 0, *arguments: Argument) -> Any:
    """Return what to call in a statement that is this call alone: a function of others is called for an effect."""
    if not (type(function) is BuiltinFunctionType and (function in replacements or changes_first(function))):
        check_effect(function)
    return called(function, depth, *arguments)


def sequence(function: Any) -> Any:
    """Return the function for `range` and its kin in a `for` statement, whose arguments may be traced."""
    return SEQUENCES.get(function) or called(function)


def _changing_first(function: Callable[..., Any], container: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a builtin function that changes the container given first, which the blocks around note or refuse."""
    (attributed if function in (setattr, delattr) else mutable)(container)
    return function(container, *args, **kwargs)


def _making(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose results are known to be new."""
    return lambda *args, **kwargs: fresh(function(*args, **kwargs))


def _next(iterator: Any, *default: Any) -> Any:
    check_next(iterator)
    return next(iterator, *default)


def _instance(kind: type, begin: Callable[..., None], /, *args: Any, **kwargs: Any) -> Any:
    """Return a new object of a class, whose `__init__` is `begin`."""
    made = fresh(object.__new__(kind))
    begin(made, *args, **kwargs)
    return made


def _with_converted_functions(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function of fxgrad's; functions of the user's among its arguments are converted."""
    if has_traced_slice(args):
        return call_on_slices(function, *args, **kwargs)
    return function(*[converted_callee(arg) if type(arg) is FunctionType else
                      called(arg) if type(arg) in (functools.partial, BuiltinFunctionType) else arg for arg in args],
                    **kwargs)


def _mapped(kind: Any, *args: Any, **kwargs: Any) -> Any:
    """Return `map(function, ...)` or an iterator of itertools, whose arguments may be functions or types to call."""
    return _with_converted_functions(
        kind, *[replacements[each] if isinstance(each, type) and each in replacements else each for each in args],
        **kwargs)


def _filtered(function: Any, items: Any) -> Any:
    """Return `filter(function, items)`, of which Python must know what it keeps."""
    of_item = (lambda each: each) if function is None else called(function)
    return filter(lambda each: known_filter(of_item(each), "the condition of filter()"), items)


def _call_numpy(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Return `function(*args)` of NumPy; it does not see by itself that a list holds traced numbers."""
    for changed in (*(args[:1] if changes_first(function) else ()), kwargs.get("out")):
        if isinstance(changed, np.ndarray):
            mutable(changed)
    if has_traced_slice(args):
        return call_on_slices(function, *args, **kwargs)
    of_array = OF_ARRAYS.get(function)
    if of_array is not None and any(map(is_unknown, tree.leaves(args))) and takes(of_array, args, kwargs):
        return of_array(*args, **kwargs)
    lists = [each for each in args if type(each) is list]
    number: Any = next((leaf for leaf in tree.leaves(lists) if type(leaf) is Tracer), None)
    if number is None or any(type(each) is Tracer for each in args):
        return function(*args, **kwargs)
    if isinstance(function, np.ufunc):
        return number.__array_ufunc__(function, "__call__", *args, **kwargs)
    return number.__array_function__(function, (Tracer,), args, kwargs)


def changing(owner: Any, name: str, is_statement: bool = False) -> Any:
    """Return what to call for `owner.name(...)`, which changes an array: itself, or one among the arguments."""
    if isinstance(owner, Place):
        return getattr(owner, name)
    function = getattr(owner, name)
    if is_statement:
        return acted(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        if isinstance(out, ArrayItems | Part):
            del kwargs["out"]
            if isinstance(function, np.ufunc) and "where" in kwargs:
                result = written(function, out.value, *args, **kwargs)
            else:
                result = called(function)(*args, **kwargs)
            del args, kwargs  # they may hold the array
            out[...] = result
            return out.value
        if not args or not isinstance(args[0], ArrayItems | Part):
            return called(function)(*args, **kwargs)
        items, *others = args
        elements = new_elements(function)
        if is_ufunc_at(function) and type(items) is ArrayItems:
            items.apply_at(owner, *others)
        elif elements is not None and takes(elements, (items.value, *others), kwargs):
            items[...] = elements(items.value, *others, **kwargs)
        else:
            return called(function)(items.value, *others, **kwargs)
        return None
    return call


def argument(function: Any, value: Any, name: str) -> Any:
    """Return the variable `name`, which may be None, as an argument of `function`, which `called` returned.

    Converted code that asks whether something is None gets a number that may be, and other code the value. It gets
    that of an array, whose items it may change.
    """
    if type(value) is OptionalValue and not any(map(np.shape, tree.leaves(value.value))):
        code = getattr(getattr(function, "lends_to", getattr(function, "__func__", function)), "__code__", None)
        if code is not None and OPERATORS in code.co_freevars and any(
                is_none.__name__ in each.co_names for each in nested_codes(code)):
            return value
    return value_set(value, name, is_certain=False)


def _refuse_recursion(function: FunctionType, found: FunctionType) -> None:
    """Raise if a function calls itself again and again within traced blocks: tracing would never end."""
    crossing, times = False, 0
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CROSSED:
            crossing = True
        elif crossing and frame.f_code is found.__code__:
            times, crossing = times + 1, False
        frame = frame.f_back  # type: ignore[assignment]
    if times >= _MAX_RECURSION:
        around = block.get()
        assert around is not None
        raise refuse(f"{function_name(function)} calls itself inside {around.text}: both sides of a traced condition "
                     "are traced, so the recursion would not end. Write a `while` loop, with a stack in an array if "
                     "needed")


replacements: dict[Any, Any] = {
    print: printed, isinstance: is_instance, next: _next, iter: _making(iter), enumerate: _making(plain_enumerate),
    map: functools.partial(_mapped, map), filter: _filtered,
    **{each: functools.partial(text_of, each) for each in (str, repr, ascii, format)}, **FUNCTIONS, **TYPES}
"""What is called in the place of functions and types; `builtin_functions.py` adds those that call functions here."""
