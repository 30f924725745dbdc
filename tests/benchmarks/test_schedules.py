"""The benchmarks of schedules stay runnable, at tiny sizes and inline; what they conclude."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alray.cli.main import execute
from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.run_folder.records import StageRecord
from benchmarks import laws, plain_pipelines, schedules, schedules_page, uneven
from benchmarks.runs import Recorded

Run = Callable[..., dict[str, Any]]
TINY = (
    "data.shape=[4, 8]",
    "data.batch_size=8",
    "data.samples=40",
    "model.components.0={block: transformer, dim: 8, heads: 2, feedforward: 16, repeat: 8}",
    "run.steps=12",
)


@pytest.fixture
def run_inline(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    one_thread: None,
    counted_once: None,
) -> Run:
    """As `benchmarks.runs.summary_of`, in this process and without Ray."""
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)
    count = 0

    def run(spec: Path, *overrides: str) -> dict[str, Any]:
        nonlocal count
        count += 1
        capsys.readouterr()
        place = ["--inline", "--json", "--output", str(tmp_path / f"run-{count}")]
        assert execute(["run", str(spec), *overrides, *place]) == 0
        summary: dict[str, Any] = json.loads(capsys.readouterr().out)
        return summary

    return run


@pytest.mark.parametrize("schedule", schedules.SCHEDULES)
def test_every_schedule_has_a_spec(schedule: str) -> None:
    loaded = load_spec(schedules.SPEC, list(schedules.SCHEDULES[schedule])).spec
    assert (loaded.schedule, loaded.pipeline.stages) == (schedule, 2)


@pytest.mark.full
def test_the_laws_are_measured(run_inline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "STEPS", dict.fromkeys(laws.STEPS, 11))
    quick = ("model.components.0.forward_ms=0.0", "model.components.0.backward_ms=0.0")
    clocks = [
        StageRecord(
            time_s=1.0, step=20, epoch=1.0, samples=320, stage=stage, replica=0, steps=10, warm_up=False,
            forward_s=0.21, backward_s=0.4, update_s=0.01, compute_s=0.62, send_wait_s=0.0, receive_wait_s=0.0,
            idle_s=0.0, evaluation_s=0.0, step_times_s=[], bytes_sent={}, peak_memory_bytes=None,
        )
        for stage in range(laws.STAGES)
    ]  # fmt: skip

    def left(spec: Path, *overrides: str) -> Recorded:
        return Recorded(run_inline(spec, *overrides), clocks, [])

    result = laws.measure(*quick, repeats=1, run=left)
    assert {name: entries[0]["clocks_law_s"] for name, entries in result["runs"].items()} == pytest.approx(
        {"streamed": 0.062, "overlapped": 0.377, "parallel_backward": 0.377, "sequential": 0.992}
    )
    assert {name: law["law_s"] for name, law in result["laws"].items()} == pytest.approx(
        {"streamed": 0.060, "overlapped": 0.360, "parallel_backward": 0.360, "sequential": 0.960}
    )


def test_a_ratio_of_the_laws_compares_runs_of_one_repeat() -> None:
    steps = ((1.0, 0.5), (40.0, 1.0), (90.0, 22.5))
    entries = [{"step_time_s": step_s, "clocks_law_s": law_s} for step_s, law_s in steps]
    (row,) = schedules_page.laws({"stages": 2, "runs": {"sequential": entries}})
    assert row.endswith("| 1 | 4.00 | 4.00 to 4.00 |")


def test_the_laws_are_those_of_the_spec() -> None:
    spec = load_spec(laws.SPEC).spec
    (entry,) = spec.model.components
    assert spec.pipeline.stages == spec.model.num_components == laws.STAGES
    # The sleep of a whole mini-batch, which has as many rows as the block's times are for.
    fields = entry.model_extra or {}
    assert fields["rows"] == spec.data.batch_size
    assert (fields["forward_ms"], fields["backward_ms"]) == (1e3 * laws.FORWARD_S, 1e3 * laws.BACKWARD_S)
    assert laws.law_s("overlapped") == laws.law_s("parallel_backward") == pytest.approx(0.360)


def test_the_blocks_sleep_both_ways_in_proportion_to_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    block = UserCode(laws.SPEC.parent)("python:sleeping_blocks.Sleeping")((4,), forward_ms=20, backward_ms=40, rows=16)
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    began = time.perf_counter()
    block(torch.ones(8, 4)).sum().backward()
    assert time.perf_counter() - began >= 0.030, "what it does not sleep it is awake"
    assert slept == pytest.approx([0.010, 0.020], abs=2e-4)
    block.eval()(torch.ones(8, 4))
    assert len(slept) == 2 and not list(block.parameters())


def made_up(step_s: dict[str, float]) -> Run:
    """A runner whose steps follow from schedule and cut."""

    def run(spec: Path, *overrides: str) -> dict[str, Any]:
        loaded = load_spec(spec, list(overrides)).spec  # the overrides are ones that a spec takes
        name = uneven.name_of(loaded.schedule, tuple(loaded.pipeline.partition))
        step = step_s.get(name, 0.2)
        return {"step_time_s": step, "predicted_step_time_s": step * 0.98, "weights_sha256": "same"}

    return run


def test_every_cut_and_schedule_is_measured_and_the_choice_judged() -> None:
    steps = {"streamed [1, 3]": 0.101, "overlapped [1, 3]": 0.100, "streamed [2, 2]": 0.150}
    rows = [
        {"schedule": "streamed", "stages": 3, "partition": [1, 1, 2]},  # more stages than are measured
        {"schedule": "streamed", "stages": 2, "partition": [1, 3]},
    ]
    result = uneven.measure(repeats=2, run=made_up(steps), compare=lambda spec, *overrides: rows)
    assert len(result["runs"]) == 1 + 4 * 3
    assert (result["chosen"], result["best"]) == (["streamed [1, 3]"] * 2, "overlapped [1, 3]")
    assert result["over_best"] == pytest.approx([1.01] * 2)
    assert result["over_uniform"] == pytest.approx([0.150 / 0.101] * 2)


@pytest.mark.full
@pytest.mark.parametrize("way", plain_pipelines.WAYS)
def test_a_plain_script_trains_on_two_stages(way: str) -> None:
    assert plain_pipelines.plain(way, plain_pipelines.SPECS[0], *plain_pipelines.WAYS[way], *TINY) > 0.0


def test_a_page_has_the_ratios_of_pairs() -> None:
    entries = [{"alray_s": alray_s, "plain_s": 0.010} for alray_s in (0.004, 0.006, 0.02)]
    cases = {name: {"repeats": entries} for name in ("eight, 1f1b", "eight, streamed", "equal_components, streamed")}
    pipelines, streamed = schedules_page.plain_pipelines(cases)
    assert pipelines.endswith("| 1 | 0.60 | 0.60 to 0.60 |")
    assert streamed.endswith("| 2 | 0.60 | 0.60 to 0.60 |")
