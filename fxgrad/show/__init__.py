"""Programs as text: printed, coloured, parsed back, compared, and written as JSON."""

from __future__ import annotations

from fxgrad.core.installed import install_presenter
from fxgrad.show.checking import check_text
from fxgrad.show.display import print_program, render
from fxgrad.show.equality import equal
from fxgrad.show.parser import parse
from fxgrad.show.presenter import Presenter
from fxgrad.show.serialize import from_json, to_json
from fxgrad.show.text import program_text
from fxgrad.show.unfolding import unfold

__all__ = ["check_text", "equal", "from_json", "parse", "print_program", "program_text", "render", "to_json",
           "unfold"]

install_presenter(Presenter())
