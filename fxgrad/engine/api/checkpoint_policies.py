"""Policies for `fxgrad.checkpoint(f, policy=...)`, under jax's names: which values to save for the backward pass."""

from __future__ import annotations

from fxgrad.engine.higher_order.saving import (
    checkpoint_dots,
    checkpoint_dots_with_no_batch_dims,
    dots_saveable,
    dots_with_no_batch_dims_saveable,
    everything_saveable,
    nothing_saveable,
    offload,
    offload_dot_with_no_batch_dims,
    save_and_offload_only_these_names,
    save_any_names_but_these,
    save_anything_except_these_names,
    save_from_both_policies,
    save_only_these_names,
    store_as,
)

__all__ = ["checkpoint_dots", "checkpoint_dots_with_no_batch_dims", "dots_saveable",
           "dots_with_no_batch_dims_saveable", "everything_saveable", "nothing_saveable", "offload",
           "offload_dot_with_no_batch_dims", "save_and_offload_only_these_names", "save_any_names_but_these",
           "save_anything_except_these_names", "save_from_both_policies", "save_only_these_names", "store_as"]
