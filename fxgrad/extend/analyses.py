"""Analyses of a program without running it: costs, live ranges, traffic between devices, reused keys.

`total_cost` counts operations and bytes. `liveness` returns the live range of each value; `flow_of` which of them share
memory; `residuals` the values that reverse mode saves. `intervals_of` bounds
values. `find_repeats` finds copies of blocks, and the data flow between them.
`moves` and its kinds (`ALIAS`, `BARRIER`, `LOOP`), `cheap`,
`offloaded` and `acts_on_each` are properties of primitives for models of compilers. `sparsity_rules` has the rule of
each linear primitive for `fxgrad.sparsity`; `reads_elements` makes one.
"""

from fxgrad.engine.analyses.check import check_program
from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.analyses.flow import Flow, flow_of
from fxgrad.engine.analyses.fusing import ALIAS, BARRIER, CHEAP, EXPENSIVE, LOOP, offloaded
from fxgrad.engine.analyses.interval_rules import interval_rules
from fxgrad.engine.analyses.interval_values import Interval
from fxgrad.engine.analyses.interval_values import of_constant as interval_of_constant
from fxgrad.engine.analyses.intervals import intervals_of
from fxgrad.engine.analyses.intervals import operands_of as operand_intervals
from fxgrad.engine.analyses.intervals import region_inputs as region_intervals
from fxgrad.engine.analyses.key_reuse import refuse_key_reuse
from fxgrad.engine.analyses.liveness import LiveRanges, Moment, liveness
from fxgrad.engine.analyses.repeats import find_repeats
from fxgrad.engine.analyses.sparsity_moves import reads_elements, sparsity_rules
from fxgrad.engine.analyses.traffic import CollectiveKind, Transfer, total_sent, traffic, traffic_of
from fxgrad.engine.api.budgets import BudgetPoint, budget_points
from fxgrad.engine.derivation.derive import gc_paused
from fxgrad.engine.ops.pointwise import acts_on_each
from fxgrad.engine.transforms.residuals import residuals

__all__ = ["ALIAS", "BARRIER", "BudgetPoint", "CHEAP", "CollectiveKind", "EXPENSIVE", "Flow", "Interval", "LOOP",
           "LiveRanges", "Moment", "Transfer", "acts_on_each", "budget_points", "check_program", "find_repeats",
           "flow_of", "gc_paused", "interval_of_constant", "interval_rules", "intervals_of", "liveness", "offloaded",
           "operand_intervals", "reads_elements", "refuse_key_reuse", "region_intervals", "residuals",
           "sparsity_rules", "total_cost", "total_sent", "traffic", "traffic_of"]
