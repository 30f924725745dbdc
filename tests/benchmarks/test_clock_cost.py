"""The benchmark of the clock runs, and compares what it says it compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.clock import SilentClock, Training, measure

TINY = """\
name: tiny
data: {source: synthetic, shape: [1, 4, 4], classes: 3, samples: 100, batch_size: 10}
model: {components: [{block: vgg, channels: [2]}, {block: vgg, channels: [2]}]}
method: {kind: associated_learning, label_dim: 4}
pipeline: {stages: 2}
run: {epochs: 1}
"""


@pytest.mark.full
def test_both_trainings_of_a_pair_do_every_mini_batch(
    tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    made: list[Training] = []
    keep = Training.__init__
    monkeypatch.setattr(Training, "__init__", lambda self, *given: (made.append(self), keep(self, *given))[1])
    result = measure(tmp_path / "tiny.yaml", [], tmp_path, pairs=3, steps=12)
    assert (result["stages"], len(result["pairs"]), [training.step for training in made]) == (2, 3, [12] * 6)
    silent = [[isinstance(loop.clock, SilentClock) for loop in training.loops] for training in made]
    assert silent == [[False, False], [True, True]] * 3
    # The records of both stages, at the end of warm-up at the latest.
    assert sum('"warm_up":true' in line for line in (tmp_path / "records.jsonl").read_text().splitlines()) >= 6
    ratios = [pair["with_s"] / pair["without_s"] for pair in result["pairs"]]
    assert min(ratios) <= result["ratio"]["mean"] <= max(ratios)
