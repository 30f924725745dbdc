"""What Ray's metrics of a run are set to. `tests/engine/test_metrics.py` reads them back from Ray."""

from __future__ import annotations

from typing import Any

import pytest

from alray.core.run_folder.records import PlanRecord, StageRecord
from alray.runtime.runner.ray_metrics import RunMetrics


def staged(stage: int, **more: Any) -> StageRecord:
    times = {"forward_s": 0.1, "backward_s": 0.2, "update_s": 0.0, "compute_s": 0.3, "evaluation_s": 0.5}
    waits = {"send_wait_s": 0.1, "receive_wait_s": 0.0, "idle_s": 0.0}
    place = {"time_s": 1.0, "step": 20, "epoch": 1.0, "samples": 160, "stage": stage, "replica": 0, "steps": 10}
    rest = {"warm_up": False, "step_times_s": [], "bytes_sent": {}, "peak_memory_bytes": None}
    return StageRecord(**{**place, **times, **waits, **rest, **more})


def test_they_are_those_of_the_latest_records_and_nothing_after_the_end() -> None:
    gauges: dict[tuple[str, ...], float] = {}  # the latest value of each, by its name and tags

    class Gauge:
        def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
            self.name, self.keys = name, tag_keys

        def set(self, value: float, tags: dict[str, str]) -> None:
            assert tuple(tags) == self.keys
            gauges[self.name, *tags.values()] = value

    metrics = RunMetrics("mine", Gauge)  # type: ignore[arg-type]
    metrics.take(staged(0, warm_up=True))
    assert gauges == {}
    metrics.take(staged(0))
    assert gauges == {}, "the last stage has measured no step time by now"
    cut = {"after_cut": [11], "after_cut_s": {"forward_s": 0.03}}
    metrics.take(staged(1, queued_messages=3, step_times_s=[0.9, *[0.04] * 9], **cut))
    metrics.take(staged(0, compute_s=0.1))
    assert gauges == {
        ("alray_stage_busy_share", "mine", "0", "0"): pytest.approx(0.25),
        ("alray_stage_busy_share", "mine", "0", "1"): pytest.approx(0.75),
        ("alray_stage_queued_messages", "mine", "0", "1"): 3,
        ("alray_samples_per_second", "mine"): pytest.approx(200.0),
    }
    new_plan = PlanRecord(time_s=2.0, step=10, epoch=1.0, samples=80, plan={"stages": 1, "replicas": 1})
    metrics.take(new_plan)
    assert gauges["alray_stage_busy_share", "mine", "0", "1"] == 0.0, "there is no such stage any more"
    assert gauges["alray_stage_queued_messages", "mine", "0", "1"] == 0.0
    assert gauges["alray_stage_busy_share", "mine", "0", "0"] == pytest.approx(0.25)
    metrics.take(staged(0, compute_s=0.2))
    assert gauges["alray_stage_busy_share", "mine", "0", "0"] == pytest.approx(0.25), "no step time of the new plan yet"
    metrics.take(staged(0, compute_s=0.3, step_times_s=[0.04] * 10))
    assert gauges["alray_stage_busy_share", "mine", "0", "0"] == pytest.approx(0.75)
    metrics.close()
    assert set(gauges.values()) == {0.0}
