"""Tools for looking at programs and changing them.

`graphs`, `pictures`, `explorer` (a page to click through), `granularity` (scalars, arrays, blocks), `editing`,
`retracing` (why something was traced again), `profiling` (costs, memory, times), `numerics` (lost digits, NaNs) and
`cli`, the command line.
They know `fxgrad.extend`, the public API and the text of programs; the command line also what ships programs.
"""
