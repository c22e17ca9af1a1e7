"""The functions of neural networks: names, signatures and dtypes are those of jax.nn; and layers, which it has not."""

from fxgrad.nn import initializers
from fxgrad.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
    tanh,
)
from fxgrad.nn.attention import dot_product_attention
from fxgrad.nn.exponentials import log_softmax, logmeanexp, logsumexp, one_hot, softmax, standardize
from fxgrad.nn.layers import (
    batch_norm,
    conv2d,
    dropout,
    group_norm,
    gru_cell,
    layer_norm,
    lstm_cell,
    rms_norm,
)
from fxgrad.pytorch_names import of_module as _of_module

__all__ = [
    "batch_norm", "celu", "conv2d", "dot_product_attention", "dropout", "elu", "gelu", "glu", "group_norm", "gru_cell",
    "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity", "initializers", "layer_norm", "leaky_relu",
    "log1mexp", "log_sigmoid", "log_softmax", "logmeanexp", "logsumexp", "lstm_cell", "mish", "one_hot", "relu",
    "relu6", "rms_norm", "selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus", "sparse_plus",
    "sparse_sigmoid", "squareplus", "standardize", "swish", "tanh",
]


__getattr__ = _of_module(__name__)


def __dir__() -> list[str]:
    return [*__all__]  # so that completion shows no modules of the inside
