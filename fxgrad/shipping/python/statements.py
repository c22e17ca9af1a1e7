"""Operations that hold programs as Python's statements: calls of functions, `if`, `for` and `while`.

The statements follow from the regions of the operation: their roles, and how values enter and leave them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxgrad.extend import Equation, Program, Region, Variable
from fxgrad.shipping.python.trees import SourceRefusal

if TYPE_CHECKING:
    from fxgrad.shipping.python.writer import PythonFile

INDENT = "    "
CALLS = ("inline", "call", "recomputed", "solve")


def region_statements(file: PythonFile, equation: Equation, names: dict[Variable, str]) -> list[str]:
    """Return the statements of an operation with regions; raise `SourceRefusal` for unsupported kinds of them."""
    return _RegionWriter(file, equation, names).statements()


class _RegionWriter:
    """One operation, with the texts of its operands and its results."""

    def __init__(self, file: PythonFile, equation: Equation, names: dict[Variable, str]) -> None:
        self._file, self._equation = file, equation
        self._regions: tuple[Region, ...] = equation.regions
        self._operands = [file.atom(names, atom) for atom in equation.inputs]
        self._results = [names[var] for var in equation.outputs]

    def statements(self) -> list[str]:
        roles = [region.role for region in self._regions]
        if "condition" in roles:
            return self._while(*self._regions)
        if "back" in roles:
            return self._sweep(*self._regions)
        if roles == ["body"]:
            return self._for(self._regions[0])
        if roles == ["branch"] * len(roles):
            return self._branches()
        called = [region for region in self._regions if region.role in CALLS]
        if len(called) != 1:
            raise SourceRefusal(f"runs programs for {', '.join(roles)}")
        return [self._assigned(self._results, self._call(called[0]))]

    # --- pieces -----------------------------------------------------------------------------------------------

    def _name(self, program: Program, role: str) -> str:
        given = self._equation.params.get("name")
        if isinstance(given, str):
            return self._file.function(program, given)
        signature = program.signature
        return self._file.function(program, signature.name if signature is not None else _recording_function(program)
                                   or role)

    def _call(self, region: Region, inputs: list[str] | None = None) -> str:
        given = [self._operands[link.place] for link in region.inputs] if inputs is None else inputs
        return f"{self._name(region.program, region.role)}({', '.join(given)})"

    def _assigned(self, targets: list[str], value: str) -> str:
        return f"{', '.join(targets)} = {value}" if targets else value

    def _carried_results(self, region: Region) -> dict[int, str]:
        """Return the result that each carried operand of a loop becomes, by the position of the operand."""
        places = [link.place for link in region.inputs if link.how == "carry"]
        made = [self._results[link.place] for link in region.outputs if link.how == "carry"]
        return dict(zip(places, made, strict=True))

    def _begun(self, carried: dict[int, str]) -> list[str]:
        return [f"{name} = {self._operands[place]}" for place, name in carried.items()]

    def _input_lines(self, region: Region, carried: dict[int, str], entry: str = "") -> list[str]:
        texts = []
        for link in region.inputs:
            text = carried[link.place] if link.how == "carry" else self._operands[link.place]
            texts.append(f"{text}[{entry}]" if link.how == "entry" else text)
        return texts

    def _count(self) -> str:
        """Return the operand with the number of steps: it is linked to no program."""
        linked = {link.place for region in self._regions for link in region.inputs}
        place, = {*range(len(self._operands))} - linked
        return f"int({self._operands[place]})"

    # --- kinds ------------------------------------------------------------------------------------------------

    def _branches(self) -> list[str]:
        index, last = self._operands[0], len(self._regions) - 1
        if self._equation.inputs[0].aval.dtype.kind == "b" and last == 1:
            tests = [f"if not {index}:", "else:"]
        else:
            tests = [f"{'if' if not number else 'elif'} {index} <= {number}:" for number in range(last)] + ["else:"]
        lines = []
        for test, region in zip(tests if last else ["if True:"], self._regions, strict=True):
            lines += [test, INDENT + self._assigned(self._results, self._call(region))]
        return lines

    def _for(self, region: Region) -> list[str]:
        carried = self._carried_results(region)
        steps = self._count() if region.times is None else str(region.times)
        stacks = [link.place for link in region.outputs if link.how == "entry"]
        outputs = [self._equation.outputs[place].aval for place in stacks]
        lines = self._begun(carried)
        for place, aval in zip(stacks, outputs, strict=True):
            dtype = self._file.carrier.expression(aval.dtype)
            lines.append(f"{self._results[place]} = np.empty({aval.shape}, {dtype})")
        entries = any(link.how == "entry" for link in (*region.inputs, *region.outputs))
        targets = [f"{self._results[link.place]}[at]" if link.how == "entry" else self._results[link.place]
                   for link in region.outputs]
        numbers = f"range({steps})"
        lines.append(f"for {'at' if entries else '_'} in {f'reversed({numbers})' if region.reverse else numbers}:")
        return [*lines, INDENT + self._assigned(targets, self._call(region, self._input_lines(region, carried, "at")))]

    def _while(self, condition: Region, body: Region) -> list[str]:
        carried = self._carried_results(body)
        return [*self._begun(carried),
                f"while {self._call(condition, self._input_lines(condition, carried))}:",
                INDENT + self._assigned([*carried.values()], self._call(body, self._input_lines(body, carried)))]

    def _sweep(self, step: Region, back: Region) -> list[str]:
        """Forwards through the states of a loop, and back through them."""
        carried = self._carried_results(back)
        state = [link.place for link in step.inputs if link.how == "carry"]
        fixed = [self._operands[link.place] for link in step.inputs if link.how == "same"]
        count = self._count()
        first = f"({', '.join(self._operands[place] for place in state)},)"
        forwards = self._name(step.program, step.role)
        made = f"{forwards}({', '.join([*fixed, '*states[-1]'])})"
        made = f"({made},)" if len(state) == 1 else made
        before = [self._operands[link.place] for link in back.inputs if link.how == "same"]
        again = f"{self._name(back.program, back.role)}({', '.join([*before, '*states.pop()', *carried.values()])})"
        return [f"states = [{first}] * min({count}, 1)", f"for _ in range({count} - 1):",
                f"{INDENT}states.append({made})", *self._begun(carried), "while states:",
                INDENT + self._assigned([*carried.values()], again)]


def _recording_function(program: Program) -> str:
    """Return the name of the user's function that recorded all of a program, such as the body of a loop; else ""."""
    names = {equation.source.code.co_name for equation in program.equations if equation.source is not None}
    name = names.pop() if len(names) == 1 else ""
    return name if name.isidentifier() else ""
