"""A small transformer that learns to copy, looked into by name: attention, ablation, patching, gradients.

Run it with `python examples/copying.py [FOLDER]`. Sequences are random tokens that are repeated once; from the second
time on, each token follows from the first time. The second layer learns to look behind the earlier occurrence. Nothing
in the code of the model is made for being looked into. With a folder it writes the pictures of
docs/gallery/inside-a-transformer.md there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import optim

TOKENS, HALF, WIDTH, HEADS, LAYERS = 12, 8, 32, 2, 2
LENGTH = 2 * HALF
EARLIER = np.tril(np.ones((LENGTH, LENGTH), bool))


def initial(seed: int = 0) -> dict[str, Any]:
    """Float32 weights."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) / np.sqrt(shape[-2])).astype(np.float32)

    layers = [{name: normal(HEADS, WIDTH, WIDTH // HEADS) for name in ("query", "key", "value")} | {
        "mix": normal(WIDTH, WIDTH)} for _ in range(LAYERS)]
    return {"embedding": normal(TOKENS, WIDTH), "places": normal(LENGTH, WIDTH), "layers": layers,
            "head": normal(WIDTH, TOKENS)}


def sequences(count: int, seed: int) -> np.ndarray:
    """Rows of random tokens, each repeated once."""
    first = np.random.default_rng(seed).integers(0, TOKENS, (count, HALF), dtype=np.int32)
    return np.concatenate([first, first], axis=1)


def attention(layer: dict[str, Any], x: Any) -> Any:
    """What each token takes from those before it, of shape (tokens, WIDTH)."""
    queries, keys, values = (fnp.einsum("tw,hwd->htd", x, layer[name]) for name in ("query", "key", "value"))
    scores = fnp.einsum("htd,hsd->hts", queries, keys) / np.sqrt(WIDTH // HEADS)
    weights = fxgrad.nn.softmax(fnp.where(EARLIER, scores, -1e9))
    heads = fnp.einsum("hts,hsd->thd", weights, values)
    return heads.reshape(LENGTH, WIDTH) @ layer["mix"]


def model(params: dict[str, Any], tokens: Any) -> Any:
    """Logits of the token that follows each one, of shape (tokens, TOKENS)."""
    x = params["embedding"][tokens] + params["places"]
    for number, layer in enumerate(params["layers"]):
        with fxgrad.named_scope(f"layer{number}"):
            taken = attention(layer, x)
            x = x + taken
    logits = x @ params["head"]
    return logits


def surprise(params: dict[str, Any], tokens: Any) -> Any:
    """The mean negative log-likelihood, in nats, of the tokens of the second time."""
    chances = fxgrad.nn.log_softmax(model(params, tokens))
    correct = fnp.take_along_axis(chances[:-1], tokens[1:, None], axis=1)
    return -fnp.mean(correct[HALF - 1:])


def batch_loss(params: dict[str, Any], rows: Any) -> Any:
    """The mean over a batch."""
    return fnp.mean(fxgrad.vmap(surprise, in_axes=(None, 0))(params, rows))


def train(steps: int, seed: int = 0) -> tuple[dict[str, Any], fxgrad.debug.Curves]:
    """Return trained weights, and the loss and the norm of its gradient at every twentieth step."""
    optimiser = optim.adam(3e-3)

    @fxgrad.jit
    def step(params: Any, state: Any, rows: Any) -> Any:
        loss, grads = fxgrad.value_and_grad(batch_loss)(params, rows)  # noqa: RUF059  (watched by its name)
        return optimiser.update(grads, state, params)

    curves = fxgrad.debug.Curves()
    watched = fxgrad.watch(step, "loss", "grads.norm", every=20, to=curves)
    params = initial(seed)
    state = optimiser.init(params)
    for number in range(steps):
        params, state = watched(params, state, sequences(64, number))
    return params, curves


def patched(params: dict[str, Any], clean: Any, corrupted: Any) -> np.ndarray:
    """How far the surprise falls for each layer and place if what it takes is that of the clean run, as a share."""
    known = fxgrad.capture(surprise, "layer*.taken")(params, clean)[1]
    low, high = surprise(params, clean), surprise(params, corrupted)

    def patch(path: str, place: Any) -> Any:
        here = (np.arange(LENGTH) == place)[:, None]
        function = fxgrad.replace(model, {path: lambda taken: fnp.where(here, known[path], taken)})
        chances = fxgrad.nn.log_softmax(function(params, corrupted))
        return -fnp.mean(fnp.take_along_axis(chances[:-1], clean[1:, None], axis=1)[HALF - 1:])

    found = [[float(patch(path, place)) for place in range(LENGTH)] for path in known]
    return (float(high) - np.array(found)) / (float(high) - float(low))


def main() -> None:
    """Train, and print what attends to what, and what is needed."""
    params, curves = train(600)
    tokens = sequences(1, 10_000)[0]
    console = Console(soft_wrap=True)
    console.print(f"surprise: {curves['loss'][0]:.2f} nats at first, {curves['loss'][-1]:.2f} after training")
    _, values = fxgrad.capture(surprise, "layer*.weights")(params, tokens)
    for path, weights in values.items():
        for head, each in enumerate(weights):
            places = np.arange(HALF, LENGTH - 1)
            console.print(f"{path}, head {head}: before {each[places, places - 1].mean():.2f}, "
                          f"behind the earlier occurrence {each[places, places - HALF + 1].mean():.2f}")
    for path in ("layer0.taken", "layer1.taken"):
        without = fxgrad.replace(surprise, {path: 0.0})(params, tokens)
        console.print(f"without {path}: {float(without):.2f} nats")
    if len(sys.argv) > 1:
        draw(params, curves, tokens, Path(sys.argv[1]))


def draw(params: dict[str, Any], curves: fxgrad.debug.Curves, tokens: Any, folder: Path) -> None:
    """Write the pictures."""
    from matplotlib.figure import Figure

    _, values = fxgrad.capture(surprise, "layer*.weights")(params, tokens)
    figure = Figure(figsize=(8, 8), layout="constrained")
    for place, (path, weights) in enumerate(values.items()):
        for head, each in enumerate(weights):
            axes = figure.add_subplot(LAYERS, HEADS, place * HEADS + head + 1)
            axes.imshow(each, cmap="Blues", vmin=0, vmax=1)
            axes.set_title(f"{path}, head {head}", fontsize=9)
            axes.set_xticks(range(LENGTH), tokens, fontsize=7)
            axes.set_yticks(range(LENGTH), tokens, fontsize=7)
    figure.savefig(folder / "inside-attention.png", dpi=80)

    slopes = fxgrad.grad(surprise, wrt=["layer0.taken", "layer1.taken"])(params, tokens)
    figure = Figure(figsize=(8, 2.4), layout="constrained")
    for place, (name, shown) in enumerate({"loss": curves["loss"], "gradient": curves["grads.norm"]}.items()):
        axes = figure.add_subplot(1, 3, place + 1)
        axes.plot(20 * np.arange(len(shown)), shown)
        axes.set_title(f"{name} by step", fontsize=9)
    axes = figure.add_subplot(1, 3, 3)
    axes.imshow(np.linalg.norm(np.stack(slopes), axis=-1), cmap="Reds", aspect="auto")
    axes.set_yticks([0, 1], ["layer0.taken", "layer1.taken"], fontsize=7)
    axes.set_title("gradient by place", fontsize=9)
    figure.savefig(folder / "inside-training.png", dpi=80)


if __name__ == "__main__":
    main()
