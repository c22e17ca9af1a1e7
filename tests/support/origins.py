"""What becomes of jax's equations when functions are imported: native, opaque, or refused; counted over all cases."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from unittest import mock

import jax
from jax.extend.core import ClosedJaxpr

import fxgrad
from fxgrad.errors import UnsupportedError
from fxgrad.interop import importing
from tests.comparison.arguments import DTYPES
from tests.comparison.checks import Item
from tests.comparison.libraries import importable
from tests.comparison.runs import all_items


class Origins(NamedTuple):
    """The equations of one jaxpr, inner jaxprs included, by the names of their primitives."""

    met: Counter[str]
    opaque: Counter[str]
    refused: str = ""

    def __add__(self, other: Any) -> Any:
        return Origins(self.met + other.met, self.opaque + other.opaque, self.refused or other.refused)


NOTHING = Origins(Counter(), Counter())


def origins(jaxpr: ClosedJaxpr) -> Origins:
    """Return the equations that importing a jaxpr visits, and those without a rule.

    Small jaxprs, which are inlined, and large ones, which become inner programs, are walked alike, once for each call:
    whether two calls share one depends on the caches of jax. A jaxpr inside an opaque equation is not walked.
    """
    met: Counter[str] = Counter()
    opaque: Counter[str] = Counter()
    applied, others = importing.apply_jax_equation, importing.rules[importing.OTHERS]

    def counted(equation: Any, operands: Sequence[Any]) -> Any:
        met[equation.primitive.name] += 1
        return applied(equation, operands)

    def counted_others(equation: Any, *operands: Any) -> Any:
        opaque[equation.primitive.name] += 1
        return others(equation, *operands)

    def unshared(_: Any, jaxpr: Any, axes: Any) -> Any:
        return importing.trace_jaxpr(importing.as_closed_jaxpr(jaxpr), axes)

    with (mock.patch.object(importing, "apply_jax_equation", counted),
          mock.patch.dict(importing.rules, {importing.OTHERS: counted_others}),
          mock.patch.object(importing.ImportState, "program", unshared)):
        try:
            fxgrad.interop.import_jaxpr(jaxpr)
        except UnsupportedError as error:
            return Origins(met, opaque, str(error).splitlines()[0])
    return Origins(met, opaque)


def jaxpr_of(item: Item) -> ClosedJaxpr | None:
    """Return jax's program of a case; None if jax refuses it."""
    with warnings.catch_warnings(), jax.enable_x64(item.x64):
        warnings.simplefilter("ignore")
        try:
            return jax.make_jaxpr(item.theirs)(*item.args)
        except Exception:  # noqa: BLE001  (jax refuses in many ways)
            return None


def bridge(function: Callable[..., Any], x64: bool) -> Callable[..., Any]:
    """Return jax's function as one of ours, called in jax's mode of 64 bits or not."""
    imported = fxgrad.interop.from_jax(function)

    @functools.wraps(function)
    def called(*args: Any) -> Any:
        with jax.enable_x64(x64):
            return imported(*args)

    return called


def by_function(library: str, dtypes: Sequence[str] = DTYPES) -> dict[str, dict[str, Origins]]:
    """Return for each function of a library, and each dtype that jax takes, where its equations come from."""
    found: dict[str, dict[str, Origins]] = {}
    for name in importable(library):
        each = found[name] = {}
        for item in all_items(library, [name], dtypes):
            jaxpr = jaxpr_of(item)
            if jaxpr is not None:
                dtype = item.label.rsplit(" ", 1)[1]
                with jax.enable_x64(item.x64):
                    each[dtype] = each.get(dtype, NOTHING) + origins(jaxpr)
    return found
