"""All workloads by name, in the order of the report."""

from __future__ import annotations

from benchmarks import (
    cheap_gradients,
    checked_calls,
    compiled,
    control_flow,
    curvature,
    custom_rules,
    dataflow,
    derivatives,
    dispatch,
    first_calls,
    gradients,
    inside,
    laplacians,
    library_calls,
    programs,
    rolling,
    second_order,
    series,
    sparse,
    sparse_problems,
    stiff,
    training,
    unjitted_models,
)
from benchmarks.workload import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for module in (gradients, second_order, custom_rules, unjitted_models, library_calls, dataflow, first_calls,
                   programs, dispatch, compiled, control_flow, checked_calls, training, cheap_gradients, derivatives,
                   series, laplacians, rolling, sparse, sparse_problems, stiff, curvature, inside)
    for workload in module.WORKLOADS}


def chosen(words: list[str], jitted_only: bool = False) -> list[Workload]:
    """The workloads whose names contain one of the words, or all if there are none.

    With `jitted_only` those of compiled code that need no virtual devices, which only CPUs have.
    """
    return [workload for name, workload in WORKLOADS.items() if (
        not jitted_only or (workload.jitted and workload.devices == 1)) and (
        not words or any(word.lower() in name.lower() for word in words))]
