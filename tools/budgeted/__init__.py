"""Measured gradients within memory budgets: `models`, `measured`, the table of docs/appendix/memory-budgets.md."""
