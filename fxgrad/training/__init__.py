"""Training: what people who train models need beside derivatives.

`autocast` (half precision), `loss_scaling`, `optim` (optimizers), `distributions` and `stochastic` (random nodes),
`ode`.
`autocast` knows `fxgrad.extend` alone; the others are libraries, built as `fxgrad.nn` is.
"""
