"""The rooms of the package: how many faults each gets, and which tests look at which file."""

from __future__ import annotations

import ast
from fnmatch import fnmatch
from pathlib import Path

ROOMS = {
    "fxgrad/analyses": 7, "fxgrad/api": 26, "fxgrad/budgets": 4, "fxgrad/cli": 3, "fxgrad/control": 20, "fxgrad/core": 11,
    "fxgrad/derivation": 6, "fxgrad/editing": 6, "fxgrad/executors": 12, "fxgrad/explorer": 3, "fxgrad/frontend": 10,
    "fxgrad/granularity": 6, "fxgrad/graphs": 8, "fxgrad/interop": 13, "fxgrad/lax": 21, "fxgrad/nn": 7,
    "fxgrad/numpy": 44, "fxgrad/onnx": 15, "fxgrad/ops": 46, "fxgrad/parallel": 7, "fxgrad/pictures": 12,
    "fxgrad/precision": 7, "fxgrad/random": 7, "fxgrad/retracing": 4, "fxgrad/scipy": 18, "fxgrad/show": 48,
    "fxgrad/stable": 12, "fxgrad/testing": 4, "fxgrad/tracing": 10, "fxgrad/transforms": 12, "fxgrad/xray": 5}
"""How many faults are planted in each room, where there is one of that name: all rooms, in proportion to their lines,
and those twice that every gradient goes through."""

LAWS = "tests/ops/test_laws.py"
"""Run for the primitives of the file alone, or of those that import it."""

_ALGEBRA = "tests/derivation"
_ANY = "tests/house/test_errors.py tests/house/test_caches.py tests/house/test_public.py"
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
    "fxgrad/ops/*.py": f"tests/transforms/test_kinks.py tests/house/test_errors.py {_ALGEBRA}",
    "fxgrad/control/custom*.py": "tests/api/test_custom.py tests/api/test_checkpoint.py",
    **dict.fromkeys(("fxgrad/frontend/callback.py", "fxgrad/executors/callbacks.py"), "tests/frontend/test_callbacks.py"),
    "fxgrad/frontend/inplace.py": "tests/frontend/test_inplace.py",
    "fxgrad/parallel/*.py": "tests/parallel tests/frontend/test_callbacks.py",
    "fxgrad/control/*.py": "tests/lax tests/core tests/tracing tests/api/test_custom.py tests/api/test_checkpoint.py "
                           "tests/api/test_inner_jit.py tests/control/test_control_flow.py tests/parallel/test_collectives.py "
                           "tests/frontend/test_callbacks.py tests/house/test_errors.py tests/house/test_caches.py",
    "fxgrad/transforms/*.py": f"tests/core tests/tracing tests/api tests/executors/test_direct.py tests/lax {_ANY}",
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
    "fxgrad/numpy/*.py": "tests/numpy/test_more_functions.py tests/numpy/test_values.py tests/frontend/test_protocol.py "
                         "tests/frontend/test_inplace.py tests/numpy/test_elementwise.py tests/house/test_errors.py "
                         "tests/house/test_idioms.py tests/house/test_cures.py tests/tracing/test_replay.py",
    "fxgrad/budgets/*.py": "tests/api/test_budgets.py tests/api/test_plans.py",
    **{f"fxgrad/{room}/*.py": f"tests/{room}" for room in (
        "cli", "editing", "explorer", "granularity", "graphs", "interop", "lax", "nn", "onnx", "pictures",
        "precision", "random", "retracing", "scipy", "show", "stable", "testing", "xray")},
    "fxgrad/analyses/*.py": "tests/analyses tests/core tests/tracing tests/random tests/transforms/test_cheap_gradients.py tests/parallel/test_collectives.py "
                            "tests/frontend/test_callbacks.py tests/house/test_errors.py tests/api tests/executors/test_emission.py",
}
"""Tests by the files they look at; those of every pattern that fits, in this order."""

_EXECUTORS = "tests/executors tests/transforms/test_random_programs.py"
OTHERS: dict[str, str] = {
    "fxgrad/ops/*.py": f"{_EXECUTORS} tests/lax/test_lax_names.py tests/transforms/test_cheap_gradients.py tests/house/test_vocabulary.py "
                       "tests/numpy tests/scipy/test_scipy_special.py tests/house/test_docs.py",
    "fxgrad/control/*.py": f"{_EXECUTORS} tests/scipy/test_scipy_solvers.py tests/show tests/house/test_names_of_jax.py "
                           "tests/transforms/test_compose.py tests/api tests/house/test_docs.py",
    "fxgrad/parallel/*.py": f"{_EXECUTORS} tests/lax tests/core tests/tracing tests/house/test_errors.py tests/house/test_names_of_jax.py",
    "fxgrad/transforms/*.py": f"{_EXECUTORS} tests/transforms/test_compose.py tests/transforms/test_cheap_gradients.py {_ALGEBRA} "
                              "tests/parallel/test_collectives.py tests/frontend/test_callbacks.py tests/show tests/house/test_docs.py",
    "fxgrad/derivation/*.py": f"{_EXECUTORS} tests/lax tests/transforms/test_compose.py tests/frontend/test_callbacks.py tests/show "
                              "tests/house/test_docs.py",
    "fxgrad/tracing/*.py": f"{_EXECUTORS} tests/lax tests/control tests/numpy tests/transforms tests/house/test_docs.py",
    "fxgrad/core/*.py": f"{_EXECUTORS} tests/lax {_ALGEBRA} tests/house/test_names_of_jax.py tests/frontend/test_callbacks.py "
                        "tests/numpy tests/transforms/test_compose.py tests/house/test_docs.py",
    "fxgrad/executors/*.py": f"{_EXECUTORS} {_ANY} tests/lax tests/house/test_tracebacks.py tests/interop tests/house/test_docs.py",
    "fxgrad/api/*.py": f"{_EXECUTORS} tests/house/test_names_of_jax.py tests/transforms/test_compose.py tests/lax tests/show "
                       "tests/house/test_public.py tests/interop tests/house/test_docs.py",
    "fxgrad/frontend/*.py": "tests/numpy tests/house/test_idioms.py tests/house/test_cures.py tests/api tests/comparison "
                            "tests/house/test_docs.py",
    "fxgrad/numpy/*.py": "tests/numpy tests/comparison tests/lax/test_lax_names.py tests/house/test_docs.py",
    "fxgrad/analyses/*.py": f"{_EXECUTORS} tests/show tests/house/test_docs.py",
}
"""Further tests, which are seldom the first to fail: for what survives those above."""

MOST = 40
"""So many primitives are held to the laws, where more are made of what a file has."""


def looking_at(file: str, table: dict[str, str] = TESTS) -> list[str]:
    """The tests of a file of the package."""
    found = [test for pattern, tests in table.items() if fnmatch(file, pattern) for test in tests.split()]
    return list(dict.fromkeys(found))


def primitives_by_file(root: Path) -> dict[str, list[str]]:
    """The primitives that the laws look at for each file that makes some, or that makers of some import."""
    from rules import room

    import fxgrad  # noqa: F401  (the package has to be whole before its primitives are looked for)
    from fxgrad.core.primitive import registry

    own: dict[str, list[str]] = {}
    for primitive in registry.values():
        own.setdefault(f"fxgrad/{room(primitive)}.py", []).append(primitive.name)
    result = {file: sorted(names) for file, names in own.items()}
    needed = {file: imported((root / file).read_text("utf-8")) for file in own}
    for path in sorted((root / "fxgrad").rglob("*.py")):
        file = path.relative_to(root).as_posix()
        module = file.removesuffix(".py").replace("/", ".")
        if file in own and len(own[file]) > 1:
            continue
        users = {name for other, names in own.items() if module in needed[other] for name in names}
        if users and file.startswith(("fxgrad/ops/", "fxgrad/control/", "fxgrad/parallel/", "fxgrad/transforms/")):
            names = sorted({*users, *own.get(file, [])})
            result[file] = names[::-(-len(names) // MOST)]
    return result


def imported(source: str) -> set[str]:
    """The modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
