"""The signature of a call: types of arguments by name, static values, settings, closures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

import jax
import numpy as np

from fxgrad import dtypes, tree
from fxgrad.extend import Aval, function_name, leaf_aval, parameter_names

Entries = dict[tuple[str, str], Any]
"""The parts of a call, by kind and name: `("argument", "x")` has an `Aval`, all others a text."""

ARGUMENT, STATIC, SETTING, PARTIAL, CLOSURE, SHARDING = (
    "argument", "static", "setting", "partial", "closure", "sharding")


class FunctionIdentity(NamedTuple):
    """A function without its closure: its code, or its class, and its name."""

    code: Any
    name: str


def function_identity(function: Any) -> FunctionIdentity:
    """Return the parts that functions re-created on every call have in common."""
    inner = function
    while True:
        if isinstance(inner, functools.partial):
            inner = inner.func
        elif hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        else:
            break
    code = getattr(inner, "__code__", None) or getattr(getattr(inner, "__func__", None), "__code__", None)
    name = getattr(inner, "__name__", None) or function_name(inner)
    return FunctionIdentity(code if isinstance(code, CodeType) else type(inner) if code is None else code, name)


def own_entries(function: Any) -> Entries:
    """Return the entries of a function: arguments of partials, and closed-over values."""
    found: Entries = {}
    while True:
        if isinstance(function, functools.partial):
            names = parameter_names(function.func, len(function.args))
            found |= {(PARTIAL, name): _text(value) for name, value in (
                *zip(names, function.args, strict=True), *function.keywords.items())}
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    free: Sequence[str] = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(free, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[CLOSURE, name] = _text(cell.cell_contents)
        except ValueError:  # nothing was assigned yet
            continue
    return found


def settings() -> Entries:
    """Return the settings in effect at a call."""
    mesh = jax.sharding.get_abstract_mesh()
    found: Entries = {
        (SETTING, "fxgrad's default dtype"): dtypes.default_float().name,
        (SETTING, "jax_default_matmul_precision"): str(
            jax.config.jax_default_matmul_precision)}  # type: ignore[attr-defined]
    if not mesh.empty:
        found[SETTING, "the mesh in jax.set_mesh"] = _mesh_text(mesh)
    return found


def argument_entries(names: Sequence[str], avals: Sequence[Aval]) -> Entries:
    """Return the types of arguments."""
    return {(ARGUMENT, name): aval for name, aval in zip(names, avals, strict=False)}


def static_entries(names: Callable[[int | str], str], static: Sequence[tuple[Any, ...]]) -> Entries:
    """Return static arguments, by position or keyword."""
    return {(STATIC, names(place)): _text(value) for place, _, value in static}


def sharding_entries(names: Sequence[str], leaves: Sequence[Any]) -> Entries:
    """Return the shardings of jax arrays."""
    return {(SHARDING, name): _sharding_text(leaf.sharding) for name, leaf in zip(names, leaves, strict=False)
            if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)}


def call_entries(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Entries:
    """Return all arguments of a call: the types of arrays and numbers, and other objects as they are."""
    found: Entries = {}
    roots = parameter_names(function, len(args))
    for root, value in (*zip(roots, args, strict=True), *sorted(kwargs.items())):
        for name, leaf in zip(tree.leaf_names(value, root), tree.leaves(value), strict=True):
            aval = leaf_aval(leaf)
            found[(STATIC, name) if aval is None else (ARGUMENT, name)] = _text(leaf) if aval is None else aval
    return found


def _text(value: Any) -> str:
    aval = leaf_aval(value) if isinstance(value, np.ndarray | jax.Array) else None
    if aval is not None:
        return str(aval)
    text = getattr(value, "__qualname__", None) if callable(value) else repr(value)
    text = str(text or type(value).__name__)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST - 3]}..."


_LONGEST = 60


def _sharding_text(sharding: Any) -> str:
    spec = getattr(sharding, "spec", None)
    if spec is None:
        return "device " + ", ".join(str(device.id) for device in sorted(sharding.device_set, key=lambda each: each.id))
    return f"{spec} on {_mesh_text(sharding.mesh)}"


def _mesh_text(mesh: Any) -> str:
    return "mesh " + ", ".join(f"{name}={size}" for name, size in mesh.shape.items())
