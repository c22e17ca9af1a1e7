"""Gradients within a memory budget: which values the backward pass keeps, and which blocks it recomputes.

`residual_costs` lists what the backward pass needs of each operation, `levels` which of that is worth keeping at what
price, `segments` where blocks begin and end. `blocks` writes a program in blocks of `checkpoint`, `loops` cuts loops
into chunks, `plans` searches for the least work within the budget, and `operation` is the call that is planned so.
"""
