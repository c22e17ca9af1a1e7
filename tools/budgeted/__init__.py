"""Gradients within budgets of memory, measured: `models`, `measured` and the table of docs/memory-budgets.md."""
