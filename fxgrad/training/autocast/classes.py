"""Which operations `autocast` computes in half precision, which in full, and how programs in operations are cast."""

from __future__ import annotations

from typing import Literal

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.frontend import callback
from fxgrad.engine.higher_order import (
    branch,
    call,
    checkpoint,
    custom,
    loop,
    mapped_rule,
    safe_call,
    scan,
    solve,
    sweep,
    while_loop,
)
from fxgrad.engine.ops import (
    arithmetic,
    barrier,
    comparison,
    convolution,
    creation,
    cumulative,
    determinant,
    dynamic,
    eigen,
    exponential,
    factorizations,
    fft,
    gamma,
    indexing,
    integrals,
    joining,
    matrix_functions,
    moving,
    ordering,
    parts,
    pointwise,
    pool,
    products,
    pseudoinverse,
    random,
    reduced_forms,
    reductions,
    samplers,
    select,
    shaping,
    special,
    strong,
    structural,
    topk,
    triangular,
    trigonometric,
    varying,
)
from fxgrad.engine.parallel import collective, gathers, shard_map, shardings
from fxgrad.engine.rematerialization.operation import within_budget_p
from fxgrad.interop import opaque

Kind = Literal["half", "full", "follow", "as_is"]

kinds: Analysis[Kind] = Analysis("autocast kinds", missing="conservative", default="full")
"""What `autocast` does with the operands of an operation, unless a policy says otherwise.

| kind | operands of float32 and float64 are |
|---|---|
| `half` | rounded to half precision, and so is the result |
| `full` | what they are in the program without `autocast` |
| `follow` | half, if those of the result's shape (of all, if there are none) were computed in half; full otherwise |
| `as_is` | whatever they come as: a conversion, or an operation on each of them alone |
"""

Boundary = Literal["open", "closed", "untouched"]

boundaries: Analysis[Boundary] = Analysis("autocast boundaries", missing="conservative", default="untouched")
"""Whether values come in half precision into the programs that an operation holds, and leave them so.

`open`: where that saves a cast. `closed`: the programs are cast inside, and take and make what they did. `untouched`:
they are not cast, as those of solvers, which would not converge.
"""


kinds.enter("half", products.dot_general_p, strong.strong_dot_general_p, convolution.conv_general_dilated_p)
kinds.enter("as_is", structural.convert_element_type_p, barrier.optimization_barrier_p)
# Exact, or rounded once as their operands are: no sums of many, and nothing that soon leaves the range.
kinds.enter(
    "follow",
    pointwise.add_p, arithmetic.sub_p, arithmetic.mul_p, arithmetic.div_p, strong.strong_mul_p,
    strong.strong_div_p, arithmetic.neg_p, parts.abs_p,
    parts.sign_p, arithmetic.max_p, arithmetic.min_p, select.select_n_p, select.clamp_p, trigonometric.tanh_p,
    exponential.logistic_p, special.erf_p, creation.copy_p, arithmetic.name_p, arithmetic.stop_gradient_p,
    parts.real_p, parts.imag_p, parts.conj_p, comparison.eq_p, comparison.ne_p, comparison.lt_p, comparison.le_p,
    comparison.gt_p, comparison.ge_p, comparison.eq_to_p, comparison.lt_to_p, comparison.le_to_p, parts.is_finite_p,
    parts.ceil_p, parts.floor_p, parts.round_p, comparison.not_p, comparison.and_p, comparison.or_p, comparison.xor_p,
    structural.reshape_p, structural.transpose_p, shaping.broadcast_in_dim_p, structural.broadcast_to_p,
    joining.concatenate_p,
    joining.stack_p, joining.split_p, joining.unstack_p, shaping.slice_p, shaping.pad_p, shaping.rev_p,
    shaping.tile_p, indexing.gather_p, dynamic.dynamic_slice_p, dynamic.dynamic_update_slice_p, indexing.scatter_p,
    ordering.sort_p, topk.top_k_p, reductions.argmax_p, reductions.argmin_p, reductions.reduce_max_p,
    reductions.reduce_min_p, cumulative.cummax_p, cumulative.cummin_p, pool.reduce_window_max_p,
    pool.reduce_window_min_p, indexing.scatter_max_p, indexing.scatter_min_p, shardings.device_put_p,
    shardings.sharding_constraint_p, varying.pvary_p, varying.take_equal_p, gathers.all_gather_p,
    gathers.all_to_all_p, gathers.ppermute_p, collective.pmax_p, collective.pmin_p, moving.move_p)
kinds.enter(
    "full",
    # sums and products of many, means over devices
    structural.reduce_sum_p, reductions.reduce_prod_p, cumulative.cumsum_p, cumulative.cumprod_p,
    cumulative.cumlogsumexp_p, pool.reduce_window_sum_p, indexing.scatter_add_p, indexing.scatter_sub_p,
    indexing.scatter_mul_p, pool.select_and_gather_add_p, pool.select_and_scatter_add_p, collective.psum_p,
    varying.psum_invariant_p, gathers.psum_scatter_p, cumulative.linear_recurrence_p,
    # exponentials, powers, roots and norms
    exponential.exp_p, exponential.exp2_p, exponential.expm1_p, exponential.log_p, exponential.log1p_p,
    exponential.logaddexp_p, exponential.pow_p, exponential.integer_pow_p, exponential.whole_pow_p,
    exponential.square_p, exponential.sqrt_p, exponential.rsqrt_p, exponential.cbrt_p, trigonometric.hypot_p,
    special.xlogy_p, special.xlog1py_p, special.entr_p, trigonometric.sin_p, trigonometric.cos_p, trigonometric.tan_p,
    trigonometric.sinh_p, trigonometric.cosh_p, trigonometric.asin_p, trigonometric.acos_p, trigonometric.atan_p,
    trigonometric.atan2_p, trigonometric.asinh_p, trigonometric.acosh_p, trigonometric.atanh_p, arithmetic.rem_p,
    parts.nextafter_p, parts.reduce_precision_p, parts.complex_p,
    # special functions
    special.erfc_p, integrals.erfcx_p, special.erf_inv_p, special.ndtri_p, special.lgamma_p, special.digamma_p,
    special.polygamma_p, gamma.zeta_p, gamma.betaln_p, gamma.igamma_p, gamma.igamma_grad_a_p, gamma.igammac_p,
    special.bessel_i0e_p, special.bessel_i1e_p, integrals.cosine_integral_p, integrals.sine_integral_p,
    integrals.dawsn_p, integrals.exp1_p, integrals.expi_p, integrals.expn_p, integrals.fresnel_cosine_p,
    integrals.fresnel_sine_p, integrals.hyp1f1_p, integrals.hyp2f1_p, integrals.owens_t_p, integrals.spence_p,
    integrals.wofz_p, gamma.regularized_incomplete_beta_p,
    # matrices and transforms
    factorizations.cholesky_p, determinant.cofactor_p, determinant.det_p, determinant.slogdet_p, eigen.eig_p,
    eigen.eigh_p, eigen.svd_p, factorizations.lu_p, triangular.lu_solve_p, factorizations.lu_pivots_to_permutation_p,
    factorizations.qr_p, reduced_forms.hessenberg_p, reduced_forms.schur_p, reduced_forms.tridiagonal_p,
    matrix_functions.expm_p, matrix_functions.expm_frechet_p, matrix_functions.nearest_unitary_p,
    pseudoinverse.pinv_p, matrix_functions.sylvester_p, matrix_functions.sqrtm_p, triangular.triangular_solve_p,
    triangular.tridiagonal_solve_p, fft.fft_p,
    # bits, counts and random numbers
    creation.bitcast_convert_type_p, comparison.clz_p, arithmetic.mulhi_p, comparison.population_count_p,
    comparison.shift_left_p, comparison.shift_right_arithmetic_p, comparison.shift_right_logical_p, creation.iota_p,
    creation.size_p,
    collective.axis_index_p, reductions.reduce_and_p, reductions.reduce_or_p, reductions.reduce_xor_p,
    random.threefry2x32_p, random.random_bits_p, random.random_clone_p, random.random_fold_in_p, random.random_seed_p,
    random.random_split_p, random.random_unwrap_p, random.random_wrap_p, samplers.random_binomial_p,
    samplers.random_gamma_p, gamma.random_gamma_grad_p, samplers.random_poisson_p, moving.round_to_int8_p,
    # code of others
    callback.debug_callback_p, callback.io_callback_p, callback.pure_callback_p, opaque.jax_call_p,
    opaque.jax_effect_p, custom.custom_vjp_tangent_p)

boundaries.enter("open", call.named_call_p, call.jit_call_p, checkpoint.checkpoint_p, checkpoint.recompute_p,
                 within_budget_p, safe_call.safe_call_p, branch.cond_p, scan.scan_p, while_loop.while_p, loop.for_p,
                 shard_map.shard_map_p)
boundaries.enter("closed", sweep.sweep_p, custom.custom_jvp_p, custom.custom_vjp_p, mapped_rule.custom_vmap_p)
boundaries.enter("untouched", solve.linear_solve_p, solve.root_p)
