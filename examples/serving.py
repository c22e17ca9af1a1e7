"""Serving a language model: prefill and decode carved from one transformer by name, requests that come and go.

Run it with `python examples/serving.py`. The transformer is written once, and returns logits. The programs that serve
it are taken out of its traces with `fxgrad.subprogram`, which makes the keys and values of each layer results too.
Requests of different lengths share the slots of one batch: one that ends frees its slot for the next, and nothing is
compiled anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import fxgrad
from fxgrad import lax

TOKENS, WIDTH, HEADS, LAYERS, LENGTH = 64, 64, 4, 2, 48
CACHE = {"keys": ["keys", "keys_1"], "values": ["values", "values_1"]}
"""What the cache is called in the traces of `transformer`: `keys` in the first layer, `keys_1` in the second."""


def initial(seed: int = 0) -> dict[str, Any]:
    """Float32 weights."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)

    layers = [{"qkv": normal(WIDTH, 3 * WIDTH), "out": normal(WIDTH, WIDTH), "up": normal(WIDTH, 4 * WIDTH),
               "down": normal(4 * WIDTH, WIDTH)} for _ in range(LAYERS)]
    return {"embedding": 3 * normal(TOKENS, WIDTH), "places": 3 * normal(LENGTH, WIDTH), "layers": layers,
            "head": normal(WIDTH, TOKENS)}


def normalised(x: Any) -> Any:
    """Each vector divided by its root mean square."""
    return x / np.sqrt(np.mean(x ** 2, axis=-1, keepdims=True) + 1e-6)


@fxgrad.named_call
def written(cache: Any, entries: Any, places: Any) -> Any:
    """The cache of each row with the entries of its tokens from the place of the first one on."""
    return fxgrad.vmap(lambda row, new, place: lax.dynamic_update_slice(row, new, (place, 0, 0)))(
        cache, entries, places[:, 0])


def transformer(weights: dict[str, Any], tokens: Any, places: Any, cache: dict[str, Any]) -> Any:
    """Logits of shape (rows, tokens, TOKENS): of what follows each token, which stands at its place, (rows, tokens).

    The cache has the keys and values of the tokens before, of shape (rows, LENGTH, HEADS, WIDTH / HEADS) in each layer.
    """
    rows, count = tokens.shape
    seen = np.arange(LENGTH) <= places[:, None, :, None]  # by each token: what stands before it, and itself
    x = weights["embedding"][tokens] + weights["places"][places]
    for number, layer in enumerate(weights["layers"]):
        parts = (normalised(x) @ layer["qkv"]).reshape(rows, count, 3, HEADS, WIDTH // HEADS)
        keys = written(cache["keys"][number], parts[:, :, 1], places)
        values = written(cache["values"][number], parts[:, :, 2], places)
        scores = np.einsum("bthd,bshd->bhts", parts[:, :, 0], keys) / np.sqrt(WIDTH // HEADS)
        chosen = fxgrad.nn.softmax(np.where(seen, scores, -1e30))
        mixed = np.einsum("bhts,bshd->bthd", chosen, values)
        x = x + mixed.reshape(rows, count, WIDTH) @ layer["out"]
        x = x + np.tanh(normalised(x) @ layer["up"]) @ layer["down"]
    return normalised(x) @ weights["head"]


def empty(rows: int) -> dict[str, Any]:
    """A cache with nothing in it."""
    return {name: [np.zeros((rows, LENGTH, HEADS, WIDTH // HEADS), np.float32) for _ in range(LAYERS)]
            for name in CACHE}


def traced(weights: Any, rows: int, count: int) -> fxgrad.Program:
    """The transformer on `count` tokens of each row."""
    numbers = np.zeros((rows, count), np.int32)
    return fxgrad.make_program(transformer)(weights, numbers, numbers, empty(rows))


def with_cache(program: fxgrad.Program) -> fxgrad.Program:
    """A trace of the transformer that returns the cache beside the logits: the state that is carried is explicit."""
    return fxgrad.subprogram(program, [...], {"logits": program.outputs[0], "cache": CACHE})


class Request(NamedTuple):
    """The tokens of a prompt, and how many are to follow."""

    prompt: Sequence[int]
    count: int


class Server:
    """Continuous batching over a number of slots, by two programs that are compiled once each."""

    def __init__(self, weights: Any, slots: int) -> None:
        prefill, decode = with_cache(traced(weights, 1, LENGTH)), with_cache(traced(weights, slots, 1))

        def enter(weights: Any, prompt: Any, count: Any, slot: Any, cache: Any) -> Any:
            """The token after a prompt, and the cache of all slots with that of the prompt in one of them."""
            made = prefill(weights, prompt[None], np.arange(LENGTH, dtype=np.int32)[None], empty(1))
            put = fxgrad.tree.map(lambda old, new: lax.dynamic_update_slice(old, new, (slot, 0, 0, 0)),
                                  cache, made["cache"])
            return np.argmax(made["logits"][0][count - 1]).astype(np.int32), put

        def step(weights: Any, tokens: Any, places: Any, cache: Any) -> Any:
            """The next token of each slot, and the cache."""
            made = decode(weights, tokens[:, None], places[:, None], cache)
            return np.argmax(made["logits"][:, 0], axis=-1).astype(np.int32), made["cache"]

        self.enter, self.step = fxgrad.jit(enter), fxgrad.jit(step)
        self.weights, self.cache = weights, empty(slots)
        self.tokens, self.places = np.zeros(slots, np.int32), np.zeros(slots, np.int32)
        self.steps = 0

    def serve(self, requests: Sequence[Request]) -> Iterator[tuple[int, list[int]]]:
        """The tokens of each request by its number, in the order in which they end."""
        waiting, running = [*enumerate(requests)][::-1], {}
        free = [*range(len(self.tokens))]
        while waiting or running:
            while waiting and free:
                slot = free.pop()
                number, (prompt, count) = waiting.pop()
                padded = np.zeros(LENGTH, np.int32)
                padded[:len(prompt)] = prompt
                token, self.cache = self.enter(self.weights, padded, np.int32(len(prompt)), np.int32(slot), self.cache)
                self.tokens[slot], self.places[slot] = token, len(prompt)
                running[slot] = number, count, [int(token)]
            for slot in [slot for slot, (_, count, made) in running.items() if len(made) == count]:
                number, _, made = running.pop(slot)
                free.append(slot)  # what it leaves in the cache is masked until it is written over
                yield number, made
            if running:
                tokens, self.cache = self.step(self.weights, self.tokens, self.places, self.cache)
                self.tokens = np.array(tokens)
                self.places = np.minimum(self.places + 1, LENGTH - 1)  # slots without a request compute, too
                self.steps += 1
                for slot, (_, _, made) in running.items():
                    made.append(int(self.tokens[slot]))


def greedy(weights: Any, request: Request) -> list[int]:
    """The same without a cache: the whole sequence anew for each token."""
    forward = fxgrad.jit(traced(weights, 1, LENGTH))
    places = np.arange(LENGTH, dtype=np.int32)[None]
    sequence = [*request.prompt]
    for _ in range(request.count):
        padded = np.zeros((1, LENGTH), np.int32)
        padded[0, :len(sequence)] = sequence
        sequence.append(int(np.argmax(np.asarray(forward(weights, padded, places, empty(1)))[0, len(sequence) - 1])))
    return sequence[len(request.prompt):]


def some_requests(count: int) -> list[Request]:
    """Prompts of 2 to 15 tokens, which 4 to 24 tokens are to follow."""
    rng = np.random.default_rng(1)
    return [Request(rng.integers(0, TOKENS, rng.integers(2, 16)).tolist(), int(rng.integers(4, 25)))
            for _ in range(count)]


def main() -> None:
    """Serves ragged requests on few slots, and prints what came of them."""
    weights, requests = initial(), some_requests(8)
    server = Server(weights, slots=3)
    table = Table("request", "prompt", "tokens", "as the whole sequence")
    for number, made in server.serve(requests):
        request = requests[number]
        table.add_row(str(number), str(len(request.prompt)), " ".join(map(str, made)),
                      "yes" if made == greedy(weights, request) else "NO")
    Console(width=120).print(table, f"{sum(request.count for request in requests)} tokens in {server.steps} steps")


if __name__ == "__main__":
    main()
