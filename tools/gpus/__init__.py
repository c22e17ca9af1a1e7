"""What `tools/gpu` measures on a GPU, and lowers for one on a machine without."""
