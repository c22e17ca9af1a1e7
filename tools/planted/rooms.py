"""The rooms of the package: how many faults each gets, and which tests look at which file."""

from __future__ import annotations

from fnmatch import fnmatch

ROOMS = {
    "fxgrad/engine/analyses": 7, "fxgrad/engine/api": 26, "fxgrad/engine/rematerialization": 4, "fxgrad/tools/cli": 3, "fxgrad/engine/higher_order": 20, "fxgrad/engine/core": 11,
    "fxgrad/engine/derivation": 6, "fxgrad/tools/editing": 6, "fxgrad/engine/executors": 12, "fxgrad/tools/explorer": 3, "fxgrad/engine/frontend": 10, "fxgrad/engine/transparency": 6, "fxgrad/engine/store": 6, "fxgrad/engine/control_flow": 8,
    "fxgrad/tools/granularity": 6, "fxgrad/tools/graphs": 8, "fxgrad/interop": 13, "fxgrad/lax": 21, "fxgrad/nn": 7,
    "fxgrad/numpy": 44, "fxgrad/shipping/onnx": 15, "fxgrad/engine/ops": 46, "fxgrad/engine/parallel": 7, "fxgrad/tools/pictures": 12,
    "fxgrad/training/autocast": 7, "fxgrad/training/curvature": 5, "fxgrad/random": 7, "fxgrad/tools/retracing": 4, "fxgrad/scipy": 18, "fxgrad/text": 30, "fxgrad/shipping/c": 10, "fxgrad/shipping/python": 8,
    "fxgrad/tools/inside": 7, "fxgrad/tools/numerics": 12, "fxgrad/testing": 4, "fxgrad/engine/tracing": 10, "fxgrad/engine/transforms": 12, "fxgrad/tools/profiling": 5}
"""How many faults are planted in each room, where there is one of that name: all rooms, in proportion to their lines,
and those twice that every gradient goes through."""

_ALGEBRA = "tests/engine/derivation"
_ANY = "tests/house/test_errors.py tests/house/test_caches.py tests/house/test_public.py"
_SIDE_BY_SIDE = "tests/comparison tests/engine/ops/test_laws.py"
"""Every public function beside NumPy's and jax's, and the laws of every primitive."""
_MATRICES = ("determinant", "eigen", "factorizations", "matrices", "matrix_functions", "pseudoinverse", "reduced_forms",
             "triangular")

TESTS: dict[str, str] = {
    "fxgrad/engine/control_flow/*.py": "tests/engine/control_flow",
    **dict.fromkeys((f"fxgrad/engine/ops/{name}.py" for name in _MATRICES),
                    "tests/numpy/test_cholesky.py tests/scipy/test_scipy_linalg.py tests/numpy/test_linalg.py"),
    **dict.fromkeys((f"fxgrad/engine/ops/{name}.py" for name in ("gamma", "hypergeometric", "integrals", "special", "tails")),
                    "tests/scipy/test_scipy_special.py"),
    **dict.fromkeys((f"fxgrad/{name}.py" for name in (
        "engine/ops/indexing", "engine/ops/dynamic", "numpy/indexing", "numpy/positions",
        "numpy/updates", "engine/frontend/views")),
        "tests/numpy/test_indexing.py"),
    **dict.fromkeys((f"fxgrad/{name}.py" for name in (
        "engine/ops/shaping", "engine/ops/joining", "numpy/shaping", "numpy/joining", "numpy/rearranging", "numpy/creation",
        "numpy/grids", "numpy/padding")), "tests/numpy/test_shapes.py"),
    **dict.fromkeys((f"fxgrad/{name}.py" for name in (
        "engine/ops/reductions", "engine/ops/cumulative", "numpy/reductions", "numpy/statistics", "numpy/ordering",
        "numpy/quantiles")),
        "tests/numpy/test_reductions.py"),
    **dict.fromkeys((f"fxgrad/engine/ops/{name}.py" for name in ("convolution", "pool", "windows", "topk", "ragged")),
                    "tests/engine/ops/test_windows.py tests/engine/ops/test_conv.py"),
    **dict.fromkeys((f"fxgrad/engine/ops/{name}.py" for name in ("random", "samplers")), "tests/random"),
    **dict.fromkeys(("fxgrad/engine/ops/fft.py", "fxgrad/numpy/fft.py"), "tests/numpy/test_fft.py"),
    **dict.fromkeys(("fxgrad/engine/ops/products.py", "fxgrad/numpy/products.py", "fxgrad/numpy/einsum.py"),
                    "tests/numpy/test_products.py"),
    "fxgrad/engine/ops/*.py": f"tests/engine/ops {_SIDE_BY_SIDE} tests/numpy tests/scipy tests/engine/transforms/test_kinks.py tests/house/test_errors.py {_ALGEBRA}",
    "fxgrad/engine/higher_order/custom*.py": "tests/engine/api/test_custom.py tests/engine/api/test_checkpoint.py",
    **dict.fromkeys(("fxgrad/engine/frontend/callback.py", "fxgrad/engine/executors/callbacks.py"), "tests/engine/frontend/test_callbacks.py"),
    **dict.fromkeys(("fxgrad/engine/core/sizes.py", "fxgrad/engine/derivation/sizes.py"), "tests/engine/api/test_specs.py"),
    "fxgrad/engine/executors/explicit.py": "tests/engine/parallel/test_explicit_meshes.py tests/engine/parallel/test_reshard.py",
    "fxgrad/engine/higher_order/masking.py": "tests/engine/parallel/test_equal_entries.py",
    "fxgrad/engine/frontend/inplace.py": "tests/engine/frontend/test_inplace.py",
    "fxgrad/engine/parallel/*.py": "tests/engine/ops/test_laws.py tests/engine/parallel tests/engine/frontend/test_callbacks.py",
    "fxgrad/engine/higher_order/*.py": "tests/engine/ops/test_laws.py tests/lax tests/engine/core tests/engine/tracing tests/engine/api/test_custom.py tests/engine/api/test_checkpoint.py "
                           "tests/engine/api/test_inner_jit.py tests/engine/higher_order/test_control_flow.py tests/engine/parallel/test_collectives.py "
                           "tests/engine/frontend/test_callbacks.py tests/house/test_errors.py tests/house/test_caches.py",
    "fxgrad/engine/transforms/*.py": f"tests/engine/ops/test_laws.py tests/engine/core tests/engine/tracing tests/engine/api tests/engine/executors/test_direct.py tests/lax {_ANY}",
    "fxgrad/engine/derivation/*.py": f"tests/engine/core tests/engine/tracing {_ALGEBRA} tests/engine/api tests/engine/executors/test_direct.py {_ANY}",
    "fxgrad/engine/tracing/*.py": f"tests/engine/core tests/engine/tracing tests/engine/derivation {_ANY} tests/house/test_tracebacks.py tests/engine/api "
                           "tests/engine/frontend tests/engine/executors/test_direct.py",
    "fxgrad/engine/core/*.py": f"tests/engine/core tests/engine/tracing tests/text {_ANY} tests/engine/higher_order/test_control_flow.py tests/house/test_tracebacks.py tests/engine/api "
                        "tests/engine/executors/test_direct.py tests/engine/executors/test_straightline.py",
    "fxgrad/engine/executors/*.py": "tests/engine/executors tests/engine/frontend/test_callbacks.py tests/engine/core tests/engine/tracing tests/house/test_errors.py tests/engine/api",
    "fxgrad/engine/api/*.py": "tests/engine/api tests/engine/rematerialization tests/house/test_errors.py tests/house/test_caches.py tests/engine/higher_order/test_control_flow.py tests/engine/core tests/engine/tracing "
                       "tests/house/test_tracebacks.py tests/engine/frontend/test_callbacks.py tests/engine/parallel/test_collectives.py",
    "fxgrad/numpy/linalg/*.py": "tests/numpy/test_linalg.py",
    "fxgrad/engine/frontend/*.py": "tests/engine/frontend/test_protocol.py tests/numpy/test_numbers.py tests/engine/core tests/engine/tracing tests/house/test_errors.py "
                            "tests/numpy/test_elementwise.py tests/numpy/test_arrays.py",
    "fxgrad/numpy/*.py": f"tests/numpy {_SIDE_BY_SIDE} tests/engine/frontend/test_protocol.py "
                         "tests/engine/frontend/test_inplace.py tests/house/test_errors.py "
                         "tests/house/test_idioms.py tests/house/test_cures.py tests/engine/tracing/test_call_cache.py",
    **{f"fxgrad/{room}/*.py": f"tests/{room} {_SIDE_BY_SIDE}" for room in (
        "interop", "lax", "nn", "random", "scipy")},
    "fxgrad/engine/rematerialization/*.py": "tests/engine/rematerialization",
    "fxgrad/engine/transparency/*.py": "tests/engine/transparency",
    "fxgrad/engine/store/*.py": "tests/engine/store",
    **{f"fxgrad/{room}/*.py": f"tests/{room}" for room in (
        "shipping/onnx", "testing", "text", "tools/cli", "tools/editing", "tools/explorer", "tools/granularity",
        "tools/graphs", "tools/inside", "tools/numerics", "tools/pictures", "tools/profiling", "tools/retracing", "training/autocast",
        "training/curvature")},
    "fxgrad/shipping/c/*.py": "tests/shipping/c", "fxgrad/shipping/python/*.py": "tests/shipping/python",
    "fxgrad/engine/analyses/*.py": "tests/engine/analyses tests/engine/core tests/engine/tracing tests/random tests/engine/transforms/test_cheap_gradients.py tests/engine/parallel/test_collectives.py "
                            "tests/engine/frontend/test_callbacks.py tests/house/test_errors.py tests/engine/api tests/engine/executors/test_emission.py",
}
"""Tests by the files they look at; those of every pattern that fits, in this order."""

def looking_at(file: str) -> list[str]:
    """The tests of a file of the package."""
    found = [test for pattern, tests in TESTS.items() if fnmatch(file, pattern) for test in tests.split()]
    return list(dict.fromkeys(found))
