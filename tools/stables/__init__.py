"""What `tools/stable` is made of."""
