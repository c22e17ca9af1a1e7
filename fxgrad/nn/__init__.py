"""The functions of neural networks: jax.nn's, with its names, signatures and dtypes, and layers, which it lacks."""

from fxgrad.engine.core.arrays import returns_array as _making
from fxgrad.engine.frontend.value_calls import replay_public as _replay
from fxgrad.engine.pytorch_names import module_getattr as _of_module
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
from fxgrad.nn.convolution import conv2d, conv_transpose
from fxgrad.nn.cross_entropies import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    kl_div,
    nll_loss,
)
from fxgrad.nn.exponentials import log_softmax, logmeanexp, logsumexp, one_hot, softmax, standardize
from fxgrad.nn.layers import (
    batch_norm,
    dropout,
    group_norm,
    gru_cell,
    layer_norm,
    lstm_cell,
    rms_norm,
)
from fxgrad.nn.losses import (
    cosine_embedding_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    hinge_loss,
    huber_loss,
    l1_loss,
    mse_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    triplet_margin_loss,
)
from fxgrad.nn.pooling import adaptive_avg_pool, avg_pool, embedding, max_pool

__all__ = [
    "adaptive_avg_pool", "avg_pool", "batch_norm", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "celu", "conv2d", "conv_transpose", "cosine_embedding_loss", "cross_entropy", "dot_product_attention",
    "dropout", "elu", "embedding", "gaussian_nll_loss", "gelu", "glu", "group_norm", "gru_cell", "hard_sigmoid",
    "hard_silu", "hard_swish", "hard_tanh", "hinge_embedding_loss", "hinge_loss", "huber_loss", "identity",
    "initializers", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "log1mexp", "log_sigmoid", "log_softmax",
    "logmeanexp", "logsumexp", "lstm_cell", "max_pool", "mish", "mse_loss", "nll_loss", "one_hot",
    "poisson_nll_loss", "relu", "relu6", "rms_norm", "selu", "sigmoid", "silu", "smooth_l1_loss", "soft_sign",
    "softmax", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "standardize", "swish", "tanh",
    "triplet_margin_loss",
]


__getattr__ = _of_module(__name__)

identity = _making(identity, of_operands=True)  # it returns its argument


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion


_replay(globals(), "fxgrad.nn", ("activations", "attention", "convolution", "cross_entropies", "exponentials", "layers",
                                 "losses", "pooling"))
