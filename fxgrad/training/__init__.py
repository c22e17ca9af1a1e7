"""Training: autocast, loss scaling, optimizers, distributions, stochastic nodes and differential equations.

`autocast` (half precision), `loss_scaling`, `optim` (optimizers), `distributions` and `stochastic` (random nodes),
`ode`, `curvature` (second order). `autocast` and `curvature` are built on `fxgrad.extend` alone; the others are
libraries, built like `fxgrad.nn`.
"""
