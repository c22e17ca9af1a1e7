"""Where numbers in programs come from: the user's own expression, which Python computed before anything was traced."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

import fxgrad
from fxgrad.text import equal, parse, program_text

X = np.array([0.3, 2.0])
DECAY = 1 - 0.005


class Settings:
    rate = 0.125


def remarks(function: Any, *args: Any) -> list[str]:
    """What the margins say of numbers."""
    text = program_text(fxgrad.make_program(function)(*args))
    assert equal(parse(text), fxgrad.make_program(function)(*args))
    found = [line.rpartition("  # ")[2] for line in text.splitlines()[1:] if "  # " in line]
    return [remark for line in found for remark in line.split("; ") if " = " in remark]


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def test_numbers_say_what_the_user_wrote_for_them() -> None:
    settings, count = Settings(), 4
    cases = {
        "0.995 = DECAY": lambda x: x * DECAY, "0.125 = settings.rate": lambda x: x - settings.rate * np.sin(x),
        "0.7978845608028654 = np.sqrt(2 / np.pi)": gelu, "0.9 = 1 - 0.1": lambda x: x * (1 - 0.1),
        "6.283185307179586 = 2 * np.pi": lambda x: 2 * np.pi / x, "2 = len(x)": lambda x: np.sum(x) / len(x),
        "0.25 = 1 / count": lambda x: np.exp(x) + 1 / count, "0.005 = 1 - DECAY": lambda x: (1 - DECAY) - x,
    }
    for expected, function in cases.items():
        found = remarks(function, X)
        assert [each.split(" = ")[1] for each in found] == [expected.split(" = ")[1]], (expected, found)
        assert np.isclose(float(found[0].split(" = ")[0]), float(expected.split(" = ")[0]), rtol=1e-15)


def test_either_operand_and_every_operator() -> None:
    for name, function in {"+": lambda x: x + DECAY, "-": lambda x: x - DECAY, "*": lambda x: x * DECAY,
                           "/": lambda x: x / DECAY}.items():
        assert remarks(function, X) == ["0.995 = DECAY"], name
    for name, function in {"+": lambda x: DECAY + x, "-": lambda x: DECAY - x, "*": lambda x: DECAY * x,
                           "/": lambda x: DECAY / x}.items():
        assert remarks(function, X) == ["0.995 = DECAY"], name
    strong = np.float64(DECAY)
    assert remarks(lambda x: strong * x + x * strong, X) == ["0.995 = strong"]


def test_the_name_may_be_assigned_in_the_function_and_change_in_place() -> None:
    def annealed(x: Any) -> Any:
        rate = 0.5
        for _ in range(2):
            rate = rate / 3
            x = x * rate
        x += rate
        return x
    assert [each.partition(" = ")[2] for each in remarks(annealed, X)] == ["rate"] * 3


def test_numbers_that_stand_there_as_they_are_say_nothing() -> None:
    for function in (lambda x: x * 0.995, lambda x: -2 * x, lambda x: x - -0.5, lambda x: np.maximum(x, DECAY),
                     lambda x: x + x * x, lambda x: x ** 3):
        assert remarks(function, X) == []


def test_what_is_differentiated_has_the_origins_of_its_numbers() -> None:
    assert "0.995 = DECAY" in remarks(fxgrad.grad(lambda x: np.sum(x * DECAY)), X)


def test_programs_that_were_pickled_keep_them() -> None:
    for function in (gelu, fxgrad.grad(lambda x: np.sum(x * DECAY)), lambda x: x * DECAY):
        program = fxgrad.make_program(function)(X)
        again = pickle.loads(pickle.dumps(program))
        assert program_text(again) == program_text(program)
        assert equal(again, program)
