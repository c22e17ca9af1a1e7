"""PyTorch's names that are not here, and for each the sentence that says what to write in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fxgrad.errors import at_user_line

_Class = TypeVar("_Class", bound=type[Any])

_IN_PLACE = "Arrays do not change: write x = {} and use the new array"
_HERE = "Arrays need no mark: fxgrad.grad(f, argnums=0) says what is differentiated"
_PLACED = "Write fxgrad.device_put(x, device), or fxgrad.jit(f), which computes where jax does"
_OPTIMIZER = ("Write optimizer = fxgrad.optim.{}(rate), state = optimizer.init(params), and in each step "
              "params, state = optimizer.update(gradients, state, params)")
_LAYER = "Layers are functions of arrays and weights: write {}"

SENTENCES: dict[str, str] = {
    # of arrays, what is differentiated
    "detach": "Write fxgrad.stop_gradient(x)",
    "backward": "Write the loss as a function and call fxgrad.grad(loss)(params), which returns the gradients",
    "requires_grad": _HERE, "requires_grad_": _HERE, "is_leaf": _HERE,
    "grad_fn": "Write fxgrad.make_program(f)(x), which shows what is computed",
    "retain_grad": "Write fxgrad.gradients_on_nodes(f)(x), which has the gradients of intermediate values",
    "no_grad": "Nothing is recorded outside of fxgrad.grad: leave it out, or write fxgrad.stop_gradient(x)",
    "inference_mode": "Nothing is recorded outside of fxgrad.grad: leave it out, or write fxgrad.stop_gradient(x)",
    "autograd": "Write fxgrad.grad(f), fxgrad.vjp(f, x) or fxgrad.jacobian(f)",
    "zero_grad": "Gradients are returned and not stored: leave it out",
    # of arrays, where they are, and as what
    "cuda": _PLACED, "cpu": _PLACED,
    "numpy": "Write np.asarray(x) outside of traced functions; inside of them x is computed with as it is",
    "from_numpy": "NumPy's arrays are taken as they are: leave it out, or write fxgrad.numpy.asarray(x)",
    "tensor": "Write fxgrad.numpy.array(x)",
    "Tensor": "The class of arrays is fxgrad.Array; write fxgrad.numpy.array(x)",
    "float": "Write x.astype('float32')", "double": "Write x.astype('float64')", "half": "Write x.astype('float16')",
    "bfloat16": "Write x.astype('bfloat16')", "long": "Write x.astype('int64')", "int": "Write x.astype('int32')",
    "bool": "Write x.astype(bool)", "type": "Write x.astype(dtype)", "type_as": "Write x.astype(y.dtype)",
    "to": "Write x.astype(dtype), or fxgrad.device_put(x, device)",
    # of arrays, shapes
    "unsqueeze": "Write fxgrad.numpy.expand_dims(x, axis)", "permute": "Write fxgrad.numpy.transpose(x, axes)",
    "contiguous": "Arrays have no order in memory here: leave it out", "dim": "Write x.ndim", "numel": "Write x.size",
    "expand": "Write fxgrad.numpy.broadcast_to(x, shape)", "expand_as": "Write fxgrad.numpy.broadcast_to(x, y.shape)",
    "view_as": "Write x.reshape(y.shape)", "reshape_as": "Write x.reshape(y.shape)", "t": "Write x.T",
    "cat": "Write fxgrad.numpy.concatenate(arrays, axis)", "chunk": "Write fxgrad.numpy.array_split(x, chunks, axis)",
    "unbind": "Write fxgrad.numpy.unstack(x, axis=axis)", "narrow": "Write x[start:start + length]",
    "index_select": "Write fxgrad.numpy.take(x, indices, axis)",
    "gather": "Write fxgrad.numpy.take_along_axis(x, indices, axis)",
    "scatter_add": "Write x.at[indices].add(values)", "masked_fill": "Write fxgrad.numpy.where(mask, value, x)",
    # of arrays, functions
    "mm": "Write x @ y", "bmm": "Write x @ y", "mv": "Write x @ y", "clamp": "Write fxgrad.numpy.clip(x, low, high)",
    "norm": "Write fxgrad.numpy.linalg.norm(x, axis=axis)", "topk": "Write fxgrad.lax.top_k(x, k)",
    "erf": "Write fxgrad.scipy.special.erf(x)", "rsqrt": "Write fxgrad.lax.rsqrt(x)",
    "logsumexp": "Write fxgrad.nn.logsumexp(x, axis)", "sigmoid": "Write fxgrad.nn.sigmoid(x)",
    "softmax": "Write fxgrad.nn.softmax(x, axis)", "log_softmax": "Write fxgrad.nn.log_softmax(x, axis)",
    "relu": "Write fxgrad.nn.relu(x)",
    # of arrays, changes in place
    "relu_": _IN_PLACE.format("fxgrad.nn.relu(x)"), "add_": _IN_PLACE.format("x + y"),
    "sub_": _IN_PLACE.format("x - y"), "mul_": _IN_PLACE.format("x * y"), "div_": _IN_PLACE.format("x / y"),
    "zero_": _IN_PLACE.format("fxgrad.numpy.zeros_like(x)"), "copy_": _IN_PLACE.format("y"),
    "fill_": _IN_PLACE.format("fxgrad.numpy.full_like(x, value)"),
    "clamp_": _IN_PLACE.format("fxgrad.numpy.clip(x, low, high)"),
    # randomness
    "manual_seed": "Write key = fxgrad.random.key(seed), and give each function of fxgrad.random a key",
    "rand": "Write fxgrad.random.uniform(key, shape)", "randn": "Write fxgrad.random.normal(key, shape)",
    "randint": "Write fxgrad.random.randint(key, shape, low, high)",
    "randperm": "Write fxgrad.random.permutation(key, n)",
    # layers and optimisers
    "Module": _LAYER.format("a function of params and x"), "Linear": _LAYER.format("x @ w + b"),
    "Sequential": _LAYER.format("one call after the other"), "Conv2d": _LAYER.format("fxgrad.nn.conv2d(x, w)"),
    "ReLU": _LAYER.format("fxgrad.nn.relu(x)"), "LayerNorm": _LAYER.format("fxgrad.nn.layer_norm(x, scale, bias)"),
    "BatchNorm2d": _LAYER.format("fxgrad.nn.batch_norm(x, scale, bias)"),
    "Dropout": _LAYER.format("fxgrad.nn.dropout(x, rate, key)"),
    "Parameter": "Parameters are arrays in a container: write params = {'w': w}, and fxgrad.grad(loss)(params)",
    "functional": "The functions are in fxgrad.nn itself, such as fxgrad.nn.relu(x)",
    "SGD": _OPTIMIZER.format("sgd"), "Adam": _OPTIMIZER.format("adam"), "AdamW": _OPTIMIZER.format("adamw"),
    "RMSprop": _OPTIMIZER.format("rmsprop"),
    "clip_grad_norm_": "Write gradients = fxgrad.optim.clip_by_global_norm(gradients, limit)",
    "CosineAnnealingLR": "Write fxgrad.optim.adam(fxgrad.optim.cosine_decay(rate, steps))",
    "compile": "Write fxgrad.jit(f)",
}


class _Absent:
    """An attribute that says what to write; a `__getattr__` would make all other attributes slower."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        raise _missing(f"{owner.__name__!r} object", self.name)


def answering(arrays: _Class) -> _Class:
    """The class of arrays, with an answer to each name that it does not have; `dir` does not list those."""
    for name in SENTENCES:
        if not hasattr(arrays, name):
            setattr(arrays, name, _Absent(name))
    listed: Any = arrays.__dir__

    def names(self: Any) -> list[str]:
        return [name for name in listed(self) if not isinstance(vars(arrays).get(name), _Absent)]
    arrays.__dir__ = names  # type: ignore[assignment]
    return arrays


def of_module(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module: asked for what it does not have."""
    def getattribute(name: str) -> Any:
        raise _missing(f"module {module!r}", name)
    return getattribute


def _missing(owner: str, name: str) -> AttributeError:
    message = f"{owner} has no attribute {name!r}"
    sentence = SENTENCES.get(name)
    return AttributeError(message if sentence is None else
                          at_user_line(f"{message}, which is PyTorch's. {sentence}"), name=name)
