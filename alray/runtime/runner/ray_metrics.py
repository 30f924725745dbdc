"""Figures of a run as metrics of Ray, which Prometheus collects."""

from __future__ import annotations

from ray.util.metrics import Gauge

from alray.core.run_folder.records import PlanRecord, Record, StageRecord
from alray.core.run_folder.utilisation import Utilisation

_OF_STAGE = ("run", "replica", "stage")


class RunMetrics:
    """Sets gauges from the records of stages. They carry the name of the run folder as the tag `run`.

    The driver sets them, because it hears all stages: so they come from the node on which the command runs.
    """

    def __init__(self, run: str, gauge: type[Gauge] = Gauge) -> None:
        self._run = {"run": run}
        self._busy_share = gauge(
            "alray_stage_busy_share", "Share of the step time in which the stage computes, in 0..1.", _OF_STAGE
        )
        self._utilisation = Utilisation()
        self._queued = gauge(
            "alray_stage_queued_messages", "Messages from the stage below that have arrived and wait.", _OF_STAGE
        )
        self._speed = gauge(
            "alray_samples_per_second", "Samples of a mini-batch, divided by the median step time.", ("run",)
        )
        self._stages: set[tuple[int, int]] = set()

    def take(self, record: Record) -> None:
        """Take over a record. Mini-batches of the warm-up are in no metric."""
        if isinstance(record, PlanRecord):
            stages, replicas = record.plan["stages"], record.plan["replicas"]
            self._end({each for each in self._stages if each[0] >= replicas or each[1] >= stages})
            self._utilisation = Utilisation()
        if not isinstance(record, StageRecord) or record.warm_up:
            return
        stage = self._of_stage(record.replica, record.stage)
        self._stages.add((record.replica, record.stage))
        utilisation = self._utilisation.take(record)
        if utilisation is not None:
            self._busy_share.set(utilisation, stage)
        if record.queued_messages is not None:
            self._queued.set(record.queued_messages, stage)
        if record.samples_per_s is not None and record.replica == 0:
            self._speed.set(record.samples_per_s, self._run)

    def close(self) -> None:
        """The run has ended: nothing is computed any more. Ray keeps a gauge until its process ends."""
        if self._stages:
            self._speed.set(0.0, self._run)
        self._end(set(self._stages))

    def _end(self, ended: set[tuple[int, int]]) -> None:
        """These stages, with their replicas, compute no more."""
        for replica, stage in ended:
            self._busy_share.set(0.0, self._of_stage(replica, stage))
            self._queued.set(0.0, self._of_stage(replica, stage))
        self._stages -= ended

    def _of_stage(self, replica: int, stage: int) -> dict[str, str]:
        return {**self._run, "replica": str(replica), "stage": str(stage)}
