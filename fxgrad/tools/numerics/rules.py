"""`Rule`: a naive form, its search and its replacement; and the table of all rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fxgrad.extend import Atom, Collection, Equation, Primitive
from fxgrad.tools.numerics.view import ProgramView


class StableForm(NamedTuple):
    """The replacement of a value: a function of the values of `atoms`."""

    function: Callable[..., Any]
    atoms: tuple[Atom, ...]


RuleSearch = Callable[[ProgramView, Equation], "StableForm | None"]
"""(view, equation) -> the replacement of the value that the equation defines; None if there is none."""


class Rule(NamedTuple):
    """A naive form and the stable one: how both are written, the fault, where they are equal, and the search."""

    name: str
    naive: str
    write: str
    fault: str
    domain: str
    kind: str
    search: RuleSearch


RULES: list[Rule] = []
"""All rules, in the order in which they are tried."""
stable_forms: Collection[Rule] = Collection(
    "stable forms", "The naive forms that end in an operation, in the order in which `stabilize` tries them.")


def register_form_rule(name: str, *roots: Primitive, naive: str, write: str, fault: str, domain: str = "all x",
                       kind: str = "",
                       ) -> Callable[[RuleSearch], RuleSearch]:
    """Register the decorated search as a rule for values that operations of `roots` make.

    `kind` is that of findings (`KINDS` in findings.py), by default derived from the fault.
    """
    kind = kind or ("cancellation" if "digits" in fault else "overflow")

    def enter(search: RuleSearch) -> RuleSearch:
        made = Rule(name, naive, write, fault, domain, kind, search)
        RULES.append(made)
        stable_forms.add(made, *roots)
        return search
    return enter
