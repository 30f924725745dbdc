"""What a stage is told to do: a value that crosses the process border, and the stage it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from alray.channel.message import packed_bytes
from alray.data.dataset import Data
from alray.device import devices
from alray.nn.network import Network
from alray.nn.replica_norm import ReplicaSums, share_norms
from alray.plan.plan import Plan
from alray.seeds import derive_seed
from alray.spec.micro_batches import PIPELINES
from alray.spec.models import Spec
from alray.stage.checkpoint import load_component, load_replica_state
from alray.stage.reduction import ReducedReplication
from alray.stage.replication import Replication
from alray.stage.stage import Stage, backpropagation_components, make_stage
from alray.stage.workload import DataFacts, network_of, open_training_data
from alray.store import checkpoint_folder
from alray.user_code import UserCode


@dataclass(frozen=True)
class Start:
    """Where a run begins or goes on: after `step` mini-batches, from a checkpoint whose files have these hashes."""

    step: int = 0
    folder: Path | None = None
    hashes: tuple[tuple[str, str], ...] = ()
    shares: tuple[int, ...] = ()
    """Samples of a mini-batch each replica takes from here on, where they are dealt anew as the run goes."""


@dataclass(frozen=True)
class Assignment:
    """One stage's share of a run."""

    spec: Spec
    plan: Plan
    data: DataFacts
    total_steps: int
    stage: int
    replica: int
    run_dir: Path
    code_root: Path
    allow_code: bool
    started_wall_s: float
    start: Start
    profile: tuple[range, ...] = ()
    """Mini-batches whose traces are wanted, counted from 1."""

    @property
    def title(self) -> str:
        """How this stage is called in messages."""
        stage = f"stage {self.stage}"
        return f"{stage} of replica {self.replica}" if self.plan.replicas > 1 else stage

    @property
    def shares(self) -> tuple[int, ...]:
        """Samples of a mini-batch each replica takes at first."""
        if len(self.start.shares) == self.plan.replicas:
            return self.start.shares
        return self.plan.shares

    @property
    def checkpoints(self) -> Path:
        return self.run_dir / "checkpoints"

    @property
    def trace(self) -> Path:
        """Where mini-batches of `profile` are traced; the stages of one process share that of the first."""
        stage = f"stage-{self.stage}.json"
        return self.run_dir / "profile" / (f"replica-{self.replica}-{stage}" if self.replica else stage)

    def user_code(self) -> UserCode:
        return UserCode(self.code_root, allow_elsewhere=self.allow_code)

    def open_data(self) -> Data:
        return open_training_data(self.spec, self.user_code())

    def device(self, local_index: int | None = None) -> torch.device:
        """local_index: among the devices this process sees; None: that of the stage."""
        index = self.stage if local_index is None else local_index
        return devices.pick(self.spec.resources.device_of(self.stage), local_index=index)

    def network(self) -> Network:
        return network_of(self.spec, self.data, self.user_code(), trained=self.start.folder is not None)

    @property
    def pipelined(self) -> bool:
        """Whether gradients travel between this stage and others."""
        return self.plan.schedule in PIPELINES and self.plan.stages > 1

    @property
    def data_parallel(self) -> bool:
        """Whether torch's DDP averages the gradients of the replicas."""
        return self.spec.replicas.engine == "ray_train"

    @property
    def shares_norms(self) -> bool:
        """Whether batch normalisation takes its statistics over the replicas of the stage."""
        return self.spec.replicas.sync_batch_norm and self.plan.replicas > 1

    def load_code(self) -> None:
        """Import what only some stages need, before the memory of this one is measured."""
        if self.pipelined:
            import alray.stage.pipelined
        if self.data_parallel:
            import alray.stage.data_parallel  # noqa: F401

    def build_stage(self, network: Network, device: torch.device, *, norms: ReplicaSums | None = None) -> Stage:
        """The stage with its components, loaded from the checkpoint it starts from.

        One that is `pipelined` needs the default process group of its replica, one that is `data_parallel` that of all
        replicas. norms: the replicas over which batch normalisation takes its statistics, where it does.
        """
        plan = self.plan.stage_plans[self.stage]
        components = [network.component(index, device) for index in plan.components]
        if self.start.folder is not None:
            hashes = dict(self.start.hashes)
            for component in components:
                load_component(component, self.start.folder, hashes)
        if norms is not None:
            for component in components:
                share_norms(component, norms)
        smoothing = getattr(self.spec.method, "label_smoothing", 0.0)
        if self.data_parallel:
            from alray.stage.data_parallel import DataParallelStage

            return DataParallelStage(
                backpropagation_components(components),
                label_smoothing=smoothing,
                compression=self.spec.replicas.compression,
                seed=derive_seed(self.spec.seed, "compression"),
            )
        if not self.pipelined:
            return make_stage(components, label_smoothing=smoothing, micro_batches=self.plan.micro_batches)
        # Imported where it is needed: it takes long, and most stages do without.
        from alray.stage.pipelined import PipelinedStage

        return PipelinedStage(
            self.plan,
            self.stage,
            components,
            network=network,
            device=device,
            batch_size=self.shares[self.replica],
            label_smoothing=smoothing,
        )

    def replication(
        self,
        stage: Stage,
        group: dist.ProcessGroup,
        store: dist.Store,
        *,
        in_turns: bool,
        timeout_s: float,
    ) -> Replication:
        """A stage made here among its likes in the other replicas, its state loaded from the checkpoint it starts from.

        A checkpoint of fewer replicas has none for some: those begin afresh.
        """
        if self.data_parallel:
            from alray.stage.data_parallel import DataParallelReplication, DataParallelStage

            assert isinstance(stage, DataParallelStage)
            return DataParallelReplication(
                self.spec, self.plan, stage=stage, replica=self.replica, shares=self.shares, store=store
            )
        replication = ReducedReplication(
            self.spec,
            self.plan,
            stage=self.stage,
            replica=self.replica,
            shares=self.shares,
            components=stage.components,
            group=group,
            store=store,
            in_turns=in_turns,
            timeout_s=timeout_s,
        )
        if self.start.folder is not None:
            hashes = dict(self.start.hashes)
            for component in stage.components:
                state = load_replica_state(component.index, self.replica, self.start.folder, hashes)
                if state:
                    replication.load_state_dict(component.index, state)
        return replication

    def up_capacity_bytes(self, network: Network, after: int) -> int:
        """Largest message that can travel up from component `after` (counted from 0)."""
        samples = self.spec.data.batch_size
        if self.pipelined:
            return self._pipelined_capacity_bytes(network, after)
        sizes = [nbytes * samples for nbytes in network.encoders[after].given_bytes.values()]
        if self.spec.method.kind == "associated_learning":
            sizes.append(self.spec.method.label_dim * network.dtype.itemsize * samples)
        elif self.spec.method.kind == "supervised_contrastive":
            sizes.append(torch.int64.itemsize * samples)  # the labels
        return packed_bytes(sizes)

    def _pipelined_capacity_bytes(self, network: Network, after: int) -> int:
        """Of an edge of a pipeline, which carries labels, and in evaluations s or class scores. With virtual stages it
        is that of every one of them."""
        samples = self.spec.data.batch_size
        ends = [after]
        if self.plan.virtual_stages > 1:
            ends = [run[-1] for stage in self.plan.stage_plans for run in stage.runs]
        largest = max(network.encoders[end].output.sample_bytes for end in ends)
        scores_bytes = self.data.classes * network.dtype.itemsize
        sizes = [samples * max(largest, scores_bytes, torch.int64.itemsize)]
        if self.data.sample.words is not None:
            sizes.append(samples * self.data.sample[0])  # the mask
        return packed_bytes(sizes)

    def wire_capacity(self, network: Network) -> tuple[int, int]:
        """Bytes of the largest message of a pipeline that torch orders, and how many of them may wait at once: no more
        than a mini-batch has, outputs and gradients of every virtual stage, so that a send never waits."""
        plan = self.plan
        ends = [run[-1] for stage in plan.stage_plans for run in stage.runs]
        samples = self.shares[self.replica] // plan.micro_batches
        largest = max(network.encoders[end].output.sample_bytes for end in ends)
        return packed_bytes([samples * largest]), 2 * plan.micro_batches * plan.virtual_stages

    def down_capacity_bytes(self, network: Network, above: int) -> int:
        """Largest message that can travel down from the stage that begins with component `above`."""
        samples = self.spec.data.batch_size
        width = getattr(self.spec.method, "label_dim", self.data.classes)
        routes = sum(network.ends_route(index) for index in range(above, len(network)))
        return packed_bytes([routes * samples * width * network.dtype.itemsize])


def start_from(run_dir: Path, manifest: dict[str, Any]) -> Start:
    """The start a checkpoint's manifest describes."""
    return Start(
        step=manifest["step"],
        folder=checkpoint_folder(run_dir, manifest["step"]),
        hashes=tuple((entry["file"], entry["sha256"]) for entry in manifest["files"]),
        shares=tuple(manifest.get("shares") or ()),
    )
