"""What `fxgrad.checkpoint(f, policy=...)` keeps for the backward pass, under the names that jax gives the policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.control.checkpoint import Policy

everything_saveable = Policy("everything")
"""Keeps every value that is needed: nothing is computed again."""
nothing_saveable = Policy("nothing")
"""Keeps the inputs alone, as without a policy."""
dots_saveable = checkpoint_dots = Policy("dots")
"""Keeps the results of matrix products and convolutions."""
dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = Policy("dots without batch dimensions")
"""Keeps the results of matrix products without batch axes: those with weights, in most networks."""


def save_only_these_names(*names_which_can_be_saved: str) -> Policy:
    """Keeps the values that `checkpoint_name` gave one of these names.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> def f(x):
    ...     return fnp.sin(fxgrad.checkpoint_name(fnp.exp(x), "e"))
    >>> kept = fxgrad.checkpoint(f, policy=save_only_these_names("e"))
    >>> [residual.name for residual in fxgrad.saved_residuals(kept, 1.0)]
    ['x', 'e']
    """
    return Policy("these names", names_which_can_be_saved)


def save_any_names_but_these(*names_not_to_save: str) -> Policy:
    """Keeps the values that `checkpoint_name` gave a name other than these."""
    return Policy("other names", names_not_to_save)


def save_anything_except_these_names(*names_not_to_save: str) -> Policy:
    """Keeps every value, unless `checkpoint_name` gave it one of these names."""
    return Policy("all but these names", names_not_to_save)


def save_from_both_policies(policy_1: Callable[..., Any], policy_2: Callable[..., Any]) -> Any:
    """Keeps what either of two policies keeps."""
    if isinstance(policy_1, Policy) and isinstance(policy_2, Policy):
        return Policy("either", parts=(policy_1, policy_2))
    return lambda *args, **params: policy_1(*args, **params) or policy_2(*args, **params)


def save_and_offload_only_these_names(*, names_which_can_be_saved: Sequence[str],
                                      names_which_can_be_offloaded: Sequence[str], offload_src: str,
                                      offload_dst: str) -> Policy:
    """Keeps the values of both lists of names. Nothing is moved: values stay in the memory where they were made."""
    del offload_src, offload_dst
    return Policy("these names", (*names_which_can_be_saved, *names_which_can_be_offloaded))


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """As `dots_with_no_batch_dims_saveable`. Nothing is moved: values stay in the memory where they were made."""
    del offload_src, offload_dst
    return dots_with_no_batch_dims_saveable
