"""The browser that pages are tested in, if it is installed, and pictures of pages."""

from __future__ import annotations

import os
import shutil
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync",
         "--disable-component-update"]


def screenshot(page: Any, name: str, **options: Any) -> bytes:
    """A picture of a page, kept in the folder that the variable FXGRAD_SCREENSHOTS names, if it is set."""
    folder = os.environ.get("FXGRAD_SCREENSHOTS")
    made: bytes = page.screenshot(**options, **({"path": f"{folder}/{name}.png"} if folder else {}))
    return made
