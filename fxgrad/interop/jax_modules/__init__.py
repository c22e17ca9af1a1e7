"""Small modules that jax has at its top level: people import them as `fxgrad.stages`, `fxgrad.ffi`, ..."""
