"""Functions with local names of many kinds, to test that programs name their values after them.

They use `np`, `lax`, `nn` and `checkpoint` alone, which the oracle has other meanings for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import checkpoint, lax, nn

X = np.array([0.5, -1.25, 2.0])
MATRIX = np.array([[0.5, 1.0, -0.5], [1.5, -0.75, 0.25]])
LABELS = np.array([1, 0], np.int32)
SCALE = np.array([2.0, 0.5, 1.5])
Case = tuple[Callable[..., Any], tuple[Any, ...]]
CASES: list[Case] = []


def case(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function, with arguments; it is differentiated in the first."""
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append((function, args))
        return function
    return enter


@case(1.5, 2.0)
def quotient(a: Any, b: Any) -> Any:
    ratio = a / b
    return ratio


@case(2.0, 1.5)
def divisor(b: Any, a: Any) -> Any:
    ratio = a / b
    scaled = ratio * 3.0
    return scaled


@case(MATRIX, LABELS)
def integer_labels(logits: Any, labels: Any) -> Any:
    rows = np.sum(logits, axis=1)
    error = rows - labels
    squared = error * error
    return np.sum(squared)


@case(MATRIX, LABELS)
def labels_alone(logits: Any, labels: Any) -> Any:
    rows = np.sum(logits, axis=1)
    product = rows * labels
    return np.sum(product)


@case(X)
def integer_power(x: Any) -> Any:
    cubes = x ** 3
    total = np.sum(cubes)
    half = total / 2
    return half


@case(X, 3)
def integer_operand(x: Any, count: Any) -> Any:
    repeated = x * count
    shifted = repeated + count
    return np.mean(shifted * repeated)


@case(X)
def tanh_reused(x: Any) -> Any:
    h = np.tanh(x)
    y = h * h
    return np.sum(np.sin(y))


@case(X, MATRIX)
def layer(x: Any, weights: Any) -> Any:
    pre = weights @ x
    out = np.tanh(pre)
    loss = np.mean(out ** 2)
    return loss


@case(MATRIX, X)
def mean_squared_error(weights: Any, x: Any) -> Any:
    prediction = np.tanh(weights @ x + 0.5)
    error = prediction - 1.0
    return np.mean(error ** 2)


@case(X)
def softmax_entropy(x: Any) -> Any:
    probabilities = nn.softmax(x)
    logs = np.log(probabilities)
    entropy = -np.sum(probabilities * logs)
    return entropy


@case(X)
def log_softmax(x: Any) -> Any:
    scores = nn.log_softmax(x * 2.0)
    picked = scores[1]
    return picked * picked


@case(X)
def python_loop(x: Any) -> Any:
    state = x
    for step in range(3):
        state = np.sin(state) * (step + 1.0)
    return np.sum(state)


@case(X)
def loop_with_a_new_name(x: Any) -> Any:
    state = x
    for _ in range(2):
        wave = np.sin(state)
        state = wave * wave + state
    return np.sum(state)


@case(X)
def augmented(x: Any) -> Any:
    total = x * 2.0
    total += np.sin(x)
    total *= x
    return np.sum(total)


@case(X)
def walrus(x: Any) -> Any:
    if (doubled := x * 2.0) is not None:
        pass
    return np.sum(doubled * doubled)


@case(X)
def tuple_targets(x: Any) -> Any:
    low, high = np.sin(x), np.cos(x)
    both = low * high
    return np.sum(both * low)


@case(X)
def unpacked_array(x: Any) -> Any:
    first, second, third = x
    product = first * second
    total = product + third
    return total * total


@case(X)
def swapped(x: Any) -> Any:
    a = np.sin(x)
    b = np.cos(x)
    a, b = b, a
    c = a - b * 2.0
    return np.sum(c * a)


@case(X)
def comprehension(x: Any) -> Any:
    parts = [x[i] * (i + 1.0) for i in range(3)]
    total = sum(parts)
    return total * total


@case(X)
def helper_called_twice(x: Any) -> Any:
    def squash(value: Any) -> Any:
        inner = np.tanh(value)
        return inner * 0.5

    once = squash(x)
    twice = squash(once)
    return np.sum(twice)


@case(X)
def helper_with_default(x: Any) -> Any:
    def shifted(value: Any, by: Any = 1.0) -> Any:
        moved = value + by
        return np.exp(-moved)

    near = shifted(x)
    far = shifted(x, 2.0)
    return np.sum(near * far)


@case({"w": X, "b": 0.5}, X)
def containers(params: Any, x: Any) -> Any:
    hidden = np.tanh(x * params["w"] + params["b"])
    error = hidden - 1.0
    return np.sum(error * error)


@case((X, 2.0))
def nested_tuple(pair: Any) -> Any:
    vector, factor = pair
    stretched = vector * factor
    return np.sum(np.sin(stretched))


@case(X)
def closed_over(x: Any) -> Any:
    stretched = x * SCALE
    wave = np.sin(stretched)
    return np.sum(wave * SCALE)


@case(X)
def indexed(x: Any) -> Any:
    head = x[0]
    tail = x[1:]
    product = tail * head
    return np.sum(product)


@case(MATRIX)
def reshaped(x: Any) -> Any:
    flat = x.reshape(-1)
    turned = x.T
    corner = turned[0, 1] * flat[2]
    return corner * corner


@case(MATRIX)
def statistics(x: Any) -> Any:
    center = np.mean(x, axis=0)
    spread = np.var(x, axis=0)
    normal = (x - center) / np.sqrt(spread + 0.1)
    return np.sum(normal ** 3)


@case(X)
def chosen(x: Any) -> Any:
    positive = x > 0
    kept = np.where(positive, x, 0.1 * x)
    return np.sum(kept * kept)


@case(X)
def extremes(x: Any) -> Any:
    top = np.max(x)
    order = np.sort(x)
    gap = top - order[0]
    return gap * gap


@case(X)
def branch_of_python(x: Any) -> Any:
    total = np.sum(x)
    if total > 0:
        answer = total * 2.0
    else:
        answer = -total
    return np.sin(answer)


@case(1.25)
def conditional_expression(x: Any) -> Any:
    bent = x * 2.0 if x > 0 else x * 3.0
    return np.sin(bent)


@case(MATRIX, X)
def scanned(x: Any, start: Any) -> Any:
    def step(state: Any, entry: Any) -> Any:
        new = np.tanh(state * entry)
        return new, np.sum(new)

    last, sums = lax.scan(step, start, x)
    total = np.sum(last) + np.sum(sums)
    return total


@case(X, MATRIX)
def recurrent(weights: Any, inputs: Any) -> Any:
    def step(carry: Any, entry: Any) -> Any:
        hidden, count = carry
        pre = hidden * weights + entry
        hidden = np.tanh(pre)
        return (hidden, count + 1.0), hidden[0]

    (final, steps), outputs = lax.scan(step, (weights * 0.0, 0.0), inputs)
    return np.sum(final) * steps + np.sum(outputs)


@case(1.25)
def repeated_while(x: Any) -> Any:
    def going(state: Any) -> Any:
        count, _ = state
        return count < 3

    def advance(state: Any) -> Any:
        count, value = state
        moved = np.sin(value) * x
        return count + 1, moved

    _, value = lax.while_loop(going, advance, (0, x))
    result = value * 2.0
    return result


@case(1.25)
def counted(x: Any) -> Any:
    def body(i: Any, value: Any) -> Any:
        grown = value * x + i
        return np.sin(grown)

    final = lax.fori_loop(0, 3, body, x)
    return final * final


@case(1.25, True)
def branched(x: Any, flag: Any) -> Any:
    def yes(value: Any) -> Any:
        doubled = value * 2.0
        return np.sin(doubled)

    def no(value: Any) -> Any:
        halved = value * 0.5
        return np.cos(halved)

    picked = lax.cond(flag, yes, no, x)
    return picked * x


@case(1.25, 1)
def switched(x: Any, which: Any) -> Any:
    picked = lax.switch(which, [lambda v: v * 2.0, lambda v: np.sin(v)], x)
    squared = picked * picked
    return squared


@case(X)
def checkpointed(x: Any) -> Any:
    @checkpoint
    def block(h: Any) -> Any:
        inner = np.sin(h)
        return inner * inner

    first = block(x)
    second = block(first)
    return np.sum(second)


@case(X)
def long_expression(x: Any) -> Any:
    value = np.sin(x) * np.cos(x) + np.tanh(x) / (1.0 + x * x)
    return np.sum(value)


@case(X)
def same_value_twice(x: Any) -> Any:
    one = np.sin(x)
    other = np.sin(x)
    both = one * other
    return np.sum(both)


@case(X)
def unused(x: Any) -> Any:
    ignored = np.exp(x)  # noqa: F841  (what is not used has no name to be wrong)
    used = np.sin(x)
    return np.sum(used * 1.0)


@case(X)
def norms(x: Any) -> Any:
    length = np.sqrt(np.sum(x * x))
    unit = x / length
    return np.sum(unit * SCALE)


@case(np.array([[2.0, 0.5], [0.5, 1.0]]))
def factored(a: Any) -> Any:
    inverse = np.linalg.inv(a)
    logs = np.log(np.diagonal(inverse))
    return np.sum(logs)


@case(np.array([[2.0, 0.5], [0.25, 1.0]]), np.array([1.0, 2.0]))
def solved(a: Any, b: Any) -> Any:
    solution = np.linalg.solve(a, b)
    residual = a @ solution - 0.5 * b
    return np.sum(residual * solution)


@case(X, X)
def attention(query: Any, key: Any) -> Any:
    scores = query[:, None] * key[None, :]
    weights = nn.softmax(scores, axis=-1)
    mixed = weights @ key
    return np.sum(mixed * query)


@case(X)
def annotated(x: Any) -> Any:
    area: Any = x * x
    other = area + 1.0
    return np.sum(other * area)


@case(X)
def activated(x: Any) -> Any:
    doubled = x * 2.0
    smooth = nn.softplus(doubled)
    gated = nn.sigmoid(smooth)
    return np.sum(gated)
