"""Imports of all modules that define primitives: `registry` as imported from here has all primitives of the engine."""

from fxgrad.engine import ops
from fxgrad.engine.core.primitive import registry
from fxgrad.engine.frontend import callback
from fxgrad.engine.higher_order import (
    automatic_checks,
    branch,
    call,
    checkpoint,
    checks,
    custom,
    loop,
    mapped_rule,
    safe_call,
    scan,
    solve,
    sweep,
    while_loop,
)
from fxgrad.engine.parallel import collective, gathers, shard_map, shardings
from fxgrad.engine.rematerialization import operation

__all__ = ["automatic_checks", "branch", "call", "callback", "checkpoint", "checks", "collective", "custom",
           "gathers", "loop", "mapped_rule", "operation", "ops", "registry", "safe_call", "scan", "shard_map",
           "shardings", "solve", "sweep", "while_loop"]
