"""The version of jax that the tests run with: lists of its names and options, and some of its texts, are for 0.10."""

from __future__ import annotations

import jax

IS_OLDEST_JAX = jax.__version__.startswith("0.10.")
