"""Which values to save for the backward pass: the policies of `checkpoint`, and the minimum cut of bytes and work.

Both choose among the values of a known program that determine the residuals. `fxgrad.checkpoint_policies` has the
policies under their public names, which are jax's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation, Program, Variable
from fxgrad.engine.core.program_properties import definitions
from fxgrad.engine.core.sizes import size_hint
from fxgrad.engine.higher_order.storing import HOST, STORES
from fxgrad.engine.ops.arithmetic import name_p
from fxgrad.engine.ops.convolution import conv_general_dilated_p
from fxgrad.engine.ops.products import DotDimensions, dot_general_p
from fxgrad.engine.ops.varying import psum_invariant_p
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError

SavePolicy = Callable[[Program, Sequence[Variable], "set[Variable]"], "list[Variable]"]
"""(known program, residuals that are not free, free inputs) -> the variables to save."""

RECOMPUTED_FLOPS_PER_BYTE = 32
"""A value is recomputed if that takes at most this many operations for each of its bytes.

Writing and reading a byte of a large array takes about as long as 32 operations of a vectorised kernel: with float32,
a product over an axis of 64 is at the boundary.
"""


# --- by weight ---------------------------------------------------------------------------------------------------


def keep_by_cost(known: Program, needed: Sequence[Variable], free: set[Variable]) -> list[Variable]:
    """Return the fewest bytes that determine every residual by cheap computations.

    This is a minimum cut of the program in which values that are cheap to recompute cost nothing (the idea is that of
    Jain et al., "Checkmate", 2020, and of the min-cut partitioner of PyTorch's functorch, 2022; here a loop's constants
    and inputs are free as well).
    """
    if not needed:
        return []
    relevant = set(needed)
    for equation in reversed(known.equations):
        if not relevant.isdisjoint(equation.outputs):
            relevant.update(atom for atom in equation.inputs if type(atom) is Variable and atom not in free)
    cut = MinimumCut()
    for var in known.inputs:
        if var in relevant:
            cut.add([var], [size_hint(var.aval.nbytes) + 1], (), None)
    for equation in known.equations:
        outputs = [var for var in equation.outputs if var in relevant]
        if outputs:
            inputs = [atom for atom in equation.inputs if type(atom) is Variable and atom in relevant
                      and atom not in free]
            cut.add(outputs, [size_hint(var.aval.nbytes) + 1 for var in outputs], inputs,
                    None if is_expensive(equation) else 0)
    return cut.solve(needed)[0]


kept_always: Analysis[bool] = Analysis(
    "kept always", "Whether the results of an operation are never recomputed, whatever its cost rule says.",
    missing="derive", derive=lambda primitive: primitive.effectful or (
        primitive.collective and not primitive.sets_vma))
"""Communication between devices takes longer than its cost rule says."""
kept_always.enter(True, psum_invariant_p)


def is_expensive(equation: Equation) -> bool:
    """Return whether to save the outputs rather than recompute them."""
    if any(region.role != "inline" for region in equation.regions):
        return True
    if kept_always.of(equation.primitive):
        return True
    bytes_out = sum(size_hint(var.aval.nbytes) for var in equation.outputs)
    flops = size_hint(equation.cost.flops)
    return flops > RECOMPUTED_FLOPS_PER_BYTE * max(bytes_out, 1)


class MinimumCut:
    """The choice of values to save and to recompute with the least sum of saved sizes and recomputation prices.

    Each value is an edge of a network, with its size as capacity. The source connects to its operation, with the price
    as capacity, or without bound if the operation must not be repeated. Needed values connect to the sink. A recomputed
    operation depends on its operands without bound.
    """

    def __init__(self) -> None:
        self._edges: list[tuple[int, int, float]] = []
        self._ends: dict[Any, tuple[int, int]] = {}
        self._source, self._sink, self._count = 0, 1, 2

    def add(self, values: Sequence[Any], sizes: Sequence[float], inputs: Iterable[Any], price: float | None) -> None:
        """Add an operation that computes `values`, of `sizes`, from `inputs`; one of `price` None is never repeated.

        `inputs` were added before.
        """
        start = self._count
        self._count += 1 + len(values)
        for end, (value, size) in enumerate(zip(values, sizes, strict=True), start + 1):
            self._ends[value] = start, end
            self._edges.append((start, end, size))
        if price is None or price > 0:
            self._edges.append((self._source, start, np.inf if price is None else price))
        self._edges += [(self._ends[value][1], start, np.inf) for value in dict.fromkeys(inputs)]

    def solve(self, needed: Sequence[Any]) -> tuple[list[Any], set[Any]]:
        """Return the values to save, and those to recompute.

        Among several minimum cuts take the one nearest to the needed values, so that the least is recomputed.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow
        edges = [*self._edges, *((self._ends[value][1], self._sink, np.inf) for value in needed)]
        starts, ends, sizes = (np.array(column) for column in zip(*edges, strict=True))
        bounded = np.isfinite(sizes)
        unit = max(1.0, sizes[bounded].sum() / 2**29)  # capacities are 32-bit integers
        sizes[bounded] = np.maximum(1, np.round(sizes[bounded] / unit))
        capacities = np.where(bounded, sizes, 2**30).astype(np.int32)
        places = starts.astype(np.int32), ends.astype(np.int32)  # of 32 bits for SciPy before 1.15, too
        graph = csr_array((capacities, places), shape=(self._count, self._count), dtype=np.int32)
        flow = maximum_flow(graph, self._source, self._sink).flow
        remaining = (graph - flow).tocsr()
        remaining.data = (remaining.data > 0).astype(np.int32)
        remaining.eliminate_zeros()
        reaching = set(breadth_first_order(remaining.T.tocsr(), self._sink, return_predecessors=False).tolist())
        there = [value for value, (_, end) in self._ends.items() if end in reaching]
        again = {value for value in there if self._ends[value][0] in reaching}
        return [value for value in there if value not in again], again


# --- by policy ---------------------------------------------------------------------------------------------------


batches: Analysis[Callable[..., bool] | None] = Analysis(
    "batches", "For matrix products and convolutions, a function of the parameters: whether there are batch axes.",
    missing="conservative", default=None)


@batches.register(dot_general_p)
def _batches_of_dot(*, dimension_numbers: DotDimensions, **_: Any) -> bool:
    return any(dimension_numbers[1])


@batches.register(conv_general_dilated_p)
def _batches_of_convolution(**_: Any) -> bool:
    return False


class Policy(NamedTuple):
    """A policy for what a checkpoint saves: called with the primitive that computes a value, types and parameters.

    The functions of `fxgrad.checkpoint_policies` make it. It returns a bool, or one of `storing.STORES`. Its name
    appears in texts and files of programs.
    """

    kind: str
    names: tuple[str, ...] = ()
    parts: tuple[Policy, ...] = ()

    def __call__(self, primitive: Primitive, *avals: Any, **params: Any) -> bool | str:
        """Return whether to save the outputs of an equation, or how to store them."""
        has_batches = batches.of(primitive)
        is_named = primitive is name_p and params["name"] in self.names
        match self.kind:
            case "everything":
                return True
            case "nothing":
                return False
            case "dots":
                return has_batches is not None
            case "dots without batch dimensions":
                return has_batches is not None and not has_batches(**params)
            case "these names":
                return is_named
            case "other names":
                return primitive is name_p and not is_named
            case "all but these names":
                return not is_named
            case "either":
                return next((answer for part in self.parts if (answer := part(primitive, *avals, **params))), False)
            case "stored":
                return self.parts[0](primitive, *avals, **params) and self.names[0]
        raise KeyError(self.kind)


declare_parameter_class(Policy)


def keep_by_policy(policy: Callable[..., Any], known: Program, needed: Sequence[Variable], free: set[Variable],
                   ) -> dict[Variable, Any]:
    """Return the values that `policy` saves among those that the residuals depend on, with its answers."""
    maker = definitions(known)
    kept: dict[Variable, Any] = {}
    waiting, seen = list(needed), set(needed)
    while waiting:
        var = waiting.pop()
        equation = maker[var]  # inputs are free
        answer = _answer(policy(equation.primitive, *(atom.aval for atom in equation.inputs), **equation.params))
        if answer:
            kept[var] = answer
            continue
        more = [atom for atom in equation.inputs if type(atom) is Variable and atom not in free and atom not in seen]
        waiting += more
        seen.update(more)
    return {var: kept[var] for var in maker if var in kept}


_ANSWERS_OF_JAX: dict[str, bool | str] = {"RecomputeType": False, "SaveableType": True, "Offloadable": HOST}


def _answer(answer: Any) -> bool | str:
    """Return a policy's answer in our terms, translated from jax's objects; raise `ArgumentError` for others."""
    if answer is None or isinstance(answer, bool | np.bool_ | int):
        return bool(answer)
    found = answer if answer in STORES else _ANSWERS_OF_JAX.get(type(answer).__name__)
    if found is None:
        raise ArgumentError(at_user_line(
            f"checkpoint: the policy answered {answer!r}, where a bool is needed, one of Saveable, Recompute and "
            f"Offloadable(...) of fxgrad.ad_checkpoint, or how to store the value: {', '.join(map(repr, STORES))}"))
    return found


# --- the policies of fxgrad.checkpoint_policies ------------------------------------------------------------------

AnyPolicy = Policy | Callable[..., Any]

everything_saveable = Policy("everything")
"""Save every needed value: nothing is recomputed."""
nothing_saveable = Policy("nothing")
"""Save the inputs alone, as without a policy."""
dots_saveable = checkpoint_dots = Policy("dots")
"""Save the results of matrix products and convolutions."""
dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = Policy("dots without batch dimensions")
"""Save the results of matrix products without batch axes: those with weights, in most networks."""


def save_only_these_names(*names_which_can_be_saved: str) -> Policy:
    """Return a policy that saves the values that `checkpoint_name` gave one of these names.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> def f(x):
    ...     return fnp.sin(fxgrad.checkpoint_name(fnp.exp(x), "e"))
    >>> kept = fxgrad.checkpoint(f, policy=save_only_these_names("e"))
    >>> [residual.name for residual in fxgrad.saved_residuals(kept, 1.0)]
    ['x', 'e']
    """
    return Policy("these names", names_which_can_be_saved)


def save_any_names_but_these(*names_not_to_save: str) -> Policy:
    """Return a policy that saves the values that `checkpoint_name` gave a name other than these."""
    return Policy("other names", names_not_to_save)


def save_anything_except_these_names(*names_not_to_save: str) -> Policy:
    """Return a policy that saves every value, unless `checkpoint_name` gave it one of these names."""
    return Policy("all but these names", names_not_to_save)


def save_from_both_policies(policy_1: AnyPolicy, policy_2: AnyPolicy) -> Any:
    """Return a policy that saves all that either of two policies saves."""
    if isinstance(policy_1, Policy) and isinstance(policy_2, Policy):
        return Policy("either", parts=(policy_1, policy_2))
    return lambda *args, **params: policy_1(*args, **params) or policy_2(*args, **params)


def save_and_offload_only_these_names(*, names_which_can_be_saved: Sequence[str],
                                      names_which_can_be_offloaded: Sequence[str], offload_src: str,
                                      offload_dst: str) -> Policy:
    """Return a policy that saves the values of both lists of names, the second in host memory (`offload`).

    `offload_src` and `offload_dst` are "device" and "pinned_host"; raises `ArgumentError` for others.
    """
    _check_places("save_and_offload_only_these_names", offload_src, offload_dst)
    return save_from_both_policies(Policy("these names", (*names_which_can_be_saved,)),
                                   offload(Policy("these names", (*names_which_can_be_offloaded,))))


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """Return `dots_with_no_batch_dims_saveable` with the values in host memory (`offload`).

    `offload_src` and `offload_dst` are "device" and "pinned_host"; raises `ArgumentError` for others.
    """
    _check_places("offload_dot_with_no_batch_dims", offload_src, offload_dst)
    return offload(dots_with_no_batch_dims_saveable)


def _check_places(name: str, source: str, destination: str) -> None:
    if (source, destination) != ("device", "pinned_host"):
        raise ArgumentError(at_user_line(
            f"{name}: offload_src={source!r}, offload_dst={destination!r}; values go from 'device' to 'pinned_host'"))


def offload(policy: AnyPolicy = everything_saveable) -> Policy:
    """Return a policy that saves the values of `policy` in another memory, and fetches them for the backward pass.

    XLA moves them to host memory, if the device has memory of its own (GPU, TPU); on CPU they stay in place. NumPy
    writes them to an unnamed, memory-mapped file in the directory for temporary files.

    >>> import numpy as np, fxgrad
    >>> block = fxgrad.checkpoint(lambda x: np.sin(np.sin(x)), policy=offload())
    >>> fxgrad.grad(lambda x: np.sum(block(x)))(np.zeros(2))
    array([1., 1.])
    """
    return _with_store("offload", policy, HOST)


def store_as(dtype: Any, policy: AnyPolicy = everything_saveable) -> Policy:
    """Return a policy that saves the values of `policy` in fewer bits.

    `dtype` is "bfloat16", "float16", "float32", or "int8" with a scale for each row. A row lies along the last axis;
    its largest absolute value becomes 127. Integers, complex numbers and values that are no wider are saved unchanged.
    Gradients change by the rounding, values do not: `fxgrad.policy_report` measures it. Raises `ArgumentError` for
    other dtypes.

    >>> import numpy as np, fxgrad
    >>> block = fxgrad.checkpoint(lambda x: np.exp(np.sin(x)), policy=store_as("bfloat16"))
    >>> [str(each.aval) for each in fxgrad.saved_residuals(block, np.ones(3, np.float32))]
    ['bf16[3]', 'bf16[3]']
    """
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name not in STORES or name == HOST:
        raise ArgumentError(at_user_line(
            f"store_as: dtype is {name!r}; 'bfloat16', 'float16', 'float32' and 'int8' are there"))
    return _with_store("store_as", policy, name)


def _with_store(what: str, policy: AnyPolicy, store: str) -> Policy:
    if not callable(policy):
        raise ArgumentError(at_user_line(
            f"{what}: policy is a {type(policy).__name__}, where one of fxgrad.checkpoint_policies or a function is "
            "needed"))
    return Policy("stored", (store,), (policy,))  # type: ignore[arg-type]
