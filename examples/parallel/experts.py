"""Experts: each device has some of them and some of the tokens, and tokens go to their experts and come back.

Every token chooses one expert, and every device sends an expert as many tokens as it has room for from each
(Lepikhin et al. 2020, "GShard"); what finds no room passes by. Run it with `python examples/parallel/experts.py`.
"""

from __future__ import annotations

from typing import Any

from jax.sharding import PartitionSpec as P
from setting import floats, show

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn

AXES = {"expert": 8}
SPECS = ({"router": P(), "up": P("expert"), "down": P("expert")}, P("expert"), P("expert"))


def types(expert: int, width: int = 8, each: int = 1, count: int = 16) -> tuple[Any, ...]:
    """Types of the parameters, with `each` experts for a device, and of `count` tokens for each device."""
    experts = expert * each
    params = {"router": floats(width, experts), "up": floats(experts, width, 4 * width),
              "down": floats(experts, 4 * width, width)}
    return params, floats(expert, count, width), floats(expert, count, width)


def routed(router: Any, x: Any) -> tuple[Any, Any, Any]:
    """For each token its expert, its place among those that chose the same, and how much the answer counts."""
    chances = nn.softmax(x @ router)
    expert = fnp.argmax(chances, -1).astype(fnp.int32)
    chose = nn.one_hot(expert, chances.shape[-1], dtype=fnp.int32)
    return expert, fnp.sum((fnp.cumsum(chose, 0) - 1) * chose, -1), fnp.max(chances, -1)


def sent(x: Any, expert: Any, place: Any, experts: int) -> Any:
    """Tokens in their places, (experts, places, width), twice as many as an even spread would need."""
    return fnp.zeros((experts, 2 * len(x) // experts, x.shape[-1]), x.dtype).at[expert, place].add(x, mode="drop")


def returned(answers: Any, expert: Any, place: Any) -> Any:
    """The answers to each token, nothing where it found no room."""
    return answers.at[expert, place].get(mode="fill", fill_value=0.0)


def answered(up: Any, down: Any, tokens: Any) -> Any:
    """What experts make of the tokens in their places: (experts, places, width)."""
    return fnp.einsum("eph,ehw->epw", nn.gelu(fnp.einsum("epw,ewh->eph", tokens, up)), down)


def loss(params: Any, x: Any, y: Any) -> Any:
    """The mean square error, written for one device: one group of tokens after the other."""
    total = 0.0
    for group, target in zip(x, y, strict=True):
        expert, place, share = routed(params["router"], group)
        answers = answered(params["up"], params["down"], sent(group, expert, place, len(params["up"])))
        total = total + fnp.mean((group + share[:, None] * returned(answers, expert, place) - target) ** 2)
    return total / len(x)


def parallel(mesh: Any) -> Any:
    """The loss and its gradient by the parameters, on a mesh with the axis "expert"."""
    def group_loss(params: Any, x: Any, y: Any) -> Any:
        x, y = x[0], y[0]
        expert, place, share = routed(params["router"], x)
        going = sent(x, expert, place, params["router"].shape[-1])
        arrived = lax.all_to_all(going, "expert", 0, 1, tiled=True)
        answers = lax.all_to_all(answered(params["up"], params["down"], arrived), "expert", 1, 0, tiled=True)
        made = x + share[:, None] * returned(answers, expert, place)
        return lax.pmean(fnp.mean((made - y) ** 2), "expert")
    return fxgrad.value_and_grad(fxgrad.shard_map(group_loss, mesh=mesh, in_specs=SPECS, out_specs=P()))


def main() -> None:
    """Shows that one device and eight agree, and what they say to each other."""
    show(loss, parallel, types(**AXES), AXES, SPECS)


if __name__ == "__main__":
    main()
