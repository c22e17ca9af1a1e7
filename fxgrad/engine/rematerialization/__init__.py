"""Gradients within a memory budget: which values to save for the backward pass, and which blocks to recompute.

`residual_costs` lists the residuals of each operation, `levels` which of them to save at what price, `segments` where
blocks begin and end. `blocks` writes a program in blocks of `checkpoint`, `loops` cuts loops into chunks, `plans`
searches for the least work within the budget, and `operation` is the call that is planned so.
"""
