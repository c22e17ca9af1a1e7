"""The workloads of `tools/bench`, how they are measured, and how the figures are told."""
