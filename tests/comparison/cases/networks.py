"""Cases of `nn`."""

from __future__ import annotations

from tests.comparison.arguments import A, Case, whole

ACTIVATIONS = """celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid mish relu
relu6 selu sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid squareplus swish tanh""".split()

CASES: dict[str, list[Case]] = {
    **{name: [Case(A(2, 3))] for name in ACTIVATIONS},
    "gelu": [Case(A(2, 3)), Case(A(2, 3), approximate=False)],
    "glu": [Case(A(2, 4))], "log1mexp": [Case(A(2, 3, low=0.2, high=3))],
    "log_softmax": [Case(A(2, 3)), Case(A(2, 3), axis=0, where=A(2, 3, dtype="bool"))],
    "softmax": [Case(A(2, 3)), Case(A(2, 3), axis=0), Case(A(2, 3), where=A(2, 3, dtype="bool"))],
    "logmeanexp": [Case(A(2, 3)), Case(A(2, 3), axis=1)],
    "logsumexp": [Case(A(2, 3)), Case(A(2, 3), axis=1, b=A(3, low=0.5)), Case(A(2, 3), return_sign=True)],
    "standardize": [Case(A(2, 3)), Case(A(2, 3), axis=0)],
    "one_hot": [Case(whole(4, low=-1, high=3), 3), Case(whole(4, high=2), 3, axis=0)],
    "dot_product_attention": [
        # jax has the softmax in float32, whatever the dtype.
        Case(A(2, 4, 3, 5), A(2, 6, 3, 5), A(2, 6, 3, 5), dtypes=("float32",)),
        Case(A(4, 2, 4), A(4, 2, 4), A(4, 2, 4), is_causal=True, scale=0.3, dtypes=("float32",))],
}
