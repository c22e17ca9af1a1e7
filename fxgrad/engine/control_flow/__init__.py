"""Python's own control flow, compiled: `if`, `while` and `for` on traced values, converted from source.

Before a function runs, its syntax tree is rewritten: `liveness`, `changes`, `optional` and `rows` find out about names
(`names`), `jumps` replaces `break`, `continue` and `return` by flags, `expressions` and `rewriting` put calls of
operators (`nodes`) in the place of control flow, `texts` makes f-strings of what is printed, and `conversion` compiles
the result; `functions` has the decorator.

While it runs, `operators` are what it calls: `conditions` and `iteration` decide whether Python runs a block or
`branches` and `loops` (over `sequences`) trace it; `calls`, `builtin_functions`, `comprehensions`, `numbers`,
`whole_numbers` and `printing` stand in the place of functions, which `lending` gives arrays of their caller; `items`,
`assigned_items`, `arrays`, `slices` and `matrices` read and assign items; NumPy's functions of arrays whose length is
traced are in `slice_functions` and `matrices`. `growing` are lists whose length is, and `positions` the places in them.

What traced blocks note stands in `blocks`; their values in `variables`, by `structures`. What may change in them, and
who else would see it, decide `containers`, `ownership`, `aliases` and `effects`, with the table in `mutators`.
"""
