"""`Emission`: a walk through a program that writes each operation by its rule, in the names that the program has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.errors import ConcretizationError, UnsupportedError
from fxgrad.extend import (
    Aval,
    DType,
    Equation,
    Literal,
    MissingRule,
    Primitive,
    Program,
    Variable,
    eval_program,
    infer_types,
    join_scopes,
    live_equations,
)
from fxgrad.extend.sizes import has_symbolic_dim
from fxgrad.shipping.onnx.graph import OnnxGraph, OnnxValue
from fxgrad.shipping.onnx.rules import OnnxRefusal, RuleOperation, onnx_rules
from fxgrad.text.names import UniqueNames, variable_names
from fxgrad.text.quoting import one_line
from fxgrad.text.sources import Sources

UINT64 = np.dtype(np.uint64)
COMPLEX = "; real arrays have a form: pass real and imaginary parts as two arrays, or keep the program in fxgrad"


def dtype_of(aval: Aval) -> DType:
    """Return the dtype of a type's values in a graph; uint64 for random keys, whose two words are one number."""
    return UINT64 if dtypes.is_key(aval.dtype) else aval.dtype


class Emission:
    """One model under construction: `graph` has its nodes, and `program` writes one program into it."""

    def __init__(self) -> None:
        self.graph = OnnxGraph()
        self.sources = Sources()
        self._scope = ""
        self.node_names = UniqueNames()
        """Those of the whole model: onnxruntime refuses two nodes of one name."""
        self._called: dict[Variable, str] = {}

    # --- programs ---------------------------------------------------------------------------------------------

    def program(self, program: Program, inputs: Sequence[OnnxValue], scope: str = "",
                called: dict[Variable, str] | None = None) -> list[OnnxValue]:
        """Return the values of the outputs of `program`; `called` names variables after something else.

        These names are taken, and given to these variables alone.
        """
        self._called.update(called or {})
        around, base = self._scope, self.graph.base
        self._scope = join_scopes(around, one_line(scope))
        names = {var: one_line(name) for var, name in
                 {**variable_names(program, self.sources), **(called or {})}.items()}
        outputs = eval_program(program, inputs, lambda equation, values: self._equation(equation, values, names),
                               self._literal, live_equations(program))
        self._scope, self.graph.base = around, base
        return outputs

    def _literal(self, literal: Literal) -> OnnxValue:
        if dtypes.is_complex(literal.dtype):
            raise UnsupportedError(f"to_onnx: a number of dtype {literal.dtype.name}, for which ONNX has no operators"
                                   + COMPLEX)
        return self.graph.constant(literal.value)

    def _equation(self, equation: Equation, values: list[OnnxValue], names: dict[Variable, str]) -> list[OnnxValue]:
        source, begin = equation.source, len(self.graph.nodes)
        scope = join_scopes(self._scope, one_line(source.scope) if source is not None else "")
        own = [join_scopes(self._scope, names[var]) if self._scope else names[var] for var in equation.outputs]
        self.graph.base = own[0] if own else equation.primitive.name
        operation = RuleOperation(equation.primitive, [atom.aval for atom in equation.inputs],
                                  [var.aval for var in equation.outputs], equation.params, equation.regions)
        try:
            made = self.operation(operation, values)
        except (OnnxRefusal, ConcretizationError) as refusal:
            raise UnsupportedError(self._refusal_text(equation, _reason(equation, refusal))) from None
        nodes = self.graph.nodes[begin:]
        # Values that nodes of this equation make get the names of its variables.
        inner = {name for node in nodes for name in node.output}
        new: dict[str, str] = {}
        for value, name, var in zip(made, own, equation.outputs, strict=True):
            if value.name in inner and value.name not in new:
                if var in self._called:
                    self.graph.unique.taken.discard(name)
                new[value.name] = self.graph.unique(name)
        for node in nodes:
            _rename(node, new)
        made = [OnnxValue(new.get(value.name, value.name), value.dtype) for value in made]
        place = "" if source is None else one_line(self.sources.comment(source))
        for node in nodes:
            if not node.name:
                node.name = self.node_names(join_scopes(scope, node.output[0].rpartition("/")[2]))
                node.doc_string = place
        for value, var in zip(made, equation.outputs, strict=True):
            if any(value.name == name for node in nodes for name in node.output):
                self.graph.is_known(value, var.aval.shape)
        return made

    def _refusal_text(self, equation: Equation, reason: str) -> str:
        source = equation.source
        line = "" if source is None else f"\n  at {self.sources.comment(source)} (in {source.code.co_name})"
        return f"to_onnx: {equation.primitive} {reason}{line}"

    # --- operations -------------------------------------------------------------------------------------------

    def operation(self, operation: RuleOperation, values: list[OnnxValue]) -> list[OnnxValue]:
        """Return the values of the outputs of an operation; raise `OnnxRefusal` if it has no form."""
        for aval in (*operation.avals, *operation.outputs):
            if dtypes.is_complex(aval.dtype):
                raise OnnxRefusal(f"has a value of dtype {aval.dtype.name}, for which ONNX has no operators" + COMPLEX)
        rule = onnx_rules.of(operation.primitive)
        if isinstance(rule, MissingRule):
            raise OnnxRefusal(rule.reason)
        if operation.outputs and all(0 in aval.shape for aval in operation.outputs):
            return [self.graph.filled(0, dtype_of(aval), aval.shape) for aval in operation.outputs]
        return rule(self, operation, values)

    def apply(self, primitive: Primitive, avals: Sequence[Aval], values: Sequence[OnnxValue],
              **params: Any) -> list[OnnxValue]:
        """Emit another operation, by which a rule is defined; return the values of its outputs."""
        return self.operation(RuleOperation(primitive, avals, infer_types(primitive, avals, params), params), [*values])


def _reason(equation: Equation, refusal: Exception) -> str:
    """Return why an operation is refused; rules that need the number of a symbolic size do not explain it."""
    if isinstance(refusal, OnnxRefusal):
        return str(refusal)
    named = {str(size) for atom in (*equation.inputs, *equation.outputs) for size in atom.aval.shape
             if has_symbolic_dim(size)}
    return (f"needs a number in the place of {' and '.join(sorted(named)) or 'a size with a name'}, since the nodes "
            "that it becomes depend on it. Trace the function for a number")


def _rename(node: Any, new: dict[str, str]) -> None:
    for names in (node.input, node.output):
        for place, name in enumerate(names):
            if name in new:
                names[place] = new[name]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                _rename(inner, new)
