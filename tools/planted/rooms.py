"""The rooms of the package: how many faults each gets, and which tests look at which file."""

from __future__ import annotations

import ast
from fnmatch import fnmatch
from pathlib import Path

ROOMS = {"fxgrad/ops": 44, "fxgrad/control": 16, "fxgrad/transforms": 12, "fxgrad/core": 18, "fxgrad/executors": 12,
         "fxgrad/api": 14, "fxgrad/numpy": 14, "fxgrad/frontend": 6, "fxgrad/parallel": 4, "fxgrad/analyses": 4,
         "fxgrad/derivation": 6}
"""How many faults are planted in each room, where there is one of that name."""

LAWS = "tests/test_laws.py"
"""Run for the primitives of the file alone, or of those that import it."""

_ALGEBRA = "tests/test_rewrites.py tests/test_rewrite_laws.py tests/test_layout_rewrites.py tests/core/test_simplify.py"
_ANY = "tests/test_errors.py tests/test_caches.py tests/test_public.py"
_MATRICES = ("determinant", "eigen", "factorizations", "matrices", "matrix_functions", "pseudoinverse", "reduced_forms",
             "triangular")

TESTS: dict[str, str] = {
    **dict.fromkeys((f"fxgrad/ops/{name}.py" for name in _MATRICES),
                    "tests/numpy/test_cholesky.py tests/test_scipy_linalg.py tests/numpy/test_linalg.py"),
    **dict.fromkeys((f"fxgrad/ops/{name}.py" for name in ("gamma", "integrals", "special")),
                    "tests/test_scipy_special.py"),
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
                    "tests/test_windows.py tests/test_conv.py"),
    **dict.fromkeys((f"fxgrad/ops/{name}.py" for name in ("random", "samplers")), "tests/random"),
    **dict.fromkeys(("fxgrad/ops/fft.py", "fxgrad/numpy/fft.py"), "tests/numpy/test_fft.py"),
    **dict.fromkeys(("fxgrad/ops/products.py", "fxgrad/numpy/products.py", "fxgrad/numpy/einsum.py"),
                    "tests/numpy/test_products.py"),
    "fxgrad/ops/*.py": f"tests/test_kinks.py tests/test_errors.py {_ALGEBRA}",
    "fxgrad/control/custom*.py": "tests/api/test_custom.py tests/api/test_checkpoint.py",
    **dict.fromkeys(("fxgrad/frontend/callback.py", "fxgrad/executors/callbacks.py"), "tests/test_callbacks.py"),
    "fxgrad/frontend/inplace.py": "tests/numpy/test_inplace.py",
    "fxgrad/parallel/*.py": "tests/test_collectives.py tests/test_callbacks.py",
    "fxgrad/control/*.py": "tests/lax tests/core tests/api/test_custom.py tests/api/test_checkpoint.py "
                           "tests/api/test_inner_jit.py tests/test_control_flow.py tests/test_collectives.py "
                           "tests/test_callbacks.py tests/test_errors.py tests/test_caches.py",
    "fxgrad/transforms/*.py": f"tests/core tests/api tests/executors/test_direct.py tests/lax {_ANY}",
    "fxgrad/derivation/*.py": f"tests/core {_ALGEBRA} tests/api tests/executors/test_direct.py {_ANY}",
    "fxgrad/core/*.py": f"tests/core tests/show {_ANY} tests/test_control_flow.py tests/test_tracebacks.py tests/api "
                        "tests/executors/test_direct.py tests/executors/test_straightline.py",
    "fxgrad/executors/*.py": "tests/executors tests/test_callbacks.py tests/core tests/test_errors.py tests/api",
    "fxgrad/api/*.py": "tests/api tests/test_errors.py tests/test_caches.py tests/test_control_flow.py tests/core "
                       "tests/test_tracebacks.py tests/test_callbacks.py tests/test_collectives.py",
    "fxgrad/numpy/linalg/*.py": "tests/numpy/test_linalg.py",
    "fxgrad/frontend/*.py": "tests/numpy/test_protocol.py tests/numpy/test_numbers.py tests/core tests/test_errors.py "
                            "tests/numpy/test_elementwise.py tests/numpy/test_arrays.py",
    "fxgrad/numpy/*.py": "tests/numpy/test_more_functions.py tests/numpy/test_values.py tests/numpy/test_protocol.py "
                         "tests/numpy/test_inplace.py tests/numpy/test_elementwise.py tests/test_errors.py "
                         "tests/test_idioms.py tests/test_cures.py tests/core/test_replay.py",
    "fxgrad/analyses/*.py": "tests/core tests/random tests/test_cheap_gradients.py tests/test_collectives.py "
                            "tests/test_callbacks.py tests/test_errors.py tests/api tests/executors/test_emission.py",
}
"""Tests by the files they look at; those of every pattern that fits, in this order."""

_EXECUTORS = "tests/executors tests/test_random_programs.py"
OTHERS: dict[str, str] = {
    "fxgrad/ops/*.py": f"{_EXECUTORS} tests/test_lax_names.py tests/test_cheap_gradients.py tests/test_vocabulary.py "
                       "tests/numpy tests/test_scipy_special.py tests/test_docs.py",
    "fxgrad/control/*.py": f"{_EXECUTORS} tests/test_scipy_solvers.py tests/show tests/test_names_of_jax.py "
                           "tests/test_compose.py tests/api tests/test_docs.py",
    "fxgrad/parallel/*.py": f"{_EXECUTORS} tests/lax tests/core tests/test_errors.py tests/test_names_of_jax.py",
    "fxgrad/transforms/*.py": f"{_EXECUTORS} tests/test_compose.py tests/test_cheap_gradients.py {_ALGEBRA} "
                              "tests/test_collectives.py tests/test_callbacks.py tests/show tests/test_docs.py",
    "fxgrad/derivation/*.py": f"{_EXECUTORS} tests/lax tests/test_compose.py tests/test_callbacks.py tests/show "
                              "tests/test_docs.py",
    "fxgrad/core/*.py": f"{_EXECUTORS} tests/lax {_ALGEBRA} tests/test_names_of_jax.py tests/test_callbacks.py "
                        "tests/numpy tests/test_compose.py tests/test_docs.py",
    "fxgrad/executors/*.py": f"{_EXECUTORS} {_ANY} tests/lax tests/test_tracebacks.py tests/interop tests/test_docs.py",
    "fxgrad/api/*.py": f"{_EXECUTORS} tests/test_names_of_jax.py tests/test_compose.py tests/lax tests/show "
                       "tests/test_public.py tests/interop tests/test_docs.py",
    "fxgrad/frontend/*.py": "tests/numpy tests/test_idioms.py tests/test_cures.py tests/api tests/comparison "
                            "tests/test_docs.py",
    "fxgrad/numpy/*.py": "tests/numpy tests/comparison tests/test_lax_names.py tests/test_docs.py",
    "fxgrad/analyses/*.py": f"{_EXECUTORS} tests/show tests/test_docs.py",
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
