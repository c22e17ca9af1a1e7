"""The browser in which tests open pages and pictures, if it is installed, and the output of a notebook."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.browser import CHROMIUM, FLAGS


@pytest.fixture(scope="module")  # its event loop must not run while other tests start theirs
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class ZMQInteractiveShell:
    """What `get_ipython()` gives in a kernel: rich knows one by the name of the class."""


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a notebook shows in one output, one after the other, by its type: `{"image/png": ...}`."""
    formatters = pytest.importorskip("IPython.core.formatters")
    found: list[dict[str, Any]] = []

    def show(value: Any) -> None:
        found.append(formatters.DisplayFormatter().format(value)[0])

    class Handle:
        def update(self, value: Any) -> None:
            show(value)

    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setattr("IPython.display.display", lambda value, display_id: (show(value), Handle())[1])
    return found
