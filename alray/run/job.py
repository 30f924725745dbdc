"""A job: a spec with its data opened, its network drawn and its components' costs known; and its plan."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median

import torch

from alray.data.batches import Batch, EvaluationBatches, TrainBatches
from alray.data.dataset import Data
from alray.device import devices
from alray.errors import PlanError
from alray.nn.network import Network
from alray.plan.costs import Costs
from alray.plan.make import make_plan
from alray.plan.plan import Plan
from alray.plan.shares import first_shares
from alray.probe.device_speed import SpeedTrial
from alray.probe.estimate import estimate_costs, given_costs
from alray.probe.measure import Surroundings, probe_costs
from alray.run.found import Found
from alray.run.memory import stage_memory_limits
from alray.run.micro_batches import with_micro_batches
from alray.schedules.micro_batches import micro_batch_norm_fault
from alray.schedules.table import SCHEDULES
from alray.spec.models import Spec
from alray.stage.assignment import Assignment, DataFacts, Start, network_of, open_training_data
from alray.user_code import UserCode

_DATA_REPEATS = 10
_DATA_S = 1.0


@dataclass(frozen=True)
class Job:
    """What a spec asks for, with everything that can be wrong found out."""

    spec: Spec
    code: UserCode
    data: Data
    facts: DataFacts
    network: Network

    @classmethod
    def of(cls, spec: Spec, code: UserCode, *, trained: bool = False) -> Job:
        """Open the data and find the shapes. Raises DataError, SpecError or PlanError.

        trained: whether weights come from a checkpoint.
        """
        devices.pick(spec.resources.resolved_device)
        data = open_training_data(spec, code)
        facts = DataFacts.of(data)
        network = network_of(spec, facts, code, trained=trained)
        if spec.pipeline.stages > len(network):
            raise PlanError(
                f"{spec.pipeline.stages} stages cannot share {len(network)} components: a stage holds at least one",
                key="pipeline.stages",
                mend=f"set pipeline.stages to at most {len(network)}",
            )
        spec = with_micro_batches(spec, network)
        _require_whole_norms(spec, network)
        return cls(spec, code, data, facts, network)

    @cached_property
    def device(self) -> torch.device:
        return devices.pick(self.spec.resources.resolved_device)

    @property
    def notes(self) -> tuple[str, ...]:
        """What one should know of this job before it runs, a sentence each."""
        replicas = self.spec.replicas
        normalises = any(link.normalises_batches for link in self.network.encoders)
        if replicas.count > 1 and normalises and not replicas.sync_batch_norm:
            return (
                "batch normalisation takes its statistics per replica, over its share of the mini-batch: "
                f"{replicas.count} replicas do not train quite what one process would; "
                "replicas.sync_batch_norm=true takes them over all replicas",
            )
        return ()

    @property
    def total_steps(self) -> int:
        """Length of the run in mini-batches."""
        run = self.spec.run
        if run.steps is not None:
            return run.steps
        if run.epochs is not None:
            return run.epochs * self.facts.steps_per_epoch
        assert run.samples is not None, "a spec gives one of epochs, steps, samples"
        return self._steps_for(run.samples)

    def _steps_for(self, samples: int) -> int:
        epochs, rest = divmod(samples, self.facts.samples_per_epoch)
        return epochs * self.facts.steps_per_epoch + -(-rest // self.spec.data.batch_size)

    def costs(self, *, probe: bool, one_process: bool = False) -> Costs:
        """Costs of the components: given in the spec, measured here, or counted; one_process: as for `plan`."""
        given = self.spec.pipeline.costs
        if given is not None:
            if len(given) != len(self.network):
                raise PlanError(
                    f"pipeline.costs has {len(given)} entries, the model has {len(self.network)} components",
                    key="pipeline.costs",
                    mend="give one entry for each component, or null to measure",
                )
            return given_costs(self._estimate(), given)
        if not probe:
            return self._estimate()
        surroundings = self._surroundings(one_process)
        with devices.settled(surroundings.threads, surroundings.deterministic, self.device):
            batch, data_s = self._time_data()
        return replace(probe_costs(self.network, batch, surroundings), data_s=data_s)

    def _surroundings(self, one_process: bool) -> Surroundings:
        """How the stages of the spec will run, as far as a component's time hangs on it."""
        spec, threads = self.spec, self.spec.resources.threads
        several = not one_process and spec.pipeline.stages > 1
        cores = self._cores(one_process)
        stages = 1 if one_process else spec.pipeline.stages * spec.replicas.count
        return Surroundings(
            device=self.device,
            threads=threads,
            deterministic=spec.run.deterministic,
            pipeline=several and SCHEDULES[spec.schedule].is_pipeline,
            micro_batches=spec.micro_batches,
            others=0 if cores is None else max(0, min(stages, cores // threads) - 1),
        )

    def _time_data(self) -> tuple[Batch, float]:
        """The first mini-batch, and what one takes to get ready; nothing where loader workers do it beside."""
        times: list[float] = []
        with TrainBatches(
            self.data,
            seed=self.spec.seed,
            start_step=0,
            end_step=_DATA_REPEATS,
            workers=0,
            shares=sorted(self._shares(self.spec.replicas.count), reverse=True),
        ) as batches:
            first = next(batches)
            began = time.perf_counter()
            while len(times) < _DATA_REPEATS - 1 and time.perf_counter() - began < _DATA_S:
                started = time.perf_counter()
                next(batches)
                times.append(time.perf_counter() - started)
        return first, 0.0 if self.spec.data.workers else median(times)

    def _estimate(self) -> Costs:
        return estimate_costs(
            self.network,
            batch_size=max(self._shares(self.spec.replicas.count)),
            device=self.device,
            threads=self.spec.resources.threads,
        )

    def plan(self, costs: Costs, *, one_process: bool = False) -> Plan:
        """The plan the spec asks for; one_process: all stages take turns (`--inline`). A pipeline of backpropagation
        is then one stage that adds up the gradients of its micro-batches."""
        if one_process and SCHEDULES[self.spec.schedule].is_pipeline:
            return self._plan(costs, 1, "auto", one_process)
        return self._plan(costs, self.spec.pipeline.stages, self.spec.pipeline.partition, one_process)

    def plan_for(self, costs: Costs, stages: int, replicas: int, found: Found | None = None) -> Plan:
        """The plan on another number of stages, cut anew, or of replicas, their shares dealt anew, or on devices that
        were found to be other ones. Another number of stages leaves the weights the same; another number of replicas
        rounds the sums of gradients otherwise."""
        partition = self.spec.pipeline.partition if stages == self.spec.pipeline.stages else "auto"
        return self._plan(costs, stages, partition, one_process=False, replicas=replicas, found=found)

    def speed_trial(self) -> SpeedTrial:
        """What measures the components on another device, on the mini-batch they were measured on here."""
        batch, _ = self._time_data()
        return SpeedTrial(
            self.spec, self.facts.sample, self.facts.classes, self.code.root, self.code.allow_elsewhere, batch, stage=0
        )

    def _speeds(self, stages: int, found: Found) -> tuple[float, ...]:
        given = self.spec.resources.stage_speed
        if given == "auto":
            return found.stage_speed
        return given if len(given) == stages else ()

    def _shares(self, replicas: int) -> tuple[int, ...]:
        """Samples of a mini-batch for each replica at the beginning."""
        given = self.spec.replicas.shares if replicas == self.spec.replicas.count else None
        return first_shares(replicas, self.spec.data.batch_size, given)

    def _plan(
        self,
        costs: Costs,
        stages: int,
        partition: str | Sequence[int],
        one_process: bool,
        replicas: int | None = None,
        found: Found | None = None,
    ) -> Plan:
        spec, found = self.spec, found or Found()
        replicas = spec.replicas.count if replicas is None else replicas
        return make_plan(
            method=spec.method.kind,
            schedule=spec.schedule,
            stages=stages,
            replicas=replicas,
            partition=partition,
            in_flight=spec.pipeline.in_flight,
            costs=costs,
            cores=found.cores or self._cores(one_process),
            stage_speed=() if one_process else self._speeds(stages, found),
            steps_per_epoch=self.facts.steps_per_epoch,
            total_steps=self.total_steps,
            evaluation_batches=self._evaluation_batches(),
            micro_batches=spec.micro_batches,
            virtual_stages=spec.virtual_stages,
            shares=self._shares(replicas),
            memory_limits=stage_memory_limits(spec, stages, replicas, self.device),
        )

    def _cores(self, one_process: bool) -> int | None:
        """Processors the stages share; None where each has a device of its own."""
        if one_process:
            return self.spec.resources.threads
        return len(os.sched_getaffinity(0)) if self.device.type == "cpu" else None

    def _evaluation_batches(self) -> int:
        splits = [split for split in ("validation", "test") if self.data.splits.get(split) is not None]
        return sum(len(EvaluationBatches(self.data, split)) for split in splits)

    def assignments(
        self, plan: Plan, run_dir: Path, started_wall_s: float, start: Start, profile: tuple[range, ...] = ()
    ) -> list[Assignment]:
        """Every stage's share, replica by replica; profile: mini-batches to trace, counted from 1."""
        return [
            Assignment(
                spec=self.spec,
                plan=plan,
                data=self.facts,
                total_steps=self.total_steps,
                stage=stage,
                replica=replica,
                run_dir=run_dir,
                code_root=self.code.root,
                allow_code=self.code.allow_elsewhere,
                started_wall_s=started_wall_s,
                start=start,
                profile=profile,
            )
            for replica in range(plan.replicas)
            for stage in range(plan.stages)
        ]

    def bundles(self, stages: int, replicas: int) -> list[dict[str, float]]:
        """What each stage asks of Ray, replica by replica."""
        return self.spec.resources.bundles(stages) * replicas


def _require_whole_norms(spec: Spec, network: Network) -> None:
    """Batch normalisation in a user's own block is known only once it is built."""
    cut = SCHEDULES[spec.schedule].is_pipeline and spec.micro_batches > 1
    if not cut or spec.pipeline.micro_batch_norm == "accept":
        return
    for index, link in enumerate(network.encoders):
        if link.normalises_batches:
            message, mend = micro_batch_norm_fault(f"block `{link.name}`", spec.micro_batches)
            raise PlanError(message, mend=mend, key=f"model.components[{index}]")
