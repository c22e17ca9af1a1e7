"""What `fxgrad.checkpoint(f, policy=...)` keeps for the backward pass, under the names that jax gives the policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.higher_order.checkpoint import Policy
from fxgrad.engine.higher_order.storing import HOST, STORES
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError

AnyPolicy = Policy | Callable[..., Any]

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


def save_from_both_policies(policy_1: AnyPolicy, policy_2: AnyPolicy) -> Any:
    """Keeps what either of two policies keeps."""
    if isinstance(policy_1, Policy) and isinstance(policy_2, Policy):
        return Policy("either", parts=(policy_1, policy_2))
    return lambda *args, **params: policy_1(*args, **params) or policy_2(*args, **params)


def save_and_offload_only_these_names(*, names_which_can_be_saved: Sequence[str],
                                      names_which_can_be_offloaded: Sequence[str], offload_src: str,
                                      offload_dst: str) -> Policy:
    """Keeps the values of both lists of names, those of the second in the memory of the host (`offload`).

    `offload_src` and `offload_dst` are "device" and "pinned_host"; raises `ArgumentError` for others.
    """
    _check_places("save_and_offload_only_these_names", offload_src, offload_dst)
    both: Policy = save_from_both_policies(Policy("these names", (*names_which_can_be_saved,)),
                                           offload(Policy("these names", (*names_which_can_be_offloaded,))))
    return both


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """As `dots_with_no_batch_dims_saveable`, in the memory of the host (`offload`).

    `offload_src` and `offload_dst` are "device" and "pinned_host"; raises `ArgumentError` for others.
    """
    _check_places("offload_dot_with_no_batch_dims", offload_src, offload_dst)
    return offload(dots_with_no_batch_dims_saveable)


def _check_places(name: str, source: str, destination: str) -> None:
    if (source, destination) != ("device", "pinned_host"):
        raise ArgumentError(at_user_line(
            f"{name}: offload_src={source!r}, offload_dst={destination!r}; values go from 'device' to 'pinned_host'"))


def offload(policy: AnyPolicy = everything_saveable) -> Policy:
    """Keeps what `policy` keeps out of the memory where it is computed, and fetches it for the backward pass.

    XLA moves it to the memory of the host, where the device has one of its own (GPU, TPU); on CPU it stays where it is.
    NumPy writes it to a file in the directory for temporary files, which is mapped into memory and has no name.

    >>> import numpy as np, fxgrad
    >>> block = fxgrad.checkpoint(lambda x: np.sin(np.sin(x)), policy=offload())
    >>> fxgrad.grad(lambda x: np.sum(block(x)))(np.zeros(2))
    array([1., 1.])
    """
    return _stored("offload", policy, HOST)


def store_as(dtype: Any, policy: AnyPolicy = everything_saveable) -> Policy:
    """Keeps what `policy` keeps in fewer bits: "bfloat16", "float16", "float32", or "int8" with a scale for each row.

    A row is what lies along the last axis, of which the largest absolute value becomes 127. Integers, complex numbers
    and what is no wider are kept as they are. Gradients change by the rounding, and values do not:
    `fxgrad.policy_report` says by how much. Raises `ArgumentError` for other dtypes.

    >>> import numpy as np, fxgrad
    >>> block = fxgrad.checkpoint(lambda x: np.exp(np.sin(x)), policy=store_as("bfloat16"))
    >>> [str(each.aval) for each in fxgrad.saved_residuals(block, np.ones(3, np.float32))]
    ['bf16[3]', 'bf16[3]']
    """
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name not in STORES or name == HOST:
        raise ArgumentError(at_user_line(
            f"store_as: dtype is {name!r}; 'bfloat16', 'float16', 'float32' and 'int8' are there"))
    return _stored("store_as", policy, name)


def _stored(what: str, policy: AnyPolicy, store: str) -> Policy:
    if not callable(policy):
        raise ArgumentError(at_user_line(
            f"{what}: policy is a {type(policy).__name__}, where one of fxgrad.checkpoint_policies or a function is "
            "needed"))
    return Policy("stored", (store,), (policy,))  # type: ignore[arg-type]
