"""The patterns of examples/parallel measured beside jax's same programs, and simulated on more devices."""
