"""Which operations `autocast` computes in half precision, which in full, and how inner programs are cast."""

from __future__ import annotations

from typing import Literal

from fxgrad.extend import Analysis, primitives
from fxgrad.interop import opaque

Kind = Literal["half", "full", "follow", "as_is"]

kinds: Analysis[Kind] = Analysis(
    "autocast kinds", "The precision in which `autocast` computes an operation, unless a policy says otherwise.",
    missing="conservative", default="full")
"""The kinds:

| kind | operands of float32 and float64 are |
|---|---|
| `half` | rounded to half precision, and so is the result |
| `full` | as in the program without `autocast` |
| `follow` | half, if those of the result's shape (of all, if there are none) were computed in half; full otherwise |
| `as_is` | unchanged: a conversion, or an operation on each of them alone |
"""

Boundary = Literal["open", "closed", "untouched"]

boundaries: Analysis[Boundary] = Analysis(
    "autocast boundaries", "Whether half precision enters and leaves the programs that an operation holds.",
    missing="conservative", default="untouched")
"""`open`: inner programs take and return half precision where that saves a cast. `closed`: they are cast inside, and
keep their input and output types. `untouched`: they are not cast, such as those of solvers, which would not converge.
"""


kinds.enter("half", primitives.dot_general, primitives.strong_dot_general, primitives.conv_general_dilated)
kinds.enter("as_is", primitives.convert_element_type, primitives.optimization_barrier)
# Exact, or rounded once like their operands: no long sums, and nothing that soon leaves the range.
kinds.enter(
    "follow",
    primitives.add, primitives.sub, primitives.mul, primitives.div, primitives.strong_mul,
    primitives.strong_div, primitives.neg, primitives.abs,
    primitives.sign, primitives.max, primitives.min, primitives.select_n, primitives.clamp, primitives.tanh,
    primitives.logistic, primitives.erf, primitives.copy, primitives.name, primitives.stop_gradient,
    primitives.real, primitives.imag, primitives.conj, primitives.eq, primitives.ne, primitives.lt, primitives.le,
    primitives.gt, primitives.ge, primitives.eq_to, primitives.lt_to, primitives.le_to, primitives.is_finite,
    primitives.ceil, primitives.floor, primitives.round, primitives["not"],
    primitives["and"], primitives["or"], primitives.xor,
    primitives.reshape, primitives.transpose, primitives.broadcast_in_dim, primitives.broadcast_to,
    primitives.concatenate,
    primitives.stack, primitives.split, primitives.unstack, primitives.slice, primitives.pad, primitives.rev,
    primitives.tile, primitives.gather, primitives.dynamic_slice, primitives.dynamic_update_slice, primitives.scatter,
    primitives.sort, primitives.top_k, primitives.argmax, primitives.argmin, primitives.attains,
    primitives.reduce_max, primitives.reduce_min, primitives.cummax, primitives.cummin, primitives.reduce_window_max,
    primitives.reduce_window_min, primitives.scatter_max, primitives.scatter_min, primitives.device_put,
    primitives.sharding_constraint, primitives.pvary, primitives.take_equal, primitives.all_gather,
    primitives.all_to_all, primitives.ppermute, primitives.pmax, primitives.pmin, primitives.move)
kinds.enter(
    "full",
    # sums and products of many, means over devices
    primitives.reduce_sum, primitives.reduce_prod, primitives.cumsum, primitives.cumprod,
    primitives.cumlogsumexp, primitives.reduce_window_sum, primitives.scatter_add, primitives.scatter_sub,
    primitives.scatter_mul, primitives.select_and_gather_add, primitives.select_and_scatter_add, primitives.psum,
    primitives.psum_invariant, primitives.psum_scatter, primitives.linear_recurrence,
    # exponentials, powers, roots and norms
    primitives.exp, primitives.exp2, primitives.expm1, primitives.log, primitives.log1p,
    primitives.logaddexp, primitives.pow, primitives.integer_pow, primitives.whole_pow,
    primitives.square, primitives.sqrt, primitives.rsqrt, primitives.cbrt, primitives.hypot,
    primitives.xlogy, primitives.xlog1py, primitives.entr, primitives.sin, primitives.cos, primitives.tan,
    primitives.sinh, primitives.cosh, primitives.asin, primitives.acos, primitives.atan,
    primitives.atan2, primitives.asinh, primitives.acosh, primitives.atanh, primitives.rem,
    primitives.nextafter, primitives.reduce_precision, primitives.complex,
    # special functions
    primitives.erfc, primitives.erfcx, primitives.erf_inv, primitives.ndtri, primitives.lgamma, primitives.digamma,
    primitives.polygamma, primitives.zeta, primitives.betaln,
    primitives.igamma, primitives.igamma_grad_a, primitives.igammac,
    primitives.bessel_i0e, primitives.bessel_i1e, primitives.cosine_integral, primitives.sine_integral,
    primitives.dawsn, primitives.exp1, primitives.expi, primitives.expn, primitives.fresnel_cosine,
    primitives.fresnel_sine, primitives.hyp1f1, primitives.hyp1f1_grad_a, primitives.hyp1f1_grad_b,
    primitives.hyp2f1, primitives.hyp2f1_grad_a, primitives.hyp2f1_grad_c, primitives.owens_t, primitives.spence,
    primitives.wofz, primitives.regularized_incomplete_beta, primitives.betainc_grad_a, primitives.betainc_grad_b,
    # matrices and transforms
    primitives.cholesky, primitives.cofactor, primitives.det, primitives.slogdet, primitives.eig,
    primitives.eigh, primitives.svd, primitives.lu, primitives.lu_solve, primitives.lu_pivots_to_permutation,
    primitives.qr, primitives.hessenberg, primitives.schur, primitives.tridiagonal,
    primitives.expm, primitives.expm_frechet, primitives.nearest_unitary,
    primitives.pinv, primitives.solve_sylvester, primitives.sqrtm, primitives.triangular_solve,
    primitives.tridiagonal_solve, primitives.fft,
    # bits, counts and random numbers
    primitives.bitcast_convert_type, primitives.clz, primitives.mulhi, primitives.nonzero_divisor,
    primitives.population_count,
    primitives.shift_left, primitives.shift_right_arithmetic, primitives.shift_right_logical, primitives.iota,
    primitives.size,
    primitives.axis_index, primitives.reduce_and, primitives.reduce_or, primitives.reduce_xor,
    primitives.threefry2x32, primitives.random_bits, primitives.random_clone,
    primitives.random_fold_in, primitives.random_seed,
    primitives.random_split, primitives.random_unwrap, primitives.random_wrap, primitives.random_binomial,
    primitives.random_gamma, primitives.random_gamma_grad, primitives.random_poisson, primitives.round_to_int8,
    # code of others
    primitives.check, primitives.debug_callback, primitives.io_callback, primitives.pure_callback, opaque.jax_call_p,
    opaque.jax_effect_p, primitives.custom_vjp_tangent)

boundaries.enter("open", primitives.named_call, primitives.jit_call, primitives.checkpoint, primitives.recompute,
                 primitives.within_budget, primitives.safe_call, primitives.cond, primitives.scan,
    primitives["while"], primitives["for"],
                 primitives.shard_map)
boundaries.enter("closed", primitives.sweep, primitives.custom_jvp, primitives.custom_vjp, primitives.custom_vmap)
boundaries.enter("untouched", primitives.custom_linear_solve, primitives.custom_root)
