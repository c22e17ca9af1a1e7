"""Operations that hold programs, in C: calls of functions, branches, loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxgrad.extend import Aval, Equation, Region, Variable, primitives
from fxgrad.shipping.c.values import CValue, SourceRefusal, c_type
from fxgrad.text.inlining import holds_call

if TYPE_CHECKING:
    from fxgrad.shipping.c.functions import CFunction

WORKSPACE = "workspace + @FRAME@"


def write_regions(function: CFunction, equation: Equation) -> dict[Variable, CValue]:
    """Write an operation with regions; return its results."""
    regions = equation.regions
    for region in regions:
        function.file.function(region.program)
    if holds_call(equation):
        return _call(function, equation, regions[0])
    if equation.primitive is primitives.cond:
        return _branches(function, equation)
    if equation.primitive is primitives["while"]:
        return _while(function, equation)
    if len(regions) == 1 and regions[0].role == "body" and regions[0].times is not None and not any(
            link.how == "inside" for link in (*regions[0].inputs, *regions[0].outputs)):
        return _scan(function, equation, regions[0])
    raise SourceRefusal("which is not written in C")


def _write_operation(function: CFunction, equation: Equation) -> dict[Variable, CValue]:
    return {var: function.new(var) for var in equation.outputs}


def _address_text(value: CValue) -> str:
    """Return the expression of the address that a function writes a result to."""
    element = value.at(["0"] * value.aval.ndim)  # notes that it is used
    return value.name if value.aval.shape or element.startswith("*") else f"&{value.name}"


def _call_text(function: CFunction, region: Region, arguments: list[str]) -> str:
    name, bytes_needed = function.file.function(region.program)
    function.below = max(function.below, bytes_needed)
    return f"{name}({', '.join([*arguments, WORKSPACE])});"


def _call(function: CFunction, equation: Equation, region: Region) -> dict[Variable, CValue]:
    arguments = [function.array(equation.inputs[link.place]) for link in region.inputs]
    made = _write_operation(function, equation)

    def lines() -> list[str]:
        again = [function.array(equation.inputs[link.place]) for link in region.inputs]
        assert len(again) == len(arguments)
        return [_call_text(function, region, [*again, *(
            _address_text(made[equation.outputs[link.place]]) for link in region.outputs)])]

    function.emit(lines)
    return made


def _branches(function: CFunction, equation: Equation) -> dict[Variable, CValue]:
    which = function.many(equation.inputs[0])
    for atom in equation.inputs[1:]:
        function.array(atom)
    made = _write_operation(function, equation)

    def lines() -> list[str]:
        found = []
        last = len(equation.regions) - 1
        for number, region in enumerate(equation.regions):
            call = _call_text(function, region, [
                *(function.array(equation.inputs[link.place]) for link in region.inputs),
                *(_address_text(made[equation.outputs[link.place]]) for link in region.outputs)])
            chosen = f"{'else ' if number else ''}if ({which.at([])} <= {number})"
            head = "else" if number == last and number else chosen
            found += [call] if last == 0 else [head, f"    {call}"]
        return found

    function.emit(lines)
    return made


def _copy_text(target: CValue, source: str, aval: Aval) -> str:
    if not aval.shape:
        return f"{target.at([])} = {source};"
    target.at(["0"] * aval.ndim)
    return f"memcpy({target.name}, {source}, sizeof({c_type(aval)}) * {aval.size});"


def _fresh_copy(function: CFunction, var: Variable) -> CValue:
    """Return a second variable beside that of a result: the operand of the loop's next step."""
    other = Variable(var.aval)
    function.names[other] = function.file.unique(function.names[var] + "_next")
    return function.new(other)


def _scan(function: CFunction, equation: Equation, region: Region) -> dict[Variable, CValue]:
    for atom in equation.inputs:
        function.array(atom)
    made = _write_operation(function, equation)
    carried = [link.place for link in region.outputs if link.how == "carry"]
    following = {place: _fresh_copy(function, equation.outputs[place]) for place in carried}

    def lines() -> list[str]:
        order = iter(carried)
        first, arguments = [], []
        for link in region.inputs:
            atom = equation.inputs[link.place]
            text = function.array(atom)
            if link.how == "carry":
                value = made[equation.outputs[next(order)]]
                first.append(_copy_text(value, text, atom.aval))
                arguments.append(value.at([]) if not atom.aval.shape else value.name)
            else:
                arguments.append(_entry(text, atom.aval) if link.how == "entry" else text)
        results = [_address_text(following[link.place]) if link.how == "carry" else
                   _entry_of(made[equation.outputs[link.place]]) for link in region.outputs]
        call = [_call_text(function, region, [*arguments, *results])]
        call += [_copy_text(made[equation.outputs[place]], following[place].at([]) if not following[place].aval.shape
                            else following[place].name, following[place].aval) for place in carried]
        head = (f"for (int step = {(region.times or 0) - 1}; step >= 0; step--) {{" if region.reverse else
                f"for (int step = 0; step < {region.times}; step++) {{")
        return [*first, head, *("    " + line for line in call), "}"]

    function.emit(lines)
    return made


def _entry(text: str, aval: Aval) -> str:
    """Return one entry along the first axis: a pointer, or a number."""
    stride = aval.size // (aval.shape[0] or 1)
    if aval.ndim == 1:
        return f"{text}[step]"
    return f"{text} + step" if stride == 1 else f"{text} + step * {stride}"


def _entry_of(value: CValue) -> str:
    value.at(["0"] * value.aval.ndim)
    stride = value.aval.size // (value.aval.shape[0] or 1)
    return f"{value.name} + step" if stride == 1 else f"{value.name} + step * {stride}"


def _while(function: CFunction, equation: Equation) -> dict[Variable, CValue]:
    condition, body = equation.regions
    for atom in equation.inputs:
        function.array(atom)
    made = _write_operation(function, equation)
    following = {var: _fresh_copy(function, var) for var in equation.outputs}
    var = Variable(condition.program.outputs[0].aval)
    function.names[var] = function.file.unique("go_on")
    go = function.new(var)

    def lines() -> list[str]:
        first = []
        values = iter([*made.values()])
        for link in body.inputs:
            if link.how == "carry":
                atom = equation.inputs[link.place]
                first.append(_copy_text(next(values), function.array(atom), atom.aval))

        def arguments(region: Region) -> list[str]:
            carried = iter([*made.values()])
            found = []
            for link in region.inputs:
                if link.how == "carry":
                    value = next(carried)
                    found.append(value.at([]) if not value.aval.shape else value.name)
                else:
                    found.append(function.array(equation.inputs[link.place]))
            return found

        ask = _call_text(function, condition, [*arguments(condition), _address_text(go)])
        step = [_call_text(function, body, [*arguments(body), *(
            _address_text(following[equation.outputs[link.place]]) for link in body.outputs)])]
        step += [_copy_text(value, following[var].at([]) if not var.aval.shape else following[var].name, var.aval)
                 for var, value in made.items()]
        return [*first, "for (;;) {", f"    {ask}", f"    if (!{go.at([])})", "        break;",
                *("    " + line for line in step), "}"]

    function.emit(lines)
    return made
