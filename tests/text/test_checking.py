"""The levels of checking: whose texts are read back, and what a text says that gives back another program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import config
from fxgrad.engine.caches import BoundedDict, clear_caches
from fxgrad.text import checking
from tests.support.kinds import kinds

X = np.array([0.5, 1.5])


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of equations of the programs whose texts were read, from here on."""
    found: list[int] = []
    check_text = checking.check_text
    clear_caches()
    monkeypatch.setattr(checking, "_seen", BoundedDict(checking._seen.size))
    monkeypatch.setattr(checking, "check_text", lambda program: (found.append(len(program.equations)),
                                                                 check_text(program)))
    return found


def texts(level: int, read: list[int], monkeypatch: pytest.MonkeyPatch, function: Any, *args: Any) -> int:
    """How many texts are read as the program of a function is made."""
    monkeypatch.setattr(config, "check_level", level)
    read.clear()
    fxgrad.make_program(lambda *args: function(*args))(*args)
    return len(read)


def test_new_texts_are_read_at_level_three(read: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    level = lambda function, *args: texts(3, read, monkeypatch, function, *args)
    assert level(lambda x: np.sin(x) * 2.0, X)
    assert not level(lambda x: np.sin(x) * 3.0, np.float32([1, 2, 3]))  # another number, size and width
    assert level(lambda x: np.sin(x) * 3.0, np.ones((2, 3)))  # another rank
    assert level(lambda x: np.cos(x) * 3.0, X)  # another operation
    assert level(lambda x: 2.0 * np.sin(x), X)  # operands in the other order
    assert level(lambda x: np.sin(x) * np.sin(x), X)  # what is used twice
    assert level(lambda x: np.sum(np.ones((2, 3)) * x[:, None], axis=1), X)
    assert not level(lambda x: np.sum(np.ones((2, 3)) * x[:, None], axis=0), X)  # the same with another axis


def test_texts_of_new_kinds_of_operations_are_read_by_other_tests(
        read: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "text_features", kinds)
    level = lambda function, *args: texts(3, read, monkeypatch, function, *args)
    assert level(lambda x: np.sin(x) * 2.0, X)
    assert not level(lambda x: np.sin(x * 3.0), np.float32([1, 2, 3]))  # other neighbours, another number and size
    assert level(lambda x: np.sin(x) * 3.0, np.ones((2, 3)))  # another rank
    assert level(lambda x: np.sin(x) * 2.0, X + 1j)  # another kind of dtype
    assert level(lambda x: 2.0 * np.sin(x), X)  # operands in the other order
    assert level(lambda x: np.cos(x) * 3.0, X)  # another operation
    assert level(lambda x: np.sum(x), np.ones((2, 3)))
    assert level(lambda x: np.sum(x, axis=(0,), keepdims=True), np.ones((2, 3)))  # other parameters


def test_all_texts_are_read_at_level_four(read: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (4, 5):
        assert texts(4, read, monkeypatch, lambda x: np.sin(x) * 2.0, np.ones(count))
    for level in (1, 2):
        assert not texts(level, read, monkeypatch, lambda x: np.cos(x) / 2.0, X)


def test_a_text_of_another_program_is_a_bug(read: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    other = fxgrad.make_program(lambda x: np.cos(x))(X)
    monkeypatch.setattr(checking, "parse", lambda *_: other)
    with pytest.raises(AssertionError, match=r"^the text of a program gives back another one; this is a bug in fxgrad"):
        texts(3, read, monkeypatch, lambda x: np.sin(x), X)
