"""The rooms of the package: how many faults each gets, and which tests look at which file."""

from __future__ import annotations

from fnmatch import fnmatch

ROOMS = {
    "fxgrad/analyses": 7, "fxgrad/api": 26, "fxgrad/budgets": 4, "fxgrad/cli": 3, "fxgrad/control": 20, "fxgrad/core": 11,
    "fxgrad/derivation": 6, "fxgrad/editing": 6, "fxgrad/executors": 12, "fxgrad/explorer": 3, "fxgrad/frontend": 10,
    "fxgrad/granularity": 6, "fxgrad/graphs": 8, "fxgrad/interop": 13, "fxgrad/lax": 21, "fxgrad/nn": 7,
    "fxgrad/numpy": 44, "fxgrad/onnx": 15, "fxgrad/ops": 46, "fxgrad/parallel": 7, "fxgrad/pictures": 12,
    "fxgrad/precision": 7, "fxgrad/random": 7, "fxgrad/retracing": 4, "fxgrad/scipy": 18, "fxgrad/show": 48,
    "fxgrad/stable": 12, "fxgrad/testing": 4, "fxgrad/tracing": 10, "fxgrad/transforms": 12, "fxgrad/xray": 5}
"""How many faults are planted in each room, where there is one of that name: all rooms, in proportion to their lines,
and those twice that every gradient goes through."""

_ALGEBRA = "tests/derivation"
_ANY = "tests/house/test_errors.py tests/house/test_caches.py tests/house/test_public.py"
_SIDE_BY_SIDE = "tests/comparison tests/ops/test_laws.py"
"""Every public function beside NumPy's and jax's, and the laws of every primitive."""
_MATRICES = ("determinant", "eigen", "factorizations", "matrices", "matrix_functions", "pseudoinverse", "reduced_forms",
             "triangular")

TESTS: dict[str, str] = {
    **dict.fromkeys((f"fxgrad/ops/{name}.py" for name in _MATRICES),
                    "tests/numpy/test_cholesky.py tests/scipy/test_scipy_linalg.py tests/numpy/test_linalg.py"),
    **dict.fromkeys((f"fxgrad/ops/{name}.py" for name in ("gamma", "integrals", "special")),
                    "tests/scipy/test_scipy_special.py"),
    **dict.fromkeys((f"fxgrad/{name}.py" for name in (
        "ops/indexing", "ops/dynamic", "numpy/indexing", "numpy/positions",
        "numpy/updates", "frontend/views")),
        "tests/numpy/test_indexing.py"),
    **dict.fromkeys((f"fxgrad/{name}.py" for name in (
        "ops/shaping", "ops/joining", "numpy/shaping", "numpy/joining", "numpy/rearranging", "numpy/creation",
        "numpy/grids", "numpy/padding")), "tests/numpy/test_shapes.py"),
    **dict.fromkeys((f"fxgrad/{name}.py" for name in (
        "ops/reductions", "ops/cumulative", "numpy/reductions", "numpy/statistics", "numpy/ordering",
        "numpy/quantiles")),
        "tests/numpy/test_reductions.py"),
    **dict.fromkeys((f"fxgrad/ops/{name}.py" for name in ("convolution", "pool", "windows", "topk", "ragged")),
                    "tests/ops/test_windows.py tests/ops/test_conv.py"),
    **dict.fromkeys((f"fxgrad/ops/{name}.py" for name in ("random", "samplers")), "tests/random"),
    **dict.fromkeys(("fxgrad/ops/fft.py", "fxgrad/numpy/fft.py"), "tests/numpy/test_fft.py"),
    **dict.fromkeys(("fxgrad/ops/products.py", "fxgrad/numpy/products.py", "fxgrad/numpy/einsum.py"),
                    "tests/numpy/test_products.py"),
    "fxgrad/ops/*.py": f"tests/ops {_SIDE_BY_SIDE} tests/numpy tests/scipy tests/transforms/test_kinks.py tests/house/test_errors.py {_ALGEBRA}",
    "fxgrad/control/custom*.py": "tests/api/test_custom.py tests/api/test_checkpoint.py",
    **dict.fromkeys(("fxgrad/frontend/callback.py", "fxgrad/executors/callbacks.py"), "tests/frontend/test_callbacks.py"),
    **dict.fromkeys(("fxgrad/core/sizes.py", "fxgrad/derivation/sizes.py"), "tests/test_specs.py"),
    "fxgrad/executors/explicit.py": "tests/parallel/test_explicit_meshes.py tests/parallel/test_reshard.py",
    "fxgrad/control/lanes.py": "tests/parallel/test_equal_entries.py",
    "fxgrad/frontend/inplace.py": "tests/frontend/test_inplace.py",
    "fxgrad/parallel/*.py": "tests/ops/test_laws.py tests/parallel tests/frontend/test_callbacks.py",
    "fxgrad/control/*.py": "tests/ops/test_laws.py tests/lax tests/core tests/tracing tests/api/test_custom.py tests/api/test_checkpoint.py "
                           "tests/api/test_inner_jit.py tests/control/test_control_flow.py tests/parallel/test_collectives.py "
                           "tests/frontend/test_callbacks.py tests/house/test_errors.py tests/house/test_caches.py",
    "fxgrad/transforms/*.py": f"tests/ops/test_laws.py tests/core tests/tracing tests/api tests/executors/test_direct.py tests/lax {_ANY}",
    "fxgrad/derivation/*.py": f"tests/core tests/tracing {_ALGEBRA} tests/api tests/executors/test_direct.py {_ANY}",
    "fxgrad/tracing/*.py": f"tests/core tests/tracing tests/derivation {_ANY} tests/house/test_tracebacks.py tests/api "
                           "tests/frontend tests/executors/test_direct.py",
    "fxgrad/core/*.py": f"tests/core tests/tracing tests/show {_ANY} tests/control/test_control_flow.py tests/house/test_tracebacks.py tests/api "
                        "tests/executors/test_direct.py tests/executors/test_straightline.py",
    "fxgrad/executors/*.py": "tests/executors tests/frontend/test_callbacks.py tests/core tests/tracing tests/house/test_errors.py tests/api",
    "fxgrad/api/*.py": "tests/api tests/house/test_errors.py tests/house/test_caches.py tests/control/test_control_flow.py tests/core tests/tracing "
                       "tests/house/test_tracebacks.py tests/frontend/test_callbacks.py tests/parallel/test_collectives.py",
    "fxgrad/numpy/linalg/*.py": "tests/numpy/test_linalg.py",
    "fxgrad/frontend/*.py": "tests/frontend/test_protocol.py tests/numpy/test_numbers.py tests/core tests/tracing tests/house/test_errors.py "
                            "tests/numpy/test_elementwise.py tests/numpy/test_arrays.py",
    "fxgrad/numpy/*.py": f"tests/numpy {_SIDE_BY_SIDE} tests/frontend/test_protocol.py "
                         "tests/frontend/test_inplace.py tests/house/test_errors.py "
                         "tests/house/test_idioms.py tests/house/test_cures.py tests/tracing/test_replay.py",
    **{f"fxgrad/{room}/*.py": f"tests/{room} {_SIDE_BY_SIDE}" for room in (
        "interop", "lax", "nn", "random", "scipy")},
    "fxgrad/budgets/*.py": "tests/api/test_budgets.py tests/api/test_plans.py",
    **{f"fxgrad/{room}/*.py": f"tests/{room}" for room in (
        "cli", "editing", "explorer", "granularity", "graphs", "onnx", "pictures", "precision", "retracing", "show",
        "stable", "testing", "xray")},
    "fxgrad/analyses/*.py": "tests/analyses tests/core tests/tracing tests/random tests/transforms/test_cheap_gradients.py tests/parallel/test_collectives.py "
                            "tests/frontend/test_callbacks.py tests/house/test_errors.py tests/api tests/executors/test_emission.py",
}
"""Tests by the files they look at; those of every pattern that fits, in this order."""

def looking_at(file: str) -> list[str]:
    """The tests of a file of the package."""
    found = [test for pattern, tests in TESTS.items() if fnmatch(file, pattern) for test in tests.split()]
    return list(dict.fromkeys(found))
