"""Samples of `fxgrad.engine.ops.fft`."""

from __future__ import annotations

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.fft import fft_p
from tests.samples import Draw, Sample


def kinds(shape: tuple[int, ...], count: int, wide: bool = True, slow: bool = False) -> list[Sample]:
    """All four types over the last `count` axes of arrays that are real, or half, or whole, of this shape."""
    lengths = shape[-count:]
    half = (*shape[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0)
    real, whole = ("float64", "complex128") if wide else ("float32", "complex64")
    return [Sample(Draw(half if kind == "irfft" else shape, real if kind == "rfft" else whole),
                   params={"fft_type": kind, "fft_lengths": lengths}, slow=slow, tolerance=5)
            for kind in ("fft", "ifft", "rfft", "irfft")]


SAMPLES: dict[Primitive, list[Sample]] = {
    fft_p: [
        *kinds((5,), 1), *kinds((0,), 1), *kinds((1,), 1), *kinds((2,), 1), *kinds((2, 6), 1), *kinds((3, 4), 2),
        *kinds((0, 4), 1), *kinds((0, 4), 2), *kinds((2, 3, 5), 2, slow=True), *kinds((2, 3, 2), 3, slow=True),
        *kinds((2, 3, 2, 4), 4), *kinds((2, 1, 2, 2, 2, 3, 2), 7, slow=True), *kinds((3, 4), 1, wide=False),
        *kinds((4, 3), 2, wide=False, slow=True),
    ],
}
