"""Parameters of operations in texts and files: their order, and which are left out if None."""

from __future__ import annotations

import inspect
from typing import Any

from fxgrad.extend import Analysis, Primitive, cached, primitives


def order_parameters(primitive: Primitive, params: dict[str, Any]) -> dict[str, Any]:
    """Return `params` in the order of all texts of the operation.

    They are in the order of the abstract rule, followed by others by name, unless the table gives another order.

    >>> [*order_parameters(primitives.argmax, {"index_dtype": None, "axis": 1})]
    ['axis', 'index_dtype']
    """
    if len(params) < 2:
        return params
    known = orders.of(primitive)
    names = [*(name for name in known if name in params), *sorted(name for name in params if name not in known)]
    return {name: params[name] for name in names}


@cached("optional parameters", 1024)
def optional_parameters(primitive: Primitive) -> tuple[str, ...]:
    """Return the parameters that texts leave out if None: those whose type in the abstract rule allows it."""
    return tuple(parameter.name for parameter in _keyword_parameters(primitive) if "None" in str(parameter.annotation))


@cached("orders of parameters", 1024)
def _abstract_order(primitive: Primitive) -> tuple[str, ...]:
    return tuple(parameter.name for parameter in _keyword_parameters(primitive))


def _keyword_parameters(primitive: Primitive) -> list[inspect.Parameter]:
    """Return the parameters that the abstract rule names."""
    try:
        parameters = inspect.signature(primitive.abstract).parameters.values()
    except (TypeError, ValueError):
        return []
    return [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


orders: Analysis[tuple[str, ...]] = Analysis(
    "orders of parameters", "The order of parameters in texts; by default that of the abstract rule.",
    missing="derive", derive=_abstract_order)


def _register_order(order: str, *names: str) -> None:
    orders.enter((*order.split(),), *(primitives[name] for name in names))


# Parameters that other rules name and the abstract rule only passes on:
_WINDOW = "window_dimensions window_strides padding base_dilation window_dilation"
_register_order(_WINDOW, "reduce_window_max", "reduce_window_min", "reduce_window_sum")
_register_order(f"{_WINDOW} greatest", "select_and_gather_add")
_register_order(f"greatest {_WINDOW}", "select_and_scatter_add")
_register_order("window_strides padding lhs_dilation rhs_dilation dimension_numbers feature_group_count "
                "batch_group_count precision preferred_element_type", "conv_general_dilated")
_register_order("offset_dims collapsed_slice_dims start_index_map operand_batching_dims start_indices_batching_dims "
                "slice_sizes mode fill_value promises", "gather")
_register_order("update_window_dims inserted_window_dims scatter_dims_to_operand_dims operand_batching_dims "
                "scatter_indices_batching_dims mode promises",
                "scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub")
_register_order("axis_name axis_size axis", "all_gather", "psum_scatter")
_register_order("axis_name axis_size split_axis concat_axis", "all_to_all")
_register_order("axis_name axis_size perm", "ppermute")
_register_order("program length reverse unroll num_consts num_carry turns", "scan")
_register_order("condition body num_condition_consts num_body_consts", "while")
_register_order("step back num_step_consts num_back_consts", "sweep")
_register_order("counts programs", "custom_linear_solve", "custom_root")
_register_order("program mesh in_specs out_specs axis_names check_vma", "shard_map")
_register_order("shape bit_width", "random_bits")
_register_order("callback results ordered", "io_callback")
_register_order("callback results vmap_method", "pure_callback")
_register_order("rule structure moving in_avals out_avals", "custom_vjp_tangent")
