"""Lowering what is measured for a platform that this machine does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax

import fxgrad
from gpus.programs import Lowerable, lowerable


class Row(NamedTuple):
    """One program: the bytes of its StableHLO, or why it did not lower."""

    part: str
    name: str
    size: int
    failure: str = ""


def rows(platform: str, blocks: int = 24) -> Iterator[Row]:
    """Lowers program after program."""
    for part, name, make in lowerable(blocks):
        yield _row(part, name, make, platform)


def _row(part: str, name: str, make: Callable[[], Lowerable], platform: str) -> Row:
    try:
        program = make()
        # Arrays on a mesh of this machine's devices make a program for those devices; jax lowers it for others.
        with jax.enable_x64(True):
            traced = jax.jit(fxgrad.to_jax(program.function)).trace(*program.args) if part == "shardings" else \
                fxgrad.jit(program.function).trace(*program.args)
            text = traced.lower(lowering_platforms=(platform,)).as_text()
    except Exception as error:  # noqa: BLE001  (of every kind: the row says it)
        return Row(part, name, 0, f"{type(error).__name__}: {error}")
    return Row(part, name, len(text))
