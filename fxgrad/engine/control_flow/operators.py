"""The operators: what converted code calls, under the names by which it does."""

from __future__ import annotations

from fxgrad.engine.control_flow.arrays import (
    attribute,
    augmented,
    itemized,
    place,
    returned,
    slots,
    store_row,
    stored,
    value_of,
    value_set,
    with_values,
)
from fxgrad.engine.control_flow.assigned_items import attributed
from fxgrad.engine.control_flow.blocks import depth, in_try, refusals
from fxgrad.engine.control_flow.builtin_functions import compared, contains
from fxgrad.engine.control_flow.calls import acted, argument, called, changing, sequence
from fxgrad.engine.control_flow.comprehensions import kept, reduced
from fxgrad.engine.control_flow.conditions import (
    as_number,
    assertion,
    boolean,
    counted,
    ended,
    if_,
    if_expression,
    is_none,
    is_same,
    is_true,
    known,
    known_filter,
    not_,
    not_raising,
    raised_flag,
    raising,
    unset,
    without_traced_bools,
)
from fxgrad.engine.control_flow.containers import fresh, fresh_list
from fxgrad.engine.control_flow.effects import rebinding
from fxgrad.engine.control_flow.iteration import for_, while_
from fxgrad.engine.control_flow.lending import entered, given_back, passed
from fxgrad.engine.control_flow.numbers import divided
from fxgrad.engine.control_flow.positions import item, row
from fxgrad.engine.control_flow.printing import as_they_are, shown, text
from fxgrad.engine.control_flow.sequences import index, numbered
from fxgrad.engine.control_flow.variables import forget, forgetting

__all__ = [
    "acted", "argument", "as_number", "as_they_are", "assertion", "attribute", "attributed", "augmented", "boolean",
    "called", "changing", "compared", "contains", "counted", "depth", "divided", "ended", "entered", "for_", "forget",
    "forgetting", "fresh", "fresh_list", "given_back", "if_", "if_expression", "in_try", "index", "is_none", "is_same",
    "is_true", "item", "itemized", "kept", "known", "known_filter", "not_", "not_raising", "numbered", "passed",
    "place", "raised_flag", "raising", "rebinding", "reduced", "refusals", "returned", "row", "sequence", "shown",
    "slots", "store_row", "stored", "text", "unset", "value_of", "value_set", "while_", "with_values",
    "without_traced_bools",
]
