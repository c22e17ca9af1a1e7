"""The converted code of a function: read from its source if that is what runs, and compiled at its own lines."""

from __future__ import annotations

import ast
import functools
import traceback
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.caches import Cache
from fxgrad.engine.control_flow.blocks import refuse
from fxgrad.engine.control_flow.containers import ConvertedCall
from fxgrad.engine.control_flow.names import GIVES_NONE, OPERATORS, is_generated
from fxgrad.engine.control_flow.nodes import constant, define_function, placed
from fxgrad.engine.control_flow.rewriting import is_kept, rewrite
from fxgrad.engine.control_flow.structures import ChosenMember, OptionalValue, PossibleItem, UnknownLength
from fxgrad.engine.hints import COMPILED_CONTROL_FLOW
from fxgrad.engine.pickling import is_importable
from fxgrad.engine.tracebacks import shorten_traceback
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.transparency.sources import FUTURE, code_key, nested_codes, syntax_tree
from fxgrad.engine.user_lines import at_user_line, file_name, function_name, is_user_file
from fxgrad.engine.user_source import copy_tree, walk_tree
from fxgrad.errors import ConcretizationError, ControlFlowError, UnsupportedError

_conversions = Cache("converted control flow", 1024)
"""The converted code of a code object, or the reason why there is none; see `code_key`."""

_operators: CellType = CellType()
_SCOPES = {"locals", "vars", "eval", "exec", "globals"}


def install_operators(operators: Any) -> None:
    """Set the object whose attributes are the operators that converted code calls."""
    _operators.cell_contents = operators


def converted(function: FunctionType) -> FunctionType:
    """Return the converted function; raise `UnsupportedError` if it cannot be converted."""
    found = _conversion(function)
    if isinstance(found, str):
        raise UnsupportedError(at_user_line(f"python_control_flow: {function_name(function)} cannot be converted: "
                                            f"{found}"))
    return _bind(function, found)


class ConvertedFunction:
    """A function with converted control flow, `result` if that is known; called as the original."""

    def __init__(self, function: FunctionType, result: FunctionType | None = None) -> None:
        functools.update_wrapper(self, function)
        self.converted = converted(function) if result is None else result

    # Programs are those of the function: without traced conditions, the same. These are no entries of `__dict__`, which
    # wrappers copy and pickle.
    __code__ = property(lambda self: self.__wrapped__.__code__)
    __defaults__ = property(lambda self: self.__wrapped__.__defaults__)
    __kwdefaults__ = property(lambda self: self.__wrapped__.__kwdefaults__)
    __closure__ = property(lambda self: self.__wrapped__.__closure__)
    __globals__ = property(lambda self: self.__wrapped__.__globals__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with ConvertedCall():
                result = self.converted(*args, **kwargs)
                if current.get() is None or not any(isinstance(leaf, _OF_CONVERTED) for leaf in tree.leaves(result)):
                    return result
                return tree.map(functools.partial(_array_of_result, self.converted), result)
        except Exception as error:  # noqa: BLE001  (raised again)
            _name_reason(error)
            __tracebackhide__ = True
            raise shorten_traceback(error)  # noqa: B904

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        """Pickle by name if a module has it, as any function; else by the function and what it was converted to."""
        if is_importable(self):
            return getattr(self, "__qualname__")  # noqa: B009  (the function's, which no class declares)
        return ConvertedFunction, (self.__wrapped__, self.converted)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<python_control_flow of {self.__wrapped__!r}>"  # type: ignore[attr-defined]


_OF_CONVERTED = UnknownLength | OptionalValue | ChosenMember | PossibleItem
"""Values that converted code alone can read."""


def _array_of_result(function: FunctionType, value: Any) -> Any:
    """Return a value that a converted function returns to code that is not converted."""
    name, code = function_name(function), function.__code__
    if isinstance(value, UnknownLength):
        raise refuse(f"{name} returns a slice with a traced bound, whose length is not known. Return the whole array, "
                     "and the bounds beside it")
    if type(value) is PossibleItem:
        raise refuse(f"{name} returns a list of which a traced condition decides how long it is. Return an array of "
                     "the greatest length, and the number of its items; or what you read from the list: len(x), "
                     "sum(x)")
    place = f"\n  at {file_name(code.co_filename)}:{code.co_firstlineno} (in {name})"
    if type(value) is ChosenMember:
        raise ControlFlowError(
            f"{name} returns {value!r} that a traced condition chose: what is compiled or batched returns arrays and "
            f"numbers. Return x.value, if that is a number, or make the enumeration an enum.IntEnum{place}")
    if type(value) is not OptionalValue:
        return value
    if GIVES_NONE in code.co_varnames:
        raise ControlFlowError(
            f"{name} returns None on one path and a value on another, and a traced condition chooses: what is compiled "
            "or batched returns arrays and numbers. In the place of None, return np.nan or another default; or return "
            f"a flag beside the value: `return x, True` and `return 0.0, False`{place}")
    return value.required(f"{name} returned None to code that is not converted, which needs a value. Return a flag "
                          "beside it, NaN or a default")


def _name_reason(error: Exception) -> None:
    """Have an error about a condition in a function that could not be converted say why it was not."""
    if not isinstance(error, ConcretizationError):
        return
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)
             if is_user_file(frame.f_code.co_filename)]
    reason = _conversions.get(code_key(codes[-1])) if codes else None
    text = ""
    if isinstance(reason, str):
        text = f" python_control_flow leaves {codes[-1].co_name} as it is: {reason}"
    elif codes and reason is None:
        text = (f" Or decorate {codes[-1].co_name} with fxgrad.python_control_flow: it is not converted by itself, "
                "since a property, an operator or a library calls it")
    error.args = (str(error).replace(f" {COMPILED_CONTROL_FLOW}", text),)


def converted_callee(function: FunctionType) -> FunctionType:
    """Return a function that converted code calls: converted if it is the user's and its source is known."""
    if not is_user_file(function.__code__.co_filename):
        return function
    found = _conversion(function)
    return function if isinstance(found, str) else _bind(function, found)


def _bind(function: FunctionType, code: CodeType) -> FunctionType:
    """Return a function of the converted code that shares all variables with the original."""
    if code is function.__code__:
        return function
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple(_operators if name == OPERATORS else cells[name] for name in code.co_freevars)
    bound = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    bound.__kwdefaults__, bound.__qualname__ = function.__kwdefaults__, function.__qualname__
    bound.__dict__.update(function.__dict__)
    return bound


def _conversion(function: FunctionType) -> CodeType | str:
    code = function.__code__
    found: CodeType | str | None = _conversions.get(code_key(code))
    if found is None:
        found = _conversions.add(code_key(code), _convert(function))
        if isinstance(found, CodeType):  # functions defined inside of it are converted already
            for each in nested_codes(found):
                _conversions.add(code_key(each), each)
    return found


def _convert(function: FunctionType) -> CodeType | str:
    code = function.__code__
    node = syntax_tree(function)
    if isinstance(node, str) and code.co_filename.startswith("<"):
        return (f"its source is not in a file (it was typed at a prompt, or made by exec, in {code.co_filename}). "
                "Write it into a file and import it, or use fxgrad.lax.cond and while_loop")
    if isinstance(node, str):
        return f"{node}. Save the file and import it again, or use fxgrad.lax.cond and while_loop"
    if is_kept(node) if isinstance(node, ast.FunctionDef) else code.co_flags & 0x20:
        return (f"it is a generator ({file_name(code.co_filename)}:{code.co_firstlineno}), whose turns are asked for "
                "from outside. Return a list, or use fxgrad.lax.scan")
    called = set() if all(_SCOPES.isdisjoint(each.co_names) for each in nested_codes(code)) else {
        each.func.id for each in walk_tree(node) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}
    if looks := sorted(called & _SCOPES):
        return (f"it calls {looks[0]}(), which sees variables by name "
                f"({file_name(code.co_filename)}:{code.co_firstlineno}). Use the variables themselves")
    return _compile(function, rewrite(copy_tree(node)))


def _compile(function: FunctionType, node: ast.FunctionDef | ast.Lambda) -> CodeType:
    """Return the code of a rewritten function, under the user's file name and with the user's names."""
    code = function.__code__
    free = [*code.co_freevars, OPERATORS]
    if isinstance(node, ast.FunctionDef):
        node.decorator_list, node.returns, node.name = [], None, "~function"  # its own name is not of this scope
        inner: list[ast.stmt] = [node]
    else:
        inner = [placed(ast.Expr(node), node)]
    for each in walk_tree(node.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    node.args.defaults = [constant(None, node) for _ in node.args.defaults]
    node.args.kw_defaults = [each and constant(None, node) for each in node.args.kw_defaults]
    around: ast.stmt = define_function("~around", inner, free, node)
    if (owner := _class_of(code)) is not None:  # so that private names are those of the class
        around = placed(ast.ClassDef(owner, [], [], [around], []), node)
    compiled = compile(ast.Module([around], []), code.co_filename, "exec", flags=code.co_flags & FUTURE,
                       dont_inherit=True)
    outside = next(each for each in nested_codes(compiled) if each.co_name == "~around")
    found = next(each for each in outside.co_consts if isinstance(each, CodeType))
    return _renamed(found, code.co_name, code.co_qualname)


def _class_of(code: CodeType) -> str | None:
    parts = code.co_qualname.split(".")
    return parts[-2] if len(parts) > 1 and parts[-2] != "<locals>" else None


def _renamed(code: CodeType, name: str, qualname: str) -> CodeType:
    """Return the code with the user's names: blocks are named as the function that they belong to."""
    constants: list[Any] = []
    for each in code.co_consts:
        if isinstance(each, CodeType):
            generated = is_generated(each.co_name) or "~" in each.co_varnames
            each = _renamed(each, name if generated else each.co_name,  # noqa: PLW2901
                            qualname if generated else f"{qualname}.<locals>.{each.co_name}")
        constants.append(each)
    return code.replace(co_name=name, co_qualname=qualname, co_consts=tuple(constants))
