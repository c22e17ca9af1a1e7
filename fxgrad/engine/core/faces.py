"""Functions that higher layers define, by name: methods of `Program` to show, edit, store and ship; `wrt`; `in_jax`.

They are imported at the first call.

The engine refers to these functions by name alone, so that it imports none of the modules that define them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

FACES = {
    "c": "fxgrad.shipping.c.writer:c_text",
    "call": "fxgrad.engine.frontend.calling:call_program",
    "check": "fxgrad.text.checking:check_with_text",
    "difference": "fxgrad.text.difference:difference",
    "edit": "fxgrad.tools.editing.editor:Editor",
    "html": "fxgrad.text.html:program_html",
    "in_jax": "fxgrad.interop.emission:apply_with_own_derivative",
    "pickled": "fxgrad.shipping.pickled:reduce_program",
    "python": "fxgrad.shipping.python.writer:python_text",
    "rich": "fxgrad.text.display:render_fitted",
    "text": "fxgrad.text.text_writer:program_text",
    "with_respect_to": "fxgrad.tools.inside.capturing:with_respect_to",
}
"""Functions as `module:function`, whose first argument is a program; `Program` has most of them as methods."""
_loaded: dict[str, Callable[..., Any]] = {}


def face(name: str) -> Callable[..., Any]:
    """Return the function of this name in `FACES`; import its module at the first call."""
    loaded = _loaded.get(name)
    if loaded is None:
        module, _, function = FACES[name].partition(":")
        loaded = _loaded[name] = getattr(import_module(module), function)
    return loaded
