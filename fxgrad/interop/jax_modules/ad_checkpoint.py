"""The names of `jax.ad_checkpoint`: names of values, policies of residuals, and a list of the residuals.

>>> import fxgrad, fxgrad.numpy as fnp
>>> block = checkpoint(lambda x: fnp.sin(checkpoint_name(fnp.exp(x), "e")),
...                    policy=checkpoint_policies.save_only_these_names("e"))
>>> [residual.name for residual in saved_residuals(block, 1.0)]
['x', 'e']

Policies of your own may answer with a bool, or as in jax with `Saveable`, `Recompute` or an `Offloadable`.
"""

from jax.ad_checkpoint import Offloadable, Recompute, Saveable

from fxgrad.engine.api import checkpoint_policies
from fxgrad.engine.api.residuals import checkpoint, checkpoint_name, print_saved_residuals, saved_residuals

remat = checkpoint

__all__ = ["Offloadable", "Recompute", "Saveable", "checkpoint", "checkpoint_name", "checkpoint_policies",
           "print_saved_residuals", "remat", "saved_residuals"]
