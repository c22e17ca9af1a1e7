"""The engine: what records functions, transforms programs and runs them.

Here live the IR (`core`), tracers and tapes (`tracing`), derived programs (`derivation`), first-order operations
(`ops`) and those that hold programs (`higher_order`), interpreters (`transforms`, `analyses`), what runs programs
(`executors`), how Python code meets them (`frontend`), and the transformations that people call (`api`).
It knows `fxgrad.errors` and nothing else of the package; whatever looks at programs imports `fxgrad.extend` instead.
"""
