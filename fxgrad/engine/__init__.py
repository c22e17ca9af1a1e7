"""The engine: it records functions, transforms programs and runs them.

It contains the IR (`core`), tracers and tapes (`tracing`), derived programs (`derivation`), first-order operations
(`ops`) and those with nested programs (`higher_order`), interpreters (`transforms`, `analyses`), executors
(`executors`), the conversion between Python code and programs (`frontend`), and the public transformations (`api`). It
imports `fxgrad.errors` and nothing else of the package; tools for programs import `fxgrad.extend` instead.
"""
