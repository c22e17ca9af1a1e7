"""Pictures of characters: lines can be followed by eye, and lead where the picture says."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest

from fxgrad.tools.pictures.ascii import ascii_text
from fxgrad.tools.pictures.picture import Box, Line, Picture


def random_picture(seed: int) -> Picture:
    """Operations of one to four operands; labels are unique, so that they can be found in the text."""
    rng = random.Random(seed)
    boxes: list[Box] = []
    lines: list[Line] = []
    for number in range(rng.randint(2, 22)):
        key = f"n{number}"
        count = rng.randint(0, min(4, number)) if number > 1 else 0
        for position in range(count):
            near = max(0, number - rng.choice((3, 8, 30)))
            lines.append(Line(f"n{rng.randrange(near, number)}", key, position=position))
        details = ("f32[" + "8," * rng.randint(0, 4) + "2]",) if rng.random() < 0.3 else ()
        kind = "operation" if count else "value"
        boxes.append(Box(key, key if rng.random() < 0.7 else key + "_" * rng.randint(1, 9), details, kind))
    return Picture("", tuple(boxes), tuple(lines))


class Reader:
    """Follows lines through the characters, as an eye does: straight through crossings, around corners."""

    def __init__(self, text: str, boxes: Sequence[Box]) -> None:
        self.rows = text.split("\n")
        self.owner: dict[tuple[int, int], str] = {}
        for box in boxes:
            word = rf"\[ *{box.label} *\]" if box.kind == "operation" else rf"(?<![\w\[]){box.label}(?!\w)"
            (number, found), = [(number, match) for number, row in enumerate(self.rows)
                                for match in re.finditer(word, row)]
            self.owner.update({(number, column): box.key for column in range(*found.span())})

    def at(self, row: int, column: int) -> str:
        return self.rows[row][column] if 0 <= row < len(self.rows) and 0 <= column < len(self.rows[row]) else " "

    def below(self, key: str, height: int) -> list[str]:
        """The boxes that the lines from the bottom of a box lead to."""
        cells = [cell for cell, owner in self.owner.items() if owner == key]
        row, first = min(cells)
        column = first + len(cells) // 2
        return self._down(row + height - 1, column)

    def _down(self, row: int, column: int) -> list[str]:
        """What is reached downwards from a cell, which is left behind."""
        if (row + 1, column) in self.owner:
            return [self.owner[row + 1, column]]
        char = self.at(row + 1, column)
        if char in "|":
            return self._down(row + 1, column)
        if char in "'+":
            found = self._across(row + 1, column, -1) + self._across(row + 1, column, 1)
            return found + (self._down(row + 1, column) if char == "+" else [])
        for turn, slant in ((-1, "/"), (1, "\\")):
            if self.at(row + 1, column + turn) == slant:
                return self._down(row + 1, column + turn)
        return []

    def _across(self, row: int, column: int, turn: int) -> list[str]:
        char = self.at(row, column + turn)
        if char in "-|":
            return self._across(row, column + turn, turn)
        if char == ".":
            return self._down(row, column + turn) + self._across(row, column + turn, turn)
        return []


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 400), marks=pytest.mark.slow)])
def test_every_line_leads_where_the_picture_says(seeds: range) -> None:
    for seed in seeds:
        picture = random_picture(seed)
        text = ascii_text(picture)
        reader = Reader(text, picture.boxes)
        for box in picture.boxes:
            expected = sorted(line.target for line in picture.lines if line.source == box.key)
            assert sorted(reader.below(box.key, 1 + len(box.details))) == expected, f"seed {seed}, {box.key}\n{text}"


def chain(steps: int, seed: int | None = None) -> Picture:
    """A value that goes through operations, two of three with an operand of their own; with a seed in random places."""
    rng = random.Random(seed)
    leaves, operations, lines = [Box("x", "x")], [], []
    last = "x"
    for number in range(steps):
        operation, operands = f"op{number}", [last]
        if number % 3 != 2:
            leaves.append(Box(f"w{number}", f"w{number}"))
            operands.insert(0 if seed and rng.random() < 0.5 else 1, f"w{number}")
        if seed and number > 4 and rng.random() < 0.1:  # some take an earlier value, which passes beside the chain
            operands.append(f"op{number - rng.randint(2, 4)}")
        details = ("f32[8,2]",) if seed and rng.random() < 0.2 else ()
        operations.append(Box(operation, operation, details, "operation"))
        lines += [Line(operand, operation, position=place) for place, operand in enumerate(operands)]
        last = operation
    return Picture("", (*leaves, *operations), tuple(lines))


def width(picture: Picture) -> int:
    return max(map(len, ascii_text(picture).splitlines()))


def test_a_chain_with_operands_goes_straight_down() -> None:
    assert [width(chain(steps)) for steps in (10, 30, 100)] == [12, 13, 13]
    assert ascii_text(chain(9)).splitlines()[-6:] == [
        " [op6]    w7",
        "  .'       |",
        "  | .------'",
        " [op7]",
        "   |",
        " [op8]"]


@pytest.mark.parametrize("seeds", [range(1, 30), pytest.param(range(30, 200), marks=pytest.mark.slow)])
def test_lines_beside_chains_lead_where_the_picture_says(seeds: range) -> None:
    for seed in seeds:
        picture = chain(8 + seed % 40, seed)
        text = ascii_text(picture)
        reader = Reader(text, picture.boxes)
        for box in picture.boxes:
            expected = sorted(line.target for line in picture.lines if line.source == box.key)
            assert sorted(reader.below(box.key, 1 + len(box.details))) == expected, f"seed {seed}, {box.key}\n{text}"
        assert width(picture) < 70, f"seed {seed}\n{text}"


class RightwardReader(Reader):
    """The same from left to right: an `o` gives a line to a track, which passes it; a `+` joins; lines cross."""

    def beyond(self, key: str) -> list[str]:
        """The boxes that the lines from the right of a box lead to."""
        row, last = max((cell for cell, owner in self.owner.items() if owner == key), key=lambda cell: cell[1])
        return self._right(row, last + 1) if self.at(row, last + 2) == "-" else []

    def _right(self, row: int, column: int) -> list[str]:
        """What is reached to the right from a cell, which is left behind."""
        column += 1
        char = self.at(row, column)
        if char == " ":
            return [self.owner[row, column + 1]] if (row, column + 1) in self.owner else []
        goes_on = char in "-|>o" or (char == "+" and self.at(row, column + 1) in "->")
        found = self._right(row, column) if goes_on else []
        return found + (self._along(row, column, -1) + self._along(row, column, 1) if char in "+o.'" else [])

    def _along(self, row: int, column: int, turn: int) -> list[str]:
        """What is reached along a track, up or down."""
        char, far = self.at(row + turn, column), self.at(row + turn, column + 1)
        if char in "|o":
            return self._along(row + turn, column, turn)
        if char not in "+.'":
            return []
        return (self._right(row + turn, column) if far in "->" else []) + (
            self._along(row + turn, column, turn) if char == "+" else [])


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 400), marks=pytest.mark.slow)])
def test_every_line_to_the_right_leads_where_the_picture_says(seeds: range) -> None:
    """Several lines from one box to another are one."""
    for seed in seeds:
        picture = random_picture(seed)._replace(orientation="right")
        text = ascii_text(picture)
        reader = RightwardReader(text, picture.boxes)
        for box in picture.boxes:
            expected = {line.target for line in picture.lines if line.source == box.key}
            assert {*reader.beyond(box.key)} == expected, f"seed {seed}, {box.key}\n{text}"
