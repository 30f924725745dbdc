"""Runs of equal components measure them once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alray.config.user_code import UserCode
from alray.planning.prediction.costs import Costs
from alray.runtime.options import Options
from alray.runtime.planner.cached_costs import cached_costs
from alray.runtime.planner.planning import Planner


@pytest.mark.full
def test_only_what_changes_the_costs_is_measured_again(make_planner: Callable[..., Planner], tmp_path: Path) -> None:
    measured: list[int] = []

    def costs(*overrides: str) -> Costs:
        planner = make_planner(*overrides)
        spec = planner.workload.spec

        def measure() -> Costs:
            measured.append(spec.data.batch_size)
            return planner.costs(probe=False)

        return cached_costs(tmp_path, spec, planner.workload.code, planner.surroundings(), measure)

    first = costs()
    for overrides in ([], ["seed=7"], ["optimizer.lr=0.5"], ["run.epochs=3"]):
        assert costs(*overrides) == first
    assert measured == [8]
    for each in (
        "data.batch_size=4",
        "optimizer.weight_decay=0.1",
        "model.components.0.channels=[5]",
    ):
        costs(each)
    costs("method=decoupled_greedy")
    costs("method=decoupled_greedy", "task.class_weights=balanced")
    assert measured == [8, 4, 8, 8, 8, 8]


def test_late_gradients_hold_more_beside_an_average(make_planner: Callable[..., Planner], tmp_path: Path) -> None:
    """So a study whose trials differ in the schedule does not share their costs."""

    def optimizer_bytes(schedule: str) -> int:
        pipeline = f"pipeline={{stages: 2, micro_batches: 4, micro_batch_norm: accept, schedule: {schedule}}}"
        planner = make_planner("method=backpropagation", "optimizer.ema_decay=0.9", pipeline)
        around = planner.surroundings()
        spec, code = planner.workload.spec, planner.workload.code
        costs = cached_costs(tmp_path, spec, code, around, lambda: planner.costs(probe=False))
        return costs.components[0].optimizer_bytes

    assert optimizer_bytes("1f1b") < optimizer_bytes("2bw")


def test_a_study_keeps_what_is_measured(
    make_planner: Callable[..., Planner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)
    first = make_planner().costs(probe=True, kept=tmp_path)
    assert make_planner("seed=7").costs(probe=True, kept=tmp_path) == first
    assert make_planner().costs(probe=True) != first, "two measurements differ"


def test_a_study_of_another_version_inspects_and_measures_again(
    load_small: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it kept may lack fields that count now, and has what that version was wrong in."""
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)

    def kept() -> set[str]:
        spec = load_small().spec
        Planner.open(spec, UserCode(tmp_path), Options(study=tmp_path)).costs(probe=True, kept=tmp_path / "costs")
        return {each.name for each in (tmp_path / "costs").iterdir()}

    before = kept()
    assert kept() == before
    for place in ("alray.runtime.device.devices.__version__", "alray.runtime.planner.cached_costs.__version__"):
        monkeypatch.setattr(place, "0.0.1")
    assert len(before) == 2 and len(kept()) == 4, "the encoders and the costs of two versions"


def test_a_module_that_was_edited_is_inspected_and_measured_again(
    load_small: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shapes of the one before would make its trial fail."""
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)
    module = "from torch import nn\ndef build(input):\n    return nn.Linear(input[0], {})\n"

    def widths(width: int) -> tuple[int, ...]:
        (tmp_path / "cached_own.py").write_text(module.format(width), encoding="utf-8")
        spec = load_small("model.components=[{block: linear, width: 5}, {block: 'python:cached_own.build'}]").spec
        planner = Planner.open(spec, UserCode(tmp_path), Options(study=tmp_path / "study"))
        planner.costs(probe=True, kept=tmp_path / "study" / "costs")
        return tuple(planner.workload.network.encoders[1].output)

    assert [widths(16), widths(24), widths(16)] == [(16,), (24,), (16,)]
    assert len(list((tmp_path / "study" / "costs").iterdir())) == 4


TEXT = """\
name: text
seed: 5
data: {source: text_csv, train: train.csv, batch_size: 2, text: {max_tokens: 6}}
model: {components: [{block: embedding, dim: 4}, {block: lstm, hidden: 5}, {block: lstm, hidden: 5}]}
method: {kind: associated_learning, label_dim: 5}
run: {epochs: 1}
"""


@pytest.mark.few
@pytest.mark.parametrize("text", [None, TEXT])
def test_encoders_are_inspected_once(load_small: Callable[..., Any], tmp_path: Path, text: str | None) -> None:
    lines = [f"{number % 2 + 1},{'word ' * (number % 5)}end{number}\n" for number in range(20)]
    (tmp_path / "train.csv").write_text("".join(lines), encoding="utf-8")

    def opened(*overrides: str) -> Planner:
        loaded = load_small(*overrides, **({} if text is None else {"text": text}))
        return Planner.open(loaded.spec, UserCode(tmp_path), Options(study=tmp_path / "study"))

    first = opened().workload.network
    precise = opened("run.precision=float64").workload.network.encoders
    again = opened("seed=6", "optimizer.lr=0.5").workload
    assert again.network.encoders[1:] == first.encoders[1:]
    assert again.network.encoders[0].input.words == again.data.sample_shape.words
    for one, other in zip(first.encoders, again.network.encoders, strict=True):
        assert [one.input.dtype, one.output.dtype] == [other.input.dtype, other.output.dtype]
        assert one.gives == other.gives and one.takes_along == other.takes_along
    assert opened("run.precision=float64").workload.network.encoders == precise
    files = sorted((tmp_path / "study" / "costs").iterdir())
    assert len(files) == 2
    for file in files:  # who reads them is told what is in no encoder
        file.write_text(file.read_text().replace('"draws": false', '"draws": true'), encoding="utf-8")
    assert all(encoder.draws for encoder in opened("seed=7").workload.network.encoders)
    assert not opened("model.components.1.repeat=2").workload.network.encoders[1].draws


MODEL = """\
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 3)
        self.last = nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.second(self.first(x)).mean((2, 3)))
"""


def test_a_model_is_cut_for_the_method_of_each_trial(load_small: Callable[..., Any], tmp_path: Path) -> None:
    """Not for that of the trial before."""
    (tmp_path / "cached_net.py").write_text(MODEL, encoding="utf-8")

    def ends(method: str, study: str) -> list[Any]:
        spec = load_small(f"method={method}", "model={from: 'python:cached_net.Net'}").spec
        blocks = Planner.open(spec, UserCode(tmp_path), Options(study=tmp_path / study)).workload.network.blocks
        return [each.ends for each in blocks]

    methods = ("backpropagation", "associated_learning", "backpropagation")
    in_one = [ends(method, "one") for method in methods]
    assert in_one == [ends(method, f"alone {number}") for number, method in enumerate(methods)]
    assert in_one[0] != in_one[1]


def test_a_model_is_cut_for_the_stages_of_each_trial(load_small: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "cached_net.py").write_text(MODEL, encoding="utf-8")
    model = "model={from: 'python:cached_net.Net'}"
    for overrides in ([], ["pipeline.stages=2"]):
        spec = load_small("method=backpropagation", model, *overrides).spec
        Planner.open(spec, UserCode(tmp_path), Options(study=tmp_path / "study"))
    assert len(list((tmp_path / "study" / "costs").iterdir())) == 2
