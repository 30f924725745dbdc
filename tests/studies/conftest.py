"""Made-up records of runs and of trials."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alray.config.loading.load import dump_spec
from alray.config.study.section import Study
from alray.core.run_folder.records import Best, EvaluationRecord, EventRecord, Scores, StageRecord, StepRecord, Summary
from alray.studies.folder import StudyFolder
from alray.studies.records import Begun, Reached, TrialRecord
from alray.studies.results import Results

BATCH = 10
"""Samples in a mini-batch."""


def step(number: int, time_s: float, loss: float = 1.0) -> StepRecord:
    """One mini-batch that was done at this time."""
    place = {"time_s": time_s, "step": number, "epoch": number / 10, "samples": number * BATCH}
    return StepRecord(**place, losses={0: {"a": loss / 2, "b": loss / 2}}, lr=0.1)


def evaluation(
    number: int, time_s: float, validation: float | None, duration_s: float = 1.0, metric: str = "accuracy"
) -> EvaluationRecord:
    """An evaluation that ended at this time."""
    place = {"time_s": time_s, "step": number, "epoch": number / 10, "samples": number * BATCH}
    return EvaluationRecord(**place, metric=metric, validation=validation, per_depth=[], duration_s=duration_s)


def started() -> EventRecord:
    return EventRecord(
        time_s=0.0, step=0, epoch=0.0, samples=0, event="started", message="started", date="1970-01-01T00:00:00+00:00"
    )


def staged(
    number: int,
    stage: int,
    steps: int,
    seconds: float,
    *,
    warm_up: bool = False,
    step_times_s: Sequence[float] = (),
    after_cut: Sequence[int] = (),
) -> StageRecord:
    """The record of a stage that took these seconds forward, twice as many backward, and half as many for updates. Each
    mini-batch took the same."""
    share = seconds * len(after_cut) / steps
    return StageRecord(
        time_s=float(number),
        step=number,
        epoch=number / 10,
        samples=number * BATCH,
        stage=stage,
        replica=0,
        steps=steps,
        warm_up=warm_up,
        forward_s=seconds,
        backward_s=2 * seconds,
        update_s=seconds / 2,
        compute_s=3.5 * seconds,
        send_wait_s=0.0,
        receive_wait_s=0.0,
        idle_s=0.0,
        evaluation_s=0.0,
        step_times_s=list(step_times_s),
        after_cut=list(after_cut),
        after_cut_s={"forward_s": share, "backward_s": 2 * share, "update_s": share / 2},
        bytes_sent={},
        peak_memory_bytes=None,
    )


def trial(number: int, point: dict[str, Any], **fields: Any) -> TrialRecord:
    """A trial that came to its end; `steps`: to the target; `validation`: its best accuracy; `ran`: keys of its
    summary. The point says how many stages it has. Each session began on a day of its own."""
    steps, validation = fields.pop("steps", None), fields.pop("validation", 0.5)
    ran = {"stages": point.get("pipeline.stages", 1), **fields.pop("ran", {})}
    filled = {
        "index": 0,
        "values": {},
        "seed": 0,
        "began": f"2026-01-{fields.get('session', 0) + 1:02}T10:00:00+00:00",
        "overrides": [],
        "status": "finished" if steps is None else "reached",
        "reached": None if steps is None else Reached(step=steps, samples=steps * BATCH, training_s=steps / 100),
        "summary": summary(validation, fields.pop("step_time_s", 0.01)).model_copy(update=ran),
        **fields,
    }
    return TrialRecord(number=number, point=point, **filled)


def trials_of_batch_sizes(sizes: int, settings: int) -> list[TrialRecord]:
    """A search of so many settings for three variants at so many batch sizes. Every second trial reaches no target."""
    return [
        trial(
            number,
            {"variant": variant, "data.batch_size": 8 * 2**size},
            index=index,
            values={"optimizer.lr": 0.001 * (index + 1)},
            steps=4096 // 2**size + index if index % 2 else None,
        )
        for number, (variant, size, index) in enumerate(
            itertools.product(("sgd", "nesterov", "al"), range(sizes), range(settings))
        )
    ]


def summary(validation: float | None, step_time_s: float | None) -> Summary:
    return Summary(
        version="0",
        name="a",
        status="finished",
        run_dir="/nowhere",
        seed=0,
        threads=1,
        method="backpropagation",
        schedule="single",
        engine="inline",
        stages=1,
        replicas=1,
        partition=[1],
        steps=10,
        epochs=1.0,
        samples=100,
        duration_s=2.0,
        samples_per_s=None if step_time_s is None else BATCH / step_time_s,
        step_time_s=step_time_s,
        predicted_step_time_s=0.01,
        bubble=0.0,
        predicted_bubble=0.0,
        scores=Scores(validation=validation, test=0.4),
        best=None if validation is None else Best(step=10, validation=validation, test=validation / 2),
        weights_sha256="0",
        parameters=3,
        peak_memory_bytes=[None],
        bytes_sent={},
        failures=[],
    )


def results(trials: Sequence[TrialRecord], trial_dir: Path = Path("nowhere"), **study: Any) -> Results:
    """The results of a study with these trials, whose axes have the values that the trials have."""
    axes: dict[str, Any] = {}
    for record in trials:
        for axis, value in record.point.items():
            axes.setdefault(axis, {} if axis == "variant" else [])
            if value not in axes[axis]:
                if axis == "variant":
                    axes[axis][value] = {}
                else:
                    axes[axis].append(value)
    made = Study.model_validate({"study": "made-up", "base": "x.yaml", "axes": axes, "max_concurrent": 1, **study})
    return Results(made, trials, lambda number: trial_dir / f"{number:04d}")


def study_folder(of: Results, path: Path) -> StudyFolder:
    """The folder of a study whose trials have all ended."""
    (path / "trials").mkdir(parents=True)
    (path / "study.yaml").write_text(dump_spec(of.study), encoding="utf-8")
    begun = Begun(
        study=of.study.study,
        base=str(of.study.base),
        spec=of.study.model_dump(mode="json"),
        points=[Begun.Point(values=dict(row.point), spec_sha256="0") for row in of.rows],
        trials=[Begun.Trial(number=record.number, point=0, overrides=record.overrides) for record in of.records],
        skipped=[],
        code={},
        objects={},
    )
    (path / "trials.json").write_text(begun.model_dump_json(), encoding="utf-8")
    folder = StudyFolder(path)
    for record in of.records:
        folder.write(record)
    return folder
