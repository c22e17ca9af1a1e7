"""Tokens a second of examples/serving.py beside the same server written in jax alone: `python tools/serve.py [--page]`.

Both serve the same requests, in turns; the first turn of each compiles and is not counted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import serving  # noqa: E402

from tools.pages import DOCS, grid, markdown, put  # noqa: E402

HEADER = "slots", "fxgrad, tokens/s", "jax, tokens/s", "ratio"
ROUNDS, REQUESTS = 7, 24


def transformer(weights: Any, tokens: Any, places: Any, cache: Any) -> tuple[Any, Any]:
    """The logits, and the cache, of the example's model in jax."""
    rows, count = tokens.shape
    put_at = jax.vmap(lambda row, new, place: jax.lax.dynamic_update_slice(row, new, (place, 0, 0)))
    x = weights["embedding"][tokens] + weights["places"][places]
    after: dict[str, list[Any]] = {"keys": [], "values": []}
    for number, layer in enumerate(weights["layers"]):
        y = x / jnp.sqrt(jnp.mean(x ** 2, axis=-1, keepdims=True) + 1e-6)
        q, k, v = jnp.split((y @ layer["qkv"]).reshape(rows, count, 3 * serving.HEADS, -1), 3, axis=2)
        after["keys"].append(put_at(cache["keys"][number], k, places[:, 0]))
        after["values"].append(put_at(cache["values"][number], v, places[:, 0]))
        mixed = jax.nn.dot_product_attention(
            q, after["keys"][-1], after["values"][-1],
            mask=jnp.arange(serving.LENGTH) <= places[:, None, :, None])
        x = x + mixed.reshape(rows, count, serving.WIDTH) @ layer["out"]
        y = x / jnp.sqrt(jnp.mean(x ** 2, axis=-1, keepdims=True) + 1e-6)
        x = x + jnp.tanh(y @ layer["up"]) @ layer["down"]
    return x / jnp.sqrt(jnp.mean(x ** 2, axis=-1, keepdims=True) + 1e-6) @ weights["head"], after


class Server(serving.Server):
    """The example's server with programs of jax's."""

    def __init__(self, weights: Any, slots: int) -> None:
        super().__init__(weights, slots)

        @jax.jit
        def enter(weights: Any, prompt: Any, count: Any, slot: Any, cache: Any) -> Any:
            places = jnp.arange(serving.LENGTH)[None]
            logits, made = transformer(weights, prompt[None], places, serving.empty(1))
            return jnp.argmax(logits[0, count - 1]).astype(jnp.int32), jax.tree.map(
                lambda old, new: jax.lax.dynamic_update_slice(old, new, (slot, 0, 0, 0)), cache, made)

        @jax.jit
        def step(weights: Any, tokens: Any, places: Any, cache: Any) -> Any:
            logits, cache = transformer(weights, tokens[:, None], places[:, None], cache)
            return jnp.argmax(logits[:, 0], axis=-1).astype(jnp.int32), cache

        self.enter, self.step = enter, step


def rate(server: serving.Server, requests: list[serving.Request]) -> float:
    """Tokens a second."""
    begin = time.perf_counter()
    made = sum(len(tokens) for _, tokens in server.serve(requests))
    return made / (time.perf_counter() - begin)


def rows() -> list[list[str]]:
    """The median of the rounds, for each number of slots."""
    weights, requests, found = serving.initial(), serving.some_requests(REQUESTS), []
    moved = jax.tree.map(jnp.asarray, weights)
    for slots in (1, 4, 16):
        kinds: list[Callable[..., serving.Server]] = [serving.Server, Server]
        servers = [kind(moved, slots) for kind in kinds]
        results = [dict(server.serve(requests)) for server in servers]
        assert results[0] == results[1], "the servers disagree"
        rates = np.array([[rate(server, requests) for server in servers] for _ in range(ROUNDS)])
        ours, theirs = median(rates[:, 0]), median(rates[:, 1])
        found.append([str(slots), f"{ours:,.0f}", f"{theirs:,.0f}", f"{median(rates[:, 0] / rates[:, 1]):.2f}"])
    return found


def main() -> None:
    """Prints the table, and writes it into docs/appendix/serving.md if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the table into docs/appendix/serving.md")
    found = rows()
    Console().print(grid(HEADER, found))
    if parser.parse_args().page:
        put(DOCS / "appendix" / "serving.md", "serving", markdown(HEADER, found))


if __name__ == "__main__":
    main()
