"""`main`: parse the command line, print help, and report errors without tracebacks."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

import fxgrad
from fxgrad.errors import FxgradError
from fxgrad.extend.tracing import hide_launcher
from fxgrad.tools.cli import commands
from fxgrad.tools.cli.arguments import CommandError
from fxgrad.tools.cli.exporting import FORMS
from fxgrad.tools.cli.exporting import export as run_export
from fxgrad.tools.cli.targets import TRANSFORMATIONS, error_text

TARGET = "MODULE:FUNCTION, FILE.py:FUNCTION, or a file with a program (its printed text, JSON, or .fxgrad)"
EPILOG = """\
a first look:
  fxgrad show model.py:loss --args "f32[100,20], f32[20]"             the program, with your names and lines
  fxgrad show model.py:loss --args "f32[100,20], f32[20]" -t grad     its gradient
  fxgrad cost model.py:loss --args "f32[100,20], f32[20]"             which line takes the time
  fxgrad visualize model.py:loss --args "f32[100,20], f32[20]" --random 0   a page to click through

arguments are types (f32[100,20], i32, bool[3]), numbers, and lists, tuples and dicts of them:
  --args '{"W": f32[20,3], "b": f32[3]}, f32[100,20], 0.1'

programs go to files and come back:
  fxgrad show model.py:loss --args "f32[3]" -o loss.txt && fxgrad check loss.txt && fxgrad python loss.txt
  fxgrad export model.py:loss --args "f32[n,3]" -o loss.fxgrad && fxgrad show loss.fxgrad

status: 0 done; 1 diff found a difference, check a wrong program, lint something to change;
2 it could not be done, and says why.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fxgrad", description="Programs, graphs and pictures of Python functions.",
                                     epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"fxgrad {fxgrad.__version__}")
    parser.add_argument("--color", choices=["auto", "always", "never"], default="auto",
                        help="colours; auto: on a terminal, unless NO_COLOR is set")
    _add_commands(parser.add_subparsers(dest="command", required=True, metavar="COMMAND"))
    return parser


def _add_commands(subparsers: Any) -> None:
    def command(name: str, text: str, example: str, run: Any = None, target: bool = True) -> argparse.ArgumentParser:
        """Add a command, which runs the function of its name in `commands`; most take a target and its arguments."""
        made: argparse.ArgumentParser = subparsers.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + ".", epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter)
        made.set_defaults(run=run or getattr(commands, name))
        if target:
            made.add_argument("target", help=TARGET)
            _function_options(made)
        return made

    show = command("show", "print the program of a function", 'fxgrad show model.py:loss --args "f32[3], f32"')
    python = command("python", "print the file of plain NumPy that computes it",
                     'fxgrad python model.py:loss --args "f32[3]" -t grad -o gradient.py')
    export = command("export", "write a program for where it is to run: " + ", ".join(FORMS),
                     'fxgrad export model.py:loss --args "f32[n,3]" -t grad -o gradient.onnx', run_export)
    cost = command("cost", "print floating-point operations and bytes by line",
                   'fxgrad cost model.py:loss --args "f32[100,20]" -t grad --by operation')
    memory = command("memory", "print where memory goes: the peak, who holds it, what is saved",
                     'fxgrad memory model.py:loss --args "f32[100,20]" -t grad')
    graph = command("graph", "print what the computational graph is like",
                    'fxgrad graph model.py:loss --args "f32[3], f32" --params "w*" --nodes')
    draw = command("draw", "draw the computational graph",
                   'fxgrad draw model.py:loss --args "f32[3], f32" --params "w*" -o loss.svg')
    visualize = command("visualize", "write a page on which the graph is looked at",
                      'fxgrad visualize model.py:loss --args "f32[3], f32" --random 0 -o loss.html')
    lint = command("lint", "find lines at which numbers, digits or derivatives are lost",
                   'fxgrad lint model.py:loss --args "f32[3]" --ignore cancellation')
    tabulate = command("tabulate", "print the layers: shapes, parameters, operations, saved bytes",
                      'fxgrad tabulate model.py:loss --args "f32[3], f32"')
    tabulate.add_argument("--depth", type=int, help="how deep scopes within scopes are told apart")
    show.add_argument("--style", choices=["compact", "equations", "json"], default="compact",
                      help="expressions as the code has them, one operation a line, or JSON")
    show.add_argument("--unfold", action="store_true", help="library functions with their own equations")
    show.add_argument("--width", type=int, help="where lines are broken; by default the width of the terminal")
    for each in (show, python):
        each.add_argument("--no-source", action="store_true", help="without the user's lines at the margin")
    cost.add_argument("--by", choices=["line", "operation"], default="line", help="what the rows are")
    cost.add_argument("--flops", type=float, help="flops a second of a machine, for a roofline; with --bandwidth")
    cost.add_argument("--bandwidth", type=float, help="bytes a second of its memory")
    cost.add_argument("--most", type=int, default=20, help="rows that are shown (20)")
    graph.add_argument("--nodes", action="store_true", help="every node, with values if there are any")
    memory.add_argument("-o", "--output", help="the picture to write: .png, .svg, .pdf; needs matplotlib")
    for each in (cost, graph, memory):
        each.add_argument("--json", action="store_true", help="as JSON")
    _picture_options(graph, draw)
    export.add_argument("-o", "--output", required=True, metavar="FILE",
                        help="the file; its ending says what it is: " + ", ".join(
                            f"{ending} {form.what}" for ending, form in FORMS.items()))
    export.add_argument("--platforms", nargs="+", metavar="NAME",
                        help="cpu, cuda, rocm, tpu: those that .exported and .mlir are for")
    lint.add_argument("--only", action="append", metavar="KIND", help="report this kind of finding alone")
    lint.add_argument("--ignore", action="append", metavar="KIND", default=[], help="report all kinds but this one")
    lint.add_argument("--json", action="store_true", help="print JSON")
    for each in (show, python, draw, visualize):
        each.add_argument("-o", "--output", help="the file to write")
    diff = command("diff", "print what a second program does differently", "fxgrad diff before.txt after.txt",
                   target=False)
    diff.add_argument("first", metavar="A", help=TARGET)
    diff.add_argument("second", metavar="B", help="the same")
    _function_options(diff)
    card = command("card", "print what is known of a primitive: rules, facts, refusals, and where they stand",
                   "fxgrad card dot_general", target=False)
    card.add_argument("name", metavar="NAME", help="the name of the primitive, as programs print it")
    check = command("check", "read and verify files of programs", "fxgrad check *.txt", target=False)
    check.add_argument("files", nargs="+", metavar="FILE", help="printed programs, or JSON")


def _picture_options(graph: argparse.ArgumentParser, draw: argparse.ArgumentParser) -> None:
    for each in (graph, draw):
        each.add_argument("--params", nargs="+", metavar="PATTERN",
                          help="which inputs are parameters: 'w*', 'layers[*].W'")
    draw.add_argument("--view", choices=["bipartite", "value", "op", "network"], default="bipartite",
                      help="boxes for values and operations, for values, for operations, or for layers")
    draw.add_argument("--show", choices=["forward", "backward", "joint"],
                      help="the function, its backward pass, or both side by side; by default what there is")
    draw.add_argument("--style", choices=["ascii", "svg", "dot", "mermaid", "html"], default="ascii",
                      help="what is printed; a file is written in the style of its ending")
    draw.add_argument("--values", action="store_true", help="with values and gradients; wants --random")
    draw.add_argument("--expand", nargs="+", metavar="NAME", help="operations and layers that are opened")


def _numbers(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 0,1") from None


def _function_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("of functions")
    group.add_argument("--args", metavar="TYPES", help="what the arguments are like: 'f32[100,20], i32, 0.1'")
    group.add_argument("-t", "--transform", action="append", choices=TRANSFORMATIONS, metavar="NAME",
                       help=f"the function transformed, the first innermost: {', '.join(TRANSFORMATIONS)}")
    group.add_argument("--argnums", type=_numbers, metavar="N,N",
                       help="the arguments that gradients are in (0)")
    group.add_argument("--random", type=int, metavar="SEED",
                       help="random arrays for the types, so that there are values")


def main(argv: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Run the command line `argv`, by default the process's own; returns the exit status.

    Mistakes are reported in one sentence on standard error, with status 2.
    """
    caller = sys._getframe(1).f_code.co_filename
    if caller == sys.argv[0]:  # the script `fxgrad`, whose own line does not help readers of an error
        hide_launcher(caller)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # bars and users' names, where the encoding is cp1252 or ASCII
            stream.reconfigure(errors="replace")
    options = _parser().parse_args(argv)
    settings: dict[str, Any] = {"always": {"force_terminal": True}, "never": {"no_color": True, "color_system": None}}
    shown = console or Console(highlight=False, **settings.get(options.color, {}))
    try:
        status: int = options.run(options, shown)
    except (FxgradError, CommandError, OSError) as error:
        return _fail(str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (what a function of the user's raised while it was traced)
        return _fail(error_text(error))
    return status


def _fail(message: str) -> int:
    print(f"fxgrad: {message}", file=sys.stderr)  # noqa: T201  (the standard error is not the console's)
    return commands.FAILED
