"""Arguments and results of a program as Python code: parameters, unpacking of containers and the return value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fxgrad import tree
from fxgrad.errors import UnsupportedError
from fxgrad.extend import Program, Variable
from fxgrad.shipping.python import constants
from fxgrad.shipping.python.carried import Carrier, FileDefinition
from fxgrad.text.names import UniqueNames

CHECK = '''\
def {name}(value, name, dtype, shape):
    """The value of an input as an array; numbers of Python's take on the dtype."""
    dtype, array = np.dtype(dtype), np.asarray(value)
    if type(value) in (bool, int, float, complex):
        array = array.astype(dtype)
    if array.dtype != dtype or array.shape != shape:
        raise TypeError(f"{{name}} is {{array.dtype}}{{[*array.shape]}}, where {{dtype}}{{[*shape]}} is needed")
    return array[()]'''


class Containers:
    """The code for the containers of one program.

    `parameters` are those of its function. Without a signature, or with one read from a text, each input is a
    parameter.
    """

    def __init__(self, program: Program, names: dict[Variable, str], carrier: Carrier, unique: UniqueNames) -> None:
        self._program, self._names, self._carrier, self._unique = program, names, carrier, unique
        self._check = ""
        self._inputs = program.inputs[len(program.constants):]
        self._paths: list[str] = [names[var] for var in self._inputs]
        self.parameters: list[str] = [*self._paths]
        signature = program.signature
        if signature is not None and signature.in_tree is not None:
            self.parameters = self._parameter_lines(signature.in_tree, signature.input_names)

    def _parameter_lines(self, structure: Any, input_names: Sequence[str]) -> list[str]:
        """Return the parameters, and the expression of each input in terms of them."""
        args, kwargs = tree.unflatten(structure, range(structure.num_leaves))
        parameters: list[str] = []
        taken = UniqueNames([*self._names.values(), "np"])
        for position, arg in enumerate(args):
            leaves = tree.leaves_with_path(arg)
            if len(leaves) == 1 and not leaves[0][0]:
                parameters.append(self._paths[leaves[0][1]])
                continue
            root = input_names[leaves[0][1]] if leaves else f"unused_{position}"
            parameters.append(taken(re.split(r"[.\[]", root)[0].replace(" ", "_")))
            self._reach(parameters[-1], leaves)
        if kwargs:
            parameters.append("*")
        for key in sorted(kwargs):
            parameters.append(key)
            self._reach(key, tree.leaves_with_path(kwargs[key]))
        return parameters

    def _reach(self, root: str, leaves: Sequence[tuple[Any, int]]) -> None:
        for path, number in leaves:
            self._paths[number] = root + "".join(self._step(key) for key in path)

    def _step(self, key: Any) -> str:
        for name, form in (("idx", "[{}]"), ("key", "[{!r}]"), ("name", ".{}")):
            if hasattr(key, name) and "Flattened" not in type(key).__name__:
                return form.format(getattr(key, name))
        raise UnsupportedError(self._refusal_text("takes", str(key)))

    def _refusal_text(self, does: str, what: str) -> str:
        return (f"to_python: the program {does} a container that is none of Python's own ({what}). Let the function "
                "take and return dictionaries, tuples, lists and named tuples")

    def taken(self) -> list[str]:
        """Return the statements that unpack the inputs, and check their types."""
        lines = []
        for var, path in zip(self._inputs, self._paths, strict=True):
            if not self._check:
                self._check = self._unique("array_of")
                self._carrier.functions.append(FileDefinition(self._check, CHECK.format(name=self._check)))
            name, dtype = self._names[var], var.aval.dtype
            text = repr(dtype.name) if dtype.isbuiltin == 1 else constants.dtype_expression(dtype, self._carrier.root)
            lines.append(f"{name} = {self._check}({path}, {path!r}, {text}, {var.aval.shape})")
        return lines

    def returned(self, results: list[str]) -> str:
        """Return the expression of the results in their container."""
        signature = self._program.signature
        if signature is None or signature.out_tree is None:
            return results[0] if len(results) == 1 else f"[{', '.join(results)}]"
        return self._container(signature.out_tree, iter(results))

    def _container(self, structure: Any, results: Any) -> str:
        data, children = structure.node_data(), structure.children()
        if data is None:
            return "None" if structure.num_leaves == 0 else str(next(results))
        kind, meta = data
        items = [self._container(child, results) for child in children]
        if kind is dict:
            return "{" + ", ".join(f"{key!r}: {item}" for key, item in zip(meta, items, strict=True)) + "}"
        if kind is list:
            return f"[{', '.join(items)}]"
        if kind is tuple:
            return f"({', '.join(items)}{',' * (len(items) == 1)})"
        if kind is type(None):
            return "None"
        fields = getattr(meta if isinstance(meta, type) else kind, "_fields", None)
        if fields is None:
            raise UnsupportedError(self._refusal_text("returns", kind.__name__))
        return f"{self._named_tuple(meta if isinstance(meta, type) else kind)}({', '.join(items)})"

    def _named_tuple(self, kind: Any) -> str:
        known = f"# {kind.__module__}.{kind.__qualname__}"
        for definition in self._carrier.functions:
            if definition.text.startswith(known):
                return definition.name
        name = self._unique(kind.__name__)
        collections = self._carrier.root("collections")
        self._carrier.functions.append(FileDefinition(
            name, f"{known}\n{name} = {collections}.namedtuple({name!r}, {[*kind._fields]})"))
        return name


