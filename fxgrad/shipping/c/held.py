"""Operations that hold programs, in C: calls of functions, branches, loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxgrad.extend import Aval, Equation, Program, Region, Variable, primitives
from fxgrad.extend.parameters import sweep_as_loops
from fxgrad.shipping.c.values import CValue, SourceRefusal, c_type
from fxgrad.text.inlining import holds_call

if TYPE_CHECKING:
    from fxgrad.shipping.c.functions import CFunction

WORKSPACE = "workspace + @FRAME@"


def write_regions(function: CFunction, equation: Equation) -> dict[Variable, CValue]:
    """Write an operation with regions; return its results."""
    regions = equation.regions
    if equation.primitive is primitives.sweep:
        return _sweep(function, equation)
    for region in regions:
        function.file.function(region.program)
    if holds_call(equation):
        return _call(function, equation, regions[0])
    if equation.primitive is primitives.cond:
        return _branches(function, equation)
    if equation.primitive is primitives["while"]:
        return _while(function, equation)
    if equation.primitive is primitives["for"]:
        return _for(function, equation)
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


def _call_text(function: CFunction, program: Program, arguments: list[str]) -> str:
    name, bytes_needed = function.file.function(program)
    function.below = max(function.below, bytes_needed)
    return f"{name}({', '.join([*arguments, WORKSPACE])});"


def _call(function: CFunction, equation: Equation, region: Region) -> dict[Variable, CValue]:
    arguments = [function.array(equation.inputs[link.place]) for link in region.inputs]
    made = _write_operation(function, equation)

    def lines() -> list[str]:
        again = [function.array(equation.inputs[link.place]) for link in region.inputs]
        assert len(again) == len(arguments)
        return [_call_text(function, region.program, [*again, *(
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
            call = _call_text(function, region.program, [
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
                arguments.append(_whole_text(value))
            else:
                arguments.append(_entry(text, atom.aval) if link.how == "entry" else text)
        results = [_address_text(following[link.place]) if link.how == "carry" else
                   _entry_of(made[equation.outputs[link.place]]) for link in region.outputs]
        call = [_call_text(function, region.program, [*arguments, *results])]
        call += [_copy_text(made[equation.outputs[place]], _whole_text(following[place]), following[place].aval)
                 for place in carried]
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
    loop = _Loop(function, equation, body)
    var = Variable(condition.program.outputs[0].aval)
    function.names[var] = function.file.unique("go_on")
    go = function.new(var)

    def lines() -> list[str]:
        ask = _call_text(function, condition.program, [*loop.arguments(condition), _address_text(go)])
        return [*loop.begin(), "for (;;) {", f"    {ask}", f"    if (!{go.at([])})", "        break;",
                *("    " + line for line in loop.step()), "}"]

    function.emit(lines)
    return loop.made


def _for(function: CFunction, equation: Equation) -> dict[Variable, CValue]:
    body, = equation.regions
    count = function.many(equation.inputs[0])
    loop = _Loop(function, equation, body)

    def lines() -> list[str]:
        head = f"for ({c_type(count.aval)} step = 0; step < {count.at([])}; step++) {{"
        return [*loop.begin(), head, *("    " + line for line in loop.step()), "}"]

    function.emit(lines)
    return loop.made


class _Loop:
    """A loop whose results `made` are what it carries, with a second variable for each, which a turn fills."""

    def __init__(self, function: CFunction, equation: Equation, body: Region) -> None:
        self._function, self._equation, self._body = function, equation, body
        for atom in equation.inputs:
            function.array(atom)
        self.made = _write_operation(function, equation)
        self._following = {var: _fresh_copy(function, var) for var in equation.outputs}

    def begin(self) -> list[str]:
        """Return the lines that set what is carried to its first values."""
        carried = [self._equation.inputs[link.place] for link in self._body.inputs if link.how == "carry"]
        return [_copy_text(value, self._function.array(atom), atom.aval)
                for value, atom in zip(self.made.values(), carried, strict=True)]

    def arguments(self, region: Region) -> list[str]:
        """Return the arguments of a call in a turn."""
        carried = iter(self.made.values())
        return [_whole_text(next(carried)) if link.how == "carry" else
                self._function.array(self._equation.inputs[link.place]) for link in region.inputs]

    def step(self) -> list[str]:
        """Return the lines of a turn."""
        results = [_address_text(self._following[self._equation.outputs[link.place]]) for link in self._body.outputs]
        return [_call_text(self._function, self._body.program, [*self.arguments(self._body), *results]),
                *(_copy_text(value, _whole_text(self._following[var]), var.aval) for var, value in self.made.items())]


def _whole_text(value: CValue) -> str:
    return value.name if value.aval.shape else value.at([])


def _sweep(function: CFunction, equation: Equation) -> dict[Variable, CValue]:
    """Write an operation by the loops that define it."""
    derived = sweep_as_loops(equation.params["step"], equation.params["back"])
    function.file.add_names(derived.program)
    fixed = [function.file.table(value) for value in derived.captured]
    count, *rest = equation.inputs
    for atom in equation.inputs:
        function.array(atom)
    made = _write_operation(function, equation)

    def lines() -> list[str]:
        arguments = [*fixed, f"(int32_t){function.array(count)}", *map(function.array, rest)]
        return [_call_text(function, derived.program, [*arguments, *map(_address_text, made.values())])]

    function.emit(lines)
    return made
