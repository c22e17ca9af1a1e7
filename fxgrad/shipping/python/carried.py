"""Copy functions, and all that they refer to, into files that import NumPy and nothing of this package.

A function is looked up in its file, its names are resolved as Python would resolve them, and their values are copied
too: functions and classes as source, modules as imports, constants as expressions. References to XLA, to the tracer, or
to a Python object without a source are refused.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
import types
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad import dtypes, errors
from fxgrad.extend import Aval, Literal, Primitive, StructuralKey, at_user_line, copy_tree
from fxgrad.extend.kernels import ArrayKernel
from fxgrad.shipping.python import constants
from fxgrad.shipping.python.trees import (
    SourceRefusal,
    assigned_value,
    class_node,
    function_node,
    inner_names,
    outer_names,
    parse_expression,
    tree_text,
)
from fxgrad.text.names import UniqueNames

PACKAGES = frozenset(["numpy", "scipy", "ml_dtypes", *sys.stdlib_module_names])
"""Packages that a file may import; apart from NumPy and the standard library only if a kernel needs them."""
CARRIED = ("fxgrad.engine.ops", "fxgrad.engine.dtypes")
"""The parts of this package whose functions are copied to files: kernels, and their dtype helpers."""


UNTOLD = ("<lambda>", "kernel", "rule", "numpy")
"""Function names that do not describe the function."""
CALLS_BACK = "calls a function of Python's back"
REASONS = {
    "fxgrad.engine.frontend.callback": CALLS_BACK,
    "fxgrad.engine.higher_order.checks": CALLS_BACK,
    "fxgrad.interop.opaque": "is an operation of jax's",
    "fxgrad.engine.parallel.collective": "speaks over a mapped axis",
    "fxgrad.engine.parallel.gathers": "speaks over a mapped axis",
    "fxgrad.engine.higher_order.custom": "asks the rule of a custom_vjp function what to compute",
    "fxgrad.engine.ops.xla_kernels": "is computed by XLA",
}
"""Why the kernels of some modules cannot be written."""
SUBSTITUTES: dict[Any, str] = {
    Aval: '''\
class {name}:
    """The type of an array."""

    def __init__(self, shape, dtype, weak=False):
        self.shape, self.dtype, self.weak, self.ndim = shape, dtype, weak, len(shape)
        self.size = math.prod(shape)

    def strong(self):
        return self

    def update(self, shape=None, dtype=None):
        return {name}(self.shape if shape is None else shape, self.dtype if dtype is None else dtype)

    def __repr__(self):
        return f"{{self.dtype}}{{[*self.shape]}}"''',
    dtypes.kind_of: '''\
def {name}(dtype):
    """`b`, `i`, `u`, `f` or `c`: bool, signed or unsigned integer, floating, complex, of bfloat16 too."""
    return "f" if "float" in dtype.name else dtype.kind''',
    dtypes.bits_of: '''\
def {name}(dtype):
    """The bits of a number."""
    return 4 if dtype.name.startswith("float4") else 8 * dtype.itemsize''',
    dtypes.is_below_byte: '''\
def {name}(dtype):
    """Whether `dtype` is an integer of less than 8 bits: there is none here."""
    return False''',
    dtypes.iinfo: '''\
def {name}(dtype):
    """The limits of an integer dtype."""
    return np.iinfo(dtype)''',
}
"""Replacements of functions whose source refers to more than kernels need, or to ml_dtypes."""


class FileDefinition(NamedTuple):
    """A definition in a file: its lines."""

    name: str
    text: str


class Carrier:
    """Names for objects in one file, and the definitions and imports that give them their meaning.

    `names` supplies names that no variable of the file has.
    """

    def __init__(self, names: UniqueNames) -> None:
        self.imports: dict[str, str] = {}
        self.operation = "kernel"
        """The name of kernels that have no name of their own."""
        self.functions: list[FileDefinition] = []
        self.constants: list[FileDefinition] = []
        self._names = names
        self._known: dict[int, tuple[Any, str]] = {}  # with the object, so that its id is not reused

    def expression(self, value: Any, wanted: str = "") -> str:
        """Return an expression for `value`; long constants are defined under the name `wanted`, if given."""
        if id(value) in self._known:
            return self._known[id(value)][1]
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if isinstance(value, type | types.FunctionType) and value in SUBSTITUTES:
            text = SUBSTITUTES[value]
            if "math." in text:
                self.root("math")
            name = self._remember(value, value.__name__)
            self.functions.append(FileDefinition(name, text.format(name=name)))
            return name
        if isinstance(value, type):
            return self._class(value)
        if value is dtypes.bfloat16:
            return "'bfloat16'"  # which dtypes compare with, whether ml_dtypes is there or not
        if isinstance(value, ArrayKernel):
            # The form in which other kernels call the rule: with its one result in a list.
            function, name = self.expression(value.function, wanted), self._remember(value, f"{wanted}_rule")
            self.functions.append(FileDefinition(
                name, f"def {name}(*arrays, **params):\n    return [{function}(*arrays, **params)]"))
            return name
        if isinstance(value, functools.partial):
            given = [self.expression(arg) for arg in value.args]
            given += [f"{name}={self.expression(arg)}" for name, arg in value.keywords.items()]
            return f"{self.root('functools')}.partial({', '.join([self.expression(value.func), *given])})"
        if callable(value) and not isinstance(value, np.dtype | np.generic | StructuralKey):
            return self._function(value)
        text = self._value(value)
        if wanted and len(text) > 40:
            return self._constant(value, wanted, text)
        return text

    def named(self, values: dict[str, Any], name: str) -> str:
        """Return the expression of `name` among the `values` of a module; its own source if there is no other way."""
        try:
            return self.expression(values[name], name)
        except SourceRefusal:
            assigned = assigned_value(values, name)
            if assigned is None:
                raise
            text = ast.unparse(_Renaming(self, values, None).visit(copy_tree(assigned)))
            return self._constant(values[name], name, text)

    def _constant(self, value: Any, wanted: str, text: str) -> str:
        name = self._remember(value, wanted)
        self.constants.append(FileDefinition(name, f"{name} = {text}"))
        return name

    def _remember(self, value: Any, wanted: str) -> str:
        name = self._names(wanted)
        self._known[id(value)] = value, name
        return name

    def _value(self, value: Any) -> str:
        kind = type(value)
        if isinstance(value, Literal):
            return constants.scalar_text(value.value, self.root)
        if hasattr(kind, "_fields") and isinstance(value, tuple):
            fields = [f"{name}={self.expression(item)}" for name, item in zip(kind._fields, value, strict=True)]
            return f"{self.expression(kind)}({', '.join(fields)})"
        text = constants.value_text(value, self.expression, self.root)
        if text is None:
            raise SourceRefusal(f"holds an object of the class {kind.__name__}, which has no text")
        return text

    # --- imports ----------------------------------------------------------------------------------------------

    def root(self, package: str) -> str:
        """Return the name of a package, which the file then imports."""
        if package not in PACKAGES:
            raise SourceRefusal("is computed by XLA" if package.startswith("jax") else f"needs the package {package}")
        self.imports[package] = "import numpy as np" if package == "numpy" else f"import {package}"
        return "np" if package == "numpy" else package

    def _module(self, module: types.ModuleType) -> str:
        package, *inner = module.__name__.split(".")
        name = self.root(package)
        if inner and package != "numpy":
            self.imports[module.__name__] = f"import {module.__name__}"
        return ".".join([name, *inner])

    def _import_path(self, value: Any) -> str | None:
        """Return the path to an object of another package; None if there is none."""
        name = getattr(value, "__name__", "")
        for place in dict.fromkeys([getattr(value, "__module__", None) or "numpy", "numpy", "scipy.special"]):
            module = sys.modules.get(str(place))
            public = str(place).replace("._core.", ".").split("._")[0]
            for home in dict.fromkeys([public.split(".")[0], public]):
                if module is not None and getattr(sys.modules.get(home), name, None) is value:
                    return f"{self._module(sys.modules[home])}.{name}"
        return None

    # --- copied definitions -----------------------------------------------------------------------------------

    def _class(self, kind: type) -> str:
        if issubclass(kind, errors.FxgradError):
            return "ValueError"
        package = kind.__module__.split(".")[0]
        if package == "builtins":
            return kind.__name__
        if package in PACKAGES:
            path = self._import_path(kind)
            if path is not None:
                return path
        refuse_internals(kind)
        name = self._remember(kind, kind.__name__)
        node = copy_tree(class_node(kind))
        node.name, node.decorator_list = name, [self._resolve(each, kind) for each in node.decorator_list]
        node.bases = [self._resolve(base, kind) for base in node.bases]
        node.body = [self._member(member, kind) for member in node.body]
        self.functions.append(FileDefinition(name, tree_text(node)))
        return name

    def _member(self, member: ast.stmt, kind: type) -> Any:
        if isinstance(member, ast.FunctionDef):
            found = kind.__dict__[member.name]
            for name in ("fget", "__func__", "func"):  # of a property, a static method or a class method
                found = getattr(found, name, found)
            function = inspect.unwrap(found)
            return self._rewrite_function(member, function)
        if isinstance(member, ast.AnnAssign):
            member.annotation = ast.Name("object")
            if member.value is not None:
                member.value = self._resolve(member.value, kind)
        return member

    def _resolve(self, node: ast.expr, kind: type) -> Any:
        """Return an expression of a class body, with names resolved in the module."""
        return _Renaming(self, vars(sys.modules[kind.__module__]), None).visit(node)

    def inlined(self, function: Any, operands: Sequence[str], params: dict[str, str]) -> str | None:
        """Return the expression of a lambda kernel, with texts for its arguments; None for other kernels."""
        if not isinstance(function, types.FunctionType) or _package(function) != "fxgrad":
            return None
        refuse_internals(function)
        node = function_node(function)
        if not isinstance(node, ast.Lambda) or any(isinstance(each, ast.Lambda) for each in ast.walk(node.body)):
            return None
        written = self._rewrite_function(copy_tree(node), function)
        texts = dict(zip([arg.arg for arg in written.args.args], operands, strict=False))
        named = {name: ast.unparse(default) for name, default in zip(
            [arg.arg for arg in written.args.kwonlyargs], written.args.kw_defaults, strict=True) if default is not None}
        rest = operands[len(written.args.args):] if written.args.vararg is not None else None
        return ast.unparse(_ArgumentSubstitution({**texts, **named, **params}, written.args.vararg,
                                                 rest).visit(written.body))

    def _function(self, value: Any) -> str:
        path = self._import_path(value) if _package(value) in PACKAGES or isinstance(value, np.ufunc) else None
        if path is not None:
            return path
        if getattr(builtins, getattr(value, "__name__", ""), None) is value:
            return str(getattr(value, "__name__"))  # noqa: B009  (which mypy does not know of)
        owner = getattr(value, "__self__", None)
        if isinstance(owner, np.ufunc):
            numpy = self.root("numpy")
            return f"{numpy}.sum" if value == np.add.reduce else f"{self.expression(owner)}.{value.__name__}"
        function = inspect.unwrap(value) if hasattr(value, "__wrapped__") else value
        if function is at_user_line:
            return "str"  # for a message: a file has no user's lines to add
        if _package(function) in ("jax", "jaxlib"):
            raise SourceRefusal("is computed by XLA")
        if not isinstance(function, types.FunctionType):
            raise SourceRefusal(f"calls an object of the class {type(function).__name__}, which has no source")
        refuse_internals(function)
        node = function_node(function)
        name = self._remember(value, self.operation if function.__name__ in UNTOLD else function.__name__)
        self._known[id(function)] = function, name
        written = self._rewrite_function(copy_tree(node), function)
        if isinstance(written, ast.Lambda):
            written = ast.FunctionDef(name, written.args, [ast.Return(written.body)], [])
        written.name, written.decorator_list = name, []
        self.functions.append(FileDefinition(name, tree_text(written)))
        return name

    def _rewrite_function(self, node: Any, function: types.FunctionType) -> Any:
        """Return the tree of a function, with the file's names for outer ones, and without annotations."""
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        values = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        outer = {*outer_names(function.__code__), *function.__code__.co_freevars}
        ambiguous = outer & {*inner_names(function.__code__)}
        if ambiguous:
            raise AssertionError(f"{function.__qualname__} has {', '.join(ambiguous)} both inside and outside")
        decorators = [*getattr(node, "decorator_list", [])]
        node = _Renaming(self, values, outer).visit(node)
        if decorators:
            node.decorator_list = decorators
        node.args.defaults = [parse_expression(self.expression(value)) for value in function.__defaults__ or ()]
        named = function.__kwdefaults__ or {}
        node.args.kw_defaults = [parse_expression(self.expression(named[arg.arg])) if arg.arg in named else None
                                 for arg in node.args.kwonlyargs]
        return node


class _Renaming(ast.NodeTransformer):
    """Replaces outer names by expressions of the file, and removes annotations.

    `outer` are the names to look up in `values`; None for all.
    """

    def __init__(self, carrier: Carrier, values: dict[str, Any], outer: set[str] | None) -> None:
        self._carrier, self._values, self._outer = carrier, values, outer

    def visit_Name(self, node: ast.Name) -> Any:
        if (self._outer is not None and node.id not in self._outer) or node.id not in self._values:
            return node
        return parse_expression(self._carrier.named(self._values, node.id))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        base = node.value
        if isinstance(base, ast.Name) and (self._outer is None or base.id in self._outer):
            holder = self._values.get(base.id)
            if isinstance(holder, Primitive) or (
                    isinstance(holder, types.ModuleType) and holder.__name__.split(".")[0] == "fxgrad"):
                return parse_expression(self._carrier.expression(getattr(holder, node.attr), node.attr))
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> Any:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return ast.Pass()
        return self.generic_visit(ast.Assign([node.target], node.value))

    def visit_Import(self, node: ast.Import) -> Any:
        for alias in node.names:
            self._carrier.root(alias.name.split(".")[0])
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        self._carrier.root(str(node.module).split(".")[0])
        return node


class _ArgumentSubstitution(ast.NodeTransformer):
    """Puts the arguments of a call into the body of a lambda."""

    def __init__(self, texts: dict[str, str], rest_name: ast.arg | None, rest: Sequence[str] | None) -> None:
        self._trees = {name: parse_expression(text) for name, text in texts.items()}
        if rest is not None and rest_name is not None:
            self._trees[rest_name.arg] = ast.Tuple([*map(parse_expression, rest)])

    def visit_Name(self, node: ast.Name) -> Any:
        return self._trees.get(node.id, node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """Evaluate a condition on a parameter at once."""
        self.generic_visit(node)
        try:
            return node.body if ast.literal_eval(node.test) else node.orelse
        except ValueError:
            return node


def _package(value: Any) -> str:
    return str(getattr(value, "__module__", "") or "").split(".")[0]


def refuse_internals(value: Any) -> None:
    """Raise `SourceRefusal` for objects of the library's machinery, which are no kernels."""
    module = str(value.__module__)
    if module in REASONS:
        raise SourceRefusal(REASONS[module])
    carried = any(f"{module}.".startswith(f"{part}.") for part in CARRIED)
    if module.partition(".")[0] == "fxgrad" and not carried:
        raise SourceRefusal(f"asks fxgrad itself what to compute ({value.__qualname__})")
