"""The benchmarks of replicas stay runnable, at tiny sizes and inline; what they conclude of figures made up here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from alray.cli.main import execute
from alray.config.loading.load import load_spec
from alray.core.run_folder.records import EvaluationRecord, StepRecord, read
from alray.core.run_folder.store import manifests
from benchmarks import all_reduce_page, balance, large_batch, plain_ddp, replicas
from benchmarks.runs import Recorded

Run = Callable[..., Recorded]
TINY = ("data.samples=64", "data.batch_size=8", "data.shape=[3, 8, 8]", "run.steps=12")


@pytest.fixture
def run_inline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> Run:
    """As `benchmarks.runs.recorded`, in this process and without Ray."""
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)
    count = 0

    def run(spec: Path, *overrides: str) -> Recorded:
        nonlocal count
        count += 1
        capsys.readouterr()
        folder = tmp_path / f"run-{count}"
        assert execute(["run", str(spec), *overrides, "--inline", "--json", "--output", str(folder)]) == 0
        summary = json.loads(capsys.readouterr().out)
        return Recorded(summary, list(read(folder / "records.jsonl")), manifests(folder))

    return run


@pytest.mark.full
def test_all_three_are_measured(run_inline: Run) -> None:
    asked: list[tuple[str, ...]] = []

    def summary(spec: Path, *overrides: str) -> dict[str, Any]:
        asked.append(overrides)
        load_spec(spec, list(overrides))  # what cannot run here must still be a spec
        return run_inline(spec, *(one for one in overrides if "engine" not in one)).summary

    result = replicas.measure(*TINY, repeats=1, run=summary, ddp=lambda spec, *overrides: 1.0)
    assert asked == [TINY, ("replicas.engine=ray_train", *TINY)]
    (entry,) = result["repeats"]
    assert result["over_plain_ddp"] == pytest.approx(1.0 / entry["graph_s"])
    assert result["over_ray_train"] == pytest.approx(entry["ray_train_s"] / entry["graph_s"])
    json.dumps(result)


def test_the_plain_script_trains_the_same_network() -> None:
    spec, network, data = plain_ddp.load(replicas.SPEC, list(TINY))
    samples, labels = data[:4]
    assert network(samples).shape == (4, 10) and len(labels) == 4 and len(data) == 64
    assert spec.replicas.count == replicas.REPLICAS
    assert sum(parameter.numel() for parameter in network.parameters()) > 300_000


def test_the_plain_script_trains(tmp_path: Path, one_thread: None) -> None:
    dist.init_process_group("gloo", init_method=(tmp_path / "meeting").as_uri(), rank=0, world_size=1)
    try:
        spec, network, data = plain_ddp.load(replicas.SPEC, list(TINY))
        before = [parameter.detach().clone() for parameter in network.parameters()]
        times = plain_ddp.train(spec, network, data)
    finally:
        dist.destroy_process_group()
    assert len(times) == spec.run.steps == 12 and min(times) > 0.0
    assert not any(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


@pytest.mark.full
def test_a_run_is_told_by_epochs(run_inline: Run) -> None:
    small = ("model.components.0={block: linear, width: 4}", "run.epochs=3")
    done = run_inline(balance.SPEC, "replicas.balance=dynamic_batch_size", *small)
    figures = balance.figures_of(done)
    assert len(figures["epoch_s"]) == 2 and min(figures["epoch_s"]) > 0.0
    steps = [record for record in done.records if isinstance(record, StepRecord)]
    assert sum(figures["epoch_s"]) == pytest.approx(steps[-1].time_s - steps[len(steps) // 3 - 1].time_s)
    assert len(figures["shares"]) == 3 and all(sum(shares) == 128 for shares in figures["shares"])
    assert 0.0 <= figures["accuracy"] <= 1.0


def made_up(*, dynamic_s: float, undisturbed_s: float, last_share: int) -> dict[str, Any]:
    """Results of one repeat: fixed shares take 4 s a slowed epoch, 2 s any other."""

    def entry(slowed_s: float, other_s: float, shares: list[int], accuracy: float) -> list[dict[str, Any]]:
        epochs = [slowed_s if balance.FIRST <= epoch <= balance.LAST else other_s for epoch in range(2, 11)]
        return [{"epoch_s": epochs, "shares": [shares] * 10, "accuracy": accuracy}]

    even, dealt = [32, 32], [64 - last_share, last_share]
    slowed = {"fixed": entry(4.0, 2.0, even, 0.95), "dynamic_batch_size": entry(dynamic_s, 2.0, dealt, 0.945)}
    undisturbed = {
        "fixed": entry(2.0, 2.0, even, 0.95),
        "dynamic_batch_size": entry(undisturbed_s, undisturbed_s, even, 0.95),
    }
    runs = {"slowed": slowed, "slowed, sleeping": slowed, "undisturbed": undisturbed}
    return {"spec": "balance.yaml", "overrides": [], "runs": runs, **balance.conclusions(runs)}


def test_the_conclusions() -> None:
    good = made_up(dynamic_s=2.0, undisturbed_s=2.02, last_share=31)
    assert good["faster"] == good["faster_sleeping"] == 2.0
    assert good["cost"] == pytest.approx(0.01) and good["even_again"]
    assert good["accuracy_apart"] == pytest.approx(-0.005)
    bad = made_up(dynamic_s=3.0, undisturbed_s=2.2, last_share=20)
    assert not bad["even_again"]


def test_large_mini_batches_by_epoch() -> None:
    def run(spec: Path, *overrides: str) -> Recorded:
        large = not any(word.startswith("data.batch_size") for word in overrides)
        warm = "lr_schedule.warmup_epochs=0" not in overrides
        records = [
            EvaluationRecord(
                step=epoch,
                samples=epoch,
                epoch=epoch,
                time_s=epoch,
                test=0.5 + 0.1 * epoch + 0.05 * warm,
                per_depth=[],
                duration_s=0.0,
            )
            for epoch in (1, 2)
        ]
        return Recorded({"steps": 26 if large else 842, "shares": [2048, 2048] if large else [64, 64]}, records, [])

    result = large_batch.measure(repeats=2, run=run)
    assert large_batch.mean_accuracy(result["runs"]["large, rate scaled, warm-up"], 1) == pytest.approx(0.75)


def test_more_workers_have_a_row_each_and_time_to_the_target() -> None:
    result = {
        "measured": {"1": {"steps": 100, "step_time_s": 0.5, "samples_per_s": 1024.0}},
        "counted": {"1 Gbit/s": {"2": 0.25, "16": 0.1}},
    }
    assert all_reduce_page.workers(result) == [
        "| 1 | 1,024/s, 50 s | - |",
        "| 2 | - | 2,048/s, 25 s |",
        "| 16 | - | 5,120/s, 10 s |",
    ]
