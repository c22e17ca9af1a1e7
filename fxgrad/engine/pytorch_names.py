"""Hints for names and keywords of PyTorch, optax and NumPy, which do not exist here, and for jax's absent names."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from itertools import islice
from types import FrameType, MappingProxyType, TracebackType
from typing import Any, TypeVar

from fxgrad.engine.user_lines import at_user_line, user_line, user_location
from fxgrad.engine.user_source import source_line

_Class = TypeVar("_Class", bound=type[Any])

_IN_PLACE = "Arrays do not change: write x = {} and use the new array"
_HERE = "Arrays need no mark: fxgrad.grad(f, argnums=0) says what is differentiated"
_PLACED = "Write fxgrad.device_put(x, device), or fxgrad.jit(f), which computes where jax does"
_OPTIMIZER = ("Write optimizer = fxgrad.optim.{}(rate), state = optimizer.init(params), and in each step "
              "params, state = optimizer.update(gradients, state, params)")
_LAYER = "Layers are functions of arrays and weights: write {}"
_LOSS = "Losses are functions of predictions and targets: write fxgrad.nn.{}(predictions, targets)"
_FUNCTIONS = [
    "abs", "acos", "all", "any", "arccos", "arcsin", "arctan", "arctan2", "asin", "atan", "ceil", "cos", "cosh",
    "cross", "diff", "exp", "exp2", "expm1", "flip", "floor", "fmod", "isfinite", "isinf", "isnan", "kron", "log",
    "log10", "log1p", "log2", "logaddexp", "maximum", "median", "minimum", "outer", "reciprocal", "roll", "sign",
    "sin", "sinh", "sqrt", "square", "tan", "tanh", "tile", "tril", "triu", "trunc", "vdot",
]
"""Functions of `fxgrad.numpy` that are methods in PyTorch."""

SENTENCES: dict[str, str] = {
    # methods of arrays: differentiation
    "detach": "Write fxgrad.stop_gradient(x)",
    "backward": "Write the loss as a function and call fxgrad.grad(loss)(params), which returns the gradients",
    "requires_grad": _HERE, "requires_grad_": _HERE, "is_leaf": _HERE,
    "grad_fn": "Write fxgrad.make_program(f)(x), which shows what is computed",
    "retain_grad": "Write fxgrad.intermediate_grads(f)(x), which has the gradients of intermediate values",
    "no_grad": "Nothing is recorded outside of fxgrad.grad: leave it out, or write fxgrad.stop_gradient(x)",
    "inference_mode": "Nothing is recorded outside of fxgrad.grad: leave it out, or write fxgrad.stop_gradient(x)",
    "autograd": "Write fxgrad.grad(f), fxgrad.vjp(f, x) or fxgrad.jacobian(f)",
    "zero_grad": "Gradients are returned and not stored: leave it out",
    # methods of arrays: placement and dtype
    "cuda": _PLACED, "cpu": _PLACED,
    "numpy": "Write np.asarray(x) outside of traced functions; inside of them x is computed with as it is",
    "from_numpy": "NumPy's arrays are taken as they are: leave it out, or write fxgrad.numpy.asarray(x)",
    "tensor": "Write fxgrad.numpy.array(x)",
    "Tensor": "The class of arrays is fxgrad.Array; write fxgrad.numpy.array(x)",
    "float": "Write x.astype('float32')", "double": "Write x.astype('float64')", "half": "Write x.astype('float16')",
    "bfloat16": "Write x.astype('bfloat16')", "long": "Write x.astype('int64')", "int": "Write x.astype('int32')",
    "bool": "Write x.astype(bool)", "type": "Write x.astype(dtype)", "type_as": "Write x.astype(y.dtype)",
    "to": "Write x.astype(dtype), or fxgrad.device_put(x, device)",
    # methods of arrays: shapes
    "unsqueeze": "Write fxgrad.numpy.expand_dims(x, axis)", "permute": "Write fxgrad.numpy.transpose(x, axes)",
    "clone": "Write x.copy()", "unflatten": "Write x.reshape(shape)",
    "split": "Write fxgrad.numpy.split(x, parts, axis)",
    "repeat_interleave": "Write fxgrad.numpy.repeat(x, repeats, axis)",
    "movedim": "Write fxgrad.numpy.moveaxis(x, source, destination)",
    "contiguous": "Arrays have no order in memory here: leave it out", "dim": "Write x.ndim", "numel": "Write x.size",
    "expand": "Write fxgrad.numpy.broadcast_to(x, shape)", "expand_as": "Write fxgrad.numpy.broadcast_to(x, y.shape)",
    "view_as": "Write x.reshape(y.shape)", "reshape_as": "Write x.reshape(y.shape)", "t": "Write x.T",
    "cat": "Write fxgrad.numpy.concatenate(arrays, axis)", "chunk": "Write fxgrad.numpy.array_split(x, chunks, axis)",
    "unbind": "Write fxgrad.numpy.unstack(x, axis=axis)", "narrow": "Write x[start:start + length]",
    "index_select": "Write fxgrad.numpy.take(x, indices, axis)",
    "gather": "Write fxgrad.numpy.take_along_axis(x, indices, axis)",
    "scatter_add": "Write x.at[indices].add(values)", "masked_fill": "Write fxgrad.numpy.where(mask, value, x)",
    # methods of arrays: functions
    "mm": "Write x @ y", "bmm": "Write x @ y", "mv": "Write x @ y", "clamp": "Write fxgrad.numpy.clip(x, low, high)",
    "norm": "Write fxgrad.numpy.linalg.norm(x, axis=axis)", "topk": "Write fxgrad.lax.top_k(x, k)",
    "erf": "Write fxgrad.scipy.special.erf(x)", "rsqrt": "Write fxgrad.lax.rsqrt(x)",
    "logsumexp": "Write fxgrad.nn.logsumexp(x, axis)", "sigmoid": "Write fxgrad.nn.sigmoid(x)",
    "softmax": "Write fxgrad.nn.softmax(x, axis)", "log_softmax": "Write fxgrad.nn.log_softmax(x, axis)",
    "relu": "Write fxgrad.nn.relu(x)",
    **{name: f"Write fxgrad.numpy.{name}(x)" for name in _FUNCTIONS},
    "add": "Write x + y", "sub": "Write x - y", "mul": "Write x * y", "div": "Write x / y", "pow": "Write x ** y",
    "neg": "Write -x", "matmul": "Write x @ y", "addmm": "Write x + a @ b",
    "where": "Write fxgrad.numpy.where(mask, x, y)",
    "eq": "Write x == y", "lt": "Write x < y", "gt": "Write x > y", "le": "Write x <= y", "ge": "Write x >= y",
    # methods of arrays: in-place changes
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
    "BatchNorm1d": _LAYER.format("fxgrad.nn.batch_norm(x, scale, bias)"),
    "GroupNorm": _LAYER.format("fxgrad.nn.group_norm(x, groups, scale, bias)"),
    "RMSNorm": _LAYER.format("fxgrad.nn.rms_norm(x, scale)"), "GELU": _LAYER.format("fxgrad.nn.gelu(x)"),
    "Sigmoid": _LAYER.format("fxgrad.nn.sigmoid(x)"), "Tanh": _LAYER.format("fxgrad.nn.tanh(x)"),
    "Softmax": _LAYER.format("fxgrad.nn.softmax(x, axis)"), "Flatten": _LAYER.format("x.reshape(x.shape[0], -1)"),
    "MaxPool2d": _LAYER.format("fxgrad.nn.max_pool(x, (2, 2))"), "max_pool2d": "Write fxgrad.nn.max_pool(x, (2, 2))",
    "AvgPool2d": _LAYER.format("fxgrad.nn.avg_pool(x, (2, 2))"), "avg_pool2d": "Write fxgrad.nn.avg_pool(x, (2, 2))",
    "AdaptiveAvgPool2d": _LAYER.format("fxgrad.nn.adaptive_avg_pool(x, (1, 1))"),
    "adaptive_avg_pool2d": "Write fxgrad.nn.adaptive_avg_pool(x, (1, 1))",
    "ConvTranspose2d": _LAYER.format("fxgrad.nn.conv_transpose(x, w)"),
    "conv_transpose2d": "Write fxgrad.nn.conv_transpose(x, w)", "linear": "Write x @ w + b",
    "Embedding": _LAYER.format("fxgrad.nn.embedding(table, indices)"),
    "LSTM": _LAYER.format("fxgrad.nn.lstm_cell(state, x, ...) in fxgrad.scan"),
    "GRU": _LAYER.format("fxgrad.nn.gru_cell(state, x, ...) in fxgrad.scan"),
    "MSELoss": _LOSS.format("mse_loss"), "L1Loss": _LOSS.format("l1_loss"), "HuberLoss": _LOSS.format("huber_loss"),
    "SmoothL1Loss": _LOSS.format("smooth_l1_loss"), "CrossEntropyLoss": _LOSS.format("cross_entropy"),
    "NLLLoss": _LOSS.format("nll_loss"), "BCELoss": _LOSS.format("binary_cross_entropy"),
    "BCEWithLogitsLoss": _LOSS.format("binary_cross_entropy_with_logits"), "KLDivLoss": _LOSS.format("kl_div"),
    "TripletMarginLoss": "Write fxgrad.nn.triplet_margin_loss(anchor, positive, negative)",
    "Dropout": _LAYER.format("fxgrad.nn.dropout(x, rate, key)"),
    "Parameter": "Parameters are arrays in a container: write params = {'w': w}, and fxgrad.grad(loss)(params)",
    "functional": "The functions are in fxgrad.nn itself, such as fxgrad.nn.relu(x)",
    "SGD": _OPTIMIZER.format("sgd"), "Adam": _OPTIMIZER.format("adam"), "AdamW": _OPTIMIZER.format("adamw"),
    "RMSprop": _OPTIMIZER.format("rmsprop"),
    "clip_grad_norm_": "Write gradients = fxgrad.optim.clip_by_global_norm(gradients, limit)",
    "clip_grad_value_": "Write gradients = fxgrad.optim.clip(gradients, limit)",
    "lr_scheduler": ("Rates may be functions of the number of updates: write "
                     "fxgrad.optim.adam(fxgrad.optim.cosine_decay(rate, steps))"),
    "LinearLR": "Write fxgrad.optim.adam(fxgrad.optim.linear_schedule(first, last, steps))",
    "ExponentialLR": "Write fxgrad.optim.adam(fxgrad.optim.exponential_decay(rate, steps, factor))",
    "CosineAnnealingLR": "Write fxgrad.optim.adam(fxgrad.optim.cosine_decay(rate, steps))",
    "compile": "Write fxgrad.jit(f)",
}


KEYWORDS: dict[str, str] = {
    "dim": "Write axis=", "dims": "Write axis=, and of tile reps=", "dim0": "Write the axes one after the other",
    "keepdim": "Write keepdims=", "unbiased": "Write ddof=1 for True, and ddof=0 for False",
    "requires_grad": _HERE, "inplace": "Arrays do not change: leave it out, and use the result",
    "training": "Leave the key of dropout out, or give batch_norm its mean= and variance=, where nothing is trained",
    "input": "Give the arrays by position",
    "target": "Give the arrays by position", "weight": "Write weights=, or give the arrays by position",
    "size_average": "Write reduction='mean', or 'sum'", "reduce": "Write reduction='none', or 'mean'",
    "kernel_size": "Give the window by position, as (2, 2)", "stride": "Write strides=",
    "num_groups": "Give the groups by position", "normalized_shape": "Write axis=, as (-2, -1)",
    "eps": "Write epsilon=",
    "p": "Give the number by position", "lr": "Give the rate by position, or write rate=",
    "betas": "Write beta1=, beta2=", "max_norm": "Give the limit by position",
    "clip_value": "Give the limit by position",
    "alpha": "Write decay=", "params": "Optimisers get the parameters by optimizer.init(params)",
    "descending": "Reverse what is sorted: fxgrad.numpy.flip(x, axis)",
}
"""PyTorch's keywords of functions that have other keywords here."""

_OTHER_KEYWORDS: dict[tuple[str, str], tuple[str, str]] = {
    ("fxgrad.training.optim", "learning_rate"): ("optax", "Give the rate by position, or write rate="),
    ("fxgrad.training.optim", "b1"): ("optax", "Write beta1="),
    ("fxgrad.training.optim", "b2"): ("optax", "Write beta2="),
    ("fxgrad.random", "size"): ("NumPy", "Write shape="),
    **dict.fromkeys([("fxgrad.random", "loc"), ("fxgrad.random", "scale")], (
        "NumPy", "Write loc + scale * x of draws x, or fxgrad.distributions.Normal(loc, scale).sample(key, shape)")),
    **dict.fromkeys([("fxgrad.random", "low"), ("fxgrad.random", "high")], ("NumPy", "Write minval=, maxval=")),
    ("fxgrad.training.ode", "args"): ("SciPy", "Write odeint(func, y0, t, *args)"),
}
"""Keywords of other libraries, by the module whose functions have other ones; the library, and what to write."""

_CALLED = {
    "size": "PyTorch's sizes are x.shape here, and x.shape[axis]; x.size is the number of all elements",
    "shape": "Write x.shape, and x.shape[axis], without brackets", "ndim": "Write x.ndim without brackets",
    "T": "Write x.T without brackets", "dtype": "Write x.dtype without brackets",
}
"""Names that are no functions here, and methods in PyTorch or written as such."""

_OWNERS = ("fxgrad", "fxgrad.numpy", "fxgrad.numpy.linalg", "fxgrad.nn", "fxgrad.training.optim", "fxgrad.random",
           "fxgrad.lax", "numpy")


def add_pytorch_hint(error: BaseException) -> BaseException:
    """Add a hint to the error that Python raised for a call written as in PyTorch or another library."""
    library, sentence = _hint_for(error) if type(error) is TypeError else ("", None)
    if sentence is not None:
        line = user_location(error) or user_line()
        error.args = (f"{_message_of(error)}, as {library} has it. {sentence}" + (f"\n  at {line}" if line else ""),)
    return error


def _message_of(error: BaseException) -> str:
    """Return the message without the name suggested in it by Python 3.13 and later."""
    return str(error).partition(". Did you mean ")[0]


def _hint_for(error: TypeError) -> tuple[str, str | None]:
    """Return the library that has such calls, and what to write; None if that is unknown."""
    message, traceback = _message_of(error), error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return "", None
    keyword = re.fullmatch(r"(?:\w+\.)*(\w+)\(\) got an unexpected keyword argument '(\w+)'", message)
    if keyword is not None:
        name = keyword[1].removesuffix("_dispatcher").strip("_")
        if not _is_ours(name, traceback.tb_frame):
            return "", None
        others = [hint for (module, other), hint in _OTHER_KEYWORDS.items()
                  if other == keyword[2] and hasattr(sys.modules.get(module), name)]
        return others[0] if others else ("PyTorch", KEYWORDS.get(keyword[2]))
    if re.fullmatch(r"view\(\) takes from 1 to 2 positional arguments but \d+ were given", message):
        return "PyTorch", "Write x.reshape(shape)"
    called = re.fullmatch(r"'\S+' object is not callable", message)
    attribute = called and re.search(r"\.(\w+)\([^()]*\)$", _raising_expression(traceback))
    return "PyTorch", _CALLED.get(attribute[1]) if attribute else None


def _is_ours(name: str, frame: FrameType) -> bool:
    """Return whether a function called by this name belongs to the library or to NumPy, as far as one can check."""
    own = frame.f_locals.get(name, frame.f_globals.get(name))
    if own is not None:
        return str(getattr(own, "__module__", "")).split(".")[0] in ("fxgrad", "numpy")
    return any(hasattr(sys.modules.get(owner), name) for owner in _OWNERS)


def _raising_expression(traceback: TracebackType) -> str:
    """Return the expression that raised, as in the file; "" if it takes several lines or is unknown."""
    code = traceback.tb_frame.f_code
    first, last, begin, end = next(islice(code.co_positions(), traceback.tb_lasti // 2, None), (None,) * 4)
    if first is None or first != last or begin is None or end is None:
        return ""
    return source_line(code.co_filename, first).encode()[begin:end].decode(errors="replace")


class HintAttribute:
    """An attribute that raises a hint; a `__getattr__` would make all other attributes slower."""

    def __init__(self, name: str, sentence: str | None = None) -> None:
        self.name, self.sentence = name, sentence or SENTENCES.get(name)

    def __get__(self, instance: Any, owner: type) -> Any:
        raise _missing_attribute_error(f"{owner.__name__!r} object", self.name, self.sentence)


def add_hint_attributes(owner: _Class, sentences: Mapping[str, str] = SENTENCES) -> _Class:
    """Give a class an attribute with a hint for each of PyTorch's names that it lacks; `dir` omits them."""
    for name, sentence in sentences.items():
        if not hasattr(owner, name):
            setattr(owner, name, HintAttribute(name, sentence))
    listed: Any = owner.__dir__

    def names(self: Any) -> list[str]:
        return [name for name in listed(self) if not isinstance(vars(owner).get(name), HintAttribute)]
    owner.__dir__ = names  # type: ignore[assignment]
    return owner


def module_getattr(module: str, absent: Mapping[str, str] = MappingProxyType({}), *, stands_at: str = "",
                   ) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module: it raises for every name; `absent` has reasons for jax's names.

    `stands_at` is the name that it is imported by, if that is not its public one.
    """
    def getattribute(name: str) -> Any:
        if name in absent:
            message = f"module {module!r} has no attribute {name!r}: {absent[name]}"
            raise AttributeError(at_user_line(message), name=name)
        error = _missing_attribute_error(f"module {module!r}", name, SENTENCES.get(name))
        if name not in SENTENCES:
            error.obj = sys.modules[stands_at or module]  # among whose names Python looks for a similar one
        raise error
    return getattribute


def _missing_attribute_error(owner: str, name: str, sentence: str | None) -> AttributeError:
    message = f"{owner} has no attribute {name!r}"
    return AttributeError(message if sentence is None else
                          at_user_line(f"{message}, which is PyTorch's. {sentence}"), name=name)
