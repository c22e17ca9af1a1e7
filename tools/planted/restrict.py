"""A plugin of pytest: of the laws, those of the primitives named in the environment."""

from __future__ import annotations

import os
from typing import Any


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leaves out the laws of other primitives."""
    wanted = set(os.environ["FAULTS_PRIMITIVES"].split())
    kept, left = [], []
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        names = {params["name"]} if "name" in params else {*params.get("names", ())}
        (left if item.path.name == "test_laws.py" and names and names.isdisjoint(wanted) else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
