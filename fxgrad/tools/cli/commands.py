"""The commands: each takes parsed options and a console, and returns the exit status."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

import fxgrad
from fxgrad.errors import FxgradError
from fxgrad.extend import inner_first, primitives
from fxgrad.text.display import fit_options, render
from fxgrad.text.tables import WIDTH
from fxgrad.tools import cards
from fxgrad.tools.cli.arguments import CommandError
from fxgrad.tools.cli.targets import CommandTarget, read_program
from fxgrad.tools.profiling.costs import cost_of_program, require_machine

DIFFERENT, FAILED = 1, 2


def show(options: Namespace, console: Console) -> int:
    """Print a program."""
    program = CommandTarget(options.target, options).program
    if options.style == "json":
        _write_result(options, console, fxgrad.text.to_json(program, indent=2))
        return 0
    chosen: dict[str, Any] = {"style": options.style, "source": not options.no_source, "unfold": options.unfold}
    if options.width:
        chosen["width"] = options.width
    if options.output:
        _write_result(options, console, fxgrad.text.program_text(program, **chosen))
        return 0
    if console.is_terminal and not options.width:
        chosen = fit_options(program, console.width, **chosen)
    console.print(render(program, color=console.is_terminal and not console.no_color, **chosen), soft_wrap=True)
    return 0


def python(options: Namespace, console: Console) -> int:
    """Write the file of NumPy that computes a program."""
    _write_result(options, console,
                  CommandTarget(options.target, options).program.to_python(source=not options.no_source))
    return 0


def diff(options: Namespace, console: Console) -> int:
    """Print the differences between two programs; the status is 1 if there are any."""
    first, second = (CommandTarget(text, options).program for text in (options.first, options.second))
    found = first.diff(second)
    if not found:
        console.print(f"{options.first} and {options.second} are the same program")
        return 0
    console.print(found)
    return DIFFERENT


def check(options: Namespace, console: Console) -> int:
    """Read and verifies files of programs; the status is 1 if one of them is wrong."""
    wrong: list[tuple[str, str]] = []
    files = options.files
    if console.is_terminal:  # elsewhere rich before its version 15 writes an empty line for it
        files = track(files, "checking", console=console, transient=True)
    for path in files:
        try:
            read_program(Path(path)).check()
        except (FxgradError, CommandError, ValueError) as error:
            wrong.append((path, str(error)))
    for path, problem in wrong:
        console.print(Text(f"{path}: {problem}", style="red"), soft_wrap=True)
    good = len(options.files) - len(wrong)
    console.print(f"{good} of {len(options.files)} programs are right")
    return DIFFERENT if wrong else 0


def cost(options: Namespace, console: Console) -> int:
    """Print floating-point operations and bytes, by line of the user's or by operation."""
    machine = require_machine(options.flops, options.bandwidth)
    found = cost_of_program(CommandTarget(options.target, options).program, machine, options.by)
    found.most = options.most
    console.print_json(found.to_json()) if options.json else console.print(found)
    return 0


def memory(options: Namespace, console: Console) -> int:
    """Print the memory that a function needs, before it runs: the peak, the values live there, the residuals."""
    found = CommandTarget(options.target, options).call(fxgrad.memory_analysis)
    if options.json:
        console.print_json(found.to_json())
    elif options.output:
        console.print(f"wrote {found.draw(options.output)}", soft_wrap=True)
    else:
        console.print(found)
    return 0


def tabulate(options: Namespace, console: Console) -> int:
    """Print the layers of a function, with shapes, parameters, operations and saved bytes."""
    target = CommandTarget(options.target, options)
    if target.function is None:
        raise CommandError("tabulate needs a function: fxgrad cost and fxgrad graph take programs too")
    console.print(target.call(fxgrad.tabulate, argnums=options.argnums, depth=options.depth))
    return 0


def lint(options: Namespace, console: Console) -> int:
    """Print the lines that lose numbers, digits or derivatives; the status is 1 if there are any."""
    target = CommandTarget(options.target, options)
    found = target.call(fxgrad.lint, only=options.only, ignore=options.ignore)
    if options.json:
        console.out(found.to_json(), highlight=False)
    else:
        console.print(found)
    return DIFFERENT if found else 0


def card(options: Namespace, console: Console) -> int:
    """Print the card of a primitive: its rules, and its entry in each table."""
    primitive = primitives.get(options.name)
    if primitive is None:
        near = get_close_matches(options.name, primitives)
        raise CommandError(f"there is no primitive {options.name!r}. " + (
            f"Near to it: {', '.join(near)}" if near else "docs/appendix/cards.md lists them"))
    found, is_narrow = cards.card(primitive), console.width < WIDTH
    console.print(Text(str(found)) if is_narrow else found, soft_wrap=is_narrow)
    return 0


def graph(options: Namespace, console: Console) -> int:
    """Print the size and shape of a computational graph; with --nodes every node."""
    made = CommandTarget(options.target, options).call(fxgrad.graph, roles=_roles(options))
    facts = {"nodes": len(made.nodes), "edges": len(made.edges), "operations": len(made.operations),
             "depth": made.depth, "width": made.width, "acyclic": made.is_acyclic(),
             "programs": len(inner_first(made.program)),
             "inputs": [node.name for node in made.inputs if node.role != "parameter"],
             "parameters": [node.name for node in made.inputs if node.role == "parameter"],
             "outputs": [node.name for node in made.outputs],
             "operations by kind": dict(Counter(operation.op for operation in made.operations).most_common())}
    if options.json:
        nodes = [{"name": node.name, "kind": node.kind, "role": node.role, "op": node.op, "type": str(node.aval),
                  "inputs": [source.name for source in node.inputs]} for node in made.nodes]
        console.print_json(json.dumps({**facts, "nodes": nodes}))
        return 0
    table = Table("", f"graph of {made.title or options.target}")
    for name, value in facts.items():
        shown = ", ".join(f"{each} {count}" for each, count in value.items()) if isinstance(value, dict) else \
            ", ".join(value) or "none" if isinstance(value, list) else str(value)
        table.add_row(name, Text(shown))
    console.print(table)
    if options.nodes:
        _print_nodes(made, console)
    return 0


def _print_nodes(made: Any, console: Console) -> None:
    table = Table("node", "kind", "role", "type", "is", *(["value", "gradient"] if made.has_values else []))
    for node in made.nodes:
        if not node.is_number:
            expression = "" if node.producer is None else node.producer.expression
            row = [node.name, node.kind, node.role, str(node.aval), expression]
            if made.has_values:
                row += [fxgrad.tools.graphs.short(node.value), _gradient_text(node)]
            table.add_row(*map(Text, row))
    console.print(table)


def _gradient_text(node: Any) -> str:
    try:
        return fxgrad.tools.graphs.short(node.grad)
    except FxgradError:  # an integer, or a graph without a scalar result
        return ""


def draw(options: Namespace, console: Console) -> int:
    """Print a picture of a graph, or writes it to a file in the style of its ending."""
    if options.values and options.random is None and ":" in options.target:
        raise CommandError("draw --values needs arrays in the place of types: --random 0")
    drawing = CommandTarget(options.target, options).call(
        fxgrad.draw, view=options.view, show=options.show, style=options.style, values=options.values,
        roles=_roles(options), expand=options.expand or None)
    if options.output:
        drawing.save(options.output)
        console.print(f"wrote {options.output}", soft_wrap=True)
    else:
        console.print(Text(str(drawing)), soft_wrap=True)
    return 0


def visualize(options: Namespace, console: Console) -> int:
    """Write the page of the explorer."""
    target = CommandTarget(options.target, options)
    with console.status("making the page"):
        page = target.call(fxgrad.visualize)
    path = page.save(options.output or f"{target.name}.html")
    console.print(f"wrote {path}: open it in a browser", soft_wrap=True)
    return 0


def _roles(options: Namespace) -> dict[str, list[str]] | None:
    return {"params": options.params} if options.params else None


def _write_result(options: Namespace, console: Console, text: str) -> None:
    """Write the result of a command to the output file if one was given, else print it unchanged."""
    if options.output:
        Path(options.output).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
        console.print(f"wrote {options.output}", soft_wrap=True)
    else:
        console.print(Text(text.rstrip("\n")), soft_wrap=True)
