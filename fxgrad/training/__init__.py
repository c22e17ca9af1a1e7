"""Training: what people who train models need beside derivatives.

`autocast` (half precision), `loss_scaling`, `optim` (optimizers), `distributions` and `stochastic` (random nodes),
`ode`.
It knows the public line, the libraries and the transformations that people call.
"""
