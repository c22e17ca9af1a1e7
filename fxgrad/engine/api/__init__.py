"""The public transformations: functions in, functions out.

Each file holds a family: `reverse` (grad, vjp), `forward` (jvp, linearize), `jacobians`, `batching` (vmap), `compiled`
(jit), `programs` (make_program, eval_shape), `custom` rules, `residuals` (checkpoint, stop_gradient). All use
`arguments`.
"""
