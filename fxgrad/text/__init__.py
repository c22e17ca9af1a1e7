"""Programs as text: printed, coloured, parsed back, compared, and written as JSON.

It imports `fxgrad.extend` and the libraries, whose functions texts name, and nothing else of the engine.
"""

from __future__ import annotations

from fxgrad.text import vocabulary  # noqa: F401  (first: the tables of texts name primitives)
from fxgrad.text.checking import check_text
from fxgrad.text.columns import side_by_side
from fxgrad.text.display import print_program, render
from fxgrad.text.equality import equal
from fxgrad.text.inlining import inline
from fxgrad.text.json_writer import from_json, to_json
from fxgrad.text.names import variable_names
from fxgrad.text.scope import type_text
from fxgrad.text.short import expression, operation_name
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.text.text_parser import parse
from fxgrad.text.text_writer import program_text

__all__ = ["Report", "add_row", "check_text", "equal", "expression", "from_json", "new_table", "operation_name",
           "parse",
           "print_program", "program_text", "render", "side_by_side", "to_json", "type_text", "inline",
           "variable_names"]
