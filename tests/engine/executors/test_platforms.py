"""Every primitive lowers for GPUs and TPUs on a machine that has none, but for those that jax cannot lower."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.tracing.tape import bind
from tests.samples import Sample, all_samples

PLATFORMS = ("cuda", "tpu")
SAMPLES = {f"{primitive.name}-{sample}": (primitive, sample)
           for primitive, samples in all_samples().items() for sample in samples}
ON_CPUS_ALONE = {"schur", "hessenberg", "sqrtm", "solve_sylvester"}
NOT_IN_JAX = {"cuda": ON_CPUS_ALONE, "tpu": ON_CPUS_ALONE | {"eig", "tridiagonal", "qr with pivoting"}}
"""What jax does not compute on the platform; docs/reference/limits.md says so."""
OF_A_PLACE = {"check", "debug_callback", "io_callback", "pure_callback", "shard_map", "sharding_constraint",
              "device_put"}
"""Their lowering names the devices of the process, so that it must have those of the platform."""


def lower(primitive: Primitive, sample: Sample, platform: str) -> Any:
    function = fxgrad.jit(lambda *args: bind(primitive, *args, **sample.params))
    return function.trace(*sample.args()).lower(lowering_platforms=(platform,))


def refused(samples: dict[str, tuple[Primitive, Sample]], platform: str) -> dict[str, str]:
    """Return the messages of those that do not lower."""
    found = {}
    for name, (primitive, sample) in samples.items():
        kind = primitive.name + " with pivoting" * bool(sample.params.get("pivoting"))
        if kind in OF_A_PLACE | NOT_IN_JAX[platform]:
            continue
        try:
            lower(primitive, sample, platform)
        except Exception as error:  # noqa: BLE001  (whatever jax raises is what the test reports)
            found[name] = f"{type(error).__name__}: {error}"
    return found


@pytest.mark.slow
def test_one_sample_of_every_primitive_lowers_for_gpus() -> None:
    first = {primitive.name: (primitive, sample) for primitive, sample in reversed(SAMPLES.values())}
    assert {*first} == {primitive.name for primitive in all_samples()}
    assert refused(first, "cuda") == {}


@pytest.mark.long
@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_sample_lowers(platform: str) -> None:
    assert refused(SAMPLES, platform) == {}


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.startswith("tridiagonal_solve-")])
@pytest.mark.parametrize("platform", PLATFORMS)
def test_tridiagonal_systems_of_every_size_lower(name: str, platform: str) -> None:
    assert refused({name: SAMPLES[name]}, platform) == {}


@pytest.mark.parametrize(("platform", "kind"), [
    (platform, kind) for platform, kinds in NOT_IN_JAX.items() for kind in sorted(kinds)])
def test_what_jax_lacks_is_still_lacking(platform: str, kind: str) -> None:
    name, _, pivoting = kind.partition(" with ")
    # Of an empty matrix, or of one number, there is nothing to compute.
    primitive, sample = max((each for each in SAMPLES.values() if each[0].name == name
                             and bool(each[1].params.get("pivoting")) == bool(pivoting)),
                            key=lambda each: np.size(each[1].args()[0]))
    with pytest.raises(NotImplementedError, match=f"not found for platform {platform}"):
        lower(primitive, sample, platform)
