"""Tools for looking at programs and changing them.

`graphs`, `pictures`, `explorer` (an interactive page), `granularity` (scalars, arrays, blocks), `editing`, `retracing`
(causes of retraces), `profiling` (costs, memory, times), `numerics` (lost digits, NaNs) and `cli`, the command line.
They import `fxgrad.extend`, the public API and the text of programs; the command line imports `fxgrad.shipping` as
well.
"""
