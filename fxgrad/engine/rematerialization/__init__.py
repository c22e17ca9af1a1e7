"""Gradients within a budget of memory: what is kept for the backward pass, and what is computed again by blocks.

`needs` says what the backward pass needs of each operation, `levels` which of that is worth keeping at what price,
`segments` where blocks begin and end, `blocks` writes a program in blocks of `checkpoint`, `loops` opens loops,
`plans` searches for the least work within the budget, and `operation` is the call whose derivative is planned so.
"""
