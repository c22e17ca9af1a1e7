"""Programs as text: printed, coloured, parsed back, compared, and written as JSON."""

from __future__ import annotations

from fxgrad.core.installed import install_presenter
from fxgrad.show.checking import check_text
from fxgrad.show.columns import side_by_side
from fxgrad.show.display import print_program, render
from fxgrad.show.equality import equal
from fxgrad.show.json_writer import from_json, to_json
from fxgrad.show.presenter import Presenter
from fxgrad.show.text_parser import parse
from fxgrad.show.text_writer import program_text
from fxgrad.show.unfolding import unfold

__all__ = ["check_text", "equal", "from_json", "parse", "print_program", "program_text", "render", "side_by_side",
           "to_json", "unfold"]

install_presenter(Presenter())
