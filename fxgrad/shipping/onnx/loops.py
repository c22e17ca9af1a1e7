"""Operations that hold programs: calls in their place, branches as If, loops as Scan and Loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.extend import Aval, Program, primitives
from fxgrad.extend.parameters import ScanParameters, sweep_as_loops
from fxgrad.shipping.onnx.emission import Emission, dtype_of
from fxgrad.shipping.onnx.graph import BOOL, INT64, OnnxValue
from fxgrad.shipping.onnx.rules import RuleOperation, onnx_rules, register_onnx_rule
from fxgrad.text.names import function_label, variable_names
from fxgrad.text.quoting import one_line

Values = list[OnnxValue]


@register_onnx_rule("named_call", "jit_call", "checkpoint", "recompute", "custom_jvp", "custom_vjp", "custom_vmap",
                    "safe_call",
                    "within_budget")
def _call(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    """Emit the equations of the called program, in the scope of its name."""
    region, = operation.regions
    rule = operation.params.get("rule")
    name = operation.params.get("name") or getattr(rule, "name", "") or function_label(region.program)
    return emission.program(region.program, values, str(name))


@onnx_rules.register(primitives.custom_linear_solve, primitives.custom_root)
def _solve(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    """Emit the program that solves; the other programs are for derivatives."""
    region = next(region for region in operation.regions if region.role == "solve")
    given = [values[link.place] for link in region.inputs]
    return emission.program(region.program, given, "solve")


# --- branches -------------------------------------------------------------------------------------------------------


def with_shapes(avals: Sequence[Aval], values: Values) -> list[tuple[OnnxValue, tuple[int, ...]]]:
    """Return values with their shapes."""
    return [(value, aval.shape) for value, aval in zip(values, avals, strict=True)]


@onnx_rules.register(primitives.cond)
def _cond(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    index, *operands = values
    branches = [region.program for region in operation.regions]
    return _emit_branches(emission, operation, index, operands, branches, 0)


def _emit_branches(emission: Emission, operation: RuleOperation, index: OnnxValue, operands: Values,
                   branches: Sequence[Program],
                   first: int) -> Values:
    """Return the outputs of one of the branches from number `first` on; larger indices select the last branch."""
    graph = emission.graph
    if len(branches) == 1:
        return emission.program(branches[0], operands)
    base = graph.base
    condition = index if index.dtype == np.bool_ else graph.operation(
        "GreaterOrEqual", index, graph.number(first + 1, index.dtype))
    bodies = {}
    for name, some in (("then_branch", branches[1:]), ("else_branch", branches[:1])):
        with graph.within():
            graph.base = f"{base}.{name}"
            made = _emit_branches(emission, operation, index, operands, some, first + 1)
            bodies[name] = graph.body(f"{base}.{name}", [], with_shapes(operation.outputs, made))
    graph.base = base
    return graph.raw("If", [condition], [dtype_of(aval) for aval in operation.outputs], bodies)


# --- loops ----------------------------------------------------------------------------------------------------------


def _parameters(emission: Emission, program: Program, skip: int) -> tuple[Values, list[tuple[OnnxValue, Any]]]:
    """Return the inputs of a body: those of a program after the first `skip`, under their names in the program."""
    names = {var: one_line(name) for var, name in variable_names(program, emission.sources).items()}
    graph = emission.graph
    made = [(OnnxValue(graph.unique(f"{graph.base}.{names[var]}"), dtype_of(var.aval)), var.aval.shape)
            for var in program.inputs[skip:]]
    return [value for value, _ in made], made


@onnx_rules.register(primitives.scan)
def _scan(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, program = emission.graph, operation.params["program"]
    loop = ScanParameters(**{name: value for name, value in operation.params.items() if name != "program"})
    consts, carry, xs = (list(group) for group in loop.takes(program).split(values))
    if loop.length == 0:
        return [*carry, *(graph.filled(0, dtype_of(aval), aval.shape)
                          for aval in operation.outputs[loop.num_carry:])]
    base = graph.base
    with graph.within():
        inputs, infos = _parameters(emission, program, loop.num_consts)
        made = emission.program(program, [*consts, *inputs])
        if not xs:  # there must be something to go through
            infos.append((OnnxValue(graph.unique(f"{base}.step"), BOOL), ()))
        body = graph.body(f"{base}.body", infos, with_shapes(program.out_avals, made))
    graph.base = base
    given = xs or [graph.filled(0, BOOL, [loop.length])]
    direction = [int(loop.reverse)]
    attributes = {"body": body, "num_scan_inputs": len(given), "scan_input_directions": direction * len(given)}
    if len(operation.outputs) > loop.num_carry:
        attributes["scan_output_directions"] = direction * (len(operation.outputs) - loop.num_carry)
    return graph.raw("Scan", [*carry, *given], [dtype_of(aval) for aval in operation.outputs], attributes)


def emit_loop(emission: Emission, count: OnnxValue | None, condition: Callable[[Values], OnnxValue] | None,
              program: Program,
              consts: Values, carry: Values, avals: Sequence[Aval]) -> Values:
    """Return the carry after `program` was applied `count` times, or while `condition` holds."""
    graph, base = emission.graph, emission.graph.base
    begin = None if condition is None else condition(carry)
    with graph.within():
        turn, going = OnnxValue(graph.unique(f"{base}.turn"), INT64), OnnxValue(graph.unique(f"{base}.going"), BOOL)
        inputs, infos = _parameters(emission, program, len(consts))
        made = emission.program(program, [*consts, *inputs])
        on = going if condition is None else condition(made)
        results = [(on, ()), *with_shapes(program.out_avals, made)]
        body = graph.body(f"{base}.body", [(turn, ()), (going, ()), *infos], results)
    graph.base = base
    return graph.raw("Loop", [count, begin, *carry], [dtype_of(aval) for aval in avals], {"body": body})


@onnx_rules.register(primitives["while"])
def _while(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    params = operation.params
    asked, given = params["num_condition_consts"], params["num_body_consts"]
    before, inside, carry = values[:asked], values[asked:asked + given], values[asked + given:]

    def condition(state: Values) -> OnnxValue:
        return emission.program(params["condition"], [*before, *state])[0]

    return emit_loop(emission, None, condition, params["body"], inside, carry, operation.outputs)


@onnx_rules.register(primitives["for"])
def _for(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    count, *rest = values
    number = operation.params["num_consts"]
    return emit_loop(emission, emission.graph.cast(count, INT64), None, operation.params["program"], rest[:number],
                     rest[number:], operation.outputs)


@onnx_rules.register(primitives.sweep)
def _sweep(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    """Emit an operation by the loops that define it."""
    derived = sweep_as_loops(operation.params["step"], operation.params["back"])
    graph, (count, *rest) = emission.graph, values
    captured = [graph.constant(np.asarray(value)) for value in derived.captured]
    return emission.program(derived.program, [*captured, graph.cast(count, np.dtype(np.int32)), *rest])


