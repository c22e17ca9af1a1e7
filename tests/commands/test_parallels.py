"""What the measurements of patterns rest on: XLA's text read, examples in jax's words, and the tables of the page."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import jax
import pytest

from fxgrad.engine.analyses.traffic import Transfer

sys.path[:0] = [str(Path(__file__).parents[2] / "tools")]
from parallels import hlo  # noqa: E402  (the path is set first)
from parallels.patterns import EXAMPLES, PATTERNS, translated, with_jax  # noqa: E402

TEXT = """\
HloModule step, entry_computation_layout={()->f32[8]}

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %moved = f32[4]{0} collective-permute(%x), channel_id=1, source_target_pairs={{0,1},{1,2},{2,0}}
  ROOT %out = (s32[], f32[4]{0}) tuple(%i, %moved)
}

%condition (p: (s32[], f32[4])) -> pred[] {
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (q: f32[8]) -> f32[8] {
  %loop = (s32[], f32[4]{0}) while(%t), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %both = (f32[], f64[2,3]{1,0}) all-reduce(%a, %b), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  %begun = (f32[2]{0}, f32[16]{0}) all-gather-start(%c), replica_groups=[1,8]<=[8], dimensions={0}
  %whole = f32[16]{0} all-gather-done(%begun)
  %piece = f32[2]{0} reduce-scatter(%d), replica_groups=mesh['x'=2,'y'=4] {'y'}, dimensions={0}, to_apply=%add
  %swapped = (bf16[1,4]{1,0}, bf16[1,4]{1,0}) all-to-all(%e, %f), replica_groups={{0,1}}
  ROOT %end = f32[8]{0} copy(%q)
}
"""


def test_collectives_are_read_with_how_often_they_run() -> None:
    assert Counter(hlo.transfers(TEXT)) == Counter([
        Transfer("permute", (), 3, 5, 16), Transfer("all-reduce", (), 4, 1, 4 + 48),
        Transfer("all-gather", (), 8, 1, 8), Transfer("reduce-scatter", (), 4, 1, 32),
        Transfer("all-to-all", (), 2, 1, 16)])


def test_operations_are_counted_once_where_they_begin() -> None:
    assert hlo.operations(TEXT) == Counter({"collective-permute": 1, "all-reduce": 1, "all-gather": 1,
                                            "reduce-scatter": 1, "all-to-all": 1})


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_speak_jaxs_words(path: Path) -> None:
    """With jax in its place, nothing of fxgrad is left, and nothing else has changed."""
    ours = path.read_text(encoding="utf-8")
    theirs = translated(ours)
    assert "fxgrad" not in theirs
    names = [*ast.walk(ast.parse(ours))], [*ast.walk(ast.parse(theirs))]
    called = [sum(isinstance(node, ast.FunctionDef) for node in nodes) for nodes in names]
    assert called[0] == called[1]


def test_examples_and_their_twins_are_apart() -> None:
    pattern = PATTERNS["transformer"]
    assert pattern.ours.fxgrad.__name__ == "fxgrad"
    assert with_jax("transformer").jax is jax
    assert pattern.ours.ring_attention is not with_jax("transformer").ring_attention


@pytest.mark.slow
def test_the_simulation_on_the_page_is_what_is_simulated() -> None:
    from parallels import page
    from parallels.simulated import simulated

    rows = page.simulation(simulated(["data", "fully sharded", "experts"])).splitlines()
    assert len(rows) == 2 + 3 * 3
    assert {*rows} <= {*page.PAGE.read_text(encoding="utf-8").splitlines()}
